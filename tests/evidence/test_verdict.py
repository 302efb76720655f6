from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from theses.catalogue import Check, Claim
from theses.evidence import Count, Measurement
from theses.evidence.verdict import judge, judge_check


def check(bound: str, aggregate: str = "mean") -> Check:
    return Check("metric", bound, aggregate)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bound", "verdict"),
    [
        (">= 0.5", "holds"),
        (">= 2", "fails"),
        (">= 1.05", "undecided"),
        ("<= 1.5", "holds"),
        ("<= 0.5", "fails"),
        ("in [0.5, 1.5]", "holds"),
        ("in [2, 3]", "fails"),
        ("in [1.05, 3]", "undecided"),
    ],
)
def test_mean(bound, verdict):
    assert judge_check(check(bound), [1.0, 1.1, 0.9, 1.2, 1.05]).verdict == verdict


def test_mean_uses_the_t_interval_of_scipy():
    values = [0.8, 0.95, 1.3]
    low, high = stats.t.interval(0.9, 2, loc=np.mean(values), scale=stats.sem(values))
    interval = judge_check(check(">= 0"), values).interval
    assert interval == pytest.approx((low, high))


def test_one_replicate_decides_no_mean():
    assert judge_check(check(">= 0"), [5.0]).verdict == "undecided"


def test_equal_replicates_have_an_interval_of_no_width():
    assert judge_check(check("<= 1"), [1.0, 1.0, 1.0]).verdict == "holds"
    assert judge_check(check("< 1"), [1.0, 1.0, 1.0]).verdict == "fails"


def test_worst_wants_every_replicate():
    assert judge_check(check("<= 1", "worst"), [0.1, 0.9, 1.0]).verdict == "holds"
    assert judge_check(check("<= 1", "worst"), [0.1, 0.9, 1.0001]).verdict == "fails"


@pytest.mark.parametrize("aggregate", ["mean", "worst"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("bound", [">= -1e9", "<= 1e9", "in [-1e9, 1e9]"])
def test_nan_and_infinity_miss_every_bound(aggregate, bad, bound):
    assert judge_check(check(bound, aggregate), [1.0, bad, 1.0]).verdict == "fails"


def test_share_uses_the_exact_interval_of_scipy():
    exact = stats.binomtest(17, 20).proportion_ci(0.9, method="exact")
    interval = judge_check(check(">= 0.5", "share"), [1.0] * 17 + [0.0] * 3).interval
    assert interval == pytest.approx((exact.low, exact.high))
    assert judge_check(check(">= 0.5", "share"), [Count(7, 8), Count(10, 12)]).interval == interval


def test_share_at_its_ends():
    assert judge_check(check(">= 0.8", "share"), [1.0] * 5).verdict == "undecided"
    assert judge_check(check(">= 0.8", "share"), [Count(100, 100)]).verdict == "holds"
    assert judge_check(check(">= 0.8", "share"), [Count(0, 100)]).verdict == "fails"
    with pytest.raises(ValueError, match="0, 1 or counts"):
        judge_check(check(">= 0.8", "share"), [0.5])


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12), st.floats(-1e3, 1e3))
def test_a_bound_and_its_opposite_never_both_hold(values, at):
    above = judge_check(check(f">= {at!r}"), values).verdict
    below = judge_check(check(f"< {at!r}"), values).verdict
    assert {above, below} in ({"holds", "fails"}, {"undecided"})


def claim(*checks: Check) -> Claim:
    return Claim("C1", "same", "It is so.", "Table 1", checks)


def test_a_claim_has_the_worst_verdict_of_its_checks():
    checks = [Check("a", ">= 0", "mean"), Check("b", ">= 0", "worst")]
    good = [Measurement({"a": [1.0, 1.0], "b": 1.0})] * 3
    assert judge(claim(*checks), good).verdict == "holds"
    assert judge(claim(*checks), [*good, Measurement({"a": 1.0, "b": -1.0})]).verdict == "fails"
    assert judge(claim(*checks), [*good, Measurement({"a": -9.0, "b": 1.0})]).verdict == "undecided"


def test_an_absent_unit_or_metric_leaves_the_claim_unjudged():
    only = claim(Check("a", ">= 0", "worst"))
    assert judge(only, [Measurement({"a": 1.0}), None]).verdict == "unjudged"
    assert judge(only, [Measurement({"a": 1.0}), Measurement({"b": 1.0})]).verdict == "unjudged"
    assert judge(only, [Measurement({"a": -1.0}), None]).verdict == "unjudged"
