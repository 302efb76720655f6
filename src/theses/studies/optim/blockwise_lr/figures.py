"""Charts of the study, from its stored tables alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import altair as alt

__all__ = ["figures"]

_BLOCKS = ["embed", "qk", "ffn", "vo", "norm"]


def figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, alt.Chart]:
    """Charts of the stored tables.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        ``curves``, ``sharpness`` and ``tuning``, each with a column ``seed``.

    Returns
    -------
    dict of str to altair.Chart
        Validation loss over the steps, sharpness by block, final loss by base rate.
    """
    import altair as alt

    curves = tables["curves"].group_by("run", "step").agg(pl.col("loss").mean()).sort("run", "step")
    loss = (
        alt.Chart(curves, title="Validation loss, mean over seeds")
        .mark_line()
        .encode(
            x=alt.X("step:Q", title="step"),
            y=alt.Y("loss:Q", title="loss, nat a token").scale(zero=False),
            color=alt.Color("run:N", title=None),
            tooltip=["run:N", "step:Q", "loss:Q"],
        )
        .properties(width=420, height=260)
    )
    sharp = (
        alt.Chart(
            tables["sharpness"].filter(pl.col("sharpness") > 0),
            title="Mean diagonal of the Gauss-Newton matrix (the paper's order: rising)",
        )
        .mark_line(point=True)
        .encode(
            x=alt.X("block:N", sort=_BLOCKS, title=None),
            y=alt.Y("sharpness:Q", title="sharpness").scale(type="log"),
            color=alt.Color("model:N", title="model"),
            detail="seed:N",
            tooltip=["model:N", "block:N", "seed:N", "sharpness:Q"],
        )
        .properties(width=420, height=260)
    )
    tuning = (
        alt.Chart(
            tables["tuning"].unique(["optimiser", "rate"]).sort("optimiser", "rate"),
            title="Tuning on data of its own",
        )
        .mark_line(point=True)
        .encode(
            x=alt.X("rate:Q", title="base learning rate").scale(type="log"),
            y=alt.Y("loss:Q", title="final validation loss").scale(zero=False),
            color=alt.Color("optimiser:N", title=None),
            tooltip=["optimiser:N", "rate:Q", "loss:Q"],
        )
        .properties(width=420, height=260)
    )
    return {"loss": loss, "sharpness": sharp, "tuning": tuning}
