"""AQUA-KV: grids, quantizers, calibration, and a cache that is exact where nothing is lost."""

from __future__ import annotations

import copy
import functools
import math
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from torch import Tensor
from transformers import (
    DynamicCache,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.conformance.contract import Call
from theses.catalogue import lookup
from theses.catalogue.card import Bound
from theses.evidence import Context
from theses.lm.inference.aqua_kv import (
    AquaKVCache,
    AquaPredictors,
    HiggsQuantizer,
    KVQuantizer,
    QuantizedTensor,
    UniformQuantizer,
    calibrate,
    calibration,
    chunked_perplexity,
    coding_errors,
    equivalent_bits,
    fit_predictors,
    grid_distortion,
    grids,
    layer_states,
    lloyd_grid,
    quantizers,
    rotary,
    shipped_grid,
)
from theses.lm.inference.aqua_kv import states as reading
from theses.studies.lm.inference import aqua_kv as study


class Exact:
    """A quantizer that loses nothing: float32 as bytes."""

    per_token = True

    def quantize(self, x: Tensor) -> QuantizedTensor:
        return QuantizedTensor(
            x.contiguous().view(torch.uint8), x.new_zeros(*x.shape[:-1], 1).half(), tuple(x.shape)
        )

    def dequantize(self, q: QuantizedTensor) -> Tensor:
        return q.codes.view(torch.float32).clone()

    def bits_per_value(self, channels: int) -> float:
        return 32 + 16 / channels


def _any(value: Any) -> Any:
    return value


SMALL: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
}


@functools.cache
def model_of(kind: str) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "gemma3":
            # Local and global layers, each with a rotation of its own, and norms behind the key projection.
            config = {**SMALL, "num_hidden_layers": 6, "num_key_value_heads": 1, "sliding_window": 8}
            return Gemma3ForCausalLM(Gemma3TextConfig(**config)).eval()
        if kind == "qwen3":
            return Qwen3ForCausalLM(Qwen3Config(**SMALL)).eval()
        scaled = {
            "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
            "llama3": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
            "linear": {"rope_type": "linear", "factor": 2.0},
        }
        options = {**SMALL, "max_position_embeddings": 64}
        if kind in scaled:
            options["rope_parameters"] = {"rope_theta": 10_000.0, **scaled[kind]}
        if kind == "mha":
            options["num_key_value_heads"] = 4
        return LlamaForCausalLM(LlamaConfig(**options)).eval()


def tokens(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(3, 61, (rows, length), generator=torch.Generator().manual_seed(seed))


@functools.cache
def predictors_of(kind: str, predictor: str = "linear") -> AquaPredictors:
    return calibrate(model_of(kind), tokens(4, 40, 1), HiggsQuantizer(bits=2), predictor=predictor)


def exact_cache(kind: str, **options: Any) -> Any:
    options = {"buffer_size": 7, **options}
    return AquaKVCache(
        model_of(kind).config, predictors_of(kind), Exact(), first_layer_quantizer=Exact(), **options
    )


@torch.no_grad()
def logits_of(model: Any, ids: Tensor, cache: Any, steps: list[int], **options: Any) -> Tensor:
    parts = []
    for a, b in pairwise(steps):
        extra = {name: value[:, :b] for name, value in options.items()}
        parts.append(model(ids[:, a:b], cache=cache, **extra).logits)
    return torch.cat(parts, 1)


KINDS = ["gqa", "mha", "yarn", "llama3", "linear", "gemma3", "qwen3"]
STEPS = [0, 3, 4, 20, 21, 22, 30, *range(31, 41)]  # across prefix, buffer, and both at once


# The cache, where nothing is lost


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", [False, True])
def test_lossless_codes_give_the_logits_of_a_full_cache(kind: str, keep: bool) -> None:
    model, ids = model_of(kind), tokens(2, 40)
    cache = exact_cache(kind, keep_dequantized=keep)
    ours = logits_of(model, ids, cache, STEPS)
    full = logits_of(model, ids, DynamicCache(config=model.config), STEPS)
    torch.testing.assert_close(ours, full, rtol=1e-4, atol=1e-4)
    assert cache.get_seq_length() == 40
    assert cache.layers[1]._codes[0][0].shape[1] >= 28  # most of it was read back from codes


def test_what_is_lost_is_seen() -> None:
    # Else the test above would prove nothing: the models' logits depend on the cache.
    model, ids = model_of("gqa"), tokens(2, 40)
    lossy = AquaKVCache(model.config, predictors_of("gqa"), buffer_size=7)
    gap = logits_of(model, ids, lossy, STEPS) - logits_of(model, ids, DynamicCache(), STEPS)
    assert float(gap.abs().max()) > 0.05


@pytest.mark.parametrize("kind", ["gqa", "gemma3"])
@pytest.mark.parametrize(
    "how",
    [
        {"do_sample": False},
        {"do_sample": False, "num_beams": 3},
        {"do_sample": False, "prefill_chunk_size": 9},
        {"do_sample": True, "num_return_sequences": 2},
    ],
)
def test_generate_with_left_padding(kind: str, how: dict[str, Any]) -> None:
    model, ids = model_of(kind), tokens(2, 24)
    mask = torch.ones_like(ids)
    mask[0, :13] = 0
    options = {"attention_mask": mask, "max_new_tokens": 12, "min_new_tokens": 12, "pad_token_id": 0, **how}
    answers = []
    for cache in (exact_cache(kind), None):
        extra = {} if cache is None else {"cache": cache}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            answers.append(model.generate(ids, **options, **extra))
    assert torch.equal(*answers)


def test_first_tokens_of_padded_rows_stay_exact() -> None:
    model, ids = model_of("gqa"), tokens(2, 40)
    mask = torch.ones_like(ids)
    mask[0, :13] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache: Any = AquaKVCache(model.config, predictors_of("gqa"), buffer_size=7, dtype=torch.float64)
    full: Any = DynamicCache()
    with torch.no_grad():
        for a, b in ((0, 15), (15, 30), (30, 40)):
            for each in (cache, full):
                model(ids[:, a:b], cache=each, attention_mask=mask[:, :b], position_ids=positions[:, a:b])
    layer = cache.layers[2]
    cache._step.begin(0, 2, 0, positions[:, :0], ids.device)
    cache._step.layer = 1
    read = []
    for each_layer in cache.layers:
        cache._step.layer = each_layer._index
        read = each_layer._read(torch.float32)
    keys = read[0]
    for row, start in ((0, 13), (1, 0)):
        for column in range(start, start + 4):
            exact = full.layers[2].keys[row, :, column]
            seen = layer._prefix[0][row, :, column].float() if column < 4 else keys[row, :, column - 4]
            torch.testing.assert_close(seen, exact, rtol=0, atol=0)
    assert not torch.equal(keys[0, :, 20], full.layers[2].keys[0, :, 24])


def test_rows_can_be_chosen_repeated_and_reordered() -> None:
    model, ids = model_of("gqa"), tokens(3, 30)
    order = torch.tensor([2, 0, 0])
    for change in (
        lambda cache: cache.reorder_cache(order),
        lambda cache: cache.batch_select_indices(order),
    ):
        cache, plain = exact_cache("gqa"), DynamicCache()
        for each in (cache, plain):
            logits_of(model, ids, each, [0, 25])
            change(each)
        with torch.no_grad():
            ours = model(ids[order, 25:28], cache=cache).logits
            full = model(ids[order, 25:28], cache=plain).logits
        torch.testing.assert_close(ours, full, rtol=1e-4, atol=1e-4)
    cache = exact_cache("gqa")
    logits_of(model, ids, cache, [0, 25])
    cache.batch_repeat_interleave(2)
    with torch.no_grad():
        twice = model(ids[:, 25:28].repeat_interleave(2, 0), cache=cache).logits
    torch.testing.assert_close(twice[0], twice[1])


def test_crop_inside_the_buffer_and_reset() -> None:
    model, ids = model_of("gqa"), tokens(2, 30)
    cache = exact_cache("gqa", buffer_size=100)
    logits_of(model, ids, cache, [0, 20])
    cache.crop(-5)
    assert cache.get_seq_length() == 15
    with torch.no_grad():
        again = model(ids[:, 15:20], cache=cache).logits
    torch.testing.assert_close(again, logits_of(model, ids, None, [0, 20])[:, 15:], rtol=1e-4, atol=1e-4)
    with pytest.raises(NotImplementedError, match="16 tokens in the buffer"):
        cache.crop(-17)
    assert cache.get_seq_length() == 20
    assert not cache.is_croppable
    cache.reset()
    assert cache.get_seq_length() == 0 == cache.memory_bytes()
    assert math.isnan(cache.bits_per_value())
    logits_of(model, ids, cache, [0, 20])
    assert cache.get_seq_length() == 20


def test_a_broken_off_pass_is_noticed() -> None:
    cache = exact_cache("gqa")
    states = torch.zeros(1, 2, 3, 8)
    cache.update(states, states, 0)
    with pytest.raises(RuntimeError, match="layer 0 was updated where layer 1 was expected"):
        cache.update(states, states, 0)


def test_a_deep_copy_goes_its_own_way() -> None:
    model, ids = model_of("gqa"), tokens(1, 30)
    cache = exact_cache("gqa")
    logits_of(model, ids, cache, [0, 20])
    other = copy.deepcopy(cache)
    with torch.no_grad():
        model(ids[:, 20:30], cache=other)
    assert (cache.get_seq_length(), other.get_seq_length()) == (20, 30)


def test_half_precision_predictions_cost_next_to_nothing() -> None:
    model, ids = model_of("gqa"), tokens(2, 40)
    full = logits_of(model, ids, DynamicCache(), STEPS)
    ours = logits_of(model, ids, exact_cache("gqa", compute_dtype=torch.bfloat16), STEPS)
    assert float((ours - full).abs().max()) < 0.05 * float(full.std())


# Memory


def test_memory_is_what_the_storages_hold() -> None:
    model = model_of("gqa")
    cache: Any = AquaKVCache(model.config, predictors_of("gqa"), buffer_size=32)
    for count in (200, *[1] * 20):
        for layer in range(3):
            states = torch.randn(2, 1, 2, count, 8).bfloat16()
            cache.update(states[0], states[1], layer)
    held = {}
    for each in cache.layers:
        for tensor in each.tensors():
            held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    positions = 4 * 220
    assert cache.memory_bytes() == sum(held.values()) + positions
    # By hand: 196 tokens of 16 channels in one group, 4 first ones and 20 in the buffer at two bytes.
    codes = 196 * (16 * 4 // 8 + 2) * 2 + 2 * 196 * (16 * 2 // 8 + 2) * 2
    exact = 3 * 2 * 16 * (4 + 20) * 2
    assert cache.memory_bytes() == codes + exact + positions
    assert cache.bits_per_value() == pytest.approx(8 * cache.memory_bytes() / (2 * 3 * 16 * 220))


def test_one_by_one_or_at_once_holds_the_same() -> None:
    sizes = []
    for counts in ((64, 15), (64, *[1] * 15)):
        cache = AquaKVCache(model_of("gqa").config, predictors_of("gqa"), buffer_size=16)
        for count in counts:
            for layer in range(3):
                cache.update(torch.ones(1, 2, count, 8), torch.ones(1, 2, count, 8), layer)
        sizes.append(cache.memory_bytes())
    assert sizes[0] == sizes[1]


def test_kept_copies_are_counted() -> None:
    caches = [exact_cache("gqa", keep_dequantized=keep) for keep in (False, True)]
    for cache in caches:
        logits_of(model_of("gqa"), tokens(1, 40), cache, [0, 40])
    assert caches[1].memory_bytes() - caches[0].memory_bytes() == 3 * 2 * 36 * 16 * 4


# Calibration


def test_undone_rotation_gives_the_projections() -> None:
    model, ids = model_of("yarn"), tokens(2, 30)
    seen: dict[int, Tensor] = {}
    hooks = [
        layer.self_attn.k_proj.register_forward_hook(lambda m, i, o, n=n: seen.__setitem__(n, o))
        for n, layer in enumerate(model.model.layers)
    ]
    with torch.no_grad():
        model(ids)
    for hook in hooks:
        hook.remove()
    for state in layer_states(model, ids, prefix_size=4):
        torch.testing.assert_close(state.keys[0], seen[state.layer][:, 4:], rtol=1e-4, atol=1e-5)


def test_calibration_leaves_the_model_as_it_was() -> None:
    model, ids = model_of("gqa"), tokens(2, 40)
    before = logits_of(model, ids, None, [0, 40])
    calibrate(model, ids, HiggsQuantizer(bits=2))
    assert all("forward" not in vars(layer) for layer in model.model.layers)
    torch.testing.assert_close(logits_of(model, ids, None, [0, 40]), before, rtol=0, atol=0)


def test_the_fit_is_ridge_regression_on_what_was_read_back() -> None:
    states = list(layer_states(model_of("gqa"), [tokens(3, 30), tokens(2, 25, 5)]))
    reg, coder, first = 1e-2, HiggsQuantizer(bits=2), HiggsQuantizer(bits=4)
    ours: Any = fit_predictors(states, coder, reg=reg, batch_tokens=17)

    def read(parts: Any, quantizer: Any) -> np.ndarray[Any, Any]:
        return np.concatenate(
            [quantizer.dequantize(quantizer.quantize(p)).flatten(0, 1).numpy() for p in parts]
        )

    def flat(parts: Any) -> np.ndarray[Any, Any]:
        return np.concatenate([p.flatten(0, 1).numpy() for p in parts]).astype(float)

    def ridge(X: Any, Y: Any) -> Ridge:
        X = X.astype(float)
        return Ridge(alpha=reg * np.mean(np.sum(X * X, 0))).fit(X, Y)

    keys0, values0 = read(states[0].keys, first), read(states[0].values, first)
    expected = ridge(keys0, flat(states[1].keys))
    np.testing.assert_allclose(ours.keys[0].factors[0].T, expected.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.keys[0].bias, expected.intercept_, atol=1e-4)
    guess = torch.from_numpy(expected.predict(keys0.astype(float))).float()
    residual = torch.from_numpy(flat(states[1].keys)).float() - guess
    keys1 = (guess + coder.dequantize(coder.quantize(residual))).numpy()
    expected = ridge(np.concatenate([keys1, values0], 1), flat(states[1].values))
    np.testing.assert_allclose(ours.values[0].factors[0].T, expected.coef_, atol=1e-3)


def test_clean_inputs_let_errors_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # The second mistake of a naive version: fitted on clean inputs, predictors see others at use.
    size = study._SIZES["smoke"]
    work = study._Work(Context("smoke", 100), size)
    states, held_out = (list(layer_states(work.model, ids)) for ids in work.texts[:2])
    coder = UniformQuantizer(bits=1, group_size=64)  # coarse, so that clean and read differ
    options: dict[str, Any] = {"first_layer_quantizer": coder}
    good = fit_predictors(states, coder, **options)
    code = calibration._code

    def clean(exact: Any, predicted: Any, quantizer: Any) -> Any:
        return list(exact), code(exact, predicted, quantizer)[1]

    monkeypatch.setattr(calibration, "_code", clean)
    bad = fit_predictors(states, coder, **options)
    monkeypatch.undo()
    errors = [coding_errors(each, held_out, coder, **options) for each in (good, bad)]
    assert errors[1][-1].mse_keys > 1.1 * errors[0][-1].mse_keys


def test_held_out_errors_of_the_calibration_text_are_the_report() -> None:
    states = list(layer_states(model_of("gqa"), tokens(3, 40)))
    fitted = fit_predictors(states, HiggsQuantizer(bits=2))
    for ours, theirs in zip(coding_errors(fitted, states), fitted.report, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("predictor", ["linear", "mean", "none"])
def test_predictors_come_back_from_a_folder(predictor: str, tmp_path: Path) -> None:
    coder = HiggsQuantizer(bits=3, dim=2, generator=7)
    rank = 4 if predictor == "linear" else None
    fitted = calibrate(model_of("gqa"), tokens(3, 40), coder, predictor=predictor, rank=rank)
    fitted.save_pretrained(tmp_path / "new")
    back = AquaPredictors.from_pretrained(tmp_path / "new")
    assert back.report == fitted.report
    assert back.summary() == fitted.summary()
    assert isinstance(back.quantizer, HiggsQuantizer)
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        back.quantizer.dequantize(coder.quantize(x)), coder.dequantize(coder.quantize(x)), rtol=0, atol=0
    )
    for ours, theirs in zip(fitted.state_dict().values(), back.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    ids = tokens(1, 40)
    logits = [
        logits_of(model_of("gqa"), ids, AquaKVCache(model_of("gqa"), each, buffer_size=5), [0, 20, 40])
        for each in (fitted, back)
    ]
    assert torch.equal(*logits)


def test_rank_is_the_best_of_its_size() -> None:
    states = list(layer_states(model_of("gqa"), tokens(4, 60)))
    fits: list[Any] = [
        fit_predictors(states, Exact(), first_layer_quantizer=Exact(), rank=r) for r in (None, 3)
    ]
    full, low = fits
    weight = low.keys[0].factors[0] @ low.keys[0].factors[1]
    assert int(torch.linalg.matrix_rank(weight, atol=1e-4)) == 3
    assert low.n_parameters < full.n_parameters
    assert full.report[1].r2_keys > low.report[1].r2_keys > 0
    # Cutting the weights themselves, not the fitted values, is worse.
    U, S, V = torch.linalg.svd(full.keys[0].factors[0])
    cut = (U[:, :3] * S[:3]) @ V[:3]
    X, Y = (states[i].keys[0].flatten(0, 1) for i in (0, 1))
    errors = [float(((X - X.mean(0)) @ w - (Y - Y.mean(0))).square().sum()) for w in (weight, cut)]
    assert errors[0] <= errors[1]


# Quantizers


@pytest.mark.parametrize(
    ("dim", "points", "limit"), [(2, 16, 0.109), (4, 256, 0.098), (2, 256, 0.009), (1, 4, 0.118)]
)
def test_shipped_grids_are_near_optimal(dim: int, points: int, limit: float) -> None:
    assert grid_distortion(shipped_grid(dim, points), 100_000, generator=123) <= limit


def test_the_scalar_grid_is_that_of_lloyd_and_max() -> None:
    # Max (1960), table 1: levels of the optimal four-level quantizer of a normal.
    np.testing.assert_allclose(shipped_grid(1, 4)[:, 0], [-1.510, -0.4528, 0.4528, 1.510], atol=0.01)


def test_lloyd_is_repeatable() -> None:
    grids = [lloyd_grid(2, 4, restarts=2, steps=5, n_samples=500, generator=1) for _ in range(2)]
    assert torch.equal(*grids)


QUANTIZERS: list[tuple[Any, float]] = [
    (HiggsQuantizer(bits=1), 0.45),
    (HiggsQuantizer(bits=2), 0.14),
    (HiggsQuantizer(bits=3), 0.05),
    (HiggsQuantizer(bits=4), 0.02),
    (HiggsQuantizer(bits=2, dim=4), 0.13),
    (HiggsQuantizer(bits=3, dim=1), 0.06),
    (HiggsQuantizer(bits=2, dim=1, group_size=8), 0.15),
    (UniformQuantizer(bits=2, group_size=16), 0.15),
    (UniformQuantizer(bits=3, group_size=7), 0.05),
    (UniformQuantizer(bits=4, group_size=5, axis="channel"), 0.02),
    (UniformQuantizer(bits=1, group_size=64, axis="channel"), 1.6),
]


@pytest.mark.parametrize(("quantizer", "limit"), QUANTIZERS, ids=[str(q) for q, _ in QUANTIZERS])
@pytest.mark.parametrize("width", [192, 36, 5])
def test_codes_are_packed_and_close(quantizer: Any, limit: float, width: int) -> None:
    x = torch.randn(2, 20, width, generator=torch.Generator().manual_seed(0))
    q = quantizer.quantize(x)
    back = quantizer.dequantize(q)
    follows = isinstance(quantizer, KVQuantizer)
    assert follows
    assert back.shape == x.shape
    assert float((back - x).square().mean()) < limit * (1 if width > 5 else 2)
    assert q.codes.dtype == torch.uint8 and q.scales.dtype == torch.float16
    if quantizer.per_token or quantizer.group_size == 5:
        assert 8 * q.nbytes / x.numel() == pytest.approx(quantizer.bits_per_value(width))
    # Rows of a batch are coded apart.
    alone = quantizer.quantize(x[1])
    assert torch.equal(alone.codes, q.codes[1])
    half = quantizer.dequantize(quantizer.quantize(x.bfloat16()))
    assert half.dtype == torch.float32


def test_two_bits_take_a_quarter_of_a_byte() -> None:
    assert HiggsQuantizer(bits=2).quantize(torch.ones(10, 192)).codes.shape == (10, 48)
    assert HiggsQuantizer(bits=3).quantize(torch.ones(10, 192)).codes.shape == (10, 72)
    assert HiggsQuantizer(bits=2).bits_per_value(192) == 2.25


@given(st.integers(1, 16), st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_packing_is_invertible(bits: int, values: list[int]) -> None:
    if bits > 8 and 8 * bits // math.gcd(8, bits) > 62:
        return
    codes = torch.tensor(values) & ((1 << bits) - 1)
    packed = quantizers._pack(codes, bits)
    assert packed.shape[-1] == quantizers._packed_bytes(len(values), bits)
    assert torch.equal(quantizers._unpack(packed, bits)[: len(values)], codes)


def test_nearest_is_nearest() -> None:
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    q = HiggsQuantizer(bits=3, dim=2)
    brute = torch.cdist(x, q.grid).argmin(1)
    assert torch.equal(grids.nearest(x, q.grid), brute)


def test_zeros_come_back_as_zeros() -> None:
    for quantizer in (HiggsQuantizer(bits=2), UniformQuantizer(bits=2)):
        assert torch.equal(quantizer.dequantize(quantizer.quantize(torch.zeros(3, 64))), torch.zeros(3, 64))


def test_an_outlier_channel_does_not_eat_the_grid() -> None:
    x = torch.randn(200, 64, generator=torch.Generator().manual_seed(0))
    x[:, 5] += 30
    errors = []
    for quantizer in (HiggsQuantizer(bits=2), HiggsQuantizer(bits=2, dim=2, group_size=2)):
        errors.append(float((quantizer.dequantize(quantizer.quantize(x)) - x)[:, 5].square().mean()))
    assert errors[0] < 0.2 * errors[1]


def test_other_signs_other_codes() -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    q = HiggsQuantizer(bits=2, generator=1).quantize(x)
    assert not torch.equal(q.codes, HiggsQuantizer(bits=2, generator=2).quantize(x).codes)
    assert torch.equal(q.codes, HiggsQuantizer(bits=2, generator=1).quantize(x).codes)


@given(st.integers(1, 40), st.integers(1, 4), st.sampled_from([0.25, 2.0, 32.0]))
@settings(max_examples=25, deadline=None)
def test_scaling_scales(width: int, bits: int, factor: float) -> None:
    x = torch.randn(3, width, generator=torch.Generator().manual_seed(width))
    quantizer = HiggsQuantizer(bits=bits)
    a, b = (quantizer.dequantize(quantizer.quantize(y)) for y in (x, factor * x))
    # By powers of two, so that scales are rounded alike.
    torch.testing.assert_close(factor * a, b)


def test_equivalent_bits() -> None:
    assert equivalent_bits(0.25) == 1
    with pytest.raises(ValueError, match="relative_mse"):
        equivalent_bits(0.0)


def test_rotation_and_back() -> None:
    layout, turn = rotary.layout_of(model_of("yarn").config)
    cos, sin = turn.angles(torch.arange(5)[None], 0, torch.device("cpu"))
    assert float(cos.square().add(sin.square()).mean()) > 1.01  # yarn scales both
    x = torch.randn(1, layout.n_heads, 5, layout.head_dim)
    torch.testing.assert_close(rotary.unrotate(rotary.rotate(x, cos, sin), cos, sin), x)
    partly = torch.cat([x, x[..., :4]], -1)
    torch.testing.assert_close(rotary.unrotate(rotary.rotate(partly, cos, sin), cos, sin), partly)


# Perplexity


def test_perplexity_is_that_of_one_pass() -> None:
    model, ids = model_of("gqa"), tokens(2, 40)
    with torch.no_grad():
        logits = model(ids).logits[:, :-1].flatten(0, 1)
    expected = math.exp(float(torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten())))
    for make in (None, lambda: exact_cache("gqa")):
        for chunk in (7, 40):
            assert chunked_perplexity(model, ids, make, chunk_tokens=chunk) == pytest.approx(
                expected, rel=1e-4
            )
    told: list[int] = []
    chunked_perplexity(model, ids, chunk_tokens=20, progress=told.append)
    assert told == [20, 39, 59, 78]


# Bad input


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: HiggsQuantizer(bits=5), ValueError, "bits must be one of 1, 2, 3, 4"),
        (lambda: UniformQuantizer(bits=0), ValueError, "bits must be one of"),
        (lambda: HiggsQuantizer(bits=4, dim=8), ValueError, r"dim \* bits must be at most 16"),
        (lambda: HiggsQuantizer(bits=4, dim=4), ValueError, "grid: none is shipped"),
        (lambda: HiggsQuantizer(dim=3), ValueError, "dim must be a power of two"),
        (lambda: HiggsQuantizer(group_size=24), ValueError, "group_size must be a power of two"),
        (lambda: HiggsQuantizer(grid=torch.zeros(3, 2)), ValueError, "grid must have shape"),
        (lambda: UniformQuantizer(axis="row"), ValueError, "axis must be one of"),
        (
            lambda: HiggsQuantizer().quantize(torch.ones(3, 4).long()),
            TypeError,
            "x must be a tensor of floats",
        ),
        (lambda: exact_cache("gqa", buffer_size=0), ValueError, "buffer_size must be at least 1"),
        (lambda: exact_cache("gqa", prefix_size=-1), ValueError, "prefix_size must be at least 0"),
        (lambda: exact_cache("gqa", dtype=torch.int8), TypeError, "dtype must be"),
        (lambda: exact_cache("gqa", compute_dtype="half"), TypeError, "compute_dtype must be"),
        (
            lambda: AquaKVCache(model_of("mha"), predictors_of("gqa")),
            ValueError,
            "16 channels of keys, config has 32",
        ),
        (lambda: AquaKVCache(model_of("gemma3"), predictors_of("gqa")), ValueError, "3 layers, config has 6"),
        (lambda: AquaKVCache(_any(SMALL), predictors_of("gqa")), TypeError, "config must be"),
        (lambda: AquaKVCache(model_of("gqa"), _any(None)), TypeError, "predictors must be"),
        (
            lambda: AquaKVCache(model_of("gqa"), predictors_of("gqa"), _any(2)),
            TypeError,
            "quantizer must have",
        ),
        (
            lambda: calibrate(model_of("gqa"), tokens(1, 35), HiggsQuantizer()),
            ValueError,
            "at least 32 tokens",
        ),
        (lambda: calibrate(model_of("gqa"), [], HiggsQuantizer()), ValueError, "input_ids must not be empty"),
        (
            lambda: calibrate(model_of("gqa"), tokens(9, 4), HiggsQuantizer()),
            ValueError,
            "longer than prefix_size",
        ),
        (
            lambda: calibrate(model_of("gqa"), tokens(3, 40) + 40, HiggsQuantizer()),
            ValueError,
            "between 0 and 60",
        ),
        (
            lambda: calibrate(model_of("gqa"), tokens(3, 40), _any(None)),
            TypeError,
            "quantizer must have",
        ),
        (lambda: calibrate(_any(None), tokens(3, 40), HiggsQuantizer()), TypeError, "model must be"),
        (
            lambda: calibrate(model_of("gqa"), tokens(3, 40), Exact(), predictor="x"),
            ValueError,
            "predictor must be",
        ),
        (
            lambda: calibrate(model_of("gqa"), tokens(3, 40), Exact(), rank=0),
            ValueError,
            "rank must be at least 1",
        ),
        (
            lambda: calibrate(model_of("gqa"), tokens(3, 40), Exact(), reg=-1.0),
            ValueError,
            "reg must be at least 0",
        ),
        (lambda: fit_predictors([], Exact()), ValueError, "states must not be empty"),
        (lambda: chunked_perplexity(model_of("gqa"), tokens(1, 1)), ValueError, "input_ids must have shape"),
        (lambda: AquaPredictors.from_pretrained("nowhere"), FileNotFoundError, "has no aqua_kv.json"),
    ],
)
def test_bad_input(make: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"layer_types": ["full_attention", "linear_attention", "full_attention"]}, "layer 1 is of type"),
        ({"num_key_value_heads": [2, 2, 4]}, "layer 2 has 4 key-value heads"),
        ({"num_kv_shared_layers": 1}, "layer 2 takes keys and values of another layer"),
        ({"no_rope_layers": [1, 0, 1]}, "layer 1 has no rotary"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}},
            "layer 0 has rotary embeddings whose",
        ),
    ],
)
def test_models_that_are_not_taken_are_refused_by_layer(change: dict[str, Any], says: str) -> None:
    config = copy.deepcopy(model_of("gqa").config)
    for name, value in change.items():
        object.__setattr__(config, name, value)
    with pytest.raises(NotImplementedError, match=says):
        rotary.Layout(config) if "rope_parameters" not in change else rotary.layout_of(config)


def test_a_model_without_rope_is_refused() -> None:
    from transformers import GPT2Config

    with pytest.raises(NotImplementedError, match="layer 0"):
        AquaKVCache(GPT2Config(n_layer=3), predictors_of("gqa"))


def test_another_rotation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "unrotate", lambda x, cos, sin: x)
    with pytest.raises(NotImplementedError, match="layer 0 rotates its keys in a way that is not known"):
        calibrate(model_of("gqa"), tokens(3, 40), HiggsQuantizer())


def test_keys_of_another_shape_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="layer 0 has keys of shape"):
        exact_cache("gqa").update(torch.zeros(1, 2, 3, 9), torch.zeros(1, 2, 3, 9), 0)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    predictors_of("gqa").save_pretrained(tmp_path)
    (tmp_path / "aqua_kv.json").write_text("{}")
    with pytest.raises(ValueError, match="do not belong together"):
        AquaPredictors.from_pretrained(tmp_path)


# The study


def meets(metric: str, value: float) -> bool:
    (check,) = [c for claim in lookup("aqua-kv").claims for c in claim.checks if c.metric == metric]
    return Bound.parse(check.bound).contains(value)


def median_r2() -> float:
    work = study._Work(Context("smoke", 100), study._SIZES["smoke"])
    layers = study._coding(work)["layers"].filter(pl.col("coding") == "predicted", pl.col("layer") > 0)
    return float(np.median(layers["r2_keys"].to_numpy()))


def test_planted_keys_after_rotation_turns_c1a(monkeypatch: pytest.MonkeyPatch) -> None:
    assert meets("median_r2_keys", median_r2())
    # Positions turn the keys of each layer alike, but not the map between them.
    monkeypatch.setattr(reading, "unrotate", lambda x, cos, sin: x)
    monkeypatch.setattr(reading._Watch, "compare", lambda self, keys, index: None)
    assert not meets("median_r2_keys", median_r2())


def test_planted_float_storage_turns_c5(monkeypatch: pytest.MonkeyPatch) -> None:
    config = LlamaConfig(**{**SMALL, "head_dim": 32, "num_hidden_layers": 8})
    honest = AquaPredictors(
        [], [], n_layers=8, width=64, predictor="none", quantizer=HiggsQuantizer(), first_layer_quantizer=None
    )

    def held() -> float:
        cache = AquaKVCache(config, honest)
        for count in (4_096, 127):
            for layer in range(8):
                states = torch.randn(2, 1, 2, count, 32).bfloat16()
                cache.update(states[0], states[1], layer)
        return cache.memory_bytes() / (2 * 2 * 8 * 64 * 4_223)

    assert meets("memory_over_bf16", held())
    monkeypatch.setattr(HiggsQuantizer, "quantize", lambda self, x: Exact().quantize(x))
    monkeypatch.setattr(HiggsQuantizer, "dequantize", lambda self, q: Exact().dequantize(q))
    assert not meets("memory_over_bf16", held())


def test_the_paper_preset_reads_its_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="data_folder: a folder with model/"):
        study.run(Context("paper", 0))
    for name in ("model", "calibration", "test", "longbench"):
        (tmp_path / name).mkdir()
    generator = np.random.default_rng(0)
    for name in ("calibration", "test"):
        text = "".join(generator.choice(list("abcdefgh "), 4_000))
        (tmp_path / name / "a.txt").write_text(text)
    (tmp_path / "longbench" / "qa.jsonl").write_text(
        '{"context": "abc", "input": "a?", "answers": ["b a"]}\n'
    )
    monkeypatch.setattr(
        "theses.models.load_language_model", lambda *args, **kwargs: (study._random_model(), Letters())
    )
    result = study.run(Context("paper", 0, data_folder=tmp_path, limit=2))
    assert set(lookup("aqua-kv").metrics("paper")) <= set(result.metrics)
    assert result.tables["longbench"].height == 2
    assert study._f1("the cat", "a cat sat") == pytest.approx(0.4)


class Letters:
    """A tokenizer of letters."""

    eos_token_id = 2

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) % 58 + 3 for letter in text]}

    def decode(self, ids: Tensor, **options: Any) -> str:
        return " ".join(str(int(i)) for i in ids)


@pytest.mark.slow
def test_smollm2_is_nearly_lossless_at_two_bits() -> None:
    from theses.datasets.shakespeare import load_shakespeare
    from theses.models import load_language_model

    model, tokenizer = load_language_model()
    works = load_shakespeare()
    train, test = (
        torch.tensor(tokenizer(works[name][20_000:40_000])["input_ids"])[:n].reshape(-1, 512)
        for name, n in (("hamlet", 2_048), ("lear", 1_024))
    )
    predictors = calibrate(model, train, HiggsQuantizer(bits=2))
    full = chunked_perplexity(model, test)
    ours = chunked_perplexity(model, test, lambda: AquaKVCache(model.config, predictors))
    assert ours < 1.03 * full


def _door(quantizer: Any, name: str) -> tuple[Any, dict[str, Any]]:
    x = torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(0))
    return getattr(quantizer, name), {"x": x} if name == "quantize" else {"q": quantizer.quantize(x)}


def calls() -> list[Call]:
    made: list[Call] = [
        Call("HiggsQuantizer", lambda: (HiggsQuantizer, {"grid": shipped_grid(2, 16)}), ("grid",)),
        Call(
            "grid_distortion",
            lambda: (grid_distortion, {"grid": shipped_grid(2, 4), "n_samples": 100}),
            ("grid",),
        ),
    ]
    for quantizer in (HiggsQuantizer(bits=2), UniformQuantizer(bits=2, group_size=8)):
        name = type(quantizer).__name__
        made += [
            Call(f"{name}.quantize", partial(_door, quantizer, "quantize"), ("x",)),
            Call(
                f"{name}.dequantize",
                partial(_door, quantizer, "dequantize"),
                ("q.codes", "q.scales"),
            ),
        ]
    ids = tokens(4, 40)
    options: dict[str, Any] = {"model": model_of("gqa"), "input_ids": ids}
    made += [
        Call("calibrate", lambda: (calibrate, {**options, "quantizer": HiggsQuantizer()}), ("input_ids",)),
        Call("layer_states", lambda: (layer_states, dict(options)), ("input_ids",)),
        Call("chunked_perplexity", lambda: (chunked_perplexity, dict(options)), ("input_ids",)),
    ]
    return made
