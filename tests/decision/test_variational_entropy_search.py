from __future__ import annotations

import json
import math
import re
import sys
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import optimize, special, stats

pytest.importorskip("botorch")

from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.exceptions.warnings import InputDataWarning
from botorch.models import SingleTaskGP
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.optim.optimize import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from botorch.utils.testing import MockModel, MockPosterior
from linear_operator.utils.errors import NotPSDError

from tests.conformance.contract import Call
from theses.catalogue import lookup
from theses.catalogue.card import Bound
from theses.decision import variational_entropy_search as ves
from theses.decision.variational_entropy_search import (
    BOTrace,
    VESExp,
    VESGamma,
    acquisition,
    draw_paths,
    fit_gamma,
    fit_gp,
    gamma,
    gamma_log_density,
    loop,
    observed,
    optimize_ves,
    path_maxima,
    run_bo,
    solve_k,
    suggest,
)
from theses.evidence import Context
from theses.studies.decision import variational_entropy_search as study

SLUG = "variational-entropy-search"
F64 = torch.float64
CUBE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=F64)
FAST: dict[str, Any] = {"num_paths": 16, "num_restarts": 1, "raw_samples": 16}


def bowl(X):
    return -((X - 0.4) ** 2).sum(dim=-1) + 0.1 * torch.sin(9 * X[..., 0])


def points(n, d=2, seed=0):
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=F64)


@pytest.fixture(scope="module")
def model():
    X = points(8)
    return fit_gp(X, bowl(X))


def make(model, kind=VESGamma, **options):
    options = {"num_paths": 16, "seed": 0, "sampler_options": {"raw": 128}, **options}
    return kind(model, observed(model)[1].max(), CUBE, **options)


def calls() -> list[Call]:
    X = points(6)
    Y = bowl(X)
    fitted = fit_gp(X, Y)
    ours = make(fitted)
    best = Y.max()

    def candidates():
        return {"X": points(3, seed=2)[:, None].clone()}

    def given():
        return {"model": fitted, "best_f": best.clone(), "bounds": CUBE.clone(), "paths": ours.paths}

    one = {"best_f": ("rank",)}  # one number, in whatever shape
    z = torch.rand(10, 3, generator=torch.Generator().manual_seed(0), dtype=F64) + 0.1
    return [
        *(
            Call(
                kind.__name__,
                partial(
                    lambda kind: (
                        kind,
                        {**given(), "optima": ours.optima.clone(), "X_pending": points(2, seed=3)},
                    ),
                    kind,
                ),
                ("best_f", "bounds", "optima", "X_pending"),
                paired=("optima",),
                allowed=one,
            )
            for kind in (VESGamma, VESExp)
        ),
        *(
            Call(f"VESGamma.{name}", partial(lambda name: (getattr(ours, name), candidates()), name), ("X",))
            for name in ("forward", "k_beta", "components")
        ),
        Call(
            "VESExp.forward",
            lambda: (make(fitted, VESExp).forward, candidates()),
            ("X",),
        ),
        *(
            Call(f"VESExp.{name}", partial(lambda name: (getattr(ours, name), candidates()), name), ("X",))
            for name in ("k_beta", "components")
        ),
        *(
            Call(
                f"{kind.__name__}.set_X_pending",
                partial(
                    lambda kind: (make(fitted, kind).set_X_pending, {"X_pending": points(2, seed=3)}), kind
                ),
                ("X_pending",),
            )
            for kind in (VESGamma, VESExp)
        ),
        Call(
            "optimize_ves",
            lambda: (
                optimize_ves,
                {
                    "acq": ours,
                    "bounds": CUBE.clone(),
                    "n_iter": 1,
                    "optimize_acqf_options": {"num_restarts": 1, "raw_samples": 8},
                },
            ),
            ("bounds",),
            paired=("bounds",),
        ),
        Call(
            "suggest",
            lambda: (
                suggest,
                {"model": fitted, "bounds": CUBE.clone(), "best_f": best.clone(), "acq": "logei", **FAST},
            ),
            ("bounds", "best_f"),
            paired=("bounds",),
            allowed=one,
        ),
        Call(
            "fit_gp",
            lambda: (fit_gp, {"X": X.clone(), "Y": Y[:, None].clone()}),
            ("X", "Y"),
            ("X", "Y"),
            {"Y": ("rank",)},
        ),
        Call(
            "fit_gp",
            lambda: (fit_gp, {"X": X.clone(), "Y": Y[:, None].clone(), "bounds": CUBE.clone()}),
            ("bounds",),
            paired=("bounds",),
        ),
        Call(
            "path_maxima",
            lambda: (
                path_maxima,
                {"paths": ours.paths, "bounds": CUBE.clone(), "raw": 8, "restarts": 1, "points": X.clone()},
            ),
            ("bounds", "points"),
            paired=("bounds",),
        ),
        Call("solve_k", lambda: (solve_k, {"s": z[0].clone()}), ("s",), allowed={"s": ("rank",)}),
        Call("fit_gamma", lambda: (fit_gamma, {"z": z.clone()}), ("z",), allowed={"z": ("rank",)}),
        Call(
            "gamma_log_density",
            lambda: (gamma_log_density, {"z": z.clone(), "k": z[0].clone(), "beta": z[0].clone()}),
            ("z", "k", "beta"),
            paired=("k", "beta"),
            allowed={"z": ("rank",)},
        ),
        Call(
            "run_bo",
            lambda: (
                run_bo,
                {"objective": bowl, "bounds": CUBE.clone(), "acq": "random", "n_init": 2, "n_iter": 1},
            ),
            ("bounds",),
            paired=("bounds",),
        ),
    ]


# The Gamma family ----------------------------------------------------------------------------------------


@given(
    hnp.arrays(np.float64, st.integers(1, 20), elements=st.floats(1e-9, 50)),
    st.sampled_from([0.0, 0.01, 1.0, 30.0]),
    st.sampled_from([0.5, 1.0, 4.0]),
)
@settings(max_examples=40, deadline=None)
def test_k_is_the_best_of_a_grid(s, reg_lambda, target):
    k = solve_k(torch.from_numpy(s), reg_lambda, target).numpy()

    def loss(k):
        return (np.log(k) - special.digamma(k) - s) ** 2 + reg_lambda * (k - target) ** 2

    grid = np.geomspace(1e-3, 1e3, 4001)
    best = np.min(loss(grid[:, None]), axis=0)
    assert (loss(k) <= best + 1e-9 * (1 + best)).all()
    assert ((k >= 1e-3 * (1 - 1e-12)) & (k <= 1e3 * (1 + 1e-12))).all()


@given(st.floats(1e-3, 300))
@settings(max_examples=40, deadline=None)
def test_k_agrees_with_scalar_solvers(s):
    root = optimize.brentq(lambda k: math.log(k) - special.digamma(k) - s, 1e-3, 1e3, xtol=1e-14)
    assert float(solve_k(torch.tensor(s, dtype=F64), 0.0)) == pytest.approx(root, rel=1e-9)
    low, high = sorted((root, 1.0))
    k = float(solve_k(torch.tensor(s, dtype=F64)))
    assert low - 1e-9 <= k <= high + 1e-9
    if s < 0.57:
        slope = partial(
            lambda s, k: (math.log(k) - special.digamma(k) - s) * (1 / k - special.polygamma(1, k)) + k - 1, s
        )
        assert k == pytest.approx(optimize.brentq(slope, low, high, xtol=1e-14), rel=1e-8)


def test_without_spread_the_pull_keeps_k_small():
    s = torch.tensor([0.0, 1e-12], dtype=F64)
    assert (solve_k(s, 0.0) == 1e3).all()
    assert (solve_k(s, 1.0) < 1.3).all()
    assert (solve_k(s, 1e9) - 1).abs().max() < 1e-6


def test_k_has_the_derivative_of_the_implicit_function():
    s = torch.tensor([0.05, 0.4, 2.0, 7.0], dtype=F64, requires_grad=True)
    for reg_lambda in (0.0, 1.0):
        assert torch.autograd.gradcheck(partial(solve_k, reg_lambda=reg_lambda, differentiable=True), s)
    assert not solve_k(s).requires_grad
    assert solve_k(s.detach().float()).dtype == torch.float32


def test_density_and_fit_are_those_of_scipy():
    z = stats.gamma.rvs(2.5, scale=0.4, size=4000, random_state=0)
    density = gamma_log_density(torch.from_numpy(z), 2.5, 2.5)
    np.testing.assert_allclose(density.numpy(), stats.gamma.logpdf(z, 2.5, scale=0.4), rtol=1e-10)
    k, _, scale = stats.gamma.fit(z, floc=0)
    ours = fit_gamma(torch.from_numpy(z), reg_lambda=0.0)
    assert float(ours[0]) == pytest.approx(k, rel=1e-5)
    assert float(ours[1]) == pytest.approx(1 / scale, rel=1e-5)


@given(hnp.arrays(np.float64, (12, 3), elements=st.floats(1e-10, 1e3)), st.sampled_from([0.0, 0.1, 1.0]))
@settings(max_examples=50, deadline=None)
def test_gamma_is_at_least_as_tight_as_exponential(z, reg_lambda):
    z = torch.from_numpy(z)
    k, beta = fit_gamma(z, reg_lambda)
    gain = (gamma_log_density(z, k, beta) - gamma_log_density(z, 1.0, 1 / z.mean(dim=0))).mean(dim=0)
    # Where all z are equal, k = 1 by decree, or ends at the bracket; the gain is 0 up to rounding.
    assert (gain >= -1e-9 * (1 + k)).all()


@given(hnp.arrays(np.float64, (9, 2), elements=st.floats(1e-3, 10)), st.floats(0.01, 100))
@settings(max_examples=30, deadline=None)
def test_the_shape_does_not_see_the_scale(z, scale):
    k, beta = fit_gamma(torch.from_numpy(z))
    k_scaled, beta_scaled = fit_gamma(torch.from_numpy(scale * z))
    torch.testing.assert_close(k, k_scaled, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(beta, beta_scaled * scale, rtol=1e-6, atol=1e-9)


def test_nothing_to_gain_is_no_infinity():
    k, beta = fit_gamma(torch.full((5, 2), 1e-10, dtype=F64), reg_lambda=0.0)
    assert k.tolist() == [1.0, 1.0]
    torch.testing.assert_close(beta, torch.full((2,), 1e10, dtype=F64))


# Paths and their maxima ----------------------------------------------------------------------------------


def test_paths_go_through_the_observations_on_their_own_scale():
    X = points(10)
    Y = 500 + 40 * bowl(X)
    bounds = torch.tensor([[-3.0, 0.0], [5.0, 200.0]], dtype=F64)
    scaled = bounds[0] + (bounds[1] - bounds[0]) * X
    paths = draw_paths(fit_gp(scaled, Y, bounds=bounds), 64, seed=1)
    # Noise of variance 1e-4 on the standardised scale.
    assert float((paths(scaled) - Y).abs().max() / Y.std()) < 0.1
    torch.testing.assert_close(observed(fit_gp(scaled, Y, bounds=bounds))[1], Y)


def test_paths_have_the_moments_of_the_posterior(model):
    x = points(5, seed=9)
    with torch.no_grad():
        f, posterior = draw_paths(model, 4000, seed=0)(x), model.posterior(x)
    sd = posterior.variance[:, 0].sqrt()
    assert ((f.mean(dim=0) - posterior.mean[:, 0]).abs() < 5 * sd / math.sqrt(4000) + 1e-3).all()
    assert ((f.std(dim=0) / sd - 1).abs() < 0.15).all()


def test_maxima_in_any_box_agree_with_a_fine_grid():
    bounds = torch.tensor([[-3.0, 0.0], [5.0, 200.0]], dtype=F64)
    X = bounds[0] + (bounds[1] - bounds[0]) * points(8)
    model = fit_gp(X, bowl((X - bounds[0]) / (bounds[1] - bounds[0])), bounds=bounds)
    paths = draw_paths(model, 12, seed=3)
    x_star, y_star = path_maxima(paths, bounds, raw=512, restarts=3, points=X, seed=0)
    fine = draw_sobol_samples(bounds, 8192, 1, seed=5).squeeze(1).double()
    with torch.no_grad():
        assert (y_star >= paths(X).amax(dim=1) - 1e-12).all()
        assert (y_star >= paths(fine).amax(dim=1) - 1e-3).all()
        torch.testing.assert_close(paths(x_star[:, None])[:, 0], y_star)
    assert (x_star >= bounds[0]).all() and (x_star <= bounds[1]).all()
    assert x_star[:, 1].max() > 1.5  # the unit cube would end at 1


def test_maxima_are_not_below_any_candidate():
    # A needle that no gradient finds, put among the points.
    def needle(X):
        return (1 - 50 * (X - 0.123).abs().sum(dim=-1)).clamp_min(0.0).expand(3, *X.shape[X.ndim == 3 : -1])

    at = torch.tensor([[0.123, 0.123]], dtype=F64)
    _, y_star = path_maxima(needle, CUBE, raw=4, restarts=2, points=at, seed=0)
    assert y_star.tolist() == [1.0] * 3


# The acquisition function --------------------------------------------------------------------------------


def brute_force(ours, x, exponential=False):
    """The formula of the paper, path by path, in NumPy."""
    with torch.no_grad():
        f = ours.paths(x).numpy()
    y_star, best = ours.optima.numpy(), float(ours.best_f)
    values = []
    for column in f.T:
        z = np.maximum(y_star - np.maximum(column, best), ours.clamp_min)
        s = math.log(z.mean()) - np.log(z).mean()
        grid = np.geomspace(0.05, 50, 200_001)
        loss = (np.log(grid) - special.digamma(grid) - s) ** 2 + ours.reg_lambda * (grid - 1) ** 2
        k = 1.0 if exponential else grid[loss.argmin()]
        beta = k / z.mean()
        values.append(
            k * math.log(beta)
            - special.gammaln(k)
            + (k - 1) * np.log(z).mean()
            - beta * y_star.mean()
            + beta * np.maximum(column, best).mean()
        )
    return np.array(values)


@pytest.mark.parametrize("reg_lambda", [0.0, 1.0])
def test_values_are_those_of_the_formula(model, reg_lambda):
    x = points(6, seed=4)
    ours = make(model, reg_lambda=reg_lambda)
    np.testing.assert_allclose(ours(x[:, None]).detach(), brute_force(ours, x), atol=2e-3)
    exponential = make(model, VESExp, paths=ours.paths, optima=ours.optima)
    np.testing.assert_allclose(exponential(x[:, None]).detach(), brute_force(ours, x, True), atol=1e-6)


def test_terms_add_up_and_name_the_expected_improvement(model):
    x = points(7, seed=5)[:, None]
    for ours in (make(model), make(model, VESExp)):
        terms = ours.components(x)
        total = terms["const"] + terms["log_term"] + terms["max_value"]
        torch.testing.assert_close(total, ours(x))
        improvement = (ours.paths(x[:, 0]) - ours.best_f).clamp_min(0).mean(dim=0)
        torch.testing.assert_close(terms["ei"], improvement)


def test_values_do_not_depend_on_the_batch(model):
    ours = make(model)
    x = points(6, seed=6)
    whole = ours(x[:, None])
    assert whole.shape == (6,) and isinstance(ours, AcquisitionFunction)
    torch.testing.assert_close(ours(x.view(2, 3, 1, 2)), whole.view(2, 3))
    torch.testing.assert_close(ours(x[:1]), whole[:1])
    torch.testing.assert_close(ours(x[:, None]), whole)  # the same paths again


@pytest.mark.parametrize("reg_lambda", [0.0, 1.0])
def test_the_gradient_is_exact_by_the_envelope_theorem(model, reg_lambda):
    ours = make(model, reg_lambda=reg_lambda)
    x = points(3, seed=7)[:, None].requires_grad_(True)
    (gradient,) = torch.autograd.grad(ours(x).sum(), x)
    step = 1e-6
    with torch.no_grad():
        numeric = torch.stack(
            [
                (ours(x + step * e) - ours(x - step * e)) / (2 * step)
                for e in torch.eye(2, dtype=F64)[:, None, None]
            ],
            dim=-1,
        )
    close = torch.allclose(gradient[:, 0], numeric, rtol=1e-4, atol=1e-5)
    assert close if reg_lambda == 0 else not close  # partial with the pull
    if reg_lambda == 0:
        assert torch.autograd.gradcheck(ours, x, eps=1e-7, atol=1e-4)
    k, beta = (float(v[0]) for v in ours.k_beta(x[:1]))
    fixed = make(model, mode="fixed", k=k, beta=beta)
    assert torch.autograd.gradcheck(fixed, x, eps=1e-7, atol=1e-4)
    # Twice through the same paths.
    torch.autograd.grad(fixed(x).sum(), x)


def test_it_runs_in_optimize_acqf_and_leaves_the_model_alone(model):
    raw = SingleTaskGP(points(8), bowl(points(8))[:, None], torch.full((8, 1), 1e-6, dtype=F64))
    before = {name: value.clone() for name, value in raw.state_dict().items()}
    grad = [p.requires_grad for p in raw.parameters()]
    ours = make(raw)
    grid = draw_sobol_samples(CUBE, 512, 1, seed=1).double()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x, value = optimize_acqf(ours, CUBE, q=1, num_restarts=3, raw_samples=64)
    assert value is not None and float(value) >= float(ours(grid).detach().max()) - 1e-3
    assert x.shape == (1, 2)
    assert grad == [p.requires_grad for p in raw.parameters()]
    for name, kept in raw.state_dict().items():
        torch.testing.assert_close(kept, before[name])


def test_fresh_paths_are_asked_for_and_come_with_the_seed(model):
    x = points(4, seed=8)[:, None]
    ours, same, other = make(model), make(model), make(model, seed=1)
    first = ours(x)
    torch.testing.assert_close(first, same(x))
    assert not torch.allclose(first, other(x))
    second = ours.resample()(x)
    assert not torch.allclose(first, second)
    torch.testing.assert_close(second, same.resample()(x))
    with pytest.raises(UnsupportedError, match="paths were given"):
        make(model, paths=ours.paths).resample()


def test_a_best_value_on_another_scale_would_change_everything():
    # best_f and paths live on the scale of the data.
    X = points(8)
    small, large = fit_gp(X, bowl(X)), fit_gp(X, 1000 + 50 * bowl(X))
    x = points(5, seed=3)[:, None]
    a, b = make(small), make(large)
    torch.testing.assert_close(a.k_beta(x)[0], b.k_beta(x)[0], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(a(x) - math.log(50), b(x), rtol=1e-3, atol=1e-3)


def test_pending_points_raise_the_level(model):
    ours = make(model)
    x = points(5, seed=3)[:, None]
    free = ours(x)
    pending = torch.tensor([[0.2, 0.4], [0.45, 0.4]], dtype=F64)
    ours.set_X_pending(pending)
    with torch.no_grad():
        level = torch.maximum(ours.paths(pending).amax(dim=1), ours.best_f)[:, None]
        z = (ours.optima[:, None] - torch.maximum(ours.paths(x[:, 0]), level)).clamp_min(1e-10)
    k, beta = fit_gamma(z)
    torch.testing.assert_close(ours(x), gamma_log_density(z, k, beta).mean(dim=0))
    assert not torch.allclose(ours(x), free)
    ours.set_X_pending(None)
    torch.testing.assert_close(ours(x), free)
    both = suggest(model, CUBE, q=2, seed=0, **FAST)
    assert both.shape == (2, 2) and float((both[0] - both[1]).norm()) > 1e-3


def test_maxima_at_the_best_value_give_a_finite_flat_function(model):
    ours = make(model, paths=make(model).paths, optima=torch.full((16,), -5.0, dtype=F64), reg_lambda=0.0)
    x = points(4, seed=3)[:, None].requires_grad_(True)
    value = ours(x)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert torch.isfinite(value).all() and (gradient == 0).all()
    assert ours.k_beta(x)[0].tolist() == [1.0] * 4


def test_a_missed_maximum_gives_the_exponential_case(model):
    # One path far above its stated maximum: E z falls below the geometric mean, which Jensen rules out.
    x = torch.full((1, 1, 2), 0.5, dtype=F64)
    paths = make(model).paths
    f = paths(x[:, 0])[:, 0].detach()
    optima = f + 0.02
    optima[0] = f[0] - 0.25
    ours = VESGamma(model, -1e3, CUBE, paths=paths, optima=optima, reg_lambda=0.0)
    exponential = VESExp(model, -1e3, CUBE, paths=paths, optima=optima)
    assert float(ours.k_beta(x)[0]) == 1.0
    torch.testing.assert_close(ours(x), exponential(x))


def test_the_partial_gradient_takes_k_and_beta_for_constants(model):
    ours = make(model, reg_lambda=1.0)
    for x in points(3, seed=7)[:, None, None]:
        x.requires_grad_(True)
        k, beta = (float(v) for v in ours.k_beta(x))
        fixed = make(model, mode="fixed", k=k, beta=beta, paths=ours.paths, optima=ours.optima)
        ((partial_gradient,), (exact,)) = (torch.autograd.grad(f(x).sum(), x) for f in (ours, fixed))
        torch.testing.assert_close(partial_gradient, exact)


def test_alternating_stops_and_reports(model):
    ours = make(model)
    options = {"num_restarts": 1, "raw_samples": 16}
    x, value, info = optimize_ves(ours, CUBE, 2, optimize_acqf_options=options, seed=0)
    assert info["rounds"] == len(info["k"]) == len(info["x"]) and x.shape == (1, 2)
    torch.testing.assert_close(value, ours(x[None])[0].detach())
    assert (ours.mode, ours.k, ours.beta) == ("varpro", None, None)
    settled = make(model, paths=ours.paths, optima=ours.optima)
    _, _, info = optimize_ves(settled, CUBE, 5, tol=10.0, optimize_acqf_options=options, seed=0)
    assert info["converged"] and info["rounds"] == 1
    with pytest.raises(TypeError, match="acq must be a VESGamma"):
        optimize_ves(model, CUBE)


# Model and loop ------------------------------------------------------------------------------------------


def test_the_prior_and_the_noise_are_those_of_the_paper():
    X = points(6, d=3)
    priors: list[tuple[Any, float]] = [("dimension_scaled", math.sqrt(2)), ("vbo", math.log(2))]
    for prior, location in priors:
        fitted = fit_gp(X, 7 * bowl(X), prior)
        found = fitted.covar_module.lengthscale_prior
        assert float(found.loc) == pytest.approx(location + math.log(3) / 2)
        assert float(found.scale) == pytest.approx(math.sqrt(3))
        torch.testing.assert_close(fitted.likelihood.noise, torch.full((6,), 1e-4, dtype=F64))
    assert not any(p.requires_grad for p in fitted.parameters())


def test_duplicated_points_and_constant_values_do_not_end_a_loop():
    def flat(X):
        return torch.ones(len(X), dtype=F64)

    assert len(run_bo(flat, CUBE, n_init=3, n_iter=1, seed=0, **FAST).Y) == 4
    X = torch.full((12, 2), 0.5, dtype=F64)
    fitted = fit_gp(X, torch.ones(12, dtype=F64))
    assert torch.isfinite(suggest(fitted, CUBE, seed=0, **FAST)).all()
    fitted = fit_gp(X, torch.arange(12.0, dtype=F64), noise=1e-7)
    assert torch.isfinite(suggest(fitted, CUBE, seed=0, **FAST)).all()


def test_a_suggestion_that_the_numerics_defeat_is_random(monkeypatch, caplog):
    def defeated(*arguments, **options):
        raise NotPSDError("no jitter helps")

    monkeypatch.setattr(loop, "VESGamma", type("Defeated", (), {"__new__": defeated}))
    trace = run_bo(bowl, CUBE, n_init=2, n_iter=1, seed=0, **FAST)
    assert len(trace.Y) == 3 and "no jitter helps" in caplog.text


def test_runs_share_the_design_repeat_and_climb():
    names: tuple[Any, ...] = loop.ACQUISITIONS
    traces = {acq: run_bo(bowl, CUBE, acq, 4, 1, 5, **FAST) for acq in names}
    ours = traces["ves_gamma"]
    for trace in traces.values():
        torch.testing.assert_close(trace.X[:4], ours.X[:4])
        assert (trace.best.diff() >= 0).all() and len(trace.seconds) == 1
    torch.testing.assert_close(run_bo(bowl, CUBE, "ves_gamma", 4, 1, 5, **FAST).X, ours.X)
    assert math.isfinite(ours.k[0]) and math.isnan(traces["logei"].k[0]) and traces["ves_exp"].k == (1.0,)
    assert not torch.allclose(run_bo(bowl, CUBE, "random", 4, 1, 6).X, ours.X)


def test_an_objective_cannot_move_the_design_and_its_answer_is_checked():
    def careless(X):
        value = bowl(X)
        X.zero_()
        return value

    trace = run_bo(careless, CUBE, "random", 3, 1, 0)
    torch.testing.assert_close(trace.X, run_bo(bowl, CUBE, "random", 3, 1, 0).X)
    assert trace != run_bo(bowl, CUBE, "random", 3, 1, 0) and trace == trace  # as objects

    def returning(answer, X):
        return answer

    for answer in (None, "a", torch.tensor([1j]), [1.0, 2.0]):
        with pytest.raises(InputDataError, match="objective must return one finite number"):
            run_bo(partial(returning, answer), CUBE, "random", 1, 0, 0)

    def burning(X):
        raise RuntimeError("lab on fire")

    with pytest.raises(RuntimeError, match="lab on fire"):
        run_bo(burning, CUBE, "random", 1, 0, 0)


def test_a_trace_tells_itself():
    trace = run_bo(bowl, CUBE, "random", 3, 2, 0)
    frame = trace.to_frame()
    assert frame.columns == ["evaluation", "x0", "x1", "y", "best", "k", "seconds"] and frame.height == 5
    assert json.loads(json.dumps(trace.to_dict()))["Y"] == trace.Y.tolist()
    assert "random: best value" in trace.summary()
    assert trace.simple_regret(1.0) == pytest.approx(1 - float(trace.Y.max()))
    assert "vega-lite" in trace.plot().to_dict()["$schema"]


def test_it_maximises():
    x = suggest(fit_gp(points(20), bowl(points(20))), CUBE, seed=0, **FAST)
    assert float(bowl(x)) > float(bowl(points(20)).quantile(0.5))


# Bad input -----------------------------------------------------------------------------------------------


def test_models_of_other_kinds_are_refused(model):
    X = points(6)
    two = SingleTaskGP(X, torch.stack([bowl(X), -bowl(X)], dim=1))
    for wrong in (two, ModelListGP(model, model)):
        with pytest.raises((UnsupportedError, TypeError), match="model must"):
            VESGamma(wrong, 0.0, CUBE)
    batched = SingleTaskGP(X.expand(2, 6, 2), bowl(X)[:, None].expand(2, 6, 1))
    with pytest.raises(UnsupportedError, match="model must not be batched"):
        draw_paths(batched)
    with pytest.raises(TypeError, match="model must be an exact Gaussian process"):
        VESGamma(ModelListGP(model), 0.0, CUBE)
    mock = MockModel(MockPosterior(mean=torch.zeros(1, 1)))
    with pytest.raises(TypeError, match="model must be an exact Gaussian process"):
        suggest(mock, CUBE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        single = SingleTaskGP(X.float(), bowl(X).float()[:, None])
    with pytest.raises(UnsupportedError, match="model must be in float64"):
        draw_paths(single)


def test_missing_and_wrong_arguments_are_named(model):
    wrong: list[tuple[Any, Any, str]] = [
        (None, CUBE, "best_f"),
        (0.0, None, "bounds"),
        (math.nan, CUBE, "best_f"),
        (0.0, CUBE[:1], "bounds"),
        (0.0, CUBE.flip(0), "bounds"),
        (0.0, torch.zeros(2, 3, dtype=F64), "bounds"),
    ]
    for best, bounds, name in wrong:
        with pytest.raises((InputDataError, ValueError), match=f"^{name} must"):
            VESGamma(model, best, bounds)
    with pytest.raises(InputDataError, match='k and beta must be given in the mode "fixed"'):
        make(model, mode="fixed")
    with pytest.raises(InputDataError, match='k and beta are for the mode "fixed"'):
        make(model, k=1.0)
    with pytest.raises(InputDataError, match="optima must come with the paths"):
        make(model, optima=torch.zeros(3, dtype=F64))
    with pytest.raises(ValueError, match="sampler_options must be one of"):
        make(model, sampler_options={"rows": 3})
    with pytest.raises(ValueError, match="acq must be one of"):
        suggest(model, CUBE, acq="pi")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seed must be at least 0"):
        suggest(model, CUBE, seed=-1)


def test_several_points_a_batch_are_unsupported(model):
    with pytest.raises(UnsupportedError, match=re.escape("X must hold one point a batch, got q = 2")):
        make(model)(points(4).view(2, 2, 2))


def test_noise_and_inputs_outside_of_the_cube_warn():
    X = points(6)
    noisy = SingleTaskGP(X, bowl(X)[:, None], torch.full((6, 1), float(bowl(X).var()) / 10, dtype=F64))
    with pytest.warns(InputDataWarning, match="noise-free"):
        make(noisy)
    wide = SingleTaskGP(
        X,
        1000 * bowl(X)[:, None],
        torch.full((6, 1), 1e-4, dtype=F64) * (1000 * bowl(X)).var(),
        outcome_transform=None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputDataWarning)
        make(wide)  # hardly noisy, on the scale of its data
    with pytest.warns(InputDataWarning, match="unit cube"):
        fit_gp(3 * X, bowl(X))
    with pytest.raises(InputDataError, match="objective must return one finite number"):
        run_bo(lambda x: torch.tensor([math.nan]), CUBE, n_init=1, n_iter=0)
    with pytest.raises(InputDataError, match="Y must be finite"):
        fit_gp(X, bowl(X).log())


# Study ---------------------------------------------------------------------------------------------------

STATES = replace(study._SIZES["smoke"], n_init=8, n_states=1, state_paths=32, n_grid=256, n_x=16)


def judged(metric, value):
    check = next(c for claim in lookup(SLUG).claims for c in claim.checks if c.metric == metric)
    return Bound.parse(check.bound).contains(value)


@pytest.fixture
def one_state():
    problem = study._synthetic("Branin", 2)
    X = points(8, seed=21)
    trace = {"X": X.numpy(), "Y": problem.objective(X).numpy()}
    runs = {problem.name: dict.fromkeys(("ves_gamma", "logei"), trace)}
    return lambda: study._state(Context("smoke", seed=100), STATES, problem, runs, 0)


def test_planted_maxima_below_the_paths_turns_c1a(monkeypatch, one_state):
    assert judged("same_argmax", float(one_state()["same_argmax"]))

    def too_low(paths, bounds, **options):
        with torch.no_grad():
            return bounds[:1], paths(bounds.mean(dim=0, keepdim=True))[:, 0] - 10 * 40.0

    # The gap is at its least everywhere, and the function flat.
    monkeypatch.setattr(acquisition, "path_maxima", too_low)
    assert not judged("same_argmax", float(one_state()["same_argmax"]))


def test_planted_exploding_k_turns_c3b(monkeypatch, one_state):
    assert judged("tightness_gain", one_state()["tightness_gain"])
    monkeypatch.setattr(gamma, "_solve", lambda s, *regularisation: torch.full_like(s, 1e3))
    assert not judged("tightness_gain", one_state()["tightness_gain"])


def test_planted_dropped_term_turns_c3b(monkeypatch, one_state):
    def without_normaliser(self, X):
        gaps = self._gaps(self._paths_at(X))
        k, beta = self._k_beta(gaps)
        return k * beta.log() - beta * gaps.mean + 0.5 * (k - 1) * gaps.mean_log

    monkeypatch.setattr(VESGamma, "forward", without_normaliser)
    assert not judged("tightness_gain", one_state()["tightness_gain"])


@pytest.mark.parametrize(("k", "beta"), [(0.05, 3.0), (0.6, 1e4), (1.0, 0.1), (40.0, 7.0)])
def test_the_mass_of_the_density_is_one(k, beta):
    assert study._mass(k, beta) == pytest.approx(1.0, abs=1e-8)


def test_paper_preset_optimises_what_the_folder_names(tmp_path):
    program = "import json, sys; x = json.load(sys.stdin); print(-sum((v - 2) ** 2 for v in x))"
    (tmp_path / "bowl.py").write_text(program, encoding="utf-8")
    (tmp_path / "objectives.toml").write_text(
        f'[[objective]]\nname = "bowl"\nlower = [0, 0]\nupper = [5, 5]\n'
        f'command = [{json.dumps(sys.executable)}, "bowl.py"]\n',
        encoding="utf-8",
    )
    measured = study.run(Context("paper", seed=100, data_folder=tmp_path, limit=1))
    assert set(lookup(SLUG).metrics("paper")) == set(measured.metrics)
    table = measured.tables["objectives"]
    assert table.group_by("acq").len()["len"].to_list() == [3] * 4 and (table["best"] < 0).all()
    with pytest.raises(ValueError, match=re.escape("objectives.toml")):
        study.run(Context("paper", seed=100))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("print('abc')", "must print one number, got 'abc"),
        ("pass", "must print one number, got ''"),
        ("import sys; sys.exit('no licence')", "must end with status 0, got 1 at [0.0, 0.0]: no licence"),
    ],
)
def test_a_command_that_gives_no_number_is_named(tmp_path, program, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        study._call([sys.executable, "-c", program], tmp_path, torch.zeros(1, 2, dtype=F64))
    with pytest.raises(ValueError, match="cannot be run"):
        study._call(["no-such-program"], tmp_path, torch.zeros(1, 2, dtype=F64))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no [[objective]]"),
        ("objective = [", "objectives.toml: "),
        ('[[objective]]\nname = "a"\n', "an objective has no command, lower, upper"),
        ('[[objective]]\nname = "a"\nlower = [0]\nupper = [1, 2]\ncommand = ["x"]', "one number an input"),
        ('[[objective]]\nname = "a"\nlower = [1]\nupper = [0]\ncommand = ["x"]', "lower below upper"),
        (
            '[[objective]]\nname = "a"\nlower = [0]\nupper = [1]\ncommand = "x y"',
            "a list of words, got 'x y'",
        ),
    ],
)
def test_a_folder_of_another_layout_is_refused_before_the_runs(tmp_path, monkeypatch, text, message):
    monkeypatch.delattr(study, "_optimise")
    (tmp_path / "objectives.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(message)):
        study.run(Context("paper", seed=100, data_folder=tmp_path, limit=1))


@pytest.mark.slow
def test_the_long_preset_reports_arms_without_every_acquisition(monkeypatch):
    problem = study._synthetic("Branin", 2)

    def arm(ctx, size, problems, runs):
        runs["without UCB"] = {acq: runs[problem.name][acq] for acq in study.ACQUISITIONS[:3]}
        return {}

    monkeypatch.setattr(study, "_long", arm)
    monkeypatch.setitem(study._SIZES, "long", study._SIZES["smoke"])
    measured = study.run(Context("long", seed=100, limit=1))
    assert "without UCB" in measured.tables["suggestions"]["problem"].to_list()


@pytest.mark.slow
def test_the_long_arms_deliver_their_claims():
    measured = study._long(
        Context("long", seed=100, limit=1),
        replace(study._SIZES["smoke"], n_init=3),
        [study._synthetic("Branin", 2)],
        {},
    )
    card = lookup(SLUG)
    assert set(card.metrics("long")) - set(card.metrics("standard")) <= set(measured)
    assert all(np.isfinite(np.asarray(value)).all() for value in measured.values())


@pytest.mark.slow
def test_the_cost_is_linear_in_paths_and_observations():
    import time

    def seconds(n, paths):
        X = points(n, d=6)
        ours = VESGamma(
            fit_gp(X, bowl(X)),
            0.0,
            torch.stack([torch.zeros(6), torch.ones(6)]).double(),
            paths,
            sampler_options={"raw": 16},
        )
        x = points(512, d=6, seed=1)[:, None]
        best = math.inf
        with torch.no_grad():
            for _ in range(5):
                start = time.perf_counter()
                ours(x)
                best = min(best, time.perf_counter() - start)
        return best

    assert seconds(50, 512) < 3 * 2 * seconds(50, 256)
    assert seconds(400, 128) < 8 * 1.5 * seconds(50, 128)


def test_the_module_names_its_parts():
    assert set(ves.__all__) >= {entry.partition(":")[2] for entry in lookup(SLUG).api}
    assert isinstance(run_bo(bowl, CUBE, "random", 1, 0, 0), BOTrace)
