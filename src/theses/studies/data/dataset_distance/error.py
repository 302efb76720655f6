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
    from theses.data.dataset_distance import sliced_dataset_distance

    rng = ctx.rng("error")
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
                generator=ctx.torch_generator(f"error {repeat} {L}"),
                device=ctx.device,
                return_se=True,
            )
            table.append({"L": L, "repeat": repeat, "distance": distance, "se": error})
    frame = pl.DataFrame(table)
    spread = frame.group_by("L").agg(pl.col("distance").std(), pl.col("se").mean()).sort("L")
    slope = np.polyfit(np.log(spread["L"].to_numpy()), np.log(spread["distance"].to_numpy()), 1)[0]
    middle = spread.filter(pl.col("L") == size.error_projections[1])
    return {
        "error_slope": float(slope),
        "se_ratio": float(middle["se"].item() / middle["distance"].item()),
    }, frame
