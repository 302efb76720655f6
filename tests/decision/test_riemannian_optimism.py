from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from tests.conformance.contract import Call
from theses.catalogue import lookup
from theses.catalogue.card import Bound
from theses.decision.riemannian_optimism import (
    RIOD,
    InnerSolution,
    InnerSolver,
    RobustKarcherMean,
    duality_gap,
    estimate_smoothness,
    online_frechet_mean,
    r_ogd,
    r_ogda,
    rceg,
    rgda,
    solve_minmax,
)
from theses.evidence import Context
from theses.numerics.manifolds import SPD, Euclidean, GeodesicBall, Hyperbolic, WholeManifold, frechet_mean
from theses.problems.geodesic import Distance, LogDetGame, RobustKarcherGame, SquaredDistance
from theses.studies.decision import riemannian_optimism as study

SLUG = "riemannian-optimism"
SPACES = [Euclidean(2), Hyperbolic(2), Hyperbolic(3, -4.0), SPD(2)]


def drawn(space, seed, n=3, scale=0.4):
    rng = np.random.default_rng(seed)
    return [space.random(rng, scale) for _ in range(n)]


def calls() -> list[Call]:
    space = SPD(2)
    points = np.stack(drawn(space, 0))

    def play():
        return RIOD(space, 0.5, start=points[0], keep_history=True)

    def started():
        learner = play()
        learner.play()
        learner.update(SquaredDistance(space, points[1]))
        return learner

    game = LogDetGame(2)
    ball = GeodesicBall(space, np.eye(2), 3.0)

    def solver(method, third):
        def make():
            return method, {
                "f": game,
                "Mx": space,
                "My": space,
                "x0": points[0],
                "y0": points[1],
                third: 0.1 if third == "step" else 5.0,
                "constraint_x": ball,
                "constraint_y": ball,
                "max_outer": 2,
            }

        return make

    def inner():
        arguments = {"loss": SquaredDistance(space, points[0]), "constraint": WholeManifold(space)}
        return InnerSolver("prgd").solve, {
            **arguments,
            "z": points[1],
            "eta": 0.5,
            "delta": 1e-6,
            "start": points[2],
        }

    return [
        Call("InnerSolver.solve", inner, ("z", "start")),
        Call(
            "duality_gap",
            lambda: (
                duality_gap,
                {"f": game, "constraint_x": ball, "constraint_y": ball, "x": points[0], "y": points[1]},
            ),
            ("x", "y"),
        ),
        Call(
            "estimate_smoothness",
            lambda: (
                estimate_smoothness,
                {
                    "f": game,
                    "constraint_x": ball,
                    "constraint_y": ball,
                    "x0": points[0],
                    "y0": points[1],
                    "n_pairs": 2,
                },
            ),
            ("x0", "y0"),
        ),
        Call("RIOD", lambda: (RIOD, {"manifold": space, "eta": 0.5, "start": points[0]}), ("start",)),
        Call("RIOD.regret", lambda: (started().regret, {"u": points[2]}), ("u",)),
        Call("RIOD.regret_bound", lambda: (started().regret_bound, {"u": points[2]}), ("u",)),
        Call(
            "RobustKarcherMean.fit",
            lambda: (RobustKarcherMean(6.0, max_outer=2).fit, {"manifold": space, "points": points}),
            ("points",),
        ),
        Call(
            "online_frechet_mean",
            lambda: (online_frechet_mean, {"stream": points, "manifold": space, "eta": 0.5}),
            ("stream",),
        ),
        Call("solve_minmax", solver(solve_minmax, "L"), ("x0", "y0")),
        *(Call(m.__name__, solver(m, "step"), ("x0", "y0")) for m in (rgda, rceg, r_ogda)),
        Call(
            "r_ogd",
            lambda: (
                r_ogd,
                {
                    "manifold": space,
                    "losses": [Distance(space, p) for p in points],
                    "x0": points[0],
                    "step": 0.1,
                },
            ),
            ("x0",),
        ),
    ]


# Losses and proximal problems ----------------------------------------------------------------------------


@pytest.mark.parametrize("space", SPACES, ids=repr)
@pytest.mark.parametrize("kind", [SquaredDistance, Distance])
def test_prox_is_the_minimiser(space, kind):
    a, z, _ = drawn(space, 1)
    loss = kind(space, a, 1.5)
    x = loss.prox(z, 0.3)

    def value(p):
        return loss.value(p) + float(space.dist(p, z)) ** 2 / 0.6

    rng = np.random.default_rng(0)
    for _ in range(30):
        v = space.random_tangent(x, rng)
        assert value(space.exp(x, 1e-3 * v)) >= value(x)
    slope = loss.grad(x) - space.log(x, z) / 0.3
    assert float(space.norm(x, slope)) < 1e-8
    # A long step ends at the target of a distance.
    if kind is Distance:
        np.testing.assert_allclose(loss.prox(z, 1e3), a, atol=1e-9)


@pytest.mark.parametrize("space", SPACES, ids=repr)
@pytest.mark.parametrize("kind", ["prgd", "crgd"])
def test_solvers_find_the_prox(space, kind):
    a, z, _ = drawn(space, 2)
    loss = SquaredDistance(space, a)
    solved = InnerSolver(kind).solve(loss, WholeManifold(space), z, 0.7, 1e-14)
    assert solved.converged and solved.residual < 1e-6
    np.testing.assert_allclose(solved.x, loss.prox(z, 0.7), atol=1e-6)
    told = InnerSolver(kind, smoothness=4.0).solve(loss, WholeManifold(space), z, 0.7, 1e-14)
    np.testing.assert_allclose(told.x, solved.x, atol=1e-6)


@pytest.mark.parametrize("kind", ["exact", "prgd", "crgd"])
def test_constrained_minimiser_is_not_the_projection_of_the_free_one(kind):
    space = Hyperbolic(2)
    center = space.origin()
    ball = GeodesicBall(space, center, 0.8)
    z = space.exp(center, np.array([0.0, 0.7, 0.0]))
    a = space.exp(center, np.array([0.0, 0.5, 2.0]))
    loss = SquaredDistance(space, a)
    solved = InnerSolver(kind).solve(loss, ball, z, 2.0, 1e-14)
    assert ball.contains(solved.x) and solved.converged

    def value(p):
        return loss.value(p) + float(space.dist(p, z)) ** 2 / 4

    # Against the boundary, walked all around.
    angles = np.linspace(0, 2 * np.pi, 20_000)
    v = 0.8 * np.stack([0 * angles, np.cos(angles), np.sin(angles)], axis=1)
    walked = min(value(p) for p in space.exp(center, v)[::10])
    assert value(solved.x) <= walked + 1e-9
    projected = ball.project(loss.prox(z, 2.0))
    assert value(projected) > value(solved.x) + 1e-4


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_certificate_of_an_inexact_solution_holds_everywhere(space):
    a, z, center = drawn(space, 4)
    ball = GeodesicBall(space, center, 1.0)
    z = ball.project(z)
    loss = SquaredDistance(space, a, 3.0)
    eta = 0.5
    rough = InnerSolver("prgd", max_iter=3).solve(loss, ball, z, eta, 1e-15)
    rng = np.random.default_rng(1)

    def value(p):
        return loss.value(p) + float(space.dist(p, z)) ** 2 / (2 * eta)

    for _ in range(50):
        y = ball.project(space.exp(center, space.random_tangent(center, rng)))
        d = float(space.dist(rough.x, y))
        assert value(y) >= value(rough.x) - rough.residual * d + d**2 / (2 * eta) - 1e-9


# Online --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hint", ["last", "none"])
@pytest.mark.parametrize("space", SPACES, ids=repr)
@pytest.mark.parametrize(
    "inner", [None, InnerSolver("prgd"), InnerSolver("crgd")], ids=["exact", "prgd", "crgd"]
)
def test_the_certificate_bounds_the_regret(space, hint, inner):
    rng = np.random.default_rng(5)
    ball = GeodesicBall(space, space.origin(), 0.6)
    learner = RIOD(space, 0.4, ball, hint, inner, keep_history=True)
    targets = [space.random(rng, 0.5) for _ in range(12)]
    for target in targets:
        x = learner.play()
        assert learner.play() is x and ball.contains(x)
        learner.update(SquaredDistance(space, target))
    worst = max(learner.regret(ball.project(space.random(rng, 0.5))) for _ in range(20))
    best = ball.project(frechet_mean(space, np.stack(targets)))
    assert learner.regret(best) <= learner.regret_bound(best) + 1e-9
    assert worst <= learner.regret_bound() + 1e-9


def test_flat_space_gives_the_closed_form():
    # Squared distances in flat space: every proximal point is a weighted mean.
    line = Euclidean(1)
    eta, targets = 0.5, [1.0, -2.0, 4.0]
    learner = RIOD(line, eta, start=[0.0], keep_history=True)
    z, last, played = 0.0, None, []
    for target in targets:
        played.append(z if last is None else (z + eta * last) / (1 + eta))
        assert learner.play().tolist() == pytest.approx([played[-1]])
        learner.update(SquaredDistance(line, [target]))
        z, last = (z + eta * target) / (1 + eta), target
    assert learner.z.tolist() == pytest.approx([z])
    met = sum((p - t) ** 2 / 2 for p, t in zip(played, targets, strict=True))
    assert learner.total_loss == pytest.approx(met)
    assert learner.regret([1.0]) == pytest.approx(met - sum((1 - t) ** 2 / 2 for t in targets))


def test_step_size_is_found_where_none_is_given():
    space = Hyperbolic(2)
    ball = GeodesicBall(space, space.origin(), 0.5)
    rng = np.random.default_rng(2)
    learner = RIOD(space, None, ball, "none", keep_history=True)
    targets = np.stack([ball.project(space.random(rng, 1.0)) for _ in range(300)])
    for target in targets:
        learner.play()
        learner.update(Distance(space, target))
    best = study._median(space, ball, targets)
    assert learner.regret(best) <= learner.regret_bound(best)
    assert learner.regret_bound(best) <= 3 * math.sqrt(300)
    with pytest.raises(ValueError, match="eta must be given"):
        RIOD(space, None)


def test_a_hint_that_is_right_costs_nothing():
    space = Hyperbolic(2)
    targets = drawn(space, 6, n=20)
    losses = [SquaredDistance(space, target) for target in targets]
    learner = RIOD(space, 5.0, hint=lambda t: losses[t - 1], keep_history=True)
    for loss in losses:
        learner.play()
        learner.update(loss)
    u = frechet_mean(space, np.stack(targets))
    # Nothing but the way from the start is left of the bound.
    assert learner.regret(u) <= float(space.dist(space.origin(), u)) ** 2 / 10 + 1e-9


def test_an_inner_solver_that_stops_short_says_so():
    space = SPD(2)
    a, z, _ = drawn(space, 8)
    learner = RIOD(
        space, 50.0, hint="none", inner=InnerSolver("prgd", max_iter=1), start=z, keep_history=True
    )
    learner.play()
    with pytest.warns(ConvergenceWarning, match="the regret bound grows"):
        learner.update(SquaredDistance(space, a))
    assert learner.n_unconverged == 1
    assert learner.regret(a) <= learner.regret_bound(a) + 1e-9


def test_memory_does_not_grow_without_history():
    learner = RIOD(Euclidean(1), 1.0)
    for _ in range(3):
        learner.play()
        learner.update(SquaredDistance(learner.manifold, [1.0]))
    assert learner.history == [] and learner.t == 3
    with pytest.raises(ValueError, match="keep_history"):
        learner.regret([0.0])


def test_online_mean_comes_close_to_the_mean():
    space = SPD(2)
    rng = np.random.default_rng(0)
    points = np.stack([space.random(rng, 0.3) for _ in range(200)])
    course = online_frechet_mean(points, space, 1 / math.sqrt(200))
    assert float(space.dist(course.mean, frechet_mean(space, points))) < 0.2
    assert course.regret <= course.bound
    assert "200 points" in course.summary() and course.to_frame().height == 200
    assert course.to_dict()["regret"] == course.regret
    with pytest.raises(ValueError, match="stream must not be empty"):
        online_frechet_mean([], space, 1.0)


# Games ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", [LogDetGame(2, 0.5, 2.0), RobustKarcherGame(SPD(2), drawn(SPD(2), 1), 3.0)])
def test_gradients_of_games(game):
    rng = np.random.default_rng(3)
    x, y = game.x_manifold.random(rng, 0.4), game.y_manifold.random(rng, 0.4)
    u, w = game.x_manifold.random_tangent(x, rng), game.y_manifold.random_tangent(y, rng)
    h = 1e-5
    slopes = [
        (game.value(game.x_manifold.exp(x, h * u), y) - game.value(game.x_manifold.exp(x, -h * u), y))
        / (2 * h),
        (game.value(x, game.y_manifold.exp(y, h * w)) - game.value(x, game.y_manifold.exp(y, -h * w)))
        / (2 * h),
    ]
    assert float(game.x_manifold.inner(x, game.grad_x(x, y), u)) == pytest.approx(
        slopes[0], rel=1e-5, abs=1e-7
    )
    assert float(game.y_manifold.inner(y, game.grad_y(x, y), w)) == pytest.approx(
        slopes[1], rel=1e-5, abs=1e-7
    )


@pytest.mark.parametrize("space", [Euclidean(2), Hyperbolic(2), SPD(2)], ids=repr)
def test_robust_mean_without_constraints_is_the_mean(space):
    points = np.stack(drawn(space, 9, n=4))
    robust = RobustKarcherMean(5.0, eps=1e-7).fit(space, points)
    assert robust.result_.status == "converged"
    center = frechet_mean(space, points)
    assert float(space.dist(robust.center_, center)) < 1e-3
    game = RobustKarcherGame(space, points, 5.0)
    assert game.value(robust.center_, robust.moved_.reshape(-1)) == pytest.approx(
        game.solution_value(), rel=1e-3
    )
    with pytest.raises(ValueError, match="gamma must be at least"):
        RobustKarcherMean(1.01, radius=5.0).fit(Hyperbolic(2), drawn(Hyperbolic(2), 1))


def test_gap_of_a_flat_game_in_closed_form():
    # min_x max_y (x^2 - y^2) / 2 + x y on intervals, as distances on lines.
    line = Euclidean(1)

    class Saddle:
        def value(self, x, y):
            return float(x[0] ** 2 / 2 - y[0] ** 2 / 2 + x[0] * y[0])

        def grad_x(self, x, y):
            return x + y

        def grad_y(self, x, y):
            return x - y

    ball = GeodesicBall(line, [0.0], 10.0)
    x, y = np.array([1.0]), np.array([-2.0])
    # max over y at y = x: x^2; min over x at x = -y: -y^2.
    assert duality_gap(Saddle(), ball, ball, x, y) == pytest.approx(1.0 + 4.0, rel=1e-2)
    for method in ("rioda_crgd", "rioda_prgd"):
        found = solve_minmax(Saddle(), line, line, x, y, math.sqrt(2), ball, ball, method=method, eps=1e-4)
        assert found.status == "converged" and found.gap <= 1e-4
        strong = solve_minmax(
            Saddle(), line, line, x, y, math.sqrt(2), ball, ball, method=method, mu=1.0, eps=1e-8
        )
        assert strong.n_outer < found.n_outer and abs(strong.x[0]) < 1e-4
    assert "gap" in found.summary() and found.to_frame().columns == ["outer", "n_grad", "gap"]
    assert found.to_dict()["n_grad"] == found.n_grad
    for peer in (rgda, rceg, r_ogda):
        answer = peer(Saddle(), line, line, x, y, 0.2, ball, ball, eps=1e-3, average=False)
        assert answer.status == "converged"


def test_constraints_are_kept_and_peers_leave():
    game = LogDetGame(2, c1=0.0)
    space = game.x_manifold
    ball = GeodesicBall(space, np.diag([3.0, 1.0]), 0.4)
    start = ball.center
    found = solve_minmax(
        game, space, space, start, start, game.smoothness(), ball, ball, eps=1e-3, max_outer=300
    )
    assert ball.contains(found.x) and ball.contains(found.x_last)
    assert rceg(game, space, space, start, start, 0.3, ball, ball).status == "left the set"


def test_smoothness_is_estimated_and_said():
    game = LogDetGame(2)
    free = WholeManifold(game.x_manifold)
    estimate = estimate_smoothness(game, free, free, np.eye(2), np.eye(2), random_state=0)
    assert 0.5 * game.smoothness() <= estimate <= game.smoothness() + 1e-9
    ball = GeodesicBall(game.x_manifold, np.eye(2), 1.0)
    with pytest.warns(UserWarning, match="L is not given"):
        solve_minmax(game, ball.manifold, ball.manifold, np.eye(2), np.eye(2), None, ball, ball)
    with pytest.warns(UserWarning, match="the gap has no bound"):
        solve_minmax(game, ball.manifold, ball.manifold, np.eye(2), np.eye(2), 1.0, ball, ball, eta=1.0)


def test_bad_input_is_refused():
    space = SPD(2)
    loss = SquaredDistance(space, np.eye(2))
    for eta in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="eta"):
            RIOD(space, eta)
    with pytest.raises(TypeError, match="manifold"):
        RIOD("sphere", 1.0)  # type: ignore[arg-type]
    sphere = Euclidean(2)
    sphere.curvature_lower = 1.0
    with pytest.raises(ValueError, match="Hadamard needed"):
        RIOD(sphere, 1.0)
    with pytest.raises(TypeError, match="loss must have value"):
        RIOD(space, 1.0).update(lambda x: 0.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="hint"):
        RIOD(space, 1.0, hint="first")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="kind"):
        InnerSolver("newton")  # type: ignore[arg-type]

    class Broken(SquaredDistance):
        def value(self, x):
            return math.nan

    with pytest.raises(ValueError, match="finite at the decision"):
        RIOD(space, 1.0).update(Broken(space, np.eye(2)))
    ball = GeodesicBall(space, np.eye(2), 0.1)
    with pytest.warns(UserWarning, match="lies outside"):
        learner = RIOD(space, 1.0, ball, start=np.diag([5.0, 1.0]))
    assert ball.contains(learner.z)
    with pytest.raises(ValueError, match="losses must not be empty"):
        r_ogd(space, [], np.eye(2), 0.1)
    start = np.diag([1.05, 1.0])
    decisions, met = r_ogd(space, [loss] * 5, start, 0.5, ball, optimistic=True)
    assert decisions.shape == (5, 2, 2) and met[-1] <= met[0]


# The study -----------------------------------------------------------------------------------------------


def held(metric, claim, measurement_metrics):
    (check,) = [
        check for c in lookup(SLUG).claims if c.id == claim for check in c.checks if check.metric == metric
    ]
    values = measurement_metrics[metric]
    return all(Bound.parse(check.bound).contains(v) for v in np.atleast_1d(values))


def test_planted_explicit_step_turns_c1c(monkeypatch):
    # One explicit gradient step in place of the implicit one.
    size = study._SIZES["smoke"]
    ctx = Context("smoke", seed=100)
    assert held("certificate_slack", "C1c", study._curvature(ctx, size)["metrics"])

    def explicit(self, loss):
        x = self.constraint.project(self.manifold.exp(self.z, -8 * self.eta * loss.grad(self.z)))
        return InnerSolution(x, 0.0, 1, True)

    monkeypatch.setattr(RIOD, "_solve", explicit)
    assert not held("certificate_slack", "C1c", study._curvature(ctx, size)["metrics"])


def test_planted_hint_for_z_turns_c2b(monkeypatch):
    # The secondary iterate follows the hint instead of the loss: it never learns of constant losses.
    size = study._SIZES["smoke"]
    ctx = Context("smoke", seed=100)
    assert held("growth", "C2b", study._hints(ctx, size)["metrics"])

    def stuck(self, loss):
        return InnerSolution(self.z, 0.0, 0, True)

    monkeypatch.setattr(RIOD, "_solve", stuck)
    assert not held("growth", "C2b", study._hints(ctx, size)["metrics"])


def test_paper_preset_reads_a_folder(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "classes.npy", np.stack([SPD(3).random(rng, 0.3) for _ in range(4)]))
    np.save(tmp_path / "stream.npy", np.stack([SPD(2).random(rng, 0.3) for _ in range(9)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        measured = study.run(Context("paper", seed=100, data_folder=tmp_path, limit=2))
    assert set(lookup(SLUG).metrics("paper")) == set(measured.metrics)
    assert measured.tables["stream"]["round"].max() == 8
    with pytest.raises(ValueError, match=r"classes\.npy"):
        study.run(Context("paper", seed=100))
    np.save(tmp_path / "stream.npy", np.ones(3))
    with pytest.raises(ValueError, match="square matrices"):
        study.run(Context("paper", seed=100, data_folder=tmp_path, limit=2))
