"""What a step of every evolutionary search is made of: a mutation, an evaluation, a record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from theses.decision.pareto_subset_selection.functions import build
from theses.decision.pareto_subset_selection.problem import Problem
from theses.decision.pareto_subset_selection.result import SelectionResult, Trace

__all__ = ["Callback", "Evaluation", "Mutations", "Recorder", "SearchState"]

_BLOCK: Final = 4096  # flips drawn at once


@dataclass(frozen=True)
class SearchState:
    """What a callback is told.

    Parameters
    ----------
    n_evals, n_steps : int
        Evaluations and steps so far.
    value : float
        Best feasible value.
    front_size : int
        Sets kept, over all archives.
    max_archive : int
        Largest archive so far.
    seconds : float
        Wall time.
    costs, values : tuple of float
        Costs, in the user's units, and values of the archive that is at work.

    Examples
    --------
    >>> SearchState(10, 16, 2.0, 3, 3, 0.1, (0.0, 1.0), (0.0, 2.0)).value
    2.0
    """

    n_evals: int
    n_steps: int
    value: float
    front_size: int
    max_archive: int
    seconds: float
    costs: tuple[float, ...]
    values: tuple[float, ...]


Callback = Callable[[SearchState], bool]


class Mutations:
    """Bit flips with probability 1/n each, by the gaps between them.

    The flips of all steps are one long row of trials; gaps between successes are geometric, so that a step
    costs what it flips, one item on average. Steps without a flip are only counted.
    """

    def __init__(self, n: int, rng: np.random.Generator) -> None:
        self._n, self._rng = n, rng
        self._rows = iter(self._draw())

    def _draw(self) -> Iterator[tuple[int, list[int], float]]:
        n, rng = self._n, self._rng
        at = -1  # place of the last success in the row of trials
        pending: list[int] = []
        row = previous = -1
        parent = 0.0
        while True:
            places = at + np.cumsum(rng.geometric(1 / n, size=_BLOCK))
            at = int(places[-1])
            # One number a flip is more than is needed, but it keeps the two streams together.
            for place_row, item, choice in zip(
                (places // n).tolist(), (places % n).tolist(), rng.random(_BLOCK).tolist(), strict=True
            ):
                if place_row == row:
                    pending.append(item)
                    continue
                if pending:
                    yield row - previous, pending, parent
                    previous = row
                row, pending, parent = place_row, [item], choice

    def __iter__(self) -> Iterator[tuple[int, list[int], float]]:
        """Steps since the last with a flip, the items that flip, a uniform number for the parent."""
        return self._rows


class Recorder:
    """Counts evaluations over all archives, notes the course, asks the callback."""

    def __init__(self, problem: Problem, total: int, callback: Callback | None) -> None:
        self.problem, self.total, self.callback = problem, total, callback
        self.n_evals = self.n_steps = 0
        self.max_archive = 1
        self.stopped = False
        self.every = max(problem.n, 1)
        self.next = self.every
        self.best: tuple[float, int, int] = (problem.base_value, 0, problem.free)
        self.other_size = 0  # sets in the archives that are not at work
        self._rows: list[tuple[int, float, int, float]] = []
        self._start = time.perf_counter()

    def offer(self, member: tuple[int, float, int] | None) -> None:
        """Take note of a feasible set: better, or as good and cheaper."""
        if member is not None:
            cost, value, bits = member
            if value > self.best[0] or (value == self.best[0] and cost < self.best[1]):
                self.best = (value, cost, bits)

    def note(self, size: int, costs: Sequence[int], values: Sequence[float]) -> None:
        seconds = time.perf_counter() - self._start
        size += self.other_size
        self._rows.append((self.n_evals, float(self.best[0]), size, seconds))
        self.next = (self.n_evals // self.every + 1) * self.every
        if self.callback is not None:
            unit = self.problem.unit
            state = SearchState(
                self.n_evals,
                self.n_steps,
                float(self.best[0]),
                size,
                self.max_archive,
                seconds,
                tuple(cost * unit for cost in costs),
                tuple(float(value) for value in values),
            )
            self.stopped = bool(self.callback(state))

    def trace(self) -> Trace:
        columns = list(zip(*self._rows, strict=True)) or [(), (), (), ()]
        return Trace(
            np.array(columns[0], dtype=np.int64),
            np.array(columns[1], dtype=np.float64),
            np.array(columns[2], dtype=np.int64),
            np.array(columns[3], dtype=np.float64),
        )

    def result(
        self, members: Sequence[tuple[int, float, int]], algorithm: str, guarantee: float
    ) -> SelectionResult:
        problem = self.problem
        value, cost, bits = self.best
        front = problem.front([*members, (cost, value, bits)])
        return SelectionResult(
            mask=front.masks[-1],
            value=float(front.values[-1]),
            cost=float(front.costs[-1]),
            front=front,
            trace=self.trace(),
            n_evals=self.n_evals,
            n_steps=self.n_steps,
            algorithm=algorithm,
            guarantee=problem.guarantee(guarantee),
            budget=problem.budget,
            max_archive=self.max_archive,
        )


class Evaluation:
    """Values of offspring from their parents: an insertion is one step of the evaluator."""

    def __init__(self, problem: Problem) -> None:
        self.evaluator = problem.evaluator
        self._base, self._free = problem.base, problem.free
        self._memo: dict[int, tuple[Any, float]] | None = {} if problem.evaluator.costly else None

    def __call__(self, parent_state: Any, parent: int, child: int) -> tuple[Any, float]:
        memo = self._memo
        if memo is not None and child in memo:
            return memo[child]
        evaluator = self.evaluator
        if parent & ~child:
            # Something was taken out: what the rest covers has to be put together again.
            state = build(evaluator, child & ~self._free, self._base)
        else:
            state = build(evaluator, child & ~parent, parent_state)
        value = evaluator.value(state)
        if not -math.inf < value < math.inf:
            raise ValueError(f"f must return finite values, got {value}")
        if memo is not None:
            memo[child] = state, value
        return state, value
