"""Rotary position embedding, done and undone with the model's own cosines and sines."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

__all__ = ["Layout", "Rotary", "layout_of", "rotate", "unrotate"]

_LAYER_TYPES = ("full_attention", "sliding_attention")
# With these, the frequencies change with the length of the text, and keys rotated earlier keep the old ones.
_CHANGING = ("dynamic", "longrope")


class Layout:
    """Layers, heads and kinds of layers of a decoder.

    Parameters
    ----------
    config : transformers.PreTrainedConfig
        Of the decoder.

    Raises
    ------
    NotImplementedError
        If a layer is of a kind that the method does not know; the message names it.
    """

    def __init__(self, config: PreTrainedConfig) -> None:
        n_layers = int(config.num_hidden_layers)
        types = getattr(config, "layer_types", None) or ["full_attention"] * n_layers
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        for i, kind in enumerate(types):
            if kind not in _LAYER_TYPES:
                raise NotImplementedError(
                    f"layer {i} is of type {kind!r}; AQUA-KV takes {' and '.join(_LAYER_TYPES)} layers"
                )
        if not isinstance(heads, int):
            first = next(i for i, count in enumerate(heads) if count != heads[0])
            raise NotImplementedError(
                f"layer {first} has {heads[first]} key-value heads, layer 0 has {heads[0]}; AQUA-KV takes "
                "models whose layers are equally wide"
            )
        shared = int(getattr(config, "num_kv_shared_layers", 0) or 0)
        if shared:
            raise NotImplementedError(f"layer {n_layers - shared} takes keys and values of another layer")
        for i, rotated in enumerate(getattr(config, "no_rope_layers", None) or []):
            if not rotated:
                raise NotImplementedError(f"layer {i} has no rotary position embedding")
        self.n_layers = n_layers
        self.n_heads = heads
        self.head_dim = int(
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        self.types = tuple(types)

    @property
    def width(self) -> int:
        """Channels of the keys of one token, all heads."""
        return self.n_heads * self.head_dim


class Rotary:
    """Cosines and sines of a model.

    Parameters
    ----------
    module : torch.nn.Module
        The model's rotary embedding.
    layout : Layout
        Kinds of the layers; a model may rotate each kind differently.
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        self._module = module
        self._types = layout.types
        self._by_type = "layer_type" in inspect.signature(module.forward).parameters

    def kind(self, layer: int) -> str:
        """Layers of the same kind share their rotation."""
        return self._types[layer] if self._by_type else ""

    def angles(self, positions: Tensor, layer: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosines and sines, float32 of shape ``(rows, tokens, rotated channels)``."""
        like = torch.empty(0, dtype=torch.float32, device=device)
        options = {"layer_type": self._types[layer]} if self._by_type else {}
        cos, sin = self._module(like, positions.to(device), **options)
        return cos, sin


def layout_of(model_or_config: Any) -> tuple[Layout, Rotary]:
    """Layout and rotation of a model, or of the model that a configuration describes."""
    from transformers import PreTrainedConfig, PreTrainedModel

    module: nn.Module | None
    model: Any = model_or_config
    if isinstance(model_or_config, PreTrainedModel):
        config = model.config.get_text_config(decoder=True)
        module = getattr(model.get_decoder(), "rotary_emb", None)
    elif isinstance(model_or_config, PreTrainedConfig):
        config = model_or_config.get_text_config(decoder=True)
        module = None
    else:
        raise TypeError(
            f"config must be a transformers configuration or model, got {type(model_or_config).__name__}"
        )
    layout = Layout(config)
    kinds = getattr(config, "rope_parameters", None) or {}
    for i, kind in enumerate(layout.types):
        parameters = kinds.get(kind, kinds)
        if not isinstance(parameters, dict) or parameters.get("rope_type", "default") in _CHANGING:
            raise NotImplementedError(
                f"layer {i} has rotary embeddings whose frequencies change with the length: {parameters}"
            )
    return layout, Rotary(_rotary_of(config) if module is None else module, layout)


def _rotary_of(config: PreTrainedConfig) -> nn.Module:
    """Rotary embedding of the model class that goes with a configuration."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    models: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if models is not None:
        home = sys.modules[(models[0] if isinstance(models, tuple) else models).__module__]
        for name, value in vars(home).items():
            if name.endswith("RotaryEmbedding") and "Vision" not in name and inspect.isclass(value):
                made: Any = value
                module: nn.Module = made(config=config)
                return module
    raise NotImplementedError(
        f"layer 0 of a {type(config).__name__} has no rotary position embedding that is known"
    )


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Keys ``(batch, heads, tokens, head_dim)`` turned by their positions; other channels stay."""
    n = cos.shape[-1]
    cos, sin = cos[:, None], sin[:, None]
    turned = x[..., :n] * cos
    half = n // 2
    turned[..., :half].addcmul_(x[..., half:n], sin[..., :half], value=-1)
    turned[..., half:].addcmul_(x[..., :half], sin[..., half:])
    return turned if n == x.shape[-1] else torch.cat([turned, x[..., n:]], -1)


def unrotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Inverse of :func:`rotate`, also where the model scales cosines and sines."""
    scale = cos.square() + sin.square()
    return rotate(x, cos / scale, -sin / scale)
