"""Decoding with AQUA-KV's cache beside transformers' quantized and full caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import Cache, DynamicCache, QuantizedCache

from theses.datasets.shakespeare import load_shakespeare
from theses.evidence import Comparison, interleave
from theses.lm.inference.aqua_kv import AquaKVCache, HiggsQuantizer, calibrate, chunked_perplexity
from theses.models import load_language_model

PROMPT, NEW, ROUNDS = 2_048, 64, 4


def benchmark() -> list[Comparison]:
    """Rows of the comparison; the first is the primary peer.

    Returns
    -------
    list of Comparison
        64 decoded tokens behind a prompt of 2,048, against quanto's cache at 2 and 4 bits and a full cache.
    """
    model, tokenizer = load_language_model("smollm2-135m-instruct")
    works = load_shakespeare()

    def tokens(name: str, count: int) -> torch.Tensor:
        return torch.tensor(tokenizer(works[name][20_000 : 20_000 + 8 * count])["input_ids"][:count])[None]

    calibration = torch.cat([tokens(name, 1_024) for name in ("hamlet", "othello", "tempest", "macbeth")])
    predictors = calibrate(model, calibration, HiggsQuantizer(bits=2))
    text = tokens("lear", PROMPT + NEW)

    def ours() -> Cache:
        return AquaKVCache(model, predictors, compute_dtype=torch.bfloat16)

    def ours_in_float32() -> Cache:
        return AquaKVCache(model, predictors)

    def quanto(bits: int) -> Callable[[], Cache]:
        return lambda: QuantizedCache("quanto", model.config, nbits=bits)

    def quality(make: Callable[[], Cache]) -> float:
        return chunked_perplexity(model, text[:, :1_024], make)

    arms: dict[str, Callable[[], Cache]] = {
        "ours": ours,
        "quanto 2": quanto(2),
        "quanto 4": quanto(4),
        "full": DynamicCache,
    }
    perplexity = {name: quality(make) for name, make in arms.items()}
    assert perplexity["ours"] <= 1.03 * perplexity["full"]
    rows = []
    for peer, mine, target in (
        ("quanto 2", ours_in_float32, ">= 0.67"),
        ("quanto 2", ours, ""),
        ("quanto 4", ours, ""),
        ("full", ours, ""),
    ):
        caches = [_filled(model, text, kind) for kind in (mine, arms[peer])]
        runs = [_decoding(model, text, cache) for cache in caches]
        ours_s, peer_s = interleave(runs, repeats=ROUNDS, warmup=0)
        held = caches[0]
        assert isinstance(held, AquaKVCache)
        known = "transformers.DynamicCache" if peer == "full" else f"transformers.QuantizedCache, {peer} bits"
        type_ = "bfloat16" if mine is ours else "float32"
        rows.append(
            Comparison(
                known,
                f"{NEW} tokens in {ROUNDS} rounds behind {PROMPT:,}, SmolLM2-135M; predictions in {type_}",
                ours_s,
                peer_s,
                target,
                f"perplexity of 1,024 tokens: ours {perplexity['ours']:.2f}, theirs {perplexity[peer]:.2f}, "
                f"full {perplexity['full']:.2f}; ours holds {held.memory_bytes() / 2**20:.1f} MiB",
            )
        )
    return rows


@torch.no_grad()
def _filled(model: Any, text: torch.Tensor, make: Callable[[], Cache]) -> Cache:
    cache = make()
    model(text[:, :PROMPT], cache=cache, logits_to_keep=1)
    return cache


def _decoding(model: Any, text: torch.Tensor, cache: Cache) -> Callable[[], None]:
    """Reads the next tokens, one at a time; quanto's cache cannot be copied, so that each round goes on."""

    @torch.no_grad()
    def run() -> None:
        start = cache.get_seq_length()
        for i in range(start, start + NEW // ROUNDS):
            model(text[:, i : i + 1], cache=cache)

    return run
