"""Measures whether learning rates by block train faster, and how sharp the blocks are.

A tiny Llama learns Shakespeare under AdamW and Adam-mini, each with one learning rate and with the paper's
ratios, all tuned on the same grids. Sharpness is measured on the way and in a pre-trained model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from theses.evidence import Context, Measurement
from theses.studies.optim.blockwise_lr.figures import figures

if TYPE_CHECKING:
    from torch import nn

    from theses.optim.blockwise_lr import SharpnessReport
    from theses.studies.optim.blockwise_lr.training import Size

__all__ = ["figures", "run"]

_BASE_GRID = (2e-3, 4e-3, 8e-3, 16e-3)
_BLOCKWISE_GRID = (0.5e-3, 1e-3, 2e-3, 4e-3)
_BLOCKS = ("embed", "qk", "ffn", "vo", "norm")
_MOST_TRIALS = 7  # of a grid that is widened
_TRIAL_TOKENS = 128
# One draw scatters by 0.1 nat at the large rates, more than neighbours in the grid differ by.
_TUNING_DRAWS = 2


def _sizes() -> dict[str, Size]:
    from theses.studies.optim.blockwise_lr.training import Size

    grids = {
        "adamw": _BASE_GRID,
        "mini": _BASE_GRID,
        "blockwise": _BLOCKWISE_GRID,
        "blockwise mini": _BLOCKWISE_GRID,
    }
    standard = Size(
        steps=300,
        warmup=15,
        context=64,
        batch=16,
        width=64,
        layers=4,
        heads=4,
        inner=176,
        vocabulary=2_048,
        works=None,
        windows=64,
        every=20,
        rates=grids,
        n_sharp=8,
        smollm2=True,
    )
    return {
        "smoke": replace(
            standard,
            steps=20,
            warmup=2,
            context=16,
            batch=4,
            width=16,
            layers=2,
            heads=2,
            inner=32,
            vocabulary=320,
            works=2,
            windows=8,
            every=5,
            rates={"adamw": (4e-3,), "mini": (4e-3,), "blockwise": (1e-3,), "blockwise mini": (1e-3,)},
            n_sharp=2,
            smollm2=False,
        ),
        "standard": standard,
        "long": replace(standard, steps=1_500, warmup=75, context=128, batch=8, width=128, inner=352),
        # GPT-2 small on OpenWebText; 300 sequences a step, the paper's tuned base rate.
        "paper": replace(
            standard,
            steps=50_000,
            warmup=1_000,
            context=1_024,
            batch=300,
            width=768,
            layers=12,
            heads=12,
            vocabulary=50_257,
            windows=600,
            every=500,
            rates=dict.fromkeys(grids, (6e-4,)),
            gpt2=True,
        ),
    }


def run(ctx: Context) -> Measurement:
    """Measure one unit.

    Parameters
    ----------
    ctx : Context
        Surroundings. The ``paper`` preset takes train.bin and val.bin from ``ctx.data_folder``; with
        ``ctx.limit`` it runs so many steps of a model with two narrow layers on
        256 tokens.

    Returns
    -------
    Measurement
        Speed-ups, differences of loss, agreement of the sharpness with the paper's order.

    Raises
    ------
    ValueError
        If the preset is unknown, or ``paper`` comes without a data folder.
    """
    sizes = _sizes()
    if ctx.preset not in sizes:
        raise ValueError(f"preset must be one of {', '.join(sizes)}, got {ctx.preset!r}")
    size = sizes[ctx.preset]
    if ctx.preset == "paper" and ctx.data_folder is None:
        raise ValueError(
            "the paper preset needs data_folder: a folder with train.bin and val.bin, GPT-2 tokens of "
            "OpenWebText as little-endian 16-bit integers"
        )
    if ctx.limit is not None:
        steps = max(min(size.steps, ctx.limit), 4)
        size = replace(size, steps=steps, warmup=max(steps // 20, 1), every=max(steps // 4, 1))
        if size.gpt2:
            size = replace(
                size,
                batch=2,
                context=32,
                windows=4,
                width=32,
                layers=2,
                heads=2,
                vocabulary=256,
                n_sharp=1,
                smollm2=False,
            )

    ctx.progress(0.0, "tuning")
    tuning = ctx.once("tuning", lambda shared: _tune(shared, size))
    best = {name: _best(tuning["losses"][name]) for name in size.rates}
    arms = {
        "adamw": ("adamw", best["adamw"]),
        "blockwise, base of adamw": ("blockwise", best["adamw"]),
        "blockwise": ("blockwise", best["blockwise"]),
        "mini": ("mini", best["mini"]),
        "blockwise mini": ("blockwise mini", best["blockwise mini"]),
    }
    found: dict[str, Any] = {}
    for nth, (name, (optimiser, rate)) in enumerate(arms.items()):
        ctx.progress(0.1 + 0.12 * nth, f"training: {name}")
        found[name] = ctx.stage(name, lambda o=optimiser, r=rate: _arm(ctx, size, o, r))  # type: ignore[misc]
    ctx.progress(0.7, "sharpness of a pre-trained model")
    trained = ctx.stage("smollm2", lambda: _pretrained(ctx, size))
    ctx.progress(0.8, "state of the optimisers")
    state = ctx.stage("state", lambda: _state_ratios(ctx, size))
    ctx.progress(0.85, "observations")
    seen = ctx.once("observations", lambda shared: _observe(shared, size, best))

    curves = {name: arm["evaluations"] for name, arm in found.items()}
    final = {name: curve[-1][1] for name, curve in curves.items()}
    reports = [*found["adamw"]["sharpness"].items(), ("pre-trained", trained)]
    metrics = {
        "speedup_same_base": _speedup(curves["blockwise, base of adamw"], curves["adamw"]),
        "loss_gain_same_base": final["adamw"] - final["blockwise, base of adamw"],
        "speedup_tuned": _speedup(curves["blockwise"], curves["adamw"]),
        "loss_gain_tuned": final["adamw"] - final["blockwise"],
        "final_loss_adamw": final["adamw"],
        "spearman_tiny": [report["agreement"] for _, report in reports[:-1]],
        "spearman_smollm2": trained["agreement"],
        "order_share": sum(_three_hold(report["sharpness"]) for _, report in reports) / len(reports),
        "state_ratio": list(state.values()),
        "speedup_mini": _speedup(curves["blockwise mini"], curves["mini"]),
        "final_loss_mini": final["mini"],
        **seen["metrics"],
    }
    tables = {
        "curves": pl.DataFrame(
            [
                {"run": name, "step": step, "loss": loss}
                for name, curve in curves.items()
                for step, loss in curve
            ]
        ),
        "sharpness": pl.DataFrame(
            [
                {"model": str(label), "block": block, "sharpness": value}
                for label, report in reports
                for block, value in report["sharpness"].items()
            ]
        ),
        "tuning": pl.DataFrame(
            [
                {"optimiser": name, "rate": rate, "loss": loss, "best": rate == best[name]}
                for name, trials in tuning["losses"].items()
                for rate, loss in trials
            ]
        ),
        "ratios": pl.DataFrame(
            [{"block": block, "ratio": float(ratio)} for block, ratio in seen["ratios"].items()]
        ),
    }
    notes = [f"base rates: {', '.join(f'{name} {rate:g}' for name, rate in best.items())}"]
    if not size.smollm2:
        notes.append("the pre-trained model is replaced by a random one, for wiring only")
    return Measurement(metrics, tables, notes)


def _tune(ctx: Context, size: Size) -> dict[str, Any]:
    """Final loss by base rate, mean over draws; a winner at an edge of its grid widens it twofold."""
    from theses.studies.optim.blockwise_lr.training import train

    draws = [replace(ctx, seed=ctx.seed + nth) for nth in range(_TUNING_DRAWS if size.smollm2 else 1)]

    def loss(name: str, rate: float) -> float:
        return sum(train(draw, size, name, rate).final for draw in draws) / len(draws)

    losses: dict[str, list[tuple[float, float]]] = {}
    for name, grid in size.rates.items():
        if len(grid) == 1:  # nothing to choose
            losses[name] = [(grid[0], math.nan)]
            continue
        trials = {rate: loss(name, rate) for rate in grid}
        while len(trials) < _MOST_TRIALS:
            winner = _best(list(trials.items()))
            if winner not in (min(trials), max(trials)):
                break
            further = winner * 2 if winner == max(trials) else winner / 2
            trials[further] = loss(name, further)
        losses[name] = sorted(trials.items())
    return {"losses": losses}


def _best(trials: Sequence[Sequence[float]]) -> float:
    return min(trials, key=lambda trial: trial[1])[0]


def _marks(size: Size) -> tuple[int, ...]:
    """Steps at 2, 20 and 100 per cent."""
    return tuple(max(round(share * size.steps), nth + 1) for nth, share in enumerate((0.02, 0.2, 1.0)))


def _arm(ctx: Context, size: Size, optimiser: str, rate: float) -> dict[str, Any]:
    from theses.studies.optim.blockwise_lr.training import train

    marks = _marks(size) if optimiser == "adamw" else ()
    found = train(ctx, size, optimiser, rate, sharp_at=marks)
    return {
        "evaluations": found.evaluations,
        "sharpness": {f"step {step}": _plain(report) for step, report in found.sharpness.items()},
    }


def _plain(report: SharpnessReport) -> dict[str, Any]:
    return {"agreement": report.agreement(), "sharpness": report.per_block_mean}


def _three_hold(sharpness: Mapping[str, float]) -> bool:
    """Embeddings flattest, norms sharpest, value-output sharper than query-key."""
    values = {block: sharpness[block] for block in _BLOCKS}
    return (
        min(values, key=lambda block: values[block]) == "embed"
        and max(values, key=lambda block: values[block]) == "norm"
        and values["vo"] > values["qk"]
    )


def _speedup(curve: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]]) -> float:
    """Steps of the baseline over those to its final loss, interpolated; 1 if that is not reached."""
    steps, target = baseline[-1]
    before: Sequence[float] | None = None
    for step, loss in curve:
        if loss <= target:
            if before is not None:
                step = before[0] + (step - before[0]) * (before[1] - target) / (before[1] - loss)
            return steps / step
        before = (step, loss)
    return 1.0


def _pretrained(ctx: Context, size: Size) -> dict[str, Any]:
    """Sharpness of SmolLM2 on windows of the training works."""
    import torch

    from theses.optim.blockwise_lr import block_sharpness

    model, windows = _smollm2(ctx, size, 4, 4)
    with torch.enable_grad():
        report = block_sharpness(
            model,
            lambda model, ids: model(input_ids=ids, use_cache=False).logits,
            windows,
            generator=ctx.torch_generator("labels of smollm2"),
        )
    return _plain(report)


def _smollm2(ctx: Context, size: Size, n_batches: int, batch: int) -> tuple[nn.Module, list[Any]]:
    """The pre-trained model and batches of 128 tokens; a random small Llama where it is not wanted."""
    import torch

    from theses.datasets.shakespeare import load_shakespeare
    from theses.datasets.text import split_works
    from theses.models import load_language_model

    rng = ctx.rng("windows")
    if not size.smollm2:
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            vocab_size=64,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            tie_word_embeddings=True,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(ctx.integer("random model"))
            small: nn.Module = LlamaForCausalLM(config)
        return small, [torch.from_numpy(rng.integers(64, size=(2, 16))) for _ in range(2)]
    model, tokenizer = load_language_model("smollm2-135m-instruct")
    train, _ = split_works(load_shakespeare())
    texts = list(train.values())
    rows: list[list[int]] = []
    while len(rows) < n_batches * batch:
        text = texts[rng.integers(len(texts))]
        start = int(rng.integers(len(text) - 8 * _TRIAL_TOKENS))
        ids = tokenizer(text[start : start + 8 * _TRIAL_TOKENS])["input_ids"]
        if len(ids) >= _TRIAL_TOKENS:
            rows.append(ids[:_TRIAL_TOKENS])
    return model, [torch.tensor(rows[i : i + batch]) for i in range(0, len(rows), batch)]


def _state_ratios(ctx: Context, size: Size) -> dict[str, float]:
    """Bytes of Adam-mini's state over AdamW's, from shapes alone."""
    import torch

    from theses.optim.blockwise_lr import AdamMini, blockwise_groups
    from theses.studies.optim.blockwise_lr.tiny import TinyLlama
    from theses.studies.optim.blockwise_lr.training import FLAT

    def ratio(model: nn.Module) -> float:
        bytes_of = []
        for kind in (AdamMini, torch.optim.AdamW):
            optimizer = kind(blockwise_groups(model, 1e-3, FLAT))
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
            bytes_of.append(
                sum(value.nbytes for state in optimizer.state.values() for value in state.values())
            )
        return float(bytes_of[0] / bytes_of[1])

    # On the meta device nothing is allocated, and sizes are the same.
    tiny = TinyLlama(size.vocabulary, size.width, size.layers, size.heads, size.inner, torch.Generator())
    pretrained, _ = _smollm2(ctx, size, 0, 1)
    with torch.device("meta"):
        empty: Any = type(pretrained)(pretrained.config)
        empty.tie_weights()
    return {"tiny": ratio(tiny.to("meta")), "pretrained": ratio(empty)}


def _observe(ctx: Context, size: Size, best: Mapping[str, float]) -> dict[str, Any]:
    """What is drawn and not judged, on the data of the tuning."""
    from theses.optim.blockwise_lr import PAPER_RATIOS, suggest_ratios
    from theses.studies.optim.blockwise_lr.training import measured, train

    others: dict[str, float] = {}

    def at_end(model: nn.Module) -> None:
        others["spearman_hutchinson"] = measured(ctx, size, model, "hutchinson", n_batches=1).agreement()
        others["spearman_lanczos"] = measured(ctx, size, model, "lanczos", n_batches=1).agreement()
        detached = not size.gpt2
        others["spearman_input_path"] = measured(ctx, size, model, detach_head=detached).agreement()

    early = _marks(size)[1]
    watched = train(ctx, size, "adamw", best["adamw"], sharp_at=(early,), at_end=at_end)
    report = watched.sharpness[early]
    suggested = suggest_ratios(report)
    tuned = train(ctx, size, "blockwise", best["blockwise"]).final
    metrics = {
        "loss_gain_suggested": watched.final
        - train(ctx, size, "blockwise", best["blockwise"], suggested).final
    }
    for block in _BLOCKS[:-1]:
        without = train(ctx, size, "blockwise", best["blockwise"], {**PAPER_RATIOS, block: 1})
        metrics[f"loss_without_{block}"] = without.final - tuned
    wsd = {name: train(ctx, size, name, best[name], kind="wsd").final for name in ("adamw", "blockwise")}
    metrics["loss_gain_wsd"] = wsd["adamw"] - wsd["blockwise"]
    assert all(math.isfinite(value) for value in others.values())
    return {"metrics": {**metrics, **others}, "ratios": suggested}
