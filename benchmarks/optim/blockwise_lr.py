"""Blockwise AdamW beside torch's AdamW, Adam-mini beside the package adam-mini, at 135 million parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import nn

from theses.evidence import Comparison, interleave
from theses.models import load_language_model
from theses.optim.blockwise_lr import (
    BLOCKS,
    AdamMini,
    BlockwiseAdamW,
    block_sharpness,
    blockwise_groups,
    classify,
)

_FLAT = dict.fromkeys(BLOCKS, 1.0)
_BETAS = (0.9, 0.95)
_CLASSIFY_S = 0.01
_FISHER_S = 60.0


def benchmark() -> list[Comparison]:
    """Rows of the comparison; the first is the primary peer.

    Returns
    -------
    list of Comparison
        A step of each optimiser on SmolLM2's and GPT-2's shapes, classification, a Fisher pass.
    """
    return [_groups(), _mini(), _fused(), _classification(), _fisher()]


def _llama(seed: int = 0, layers: int = 30) -> nn.Module:
    """SmolLM2-135M's shapes with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1_536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )
    return _seeded(lambda: LlamaForCausalLM(config), seed)


def _gpt2(seed: int = 0) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return _seeded(lambda: GPT2LMHeadModel(GPT2Config()), seed)


def _seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def _gradients(models: Sequence[nn.Module]) -> None:
    """The same random gradients for all."""
    generator = torch.Generator().manual_seed(1)
    for parameters in zip(*(model.parameters() for model in models), strict=True):
        gradient = 1e-2 * torch.randn(parameters[0].shape, generator=generator)
        for parameter in parameters:
            parameter.grad = gradient


def _difference(models: Sequence[nn.Module]) -> float:
    ours, theirs = (model.parameters() for model in models)
    return max(float((a - b).detach().abs().max()) for a, b in zip(ours, theirs, strict=True))


def _steps(ours: torch.optim.Optimizer, theirs: torch.optim.Optimizer) -> list[list[float]]:
    return interleave([ours.step, theirs.step], repeats=5)


def _mini() -> Comparison:
    from adam_mini import Adam_mini

    models = [_llama(), _llama()]
    _gradients(models)
    ours = AdamMini(blockwise_groups(models[0], 1e-3, _FLAT), betas=_BETAS)
    theirs = Adam_mini(
        models[1].named_parameters(),
        lr=1e-3,
        betas=_BETAS,
        weight_decay=0.1,
        dim=576,
        n_heads=9,
        n_kv_heads=3,
        verbose=False,
    )
    ours_s, peer_s = _steps(ours, theirs)
    gap = _difference(models)
    assert gap < 1e-5
    return Comparison(
        "adam-mini Adam_mini",
        "one step, SmolLM2's 135 million parameters",
        ours_s,
        peer_s,
        ">= 1",
        f"the same sub-blocks; weights differ by {gap:.1e} after 6 steps",
    )


def _groups() -> Comparison:
    models = [_llama(), _llama()]
    _gradients(models)
    ours = BlockwiseAdamW(blockwise_groups(models[0], 1e-3, _FLAT), betas=_BETAS, foreach=True)
    theirs = torch.optim.AdamW(models[1].parameters(), lr=1e-3, betas=_BETAS, weight_decay=0, foreach=True)
    for group in ours.param_groups:
        group["weight_decay"] = 0.0
    ours_s, peer_s = _steps(ours, theirs)
    assert _difference(models) == 0
    return Comparison(
        "torch.optim.AdamW, foreach, one group",
        "one step, SmolLM2's 135 million parameters, a group for each block",
        ours_s,
        peer_s,
        ">= 0.95",
        "the same weights to the bit where all ratios are 1",
    )


def _fused() -> Comparison:
    models = [_gpt2(), _gpt2()]
    _gradients(models)
    ours = BlockwiseAdamW(blockwise_groups(models[0], 1e-3, _FLAT), betas=_BETAS, foreach=True)
    theirs = torch.optim.AdamW(blockwise_groups(models[1], 1e-3, _FLAT), lr=1e-3, betas=_BETAS, foreach=True)
    ours_s, peer_s = _steps(ours, theirs)
    assert _difference(models) == 0
    return Comparison(
        "torch.optim.AdamW, foreach",
        "one step, GPT-2's 124 million parameters, query, key and value fused by columns",
        ours_s,
        peer_s,
        ">= 0.8",
        "the same weights to the bit where all ratios are 1; ours gives slices rates of their own",
    )


def _classification() -> Comparison:
    with torch.device("meta"):
        model = _llama(layers=33)
        model.tie_weights()  # type: ignore[operator]
    blocks = classify(model)

    def by_substrings() -> list[str]:
        # What scripts do by hand: a few substrings, right for this model alone.
        keys = {"embed": ("embed",), "qk": ("q_proj", "k_proj"), "vo": ("v_proj", "o_proj"), "ffn": ("mlp",)}
        return [
            next((block for block, parts in keys.items() if any(part in name for part in parts)), "norm")
            for name, _ in model.named_parameters()
        ]

    assert by_substrings() == list(blocks.values())
    ours_s, peer_s = interleave([lambda: classify(model), by_substrings], repeats=9)
    assert sorted(ours_s)[4] < _CLASSIFY_S
    return Comparison(
        "substrings of the names, by hand",
        f"classification of {len(blocks)} tensors",
        ours_s,
        peer_s,
        "",
        f"the same blocks on this model; ours has to stay below {1e3 * _CLASSIFY_S:g} ms",
    )


def _fisher() -> Comparison:
    model, _ = load_language_model("smollm2-135m-instruct")
    ids = torch.randint(1_000, 40_000, (8, 128), generator=torch.Generator().manual_seed(0))

    def ours() -> None:
        block_sharpness(
            model, lambda model, b: model(input_ids=b, use_cache=False).logits, [ids], generator=0
        )

    def backward() -> None:
        model.zero_grad()
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()

    start = time.perf_counter()
    ours_s, peer_s = interleave([ours, backward], repeats=2)
    assert max(ours_s) < _FISHER_S, f"{time.perf_counter() - start:.0f} s in all"
    return Comparison(
        "one forward and backward pass",
        "Fisher sharpness of SmolLM2, 8 x 128 tokens",
        ours_s,
        peer_s,
        "",
        f"a pass of the loss with sampled labels, and squares; ours has to stay below {_FISHER_S:g} s",
    )
