"""Single linkage from a spanning tree: the hierarchy, and clusters as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import validate_data

from theses.graphs.metric_mst.completion import approximate_mst
from theses.graphs.metric_mst.metrics import METRICS, Metric
from theses.graphs.metric_mst.result import MSTResult, find_root
from theses.validation import check_integer, check_real

__all__ = ["ForestCompletionSingleLinkage", "mst_to_linkage"]

_NO_VECTORS = ("jaccard_sets", "levenshtein", "hamming_str")


def mst_to_linkage(result: MSTResult) -> NDArray[np.float64]:
    """Single-linkage hierarchy of a spanning tree, in SciPy's format.

    Parameters
    ----------
    result : MSTResult
        A spanning tree.

    Returns
    -------
    ndarray of float64, shape (n - 1, 4)
        One merge a row, by rising length of the edge that causes it: the two clusters (the smaller number
        first; ``n + k`` is what row k made), the length, and the number of objects in the new cluster. As
        ``scipy.cluster.hierarchy`` takes it, such as ``fcluster`` or ``dendrogram``.

    Raises
    ------
    TypeError
        If ``result`` is no :class:`~theses.graphs.metric_mst.MSTResult`.

    Notes
    -----
    O(n log n), by sorting the edges and union-find.

    References
    ----------
    Gower and Ross, Minimum spanning trees and single linkage cluster analysis, Applied Statistics 18, 1969.

    Examples
    --------
    >>> from theses.graphs.metric_mst import exact_mst
    >>> mst_to_linkage(exact_mst([[0.0], [5.0], [6.0]]))
    array([[1., 2., 1., 2.],
           [0., 3., 5., 3.]])
    """
    if not isinstance(result, MSTResult):
        raise TypeError(f"result must be an MSTResult, got {type(result).__name__}")
    n = result.n_objects
    order = np.argsort(result.weights, kind="stable")
    parent, size = list(range(2 * n - 1)), [1] * n
    merges = []
    for i, j in result.edges[order].tolist():
        a, b = sorted((find_root(parent, i), find_root(parent, j)))
        parent[a] = parent[b] = len(size)
        size.append(size[a] + size[b])
        merges.append((a, b))
    linkage = np.empty((n - 1, 4))
    linkage[:, :2] = np.array(merges, dtype=np.float64).reshape(-1, 2)
    linkage[:, 2] = result.weights[order]
    linkage[:, 3] = size[n:]
    return linkage


class ForestCompletionSingleLinkage(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Single-linkage clustering in any metric from an approximate minimum spanning tree.

    Like ``AgglomerativeClustering(linkage="single")``, without all pairs of distances.

    Parameters
    ----------
    n_clusters : int or None, default=2
        Number of clusters; None if ``distance_threshold`` is given.
    distance_threshold : float or None, default=None
        Clusters this far apart or farther are not merged; needs ``n_clusters=None``.
    metric : str, callable or object with ``rows``, default="euclidean"
        The distance, as :func:`~theses.graphs.metric_mst.approximate_mst` takes it; for "levenshtein",
        "hamming_str", "jaccard_sets" and metrics of your own, ``X`` may be any sequence of objects.
    n_components : int or "auto", default="auto"
        Components of the initial forest; a number larger than that of the samples is cut to it.
    n_representatives : int or sequence of int, default=1
        Representatives of each component.
    max_component_size : int or None, default=None
        Split larger components.
    random_state : int, RandomState or None, default=None
        Draws the first centre; None takes the middle sample.
    metric_kwargs : dict or None, default=None
        Parameters of the metric.

    Attributes
    ----------
    labels_ : ndarray of int64, shape (n_samples,)
        Cluster of each sample, numbered by first appearance.
    n_clusters_ : int
        Number of clusters.
    n_leaves_ : int
        Number of samples.
    n_connected_components_ : int
        Always 1: the tree spans all samples.
    children_ : ndarray of int64, shape (n_samples - 1, 2)
        Merges, as in ``AgglomerativeClustering``.
    distances_ : ndarray of float64, shape (n_samples - 1,)
        Distance of each merge, rising.
    result_ : MSTResult
        The spanning tree.
    n_features_in_ : int
        Number of features, where ``X`` is an array.

    See Also
    --------
    sklearn.cluster.AgglomerativeClustering : Exact, needs all pairs in a general metric.

    References
    ----------
    Veldt et al., ICML 2025, arXiv:2502.12993.

    Examples
    --------
    >>> words = ["cat", "cart", "carts", "xylophone", "xylophones"]
    >>> ForestCompletionSingleLinkage(metric="levenshtein").fit(words).labels_.tolist()
    [0, 0, 0, 1, 1]
    """

    def __init__(
        self,
        n_clusters: int | None = 2,
        *,
        distance_threshold: float | None = None,
        metric: Metric = "euclidean",
        n_components: int | str = "auto",
        n_representatives: int | Sequence[int] = 1,
        max_component_size: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        metric_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.distance_threshold = distance_threshold
        self.metric = metric
        self.n_components = n_components
        self.n_representatives = n_representatives
        self.max_component_size = max_component_size
        self.random_state = random_state
        self.metric_kwargs = metric_kwargs

    def fit(self, X: Any, y: Any = None) -> ForestCompletionSingleLinkage:
        """Grow the tree and cut it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or sequence of objects
            The samples; the square matrix of distances for metric "precomputed".
        y : None
            Ignored.

        Returns
        -------
        ForestCompletionSingleLinkage
            Itself.

        Raises
        ------
        ValueError
            If not exactly one of ``n_clusters`` and ``distance_threshold`` is given, either is out of range,
            or the samples or distances are not valid.
        """
        if (self.n_clusters is None) == (self.distance_threshold is None):
            raise ValueError(
                "exactly one of n_clusters and distance_threshold must be given, "
                f"got {self.n_clusters} and {self.distance_threshold}"
            )
        threshold = None
        if self.distance_threshold is not None:
            threshold = check_real("distance_threshold", self.distance_threshold, minimum=0)
        if isinstance(self.metric, str) and self.metric in METRICS and self.metric not in _NO_VECTORS:
            try:
                X = validate_data(self, X, ensure_min_samples=2, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise type(error)(f"X is not valid: {error}") from None
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        if n < 2:
            raise ValueError(f"X must have at least 2 samples, got {n}")
        if self.n_clusters is not None:
            check_integer("n_clusters", self.n_clusters, minimum=1, maximum=n)
        n_components = self.n_components
        if isinstance(n_components, Integral):
            n_components = min(int(n_components), n)
        self.result_ = approximate_mst(
            X,
            self.metric,
            n_components=n_components,
            n_representatives=self.n_representatives,
            max_component_size=self.max_component_size,
            random_state=self.random_state,
            metric_kwargs=self.metric_kwargs,
        )
        linkage = mst_to_linkage(self.result_)
        self.children_ = linkage[:, :2].astype(np.int64)
        self.distances_ = linkage[:, 2].copy()
        self.n_leaves_ = n
        self.n_connected_components_ = 1
        if threshold is None:
            self.n_clusters_ = int(self.n_clusters or 1)
        else:
            self.n_clusters_ = n - int(np.searchsorted(self.distances_, threshold))
        self.labels_ = _cut(self.result_, n - self.n_clusters_)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.metric, str) and self.metric == "precomputed"
        tags.input_tags.string = isinstance(self.metric, str) and self.metric in (
            "levenshtein",
            "hamming_str",
        )
        return tags


def _cut(result: MSTResult, n_merges: int) -> NDArray[np.int64]:
    """Clusters after the shortest ``n_merges`` edges, numbered by first appearance."""
    from scipy.sparse import csgraph

    n = result.n_objects
    kept = result.edges[np.argsort(result.weights, kind="stable")[:n_merges]]
    ones = np.ones(n_merges, dtype=np.int8)
    graph = sparse.csr_array((ones, (kept[:, 0], kept[:, 1])), shape=(n, n))
    labels = csgraph.connected_components(graph, directed=False)[1]
    first, inverse = np.unique(labels, return_index=True, return_inverse=True)[1:]
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)
