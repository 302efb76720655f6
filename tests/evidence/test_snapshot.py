from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tests.evidence.fake_card import claim, fake_card
from theses.catalogue import Check
from theses.catalogue.published import published
from theses.evidence import Measurement
from theses.evidence.codec import encode
from theses.evidence.machine import code_digest
from theses.evidence.snapshot import PublishError, compare, publish
from theses.evidence.store import Store, UnitKey, UnitRecord
from theses.evidence.verdict import judge_card

RECORD = {
    "revision": "abc",
    "clean": True,
    "environment": {"threads": 2},
    "files": {"mnist.csv": "00"},
    "wall_s": 2.0,
    "peak_mb": 100.0,
    "foreign_cores": 0.01,
}
ROW = {"peer": "POT", "size": "n = 10", "ratio": 3.0, "target": ">= 2", "ours_s": [1], "peer_s": [3]}


@pytest.fixture
def card(studies, monkeypatch):
    monkeypatch.syspath_prepend(str(studies))
    return fake_card()


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as opened:
        yield opened


def fill(store, card, *, values=(1.0, 1.1, 0.9), record=RECORD, digest=None, **changes):
    for seed, value in enumerate(values):
        key = UnitKey(card.slug, "standard", seed, digest or code_digest(card))
        measurement = encode(Measurement({"value": value, "seed": float(seed)}).to_dict())
        store.add_unit(
            replace(UnitRecord(key, "done", f"2026-01-0{seed + 1}", record, measurement), **changes)
        )


def test_publishing_keeps_the_other_methods(card, store, tmp_path):
    path = tmp_path / "evidence.json"
    path.write_text(json.dumps({"methods": {"zebra": {"package": "data"}, "ant": {"package": "data"}}}))
    fill(store, card)
    store.add_benchmark(card.slug, code_digest(card), "now", RECORD, [ROW, {**ROW, "peer": "other"}])
    publish(card, store, path)
    methods = published(path)
    assert list(methods) == ["ant", "study-good", "zebra"]
    entry = methods["study-good"]
    (check,) = entry["claims"]["C1"]["checks"]
    assert entry["claims"]["C1"]["verdict"] == "holds"
    assert check["values"] == [1.0, 1.1, 0.9]
    assert check["interval"] == pytest.approx([0.8314, 1.1686], abs=1e-4)
    assert entry["peer"] == {"name": "POT", "size": "n = 10", "ratio": 3.0, "target": ">= 2"}
    assert len(entry["comparisons"]) == 2
    assert entry["observations"][0]["values"] == [0.0, 1.0, 2.0]
    assert entry["environment"]["files"] == {"mnist.csv": "00"}
    assert (entry["wall_s"], entry["peak_mb"], entry["measured_at"]) == (6.0, 100.0, "2026-01-03")
    assert sorted(p.name for p in tmp_path.glob("evidence*")) == ["evidence.json"]


def test_numbers_that_json_has_not(card, store, tmp_path):
    fill(store, card, values=(1.0, math.nan, -math.inf))
    entry = publish(card, store, tmp_path / "evidence.json")
    assert entry["claims"]["C1"]["verdict"] == "fails"
    text = (tmp_path / "evidence.json").read_text()
    values = json.loads(text, parse_constant=pytest.fail)["methods"][card.slug]["claims"]["C1"]["checks"][0][
        "values"
    ]
    assert values == [1.0, "nan", "-inf"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"values": (1.0, 1.0)}, "seed 2: not run"),
        ({"status": "timeout"}, "seed 0: the unit ended with timeout"),
        ({"digest": "0" * 64}, "have changed since"),
        ({"record": {**RECORD, "clean": False}}, "uncommitted changes"),
    ],
)
def test_what_is_not_fit_is_refused(card, store, tmp_path, changes, why):
    path = tmp_path / "evidence.json"
    path.write_text('{"methods": {}}')
    fill(store, card, **changes)
    with pytest.raises(PublishError, match=why):
        publish(card, store, path)
    assert path.read_text() == '{"methods": {}}'


def test_seeds_of_two_revisions_are_refused(card, store, tmp_path):
    fill(store, card)
    fill(store, card, values=(1.0,), record={**RECORD, "revision": "def"})
    with pytest.raises(PublishError, match="2 revisions"):
        publish(card, store, tmp_path / "evidence.json")


@pytest.mark.parametrize(("foreign", "why"), [(0.5, "used 0.50 cores"), (None, "unknown")])
def test_a_timed_unit_on_a_busy_machine_is_refused(card, store, tmp_path, foreign, why):
    timed = replace(card, claims=(claim(timed=True),))
    fill(store, timed, record={**RECORD, "foreign_cores": foreign})
    with pytest.raises(PublishError, match=why):
        publish(timed, store, tmp_path / "evidence.json")
    fill(store, card, record={**RECORD, "foreign_cores": foreign})
    publish(card, store, tmp_path / "evidence.json")


def test_a_benchmark_on_a_busy_machine_or_of_other_code_is_refused(card, store, tmp_path):
    fill(store, card)
    store.add_benchmark(card.slug, code_digest(card), "now", {**RECORD, "foreign_cores": 1.0}, [ROW])
    with pytest.raises(PublishError, match="benchmark"):
        publish(card, store, tmp_path / "evidence.json")
    store.add_benchmark(card.slug, "0" * 64, "now", RECORD, [ROW])
    with pytest.raises(PublishError, match="other code"):
        publish(card, store, tmp_path / "evidence.json")


def test_a_claim_of_the_long_preset_is_not_run(card, store, tmp_path):
    both = replace(card, claims=(claim(), claim(name="C2", preset="long", metric="absent")))
    fill(store, both)
    entry = publish(both, store, tmp_path / "evidence.json")
    assert [entry["claims"][name]["verdict"] for name in ("C1", "C2")] == ["holds", "not run"]
    assert entry["claims"]["C2"]["checks"][0]["bound"] == ">= 0"


def test_compare_names_what_differs(card, store, tmp_path):
    fill(store, card)
    publish(card, store, tmp_path / "evidence.json")
    snapshot = published(tmp_path / "evidence.json")
    here = judge_card(card, "standard", [Measurement({"value": -1.0, "seed": 0.0})] * 3)
    assert compare(card, here, snapshot) == {"C1": ("holds", "fails")}
    there = judge_card(card, "standard", [Measurement({"value": 1.0, "seed": 0.0})] * 3)
    assert compare(card, there, snapshot) == {}
    with pytest.raises(ValueError, match="nothing to check against"):
        compare(replace(card, slug="other"), there, snapshot)


def test_the_digest_follows_code_and_bounds_but_not_prose(card, studies):
    first = code_digest(card)
    assert code_digest(replace(card, summary="Another.", deviations=())) == first
    explained = replace(card.claims[0], explanation="Because.", statement="It is thus.")
    assert code_digest(replace(card, claims=(explained,))) == first
    loosened = replace(card.claims[0], checks=(Check("value", ">= -1", "mean"),))
    assert code_digest(replace(card, claims=(loosened,))) != first
    assert code_digest(replace(card, seeds=5)) != first
    with (studies / "study_good.py").open("a") as stream:
        stream.write("# changed\n")
    assert code_digest(card) != first


@pytest.mark.parametrize("text", ["{", "[]", '{"methods": []}'])
def test_a_damaged_snapshot_is_refused_and_kept(card, store, tmp_path, text):
    path = tmp_path / "evidence.json"
    path.write_text(text)
    fill(store, card)
    with pytest.raises(ValueError, match="evidence"):
        publish(card, store, path)
    assert path.read_text() == text
