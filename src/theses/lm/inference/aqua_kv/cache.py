"""The cache: exact first tokens, packed codes, and an exact buffer of the newest tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache
from transformers.cache_utils import CacheLayerMixin

from theses.lm.inference.aqua_kv.calibration import quantizers_of
from theses.lm.inference.aqua_kv.predictors import AquaPredictors
from theses.lm.inference.aqua_kv.quantizers import KVQuantizer, QuantizedTensor, joined, rows_of
from theses.lm.inference.aqua_kv.rotary import Layout, Rotary, layout_of, rotate, unrotate
from theses.validation import check_integer

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = ["AquaKVCache", "chunked_perplexity"]

_Pair = tuple[Tensor, Tensor]


class AquaKVCache(Cache):
    """Key-value cache at 2 to 2.5 bits a value, for ``model(..., cache=...)`` and ``model.generate``.

    The first tokens stay as they are; new ones wait, as they are, in a buffer. When that holds
    ``buffer_size`` tokens or more, all layers code it within the same forward pass, in which attention still
    sees the exact values. Layer ``l`` is read back from its own codes and from what layer ``l - 1`` has just
    read: ``k^_l = k~_l + deQ``, turned to its position again, and ``v^_l = v~_l + deQ``.

    Parameters
    ----------
    config : transformers.PreTrainedConfig or transformers.PreTrainedModel
        The model, or its configuration.
    predictors : AquaPredictors
        From :func:`theses.lm.inference.aqua_kv.calibrate` on the same model.
    quantizer, first_layer_quantizer : KVQuantizer or None, default=None
        Quantizers of layers 1, 2, ... and of layer 0; None takes those that the predictors were fitted for.
    prefix_size : int, default=4
        First tokens that are never coded. In texts padded on the left, the first tokens of each text are kept
        exact too.
    buffer_size : int, default=128
        Tokens at which the buffer is coded.
    keep_dequantized : bool, default=False
        Keep what was read back, for speed in evaluation: nothing is saved then.
    dtype : torch.dtype or None, default=None
        Type in which prefix and buffer are held; None keeps the model's.
    compute_dtype : torch.dtype, default=torch.float32
        Type of the predictions. ``torch.bfloat16`` halves the time of their products on processors that
        have it; the rounding is coded along with the residual, so that it does not add up.

    Raises
    ------
    ValueError
        If the predictors are of another model, or a size is out of range.
    NotImplementedError
        If a layer of the model is of a kind that the method does not know; the message names it.

    Notes
    -----
    A decoding step with ``T`` coded tokens of ``d`` channels costs O(T d^2) a layer. Layers with a sliding
    window keep all tokens, since the layers behind are predicted from them; their mask stays the model's.
    Padded rows need ``position_ids``, which ``generate`` hands over.

    References
    ----------
    arXiv 2501.19392, section 3.3: the inference algorithm, its buffer and its attention sinks.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from theses.lm.inference.aqua_kv import HiggsQuantizer, calibrate
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32,
    ...     num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)).eval()
    >>> ids = torch.randint(3, 64, (2, 64), generator=torch.Generator().manual_seed(0))
    >>> cache = AquaKVCache(model.config, calibrate(model, ids, HiggsQuantizer(bits=2)), buffer_size=16)
    >>> model.generate(ids, attention_mask=torch.ones_like(ids), cache=cache, do_sample=False,
    ...     min_new_tokens=8, max_new_tokens=8, pad_token_id=0).shape
    torch.Size([2, 72])
    >>> cache.get_seq_length(), cache.bits_per_value() < 16
    (71, True)
    """

    def __init__(
        self,
        config: PreTrainedConfig | PreTrainedModel,
        predictors: AquaPredictors,
        quantizer: KVQuantizer | None = None,
        *,
        first_layer_quantizer: KVQuantizer | None = None,
        prefix_size: int = 4,
        buffer_size: int = 128,
        keep_dequantized: bool = False,
        dtype: torch.dtype | None = None,
        compute_dtype: torch.dtype = torch.float32,
    ) -> None:
        if not isinstance(predictors, AquaPredictors):
            raise TypeError(f"predictors must be AquaPredictors, got {type(predictors).__name__}")
        layout, rotary = layout_of(config)
        for name, ours, theirs in (
            ("layers", layout.n_layers, predictors.n_layers),
            ("channels of keys", layout.width, predictors.width),
        ):
            if ours != theirs:
                raise ValueError(f"predictors are of a model with {theirs} {name}, config has {ours}")
        coder, first = quantizers_of(predictors, quantizer, first_layer_quantizer)
        self.predictors = predictors
        self.prefix_size = check_integer("prefix_size", prefix_size, minimum=0)
        self.buffer_size = check_integer("buffer_size", buffer_size, minimum=1)
        self.keep_dequantized = bool(keep_dequantized)
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise TypeError(f"dtype must be a floating torch.dtype or None, got {dtype!r}")
        if not (isinstance(compute_dtype, torch.dtype) and compute_dtype.is_floating_point):
            raise TypeError(f"compute_dtype must be a floating torch.dtype, got {compute_dtype!r}")
        self.dtype, self.compute_dtype = dtype, compute_dtype
        self._step = _Step(layout, rotary, self.prefix_size, self.buffer_size)
        super().__init__(
            layers=[
                _AquaLayer(
                    i,
                    self._step,
                    predictors,
                    first if i == 0 else coder,
                    keep_dequantized=self.keep_dequantized,
                    dtype=dtype,
                    compute_dtype=compute_dtype,
                )
                for i in range(layout.n_layers)
            ]
        )

    def memory_bytes(self) -> int:
        """Bytes that the cache holds: codes, scales, prefix, buffer, positions, and what was kept read back.

        Returns
        -------
        int
            Sizes of the storages behind all tensors, each once. The predictors, which all caches share, are
            not counted: ``predictors.n_parameters``.
        """
        storages = {}
        for tensor in self._tensors():
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        return sum(storages.values())

    def bits_per_value(self) -> float:
        """Bits held for one key or value of one token, everything counted.

        Returns
        -------
        float
            ``8 memory_bytes`` over the number of values; NaN for an empty cache.
        """
        layout = self._step.layout
        values = 2 * layout.n_layers * layout.width * self._step.length * self._step.rows
        return 8 * self.memory_bytes() / values if values else math.nan

    def _tensors(self) -> Iterator[Tensor]:
        if self._step.positions is not None:
            yield self._step.positions
        layers: list[Any] = self.layers
        for layer in layers:
            yield from layer.tensors()


class _Step:
    """What the layers of a cache share: positions, and what passes between layers in one forward pass."""

    def __init__(self, layout: Layout, rotary: Rotary, prefix_size: int, buffer_size: int) -> None:
        self.layout = layout
        self.rotary = rotary
        self.prefix_size = prefix_size
        self.buffer_size = buffer_size
        self.reset()

    def reset(self) -> None:
        self.positions: Tensor | None = None  # int32, one row if all rows of the batch agree
        self.rows = 0
        self.length = 0
        self.coded = 0  # tokens behind the prefix that are in codes
        self.layer = self.layout.n_layers - 1  # the last one that was updated
        self.flush = False
        self.sinks: Tensor | None = None
        self.past: _Pair | None = None  # the layer before, read back: what was in codes already,
        self.fresh: _Pair | None = None  # and what is coded in this pass
        self.turns: dict[str, _Pair] = {}

    def begin(
        self, layer: int, rows: int, new: int, position_ids: Tensor | None, device: torch.device
    ) -> None:
        """Take up a layer; the first one counts the tokens and decides whether the buffer is coded."""
        expected = (self.layer + 1) % self.layout.n_layers
        if layer != expected:
            raise RuntimeError(
                f"layer {layer} was updated where layer {expected} was expected; after a forward pass that "
                "broke off, reset() the cache"
            )
        self.layer = layer
        if layer:
            return
        self.turns = {}
        self._place(rows, new, position_ids, device)
        self.length += new
        self.rows = rows
        buffered = max(self.length - self.prefix_size, 0) - self.coded
        self.flush = buffered >= self.buffer_size
        self.sinks = self._sink_columns() if self.flush else None

    def end(self) -> None:
        """After the last layer nothing is left over."""
        if self.layer == self.layout.n_layers - 1:
            if self.flush:
                self.coded = self.length - self.prefix_size
            self.past = self.fresh = self.sinks = None
            self.turns = {}

    def angles(self, layer: int, device: torch.device, start: int, stop: int, what: str) -> _Pair:
        """Cosines and sines of columns, computed once a forward pass and kind of layer."""
        key = f"{what} {device} {self.rotary.kind(layer)}"
        if key not in self.turns:
            assert self.positions is not None
            self.turns[key] = self.rotary.angles(self.positions[:, start:stop], layer, device)
        return self.turns[key]

    def _place(self, rows: int, new: int, position_ids: Tensor | None, device: torch.device) -> None:
        if position_ids is None:
            position_ids = torch.arange(self.length, self.length + new, device=device)[None]
        fits = position_ids.ndim == 2 and position_ids.shape[1] == new and position_ids.shape[0] in (1, rows)
        if not fits:
            raise ValueError(
                f"position_ids must have shape (1 or {rows}, {new}), got {tuple(position_ids.shape)}"
            )
        fresh = position_ids.to(device, torch.int32)
        if len(fresh) > 1 and bool((fresh == fresh[:1]).all()):
            fresh = fresh[:1]
        if self.positions is None:
            self.positions = fresh.clone()
            return
        rows = max(len(fresh), len(self.positions))
        self.positions = torch.cat([self.positions.expand(rows, -1), fresh.expand(rows, -1)], 1)

    def _sink_columns(self) -> Tensor | None:
        """Columns, counted in what is coded now, of the first tokens of rows padded on the left; -1: none."""
        assert self.positions is not None
        start = self.prefix_size + self.coded
        zero = self.positions == 0
        # Padding has position 0 too: a text begins at the last column with it.
        last = self.positions.shape[1] - 1 - zero.flip(1).int().argmax(1)
        columns = last[:, None] + torch.arange(self.prefix_size, device=last.device) - start
        wanted = zero.any(1)[:, None] & (columns >= 0) & (columns < self.length - start)
        if not bool(wanted.any()):
            return None
        return torch.where(wanted, columns, -1).expand(self.rows, -1)

    def map_rows(self, change: Callable[[Tensor], Tensor], rows: int) -> None:
        self.rows = rows
        if self.positions is not None and len(self.positions) > 1:
            self.positions = change(self.positions)


class _AquaLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer of :class:`AquaKVCache`; ``keys`` and ``values`` are its buffer, turned and exact."""

    is_sliding = False
    is_compileable = False
    is_croppable = False
    supports_early_init = False

    def __init__(
        self,
        index: int,
        step: _Step,
        predictors: AquaPredictors,
        quantizer: KVQuantizer,
        *,
        keep_dequantized: bool,
        dtype: torch.dtype | None,
        compute_dtype: torch.dtype,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._index = index
        self._step = step
        self._predictors = predictors
        self._quantizer = quantizer
        self._keep = keep_dequantized
        self._dtype = dtype
        self._compute = compute_dtype
        self._clear()

    def _clear(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.is_initialized = False
        self._prefix: _Pair | None = None
        self._codes: tuple[list[QuantizedTensor], list[QuantizedTensor]] = ([], [])
        self._coded = 0
        self._sinks: list[tuple[Tensor, Tensor, Tensor]] = []
        self._kept: _Pair | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        layout = self._step.layout
        for name, states in (("keys", key_states), ("values", value_states)):
            if states.ndim != 4 or (states.shape[1], states.shape[3]) != (layout.n_heads, layout.head_dim):
                raise NotImplementedError(
                    f"layer {self._index} has {name} of shape {tuple(states.shape)}, expected "
                    f"(batch, {layout.n_heads}, length, {layout.head_dim})"
                )
        self.device = key_states.device
        empty = key_states[:, :, :0].to(self._dtype or key_states.dtype, copy=True)
        self.keys, self.values = empty, empty.clone()
        self._prefix = (empty.clone(), empty.clone())
        # Shared by all caches on a device that the predictors are on already.
        on = [p.device for p in self._predictors.parameters()]
        if on and on[0] != self.device:
            self._predictors.to(self.device)
        self.is_initialized = True

    @torch.no_grad()
    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        step, given = self._step, kwargs.get("kwargs") or kwargs
        rows, _, new, _ = key_states.shape
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        step.begin(self._index, rows, new, given.get("position_ids"), key_states.device)
        assert self.keys is not None and self.values is not None and self._prefix is not None
        past = self._read(key_states.dtype) if self._coded else None

        new_states, prefix, buffer = (key_states, value_states), self._prefix, (self.keys, self.values)
        seen = tuple(
            torch.cat(
                [part.to(key_states.dtype) for part in (prefix[i], *([past[i]] if past else []), buffer[i])]
                + [new_states[i]],
                2,
            )
            for i in (0, 1)
        )
        # The prefix is filled first, then the buffer.
        missing = max(step.prefix_size - prefix[0].shape[2], 0)
        if missing:
            self._prefix = (
                _extended(prefix[0], key_states[:, :, :missing]),
                _extended(prefix[1], value_states[:, :, :missing]),
            )
        recent = tuple(states[:, :, missing:] for states in new_states)
        if step.flush:
            self._encode(*(torch.cat([b.to(r.dtype), r], 2) for b, r in zip(buffer, recent, strict=True)))
            self.keys, self.values = (part[:, :, :0].clone() for part in buffer)
        else:
            self.keys, self.values = (_extended(b, r) for b, r in zip(buffer, recent, strict=True))
        step.end()
        return seen[0], seen[1]

    def _read(self, dtype: torch.dtype) -> _Pair:
        """Keys, turned, and values of all coded tokens; leaves them, before turning, to the next layer."""
        step = self._step
        if self._kept is not None:
            return self._kept
        keys, values = (
            torch.cat([self._quantizer.dequantize(q) for q in pieces], 1) for pieces in self._codes
        )
        if (guess := self._guess(0, step.past, None)) is not None:
            keys += guess
        known = keys.to(self._compute)
        if (guess := self._guess(1, step.past, known)) is not None:
            values += guess
        step.past = (known, values.to(self._compute))
        angles = step.angles(
            self._index, keys.device, step.prefix_size, step.prefix_size + self._coded, "past"
        )
        turned = (rotate(self._heads(keys), *angles).to(dtype), self._heads(values).to(dtype))
        return self._with_sinks(turned, self._sinks)

    def _guess(self, which: int, before: _Pair | None, keys: Tensor | None) -> Tensor | None:
        """Prediction of keys (0) or values (1) from the layer before and the keys of this one."""
        if before is None:
            return None
        if which == 0:
            return self._predictors._predict_keys(self._index, before[0])
        assert keys is not None
        return self._predictors._predict_values(self._index, keys, before[1])

    def _encode(self, keys: Tensor, values: Tensor) -> None:
        """Code the buffer: residuals of the same predictions that reading makes."""
        step, start = self._step, self._step.prefix_size + self._coded
        count = keys.shape[2]
        angles = step.angles(self._index, keys.device, start, start + count, "fresh")
        exact = (
            unrotate(keys.float(), *angles).transpose(1, 2).flatten(2),
            values.float().transpose(1, 2).flatten(2),
        )
        back: list[Tensor] = []
        known: list[Tensor] = []
        for which, x in enumerate(exact):
            guess = self._guess(which, step.fresh, known[0] if known else None)
            codes = self._quantizer.quantize(x if guess is None else x - guess)
            read = self._quantizer.dequantize(codes)
            back.append(read if guess is None else read + guess)
            known.append(back[-1].to(self._compute))
            pieces = self._codes[which]
            if pieces and self._quantizer.per_token:
                pieces[-1] = joined([pieces[-1], codes])
            else:
                pieces.append(codes)
        step.fresh = (known[0], known[1])
        sinks = []
        if step.sinks is not None:
            at = step.sinks.to(keys.device)
            index = at.clamp(min=0)[:, None, :, None].expand(-1, keys.shape[1], -1, keys.shape[3])
            held = self._dtype or keys.dtype
            sinks = [(at, keys.gather(2, index).to(held), values.gather(2, index).to(held))]
            self._sinks += [(torch.where(at < 0, -1, at + self._coded), *sinks[0][1:])]
        if self._keep:
            turned = (
                rotate(self._heads(back[0]), *angles).to(keys.dtype),
                self._heads(back[1]).to(keys.dtype),
            )
            turned = self._with_sinks(turned, sinks)
            self._kept = turned if self._kept is None else (
                torch.cat([self._kept[0], turned[0]], 2), torch.cat([self._kept[1], turned[1]], 2)
            )  # fmt: skip
        self._coded += count

    def _with_sinks(self, pair: _Pair, sinks: list[tuple[Tensor, Tensor, Tensor]]) -> _Pair:
        for at, *exact in sinks:
            row, slot = (at >= 0).nonzero(as_tuple=True)
            pair = (pair[0], pair[1].clone())
            for target, source in zip(pair, exact, strict=True):
                target[row, :, at[row, slot]] = source[row, :, slot].to(target.dtype)
        return pair

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self._step.layout.n_heads, -1).transpose(1, 2)

    def tensors(self) -> Iterator[Tensor]:
        """All tensors that are held."""
        for part in (self.keys, self.values, *(self._prefix or ()), *(self._kept or ())):
            if part is not None:
                yield part
        for pieces in self._codes:
            for piece in pieces:
                yield piece.codes
                yield piece.scales
        for sink in self._sinks:
            yield from sink

    def get_seq_length(self) -> int:
        if self.keys is None or self._prefix is None:
            return 0
        return self._prefix[0].shape[2] + self._coded + self.keys.shape[2]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        self._clear()
        if self._index == 0:
            self._step.reset()

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the newest tokens, ``-tokens_to_remove`` of them, as long as they are in the buffer."""
        if tokens_to_remove > 0:
            raise ValueError(f"tokens_to_remove must be negative or 0, got {tokens_to_remove}")
        buffered = 0 if self.keys is None else self.keys.shape[2]
        if -tokens_to_remove > buffered:
            raise NotImplementedError(
                f"crop can remove the {buffered} tokens in the buffer, got {-tokens_to_remove}: older "
                "ones are coded"
            )
        if not tokens_to_remove or self.keys is None or self.values is None:
            return
        self.keys = self.keys[:, :, :tokens_to_remove].clone()
        self.values = self.values[:, :, :tokens_to_remove].clone()
        if self._index == 0:
            self._step.length += tokens_to_remove
            if self._step.positions is not None:
                self._step.positions = self._step.positions[:, :tokens_to_remove].clone()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self._select(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._select(torch.arange(self._step.rows).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        self._select(indices)

    def _select(self, index: Tensor) -> None:
        if self.keys is None or self.values is None or self._prefix is None:
            return
        index = index.to(self.device)
        if index.dtype == torch.bool:
            index = index.nonzero()[:, 0]
        self.keys, self.values = self.keys[index], self.values[index]
        self._prefix = (self._prefix[0][index], self._prefix[1][index])
        self._codes = (
            [rows_of(q, index) for q in self._codes[0]],
            [rows_of(q, index) for q in self._codes[1]],
        )
        self._sinks = [(at[index], k[index], v[index]) for at, k, v in self._sinks]
        if self._kept is not None:
            self._kept = (self._kept[0][index], self._kept[1][index])
        # The last layer settles what is shared: until then the others still count the old rows.
        if self._index == self._step.layout.n_layers - 1:
            step = self._step
            step.map_rows(lambda positions: positions[index.to(positions.device)], len(index))


def _extended(held: Tensor, new: Tensor) -> Tensor:
    return torch.cat([held, new.to(held.dtype)], 2)


@torch.no_grad()
def chunked_perplexity(
    model: PreTrainedModel,
    input_ids: Tensor,
    make_cache: Callable[[], Cache] | None = None,
    *,
    chunk_tokens: int = 256,
    progress: Callable[[int], None] | None = None,
) -> float:
    """Perplexity of texts that are read piece by piece, so that later pieces see the cache.

    ``exp(-mean log p(x_t | x_<t))`` over all tokens but the first of each text. In a single forward pass,
    attention would use the exact keys and nothing would be tested.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Causal language model.
    input_ids : torch.Tensor of integers, shape (n_texts, length)
        The texts, read one at a time.
    make_cache : callable or None, default=None
        Makes the cache of a text; None takes ``transformers.DynamicCache``.
    chunk_tokens : int, default=256
        Length of a piece.
    progress : callable or None, default=None
        Told the number of tokens read after each piece.

    Returns
    -------
    float
        The perplexity.

    Raises
    ------
    TypeError, ValueError
        If ``input_ids`` hold no texts of at least two tokens.

    References
    ----------
    arXiv 2501.19392, section 4: perplexity with the cache in use.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32,
    ...     num_hidden_layers=2, num_attention_heads=2)).eval()
    >>> ids = torch.randint(64, (2, 64), generator=torch.Generator().manual_seed(0))
    >>> 60 < chunked_perplexity(model, ids, chunk_tokens=16) < 70
    True
    """
    chunk_tokens = check_integer("chunk_tokens", chunk_tokens, minimum=1)
    if not isinstance(input_ids, Tensor) or input_ids.is_floating_point() or input_ids.dtype == torch.bool:
        raise TypeError("input_ids must be a tensor of integers")
    if input_ids.ndim != 2 or input_ids.shape[0] < 1 or input_ids.shape[1] < 2:
        raise ValueError(f"input_ids must have shape (n_texts, length >= 2), got {tuple(input_ids.shape)}")
    loss, read = 0.0, 0
    for text in input_ids.to(model.device):
        cache = DynamicCache() if make_cache is None else make_cache()
        for start in range(0, len(text) - 1, chunk_tokens):
            piece = text[start : start + chunk_tokens][: len(text) - 1 - start]
            logits = model(piece[None], cache=cache, use_cache=True).logits[0].float()
            targets = text[start + 1 : start + 1 + len(piece)]
            loss += float(nn.functional.cross_entropy(logits, targets, reduction="sum"))
            read += len(piece)
            if progress is not None:
                progress(read)
    return math.exp(loss / read)
