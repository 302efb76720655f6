from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, direct, dual_annealing

from theses.problems.black_box import BudgetSpent, CountedObjective, RandomSearch, check_box, run

BOX = [(-1.0, 2.0), (0.0, 1.0)]


def sphere(x):
    return float(x @ x)


def test_calls_of_others_are_counted():
    objective = CountedObjective(sphere, BOX)
    result = direct(objective, Bounds([-1.0, 0.0], [2.0, 1.0]), maxfun=60)
    assert objective.nfev == result.nfev
    assert objective.best[1] == result.fun
    before = objective.nfev
    found = dual_annealing(objective, Bounds([-1.0, 0.0], [2.0, 1.0]), maxfun=50, rng=0)
    assert objective.nfev - before == found.nfev
    assert objective.remaining == math.inf


def test_the_budget_is_never_exceeded():
    calls = []

    def counted(x):
        calls.append(1)
        return sphere(x)

    objective = CountedObjective(counted, BOX, budget=7)
    with pytest.raises(BudgetSpent, match="budget of 7"):
        direct(objective, Bounds([-1.0, 0.0], [2.0, 1.0]), maxfun=1_000)
    assert len(calls) == objective.nfev == 7 and objective.remaining == 0
    # Of several points those are asked that the budget allows.
    half = CountedObjective(sphere, BOX, budget=2)
    with pytest.raises(BudgetSpent):
        half(np.zeros((3, 2)))
    assert half.nfev == 2
    half.reset()
    assert half.nfev == 0 and half([0.0, 0.0]) == 0.0


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20), st.booleans())
def test_regret_is_the_running_best(values, maximize):
    answers = iter(values)
    objective = CountedObjective(lambda x: next(answers), BOX, maximize=maximize)
    for _ in values:
        objective([0.0, 0.0])
    optimum = 6.0 if maximize else -6.0
    expected = [min(abs(v - optimum) for v in values[: i + 1]) for i in range(len(values))]
    np.testing.assert_allclose(objective.regret(optimum), expected)
    last = objective.regret(optimum)[-1]
    assert objective.calls_to(last, optimum) == expected.index(min(expected)) + 1
    assert objective.calls_to(max(last - 1e-3, 0.0), optimum) is None
    assert objective.best[1] == (max(values) if maximize else min(values))
    assert (objective.regret(optimum, floor=20.0) == 20.0).all()


def test_failures_are_counted_marked_and_survived():
    def moody(x):
        if x[0] > 1:
            raise ArithmeticError("no licence")
        return math.nan if x[0] < 0 else sphere(x)

    objective = CountedObjective(moody, BOX, budget=200)
    with pytest.raises(ArithmeticError, match="no licence") as raised:
        objective([1.5, 0.0])
    assert any("x = [1.5, 0.0]" in note for note in raised.value.__notes__)
    assert math.isnan(objective([-0.5, 0.0])) and objective([0.5, 0.0]) == 0.25
    assert objective.failed.tolist() == [True, True, False] and objective.nfev == 3
    assert objective.best_so_far().tolist() == [math.inf, math.inf, 0.25]
    with pytest.raises(ArithmeticError):
        run(RandomSearch(BOX, random_state=0), objective)
    run(RandomSearch(BOX, random_state=0), objective, on_error="mark")
    assert objective.nfev == 200 and 0 < objective.failed.sum() < 200
    only_bad = CountedObjective(lambda x: math.inf, BOX)
    only_bad([0.0, 0.0])
    with pytest.raises(ValueError, match="no call of the objective has succeeded"):
        _ = only_bad.best


def test_history_is_what_was_asked():
    def careless(x):
        x *= 100
        return 1.0

    objective = CountedObjective(careless, BOX)
    objective([5.0, 0.5])
    objective([0.5, 0.5])
    assert objective.xs.tolist() == [[5.0, 0.5], [0.5, 0.5]]
    assert objective.outside.tolist() == [True, False]
    assert objective.bounds.tolist() == [list(pair) for pair in BOX] and objective.dim == 2


def test_many_points_at_once_are_as_many_calls():
    objective = CountedObjective(lambda X: (X**2).sum(axis=1), BOX, budget=5, vectorized=True)
    assert objective([[1.0, 0.0], [0.0, 0.5]]).tolist() == [1.0, 0.25]
    assert objective([0.5, 0.0]) == 0.25 and objective.nfev == 3
    with pytest.raises(BudgetSpent):
        objective(np.zeros((4, 2)))
    assert objective.nfev == 5
    wrong = CountedObjective(lambda X: X, BOX, vectorized=True)
    with pytest.raises(ValueError, match="fun must return 3 values"):
        wrong(np.zeros((3, 2)))
    assert wrong.nfev == 3 and wrong.failed.all()


def test_an_optimiser_is_told_what_it_makes_small():
    class Halving:
        def __init__(self):
            self.points, self.told = iter(np.linspace(0, 1, 5)), []

        def ask(self):
            x = next(self.points, None)
            return None if x is None else np.array([x, 0.0])

        def tell(self, x, y):
            self.told.append(y)

    optimizer = Halving()
    objective = run(optimizer, CountedObjective(sphere, BOX, maximize=True))
    assert objective.nfev == 5 and optimizer.told == [-(x**2) for x in np.linspace(0, 1, 5)]
    assert run(Halving(), CountedObjective(sphere, BOX), 3).nfev == 3
    assert run(Halving(), CountedObjective(sphere, BOX, budget=2)).nfev == 2


def test_random_search_fills_the_box_and_repeats():
    a, b = (
        run(RandomSearch(BOX, random_state=1), CountedObjective(sphere, BOX, budget=500)) for _ in range(2)
    )
    np.testing.assert_array_equal(a.xs, b.xs)
    assert not a.outside.any()
    np.testing.assert_allclose(a.xs.mean(axis=0), [0.5, 0.5], atol=0.15)
    assert a.regret(0.0)[-1] < 0.05


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([(1.0, 1.0)], "lower must be below upper"),
        ([(0.0, math.inf)], "bounds must be finite"),
        ([0.0, 1.0], "bounds must have 2 dimensions"),
        ([(0.0, 1.0, 2.0)], "one pair"),
    ],
)
def test_boxes_are_checked(bounds, message):
    with pytest.raises(ValueError, match=message):
        CountedObjective(sphere, bounds)
    with pytest.raises(ValueError, match=message):
        RandomSearch(bounds)


def test_bad_input_is_refused():
    lower, upper = check_box("bounds", Bounds([0, 1], [2, 3]))
    assert lower.tolist() == [0, 1] and upper.tolist() == [2, 3]
    objective = CountedObjective(sphere, BOX)
    for x in ([0.0], [[0.0]], [math.nan, 0.0]):
        with pytest.raises(ValueError, match="x must"):
            objective(x)
    assert objective.nfev == 0
    with pytest.raises(TypeError, match="fun must be callable"):
        CountedObjective(3.0, BOX)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="fun must return one real number"):
        CountedObjective(lambda x: "a", BOX)([0.0, 0.0])
    with pytest.raises(ValueError, match="budget"):
        CountedObjective(sphere, BOX, budget=0)
    with pytest.raises(TypeError, match="optimizer must have ask and tell"):
        run(object(), objective)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="objective must be a CountedObjective"):
        run(RandomSearch(BOX), sphere)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="x must have 2 inputs"):
        RandomSearch(BOX).tell([0.0], 1.0)
    with pytest.raises(ValueError, match="optimum must be finite"):
        objective.regret(math.nan)
