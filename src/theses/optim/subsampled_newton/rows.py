"""The tall matrix A, dense or sparse, perhaps with scaled rows, and the penalty C."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from theses.validation import check_array, check_real

__all__ = ["Penalty", "RowMatrix", "as_penalty", "as_rows", "factor"]

Penalty = float | NDArray[np.float64]

_BLOCK = 8_192  # rows whose product stays in the cache


@dataclass(frozen=True)
class RowMatrix:
    """Matrix ``diag(scale) base`` that is never formed: what samplers ask of A costs one pass over base.

    Parameters
    ----------
    base : ndarray or csr_array, shape (n, d)
        Rows.
    scale : ndarray, shape (n,), or None
        Factor of each row; None stands for ones.

    Examples
    --------
    >>> A = RowMatrix(np.eye(3, 2), np.array([1.0, 2.0, 3.0]))
    >>> A.gram().tolist(), A.take(np.array([1])).tolist()
    ([[1.0, 0.0], [0.0, 4.0]], [[0.0, 2.0]])
    """

    base: Any
    scale: NDArray[np.float64] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        n, d = self.base.shape
        return int(n), int(d)

    @cached_property
    def squared_norms(self) -> NDArray[np.float64]:
        """Squared norms of the rows, shape (n,)."""
        if _is_sparse(self.base):
            norms = np.asarray(self.base.multiply(self.base).sum(axis=1)).ravel()
        else:
            norms = np.einsum("ij,ij->i", self.base, self.base)
        return norms if self.scale is None else norms * self.scale**2

    def scaled(self, scale: NDArray[np.float64]) -> RowMatrix:
        """The same rows with other factors; norms are carried over.

        Parameters
        ----------
        scale : ndarray, shape (n,)
            Factors that replace those so far, none of them.

        Returns
        -------
        RowMatrix
            Another view of base.
        """
        if self.scale is not None:
            raise ValueError("scale must not be set yet")
        view = RowMatrix(self.base, scale)
        view.__dict__["squared_norms"] = self.squared_norms * scale**2
        return view

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Some rows, dense."""
        taken = self.base[rows]
        dense = np.asarray(taken.toarray() if _is_sparse(taken) else taken)
        return dense if self.scale is None else dense * self.scale[rows, None]

    def dot(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        """Product with a vector or matrix on the right."""
        product = np.asarray(self.base @ right)
        if self.scale is None:
            return product
        return product * (self.scale if product.ndim == 1 else self.scale[:, None])

    def squared_norms_of(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        """Squared norms of the rows of a product, shape (n,), a block of rows at a time."""
        norms = np.empty(self.shape[0])
        for start in range(0, len(norms), _BLOCK):
            part = slice(start, start + _BLOCK)
            product = np.asarray(self.base[part] @ right)
            np.einsum("ij,ij->i", product, product, out=norms[part])
        return norms if self.scale is None else norms * self.scale**2

    def left(self, matrix: Any) -> NDArray[np.float64]:
        """Product with a sparse or dense matrix on the left, dense."""
        if self.scale is not None:
            scale = self.scale
            matrix = matrix.multiply(scale).tocsr() if _is_sparse(matrix) else matrix * scale
        product = matrix @ self.base
        return np.asarray(product.toarray() if _is_sparse(product) else product)

    def dense(self) -> NDArray[np.float64]:
        """The whole matrix."""
        whole = np.asarray(self.base.toarray() if _is_sparse(self.base) else self.base)
        return whole if self.scale is None else whole * self.scale[:, None]

    def gram(self) -> NDArray[np.float64]:
        """``A'A``, O(n d^2)."""
        if _is_sparse(self.base):
            rows = self.base if self.scale is None else sparse.diags_array(self.scale) @ self.base
            return np.asarray((rows.T @ rows).toarray())
        rows = self.dense()
        return np.asarray(rows.T @ rows)


def as_rows(A: Any, name: str = "A") -> RowMatrix:
    """A as all functions here read it.

    Parameters
    ----------
    A : array-like or sparse matrix, shape (n, d), or RowMatrix
        Rows; a RowMatrix is taken as it is.
    name : str, default="A"
        Parameter's name, for errors.

    Returns
    -------
    RowMatrix
        Of float64.

    Raises
    ------
    ValueError
        If it is empty, not two-dimensional or not finite.
    """
    if isinstance(A, RowMatrix):
        return A
    if not _is_sparse(A):
        return RowMatrix(check_array(name, A, ndim=2))
    rows = sparse.csr_array(A, dtype=np.float64)
    if 0 in rows.shape:
        raise ValueError(f"{name} must have at least 1 row(s) and column(s), got shape {rows.shape}")
    if not np.isfinite(rows.data).all():
        raise ValueError(f"{name} must be finite, got {rows.data[~np.isfinite(rows.data)][0]}")
    return RowMatrix(rows)


def as_penalty(C: Any, d: int) -> Penalty:
    """C as a number or a matrix.

    Parameters
    ----------
    C : float or array-like, shape (d, d)
        Ridge, or a symmetric positive semi-definite matrix.
    d : int
        Columns of A.

    Returns
    -------
    float or ndarray, shape (d, d)
        The same, checked.

    Raises
    ------
    ValueError
        If C is negative, of another shape, not symmetric or not positive semi-definite.
    """
    if np.ndim(C) == 0 and not hasattr(C, "detach"):
        return check_real("C", C.item() if isinstance(C, np.ndarray) else C, minimum=0)
    matrix = check_array("C", C, ndim=2)
    if matrix.shape != (d, d):
        raise ValueError(
            f"C must be a number or have shape {(d, d)}, for A has {d} column(s), got {matrix.shape}"
        )
    scale = float(np.abs(matrix).max())
    if np.abs(matrix - matrix.T).max() > 1e-10 * scale:
        raise ValueError("C must be symmetric, got entries that differ from their mirror images")
    diagonal = np.diagonal(matrix)
    if np.count_nonzero(matrix) == np.count_nonzero(diagonal):
        least = float(diagonal.min())
    else:
        least = float(linalg.eigvalsh(matrix)[0])
    if least < -1e-10 * scale * d:
        raise ValueError(f"C must be positive semi-definite, got the eigenvalue {least:g}")
    return matrix


def _is_sparse(value: Any) -> bool:
    return bool(sparse.issparse(value))


def add_penalty(gram: NDArray[np.float64], C: Penalty) -> NDArray[np.float64]:
    """``gram + C``, in a new matrix."""
    total = gram + C if isinstance(C, np.ndarray) else gram.copy()
    if not isinstance(C, np.ndarray):
        np.einsum("...ii->...i", total)[...] += C
    return np.asarray(total)


def factor(gram: NDArray[np.float64], C: Penalty, cause: str) -> NDArray[np.float64]:
    """Lower Cholesky factor of ``gram + C``.

    Parameters
    ----------
    gram : ndarray, shape (d, d)
        Of A or of its sketch.
    C : float or ndarray, shape (d, d)
        Penalty.
    cause : str
        What is wrong if the sum is singular, for the error.

    Returns
    -------
    ndarray, shape (d, d)
        L with ``L L' = gram + C``.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the sum is not positive definite to working precision.

    Examples
    --------
    >>> factor(np.diag([3.0, 8.0]), 1.0, "A is rank-deficient").tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    total = add_penalty(gram, C)
    diagonal = np.diagonal(total)
    try:
        lower = np.asarray(linalg.cholesky(total, lower=True))
    except linalg.LinAlgError:
        raise np.linalg.LinAlgError(f"{cause}: the matrix to invert is not positive definite") from None
    pivots = np.diagonal(lower) ** 2
    # A pivot at the level of rounding is zero for all that is known. Each is held against its own diagonal
    # entry, since the factorisation does not care in which units a column is measured.
    worst = int(np.argmin(pivots / diagonal))
    if pivots[worst] <= 8 * len(total) * np.finfo(np.float64).eps * diagonal[worst]:
        raise np.linalg.LinAlgError(
            f"{cause}: the matrix to invert is singular to working precision (column {worst}: pivot "
            f"{pivots[worst]:.2g} beside {diagonal[worst]:.2g})"
        )
    return lower
