"""C5: Monte-Carlo error."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from theses.evidence import Context
from theses.studies.data.dataset_distance.images import Pixels, mnist_features, take
from theses.studies.data.dataset_distance.sizes import Size

__all__ = ["monte_carlo_error"]


def monte_carlo_error(ctx: Context, size: Size, mnist: Pixels) -> tuple[dict[str, Any], pl.DataFrame]:
    """C5: spread of repeated estimates against L, and the standard error that each returned."""
    table = pl.concat([_replicate(ctx, size, mnist, r) for r in range(size.error_replicates)])
    spread = table.group_by("replicate", "L").agg(pl.col("distance").std(), pl.col("se").mean())
    metrics: dict[str, list[float]] = {"error_slope": [], "se_ratio": []}
    for (_,), part in spread.sort("replicate", "L").group_by("replicate", maintain_order=True):
        logs = np.log(part.select("L", "distance").to_numpy().astype(float))
        metrics["error_slope"].append(float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]))
        middle = part.filter(pl.col("L") == size.error_projections[1])
        metrics["se_ratio"].append(float(middle["se"].item() / middle["distance"].item()))
    return metrics, table


def _replicate(ctx: Context, size: Size, mnist: Pixels, replicate: int) -> pl.DataFrame:
    from theses.data.dataset_distance import sliced_dataset_distance

    rng = ctx.rng(f"error {replicate}")
    n = min(size.error_n, len(mnist[1]) // 2)
    rows = rng.permutation(len(mnist[1]))[: 2 * n]
    A, (x, y) = (mnist_features(take(mnist, part)) for part in (rows[:n], rows[n:]))
    B = (x, rng.permutation(y))
    table = []
    for repeat in range(size.error_repeats):
        for L in size.error_projections:
            distance, error = sliced_dataset_distance(
                A,
                B,
                n_projections=L,
                generator=ctx.torch_generator(f"error {replicate} {repeat} {L}"),
                device=ctx.device,
                return_se=True,
            )
            table.append(
                {"replicate": replicate, "L": L, "repeat": repeat, "distance": distance, "se": error}
            )
    return pl.DataFrame(table)
