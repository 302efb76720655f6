"""C3: labels count."""

from __future__ import annotations

from typing import Any

import polars as pl

from theses.evidence import Context
from theses.studies.data.dataset_distance.images import Pixels, mnist_features, take
from theses.studies.data.dataset_distance.sizes import Size

__all__ = ["labels_count"]


def labels_count(ctx: Context, size: Size, mnist: Pixels) -> tuple[dict[str, Any], pl.DataFrame]:
    """C3: distance to a fresh draw whose labels are as they were, permuted, merged or renamed."""
    from theses.data.dataset_distance import sliced_dataset_distance

    rng = ctx.rng("labels")
    n = min(size.labels_n, len(mnist[1]) // 2)
    rows = rng.permutation(len(mnist[1]))[: 2 * n]
    A, (x, y) = (mnist_features(take(mnist, part)) for part in (rows[:n], rows[n:]))
    sides = {
        "fresh": (x, y),
        "permuted": (x, rng.permutation(y)),
        "merged": (x, y // 2),
        "relabelled": (x, rng.permutation(10)[y]),
    }
    distances = {
        (name, moments): sliced_dataset_distance(
            A,
            B,
            n_projections=size.n_projections,
            n_moments=moments,
            generator=ctx.torch_generator("projections"),
            device=ctx.device,
        )
        for moments in (5, 0)
        for name, B in sides.items()
    }
    raw = [(mnist[0][part].reshape(n, -1) * 255, mnist[1][part]) for part in (rows[:n], rows[n:])]
    unscaled, error = sliced_dataset_distance(
        *raw,
        n_projections=size.n_projections,
        scale=None,
        generator=ctx.torch_generator("projections"),
        return_se=True,
    )
    metrics = {
        "permuted_over_fresh": distances["permuted", 5] / distances["fresh", 5],
        "merged_over_fresh": distances["merged", 5] / distances["fresh", 5],
        "permuted_over_fresh_m0": distances["permuted", 0] / distances["fresh", 0],
        "relabelled_over_before": distances["relabelled", 5] / distances["fresh", 5],
        "unscaled_distance": unscaled,
        "unscaled_relative_error": error / unscaled,
    }
    table = pl.DataFrame(
        [{"labels": name, "moments": m, "distance": value} for (name, m), value in distances.items()]
    )
    return metrics, table
