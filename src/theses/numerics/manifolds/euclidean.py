"""Flat space, the limit without curvature."""

from __future__ import annotations

import numpy as np

from theses.numerics.manifolds.base import Array, Manifold
from theses.validation import check_integer

__all__ = ["Euclidean"]


class Euclidean(Manifold):
    """Flat space of d dimensions.

    Parameters
    ----------
    d : int
        Dimension.

    Examples
    --------
    >>> import numpy as np
    >>> float(Euclidean(2).dist(np.zeros(2), np.array([3.0, 4.0])))
    5.0
    """

    curvature_lower = 0.0

    def __init__(self, d: int) -> None:
        self.dim = check_integer("d", d, minimum=1)
        self.shape = (self.dim,)

    def __repr__(self) -> str:
        return f"Euclidean({self.dim})"

    def exp(self, x: Array, v: Array) -> Array:
        return x + v

    def log(self, x: Array, y: Array) -> Array:
        return y - x

    def inner(self, x: Array, u: Array, v: Array) -> Array:
        return np.asarray((u * v).sum(axis=-1))

    def transp(self, x: Array, y: Array, v: Array) -> Array:
        return v + 0.0 * (x + y)

    def log_adjoint(self, x: Array, y: Array, g: Array) -> Array:
        return g + 0.0 * (x + y)

    def egrad2rgrad(self, x: Array, g: Array) -> Array:
        return g

    def origin(self) -> Array:
        return np.zeros(self.dim)

    def random_tangent(self, x: Array, random_state: np.random.Generator) -> Array:
        return random_state.standard_normal(self.dim)

    def off(self, x: Array) -> float:
        return 0.0
