"""Verdicts: from the replicates of all seeds to holds, fails or undecided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from theses.catalogue.card import Bound, Card, Check, Claim
from theses.evidence.measurement import Count, Measurement

__all__ = ["CheckVerdict", "ClaimVerdict", "judge", "judge_card", "judge_check"]

CONFIDENCE = 0.90
SEVERITY = ("holds", "undecided", "fails", "unjudged")

Replicates = Sequence[float | Count]


@dataclass(frozen=True)
class CheckVerdict:
    """A check with the replicates it was judged by.

    ``interval`` is the 90 % interval of the mean or the share, None where there is none to speak of.
    """

    check: Check
    values: tuple[float | Count, ...]
    baseline_values: tuple[float | Count, ...]
    interval: tuple[float, float] | None
    verdict: str


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim with its checks; its verdict is the worst of theirs, or ``not run``."""

    claim: Claim
    checks: tuple[CheckVerdict, ...]
    verdict: str


def judge_check(check: Check, values: Replicates, baseline_values: Replicates = ()) -> CheckVerdict:
    """Verdict of one check over the replicates of all seeds.

    Aggregate ``mean``: holds if the 90 % t-interval of the mean lies inside the bound, fails if it lies
    wholly outside, else undecided. ``share``: the same with the exact binomial (Clopper-Pearson) interval.
    ``worst``: holds if every replicate meets the bound, else fails. NaN and infinity miss every bound.

    Parameters
    ----------
    check : Check
        Metric, bound and aggregate.
    values : sequence of float or Count
        Replicates of the metric; for a share, zeros and ones, or counts.
    baseline_values : sequence of float or Count
        Replicates of the baseline, carried along.

    Returns
    -------
    CheckVerdict
        The verdict with its interval.

    Raises
    ------
    ValueError
        If there is no replicate, or a share's replicate is neither 0 nor 1 nor a count.

    Examples
    --------
    >>> judge_check(Check("ratio", "<= 1.2", "mean"), [1.0, 1.1, 1.05]).verdict
    'holds'
    """
    if not values:
        raise ValueError(f"{check.metric}: no replicate")
    bound = Bound.parse(check.bound)
    interval: tuple[float, float] | None = None
    if check.aggregate == "share":
        interval = _binomial_interval(check.metric, values)
        verdict = _place(interval, bound)
    else:
        numbers = [float("nan") if isinstance(value, Count) else value for value in values]
        if any(not math.isfinite(number) for number in numbers):
            verdict = "fails"
        elif check.aggregate == "worst":
            verdict = "holds" if all(bound.contains(number) for number in numbers) else "fails"
        else:
            interval = _t_interval(numbers)
            verdict = _place(interval, bound)
    return CheckVerdict(check, tuple(values), tuple(baseline_values), interval, verdict)


def judge(claim: Claim, measurements: Sequence[Measurement | None]) -> ClaimVerdict:
    """Verdict of a claim over the units of all seeds.

    Parameters
    ----------
    claim : Claim
        The claim.
    measurements : sequence of Measurement or None
        One a seed; None for a unit that errored, timed out or was not run, which leaves the claim unjudged.

    Returns
    -------
    ClaimVerdict
        The worst verdict of the claim's checks.
    """
    present = [m for m in measurements if m is not None]
    checks = []
    for check in claim.checks:
        values = [v for m in present for v in m.metrics.get(check.metric, ())]
        baseline = [v for m in present for v in m.metrics.get(check.baseline_metric, ())]
        complete = len(present) == len(measurements) and all(check.metric in m.metrics for m in present)
        if complete and values:
            checks.append(judge_check(check, values, baseline))
        else:
            checks.append(CheckVerdict(check, tuple(values), tuple(baseline), None, "unjudged"))
    worst = max((check.verdict for check in checks), key=SEVERITY.index)
    return ClaimVerdict(claim, tuple(checks), worst)


def judge_card(card: Card, preset: str, measurements: Sequence[Measurement | None]) -> list[ClaimVerdict]:
    """Verdicts of all claims of a method.

    Parameters
    ----------
    card : Card
        The method.
    preset : str
        Preset of the measurements. ``smoke`` tests the wiring only and judges nothing; a claim that needs the
        ``long`` preset is judged by that alone.
    measurements : sequence of Measurement or None
        One a seed.

    Returns
    -------
    list of ClaimVerdict
        In the card's order; ``not run`` where the preset does not judge the claim.
    """
    verdicts = []
    for claim in card.claims:
        if preset == "smoke" or (claim.preset == "long" and preset != "long"):
            verdicts.append(ClaimVerdict(claim, (), "not run"))
        else:
            verdicts.append(judge(claim, measurements))
    return verdicts


def _t_interval(numbers: Sequence[float]) -> tuple[float, float]:
    n = len(numbers)
    mean = float(np.mean(numbers))
    if n == 1:
        return (-math.inf, math.inf)
    quantile = float(special.stdtrit(n - 1, 0.5 + CONFIDENCE / 2))
    half = quantile * float(np.std(numbers, ddof=1)) / math.sqrt(n)
    return (mean - half, mean + half)


def _binomial_interval(metric: str, values: Replicates) -> tuple[float, float]:
    hits = trials = 0
    for value in values:
        if isinstance(value, Count):
            hits, trials = hits + value.hits, trials + value.trials
        elif value in (0.0, 1.0):
            hits, trials = hits + int(value), trials + 1
        else:
            raise ValueError(f"{metric}: replicates of a share are 0, 1 or counts, got {value}")
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if hits == 0 else float(special.betaincinv(hits, trials - hits + 1, tail))
    high = 1.0 if hits == trials else float(special.betaincinv(hits + 1, trials - hits, 1 - tail))
    return (low, high)


def _place(interval: tuple[float, float], bound: Bound) -> str:
    low, high = interval
    if bound.contains(low) and bound.contains(high):
        return "holds"
    if high < bound.low or low > bound.high or (bound.strict and (high <= bound.low or low >= bound.high)):
        return "fails"
    return "undecided"
