from __future__ import annotations

import copy
import io
import json
import logging
import math
import warnings
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F  # noqa: N812

from tests.conformance.contract import Call, OptimizerCase
from theses.catalogue import lookup
from theses.catalogue.card import Bound
from theses.evidence import Context
from theses.optim.blockwise_lr import (
    BLOCKS,
    FUSED,
    PAPER_RATIOS,
    AdamMini,
    BlockwiseAdamW,
    SharpnessReport,
    block_sharpness,
    blockwise_groups,
    blockwise_schedule,
    classify,
    sharpness,
    suggest_ratios,
    trainer_optimizers,
)
from theses.optim.blockwise_lr.blocks import place
from theses.studies.optim import blockwise_lr as study
from theses.studies.optim.blockwise_lr.tiny import TinyLlama

SLUG = "blockwise-lr"
FLAT = dict.fromkeys(BLOCKS, 1)


def calls() -> list[Call]:
    return []  # nothing public takes arrays: models, optimisers and batches go through


OPTIMIZERS = {
    "BlockwiseAdamW": OptimizerCase(
        BlockwiseAdamW,
        lambda params, lr: torch.optim.AdamW(params, lr=lr, betas=(0.9, 0.95), weight_decay=0.1),
        foreach=True,
        invalid={
            "lr": (-1.0, math.nan),
            "betas": ((0.9, 1.0), (0.9,)),
            "eps": (-1.0,),
            "weight_decay": (-0.1,),
        },
    ),
    "AdamMini": OptimizerCase(
        AdamMini,
        foreach=True,
        needs_named=True,
        invalid={"lr": (-1.0, math.nan), "betas": ((0.9, 1.0),), "head_dim": (0,)},
    ),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def tiny_llama(tied=True, **changes):
    from transformers import LlamaConfig, LlamaForCausalLM

    settings_ = {
        "vocab_size": 40,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": tied,
        "attn_implementation": "eager",
        **changes,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(**settings_))


def tiny_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=40, n_positions=16, n_embd=16, n_layer=1, n_head=4, bos_token_id=None, eos_token_id=None
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return GPT2LMHeadModel(config).eval()


class NanoNorm(nn.Module):  # nanoGPT has a norm of its own
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight)


NanoNorm.__name__ = "LayerNorm"


class CausalSelfAttention(nn.Module):
    c_attn: Any
    c_proj: Any

    def __init__(self, width, heads):
        super().__init__()
        self.n_head, self.n_embd = heads, width
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        shape = (*x.shape[:2], self.n_head, -1)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).flatten(2))


class NanoBlock(nn.Module):
    mlp: Any

    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = NanoNorm(width), NanoNorm(width)
        self.attn = CausalSelfAttention(width, heads)
        self.mlp = nn.Module()
        self.mlp.c_fc, self.mlp.c_proj = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x))))


class NanoGPT(nn.Module):
    """Layout and names of nanoGPT; smooth, so that its Hessian is the same everywhere it is looked at."""

    transformer: Any

    def __init__(self, vocabulary=11, width=8, heads=2, length=6):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.make(vocabulary, width, heads, length)

    def make(self, vocabulary, width, heads, length):
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(length, width),
                "drop": nn.Dropout(0.5),
                "h": nn.ModuleList([NanoBlock(width, heads)]),
                "ln_f": NanoNorm(width),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator(1)))

    def forward(self, ids):
        t = self.transformer
        x = t.drop(t.wte(ids) + t.wpe(torch.arange(ids.shape[1])))
        for block in t.h:
            x = block(x)
        return self.lm_head(t.ln_f(x))


def nano_batch(seed=0):
    return torch.randint(11, (2, 6), generator=generator(seed))


def language_loss(model, ids):
    out = model(ids)
    logits = getattr(out, "logits", out)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def gradients(model, seed=0, vocabulary=11):
    model.zero_grad()
    language_loss(model, torch.randint(vocabulary, (2, 6), generator=generator(seed))).backward()


def layer(width=8):
    return nn.TransformerEncoderLayer(width, nhead=2, dim_feedforward=16, dropout=0.0)


# Which block?


def test_llama():
    blocks = classify(tiny_llama())
    assert "lm_head.weight" not in blocks  # tied: counted once
    assert blocks.pop("model.embed_tokens.weight") == "embed"
    assert blocks.pop("model.norm.weight") == "norm"
    wanted = {
        "self_attn.q_proj": "qk",
        "self_attn.k_proj": "qk",
        "self_attn.v_proj": "vo",
        "self_attn.o_proj": "vo",
        "mlp.gate_proj": "ffn",
        "mlp.up_proj": "ffn",
        "mlp.down_proj": "ffn",
        "input_layernorm": "norm",
        "post_attention_layernorm": "norm",
    }
    assert blocks == {f"model.layers.{i}.{key}.weight": b for i in range(2) for key, b in wanted.items()}


@pytest.mark.parametrize("make", [tiny_gpt2, NanoGPT])
def test_gpt2_in_both_layouts(make):
    blocks = classify(make())
    assert "lm_head.weight" not in blocks
    assert blocks["transformer.wte.weight"] == blocks["transformer.wpe.weight"] == "embed"
    assert blocks["transformer.ln_f.weight"] == blocks["transformer.h.0.ln_1.weight"] == "norm"
    for kind in ("weight", "bias"):
        assert blocks[f"transformer.h.0.attn.c_attn.{kind}"] == "qkv"
        assert blocks[f"transformer.h.0.attn.c_proj.{kind}"] == "vo"
        assert blocks[f"transformer.h.0.mlp.c_fc.{kind}"] == "ffn"
        assert blocks[f"transformer.h.0.mlp.c_proj.{kind}"] == "ffn"
    fused = {p.name: p for p in place(make()) if p.block == "qkv"}["transformer.h.0.attn.c_attn.weight"]
    assert fused.axis == (1 if make is tiny_gpt2 else 0)  # columns of Conv1D, rows of a linear layer
    d = fused.parameter.shape[1 - fused.axis]
    assert [s[:3] for s in fused.segments] == [("qk", 0, d), ("qk", d, 2 * d), ("vo", 2 * d, 3 * d)]
    assert [s.run for s in fused.segments] == [4, 4, 1]


def test_torch_layers():
    encoder = classify(layer())
    assert encoder == {
        "self_attn.in_proj_weight": "qkv",
        "self_attn.in_proj_bias": "qkv",
        "self_attn.out_proj.weight": "vo",
        "self_attn.out_proj.bias": "vo",
        "linear1.weight": "ffn",
        "linear1.bias": "ffn",
        "linear2.weight": "ffn",
        "linear2.bias": "ffn",
        "norm1.weight": "norm",
        "norm1.bias": "norm",
        "norm2.weight": "norm",
        "norm2.bias": "norm",
    }
    other_widths = nn.MultiheadAttention(8, 2, kdim=4, vdim=4)
    assert classify(other_widths)["q_proj_weight"] == classify(other_widths)["k_proj_weight"] == "qk"
    assert classify(other_widths)["v_proj_weight"] == "vo"


def test_grouped_queries_fused_and_not():
    from transformers import Phi3Config, Phi3ForCausalLM

    model = Phi3ForCausalLM(
        Phi3Config(
            hidden_size=32,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=20,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    (fused,) = (p for p in place(model) if p.block == "qkv")
    assert [s[:3] for s in fused.segments] == [("qk", 0, 32), ("qk", 32, 48), ("vo", 48, 64)]
    assert {s.run for p in place(tiny_llama()) if p.block == "qk" for s in p.segments} == {4}


def test_names_are_tokens_not_substrings():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn = nn.Module()
            self.self_attn.q_proj = nn.Linear(4, 4)
            self.self_attn.q_norm = nn.RMSNorm(4)  # a norm, whatever q stands for
            self.self_attn.kv_proj = nn.Linear(4, 8)  # no v_proj
            self.mlp = nn.Module()
            self.mlp.c_fc = nn.Module()
            self.mlp.c_fc.ln = nn.LayerNorm(4)  # a norm inside of a feed-forward part
            self.mlp.lnorm = nn.Linear(4, 4)  # a linear layer, whatever it is called
            self.vulnerable = nn.Linear(4, 4)  # has "ln" in it
            self.norm = nn.RMSNorm(4)

    with pytest.warns(UserWarning, match=r"'other': vulnerable\.weight, vulnerable\.bias$"):
        blocks = classify(Odd())
    assert (
        blocks["self_attn.q_norm.weight"] == blocks["mlp.c_fc.ln.weight"] == blocks["norm.weight"] == "norm"
    )
    assert blocks["self_attn.kv_proj.weight"] == blocks["self_attn.kv_proj.bias"] == "kv"
    assert blocks["mlp.lnorm.weight"] == blocks["mlp.lnorm.bias"] == "ffn"
    assert blocks["vulnerable.weight"] == "other"


def test_tied_head_registered_first():
    class HeadFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.lm_head = nn.Linear(4, 9, bias=False)
            self.attn = nn.MultiheadAttention(4, 2)
            self.wte = nn.Embedding(9, 4)
            self.wte.weight = self.lm_head.weight

    assert classify(HeadFirst())["lm_head.weight"] == "embed"


def test_rules_of_the_user():
    model = NanoGPT()
    blocks = classify(model, {"*.mlp.c_fc.*": "other", "transformer.wpe.weight": "norm"})
    assert blocks["transformer.h.0.mlp.c_fc.bias"] == "other"
    assert blocks["transformer.wpe.weight"] == "norm"
    assert classify(layer(), {"self_attn.in_proj_*": "qkv"})["self_attn.in_proj_bias"] == "qkv"
    with pytest.raises(ValueError, match=r"both '\*c_fc\*' and '\*mlp\*'"):
        classify(model, {"*c_fc*": "ffn", "*mlp*": "other"})
    with pytest.raises(ValueError, match="'nothing' matches no parameter"):
        classify(model, {"nothing": "ffn"})
    with pytest.raises(ValueError, match="rules: a block must be one of"):
        classify(model, {"*c_fc*": "mlp"})
    with pytest.raises(ValueError, match="cannot tell the projections"):
        classify(model, {"*.mlp.c_proj.*": "qkv"})


def test_without_attention_and_without_parameters():
    with pytest.warns(UserWarning, match="no attention"):
        blocks = classify(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), {"0.*": "ffn"})
    assert set(blocks.values()) == {"ffn", "norm"}
    with pytest.raises(ValueError, match="model must have a parameter"):
        classify(nn.ReLU())
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module"):
        classify({"weight": 1})  # type: ignore[arg-type]


def test_frozen_and_quantised_are_left_out(caplog):
    model = layer()
    model.linear1.weight.requires_grad_(False)
    model.register_parameter("packed", nn.Parameter(torch.zeros(4, dtype=torch.int8), requires_grad=False))
    with caplog.at_level(logging.WARNING):
        blocks = classify(model)
    assert "linear1.weight" not in blocks
    assert "packed" not in blocks
    assert "packed" in caplog.text


# Groups


@pytest.mark.parametrize("make", [tiny_gpt2, NanoGPT, tiny_llama, layer])
def test_every_parameter_is_in_exactly_one_group(make):
    model = make()
    groups = blockwise_groups(model, 1e-3)
    names = [name for group in groups for name in group["param_names"]]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    assert sum(p.numel() for group in groups for p in group["params"]) == sum(
        p.numel() for p in model.parameters()
    )
    for group in groups:
        lead = FUSED.get(group["block"], [group["block"]])[0]
        assert group["lr"] == pytest.approx(1e-3 * PAPER_RATIOS[lead])
        for name in group["param_names"]:
            bare = group["block"] == "norm" or name.endswith("bias")
            assert group["weight_decay"] == (0 if bare else 0.1)
    torch.optim.SGD(groups)  # any optimiser takes them


def test_head_and_positions():
    untied = tiny_llama(tied=False)
    rates = {
        head: {g["name"]: g["lr"] for g in blockwise_groups(untied, 1.0, head=head)}
        for head in ("tied", "base", "embed")
    }
    assert rates["tied"] == rates["base"]
    assert rates["base"]["head"] == 1
    assert "head" not in rates["embed"]
    (embed,) = (g for g in blockwise_groups(untied, 1.0, head="embed") if g["name"] == "embed")
    assert embed["param_names"] == ["model.embed_tokens.weight", "lm_head.weight"]
    assert embed["lr"] == 10
    at_base = {g["name"]: g["lr"] for g in blockwise_groups(NanoGPT(), 1.0, positions="base")}
    assert at_base["positions"] == 1
    assert at_base["embed"] == 10


def test_decay_and_warmup_by_block():
    scaled = {g["name"]: g for g in blockwise_groups(layer(), 1e-3, weight_decay=0.2)}
    base = {g["name"]: g for g in blockwise_groups(layer(), 1e-3, weight_decay=0.2, decay_mode="base")}
    for name in ("ffn", "vo", "qkv"):
        assert scaled[name]["weight_decay"] == 0.2
        assert base[name]["lr"] * base[name]["weight_decay"] == pytest.approx(1e-3 * 0.2)
    assert base["qkv"]["relative"]["vo"] == pytest.approx((0.5, 2.0))
    stretched = {g["name"]: g for g in blockwise_groups(layer(), 1e-3, warmup_scale={"ffn": 2})}
    assert stretched["ffn"]["lr"] == pytest.approx(12e-3)
    assert stretched["ffn"]["warmup_scale"] == 2
    assert stretched["vo"]["warmup_scale"] == 1
    everything = blockwise_groups(layer(), 1e-3, no_decay=())
    assert {g["weight_decay"] for g in everything} == {0.1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"base_lr": 0}, "base_lr must be greater than 0"),
        ({"base_lr": -1e-3}, "base_lr"),
        ({"base_lr": math.nan}, "base_lr must be finite"),
        ({"ratios": {"mlp": 2}}, "ratios: a block must be one of"),
        ({"ratios": {"ffn": 0}}, r"ratios\['ffn'\] must be greater than 0"),
        ({"ratios": {"ffn": math.inf}}, r"ratios\['ffn'\] must be finite"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"no_decay": ("biases",)}, "no_decay"),
        ({"head": "untied"}, "head"),
        ({"positions": "none"}, "positions"),
        ({"decay_mode": "none"}, "decay_mode"),
        ({"warmup_scale": {"ffn": -1}}, "warmup_scale"),
    ],
)
def test_bad_groups(arguments, message):
    with pytest.raises(ValueError, match=message):
        blockwise_groups(**{"model": layer(), "base_lr": 1e-3, **arguments})


# Schedule


def rates_over_time(optimizer, schedule, steps):
    found = [schedule.get_last_lr()]
    for _ in range(steps):
        optimizer.step()
        schedule.step()
        found.append(schedule.get_last_lr())
    return np.array(found)


def optimizer_with_peaks(*peaks, **more):
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": peak, **more} for peak in peaks]
    return torch.optim.AdamW(groups)


def test_cosine_in_closed_form():
    optimizer = optimizer_with_peaks(6e-4, 6e-3)
    found = rates_over_time(optimizer, blockwise_schedule(optimizer, warmup=10, total=100, min_lr=3e-5), 120)
    for g, peak in enumerate((6e-4, 6e-3)):
        for t, lr in enumerate(found[:, g]):
            share = min(max(t - 10, 0) / 90, 1)
            fall = 3e-5 + (peak - 3e-5) * (1 + math.cos(math.pi * share)) / 2
            assert lr == pytest.approx(peak * t / 10 if t <= 10 else fall)
    # One absolute floor: not the ratio times it.
    assert found[100] == pytest.approx([3e-5, 3e-5])
    assert found[120] == pytest.approx([3e-5, 3e-5])


def test_wsd_and_stretched_warmup():
    optimizer = optimizer_with_peaks(1.0, warmup_scale=2.0)
    schedule = blockwise_schedule(optimizer, "wsd", warmup=10, total=100, min_lr=0.1, decay=0.2)
    found = rates_over_time(optimizer, schedule, 100)[:, 0]
    assert found[10] == pytest.approx(0.5)
    assert np.allclose(found[20:81], 1)
    assert np.allclose(found[80:], np.linspace(1, 0.1, 21))


def test_schedule_resumes():
    optimizer = optimizer_with_peaks(1.0, 4.0)
    schedule = blockwise_schedule(optimizer, warmup=3, total=20, min_lr=0.05)
    rates_over_time(optimizer, schedule, 7)
    other = optimizer_with_peaks(1.0, 4.0)
    again = blockwise_schedule(other, warmup=3, total=20, min_lr=0.05)
    again.load_state_dict(schedule.state_dict())
    other.load_state_dict(optimizer.state_dict())
    assert np.array_equal(rates_over_time(optimizer, schedule, 5), rates_over_time(other, again, 5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "linear"}, "kind"),
        ({"warmup": 10}, "warmup must be at most 9"),
        ({"total": 0}, "total"),
        ({"min_lr": -1.0}, "min_lr"),
        ({"min_lr": 2.0}, "min_lr must be at most the peak"),
        ({"decay": 2.0}, "decay"),
    ],
)
def test_bad_schedules(arguments, message):
    optimizer = optimizer_with_peaks(1.0)
    with pytest.raises(ValueError, match=message):
        blockwise_schedule(optimizer, **{"warmup": 2, "total": 10, "min_lr": 0.1, **arguments})
    with pytest.raises(TypeError, match="optimizer must be"):
        blockwise_schedule("adam", warmup=2, total=10, min_lr=0.1)  # type: ignore[arg-type]


# AdamW


@pytest.mark.parametrize("foreach", [None, False, True])
@pytest.mark.parametrize("make", [NanoGPT, tiny_gpt2])
def test_equal_ratios_are_adamw_to_the_bit(make, foreach):
    ours, theirs = make().eval(), make().eval()
    mine = BlockwiseAdamW(blockwise_groups(ours, 1e-2, FLAT), foreach=foreach)
    plain = torch.optim.AdamW(blockwise_groups(theirs, 1e-2, FLAT), betas=(0.9, 0.95), foreach=foreach)
    for seed in range(4):
        for model, optimizer in ((ours, mine), (theirs, plain)):
            gradients(model, seed)
            optimizer.step()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("make", [NanoGPT, tiny_gpt2])
@pytest.mark.parametrize("decay_mode", ["scaled", "base"])
def test_slices_are_updated_as_separate_tensors(make, foreach, decay_mode):
    model = make().eval()
    base, floor, steps = 1e-2, 5e-4, 6
    optimizer = BlockwiseAdamW(blockwise_groups(model, base, decay_mode=decay_mode), foreach=foreach)
    schedule = blockwise_schedule(optimizer, warmup=2, total=steps, min_lr=floor)
    # Reference: each slice is a parameter of its own in torch's AdamW, with its own block's rate.
    pieces = []
    for placed in place(model):
        bare = placed.block == "norm" or placed.name.endswith("bias")
        for block, start, stop, _ in placed.segments:
            copied = placed.parameter.detach().narrow(placed.axis, start, stop - start).clone()
            decay = 0 if bare else 0.1 / (PAPER_RATIOS[block] if decay_mode == "base" else 1)
            pieces.append((placed, start, stop, nn.Parameter(copied), PAPER_RATIOS[block] * base, decay))
    reference = torch.optim.AdamW(
        [{"params": [p], "lr": lr, "weight_decay": decay} for *_, p, lr, decay in pieces], betas=(0.9, 0.95)
    )
    reference_schedule = blockwise_schedule(reference, warmup=2, total=steps, min_lr=floor)
    for seed in range(steps):
        gradients(model, seed)
        for placed, start, stop, copied, *_ in pieces:
            assert placed.parameter.grad is not None
            copied.grad = placed.parameter.grad.narrow(placed.axis, start, stop - start).clone()
        optimizer.step()
        reference.step()
        schedule.step()
        reference_schedule.step()
    for placed, start, stop, copied, *_ in pieces:
        found = placed.parameter.detach().narrow(placed.axis, start, stop - start)
        torch.testing.assert_close(found, copied.detach(), rtol=1e-6, atol=1e-8)


def test_slices_without_a_group_of_their_block():
    model = layer()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("in_proj" in name)
    optimizer = BlockwiseAdamW(blockwise_groups(model, 1e-3, weight_decay=0))
    before = model.self_attn.in_proj_weight.detach().clone()
    model(torch.randn(5, 2, 8, generator=generator())).pow(3).sum().backward()
    optimizer.step()
    moved = (model.self_attn.in_proj_weight.detach() - before).abs()
    assert float(moved[:16].max()) == pytest.approx(8e-3, rel=1e-3)
    assert float(moved[16:].max()) == pytest.approx(4e-3, rel=1e-3)


@pytest.mark.parametrize("kind", [BlockwiseAdamW, AdamMini])
@pytest.mark.parametrize("foreach", [False, True])
def test_resume_is_identical(kind, foreach):
    straight = NanoGPT().eval()
    optimizer = kind(blockwise_groups(straight, 1e-2), foreach=foreach)
    schedule = blockwise_schedule(optimizer, warmup=2, total=9, min_lr=1e-3)
    for seed in range(3):
        gradients(straight, seed)
        optimizer.step()
        schedule.step()
    saved = io.BytesIO()
    torch.save((straight.state_dict(), optimizer.state_dict(), schedule.state_dict()), saved)
    saved.seek(0)
    weights, state, clock = torch.load(saved, weights_only=True)
    resumed = NanoGPT().eval()
    resumed.load_state_dict(weights)
    other = kind(blockwise_groups(resumed, 1e-2), foreach=foreach)
    other_schedule = blockwise_schedule(other, warmup=2, total=9, min_lr=1e-3)
    other.load_state_dict(state)
    other_schedule.load_state_dict(clock)
    for seed in range(3, 6):
        for model, o, s in ((straight, optimizer, schedule), (resumed, other, other_schedule)):
            gradients(model, seed)
            o.step()
            s.step()
    for a, b in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", [BlockwiseAdamW, AdamMini])
def test_foreach_agrees_maximize_negates_and_closure_is_called(kind):
    models = [NanoGPT().eval() for _ in range(3)]
    optimizers = [
        kind(blockwise_groups(models[0], 1e-2), foreach=False),
        kind(blockwise_groups(models[1], 1e-2), foreach=True),
        kind(blockwise_groups(models[2], 1e-2), maximize=True),
    ]
    for seed in range(3):
        for model, optimizer in zip(models, optimizers, strict=True):
            gradients(model, seed)
            if model is models[2]:
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    parameter.grad.neg_()
            seen = optimizer.step(lambda: torch.tensor(7.0))
            assert float(seen) == 7
    for a, b, c in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(a, c)


@pytest.mark.parametrize("kind", [BlockwiseAdamW, AdamMini])
def test_grad_scaler_skips_a_step_that_overflows(kind):
    model = NanoGPT().eval()
    optimizer = kind(blockwise_groups(model, 1e-2))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(language_loss(model, nano_batch())).backward()
    scaler.step(optimizer)
    scaler.update()
    before = [p.detach().clone() for p in model.parameters()]
    scaler.scale(language_loss(model, nano_batch()) * math.inf).backward()
    scaler.step(optimizer)
    scaler.update()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("kind", [BlockwiseAdamW, AdamMini])
def test_bad_optimisers(kind):
    def named(parameter):
        return [("self_attn.v_proj.weight", parameter)]

    weight = nn.Parameter(torch.ones(4, 2))
    for arguments in ({"lr": -1.0}, {"betas": (0.9, 1.0)}, {"betas": (0.9,)}, {"eps": -1.0}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            kind(named(weight), **arguments)
    with pytest.raises(TypeError, match="params must hold real numbers"):
        kind(named(nn.Parameter(torch.ones(2, dtype=torch.complex64))))
    embedding = nn.Embedding(4, 2, sparse=True)
    optimizer = kind([("wte.weight", embedding.weight)])
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="gradients must be dense"):
        optimizer.step()


# Adam-mini


def test_mini_is_the_peers():
    peer = pytest.importorskip("adam_mini")
    ours, theirs = tiny_llama(tied=False), tiny_llama(tied=False)
    mine = AdamMini(blockwise_groups(ours, 1e-2, FLAT))
    other = peer.Adam_mini(
        theirs.named_parameters(),
        lr=1e-2,
        betas=(0.9, 0.95),
        weight_decay=0.1,
        dim=16,
        n_heads=4,
        n_kv_heads=2,
        verbose=False,
    )
    for seed in range(4):
        for model, optimizer in ((ours, mine), (theirs, other)):
            gradients(model, seed, vocabulary=40)
            optimizer.step()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, msg=name)


def plain_mini(weight, grads, blocks, lr, decay, axis):
    """Adam-mini of one tensor, a sub-block at a time, as in Algorithm 1."""
    weight = weight.clone()
    m, v = torch.zeros_like(weight), [0.0] * len(blocks)
    for t, grad in enumerate(grads, 1):
        m = 0.9 * m + 0.1 * grad
        for i, (start, stop) in enumerate(blocks):
            part = (slice(None),) * axis + (slice(start, stop),)
            v[i] = 0.95 * v[i] + 0.05 * float(grad[part].square().mean())
            rate = lr(start)
            weight[part] *= 1 - rate * decay
            weight[part] -= rate * (m[part] / (1 - 0.9**t)) / (math.sqrt(v[i] / (1 - 0.95**t)) + 1e-8)
    return weight


@pytest.mark.parametrize("make", [NanoGPT, tiny_gpt2])
def test_mini_by_brute_force_on_fused_projections(make):
    model = make().eval()
    attention = model.transformer.h[0].attn
    weight = attention.c_attn.weight
    before, grads = weight.detach().clone(), []
    optimizer = AdamMini(blockwise_groups(model, 1e-2))
    for seed in range(3):
        gradients(model, seed)
        grads.append(weight.grad.clone())
        optimizer.step()
    axis = 1 if make is tiny_gpt2 else 0
    d = weight.shape[1 - axis]
    heads = [(start, start + 4) for start in range(0, 2 * d, 4)]
    rows = [(row, row + 1) for row in range(2 * d, 3 * d)]
    wanted = plain_mini(before, grads, heads + rows, lambda start: 8e-2 if start < 2 * d else 4e-2, 0.1, axis)
    torch.testing.assert_close(weight.detach(), wanted, rtol=1e-5, atol=1e-6)
    assert optimizer.state[weight]["exp_avg_sq"].shape == (2 * d // 4 + d,)


def test_mini_counts_of_second_moments():
    model = tiny_llama(tied=False)
    optimizer = AdamMini(model.named_parameters(), head_dim=4)
    gradients(model, vocabulary=40)
    optimizer.step()
    counts = {name: len(optimizer.state[p]["exp_avg_sq"]) for name, p in model.named_parameters()}
    at = "model.layers.0"
    assert counts[f"{at}.self_attn.q_proj.weight"] == 4  # heads, not one for the tensor
    assert counts[f"{at}.self_attn.k_proj.weight"] == 2
    assert counts[f"{at}.self_attn.v_proj.weight"] == 8
    assert counts[f"{at}.self_attn.o_proj.weight"] == 16
    assert counts[f"{at}.mlp.down_proj.weight"] == 16
    assert counts["model.embed_tokens.weight"] == counts["lm_head.weight"] == 40
    assert counts["model.norm.weight"] == 1
    by_groups = AdamMini(blockwise_groups(model, 1e-3))
    by_groups.step()
    assert counts == {n: len(by_groups.state[p]["exp_avg_sq"]) for n, p in model.named_parameters()}


def test_mini_of_biases_is_adamw():
    ours, theirs = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
    mine = AdamMini([("mlp.c_fc.bias", ours)], lr=0.1)
    plain = torch.optim.AdamW([theirs], lr=0.1, betas=(0.9, 0.95), weight_decay=0.1)
    for seed in range(3):
        ours.grad = torch.randn(5, generator=generator(seed))
        theirs.grad = ours.grad.clone()
        mine.step()
        plain.step()
    torch.testing.assert_close(ours, theirs)


def test_bad_mini():
    model = tiny_llama()
    with pytest.raises(ValueError, match=r"head_dim must be given for '.*q_proj\.weight'"):
        AdamMini(model.named_parameters())
    with pytest.raises(ValueError, match="head_dim must divide the 16 outputs of"):
        AdamMini(model.named_parameters(), head_dim=5)
    with pytest.raises(ValueError, match="head_dim must be at least 1"):
        AdamMini(model.named_parameters(), head_dim=0)
    with pytest.raises(TypeError, match="without names"):
        AdamMini(model.parameters())
    # A group that will not do is not left behind.
    optimizer = AdamMini([("norm.weight", nn.Parameter(torch.ones(2)))])
    with pytest.raises(ValueError, match="head_dim"):
        optimizer.add_param_group({"params": [("attn.q_proj.weight", nn.Parameter(torch.ones(2, 2)))]})
    assert len(optimizer.param_groups) == 1


# Sharpness


def exact_hessian(model, loss):
    names = [name for name, _ in model.named_parameters()]
    start = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).double()
    model = copy.deepcopy(model).double().eval()

    def at(vector):
        values, taken = {}, 0
        for name, parameter in model.named_parameters():
            values[name] = vector[taken : taken + parameter.numel()].view_as(parameter)
            taken += parameter.numel()
        return loss(lambda ids: torch.func.functional_call(model, values, (ids,)))

    assert names
    return torch.autograd.functional.hessian(at, start)


def block_of_entry(model):
    """Block of each entry of all parameters in a row."""
    found = []
    for placed in place(model):
        labels = np.empty(tuple(placed.parameter.shape), dtype=object)
        for block, start, stop, _ in placed.segments:
            labels[(slice(None),) * placed.axis + (slice(start, stop),)] = block
        found.append(labels.reshape(-1))
    return np.concatenate(found)


@pytest.fixture(scope="module")
def curved():
    model, batches = NanoGPT(vocabulary=5, width=4, length=6), [nano_batch(1) % 5, nano_batch(2) % 5]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        hessians = [
            exact_hessian(
                model, lambda f, b=batch: F.cross_entropy(f(b)[:, :-1].flatten(0, 1), b[:, 1:].flatten())
            )
            for batch in batches
        ]
    return model, batches, sum(hessians) / len(hessians), block_of_entry(model)


def test_hutchinson_against_the_exact_hessian(curved):
    model, batches, hessian, labels = curved
    report = block_sharpness(model, language_loss, batches, "hutchinson", n_probe=150, generator=0)
    diagonal = hessian.diagonal().numpy()
    assert set(report.per_block_mean) == set(labels)
    for block, found in report.per_block_mean.items():
        assert abs(found - diagonal[labels == block].mean()) < 4.5 * report.per_block_error[block]
        assert report.per_block_size[block] == np.sum(labels == block)
    assert report.per_block_error["vo"] < 0.5 * max(map(abs, report.per_block_mean.values()))


def test_lanczos_against_the_exact_hessian(curved):
    model, batches, hessian, labels = curved
    report = block_sharpness(model, language_loss, batches, "lanczos", n_steps=40, generator=0)
    for block, found in report.per_block_mean.items():
        inside = torch.from_numpy(labels == block)
        wanted = float(torch.linalg.eigvalsh(hessian[inside][:, inside])[-1])
        assert found == pytest.approx(wanted, rel=2e-3, abs=1e-6)
    assert report.order == tuple(sorted(report.per_block_mean, key=report.per_block_mean.__getitem__))


class Softmax(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(3, 4, bias=False)
        with torch.no_grad():
            self.q_proj.weight.copy_(torch.randn(4, 3, generator=generator(3)))

    def forward(self, x):
        return self.q_proj(x)


def test_fisher_is_the_gauss_newton_diagonal_of_sampled_labels():
    model = Softmax()
    x = torch.randn(6, 3, generator=generator(4))
    # Softmax regression: the Gauss-Newton matrix is the Hessian, whatever the labels are.
    probabilities = model(x).detach().softmax(-1)
    wanted = torch.einsum("bc,bi->ci", probabilities * (1 - probabilities), x.square()) / len(x)
    report = block_sharpness(model, lambda model, batch: model(batch), [x] * 3_000, generator=0)
    assert abs(report.per_block_mean["qk"] - float(wanted.mean())) < 4 * report.per_block_error["qk"]
    assert report.per_block_error["qk"] < 0.02 * report.per_block_mean["qk"]
    # With labels that the model holds for certain to be right, the empirical Fisher matrix is another.
    surprised = F.cross_entropy(model(x), probabilities.argmin(-1))
    (gradient,) = torch.autograd.grad(surprised, [model.q_proj.weight])
    assert float(len(x) * gradient.square().mean()) > 1.5 * float(wanted.mean())


def test_sharpness_leaves_the_model_as_it_was():
    model = NanoGPT()  # with dropout, in training mode
    model.transformer.drop.eval()
    before = copy.deepcopy(model.state_dict())
    model.transformer.wte.weight.grad = torch.ones_like(model.transformer.wte.weight)
    first = block_sharpness(model.train(), lambda m, b: m(b), [nano_batch()], generator=5)
    second = block_sharpness(model, lambda m, b: m(b), [nano_batch()], generator=5)
    assert first == second or str(first) == str(second)  # NaN errors: equal in print
    assert model.training
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert torch.equal(model.transformer.wte.weight.grad, torch.ones_like(model.transformer.wte.weight))
    assert model.transformer.wpe.weight.grad is None


def test_outputs_of_hugging_face_models_serve_all_methods():
    model = tiny_llama(num_hidden_layers=1)
    ids = torch.randint(40, (2, 8), generator=generator())
    for method in ("fisher", "hutchinson", "lanczos"):
        report = block_sharpness(
            model, lambda m, b: m(input_ids=b, labels=b), [ids], method, n_probe=1, n_steps=2, generator=0
        )
        assert set(report.per_block_mean) == set(BLOCKS) - {"other"}
    fused = block_sharpness(NanoGPT(), lambda m, b: m(b), [nano_batch()], generator=0)
    assert "transformer.h.0.attn.c_attn.weight[vo]" in fused.per_parameter_tensor
    assert json.loads(json.dumps(fused.to_dict()))["method"] == "fisher"
    assert fused.to_frame()["block"].to_list() == list(fused.order)
    assert all(block in fused.summary() for block in fused.order)
    assert fused.plot().to_dict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batches": []}, "batches must hold at least one"),
        ({"batches": [], "method": "lanczos"}, "batches must hold at least one"),
        ({"method": "kfac"}, "method must be one of"),
        ({"method": "hutchinson"}, "loss_fn must return a scalar loss"),
        ({"loss_fn": language_loss}, r"loss_fn must return logits"),
        ({"loss_fn": lambda m, b: m(b) * math.nan}, "loss_fn must return finite"),
        ({"n_probe": 0}, "n_probe"),
        ({"n_steps": 0}, "n_steps"),
    ],
)
def test_bad_sharpness(arguments, message):
    given_ = {"model": NanoGPT(), "loss_fn": lambda m, b: m(b), "batches": [nano_batch()], **arguments}
    with pytest.raises(ValueError, match=message):
        block_sharpness(**given_)


def report_of(**means):
    return SharpnessReport(means, {}, tuple(sorted(means, key=means.__getitem__)))


def test_agreement_and_suggested_ratios():
    assert report_of(embed=1, qk=2, ffn=3, vo=4, norm=5).agreement() == 1
    assert report_of(embed=5, qk=4, ffn=3, vo=2, norm=1).agreement() == -1
    assert report_of(embed=2, qk=1, ffn=3, vo=4, norm=5).agreement() == pytest.approx(0.9)
    assert math.isnan(report_of(norm=1).agreement())
    report = report_of(embed=1e-8, qk=1 / 16, ffn=1 / 4, vo=4, norm=1)
    assert suggest_ratios(report) == {"embed": 10, "qk": 4, "ffn": 2, "vo": 1, "norm": 1, "other": 1}
    assert suggest_ratios(report, power=1)["ffn"] == 4
    with pytest.raises(ValueError, match="block 'norm'"):
        suggest_ratios(report_of(qk=1))
    with pytest.raises(ValueError, match="sharpness of 'qk' must be positive"):
        suggest_ratios(report_of(qk=-1, norm=1))
    with pytest.raises(ValueError, match="cap"):
        suggest_ratios(report, cap=0.5)


@settings(max_examples=25)
@given(
    st.lists(st.floats(1e-6, 1e6), min_size=5, max_size=5),
    st.floats(1e-3, 1e3),
    st.floats(0, 2),
)
def test_suggested_ratios_do_not_depend_on_the_unit(values, unit, power):
    means = dict(zip(BLOCKS, values, strict=False))
    ours = suggest_ratios(report_of(**means), power)
    scaled = suggest_ratios(report_of(**{k: v * unit for k, v in means.items()}), power)
    assert scaled == pytest.approx(ours)
    assert all(1 <= ratio <= 10 for ratio in ours.values())
    by_sharpness = sorted(means, key=means.__getitem__)
    assert all(ours[a] >= ours[b] - 1e-9 for a, b in pairwise(by_sharpness))


class Springs(nn.Module):
    """Quadratic in each block: large flat blocks, small sharp ones."""

    stiffness: ClassVar = {"embed": 1e-2, "qk": 2e-2, "ffn": 4e-2, "vo": 8e-2, "norm": 1e-1}
    sizes: ClassVar = {"embed": 4000, "qk": 1600, "ffn": 600, "vo": 200, "norm": 40}

    def __init__(self):
        super().__init__()
        self.parts: Any = nn.ParameterDict({b: nn.Parameter(torch.ones(n)) for b, n in self.sizes.items()})

    def energy(self) -> Any:
        return sum(k * self.parts[block].square().sum() / 2 for block, k in self.stiffness.items())


def springs_energy(model: Any) -> torch.Tensor:
    return model.energy()


def test_planted_sums_instead_of_means_turns_c3a(monkeypatch):
    (claim,) = (c for c in lookup(SLUG).claims if c.id == "C3a")
    bound = Bound.parse(claim.checks[0].bound)
    rules = {f"parts.{block}": block for block in Springs.sizes}

    def agreement():
        return block_sharpness(
            Springs(), lambda model, _: springs_energy(model), [None], "hutchinson", generator=0, rules=rules
        ).agreement()

    assert agreement() == 1
    assert bound.contains(agreement())
    monkeypatch.setattr(sharpness, "per_entry", lambda total, entries: total)
    assert not bound.contains(agreement())


# Training for real


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_trainer(tmp_path):
    from transformers import Trainer, TrainingArguments

    model = tiny_llama(num_hidden_layers=1)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(40, (32, 8), generator=generator())]
    args = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=6,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        weight_decay=0.1,
        adam_beta2=0.95,
        warmup_steps=2,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        use_cpu=True,
        disable_tqdm=True,
    )
    optimizer, scheduler = trainer_optimizers(model, args, total_steps=6)
    assert {g["name"]: g["initial_lr"] for g in optimizer.param_groups} == pytest.approx(
        {"embed": 1e-2, "qk": 8e-3, "ffn": 6e-3, "vo": 4e-3, "norm/no_decay": 1e-3}
    )
    assert {g["betas"] for g in optimizer.param_groups} == {(0.9, 0.95)}
    before = model.model.norm.weight.detach().clone()
    trainer = Trainer(model=model, args=args, train_dataset=rows, optimizers=(optimizer, scheduler))
    trainer.train()
    assert not torch.equal(before, model.model.norm.weight)
    assert scheduler.get_last_lr() == pytest.approx([5e-5] * 5)
    args.lr_scheduler_type = "warmup_stable_decay"
    _, stable = trainer_optimizers(model, args, total_steps=60)
    assert stable.lr_lambdas[0](30) == 1


def test_fit_goes_on_bit_by_bit(tmp_path):
    from theses.training import fit

    def trained(steps, folder):
        model = NanoGPT().eval()
        optimizer = BlockwiseAdamW(blockwise_groups(model, 1e-2))
        schedule = blockwise_schedule(optimizer, warmup=2, total=6, min_lr=1e-3)
        stop = {"at": steps}

        def batches(step):
            if step == stop["at"]:
                raise KeyboardInterrupt
            return nano_batch(step)

        try:
            fit(
                model,
                optimizer,
                language_loss,
                batches,
                steps=6,
                schedule=schedule,
                clip_norm=1.0,
                checkpoint=folder,
                checkpoint_every=1,
            )
        except KeyboardInterrupt:
            return None
        return [p.detach() for p in model.parameters()]

    straight = trained(6, None)
    assert trained(3, tmp_path / "run") is None
    resumed = trained(6, tmp_path / "run")
    assert all(torch.equal(a, b) for a, b in zip(straight, resumed, strict=True))


# Study


def test_steps_to_a_loss_are_interpolated():
    baseline = [(20, 5.0), (40, 4.0)]
    assert study._speedup([(20, 4.5), (40, 3.5)], baseline) == pytest.approx(40 / 30)
    assert study._speedup([(20, 4.0), (40, 3.5)], baseline) == 2
    assert study._speedup([(20, 5.0), (40, 4.1)], baseline) == 1


def test_a_winner_at_an_edge_widens_the_grid(monkeypatch):
    from theses.studies.optim.blockwise_lr import training

    class Found:
        def __init__(self, loss):
            self.final = loss

    monkeypatch.setattr(training, "train", lambda ctx, size, name, rate: Found(abs(math.log2(rate / 0.032))))
    size = study._sizes()["standard"]
    losses = study._tune(Context("standard", 100), size)["losses"]
    assert study._best(losses["adamw"]) == 0.032
    assert [rate for rate, _ in losses["adamw"]] == [2e-3, 4e-3, 8e-3, 16e-3, 32e-3, 64e-3]
    assert len(losses["blockwise"]) == 7


def test_tiny_llama_is_causal_and_tied():
    model: Any = TinyLlama(30, 16, 2, 4, 24, generator())
    ids = torch.randint(30, (2, 10), generator=generator(1))
    changed = ids.clone()
    changed[:, 6:] = 0
    torch.testing.assert_close(model(ids)[:, :6], model(changed)[:, :6])
    assert not torch.allclose(model(ids)[:, 6:], model(changed)[:, 6:])
    assert set(classify(model).values()) == set(BLOCKS) - {"other"}
    assert float(model.layers[0].mlp.down_proj.weight.detach().std()) == pytest.approx(0.01, rel=0.15)
    assert float(model.embed_tokens.weight.detach().std()) == pytest.approx(0.02, rel=0.15)


def test_paper_preset_on_a_folder_in_its_layout(tmp_path):
    with pytest.raises(ValueError, match=r"train\.bin and val\.bin"):
        study.run(Context("paper", 100))
    rng = np.random.default_rng(0)
    for part in ("train", "val"):
        rng.integers(50_257, size=2_000).astype("<u2").tofile(tmp_path / f"{part}.bin")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = study.run(Context("paper", 100, data_folder=tmp_path, limit=2))
    assert all(np.isfinite(value) for name in lookup(SLUG).metrics("paper") for value in found.metrics[name])
    with pytest.raises(ValueError, match="preset must be one of"):
        study.run(Context("huge", 100))
