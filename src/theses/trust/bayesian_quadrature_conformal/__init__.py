"""Conformal prediction as Bayesian quadrature: a posterior upper bound of the risk at deployment.

A fitted model has a knob lambda (the threshold of a prediction set, the width of an interval); calibration
losses ``l_1, ..., l_n`` at one lambda are bounded by ``B``. The method bounds the expected loss of the next
case by the random quantity ``L+ = U_1 l_(1) + ... + U_n l_(n) + U_(n+1) B`` with weights from a flat
Dirichlet distribution, and picks the least lambda with ``P(L+ <= alpha | losses) >= beta``.

``L+`` is not the posterior of the risk under some prior: given the spacings, it is the largest expected loss
of all quantile functions through the observed losses, so it bounds the risk whichever of them is true. Its
mean gives conformal risk control and, for misses counted 0 or 1, split conformal prediction.

The files follow the paper: ``losses`` holds what is bounded, ``posterior`` the bound, ``rules`` the
condition on one lambda, ``controller`` and ``table`` the choice of lambda for a model and for a table of
losses, ``adapters`` the scikit-learn estimators, ``baselines`` the bounds that are used otherwise.

References
----------
Snell and Griffiths: Conformal Prediction as Bayesian Quadrature, ICML 2025, arXiv 2502.13228.
"""

from theses.trust.bayesian_quadrature_conformal.adapters import BQClassifier, BQRegressor
from theses.trust.bayesian_quadrature_conformal.baselines import crc_bound, hoeffding_bound, wsr_bound
from theses.trust.bayesian_quadrature_conformal.controller import RiskController
from theses.trust.bayesian_quadrature_conformal.losses import (
    false_negative_rate,
    miscoverage,
    scaled_count,
)
from theses.trust.bayesian_quadrature_conformal.posterior import (
    DirichletDraws,
    RiskPosterior,
    allowed_misses,
)
from theses.trust.bayesian_quadrature_conformal.rules import RiskRule
from theses.trust.bayesian_quadrature_conformal.table import LambdaChoice, select_lambda

__all__ = [
    "BQClassifier",
    "BQRegressor",
    "DirichletDraws",
    "LambdaChoice",
    "RiskController",
    "RiskPosterior",
    "RiskRule",
    "allowed_misses",
    "crc_bound",
    "false_negative_rate",
    "hoeffding_bound",
    "miscoverage",
    "scaled_count",
    "select_lambda",
    "wsr_bound",
]
