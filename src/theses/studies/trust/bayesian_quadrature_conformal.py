"""Measures how often the risk at the chosen lambda exceeds alpha, and what the choice costs.

Every experiment repeats the same trial: draw a calibration set, let each rule choose lambda, compare the true
risk there with alpha. The arms are multi-label mosaics (or MS-COCO), binomial losses, heteroskedastic
regression, flight delays, and the identities of the posterior mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from theses.evidence import Context, Measurement

if TYPE_CHECKING:
    import altair as alt

    from theses.trust.bayesian_quadrature_conformal import RiskRule

__all__ = ["figures", "run"]

BETA = 0.95
N_DRAWS = 1_000
ALPHA = {"labels": 0.1, "binomial": 0.4, "hetero": 0.1, "flights": 0.1}


class _Rule(Protocol):
    def holds(self, losses: NDArray[np.float64]) -> Any: ...


@dataclass(frozen=True)
class _Size:
    n_mosaics: int
    n_labels_cal: int
    n_splits: int
    n_walk: int  # steps of lambda for the betting bound, which has to be walked down
    n_trials: int
    n_flights: int  # residuals; two thirds as many flights train the regression
    n_flight_splits: int
    n_sets: int
    n_mapie: int


_SIZES = {
    "smoke": _Size(1_500, 200, 8, 50, 30, 3_000, 20, 10, 30),
    "standard": _Size(12_000, 1_000, 400, 200, 2_000, 30_000, 400, 200, 200),
    "long": _Size(12_000, 1_000, 4_000, 200, 10_000, 30_000, 4_000, 1_000, 200),
    "paper": _Size(0, 1_000, 10_000, 200, 10_000, 30_000, 400, 200, 200),
}


def run(ctx: Context) -> Measurement:
    """Measure one unit.

    Parameters
    ----------
    ctx : Context
        Surroundings. The ``paper`` preset takes scores and labels of MS-COCO from ``ctx.data_folder``.

    Returns
    -------
    Measurement
        Failure rates and costs of all rules, tables of both.

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
            "the paper preset needs data_folder: a folder with coco-tresnetxl.npz, arrays sgmd and labels, "
            "both of shape (n_images, n_labels)"
        )
    if ctx.limit is not None:
        size = replace(
            size,
            n_splits=min(size.n_splits, ctx.limit),
            n_trials=min(size.n_trials, ctx.limit),
            n_flight_splits=min(size.n_flight_splits, ctx.limit),
            n_sets=min(size.n_sets, ctx.limit),
        )

    ctx.progress(0.0, "multi-label sets")
    labels = ctx.stage("labels", lambda: _labels(ctx, size))
    ctx.progress(0.6, "binomial losses")
    binomial = ctx.stage("binomial", lambda: _binomial(ctx, size))
    ctx.progress(0.75, "heteroskedastic regression")
    hetero = ctx.stage("hetero", lambda: _hetero(ctx, size))
    ctx.progress(0.9, "flight delays")
    flights = ctx.stage("flights", lambda: _flights(ctx, size))
    ctx.progress(0.95, "identities")
    identities = ctx.stage("identities", lambda: _identities(ctx, size))
    mapie = ctx.stage("mapie", lambda: _mapie(ctx, size))

    means = {
        (arm, method): (float(np.mean(trials["risk"] > ALPHA[arm])), float(np.mean(trials["cost"])))
        for arm, results in (
            ("labels", labels["trials"]),
            ("binomial", binomial),
            ("hetero", hetero),
            ("flights", flights),
        )
        for method, trials in results.items()
    }

    def failure(arm: str, method: str) -> float:
        return means[arm, method][0]

    def cost(arm: str, method: str) -> float:
        return means[arm, method][1]

    metrics = {
        "failure_bq": failure("labels", "bq"),
        "failure_crc": failure("labels", "crc"),
        "failure_rcps": failure("labels", "rcps"),
        "set_size_rcps": cost("labels", "rcps"),
        "size_ratio": cost("labels", "bq") / cost("labels", "rcps"),
        "failure_bq_binomial": failure("binomial", "bq"),
        "failure_crc_binomial": failure("binomial", "crc"),
        "lambda_rcps_binomial": cost("binomial", "rcps"),
        "lambda_gap": cost("binomial", "rcps") - cost("binomial", "bq"),
        "failure_bq_hetero": failure("hetero", "bq"),
        "failure_crc_hetero": failure("hetero", "crc"),
        "length_rcps_hetero": cost("hetero", "rcps"),
        "length_ratio": cost("hetero", "bq") / cost("hetero", "rcps"),
        "failure_bq_flights": failure("flights", "bq"),
        "max_lambda_difference": identities["max_difference"],
        "failure_wsr": failure("labels", "rcps-wsr"),
        "set_size_wsr": cost("labels", "rcps-wsr"),
        "failure_wsr_binomial": failure("binomial", "rcps-wsr"),
        "lambda_wsr_binomial": cost("binomial", "rcps-wsr"),
        "failure_wsr_hetero": failure("hetero", "rcps-wsr"),
        "length_wsr_hetero": cost("hetero", "rcps-wsr"),
        "failure_authors_binomial": failure("binomial", "bq, authors' weights"),
        "lambda_authors_binomial": cost("binomial", "bq, authors' weights"),
        "failure_authors": failure("labels", "bq, authors' weights"),
        "failure_conservative": failure("labels", "bq, conservative"),
        "set_size_conservative": cost("labels", "bq, conservative"),
        "mapie_threshold_gap": mapie["gap"],
    }
    tables = {
        "methods": pl.DataFrame(
            [
                {"experiment": arm, "method": method, "failure": failed, "cost": mean_cost}
                for (arm, method), (failed, mean_cost) in means.items()
            ]
        ),
        "risks": pl.concat(
            [
                _histogram(arm, results)
                for arm, results in (
                    ("labels", labels["trials"]),
                    ("binomial", binomial),
                    ("hetero", hetero),
                    ("flights", flights),
                )
            ]
        ),
    }
    notes = [note for note in (labels["note"], mapie["note"]) if note]
    return Measurement(metrics, tables, notes)


def _rules(ctx: Context, arm: str, n: int, *, binary: bool = False) -> dict[str, _Rule]:
    from theses.trust.bayesian_quadrature_conformal import RiskRule

    def rule(method: str, **options: Any) -> RiskRule:
        # One set of draws serves all trials of the arm, whatever the rule, as in the authors' experiments.
        return RiskRule(
            method,
            n,
            ALPHA[arm],
            BETA,
            n_samples=N_DRAWS,
            binary=binary and method == "bq",
            random_state=ctx.rng(f"draws/{arm}"),
            **options,
        )

    rules = {
        "bq": rule("bq"),
        "crc": rule("crc"),
        "rcps": rule("rcps-hoeffding"),
        "rcps-wsr": rule("rcps-wsr"),
    }
    if not binary:
        rules["bq, conservative"] = rule("bq", conservative=True)
        draws = rules["bq"].draws
        assert draws is not None
        return {**rules, "bq, authors' weights": _AuthorsRule(draws.weights, ALPHA[arm])}
    return dict(rules)


@dataclass(frozen=True)
class _AuthorsRule:
    """The authors' script: the largest loss has the weight of the first, and the last weight goes unused."""

    weights: NDArray[np.float64]
    alpha: float

    def holds(self, losses: NDArray[np.float64]) -> Any:
        own, first = self.weights[:, :-1], self.weights[:, 0]
        bounds = own @ losses + (first if losses.ndim == 1 else first[:, None])
        return np.mean(bounds <= self.alpha, axis=0) >= BETA


def _certified(holds: Callable[[NDArray[np.float64]], Any], table: NDArray[np.float64]) -> int:
    """Index of the least column from which on the rule holds; the last column if it holds nowhere."""
    refused = np.flatnonzero(~np.asarray(holds(table)))
    return min(int(refused[-1]) + 1, table.shape[1] - 1) if len(refused) else 0


def _labels(ctx: Context, size: _Size) -> dict[str, Any]:
    from theses.trust.bayesian_quadrature_conformal import false_negative_rate
    from theses.trust.bayesian_quadrature_conformal.rules import smallest_lambda

    scores, truth, note = _scores(ctx, size)
    n_cal = min(size.n_labels_cal, len(scores) // 2)
    rules = _rules(ctx, "labels", n_cal)
    walk = np.linspace(0.0, -1.0, size.n_walk + 1)
    generator = ctx.rng("splits")
    trials: dict[str, dict[str, list[float]]] = {name: {"risk": [], "cost": []} for name in rules}
    for _ in range(size.n_splits):
        order = generator.permutation(len(scores))
        cal, rest = order[:n_cal], order[n_cal:]
        cal_scores, cal_truth, rest_scores, rest_truth = scores[cal], truth[cal], scores[rest], truth[rest]
        # The losses step where a present label enters; at 0 every label is in.
        candidates = np.unique(np.append(-cal_scores[cal_truth], 0.0))

        def losses_at(
            lam: float, scores: NDArray[np.float64] = cal_scores, truth: NDArray[np.bool_] = cal_truth
        ) -> NDArray[np.float64]:
            return false_negative_rate(scores >= -lam, truth)

        for name, rule in rules.items():
            if name == "rcps-wsr":
                lam = 0.0
                for step in walk:
                    if not rule.holds(losses_at(step)):
                        break
                    lam = float(step)
            else:
                found = smallest_lambda(rule.holds, losses_at, candidates)
                lam = 0.0 if found is None else found
            sets = rest_scores >= -lam
            trials[name]["risk"].append(float(false_negative_rate(sets, rest_truth).mean()))
            trials[name]["cost"].append(float(np.count_nonzero(sets) / len(sets)))
    return {"trials": _arrays(trials), "note": note}


def _scores(ctx: Context, size: _Size) -> tuple[NDArray[np.float64], NDArray[np.bool_], str]:
    if ctx.preset == "paper":
        from theses.datasets.coco_scores import load_coco_scores

        assert ctx.data_folder is not None
        scores, truth = load_coco_scores(ctx.data_folder)
        return scores[: ctx.limit], truth[: ctx.limit], ""
    from theses.datasets.mosaics import digit_mosaics

    mosaics = digit_mosaics(size.n_mosaics, random_state=ctx.rng("mosaics"))
    return mosaics.scores, mosaics.labels, f"accuracy on single tiles {mosaics.tile_accuracy:.3f}"


def _binomial(ctx: Context, size: _Size, n: int = 10, n_events: int = 4) -> dict[str, Any]:
    rules = _rules(ctx, "binomial", n)
    generator = ctx.rng("binomial")
    trials: dict[str, dict[str, list[float]]] = {name: {"risk": [], "cost": []} for name in rules}
    for _ in range(size.n_trials):
        events = generator.random((n, n_events))
        candidates = np.append(np.sort(events.ravel()), 1.0)
        # Share of a case's events beyond each level lambda: (n, n_candidates).
        table = (events[:, :, None] > candidates).mean(axis=1)
        for name, rule in rules.items():
            lam = float(candidates[_certified(rule.holds, table)])
            trials[name]["risk"].append(1 - lam)
            trials[name]["cost"].append(lam)
    return _arrays(trials)


def _hetero(ctx: Context, size: _Size, n: int = 200) -> dict[str, Any]:
    rules = _rules(ctx, "hetero", n, binary=True)
    generator = ctx.rng("hetero")

    def draw() -> NDArray[np.float64]:
        return np.abs(generator.normal(0.0, generator.uniform(0.0, 4.0, size=n)))

    lengths = _interval_trials(rules, draw, size.n_trials)
    return {name: {"risk": _hetero_risk(lam), "cost": 2 * lam} for name, lam in lengths.items()}


def _hetero_risk(lam: NDArray[np.float64]) -> NDArray[np.float64]:
    """Chance of ``|y| > lam`` for x uniform on (0, 4) and y normal with standard deviation x."""
    from scipy import special

    nodes, weights = np.polynomial.legendre.leggauss(400)
    x = 2 * (nodes + 1)
    return np.asarray(2 * special.ndtr(-lam[:, None] / x) @ weights / 2)


def _interval_trials(
    rules: Mapping[str, _Rule], draw: Callable[[], NDArray[np.float64]], n_trials: int
) -> dict[str, NDArray[np.float64]]:
    chosen: dict[str, list[float]] = {name: [] for name in rules}
    for _ in range(n_trials):
        residuals = draw()
        candidates = np.sort(residuals)
        # The rows stay in the order drawn, which matters to the betting bound.
        table = (residuals[:, None] > candidates).astype(np.float64)
        for name, rule in rules.items():
            chosen[name].append(float(candidates[_certified(rule.holds, table)]))
    return {name: np.array(values) for name, values in chosen.items()}


def _flights(ctx: Context, size: _Size, n: int = 200) -> dict[str, Any]:
    residuals = _flight_residuals(ctx, size)
    ordered = np.sort(residuals)
    rules = _rules(ctx, "flights", n, binary=True)
    generator = ctx.rng("flight splits")
    drawn: list[NDArray[np.float64]] = []

    def draw() -> NDArray[np.float64]:
        drawn.append(generator.choice(residuals, size=n, replace=False))
        return drawn[-1]

    lengths = _interval_trials(rules, draw, size.n_flight_splits)
    results = {}
    for name, lam in lengths.items():
        beyond = len(ordered) - np.searchsorted(ordered, lam, side="right")
        inside = np.array([np.count_nonzero(cal > value) for cal, value in zip(drawn, lam, strict=True)])
        results[name] = {"risk": (beyond - inside) / (len(ordered) - n), "cost": 2 * lam}
    return results


def _flight_residuals(ctx: Context, size: _Size) -> NDArray[np.float64]:
    from theses.datasets.flights import load_flights

    flights = load_flights()
    n_train = 2 * size.n_flights // 3
    rows = ctx.rng("flights").permutation(flights.height)[: n_train + size.n_flights]
    table = flights.select("dep_delay", "distance", "hour", "arr_delay").to_numpy()[rows].astype(np.float64)
    design = np.column_stack([np.ones(len(table)), table[:, :3]])
    coefficients = np.linalg.lstsq(design[:n_train], table[:n_train, 3], rcond=None)[0]
    return np.asarray(np.abs(table[n_train:, 3] - design[n_train:] @ coefficients))


def _identities(ctx: Context, size: _Size) -> dict[str, Any]:
    from theses.trust.bayesian_quadrature_conformal import RiskPosterior, RiskRule, scaled_count
    from theses.trust.bayesian_quadrature_conformal.rules import smallest_lambda

    generator = ctx.rng("identities")
    differences = []
    for index in range(size.n_sets):
        n = int(generator.integers(20, 300))
        # alpha over 2 / (n + 1), so that some lambda meets it.
        alpha = float(generator.uniform(2 / (n + 1), 0.5))

        def below(losses: NDArray[np.float64], alpha: float = alpha) -> bool:
            return RiskPosterior(losses).mean <= alpha

        if index % 2 == 0:
            # 0/1 losses: the conformal quantile.
            cases = generator.standard_exponential((n, 1))
            candidates = np.sort(cases.ravel())
            usual = float(candidates[int(np.ceil((n + 1) * (1 - alpha))) - 1])
        else:
            # Graded losses: conformal risk control over the same candidates.
            cases = generator.random((n, int(generator.integers(2, 8))))
            candidates = np.sort(cases.ravel())
            table = (cases[:, :, None] > candidates).mean(axis=1)
            usual = float(candidates[_certified(RiskRule("crc", n, alpha).holds, table)])

        def losses_at(lam: float, cases: NDArray[np.float64] = cases) -> NDArray[np.float64]:
            return scaled_count(np.full(len(cases), lam), cases)

        found = smallest_lambda(below, losses_at, candidates)
        differences.append(np.inf if found is None else abs(found - usual))
    return {"max_difference": float(np.max(differences))}


def _mapie(ctx: Context, size: _Size) -> dict[str, Any]:
    from theses.trust.bayesian_quadrature_conformal import RiskController, false_negative_rate

    try:
        from mapie.risk_control import MultiLabelClassificationController
    except ImportError:
        return {"gap": float("nan"), "note": "MAPIE is not installed: mapie_threshold_gap was not measured"}
    scores, truth, _ = _scores(ctx, size)
    some = np.flatnonzero(truth.any(axis=1))[: size.n_mapie]  # MAPIE refuses cases without a label
    theirs = MultiLabelClassificationController(
        predict_function=lambda cases: cases, method="crc", target_level=1 - ALPHA["labels"]
    ).calibrate(scores[some], truth[some].astype(int))
    ours = RiskController(
        false_negative_rate,
        lambda cases, lam: cases >= -lam,
        ALPHA["labels"],
        method="crc",
        lam_range=(-1.0, 0.0),
    ).fit(scores[some], truth[some], candidates=-scores[some][truth[some]])
    return {"gap": float(-ours.lambda_ - theirs.best_predict_param[0]), "note": ""}


def _arrays(trials: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, dict[str, NDArray[np.float64]]]:
    return {
        name: {key: np.array(values) for key, values in columns.items()} for name, columns in trials.items()
    }


def _histogram(arm: str, results: Mapping[str, Mapping[str, NDArray[np.float64]]]) -> pl.DataFrame:
    edges = np.linspace(0.0, 2 * ALPHA[arm], 61)
    frames = []
    for method, trials in results.items():
        counts, _ = np.histogram(np.clip(trials["risk"], edges[0], edges[-1]), bins=edges)
        frames.append(
            pl.DataFrame({"low": edges[:-1], "high": edges[1:], "trials": counts}).with_columns(
                experiment=pl.lit(arm), method=pl.lit(method), alpha=pl.lit(ALPHA[arm])
            )
        )
    return pl.concat(frames)


_TITLES = {
    "labels": "multi-label sets",
    "binomial": "binomial losses",
    "hetero": "heteroskedastic regression",
    "flights": "flight delays",
}
_COSTS = {
    "labels": "labels in a set",
    "binomial": "lambda",
    "hetero": "length of the interval",
    "flights": "length of the interval, minutes",
}


def figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, alt.Chart]:
    """Charts of the stored tables.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        ``methods`` and ``risks``, each with a column ``seed``.

    Returns
    -------
    dict of str to altair.Chart
        ``failure`` against cost, and ``risk`` at the chosen lambda over the trials.
    """
    import altair as alt

    titled = pl.col("experiment").replace_strict(_TITLES)
    costed = pl.format("{}: {}", titled, pl.col("experiment").replace_strict(_COSTS))
    methods = tables["methods"].with_columns(experiment=costed)
    points = (
        alt.Chart()
        .mark_point(filled=True, size=60, opacity=0.8)
        .encode(
            x=alt.X("cost:Q", title="cost").scale(zero=False),
            y=alt.Y("failure:Q", title="share of trials with risk over alpha"),
            color=alt.Color("method:N", title="rule"),
            tooltip=["method:N", "seed:N", "failure:Q", "cost:Q"],
        )
    )
    nominal = alt.Chart().mark_rule(strokeDash=[4, 3]).encode(y=alt.datum(1 - BETA))
    failure = (
        alt.layer(points, nominal, data=methods)
        .properties(width=260, height=180)
        .facet(
            alt.Facet("experiment:N", title=None),
            columns=2,
            title="How often the risk exceeds alpha (dashed: 1 - beta)",
        )
        .resolve_scale(x="independent")
    )

    risks = (
        tables["risks"]
        .group_by("experiment", "method", "low", "high", "alpha")
        .agg(pl.col("trials").sum())
        .with_columns(share=pl.col("trials") / pl.col("trials").sum().over("experiment", "method"))
        .with_columns(experiment=titled, middle=(pl.col("low") + pl.col("high")) / 2)
        .sort("experiment", "method", "low")
    )
    lines = (
        alt.Chart()
        .mark_line(interpolate="step")
        .encode(
            x=alt.X("middle:Q", title="true risk at the chosen lambda"),
            y=alt.Y("share:Q", title="share of trials"),
            color=alt.Color("method:N", title="rule"),
        )
    )
    limit = alt.Chart().mark_rule(strokeDash=[4, 3]).encode(x="alpha:Q")
    risk = (
        alt.layer(lines, limit, data=risks)
        .properties(width=260, height=180)
        .facet(
            alt.Facet("experiment:N", title=None),
            columns=2,
            title="Risk at the chosen lambda (dashed: alpha)",
        )
        .resolve_scale(x="independent", y="independent")
    )
    return {"failure": failure, "risk": risk}
