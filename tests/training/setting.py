"""A small training run in all its variants, and the process that is killed in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from theses.training import History, fit

STEPS = 12
Builder = Callable[[Any], Any]


class InterruptionError(Exception):
    """Ends a run from within ``batches``."""


class Tied(nn.Module):
    """One matrix in both layers, batch statistics, dropout, a buffer that no state dict has, a counter."""

    seen: Tensor

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.encode = nn.Linear(6, 6, dtype=dtype)
        self.decode = nn.Linear(6, 6, dtype=dtype)
        self.decode.weight = self.encode.weight
        self.norm = nn.BatchNorm1d(6, dtype=dtype)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64), persistent=False)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += len(x)
            self.calls += 1
        hidden = nn.functional.dropout(torch.tanh(self.encode(x)), 0.2, self.training)
        return self.decode(self.norm(hidden))

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.calls = state["calls"]


@dataclass
class Setting:
    """How to build a run, and how to run it."""

    optimizer: Builder
    schedule: Builder | None = None
    dtype: torch.dtype = torch.float32
    model: Callable[[torch.dtype], nn.Module] = Tied

    def build(self) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
        with torch.random.fork_rng():
            torch.manual_seed(5)
            model = self.model(self.dtype)
        optimizer = self.optimizer(model)
        return model, optimizer, None if self.schedule is None else self.schedule(optimizer)

    def batch(self, step: int) -> Tensor:
        return torch.randn(8, 6, generator=torch.Generator().manual_seed(100 + step)).to(self.dtype)

    def run(
        self, folder: Path | None = None, *, stop: int | None = None, every: int = 1, **options: Any
    ) -> tuple[nn.Module, torch.optim.Optimizer, History]:
        def batches(step: int) -> Tensor:
            if step == stop:
                raise InterruptionError
            return self.batch(step)

        model, optimizer, schedule = self.build()
        arguments: dict[str, Any] = {
            "steps": STEPS,
            "schedule": schedule,
            "clip_norm": 1.0,
            "evaluate": self.evaluate,
            "evaluate_every": 5,
            "checkpoint": folder,
            "checkpoint_every": every,
            **options,
        }
        return model, optimizer, fit(model, optimizer, loss, batches, **arguments)

    def evaluate(self, model: nn.Module) -> float:
        return float(loss(model, self.batch(-1)))


def loss(model: nn.Module, batch: Tensor) -> Tensor:
    return (model(batch) - batch.flip(1)).square().mean()


def groups(model: nn.Module) -> list[dict[str, Any]]:
    named = list(model.named_parameters())
    return [
        {"params": [p for name, p in named if "weight" in name], "weight_decay": 0.1},
        {"params": [p for name, p in named if "weight" not in name], "lr": 0.003},
    ]


def named_groups(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return list(model.named_parameters())


OPTIMIZERS: dict[str, Builder] = {
    "AdamW": lambda model: torch.optim.AdamW(groups(model), lr=0.01),
    "AdamW, named": lambda model: torch.optim.AdamW(named_groups(model), lr=0.01, amsgrad=True),
    "AdamW, tensor rate": lambda model: torch.optim.AdamW(
        model.parameters(), lr=torch.tensor(0.01), capturable=False
    ),
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    "SGD, momentum": lambda model: torch.optim.SGD(groups(model), lr=0.1, momentum=0.9, nesterov=True),
    "Rprop": lambda model: torch.optim.Rprop(model.parameters()),
    "NAdam": lambda model: torch.optim.NAdam(model.parameters()),
    "Adafactor": lambda model: torch.optim.Adafactor(model.parameters()),
}
SCHEDULES: dict[str, Builder] = {
    "CosineAnnealingLR": lambda optimizer: CosineAnnealingLR(optimizer, T_max=STEPS),
    "OneCycleLR": lambda optimizer: OneCycleLR(optimizer, max_lr=0.1, total_steps=STEPS),
    "ReduceLROnPlateau": lambda optimizer: ReduceLROnPlateau(optimizer, patience=0, threshold=0.5),
    "MultiStepLR": lambda optimizer: MultiStepLR(optimizer, [3, 3, 7], gamma=0.5),
    "SequentialLR": lambda optimizer: SequentialLR(
        optimizer, [LinearLR(optimizer, 0.1, total_iters=4), CosineAnnealingLR(optimizer, 8)], [4]
    ),
    "LambdaLR": lambda optimizer: LambdaLR(optimizer, lambda step: 1 / (1 + step)),
}
SETTINGS = {name: Setting(optimizer) for name, optimizer in OPTIMIZERS.items()}
SETTINGS |= {name: Setting(OPTIMIZERS["SGD, momentum"], schedule) for name, schedule in SCHEDULES.items()}
SETTINGS |= {
    "AdamW, OneCycleLR": Setting(OPTIMIZERS["AdamW"], SCHEDULES["OneCycleLR"]),
    "AdamW, float64": Setting(OPTIMIZERS["AdamW"], dtype=torch.float64),
    "AdamW, bfloat16": Setting(OPTIMIZERS["AdamW"], dtype=torch.bfloat16),
}


def train_until_killed(folder: str) -> None:
    """Train in a process of its own, most of whose time goes into writing checkpoints."""
    torch.set_num_threads(1)
    long_setting().run(Path(folder), steps=LONG)


LONG = 200


def long_setting() -> Setting:
    return Setting(OPTIMIZERS["AdamW"], lambda optimizer: OneCycleLR(optimizer, max_lr=0.1, total_steps=LONG))
