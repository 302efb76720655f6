"""Measures the bias of sketched inverses, the local rate of sub-sampled Newton, and its time to an answer.

Bias: the mean of thousands of sketched inverses against the inverse itself, with the noise of the draws taken
out, on heavy-tailed rows (HT), scikit-learn's digits (DIG) and its breast-cancer table (BC). Rate: one step
from random points, for three condition numbers and near a logistic optimum. Time: seconds to a relative error
of 1e-7 in logistic regressions on MNIST (M5) and on flight delays (FL), scores included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from theses.evidence import Context, Measurement
from theses.studies.optim.subsampled_newton.sizes import SIZES, Size
from theses.studies.optim.subsampled_newton.timing import TARGET, race, tune_less

if TYPE_CHECKING:
    import altair as alt

__all__ = ["figures", "run"]

SPIKE = 0.7  # leverage of the coherent rows


def run(ctx: Context) -> Measurement:
    """Measure one unit.

    Parameters
    ----------
    ctx : Context
        Surroundings. The ``paper`` preset takes MNIST and CIFAR-10 from ``ctx.data_folder``.

    Returns
    -------
    Measurement
        Ratios of biases, contractions, ratios of times; tables of biases and of errors over time.

    Raises
    ------
    ValueError
        If the preset is unknown, or ``paper`` comes without a data folder.
    """
    if ctx.preset not in SIZES:
        raise ValueError(f"preset must be one of {', '.join(SIZES)}, got {ctx.preset!r}")
    size = SIZES[ctx.preset]
    if ctx.preset == "paper" and ctx.data_folder is None:
        raise ValueError(
            "the paper preset needs data_folder: a folder with MNIST/raw (idx files) and "
            "cifar-10-batches-bin (the binary version), as torchvision lays them out"
        )
    if ctx.limit is not None:
        # A trial run: the small sizes, on no more draws and images than asked for.
        trial = SIZES["smoke"]
        size = replace(trial, n_draws=min(trial.n_draws, ctx.limit), n_table=min(trial.n_table, ctx.limit))

    ctx.progress(0.0, "bias on heavy-tailed rows")
    heavy = ctx.stage("heavy", lambda: _heavy(ctx, size))
    ctx.progress(0.1, "bias on real rows")
    real = ctx.stage("real", lambda: _real(ctx, size))
    ctx.progress(0.15, "bias with few huge rows")
    spiked = ctx.stage("spiked", lambda: _spiked(ctx, size))
    table = ctx.stage("table", lambda: _table(ctx, size) if ctx.seed == 0 else [])
    ctx.progress(0.2, "local rate")
    rate = ctx.stage("rate", lambda: _rate(ctx, size))
    ctx.progress(0.25, "local rate near a logistic optimum")
    logistic = ctx.stage("logistic", lambda: _logistic(ctx, size))
    races = []
    for index, name in enumerate(("M5", "FL") if ctx.preset != "paper" else ("MNIST", "CIFAR-10")):
        ctx.progress(0.3 + 0.35 * index, f"time to an answer on {name}")
        form = ctx.once(f"less-{name}", partial(tune_less, size=size, name=name))
        entry = ctx.stage(f"race-{name}", partial(race, ctx, size, name, form["winner"]))
        races.append({**entry, "tuning": form["trials"]})

    def mean_time(method: str) -> float:
        return float(np.exp(np.mean([np.log(entry["times"][method]) for entry in races])))

    shrinkage, leverage, srht = heavy["shrinkage"], heavy["leverage"], heavy["SRHT"]
    ssn = mean_time("SSN")
    metrics = {
        "ratio_fine_scalar": _ratio(shrinkage, "fine", "scalar"),
        "bias_scalar": shrinkage["scalar"]["bias"],
        "ratio_fine_none": _ratio(shrinkage, "fine", "none"),
        "bias_none": shrinkage["none"]["bias"],
        "ratio_digits": _ratio(real["DIG"], "fine", "scalar"),
        "bias_scalar_digits": real["DIG"]["scalar"]["bias"],
        "ratio_bc": _ratio(real["BC"], "fine", "scalar"),
        "bias_scalar_bc": real["BC"]["scalar"]["bias"],
        "ratio_lev": _ratio(leverage, "scalar", "none"),
        "bias_none_lev": leverage["none"]["bias"],
        "ratio_srht": _ratio(srht, "scalar", "none"),
        "bias_none_srht": srht["none"]["bias"],
        "weight_difference": heavy["weight_difference"],
        "contraction": rate["contraction"],
        "contraction_spread": max(rate["contraction"]) / min(rate["contraction"]),
        "contraction_logistic": logistic["near"],
        "speed_vs_newton": mean_time("Newton") / ssn,
        "time_newton": mean_time("Newton"),
        "speed_vs_less": mean_time("Newton-LESS") / ssn,
        "time_less": mean_time("Newton-LESS"),
        "speed_vs_lbfgs": mean_time("L-BFGS") / ssn,
        "time_lbfgs": mean_time("L-BFGS"),
        "speed_vs_gd": mean_time("GD") / ssn,
        "time_gd": mean_time("GD"),
        "prediction_gap": abs(shrinkage["none"]["predicted"] / shrinkage["none"]["bias"] - 1),
        "bias_row_norm_scalar": heavy["row_norm"]["scalar"]["bias"],
        "bias_row_norm_fine": heavy["row_norm"]["fine"]["bias"],
        "invalid_share_bc": real["invalid_share"],
        "ratio_spiked": _ratio(spiked["few"], "fine", "scalar"),
        "ratio_spiked_large": _ratio(spiked["many"], "fine", "scalar"),
        "contraction_plain": rate["plain"],
        "contraction_logistic_far": logistic["far"],
    }
    rows = [
        *_rows("HT", size.m, {name: heavy[name] for name in ("shrinkage", "leverage", "row_norm", "SRHT")}),
        *_rows("DIG", real["m"]["DIG"], {"uniform": real["DIG"]}),
        *_rows("BC", real["m"]["BC"], {"shrinkage": real["BC"]}),
        *_rows("spiked", size.m, {"shrinkage": spiked["few"]}),
        *_rows("spiked", 4 * size.m, {"shrinkage": spiked["many"]}),
        *table,
    ]
    schema = {
        "matrix": pl.String,
        "scheme": pl.String,
        "m": pl.Int64,
        "debias": pl.String,
        "bias": pl.Float64,
        "mc_error": pl.Float64,
        "predicted": pl.Float64,
        "invalid_draws": pl.Int64,
        "draws": pl.Int64,
    }
    traces = [row for entry in races for row in entry["trace"]]
    tables = {
        "bias": pl.DataFrame(rows, schema=schema),
        "contraction": pl.DataFrame(
            {"condition": rate["condition"], "contraction": rate["contraction"]},
            schema={"condition": pl.Float64, "contraction": pl.Float64},
        ),
        "race": pl.DataFrame(
            traces,
            schema={"data": pl.String, "method": pl.String, "seconds": pl.Float64, "error": pl.Float64},
        ),
        "tuning": pl.DataFrame(
            [row for entry in races for row in entry["tuning"]],
            schema={
                "data": pl.String,
                "scheme": pl.String,
                "s": pl.Int64,
                "seconds": pl.Float64,
                "winner": pl.Boolean,
            },
        ),
    }
    return Measurement(metrics, tables, [note for entry in races for note in entry["notes"]])


def _ratio(reports: Mapping[str, Mapping[str, float]], above: str, below: str) -> float:
    # A bias below what the draws can show is taken for as much as they could.
    return reports[above]["bias"] / (reports[below]["bias"] or reports[below]["mc_error"])


def _rows(matrix: str, m: int, by_scheme: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"matrix": matrix, "scheme": scheme, "m": m, "debias": debias, **report}
        for scheme, reports in by_scheme.items()
        for debias, report in reports.items()
    ]


# Bias ----------------------------------------------------------------------------------------------------


def _heavy_rows(ctx: Context, size: Size) -> NDArray[np.float64]:
    return ctx.rng("HT").standard_t(3, size=(size.n, size.d))


def _biases(
    A: NDArray[np.float64], C: float, sampler: Any, n_draws: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Bias under each weighting of the same draws, with the deterministic prediction where rows are drawn."""
    from theses.optim.subsampled_newton import RowSampler, compare_debiasing, deterministic_equivalent

    drawn = isinstance(sampler, RowSampler)
    modes: tuple[Any, ...] = ("none", "scalar", "fine") if drawn else ("none", "scalar")
    reports: dict[Any, Any] = compare_debiasing(A, C, sampler, modes, n_draws, rng)
    results: dict[str, Any] = {}
    for mode, report in reports.items():
        predicted = None
        # Where a weight can be negative there is no equivalent to speak of.
        if drawn and (mode != "fine" or (sampler.m * sampler.probabilities_ > sampler.leverage_).all()):
            predicted = deterministic_equivalent(A, C, sampler.probabilities_, sampler.m, debias=mode).bias
        results[mode] = {
            "bias": report.bias,
            "mc_error": report.mc_error,
            "predicted": predicted,
            "invalid_draws": report.invalid_draws,
            "draws": report.n_rep,
        }
    return results


def _heavy(ctx: Context, size: Size) -> dict[str, Any]:
    from theses.optim.subsampled_newton import SRHT, RowSampler

    A = _heavy_rows(ctx, size)
    results: dict[str, Any] = {
        scheme: _biases(A, 0.0, RowSampler(scheme, size.m), size.n_draws, ctx.rng(f"HT/{scheme}"))
        for scheme in ("shrinkage", "leverage", "row_norm")
    }
    results["SRHT"] = _biases(A, 0.0, SRHT(size.m), size.n_srht, ctx.rng("HT/SRHT"))
    sampler = RowSampler("leverage", size.m).fit(A)
    draw = sampler.sample(ctx.rng("HT/weights"))
    fine, scalar = (sampler.reweight(draw, mode).weights for mode in ("fine", "scalar"))
    return {**results, "weight_difference": float(np.max(np.abs(fine / scalar - 1)))}


def _ridge(A: NDArray[np.float64]) -> float:
    return 1e-3 * float(np.linalg.norm(A, 2)) ** 2


def _breast_cancer() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y.astype(np.float64)


def _real(ctx: Context, size: Size) -> dict[str, Any]:
    from sklearn.datasets import load_digits

    from theses.optim.subsampled_newton import InvalidDebiasError, RowSampler, effective_dimension

    digits = load_digits().data[: size.n_real] / 16
    cancer = _breast_cancer()[0][: size.n_real]
    results: dict[str, Any] = {"m": {}}
    for name, A, times, scheme in (("DIG", digits, 4, "uniform"), ("BC", cancer, 8, "shrinkage")):
        C = _ridge(A)
        m = math.ceil(times * effective_dimension(A, C))
        results["m"][name] = m
        results[name] = _biases(A, C, RowSampler(scheme, m), size.n_draws, ctx.rng(name))
    uniform = RowSampler("uniform", results["m"]["BC"]).fit(cancer, _ridge(cancer))
    rng = ctx.rng("BC/uniform")
    invalid = 0
    for _ in range(size.n_draws):
        try:
            uniform.sample(rng, debias="fine")
        except InvalidDebiasError:
            invalid += 1
    return {**results, "invalid_share": invalid / size.n_draws}


def _spiked(ctx: Context, size: Size) -> dict[str, Any]:
    from theses.optim.subsampled_newton import RowSampler

    A = ctx.rng("spiked").standard_normal((size.n, size.d))
    n_spikes = size.d // 10
    A[:n_spikes] = 0.0
    A[np.arange(n_spikes), np.arange(n_spikes)] = math.sqrt(size.n * SPIKE / (1 - SPIKE))
    return {
        name: _biases(A, 0.0, RowSampler("shrinkage", m), size.n_draws, ctx.rng(f"spiked/{name}"))
        for name, m in (("few", size.m), ("many", 4 * size.m))
    }


def _table(ctx: Context, size: Size) -> list[dict[str, Any]]:
    """Schemes and sizes that no claim needs."""
    from theses.optim.subsampled_newton import LESS, SRHT, RowSampler

    A = _heavy_rows(ctx, size)
    rows: list[dict[str, Any]] = []
    for m in (2 * size.m, 4 * size.m):
        samplers: dict[str, Any] = {
            scheme: RowSampler(scheme, m) for scheme in ("shrinkage", "leverage", "row_norm")
        }
        samplers |= {
            "approx_leverage": RowSampler("approx_leverage", m),
            "SRHT": SRHT(m),
            "LESS": LESS(m, s=8),
        }
        for scheme, sampler in samplers.items():
            n_draws = size.n_table if isinstance(sampler, RowSampler) else max(size.n_table // 3, 4)
            reports = _biases(A, 0.0, sampler, n_draws, ctx.rng(f"table/{scheme}/{m}"))
            rows += _rows("HT", m, {scheme: reports})
    return rows


# Local rate ----------------------------------------------------------------------------------------------


def _rate(ctx: Context, size: Size) -> dict[str, Any]:
    """Squared H-norm of the error after one step over that before, from random points of a quadratic."""
    from theses.optim.subsampled_newton import RowSampler, debiased_inverse

    results: dict[str, Any] = {"condition": [1e1, 1e3, 1e6], "contraction": []}
    for condition in results["condition"]:
        rng = ctx.rng(f"rate/{condition:g}")
        columns = np.linalg.qr(rng.standard_normal((size.n, size.d)))[0]
        # Condition number of H = A'A: the square of A's.
        A = columns * np.geomspace(1, math.sqrt(condition), size.d)
        H = A.T @ A
        sampler = RowSampler("leverage", size.m).fit(A)
        mu = 1 - sampler.rho_max_ / (size.m / sampler.d_eff_ + sampler.rho_max_)
        for debias in ("fine", "none") if condition == 1e3 else ("fine",):
            ratios = []
            for _ in range(size.n_steps):
                b = rng.standard_normal(size.d)
                step = debiased_inverse(A, 0.0, sampler.sample(rng, debias=debias)) @ (H @ b)
                after = b - (mu if debias == "fine" else 1.0) * step
                ratios.append(float((after @ H @ after) / (b @ H @ b)))
            value = float(np.mean(ratios)) / (sampler.d_eff_ / size.m)
            if debias == "fine":
                results["contraction"].append(value)
            else:
                results["plain"] = value
    return results


def _logistic(ctx: Context, size: Size) -> dict[str, float]:
    """The same near the optimum of a logistic problem, 0.1 away from it in the Hessian's norm.

    The Hessian of the summed loss, A'A + C with A = diag(sqrt(w)) X, is meant; 0.1 in that of the mean loss
    is 24 times as far, where exact Newton's own error is larger than that of sampling.
    """
    from theses.optim.subsampled_newton import LogisticProblem, RowSampler, leverage_scores, minimize_ssn

    X, y = _breast_cancer()
    n, d = X.shape
    problem = LogisticProblem(X, y, 1e-3)
    best = minimize_ssn(problem, np.zeros(d), None, tol=1e-13).x
    A, C = problem.hessian(best)
    H = A.gram() + C * np.eye(d)
    d_eff = float(leverage_scores(A, C).sum())
    sampler = RowSampler("ridge_leverage", math.ceil(8 * d_eff))
    results = {}
    for name, radius in (("near", 0.1 / math.sqrt(n)), ("far", 0.1)):
        rng = ctx.rng(f"logistic/{name}")
        ratios = []
        for _ in range(size.n_steps):
            away = rng.standard_normal(d)
            away *= radius / math.sqrt(away @ H @ away)
            result = minimize_ssn(
                problem, best + away, sampler, step="theory", max_iter=1, tol=0.0, random_state=rng
            )
            after = result.x - best
            ratios.append(float(after @ H @ after) / radius**2)
        results[name] = float(np.mean(ratios)) / (d_eff / sampler.m)
    return results


# Figures -------------------------------------------------------------------------------------------------


def figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, alt.Chart]:
    """Charts of the stored tables.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        ``bias``, ``contraction`` and ``race``, each with a column ``seed``.

    Returns
    -------
    dict of str to altair.Chart
        ``bias`` by scheme and weights with its prediction, ``contraction`` by conditioning, ``race``: error
        over time.
    """
    import altair as alt

    bias = tables["bias"].with_columns(
        what=pl.format("{}, {}, m = {}", "matrix", "scheme", "m"),
        bias=pl.max_horizontal("bias", pl.lit(1e-4)),
    )
    measured = (
        alt.Chart(bias)
        .mark_point(filled=True, size=60, opacity=0.8)
        .encode(
            x=alt.X("bias:Q", title="bias (at least 1e-4 drawn)").scale(type="log"),
            y=alt.Y("what:N", title=None).axis(labelLimit=260),
            color=alt.Color("debias:N", title="weights", sort=["none", "scalar", "fine"]),
            tooltip=[
                "what:N",
                "debias:N",
                "bias:Q",
                "mc_error:Q",
                "predicted:Q",
                "invalid_draws:Q",
                "seed:N",
            ],
        )
    )
    predicted = (
        alt.Chart(bias.filter(pl.col("predicted") > 1e-4))
        .mark_tick(thickness=2, size=14)
        .encode(x="predicted:Q", y="what:N", color=alt.Color("debias:N", sort=["none", "scalar", "fine"]))
    )
    contraction = (
        alt.Chart(tables["contraction"])
        .mark_point(filled=True, size=60, opacity=0.8)
        .encode(
            x=alt.X("condition:Q", title="condition number of the Hessian").scale(type="log"),
            y=alt.Y("contraction:Q", title="squared error after / before, over d_eff / m").scale(zero=True),
            tooltip=["condition:Q", "contraction:Q", "seed:N"],
        )
        .properties(width=420, height=240, title="Local rate of sub-sampled Newton, leverage sampling")
    )
    lines = (
        alt.Chart()
        .mark_line(opacity=0.8)
        .encode(
            x=alt.X("seconds:Q", title="seconds").scale(type="log"),
            y=alt.Y("error:Q", title="relative error").scale(type="log"),
            color=alt.Color("method:N", title="method"),
            detail="seed:N",
        )
    )
    goal = alt.Chart().mark_rule(strokeDash=[4, 3]).encode(y=alt.datum(TARGET))
    over_time = (
        alt.layer(lines, goal, data=tables["race"].filter(pl.col("error") > 0))
        .properties(width=320, height=240)
        .facet(alt.Facet("data:N", title=None), columns=2, title="Error over time (dashed: the target)")
        .resolve_scale(x="independent")
    )
    return {
        "bias": alt.layer(measured, predicted).properties(
            width=420, title="Bias of sketched inverses (ticks: deterministic equivalent)"
        ),
        "contraction": contraction,
        "race": over_time,
    }
