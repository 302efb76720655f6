"""Learned update steps: two small architectures, applied to each coordinate and batched over problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from theses.optim.learned_optimizer.families import ProblemFamily, Problems
from theses.optim.learned_optimizer.solvers import (
    State,
    Trajectory,
    check_step,
    moved_state,
    roll_out,
    start_state,
)
from theses.validation import as_torch_generator, check_choice, check_integer

__all__ = ["ARCHITECTURES", "LearnedOptimizer"]

ARCHITECTURES: Final = ("quadratic", "network")
# Least norm by which is divided; a gradient of exact zero gives a direction of zero.
_TINY: Final = 1e-300


def _unit(x: Tensor, norm: Tensor) -> Tensor:
    return x / norm.clamp(min=_TINY if x.dtype == torch.float64 else 1e-30).unsqueeze(-1)


def _narrowing(inputs: int) -> nn.Sequential:
    """Layers inputs -> 30 -> 30 -> 20 -> 10 -> 10 -> 1 without biases (appendix on quadratics)."""

    def linear(i: int, o: int) -> nn.Linear:
        return nn.Linear(i, o, bias=False, dtype=torch.float64)

    return nn.Sequential(
        linear(inputs, 30),
        linear(30, 30),
        nn.ReLU(),
        linear(30, 20),
        nn.ReLU(),
        linear(20, 10),
        nn.ReLU(),
        linear(10, 10),
        linear(10, 1),
    )


def _apply(net: nn.Sequential, x: Tensor) -> Tensor:
    """The same, with neighbouring matrices multiplied first: half the work for thousands of rows."""
    first, second, third, fourth, fifth, sixth = net.parameters()
    hidden = (x @ (second @ first).T).relu()
    hidden = (hidden @ third.T).relu()
    hidden = (hidden @ fourth.T).relu()
    out: Tensor = hidden @ (sixth @ fifth).T
    return out.squeeze(-1)


class _QuadraticStep(nn.Module):
    """Direction from normalised gradient and momentum, length from four logarithms."""

    def __init__(self) -> None:
        super().__init__()
        self.direction = _narrowing(3)
        self.length = _narrowing(4)

    def forward(self, state: State, loss: Tensor, grad: Tensor) -> Tensor:
        moved = state.z - state.z_before
        size, momentum = grad.norm(dim=-1), moved.norm(dim=-1)
        g, m = _unit(grad, size), _unit(moved, momentum)
        direction = _apply(self.direction, torch.stack([g, m, g * m], dim=-1))
        # Without biases the length is homogeneous: it shrinks in proportion to the logarithms, which for
        # small values are the values themselves, so that linear convergence can be expressed.
        logs = torch.stack([size, momentum, loss, state.loss_before], dim=-1).log1p()
        return state.z - _apply(self.length, logs).unsqueeze(-1) * direction


class _NetworkStep(nn.Module):
    """Four weighted inputs a coordinate, two of them through learned diagonal preconditioners."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale_gradient = nn.Parameter(torch.full((dim,), 1e-3, dtype=torch.float64))
        self.scale_momentum = nn.Parameter(torch.full((dim,), 1e-3, dtype=torch.float64))

        def linear(i: int, o: int) -> nn.Linear:
            return nn.Linear(i, o, dtype=torch.float64)

        self.weights = nn.Sequential(linear(6, 20), nn.ReLU(), linear(20, 20), nn.ReLU(), linear(20, 4))
        self.coordinate = nn.Sequential(
            linear(4, 20), nn.ReLU(), linear(20, 20), nn.ReLU(), linear(20, 20), nn.ReLU(), linear(20, 1)
        )

    def forward(self, state: State, loss: Tensor, grad: Tensor) -> Tensor:
        moved = state.z - state.z_before
        size, momentum = grad.norm(dim=-1), moved.norm(dim=-1)
        g, m = _unit(grad, size), _unit(moved, momentum)
        root = grad.shape[-1] ** 0.5
        features = torch.stack(
            [
                size.log1p(),
                momentum.log1p(),
                (g * m).sum(-1),
                grad.abs().amax(-1).log1p(),
                (1 + state.t).log(),
                loss.log1p() - state.loss_before.log1p(),
            ],
            dim=-1,
        )
        inputs = torch.stack(
            [root * g, root * m, self.scale_gradient * grad, self.scale_momentum * moved], dim=-1
        )
        move = self.coordinate(inputs * self.weights(features).unsqueeze(1)).squeeze(-1)
        z: Tensor = state.z + move / (1 + state.t).sqrt().unsqueeze(-1)
        return z


class LearnedOptimizer(nn.Module):
    r"""Update step given by a small network, without safeguards.

    ``"quadratic"``: :math:`z_{t+1} = z_t - s\,d`, the direction :math:`d` from each coordinate of
    :math:`g/\|g\|`, :math:`\Delta z/\|\Delta z\|` and their product, the length :math:`s` from
    :math:`\log(1+\cdot)` of both norms and of the last two losses; no biases. It fits any dimension.
    ``"network"``: :math:`z_{t+1} = z_t + d/\sqrt{1+t}`, the direction from four inputs a coordinate (gradient
    and momentum, normalised and preconditioned), weighted by a network of six features; one dimension fits.

    Parameters
    ----------
    architecture : {"quadratic", "network"}, default="quadratic"
        Which.
    dim : int or None, default=None
        Number of unknowns, for ``"network"``.
    generator : torch.Generator, int or None, default=None
        For the initial weights.

    Raises
    ------
    ValueError
        If the architecture is unknown, or ``"network"`` comes without ``dim``.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize", ICML 2025,
       arXiv:2410.07704, section 5 and appendix.

    Examples
    --------
    >>> from theses.optim.learned_optimizer import QuadraticFamily
    >>> family = QuadraticFamily(dim=6)
    >>> solver = LearnedOptimizer(generator=0)
    >>> solver.run(family, family.sample(3, generator=0), n_steps=4).losses.shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        architecture: str = "quadratic",
        dim: int | None = None,
        *,
        generator: torch.Generator | int | None = None,
    ) -> None:
        super().__init__()
        self.architecture: str = check_choice("architecture", architecture, ARCHITECTURES)
        if architecture == "network":
            if dim is None:
                raise ValueError("dim must be given for the architecture 'network', got None")
            self.dim: int | None = check_integer("dim", dim, minimum=1)
        else:
            self.dim = None
        source = as_torch_generator(generator)
        # torch's layers draw from the global generator; it is left as it was.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (1,), generator=source)))
            self.net: nn.Module = _QuadraticStep() if architecture == "quadratic" else _NetworkStep(dim or 0)

    def init_state(self, z0: Tensor, loss: Tensor) -> State:
        """State at the starting points ``z0`` ``(n_problems, dim)`` with losses ``(n_problems,)``.

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
        start = start_state(z0, loss)
        if self.dim is not None and z0.shape[-1] != self.dim:
            raise ValueError(f"z0 must have {self.dim} coordinates, got shape {tuple(z0.shape)}")
        return start

    def step(self, state: State, loss: Tensor, grad: Tensor) -> State:
        """State after one step, from losses ``(n_problems,)`` and gradients ``(n_problems, dim)`` at it.

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
        return moved_state(state, self.net(state, loss, grad), loss)

    def run(
        self, family: ProblemFamily, params: Problems, n_steps: int, *, store_iterates: bool = False
    ) -> Trajectory:
        """Trajectory on a batch of problems; see :func:`roll_out`.

        Parameters
        ----------
        family : ProblemFamily
            Gives losses, gradients and starting points.
        params : Problems
            The problems.
        n_steps : int
            Steps, at least 1.
        store_iterates : bool, default=False
            Keep the points too.

        Returns
        -------
        Trajectory
            Losses and norms.
        """
        return roll_out(self, family, params, n_steps, store_iterates=store_iterates)

    def with_state(self, state: Mapping[str, Any]) -> LearnedOptimizer:
        """Copy with other weights, such as one of :func:`sgld_samples`; they must be finite and fit.

        Parameters
        ----------
        state : mapping of str to weights
            As in ``state_dict()``.

        Returns
        -------
        LearnedOptimizer
            The copy, its weights frozen.
        """
        copy = LearnedOptimizer(self.architecture, self.dim, generator=0)
        wanted = {name: tuple(value.shape) for name, value in copy.state_dict().items()}
        given = {name: tuple(value.shape) for name, value in state.items()}
        if given != wanted:
            raise ValueError(f"state must hold weights of shapes {wanted}, got {given}")
        if not all(bool(torch.isfinite(value).all()) for value in state.values()):
            raise ValueError("state must hold finite weights only")
        copy.load_state_dict({name: value.double() for name, value in state.items()})
        return copy.requires_grad_(False)
