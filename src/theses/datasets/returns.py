"""Returns of assets: weekly ones of large American shares, and those of a file."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from theses.datasets.files import FileError, read_numbers, read_table
from theses.resources import Resource, find
from theses.validation import check_array

__all__ = ["SP500", "Returns", "load_returns", "load_sp500_prices", "load_weekly_returns", "simple_returns"]

SP500 = Resource(
    "skfolio",
    "skfolio/datasets/data/sp500_dataset.csv.gz",
    "ee21cac28befb1d0a739a9ceb22184f995394726aa0cfde9a21941d1ac04ac0d",
)


@dataclass(frozen=True)
class Returns:
    """Simple returns of several assets over the same periods.

    Parameters
    ----------
    values : ndarray of shape (n_periods, n_assets)
        Price at the end over price at the start, less 1.
    names : tuple of str
        What the assets are called.
    dates : tuple of str
        Last day of each period; empty where none are known.
    """

    values: NDArray[np.float64]
    names: tuple[str, ...]
    dates: tuple[str, ...] = ()

    def to_frame(self) -> pl.DataFrame:
        """Table with a column for each asset, after one of the dates if there are any."""
        assets = pl.DataFrame(self.values, schema=list(self.names), orient="row")
        return assets.insert_column(0, pl.Series("date", self.dates)) if self.dates else assets


def load_sp500_prices() -> pl.DataFrame:
    """Daily closing prices of 20 large American shares, 1990 to 2022, adjusted for splits and dividends.

    Returns
    -------
    polars.DataFrame, 8,313 rows
        ``Date``, then a column of prices in dollars for each share, by name.

    Raises
    ------
    ResourceNotInstalled
        If the carrier ``skfolio`` is missing.

    References
    ----------
    Nicolini, C., Manzi, M. and Delatte, H. (2025). skfolio: portfolio optimization in Python.
    arXiv:2507.04176.

    Examples
    --------
    >>> prices = load_sp500_prices()
    >>> prices.shape, prices.columns[:4]
    ((8313, 21), ['Date', 'AAPL', 'AMD', 'BAC'])
    """
    content = gzip.decompress(find(SP500).read_bytes())
    return pl.read_csv(content, try_parse_dates=True)


def load_weekly_returns(n_assets: int | None = None) -> Returns:
    """Weekly returns of large American shares, from the last close of a week to that of the next.

    Parameters
    ----------
    n_assets : int or None, default=None
        Take the first so many by name; None takes all 20.

    Returns
    -------
    Returns
        1,721 weeks from January 1990 to December 2022.

    Raises
    ------
    ResourceNotInstalled
        If the carrier ``skfolio`` is missing.
    ValueError
        If ``n_assets`` is not between 1 and 20.

    Examples
    --------
    >>> weeks = load_weekly_returns(10)
    >>> weeks.values.shape, weeks.names[:3], weeks.dates[0]
    ((1721, 10), ('AAPL', 'AMD', 'BAC'), '1990-01-12')
    """
    prices = load_sp500_prices()
    names = sorted(name for name in prices.columns if name != "Date")
    if n_assets is not None:
        if isinstance(n_assets, bool) or not 1 <= n_assets <= len(names):
            raise ValueError(f"n_assets must be between 1 and {len(names)}, got {n_assets!r}")
        names = names[:n_assets]
    weeks = (
        prices.sort("Date")
        .group_by_dynamic("Date", every="1w")
        .agg(pl.col("Date").last().alias("last"), *(pl.col(name).last() for name in names))
    )
    values = simple_returns(weeks.select(names).to_numpy())
    return Returns(values, tuple(names), tuple(str(day) for day in weeks["last"][1:]))


def simple_returns(prices: Any) -> NDArray[np.float64]:
    """Returns from prices, ``prices[t + 1] / prices[t] - 1``.

    Parameters
    ----------
    prices : array-like of shape (n_periods + 1, n_assets)
        Positive prices.

    Returns
    -------
    ndarray of shape (n_periods, n_assets)
        Simple returns.

    Raises
    ------
    ValueError
        If ``prices`` has fewer than two rows, or one is not positive.

    Examples
    --------
    >>> simple_returns([[1.0, 2.0], [1.5, 1.0]]).tolist()
    [[0.5, -0.5]]
    """
    prices = check_array("prices", prices, ndim=2, min_length=2)
    if (prices <= 0).any():
        raise ValueError(f"prices must be positive, got {prices.min()}")
    return np.asarray(prices[1:] / prices[:-1] - 1)


def load_returns(csv: str | os.PathLike[str], *, prices: bool = False) -> Returns:
    """Returns of a file with a column for each asset, and one of dates if there is one.

    Parameters
    ----------
    csv : path-like
        A table as :func:`theses.datasets.files.read_table` takes it: one row a period, in the order of time.
        A first column that holds no numbers, or is called date, gives the dates.
    prices : bool, default=False
        The columns hold prices, of which returns are made.

    Returns
    -------
    Returns
        The returns.

    Raises
    ------
    FileError
        If there is no asset, a cell is no finite number, a return is below -1 or a price not positive; the
        message names column and row.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "returns.csv"
    >>> _ = path.write_text("date,gold,oil\\n2024-01-05,0.01,-0.02\\n2024-01-12,0.0,0.03\\n")
    >>> found = load_returns(path)
    >>> found.names, found.dates[0], found.values.tolist()
    (('gold', 'oil'), '2024-01-05', [[0.01, -0.02], [0.0, 0.03]])
    """
    path = Path(csv)
    frame = read_table(path)
    first = frame.columns[0]
    dated = first.strip().casefold() in ("date", "week", "month", "day", "time") or not (
        frame[first].dtype.is_numeric() or _looks_numeric(frame[first])
    )
    names = frame.columns[1:] if dated else frame.columns
    if not names:
        raise FileError(f"{path}: has no column of returns beside the dates {first!r}")
    values = read_numbers(path, names)
    bad = values <= 0 if prices else values < -1
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        wanted = "a price is positive" if prices else "a return is at least -1 (a loss of all)"
        raise FileError(
            f"{path}: column {names[column]!r}, row {row + 1}: {wanted}, got {values[row, column]:g}"
        )
    dates = tuple(str(day) for day in frame[first]) if dated else ()
    if prices:
        if len(values) < 2:
            raise FileError(f"{path}: prices of two periods or more are wanted, got {len(values)}")
        values, dates = simple_returns(values), dates[1:]
    return Returns(values, tuple(names), dates)


def _looks_numeric(column: pl.Series) -> bool:
    """Whether most of a text column are numbers, so that a bad cell is an error and not a date."""
    if column.dtype != pl.String:
        return False
    return int(column.cast(pl.Float64, strict=False).is_not_null().sum()) * 2 > len(column)
