"""What MFC-Approx claims: nearly minimum weight from a fraction of the distances, in any metric."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from theses.evidence import Context, Measurement, interleave

if TYPE_CHECKING:
    import altair as alt
    import numpy as np
    from numpy.typing import NDArray

    from theses.graphs.metric_mst import MSTResult

__all__ = ["figures", "run"]

_NAMES = {
    "G": "Gaussian mixture",
    "U": "uniform 2-d",
    "D": "digits",
    "S": "speeches, Jaccard",
    "W": "words, edit distance",
    "A": "answers, Hamming",
}
_PAPER_DATA = {"D": "fashion-mnist", "S": "cooking", "W": "names-us", "A": "greengenes"}
_KINDS = ("points", "graph", "one-two")
_NEIGHBOURS = 10


class _Scale(NamedTuple):
    """Sizes of one preset; a t of 0 stands for the square root of n."""

    n: Mapping[str, int]
    t: Sequence[int]
    n_metrics: int
    n_large: int
    t_large: Sequence[int]
    growth: Sequence[int]
    rounds: int


_STANDARD = _Scale(
    n={"G": 8_000, "U": 8_000, "D": 5_000, "S": 8_000, "W": 8_000, "A": 4_000},
    t=(16, 64, 0, 256),
    n_metrics=200,
    n_large=20_000,
    t_large=(64, 128),
    growth=(2_000, 4_000, 8_000, 16_000),
    rounds=5,
)
_SCALES = {
    "smoke": _Scale(dict.fromkeys(_NAMES, 300), (8, 0), 24, 300, (8,), (100, 200, 300), 1),
    "standard": _STANDARD,
    "long": _STANDARD,
    # Sizes of the paper's experiments; its implementation needs 24 minutes to 9 hours for the exact trees.
    "paper": _Scale(
        n={"G": 30_000, "U": 30_000, "D": 60_000, "S": 39_774, "W": 30_000, "A": 30_000},
        t=(16, 32, 64, 128, 256),
        n_metrics=200,
        n_large=20_000,
        t_large=(64, 128),
        growth=(2_000, 4_000, 8_000, 16_000, 32_000),
        rounds=1,
    ),
}


def run(ctx: Context) -> Measurement:
    """Measure one unit.

    Parameters
    ----------
    ctx : Context
        Preset and seed; ``paper`` reads the data sets of
        :func:`theses.datasets.metric_spaces.load_metric_dataset` from ``ctx.data_folder``.

    Returns
    -------
    Measurement
        The card's metrics; tables ``runs``, ``metrics``, ``growth``, ``speed``, ``baselines`` and, at preset
        ``long``, ``scale``.

    Raises
    ------
    ValueError
        If the ``paper`` preset gets no data folder.
    """
    scale = _SCALES[ctx.preset]
    if ctx.preset == "paper" and ctx.data_folder is None:
        from theses.datasets.metric_spaces import METRIC_DATASETS

        files = ", ".join(METRIC_DATASETS[name][0] for name in _PAPER_DATA.values())
        raise ValueError(f"the paper preset needs data_folder, a folder that holds {files}")
    if ctx.limit is not None:
        scale = _limited(scale, ctx.limit)
    tables: dict[str, pl.DataFrame] = {}
    if ctx.preset == "long":
        # First, so that the memory's high-water mark is theirs.
        tables["scale"] = pl.DataFrame([_million(ctx, "points"), _million(ctx, "strings")])
    ctx.progress(0.0, "random metrics")
    metrics_table = ctx.stage("random metrics", lambda: _random_metrics(ctx, scale.n_metrics))
    arms: dict[str, dict[str, Any]] = {}
    for number, data in enumerate(_NAMES):
        ctx.progress(0.05 + 0.08 * number, _NAMES[data])
        arms[data] = ctx.stage(data, lambda data=data: _data_arm(ctx, data, scale))  # type: ignore[misc]
    ctx.progress(0.55, "evaluations")
    shares = ctx.stage(
        "evaluation shares", lambda: evaluation_shares(scale.n_large, scale.t_large, ctx.rng("large"))
    )
    growth = ctx.stage("growth", lambda: _growth(scale.growth, ctx.rng("growth")))
    ctx.progress(0.65, "speed")
    times = ctx.stage("speed", lambda: _speed(scale, ctx.rng("large")))

    runs = pl.concat([arm["runs"] for arm in arms.values()])
    plain = runs.filter(variant="plain")
    baselines = pl.DataFrame(
        [{"data": data, "ratio": arms[data]["knn_ratio"]} for data in ("G", "D")],
        schema={"data": pl.String, "ratio": pl.Float64},
    )
    speed = pl.DataFrame(
        [
            {"side": side, "round": number, "seconds": seconds}
            for side in ("approximate", "exact")
            for number, seconds in enumerate(times[side])
        ]
    )
    tables |= {
        "runs": runs,
        "metrics": metrics_table,
        "growth": growth,
        "speed": speed,
        "baselines": baselines,
    }
    measured: dict[str, Any] = {
        f"ratio_{data}": plain.filter(data=data)["ratio"].to_list() for data in _NAMES
    }
    measured["ratio_G_256"] = plain.filter(pl.col("data") == "G", pl.col("t") == pl.col("t").max())[
        "ratio"
    ].to_list()
    measured["completion_ratio"] = metrics_table["completion_ratio"].max()
    worst = [metrics_table["over_bound"].max(), *(plain.filter(data=d)["over_bound"].max() for d in _NAMES)]
    sharp = [metrics_table["over_sharp"].max(), *(plain.filter(data=d)["over_sharp"].max() for d in _NAMES)]
    measured["mst_ratio_over_bound"] = worst
    measured["sharp_completion_ratio"] = float(metrics_table["completion_ratio"].max()) / 2  # type: ignore[arg-type]
    measured["sharp_mst_ratio"] = sharp
    measured["speedup"] = statistics.median(times["exact"]) / statistics.median(times["approximate"])
    measured["exact_seconds"] = times["exact"]
    measured["evaluation_share"] = shares
    measured["evaluation_slope"] = _slope(growth["n"].to_list(), growth["evaluations"].to_list())
    for data in ("S", "W", "A"):
        measured[f"largest_share_{data}"] = plain.filter(data=data)["largest_share"].to_list()
        measured[f"evaluation_gain_{data}"] = (1 / plain.filter(data=data)["evaluation_share"]).to_list()
    for variant in ("r2", "r4", "r16", "capped"):
        measured[f"ratio_W_{variant}"] = runs.filter(data="W", variant=variant)["ratio"].to_list()
    measured["evaluation_share_W_capped"] = runs.filter(data="W", variant="capped")[
        "evaluation_share"
    ].to_list()
    for data in ("G", "D"):
        measured[f"knn_ratio_{data}"] = arms[data]["knn_ratio"]
    ctx.progress(1.0, "done")
    return Measurement(measured, tables, _notes(runs, tables.get("scale")))


def _limited(scale: _Scale, limit: int) -> _Scale:
    return scale._replace(
        n={data: min(n, limit) for data, n in scale.n.items()},
        n_metrics=min(scale.n_metrics, limit),
        n_large=min(scale.n_large, limit),
        growth=sorted({min(n, limit) for n in scale.growth} | {max(2, limit // 2)}),
    )


def _objects(ctx: Context, data: str, n: int) -> tuple[Any, str]:
    """Objects of a data set, drawn anew for the seed and in random order, and their metric."""
    from theses.datasets import images, metric_spaces, shakespeare, swesat

    rng = ctx.rng(f"draw {data}")
    if data == "G":
        return metric_spaces.gaussian_mixture(n, random_state=rng)[0], "euclidean"
    if data == "U":
        return metric_spaces.uniform_cube(n, random_state=rng), "euclidean"
    objects: Any
    if ctx.preset == "paper":
        assert ctx.data_folder is not None
        objects, metric = metric_spaces.load_metric_dataset(ctx.data_folder, _PAPER_DATA[data])
    elif data == "D":
        objects, metric = images.load_mnist5k()[0].reshape(-1, 784).astype(float), "euclidean"
    elif data == "S":
        objects, metric = shakespeare.load_speeches(), "jaccard_sets"
    elif data == "W":
        objects, metric = shakespeare.load_word_forms(), "levenshtein"
    else:
        objects, metric = swesat.answer_strings(swesat.load_swesat("verbal")[0]), "hamming_str"
    total = objects.shape[0] if hasattr(objects, "shape") else len(objects)
    chosen = rng.permutation(total)[: min(n, total)]
    return (objects[chosen] if hasattr(objects, "shape") else [objects[i] for i in chosen.tolist()]), metric


def _data_arm(ctx: Context, data: str, scale: _Scale) -> dict[str, Any]:
    """Exact tree of one data set and completions of it, for every t."""
    from theses.graphs.metric_mst import approximate_mst, exact_mst

    X, metric = _objects(ctx, data, scale.n[data])
    exact = exact_mst(X, metric)
    n = exact.n_objects
    rows = []

    def measure(t: int, variant: str, **options: Any) -> None:
        start = time.perf_counter()
        result = approximate_mst(X, metric, n_components=t, **options)
        rows.append(_row(data, t, variant, result, exact, time.perf_counter() - start))

    root = round(math.sqrt(n))
    for t in sorted({min(t or root, n) for t in scale.t}):
        measure(t, "plain")
    if data == "W":
        for r in (2, 4, 16):
            measure(root, f"r{r}", n_representatives=r)
        measure(root, "capped", max_component_size=math.ceil(4 * n / root))
    knn = _neighbour_tree_weight(X) / exact.total_weight if data in "GD" else math.nan
    return {"runs": pl.DataFrame(rows), "knn_ratio": knn}


def _row(
    data: str, t: int, variant: str, result: MSTResult, exact: MSTResult, seconds: float
) -> dict[str, Any]:
    from theses.graphs.metric_mst import gamma

    ratio, quality = result.total_weight / exact.total_weight, gamma(result, exact)
    return {
        "data": data,
        "n": exact.n_objects,
        "t": t,
        "variant": variant,
        "components": len(result.component_sizes),
        "ratio": ratio,
        "gamma": quality,
        "over_bound": ratio / (2 * quality + 1),
        "over_sharp": ratio / (2 * quality),
        "largest_share": float(result.component_sizes.max() / exact.n_objects),
        "evaluation_share": result.evaluation_share,
        "seconds": seconds,
        "exact_seconds": sum(exact.timings.values()),
    }


def _neighbour_tree_weight(X: NDArray[np.float64]) -> float:
    """Weight of the usual short cut: the tree of a nearest-neighbour graph, its pieces joined in any way."""
    import numpy as np
    from scipy.sparse import csgraph
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=min(_NEIGHBOURS, len(X) - 1)).fit(X)
    graph = near.kneighbors_graph(mode="distance")
    tree = csgraph.minimum_spanning_tree(graph.maximum(graph.T))
    pieces = csgraph.connected_components(tree, directed=False)[1]
    first = np.unique(pieces, return_index=True)[1]
    joins = np.linalg.norm(X[first[1:]] - X[first[:-1]], axis=1)
    return float(tree.sum() + joins.sum())


def _random_metrics(ctx: Context, count: int) -> pl.DataFrame:
    """Completions of forests in random metrics, against the best completion and the exact tree."""
    import numpy as np

    from theses.datasets.metric_spaces import random_metric
    from theses.graphs.metric_mst import complete_forest, exact_mst, gamma, kcenter_forest

    rng = ctx.rng("random metrics")
    rows = []
    for number in range(count):
        kind, partition = _KINDS[number % 3], "random" if number % 2 else "centres"
        n = int(rng.integers(10, 61))
        t = int(rng.integers(2, 9))
        distances = random_metric(kind, n, random_state=rng)
        if partition == "centres":
            forest: Any = kcenter_forest(distances, "precomputed", t, random_state=rng)
            representatives = forest.centres
        else:
            # Components and representatives that no heuristic has chosen: the guarantee needs neither.
            forest = rng.permutation(np.concatenate([np.arange(t), rng.integers(t, size=n - t)]))
            representatives = [int(rng.choice(np.flatnonzero(forest == k))) for k in range(t)]
        approximate, best = (
            complete_forest(
                distances, forest, "precomputed", representatives=representatives, completion=completion
            )
            for completion in ("approx", "optimal")
        )
        exact = exact_mst(distances, "precomputed")
        ratio, quality = approximate.total_weight / exact.total_weight, gamma(approximate, exact)
        rows.append(
            {
                "kind": kind,
                "partition": partition,
                "n": n,
                "t": t,
                "completion_ratio": approximate.total_weight / best.total_weight,
                "mst_ratio": ratio,
                "gamma": quality,
                "over_bound": ratio / (2 * quality + 1),
                "over_sharp": ratio / (2 * quality),
            }
        )
    return pl.DataFrame(rows)


def evaluation_shares(n: int, components: Sequence[int], rng: np.random.Generator) -> list[float]:
    """Distances computed on a Gaussian mixture in 128 dimensions, as a share of all pairs.

    Parameters
    ----------
    n : int
        Number of points.
    components : sequence of int
        Values of t.
    rng : numpy.random.Generator
        Draws the points.

    Returns
    -------
    list of float
        One share for each t.
    """
    from theses.datasets.metric_spaces import gaussian_mixture
    from theses.graphs.metric_mst import approximate_mst

    X = gaussian_mixture(n, random_state=rng)[0]
    return [approximate_mst(X, n_components=min(t, n)).evaluation_share for t in components]


def _growth(sizes: Sequence[int], rng: np.random.Generator) -> pl.DataFrame:
    from theses.datasets.metric_spaces import gaussian_mixture
    from theses.graphs.metric_mst import approximate_mst

    X = gaussian_mixture(max(sizes), random_state=rng)[0]
    rows = []
    for n in sizes:
        t = round(math.sqrt(n))
        evaluations = approximate_mst(X[:n], n_components=t).n_distance_evaluations
        rows.append({"n": n, "t": t, "evaluations": evaluations, "pairs": n * (n - 1) // 2})
    return pl.DataFrame(rows)


def _slope(sizes: Sequence[int], counts: Sequence[int]) -> float:
    """Least-squares slope in double logarithms."""
    x, y = [math.log(n) for n in sizes], [math.log(count) for count in counts]
    return statistics.linear_regression(x, y).slope


def _speed(scale: _Scale, rng: np.random.Generator) -> dict[str, list[float]]:
    from theses.datasets.metric_spaces import gaussian_mixture
    from theses.graphs.metric_mst import approximate_mst, exact_mst

    X = gaussian_mixture(scale.n_large, random_state=rng)[0]
    t = min(max(scale.t_large), scale.n_large)
    for function in (approximate_mst, exact_mst):
        function(X[:200])  # libraries load and threads start before the clock runs
    sides: list[Callable[[], object]] = [lambda: approximate_mst(X, n_components=t), lambda: exact_mst(X)]
    approximate, exact = interleave(sides, repeats=scale.rounds, warmup=0)
    return {"approximate": approximate, "exact": exact}


def _million(ctx: Context, kind: str) -> dict[str, Any]:
    """A tree of a million objects, for which no exact one is to be had."""
    ctx.progress(0.0, f"a million {kind}")
    result: dict[str, Any] = ctx.stage(f"million {kind}", lambda: million_objects(ctx, kind, 1_000_000))
    return result


def million_objects(ctx: Context, kind: str, n: int) -> dict[str, Any]:
    """Wall time, memory and evaluations of one large tree.

    Parameters
    ----------
    ctx : Context
        Gives the random stream.
    kind : {"points", "strings"}
        Uniform points in two dimensions; mutated word forms under edit distance, with components capped at
        4 n / t.
    n : int
        Number of objects.

    Returns
    -------
    dict
        ``kind``, ``n``, ``components``, ``largest_share``, ``evaluations``, ``evaluation_share``,
        ``seconds`` and ``peak_mb``, the process's high-water mark.
    """
    from theses.datasets.metric_spaces import mutated_words, uniform_cube
    from theses.datasets.shakespeare import load_word_forms
    from theses.graphs.metric_mst import approximate_mst

    rng = ctx.rng(f"million {kind}")
    t = min(512, round(math.sqrt(n)))
    start = time.perf_counter()
    if kind == "points":
        points = uniform_cube(n, random_state=rng)
        start = time.perf_counter()
        result = approximate_mst(points, n_components=t)
    else:
        words = mutated_words(load_word_forms(), n, random_state=rng)
        start = time.perf_counter()
        result = approximate_mst(words, "levenshtein", n_components=t, max_component_size=4 * n // t)
    seconds = time.perf_counter() - start
    return {
        "kind": kind,
        "n": n,
        "components": len(result.component_sizes),
        "largest_share": float(result.component_sizes.max() / n),
        "evaluations": result.n_distance_evaluations,
        "evaluation_share": result.evaluation_share,
        "seconds": seconds,
        "peak_mb": _peak_mb(),
    }


def _peak_mb() -> float:
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return math.nan


def _notes(runs: pl.DataFrame, scale: pl.DataFrame | None) -> list[str]:
    words = runs.filter(data="W", variant="plain").sort("t")
    notes = [
        f"words, t = {row['t']}: the largest component holds {row['largest_share']:.0%} of all objects, "
        f"{row['evaluation_share']:.0%} of all distances are computed"
        for row in words.iter_rows(named=True)
    ]
    for row in scale.iter_rows(named=True) if scale is not None else ():
        notes.append(
            f"{row['n']} {row['kind']}: {row['seconds']:.0f} s, peak {row['peak_mb']:.0f} MB, "
            f"{row['evaluations']} distances ({row['evaluation_share']:.2%} of all), "
            f"{row['components']} components"
        )
    return notes


def figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, alt.Chart]:
    """Charts from the stored tables.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        Tables of :func:`run`, stacked over seeds with a column ``seed``.

    Returns
    -------
    dict of str to altair.Chart
        Quality, cost, growth, guarantee and time.
    """
    import altair as alt

    runs = tables["runs"].with_columns(data=pl.col("data").replace_strict(_NAMES))
    plain = runs.filter(variant="plain")
    by_t = alt.X("t:Q", title="number of components t").scale(type="log", base=2)
    colour = alt.Color("data:N", title=None)

    def over_t(column: str, title: str) -> alt.Chart:
        base = alt.Chart(plain).encode(x=by_t, color=colour)
        y = alt.Y(f"{column}:Q", title=title).scale(zero=False)
        mean = alt.Y(f"mean({column}):Q", title=title).scale(zero=False)
        layers: alt.Chart = base.mark_point(opacity=0.5, size=20).encode(y=y) + base.mark_line().encode(
            y=mean
        )
        return layers

    bound = alt.Chart(pl.DataFrame({"bound": [1.2]})).mark_rule(strokeDash=[4, 4]).encode(y="bound:Q")
    growth = tables["growth"].unpivot(["evaluations", "pairs"], index=["n", "seed"], variable_name="count")
    growth = growth.with_columns(
        count=pl.col("count").replace_strict({"evaluations": "computed", "pairs": "all pairs"})
    )
    words = runs.filter(pl.col("data") == _NAMES["W"])
    labels = {
        "plain": "one representative",
        "r2": "2 representatives",
        "r4": "4 representatives",
        "r16": "16 representatives",
        "capped": "components capped at 4n/t",
    }
    words = words.with_columns(variant=pl.col("variant").replace_strict(labels))
    return {
        "quality": (over_t("ratio", "weight / minimum weight") + bound).properties(
            title="Weight of the approximate tree; the dashed line is the bound of the claims"
        ),
        "evaluations": over_t("evaluation_share", "distances computed / all").properties(
            title="Share of the distances that are computed"
        ),
        "largest component": over_t("largest_share", "largest component / all objects").properties(
            title="Where one component holds nearly all, nothing is gained"
        ),
        "growth": alt.Chart(growth)
        .mark_line(point=True)
        .encode(
            x=alt.X("n:Q", title="number of objects n").scale(type="log", base=2),
            y=alt.Y("mean(value):Q", title="distances").scale(type="log"),
            color=alt.Color("count:N", title=None),
        )
        .properties(title="Distances for t = √n, Gaussian mixture"),
        "guarantee": alt.Chart(tables["metrics"])
        .mark_circle(opacity=0.4, size=15)
        .encode(
            x=alt.X("gamma:Q", title="γ of the forest").scale(zero=False),
            y=alt.Y("mst_ratio:Q", title="weight / minimum weight").scale(zero=False),
            color=alt.Color("kind:N", title="random metric"),
            shape=alt.Shape("partition:N", title="components"),
        )
        .properties(title="Random metrics; the theorem allows 2γ + 1"),
        "words": alt.Chart(words)
        .mark_point(filled=True, size=50)
        .encode(
            x=alt.X("evaluation_share:Q", title="distances computed / all"),
            y=alt.Y("ratio:Q", title="weight / minimum weight").scale(zero=False),
            color=alt.Color("variant:N", title=None),
            shape=alt.Shape("t:N", title="t"),
        )
        .properties(title="Edit distance: more representatives, or smaller components"),
        "time": alt.Chart(plain)
        .mark_circle(size=40)
        .encode(
            x=alt.X("exact_seconds:Q", title="exact tree, s").scale(type="log"),
            y=alt.Y("seconds:Q", title="approximate tree, s").scale(type="log"),
            color=colour,
            size=alt.Size("t:Q", title="t"),
        )
        .properties(title="Wall time"),
        "speed": alt.Chart(tables["speed"])
        .mark_tick(thickness=2)
        .encode(
            x=alt.X("seconds:Q", title="s").scale(type="log"),
            y=alt.Y("side:N", title=None),
        )
        .properties(title="Interleaved runs on the large Gaussian mixture"),
    }
