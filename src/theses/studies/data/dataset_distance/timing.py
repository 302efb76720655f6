"""C2: time."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from theses.evidence import Context, interleave
from theses.studies.data.dataset_distance.images import Pixels, mnist_features, take
from theses.studies.data.dataset_distance.sizes import Size

__all__ = ["time"]


def time(ctx: Context, size: Size, mnist: Pixels) -> tuple[dict[str, Any], pl.DataFrame]:
    """C2: wall times, sizes in turn; slopes are those of log time over log size."""
    from theses.data.dataset_distance import otdd, sliced_dataset_distance

    rng = ctx.rng("time")

    def pair(n: int, n_classes: int | None = None) -> Any:
        sides = []
        for _ in range(2):
            rows = rng.integers(0, len(mnist[1]), n)
            x, y = mnist_features(take(mnist, rows))
            x += 0.01 * rng.standard_normal(x.shape, dtype=np.float32)
            sides.append((x, y if n_classes is None else rng.integers(0, n_classes, n)))
        return sides

    def ours(A: Any, B: Any) -> float:
        return sliced_dataset_distance(
            A,
            B,
            n_projections=size.time_projections,
            generator=ctx.torch_generator("projections"),
            device=ctx.device,
        )

    pairs = {n: pair(n) for n in sorted({*size.time_n, *size.time_otdd_n})}
    calls: list[tuple[str, int]] = [("sotdd", n) for n in size.time_n]
    calls += [("otdd", n) for n in size.time_otdd_n]
    methods: dict[str, Callable[[Any, Any], float]] = {"sotdd": ours, "otdd": otdd}
    # Warmed up on the smallest sizes only: a round of the largest would cost as much as all the rest.
    ours(*pairs[size.time_n[0]])
    otdd(*pairs[size.time_otdd_n[0]])
    functions = [partial(methods[method], *pairs[n]) for method, n in calls]
    ours_n = len(size.time_n)
    times = interleave(functions[:ours_n], repeats=size.time_repeats, warmup=0)
    times += interleave(functions[ours_n:], repeats=size.time_otdd_repeats, warmup=0)
    few, many = (pair(size.classes_n, n_classes) for n_classes in (2, 200))
    by_classes = interleave([lambda: ours(*few), lambda: ours(*many)], repeats=size.classes_repeats)
    runs = [(method, n, 10) for method, n in calls]
    runs += [("sotdd by classes", size.classes_n, n_classes) for n_classes in (2, 200)]
    table = pl.DataFrame(
        [
            {"method": method, "n": n, "classes": n_classes, "seconds": seconds}
            for (method, n, n_classes), replicates in zip(runs, [*times, *by_classes], strict=True)
            for seconds in replicates
        ]
    )
    slopes = {}
    for method in methods:
        # The shortest of few repeats: what else the machine does can only lengthen one.
        points = [(n, min(t)) for (name, n), t in zip(calls, times, strict=True) if name == method]
        n, seconds = np.log(np.array(points)).T
        slopes[f"slope_{method}"] = float(np.polyfit(n, seconds, 1)[0])
    ratio = statistics.median(by_classes[1]) / statistics.median(by_classes[0])
    return {**slopes, "time_ratio_classes": ratio}, table
