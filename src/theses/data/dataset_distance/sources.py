"""What counts as a labelled data set: arrays, scikit-learn bunches, torch data sets and loaders."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from theses.validation import check_array, check_same_length

__all__ = ["ArraySource", "Source", "StreamSource", "as_source", "check_same_features"]

_BATCH = 1024


@dataclass(frozen=True)
class ArraySource:
    """Data set in memory.

    Parameters
    ----------
    name : str
        What errors call it.
    features : Tensor of float32 or float64, shape (n_samples, n_features)
        Flattened features.
    order : Tensor of int64, shape (n_samples,)
        Rows, class after class.
    counts : Tensor of int64, shape (n_classes,)
        Samples of each class, in that order.
    feature_shape : tuple of int
        Shape of one sample before flattening.
    """

    name: str
    features: Tensor
    order: Tensor
    counts: Tensor
    feature_shape: tuple[int, ...]

    def sum_of_squares(self) -> tuple[float, int]:
        """Sum of all squared entries, and how many there are."""
        parts = (block.double().square().sum().item() for block in torch.split(self.features, _BATCH))
        return math.fsum(parts), self.features.numel()


@dataclass(frozen=True)
class StreamSource:
    """Data set that is read batch by batch, as often as needed.

    Parameters
    ----------
    name : str
        What errors call it.
    loader : DataLoader
        Yields ``(x, y)``; two passes need not come in the same order.
    feature_shape : tuple of int
        Shape of one sample.
    dtype : torch.dtype
        float32 or float64.
    device : torch.device or None
        Where batches are computed.
    """

    name: str
    loader: DataLoader[Any]
    feature_shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device | None

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass: features of shape (batch, n_features) and labels of shape (batch,)."""
        empty = True
        for batch in self.loader:
            empty = False
            x, y = _batch(self.name, batch)
            if x.shape[1:] != self.feature_shape:
                raise ValueError(
                    f"{self.name} must yield samples of one shape, "
                    f"got {self.feature_shape} and {tuple(x.shape[1:])}"
                )
            yield x.flatten(1).to(self.device, self.dtype), y
        if empty:
            raise ValueError(f"{self.name} must give its samples at each pass, got none at a later one")

    def sum_of_squares(self) -> tuple[float, int]:
        """Sum of all squared entries, and how many there are."""
        total, entries = 0.0, 0
        for x, _ in self.batches():
            total += x.double().square().sum().item()
            entries += x.numel()
        return total, entries


Source = ArraySource | StreamSource


def as_source(name: str, data: Any, device: torch.device | str | None = None) -> Source:
    """Read a data set given in any of the forms that are taken, and check it.

    Parameters
    ----------
    name : str
        Parameter's name, for errors.
    data : (X, y), Bunch, Dataset or DataLoader
        ``X`` of shape (n, d) or (n, c, h, w) and integer ``y`` of shape (n,), arrays, tensors or tables; a
        scikit-learn ``Bunch`` with ``data`` and ``target``; a torch ``Dataset`` or ``DataLoader`` that yields
        ``(x, y)``.
    device : device or None, default=None
        Where to compute; None stays where the data are.

    Returns
    -------
    ArraySource or StreamSource
        The data set.

    Raises
    ------
    ValueError
        If it is empty, not finite, of a wrong shape, or its labels are missing or no integers.
    TypeError
        If it is none of these.
    """
    device = None if device is None else torch.device(device)
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        data = data.tensors
    if isinstance(data, (Dataset, DataLoader)):
        return _stream(name, data, device)
    if isinstance(data, dict):
        if data.get("data") is None or data.get("target") is None:
            raise ValueError(f"{name} must be a Bunch with data and target, got one with {', '.join(data)}")
        data = (data["data"], data["target"])
    if not isinstance(data, (tuple, list)):
        raise TypeError(
            f"{name} must be a pair (X, y), a Bunch, a torch Dataset or a DataLoader, "
            f"got {type(data).__name__}"
        )
    if len(data) != 2 or data[1] is None:
        raise ValueError(f"{name} must be a pair (X, y), labels are missing: got {_forms(data)}")
    x = _features(f"{name}[0]", data[0])
    y = _labels(f"{name}[1]", data[1])
    check_same_length({f"{name}[0]": x, f"{name}[1]": y})
    target = x.device if device is None else device
    order = torch.argsort(y, stable=True).to(target)
    counts = torch.unique(y, return_counts=True)[1].to(target)
    return ArraySource(name, x.flatten(1).to(target), order, counts, tuple(x.shape[1:]))


def check_same_features(sources: Sequence[Source]) -> tuple[int, ...]:
    """Shape of a sample, the same in all data sets.

    Parameters
    ----------
    sources : sequence of Source
        The data sets.

    Returns
    -------
    tuple of int
        The shape.

    Raises
    ------
    ValueError
        If they differ.
    """
    first = sources[0]
    for other in sources[1:]:
        if other.feature_shape != first.feature_shape:
            raise ValueError(
                f"{first.name} and {other.name} must have features of the same shape, "
                f"got {first.feature_shape} and {other.feature_shape}"
            )
    return first.feature_shape


def _stream(name: str, data: Dataset[Any] | DataLoader[Any], device: torch.device | None) -> StreamSource:
    if isinstance(data, DataLoader):
        loader = data
    elif isinstance(data, IterableDataset) or hasattr(data, "__len__"):
        if hasattr(data, "__len__") and len(data) == 0:
            raise ValueError(f"{name} must have at least 1 sample, got an empty {type(data).__name__}")
        # A loader draws a seed for its workers at each pass; a generator of its own leaves torch's alone.
        loader = DataLoader(data, batch_size=_BATCH, generator=torch.Generator())
    else:
        raise TypeError(f"{name} must have a length or be iterable, got {type(data).__name__}")
    for batch in loader:
        x, _ = _batch(name, batch)
        return StreamSource(name, loader, tuple(x.shape[1:]), x.dtype, device or x.device)
    raise ValueError(f"{name} must have at least 1 sample, got a loader without batches")


def _batch(name: str, batch: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise ValueError(f"{name} must yield pairs (x, y), labels are missing: got {_forms(batch)}")
    x = _features(f"{name}'s features", batch[0])
    y = _labels(f"{name}'s labels", batch[1])
    check_same_length({f"{name}'s features": x, f"{name}'s labels": y})
    return x, y


def _features(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        x = value.detach()
        if x.is_complex():
            raise TypeError(f"{name} must be real, got {x.dtype}")
    else:
        array = check_array(name, value, ndim=(2, 4), dtype=None, finite=False)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"{name} must be an array of numbers, got dtype {array.dtype}")
        double = array.dtype.kind == "f" and array.dtype.itemsize >= 8
        array = array.astype(np.float64 if double else np.float32, copy=False)
        # torch warns about arrays that it could write through, although a data set is only read.
        x = torch.from_numpy(array if array.flags.writeable else array.copy())
    if x.ndim not in (2, 4):
        raise ValueError(f"{name} must have shape (n, d) or (n, c, h, w), got shape {tuple(x.shape)}")
    if 0 in x.shape:
        raise ValueError(f"{name} must have at least 1 row and no empty axis, got shape {tuple(x.shape)}")
    # Half precision and integers are computed in float32.
    if x.dtype != torch.float64:
        x = x.float()
    for start, block in zip(range(0, len(x), _BATCH), torch.split(x, _BATCH), strict=True):
        if not torch.isfinite(block).all():
            row = start + int((~torch.isfinite(block.flatten(1))).any(1).nonzero()[0])
            raise ValueError(f"{name} must be finite, got NaN or infinity in row {row}")
    return x


def _labels(name: str, value: Any) -> Tensor:
    y = value.detach() if isinstance(value, Tensor) else np.asarray(value)
    kind = y.dtype.kind if isinstance(y, np.ndarray) else ("f" if y.is_floating_point() else "i")
    if kind not in "iub":
        raise ValueError(
            f"{name} must be integer labels, got dtype {y.dtype}; encode classes as 0, 1, ... first"
        )
    if y.ndim != 1 or len(y) == 0:
        raise ValueError(f"{name} must be labels of shape (n,) with n >= 1, got shape {tuple(y.shape)}")
    return y.long() if isinstance(y, Tensor) else torch.from_numpy(y.astype(np.int64))


def _forms(parts: Any) -> str:
    if not isinstance(parts, (tuple, list)):
        return type(parts).__name__
    return f"({', '.join(type(part).__name__ for part in parts)})"
