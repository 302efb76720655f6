"""Symmetric positive definite matrices with the affine-invariant metric."""

from __future__ import annotations

import math

import numpy as np

from theses.numerics.manifolds.base import Array, Manifold
from theses.validation import check_integer

__all__ = ["SPD"]


def _t(a: Array) -> Array:
    return np.swapaxes(a, -1, -2)


def _sym(a: Array) -> Array:
    return (a + _t(a)) / 2


class SPD(Manifold):
    r"""Symmetric positive definite n x n matrices, affine-invariant.

    .. math:: \langle U, V \rangle_X = \operatorname{tr}(X^{-1} U X^{-1} V), \qquad
        d(X, Y) = \big\lVert \log\big(X^{-1/2} Y X^{-1/2}\big) \big\rVert_F

    Parameters
    ----------
    n : int
        Order of the matrices.

    Notes
    -----
    The sectional curvature lies in [-1/2, 0]. One Cholesky factor and one eigendecomposition an operation,
    O(n^3).

    Examples
    --------
    >>> import numpy as np
    >>> space = SPD(2)
    >>> round(float(space.dist(np.eye(2), np.diag([np.e, np.e]))) ** 2, 12)
    2.0
    """

    def __init__(self, n: int) -> None:
        self.n = check_integer("n", n, minimum=1)
        self.shape = (self.n, self.n)
        self.dim = self.n * (self.n + 1) // 2
        self.curvature_lower = 0.0 if self.n == 1 else -0.5

    def __repr__(self) -> str:
        return f"SPD({self.n})"

    @staticmethod
    def _white(lower: Array, v: Array) -> Array:
        """``L^{-1} v L^{-T}``: the matrix as seen from the point ``L L'``."""
        half = np.linalg.solve(lower, v)
        return _sym(_t(np.linalg.solve(lower, _t(half))))

    def _spectrum(self, x: Array, y: Array) -> tuple[Array, Array, Array]:
        """Cholesky factor L of x; logarithms of eigenvalues, and eigenvectors, of ``L^{-1} y L^{-T}``."""
        lower = np.linalg.cholesky(x)
        values, vectors = np.linalg.eigh(self._white(lower, y))
        return lower, np.log(np.maximum(values, np.finfo(np.float64).tiny)), vectors

    def inner(self, x: Array, u: Array, v: Array) -> Array:
        lower = np.linalg.cholesky(x)
        return np.asarray((self._white(lower, u) * self._white(lower, v)).sum(axis=(-1, -2)))

    def norm(self, x: Array, v: Array) -> Array:
        """Length of a tangent vector at ``x``."""
        return np.asarray(np.linalg.norm(self._white(np.linalg.cholesky(x), v), axis=(-1, -2)))

    def dist(self, x: Array, y: Array) -> Array:
        lower = np.linalg.cholesky(x)
        values = np.linalg.eigvalsh(self._white(lower, y))
        return np.asarray(np.linalg.norm(np.log(np.maximum(values, np.finfo(np.float64).tiny)), axis=-1))

    def exp(self, x: Array, v: Array) -> Array:
        lower = np.linalg.cholesky(x)
        values, vectors = np.linalg.eigh(self._white(lower, v))
        root = lower @ vectors * np.exp(values / 2)[..., None, :]
        return np.asarray(root @ _t(root))

    def log(self, x: Array, y: Array) -> Array:
        lower, values, vectors = self._spectrum(x, y)
        outer = lower @ vectors
        return _sym(outer * values[..., None, :] @ _t(outer))

    def transp(self, x: Array, y: Array, v: Array) -> Array:
        lower, values, vectors = self._spectrum(x, y)
        outer = lower @ vectors
        seen = _t(vectors) @ self._white(lower, v) @ vectors
        half = np.exp(values / 2)
        return _sym(outer @ (half[..., :, None] * seen * half[..., None, :]) @ _t(outer))

    def log_adjoint(self, x: Array, y: Array, g: Array) -> Array:
        lower, values, vectors = self._spectrum(x, y)
        outer = lower @ vectors
        seen = _t(vectors) @ self._white(lower, g) @ vectors
        # In the eigenbasis the curvature along the geodesic is -(difference of logarithms / 2)^2.
        r = np.abs(values[..., :, None] - values[..., None, :]) / 2
        safe = np.where(r > 1e-8, r, 1.0)
        shrink = np.where(r > 1e-8, safe / np.sinh(safe), 1.0)
        half = np.exp(values / 2)
        return _sym(outer @ (half[..., :, None] * seen * shrink * half[..., None, :]) @ _t(outer))

    def egrad2rgrad(self, x: Array, g: Array) -> Array:
        return x @ _sym(g) @ x

    def origin(self) -> Array:
        return np.eye(self.n)

    def random_tangent(self, x: Array, random_state: np.random.Generator) -> Array:
        a = random_state.standard_normal(self.shape)
        # Off the diagonal each coordinate stands twice in the norm.
        seen = np.triu(a, 1) / math.sqrt(2)
        lower = np.linalg.cholesky(x)
        return _sym(lower @ (seen + seen.T + np.diag(np.diag(a))) @ lower.T)

    def off(self, x: Array) -> float:
        size = float(np.abs(x).max())
        if size == 0 or np.linalg.eigvalsh(_sym(x))[0] <= 0:
            return math.inf
        return float(np.abs(x - x.T).max()) / size
