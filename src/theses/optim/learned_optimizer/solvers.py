"""Iterative solvers as ``init_state`` and ``step``, batched over problems, and their trajectories."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import polars as pl
import torch
from torch import Tensor

from theses.optim.learned_optimizer.families import ProblemFamily, Problems
from theses.validation import check_integer, check_real

__all__ = ["AdamSolver", "GradientDescent", "HeavyBall", "Solver", "State", "Trajectory", "roll_out"]


class State(NamedTuple):
    """State of a solver on a batch of problems.

    Parameters
    ----------
    z, z_before : Tensor of shape (n_problems, dim)
        Point, and the one before it.
    loss_before : Tensor of shape (n_problems,)
        Loss at ``z_before``.
    t : Tensor of shape (n_problems,)
        Steps done on each problem.
    memory : tuple of Tensor, default=()
        What a solver keeps besides, each ``(n_problems, ...)``.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, section 3 (the Markovian model).

    Examples
    --------
    >>> state = GradientDescent(lr=0.1).init_state(torch.ones(2, 3), torch.ones(2))
    >>> state.t.tolist()
    [0.0, 0.0]
    """

    z: Tensor
    z_before: Tensor
    loss_before: Tensor
    t: Tensor
    memory: tuple[Tensor, ...] = ()


class Solver(Protocol):
    """Anything that walks: learned or made by hand.

    Examples
    --------
    >>> isinstance(GradientDescent(lr=0.1).step, object)
    True
    """

    def init_state(self, z0: Tensor, loss: Tensor) -> State:
        """State at the starting points."""
        ...

    def step(self, state: State, loss: Tensor, grad: Tensor) -> State:
        """State after one step, from losses and gradients at ``state.z``."""
        ...


def check_start(z0: Tensor, loss: Tensor) -> None:
    """Refuse starting points and losses whose shapes do not fit."""
    if not isinstance(z0, Tensor) or z0.ndim != 2 or 0 in z0.shape:
        raise ValueError(f"z0 must have shape (n_problems, dim), got {tuple(getattr(z0, 'shape', ()))}")
    if not isinstance(loss, Tensor) or loss.shape != z0.shape[:1]:
        raise ValueError(f"z0 and loss must fit: loss must have shape ({len(z0)},), got {tuple(loss.shape)}")


def check_step(state: State, loss: Tensor, grad: Tensor) -> None:
    """Refuse losses and gradients whose shapes do not fit the state; non-finite ones are legal."""
    if loss.shape != state.z.shape[:1]:
        raise ValueError(f"loss must have shape ({len(state.z)},), got {tuple(loss.shape)}")
    if grad.shape != state.z.shape:
        raise ValueError(f"grad must have shape {tuple(state.z.shape)}, got {tuple(grad.shape)}")


def start_state(z0: Tensor, loss: Tensor, memory: tuple[Tensor, ...] = ()) -> State:
    check_start(z0, loss)
    return State(z0, z0, loss, torch.zeros_like(loss), memory)


def moved_state(state: State, z: Tensor, loss: Tensor, memory: tuple[Tensor, ...] = ()) -> State:
    return State(z, state.z, loss, state.t + 1, memory)


@dataclass(frozen=True)
class GradientDescent:
    """Gradient descent ``z - lr * grad``.

    Parameters
    ----------
    lr : float
        Step size.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, section on experiments.

    Examples
    --------
    >>> from theses.optim.learned_optimizer import QuadraticFamily
    >>> family = QuadraticFamily(dim=4)
    >>> t = roll_out(GradientDescent(lr=1 / 500), family, family.sample(2, generator=0), n_steps=3)
    >>> bool((t.losses[-1] < t.losses[0]).all())
    True
    """

    lr: float

    def __post_init__(self) -> None:
        check_real("lr", self.lr, minimum=0, include=False)

    def init_state(self, z0: Tensor, loss: Tensor) -> State:
        """State at the starting points.

        Parameters
        ----------
        z0 : Tensor of shape (n_problems, dim)
            Starting points.
        loss : Tensor of shape (n_problems,)
            Losses at the points; non-finite ones are legal.

        Returns
        -------
        State
            At the starting points.
        """
        return start_state(z0, loss)

    def step(self, state: State, loss: Tensor, grad: Tensor) -> State:
        """One step.

        Parameters
        ----------
        state : State
            State at the points.
        loss : Tensor of shape (n_problems,)
            Losses at the points; non-finite ones are legal.
        grad : Tensor of shape (n_problems, dim)
            Gradients there; non-finite ones are legal.

        Returns
        -------
        State
            After one step.
        """
        check_step(state, loss, grad)
        return moved_state(state, state.z - self.lr * grad, loss)


@dataclass(frozen=True)
class HeavyBall:
    r"""Heavy ball, :math:`z_{t+1} = z_t - \alpha g_t + \beta (z_t - z_{t-1})`.

    Parameters
    ----------
    alpha : float
        Step size.
    beta : float
        Momentum, in [0, 1).

    References
    ----------
    .. [1] B. T. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964,
       section 2.

    Examples
    --------
    >>> HeavyBall.worst_case(mu=1.0, L=9.0)
    HeavyBall(alpha=0.25, beta=0.25)
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        check_real("alpha", self.alpha, minimum=0, include=False)
        if check_real("beta", self.beta, minimum=0) >= 1:
            raise ValueError(f"beta must be less than 1, got {self.beta}")

    @classmethod
    def worst_case(cls, mu: float, L: float) -> HeavyBall:
        r"""Optimal constants for all quadratics with spectrum in [mu, L].

        :math:`\alpha = 4/(\sqrt L + \sqrt\mu)^2` and
        :math:`\beta = ((\sqrt L - \sqrt\mu)/(\sqrt L + \sqrt\mu))^2`.

        Parameters
        ----------
        mu, L : float
            Ends of the spectrum, ``0 < mu <= L``.

        Returns
        -------
        HeavyBall
            The solver.
        """
        low = math.sqrt(check_real("mu", mu, minimum=0, include=False))
        high = math.sqrt(check_real("L", L, minimum=mu))
        return cls(alpha=4 / (high + low) ** 2, beta=((high - low) / (high + low)) ** 2)

    def init_state(self, z0: Tensor, loss: Tensor) -> State:
        """State at the starting points.

        Parameters
        ----------
        z0 : Tensor of shape (n_problems, dim)
            Starting points.
        loss : Tensor of shape (n_problems,)
            Losses at the points; non-finite ones are legal.

        Returns
        -------
        State
            At the starting points.
        """
        return start_state(z0, loss)

    def step(self, state: State, loss: Tensor, grad: Tensor) -> State:
        """One step.

        Parameters
        ----------
        state : State
            State at the points.
        loss : Tensor of shape (n_problems,)
            Losses at the points; non-finite ones are legal.
        grad : Tensor of shape (n_problems, dim)
            Gradients there; non-finite ones are legal.

        Returns
        -------
        State
            After one step.
        """
        check_step(state, loss, grad)
        return moved_state(state, state.z - self.alpha * grad + self.beta * (state.z - state.z_before), loss)


@dataclass(frozen=True)
class AdamSolver:
    """Adam with bias correction, on a batch of deterministic problems.

    Parameters
    ----------
    lr : float
        Step size.
    betas : pair of float, default=(0.9, 0.999)
        Decay of the two moments.
    eps : float, default=1e-8
        Added to the root of the second moment.

    References
    ----------
    .. [1] D. P. Kingma, J. Ba, "Adam", ICLR 2015, arXiv:1412.6980, algorithm 1.

    Examples
    --------
    >>> from theses.optim.learned_optimizer import QuadraticFamily
    >>> family = QuadraticFamily(dim=4)
    >>> params = family.sample(2, generator=0)
    >>> roll_out(AdamSolver(lr=0.1), family, params, n_steps=3).losses.shape
    torch.Size([4, 2])
    """

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        check_real("lr", self.lr, minimum=0, include=False)

    def init_state(self, z0: Tensor, loss: Tensor) -> State:
        """State at the starting points, moments zero.

        Parameters
        ----------
        z0 : Tensor of shape (n_problems, dim)
            Starting points.
        loss : Tensor of shape (n_problems,)
            Losses at the points; non-finite ones are legal.

        Returns
        -------
        State
            At the starting points.
        """
        return start_state(z0, loss, (torch.zeros_like(z0), torch.zeros_like(z0)))

    def step(self, state: State, loss: Tensor, grad: Tensor) -> State:
        """One step.

        Parameters
        ----------
        state : State
            State at the points.
        loss : Tensor of shape (n_problems,)
            Losses at the points; non-finite ones are legal.
        grad : Tensor of shape (n_problems, dim)
            Gradients there; non-finite ones are legal.

        Returns
        -------
        State
            After one step.
        """
        check_step(state, loss, grad)
        first, second = state.memory
        slow, fast = self.betas[1], self.betas[0]
        first = fast * first + (1 - fast) * grad
        second = slow * second + (1 - slow) * grad.square()
        count = (state.t + 1).unsqueeze(-1)
        size = (second / (1 - slow**count)).sqrt() + self.eps
        return moved_state(state, state.z - self.lr * first / (1 - fast**count) / size, loss, (first, second))


@dataclass(frozen=True)
class Trajectory:
    """What a solver did on each problem.

    Parameters
    ----------
    losses, grad_norms : Tensor of shape (n_steps + 1, n_problems)
        Losses, and norms of the gradients (or of the chosen subgradients), at the start and after each step.
    step_norms : Tensor of shape (n_steps, n_problems)
        Lengths of the steps.
    point_norms : Tensor of shape (n_steps + 1, n_problems)
        Norms of the points.
    iterates : Tensor of shape (n_steps + 1, n_problems, dim), or None
        The points, only where asked for.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, section 3 (space of trajectories).

    Examples
    --------
    >>> from theses.optim.learned_optimizer import QuadraticFamily
    >>> family = QuadraticFamily(dim=4)
    >>> run = roll_out(GradientDescent(lr=0.001), family, family.sample(5, generator=0), n_steps=3)
    >>> run.until(2).losses.shape
    torch.Size([3, 5])
    """

    losses: Tensor
    grad_norms: Tensor
    step_norms: Tensor
    point_norms: Tensor
    iterates: Tensor | None = None

    @property
    def finite(self) -> Tensor:
        """Which problems have only finite losses, gradients and steps; shape ``(n_problems,)``."""
        parts = (self.losses, self.grad_norms, self.step_norms, self.point_norms)
        return torch.stack([torch.isfinite(part).all(0) for part in parts]).all(0)

    def __len__(self) -> int:
        """Number of problems."""
        return self.losses.shape[1]

    def problems(self, index: Any) -> Trajectory:
        """Trajectory of some of the problems (slice, mask or indices).

        Parameters
        ----------
        index : slice, mask or indices
            Which problems.

        Returns
        -------
        Trajectory
            Theirs.
        """
        points = None if self.iterates is None else self.iterates[:, index]
        return Trajectory(
            self.losses[:, index],
            self.grad_norms[:, index],
            self.step_norms[:, index],
            self.point_norms[:, index],
            points,
        )

    def until(self, n_steps: int) -> Trajectory:
        """The first ``n_steps`` steps.

        Parameters
        ----------
        n_steps : int
            Steps, at least 1.

        Returns
        -------
        Trajectory
            The shorter one.
        """
        n_steps = check_integer("n_steps", n_steps, minimum=1, maximum=len(self.step_norms))
        return replace(
            self,
            losses=self.losses[: n_steps + 1],
            grad_norms=self.grad_norms[: n_steps + 1],
            step_norms=self.step_norms[:n_steps],
            point_norms=self.point_norms[: n_steps + 1],
            iterates=None if self.iterates is None else self.iterates[: n_steps + 1],
        )

    def summary(self) -> str:
        """One line: problems, steps, median loss at both ends, share of runs that stayed finite.

        Returns
        -------
        str
            The line.
        """
        share = float(self.finite.double().mean())
        first, last = (float(self.losses[i].nanmedian()) for i in (0, -1))
        return (
            f"{len(self)} problems, {len(self.step_norms)} steps: median loss {first:.3g} -> {last:.3g}, "
            f"{100 * share:.1f} % finite"
        )

    def to_frame(self) -> pl.DataFrame:
        """Long table of ``step``, ``problem``, ``loss`` and ``grad_norm``.

        Returns
        -------
        polars.DataFrame
            The table.
        """
        steps, n = self.losses.shape
        return pl.DataFrame(
            {
                "step": torch.arange(steps).repeat_interleave(n).numpy(),
                "problem": torch.arange(n).repeat(steps).numpy(),
                "loss": self.losses.detach().cpu().flatten().numpy(),
                "grad_norm": self.grad_norms.detach().cpu().flatten().numpy(),
            }
        )


@torch.no_grad()
def roll_out(
    solver: Solver,
    family: ProblemFamily,
    params: Problems,
    n_steps: int,
    *,
    store_iterates: bool = False,
    floor: float = 1e-16,
) -> Trajectory:
    """Run a solver on all problems at once.

    Nothing is clipped or safeguarded: a run that leaves the finite numbers stays in the trajectory as it is.
    O(n_steps * n_problems * dim) beyond the solver itself; without ``store_iterates`` only norms are kept.

    Parameters
    ----------
    solver : Solver
        Learned or made by hand.
    family : ProblemFamily
        Gives losses, gradients and starting points.
    params : Problems
        The problems.
    n_steps : int
        Steps to take.
    store_iterates : bool, default=False
        Keep the points too: ``(n_steps + 1) * n_problems * dim`` numbers.
    floor : float, default=1e-16
        Loss above the family's lower bound from which on a problem counts as solved and stands still.

    Returns
    -------
    Trajectory
        Losses and norms.

    Raises
    ------
    ValueError
        If ``n_steps`` is less than 1.

    Warns
    -----
    UserWarning
        If the problems are in single precision and ``floor`` is below 1e-8.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, section 3 (space of trajectories).

    Examples
    --------
    >>> from theses.optim.learned_optimizer import QuadraticFamily
    >>> family = QuadraticFamily(dim=4)
    >>> trajectory = roll_out(GradientDescent(lr=0.001), family, family.sample(5, generator=0), n_steps=2)
    >>> trajectory.losses.shape, trajectory.iterates is None
    (torch.Size([3, 5]), True)
    """
    n_steps = check_integer("n_steps", n_steps, minimum=1)
    z = family.z0(params)
    if z.dtype != torch.float64 and 0 < floor < 1e-8:
        warnings.warn(
            f"a tolerance of {floor:g} is below what {z.dtype} resolves; use float64 problems",
            UserWarning,
            stacklevel=2,
        )
    loss, grad = family.value_and_grad(z, params)
    state = solver.init_state(z, loss)
    losses, steps, points = [loss], [], [z.norm(dim=-1)]
    norms = [grad.norm(dim=-1)]
    iterates = [z] if store_iterates else None
    for _ in range(n_steps):
        # A solved problem stands still: below the floor, differences of losses are rounding.
        solved = (loss - family.f_lower < floor).unsqueeze(-1)
        new = solver.step(state, loss, grad)
        if bool(solved.any()):
            new = new._replace(z=torch.where(solved, state.z, new.z))
        steps.append((new.z - state.z).norm(dim=-1))
        state = new
        loss, grad = family.value_and_grad(state.z, params)
        losses.append(loss)
        norms.append(grad.norm(dim=-1))
        points.append(state.z.norm(dim=-1))
        if iterates is not None:
            iterates.append(state.z)
    return Trajectory(
        torch.stack(losses),
        torch.stack(norms),
        torch.stack(steps),
        torch.stack(points),
        None if iterates is None else torch.stack(iterates),
    )
