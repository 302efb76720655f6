"""Constraint sets inside a manifold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from theses.numerics.manifolds.base import Array, Manifold
from theses.validation import check_real

__all__ = ["GeodesicBall", "WholeManifold"]


class WholeManifold:
    """No constraint.

    Parameters
    ----------
    manifold : Manifold
        The manifold.

    Examples
    --------
    >>> from theses.numerics.manifolds import Euclidean
    >>> WholeManifold(Euclidean(2)).diameter
    inf
    """

    diameter = math.inf

    def __init__(self, manifold: Manifold) -> None:
        self.manifold = manifold

    def __repr__(self) -> str:
        return "WholeManifold()"

    def contains(self, x: Array, tolerance: float = 1e-10) -> bool:
        """Whether ``x`` lies in the set: always."""
        return True

    def project(self, x: Array) -> Array:
        """The point itself."""
        return x

    def cone(self, x: Array, v: Array) -> Array:
        """The tangent vector itself: no direction leads out."""
        return v


class GeodesicBall:
    """Points within a radius of a centre; convex on a Hadamard manifold.

    Parameters
    ----------
    manifold : Manifold
        The manifold.
    center : array-like, shape ``manifold.shape``
        Centre.
    radius : float
        Radius, positive.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import Euclidean
    >>> ball = GeodesicBall(Euclidean(2), np.zeros(2), 1.0)
    >>> ball.project(np.array([3.0, 4.0])).round(12).tolist()
    [0.6, 0.8]
    """

    def __init__(self, manifold: Manifold, center: Any, radius: float) -> None:
        self.manifold = manifold
        self.center = manifold.check_point("center", center)
        self.radius = check_real("radius", radius, minimum=0, include=False)
        self.diameter = 2 * self.radius

    def __repr__(self) -> str:
        return f"GeodesicBall({self.manifold!r}, radius={self.radius:g})"

    def contains(self, x: Array, tolerance: float = 1e-10) -> bool:
        """Whether ``x`` lies in the ball, to within a tolerance relative to the radius."""
        return bool(self.manifold.dist(self.center, x) <= self.radius * (1 + tolerance))

    def project(self, x: Array) -> Array:
        """Nearest point of the ball: along the geodesic to the centre."""
        v = self.manifold.log(self.center, x)
        length = self.manifold.norm(self.center, v)
        outside = length > self.radius
        if not np.any(outside):
            return x
        shrunk = self.manifold.exp(
            self.center, self.manifold.scaled(v, self.radius / np.where(outside, length, self.radius))
        )
        return np.where(outside.reshape(outside.shape + (1,) * len(self.manifold.shape)), shrunk, x)

    def cone(self, x: Array, v: Array) -> Array:
        """Nearest direction to ``v`` that does not leave the ball from ``x``, a point of it.

        On the boundary the outward part of ``v`` is taken away; inside, every direction is open.
        """
        inward = self.manifold.log(x, self.center)
        length = float(self.manifold.norm(x, inward))
        if length < self.radius * (1 - 1e-12):
            return v
        outward = -float(self.manifold.inner(x, v, inward)) / length
        return v + max(outward, 0.0) / length * inward
