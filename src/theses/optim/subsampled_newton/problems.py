"""Objectives whose Hessian is ``A'A + C``: generalised linear models with a ridge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, special

from theses.optim.subsampled_newton.rows import Penalty, RowMatrix, as_rows
from theses.validation import check_array, check_same_length

__all__ = ["LogisticProblem", "Problem", "QuadraticProblem"]


class Problem(Protocol):
    """What :func:`minimize_ssn` asks of an objective F."""

    def value(self, b: NDArray[np.float64]) -> float:
        """F(b)."""

    def gradient(self, b: NDArray[np.float64]) -> NDArray[np.float64]:
        """Gradient of F, over all rows."""

    def hessian(self, b: NDArray[np.float64]) -> tuple[RowMatrix, Penalty]:
        """A and C with Hessian ``A'A + C``."""

    def along(self, b: NDArray[np.float64], p: NDArray[np.float64]) -> Callable[[float], float]:
        """The function of t that is ``F(b + t p)``."""


class _LinearModel:
    """What both problems share: the product Xb, kept for the last b, and the ridge."""

    def __init__(self, X: Any, y: Any, lam: Any) -> None:
        self._rows = as_rows(X, "X")
        self._targets = check_array("y", y, ndim=1)
        n, d = self._rows.shape
        if len(self._targets) != n:
            check_same_length({"X": range(n), "y": self._targets})
        ridge = check_array("lam", lam, ndim=(0, 1))
        if ridge.ndim and len(ridge) != d:
            raise ValueError(
                f"lam must be a number or have length {d}, for X has {d} column(s), got {len(ridge)}"
            )
        if (ridge < 0).any():
            raise ValueError(f"lam must be at least 0, got {ridge.min()}")
        self._ridge = ridge
        self._last: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def _check(self, name: str, b: Any) -> NDArray[np.float64]:
        vector = check_array(name, b, ndim=1)
        if len(vector) != self._rows.shape[1]:
            raise ValueError(f"{name} must have length {self._rows.shape[1]}, got {len(vector)}")
        return vector

    def _product(self, b: NDArray[np.float64]) -> NDArray[np.float64]:
        if self._last is None or not np.array_equal(self._last[0], b):
            self._last = (b.copy(), self._rows.dot(b))
        return self._last[1]

    def _penalty(self) -> Penalty:
        return np.diag(self._ridge) if self._ridge.ndim else float(self._ridge)

    def _half_ridge(self, b: NDArray[np.float64]) -> float:
        return 0.5 * float((self._ridge * b * b).sum())

    def _loss(self, product: NDArray[np.float64]) -> float:
        raise NotImplementedError

    def value(self, b: ArrayLike) -> float:
        """Objective.

        Parameters
        ----------
        b : array-like, shape (d,)
            Coefficients.

        Returns
        -------
        float
            F(b).
        """
        b = self._check("b", b)
        return self._loss(self._product(b)) + self._half_ridge(b)

    def along(self, b: ArrayLike, p: ArrayLike) -> Callable[[float], float]:
        """Objective on a line; after the product Xp, each point takes O(n).

        Parameters
        ----------
        b, p : array-like, shape (d,)
            Point and direction.

        Returns
        -------
        callable
            The function of t that is ``F(b + t p)``.
        """
        b, p = self._check("b", b), self._check("p", p)
        product, slope = self._product(b), self._rows.dot(p)

        def at(t: float) -> float:
            moved, there = b + t * p, product + t * slope
            self._last = (moved, there)
            return self._loss(there) + self._half_ridge(moved)

        return at


class LogisticProblem(_LinearModel):
    r"""Logistic regression: mean loss and a ridge.

    .. math:: F(b) = \frac1n \sum_i \log\big(1 + e^{-y_i x_i^\top b}\big) + \frac12 \sum_j \lambda_j b_j^2

    Parameters
    ----------
    X : array-like or sparse matrix, shape (n, d)
        Rows.
    y : array-like, shape (n,)
        Labels, -1 or 0 against 1.
    lam : float or array-like, shape (d,)
        Ridge :math:`\lambda`, at least 0; an entry for each coefficient admits some that are free.

    Raises
    ------
    ValueError
        If input is not as described.

    Notes
    -----
    A value or gradient takes O(n d); the Hessian's root :math:`A = \operatorname{diag}(\sqrt{w_i/n})\, X` is
    never formed.

    Examples
    --------
    >>> problem = LogisticProblem([[1.0], [2.0]], [1, 0], lam=0.1)
    >>> problem.gradient([0.0]).tolist(), round(problem.value([0.0]), 4)
    ([0.25], 0.6931)

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, numerical experiments with sub-sampled Newton.
    """

    def __init__(self, X: ArrayLike | sparse.csr_array, y: ArrayLike, lam: float | ArrayLike) -> None:
        super().__init__(X, y, lam)
        labels = np.unique(self._targets)
        if not (np.isin(labels, (0, 1)).all() or np.isin(labels, (-1, 1)).all()):
            raise ValueError(f"y must hold labels 0 and 1, or -1 and 1, got {labels[:4].tolist()}")
        self._signs = np.where(self._targets > 0, 1.0, -1.0)

    def _loss(self, product: NDArray[np.float64]) -> float:
        # log(1 + exp(-x)) without overflow: log1p(exp(-|x|)) carries the digits.
        margins = self._signs * product
        return float(np.mean(np.log1p(np.exp(-np.abs(margins))) - np.minimum(margins, 0.0)))

    def gradient(self, b: ArrayLike) -> NDArray[np.float64]:
        """Gradient over all rows.

        Parameters
        ----------
        b : array-like, shape (d,)
            Coefficients.

        Returns
        -------
        ndarray, shape (d,)
            Gradient.
        """
        b = self._check("b", b)
        residuals = -self._signs * special.expit(-self._signs * self._product(b)) / len(self._signs)
        return self._rows.left(residuals) + self._ridge * b

    def hessian(self, b: ArrayLike) -> tuple[RowMatrix, Penalty]:
        """Root of the Hessian's data part, and the ridge.

        Parameters
        ----------
        b : array-like, shape (d,)
            Coefficients.

        Returns
        -------
        A : RowMatrix, shape (n, d)
            Rows, scaled by the square root of their curvature.
        C : float or ndarray, shape (d, d)
            Ridge.
        """
        probabilities = special.expit(self._product(self._check("b", b)))
        weights = probabilities * (1 - probabilities) / len(self._signs)
        return self._rows.scaled(np.sqrt(weights)), self._penalty()


class QuadraticProblem(_LinearModel):
    r"""Ridge regression: half a sum of squares and a ridge.

    .. math:: F(b) = \frac12 \lVert X b - y \rVert^2 + \frac12 \sum_j \lambda_j b_j^2

    Parameters
    ----------
    X : array-like or sparse matrix, shape (n, d)
        Rows.
    y : array-like, shape (n,)
        Targets.
    lam : float or array-like, shape (d,)
        Ridge, at least 0.

    Raises
    ------
    ValueError
        If input is not as described.

    Examples
    --------
    >>> problem = QuadraticProblem([[1.0], [2.0]], [1.0, 2.0], lam=0.0)
    >>> problem.value([0.0]), problem.gradient([1.0]).tolist()
    (2.5, [0.0])

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, Theorem 4.3 for a constant Hessian.
    """

    def __init__(self, X: ArrayLike | sparse.csr_array, y: ArrayLike, lam: float | ArrayLike) -> None:
        super().__init__(X, y, lam)

    def _loss(self, product: NDArray[np.float64]) -> float:
        residuals = product - self._targets
        return 0.5 * float(residuals @ residuals)

    def gradient(self, b: ArrayLike) -> NDArray[np.float64]:
        """Gradient over all rows.

        Parameters
        ----------
        b : array-like, shape (d,)
            Coefficients.

        Returns
        -------
        ndarray, shape (d,)
            Gradient.
        """
        b = self._check("b", b)
        return self._rows.left(self._product(b) - self._targets) + self._ridge * b

    def hessian(self, b: ArrayLike) -> tuple[RowMatrix, Penalty]:
        """The rows and the ridge, the same at every b.

        Parameters
        ----------
        b : array-like, shape (d,)
            Coefficients.

        Returns
        -------
        A : RowMatrix, shape (n, d)
            Rows.
        C : float or ndarray, shape (d, d)
            Ridge.
        """
        self._check("b", b)
        return self._rows, self._penalty()
