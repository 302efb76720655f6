"""Feature selection with prices, as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from theses.decision.pareto_subset_selection.functions import FeatureSelection
from theses.decision.pareto_subset_selection.greedy import (
    generalized_greedy,
    greedy_plus_max,
    one_guess_greedy_plus,
)
from theses.decision.pareto_subset_selection.result import SelectionResult
from theses.decision.pareto_subset_selection.search import eamc, epol, pomc
from theses.validation import check_choice

__all__ = ["SubsetSelector"]

_SEARCHES: dict[str, Callable[..., SelectionResult]] = {"epol": epol, "pomc": pomc, "eamc": eamc}
_GREEDY: dict[str, Callable[..., SelectionResult]] = {
    "greedy": generalized_greedy,
    "greedy_plus_max": greedy_plus_max,
    "one_guess_greedy_plus": one_guess_greedy_plus,
}


class SubsetSelector(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Features that explain a target best within a budget, where features have prices.

    Parameters
    ----------
    budget : float or None, default=None
        Largest sum of prices; None takes half of the price of all features.
    costs : array-like of shape (n_features,) or None, default=None
        Prices, at least 0; None gives each feature the price 1.
    algorithm : {"epol", "pomc", "eamc", "greedy", "greedy_plus_max", "one_guess_greedy_plus"}, default="epol"
        Which algorithm chooses.
    n_evals : int or str, default="20n2"
        Evaluations of an evolutionary search.
    criterion : {"r2"}, default="r2"
        What is maximised, see :class:`FeatureSelection`. A ``y`` of floats holds numbers; integers, strings
        and truth values are classes, coded by one column each.
    random_state : int, RandomState or None, default=None
        Source of randomness.

    Attributes
    ----------
    result_ : SelectionResult
        The selection with its front: what smaller budgets would buy.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    R^2 is not submodular in general, so that no ratio is guaranteed. O(n_samples n_features^2) once, then
    O(k^3) an evaluation with k chosen features.

    References
    ----------
    Improved Theoretically-Grounded Evolutionary Algorithms for Subset Selection with a Linear Cost
    Constraint, ICML 2025, Section 1 (feature selection).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> selector = SubsetSelector(budget=3, n_evals=500, random_state=0).fit(X, y)
    >>> selector.transform(X).shape, round(selector.result_.value, 2)
    ((442, 3), 0.48)
    """

    def __init__(
        self,
        budget: float | None = None,
        costs: Any = None,
        algorithm: str = "epol",
        n_evals: int | str = "20n2",
        criterion: str = "r2",
        random_state: Any = None,
    ) -> None:
        self.budget = budget
        self.costs = costs
        self.algorithm = algorithm
        self.n_evals = n_evals
        self.criterion = criterion
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> SubsetSelector:
        """Choose the features.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Numbers (floats) or classes (all else).

        Returns
        -------
        SubsetSelector
            The fitted estimator.
        """
        try:
            X, y = validate_data(self, X, y, multi_output=True, ensure_min_samples=2, y_numeric=False)
        except (TypeError, ValueError) as error:
            # scikit-learn's messages on shapes say what is wrong, but not with which argument.
            raise type(error)(f"X and y do not fit: {error}") from error
        check_choice("algorithm", self.algorithm, (*_SEARCHES, *_GREEDY))
        if y.ndim == 1 and y.dtype.kind != "f":
            y = (y[:, None] == np.unique(y)).astype(np.float64)
        f = FeatureSelection(X, y, self.criterion)
        costs = np.ones(f.n) if self.costs is None else self.costs
        budget = float(np.sum(costs)) / 2 if self.budget is None else self.budget
        if self.budget is None and f.n == 1:
            budget = float(np.sum(costs))  # half of one feature is none
        if self.algorithm in _SEARCHES:
            search = _SEARCHES[self.algorithm]
            self.result_ = search(f, costs, budget, self.n_evals, random_state=self.random_state)
        else:
            self.result_ = _GREEDY[self.algorithm](f, costs, budget)
        return self

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        mask: NDArray[np.bool_] = self.result_.mask
        return mask

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags
