"""scikit-learn estimators: intervals and sets around a fitted model."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _num_samples,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from theses.trust.bayesian_quadrature_conformal.posterior import RiskPosterior, allowed_misses
from theses.validation import check_array, check_real

__all__ = ["BQClassifier", "BQRegressor"]


class _Calibrated:
    """What both adapters share: the wrapped model, its checks, and the choice of lambda from scores."""

    estimator: Any
    alpha: float
    beta: float

    def _check_fit(self, X: Any, y: Any) -> None:
        check_real("alpha", self.alpha, minimum=0, maximum=1, include=False)
        check_real("beta", self.beta, minimum=0, maximum=1, include=False)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: y must be an array"
            )
        _check_rows(X)
        if _num_samples(X) != _num_samples(y):
            raise ValueError(
                f"X and y must have the same length, but X has {_num_samples(X)} and y has {_num_samples(y)}"
            )
        check_is_fitted(
            self.estimator,
            msg="estimator must be fitted before it is calibrated, but this %(name)s is not; if a "
            "fitted model was lost by clone, wrap it in sklearn.frozen.FrozenEstimator",
        )
        # The wrapped model checks the content, which may be text or categories; here only names and widths.
        validate_data(self, X, skip_check_array=True)

    def _check_predict(self, X: Any) -> None:
        check_is_fitted(self)
        _check_rows(X)
        validate_data(self, X, reset=False, skip_check_array=True)

    def _calibrate(self, scores: NDArray[np.float64], safe: float) -> None:
        n = len(scores)
        k = allowed_misses(n, self.alpha, self.beta)
        self.feasible_ = k >= 0
        # A case is missed where its score exceeds lambda: all but the k largest scores must not.
        self.lambda_ = float(np.partition(scores, n - 1 - k)[n - 1 - k]) if self.feasible_ else safe
        self.risk_posterior_ = RiskPosterior(scores > self.lambda_)
        if not self.feasible_:
            warnings.warn(
                f"{n} calibration cases are too few to bound the miscoverage by alpha = {self.alpha:g} with "
                f"probability beta = {self.beta:g}; predictions cover everything",
                UserWarning,
                stacklevel=3,
            )

    def __sklearn_tags__(self) -> Any:
        # What may come in, and how good point predictions are, is the wrapped model's doing.
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        inner = get_tags(self.estimator)
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        if tags.regressor_tags is not None and inner.regressor_tags is not None:
            tags.regressor_tags.poor_score = inner.regressor_tags.poor_score
        if tags.classifier_tags is not None and inner.classifier_tags is not None:
            tags.classifier_tags.poor_score = inner.classifier_tags.poor_score
        return tags


class BQRegressor(_Calibrated, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Intervals around a fitted regressor, their miscoverage bounded given this calibration set.

    .. math:: C(x) = [\hat y(x) - \hat\lambda, \hat y(x) + \hat\lambda], \qquad
              P(\text{miscoverage} \le \alpha \mid \text{calibration set}) \ge \beta

    Lambda is an order statistic of the absolute residuals: the one that leaves :func:`allowed_misses` larger.

    Parameters
    ----------
    estimator : object
        Fitted regressor with ``predict``; it is used as it is and never fitted here.
    alpha : float, default=0.1
        Miscoverage, in (0, 1).
    beta : float, default=0.95
        Probability, in (0, 1).

    Attributes
    ----------
    lambda_ : float
        Half-length of the intervals; infinite if the calibration set is too small.
    feasible_ : bool
        Whether it is large enough.
    risk_posterior_ : RiskPosterior
        Of the miscoverage.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    One prediction for each calibration case; O(n) beside.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> regressor = BQRegressor(Ridge().fit(X[:200], y[:200]), alpha=0.1).fit(X[200:], y[200:])
    >>> regressor.feasible_, regressor.predict_interval(X[:3]).shape
    (True, (3, 2))
    >>> round(regressor.risk_posterior_.prob_below(0.1), 3)
    0.956

    References
    ----------
    Snell and Griffiths, ICML 2025; split conformal prediction with the posterior mean replaced by a quantile.
    """

    def __init__(self, estimator: Any, alpha: float = 0.1, beta: float = 0.95) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.beta = beta

    def fit(self, X: Any, y: ArrayLike) -> BQRegressor:
        """Calibrate on cases that the estimator has not seen.

        Parameters
        ----------
        X : array-like or table, shape (n, n_features)
            Calibration cases, in any form that the estimator takes.
        y : array-like, shape (n,)
            Targets.

        Returns
        -------
        BQRegressor
            Itself.

        Raises
        ------
        ValueError
            If data are not as described or the estimator is not fitted.
        """
        self._check_fit(X, y)
        targets = check_array("y", column_or_1d(y, warn=True), ndim=1)
        predictions = check_array("estimator.predict(X)", self.estimator.predict(X), ndim=1)
        self._calibrate(np.abs(targets - predictions), np.inf)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Point predictions of the estimator.

        Parameters
        ----------
        X : array-like or table, shape (n, n_features)
            Cases.

        Returns
        -------
        ndarray, shape (n,)
            Predictions.
        """
        self._check_predict(X)
        return np.asarray(self.estimator.predict(X), dtype=np.float64)

    def predict_interval(self, X: Any) -> NDArray[np.float64]:
        """Intervals.

        Parameters
        ----------
        X : array-like or table, shape (n, n_features)
            Cases.

        Returns
        -------
        ndarray, shape (n, 2)
            Lower and upper ends.
        """
        centre = self.predict(X)
        return np.column_stack([centre - self.lambda_, centre + self.lambda_])


class BQClassifier(_Calibrated, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Sets of classes from a fitted classifier, their miscoverage bounded given this calibration set.

    .. math:: C(x) = \{k : 1 - \hat p_k(x) \le \hat\lambda\}, \qquad
              P(\text{miscoverage} \le \alpha \mid \text{calibration set}) \ge \beta

    Parameters
    ----------
    estimator : object
        Fitted classifier with ``predict_proba`` and ``classes_``; it is used as it is and never fitted here.
    alpha : float, default=0.1
        Miscoverage, in (0, 1).
    beta : float, default=0.95
        Probability, in (0, 1).

    Attributes
    ----------
    lambda_ : float
        Classes with probability ``1 - lambda_`` or more are in the set; 1 if there are too few cases.
    feasible_ : bool
        Whether it is large enough.
    risk_posterior_ : RiskPosterior
        Of the miscoverage.
    classes_ : ndarray, shape (n_classes,)
        Labels of the columns of a set.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    One prediction for each calibration case; O(n) beside.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = BQClassifier(GaussianNB().fit(X[:900], y[:900]), alpha=0.2).fit(X[900:], y[900:])
    >>> classifier.feasible_, classifier.predict_set(X[:3]).shape
    (True, (3, 10))

    References
    ----------
    Snell and Griffiths, ICML 2025; split conformal prediction with the posterior mean replaced by a quantile.
    """

    def __init__(self, estimator: Any, alpha: float = 0.1, beta: float = 0.95) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.beta = beta

    def fit(self, X: Any, y: ArrayLike) -> BQClassifier:
        """Calibrate on cases that the estimator has not seen.

        Parameters
        ----------
        X : array-like or table, shape (n, n_features)
            Calibration cases, in any form that the estimator takes.
        y : array-like, shape (n,)
            Labels, each one of the estimator's classes.

        Returns
        -------
        BQClassifier
            Itself.

        Raises
        ------
        ValueError
            If data are not as described or the estimator is not fitted.
        """
        self._check_fit(X, y)
        labels = column_or_1d(y, warn=True)
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise ValueError("y must be finite: Input y contains NaN or infinity")
        check_classification_targets(labels)
        self.classes_ = np.asarray(self.estimator.classes_)
        known = np.isin(labels, self.classes_)
        if not known.all():
            raise ValueError(
                f"y must hold classes of the estimator, {self.classes_.tolist()}, "
                f"got {labels[~known][0]!r} at index {int(np.argmin(known))}"
            )
        # classes_ of scikit-learn are sorted; those of others need not be.
        order = np.argsort(self.classes_)
        column = order[np.searchsorted(self.classes_, labels, sorter=order)]
        self._calibrate(1 - self._probabilities(X)[np.arange(len(labels)), column], 1.0)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels that the estimator predicts.

        Parameters
        ----------
        X : array-like or table, shape (n, n_features)
            Cases.

        Returns
        -------
        ndarray, shape (n,)
            Labels.
        """
        self._check_predict(X)
        return np.asarray(self.estimator.predict(X))

    def predict_set(self, X: Any) -> NDArray[np.bool_]:
        """Sets of classes.

        Parameters
        ----------
        X : array-like or table, shape (n, n_features)
            Cases.

        Returns
        -------
        ndarray of bool, shape (n, n_classes)
            Whether a class is in the set; columns as in ``classes_``.
        """
        self._check_predict(X)
        members: NDArray[np.bool_] = 1 - self._probabilities(X) <= self.lambda_
        return members

    def _probabilities(self, X: Any) -> NDArray[np.float64]:
        return check_array("estimator.predict_proba(X)", self.estimator.predict_proba(X), ndim=2)


def _check_rows(X: Any) -> None:
    # Lists, and arrays of text, are the wrapped model's own business.
    kind = getattr(getattr(X, "dtype", None), "kind", None)  # torch and pandas have types of their own
    if kind is not None and kind in "biuf" and X.ndim != 2:
        raise ValueError(
            f"X must have 2 dimensions, got shape {X.shape}. Reshape your data using X.reshape(-1, 1) if "
            "it has a single feature or X.reshape(1, -1) if it is a single case."
        )
    if _num_samples(X) == 0:
        raise ValueError("X must have at least 1 row, got 0 (0 sample(s))")
