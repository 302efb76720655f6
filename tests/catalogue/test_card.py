from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from theses.catalogue.card import Bound, CardError, card_from_dict

PATH = Path("cards/data/some_method.toml")
VALID: dict[str, Any] = {
    "name": "Some",
    "summary": "Does something.",
    "have": ["table"],
    "want": ["distance"],
    "use_when": "Often.",
    "not_when": "Never.",
    "instead_of": "Nothing.",
    "paper": {"title": "On Something", "venue": "ICML 2025", "arxiv": "2501.00001"},
    "api": ["theses.data.some_method:run"],
    "seeds": 3,
    "claims": [
        {
            "id": "C1",
            "kind": "scaled",
            "statement": "It works.",
            "paper": "Table 1",
            "checks": [
                {"metric": "error", "bound": "<= 1", "aggregate": "mean", "baseline_metric": "baseline_error"}
            ],
        },
        {
            "id": "C2",
            "kind": "stand-in",
            "statement": "It is fast.",
            "paper": "Figure 2",
            "timed": True,
            "preset": "long",
            "checks": [{"metric": "seconds", "bound": "in [0, 1]", "aggregate": "worst"}],
        },
    ],
    "observations": [{"statement": "Seen.", "metric": "seen"}, {"statement": "Again.", "metric": "error"}],
}
REQUIRED = [
    "name",
    "summary",
    "have",
    "want",
    "use_when",
    "not_when",
    "instead_of",
    "paper",
    "api",
    "seeds",
    "claims",
]


def build(data: dict[str, Any], package: str = "data"):
    return card_from_dict(data, slug="some-method", package=package, path=PATH)


def with_value(place: str, value: Any) -> dict[str, Any]:
    """The valid card with another value at a place such as ``claims[0].kind``."""
    data = copy.deepcopy(VALID)
    target: Any = data
    *parents, last = place.replace("[", ".[").split(".")
    for part in parents:
        target = target[int(part[1:-1])] if part.startswith("[") else target[part]
    target[int(last[1:-1]) if last.startswith("[") else last] = value
    return data


def test_a_card_knows_its_modules_and_metrics():
    card = build(VALID, package="lm.inference")
    assert card.module == "theses.lm.inference.some_method"
    assert card.study == "theses.studies.lm.inference.some_method"
    assert card.timed
    assert card.metrics("standard") == ("error", "baseline_error", "seen")
    assert card.metrics("long") == ("error", "baseline_error", "seconds", "seen")


def test_cards_are_values():
    assert build(VALID) == build(copy.deepcopy(VALID))
    assert len({build(VALID), build(VALID)}) == 1


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_key_is_named(key: str):
    data = {name: value for name, value in VALID.items() if name != key}
    with pytest.raises(CardError, match=rf"some_method\.toml: {key}: missing"):
        build(data)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("color", "red", "color: unknown key"),
        ("paper.doi", "10.1", "paper.doi: unknown key"),
        ("claims[1].checks[0].limit", 1, r"claims\[1\].checks\[0\].limit: unknown key"),
        ("slug", "some-method", "slug: follows from the file's place"),
        ("package", "data", "package: follows from the file's place"),
        ("name", 3, "name: expected str, got int 3"),
        ("name", "", "name: must not be empty"),
        ("summary", " padded", "summary: has blanks at its ends"),
        ("seeds", 2, "seeds: must be at least 3, got 2"),
        ("seeds", True, "seeds: expected int, got bool"),
        ("seeds", 5.0, "seeds: expected int, got float"),
        ("have", [], "have: must not be empty"),
        ("have", "table", "have: expected an array"),
        ("have", ["tables"], "have: unknown kind 'tables'; known are table,"),
        ("want", ["distance", 1], r"want\[1\]: expected str, got int"),
        ("want", ["love"], "want: unknown kind 'love'"),
        ("paper", "On Something", "paper: expected a table"),
        ("paper.arxiv", "https://arxiv.org/abs/2501.00001", "paper.arxiv: expected an identifier"),
        ("paper.arxiv", "", "paper: expected arxiv, or openreview"),
        ("paper.openreview", "forum?id=Mcae98J1wq", "paper.openreview: expected an identifier"),
        ("api", [], "api: must not be empty"),
        ("api", ["theses.data.some_method"], r"api\[0\]: expected theses.package.module:name"),
        ("api", ["numpy:array"], r"api\[0\]: expected theses.package.module:name"),
        ("claims", [], "claims: must not be empty"),
        ("claims[1].id", "C1", r"claims\[0\].id: 'C1' is used twice"),
        ("claims[0].kind", "proved", r"claims\[0\].kind: must be one of identity, same, scaled, stand-in"),
        ("claims[0].timed", "yes", r"claims\[0\].timed: expected bool"),
        ("claims[0].preset", "huge", r"claims\[0\].preset: must be one of smoke, standard, long, paper"),
        ("claims[0].checks", [], r"claims\[0\].checks: must not be empty"),
        (
            "claims[0].checks[0].aggregate",
            "median",
            r"checks\[0\].aggregate: must be one of mean, worst, share",
        ),
        ("claims[0].checks[0].bound", "about 1", r"claims\[0\].checks\[0\].bound: a bound reads"),
        ("claims[0].checks[0].bound", "in [2, 1]", r"claims\[0\].checks\[0\].bound: a bound reads"),
    ],
)
def test_a_wrong_value_is_named_with_file_and_key(place: str, value: Any, message: str):
    with pytest.raises(CardError, match=message) as caught:
        build(with_value(place, value))
    assert str(caught.value).startswith(f"{PATH}: ")


NUMBER = st.floats(-1e12, 1e12)


@given(NUMBER, NUMBER)
def test_one_sided_bounds_mean_what_they_say(end: float, value: float):
    for sign, meets in [
        (">=", value >= end),
        (">", value > end),
        ("<=", value <= end),
        ("<", value < end),
    ]:
        assert Bound.parse(f"{sign} {end!r}").contains(value) is meets


@given(NUMBER, NUMBER, NUMBER)
def test_intervals_hold_their_ends(a: float, b: float, value: float):
    low, high = min(a, b), max(a, b)
    bound = Bound.parse(f"in [{low!r}, {high!r}]")
    assert bound.contains(low)
    assert bound.contains(high)
    assert bound.contains(value) is (low <= value <= high)


@pytest.mark.parametrize("bound", [">= -1", "<= 1", "< 1", "> -1", "in [-1, 1]"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nothing_but_numbers_meets_a_bound(bound: str, value: float):
    assert not Bound.parse(bound).contains(value)


@given(st.text(max_size=12))
def test_no_text_makes_parsing_fail_otherwise_than_said(text: str):
    try:
        bound = Bound.parse(text)
    except ValueError as error:
        assert repr(text) in str(error)
    else:
        assert bound.low <= bound.high
