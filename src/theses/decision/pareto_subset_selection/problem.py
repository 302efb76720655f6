"""What all algorithms need of a problem: prices that add up exactly, free items taken at once."""

from __future__ import annotations

import bisect
import math
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from theses.decision.pareto_subset_selection.functions import (
    SetFunction,
    build,
    check_function,
    evaluator_of,
)
from theses.decision.pareto_subset_selection.result import Front
from theses.problems.coverage import unpack
from theses.validation import check_array, check_integer, check_real

__all__ = ["Archive", "Problem", "parse_evaluations"]

_TOLERANCE = 1e-12
_UNITS = 1 << 60  # of the budget: what a price is rounded to


class Problem:
    """Set function, prices and budget, checked.

    Prices become integers, exactly if they and the budget are integers, else in units of 2^-60 of the budget:
    the cost of a set is then the same whichever way it was reached, and no rounding piles up. Items that cost
    nothing belong to every set.

    Parameters
    ----------
    f : SetFunction
        The function.
    costs : array-like, shape (n,)
        Prices, at least 0.
    budget : float
        The budget, above 0.
    """

    def __init__(self, f: SetFunction, costs: Any, budget: float) -> None:
        self.f = f
        self.n = check_function(f)
        prices = check_array("costs", costs, ndim=1, min_length=0)
        if len(prices) != self.n:
            raise ValueError(f"costs must have one entry for each of the {self.n} items, got {len(prices)}")
        if (prices < 0).any():
            raise ValueError(f"costs must be at least 0, got {prices.min()}")
        self.budget = check_real("budget", budget, minimum=0, include=False)
        self.prices = prices
        whole = bool((prices == np.floor(prices)).all()) and self.budget == int(self.budget)
        self.unit = 1.0 if whole else self.budget / _UNITS
        self.costs = [round(float(price) / self.unit) for price in prices]
        self.limit = self.units(self.budget)
        self.free = sum(1 << v for v in range(self.n) if prices[v] == 0)
        # A price below one unit is not free, but may not be taken for 0 either.
        self.costs = [
            max(cost, 1) if price > 0 else 0 for cost, price in zip(self.costs, prices, strict=True)
        ]
        self.items = [v for v in range(self.n) if self.costs[v]]
        self.affordable = [v for v in self.items if self.costs[v] <= self.limit]
        self.evaluator = evaluator_of(f)
        if self.items and not self.affordable:
            warnings.warn(
                f"budget {self.budget:g} is below the price of every item that is not free: the cheapest "
                f"costs {prices[prices > 0].min():g}",
                UserWarning,
                stacklevel=3,
            )
        self.base = build(self.evaluator, self.free)
        self.base_value = self.evaluator.value(self.base)
        if not np.isfinite(self.base_value):
            raise ValueError(f"f must return finite values, got {self.base_value} for the empty set")

    def units(self, cost: float) -> int:
        """Largest number of units that counts as within a cost."""
        units = cost * (1 + _TOLERANCE) / self.unit
        return math.floor(units) if self.unit == 1 else round(units)

    def guarantee(self, ratio: float) -> float:
        """A proven ratio, or 0 for functions that say that they are not submodular."""
        return ratio if getattr(self.f, "submodular", True) else 0.0

    def front(self, members: Sequence[tuple[int, float, int]]) -> Front:
        """Front of (units, value, bits) that are within the budget, with values finite."""
        best: list[tuple[int, float, int]] = []
        for units, value, bits in sorted(members, key=lambda member: (member[0], -member[1])):
            if units <= self.limit and (not best or value > best[-1][1]):
                best.append((units, value, bits))
        masks = np.array([unpack(bits, self.n) for _, _, bits in best], dtype=bool).reshape(len(best), self.n)
        return Front(masks, np.array([float(value) for _, value, _ in best]), masks @ self.prices)


class Archive:
    """Sets of which none weakly dominates another, in rising order of cost and of value.

    Members are kept in four lists, ``costs``, ``values``, ``bits`` and ``states``, so that bisection finds
    the only neighbours that matter.
    """

    __slots__ = ("bits", "costs", "states", "values")

    def __init__(self) -> None:
        self.costs: list[int] = []
        self.values: list[float] = []
        self.bits: list[int] = []
        self.states: list[Any] = []

    def __len__(self) -> int:
        return len(self.costs)

    def insert(self, cost: int, value: float, bits: int, state: Any) -> bool:
        """Take a set in unless a member is better in one objective and no worse in the other.

        A member that is equal in both gives way to the newer one, as do all that are weakly dominated.

        Parameters
        ----------
        cost : int
            Units.
        value : float
            Value of f.
        bits : int
            The set.
        state : object
            Its evaluator's state.

        Returns
        -------
        bool
            Whether it was taken.
        """
        costs, values = self.costs, self.values
        first = bisect.bisect_left(costs, cost)
        # All before are cheaper, the last of them is the best; a value as good at less cost dominates.
        if first and values[first - 1] >= value:
            return False
        last = first
        size = len(costs)
        if last < size and costs[last] == cost and values[last] > value:
            return False
        while last < size and values[last] <= value:
            last += 1
        costs[first:last] = [cost]
        values[first:last] = [value]
        self.bits[first:last] = [bits]
        self.states[first:last] = [state]
        return True

    def best(self, limit: int) -> tuple[int, float, int] | None:
        """Best member within a cost: (units, value, bits)."""
        last = bisect.bisect_right(self.costs, limit) - 1
        return None if last < 0 else (self.costs[last], self.values[last], self.bits[last])


def parse_evaluations(n_evals: int | str, n: int) -> int:
    """Number of evaluations: an integer, or such as "20n2" for 20 n^2."""
    if isinstance(n_evals, str):
        match = re.fullmatch(r"(\d*)\s*\*?\s*n(?:\^?([123]))?", n_evals)
        if not match:
            raise ValueError(f'n_evals must be an integer or such as "20n2", got {n_evals!r}')
        found: int = int(match[1] or 1) * n ** int(match[2] or 1)
        return max(found, 1)
    return check_integer("n_evals", n_evals, minimum=1)
