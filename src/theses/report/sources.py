"""Reading records: from a result store, or from the published snapshot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import polars as pl

from theses.catalogue.card import Bound, Card, Check
from theses.catalogue.kinds import CLAIM_KINDS
from theses.catalogue.published import VERDICTS, published
from theses.evidence.machine import code_digest
from theses.evidence.measurement import Count, Measurement
from theses.evidence.runner import measurements
from theses.evidence.snapshot import MAX_FOREIGN_CORES
from theses.evidence.store import Store, UnitRecord
from theses.evidence.verdict import ClaimVerdict, judge_card
from theses.report.records import (
    CheckRecord,
    ClaimRecord,
    Provenance,
    Record,
    Replicate,
    Watched,
    check_record,
    claim_record,
    unmeasured,
    unmeasured_claim,
)

__all__ = ["SnapshotSource", "Source", "StoreSource"]

T = TypeVar("T")

_CHANGED = "The method, its study or its bounds have changed since this was measured."


class Source(Protocol):
    """Where records come from."""

    #: What a reader is told of it.
    description: str

    def record(self, card: Card) -> Record:
        """Record of a method."""


class StoreSource:
    """Records of a result store; read method by method, since tables can be large.

    Parameters
    ----------
    path : pathlib.Path
        The store.
    preset : str, default="standard"
        Preset of the units. With ``standard``, claims that only the preset ``long`` can judge are judged by
        its units, where there are some.

    Raises
    ------
    ValueError
        If there is no such file.
    """

    def __init__(self, path: Path, preset: str = "standard") -> None:
        if not path.is_file():
            raise ValueError(f"no result store at {path}; theses reproduce METHOD makes one")
        self._path = path
        self._preset = preset
        self.description = f"a result store, preset {preset}"

    def record(self, card: Card) -> Record:
        """Record of a method.

        Parameters
        ----------
        card : Card
            The method.

        Returns
        -------
        Record
            Its newest unit of each seed, judged.
        """
        with Store(self._path) as store:
            units = list(store.latest(card.slug, self._preset).values())
            longer = list(store.latest(card.slug, "long").values()) if self._preset == "standard" else []
            benchmark = store.latest_benchmark(card.slug)
        if not units and not longer and benchmark is None:
            return unmeasured(card)
        decoded = measurements(units)
        judged = _judged(card, self._preset, units, decoded)
        if longer:
            by_long = _judged(card, "long", longer, measurements(longer))
            judged = [
                long if claim.preset == "long" else short
                for claim, short, long in zip(card.claims, judged, by_long, strict=True)
            ]
        everything = units + longer
        return Record(
            card=card,
            claims=tuple(judged),
            observations=tuple(
                Watched(item.statement, item.metric, _gather(units, decoded, item.metric))
                for item in card.observations
            ),
            deviations=card.deviations,
            out_of_reach=tuple((item.statement, item.why) for item in card.out_of_reach),
            comparisons=tuple(benchmark[2]) if benchmark else (),
            provenance=_provenance(card, self._preset, everything) if everything else None,
            notes=tuple(
                f"Seed {unit.key.seed}: {note}"
                for unit, measurement in zip(units, decoded, strict=True)
                if measurement is not None
                for note in measurement.notes
            ),
            tables=_stacked(units, decoded),
        )


def _judged(
    card: Card, preset: str, units: Sequence[UnitRecord], decoded: Sequence[Measurement | None]
) -> list[ClaimRecord]:
    if not units:
        return [unmeasured_claim(claim) for claim in card.claims]
    return [_claim(verdict, units, decoded) for verdict in judge_card(card, preset, decoded)]


def _claim(
    judged: ClaimVerdict, units: Sequence[UnitRecord], decoded: Sequence[Measurement | None]
) -> ClaimRecord:
    if not judged.checks:
        return unmeasured_claim(judged.claim, judged.verdict)
    checks = tuple(
        check_record(
            verdict.check,
            verdict.verdict,
            values=_gather(units, decoded, verdict.check.metric),
            baseline=_gather(units, decoded, verdict.check.baseline_metric),
            interval=verdict.interval,
        )
        for verdict in judged.checks
    )
    return claim_record(judged.claim, judged.verdict, checks)


def _gather(
    units: Sequence[UnitRecord], decoded: Sequence[Measurement | None], metric: str
) -> tuple[Replicate, ...]:
    return tuple(
        Replicate(value.hits / value.trials if value.trials else math.nan, unit.key.seed, *value)
        if isinstance(value, Count)
        else Replicate(value, unit.key.seed)
        for unit, measurement in zip(units, decoded, strict=True)
        if measurement is not None
        for value in measurement.metrics.get(metric, ())
    )


def _stacked(units: Sequence[UnitRecord], decoded: Sequence[Measurement | None]) -> dict[str, pl.DataFrame]:
    parts: dict[str, list[pl.DataFrame]] = {}
    for unit, measurement in zip(units, decoded, strict=True):
        for name, table in measurement.tables.items() if measurement is not None else ():
            parts.setdefault(name, []).append(table.with_columns(seed=pl.lit(unit.key.seed)))
    return {name: pl.concat(tables, how="diagonal_relaxed") for name, tables in parts.items()}


def _provenance(card: Card, preset: str, units: Sequence[UnitRecord]) -> Provenance:
    first = next((unit for unit in units if unit.status == "done"), units[0])
    seeds = tuple(dict.fromkeys(unit.key.seed for unit in units))
    digests = {unit.key.digest for unit in units}
    revisions = {unit.record.get("revision") for unit in units}
    notices = []
    if preset == "smoke":
        notices.append("The preset smoke tests the wiring and judges nothing.")
    if set(seeds) != set(range(card.seeds)):
        notices.append(f"Measured with seeds {_listed(seeds)}; those of the card are 0 to {card.seeds - 1}.")
    for unit in units:
        if unit.status != "done":
            last = unit.error.strip().splitlines()[-1:] or ["no message"]
            notices.append(f"Seed {unit.key.seed} ended with {unit.status}: {last[0]}")
    if len(digests) > 1 or len(revisions) > 1:
        notices.append("Seeds were measured with different versions of the code.")
    elif _changed(card, digests.pop()):
        notices.append(_CHANGED)
    if not all(unit.record.get("clean") for unit in units):
        notices.append("Measured with changes that were not committed.")
    busy = max((unit.record.get("foreign_cores") or 0.0 for unit in units), default=0.0)
    if card.timed and busy > MAX_FOREIGN_CORES:
        notices.append(f"Timed while other processes used {busy:.1f} cores.")
    return Provenance(
        measured_at=max(unit.started_at for unit in units),
        preset=preset,
        seeds=seeds,
        revision=str(first.record.get("revision", "unknown")),
        digest=first.key.digest,
        environment=first.record.get("environment", {}),
        files=first.record.get("files", {}),
        wall_s=sum(unit.record.get("wall_s", 0.0) for unit in units),
        peak_mb=max((unit.record.get("peak_mb", 0.0) for unit in units), default=None),
        notices=tuple(notices),
    )


def _changed(card: Card, digest: str) -> bool:
    try:
        return code_digest(card) != digest
    except ModuleNotFoundError:
        return False  # the study is not part of this installation: nothing to compare with


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


class SnapshotSource:
    """Records of the published snapshot. What is in the file is checked before any of it is shown.

    Parameters
    ----------
    path : pathlib.Path
        Such as ``docs/evidence.json``.

    Raises
    ------
    ValueError
        If the file is no snapshot.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._methods = published(path)
        self.description = "the published snapshot"

    def record(self, card: Card) -> Record:
        """Record of a method.

        Parameters
        ----------
        card : Card
            The method.

        Returns
        -------
        Record
            Its entry, or its card alone where there is none.

        Raises
        ------
        ValueError
            If the entry is not as snapshots have it; the message names the place.
        """
        if card.slug not in self._methods:
            return unmeasured(card)
        entry = _Part(self._methods[card.slug], f"{self._path}: methods.{card.slug}")
        seeds = tuple(int(seed) for seed in entry.numbers("seeds"))
        digest = entry.text("digest")
        claims = entry.part("claims")
        now = {claim.id: claim for claim in card.claims}
        measured = [
            _published_claim(card, name, claims.part(name), seeds) for name in claims.mapping(claims.value)
        ]
        missing = [unmeasured_claim(claim) for name, claim in now.items() if name not in claims.value]
        order = {name: index for index, name in enumerate(now)}
        notices = [_CHANGED] if _changed(card, digest) else []
        environment = dict(entry.part("environment").value)
        return Record(
            card=card,
            claims=tuple(sorted(measured + missing, key=lambda claim: order.get(claim.id, len(order)))),
            observations=tuple(
                Watched(item.text("statement"), item.text("metric"), item.replicates("values", seeds))
                for item in entry.parts("observations")
            ),
            deviations=tuple(str(item) for item in entry.sequence("deviations")),
            out_of_reach=tuple(
                (item.text("statement"), item.text("why")) for item in entry.parts("out_of_reach")
            ),
            comparisons=tuple(_comparison(item) for item in _comparisons(entry)),
            provenance=Provenance(
                measured_at=entry.text("measured_at"),
                preset="standard",
                seeds=seeds,
                revision=entry.text("revision"),
                digest=digest,
                files=dict(_Part(environment.pop("files", {}), f"{entry.where}.environment.files").value),
                environment=environment,
                wall_s=entry.number("wall_s"),
                peak_mb=entry.number("peak_mb"),
                notices=tuple(notices),
            ),
        )


class _Part:
    """Mapping inside the snapshot that knows where it is; whatever is not as it should be is a ValueError."""

    def __init__(self, value: Any, where: str) -> None:
        self.where = where
        self.value = self.mapping(value)

    def mapping(self, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(f"{self.where}: expected a mapping, got {type(value).__name__}")
        return value

    def _get(self, key: str, kind: type[T] | tuple[type[T], ...], wanted: str) -> T:
        value = self.value.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{self.where}.{key}: expected {wanted}, got {value!r}")
        return value

    def text(self, key: str) -> str:
        return self._get(key, str, "text")

    def number(self, key: str) -> float:
        return float(self._get(key, (int, float), "a number"))

    def sequence(self, key: str) -> list[Any]:
        return self._get(key, list, "an array")

    def numbers(self, key: str) -> list[float]:
        values = self.sequence(key)
        if not all(isinstance(value, (int, float)) for value in values):
            raise ValueError(f"{self.where}.{key}: expected numbers, got {values!r}")
        return values

    def part(self, key: str) -> _Part:
        return _Part(self.value.get(key), f"{self.where}.{key}")

    def parts(self, key: str) -> list[_Part]:
        return [_Part(item, f"{self.where}.{key}[{i}]") for i, item in enumerate(self.sequence(key))]

    def choice(self, key: str, choices: Sequence[str]) -> str:
        value = self.text(key)
        if value not in choices:
            raise ValueError(f"{self.where}.{key}: expected one of {', '.join(choices)}, got {value!r}")
        return value

    def replicates(self, key: str, seeds: tuple[int, ...]) -> tuple[Replicate, ...]:
        values = self.sequence(key)
        # A unit delivers at least one value of each metric, so as many values as seeds means one of each.
        # Otherwise the snapshot does not tell which seed a value belongs to.
        known = seeds if len(values) == len(seeds) else (None,) * len(values)
        return tuple(
            self._replicate(value, seed, f"{key}[{i}]")
            for i, (value, seed) in enumerate(zip(values, known, strict=True))
        )

    def _replicate(self, value: Any, seed: int | None, key: str) -> Replicate:
        if isinstance(value, list) and len(value) == 2 and all(type(part) is int for part in value):
            hits, trials = value
            if 0 <= hits <= trials:
                return Replicate(hits / trials if trials else math.nan, seed, hits, trials)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return Replicate(float(value), seed)
        if value in ("nan", "inf", "-inf"):  # as the snapshot spells what JSON has no number for
            return Replicate(float(value), seed)
        raise ValueError(f"{self.where}.{key}: expected a number or hits and trials, got {value!r}")

    def interval(self, key: str) -> tuple[float, float] | None:
        if self.value.get(key) is None:
            return None
        ends = self.replicates(key, ())
        if len(ends) != 2:
            raise ValueError(f"{self.where}.{key}: expected two ends, got {self.value[key]!r}")
        return ends[0].value, ends[1].value


def _published_claim(card: Card, name: str, entry: _Part, seeds: tuple[int, ...]) -> ClaimRecord:
    claim = next((claim for claim in card.claims if claim.id == name), None)
    checks = claim.checks if claim else ()
    by_metric: dict[tuple[str, str], Check] = {(check.metric, check.aggregate): check for check in checks}
    return ClaimRecord(
        id=name,
        kind=entry.choice("kind", list(CLAIM_KINDS)),
        statement=entry.text("statement"),
        paper=entry.text("paper"),
        verdict=entry.choice("verdict", VERDICTS),
        # An explanation may be written after the numbers were published: it does not make them stale.
        explanation=(claim.explanation if claim else "") or entry.text("explanation"),
        checks=tuple(_published_check(check, by_metric, seeds) for check in entry.parts("checks")),
        timed=claim.timed if claim else False,
        preset=claim.preset if claim else "standard",
    )


def _published_check(
    entry: _Part, by_metric: Mapping[tuple[str, str], Check], seeds: tuple[int, ...]
) -> CheckRecord:
    metric, bound = entry.text("metric"), entry.text("bound")
    aggregate = entry.choice("aggregate", ("mean", "worst", "share"))
    try:
        Bound.parse(bound)
    except ValueError as error:
        raise ValueError(f"{entry.where}.bound: {error}") from None
    check = by_metric.get((metric, aggregate))
    return CheckRecord(
        metric=metric,
        bound=bound,
        aggregate=aggregate,
        verdict=entry.choice("verdict", VERDICTS),
        values=entry.replicates("values", seeds),
        baseline_metric=check.baseline_metric if check else "",
        baseline=entry.replicates("baseline_values", seeds),
        interval=entry.interval("interval"),
        card_bound=check.bound if check and Bound.parse(check.bound) != Bound.parse(bound) else "",
    )


def _comparisons(entry: _Part) -> list[_Part]:
    """All rows of the benchmark, or the first alone where the snapshot keeps no more."""
    if "comparisons" in entry.value:
        return entry.parts("comparisons")
    return [entry.part("peer")] if entry.value.get("peer") is not None else []


def _comparison(row: _Part) -> dict[str, Any]:
    seconds = {key: row.numbers(key) for key in ("ours_s", "peer_s") if key in row.value}
    return {
        "peer": row.text("peer" if "peer" in row.value else "name"),
        "size": row.text("size"),
        "ratio": row.number("ratio"),
        "target": row.value.get("target") or "",
        "quality": str(row.value.get("quality") or ""),
        **seconds,
    }
