"""The common number that features are divided by, and other checks that all entries share."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any, Literal

from theses.data.dataset_distance.sources import Source
from theses.validation import check_real

__all__ = ["Scale", "check_datasets", "check_scale", "check_se", "settle_scale"]

_LOG = logging.getLogger(__name__)

Scale = Literal["pooled"] | float | None


def check_datasets(datasets: Any) -> None:
    if not isinstance(datasets, Sequence) or not len(datasets):
        raise ValueError(f"datasets must be a sequence of at least 1 data set, got {type(datasets).__name__}")


def check_se(return_se: bool, n_projections: int) -> None:
    if return_se and n_projections < 2:
        raise ValueError(f"n_projections must be at least 2 for a standard error, got {n_projections}")


def check_scale(scale: Any) -> Scale:
    if scale is None:
        return None
    if isinstance(scale, str):
        if scale != "pooled":
            raise ValueError(f"scale must be 'pooled', None or a number, got {scale!r}")
        return "pooled"
    return check_real("scale", scale, minimum=0, include=False)


def settle_scale(scale: Scale, sources: Sequence[Source]) -> float:
    if scale is None:
        return 1.0
    if not isinstance(scale, str):
        return scale
    # theta is uniform on the sphere, so the mean squared projection is the mean squared feature.
    sums, entries = zip(*(source.sum_of_squares() for source in sources), strict=True)
    pooled = math.sqrt(math.fsum(sums) / sum(entries))
    if pooled == 0 or not math.isfinite(pooled):
        raise ValueError(
            f"scale='pooled' needs features that are not all zero and not too large, got {pooled}"
        )
    _LOG.info("features are divided by %.6g, the root mean square over %d data sets", pooled, len(sources))
    return pooled
