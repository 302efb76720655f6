"""MFC-Approx beside exact trees: SciPy's on the dense matrix, those with a tree index, and our own."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial.distance import cdist

from theses.datasets.metric_spaces import gaussian_mixture, uniform_cube
from theses.datasets.shakespeare import load_speeches
from theses.evidence import Comparison, interleave
from theses.graphs.metric_mst import MSTResult, approximate_mst, exact_mst

__all__ = ["benchmark"]

_SCIPY = "scipy minimum_spanning_tree, dense"
_SECONDS = 3.0  # 20,000 points in 128 dimensions, t = 128, on two cores
_PEAK_MB = 300.0  # the same, the whole process
_SET_SECONDS = 60.0  # 20,000 sets
_OVERHEAD_US = 2.0  # beside each call of a function of the user's own
_HEAVIER = 1.25  # the approximate tree against the exact one, in all rows
_PEAK_CODE = """
import pathlib, re
from theses.datasets.metric_spaces import gaussian_mixture
from theses.graphs.metric_mst import approximate_mst
approximate_mst(gaussian_mixture(20_000, random_state=100)[0], n_components=128)
print(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""


def _peak_mb() -> float:
    # Not getrusage: its peak of a fresh process starts from what the parent held.
    done = subprocess.run([sys.executable, "-c", _PEAK_CODE], capture_output=True, text=True, check=True)
    return float(done.stdout) / 1024


def _weigh(ours: MSTResult, exact_weight: float) -> str:
    ratio = ours.total_weight / exact_weight
    assert 1 - 1e-6 <= ratio <= _HEAVIER, ratio
    return (
        f"our tree weighs {ratio:.4f} times the exact one, from {ours.evaluation_share:.2%} of all distances"
    )


def _set_matrix(n: int) -> sparse.csr_array:
    speeches = load_speeches()[:n]
    numbers: dict[str, int] = {}
    items = [sorted(numbers.setdefault(word, len(numbers)) for word in speech) for speech in speeches]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in items])])
    ones = np.ones(starts[-1])
    return sparse.csr_array((ones, np.concatenate(items), starts), shape=(len(items), len(numbers)))


def _dense_jaccard(matrix: sparse.csr_array) -> np.ndarray:
    common = (matrix @ matrix.T).toarray()
    sizes = matrix.sum(axis=1)
    distances: np.ndarray = 1 - common / (sizes[:, None] + sizes - common)
    return distances


def _manhattan(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def _against(
    peer: str, size: str, ours: Callable[[], MSTResult], theirs: Callable[[], float], rounds: int
) -> Comparison:
    quality = _weigh(ours(), theirs())
    ours_s, peer_s = interleave([ours, theirs], repeats=rounds, warmup=0)
    return Comparison(peer, size, ours_s, peer_s, "", quality)


def _two_dimensions() -> list[Comparison]:
    """The honest case against us: a tree index applies, and is exact."""
    import fast_hdbscan.hdbscan
    import mlpack

    X = uniform_cube(20_000, 2, random_state=100)

    def dual_tree() -> float:
        return float(mlpack.emst(input_=X)["output"][:, 2].sum())

    def boruvka() -> float:
        edges = fast_hdbscan.hdbscan.compute_minimum_spanning_tree(X, min_samples=1)[0]
        return float(edges[:, 2].sum())

    size = "20,000 uniform points in 2 dimensions, t = 141"
    return [
        _against(peer, size, lambda: approximate_mst(X), tree, rounds=5)
        for peer, tree in (("mlpack.emst, exact", dual_tree), ("fast-hdbscan's Boruvka, exact", boruvka))
    ]


def _callable_overhead() -> Comparison:
    points = [tuple(row) for row in uniform_cube(2_000, 2, random_state=100).tolist()]
    count = approximate_mst(points, _manhattan).n_distance_evaluations

    def bare() -> float:
        # As many calls as the algorithm makes, of the same function on the same objects, and nothing else.
        calls = 0
        total = 0.0
        while calls < count:
            a = points[calls % 2_000]
            for b in points[: min(2_000, count - calls)]:
                total += _manhattan(a, b)
            calls += min(2_000, count - calls)
        return total

    ours_s, bare_s = interleave([lambda: approximate_mst(points, _manhattan), bare], repeats=5)
    overhead = (statistics.median(ours_s) - statistics.median(bare_s)) / count * 1e6
    assert overhead <= _OVERHEAD_US, overhead
    quality = f"{count} calls on both sides; {overhead:.2f} us a call beside the function itself (target 2)"
    return Comparison(
        "the same calls in a bare loop", "2,000 objects, own function", ours_s, bare_s, "", quality
    )


def benchmark() -> list[Comparison]:
    """Time forest completion and its peers in turn.

    Returns
    -------
    list of Comparison
        The first row is the primary peer.
    """
    X = gaussian_mixture(5_000, random_state=100)[0]

    def dense() -> float:
        return float(csgraph.minimum_spanning_tree(cdist(X, X)).sum())

    size = "5,000 points in 128 dimensions"
    rows = [_against(_SCIPY, f"{size}, t = 71", lambda: approximate_mst(X), dense, 3)]
    equal = exact_mst(X).total_weight
    assert abs(equal / dense() - 1) < 1e-9
    ours_s, peer_s = interleave([lambda: exact_mst(X), dense], repeats=3, warmup=0)
    quality = "exact_mst, of equal weight to 1e-9, without a matrix"
    rows.append(Comparison(_SCIPY, size, ours_s, peer_s, "", quality))

    large = gaussian_mixture(20_000, random_state=100)[0]
    approximate = approximate_mst(large, n_components=128)
    quality = _weigh(approximate, exact_mst(large).total_weight)
    sides = [lambda: approximate_mst(large, n_components=128), lambda: exact_mst(large)]
    ours_s, peer_s = interleave(sides, repeats=3, warmup=0)
    peak_mb = _peak_mb()
    assert max(ours_s) <= _SECONDS, ours_s
    assert peak_mb <= _PEAK_MB, peak_mb
    size = "20,000 points in 128 dimensions, t = 128"
    rows.append(Comparison("our exact_mst", size, ours_s, peer_s, ">= 10", quality, peak_mb))

    rows += _two_dimensions()

    sets = _set_matrix(5_000)

    def dense_sets() -> float:
        # 1 is added to every length: SciPy takes a length of 0 for no edge.
        shifted = _dense_jaccard(sets) + 1
        return float(csgraph.minimum_spanning_tree(shifted).sum()) - (sets.shape[0] - 1)

    def ours() -> MSTResult:
        return approximate_mst(sets, "jaccard_sets")

    size = "5,000 speeches as word sets, t = 71"
    rows.append(_against(_SCIPY, size, ours, dense_sets, 3))
    many = _set_matrix(20_000)
    start = time.perf_counter()
    exact_weight = exact_mst(many, "jaccard_sets").total_weight
    exact_s = time.perf_counter() - start
    start = time.perf_counter()
    approximate = approximate_mst(many, "jaccard_sets")
    approximate_s = time.perf_counter() - start
    assert max(exact_s, approximate_s) <= _SET_SECONDS, (exact_s, approximate_s)
    rows.append(
        Comparison(
            "our exact_mst",
            "20,000 speeches as word sets, t = 141",
            [approximate_s],
            [exact_s],
            "",
            _weigh(approximate, exact_weight),
        )
    )
    rows.append(_callable_overhead())
    return rows
