"""How verdicts look on a terminal and as rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import typer

from theses.catalogue import Card
from theses.evidence.measurement import Count
from theses.evidence.verdict import CheckVerdict, ClaimVerdict

__all__ = ["COLOURS", "mean_of", "number", "print_verdicts", "verdict_rows"]

COLOURS = {
    "holds": "green",
    "fails": "red",
    "undecided": "yellow",
    "unjudged": "magenta",
    "not run": "bright_black",
}


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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    title = f"{card.name} ({card.slug}), preset {preset}"
    if not console.is_terminal:
        typer.echo(title)
        for verdict in verdicts:
            claim = verdict.claim
            typer.echo(f"  {claim.id:<5} {verdict.verdict:<9} [{claim.kind}] {claim.statement}")
            for judged in verdict.checks:
                typer.echo(f"        {_measured(judged)}")
        return
    table = Table(title=title, title_justify="left", show_lines=False)
    for heading in ("claim", "verdict", "kind", "what is claimed, and what was measured"):
        table.add_column(heading)
    for verdict in verdicts:
        text = Text(verdict.claim.statement)
        for judged in verdict.checks:
            text.append(f"\n{_measured(judged)}", style="dim")
        label = Text(verdict.verdict, style=COLOURS[verdict.verdict])
        table.add_row(verdict.claim.id, label, verdict.claim.kind, text)
    console.print(table)


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
