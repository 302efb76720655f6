"""Implicit optimistic optimisation on Hadamard manifolds: online (RIOD) and min-max (RIODA).

Each round solves two proximal problems. That half the squared distance is strongly geodesically convex with
modulus one is the only geometric fact the regret bound needs, so no constant of the curvature enters it, and
constraint sets inside the manifold are allowed.

Manifolds and balls are in :mod:`theses.numerics.manifolds`, losses and games in
:mod:`theses.problems.geodesic`. The files here follow the method: ``inner`` the proximal problems, ``online``
the online learner, ``minmax`` the solver of games, ``robust`` a mean against an adversary, ``peers`` explicit
methods.

References
----------
Roux, Martinez-Rubio, Pokutta: Implicit Riemannian Optimism with Applications to Min-Max Problems, ICML 2025,
arXiv 2501.18381.
"""

from theses.decision.riemannian_optimism.inner import InnerSolution, InnerSolver
from theses.decision.riemannian_optimism.minmax import (
    MinMaxResult,
    duality_gap,
    estimate_smoothness,
    solve_minmax,
)
from theses.decision.riemannian_optimism.online import RIOD, FrechetMeanRun, online_frechet_mean
from theses.decision.riemannian_optimism.peers import r_ogd, r_ogda, rceg, rgda
from theses.decision.riemannian_optimism.robust import RobustKarcherMean

__all__ = [
    "RIOD",
    "FrechetMeanRun",
    "InnerSolution",
    "InnerSolver",
    "MinMaxResult",
    "RobustKarcherMean",
    "duality_gap",
    "estimate_smoothness",
    "online_frechet_mean",
    "r_ogd",
    "r_ogda",
    "rceg",
    "rgda",
    "solve_minmax",
]
