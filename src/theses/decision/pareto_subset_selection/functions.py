"""Monotone set functions, evaluated step by step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from theses.problems.coverage import Graph, live_edges, pack, pack_sets, spread, unpack
from theses.validation import as_generator, check_array, check_choice, check_integer

__all__ = [
    "Evaluator",
    "FacilityLocation",
    "FeatureSelection",
    "InfluenceMaximization",
    "MaxCoverage",
    "SetFunction",
]

State = TypeVar("State")
RandomState = int | np.random.Generator | np.random.RandomState | np.random.SeedSequence | None

_FEW_WEIGHTS = 16  # up to so many distinct weights, one masked count for each beats unpacking all bits


class Evaluator(Protocol[State]):
    """A set function one item at a time; states are never changed in place.

    ``costly`` says that an evaluation is worth being remembered by its set.
    """

    costly: bool

    def empty(self) -> State:
        """State of the empty set.

        Returns
        -------
        State
            Whatever the function needs to know of a set.
        """
        ...

    def add(self, state: State, item: int) -> State:
        """State of a set with one more item.

        Parameters
        ----------
        state : State
            That of the set.
        item : int
            Number of the item.

        Returns
        -------
        State
            A new state.
        """
        ...

    def value(self, state: State) -> float:
        """Value of a state's set.

        Parameters
        ----------
        state : State
            That of the set.

        Returns
        -------
        float
            The value.
        """
        ...


@runtime_checkable
class SetFunction(Protocol):
    """What the algorithms maximise: monotone, 0 on the empty set.

    Only ``n`` and ``value`` are needed. A method ``evaluator() -> Evaluator`` makes the search fast; an
    attribute ``submodular = False`` says that the guarantees do not apply.
    """

    n: int

    def value(self, mask: Any) -> float:
        """Value of a set.

        Parameters
        ----------
        mask : n truth values
            Which items belong to it.

        Returns
        -------
        float
            The value.
        """
        ...


class _PlainEvaluator:
    """Evaluator of a function of which only ``value`` is known: the state is the set."""

    costly = True

    def __init__(self, f: SetFunction) -> None:
        self._f, self._n = f, f.n

    def empty(self) -> int:
        return 0

    def add(self, state: int, item: int) -> int:
        return state | (1 << item)

    def value(self, state: int) -> float:
        value = float(self._f.value(unpack(state, self._n)))
        if not math.isfinite(value):
            raise ValueError(f"f must return finite values, got {value} for the items {list(_items(state))}")
        return value


def evaluator_of(f: SetFunction) -> Evaluator[Any]:
    """Evaluator of a set function, its own where it has one."""
    own = getattr(f, "evaluator", None)
    return cast(Evaluator[Any], own()) if callable(own) else _PlainEvaluator(f)


def check_function(f: Any) -> int:
    """Number of items of a set function."""
    if not isinstance(f, SetFunction):
        raise TypeError(f"f must have n and value(mask), as MaxCoverage has, got {type(f).__name__}")
    return check_integer("f.n", f.n, minimum=0)


def check_mask(name: str, mask: Any, n: int) -> NDArray[np.bool_]:
    """A set of n items as truth values."""
    flags = check_array(name, mask, ndim=1, dtype=None, min_length=0)
    if flags.shape != (n,):
        raise ValueError(f"{name} must have one entry for each of the {n} items, got shape {flags.shape}")
    if flags.dtype.kind != "b" and not np.isin(flags, (0, 1)).all():
        raise ValueError(f"{name} must hold truth values, got {flags[~np.isin(flags, (0, 1))][0]}")
    return flags.astype(bool)


def build(evaluator: Evaluator[State], bits: int, start: State | None = None) -> State:
    """State of a set given as a bitset, from that of the empty set or of another one that it is added to."""
    state = evaluator.empty() if start is None else start
    for item in _items(bits):
        state = evaluator.add(state, item)
    return state


def _items(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


class _Function(Generic[State]):
    """What the functions here share: ``value`` and ``gains`` by way of the evaluator."""

    n: int

    def evaluator(self) -> Evaluator[State]:
        """Evaluator that adds one item at a time.

        Returns
        -------
        Evaluator
            Its states are never changed in place.
        """
        raise NotImplementedError

    def value(self, mask: ArrayLike) -> float:
        """Value of a set.

        Parameters
        ----------
        mask : array-like of bool, shape (n,)
            Which items belong to it.

        Returns
        -------
        float
            Its value, at least 0.
        """
        evaluator = self.evaluator()
        return evaluator.value(build(evaluator, pack(check_mask("mask", mask, self.n))))

    def gains(self, mask: ArrayLike) -> NDArray[np.float64]:
        """What each item would add to a set.

        Parameters
        ----------
        mask : array-like of bool, shape (n,)
            The set.

        Returns
        -------
        ndarray, shape (n,)
            Gains, 0 for the items that it has.
        """
        evaluator = self.evaluator()
        state = build(evaluator, pack(check_mask("mask", mask, self.n)))
        here = evaluator.value(state)
        return np.array([evaluator.value(evaluator.add(state, v)) - here for v in range(self.n)])


class _UnionEvaluator:
    """Weighted coverage: the state is the union, a bitset."""

    costly = False

    def __init__(self, sets: Sequence[int], weights: NDArray[np.float64] | None, scale: float) -> None:
        self._sets, self._scale = sets, scale
        self._classes: list[tuple[float, int]] = []
        self._weights: NDArray[np.float64] | None = None
        if weights is not None:
            levels, which = np.unique(weights, return_inverse=True)
            if len(levels) <= _FEW_WEIGHTS:
                self._classes = [(float(level), pack(which == i)) for i, level in enumerate(levels) if level]
            else:
                self._weights = weights
        # The attribute hides the method: with equal weights nothing but the count is left of it.
        if weights is None and scale == 1:
            self.value = int.bit_count  # type: ignore[method-assign,assignment]

    def empty(self) -> int:
        return 0

    def add(self, state: int, item: int) -> int:
        return state | self._sets[item]

    def value(self, state: int) -> float:
        if self._weights is not None:
            return float(self._weights @ unpack(state, len(self._weights)))
        if self._classes:
            return sum(weight * (state & places).bit_count() for weight, places in self._classes)
        return self._scale * state.bit_count()


class MaxCoverage(_Function[int]):
    r"""Weighted coverage, :math:`f(X) = \sum_{e \in \bigcup_{v \in X} S_v} w_e`.

    Parameters
    ----------
    sets : sequence of collections of int, or sparse matrix of shape (n, n_elements)
        Elements that each item covers: their numbers from 0, or the places of the matrix that are not 0. An
        item may cover nothing.
    weights : array-like, shape (n_elements,), or None, default=None
        Weights of the elements, at least 0; None gives each the weight 1.

    Raises
    ------
    TypeError
        If an element is no integer.
    ValueError
        If there is no item, an element or a weight is negative, or an element has no weight.

    Notes
    -----
    A set is a bitset; to add an item costs O(n_elements / 30) operations of one Python integer, and so does
    the value with up to 16 distinct weights. With more it costs O(n_elements).

    References
    ----------
    Pareto optimisation for subset selection with a linear cost constraint, Section 2 (maximum coverage).

    Examples
    --------
    >>> f = MaxCoverage([[0, 1], [1, 2, 3], [3]], weights=[5, 1, 1, 1])
    >>> f.value([True, False, True]), f.gains([True, False, False]).tolist()
    (7.0, [0.0, 2.0, 1.0])
    """

    submodular = True

    def __init__(self, sets: Any, weights: Any = None) -> None:
        if sparse.issparse(sets):
            rows = cast(Any, sets).tocsr()
            if 0 in rows.shape:
                raise ValueError(f"sets must not be empty, got shape {rows.shape}")
            if not np.isfinite(rows.data).all():
                raise ValueError("sets must be finite, got NaN or infinity among the entries")
            rows.eliminate_zeros()
            sets = np.split(rows.indices, rows.indptr[1:-1])
        elif isinstance(sets, (str, bytes)) or not isinstance(sets, (Sequence, np.ndarray)):
            raise TypeError(f"sets must be a sequence of collections of int, got {type(sets).__name__}")
        if len(sets) == 0:
            raise ValueError("sets must have at least one item, got none")
        self.n = len(sets)
        self.bitsets = pack_sets(sets)
        self.n_elements = max(bits.bit_length() for bits in self.bitsets)
        self.weights: NDArray[np.float64] | None = None
        if weights is not None:
            w = check_array("weights", weights, ndim=1)
            if len(w) < self.n_elements:
                raise ValueError(
                    f"weights must have an entry for each of the {self.n_elements} elements, got {len(w)}"
                )
            if (w < 0).any():
                raise ValueError(f"weights must be at least 0, got {w.min()}")
            self.weights, self.n_elements = w, len(w)
        self._scale = 1.0

    @property
    def element_weights(self) -> NDArray[np.float64]:
        """Weight of each element, shape (n_elements,)."""
        return np.full(self.n_elements, self._scale) if self.weights is None else self.weights

    def evaluator(self) -> Evaluator[int]:
        """Evaluator whose state is the union of the sets, a bitset.

        Returns
        -------
        Evaluator
            Of states that are integers.
        """
        return _UnionEvaluator(self.bitsets, self.weights, self._scale)


class InfluenceMaximization(MaxCoverage):
    r"""Expected number of nodes that hear of something told to a set of nodes, estimated once for all sets.

    In the independent cascade model a node that hears passes the news along each of its arcs with probability
    p, once. Both estimates are coverage functions of samples that are drawn at construction, so that they are
    monotone and submodular without noise: ``"ris"`` counts the random reverse-reachable sets that are hit,
    :math:`n \, |\{i : X \cap R_i \ne \emptyset\}| / n_{rr}`; ``"mc"`` averages what is reached in sampled
    live-edge graphs.

    Parameters
    ----------
    graph : Graph
        The network; an undirected edge passes news both ways, independently.
    p : float or array-like of shape (n_arcs,), default=0.05
        Probability of each arc, in [0, 1]; an array goes by ``graph.arcs()``.
    method : {"ris", "mc"}, default="ris"
        Which estimate.
    n_rr : int, default=20000
        Reverse-reachable sets of ``"ris"``.
    n_sim : int, default=500
        Live-edge graphs of ``"mc"``.
    random_state : int, Generator, RandomState, SeedSequence or None, default=None
        Source of randomness.

    Raises
    ------
    TypeError
        If ``graph`` is no Graph.
    ValueError
        If a probability is outside [0, 1], or ``p`` does not fit the arcs.

    Notes
    -----
    The search looks for what is large in these samples, so the value found is biased upwards: report
    :meth:`simulate`, which draws fresh cascades. O(n_arcs n_rr) time for the samples, O(n n_rr / 8) bytes for
    what is kept (``"mc"``: O(n^2 n_sim / 8)).

    References
    ----------
    Kempe, Kleinberg and Tardos, KDD 2003, Section 2; Borgs et al., Maximizing Social Influence in Nearly
    Optimal Time, SODA 2014, Section 3 (reverse-reachable sets).

    Examples
    --------
    >>> star = Graph(5, [[0, 1], [0, 2], [0, 3], [0, 4]])
    >>> f = InfluenceMaximization(star, p=0.5, n_rr=4000, random_state=0)
    >>> abs(f.value([True, False, False, False, False]) - 3) < 0.1
    True
    """

    def __init__(
        self,
        graph: Graph,
        p: Any = 0.05,
        method: str = "ris",
        n_rr: int = 20_000,
        n_sim: int = 500,
        *,
        random_state: RandomState = None,
    ) -> None:
        if not isinstance(graph, Graph):
            raise TypeError(f"graph must be a theses.problems.coverage.Graph, got {type(graph).__name__}")
        arcs = graph.arcs()
        probabilities = check_array("p", p, ndim=(0, 1), min_length=0)
        if probabilities.ndim == 0:
            probabilities = np.full(len(arcs), float(probabilities))
        if len(probabilities) != len(arcs):
            raise ValueError(
                f"p must have one entry for each of the {len(arcs)} arcs, got {len(probabilities)}"
            )
        if ((probabilities < 0) | (probabilities > 1)).any():
            raise ValueError(f"p must lie in [0, 1], got {probabilities.min()} to {probabilities.max()}")
        check_choice("method", method, ("ris", "mc"))
        n_rr = check_integer("n_rr", n_rr, minimum=1)
        n_sim = check_integer("n_sim", n_sim, minimum=1)
        rng = as_generator(random_state)
        if method == "ris":
            roots = rng.integers(graph.n, size=n_rr)
            start = [pack(roots == v) for v in range(graph.n)]
            # Sample i is one set: the nodes from which its root is reached.
            bitsets = spread(arcs[:, ::-1], live_edges(probabilities, n_rr, random_state=rng), start)
            scale = graph.n / n_rr
        else:
            live = live_edges(probabilities, n_sim, random_state=rng)
            bitsets, everywhere = [], (1 << n_sim) - 1
            for v in range(graph.n):
                start = [everywhere if u == v else 0 for u in range(graph.n)]
                # Element t n_sim + i: node t in graph i.
                reached = spread(arcs, live, start)
                bitsets.append(sum(bits << (t * n_sim) for t, bits in enumerate(reached)))
            scale = 1 / n_sim
        super().__init__([[]])
        self.bitsets, self.n, self._scale = bitsets, graph.n, scale
        self.n_elements = max(bits.bit_length() for bits in bitsets)
        self.graph, self.p = graph, probabilities

    def simulate(
        self, masks: ArrayLike, n_sim: int = 10_000, *, random_state: RandomState = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Influence of sets in fresh cascades, the same for all sets.

        Parameters
        ----------
        masks : array-like of bool, shape (n_sets, n) or (n,)
            The sets.
        n_sim : int, default=10000
            Number of cascades, at least 2.
        random_state : int, Generator, RandomState, SeedSequence or None, default=None
            Source of randomness.

        Returns
        -------
        means : ndarray, shape (n_sets,)
            Average number of nodes that hear.
        standard_errors : ndarray, shape (n_sets,)
            Standard errors of the averages.
        """
        n_sim = check_integer("n_sim", n_sim, minimum=2)
        rows = check_array("masks", masks, ndim=(1, 2), dtype=None)
        rows = rows[None] if rows.ndim == 1 else rows
        arcs = self.graph.arcs()
        live = live_edges(self.p, n_sim, random_state=random_state)
        everywhere = (1 << n_sim) - 1
        means, errors = np.empty(len(rows)), np.empty(len(rows))
        for i, row in enumerate(rows):
            start = [everywhere if flag else 0 for flag in check_mask("masks", row, self.n)]
            heard = np.zeros(n_sim)
            for bits in spread(arcs, live, start):
                heard += unpack(bits, n_sim)
            means[i], errors[i] = heard.mean(), heard.std(ddof=1) / math.sqrt(n_sim)
        return means, errors


class _MaximumEvaluator:
    """Facility location: the state is what each client gets."""

    costly = True

    def __init__(self, columns: NDArray[np.float64]) -> None:
        self._columns = columns

    def empty(self) -> NDArray[np.float64]:
        return np.zeros(self._columns.shape[1])

    def add(self, state: NDArray[np.float64], item: int) -> NDArray[np.float64]:
        better: NDArray[np.float64] = np.maximum(state, self._columns[item])
        return better

    def value(self, state: NDArray[np.float64]) -> float:
        return float(state.sum())


class FacilityLocation(_Function[NDArray[np.float64]]):
    r"""How well a set stands for all, :math:`f(X) = \sum_i \max_{v \in X} S_{iv}`.

    Parameters
    ----------
    S : array-like, shape (n_clients, n)
        Similarities of the clients to the items, at least 0.

    Raises
    ------
    ValueError
        If a similarity is negative or not finite.

    Notes
    -----
    To add an item costs O(n_clients).

    References
    ----------
    Krause and Golovin, Submodular Function Maximization, 2014, Section 1.

    Examples
    --------
    >>> FacilityLocation([[1.0, 0.2], [0.0, 0.9]]).value([True, True])
    1.9
    """

    submodular = True

    def __init__(self, S: Any) -> None:
        similarities = check_array("S", S, ndim=2)
        if (similarities < 0).any():
            raise ValueError(f"S must be at least 0, got {similarities.min()}")
        self.n = similarities.shape[1]
        self._columns = np.ascontiguousarray(similarities.T)

    def evaluator(self) -> Evaluator[NDArray[np.float64]]:
        """Evaluator whose state is what each client gets.

        Returns
        -------
        Evaluator
            Of states that are arrays of shape (n_clients,).
        """
        return _MaximumEvaluator(self._columns)


class _SquaresEvaluator:
    """Explained share of the targets' squares: the state is the set."""

    costly = True

    def __init__(self, gram: NDArray[np.float64], moments: NDArray[np.float64], total: float) -> None:
        self._gram, self._moments, self._total = gram, moments, total

    def empty(self) -> int:
        return 0

    def add(self, state: int, item: int) -> int:
        return state | (1 << item)

    def value(self, state: int) -> float:
        if not state or not self._total:
            return 0.0
        items = list(_items(state))
        moments = self._moments[items]
        gram = self._gram[np.ix_(items, items)]
        # Columns may repeat each other: the shortest solution still explains what can be explained.
        solution = np.linalg.lstsq(gram, moments, rcond=1e-10)[0]
        return min(max(float((moments * solution).sum()) / self._total, 0.0), 1.0)


class FeatureSelection(_Function[int]):
    r"""Share of the target's variance that least squares on a set of columns explains, :math:`R^2(X)`.

    It is monotone but in general not submodular: two columns may say together what neither says alone. The
    guarantees then shrink with the submodularity ratio (see :func:`check_submodular`).

    Parameters
    ----------
    X : array-like, shape (n_samples, n_features)
        Features; a constant is always fitted beside them.
    y : array-like, shape (n_samples,) or (n_samples, n_targets)
        Targets, whose explained squares are added up.
    criterion : {"r2"}, default="r2"
        What is maximised.

    Raises
    ------
    ValueError
        If lengths differ, or something is not finite.

    Notes
    -----
    O(n_samples n_features^2) once, then O(k^3) for k columns.

    References
    ----------
    Das and Kempe, Submodular meets Spectral, ICML 2011, Section 2.

    Examples
    --------
    >>> X = [[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]]
    >>> round(FeatureSelection(X, [0.0, 1.0, 2.0, 3.0]).value([True, False]), 6)
    1.0
    """

    submodular = False

    def __init__(self, X: Any, y: Any, criterion: str = "r2") -> None:
        check_choice("criterion", criterion, ("r2",))
        features = check_array("X", X, ndim=2, min_length=2)
        targets = check_array("y", y, ndim=(1, 2))
        if len(features) != len(targets):
            raise ValueError(
                f"X and y must have the same length, but X has {len(features)}, y has {len(targets)}"
            )
        targets = targets.reshape(len(targets), -1)
        features = features - features.mean(axis=0)
        scale = np.sqrt((features**2).sum(axis=0))
        # A constant column explains nothing; its rounding errors would.
        constant = scale <= 1e-12 * np.abs(np.asarray(X, dtype=np.float64)).max(axis=0) * len(features)
        features = np.where(constant, 0.0, features / np.where(constant, 1.0, scale))
        targets = targets - targets.mean(axis=0)
        self.n = features.shape[1]
        self._gram, self._moments = features.T @ features, features.T @ targets
        self._total = float((targets**2).sum())

    def evaluator(self) -> Evaluator[int]:
        """Evaluator whose state is the set, a bitset.

        Returns
        -------
        Evaluator
            Of states that are integers.
        """
        return _SquaresEvaluator(self._gram, self._moments, self._total)
