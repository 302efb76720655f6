"""Explicit methods that one would otherwise take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from theses.decision.riemannian_optimism.inner import Constraint
from theses.decision.riemannian_optimism.minmax import Gauge, MinMaxResult
from theses.decision.riemannian_optimism.online import start_in
from theses.numerics.manifolds import Manifold, WholeManifold
from theses.numerics.manifolds.base import Array
from theses.problems.geodesic import Game, Loss
from theses.validation import check_integer, check_real

__all__ = ["r_ogd", "r_ogda", "rceg", "rgda"]

Pair = tuple[Array, Array]


class _Run:
    """What the three explicit min-max methods share: gradients, averages, gaps, the watch on the sets."""

    def __init__(
        self,
        f: Game,
        manifolds: tuple[Manifold, Manifold],
        start: tuple[Any, Any],
        step: float,
        constraints: tuple[Constraint | None, Constraint | None],
        max_outer: int,
        eps: float,
    ) -> None:
        self.f, self.M = f, manifolds
        first, second = constraints
        self.sets: tuple[Constraint, Constraint] = (
            WholeManifold(manifolds[0]) if first is None else first,
            WholeManifold(manifolds[1]) if second is None else second,
        )
        self.now: Pair = (start_in(self.sets[0], "x0", start[0]), start_in(self.sets[1], "y0", start[1]))
        self.step = check_real("step", step, minimum=0, include=False)
        self.max_outer = check_integer("max_outer", max_outer, minimum=1)
        self.eps = check_real("eps", eps, minimum=0, include=False)
        self.n_grad = 0

    def descent(self, at: Pair) -> Pair:
        """Directions in which the players improve."""
        self.n_grad += 2
        return -self.f.grad_x(*at), self.f.grad_y(*at)

    def moved(self, at: Pair, v: Pair) -> Pair:
        return self.M[0].exp(at[0], v[0]), self.M[1].exp(at[1], v[1])

    def scaled(self, v: Pair, factor: float) -> Pair:
        return factor * v[0], factor * v[1]

    def solve(self, iterate: Callable[[], Pair], *, average: bool) -> MinMaxResult:
        """Repeat ``iterate``, which returns the point that counts, until the gap is reached."""
        mean = self.now
        gauge = Gauge(self.f, *self.sets, self.eps, self.max_outer)
        status, t = "max_outer", 0
        at = self.now
        for t in range(1, self.max_outer + 1):
            with np.errstate(over="ignore", invalid="ignore"):
                try:
                    at = iterate()
                    inside = all(
                        bool(np.isfinite(p).all()) and c.contains(p, 1e-9)
                        for p, c in zip(at, self.sets, strict=True)
                    )
                except np.linalg.LinAlgError:
                    inside = False
            if not inside:
                status, gauge.gap = "left the set", math.inf
                break
            mean = (
                self.M[0].geodesic(mean[0], at[0], 1 / t),
                self.M[1].geodesic(mean[1], at[1], 1 / t),
            )
            if gauge.reached(t, self.n_grad, mean if average else at):
                status = "converged"
                break
        answer = mean if average else at
        return MinMaxResult(*answer, gauge.gap, *at, self.n_grad, t, status, 1 / self.step, 0, gauge.history)


def rgda(
    f: Game,
    Mx: Manifold,
    My: Manifold,
    x0: Any,
    y0: Any,
    step: float,
    constraint_x: Constraint | None = None,
    constraint_y: Constraint | None = None,
    *,
    max_outer: int = 1000,
    eps: float = 1e-6,
    average: bool = True,
) -> MinMaxResult:
    """Riemannian gradient descent-ascent; the answer is the geodesic average.

    Parameters
    ----------
    f : Game
        Game.
    Mx, My : Manifold
        Manifolds of the two players.
    x0, y0 : array-like
        Start.
    step : float
        Step size.
    constraint_x, constraint_y : GeodesicBall or None, default=None
        Sets on which the gap is measured; the method knows none, and ends where it leaves one.
    max_outer : int, default=1000
        Steps at most, two gradients each.
    eps : float, default=1e-6
        Gap to reach.
    average : bool, default=True
        Whether the geodesic average is the answer, or the last iterate.

    Returns
    -------
    MinMaxResult
        Its ``smoothness`` is ``1 / step``.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import GeodesicBall
    >>> from theses.problems.geodesic import LogDetGame
    >>> game = LogDetGame(2)
    >>> ball = GeodesicBall(game.x_manifold, np.eye(2), 2.0)
    >>> start = np.diag([2.0, 1.0])
    >>> rgda(game, ball.manifold, ball.manifold, start, start, 0.1, ball, ball, eps=1e-2).status
    'converged'

    References
    ----------
    Zhang, Zhang and Sra: Sion's minimax theorem in geodesic metric spaces and a Riemannian extragradient
    algorithm, 2022.
    """
    run = _Run(f, (Mx, My), (x0, y0), step, (constraint_x, constraint_y), max_outer, eps)

    def iterate() -> Pair:
        run.now = run.moved(run.now, run.scaled(run.descent(run.now), run.step))
        return run.now

    return run.solve(iterate, average=average)


def rceg(
    f: Game,
    Mx: Manifold,
    My: Manifold,
    x0: Any,
    y0: Any,
    step: float,
    constraint_x: Constraint | None = None,
    constraint_y: Constraint | None = None,
    *,
    max_outer: int = 1000,
    eps: float = 1e-6,
    average: bool = True,
) -> MinMaxResult:
    r"""Riemannian corrected extragradient; the answer is the geodesic average of the middle points.

    .. math:: w = \exp_z(-s F(z)), \qquad z^+ = \exp_w\big(-s F(w) + \log_w z\big)

    Parameters
    ----------
    f : Game
        Game.
    Mx, My : Manifold
        Manifolds of the two players.
    x0, y0 : array-like
        Start.
    step : float
        Step size s.
    constraint_x, constraint_y : GeodesicBall or None, default=None
        Sets on which the gap is measured; the method knows none, and ends where it leaves one.
    max_outer : int, default=1000
        Steps at most, four gradients each.
    eps : float, default=1e-6
        Gap to reach.
    average : bool, default=True
        Whether the geodesic average is the answer, or the last iterate.

    Returns
    -------
    MinMaxResult
        Its ``smoothness`` is ``1 / step``.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import GeodesicBall
    >>> from theses.problems.geodesic import LogDetGame
    >>> game = LogDetGame(2)
    >>> ball = GeodesicBall(game.x_manifold, np.eye(2), 2.0)
    >>> start = np.diag([2.0, 1.0])
    >>> rceg(game, ball.manifold, ball.manifold, start, start, 0.1, ball, ball, eps=1e-2).status
    'converged'

    References
    ----------
    Zhang, Zhang and Sra: Sion's minimax theorem in geodesic metric spaces and a Riemannian extragradient
    algorithm, 2022.
    """
    run = _Run(f, (Mx, My), (x0, y0), step, (constraint_x, constraint_y), max_outer, eps)

    def iterate() -> Pair:
        w = run.moved(run.now, run.scaled(run.descent(run.now), run.step))
        pull = run.scaled(run.descent(w), run.step)
        back = Mx.log(w[0], run.now[0]), My.log(w[1], run.now[1])
        run.now = run.moved(w, (pull[0] + back[0], pull[1] + back[1]))
        return w

    return run.solve(iterate, average=average)


def r_ogda(
    f: Game,
    Mx: Manifold,
    My: Manifold,
    x0: Any,
    y0: Any,
    step: float,
    constraint_x: Constraint | None = None,
    constraint_y: Constraint | None = None,
    *,
    max_outer: int = 1000,
    eps: float = 1e-6,
    average: bool = True,
) -> MinMaxResult:
    r"""Riemannian optimistic gradient descent-ascent; the answer is the geodesic average.

    .. math:: z^+ = \exp_z\big(-2 s F(z) + s \, \Gamma F(z^-)\big)

    Parameters
    ----------
    f : Game
        Game.
    Mx, My : Manifold
        Manifolds of the two players.
    x0, y0 : array-like
        Start.
    step : float
        Step size s.
    constraint_x, constraint_y : GeodesicBall or None, default=None
        Sets on which the gap is measured; the method knows none, and ends where it leaves one.
    max_outer : int, default=1000
        Steps at most, two gradients each.
    eps : float, default=1e-6
        Gap to reach.
    average : bool, default=True
        Whether the geodesic average is the answer, or the last iterate.

    Returns
    -------
    MinMaxResult
        Its ``smoothness`` is ``1 / step``.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import GeodesicBall
    >>> from theses.problems.geodesic import LogDetGame
    >>> game = LogDetGame(2)
    >>> ball = GeodesicBall(game.x_manifold, np.eye(2), 2.0)
    >>> start = np.diag([2.0, 1.0])
    >>> r_ogda(game, ball.manifold, ball.manifold, start, start, 0.1, ball, ball, eps=1e-2).status
    'converged'

    References
    ----------
    Wang, Yang and Wang: On Riemannian optimistic methods, 2023.
    """
    run = _Run(f, (Mx, My), (x0, y0), step, (constraint_x, constraint_y), max_outer, eps)
    last: Pair | None = None

    def iterate() -> Pair:
        nonlocal last
        v = run.descent(run.now)
        carried = v if last is None else last
        ahead = run.moved(run.now, (run.step * (2 * v[0] - carried[0]), run.step * (2 * v[1] - carried[1])))
        last = Mx.transp(run.now[0], ahead[0], v[0]), My.transp(run.now[1], ahead[1], v[1])
        run.now = ahead
        return ahead

    return run.solve(iterate, average=average)


def r_ogd(
    manifold: Manifold,
    losses: Sequence[Loss],
    x0: Any,
    step: float,
    constraint: Constraint | None = None,
    *,
    optimistic: bool = False,
) -> tuple[Array, Array]:
    r"""Riemannian online gradient descent, one explicit step a round.

    .. math:: x_{t+1} = P_X\big(\exp_{x_t}(-s \nabla f_t(x_t))\big)

    Parameters
    ----------
    manifold : Manifold
        Manifold.
    losses : sequence of Loss
        f_t.
    x0 : array-like, shape ``manifold.shape``
        First decision.
    step : float
        Step size s.
    constraint : GeodesicBall or None, default=None
        X.
    optimistic : bool, default=False
        Step along twice the gradient minus the last one, carried over in parallel (R-OOGD).

    Returns
    -------
    decisions : ndarray, shape (n_rounds,) + ``manifold.shape``
        x_t.
    met : ndarray, shape (n_rounds,)
        f_t(x_t).

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import Euclidean
    >>> from theses.problems.geodesic import SquaredDistance
    >>> line = Euclidean(1)
    >>> decisions, met = r_ogd(line, [SquaredDistance(line, [1.0])] * 3, np.zeros(1), 0.5)
    >>> decisions.ravel().tolist()
    [0.0, 0.5, 0.75]

    References
    ----------
    Wang, Yang and Wang: On Riemannian optimistic methods, 2023.
    """
    step = check_real("step", step, minimum=0, include=False)
    X: Constraint = WholeManifold(manifold) if constraint is None else constraint
    if not len(losses):
        raise ValueError("losses must not be empty")
    x = start_in(X, "x0", x0)
    decisions, met = [], []
    carried: Array | None = None
    for loss in losses:
        decisions.append(x)
        met.append(loss.value(x))
        v = -loss.grad(x)
        direction = 2 * v - carried if optimistic and carried is not None else v
        ahead = X.project(manifold.exp(x, step * direction))
        carried = manifold.transp(x, ahead, v)
        x = ahead
    return np.stack(decisions), np.array(met)
