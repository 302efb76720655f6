"""Data sets of several domains, with the network that each is learnt by."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from theses.evidence import Context
from theses.models.mobilenet import IMAGENET_MEAN, IMAGENET_STD, MobileNetV2, load_mobilenet_v2
from theses.problems.domains import (
    DOMAINBED,
    Domains,
    Split,
    load_domainbed,
    photographed_digits,
    rotated_digits,
    styled_digits,
    tinted_digits,
)
from theses.studies.optim.genie.resnet import load_resnet50
from theses.studies.optim.genie.sizes import Size
from theses.training import fit

__all__ = ["Task", "accuracy", "batch_of", "digits_network", "make_task", "mobilenet", "seeded"]

_FROZEN: Final = 14  # stages of MobileNetV2 that are not trained
_AT_ONCE: Final = 200
# The unseen domains of the tuning seed.
_TUNING: Final = {"rotated": (5,), "tinted": (2,), "styled": (3,), "photographed": (1,)}


@dataclass
class Task:
    """Images in domains, which of them are not seen, and how a network comes about."""

    name: str
    domains: Domains
    split: Split
    make: Callable[[], nn.Module]
    steps: int
    every: int
    start: dict[str, Tensor] | None = None  # weights to go on from


def make_task(ctx: Context, size: Size, name: str) -> Task:
    """Data and network of a unit; the domains that are held out follow from its seed."""
    rng = ctx.rng(f"{name}/data")
    seed = ctx.integer(f"{name}/weights")
    steps, every = size.steps, size.every
    start: dict[str, Tensor] | None = None
    make: Callable[[], nn.Module]
    if name == "rotated":
        domains = rotated_digits(random_state=rng)
        held_out: Sequence[int] = (ctx.seed % 6, (ctx.seed + 3) % 6)
        make = partial(digits_network, 1, 10, seed)
    elif name == "tinted":
        domains = tinted_digits(random_state=rng)
        held_out = (2,)
        make = partial(digits_network, 2, 2, seed)
    elif name == "styled":
        pretraining, domains = styled_digits(size.copies, random_state=rng)
        held_out = (ctx.seed % 4,)
        start = _pretrain(ctx, size, pretraining, seed).state_dict()
        make = partial(digits_network, 1, 10, seed)
    elif name == "photographed":
        domains = _trunk(photographed_digits(size.n_photographed, size.pixels, rng))
        held_out = (ctx.seed % 4,)
        make = partial(_tail, seed)
        steps = size.steps_photographed
    else:
        pixels = 224 if ctx.limit is None else 32
        domains = load_domainbed(ctx.data_folder, name, pixels, ctx.limit)
        held_out = (ctx.seed % len(domains.names),)
        n_classes = int(domains.labels.max()) + 1
        make = partial(load_resnet50, ctx.data_folder, n_classes, seed, trial=ctx.limit is not None)
        steps, every = size.steps_domainbed, size.every_domainbed
        if name == "domain_net":
            steps *= 3
    if name not in DOMAINBED and size.n_digits is not None and name != "photographed":
        keep = ctx.rng(f"{name}/kept").permutation(len(domains))[: size.n_digits]
        domains = Domains(domains.names, domains.images[keep], domains.labels[keep], domains.domain[keep])
    if ctx.seed == 100:
        held_out = _TUNING.get(name, held_out)
    split = domains.split(held_out, 0.2, ctx.rng(f"{name}/split"))
    return Task(name, domains, split, make, steps, every, start)


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Network whose weights follow from a seed; torch's global generator stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def digits_network(channels: int, n_classes: int, seed: int) -> nn.Module:
    """Two convolutions and two linear layers for images of 8 x 8 pixels, about 22 thousand parameters."""
    return seeded(
        lambda: nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 128),
            nn.ReLU(),
            nn.Linear(128, n_classes),
        ),
        seed,
    )


def batch_of(domains: Domains, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Images and labels of some rows."""
    return torch.from_numpy(domains.images[rows]), torch.from_numpy(domains.labels[rows])


@torch.no_grad()
def accuracy(model: nn.Module, domains: Domains, rows: NDArray[np.int64]) -> tuple[float, float]:
    """Share of right answers and mean cross-entropy, in evaluation mode as the caller has set it."""
    right, loss = 0, 0.0
    for start in range(0, len(rows), _AT_ONCE):
        images, labels = batch_of(domains, rows[start : start + _AT_ONCE])
        scores = model(images)
        right += int((scores.argmax(dim=1) == labels).sum())
        loss += float(nn.functional.cross_entropy(scores, labels, reduction="sum"))
    return right / len(rows), loss / len(rows)


def _pretrain(ctx: Context, size: Size, domains: Domains, seed: int) -> nn.Module:
    """The small network after some hundred steps of Adam on upright digits."""
    model = digits_network(1, 10, seed)
    rows = ctx.rng("styled/pretraining").integers(len(domains), size=(size.steps, 32))
    fit(
        model,
        torch.optim.Adam(model.parameters(), lr=1e-3),
        lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        lambda step: batch_of(domains, rows[step]),
        steps=size.steps,
    )
    return model


@cache
def mobilenet() -> MobileNetV2:
    """The network with ImageNet's weights; copies of it are trained."""
    return load_mobilenet_v2()


@torch.no_grad()
def _trunk(domains: Domains) -> Domains:
    """What the frozen stages make of the images, computed once."""
    frozen = mobilenet().features[:_FROZEN]
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    outputs = [
        frozen((torch.from_numpy(domains.images[start : start + 50]) - mean) / std).numpy()
        for start in range(0, len(domains), 50)
    ]
    return Domains(domains.names, np.concatenate(outputs), domains.labels, domains.domain)


def _tail(seed: int) -> nn.Module:
    """The stages that are trained, with a new head; batch norm keeps its statistics."""
    stages: list[Any] = [copy.deepcopy(stage) for stage in list(mobilenet().features)[_FROZEN:]]
    head = seeded(lambda: nn.Linear(1280, 10), seed)
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head).eval()
