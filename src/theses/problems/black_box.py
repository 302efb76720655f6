"""Black boxes that count their calls, and one small face for whatever optimises them.

An optimiser is asked for a point and told the value there, which it makes small:

- :class:`Optimizer` is that face, and :func:`run` drives it against an objective;
- :class:`CountedObjective` counts every call, whoever makes it, remembers points and values, and refuses to
  be called beyond its budget, so that methods compared on it have had the same number of true calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theses.validation import as_generator, check_array, check_choice, check_integer, check_real

__all__ = [
    "BudgetSpent",
    "CountedObjective",
    "Optimizer",
    "RandomSearch",
    "check_box",
    "run",
]

RandomState = int | np.random.Generator | np.random.RandomState | np.random.SeedSequence | None


class BudgetSpent(RuntimeError):  # noqa: N818 - no error: an optimiser that knows no budget is ended by it
    """An objective was called once more than its budget allows; the call was not made."""


def check_box(name: str, bounds: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper ends of a box.

    Parameters
    ----------
    name : str
        Parameter's name, for the error.
    bounds : array-like or scipy.optimize.Bounds
        One pair (lower, upper) an input, shape ``(d, 2)``; or SciPy's object with ``lb`` and ``ub``.

    Returns
    -------
    lower, upper : ndarray, shape (d,)
        The ends.

    Raises
    ------
    TypeError, ValueError
        If they are no such array of finite numbers, or a lower end is not below its upper one.

    Examples
    --------
    >>> check_box("bounds", [(-5, 5), (0, 1)])
    (array([-5.,  0.]), array([5., 1.]))
    """
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        bounds = np.column_stack([np.atleast_1d(bounds.lb), np.atleast_1d(bounds.ub)])
    array = check_array(name, bounds, ndim=2)
    if array.shape[1] != 2:
        raise ValueError(f"{name} must have one pair (lower, upper) an input, got shape {array.shape}")
    for i, (low, high) in enumerate(array):
        if not low < high:
            raise ValueError(f"{name}: lower must be below upper, got {low:g} and {high:g} for input {i}")
    return array[:, 0].copy(), array[:, 1].copy()


class CountedObjective:
    r"""Function on a box that counts its calls and keeps what it was asked and what it answered.

    Parameters
    ----------
    fun : callable
        Takes a point, shape ``(d,)``, to a number; with ``vectorized`` points ``(n, d)`` to ``(n,)``.
    bounds : array-like or scipy.optimize.Bounds
        The box, shape ``(d, 2)``.
    budget : int or None, default=None
        Most calls that are made; None for no limit.
    maximize : bool, default=False
        Whether large values are good.
    vectorized : bool, default=False
        Whether ``fun`` takes many points at once. Each point is a call all the same.

    Notes
    -----
    A call that gives NaN or infinity, and one that raises, is counted and marked in ``failed``; its value in
    the history is NaN or what came. An exception goes on to the caller, with the point added to its notes. A
    point outside of the box is asked as it is, and marked in ``outside``: nothing is clipped in silence.

    Examples
    --------
    >>> sphere = CountedObjective(lambda x: float(x @ x), [(-1, 1), (-1, 1)], budget=3)
    >>> sphere([0.5, 0.0]), sphere([0.0, 0.1])
    (0.25, 0.010000000000000002)
    >>> sphere.nfev, sphere.remaining
    (2, 1)
    >>> sphere.regret(0.0)
    array([0.25, 0.01])
    """

    def __init__(
        self,
        fun: Callable[[Any], Any],
        bounds: ArrayLike,
        budget: int | None = None,
        maximize: bool = False,
        *,
        vectorized: bool = False,
    ) -> None:
        if not callable(fun):
            raise TypeError(f"fun must be callable, got {type(fun).__name__}")
        self.fun = fun
        self.lower, self.upper = check_box("bounds", bounds)
        self.budget = None if budget is None else check_integer("budget", budget, minimum=1)
        self.maximize = bool(maximize)
        self.vectorized = bool(vectorized)
        self.reset()

    def reset(self) -> None:
        """Forget all calls."""
        self._xs: list[NDArray[np.float64]] = []
        self._fs: list[float] = []
        self._raised: list[bool] = []

    @property
    def bounds(self) -> NDArray[np.float64]:
        """The box, shape ``(d, 2)``."""
        return np.column_stack([self.lower, self.upper])

    @property
    def dim(self) -> int:
        """Number of inputs."""
        return len(self.lower)

    @property
    def nfev(self) -> int:
        """Calls made so far, whether they succeeded or not."""
        return len(self._fs)

    @property
    def remaining(self) -> float:
        """Calls left; infinity without a budget."""
        return float("inf") if self.budget is None else self.budget - self.nfev

    @property
    def xs(self) -> NDArray[np.float64]:
        """Points in the order of the calls, shape ``(nfev, d)``."""
        return np.array(self._xs).reshape(self.nfev, self.dim)

    @property
    def fs(self) -> NDArray[np.float64]:
        """Values in the order of the calls, as they came, shape ``(nfev,)``."""
        return np.array(self._fs, dtype=np.float64)

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Calls that raised or gave NaN or infinity, shape ``(nfev,)``."""
        return np.array(self._raised, dtype=bool) | ~np.isfinite(self.fs)

    @property
    def outside(self) -> NDArray[np.bool_]:
        """Calls at points outside of the box, shape ``(nfev,)``."""
        xs = self.xs
        return np.asarray(((xs < self.lower) | (xs > self.upper)).any(axis=1))

    def __call__(self, x: ArrayLike) -> Any:
        """Value at a point, or values at several, in the order given.

        Parameters
        ----------
        x : array-like
            Shape ``(d,)``, or ``(n, d)``.

        Returns
        -------
        float or ndarray
            The value, or shape ``(n,)``.

        Raises
        ------
        BudgetSpent
            If there are fewer calls left than points; of several points, those that the budget allows have
            been asked then.
        TypeError, ValueError
            If the points are not finite or of another shape, or ``fun`` gives anything but one real number
            a point.
        """
        points = check_array("x", x, ndim=(1, 2))
        if points.shape[-1] != self.dim:
            raise ValueError(f"x must have {self.dim} inputs, got shape {points.shape}")
        rows = np.atleast_2d(points)
        allowed = rows if self.budget is None else rows[: self.budget - self.nfev]
        values = self._many(allowed) if self.vectorized else [self._one(row) for row in allowed]
        if len(allowed) < len(rows):
            raise BudgetSpent(f"the budget of {self.budget} calls is spent")
        return float(values[0]) if points.ndim == 1 else np.array(values, dtype=np.float64)

    def _one(self, x: NDArray[np.float64]) -> float:
        with self._counting(x[None]):
            # A copy: a function that scales its input in place must not change the history.
            value = _real(self.fun(x.copy()))
            self._note(x[None], [value])
        return value

    def _many(self, X: NDArray[np.float64]) -> list[float]:
        if not len(X):
            return []
        with self._counting(X):
            answer = np.asarray(self.fun(X.copy()))
            if answer.shape != (len(X),):
                raise ValueError(f"fun must return {len(X)} values, got shape {answer.shape}")
            values = [_real(value) for value in answer]
            self._note(X, values)
        return values

    @contextmanager
    def _counting(self, X: NDArray[np.float64]) -> Iterator[None]:
        before = self.nfev
        try:
            yield
        except Exception as error:
            if self.nfev == before:
                self._note(X, [float("nan")] * len(X), raised=True)
            error.add_note(f"raised by the objective at x = {X[0].tolist() if len(X) == 1 else X.tolist()}")
            raise

    def _note(self, X: NDArray[np.float64], values: list[float], raised: bool = False) -> None:
        self._xs.extend(X.copy())
        self._fs.extend(values)
        self._raised.extend([raised] * len(values))

    @property
    def best(self) -> tuple[NDArray[np.float64], float]:
        """Best point and its value; of equal ones the first.

        Raises
        ------
        ValueError
            If no call has succeeded.
        """
        usable = np.flatnonzero(~self.failed)
        if not len(usable):
            raise ValueError("no call of the objective has succeeded yet")
        fs = self.fs[usable]
        place = int(usable[fs.argmax() if self.maximize else fs.argmin()])
        return self._xs[place].copy(), self._fs[place]

    def best_so_far(self) -> NDArray[np.float64]:
        """Best value after each call, shape ``(nfev,)``; the worst infinity until a call has succeeded."""
        worst = -np.inf if self.maximize else np.inf
        usable = np.where(self.failed, worst, self.fs)
        accumulate = np.maximum.accumulate if self.maximize else np.minimum.accumulate
        result: NDArray[np.float64] = accumulate(usable) if len(usable) else usable
        return result

    def regret(self, optimum: float, floor: float = 0.0) -> NDArray[np.float64]:
        """Distance of the best value so far to the optimum, after each call.

        Parameters
        ----------
        optimum : float
            The best value that there is.
        floor : float, default=0.0
            Smaller regrets are lifted to it.

        Returns
        -------
        ndarray
            Shape ``(nfev,)``.

        Raises
        ------
        ValueError
            If ``optimum`` is not finite or ``floor`` is negative.
        """
        optimum = check_real("optimum", optimum)
        floor = check_real("floor", floor, minimum=0)
        gap = self.best_so_far() - optimum
        return np.maximum(-gap if self.maximize else gap, floor)

    def calls_to(self, regret: float, optimum: float) -> int | None:
        """Number of calls after which a regret is reached.

        Parameters
        ----------
        regret : float
            The regret wanted.
        optimum : float
            The best value that there is.

        Returns
        -------
        int or None
            Calls, the one that reaches it included; None if it was not reached.

        Raises
        ------
        ValueError
            If a number is not finite or ``regret`` is negative.
        """
        reached = self.regret(optimum) <= check_real("regret", regret, minimum=0)
        return int(reached.argmax()) + 1 if reached.any() else None


def _real(value: Any) -> float:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "fiub":
        raise TypeError(f"fun must return one real number a point, got {type(value).__name__} {value!r:.60}")
    return float(array.reshape(()))


@runtime_checkable
class Optimizer(Protocol):
    """What can be asked for points and told their values, which it makes small."""

    def ask(self) -> NDArray[np.float64] | None:
        """Next point to evaluate, shape ``(d,)``; None when the optimiser has come to its end."""
        ...

    def tell(self, x: NDArray[np.float64], y: float) -> None:
        """Value at a point that was asked for; NaN where there is none."""
        ...


def run(
    optimizer: Optimizer,
    objective: CountedObjective,
    max_calls: int | None = None,
    *,
    on_error: Literal["raise", "mark"] = "raise",
) -> CountedObjective:
    """Drive an optimiser against an objective until either has come to its end.

    Parameters
    ----------
    optimizer : Optimizer
        Has ``ask()`` and ``tell(x, y)``; it is told negated values if the objective is to be maximised.
    objective : CountedObjective
        Counts, and keeps the history.
    max_calls : int or None, default=None
        Most calls of this run; None leaves it to the budget and the optimiser.
    on_error : {"raise", "mark"}, default="raise"
        Whether an exception of the objective ends the run, or the optimiser is told NaN.

    Returns
    -------
    CountedObjective
        The objective, with the calls of this run in its history.

    Raises
    ------
    TypeError
        If ``optimizer`` cannot be asked and told, or ``objective`` does not count.
    ValueError
        If a parameter is none of its values.

    Examples
    --------
    >>> sphere = CountedObjective(lambda x: float(x @ x), [(-1, 1), (-1, 1)], budget=50)
    >>> run(RandomSearch(sphere.bounds, random_state=0), sphere).nfev
    50
    """
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must have ask and tell, got {type(optimizer).__name__}")
    if not isinstance(objective, CountedObjective):
        raise TypeError(f"objective must be a CountedObjective, got {type(objective).__name__}")
    check_choice("on_error", on_error, ("raise", "mark"))
    limit = float("inf") if max_calls is None else check_integer("max_calls", max_calls, minimum=0)
    sign = -1.0 if objective.maximize else 1.0
    first = objective.nfev
    while objective.nfev - first < limit and objective.remaining >= 1:
        x = optimizer.ask()
        if x is None:
            break
        try:
            value = objective(x)
        except BudgetSpent:
            raise
        except Exception:
            if on_error == "raise":
                raise
            value = float("nan")
        optimizer.tell(x, sign * value)
    return objective


class RandomSearch:
    """Uniform points in a box: the baseline that every optimiser has to beat.

    Parameters
    ----------
    bounds : array-like or scipy.optimize.Bounds
        The box, shape ``(d, 2)``.
    random_state : int, Generator, RandomState, SeedSequence or None, default=None
        Source of randomness.

    Examples
    --------
    >>> search = RandomSearch([(0, 1)], random_state=0)
    >>> search.tell(search.ask(), 1.0)
    """

    def __init__(self, bounds: ArrayLike, *, random_state: RandomState = None) -> None:
        self._lower, self._upper = check_box("bounds", bounds)
        self._rng = as_generator(random_state)

    def ask(self) -> NDArray[np.float64]:
        """Next point.

        Returns
        -------
        ndarray
            Shape ``(d,)``.
        """
        return self._rng.uniform(self._lower, self._upper)

    def tell(self, x: ArrayLike, y: float) -> None:
        """Take note of nothing: random search does not learn.

        Parameters
        ----------
        x : array-like
            The point, shape ``(d,)``.
        y : float
            Its value.

        Raises
        ------
        ValueError
            If the point is not finite or of another shape.
        """
        if check_array("x", x, ndim=1).shape != self._lower.shape:
            raise ValueError(f"x must have {len(self._lower)} inputs, got {len(np.asarray(x))}")
