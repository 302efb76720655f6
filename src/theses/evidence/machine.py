"""The machine and the code a unit ran on: revision, digest, versions, load, and the lock for timing."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import theses
from theses.catalogue.card import Card

__all__ = ["THREAD_VARIABLES", "CpuMeter", "code_digest", "environment", "machine_lock", "revision"]

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "POLARS_MAX_THREADS",
)

_LOCK_POLL_S = 0.1

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "POT", "polars")
_LIBRARIES_OF_EXTRAS = ("transformers", "jax", "blackjax", "botorch", "gpytorch", "open-spiel")


def code_digest(card: Card) -> str:
    """SHA-256 over what decides a method's measurements: its module, its study, the judged part of its card.

    The card's prose (summary, explanations and the like) is left out, so that explaining a result does not
    make it stale.

    Parameters
    ----------
    card : Card
        The method.

    Returns
    -------
    str
        Hexadecimal digest.
    """
    digest = hashlib.sha256()
    for name in (card.module, card.study):
        for path in _sources(name):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    judged = [
        [claim.id, claim.kind, claim.timed, claim.preset]
        + [[c.metric, c.baseline_metric, c.bound, c.aggregate] for c in claim.checks]
        for claim in card.claims
    ]
    watched = [observation.metric for observation in card.observations]
    digest.update(json.dumps([card.seeds, judged, watched]).encode())
    return digest.hexdigest()


def _sources(module: str) -> list[Path]:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{module} is named by a card but cannot be found", name=module)
    if spec.submodule_search_locations:
        return sorted(
            path for folder in spec.submodule_search_locations for path in Path(folder).rglob("*.py")
        )
    return [Path(spec.origin)]


def revision() -> tuple[str, bool]:
    """Git revision of the checkout that theses runs from, and whether its sources differ from it.

    Returns
    -------
    revision : str
        Commit, or ``"release VERSION"`` for an installed package.
    clean : bool
        False if a tracked or new file under ``src`` differs; an installed package is clean.
    """
    root = Path(theses.__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return f"release {theses.__version__}", True

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), not git("status", "--porcelain", "--", "src")
    except (OSError, subprocess.SubprocessError):
        return "unknown", False


def environment(threads: int) -> dict[str, Any]:
    """Where a measurement is made.

    Parameters
    ----------
    threads : int
        Thread limit of the unit.

    Returns
    -------
    dict
        Python, platform, processor, cores, memory, threads and versions of the main libraries.
    """
    return {
        "theses": theses.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "threads": threads,
        "load": round(os.getloadavg()[0], 2),
        "libraries": _versions(),
    }


def _versions() -> dict[str, str]:
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    for name in _LIBRARIES_OF_EXTRAS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


class CpuMeter:
    """How many cores *other* processes use between the meter's start and its reading.

    Read from ``/proc/stat``; where there is none the answer is None, and a timed record is not published.
    """

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._busy = _busy_seconds()
        self._own = _own_seconds()

    def foreign_cores(self) -> float | None:
        """Mean number of cores that were busy with something else.

        Returns
        -------
        float or None
            Cores; this process and its children that have ended do not count.
        """
        busy = _busy_seconds()
        if busy is None or self._busy is None:
            return None
        elapsed = max(time.perf_counter() - self._start, 1e-9)
        return max(0.0, (busy - self._busy) - (_own_seconds() - self._own)) / elapsed


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _busy_seconds() -> float | None:
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _idle, _iowait, irq, softirq = (int(field) for field in fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def machine_lock(*, exclusive: bool, cancelled: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Machine-wide lock: a timed unit holds it alone, others share it.

    Parameters
    ----------
    exclusive : bool
        Whether nothing else of theses may run meanwhile.
    cancelled : callable, optional
        Asked while waiting; true ends the wait.

    Yields
    ------
    None
        While the lock is held; the operating system releases it if the process dies.

    Raises
    ------
    KeyboardInterrupt
        If the wait was cancelled.
    """
    path = Path(tempfile.gettempdir()) / "theses-timing.lock"
    flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o666)
    operation = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    try:
        while True:
            if cancelled():
                raise KeyboardInterrupt
            try:
                fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)
