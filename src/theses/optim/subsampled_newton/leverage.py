"""Leverage scores given C, exact and approximate, and the effective dimension."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse

from theses.optim.subsampled_newton.rows import Penalty, RowMatrix, as_penalty, as_rows, factor
from theses.validation import as_generator, check_choice, check_integer, check_real

__all__ = ["RandomState", "effective_dimension", "exact_scores", "leverage_scores", "sketched_scores"]

RandomState = int | np.random.Generator | np.random.RandomState | None

SINGULAR = "A must have full column rank where C does not make up for it"
_DIRECTIONS = 10.0  # Gaussian directions of the projection, times eps^2


def leverage_scores(
    A: ArrayLike | sparse.csr_array | RowMatrix,
    C: float | ArrayLike = 0.0,
    method: Literal["exact", "approx"] = "exact",
    eps: float = 0.5,
    *,
    sketch: Literal["count", "row_norm"] = "count",
    sketch_size: int | None = None,
    random_state: RandomState = None,
) -> NDArray[np.float64]:
    r"""Leverage score of each row given C.

    .. math:: \ell_i = a_i^\top (A^\top A + C)^{-1} a_i

    Parameters
    ----------
    A : array-like or sparse matrix, shape (n, d)
        Rows.
    C : float or array-like, shape (d, d), default=0.0
        Ridge, or a symmetric positive semi-definite matrix.
    method : {"exact", "approx"}, default="exact"
        ``approx`` inverts the Gram matrix of a sketch and projects on ``10 / eps^2`` Gaussian directions.
    eps : float, default=0.5
        Relative error of most scores of ``approx``, in (0, 1).
    sketch : {"count", "row_norm"}, default="count"
        Sketch of ``approx``: every row added to one of ``sketch_size`` buckets with a random sign
        (Clarkson-Woodruff), or a sample of rows by their norms.
    sketch_size : int or None, default=None
        Rows of that sketch; None takes ``max(8 d, 200)``.
    random_state : int, numpy Generator or RandomState, or None, default=None
        Source of sketch and directions.

    Returns
    -------
    ndarray, shape (n,)
        Scores; exact ones lie in [0, 1] and sum to the effective dimension.

    Raises
    ------
    ValueError
        If A or C is not as described, or there are fewer rows than columns and C = 0.
    numpy.linalg.LinAlgError
        If A'A + C, or its sketch, is singular.

    Notes
    -----
    Exact O(n d^2); approximate O(nnz (1 + 10/eps^2) + sketch_size d^2 + d^3).

    Examples
    --------
    >>> leverage_scores([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]], C=1.0).round(6).tolist()
    [0.5, 0.8, 0.0]

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, Definition of leverage scores given C; Drineas, Magdon-Ismail,
    Mahoney and Woodruff, JMLR 2012, for the approximation.
    """
    check_choice("method", method, ("exact", "approx"))
    rows = as_rows(A)
    penalty = as_penalty(C, rows.shape[1])
    check_rank(rows, penalty)
    if method == "exact":
        return exact_scores(rows, penalty)
    return sketched_scores(
        rows, penalty, eps, sketch=sketch, sketch_size=sketch_size, rng=as_generator(random_state)
    )


def effective_dimension(A: ArrayLike | sparse.csr_array | RowMatrix, C: float | ArrayLike = 0.0) -> float:
    r"""Effective dimension: the sum of the leverage scores given C.

    .. math:: d_{\mathrm{eff}} = \operatorname{tr}\big((A^\top A + C)^{-1} A^\top A\big)

    Parameters
    ----------
    A : array-like or sparse matrix, shape (n, d)
        Rows.
    C : float or array-like, shape (d, d), default=0.0
        Ridge, or a symmetric positive semi-definite matrix.

    Returns
    -------
    float
        Between 0 and d; d where C = 0.

    Raises
    ------
    ValueError
        If A or C is not as described.
    numpy.linalg.LinAlgError
        If A'A + C is singular.

    Notes
    -----
    O(n d^2), from the Gram matrix.

    Examples
    --------
    >>> round(effective_dimension([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]], C=1.0), 6)
    1.3

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, below the definition of leverage scores given C.
    """
    rows = as_rows(A)
    penalty = as_penalty(C, rows.shape[1])
    check_rank(rows, penalty)
    gram = rows.gram()
    lower = factor(gram, penalty, SINGULAR)
    return float(np.trace(linalg.cho_solve((lower, True), gram)))


def check_rank(rows: RowMatrix, penalty: Penalty) -> None:
    """Refuse fewer rows than columns where there is no penalty."""
    n, d = rows.shape
    if n < d and not np.any(penalty):
        raise ValueError(f"A must have at least as many rows as columns where C = 0, got shape {(n, d)}")


def exact_scores(rows: RowMatrix, penalty: Penalty) -> NDArray[np.float64]:
    """Scores of checked input, O(n d^2).

    Parameters
    ----------
    rows : RowMatrix
        A.
    penalty : float or ndarray, shape (d, d)
        C.

    Returns
    -------
    ndarray, shape (n,)
        Scores.
    """
    if not np.any(penalty) and not sparse.issparse(rows.base):
        # Without C, the orthonormal factor keeps the digits that the Gram matrix squares away.
        Q, R = linalg.qr(rows.dense(), mode="economic")
        pivots = np.abs(np.diagonal(R))
        if pivots.min() <= max(rows.shape) * np.finfo(np.float64).eps * pivots.max():
            raise np.linalg.LinAlgError(f"{SINGULAR}: columns of A are linearly dependent")
        return np.asarray(np.einsum("ij,ij->i", Q, Q))
    lower = factor(rows.gram(), penalty, SINGULAR)
    if sparse.issparse(rows.base):
        inverse = linalg.solve_triangular(lower, np.eye(len(lower)), lower=True).T
        whitened = rows.dot(inverse)
        return np.asarray(np.einsum("ij,ij->i", whitened, whitened))
    columns = linalg.solve_triangular(lower, rows.dense().T, lower=True)
    return np.asarray(np.einsum("ij,ij->j", columns, columns))


def sketched_scores(
    rows: RowMatrix,
    penalty: Penalty,
    eps: float,
    *,
    sketch: str,
    sketch_size: int | None,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Approximate scores of checked input.

    Parameters
    ----------
    rows : RowMatrix
        A.
    penalty : float or ndarray, shape (d, d)
        C.
    eps, sketch, sketch_size
        As in :func:`leverage_scores`.
    rng : numpy.random.Generator
        Source of sketch and directions.

    Returns
    -------
    ndarray, shape (n,)
        Scores.
    """
    eps = check_real("eps", eps, minimum=0, maximum=1, include=False)
    check_choice("sketch", sketch, ("count", "row_norm"))
    n, d = rows.shape
    size = max(8 * d, 200) if sketch_size is None else check_integer("sketch_size", sketch_size, minimum=1)
    if size >= n:
        gram = rows.gram()
    else:
        sketched = _count_sketch(rows, size, rng) if sketch == "count" else _norm_sample(rows, size, rng)
        gram = sketched.T @ sketched
    lower = factor(gram, penalty, "sketch_size must be larger, or C positive")
    n_directions = math.ceil(_DIRECTIONS / eps**2)
    if n_directions < d:
        # l_i = |L^-1 a_i|^2, of which a few random directions are looked at.
        directions = rng.standard_normal((d, n_directions)) / math.sqrt(n_directions)
    else:
        directions = np.eye(d)
    return rows.squared_norms_of(linalg.solve_triangular(lower, directions, lower=True, trans="T"))


def _count_sketch(rows: RowMatrix, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    n, _ = rows.shape
    buckets = rng.integers(size, size=n)
    signs = rng.choice(np.array([-1.0, 1.0]), size=n)
    return rows.left(sparse.csr_array((signs, (buckets, np.arange(n))), shape=(size, n)))


def _norm_sample(rows: RowMatrix, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    chances = rows.squared_norms / rows.squared_norms.sum()
    drawn = draw_rows(chances, size, rng)
    return np.asarray(rows.take(drawn) / np.sqrt(size * chances[drawn])[:, None])


def draw_rows(chances: NDArray[np.float64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Independent draws of rows with given probabilities, O(n + size log n)."""
    ends = np.cumsum(chances)
    drawn = np.searchsorted(ends, rng.random(size) * ends[-1], side="right")
    return np.asarray(drawn, dtype=np.int64)
