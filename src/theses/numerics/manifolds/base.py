"""What a manifold offers, and what follows from it alone."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from theses.validation import check_array, check_integer, check_real

__all__ = ["Array", "Manifold", "comparison_factor", "frechet_mean"]

Array = NDArray[Any]


class Manifold(ABC):
    """A Hadamard manifold whose points are arrays of one shape.

    Attributes
    ----------
    shape : tuple of int
        Shape of a point, and of a tangent vector.
    dim : int
        Dimension.
    curvature_lower : float
        Lower bound on the sectional curvature, at most 0.

    Notes
    -----
    ``exp``, ``log``, ``dist``, ``inner``, ``transp``, ``egrad2rgrad`` and ``log_adjoint`` take and return
    arrays with any number of leading batch axes, which are broadcast. They check nothing, for they stand in
    inner loops: :meth:`check_point` is for the door.
    """

    shape: tuple[int, ...]
    dim: int
    curvature_lower: float

    @abstractmethod
    def exp(self, x: Array, v: Array) -> Array:
        """End of the geodesic that leaves ``x`` with velocity ``v``, at time 1."""

    @abstractmethod
    def log(self, x: Array, y: Array) -> Array:
        """Velocity at ``x`` of the geodesic that is at ``y`` at time 1."""

    @abstractmethod
    def inner(self, x: Array, u: Array, v: Array) -> Array:
        """Inner product of tangent vectors at ``x``."""

    @abstractmethod
    def transp(self, x: Array, y: Array, v: Array) -> Array:
        """Tangent vector ``v`` at ``x``, carried to ``y`` in parallel along the geodesic."""

    @abstractmethod
    def egrad2rgrad(self, x: Array, g: Array) -> Array:
        """Riemannian gradient at ``x`` from the partial derivatives ``g`` in the coordinates."""

    @abstractmethod
    def origin(self) -> Array:
        """A base point."""

    @abstractmethod
    def random_tangent(self, x: Array, random_state: np.random.Generator) -> Array:
        """Standard normal tangent vector at ``x``, in an orthonormal basis."""

    @abstractmethod
    def off(self, x: Array) -> float:
        """By how much ``x`` violates the manifold's equations, relative to its size; 0 for a point on it."""

    def log_adjoint(self, x: Array, y: Array, g: Array) -> Array:
        """Gradient in ``y`` of the inner product of ``g`` with ``log(x, y)``; ``g`` is tangent at ``x``."""
        raise NotImplementedError(f"{type(self).__name__} does not know the derivative of its logarithm")

    def dist(self, x: Array, y: Array) -> Array:
        """Length of the geodesic between ``x`` and ``y``."""
        return self.norm(x, self.log(x, y))

    def norm(self, x: Array, v: Array) -> Array:
        """Length of a tangent vector at ``x``."""
        return np.asarray(np.sqrt(np.maximum(self.inner(x, v, v), 0.0)))

    def scaled(self, v: Array, factor: Any) -> Array:
        """Tangent vectors times one number each: ``factor`` has the batch axes of ``v``."""
        factor = np.asarray(factor, dtype=np.float64)
        return np.asarray(v * factor.reshape(factor.shape + (1,) * len(self.shape)))

    def geodesic(self, x: Array, y: Array, t: Any) -> Array:
        """Point that a share ``t`` of the way lies from ``x`` towards ``y``."""
        return self.exp(x, self.scaled(self.log(x, y), t))

    def random(self, random_state: np.random.Generator, scale: float = 1.0) -> Array:
        """Wrapped normal point: the exponential of a normal tangent vector at the origin."""
        x = self.origin()
        return self.exp(x, scale * self.random_tangent(x, random_state))

    def check_point(self, name: str, x: Any, *, batch: bool = False, tolerance: float = 1e-8) -> Array:
        """Point at the public door.

        Parameters
        ----------
        name : str
            Parameter's name, for the error.
        x : array-like, shape ``self.shape``, or (n,) + ``self.shape`` with ``batch``
            What the caller gave.
        batch : bool, default=False
            Whether several points are meant.
        tolerance : float, default=1e-8
            How far off the manifold a point may lie, relative to its size.

        Returns
        -------
        ndarray
            The point or points.

        Raises
        ------
        TypeError
            If it is no array of numbers.
        ValueError
            If shape or content are not those of points on the manifold.
        """
        ndim = len(self.shape) + int(batch)
        array = check_array(name, x, ndim=ndim)
        if array.shape[int(batch) :] != self.shape:
            raise ValueError(f"{name} must have points of shape {self.shape}, got shape {array.shape}")
        for i, point in enumerate(array if batch else array[None]):
            off = self.off(point)
            if not off <= tolerance:
                where = f" at index {i}" if batch else ""
                raise ValueError(
                    f"{name} must lie on {self!r} to within {tolerance:g}, got a point{where} that is "
                    f"{off:.2g} off"
                )
        return array


def comparison_factor(diameter: float, curvature_lower: float) -> float:
    r"""How much the curvature can add to the Hessian of half a squared distance.

    .. math:: \zeta = D \sqrt{|\kappa|} \coth\big(D \sqrt{|\kappa|}\big)

    Parameters
    ----------
    diameter : float
        D, at least 0: how far apart points may be.
    curvature_lower : float
        Lower bound on the sectional curvature, at most 0.

    Returns
    -------
    float
        At least 1; half the squared distance to a point is smooth with this constant within distance D.

    Raises
    ------
    ValueError
        If an argument is not as described.

    Examples
    --------
    >>> comparison_factor(2.0, 0.0), round(comparison_factor(2.0, -1.0), 4)
    (1.0, 2.0746)
    """
    diameter = check_real("diameter", diameter, minimum=0)
    curvature_lower = check_real("curvature_lower", curvature_lower, maximum=0)
    a = diameter * math.sqrt(-curvature_lower)
    return a / math.tanh(a) if a > 1e-8 else 1.0


def frechet_mean(manifold: Manifold, points: Array, weights: Any = None, *, max_iter: int = 200) -> Array:
    r"""Point with the least mean squared distance.

    .. math:: \arg\min_x \sum_i w_i \, d^2(x, a_i)

    Parameters
    ----------
    manifold : Manifold
        Where the points lie.
    points : array-like, shape (n,) + ``manifold.shape``
        Points.
    weights : array-like, shape (n,), or None, default=None
        Nonnegative weights with a positive sum; None weighs all alike.
    max_iter : int, default=200
        Steps of gradient descent at most; each halves its length where it does not descend.

    Returns
    -------
    ndarray, shape ``manifold.shape``
        The mean, on Hadamard manifolds unique.

    Raises
    ------
    ValueError
        If points or weights are not as described.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.numerics.manifolds import SPD
    >>> frechet_mean(SPD(1), np.array([[[1.0]], [[100.0]]])).round(6).tolist()
    [[10.0]]
    """
    points = manifold.check_point("points", points, batch=True)
    max_iter = check_integer("max_iter", max_iter, minimum=1)
    w = np.ones(len(points)) if weights is None else check_array("weights", weights, ndim=1)
    if len(w) != len(points):
        raise ValueError(f"weights must have the same length as points, {len(points)}, got {len(w)}")
    if w.min() < 0 or w.sum() <= 0:
        raise ValueError("weights must be nonnegative with a positive sum")
    w = w / w.sum()
    x = points[int(np.argmax(w))]

    def value(at: Array) -> float:
        return float(w @ manifold.dist(at, points) ** 2)

    current, step = value(x), 1.0
    for _ in range(max_iter):
        direction = np.tensordot(w, manifold.log(x, points), axes=1)
        length = float(manifold.norm(x, direction))
        if length <= 1e-14 * (1 + math.sqrt(current)):
            break
        moved = manifold.exp(x, step * direction)
        after = value(moved)
        while after > current * (1 + 1e-13) and step > 1e-6:
            step /= 2
            moved = manifold.exp(x, step * direction)
            after = value(moved)
        if after > current * (1 + 1e-13):
            break
        x, current = moved, after
    return np.asarray(x)
