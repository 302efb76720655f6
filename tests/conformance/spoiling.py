"""Ways to spoil an array: NaN, infinity, no rows, another rank, one row too few."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from scipy import sparse


class Spoilt(NamedTuple):
    """An array after a corruption, which of the contract's it is, and what was done in words."""

    corruption: str
    words: str
    value: Any


def spoil(value: Any, *, paired: bool) -> list[Spoilt]:
    """An array in all the ways that make sense for its type.

    Parameters
    ----------
    value : array, tensor, sparse matrix, table or list
        Integers, booleans and strings get no NaN and no infinity; what has no rank (a sparse matrix, a
        table, a list of strings or of objects) gets no other.
    paired : bool
        Whether it is also made shorter than what it belongs to.

    Returns
    -------
    list of Spoilt
        Each a fresh object.
    """
    return [spoilt for spoilt in _spoil(value) if paired or spoilt.corruption != "length"]


def get(arguments: Mapping[str, Any], path: str) -> Any:
    """Argument at a path such as ``"A.0"``: an entry of a sequence or mapping, or an attribute."""
    value: Any = arguments
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value[part]
        elif isinstance(value, (list, tuple)) and part.isdecimal():
            value = value[int(part)]
        else:
            value = getattr(value, part)
    return value


def put(arguments: Mapping[str, Any], path: str, new: Any) -> dict[str, Any]:
    """Copy of the arguments with another value at a path."""
    changed: dict[str, Any] = _put(arguments, path.split("."), new)
    return changed


def _put(value: Any, parts: list[str], new: Any) -> Any:
    if not parts:
        return new
    part, rest = parts[0], parts[1:]
    new = _put(get({"value": value}, f"value.{part}"), rest, new)
    if isinstance(value, (list, tuple)) and part.isdecimal():
        entries = list(value)
        entries[int(part)] = new
        return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
    changed = copy.copy(value)
    if isinstance(value, Mapping):
        changed[part] = new
    else:
        # Also for a frozen record, and past what it checks itself: the door is the call that it is handed to.
        object.__setattr__(changed, part, new)
    return changed


def _spoil(value: Any) -> Iterator[Spoilt]:
    if sparse.issparse(value):
        yield from _spoil_sparse(value)
    elif isinstance(value, (np.ndarray, torch.Tensor)):
        yield from _spoil_array(value)
    elif _is_jax(value):
        for spoilt in _spoil_array(np.asarray(value)):
            yield spoilt._replace(value=sys.modules["jax"].numpy.asarray(spoilt.value))
    elif isinstance(value, (pl.DataFrame, pl.Series)) or type(value).__module__.startswith("pandas"):
        yield from _spoil_table(value)
    elif isinstance(value, (list, tuple)):
        yield from _spoil_list(value)
    else:
        raise TypeError(f"a {type(value).__name__} is no array that can be spoilt")


def _is_jax(value: Any) -> bool:
    return "jax" in sys.modules and isinstance(value, sys.modules["jax"].Array)


_BAD = (("nan", "NaN in one entry", math.nan), ("inf", "infinity in one entry", math.inf))


def _spoil_array(value: Any) -> Iterator[Spoilt]:
    floating = value.is_floating_point() if isinstance(value, torch.Tensor) else value.dtype.kind in "fc"
    size = value.numel() if isinstance(value, torch.Tensor) else value.size
    if floating and size:
        for corruption, words, bad in _BAD:
            spoilt = value.detach().clone() if isinstance(value, torch.Tensor) else value.copy()
            where = np.unravel_index(size // 2, tuple(value.shape))
            spoilt[tuple(int(i) for i in where)] = bad
            yield Spoilt(corruption, words, spoilt)
    if value.ndim:
        yield Spoilt("empty", "no rows", value[:0])
        yield Spoilt("length", "last row left out", value[:-1])
    yield Spoilt("rank", "one axis more", value[..., None])
    if value.ndim == 2:
        yield Spoilt("rank", "flattened", value.reshape(-1))


def _spoil_sparse(value: Any) -> Iterator[Spoilt]:
    value = value.tocsr()
    if value.dtype.kind in "fc" and value.nnz:
        for corruption, words, bad in _BAD:
            spoilt = value.copy()
            spoilt.data[value.nnz // 2] = bad
            yield Spoilt(corruption, words, spoilt)
    yield Spoilt("empty", "no rows", value[:0])
    yield Spoilt("length", "last row left out", value[:-1])


def _spoil_table(value: Any) -> Iterator[Spoilt]:
    rows = len(value)
    for corruption, words, bad in _BAD:
        spoilt = _with_bad_cell(value, bad)
        if rows and spoilt is not None:
            yield Spoilt(corruption, words, spoilt)
    yield Spoilt("empty", "no rows", value.head(0))
    yield Spoilt("length", "last row left out", value.head(rows - 1))


def _with_bad_cell(value: Any, bad: float) -> Any:
    middle = len(value) // 2
    if isinstance(value, pl.Series):
        return value.clone().scatter(middle, bad) if value.dtype.is_float() else None
    if isinstance(value, pl.DataFrame):
        for column in value.iter_columns():
            if column.dtype.is_float():
                return value.with_columns(column.clone().scatter(middle, bad))
        return None
    spoilt = value.copy()
    if spoilt.ndim == 1:
        if spoilt.dtype.kind != "f":
            return None
        spoilt.iloc[middle] = bad
        return spoilt
    for position, dtype in enumerate(spoilt.dtypes):
        if dtype.kind == "f":
            spoilt.iloc[middle, position] = bad
            return spoilt
    return None


def _spoil_list(value: Any) -> Iterator[Spoilt]:
    kind = type(value) if type(value) in (list, tuple) else list
    if value:
        for corruption, words, bad in _BAD:
            spoilt = _with_bad_leaf(list(value), bad)
            if spoilt is not None:
                yield Spoilt(corruption, words, kind(spoilt))
    yield Spoilt("empty", "no entries", kind())
    yield Spoilt("length", "last entry left out", kind(value[:-1]))
    depth = _depth(value)
    if depth:
        yield Spoilt("rank", "one axis more", kind(_at_leaves(value, lambda leaf: [leaf])))
    if depth == 2:
        yield Spoilt("rank", "flattened", kind(leaf for row in value for leaf in row))


def _with_bad_leaf(value: list[Any], bad: float) -> list[Any] | None:
    """Copy with one float replaced, in the middle or as near behind it as there is one."""
    middle = len(value) // 2
    for i in (*range(middle, len(value)), *range(middle)):
        entry = value[i]
        new: Any = None
        if isinstance(entry, float):
            new = bad
        elif isinstance(entry, (list, tuple)):
            leaf = _with_bad_leaf(list(entry), bad)
            new = None if leaf is None else type(entry)(leaf)
        elif isinstance(entry, (np.ndarray, torch.Tensor)):
            wanted = "nan" if math.isnan(bad) else "inf"
            new = next((spoilt.value for spoilt in _spoil_array(entry) if spoilt.corruption == wanted), None)
        if new is not None:
            return [*value[:i], new, *value[i + 1 :]]
    return None


def _depth(value: Any) -> int:
    """Rank of nested lists of numbers; 0 if they hold anything else."""
    if isinstance(value, (bool, int, float)):
        return 0
    depths = {_depth(entry) + 1 if isinstance(entry, (list, tuple)) else 1 for entry in value}
    numeric = all(isinstance(entry, (bool, int, float)) for entry in value) or all(
        isinstance(entry, (list, tuple)) and _depth(entry) for entry in value
    )
    return depths.pop() if numeric and len(depths) == 1 else 0


def _at_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_at_leaves(entry, change) for entry in value]
    return change(value)
