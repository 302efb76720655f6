"""Evolutionary searches: POMC, EPOL, EAMC.

All count alike: an offspring whose value is asked for is one evaluation, whether it was seen before or not;
an offspring that is empty, unchanged or too expensive is a step without an evaluation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from theses.decision.pareto_subset_selection.functions import SetFunction, check_mask
from theses.decision.pareto_subset_selection.problem import Archive, Problem, parse_evaluations
from theses.decision.pareto_subset_selection.result import SelectionResult
from theses.decision.pareto_subset_selection.steps import Callback, Evaluation, Mutations, Recorder
from theses.problems.coverage import pack
from theses.validation import as_generator, check_array, check_choice, check_integer, check_real

__all__ = ["EPOL_GUARANTEE", "eamc", "epol", "pomc"]

RandomState = int | np.random.Generator | np.random.RandomState | np.random.SeedSequence | None

#: Ratio of Greedy+Max with one guessed item.
EPOL_GUARANTEE: Final = 0.6174

_POMC_GUARANTEE: Final = 0.5
_EAMC_GUARANTEE: Final = 0.5 * (1 - 1 / math.e)
_STEPS: Final = 10  # most steps for each evaluation of the budget
_ROUNDS: Final = 6
_LEAST: Final = 3


def _pareto(
    problem: Problem,
    archive: Archive,
    mutations: Mutations,
    evaluate: Evaluation,
    recorder: Recorder,
    until: int,
    limit: int,
    fixed: int,
    max_steps: int,
) -> None:
    """Pareto search on one archive until a number of evaluations over all archives.

    ``limit`` is the largest cost that is kept, ``fixed`` the item that every set has to contain, or -1.
    """
    prices, free, feasible = problem.costs, problem.free, problem.limit
    member_costs, member_bits, member_states = archive.costs, archive.bits, archive.states
    steps_end = recorder.n_steps + max_steps
    if recorder.n_evals >= until:
        return
    for steps, flips, choice in mutations:
        recorder.n_steps += steps
        if recorder.n_steps > steps_end:
            recorder.n_steps = steps_end
            break
        # A parent uniformly from the archive; each bit flips with probability 1/n.
        parent = int(choice * len(member_costs))
        bits = before = member_bits[parent]
        cost = member_costs[parent]
        for item in flips:
            price = prices[item]
            if price == 0 or item == fixed:
                continue
            bit = 1 << item
            cost += -price if bits & bit else price
            bits ^= bit
        if cost > limit or bits in (before, free):
            continue
        state, value = evaluate(member_states[parent], before, bits)
        recorder.n_evals += 1
        if archive.insert(cost, value, bits, state):
            if len(member_costs) > recorder.max_archive:
                recorder.max_archive = len(member_costs)
            if value > recorder.best[0]:
                recorder.offer(archive.best(feasible))
        if recorder.n_evals >= recorder.next:
            recorder.offer(archive.best(feasible))
            recorder.note(len(member_costs), costs=member_costs, values=archive.values)
        if recorder.n_evals >= until or recorder.stopped:
            break
    recorder.offer(archive.best(feasible))


def _members(archive: Archive) -> list[tuple[int, float, int]]:
    return list(zip(archive.costs, archive.values, archive.bits, strict=True))


def _start(problem: Problem, evaluate: Evaluation, recorder: Recorder, init: Any, limit: int) -> Archive:
    archive = Archive()
    archive.insert(0, problem.base_value, problem.free, problem.base)
    if init is not None:
        rows = check_array("init", init, ndim=(1, 2), dtype=None)
        for row in rows[None] if rows.ndim == 1 else rows:
            mask = check_mask("init", row, problem.n)
            bits = problem.free | pack(mask)
            cost = sum(problem.costs[int(v)] for v in np.flatnonzero(mask))
            if cost <= limit and bits != problem.free:
                state, value = evaluate(problem.base, problem.free, bits)
                recorder.n_evals += 1
                archive.insert(cost, value, bits, state)
    recorder.max_archive = len(archive)
    recorder.offer(archive.best(problem.limit))
    return archive


def _slack_limit(problem: Problem, slack: float | str) -> int:
    if isinstance(slack, str):
        check_choice("slack", slack, ("B+1",))
        # The paper's objective is -inf from B + 1 on.
        return max(problem.units(problem.budget + 1) - 1, problem.limit)
    return problem.units(problem.budget + check_real("slack", slack, minimum=0))


def pomc(
    f: SetFunction,
    costs: ArrayLike,
    budget: float,
    n_evals: int | str = "20n2",
    *,
    slack: float | str = "B+1",
    init: ArrayLike | None = None,
    callback: Callback | None = None,
    random_state: RandomState = None,
) -> SelectionResult:
    r"""Pareto optimisation of value and cost, POMC.

    Maximises :math:`(f_1, f_2)` with :math:`f_2(X) = -c(X)` and :math:`f_1(X) = f(X)`, or
    :math:`-\infty` if :math:`c(X) \ge B + 1`. The archive begins with the empty set; each step flips every
    bit of a random member with probability 1/n and takes the offspring in unless a member dominates it.

    Parameters
    ----------
    f : SetFunction
        Monotone submodular function with f(empty) = 0.
    costs : array-like, shape (n,)
        Prices of the items, at least 0; items that cost nothing belong to every set.
    budget : float
        Largest cost B, above 0. Costs up to B (1 + 1e-12) count as within it.
    n_evals : int or str, default="20n2"
        Evaluations of f, also as a multiple of a power of n; at most ten times as many steps are made.
    slack : float or "B+1", default="B+1"
        How far above B a set may cost and still be kept as a parent: below B + 1, or up to B + slack. The
        answer never costs more than B.
    init : array-like of bool, shape (k, n) or (n,), or None, default=None
        Sets to begin with, beside the empty one; each costs an evaluation.
    callback : callable or None, default=None
        Called with a :class:`SearchState` every n evaluations; a true answer ends the search.
    random_state : int, Generator, RandomState, SeedSequence or None, default=None
        Source of randomness.

    Returns
    -------
    SelectionResult
        The best set within the budget; its front answers every smaller budget too.

    Raises
    ------
    TypeError
        If ``f`` is no set function.
    ValueError
        If costs are negative or not finite, the budget is not above 0, or f returns what is not finite.

    Warns
    -----
    UserWarning
        If no item that costs something is within the budget.

    Notes
    -----
    With an archive of P sets, a step costs O(1 + flips) to mutate, O(log P) to find its place in the archive,
    and one step of f's evaluator, as many as the set has items if one is taken out. Memory O(P n / 8) bytes
    and the evaluator's states.
    Guarantee 1/2 within 2 e n K_B P_max expected evaluations: the archive holds sets as good as all prefixes
    of the greedy algorithm by ratio, each of which meets its best single augmentation.

    References
    ----------
    Improved Theoretically-Grounded Evolutionary Algorithms for Subset Selection with a Linear Cost
    Constraint, ICML 2025, POMC and its theorem of the ratio 1/2; Qian, Shi, Yu and Tang, On Subset
    Selection with General Cost Constraints, IJCAI 2017, Algorithm 2.

    Examples
    --------
    >>> from theses.decision.pareto_subset_selection import MaxCoverage
    >>> f = MaxCoverage([[0, 1, 2], [2, 3], [4], [0, 4]])
    >>> result = pomc(f, [3.0, 1.5, 1.0, 1.2], budget=2.7, random_state=0)
    >>> result.value, result.indices.tolist(), result.guarantee
    (4.0, [1, 3], 0.5)
    >>> result.within(1.2)[0].tolist()
    [False, False, False, True]
    """
    problem = Problem(f, costs, budget)
    total = parse_evaluations(n_evals, problem.n)
    limit = _slack_limit(problem, slack)
    recorder = Recorder(problem, total, callback)
    evaluate = Evaluation(problem)
    archive = _start(problem, evaluate, recorder, init, limit)
    if problem.affordable:
        mutations = Mutations(problem.n, as_generator(random_state))
        _pareto(problem, archive, mutations, evaluate, recorder, total, limit, -1, _STEPS * total)
    recorder.note(len(archive), archive.costs, archive.values)
    return recorder.result(_members(archive), "POMC", _POMC_GUARANTEE)


@dataclass
class _Guess:
    """Search on the sets that contain one guessed item."""

    item: int
    archive: Archive
    mutations: Mutations
    best: tuple[int, float, int]


def epol(
    f: SetFunction,
    costs: ArrayLike,
    budget: float,
    n_evals: int | str = "20n2",
    *,
    guesses: int | str = "all",
    allocation: str = "successive_halving",
    callback: Callback | None = None,
    random_state: RandomState = None,
) -> SelectionResult:
    r"""Pareto optimisation with one guessed item, EPOL.

    For every item v with :math:`c_v \le B` a Pareto search runs on the sets that contain v: its archive
    begins with {v}, mutation never takes v out, and sets above B are discarded. One more search guesses
    nothing. The answer is the best over all of them. For the most valuable item of an optimal set the search
    finds the greedy chain from {v} and its best augmentation, which is where the ratio 0.6174 comes from.

    Parameters
    ----------
    f : SetFunction
        Monotone submodular function with f(empty) = 0.
    costs : array-like, shape (n,)
        Prices of the items, at least 0; items that cost nothing belong to every set.
    budget : float
        Largest cost B, above 0. Costs up to B (1 + 1e-12) count as within it.
    n_evals : int or str, default="20n2"
        Evaluations of f in all searches together; at most ten times as many steps are made.
    guesses : int or "all", default="all"
        Items that are guessed: all, or the k with the largest f({v}).
    allocation : {"successive_halving", "round_robin"}, default="successive_halving"
        How evaluations are shared out. Six rounds of a sixth each, split evenly over the guesses that are
        left; after a round successive halving keeps the third with the best values, at least three, ties by
        smaller cost, while round robin keeps all.
    callback : callable or None, default=None
        Called with a :class:`SearchState` every n evaluations; a true answer ends the search.
    random_state : int, Generator, RandomState, SeedSequence or None, default=None
        Source of randomness; each guess gets a stream of its own.

    Returns
    -------
    SelectionResult
        The best set within the budget; its front is that of all searches together.

    Raises
    ------
    TypeError
        If ``f`` is no set function.
    ValueError
        If costs are negative or not finite, the budget is not above 0, or f returns what is not finite.

    Warns
    -----
    UserWarning
        If no item that costs something is within the budget.

    Notes
    -----
    Steps cost what they cost in :func:`pomc`. With growing budget the first, uniform round alone gives every
    guess the polynomial number of evaluations that its guarantee needs.

    References
    ----------
    Improved Theoretically-Grounded Evolutionary Algorithms for Subset Selection with a Linear Cost
    Constraint, ICML 2025, EPOL and its theorem of the ratio 0.6174; Feldman, Nutov and Shoham, Practical
    Budgeted Submodular Maximization, Algorithmica 2023 (one guess with Greedy+).

    Examples
    --------
    >>> from theses.decision.pareto_subset_selection import MaxCoverage
    >>> f = MaxCoverage([[0, 1, 2], [2, 3], [4], [0, 4]])
    >>> result = epol(f, [3.0, 1.5, 1.0, 1.2], budget=2.7, random_state=0)
    >>> result.value, result.indices.tolist(), result.guarantee
    (4.0, [1, 3], 0.6174)
    """
    problem = Problem(f, costs, budget)
    total = parse_evaluations(n_evals, problem.n)
    check_choice("allocation", allocation, ("successive_halving", "round_robin"))
    if isinstance(guesses, str):
        check_choice("guesses", guesses, ("all",))
        n_guesses = len(problem.affordable)
    else:
        n_guesses = min(check_integer("guesses", guesses, minimum=1), len(problem.affordable))
    recorder = Recorder(problem, total, callback)
    evaluate = Evaluation(problem)
    living = _guesses(problem, evaluate, recorder, n_guesses, as_generator(random_state))
    everyone = list(living)
    recorder.other_size = len(living)
    if not problem.affordable:
        recorder.note(0, (), ())
        return recorder.result([], "EPOL", EPOL_GUARANTEE)
    for number in range(_ROUNDS):
        share = (total - recorder.n_evals) / (_ROUNDS - number)
        begin = recorder.n_evals
        for i, guess in enumerate(living):
            until = begin + round(share * (i + 1) / len(living))
            recorder.other_size -= len(guess.archive)
            allowed = _STEPS * max(until - recorder.n_evals, 0)
            _pareto(
                problem,
                guess.archive,
                guess.mutations,
                evaluate,
                recorder,
                until,
                problem.limit,
                guess.item,
                allowed,
            )
            recorder.other_size += len(guess.archive)
            guess.best = guess.archive.best(problem.limit) or guess.best
            if recorder.stopped:
                break
        if recorder.stopped:
            break
        if allocation == "successive_halving":
            living.sort(key=lambda guess: (-guess.best[1], guess.best[0]))
            del living[max(_LEAST, math.ceil(len(living) / 3)) :]
    recorder.note(0, (), ())
    members = [member for guess in everyone for member in _members(guess.archive)]
    return recorder.result(members, "EPOL", EPOL_GUARANTEE)


def _guesses(
    problem: Problem, evaluate: Evaluation, recorder: Recorder, n_guesses: int, rng: np.random.Generator
) -> list[_Guess]:
    """The searches before their first step: one for each guessed item, and one that guesses nothing."""
    singles = []
    for v in problem.affordable[: recorder.total]:
        bits = problem.free | (1 << v)
        state, value = evaluate(problem.base, problem.free, bits)
        recorder.n_evals += 1
        recorder.offer((problem.costs[v], value, bits))
        singles.append((value, v, bits, state))
    singles.sort(key=lambda single: (-single[0], single[1]))
    made = []
    for value, item, bits, state in [
        *singles[:n_guesses],
        (problem.base_value, -1, problem.free, problem.base),
    ]:
        archive = Archive()
        cost = problem.costs[item] if item >= 0 else 0
        archive.insert(cost, value, bits, state)
        stream = np.random.default_rng(rng.integers(2**63))
        made.append(_Guess(item, archive, Mutations(problem.n, stream), (cost, value, bits)))
    return made


def eamc(
    f: SetFunction,
    costs: ArrayLike,
    budget: float,
    n_evals: int | str = "20n2",
    *,
    callback: Callback | None = None,
    random_state: RandomState = None,
) -> SelectionResult:
    r"""Evolutionary algorithm with a surrogate objective, EAMC.

    The surrogate is :math:`g(X) = f(X) / (1 - e^{-c(X)/B})`, 0 on the empty set. Of each size it keeps two
    sets within the budget, the best by g and the best by f; parents are drawn uniformly from all that are
    kept.

    Parameters
    ----------
    f : SetFunction
        Monotone submodular function with f(empty) = 0.
    costs : array-like, shape (n,)
        Prices of the items, at least 0; items that cost nothing belong to every set.
    budget : float
        Largest cost B, above 0.
    n_evals : int or str, default="20n2"
        Evaluations of f; at most ten times as many steps are made.
    callback : callable or None, default=None
        Called with a :class:`SearchState` every n evaluations; a true answer ends the search.
    random_state : int, Generator, RandomState, SeedSequence or None, default=None
        Source of randomness.

    Returns
    -------
    SelectionResult
        The best set within the budget.

    Raises
    ------
    TypeError
        If ``f`` is no set function.
    ValueError
        If costs are negative or not finite, the budget is not above 0, or f returns what is not finite.

    Notes
    -----
    At most 2 n + 1 sets are kept. Steps cost what they cost in :func:`pomc`.

    References
    ----------
    Bian, Feng, Qian and Yu, An Efficient Evolutionary Algorithm for Subset Selection with General Cost
    Constraints, AAAI 2020, Algorithm 2.

    Examples
    --------
    >>> from theses.decision.pareto_subset_selection import MaxCoverage
    >>> f = MaxCoverage([[0, 1, 2], [2, 3], [4], [0, 4]])
    >>> eamc(f, [3.0, 1.5, 1.0, 1.2], budget=2.7, random_state=0).value
    4.0
    """
    problem = Problem(f, costs, budget)
    total = parse_evaluations(n_evals, problem.n)
    recorder = Recorder(problem, total, callback)
    evaluate = Evaluation(problem)
    prices, free, limit = problem.costs, problem.free, problem.limit
    # Of each size the best by g and the best by f: (score, cost, value, bits, state).
    Kept = tuple[float, int, float, int, Any]
    by_size: dict[int, list[Kept]] = {}
    empty: Kept = (problem.base_value, 0, problem.base_value, free, problem.base)
    kept: list[Kept] = [empty]
    mutations = Mutations(max(problem.n, 1), as_generator(random_state))
    for steps, flips, choice in mutations if problem.affordable else ():
        recorder.n_steps += steps
        if recorder.n_steps > _STEPS * total:
            recorder.n_steps = _STEPS * total
            break
        _, cost, _, before, parent_state = kept[int(choice * len(kept))]
        bits = before
        for item in flips:
            price = prices[item]
            if price:
                bit = 1 << item
                cost += -price if bits & bit else price
                bits ^= bit
        if cost > limit or bits in (before, free):
            continue
        state, value = evaluate(parent_state, before, bits)
        recorder.n_evals += 1
        surrogate = value / -math.expm1(-cost / limit)
        size = bits.bit_count()
        pair = by_size.get(size)
        if pair is None:
            by_size[size] = [(surrogate, cost, value, bits, state), (value, cost, value, bits, state)]
            changed = True
        else:
            changed = False
            for place, score in enumerate((surrogate, value)):
                if score >= pair[place][0]:
                    pair[place] = (score, cost, value, bits, state)
                    changed = True
        if changed:
            recorder.offer((cost, value, bits))
            kept = [empty]
            for first, second in by_size.values():
                kept.append(first)
                if first[3] != second[3]:
                    kept.append(second)
            recorder.max_archive = max(recorder.max_archive, len(kept))
        if recorder.n_evals >= recorder.next:
            recorder.note(len(kept), [entry[1] for entry in kept], [entry[2] for entry in kept])
        if recorder.n_evals >= total or recorder.stopped:
            break
    recorder.note(len(kept), [entry[1] for entry in kept], [entry[2] for entry in kept])
    members = [(cost, value, bits) for _, cost, value, bits, _ in kept]
    return recorder.result(members, "EAMC", _EAMC_GUARANTEE)
