"""C4: transfer and augmentation with a small convolutional network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from theses.evidence import Context
from theses.studies.data.dataset_distance.correlation import fitted, spearman
from theses.studies.data.dataset_distance.images import (
    MNIST_SD,
    Pixels,
    mnist_features,
    moved,
    resized,
    split,
)
from theses.studies.data.dataset_distance.sizes import Size

if TYPE_CHECKING:
    import torch

__all__ = ["augmentation", "transfer"]


def _network(generator: torch.Generator, n_classes: int) -> list[torch.Tensor]:
    """Parameters of a small network: 5 x 5 convolutions of stride 2 to 8 and 16 channels, a linear layer."""
    import torch

    shapes = [(8, 1, 5, 5), (8,), (16, 8, 5, 5), (16,), (n_classes, 256), (n_classes,)]
    parameters = []
    for shape in shapes:
        spread = math.sqrt(2 / math.prod(shape[1:])) if len(shape) > 1 else 0.0
        parameters.append((torch.randn(shape, generator=generator) * spread).requires_grad_())
    return parameters


def _logits(parameters: Sequence[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    w1, b1, w2, b2, w3, b3 = parameters
    x = functional.conv2d(x, w1, b1, stride=2).relu()
    x = functional.conv2d(x, w2, b2, stride=2).relu()
    return functional.linear(x.flatten(1), w3, b3)


def _tensors(pixels: Pixels) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    x, y = mnist_features(pixels)
    return torch.from_numpy(x).view(-1, 1, 28, 28), torch.from_numpy(y)


def _train(parameters: list[torch.Tensor], pixels: Pixels, epochs: int, generator: torch.Generator) -> None:
    import torch
    from torch.nn import functional

    if not epochs:
        return
    x, y = _tensors(pixels)
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(y), generator=generator), 50):
            optimizer.zero_grad()
            functional.cross_entropy(_logits(parameters, x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def _accuracy(parameters: list[torch.Tensor], pixels: Pixels) -> float:
    import torch

    x, y = _tensors(pixels)
    with torch.no_grad():
        return float((_logits(parameters, x).argmax(1) == y).double().mean())


def transfer(
    ctx: Context, size: Size, mnist: Pixels, others: Mapping[str, Pixels]
) -> tuple[dict[str, Any], pl.DataFrame]:
    """C4a: gap in accuracy after fine-tuning against the distance from source to target."""
    table = pl.concat(
        [_transfer_replicate(ctx, size, mnist, others, r) for r in range(size.transfer_replicates)]
    )
    metrics: dict[str, list[float]] = {"spearman_transfer": [], "spearman_transfer_features": []}
    for (_,), part in table.group_by("replicate", maintain_order=True):
        metrics["spearman_transfer"].append(spearman(part["sotdd"], part["gap"]))
        metrics["spearman_transfer_features"].append(spearman(part["features"], part["gap"]))
    return metrics, table


def _transfer_replicate(
    ctx: Context, size: Size, mnist: Pixels, others: Mapping[str, Pixels], replicate: int
) -> pl.DataFrame:
    rng = ctx.rng(f"transfer {replicate}")
    target, test, full, rest = split(
        rng, mnist, (size.target_n, size.test_n, size.source_n - size.target_n, size.source_n)
    )
    full = np.concatenate([target[0], full[0]]), np.concatenate([target[1], full[1]])
    sources = _sources(rng, rest, size, others)
    n_classes = 1 + max(int(y.max()) for _, y in (*sources.values(), mnist))

    def accuracy(*course: tuple[Pixels, int]) -> float:
        # The same start and the same order of batches for all: sources differ in their images alone.
        generator = ctx.torch_generator(f"transfer {replicate}")
        parameters = _network(generator, n_classes)
        for pixels, epochs in course:
            _train(parameters, pixels, epochs, generator)
        return _accuracy(parameters, test)

    on_source, on_target = size.epochs
    best = accuracy((full, on_target))
    sets = {name: mnist_features(source) for name, source in sources.items()}
    goal = mnist_features(target)
    sotdd = fitted(ctx, size, [goal, *sets.values()])
    features = fitted(ctx, size, [goal, *sets.values()], n_moments=0)
    rows = [
        {
            "replicate": replicate,
            "source": name,
            "sotdd": sotdd.distance(sotdd.embed(sets[name]), sotdd.embed(goal)),
            "features": features.distance(features.embed(sets[name]), features.embed(goal)),
            "gap": best - accuracy((source, on_source), (target, on_target)),
        }
        for name, source in sources.items()
    ]
    return pl.DataFrame(rows)


def _sources(
    rng: np.random.Generator, rest: Pixels, size: Size, others: Mapping[str, Pixels]
) -> dict[str, Pixels]:
    if others:
        return {name: split(rng, pixels, (size.source_n,))[0] for name, pixels in others.items()}
    from sklearn.datasets import load_digits

    images, labels = rest
    small = load_digits()
    chosen = rng.permutation(len(small.target))[: len(labels)]
    return {
        "as they are": rest,
        "rotated 30": (moved(images, degrees=30), labels),
        "rotated 60": (moved(images, degrees=60), labels),
        "rotated 90": (moved(images, degrees=90), labels),
        "inverted": (1 - images, labels),
        "cropped": (moved(images, zoom=1.5), labels),
        "noisy": (images + MNIST_SD * rng.standard_normal(images.shape, dtype=np.float32), labels),
        "8 x 8 digits": (
            resized((small.images[chosen] / 16).astype(np.float32), 28),
            small.target[chosen].astype(np.int64),
        ),
    }


def augmentation(ctx: Context, size: Size, mnist: Pixels) -> tuple[dict[str, Any], pl.DataFrame]:
    """C4b: accuracy of a network trained on an augmented set against the set's distance to test images."""
    rng = ctx.rng("augmentation")
    (images, labels), test = split(rng, mnist, (size.augmented_n, size.test_n))
    n = len(labels)
    augmented = {
        "shift 2 px": moved(images, shift=rng.uniform(-2, 2, (n, 2)).astype(np.float32)),
        "rotation 15": moved(images, degrees=rng.uniform(-15, 15, n).astype(np.float32)),
        "rotation 60": moved(images, degrees=rng.uniform(-60, 60, n).astype(np.float32)),
        "noise 0.5": images + 0.5 * MNIST_SD * rng.standard_normal(images.shape, dtype=np.float32),
        "inversion": 1 - images,
    }
    sets = {name: mnist_features((x, labels)) for name, x in augmented.items()}
    goal = mnist_features(test)
    sotdd = fitted(ctx, size, [goal, *sets.values()])
    features = fitted(ctx, size, [goal, *sets.values()], n_moments=0)
    rows = []
    for name, x in augmented.items():
        generator = ctx.torch_generator("augmentation")
        parameters = _network(generator, 10)
        _train(parameters, (x, labels), size.epochs[1], generator)
        rows.append(
            {
                "augmentation": name,
                "sotdd": sotdd.distance(sotdd.embed(sets[name]), sotdd.embed(goal)),
                "features": features.distance(features.embed(sets[name]), features.embed(goal)),
                "accuracy": _accuracy(parameters, test),
            }
        )
    table = pl.DataFrame(rows)
    return {
        "spearman_augmentation": spearman(table["sotdd"], table["accuracy"]),
        "spearman_augmentation_features": spearman(table["features"], table["accuracy"]),
    }, table
