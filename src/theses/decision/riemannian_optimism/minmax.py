"""Implicit optimistic descent-ascent for min-max problems."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

from theses.decision.riemannian_optimism.inner import Constraint, InnerSolver, descend
from theses.decision.riemannian_optimism.online import start_in
from theses.numerics.manifolds import Manifold, WholeManifold
from theses.numerics.manifolds.base import Array
from theses.problems.geodesic import Game
from theses.validation import as_generator, check_choice, check_integer, check_real

__all__ = ["Gauge", "MinMaxResult", "duality_gap", "estimate_smoothness", "solve_minmax"]

_LOG = logging.getLogger(__name__)
METHODS = ("rioda_crgd", "rioda_prgd")


class _OfX:
    """The game as the first player's loss, y fixed."""

    def __init__(self, game: Game, y: Array, smoothness: float | None) -> None:
        self.game, self.y, self.smoothness = game, y, smoothness

    def value(self, x: Array) -> float:
        return self.game.value(x, self.y)

    def grad(self, x: Array) -> Array:
        return self.game.grad_x(x, self.y)


class _OfY:
    """The game as the second player's loss, x fixed."""

    def __init__(self, game: Game, x: Array, smoothness: float | None) -> None:
        self.game, self.x, self.smoothness = game, x, smoothness

    def value(self, y: Array) -> float:
        return -self.game.value(self.x, y)

    def grad(self, y: Array) -> Array:
        return -self.game.grad_y(self.x, y)


@dataclass(frozen=True)
class MinMaxResult:
    """Answer of a min-max solver.

    Parameters
    ----------
    x, y : ndarray
        The answer: geodesic averages of the rounds, or the last iterates where ``mu > 0``.
    gap : float
        Duality gap of the answer on the constraint sets.
    x_last, y_last : ndarray
        Last iterates.
    n_grad : int
        Gradients of the game spent, each player's counted; those of the gap are not.
    n_outer : int
        Rounds.
    status : {"converged", "max_outer", "left the set"}
        How it ended.
    smoothness : float
        L that was used.
    n_unconverged : int
        Proximal problems not solved to their accuracy.
    history : dict of str to list
        "outer", "n_grad", "gap" of the answer whenever the gap was measured.

    Examples
    --------
    >>> import numpy as np
    >>> here = np.zeros(1)
    >>> MinMaxResult(here, here, 0.5, here, here, 8, 2, "max_outer", 1.0).summary()
    'gap 0.5 after 2 rounds and 8 gradients (max_outer, L = 1)'

    References
    ----------
    Roux, Martinez-Rubio and Pokutta, ICML 2025, arXiv 2501.18381.
    """

    x: Array
    y: Array
    gap: float
    x_last: Array
    y_last: Array
    n_grad: int
    n_outer: int
    status: str
    smoothness: float
    n_unconverged: int = 0
    history: dict[str, list[float]] = field(default_factory=dict)

    def summary(self) -> str:
        """One line.

        Returns
        -------
        str
            The line.
        """
        return (
            f"gap {self.gap:.3g} after {self.n_outer} rounds and {self.n_grad} gradients ({self.status}, "
            f"L = {self.smoothness:.3g})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists.

        Returns
        -------
        dict
            By name.
        """
        return {
            "x": self.x.tolist(),
            "y": self.y.tolist(),
            "gap": self.gap,
            "n_grad": self.n_grad,
            "n_outer": self.n_outer,
            "status": self.status,
            "smoothness": self.smoothness,
            "n_unconverged": self.n_unconverged,
        }

    def to_frame(self) -> pl.DataFrame:
        """The gap along the way.

        Returns
        -------
        polars.DataFrame
            ``outer``, ``n_grad``, ``gap``.
        """
        return pl.DataFrame(self.history)


def _best(
    loss: Any, constraint: Constraint, start: Array, step: float, tolerance: float
) -> tuple[float, float]:
    """Least value of a loss on the set, and how far below it the true one may lie."""
    reach = constraint.diameter if math.isfinite(constraint.diameter) else 1.0
    solved = descend(loss, constraint, start, prox=None, step=step, target=tolerance / reach, max_iter=5_000)
    return float(loss.value(solved.x)), solved.residual * reach


def duality_gap(
    f: Game,
    constraint_x: Constraint,
    constraint_y: Constraint,
    x: Array,
    y: Array,
    *,
    step: float = 1.0,
    tolerance: float = 1e-8,
) -> float:
    r"""How much the two players could gain together by deviating.

    .. math:: \max_{y' \in Y} f(x, y') - \min_{x' \in X} f(x', y)

    Parameters
    ----------
    f : Game
        Game.
    constraint_x, constraint_y : GeodesicBall or WholeManifold
        Constraint sets, with their manifolds.
    x, y : ndarray
        Points of them.
    step : float, default=1.0
        First step of the two descents, which backtrack.
    tolerance : float, default=1e-8
        Error allowed where it is more than 1 per cent of the gap.

    Returns
    -------
    float
        The gap, at least 0 up to the tolerance. On unbounded sets the descents stop by the norm of the
        gradient alone.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import GeodesicBall
    >>> from theses.problems.geodesic import LogDetGame
    >>> game = LogDetGame(2)
    >>> ball = GeodesicBall(game.x_manifold, np.eye(2), 1.0)
    >>> round(duality_gap(game, ball, ball, np.eye(2), np.eye(2)), 6)
    0.0

    References
    ----------
    Roux, Martinez-Rubio and Pokutta, ICML 2025, arXiv 2501.18381, min-max section.
    """
    x, y = constraint_x.manifold.check_point("x", x), constraint_y.manifold.check_point("y", y)
    tolerance = check_real("tolerance", tolerance, minimum=0, include=False)
    rough = max(1e-3 * (1 + abs(f.value(x, y))), tolerance)
    while True:
        low, slack_x = _best(_OfX(f, y, None), constraint_x, x, step, rough / 2)
        high, slack_y = _best(_OfY(f, x, None), constraint_y, y, step, rough / 2)
        gap = -high - low
        if slack_x + slack_y <= max(1e-2 * gap, tolerance) or rough <= tolerance:
            return gap
        rough = max(min(rough / 10, 0.5e-2 * abs(gap)), tolerance)


def estimate_smoothness(
    f: Game,
    constraint_x: Constraint,
    constraint_y: Constraint,
    x0: Array,
    y0: Array,
    *,
    n_pairs: int = 64,
    random_state: Any = None,
) -> float:
    """Largest ratio met of the change of the joint gradient to the distance: a lower bound on L.

    Parameters
    ----------
    f : Game
        Game.
    constraint_x, constraint_y : GeodesicBall or WholeManifold
        Where pairs are drawn: in the balls, or at distances up to 1 of the start.
    x0, y0 : ndarray
        Start.
    n_pairs : int, default=64
        Pairs.
    random_state : int, numpy Generator or RandomState, or None, default=None
        Source of the pairs.

    Returns
    -------
    float
        The largest ratio, at least 1e-12.

    Examples
    --------
    >>> from theses.numerics.manifolds import WholeManifold
    >>> from theses.problems.geodesic import LogDetGame
    >>> game = LogDetGame(2)
    >>> free = WholeManifold(game.x_manifold)
    >>> start = game.x_manifold.origin()
    >>> estimate_smoothness(game, free, free, start, start, random_state=0) <= game.smoothness() + 1e-9
    True

    References
    ----------
    Roux, Martinez-Rubio and Pokutta, ICML 2025, arXiv 2501.18381, min-max section.
    """
    x0, y0 = constraint_x.manifold.check_point("x0", x0), constraint_y.manifold.check_point("y0", y0)
    rng = as_generator(random_state)
    n_pairs = check_integer("n_pairs", n_pairs, minimum=1)

    def drawn(constraint: Constraint, start: Array) -> Array:
        manifold = constraint.manifold
        reach = constraint.diameter / 2 if math.isfinite(constraint.diameter) else 1.0
        v = manifold.random_tangent(start, rng)
        length = max(float(manifold.norm(start, v)), 1e-300)
        return constraint.project(manifold.exp(start, v / length * reach * rng.random()))

    Mx, My = constraint_x.manifold, constraint_y.manifold
    largest = 1e-12
    for _ in range(n_pairs):
        (x, x2), (y, y2) = (
            [drawn(c, s) for _ in range(2)] for c, s in ((constraint_x, x0), (constraint_y, y0))
        )
        dx = Mx.transp(x2, x, f.grad_x(x2, y2)) - f.grad_x(x, y)
        dy = My.transp(y2, y, f.grad_y(x2, y2)) - f.grad_y(x, y)
        apart = math.hypot(float(Mx.dist(x, x2)), float(My.dist(y, y2)))
        if apart > 1e-9:
            largest = max(largest, math.hypot(float(Mx.norm(x, dx)), float(My.norm(y, dy))) / apart)
    return largest


class Gauge:
    """Watches the gap along the rounds: measures it when it is due, and says when it is small enough.

    Parameters
    ----------
    f : Game
        Game.
    constraint_x, constraint_y : GeodesicBall or WholeManifold
        Constraint sets.
    eps : float
        Gap to reach.
    max_outer : int
        Last round, after which the gap is measured in any case.
    checkpoints : int, several, or None, default=None
        Rounds after which it is measured besides; None: 1, 2, 3, ..., then whenever a fifth more are over.
    """

    def __init__(
        self,
        f: Game,
        constraint_x: Constraint,
        constraint_y: Constraint,
        eps: float,
        max_outer: int,
        checkpoints: Collection[int] | None = None,
    ) -> None:
        self.f, self.X, self.Y = f, constraint_x, constraint_y
        self.eps, self.max_outer, self.checkpoints = eps, max_outer, checkpoints
        self.gap = math.inf
        self.history: dict[str, list[float]] = {"outer": [], "n_grad": [], "gap": []}
        self._next = 1

    def reached(self, t: int, n_grad: int, answer: tuple[Array, Array]) -> bool:
        """Whether the gap of round t's answer was due, and is at most ``eps``."""
        due = t >= self._next if self.checkpoints is None else t in self.checkpoints
        if not due and t < self.max_outer:
            return False
        self._next = max(t + 1, math.ceil(1.2 * t))
        tolerance = min(1e-8, 0.1 * self.eps)
        self.gap = float(duality_gap(self.f, self.X, self.Y, *answer, tolerance=tolerance))
        for key, value in (("outer", t), ("n_grad", n_grad), ("gap", self.gap)):
            self.history[key].append(float(value))
        return self.gap <= self.eps


def solve_minmax(
    f: Game,
    Mx: Manifold,
    My: Manifold,
    x0: Any,
    y0: Any,
    L: float | None = None,
    constraint_x: Constraint | None = None,
    constraint_y: Constraint | None = None,
    *,
    method: Literal["rioda_crgd", "rioda_prgd"] = "rioda_crgd",
    eta: float | None = None,
    mu: float = 0.0,
    eps: float = 1e-6,
    max_outer: int = 1000,
    checkpoints: Collection[int] | None = None,
) -> MinMaxResult:
    r"""Saddle point of a geodesically convex-concave game, by RIODA.

    .. math:: \min_{x \in X} \max_{y \in Y} f(x, y)

    Both players run :class:`RIOD`, each against the other's last point as hint: with
    :math:`\eta \le 1 / (2 \sqrt2 L)` the geodesic averages of T rounds have a gap of at most
    :math:`(D_x^2 + D_y^2) / (2 \eta T)`, whatever the curvature.

    Parameters
    ----------
    f : Game
        Game, with ``value``, ``grad_x`` and ``grad_y``.
    Mx, My : Manifold
        Manifolds of the two players.
    x0, y0 : array-like
        Start.
    L : float or None, default=None
        Lipschitz constant of the joint gradient; None estimates it from pairs of points, says so in a
        warning, and takes twice the estimate.
    constraint_x, constraint_y : GeodesicBall or None, default=None
        Constraint sets; None is the whole manifold, where the gap is finite only if the game bounds it.
    method : {"rioda_crgd", "rioda_prgd"}, default="rioda_crgd"
        How proximal problems are solved, see :class:`InnerSolver`.
    eta : float or None, default=None
        Step size; None takes ``1 / (3 L)``.
    mu : float, default=0.0
        Strong convexity and concavity; where positive the last iterates, which converge linearly, are the
        answer.
    eps : float, default=1e-6
        Gap to reach.
    max_outer : int, default=1000
        Rounds at most.
    checkpoints : int, several, or None, default=None
        Rounds after which the gap is measured, besides the last; None: 1, 2, 3, ..., then whenever a fifth
        more are over.

    Returns
    -------
    MinMaxResult
        Answer with its gap.

    Raises
    ------
    ValueError
        If input is not as described, or values are not finite.

    Notes
    -----
    Four proximal problems a round. O(L D^2 / eps) rounds, with "rioda_crgd" up to a logarithm as many
    gradients; "rioda_prgd" takes zeta times as many.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import GeodesicBall
    >>> from theses.problems.geodesic import LogDetGame
    >>> game = LogDetGame(2)
    >>> ball = GeodesicBall(game.x_manifold, np.eye(2), 2.0)
    >>> start = np.diag([2.0, 1.0])
    >>> found = solve_minmax(
    ...     game, game.x_manifold, game.y_manifold, start, start, game.smoothness(), ball, ball, eps=1e-4
    ... )
    >>> found.status, round(float(np.linalg.det(found.x)), 1)
    ('converged', 1.0)

    References
    ----------
    Roux, Martinez-Rubio and Pokutta, ICML 2025, arXiv 2501.18381.
    """
    check_choice("method", method, METHODS)
    for name, manifold in (("Mx", Mx), ("My", My)):
        if not isinstance(manifold, Manifold):
            raise TypeError(f"{name} must be a Manifold, got {type(manifold).__name__}")
    X: Constraint = WholeManifold(Mx) if constraint_x is None else constraint_x
    Y: Constraint = WholeManifold(My) if constraint_y is None else constraint_y
    x, y = start_in(X, "x0", x0), start_in(Y, "y0", y0)
    mu = check_real("mu", mu, minimum=0)
    eps = check_real("eps", eps, minimum=0, include=False)
    max_outer = check_integer("max_outer", max_outer, minimum=1)
    if L is None:
        L = 2 * estimate_smoothness(f, X, Y, x, y, random_state=0)
        warnings.warn(
            f"L is not given; {L:.3g} is used, twice the largest ratio met at 64 pairs", stacklevel=2
        )
    L = check_real("L", L, minimum=0, include=False)
    eta = 1 / (3 * L) if eta is None else check_real("eta", eta, minimum=0, include=False)
    if eta > (1 + 1e-12) / (2 * math.sqrt(2) * L):
        warnings.warn(
            f"eta is {eta:.3g}, above 1 / (2 sqrt(2) L) = {1 / (2 * math.sqrt(2) * L):.3g}: "
            "the gap has no bound",
            stacklevel=2,
        )
    inner = InnerSolver("crgd" if method == "rioda_crgd" else "prgd", smoothness=L)
    if not math.isfinite(f.value(x, y)):
        raise ValueError(f"f must be finite at the start, got {f.value(x, y)}")
    zx, zy = x, y
    x_mean, y_mean = x, y
    n_grad = n_unconverged = 0
    gauge = Gauge(f, X, Y, eps, max_outer, checkpoints)

    def accuracy(constraint: Constraint, t: int) -> float:
        # As RIOD's schedule; what is left of residuals in the average must stay well below the gap wanted,
        # but not below what float64 can tell of gradients.
        D = constraint.diameter if math.isfinite(constraint.diameter) else 1.0
        residual = min(D / (2 * eta * (t + 1) ** 2), eps / (8 * D))
        return eta / 2 * max(residual, 1e-11 * L * D) ** 2

    def prox(loss: Any, constraint: Constraint, z: Array, start: Array, t: int) -> Array:
        nonlocal n_grad, n_unconverged
        solved = inner._solve(loss, constraint, z, eta, accuracy(constraint, t), start)
        n_grad += solved.n_grad
        n_unconverged += not solved.converged
        return solved.x

    for t in range(1, max_outer + 1):
        # Play: each against the hint that the other stays where it was.
        x_next = prox(_OfX(f, y, L), X, zx, x, t)
        y_next = prox(_OfY(f, x, L), Y, zy, y, t)
        # See: the secondary iterates move from where they were, by what the other really did.
        zx, zy = prox(_OfX(f, y_next, L), X, zx, x_next, t), prox(_OfY(f, x_next, L), Y, zy, y_next, t)
        x, y = x_next, y_next
        x_mean = Mx.geodesic(x_mean, x, 1 / t)
        y_mean = My.geodesic(y_mean, y, 1 / t)
        if not math.isfinite(f.value(x, y)):
            raise ValueError(f"f must stay finite, got {f.value(x, y)} in round {t}")
        answer = (x, y) if mu > 0 else (x_mean, y_mean)
        if gauge.reached(t, n_grad, answer):
            break
    if n_unconverged:
        _LOG.warning("%d proximal problems were not solved to their accuracy", n_unconverged)
    return MinMaxResult(
        *answer,
        gauge.gap,
        x,
        y,
        n_grad,
        t,
        "converged" if gauge.gap <= eps else "max_outer",
        L,
        n_unconverged,
        gauge.history,
    )
