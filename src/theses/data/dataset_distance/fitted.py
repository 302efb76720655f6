"""Projections and scale fixed once: embed each data set where it lies, compare later."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from typing import Any, Literal, overload

import torch

from theses.data.dataset_distance.embedding import (
    DatasetEmbedding,
    check_values,
    embed,
    load_tensors,
    save_tensors,
)
from theses.data.dataset_distance.projections import CONV_CLAMP, Projections, draw_projections
from theses.data.dataset_distance.scale import Scale, check_datasets, check_scale, check_se, settle_scale
from theses.data.dataset_distance.sources import as_source, check_same_features
from theses.data.dataset_distance.transport import mean_and_error, wasserstein_pp
from theses.validation import check_choice, check_integer, check_real

__all__ = ["SlicedDatasetDistance"]

_FORMAT = "theses.dataset_distance.projections/1"


class SlicedDatasetDistance:
    """Sliced OTDD with projections and scale fixed once, for data sets that come one by one or stay apart.

    Parameters
    ----------
    n_projections : int, default=10_000
        L.
    n_moments : int, default=5
        M.
    p : float, default=2
        Order of the Wasserstein distance.
    projection : {"linear", "conv"}, default="linear"
        Kind of data projection.
    scale : "pooled", float or None, default="pooled"
        What features are divided by; ``"pooled"`` is settled by :meth:`fit`.
    generator : torch.Generator, int or None, default=None
        Source of the projections.
    device : device or None, default=None
        Where to compute.

    Attributes
    ----------
    scale_ : float
        The scale, after :meth:`fit`.
    projections_ : Projections
        The projections, after :meth:`fit`.
    feature_shape_ : tuple of int
        Shape of a sample, after :meth:`fit`.

    Notes
    -----
    Parties that share no samples: one fits and saves, the others load the file, embed their own data and
    share the embeddings, which hold ``n_projections`` sorted numbers a sample and neither features nor
    labels.

    See Also
    --------
    sliced_dataset_distance : for two data sets at hand; parameters are explained there.

    References
    ----------
    arXiv 2501.18901, Section 3.

    Examples
    --------
    >>> import torch
    >>> X, y = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 2
    >>> sotdd = SlicedDatasetDistance(n_projections=100, generator=0).fit([(X, y)])
    >>> here, there = sotdd.embed((X, y)), sotdd.embed((X + 1, y))
    >>> sotdd.distance(here, here), sotdd.distance(here, there) > 0.5
    (0.0, True)
    """

    scale_: float
    projections_: Projections
    feature_shape_: tuple[int, ...]

    def __init__(
        self,
        n_projections: int = 10_000,
        n_moments: int = 5,
        p: float = 2,
        *,
        projection: str = "linear",
        scale: Scale = "pooled",
        generator: torch.Generator | int | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.n_projections = check_integer("n_projections", n_projections, minimum=1)
        self.n_moments = check_integer("n_moments", n_moments, minimum=0)
        self.p = check_real("p", p, minimum=1)
        self.projection = check_choice("projection", projection, ("linear", "conv"))
        self.scale = check_scale(scale)
        self.generator = generator
        self.device = device

    def fit(self, datasets: Sequence[Any]) -> SlicedDatasetDistance:
        """Fix the scale and draw the projections.

        Parameters
        ----------
        datasets : sequence of data sets
            Data sets whose features are pooled for the scale, each in a form that
            :func:`sliced_dataset_distance` takes. Data sets that are embedded later are divided by the same
            scale.

        Returns
        -------
        SlicedDatasetDistance
            Itself.

        Raises
        ------
        ValueError, TypeError
            If a data set is not valid, feature shapes differ, or the scale is 0.
        """
        check_datasets(datasets)
        sources = [as_source(f"datasets[{i}]", data, self.device) for i, data in enumerate(datasets)]
        shape = check_same_features(sources)
        scale = settle_scale(self.scale, sources)
        self._settle(
            shape,
            scale,
            draw_projections(shape, self.n_projections, self.n_moments, self.projection, self.generator),
        )
        return self

    def embed(self, dataset: Any) -> DatasetEmbedding:
        """Sorted projections of a data set.

        Parameters
        ----------
        dataset : data set
            In a form that :func:`sliced_dataset_distance` takes. A loader is read twice: class moments, then
            points.

        Returns
        -------
        DatasetEmbedding
            ``n_projections * n_samples`` numbers.

        Raises
        ------
        ValueError, TypeError
            If the data set is not valid, or its samples are not of the shape seen by :meth:`fit`.
        """
        self._check_fitted()
        source = as_source("dataset", dataset, self.device)
        if source.feature_shape != self.feature_shape_:
            raise ValueError(
                f"dataset must have features of shape {self.feature_shape_}, as in fit, "
                f"got {source.feature_shape}"
            )
        values, n_classes = embed(source, self.projections_, self.scale_)
        return DatasetEmbedding(values, self._digest, self.scale_, n_classes)

    @overload
    def distance(
        self, e1: DatasetEmbedding, e2: DatasetEmbedding, *, return_se: Literal[False] = ...
    ) -> float: ...
    @overload
    def distance(
        self, e1: DatasetEmbedding, e2: DatasetEmbedding, *, return_se: Literal[True]
    ) -> tuple[float, float]: ...
    def distance(
        self, e1: DatasetEmbedding, e2: DatasetEmbedding, *, return_se: bool = False
    ) -> float | tuple[float, float]:
        """Distance between two embedded data sets.

        Parameters
        ----------
        e1, e2 : DatasetEmbedding
            Made by this object, or by one that was loaded from its file.
        return_se : bool, default=False
            Also return the Monte-Carlo standard error.

        Returns
        -------
        float, or (float, float)
            Distance, and its standard error.

        Raises
        ------
        ValueError
            If an embedding was made with other projections or another scale.
        """
        self._check_fitted()
        for name, embedding in (("e1", e1), ("e2", e2)):
            if not isinstance(embedding, DatasetEmbedding):
                raise TypeError(f"{name} must be a DatasetEmbedding, got {type(embedding).__name__}")
            check_values(name, embedding.values)
            if embedding.projections != self._digest or len(embedding.values) != self.n_projections:
                raise ValueError(
                    f"{name} must be made with the projections and the scale of this object, "
                    f"got an embedding with others ({embedding.summary()})"
                )
        check_se(return_se, self.n_projections)
        distance, error = mean_and_error(wasserstein_pp(e1.values, e2.values, self.p), self.p)
        return (distance, error) if return_se else distance

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write projections and scale to a safetensors file, atomically: whoever loads it embeds alike.

        Parameters
        ----------
        path : path-like
            The file; it is replaced.

        Raises
        ------
        ValueError
            Before :meth:`fit`.
        """
        self._check_fitted()
        drawn = self.projections_
        metadata = {
            "format": _FORMAT,
            "p": self.p.hex(),
            "projection": self.projection,
            "scale": self.scale_.hex(),
            "feature_shape": ",".join(map(str, self.feature_shape_)),
            "digest": self._digest,
        }
        save_tensors({"theta": drawn.theta, "psi": drawn.psi, "orders": drawn.orders}, metadata, path)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], device: torch.device | str | None = None
    ) -> SlicedDatasetDistance:
        """Read a file that :meth:`save` wrote.

        Parameters
        ----------
        path : path-like
            The file.
        device : device or None, default=None
            Where to compute.

        Returns
        -------
        SlicedDatasetDistance
            Fitted, with the same projections and scale.

        Raises
        ------
        ValueError
            If the file holds something else.
        """
        tensors, metadata = load_tensors(path, _FORMAT, ("theta", "psi", "orders"))
        theta, psi, orders = tensors["theta"], tensors["psi"], tensors["orders"]
        try:
            scale = float.fromhex(metadata["scale"])
            loaded = cls(
                len(theta),
                orders.shape[1],
                float.fromhex(metadata["p"]),
                projection=metadata["projection"],
                scale=scale,
                device=device,
            )
            shape = tuple(int(side) for side in metadata["feature_shape"].split(","))
            clamp = CONV_CLAMP if loaded.projection == "conv" else None
            loaded._settle(shape, scale, Projections(theta, psi, orders, clamp))
            if loaded._digest != metadata["digest"] or theta.shape[1] != math.prod(shape):
                raise ValueError("projections and digest disagree")
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged: {error}") from None
        return loaded

    def _settle(self, shape: tuple[int, ...], scale: float, projections: Projections) -> None:
        self.feature_shape_, self.scale_, self.projections_ = shape, scale, projections
        self._digest = hashlib.sha256(f"{projections.digest()} {scale.hex()}".encode()).hexdigest()

    def _check_fitted(self) -> None:
        if not hasattr(self, "projections_"):
            raise ValueError("this SlicedDatasetDistance has no projections yet: call fit first")
