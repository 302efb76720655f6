"""The distance between two data sets, or between all pairs of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor

from theses.data.dataset_distance.embedding import embed
from theses.data.dataset_distance.projections import iter_projections
from theses.data.dataset_distance.scale import Scale, check_datasets, check_scale, check_se, settle_scale
from theses.data.dataset_distance.sources import as_source, check_same_features
from theses.data.dataset_distance.transport import mean_and_error, wasserstein_pp
from theses.validation import check_integer, check_real

__all__ = ["pairwise_dataset_distances", "sliced_dataset_distance"]


@overload
def sliced_dataset_distance(
    A: Any,
    B: Any,
    *,
    n_projections: int = ...,
    n_moments: int = ...,
    p: float = ...,
    projection: str = ...,
    scale: Scale = ...,
    chunk: int = ...,
    generator: torch.Generator | int | None = ...,
    device: torch.device | str | None = ...,
    return_se: Literal[False] = ...,
) -> float: ...


@overload
def sliced_dataset_distance(
    A: Any,
    B: Any,
    *,
    n_projections: int = ...,
    n_moments: int = ...,
    p: float = ...,
    projection: str = ...,
    scale: Scale = ...,
    chunk: int = ...,
    generator: torch.Generator | int | None = ...,
    device: torch.device | str | None = ...,
    return_se: Literal[True],
) -> tuple[float, float]: ...


def sliced_dataset_distance(
    A: Any,
    B: Any,
    *,
    n_projections: int = 10_000,
    n_moments: int = 5,
    p: float = 2,
    projection: str = "linear",
    scale: Scale = "pooled",
    chunk: int = 1_000,
    generator: torch.Generator | int | None = None,
    device: torch.device | str | None = None,
    return_se: bool = False,
) -> float | tuple[float, float]:
    r"""Sliced optimal transport distance between two labelled data sets (s-OTDD).

    .. math:: \Big( \mathbb{E}_{\theta,\psi,k}\, W_p^p(t_\# A,\, t_\# B) \Big)^{1/p}, \qquad
        t(x, y) = \psi_0 \langle\theta, x\rangle + \sum_{i=1}^M \psi_i
        \operatorname*{mean}_{x' \in \text{class } y} \frac{\langle\theta, x'\rangle^{k_i}}{k_i!}

    with the expectation estimated by ``n_projections`` draws, the same for both data sets.

    Parameters
    ----------
    A, B : (X, y), Bunch, Dataset or DataLoader
        Labelled data sets. ``X`` of shape (n, d) or (n, c, h, w), ``y`` integers of shape (n,): arrays,
        tensors or tables; a scikit-learn ``Bunch``; a torch ``Dataset`` or ``DataLoader`` that yields ``(x,
        y)``. Sizes and label sets may differ. A loader is read twice for each chunk of projections and once
        for the scale; it must give the same samples each time, in any order.
    n_projections : int, default=10_000
        L; the standard error falls as ``1 / sqrt(L)``.
    n_moments : int, default=5
        M; 0 leaves labels out: sliced Wasserstein distance between features.
    p : float, default=2
        Order of the Wasserstein distance, at least 1.
    projection : {"linear", "conv"}, default="linear"
        ``"conv"``: ``theta`` made of random convolutions, for images.
    scale : "pooled", float or None, default="pooled"
        Features are divided by this number. ``"pooled"``: root mean square of all features of A and B
        together, which makes the mean squared projection 1; without it, moments of high order swamp
        everything else. None: features are used as they are.
    chunk : int, default=1_000
        Projections held at once; memory is ``chunk * (n_A + n_B)`` numbers. The result does not depend on it.
    generator : torch.Generator, int or None, default=None
        Source of randomness.
    device : device or None, default=None
        Where to compute; None is where the data are.
    return_se : bool, default=False
        Also return the Monte-Carlo standard error.

    Returns
    -------
    float, or (float, float)
        Distance in units of the scale, and its standard error over projections (delta method).

    Raises
    ------
    ValueError
        If a data set is empty, not finite or without integer labels, feature shapes differ, a number is out
        of range, or the scale is 0.
    TypeError
        If a data set is none of the forms above.

    Notes
    -----
    O(L (n d + n log n)), whatever the number of classes.

    References
    ----------
    arXiv 2501.18901, Section 3. The scale and the standard error are additions.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> A, B = (X[::2], y[::2]), (X[1::2], y[1::2])
    >>> mislabelled = (X[1::2], np.sort(y[1::2]))
    >>> near = sliced_dataset_distance(A, B, n_projections=200, generator=0)
    >>> far = sliced_dataset_distance(A, mislabelled, n_projections=200, generator=0)
    >>> near < far
    True
    """
    distances, errors = _distances(
        {"A": A, "B": B},
        n_projections=n_projections,
        n_moments=n_moments,
        p=p,
        projection=projection,
        scale=scale,
        chunk=chunk,
        generator=generator,
        device=device,
        return_se=return_se,
    )
    distance, error = float(distances[0, 1]), float(errors[0, 1])
    return (distance, error) if return_se else distance


@overload
def pairwise_dataset_distances(
    datasets: Sequence[Any],
    *,
    n_projections: int = ...,
    n_moments: int = ...,
    p: float = ...,
    projection: str = ...,
    scale: Scale = ...,
    chunk: int = ...,
    generator: torch.Generator | int | None = ...,
    device: torch.device | str | None = ...,
    return_se: Literal[False] = ...,
) -> Tensor: ...


@overload
def pairwise_dataset_distances(
    datasets: Sequence[Any],
    *,
    n_projections: int = ...,
    n_moments: int = ...,
    p: float = ...,
    projection: str = ...,
    scale: Scale = ...,
    chunk: int = ...,
    generator: torch.Generator | int | None = ...,
    device: torch.device | str | None = ...,
    return_se: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def pairwise_dataset_distances(
    datasets: Sequence[Any],
    *,
    n_projections: int = 10_000,
    n_moments: int = 5,
    p: float = 2,
    projection: str = "linear",
    scale: Scale = "pooled",
    chunk: int = 1_000,
    generator: torch.Generator | int | None = None,
    device: torch.device | str | None = None,
    return_se: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Distances (s-OTDD) between all pairs of several data sets: the same projections, one scale for all.

    Each data set is projected and sorted once; for one fixed set of projections the matrix is a
    pseudo-metric.

    Parameters
    ----------
    datasets : sequence of data sets
        k data sets, each in a form that :func:`sliced_dataset_distance` takes.
    n_projections : int, default=10_000
        L.
    n_moments : int, default=5
        M.
    p : float, default=2
        Order of the Wasserstein distance.
    projection : {"linear", "conv"}, default="linear"
        Kind of data projection.
    scale : "pooled", float or None, default="pooled"
        What features are divided by; ``"pooled"`` pools all k data sets.
    chunk : int, default=1_000
        Projections held at once; memory is ``chunk`` numbers for each sample of all data sets.
    generator : torch.Generator, int or None, default=None
        Source of randomness.
    device : device or None, default=None
        Where to compute.
    return_se : bool, default=False
        Also return standard errors.

    Returns
    -------
    Tensor of float64, shape (k, k), or two of them
        Distances, in units of the common scale, and their standard errors with ``return_se``.

    Raises
    ------
    ValueError, TypeError
        As there; also if ``datasets`` is empty.

    Notes
    -----
    k embeddings of O(L (n d + n log n)) and k (k - 1) / 2 comparisons of O(L n).

    References
    ----------
    arXiv 2501.18901, Section 3.

    Examples
    --------
    >>> import torch
    >>> X, y = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 2
    >>> near_to_far = [(X, y), (X + 1, y), (X + 3, y)]
    >>> pairwise_dataset_distances(near_to_far, n_projections=100, generator=0).argsort(1)
    tensor([[0, 1, 2],
            [1, 0, 2],
            [2, 1, 0]])
    """
    check_datasets(datasets)
    distances, errors = _distances(
        {f"datasets[{i}]": data for i, data in enumerate(datasets)},
        n_projections=n_projections,
        n_moments=n_moments,
        p=p,
        projection=projection,
        scale=scale,
        chunk=chunk,
        generator=generator,
        device=device,
        return_se=return_se,
    )
    return (distances, errors) if return_se else distances


def _distances(
    datasets: dict[str, Any],
    *,
    n_projections: int,
    n_moments: int,
    p: float,
    projection: str,
    scale: Scale,
    chunk: int,
    generator: torch.Generator | int | None,
    device: torch.device | str | None,
    return_se: bool,
) -> tuple[Tensor, Tensor]:
    p = check_real("p", p, minimum=1)
    chunk = check_integer("chunk", chunk, minimum=1)
    check_se(return_se, check_integer("n_projections", n_projections, minimum=1))
    sources = [as_source(name, data, device) for name, data in datasets.items()]
    shape = check_same_features(sources)
    divisor = settle_scale(check_scale(scale), sources)
    pairs = torch.combinations(torch.arange(len(sources))).tolist()
    # A lone data set has no pair, and an empty block of costs.
    costs = [torch.zeros(len(pairs), 0, dtype=torch.float64)]
    for drawn in iter_projections(shape, n_projections, n_moments, projection, chunk, generator):
        # The same projections for all data sets, and each is projected and sorted once.
        rows = [embed(source, drawn, divisor)[0] for source in sources]
        blocks = [wasserstein_pp(rows[i], rows[j], p) for i, j in pairs]
        costs.append(torch.stack(blocks) if blocks else costs[0])
    distances = torch.zeros(len(sources), len(sources), dtype=torch.float64)
    errors = torch.zeros_like(distances)
    for (i, j), cost in zip(pairs, torch.cat(costs, dim=1), strict=True):
        distance, error = mean_and_error(cost, p)
        distances[i, j] = distances[j, i] = distance
        errors[i, j] = errors[j, i] = error
    return distances, errors
