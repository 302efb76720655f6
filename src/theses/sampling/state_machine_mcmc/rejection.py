"""Delayed rejection as a state machine of one block."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.util import generate_gaussian_noise

from theses.sampling.state_machine_mcmc.machine import (
    LogDensity,
    StateMachine,
    check_callable,
    machine_from_blocks,
    safe_density,
)
from theses.validation import check_integer, check_real

__all__ = ["RejectionInfo", "delayed_rejection"]


class RejectionInfo(NamedTuple):
    """Report of a draw of delayed rejection.

    Parameters
    ----------
    tries : jax scalar, int32
        Proposals made, the accepted one included.
    accepted : jax scalar, bool
        False if all were rejected and the chain stayed.

    Examples
    --------
    >>> RejectionInfo(100, False).accepted
    False
    """

    tries: Any
    accepted: Any


class _Walk(NamedTuple):
    position: Any
    logdensity: Any
    work: Any
    info: RejectionInfo
    origin: Any  # y_(k-1), from which the next try is proposed
    rejected: Any  # log p*, the largest log density among the rejected tries
    tries: Any


def delayed_rejection(logdensity_fn: LogDensity, *, scale: float, max_tries: int = 100) -> StateMachine:
    r"""Delayed rejection with Gaussian steps as a state machine.

    Try ``k`` proposes ``y_k ~ N(y_(k-1), scale^2 I)`` with ``y_0 = x`` and is accepted with probability

    .. math:: \min\{1, \max(0, p(y_k) - p^*) / (p(x) - p^*)\},

    where ``p*`` is the largest density among the rejected tries, 0 before there are any. After ``max_tries``
    rejected tries the chain stays at ``x``. The ratio is taken in logarithms. The only block is PROPOSE; a
    NaN density is rejected.

    Parameters
    ----------
    logdensity_fn : callable
        Log density of one position, a pytree of floating arrays.
    scale : float
        Standard deviation of a step.
    max_tries : int, default=100
        Most proposals a draw.

    Returns
    -------
    StateMachine
        The sampler. A step is one try and costs one density evaluation.

    Raises
    ------
    TypeError, ValueError
        If ``logdensity_fn`` is no function, ``scale`` is not positive, or ``max_tries`` is below 1.

    References
    ----------
    Mira 2001; arXiv 2503.17405, experiment on delayed rejection.

    Examples
    --------
    >>> delayed_rejection(lambda x: -x @ x / 2, scale=0.5).block_names
    ('PROPOSE',)
    """
    check_callable("logdensity_fn", logdensity_fn)
    scale = check_real("scale", scale, minimum=0, include=False)
    max_tries = check_integer("max_tries", max_tries, minimum=1)
    density = safe_density(logdensity_fn)

    def start(position: Any, key: Any) -> _Walk:
        logdensity = density(position)
        none = jnp.zeros((), jnp.int32)
        return _Walk(
            position=position,
            logdensity=logdensity,
            work=none,
            info=RejectionInfo(none, jnp.zeros((), bool)),
            origin=position,
            rejected=jnp.full_like(logdensity, -jnp.inf),
            tries=none,
        )

    def propose(data: _Walk, key: Any) -> tuple[_Walk, Any, Any]:
        key_noise, key_accept = jax.random.split(key)
        noise = generate_gaussian_noise(key_noise, data.origin)
        proposal = jax.tree.map(lambda y, e: (y + scale * e).astype(y.dtype), data.origin, noise)
        value = density(proposal)
        ratio = log_acceptance(value, data.rejected, data.logdensity)
        accepted = jnp.log(jax.random.uniform(key_accept, dtype=value.dtype)) < ratio
        tries = data.tries + 1
        complete = accepted | (tries >= max_tries)

        position = jax.tree.map(lambda y, x: jnp.where(accepted, y, x), proposal, data.position)
        new = _Walk(
            position=position,
            logdensity=jnp.where(accepted, value, data.logdensity),
            work=data.work + 1,
            info=RejectionInfo(
                jnp.where(complete, tries, data.info.tries),
                jnp.where(complete, accepted, data.info.accepted),
            ),
            # A new draw starts from where the chain is, not from where the last tries have led.
            origin=jax.tree.map(lambda x, y: jnp.where(complete, x, y), position, proposal),
            rejected=jnp.where(complete, -jnp.inf, jnp.maximum(data.rejected, value)),
            tries=jnp.where(complete, 0, tries),
        )
        return new, 0, complete

    return machine_from_blocks(start, [propose])


def log_acceptance(value: Any, rejected: Any, current: Any) -> Any:
    """Logarithm of the acceptance probability from the log densities of a try, p* and x.

    ``current > rejected`` always holds: a try at least as dense as x is accepted.
    """
    better = value > rejected
    # Both sides of a selection are computed: the one that is not taken must not be NaN, inf - inf.
    gain = jnp.where(better, value - jnp.where(better, rejected, 0.0), jnp.inf)
    ratio = (value - current) + _log1mexp(gain) - _log1mexp(current - rejected)
    return jnp.where(better, jnp.minimum(ratio, 0.0), -jnp.inf)


def _log1mexp(u: Any) -> Any:
    """``log(1 - exp(-u))`` for u > 0 without cancellation: by expm1 near 0, by log1p beyond log 2."""
    near = u < 0.6931472
    return jnp.where(
        near, jnp.log(-jnp.expm1(-jnp.where(near, u, 1.0))), jnp.log1p(-jnp.exp(-jnp.where(near, 1.0, u)))
    )
