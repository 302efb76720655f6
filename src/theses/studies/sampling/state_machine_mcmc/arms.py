"""What is run and counted in each arm of the study."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from theses.evidence import Context
from theses.studies.sampling.state_machine_mcmc import targets

__all__ = ["Size", "clock", "elliptical", "gaussian", "mixture", "others", "schools", "variants"]

Data = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Size:
    """How large to measure.

    Parameters
    ----------
    n_chains, n_warmup, n_draws : int
        NUTS on the Gaussian (no warm-up) and on the eight schools.
    gp_points, gp_chains, gp_warmup, gp_pilot, gp_draws : int
        Elliptical slice sampling in the arm that counts; R(m) is predicted from the pilot.
    clock_points, clock_draws, rounds : int
        Elliptical slice sampling in the arm that times.
    clock_chains : tuple of int
        Numbers of chains of that arm.
    mixture_d, mixture_chains, mixture_draws : int
        NUTS on the mixture.
    rejection_chains, rejection_draws : int
        Delayed rejection.
    slice_chains, slice_draws : int
        Slice sampling of the logistic regression.
    variant_chains, variant_draws : int
        Each variant of the machine.
    shared : bool
        One target for all NUTS arms and one data set for all seeds, so that the compiler is called less.

    Examples
    --------
    >>> Size.__name__
    'Size'
    """

    n_chains: int
    n_warmup: int
    n_draws: int
    gp_points: int
    gp_chains: int
    gp_warmup: int
    gp_pilot: int
    gp_draws: int
    clock_points: int
    clock_draws: int
    rounds: int
    clock_chains: tuple[int, ...]
    mixture_d: int
    mixture_chains: int
    mixture_draws: int
    rejection_chains: int
    rejection_draws: int
    slice_chains: int
    slice_draws: int
    variant_chains: int
    variant_draws: int
    shared: bool = False


D = 10
CORRELATION = 0.5
STEP = 0.5
SCHOOLS_STEP = 0.3
MIXTURE_CORRELATION = 0.99
MIXTURE_STEP = 0.0316
REJECTION_SCALE = 0.01
VARIANTS = {
    "bundled, amortised": (True, True),
    "bundled": (False, True),
    "amortised": (True, False),
    "neither": (False, False),
}


def _key(ctx: Context, name: str) -> Any:
    import jax

    return jax.random.key(ctx.integer(name))


def gaussian(ctx: Context, size: Size) -> dict[str, Any]:
    """C1a: errors of means and variances in standard errors over chains, from an exact start."""
    from theses.sampling.state_machine_mcmc import run

    machine, _ = targets.nuts_pair("normal", D, CORRELATION, STEP)
    start = targets.normal_draws(ctx.rng("gaussian"), size.n_chains, D, CORRELATION)
    trace = run(_key(ctx, "gaussian"), machine, start, num_samples=size.n_draws)
    samples = np.asarray(trace.samples, np.float64)
    means, squares = samples.mean(axis=0), (samples**2).mean(axis=0)
    z = [_z(means, 0.0), _z(squares, 1.0)]
    return {"z": np.concatenate(z), "depth": np.asarray(trace.info.num_trajectory_expansions).mean()}


def _z(values: NDArray[np.float64], truth: float) -> NDArray[np.float64]:
    """Error of the mean over chains (first axis) in standard errors."""
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return np.asarray((values.mean(axis=0) - truth) / error)


def schools(ctx: Context, size: Size) -> dict[str, Any]:
    """C1b, C1c: last draws and tree depths of our chains against those of BlackJAX's."""
    from theses.sampling.state_machine_mcmc import run

    name, step = ("normal", STEP) if size.shared else ("schools", SCHOOLS_STEP)
    machine, waiting = targets.nuts_pair(name, D, CORRELATION, step)
    starts = [
        ctx.rng(f"schools start {i}").uniform(-1, 1, size=(size.n_chains, D)).astype(np.float32)
        for i in range(2)
    ]
    trace = run(_key(ctx, "schools"), machine, starts[0], num_samples=size.n_draws, num_warmup=size.n_warmup)
    total = size.n_warmup + size.n_draws
    theirs, _, depths = waiting(_key(ctx, "schools, BlackJAX"), starts[1], total)
    return {
        "ours": np.asarray(trace.samples[-1]),
        "theirs": np.asarray(theirs[-1]),
        "our_depths": np.asarray(trace.info.num_trajectory_expansions[-1]),
        "their_depths": np.asarray(depths[-1]),
        "divergences": int(np.asarray(trace.info.is_divergent).sum()),
    }


def smallest_ks_p(ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    """Smallest two-sample Kolmogorov-Smirnov p over the columns, after Bonferroni."""
    from scipy.stats import ks_2samp

    p = [ks_2samp(a, b).pvalue for a, b in zip(ours.T, theirs.T, strict=True)]
    return float(min(1.0, len(p) * min(p)))


def same_counts_p(ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    """Chi-square p of two samples of integers; rare ones are joined to their neighbours."""
    from scipy.stats import chi2_contingency

    values = np.union1d(ours, theirs)
    table = np.array([[np.sum(sample == v) for v in values] for sample in (ours, theirs)])
    bins: list[NDArray[Any]] = []
    for column in table.T:
        # Five expected cases a cell, as the test's approximation wants them.
        if bins and bins[-1].sum() < 10:
            bins[-1] = bins[-1] + column
        else:
            bins.append(column)
    if len(bins) > 1 and bins[-1].sum() < 10:
        last = bins.pop()
        bins[-1] = bins[-1] + last
    return float(chi2_contingency(np.array(bins).T).pvalue) if len(bins) > 1 else 1.0


def elliptical(ctx: Context, size: Size, data: Data) -> dict[str, Any]:
    """C1d, C2: last draws, and iterations of chains that wait over steps of chains that do not."""
    from theses.sampling.state_machine_mcmc import expected_speedup, run

    machine, waiting = targets.gp_machine(*data), targets.gp_waiting(*data)
    m = size.gp_chains
    starts = [ctx.rng(f"elliptical start {i}").normal(size=(m, 3)).astype(np.float32) for i in range(2)]
    pilot = run(_key(ctx, "pilot"), machine, starts[0], num_samples=size.gp_pilot, num_warmup=size.gp_warmup)
    ctx.progress(0.25, "elliptical slice, chains that drift apart")
    trace = run(_key(ctx, "elliptical"), machine, pilot.samples[-1], num_samples=size.gp_draws)
    ctx.progress(0.35, "elliptical slice, chains that wait")
    # Counted from the same draw on as ours.
    key, other = _key(ctx, "elliptical, BlackJAX"), _key(ctx, "elliptical before, BlackJAX")
    start = waiting(other, starts[1], size.gp_warmup + size.gp_pilot)[0][-1]
    theirs, counts, _ = waiting(key, start, size.gp_draws)
    ours, counts, before = (np.asarray(a) for a in (trace.inner_counts, counts, pilot.inner_counts))
    rows = []
    for chains in (2**i for i in range(m.bit_length())):
        for first in range(0, m - chains + 1, chains):
            group = slice(first, first + chains)
            predicted = expected_speedup(before[:, group]).ratio
            waits = int(counts[:, group].max(axis=1).sum())
            steps = int(ours[:, group].sum(axis=0).max()) + 1  # the first step only asks for a density
            rows.append([chains, waits, steps, waits / steps, predicted])
    return {
        "ours": np.asarray(trace.samples[-1]),
        "theirs": np.asarray(theirs[-1]),
        "steps": trace.steps,
        "rows": np.array(rows, np.float64),
        "histogram": np.bincount(np.minimum(ours.ravel(), 20), minlength=21),
    }


def variants(ctx: Context, size: Size, data: Data) -> dict[str, Any]:
    """C5: steps, and density evaluations, a draw of the machine with and without its two devices.

    A step makes as many evaluations as its program has calls of the density, for under vmap both sides of
    each condition are executed.
    """
    import jax
    import jax.numpy as jnp

    from theses.sampling.state_machine_mcmc import elliptical_slice, run

    calls = [0]

    def counting(x: Any) -> Any:
        calls[0] += 1
        return -jnp.sum(x**2)

    start = ctx.rng("variants").normal(size=(size.variant_chains, 3)).astype(np.float32)
    result = {}
    for name, (amortised, bundled) in VARIANTS.items():
        counted = elliptical_slice(counting, mean=0.0, cov=np.ones(3), amortised=amortised, bundled=bundled)
        state = jax.eval_shape(counted.init, jnp.zeros(3), jax.random.key(0))
        calls[0] = 0
        jax.eval_shape(counted.step, state)
        a_step = calls[0]
        machine = targets.gp_machine(*data, amortised=amortised, bundled=bundled)
        trace = run(_key(ctx, "variants"), machine, start, num_samples=size.variant_draws)
        steps = trace.steps / size.variant_draws
        result[name] = {"steps": steps, "calls": a_step, "evaluations": steps * a_step}
    return result


def clock(ctx: Context, size: Size, data: Data) -> dict[str, Any]:
    """C3: wall clock of both, compiled before and called in turn."""
    from theses.evidence import interleave
    from theses.sampling.state_machine_mcmc import expected_speedup, run

    machine, waiting = targets.gp_machine(*data), targets.gp_waiting(*data)
    rows = []
    for chains in size.clock_chains:
        start = ctx.rng(f"clock {chains}").normal(size=(chains, 3)).astype(np.float32)
        key, other = _key(ctx, f"clock {chains}"), _key(ctx, f"clock {chains}, BlackJAX")
        kept: dict[str, Any] = {}

        def ours(key: Any = key, start: Any = start, kept: dict[str, Any] = kept) -> None:
            kept["trace"] = run(key, machine, start, num_samples=size.clock_draws)
            kept["trace"].samples.block_until_ready()

        def theirs(key: Any = other, start: Any = start, kept: dict[str, Any] = kept) -> None:
            kept["counts"] = waiting(key, start, size.clock_draws)[1]
            kept["counts"].block_until_ready()

        begun = time.perf_counter()
        ours()
        first_s = time.perf_counter() - begun
        theirs()
        # The claim is about 64 chains; the others are observed.
        rounds = size.rounds if chains == 64 else 1
        our_s, their_s = (statistics.median(s) for s in interleave([ours, theirs], repeats=rounds, warmup=0))
        waits = int(np.asarray(kept["counts"]).max(axis=1).sum())
        report = expected_speedup(np.asarray(kept["trace"].inner_counts))
        cost = (our_s / kept["trace"].steps) / (their_s / waits)
        rows.append([chains, our_s, their_s, their_s / our_s, report.ratio, cost, first_s])
    return {"rows": np.array(rows, np.float64)}


def mixture(ctx: Context, size: Size) -> dict[str, Any]:
    """C4: leapfrog iterations of NUTS chains that wait over steps of those that do not; time and ESS too."""
    from theses.evidence import interleave
    from theses.sampling.state_machine_mcmc import run

    name, d = ("normal", D) if size.shared else ("mixture", size.mixture_d)
    correlation, step = (CORRELATION, STEP) if size.shared else (MIXTURE_CORRELATION, MIXTURE_STEP)
    machine, waiting = targets.nuts_pair(name, d, correlation, step)
    draws = targets.normal_draws if size.shared else targets.mixture_draws
    starts = [draws(ctx.rng(f"mixture {i}"), size.mixture_chains, d, correlation) for i in range(2)]
    keys = [_key(ctx, "mixture"), _key(ctx, "mixture, BlackJAX")]
    n = size.mixture_draws

    kept: dict[str, Any] = {}

    def ours() -> None:
        kept["trace"] = run(keys[0], machine, starts[0], num_samples=n)
        kept["trace"].samples.block_until_ready()

    def theirs() -> None:
        kept["theirs"] = waiting(keys[1], starts[1], n)
        kept["theirs"][0].block_until_ready()

    times = interleave([ours, theirs], repeats=size.rounds)
    our_s, their_s = (statistics.median(seconds) for seconds in times)
    trace, (samples, counts, _) = kept["trace"], kept["theirs"]

    def ess(draws: Any) -> float:
        # No chain crosses between the modes: their distance from 0 is what mixes.
        return float(targets.effective_draws()(abs(draws.mean(axis=-1))))

    waits = int(np.asarray(counts).max(axis=1).sum())
    return {
        "waits": waits,
        "steps": trace.steps,
        "ratio": waits / trace.steps,
        "rows": [
            {"sampler": "state machine", "seconds": our_s, "ess": ess(trace.samples)},
            {"sampler": "BlackJAX", "seconds": their_s, "ess": ess(samples)},
        ],
        "divergences": int(np.asarray(trace.info.is_divergent).sum()),
    }


def others(ctx: Context, size: Size, data: Data) -> dict[str, Any]:
    """Observations: iterations over steps for delayed rejection, and for slices of a logistic regression."""
    from theses.sampling.state_machine_mcmc import run

    machine = targets.rejection_machine(REJECTION_SCALE, 100)
    start = ctx.rng("rejection").normal(size=(size.rejection_chains, 1)).astype(np.float32)
    rejection = run(_key(ctx, "rejection"), machine, start, num_samples=size.rejection_draws)
    d = data[0].shape[1] + 1
    start = ctx.rng("logistic").normal(0, 0.1, size=(size.slice_chains, d)).astype(np.float32)
    slices = run(_key(ctx, "logistic"), targets.logistic_machine(*data), start, num_samples=size.slice_draws)
    return {
        name: int(np.asarray(trace.inner_counts).max(axis=1).sum()) / trace.steps
        for name, trace in (("rejection", rejection), ("slice", slices))
    }
