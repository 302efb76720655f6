r"""POMC and EPOL: monotone submodular selection under a linear cost constraint by Pareto optimisation.

:math:`\max f(X)` subject to :math:`c(X) = \sum_{v \in X} c_v \le B`. The searches keep an archive of sets of
which none is both cheaper and better than another, mutate them, and so reproduce the greedy algorithm by
ratio, and more with time. POMC reaches 1/2 of the optimum, EPOL, which guesses one item of it, 0.6174.

========================= ================================================================
``functions``             set functions: coverage, influence, facility location, R^2
``checks``                :func:`check_submodular`
``search``                :func:`pomc`, :func:`epol`, :func:`eamc`
``greedy``                greedy algorithms, exact optimum, bound on the optimum
``result``                :class:`SelectionResult` with its front and trace
``selector``              :class:`SubsetSelector` for scikit-learn
========================= ================================================================
"""

from theses.decision.pareto_subset_selection.checks import SubmodularityReport, check_submodular
from theses.decision.pareto_subset_selection.functions import (
    Evaluator,
    FacilityLocation,
    FeatureSelection,
    InfluenceMaximization,
    MaxCoverage,
    SetFunction,
)
from theses.decision.pareto_subset_selection.greedy import (
    exact_coverage,
    generalized_greedy,
    greedy_plus_max,
    one_guess_greedy_plus,
    optimum_bound,
)
from theses.decision.pareto_subset_selection.result import Front, SelectionResult, Trace
from theses.decision.pareto_subset_selection.search import eamc, epol, pomc
from theses.decision.pareto_subset_selection.selector import SubsetSelector
from theses.decision.pareto_subset_selection.steps import SearchState

__all__ = [
    "Evaluator",
    "FacilityLocation",
    "FeatureSelection",
    "Front",
    "InfluenceMaximization",
    "MaxCoverage",
    "SearchState",
    "SelectionResult",
    "SetFunction",
    "SubmodularityReport",
    "SubsetSelector",
    "Trace",
    "check_submodular",
    "eamc",
    "epol",
    "exact_coverage",
    "generalized_greedy",
    "greedy_plus_max",
    "one_guess_greedy_plus",
    "optimum_bound",
    "pomc",
]
