"""Fast Walsh-Hadamard transform of the columns of a matrix."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theses.validation import check_array

__all__ = ["fwht"]

_RADIX = 32


@cache
def _butterfly(size: int) -> NDArray[np.float64]:
    signs = np.ones((1, 1))
    while len(signs) < size:
        signs = np.block([[signs, signs], [signs, -signs]])
    return signs


def fwht(X: ArrayLike) -> NDArray[np.float64]:
    r"""Walsh-Hadamard transform of every column, orthonormal.

    .. math:: \frac{1}{\sqrt n} H_n X, \qquad H_{2k} = \begin{pmatrix} H_k & H_k \\ H_k & -H_k \end{pmatrix}

    Parameters
    ----------
    X : array-like, shape (n,) or (n, d)
        Columns; n a power of two. float32 stays float32.

    Returns
    -------
    ndarray, of the same shape
        The transform, which is its own inverse.

    Raises
    ------
    ValueError
        If n is no power of two.

    Notes
    -----
    O(d n log n). Five levels of butterflies at a time are one small matrix product, so that 2^17 rows are
    read and written four times and not seventeen; two buffers of X's size. The n x n matrix is never formed.

    Examples
    --------
    >>> fwht([1.0, 0.0, 0.0, 0.0]).tolist()
    [0.5, 0.5, 0.5, 0.5]

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, the sub-sampled randomised Hadamard transform, Corollary 3.7.
    """
    kind = getattr(X, "dtype", None)
    dtype = np.float32 if kind is not None and str(kind).endswith("float32") else np.float64
    array = check_array("X", X, ndim=(1, 2), dtype=dtype)
    n = len(array)
    if n & (n - 1):
        raise ValueError(f"X must have a power of two of rows, got {n}")
    current = np.ascontiguousarray(array.reshape(n, -1))
    d = current.shape[1]
    spare: NDArray[np.float64] | None = None
    stride = 1
    while stride < n:
        radix = min(_RADIX, n // stride)
        # The norm of the whole goes into the first factor.
        scale = 1 / math.sqrt(n) if stride == 1 else 1.0
        signs = (scale * _butterfly(radix)).astype(dtype)
        result = np.empty_like(current) if spare is None else spare
        blocks = (n // (stride * radix), radix, stride * d)
        np.matmul(signs, current.reshape(blocks), out=result.reshape(blocks))
        # The caller's own array is read, never written to.
        spare = None if stride == 1 else current
        current, stride = result, stride * radix
    return current.reshape(array.shape) if n > 1 else array.copy()
