"""What the algorithm delivers: a spanning tree with its parts, its cost and its guarantee."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

if TYPE_CHECKING:
    import polars as pl

__all__ = ["COMPLETION_FACTOR", "MSTResult", "find_root", "gamma"]

COMPLETION_FACTOR: Final = (3 + math.sqrt(5)) / 2
"""Factor of MFC-Approx against the best completion of the same forest, as the paper proves it."""

_TIE: Final = 1e-12


@dataclass(frozen=True, eq=False)
class MSTResult:
    """A spanning tree that completes a forest.

    Parameters
    ----------
    edges : ndarray of int64, shape (n - 1, 2)
        The tree: first the n - t edges of the forest, then the t - 1 that join its components.
    weights : ndarray of float64, shape (n - 1,)
        Lengths of the edges; zeros are kept.
    labels : ndarray of int64, shape (n,)
        Component of each object in the forest.
    n_distance_evaluations : int
        Distances that were computed, counted one by one; the (at most 40) of the check whether a metric of
        the user's own is symmetric are among them.
    timings : mapping of str to float
        Seconds of each phase: ``partition``, ``forest``, ``completion``.

    Examples
    --------
    >>> from theses.graphs.metric_mst import exact_mst
    >>> tree = exact_mst([[0.0], [2.0], [3.0]])
    >>> tree.total_weight, tree.n_distance_evaluations
    (3.0, 3)
    """

    edges: NDArray[np.int64]
    weights: NDArray[np.float64]
    labels: NDArray[np.int64]
    n_distance_evaluations: int
    timings: Mapping[str, float] = field(default_factory=dict)

    @property
    def n_objects(self) -> int:
        """Number n of objects."""
        return len(self.labels)

    @property
    def component_sizes(self) -> NDArray[np.int64]:
        """Number of objects in each component of the forest, shape (t,)."""
        return np.bincount(self.labels)

    @property
    def is_forest_edge(self) -> NDArray[np.bool_]:
        """Which edges come from the forest, shape (n - 1,)."""
        return np.arange(len(self.edges)) < self.n_objects - len(self.component_sizes)

    @property
    def total_weight(self) -> float:
        """Weight of the tree, summed without rounding."""
        return math.fsum(self.weights)

    @property
    def forest_weight(self) -> float:
        """Weight of the forest's edges."""
        return math.fsum(self.weights[self.is_forest_edge])

    @property
    def completion_weight(self) -> float:
        """Weight of the edges that join the components."""
        return math.fsum(self.weights[~self.is_forest_edge])

    @property
    def evaluation_share(self) -> float:
        """Distances computed, as a share of all n (n - 1) / 2."""
        n = self.n_objects
        return self.n_distance_evaluations / (n * (n - 1) / 2) if n > 1 else 0.0

    @property
    def tree(self) -> sparse.csr_array:
        """The tree as a sparse matrix of shape (n, n), each edge once, above the diagonal.

        Edges of length 0 are stored entries; ``scipy.sparse.csgraph`` would drop them.
        """
        low, high = self.edges.min(axis=1, initial=self.n_objects), self.edges.max(axis=1, initial=-1)
        return sparse.csr_array((self.weights, (low, high)), shape=(self.n_objects, self.n_objects))

    def summary(self) -> str:
        """Text for people: weight, its parts, cost and guarantee.

        Returns
        -------
        str
            A few lines.
        """
        sizes = self.component_sizes
        n = self.n_objects
        lines = [
            f"spanning tree of {n} objects, weight {self.total_weight:.6g}",
            f"  forest of {len(sizes)} components {self.forest_weight:.6g}, "
            f"completion {self.completion_weight:.6g}",
            f"  component sizes: median {np.median(sizes):.6g}, largest {sizes.max()} "
            f"({sizes.max() / n:.1%} of all)",
            f"  distances computed: {self.n_distance_evaluations} of {n * (n - 1) // 2} "
            f"({self.evaluation_share:.2%})",
            f"  at most {COMPLETION_FACTOR:.3f} times the best completion of this forest",
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain mapping of everything but the edges.

        Returns
        -------
        dict
            Weights, counts, sizes and timings.
        """
        return {
            "n_objects": self.n_objects,
            "total_weight": self.total_weight,
            "forest_weight": self.forest_weight,
            "completion_weight": self.completion_weight,
            "completion_factor": COMPLETION_FACTOR,
            "n_distance_evaluations": self.n_distance_evaluations,
            "evaluation_share": self.evaluation_share,
            "component_sizes": self.component_sizes.tolist(),
            "timings": dict(self.timings),
        }

    def to_frame(self) -> pl.DataFrame:
        """Table of the edges.

        Returns
        -------
        polars.DataFrame
            Columns ``i``, ``j``, ``weight``, and ``part``, which is forest or completion.
        """
        import polars as pl

        part = np.where(self.is_forest_edge, "forest", "completion")
        return pl.DataFrame(
            {
                "i": self.edges[:, 0],
                "j": self.edges[:, 1],
                "weight": self.weights,
                "part": part.astype(object),
            },
            schema={"i": pl.Int64, "j": pl.Int64, "weight": pl.Float64, "part": pl.String},
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tree to a ``.npz`` file, whole or not at all.

        Parameters
        ----------
        path : path-like
            The file.
        """
        target = Path(path)
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".npz", delete=False) as stream:
            try:
                np.savez_compressed(
                    stream,
                    edges=self.edges,
                    weights=self.weights,
                    labels=self.labels,
                    n_distance_evaluations=self.n_distance_evaluations,
                    phases=np.array(list(self.timings), dtype=str),
                    seconds=np.array(list(self.timings.values()), dtype=float),
                )
            except BaseException:
                Path(stream.name).unlink()
                raise
        Path(stream.name).replace(target)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MSTResult:
        """Read a tree that :meth:`save` wrote; nothing in the file is executed.

        Parameters
        ----------
        path : path-like
            The file.

        Returns
        -------
        MSTResult
            The same tree.
        """
        with np.load(path, allow_pickle=False) as stored:
            timings = dict(zip(stored["phases"].tolist(), stored["seconds"].tolist(), strict=True))
            return cls(
                stored["edges"],
                stored["weights"],
                stored["labels"],
                int(stored["n_distance_evaluations"]),
                timings,
            )


def find_root(parent: list[int], i: int) -> int:
    """Root of ``i`` in a union-find forest, with path halving."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


def gamma(result: MSTResult, exact: MSTResult) -> float:
    r"""How far the forest is from one that a minimum spanning tree contains.

    .. math:: \gamma = \frac{\sum_i w(T_i)}{\sum_{e \in M,\ e \text{ inside a component}} w(e)},

    with M a minimum spanning tree that has, of all, the most weight inside components. The tree of
    :func:`~theses.graphs.metric_mst.approximate_mst` then weighs at most :math:`(2\gamma + 1) w(M)`.

    Parameters
    ----------
    result : MSTResult
        Completion of a forest.
    exact : MSTResult
        Exact tree of the same objects.

    Returns
    -------
    float
        At least 1 if each tree of the forest is a minimum spanning tree of its component; 1 if neither the
        forest nor the tree has weight inside components, infinite if only the tree has none.

    Raises
    ------
    TypeError
        If either is no :class:`MSTResult`.
    ValueError
        If they are of different numbers of objects.

    Notes
    -----
    Kruskal's algorithm over the edges of both, by weight and among equals inside first, O(n log n). That is
    enough for the most inside weight: what the edges inside a component connect up to some length, its
    minimum spanning tree connects as well. Weights that differ by less than 1e-12 of themselves count as
    equal, since the same distance may be rounded differently in two rows.

    References
    ----------
    Veldt et al., arXiv:2502.12993: the quality parameter gamma of an initial forest.

    Examples
    --------
    >>> from theses.graphs.metric_mst import approximate_mst, exact_mst
    >>> points = [[0.0], [1.0], [5.0], [6.0]]
    >>> gamma(approximate_mst(points, n_components=2), exact_mst(points))
    1.0
    """
    for name, value in (("result", result), ("exact", exact)):
        if not isinstance(value, MSTResult):
            raise TypeError(f"{name} must be an MSTResult, got {type(value).__name__}")
    if result.n_objects != exact.n_objects:
        raise ValueError(
            f"exact must be of the same objects as result, got {exact.n_objects} and {result.n_objects}"
        )
    planted = result.is_forest_edge
    edges = np.concatenate([result.edges[planted], exact.edges])
    weights = np.concatenate([result.weights[planted], exact.weights])
    inside = result.labels[edges[:, 0]] == result.labels[edges[:, 1]]
    rising = np.argsort(weights, kind="stable")
    step = np.diff(weights[rising], prepend=weights[rising][:1]) > _TIE * weights[rising]
    rank = np.empty(len(weights), dtype=np.int64)
    rank[rising] = np.cumsum(step)
    order = np.lexsort((~inside, rank))
    parent = list(range(result.n_objects))
    within = []
    pairs, flags = edges[order].tolist(), inside[order].tolist()
    for (i, j), flag, weight in zip(pairs, flags, weights[order].tolist(), strict=True):
        root, other = find_root(parent, i), find_root(parent, j)
        if root != other:
            parent[root] = other
            if flag:
                within.append(weight)
    forest_weight, inside_weight = result.forest_weight, math.fsum(within)
    if inside_weight == 0:
        return 1.0 if forest_weight == 0 else math.inf
    return forest_weight / inside_weight
