"""Conjugate models: posterior, nominal law, least radius, draws and divergences (Section 3 of the paper)."""

from theses.decision.bayesian_ambiguity.models.base import ConjugateModel, Law
from theses.decision.bayesian_ambiguity.models.discrete import BetaBernoulli, DirichletCategorical
from theses.decision.bayesian_ambiguity.models.normal import (
    MvNormalKnownCov,
    NormalGamma,
    NormalInverseWishart,
    NormalKnownVariance,
)
from theses.decision.bayesian_ambiguity.models.rates import (
    GammaExponential,
    GammaPoisson,
    GammaWithKnownShape,
)

__all__ = [
    "BetaBernoulli",
    "ConjugateModel",
    "DirichletCategorical",
    "GammaExponential",
    "GammaPoisson",
    "GammaWithKnownShape",
    "Law",
    "MvNormalKnownCov",
    "NormalGamma",
    "NormalInverseWishart",
    "NormalKnownVariance",
]
