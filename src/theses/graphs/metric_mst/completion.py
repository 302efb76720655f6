"""Step 3, MFC-Approx: join the components of a forest through representatives; and the whole algorithm."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from theses.graphs.metric_mst.distances import Distances, MatrixDistances
from theses.graphs.metric_mst.forest import (
    Forest,
    forest_of,
    minimum_spanning_edges,
    partition_objects,
    plant,
)
from theses.graphs.metric_mst.metrics import Metric, open_distances
from theses.graphs.metric_mst.result import MSTResult
from theses.validation import check_array, check_choice, check_integer

__all__ = ["approximate_mst", "complete_forest", "exact_mst"]

_LOG = logging.getLogger(__name__)


def approximate_mst(
    X: Any,
    metric: Metric = "euclidean",
    *,
    n_components: int | str = "auto",
    n_representatives: int | Sequence[int] = 1,
    max_component_size: int | None = None,
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    metric_kwargs: Mapping[str, Any] | None = None,
) -> MSTResult:
    r"""Spanning tree of nearly minimum weight in any metric, from a fraction of the distances (MFC-Approx).

    Farthest-first centres split the objects into t components, each gets its exact minimum spanning tree
    T_i, and the components are joined through their centres (see :func:`complete_forest`). With the quality
    :math:`\gamma` of the forest (see :func:`~theses.graphs.metric_mst.gamma`),

    .. math:: w(\hat T) \le (2\gamma + 1)\, w(\mathrm{MST}).

    Parameters
    ----------
    X : ndarray of shape (n, d), sparse matrix, or sequence of n objects
        Vectors for a named vector metric; a sparse matrix, a 0/1 array or a sequence of sets for
        ``"jaccard_sets"``; strings for ``"levenshtein"`` and, of one length, ``"hamming_str"``; the (n, n)
        distances for ``"precomputed"``; anything for a metric of your own.
    metric : str, callable or object with ``rows``, default="euclidean"
        A name known to ``scipy.spatial.distance.cdist`` or scikit-learn's ``pairwise_distances``, one of the
        names above, a function ``f(a, b) -> float``, or an object whose ``rows(i, J)`` gives the distances
        from object ``i`` to each of ``J``. The guarantee needs symmetry and the triangle inequality, which
        ``"cosine"``, ``"correlation"``, ``"sqeuclidean"`` and some others lack.
    n_components : int or "auto", default="auto"
        Number t of components; "auto" is :math:`\sqrt n`, rounded, between 2 and 512. More components cost n
        distances each and spare distances inside components.
    n_representatives : int or sequence of int, default=1
        Objects of each component that the others are joined to: more are closer to the best completion and
        cost n distances each. A sequence gives one number a component, which spends a budget unevenly.
    max_component_size : int or None, default=None
        Split larger components by more centres inside them.
    random_state : int, Generator, RandomState or None, default=None
        Draws the first centre; None takes object ``n // 2``.
    metric_kwargs : mapping or None, default=None
        Parameters of the metric, such as ``{"p": 3}`` for ``"minkowski"``.

    Returns
    -------
    MSTResult
        The tree with its certificate.

    Raises
    ------
    TypeError
        If a parameter is of another type, or ``X`` does not hold what the metric compares.
    ValueError
        If a parameter is out of range, ``X`` is empty or not finite, or a distance is negative or NaN.

    Warns
    -----
    UserWarning
        If a metric of the user's own differs between the two directions of one of 20 sampled pairs.

    Notes
    -----
    :math:`n t + \sum_i |P_i| (|P_i| - 1) / 2` distances, :math:`O(n^{1.5})` for :math:`t = \sqrt n` balanced
    components; O(n + t^2) memory beside the centres' rows, t n single-precision numbers, which are kept up
    to 2**26 of them and computed again beyond.

    A component of nearly all objects makes it as slow as the exact tree, which happens where few objects are
    near a centre, as under edit distance: see ``component_sizes``, and set ``max_component_size``.

    References
    ----------
    Veldt, Stanley, Priest, Steil, Iwabuchi, Jayram, Sanders, Approximate Forest Completion and
    Learning-Augmented Algorithms for Metric Minimum Spanning Trees, ICML 2025, arXiv:2502.12993.

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(500, 2))
    >>> tree = approximate_mst(points, n_components=20)
    >>> tree.edges.shape, tree.n_distance_evaluations < 500 * 499 / 2 / 4
    ((499, 2), True)
    >>> tree.total_weight < 1.2 * exact_mst(points).total_weight
    True
    """
    distances = open_distances(X, metric, metric_kwargs)
    start = time.perf_counter()
    partition = partition_objects(distances, n_components, max_component_size, None, random_state, keep=True)
    planted = time.perf_counter()
    largest = int(np.bincount(partition.labels).max())
    if largest > distances.size / 2:
        _LOG.info(
            "one component holds %d of %d objects and costs the most; max_component_size splits it",
            largest,
            distances.size,
        )
    forest = plant(distances, partition.labels, partition.centres)
    joined = time.perf_counter()
    representatives = _representatives(forest, None, n_representatives)
    edges, weights = _join(distances, forest, representatives, partition.rows)
    timings = {
        "partition": planted - start,
        "forest": joined - planted,
        "completion": time.perf_counter() - joined,
    }
    return _result(distances, forest, edges, weights, timings)


def complete_forest(
    X: Any,
    forest: Any,
    metric: Metric,
    *,
    representatives: Any = None,
    n_representatives: int | Sequence[int] = 1,
    completion: str = "approx",
    metric_kwargs: Mapping[str, Any] | None = None,
) -> MSTResult:
    r"""Spanning tree that contains a given forest (metric forest completion).

    MFC-Approx gives the pair of components i, j the weight

    .. math:: \hat w(i, j) = \min\Bigl(\min_{x \in P_i} d(x, r_j),\ \min_{y \in P_j} d(r_i, y)\Bigr)

    with a representative of each, and joins the components by the minimum spanning tree of these weights.
    Whatever the representatives,

    .. math:: w(\hat T) \le \beta \Bigl(w(\text{best completion}) + \sum_i w(T_i)\Bigr), \quad
        \beta = \frac{3 + \sqrt 5}{2}.

    Parameters
    ----------
    X : ndarray of shape (n, d), sparse matrix, or sequence of n objects
        The objects, as :func:`approximate_mst` takes them.
    forest : Forest, array-like of int with shape (n,), or sparse matrix of shape (n, n)
        A forest; labels, whose components get their exact trees first; or a matrix whose stored entries
        are the edges with their lengths, zeros included.
    metric : str, callable or object with ``rows``
        The distance, as :func:`approximate_mst` takes it.
    representatives : array-like of int with shape (t,), sequence of t such arrays, or None, default=None
        Objects that stand for each component. None takes the forest's centres, else the first members.
    n_representatives : int or sequence of int, default=1
        Representatives of each component, or one number a component; those missing are chosen
        farthest-first inside it. All members of every component give the best completion.
    completion : {"approx", "optimal"}, default="approx"
        "optimal" takes the closest pair of any two components, from all distances between components.
    metric_kwargs : mapping or None, default=None
        Parameters of the metric.

    Returns
    -------
    MSTResult
        The tree with its certificate.

    Raises
    ------
    TypeError
        If a parameter is of another type.
    ValueError
        If labels do not cover ``X``, edges close a cycle or join two labels, a representative lies outside
        its component, or the objects or distances are not valid.

    Notes
    -----
    n distances a representative ("approx"), or every pair between components ("optimal"); O(n + t^2) memory.

    References
    ----------
    Veldt et al., arXiv:2502.12993: the problem MFC and the algorithm MFC-Approx.

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [5.0], [6.0], [7.5]])
    >>> tree = complete_forest(points, [0, 0, 1, 1, 1], "euclidean")
    >>> tree.edges.tolist(), tree.total_weight
    ([[0, 1], [2, 3], [3, 4], [2, 1]], 7.5)
    """
    check_choice("completion", completion, ("approx", "optimal"))
    distances = open_distances(X, metric, metric_kwargs)
    start = time.perf_counter()
    grown = forest_of(distances, forest)
    joined = time.perf_counter()
    chosen = _representatives(grown, representatives, n_representatives)
    if completion == "optimal":
        edges, weights = _join_optimally(distances, grown)
    else:
        edges, weights = _join(distances, grown, chosen, {})
    timings = {"partition": 0.0, "forest": joined - start, "completion": time.perf_counter() - joined}
    return _result(distances, grown, edges, weights, timings)


def exact_mst(
    X: Any, metric: Metric = "euclidean", *, metric_kwargs: Mapping[str, Any] | None = None
) -> MSTResult:
    """Minimum spanning tree by Prim's algorithm on rows of distances, without a distance matrix.

    Parameters
    ----------
    X : ndarray of shape (n, d), sparse matrix, or sequence of n objects
        The objects, as :func:`approximate_mst` takes them.
    metric : str, callable or object with ``rows``, default="euclidean"
        The distance; it needs to be symmetric only.
    metric_kwargs : mapping or None, default=None
        Parameters of the metric.

    Returns
    -------
    MSTResult
        The tree, as a forest of one component.

    Raises
    ------
    TypeError
        If a parameter is of another type, or ``X`` does not hold what the metric compares.
    ValueError
        If ``X`` is empty or not finite, or a distance is negative or NaN.

    Notes
    -----
    Each of the n (n - 1) / 2 distances once, O(n) memory beside a copy of the objects.

    References
    ----------
    Prim, Shortest connection networks and some generalizations, Bell System Technical Journal 36, 1957.

    Examples
    --------
    >>> exact_mst(["cat", "cart", "dog", "dig"], "levenshtein").weights.tolist()
    [1.0, 3.0, 1.0]
    """
    distances = open_distances(X, metric, metric_kwargs)
    start = time.perf_counter()
    forest = plant(distances, np.zeros(distances.size, dtype=np.int64))
    timings = {"partition": 0.0, "forest": time.perf_counter() - start, "completion": 0.0}
    return _result(distances, forest, np.empty((0, 2), dtype=np.int64), np.empty(0), timings)


def _result(
    distances: Distances,
    forest: Forest,
    edges: NDArray[np.int64],
    weights: NDArray[np.float64],
    timings: dict[str, float],
) -> MSTResult:
    return MSTResult(
        edges=np.concatenate([forest.edges, edges]),
        weights=np.concatenate([forest.weights, weights]),
        labels=forest.labels,
        n_distance_evaluations=distances.evaluations,
        timings=timings,
    )


def _representatives(
    forest: Forest, representatives: Any, n_representatives: int | Sequence[int]
) -> list[tuple[list[int], int]]:
    """Of each component, the representatives that are given, and how many there shall be."""
    t, sizes = forest.n_components, forest.component_sizes
    if isinstance(n_representatives, (Sequence, np.ndarray)) and not isinstance(n_representatives, str):
        counts = [check_integer("n_representatives", count, minimum=1) for count in n_representatives]
        if len(counts) != t:
            raise ValueError(
                f"n_representatives must have one entry for each of {t} components, got {len(counts)}"
            )
    else:
        counts = [check_integer("n_representatives", n_representatives, minimum=1)] * t
    if representatives is None:
        first = np.unique(forest.labels, return_index=True)[1]
        chosen = [[int(i)] for i in (first if forest.centres is None else forest.centres)]
    else:
        if not hasattr(representatives, "__len__"):
            raise TypeError(
                f"representatives must be a sequence or None, got {type(representatives).__name__}"
            )
        if len(representatives) != t:
            raise ValueError(
                f"representatives must have one entry for each of {t} components, got {len(representatives)}"
            )
        chosen = []
        for k, entry in enumerate(representatives):
            array = np.unique(check_array("representatives", np.atleast_1d(entry), ndim=1, dtype=None))
            if array.dtype.kind not in "iu":
                raise TypeError(f"representatives must hold integers, got {array.dtype}")
            if array[0] < 0 or array[-1] >= len(forest.labels) or (forest.labels[array] != k).any():
                raise ValueError(
                    f"representatives must lie in their components, got {array.tolist()} for component {k}"
                )
            chosen.append([int(i) for i in array])
    return [
        (given, max(len(given), min(count, int(size))))
        for given, count, size in zip(chosen, counts, sizes, strict=True)
    ]


class _Segments:
    """Objects sorted by component, to find the closest object of every component in one row."""

    def __init__(self, labels: NDArray[np.int64], t: int) -> None:
        self.order = np.argsort(labels, kind="stable")
        self.sizes = np.bincount(labels, minlength=t)
        self.starts = np.cumsum(self.sizes) - self.sizes

    def members(self, k: int) -> NDArray[np.int64]:
        return self.order[self.starts[k] : self.starts[k] + self.sizes[k]]

    def closest(self, sorted_row: NDArray[Any], after: int = 0) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Least entry and first object that has it, of each component from ``after`` on."""
        offset = self.starts[after]
        starts, sizes = self.starts[after:] - offset, self.sizes[after:]
        least = np.minimum.reduceat(sorted_row, starts)
        hits = np.flatnonzero(sorted_row == np.repeat(least, sizes))
        return least, self.order[offset + hits[np.searchsorted(hits, starts)]]


class _CoarseGraph:
    """Shortest known edge from each component (row) to each other (column), with its ends."""

    def __init__(self, t: int) -> None:
        self.weights = np.full((t, t), np.inf)
        self.inner = np.zeros((t, t), dtype=np.int64)
        self.outer = np.zeros((t, t), dtype=np.int64)

    def shorten(
        self, k: int, inner: int, weights: NDArray[Any], outer: NDArray[np.int64], after: int = 0
    ) -> None:
        shorter = after + np.flatnonzero(weights < self.weights[k, after:])
        self.weights[k, shorter] = weights[shorter - after]
        self.inner[k, shorter] = inner
        self.outer[k, shorter] = outer[shorter - after]

    def spanning_edges(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Minimum spanning tree between the components, as edges between objects."""
        t = len(self.weights)
        both = np.minimum(self.weights, self.weights.T)
        np.fill_diagonal(both, 0.0)
        pairs, weights = minimum_spanning_edges(MatrixDistances(both), np.arange(t))
        i, j = pairs.T
        backward = self.weights[j, i] < self.weights[i, j]
        i, j = np.where(backward, j, i), np.where(backward, i, j)
        return np.column_stack([self.inner[i, j], self.outer[i, j]]), weights


def _join(
    distances: Distances,
    forest: Forest,
    wanted: list[tuple[list[int], int]],
    rows: Mapping[int, NDArray[np.float32]],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Edges that complete the forest, through representatives; ``rows`` are those already known."""
    t = forest.n_components
    if t == 1:
        return np.empty((0, 2), dtype=np.int64), np.empty(0)
    segments, coarse = _Segments(forest.labels, t), _CoarseGraph(t)
    for k, (given, total) in enumerate(wanted):
        members = segments.members(k)
        reach = np.full(len(members), np.inf)
        for number in range(total):
            # Beyond those given, farthest-first inside the component.
            representative = given[number] if number < len(given) else int(members[reach.argmax()])
            row: NDArray[Any] | None = rows.get(representative)
            if row is None:
                row = distances.row(representative)
                row[representative] = 0.0
            np.minimum(reach, row[members], out=reach)
            reach[members == representative] = -1.0  # equal objects may still be chosen, none twice
            coarse.shorten(k, representative, *segments.closest(row[segments.order]))
    edges, weights = coarse.spanning_edges()
    # Rows were kept in single precision; the few edges that are chosen get their full length.
    for representative in np.unique(edges[:, 0]).tolist():
        if representative in rows:
            chosen = np.flatnonzero(edges[:, 0] == representative)
            weights[chosen] = distances.take(edges[chosen, 1]).row(representative)
    return edges, weights


def _join_optimally(distances: Distances, forest: Forest) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Edges of the best completion, from every distance between two components."""
    t = forest.n_components
    if t == 1:
        return np.empty((0, 2), dtype=np.int64), np.empty(0)
    segments, coarse = _Segments(forest.labels, t), _CoarseGraph(t)
    for k in range(t - 1):
        later = distances.take(segments.order[segments.starts[k + 1] :])
        for member in segments.members(k).tolist():
            coarse.shorten(k, member, *segments.closest(later.row(member), after=k + 1), after=k + 1)
    return coarse.spanning_edges()
