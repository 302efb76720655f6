"""C1: correlation of s-OTDD, and of what else measures distance, with exact OTDD."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from theses.evidence import Context
from theses.studies.data.dataset_distance.images import (
    Features,
    Floats,
    Pixels,
    mnist_features,
    moved,
    stratified,
    take,
    whitened,
)
from theses.studies.data.dataset_distance.sizes import Size

if TYPE_CHECKING:
    from theses.data.dataset_distance import SlicedDatasetDistance

__all__ = ["FAMILIES", "fitted", "graded", "random_pairs", "spearman"]

FAMILIES = ("classes", "rotation", "noise", "labels", "merge")
_STEPS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_BASELINES = ("features", "gaussian", "mmd", "frechet")

_Pair = tuple[Pixels, Pixels]


def fitted(ctx: Context, size: Size, sets: Sequence[Features], n_moments: int = 5) -> SlicedDatasetDistance:
    """The unit's one set of projections, with a scale pooled over all sets compared."""
    from theses.data.dataset_distance import SlicedDatasetDistance

    generator = ctx.torch_generator("projections")
    return SlicedDatasetDistance(size.n_projections, n_moments, generator=generator, device=ctx.device).fit(
        list(sets)
    )


def random_pairs(ctx: Context, size: Size, mnist: Pixels) -> tuple[dict[str, Any], pl.DataFrame]:
    """C1a: pairs of disjoint draws of random size; each replicate has pairs of its own."""
    table = pl.concat([_random_replicate(ctx, size, mnist, r) for r in range(size.random_replicates)])
    metrics: dict[str, list[float]] = {}
    for (_,), part in table.group_by("replicate", maintain_order=True):
        for suffix, column in (("", "sotdd"), ("_features", "features")):
            for name, correlation in (("spearman", spearman), ("pearson", pearson)):
                value = correlation(part[column], part["otdd"])
                metrics.setdefault(f"{name}_random{suffix}", []).append(value)
    return metrics, table


def _random_replicate(ctx: Context, size: Size, mnist: Pixels, replicate: int) -> pl.DataFrame:
    from theses.data.dataset_distance import otdd

    rng = ctx.rng(f"random pairs {replicate}")
    low, high = size.random_n
    pairs = []
    for _ in range(size.random_pairs):
        n = int(rng.integers(low, min(high, len(mnist[1]) // 2) + 1))
        rows = rng.permutation(len(mnist[1]))[: 2 * n]
        pairs.append((mnist_features(take(mnist, rows[:n])), mnist_features(take(mnist, rows[n:]))))
    sets = [data for pair in pairs for data in pair]
    return pl.DataFrame(
        {
            "replicate": [replicate] * len(pairs),
            "n": [len(A[1]) for A, _ in pairs],
            "otdd": [otdd(A, B) for A, B in pairs],
            "sotdd": _distances(fitted(ctx, size, sets), pairs),
            "features": _distances(fitted(ctx, size, sets, n_moments=0), pairs),
        }
    )


def _distances(sotdd: SlicedDatasetDistance, pairs: Sequence[tuple[Features, Features]]) -> list[float]:
    return [sotdd.distance(sotdd.embed(A), sotdd.embed(B)) for A, B in pairs]


def _graded_pairs(rng: np.random.Generator, domain: Pixels, family: str, n: int) -> list[_Pair]:
    """A reference draw and six fresh draws, each changed more than the one before."""
    images, labels = domain
    n_classes = int(labels.max()) + 1
    equal = np.ones(n_classes)
    free = np.ones(len(labels), dtype=bool)
    reference = stratified(rng, labels, free, n, equal)
    free[reference] = False
    # Disjoint from each other too, where the domain is large enough.
    all_disjoint = (len(_STEPS) + 1) * n <= len(labels)
    pairs = []
    for g in _STEPS:
        weights = equal.copy()
        if family == "classes":
            weights[: n_classes // 2] -= 0.9 * g
            weights[n_classes // 2 :] += 0.9 * g
        rows = stratified(rng, labels, free, n, weights)
        if all_disjoint:
            free[rows] = False
        changed, classes = images[rows], labels[rows]
        if family == "rotation":
            changed = moved(changed, degrees=90 * g)
        elif family == "labels":
            some = rng.permutation(n)[: round(g * n)]
            classes[some] = classes[rng.permutation(some)]
        elif family == "merge":
            classes = np.where(classes <= round((n_classes - 1) * g), 0, classes)
        pairs.append(((images[reference], labels[reference]), (changed, classes)))
    return pairs


def graded(ctx: Context, size: Size, name: str, domain: Pixels) -> tuple[dict[str, Any], pl.DataFrame]:
    """C1b to C1d: five families of graded changes; the reference is the same for all steps of a family."""
    import ot

    from theses.data.dataset_distance import otdd

    rng = ctx.rng(f"graded {name}")
    as_features = mnist_features if name == "mnist" else whitened(domain)
    n = min(size.graded_n, len(domain[1]) // 3)
    sets: list[tuple[str, float, Features, Features]] = []
    for family in FAMILIES:
        for g, (reference, changed) in zip(_STEPS, _graded_pairs(rng, domain, family, n), strict=True):
            A, (x, y) = as_features(reference), as_features(changed)
            if family == "noise":
                x = x + rng.normal(0, g, x.shape).astype(np.float32)
            sets.append((family, g, A, (x, y)))
    pairs = [(A, B) for _, _, A, B in sets]
    sotdd = fitted(ctx, size, [data for pair in pairs for data in pair])
    if name == "mnist":
        theta = np.ascontiguousarray(sotdd.projections_.theta.numpy().T)
        features = [float(ot.sliced_wasserstein_distance(A[0], B[0], projections=theta)) for A, B in pairs]
    else:  # the same number, several times as fast
        features = _distances(fitted(ctx, size, [data for pair in pairs for data in pair], 0), pairs)
    rows = []
    for (family, g, A, B), distance, without in zip(sets, _distances(sotdd, pairs), features, strict=True):
        row = {
            "domain": name,
            "family": family,
            "g": g,
            "otdd": otdd(A, B),
            "sotdd": distance,
            "features": without,
        }
        if name == "mnist":
            row["gaussian"] = otdd(A, B, label_distance="gaussian")
            row["mmd"] = _mmd(A[0], B[0])
            row["frechet"] = _frechet(A[0], B[0])
        rows.append(row)
    table = pl.DataFrame(rows)
    if name != "mnist":
        metrics = {
            f"spearman_digits{suffix}": spearman(table[column], table["otdd"])
            for suffix, column in (("", "sotdd"), ("_features", "features"))
        }
        return metrics, table
    metrics = {"spearman_graded": spearman(table["sotdd"], table["otdd"])}
    for baseline in _BASELINES:
        metrics[f"spearman_graded_{baseline}"] = spearman(table[baseline], table["otdd"])
    for family in FAMILIES:
        part = table.filter(pl.col("family") == family)
        metrics[f"spearman_{family}"] = spearman(part["sotdd"], part["otdd"])
        metrics[f"spearman_{family}_features"] = spearman(part["features"], part["otdd"])
    return metrics, table


def _mmd(x: Floats, z: Floats) -> float:
    """Maximum mean discrepancy under a Gaussian kernel whose bandwidth is the median distance."""
    import ot

    both = np.concatenate([x, z])
    squared = ot.dist(both, both, metric="sqeuclidean")
    kernel = np.exp(-squared / np.median(squared[squared > 0]))
    n = len(x)
    return math.sqrt(max(kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean(), 0.0))


def _frechet(x: Floats, z: Floats) -> float:
    """Squared Wasserstein distance between the Gaussians of equal mean and covariance."""
    one, other = x - x.mean(0), z - z.mean(0)
    spread = np.square(one).sum() / len(x) + np.square(other).sum() / len(z)
    cross = np.linalg.svd(one @ other.T, compute_uv=False).sum() / math.sqrt(len(x) * len(z))
    return float(np.square(x.mean(0) - z.mean(0)).sum() + spread - 2 * cross)


def spearman(a: Sequence[float] | pl.Series, b: Sequence[float] | pl.Series) -> float:
    from scipy.stats import rankdata

    return pearson(rankdata(np.asarray(a)), rankdata(np.asarray(b)))


def pearson(a: Any, b: Any) -> float:
    a, b = np.asarray(a, float), np.asarray(b, float)
    if a.std() == 0 or b.std() == 0:
        return 0.0  # what does not vary orders nothing
    return float(np.corrcoef(a, b)[0, 1])
