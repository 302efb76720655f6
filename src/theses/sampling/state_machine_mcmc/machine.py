"""From blocks to a machine: step bundling and cost amortisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm
from jax import lax

__all__ = ["Block", "ChainState", "StateMachine", "as_sampling_algorithm", "machine_from_blocks"]

LogDensity = Callable[[Any], Any]


class Block(Protocol):
    """Straight-line part of a sampler between two decisions of its loops.

    Called with the chain's data and a random key of its own, it returns ``(data, next_block, emitted)``: the
    new data, the index of the block to go on with, and whether a draw is complete. A block that never
    completes a draw returns the literal False, which spares the machine a selection.

    Examples
    --------
    >>> def stay(data, key):
    ...     return data, 0, True
    >>> machine_from_blocks(lambda position, key: None, [stay]).block_names
    ('STAY',)
    """

    def __call__(self, data: Any, key: Any, /) -> tuple[Any, Any, Any]:
        """Advance the chain by this block."""


class StateMachine(NamedTuple):
    """A sampler as a finite state machine; all functions are pure and act on one chain.

    Parameters
    ----------
    init : callable
        ``init(position, key) -> state``. The state is a NamedTuple and a pytree; it holds its own ``key`` and
        the index of its current ``block``, 0 at the start of a draw.
    step : callable
        ``step(state) -> (state, emitted, value)``: one bundled step, whether it completed a draw, and that
        draw, a pytree like ``position``.
    block_names : tuple of str
        Names of the blocks.
    work : callable
        ``work(state)``: evaluations of the density (or its gradient) in the loops of this chain so far.

    References
    ----------
    arXiv 2503.17405, on samplers as finite state machines.

    Examples
    --------
    >>> from theses.sampling.state_machine_mcmc import delayed_rejection
    >>> machine = delayed_rejection(lambda x: -x * x / 2, scale=1.0)
    >>> state = machine.init(jnp.float32(0.5), jax.random.key(0))
    >>> int(machine.work(state)), machine.block_names
    (0, ('PROPOSE',))
    """

    init: Callable[[Any, Any], Any]
    step: Callable[[Any], tuple[Any, Any, Any]]
    block_names: tuple[str, ...]
    work: Callable[[Any], Any]


class ChainState(NamedTuple):
    """Where one chain stands in its algorithm.

    Parameters
    ----------
    key : JAX random key
        Key of the chain; it never changes.
    visits : jax scalar, int32
        Blocks that the chain has been through. A block's randomness comes from ``fold_in(key, visits)``, so
        that draws do not depend on how blocks are bundled into steps.
    block : jax scalar, int32
        Block to go on with.
    data : pytree
        What the blocks work on.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> class Data(NamedTuple):
    ...     position: float
    ...     work: int
    >>> ChainState(None, 0, 0, Data(0.5, 3)).position
    0.5
    """

    key: Any
    visits: Any
    block: Any
    data: Any

    @property
    def position(self) -> Any:
        """Position of the chain after its last complete draw."""
        return self.data.position


def machine_from_blocks(
    init: Callable[[Any, Any], Any],
    blocks: Sequence[Block],
    *,
    bundle: Sequence[int] | Literal["loop"] | None = "loop",
    amortise: Callable[[Any], Any] | None = None,
) -> StateMachine:
    """State machine from the blocks of a sampler.

    A step tries the blocks in a fixed order, ``if block == k: data, block = S_k(data)``, so that one step can
    lead a chain through several of them (step bundling). Under ``vmap`` a condition executes both sides in
    any case, so that bundling is free: a step costs all blocks, one after another, for all chains.

    Parameters
    ----------
    init : callable
        ``init(position, key) -> data``. The data are a NamedTuple with the fields ``position`` (a complete
        draw when a block emits), ``work`` (int32, evaluations so far; blocks count) and, where there is one,
        ``logdensity`` (:func:`run` refuses chains that start where it is not finite) and ``info`` (what is
        reported of the last complete draw).
    blocks : sequence of Block
        The algorithm; it starts at block 0. At most one block emits.
    bundle : tuple of int, "loop" or None, default="loop"
        Order in which a step tries the blocks, each once. "loop" is 0, 1, 2, ...; with ``amortise`` it is
        1, 2, ..., 0: first the block that waits for the shared call, then on to the next request. None does
        one block a step, by ``lax.switch``.
    amortise : callable, optional
        ``amortise(data) -> data``, the costly call that blocks share (cost amortisation). It is made once a
        step, before the blocks and outside of their conditions; blocks only write down what they ask of it.
        No block may need its answer twice within the order of a step.

    Returns
    -------
    StateMachine
        The machine.

    Raises
    ------
    ValueError
        If there are no blocks, or ``bundle`` is no order of them.

    References
    ----------
    arXiv 2503.17405, on the construction, step bundling and cost amortisation.

    Examples
    --------
    A walk that is complete when it hits 2 or -2:

    >>> from typing import NamedTuple
    >>> class Walk(NamedTuple):
    ...     position: jax.Array
    ...     place: jax.Array
    ...     work: jax.Array
    >>> def start(data, key):
    ...     return data._replace(place=jnp.int32(0)), 1, False
    >>> def move(data, key):
    ...     place = data.place + jnp.where(jax.random.bernoulli(key), 1, -1)
    ...     return data._replace(place=place, work=data.work + 1), jnp.where(abs(place) < 2, 1, 2), False
    >>> def hit(data, key):
    ...     return data._replace(position=data.place), 0, True
    >>> machine = machine_from_blocks(lambda x, key: Walk(x, x, jnp.int32(0)), [start, move, hit])
    >>> state, emitted = machine.init(jnp.int32(0), jax.random.key(0)), False
    >>> while not emitted:
    ...     state, emitted, value = machine.step(state)
    >>> abs(int(value)), int(machine.work(state)) % 2
    (2, 0)
    """
    blocks = tuple(blocks)
    n_blocks = len(blocks)
    if not blocks:
        raise ValueError("blocks must hold at least one block, got none")
    order: tuple[int, ...] | None
    if bundle is None:
        order = None
    elif isinstance(bundle, str):
        if bundle != "loop":
            raise ValueError(f"bundle must be an order of the blocks, 'loop' or None, got {bundle!r}")
        order = tuple(range(n_blocks)) if amortise is None else (*range(1, n_blocks), 0)
    else:
        order = tuple(bundle)
        if sorted(order) != list(range(n_blocks)):
            raise ValueError(f"bundle must name each of 0, ..., {n_blocks - 1} once, got {order}")

    def start(position: Any, key: Any) -> ChainState:
        zero = jnp.zeros((), jnp.int32)
        return ChainState(key, zero, zero, init(position, key))

    def visit(index: int, state: ChainState, emitting: list[int]) -> tuple[ChainState, Any]:
        data, following, emitted = blocks[index](state.data, jax.random.fold_in(state.key, state.visits))
        if emitted is not False:
            emitting.append(index)
        following = jnp.asarray(following, jnp.int32)
        return ChainState(state.key, state.visits + 1, following, data), jnp.asarray(emitted, bool)

    def bundled(state: ChainState, order: Sequence[int]) -> tuple[ChainState, Any, Any]:
        emitted: Any = jnp.zeros((), bool)
        value = state.data.position
        emitting: list[int] = []
        for index in order:
            seen = len(emitting)
            if n_blocks == 1:  # always its turn: no selection between old and new
                state, now = visit(index, state, emitting)
            else:

                def reached(state: ChainState, index: int = index) -> tuple[ChainState, Any]:
                    return visit(index, state, emitting)

                def passed(state: ChainState) -> tuple[ChainState, Any]:
                    return state, jnp.zeros((), bool)

                state, now = lax.cond(state.block == index, reached, passed, state)
            if len(emitting) > seen:
                emitted = emitted | now
                value = jax.tree.map(
                    lambda new, old, now=now: jnp.where(now, new, old), state.position, value
                )
        if len(set(emitting)) > 1:
            raise ValueError(f"at most one of the blocks may emit, got {sorted(set(emitting))}")
        return state, emitted, value

    def step(state: ChainState) -> tuple[ChainState, Any, Any]:
        if amortise is not None:
            state = state._replace(data=amortise(state.data))
        if order is not None:
            return bundled(state, order)
        branches = [lambda state, index=index: visit(index, state, []) for index in range(n_blocks)]
        state, emitted = lax.switch(state.block, branches, state)
        return state, emitted, state.position

    names = tuple(getattr(block, "__name__", f"block_{k}").upper() for k, block in enumerate(blocks))
    return StateMachine(start, step, names, _work)


def _work(state: ChainState) -> Any:
    return state.data.work


def as_sampling_algorithm(machine: StateMachine) -> SamplingAlgorithm:
    """Machine as a BlackJAX sampling algorithm, whose step loops until a draw is complete.

    Under ``vmap`` this gives the waiting back that the machine avoids: it is for one chain, for tools that
    want a kernel, and for tests.

    Parameters
    ----------
    machine : StateMachine
        The sampler.

    Returns
    -------
    blackjax.base.SamplingAlgorithm
        ``init(position, rng_key=None) -> state`` and ``step(rng_key, state) -> (state, info)``. A step starts
        a new draw from ``state.position`` with ``rng_key``, and depends on nothing else. ``info`` is the
        sampler's report of the draw, empty if it makes none.

    References
    ----------
    arXiv 2503.17405, on samplers as finite state machines; BlackJAX, ``blackjax.base``.

    Examples
    --------
    >>> from theses.sampling.state_machine_mcmc import delayed_rejection
    >>> algorithm = as_sampling_algorithm(delayed_rejection(lambda x: -x * x / 2, scale=1.0))
    >>> state = algorithm.init(jnp.float32(0.0))
    >>> state, info = algorithm.step(jax.random.key(1), state)
    >>> bool(jnp.isfinite(state.position)), int(info.tries) >= 1
    (True, True)
    """

    def init(position: Any, rng_key: Any = None) -> Any:
        return machine.init(position, jax.random.key(0) if rng_key is None else rng_key)

    def step(rng_key: Any, state: Any) -> tuple[Any, Any]:
        # A bundled step may have begun the next draw with the last key; that is dropped unseen.
        fresh = state._replace(key=rng_key, block=jnp.zeros((), jnp.int32))
        if isinstance(fresh, ChainState):
            fresh = fresh._replace(visits=jnp.zeros((), jnp.int32))

        def advance(carry: tuple[Any, Any]) -> tuple[Any, Any]:
            following, emitted, _ = machine.step(carry[0])
            return following, emitted

        final, _ = lax.while_loop(lambda carry: ~carry[1], advance, (fresh, jnp.zeros((), bool)))
        return final._replace(key=state.key), info_of(final)

    return SamplingAlgorithm(init, step)


def info_of(state: Any) -> Any:
    """What a state reports of its last complete draw, empty if nothing."""
    return getattr(getattr(state, "data", None), "info", ())


def safe_density(logdensity_fn: LogDensity) -> LogDensity:
    """The log density with NaN read as -inf, which every sampler rejects, and a check of its shape."""

    def density(position: Any) -> Any:
        value = jnp.asarray(logdensity_fn(position))
        if value.shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
            raise ValueError(
                f"logdensity_fn must return one real number, got shape {value.shape} of {value.dtype}"
            )
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    return density


def check_callable(name: str, value: Any) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise TypeError(f"{name} must be callable, got {type(value).__name__} {value!r}")
