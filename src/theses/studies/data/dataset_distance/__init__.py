"""Measures the claims of s-OTDD: against exact OTDD, in time, in its labels, in its Monte-Carlo error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from theses.evidence import Context, Measurement
from theses.studies.data.dataset_distance.correlation import graded, random_pairs
from theses.studies.data.dataset_distance.error import monte_carlo_error
from theses.studies.data.dataset_distance.figures import figures
from theses.studies.data.dataset_distance.images import image_sets
from theses.studies.data.dataset_distance.labels import labels_count
from theses.studies.data.dataset_distance.sizes import SIZES
from theses.studies.data.dataset_distance.timing import time
from theses.studies.data.dataset_distance.training import augmentation, transfer

__all__ = ["figures", "run"]


def run(ctx: Context) -> Measurement:
    """One unit: all claims of the card for one seed.

    Parameters
    ----------
    ctx : Context
        Preset, seed and streams.

    Returns
    -------
    Measurement
        Every metric of the card.

    Raises
    ------
    ValueError
        If the ``paper`` preset is asked for without its data.
    """
    size = SIZES[ctx.preset].capped(ctx.limit)
    mnist, second, sources = image_sets(ctx)
    metrics: dict[str, Any] = {}
    tables: dict[str, pl.DataFrame] = {}

    arms: dict[str, Callable[[], tuple[dict[str, Any], pl.DataFrame]]] = {
        "random": lambda: random_pairs(ctx, size, mnist),
        "graded": lambda: graded(ctx, size, "mnist", mnist),
        "second": lambda: graded(ctx, size, "digits", second),
        "labels": lambda: labels_count(ctx, size, mnist),
        "error": lambda: monte_carlo_error(ctx, size, mnist),
        "transfer": lambda: transfer(ctx, size, mnist, sources),
        "augmentation": lambda: augmentation(ctx, size, mnist),
        "time": lambda: time(ctx, size, mnist),
    }
    for done, (name, arm) in enumerate(arms.items()):
        ctx.progress(done / len(arms), name)
        values, table = ctx.stage(name, arm)
        metrics |= values
        tables[name] = table
    ctx.progress(1.0, "done")
    return Measurement(metrics, tables)
