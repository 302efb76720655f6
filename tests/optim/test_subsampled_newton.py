from __future__ import annotations

import dataclasses
import itertools
import math
import pickle
import struct
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, sparse, special
from scipy.optimize import approx_fprime, minimize
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import scale

from tests.conformance.contract import Call
from theses.catalogue import lookup
from theses.catalogue.card import Bound
from theses.evidence import Context
from theses.optim.subsampled_newton import (
    LESS,
    SRHT,
    GaussianSketch,
    InvalidDebiasError,
    LogisticProblem,
    QuadraticProblem,
    RowSampler,
    Sketch,
    SubsampledNewtonClassifier,
    SubsampledNewtonRegressor,
    averaged_inverse,
    compare_debiasing,
    debiased_inverse,
    deterministic_equivalent,
    effective_dimension,
    fwht,
    inversion_bias,
    leverage_scores,
    minimize_ssn,
    samplers,
)
from theses.studies.optim import subsampled_newton as study
from theses.studies.optim.subsampled_newton.sizes import SIZES

SLUG = "subsampled-newton"
SCHEMES = samplers.SCHEMES


def heavy(n=400, d=6, seed=0):
    return np.random.default_rng(seed).standard_t(3, size=(n, d))


def labelled(n=600, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (rng.random(n) < 1 / (1 + np.exp(-X[:, 0] + 0.5 * X[:, 1]))).astype(float)


def calls() -> list[Call]:
    A, C = heavy(60, 3), np.diag([1.0, 2.0, 3.0])
    X, y = labelled(80, 3)
    b = np.array([0.1, -0.2, 0.3])
    matrix = {"A": A, "C": C}
    both = ("A", "C")

    def fresh(**arguments):
        return {name: value.copy() if hasattr(value, "copy") else value for name, value in arguments.items()}

    def sampler():
        return RowSampler("ridge_leverage", m=20)

    def sketch():
        return sampler().fit(A, C).sample(0)

    def problem(name):
        return {"LogisticProblem": LogisticProblem, "QuadraticProblem": QuadraticProblem}[name](X, y, 0.1)

    def estimator(name):
        return {
            "SubsampledNewtonClassifier": SubsampledNewtonClassifier,
            "SubsampledNewtonRegressor": SubsampledNewtonRegressor,
        }[name](random_state=0)

    column = {"y": ("rank",)}
    found = [
        Call("leverage_scores", lambda: (leverage_scores, fresh(**matrix)), both, paired=("C",)),
        Call("effective_dimension", lambda: (effective_dimension, fresh(**matrix)), both, paired=("C",)),
        Call("fwht", lambda: (fwht, {"X": heavy(32, 4)}), ("X",), paired=("X",), allowed={"X": ("rank",)}),
        Call(
            "debiased_inverse",
            lambda: (debiased_inverse, {**fresh(**matrix), "sketch": sketch()}),
            both,
            paired=("C",),
        ),
        Call(
            "averaged_inverse",
            lambda: (averaged_inverse, {**fresh(**matrix), "sampler": sampler(), "q": 2, "random_state": 0}),
            both,
            paired=("C",),
        ),
        *(
            Call(
                function.__name__,
                partial(
                    lambda f: (f, {**fresh(**matrix), "sampler": sampler(), "n_rep": 8, "random_state": 0}),
                    function,
                ),
                both,
                paired=("C",),
            )
            for function in (inversion_bias, compare_debiasing)
        ),
        Call(
            "deterministic_equivalent",
            lambda: (deterministic_equivalent, {**fresh(**matrix), "pi": np.full(60, 1 / 60), "m": 20}),
            ("A", "C", "pi"),
            paired=("C", "pi"),
        ),
        Call(
            "minimize_ssn",
            lambda: (
                minimize_ssn,
                {
                    "problem": problem("LogisticProblem"),
                    "x0": b.copy(),
                    "sampler": sampler(),
                    "random_state": 0,
                },
            ),
            ("x0",),
            paired=("x0",),
        ),
        Call(
            "Sketch.reweighted",
            lambda: (sketch().reweighted, {"weights": np.ones(20), "debias": "none"}),
            ("weights",),
            paired=("weights",),
        ),
    ]
    makers = {
        "RowSampler": sampler,
        "SRHT": lambda: SRHT(20),
        "LESS": lambda: LESS(20, 2),
        "GaussianSketch": lambda: GaussianSketch(20),
    }
    for name, make in makers.items():
        found += [
            Call(f"{name}.fit", partial(lambda m: (m().fit, fresh(**matrix)), make), both, paired=("C",)),
            Call(
                f"{name}.moved",
                partial(lambda m: (m().fit(A, C).moved, {"A": A.copy()}), make),
                ("A",),
                paired=("A",),
            ),
        ]
    for name in ("LogisticProblem", "QuadraticProblem"):
        kind = type(problem(name))
        found.append(
            Call(
                name,
                partial(lambda k: (k, fresh(X=X, y=y, lam=np.full(3, 0.1))), kind),
                ("X", "y", "lam"),
                paired=("X", "y", "lam"),
            )
        )
        for method in ("value", "gradient", "hessian"):
            found.append(
                Call(
                    f"{name}.{method}",
                    partial(lambda n, m: (getattr(problem(n), m), {"b": b.copy()}), name, method),
                    ("b",),
                    paired=("b",),
                )
            )
        found.append(
            Call(
                f"{name}.along",
                partial(lambda n: (problem(n).along, {"b": b.copy(), "p": b.copy()}), name),
                ("b", "p"),
                paired=("b", "p"),
            )
        )
    for name, methods in (
        ("SubsampledNewtonClassifier", ("predict", "predict_proba", "decision_function")),
        ("SubsampledNewtonRegressor", ("predict",)),
    ):
        found.append(
            Call(
                f"{name}.fit",
                partial(lambda n: (estimator(n).fit, fresh(X=X, y=y)), name),
                ("X", "y"),
                paired=("X", "y"),
                allowed=column,
            )
        )
        for method in methods:
            found.append(
                Call(
                    f"{name}.{method}",
                    partial(lambda n, m: (getattr(estimator(n).fit(X, y), m), {"X": X.copy()}), name, method),
                    ("X",),
                )
            )
    return found


# Leverage ------------------------------------------------------------------------------------------------


@given(st.integers(0, 50), st.sampled_from([0.0, 0.3, 20.0]))
@settings(max_examples=20)
def test_leverage_scores_are_the_diagonal_of_the_hat_matrix(seed, ridge):
    A = heavy(40, 4, seed)
    hat = A @ np.linalg.solve(A.T @ A + ridge * np.eye(4), A.T)
    scores = leverage_scores(A, ridge)
    np.testing.assert_allclose(scores, np.diag(hat), rtol=1e-9)
    assert effective_dimension(A, ridge) == pytest.approx(scores.sum(), rel=1e-9)
    np.testing.assert_allclose(leverage_scores(sparse.csr_array(A), ridge), scores, rtol=1e-8)


def test_leverage_does_not_change_with_the_coordinates_and_with_a_matrix_c():
    A = heavy()
    turn = np.random.default_rng(1).normal(size=(6, 6))
    C = turn @ turn.T
    np.testing.assert_allclose(leverage_scores(A @ turn), leverage_scores(A), rtol=1e-8)
    np.testing.assert_allclose(leverage_scores(A @ turn, turn.T @ C @ turn), leverage_scores(A, C), rtol=1e-8)


@pytest.mark.parametrize("sketch", ["count", "row_norm"])
def test_approximate_scores_are_near_the_exact_ones(sketch):
    A = np.random.default_rng(0).normal(size=(20_000, 60)) * np.geomspace(1, 30, 60)
    ratio = leverage_scores(A, 5.0, "approx", sketch=sketch, sketch_size=2_000, random_state=0)
    ratio = ratio / leverage_scores(A, 5.0)
    assert np.median(np.abs(ratio - 1)) < 0.25 and 0.9 < ratio.mean() < 1.15


# Hadamard ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 8, 32, 64, 512])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_fwht_is_the_hadamard_matrix(n, dtype):
    X = np.random.default_rng(0).normal(size=(n, 3)).astype(dtype)
    before = X.copy()
    result = fwht(X)
    assert result.dtype == dtype
    expected = linalg.hadamard(n) @ before / math.sqrt(n)
    np.testing.assert_allclose(result, expected, atol=1e-5 if dtype == np.float32 else 1e-13)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_allclose(fwht(result), before, atol=1e-5 if dtype == np.float32 else 1e-12)
    np.testing.assert_allclose(fwht(X[:, 0]), result[:, 0], atol=1e-6)


def test_fwht_agrees_with_its_peer():
    peer = pytest.importorskip("hadamard_transform")
    import torch

    X = np.random.default_rng(0).normal(size=(1024, 7))
    np.testing.assert_allclose(fwht(X), peer.hadamard_transform(torch.tensor(X.T)).numpy().T, atol=1e-12)


# Sketches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: SRHT(30), lambda: LESS(30, 3), lambda: GaussianSketch(30)])
def test_mixing_sketches_have_the_gram_matrix_as_their_mean(make):
    A = heavy(100, 3)
    sampler = make().fit(A, 1.0)
    rng = np.random.default_rng(0)
    mean = np.mean([(s := sampler.sample(rng).SA).T @ s for _ in range(1_500)], axis=0)
    whiten = np.linalg.inv(np.linalg.cholesky(A.T @ A))
    np.testing.assert_allclose(whiten @ mean @ whiten.T, np.eye(3), atol=0.05)
    with pytest.raises(ValueError, match="'fine' is for sampled rows"):
        sampler.sample(0, debias="fine")
    scalar = sampler.sample(7, debias="scalar").SA
    factor = 30 / (30 - effective_dimension(A, 1.0))
    np.testing.assert_allclose(scalar, sampler.sample(7).SA * math.sqrt(factor), rtol=1e-10)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_sampled_rows_have_the_gram_matrix_as_their_mean(scheme):
    A = heavy(50, 3)
    sampler = RowSampler(scheme, m=25).fit(A, 2.0, random_state=0)
    # Exactly, by going through all rows: sum of pi_i times m w_i a_i a_i'.
    rows = np.arange(50)
    plain = Sketch(A, rows, np.ones(50), "none")
    weights = sampler.reweight(plain, "none").weights
    total = (A * (25 * sampler.probabilities_ * weights)[:, None]).T @ A
    np.testing.assert_allclose(total, A.T @ A, rtol=1e-10)
    assert sampler.probabilities_.sum() == pytest.approx(1)


def test_nothing_dense_of_size_m_by_n_is_made():
    import tracemalloc

    A = np.random.default_rng(0).normal(size=(1 << 15, 4))
    for sampler in (SRHT(2_000), LESS(2_000, 4), RowSampler("uniform", 2_000), GaussianSketch(2_000)):
        tracemalloc.start()
        sampler.fit(A, 1.0).sample(0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2_000 * len(A) * 8 / 8  # a dense S alone takes eight times that


def test_leverage_is_that_of_all_rows_given_c_not_of_the_sketch():
    A = heavy()
    sampler = RowSampler("uniform", m=100).fit(A, 30.0)
    sketch = sampler.sample(0, debias="fine")
    scores = leverage_scores(A, 30.0)[sketch.rows]
    np.testing.assert_allclose(sketch.weights, 1 / (100 / len(A) - scores))
    assert not np.allclose(scores, leverage_scores(A)[sketch.rows], rtol=0.02)


# Debiasing -----------------------------------------------------------------------------------------------


def every_draw(A, C, sampler, debias):
    """Mean of the inverse over all n^m draws, by brute force."""
    n, d = A.shape
    weights = sampler.reweight(Sketch(A, np.arange(n), np.ones(n), "none"), debias).weights
    draws = np.array(list(itertools.product(range(n), repeat=sampler.m)))
    outer = weights[:, None, None] * A[:, :, None] * A[:, None, :]
    inverses = np.linalg.inv(outer[draws].sum(axis=1) + C * np.eye(d))
    return np.einsum("k,kij->ij", sampler.probabilities_[draws].prod(axis=1), inverses)


@pytest.mark.parametrize("debias", ["none", "scalar", "fine"])
def test_measured_bias_is_that_over_all_draws(debias):
    A, C = np.array([[1.0, 0.2], [0.3, 1.5], [-0.8, 0.6], [0.5, -0.4]]), 4.0
    sampler = RowSampler("shrinkage", m=5).fit(A, C)
    L = np.linalg.cholesky(A.T @ A + C * np.eye(2))
    M = L.T @ every_draw(A, C, sampler, debias) @ L - np.eye(2)
    report = inversion_bias(A, C, sampler, debias, 8_000, random_state=0)
    exact = np.linalg.norm(M) / math.sqrt(2)
    assert report.bias == pytest.approx(exact, abs=4 * report.mc_error + 1e-4)
    assert report.trace_bias == pytest.approx(np.trace(M) / 2, abs=0.004)


def test_over_all_draws_fine_weights_leave_the_least_bias():
    A, C = np.array([[1.0, 0.2], [0.3, 1.5], [-0.8, 0.6], [0.5, -0.4], [0.1, 0.1]]), 3.0
    sampler = RowSampler("uniform", m=6).fit(A, C)
    L = np.linalg.cholesky(A.T @ A + C * np.eye(2))
    left = {}
    for debias in ("none", "scalar", "fine"):
        left[debias] = np.linalg.norm(L.T @ every_draw(A, C, sampler, debias) @ L - np.eye(2))
    assert left["fine"] < 0.6 * left["scalar"] and left["fine"] < 0.5 * left["none"], left


def test_fine_and_scalar_agree_for_leverage_sampling_only():
    A = heavy()
    for scheme, same in (("leverage", True), ("shrinkage", False), ("row_norm", False)):
        sampler = RowSampler(scheme, m=80).fit(A)
        draw = sampler.sample(3)
        fine, scalar = (sampler.reweight(draw, mode).weights for mode in ("fine", "scalar"))
        assert bool(np.abs(fine / scalar - 1).max() <= 1e-10) is same
    assert RowSampler("leverage", m=80).fit(A).rho_max_ == pytest.approx(1)


@pytest.mark.parametrize("debias", ["none", "scalar"])
@pytest.mark.parametrize("scheme", ["shrinkage", "row_norm", "leverage"])
def test_the_equivalent_predicts_the_bias(scheme, debias):
    A = heavy(1_000, 20, seed=3)
    sampler = RowSampler(scheme, m=100).fit(A, 5.0)
    predicted = deterministic_equivalent(A, 5.0, sampler.probabilities_, 100, debias=debias)
    measured = inversion_bias(A, 5.0, sampler, debias, 1_500, random_state=0)
    assert predicted.bias == pytest.approx(measured.bias, abs=4 * measured.mc_error + 0.005)
    D, pi = predicted.D, sampler.probabilities_
    inverse = np.linalg.inv((A * D[:, None]).T @ A + 5.0 * np.eye(20))
    if debias == "none":
        quadratic = np.einsum("ij,jk,ik->i", A, inverse, A)
        np.testing.assert_allclose(D, 100 / (100 + quadratic / pi), rtol=1e-10)


def test_fine_weights_have_the_matrix_itself_as_their_equivalent():
    A = heavy(300, 5)
    sampler = RowSampler("shrinkage", m=40).fit(A, 1.0)
    prediction = deterministic_equivalent(A, 1.0, sampler.probabilities_, 40, debias="fine")
    np.testing.assert_allclose(prediction.D, 1, rtol=1e-10)
    assert prediction.bias < 1e-12


def test_the_noise_of_the_draws_is_no_bias():
    # Gaussian sketch with its exact factor: (m - d - 1) / m undoes the mean of an inverse Wishart matrix.
    d, m = 8, 60
    A = np.random.default_rng(0).normal(size=(500, d))
    report = inversion_bias(A, 0.0, GaussianSketch(m), "none", 800, random_state=1)
    assert report.bias == pytest.approx(m / (m - d - 1) - 1, abs=4 * report.mc_error)
    scalar = inversion_bias(A, 0.0, GaussianSketch(m), "scalar", 800, random_state=1)
    assert scalar.spectral > 1.5 * scalar.bias
    assert "bias" in scalar.summary() and scalar.to_frame().height == 1


def test_coherent_rows_under_uniform_sampling_do_not_go_unnoticed():
    A = np.vstack([heavy(200, 3), [[500.0, 0.0, 0.0]]])
    sampler = RowSampler("uniform", m=200).fit(A, 0.1)
    errors = 0
    for seed in range(30):
        try:
            weights = sampler.sample(seed, debias="fine").weights
        except InvalidDebiasError as error:
            errors += 1
            assert "row 200" in str(error)
        else:
            assert (weights > 0).all()
    assert 5 < errors < 30
    report = inversion_bias(A, 0.1, sampler, "fine", 40, random_state=0)
    assert 0 < report.invalid_draws < 40
    redraw = RowSampler("uniform", m=200, on_invalid="redraw").fit(A, 0.1)
    assert not any(np.any(redraw.sample(seed, debias="fine").rows == 200) for seed in range(30))
    fallback = RowSampler("uniform", m=200, on_invalid="scalar").fit(A, 0.1)
    assert {fallback.sample(seed, debias="fine").debias for seed in range(30)} == {"fine", "scalar"}
    with pytest.raises(InvalidDebiasError, match="m must be above"):
        deterministic_equivalent(A, 0.1, np.full(201, 1 / 201), 200, debias="fine")


# Inverses ------------------------------------------------------------------------------------------------


def test_inverse_is_the_inverse_with_cholesky_and_with_woodbury():
    A = heavy(300, 12)
    right = np.random.default_rng(0).normal(size=(12, 2))
    for m in (40, 5):
        sketch = RowSampler("ridge_leverage", m=m).fit(A, 2.0).sample(0)
        expected = np.linalg.solve(sketch.SA.T @ sketch.SA + 2.0 * np.eye(12), right)
        for C in (2.0, 2.0 * np.eye(12)):
            Q = debiased_inverse(A, C, sketch)
            np.testing.assert_allclose(Q @ right, expected, rtol=1e-9)
            np.testing.assert_allclose(Q @ right[:, 0], expected[:, 0], rtol=1e-9)


def test_averaging_lowers_the_error_of_debiased_inverses_alone():
    A = heavy(2_000, 10, seed=5)
    H = A.T @ A
    L = np.linalg.cholesky(H)
    errors = {}
    for debias in ("none", "fine"):
        Q = averaged_inverse(A, 0.0, RowSampler("shrinkage", 60), 300, 2, debias=debias, random_state=0)
        errors[debias] = np.linalg.norm(L.T @ (Q @ L) - np.eye(10), 2)
        one = averaged_inverse(A, 0.0, RowSampler("shrinkage", 60), 300, 1, debias=debias, random_state=0)
        np.testing.assert_array_equal(Q @ L, one @ L)
    assert errors["fine"] < 0.3 * errors["none"]


# Newton --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LogisticProblem, QuadraticProblem])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_derivatives_are_those_of_the_value(kind, convert):
    X, y = labelled(50, 3)
    problem = kind(convert(X), y, [0.1, 0.0, 2.0])
    b, p = np.array([0.3, -0.5, 0.2]), np.array([1.0, 0.5, -0.3])
    np.testing.assert_allclose(problem.gradient(b), approx_fprime(b, problem.value), rtol=1e-4, atol=1e-5)
    A, C = problem.hessian(b)
    H = A.gram() + C
    columns = [(problem.gradient(b + 1e-6 * e) - problem.gradient(b - 1e-6 * e)) / 2e-6 for e in np.eye(3)]
    np.testing.assert_allclose(H, np.array(columns), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(A.squared_norms, (A.dense() ** 2).sum(1))
    line = problem.along(b, p)
    assert line(0.7) == pytest.approx(problem.value(b + 0.7 * p)) and line(0.0) == pytest.approx(
        problem.value(b)
    )


@pytest.mark.parametrize(
    ("sampler", "debias"),
    [
        (RowSampler("approx_ridge_leverage", 150), "fine"),
        (RowSampler("uniform", 150), "none"),
        (RowSampler("shrinkage", 150), "fine"),
        (SRHT(150), "scalar"),
        (LESS(150, 4, scheme="uniform"), "none"),
        (None, "none"),
    ],
)
def test_minimisers_agree_with_lbfgs(sampler, debias):
    X, y = labelled(2_000, 6)
    problem = LogisticProblem(X, y, 1e-3)
    result = minimize_ssn(problem, np.zeros(6), sampler, debias, random_state=0)
    assert result.success
    other = minimize(problem.value, np.zeros(6), jac=problem.gradient, options={"gtol": 1e-10})
    np.testing.assert_allclose(result.x, other.x, atol=1e-7)
    assert result.nit == len(result.history) and result.history[-1]["grad_norm"] <= 1e-10


def test_from_far_away_the_objective_falls_at_every_step():
    X, y = labelled(1_000, 4)
    values = []
    problem = LogisticProblem(X, y, 1e-4)
    start = np.full(4, 6.0)
    minimize_ssn(
        problem,
        start,
        RowSampler("ridge_leverage", 60),
        random_state=1,
        callback=lambda b: values.append(problem.value(b)),
    )
    assert (np.diff([problem.value(start), *values]) <= 1e-14).all()


def test_local_rate_is_that_of_the_theory():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(1_000, 10)) * np.geomspace(1, 100, 10)
    problem = QuadraticProblem(A, np.zeros(1_000), 0.0)
    H = A.T @ A
    ratios = []
    for _ in range(150):
        b = rng.normal(size=10)
        result = minimize_ssn(
            problem, b, RowSampler("leverage", 60), step="theory", max_iter=1, random_state=rng
        )
        assert result.history[0]["step"] == pytest.approx(1 / (1 + 10 / 60))
        ratios.append((result.x @ H @ result.x) / (b @ H @ b))
    assert np.mean(ratios) / (10 / 60) == pytest.approx(1, abs=0.15)


def test_each_step_draws_a_sketch_of_its_own_and_the_whole_gradient(monkeypatch):
    X, y = labelled(500, 4)
    problem = LogisticProblem(X, y, 1e-3)
    drawn: list[Sketch] = []
    gradients: list[np.ndarray] = []
    steps: list[np.ndarray] = []
    whole, sample = problem.gradient, RowSampler.sample

    def watched_gradient(b):
        gradients.append(whole(b))
        return gradients[-1]

    def watched_sample(self, *arguments, **options):
        drawn.append(sample(self, *arguments, **options))
        return drawn[-1]

    monkeypatch.setattr(problem, "gradient", watched_gradient)
    monkeypatch.setattr(RowSampler, "sample", watched_sample)
    minimize_ssn(
        problem, np.zeros(4), RowSampler("uniform", 60), random_state=0, max_iter=4, callback=steps.append
    )
    assert len(drawn) == 4 and not any(
        np.array_equal(a.rows, b.rows)  # type: ignore[arg-type]
        for a, b in itertools.combinations(drawn, 2)
    )
    signed = X * np.where(y > 0, 1, -1)[:, None]
    for step, gradient in zip(steps, gradients[1:], strict=True):
        expected = -(signed / (1 + np.exp(signed @ step))[:, None]).mean(0) + 1e-3 * step
        np.testing.assert_allclose(gradient, expected, atol=1e-12)


def test_scores_may_be_kept_for_some_steps():
    X, y = labelled(3_000, 5)
    problem = LogisticProblem(X, y, 1e-3)
    fits = []

    class Counting(RowSampler):
        def fit(self, A, C=0.0, random_state=None):
            fits.append(1)
            return super().fit(A, C, random_state)

    result = minimize_ssn(problem, np.zeros(5), Counting("ridge_leverage", 300), refresh=100, random_state=0)
    assert result.success and len(fits) == 1


def test_a_callback_may_end_the_run():
    X, y = labelled(300, 3)

    def stop(b):
        raise StopIteration

    result = minimize_ssn(LogisticProblem(X, y, 0.1), np.zeros(3), None, callback=stop)
    assert result.nit == 1 and not result.success


# Estimators ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
def test_classifier_agrees_with_scikit_learn(fit_intercept, convert):
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)
    names = np.array(["bad", "good"])[y]
    ours = SubsampledNewtonClassifier(C=0.5, fit_intercept=fit_intercept, m=350, random_state=0)
    ours.fit(convert(X), names)
    theirs = LogisticRegression(C=0.5, fit_intercept=fit_intercept, tol=1e-10, max_iter=5_000).fit(X, names)
    assert ours.m_ == 350
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(convert(X)), theirs.predict_proba(X), atol=1e-4)
    assert ours.predict(convert(X)).tolist() == theirs.predict(X).tolist()
    again = pickle.loads(pickle.dumps(ours))  # noqa: S301
    np.testing.assert_array_equal(again.predict(X), ours.predict(X))


def test_several_classes_are_each_held_against_the_rest():
    X, y = load_iris(return_X_y=True)
    ours = SubsampledNewtonClassifier(random_state=0).fit(X, y)
    for k in range(3):
        one = LogisticRegression(tol=1e-10, max_iter=5_000).fit(X, y == k)
        np.testing.assert_allclose(ours.coef_[k], one.coef_[0], atol=1e-4)
    assert ours.score(X, y) > 0.9
    np.testing.assert_allclose(ours.predict_proba(X).sum(axis=1), 1)


@pytest.mark.parametrize("change", ["units", "year"])
def test_classifier_takes_columns_as_they_are_measured(change):
    # Columns of units twelve powers of ten apart; columns that hardly vary beside their mean.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4_000, 8))
    y = (rng.random(4_000) < special.expit(X[:, 0])).astype(int)
    X = X * np.geomspace(1e-6, 1e6, 8) if change == "units" else X + 2013
    ours = SubsampledNewtonClassifier(random_state=0).fit(X, y)
    theirs = LogisticRegression(solver="newton-cholesky", tol=1e-12, max_iter=200).fit(X, y)

    def objective(model):
        z = model.decision_function(X)
        return (model.coef_**2).sum() / 2 + (np.logaddexp(0, z) - y * z).sum()

    assert ours.m_ < len(X)
    assert objective(ours) <= objective(theirs) * (1 + 1e-12)


@pytest.mark.parametrize("m", ["auto", 200])
def test_regressor_agrees_with_scikit_learn(m):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3_000, 8)) + 2
    y = X @ np.arange(8.0) + rng.normal(size=3_000)
    ours = SubsampledNewtonRegressor(alpha=20.0, m=m, random_state=0).fit(X, y)
    theirs = Ridge(alpha=20.0, solver="cholesky").fit(X, y)
    assert ours.m_ < 3_000
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-4)


def test_an_estimator_that_does_not_converge_says_so():
    X, y = labelled(500, 4)
    with pytest.warns(ConvergenceWarning, match="not converged after 1 step"):
        SubsampledNewtonClassifier(m=60, max_iter=1, random_state=0).fit(X, y)


# Bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: leverage_scores(heavy(3, 5)), "A must have at least as many rows as columns where C = 0"),
        (lambda: leverage_scores(np.ones((9, 2))), "full column rank"),
        (lambda: leverage_scores(np.ones((9, 2)), 0.0, "approx"), "singular|definite"),
        (lambda: leverage_scores(heavy(9, 2), -1.0), "C must be at least 0"),
        (lambda: leverage_scores(heavy(9, 2), np.diag([1.0, -1.0])), "C must be positive semi-definite"),
        (lambda: leverage_scores(heavy(9, 2), [[1.0, 2.0], [2.0, 1.0]]), "C must be positive semi-definite"),
        (lambda: leverage_scores(heavy(9, 2), [[1.0, 0.5], [0.0, 1.0]]), "C must be symmetric"),
        (lambda: leverage_scores(heavy(9, 2), np.eye(3)), "C must be a number or have shape"),
        (lambda: RowSampler("uniform", 0), "m must be at least 1"),
        (lambda: RowSampler("coherent", 5), "scheme must be one of"),
        (lambda: RowSampler("row_norm", 5).fit(np.zeros((4, 2)), 1.0), "A must have a row that is not zero"),
        (lambda: RowSampler("uniform", 3).fit(heavy(9, 3)).sample(0, "scalar"), "need m > d_eff = 3"),
        (lambda: SRHT(3).fit(heavy(9, 3)).sample(0, "scalar"), "need m > d_eff = 3"),
        (
            lambda: SRHT(3).fit(heavy(9, 3)).sample(0, "fine"),  # type: ignore[arg-type]
            "mixes rows",
        ),
        (
            lambda: debiased_inverse(heavy(9, 3), 0.0, RowSampler("uniform", 2).fit(heavy(9, 3)).sample(0)),
            "rank-deficient",
        ),
        (
            lambda: debiased_inverse(heavy(9, 2), 0.0, RowSampler("uniform", 2).fit(heavy(9, 3)).sample(0)),
            "sketch must have 2",
        ),
        (
            lambda: deterministic_equivalent(heavy(4, 2), 1.0, [0.5, 0.5, 0.0, 0.0], 3),
            "pi must be positive wherever a row of A is not zero",
        ),
        (lambda: deterministic_equivalent(heavy(4, 2), 1.0, [0.5, 0.5, 0.5, 0.5], 3), "pi must be prob"),
        (lambda: deterministic_equivalent(heavy(40, 5), 0.0, np.full(40, 1 / 40), 3), "no fixed point"),
        (lambda: fwht(np.ones(6)), "power of two"),
        (lambda: LogisticProblem(heavy(3, 2), [0, 1, 2], 0.1), "y must hold labels"),
        (lambda: LogisticProblem(heavy(3, 2), [0, 1, 1], -0.1), "lam must be at least 0"),
        (
            lambda: minimize_ssn(
                LogisticProblem(heavy(9, 2), np.arange(9) % 2, 0.1),
                np.zeros(2),
                RowSampler("uniform", 5),
                "none",
                "theory",
            ),
            "step 'theory' holds for debiased weights",
        ),
        (lambda: SubsampledNewtonClassifier(C=0.0).fit(*labelled(30, 2)), "C must be greater than 0"),
        (lambda: SubsampledNewtonClassifier(m="all").fit(*labelled(30, 2)), "m must be 'auto' or an integer"),
        (lambda: SubsampledNewtonClassifier().fit(heavy(4, 2), [1, 1, 1, 1]), "y must hold at least 2"),
    ],
)
def test_bad_input_is_refused_with_the_cause(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_zero_probability_is_legal_where_the_row_is_zero():
    A = np.vstack([heavy(60, 2), np.zeros((1, 2))])
    pi = np.append(np.full(60, 1 / 60), 0.0)
    assert deterministic_equivalent(A, 0.0, pi, 20).bias > 0.05
    assert RowSampler("row_norm", 20).fit(A).probabilities_[-1] == 0


# The study -----------------------------------------------------------------------------------------------


def bound_of(identifier):
    claim = next(claim for claim in lookup(SLUG).claims if claim.id == identifier)
    return Bound.parse(claim.checks[0].bound)


def small_ratio():
    size = dataclasses.replace(SIZES["smoke"], n_real=600, n_draws=300)
    digits = study._real(Context("smoke", 100), size)["DIG"]
    return digits["fine"]["bias"] / digits["scalar"]["bias"]


def test_planted_scalar_for_every_scheme_turns_c1c(monkeypatch):
    bound = bound_of("C1c")
    assert bound.contains(small_ratio())
    right = RowSampler.reweight
    monkeypatch.setattr(
        RowSampler,
        "reweight",
        lambda self, sketch, debias: right(self, sketch, "scalar" if debias == "fine" else debias),
    )
    assert not bound.contains(small_ratio())


def test_planted_single_inverse_turns_c1b(monkeypatch):
    # The first mistake of all: invert once, or four times, and take the noise of the draws for the bias.
    from theses.optim.subsampled_newton import bias

    A = heavy(1_000, 20)
    bound = bound_of("C1b")

    def ratio():
        reports = compare_debiasing(A, 0.0, RowSampler("shrinkage", 100), n_rep=400, random_state=0)
        return reports["fine"].bias / reports["none"].bias

    assert bound.contains(ratio())
    right = bias._report

    def once(mode, sums, counts, n_rep):
        error = sums[0] / counts[0] - np.eye(sums.shape[1])
        report = right(mode, sums, counts, n_rep)
        return type(report)(**{**report.to_dict(), "bias": float(np.sqrt((error**2).sum() / len(error)))})

    monkeypatch.setattr(bias, "_report", once)
    assert not bound.contains(ratio())


def write_paper_folder(folder):
    rng = np.random.default_rng(0)
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    labels = np.arange(60) % 10
    images = rng.integers(0, 255, size=(60, 28, 28))
    (raw / "train-images-idx3-ubyte").write_bytes(
        struct.pack(">4i", 0x803, 60, 28, 28) + images.astype(np.uint8).tobytes()
    )
    (raw / "train-labels-idx1-ubyte").write_bytes(
        struct.pack(">2i", 0x801, 60) + labels.astype(np.uint8).tobytes()
    )
    batches = folder / "cifar-10-batches-bin"
    batches.mkdir()
    for index in range(1, 6):
        records = rng.integers(0, 255, size=(12, 3073))
        records[:, 0] = np.arange(12) % 10
        (batches / f"data_batch_{index}.bin").write_bytes(records.astype(np.uint8).tobytes())


def test_paper_preset_runs_on_a_folder_in_its_layout(tmp_path):
    with pytest.raises(ValueError, match="cifar-10-batches-bin"):
        study.run(Context("paper", 0))
    write_paper_folder(tmp_path)
    measurement = study.run(Context("paper", 101, data_folder=tmp_path, limit=60))
    assert set(measurement.metrics) >= set(lookup(SLUG).metrics("paper"))
    assert set(measurement.tables["race"]["data"]) == {"MNIST", "CIFAR-10"}
