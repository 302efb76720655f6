from __future__ import annotations

import itertools
import re
from datetime import date

import numpy as np
import polars as pl
import pytest

from theses.datasets.files import FileError
from theses.datasets.returns import load_returns, load_sp500_prices, load_weekly_returns, simple_returns


def test_prices_are_daily_and_positive():
    prices = load_sp500_prices()
    assert prices.shape == (8_313, 21)
    assert prices["Date"].is_sorted() and prices["Date"].n_unique() == 8_313
    assert prices.drop("Date").to_numpy().min() > 0
    assert (prices["Date"].dt.weekday() <= 5).all()


def test_weekly_returns_compound_to_the_change_of_the_price():
    weeks = load_weekly_returns()
    prices = load_sp500_prices()
    assert weeks.values.shape == (1_721, 20) and len(weeks.dates) == 1_721
    # The first week ends on the first Friday; from there on nothing is lost.
    first = prices.filter(pl.col("Date") == date(1990, 1, 5))
    growth = np.prod(1 + weeks.values, axis=0)
    for j, name in enumerate(weeks.names):
        assert growth[j] == pytest.approx(prices[name][-1] / first[name][0], rel=1e-9)
    days = [date.fromisoformat(day) for day in weeks.dates]
    # The exchange was closed from Tuesday to Friday in September 2001.
    gaps = {(b - a).days for a, b in itertools.pairwise(days)}
    assert gaps <= {3, 5, 6, 7, 8, 11} and date(2001, 9, 10) in days
    few = load_weekly_returns(10)
    assert few.names == weeks.names[:10] and (few.values == weeks.values[:, :10]).all()
    assert list(few.names) == sorted(few.names)


def test_returns_of_a_file_come_back(tmp_path):
    weeks = load_weekly_returns(3)
    path = tmp_path / "returns.csv"
    weeks.to_frame()[:30].write_csv(path)
    back = load_returns(path)
    assert back.names == weeks.names and back.dates == weeks.dates[:30]
    assert np.allclose(back.values, weeks.values[:30])
    # Without dates, and from prices.
    weeks.to_frame()[:30].drop("date").write_parquet(tmp_path / "plain.parquet")
    plain = load_returns(tmp_path / "plain.parquet")
    assert plain.dates == () and (plain.values == back.values).all()
    assert plain.to_frame().columns == list(weeks.names)
    levels = 100 * np.cumprod(1 + weeks.values[:30], axis=0)
    frame = pl.DataFrame(levels, schema=list(weeks.names)).insert_column(
        0, pl.Series("day", weeks.dates[:30])
    )
    frame.write_csv(tmp_path / "prices.csv")
    again = load_returns(tmp_path / "prices.csv", prices=True)
    assert again.dates == weeks.dates[1:30] and np.allclose(again.values, weeks.values[1:30])


@pytest.mark.parametrize(
    ("text", "prices", "says"),
    [
        ("date,a\n2024-01-01,0.1\n2024-01-08,x\n", False, "column 'a', row 2: 'x' is not a number"),
        ("a,b\n0.1,0.2\n0.1,-1.5\n", False, "column 'b', row 2: a return is at least -1"),
        ("a,b\n1,2\n0,2\n", True, "column 'a', row 2: a price is positive, got 0"),
        ("a,b\n1,2\n", True, "prices of two periods or more are wanted, got 1"),
        ("date\n2024-01-01\n", False, "has no column of returns beside the dates 'date'"),
        ("a,b\n0.1,\n", False, "column 'b', row 1"),
        ("a,b\n0.1,0.2\nx,0.1\n0.2,0.2\n", False, "column 'a', row 2: 'x' is not a number"),
    ],
)
def test_bad_files_are_named(tmp_path, text, prices, says):
    path = tmp_path / "returns.csv"
    path.write_text(text)
    with pytest.raises(FileError, match=re.escape(says)) as caught:
        load_returns(path, prices=prices)
    assert str(path) in str(caught.value)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="n_assets must be between 1 and 20, got 21"):
        load_weekly_returns(21)
    with pytest.raises(ValueError, match="prices must be positive"):
        simple_returns([[1.0], [0.0]])
    with pytest.raises(ValueError, match="prices must have at least 2 row"):
        simple_returns([[1.0]])
    with pytest.raises(ValueError, match="prices must be finite"):
        simple_returns([[1.0], [np.nan]])
