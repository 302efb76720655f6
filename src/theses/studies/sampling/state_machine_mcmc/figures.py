"""Charts of the stored tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import altair as alt

__all__ = ["figures"]


def figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, alt.Chart]:
    """Charts of the stored tables.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        ``iterations``, ``histogram``, ``clock``, ``variants`` and ``mixture``, each with a column ``seed``.

    Returns
    -------
    dict of str to altair.Chart
        ``iterations`` and ``speedup`` over the number of chains, ``counts`` of inner iterations, ``variants``
        of the machine, ``mixture`` in effective draws a second.
    """
    import altair as alt

    chains = alt.X("chains:Q", title="chains").scale(type="log", base=2)
    kinds = {"measured": "counted", "predicted": "R(m) of the pilot"}
    iterations = _long(tables["iterations"], kinds)
    clock = _long(tables["clock"], {"speedup": "measured", "expected": "R(m) / a"})

    def curves(table: pl.DataFrame, title: str, y: str) -> alt.Chart:
        chart: alt.Chart = (
            alt.Chart(table, title=title)
            .mark_line(point=True)
            .encode(
                x=chains,
                y=alt.Y("mean(value):Q", title=y),
                color=alt.Color("kind:N", title=None),
                tooltip=["chains:Q", "kind:N", "mean(value):Q"],
            )
            .properties(width=320, height=200)
        )
        return chart

    counts = (
        alt.Chart(tables["histogram"], title="Inner iterations of a draw (20: or more)")
        .mark_bar()
        .encode(x=alt.X("count:O", title="density evaluations"), y=alt.Y("sum(draws):Q", title="draws"))
        .properties(width=320, height=200)
    )
    variants = (
        alt.Chart(
            _long(tables["variants"], {"steps": "steps", "evaluations": "density evaluations"}, "variant")
        )
        .mark_bar()
        .encode(
            x=alt.X("mean(value):Q", title="a chain and draw"),
            y=alt.Y("variant:N", title=None),
            row=alt.Row("kind:N", title=None),
        )
        .properties(width=320, title="The machine with and without its devices")
    )
    mixture = (
        alt.Chart(tables["mixture"], title="NUTS on the mixture")
        .mark_point(filled=True, size=70)
        .encode(
            x=alt.X("ess_per_s:Q", title="effective draws a second"),
            y=alt.Y("sampler:N", title=None),
            tooltip=["seed:N", "seconds:Q", "ess:Q"],
        )
        .properties(width=320)
    )
    return {
        "iterations": curves(
            iterations, "Iterations of chains that wait over steps of those that do not", "ratio"
        ),
        "speedup": curves(clock, "Time of BlackJAX over ours", "ratio of times"),
        "counts": counts,
        "variants": variants,
        "mixture": mixture,
    }


def _long(table: pl.DataFrame, names: Mapping[str, str], index: str = "chains") -> pl.DataFrame:
    """One row a value, with what it is in words."""
    return table.unpivot(list(names), index=["seed", index], variable_name="kind").with_columns(
        pl.col("kind").replace_strict(names)
    )
