"""Image sets of the study, draws from them, and what is done to images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from theses.evidence import Context

__all__ = [
    "MNIST_SD",
    "Features",
    "Floats",
    "Labels",
    "Pixels",
    "image_sets",
    "mnist_features",
    "moved",
    "resized",
    "split",
    "stratified",
    "take",
    "whitened",
]

MNIST_MEAN, MNIST_SD = 0.1307, 0.3081
_NIST = {"FashionMNIST": "FashionMNIST", "KMNIST": "KMNIST", "EMNIST": "EMNIST-letters", "USPS": "USPS"}

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
Pixels = tuple[Floats, Labels]
"""Grey values in [0, 1] of shape (n, h, w) or (n, c, h, w), and classes."""
Features = tuple[Floats, Labels]
"""Flattened features of shape (n, d), and classes."""


def image_sets(ctx: Context) -> tuple[Pixels, Pixels, dict[str, Pixels]]:
    """MNIST, the second domain, and sources of transfer beside MNIST."""
    from theses.datasets.images import load_mnist5k, load_torchvision_folder

    if ctx.preset != "paper":
        from sklearn.datasets import load_digits

        images, labels = load_mnist5k()
        digits = load_digits()
        small = (digits.images / 16).astype(np.float32), digits.target.astype(np.int64)
        return (_unit(images), labels), small, {}
    if ctx.data_folder is None:
        raise ValueError(
            "the paper preset needs data_folder, a folder as torchvision lays it out: MNIST/raw, "
            "FashionMNIST/raw, KMNIST/raw, EMNIST/raw (letters), usps.bz2 and cifar-10-batches-bin"
        )
    first, second = (load_torchvision_folder(ctx.data_folder, name) for name in ("MNIST", "CIFAR10"))
    sources = {}
    for short, name in _NIST.items():
        images, labels = load_torchvision_folder(ctx.data_folder, name)
        sources[short] = resized(_unit(images), 28), labels
    return (_unit(first[0]), first[1]), (_unit(second[0]), second[1]), sources


def _unit(images: NDArray[np.uint8]) -> Floats:
    return np.asarray(np.divide(images, 255, dtype=np.float32))


def mnist_features(pixels: Pixels) -> Features:
    """Pixels as networks for MNIST take them, flattened."""
    images, labels = pixels
    flat = images.reshape(len(images), -1)
    return np.asarray((flat - MNIST_MEAN) / MNIST_SD, dtype=np.float32), labels


def whitened(domain: Pixels) -> Callable[[Pixels], Features]:
    """The second domain's features: standardised by one mean and one deviation of the whole domain."""
    mean, sd = float(domain[0].mean()), float(domain[0].std())
    return lambda pixels: (
        ((pixels[0] - mean) / sd).reshape(len(pixels[0]), -1).astype(np.float32),
        pixels[1],
    )


def take(pixels: Pixels, rows: NDArray[np.int64]) -> Pixels:
    return pixels[0][rows], pixels[1][rows]


def stratified(
    rng: np.random.Generator, labels: Labels, free: NDArray[np.bool_], n: int, weights: NDArray[np.float64]
) -> NDArray[np.int64]:
    """``n`` free rows, classes in proportion to weights."""
    share = n * weights / weights.sum()
    counts = np.floor(share).astype(int)
    counts[np.argsort(counts - share, kind="stable")[: n - counts.sum()]] += 1
    rows = [
        rng.choice(np.flatnonzero(free & (labels == c)), count, replace=False)
        for c, count in enumerate(counts)
    ]
    return rng.permutation(np.concatenate(rows))


def moved(
    images: Floats, degrees: float | Floats = 0.0, zoom: float = 1.0, shift: Floats | None = None
) -> Floats:
    """Images rotated about their centre, enlarged, and shifted by pixels; what comes in is black."""
    import torch
    from torch.nn import functional

    n, side = len(images), images.shape[-1]
    angle = torch.deg2rad(torch.as_tensor(np.broadcast_to(np.float32(degrees), n).copy()))
    matrix = torch.zeros(n, 2, 3)
    matrix[:, 0, 0] = matrix[:, 1, 1] = angle.cos() / zoom
    matrix[:, 0, 1] = angle.sin() / zoom
    matrix[:, 1, 0] = -angle.sin() / zoom
    if shift is not None:
        matrix[:, :, 2] = torch.from_numpy(shift) * 2 / side
    pixels = torch.from_numpy(images).view(n, -1, side, side)
    grid = functional.affine_grid(matrix, list(pixels.shape), align_corners=False)
    sampled = functional.grid_sample(pixels, grid, padding_mode="zeros", align_corners=False)
    return np.asarray(sampled.view(images.shape).numpy(), dtype=np.float32)


def resized(images: Floats, side: int) -> Floats:
    import torch
    from torch.nn import functional

    pixels = torch.from_numpy(np.ascontiguousarray(images))[:, None]
    larger = functional.interpolate(pixels, size=(side, side), mode="bilinear", align_corners=False)
    return np.asarray(larger[:, 0].numpy(), dtype=np.float32)


def split(rng: np.random.Generator, pixels: Pixels, sizes: Sequence[int]) -> list[Pixels]:
    """Disjoint draws; in proportion to their sizes if there are not enough samples."""
    n = len(pixels[1])
    shrink = min(1.0, n / sum(sizes))
    ends = np.cumsum([max(1, int(size * shrink)) for size in sizes])
    rows = rng.permutation(n)
    return [take(pixels, part) for part in np.split(rows[: ends[-1]], ends[:-1])]
