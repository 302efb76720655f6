"""The published snapshot: ``docs/evidence.json``, merged method by method."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from theses.catalogue.card import Card, Check
from theses.catalogue.published import published
from theses.datasets.files import write_text
from theses.evidence.machine import code_digest
from theses.evidence.measurement import Count, Measurement
from theses.evidence.runner import measurements
from theses.evidence.store import Store, UnitRecord
from theses.evidence.verdict import ClaimVerdict, judge_card

__all__ = ["PublishError", "compare", "method_entry", "publish"]

MAX_FOREIGN_CORES: Final = 0.3


class PublishError(ValueError):
    """A method's results may not be published; the message says why and what to run."""


def publish(card: Card, store: Store, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Put a method's standard results into a snapshot, in place of what it held of that method.

    Parameters
    ----------
    card : Card
        The method.
    store : Store
        Where its units are.
    path : path-like
        The snapshot; made if absent, replaced atomically.

    Returns
    -------
    dict
        The method's entry.

    Raises
    ------
    PublishError
        If a seed is missing or failed, units differ in code or revision, the revision was not clean, the code
        has changed since, or another process was busy during a timed unit.
    """
    path = Path(path)
    entry = method_entry(card, store)
    others = published(path) if path.exists() else {}
    methods = dict(sorted({**others, card.slug: entry}.items()))
    text = json.dumps({"methods": methods}, indent=1, allow_nan=False, ensure_ascii=False)
    write_text(path, text + "\n")
    return entry


def method_entry(card: Card, store: Store) -> dict[str, Any]:
    """Entry of a method in the snapshot, refused unless its results are fit to be published.

    Parameters
    ----------
    card : Card
        The method.
    store : Store
        Where its units are.

    Returns
    -------
    dict
        As docs/evidence.json holds it.

    Raises
    ------
    PublishError
        See :func:`publish`.
    """
    units = store.latest(card.slug, "standard")
    records = [_fit_unit(card, units.get(seed), seed) for seed in range(card.seeds)]
    revisions = {record.record["revision"] for record in records}
    if len(revisions) > 1:
        raise PublishError(
            f"{card.slug}: its seeds were run at {len(revisions)} revisions; run them again at one"
        )
    decoded = measurements(records)
    first = records[0].record
    return {
        "package": card.package,
        "revision": first["revision"],
        "digest": records[0].key.digest,
        "measured_at": max(record.started_at for record in records),
        "seeds": list(range(card.seeds)),
        "environment": first["environment"] | {"files": first["files"]},
        "deviations": list(card.deviations),
        "claims": {
            verdict.claim.id: _claim_entry(verdict) for verdict in judge_card(card, "standard", decoded)
        },
        "observations": [
            {
                "statement": observation.statement,
                "metric": observation.metric,
                "values": _values(_gather(decoded, observation.metric)),
            }
            for observation in card.observations
        ],
        "out_of_reach": [{"statement": item.statement, "why": item.why} for item in card.out_of_reach],
        **_benchmark_entry(card, store),
        "wall_s": round(sum(record.record["wall_s"] for record in records), 1),
        "peak_mb": round(max(record.record["peak_mb"] for record in records), 1),
    }


def compare(
    card: Card, verdicts: Sequence[ClaimVerdict], methods: Mapping[str, Any]
) -> dict[str, tuple[str, str]]:
    """Claims whose verdict here is not the published one.

    Parameters
    ----------
    card : Card
        The method.
    verdicts : sequence of ClaimVerdict
        What this machine measured.
    methods : mapping
        What was published, as :func:`theses.catalogue.published.published` reads it.

    Returns
    -------
    dict of str to (str, str)
        Published verdict and ours, by claim; empty if all agree.

    Raises
    ------
    ValueError
        If the method is not among them.
    """
    if card.slug not in methods:
        raise ValueError(f"{card.slug} is not in the snapshot, so there is nothing to check against")
    then = {name: claim["verdict"] for name, claim in methods[card.slug]["claims"].items()}
    ours = {verdict.claim.id: verdict.verdict for verdict in verdicts}
    return {
        name: (then.get(name, "absent"), verdict)
        for name, verdict in ours.items()
        if then.get(name) != verdict
    }


def _fit_unit(card: Card, record: UnitRecord | None, seed: int) -> UnitRecord:
    again = f"run: theses reproduce {card.slug}"
    where = f"{card.slug}, seed {seed}"
    if record is None:
        raise PublishError(f"{where}: not run at the standard preset; {again}")
    if record.status != "done":
        raise PublishError(f"{where}: the unit ended with {record.status}; {again}")
    if record.key.digest != code_digest(card):
        raise PublishError(f"{where}: method, study or bounds have changed since; {again}")
    if not record.record["clean"]:
        raise PublishError(f"{where}: run with uncommitted changes under src; commit, then {again}")
    if card.timed:
        _refuse_busy(where, record.record, again)
    return record


def _refuse_busy(where: str, record: Mapping[str, Any], again: str) -> None:
    foreign = record["foreign_cores"]
    if foreign is None or foreign > MAX_FOREIGN_CORES:
        measured = "an unknown number of" if foreign is None else f"{foreign:.2f}"
        raise PublishError(
            f"{where}: timed while other processes used {measured} cores"
            f" (at most {MAX_FOREIGN_CORES} are allowed); on an idle machine {again}"
        )


def _benchmark_entry(card: Card, store: Store) -> dict[str, Any]:
    found = store.latest_benchmark(card.slug)
    if found is None:
        return {"peer": None, "comparisons": []}
    digest, record, rows = found
    again = f"run: theses bench {card.slug}"
    if digest != code_digest(card):
        raise PublishError(f"{card.slug}: the benchmark is of other code; {again}")
    if not record["clean"]:
        raise PublishError(f"{card.slug}: the benchmark ran with uncommitted changes under src; {again}")
    _refuse_busy(f"{card.slug}, benchmark", record, again)
    peer = {
        "name": rows[0]["peer"],
        "size": rows[0]["size"],
        "ratio": rows[0]["ratio"],
        "target": rows[0]["target"],
    }
    return {"peer": peer, "comparisons": rows}


def _claim_entry(verdict: ClaimVerdict) -> dict[str, Any]:
    claim = verdict.claim
    judged = {check.check: check for check in verdict.checks}
    return {
        "kind": claim.kind,
        "statement": claim.statement,
        "paper": claim.paper,
        "verdict": verdict.verdict,
        "explanation": claim.explanation,
        "checks": [
            _check_entry(check)
            | (
                {
                    "values": _values(judged[check].values),
                    "baseline_values": _values(judged[check].baseline_values),
                    "interval": _interval(judged[check].interval),
                    "verdict": judged[check].verdict,
                }
                if check in judged
                else {"values": [], "baseline_values": [], "interval": None, "verdict": verdict.verdict}
            )
            for check in claim.checks
        ],
    }


def _check_entry(check: Check) -> dict[str, Any]:
    return {"metric": check.metric, "bound": check.bound, "aggregate": check.aggregate}


def _gather(decoded: Sequence[Measurement | None], metric: str) -> list[float | Count]:
    return [value for m in decoded if m is not None for value in m.metrics.get(metric, ())]


def _values(values: Sequence[float | Count]) -> list[Any]:
    # JSON has no NaN and no infinity; Python's own spelling of them would break other readers.
    return [list(v) if isinstance(v, Count) else v if math.isfinite(v) else str(v) for v in values]


def _interval(interval: tuple[float, float] | None) -> list[Any] | None:
    return None if interval is None else _values(interval)
