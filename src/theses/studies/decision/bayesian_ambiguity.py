"""Measures what robust decisions cost out of sample, how portfolios fare, and whether the dual is tight.

A frontier is the mean and the variance of the out-of-sample cost over a grid of radii. A point is covered by
a method if one of the method's points has a mean and a variance that are at most as large, up to one standard
error of the paired difference. All methods meet the same data and the same fresh outcomes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from theses.evidence import Context, Measurement, interleave

if TYPE_CHECKING:
    import altair as alt

__all__ = ["figures", "run"]

Array = NDArray[np.float64]

N_DATA, N_TEST = 20, 50
H, B = 3.0, 8.0
EPSILON = 0.3
WEEKS_IN, WEEKS_OUT = 52, 12
BAS, PEER = ("PE", "PP"), ("BDRO",)


@dataclass(frozen=True)
class _Size:
    n_radii: int
    n_rep: int
    n_rep_900: int
    n_rep_vector: int
    n_windows: int
    n_assets: int
    n_rounds: int
    n_dual: int
    n_posterior: int


_SIZES = {
    "smoke": _Size(4, 2, 1, 1, 2, 10, 1, 3, 20),
    "standard": _Size(8, 20, 20, 6, 12, 10, 3, 20, 200),
    "long": _Size(8, 100, 100, 20, 48, 10, 3, 100, 1_000),
    "paper": _Size(8, 500, 500, 500, 48, 0, 3, 100, 1_000),
}


def run(ctx: Context) -> Measurement:
    """Measure one unit.

    Parameters
    ----------
    ctx : Context
        Surroundings. The ``paper`` preset takes weekly returns from ``returns.csv`` in ``ctx.data_folder``.

    Returns
    -------
    Measurement
        Shares of covered points, portfolios, the duality gap; tables of frontiers and portfolios.

    Raises
    ------
    ValueError
        If the preset is unknown, or ``paper`` comes without a data folder.
    """
    if ctx.preset not in _SIZES:
        raise ValueError(f"preset must be one of {', '.join(_SIZES)}, got {ctx.preset!r}")
    size = _SIZES[ctx.preset]
    if ctx.preset == "paper" and ctx.data_folder is None:
        raise ValueError(
            "the paper preset needs data_folder: a folder with returns.csv, a column of weekly returns for "
            "each asset and, first, one of dates"
        )
    if ctx.limit is not None:
        size = replace(
            size,
            n_rep=min(size.n_rep, ctx.limit),
            n_rep_900=min(size.n_rep_900, ctx.limit),
            n_rep_vector=min(size.n_rep_vector, ctx.limit),
            n_windows=min(size.n_windows, ctx.limit),
            n_dual=min(size.n_dual, ctx.limit),
            n_posterior=min(size.n_posterior, ctx.limit),
        )

    arms: dict[str, Any] = {}
    for share, name, law, n_samples, n_rep in (
        (0.0, "normal_25", "normal", 25, size.n_rep),
        (0.1, "normal_100", "normal", 100, size.n_rep),
        (0.25, "exp_25", "exp", 25, size.n_rep),
        (0.35, "bike_25", "bike", 25, size.n_rep),
        (0.45, "normal_900", "normal", 900, size.n_rep_900),
    ):
        ctx.progress(share, f"Newsvendor, {law}, {n_samples} samples")
        # Arms of one law meet the same data, whatever the number of samples.
        arms[name] = ctx.stage(name, partial(_newsvendor, ctx, size, law, n_samples, n_rep))
    ctx.progress(0.8, "Newsvendor of five goods")
    arms["vector_25"] = ctx.stage(
        "vector_25", lambda: _newsvendor(ctx, size, "vector", 25, size.n_rep_vector)
    )
    ctx.progress(0.85, "portfolios")
    portfolio = ctx.stage("portfolio", lambda: _portfolio(ctx, size))
    ctx.progress(0.95, "duality")
    gaps = ctx.stage("duality", lambda: _duality(ctx, size))
    coverage = ctx.stage("coverage", lambda: _coverage(ctx, size))

    frontiers = {name: {m: _points(c) for m, c in arm["costs"].items()} for name, arm in arms.items()}
    few = frontiers["normal_25"]
    pe = frontiers["normal_100"]["PE"]
    lowest = int(np.argmin(pe.mean))
    metrics: dict[str, Any] = {
        **{
            f"cover_{name}": _covered(frontiers[name], BAS, PEER)
            for name in ("normal_25", "normal_100", "exp_25")
        },
        "advantage": _covered(few, BAS, PEER, slack=0.0) - _covered(few, PEER, BAS, slack=0.0),
        "cover_bike": _covered(frontiers["bike_25"], BAS, PEER),
        "speed_pe": portfolio["solver_s"]["BDRO"] / portfolio["solver_s"]["PE"],
        "solver_s_bdro": portfolio["solver_s"]["BDRO"],
        "speed_pp": portfolio["total_s"]["BDRO"] / portfolio["total_s"]["PP"],
        "total_s_bdro": portfolio["total_s"]["BDRO"],
        "cvar_ratio": portfolio["cvar"]["PE"] / portfolio["cvar"]["BDRO"],
        "cvar_bdro": portfolio["cvar"]["BDRO"],
        "duality_gap": max(gaps),
        "rho_variance": _spearman(pe.epsilon, pe.variance),
        "rho_mean": _spearman(pe.epsilon[lowest + 1 :], pe.mean[lowest + 1 :]),
        "cover_normal_900": _covered(frontiers["normal_900"], BAS, PEER),
        "cover_vector": _covered(frontiers["vector_25"], BAS, PEER),
        "cover_strict_100": _covered(frontiers["normal_100"], BAS, PEER, slack=0.0),
        "cover_by_peer_strict_100": _covered(frontiers["normal_100"], PEER, BAS, slack=0.0),
        "cover_bro": _covered(few, BAS, ("BRO",)),
        "cover_empirical_kl": _covered(few, BAS, ("empirical KL",)),
        "cover_wasserstein": _covered(few, BAS, ("Wasserstein",)),
        "epsilon_star_coverage": coverage,
        "cvar_ratio_equal": portfolio["cvar"]["PE"] / portfolio["cvar"]["equal weights"],
    }
    rows = [
        {
            "arm": name,
            "method": method,
            "epsilon": float(epsilon),
            "mean": float(mean),
            "variance": float(variance),
        }
        for name, methods in frontiers.items()
        for method, points in methods.items()
        for epsilon, mean, variance in zip(points.epsilon, points.mean, points.variance, strict=True)
    ]
    tables = {
        "frontiers": pl.DataFrame(rows),
        "portfolio": portfolio["rounds"],
        "losses": portfolio["losses"],
        "gaps": pl.DataFrame({"case": list(range(len(gaps))), "gap": [float(gap) for gap in gaps]}),
    }
    solver = portfolio["solver_s"]
    notes = [f"seconds in the solver, BDRO over PP: {solver['BDRO'] / solver['PP']:.2f}"]
    return Measurement(metrics, tables, notes)


# Frontiers -----------------------------------------------------------------------------------------------


def _newsvendor(ctx: Context, size: _Size, law: str, n_samples: int, n_rep: int) -> dict[str, Any]:
    """Out-of-sample costs of all methods, shape (n_radii, n_rep, n_test) each."""
    from theses.decision.bayesian_ambiguity import (
        BDRO,
        BRO,
        DROBAS,
        EmpiricalKLDRO,
        Newsvendor,
        WassersteinDRO,
        out_of_sample_costs,
    )

    split = round(n_samples**0.5)
    model, data = _law(law)
    methods: dict[str, Any] = {
        "PE": lambda epsilon, g: DROBAS(model, "PE", epsilon, n_samples, random_state=g),
        "PP": lambda epsilon, g: DROBAS(model, "PP", epsilon, n_samples, random_state=g),
        "BDRO": lambda epsilon, g: BDRO(model, epsilon, split, split, random_state=g),
    }
    if law == "normal" and n_samples == 25:
        methods["BRO"] = lambda epsilon, g: BRO(model, n_samples, random_state=g)
        methods["empirical KL"] = lambda epsilon, g: EmpiricalKLDRO(epsilon)
        methods["Wasserstein"] = lambda epsilon, g: WassersteinDRO(epsilon)
    cost = Newsvendor(H, B, dim=5 if law == "vector" else 1)
    with warnings.catch_warnings():
        # That PP's population problem is infinite here is on the card.
        warnings.simplefilter("ignore")
        costs, _ = out_of_sample_costs(methods, _radii(size), data, n_rep, cost, ctx.rng(law))
    return {"costs": costs}


def _radii(size: _Size) -> Array:
    return np.geomspace(0.05, 3.0, size.n_radii)


def _law(name: str) -> tuple[Any, Callable[[np.random.Generator], tuple[Array, Array]]]:
    """A model, and what draws observations and fresh outcomes."""
    from theses.decision.bayesian_ambiguity import GammaExponential, NormalGamma, NormalInverseWishart

    if name == "exp":
        return GammaExponential(1, 1), lambda g: (g.exponential(20, N_DATA), g.exponential(20, N_TEST))
    if name == "vector":
        prior = NormalInverseWishart(np.zeros(5), 0.01, 6, np.eye(5))
        return prior, lambda g: (g.normal(25, 10, (N_DATA, 5)), g.normal(25, 10, (N_TEST, 5)))
    if name == "bike":
        from theses.datasets.bikeshare import bikers_at

        demand = bikers_at(17) / 100

        def days(generator: np.random.Generator) -> tuple[Array, Array]:
            chosen = demand[generator.permutation(len(demand))[: N_DATA + N_TEST]]
            return chosen[:N_DATA], chosen[N_DATA:]

        return NormalGamma(0, 0.01, 1, 1), days
    return NormalGamma(0, 0.01, 1, 1), lambda g: (g.normal(25, 10, N_DATA), g.normal(25, 10, N_TEST))


@dataclass(frozen=True)
class _Points:
    """Points of a frontier, with what each repetition adds to mean and variance."""

    epsilon: Array
    mean: Array
    variance: Array
    means: Array  # (n_points, n_rep)
    variances: Array


def _points(costs: Array) -> _Points:
    kept = np.isfinite(costs).all(axis=(1, 2))
    values = costs[kept]
    mean = values.mean(axis=(1, 2))
    means = values.mean(axis=2)
    # The variance is about the mean over all repetitions; its average over them is the pooled variance.
    variances = ((values - mean[:, None, None]) ** 2).mean(axis=2)
    epsilon = np.geomspace(0.05, 3.0, len(costs))[kept]
    return _Points(epsilon, mean, variances.mean(axis=1), means, variances)


def _covered(
    frontiers: Mapping[str, _Points], by: Sequence[str], of: Sequence[str], slack: float = 1.0
) -> float:
    """Share of the points of some methods that are covered by points of others."""
    hits: list[bool] = []
    for target in (frontiers[name] for name in of):
        for mean, variance in zip(target.means, target.variances, strict=True):
            hit = False
            for points in (frontiers[name] for name in by):
                cheaper = _at_most(points.means - mean, slack)
                steadier = _at_most(points.variances - variance, slack)
                hit |= bool((cheaper & steadier).any())
            hits.append(hit)
    return float(np.mean(hits))


def _at_most(differences: Array, slack: float) -> NDArray[np.bool_]:
    """Whether the mean paired difference is at most ``slack`` of its standard errors."""
    n = differences.shape[1]
    error = differences.std(axis=1, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(len(differences))
    return np.asarray(differences.mean(axis=1) <= slack * error)


def _spearman(a: Array, b: Array) -> float:
    """Rank correlation; 0 for fewer than three points, which show no trend."""
    from scipy.stats import spearmanr

    if len(a) < 3 or np.ptp(b) == 0:
        return 0.0
    return float(spearmanr(a, b).statistic)


# Portfolios, duality, radius -----------------------------------------------------------------------------


def _portfolio(ctx: Context, size: _Size) -> dict[str, Any]:
    from theses.datasets.returns import load_returns, load_weekly_returns
    from theses.decision.bayesian_ambiguity import BDRO, DROBAS, MvNormalKnownCov, Portfolio

    if ctx.preset == "paper":
        assert ctx.data_folder is not None
        returns = load_returns(ctx.data_folder / "returns.csv").values
    else:
        returns = load_weekly_returns(size.n_assets).values
    n_starts = len(returns) - WEEKS_IN - WEEKS_OUT + 1
    if n_starts < 1:
        raise ValueError(f"returns.csv must have {WEEKS_IN + WEEKS_OUT} weeks or more, got {len(returns)}")
    generator = ctx.rng("windows")
    starts = generator.choice(n_starts, size=min(size.n_windows, n_starts), replace=False)
    cost = Portfolio()
    rounds: list[dict[str, Any]] = []
    losses: dict[str, list[Array]] = {name: [] for name in ("PE", "PP", "BDRO", "equal weights")}
    for window, start in enumerate(starts):
        known = returns[start : start + WEEKS_IN]
        fresh = returns[start + WEEKS_IN : start + WEEKS_IN + WEEKS_OUT]
        model = MvNormalKnownCov(np.zeros(known.shape[1]), 0.01, np.cov(known.T))
        seed = int(generator.integers(2**32))
        methods: dict[str, Any] = {
            "PE": DROBAS(model, "PE", EPSILON, 100, random_state=seed),
            "PP": DROBAS(model, "PP", EPSILON, 100, mode="sample", random_state=seed),
            "BDRO": BDRO(model, EPSILON, 10, 10, random_state=seed),
        }
        solver_s: dict[str, list[float]] = {name: [] for name in methods}

        def solve(name: str, methods: Any = methods, solver_s: Any = solver_s) -> None:
            solver_s[name].append(methods[name].solve(cost).solver_time)

        for method in methods.values():
            method.fit(known)
        # The first window also warms up the modelling layer.
        warmup = 1 if window == 0 else 0
        totals = interleave(
            [partial(solve, name) for name in methods],
            repeats=size.n_rounds,
            warmup=warmup,
        )
        for name, total in zip(methods, totals, strict=True):
            decision = methods[name].decision_
            if decision.x is None:
                raise RuntimeError(f"window {start}: {name} has no portfolio: {decision.status}")
            losses[name].append(-fresh @ decision.x)
            rounds += [
                {"window": window, "method": name, "round": i, "solver_s": s, "total_s": t}
                for i, (s, t) in enumerate(zip(solver_s[name][warmup:], total, strict=True))
            ]
        losses["equal weights"].append(-fresh.mean(axis=1))
    table = pl.DataFrame(rounds)

    def medians(column: str) -> dict[str, float]:
        return dict(table.group_by("method").agg(pl.col(column).median()).iter_rows())

    pooled = {name: np.concatenate(values) for name, values in losses.items()}
    return {
        "solver_s": medians("solver_s"),
        "total_s": medians("total_s"),
        "cvar": {name: _cvar(values) for name, values in pooled.items()},
        "rounds": table,
        "losses": pl.DataFrame({"method": list(pooled)}).with_columns(
            mean=pl.Series([float(v.mean()) for v in pooled.values()]),
            deviation=pl.Series([float(v.std()) for v in pooled.values()]),
            cvar=pl.Series([_cvar(v) for v in pooled.values()]),
        ),
    }


def _cvar(losses: Array, level: float = 0.95) -> float:
    """Mean of the worst share ``1 - level`` of the losses, the last of them in part."""
    ordered = np.sort(losses)[::-1]
    share = (1 - level) * len(ordered)
    weights = np.clip(share - np.arange(len(ordered)), 0, 1)
    return float(ordered @ weights / share)


def _duality(ctx: Context, size: _Size) -> list[float]:
    """Relative gaps between the worst law, found as such by a programme of its own, and the dual's value.

    Each case has a normal model, whose worst law is sought on the samples, and a categorical one, whose
    expected divergence is written out; G and the nominal law are the method's business there.
    """
    from scipy.special import digamma

    from theses.decision.bayesian_ambiguity import (
        DROBAS,
        DirichletCategorical,
        Newsvendor,
        NormalGamma,
        worst_case_expectation,
    )
    from theses.decision.bayesian_ambiguity.costs import load_cvxpy

    cp = load_cvxpy()
    cost = Newsvendor(H, B)

    def largest(costs: Array, divergence: Callable[[Any], Any], epsilon: float) -> float:
        unit = float(costs.std())
        q = cp.Variable(len(costs))
        problem = cp.Problem(
            cp.Maximize(costs / unit @ q), [cp.sum(q) == 1, q >= 0, divergence(q) <= epsilon]
        )
        problem.solve(solver="CLARABEL")
        return float(problem.value) * unit

    generator = ctx.rng("duality")
    gaps = []
    for _ in range(size.n_dual):
        x = float(generator.normal(25, 10))
        epsilon = float(np.exp(generator.uniform(np.log(0.3), np.log(2.5))))

        robust = DROBAS(NormalGamma(0, 0.01, 1, 1), "PE", epsilon).fit(generator.normal(25, 10, N_DATA))
        samples = robust.model_.eta_bar().sample(25, generator)
        costs = cost.evaluate(x, samples)
        alpha, kappa = 1 + N_DATA / 2, 0.01 + N_DATA
        G = float(1 / kappa + np.log(alpha) - digamma(alpha)) / 2
        uniform = np.full(len(costs), 1 / len(costs))

        def sampled(q: Any, uniform: Array = uniform, G: float = G) -> Any:
            return cp.sum(cp.rel_entr(q, uniform)) + G

        dual = worst_case_expectation(costs, robust.radius_).value
        gaps.append(abs(largest(costs, sampled, epsilon) - dual) / abs(dual))

        outcomes = np.sort(generator.normal(25, 10, 5))
        seen = generator.integers(5, size=N_DATA)
        counted = DROBAS(DirichletCategorical(np.ones(5), outcomes), "PE", epsilon).fit(seen)
        posterior = 1 + np.bincount(seen, minlength=5)
        expected_log = digamma(posterior) - digamma(posterior.sum())

        def expected(q: Any, expected_log: Array = expected_log) -> Any:
            return -cp.sum(cp.entr(q)) - expected_log @ q

        dual = counted.solve(cost, (x, x)).value
        gaps.append(abs(largest(cost.evaluate(x, outcomes), expected, epsilon) - dual) / abs(dual))
    return gaps


def _coverage(ctx: Context, size: _Size) -> float:
    """Share of data sets whose set of radius epsilon* holds the true law."""
    from theses.decision.bayesian_ambiguity import DROBAS, NormalGamma

    generator = ctx.rng("coverage")
    truth = (np.array(25.0), np.array(100.0))
    inside = []
    for _ in range(size.n_posterior):
        robust = DROBAS(NormalGamma(0, 0.01, 1, 1), epsilon="auto", random_state=generator)
        robust.fit(generator.normal(25, 10, N_DATA))
        needed = robust.model_.kl(truth, robust.model_.eta_bar().params) + robust.G_
        inside.append(needed <= robust.epsilon_)
    return float(np.mean(inside))


# Figures -------------------------------------------------------------------------------------------------

_TITLES = {
    "normal_25": "normal, N = 25",
    "normal_100": "normal, N = 100",
    "exp_25": "exponential, N = 25",
    "bike_25": "bicycles, N = 25",
    "normal_900": "normal, N = 900",
    "vector_25": "five goods, N = 25",
}


def figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, alt.Chart]:
    """Charts of the stored tables.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        ``frontiers``, ``portfolio``, ``losses`` and ``gaps``, each with a column ``seed``.

    Returns
    -------
    dict of str to altair.Chart
        ``frontiers`` of mean and variance, ``seconds`` of the portfolios, ``losses`` out of sample, and the
        ``duality`` gaps.
    """
    import altair as alt

    # Units have as many repetitions each: means and variances about them average.
    points = (
        tables["frontiers"]
        .group_by("arm", "method", "epsilon")
        .agg(pl.col("mean").mean(), pl.col("variance").mean())
        .with_columns(arm=pl.col("arm").replace_strict(_TITLES))
        .sort("arm", "method", "epsilon")
    )
    frontiers = (
        alt.Chart(points)
        .mark_line(point=True)
        .encode(
            x=alt.X("variance:Q", title="variance of the out-of-sample cost").scale(zero=False),
            y=alt.Y("mean:Q", title="mean").scale(zero=False),
            color=alt.Color("method:N", title=None),
            order="epsilon:Q",
            tooltip=["method:N", "epsilon:Q", "mean:Q", "variance:Q"],
        )
        .properties(width=260, height=180)
        .facet(alt.Facet("arm:N", title=None), columns=2, title="Frontiers over the radius")
        .resolve_scale(x="independent", y="independent")
    )
    times = tables["portfolio"].unpivot(
        ["solver_s", "total_s"], index=["method", "window", "round", "seed"], variable_name="part"
    )
    times = times.with_columns(
        part=pl.col("part").replace_strict({"solver_s": "in the solver", "total_s": "in all"})
    )
    seconds = (
        alt.Chart(times)
        .mark_boxplot()
        .encode(
            x=alt.X("value:Q", title="seconds of a portfolio").scale(type="log"),
            y=alt.Y("method:N", title=None),
            row=alt.Row("part:N", title=None),
        )
        .properties(width=420, height=90, title="What a portfolio costs to find")
    )
    losses = (
        alt.Chart(tables["losses"])
        .mark_point(filled=True, size=60)
        .encode(
            x=alt.X("cvar:Q", title="CVaR 0.95 of the weekly loss, out of sample").scale(zero=False),
            y=alt.Y("mean:Q", title="mean weekly loss"),
            color=alt.Color("method:N", title=None),
            tooltip=["method:N", "seed:N", "mean:Q", "cvar:Q"],
        )
        .properties(width=420, height=240, title="Portfolios out of sample, a point a seed")
    )
    floor = tables["gaps"].with_columns(gap=pl.col("gap").clip(1e-16))
    duality = (
        alt.Chart(floor)
        .mark_tick()
        .encode(
            x=alt.X("gap:Q", title="relative gap between worst law and dual").scale(type="log"),
            y=alt.Y("seed:N", title="seed"),
        )
        .properties(width=420, title="Strong duality")
    )
    return {"frontiers": frontiers, "seconds": seconds, "losses": losses, "duality": duality}
