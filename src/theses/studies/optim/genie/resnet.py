"""ResNet-50 with torchvision's names of parameters, for the paper's own data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from theses.resources import record

__all__ = ["load_resnet50"]

FILE = "resnet50.pth"


class _Block(nn.Module):
    def __init__(self, width: int, inner: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, 4 * inner, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * inner)
        self.downsample: nn.Module | None = None
        if stride != 1 or width != 4 * inner:
            self.downsample = nn.Sequential(
                nn.Conv2d(width, 4 * inner, 1, stride, bias=False), nn.BatchNorm2d(4 * inner)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.bn1(self.conv1(x)))
        out = torch.relu(self.bn2(self.conv2(out)))
        shortcut = x if self.downsample is None else self.downsample(x)
        return torch.relu(self.bn3(self.conv3(out)) + shortcut)


class _ResNet50(nn.Module):
    def __init__(self, n_classes: int, base: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, base, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(base)
        width = base
        for number, (blocks, stride) in enumerate(((3, 1), (4, 2), (6, 2), (3, 2))):
            inner = base * 2**number
            layers: list[nn.Module] = []
            for nth in range(blocks):
                layers.append(_Block(width, inner, stride if nth == 0 else 1))
                width = 4 * inner
            setattr(self, f"layer{number + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        out = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for number in range(4):
            out = getattr(self, f"layer{number + 1}")(out)
        scores: Tensor = self.fc(out.mean(dim=(2, 3)))
        return scores


def load_resnet50(folder: Path | None, n_classes: int, seed: int, *, trial: bool) -> nn.Module:
    """ImageNet's ResNet-50 with a new head, batch norm frozen; in a trial a narrow one without weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _ResNet50(n_classes, 4 if trial else 64)
    if not trial:
        path = Path(folder or ".") / FILE
        if not path.is_file():
            raise ValueError(
                f"data_folder must hold {FILE}, torchvision's ImageNet weights; {path} is missing"
            )
        record(path)
        weights: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        head = model.state_dict()
        model.load_state_dict({**weights, "fc.weight": head["fc.weight"], "fc.bias": head["fc.bias"]})
    return model.eval()
