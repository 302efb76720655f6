"""Does a study deliver what its card promises, again and again, and can its results be drawn elsewhere?"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from tests.conformance.state import preserved
from tests.conformance.subject import Subject, import_names, requirement_names, tail
from theses.evidence import Context, Count, Measurement
from theses.evidence.codec import decode, encode

T = TypeVar("T")

SMOKE_S = 5.0
SMOKE_WITH_COMPILER_S = 20.0
SLACK = 2.0  # other machines are slower than the one that the limit was written for
RTOL, ATOL = 1e-6, 1e-12


@dataclass
class WatchedContext(Context):
    """Context that notes which stages are asked for, which are computed, and what progress is told."""

    asked: list[str] = field(default_factory=list)
    computed: list[str] = field(default_factory=list)
    told: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.progress = lambda fraction, message: self.told.append((fraction, message))

    def stage(self, name: str, function: Callable[[], T]) -> T:
        def noted() -> T:
            self.computed.append(name)
            return function()

        self.asked.append(name)
        return super().stage(name, noted)


@dataclass(frozen=True)
class Unit:
    """One run of a study: what it was given, what it delivered, or how it failed."""

    context: WatchedContext
    given: frozenset[str]
    measurement: Any
    cpu_s: float
    error: str = ""

    @property
    def metrics(self) -> dict[str, Any]:
        return dict(self.measurement.metrics) if isinstance(self.measurement, Measurement) else {}


@dataclass(frozen=True)
class Units:
    """The runs that the checks look at.

    ``halves`` repeat ``first``: each is given every other of its stages and computes the others, so that
    together they compute each stage once more, without what the neighbouring stages left in memory.
    """

    first: Unit
    halves: tuple[Unit, Unit]
    resumed: Unit
    other: Unit


def run_unit(subject: Subject, seed: int, given: dict[str, str], cwd: Path) -> Unit:
    """One unit at smoke, with some stages already finished."""
    context = WatchedContext("smoke", seed, stages=dict(given))
    with preserved():
        os.chdir(cwd)
        start = time.process_time()
        try:
            study = subject.study
            start = time.process_time()
            measurement, error = study.run(context), ""
        except Exception:
            measurement, error = None, tail(traceback.format_exc(), 12)
        cpu_s = time.process_time() - start
    return Unit(context, frozenset(given), measurement, cpu_s, error)


def run_units(subject: Subject, cwd: Path) -> Units:
    """All runs of a method's study."""
    first = run_unit(subject, 0, {}, cwd)
    stages = first.context.stages
    names = list(stages)
    halves = [run_unit(subject, 0, {name: stages[name] for name in names[i::2]}, cwd) for i in (0, 1)]
    return Units(
        first=first,
        halves=(halves[0], halves[1]),
        resumed=run_unit(subject, 0, dict(stages), cwd),
        other=run_unit(subject, 1, {}, cwd),
    )


def check_delivery(subject: Subject, units: Units) -> list[str]:
    """A unit delivers every metric of the card, finite, within its time, and all of it can be stored."""
    unit, card = units.first, subject.card
    if unit.error:
        return [f"run fails at smoke with seed 0:\n{unit.error}"]
    if not isinstance(unit.measurement, Measurement):
        return [f"run must return a Measurement, got {type(unit.measurement).__name__}"]
    complaints = []
    slow = {"lm", "jax"} & {*card.extras, *card.study_extras}
    limit = SMOKE_WITH_COMPILER_S if slow else SMOKE_S
    if unit.cpu_s > SLACK * limit:
        complaints.append(f"a smoke unit may take {limit:g} s, took {unit.cpu_s:.1f} s of CPU time")
    complaints += _complain_about_metrics(subject, unit)
    if not unit.context.stages:
        complaints.append("run stores no stage, so that a killed unit starts from nothing")
    twice = sorted({name for name in unit.context.asked if unit.context.asked.count(name) > 1})
    complaints += [f"stage {name!r} is asked for twice in one unit" for name in twice]
    if not unit.context.told:
        complaints.append("run tells no progress")
    for fraction, message in unit.context.told:
        if not 0 <= fraction <= 1 or not message.strip():
            complaints.append(
                f"progress takes a share of the unit and a message, got {fraction}, {message!r}"
            )
    try:
        stored = Measurement.from_dict(decode(encode(unit.measurement.to_dict())))
    except Exception as error:
        complaints.append(f"the measurement cannot be stored: {error!r}")
    else:
        if stored.metrics != unit.measurement.metrics:
            complaints.append("the measurement comes back from the store with other metrics")
    return complaints


def check_repeat(subject: Subject, units: Units) -> list[str]:
    """The same seed gives the same, another seed gives something else; clocks are excepted."""
    if units.first.error:
        return ["there is no first run to repeat"]
    timed = _timed_metrics(subject)
    complaints = []
    for half in units.halves:
        given = f"repeated with the stages {sorted(half.given)} stored" if half.given else "repeated"
        if half.error:
            complaints.append(f"run fails when {given}:\n{half.error}")
            continue
        complaints += [
            f"metric {name}: {_short(before)}, but {_short(after)} when {given}"
            for name, before, after in _unequal(units.first.metrics, half.metrics, RTOL)
            if name not in timed
        ]
    if units.other.error:
        complaints.append(f"run fails at smoke with seed 1:\n{units.other.error}")
    else:
        complaints += [f"with seed 1: {c}" for c in _complain_about_metrics(subject, units.other)]
        unequal = {name for name, _, _ in _unequal(units.first.metrics, units.other.metrics, 0.0)}
        if set(units.first.metrics) - timed and not unequal - timed:
            complaints.append("seeds 0 and 1 give the same metrics: the seed is not used")
    return complaints


def check_resume(units: Units) -> list[str]:
    """A unit whose stages are all stored computes none of them and delivers the same."""
    if units.first.error:
        return ["there is no first run to resume"]
    if units.resumed.error:
        return [f"run fails when all stages are stored:\n{units.resumed.error}"]
    complaints = [
        f"stage {name!r} is computed anew although it is stored" for name in units.resumed.context.computed
    ]
    complaints += [
        f"metric {name}: {_short(before)}, but {_short(after)} when resumed; what is measured outside of "
        "a stage is lost"
        for name, before, after in _unequal(units.first.metrics, units.resumed.metrics, 0.0)
    ]
    return complaints


def check_figures(subject: Subject, units: Units, cwd: Path) -> list[str]:
    """``figures`` draws from the stored tables of two seeds where only polars and altair are installed."""
    if not units.first.metrics or not units.other.metrics:
        return ["there are no two measurements to draw"]
    tables = {0: units.first.measurement.tables, 1: units.other.measurement.tables}
    complaints = [
        f"table {name!r} has a column 'seed', which is added when the tables of all seeds are stacked"
        for name, table in units.first.measurement.tables.items()
        if "seed" in table.columns
    ]
    stacked = {}
    for name in dict.fromkeys(name for of_seed in tables.values() for name in of_seed):
        frames = [
            of_seed[name].with_columns(seed=pl.lit(seed))
            for seed, of_seed in tables.items()
            if name in of_seed
        ]
        try:
            stacked[name] = pl.concat(frames)
        except Exception as error:
            return [*complaints, f"table {name!r} of seeds 0 and 1 cannot be stacked: {error}"]
    if not stacked:
        return ["the measurement has no tables to draw from"]
    request = {
        "study": subject.study_name,
        "hidden": sorted(_hidden(subject)),
        "tables": encode(stacked),
    }
    done = subject.python("-m", "tests.conformance.child_figures", cwd=cwd, stdin=json.dumps(request))
    if done.returncode:
        return [*complaints, f"figures fail where only polars and altair are installed:\n{tail(done.stderr)}"]
    charts: dict[str, Any] = json.loads(done.stdout)
    if not charts:
        complaints.append("figures draws nothing")
    for name, chart in charts.items():
        if not isinstance(chart, dict):
            complaints.append(f"figure {name!r}: {chart}")
        elif "vega-lite" not in chart.get("$schema", ""):
            complaints.append(f"figure {name!r} is no Vega-Lite specification")
        elif '"url"' in json.dumps(chart):
            complaints.append(f"figure {name!r} fetches its data from a URL; reports are read offline")
    return complaints


def _complain_about_metrics(subject: Subject, unit: Unit) -> list[str]:
    counted = {
        check.metric for claim in subject.card.claims for check in claim.checks if check.aggregate == "share"
    }
    averaged = {
        name
        for claim in subject.card.claims
        for check in claim.checks
        if check.aggregate != "share"
        for name in (check.metric, check.baseline_metric)
    }
    complaints = []
    for name in subject.card.metrics("smoke"):
        if name not in unit.metrics:
            complaints.append(f"metric {name} of the card is not delivered")
            continue
        for value in unit.metrics[name]:
            if isinstance(value, Count):
                if not value.trials:
                    complaints.append(f"metric {name} counts no trials")
                elif name in averaged:
                    complaints.append(f"metric {name} is no share, but has the count {value}")
            elif not math.isfinite(value):
                complaints.append(f"metric {name} must be finite, got {value}")
            elif name in counted and value not in (0.0, 1.0):
                complaints.append(f"metric {name} is a share: its replicates are 0, 1 or counts, got {value}")
    return complaints


def _timed_metrics(subject: Subject) -> set[str]:
    return {
        name
        for claim in subject.card.claims
        if claim.timed
        for check in claim.checks
        for name in (check.metric, check.baseline_metric)
    }


def _unequal(before: dict[str, Any], after: dict[str, Any], rtol: float) -> list[tuple[str, Any, Any]]:
    return [
        (name, before.get(name), after.get(name))
        for name in dict.fromkeys([*before, *after])
        if not _close(before.get(name), after.get(name), rtol)
    ]


def _close(before: Any, after: Any, rtol: float) -> bool:
    if before is None or after is None or len(before) != len(after):
        return False
    pairs = zip(_numbers(before), _numbers(after), strict=True)
    atol = ATOL if rtol else 0.0
    return all(math.isclose(a, b, rel_tol=rtol, abs_tol=atol) or (a != a and b != b) for a, b in pairs)


def _numbers(replicates: Iterable[Any]) -> list[float]:
    return [number for value in replicates for number in (value if isinstance(value, Count) else (value,))]


def _short(replicates: Any) -> str:
    if replicates is None:
        return "nothing"
    shown = ", ".join(map(str, replicates[:3]))
    return f"{shown}, ..." if len(replicates) > 3 else shown


def _hidden(subject: Subject) -> set[str]:
    extras = subject.project["project"]["optional-dependencies"]
    needs = importlib.metadata.requires("altair") or []
    kept = {"altair", "theses", *requirement_names([need for need in needs if "extra ==" not in need])}
    distributions = requirement_names([text for group in extras.values() for text in group])
    hidden = import_names([name for name in distributions if name not in kept]) - {subject.library}
    return hidden | {"torch", "scipy", "sklearn", "ot", "joblib", "safetensors", subject.module_name}
