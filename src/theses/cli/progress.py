"""Live progress of a run: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from theses.evidence.runner import Listener, Unit
from theses.evidence.store import UnitKey, UnitRecord

__all__ = ["listener_for"]

_LINE_EVERY_S = 10.0


@contextlib.contextmanager
def listener_for(units: Sequence[Unit]) -> Iterator[Listener]:
    """Listener that shows units on standard error, so that standard output holds results alone.

    Parameters
    ----------
    units : sequence of Unit
        All that will run.

    Yields
    ------
    Listener
        To be given to the runner.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(len(units))
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[message]}", style="dim"),
    )
    with Progress(*columns, console=console) as progress:
        yield _Bars(progress, len(units))


def _label(unit: Unit) -> str:
    return f"{unit.key.method} seed {unit.key.seed}"


class _Bars(Listener):
    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._all = progress.add_task("all units", total=total, message="")
        self._tasks: dict[UnitKey, TaskID] = {}

    def waiting(self, unit: Unit) -> None:
        self._tasks[unit.key] = self._progress.add_task(
            _label(unit), total=1.0, start=False, message="waits for a timed run to end"
        )

    def started(self, unit: Unit) -> None:
        self._progress.start_task(self._tasks[unit.key])
        self._progress.update(self._tasks[unit.key], message="")

    def progress(self, unit: Unit, fraction: float, message: str) -> None:
        self._progress.update(self._tasks[unit.key], completed=fraction, message=message)

    def finished(self, unit: Unit, record: UnitRecord, *, reused: bool) -> None:
        if unit.key in self._tasks:
            self._progress.remove_task(self._tasks.pop(unit.key))
        self._progress.console.print(_ending(unit, record, reused=reused), markup=False, highlight=False)
        self._progress.advance(self._all)


class _Lines(Listener):
    def __init__(self, total: int) -> None:
        self._total = total
        self._finished = 0
        self._start: dict[UnitKey, float] = {}
        self._last: dict[UnitKey, float] = {}
        self._lock = threading.Lock()

    def started(self, unit: Unit) -> None:
        self._start[unit.key] = self._last[unit.key] = time.monotonic()
        self._say(f"{_label(unit)}: started")

    def progress(self, unit: Unit, fraction: float, message: str) -> None:
        now = time.monotonic()
        if now - self._last[unit.key] < _LINE_EVERY_S:
            return
        self._last[unit.key] = now
        elapsed = now - self._start[unit.key]
        left = f", about {elapsed * (1 - fraction) / fraction:.0f} s left" if fraction > 0 else ""
        self._say(f"{_label(unit)}: {100 * fraction:.0f} % after {elapsed:.0f} s{left}, {message}")

    def finished(self, unit: Unit, record: UnitRecord, *, reused: bool) -> None:
        with self._lock:
            self._finished += 1
        self._say(_ending(unit, record, reused=reused))

    def _say(self, text: str) -> None:
        with self._lock:
            typer.echo(f"[{self._finished}/{self._total}] {text}", err=True)


def _ending(unit: Unit, record: UnitRecord, *, reused: bool) -> str:
    if reused:
        return f"{_label(unit)}: taken from the store"
    text = f"{_label(unit)}: {record.status} in {record.record['wall_s']:.1f} s"
    return text if record.status == "done" else f"{text}: {record.error.strip().splitlines()[-1]}"
