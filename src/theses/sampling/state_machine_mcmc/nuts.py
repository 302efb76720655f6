"""The no-U-turn sampler as a state machine, on BlackJAX's own pieces."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.mcmc import integrators, metrics, proposal, termination, trajectory
from jax.flatten_util import ravel_pytree

from theses.sampling.state_machine_mcmc.machine import (
    LogDensity,
    StateMachine,
    check_callable,
    machine_from_blocks,
    safe_density,
)
from theses.sampling.state_machine_mcmc.slices import root_of
from theses.validation import check_array, check_integer, check_real

__all__ = ["NUTSInfo", "nuts"]


class NUTSInfo(NamedTuple):
    """Report of a draw of NUTS.

    Parameters
    ----------
    num_trajectory_expansions : jax scalar, int32
        Doublings, the depth of the tree.
    num_integration_steps : jax scalar, int32
        Leapfrog steps.
    is_divergent : jax scalar, bool
        Whether the energy rose by more than the threshold.
    is_turning : jax scalar, bool
        Whether the trajectory ended by a U-turn.
    acceptance_rate : jax scalar
        Mean Metropolis acceptance probability along the trajectory.
    energy : jax scalar
        Energy of the draw.

    Examples
    --------
    >>> NUTSInfo(3, 7, False, True, 0.9, 1.5).num_integration_steps
    7
    """

    num_trajectory_expansions: Any
    num_integration_steps: Any
    is_divergent: Any
    is_turning: Any
    acceptance_rate: Any
    energy: Any


class _Tree(NamedTuple):
    position: Any
    logdensity: Any
    logdensity_grad: Any
    work: Any
    info: NUTSInfo
    draw_key: Any
    subtree_key: Any
    merge_key: Any
    energy: Any  # H0 of the draw
    depth: Any
    proposal: Any
    trajectory: Any
    direction: Any
    step: Any  # leapfrog steps in the subtree
    sub_proposal: Any
    sub_trajectory: Any
    checkpoints: Any
    is_diverging: Any
    is_turning: Any


def nuts(
    logdensity_fn: LogDensity,
    *,
    step_size: float,
    inverse_mass_matrix: Any,
    max_num_doublings: int = 10,
    divergence_threshold: float = 1000.0,
    bundled: bool = True,
) -> StateMachine:
    """The no-U-turn sampler (iterative, multinomial) as a state machine.

    Blocks: INIT (momentum, energy, trajectory of one point), EXPAND (direction, start of a subtree),
    INTEGRATE (one leapfrog step, progressive uniform sampling in the subtree, iterative U-turn checks;
    leaves when the subtree turns, diverges or is complete), CHECK (merge, biased progressive sampling,
    U-turn of the whole; leaves when it turns, diverges or has all its doublings), DONE (emit). A step
    passes INTEGRATE exactly once. With equal keys the draws are those of ``blackjax.nuts``; a NaN density
    ends a trajectory as a divergence.

    Parameters
    ----------
    logdensity_fn : callable
        Log density of one position, a pytree of floating arrays; differentiable.
    step_size : float
        Step of the leapfrog integrator, such as BlackJAX's ``window_adaptation`` finds it.
    inverse_mass_matrix : array of shape (n_dims,) or (n_dims, n_dims)
        Its diagonal or all of it, in the order of ``jax.flatten_util.ravel_pytree``.
    max_num_doublings : int, default=10
        Largest depth of the tree.
    divergence_threshold : float, default=1000.0
        Rise of the energy over which a trajectory counts as divergent and ends; see
        ``Trace.info.is_divergent``.
    bundled : bool, default=True
        Try all blocks in a step. Otherwise a step is one block; the draws are the same.

    Returns
    -------
    StateMachine
        The sampler. A step costs one gradient and O(max_num_doublings n_dims), which is the size of a chain's
        state.

    Raises
    ------
    TypeError, ValueError
        If ``logdensity_fn`` is no function, a number is out of range, or ``inverse_mass_matrix`` is not
        symmetric and positive definite.

    References
    ----------
    Hoffman and Gelman 2014; Betancourt 2017; arXiv 2503.17405, on NUTS as a state machine.

    Examples
    --------
    >>> machine = nuts(lambda x: -x @ x / 2, step_size=0.5, inverse_mass_matrix=jnp.ones(3))
    >>> machine.block_names
    ('INIT', 'EXPAND', 'INTEGRATE', 'CHECK', 'DONE')
    """
    check_callable("logdensity_fn", logdensity_fn)
    if isinstance(step_size, jax.Array) and step_size.ndim == 0:  # as adaptation gives it
        step_size = step_size.item()
    step_size = check_real("step_size", step_size, minimum=0, include=False)
    inverse_mass = check_array("inverse_mass_matrix", inverse_mass_matrix, ndim=(1, 2))
    root_of("inverse_mass_matrix", inverse_mass)
    # 2 ** depth must stay an int32.
    max_num_doublings = check_integer("max_num_doublings", max_num_doublings, minimum=1, maximum=30)
    divergence_threshold = check_real("divergence_threshold", divergence_threshold, minimum=0, include=False)

    density = safe_density(logdensity_fn)

    def metric_like(dtype: Any) -> Any:
        return metrics.default_metric(jnp.asarray(inverse_mass, dtype))

    def start(position: Any, key: Any) -> _Tree:
        flat, _ = ravel_pytree(position)
        if flat.size != len(inverse_mass):
            raise ValueError(
                f"positions must hold {len(inverse_mass)} numbers a chain, as inverse_mass_matrix has rows, "
                f"got {flat.size}"
            )
        logdensity, gradient = jax.value_and_grad(density)(position)
        none, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
        zero = jnp.zeros_like(logdensity)
        here = integrators.IntegratorState(position, position, logdensity, gradient)
        alone = proposal.Proposal(here, zero, zero, zero)
        path = trajectory.Trajectory(here, here, position, none)
        new_checkpoints, _, _ = termination.iterative_uturn_numpyro(metric_like(flat.dtype).check_turning)
        momenta, sums, _, _ = new_checkpoints(here, max_num_doublings)
        return _Tree(
            position=position,
            logdensity=logdensity,
            logdensity_grad=gradient,
            work=none,
            info=NUTSInfo(none, none, no, no, zero, zero),
            draw_key=key,
            subtree_key=key,
            merge_key=key,
            energy=zero,
            depth=none,
            proposal=alone,
            trajectory=path,
            direction=none,
            step=none,
            sub_proposal=alone,
            sub_trajectory=path,
            checkpoints=termination.IterativeUTurnState(
                momenta.astype(flat.dtype), sums.astype(flat.dtype), none, none
            ),
            is_diverging=no,
            is_turning=no,
        )

    def init(data: _Tree, key: Any) -> tuple[_Tree, Any, Any]:
        metric = metric_like(data.checkpoints.momentum.dtype)
        key_momentum, draw_key = jax.random.split(key, 2)
        momentum = metric.sample_momentum(key_momentum, data.position)
        here = integrators.IntegratorState(data.position, momentum, data.logdensity, data.logdensity_grad)
        energy = (metric.kinetic_energy(momentum) - data.logdensity).astype(data.energy.dtype)
        none = jnp.zeros((), jnp.int32)
        zero = jnp.zeros_like(energy)
        data = data._replace(
            draw_key=draw_key,
            energy=energy,
            depth=none,
            # The initial point has weight exp(H0 - H0) and no part in the acceptance rate.
            proposal=proposal.Proposal(here, energy, zero, zero - jnp.inf),
            trajectory=trajectory.Trajectory(here, here, momentum, none),
        )
        return data, 1, False

    def expand(data: _Tree, key: Any) -> tuple[_Tree, Any, Any]:
        subkey = jax.random.fold_in(data.draw_key, data.depth)
        direction_key, subtree_key, merge_key = jax.random.split(subkey, 3)
        direction = jnp.where(jax.random.bernoulli(direction_key), 1, -1).astype(jnp.int32)
        end = jax.tree.map(
            lambda right, left: jnp.where(direction > 0, right, left),
            data.trajectory.rightmost_state,
            data.trajectory.leftmost_state,
        )
        none = jnp.zeros((), jnp.int32)
        data = data._replace(
            subtree_key=subtree_key,
            merge_key=merge_key,
            direction=direction,
            step=none,
            sub_trajectory=trajectory.Trajectory(end, end, end.momentum, none),
        )
        return data, 2, False

    def integrate(data: _Tree, key: Any) -> tuple[_Tree, Any, Any]:
        metric = metric_like(data.checkpoints.momentum.dtype)
        leapfrog = integrators.velocity_verlet(density, metric.kinetic_energy)
        _, propose = proposal.proposal_generator(trajectory.hmc_energy(metric.kinetic_energy))
        _, update_checkpoints, is_turning_back = termination.iterative_uturn_numpyro(metric.check_turning)

        move = data.direction * jnp.asarray(step_size, data.checkpoints.momentum.dtype)
        new = _like(data.sub_trajectory.rightmost_state, leapfrog(data.sub_trajectory.rightmost_state, move))
        candidate = _like(data.sub_proposal, propose(data.energy, new))
        is_diverging = -candidate.weight > divergence_threshold

        first = data.step == 0
        # The first step gives the subtree its first point; its start belongs to the tree as it was.
        begun = trajectory.Trajectory(new, new, new.momentum, jnp.ones((), jnp.int32))
        grown = trajectory.append_to_trajectory(data.sub_trajectory, new)
        path = jax.tree.map(lambda a, b: jnp.where(first, a, b), begun, grown)
        sampled = proposal.progressive_uniform_sampling(
            jax.random.fold_in(data.subtree_key, data.step), data.sub_proposal, candidate
        )
        sampled = jax.tree.map(lambda a, b: jnp.where(first, a, b), candidate, sampled)

        checkpoints = update_checkpoints(data.checkpoints, path.momentum_sum, new.momentum, data.step)
        is_turning = is_turning_back(checkpoints, path.momentum_sum, new.momentum)
        step = data.step + 1
        complete = (step >= 2**data.depth) | is_diverging | is_turning
        data = data._replace(
            work=data.work + 1,
            step=step,
            sub_proposal=sampled,
            sub_trajectory=path,
            checkpoints=_like(data.checkpoints, checkpoints),
            is_diverging=is_diverging,
            is_turning=is_turning,
        )
        return data, jnp.where(complete, 3, 2), False

    def check(data: _Tree, key: Any) -> tuple[_Tree, Any, Any]:
        metric = metric_like(data.checkpoints.momentum.dtype)
        # A subtree that turns or diverges gives no point, but its steps count for the acceptance rate.
        dropped = data.is_diverging | data.is_turning
        merged = proposal.progressive_biased_sampling(data.merge_key, data.proposal, data.sub_proposal)
        kept = data.proposal._replace(sum_log_p_accept=merged.sum_log_p_accept)
        sampled = jax.tree.map(lambda a, b: jnp.where(dropped, a, b), kept, merged)

        # A subtree grows to the right of its start; to the left of the tree it is read backwards.
        sub, tree = data.sub_trajectory, data.trajectory
        backwards = trajectory.merge_trajectories(
            sub._replace(leftmost_state=sub.rightmost_state, rightmost_state=sub.leftmost_state), tree
        )
        whole = jax.tree.map(
            lambda a, b: jnp.where(data.direction > 0, a, b),
            trajectory.merge_trajectories(tree, sub),
            backwards,
        )
        is_turning = data.is_turning | metric.check_turning(
            whole.leftmost_state.momentum, whole.rightmost_state.momentum, whole.momentum_sum
        )
        depth = data.depth + 1
        complete = data.is_diverging | is_turning | (depth >= max_num_doublings)
        data = data._replace(depth=depth, proposal=sampled, trajectory=whole, is_turning=is_turning)
        return data, jnp.where(complete, 4, 1), False

    def done(data: _Tree, key: Any) -> tuple[_Tree, Any, Any]:
        drawn = data.proposal.state
        count = data.trajectory.num_states
        data = data._replace(
            position=drawn.position,
            logdensity=drawn.logdensity,
            logdensity_grad=drawn.logdensity_grad,
            info=NUTSInfo(
                num_trajectory_expansions=data.depth,
                num_integration_steps=count,
                is_divergent=data.is_diverging,
                is_turning=data.is_turning,
                acceptance_rate=(jnp.exp(data.proposal.sum_log_p_accept) / count).astype(data.energy.dtype),
                energy=data.proposal.energy,
            ),
        )
        return data, 0, True

    blocks = [init, expand, integrate, check, done]
    return machine_from_blocks(start, blocks, bundle="loop" if bundled else None)


def _like(old: Any, new: Any) -> Any:
    """The new values in the old ones' types, which a loop has to keep."""
    return jax.tree.map(lambda a, b: jnp.asarray(b).astype(a.dtype), old, new)
