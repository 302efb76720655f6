"""Counted distances, a row at a time, for every kind of object.

Prim's algorithm and the farthest-first sweep ask for nothing but rows: the distances from one object to many.
Each kind of object computes its rows here, vectorised, and counts them where they are made.
"""

from __future__ import annotations

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import repeat
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

__all__ = [
    "BatchedDistances",
    "CodeDistances",
    "DistanceRows",
    "Distances",
    "EuclideanDistances",
    "FunctionDistances",
    "MatrixDistances",
    "SetDistances",
    "StringDistances",
    "VectorDistances",
]

# |x|^2 + |y|^2 - 2<x, y> is off by some 1e-15 of |x|^2 + |y|^2: where it is smaller than this share, the
# difference is computed itself, so that every squared distance has a relative error below 1e-10.
_CANCELLATION: Final = 1e-4


@runtime_checkable
class DistanceRows(Protocol):
    """A metric of the user's own that computes many distances at once.

    Examples
    --------
    >>> class Absolute:
    ...     def rows(self, i, J):
    ...         return np.abs(np.asarray(J) - i).astype(float)
    >>> isinstance(Absolute(), DistanceRows)
    True
    """

    def rows(self, i: int, J: NDArray[np.int64]) -> NDArray[Any]:
        """Distances from one object to many.

        Parameters
        ----------
        i : int
            Number of an object.
        J : ndarray of int64, shape (m,)
            Numbers of objects.

        Returns
        -------
        ndarray of float, shape (m,)
            Distance from ``i`` to each of ``J``.
        """


class _Counter:
    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class Distances(ABC):
    """Distances from any object to a set of objects that may shrink.

    Parameters
    ----------
    n : int
        Number of objects; at first the set is all of them.

    Attributes
    ----------
    ids : ndarray of int64
        The set: object of each entry of a row, in the first ``size`` places.
    size : int
        How many objects are in the set.

    Notes
    -----
    A subset holds a copy of its objects' data, so that a row reads contiguous memory and dropping an object
    costs O(1): the last one takes its place.
    """

    metric_name: str = "metric"
    proper: bool = False
    """Whether every distance is finite and at least 0 by the way it is computed."""

    def __init__(self, n: int) -> None:
        self.ids: NDArray[np.int64] = np.arange(n)
        self.size = n
        self._counter = _Counter()
        self._all: Distances = self

    @property
    def evaluations(self) -> int:
        """Distances computed so far, by this set and all sets taken from the same objects."""
        return self._counter.total

    def take(self, ids: NDArray[np.int64]) -> Distances:
        """Distances to some of the objects.

        Parameters
        ----------
        ids : ndarray of int, shape (m,)
            Their numbers.

        Returns
        -------
        Distances
            A set of its own, with the same counter.
        """
        subset = copy.copy(self._all)
        subset.ids, subset.size = np.array(ids, dtype=np.int64), len(ids)
        subset._select(subset.ids)
        return subset

    def row(self, i: int) -> NDArray[np.float64]:
        """Distances from object ``i`` to the objects of the set, counted.

        Parameters
        ----------
        i : int
            Any object, in the set or not.

        Returns
        -------
        ndarray of float64, shape (size,)
            Distances in the order of ``ids``.

        Raises
        ------
        ValueError
            If a distance is negative, infinite or NaN.
        """
        values = self._row(i)
        self._counter.total += len(values)
        if self.proper or not len(values):
            return values
        # argmin and argmax stop at a NaN, which compares as false; on short rows they beat min and max.
        if not (values[values.argmin()] >= 0 and values[values.argmax()] < np.inf):
            bad = int(np.flatnonzero(~((values >= 0) & (values < np.inf)))[0])
            raise ValueError(
                f"{self.metric_name} must give finite distances of at least 0, "
                f"got {values[bad]} for objects {i} and {self.ids[bad]}"
            )
        return values

    def drop(self, position: int) -> None:
        """Remove the object at a position of a subset; the last object takes its place."""
        self.size -= 1
        self.ids[position] = self.ids[self.size]
        self._drop(position, self.size)

    @abstractmethod
    def _select(self, ids: NDArray[np.int64]) -> None:
        """Replace own references to all objects' data by a copy of the subset's."""

    @abstractmethod
    def _row(self, i: int) -> NDArray[np.float64]:
        """Fresh array of the distances from ``i``, looked up in ``self._all``, to the set."""

    @abstractmethod
    def _drop(self, position: int, last: int) -> None:
        """Move the data of ``last`` to ``position``."""


class EuclideanDistances(Distances):
    r"""Euclidean distance in many dimensions, through one matrix-vector product a row: O(size * d).

    With points lifted to :math:`(x, |x|^2)`, the inner product with :math:`(-2 y, 1)` is
    :math:`|x - y|^2 - |y|^2`.

    Parameters
    ----------
    X : ndarray of float64, shape (n, d)
        The points.
    """

    proper = True
    _all: EuclideanDistances

    def __init__(self, X: NDArray[np.float64]) -> None:
        n, d = X.shape
        super().__init__(n)
        self._raw = X
        self._lifted = np.empty((n, d + 1))
        centred = self._lifted[:, :d]
        np.subtract(X, X.mean(axis=0), out=centred)  # a common offset would only cost digits
        np.einsum("ij,ij->i", centred, centred, out=self._lifted[:, d])
        self._largest = self._lifted[:, d].max()

    @property
    def overflows(self) -> bool:
        """Whether coordinates are too large to be squared."""
        return not np.isfinite(4 * self._largest)

    def _select(self, ids: NDArray[np.int64]) -> None:
        self._lifted = self._all._lifted[ids]

    def _row(self, i: int) -> NDArray[np.float64]:
        query = -2 * self._all._lifted[i]
        own = query[-1] / -2
        query[-1] = 1.0
        lifted = self._lifted[: self.size]
        squared: NDArray[np.float64] = lifted.dot(query)
        squared += own
        if self.size and squared[squared.argmin()] < _CANCELLATION * (own + self._largest):
            close = np.flatnonzero(squared < _CANCELLATION * (own + lifted[:, -1]))
            # Not centred: the subtraction of the mean is rounded, the difference of two close points is not.
            squared[close] = cdist(self._raw[i : i + 1], self._raw[self.ids[close]], "sqeuclidean")[0]
        return np.sqrt(squared, out=squared)

    def _drop(self, position: int, last: int) -> None:
        self._lifted[position] = self._lifted[last]


class VectorDistances(Distances):
    """A named metric between the rows of a matrix, computed by SciPy or scikit-learn: O(size * d)."""

    _all: VectorDistances

    def __init__(self, X: NDArray[Any], name: str, function: Callable[..., NDArray[np.float64]]) -> None:
        super().__init__(len(X))
        self.metric_name = f"metric {name!r}"
        self._points = np.ascontiguousarray(X)
        self._function = function

    def _select(self, ids: NDArray[np.int64]) -> None:
        self._points = self._all._points[ids]

    def _row(self, i: int) -> NDArray[np.float64]:
        query = self._all._points[i : i + 1]
        values: NDArray[np.float64] = self._function(query, self._points[: self.size])[0]
        # Cosine and correlation distance of equal rows come out as -1e-16.
        return np.maximum(values, 0, out=values)

    def _drop(self, position: int, last: int) -> None:
        self._points[position] = self._points[last]


class SetDistances(Distances):
    r"""Jaccard distance :math:`1 - |A \cap B| / |A \cup B|` between the rows of a sparse matrix.

    A row of intersections is the product of one sparse row with the transposed matrix, taken through an
    inverted index: O(occurrences of the row's items in the set). Two empty sets are equal.
    """

    proper = True
    _all: SetDistances

    def __init__(self, matrix: sparse.csr_array) -> None:
        super().__init__(matrix.shape[0])
        self._matrix = matrix
        self._sizes: NDArray[np.int64] = np.diff(matrix.indptr).astype(np.int64)
        self._index(matrix)

    def _index(self, matrix: sparse.csr_array) -> None:
        self._items, columns = np.unique(matrix.indices, return_inverse=True)
        shape = (matrix.shape[0], max(1, len(self._items)))
        inverted = sparse.csr_array((matrix.data, columns, matrix.indptr), shape=shape).tocsc()
        self._holders, self._starts = inverted.indices, inverted.indptr
        self._places = np.arange(matrix.shape[0])  # where the set's objects stand in the index

    def _select(self, ids: NDArray[np.int64]) -> None:
        self._sizes = self._all._sizes[ids]
        self._index(self._all._matrix[ids])

    def _row(self, i: int) -> NDArray[np.float64]:
        start, stop = self._all._matrix.indptr[i : i + 2]
        items = self._all._matrix.indices[start:stop]
        columns = np.searchsorted(self._items, items)
        columns = (
            columns[self._items.take(columns, mode="clip") == items] if len(self._items) else columns[:0]
        )
        first, end = self._starts[columns].tolist(), self._starts[columns + 1].tolist()
        holders = [self._holders[a:b] for a, b in zip(first, end, strict=True)]
        places = self._places[: self.size]
        if holders:
            common = np.bincount(np.concatenate(holders), minlength=len(self._places))[places]
        else:
            common = np.zeros(self.size, dtype=np.int64)
        union = self._sizes[: self.size] + (stop - start) - common
        # 0 / max(0, 1): nothing is in common and nothing differs.
        distances: NDArray[np.float64] = (union - common) / np.maximum(union, 1)
        return distances

    def _drop(self, position: int, last: int) -> None:
        self._places[position], self._sizes[position] = self._places[last], self._sizes[last]


class StringDistances(Distances):
    """Levenshtein distance by rapidfuzz, a row a call."""

    proper = True
    _all: StringDistances

    def __init__(self, strings: list[str]) -> None:
        super().__init__(len(strings))
        try:
            from rapidfuzz import process
            from rapidfuzz.distance import Levenshtein
        except ImportError:
            raise ImportError(
                "metric 'levenshtein' needs rapidfuzz, which comes with the extra: "
                'pip install "theses[graphs]"'
            ) from None
        self._strings = strings
        self._function = functools.partial(process.cdist, scorer=Levenshtein.distance, workers=1)

    def _select(self, ids: NDArray[np.int64]) -> None:
        strings = self._all._strings
        self._strings = [strings[i] for i in ids.tolist()]

    def _row(self, i: int) -> NDArray[np.float64]:
        return np.asarray(self._function([self._all._strings[i]], self._strings)[0], dtype=np.float64)

    def _drop(self, position: int, last: int) -> None:
        self._strings[position] = self._strings[last]
        self._strings.pop()


class CodeDistances(Distances):
    """Number of places where two strings of one length differ: O(size * length)."""

    proper = True
    _all: CodeDistances

    def __init__(self, codes: NDArray[Any]) -> None:
        super().__init__(len(codes))
        self._codes = codes

    def _select(self, ids: NDArray[np.int64]) -> None:
        self._codes = self._all._codes[ids]

    def _row(self, i: int) -> NDArray[np.float64]:
        differ = self._codes[: self.size] != self._all._codes[i]
        return np.asarray(np.count_nonzero(differ, axis=1), dtype=np.float64)

    def _drop(self, position: int, last: int) -> None:
        self._codes[position] = self._codes[last]


class MatrixDistances(Distances):
    """Distances that stand in a square matrix, of which only the entries asked for are read.

    Parameters
    ----------
    matrix : ndarray, shape (n, n)
        The distances; a memory-mapped array stays on disk.
    """

    metric_name = "metric 'precomputed'"

    def __init__(self, matrix: NDArray[Any]) -> None:
        super().__init__(len(matrix))
        self._matrix = matrix

    def _select(self, ids: NDArray[np.int64]) -> None:
        pass

    def _row(self, i: int) -> NDArray[np.float64]:
        return np.array(self._matrix[i, self.ids[: self.size]], dtype=np.float64)

    def _drop(self, position: int, last: int) -> None:
        pass


class FunctionDistances(Distances):
    """A function of two objects, called once for each distance."""

    _all: FunctionDistances

    def __init__(self, objects: list[Any], function: Callable[[Any, Any], float]) -> None:
        super().__init__(len(objects))
        self._objects = objects
        self._function = function

    def _select(self, ids: NDArray[np.int64]) -> None:
        objects = self._all._objects
        self._objects = [objects[i] for i in ids.tolist()]

    def _row(self, i: int) -> NDArray[np.float64]:
        calls = map(self._function, repeat(self._all._objects[i]), self._objects)
        return np.fromiter(calls, dtype=np.float64, count=self.size)

    def _drop(self, position: int, last: int) -> None:
        self._objects[position] = self._objects[last]
        self._objects.pop()


class BatchedDistances(Distances):
    """An object of the user's with ``rows(i, J)``."""

    def __init__(self, n: int, metric: DistanceRows) -> None:
        super().__init__(n)
        self._metric = metric

    def _select(self, ids: NDArray[np.int64]) -> None:
        pass

    def _row(self, i: int) -> NDArray[np.float64]:
        asked = self.ids[: self.size].copy()  # the set's own order must not depend on what the user does
        answer = self._metric.rows(i, asked)
        try:
            values = np.array(answer, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"metric.rows must return numbers: {error}") from None
        if values.shape != (self.size,):
            raise ValueError(
                f"metric.rows must return one distance for each of {self.size} objects, "
                f"got shape {values.shape}"
            )
        return values

    def _drop(self, position: int, last: int) -> None:
        pass
