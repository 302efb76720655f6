"""DRO-BAS: robust decisions over Bayesian ambiguity sets.

Few observations, a conjugate model for them, a convex cost: the decision that does best under the worst law
within reach of the posterior.

============== =================================================================================
``models``     conjugate models: posterior, nominal law, the least radius G (Section 3)
``costs``      Newsvendor, portfolio, costs of one's own
``dual``       the Kullback-Leibler ball's dual and the programmes that minimise it (Section 4)
``robust``     :class:`DROBAS`, the method
``peers``      BRO, Bayesian DRO, empirical and Wasserstein DRO, :func:`frontier`
``portfolio``  :class:`RobustPortfolio`, an estimator
============== =================================================================================

A decision of one dimension needs no solver; portfolios and constraints need the extra ``decision``.
"""

from theses.decision.bayesian_ambiguity.costs import Cost, Custom, Newsvendor, Portfolio
from theses.decision.bayesian_ambiguity.dual import WorstCase, worst_case_expectation
from theses.decision.bayesian_ambiguity.models import (
    BetaBernoulli,
    ConjugateModel,
    DirichletCategorical,
    GammaExponential,
    GammaPoisson,
    GammaWithKnownShape,
    Law,
    MvNormalKnownCov,
    NormalGamma,
    NormalInverseWishart,
    NormalKnownVariance,
)
from theses.decision.bayesian_ambiguity.peers import (
    BDRO,
    BRO,
    EmpiricalKLDRO,
    WassersteinDRO,
    frontier,
    out_of_sample_costs,
)
from theses.decision.bayesian_ambiguity.portfolio import RobustPortfolio
from theses.decision.bayesian_ambiguity.robust import DROBAS, Decision, InfinitePopulationWarning

__all__ = [
    "BDRO",
    "BRO",
    "DROBAS",
    "BetaBernoulli",
    "ConjugateModel",
    "Cost",
    "Custom",
    "Decision",
    "DirichletCategorical",
    "EmpiricalKLDRO",
    "GammaExponential",
    "GammaPoisson",
    "GammaWithKnownShape",
    "InfinitePopulationWarning",
    "Law",
    "MvNormalKnownCov",
    "Newsvendor",
    "NormalGamma",
    "NormalInverseWishart",
    "NormalKnownVariance",
    "Portfolio",
    "RobustPortfolio",
    "WassersteinDRO",
    "WorstCase",
    "frontier",
    "out_of_sample_costs",
    "worst_case_expectation",
]
