from __future__ import annotations

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theses.problems import coverage
from theses.problems.coverage import (
    Graph,
    barabasi_albert,
    degree_costs,
    digit_similarities,
    flight_sets,
    les_miserables,
    live_edges,
    load_graph,
    model_rb,
    pack_sets,
    spread,
    unpack,
)


def test_a_graph_agrees_with_networkx():
    theirs = networkx.gnp_random_graph(30, 0.2, seed=1, directed=True)
    graph = Graph.from_networkx(theirs)
    assert graph.directed and graph.out_degrees().tolist() == [d for _, d in theirs.out_degree()]
    for node, found in enumerate(graph.neighbourhoods(closed=False)):
        assert found.tolist() == sorted(theirs.successors(node))
    loops = networkx.MultiGraph([("a", "b"), ("b", "a"), ("b", "b")])
    assert Graph.from_networkx(loops).edges.tolist() == [[0, 1]]


def test_undirected_edges_go_both_ways():
    graph = Graph(4, np.array([[2, 0], [1, 2]]))
    assert graph.arcs().tolist() == [[2, 0], [1, 2], [0, 2], [2, 1]]
    assert [found.tolist() for found in graph.neighbourhoods()] == [[0, 2], [1, 2], [0, 1, 2], [3]]
    assert Graph(3, np.empty((0, 2), dtype=int)).out_degrees().tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("n", "edges", "labels", "says"),
    [
        (2, [[0, 2]], (), "from 0 to 1"),
        (2, [[0, 0]], (), "loops"),
        (2, [[0, 1], [1, 0]], (), "twice"),
        (2, [[0, 1, 1]], (), "2 columns"),
        (0, [], (), "n must be at least 1"),
        (2, [[0, 1]], ("a",), "labels"),
    ],
)
def test_bad_graphs_are_refused(n, edges, labels, says):
    with pytest.raises(ValueError, match=says):
        Graph(n, np.array(edges), labels=labels)
    with pytest.raises(TypeError, match="edges must be integers"):
        Graph(2, np.array([[0.0, 1.0]]))


def test_generators_have_the_right_sizes_and_repeat():
    ba = barabasi_albert(60, 3, random_state=4)
    assert len(ba.edges) == 57 * 3 and ba.out_degrees()[4:].min() >= 3
    assert (ba.edges == barabasi_albert(60, 3, random_state=4).edges).all()
    rb = model_rb(5, 4, 30, random_state=4)
    inside = rb.edges[:, 0] // 4 == rb.edges[:, 1] // 4
    assert inside.sum() == 5 * 6 and (~inside).sum() == 30
    with pytest.raises(ValueError, match="n_conflicts"):
        model_rb(2, 2, 5)
    with pytest.raises(ValueError, match="n must"):
        barabasi_albert(3, 3)


def test_old_nodes_are_preferred():
    degrees = np.mean([barabasi_albert(200, 2, random_state=s).out_degrees() for s in range(5)], axis=0)
    assert degrees[:10].mean() > 4 * degrees[-50:].mean()


def test_files_are_read(tmp_path):
    mis = tmp_path / "small.mis"
    mis.write_text("c four nodes\np edge 4 3\ne 1 2\ne 2 3\ne 2 1\n")
    graph = load_graph(mis)
    assert graph.n == 4 and graph.edges.tolist() == [[0, 1], [1, 2]] and graph.labels == ("1", "2", "3", "4")
    edges = tmp_path / "edges.txt"
    edges.write_text("# from to\nx y 0.5\ny,z\nz z\ny x\n")
    assert load_graph(edges).edges.tolist() == [[0, 1], [1, 2]]
    assert load_graph(edges, directed=True).edges.tolist() == [[0, 1], [1, 2], [1, 0]]
    for text, says in (
        ("p edge 2 1\ne 1 3\n", "line 2"),
        ("p edge x\n", "line 1"),
        ("alone\n", "line 1: expected an edge"),
        ("\n", "no edges"),
    ):
        edges.write_text(text)
        with pytest.raises(ValueError, match=says):
            load_graph(edges)


def test_real_data():
    graph = les_miserables()
    assert (graph.n, len(graph.edges)) == (77, 254)
    sets, tails = flight_sets(100)
    sizes = [len(served) for served in sets]
    assert len(tails) == 100 and min(sizes) == 80 and max(sizes) == 282
    assert len(set().union(*(served.tolist() for served in sets))) == 2791
    S = digit_similarities(40)
    assert np.allclose(S, S.T) and np.allclose(np.diag(S), 1) and (S > 0).all()


def test_prices_grow_with_degrees():
    graph = barabasi_albert(50, 4, random_state=0)
    degrees = graph.out_degrees()
    assert degree_costs(graph).tolist() == np.maximum(degrees - 5, 1).tolist()
    noisy = degree_costs(graph, "outdegree_noise", random_state=1)
    xi = np.abs(np.random.default_rng(1).normal(0, 0.5, 50))
    assert np.allclose(noisy, 1 + (1 + xi) * degrees)
    with pytest.raises(ValueError, match="kind"):
        degree_costs(graph, "weight")


@given(st.lists(st.sets(st.integers(0, 200)), max_size=6))
@settings(max_examples=40, deadline=None)
def test_packing_and_unpacking_agree(sets):
    for elements, bits in zip(sets, pack_sets(sets), strict=True):
        assert set(np.flatnonzero(unpack(bits, 201)).tolist()) == elements
        assert bits.bit_count() == len(elements)


def test_bad_sets_are_refused():
    with pytest.raises(ValueError, match=r"sets\[1\] must not hold negative"):
        pack_sets([[0], [-1]])
    with pytest.raises(TypeError, match=r"sets\[0\] must hold integers"):
        pack_sets([np.array([0.5])])
    with pytest.raises(TypeError, match=r"sets\[0\] must be a collection"):
        pack_sets([3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="dimension"):
        pack_sets([np.zeros((2, 2), dtype=int)])


def test_spread_agrees_with_reachability():
    rng = np.random.default_rng(0)
    graph = Graph.from_networkx(networkx.gnp_random_graph(12, 0.3, seed=2, directed=True))
    arcs, samples = graph.arcs(), 25
    live = live_edges(np.full(len(arcs), 0.4), samples, random_state=rng)
    start = [0] * 12
    start[3] = (1 << samples) - 1
    reached = spread(arcs, live, start)
    for sample in range(samples):
        kept = [tuple(arc) for arc, bits in zip(arcs.tolist(), live, strict=True) if bits >> sample & 1]
        theirs = networkx.DiGraph(kept)
        theirs.add_node(3)
        expected = {3} | networkx.descendants(theirs, 3)
        assert {node for node in range(12) if reached[node] >> sample & 1} == expected
    with pytest.raises(ValueError, match="live"):
        spread(arcs, live[:-1], start)


def test_live_edges_have_their_probability():
    found = live_edges([0.05, 0.9, 0, 1], 20_000, random_state=0)
    shares = [bits.bit_count() / 20_000 for bits in found]
    assert np.allclose(shares, [0.05, 0.9, 0, 1], atol=0.01) and shares[2:] == [0, 1]
    for bad in ([1.5], [-0.1]):
        with pytest.raises(ValueError, match="probabilities"):
            live_edges(bad, 10)
    with pytest.raises(ValueError, match="probabilities"):
        live_edges([np.nan], 10)


def test_all_is_documented():
    assert all(getattr(coverage, name).__doc__ for name in coverage.__all__)
