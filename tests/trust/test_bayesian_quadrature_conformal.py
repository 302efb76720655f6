from __future__ import annotations

import math
import pickle
import re
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_array

from tests.conformance.contract import Call
from theses.catalogue import lookup
from theses.catalogue.card import Bound
from theses.evidence import Context
from theses.studies.trust import bayesian_quadrature_conformal as study
from theses.trust.bayesian_quadrature_conformal import (
    BQClassifier,
    BQRegressor,
    DirichletDraws,
    RiskController,
    RiskPosterior,
    RiskRule,
    allowed_misses,
    crc_bound,
    false_negative_rate,
    hoeffding_bound,
    miscoverage,
    posterior,
    rules,
    scaled_count,
    select_lambda,
    wsr_bound,
)
from theses.trust.bayesian_quadrature_conformal.baselines import wsr_rejects
from theses.trust.bayesian_quadrature_conformal.posterior import order_rank
from theses.trust.bayesian_quadrature_conformal.rules import METHODS, smallest_lambda

SLUG = "bayesian-quadrature-conformal"

unit_losses = hnp.arrays(
    np.float64, st.integers(1, 30), elements=st.floats(0, 1, allow_nan=False, allow_subnormal=False)
)
levels = st.floats(0.01, 0.99)


# What a wrapped model must not have: anything to learn from the data that the checks bring.
class RowMean(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    def fit(self, X, y=None):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, X):
        return check_array(X).mean(axis=1)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


class RowSoftmax(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    @property
    def classes_(self):
        return np.arange(4)

    def fit(self, X, y=None):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict_proba(self, X):
        weights = np.exp(np.tanh(check_array(X).mean(axis=1))[:, None] * self.classes_)
        return weights / weights.sum(axis=1, keepdims=True)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


ESTIMATORS = {
    "BQRegressor": lambda: BQRegressor(RowMean()),
    "BQClassifier": lambda: BQClassifier(RowSoftmax()),
}
_FITTED_BEFORE = "the wrapped model is fitted before, so its classes are not those that the check brings"
EXCUSED = {
    "BQClassifier": {
        "check_classifiers_one_label": _FITTED_BEFORE,
        "check_classifiers_classes": _FITTED_BEFORE,
    },
}
# RiskController takes scores, not a table X, and is held to the same checks all the same.
CONTROLLER_EXCUSED = {
    "check_no_attributes_set_in_init": "the parameter `predict` cannot be kept under the name of the method",
    "check_fit1d": "scores may have any rank",
    "check_fit2d_predict1d": "scores may have any rank; another width is refused in other words",
}


def at_least(scores, lam):
    return scores >= -lam


def band(scores, lam):
    centre = np.asarray(scores, dtype=np.float64).reshape(len(scores), -1).mean(axis=1)
    return np.column_stack([centre - lam, centre + lam])


def levels_of(scores, lam):
    return np.full(len(scores), lam)


def labelled(n=300, n_labels=6, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.random((n, n_labels)) < 0.35
    return np.clip(0.35 * truth + 0.65 * rng.random((n, n_labels)), 0, 1), truth


def fnr_controller(**parameters):
    parameters = {"alpha": 0.1, "lam_range": (-1.0, 0.0), "random_state": 0, **parameters}
    return RiskController(false_negative_rate, at_least, **parameters)


def calls() -> list[Call]:
    rng = np.random.default_rng(0)
    losses = rng.random(40)
    table = np.sort(rng.random((40, 5)), axis=1)[:, ::-1].copy()
    truth = rng.random((40, 3)) < 0.5
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    labels = (y > 0).astype(int)
    scores = X[:, :, None]

    def regressor():
        return BQRegressor(LinearRegression().fit(X, y), alpha=0.2)

    def classifier():
        return BQClassifier(LogisticRegression().fit(X, labels), alpha=0.2)

    def controller():
        return RiskController(miscoverage, band, alpha=0.5, lam_range=(0.0, 10.0), n_samples=50)

    rank = {"losses": ("rank",)}  # a column for each lambda
    column = {"y": ("rank",)}  # scikit-learn's estimators take a column, with a warning
    return [
        Call("RiskPosterior", lambda: (RiskPosterior, {"losses": losses.copy()}), ("losses",)),
        Call(
            "RiskPosterior.quantile",
            lambda: (RiskPosterior(losses).quantile, {"q": np.array([0.5, 0.9])}),
            ("q",),
        ),
        Call("RiskPosterior.cdf", lambda: (RiskPosterior(losses).cdf, {"x": np.array([0.4, 0.6])}), ("x",)),
        Call(
            "RiskPosterior.prob_below",
            lambda: (RiskPosterior(losses).prob_below, {"alpha": np.array([0.4, 0.6])}),
            ("alpha",),
        ),
        Call(
            "DirichletDraws.bounds",
            lambda: (DirichletDraws(40, 50).bounds, {"losses": losses.copy()}),
            ("losses",),
            paired=("losses",),
            allowed=rank,
        ),
        *(
            Call(
                f"RiskRule.{method}",
                partial(
                    lambda name: (getattr(RiskRule("bq", 40, 0.3), name), {"losses": losses.copy()}), method
                ),
                ("losses",),
                paired=("losses",),
                allowed=rank,
            )
            for method in ("holds", "bound")
        ),
        *(
            Call(
                function.__name__,
                partial(lambda bound: (bound, {"losses": losses.copy()}), function),
                ("losses",),
                allowed=rank,
            )
            for function in (crc_bound, hoeffding_bound, wsr_bound)
        ),
        Call(
            "select_lambda",
            lambda: (
                select_lambda,
                {"losses": table.copy(), "lambdas": np.arange(5.0), "alpha": 0.3, "n_samples": 50},
            ),
            ("losses", "lambdas"),
            paired=("lambdas",),
        ),
        Call(
            "miscoverage",
            lambda: (miscoverage, {"predictions": np.sort(X, axis=1), "y": y.copy()}),
            ("predictions", "y"),
            paired=("predictions", "y"),
            allowed={"predictions": ("inf",)},
        ),
        Call(
            "false_negative_rate",
            lambda: (false_negative_rate, {"predictions": truth.copy(), "y": truth.astype(float)}),
            ("predictions", "y"),
            paired=("predictions", "y"),
        ),
        Call(
            "scaled_count",
            lambda: (scaled_count, {"predictions": losses.copy(), "y": table.copy()}),
            ("predictions", "y"),
            paired=("predictions", "y"),
        ),
        Call(
            "RiskController.fit",
            lambda: (
                controller().fit,
                {"scores": scores.copy(), "y": y.copy(), "candidates": np.linspace(0, 5, 7)},
            ),
            ("scores", "y", "candidates"),
            paired=("scores", "y"),
            allowed={"scores": ("rank",)},  # images, for instance
        ),
        Call(
            "RiskController.predict",
            lambda: (controller().fit(scores, y).predict, {"scores": scores.copy()}),
            ("scores",),
            allowed={"scores": ("rank",)},
        ),
        Call(
            "BQRegressor.fit",
            lambda: (regressor().fit, {"X": X.copy(), "y": y.copy()}),
            ("X", "y"),
            paired=("X", "y"),
            allowed=column,
        ),
        Call(
            "BQClassifier.fit",
            lambda: (classifier().fit, {"X": X.copy(), "y": labels.copy()}),
            ("X", "y"),
            paired=("X", "y"),
            allowed=column,
        ),
        *(
            Call(
                f"BQRegressor.{method}",
                partial(lambda name: (getattr(regressor().fit(X, y), name), {"X": X.copy()}), method),
                ("X",),
            )
            for method in ("predict", "predict_interval")
        ),
        *(
            Call(
                f"BQClassifier.{method}",
                partial(lambda name: (getattr(classifier().fit(X, labels), name), {"X": X.copy()}), method),
                ("X",),
            )
            for method in ("predict", "predict_set")
        ),
    ]


# The bound -----------------------------------------------------------------------------------------------


@given(st.integers(1, 300), st.data(), levels)
def test_zero_one_losses_give_the_clopper_pearson_bound(n, data, q):
    k = data.draw(st.integers(0, n - 1))
    bound = RiskPosterior([1] * k + [0] * (n - k))
    interval = stats.binomtest(k, n, alternative="less").proportion_ci(q, method="exact")
    assert bound.exact
    assert bound.quantile(q) == pytest.approx(interval.high, abs=1e-9)
    assert bound.cdf(q) == pytest.approx(stats.beta.cdf(q, k + 1, n - k), abs=1e-12)


def test_exact_case_scales_with_the_largest_loss_and_with_the_least():
    losses = np.array([0.5] * 15 + [2.0] * 5)
    bound = RiskPosterior(losses, max_loss=2.0, random_state=0)
    assert bound.quantile(0.9) == pytest.approx(0.5 + 1.5 * stats.beta.ppf(0.9, 6, 15))
    assert stats.kstest(bound.samples, lambda x: stats.beta.cdf((x - 0.5) / 1.5, 6, 15)).pvalue > 1e-3


def test_nothing_but_the_largest_loss_bounds_nothing():
    bound = RiskPosterior([1.0, 1.0], random_state=0)
    assert (bound.quantile(0.01), bound.cdf(0.999), bound.cdf(1.0)) == (1.0, 0.0, 1.0)
    assert set(bound.samples) == {1.0}


@pytest.mark.parametrize("losses", [[0.2], [0.1, 0.7], [0.0, 0.3, 0.35], [0.05, 0.5, 0.6, 0.9]])
def test_draws_have_the_distribution_that_divided_differences_give(losses):
    # P(sum_i U_i v_i > x) for a flat Dirichlet distribution on distinct values v: a spline in x.
    values = np.array([*losses, 1.0])
    n = len(losses)

    def exact(x):
        gaps = values[:, None] - values[None, :] + np.eye(n + 1)
        return 1 - np.sum(np.clip(values - x[:, None], 0, None) ** n / np.prod(gaps, axis=1), axis=1)

    bound = RiskPosterior(losses, n_samples=20_000, random_state=1)
    bound.exact = False
    assert stats.kstest(bound.samples, lambda x: exact(np.atleast_1d(x))).pvalue > 1e-3
    without_last = DirichletDraws(n, 20_000, 1).weights[:, :n] @ np.array(losses)
    assert stats.kstest(without_last, lambda x: exact(np.atleast_1d(x))).pvalue < 1e-9


def test_grouped_draws_have_the_distribution_of_single_ones():
    losses = np.repeat([0.0, 0.25, 0.5, 1.0], [60, 20, 15, 5])
    grouped = RiskPosterior(losses, n_samples=20_000, random_state=0).samples
    single = DirichletDraws(100, 20_000, 1).bounds(losses)
    assert stats.ks_2samp(grouped, single).pvalue > 1e-3
    assert grouped.mean() == pytest.approx(
        (losses.sum() + 1) / 101, abs=4 * grouped.std() / math.sqrt(20_000)
    )


def test_draws_in_blocks_are_those_that_are_kept(monkeypatch):
    losses = np.random.default_rng(0).random((70, 3))
    kept = DirichletDraws(70, 40, 5)
    monkeypatch.setattr(posterior, "_KEEP_BYTES", 0)
    monkeypatch.setattr(posterior, "_BLOCK_ENTRIES", 200)
    blocks = DirichletDraws(70, 40, 5)
    assert blocks._kept is None
    np.testing.assert_allclose(blocks.bounds(losses, 2.0), kept.bounds(losses, 2.0), rtol=1e-13)
    np.testing.assert_allclose(blocks.bounds(losses[:, 0]), kept.bounds(losses[:, 0]), rtol=1e-13)
    np.testing.assert_allclose(blocks.weights, kept.weights, rtol=1e-13)


@given(unit_losses, st.data())
def test_larger_losses_give_a_larger_bound_draw_by_draw(losses, data):
    rise = data.draw(hnp.arrays(np.float64, len(losses), elements=st.floats(0, 1)))
    draws = DirichletDraws(len(losses), 50, 0)
    assert (draws.bounds(np.minimum(losses + rise, 1)) >= draws.bounds(losses) - 1e-12).all()


@given(unit_losses, st.floats(0.01, 100), st.floats(0, 10))
def test_the_bound_is_linear_and_shifts_with_the_losses(losses, scale, shift):
    draws = DirichletDraws(len(losses), 50, 0)
    moved = draws.bounds(scale * losses + shift, scale + shift)
    np.testing.assert_allclose(moved, scale * draws.bounds(losses) + shift, rtol=1e-9, atol=1e-9)


@given(unit_losses, st.booleans(), levels, st.floats(0, 1.2))
def test_quantile_and_distribution_function_agree(losses, conservative, q, x):
    bound = RiskPosterior(losses, n_samples=300, conservative=conservative, random_state=0)
    margin = abs(bound.quantile(q) - x)
    if margin > 1e-9:
        assert (bound.cdf(x) >= q - 1e-9) == (bound.quantile(q) <= x) or abs(bound.cdf(x) - q) < 1e-9
    assert bound.prob_below(x) == bound.cdf(x)
    assert bound.mean == pytest.approx((losses.sum() + 1) / (len(losses) + 1))


def test_the_quantile_is_one_sided():
    # A two-sided interval would end at the 0.975-quantile.
    bound = RiskPosterior(np.linspace(0, 1, 50), n_samples=20_000, random_state=0)
    assert (bound.samples <= bound.quantile(0.95)).mean() == pytest.approx(0.95, abs=1e-4)
    assert bound.cdf([0.0, 1.0]).tolist() == [0.0, 1.0]


def test_the_conservative_order_statistic_covers_the_quantile():
    # Losses 0 and 1 through the sampling path: the true quantile is known.
    n, k, q, n_samples, repeats = 20, 3, 0.9, 200, 3_000
    losses = np.array([1.0] * k + [0.0] * (n - k))
    true = stats.beta.ppf(q, k + 1, n - k)
    draws = np.sort([DirichletDraws(n, n_samples, seed).bounds(losses) for seed in range(repeats)], axis=1)
    plain = (draws[:, order_rank(n_samples, q, False) - 1] < true).mean()
    safe = (draws[:, order_rank(n_samples, q, True) - 1] < true).mean()
    assert plain > 0.3
    assert safe <= 1e-3 + 3 * math.sqrt(1e-3 / repeats)
    one_less = stats.binom.sf(order_rank(n_samples, q, True) - 2, n_samples, q)
    assert one_less > 1e-3 >= stats.binom.sf(order_rank(n_samples, q, True) - 1, n_samples, q)


def test_too_few_draws_for_a_conservative_quantile_give_the_largest_loss():
    bound = RiskPosterior([0.1, 0.2, 0.3], n_samples=50, conservative=True, random_state=0)
    assert bound.quantile(0.95) == 1.0
    assert bound.cdf(0.999) < 0.95


def test_draws_that_are_too_few_for_a_quantile_do_not_stand_for_it():
    bound = RiskPosterior([0.1, 0.2, 0.3], n_samples=100, random_state=0)
    assert bound.quantile(0.99) == np.sort(bound.samples)[98]
    assert bound.quantile([0.9901, 1 - 1e-9]).tolist() == [1.0, 1.0]
    assert RiskPosterior([0, 0, 1]).quantile(1 - 1e-6) == pytest.approx(stats.beta.ppf(1 - 1e-6, 2, 2))


def test_draws_are_read_only_and_no_bound_exceeds_the_largest_loss():
    draws = DirichletDraws(7, 500, 0)
    with pytest.raises(ValueError, match="read-only"):
        draws.weights[0, 0] = 1.0
    assert (draws.weights @ np.ones(8)).max() > 1  # rounding
    assert draws.bounds(np.ones(7)).max() <= 1
    assert RiskRule("bq", 7, 0.5, random_state=0).bound(np.full((7, 2), 1.0)).max() <= 1


def test_the_same_random_state_gives_the_same_draws_and_an_order_of_losses_does_not_matter():
    losses = np.random.default_rng(0).random(30)
    first, second = (RiskPosterior(losses, random_state=3).samples for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, RiskPosterior(losses[::-1], random_state=3).samples)


def test_results_tell_what_they_are():
    bound = RiskPosterior([0.0, 0.25, 0.5, 0.0], n_samples=100, random_state=0)
    assert "4 losses" in bound.summary() and "100 draws" in bound.summary()
    assert bound.to_dict()["mean_loss"] == pytest.approx(0.1875)
    frame = bound.to_frame()
    assert frame.columns == ["risk", "probability"] and frame["probability"].is_sorted()
    assert bound.plot().to_dict()["mark"]["type"] == "line"
    exact = RiskPosterior([0, 1, 0])
    assert exact.to_frame()["probability"][-1] == pytest.approx(1, abs=1e-3)
    stored = pickle.loads(pickle.dumps(bound))  # noqa: S301 - our own bytes
    assert stored.quantile(0.5) == bound.quantile(0.5)


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([0.5, 1.5], "got 1.5 at index"),
        ([-0.1, 0.5], "got -0.1 at index"),
        ([np.nan], "finite"),
        ([], "at least 1"),
    ],
)
def test_losses_out_of_range_are_refused(losses, words):
    with pytest.raises(ValueError, match=f"losses must .*{words}"):
        RiskPosterior(losses)
    assert RiskPosterior([1 + 1e-12, -1e-12, 0.5]).mean == pytest.approx(2.5 / 4)


def test_parameters_out_of_range_are_refused():
    for name, call in {
        "max_loss": lambda: RiskPosterior([0.1], max_loss=0.0),
        "n_samples": lambda: RiskPosterior([0.1], n_samples=0),
        "q": lambda: RiskPosterior([0.1]).quantile(1.0),
        "alpha": lambda: allowed_misses(10, 1.0),
        "beta": lambda: allowed_misses(10, 0.1, 0.0),
        "n": lambda: allowed_misses(0, 0.1),
    }.items():
        with pytest.raises(ValueError, match=rf"^{name} "):
            call()


@given(st.integers(1, 400), st.floats(0.01, 0.9), levels)
def test_allowed_misses_is_the_largest_number(n, alpha, beta):
    k = allowed_misses(n, alpha, beta)
    counts = np.arange(n)
    passing = counts[stats.beta.cdf(alpha, counts + 1, n - counts) >= beta]
    assert k == (passing[-1] if len(passing) else -1)


# The rules -----------------------------------------------------------------------------------------------


def betting_loop(losses, delta, risk):
    """Wealth of the betting game, one loss at a time, as the formula has it."""
    n = len(losses)
    best, log_wealth, total, spread, variance = -np.inf, 0.0, 0.5, 0.25, 0.25
    for i, loss in enumerate(losses, start=1):
        stake = min(1.0, math.sqrt(2 * math.log(1 / delta) / (n * variance)))
        log_wealth += math.log(max(1 - stake * (loss - risk), 1e-300))
        best = max(best, log_wealth)
        total += loss
        spread += (loss - total / (i + 1)) ** 2
        variance = spread / (i + 1)
    return best


@given(unit_losses, st.floats(0.01, 0.5))
def test_the_betting_bound_is_where_the_game_is_won(losses, delta):
    bound = wsr_bound(losses, delta)
    threshold = -math.log(delta)
    if bound < 1 - 1e-6:
        assert betting_loop(losses, delta, bound + 1e-6) > threshold
    if bound > 1e-6:
        assert betting_loop(losses, delta, bound - 1e-6) <= threshold
    rejected = wsr_rejects(losses[:, None], min(bound + 1e-6, 1.0), delta, 1.0)
    assert bool(rejected[0]) == (bound < 1 - 1e-6) or bound >= 1 - 1e-6


def test_baseline_bounds_cover_the_mean_and_scale():
    rng = np.random.default_rng(0)
    losses = rng.beta(0.5, 4.0, size=(100, 2_000))
    for bound in (hoeffding_bound(losses, 0.1), wsr_bound(losses, 0.1)):
        assert (bound >= 0.5 / 4.5).mean() >= 0.9 - 0.02
    assert wsr_bound(losses, 0.1).mean() < hoeffding_bound(losses, 0.1).mean()
    for function in (crc_bound, hoeffding_bound, wsr_bound):
        single = function(losses[:, 0])
        assert isinstance(single, float)
        assert function(losses)[0] == pytest.approx(single)
        assert function(3 * losses[:, 0], max_loss=3.0) == pytest.approx(3 * single)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("binary", [False, True])
def test_a_rule_holds_where_its_bound_is_at_most_alpha(method, binary):
    rng = np.random.default_rng(1)
    table = 2.0 * (rng.random((60, 200)) < np.linspace(0, 0.5, 200))
    if not binary:
        table = table * rng.random(table.shape)
    rule = RiskRule(method, 60, 0.5, 0.9, 2.0, binary=binary and method == "bq", random_state=0)
    bounds, holds = rule.bound(table), rule.holds(table)
    np.testing.assert_array_equal(holds, bounds <= 0.5)
    assert 10 < holds.sum() < 190
    assert [rule.holds(column) for column in table.T[:5]] == holds[:5].tolist()
    assert rule.bound(table[:, 0]) == pytest.approx(bounds[0])


def test_the_rule_asks_the_same_question_each_time():
    # Fresh draws at each lambda would make the condition flicker near its border.
    losses = np.random.default_rng(0).random(50) * 0.5
    reference = RiskRule("bq", 50, 0.3, random_state=7)
    alpha = reference.bound(losses)
    rule = RiskRule("bq", 50, alpha, random_state=7)
    assert all(rule.holds(losses) for _ in range(20))
    assert not RiskRule("bq", 50, alpha - 1e-9, random_state=7).holds(losses)


def test_a_rule_refuses_what_it_cannot_answer():
    for name, call in {
        "alpha": lambda: RiskRule("bq", 10, 1.0),
        "beta": lambda: RiskRule("bq", 10, 0.1, 1.0),
        "method": lambda: RiskRule("hpd", 10, 0.1),
        "n_samples": lambda: RiskRule("bq", 10, 0.1, 0.999, n_samples=100),
        "losses": lambda: RiskRule("bq", 10, 0.1, binary=True).holds([0.5] * 10),
    }.items():
        with pytest.raises(ValueError, match=rf"^{name} "):
            call()
    with pytest.raises(ValueError, match="n_samples must be at least 135"):
        RiskRule("bq", 10, 0.1, n_samples=134, conservative=True)
    assert RiskRule("bq", 10, 0.1, n_samples=135, conservative=True).n_samples == 135
    with pytest.raises(
        ValueError, match=r"n_samples must be at least 10000 for a probability of 0\.9999, got"
    ):
        RiskRule("bq", 10, 0.1, 0.9999, n_samples=9_999)
    assert RiskRule("bq", 10, 0.1, 0.9999, n_samples=10_000).draws is not None


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_the_search_finds_the_border(answers):
    certified = sorted(answers)
    found = smallest_lambda(
        lambda losses: certified[int(losses[0])],
        lambda lam: np.array([lam]),
        np.arange(float(len(certified))),
    )
    assert found == (certified.index(True) if True in certified else None)


@settings(max_examples=50)
@given(st.integers(20, 200), st.floats(0.06, 0.5), st.integers(0, 10_000))
def test_the_mean_of_the_bound_is_split_conformal_prediction(n, alpha, seed):
    if alpha * (n + 1) < 1 + 1e-6 or abs((n + 1) * (1 - alpha) - round((n + 1) * (1 - alpha))) < 1e-9:
        return
    scores = np.random.default_rng(seed).normal(size=n)
    ordered = np.sort(scores)
    by_mean = smallest_lambda(
        lambda losses: RiskPosterior(losses).mean <= alpha, lambda lam: (scores > lam) * 1.0, ordered
    )
    assert by_mean == ordered[math.ceil((n + 1) * (1 - alpha)) - 1]
    table = (scores[:, None] > ordered) * 1.0
    assert select_lambda(table, ordered, alpha, method="crc").lambda_ == by_mean


# The choice ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("conservative", [False, True])
def test_controller_and_table_choose_the_same(method, conservative):
    scores, truth = labelled()
    candidates = np.unique(np.round(-scores[truth], 2))
    options = {"method": method, "conservative": conservative, "random_state": 0}
    controller = fnr_controller(**options).fit(scores, truth, candidates=candidates)
    grid = np.unique([-1.0, *candidates, 0.0])
    table = np.stack([false_negative_rate(at_least(scores, lam), truth) for lam in grid], axis=1)
    shuffled = np.random.default_rng(0).permutation(len(grid))
    rule = RiskRule(method, len(scores), 0.1, conservative=conservative, random_state=0)
    holds = rule.holds(table)
    first = len(grid) - int(np.argmin(holds[::-1]))
    assert controller.lambda_ == grid[first]
    choice = select_lambda(table[:, shuffled], grid[shuffled], 0.1, **options)
    assert choice.feasible and choice.lambda_ == controller.lambda_
    assert choice.to_frame().filter("chosen")["certified"].all()
    assert "lambda = " in choice.summary() and choice.to_dict()["method"] == method
    assert choice == choice and choice != replace(choice)  # by identity: arrays have no single truth value
    if method == "bq":
        assert controller.risk_posterior_.prob_below(0.1) >= 0.95
        assert choice.posterior.prob_below(0.1) >= 0.95


def test_bisection_ends_just_above_the_exact_choice():
    scores, truth = labelled()
    exact = fnr_controller().fit(scores, truth, candidates=-scores[truth])
    bisected = fnr_controller().fit(scores, truth)
    assert 0 <= bisected.lambda_ - exact.lambda_ <= 1.001e-6
    assert exact.lambda_ in -scores[truth]
    np.testing.assert_array_equal(exact.predict(scores[:5]), scores[:5] >= -exact.lambda_)


def test_bisection_ends_where_numbers_are_coarse():
    # Neighbouring numbers are further apart than 1e-6 of the range.
    y = 1e10 + np.linspace(0, 0.99, 100)
    controller = RiskController(
        lambda levels, y: (y > levels) * 1.0, levels_of, alpha=0.1, lam_range=(1e10, 1e10 + 1)
    ).fit(y, y)
    expected = y[99 - allowed_misses(100, 0.1)]
    assert controller.lambda_ == pytest.approx(expected, abs=4e-6, rel=0)


def test_scores_and_truth_may_be_images():
    scores, truth = labelled(n=200, n_labels=24)

    def missed_pixels(masks, y):
        return false_negative_rate(masks.reshape(len(masks), -1), y.reshape(len(y), -1))

    flat = fnr_controller(alpha=0.2).fit(scores, truth)
    images = RiskController(missed_pixels, at_least, alpha=0.2, lam_range=(-1.0, 0.0), random_state=0)
    images.fit(scores.reshape(200, 2, 3, 4), truth.reshape(200, 2, 3, 4))
    assert images.lambda_ == flat.lambda_
    assert images.predict(scores.reshape(200, 2, 3, 4)).shape == (200, 2, 3, 4)


def test_scores_that_are_no_array_are_named():
    for scores in ([[0.1, 0.2], [0.3]], torch.zeros((2, 2), dtype=torch.bfloat16)):
        with pytest.raises(TypeError, match=r"^scores must be an array"):
            fnr_controller().fit(scores, np.eye(2))
    for empty in (0.5, np.zeros((0, 2))):
        with pytest.raises(ValueError, match=r"^scores must have a row"):
            fnr_controller().fit(empty, np.eye(2))


def test_rules_are_ordered_from_average_to_wasteful():
    scores, truth = labelled(1_000)
    lam = {
        method: fnr_controller(method=method).fit(scores, truth, candidates=-scores[truth]).lambda_
        for method in METHODS
    }
    assert lam["crc"] < lam["bq"] < lam["rcps-hoeffding"]
    assert lam["crc"] < lam["rcps-wsr"] < lam["rcps-hoeffding"]


def test_zero_one_losses_need_no_draws():
    residuals = np.random.default_rng(0).normal(size=200)
    controller = RiskController(miscoverage, band, alpha=0.1, lam_range=(0.0, 5.0), n_samples=1)
    controller.fit(np.zeros(200), residuals, candidates=np.abs(residuals))
    assert controller.lambda_ == np.sort(np.abs(residuals))[200 - allowed_misses(200, 0.1) - 1]
    assert controller.risk_posterior_.exact
    assert controller.risk_posterior_.prob_below(0.1) >= 0.95


def test_losses_that_are_graded_between_the_probes_are_found_out():
    # 0 or 1 at each of the 32 probes, in between for an instant.
    thresholds = np.linspace(0.2, 0.8, 100)

    def loss(lam, y):
        return np.where(np.abs(lam - y) < 2e-3, 0.5, (y > lam) * 1.0)

    probes = np.linspace(0, 1, 32)
    thresholds = thresholds[np.abs(thresholds[:, None] - probes).min(axis=1) > 5e-3]
    controller = RiskController(loss, levels_of, alpha=0.3, random_state=0).fit(thresholds, thresholds)
    assert not controller.risk_posterior_.exact
    assert controller.risk_posterior_.prob_below(0.3) >= 0.95


def test_too_few_cases_are_no_error():
    n, beta = 20, 0.95
    scores, truth = labelled(n)
    with pytest.warns(UserWarning, match="no lambda"):
        controller = fnr_controller(alpha=0.05, n_samples=20_000).fit(scores, truth)
    assert not controller.feasible_
    assert controller.lambda_ == 0.0
    least = 1 - (1 - beta) ** (1 / n)
    assert controller.risk_posterior_.quantile(beta) == pytest.approx(least, rel=0.02)
    y = np.arange(n) / n
    with pytest.warns(UserWarning, match="too few"):
        regressor = BQRegressor(RowMean(), alpha=0.1).fit(np.zeros((n, 1)), y)
    assert not regressor.feasible_
    assert np.isinf(regressor.predict_interval(np.zeros((2, 1)))).all()
    assert RiskPosterior([0] * n).quantile(beta) == pytest.approx(least)
    choice = select_lambda(np.zeros((n, 2)), [0.0, 1.0], 0.05)
    assert not choice.feasible and choice.lambda_ == 1.0 and "no lambda" in choice.summary()


def test_a_loss_that_grows_needs_consent():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(2_000, 1))

    def loss(predictions, y):  # falls and rises again
        return np.clip(np.abs(predictions - 0.5) + 0.1 * (np.abs(y[:, 0]) > 1), 0, 1)

    controller = RiskController(loss, levels_of, alpha=0.2, random_state=0)
    with pytest.raises(ValueError, match=r"loss must not grow with lambda.*monotone=False"):
        controller.fit(y, y)
    controller.set_params(monotone=False).fit(y, y)
    # 32 lambdas share the error; the least certified one is to the left of the best.
    tried = np.linspace(0, 1, 32)
    assert controller.lambda_ in tried and 0.25 < controller.lambda_ < 0.5
    assert controller.risk_posterior_.prob_below(0.2) >= 1 - 0.05 / 32
    table = np.stack([loss(np.full(len(y), lam), y) for lam in tried], axis=1)
    with pytest.raises(ValueError, match="losses must not grow"):
        select_lambda(table, tried, 0.2)
    assert select_lambda(table, tried, 0.2, monotone=False).lambda_ == controller.lambda_
    with pytest.raises(ValueError, match="'crc'"):
        controller.set_params(method="crc").fit(y, y)
    with pytest.raises(ValueError, match="n_samples must be at least 640"):
        controller.set_params(method="bq", n_samples=600).fit(y, y)


def test_a_user_s_loss_is_checked():
    scores, truth = labelled(50)
    for loss, words in {
        (lambda predictions, y: np.full(len(y), 1.5)): "loss must lie in",
        (lambda predictions, y: np.full(len(y), np.nan)): "loss must be finite",
        (lambda predictions, y: np.zeros(3)): "loss must return n = 50",
        (lambda predictions, y: np.zeros((len(y), 2))): "loss must have 1 dimension",
    }.items():
        with pytest.raises(ValueError, match=words):
            RiskController(loss, at_least, alpha=0.1).fit(scores, truth)


def test_controller_refuses_parameters_out_of_range():
    scores, truth = labelled(50)
    for name, value in (
        ("alpha", 1.0),
        ("alpha", 0.0),
        ("beta", 1.0),
        ("max_loss", 0.0),
        ("method", "hpd"),
        ("lam_range", (1.0, 0.0)),
        ("lam_range", (0.0, 0.5, 1.0)),
        ("lam_range", (0.0, np.inf)),
        ("n_samples", 0),
    ):
        with pytest.raises(ValueError, match=rf"^{name} "):
            fnr_controller(**{name: value}).fit(scores, truth)
    with pytest.raises(TypeError, match="lam_range"):
        fnr_controller(lam_range=3).fit(scores, truth)
    with pytest.raises(ValueError, match=r"^candidates must lie in lam_range"):
        fnr_controller().fit(scores, truth, candidates=1 + scores[truth])  # and not their negatives
    with pytest.raises(ValueError, match=r"^losses must have one column"):
        select_lambda(np.zeros((4, 3)), [1, 2], 0.1)
    with pytest.raises(ValueError, match=r"^lambdas must all be different"):
        select_lambda(np.zeros((4, 2)), [1, 1], 0.1)


def test_controller_is_an_estimator_like_others():
    scores, truth = labelled()
    controller = fnr_controller(alpha=0.2)
    assert controller.get_params()["predict"] is at_least
    copied = clone(controller).set_params(predict=levels_of, loss=scaled_count)
    assert copied.get_params()["predict"] is levels_of and controller.get_params()["predict"] is at_least
    with pytest.raises(NotFittedError):
        controller.predict(scores)
    controller.fit(pl.DataFrame(scores), pl.DataFrame(truth))
    stored = pickle.loads(pickle.dumps(controller))  # noqa: S301 - our own bytes
    np.testing.assert_array_equal(stored.predict(scores), controller.predict(scores))
    with pytest.raises(ValueError, match="scores must have as many columns"):
        controller.predict(scores[:, :2])
    results = check_estimator(
        RiskController(miscoverage, band, 0.5, lam_range=(0.0, 100.0), n_samples=50),
        expected_failed_checks=CONTROLLER_EXCUSED,
        on_skip=None,
        on_fail=None,
    )
    assert [r["check_name"] for r in results if r["status"] == "failed"] == []
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(CONTROLLER_EXCUSED)


def test_losses_count_as_described():
    nothing = np.zeros((2, 3), dtype=bool)
    assert false_negative_rate(nothing, [[1, 1, 0], [0, 0, 0]]).tolist() == [1.0, 0.0]
    assert miscoverage([[-np.inf, np.inf], [0.0, 1.0]], [5.0, 1.0]).tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="y must hold indices"):
        miscoverage(np.ones((1, 3), dtype=bool), [3])
    with pytest.raises(ValueError, match="predictions must hold booleans"):
        false_negative_rate([[0.5]], [[1]])
    assert miscoverage(torch.tensor([[0.0, 1.0]], requires_grad=True), torch.tensor([2.0])).tolist() == [1.0]
    assert miscoverage(torch.tensor([[True, False]]), torch.tensor([1])).tolist() == [1.0]
    with pytest.raises(TypeError, match="predictions must be an array"):
        miscoverage([[0.0, 1.0], [0.5]], [0.0, 1.0])


# The adapters --------------------------------------------------------------------------------------------


def test_regressor_leaves_the_allowed_misses_outside():
    X, y = load_diabetes(return_X_y=True)
    regressor = BQRegressor(Ridge().fit(X[:200], y[:200]), alpha=0.2, beta=0.9).fit(X[200:], y[200:])
    low, high = regressor.predict_interval(X[200:]).T
    outside = (y[200:] < low - 1e-9) | (y[200:] > high + 1e-9)
    assert outside.sum() == allowed_misses(len(X) - 200, 0.2, 0.9)
    assert regressor.risk_posterior_.quantile(0.9) <= 0.2
    np.testing.assert_allclose((low + high) / 2, regressor.predict(X[200:]))


def test_classifier_takes_labels_of_any_kind_in_any_order():
    X, y = load_digits(return_X_y=True)
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    numbers = BQClassifier(GaussianNB().fit(X[:900], y[:900]), alpha=0.2).fit(X[900:], y[900:])
    words = BQClassifier(GaussianNB().fit(X[:900], names[y[:900]]), alpha=0.2).fit(X[900:], names[y[900:]])
    assert words.lambda_ == numbers.lambda_
    columns = [list(words.classes_).index(name) for name in names]
    np.testing.assert_array_equal(words.predict_set(X)[:, columns], numbers.predict_set(X))
    missed = ~numbers.predict_set(X[900:])[np.arange(len(X) - 900), y[900:]]
    assert missed.sum() <= allowed_misses(len(X) - 900, 0.2)
    with pytest.raises(ValueError, match=r"y must hold classes of the estimator.*'ten'"):
        words.fit(X[:2], ["ten", "one"])

    class Reversed(GaussianNB):  # type: ignore[misc]
        classes_: Any

        def fit(self, X, y):
            super().fit(X, y)
            self.classes_ = self.classes_[::-1]
            return self

        def predict_proba(self, X):
            return super().predict_proba(X)[:, ::-1]

    backwards = BQClassifier(Reversed().fit(X[:900], y[:900]), alpha=0.2).fit(X[900:], y[900:])
    assert backwards.lambda_ == numbers.lambda_
    np.testing.assert_array_equal(backwards.predict_set(X)[:, ::-1], numbers.predict_set(X))


def test_adapters_use_the_model_as_it_is():
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(NotFittedError, match="estimator must be fitted"):
        BQRegressor(Ridge()).fit(X, y)
    frozen = BQRegressor(FrozenEstimator(Ridge().fit(X, y)))
    assert clone(frozen).fit(X, y).lambda_ == frozen.fit(X, y).lambda_
    with pytest.raises(ValueError, match="7 features"):
        frozen.predict_interval(X[:, :7])
    texts = ["good film", "bad film", "good", "bad"] * 30
    truth = ["pos", "neg", "pos", "neg"] * 30
    model = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, truth)
    sets = BQClassifier(model, alpha=0.1).fit(texts, truth).predict_set(["good", "bad film"])
    assert sets.tolist() == [[False, True], [True, False]]
    # The types of pandas and torch are not NumPy's.
    series = BQClassifier(model, alpha=0.1).fit(pd.Series(texts), pd.Series(truth))
    assert series.predict_set(pd.Series(["good", "bad film"])).tolist() == sets.tolist()
    tensors = BQRegressor(frozen.estimator).fit(torch.tensor(X), torch.tensor(y))
    assert tensors.lambda_ == frozen.fit(X, y).lambda_


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_adapters_pass_the_checks_of_scikit_learn(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            ESTIMATORS[name](), expected_failed_checks=EXCUSED.get(name), on_skip=None, on_fail=None
        )
    assert [r["check_name"] for r in results if r["status"] == "failed"] == []


# Against MAPIE -------------------------------------------------------------------------------------------


def test_conformal_risk_control_finds_mapie_s_threshold():
    mapie = pytest.importorskip("mapie.risk_control")
    scores, truth = labelled(150)
    some = truth.any(axis=1)
    scores, truth = scores[some], truth[some]
    for method, options in (("crc", {}), ("rcps", {"rcps_bound": "hoeffding", "confidence_level": 0.9})):
        theirs = mapie.MultiLabelClassificationController(
            predict_function=lambda cases: cases, method=method, target_level=0.75, **options
        ).calibrate(scores, truth.astype(int))
        ours = fnr_controller(alpha=0.25, beta=0.9, method="crc" if method == "crc" else "rcps-hoeffding")
        ours.fit(scores, truth, candidates=-scores[truth])
        # Their grid has steps of 0.01, their set the scores over the threshold, ours those at or over it.
        assert 0 <= -ours.lambda_ - theirs.best_predict_param[0] <= 0.01


# The study -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smoke():
    return study.run(Context("smoke", seed=100))


def test_study_delivers_what_the_card_asks_for(smoke):
    card = lookup(SLUG)
    assert set(card.metrics("standard")) == set(smoke.metrics)
    assert all(math.isfinite(value) for values in smoke.metrics.values() for value in values)
    assert smoke.metrics["max_lambda_difference"][0] <= 1e-9
    assert 0 <= smoke.metrics["mapie_threshold_gap"][0] <= 0.01
    tables = {name: table.with_columns(seed=pl.lit(100)) for name, table in smoke.tables.items()}
    for chart in study.figures(tables).values():
        assert chart.to_dict()["data"]
    assert set(tables["methods"]["experiment"]) == set(study.ALPHA)


def test_study_chooses_as_the_controller_does():
    context = Context("smoke", seed=101)
    size = study._SIZES["smoke"]
    scores, truth, _ = study._scores(context, size)
    trials = study._labels(context, replace(size, n_splits=1))["trials"]
    order = context.rng("splits").permutation(len(scores))
    cal, rest = order[: size.n_labels_cal], order[size.n_labels_cal :]
    for name, method in (("bq", "bq"), ("crc", "crc"), ("rcps", "rcps-hoeffding")):
        controller = fnr_controller(method=method)
        controller.fit(scores[cal], truth[cal], candidates=-scores[cal][truth[cal]])
        sets = controller.predict(scores[rest])
        # Other draws, nearly the same lambda; the baselines have none.
        tolerance = 0.05 if name == "bq" else 1e-12
        assert trials[name]["cost"][0] == pytest.approx(sets.sum(axis=1).mean(), rel=tolerance)


def test_true_risk_of_the_heteroskedastic_interval_is_right():
    rng = np.random.default_rng(0)
    y = np.abs(rng.normal(0, rng.uniform(0, 4, size=400_000)))
    for lam, risk in zip((1.0, 3.0, 6.0), study._hetero_risk(np.array([1.0, 3.0, 6.0])), strict=True):
        assert risk == pytest.approx((y > lam).mean(), abs=4 * math.sqrt(risk / 400_000))


def judged(metric, value):
    card = lookup(SLUG)
    (check,) = [check for claim in card.claims for check in claim.checks if check.metric == metric]
    return Bound.parse(check.bound).contains(value)


def binomial_failure(size):
    trials = study._binomial(Context("standard", seed=103), size)["bq"]
    return float(np.mean(trials["risk"] > study.ALPHA["binomial"]))


def test_planted_forgotten_spacing_of_the_largest_loss_turns_c2a(monkeypatch):
    size = replace(study._SIZES["standard"], n_trials=400)
    assert judged("failure_bq_binomial", binomial_failure(size))

    def without_last(self, losses, max_loss):
        weights = self.weights[:, : self.n]
        return weights / weights.sum(axis=1, keepdims=True) @ losses

    monkeypatch.setattr(DirichletDraws, "_bounds", without_last)
    assert not judged("failure_bq_binomial", binomial_failure(size))


def test_planted_forgotten_spacing_in_the_exact_case_turns_c3a(monkeypatch):
    # The failure rate is that of the number of misses allowed: no simulation is needed.
    def failure():
        rule = RiskRule("bq", 200, 0.1, binary=True)
        allowed = [k for k in range(100) if rule.holds([1.0] * k + [0.0] * (200 - k))]
        return stats.binom.cdf(allowed[-1], 200, 0.1)

    assert judged("failure_bq_hetero", failure())
    monkeypatch.setattr(rules, "beta_shape", lambda k, n: (np.maximum(k, 1e-9), n - k))
    assert not judged("failure_bq_hetero", failure())


def test_paper_preset_runs_on_the_paper_s_layout(tmp_path):
    scores, truth = labelled(80, n_labels=12)
    (tmp_path / "coco").mkdir()
    np.savez(tmp_path / "coco" / "coco-tresnetxl.npz", sgmd=scores, labels=truth.astype(np.int64))
    measured = study.run(Context("paper", seed=100, data_folder=tmp_path, limit=60))
    assert set(lookup(SLUG).metrics("paper")) == set(measured.metrics)
    with pytest.raises(ValueError, match=re.escape("coco-tresnetxl.npz, arrays sgmd and labels")):
        study.run(Context("paper", seed=100))


@pytest.mark.slow
def test_the_cost_is_linear_in_losses_and_draws():
    import time

    def seconds(n, n_samples):
        losses = np.random.default_rng(0).random(n)
        best = math.inf
        for _ in range(3):
            start = time.process_time()
            RiskPosterior(losses, n_samples=n_samples, random_state=0).quantile(0.95)
            best = min(best, time.process_time() - start)
        return best

    base = seconds(10_000, 2_000)
    assert seconds(40_000, 2_000) < 6 * base
    assert seconds(10_000, 8_000) < 6 * base
