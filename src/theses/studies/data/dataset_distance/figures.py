"""Charts from stored tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import altair as alt

__all__ = ["figures"]

_Draw = Callable[[pl.DataFrame], "alt.Chart"]

_METHODS = {
    "sotdd": "s-OTDD",
    "otdd": "exact OTDD",
    "features": "sliced Wasserstein, features only",
    "gaussian": "Gaussian OTDD",
    "mmd": "MMD",
    "frechet": "Fréchet distance",
}


def figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, alt.Chart]:
    """Charts of the card's claims from stored tables.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        Tables of ``run``, stacked over seeds, with a column ``seed``.

    Returns
    -------
    dict of str to altair.Chart
        By name; a chart whose table is absent is left out.
    """
    drawn = {}
    for name, (table, draw) in _CHARTS.items():
        if table in tables and tables[table].height:
            drawn[name] = draw(tables[table])
    return drawn


def _random(table: pl.DataFrame) -> alt.Chart:
    import altair as alt

    chart: alt.Chart = (
        alt.Chart(table, title="Random pairs of MNIST subsets")
        .mark_point(filled=True)
        .encode(
            x=alt.X("otdd:Q", title="exact OTDD", scale=alt.Scale(zero=False)),
            y=alt.Y("sotdd:Q", title="s-OTDD", scale=alt.Scale(zero=False)),
            color=alt.Color("seed:N"),
            size=alt.Size("n:Q", title="images a side"),
            tooltip=["seed:N", "n:Q", "otdd:Q", "sotdd:Q"],
        )
    )
    return chart


def _graded(title: str) -> _Draw:
    def draw(table: pl.DataFrame) -> alt.Chart:
        import altair as alt

        chart: alt.Chart = (
            alt.Chart(table, title=title)
            .mark_point(filled=True, size=50)
            .encode(
                x=alt.X("otdd:Q", title="exact OTDD", scale=alt.Scale(zero=False)),
                y=alt.Y("sotdd:Q", title="s-OTDD", scale=alt.Scale(zero=False)),
                color=alt.Color("family:N"),
                opacity=alt.Opacity("g:Q", title="step g", scale=alt.Scale(domain=[0, 1], range=[0.35, 1])),
                tooltip=["seed:N", "family:N", "g:Q", "otdd:Q", "sotdd:Q"],
            )
        )
        return chart

    return draw


def _families(table: pl.DataFrame) -> alt.Chart:
    """Each distance over its value for an unchanged draw, by family and step."""
    import altair as alt

    methods = [method for method in _METHODS if method in table.columns]
    unchanged = pl.col("distance").filter(pl.col("g") == 0).first().over("seed", "family", "method")
    long = (
        table.unpivot(methods, index=["seed", "family", "g"], variable_name="method", value_name="distance")
        .with_columns(ratio=pl.col("distance") / unchanged, method=pl.col("method").replace(_METHODS))
        .group_by("family", "method", "g", maintain_order=True)
        .agg(pl.col("ratio").mean())
    )
    chart: alt.Chart = (
        alt.Chart(long, title="Graded changes of MNIST: distance over that of an unchanged draw")
        .mark_line(point=True)
        .encode(
            x=alt.X("g:Q", title="step g"),
            y=alt.Y("ratio:Q", title="ratio, mean over seeds", scale=alt.Scale(type="log", nice=False)),
            color=alt.Color("method:N", sort=list(_METHODS.values())),
            facet=alt.Facet("family:N", columns=3, title=None),
            tooltip=["family:N", "method:N", "g:Q", "ratio:Q"],
        )
        .resolve_scale(y="independent")
        .properties(width=190, height=150)
    )
    return chart


def _instead(table: pl.DataFrame) -> alt.Chart:
    """Rank correlation with exact OTDD over all graded changes, for each distance."""
    import altair as alt

    methods = [method for method in _METHODS if method in table.columns and method != "otdd"]
    long = (
        table.group_by("seed", maintain_order=True)
        .agg(pl.corr(method, "otdd", method="spearman") for method in methods)
        .unpivot(methods, index="seed", variable_name="method", value_name="correlation")
        .with_columns(pl.col("method").replace(_METHODS))
    )
    chart: alt.Chart = (
        alt.Chart(long, title="Who orders the graded changes as exact OTDD does?")
        .mark_point(filled=True, size=60)
        .encode(
            x=alt.X("correlation:Q", title="Spearman correlation with exact OTDD"),
            y=alt.Y("method:N", sort=list(_METHODS.values()), title=None),
            color=alt.Color("seed:N"),
            tooltip=["seed:N", "method:N", "correlation:Q"],
        )
    )
    return chart


def _labels(table: pl.DataFrame) -> alt.Chart:
    import altair as alt

    chart: alt.Chart = (
        alt.Chart(table, title="Labels count: distance from a draw to a fresh one with other labels")
        .mark_point(filled=True, size=60)
        .encode(
            x=alt.X("labels:N", sort=["fresh", "relabelled", "merged", "permuted"], title=None),
            y=alt.Y("distance:Q"),
            color=alt.Color("moments:N", title="label moments"),
            tooltip=["seed:N", "labels:N", "moments:N", "distance:Q"],
        )
        .properties(width=260)
    )
    return chart


def _error(table: pl.DataFrame) -> alt.Chart:
    import altair as alt

    long = (
        table.group_by("seed", "replicate", "L", maintain_order=True)
        .agg(
            pl.col("distance").std().alias("spread over draws of projections"),
            pl.col("se").mean().alias("mean standard error returned"),
        )
        .unpivot(index=["seed", "replicate", "L"], variable_name="what", value_name="error")
    )
    chart: alt.Chart = (
        alt.Chart(long, title="Monte-Carlo error")
        .mark_line(point=True)
        .encode(
            x=alt.X("L:Q", title="projections", scale=alt.Scale(type="log", nice=False)),
            y=alt.Y("error:Q", title="error of the distance", scale=alt.Scale(type="log", nice=False)),
            color=alt.Color("what:N", title=None),
            detail=["seed:N", "replicate:N"],
            tooltip=["seed:N", "replicate:N", "what:N", "L:Q", "error:Q"],
        )
    )
    return chart


def _transfer(table: pl.DataFrame) -> alt.Chart:
    import altair as alt

    chart: alt.Chart = (
        alt.Chart(table, title="Does a far source transfer worse?")
        .mark_point(filled=True, size=60)
        .encode(
            x=alt.X("sotdd:Q", title="s-OTDD from source to target", scale=alt.Scale(type="log", nice=False)),
            y=alt.Y("gap:Q", title="accuracy gap after fine-tuning", scale=alt.Scale(zero=False)),
            color=alt.Color("source:N"),
            tooltip=["seed:N", "source:N", "sotdd:Q", "gap:Q"],
        )
    )
    return chart


def _augmentation(table: pl.DataFrame) -> alt.Chart:
    import altair as alt

    chart: alt.Chart = (
        alt.Chart(table, title="Does a near augmented set train better?")
        .mark_point(filled=True, size=60)
        .encode(
            x=alt.X(
                "sotdd:Q",
                title="s-OTDD from augmented to test images",
                scale=alt.Scale(type="log", nice=False),
            ),
            y=alt.Y("accuracy:Q", title="test accuracy", scale=alt.Scale(zero=False)),
            color=alt.Color("augmentation:N"),
            tooltip=["seed:N", "augmentation:N", "sotdd:Q", "accuracy:Q"],
        )
    )
    return chart


def _time(table: pl.DataFrame) -> alt.Chart:
    import altair as alt

    shortest = (
        table.filter(pl.col("method").is_in(["sotdd", "otdd"]))
        .group_by("seed", "method", "n", maintain_order=True)
        .agg(pl.col("seconds").min())
        .with_columns(pl.col("method").replace(_METHODS))
    )
    chart: alt.Chart = (
        alt.Chart(shortest, title="Time for one pair of data sets")
        .mark_line(point=True)
        .encode(
            x=alt.X("n:Q", title="samples a side", scale=alt.Scale(type="log", nice=False)),
            y=alt.Y("seconds:Q", scale=alt.Scale(type="log", nice=False)),
            color=alt.Color("method:N", title=None),
            detail="seed:N",
            tooltip=["seed:N", "method:N", "n:Q", "seconds:Q"],
        )
    )
    return chart


_CHARTS: dict[str, tuple[str, _Draw]] = {
    "random_pairs": ("random", _random),
    "graded_mnist": ("graded", _graded("Graded changes of MNIST")),
    "graded_digits": ("second", _graded("Graded changes of the second domain")),
    "families": ("graded", _families),
    "instead": ("graded", _instead),
    "time": ("time", _time),
    "labels": ("labels", _labels),
    "transfer": ("transfer", _transfer),
    "augmentation": ("augmentation", _augmentation),
    "error": ("error", _error),
}
