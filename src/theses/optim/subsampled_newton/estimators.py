"""scikit-learn estimators: logistic and ridge regression by sub-sampled Newton."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, special
from scipy.optimize import OptimizeResult
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from theses.optim.subsampled_newton.leverage import RandomState, sketched_scores
from theses.optim.subsampled_newton.newton import minimize_ssn
from theses.optim.subsampled_newton.problems import LogisticProblem, QuadraticProblem
from theses.optim.subsampled_newton.samplers import RowSampler
from theses.validation import as_generator, check_integer, check_real

__all__ = ["SubsampledNewtonClassifier", "SubsampledNewtonRegressor"]

_ROWS_PER_DIMENSION = 8  # of the effective dimension, where m is "auto": a local rate of 1/8
_LEAST_ROWS = 100


class _SubsampledNewton(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: the design with its intercept, the choice of m, the run."""

    fit_intercept: bool
    scheme: str
    m: int | str
    debias: Any
    step: Any
    refresh: int
    max_iter: int
    tol: float
    random_state: RandomState

    def _validated(self, X: Any, y: Any, **options: Any) -> tuple[Any, Any]:
        _check_rank(X)
        if y is not None and _num_samples(X) != _num_samples(y):
            raise ValueError(
                f"X and y must have the same length, but X has {_num_samples(X)} and y has {_num_samples(y)}"
            )
        try:
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, **options)
        except ValueError as error:
            raise _naming(error) from None
        return X, y

    def _design(self, X: Any) -> Any:
        if not self.fit_intercept:
            return X
        ones = np.ones((X.shape[0], 1))
        stack: Any = sparse.hstack if sparse.issparse(X) else np.hstack
        return stack([X, ones])

    def _ridge(self, d: int, lam: float) -> NDArray[np.float64] | float:
        return np.append(np.full(d, lam), 0.0) if self.fit_intercept else lam

    def _minimise(
        self, problem: LogisticProblem | QuadraticProblem, d: int, rng: np.random.Generator
    ) -> OptimizeResult:
        start = np.zeros(d + int(self.fit_intercept))
        A, C = problem.hessian(start)
        n = A.shape[0]
        if self.m == "auto":
            # Of the logistic Hessians the one at 0 is the largest, so that d_eff only falls from here on.
            scores = sketched_scores(A, C, 0.5, sketch="count", sketch_size=None, rng=rng)
            m = max(math.ceil(_ROWS_PER_DIMENSION * float(scores.sum())), _LEAST_ROWS)
        elif isinstance(self.m, str):
            raise ValueError(f"m must be 'auto' or an integer, got {self.m!r}")
        else:
            m = check_integer("m", self.m, minimum=1)
        sampled = 2 * m <= n if self.m == "auto" else m < n
        self.m_ = m if sampled else n
        sampler = RowSampler(self.scheme, m) if sampled else None
        result = minimize_ssn(
            problem,
            start,
            sampler,
            self.debias,
            self.step,
            self.max_iter,
            self.tol,
            refresh=self.refresh,
            random_state=rng,
        )
        if not result.success:
            warnings.warn(
                f"{result.message}, the gradient's norm is {np.linalg.norm(result.jac):.3g}"
                "; raise max_iter or m",
                ConvergenceWarning,
                stacklevel=3,
            )
        return result

    def _predictors(self, X: Any) -> Any:
        check_is_fitted(self)
        _check_rank(X)
        try:
            return validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
        except ValueError as error:
            raise _naming(error) from None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class SubsampledNewtonClassifier(ClassifierMixin, _SubsampledNewton):  # type: ignore[misc]
    r"""Logistic regression with a ridge, fitted by sub-sampled Newton.

    .. math:: \min_{w, b}\; \tfrac12 \lVert w \rVert^2 + C \sum_i \log\big(1 + e^{-y_i (x_i^\top w + b)}\big)

    The objective is that of :class:`sklearn.linear_model.LogisticRegression`; several classes are each held
    against the rest.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the ridge, positive.
    fit_intercept : bool, default=True
        Whether there is an intercept b, which the ridge leaves free.
    scheme : str, default="approx_ridge_leverage"
        Probabilities of the rows, see :class:`RowSampler`.
    m : int or "auto", default="auto"
        Rows of each sketched Hessian; "auto" takes 8 times the effective dimension at the start, and all rows
        (exact Newton) where that is more than half of them. An m of n or more takes all rows, too.
    debias : {"none", "scalar", "fine"}, default="fine"
        Weights.
    step : {"armijo", "theory"} or float, default="armijo"
        Step size, see :func:`minimize_ssn`.
    refresh : int, default=1
        Scores are computed anew every so many steps.
    max_iter : int, default=100
        Steps at most.
    tol : float, default=1e-8
        Bound on the norm of the mean loss's gradient, relative to that at the start where it is above 1.
    random_state : int, numpy Generator or RandomState, or None, default=None
        Source of the sketches.

    Attributes
    ----------
    coef_ : ndarray, shape (1, n_features) or (n_classes, n_features)
        Coefficients.
    intercept_ : ndarray, shape (1,) or (n_classes,)
        Intercepts.
    classes_ : ndarray, shape (n_classes,)
        Labels.
    n_iter_ : ndarray of int, shape (1,) or (n_classes,)
        Steps.
    m_ : int
        Rows that the last Hessian was made from; the number of cases where none were left out.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    O(n d) passes and O(m d^2 + d^3) a step. Pays where n d^2 is far above d^3 and the cost of the scores.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = SubsampledNewtonClassifier(m=300, random_state=0).fit(scale(X), y)
    >>> model.score(scale(X), y) > 0.98, int(model.n_iter_[0]) < 40
    (True, True)

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, Section 4.
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        fit_intercept: bool = True,
        scheme: str = "approx_ridge_leverage",
        m: int | str = "auto",
        debias: str = "fine",
        step: str | float = "armijo",
        refresh: int = 1,
        max_iter: int = 100,
        tol: float = 1e-8,
        random_state: RandomState = None,
    ) -> None:
        self.C = C
        self.fit_intercept = fit_intercept
        self.scheme = scheme
        self.m = m
        self.debias = debias
        self.step = step
        self.refresh = refresh
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike) -> SubsampledNewtonClassifier:
        """Fit the coefficients.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Cases.
        y : array-like, shape (n,)
            Labels of at least two classes.

        Returns
        -------
        SubsampledNewtonClassifier
            Itself.

        Raises
        ------
        ValueError
            If data or parameters are not as described.
        """
        C = check_real("C", self.C, minimum=0, include=False)
        X, y = self._validated(X, y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least 2 classes, got 1 class: {self.classes_[0]!r}")
        design = self._design(X)
        n, d = X.shape
        rng = as_generator(self.random_state)
        positive = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        results = [
            self._minimise(
                LogisticProblem(design, (codes == k).astype(np.float64), self._ridge(d, 1 / (C * n))), d, rng
            )
            for k in positive
        ]
        self.coef_ = np.array([result.x[:d] for result in results])
        self.intercept_ = np.array([result.x[d] if self.fit_intercept else 0.0 for result in results])
        self.n_iter_ = np.array([result.nit for result in results], dtype=np.int32)
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Signed distance from the decision's boundary.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Cases.

        Returns
        -------
        ndarray, shape (n,) or (n, n_classes)
            Positive for the second of two classes.
        """
        X = self._predictors(X)
        scores: NDArray[np.float64] = np.asarray(X @ self.coef_.T + self.intercept_)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Most probable class.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Cases.

        Returns
        -------
        ndarray, shape (n,)
            Labels.
        """
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Cases.

        Returns
        -------
        ndarray, shape (n, n_classes)
            Rows sum to 1; with several classes, one-against-rest probabilities are scaled to do so.
        """
        scores: NDArray[np.float64] = special.expit(self.decision_function(X))
        if scores.ndim == 1:
            return np.column_stack([1 - scores, scores])
        totals = scores.sum(axis=1, keepdims=True)
        # All may underflow where no class wants a case.
        return np.asarray(np.where(totals > 0, scores / np.maximum(totals, 1e-300), 1 / scores.shape[1]))


class SubsampledNewtonRegressor(RegressorMixin, _SubsampledNewton):  # type: ignore[misc]
    r"""Ridge regression, fitted by sub-sampled Newton.

    .. math:: \min_{w, b}\; \lVert y - X w - b \rVert^2 + \alpha \lVert w \rVert^2

    The objective is that of :class:`sklearn.linear_model.Ridge`; each step refines the solution by a sketched
    Hessian of its own.

    Parameters
    ----------
    alpha : float, default=1.0
        Ridge, at least 0.
    fit_intercept : bool, default=True
        Whether there is an intercept b, which the ridge leaves free.
    scheme : str, default="approx_ridge_leverage"
        Probabilities of the rows, see :class:`RowSampler`.
    m : int or "auto", default="auto"
        Rows of each sketched Hessian, as for :class:`SubsampledNewtonClassifier`.
    debias : {"none", "scalar", "fine"}, default="fine"
        Weights.
    step : {"armijo", "theory"} or float, default="armijo"
        Step size, see :func:`minimize_ssn`.
    refresh : int, default=100
        Scores are computed anew every so many steps; the Hessian is constant.
    max_iter : int, default=100
        Steps at most.
    tol : float, default=1e-8
        Bound on the gradient's norm, relative to that at the start where it is above 1.
    random_state : int, numpy Generator or RandomState, or None, default=None
        Source of the sketches.

    Attributes
    ----------
    coef_ : ndarray, shape (n_features,)
        Coefficients.
    intercept_ : float
        Intercept.
    n_iter_ : int
        Steps.
    m_ : int
        Rows that the Hessians were made from; the number of cases where none were left out.
    n_features_in_ : int
        Number of features.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 4))
    >>> y = X @ [1.0, 2.0, 3.0, 4.0] + 1 + 0.1 * rng.normal(size=3000)
    >>> model = SubsampledNewtonRegressor(random_state=0).fit(X, y)
    >>> model.coef_.round(1).tolist(), model.m_ < 3000
    ([1.0, 2.0, 3.0, 4.0], True)

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, Section 4, for a constant Hessian.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        scheme: str = "approx_ridge_leverage",
        m: int | str = "auto",
        debias: str = "fine",
        step: str | float = "armijo",
        refresh: int = 100,
        max_iter: int = 100,
        tol: float = 1e-8,
        random_state: RandomState = None,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.scheme = scheme
        self.m = m
        self.debias = debias
        self.step = step
        self.refresh = refresh
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike) -> SubsampledNewtonRegressor:
        """Fit the coefficients.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Cases.
        y : array-like, shape (n,)
            Targets.

        Returns
        -------
        SubsampledNewtonRegressor
            Itself.

        Raises
        ------
        ValueError
            If data or parameters are not as described.
        numpy.linalg.LinAlgError
            If columns are linearly dependent and alpha = 0.
        """
        alpha = check_real("alpha", self.alpha, minimum=0)
        X, y = self._validated(X, y, y_numeric=True)
        d = X.shape[1]
        problem = QuadraticProblem(self._design(X), np.asarray(y, dtype=np.float64), self._ridge(d, alpha))
        result = self._minimise(problem, d, as_generator(self.random_state))
        self.coef_ = result.x[:d]
        self.intercept_ = float(result.x[d]) if self.fit_intercept else 0.0
        self.n_iter_ = int(result.nit)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predictions.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Cases.

        Returns
        -------
        ndarray, shape (n,)
            Predictions.
        """
        return np.asarray(self._predictors(X) @ self.coef_ + self.intercept_)


def _check_rank(X: Any) -> None:
    if isinstance(X, np.ndarray) and X.ndim not in (0, 2):
        raise ValueError(
            f"X must have 2 dimensions, got shape {X.shape}. Reshape your data using X.reshape(-1, 1) if it "
            "has a single feature or X.reshape(1, -1) if it is a single case."
        )


def _naming(error: ValueError) -> ValueError:
    text = str(error)
    return error if re.search(r"\b[Xy]\b", text) else ValueError(f"X is not as expected: {text}")
