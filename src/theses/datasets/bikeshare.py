"""Hourly counts of hired bicycles in Washington, D.C., with the weather."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from theses.resources import Resource, find
from theses.validation import check_integer

__all__ = ["BIKESHARE", "bikers_at", "load_bikeshare"]

BIKESHARE = Resource(
    "islp", "ISLP/data/Bikeshare.csv", "ac6950ae6f11efcc69c29d6bb13e8881c001e27d36434660d59444a1414f712c"
)


def load_bikeshare() -> pl.DataFrame:
    """Bicycles hired in each hour of 2011, in the file's order.

    Returns
    -------
    polars.DataFrame, 8,645 rows
        ``season`` (1 is winter), ``mnth`` (short name), ``day`` of the year, ``hr`` (0 to 23), ``holiday``,
        ``weekday`` (0 is Sunday), ``workingday``; ``weathersit`` in words; ``temp``, ``atemp``, ``hum`` and
        ``windspeed``, each scaled to its largest value; ``casual``, ``registered`` and ``bikers`` (their
        sum), in bicycles an hour.

    Raises
    ------
    ResourceNotInstalled
        If the carrier ``islp`` is missing.

    References
    ----------
    Fanaee-T, H. and Gama, J. (2014). Event labeling combining ensemble detectors and background knowledge.
    Distributed with James, Witten, Hastie, Tibshirani and Taylor, An Introduction to Statistical Learning.

    Examples
    --------
    >>> hours = load_bikeshare()
    >>> hours.height, int(hours["bikers"].max())
    (8645, 651)
    """
    return pl.read_csv(find(BIKESHARE), infer_schema_length=None).with_columns(pl.col("hr").cast(pl.Int64))


def bikers_at(hour: int = 17, *, working_days: bool = True) -> NDArray[np.float64]:
    """Demand for bicycles in one hour of the day, a value a day, in the order of the days.

    Parameters
    ----------
    hour : int, default=17
        Hour of the day, 0 to 23.
    working_days : bool, default=True
        Leave out weekends and holidays.

    Returns
    -------
    ndarray of float64, shape (n_days,)
        Bicycles hired in that hour.

    Raises
    ------
    TypeError
        If ``hour`` is no integer.
    ValueError
        If ``hour`` is not between 0 and 23.

    Examples
    --------
    >>> demand = bikers_at(17)
    >>> demand.shape, float(demand.mean().round())
    ((250,), 395.0)
    """
    hour = check_integer("hour", hour, minimum=0, maximum=23)
    hours = load_bikeshare().filter(pl.col("hr") == hour)
    if working_days:
        hours = hours.filter(pl.col("workingday") == 1)
    return hours["bikers"].to_numpy().astype(np.float64)
