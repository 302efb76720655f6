"""The debiased sketched inverse, and its average over workers."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator

from theses.optim.subsampled_newton.leverage import RandomState
from theses.optim.subsampled_newton.rows import Penalty, RowMatrix, as_penalty, as_rows, factor
from theses.optim.subsampled_newton.samplers import DEBIAS, Sketch
from theses.validation import as_generator, check_choice, check_integer

__all__ = ["Sampler", "averaged_inverse", "debiased_inverse", "solver"]


class Sampler(Protocol):
    """What draws sketches: :class:`RowSampler`, :class:`SRHT`, :class:`LESS`, :class:`GaussianSketch`."""

    m: int

    @property
    def d_eff_(self) -> float:
        """Effective dimension."""

    @property
    def rho_max_(self) -> float:
        """Largest ratio of a row's share of leverage to its probability."""

    def fit(self, A: Any, C: Any = 0.0, random_state: RandomState = None) -> Any:
        """Take the matrix."""

    def sample(self, random_state: RandomState = None, debias: Any = "none") -> Sketch:
        """Draw a sketch."""

    def reweight(self, sketch: Sketch, debias: Any) -> Sketch:
        """The same draw with other weights."""

    def moved(self, A: Any) -> Any:
        """The same sampler over other rows."""


def debiased_inverse(
    A: ArrayLike | sparse.csr_array | RowMatrix, C: float | ArrayLike, sketch: Sketch
) -> LinearOperator:
    r"""Inverse of the sketched matrix, nearly unbiased if the sketch's weights are debiased.

    .. math:: Q = \big((SA)^\top SA + C\big)^{-1}

    Parameters
    ----------
    A : array-like or sparse matrix, shape (n, d)
        The matrix that was sketched; only its width is looked at.
    C : float or array-like, shape (d, d)
        Ridge, or a symmetric positive semi-definite matrix.
    sketch : Sketch
        From a sampler's ``sample``.

    Returns
    -------
    scipy.sparse.linalg.LinearOperator, shape (d, d)
        Q; its products with vectors and matrices are solves with one factorisation.

    Raises
    ------
    ValueError
        If the sketch is of another width.
    numpy.linalg.LinAlgError
        If the sketched matrix is singular, as with C = 0 and fewer rows than columns.

    Notes
    -----
    O(m d^2 + d^3) once, O(d^2) a product. For m < d and a scalar C > 0, Woodbury's identity factors an m x m
    matrix instead: O(m^2 d + m^3).

    Examples
    --------
    >>> from theses.optim.subsampled_newton import RowSampler
    >>> A = np.random.default_rng(0).standard_t(3, size=(2000, 10))
    >>> sampler = RowSampler("leverage", m=200).fit(A)
    >>> Q = debiased_inverse(A, 0.0, sampler.sample(0, debias="fine"))
    >>> bool(abs(np.trace(Q @ (A.T @ A)) / 10 - 1) < 0.1)
    True

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, Proposition 3.2.
    """
    d = as_rows(A).shape[1]
    penalty = as_penalty(C, d)
    if sketch.SA.shape[1] != d:
        raise ValueError(f"sketch must have {d} column(s) as A, got {sketch.SA.shape[1]}")
    solve = solver(sketch.SA, penalty)
    return LinearOperator((d, d), matvec=solve, matmat=solve, rmatvec=solve, dtype=np.float64)


def solver(SA: NDArray[np.float64], penalty: Penalty) -> Any:
    """Function that applies the inverse of ``SA'SA + C``.

    Parameters
    ----------
    SA : ndarray, shape (m, d)
        Sketched rows.
    penalty : float or ndarray, shape (d, d)
        C, checked.

    Returns
    -------
    callable
        From an array of shape (d,) or (d, k) to one of the same shape.

    Examples
    --------
    >>> solver(np.array([[1.0, 0.0]]), 1.0)(np.array([2.0, 3.0])).round(6).tolist()
    [1.0, 3.0]
    """
    m, d = SA.shape
    if m < d and not isinstance(penalty, np.ndarray) and penalty > 0:
        lower = factor(SA @ SA.T, penalty, "C must be larger")

        def woodbury(right: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.asarray((right - SA.T @ linalg.cho_solve((lower, True), SA @ right)) / penalty)

        return woodbury
    if m < d and not np.any(penalty):
        raise np.linalg.LinAlgError(
            f"m must be at least the number of columns where C = 0: "
            f"the sketch is rank-deficient, {m} row(s) for {d}"
        )
    lower = factor(SA.T @ SA, penalty, "the sketch is rank-deficient; m must be larger, or C positive")

    def cholesky(right: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(linalg.cho_solve((lower, True), right))

    return cholesky


def averaged_inverse(
    A: ArrayLike | sparse.csr_array,
    C: float | ArrayLike,
    sampler: Sampler,
    q: int,
    n_jobs: int | None = None,
    *,
    debias: Literal["none", "scalar", "fine"] = "fine",
    random_state: RandomState = None,
) -> LinearOperator:
    r"""Average of q independent sketched inverses, as q workers would give it.

    .. math:: \frac{1}{q} \sum_{k=1}^{q} \big((S_k A)^\top S_k A + C\big)^{-1}

    The variance falls with q; the bias does not, which is what debiasing is for.

    Parameters
    ----------
    A : array-like or sparse matrix, shape (n, d)
        Rows.
    C : float or array-like, shape (d, d)
        Ridge, or a symmetric positive semi-definite matrix.
    sampler : RowSampler, SRHT, LESS or GaussianSketch
        Is fitted here.
    q : int
        Workers.
    n_jobs : int or None, default=None
        Threads, as joblib counts them.
    debias : {"none", "scalar", "fine"}, default="fine"
        Weights.
    random_state : int, numpy Generator or RandomState, or None, default=None
        Source of all draws; the answer does not depend on ``n_jobs``.

    Returns
    -------
    scipy.sparse.linalg.LinearOperator, shape (d, d)
        The average; a product is q solves.

    Raises
    ------
    ValueError
        If input is not as described.

    Notes
    -----
    The sampler's fit, then q times O(m d^2 + d^3).

    Examples
    --------
    >>> from theses.optim.subsampled_newton import RowSampler
    >>> A = np.random.default_rng(0).standard_t(3, size=(2000, 10))
    >>> Q = averaged_inverse(A, 0.0, RowSampler("leverage", m=100), q=50, random_state=0)
    >>> bool(abs(np.trace(Q @ (A.T @ A)) / 10 - 1) < 0.05)
    True

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, introduction, on distributed averaging.
    """
    check_choice("debias", debias, DEBIAS)
    q = check_integer("q", q, minimum=1)
    rng = as_generator(random_state)
    rows = as_rows(A)
    d = rows.shape[1]
    penalty = as_penalty(C, d)
    sampler.fit(rows, penalty, rng)
    if debias != "none":
        _ = sampler.d_eff_
    streams = rng.spawn(q)

    def worker(stream: np.random.Generator) -> Any:
        return solver(sampler.sample(stream, debias=debias).SA, penalty)

    solves = Parallel(n_jobs=n_jobs, prefer="threads")(delayed(worker)(stream) for stream in streams)

    def mean(right: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(sum(solve(right) for solve in solves) / q)

    return LinearOperator((d, d), matvec=mean, matmat=mean, rmatvec=mean, dtype=np.float64)
