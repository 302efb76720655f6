"""How verdicts look on a terminal and as rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from theses.catalogue import Card
from theses.cli.output import VERDICT_STYLES, Line, print_lines
from theses.evidence.measurement import Count
from theses.evidence.verdict import CheckVerdict, ClaimVerdict

__all__ = ["mean_of", "number", "print_verdicts", "verdict_rows"]


def number(value: float | Count) -> str:
    """Replicate in four significant digits, a count as hits of trials."""
    return f"{value.hits} of {value.trials}" if isinstance(value, Count) else f"{value:.4g}"


def mean_of(values: Sequence[float | Count]) -> float:
    """Mean of replicates, of a share the pooled share."""
    hits = sum(v.hits if isinstance(v, Count) else v for v in values)
    trials = sum(v.trials if isinstance(v, Count) else 1 for v in values)
    return hits / trials if trials else math.nan


def verdict_rows(card: Card, verdicts: Sequence[ClaimVerdict]) -> list[dict[str, Any]]:
    """One row a check, for JSON and CSV.

    Parameters
    ----------
    card : Card
        The method.
    verdicts : sequence of ClaimVerdict
        Its claims.

    Returns
    -------
    list of dict
        Flat rows; ``low`` and ``high`` are the ends of the 90 % interval.
    """
    rows = []
    for verdict in verdicts:
        by_check = {judged.check: judged for judged in verdict.checks}
        for check in verdict.claim.checks:
            judged = by_check.get(check)
            low, high = judged.interval if judged and judged.interval else (None, None)
            rows.append(
                {
                    "method": card.slug,
                    "claim": verdict.claim.id,
                    "kind": verdict.claim.kind,
                    "claim_verdict": verdict.verdict,
                    "metric": check.metric,
                    "bound": check.bound,
                    "aggregate": check.aggregate,
                    "verdict": judged.verdict if judged else verdict.verdict,
                    "mean": mean_of(judged.values) if judged and judged.values else None,
                    "low": low,
                    "high": high,
                    "n_replicates": len(judged.values) if judged else 0,
                }
            )
    return rows


def print_verdicts(card: Card, preset: str, verdicts: Sequence[ClaimVerdict]) -> None:
    """Claims of a method with verdict, bound and what was measured.

    Parameters
    ----------
    card : Card
        The method.
    preset : str
        Preset of the measurements.
    verdicts : sequence of ClaimVerdict
        Its claims.
    """
    lines: list[Line] = [[(f"{card.name} ({card.slug}), preset {preset}", "bold")]]
    for verdict in verdicts:
        claim = verdict.claim
        style = VERDICT_STYLES.get(verdict.verdict, "")
        lines.append(
            [(f"  {claim.id:<5} ", "bold"), (f"{verdict.verdict:<9}", style), (f" [{claim.kind}]", "dim")]
        )
        lines.append(f"        {claim.statement}")
        lines += [[(f"        {_measured(judged)}", "dim")] for judged in verdict.checks]
    print_lines(lines)


def _measured(judged: CheckVerdict) -> str:
    if not judged.values:
        return f"{judged.check.metric} {judged.check.bound}: no value"
    if judged.check.aggregate == "worst":
        finite = [v for v in judged.values if not isinstance(v, Count)]
        measured = f"from {number(min(finite))} to {number(max(finite))}" if finite else "no number"
    else:
        measured = f"mean {number(mean_of(judged.values))}"
        if judged.interval is not None and all(map(math.isfinite, judged.interval)):
            measured += f", 90 % interval {number(judged.interval[0])} to {number(judged.interval[1])}"
    baseline = f"; baseline mean {number(mean_of(judged.baseline_values))}" if judged.baseline_values else ""
    return (
        f"{judged.check.metric} {judged.check.bound}: {measured} ({len(judged.values)} replicates{baseline})"
    )
