"""Greedy algorithms, the exact optimum of coverage, and an upper bound on any optimum."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, sparse

from theses.decision.pareto_subset_selection.functions import (
    MaxCoverage,
    SetFunction,
    build,
    check_function,
    check_mask,
)
from theses.decision.pareto_subset_selection.problem import Problem
from theses.decision.pareto_subset_selection.result import SelectionResult
from theses.problems.coverage import pack, unpack
from theses.validation import check_array, check_real

__all__ = [
    "exact_coverage",
    "generalized_greedy",
    "greedy_plus_max",
    "one_guess_greedy_plus",
    "optimum_bound",
]

_ONE_GUESS: Final = 0.6174
_GREEDY_MAX: Final = 0.5
_GREEDY: Final = 0.5 * (1 - 1 / math.e)

Member = tuple[int, float, int]


class _Gains:
    """Gains of single items to a growing set, largest first where only some change.

    Gains only shrink as the set grows, so an old gain is an upper bound; a heap asks again only for the item
    on top. For functions that are not submodular, ``lazy=False`` asks for all.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.lazy = bool(getattr(problem.f, "submodular", True))
        self.n_evals = 0
        self.alone: dict[int, float] = {}

    def __call__(self, state: Any, value: float, item: int) -> float:
        self.n_evals += 1
        evaluator = self.problem.evaluator
        found = float(evaluator.value(evaluator.add(state, item)))
        if not math.isfinite(found):
            raise ValueError(f"f must return finite values, got {found}")
        return found - value


def _chain(
    problem: Problem, gains: _Gains, first: int | None, *, augment: bool
) -> tuple[list[Member], list[Member]]:
    """Greedy chain by gain for cost from a first item.

    With ``augment`` each prefix is also tried with its best addition. Returns the prefixes, the
    empty one included, and the augmented prefixes.
    """
    costs, limit, evaluator = problem.costs, problem.limit, problem.evaluator
    state, value, bits, cost = problem.base, float(problem.base_value), problem.free, 0
    if first is not None:
        value += gains(state, value, first)
        state, bits, cost = evaluator.add(state, first), bits | (1 << first), costs[first]
    prefixes, augmented = [(cost, value, bits)], []
    candidates = [v for v in problem.affordable if v != first]
    # Gains as they were when last asked for.
    known = {v: gains(state, value, v) for v in candidates}
    if first is None:
        gains.alone = dict(known)
    heap = [(-known[v] / costs[v], v) for v in candidates] if gains.lazy else []
    heapq.heapify(heap)
    while candidates:
        if augment or not gains.lazy:
            candidates = [v for v in candidates if cost + costs[v] <= limit]
            if not candidates:
                break
            if gains.lazy:
                top = _best_gain(gains, state, value, candidates, known)
            else:
                if len(prefixes) > 1:
                    known.update({v: gains(state, value, v) for v in candidates})
                top = max(candidates, key=lambda v: (known[v], -v))
            if augment:
                augmented.append((cost + costs[top], value + known[top], bits | (1 << top)))
        if gains.lazy:
            picked = _best_ratio(gains, state, value, heap, known, costs, limit - cost)
        else:
            picked = max(candidates, key=lambda v: (known[v] / costs[v], -v))
        if picked is None or known[picked] <= 0:
            break
        value += known[picked]
        state, bits, cost = evaluator.add(state, picked), bits | (1 << picked), cost + costs[picked]
        if augment or not gains.lazy:
            candidates.remove(picked)
        prefixes.append((cost, value, bits))
    return prefixes, augmented


def _best_gain(
    gains: _Gains, state: Any, value: float, candidates: list[int], known: dict[int, float]
) -> int:
    """Item of the largest gain; only those are asked for whose old gain could still win."""
    best, best_gain = candidates[0], -math.inf
    for v in sorted(candidates, key=lambda v: -known[v]):
        if known[v] <= best_gain:
            break
        known[v] = gains(state, value, v)
        if known[v] > best_gain:
            best, best_gain = v, known[v]
    return best


def _best_ratio(
    gains: _Gains,
    state: Any,
    value: float,
    heap: list[tuple[float, int]],
    known: dict[int, float],
    costs: list[int],
    room: int,
) -> int | None:
    """Item of the largest gain for cost that fits, taken off the heap."""
    while heap:
        _, v = heapq.heappop(heap)
        if costs[v] > room:
            continue  # the room only shrinks
        known[v] = gains(state, value, v)
        ratio = known[v] / costs[v]
        if not heap or ratio >= -heap[0][0]:
            return v
        heapq.heappush(heap, (-ratio, v))
    return None


def _finish(
    problem: Problem, members: list[Member], gains: _Gains, algorithm: str, guarantee: float
) -> SelectionResult:
    front = problem.front(members)
    return SelectionResult(
        mask=front.masks[-1],
        value=float(front.values[-1]),
        cost=float(front.costs[-1]),
        front=front,
        n_evals=gains.n_evals,
        algorithm=algorithm,
        guarantee=problem.guarantee(guarantee),
        budget=problem.budget,
    )


def generalized_greedy(f: SetFunction, costs: ArrayLike, budget: float) -> SelectionResult:
    r"""Greedy by gain for cost, or the best single item, whichever is better.

    Adds :math:`\arg\max_v (f(X \cup v) - f(X)) / c_v` among the items that still fit until none does.

    Parameters
    ----------
    f : SetFunction
        Monotone submodular function with f(empty) = 0.
    costs : array-like, shape (n,)
        Prices of the items, at least 0; items that cost nothing belong to every set.
    budget : float
        Largest cost, above 0.

    Returns
    -------
    SelectionResult
        The set; its front is made of the prefixes.

    Raises
    ------
    TypeError
        If ``f`` is no set function.
    ValueError
        If costs are negative or not finite, the budget is not above 0, or f returns what is not finite.

    Notes
    -----
    Lazy: an item's gain is asked for again only when its last one is on top of the heap. O(n K) evaluations
    at worst for K chosen items, mostly some n.

    References
    ----------
    Zhang and Vorobeychik, Submodular Optimization with Routing Constraints, AAAI 2016, Algorithm 1; ratio
    (1/2)(1 - 1/e) of Krause and Guestrin, 2005.

    Examples
    --------
    >>> from theses.decision.pareto_subset_selection import MaxCoverage
    >>> f = MaxCoverage([[0], list(range(1, 10))])
    >>> generalized_greedy(f, [0.1, 1.0], budget=1.0).indices.tolist()
    [1]
    """
    problem = Problem(f, costs, budget)
    gains = _Gains(problem)
    prefixes, _ = _chain(problem, gains, None, augment=False)
    singles = []
    if problem.affordable:
        gains_alone, base = gains.alone, float(problem.base_value)
        best = max(problem.affordable, key=lambda v: gains_alone[v])
        singles = [(problem.costs[best], base + gains_alone[best], problem.free | (1 << best))]
    return _finish(problem, [*prefixes, *singles], gains, "generalized greedy", _GREEDY)


def greedy_plus_max(f: SetFunction, costs: ArrayLike, budget: float) -> SelectionResult:
    """Greedy by gain for cost, each prefix tried with the single item that adds most to it.

    Parameters
    ----------
    f : SetFunction
        Monotone submodular function with f(empty) = 0.
    costs : array-like, shape (n,)
        Prices of the items, at least 0; items that cost nothing belong to every set.
    budget : float
        Largest cost, above 0.

    Returns
    -------
    SelectionResult
        The best of all prefixes and augmented prefixes.

    Raises
    ------
    TypeError
        If ``f`` is no set function.
    ValueError
        If costs are negative or not finite, the budget is not above 0, or f returns what is not finite.

    Notes
    -----
    O(n K) evaluations for K chosen items.

    References
    ----------
    Yaroslavtsev, Zhou and Avdiukhin, "Bring Your Own Greedy"+Max, AISTATS 2020, Algorithm 1, ratio 1/2.

    Examples
    --------
    >>> from theses.decision.pareto_subset_selection import MaxCoverage
    >>> f = MaxCoverage([[0, 1], [2, 3, 4, 5, 6, 7], [8]])
    >>> greedy_plus_max(f, [1.0, 4.0, 0.6], budget=5.0).value
    8.0
    """
    problem = Problem(f, costs, budget)
    gains = _Gains(problem)
    prefixes, augmented = _chain(problem, gains, None, augment=True)
    return _finish(problem, [*prefixes, *augmented], gains, "Greedy+Max", _GREEDY_MAX)


def one_guess_greedy_plus(f: SetFunction, costs: ArrayLike, budget: float) -> SelectionResult:
    """Greedy+Max from every single item, the best of all.

    Parameters
    ----------
    f : SetFunction
        Monotone submodular function with f(empty) = 0.
    costs : array-like, shape (n,)
        Prices of the items, at least 0; items that cost nothing belong to every set.
    budget : float
        Largest cost, above 0.

    Returns
    -------
    SelectionResult
        The best set.

    Raises
    ------
    TypeError
        If ``f`` is no set function.
    ValueError
        If costs are negative or not finite, the budget is not above 0, or f returns what is not finite.

    Notes
    -----
    O(n^2 K) evaluations for K chosen items.

    References
    ----------
    Feldman, Nutov and Shoham, Practical Budgeted Submodular Maximization, Algorithmica 2023, ratio 0.6174.

    Examples
    --------
    >>> from theses.decision.pareto_subset_selection import MaxCoverage
    >>> f = MaxCoverage([[0, 1], [2, 3, 4, 5, 6, 7], [8]])
    >>> one_guess_greedy_plus(f, [1.0, 4.0, 0.6], budget=5.0).indices.tolist()
    [0, 1]
    """
    problem = Problem(f, costs, budget)
    gains = _Gains(problem)
    members: list[Member] = []
    for first in (None, *problem.affordable):
        prefixes, augmented = _chain(problem, gains, first, augment=True)
        members += [*prefixes, *augmented]
    return _finish(problem, members, gains, "one-guess Greedy+", _ONE_GUESS)


def exact_coverage(
    f: MaxCoverage, costs: ArrayLike, budget: float, *, time_limit: float = 60.0
) -> SelectionResult:
    r"""Optimum of weighted coverage by integer programming.

    Maximises :math:`\sum_e w_e y_e` over binary x and :math:`0 \le y \le 1` with
    :math:`y_e \le \sum_{v : e \in S_v} x_v` and :math:`\sum_v c_v x_v \le B`; elements that the same items
    cover are one.

    Parameters
    ----------
    f : MaxCoverage
        Coverage, or influence, which is coverage of samples.
    costs : array-like, shape (n,)
        Prices of the items, at least 0.
    budget : float
        Largest cost, above 0.
    time_limit : float, default=60
        Seconds after which HiGHS gives what it has.

    Returns
    -------
    SelectionResult
        The set; ``bound`` is the proven upper bound on the optimum, ``guarantee`` the value over it: 1 if the
        set is optimal.

    Raises
    ------
    TypeError
        If ``f`` is no coverage function.
    ValueError
        If costs are negative or not finite, or the budget is not above 0.
    RuntimeError
        If HiGHS finds nothing within the time.

    Notes
    -----
    Exponential in the worst case; seconds up to some 150 items.

    References
    ----------
    Church and ReVelle, The maximal covering location problem, 1974; solver HiGHS by way of SciPy.

    Examples
    --------
    >>> from theses.decision.pareto_subset_selection import MaxCoverage
    >>> best = exact_coverage(MaxCoverage([[0, 1, 2], [0, 3], [1, 4]]), [3.0, 2.0, 2.0], budget=4.0)
    >>> best.value, best.guarantee
    (4.0, 1.0)
    """
    if not isinstance(f, MaxCoverage):
        raise TypeError(f"f must be a MaxCoverage, got {type(f).__name__}")
    problem = Problem(f, costs, budget)
    time_limit = check_real("time_limit", time_limit, minimum=0, include=False)
    members = np.array([unpack(bits, f.n_elements) for bits in f.bitsets]).reshape(f.n, f.n_elements)
    groups, which = np.unique(members.T, axis=0, return_inverse=True)
    weights = np.bincount(which.ravel(), weights=f.element_weights, minlength=len(groups))
    keep = groups.any(axis=1) & (weights > 0)
    groups, weights = groups[keep], weights[keep]
    gains = _Gains(problem)
    if not len(weights):
        return _finish(problem, [(0, 0.0, problem.free)], gains, "exact", 1.0)
    m = len(weights)
    # Variables: x, then y.
    covers: Any = sparse.csr_array(
        sparse.hstack([-sparse.csr_array(groups.astype(float)), sparse.eye_array(m)])
    )
    price = sparse.csr_array(np.concatenate([problem.prices / problem.budget, np.zeros(m)])[None])
    solved = optimize.milp(
        np.concatenate([np.zeros(f.n), -weights]),
        constraints=[
            optimize.LinearConstraint(covers, -np.inf, 0),
            optimize.LinearConstraint(price, -np.inf, 1.0),
        ],
        integrality=np.concatenate([np.ones(f.n), np.zeros(m)]),
        bounds=optimize.Bounds(0, 1),
        options={"time_limit": time_limit, "mip_rel_gap": 1e-9},
    )
    if solved.x is None:
        raise RuntimeError(f"HiGHS found no set within {time_limit:g} s: {solved.message}")
    bits = problem.free
    units = 0
    # Its feasibility tolerance of 1e-6 is not ours: what does not fit exactly is left out, cheapest first.
    for v in sorted(np.flatnonzero(solved.x[: f.n] > 0.5).tolist(), key=lambda v: -problem.costs[v]):
        if units + problem.costs[v] <= problem.limit:
            bits |= 1 << v
            units += problem.costs[v]
    value = float(problem.evaluator.value(build(problem.evaluator, bits)))
    bound = max(-float(getattr(solved, "mip_dual_bound", None) or solved.fun), value)
    result = _finish(problem, [(units, value, bits)], gains, "exact", 1.0)
    proven = value / bound if bound > 0 else 1.0
    # What HiGHS calls optimal is so up to rounding.
    return replace(result, bound=bound, guarantee=1.0 if proven > 1 - 1e-6 else proven)


def optimum_bound(f: SetFunction, costs: ArrayLike, budget: float, masks: ArrayLike | None = None) -> float:
    r"""Upper bound on the optimum from a few sets: what these instances, not the worst ones, allow.

    For any set X, the optimum is at most :math:`f(X)` and the fractional knapsack of the gains at X:
    :math:`\max \{\sum_v f(v \mid X) y_v : \sum_v c_v y_v \le B, 0 \le y \le 1\}`. The least over the given
    sets, the empty one included, is returned.

    Parameters
    ----------
    f : SetFunction
        Monotone submodular function.
    costs : array-like, shape (n,)
        Prices of the items, at least 0.
    budget : float
        Largest cost, above 0.
    masks : array-like of bool, shape (k, n) or (n,), or None, default=None
        Sets, such as those of a front; they may cost what they want.

    Returns
    -------
    float
        The bound.

    Raises
    ------
    TypeError
        If ``f`` is no set function.
    ValueError
        If f says that it is not submodular, costs are negative or not finite, or the budget is not above 0.

    Notes
    -----
    O(n) evaluations a set.

    References
    ----------
    Nemhauser, Wolsey and Fisher, 1978, Proposition 2.1; Leskovec et al., KDD 2007, Section 3.2 (with costs).

    Examples
    --------
    >>> from theses.decision.pareto_subset_selection import MaxCoverage
    >>> f = MaxCoverage([[0, 1, 2], [0, 3], [1, 4]])
    >>> optimum_bound(f, [3.0, 2.0, 2.0], 4.0, [[False, True, True]])
    4.0
    """
    check_function(f)
    problem = Problem(f, costs, budget)
    if not getattr(f, "submodular", True):
        raise ValueError("f must be submodular, got one that says that it is not")
    rows = [np.zeros(problem.n, dtype=bool)]
    if masks is not None:
        given = check_array("masks", masks, ndim=(1, 2), dtype=None)
        rows += [check_mask("masks", row, problem.n) for row in (given[None] if given.ndim == 1 else given)]
    gains = _Gains(problem)
    bounds = []
    for row in rows:
        state = build(problem.evaluator, pack(row), problem.base)
        value = float(problem.evaluator.value(state))
        room, bound = problem.limit, value
        found = [(gains(state, value, v), problem.costs[v]) for v in problem.affordable]
        for gain, cost in sorted(found, key=lambda pair: -pair[0] / pair[1]):
            if gain <= 0 or room <= 0:
                break
            bound += gain * min(1.0, room / cost)
            room -= cost
        bounds.append(bound)
    return min(bounds)
