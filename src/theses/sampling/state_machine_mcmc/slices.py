"""Slice samplers as state machines: elliptical slice sampling, and slices along random directions."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.util import generate_gaussian_noise, generate_unit_vector
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from theses.sampling.state_machine_mcmc.machine import (
    LogDensity,
    StateMachine,
    check_callable,
    machine_from_blocks,
    safe_density,
)
from theses.validation import check_array, check_integer, check_real

__all__ = ["SliceInfo", "elliptical_slice", "slice_sampler"]


class SliceInfo(NamedTuple):
    """Report of a draw of a slice sampler.

    Parameters
    ----------
    evaluations : jax scalar, int32
        Density evaluations in the loops of the draw.
    logdensity : jax scalar
        Log density (elliptical slice: log-likelihood) at the draw.

    Examples
    --------
    >>> SliceInfo(3, -1.5).evaluations
    3
    """

    evaluations: Any
    logdensity: Any


class _Ellipse(NamedTuple):
    position: Any
    logdensity: Any
    work: Any
    info: SliceInfo
    request: Any  # position whose density is asked for
    answer: Any  # its log density, where the call is amortised
    nu: Any
    level: Any
    angle: Any
    lower: Any
    upper: Any
    shrink_key: Any
    tries: Any


def elliptical_slice(
    logdensity_fn: LogDensity, *, mean: Any, cov: Any, amortised: bool = True, bundled: bool = True
) -> StateMachine:
    """Elliptical slice sampling of ``exp(logdensity_fn(x)) N(x; mean, cov)`` as a state machine.

    A draw ``nu ~ N(mean, cov)`` spans an ellipse ``mean + (x - mean) cos t + (nu - mean) sin t`` through
    the current ``x``; the angle ``t`` is drawn from a bracket that shrinks towards 0 until the point lies
    over the level ``log u + L(x)``. Blocks: INIT (level, ellipse, first angle), SHRINK (evaluate; accept or
    shrink), DONE (emit). With equal keys the draws are those of ``blackjax.elliptical_slice``. A NaN
    density is rejected.

    Parameters
    ----------
    logdensity_fn : callable
        Log-likelihood of one position, a pytree of floating arrays; the Gaussian prior is not part of it.
    mean : array of shape (n_dims,) or float
        Mean of the prior, in the order of ``jax.flatten_util.ravel_pytree``.
    cov : array of shape (n_dims,) or (n_dims, n_dims)
        Variances or covariance matrix of the prior.
    amortised : bool, default=True
        Evaluate the density once a step for all blocks. Otherwise INIT and SHRINK each make their own call,
        as the formulas are written.
    bundled : bool, default=True
        Try all blocks in a step. Otherwise a step is one block; the draws are the same.

    Returns
    -------
    StateMachine
        The sampler. A step costs one density evaluation (two if not ``amortised``) and O(n_dims^2) for a full
        ``cov``, of which only the ellipse is drawn.

    Raises
    ------
    TypeError, ValueError
        If ``logdensity_fn`` is no function, ``mean`` or ``cov`` do not fit each other, or ``cov`` is not
        symmetric and positive definite.

    References
    ----------
    Murray, Adams and MacKay 2010; arXiv 2503.17405, on the elliptical slice machine and its
    amortisation.

    Examples
    --------
    >>> machine = elliptical_slice(lambda x: -((x[0] - 1) ** 2), mean=0.0, cov=[1.0, 1.0])
    >>> machine.block_names
    ('INIT', 'SHRINK', 'DONE')
    """
    check_callable("logdensity_fn", logdensity_fn)
    center, root = _check_prior(mean, cov)
    density = safe_density(logdensity_fn)

    def ellipse(data: _Ellipse, angle: Any) -> Any:
        mu = _mean_like(center, data.position)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        return jax.tree.map(
            lambda x, nu, mu: ((x - mu) * cos + (nu - mu) * sin + mu).astype(x.dtype),
            data.position,
            data.nu,
            mu,
        )

    def start(position: Any, key: Any) -> _Ellipse:
        flat, _ = ravel_pytree(position)
        if flat.size != len(root):
            raise ValueError(
                f"positions must hold {len(root)} numbers a chain, as cov has rows, got {flat.size}"
            )
        logdensity = density(position)
        zero, none = jnp.zeros((), flat.dtype), jnp.zeros((), jnp.int32)
        return _Ellipse(
            position=position,
            logdensity=logdensity,
            work=none,
            info=SliceInfo(none, logdensity),
            request=position,
            answer=logdensity,
            nu=position,
            level=logdensity,
            angle=zero,
            lower=zero,
            upper=zero,
            shrink_key=key,
            tries=none,
        )

    def init(data: _Ellipse, key: Any) -> tuple[_Ellipse, Any, Any]:
        key_slice, key_nu, key_level, key_angle = jax.random.split(key, 4)
        dtype = data.angle.dtype
        nu = generate_gaussian_noise(
            key_nu, data.position, jnp.asarray(center, dtype), jnp.asarray(root, dtype)
        )
        logdensity = data.logdensity if amortised else density(data.position)
        level = logdensity + jnp.log(jax.random.uniform(key_level, dtype=dtype)).astype(logdensity.dtype)
        angle = 2 * jnp.pi * jax.random.uniform(key_angle, dtype=dtype)
        data = data._replace(
            nu=nu,
            level=level,
            angle=angle,
            lower=angle - 2 * jnp.pi,
            upper=angle,
            shrink_key=key_slice,
            tries=jnp.ones((), jnp.int32),
        )
        return data._replace(request=ellipse(data, angle)), 1, False

    def shrink(data: _Ellipse, key: Any) -> tuple[_Ellipse, Any, Any]:
        value = data.answer if amortised else density(data.request)
        accepted = value > data.level
        lower = jnp.where(data.angle < 0, data.angle, data.lower)
        upper = jnp.where(data.angle > 0, data.angle, data.upper)
        retry = jax.random.fold_in(data.shrink_key, data.tries)
        angle = jax.random.uniform(retry, dtype=lower.dtype, minval=lower, maxval=upper)
        data = data._replace(
            position=_where(accepted, data.request, data.position),
            logdensity=jnp.where(accepted, value, data.logdensity),
            request=_where(accepted, data.request, ellipse(data, angle)),
            lower=lower,
            upper=upper,
            angle=angle,
            work=data.work + 1,
            tries=data.tries + jnp.where(accepted, 0, 1),
        )
        return data, jnp.where(accepted, 2, 1), False

    def done(data: _Ellipse, key: Any) -> tuple[_Ellipse, Any, Any]:
        return data._replace(info=SliceInfo(data.tries, data.logdensity)), 0, True

    def amortise(data: _Ellipse) -> _Ellipse:
        return data._replace(answer=density(data.request))

    return machine_from_blocks(
        start,
        [init, shrink, done],
        bundle="loop" if bundled else None,
        amortise=amortise if amortised else None,
    )


class _Slice(NamedTuple):
    position: Any
    logdensity: Any
    work: Any
    info: SliceInfo
    request: Any
    answer: Any
    direction: Any
    level: Any
    lower: Any
    upper: Any
    offset: Any
    left: Any  # steps that may still be made to the left
    right: Any
    tries: Any


def slice_sampler(
    logdensity_fn: LogDensity,
    *,
    width: float = 1.0,
    max_steps_out: int = 8,
    amortised: bool = True,
    bundled: bool = True,
) -> StateMachine:
    """Slice sampling along random directions as a state machine.

    A bracket of the given width is laid at random around the current point on a line in a uniformly random
    direction, grown in steps of its width while its ends lie over the level ``log u + L(x)``, and shrunk
    towards the current point until a point over the level is drawn from it. Blocks: INIT, EXPAND_LOWER,
    EXPAND_UPPER, SHRINK, DONE. A NaN density is rejected.

    Parameters
    ----------
    logdensity_fn : callable
        Log density of one position, a pytree of floating arrays.
    width : float, default=1.0
        Width of the first bracket, in units of the flattened position.
    max_steps_out : int, default=8
        Largest width of the bracket, in units of ``width``; shared at random between the two sides.
    amortised : bool, default=True
        Evaluate the density once a step for all blocks. Otherwise four blocks each make their own call.
    bundled : bool, default=True
        Try all blocks in a step. Otherwise a step is one block; the draws are the same.

    Returns
    -------
    StateMachine
        The sampler. A step costs one density evaluation (four if not ``amortised``).

    Raises
    ------
    TypeError, ValueError
        If ``logdensity_fn`` is no function, ``width`` is not positive, or ``max_steps_out`` is below 1.

    References
    ----------
    Neal 2003, Figures 3 and 5; arXiv 2503.17405, on slice samplers as state machines.

    Examples
    --------
    >>> slice_sampler(lambda x: -x @ x / 2, width=2.0).block_names
    ('INIT', 'EXPAND_LOWER', 'EXPAND_UPPER', 'SHRINK', 'DONE')
    """
    check_callable("logdensity_fn", logdensity_fn)
    width = check_real("width", width, minimum=0, include=False)
    max_steps_out = check_integer("max_steps_out", max_steps_out, minimum=1)
    density = safe_density(logdensity_fn)

    def point(data: _Slice, offset: Any) -> Any:
        return jax.tree.map(lambda x, e: (x + offset * e).astype(x.dtype), data.position, data.direction)

    def lookup(data: _Slice) -> Any:
        return data.answer if amortised else density(data.request)

    def start(position: Any, key: Any) -> _Slice:
        flat, _ = ravel_pytree(position)
        logdensity = density(position)
        zero, none = jnp.zeros((), flat.dtype), jnp.zeros((), jnp.int32)
        return _Slice(
            position=position,
            logdensity=logdensity,
            work=none,
            info=SliceInfo(none, logdensity),
            request=position,
            answer=logdensity,
            direction=position,
            level=logdensity,
            lower=zero,
            upper=zero,
            offset=zero,
            left=none,
            right=none,
            tries=none,
        )

    def go_on(data: _Slice, key: Any) -> tuple[_Slice, Any, Any]:
        # Ask for the density that the next loop needs: an end that may still move, or a point to accept.
        offset = jax.random.uniform(key, dtype=data.lower.dtype, minval=data.lower, maxval=data.upper)
        following = jnp.where(data.left > 0, 1, jnp.where(data.right > 0, 2, 3))
        asked = jnp.stack([data.lower, data.upper, offset])[following - 1]
        return data._replace(offset=offset, request=point(data, asked)), following, False

    def init(data: _Slice, key: Any) -> tuple[_Slice, Any, Any]:
        key_direction, key_level, key_place, key_split, key_on = jax.random.split(key, 5)
        dtype = data.lower.dtype
        logdensity = data.logdensity if amortised else density(data.position)
        lower = -width * jax.random.uniform(key_place, dtype=dtype)
        left = jax.random.randint(key_split, (), 0, max_steps_out, dtype=jnp.int32)
        data = data._replace(
            direction=generate_unit_vector(key_direction, data.position),
            level=logdensity + jnp.log(jax.random.uniform(key_level, dtype=dtype)).astype(logdensity.dtype),
            lower=lower,
            upper=lower + width,
            left=left,
            right=max_steps_out - 1 - left,
            tries=jnp.zeros((), jnp.int32),
        )
        return go_on(data, key_on)

    def expand_lower(data: _Slice, key: Any) -> tuple[_Slice, Any, Any]:
        over = lookup(data) > data.level
        data = data._replace(
            lower=jnp.where(over, data.lower - width, data.lower),
            left=jnp.where(over, data.left - 1, 0),
            work=data.work + 1,
            tries=data.tries + 1,
        )
        return go_on(data, key)

    def expand_upper(data: _Slice, key: Any) -> tuple[_Slice, Any, Any]:
        over = lookup(data) > data.level
        data = data._replace(
            upper=jnp.where(over, data.upper + width, data.upper),
            right=jnp.where(over, data.right - 1, 0),
            work=data.work + 1,
            tries=data.tries + 1,
        )
        return go_on(data, key)

    def shrink(data: _Slice, key: Any) -> tuple[_Slice, Any, Any]:
        value = lookup(data)
        accepted = value > data.level
        lower = jnp.where(data.offset < 0, data.offset, data.lower)
        upper = jnp.where(data.offset > 0, data.offset, data.upper)
        offset = jax.random.uniform(key, dtype=lower.dtype, minval=lower, maxval=upper)
        data = data._replace(
            request=_where(accepted, data.request, point(data, offset)),
            position=_where(accepted, data.request, data.position),
            logdensity=jnp.where(accepted, value, data.logdensity),
            lower=lower,
            upper=upper,
            offset=offset,
            work=data.work + 1,
            tries=data.tries + 1,
        )
        return data, jnp.where(accepted, 4, 3), False

    def done(data: _Slice, key: Any) -> tuple[_Slice, Any, Any]:
        return data._replace(info=SliceInfo(data.tries, data.logdensity)), 0, True

    def amortise(data: _Slice) -> _Slice:
        return data._replace(answer=density(data.request))

    blocks = [init, expand_lower, expand_upper, shrink, done]
    # Where the call is shared, the three blocks that wait for it go first and backwards: what one of them
    # asks for is answered in the next step, and no other may take the old answer for it.
    order = (3, 2, 1, 4, 0) if amortised else (0, 1, 2, 3, 4)
    return machine_from_blocks(
        start, blocks, bundle=order if bundled else None, amortise=amortise if amortised else None
    )


def _check_prior(mean: Any, cov: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean, and the deviations or the Cholesky factor of the covariance."""
    covariance = check_array("cov", cov, ndim=(1, 2))
    center = check_array("mean", mean, ndim=(0, 1))
    if center.ndim and len(center) != len(covariance):
        raise ValueError(
            f"mean and cov must have the same length, but mean has {len(center)}, cov has {len(covariance)}"
        )
    return center, root_of("cov", covariance)


def root_of(name: str, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Square root of variances, or Cholesky factor of a symmetric positive definite matrix."""
    if matrix.ndim == 1:
        if (matrix <= 0).any():
            raise ValueError(f"{name} must hold positive variances, got {matrix.min()}")
        return np.asarray(np.sqrt(matrix), np.float64)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be square, got shape {matrix.shape}")
    if not np.allclose(matrix, matrix.T, rtol=1e-5, atol=1e-6 * np.abs(matrix).max()):
        raise ValueError(f"{name} must be symmetric")
    try:
        return np.asarray(np.linalg.cholesky(matrix), np.float64)
    except np.linalg.LinAlgError:
        raise ValueError(f"{name} must be positive definite") from None


def _mean_like(center: NDArray[np.float64], position: Any) -> Any:
    flat, unravel = ravel_pytree(position)
    return unravel(jnp.broadcast_to(jnp.asarray(center, flat.dtype), flat.shape))


def _where(condition: Any, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
