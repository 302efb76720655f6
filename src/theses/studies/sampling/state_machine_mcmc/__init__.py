"""Measures whether chains as state machines have the same law as chains that wait, and what they save.

The arms: laws against exact moments and against BlackJAX (NUTS on a Gaussian and on the eight schools,
elliptical slice sampling of a Gaussian process), iterations counted at many numbers of chains, the devices of
the machine taken away one by one, wall clock beside BlackJAX, NUTS on the authors' mixture, and two samplers
that are only observed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from theses.evidence import Context, Measurement
from theses.studies.sampling.state_machine_mcmc import arms, targets
from theses.studies.sampling.state_machine_mcmc.arms import Data, Size
from theses.studies.sampling.state_machine_mcmc.figures import figures

__all__ = ["figures", "run"]

SIZES = {
    "smoke": Size(4, 0, 20, 25, 4, 0, 20, 20, 25, 20, 1, (4,), 10, 4, 20, 4, 20, 4, 20, 4, 20, shared=True),
    "standard": Size(
        n_chains=128,
        n_warmup=200,
        n_draws=500,
        gp_points=25,
        gp_chains=512,
        gp_warmup=50,
        gp_pilot=50,
        gp_draws=1_000,
        clock_points=60,
        clock_draws=200,
        rounds=3,
        clock_chains=(1, 64, 256),
        mixture_d=20,
        mixture_chains=64,
        mixture_draws=100,
        rejection_chains=512,
        rejection_draws=200,
        slice_chains=64,
        slice_draws=200,
        variant_chains=64,
        variant_draws=200,
    ),
    # Experiments of the paper as far as they are known; the data come from a folder.
    "paper": Size(
        n_chains=128,
        n_warmup=200,
        n_draws=500,
        gp_points=25,
        gp_chains=1_024,
        gp_warmup=50,
        gp_pilot=50,
        gp_draws=10_000,
        clock_points=0,
        clock_draws=10_000,
        rounds=3,
        clock_chains=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024),
        mixture_d=100,
        mixture_chains=128,
        mixture_draws=1_000,
        rejection_chains=1_024,
        rejection_draws=10_000,
        slice_chains=1_024,
        slice_draws=1_000,
        variant_chains=64,
        variant_draws=1_000,
    ),
}
SIZES["long"] = replace(SIZES["standard"], gp_draws=4_000, mixture_draws=1_000, clock_draws=1_000)


def run(ctx: Context) -> Measurement:
    """Measure one unit.

    Parameters
    ----------
    ctx : Context
        Surroundings. The ``paper`` preset takes real estate and German credit from ``ctx.data_folder``.

    Returns
    -------
    Measurement
        Errors and p-values of the laws, ratios of iterations, of evaluations and of times, and their tables.

    Raises
    ------
    ValueError
        If the preset is unknown, or ``paper`` comes without a data folder.
    """
    if ctx.preset not in SIZES:
        raise ValueError(f"preset must be one of {', '.join(SIZES)}, got {ctx.preset!r}")
    size = limited(SIZES[ctx.preset], ctx.limit)
    process, timed, labelled = _data(ctx, size)

    ctx.progress(0.0, "NUTS on a Gaussian")
    gaussian = ctx.stage("gaussian", lambda: arms.gaussian(ctx, size))
    ctx.progress(0.05, "NUTS on the eight schools")
    schools = ctx.stage("schools", lambda: arms.schools(ctx, size))
    ctx.progress(0.15, "elliptical slice, pilot")
    ellipse = ctx.stage("elliptical", lambda: arms.elliptical(ctx, size, process))
    ctx.progress(0.55, "variants of the machine")
    variants = ctx.stage("variants", lambda: arms.variants(ctx, size, process))
    ctx.progress(0.6, "wall clock")
    clock = ctx.stage("clock", lambda: arms.clock(ctx, size, timed))
    ctx.progress(0.85, "NUTS on the mixture")
    mixture = ctx.stage("mixture", lambda: arms.mixture(ctx, size))
    ctx.progress(0.95, "delayed rejection and slices")
    others = ctx.stage("others", lambda: arms.others(ctx, size, labelled))

    rows = ellipse["rows"]
    of_clock = min(clock["rows"].tolist(), key=lambda row: abs(row[0] - 64))
    own, *rest = (variants[name] for name in arms.VARIANTS)
    unbundled = variants["amortised"]
    metrics: dict[str, Any] = {
        "z_max_nuts": float(np.abs(gaussian["z"]).max()),
        "ks_p_schools": arms.smallest_ks_p(schools["ours"], schools["theirs"]),
        "depth_p": arms.same_counts_p(schools["our_depths"], schools["their_depths"]),
        "ks_p_ess": arms.smallest_ks_p(ellipse["ours"], ellipse["theirs"]),
        "speedup_64": of_clock[3],
        "seconds_blackjax_64": of_clock[2],
        "leapfrog_ratio": mixture["ratio"],
        "evaluation_ratio": own["evaluations"] / min(variant["evaluations"] for variant in rest),
        "extra_steps": unbundled["steps"] - own["steps"],
        "rejection_ratio": others["rejection"],
        "slice_ratio": others["slice"],
        "divergences": schools["divergences"] + mixture["divergences"],
    }
    for chains in (8, 64, 512):
        group = rows[rows[:, 0] == min(chains, rows[:, 0].max())]
        metrics[f"ratio_over_prediction_{chains}"] = float((group[:, 3] / group[:, 4]).mean())
        metrics[f"iteration_ratio_{chains}"] = float(group[:, 3].mean())
        metrics[f"predicted_ratio_{chains}"] = float(group[:, 4].mean())

    columns = ("chains", "our_s", "blackjax_s", "speedup", "ratio", "step_cost_ratio", "first_s")
    tables = {
        "iterations": pl.DataFrame(rows, ["chains", "waits", "steps", "measured", "predicted"], orient="row")
        .group_by("chains", maintain_order=True)
        .mean(),
        "histogram": pl.DataFrame({"count": np.arange(21), "draws": ellipse["histogram"]}),
        "variants": pl.DataFrame([{"variant": name, **counts} for name, counts in variants.items()]),
        "clock": pl.DataFrame(clock["rows"], columns, orient="row").with_columns(
            expected=pl.col("ratio") / pl.col("step_cost_ratio")
        ),
        "mixture": pl.DataFrame(mixture["rows"]).with_columns(ess_per_s=pl.col("ess") / pl.col("seconds")),
        "depths": pl.DataFrame({"ours": schools["our_depths"], "blackjax": schools["their_depths"]}),
        "z": pl.DataFrame({"z": gaussian["z"]}),
    }
    notes = [
        f"Steps of the elliptical slice machine at {int(rows[:, 0].max())} chains: {ellipse['steps']}.",
        "First call of the machine, compiling included, and a later one: "
        + ", ".join(f"{row[6]:.1f} s and {row[1]:.1f} s at {int(row[0])} chains" for row in clock["rows"])
        + ".",
    ]
    return Measurement(metrics, tables, notes)


def limited(size: Size, limit: int | None) -> Size:
    """The size with no more than ``limit`` draws and chains anywhere."""
    if limit is None:
        return size
    capped = {
        name: min(getattr(size, name), limit)
        for name in vars(size)
        if name.endswith(("chains", "draws", "warmup", "pilot")) and name != "clock_chains"
    }
    clock_chains = tuple(m for m in size.clock_chains if m <= limit) or (1,)
    return replace(size, **capped, rounds=1, clock_chains=clock_chains[-1:])


def _data(ctx: Context, size: Size) -> tuple[Data, Data, Data]:
    """Data of the process that is counted, of the one that is timed, and of the logistic regression."""
    rng = np.random.default_rng(0) if size.shared else ctx.rng("process")
    process = targets.gp_data(rng, size.gp_points)
    if ctx.preset == "paper":
        from theses.datasets.uci import load_uci_german_credit, load_uci_realestate

        if ctx.data_folder is None:
            raise ValueError(
                "the paper preset needs data_folder: a folder with UCI's german.data-numeric and 'Real "
                "estate valuation data set.csv', the sheet of its workbook"
            )
        X, labels = load_uci_german_credit(ctx.data_folder)
        return process, load_uci_realestate(ctx.data_folder), (X, labels.astype(np.float64))
    from sklearn.datasets import load_breast_cancer
    from sklearn.preprocessing import scale

    X, labels = load_breast_cancer(return_X_y=True)
    timed = process if size.shared else targets.gp_data(ctx.rng("timed process"), size.clock_points)
    return process, timed, (scale(X), labels.astype(np.float64))
