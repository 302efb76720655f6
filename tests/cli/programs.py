"""Running the command line as a user does: as a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

#: Starts the command line on the catalogue of a folder and says at the end what was imported that is slow.
_START = """
import sys
from pathlib import Path

import theses.catalogue.reader

theses.catalogue.reader._ROOT = Path(sys.argv.pop(1))
from theses.cli import main

try:
    main()
finally:
    slow = {"torch", "scipy", "sklearn", "polars", "pandas", "numba", "ot"} & set(sys.modules)
    print("slow imports:", *sorted(slow), file=sys.stderr)
"""


def run(root: Path, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Result of ``theses ARGUMENTS`` with the catalogue of a folder."""
    return subprocess.run(
        [sys.executable, "-c", _START, str(root), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
        timeout=120,
    )


def assert_starts_fast(root: Path, arguments: Sequence[str | Path], limit_s: float) -> None:
    """The command answers within twice its limit, at one of a few tries, and without numerical libraries.

    The factor and the tries are for machines that do something else meanwhile.
    """
    shortest = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        result = run(root, *arguments)
        shortest = min(shortest, time.perf_counter() - start)
        assert result.returncode == 0, result.stderr
        assert "slow imports:\n" in result.stderr, result.stderr
        if shortest < limit_s:
            break
    assert shortest < 2 * limit_s
