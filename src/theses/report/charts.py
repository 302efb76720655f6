"""Charts as Vega-Lite specifications: one for each check, and those of the study."""

from __future__ import annotations

import functools
import importlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from theses.catalogue.card import Bound, Card
from theses.report.records import CheckRecord, Replicate, mean_of

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

__all__ = ["MISSING_EXTRA", "check_charts", "named_alike", "require_extra", "study_charts", "vega_bundle"]

Spec = dict[str, Any]

MISSING_EXTRA: Final = 'a report needs {name}; install it with: pip install "theses[report]"'

#: Share of the axis that is left free at either end.
_MARGIN = 0.06
#: Beyond this a chart of a study makes its page too heavy.
_MAX_ROWS = 20_000
#: Height of a lane in pixels, and the share of it over which seeds are spread.
_LANE_HEIGHT = 48
_LANE = 0.7


def require_extra() -> None:
    """Check that the libraries of the extra are there.

    Raises
    ------
    ImportError
        If one is not; the message names the extra.
    """
    for module, distribution in (("altair", "altair"), ("vl_convert", "vl-convert-python")):
        try:
            importlib.import_module(module)
        except ImportError:
            raise ImportError(MISSING_EXTRA.format(name=distribution), name=module) from None


def vega_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the copy that vl-convert-python carries.

    Returns
    -------
    str
        The script; it sets ``vegaEmbed`` on the window.
    """
    import altair as alt
    import vl_convert

    # The specifications' version without its patch level, by which vl-convert names its copies; the newest
    # one where it has none of that version.
    version = alt.SCHEMA_VERSION.removeprefix("v").rsplit(".", 1)[0]
    wanted = version if version in vl_convert.get_vegalite_versions() else None
    notice = "/* Vega, Vega-Lite and Vega-Embed, BSD 3-Clause License, University of Washington"
    bundle: str = vl_convert.javascript_bundle(vl_version=wanted)  # type: ignore[call-arg]
    # In a function, since its short names would otherwise be those of the whole page.
    return f"{notice} Interactive Data Lab and contributors. */\n(function () {{\n{bundle}\n}})();\n"


def check_charts(check: CheckRecord) -> list[tuple[str, Spec]]:
    """Charts of a check: replicates, their interval and the bound, with the baseline beside them.

    The baseline is on the same axis if its metric is named like the check's; one that measures something
    else, such as seconds beside a ratio, gets an axis of its own.

    Parameters
    ----------
    check : CheckRecord
        The check.

    Returns
    -------
    list of (str, dict)
        What is seen, in words, and the specification; empty if no value is finite.
    """
    values, baseline = _finite(check.values), _finite(check.baseline)
    if not values:
        return []
    bound = Bound.parse(check.bound)
    together = bool(baseline) and named_alike(check.metric, check.baseline_metric)
    ends = [end for end in (bound.low, bound.high) if math.isfinite(end)]
    interval = check.interval if check.interval and all(map(math.isfinite, check.interval)) else None
    spread = [r.value for r in (*values, *(baseline if together else ()))] + ends + list(interval or ())
    low, high = _padded(spread)
    sides = {"method": values, "baseline": baseline} if together else {"method": values}
    spec = _filled(
        low,
        high,
        sides,
        intervals=[{"lane": 0, "side": "method", "low": interval[0], "high": interval[1]}]
        if interval
        else [],
        means=[{"lane": 0, "side": "method", "mean": mean_of(values)}] if check.aggregate != "worst" else [],
        bounds=[{"low": max(low, bound.low), "high": min(high, bound.high)}],
        ends=[{"at": end} for end in ends],
    )
    charts = [(_described(check, values, baseline if together else ()), spec)]
    if baseline and not together:
        low, high = _padded([replicate.value for replicate in baseline])
        alone = _filled(low, high, {"baseline": baseline})
        charts.append((f"Baseline {check.baseline_metric}: {_range(baseline)}.", alone))
    return charts


def named_alike(metric: str, baseline: str) -> bool:
    """Whether two metrics measure the same quantity, by their names.

    They do if one name contains the other or if they differ in one word, as ``slope_ours`` and
    ``slope_exact``.

    Parameters
    ----------
    metric, baseline : str
        The names.

    Returns
    -------
    bool
        False where in doubt.

    Examples
    --------
    >>> named_alike("ratio_G", "knn_ratio_G"), named_alike("speedup", "exact_seconds")
    (True, False)
    """
    ours, theirs = metric.split("_"), baseline.split("_")
    if f"_{metric}_" in f"_{baseline}_" or f"_{baseline}_" in f"_{metric}_":
        return True
    if len(ours) != len(theirs) or len(ours) < 2:
        return False
    return sum(a != b for a, b in zip(ours, theirs, strict=True)) == 1


def study_charts(card: Card, tables: Mapping[str, pl.DataFrame]) -> tuple[dict[str, Spec], list[str]]:
    """Charts that a study draws from stored tables.

    Parameters
    ----------
    card : Card
        The method.
    tables : mapping of str to polars.DataFrame
        Tables stacked over seeds, with a column ``seed``.

    Returns
    -------
    charts : dict of str to dict
        Specification by name. Its title becomes its ``description``, for the page to set: inside the picture
        it would not wrap.
    notes : list of str
        Why some or all could not be drawn; a study that fails does not keep the report from being written.
    """
    if not tables:
        return {}, []
    import altair as alt

    charts: dict[str, Spec] = {}
    notes: list[str] = []
    with alt.data_transformers.enable("default", max_rows=_MAX_ROWS):
        try:
            drawn = dict(importlib.import_module(card.study).figures(tables))
        except Exception as error:
            return {}, [f"The charts of the study could not be drawn: {_complaint(error)}"]
        for name, chart in drawn.items():
            try:
                charts[str(name)] = _untitled(_responsive(_plain(chart.to_dict())))
            except Exception as error:
                notes.append(f"The chart {name} could not be drawn: {_complaint(error)}")
    return charts, notes


def _complaint(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


def _plain(value: Any) -> Any:
    """What JSON knows; numbers that are not finite become null, which Vega leaves out."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise TypeError(f"a specification may not hold a {type(value).__name__}")


def _responsive(spec: Spec) -> Spec:
    """As wide as the page, where the kind of chart can be and no width was chosen."""
    # The schema's address and options for the embedding page are no part of the picture.
    spec = {key: value for key, value in spec.items() if key not in ("$schema", "usermeta")}
    composed = {"facet", "repeat", "concat", "hconcat", "vconcat"} & spec.keys()
    layers = [spec, *spec.get("layer", ())]
    split = any({"facet", "row", "column"} & layer.get("encoding", {}).keys() for layer in layers)
    if not composed and not split and "width" not in spec:
        spec["width"] = "container"
    return spec


def _untitled(spec: Spec) -> Spec:
    title = spec.pop("title", None)
    text = title.get("text") if isinstance(title, dict) else title
    if text:
        spec["description"] = " ".join(text) if isinstance(text, list) else str(text)
    return spec


def _finite(replicates: Sequence[Replicate]) -> list[Replicate]:
    return [replicate for replicate in replicates if math.isfinite(replicate.value)]


def _padded(spread: Sequence[float]) -> tuple[float, float]:
    low, high = min(spread), max(spread)
    margin = _MARGIN * (high - low) or 0.5 * abs(high) or 1.0
    return low - margin, high + margin


def _rows(lane: int, side: str, replicates: Sequence[Replicate]) -> list[dict[str, Any]]:
    """Dots of one side, spread over its lane by seed, so that equal values of two seeds are both seen."""
    seeds = sorted({replicate.seed for replicate in replicates if replicate.seed is not None})
    rows = []
    for replicate in replicates:
        shift, seed = 0.0, "not recorded"
        if replicate.seed is not None:
            seed = str(replicate.seed)
            shift = _LANE * ((seeds.index(replicate.seed) + 0.5) / len(seeds) - 0.5)
        row = {"side": side, "lane": lane + shift, "seed": seed, "value": replicate.value}
        if replicate.hits is not None:
            row["count"] = f"{replicate.hits} of {replicate.trials}"
        rows.append(row)
    return rows


def _range(replicates: Sequence[Replicate]) -> str:
    low, high = min(r.value for r in replicates), max(r.value for r in replicates)
    return f"{len(replicates)} replicates from {low:.4g} to {high:.4g}"


def _described(check: CheckRecord, values: Sequence[Replicate], baseline: Sequence[Replicate]) -> str:
    said = f"{check.metric}: {_range(values)}; bound {check.bound}."
    return f"{said} Baseline {check.baseline_metric}: {_range(baseline)}." if baseline else said


def _filled(
    low: float, high: float, sides: Mapping[str, Sequence[Replicate]], **datasets: list[dict[str, Any]]
) -> Spec:
    """The template with values of a check in it: making a chart anew costs a hundred times as much."""
    spec: Spec = json.loads(_template())
    given = {"low": low, "high": high, "sides": list(sides), "lanes": len(sides) - 0.5}
    for parameter in spec["params"]:
        if parameter["name"] in given:
            parameter["value"] = given[parameter["name"]]
    datasets["replicates"] = [
        row for lane, (side, values) in enumerate(sides.items()) for row in _rows(lane, side, values)
    ]
    spec["datasets"] = {name: rows for name, rows in datasets.items() if rows}
    # A layer without data would make Vega complain of an infinite extent.
    spec["layer"] = [layer for layer in spec["layer"] if layer["data"]["name"] in spec["datasets"]]
    spec["height"] = _LANE_HEIGHT * len(sides)
    return spec


@functools.cache
def _template() -> str:
    import altair as alt

    # The page gives the parameters of colour its own values, by name, in light and in dark.
    colours = [
        alt.param(name=name, value=value)
        for name, value in (
            ("method", "#1b4f8a"),
            ("baseline", "#8a5a00"),
            ("bound", "#2e7d4f"),
            ("surface", "#ffffff"),
        )
    ]
    filled_in = [
        alt.param(name=name, value=value)
        for name, value in (("low", 0), ("high", 1), ("lanes", 0.5), ("sides", ["method"]))
    ]
    scale = alt.Scale(
        domainMin=alt.ExprRef("low"), domainMax=alt.ExprRef("high"), nice=False, zero=False, clamp=True
    )

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, title=None, axis=alt.Axis(tickCount=8))

    side = alt.Y(
        "lane:Q",
        title=None,
        scale=alt.Scale(domainMin=-0.5, domainMax=alt.ExprRef("lanes"), nice=False, zero=False, reverse=True),
        axis=alt.Axis(
            values=[0, 1], labelExpr="sides[datum.value]", grid=False, tickSize=6, tickOpacity=0, domain=False
        ),
    )
    colour = alt.Color(
        "side:N",
        scale=alt.Scale(
            domain=["method", "baseline"], range=[alt.ExprRef("method"), alt.ExprRef("baseline")]
        ),
        legend=None,
    )

    def base(name: str) -> alt.Chart:
        chart: alt.Chart = alt.Chart(alt.NamedData(name=name))
        return chart

    met = base("bounds").mark_rect(color=alt.ExprRef("bound"), opacity=0.13).encode(x=x("low"), x2="high:Q")
    edge = base("ends").mark_rule(color=alt.ExprRef("bound"), strokeDash=[5, 3], size=1.5).encode(x=x("at"))
    interval = (
        base("intervals")
        .mark_rule(size=9, opacity=0.3, strokeCap="round")
        .encode(x=x("low"), x2="high:Q", y=side, color=colour)
    )
    mean = base("means").mark_tick(thickness=2.5, size=22).encode(x=x("mean"), y=side, color=colour)
    dots = (
        base("replicates")
        .mark_circle(size=46, opacity=0.85, stroke=alt.ExprRef("surface"), strokeWidth=0.8)
        .encode(
            x=x("value"),
            y=side,
            color=colour,
            tooltip=[
                alt.Tooltip("side:N", title="of"),
                alt.Tooltip("value:Q", format=".6g"),
                alt.Tooltip("count:N", title="count"),
                alt.Tooltip("seed:N"),
            ],
        )
    )
    layered = (
        alt.layer(met, edge, interval, mean, dots)
        .add_params(*colours, *filled_in)
        .properties(width="container")
    )
    return json.dumps(_responsive(layered.to_dict()))
