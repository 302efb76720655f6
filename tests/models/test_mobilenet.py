from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_images
from torch.nn import functional as F  # noqa: N812

from theses.models.mobilenet import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    MOBILENET_V2,
    MobileNetV2,
    load_mobilenet_v2,
)
from theses.resources import find


@pytest.fixture(scope="module")
def weights():
    return torch.load(find(MOBILENET_V2), weights_only=True)


def test_names_and_shapes_are_torchvisions(weights):
    ours = MobileNetV2().state_dict()
    assert {name: value.shape for name, value in ours.items()} == {
        name: value.shape for name, value in weights.items()
    }


def by_hand(weights, x):
    """The network as a loop over the table of the paper, straight from the weights."""

    def layer(x, conv, norm, stride=1, groups=1, active=True):
        kernel = weights[f"{conv}.weight"]
        x = F.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2, groups=groups)
        mean, var, scale, shift = (
            weights[f"{norm}.{key}"].view(-1, 1, 1)
            for key in ("running_mean", "running_var", "weight", "bias")
        )
        x = (x - mean) / torch.sqrt(var + 1e-5) * scale + shift
        return x.clamp(0, 6) if active else x

    x = layer(x, "features.0.0", "features.0.1", 2)
    strides = [1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1]
    for nth, stride in enumerate(strides, start=1):
        at, out, place = f"features.{nth}.conv", x, 0
        if nth > 1:
            out, place = layer(out, f"{at}.0.0", f"{at}.0.1"), 1
        out = layer(out, f"{at}.{place}.0", f"{at}.{place}.1", stride, out.shape[1])
        out = layer(out, f"{at}.{place + 1}", f"{at}.{place + 2}", active=False)
        x = x + out if x.shape == out.shape else out
    x = layer(x, "features.18.0", "features.18.1").mean((2, 3))
    return x @ weights["classifier.1.weight"].T + weights["classifier.1.bias"]


def test_forward_pass_is_that_of_the_paper(weights):
    model = load_mobilenet_v2()
    assert not any(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(model(x), by_hand(weights, x), rtol=1e-3, atol=1e-3)


def test_it_sees_a_palace():
    china = torch.from_numpy(np.array(load_sample_images().images[0])).permute(2, 0, 1)[None] / 255
    x = F.interpolate(china, (224, 336), mode="bilinear", antialias=True)[..., 56:280]
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    with torch.no_grad():
        scores = load_mobilenet_v2()((x - mean) / std)
    assert int(scores.argmax()) == 698  # "palace"; the photograph is of the Summer Palace


def test_loading_draws_nothing():
    state = torch.get_rng_state()
    load_mobilenet_v2()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("settings", "words"), [({"n_classes": 0}, "n_classes"), ({"dropout": 1.5}, "dropout must be at most 1")]
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        MobileNetV2(**settings)
