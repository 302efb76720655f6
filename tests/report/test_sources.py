from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.cli.conftest import entry
from tests.evidence.fake_card import claim, fake_card
from tests.report.made import write_snapshot
from theses.catalogue import Check, Claim
from theses.evidence import Count, Measurement
from theses.evidence.codec import encode
from theses.evidence.store import Store, UnitKey, UnitRecord
from theses.report import SnapshotSource, StoreSource
from theses.report.records import NOT_MEASURED, Replicate, mean_of, tally

CARD = fake_card(
    "study_good",
    claim(">= 0.4", name="C1"),
    Claim("C2", "identity", "Shares.", "Theorem 1", (Check("share", ">= 0.5", "share", "other"),)),
    claim(">= 0", name="C3", preset="long"),
)


def unit(seed: int, *, preset: str = "standard", digest: str = "d", status: str = "done", **record: Any):
    measurement = Measurement(
        {"value": [0.5 + seed / 100, 0.6], "share": Count(3, 4), "other": 0.0, "seed": float(seed)},
        {"points": pl.DataFrame({"x": [1, 2], "y": [0.5, math.nan]})},
        [f"a note of {seed}"],
    )
    where = {
        "revision": "abc",
        "clean": True,
        "environment": {"python": "3.11"},
        "files": {"a.csv": "ff"},
        "wall_s": 2.0,
        "peak_mb": 100.0 + seed,
        "foreign_cores": None,
    }
    done = status == "done"
    return UnitRecord(
        UnitKey(CARD.slug, preset, seed, digest),
        status,
        f"2026-11-30T10:0{seed % 10}:00+00:00",
        where | record,
        encode(measurement.to_dict()) if done else None,
        "" if done else "Traceback\nValueError: too small\n",
    )


@pytest.fixture
def stored(tmp_path: Path):
    def stored(*units: UnitRecord, preset: str = "standard"):
        path = tmp_path / "results.sqlite"
        with Store(path) as store:
            for record in units:
                store.add_unit(record)
        return StoreSource(path, preset).record(CARD)

    return stored


def test_a_store_gives_values_by_seed_with_verdicts(stored):
    record = stored(unit(0), unit(1), unit(2))
    first, shares, long = record.claims
    assert [(v.seed, v.value) for v in first.checks[0].values] == [
        (0, 0.5), (0, 0.6), (1, 0.51), (1, 0.6), (2, 0.52), (2, 0.6),
    ]  # fmt: skip
    assert first.verdict == "holds"
    low, high = first.checks[0].interval
    assert low < mean_of(first.checks[0].values) < high
    assert shares.checks[0].values == tuple(Replicate(0.75, seed, 3, 4) for seed in range(3))
    assert shares.checks[0].baseline == tuple(Replicate(0.0, seed) for seed in range(3))
    assert long.verdict == "not run" and long.checks[0].values == ()
    assert tally(record.claims) == {"holds": 1, "not run": 1}
    assert record.observations[0].values == tuple(Replicate(float(seed), seed) for seed in range(3))
    assert record.provenance.seeds == (0, 1, 2)
    assert record.provenance.measured_at == "2026-11-30T10:02:00+00:00"
    assert (record.provenance.wall_s, record.provenance.peak_mb) == (6.0, 102.0)
    assert record.provenance.notices == ()
    assert record.notes == ("Seed 0: a note of 0", "Seed 1: a note of 1", "Seed 2: a note of 2")


def test_tables_are_stacked_over_seeds(stored):
    assert stored(unit(0), unit(2)).tables["points"]["seed"].to_list() == [0, 0, 2, 2]


def test_long_units_judge_the_claims_that_need_them(stored):
    record = stored(unit(0), unit(1), unit(2), unit(0, preset="long"), unit(1, preset="long"))
    assert [found.verdict for found in record.claims] == ["holds", "undecided", "holds"]
    assert len(record.claims[2].checks[0].values) == 4


def test_smoke_judges_nothing(stored):
    record = stored(unit(0, preset="smoke"), preset="smoke")
    assert {found.verdict for found in record.claims} == {"not run"}
    assert any("smoke" in notice for notice in record.provenance.notices)


@pytest.mark.parametrize(
    ("units", "notice"),
    [
        ([unit(100), unit(101)], "Measured with seeds 100, 101; those of the card are 0 to 2."),
        ([unit(0), unit(1), unit(2, status="error")], "Seed 2 ended with error: ValueError: too small"),
        ([unit(0), unit(1, digest="e"), unit(2)], "Seeds were measured with different versions of the code."),
        ([unit(0), unit(1), unit(2, clean=False)], "Measured with changes that were not committed."),
    ],
)
def test_notices(stored, units, notice):
    assert notice in stored(*units).provenance.notices


def test_a_failed_seed_leaves_claims_unjudged_with_the_values_there_are(stored):
    record = stored(unit(0), unit(1), unit(2, status="timeout"))
    assert record.claims[0].verdict == "unjudged"
    assert len(record.claims[0].checks[0].values) == 4


def test_busy_machines_are_told_of_timed_methods(tmp_path: Path):
    card = fake_card("study_good", claim(timed=True))
    with Store(tmp_path / "s.sqlite") as store:
        for seed in range(3):
            store.add_unit(unit(seed, foreign_cores=0.7))
    record = StoreSource(tmp_path / "s.sqlite").record(card)
    assert record.provenance is not None
    assert "Timed while other processes used 0.7 cores." in record.provenance.notices


def test_a_benchmark_alone_is_shown(tmp_path: Path):
    with Store(tmp_path / "s.sqlite") as store:
        store.add_benchmark(CARD.slug, "d", "2026", {}, [{"peer": "POT", "size": "n", "ratio": 2.0}])
    record = StoreSource(tmp_path / "s.sqlite").record(CARD)
    assert record.comparisons[0]["peer"] == "POT" and record.provenance is None
    assert {found.verdict for found in record.claims} == {NOT_MEASURED}


def test_a_store_without_the_method_and_no_store(tmp_path: Path):
    with Store(tmp_path / "s.sqlite"):
        pass
    record = StoreSource(tmp_path / "s.sqlite").record(CARD)
    assert record.provenance is None and record.deviations == CARD.deviations
    assert {found.verdict for found in record.claims} == {NOT_MEASURED}
    with pytest.raises(ValueError, match=r"no result store at .*theses reproduce METHOD makes one"):
        StoreSource(tmp_path / "absent.sqlite")


# ---------------------------------------------------------------- snapshot


def check(**changes: Any) -> dict[str, Any]:
    return {
        "metric": "value",
        "bound": ">= 0.4",
        "aggregate": "mean",
        "values": [0.5, 0.6, 0.7],
        "baseline_values": [],
        "interval": [0.5, "inf"],
        "verdict": "holds",
    } | changes


def published(**changes: Any) -> dict[str, Any]:
    claims = {
        "C1": {
            "kind": "same",
            "statement": "It is so.",
            "paper": "Table 1",
            "verdict": "holds",
            "explanation": "",
            "checks": [check()],
        }
    }
    return entry(claims=claims) | changes


def read(path: Path, entry: Any):
    return SnapshotSource(write_snapshot(path / "evidence.json", {CARD.slug: entry})).record(CARD)


def test_a_snapshot_tells_seeds_where_it_can(tmp_path: Path):
    record = read(tmp_path, published())
    assert [v.seed for v in record.claims[0].checks[0].values] == [0, 1, 2]
    assert record.claims[0].checks[0].interval == (0.5, math.inf)
    several = published()
    several["claims"]["C1"]["checks"] = [check(values=[0.5, "nan", [1, 4], 0.7], interval=None)]
    values = read(tmp_path, several).claims[0].checks[0].values
    assert [v.seed for v in values] == [None] * 4
    assert math.isnan(values[1].value) and values[2] == Replicate(0.25, None, 1, 4)


def test_claims_of_card_and_snapshot_are_matched(tmp_path: Path):
    old = published()
    old["claims"]["C0"] = copy.deepcopy(old["claims"]["C1"])
    record = read(tmp_path, old)
    assert [(found.id, found.verdict) for found in record.claims] == [
        ("C1", "holds"), ("C2", NOT_MEASURED), ("C3", NOT_MEASURED), ("C0", "holds"),
    ]  # fmt: skip


def test_a_bound_that_changed_is_shown_with_the_new_one(tmp_path: Path):
    old = published()
    old["claims"]["C1"]["checks"] = [check(bound=">= 0.30")]
    found = read(tmp_path, old).claims[0].checks[0]
    assert (found.bound, found.card_bound) == (">= 0.30", ">= 0.4")
    same = published()
    same["claims"]["C1"]["checks"] = [check(bound=">=0.40")]
    assert read(tmp_path, same).claims[0].checks[0].card_bound == ""


def test_an_explanation_on_the_card_counts_at_once(tmp_path: Path):
    card = fake_card("study_good", Claim("C1", "same", "So.", "", (), explanation="Too few cases."))
    source = SnapshotSource(write_snapshot(tmp_path / "e.json", {card.slug: published()}))
    assert source.record(card).claims[0].explanation == "Too few cases."


def test_other_methods_of_a_snapshot_are_left_alone(tmp_path: Path):
    path = write_snapshot(tmp_path / "evidence.json", {"../../elsewhere": {"broken": True}})
    assert SnapshotSource(path).record(CARD).provenance is None


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("claims.C1.verdict", "<b>holds</b>"),
        ("claims.C1.kind", "certain"),
        ("claims.C1.statement", 3),
        ("claims.C1.checks[0].bound", "about 3"),
        ("claims.C1.checks[0].values[1]", "<script>"),
        ("claims.C1.checks[0].values[0]", True),
        ("claims.C1.checks[0].values[0]", [5, 4]),
        ("claims.C1.checks[0].interval", [1.0]),
        ("claims.C1.checks[0].aggregate", "median"),
        ("claims.C1.checks", {}),
        ("claims", None),
        ("seeds", ["a"]),
        ("wall_s", "1"),
        ("environment", []),
        ("peer.ratio", None),
    ],
)
def test_what_is_no_snapshot_is_refused_with_its_place(tmp_path: Path, place: str, value: Any):
    spoiled = copy.deepcopy(published())
    at: Any = spoiled
    *path, last = place.replace("[", ".[").split(".")

    def key(part: str) -> Any:
        return int(part[1:-1]) if part.startswith("[") else part

    for part in path:
        at = at[key(part)]
    at[key(last)] = value
    with pytest.raises(ValueError, match=r"evidence\.json: methods\.study-good") as error:
        read(tmp_path, spoiled)
    assert place.partition("[")[0] in str(error.value)


def test_mean_pools_counts():
    assert mean_of([Replicate(1.0, 0, 1, 1), Replicate(0.0, 1, 0, 3)]) == 0.25
    assert math.isnan(mean_of([]))
