"""Optimal transport dataset distance (OTDD) by POT: the reference that s-OTDD is held against."""

from __future__ import annotations

from typing import Any

import numpy as np
import ot
import torch
from numpy.typing import NDArray

from theses.data.dataset_distance.sources import ArraySource, as_source, check_same_features
from theses.validation import as_torch_generator, check_choice, check_integer, check_real

__all__ = ["otdd"]

_Array = NDArray[np.float64]


def otdd(
    A: Any,
    B: Any,
    *,
    label_distance: str = "exact",
    entropic: float | None = None,
    max_samples: int | None = None,
    generator: torch.Generator | int | None = None,
) -> float:
    r"""Optimal transport dataset distance (OTDD): transport between samples whose labels have a distance.

    .. math:: \min_{\pi \in \Pi(A, B)} \sum_{ij} \pi_{ij} \big( \|x_i - x'_j\|^2 + W_2^2(\alpha_{y_i},
        \alpha_{y'_j}) \big)

    with ``alpha_c`` the distribution of the features of class ``c``. The value is not rooted.

    Parameters
    ----------
    A, B : (X, y) or Bunch
        Labelled data sets in memory, as :func:`~theses.data.dataset_distance.sliced_dataset_distance` takes
        them.
    label_distance : {"exact", "gaussian"}, default="exact"
        ``W_2^2`` between classes: by linear programming, or between the Gaussians of equal mean and
        covariance (Bures).
    entropic : float or None, default=None
        Weight of the entropic regularisation, in units of the cost: Sinkhorn instead of the linear program,
        debiased by half of both self terms (which are 0 for the exact plan).
    max_samples : int or None, default=None
        Draw at most so many samples of each data set.
    generator : torch.Generator, int or None, default=None
        For ``max_samples``.

    Returns
    -------
    float
        The cost, in squared units of the features.

    Raises
    ------
    ValueError
        If a data set or a parameter is not valid.
    TypeError
        If a data set is none of the forms above.
    RuntimeError
        If POT's solver does not converge.

    Notes
    -----
    The linear program takes about O(n^3 log n) time and O(n^2) memory; the exact label part a program for
    each pair of classes.

    References
    ----------
    Alvarez-Melis, Fusi: Geometric Dataset Distances via Optimal Transport, NeurIPS 2020,
    Section 3 (the distance of labels, and the transport between labelled samples).

    Examples
    --------
    >>> import numpy as np
    >>> A = (np.array([[0.0], [1.0]]), np.array([0, 1]))
    >>> B = (np.array([[0.0], [1.0]]), np.array([7, 7]))
    >>> otdd(A, A), otdd(A, B)
    (0.0, 0.5)
    """
    check_choice("label_distance", label_distance, ("exact", "gaussian"))
    if entropic is not None:
        entropic = check_real("entropic", entropic, minimum=0, include=False)
    if max_samples is not None:
        max_samples = check_integer("max_samples", max_samples, minimum=1)
        generator = as_torch_generator(generator)
    sources = []
    for name, data in (("A", A), ("B", B)):
        source = as_source(name, data, "cpu")
        if not isinstance(source, ArraySource):
            raise TypeError(f"{name} must be a pair (X, y) or a Bunch in memory, got {type(data).__name__}")
        sources.append(source)
    check_same_features(sources)
    a, b = (_classes(source, max_samples, generator) for source in sources)
    if entropic is None:
        return _exact(_cost(a, b, label_distance))
    cross, self_a, self_b = (
        _sinkhorn(_cost(one, other, label_distance), entropic) for one, other in ((a, b), (a, a), (b, b))
    )
    return cross - (self_a + self_b) / 2


def _classes(
    source: ArraySource, max_samples: int | None, generator: torch.Generator | int | None
) -> list[_Array]:
    """Features of each class, in float64."""
    labels = torch.repeat_interleave(torch.arange(len(source.counts)), source.counts)
    rows = source.order
    if max_samples is not None and max_samples < len(rows):
        generator = as_torch_generator(generator)
        kept = (
            torch.randperm(len(rows), generator=generator, device=generator.device)[:max_samples]
            .sort()
            .values
        )
        rows, labels = rows[kept.cpu()], labels[kept.cpu()]
    x = source.features[rows].double().numpy()
    return [x[labels.numpy() == c] for c in torch.unique(labels).tolist()]


def _cost(a: list[_Array], b: list[_Array], label_distance: str) -> _Array:
    """Cost between samples of ``a`` (rows) and ``b``: squared distance, plus that of their classes."""
    cost: _Array = ot.dist(np.concatenate(a), np.concatenate(b), metric="sqeuclidean")
    gaussians = [[_gaussian(x) for x in side] for side in (a, b)] if label_distance == "gaussian" else []
    row = 0
    for i, x in enumerate(a):
        column = 0
        for j, z in enumerate(b):
            block = cost[row : row + len(x), column : column + len(z)]
            block += _bures(gaussians[0][i], gaussians[1][j]) if gaussians else _exact(block)
            column += len(z)
        row += len(x)
    return cost


def _exact(cost: _Array) -> float:
    if 1 in cost.shape:
        return float(cost.mean())  # only one plan has these marginals
    value, log = ot.emd2(
        np.full(len(cost), 1 / len(cost)),
        np.full(cost.shape[1], 1 / cost.shape[1]),
        np.ascontiguousarray(cost),
        numItermax=100_000_000,
        log=True,
    )
    if log["warning"] is not None:
        raise RuntimeError(f"POT's network simplex did not solve a transport problem: {log['warning']}")
    return max(float(value), 0.0)


def _sinkhorn(cost: _Array, entropic: float) -> float:
    """Optimal value of the regularised problem, ``<P, cost> + entropic KL(P | a b')``."""
    a, b = np.full(len(cost), 1 / len(cost)), np.full(cost.shape[1], 1 / cost.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):  # the error below says what they come from
        plan, log = ot.sinkhorn(
            a,
            b,
            cost,
            entropic,
            method="sinkhorn_log",
            numItermax=10_000,
            stopThr=1e-8,
            log=True,
            warn=False,
        )
    if not log["err"][-1] <= 1e-4 * np.linalg.norm(b):  # NaN is no convergence either
        raise RuntimeError(
            f"Sinkhorn did not converge (marginal error {log['err'][-1]:.2g}): "
            f"entropic={entropic} is too small for costs of about {cost.mean():.3g}"
        )
    positive = plan > 0
    divergence = np.sum(plan[positive] * np.log((plan / np.outer(a, b))[positive]))
    return float(np.sum(plan * cost) + entropic * divergence)


def _gaussian(x: _Array) -> tuple[_Array, _Array]:
    """Mean of a class and a root R of its covariance ``R' R``, with no more rows than samples."""
    mean = x.mean(0)
    root = np.linalg.qr((x - mean) / np.sqrt(len(x)), mode="r")
    return mean, np.asarray(root)


def _bures(one: tuple[_Array, _Array], other: tuple[_Array, _Array]) -> float:
    """W_2^2 between Gaussians.

    The trace of ``(S^1/2 T S^1/2)^1/2`` with ``S = R' R`` and ``T = Q' Q`` is the sum of the singular values
    of ``R Q'``, which needs no d x d matrix where a class has fewer samples than features.
    """
    (mean_a, root_a), (mean_b, root_b) = one, other
    cross = np.linalg.svd(root_a @ root_b.T, compute_uv=False).sum()
    spread = np.square(root_a).sum() + np.square(root_b).sum() - 2 * cross
    return float(np.square(mean_a - mean_b).sum() + max(spread, 0.0))
