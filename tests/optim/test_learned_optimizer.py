from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from tests.conformance.contract import Call
from theses.catalogue import lookup
from theses.catalogue.card import Bound
from theses.evidence import Context
from theses.optim import learned_optimizer
from theses.optim.learned_optimizer import (
    AdamSolver,
    GradientDescent,
    HeavyBall,
    LassoFamily,
    LearnedOptimizer,
    PolyRegressionFamily,
    ProblemFamily,
    Problems,
    QuadraticFamily,
    State,
    Trajectory,
    certify,
    certify_events,
    clopper_pearson,
    discrete_kl,
    fit,
    load_pretrained,
    load_trained,
    maurer_bound,
    pac_bound,
    phi_inv,
    roll_out,
    sgld_samples,
    trajectory_properties,
)
from theses.optim.learned_optimizer import train as training
from theses.resources import CorruptResourceError
from theses.studies.optim import learned_optimizer as study

SLUG = "learned-optimizer"
FAMILIES = {
    "QuadraticFamily": QuadraticFamily(dim=4),
    "PolyRegressionFamily": PolyRegressionFamily(n_obs=8, degree=2, hidden=3),
    "LassoFamily": LassoFamily(dim=4, n_rows=3),
}


def solvers():
    return {
        "GradientDescent": GradientDescent(lr=0.001),
        "HeavyBall": HeavyBall.worst_case(mu=1e-3, L=500.0),
        "AdamSolver": AdamSolver(lr=0.1),
        "LearnedOptimizer": LearnedOptimizer(generator=0).requires_grad_(False),
    }


def start(n=3, dim=4):
    family = QuadraticFamily(dim=dim)
    params = family.sample(n, 0)
    z = family.z0(params) + 1
    return (z, *family.value_and_grad(z, params))


def calls() -> list[Call]:
    legal = ("nan", "inf")
    found = []

    def point(name, method):
        family = FAMILIES.get(name, FAMILIES["QuadraticFamily"])
        params = family.sample(3, 0)
        return lambda: (getattr(family, method), {"z": family.z0(params) + 1, "params": params})

    for name in ("ProblemFamily", *FAMILIES):
        for method in ("loss", "grad", "value_and_grad", "subgradient"):
            found.append(Call(f"{name}.{method}", point(name, method), ("z",), ("z",), {"z": legal}))

    def begin(solver):
        def make():
            z, loss, _ = start()
            return solver.init_state, {"z0": z, "loss": loss}

        return make

    def step(solver):
        def make():
            z, loss, grad = start()
            return solver.step, {"state": solver.init_state(z, loss), "loss": loss, "grad": grad}

        return make

    for name, solver in solvers().items():
        both = ("z0", "loss")
        found.append(Call(f"{name}.init_state", begin(solver), both, both, dict.fromkeys(both, legal)))
        both = ("loss", "grad")
        found.append(Call(f"{name}.step", step(solver), both, both, dict.fromkeys(both, legal)))
    events = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    law = np.array([0.25, 0.75])
    return [
        *found,
        Call(
            "QuadraticFamily",
            lambda: (QuadraticFamily, {"dim": 4, "mu": [1.0, 2.0], "L": [3.0, 4.0]}),
            ("mu", "L"),
        ),
        Call(
            "Problems",
            lambda: (Problems, {"tensors": {"b": torch.ones(3, 2), "c": torch.ones(3)}}),
            ("tensors.b",),
            ("tensors.b",),
            {"tensors.b": ("rank",)},
        ),
        Call(
            "phi_inv",
            lambda: (phi_inv, {"p": np.array([0.1, 0.2]), "a": np.array([1.0, 2.0])}),
            ("p", "a"),
            ("p", "a"),
        ),
        Call(
            "pac_bound",
            lambda: (
                pac_bound,
                {"p_hat_bad": 0.1, "kl": 0.1, "n": 50, "eps": 0.05, "lam": np.array([1.0, 9.0])},
            ),
            ("lam",),
        ),
        Call(
            "discrete_kl",
            lambda: (discrete_kl, {"posterior": law.copy(), "prior": law[::-1].copy()}),
            ("posterior", "prior"),
            ("posterior", "prior"),
        ),
        Call(
            "certify_events",
            lambda: (certify_events, {"prior_bad": events.copy(), "cert_bad": events.copy()}),
            ("prior_bad", "cert_bad"),
            ("prior_bad", "cert_bad"),
        ),
    ]


def bound_of(identifier):
    claim = next(claim for claim in lookup(SLUG).claims if claim.id == identifier)
    return Bound.parse(claim.checks[0].bound)


# Families


@pytest.mark.parametrize("name", ["QuadraticFamily", "PolyRegressionFamily"])
def test_gradients_are_those_of_automatic_differentiation(name):
    family = FAMILIES[name]
    params = family.sample(5, 0)
    z = family.z0(params) + torch.randn(5, family.dim, generator=torch.Generator().manual_seed(1)).double()
    value, grad = family.value_and_grad(z, params)
    plain_value, plain_grad = ProblemFamily.value_and_grad(family, z, params)
    torch.testing.assert_close(value, plain_value)
    torch.testing.assert_close(grad, plain_grad)
    assert float(grad.abs().max()) > 0.1


def test_quadratics_have_the_spectrum_and_the_start_they_should():
    family = QuadraticFamily(dim=50)
    params = family.sample(20, 0)
    spectrum = params["root"].square()
    assert bool(((spectrum[:, 0] >= 1e-3) & (spectrum[:, 0] <= 5e-3)).all())
    assert bool(((spectrum[:, -1] >= 1e2) & (spectrum[:, -1] <= 5e2)).all())
    assert not family.z0(params).any()
    assert PolyRegressionFamily(degree=5, hidden=50).dim == 351
    solution = params["b"] / params["root"]
    assert float(family.loss(solution, params).max()) < 1e-18


def test_lasso_subgradient_is_the_least_and_vanishes_at_the_solution():
    family = LassoFamily(dim=6, n_rows=10)
    params = family.sample(1, 0)
    # Proximal gradient steps to the solution, without the family's own derivative.
    z, step = family.z0(params), 1 / float(torch.linalg.matrix_norm(family.matrix, 2)) ** 2
    for _ in range(5_000):
        moved = z - step * (z @ family.matrix.T - params["b"]) @ family.matrix
        z = moved.sign() * (moved.abs() - step * family.penalty).clamp(min=0)
    assert float(family.subgradient(z, params).norm()) < 1e-10
    assert float(family.subgradient(z + 0.1, params).norm()) > 1e-3


# Solvers


def test_adam_is_torchs_adam():
    family = FAMILIES["QuadraticFamily"]
    params = family.sample(3, 0)
    ours = roll_out(AdamSolver(lr=0.05), family, params, 30, store_iterates=True)
    z = family.z0(params).requires_grad_(True)
    adam = torch.optim.Adam([z], lr=0.05)
    for _ in range(30):
        adam.zero_grad()
        family.loss(z, params).sum().backward()
        adam.step()
    assert ours.iterates is not None
    torch.testing.assert_close(ours.iterates[-1], z.detach(), rtol=1e-10, atol=1e-12)


def test_heavy_ball_with_worst_case_constants_contracts_at_the_known_rate():
    family = QuadraticFamily(dim=4, mu=(1.0, 1.0), L=(100.0, 100.0))
    params = family.sample(5, 0)
    losses = roll_out(HeavyBall.worst_case(mu=1.0, L=100.0), family, params, 80, floor=0.0).losses
    rate = float((losses[80] / losses[40]).max()) ** (1 / 80)
    assert rate == pytest.approx(9 / 11, abs=0.03)


@pytest.mark.parametrize("name", list(solvers()))
def test_problems_of_a_batch_do_not_see_each_other(name):
    family = QuadraticFamily(dim=4)
    params = family.sample(4, 0)
    together = roll_out(solvers()[name], family, params, 10).losses
    alone = torch.cat([roll_out(solvers()[name], family, params[i], 10).losses for i in range(4)], 1)
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=0)


def test_nothing_is_clipped_and_a_diverged_run_is_not_dropped():
    family = QuadraticFamily(dim=4)
    params = family.sample(6, 0)
    run = roll_out(GradientDescent(lr=10.0), family, params, 200)
    assert len(run) == 6 and not run.finite.any()
    assert not trajectory_properties(run).A.any()
    certificate = certify([GradientDescent(lr=10.0)], family, params, family.sample(50, 1), n_steps=200)
    assert certificate.empirical == 0 and certificate.bound == 0 and certificate.n == 50


def test_single_precision_is_warned_about():
    class Single(QuadraticFamily):
        def z0(self, params):
            return super().z0(params).float()

    family = Single(dim=4)
    with pytest.warns(UserWarning, match="float64"):
        roll_out(GradientDescent(lr=0.001), family, family.sample(2, 0), 1)


def test_iterates_are_stored_only_where_asked_for():
    family = QuadraticFamily(dim=4)
    params = family.sample(3, 0)
    assert roll_out(GradientDescent(lr=0.001), family, params, 2).iterates is None
    run = roll_out(GradientDescent(lr=0.001), family, params, 5, store_iterates=True)
    assert run.iterates is not None and run.iterates.shape == (6, 3, 4)
    torch.testing.assert_close(run.step_norms, run.iterates.diff(dim=0).norm(dim=-1))
    torch.testing.assert_close(run.until(2).losses, run.losses[:3])
    assert run.problems(slice(1, 3)).losses.shape == (6, 2)
    assert run.to_frame().shape == (18, 4)
    assert "3 problems, 5 steps" in run.summary()


# Architectures


def test_fast_evaluation_is_that_of_the_layers():
    opt = LearnedOptimizer(generator=0).requires_grad_(False)
    z, loss, grad = start()
    state = State(z, z - 0.1 * grad.sign(), loss + 1, torch.ones(3))
    moved = state.z - state.z_before
    g, m = (x / x.norm(dim=-1, keepdim=True) for x in (grad, moved))
    direction = opt.get_submodule("net.direction")(torch.stack([g, m, g * m], -1)).squeeze(-1)
    logs = torch.stack([grad.norm(dim=-1), moved.norm(dim=-1), loss, loss + 1], -1).log1p()
    expected = z - opt.get_submodule("net.length")(logs) * direction
    torch.testing.assert_close(opt.step(state, loss, grad).z, expected)


def test_quadratic_step_shrinks_in_proportion_near_a_solution():
    # No biases: far below 1 the length is homogeneous in the norms.
    opt = LearnedOptimizer(generator=0).requires_grad_(False)
    z, _, grad = start()
    moves = []
    for scale in (1e-8, 1e-10):
        small = torch.zeros(3, dtype=torch.float64)
        moves.append(opt.step(State(z, z - scale, small, small), small, scale * grad).z - z)
    # Of each move only eight digits are left beside z.
    torch.testing.assert_close(moves[0], 100 * moves[1], rtol=1e-3, atol=1e-12)
    assert float(moves[0].abs().max()) > 1e-10


def test_coordinates_are_treated_alike():
    opt = LearnedOptimizer(generator=0).requires_grad_(False)
    z, loss, grad = start()
    order = torch.tensor([2, 0, 3, 1])
    state = State(z, z - grad, loss + 1, torch.ones(3))
    turned = State(z[:, order], (z - grad)[:, order], loss + 1, torch.ones(3))
    torch.testing.assert_close(
        opt.step(state, loss, grad).z[:, order], opt.step(turned, loss, grad[:, order]).z
    )


def test_network_architecture_starts_with_small_preconditioners_and_needs_its_dimension():
    opt = LearnedOptimizer("network", 7, generator=0)
    assert torch.equal(
        opt.get_parameter("net.scale_gradient").detach(), torch.full((7,), 1e-3, dtype=torch.float64)
    )
    with pytest.raises(ValueError, match="dim must be given"):
        LearnedOptimizer("network")
    with pytest.raises(ValueError, match="architecture"):
        LearnedOptimizer("mlp")
    with pytest.raises(ValueError, match="z0 must have 7 coordinates"):
        opt.init_state(torch.zeros(2, 3), torch.zeros(2))
    with pytest.raises(ValueError, match="state"):
        opt.with_state(LearnedOptimizer(generator=0).state_dict())


def test_weights_come_from_the_generator_alone():
    before = torch.random.get_rng_state()
    first, second = (LearnedOptimizer(generator=5).state_dict() for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(first[name], second[name]) for name in first)


# Learning


def test_imitation_approaches_the_baseline_and_learning_brings_losses_down():
    family = QuadraticFamily(dim=4)
    split = family.sample(16, 0)
    opt = LearnedOptimizer(generator=0)
    imitated = fit(opt, family, split, 20, 300, imitate="hbf", batch_size=16, generator=1)
    assert imitated.objective[-1] < 0.7 * imitated.objective[0]
    learned = fit(opt, family, split, 20, 300, 3e-4, batch_size=16, generator=2)
    assert learned.objective[-1] < 0
    assert learned.to_frame().columns == ["step", "objective", "restarts"]
    assert "300 iterations" in learned.summary() and learned.to_dict()["steps"] == learned.steps


def test_learning_resumes_to_the_same_bits(tmp_path):
    family = QuadraticFamily(dim=4)
    split = family.sample(8, 0)

    def learn(iters, checkpoint, opt):
        return fit(
            opt, family, split, 10, iters, 1e-3, batch_size=4, generator=1, checkpoint=checkpoint,
            checkpoint_every=5, segment=2,
        )  # fmt: skip

    whole, broken = LearnedOptimizer(generator=0), LearnedOptimizer(generator=0)
    log = learn(20, None, whole)

    class Stopped(Exception):  # noqa: N818
        pass

    step, seen = broken.step, [0]

    def stops(*arguments):
        seen[0] += 1
        if seen[0] > 2 * 13:
            raise Stopped
        return step(*arguments)

    broken.step = stops  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        learn(20, tmp_path / "at.pt", broken)
    resumed = LearnedOptimizer(generator=9)
    assert learn(20, tmp_path / "at.pt", resumed) == log
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))


def test_a_segment_of_steps_has_the_gradient_of_the_unrolled_losses():
    # First order: the gradients that enter the network are constants, so one step is exact.
    family = QuadraticFamily(dim=4)
    split = family.sample(1, 0)
    z = family.z0(split)
    loss, grad = family.value_and_grad(z, split)
    opt = LearnedOptimizer(generator=0)
    moved = opt.step(opt.init_state(z, loss), loss, grad).z
    expected = torch.autograd.grad(family.loss(moved, split).log().sum(), list(opt.parameters()))
    from theses.optim.learned_optimizer.learning import _Runs

    runs = _Runs(opt, family, split, 1, 10, torch.Generator().manual_seed(0), None)
    found = torch.autograd.grad(runs.ratios(1, "log-ratio", 0.0), list(opt.parameters()))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_negative_losses_need_a_lower_bound():
    class Shifted(QuadraticFamily):
        def value_and_grad(self, z, params):
            loss, grad = super().value_and_grad(z, params)
            return loss - 1e6, grad

    family = Shifted(dim=4)
    with pytest.raises(ValueError, match="f_lower"):
        fit(LearnedOptimizer(generator=0), family, family.sample(4, 0), 5, 3, generator=0)
    family.f_lower = -1e6
    fit(LearnedOptimizer(generator=0), family, family.sample(4, 0), 5, 3, generator=0)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"iters": 0}, "iters"),
        ({"lr": 0.0}, "lr"),
        ({"segment": 0}, "segment"),
        ({"imitate": "sgd"}, "imitate"),
        ({"objective": "loss"}, "objective"),
        ({"rise_weight": -1.0}, "rise_weight"),
        ({"clip_norm": 0.0}, "clip_norm"),
    ],
)
def test_settings_of_learning_are_checked(change, name):
    family = QuadraticFamily(dim=4)
    settings_ = {"n_steps": 5, "iters": 1, **change}
    with pytest.raises(ValueError, match=name):
        fit(LearnedOptimizer(generator=0), family, family.sample(4, 0), **settings_)


def test_heavy_ball_cannot_be_imitated_without_constants():
    family = PolyRegressionFamily(n_obs=4, degree=1, hidden=2)
    with pytest.raises(ValueError, match="baseline"):
        fit(LearnedOptimizer(generator=0), family, family.sample(2, 0), 5, 1, imitate="hbf")


def test_langevin_samples_spread_around_the_learned_weights_and_keep_the_constraint():
    family = QuadraticFamily(dim=4)
    split = family.sample(8, 0)
    opt = LearnedOptimizer(generator=0)
    before = {name: value.clone() for name, value in opt.state_dict().items()}
    states = sgld_samples(opt, family, split, 5, n=3, temperature=1.0, generator=1)
    assert all(torch.equal(before[name], opt.state_dict()[name]) for name in before)
    name = next(iter(before))
    torch.testing.assert_close(states[0][name].double(), before[name], rtol=1e-6, atol=1e-7)
    spread = (states[1][name].double() - before[name]).std()
    # Ten steps of standard deviation sqrt(2 * 1e-6).
    assert float(spread) == pytest.approx(math.sqrt(10 * 2e-6), rel=0.4)
    values = iter([1.0] + [0.0] * 60)
    with pytest.raises(RuntimeError, match="constraint"):
        sgld_samples(opt, family, split, 5, n=2, constraint=lambda _: next(values), thin=1, generator=1)


# Shipped weights


@pytest.mark.parametrize("name", ["quadratic", "network"])
def test_shipped_weights_carry_their_recipe_and_are_small(name):
    from safetensors import safe_open

    path = Path(learned_optimizer.__file__).parent / "weights" / f"{name}.safetensors"
    assert path.stat().st_size < 200_000
    with safe_open(path, "pt") as file:
        recipe = json.loads(file.metadata()["recipe"])
    assert recipe.pop("iterations_done") == recipe["iters"]
    assert training.Recipe(**recipe) == training.RECIPES[name]
    samples = load_trained(name)
    assert len(samples) == 10
    family = training.RECIPES[name].problem_family()
    run = samples[0].run(family, family.sample(5, 7), 50)
    assert bool((run.losses[-1] < run.losses[0]).all())


def test_changed_weights_are_refused(tmp_path, monkeypatch):
    from theses.optim.learned_optimizer import shipped

    (tmp_path / "quadratic.safetensors").write_bytes(b"x")
    (tmp_path / "SHA256SUMS").write_text(f"{hashlib.sha256(b'y').hexdigest()}  quadratic.safetensors\n")
    monkeypatch.setattr(shipped, "_FOLDER", tmp_path)
    with pytest.raises(CorruptResourceError, match="SHA-256"):
        load_trained("quadratic")


def test_training_command_makes_samples_and_freezes_a_checkpoint(tmp_path, monkeypatch):
    short = training.Recipe(
        "quadratic", n_prior=8, imitation=5, iters=10, n_samples=2, horizon=3, batch_size=4
    )
    monkeypatch.setitem(training.RECIPES, "quadratic", short)
    training.main(["quadratic", str(tmp_path)])
    first = (tmp_path / "quadratic.safetensors").read_bytes()
    (tmp_path / "quadratic.safetensors").unlink()
    training.main(["quadratic", str(tmp_path), "--freeze"])
    assert (tmp_path / "quadratic.safetensors").read_bytes() == first
    assert short.digest() != training.Recipe("quadratic").digest()


def write_model(folder, name, opt):
    (folder / name).mkdir(parents=True, exist_ok=True)
    # As convolutions of size 1, the way the authors store them.
    weights = {
        f"layer{i}": value[:, :, None, None] if value.ndim == 2 and i % 2 else value
        for i, value in enumerate(opt.state_dict().values())
    }
    torch.save(weights, folder / name / "model.pt")


def test_weights_of_a_folder_are_read(tmp_path):
    opt = LearnedOptimizer(generator=3)
    write_model(tmp_path, "quadratic", opt)
    read = load_pretrained(tmp_path / "quadratic")
    assert all(torch.equal(a, b) for a, b in zip(opt.parameters(), read.parameters(), strict=True))
    with pytest.raises(ValueError, match="shapes"):
        load_pretrained(tmp_path / "quadratic", "network", 5)
    with pytest.raises(FileNotFoundError, match=r"model\.pt"):
        load_pretrained(tmp_path)
    torch.save([1, 2], tmp_path / "model.pt")
    with pytest.raises(ValueError, match="dictionary"):
        load_pretrained(tmp_path)


# Properties


def made_up(losses, grads=None, steps=None, points=None):
    losses = torch.tensor(losses, dtype=torch.float64)[:, None]
    ones = torch.ones_like(losses)

    def given_or(value, default):
        return default if value is None else torch.tensor(value, dtype=torch.float64)[:, None]

    return Trajectory(losses, given_or(grads, ones), given_or(steps, ones[1:]), given_or(points, ones))


def test_descent_is_strict_and_stops_being_checked_below_the_tolerance():
    def descent(losses, **constants):
        return bool(trajectory_properties(made_up(losses), **constants).descent)

    assert descent([3, 2, 1])
    assert not descent([3, 3, 1])
    assert not descent([3, 1, 2])
    assert descent([3, 1e-17, 2e-17, 1e-17])
    assert not descent([3, 1e-15, 2e-15])
    assert not descent([3, 2, math.nan])
    assert descent([3, 2, 1], a=1.0)
    assert not descent([3, 2.5, 1], a=1.0)
    # A small last loss alone is not the property.
    assert not descent([3, 5, 1e-17])


def test_relative_error_and_bound_are_checked_where_given():
    run = made_up([3, 2, 1], grads=[9, 2, 1], steps=[1, 0.5], points=[0, 1, 4])
    assert bool(trajectory_properties(run).A)
    assert bool(trajectory_properties(run, b=2.0, c=4.0).A)
    assert not bool(trajectory_properties(run, b=1.9).rel_error)
    assert not bool(trajectory_properties(run, c=3.9).A)
    mask = trajectory_properties(run)
    assert mask.to_dict()["A"] == 1 and mask.to_frame().shape == (1, 4)
    for constants in ({"a": -1.0}, {"b": -1.0}, {"c": math.nan}, {"tol": -1.0}):
        with pytest.raises(ValueError, match=next(iter(constants))):
            trajectory_properties(run, **constants)


# Bounds


@given(st.floats(0, 1), st.floats(1e-6, 20))
def test_phi_inverse_inverts_phi(p, a):
    value = phi_inv(p, a)
    back = -math.log1p(-value * -math.expm1(-a)) / a
    assert back == pytest.approx(p, abs=1e-6)


def test_without_bad_runs_the_bound_is_the_exact_one():
    # lam -> infinity: 1 - eps^(1/N), the exact binomial bound for no failure.
    assert pac_bound(0.0, 0.0, 250, 0.05, 1e5) == pytest.approx(clopper_pearson(0, 250, 0.05), rel=1e-6)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 60), st.integers(60, 500))
def test_exact_bound_is_scipys(n_bad, n):
    interval = binomtest(n_bad, n, alternative="less").proportion_ci(0.95)
    assert clopper_pearson(n_bad, n, 0.05) == pytest.approx(interval.high, abs=1e-9)


def test_maurers_bound_solves_its_equation():
    p = maurer_bound(0.1, 0.2, 250, 0.05)
    divergence = 0.1 * math.log(0.1 / p) + 0.9 * math.log(0.9 / (1 - p))
    assert divergence == pytest.approx((0.2 + math.log(2 * math.sqrt(250) / 0.05)) / 250, rel=1e-6)
    assert maurer_bound(1.0, 0.0, 10, 0.05) == 1.0


@given(st.floats(0, 1), st.floats(0, 3), st.integers(1, 2000), st.floats(0.001, 0.5), st.floats(0.1, 1e4))
def test_bounds_are_probabilities_and_grow_with_what_is_bad(p, kl, n, eps, lam):
    bound = pac_bound(p, kl, n, eps, lam)
    assert 0 <= bound <= 1
    assert bound >= min(p, 1) * (1 - 1e-9)
    assert pac_bound(p, kl + 1, n, eps, lam) >= bound
    assert pac_bound(p, kl, n, eps / 2, lam) >= bound


def test_the_bound_fails_no_more_often_than_it_says():
    rng = np.random.default_rng(0)
    for truth in (0.02, 0.3):
        hats = rng.binomial(100, truth, size=2_000) / 100
        misses = np.mean([pac_bound(h, 0.0, 100, 0.05, 60.0) < truth for h in np.unique(hats) for _ in (0,)
                          for _ in range(int((hats == h).sum()))])  # fmt: skip
        assert misses <= 0.06


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"eps": 0.0}, "eps"),
        ({"eps": 1.0}, "eps"),
        ({"lam": 0.0}, "lam"),
        ({"lam": -1.0}, "lam"),
        ({"n": 0}, "n must"),
        ({"kl": -0.1}, "kl"),
        ({"p_hat_bad": 1.1}, "p_hat_bad"),
    ],
)
def test_arguments_of_the_bound_are_checked(change, name):
    with pytest.raises(ValueError, match=name):
        pac_bound(**{"p_hat_bad": 0.1, "kl": 0.1, "n": 10, "eps": 0.05, "lam": 1.0, **change})


def test_divergence_of_discrete_laws():
    assert discrete_kl([0.5, 0.5, 0.0], [0.25, 0.5, 0.25]) == pytest.approx(0.5 * math.log(2))
    with pytest.raises(ValueError, match="sum to 1"):
        discrete_kl([0.5, 0.4], [0.5, 0.5])
    with pytest.raises(ValueError, match="prior must be weights"):
        discrete_kl([0.5, 0.5], [0.5, 0.6])
    with pytest.raises(ValueError, match="no mass where the prior has none"):
        discrete_kl([0.5, 0.5], [1.0, 0.0])


# Certificates


def test_certificate_is_the_formula_worked_out_by_hand():
    prior_bad, cert_bad = [[1, 0], [0, 0]], [[1, 1, 0, 0], [0, 0, 0, 1]]
    found = certify_events(prior_bad, cert_bad, eps=0.1, lam=3.0)
    prior = np.exp([-0.5, 0.0]) / np.exp([-0.5, 0.0]).sum()
    posterior = np.exp([-1.0, -0.25]) / np.exp([-1.0, -0.25]).sum()
    kl = float((posterior * np.log(posterior / prior)).sum())
    p_hat = float(posterior @ [0.5, 0.25])
    inner = p_hat + (kl + math.log(10)) / 3
    assert found.kl == pytest.approx(kl) and found.empirical == pytest.approx(1 - p_hat)
    assert found.bound == pytest.approx(max(0, 1 - (1 - math.exp(-0.75 * inner)) / (1 - math.exp(-0.75))))
    assert found.to_dict()["posterior"] == pytest.approx(tuple(posterior))
    assert found.to_frame().columns == ["sample", "prior", "posterior"]


def test_lambda_is_chosen_without_the_certification_split():
    prior_bad = np.zeros((1, 50))
    prior_bad[0, :5] = 1
    few, many = (certify_events(prior_bad, np.arange(200)[None] < k) for k in (2, 90))
    assert few.lam == many.lam
    grids = [certify_events(prior_bad, np.arange(200)[None] < k, lam="grid") for k in (2, 90)]
    assert grids[0].lam != grids[1].lam
    # The choice on the certification split pays for its twenty values.
    best = 1 - pac_bound(0.01, 0.0, 200, 0.05, grids[0].lam)
    assert grids[0].bound < best
    with pytest.raises(ValueError, match="lam"):
        certify_events(prior_bad, prior_bad, lam="best")
    with pytest.raises(ValueError, match="lam"):
        certify_events(prior_bad, prior_bad, lam=0.0)
    with pytest.raises(ValueError, match="cert_bad must hold only 0"):
        certify_events(prior_bad, 0.5 * np.ones((1, 5)))


def test_overlapping_splits_are_refused():
    family = QuadraticFamily(dim=4)
    split = family.sample(20, 0)
    solver = [GradientDescent(lr=0.001)]
    with pytest.raises(ValueError, match="share a problem"):
        certify(solver, family, split, split, n_steps=2)
    with pytest.raises(ValueError, match="share a problem"):
        certify(solver, family, split[:10], split[9:], n_steps=2)
    certify(solver, family, split[:10], split[10:], n_steps=2)
    with pytest.raises(ValueError, match="samples"):
        certify([], family, split[:10], split[10:], n_steps=2)
    with pytest.raises(ValueError, match="property_fn"):
        certify(solver, family, split[:10], split[10:], lambda run: torch.ones(3), n_steps=2)


def test_the_certificate_says_up_to_when():
    family = QuadraticFamily(dim=4)
    found = certify([GradientDescent(lr=0.001)], family, family.sample(5, 0), family.sample(9, 1), n_steps=7)
    assert "up to step 7" in found.summary()


def test_problems_are_checked_and_sliced():
    problems = Problems({"b": torch.arange(6.0).reshape(3, 2), "c": torch.ones(3)})
    assert len(problems[-1]) == 1 and problems.keys() == ["b", "c"] and len(set(problems.rows())) == 3
    with pytest.raises(ValueError, match="at least one entry"):
        Problems({})
    with pytest.raises(TypeError, match="tensor"):
        Problems({"b": np.ones(3)})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="mu must lie below L"):
        QuadraticFamily(mu=(1.0, 9.0), L=(2.0, 3.0))


# Planted mistakes


class Memory:
    """Knows the solutions of what it was trained on, and walks uphill everywhere else."""

    def __init__(self, family, params):
        self.known = family.loss(family.z0(params), params)
        self.solutions = params["b"] / params["root"]

    def init_state(self, z0, loss):
        return State(z0, z0, loss, torch.zeros_like(loss))

    def step(self, state, loss, grad):
        same = (state.loss_before[:, None] == self.known[None]).double()
        found = same.any(1, keepdim=True)
        z = torch.where(found, state.z + 0.5 * (same @ self.solutions - state.z), state.z + grad)
        return State(z, state.z, state.loss_before, state.t + 1)


def valid_share(family, train, certification, test):
    solver = Memory(family, train)
    truth = float(trajectory_properties(roll_out(solver, family, test, 5)).A.double().mean())
    found = [certify([solver], family, train[:20], part, n_steps=5).bound for part in certification]
    return float(np.mean([bound <= truth for bound in found]))


def test_planted_training_problems_turns_c1a():
    # Certified on what it was trained on, a solver that has learned its problems by heart looks perfect.
    family = QuadraticFamily(dim=4)
    train, fresh, test = (family.sample(420, seed) for seed in (0, 1, 2))
    bound = bound_of("C1a")

    def parts(problems):
        return [problems[i : i + 100] for i in range(20, 420, 100)]

    assert bound.contains(valid_share(family, train, parts(fresh), test))
    assert not bound.contains(valid_share(family, train, parts(train), test))


def test_planted_dropped_diverged_runs_turns_c1c(monkeypatch):
    # Half of the runs are lost; without them the rest is perfect, and the bound lies above the truth.
    family = QuadraticFamily(dim=4)
    split, test = family.sample(300, 0), family.sample(300, 1)

    class Lost(GradientDescent):
        def step(self, state, loss, grad):
            moved = super().step(state, loss, grad)
            lost = (grad.abs().sum(-1) * 1e6).floor() % 2 == 0
            return moved._replace(z=torch.where(lost[:, None] & (state.t[:, None] == 0), torch.nan, moved.z))

    run, truth_run = (roll_out(Lost(lr=0.001), family, problems, 5) for problems in (split, test))
    truth = float(trajectory_properties(truth_run).A.double().mean())
    assert 0.3 < truth < 0.7
    prior = np.zeros((1, 50))
    bound = bound_of("C1c")

    def share():
        bad = study._bad(run)
        return float(certify_events(prior, bad[None]).bound <= truth)

    assert bound.contains(share())
    right = study._bad
    monkeypatch.setattr(study, "_bad", lambda r: right(r)[r.finite.numpy()])
    assert not bound.contains(share())


# The study


def test_race_counts_steps_like_a_plain_loop():
    family = QuadraticFamily(dim=3, mu=(1.0, 1.0), L=(9.0, 9.0))
    params = family.sample(70, 0)
    solver = HeavyBall.worst_case(mu=1.0, L=9.0)
    fine, moderate = study._first_hits(solver, family, params, cap=200)
    losses = roll_out(solver, family, params, 200, floor=0.0).losses.numpy()
    assert np.array_equal(fine, (losses <= 1e-8).argmax(0))
    assert np.array_equal(moderate, (losses <= 1e-4 * losses[0]).argmax(0))
    fine, _ = study._first_hits(GradientDescent(lr=1e-9), family, params, cap=3)
    assert (fine == 3).all()


def test_closed_form_rates_meet_their_bounds():
    rates = study._rates()
    assert bound_of("C5a").contains(rates["fast"]) and bound_of("C5b").contains(rates["slow"])


def test_paper_preset_runs_on_a_folder_in_its_layout(tmp_path):
    with pytest.raises(ValueError, match=r"model\.pt"):
        study.run(Context("paper", 0))
    write_model(tmp_path, "quadratic", LearnedOptimizer(generator=0))
    write_model(tmp_path, "network", LearnedOptimizer("network", 351, generator=0))
    measurement = study.run(Context("paper", 101, data_folder=tmp_path, limit=4))
    assert set(measurement.metrics) >= set(lookup(SLUG).metrics("paper"))


def test_unknown_preset_is_refused():
    with pytest.raises(ValueError, match="preset"):
        study.run(Context("huge", 0))
