"""From objects and the name of a metric, or a metric of the user's own, to counted distances."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from theses.graphs.metric_mst.distances import (
    BatchedDistances,
    CodeDistances,
    DistanceRows,
    Distances,
    EuclideanDistances,
    FunctionDistances,
    MatrixDistances,
    SetDistances,
    StringDistances,
    VectorDistances,
)
from theses.validation import check_array

__all__ = ["METRICS", "open_distances"]

Metric = Any  # a name, a callable f(a, b) -> float, or an object with rows(i, J)

_ALIASES: Final = {"l1": "cityblock", "manhattan": "cityblock", "l2": "euclidean"}
_BOOLEAN: Final = ("dice", "jaccard", "rogerstanimoto", "russellrao", "sokalsneath", "yule")
_VECTOR: Final = (
    "braycurtis",
    "canberra",
    "chebyshev",
    "cityblock",
    "correlation",
    "cosine",
    "euclidean",
    "hamming",
    "jensenshannon",
    "mahalanobis",
    "minkowski",
    "seuclidean",
    "sqeuclidean",
    *_BOOLEAN,
)

METRICS: Final = (
    *_VECTOR,
    *_ALIASES,
    "haversine",
    "jaccard_sets",
    "levenshtein",
    "hamming_str",
    "precomputed",
)
"""Names of metrics; those of SciPy's ``cdist`` and scikit-learn's ``pairwise_distances`` mean the same."""

# Below this dimension differences are as fast as an inner product, and exact.
_PRODUCT_FROM: Final = 16
_SYMMETRY_PAIRS: Final = 20


def open_distances(X: Any, metric: Metric, metric_kwargs: Mapping[str, Any] | None = None) -> Distances:
    """Counted distances between the objects of ``X``.

    Parameters
    ----------
    X : ndarray, sparse matrix or sequence
        The objects.
    metric : str, callable or DistanceRows
        One of :data:`METRICS`, a function of two objects, or an object with ``rows(i, J)``.
    metric_kwargs : mapping or None, default=None
        Parameters of a named vector metric, as ``cdist`` takes them; of a callable, further keyword
        arguments.

    Returns
    -------
    Distances
        Rows of distances to all objects; nothing is computed yet, but 20 pairs of a metric of the user's own,
        both ways round, to see whether it is symmetric.

    Raises
    ------
    TypeError
        If ``X`` does not hold what the metric compares, or ``metric`` is none of the three.
    ValueError
        If the metric's name is unknown, ``X`` is empty, not finite, of the wrong rank, or not square where it
        holds the distances.

    Examples
    --------
    >>> distances = open_distances([[0.0, 0.0], [3.0, 4.0]], "euclidean")
    >>> distances.row(0), distances.evaluations
    (array([0., 5.]), 2)
    """
    if not isinstance(metric_kwargs, Mapping | None):
        raise TypeError(f"metric_kwargs must be a mapping or None, got {type(metric_kwargs).__name__}")
    kwargs = dict(metric_kwargs or {})
    if isinstance(metric, str):
        return _named(X, _ALIASES.get(metric, metric), kwargs)
    if not (isinstance(metric, DistanceRows) or callable(metric)):
        raise TypeError(
            "metric must be a name, a callable of two objects or an object with rows(i, J), "
            f"got {type(metric).__name__}"
        )
    distances: Distances
    if isinstance(metric, DistanceRows):
        if kwargs:
            raise ValueError(f"metric_kwargs must be empty for a metric with rows, got {kwargs}")
        distances = BatchedDistances(len(_objects(X)), metric)
    else:
        function = functools.partial(metric, **kwargs) if kwargs else metric
        distances = FunctionDistances(_objects(X), function)
    _warn_if_asymmetric(distances)
    return distances


def _named(X: Any, name: str, kwargs: dict[str, Any]) -> Distances:
    if name not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}, a callable or have rows, got {name!r}")
    if name in ("jaccard_sets", "levenshtein", "hamming_str", "precomputed", "haversine") and kwargs:
        raise ValueError(f"metric_kwargs must be empty for metric {name!r}, got {kwargs}")
    if name == "jaccard_sets" or (name == "jaccard" and sparse.issparse(X)):
        return SetDistances(_set_matrix(X))
    if name == "levenshtein":
        return StringDistances(_strings(X))
    if name == "hamming_str":
        return CodeDistances(_codes(_strings(X)))
    if sparse.issparse(X):
        raise TypeError(f"X must be a dense array for metric {name!r}; sparse rows are for 'jaccard_sets'")
    if name == "precomputed":
        matrix = check_array("X", X, ndim=2, dtype=None, finite=False)
        if matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind not in "fiub":
            raise ValueError(
                "X must be a square matrix of numbers for metric 'precomputed', "
                f"got shape {matrix.shape} of {matrix.dtype}"
            )
        return MatrixDistances(matrix)
    points = check_array("X", X, ndim=2)
    if name == "haversine":
        from sklearn.metrics.pairwise import haversine_distances

        if points.shape[1] != 2:
            raise ValueError(f"X must hold latitude and longitude for 'haversine', got shape {points.shape}")
        return VectorDistances(points, name, haversine_distances)
    if name == "euclidean" and points.shape[1] >= _PRODUCT_FROM and not kwargs:
        product = EuclideanDistances(points)
        # Differences do not overflow before the distances themselves do.
        if not product.overflows:
            return product
    if len(points) == 1 and name in ("seuclidean", "mahalanobis") and not kwargs:
        name = "euclidean"  # one point has no variance, and no distance to be scaled by it
    # SciPy would estimate these from the two arrays of each call, another metric for every row.
    if name == "seuclidean":
        kwargs.setdefault("V", points.var(axis=0, ddof=1))
    elif name == "mahalanobis" and "VI" not in kwargs:
        try:
            kwargs["VI"] = np.linalg.inv(np.cov(points.T)).T
        except np.linalg.LinAlgError:
            raise ValueError("X has a singular covariance; metric_kwargs must give VI") from None
    compared = points != 0 if name in _BOOLEAN else points
    function = functools.partial(cdist, metric=name, **kwargs)
    try:
        function(compared[:1], compared[:1])
    except (TypeError, ValueError) as error:
        reason = str(error).split("\n", 1)[0]
        raise ValueError(
            f"metric_kwargs must be parameters of metric {name!r}, got {kwargs}: {reason}"
        ) from None
    return VectorDistances(compared, name, function)


def _plain(X: Any) -> Any:
    """Tensors and tables as arrays, anything else as it is."""
    if hasattr(X, "detach"):
        return X.detach().cpu().numpy()
    return X.to_numpy() if hasattr(X, "to_numpy") else X


def _objects(X: Any) -> list[Any]:
    """Objects of a sequence, an array (along its first axis) or a table (its rows)."""
    X = _plain(X)
    if sparse.issparse(X):
        held: Any = X
        matrix = held.tocsr()
        check_array("X", matrix.data, ndim=1, dtype=None, min_length=0)
        objects = [matrix[[i]] for i in range(matrix.shape[0])]
    elif isinstance(X, np.ndarray):
        if X.ndim == 0:
            raise ValueError("X must hold objects along its first axis, got an array without axes")
        if X.dtype.kind in "fc":
            check_array("X", X, ndim=X.ndim, dtype=None)
        objects = list(X)
    elif isinstance(X, (str, bytes, Mapping)) or not (hasattr(X, "__getitem__") and hasattr(X, "__len__")):
        raise TypeError(f"X must be an array or a sequence of objects, got {type(X).__name__}")
    else:
        objects = [X[i] for i in range(len(X))]
    if not objects:
        raise ValueError("X must have at least 1 object, got none")
    return objects


def _strings(X: Any) -> list[str]:
    strings = _objects(X)
    for i, entry in enumerate(strings):
        if not isinstance(entry, str):
            raise TypeError(f"X must hold strings for this metric, got {type(entry).__name__} at index {i}")
    return [str(entry) for entry in strings]


def _codes(strings: list[str]) -> NDArray[Any]:
    length = len(strings[0])
    for i, entry in enumerate(strings):
        if len(entry) != length:
            raise ValueError(
                f"X must hold strings of one length for metric 'hamming_str', got {length} at index 0 "
                f"and {len(entry)} at index {i}"
            )
    points = np.array(strings, dtype=f"U{max(length, 1)}").view(np.uint32).reshape(len(strings), -1)
    symbols, codes = np.unique(points, return_inverse=True)
    smallest = np.uint8 if len(symbols) <= 256 else np.uint32
    return codes.reshape(points.shape).astype(smallest)


def _set_matrix(X: Any) -> sparse.csr_array:
    """Sets as the rows of a sparse matrix, each row's items sorted."""
    X = _plain(X)
    matrix: sparse.csr_array
    if sparse.issparse(X):
        held: Any = X
        matrix = sparse.csr_array(held.tocsr(), copy=True)
        check_array("X", matrix.data, ndim=1, dtype=None, min_length=0)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    elif isinstance(X, np.ndarray) and X.dtype.kind in "fiub":
        matrix = sparse.csr_array(check_array("X", X, ndim=2) != 0)
    else:
        numbers: dict[Any, int] = {}
        items: list[int] = []
        starts = [0]
        for i, entry in enumerate(_objects(X)):
            if isinstance(entry, (str, bytes)) or not hasattr(entry, "__iter__"):
                raise TypeError(
                    f"X must hold sets for metric 'jaccard_sets', got {type(entry).__name__} at index {i}"
                )
            items += sorted({numbers.setdefault(item, len(numbers)) for item in entry})
            starts.append(len(items))
        ones = np.ones(len(items), dtype=bool)
        matrix = sparse.csr_array((ones, items, starts), shape=(len(starts) - 1, max(1, len(numbers))))
    if not matrix.shape[0]:
        raise ValueError(f"X must have at least 1 row, got shape {matrix.shape}")
    return matrix


def _warn_if_asymmetric(distances: Distances) -> None:
    n = distances.size
    possible = n * (n - 1) // 2
    # A stream of its own, always the same: the check must not move the caller's random state.
    chosen = np.random.default_rng(0).permutation(possible)[:_SYMMETRY_PAIRS] if possible <= 10_000 else None
    if chosen is None:
        i, j = np.random.default_rng(0).integers(0, n, (2, 2 * _SYMMETRY_PAIRS))
        i, j = i[i != j][:_SYMMETRY_PAIRS], j[i != j][:_SYMMETRY_PAIRS]
    else:
        i, j = (index[chosen] for index in np.triu_indices(n, 1))
    for a, b in zip(i.tolist(), j.tolist(), strict=True):
        there = float(distances.take(np.array([b])).row(a)[0])
        back = float(distances.take(np.array([a])).row(b)[0])
        if not np.isclose(there, back, rtol=1e-9, atol=0):
            warnings.warn(
                f"metric is not symmetric: {there} from object {a} to {b}, {back} from {b} to {a}; "
                "neither the tree nor its guarantee means anything then",
                UserWarning,
                stacklevel=4,
            )
            return
