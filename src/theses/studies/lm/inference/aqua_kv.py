"""Measures how well keys and values are predicted and coded, and what that does to perplexity and memory.

One unit calibrates on two works and tests on two others. Arms: errors of coding held-out keys and values with
predictors, with the mean alone and without; perplexity with the cache in use; bytes held. What no bound needs
is measured once, on works of its own.
"""

from __future__ import annotations

import functools
import itertools
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from theses.evidence import Context, Measurement

if TYPE_CHECKING:
    import altair as alt
    from torch import Tensor

    from theses.lm.inference.aqua_kv import AquaPredictors, KVQuantizer, LayerReport

__all__ = ["figures", "run"]


@dataclass(frozen=True)
class _Size:
    model: str
    n_works: int  # for calibration, and as many again for the test
    n_calibration: int  # texts of each work
    n_test: int
    length: int
    chunk: int  # tokens read at once when perplexity is taken
    buffer: int
    prefill: int  # tokens of the memory arm
    ablation_bits: tuple[int, ...]  # of every quantizer, beside the two bits of the claims


_SIZES = {
    "smoke": _Size("random", 1, 2, 1, 256, 64, 32, 256, (3,)),
    "standard": _Size("smollm2-135m-instruct", 2, 4, 2, 1_024, 256, 128, 4_096, (3,)),
    "long": _Size("gemma3-270m", 2, 16, 4, 1_024, 256, 128, 4_096, (3, 4)),
    "paper": _Size("folder", 1, 256, 32, 8_192, 256, 128, 8_192, (3, 4)),
}
# Settings of the paper's evaluation on LongBench: prompts cut in the middle, greedy answers.
_LONGBENCH_TOKENS, _LONGBENCH_ANSWER = 31_500, 64


def run(ctx: Context) -> Measurement:
    """Measure one unit.

    Parameters
    ----------
    ctx : Context
        Surroundings. The ``paper`` preset takes model and text from ``ctx.data_folder``; ``ctx.limit`` caps
        its texts.

    Returns
    -------
    Measurement
        Explained variance, errors, perplexities, bytes and seconds; tables by layer and by variant.

    Raises
    ------
    ValueError
        If the preset is unknown, or ``paper`` comes without a data folder in its layout.
    """
    if ctx.preset not in _SIZES:
        raise ValueError(f"preset must be one of {', '.join(_SIZES)}, got {ctx.preset!r}")
    size = _SIZES[ctx.preset]
    if ctx.preset == "paper":
        folder = ctx.data_folder
        if folder is None or not all((folder / name).is_dir() for name in ("model", "calibration", "test")):
            raise ValueError(
                "the paper preset needs data_folder: a folder with model/ (Llama-3.2-3B in safetensors), "
                "calibration/ (RedPajama) and test/ (WikiText-2), both of .txt, .jsonl or .parquet files, "
                "and, if LongBench is wanted, longbench/ with a .jsonl file a task"
            )
        if ctx.limit is not None:
            size = replace(
                size, n_calibration=min(size.n_calibration, ctx.limit), n_test=min(size.n_test, ctx.limit)
            )
            size = replace(
                size, length=min(size.length, 64 * ctx.limit), prefill=min(size.prefill, 64 * ctx.limit)
            )
    work = _Work(ctx, size)
    ctx.progress(0.0, "calibration, and errors of coding")
    coding = ctx.stage("coding", lambda: _coding(work))
    perplexity: dict[str, float] = {}
    for i, name in enumerate(("full", "aqua", "direct")):
        ctx.progress(0.5 + 0.15 * i, f"perplexity, {name}")
        perplexity[name] = ctx.stage(f"perplexity {name}", functools.partial(_perplexity, work, name))
    ctx.progress(0.92, "memory")
    memory = ctx.stage("memory", lambda: _memory(work))
    ctx.progress(0.95, "other quantizers and text, once for all seeds")
    other = ctx.once("ablations", lambda shared: _ablations(_Work(shared, size)))

    layers = coding["layers"]
    later = layers.filter(pl.col("layer") > 0)

    def column(coding_name: str, name: str) -> np.ndarray[Any, Any]:
        values: np.ndarray[Any, Any] = later.filter(pl.col("coding") == coding_name)[name].to_numpy()
        return values

    def ratio(name: str, baseline: str) -> float:
        return float(np.median(column("predicted", name) / column(baseline, name)))

    excess = perplexity["direct"] - perplexity["full"]
    # Where direct coding costs nothing, the ratio means nothing; only then is the floor used.
    excess = max(excess, 1e-6 * perplexity["full"])
    metrics = {
        "median_r2_keys": float(np.median(column("predicted", "r2_keys"))),
        "median_r2_values": float(np.median(column("predicted", "r2_values"))),
        "mse_ratio_keys": ratio("mse_keys", "direct"),
        "mse_keys_direct": float(np.median(column("direct", "mse_keys"))),
        "mse_ratio_values": ratio("mse_values", "direct"),
        "mse_values_direct": float(np.median(column("direct", "mse_values"))),
        "mse_ratio_keys_to_mean": ratio("mse_keys", "mean"),
        "mse_keys_mean": float(np.median(column("mean", "mse_keys"))),
        "mse_ratio_values_to_mean": ratio("mse_values", "mean"),
        "ppl_over_full": perplexity["aqua"] / perplexity["full"],
        "ppl_full": perplexity["full"],
        "ppl_direct_over_full": perplexity["direct"] / perplexity["full"],
        "excess_ratio": (perplexity["aqua"] - perplexity["full"]) / excess,
        "calibration_s": coding["seconds"],
        "predictor_share": coding["share"],
        "memory_over_bf16": memory["ratio"],
        **other["metrics"],
    }
    tables = {
        "layers": layers,
        "perplexity": pl.DataFrame(
            [
                {"variant": name, "perplexity": value, "over_full": value / perplexity["full"]}
                for name, value in perplexity.items()
            ]
        ),
        "ablations": other["table"],
    }
    notes = [f"works: {', '.join(coding['works'])}", f"bytes held: {memory['bytes']:,}"]
    if ctx.preset == "paper" and ctx.data_folder is not None and (ctx.data_folder / "longbench").is_dir():
        tables["longbench"] = ctx.stage("longbench", lambda: _longbench(work))
    return Measurement(metrics, tables, notes)


def figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, alt.Chart]:
    """Draw the stored tables.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        The units' tables, stacked over seeds with a column ``seed``.

    Returns
    -------
    dict of str to altair.Chart
        Errors and explained variance by layer, perplexities, ablations.
    """
    import altair as alt

    layers = (
        tables["layers"].group_by("layer", "coding").agg(pl.exclude("seed").mean()).sort("coding", "layer")
    )
    errors = layers.unpivot(["mse_keys", "mse_values"], index=["layer", "coding"], variable_name="of")
    errors = errors.with_columns(pl.col("of").str.strip_prefix("mse_"))
    explained = (
        layers.filter(coding="predicted")
        .filter(pl.col("layer") > 0)
        .unpivot(["r2_keys", "r2_values"], index=["layer"], variable_name="of")
        .with_columns(pl.col("of").str.strip_prefix("r2_"))
    )
    by_layer = (
        alt.Chart(errors, title="Relative squared error of what is read back")
        .mark_line(point=True)
        .encode(
            alt.X("layer:Q", title="layer"),
            alt.Y("value:Q", title="|x - x^|^2 / |x|^2", scale=alt.Scale(type="log")),
            alt.Color("coding:N", title="residual from"),
            alt.Column("of:N", title=None),
        )
    )
    variance = (
        alt.Chart(explained, title="Held-out variance that the predictors explain")
        .mark_line(point=True)
        .encode(
            alt.X("layer:Q", title="layer"),
            alt.Y("value:Q", title="R^2", scale=alt.Scale(domain=[0, 1], clamp=True)),
            alt.Color("of:N", title=None),
        )
    )
    perplexity = (
        alt.Chart(tables["perplexity"], title="Perplexity with the cache in use, over that of a full cache")
        .mark_point(size=60, filled=True)
        .encode(
            alt.X("over_full:Q", title="perplexity ratio", scale=alt.Scale(zero=False)),
            alt.Y("variant:N", title=None),
            alt.Color("seed:N"),
        )
    )
    once = tables["ablations"].drop("seed").unique(maintain_order=True)
    ablations = (
        alt.Chart(once, title="Other quantizers and texts: perplexity over that of a full cache")
        .mark_point(size=60, filled=True)
        .encode(
            alt.X("over_full:Q", title="perplexity ratio", scale=alt.Scale(zero=False)),
            alt.Y("variant:N", title=None, sort=None),
            alt.Color("coding:N", title="residual from"),
            alt.Tooltip(["variant", "coding", "over_full", "mse_keys", "mse_values", "bits"]),
        )
    )
    return {"errors": by_layer, "explained": variance, "perplexity": perplexity, "ablations": ablations}


class _Work:
    """Model, text and predictors of a unit, each made when it is first asked for."""

    def __init__(self, ctx: Context, size: _Size, source: str = "works") -> None:
        self.ctx, self.size, self.source = ctx, size, source

    @functools.cached_property
    def loaded(self) -> tuple[Any, Any]:
        """Model and tokenizer; none for the random model, which reads random tokens."""
        if self.size.model == "random":
            return _random_model(), None
        from theses.models import load_language_model

        name = self.size.model
        if name == "folder":
            assert self.ctx.data_folder is not None
            name = str(self.ctx.data_folder / "model")
        return load_language_model(name, device=self.ctx.device)

    @property
    def model(self) -> Any:
        return self.loaded[0]

    @functools.cached_property
    def texts(self) -> tuple[Tensor, Tensor, list[str]]:
        """Token numbers for calibration and test, ``(n_texts, length)``, and where they are from."""
        size = self.size
        if size.model == "random":
            import torch

            source = self.ctx.torch_generator(self.source)
            # Tokens that follow each other in part, so that there is something to predict.
            draws = torch.randint(3, 64, (size.n_calibration + size.n_test, size.length), generator=source)
            ids = draws.cumsum(1) % 61 + 3
            return ids[: size.n_calibration], ids[size.n_calibration :], ["random tokens"]
        rng = self.ctx.rng(self.source)
        works = self._documents(rng)
        need = 8 * size.length  # characters of a text: no tokenizer here gives tokens longer on average
        names = list(works)[: 2 * size.n_works]
        parts: list[list[Any]] = [[], []]
        for i, name in enumerate(names):
            n_texts = (size.n_calibration, size.n_test)[i >= size.n_works]
            text = works[name]
            start = int(rng.integers(0, max(len(text) - need * n_texts, 0) + 1))
            parts[i >= size.n_works].append(self._tokens(text[start : start + need * n_texts], n_texts, name))
        calibration, test = (np.concatenate(part) for part in parts)
        import torch

        return torch.from_numpy(calibration), torch.from_numpy(test), names

    def _documents(self, rng: np.random.Generator) -> dict[str, str]:
        """Text by work, in the order in which works are used: first for calibration, then for the test."""
        size = self.size
        if size.model == "folder":
            from theses.datasets.text import load_text_folder

            assert self.ctx.data_folder is not None
            return {
                name: "\n\n".join(load_text_folder(self.ctx.data_folder / name).values())
                for name in ("calibration", "test")
            }
        if self.source == "python":
            from pydoc_data.topics import topics

            # Neighbouring topics together, so that calibration and test share none.
            pages = [topics[name] for name in sorted(topics)]
            bounds = np.linspace(0, len(pages), 2 * size.n_works + 1).astype(int)
            pieces = ["\n".join(pages[a:b]) for a, b in itertools.pairwise(bounds)]
            return {f"topics {i}": pieces[i] for i in rng.permutation(len(pieces))}
        from theses.datasets.shakespeare import load_shakespeare

        works = load_shakespeare()
        long = [name for name, text in works.items() if len(text) >= 5 * size.length * size.n_calibration]
        return {long[i]: works[long[i]] for i in rng.permutation(len(long))}

    def _tokens(self, text: str, n_texts: int, name: str) -> np.ndarray[Any, Any]:
        ids = np.asarray(self.loaded[1](text, add_special_tokens=False)["input_ids"])
        wanted = n_texts * self.size.length
        if len(ids) < wanted:
            raise ValueError(f"data_folder: {name} gives {len(ids)} tokens, {wanted} are needed")
        return ids[:wanted].reshape(n_texts, self.size.length)

    @functools.cached_property
    def calibrated(self) -> dict[str, Any]:
        """Predictors, the mean alone and nothing, with the quantizer of the claims; seconds of the first."""
        from theses.lm.inference.aqua_kv import HiggsQuantizer, fit_predictors, layer_states

        calibration, model = self.texts[0], self.model
        start = time.perf_counter()
        states = list(layer_states(model, calibration))
        predicted = fit_predictors(states, HiggsQuantizer(bits=2))
        seconds = time.perf_counter() - start
        mean = fit_predictors(states, HiggsQuantizer(bits=2), predictor="mean")
        return {
            "predicted": predicted,
            "mean": mean,
            "direct": direct(predicted, HiggsQuantizer(bits=2)),
            "seconds": seconds,
        }


def direct(like: AquaPredictors, quantizer: KVQuantizer) -> AquaPredictors:
    """The same cache without predictors."""
    from theses.lm.inference.aqua_kv import AquaPredictors, HiggsQuantizer

    return AquaPredictors(
        [],
        [],
        n_layers=like.n_layers,
        width=like.width,
        predictor="none",
        quantizer=quantizer,
        first_layer_quantizer=HiggsQuantizer(bits=4),
    )


def _random_model() -> Any:
    """Random model whose layers change little of what they pass on, as those of trained models do."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=4_096,
        initializer_range=0.2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = LlamaForCausalLM(config)
        model.eval()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.03)
            layer.mlp.down_proj.weight.mul_(0.03)
    return model


def _coding(work: _Work) -> dict[str, Any]:
    from theses.lm.inference.aqua_kv import coding_errors, layer_states

    fitted = work.calibrated
    held_out = list(layer_states(work.model, work.texts[1]))
    rows = [
        {"coding": name, **row._asdict()}
        for name in ("predicted", "mean", "direct")
        for row in coding_errors(fitted[name], held_out)
    ]
    n_model = sum(parameter.numel() for parameter in work.model.parameters())
    return {
        "layers": pl.DataFrame(rows),
        "seconds": fitted["seconds"],
        "share": fitted["predicted"].n_parameters / n_model,
        "works": work.texts[2],
    }


def _perplexity(work: _Work, name: str, predictors: AquaPredictors | None = None) -> float:
    from theses.lm.inference.aqua_kv import AquaKVCache, chunked_perplexity

    model, size = work.model, work.size
    if name == "full":
        return chunked_perplexity(model, work.texts[1], chunk_tokens=size.chunk)
    used = work.calibrated["predicted" if name == "aqua" else name] if predictors is None else predictors
    return chunked_perplexity(
        model,
        work.texts[1],
        lambda: AquaKVCache(model, used, buffer_size=size.buffer),
        chunk_tokens=size.chunk,
    )


def _memory(work: _Work) -> dict[str, Any]:
    """Bytes held after a prefill and as many decoded tokens as the buffer takes, over those of a bf16 cache.

    Bytes do not depend on what is stored, so that keys and values are drawn, and the decoded tokens come in
    one call: they wait in the buffer all the same.
    """
    import torch

    from theses.lm.inference.aqua_kv import AquaKVCache

    model, size = work.model, work.size
    cache = AquaKVCache(model, work.calibrated["predicted"], buffer_size=size.buffer)
    config = model.config.get_text_config(decoder=True)
    width = work.calibrated["predicted"].width
    heads = config.num_key_value_heads
    source = work.ctx.torch_generator("memory")
    for length in (size.prefill, size.buffer - 1):
        for layer in range(config.num_hidden_layers):
            keys, values = torch.randn(
                2, 1, heads, length, width // heads, generator=source, dtype=torch.float32
            ).to(torch.bfloat16)
            cache.update(keys, values, layer)
    full = 2 * 2 * config.num_hidden_layers * width * (size.prefill + size.buffer - 1)
    return {"ratio": cache.memory_bytes() / full, "bytes": cache.memory_bytes()}


def _ablations(work: _Work) -> dict[str, Any]:
    """Other quantizers, the mean alone, and other text, on one draw of works."""
    from theses.lm.inference.aqua_kv import (
        HiggsQuantizer,
        UniformQuantizer,
        coding_errors,
        fit_predictors,
        layer_states,
    )

    size = work.size
    rows: list[dict[str, Any]] = []
    metrics: dict[str, float] = {}
    full = _perplexity(work, "full")
    calibration = list(layer_states(work.model, work.texts[0]))
    held_out = list(layer_states(work.model, work.texts[1]))
    group = 16 if size.model == "random" else 64
    variants: dict[str, KVQuantizer] = {
        "dim4": HiggsQuantizer(bits=2, dim=4),
        "uniform": UniformQuantizer(bits=2, group_size=group),
    }
    for bits in size.ablation_bits:
        variants[f"{bits}bits"] = HiggsQuantizer(bits=bits)
        if bits > 3 or len(size.ablation_bits) > 1:
            variants[f"uniform_{bits}bits"] = UniformQuantizer(bits=bits, group_size=group)

    def measure(name: str, coding: str, predictors: AquaPredictors, quantizer: KVQuantizer) -> dict[str, Any]:
        report = coding_errors(predictors, held_out)[1:]
        ppl = _perplexity(work, coding, predictors)
        rows.append(
            {
                "variant": name,
                "coding": coding,
                "bits": quantizer.bits_per_value(predictors.width),
                "mse_keys": _median(report, "mse_keys"),
                "mse_values": _median(report, "mse_values"),
                "perplexity": ppl,
                "over_full": ppl / full,
            }
        )
        return {"report": report, "over_full": ppl / full}

    for name, quantizer in variants.items():
        predicted = fit_predictors(calibration, quantizer)
        ours = measure(name, "predicted", predicted, quantizer)
        plain = measure(name, "direct", direct(predicted, quantizer), quantizer)
        for what in ("keys", "values"):
            ratios = [
                getattr(a, f"mse_{what}") / getattr(b, f"mse_{what}")
                for a, b in zip(ours["report"], plain["report"], strict=True)
            ]
            metrics[f"mse_ratio_{what}_{name}"] = float(np.median(ratios))
        metrics[f"ppl_over_full_{name}"] = ours["over_full"]
        metrics[f"ppl_direct_over_full_{name}"] = plain["over_full"]
    two_bits = HiggsQuantizer(bits=2)
    mean = fit_predictors(calibration, two_bits, predictor="mean")
    metrics["ppl_over_full_mean"] = measure("2bits", "mean", mean, two_bits)["over_full"]

    other = _Work(work.ctx, size, "python")
    other.__dict__["loaded"] = work.loaded
    layers = _coding(other)["layers"].filter(pl.col("layer") > 0)
    predicted_rows, direct_rows = (layers.filter(coding=name) for name in ("predicted", "direct"))
    python_full, python_aqua = (_perplexity(other, name) for name in ("full", "aqua"))
    metrics |= {
        "median_r2_keys_python": float(np.median(predicted_rows["r2_keys"].to_numpy())),
        "median_r2_values_python": float(np.median(predicted_rows["r2_values"].to_numpy())),
        "mse_ratio_keys_python": float(
            np.median(predicted_rows["mse_keys"].to_numpy() / direct_rows["mse_keys"].to_numpy())
        ),
        "ppl_over_full_python": python_aqua / python_full,
    }
    return {"metrics": metrics, "table": pl.DataFrame(rows)}


def _median(report: Sequence[LayerReport], name: str) -> float:
    return float(np.median([getattr(row, name) for row in report]))


def _longbench(work: _Work) -> pl.DataFrame:
    """Token F1 of greedy answers to LongBench's questions, with a full cache and with ours."""
    import json

    import torch

    from theses.lm.inference.aqua_kv import AquaKVCache

    assert work.ctx.data_folder is not None
    (model, tokenizer), rows = work.loaded, []
    predictors = work.calibrated["predicted"]
    for path in sorted((work.ctx.data_folder / "longbench").glob("*.jsonl")):
        cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        for number, case in enumerate(cases[: work.ctx.limit]):
            ids = tokenizer(f"{case['context']}\n\n{case['input']}\nAnswer:")["input_ids"]
            if len(ids) > _LONGBENCH_TOKENS:
                half = _LONGBENCH_TOKENS // 2
                ids = ids[:half] + ids[-half:]
            prompt = torch.tensor([ids], device=model.device)
            for variant in ("full", "aqua"):
                options = {"cache": AquaKVCache(model, predictors)} if variant == "aqua" else {}
                answer = model.generate(
                    prompt,
                    attention_mask=torch.ones_like(prompt),
                    max_new_tokens=_LONGBENCH_ANSWER,
                    do_sample=False,
                    pad_token_id=tokenizer.eos_token_id,
                    **options,
                )
                text = tokenizer.decode(answer[0, len(ids) :], skip_special_tokens=True)
                score = max(_f1(text, truth) for truth in case["answers"])
                rows.append({"task": path.stem, "case": number, "variant": variant, "f1": score})
    return pl.DataFrame(rows)


def _f1(answer: str, truth: str) -> float:
    ours, theirs = (Counter(re.findall(r"\w+", text.lower())) for text in (answer, truth))
    common = sum((ours & theirs).values())
    return 2 * common / (sum(ours.values()) + sum(theirs.values())) if common else 0.0
