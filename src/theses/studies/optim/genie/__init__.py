"""Measures whether GENIE does better on domains that it has not seen, and what it does on the way.

SGD, Adam, AdamW, SAM and GENIE learn four data sets of real digits from the same splits and batches: rotated,
tinted (the colour betrays the label), fine-tuned to other styles, and photographed (an ImageNet network is
fine-tuned). The step is chosen by a hold-out of the training domains, and so is each optimiser's rate, once.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from theses.evidence import Context, Measurement

if TYPE_CHECKING:
    import altair as alt

__all__ = ["figures", "run"]


def run(ctx: Context) -> Measurement:
    """Measure one unit.

    Parameters
    ----------
    ctx : Context
        Surroundings. The ``paper`` preset takes DomainBed's data sets and ``resnet50.pth`` from
        ``ctx.data_folder``; with ``ctx.limit`` it reads so many images of a class, and a narrow ResNet-50
        without weights makes two steps.

    Returns
    -------
    Measurement
        Gains in accuracy on unseen domains, inequality of the updates, one-step ratios, the slope of the
        squared gradient, times of a step.

    Raises
    ------
    ValueError
        If the preset is unknown, or ``paper`` comes without a data folder.
    """
    from theses.problems.domains import DOMAINBED
    from theses.studies.optim.genie.sizes import ARMS, DIGITS, SIZES, SMALL
    from theses.studies.optim.genie.training import learn, measure_rate, times, tune, tune_rate

    if ctx.preset not in SIZES:
        raise ValueError(f"preset must be one of {', '.join(SIZES)}, got {ctx.preset!r}")
    paper = ctx.preset == "paper"
    if paper and ctx.data_folder is None:
        raise ValueError(
            "the paper preset needs data_folder: a folder with resnet50.pth (torchvision's ImageNet weights) "
            f"and DomainBed's {', '.join(DOMAINBED)}, each DOMAIN/CLASS/*.jpg"
        )
    size = SIZES["smoke" if ctx.limit is not None else ctx.preset]
    data = (*DIGITS, *DOMAINBED) if paper else DIGITS

    found: dict[str, Any] = {}
    trials: list[dict[str, Any]] = []
    for nth, name in enumerate(data):
        ctx.progress(0.8 * nth / len(data), f"data set {name}")
        small = name in SMALL
        tuned = (*ARMS, "as printed") if small else ARMS
        choice = ctx.once(f"tuning-{name}", partial(tune, size=size, name=name, arms=tuned))
        trials += choice["trials"]
        rates = dict(choice["best"])
        if small:  # the variants without draws keep GENIE's rate
            rates |= {"no mask": rates["GENIE"], "no draws": rates["GENIE"]}
        found[name] = ctx.stage(name, partial(learn, ctx, size, name, rates))
    ctx.progress(0.8, "rate of convergence")
    constant = ctx.once("tuning-rate", partial(tune_rate, size=size))
    grad2 = ctx.stage(
        "rate", lambda: [measure_rate(ctx, horizon, constant["best"]) for horizon in size.horizons]
    )
    ctx.progress(0.9, "times")
    timing = ctx.stage("times", lambda: times(ctx, size))

    metrics = _metrics(found, data[len(DIGITS) :] if paper else DIGITS, "VLCS" if paper else "styled")
    metrics["slope_grad2"] = float(np.polyfit(np.log(size.horizons), np.log(grad2), 1)[0])
    metrics |= _time_metrics(timing)
    notes = [
        f"{name}: {arm} diverged at its tuned rate"
        for name, entry in found.items()
        for arm, result in entry["arms"].items()
        if result["diverged"]
    ]
    return Measurement(metrics, _tables(found, size.horizons, grad2, timing, trials), notes)


def _metrics(found: Mapping[str, Any], judged: tuple[str, ...], focus: str) -> dict[str, Any]:
    """Comparisons within the unit: accuracy over the data sets ``judged``, all else on ``focus``."""
    from theses.studies.optim.genie.sizes import ARMS, DIGITS, SMALL, VARIANTS

    def value(name: str, arm: str, what: str) -> float:
        result = found[name]["arms"][arm]
        if what == "osgr":
            return float(np.mean([ratio for _, ratio in result["osgr"]]))
        return float(result[what])

    def ood(arm: str, names: tuple[str, ...]) -> float:
        return 100 * float(np.mean([value(name, arm, "ood") for name in names]))

    metrics: dict[str, Any] = {f"ood_{arm.lower()}": ood(arm, judged) for arm in ARMS}
    for arm in ARMS[:-1]:
        metrics[f"gain_vs_{arm.lower()}"] = metrics["ood_genie"] - metrics[f"ood_{arm.lower()}"]
    for name, ending in [(focus, ""), *((name, f"_{name}") for name in DIGITS if name != focus)]:
        for arm in ("SGD", "Adam"):
            key = arm.lower()
            metrics[f"gini_vs_{key}{ending}"] = value(name, "GENIE", "gini") / value(name, arm, "gini")
            metrics[f"osgr_vs_{key}{ending}"] = value(name, "GENIE", "osgr") - value(name, arm, "osgr")
            if not ending:
                metrics[f"gini_{key}"] = value(name, arm, "gini")
                metrics[f"osgr_{key}"] = value(name, arm, "osgr")
    for name in DIGITS:
        for arm in ARMS:
            metrics[f"ood_{name}_{arm.lower()}"] = 100 * value(name, arm, "ood")
    for variant in VARIANTS:
        metrics[f"gain_{variant.replace(' ', '_')}"] = ood(variant, SMALL) - ood("GENIE", SMALL)
    return metrics


def _time_metrics(timing: list[dict[str, Any]]) -> dict[str, float]:
    median = {
        arm: statistics.median(
            row["seconds"] for row in timing if row["network"] == "MobileNetV2" and row["optimiser"] == arm
        )
        for arm in ("Adam", "GENIE", "SAM")
    }
    return {
        "step_time_vs_adam": median["GENIE"] / median["Adam"],
        "step_time_adam": median["Adam"],
        "step_time_sam_vs_genie": median["SAM"] / median["GENIE"],
        "step_time_sam": median["SAM"],
    }


def _tables(
    found: Mapping[str, Any],
    horizons: tuple[int, ...],
    grad2: list[float],
    timing: list[dict[str, Any]],
    trials: list[dict[str, Any]],
) -> dict[str, pl.DataFrame]:
    accuracies, ratios = [], []
    for name, entry in found.items():
        for arm, result in entry["arms"].items():
            label = arm if arm[0].isupper() else f"GENIE, {arm}"
            accuracies.append(
                {
                    "data": name,
                    "held_out": entry["held_out"],
                    "optimiser": label,
                    "ood": result["ood"],
                    "validation": result["validation"],
                    "step": int(result["step"]),
                    "gini": result["gini"],
                }
            )
            ratios += [
                {"data": name, "optimiser": label, "step": int(step), "osgr": ratio}
                for step, ratio in result["osgr"]
            ]
    text, number, count = pl.String, pl.Float64, pl.Int64
    return {
        "accuracy": pl.DataFrame(
            accuracies,
            schema={
                "data": text,
                "held_out": text,
                "optimiser": text,
                "ood": number,
                "validation": number,
                "step": count,
                "gini": number,
            },
        ),
        "osgr": pl.DataFrame(ratios, schema={"data": text, "optimiser": text, "step": count, "osgr": number}),
        "rate": pl.DataFrame(
            {"horizon": list(horizons), "grad2": grad2}, schema={"horizon": count, "grad2": number}
        ),
        "times": pl.DataFrame(
            timing, schema={"network": text, "optimiser": text, "round": count, "seconds": number}
        ),
        "tuning": pl.DataFrame(
            trials,
            schema={
                "data": text,
                "optimiser": text,
                "rate": number,
                "validation": number,
                "loss": number,
                "winner": pl.Boolean,
            },
        ),
    }


def figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, alt.Chart]:
    """Charts of the stored tables.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        ``accuracy``, ``osgr``, ``rate`` and ``times``, each with a column ``seed``.

    Returns
    -------
    dict of str to altair.Chart
        ``accuracy`` on unseen domains and ``gini`` of the updates by data set, ``osgr`` during training,
        ``rate``: the squared gradient by the number of steps, ``times`` of a step.
    """
    import altair as alt

    colour = alt.Color("optimiser:N", title="optimiser")
    by_data = alt.Chart(tables["accuracy"]).mark_point(filled=True, size=50, opacity=0.7)
    tooltip = ["data:N", "held_out:N", "optimiser:N", "ood:Q", "validation:Q", "step:Q", "gini:Q", "seed:N"]
    charts = {
        name: by_data.encode(
            x=alt.X(f"{name}:Q", title=title).scale(zero=False),
            y=alt.Y("optimiser:N", title=None),
            row=alt.Row("data:N", title=None),
            color=colour.legend(None),
            tooltip=tooltip,
        ).properties(width=420)
        for name, title in (
            ("ood", "accuracy on unseen domains"),
            ("gini", "Gini coefficient of the sum of absolute updates"),
        )
    }
    charts["accuracy"] = charts.pop("ood")
    charts["osgr"] = (
        alt.Chart(tables["osgr"].filter(~pl.col("optimiser").str.contains(",")))
        .mark_line(point=True)
        .encode(
            x=alt.X("step:Q", title="step"),
            y=alt.Y("mean(osgr):Q", title="one-step generalisation ratio, mean over seeds"),
            color=colour,
            row=alt.Row("data:N", title=None),
            tooltip=["data:N", "optimiser:N", "step:Q", "mean(osgr):Q"],
        )
        .properties(width=420, height=160)
    )
    charts["rate"] = (
        alt.Chart(tables["rate"])
        .mark_line(point=True)
        .encode(
            x=alt.X("horizon:Q", title="steps T, rate c / sqrt(T)").scale(type="log"),
            y=alt.Y("grad2:Q", title="mean squared norm of the gradient").scale(type="log"),
            color=alt.Color("seed:N", title="seed"),
            tooltip=["horizon:Q", "grad2:Q", "seed:N"],
        )
        .properties(width=420, height=240)
    )
    charts["times"] = (
        alt.Chart(tables["times"].with_columns(ms=1e3 * pl.col("seconds")))
        .mark_point(filled=True, size=50, opacity=0.7)
        .encode(
            x=alt.X("ms:Q", title="milliseconds a step").scale(type="log"),
            y=alt.Y("optimiser:N", title=None),
            row=alt.Row("network:N", title=None),
            color=colour.legend(None),
            tooltip=["network:N", "optimiser:N", "ms:Q", "round:Q", "seed:N"],
        )
        .properties(width=420)
    )
    return charts
