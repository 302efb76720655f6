"""Wasserstein distances between sorted projections, and their mean over projections."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["mean_and_error", "wasserstein_pp"]

_BLOCK = 1_000_000


def wasserstein_pp(a: Tensor, b: Tensor, p: float) -> Tensor:
    """W_p^p between the rows of two sorted matrices, shapes (L, n) and (L, m), in float64."""
    if a.dtype != b.dtype:
        a, b = a.double(), b.double()
    b = b.to(a.device)
    n, m = a.shape[1], b.shape[1]
    if n != m:
        # Quantile functions of both are constant between the merged levels {i / n} and {j / m}; the levels
        # are those of every row. Counted in units of 1 / (n m), so that equal levels are equal.
        levels_a, levels_b = torch.arange(1, n + 1) * m, torch.arange(1, m + 1) * n
        levels = torch.unique(torch.cat([levels_a, levels_b]))
        weights = (torch.diff(levels, prepend=levels.new_zeros(1)).double() / (n * m)).to(a.device)
        index_a = torch.searchsorted(levels_a, levels).to(a.device)
        index_b = torch.searchsorted(levels_b, levels).to(a.device)
    cost = torch.empty(len(a), dtype=torch.float64, device=a.device)
    rows = max(1, _BLOCK // (n + m))
    for start in range(0, len(a), rows):
        part = slice(start, start + rows)
        if n == m:
            gap = (a[part] - b[part]).double()  # a square may be too large for float32
            cost[part] = _absolute_power(gap, p).mean(1)
        else:
            gap = a[part].index_select(1, index_a) - b[part].index_select(1, index_b)
            cost[part] = _absolute_power(gap.double(), p) @ weights
    return cost.cpu()


def _absolute_power(gap: Tensor, p: float) -> Tensor:
    if p == 2:
        return gap.square_()
    gap.abs_()
    return gap if p == 1 else gap.pow_(p)


def mean_and_error(cost: Tensor, p: float) -> tuple[float, float]:
    """``(mean cost)^(1/p)`` and its standard error: the mean's own, times the root's derivative."""
    mean = float(cost.mean())
    if not math.isfinite(mean):
        raise ValueError("the distance overflows: projected features are too large; use scale='pooled'")
    if mean == 0:
        return 0.0, 0.0
    root = mean ** (1 / p)
    spread = float(cost.std()) if len(cost) > 1 else math.nan
    return root, spread / math.sqrt(len(cost)) * root / (p * mean)
