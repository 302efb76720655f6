"""The proximal problems of each round, and how exactly they are solved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from theses.numerics.manifolds import GeodesicBall, WholeManifold, comparison_factor
from theses.numerics.manifolds.base import Array
from theses.problems.geodesic import Loss
from theses.validation import check_choice, check_integer, check_real

__all__ = ["Constraint", "InnerSolution", "InnerSolver", "descend"]

Constraint = GeodesicBall | WholeManifold

KINDS = ("exact", "prgd", "crgd")


@dataclass(frozen=True)
class InnerSolution:
    r"""An approximate minimiser of a proximal problem, with its certificate.

    Parameters
    ----------
    x : ndarray, shape ``manifold.shape``
        The point.
    residual : float
        Norm of the part of the negative gradient that does not lead out of the constraint set: for every y of
        it :math:`\Phi(y) \ge \Phi(x) - \varepsilon d(x, y) + d^2(x, y) / (2 \eta)` with this
        :math:`\varepsilon`, whatever the curvature.
    n_grad : int
        Gradients of the loss that were asked for.
    converged : bool
        Whether the accuracy was reached.

    Examples
    --------
    >>> import numpy as np
    >>> InnerSolution(np.zeros(1), 0.0, 0, True).converged
    True

    References
    ----------
    Roux, Martinez-Rubio and Pokutta, ICML 2025, arXiv 2501.18381; the residual is this library's.
    """

    x: Array
    residual: float
    n_grad: int
    converged: bool


def descend(
    loss: Loss,
    constraint: Constraint,
    start: Array,
    *,
    prox: tuple[Array, float] | None,
    step: float,
    target: float,
    max_iter: int,
) -> InnerSolution:
    r"""Metric-projected Riemannian gradient descent, with backtracking.

    .. math:: x \leftarrow P_X\big(\exp_x(-s \nabla \Phi(x))\big)

    Parameters
    ----------
    loss : Loss
        f.
    constraint : GeodesicBall or WholeManifold
        X.
    start : ndarray
        Where to begin; is projected.
    prox : pair of ndarray and float, or None
        z and eta, where ``d^2(., z) / (2 eta)`` is added to f.
    step : float
        First step size; is halved while the quadratic model is not above the function.
    target : float
        Residual at which to stop.
    max_iter : int
        Gradients at most.

    Returns
    -------
    InnerSolution
        Best point so far.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import Euclidean, WholeManifold
    >>> from theses.problems.geodesic import SquaredDistance
    >>> line = Euclidean(1)
    >>> options = {"prox": None, "step": 1.0, "target": 1e-9, "max_iter": 9}
    >>> descend(SquaredDistance(line, [3.0]), WholeManifold(line), np.zeros(1), **options).x.tolist()
    [3.0]
    """
    manifold = constraint.manifold

    def value(at: Array) -> float:
        extra = 0.0 if prox is None else float(manifold.dist(at, prox[0])) ** 2 / (2 * prox[1])
        return loss.value(at) + extra

    x = constraint.project(start)
    current = value(x)
    residual = math.inf
    for n_grad in range(1, max_iter + 1):
        gradient = loss.grad(x)
        if prox is not None:
            gradient = gradient - manifold.log(x, prox[0]) / prox[1]
        residual = float(manifold.norm(x, constraint.cone(x, -gradient)))
        if residual <= target:
            return InnerSolution(x, residual, n_grad, True)
        if n_grad == max_iter:
            break
        while True:
            y = constraint.project(manifold.exp(x, -step * gradient))
            v = manifold.log(x, y)
            model = float(manifold.inner(x, gradient, v)) + float(manifold.inner(x, v, v)) / (2 * step)
            after = value(y)
            # Rounding of the values must not shrink the step for ever.
            if after <= current + model + 1e-13 * (1 + abs(current)) or step < 1e-12:
                break
            step /= 2
        x, current = y, after
    return InnerSolution(x, residual, max_iter, False)


class _Model:
    """A loss as one gradient tells it: linear in the logarithm at ``x``, and a multiple of d^2(., x) / 2."""

    def __init__(self, constraint: Constraint, x: Array, gradient: Array, smoothness: float) -> None:
        self.manifold, self.x, self.gradient, self.smoothness = constraint.manifold, x, gradient, smoothness

    def value(self, y: Array) -> float:
        v = self.manifold.log(self.x, y)
        linear, square = (float(self.manifold.inner(self.x, u, v)) for u in (self.gradient, v))
        return linear + self.smoothness / 2 * square

    def grad(self, y: Array) -> Array:
        linear = self.manifold.log_adjoint(self.x, y, self.gradient)
        return linear - self.smoothness * self.manifold.log(y, self.x)


@dataclass(frozen=True)
class InnerSolver:
    r"""How proximal problems are solved.

    .. math:: \min_{x \in X} \; \Phi(x) = f(x) + \frac{d^2(x, z)}{2 \eta}

    Parameters
    ----------
    kind : {"exact", "prgd", "crgd"}, default="exact"
        "exact": the loss's own ``prox`` where it has one and its answer lies in the set, else as "prgd", for
        the constrained minimiser is not the projection of the free one.
        "prgd": metric-projected gradient descent; O((1 + zeta) log(1 / delta)) gradients for eta near 1 / L.
        "crgd": composite gradient descent. Each step minimises the loss's linear model plus L/2 d^2 and the
        exact proximal term, which asks for no further gradient of the loss: O(log(1 / delta)) of them,
        without zeta.
    max_iter : int, default=200
        Gradients a problem at most.
    smoothness : float or None, default=None
        L; None takes the loss's attribute ``smoothness``, and finds it by backtracking where there is none.

    Notes
    -----
    A problem counts as solved to delta when eta times the squared residual (see :class:`InnerSolution`) is
    at most 2 delta, which by strong convexity bounds the suboptimality.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import Hyperbolic, WholeManifold
    >>> from theses.problems.geodesic import SquaredDistance
    >>> space = Hyperbolic(2)
    >>> z = space.origin()
    >>> loss = SquaredDistance(space, space.exp(z, np.array([0.0, 2.0, 0.0])))
    >>> solved = InnerSolver("crgd").solve(loss, WholeManifold(space), z, 1.0, 1e-12)
    >>> round(float(space.dist(z, solved.x)), 5)
    1.0

    References
    ----------
    Roux, Martinez-Rubio and Pokutta, ICML 2025, arXiv 2501.18381.
    """

    kind: Literal["exact", "prgd", "crgd"] = "exact"
    max_iter: int = 200
    smoothness: float | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_integer("max_iter", self.max_iter, minimum=1)
        if self.smoothness is not None:
            check_real("smoothness", self.smoothness, minimum=0, include=False)

    def solve(
        self,
        loss: Loss,
        constraint: Constraint,
        z: Array,
        eta: float,
        delta: float,
        start: Array | None = None,
    ) -> InnerSolution:
        """Solve one problem.

        Parameters
        ----------
        loss : Loss
            f.
        constraint : GeodesicBall or WholeManifold
            X.
        z : ndarray, shape ``manifold.shape``
            Centre of the proximal term, a point of X.
        eta : float
            Step size, positive.
        delta : float
            Suboptimality to reach, positive.
        start : ndarray or None, default=None
            Where to begin; None begins at z.

        Returns
        -------
        InnerSolution
            Point and certificate.

        Raises
        ------
        NotImplementedError
            If "crgd" is asked for on a manifold without ``log_adjoint``.
        """
        z = constraint.manifold.check_point("z", z)
        if start is not None:
            start = constraint.manifold.check_point("start", start)
        eta = check_real("eta", eta, minimum=0, include=False)
        return self._solve(
            loss, constraint, z, eta, check_real("delta", delta, minimum=0, include=False), start
        )

    def _solve(
        self,
        loss: Loss,
        constraint: Constraint,
        z: Array,
        eta: float,
        delta: float,
        start: Array | None = None,
    ) -> InnerSolution:
        """What :meth:`solve` does, without its checks: called twice or four times a round."""
        prox = getattr(loss, "prox", None)
        if self.kind == "exact" and prox is not None:
            x = prox(z, eta)
            if constraint.contains(x, 1e-12):
                return InnerSolution(x, 0.0, 0, True)
        start = z if start is None else start
        smoothness = self.smoothness if self.smoothness is not None else getattr(loss, "smoothness", None)
        target = math.sqrt(2 * delta / eta)
        if self.kind == "crgd":
            return self._composite(loss, constraint, z, eta, target, start, smoothness)
        step = eta
        if smoothness is not None:
            reach = min(constraint.diameter, 2 * float(constraint.manifold.dist(start, z)) + 1.0)
            step = 1 / (smoothness + comparison_factor(reach, constraint.manifold.curvature_lower) / eta)
        return descend(
            loss, constraint, start, prox=(z, eta), step=step, target=target, max_iter=self.max_iter
        )

    def _composite(
        self,
        loss: Loss,
        constraint: Constraint,
        z: Array,
        eta: float,
        target: float,
        start: Array,
        smoothness: float | None,
    ) -> InnerSolution:
        manifold = constraint.manifold
        curvature = 1 / eta if smoothness is None else smoothness
        x = constraint.project(start)
        residual = math.inf
        for n_grad in range(1, self.max_iter + 1):
            gradient = loss.grad(x)
            total = gradient - manifold.log(x, z) / eta
            residual = float(manifold.norm(x, constraint.cone(x, -total)))
            if residual <= target:
                return InnerSolution(x, residual, n_grad, True)
            while True:
                model = _Model(constraint, x, gradient, curvature)
                y = descend(
                    model,
                    constraint,
                    x,
                    prox=(z, eta),
                    step=1 / (curvature + 1 / eta),
                    # Far below what this step gains, and below what is asked for in the end.
                    target=min(0.05 * residual, 0.3 * target),
                    max_iter=100,
                ).x
                if smoothness is not None:
                    break
                above = loss.value(x) + model.value(y) + 1e-13 * (1 + abs(loss.value(x)))
                if loss.value(y) <= above or curvature > 1e12:
                    break
                curvature *= 2
            x = y
        return InnerSolution(x, residual, self.max_iter, False)
