from __future__ import annotations

import math
import re
import sys
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from tests.conformance.contract import Call
from theses.catalogue import lookup
from theses.catalogue.card import Bound
from theses.datasets.returns import load_weekly_returns
from theses.decision.bayesian_ambiguity import (
    BDRO,
    BRO,
    DROBAS,
    BetaBernoulli,
    Custom,
    DirichletCategorical,
    EmpiricalKLDRO,
    GammaExponential,
    GammaPoisson,
    GammaWithKnownShape,
    InfinitePopulationWarning,
    MvNormalKnownCov,
    Newsvendor,
    NormalGamma,
    NormalInverseWishart,
    NormalKnownVariance,
    Portfolio,
    RobustPortfolio,
    WassersteinDRO,
    frontier,
    out_of_sample_costs,
    worst_case_expectation,
)
from theses.decision.bayesian_ambiguity.costs import load_cvxpy
from theses.decision.bayesian_ambiguity.dual import minimise, minimise_linear_gaussian
from theses.decision.bayesian_ambiguity.peers import _DataSolver
from theses.evidence import Context
from theses.studies.decision import bayesian_ambiguity as study

SLUG = "bayesian-ambiguity"
cp = load_cvxpy()
SIGMA = np.array([[2.0, 0.6], [0.6, 1.0]])

# A model with an informative prior, data, and a law of its family that is off the posterior's centre.
CASES: dict[str, tuple[Any, Any, Any]] = {
    "NormalGamma": (NormalGamma(1, 2, 3, 4), [2.0, 3.5, 1.0], (np.array(0.3), np.array(2.0))),
    "NormalKnownVariance": (
        NormalKnownVariance(1, 2, 3),
        [2.0, 3.5, 1.0],
        (np.array(0.3), np.array(2.0)),
    ),
    "MvNormalKnownCov": (
        MvNormalKnownCov([1, 0], 2, SIGMA),
        [[2.0, 1.0], [0.0, 1.0]],
        (np.array([0.5, -0.5]), np.diag([1.0, 3.0])),
    ),
    "NormalInverseWishart": (
        NormalInverseWishart([1, 0], 2, 5, 5 * SIGMA),
        [[2.0, 1.0], [0.0, 1.0], [1.0, -1.0]],
        (np.array([0.5, -0.5]), np.diag([1.0, 3.0])),
    ),
    "GammaExponential": (GammaExponential(3, 2), [0.4, 1.5, 0.7], (np.array(0.8),)),
    "GammaPoisson": (GammaPoisson(3, 2), [1, 4, 2], (np.array(2.5),)),
    "GammaWithKnownShape": (GammaWithKnownShape(2.5, 3, 2), [0.4, 1.5, 0.7], (np.array(0.8),)),
    "BetaBernoulli": (BetaBernoulli(2, 3), [1, 0, 1, 1], (np.array(0.25),)),
    "DirichletCategorical": (
        DirichletCategorical([1, 2, 3], [10.0, 20.0, 50.0]),
        [0, 0, 2],
        (np.array([0.2, 0.5, 0.3]),),
    ),
}
HEAVY = {"NormalGamma", "NormalInverseWishart", "GammaExponential", "GammaWithKnownShape"}


def calls() -> list[Call]:
    found = []
    rng = np.random.default_rng(0)
    for name, (model, data, _) in CASES.items():
        fitted = model.fit(data)
        many = fitted.sample_posterior(4, 0)
        keys = [str(i) for i in range(len(many))]
        found += [
            Call(
                f"{name}.fit",
                _given(model.fit, data=np.asarray(data, dtype=float)),
                ("data",),
                allowed={"data": ("empty", *(("rank",) if model.dim == 1 else ()))},
            ),
            Call(
                f"{name}.draw",
                _given(fitted.draw, params=many, n=2, random_state=0),
                tuple(f"params.{k}" for k in keys),
                paired=tuple(f"params.{k}" for k in keys) if len(keys) > 1 else (),
            ),
            Call(
                f"{name}.kl",
                _given(fitted.kl, q_params=many, p_params=many),
                tuple(f"{side}.{k}" for side in ("q_params", "p_params") for k in keys),
                paired=tuple(f"{side}.{k}" for side in ("q_params", "p_params") for k in keys),
            ),
        ]
    found += [
        Call(
            "ConjugateModel.fit",
            lambda: (NormalGamma().fit, {"data": rng.random((4, 1))}),
            ("data",),
            allowed={"data": ("empty", "rank")},
        ),
        Call(
            "ConjugateModel.draw",
            lambda: (NormalGamma().draw, {"params": (np.zeros(3), np.ones(3)), "n": 2}),
            ("params.0", "params.1"),
            paired=("params.0", "params.1"),
        ),
        Call(
            "ConjugateModel.kl",
            lambda: (
                NormalGamma().kl,
                {"q_params": (np.zeros(3), np.ones(3)), "p_params": (np.zeros(3), np.ones(3))},
            ),
            ("q_params.0", "q_params.1", "p_params.0", "p_params.1"),
            paired=("q_params.0", "q_params.1", "p_params.0", "p_params.1"),
        ),
        Call(
            "MvNormalKnownCov",
            lambda: (MvNormalKnownCov, {"mu0": np.zeros(2), "kappa0": 1, "cov": np.eye(2)}),
            ("mu0", "cov"),
            paired=("mu0", "cov"),
        ),
        Call(
            "NormalInverseWishart",
            lambda: (NormalInverseWishart, {"mu0": np.zeros(2), "kappa0": 1, "nu0": 4, "Psi0": np.eye(2)}),
            ("mu0", "Psi0"),
            paired=("mu0", "Psi0"),
        ),
        Call(
            "DirichletCategorical",
            lambda: (DirichletCategorical, {"alpha0": np.ones(3), "values": np.ones(3)}),
            ("alpha0", "values"),
            paired=("alpha0", "values"),
            allowed={"values": ("rank",)},
        ),
        Call(
            "worst_case_expectation",
            lambda: (
                worst_case_expectation,
                {"costs": np.arange(3.0), "radius": 0.1, "probabilities": np.full(3, 1 / 3)},
            ),
            ("costs", "probabilities"),
            paired=("costs", "probabilities"),
        ),
        Call("out_of_sample_costs", lambda: (out_of_sample_costs, _small_frontier()), ("epsilons",)),
        Call("frontier", lambda: (frontier, _small_frontier()), ("epsilons",)),
    ]
    costs: dict[str, Any] = {
        "Cost": Newsvendor(),
        "Newsvendor": Newsvendor(),
        "Portfolio": Portfolio(),
        "Custom": Custom(lambda x, s: (s[:, 0] - x[0]) ** 2, lambda x, s: (x[0] - s[:, 0]) ** 2),
    }
    for name, cost in costs.items():
        dim = 2 if name == "Portfolio" else 1

        def evaluate(cost: Any = cost, dim: int = dim) -> Any:
            return cost.evaluate, {"x": np.ones(dim), "samples": np.arange(4.0 * dim).reshape(4, dim)}

        def cvx(cost: Any = cost, dim: int = dim) -> Any:
            return (
                lambda samples: cost.cvx(cp.Variable(dim), samples),
                {"samples": np.arange(4.0 * dim).reshape(4, dim)},
            )

        flat = ("rank",) if dim == 1 else ()
        found += [
            Call(f"{name}.evaluate", evaluate, ("x", "samples"), allowed={"samples": flat}),
            Call(f"{name}.cvx", cvx, ("samples",)),
        ]
    solvers: dict[str, Any] = {
        "DROBAS": lambda: DROBAS(NormalGamma(), "PP"),
        "BRO": lambda: BRO(NormalGamma()),
        "BDRO": lambda: BDRO(NormalGamma()),
        "EmpiricalKLDRO": EmpiricalKLDRO,
        "WassersteinDRO": WassersteinDRO,
    }
    for name, make in solvers.items():
        legal = ("rank",) if name in ("EmpiricalKLDRO", "WassersteinDRO") else ("empty", "rank")
        found.append(
            Call(
                f"{name}.fit",
                _given(make().fit, data=np.arange(4.0)[:, None]),
                ("data",),
                allowed={"data": legal},
            )
        )
    X = rng.normal(0, 0.02, (12, 3))
    fitted_portfolio = RobustPortfolio().fit(X)
    found += [
        Call("RobustPortfolio.fit", lambda: (RobustPortfolio().fit, {"X": X.copy(), "y": None}), ("X",)),
        Call("RobustPortfolio.predict", lambda: (fitted_portfolio.predict, {"X": X.copy()}), ("X",)),
        Call("RobustPortfolio.score", lambda: (fitted_portfolio.score, {"X": X.copy(), "y": None}), ("X",)),
    ]
    return found


def _given(function, **arguments) -> Any:
    return lambda: (function, dict(arguments))


def _small_frontier() -> dict[str, Any]:
    return {
        "methods": {"KL": lambda epsilon, g: EmpiricalKLDRO(epsilon)},
        "epsilons": np.array([0.1, 1.0]),
        "data_generator": lambda g: (g.normal(25, 10, 5), g.normal(25, 10, 5)),
        "n_rep": 2,
        "random_state": 0,
    }


# Models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_g_and_the_nominal_law_are_those_of_the_expected_divergence(name):
    # E KL(Q || P_theta) = KL(Q || P_bar) + G for every Q.
    model, data, other = CASES[name]
    fitted = model.fit(data)
    draws = fitted.sample_posterior(200_000, 1)
    nominal = fitted.eta_bar().params
    third = tuple(param[0] for param in draws)
    for q in (other, nominal, third):
        divergences = fitted.kl(q, draws)
        error = divergences.std() / math.sqrt(len(divergences))
        assert divergences.mean() == pytest.approx(float(fitted.kl(q, nominal)) + fitted.G(), abs=5 * error)
    assert fitted.G() > 0
    # More data, less spread.
    assert model.fit(np.concatenate([np.asarray(data)] * 30)).G() < fitted.G()


def _log_likelihood(name, model, params, data):
    data = np.asarray(data, dtype=float)
    if name in ("NormalGamma", "NormalKnownVariance"):
        mean, variance = params
        return stats.norm.logpdf(data[:, None], mean, np.sqrt(variance)).sum(axis=0)
    if name in ("MvNormalKnownCov", "NormalInverseWishart"):
        mean, cov = params
        gap = data[:, None] - mean
        square = np.einsum("nki,kij,nkj->nk", gap, np.linalg.inv(cov), gap)
        return (-0.5 * square - 0.5 * np.linalg.slogdet(cov)[1]).sum(axis=0)
    (theta,) = params
    if name == "GammaPoisson":
        return stats.poisson.logpmf(data[:, None], theta).sum(axis=0)
    if name == "BetaBernoulli":
        return stats.bernoulli.logpmf(data[:, None], theta).sum(axis=0)
    if name == "DirichletCategorical":
        return np.log(theta[:, data.astype(int)]).sum(axis=1)
    shape = 1.0 if name == "GammaExponential" else model.shape
    return stats.gamma.logpdf(data[:, None], shape, scale=1 / theta).sum(axis=0)


@pytest.mark.parametrize("name", CASES)
def test_posteriors_are_the_prior_weighed_by_the_likelihood(name):
    model, data, _ = CASES[name]
    prior = model.sample_posterior(300_000, 2)
    weights = np.exp(_log_likelihood(name, model, prior, data))
    weights /= weights.sum()
    posterior = model.fit(data).sample_posterior(300_000, 3)
    for before, after in zip(prior, posterior, strict=True):
        a, b = before.reshape(len(before), -1), after.reshape(len(after), -1)
        mean = weights @ a
        error = np.sqrt((weights**2) @ (a - mean) ** 2) + b.std(axis=0) / math.sqrt(len(b))
        assert (np.abs(mean - b.mean(axis=0)) <= 5 * error + 1e-9).all()


@pytest.mark.parametrize("name", CASES)
def test_fitting_leaves_the_model_and_without_data_says_that_the_prior_is_left(name, caplog):
    caplog.set_level("INFO")
    model, data, _ = CASES[name]
    before = model.G()
    assert model.fit(data).G() == model.fit(list(data)).G() != before == model.G()
    none = model.fit([])
    assert none.n_samples == 0 and none.G() == before
    assert "no observations: the posterior" in caplog.text
    assert np.allclose(none.eta_bar().params[0], model.eta_bar().params[0])


def test_predictive_laws_are_the_known_ones():
    n = 40_000
    normal = NormalGamma(1, 2, 3, 4).fit([2.0, 3.5, 1.0])
    scale = math.sqrt(normal.beta_n * (normal.kappa_n + 1) / (normal.alpha_n * normal.kappa_n))
    law: Any = stats.t(2 * normal.alpha_n, normal.mu_n, scale)
    assert stats.kstest(normal.predictive(n, 0)[:, 0], law.cdf).pvalue > 1e-4
    lomax = GammaExponential(3, 2).fit([0.4, 1.5])
    law = stats.lomax(lomax.alpha_n, scale=lomax.beta_n)
    assert stats.kstest(lomax.predictive(n, 0)[:, 0], law.cdf).pvalue > 1e-4
    counts = GammaPoisson(3, 2).fit([1, 4, 2])
    law = stats.nbinom(counts.alpha_n, counts.beta_n / (counts.beta_n + 1))
    seen = np.bincount(counts.predictive(n, 0)[:, 0].astype(int), minlength=6)[:6] / n
    assert np.abs(seen - law.pmf(np.arange(6))).max() < 0.01
    categories = DirichletCategorical([1, 2, 3], [10, 20, 50]).fit([0, 0, 2])
    drawn = categories.predictive(n, 0)[:, 0]
    assert np.abs([np.mean(drawn == v) for v in (10, 20, 50)] - np.array([3, 2, 4]) / 9).max() < 0.01
    vector = MvNormalKnownCov([0, 0], 1, SIGMA).fit([[1.0, 1.0]])
    assert np.abs(np.cov(vector.predictive(n, 0).T) - 1.5 * SIGMA).max() < 0.08
    assert {name for name, (model, _, _) in CASES.items() if model.heavy_predictive} == HEAVY


@pytest.mark.parametrize("name", CASES)
def test_divergences_of_a_family_are_those_of_its_samples(name):
    # KL as the mean log ratio, with densities written out elsewhere.
    model, data, q = CASES[name]
    if name == "DirichletCategorical":
        assert model.kl(q, (np.array([0.4, 0.3, 0.3]),)) == pytest.approx(
            stats.entropy(q[0], [0.4, 0.3, 0.3])
        )
        return
    p = model.fit(data).eta_bar().params
    samples = model.draw(tuple(v[None] for v in q), 200_000, 0)[0]
    rows = samples if samples.shape[1] > 1 else samples[:, 0]
    one = [
        np.array(
            [
                _log_likelihood(name, model, tuple(v[None] for v in params), rows[i : i + 1])[0]
                for i in range(3_000)
            ]
        )
        for params in (q, p)
    ]
    ratio = one[0] - one[1]
    assert ratio.mean() == pytest.approx(
        float(model.kl(q, p)), abs=5 * ratio.std() / math.sqrt(len(ratio)) + 1e-9
    )


# The dual ------------------------------------------------------------------------------------------------


def primal(costs, radius, p=None):
    n = len(costs)
    p = np.full(n, 1 / n) if p is None else p
    unit = float(np.std(costs)) or 1.0
    q = cp.Variable(n)
    problem = cp.Problem(
        cp.Maximize(costs / unit @ q), [cp.sum(q) == 1, q >= 0, cp.sum(cp.rel_entr(q, p)) <= radius]
    )
    problem.solve(solver="CLARABEL")
    return problem.value * unit


@pytest.mark.parametrize("seed", range(6))
def test_the_dual_has_the_value_of_the_worst_law(seed):
    rng = np.random.default_rng(seed)
    costs = rng.normal(30, 10, 12)
    p = rng.dirichlet(np.full(12, 3.0)) if seed % 2 else None
    radius = float(np.exp(rng.uniform(-4, 0.6)))
    worst = worst_case_expectation(costs, radius, p)
    assert worst.value == pytest.approx(primal(costs, radius, p), rel=1e-6)
    centre = np.full(12, 1 / 12) if p is None else p
    assert worst.weights.sum() == pytest.approx(1)
    assert worst.weights @ costs == pytest.approx(worst.value, rel=1e-8)
    assert stats.entropy(worst.weights, centre) == pytest.approx(radius, rel=1e-8)
    by_search = minimize_scalar(
        lambda t: np.exp(t) * (radius + logsumexp(costs / np.exp(t), b=centre)),
        bounds=(-5, 10),
        method="bounded",
    )
    assert worst.value == pytest.approx(by_search.fun, rel=1e-7)
    assert worst.gamma == pytest.approx(np.exp(by_search.x), rel=1e-2)
    assert np.allclose(worst.weights, _normalised(centre * np.exp((costs - costs.max()) / worst.gamma)))


def _normalised(weights):
    return weights / weights.sum()


def test_limits_of_the_radius():
    costs = np.array([1.0, 4.0, 4.0, 2.0])
    assert worst_case_expectation(costs, 0.0).value == costs.mean()
    assert worst_case_expectation(costs, 0.0).gamma == math.inf
    everything = worst_case_expectation(costs, math.log(2))
    assert (everything.value, everything.gamma) == (4.0, 0.0)
    assert everything.weights.tolist() == [0, 0.5, 0.5, 0]
    assert worst_case_expectation(costs, 50.0).value == 4.0
    near = worst_case_expectation(costs, math.log(2) - 1e-9)
    assert 4 - 1e-6 < near.value <= 4
    assert worst_case_expectation(costs, 1e-12).value == pytest.approx(costs.mean(), abs=1e-5)
    flat = worst_case_expectation([3.0, 3.0], 0.4)
    assert flat.value == 3.0 and flat.weights.tolist() == [0.5, 0.5]
    # Nothing overflows.
    huge = worst_case_expectation(1e200 * costs, 0.3)
    assert huge.value == pytest.approx(1e200 * worst_case_expectation(costs, 0.3).value)


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float64, st.integers(2, 20), elements=st.floats(-50, 50, width=32)),
    st.floats(1e-4, 3),
    st.floats(-100, 100),
    st.floats(0.01, 100),
)
def test_the_worst_expectation_is_coherent(costs, radius, shift, scale):
    value = worst_case_expectation(costs, radius).value
    tolerance = 1e-7 * (1 + np.abs(costs).max())
    assert costs.mean() - tolerance <= value <= costs.max() + tolerance
    assert worst_case_expectation(costs + shift, radius).value == pytest.approx(
        value + shift, abs=10 * tolerance + 1e-7 * abs(shift)
    )
    assert worst_case_expectation(scale * costs, radius).value == pytest.approx(
        scale * value, abs=10 * scale * tolerance
    )
    assert worst_case_expectation(costs[::-1], radius).value == pytest.approx(value, abs=tolerance)
    assert worst_case_expectation(costs, 1.5 * radius).value >= value - tolerance


@pytest.mark.parametrize("n", [25, 400])
def test_search_and_cones_agree(n):
    samples = np.random.default_rng(0).normal(25, 10, (1, n, 1))
    for radius in (0.0, 0.05, 0.45, 2.0):
        a = minimise(Newsvendor(), samples, radius)
        b = minimise(Newsvendor(), samples, radius, force_cones=True)
        assert b.status == "optimal"
        assert a.value == pytest.approx(b.value, rel=1e-7)
        assert a.value <= b.value * (1 + 1e-9)


def test_the_decision_is_the_quantile_at_radius_zero_and_balances_the_extremes_far_out():
    samples = np.random.default_rng(0).normal(25, 10, 500)
    decision = EmpiricalKLDRO(0.0).fit(samples).solve(Newsvendor(3, 8))
    assert decision.x[0] == pytest.approx(np.quantile(samples, 8 / 11, method="inverted_cdf"), abs=1e-5)
    far = EmpiricalKLDRO(20.0).fit(samples).solve(Newsvendor(3, 8))
    assert far.x[0] == pytest.approx((3 * samples.min() + 8 * samples.max()) / 11, abs=1e-5)
    normal = BRO(NormalKnownVariance(25, 1e9, 100), 20_000, random_state=0).fit([])
    assert normal.solve(Newsvendor(3, 8)).x[0] == pytest.approx(stats.norm.ppf(8 / 11, 25, 10), abs=0.5)


def test_bayesian_dro_has_a_multiplier_for_each_parameter():
    samples = np.random.default_rng(0).normal([[0], [40]], [[1], [15]], (2, 30))[..., None]
    cost, radius = Newsvendor(), 0.4
    found = minimise(cost, samples, radius)
    cones = minimise(cost, samples, radius, force_cones=True)
    assert found.value == pytest.approx(cones.value, rel=1e-6)
    inner = [worst_case_expectation(cost.evaluate(found.x, ball), radius) for ball in samples]
    assert found.value == pytest.approx(np.mean([w.value for w in inner]))
    assert np.allclose(1 / found.beta, [w.gamma for w in inner], rtol=1e-6)
    assert abs(found.beta[0] / found.beta[1] - 1) > 0.5
    # One multiplier for all is another, larger value.
    losses = [cost.evaluate(found.x, ball) for ball in samples]
    common = minimize_scalar(
        lambda t: np.exp(t) * (radius + np.mean([logsumexp(f / np.exp(t)) - math.log(30) for f in losses])),
        bounds=(-2, 8),
        method="bounded",
    ).fun
    assert common > found.value * 1.001


def test_vector_newsvendor_by_cones_meets_a_direct_search():
    samples = np.random.default_rng(0).normal([10, 20], [2, 6], (40, 2))
    cost = Newsvendor(dim=2)
    found = minimise(cost, samples[None], 0.3)
    assert found.status == "optimal"
    for step in np.random.default_rng(1).normal(0, 0.3, (60, 2)):
        assert worst_case_expectation(cost.evaluate(found.x + step, samples), 0.3).value >= found.value - 1e-6


# The linear cost under a normal law ------------------------------------------------------------------------


def test_closed_form_is_the_worst_case_over_the_normal_law():
    # For fixed x, the tilted normal law has divergence r and expectation -m'x + sqrt(2 r x'Sx).
    m, S, r = np.array([0.01, 0.03]), 0.01 * SIGMA, 0.2
    found = minimise_linear_gaussian(m, S, r, Portfolio())
    x = found.x
    shifted = m - S @ x * found.beta[0]
    model = MvNormalKnownCov(m, 1, S)
    assert model.kl((shifted, S), (m, S)) == pytest.approx(r, rel=1e-6)
    assert -shifted @ x == pytest.approx(found.value, rel=1e-6)
    grid = np.linspace(0, 1, 2_001)
    both = np.stack([grid, 1 - grid], axis=1)
    values = -both @ m + np.sqrt(2 * r * np.einsum("ki,ij,kj->k", both, S, both))
    assert found.value == pytest.approx(values.min(), abs=1e-7)
    assert x[0] == pytest.approx(grid[values.argmin()], abs=2e-3)


def test_closed_form_and_samples_agree():
    returns = load_weekly_returns(4).values[:60]
    model = MvNormalKnownCov(np.zeros(4), 0.01, np.cov(returns.T))
    exact = DROBAS(model, epsilon=0.3, random_state=0).fit(returns).solve(Portfolio())
    sampled = DROBAS(model, epsilon=0.3, n_samples=3_000, mode="sample", random_state=0).fit(returns)
    decision = sampled.solve(Portfolio())
    assert (exact.method, decision.method) == ("closed form", "samples")
    assert decision.value == pytest.approx(exact.value, rel=0.05)
    assert np.abs(decision.x - exact.x).max() < 0.1
    # PP: the same around the predictive law, whose covariance is wider.
    pp = DROBAS(model, "PP", 0.3, mode="exact").fit(returns)
    wide = pp.solve(Portfolio())
    cov = np.cov(returns.T) * (1 + 1 / pp.model_.kappa_n)
    spread = math.sqrt(0.6 * wide.x @ cov @ wide.x)
    assert wide.value == pytest.approx(-pp.model_.mu_n @ wide.x + spread, rel=1e-9)
    samples, weights = pp.worst_case()
    assert weights.sum() == pytest.approx(1)
    assert -samples.mean(axis=0) @ wide.x == pytest.approx(wide.value, abs=0.005)


def test_constraints_are_kept():
    returns = load_weekly_returns(4).values[:60]
    model = NormalInverseWishart(np.zeros(4), 0.01, 6, 6 * np.diag(returns.var(axis=0)))
    robust = DROBAS(model, epsilon="auto", random_state=0).fit(returns)
    capped = robust.solve(Portfolio(), (0.0, 0.3))
    assert capped.x.max() <= 0.3 + 1e-6 and capped.x.sum() == pytest.approx(1)
    assert capped.value >= robust.solve(Portfolio()).value - 1e-9
    own = robust.solve(Portfolio(), lambda x: [cp.sum(x) == 1, x >= 0, x[0] >= 0.5])
    assert own.x[0] >= 0.5 - 1e-6
    none = robust.solve(Portfolio(), (0.0, 0.2))
    assert none.x is None and none.status == "infeasible" and none.value == math.inf
    endless = robust.solve(Portfolio(), lambda x: [])
    assert endless.x is None or endless.radius > 0
    stock = DROBAS(NormalGamma(), random_state=0).fit([20.0, 30.0])
    assert stock.solve(Newsvendor(), (0, 10)).x[0] == pytest.approx(10)
    assert stock.solve(Newsvendor(), (5, 4)).status == "infeasible"
    by_cones = stock.solve(Newsvendor(), lambda x: [x <= 10])
    assert by_cones.x[0] == pytest.approx(10, abs=1e-4)


# DRO-BAS -------------------------------------------------------------------------------------------------


def test_pe_is_an_expected_divergence_around_the_nominal_law():
    data = [20.0, 31.0, 25.0, 18.0]
    robust = DROBAS(NormalGamma(0, 0.01, 1, 1), epsilon=0.5, random_state=0).fit(data)
    decision = robust.solve(Newsvendor())
    model = NormalGamma(0, 0.01, 1, 1).fit(data)
    assert decision.radius == pytest.approx(0.5 - model.G())
    samples = model.eta_bar().sample(900, 0)
    assert (decision.samples == samples).all()
    costs = Newsvendor().evaluate(decision.x, samples)
    assert decision.value == pytest.approx(worst_case_expectation(costs, 0.5 - model.G()).value)
    assert decision.gamma == pytest.approx(worst_case_expectation(costs, 0.5 - model.G()).gamma)
    mean, variance = model.eta_bar().params
    assert variance == pytest.approx(model.beta_n / model.alpha_n)
    assert {"xi0", "weight"} == set(decision.to_frame().columns)
    assert decision.to_dict()["nominal"] == {"mean": float(mean), "variance": float(variance)}
    assert "radius 0.5" in decision.summary()


def test_a_categorical_model_is_solved_over_its_expected_divergence():
    # Written out: E KL(q || p) = sum q log q - sum q E log p.
    from scipy.special import digamma

    model = DirichletCategorical([1, 2, 1], [10.0, 20.0, 50.0]).fit([0, 1, 1, 2])
    robust = DROBAS(DirichletCategorical([1, 2, 1], [10.0, 20.0, 50.0]), epsilon=0.4, mode="exact")
    decision = robust.fit([0, 1, 1, 2]).solve(Newsvendor(), (22.0, 22.0))
    q = cp.Variable(3)
    expected_log = digamma(model.alpha_n) - digamma(model.alpha_n.sum())
    costs = Newsvendor().evaluate(22.0, [10.0, 20.0, 50.0])
    divergence = -cp.sum(cp.entr(q)) - expected_log @ q
    problem = cp.Problem(cp.Maximize(costs @ q), [cp.sum(q) == 1, divergence <= 0.4])
    problem.solve(solver="CLARABEL")
    assert decision.value == pytest.approx(problem.value, rel=1e-6)
    assert decision.method == "exact" and decision.samples.ravel().tolist() == [10, 20, 50]
    coin = DROBAS(BetaBernoulli(), "PP", 0.1, mode="exact").fit([1, 0, 1]).solve(Newsvendor(1, 1))
    assert coin.method == "exact" and 0 <= coin.x[0] <= 1


def test_an_empty_set_is_refused_with_g():
    data = np.random.default_rng(0).normal(25, 10, 20)
    G = NormalGamma().fit(data).G()
    assert pytest.approx(0.048, abs=5e-4) == G
    with pytest.raises(ValueError, match=re.escape(f"epsilon must be at least G = {G:.6g}")):
        DROBAS(NormalGamma(), epsilon=0.04).fit(data)
    DROBAS(NormalGamma(), "PP", epsilon=0.0).fit(data)
    # At G only the nominal law is left.
    least = DROBAS(NormalGamma(), epsilon=G, random_state=0).fit(data).solve(Newsvendor())
    samples = NormalGamma().fit(data).eta_bar().sample(900, 0)[:, 0]
    assert least.x[0] == pytest.approx(np.quantile(samples, 8 / 11, method="inverted_cdf"), abs=1e-3)


def test_an_infinite_population_is_said():
    cost = Newsvendor()
    for name in sorted(HEAVY - {"NormalInverseWishart"}):
        model, data, _ = CASES[name]
        robust = DROBAS(model, "PP", 0.3, 50, random_state=0).fit(data)
        with pytest.warns(InfinitePopulationWarning, match="infinite"):
            robust.solve(cost)
        with pytest.raises(ValueError, match="mode must be 'sample' here: the predictive law"):
            DROBAS(model, "PP", 0.3, mode="exact").fit(data).solve(cost)
    bounded = Custom(
        lambda x, s: np.abs(np.tanh(s[:, 0])) + (x[0] - 1) ** 2, unbounded=False, bounds=(0.0, 3.0)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DROBAS(NormalGamma(), "PP", 0.3, 50, random_state=0).fit([1.0, 2.0]).solve(bounded)
        DROBAS(NormalGamma(), "PE", 0.9, 50, random_state=0).fit([1.0, 2.0]).solve(cost)
    with pytest.raises(ValueError, match="has no closed form"):
        DROBAS(NormalGamma(), "PE", 0.9, mode="exact").fit([1.0, 2.0]).solve(cost)


def test_the_sample_average_of_a_heavy_predictive_grows_with_the_samples():
    values = []
    for n in (100, 100_000):
        robust = DROBAS(GammaExponential(1, 1), "PP", 1.0, n, random_state=0).fit([1.0, 3.0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values.append(robust.solve(Newsvendor()).value)
    assert values[1] > 2 * values[0]


def test_epsilon_star_takes_in_the_true_law():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(150):
        robust = DROBAS(NormalGamma(), epsilon="auto", random_state=rng).fit(rng.normal(25, 10, 20))
        truth = (np.array(25.0), np.array(100.0))
        hits += robust.model_.kl(truth, robust.model_.eta_bar().params) + robust.G_ <= robust.epsilon_
    assert 0.86 <= hits / 150 <= 1
    robust = DROBAS(NormalGamma(), epsilon="auto", random_state=0).fit(rng.normal(25, 10, 20))
    assert robust.epsilon_star("plug_in") < robust.epsilon_star("quantile", 0.95) == robust.epsilon_
    # Known covariance: KL is d / (2 kappa) times a chi-squared variable over d.
    known = DROBAS(MvNormalKnownCov([0, 0], 1, SIGMA), epsilon="auto", random_state=0).fit(
        [[1.0, 0.0], [0.0, 2.0]]
    )
    kappa = known.model_.kappa_n
    assert known.epsilon_star("plug_in", n_draws=200_000) == pytest.approx(
        2 / (2 * kappa) + 1 / kappa, rel=0.01
    )
    law = stats.chi2(2).ppf(0.95) / (2 * kappa) + 1 / kappa
    assert known.epsilon_star("quantile", 0.95, 200_000) == pytest.approx(law, rel=0.02)


@pytest.mark.parametrize("ambiguity", ["PE", "PP"])
def test_a_larger_radius_is_a_worse_case(ambiguity):
    data = np.random.default_rng(1).normal(25, 10, 20)
    values = []
    for epsilon in (0.05, 0.3, 1.0, 4.0, 20.0):
        robust = DROBAS(NormalGamma(), ambiguity, epsilon, 100, random_state=0).fit(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            decision = robust.solve(Newsvendor())
        values.append(decision.value)
    assert values == sorted(values)
    spread = decision.samples
    assert decision.gamma == 0
    assert decision.value == pytest.approx(24 / 11 * (spread.max() - spread.min()), rel=1e-6)


def test_results_repeat_and_do_not_touch_the_global_generator():
    before: Any = np.random.get_state()  # noqa: NPY002
    data = [20.0, 31.0, 25.0]
    first = DROBAS(NormalGamma(), random_state=3).fit(data).solve(Newsvendor())
    second = DROBAS(NormalGamma(), random_state=3).fit(data).solve(Newsvendor())
    assert first.x == second.x and first.value == second.value
    other = DROBAS(NormalGamma(), random_state=4).fit(data).solve(Newsvendor())
    assert first.x != other.x
    after: Any = np.random.get_state()  # noqa: NPY002
    assert (after[1] == before[1]).all()


def test_costs_that_are_not_convex_or_fall_without_end_are_refused():
    robust = DROBAS(NormalGamma(), random_state=0).fit([20.0, 30.0])
    hill = Custom(lambda x, s: -((x[0] - s[:, 0]) ** 2), bounds=(0.0, 50.0))
    with pytest.raises(ValueError, match="cost must be convex in the decision"):
        robust.solve(hill)
    with pytest.raises(ValueError, match="declared not to be"):
        robust.solve(Custom(lambda x, s: s[:, 0] * x[0], convex=False))
    concave = Custom(
        lambda x, s: -np.sqrt(np.abs(x[0] + 0 * s[:, 0])), lambda x, s: -cp.square(x[0] - s[:, 0]), dim=2
    )
    with pytest.raises(ValueError, match="cost must be convex by cvxpy's rules"):
        robust.solve(concave)
    slope = robust.solve(Custom(lambda x, s: s[:, 0] + x[0]))
    assert slope.x is None and slope.status == "unbounded" and slope.value == -math.inf
    assert slope.summary() == "no decision: unbounded"
    with pytest.raises(ValueError, match="cost must have a cvxpy form"):
        robust.solve(Custom(lambda x, s: s[:, 0] + x @ x, dim=2))
    with pytest.raises(ValueError, match="constraints must keep to cvxpy's rules"):
        robust.solve(Newsvendor(), lambda x: [cp.square(x) >= 1])
    with pytest.raises(ValueError, match="evaluate must give finite costs"):
        robust.solve(Custom(lambda x, s: s[:, 0] * np.nan))


def test_a_custom_cost_finds_its_own_bracket():
    robust = DROBAS(NormalGamma(), epsilon=0.9, random_state=0).fit([200.0, 300.0])
    away = Custom(lambda x, s: np.abs(s[:, 0] - x[0]), lambda x, s: cp.abs(x[0] - s[:, 0]))
    found, cones = robust.solve(away), robust.solve(away, lambda x: [x >= 0])
    assert cones.status == "optimal"
    assert found.value == pytest.approx(cones.value, rel=1e-6)
    # Where CLARABEL stops short, the status says so, and the value is that of the decision all the same.
    square = Custom(lambda x, s: (s[:, 0] - x[0]) ** 2, lambda x, s: cp.square(x[0] - s[:, 0]))
    found, cones = robust.solve(square), robust.solve(square, lambda x: [x >= 0])
    assert cones.status == "optimal_inaccurate" or cones.value == pytest.approx(found.value, rel=1e-6)
    at = worst_case_expectation(square.evaluate(cones.x, cones.samples), cones.radius)
    assert cones.value == pytest.approx(at.value) and cones.value >= found.value * (1 - 1e-9)


_NO_METHODS: dict[str, Any] = {"a": None}
BAD: list[tuple[Any, str]] = [
    (lambda: GammaExponential().fit([1.0, -2.0]), "data must not be negative for GammaExponential, got -2"),
    (lambda: GammaPoisson().fit([1.5]), "data must be whole numbers from 0, got 1.5"),
    (lambda: BetaBernoulli().fit([0, 2]), "data must be 0 or 1, got 2"),
    (lambda: DirichletCategorical([1, 1]).fit([2]), "data must be below 2, got 2"),
    (lambda: DirichletCategorical([1, 0]), "alpha0 must be positive, got 0"),
    (lambda: NormalGamma().fit([1.0, math.nan]), "data must be finite, got nan"),
    (lambda: NormalGamma().fit([[1.0, 2.0]]), "data must have 1 column"),
    (lambda: NormalGamma(kappa0=0), "kappa0 must be greater than 0"),
    (lambda: NormalInverseWishart([0, 0], 1, 1, np.eye(2)), "nu0 must be greater than 1, got 1.0"),
    (lambda: NormalInverseWishart([0, 0], 1, 3, -np.eye(2)), "Psi0 must be positive definite"),
    (lambda: MvNormalKnownCov([0, 0], 1, [[1, 2], [0, 1]]), "cov must be symmetric"),
    (lambda: MvNormalKnownCov([0, 0], 1, np.eye(3)), "cov must have shape (2, 2)"),
    (lambda: NormalGamma().kl((np.zeros(2), np.zeros(2)), (np.zeros(2), np.ones(2))), "a positive variance"),
    (lambda: BetaBernoulli().kl((np.array(1.5),), (np.array(0.5),)), "q_params must be probabilities"),
    (lambda: worst_case_expectation([1.0], -1), "radius must be at least 0"),
    (
        lambda: worst_case_expectation([1.0, 2.0], 1, [0.5, 0.6]),
        "probabilities must be positive and sum to 1",
    ),
    (lambda: DROBAS(NormalGamma(), "PQ"), "ambiguity must be one of 'PE', 'PP'"),
    (lambda: DROBAS(NormalGamma(), mode="fast"), "mode must be one of"),
    (lambda: DROBAS(NormalGamma(), epsilon=-1), "epsilon must be at least 0"),
    (lambda: DROBAS(NormalGamma()).solve(Newsvendor()), "fit has to be called first"),
    (lambda: BDRO(NormalGamma()).solve(Newsvendor()), "fit has to be called first"),
    (lambda: DROBAS(NormalGamma(), "PP").fit([1.0]).worst_case(), "solve has to be called before worst_case"),
    (lambda: WassersteinDRO().fit([1.0]).solve(Custom(lambda x, s: s[:, 0])), "a cvxpy form"),
    (lambda: Newsvendor(dim=2).evaluate([1.0], [[1.0, 2.0]]), "x must have length 2, got 1"),
    (lambda: Newsvendor(dim=2).evaluate([1.0, 1.0], [[1.0]]), "samples must have 2 column(s)"),
    (lambda: Custom(lambda x, s: 1.0).evaluate(1.0, [1.0]), "evaluate must give costs of shape (1,)"),
    (lambda: Custom(lambda x, s: 1.0, bounds=(1, 0)), "bounds must be ordered"),
    (lambda: RobustPortfolio(max_weight=0.1).fit(np.eye(3)), "max_weight must be at least 1 / 3"),
    (lambda: RobustPortfolio("other").fit(np.eye(3)), "model must be one of"),
    (lambda: RobustPortfolio(epsilon=0.0).fit(np.eye(3)), "epsilon must be at least G = "),
    (lambda: frontier({}, [0.1], lambda g: ([1.0], [1.0]), 1), "methods must not be empty"),
    (lambda: frontier(_NO_METHODS, [-0.1], lambda g: ([1.0], [1.0]), 1), "epsilons must not be negative"),
]


@pytest.mark.parametrize(("call", "says"), BAD, ids=[says[:40] for _, says in BAD])
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        call()


def test_bad_types_are_named():
    with pytest.raises(TypeError, match="model must be a ConjugateModel"):
        DROBAS("normal")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cost must be a Cost"):
        DROBAS(NormalGamma(), "PP").fit([1.0]).solve("linear")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="constraints must be callable or a pair"):
        DROBAS(NormalGamma()).fit(np.ones(9)).solve(Newsvendor(), [1, 2])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="q_params must be a tuple of mean, variance"):
        NormalGamma().kl((np.zeros(1),), (np.zeros(1), np.ones(1)))
    with pytest.raises(TypeError, match="evaluate must be callable"):
        Custom(3)  # type: ignore[arg-type]


def test_without_cvxpy_the_newsvendor_works_and_a_portfolio_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    assert DROBAS(NormalGamma(), random_state=0).fit([20.0, 30.0]).solve(Newsvendor()).status == "optimal"
    with pytest.raises(ImportError, match=re.escape("theses[decision]")):
        RobustPortfolio().fit(np.eye(3))


# Peers ---------------------------------------------------------------------------------------------------


def test_wasserstein_worst_case_is_reached_by_moving_mass():
    rng = np.random.default_rng(0)
    data = rng.normal(0, 0.02, (30, 3))
    decision = WassersteinDRO(0.005).fit(data).solve(Portfolio())
    x = decision.x
    # Every point moved by epsilon against the weights: the distance is epsilon, the loss the claimed one.
    moved = data - 0.005 * x / np.linalg.norm(x)
    assert (-moved @ x).mean() == pytest.approx(decision.value, abs=1e-9)
    stock = WassersteinDRO(2.0).fit(data[:, :1]).solve(Newsvendor())
    plain = EmpiricalKLDRO(0.0).fit(data[:, :1]).solve(Newsvendor())
    assert stock.x == plain.x and stock.value == pytest.approx(plain.value + 2 * 8)
    assert issubclass(WassersteinDRO, _DataSolver)


def test_frontier_has_a_point_for_each_radius_and_all_see_the_same_data():
    seen = []

    def data(generator):
        drawn = generator.normal(25, 10, 20), generator.normal(25, 10, 50)
        seen.append(drawn[0][0])
        return drawn

    methods = {
        "PE": lambda epsilon, g: DROBAS(NormalGamma(), "PE", epsilon, 25, random_state=g),
        "BDRO": lambda epsilon, g: BDRO(NormalGamma(), epsilon, 5, 5, random_state=g),
    }
    table = frontier(methods, [0.01, 0.1, 1.0], data, 3, random_state=0)
    assert table.filter(pl.col("method") == "PE")["epsilon"].to_list() == [0.1, 1.0]
    assert table.filter(pl.col("method") == "BDRO")["epsilon"].to_list() == [0.01, 0.1, 1.0]
    assert (table["variance"] > 0).all() and (table["n_rep"] == 3).all()
    alone, _ = out_of_sample_costs({"BDRO": methods["BDRO"]}, [0.1], data, 3, random_state=0)
    assert seen[:3] == seen[3:]
    assert alone["BDRO"].shape == (1, 3, 50)


# The estimator -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["known_covariance", "normal_inverse_wishart"])
def test_portfolio_estimator_is_drobas(model):
    X = load_weekly_returns(6).values[300:360]
    portfolio = RobustPortfolio(model, max_weight=0.4).fit(X)
    assert portfolio.weights_.sum() == pytest.approx(1) and portfolio.weights_.min() >= 0
    assert portfolio.weights_.max() <= 0.4 + 1e-9
    assert portfolio.radius_ == pytest.approx(portfolio.epsilon_ - portfolio.G_)
    nominal = portfolio.decision_.nominal
    assert nominal is not None
    m, S = nominal.params
    w = portfolio.weights_
    expected = -m @ w + math.sqrt(2 * portfolio.radius_ * w @ S @ w)
    assert portfolio.worst_case_value_ == pytest.approx(expected, abs=1e-6)
    assert np.allclose(portfolio.predict(X), X @ w)
    assert portfolio.score(X) == pytest.approx((X @ w).mean() / (X @ w).std())
    # Equal weights are one of the portfolios that the worst case was minimised over.
    equal = np.full(6, 1 / 6)
    assert portfolio.worst_case_value_ <= -m @ equal + math.sqrt(2 * portfolio.radius_ * equal @ S @ equal)
    short = RobustPortfolio(model, long_only=False, max_weight=0.5).fit(X)
    assert short.worst_case_value_ <= RobustPortfolio(model, max_weight=0.5).fit(X).worst_case_value_ + 1e-9


# Study ---------------------------------------------------------------------------------------------------


def met(metric, values):
    card = lookup(SLUG)
    (check,) = [c for claim in card.claims for c in claim.checks if c.metric == metric]
    return all(Bound.parse(check.bound).contains(float(value)) for value in np.atleast_1d(values))


def gaps():
    return study._duality(Context("smoke", seed=100), study._SIZES["smoke"])


def test_planted_forgotten_g_turns_c3(monkeypatch):
    assert met("duality_gap", gaps())

    def forgetful(self, data):
        self.model_, self.G_ = self.model.fit(data), 0.0
        self.epsilon_ = self.radius_ = float(self.epsilon)
        return self

    monkeypatch.setattr(DROBAS, "fit", forgetful)
    assert not met("duality_gap", gaps())


def test_planted_predictive_centre_turns_c3(monkeypatch):
    exact = DirichletCategorical.atoms
    monkeypatch.setattr(DirichletCategorical, "atoms", lambda self, predictive: exact(self, predictive=True))
    assert not met("duality_gap", gaps())


def test_covering_counts_points_as_described():
    rng = np.random.default_rng(0)
    base = rng.normal(10, 3, (1, 200, 50))
    points = {
        "PE": study._points(np.concatenate([base - 1, base - 5])),
        "PP": study._points(base + 3),
        "BDRO": study._points(np.concatenate([base, 2 * base - 30])),
    }
    # BDRO's second point has the lowest mean of all; its first is above both of PE's.
    assert study._covered(points, ("PE",), ("BDRO",), 0.0) == 0.5
    assert study._covered(points, ("BDRO",), ("PP",), 0.0) == 1.0
    assert study._covered(points, ("PP",), ("PE",), 0.0) == 0.0
    assert points["PE"].variance == pytest.approx(base.var(), rel=1e-9)
    refused = np.concatenate([base, np.full_like(base, np.nan)])
    assert len(study._points(refused).mean) == 1


def test_conditional_value_at_risk_counts_the_last_loss_in_part():
    losses = np.arange(30.0)
    assert study._cvar(losses, 0.9) == pytest.approx(28)
    assert study._cvar(losses, 0.95) == pytest.approx((29 + 0.5 * 28) / 1.5)


def test_paper_preset_takes_returns_of_a_folder(tmp_path):
    load_weekly_returns(3).to_frame()[:70].write_csv(tmp_path / "returns.csv")
    measured = study.run(Context("paper", seed=100, data_folder=tmp_path, limit=1))
    assert set(lookup(SLUG).metrics("paper")) == set(measured.metrics)
    with pytest.raises(ValueError, match=re.escape("data_folder: a folder with returns.csv")):
        study.run(Context("paper", seed=100))
    with pytest.raises(ValueError, match="preset must be one of"):
        study.run(Context("quick", seed=100))
