"""Measures VES-Gamma beside LogEI, MES and UCB: the regret of whole runs, and the bound on states from them.

Every acquisition function runs on Branin and Hartmann-6 from the same initial design with the same model and
effort. Prefixes of these runs are the states on which the exponential case is held against Expected
Improvement, the Gamma against the exponential density, and the density against its quadrature.
"""

from __future__ import annotations

import json
import math
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from theses.evidence import Context, Measurement

if TYPE_CHECKING:
    import altair as alt
    from torch import Tensor

__all__ = ["figures", "run"]

ACQUISITIONS = ("ves_gamma", "logei", "mes", "ucb")
REGRET_FLOOR = 1e-6
_LAYOUT = (
    "a folder with objectives.toml: for each objective to be maximised a table [[objective]] with name, "
    "lower and upper (one number an input), and command, a list of words; the command is run in that folder, "
    "without a shell, reads a JSON list of inputs from standard input and prints the value"
)


@dataclass(frozen=True)
class _Size:
    n_init: int
    n_iter: int
    n_states: int  # of each problem
    num_paths: int  # of the runs
    num_restarts: int
    raw_samples: int
    state_paths: int
    n_grid: int
    n_x: int
    alternating: int  # rounds


_SIZES = {
    "smoke": _Size(5, 1, 1, 4, 1, 8, 8, 64, 4, 1),
    "standard": _Size(10, 20, 5, 64, 2, 128, 128, 4096, 64, 5),
    "long": _Size(10, 20, 5, 64, 2, 128, 128, 4096, 64, 5),
    "paper": _Size(20, 100, 5, 128, 5, 512, 128, 4096, 64, 5),
}


@dataclass(frozen=True)
class _Problem:
    name: str
    dimension: int
    optimum: float
    objective: Callable[[Tensor], Tensor]  # on the unit cube, maximised


def run(ctx: Context) -> Measurement:
    """Measure one unit.

    Parameters
    ----------
    ctx : Context
        Surroundings. The ``paper`` preset also optimises the objectives of ``ctx.data_folder``: it runs the
        commands that the folder's objectives.toml names, without a shell.

    Returns
    -------
    Measurement
        Differences of regret, agreement with Expected Improvement, fit and tightness of the Gamma density.

    Raises
    ------
    ValueError
        If the preset is unknown, ``paper`` comes without a data folder of its layout, or a command of it
        fails or prints anything but a number.
    """
    if ctx.preset not in _SIZES:
        raise ValueError(f"preset must be one of {', '.join(_SIZES)}, got {ctx.preset!r}")
    size = _SIZES[ctx.preset]
    if ctx.preset == "paper" and ctx.data_folder is None:
        raise ValueError(f"the paper preset needs data_folder: {_LAYOUT}")
    # Read before the runs, which take hours.
    objectives = [] if ctx.preset != "paper" or ctx.data_folder is None else _read(ctx.data_folder)
    if ctx.limit is not None:
        size = replace(
            size,
            n_init=min(size.n_init, max(ctx.limit, 2)),
            n_iter=min(size.n_iter, ctx.limit),
            n_states=min(size.n_states, ctx.limit),
            num_paths=min(size.num_paths, 8 * ctx.limit),
            raw_samples=min(size.raw_samples, 16 * ctx.limit),
            state_paths=min(size.state_paths, 8 * ctx.limit),
            n_grid=min(size.n_grid, 64 * ctx.limit),
            num_restarts=min(size.num_restarts, ctx.limit),
            alternating=min(size.alternating, ctx.limit),
        )

    problems = [_synthetic("Branin", 2), _synthetic("Hartmann", 6)]
    runs: dict[str, dict[str, Any]] = {}
    for i, problem in enumerate(problems):
        runs[problem.name] = {}
        for j, acq in enumerate(ACQUISITIONS):
            ctx.progress((4 * i + j) / 10, f"{problem.name}, {acq}")
            runs[problem.name][acq] = ctx.stage(
                f"{problem.name} {acq}", partial(_optimise, ctx, size, problem, acq, size.n_iter)
            )
    ctx.progress(0.8, "states")
    states = [
        ctx.stage(f"{problem.name} state {index}", partial(_state, ctx, size, problem, runs, index))
        for problem in problems
        for index in range(size.n_states)
    ]
    ctx.progress(0.97, "alternating")
    alternating = ctx.stage("alternating", lambda: _alternating(ctx, size, problems[1], runs))

    metrics: dict[str, Any] = {
        "same_argmax": [float(state["same_argmax"]) for state in states],
        "ei_efficiency": [state["ei_efficiency"] for state in states],
        "gamma_wins": [float(state["gamma_gain"] > 0) for state in states],
        "gamma_gain": [state["gamma_gain"] for state in states],
        "mass_error": max(error for state in states for error in state["mass_errors"]),
        "tightness_gain": min(state["tightness_gain"] for state in states),
        "varpro_minus_alternating": alternating["gain"],
    }
    for problem, short in zip(problems, ("branin", "hartmann"), strict=True):
        metrics |= _differences(short, problem, runs[problem.name])
        metrics[f"k_{short}"] = float(np.median(runs[problem.name]["ves_gamma"]["k"]))
    tables = {
        "states": pl.DataFrame(
            [{key: value for key, value in state.items() if key != "mass_errors"} for state in states]
        ),
    }
    if ctx.preset == "long":
        metrics |= _long(ctx, size, problems, runs)
    tables["regret"] = pl.concat(
        [
            _regret_table(problem.name, acq, trace, problem.optimum)
            for problem in problems
            for acq, trace in runs[problem.name].items()
        ]
    )
    tables["suggestions"] = pl.concat(
        [
            _suggestion_table(name, acq, trace)
            for name, traces in runs.items()
            for acq, trace in traces.items()
        ]
    )
    if ctx.preset == "paper":
        assert ctx.data_folder is not None
        tables["objectives"] = _user_objectives(ctx, size, ctx.data_folder, objectives)
    slow = {
        acq: np.median(
            [second for traces in runs.values() if acq in traces for second in traces[acq]["seconds"]]
        )
        for acq in ACQUISITIONS
    }
    told = ", ".join(f"{acq} {seconds:.2g} s" for acq, seconds in slow.items())
    return Measurement(metrics, tables, [f"median wall time of one suggestion: {told}"])


# Problems ------------------------------------------------------------------------------------------------


def _synthetic(name: str, dimension: int) -> _Problem:
    import torch
    from botorch import test_functions

    options = {} if name == "Branin" else {"dim": dimension}
    function = getattr(test_functions, name)(negate=True, **options).to(torch.float64)
    low, high = function.bounds

    def objective(X: Tensor) -> Tensor:
        value: Tensor = function(low + (high - low) * X)
        return value

    return _Problem(f"{name}-{dimension}", dimension, float(function.optimal_value), objective)


def _matern_sample(ctx: Context, dimension: int, lengthscale: float) -> _Problem:
    import torch
    from botorch.models import SingleTaskGP
    from botorch.sampling.pathwise import draw_kernel_feature_paths
    from botorch.utils.sampling import manual_seed
    from gpytorch.kernels import MaternKernel

    from theses.decision.variational_entropy_search import path_maxima

    kernel = MaternKernel(nu=2.5, ard_num_dims=dimension)
    kernel.lengthscale = lengthscale
    X = torch.full((2, dimension), 0.5, dtype=torch.float64)
    prior = SingleTaskGP(
        X, torch.zeros(2, 1, dtype=torch.float64), covar_module=kernel, outcome_transform=None
    )
    name = f"Matern-{dimension}, lengthscale {lengthscale:g}"
    with torch.no_grad(), manual_seed(ctx.integer(name) >> 1):
        path = draw_kernel_feature_paths(prior, sample_shape=torch.Size([1]))
    bounds = _unit_cube(dimension)
    _, top = path_maxima(path, bounds, raw=8192, restarts=50, maxiter=200, seed=ctx.integer(f"{name} top"))

    def objective(X: Tensor) -> Tensor:
        with torch.no_grad():
            value: Tensor = path(X)[0]
        return value

    return _Problem(name, dimension, float(top[0]), objective)


def _unit_cube(dimension: int) -> Tensor:
    import torch

    return torch.stack([torch.zeros(dimension), torch.ones(dimension)]).double()


# Runs ----------------------------------------------------------------------------------------------------


def _optimise(ctx: Context, size: _Size, problem: _Problem, acq: Any, n_iter: int, repeat: int = 0) -> Any:
    from theses.decision.variational_entropy_search import run_bo

    # One seed for all acquisition functions, so that they start from the same design.
    trace = run_bo(
        problem.objective,
        _unit_cube(problem.dimension),
        acq,
        size.n_init,
        n_iter,
        ctx.integer(f"{problem.name} {repeat}"),
        num_paths=size.num_paths,
        num_restarts=size.num_restarts,
        raw_samples=size.raw_samples,
    )
    return {
        "X": trace.X.numpy(),
        "Y": trace.Y.numpy(),
        "k": list(trace.k),
        "seconds": list(trace.seconds),
    }


def _log_regret(trace: Mapping[str, Any], optimum: float) -> float:
    return math.log10(max(optimum - float(np.max(trace["Y"])), REGRET_FLOOR))


def _differences(short: str, problem: _Problem, traces: Mapping[str, Any]) -> dict[str, float]:
    optimum = max([problem.optimum, *(float(np.max(trace["Y"])) for trace in traces.values())])
    ours = _log_regret(traces["ves_gamma"], optimum)
    result = {
        f"{short}_minus_{acq}": ours - _log_regret(trace, optimum)
        for acq, trace in traces.items()
        if acq != "ves_gamma"
    }
    return {**result, f"{short}_regret": ours}


# States --------------------------------------------------------------------------------------------------


def _state(
    ctx: Context, size: _Size, problem: _Problem, runs: Mapping[str, Any], index: int
) -> dict[str, Any]:
    """All that is asked of one model: a prefix of a run of VES-Gamma or LogEI."""
    import torch
    from botorch.acquisition.analytic import LogExpectedImprovement
    from botorch.utils.sampling import draw_sobol_samples

    from theses.decision.variational_entropy_search import (
        VESExp,
        VESGamma,
        fit_gamma,
        fit_gp,
        gamma_log_density,
    )

    acq, share = [
        ("ves_gamma", 0.0),
        ("ves_gamma", 1.0),
        ("ves_gamma", 0.5),
        ("logei", 0.5),
        ("logei", 1.0),
    ][index]
    m = round(share * size.n_iter)
    model, Y = _model(size, runs[problem.name][acq], m, fit_gp)
    bounds, best = _unit_cube(problem.dimension), float(Y.max())
    name = f"{problem.name} {index}"
    gamma = VESGamma(
        model, best, bounds, size.state_paths, sampler_options=_raw(size), seed=ctx.integer(f"{name} paths")
    )
    exponential = VESExp(model, best, bounds, paths=gamma.paths, optima=gamma.optima)

    with torch.no_grad():
        # C1: the exponential case against Expected Improvement, on the same paths and in closed form.
        grid = draw_sobol_samples(bounds, size.n_grid, 1, seed=ctx.integer(f"{name} grid") >> 1).double()
        pick = int(exponential(grid).argmax())
        monte_carlo = (gamma.paths(grid.squeeze(1)) - best).clamp_min(0).mean(dim=0)
        log_ei = LogExpectedImprovement(model, best)(grid)
        efficiency = float((log_ei[pick] - log_ei.max()).exp())

        # C2: half of the paths fit the densities of z, the others score them.
        x = draw_sobol_samples(bounds, size.n_x, 1, seed=ctx.integer(f"{name} x") >> 1).double()
        z = gamma.optima[:, None] - gamma.paths(x.squeeze(1)).clamp_min(best)
        fit, score = z.clamp_min(gamma.clamp_min).chunk(2)
        k, beta = fit_gamma(fit, gamma.reg_lambda, gamma.reg_target)
        gain = gamma_log_density(score, k, beta) - gamma_log_density(score, 1.0, 1 / fit.mean(dim=0))

        # C3: the density's mass, and Gamma's bound minus the exponential's.
        k_here, beta_here = gamma.k_beta(x)
        errors = [
            abs(_mass(float(k_here[i]), float(beta_here[i])) - 1)
            for i in ctx.rng(f"{name} pairs").choice(size.n_x, 2, replace=False)
        ]
        tightness = float((gamma(x) - exponential(x)).min())
    return {
        "problem": problem.name,
        "run": acq,
        "n": len(Y),
        "same_argmax": pick == int(monte_carlo.argmax()),
        "ei_efficiency": efficiency,
        "gamma_gain": float(gain.mean()),
        "k": float(k_here.mean()),
        "tightness_gain": tightness,
        "mass_errors": errors,
    }


def _raw(size: _Size) -> dict[str, int]:
    return {"raw": min(2048, 16 * size.raw_samples)}


def _model(size: _Size, trace: Mapping[str, Any], m: int, fit: Callable[..., Any]) -> tuple[Any, Tensor]:
    import torch

    X, Y = (torch.from_numpy(np.array(trace[key][: size.n_init + m])) for key in ("X", "Y"))
    return fit(X, Y), Y


def _mass(k: float, beta: float) -> float:
    """Integral of the density; for k < 1, z = u^(1/k) takes away the pole at 0."""
    import torch
    from scipy.integrate import quad
    from scipy.stats import gamma

    from theses.decision.variational_entropy_search import gamma_log_density

    power = min(k, 1.0)

    def integrand(u: float) -> float:
        # Where z underflows, the integrand has reached its limit.
        z = max(u ** (1 / power), 1e-300)
        log_density = float(gamma_log_density(torch.tensor(z, dtype=torch.float64), k, beta))
        return math.exp(log_density + (1 - power) * math.log(z)) / power

    ends = gamma.ppf([1e-12, 0.01, 0.1, 0.5, 0.9, 0.99, 1 - 1e-12], k, scale=1 / beta) ** power
    pieces = zip([0.0, *ends[:-1]], ends, strict=True)
    return float(sum(quad(integrand, low, high, epsabs=1e-10, epsrel=1e-10)[0] for low, high in pieces))


def _alternating(ctx: Context, size: _Size, problem: _Problem, runs: Mapping[str, Any]) -> dict[str, float]:
    """Both optimisations on one state, compared on paths that neither has seen."""
    import torch

    from theses.decision.variational_entropy_search import VESGamma, fit_gp, optimize_ves, suggest

    model, Y = _model(size, runs[problem.name]["ves_gamma"], size.n_iter // 2, fit_gp)
    bounds = _unit_cube(problem.dimension)
    effort: dict[str, Any] = {"num_restarts": size.num_restarts, "raw_samples": size.raw_samples}
    varpro = suggest(model, bounds, seed=ctx.integer("varpro"), num_paths=size.state_paths, **effort)
    ours = partial(VESGamma, model, Y.max(), bounds, size.state_paths, sampler_options=_raw(size))
    start = ours(seed=ctx.integer("alternating"))
    turns, _, info = optimize_ves(
        start, bounds, size.alternating, optimize_acqf_options=effort, seed=ctx.integer("turns")
    )
    judge = ours(seed=ctx.integer("judge"))
    with torch.no_grad():
        values = judge(torch.stack([varpro, turns]))
    return {"gain": float(values[0] - values[1]), "rounds": float(info["rounds"])}


# The longer arms -----------------------------------------------------------------------------------------


def _long(
    ctx: Context, size: _Size, problems: Sequence[_Problem], runs: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    from scipy.stats import ks_2samp

    metrics: dict[str, Any] = {}
    arms: list[tuple[str, _Problem, int, tuple[str, ...]]] = [
        ("levy", _synthetic("Levy", 4), 40, ACQUISITIONS),
        ("griewank", _synthetic("Griewank", 8), 40, ACQUISITIONS),
        ("matern_short", _matern_sample(ctx, 30, 0.1), 60, ACQUISITIONS[:3]),
        ("matern_long", _matern_sample(ctx, 30, 0.5), 60, ACQUISITIONS[:3]),
    ]
    for short, problem, n_iter, acquisitions in arms:
        n_iter = n_iter if ctx.limit is None else min(n_iter, ctx.limit)
        traces = {
            acq: ctx.stage(f"{problem.name} {acq}", partial(_optimise, ctx, size, problem, acq, n_iter))
            for acq in acquisitions
        }
        runs[problem.name] = traces
        metrics |= _differences(short, problem, traces)
    n_iter, repeats = (30, 20) if ctx.limit is None else (ctx.limit, ctx.limit)
    passed = []
    for repeat in range(1, repeats + 1):
        pair = [
            ctx.stage(f"KS {acq} {repeat}", partial(_optimise, ctx, size, problems[0], acq, n_iter, repeat))[
                "X"
            ][size.n_init :]
            for acq in ("ves_exp", "logei")
        ]
        passed += [float(ks_2samp(a, b).pvalue > 0.05) for a, b in zip(pair[0].T, pair[1].T, strict=True)]
    return {**metrics, "ks_pass_rate": float(np.mean(passed))}


# A user's own objectives ---------------------------------------------------------------------------------


def _read(folder: Path) -> list[dict[str, Any]]:
    path = folder / "objectives.toml"
    if not path.is_file():
        raise ValueError(f"data_folder must be {_LAYOUT}, got {folder}")
    try:
        entries: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8")).get("objective", [])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not entries or not isinstance(entries, list):
        raise ValueError(f"{path}: names no [[objective]]")
    for entry in entries:
        if missing := {"name", "lower", "upper", "command"} - set(entry):
            raise ValueError(f"{path}: an objective has no {', '.join(sorted(missing))}")
        name, command = entry["name"], entry["command"]
        try:
            low, high = (np.asarray(entry[key], dtype=np.float64) for key in ("lower", "upper"))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {name}: lower and upper must hold numbers") from error
        if low.ndim != 1 or low.shape != high.shape or not len(low) or not (low < high).all():
            raise ValueError(
                f"{path}: {name}: lower and upper must have one number an input, lower below upper"
            )
        if not isinstance(command, list) or not command or not all(isinstance(w, str) for w in command):
            raise ValueError(f"{path}: {name}: command must be a list of words, got {command!r}")
    return entries


def _user_objectives(
    ctx: Context, size: _Size, folder: Path, entries: Sequence[Mapping[str, Any]]
) -> pl.DataFrame:
    import torch

    from theses.decision.variational_entropy_search import run_bo

    frames = []
    for entry in entries:
        bounds = torch.tensor([entry["lower"], entry["upper"]], dtype=torch.float64)
        n_iter = 1_000 if bounds.shape[1] >= 50 else 100
        n_iter = n_iter if ctx.limit is None else min(n_iter, ctx.limit)
        for acq in ACQUISITIONS:

            def measure(
                acq: Any = acq, entry: Any = entry, bounds: Tensor = bounds, n: int = n_iter
            ) -> list[float]:
                trace = run_bo(
                    partial(_call, entry["command"], folder),
                    bounds,
                    acq,
                    size.n_init,
                    n,
                    ctx.integer(entry["name"]),
                    num_paths=size.num_paths,
                    num_restarts=size.num_restarts,
                    raw_samples=size.raw_samples,
                )
                return [float(value) for value in trace.best]

            best = ctx.stage(f"objective {entry['name']} {acq}", measure)
            frames.append(
                pl.DataFrame({"evaluation": range(1, len(best) + 1), "best": best}).with_columns(
                    problem=pl.lit(entry["name"]), acq=pl.lit(acq)
                )
            )
    return pl.concat(frames)


def _call(command: Sequence[str], folder: Path, X: Tensor) -> Tensor:
    import torch

    told = json.dumps(X[0].tolist())
    try:
        done = subprocess.run(list(command), input=told, capture_output=True, text=True, cwd=folder)
    except OSError as error:
        raise ValueError(f"command {list(command)!r} cannot be run: {error}") from error
    if done.returncode:
        raise ValueError(
            f"command {list(command)!r} must end with status 0, got {done.returncode} at {told}: "
            f"{done.stderr.strip()[-300:]}"
        )
    try:
        value = float(done.stdout)
    except ValueError:
        raise ValueError(
            f"command {list(command)!r} must print one number, got {done.stdout[-300:]!r} at {told}"
        ) from None
    return torch.tensor([value], dtype=torch.float64)


# Tables and charts ---------------------------------------------------------------------------------------


def _regret_table(problem: str, acq: str, trace: Mapping[str, Any], optimum: float) -> pl.DataFrame:
    best = np.maximum.accumulate(trace["Y"])
    return pl.DataFrame(
        {
            "evaluation": np.arange(1, len(best) + 1),
            "log10_regret": np.log10(np.maximum(optimum - best, REGRET_FLOOR)),
        }
    ).with_columns(problem=pl.lit(problem), acq=pl.lit(acq))


def _suggestion_table(problem: str, acq: str, trace: Mapping[str, Any]) -> pl.DataFrame:
    n_init = len(trace["Y"]) - len(trace["seconds"])
    k = [None if math.isnan(value) else value for value in trace["k"]]
    return pl.DataFrame(
        {
            "evaluation": range(n_init + 1, len(trace["Y"]) + 1),
            "seconds": trace["seconds"],
            "k": k,
        },
        schema_overrides={"seconds": pl.Float64, "k": pl.Float64},
    ).with_columns(problem=pl.lit(problem), acq=pl.lit(acq))


_NAMES = {"ves_gamma": "VES-Gamma", "ves_exp": "VES-Exp", "logei": "LogEI", "mes": "MES", "ucb": "UCB"}


def figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, alt.Chart]:
    """Charts of the stored tables.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        ``regret``, ``suggestions`` and ``states``, each with a column ``seed``.

    Returns
    -------
    dict of str to altair.Chart
        ``regret`` over evaluations, the path of ``k``, ``seconds`` of a suggestion, and the Gamma density's
        ``gain`` over the exponential one.
    """
    import altair as alt

    named = pl.col("acq").replace_strict(_NAMES)
    mean = tables["regret"].group_by("problem", "acq", "evaluation").agg(pl.col("log10_regret").mean())
    regret = (
        alt.Chart(mean.with_columns(acq=named).sort("problem", "acq", "evaluation"))
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("evaluation:Q", title="evaluations"),
            y=alt.Y("log10_regret:Q", title="log10 simple regret, mean of the seeds"),
            color=alt.Color("acq:N", title="acquisition"),
        )
        .properties(width=260, height=200)
        .facet(alt.Facet("problem:N", title=None), columns=2, title="Regret of the best value found so far")
        .resolve_scale(y="independent")
    )
    k = (
        alt.Chart(tables["suggestions"].drop_nulls("k"))
        .mark_line(point=True)
        .encode(
            x=alt.X("evaluation:Q", title="evaluations").scale(zero=False),
            y=alt.Y("k:Q", title="k at the chosen point").scale(zero=False),
            color=alt.Color("problem:N", title=None),
            detail="seed:N",
        )
        .properties(title="Shape of the density along the runs of VES-Gamma; Expected Improvement is k = 1")
    )
    seconds = (
        alt.Chart(tables["suggestions"].with_columns(acq=named))
        .mark_boxplot()
        .encode(
            x=alt.X("seconds:Q", title="seconds a suggestion").scale(type="log"),
            y=alt.Y("acq:N", title=None),
            color=alt.Color("problem:N", title=None),
            yOffset="problem:N",
        )
        .properties(title="Wall time of one suggestion, without the fit of the model")
    )
    gain = (
        alt.Chart(tables["states"])
        .mark_point(filled=True)
        .encode(
            x=alt.X("k:Q", title="mean k").scale(zero=False),
            y=alt.Y("gamma_gain:Q", title="gain in held-out log-density, nat"),
            color=alt.Color("problem:N", title=None),
            shape=alt.Shape("n:N", title="observations"),
            tooltip=["problem:N", "run:N", "n:Q", "k:Q", "gamma_gain:Q", "ei_efficiency:Q"],
        )
        .properties(title="Gamma against exponential densities of the gap to the maximum")
    )
    return {"regret": regret, "k": k, "seconds": seconds, "gain": gain}
