from __future__ import annotations

import copy
import itertools
import math
import sys
import tracemalloc
import warnings

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.cluster import hierarchy
from scipy.sparse import csgraph
from scipy.spatial.distance import cdist
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score, pairwise_distances

import theses.graphs.metric_mst.completion as completion_module
import theses.graphs.metric_mst.forest as forest_module
from tests.conformance.contract import Call
from theses.catalogue import lookup
from theses.catalogue.card import Bound
from theses.datasets.metric_spaces import gaussian_mixture, random_metric
from theses.evidence import Context
from theses.graphs.metric_mst import (
    COMPLETION_FACTOR,
    METRICS,
    Forest,
    ForestCompletionSingleLinkage,
    MSTResult,
    approximate_mst,
    complete_forest,
    exact_mst,
    gamma,
    kcenter_forest,
    mst_to_linkage,
)
from theses.graphs.metric_mst.distances import EuclideanDistances, MatrixDistances
from theses.graphs.metric_mst.metrics import open_distances
from theses.studies.graphs import metric_mst as study

WORDS = ["kitten", "sitting", "mitten", "bitten", "sit", "knitting", "", "kit", "smitten", "flaw", "lawn"]
KINDS = ("points", "graph", "one-two")


def levenshtein(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def kruskal(n: int, edges) -> float:
    """Weight of the lightest spanning tree: the edges (weight, i, j) by weight, with labels as sets."""
    label = list(range(n))
    total = 0.0
    for weight, i, j in sorted(edges):
        if label[i] != label[j]:
            total += weight
            old, new = label[i], label[j]
            label = [new if x == old else x for x in label]
    assert len(set(label)) == 1
    return total


def all_edges(D: np.ndarray):
    return [(D[i, j], i, j) for i, j in itertools.combinations(range(len(D)), 2)]


def assert_spans(result: MSTResult, n: int) -> None:
    assert result.edges.shape == (n - 1, 2)
    assert result.weights.shape == (n - 1,)
    graph = sparse.coo_array((np.ones(n - 1), result.edges.T), shape=(n, n))
    assert csgraph.connected_components(graph, directed=False)[0] == 1


def assert_lengths(result: MSTResult, D: np.ndarray, rtol: float = 1e-12) -> None:
    np.testing.assert_allclose(result.weights, D[tuple(result.edges.T)], rtol=rtol, atol=1e-14)


# Distances


def vector_cases():
    rng = np.random.default_rng(0)
    low, high = rng.normal(size=(40, 3)), rng.normal(size=(40, 24))
    positive = rng.random((40, 5)) + 0.1
    variances, inverse = low.var(axis=0, ddof=1), np.linalg.inv(np.cov(low.T))
    radians = rng.uniform(-1, 1, (40, 2))
    yield "euclidean", low, {}, cdist(low, low)
    yield "euclidean", high, {}, cdist(high, high)
    yield "euclidean", low, {"w": [1, 2, 3]}, cdist(low, low, "euclidean", w=[1, 2, 3])
    yield "l2", high, {}, cdist(high, high)
    yield "manhattan", low, {}, cdist(low, low, "cityblock")
    yield "chebyshev", low, {}, cdist(low, low, "chebyshev")
    yield "minkowski", low, {"p": 3}, cdist(low, low, "minkowski", p=3)
    yield "cosine", high, {}, cdist(high, high, "cosine")
    yield "canberra", positive, {}, cdist(positive, positive, "canberra")
    yield "seuclidean", low, {}, cdist(low, low, "seuclidean", V=variances)
    yield "mahalanobis", low, {}, cdist(low, low, "mahalanobis", VI=inverse)
    yield "jaccard", high > 0, {}, pairwise_distances(high > 0, metric="jaccard")
    yield "haversine", radians, {}, pairwise_distances(radians, metric="haversine")


@pytest.mark.parametrize(("metric", "X", "kwargs", "D"), list(vector_cases()))
def test_named_metrics_are_those_of_scipy_and_sklearn(metric, X, kwargs, D):
    result = exact_mst(X, metric, metric_kwargs=kwargs)
    assert_spans(result, len(X))
    assert_lengths(result, D, rtol=1e-9)
    assert result.total_weight == pytest.approx(csgraph.minimum_spanning_tree(D).sum())
    assert result.n_distance_evaluations == len(X) * (len(X) - 1) // 2


def test_every_name_opens():
    rng = np.random.default_rng(1)
    X = rng.random((6, 2)) + 0.1
    special = {"levenshtein": list("abcdef"), "hamming_str": list("abcdef"), "precomputed": cdist(X, X)}
    for metric in METRICS:
        exact = exact_mst(special.get(metric, X > 0.4 if "jaccard" in metric else X), metric)
        assert_spans(exact, 6)


def test_near_duplicates_far_from_the_origin_keep_their_digits():
    rng = np.random.default_rng(2)
    centres = rng.normal(size=(3, 32)) * 1e3 + 1e5
    X = np.repeat(centres, 20, axis=0) + rng.integers(0, 5, (60, 32)) * 2.0**-20
    true = np.sqrt(((X[:, None] - X[None]).astype(np.longdouble) ** 2).sum(-1)).astype(float)
    distances = open_distances(X, "euclidean")
    assert isinstance(distances, EuclideanDistances)
    for i in range(60):
        np.testing.assert_allclose(distances.row(i), true[i], rtol=1e-9, atol=0)


@given(scale=st.floats(-6, 6), offset=st.floats(-1e6, 1e6), seed=st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_product_formula_is_exact_to_nine_digits(scale, offset, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 20)) * 10.0 ** rng.uniform(-6, 0, (20, 1)) * 10.0**scale + offset
    distances = open_distances(X, "euclidean")
    for i in (0, 7):
        np.testing.assert_allclose(distances.row(i), cdist(X[[i]], X)[0], rtol=1e-9, atol=0)


def test_coordinates_too_large_to_square_are_refused_not_garbled():
    X = np.zeros((3, 20))
    X[0, 0] = 1e200
    with pytest.raises(ValueError, match="metric 'euclidean' must give finite"):
        exact_mst(X)


def test_sets_agree_with_python_sets_in_every_form():
    rng = np.random.default_rng(3)
    table = rng.random((30, 40)) < 0.15
    table[4] = table[9] = False
    sets = [set(np.flatnonzero(row).tolist()) for row in table]
    D = np.array([[1 - len(a & b) / len(a | b) if a | b else 0.0 for b in sets] for a in sets])
    weighted = sparse.csr_array(table * rng.uniform(1, 2, table.shape))
    weighted[0, 0] = 0.0  # a stored zero is no member
    table[0, 0] = False
    sets[0].discard(0)
    D = np.array([[1 - len(a & b) / len(a | b) if a | b else 0.0 for b in sets] for a in sets])
    named = [{f"item {i}" for i in members} for members in sets]
    for X, metric in (
        (sets, "jaccard_sets"),
        (named, "jaccard_sets"),
        ([list(s) * 2 for s in sets], "jaccard_sets"),
        (table, "jaccard_sets"),
        (table.astype(float), "jaccard_sets"),
        (pl.DataFrame(table.astype(int)), "jaccard_sets"),
        (torch.tensor(table), "jaccard_sets"),
        (weighted, "jaccard_sets"),
        (sparse.csc_matrix(weighted), "jaccard"),
    ):
        distances = open_distances(X, metric)
        np.testing.assert_allclose([distances.row(i) for i in range(30)], D, atol=1e-15)
        subset = distances.take(np.array([4, 9, 2, 17]))
        subset.drop(1)
        np.testing.assert_allclose(subset.row(5), D[5, [4, 17, 2]], atol=1e-15)
        result = approximate_mst(X, metric, n_components=4)
        assert_spans(result, 30)
        assert_lengths(result, D)


def test_levenshtein_is_the_edit_distance():
    D = np.array([[levenshtein(a, b) for b in WORDS] for a in WORDS], dtype=float)
    for X in (WORDS, tuple(WORDS), np.array(WORDS), pl.Series(WORDS)):
        result = exact_mst(X, "levenshtein")
        assert_lengths(result, D)
        assert result.total_weight == kruskal(len(WORDS), all_edges(D))


def test_hamming_counts_differing_places_of_any_symbols():
    strings = ["añb\0", "anb\0", "añbc", "日本語x", "日本語y"]
    D = np.array([[sum(x != y for x, y in zip(a, b, strict=True)) for b in strings] for a in strings])
    assert_lengths(exact_mst(strings, "hamming_str"), D)
    assert exact_mst(["", "", ""], "hamming_str").total_weight == 0


def test_precomputed_reads_only_what_is_asked_for():
    class Watched(np.ndarray):
        seen = 0

        def __getitem__(self, key):
            if isinstance(key, tuple):
                Watched.seen += len(key[1])
            return super().__getitem__(key)

    D = random_metric("points", 200, random_state=0)
    distances = MatrixDistances(D.view(Watched))
    partition = forest_module.partition_objects(distances, 14, None, None, None, keep=True)
    forest_module.plant(distances, partition.labels, partition.centres)
    assert Watched.seen == distances.evaluations < 200 * 199 / 2 / 3
    integers = (D * 1000).astype(np.int16)
    assert exact_mst(integers, "precomputed").total_weight == kruskal(200, all_edges(integers.astype(float)))


def test_own_function_and_own_rows_agree_with_the_name():
    X = np.random.default_rng(4).normal(size=(60, 3))

    class Rows:
        def rows(self, i, J):
            assert J.ndim == 1
            return np.abs(X[J] - X[i]).sum(axis=1)

    by_name = approximate_mst(X, "cityblock", n_components=7, random_state=1)
    by_function = approximate_mst(X, lambda a, b: float(np.abs(a - b).sum()), n_components=7, random_state=1)
    by_rows = approximate_mst(range(60), Rows(), n_components=7, random_state=1)

    def scaled(a, b, by):
        return float(np.abs(a - b).sum()) * by

    by_keyword = approximate_mst(X, scaled, n_components=7, random_state=1, metric_kwargs={"by": 1})
    for other in (by_function, by_rows, by_keyword):
        assert other.edges.tolist() == by_name.edges.tolist()
        np.testing.assert_allclose(other.weights, by_name.weights)
        assert other.n_distance_evaluations == by_name.n_distance_evaluations + 40


def test_missing_rapidfuzz_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    with pytest.raises(ImportError, match=r'pip install "theses\[graphs\]"'):
        exact_mst(["a", "b"], "levenshtein")


# Counters


class Counting:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, a, b) -> float:
        self.calls += 1
        distance: float = abs(a - b)
        return distance


@pytest.mark.parametrize("options", [{}, {"n_representatives": 3}, {"max_component_size": 12}])
def test_every_call_of_a_function_is_counted(options):
    X = np.random.default_rng(5).random(80).tolist()
    metric = Counting()
    result = approximate_mst(X, metric, n_components=6, **options)
    assert result.n_distance_evaluations == metric.calls
    metric = Counting()
    assert exact_mst(X, metric).n_distance_evaluations == metric.calls == 80 * 79 // 2 + 40
    metric = Counting()
    labels = np.arange(80) % 5
    for completion in ("approx", "optimal"):
        metric = Counting()
        result = complete_forest(X, labels, metric, completion=completion)
        assert result.n_distance_evaluations == metric.calls


def test_counts_are_those_of_the_algorithm():
    X = np.random.default_rng(6).normal(size=(300, 2))
    result = approximate_mst(X, n_components=20)
    sizes = result.component_sizes
    inside = (sizes * (sizes - 1) // 2).sum()
    # n t rows, of which step 3 needs no second reading; t - 1 chosen edges in double precision.
    assert result.n_distance_evaluations == 300 * 20 + inside + 19
    assert result.evaluation_share == result.n_distance_evaluations / (300 * 299 / 2)
    labels = kcenter_forest(X, "euclidean", 20).labels
    best = complete_forest(X, labels, "euclidean", completion="optimal")
    assert best.n_distance_evaluations == 300 * 299 // 2


def test_rows_that_are_not_kept_are_computed_again(monkeypatch):
    X = np.random.default_rng(7).normal(size=(300, 2))
    kept = approximate_mst(X, n_components=20)
    monkeypatch.setattr(forest_module, "_KEPT_ENTRIES", 0)
    again = approximate_mst(X, n_components=20)
    assert again.edges.tolist() == kept.edges.tolist()
    np.testing.assert_array_equal(again.weights, kept.weights)
    assert again.n_distance_evaluations == kept.n_distance_evaluations + 300 * 20 - 19


@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_tiny_and_huge_distances_are_not_rounded_away(scale):
    X = np.random.default_rng(8).normal(size=(60, 2))
    plain, scaled = approximate_mst(X, n_components=6), approximate_mst(X * scale, n_components=6)
    assert scaled.edges.tolist() == plain.edges.tolist()
    np.testing.assert_allclose(scaled.weights, plain.weights * scale)


def test_no_matrix_of_all_distances_is_built():
    X = np.random.default_rng(9).normal(size=(4_000, 2))
    approximate_mst(X[:50]), exact_mst(X[:50])
    for function in (approximate_mst, exact_mst):
        tracemalloc.start()
        function(X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4_000 * 4_000 * 8 / 20


# Step 1


def test_exact_tree_is_the_tree_of_scipy():
    X = np.random.default_rng(10).normal(size=(300, 5))
    result = exact_mst(X)
    reference = csgraph.minimum_spanning_tree(cdist(X, X))
    np.testing.assert_allclose(np.sort(result.weights), np.sort(reference.data))
    assert result.total_weight == pytest.approx(reference.sum())
    assert result.component_sizes.tolist() == [300]
    assert (result.forest_weight, result.completion_weight) == (result.total_weight, 0.0)


@given(seed=st.integers(0, 1_000), kind=st.sampled_from(KINDS), n=st.integers(1, 25))
@settings(max_examples=60, deadline=None)
def test_exact_tree_has_minimum_weight_in_any_metric(seed, kind, n):
    D = random_metric(kind, n, random_state=seed)
    result = exact_mst(D, "precomputed")
    assert_spans(result, n)
    assert result.total_weight == pytest.approx(kruskal(n, all_edges(D)))


def test_centres_are_farthest_first_and_objects_go_to_the_nearest():
    X = np.random.default_rng(11).normal(size=(120, 2))
    D = cdist(X, X)
    forest = kcenter_forest(X, "euclidean", 9)
    centres = [60]
    for _ in range(8):
        centres.append(int(D[centres].min(axis=0).argmax()))
    assert forest.centres is not None
    assert forest.centres.tolist() == centres
    assert forest.labels.tolist() == D[centres].argmin(axis=0).tolist()
    for k in range(9):
        members = np.flatnonzero(forest.labels == k)
        weights = forest.weights[forest.labels[forest.edges[:, 0]] == k]
        assert weights.sum() == pytest.approx(kruskal(len(members), all_edges(D[np.ix_(members, members)])))


def test_ties_go_to_the_earlier_centre_and_centres_to_themselves():
    forest = kcenter_forest(np.array([[0.0], [1.0], [2.0]]), "euclidean", 2, first=0)
    assert forest.labels.tolist() == [0, 0, 1]
    assert forest.centres is not None
    assert forest.centres.tolist() == [0, 2]


def test_sweep_stops_when_all_lie_on_a_centre():
    X = np.array([[0.0], [1.0], [0.0], [1.0], [1.0]])
    forest = kcenter_forest(X, "euclidean", 4)
    assert forest.n_components == 2
    assert forest.component_sizes.tolist() == [2, 3]
    assert forest.weight == 0.0


def test_first_centre_is_the_middle_or_drawn():
    X = np.random.default_rng(12).normal(size=(40, 2))
    centre = [kcenter_forest(X, "euclidean", 1, random_state=s).centres for s in (0, 0, 1, 2, 3)]
    assert kcenter_forest(X, "euclidean", 1).centres == [20]
    assert centre[0] == centre[1]
    assert len({int(c[0]) for c in centre if c is not None}) > 1
    assert kcenter_forest(X, "euclidean", 3, first=7, random_state=0).centres[0] == 7  # type: ignore[index]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 100, 1_000])
def test_auto_is_the_root_of_n(n):
    X = np.arange(n, dtype=float)[:, None]
    expected = min(n, max(2, round(math.sqrt(n))))
    assert kcenter_forest(X, "euclidean", "auto").n_components == expected
    assert len(approximate_mst(X).component_sizes) == expected


@pytest.mark.parametrize("largest", [1, 2, 7, 30])
def test_large_components_are_split(largest):
    X = np.concatenate([np.random.default_rng(13).normal(0, 0.1, (150, 2)), np.eye(2) * 9])
    assert kcenter_forest(X, "euclidean", 3).component_sizes.max() == 150
    forest = kcenter_forest(X, "euclidean", 3, max_component_size=largest)
    assert forest.component_sizes.max() <= largest
    assert forest.component_sizes.sum() == 152
    result = approximate_mst(X, n_components=3, max_component_size=largest)
    assert_spans(result, 152)
    assert_lengths(result, cdist(X, X))
    assert result.component_sizes.max() <= largest


@pytest.mark.parametrize("D", [np.zeros((50, 50)), 1.0 - np.eye(50)], ids=["equal", "equidistant"])
def test_splitting_ends_where_no_centre_attracts_others(monkeypatch, D):
    monkeypatch.setattr(forest_module, "_SPLIT_LARGEST", 8)
    forest = kcenter_forest(D, "precomputed", 1, max_component_size=10)
    assert forest.component_sizes.max() <= 10
    assert forest.n_components <= 4 * (1 + 5) + 5
    result = approximate_mst(D, "precomputed", n_components=1, max_component_size=10)
    assert result.total_weight == D.max() * 49


def test_a_component_of_most_objects_is_logged(caplog):
    X = np.concatenate([np.zeros((30, 1)), np.ones((1, 1))])
    with caplog.at_level("INFO", logger="theses"):
        approximate_mst(X, n_components=2)
    assert "one component holds 30 of 31 objects" in caplog.text


# Step 3


def brute_completion(D, labels, representatives) -> float:
    """Weight of the lightest tree between components through the allowed pairs."""
    t = labels.max() + 1
    edges = []
    for i, j in itertools.combinations(range(t), 2):
        P, Q = np.flatnonzero(labels == i), np.flatnonzero(labels == j)
        pairs = [*itertools.product(P, representatives[j]), *itertools.product(representatives[i], Q)]
        edges.append((min(D[x, y] for x, y in pairs), i, j))
    return kruskal(t, edges)


@given(seed=st.integers(0, 10_000), kind=st.sampled_from(KINDS), t=st.integers(1, 6))
@settings(max_examples=80, deadline=None)
def test_completion_is_the_lightest_through_representatives(seed, kind, t):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(t, 30))
    D = random_metric(kind, n, random_state=rng)
    labels = rng.permutation(np.concatenate([np.arange(t), rng.integers(t, size=n - t)]))
    some = [
        rng.choice(np.flatnonzero(labels == k), int(rng.integers(1, (labels == k).sum() + 1)), replace=False)
        for k in range(t)
    ]
    one = [int(chosen[0]) for chosen in some]
    everything = [np.flatnonzero(labels == k) for k in range(t)]
    for representatives, allowed in ((one, [[r] for r in one]), (some, some), (everything, everything)):
        result = complete_forest(D, labels, "precomputed", representatives=representatives)
        assert_spans(result, n)
        assert_lengths(result, D)
        expected = brute_completion(D, labels, allowed) if t > 1 else 0.0
        assert result.completion_weight == pytest.approx(expected)
    best = complete_forest(D, labels, "precomputed", completion="optimal")
    assert best.completion_weight == pytest.approx(result.completion_weight)
    assert_lengths(best, D)
    by_number = complete_forest(D, labels, "precomputed", n_representatives=n)
    assert by_number.completion_weight == pytest.approx(best.completion_weight)


@given(seed=st.integers(0, 10_000), kind=st.sampled_from(KINDS), centred=st.booleans())
@settings(max_examples=80, deadline=None)
def test_guarantees_hold(seed, kind, centred):
    rng = np.random.default_rng(seed)
    n, t = int(rng.integers(8, 40)), int(rng.integers(2, 8))
    D = random_metric(kind, n, random_state=rng)
    forest = kcenter_forest(D, "precomputed", t, random_state=rng) if centred else rng.integers(t, size=n)
    result = complete_forest(D, forest, "precomputed")
    best = complete_forest(D, forest, "precomputed", completion="optimal")
    exact = exact_mst(D, "precomputed")
    assert result.total_weight <= COMPLETION_FACTOR * best.total_weight * (1 + 1e-9)
    quality = gamma(result, exact)
    assert quality >= 1 - 1e-9
    assert result.total_weight <= (2 * quality + 1) * exact.total_weight * (1 + 1e-9)
    assert result.total_weight >= exact.total_weight * (1 - 1e-9)


def test_one_sided_minima_are_used_not_only_representatives():
    # Two long components side by side, their representatives at far ends.
    x = np.arange(11.0)
    X = np.concatenate([np.column_stack([x, 0 * x]), np.column_stack([x + 11, 0 * x])])
    labels = np.repeat([0, 1], 11)
    result = complete_forest(X, labels, "euclidean", representatives=[0, 21])
    assert result.completion_weight == 11.0  # from the first's far end to the second's near one
    assert math.dist(X[0], X[21]) == 21.0


def test_more_representatives_cost_n_each_and_never_weigh_more():
    X = np.random.default_rng(14).random((200, 2))
    forest = kcenter_forest(X, "euclidean", 8)
    results = [complete_forest(X, forest, "euclidean", n_representatives=r) for r in (1, 2, 5, 200)]
    weights = [result.completion_weight for result in results]
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] == pytest.approx(
        complete_forest(X, forest, "euclidean", completion="optimal").completion_weight
    )
    counts = [result.n_distance_evaluations for result in results]
    assert counts[:3] == [200 * 8 * r for r in (1, 2, 5)]
    assert counts[3] == 200 * 200
    uneven = complete_forest(X, forest, "euclidean", n_representatives=[3, 1, 1, 1, 1, 1, 1, 1])
    assert uneven.n_distance_evaluations == 200 * 10
    # One more than its representative: the same rows whether the sweep or the completion computes them.
    through = approximate_mst(X, n_components=8, n_representatives=2)
    assert through.total_weight == pytest.approx(results[1].total_weight)


def test_forest_may_be_labels_a_matrix_or_a_forest():
    X = np.array([[0.0], [0.0], [1.0], [5.0], [5.0], [9.0]])
    labels = [7, 7, 7, -1, -1, 3]
    from_labels = complete_forest(X, labels, "euclidean")
    assert from_labels.labels.tolist() == [2, 2, 2, 0, 0, 1]
    rows, columns, lengths = [0, 2, 3], [1, 1, 4], [0.0, 1.0, 0.0]
    stored = sparse.csr_array((lengths, (rows, columns)), shape=(6, 6))
    both = sparse.coo_array((lengths * 2, (rows + columns, columns + rows)), shape=(6, 6))
    edges = np.column_stack([rows, columns])
    forest = Forest(np.array([0, 0, 0, 1, 1, 2]), edges, np.array(lengths))
    for given_forest in (stored, both, forest):
        result = complete_forest(X, given_forest, "euclidean")
        assert_spans(result, 6)
        assert (result.forest_weight, result.completion_weight) == (1.0, 8.0)
        assert result.total_weight == from_labels.total_weight == 9.0


# Zero lengths and small inputs


@pytest.mark.parametrize("n", [1, 2, 3, 30])
@pytest.mark.parametrize("d", [2, 32])
def test_equal_points_give_zero_edges(n, d):
    X = np.full((n, d), 3.7)
    for result in (approximate_mst(X), exact_mst(X), approximate_mst(X, max_component_size=2)):
        assert_spans(result, n)
        assert result.weights.tolist() == [0.0] * (n - 1)
        assert result.tree.nnz == n - 1  # stored zeros
        assert result.total_weight == 0
        assert gamma(result, exact_mst(X)) == 1.0
        assert result.summary()


def test_duplicates_keep_all_edges():
    X = np.repeat(np.random.default_rng(15).normal(size=(20, 2)), 5, axis=0)
    result = approximate_mst(X, n_components=12)
    assert_spans(result, 100)
    assert (result.weights == 0).sum() == 80
    tree = result.tree.tocoo()
    assert (tree.row < tree.col).all()
    assert tree.nnz == 99


@given(seed=st.integers(0, 1_000), scale=st.floats(1e-3, 1e3))
@settings(max_examples=25, deadline=None)
def test_order_and_scale_of_the_objects_do_not_matter(seed, scale):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(50, 3))
    order = rng.permutation(50)
    first = int(rng.integers(50))
    plain = complete_forest(X, kcenter_forest(X, "euclidean", 6, first=first), "euclidean")
    moved = X[order] * scale
    other = kcenter_forest(moved, "euclidean", 6, first=int(np.argsort(order)[first]))
    result = complete_forest(moved, other, "euclidean")
    assert result.total_weight == pytest.approx(plain.total_weight * scale)
    assert sorted(result.component_sizes) == sorted(plain.component_sizes)


# Gamma


def brute_gamma(result: MSTResult, D: np.ndarray) -> float:
    """Most inside weight of a minimum tree: Kruskal over all pairs, equal weights inside first."""
    label, inside_weight = list(range(len(D))), 0.0
    outside = {(i, j): result.labels[i] != result.labels[j] for _, i, j in all_edges(D)}
    for weight, i, j in sorted(all_edges(D), key=lambda e: (e[0], outside[e[1], e[2]])):
        if label[i] != label[j]:
            inside_weight += 0.0 if outside[i, j] else weight
            old, new = label[i], label[j]
            label = [new if x == old else x for x in label]
    if inside_weight == 0:
        return 1.0 if result.forest_weight == 0 else math.inf
    return result.forest_weight / inside_weight


@given(seed=st.integers(0, 10_000), kind=st.sampled_from(KINDS))
@settings(max_examples=60, deadline=None)
def test_gamma_takes_the_tree_with_most_weight_inside(seed, kind):
    rng = np.random.default_rng(seed)
    n, t = int(rng.integers(4, 25)), int(rng.integers(1, 5))
    D = random_metric(kind, n, random_state=rng)
    result = complete_forest(D, rng.integers(t, size=n), "precomputed")
    assert gamma(result, exact_mst(D, "precomputed")) == pytest.approx(brute_gamma(result, D))


def test_gamma_without_weight_inside():
    X = np.array([[0.0], [1.0], [0.0], [1.0]])
    exact = exact_mst(X)
    assert gamma(complete_forest(X, [0, 1, 0, 1], "euclidean"), exact) == 1.0
    assert gamma(complete_forest(X, [0, 1, 2, 3], "euclidean"), exact) == 1.0
    line = np.array([[0.0], [1.0], [2.0], [3.0]])
    assert gamma(complete_forest(line, [0, 1, 0, 1], "euclidean"), exact_mst(line)) == math.inf
    with pytest.raises(ValueError, match="exact"):
        gamma(exact, exact_mst(X[:2]))
    with pytest.raises(TypeError, match="result"):
        gamma(X, exact)  # type: ignore[arg-type]


# Linkage and clusters


@pytest.mark.parametrize("seed", range(3))
def test_linkage_of_the_exact_tree_is_scipys(seed):
    X = np.random.default_rng(seed).normal(size=(80, 2))
    ours, theirs = mst_to_linkage(exact_mst(X)), hierarchy.linkage(X, "single")
    assert hierarchy.is_valid_linkage(ours)
    np.testing.assert_allclose(ours[:, 2:], theirs[:, 2:])
    np.testing.assert_array_equal(ours[:, :2], theirs[:, :2])


def test_linkage_of_any_tree_is_valid_and_monotone():
    result = approximate_mst(WORDS, "levenshtein", n_components=3)
    linkage = mst_to_linkage(result)
    assert hierarchy.is_valid_linkage(linkage)
    assert hierarchy.is_monotonic(linkage)
    assert linkage[:, 2].sum() == result.total_weight
    assert mst_to_linkage(exact_mst([[1.0]])).shape == (0, 4)
    with pytest.raises(TypeError, match="result must be an MSTResult"):
        mst_to_linkage(linkage)  # type: ignore[arg-type]


def test_clusters_are_those_of_agglomerative_clustering():
    X, truth = gaussian_mixture(300, 8, 5, random_state=0)
    reference = AgglomerativeClustering(n_clusters=5, linkage="single").fit(X)
    ours = ForestCompletionSingleLinkage(n_clusters=5, n_components=12).fit(X)
    assert adjusted_rand_score(ours.labels_, reference.labels_) == 1.0
    assert adjusted_rand_score(ours.labels_, truth) == 1.0
    assert ours.children_.shape == (299, 2)
    assert ours.n_leaves_ == 300
    # In one component the tree is exact, and so is everything else.
    exact = ForestCompletionSingleLinkage(n_clusters=None, distance_threshold=2.0, n_components=1).fit(X)
    reference = AgglomerativeClustering(n_clusters=None, distance_threshold=2.0, linkage="single").fit(X)
    assert exact.n_clusters_ == reference.n_clusters_
    assert adjusted_rand_score(exact.labels_, reference.labels_) == 1.0
    np.testing.assert_allclose(exact.distances_, reference.distances_)


def test_threshold_joins_below_it_only():
    X = np.array([[0.0], [1.0], [3.0], [6.0]])
    labels = {
        threshold: ForestCompletionSingleLinkage(None, distance_threshold=threshold, n_components=1)
        .fit(X)
        .labels_.tolist()
        for threshold in (0.5, 1.0, 2.0, 2.5, 4.0)
    }
    assert labels == {
        0.5: [0, 1, 2, 3],
        1.0: [0, 1, 2, 3],
        2.0: [0, 0, 1, 2],
        2.5: [0, 0, 0, 1],
        4.0: [0, 0, 0, 0],
    }
    assert AgglomerativeClustering(None, distance_threshold=2.0, linkage="single").fit(X).n_clusters_ == 3


def test_estimator_takes_strings_sets_and_distances():
    by_words = ForestCompletionSingleLinkage(n_clusters=3, metric="levenshtein").fit(WORDS)
    assert by_words.labels_.shape == (len(WORDS),)
    D = np.array([[levenshtein(a, b) for b in WORDS] for a in WORDS], dtype=float)
    by_matrix = ForestCompletionSingleLinkage(n_clusters=3, metric="precomputed").fit(D)
    assert by_matrix.labels_.tolist() == by_words.labels_.tolist()
    by_sets = ForestCompletionSingleLinkage(metric="jaccard_sets").fit([{1, 2}, {1}, {8, 9}, {8}])
    assert by_sets.labels_.tolist() == [0, 0, 1, 1]
    own = ForestCompletionSingleLinkage(metric=lambda a, b: abs(len(a) - len(b))).fit(["a", "bb", "c" * 40])
    assert own.labels_.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 2, "distance_threshold": 1.0}, "exactly one of n_clusters"),
        ({"n_clusters": None}, "exactly one of n_clusters"),
        ({"n_clusters": 9}, "n_clusters must be at most 4"),
        ({"n_clusters": None, "distance_threshold": -1.0}, "distance_threshold"),
        ({"metric": "euclidian"}, "metric must be one of"),
        ({"n_components": 0}, "n_components"),
    ],
)
def test_estimator_refuses(parameters, message):
    with pytest.raises(ValueError, match=message):
        ForestCompletionSingleLinkage(**parameters).fit([[0.0], [1.0], [2.0], [3.0]])


# Results


def test_result_says_what_it_is_made_of(tmp_path):
    X = np.random.default_rng(16).normal(size=(100, 2))
    result = approximate_mst(X, n_components=10)
    assert result.total_weight == pytest.approx(result.forest_weight + result.completion_weight)
    assert result.is_forest_edge.sum() == 90
    frame = result.to_frame()
    assert frame.columns == ["i", "j", "weight", "part"]
    assert frame.filter(part="completion").height == 9
    assert frame["weight"].sum() == pytest.approx(result.total_weight)
    answer = result.to_dict()
    assert sum(answer["component_sizes"]) == 100
    assert answer["completion_factor"] == pytest.approx(2.618, abs=1e-3)
    assert set(answer["timings"]) == {"partition", "forest", "completion"}
    assert f"weight {result.total_weight:.6g}" in result.summary()
    result.save(tmp_path / "tree.npz")
    back = MSTResult.load(tmp_path / "tree.npz")
    assert back.edges.tolist() == result.edges.tolist()
    assert back.to_dict() == answer
    assert [path.name for path in tmp_path.iterdir()] == ["tree.npz"]
    assert exact_mst([[1.0]]).to_frame().height == 0


# Bad input

POINTS = np.random.default_rng(17).normal(size=(12, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: approximate_mst(POINTS, n_components=0), "n_components must be at least 1"),
        (lambda: approximate_mst(POINTS, n_components=13), "n_components must be at most 12"),
        (lambda: approximate_mst(POINTS, n_components="many"), "n_components"),
        (lambda: approximate_mst(POINTS, n_representatives=0), "n_representatives"),
        (lambda: approximate_mst(POINTS, n_representatives=[1, 2]), "n_representatives must have one entry"),
        (lambda: approximate_mst(POINTS, max_component_size=0), "max_component_size"),
        (lambda: kcenter_forest(POINTS, "euclidean", 2, first=12), "first"),
        (lambda: approximate_mst([[0.0], [math.nan]]), "X must be finite"),
        (lambda: approximate_mst(np.array([[0.0], [math.nan]]), Counting()), "X must be finite"),
        (lambda: approximate_mst(np.zeros((0, 2))), "X must have at least 1"),
        (lambda: approximate_mst([], "levenshtein"), "X must have at least 1"),
        (lambda: approximate_mst(POINTS, "euclid"), "metric must be one of"),
        (lambda: approximate_mst(POINTS, lambda a, b: -1.0), "metric must give .* got -1.0 for objects"),
        (lambda: approximate_mst(POINTS, lambda a, b: math.nan), "metric must give .* got nan"),
        (lambda: approximate_mst(POINTS, lambda a, b: math.inf), "metric must give .* got inf"),
        (lambda: exact_mst(np.zeros((3, 20)), "cosine"), "metric 'cosine' must give .* got nan"),
        (lambda: exact_mst(np.zeros((3, 4)), "precomputed"), "X must be a square matrix"),
        (lambda: exact_mst(np.full((3, 3), -1.0), "precomputed"), "metric 'precomputed' must give"),
        (lambda: exact_mst(["ab", "abc"], "hamming_str"), "X must hold strings of one length"),
        (lambda: exact_mst(POINTS, "haversine", metric_kwargs={"r": 1}), "metric_kwargs must be empty"),
        (lambda: exact_mst(np.zeros((3, 3)), "haversine"), "X must hold latitude"),
        (lambda: exact_mst(np.zeros((5, 2)), "mahalanobis"), "X has a singular covariance"),
        (lambda: complete_forest(POINTS, [0, 1], "euclidean"), "forest must label each of 12"),
        (lambda: complete_forest(POINTS, np.zeros((12, 12)), "euclidean"), "forest must have 1 dimension"),
        (lambda: complete_forest(POINTS, sparse.eye_array(12).tocsr(), "euclidean"), "forest must not join"),
        (
            lambda: complete_forest(POINTS, sparse.csr_array(np.triu(np.ones((12, 12)), 1)), "euclidean"),
            "forest must have no cycle",
        ),
        (lambda: complete_forest(POINTS, sparse.csr_array((3, 3)), "euclidean"), "forest must have shape"),
        (
            lambda: complete_forest(POINTS[:2], sparse.csr_array([[0.0, 1.0], [2.0, 0.0]]), "euclidean"),
            "forest must give an edge the same weight",
        ),
        (
            lambda: complete_forest(POINTS[:2], sparse.csr_array([[0.0, -1.0], [0.0, 0.0]]), "euclidean"),
            "forest must have lengths of at least 0",
        ),
        (lambda: exact_mst(POINTS, "cityblock", metric_kwargs={"q": 3}), "metric_kwargs must be parameters"),
        (lambda: complete_forest(POINTS, np.zeros(12, int), "euclidean", completion="best"), "completion"),
        (
            lambda: complete_forest(POINTS, np.arange(12) // 6, "euclidean", representatives=[7, 0]),
            "representatives must lie in their components",
        ),
        (
            lambda: complete_forest(POINTS, np.arange(12) // 6, "euclidean", representatives=[0]),
            "representatives must have one entry",
        ),
        (lambda: Forest([0, 0, 1], [[0, 2]], [1.0]), "edges must stay within a component"),  # type: ignore[arg-type]
        (lambda: Forest([0] * 4, [[0, 1], [1, 2], [0, 2]], [1.0] * 3), "edges must form a tree"),  # type: ignore[arg-type]
        (lambda: Forest([0, 0], [[0, 1], [0, 1]], [1.0, 1.0]), "edges must have shape"),  # type: ignore[arg-type]
        (lambda: Forest([0, 2], np.zeros((0, 2)), []), "labels must number the components"),  # type: ignore[arg-type]
        (lambda: Forest([0, 0], [[0, 1]], [-1.0]), "weights must be at least 0"),  # type: ignore[arg-type]
        (lambda: Forest([0, 0], [[0, 5]], [1.0]), "edges must be numbers of 2"),  # type: ignore[arg-type]
        (lambda: Forest([0, 0, 1], [[0, 1]], [1.0], [2, 0]), "centres must lie in"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_named(call, message):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    ("X", "metric", "message"),
    [
        (["a", 3], "levenshtein", "X must hold strings .* int at index 1"),
        ("abc", "levenshtein", "X must be an array or a sequence"),
        ([{1}, 2], "jaccard_sets", "X must hold sets .* int at index 1"),
        ([{1}, "ab"], "jaccard_sets", "X must hold sets .* str at index 1"),
        (sparse.csr_array((2, 2)), "euclidean", "X must be a dense array"),
        (POINTS, 3, "metric must be a name, a callable"),
        ({1, 2}, Counting(), "X must be an array or a sequence"),
    ],
)
def test_wrong_types_are_named(X, metric, message):
    with pytest.raises(TypeError, match=message):
        exact_mst(X, metric)


@pytest.mark.parametrize("metric", ["seuclidean", "mahalanobis"])
def test_one_point_needs_no_variance(metric):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_spans(approximate_mst([[1.0, 2.0]], metric), 1)


def test_arguments_of_the_wrong_type_are_named():
    with pytest.raises(TypeError, match="metric_kwargs must be a mapping"):
        exact_mst(POINTS, "minkowski", metric_kwargs=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="representatives must be a sequence"):
        complete_forest(POINTS, np.arange(12) // 6, "euclidean", representatives=3)


def test_rows_that_are_no_numbers_are_refused():
    class Words:
        def rows(self, i, J):
            return ["far"] * len(J)

    with pytest.raises(ValueError, match=r"metric\.rows must return numbers"):
        exact_mst(POINTS, Words())


def test_rows_of_the_wrong_length_are_refused():
    class Rows:
        def rows(self, i, J):
            return np.zeros(len(J) + 1)

    with pytest.raises(ValueError, match=r"metric\.rows must return one distance"):
        exact_mst(range(5), Rows())


def test_asymmetric_functions_are_warned_of_and_symmetric_ones_are_not():
    with pytest.warns(UserWarning, match="metric is not symmetric"):
        exact_mst(POINTS[:, 0].tolist(), lambda a, b: max(a - b, 0.0) + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact_mst(POINTS[:, 0].tolist(), Counting())
        exact_mst([1.0], Counting())


# Study


def check(claim: str, metric: str) -> Bound:
    claims = {c.id: c for c in lookup("metric-mst").claims}
    (bound,) = [c.bound for c in claims[claim].checks if c.metric == metric]
    return Bound.parse(bound)


def test_planted_full_matrix_turns_c3b(monkeypatch):
    bound = check("C3b", "evaluation_share")
    shares = study.evaluation_shares(3_000, (64,), np.random.default_rng(100))
    assert all(bound.contains(share) for share in shares)

    def open_matrix(X, metric, metric_kwargs=None):
        distances = open_distances(X, metric, metric_kwargs)
        matrix = MatrixDistances(np.array([distances.row(i) for i in range(distances.size)]))
        matrix._counter = distances._counter
        return matrix

    monkeypatch.setattr(completion_module, "open_distances", open_matrix)
    shares = study.evaluation_shares(3_000, (64,), np.random.default_rng(100))
    assert not any(bound.contains(share) for share in shares)


def test_planted_representatives_only_turns_c2a(monkeypatch):
    # A star of 20 leaves, and beside each leaf a component of one object. The star's representative is a
    # leaf: seen from there, all other objects are two steps away.
    leaves, m = np.arange(1, 21), 20
    steps = np.zeros((2 * m + 1, 2 * m + 1))
    steps[0, leaves] = 1.0
    steps[leaves, leaves + m] = 1e-6
    D = csgraph.shortest_path(steps, directed=False)
    labels = np.concatenate([np.zeros(m + 1, dtype=int), np.arange(1, m + 1)])
    representatives = [1, *(leaves + m).tolist()]
    bound = check("C2a", "completion_ratio")

    def ratio() -> float:
        result, best = (
            complete_forest(D, labels, "precomputed", representatives=representatives, completion=completion)
            for completion in ("approx", "optimal")
        )
        return result.total_weight / best.total_weight

    def join_representatives(distances, forest, wanted, rows):
        chosen = np.array([given[0] for given, _ in wanted])
        among = distances.take(chosen)
        between = MatrixDistances(np.array([among.row(i) for i in chosen.tolist()]))
        pairs, weights = forest_module.minimum_spanning_edges(between, np.arange(len(chosen)))
        return chosen[pairs], weights

    assert bound.contains(ratio())
    monkeypatch.setattr(completion_module, "_join", join_representatives)
    assert not bound.contains(ratio())


def paper_folder(folder):
    rng = np.random.default_rng(0)
    sets = [" ".join(map(str, rng.integers(0, 50, 8))) for _ in range(70)]
    (folder / "cooking.txt").write_text("\n".join(sets) + "\n")
    (folder / "names_us.txt").write_text("\n".join("".join(rng.choice(list("abcde"), 6)) for _ in range(70)))
    (folder / "greengenes_aligned.txt").write_text(
        "\n".join("".join(rng.choice(list("ACGT-"), 30)) for _ in range(70))
    )
    np.save(folder / "fashion-mnist-784-euclidean.npy", rng.integers(0, 255, (70, 784)).astype(np.uint8))
    return folder


def test_paper_preset_reads_the_papers_files(tmp_path):
    ctx = Context("paper", seed=100, data_folder=paper_folder(tmp_path), limit=40)
    measurement = study.run(ctx)
    assert set(lookup("metric-mst").metrics("paper")) <= set(measurement.metrics)
    assert measurement.tables["runs"].filter(data="D")["n"].unique().to_list() == [40]
    with pytest.raises(ValueError, match=r"data_folder, a folder that holds fashion-mnist.*cooking\.txt"):
        study.run(Context("paper", seed=100))


def test_a_million_is_measured_alike_on_a_thousand():
    ctx = Context("long", seed=100)
    for kind in ("points", "strings"):
        row = study.million_objects(ctx, kind, 1_000)
        assert row["n"] == 1_000
        assert 0 < row["evaluation_share"] < 1
        assert row["largest_share"] < (0.5 if kind == "points" else 4 / 32 + 0.01)


# Conformance


def calls() -> list[Call]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    grown = kcenter_forest(X, "euclidean", 4)
    assert grown.centres is not None
    matrix = sparse.csr_array((grown.weights, grown.edges.T), shape=(20, 20))
    sets = sparse.csr_array((rng.random((20, 9)) < 0.3).astype(float))
    labels, centres = grown.labels, grown.centres

    def tree(**arguments):
        return lambda: (approximate_mst, {key: copy.copy(value) for key, value in arguments.items()})

    def complete(**arguments):
        return lambda: (
            complete_forest,
            {"metric": "euclidean", **{key: copy.copy(value) for key, value in arguments.items()}},
        )

    return [
        Call("approximate_mst", tree(X=X), ("X",)),
        Call("approximate_mst", tree(X=sets, metric="jaccard_sets"), ("X",)),
        Call("approximate_mst", tree(X=WORDS, metric="levenshtein"), ("X",)),
        # To a function of the user's own an object may be anything.
        Call(
            "approximate_mst",
            tree(X=X, metric=lambda a, b: float(np.abs(a - b).sum())),
            ("X",),
            allowed={"X": ("rank",)},
        ),
        Call("exact_mst", lambda: (exact_mst, {"X": X.copy()}), ("X",)),
        Call("exact_mst", lambda: (exact_mst, {"X": X.copy(), "metric": "cityblock"}), ("X",)),
        Call(
            "kcenter_forest",
            lambda: (kcenter_forest, {"X": X.copy(), "metric": "euclidean", "n_components": 4}),
            ("X",),
        ),
        # One representative a component may be written as a list of one.
        Call(
            "complete_forest",
            complete(X=X, forest=labels, representatives=centres),
            ("X", "forest", "representatives"),
            paired=("forest", "representatives"),
            allowed={"representatives": ("rank",)},
        ),
        Call("complete_forest", complete(X=X, forest=matrix), ("forest",), paired=("forest",)),
        Call(
            "Forest",
            lambda: (
                Forest,
                {
                    "labels": labels.copy(),
                    "edges": grown.edges.copy(),
                    "weights": grown.weights.copy(),
                    "centres": centres.copy(),
                },
            ),
            ("labels", "edges", "weights", "centres"),
            paired=("edges", "weights", "centres"),
        ),
        Call(
            "ForestCompletionSingleLinkage.fit",
            lambda: (ForestCompletionSingleLinkage().fit, {"X": X.copy()}),
            ("X",),
        ),
    ]
