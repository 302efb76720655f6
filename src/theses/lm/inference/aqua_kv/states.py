"""Keys before rotation and values of a model, layer by layer, with exact attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from theses.lm.inference.aqua_kv.rotary import Layout, Rotary, layout_of, unrotate
from theses.validation import check_integer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["LayerStates", "layer_states"]

_Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class LayerStates:
    """Keys and values of one layer, before rotation.

    Parameters
    ----------
    layer : int
        The layer, counted from 0.
    keys, values : tuple of torch.Tensor
        One for each batch of equally long texts, float32 of shape ``(n_texts, tokens, channels)``.

    References
    ----------
    arXiv 2501.19392, section 3.2: calibration goes layer by layer.

    Examples
    --------
    >>> LayerStates(0, (torch.ones(1, 5, 4),), (torch.ones(1, 5, 4),)).keys[0].shape
    torch.Size([1, 5, 4])
    """

    layer: int
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]


def layer_states(
    model: PreTrainedModel,
    input_ids: Tensor | Iterable[Tensor],
    *,
    prefix_size: int = 4,
    batch_tokens: int = 4_096,
) -> Iterator[LayerStates]:
    """Keys before rotation and values, layer by layer, with exact attention.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Causal language model with rotary embeddings, in evaluation mode.
    input_ids : torch.Tensor of integers, shape (n_texts, length), or iterable of tensors
        Text as token numbers.
    prefix_size : int, default=4
        First tokens of each text, left out.
    batch_tokens : int, default=4096
        Tokens that go through a layer at once.

    Returns
    -------
    iterator of LayerStates
        For layers 0, 1, ...; only the hidden states of one layer are held between.

    Raises
    ------
    TypeError, ValueError
        If ``input_ids`` hold no token numbers, or a text is not longer than its prefix.
    NotImplementedError
        If a layer is of a kind that the method does not know; the message names it.

    References
    ----------
    arXiv 2501.19392, section 3.2.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32,
    ...     num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)).eval()
    >>> ids = torch.randint(64, (2, 64), generator=torch.Generator().manual_seed(0))
    >>> [state.keys[0].shape[1:] for state in layer_states(model, ids)]
    [torch.Size([60, 16]), torch.Size([60, 16])]
    """
    prefix_size = check_integer("prefix_size", prefix_size, minimum=0)
    batch_tokens = check_integer("batch_tokens", batch_tokens, minimum=1)
    try:
        layout, rotary = layout_of(model)
    except TypeError:
        raise TypeError(f"model must be a transformers model, got {type(model).__name__}") from None
    batches = _batches(input_ids, batch_tokens, _vocabulary(model))
    if any(ids.shape[1] <= prefix_size for ids in batches):
        raise ValueError(f"input_ids: each text must be longer than prefix_size={prefix_size} tokens")
    return _propagate(model, batches, layout, rotary, prefix_size)


def _vocabulary(model: Any) -> int:
    return int(model.get_input_embeddings().num_embeddings)


@torch.no_grad()
def _propagate(
    model: Any, batches: list[Tensor], layout: Layout, rotary: Rotary, prefix_size: int
) -> Iterator[LayerStates]:
    decoder = model.get_decoder()
    layers: Sequence[nn.Module] = list(getattr(decoder, "layers", []))
    if len(layers) != layout.n_layers:
        raise NotImplementedError(
            f"layer {len(layers)} is not where it is looked for: {type(decoder).__name__}.layers has "
            f"{len(layers)} of {layout.n_layers} layers"
        )
    stores: list[Any] = [_Recorder() for _ in layers]  # type: ignore[no-untyped-call]
    recorder = Cache(layers=stores)
    hidden: list[Tensor] = []
    arguments: dict[tuple[int, ...], list[_Arguments]] = {}
    for ids in batches:
        noted = _layer_arguments(decoder, layers, ids.to(model.device), recorder)
        hidden.append(noted[0][0])
        arguments.setdefault(tuple(ids.shape), [(args, named) for _, args, named in noted])
    for index, layer in enumerate(layers):
        keys, values = [], []
        for i, ids in enumerate(batches):
            positional, named = arguments[tuple(ids.shape)][index]
            with _Watch(layer) as watch:
                output = layer(hidden[i], *positional, **named)
            if not isinstance(output, Tensor):
                raise NotImplementedError(f"layer {index} returns a {type(output).__name__}, not a tensor")
            hidden[i] = output
            store = stores[index]
            if store.keys is None or store.values is None:
                raise NotImplementedError(f"layer {index} hands no keys and values to the cache")
            positions = torch.arange(ids.shape[1], device=store.keys.device)[None]
            flat_keys = _flat(
                unrotate(store.keys.float(), *rotary.angles(positions, index, store.keys.device))
            )
            if i == 0:
                watch.compare(flat_keys, index)
            keys.append(flat_keys[:, prefix_size:].clone())
            values.append(_flat(store.values.float())[:, prefix_size:].clone())
            store.keys = store.values = None
        yield LayerStates(index, tuple(keys), tuple(values))


class _Recorder(DynamicLayer):  # type: ignore[no-untyped-call]
    """Cache layer that holds what it was given last, and is otherwise empty."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        self.keys, self.values = key_states, value_states
        return key_states, value_states


class _Watch:
    """Looks at what a layer's key projection, or the norm behind it, puts out."""

    def __init__(self, layer: nn.Module) -> None:
        attention = getattr(layer, "self_attn", None)
        source = getattr(attention, "k_norm", None) or getattr(attention, "k_proj", None)
        self._seen: Tensor | None = None
        self._source = source

    def __enter__(self) -> _Watch:
        self._handle = None
        if self._source is not None:
            self._handle = self._source.register_forward_hook(self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._handle is not None:
            self._handle.remove()

    def _note(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        self._seen = output

    def compare(self, keys: Tensor, index: int) -> None:
        """Refuse a layer whose rotation is undone wrongly, such as one that turns neighbouring channels."""
        if self._seen is None:
            return
        seen = self._seen.float()
        candidates = [seen] if seen.ndim == 3 else [seen.flatten(-2), seen.transpose(1, 2).flatten(-2)]
        for candidate in candidates:
            if candidate.shape == keys.shape and (candidate - keys).norm() <= 0.02 * candidate.norm():
                return
        raise NotImplementedError(f"layer {index} rotates its keys in a way that is not known")


def _layer_arguments(
    decoder: nn.Module, layers: Sequence[nn.Module], ids: Tensor, recorder: Cache
) -> list[tuple[Tensor, tuple[Any, ...], dict[str, Any]]]:
    """What the model hands to each of its layers for texts of a shape: masks, angles, positions."""
    noted: list[tuple[Tensor, tuple[Any, ...], dict[str, Any]]] = []

    def pass_on(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        noted.append((hidden_states, args, kwargs))
        return hidden_states

    for layer in layers:
        layer.forward = pass_on
    try:
        decoder(input_ids=ids, cache=recorder, use_cache=True)
    finally:
        for layer in layers:
            del layer.forward
    if len(noted) != len(layers):
        raise NotImplementedError(f"layer {len(noted)} is not called in order")
    return noted


def _flat(x: Tensor) -> Tensor:
    """Heads side by side: ``(batch, heads, tokens, head_dim)`` to ``(batch, tokens, channels)``."""
    return x.transpose(1, 2).flatten(2)


def _batches(input_ids: Tensor | Iterable[Tensor], batch_tokens: int, vocabulary: int) -> list[Tensor]:
    """Neighbouring texts of one length together, up to so many tokens."""
    pieces = [input_ids] if isinstance(input_ids, Tensor) else list(input_ids)
    if isinstance(input_ids, Tensor) and input_ids.ndim != 2:
        raise ValueError(f"input_ids must have shape (n_texts, length), got {tuple(input_ids.shape)}")
    texts: list[Tensor] = []
    for piece in pieces:
        if not isinstance(piece, Tensor) or piece.is_floating_point() or piece.dtype == torch.bool:
            kind = piece.dtype if isinstance(piece, Tensor) else type(piece).__name__
            raise TypeError(f"input_ids must be tensors of integers, got {kind}")
        if piece.ndim not in (1, 2):
            raise ValueError(f"input_ids must have one or two axes, got shape {tuple(piece.shape)}")
        if piece.numel() and not 0 <= int(piece.min()) <= int(piece.max()) < vocabulary:
            raise ValueError(
                f"input_ids must lie between 0 and {vocabulary - 1}, got {int(piece.min())} to "
                f"{int(piece.max())}"
            )
        texts += list(piece.reshape(-1, piece.shape[-1]).long()) if piece.numel() else []
    if not texts:
        raise ValueError("input_ids must not be empty")
    groups: list[list[Tensor]] = []
    for text in texts:
        fits = (
            groups and len(groups[-1][0]) == len(text) and (len(groups[-1]) + 1) * len(text) <= batch_tokens
        )
        if fits:
            groups[-1].append(text)
        else:
            groups.append([text])
    return [torch.stack(group) for group in groups]
