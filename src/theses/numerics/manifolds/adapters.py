"""Manifolds of geoopt and pymanopt, as manifolds of this package."""

from __future__ import annotations

from typing import Any

import numpy as np

from theses.numerics.manifolds.base import Manifold
from theses.numerics.manifolds.euclidean import Euclidean
from theses.numerics.manifolds.hyperbolic import Hyperbolic
from theses.numerics.manifolds.spd import SPD
from theses.validation import check_integer

__all__ = ["from_geoopt", "from_pymanopt"]


def from_geoopt(manifold: Any, *shape: int) -> Manifold:
    """Manifold of geoopt, if it is a Hadamard manifold.

    Parameters
    ----------
    manifold : geoopt.Lorentz, SymmetricPositiveDefinite or Euclidean
        A manifold object of geoopt.
    *shape : int
        Shape of a point.

    Returns
    -------
    Manifold
        This package's own class, whose points are the same arrays.

    Raises
    ------
    ValueError
        If the manifold is another: it may be positively curved.

    Examples
    --------
    >>> import geoopt
    >>> from_geoopt(geoopt.Lorentz(), 4)
    Hyperbolic(3, curvature=-1)
    """
    name = type(manifold).__name__
    sizes = [check_integer("shape", size, minimum=1) for size in shape]
    if name == "Lorentz":
        return Hyperbolic(sizes[-1] - 1, -1 / float(manifold.k))
    if name == "SymmetricPositiveDefinite" and manifold.default_metric.name == "AIM":
        return SPD(sizes[-1])
    if name == "Euclidean":
        return Euclidean(sizes[-1])
    raise ValueError(
        "manifold must be a Hadamard manifold (Hadamard needed): Lorentz, affine-invariant "
        f"SymmetricPositiveDefinite or Euclidean of geoopt, got {name}"
    )


def from_pymanopt(manifold: Any) -> Manifold:
    """Manifold of pymanopt, if it is a Hadamard manifold.

    Parameters
    ----------
    manifold : pymanopt.manifolds.SymmetricPositiveDefinite or Euclidean
        A manifold object of pymanopt, of single points.

    Returns
    -------
    Manifold
        This package's own class with the same points.

    Raises
    ------
    ValueError
        If the manifold may be positively curved.

    Examples
    --------
    >>> import pymanopt
    >>> from_pymanopt(pymanopt.manifolds.SymmetricPositiveDefinite(3))
    SPD(3)
    """
    name = type(manifold).__name__
    shape = np.shape(manifold.random_point())
    if name == "SymmetricPositiveDefinite" and len(shape) == 2:
        return SPD(shape[0])
    if name == "Euclidean" and len(shape) == 1:
        return Euclidean(shape[0])
    raise ValueError(
        "manifold must be a Hadamard manifold (Hadamard needed): SymmetricPositiveDefinite or Euclidean of "
        f"pymanopt, of single points, got {name} with points of shape {shape}"
    )
