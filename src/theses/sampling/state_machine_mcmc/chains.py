"""Many chains at once: vmapped steps, and the first draws of each chain."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jax import lax

from theses.sampling.state_machine_mcmc.machine import StateMachine, info_of
from theses.validation import check_integer

__all__ = ["Trace", "run"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trace:
    """Draws of many chains, and what they cost.

    Parameters
    ----------
    samples : pytree of shape (num_samples, n_chains, ...)
        The first draws of each chain after its warm-up, in the structure of a position.
    inner_counts : jax array of shape (num_samples, n_chains), int32
        Evaluations of the density (or its gradient) in the inner loops of each draw.
    work : jax array of shape (n_chains,), int32
        The same, summed over all draws of a chain, those of the warm-up included.
    steps : int
        Vectorised steps that were made: the most that any chain needed.
    info : pytree of shape (num_samples, n_chains)
        The sampler's report of each draw, such as :class:`NUTSInfo`; empty if it makes none.

    Examples
    --------
    >>> trace = Trace(jnp.zeros((2, 3)), jnp.array([[1, 2, 3], [4, 1, 2]]), jnp.array([5, 3, 5]), 5, ())
    >>> trace.summary()
    '2 draws of 3 chains in 5 steps; 2.17 evaluations a draw (at most 4); chains that wait: 7 iterations'
    """

    samples: Any
    inner_counts: Any
    work: Any
    steps: int
    info: Any

    def summary(self) -> str:
        """One line: draws, steps, and the iterations of chains that wait for each other at every draw.

        Returns
        -------
        str
            For a reader.
        """
        counts = np.asarray(self.inner_counts)
        n, m = counts.shape
        return (
            f"{n} draws of {m} chains in {self.steps} steps; {counts.mean():.2f} evaluations a draw "
            f"(at most {counts.max()}); chains that wait: {counts.max(axis=1).sum()} iterations"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain mapping: numpy arrays by name; the leaves of samples and info by their paths.

        Returns
        -------
        dict
            Arrays, and the number of steps.
        """
        named = {
            "inner_counts": np.asarray(self.inner_counts),
            "work": np.asarray(self.work),
            "steps": self.steps,
        }
        for name, tree in (("samples", self.samples), ("info", self.info)):
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
                named[name + jax.tree_util.keystr(path)] = np.asarray(leaf)
        return named

    def to_frame(self) -> pl.DataFrame:
        """One row a draw and chain: ``draw``, ``chain``, ``inner_count`` and the flattened samples.

        Returns
        -------
        polars.DataFrame
            ``num_samples * n_chains`` rows.
        """
        n, m = self.inner_counts.shape
        columns: dict[str, Any] = {
            "draw": np.repeat(np.arange(n), m),
            "chain": np.tile(np.arange(m), n),
            "inner_count": np.asarray(self.inner_counts).ravel(),
        }
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.samples):
            flat = np.asarray(leaf).reshape(n * m, -1)
            name = jax.tree_util.keystr(path) or "x"
            for i in range(flat.shape[1]):
                columns[name if flat.shape[1] == 1 else f"{name}[{i}]"] = flat[:, i]
        return pl.DataFrame(columns)


class _Run(NamedTuple):
    states: Any
    samples: Any
    info: Any
    inner_counts: Any
    drawn: Any  # (n_chains,): complete draws
    counted: Any  # work of each chain at its last complete draw
    work: Any  # the same, at the last draw that is kept
    steps: Any


def run(
    key: Any,
    machine: StateMachine,
    positions: Any,
    *,
    num_samples: int,
    num_warmup: int = 0,
    chunk: int = 100,
    max_chunks: int | None = None,
) -> Trace:
    """Run many chains until each has its draws, and keep the first ``num_samples`` of each.

    Chains write each complete draw to a row of their own, so that memory is that of the result. A count over
    all chains would favour fast states; here the slowest chain decides when to stop, while the others go on
    without being looked at.

    Parameters
    ----------
    key : JAX random key
        Split over the chains.
    machine : StateMachine
        The sampler. It is compiled once for each shape of ``positions`` and each ``num_samples``, and again
        only for another machine: build it once.
    positions : pytree of floating arrays
        Starting points; the first axis of each leaf counts chains, of shape (n_chains, ...).
    num_samples : int
        Draws kept of each chain.
    num_warmup : int, default=0
        Draws of each chain dropped before.
    chunk : int, default=100
        Steps between two looks at the chains. Nothing of the result depends on it.
    max_chunks : int, optional
        Chunks in a row in which a chain may complete no draw.

    Returns
    -------
    Trace
        Draws and costs. Time is O(steps n_chains (density + state)), memory O(num_samples n_chains n_dims).

    Raises
    ------
    TypeError
        If ``key``, ``machine`` or a number is of the wrong type.
    ValueError
        If a number is out of range, leaves of ``positions`` have no or different numbers of chains or are not
        floating, the machine cannot start from them, or a log density there is not finite.
    RuntimeError
        If a chain has completed no draw in ``max_chunks`` chunks.

    References
    ----------
    arXiv 2503.17405, on the run of a vectorised state machine and its cost.

    Examples
    --------
    >>> from theses.sampling.state_machine_mcmc import delayed_rejection
    >>> machine = delayed_rejection(lambda x: -x * x / 2, scale=1.0)
    >>> trace = run(jax.random.key(0), machine, jnp.zeros(8), num_samples=5)
    >>> trace.samples.shape, trace.steps == int(trace.work.max())
    ((5, 8), True)
    """
    _check_key(key)
    if not isinstance(machine, StateMachine):
        raise TypeError(f"machine must be a StateMachine, got {type(machine).__name__}")
    num_samples = check_integer("num_samples", num_samples, minimum=1)
    num_warmup = check_integer("num_warmup", num_warmup, minimum=0)
    chunk = check_integer("chunk", chunk, minimum=1)
    if max_chunks is not None:
        max_chunks = check_integer("max_chunks", max_chunks, minimum=1)
    positions, n_chains = _check_positions(positions)

    try:
        carry = _start(machine, num_samples, positions, jax.random.split(key, n_chains))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        shapes = ", ".join(str(leaf.shape[1:]) for leaf in jax.tree.leaves(positions))
        raise ValueError(
            f"positions must be such that the machine can start from each; of shape {shapes} a chain it "
            f"fails: {error!r}"
        ) from error
    _check_density(carry.states)

    total = num_warmup + num_samples
    drawn = np.zeros(n_chains, np.int64)
    idle = np.zeros(n_chains, np.int64)
    while (drawn < total).any():
        carry = _advance(machine, carry, chunk, num_warmup, total)
        now = np.array(carry.drawn)
        idle = np.where((now == drawn) & (now < total), idle + 1, 0)
        drawn = now
        _LOG.debug("%d steps, %d of %d draws of the slowest chain", carry.steps, drawn.min(), total)
        if max_chunks is not None and (idle >= max_chunks).any():
            stuck = int(idle.argmax())
            block = machine.block_names[int(carry.states.block[stuck])]
            raise RuntimeError(
                f"chain {stuck} has completed no draw in max_chunks = {max_chunks} chunks of {chunk} steps; "
                f"it is in block {block}"
            )
    return Trace(carry.samples, carry.inner_counts, carry.work, int(carry.steps), carry.info)


@partial(jax.jit, static_argnums=(0, 1))
def _start(machine: StateMachine, num_samples: int, positions: Any, keys: Any) -> _Run:
    states = jax.vmap(machine.init)(positions, keys)
    work = jax.vmap(machine.work)(states).astype(jnp.int32)

    def rows(leaf: Any) -> Any:
        return jnp.zeros((num_samples, *leaf.shape), leaf.dtype)

    samples, info = jax.tree.map(rows, (positions, info_of(states)))
    none = jnp.zeros_like(work)
    return _Run(states, samples, info, rows(work), none, work, none, jnp.zeros((), jnp.int32))


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _advance(machine: StateMachine, carry: _Run, chunk: Any, num_warmup: Any, total: Any) -> _Run:
    chains = jnp.arange(carry.drawn.shape[0])
    num_samples = carry.inner_counts.shape[0]

    def write(rows: Any, buffer: Any, values: Any) -> Any:
        return jax.tree.map(lambda b, v: b.at[rows, chains].set(v, mode="drop"), buffer, values)

    def step(carry: _Run) -> _Run:
        states, emitted, values = jax.vmap(machine.step)(carry.states)
        work = jax.vmap(machine.work)(states).astype(jnp.int32)
        row = carry.drawn - num_warmup
        # Negative rows would count from the end: warm-up and unfinished draws go past it, and are dropped.
        row = jnp.where(emitted & (row >= 0), row, num_samples)
        return _Run(
            states=states,
            samples=write(row, carry.samples, values),
            info=write(row, carry.info, info_of(states)),
            inner_counts=write(row, carry.inner_counts, work - carry.counted),
            drawn=carry.drawn + emitted,
            counted=jnp.where(emitted, work, carry.counted),
            work=jnp.where(emitted & (carry.drawn < total), work, carry.work),
            steps=carry.steps + 1,
        )

    end = carry.steps + chunk
    return lax.while_loop(lambda c: (c.steps < end) & (c.drawn < total).any(), step, carry)


def _check_key(key: Any) -> None:
    if isinstance(key, jax.Array):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
            return
        if key.dtype == jnp.uint32 and key.ndim == 1:
            return
    raise TypeError(f"key must be one JAX random key, as jax.random.key(0), got {type(key).__name__} {key!r}")


def _check_positions(positions: Any) -> tuple[Any, int]:
    leaves, structure = jax.tree.flatten(positions)
    if not leaves:
        raise ValueError("positions must hold at least one array, got none")
    shapes = [np.shape(leaf) for leaf in leaves]
    if any(not shape for shape in shapes):
        raise ValueError("positions must have a leading axis for chains in every leaf, got a scalar")
    if len({shape[0] for shape in shapes}) > 1:
        raise ValueError(f"positions must have as many chains in every leaf, got shapes {shapes}")
    if 0 in (side for shape in shapes for side in shape):
        raise ValueError(f"positions must not be empty, got shapes {shapes}")
    arrays = []
    for leaf in leaves:
        if not jnp.issubdtype(getattr(leaf, "dtype", np.asarray(leaf).dtype), jnp.floating):
            kind = getattr(leaf, "dtype", np.asarray(leaf).dtype)
            raise ValueError(f"positions must be floating numbers, got {kind}")
        arrays.append(jnp.asarray(leaf))
        finite = np.isfinite(np.asarray(leaf, dtype=np.float64)).reshape(len(leaf), -1).all(axis=1)
        if not finite.all():
            raise ValueError(f"positions must be finite, got others in {_chains(~finite)}")
    return jax.tree.unflatten(structure, arrays), shapes[0][0]


def _check_density(states: Any) -> None:
    logdensity = getattr(getattr(states, "data", None), "logdensity", None)
    if logdensity is not None:
        wrong = ~np.isfinite(np.asarray(logdensity, dtype=np.float64))
        if wrong.any():
            raise ValueError(
                f"positions must start where the log density is finite, which it is not in {_chains(wrong)}"
            )


def _chains(wrong: Any) -> str:
    which = np.flatnonzero(wrong)
    listed = ", ".join(map(str, which[:10])) + (", ..." if len(which) > 10 else "")
    return f"chain{'s' if len(which) > 1 else ''} {listed}"
