from __future__ import annotations

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.conformance.contract import Call, OptimizerCase
from theses.catalogue import lookup
from theses.catalogue.card import Bound
from theses.evidence import Context
from theses.numerics.gradient_statistics import gradient_statistics
from theses.optim.genie import GENIE, OSGRResult, one_step_ratio, optimizer, osgr
from theses.studies.optim import genie as study

SLUG = "genie"
CHUNK = optimizer._ON_CPU


class Dot(nn.Module):
    """Its loss on a batch x has the gradient x."""

    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n, dtype=torch.float64))

    def forward(self, x):
        return (self.weight * x).sum()


def dot_loss(model, x):
    return model(x)


def calls() -> list[Call]:
    def make():
        layer = nn.Linear(2, 1)
        batches = [torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, -1.0]])]
        arguments = {
            "model": layer,
            "loss_fn": lambda model, x: model(x).sum(),
            "batches": batches,
            "preconditioner": [torch.ones(1, 2), torch.ones(1)],
        }
        return osgr, arguments

    return [Call("osgr", make, ("preconditioner.0", "preconditioner.1"), paired=("preconditioner.0",))]


def seeded(params, **settings_):
    return GENIE(params, generator=torch.Generator().manual_seed(0), **settings_)


OPTIMIZERS = {
    "GENIE": OptimizerCase(
        seeded,
        lr=0.1,
        foreach=True,
        separable=False,  # the draws follow from a parameter's place in the optimiser
        invalid={
            "lr": (-1.0, math.nan),
            "beta": (1.0, -0.1),
            "drop": (1.0, -0.1),
            "eps": (0.0,),
            "weight_decay": (-1.0,),
            "inv_var_clip": (0.0,),
            "variant": ("authors",),
            "noise": (1,),
            "foreach": ("yes",),
        },
    )
}


# The update -----------------------------------------------------------------------------------------------


def by_hand(theta, gradients, *, lr, beta=0.95, decay=0.0, eps=1e-8, clip=10.0, variant="reference"):
    """The update without draws, number by number."""
    m = v = 0.0
    for t, gradient in enumerate(gradients, start=1):
        g = gradient + decay * theta
        m, v = beta * m + (1 - beta) * g, beta * v + (1 - beta) * g * g
        c = 1 - beta**t
        mh, vh = m / c, v / c
        if variant == "paper":
            s2 = eps if t == 1 else max(vh - mh * mh, eps)
            step = mh / (vh + eps) * math.tanh(1 / s2) * mh * mh
        else:
            rho = (1 - beta) * (1 + beta**t) / ((1 + beta) * (1 - beta**t))
            s2 = eps if t == 1 else (vh - mh * mh) / (1 - rho)
            s2 = eps if s2 <= 0 else s2
            step = mh / (1 + rho * s2 / (mh * mh + eps)) * math.tanh(min(max(1 / s2, 0), clip))
        theta -= lr * step
    return theta


@pytest.mark.parametrize("variant", ["reference", "paper"])
@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_update_is_that_of_the_formulas(variant, foreach, scale):
    rng = np.random.default_rng(0)
    start = rng.normal(size=(2, 5))
    gradients = scale * (rng.normal(size=(25, 2, 5)) + 0.3)
    params = [nn.Parameter(torch.tensor(row)) for row in start]
    optimizer = GENIE(
        params, 0.1, beta=0.9, drop=0.0, noise=False, weight_decay=0.01, variant=variant, foreach=foreach
    )
    for gradient in gradients:
        for param, row in zip(params, gradient, strict=True):
            param.grad = torch.tensor(row)
        optimizer.step()
    for row, param in enumerate(params):
        for i in range(5):
            expected = by_hand(
                start[row, i], gradients[:, row, i], lr=0.1, beta=0.9, decay=0.01, variant=variant
            )
            assert param[i].item() == pytest.approx(expected, rel=1e-9)


def test_a_large_tensor_is_stepped_as_its_entries_are():
    rng = np.random.default_rng(1)
    n = CHUNK + 1_000
    large = nn.Parameter(torch.zeros(n, dtype=torch.float64))
    optimizer = GENIE([large], 0.1, drop=0.0, noise=False)
    places = [0, 77, CHUNK - 1, CHUNK, n - 1]
    seen = []
    for _ in range(5):
        gradient = rng.normal(size=n)
        seen.append(gradient[places])
        large.grad = torch.tensor(gradient)
        optimizer.step()
    for nth, place in enumerate(places):
        assert large[place].item() == pytest.approx(by_hand(0.0, np.array(seen)[:, nth], lr=0.1), rel=1e-9)


def test_the_first_step_has_no_variance_and_no_nan():
    # tanh(10) and mh^2 + eps over mh^2 + 2 eps: nothing is divided by 1 - rho = 0.
    param = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    param.grad = torch.tensor([1.0, 1e-4, 0.0], dtype=torch.float64)
    GENIE([param], 1.0, drop=0.0, noise=False).step()
    q = (param.grad**2 + 1e-8) / (param.grad**2 + 2e-8)
    torch.testing.assert_close(-param.detach(), math.tanh(10) * q * param.grad, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("t", [2, 5, 20, 200])
def test_variance_of_the_average_is_rho_times_that_of_a_sample(t):
    # Without the correction the first steps are far off: at t = 2 half of the variance is missing.
    rng = np.random.default_rng(t)
    beta = 0.95
    params = nn.Parameter(torch.zeros(60_000, dtype=torch.float64))
    optimizer = GENIE([params], 0.0, beta=beta)
    for _ in range(t):
        params.grad = torch.tensor(3.0 + 2.0 * rng.normal(size=60_000))
        optimizer.step()
    state = optimizer.state[params]
    hats = state["exp_avg"] / (1 - beta**t)
    variances = state["exp_avg_sq"] / (1 - beta**t) - hats**2
    rho = (1 - beta) * (1 + beta**t) / ((1 + beta) * (1 - beta**t))
    assert float(hats.var()) == pytest.approx(rho * 4.0, rel=0.03)
    assert float(variances.mean() / (1 - rho)) == pytest.approx(4.0, rel=0.03)


def moved(state, gradient, seed, **settings_):
    """What one step adds to a parameter whose optimiser has a history."""
    param = nn.Parameter(torch.zeros_like(gradient))
    optimizer = GENIE([param], 1.0, generator=seed, **settings_)
    optimizer.load_state_dict(
        {
            "state": {0: {**copy.deepcopy(state), "seed": seed}},
            "param_groups": optimizer.state_dict()["param_groups"],
        }
    )
    param.grad = gradient.clone()
    optimizer.step()
    return -param.detach()


def history(gradient, steps=5, spread=1.0):
    param = nn.Parameter(torch.zeros_like(gradient))
    optimizer = GENIE([param], 0.0, generator=0)
    draw = torch.Generator().manual_seed(5)
    for _ in range(steps):
        param.grad = gradient + spread * torch.randn(gradient.shape, generator=draw, dtype=gradient.dtype)
        optimizer.step()
    return optimizer.state_dict()["state"][0]


def certainty(state, gradient, beta=0.95):
    """u, q and move of the next step, entry by entry in float64."""
    t = int(state["step"]) + 1
    c = 1 - beta**t
    mh = (beta * state["exp_avg"] + (1 - beta) * gradient) / c
    vh = (beta * state["exp_avg_sq"] + (1 - beta) * gradient**2) / c
    rho = (1 - beta) * (1 + beta**t) / ((1 + beta) * c)
    s2 = (vh - mh**2) / (1 - rho)
    u = torch.tanh((1 / s2).clamp(0, 10))
    return u, mh * u / (1 + rho * s2 / (mh**2 + 1e-8))


def test_noise_has_the_scale_of_its_tensor():
    gradient = torch.linspace(-2, 2, 400, dtype=torch.float64)
    state = history(gradient)
    u, move = certainty(state, gradient)
    z = move.abs().sum() / u.sum()
    draws = torch.stack([moved(state, gradient, seed, drop=0.0) for seed in range(400)])
    normal = (draws - move) / ((1 - u) * z)
    assert float(normal.mean()) == pytest.approx(0, abs=0.01)
    assert float(normal.std()) == pytest.approx(1, abs=0.01)
    # As wide for each entry, and drawn for each alone.
    assert float(normal.std(0).min()) > 0.85 and float(normal.std(0).max()) < 1.15
    neighbours = (normal[:, 1:] * normal[:, :-1]).mean()
    assert float(neighbours) == pytest.approx(0, abs=0.01)


def test_noise_of_a_large_tensor_has_one_scale():
    # Chunks of very different gradients share the scale of the whole tensor.
    n = 2 * CHUNK
    gradient = torch.ones(n, dtype=torch.float64)
    gradient[n // 2 :] = 1e-3
    state = history(gradient)
    u, move = certainty(state, gradient)
    z = move.abs().sum() / u.sum()
    normal = (moved(state, gradient, 3, drop=0.0) - move) / ((1 - u) * z)
    for half in normal.split(n // 2):
        assert float(half.std()) == pytest.approx(1, abs=0.01)
    first, second = normal.split(n // 2)
    assert abs(float((first * second).mean())) < 0.01


def test_each_tensor_has_a_noise_scale_of_its_own():
    sizes = {}
    for scale in (1.0, 10.0):
        gradient = torch.full((4_000,), scale, dtype=torch.float64)
        params = [nn.Parameter(torch.zeros(4_000, dtype=torch.float64)) for _ in range(2)]
        optimizer = GENIE(params, 1.0, drop=0.0, generator=1)
        draw = torch.Generator().manual_seed(0)
        for _ in range(3):
            before = params[0].detach().clone()
            noise = 2 * torch.randn(2, 4_000, generator=draw, dtype=torch.float64)
            params[0].grad, params[1].grad = 1.0 + noise[0], gradient + noise[1]
            optimizer.step()
        sizes[scale] = params[0].detach() - before
    # The neighbour's gradients make no difference.
    torch.testing.assert_close(sizes[1.0], sizes[10.0], rtol=0, atol=0)


def test_certain_entries_get_no_noise():
    # In single precision tanh(10) is 1, and what is multiplied by 1 - u is not there.
    gradient = torch.full((1_000,), 0.5)
    state = history(gradient, spread=0.05)
    quiet = moved(state, gradient, 1, drop=0.0, noise=False)
    assert torch.equal(moved(state, gradient, 2, drop=0.0), quiet)


def test_mask_keeps_the_mean_and_is_drawn_anew():
    param = nn.Parameter(torch.zeros(100_000))
    optimizer = GENIE([param], 1.0, drop=0.4, noise=False, generator=0)
    kept = []
    for _ in range(3):
        before = param.detach().clone()
        param.grad = torch.full((100_000,), 0.5)
        optimizer.step()
        step = before - param.detach()
        kept.append(step != 0)
        assert float(kept[-1].float().mean()) == pytest.approx(0.6, abs=0.006)
        assert float(step.mean()) == pytest.approx(0.5, rel=0.01)
        torch.testing.assert_close(
            step[kept[-1]], torch.full_like(step[kept[-1]], 0.5 / 0.6), rtol=1e-3, atol=0
        )
    both = (kept[0] & kept[1]).float().mean()
    assert float(both) == pytest.approx(0.36, abs=0.006)


def test_draws_follow_from_the_generator():
    def run(generator):
        param = nn.Parameter(torch.zeros(50))
        optimizer = GENIE([param], 1.0, generator=generator)
        for _ in range(3):
            param.grad = torch.linspace(-3, 3, 50)
            optimizer.step()
        return param.detach()

    assert torch.equal(run(4), run(torch.Generator().manual_seed(4)))
    assert not torch.equal(run(4), run(5))
    assert not torch.equal(run(None), run(None))


def test_what_is_done_to_the_weights_outside_stays_done():
    # Averaging, loading or clipping of weights between two steps must not be undone by the next one.
    results = []
    for shift in (0.0, 5.0):
        param = nn.Parameter(torch.zeros(10, dtype=torch.float64))
        optimizer = GENIE([param], 0.1, generator=0)
        for step in range(4):
            if step == 2:
                with torch.no_grad():
                    param.add_(shift)
            param.grad = torch.linspace(-1, 1, 10, dtype=torch.float64) * (step + 1)
            optimizer.step()
        results.append(param.detach())
    torch.testing.assert_close(results[1], results[0] + 5)


def test_averaged_weights_and_clipping():
    model = nn.Linear(3, 1)
    optimizer = GENIE(model.parameters(), 0.1, generator=0)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    path = []
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).pow(2).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        averaged.update_parameters(model)
        path.append(model.weight.detach().clone())
    torch.testing.assert_close(averaged.module.weight.detach(), torch.stack(path).mean(0))  # type: ignore[operator]


@pytest.mark.parametrize("variant", ["reference", "paper"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("at", [1, 3])
def test_nan_in_a_gradient_goes_through(variant, bad, at):
    param = nn.Parameter(torch.zeros(4))
    optimizer = GENIE([param], 0.1, drop=0.0, noise=False, variant=variant)
    for step in range(1, at + 1):
        param.grad = torch.ones(4) * step
        if step == at:
            param.grad[2] = bad
        optimizer.step()
    assert torch.isfinite(param[[0, 1, 3]]).all() and not torch.isfinite(param[2])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["reference", "paper"]), st.floats(1e-12, 1e12))
def test_steps_are_finite_and_no_longer_than_the_average(seed, variant, scale):
    rng = np.random.default_rng(seed)
    param = nn.Parameter(torch.zeros(20, dtype=torch.float64))
    optimizer = GENIE([param], 1.0, beta=0.8, drop=0.0, noise=False, variant=variant)
    for t in range(1, 7):
        before = param.detach().clone()
        param.grad = torch.tensor(scale * rng.normal(size=20) * rng.integers(0, 2, size=20))
        optimizer.step()
        hat = optimizer.state[param]["exp_avg"] / (1 - 0.8**t)
        step = (before - param.detach()).abs()
        assert torch.isfinite(param).all()
        # Weights are below 1; positions lose digits to cancellation.
        assert (step <= hat.abs() * (1 + 1e-9) + 1e-12 * param.detach().abs().max()).all()


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,)])
@pytest.mark.parametrize("variant", ["reference", "paper"])
def test_odd_shapes_are_stepped(shape, variant):
    params = [nn.Parameter(torch.ones(shape)), nn.Parameter(torch.ones(3))]
    optimizer = GENIE(params, 0.1, variant=variant, generator=0)
    for _ in range(3):
        for param in params:
            param.grad = torch.ones_like(param)
        optimizer.step()
    assert all(torch.isfinite(param).all() for param in params)


def test_channels_last_is_stepped_as_any_other_layout():
    gradient = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        param = nn.Parameter(torch.zeros(4, 3, 5, 5).contiguous(memory_format=layout))
        optimizer = GENIE([param], 0.1, drop=0.0, noise=False)
        for step in range(3):
            param.grad = (gradient + step).contiguous(memory_format=layout)
            optimizer.step()
        found.append(param.detach())
    torch.testing.assert_close(*found)


def test_half_precision_keeps_its_averages_in_single():
    param = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    optimizer = GENIE([param], 0.1, generator=0, weight_decay=0.1)
    param.grad = torch.full((4,), 1e-3, dtype=torch.bfloat16)
    optimizer.step()
    state = optimizer.state[param]
    assert state["exp_avg"].dtype == state["exp_avg_sq"].dtype == torch.float32
    assert param.dtype == torch.bfloat16


def test_errors_name_the_parameter():
    weight = nn.Parameter(torch.ones(2, 2))
    named = GENIE([("embed.weight", weight)])
    weight.grad = torch.ones(2, 2).to_sparse()
    with pytest.raises(RuntimeError, match=r"parameter 'embed.weight' must be dense"):
        named.step()
    with pytest.raises(RuntimeError, match=r"parameter 0 of its group, of shape \(2, 2\), must be dense"):
        GENIE([weight]).step()
    with pytest.raises(TypeError, match=r"must be real, got torch.complex64: hand over torch.view_as_real"):
        GENIE([nn.Parameter(torch.ones(2, dtype=torch.complex64))])
    optimizer = GENIE([weight])
    with pytest.raises(ValueError, match="beta must be less than 1"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "beta": 1.0})
    assert len(optimizer.param_groups) == 1


# The ratio ------------------------------------------------------------------------------------------------


def samples(mu, s, n, seed=0):
    return torch.tensor(np.random.default_rng(seed).normal(mu, s, size=(n, len(mu))))


MU, S = np.array([1.0, 0.3, 0.0, 2.0, 0.1]), np.array([1.0, 2.0, 1.5, 0.2, 3.0])


@pytest.mark.parametrize("p", [np.ones(5), np.array([0.1, 2.0, 1.0, 0.3, 5.0])])
def test_ratio_is_what_many_steps_give(p):
    # A small step of p g lowers the training loss by sum p g^2, the test loss by sum p g g'.
    n, repeats = 8, 200_000
    rng = np.random.default_rng(1)
    g, other = (MU + S / math.sqrt(n) * rng.normal(size=(repeats, 5)) for _ in range(2))
    by_steps = (p * g * other).sum() / (p * g * g).sum()
    batches = list(samples(MU, S, 20_000))
    found = osgr(Dot(5), dot_loss, batches, n, [torch.tensor(p)])
    assert found.osgr == pytest.approx(by_steps, abs=0.01)
    second = MU**2 + S**2 / n
    np.testing.assert_allclose(found.shares["weight"], p * second / (p * second).sum(), atol=0.02)
    np.testing.assert_allclose(found.gsnr["weight"], (MU / S) ** 2, rtol=0.2, atol=0.02)


def test_ratio_of_the_theoretical_factor_is_that_of_the_mean_gsnr():
    n = 6
    batches = list(samples(MU, S, 500))
    gsnr = osgr(Dot(5), dot_loss, batches, n).gsnr["weight"].numpy()
    statistics = gradient_statistics(Dot(5), dot_loss, batches)
    second = (statistics.squared_mean()["weight"] + statistics.variance["weight"] / n).numpy()
    p = (gsnr + 1 / n) / second
    found = osgr(Dot(5), dot_loss, batches, n, [torch.tensor(p)])
    assert found.osgr == pytest.approx(1 - 1 / (n * np.mean(gsnr + 1 / n)), rel=1e-9)
    np.testing.assert_allclose(found.shares["weight"], (gsnr + 1 / n) / (gsnr + 1 / n).sum(), rtol=1e-9)


def test_n_is_the_number_of_batches_unless_said():
    batches = list(samples(MU, S, 16))
    assert osgr(Dot(5), dot_loss, batches) == osgr_equal(osgr(Dot(5), dot_loss, batches, 16))
    assert osgr(Dot(5), dot_loss, batches, 64).osgr > osgr(Dot(5), dot_loss, batches).osgr


class osgr_equal:  # noqa: N801 - reads as a value
    def __init__(self, result):
        self.result = result

    def __eq__(self, other):
        return (other.osgr, other.gini, other.n) == (self.result.osgr, self.result.gini, self.result.n)

    __hash__ = None  # type: ignore[assignment]


def test_entries_without_signal_or_noise_drop_out():
    batches = [torch.tensor([1.0, 0.0, 2.0]), torch.tensor([1.0, 0.0, -2.0])]
    found = osgr(Dot(3), dot_loss, batches)
    assert found.shares["weight"].tolist() == pytest.approx([1 / 5, 0, 4 / 5])
    assert found.gsnr["weight"].tolist() == [math.inf, 0.0, 0.0]
    assert found.osgr == pytest.approx(1 / 5)


def test_factors_are_those_of_the_optimisers():
    batches = list(samples(MU, S, 30))

    def after(make):
        model = Dot(5)
        optimizer = make(model.parameters())
        for x in batches[:5]:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
        return model, optimizer

    model, sgd = after(lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9))
    assert osgr(model, dot_loss, batches, preconditioner=sgd).osgr == osgr(model, dot_loss, batches).osgr
    for kind in (torch.optim.Adam, torch.optim.AdamW):
        model, adam = after(lambda params, kind=kind: kind(params, betas=(0.9, 0.99)))
        v = sum(0.01 * 0.99 ** (4 - i) * x**2 for i, x in enumerate(batches[:5])) / (1 - 0.99**5)
        by_list = osgr(model, dot_loss, batches, preconditioner=[1 / (v.sqrt() + 1e-8)])
        assert osgr(model, dot_loss, batches, preconditioner=adam).osgr == pytest.approx(by_list.osgr)
    # The step without draws is p times the average, of either variant.
    for variant in ("reference", "paper"):
        model, genie = after(lambda params, v=variant: GENIE(params, 0.1, drop=0.0, noise=False, variant=v))
        other = copy.deepcopy(model)
        again = GENIE(other.parameters(), 0.1, drop=0.0, noise=False, variant=variant)
        with torch.no_grad():
            other.weight.zero_()
        for x in batches[:5]:
            before = other.weight.detach().clone()
            other.weight.grad = x.clone()
            again.step()
        hat = genie.state[model.weight]["exp_avg"] / (1 - 0.95**5)
        p = (before - other.weight.detach()) / (0.1 * hat)
        by_list = osgr(model, dot_loss, batches, preconditioner=[p])
        assert osgr(model, dot_loss, batches, preconditioner=genie).osgr == pytest.approx(by_list.osgr)


def test_parameters_that_the_optimiser_lacks_stand_still():
    model = nn.ModuleList([Dot(5), Dot(5)])
    batches = list(samples(np.tile(MU, 2), np.tile(S, 2), 20))

    def loss(model, x):
        return model[0](x[:5]) + model[1](x[5:])

    sgd = torch.optim.SGD(model[0].parameters(), lr=0.1)
    found = osgr(model, loss, batches, preconditioner=sgd)
    assert found.osgr == pytest.approx(osgr(Dot(5), dot_loss, [x[:5] for x in batches]).osgr)
    assert not found.shares["1.weight"].any()


def test_skewed_shares_can_turn_the_comparison_around():
    # The theory needs uniform shares; here the entry with the best signal is one that SGD uses most already.
    mu, s = np.array([30.0, 1.0]), np.array([3.0, 0.2])
    batches = list(samples(mu, s, 2_000))
    n = 4
    gsnr = (mu / s) ** 2
    theory = [torch.tensor((gsnr + 1 / n) / (mu**2 + s**2 / n))]
    plain = osgr(Dot(2), dot_loss, batches, n).osgr
    assert osgr(Dot(2), dot_loss, batches, n, theory).osgr < plain


@pytest.mark.parametrize(
    ("preconditioner", "error", "words"),
    [
        ([torch.ones(4)], ValueError, "preconditioner must have the shape"),
        ([], ValueError, "preconditioner must have a tensor for each of the 1"),
        ([-torch.ones(5)], ValueError, "preconditioner must be at least 0"),
        ([torch.zeros(5)], ValueError, "not all zero"),
        ("sgd", TypeError, "preconditioner must be None, an optimiser or a list"),
        (torch.optim.RMSprop([nn.Parameter(torch.ones(1))]), TypeError, "got RMSprop"),
        (torch.optim.SGD([nn.Parameter(torch.ones(1))]), ValueError, "optimiser of the model's parameters"),
    ],
)
def test_bad_preconditioners_are_refused(preconditioner, error, words):
    with pytest.raises(error, match=words):
        osgr(Dot(5), dot_loss, list(samples(MU, S, 5)), preconditioner=preconditioner)


def test_an_optimiser_without_a_step_has_no_factors():
    model = Dot(5)
    for make in (GENIE, torch.optim.Adam):
        with pytest.raises(ValueError, match="preconditioner must be an optimiser that has made a step"):
            osgr(model, dot_loss, list(samples(MU, S, 5)), preconditioner=make(model.parameters()))
    with pytest.raises(ValueError, match="n must be at least 1"):
        osgr(model, dot_loss, list(samples(MU, S, 5)), 0)


def test_result_is_told_in_words_and_tables():
    result = osgr(Dot(5), dot_loss, list(samples(MU, S, 8)))
    assert isinstance(result, OSGRResult) and result.summary().startswith("OSGR 0.")
    assert result.to_frame()["share"].sum() == pytest.approx(1)
    assert set(result.to_dict()) == {"osgr", "gsnr", "shares", "gini", "n"}
    assert "vega-lite" in result.plot().to_dict()["$schema"]


# One real step --------------------------------------------------------------------------------------------


def test_one_real_step_is_the_definition():
    model = nn.Linear(2, 1, bias=False)
    train, test = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]])
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 2.0]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(model, x):
        return model(x).square().sum()

    # w = (1, 2): the gradient is (2, 0), the step (0.2, 0).
    expected = (9 - 2.8**2) / (1 - 0.8**2)
    assert one_step_ratio(model, loss, train, test, optimizer.step) == pytest.approx(expected)


def test_one_real_step_is_taken_back():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    optimizer = GENIE(model.parameters(), 0.1, generator=0)
    x = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))

    def loss(model, x):
        return model(x).square().sum()

    for _ in range(2):
        optimizer.zero_grad()
        loss(model, x).backward()
        optimizer.step()
    model[0].weight.grad = torch.full((3, 2), 7.0)
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    one_step_ratio(model, loss, x[:4], x[4:], optimizer.step)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[0][name])
    for place, state in optimizer.state_dict()["state"].items():
        assert all(
            torch.equal(torch.as_tensor(v), torch.as_tensor(before[1]["state"][place][k]))
            for k, v in state.items()
        )
    assert torch.equal(model[0].weight.grad, torch.full((3, 2), 7.0)) and model.training


@pytest.mark.parametrize(
    ("step", "error", "words"),
    [
        (lambda: None, ValueError, "step_fn must change the training loss"),
        (3, TypeError, "step_fn must be callable"),
    ],
)
def test_steps_that_are_none_are_refused(step, error, words):
    with pytest.raises(error, match=words):
        one_step_ratio(nn.Linear(2, 1), lambda m, x: m(x).sum(), torch.ones(1, 2), torch.ones(1, 2), step)


def test_a_loss_that_is_not_finite_is_refused_and_the_model_put_back():
    model = nn.Linear(2, 1)
    before = model.weight.detach().clone()

    def far():
        with torch.no_grad():
            model.weight.fill_(math.inf)

    with pytest.raises(ValueError, match="loss_fn must stay finite"):
        one_step_ratio(model, lambda m, x: m(x).sum(), torch.ones(1, 2), torch.ones(1, 2), far)
    assert torch.equal(model.weight, before)


# The study ------------------------------------------------------------------------------------------------


def bound_of(identifier):
    claim = next(claim for claim in lookup(SLUG).claims if claim.id == identifier)
    return Bound.parse(claim.checks[0].bound)


def short_gain(arm, rate, seed=103):
    """Points that GENIE is ahead on an unseen style, after 50 steps of a network that knows digits."""
    from theses.studies.optim.genie.sizes import SIZES
    from theses.studies.optim.genie.tasks import make_task
    from theses.studies.optim.genie.training import train

    size = dataclasses.replace(SIZES["standard"], n_osgr=2)
    ctx = Context("standard", seed)
    task = dataclasses.replace(make_task(ctx, size, "styled"), steps=50)
    accuracies = [train(ctx, size, task, *run)["ood"] for run in (("GENIE", 0.015), (arm, rate))]
    return 100 * (accuracies[0] - accuracies[1])


def test_planted_copy_of_the_weights_turns_c1b(monkeypatch):
    # The optimiser keeps weights of its own and writes them back, so that what was loaded is lost.
    bound = bound_of("C1b")
    assert bound.contains(short_gain("SGD", 0.01))
    build, step = GENIE.__init__, GENIE.step

    def build_with_copy(self, *args, **kwargs):
        build(self, *args, **kwargs)
        self.own = [[p.detach().clone() for p in group["params"]] for group in self.param_groups]

    def step_from_copy(self, closure=None):
        for group, kept in zip(self.param_groups, self.own, strict=True):
            for param, value in zip(group["params"], kept, strict=True):
                param.data.copy_(value)
        loss = step(self, closure)
        self.own = [[p.detach().clone() for p in group["params"]] for group in self.param_groups]
        return loss

    monkeypatch.setattr(GENIE, "__init__", build_with_copy)
    monkeypatch.setattr(GENIE, "step", step_from_copy)
    assert not bound.contains(short_gain("SGD", 0.01))


def test_planted_rate_that_is_ignored_turns_c4(monkeypatch):
    # The rate given is dead, and a constant in the class makes the steps.
    from theses.studies.optim.genie.training import measure_rate

    def slope():
        horizons = (250, 1_000)
        values = [measure_rate(Context("standard", 101), horizon, 47.4) for horizon in horizons]
        return float(np.polyfit(np.log(horizons), np.log(values), 1)[0])

    bound = bound_of("C4")
    assert bound.contains(slope())
    build = GENIE.__init__
    monkeypatch.setattr(
        GENIE, "__init__", lambda self, params, lr=0.015, **options: build(self, params, 0.015, **options)
    )
    assert not bound.contains(slope())


def test_sam_is_sgd_where_the_surface_is_flat_and_goes_uphill_first():
    from theses.studies.optim.genie.training import SAM

    def run(make, loss):
        weight = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
        optimizer = make([weight])

        def closure():
            optimizer.zero_grad()
            value = loss(weight)
            value.backward()
            return value.detach()

        for _ in range(3):
            optimizer.step(closure)
        return weight.detach()

    def plane(weight):
        return (weight * torch.tensor([3.0, 1.0], dtype=torch.float64)).sum()

    sgd = run(lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9), plane)
    torch.testing.assert_close(run(lambda params: SAM(params, lr=0.1), plane), sgd)
    # For the sum of squares the gradient uphill is 2 (w + rho w / |w|).
    first = run(lambda params: SAM(params, lr=0.1, rho=0.5, momentum=0.0), lambda w: w.square().sum())
    w = np.array([1.0, -2.0])
    for _ in range(3):
        w = w - 0.2 * (w + 0.5 * w / np.linalg.norm(w))
    np.testing.assert_allclose(first, w)


def test_rates_are_chosen_by_the_training_domains_and_edges_widen_the_grid():
    from theses.studies.optim.genie.training import _search

    asked = []

    def score(rate):
        asked.append(rate)
        return (-abs(math.log(rate / 0.05)), 0.0)

    best, trials = _search((1.0, 3.0, 10.0), score)
    assert best == 0.037 and asked == [1.0, 3.0, 10.0, 0.33, 0.11, 0.037, 0.012]
    assert [rate for rate, _ in trials] == sorted(asked)
    # A grid on which nothing is learnt goes down, wherever its winner by chance is.

    def chance(rate):
        return (0.9 - abs(math.log(rate / 0.11)) / 10 if rate < 0.2 else 0.1 + 0.02 * (rate == 3), 0.0)

    best, trials = _search((1.0, 3.0, 10.0), chance, 0.2)
    assert best == 0.11 and len(trials) == 6
    # It ends, however far away the best rate is.
    assert len(_search((1.0, 3.0), lambda rate: (rate, 0.0))[1]) == 11


def test_unseen_domains_follow_the_seed_and_are_not_those_of_the_tuning():
    from theses.studies.optim.genie.sizes import SIZES
    from theses.studies.optim.genie.tasks import make_task

    size = SIZES["smoke"]
    names = {}
    for seed in (1, 4, 100):
        task = make_task(Context("smoke", seed), size, "rotated")
        domain = task.domains.domain
        names[seed] = sorted({task.domains.names[i] for i in domain[task.split.test]})
        assert not set(domain[task.split.test]) & {*domain[task.split.train], *domain[task.split.validation]}
    assert names == {1: ["15", "60"], 4: ["15", "60"], 100: ["75"]}


def test_paper_preset_runs_on_folders_in_domainbeds_layout(tmp_path):
    from tests.problems.test_domains import write_domainbed

    with pytest.raises(ValueError, match=r"data_folder: a folder with resnet50.pth"):
        study.run(Context("paper", 0))
    write_domainbed(tmp_path, images=3)
    measurement = study.run(Context("paper", 101, data_folder=tmp_path, limit=3))
    assert set(measurement.metrics) >= set(lookup(SLUG).metrics("paper"))
    assert {"VLCS", "domain_net", "rotated"} <= set(measurement.tables["accuracy"]["data"])


def test_resnet50_has_torchvisions_names_and_wants_its_weights(tmp_path):
    from theses.studies.optim.genie.resnet import load_resnet50

    with pytest.raises(ValueError, match=r"data_folder must hold resnet50.pth"):
        load_resnet50(tmp_path, 7, 0, trial=False)
    from theses.studies.optim.genie.resnet import _ResNet50

    whole = _ResNet50(1000, 64)
    assert sum(p.numel() for p in whole.parameters()) == 25_557_032
    assert len(list(whole.parameters())) == 161
    assert whole.state_dict()["layer3.5.conv2.weight"].shape == (256, 256, 3, 3)
    assert whole.state_dict()["layer2.0.downsample.1.running_mean"].shape == (512,)
    torch.save(whole.state_dict(), tmp_path / "resnet50.pth")
    tuned = load_resnet50(tmp_path, 7, 0, trial=False)
    weights = tuned.state_dict()
    assert not tuned.training and weights["fc.weight"].shape == (7, 2048)
    name = "layer4.2.conv3.weight"
    assert torch.equal(weights[name], whole.state_dict()[name])
