from __future__ import annotations

import json
import math
import sys
import types
from collections.abc import Callable

import altair as alt
import polars as pl
import pytest

from tests.evidence.fake_card import fake_card
from theses.report.charts import check_charts, named_alike, require_extra, study_charts, vega_bundle
from theses.report.records import CheckRecord, Replicate


def check(bound: str = ">= 0.5", aggregate: str = "mean", **fields) -> CheckRecord:
    values = fields.pop("values", (Replicate(0.6, 0), Replicate(0.7, 1), Replicate(0.7, 1)))
    return CheckRecord("ratio", bound, aggregate, "holds", values=values, **fields)


def only(record: CheckRecord):
    ((words, spec),) = check_charts(record)
    return words, spec


@pytest.mark.parametrize("bound", [">= 0.5", "< 0.1", "in [0.4, 0.9]", "<= 1e-9"])
@pytest.mark.parametrize("aggregate", ["mean", "worst"])
def test_a_chart_is_valid_and_shows_values_interval_and_bound(bound: str, aggregate: str):
    words, spec = only(check(bound, aggregate, interval=(0.55, 0.75) if aggregate == "mean" else None))
    alt.LayerChart.from_dict(spec, validate=True)
    data = spec["datasets"]
    assert [row["value"] for row in data["replicates"]] == [0.6, 0.7, 0.7]
    assert [row["seed"] for row in data["replicates"]] == ["0", "1", "1"]
    assert len({row["lane"] for row in data["replicates"]}) == 2  # one height a seed
    assert ("intervals" in data) == ("means" in data) == (aggregate == "mean")
    parameters = {p["name"]: p["value"] for p in spec["params"]}
    (band,) = data["bounds"]
    assert parameters["low"] <= band["low"] < band["high"] <= parameters["high"]
    assert all(parameters["low"] < end["at"] < parameters["high"] for end in data["ends"])
    assert parameters["low"] < 0.6 and parameters["high"] > 0.7
    assert "3 replicates from 0.6 to 0.7" in words and bound in words


def test_every_layer_has_data():
    _, spec = only(check(aggregate="worst"))
    assert {layer["data"]["name"] for layer in spec["layer"]} == set(spec["datasets"])


def test_a_baseline_that_measures_the_same_is_on_the_same_axis():
    baseline = (Replicate(0.2, 0), Replicate(0.3, 1))
    _, spec = only(check(baseline_metric="ratio_exact", baseline=baseline))
    assert {row["side"] for row in spec["datasets"]["replicates"]} == {"method", "baseline"}
    assert {p["name"]: p["value"] for p in spec["params"]}["low"] < 0.2


def test_a_baseline_that_measures_something_else_has_its_own():
    baseline = (Replicate(200.0, 0), Replicate(300.0, 1))
    (_, ours), (words, theirs) = check_charts(check(baseline_metric="exact_seconds", baseline=baseline))
    assert {p["name"]: p["value"] for p in ours["params"]}["high"] < 1
    assert "bounds" not in theirs["datasets"]
    assert "exact_seconds" in words
    alt.LayerChart.from_dict(theirs, validate=True)


def test_values_that_are_not_finite_are_left_out():
    values = (Replicate(math.nan, 0), Replicate(0.6, 1), Replicate(math.inf, 2))
    _, spec = only(check(values=values, interval=(-math.inf, math.inf)))
    assert [row["value"] for row in spec["datasets"]["replicates"]] == [0.6]
    assert "intervals" not in spec["datasets"]
    json.dumps(spec, allow_nan=False)
    assert check_charts(check(values=(Replicate(math.nan, 0),))) == []
    assert check_charts(check(values=())) == []


def test_counts_are_named_and_unknown_seeds_share_a_lane():
    _, spec = only(check(aggregate="share", values=(Replicate(0.75, None, 3, 4), Replicate(1.0, None, 4, 4))))
    first, second = spec["datasets"]["replicates"]
    assert first["count"] == "3 of 4" and first["seed"] == "not recorded"
    assert first["lane"] == second["lane"]


@pytest.mark.parametrize("value", [0.0, 1e-300, -3.0, 1e12])
def test_equal_values_have_an_axis_around_them(value: float):
    _, spec = only(check(f">= {value}", values=(Replicate(value, 0), Replicate(value, 1))))
    parameters = {p["name"]: p["value"] for p in spec["params"]}
    assert parameters["low"] < value < parameters["high"]


@pytest.mark.parametrize(
    ("metric", "baseline", "alike"),
    [
        ("spearman_random", "spearman_random_features", True),
        ("ratio_G", "knn_ratio_G", True),
        ("slope_ours", "slope_exact", True),
        ("failure_bq", "failure_crc", True),
        ("speedup", "exact_seconds", False),
        ("size_ratio", "set_size_rcps", False),
        ("length_ratio", "length_rcps_hetero", False),
        ("accuracy", "seconds", False),
        ("ratio", "ratios", False),
    ],
)
def test_named_alike(metric: str, baseline: str, alike: bool):
    assert named_alike(metric, baseline) is alike


# ---------------------------------------------------------------- charts of a study

TABLE = {"points": pl.DataFrame({"x": [1.0, math.nan], "y": [1, 2], "seed": [0, 1]})}


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch):
    def drawing(figures: Callable, tables=TABLE):
        module = types.ModuleType("study_that_draws")
        module.figures = figures  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "study_that_draws", module)
        return study_charts(fake_card("study_that_draws"), tables)

    return drawing


def points(table: pl.DataFrame) -> alt.Chart:
    return alt.Chart(table).mark_point().encode(x="x:Q", y="y:Q")


def test_charts_are_drawn_from_tables(drawing):
    charts, notes = drawing(lambda tables: {"a b": points(tables["points"])})
    assert notes == []
    spec = charts["a b"]
    assert spec["width"] == "container" and "$schema" not in spec and "usermeta" not in spec
    (rows,) = spec["datasets"].values()
    assert [row["x"] for row in rows] == [1.0, None]


def test_chosen_widths_and_facets_stay(drawing):
    charts, _ = drawing(
        lambda tables: {
            "wide": points(tables["points"]).properties(width=300),
            "facet": points(tables["points"]).facet("seed:N"),
            "column": points(tables["points"]).encode(column="seed:N"),
            "beside": points(tables["points"]) | points(tables["points"]),
        }
    )
    assert charts["wide"]["width"] == 300
    assert not any("width" in charts[name] for name in ("facet", "column", "beside"))


def fail(tables):
    raise KeyError("runs")


@pytest.mark.parametrize(
    ("figures", "note"),
    [
        (fail, "The charts of the study could not be drawn: KeyError: 'runs'"),
        (lambda tables: None, "The charts of the study could not be drawn: TypeError"),
        (lambda tables: {"a": "no chart", "b": points(tables["points"])}, "The chart a could not be drawn"),
    ],
)
def test_a_study_that_cannot_draw_gives_a_note(drawing, figures, note: str):
    charts, notes = drawing(figures)
    assert set(charts) <= {"b"}
    assert len(notes) == 1 and notes[0].startswith(note)


def test_a_chart_that_is_too_large_gives_a_note_and_leaves_altair_as_it_was(drawing):
    large = pl.DataFrame({"x": range(20_001), "y": range(20_001)})
    middle = large.head(10_000)
    before = alt.data_transformers.active, dict(alt.data_transformers.options)
    charts, notes = drawing(lambda tables: {"large": points(large), "middle": points(middle)})
    assert list(charts) == ["middle"]
    assert "large" in notes[0] and "MaxRowsError" in notes[0]
    assert (alt.data_transformers.active, dict(alt.data_transformers.options)) == before


def test_a_study_that_is_not_there_gives_a_note_and_no_tables_give_nothing():
    charts, notes = study_charts(fake_card("no_such_study"), TABLE)
    assert charts == {} and "ModuleNotFoundError" in notes[0]
    assert study_charts(fake_card("no_such_study"), {}) == ({}, [])


def test_options_for_the_embedding_page_are_dropped(drawing):
    chart = points(TABLE["points"]).properties(usermeta={"embedOptions": {"loader": {"baseURL": "x"}}})
    charts, _ = drawing(lambda tables: {"a": chart})
    assert "usermeta" not in charts["a"]


def test_the_bundle_keeps_its_names_to_itself():
    bundle = vega_bundle()
    assert "window.vegaEmbed=" in bundle.replace(" ", "")
    assert bundle.startswith("/* Vega") and bundle.rstrip().endswith("})();")


@pytest.mark.parametrize(("module", "package"), [("altair", "altair"), ("vl_convert", "vl-convert-python")])
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, module: str, package: str):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf'needs {package}; .*pip install "theses\[report\]"'):
        require_extra()


def test_a_title_is_left_to_the_page(drawing):
    titled = {"plain": "Time", "lines": ["Time", "by size"], "full": alt.Title(text="Time", subtitle="s")}
    charts, _ = drawing(
        lambda tables: {name: points(tables["points"]).properties(title=t) for name, t in titled.items()}
    )
    assert {name: spec["description"] for name, spec in charts.items()} == {
        "plain": "Time", "lines": "Time by size", "full": "Time",
    }  # fmt: skip
    assert not any("title" in spec for spec in charts.values())
