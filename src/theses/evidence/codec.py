"""Measurements and stage results as JSON text: numbers, strings, lists, mappings, arrays, tables, no code."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

__all__ = ["decode", "encode"]

_TAG = "__theses__"


def encode(value: Any) -> str:
    """JSON text of a result.

    Parameters
    ----------
    value : object
        None, bool, int, float (NaN and infinity too), str, list, tuple, mapping with string keys, NumPy array
        or scalar, torch tensor, polars DataFrame, nested at will.

    Returns
    -------
    str
        The text. Tuples come back as lists, tensors as arrays.

    Raises
    ------
    TypeError
        If it holds anything else.

    Examples
    --------
    >>> decode(encode({"weights": np.array([0.5, 1.0])}))
    {'weights': array([0.5, 1. ])}
    """
    return json.dumps(_to_json(value))


def decode(text: str) -> Any:
    """Result from the text that :func:`encode` made.

    Parameters
    ----------
    text : str
        The text; nothing in it is executed.

    Returns
    -------
    object
        The result.
    """
    return _from_json(json.loads(text))


def _to_json(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key == _TAG:
                raise TypeError(f"keys of a stored mapping must be strings other than {_TAG!r}, got {key!r}")
        return {key: _to_json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(entry) for entry in value]
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    buffer = io.BytesIO()
    if isinstance(value, np.ndarray):
        np.save(buffer, value, allow_pickle=False)
        return {_TAG: "array", "data": _text(buffer)}
    if isinstance(value, pl.DataFrame):
        value.write_ipc(buffer, compression="zstd")
        return {_TAG: "table", "data": _text(buffer)}
    raise TypeError(f"a stored result may not hold a {type(value).__name__}: {value!r}")


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {key: _from_json(entry) for key, entry in value.items()}
    buffer = io.BytesIO(base64.b64decode(value["data"]))
    if value[_TAG] == "array":
        return np.load(buffer, allow_pickle=False)
    return pl.read_ipc(buffer)


def _text(buffer: io.BytesIO) -> str:
    return base64.b64encode(buffer.getvalue()).decode("ascii")
