"""How numbers, verdicts and commands are written on the pages."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from theses.catalogue.card import Card
from theses.catalogue.published import describe_counts
from theses.report.records import NOT_MEASURED, CheckRecord, Replicate, mean_of

__all__ = [
    "AGGREGATES",
    "GLYPHS",
    "VERDICT_MEANINGS",
    "anchor",
    "bound",
    "counts",
    "css_class",
    "measured",
    "moment",
    "number",
    "replicate",
    "replicates",
    "seconds",
    "spread",
    "start_lines",
]

#: What stands for a verdict beside its colour, so that colour alone never says it.
GLYPHS: Final = {
    "holds": "✓",
    "fails": "✗",
    "undecided": "~",
    "unjudged": "?",
    "not run": "–",
    NOT_MEASURED: "·",
}

VERDICT_MEANINGS: Final = {
    "holds": "The 90 % interval lies inside the bound; a claim about every case: each value meets it.",
    "fails": "The interval lies wholly outside; a claim about every case: at least one value misses it.",
    "undecided": "The interval lies across the end of the bound.",
    "unjudged": "A seed crashed, ran out of time or is missing, so the values cannot be judged.",
    "not run": "Only a longer or larger run than this one could judge it.",
    NOT_MEASURED: "Nothing has been measured yet.",
}

AGGREGATES: Final = {"mean": "mean", "worst": "every value", "share": "share"}


def number(value: float) -> str:
    """Number in four significant digits.

    Parameters
    ----------
    value : float
        The number.

    Returns
    -------
    str
        The text.

    Examples
    --------
    >>> number(0.123456), number(-1e-9), number(float("nan"))
    ('0.1235', '−1e−09', 'not a number')
    """
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "infinite" if value > 0 else "minus infinite"
    return f"{value:.4g}".replace("-", "−")


def replicate(value: Replicate) -> str:
    """Replicate as a number, or as hits of trials."""
    return f"{value.hits} of {value.trials}" if value.hits is not None else number(value.value)


def bound(text: str) -> str:
    """Bound with the signs of mathematics.

    Parameters
    ----------
    text : str
        As cards write it.

    Returns
    -------
    str
        The same for readers.

    Examples
    --------
    >>> bound("<= 1.2"), bound("in [-0.6, -0.4]")
    ('≤ 1.2', 'in [−0.6, −0.4]')
    """
    return text.replace("<=", "≤").replace(">=", "≥").replace("-", "−")


def replicates(values: Sequence[Replicate], aggregate: str = "mean") -> str:
    """Values in one line.

    Parameters
    ----------
    values : sequence of Replicate
        The values.
    aggregate : str, default="mean"
        ``worst`` shows the ends instead of the mean.

    Returns
    -------
    str
        Such as ``"mean 0.91 of 5 values"``.
    """
    if not values:
        return "no value"
    n = f"{len(values)} value" + ("s" if len(values) > 1 else "")
    n_finite = sum(math.isfinite(v.value) for v in values)
    if n_finite < len(values):
        return f"{len(values) - n_finite} of {n} not finite"
    if aggregate == "worst":
        return f"{spread(values)} in {n}"
    return f"mean {number(mean_of(values))} of {n}"


def spread(values: Sequence[Replicate]) -> str:
    """Smallest and largest finite value.

    Parameters
    ----------
    values : sequence of Replicate
        The values.

    Returns
    -------
    str
        Such as ``"0.91 to 0.94"``; one number where they are the same.
    """
    finite = [v.value for v in values if math.isfinite(v.value)]
    if not finite:
        return "no number"
    ends = dict.fromkeys((number(min(finite)), number(max(finite))))
    return " to ".join(ends)


def measured(check: CheckRecord) -> str:
    """What was measured for a check, in one line.

    Parameters
    ----------
    check : CheckRecord
        The check.

    Returns
    -------
    str
        Mean with interval, or the ends where every value counts.
    """
    text = replicates(check.values, check.aggregate)
    if check.interval is not None and all(map(math.isfinite, check.interval)):
        low, high = check.interval
        text += f", 90 % interval {number(low)} to {number(high)}"
    return text


def counts(tally: Mapping[str, int]) -> str:
    """Counts of verdicts in words.

    Parameters
    ----------
    tally : mapping of str to int
        By verdict.

    Returns
    -------
    str
        Such as ``"7 hold, 1 fails"``.
    """
    return "not measured yet" if set(tally) <= {NOT_MEASURED} else describe_counts(tally)


def seconds(value: float | None) -> str:
    """Duration; minutes where there are two at least.

    Parameters
    ----------
    value : float or None
        Seconds.

    Returns
    -------
    str
        The text.
    """
    if value is None:
        return "unknown"
    return f"{value / 60:.1f} minutes" if value >= 120 else f"{number(value)} s"


def moment(text: str) -> str:
    """Time of day for readers.

    Parameters
    ----------
    text : str
        As units record it, in ISO 8601.

    Returns
    -------
    str
        To the minute, in UTC; what is no time is returned as it is.

    Examples
    --------
    >>> moment("2026-11-30T19:11:53+00:00")
    '2026-11-30 19:11 UTC'
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{time.astimezone(UTC) if time.tzinfo else time:%Y-%m-%d %H:%M} UTC"


def css_class(verdict: str) -> str:
    """Class of a verdict in the style sheet."""
    return "v-" + verdict.replace(" ", "-")


def anchor(claim_id: str) -> str:
    """Name of a claim's place on its page; safe in an address.

    Parameters
    ----------
    claim_id : str
        Any text.

    Returns
    -------
    str
        Letters, digits and hyphens.
    """
    return "claim-" + re.sub(r"[^A-Za-z0-9]+", "-", claim_id)


def start_lines(card: Card) -> list[str]:
    """Imports of all of a card's entries, one line a module.

    Parameters
    ----------
    card : Card
        The method.

    Returns
    -------
    list of str
        Statements in the card's order; more than two names are put one a line.
    """
    lines = []
    for module, found in card.imports.items():
        if len(found) > 2:
            lines.append(f"from {module} import (\n" + "".join(f"    {name},\n" for name in found) + ")")
        else:
            lines.append(f"from {module} import {', '.join(found)}")
    return lines
