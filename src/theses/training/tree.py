"""Nested state of models, optimisers and schedules as JSON text and tensors, without pickle."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["decode", "encode", "plain", "same_tensors", "same_trees"]


def encode(value: Any, tensors: dict[str, Tensor], path: str) -> Any:
    """Turn nested state into what JSON holds, and its tensors into an own mapping.

    Parameters
    ----------
    value : object
        None, booleans, numbers, text, dtypes, dense tensors, and lists, tuples, dicts and Counters of them.
    tensors : dict of str to Tensor
        Receives a contiguous copy on the CPU of each tensor, under its path.
    path : str
        Where the value lies, such as ``"optimizer"``; names the tensors, and the value in an error.

    Returns
    -------
    object
        For :func:`json.dumps`; :func:`decode` gives the value back.

    Raises
    ------
    TypeError
        If something in it is of another type.

    Examples
    --------
    >>> tensors = {}
    >>> encode({"step": 3, "betas": (0.9, 0.99), "mean": torch.zeros(2)}, tensors, "state")
    {'dict': [['step', 3], ['betas', {'tuple': [0.9, 0.99]}], ['mean', {'tensor': 'state.mean'}]]}
    >>> tensors
    {'state.mean': tensor([0., 0.])}
    """
    if isinstance(value, Tensor):
        return _encode_tensor(value, tensors, path)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if type(value) in (list, tuple):
        entries = [encode(entry, tensors, f"{path}.{i}") for i, entry in enumerate(value)]
        return entries if type(value) is list else {"tuple": entries}
    if type(value) in (dict, OrderedDict, Counter):
        for key in value:
            if key is not None and not isinstance(key, (bool, int, float, str)):
                raise TypeError(f"{path} has the key {key!r}, of a type that a checkpoint cannot hold")
        kind = "counter" if type(value) is Counter else "dict"
        return {kind: [[key, encode(entry, tensors, f"{path}.{key}")] for key, entry in value.items()]}
    raise TypeError(
        f"{path} is of type {type(value).__name__}, which a checkpoint cannot hold; it holds numbers, text, "
        "dense tensors, and lists, tuples and dicts of them"
    )


def decode(encoded: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Give back what :func:`encode` took apart.

    Parameters
    ----------
    encoded : object
        What it returned.
    tensors : mapping of str to Tensor
        What it put aside.

    Returns
    -------
    object
        The value; its tensors are on the CPU.

    Raises
    ------
    ValueError
        If it is nothing that :func:`encode` returns.

    Examples
    --------
    >>> decode({"dict": [["betas", {"tuple": [0.9, 0.99]}]]}, {})
    {'betas': (0.9, 0.99)}
    """
    if isinstance(encoded, list):
        return [decode(entry, tensors) for entry in encoded]
    if not isinstance(encoded, dict):
        return encoded
    match encoded:
        case {"tensor": name, **options} if name in tensors:
            return _decode_tensor(tensors[name], **options)
        case {"float": str(text)}:
            return float(text)
        case {"dtype": str(text)} if isinstance(getattr(torch, text, None), torch.dtype):
            return getattr(torch, text)
        case {"tuple": list(entries)}:
            return tuple(decode(entry, tensors) for entry in entries)
        case {"dict": list(entries)}:
            return {key: decode(entry, tensors) for key, entry in entries}
        case {"counter": list(entries)}:
            return Counter({key: decode(entry, tensors) for key, entry in entries})
    raise ValueError(f"nothing is encoded as {json.dumps(encoded)[:80]}")


def plain(encoded: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Encoded state with its small tensors written out, to be compared and shown.

    Parameters
    ----------
    encoded : object
        What :func:`encode` returned.
    tensors : mapping of str to Tensor
        What it put aside.

    Returns
    -------
    object
        Lists, dicts with text as keys, numbers and text.

    Examples
    --------
    >>> tensors = {}
    >>> plain(encode({"lr": torch.tensor(0.5), "betas": (0.9, 0.99)}, tensors, "group"), tensors)
    {'lr': 0.5, 'betas': [0.9, 0.99]}
    """
    if isinstance(encoded, list):
        return [plain(entry, tensors) for entry in encoded]
    if not isinstance(encoded, dict):
        return encoded
    ((kind, content), *_) = encoded.items()
    if kind == "tensor":
        return tensors[content].tolist()
    if kind == "tuple":
        return [plain(entry, tensors) for entry in content]
    if kind in ("dict", "counter"):
        return {str(key): plain(entry, tensors) for key, entry in content}
    return content


def same_tensors(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    """Whether two mappings hold the same bits under the same names.

    Parameters
    ----------
    a, b : mapping of str to Tensor
        Contiguous tensors on the CPU.

    Returns
    -------
    bool
        NaN is the same as NaN here, and 0 is not -0.

    Examples
    --------
    >>> same_tensors({"x": torch.tensor([float("nan")])}, {"x": torch.tensor([float("nan")])})
    True
    """
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype
        and a[name].shape == b[name].shape
        and torch.equal(as_bytes(a[name]), as_bytes(b[name]))
        for name in a
    )


def same_trees(a: Any, b: Any) -> bool:
    """Whether two encoded values are the same, whatever the order of the entries of their dicts.

    Parameters
    ----------
    a, b : object
        What :func:`encode` returned.

    Returns
    -------
    bool
        Without a look at the tensors.

    Examples
    --------
    >>> same_trees(encode({"a": 1, "b": (2,)}, {}, ""), encode({"b": (2,), "a": 1}, {}, ""))
    True
    """
    return bool(_sorted(a) == _sorted(b))


def _sorted(encoded: Any) -> Any:
    if isinstance(encoded, list):
        return [_sorted(entry) for entry in encoded]
    if not isinstance(encoded, dict):
        return encoded
    return {
        kind: sorted(map(_sorted, content), key=repr) if kind in ("dict", "counter") else _sorted(content)
        for kind, content in encoded.items()
    }


def as_bytes(tensor: Tensor) -> Tensor:
    """Bytes of a contiguous tensor, as a view of shape ``(n_bytes,)``."""
    return tensor.reshape(-1).view(torch.uint8)


def _encode_tensor(tensor: Tensor, tensors: dict[str, Tensor], path: str) -> dict[str, Any]:
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"{path} is a sparse or quantised tensor; a checkpoint holds dense ones")
    if path in tensors:  # {1: ..., "1": ...} in one dict
        raise TypeError(
            f"{path} stands for two tensors; a checkpoint needs keys without dots that differ as text"
        )
    encoded: dict[str, Any] = {"tensor": path}
    dense = tensor.detach()
    # Sums depend on the order in memory, so that, say, a channels-last layout has to come back too.
    order = sorted(range(dense.ndim), key=dense.stride, reverse=True)
    if not dense.is_contiguous() and dense.permute(order).is_contiguous():
        dense = dense.permute(order)
        encoded["order"] = order
    dense = dense.resolve_conj().resolve_neg()
    if dense.is_complex():
        dense = torch.view_as_real(dense)
        encoded["complex"] = True
    copy = torch.empty(dense.shape, dtype=dense.dtype)
    tensors[path] = copy.copy_(dense)
    return encoded


def _decode_tensor(tensor: Tensor, order: list[int] | None = None, **options: bool) -> Tensor:
    if options:
        tensor = torch.view_as_complex(tensor)
    if order is None:
        return tensor
    return tensor.permute([order.index(i) for i in range(len(order))])
