"""What a page shows of a method, whether it comes from a store, the snapshot, or the card alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from theses.catalogue.card import Card, Check, Claim
from theses.catalogue.published import VERDICTS

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "NOT_MEASURED",
    "CheckRecord",
    "ClaimRecord",
    "Provenance",
    "Record",
    "Replicate",
    "Watched",
    "mean_of",
    "tally",
    "unmeasured",
]

#: Verdict of a claim whose method has no measurement in the source of the report.
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Replicate:
    """One measured value.

    Parameters
    ----------
    value : float
        The value; of a count, its share. May be NaN or infinite.
    seed : int or None
        Seed of the unit; None where the source does not tell.
    hits, trials : int or None
        Where the value is a count.
    """

    value: float
    seed: int | None = None
    hits: int | None = None
    trials: int | None = None


@dataclass(frozen=True)
class CheckRecord:
    """A check with what was measured for it; ``card_bound`` is set where the card has another one by now."""

    metric: str
    bound: str
    aggregate: str
    verdict: str
    values: tuple[Replicate, ...] = ()
    baseline_metric: str = ""
    baseline: tuple[Replicate, ...] = ()
    interval: tuple[float, float] | None = None
    card_bound: str = ""


@dataclass(frozen=True)
class ClaimRecord:
    """A claim with its checks and its verdict."""

    id: str
    kind: str
    statement: str
    paper: str
    verdict: str
    explanation: str
    checks: tuple[CheckRecord, ...]
    timed: bool = False
    preset: str = "standard"


@dataclass(frozen=True)
class Watched:
    """An observation with its values."""

    statement: str
    metric: str
    values: tuple[Replicate, ...] = ()


@dataclass(frozen=True)
class Provenance:
    """Where the numbers of a method come from.

    ``notices`` are what a reader has to know before believing them: other seeds than the card's, code that
    has changed since, units that failed.
    """

    measured_at: str
    preset: str
    seeds: tuple[int, ...]
    revision: str
    digest: str
    environment: Mapping[str, Any]
    files: Mapping[str, Any]
    wall_s: float | None
    peak_mb: float | None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """A method with all that its page shows."""

    card: Card
    claims: tuple[ClaimRecord, ...]
    observations: tuple[Watched, ...]
    deviations: tuple[str, ...]
    out_of_reach: tuple[tuple[str, str], ...]
    comparisons: tuple[Mapping[str, Any], ...] = ()
    provenance: Provenance | None = None
    notes: tuple[str, ...] = ()
    #: Tables of the study, stacked over seeds; the snapshot has none.
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)


def unmeasured(card: Card) -> Record:
    """Record of a method of which the source has nothing.

    Parameters
    ----------
    card : Card
        The method.

    Returns
    -------
    Record
        Its claims, none of them measured.
    """
    return Record(
        card=card,
        claims=tuple(unmeasured_claim(claim) for claim in card.claims),
        observations=tuple(Watched(item.statement, item.metric) for item in card.observations),
        deviations=card.deviations,
        out_of_reach=tuple((item.statement, item.why) for item in card.out_of_reach),
    )


def unmeasured_claim(claim: Claim, verdict: str = NOT_MEASURED) -> ClaimRecord:
    """Claim of a card without values.

    Parameters
    ----------
    claim : Claim
        The claim.
    verdict : str, optional
        What is said of it and of its checks.

    Returns
    -------
    ClaimRecord
        The claim.
    """
    return claim_record(claim, verdict, tuple(check_record(check, verdict) for check in claim.checks))


def claim_record(claim: Claim, verdict: str, checks: tuple[CheckRecord, ...]) -> ClaimRecord:
    """Claim of a card with a verdict and measured checks.

    Parameters
    ----------
    claim : Claim
        The claim.
    verdict : str
        Its verdict.
    checks : tuple of CheckRecord
        Its checks.

    Returns
    -------
    ClaimRecord
        The claim.
    """
    return ClaimRecord(
        id=claim.id,
        kind=claim.kind,
        statement=claim.statement,
        paper=claim.paper,
        verdict=verdict,
        explanation=claim.explanation,
        checks=checks,
        timed=claim.timed,
        preset=claim.preset,
    )


def check_record(check: Check, verdict: str, **measured: Any) -> CheckRecord:
    """Check of a card with what was measured.

    Parameters
    ----------
    check : Check
        The check.
    verdict : str
        Its verdict.
    **measured
        Further fields of :class:`CheckRecord`.

    Returns
    -------
    CheckRecord
        The check.
    """
    return CheckRecord(
        metric=check.metric,
        bound=check.bound,
        aggregate=check.aggregate,
        verdict=verdict,
        baseline_metric=check.baseline_metric,
        **measured,
    )


def mean_of(values: Sequence[Replicate]) -> float:
    """Mean of replicates; counts are pooled.

    Parameters
    ----------
    values : sequence of Replicate
        The replicates.

    Returns
    -------
    float
        The mean, NaN of nothing.

    Examples
    --------
    >>> mean_of([Replicate(0.5, hits=1, trials=2), Replicate(1.0, hits=6, trials=6)])
    0.875
    """
    hits = math.fsum(v.value if v.hits is None else v.hits for v in values)
    trials = sum(v.trials or 1 for v in values)
    return hits / trials if trials else math.nan


def tally(claims: Iterable[ClaimRecord]) -> dict[str, int]:
    """How many claims got which verdict, identities left out; worst known order is that of the catalogue.

    Parameters
    ----------
    claims : iterable of ClaimRecord
        Claims of one or several methods.

    Returns
    -------
    dict of str to int
        By verdict, those that occur.
    """
    counts = Counter(claim.verdict for claim in claims if claim.kind != "identity")
    return {verdict: counts[verdict] for verdict in (*VERDICTS, NOT_MEASURED) if counts[verdict]}
