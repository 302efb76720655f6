"""Step 1: an initial forest, by farthest-first centres and an exact minimum spanning tree around each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from theses.graphs.metric_mst.distances import Distances
from theses.graphs.metric_mst.metrics import Metric, open_distances
from theses.validation import as_generator, check_array, check_integer

__all__ = [
    "Forest",
    "Partition",
    "forest_of",
    "kcenter_forest",
    "minimum_spanning_edges",
    "partition_objects",
    "plant",
]

_KEPT_ENTRIES: Final = 2**26
_AUTO_LARGEST: Final = 512
_SPLIT_LARGEST: Final = 2048


@dataclass(frozen=True, eq=False)
class Forest:
    """A partition of the objects with a spanning tree in each part.

    Parameters
    ----------
    labels : ndarray of int, shape (n,)
        Component of each object, 0 to t - 1, none of them empty.
    edges : ndarray of int, shape (n - t, 2)
        Edges of all trees, as pairs of object numbers.
    weights : ndarray of float, shape (n - t,)
        Their lengths; zero is a length like any other.
    centres : ndarray of int, shape (t,), or None, default=None
        An object of each component that stands for it.

    Raises
    ------
    TypeError
        If labels, edges or centres are no integers.
    ValueError
        If shapes do not fit, an edge joins two components or closes a cycle, a component falls apart, or a
        centre lies in another component.

    Examples
    --------
    >>> forest = Forest(labels=[0, 0, 1], edges=[[0, 1]], weights=[2.5])
    >>> forest.n_components, forest.component_sizes.tolist()
    (2, [2, 1])
    """

    labels: NDArray[np.int64]
    edges: NDArray[np.int64]
    weights: NDArray[np.float64]
    centres: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        labels = _integers("labels", self.labels, ndim=1)
        n = len(labels)
        sizes = np.bincount(labels) if labels.min() >= 0 and labels.max() < n else np.zeros(1, dtype=int)
        if not sizes.all():
            raise ValueError(
                "labels must number the components from 0 without a gap, "
                f"got values from {labels.min()} to {labels.max()}"
            )
        t = len(sizes)
        edges = _integers("edges", np.reshape(self.edges, (0, 2)) if not np.size(self.edges) else self.edges)
        if edges.shape != (n - t, 2):
            raise ValueError(
                f"edges must have shape ({n - t}, 2) to be a tree in each of {t} components of {n} objects, "
                f"got {edges.shape}"
            )
        weights = check_array("weights", self.weights, ndim=1, min_length=0)
        if len(weights) != len(edges):
            raise ValueError(
                f"weights must have one entry for each of {len(edges)} edges, got {len(weights)}"
            )
        if (weights < 0).any():
            raise ValueError(f"weights must be at least 0, got {weights.min()}")
        if len(edges) and not (edges.min() >= 0 and edges.max() < n):
            raise ValueError(f"edges must be numbers of {n} objects, got {edges.min()} to {edges.max()}")
        if (labels[edges[:, 0]] != labels[edges[:, 1]]).any():
            i, j = edges[labels[edges[:, 0]] != labels[edges[:, 1]]][0].tolist()
            raise ValueError(
                f"edges must stay within a component, got ({i}, {j}) between {labels[i]} and {labels[j]}"
            )
        # n - t edges that leave t components cannot close a cycle.
        if _components(n, edges)[0] != t:
            raise ValueError("edges must form a tree in each component, got a cycle")
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "weights", weights)
        if self.centres is not None:
            centres = _integers("centres", self.centres, ndim=1)
            if len(centres) != t or not ((centres >= 0) & (centres < n)).all():
                raise ValueError(f"centres must be one of {n} objects for each of {t} components")
            if (labels[centres] != np.arange(t)).any():
                wrong = int(np.flatnonzero(labels[centres] != np.arange(t))[0])
                raise ValueError(f"centres must lie in their components, got {centres[wrong]} for {wrong}")
            object.__setattr__(self, "centres", centres)

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.labels) - len(self.edges)

    @property
    def component_sizes(self) -> NDArray[np.int64]:
        """Number of objects in each component."""
        return np.bincount(self.labels, minlength=self.n_components)

    @property
    def weight(self) -> float:
        """Total length of all trees."""
        return math.fsum(self.weights)


class Partition(NamedTuple):
    """Farthest-first partition: labels, centres, and the centres' rows where they are kept."""

    labels: NDArray[np.int64]
    centres: NDArray[np.int64]
    rows: dict[int, NDArray[np.float32]]


def kcenter_forest(
    X: Any,
    metric: Metric,
    n_components: int | str,
    *,
    max_component_size: int | None = None,
    first: int | None = None,
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
    metric_kwargs: Mapping[str, Any] | None = None,
) -> Forest:
    r"""Initial forest by the farthest-first sweep (Gonzalez), with an exact tree inside each part.

    The first centre is given; each next one is the object farthest from all centres so far. An object belongs
    to its nearest centre, to the earlier one of two at the same distance.

    Parameters
    ----------
    X : ndarray of shape (n, d), sparse matrix, or sequence of n objects
        The objects, as :func:`~theses.graphs.metric_mst.approximate_mst` takes them.
    metric : str, callable or object with ``rows``
        Their distance.
    n_components : int or "auto"
        Number of centres t, at most n; "auto" is :math:`\sqrt n`, rounded, between 2 and 512. There are fewer
        components if all objects already lie at distance 0 from a centre.
    max_component_size : int or None, default=None
        Larger components are split by the same sweep inside them, again and again; that adds components.
    first : int or None, default=None
        First centre. None takes object ``n // 2``, or a random one if ``random_state`` is given.
    random_state : int, Generator, RandomState or None, default=None
        Draws the first centre.
    metric_kwargs : mapping or None, default=None
        Parameters of the metric.

    Returns
    -------
    Forest
        Components, trees and centres.

    Raises
    ------
    TypeError
        If a parameter is of another type.
    ValueError
        If ``n_components`` or ``first`` is out of range, or the objects or distances are not valid.

    Notes
    -----
    n t distances for the sweep and :math:`\sum_i |P_i| (|P_i| - 1) / 2` for the trees; a component of nearly
    all objects costs as much as the exact tree, so look at ``component_sizes``.

    References
    ----------
    Veldt et al., Approximate Forest Completion and Learning-Augmented Algorithms for Metric Minimum Spanning
    Trees, ICML 2025, arXiv:2502.12993: the initial forest of its experiments.

    Gonzalez, Clustering to minimize the maximum intercluster distance, Theoretical Computer Science 38, 1985.

    Examples
    --------
    >>> forest = kcenter_forest(["cat", "cart", "dog", "dig"], "levenshtein", 2)
    >>> forest.labels.tolist(), forest.centres.tolist(), forest.weight
    ([1, 1, 0, 0], [2, 1], 2.0)
    """
    distances = open_distances(X, metric, metric_kwargs)
    partition = partition_objects(
        distances, n_components, max_component_size, first, random_state, keep=False
    )
    return plant(distances, partition.labels, partition.centres)


def partition_objects(
    distances: Distances,
    n_components: int | str,
    max_component_size: int | None,
    first: int | None,
    random_state: int | np.random.Generator | np.random.RandomState | None,
    *,
    keep: bool,
) -> Partition:
    """Farthest-first sweep with its parameters checked.

    Parameters
    ----------
    distances : Distances
        Rows of all n objects.
    n_components, max_component_size, first, random_state
        As for :func:`kcenter_forest`.
    keep : bool
        Whether to keep the rows for step 3, as far as they fit into 2**26 numbers.

    Returns
    -------
    Partition
        Labels 0 to t - 1 in the order of the centres.
    """
    n = distances.size
    if isinstance(n_components, str):
        if n_components != "auto":
            raise ValueError(f"n_components must be an integer or 'auto', got {n_components!r}")
        t = min(n, max(2, min(_AUTO_LARGEST, round(math.sqrt(n)))))
    else:
        t = check_integer("n_components", n_components, minimum=1, maximum=n)
    if max_component_size is not None:
        max_component_size = check_integer("max_component_size", max_component_size, minimum=1)
    if first is None:
        first = n // 2 if random_state is None else int(as_generator(random_state).integers(n))
    else:
        first = check_integer("first", first, minimum=0, maximum=n - 1)
    sweep = _Sweep(distances, keep=keep and t * n <= _KEPT_ENTRIES)
    sweep.add(first)
    while len(sweep.centres) < t and sweep.reach[sweep.reach.argmax()] > 0:
        sweep.add(int(sweep.reach.argmax()))
    if max_component_size is not None:
        _split(sweep, max_component_size)
    return Partition(sweep.labels, np.array(sweep.centres), sweep.rows)


class _Sweep:
    """Centres so far, and each object's own centre and distance to it."""

    def __init__(self, distances: Distances, *, keep: bool) -> None:
        n = distances.size
        self.distances = distances
        self.labels = np.zeros(n, dtype=np.int64)
        self.reach = np.full(n, np.inf)
        self.centres: list[int] = []
        self.rows: dict[int, NDArray[np.float32]] = {}
        self._keep = keep

    def add(self, centre: int, among: NDArray[np.int64] | None = None) -> None:
        """Make an object a centre; of the objects ``among``, or of all, those nearer to it change over."""
        row = self.distances.row(centre)
        row[centre] = 0.0
        closer = row < self.reach
        nearer = np.flatnonzero(closer) if among is None else among[closer[among]]
        self.labels[nearer] = len(self.centres)
        self.reach[nearer] = row[nearer]
        self.centres.append(centre)
        # Outside single precision's range a kept row would compare wrongly; it is computed again instead.
        fits = 1e-30 < row[row.argmax()] < 1e38 and (len(self.rows) + 1) * len(row) <= _KEPT_ENTRIES
        if self._keep and fits:
            self.rows[centre] = row.astype(np.float32)

    def cut(self, members: NDArray[np.int64], largest: int) -> None:
        """Cut a component by the distance to its centre; the nearest stay with it. Costs no row."""
        own = int(self.labels[members[0]])
        others = members[members != self.centres[own]]
        others = others[np.argsort(self.reach[others], kind="stable")]
        for start in range(largest - 1, len(others), largest):
            part = others[start : start + largest]
            self.labels[part] = len(self.centres)
            self.centres.append(int(part[0]))


def _split(sweep: _Sweep, largest: int) -> None:
    """Sweep again inside each component that is too large, until none is."""
    n = len(sweep.labels)
    # Where all distances are alike a new centre draws only itself: without an end to that, the coarse graph
    # of step 3 would have nearly as many vertices as there are objects.
    most = max(_SPLIT_LARGEST, 4 * (len(sweep.centres) + math.ceil(n / largest)))
    oversized = [
        np.flatnonzero(sweep.labels == k) for k in np.flatnonzero(np.bincount(sweep.labels) > largest)
    ]
    while oversized:
        members = oversized.pop()
        own, before = int(sweep.labels[members[0]]), len(sweep.centres)
        for _ in range(math.ceil(len(members) / largest) - 1):
            farthest = int(members[sweep.reach[members].argmax()])
            if sweep.reach[farthest] == 0 or len(sweep.centres) >= most:
                break
            sweep.add(farthest, members)
        if len(sweep.centres) == before:
            sweep.cut(members, largest)
            continue
        parts = sweep.labels[members]
        for k in (own, *range(before, len(sweep.centres))):
            part = members[parts == k]
            if len(part) > largest:
                oversized.append(part)


def plant(
    distances: Distances, labels: NDArray[np.int64], centres: NDArray[np.int64] | None = None
) -> Forest:
    """Exact minimum spanning tree in each component.

    Parameters
    ----------
    distances : Distances
        Rows of all n objects.
    labels : ndarray of int64, shape (n,)
        Components 0 to t - 1.
    centres : ndarray of int64, shape (t,), or None
        Carried along.

    Returns
    -------
    Forest
        The forest; exactly ``sum(s * (s - 1) / 2)`` distances for components of sizes ``s``.
    """
    members = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
    trees = [minimum_spanning_edges(distances, component) for component in members]
    edges = np.concatenate([tree[0] for tree in trees])
    return Forest(labels, edges, np.concatenate([tree[1] for tree in trees]), centres)


def minimum_spanning_edges(
    distances: Distances, members: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Minimum spanning tree of some objects by Prim's algorithm, without a matrix.

    Parameters
    ----------
    distances : Distances
        Their distances.
    members : ndarray of int, shape (m,)
        The objects.

    Returns
    -------
    edges : ndarray of int64, shape (m - 1, 2)
        Edges in the order in which they join the tree.
    weights : ndarray of float64, shape (m - 1,)
        Their lengths.

    Notes
    -----
    The row of each new object goes only to the objects not yet in the tree: m (m - 1) / 2 distances, O(m)
    memory beside the copy of the objects.
    """
    m = len(members)
    outside = distances.take(members[1:])
    shortest, inner_end = np.full(m - 1, np.inf), np.empty(m - 1, dtype=np.int64)
    newest = int(members[0])
    # Lists: a step of a small component takes microseconds, of which writing to an array would be a tenth.
    inner: list[int] = []
    outer: list[int] = []
    weights: list[float] = []
    while outside.size:
        row, low, end = outside.row(newest), shortest[: outside.size], inner_end[: outside.size]
        np.putmask(end, row < low, newest)
        np.minimum(low, row, out=low)
        place = low.argmin()
        newest = int(outside.ids[place])
        inner.append(int(end[place]))
        outer.append(newest)
        weights.append(float(low[place]))
        low[place], end[place] = low[-1], end[-1]
        outside.drop(int(place))
    return np.array([inner, outer], dtype=np.int64).T.reshape(-1, 2), np.array(weights)


def forest_of(distances: Distances, forest: Any) -> Forest:
    """Forest from what the user gives as one.

    Parameters
    ----------
    distances : Distances
        Rows of all n objects.
    forest : Forest, array-like of int with shape (n,), or sparse matrix
        A forest; labels, whose components then get their exact trees; or an adjacency matrix whose stored
        entries, zeros too, are the edges.

    Returns
    -------
    Forest
        The forest, checked.
    """
    n = distances.size
    if isinstance(forest, Forest):
        if len(forest.labels) != n:
            raise ValueError(f"forest must label each of {n} objects, got {len(forest.labels)} labels")
        return forest
    if sparse.issparse(forest):
        matrix: Any = forest
        if matrix.shape != (n, n):
            raise ValueError(f"forest must have shape ({n}, {n}) as a matrix, got {matrix.shape}")
        stored = matrix.tocoo()
        weights = check_array("forest", stored.data, ndim=1, min_length=0)
        if (weights < 0).any():
            raise ValueError(f"forest must have lengths of at least 0, got {weights.min()}")
        pairs = np.sort(np.column_stack([stored.row, stored.col]).astype(np.int64), axis=1)
        if (pairs[:, 0] == pairs[:, 1]).any():
            raise ValueError("forest must not join an object with itself")
        edges, where, back = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        if (weights != weights[where][back.ravel()]).any():
            raise ValueError("forest must give an edge the same weight in both directions")
        t, labels = _components(n, edges)
        if len(edges) != n - t:
            raise ValueError(f"forest must have no cycle, got {len(edges)} edges in {t} components of {n}")
        return Forest(labels, edges, weights[where])
    labels = _integers("forest", forest, ndim=1)
    if len(labels) != n:
        raise ValueError(f"forest must label each of {n} objects, got {len(labels)} labels")
    return plant(distances, np.unique(labels, return_inverse=True)[1].ravel().astype(np.int64))


def _components(n: int, edges: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
    # Ones, whatever the lengths: scipy.sparse.csgraph would take an edge of length 0 for none.
    ones = np.ones(len(edges), dtype=np.int8)
    graph = sparse.csr_array((ones, (edges[:, 0], edges[:, 1])), shape=(n, n))
    t, labels = csgraph.connected_components(graph, directed=False)
    return int(t), labels.astype(np.int64)


def _integers(name: str, value: Any, ndim: int = 2) -> NDArray[np.int64]:
    array = check_array(name, value, ndim=ndim, dtype=None, min_length=0 if ndim == 2 else 1)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers, got {array.dtype}")
    return array.astype(np.int64)
