"""The runner: units in fresh child processes, their results in the store."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from theses.catalogue.card import Card
from theses.evidence.child import Child
from theses.evidence.codec import decode
from theses.evidence.machine import (
    CpuMeter,
    code_digest,
    environment,
    machine_lock,
    revision,
)
from theses.evidence.measurement import Measurement
from theses.evidence.store import Store, UnitKey, UnitRecord

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "Listener",
    "Options",
    "Unit",
    "measurements",
    "run_benchmark",
    "run_units",
    "units_of",
]

DEFAULT_TIMEOUT_S: Final = {"smoke": 300.0, "standard": 3600.0, "long": 4 * 3600.0, "paper": None}

_POLL_S = 0.2


@dataclass(frozen=True)
class Options:
    """What a run sets beside method, preset and seed.

    Parameters
    ----------
    device : str, default="cpu"
        Torch device.
    data_folder : pathlib.Path or None, default=None
        Local folder for the ``paper`` preset.
    limit : int or None, default=None
        Cap on samples for a trial run of the ``paper`` preset.
    """

    device: str = "cpu"
    data_folder: Path | None = None
    limit: int | None = None

    def key(self) -> str:
        """Text that tells runs with different options apart."""
        options: dict[str, Any] = {}
        if self.device != "cpu":
            options["device"] = self.device
        if self.data_folder is not None:
            options["data_folder"] = str(self.data_folder)
        if self.limit is not None:
            options["limit"] = self.limit
        return json.dumps(options, sort_keys=True)


@dataclass(frozen=True)
class Unit:
    """One unit to run: one method, one seed, one preset.

    Parameters
    ----------
    key : UnitKey
        Identity in the store.
    study : str
        Dotted name of the module whose ``run`` is called.
    metrics : tuple of str
        Metrics that the measurement has to hold.
    timed : bool
        Whether it has to run alone on the machine.
    """

    key: UnitKey
    study: str
    metrics: tuple[str, ...]
    timed: bool


class Listener:
    """Told what happens; a command line overrides what it shows. Called from several threads."""

    def started(self, unit: Unit) -> None:
        """Tell that a unit begins."""

    def waiting(self, unit: Unit) -> None:
        """Tell that a unit waits for the machine-wide lock."""

    def progress(self, unit: Unit, fraction: float, message: str) -> None:
        """Tell how far a unit is."""

    def finished(self, unit: Unit, record: UnitRecord, *, reused: bool) -> None:
        """Tell that a unit is in the store."""


def units_of(card: Card, preset: str, seeds: Sequence[int], options: Options = Options()) -> list[Unit]:
    """Units of a method.

    Parameters
    ----------
    card : Card
        The method.
    preset : str
        Preset.
    seeds : sequence of int
        Seeds.
    options : Options, optional
        Options of the run.

    Returns
    -------
    list of Unit
        One a seed.
    """
    digest = code_digest(card)
    return [
        Unit(
            key=UnitKey(card.slug, preset, seed, digest, options.key()),
            study=card.study,
            metrics=card.metrics(preset),
            timed=card.timed and preset != "smoke",
        )
        for seed in seeds
    ]


def run_units(
    units: Sequence[Unit],
    store: Store,
    *,
    jobs: int = 1,
    resume: bool = False,
    timeout: float | None = None,
    options: Options = Options(),
    listener: Listener | None = None,
) -> list[UnitRecord]:
    """Run units and store them; a unit that fails is stored with its traceback and stops no other.

    Timed units run one at a time, after the others, with the machine-wide lock held. An interruption ends the
    children and loses the arm in flight only: finished stages are in the store already.

    Parameters
    ----------
    units : sequence of Unit
        What to run.
    store : Store
        Where results go; only this process writes to it.
    jobs : int, default=1
        Units at a time; each gets an equal share of the cores as its thread limit.
    resume : bool, default=False
        Take a finished unit of the same key from the store, and go on after the last finished stage of one
        that was interrupted.
    timeout : float or None, default=None
        Seconds a unit may take; None takes the preset's default.
    options : Options, optional
        The options that the units' keys were made with.
    listener : Listener or None, default=None
        Told what happens.

    Returns
    -------
    list of UnitRecord
        In the order of ``units``.
    """
    listener = listener or Listener()
    runner = _Runner(store, options, listener, threads=max(1, _cores() // jobs))
    records: dict[UnitKey, UnitRecord] = {}
    pending: list[Unit] = []
    for unit in units:
        old = store.latest(unit.key.method, unit.key.preset, unit.key.options).get(unit.key.seed)
        if resume and old is not None and old.status == "done" and old.key == unit.key:
            records[unit.key] = old
            listener.finished(unit, old, reused=True)
            continue
        if not resume:
            store.forget_stages(unit.key)
        pending.append(unit)

    def limit(unit: Unit) -> float | None:
        return DEFAULT_TIMEOUT_S[unit.key.preset] if timeout is None else timeout

    batches = [[unit for unit in pending if not unit.timed]] + [[unit] for unit in pending if unit.timed]
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            for batch in batches:
                futures = {pool.submit(runner.run, unit, limit(unit)): unit for unit in batch}
                for future in _as_completed(futures):
                    records[futures[future].key] = future.result()
        except BaseException:
            runner.stop()
            pool.shutdown(cancel_futures=True)
            raise
    return [records[unit.key] for unit in units]


def run_benchmark(card: Card, path: Path, store: Store) -> list[dict[str, Any]]:
    """Run a method's benchmark alone on the machine and store its rows.

    Parameters
    ----------
    card : Card
        The method.
    path : pathlib.Path
        Its benchmark file, with a function ``benchmark`` that returns comparisons.
    store : Store
        Where the rows go.

    Returns
    -------
    list of dict
        The rows, as :meth:`theses.evidence.timing.Comparison.to_dict` gives them.

    Raises
    ------
    RuntimeError
        If the benchmark fails; the message holds its traceback.
    """
    started = _now()
    threads = _cores()
    with machine_lock(exclusive=True):
        meter = CpuMeter()
        outcome = Child({"benchmark": str(path)}, threads).wait(None, _ignore)
        foreign = meter.foreign_cores()
    if outcome.answer is None:
        raise RuntimeError(f"the benchmark of {card.slug} failed:\n{outcome.error}")
    commit, clean = revision()
    record = {
        "revision": commit,
        "clean": clean,
        "environment": environment(threads),
        "foreign_cores": foreign,
        "peak_mb": outcome.answer["peak_mb"],
    }
    rows: list[dict[str, Any]] = outcome.answer["comparisons"]
    store.add_benchmark(card.slug, code_digest(card), started, record, rows)
    return rows


def measurements(records: Sequence[UnitRecord | None]) -> list[Measurement | None]:
    """Decoded measurements of units; None where a unit is absent or did not finish.

    Parameters
    ----------
    records : sequence of UnitRecord or None
        Units.

    Returns
    -------
    list of Measurement or None
        In the same order.
    """
    return [
        Measurement.from_dict(decode(record.measurement))
        if record is not None and record.status == "done" and record.measurement is not None
        else None
        for record in records
    ]


class _Runner:
    """Runs units one by one in whatever thread asks, and can stop them all."""

    def __init__(self, store: Store, options: Options, listener: Listener, threads: int) -> None:
        self._store = store
        self._options = options
        self._listener = listener
        self._threads = threads
        self._children: set[Child] = set()
        self._lock = threading.Lock()
        self._stopped = False
        self._revision = revision()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for child in self._children:
                child.kill()

    def run(self, unit: Unit, timeout: float | None) -> UnitRecord:
        self._listener.waiting(unit)
        smoke = unit.key.preset == "smoke"
        # Smoke runs are too small to gain from a second thread, and lose much by it on a busy machine.
        threads = 1 if smoke else _cores() if unit.timed else self._threads
        with contextlib.ExitStack() as stack:
            # Smoke runs measure nothing, so they neither wait for timed units nor hold them up.
            if not smoke:
                stack.enter_context(machine_lock(exclusive=unit.timed, cancelled=lambda: self._stopped))
            started, place = _now(), environment(threads)
            self._listener.started(unit)
            meter = CpuMeter()
            stages = self._store.stages(unit.key)
            request = {
                "study": unit.study,
                "preset": unit.key.preset,
                "seed": unit.key.seed,
                "device": self._options.device,
                "data_folder": str(self._options.data_folder or "") or None,
                "limit": self._options.limit,
                "stages": stages,
                "recipe": f"{unit.key.digest}/{unit.key.options}",
            }

            with self._child(request, threads) as child:
                outcome = child.wait(timeout, lambda message: self._hear(unit, message))
            foreign = meter.foreign_cores() if unit.timed else None
        if self._stopped:
            raise KeyboardInterrupt
        commit, clean = self._revision
        record: dict[str, Any] = {
            "revision": commit,
            "clean": clean,
            "environment": place,
            "wall_s": outcome.wall_s,
            "foreign_cores": foreign,
            "resumed_stages": sorted(stages),
        }
        status, measurement, error = outcome.status, None, outcome.error
        if outcome.answer is not None:
            record |= {"files": outcome.answer["files"], "peak_mb": outcome.answer["peak_mb"]}
            measurement = outcome.answer["measurement"]
            metrics = Measurement.from_dict(decode(measurement)).metrics
            if missing := [metric for metric in unit.metrics if metric not in metrics]:
                status, error = "error", f"the study did not deliver {', '.join(missing)}"
        finished = UnitRecord(unit.key, status, started, record, measurement, error)
        self._store.add_unit(finished)
        self._listener.finished(unit, finished, reused=False)
        return finished

    def _hear(self, unit: Unit, message: dict[str, Any]) -> None:
        if message["kind"] == "stage":
            self._store.add_stage(unit.key, message["name"], message["payload"])
        else:
            self._listener.progress(unit, message["fraction"], message["message"])

    @contextlib.contextmanager
    def _child(self, request: dict[str, Any], threads: int) -> Iterator[Child]:
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            child = Child(request, threads)
            self._children.add(child)
        try:
            yield child
        finally:
            child.kill()
            with self._lock:
                self._children.discard(child)


def _as_completed(futures: Iterable[Future[UnitRecord]]) -> Iterator[Future[UnitRecord]]:
    waiting = set(futures)
    while waiting:
        # A short timeout, because not every platform interrupts a thread that waits for a lock.
        done, waiting = wait(waiting, timeout=_POLL_S, return_when=FIRST_COMPLETED)
        yield from done


def _ignore(message: dict[str, Any]) -> None:
    pass


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
