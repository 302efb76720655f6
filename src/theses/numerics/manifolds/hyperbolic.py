"""Hyperbolic space as one sheet of a hyperboloid."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from theses.numerics.manifolds.base import Array, Manifold
from theses.validation import check_integer, check_real

__all__ = ["Hyperbolic"]

# Coordinates grow like the hyperbolic cosine of the radius: from here on float64 has lost the distances.
_FAR = 12.0


def _lorentz(u: Array, v: Array) -> Array:
    return np.asarray((u[..., 1:] * v[..., 1:]).sum(axis=-1) - u[..., 0] * v[..., 0])


def _sinhc(r: Array) -> Array:
    """sinh(r) / r, 1 at 0."""
    safe = np.where(r > 1e-8, r, 1.0)
    return np.where(r > 1e-8, np.sinh(safe) / safe, 1.0)


class Hyperbolic(Manifold):
    r"""Hyperbolic space of d dimensions in the Lorentz model.

    .. math:: -x_0^2 + x_1^2 + \ldots + x_d^2 = -\frac{1}{|\kappa|}, \qquad x_0 > 0

    Parameters
    ----------
    d : int
        Dimension.
    curvature : float, default=-1.0
        Sectional curvature, negative.

    Notes
    -----
    Float64 keeps distances up to a radius of about 10 / sqrt(abs(curvature)) from the apex; beyond 12 there
    is a warning. Distances are taken from the chord, :math:`d = 2 \operatorname{asinh}(\sqrt{|\kappa|}
    \lVert x - y \rVert_L / 2) / \sqrt{|\kappa|}`, for the inverse hyperbolic cosine of the inner product
    loses half of the digits of small ones.

    Examples
    --------
    >>> import numpy as np
    >>> space = Hyperbolic(2)
    >>> x = space.exp(space.origin(), np.array([0.0, 3.0, 0.0]))
    >>> round(float(space.dist(space.origin(), x)), 12)
    3.0
    """

    def __init__(self, d: int, curvature: float = -1.0) -> None:
        self.dim = check_integer("d", d, minimum=1)
        self.curvature_lower = check_real("curvature", curvature, maximum=0, include=False)
        self.scale = math.sqrt(-self.curvature_lower)
        self.shape = (self.dim + 1,)

    def __repr__(self) -> str:
        return f"Hyperbolic({self.dim}, curvature={self.curvature_lower:g})"

    def lift(self, spatial: Array) -> Array:
        """Point of the hyperboloid with the given coordinates 1 to d."""
        first = np.sqrt(1 / self.scale**2 + (spatial**2).sum(axis=-1, keepdims=True))
        return np.concatenate([first, spatial], axis=-1)

    def inner(self, x: Array, u: Array, v: Array) -> Array:
        return _lorentz(u, v)

    def dist(self, x: Array, y: Array) -> Array:
        gap = y - x
        chord = np.sqrt(np.maximum(_lorentz(gap, gap), 0.0))
        return np.asarray(2 * np.arcsinh(self.scale * chord / 2) / self.scale)

    def exp(self, x: Array, v: Array) -> Array:
        r = self.scale * self.norm(x, v)[..., None]
        moved = np.cosh(r) * x + _sinhc(r) * v
        # The first coordinate follows from the others, so that rounding does not leave the hyperboloid.
        return self.lift(moved[..., 1:])

    def log(self, x: Array, y: Array) -> Array:
        gap = y - x
        square = np.maximum(_lorentz(gap, gap), 0.0)[..., None]
        # y - cosh(s d) x without the difference of two large numbers: cosh(s d) - 1 is s^2 chord^2 / 2.
        direction = gap - self.scale**2 * square / 2 * x
        r = 2 * np.arcsinh(self.scale * np.sqrt(square) / 2)
        return np.asarray(direction / _sinhc(r))

    def transp(self, x: Array, y: Array, v: Array) -> Array:
        factor = self.scale**2 * _lorentz(y, v) / (1 - self.scale**2 * _lorentz(x, y))
        return np.asarray(v + factor[..., None] * (x + y))

    def log_adjoint(self, x: Array, y: Array, g: Array) -> Array:
        direction = self.log(x, y)
        r = self.norm(x, direction)
        square = np.where(r > 1e-12, r, 1.0) ** 2
        along = (_lorentz(g, direction) / square)[..., None] * direction
        # The logarithm shrinks what is orthogonal to the geodesic, as Jacobi's fields tell.
        shrunk = along + (g - along) / _sinhc(self.scale * r)[..., None]
        return self.transp(x, y, np.where((r > 1e-12)[..., None], shrunk, g))

    def egrad2rgrad(self, x: Array, g: Array) -> Array:
        flipped = np.concatenate([-g[..., :1], g[..., 1:]], axis=-1)
        return self.tangent(x, flipped)

    def tangent(self, x: Array, u: Array) -> Array:
        """Orthogonal projection of any vector to the tangent space at ``x``."""
        return u + self.scale**2 * _lorentz(x, u)[..., None] * x

    def origin(self) -> Array:
        return self.lift(np.zeros(self.dim))

    def random_tangent(self, x: Array, random_state: np.random.Generator) -> Array:
        at_apex = np.concatenate([[0.0], random_state.standard_normal(self.dim)])
        return self.transp(self.origin(), x, at_apex)

    def off(self, x: Array) -> float:
        if x[0] <= 0:
            return math.inf
        return abs(self.scale**2 * float(_lorentz(x, x)) + 1) / (self.scale * float(x[0])) ** 2

    def check_point(self, name: str, x: Any, *, batch: bool = False, tolerance: float = 1e-8) -> Array:
        """Point at the public door, see :meth:`Manifold.check_point`; warns where float64 gives out."""
        array = super().check_point(name, x, batch=batch, tolerance=tolerance)
        far = float(np.arccosh(np.maximum(self.scale * array[..., 0], 1.0)).max())
        if far > _FAR:
            warnings.warn(
                f"{name} lies {far:.3g} / sqrt(|curvature|) from the apex: beyond {_FAR:g} float64 does not "
                "hold distances in the Lorentz model",
                stacklevel=2,
            )
        return array
