"""What a selection returns: the set, the whole front of values and costs, and how it was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from theses.validation import check_real

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

__all__ = ["Front", "SelectionResult", "Trace"]


class Front(NamedTuple):
    """Sets of which none is both cheaper and better than another, cheapest first.

    Parameters
    ----------
    masks : ndarray of bool, shape (n_sets, n)
        The sets.
    values, costs : ndarray, shape (n_sets,)
        Their values and costs, both rising.

    Examples
    --------
    >>> import numpy as np
    >>> len(Front(np.zeros((1, 3), dtype=bool), np.zeros(1), np.zeros(1)).values)
    1
    """

    masks: NDArray[np.bool_]
    values: NDArray[np.float64]
    costs: NDArray[np.float64]


class Trace(NamedTuple):
    """What was known in the course of a search.

    Parameters
    ----------
    n_evals : ndarray of int64, shape (n_records,)
        Evaluations so far.
    values : ndarray, shape (n_records,)
        Best feasible value.
    front_sizes : ndarray of int64, shape (n_records,)
        Number of kept sets, over all archives.
    seconds : ndarray, shape (n_records,)
        Wall time.

    Examples
    --------
    >>> import numpy as np
    >>> Trace(np.array([10]), np.array([2.0]), np.array([3]), np.array([0.1])).values.tolist()
    [2.0]
    """

    n_evals: NDArray[np.int64]
    values: NDArray[np.float64]
    front_sizes: NDArray[np.int64]
    seconds: NDArray[np.float64]


_NO_TRACE = Trace(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True)
class SelectionResult:
    """A set within the budget, and the front of cheaper ones.

    Parameters
    ----------
    mask : ndarray of bool, shape (n,)
        The set.
    value, cost : float
        Its value and its cost, which is within the budget.
    front : Front
        All sets found of which none is both cheaper and better than another, costs within the budget.
    trace : Trace
        Course of an evolutionary search; empty for the others.
    n_evals : int
        Evaluations of the set function.
    n_steps : int
        Steps of an evolutionary search, the ones that needed no evaluation too; 0 for the others.
    algorithm : str
        Which found it.
    guarantee : float
        Share of the optimum that the algorithm is proven to reach if f is monotone and submodular:
        evolutionary searches after enough evaluations in expectation, greedy ones always; 0 if f says that it
        is not submodular.
    budget : float
        The budget.
    bound : float
        Upper bound on the optimum where the algorithm knows one, else infinity.
    max_archive : int
        Largest number of sets in one archive during the search; 0 where there is none.

    Examples
    --------
    >>> from theses.decision.pareto_subset_selection import MaxCoverage, pomc
    >>> result = pomc(MaxCoverage([[0, 1], [1], [2]]), [2, 2, 1], budget=3, random_state=0)
    >>> result.value, result.cost, result.indices.tolist()
    (3.0, 3.0, [0, 2])
    """

    mask: NDArray[np.bool_]
    value: float
    cost: float
    front: Front
    trace: Trace = field(default=_NO_TRACE, repr=False)
    n_evals: int = 0
    n_steps: int = 0
    algorithm: str = ""
    guarantee: float = 0.0
    budget: float = float("inf")
    bound: float = float("inf")
    max_archive: int = 0

    @property
    def indices(self) -> NDArray[np.int64]:
        """Numbers of the chosen items, rising."""
        return np.flatnonzero(self.mask)

    def within(self, budget: float) -> tuple[NDArray[np.bool_], float, float]:
        """Best set of the front for a smaller budget.

        Parameters
        ----------
        budget : float
            Largest cost.

        Returns
        -------
        mask : ndarray of bool, shape (n,)
            The set.
        value, cost : float
            Its value and cost.

        Raises
        ------
        ValueError
            If the budget is below that of the cheapest set of the front, which is the empty one if the search
            began there.
        """
        budget = check_real("budget", budget, minimum=0)
        last = int(np.searchsorted(self.front.costs, budget * (1 + 1e-12), side="right")) - 1
        if last < 0:
            raise ValueError(f"budget must be at least {self.front.costs[0]:g}, got {budget:g}")
        return self.front.masks[last], float(self.front.values[last]), float(self.front.costs[last])

    def summary(self) -> str:
        """One line of text.

        Returns
        -------
        str
            Algorithm, value, cost, size, guarantee.
        """
        proven = f"proven to reach {self.guarantee:.4g} of the optimum" if self.guarantee else "no guarantee"
        return (
            f"{self.algorithm}: value {self.value:.6g} at cost {self.cost:.6g} of {self.budget:.6g}, "
            f"{int(self.mask.sum())} items, {len(self.front.values)} sets on the front, "
            f"{self.n_evals:,} evaluations; {proven}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain mapping, sets as lists of item numbers.

        Returns
        -------
        dict
            All but the trace.
        """
        return {
            "algorithm": self.algorithm,
            "items": self.indices.tolist(),
            "value": self.value,
            "cost": self.cost,
            "budget": self.budget,
            "guarantee": self.guarantee,
            "bound": self.bound,
            "n_evals": self.n_evals,
            "n_steps": self.n_steps,
            "max_archive": self.max_archive,
            "front": [
                {"cost": float(cost), "value": float(value), "items": np.flatnonzero(mask).tolist()}
                for mask, value, cost in zip(*self.front, strict=True)
            ],
        }

    def to_frame(self) -> pl.DataFrame:
        """The front as a table.

        Returns
        -------
        polars.DataFrame
            Columns ``cost``, ``value``, ``n_items``, ``items`` (numbers with blanks between them).
        """
        import polars as pl

        return pl.DataFrame(
            {
                "cost": self.front.costs,
                "value": self.front.values,
                "n_items": self.front.masks.sum(axis=1),
                "items": [" ".join(map(str, np.flatnonzero(mask))) for mask in self.front.masks],
            }
        )

    def plot(self) -> alt.Chart:
        """Front as a step curve: what each budget buys.

        Returns
        -------
        altair.Chart
            Value over cost.
        """
        import altair as alt

        chart: alt.Chart = (
            alt.Chart(self.to_frame())
            .mark_line(interpolate="step-after", point=True)
            .encode(x="cost:Q", y="value:Q", tooltip=["cost:Q", "value:Q", "items:N"])
        )
        return chart
