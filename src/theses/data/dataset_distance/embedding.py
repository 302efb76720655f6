"""From a labelled data set to sorted projected samples, one row a projection."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import safetensors
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from theses.data.dataset_distance.projections import Projections
from theses.data.dataset_distance.sources import ArraySource, Source, StreamSource

__all__ = ["DatasetEmbedding", "embed"]

_FORMAT = "theses.dataset_distance.embedding/1"
# Entries of a block of projections: in float64 it stays in a core's cache through all powers. An accelerator
# wants fewer and larger calls.
_BLOCK, _ACCELERATOR_BLOCK = 65_536, 16_777_216
# Rows that are checked at once, so that no mask of all values is needed.
_ROWS = 64


@dataclass(frozen=True)
class DatasetEmbedding:
    """A data set as its sorted projections: all that a distance needs, and no sample of it.

    Parameters
    ----------
    values : Tensor, shape (n_projections, n_samples)
        Projected samples, each row ascending.
    projections : str
        Digest of projections and scale; only equal ones are comparable.
    scale : float
        What features were divided by.
    n_classes : int
        Classes of the data set.

    Raises
    ------
    ValueError
        If the values are not finite or not sorted.

    References
    ----------
    arXiv 2501.18901, Section 3: the projected data sets whose quantile functions are compared.

    Examples
    --------
    >>> import torch
    >>> from theses.data.dataset_distance import SlicedDatasetDistance
    >>> data = (torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> embedding = SlicedDatasetDistance(n_projections=8, generator=0).fit([data]).embed(data)
    >>> print(embedding.summary())
    4 samples of 2 classes under 8 projections, features divided by 0.5
    """

    values: Tensor
    projections: str
    scale: float
    n_classes: int

    def __post_init__(self) -> None:
        check_values("values", self.values)
        if any((rows.diff(dim=1) < 0).any() for rows in torch.split(self.values, _ROWS)):
            raise ValueError("values must be sorted, each row ascending")

    @property
    def n_projections(self) -> int:
        """Number of projections."""
        return self.values.shape[0]

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return self.values.shape[1]

    def summary(self) -> str:
        """One line for a reader.

        Returns
        -------
        str
            Sizes and scale.
        """
        return (
            f"{self.n_samples} samples of {self.n_classes} classes under {self.n_projections} projections, "
            f"features divided by {self.scale:.6g}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values.

        Returns
        -------
        dict
            Sizes, scale and the digest of the projections.
        """
        return {
            "n_samples": self.n_samples,
            "n_classes": self.n_classes,
            "n_projections": self.n_projections,
            "scale": self.scale,
            "projections": self.projections,
        }

    def to_frame(self) -> pl.DataFrame:
        """Table of the projections.

        Returns
        -------
        polars.DataFrame
            One row a projection: least, mean and greatest projected sample, and their standard deviation.
        """
        values = self.values.double().cpu()
        return pl.DataFrame(
            {
                "projection": np.arange(self.n_projections),
                "min": values[:, 0].numpy(),
                "mean": values.mean(1).numpy(),
                "max": values[:, -1].numpy(),
                "sd": values.std(1, correction=0).numpy(),
            }
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a safetensors file, atomically.

        Parameters
        ----------
        path : path-like
            The file; it is replaced.

        Examples
        --------
        >>> import tempfile, torch
        >>> embedding = DatasetEmbedding(torch.tensor([[0.0, 1.0]]), "digest", scale=1.0, n_classes=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     embedding.save(f"{folder}/one.safetensors")
        ...     DatasetEmbedding.load(f"{folder}/one.safetensors").values
        tensor([[0., 1.]])
        """
        metadata = {
            "format": _FORMAT,
            "projections": self.projections,
            "scale": self.scale.hex(),
            "n_classes": str(self.n_classes),
        }
        save_tensors({"values": self.values.cpu().contiguous()}, metadata, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DatasetEmbedding:
        """Read a file that :meth:`save` wrote.

        Parameters
        ----------
        path : path-like
            The file.

        Returns
        -------
        DatasetEmbedding
            The embedding, on the CPU.

        Raises
        ------
        ValueError
            If the file holds something else.
        """
        tensors, metadata = load_tensors(path, _FORMAT, ("values",))
        try:
            return cls(
                tensors["values"],
                metadata["projections"],
                float.fromhex(metadata["scale"]),
                int(metadata["n_classes"]),
            )
        except (KeyError, ValueError) as error:
            raise ValueError(f"{path} is damaged: {error}") from None


def check_values(name: str, values: Tensor) -> None:
    """Refuse what cannot be the values of an embedding, but for their order."""
    if not isinstance(values, Tensor) or not values.is_floating_point():
        raise TypeError(f"{name} must be a tensor of floats, got {type(values).__name__}")
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(
            f"{name} must have values of shape (n_projections, n_samples), none empty, "
            f"got {tuple(values.shape)}"
        )
    if not all(torch.isfinite(rows).all() for rows in torch.split(values, _ROWS)):
        raise ValueError(f"{name} must have finite values, got NaN or infinity")


def save_tensors(tensors: dict[str, Tensor], metadata: dict[str, str], path: str | os.PathLike[str]) -> None:
    """Write tensors to a safetensors file that is there whole or not at all."""
    path = Path(path)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    os.close(handle)
    try:
        save_file(tensors, part, metadata)
        Path(part).replace(path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def load_tensors(
    path: str | os.PathLike[str], form: str, names: tuple[str, ...]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file of a known form; ValueError if it is another."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != form or set(file.keys()) != set(names):
                raise ValueError(f"{path} must be a file of the form {form}, got {metadata.get('format')}")
            return {name: file.get_tensor(name) for name in names}, metadata
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is no safetensors file: {error}") from None


def embed(source: Source, projections: Projections, scale: float) -> tuple[Tensor, int]:
    r"""Sorted projected samples of a data set.

    Parameters
    ----------
    source : ArraySource or StreamSource
        The data set; a stream is read twice, class moments first, then points.
    projections : Projections
        L projections.
    scale : float
        Features are divided by it.

    Returns
    -------
    values : Tensor, shape (n_projections, n_samples)
        ``psi_0 q + sum_i psi_i m_i(y)`` with ``q = <theta, x> / scale``, each row ascending, in the features'
        dtype.
    n_classes : int
        Number of classes.

    Raises
    ------
    ValueError
        If moments overflow, or the two passes over a stream give different classes.

    Notes
    -----
    O(L (n d + n max_k + n log n)), whatever the number of classes.
    """
    if isinstance(source, ArraySource):
        values, n_classes = _embed_array(source, projections, scale), len(source.counts)
    else:
        values, n_classes = _embed_stream(source, projections, scale)
    return _sorted_rows(values), n_classes


def _embed_array(source: ArraySource, projections: Projections, scale: float) -> Tensor:
    x, counts = source.features, source.counts
    values = _project(x, projections, scale)
    # A projection's samples end up sorted, so they may first be put class after class: then a class is a
    # slice.
    in_order = bool((source.order.diff() == 1).all())
    rows = max(1, (_BLOCK if x.device.type == "cpu" else _ACCELERATOR_BLOCK) // len(x))
    for start in range(0, len(values), rows):
        block = values[start : start + rows]
        part = projections[start : start + rows]
        q = (block if in_order else block[:, source.order]).double()
        moments = _moments(_power_sums(q, counts, _highest(part)), counts)
        terms = _label_terms(moments, part)
        block.copy_(_points(q, torch.repeat_interleave(terms, counts, dim=1), part))
        _check_finite(block, source.name)
    return values


def _embed_stream(source: StreamSource, projections: Projections, scale: float) -> tuple[Tensor, int]:
    # First pass: the classes' power sums, whose number is not known before.
    classes: dict[int, int] = {}
    highest = _highest(projections)
    sums = torch.zeros(len(projections), highest, 0, dtype=torch.float64, device=source.device)
    counts = torch.zeros(0, dtype=torch.int64, device=source.device)
    for x, y in source.batches():
        present, batch_counts = torch.unique(y, return_counts=True)
        columns = torch.tensor(
            [classes.setdefault(int(c), len(classes)) for c in present], device=source.device
        )
        fresh = len(classes) - len(counts)
        sums = torch.cat([sums, sums.new_zeros(*sums.shape[:2], fresh)], dim=2)
        counts = torch.cat([counts, counts.new_zeros(fresh)])
        batch_counts = batch_counts.to(counts)
        q = _project(x[torch.argsort(y).to(x.device)], projections, scale).double()
        sums[:, :, columns] += _power_sums(q, batch_counts, highest)
        counts[columns] += batch_counts
    terms = _label_terms(_moments(sums, counts), projections)
    # Second pass: the points, in whatever order they come.
    values = torch.empty(len(projections), int(counts.sum()), dtype=source.dtype, device=source.device)
    seen, filled = torch.zeros_like(counts), 0
    for x, y in source.batches():
        columns = torch.tensor([classes.get(int(c), -1) for c in y], device=source.device)
        if (columns < 0).any() or filled + len(x) > values.shape[1]:
            break
        q = _project(x, projections, scale).double()
        block = values[:, filled : filled + len(x)].copy_(_points(q, terms[:, columns], projections))
        _check_finite(block, source.name)
        seen += torch.bincount(columns, minlength=len(seen))
        filled += len(x)
    if not torch.equal(seen, counts):
        raise ValueError(
            f"{source.name} must give the same samples in each of its two passes, in any order: "
            "classes and their sizes differ (a loader that shuffles and drops its last batch does this)"
        )
    return values, len(classes)


def _project(x: Tensor, projections: Projections, scale: float) -> Tensor:
    theta = projections.theta.to(x.device, x.dtype) / scale
    q = theta @ x.T
    return q if projections.clamp is None else q.clamp_(-projections.clamp, projections.clamp)


def _highest(projections: Projections) -> int:
    return int(projections.orders.max()) if projections.orders.numel() else 0


def _power_sums(q: Tensor, counts: Tensor, highest: int) -> Tensor:
    """Sums of ``q^k`` over each class for k = 1..highest, in float64: shape (rows, highest, n_classes).

    Parameters
    ----------
    q : Tensor of float64, shape (rows, n_samples)
        Projected features, class after class.
    counts : Tensor of int64, shape (n_classes,)
        Samples of each class.
    highest : int
        Highest order.
    """
    if q.device.type != "cpu":
        return _power_sums_by_index(q, counts, highest)
    sums = np.empty((len(q), highest, len(counts)))
    starts = (counts.cumsum(0) - counts).numpy()
    base: NDArray[np.float64] = q.numpy()
    power = base.copy()
    with np.errstate(over="ignore", invalid="ignore"):  # _check_finite refuses infinities
        for k in range(highest):
            if k:
                power *= base
            np.add.reduceat(power, starts, axis=1, out=sums[:, k])
    return torch.from_numpy(sums)


def _power_sums_by_index(q: Tensor, counts: Tensor, highest: int) -> Tensor:
    sums = q.new_zeros(highest, len(counts), len(q))
    labels = torch.repeat_interleave(torch.arange(len(counts), device=q.device), counts)
    base = q.T.contiguous()
    power = torch.ones_like(base)
    for k in range(highest):
        power *= base
        sums[k].index_add_(0, labels, power)
    return sums.permute(2, 0, 1)


def _moments(sums: Tensor, counts: Tensor) -> Tensor:
    """Scaled moments ``mean q^k / k!``, shape (rows, highest, n_classes)."""
    orders = torch.arange(1.0, sums.shape[1] + 1, dtype=torch.float64, device=sums.device)
    return sums / counts / torch.exp(torch.lgamma(orders + 1))[:, None]


def _label_terms(moments: Tensor, projections: Projections) -> Tensor:
    """``sum_i psi_i m_i(c)`` for each class c, shape (rows, n_classes)."""
    orders, psi = projections.orders.to(moments.device), projections.psi.to(moments.device)
    chosen = torch.gather(moments, 1, (orders - 1)[:, :, None].expand(-1, -1, moments.shape[2]))
    return torch.einsum("lm,lmc->lc", psi[:, 1:], chosen)


def _points(q: Tensor, terms: Tensor, projections: Projections) -> Tensor:
    """``psi_0 q + sum_i psi_i m_i(y)`` for each sample, in place of q."""
    return q.mul_(projections.psi[:, :1].to(q.device)).add_(terms)


def _check_finite(block: Tensor, name: str) -> None:
    # A sum is NaN or infinite if one of its terms is.
    if not torch.isfinite(block.sum(dtype=torch.float64)):
        raise ValueError(
            f"the label moments of {name} overflow: its projected features are too large; "
            "use scale='pooled' or a larger scale"
        )


def _sorted_rows(values: Tensor) -> Tensor:
    if values.device.type != "cpu":
        return values.sort(dim=1).values
    values.numpy().sort(axis=1)  # in place and several times as fast as torch's sort, which also ranks
    return values
