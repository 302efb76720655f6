"""Greedy on bitsets beside submodlib and apricot, and evaluations a second of the searches."""

from __future__ import annotations

import statistics
import time
import tracemalloc
from typing import Any

import numpy as np
from scipy import sparse

from theses.decision.pareto_subset_selection import MaxCoverage, epol, generalized_greedy, pomc
from theses.evidence import Comparison, interleave
from theses.problems.coverage import barabasi_albert, degree_costs, model_rb

__all__ = ["benchmark"]

_RATE = 60_000  # POMC evaluations a second with 450 nodes
_SECONDS = 70.0  # 20 n^2 evaluations of the same


def benchmark() -> list[Comparison]:
    """Rows of the comparison; the first is the primary peer.

    Returns
    -------
    list of Comparison
        Greedy under a budget beside submodlib, greedy by number beside apricot, both with 10,000 items; POMC
        with 450 nodes beside the same search without incremental evaluation.
    """
    return [_submodlib(), _apricot(), *_searches()]


def _submodlib() -> Comparison:
    from submodlib import SetCoverFunction

    n = 10_000
    graph = barabasi_albert(n, 5, random_state=0)
    sets = graph.neighbourhoods()
    costs = degree_costs(graph, "outdegree_noise", random_state=1)
    budget = 0.02 * float(costs.sum())
    f = MaxCoverage(sets)
    theirs = SetCoverFunction(n, cover_set=[set(found.tolist()) for found in sets], num_concepts=n)
    kept: dict[str, Any] = {}

    def ours() -> None:
        kept["ours"] = generalized_greedy(f, costs, budget)

    def peer() -> None:
        kept["peer"] = theirs.maximize(
            budget=budget,
            optimizer="LazyGreedy",
            costs=costs.tolist(),
            costSensitiveGreedy=True,
            show_progress=False,
        )

    ours_s, peer_s = interleave([ours, peer], repeats=3)
    chosen = np.isin(np.arange(n), [item for item, _ in kept["peer"]])
    ratio = kept["ours"].value / f.value(chosen)
    assert costs[chosen].sum() <= budget and ratio >= 0.99, (costs[chosen].sum() / budget, ratio)
    quality = f"value {ratio:.4f} times the peer's at the same budget; ours also tries each item alone"
    return Comparison(
        "submodlib SetCoverFunction, lazy greedy by cost",
        f"coverage by {n:,} nodes, {len(kept['peer'])} chosen",
        ours_s,
        peer_s,
        ">= 0.5",
        quality,
    )


def _apricot() -> Comparison:
    from apricot import MaxCoverageSelection

    n, k = 10_000, 200
    graph = barabasi_albert(n, 5, random_state=0)
    sets = graph.neighbourhoods()
    rows = sparse.csr_matrix(
        (
            np.ones(sum(map(len, sets))),
            np.concatenate(sets),
            np.concatenate([[0], np.cumsum([len(found) for found in sets])]),
        ),
        shape=(n, n),
    )
    f = MaxCoverage(sets)
    kept: dict[str, Any] = {}

    def ours() -> None:
        kept["ours"] = generalized_greedy(f, np.ones(n), k)

    def peer() -> None:
        kept["peer"] = MaxCoverageSelection(k, optimizer="lazy").fit(rows)

    ours_s, peer_s = interleave([ours, peer], repeats=3)
    value = f.value(np.isin(np.arange(n), kept["peer"].ranking))
    assert abs(kept["ours"].value / value - 1) < 0.01, (kept["ours"].value, value)
    quality = f"values {kept['ours'].value:.0f} and {value:.0f}"
    return Comparison(
        "apricot MaxCoverageSelection, lazy", f"{n:,} nodes, {k} chosen", ours_s, peer_s, ">= 0.5", quality
    )


class _FromScratch:
    """The same coverage, each value made from its mask."""

    def __init__(self, sets: list[Any]) -> None:
        self.n = len(sets)
        self._rows = np.zeros((self.n, self.n), dtype=bool)
        for node, found in enumerate(sets):
            self._rows[node, found] = True

    def value(self, mask: Any) -> float:
        return float(self._rows[mask].any(axis=0).sum())


def _searches() -> list[Comparison]:
    graph = model_rb(30, 15, 14_677, random_state=0)
    sets = graph.neighbourhoods()
    costs = degree_costs(graph)
    budget = 0.1 * float(costs.sum())
    f, plain = MaxCoverage(sets), _FromScratch(sets)
    n_evals = 20_000
    rows = []
    for search in (pomc, epol):
        kept: dict[str, Any] = {}

        def ours(search: Any = search, kept: dict[str, Any] = kept) -> None:
            kept["ours"] = search(f, costs, budget, n_evals, random_state=0)

        def peer(search: Any = search, kept: dict[str, Any] = kept) -> None:
            kept["peer"] = search(plain, costs, budget, n_evals, random_state=0)

        ours_s, peer_s = interleave([ours, peer], repeats=3)
        assert (kept["ours"].mask == kept["peer"].mask).all()
        # The rate where archive and sets are as large as they get, not at the start.
        begin = time.perf_counter()
        tracemalloc.start()
        search(f, costs, budget, n_evals, random_state=0)
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        begin = time.perf_counter()
        long = search(f, costs, budget, 50 * n_evals, random_state=0)
        rate = long.n_evals / (time.perf_counter() - begin)
        whole = 20 * f.n**2 / rate
        quality = (
            f"the same set; in a run of a million {rate:,.0f} evaluations a second (target {_RATE:,}), so "
            f"that 20 n^2 take {whole:.0f} s (target {_SECONDS:.0f}), largest archive {long.max_archive}"
        )
        name = f"the same {search.__name__}, each value from its mask in NumPy"
        size = f"Model RB, {f.n} nodes as frb30-15, {n_evals:,} evaluations"
        rows.append(Comparison(name, size, ours_s, peer_s, "", quality, peak))
    return rows


if __name__ == "__main__":
    for row in benchmark():
        print(f"{row.peer}: {row.size}: {statistics.median(row.ours_s):.3f} s, ratio {row.ratio:.2f}")
        print("  ", row.quality)
