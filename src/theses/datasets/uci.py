"""Tables of the UCI Machine Learning Repository, from a local folder."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from theses.resources import record

__all__ = ["load_uci_german_credit", "load_uci_realestate"]

_REALESTATE = ("Real estate valuation data set.csv", "Real_estate_valuation_data_set.csv", "real_estate.csv")
_GERMAN = "german.data-numeric"
_GERMAN_FEATURES = 24


def load_uci_realestate(
    folder: str | os.PathLike[str],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Real estate valuations in Sindian, New Taipei: six features and the price of a unit of area.

    Parameters
    ----------
    folder : path-like
        Holds ``Real estate valuation data set.csv`` (or ``Real_estate_valuation_data_set.csv``,
        ``real_estate.csv``): the sheet of UCI's workbook saved as CSV, a header and the eight columns number,
        X1 date, X2 age, X3 distance to a station, X4 shops, X5 latitude, X6 longitude, Y price.

    Returns
    -------
    X : ndarray of shape (n_rows, 6)
        X1 to X6, standardised.
    y : ndarray of shape (n_rows,)
        The price, standardised.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If a row is not eight finite numbers, or a column is constant; the message names file and line.

    References
    ----------
    Yeh and Hsu 2018; UCI Machine Learning Repository, data set 477.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> rows = ["1,2012.9,32,84.9,10,24.98,121.54,37.9", "2,2013.5,5,561.9,5,24.97,121.53,54.8"]
    >>> _ = (folder / "real_estate.csv").write_text("\\n".join(["No,X1,X2,X3,X4,X5,X6,Y", *rows]))
    >>> X, y = load_uci_realestate(folder)
    >>> X.shape, y.round(6).tolist()
    ((2, 6), [-1.0, 1.0])
    """
    folder = Path(folder)
    path = next((folder / name for name in _REALESTATE if (folder / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"{folder / _REALESTATE[0]} is missing: save the sheet of UCI's workbook as CSV there"
        )
    record(path)
    with path.open(encoding="utf-8-sig", newline="") as stream:
        lines = [(number, row) for number, row in enumerate(csv.reader(stream), start=1) if any(row)]
    table = _numbers(path, lines[1:], 8)
    features, price = table[:, 1:7], table[:, 7:]
    return _standardised(path, features), _standardised(path, price)[:, 0]


def load_uci_german_credit(
    folder: str | os.PathLike[str],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """German credit: 24 numeric features of applicants, and whether the credit was bad.

    Parameters
    ----------
    folder : path-like
        Holds ``german.data-numeric`` of UCI's Statlog (German credit data): 25 integers a line.

    Returns
    -------
    X : ndarray of shape (n_rows, 24)
        Features, standardised.
    y : ndarray of int64, shape (n_rows,)
        0 for a good credit (1 in the file), 1 for a bad one (2 in the file).

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If a row is not 25 finite numbers of which the last is 1 or 2, or a column is constant; the message
        names file and line.

    References
    ----------
    Hofmann 1994; UCI Machine Learning Repository, data set 144.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> rows = [" ".join([*map(str, range(i, i + 24)), str(i)]) for i in (1, 2)]
    >>> _ = (folder / "german.data-numeric").write_text("\\n".join(rows))
    >>> X, y = load_uci_german_credit(folder)
    >>> X.shape, y.tolist()
    ((2, 24), [0, 1])
    """
    path = Path(folder) / _GERMAN
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: UCI's Statlog (German credit data)")
    record(path)
    text = path.read_text(encoding="ascii", errors="replace")
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    table = _numbers(path, lines, _GERMAN_FEATURES + 1)
    labels = table[:, -1]
    wrong = np.flatnonzero(~np.isin(labels, (1, 2)))
    if len(wrong):
        raise ValueError(
            f"{path}: line {lines[wrong[0]][0]}: the class must be 1 or 2, got {labels[wrong[0]]:g}"
        )
    return _standardised(path, table[:, :-1]), labels.astype(np.int64) - 1


def _numbers(path: Path, lines: list[tuple[int, list[str]]], width: int) -> NDArray[np.float64]:
    if len(lines) < 2:
        raise ValueError(f"{path}: holds fewer than two rows")
    table = np.empty((len(lines), width))
    for i, (number, row) in enumerate(lines):
        try:
            values = [float(cell) for cell in row]
        except ValueError as error:
            raise ValueError(f"{path}: line {number}: {error}") from None
        if len(values) != width or not np.isfinite(values).all():
            raise ValueError(f"{path}: line {number}: expected {width} finite numbers, got {', '.join(row)}")
        table[i] = values
    return table


def _standardised(path: Path, columns: NDArray[np.float64]) -> NDArray[np.float64]:
    spread = columns.std(axis=0)
    if (spread == 0).any():
        raise ValueError(f"{path}: feature {int(np.argmin(spread)) + 1} is constant")
    return np.asarray((columns - columns.mean(axis=0)) / spread)
