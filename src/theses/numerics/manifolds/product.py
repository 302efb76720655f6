"""Products: several manifolds side by side."""

from __future__ import annotations

import numpy as np

from theses.numerics.manifolds.base import Array, Manifold

__all__ = ["Product"]


class Product(Manifold):
    r"""Product of manifolds, with the sum of their squared distances.

    .. math:: d^2\big((x_1, \ldots, x_k), (y_1, \ldots, y_k)\big) = \sum_i d_i^2(x_i, y_i)

    Points are the factors' points, flattened and laid end to end; :meth:`split` takes them apart.

    Parameters
    ----------
    *factors : Manifold
        The manifolds.

    Notes
    -----
    Equal factors that follow each other are computed as one batch.

    Examples
    --------
    >>> from theses.numerics.manifolds import SPD, Hyperbolic
    >>> space = Product(SPD(2), Hyperbolic(3))
    >>> space.dim, [part.shape for part in space.split(space.origin())]
    (6, [(2, 2), (4,)])
    """

    def __init__(self, *factors: Manifold) -> None:
        if not factors or not all(isinstance(factor, Manifold) for factor in factors):
            raise TypeError("factors must be one or more manifolds")
        self.factors = factors
        self.dim = sum(factor.dim for factor in factors)
        self.curvature_lower = min(factor.curvature_lower for factor in factors)
        self._sizes = [int(np.prod(factor.shape)) for factor in factors]
        self.shape = (sum(self._sizes),)
        # Runs of factors that are told apart by nothing: (factor, how many, first coordinate, last).
        self._runs: list[tuple[Manifold, int, int, int]] = []
        start = 0
        for factor, size in zip(factors, self._sizes, strict=True):
            if self._runs and repr(self._runs[-1][0]) == repr(factor):
                same, count, first, _ = self._runs[-1]
                self._runs[-1] = (same, count + 1, first, start + size)
            else:
                self._runs.append((factor, 1, start, start + size))
            start += size

    def __repr__(self) -> str:
        return f"Product({', '.join(map(repr, self.factors))})"

    def split(self, x: Array) -> list[Array]:
        """The factors' points (or tangent vectors), with the batch axes of ``x``."""
        ends = np.cumsum(self._sizes)[:-1]
        parts = np.split(x, ends, axis=-1)
        return [
            part.reshape(part.shape[:-1] + factor.shape)
            for part, factor in zip(parts, self.factors, strict=True)
        ]

    def join(self, *parts: Array) -> Array:
        """Inverse of :meth:`split`."""
        flat = [
            part.reshape((*part.shape[: part.ndim - len(factor.shape)], -1))
            for part, factor in zip(parts, self.factors, strict=True)
        ]
        return np.concatenate(flat, axis=-1)

    def _map(self, name: str, *arrays: Array) -> Array:
        done = []
        for factor, count, first, last in self._runs:
            pieces = [a[..., first:last].reshape((*a.shape[:-1], count, *factor.shape)) for a in arrays]
            result = getattr(factor, name)(*pieces)
            batch = result.shape[: result.ndim - len(factor.shape) - 1]
            done.append(result.reshape((*batch, last - first)))
        return np.concatenate(done, axis=-1)

    def _sum(self, name: str, power: int, *arrays: Array) -> Array:
        total: Array | float = 0.0
        for factor, count, first, last in self._runs:
            pieces = [a[..., first:last].reshape((*a.shape[:-1], count, *factor.shape)) for a in arrays]
            total = total + (getattr(factor, name)(*pieces) ** power).sum(axis=-1)
        return np.asarray(total)

    def exp(self, x: Array, v: Array) -> Array:
        return self._map("exp", x, v)

    def log(self, x: Array, y: Array) -> Array:
        return self._map("log", x, y)

    def transp(self, x: Array, y: Array, v: Array) -> Array:
        return self._map("transp", x, y, v)

    def log_adjoint(self, x: Array, y: Array, g: Array) -> Array:
        return self._map("log_adjoint", x, y, g)

    def egrad2rgrad(self, x: Array, g: Array) -> Array:
        return self._map("egrad2rgrad", x, g)

    def inner(self, x: Array, u: Array, v: Array) -> Array:
        return self._sum("inner", 1, x, u, v)

    def norm(self, x: Array, v: Array) -> Array:
        """Length of a tangent vector at ``x``."""
        return np.asarray(np.sqrt(self._sum("norm", 2, x, v)))

    def dist(self, x: Array, y: Array) -> Array:
        return np.asarray(np.sqrt(self._sum("dist", 2, x, y)))

    def origin(self) -> Array:
        return self.join(*(factor.origin() for factor in self.factors))

    def random_tangent(self, x: Array, random_state: np.random.Generator) -> Array:
        parts = zip(self.factors, self.split(x), strict=True)
        return self.join(*(factor.random_tangent(part, random_state) for factor, part in parts))

    def off(self, x: Array) -> float:
        return max(factor.off(part) for factor, part in zip(self.factors, self.split(x), strict=True))
