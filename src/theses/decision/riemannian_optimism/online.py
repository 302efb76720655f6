"""Implicit optimistic online learning."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from sklearn.exceptions import ConvergenceWarning

from theses.decision.riemannian_optimism.inner import Constraint, InnerSolution, InnerSolver
from theses.numerics.manifolds import Manifold, WholeManifold, frechet_mean
from theses.numerics.manifolds.base import Array
from theses.problems.geodesic import Loss, SquaredDistance
from theses.validation import check_choice, check_real

__all__ = ["RIOD", "FrechetMeanRun", "online_frechet_mean", "start_in"]


def start_in(constraint: Constraint, name: str, point: Any) -> Array:
    """Point of the set at the public door: a point outside is projected, with a warning."""
    x = constraint.manifold.check_point(name, point)
    if constraint.contains(x, 1e-8):
        return x
    warnings.warn(f"{name} lies outside of the constraint set and is projected to it", stacklevel=3)
    return constraint.project(x)


class RIOD:
    r"""Riemannian implicit optimistic online descent.

    .. math::
        x_t = \arg\min_{x \in X} h_t(x) + \frac{d^2(x, z_{t-1})}{2 \eta}, \qquad
        z_t = \arg\min_{x \in X} f_t(x) + \frac{d^2(x, z_{t-1})}{2 \eta}

    Parameters
    ----------
    manifold : Manifold
        A Hadamard manifold.
    eta : float or None
        Step size; ``D / sqrt(sum of G_t^2)`` is best, for G_t the Lipschitz constant of ``f_t - h_t``. None
        doubles a guess of that sum whenever the run exceeds it, and needs a bounded constraint set.
    constraint : GeodesicBall or None, default=None
        X; None is the whole manifold.
    hint : {"last", "none"} or callable, default="last"
        h_t: the loss of the round before, 0, or what ``hint(t)`` returns for round t = 1, 2, ... (a loss or
        None for 0).
    inner : InnerSolver, default=InnerSolver()
        How the two problems are solved.
    accuracy : "schedule" or float, default="schedule"
        Suboptimality of each: ``D^2 / (8 eta (t + 1)^4)``, or one number. On the whole manifold D is taken
        for 1. An error of delta in a value may cost ``D sqrt(2 delta / eta)``; with the fourth power the
        sum of these over all rounds is below ``D^2 / eta``, with the second it grows like log T.
    start : array-like, shape ``manifold.shape``, or None, default=None
        z_0; None takes the centre of the ball, or the manifold's origin.
    keep_history : bool, default=False
        Whether losses and points are kept, which :meth:`regret` needs; else memory does not grow.

    Attributes
    ----------
    z : ndarray
        Secondary iterate.
    t : int
        Rounds that are over.
    total_loss : float
        Sum of the losses met.
    n_grad : int
        Gradients of losses and hints asked for.
    n_unconverged : int
        Problems not solved to their accuracy; what is left enters :meth:`regret_bound`.
    history : list of tuple
        x_t, z_t and f_t of each round, where they are kept.

    Raises
    ------
    ValueError
        If a parameter is not as described, or the manifold may be positively curved.

    Notes
    -----
    Two problems a round. The regret bound holds for every eta, every hint and any curvature.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import Hyperbolic
    >>> space = Hyperbolic(2)
    >>> target = space.exp(space.origin(), np.array([0.0, 1.0, 0.0]))
    >>> learner = RIOD(space, eta=1.0, keep_history=True)
    >>> for _ in range(20):
    ...     x = learner.play()
    ...     learner.update(SquaredDistance(space, target))
    >>> learner.regret(target) <= learner.regret_bound(target)
    True

    References
    ----------
    Roux, Martinez-Rubio and Pokutta, ICML 2025, arXiv 2501.18381.
    """

    def __init__(
        self,
        manifold: Manifold,
        eta: float | None,
        constraint: Constraint | None = None,
        hint: Literal["last", "none"] | Callable[[int], Loss | None] = "last",
        inner: InnerSolver | None = None,
        accuracy: Literal["schedule"] | float = "schedule",
        *,
        start: Any = None,
        keep_history: bool = False,
    ) -> None:
        if not isinstance(manifold, Manifold):
            raise TypeError(f"manifold must be a Manifold, got {type(manifold).__name__}")
        if manifold.curvature_lower > 0:
            raise ValueError(f"manifold must not be positively curved (Hadamard needed), got {manifold!r}")
        self.manifold = manifold
        self.constraint: Constraint = WholeManifold(manifold) if constraint is None else constraint
        self._adaptive = eta is None
        if eta is None and math.isinf(self.constraint.diameter):
            raise ValueError("eta must be given where the constraint set is not bounded")
        self.eta = math.inf if eta is None else check_real("eta", eta, minimum=0, include=False)
        if not callable(hint):
            check_choice("hint", hint, ("last", "none"))
        self.hint = hint
        self.inner = InnerSolver() if inner is None else inner
        self.accuracy = (
            accuracy if accuracy == "schedule" else check_real("accuracy", accuracy, minimum=0, include=False)
        )
        if start is None:
            center = getattr(self.constraint, "center", None)
            self.z = manifold.origin() if center is None else center
        else:
            self.z = start_in(self.constraint, "start", start)
        self.keep_history = keep_history
        self.history: list[tuple[Array, Array, Loss]] = []
        self.t = 0
        self.total_loss = 0.0
        self.n_grad = 0
        self.n_unconverged = 0
        self._z0 = self.z
        self._last: Loss | None = None
        self._played: tuple[InnerSolution, Loss | None] | None = None
        # Of the regret bound: the brackets, what inexact solutions add to them, and the step sizes used.
        self._brackets = 0.0
        self._inexact = 0.0
        self._inexact_from_start = 0.0
        self._epochs: list[float] = [] if eta is None else [self.eta]
        self._variation = 0.0
        self._guess = 0.0

    def _solve(self, loss: Loss) -> InnerSolution:
        delta = self.accuracy
        if delta == "schedule":
            D = self.constraint.diameter if math.isfinite(self.constraint.diameter) else 1.0
            delta = D**2 / (8 * self.eta * (self.t + 2) ** 4)
        solved = self.inner._solve(loss, self.constraint, self.z, self.eta, float(delta))
        self.n_grad += solved.n_grad
        if not solved.converged:
            if not self.n_unconverged:
                warnings.warn(
                    f"round {self.t + 1}: the inner solver stopped after {solved.n_grad} gradients with "
                    f"residual {solved.residual:.2g}; the regret bound grows by what is left",
                    ConvergenceWarning,
                    stacklevel=3,
                )
            self.n_unconverged += 1
        return solved

    def play(self) -> Array:
        """Decision of the coming round.

        Returns
        -------
        ndarray, shape ``manifold.shape``
            x_t; the same until :meth:`update` is called.
        """
        if self._played is None:
            hint = self._hint()
            if hint is None or math.isinf(self.eta):
                self._played = InnerSolution(self.z, 0.0, 0, True), hint
            else:
                self._played = self._solve(hint), hint
        return self._played[0].x

    def _hint(self) -> Loss | None:
        if callable(self.hint):
            return self.hint(self.t + 1)
        return self._last if self.hint == "last" else None

    def update(self, loss: Loss) -> None:
        """Take the loss of the round.

        Parameters
        ----------
        loss : Loss
            f_t.

        Raises
        ------
        TypeError
            If it has no ``value`` or no ``grad``.
        ValueError
            If its value at the decision is not finite.
        """
        if not isinstance(loss, Loss):
            raise TypeError(f"loss must have value(x) and grad(x), got {type(loss).__name__}")
        x = self.play()
        assert self._played is not None
        played, hint = self._played
        met = float(loss.value(x))
        if not math.isfinite(met):
            raise ValueError(f"loss must be finite at the decision, got {met} in round {self.t + 1}")
        if self._adaptive and not self._epochs:
            self._first_step(loss, x)
        solved = self._solve(loss)
        z = solved.x

        def surprise(at: Array) -> float:
            return loss.value(at) - (0.0 if hint is None else hint.value(at))

        to_z, from_z = (float(self.manifold.dist(x, other)) for other in (z, self.z))
        gain = surprise(x) - surprise(z)
        self._brackets += gain - (to_z**2 + from_z**2) / (2 * self.eta) + played.residual * to_z
        self._inexact += solved.residual
        self._inexact_from_start += solved.residual * float(self.manifold.dist(self._z0, z))
        self.total_loss += met
        self.z, self._last, self._played = z, loss, None
        self.t += 1
        if self.keep_history:
            self.history.append((x, z, loss))
        if self._adaptive and to_z > 0:
            self._variation += (gain / to_z) ** 2
            if self._variation > self._guess:
                self._guess = 2 * self._variation
                self.eta = self.constraint.diameter / math.sqrt(self._guess)
                self._epochs.append(self.eta)

    def _first_step(self, loss: Loss, x: Array) -> None:
        slope = float(self.manifold.norm(x, loss.grad(x)))
        self.n_grad += 1
        self._guess = max(slope, 1e-12) ** 2
        self.eta = self.constraint.diameter / math.sqrt(self._guess)
        self._epochs.append(self.eta)

    def regret(self, u: Any) -> float:
        r"""Loss met beyond that of a fixed point, :math:`\sum_t f_t(x_t) - f_t(u)`.

        Parameters
        ----------
        u : array-like, shape ``manifold.shape``
            The point.

        Returns
        -------
        float
            Regret.

        Raises
        ------
        ValueError
            If no history was kept.
        """
        u = self.manifold.check_point("u", u)
        if not self.keep_history:
            raise ValueError("keep_history must be True for regrets to be computed")
        return self.total_loss - sum(loss.value(u) for *_, loss in self.history)

    def regret_bound(self, u: Any = None) -> float:
        r"""Certificate: what the regret cannot exceed, read off the run.

        .. math::
            \frac{d^2(u, z_0)}{2 \eta} + \sum_t \Big[ (f_t - h_t)(x_t) - (f_t - h_t)(z_t)
            - \frac{d^2(x_t, z_t) + d^2(x_t, z_{t-1})}{2 \eta} \Big] + \text{inexactness}

        Parameters
        ----------
        u : array-like, shape ``manifold.shape``, or None, default=None
            The point held against; None takes the worst of the constraint set.

        Returns
        -------
        float
            Bound on :meth:`regret`; infinite where u is None and the set unbounded.

        Notes
        -----
        Solutions with residual epsilon add ``epsilon d(x_t, z_t)`` for x_t and ``epsilon d(z_t, u)`` for z_t,
        which follows from strong convexity at them.
        """
        D = self.constraint.diameter
        if u is None:
            center = getattr(self.constraint, "center", None)
            away = D if center is None else D / 2 + float(self.manifold.dist(center, self._z0))
        else:
            away = float(self.manifold.dist(self._z0, self.manifold.check_point("u", u)))
        if not self.t:
            return 0.0
        first, last = self._epochs[0], self._epochs[-1]
        started = away**2 / (2 * first) + (D**2 * (1 / last - 1 / first) / 2 if last < first else 0.0)
        return started + self._brackets + self._inexact_from_start + away * self._inexact


@dataclass(frozen=True)
class FrechetMeanRun:
    """Course of :func:`online_frechet_mean`.

    Parameters
    ----------
    mean : ndarray, shape ``manifold.shape``
        Secondary iterate after the last point: the current estimate.
    decisions : ndarray, shape (n,) + ``manifold.shape``
        The estimate before each point came.
    losses : ndarray, shape (n,)
        Half the squared distance of each point to the estimate before it.
    regret : float
        Total loss beyond that of the mean in hindsight.
    bound : float
        Certificate of it.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import Euclidean
    >>> run = online_frechet_mean([[0.0], [2.0]], Euclidean(1), 1.0)
    >>> run.mean.tolist(), run.losses.tolist()
    ([1.0], [0.0, 2.0])

    References
    ----------
    Roux, Martinez-Rubio and Pokutta, ICML 2025, arXiv 2501.18381.
    """

    mean: Array
    decisions: Array
    losses: Array
    regret: float
    bound: float

    def summary(self) -> str:
        """One line.

        Returns
        -------
        str
            The line.
        """
        return (
            f"online Frechet mean of {len(self.losses)} points: mean loss {self.losses.mean():.4g}, "
            f"regret {self.regret:.4g} (certified at most {self.bound:.4g})"
        )

    def to_dict(self) -> dict[str, Any]:
        """All but the decisions, as plain numbers.

        Returns
        -------
        dict
            By name.
        """
        return {
            "mean": self.mean.tolist(),
            "losses": self.losses.tolist(),
            "regret": self.regret,
            "bound": self.bound,
        }

    def to_frame(self) -> pl.DataFrame:
        """One row a point.

        Returns
        -------
        polars.DataFrame
            ``round``, ``loss``, ``total``.
        """
        return pl.DataFrame(
            {
                "round": np.arange(1, len(self.losses) + 1),
                "loss": self.losses,
                "total": np.cumsum(self.losses),
            }
        )


def online_frechet_mean(stream: Iterable[Any], manifold: Manifold, eta: float) -> FrechetMeanRun:
    """Track the Frechet mean of points that come one by one.

    Parameters
    ----------
    stream : iterable of array-like, shape ``manifold.shape``
        Points.
    manifold : Manifold
        Where they lie.
    eta : float
        Step size, positive; ``1 / sqrt(n)`` for n points of a fixed law, larger if it drifts.

    Returns
    -------
    FrechetMeanRun
        Estimates and regret.

    Raises
    ------
    ValueError
        If the stream is empty, or a point lies off the manifold.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import SPD
    >>> stream = [np.diag([np.exp(v), 1.0]) for v in (0.0, 1.0) * 50]
    >>> run = online_frechet_mean(stream, SPD(2), 0.1)
    >>> round(float(np.log(run.mean[0, 0])), 1), run.regret <= run.bound
    (0.5, True)

    References
    ----------
    Roux, Martinez-Rubio and Pokutta, ICML 2025, arXiv 2501.18381.
    """
    points = [manifold.check_point("stream", point) for point in stream]
    if not points:
        raise ValueError("stream must not be empty")
    learner = RIOD(manifold, eta, hint="none", start=points[0], keep_history=True)
    for point in points:
        learner.play()
        learner.update(SquaredDistance(manifold, point))
    best = frechet_mean(manifold, np.stack(points))
    decisions = np.stack([x for x, *_ in learner.history])
    losses = manifold.dist(decisions, np.stack(points)) ** 2 / 2
    return FrechetMeanRun(learner.z, decisions, losses, learner.regret(best), learner.regret_bound(best))
