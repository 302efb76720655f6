from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from theses.numerics.gradient_statistics import GradientStatistics, gini, gradient_statistics

POSITIVE = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30)


class Dot(nn.Module):
    """Its loss on a batch x has the gradient x."""

    def __init__(self, n, dtype=torch.float32):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n, dtype=dtype))

    def forward(self, x):
        return (self.weight * x).sum()


def dot_loss(model, x):
    return model(x)


def test_moments_are_those_of_numpy():
    draws = np.random.default_rng(0).normal(1e4, 1e-2, size=(50, 6))
    found = gradient_statistics(Dot(6, torch.float64), dot_loss, list(torch.from_numpy(draws)))
    np.testing.assert_allclose(found.mean["weight"], draws.mean(0), rtol=1e-12)
    # Sums of squares would have lost this variance in rounding.
    np.testing.assert_allclose(found.variance["weight"], draws.var(0, ddof=1), rtol=1e-6)
    assert found.n == 50


def test_squared_mean_is_without_bias():
    rng = np.random.default_rng(1)
    batches = torch.from_numpy(rng.normal(0.3, 1.0, size=(4, 200_000)))
    found = gradient_statistics(Dot(200_000, torch.float64), dot_loss, list(batches))
    raw = found.mean["weight"].square() - found.variance["weight"] / 4
    assert raw.mean() == pytest.approx(0.09, abs=0.005)
    assert found.mean["weight"].square().mean() == pytest.approx(0.09 + 0.25, abs=0.01)
    assert torch.equal(found.squared_mean()["weight"], raw.clamp_min(0))


def test_model_stays_as_it_is():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    model[0].bias.requires_grad_(False)
    model[1].eval()
    model[0].weight.grad = torch.ones(4, 3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    x = torch.ones(5, 3)
    with torch.no_grad():
        found = gradient_statistics(model, lambda m, s: m(s * x).sum(), [1.0, 2.0, 3.0])
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert [module.training for module in model] == [True, False, True, True]
    assert torch.equal(model[0].weight.grad, torch.ones(4, 3)) and model[3].weight.grad is None
    assert "0.bias" not in found.mean and found.mean["3.weight"].shape == (1, 4)


def test_parameters_out_of_reach_have_gradient_zero():
    model = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)])
    found = gradient_statistics(model, lambda m, x: m[0](x).sum(), [torch.ones(1, 1), torch.zeros(1, 1)])
    assert found.mean["1.weight"] == 0 and found.variance["0.weight"] == 0.5


def test_half_precision_is_summed_in_single():
    found = gradient_statistics(
        Dot(2, torch.bfloat16), dot_loss, [torch.full((2,), 1e-3), torch.full((2,), 2e-3)]
    )
    assert found.variance["weight"].dtype == torch.float32
    assert float(found.variance["weight"][0]) == pytest.approx(0.5e-6, rel=0.02)


def test_tables_and_summary():
    found = GradientStatistics({"w": torch.tensor([3.0, 4.0])}, {"w": torch.tensor([4.0, 5.0])}, n=4)
    assert found.summary() == "2 entries over 4 batches: norm of the mean 5, noise 3"
    assert found.to_frame().rows() == [("w", 2, 8.0 + 14.75, 9.0)]
    assert found.to_dict() == {"mean": {"w": [3.0, 4.0]}, "variance": {"w": [4.0, 5.0]}, "n": 4}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: (Dot(2), dot_loss, [torch.ones(2)]), "batches must hold at least 2"),
        (lambda: (Dot(2), dot_loss, []), "batches must hold at least 2 batches, got 0"),
        (lambda: (nn.ReLU(), dot_loss, []), "model must have trainable parameters"),
        (lambda: (Dot(2), lambda m, x: m.weight * x, [torch.ones(2)] * 2), "loss_fn must return one element"),
        (lambda: (Dot(2), lambda m, x: m(x) + math.nan, [torch.ones(2)] * 2), "loss_fn must return a finite"),
        (
            lambda: (Dot(2), lambda m, x: m.weight.sqrt().sum(), [torch.ones(2)] * 2),
            "batches must give finite gradients, got NaN or infinity in 'weight'",
        ),
    ],
)
def test_bad_input_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        gradient_statistics(*make())


def test_a_loss_without_gradient_is_refused():
    with pytest.raises(TypeError, match="loss_fn must return a tensor that depends"):
        gradient_statistics(Dot(2), lambda m, x: 1.0, [1, 2])  # type: ignore[arg-type, return-value]


@given(POSITIVE)
def test_gini_is_the_mean_difference(values):
    x = np.array(values)
    expected = np.abs(x[:, None] - x).mean() / (2 * x.mean())
    assert gini(x) == pytest.approx(expected, abs=1e-9)


@given(POSITIVE, st.floats(1e-3, 1e3), st.integers(1, 4))
def test_gini_knows_neither_scale_nor_copies(values, scale, copies):
    assert gini(scale * np.tile(values, copies)) == pytest.approx(gini(values), abs=1e-9)


@pytest.mark.parametrize("values", [[], [-1.0, 2.0], [0.0, 0.0], [math.nan, 1.0], [[1.0]], [math.inf, 1.0]])
def test_gini_refuses_what_is_no_share(values):
    with pytest.raises(ValueError, match="values"):
        gini(values)


def test_gini_does_not_overflow():
    assert gini([1e308, 1e308, 0.0]) == pytest.approx(1 / 3)
