from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theses.evidence import Count, Measurement
from theses.evidence.codec import decode, encode


def through_store(measurement: Measurement) -> Measurement:
    return Measurement.from_dict(decode(encode(measurement.to_dict())))


@pytest.mark.parametrize(
    ("given_value", "replicates"),
    [
        (1, (1.0,)),
        (0.5, (0.5,)),
        (True, (1.0,)),
        (np.float32(0.5), (0.5,)),
        (np.int64(3), (3.0,)),
        ([1, 2.0], (1.0, 2.0)),
        ((1, 2), (1.0, 2.0)),
        (np.array([1.0, 2.0]), (1.0, 2.0)),
        (Count(3, 10), (Count(3, 10),)),
        ([Count(0, 5), Count(5, 5)], (Count(0, 5), Count(5, 5))),
        ([1.0, Count(1, 2)], (1.0, Count(1, 2))),
    ],
)
def test_replicates_are_floats_or_counts(given_value: Any, replicates: tuple[Any, ...]) -> None:
    (found,) = Measurement({"metric": given_value}).metrics.values()
    assert found == replicates
    assert [type(value) for value in found] == [type(value) for value in replicates]


@given(
    st.dictionaries(
        st.text(min_size=1),
        st.lists(
            st.floats(allow_nan=False)
            | st.builds(lambda hits, more: Count(hits, hits + more), *[st.integers(0, 9)] * 2),
            min_size=1,
        ),
        max_size=4,
    ),
    st.lists(st.text()),
)
def test_a_measurement_comes_back_from_the_store(metrics: dict[str, Any], notes: list[str]) -> None:
    measurement = Measurement(metrics, notes=notes)
    back = through_store(measurement)
    assert (back.metrics, back.notes) == (measurement.metrics, measurement.notes)
    # A Count is a tuple and equal to one; its type is what tells it from two replicates.
    for name, values in measurement.metrics.items():
        assert [type(value) for value in back.metrics[name]] == [type(value) for value in values]


def test_tables_come_back_from_the_store() -> None:
    table = pl.DataFrame({"step": [0, 1], "error": [0.5, 0.25]})
    back = through_store(Measurement({"slope": 1.0}, tables={"errors": table}))
    assert back.tables["errors"].equals(table)


def test_what_is_not_finite_is_kept_for_the_verdict() -> None:
    values = through_store(Measurement({"ratio": [math.nan, math.inf]})).metrics["ratio"]
    assert math.isnan(values[0])
    assert values[1] == math.inf


def test_two_replicates_are_not_taken_for_a_count() -> None:
    assert through_store(Measurement({"pair": [3.0, 10.0]})).metrics["pair"] == (3.0, 10.0)
    assert not isinstance(Measurement({"pair": (3, 10)}).metrics["pair"][0], Count)


@pytest.mark.parametrize("count", [Count(-1, 3), Count(4, 3)])
def test_impossible_counts_are_refused(count: Count) -> None:
    with pytest.raises(ValueError, match="metric failures: a count needs 0 <= hits <= trials"):
        Measurement({"failures": count})


@pytest.mark.parametrize("value", ["abc", [None], [[1, 2, 3]], [(1, 2)], {"a": 1}])
def test_other_replicates_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="metric ratio: replicates are numbers or Counts"):
        Measurement({"ratio": value})


@pytest.mark.parametrize("value", [[], (), np.empty(0)])
def test_a_metric_without_replicates_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="metric ratio has no replicate"):
        Measurement({"ratio": value})


def test_a_measurement_cannot_be_changed() -> None:
    measurement = Measurement({"ratio": 1.0})
    with pytest.raises(dataclasses.FrozenInstanceError):
        measurement.metrics = {}  # type: ignore[misc]


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(TypeError, match="verdict"):
        Measurement.from_dict({"metrics": {"ratio": 1.0}, "verdict": "holds"})
