import math
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.conformance.contract import Call
from theses.catalogue import lookup
from theses.catalogue.card import Bound
from theses.evidence import Context
from theses.sampling.state_machine_mcmc import (
    Trace,
    as_sampling_algorithm,
    delayed_rejection,
    elliptical_slice,
    expected_speedup,
    machine_from_blocks,
    nuts,
    run,
    slice_sampler,
    slices,
)
from theses.sampling.state_machine_mcmc.rejection import log_acceptance
from theses.studies.sampling import state_machine_mcmc as study
from theses.studies.sampling.state_machine_mcmc import arms, targets

SLUG = "state-machine-mcmc"


def quadratic(x):
    return -0.5 * x @ x


def calls() -> list[Call]:
    def of_run():
        # The machine and the shapes of the study at smoke, so that it is compiled once.
        machine = targets.rejection_machine(arms.REJECTION_SCALE, 100)
        positions = np.linspace(-1, 1, 4, dtype=np.float32)[:, None]
        return run, {
            "key": jax.random.key(0),
            "machine": machine,
            "positions": positions,
            "num_samples": 20,
        }

    def of_slice():
        prior = {"mean": np.zeros(3), "cov": np.array([[2.0, 0.5, 0], [0.5, 1, 0], [0, 0, 1]])}
        return elliptical_slice, {"logdensity_fn": quadratic, **prior}

    def of_nuts():
        options = {"step_size": 0.5, "inverse_mass_matrix": np.diag([1.0, 2.0])}
        return nuts, {"logdensity_fn": quadratic, **options}

    def of_speedup():
        return expected_speedup, {"inner_counts": np.array([[1, 2, 3], [4, 1, 2]])}

    def of_blocks():
        blocks = [lambda data, key: (data, 1, False), lambda data, key: (data, 0, True)]
        return machine_from_blocks, {"init": lambda x, key: None, "blocks": blocks, "bundle": (1, 0)}

    return [
        Call("machine_from_blocks", of_blocks, ("bundle",)),
        Call("run", of_run, ("positions",)),
        Call("elliptical_slice", of_slice, ("mean", "cov"), paired=("mean",)),
        Call("nuts", of_nuts, ("inverse_mass_matrix",)),
        Call("expected_speedup", of_speedup, ("inner_counts",)),
    ]


# The samplers ---------------------------------------------------------------------------------------------


def before(positions, samples):
    """Where each draw started from, flattened over draws and chains."""
    joined = jax.tree.map(lambda p, s: np.concatenate([np.asarray(p)[None], s[:-1]]), positions, samples)
    return flattened(joined)


def flattened(tree):
    return jax.tree.map(lambda a: np.asarray(a).reshape(-1, *a.shape[2:]), tree)


def replay(algorithm, key, visits, positions, samples):
    """Each draw once more, by BlackJAX, from the same point with the same key."""
    visits = np.asarray(visits)
    starts = np.vstack([np.zeros((1, visits.shape[1]), int), visits.cumsum(axis=0)[:-1]])

    def draw(chain, start, position):
        draw_key = jax.random.fold_in(jax.random.split(key, visits.shape[1])[chain], start)
        state, info = algorithm.step(draw_key, algorithm.init(position))
        return state.position, info

    chains = np.tile(np.arange(visits.shape[1]), len(visits))
    return jax.jit(jax.vmap(draw))(chains, starts.ravel(), before(positions, samples))


COV = np.array([[1.0, 0.3, 0.0], [0.3, 1.0, 0.0], [0.0, 0.0, 2.0]])
MEAN = np.array([0.5, 0.0, -0.5])
PRECISION = 4.0


def likelihood(x):
    """Gaussian in a, with observations of 1; impossible, as NaN, where b > 1."""
    return -0.5 * PRECISION * jnp.sum((x["a"] - 1) ** 2) + jnp.where(x["b"] > 1, jnp.nan, 0.0)


class Elliptical(NamedTuple):
    key: object
    positions: object
    trace: Trace


@pytest.fixture(scope="module")
def ellipse():
    rng = np.random.default_rng(0)
    truth, spread = posterior()
    m = 64
    a = (truth + rng.normal(size=(m, 2)) @ np.linalg.cholesky(spread).T).astype(np.float32)
    b = stats.truncnorm(-np.inf, 1.5 / math.sqrt(2), loc=-0.5, scale=math.sqrt(2))
    positions = {"a": a, "b": b.rvs(size=m, random_state=rng).astype(np.float32)}
    key = jax.random.key(3)
    machine = elliptical_slice(likelihood, mean=MEAN, cov=COV)
    return Elliptical(key, positions, run(key, machine, positions, num_samples=60))


def posterior():
    precision = np.linalg.inv(COV[:2, :2]) + PRECISION * np.eye(2)
    shift = np.linalg.solve(COV[:2, :2], MEAN[:2]) + PRECISION * np.ones(2)
    return np.linalg.solve(precision, shift), np.linalg.inv(precision)


def test_elliptical_slices_are_blackjax_s_draw_for_draw(ellipse):
    def safe(x):
        value = likelihood(x)
        return jnp.where(jnp.isnan(value), -jnp.inf, value)  # BlackJAX would accept NaN

    mean, cov = (jnp.asarray(a, jnp.float32) for a in (MEAN, COV))
    theirs = blackjax.elliptical_slice(safe, mean=mean, cov=cov)
    trace = ellipse.trace
    positions, info = replay(theirs, ellipse.key, trace.inner_counts + 2, ellipse.positions, trace.samples)
    ours = flattened(trace.samples)
    for name in ("a", "b"):
        np.testing.assert_allclose(positions[name], ours[name], atol=2e-5)
    np.testing.assert_array_equal(info.subiter, flattened(trace.inner_counts))
    np.testing.assert_array_equal(trace.info.evaluations, trace.inner_counts)


def z_scores(values, truth):
    values = np.asarray(values, np.float64)
    return (values.mean(axis=0) - truth) / (values.std(axis=0, ddof=1) / math.sqrt(len(values)))


def test_elliptical_slices_have_the_closed_form_s_moments(ellipse):
    mean, cov = posterior()
    a, b = (np.asarray(ellipse.trace.samples[name], np.float64) for name in ("a", "b"))
    assert np.abs(z_scores(a.mean(axis=0), mean)).max() < 4
    products = np.einsum("nmi,nmj->mij", a - mean, a - mean) / len(a)
    assert np.abs(z_scores(products, cov)).max() < 4
    truncated = stats.truncnorm(-np.inf, 1.5 / math.sqrt(2), loc=-0.5, scale=math.sqrt(2))
    assert b.max() <= 1
    assert abs(z_scores(b.mean(axis=0), truncated.mean())) < 4


def test_traces_say_what_they_cost(ellipse):
    trace = ellipse.trace
    counts = np.asarray(trace.inner_counts)
    assert counts.min() >= 1
    np.testing.assert_array_equal(trace.work, counts.sum(axis=0))
    # The first step only asks for a density; from then on a step is an evaluation of the slowest chain.
    assert trace.steps == counts.sum(axis=0).max() + 1
    assert str(trace.steps) in trace.summary()
    frame = trace.to_frame()
    assert frame.height == counts.size and frame["inner_count"].sum() == counts.sum()
    row = frame.filter((pl.col("draw") == 5) & (pl.col("chain") == 7))
    assert row["['a'][1]"].item() == pytest.approx(float(trace.samples["a"][5, 7, 1]))
    assert trace.to_dict()["samples['b']"].shape == counts.shape


def smoke_normal():
    machine, _ = targets.nuts_pair("normal", arms.D, arms.CORRELATION, arms.STEP)
    start = targets.normal_draws(np.random.default_rng(0), 4, arms.D, arms.CORRELATION)
    key = jax.random.key(1)
    return key, start, run(key, machine, start, num_samples=20)


@pytest.mark.slow
def test_nuts_draws_are_blackjax_s_draw_for_draw():
    key, start, trace = smoke_normal()
    density = targets.normal_density(arms.D, arms.CORRELATION)
    theirs = blackjax.nuts(density, step_size=arms.STEP, inverse_mass_matrix=jnp.ones(arms.D))
    depth = np.asarray(trace.info.num_trajectory_expansions)
    # Blocks of a draw: INIT, DONE, EXPAND and CHECK for each doubling, INTEGRATE for each leapfrog step.
    visits = 2 + 2 * depth + np.asarray(trace.inner_counts)
    positions, info = replay(theirs, key, visits, start, trace.samples)
    np.testing.assert_allclose(positions, flattened(trace.samples), atol=2e-5)
    np.testing.assert_array_equal(info.num_integration_steps, flattened(trace.inner_counts))
    np.testing.assert_array_equal(info.num_trajectory_expansions, flattened(depth))
    np.testing.assert_array_equal(info.is_turning, flattened(trace.info.is_turning))
    np.testing.assert_allclose(info.acceptance_rate, flattened(trace.info.acceptance_rate), atol=1e-5)
    np.testing.assert_allclose(info.energy, flattened(trace.info.energy), atol=1e-4)


def test_draws_do_not_depend_on_bundling_and_amortisation():
    data = targets.gp_data(np.random.default_rng(0), 25)
    start = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    traces = [
        run(
            jax.random.key(2),
            targets.gp_machine(*data, amortised=amortised, bundled=bundled),
            start,
            num_samples=20,
        )
        for amortised, bundled in arms.VARIANTS.values()
    ]
    for trace in traces[1:]:
        np.testing.assert_allclose(trace.samples, traces[0].samples, atol=1e-4)
        np.testing.assert_array_equal(trace.inner_counts, traces[0].inner_counts)
    # Bundled: a step an evaluation; otherwise INIT and DONE are steps, too.
    work = int(traces[0].work.max())
    assert [trace.steps for trace in traces] == [work + 1, work, work + 40, work + 40]


@pytest.mark.parametrize("offset", [0.0, -1000.0])
def test_delayed_rejection_is_computed_in_logs(offset):
    rng = np.random.default_rng(0)
    # A power of two apart and an offset that single precision can hold: no rounding of the densities.
    current = rng.integers(-256, 0, size=200) / 64
    rejected = np.append(-np.inf, current[1:] - rng.integers(1, 512, size=199) / 64)
    value = current + rng.integers(-256, 64, size=200) / 64
    p, worst, x = np.exp(value), np.exp(rejected), np.exp(current)
    expected = np.minimum(1, np.maximum(0, p - worst) / (x - worst))
    arrays = (jnp.asarray(a + offset, jnp.float32) for a in (value, rejected, current))
    ours = np.exp(np.asarray(log_acceptance(*arrays), np.float64))
    np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=1e-7)
    impossible = log_acceptance(jnp.float32(-jnp.inf), jnp.float32(-jnp.inf), jnp.float32(0))
    assert impossible == -jnp.inf


COUNTED = [0]


def half_normal(x):
    COUNTED[0] += 1
    value = -500 - 0.5 * jnp.sum(x["place"] ** 2)
    return jnp.where(x["place"][0] < 0, jnp.nan, value)


@cache
def rejection():
    return delayed_rejection(half_normal, scale=1.5, max_tries=5)


def half_normal_run(seed=0, **options):
    start = np.abs(np.random.default_rng(0).normal(size=(256, 1))).astype(np.float32)
    positions = {"place": jnp.asarray(start)}
    trace = run(jax.random.key(seed), rejection(), positions, num_samples=20, **options)
    assert not positions["place"].is_deleted()  # only the run's own buffers are given away
    return trace


def test_delayed_rejection_has_the_law_of_its_target():
    trace = half_normal_run()
    x = np.asarray(trace.samples["place"], np.float64)[..., 0]
    assert x.min() >= 0
    assert abs(z_scores(x.mean(axis=0), math.sqrt(2 / math.pi))) < 4
    assert abs(z_scores((x**2).mean(axis=0), 1.0)) < 4
    tries, accepted = (np.asarray(a) for a in trace.info)
    assert tries.max() == 5 and (tries[~accepted] == 5).all()
    np.testing.assert_array_equal(tries, trace.inner_counts)
    stayed = ~accepted[1:]
    assert stayed.any() and (x[1:][stayed] == x[:-1][stayed]).all()


def test_delayed_rejection_is_the_loop_written_out():
    trace = half_normal_run()
    chains = np.asarray(trace.inner_counts).sum(axis=0).argsort()[-2:]
    for chain in chains:
        key = jax.random.split(jax.random.key(0), 256)[chain]
        x = np.abs(np.random.default_rng(0).normal(size=(256, 1))).astype(np.float32)[chain, 0]
        visit = 0
        for sample in np.asarray(trace.samples["place"])[:, chain, 0]:
            y, worst = x, 0.0
            for _ in range(5):
                noise, uniform = jax.random.split(jax.random.fold_in(key, visit))
                visit += 1
                y = y + np.float32(1.5) * np.float32(jax.random.normal(noise, (1,))[0])
                p, px = (math.exp(-0.5 * v * v) if v >= 0 else 0.0 for v in (float(y), float(x)))
                if float(jax.random.uniform(uniform)) < max(0.0, p - worst) / (px - worst):
                    x = y
                    break
                worst = max(worst, p)
            assert sample == pytest.approx(x, abs=1e-5)


def test_runs_do_not_depend_on_chunks_and_are_compiled_once():
    first = half_normal_run()
    calls_before = COUNTED[0]
    for chunk in (1, 7):
        again = half_normal_run(chunk=chunk)
        np.testing.assert_array_equal(again.samples["place"], first.samples["place"])
        np.testing.assert_array_equal(again.inner_counts, first.inner_counts)
        assert again.steps == first.steps
    half_normal_run(seed=1)
    warm = half_normal_run(num_warmup=3)
    assert COUNTED[0] == calls_before  # nothing was traced again
    np.testing.assert_array_equal(warm.samples["place"][:17], first.samples["place"][3:])
    np.testing.assert_array_equal(warm.inner_counts[:17], first.inner_counts[3:])
    assert (np.asarray(warm.work) >= np.asarray(first.work)).all()


@pytest.mark.slow
def test_a_machine_is_a_sampling_algorithm_of_blackjax():
    algorithm = as_sampling_algorithm(rejection())
    state = algorithm.init({"place": jnp.ones(1)})
    final, (positions, info) = blackjax.util.run_inference_algorithm(
        jax.random.key(0), algorithm, 50, state, transform=lambda state, info: (state.position, info)
    )
    assert positions["place"].shape == (50, 1) and int(info.tries.max()) <= 5
    assert final.position["place"][0] == positions["place"][-1, 0]
    # A kernel: nothing but the position and the key decides.
    other = algorithm.init({"place": jnp.ones(1)}, jax.random.key(9))
    one, two = (algorithm.step(jax.random.key(5), s)[0].position["place"] for s in (state, other))
    assert one == two


def test_dtypes_are_those_of_the_positions():
    machines = {
        "ellipse": elliptical_slice(quadratic, mean=0.0, cov=np.ones(3)),
        "slice": slice_sampler(quadratic),
        "nuts": nuts(quadratic, step_size=0.1, inverse_mass_matrix=np.ones(3)),
        "rejection": delayed_rejection(quadratic, scale=0.1),
    }
    with jax.enable_x64(True):
        for name, machine in machines.items():
            for dtype in (jnp.float32, jnp.float64):
                state = jax.eval_shape(machine.init, jnp.zeros(3, dtype), jax.random.key(0))
                state, _, value = jax.eval_shape(machine.step, state)
                assert value.dtype == dtype, name
                assert state.data.logdensity.dtype == dtype, name
    assert jnp.zeros(1).dtype == jnp.float32


# Machines of one's own -----------------------------------------------------------------------------------


class Countdown(NamedTuple):
    position: object
    left: object
    work: object


def countdown(n_rounds, emitting=True):
    """A draw counts down from its position's round number; it never ends where that is negative."""

    def start(data, key):
        return data._replace(left=data.position.astype(jnp.int32)), 1, False

    def wait(data, key):
        done = data.left == 0
        return data._replace(left=data.left - 1, work=data.work + 1), jnp.where(done, 2, 1), False

    def end(data, key):
        return data, 0, emitting

    def init(position, key):
        return Countdown(position, jnp.int32(0), jnp.int32(0))

    return machine_from_blocks(init, [start, wait, end], bundle=n_rounds)


def test_the_slowest_chain_decides_and_the_first_draws_of_each_are_kept():
    machine = countdown("loop")
    trace = run(jax.random.key(0), machine, np.array([0.0, 3.0, 9.0]), num_samples=4)
    assert trace.steps == 40 and trace.work.tolist() == [4, 16, 40] and trace.info == ()
    np.testing.assert_array_equal(trace.inner_counts, np.tile([1, 4, 10], (4, 1)))
    np.testing.assert_array_equal(trace.samples, np.tile([0.0, 3.0, 9.0], (4, 1)))
    with pytest.raises(RuntimeError, match=r"chain 1 has completed no draw in max_chunks = 3 .*block WAIT"):
        run(jax.random.key(0), machine, np.array([0.0, -1.0, 9.0]), num_samples=4, max_chunks=3, chunk=5)


def test_machines_are_checked():
    for bundle in ((0, 1), (0, 1, 1), (0, 1, 2, 3), "all"):
        with pytest.raises(ValueError, match="bundle must"):
            countdown(bundle)
    with pytest.raises(ValueError, match="blocks must"):
        machine_from_blocks(lambda x, key: None, [])
    blocks = [lambda data, key: (data, 1, True), lambda data, key: (data, 0, True)]
    twice = machine_from_blocks(lambda x, key: Countdown(x, jnp.int32(0), jnp.int32(0)), blocks)
    with pytest.raises(ValueError, match=r"at most one of the blocks may emit, got \[0, 1\]"):
        jax.eval_shape(twice.step, twice.init(jnp.zeros(()), jax.random.key(0)))


def test_bad_runs_are_refused_before_they_start():
    key, machine = jax.random.key(0), rejection()
    start = {"place": np.ones((3, 1), np.float32)}
    for positions, words in (
        ({"place": np.float32(1)}, "leading axis"),
        ({"place": np.ones((3, 1)), "other": np.ones(2)}, "as many chains"),
        ({"place": np.ones((3, 1), int)}, "floating"),
        ({}, "at least one array"),
        ({"place": np.array([[1.0], [-1.0], [-2.0]], np.float32)}, "chains 1, 2"),
        ({"other": np.ones((3, 1))}, "can start"),
    ):
        with pytest.raises(ValueError, match=f"positions .*{words}"):
            run(key, machine, positions, num_samples=2)
    for name, value in (("num_samples", 0), ("num_warmup", -1), ("chunk", 0), ("max_chunks", 0)):
        with pytest.raises(ValueError, match=f"^{name} must"):
            run(key, machine, start, **{"num_samples": 2, name: value})
    with pytest.raises(TypeError, match="machine must"):
        run(key, blackjax.nuts, start, num_samples=2)
    for wrong in (0, np.zeros(2, np.uint32), jax.random.split(key, 3), jnp.zeros(2)):
        with pytest.raises(TypeError, match="key must"):
            run(wrong, machine, start, num_samples=2)


def test_step_sizes_may_come_from_adaptation():
    machine = nuts(quadratic, step_size=jnp.float32(0.5), inverse_mass_matrix=jnp.ones(2))
    assert machine.block_names[2] == "INTEGRATE"


def test_bad_samplers_are_refused_where_they_are_made():
    for cov in ([[1.0, 2.0], [2.0, 1.0]], [1.0, 0.0], [[1.0, 0.5], [0.0, 1.0]], np.ones((2, 3))):
        with pytest.raises(ValueError, match="cov must"):
            elliptical_slice(quadratic, mean=0.0, cov=cov)
        with pytest.raises(ValueError, match="inverse_mass_matrix must"):
            nuts(quadratic, step_size=0.1, inverse_mass_matrix=cov)
    for make, options in (
        (nuts, {"step_size": 0.0, "inverse_mass_matrix": [1.0]}),
        (nuts, {"step_size": 0.1, "inverse_mass_matrix": [1.0], "max_num_doublings": 0}),
        (nuts, {"step_size": 0.1, "inverse_mass_matrix": [1.0], "divergence_threshold": -1.0}),
        (slice_sampler, {"width": -1.0}),
        (slice_sampler, {"max_steps_out": 0}),
        (delayed_rejection, {"scale": 0.0}),
        (delayed_rejection, {"scale": 1.0, "max_tries": 0}),
    ):
        name = list(options)[-1] if make is not nuts or len(options) == 3 else "step_size"
        with pytest.raises(ValueError, match=f"^{name} must"):
            make(quadratic, **options)
        with pytest.raises(TypeError, match="logdensity_fn must be callable"):
            make(None, **options)  # type: ignore[arg-type]
    wrong = elliptical_slice(quadratic, mean=0.0, cov=np.ones(2))
    with pytest.raises(ValueError, match=r"positions .*must hold 2 numbers a chain, as cov"):
        run(jax.random.key(0), wrong, np.zeros((4, 3)), num_samples=2)
    vector = delayed_rejection(lambda x: x, scale=1.0)
    with pytest.raises(ValueError, match="logdensity_fn must return one real number"):
        run(jax.random.key(0), vector, np.zeros((4, 3)), num_samples=2)


# The gain -------------------------------------------------------------------------------------------------


def test_expected_speedup_of_geometric_counts_is_the_closed_form():
    # E[max of m geometric counts] = sum over k of 1 - (1 - q^k)^m.
    q, m = 0.7, 32
    counts = np.random.default_rng(0).geometric(1 - q, size=(4_000, m))
    truth = sum(1 - (1 - q**k) ** m for k in range(500)) * (1 - q)
    report = expected_speedup(counts, step_cost_ratio=2.0)
    assert abs(report.ratio - truth) < 4 * report.standard_error < 0.2
    assert report.gain == report.ratio / 2 and report.verdict == "gain"
    assert report.waiting_iterations / report.machine_steps == pytest.approx(truth, rel=0.05)
    assert "gain" in report.summary() and report.to_frame().height == 1


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(1, 50), min_size=3, max_size=3), min_size=1, max_size=6))
def test_expected_speedup_is_bounded_and_knows_no_order(rows):
    counts = np.array(rows)
    report = expected_speedup(counts)
    assert 1 - 1e-12 <= report.ratio <= report.largest_gain + 1e-12
    assert report.ratio == pytest.approx(expected_speedup(counts[::-1, ::-1]).ratio)
    assert report.ratio == pytest.approx(expected_speedup(7 * counts).ratio)
    assert report.waiting_iterations >= report.machine_steps


def test_kernels_of_fixed_length_have_nothing_to_gain():
    report = expected_speedup(np.full((20, 64), 10))
    assert report.ratio == 1 and report.verdict == "no gain"
    # Hardly varying, and a step that costs more than an iteration.
    counts = np.random.default_rng(0).integers(9, 11, size=(20, 64))
    assert expected_speedup(counts, step_cost_ratio=1.5).verdict == "no gain"
    with pytest.raises(TypeError, match="inner_counts must hold integers"):
        expected_speedup(np.ones((2, 2)))
    with pytest.raises(ValueError, match="inner_counts must be counts"):
        expected_speedup([[0, 0]])
    with pytest.raises(ValueError, match="step_cost_ratio"):
        expected_speedup([[1, 2]], step_cost_ratio=0)


# The study -----------------------------------------------------------------------------------------------


def judged(metric, value):
    (check,) = [c for claim in lookup(SLUG).claims for c in claim.checks if c.metric == metric]
    return Bound.parse(check.bound).contains(value)


def test_planted_densities_shared_by_all_machines_turns_c1d(monkeypatch):
    # Chains by fours, data and lengths as in the study at smoke, which are compiled once for both.
    data = targets.gp_data(np.random.default_rng(0), 25)
    starts = np.random.default_rng(1).normal(size=(64, 4, 3)).astype(np.float32)
    waiting = targets.gp_waiting(*data)
    theirs = [waiting(jax.random.key(i), start, 20)[0][-1] for i, start in enumerate(starts)]

    def ks_p(machine) -> float:
        # Another target is set up before the first is run.
        elliptical_slice(lambda x: 20 * x[0], mean=0.0, cov=np.ones(3))
        ours = [
            run(jax.random.key(100 + i), machine, start, num_samples=20).samples[-1]
            for i, start in enumerate(starts)
        ]
        return arms.smallest_ks_p(np.concatenate(ours), np.concatenate(theirs))

    assert judged("ks_p_ess", ks_p(targets.gp_machine(*data)))
    last = []

    def shared(logdensity_fn):
        last.append(logdensity_fn)
        return lambda x: last[-1](x)

    monkeypatch.setattr(slices, "safe_density", shared)
    density = targets.gaussian_process(*data)
    machine = elliptical_slice(density, mean=np.zeros(3), cov=np.ones(3))
    assert not judged("ks_p_ess", ks_p(machine))


@pytest.fixture(scope="module")
def smoke():
    return study.run(Context("smoke", seed=100))


def test_study_delivers_what_the_card_asks_for(smoke):
    card = lookup(SLUG)
    assert set(card.metrics("standard")) <= set(smoke.metrics)
    assert all(math.isfinite(value) for values in smoke.metrics.values() for value in values)
    assert judged("evaluation_ratio", smoke.metrics["evaluation_ratio"][0])
    assert judged("extra_steps", smoke.metrics["extra_steps"][0])
    with pytest.raises(ValueError, match="preset must be one of"):
        study.run(Context("large", seed=0))
    with pytest.raises(ValueError, match=r"german\.data-numeric"):
        study.run(Context("paper", seed=0))


def test_p_values_see_a_difference_and_no_more():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 400, 3))
    assert arms.smallest_ks_p(a, b) > 0.01
    assert arms.smallest_ks_p(a, b + np.array([0, 0.5, 0])) < 1e-6
    deep, same, deeper = rng.poisson(4, 400), rng.poisson(4, 400), rng.poisson(5, 400)
    assert arms.same_counts_p(deep, same) > 0.01
    assert arms.same_counts_p(deep, deeper) < 1e-6
    assert arms.same_counts_p(np.full(9, 3), np.full(9, 3)) == 1


def test_targets_are_what_they_are_called():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4))
    normal = stats.multivariate_normal(np.zeros(4), targets._correlated(4, 0.9))

    def compare(density, reference):
        ours = np.array([float(density(jnp.asarray(row, jnp.float32))) for row in x])
        np.testing.assert_allclose(ours - ours[0], reference - reference[0], rtol=1e-3, atol=1e-3)

    compare(targets.normal_density(4, 0.9), normal.logpdf(x))
    modes = [stats.multivariate_normal(np.full(4, mu), normal.cov / 2).pdf(x) for mu in (5, -5)]
    compare(targets.mixture(4, 0.9), np.log(modes[0] + modes[1]))
    draws = targets.mixture_draws(rng, 20_000, 2, 0.9)
    np.testing.assert_allclose(np.cov(draws.T), 25 + targets._correlated(2, 0.9) / 2, rtol=0.02)
    X, y = targets.gp_data(rng, 6)
    logs = np.array([0.2, -0.3, 0.1])
    kernel = math.exp(-0.6) * np.exp(-0.5 * (X - X.T) ** 2 / math.exp(0.4))
    kernel += (math.exp(0.2) + 1e-4) * np.eye(6)
    reference = stats.multivariate_normal(np.zeros(6), kernel).logpdf(y) + 3 * math.log(2 * math.pi)
    assert float(targets.gaussian_process(X, y)(jnp.asarray(logs))) == pytest.approx(reference, abs=1e-3)


@pytest.mark.slow
def test_paper_preset_runs_on_the_paper_s_layout(tmp_path):
    rng = np.random.default_rng(0)
    estate = rng.normal(5, 3, size=(30, 8))
    lines = ["No,X1,X2,X3,X4,X5,X6,Y", *(",".join(f"{v:.4f}" for v in row) for row in estate)]
    (tmp_path / "Real estate valuation data set.csv").write_text("\n".join(lines))
    credit = np.column_stack([rng.integers(0, 9, size=(40, 24)), rng.integers(1, 3, size=40)])
    text = "\n".join("  ".join(map(str, row)) for row in credit)
    (tmp_path / "german.data-numeric").write_text(text)
    measured = study.run(Context("paper", seed=100, data_folder=tmp_path, limit=8))
    assert set(lookup(SLUG).metrics("paper")) <= set(measured.metrics)
    assert all(math.isfinite(value) for values in measured.metrics.values() for value in values)


@pytest.mark.slow
@pytest.mark.parametrize("amortised", [True, False])
def test_slices_along_random_directions_have_the_law_of_their_target(amortised):
    cov = np.array([[1.0, 0.6], [0.6, 2.0]])
    precision = jnp.asarray(np.linalg.inv(cov), jnp.float32)

    def density(x):
        value = -0.5 * x["x"] @ precision @ x["x"] - 0.5 * x["t"] ** 2
        return jnp.where(x["t"] < 0, jnp.nan, value)

    rng = np.random.default_rng(0)
    start = {
        "x": (rng.normal(size=(512, 2)) @ np.linalg.cholesky(cov).T).astype(np.float32),
        "t": np.abs(rng.normal(size=512)).astype(np.float32),
    }
    options = {"width": 0.7, "max_steps_out": 3, "amortised": amortised}
    traces = [
        run(jax.random.key(0), slice_sampler(density, bundled=bundled, **options), start, num_samples=100)
        for bundled in (True, False)
    ]
    np.testing.assert_allclose(traces[1].samples["x"], traces[0].samples["x"], atol=1e-4)
    np.testing.assert_array_equal(traces[1].inner_counts, traces[0].inner_counts)
    assert traces[1].steps > traces[0].steps + 150
    x, t = (np.asarray(traces[0].samples[name], np.float64) for name in ("x", "t"))
    assert t.min() >= 0
    assert np.abs(z_scores(x.mean(axis=0), 0)).max() < 4
    assert np.abs(z_scores(np.einsum("nmi,nmj->mij", x, x) / 100, cov)).max() < 4
    assert abs(z_scores(t.mean(axis=0), math.sqrt(2 / math.pi))) < 4


@pytest.mark.slow
def test_nuts_on_pytrees_with_dense_masses_divergences_and_nan():
    mass = np.diag([1.0, 0.5, 0.8]) + 0.1

    def density(x):
        value = -2 * jnp.sum((x["a"] - 1) ** 2) - 0.5 * x["b"] ** 2
        return jnp.where(x["b"] > 1.5, jnp.nan, value)

    rng = np.random.default_rng(0)
    b = stats.truncnorm(-np.inf, 1.5)
    start = {
        "a": rng.normal(1, 0.5, size=(256, 2)).astype(np.float32),
        "b": b.rvs(size=256, random_state=rng).astype(np.float32),
    }
    options: dict[str, Any] = {"step_size": 0.4, "inverse_mass_matrix": mass}
    key = jax.random.key(0)
    trace = run(key, nuts(density, **options), start, num_samples=100)
    plain = run(key, nuts(density, bundled=False, **options), start, num_samples=100)
    np.testing.assert_allclose(plain.samples["a"], trace.samples["a"], atol=1e-3)
    np.testing.assert_array_equal(plain.inner_counts, trace.inner_counts)
    assert plain.steps > 1.5 * trace.steps
    # NaN ends a trajectory as a divergence, which is reported and gives no draw.
    assert np.asarray(trace.info.is_divergent).any()
    a, drawn = (np.asarray(trace.samples[name], np.float64) for name in ("a", "b"))
    assert drawn.max() <= 1.5
    assert np.abs(z_scores(a.mean(axis=0), 1)).max() < 4
    assert np.abs(z_scores(((a - 1) ** 2).mean(axis=0), 0.25)).max() < 4
    assert abs(z_scores(drawn.mean(axis=0), b.mean())) < 4

    theirs = blackjax.nuts(density, step_size=0.4, inverse_mass_matrix=jnp.asarray(mass, jnp.float32))
    visits = 2 + 2 * np.asarray(trace.info.num_trajectory_expansions) + np.asarray(trace.inner_counts)
    positions, info = replay(theirs, key, visits, start, trace.samples)
    ours = flattened(trace.samples)["a"]
    # Rounding may decide a comparison in a few of 25,600 draws.
    assert np.mean(np.abs(positions["a"] - ours).max(axis=1) < 1e-4) > 0.999
    assert np.mean(info.is_divergent == flattened(trace.info.is_divergent)) > 0.999


@pytest.mark.slow
def test_keeping_the_first_draws_over_all_chains_would_be_biased():
    # Half of the states emit in one step, half in ten: a total count sees the fast ones too often.
    def init(position, key):
        return Countdown(position, jnp.int32(0), jnp.int32(0))

    def start(data, key):
        fresh = jax.random.bernoulli(key).astype(jnp.float32)
        return data._replace(position=fresh, left=(9 * fresh).astype(jnp.int32)), 1, False

    def wait(data, key):
        return data._replace(left=data.left - 1, work=data.work + 1), jnp.where(data.left == 0, 2, 1), False

    machine = machine_from_blocks(init, [start, wait, lambda data, key: (data, 0, True)])
    trace = run(jax.random.key(0), machine, np.zeros(400), num_samples=10)
    samples, counts = np.asarray(trace.samples), np.asarray(trace.inner_counts)
    assert abs(z_scores(samples.mean(axis=0), 0.5)) < 4
    finished = counts.cumsum(axis=0)
    early = np.sort(finished.ravel())[samples.size // 2]
    assert samples[finished <= early].mean() < 0.45


@pytest.mark.slow
def test_time_is_linear_in_draws():
    import time

    machine = elliptical_slice(quadratic, mean=0.0, cov=np.ones(5))
    start = np.zeros((128, 5), np.float32)

    def seconds(n):
        best = math.inf
        for _ in range(4):  # the first one compiles
            begun = time.perf_counter()
            jax.block_until_ready(run(jax.random.key(0), machine, start, num_samples=n).samples)
            best = min(best, time.perf_counter() - begun)
        return best

    assert seconds(8_000) < 6 * seconds(2_000)


def test_limits_of_the_paper_preset_cut_draws_and_chains():
    size = study.limited(study.SIZES["paper"], 8)
    assert size.gp_draws == size.gp_chains == size.mixture_draws == 8
    assert size.mixture_d == 100 and size.clock_chains == (8,)
    assert study.limited(size, None) == size == replace(size)
