"""Timing two things fairly: interleaved, in one process, on a machine that does nothing else."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Comparison", "interleave"]


def interleave(
    functions: Sequence[Callable[[], object]], repeats: int = 5, warmup: int = 1
) -> list[list[float]]:
    """Wall times of several functions, called in turn.

    Parameters
    ----------
    functions : sequence of callables
        What to time.
    repeats : int, default=5
        Timed rounds; each calls every function once, in alternating order.
    warmup : int, default=1
        Rounds before, not counted.

    Returns
    -------
    list of list of float
        Seconds, ``[function][round]``.

    Examples
    --------
    >>> times = interleave([lambda: sum(range(10)), lambda: sum(range(20))], repeats=3)
    >>> len(times), len(times[0])
    (2, 3)
    """
    times: list[list[float]] = [[] for _ in functions]
    for turn in range(-warmup, repeats):
        order = range(len(functions)) if turn % 2 == 0 else reversed(range(len(functions)))
        for index in order:
            start = time.perf_counter()
            functions[index]()
            elapsed = time.perf_counter() - start
            if turn >= 0:
                times[index].append(elapsed)
    return times


@dataclass(frozen=True)
class Comparison:
    """One row of a benchmark: ours beside a peer at equal quality.

    Parameters
    ----------
    peer : str
        The library call held against ours.
    size : str
        Size of the problem, in words.
    ours_s, peer_s : sequence of float
        Seconds of each round, interleaved.
    target : str
        Bound on ``ratio`` that the method is to reach, such as ``">= 10"``; empty where none is set.
    quality : str
        How the two answers were found equal, or in what they differ.
    peak_mb : float or None
        Peak memory of our side, where the benchmark measures it.
    """

    peer: str
    size: str
    ours_s: Sequence[float]
    peer_s: Sequence[float]
    target: str
    quality: str
    peak_mb: float | None = None

    @property
    def ratio(self) -> float:
        """Peer's median time over ours: above 1 we are faster."""
        return statistics.median(self.peer_s) / statistics.median(self.ours_s)

    def to_dict(self) -> dict[str, Any]:
        """Plain mapping for the store."""
        return {
            "peer": self.peer,
            "size": self.size,
            "ours_s": list(self.ours_s),
            "peer_s": list(self.peer_s),
            "ratio": self.ratio,
            "target": self.target,
            "quality": self.quality,
            "peak_mb": self.peak_mb,
        }
