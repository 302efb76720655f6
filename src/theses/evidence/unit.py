"""One unit in a process of its own: ``python -m theses.evidence.unit``.

The parent writes a length and a JSON request to standard input and keeps it open; the child answers with a
line of JSON a message on standard output. A byte on the input says that a stage is in the store; when the
input closes, the parent is gone and the child ends itself, with all that it started.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["main", "read_request", "write_request"]

_LENGTH = struct.Struct(">Q")


class _ReportedStages(dict[str, str]):
    """Stages that tell the parent when one is added."""

    def __init__(self, stages: dict[str, str], report: Callable[[str, str], None]) -> None:
        super().__init__(stages)
        self._report = report

    def __setitem__(self, name: str, payload: str) -> None:
        super().__setitem__(name, payload)
        self._report(name, payload)


def write_request(descriptor: int, request: dict[str, Any]) -> None:
    """Send a request down a pipe.

    Parameters
    ----------
    descriptor : int
        Writing end.
    request : dict
        What to run; JSON types only.
    """
    data = json.dumps(request).encode()
    view = memoryview(_LENGTH.pack(len(data)) + data)
    while view:
        view = view[os.write(descriptor, view) :]


def read_request(descriptor: int) -> dict[str, Any]:
    """Receive a request.

    Parameters
    ----------
    descriptor : int
        Reading end.

    Returns
    -------
    dict
        The request.

    Raises
    ------
    EOFError
        If the pipe closes before it is complete.
    """

    def exactly(n: int) -> bytes:
        parts = bytearray()
        while len(parts) < n:
            part = os.read(descriptor, n - len(parts))
            if not part:
                raise EOFError("the request is incomplete")
            parts += part
        return bytes(parts)

    (length,) = _LENGTH.unpack(exactly(_LENGTH.size))
    request: dict[str, Any] = json.loads(exactly(length))
    return request


def _listen_to_parent(stored: threading.Semaphore) -> None:
    while os.read(0, 1):
        stored.release()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _peak_mb() -> float:
    # The kernel's high-water mark starts anew with the program, unlike the one that getrusage reports.
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _study(request: dict[str, Any], send: Callable[..., None], stored: threading.Semaphore) -> dict[str, Any]:
    from theses.evidence.codec import encode
    from theses.evidence.context import Context
    from theses.evidence.measurement import Measurement

    def report_stage(name: str, payload: str) -> None:
        send(kind="stage", name=name, payload=payload)
        stored.acquire()  # the next arm begins when this one can no longer be lost

    def report_progress(fraction: float, message: str) -> None:
        send(kind="progress", fraction=float(fraction), message=str(message))

    context = Context(
        preset=request["preset"],
        seed=request["seed"],
        device=request["device"],
        data_folder=Path(request["data_folder"]) if request["data_folder"] else None,
        limit=request["limit"],
        stages=_ReportedStages(request["stages"], report_stage),
        progress=report_progress,
        recipe=request["recipe"],
    )
    measurement = importlib.import_module(request["study"]).run(context)
    if not isinstance(measurement, Measurement):
        raise TypeError(f"{request['study']}.run returned a {type(measurement).__name__}, not a Measurement")
    return {"measurement": encode(measurement.to_dict())}


def _benchmark(request: dict[str, Any]) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("benchmark", request["benchmark"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {"comparisons": [comparison.to_dict() for comparison in module.benchmark()]}


def main() -> None:
    """Run one request from standard input."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not end up between the messages
    lock = threading.Lock()

    def send(**message: Any) -> None:
        with lock:
            channel.write(json.dumps(message) + "\n")
            channel.flush()

    request = read_request(0)
    stored = threading.Semaphore(0)
    threading.Thread(target=_listen_to_parent, args=(stored,), daemon=True).start()
    try:
        answer = _benchmark(request) if "benchmark" in request else _study(request, send, stored)
    except BaseException:
        send(kind="error", traceback=traceback.format_exc())
        raise SystemExit(1) from None
    from theses.resources import files_read

    send(kind="done", files=files_read(), peak_mb=_peak_mb(), **answer)


if __name__ == "__main__":
    main()
