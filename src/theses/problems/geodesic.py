"""Losses and games that are convex along geodesics of a Hadamard manifold."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from theses.numerics.manifolds import SPD, Manifold, Product, comparison_factor, frechet_mean
from theses.numerics.manifolds.base import Array
from theses.validation import check_integer, check_real

__all__ = ["Distance", "Game", "LogDetGame", "Loss", "RobustKarcherGame", "SquaredDistance"]


@runtime_checkable
class Loss(Protocol):
    """A geodesically convex loss.

    Two more members are used where they are there: ``prox(z, eta)``, the minimiser of the loss plus
    ``d^2(., z) / (2 eta)`` over the whole manifold, and ``smoothness``, a Lipschitz constant of the gradient.
    """

    def value(self, x: Array) -> float:
        """Loss at a point."""

    def grad(self, x: Array) -> Array:
        """Riemannian gradient at a point, a tangent vector."""


class SquaredDistance:
    r"""Half the squared distance to a target.

    .. math:: f(x) = \frac{w}{2} d^2(x, a)

    Parameters
    ----------
    manifold : Manifold
        Manifold.
    target : array-like, shape ``manifold.shape``
        a.
    weight : float, default=1.0
        w, positive.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import Euclidean
    >>> loss = SquaredDistance(Euclidean(1), [2.0])
    >>> loss.value(np.array([0.0])), loss.prox(np.array([0.0]), 1.0).tolist()
    (2.0, [1.0])
    """

    def __init__(self, manifold: Manifold, target: Any, weight: float = 1.0) -> None:
        self.manifold = manifold
        self.target = manifold.check_point("target", target)
        self.weight = check_real("weight", weight, minimum=0, include=False)

    def value(self, x: Array) -> float:
        """Loss at a point."""
        return self.weight / 2 * float(self.manifold.dist(x, self.target)) ** 2

    def grad(self, x: Array) -> Array:
        """Minus the weighted logarithm of the target."""
        return -self.weight * self.manifold.log(x, self.target)

    def prox(self, z: Array, eta: float) -> Array:
        """Point of the geodesic from ``z`` to the target at a share ``eta w / (1 + eta w)``."""
        share = eta * self.weight / (1 + eta * self.weight)
        return self.manifold.geodesic(z, self.target, share)


class Distance:
    r"""Distance to a target, Lipschitz with constant w.

    .. math:: f(x) = w \, d(x, a)

    Parameters
    ----------
    manifold : Manifold
        Manifold.
    target : array-like, shape ``manifold.shape``
        a.
    weight : float, default=1.0
        w, positive.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import Euclidean
    >>> Distance(Euclidean(1), [2.0]).prox(np.array([0.0]), 0.5).tolist()
    [0.5]
    """

    def __init__(self, manifold: Manifold, target: Any, weight: float = 1.0) -> None:
        self.manifold = manifold
        self.target = manifold.check_point("target", target)
        self.weight = check_real("weight", weight, minimum=0, include=False)

    def value(self, x: Array) -> float:
        """Loss at a point."""
        return self.weight * float(self.manifold.dist(x, self.target))

    def grad(self, x: Array) -> Array:
        """Unit vector away from the target, times the weight; 0 at the target."""
        v = self.manifold.log(x, self.target)
        length = float(self.manifold.norm(x, v))
        return np.asarray(-self.weight / length * v) if length > 1e-12 else np.zeros_like(v)

    def prox(self, z: Array, eta: float) -> Array:
        """Point at distance ``min(eta w, d(z, a))`` from ``z`` towards the target."""
        d = float(self.manifold.dist(z, self.target))
        return self.manifold.geodesic(z, self.target, min(eta * self.weight / d, 1.0) if d > 0 else 0.0)


@runtime_checkable
class Game(Protocol):
    """A function of two players' points; the first wants it small, the second large."""

    def value(self, x: Array, y: Array) -> float:
        """Value."""

    def grad_x(self, x: Array, y: Array) -> Array:
        """Riemannian gradient in x."""

    def grad_y(self, x: Array, y: Array) -> Array:
        """Riemannian gradient in y."""


class RobustKarcherGame:
    r"""A centre against an adversary who moves the points, at a price.

    .. math:: \min_x \max_{y_1, \ldots, y_m} \frac1m \sum_i \big( d^2(x, y_i) - \gamma \, d^2(y_i, a_i) \big)

    Parameters
    ----------
    manifold : Manifold
        Where the points lie.
    points : array-like, shape (m,) + ``manifold.shape``
        a_i.
    gamma : float
        Price of moving a point, above 1; geodesically concave in y where it is at least
        ``comparison_factor(D, curvature_lower)``, D the largest distance of x to a y_i.

    Attributes
    ----------
    x_manifold, y_manifold : Manifold
        ``manifold``, and the product of m copies of it.

    Notes
    -----
    Without constraints the adversary's best answer lies on the geodesic from x through a_i, at
    ``gamma / (gamma - 1)`` times its distance, so that the game's solution is the Frechet mean of the a_i and
    its value ``gamma / (gamma - 1)`` times their mean squared distance.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import Euclidean
    >>> game = RobustKarcherGame(Euclidean(1), [[-1.0], [1.0]], gamma=2.0)
    >>> game.solution_value(), game.value(np.zeros(1), np.array([-2.0, 2.0]))
    (2.0, 2.0)
    """

    def __init__(self, manifold: Manifold, points: Any, gamma: float) -> None:
        self.manifold = self.x_manifold = manifold
        self.points = manifold.check_point("points", points, batch=True)
        self.gamma = check_real("gamma", gamma, minimum=1, include=False)
        self.m = len(self.points)
        self.y_manifold = Product(*[manifold] * self.m)

    def _split(self, y: Array) -> Array:
        return y.reshape(self.m, *self.manifold.shape)

    def value(self, x: Array, y: Array) -> float:
        """Value."""
        ys = self._split(y)
        near, far = self.manifold.dist(ys, self.points), self.manifold.dist(x, ys)
        return float((far**2 - self.gamma * near**2).mean())

    def grad_x(self, x: Array, y: Array) -> Array:
        """Riemannian gradient in x."""
        return np.asarray(-2 * self.manifold.log(x, self._split(y)).mean(axis=0))

    def grad_y(self, x: Array, y: Array) -> Array:
        """Riemannian gradient in y."""
        ys = self._split(y)
        moved = self.gamma * self.manifold.log(ys, self.points) - self.manifold.log(ys, x)
        return np.asarray(2 / self.m * moved.reshape(-1))

    def start(self) -> tuple[Array, Array]:
        """The first point for x, and each point itself for y."""
        return self.points[0], self.points.reshape(-1)

    def smoothness(self, diameter: float) -> float:
        """Bound on the Lipschitz constant of the joint gradient where no two points lie further apart."""
        zeta = comparison_factor(diameter, self.manifold.curvature_lower)
        cross = 2 * zeta / np.sqrt(self.m)
        return float(max(2 * zeta, 2 * (1 + self.gamma) * zeta / self.m) + cross)

    def solution_value(self) -> float:
        """Value of the game without constraints."""
        center = frechet_mean(self.manifold, self.points)
        spread = float((self.manifold.dist(center, self.points) ** 2).mean())
        return self.gamma / (self.gamma - 1) * spread


class LogDetGame:
    r"""A game of two positive definite matrices through their determinants alone.

    .. math:: f(X, Y) = c_1 (\log\det X)^2 + c_2 \log\det X \, \log\det Y - c_1 (\log\det Y)^2

    Parameters
    ----------
    n : int
        Order of the matrices.
    c1 : float, default=1.0
        At least 0; with 0 the game is bilinear.
    c2 : float, default=1.0
        Coupling.

    Notes
    -----
    log det is linear along geodesics: the game is a flat one in disguise, a check of the Euclidean limit.

    Examples
    --------
    >>> import numpy as np
    >>> LogDetGame(2).value(np.eye(2), np.eye(2))
    0.0
    """

    def __init__(self, n: int, c1: float = 1.0, c2: float = 1.0) -> None:
        self.x_manifold = self.y_manifold = SPD(check_integer("n", n, minimum=1))
        self.c1 = check_real("c1", c1, minimum=0)
        self.c2 = check_real("c2", c2)

    @staticmethod
    def _logdet(x: Array) -> float:
        return float(np.linalg.slogdet(x)[1])

    def value(self, x: Array, y: Array) -> float:
        """Value."""
        a, b = self._logdet(x), self._logdet(y)
        return self.c1 * (a**2 - b**2) + self.c2 * a * b

    def grad_x(self, x: Array, y: Array) -> Array:
        """Riemannian gradient in x; that of log det is the point itself."""
        return np.asarray((2 * self.c1 * self._logdet(x) + self.c2 * self._logdet(y)) * x)

    def grad_y(self, x: Array, y: Array) -> Array:
        """Riemannian gradient in y."""
        return np.asarray((self.c2 * self._logdet(x) - 2 * self.c1 * self._logdet(y)) * y)

    def smoothness(self) -> float:
        """Lipschitz constant of the joint gradient."""
        return self.x_manifold.n * float(np.hypot(2 * self.c1, self.c2))
