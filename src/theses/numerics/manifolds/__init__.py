"""Hadamard manifolds: complete, simply connected, nowhere positively curved.

Any two points are joined by one geodesic, balls are geodesically convex, and half the squared distance to a
point is strongly convex with modulus one; that is all that optimisers on them need. Points are float64
arrays; every operation takes leading batch axes.
"""

from theses.numerics.manifolds.adapters import from_geoopt, from_pymanopt
from theses.numerics.manifolds.ball import GeodesicBall, WholeManifold
from theses.numerics.manifolds.base import Manifold, comparison_factor, frechet_mean
from theses.numerics.manifolds.euclidean import Euclidean
from theses.numerics.manifolds.hyperbolic import Hyperbolic
from theses.numerics.manifolds.product import Product
from theses.numerics.manifolds.spd import SPD

__all__ = [
    "SPD",
    "Euclidean",
    "GeodesicBall",
    "Hyperbolic",
    "Manifold",
    "Product",
    "WholeManifold",
    "comparison_factor",
    "frechet_mean",
    "from_geoopt",
    "from_pymanopt",
]
