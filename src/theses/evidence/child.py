"""The parent's side of a unit: starts the child, listens to it, ends it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from theses.evidence.machine import THREAD_VARIABLES
from theses.evidence.unit import write_request

__all__ = ["Child", "Outcome"]

_STDERR_TAIL = 4000


@dataclass(frozen=True)
class Outcome:
    """How a child ended: ``done`` with its answer, ``error`` or ``timeout`` with a text."""

    status: str
    wall_s: float
    answer: dict[str, Any] | None
    error: str


class Child:
    """A child process that runs one request in a process group of its own.

    Parameters
    ----------
    request : dict
        What to run.
    threads : int
        Limit for the numerical libraries' threads.
    """

    def __init__(self, request: dict[str, Any], threads: int) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by wait()
        self._start = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "theses.evidence.unit"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))},
            start_new_session=True,
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a child that died at once is reported by wait()
            write_request(self._process.stdin.fileno(), request)

    def kill(self) -> None:
        """End the child and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _confirm(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # killed meanwhile: wait() reports it
            os.write(self._process.stdin.fileno(), b"\n")

    def wait(self, timeout: float | None, hear: Callable[[dict[str, Any]], None]) -> Outcome:
        """Listen until the child ends.

        Parameters
        ----------
        timeout : float or None
            Seconds until it is ended.
        hear : callable
            Given each message that is not the last.

        Returns
        -------
        Outcome
            How it ended.
        """
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self.kill()

        timer = threading.Timer(timeout, expire) if timeout is not None else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        answer: dict[str, Any] | None = None
        error = ""
        assert self._process.stdout is not None and self._process.stdin is not None
        try:
            for line in self._process.stdout:
                try:
                    message = json.loads(line)
                except json.JSONDecodeError:
                    continue  # the last line of a child that was killed while it wrote
                if message["kind"] == "done":
                    answer = message
                elif message["kind"] == "error":
                    error = message["traceback"]
                else:
                    hear(message)
                    if message["kind"] == "stage":
                        self._confirm()
            code = self._process.wait()
        finally:
            if timer is not None:
                timer.cancel()
            self.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._stderr.seek(0)
            tail = self._stderr.read()[-_STDERR_TAIL:].decode(errors="replace")
            self._stderr.close()
        wall = time.perf_counter() - self._start
        if answer is not None:
            return Outcome("done", wall, answer, "")
        if expired.is_set():
            return Outcome("timeout", wall, None, f"ended after {timeout:g} s")
        ending = f"signal {-code}" if code < 0 else f"exit status {code}"
        return Outcome("error", wall, None, error or f"the process ended by {ending}\n{tail}")
