"""Section 3 of the paper, first half: which block does a parameter belong to?"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from theses.validation import check_choice

__all__ = ["BLOCKS", "FUSED", "PAPER_RATIOS", "classify"]

BLOCKS: Final = ("embed", "qk", "ffn", "vo", "norm", "other")
"""Types of block, from the flattest to the sharpest, and what is none of them."""

FUSED: Final = MappingProxyType({"qkv": ("qk", "qk", "vo"), "kv": ("qk", "vo")})
"""Labels of tensors that hold several projections one after the other, with the blocks of these."""

PAPER_RATIOS: Final[Mapping[str, float]] = MappingProxyType(
    {"embed": 10, "qk": 8, "ffn": 6, "vo": 4, "norm": 1, "other": 1}
)
"""Learning rate of each block over the base rate, as the paper has it (Section 5)."""

_LOG = logging.getLogger(__name__)

# Names are compared token by token, never as substrings: `kv_proj` is no `v_proj`, `learnable` has no `ln`.
_ATTENTION = frozenset(
    [
        "attn",
        "attention",
        "self_attn",
        "self_attention",
        "selfattention",
        "cross_attn",
        "cross_attention",
        "crossattention",
        "encdecattention",
        "encoder_attn",
        "multihead_attn",
        "mha",
    ]
)
_FFN = frozenset(
    [
        "mlp",
        "mlps",
        "ffn",
        "ff",
        "feed_forward",
        "feedforward",
        "densereludense",
        "intermediate",
        "experts",
        "moe",
        "block_sparse_moe",
    ]
)
_QK_ANYWHERE = frozenset(["q_proj", "k_proj", "wq", "wk", "w_q", "w_k", "to_q", "to_k", "q_lin", "k_lin"])
_VO_ANYWHERE = frozenset(["v_proj", "o_proj", "wv", "wo", "w_v", "w_o", "to_v", "v_lin"])
_QK = _QK_ANYWHERE | frozenset(
    ["q", "k", "query", "key", "queries", "keys", "query_proj", "key_proj", "q_attn", "bias_k"]
)
_VO = _VO_ANYWHERE | frozenset(
    [
        "v",
        "o",
        "value",
        "values",
        "value_proj",
        "out_proj",
        "to_out",
        "out_lin",
        "c_proj",
        "dense",
        "proj",
        "out",
        "output",
        "resid_proj",
        "bias_v",
    ]
)
_QKV_ANYWHERE = frozenset(["c_attn", "qkv", "qkv_proj", "wqkv", "to_qkv"])
_QKV = _QKV_ANYWHERE | {"in_proj"}
_KV = frozenset(["kv", "kv_proj", "wkv", "to_kv"])
_FFN_ANYWHERE = frozenset(
    [
        "c_fc",
        "gate_proj",
        "up_proj",
        "down_proj",
        "gate_up_proj",
        "fc1",
        "fc2",
        "fc_in",
        "fc_out",
        "w1",
        "w2",
        "w3",
        "wi",
        "wi_0",
        "wi_1",
        "lin1",
        "lin2",
        "linear1",
        "linear2",
        "dense_h_to_4h",
        "dense_4h_to_h",
    ]
)
_TOKENS = frozenset(
    [
        "wte",
        "embed_tokens",
        "tok_embeddings",
        "tok_emb",
        "token_emb",
        "token_embedding",
        "token_embeddings",
        "word_embeddings",
        "word_embedding",
        "token_type_embeddings",
        "embed",
        "embedding",
        "embed_in",
        "emb",
        "shared",
    ]
)
_POSITIONS = frozenset(
    [
        "wpe",
        "pos",
        "pos_emb",
        "pos_embed",
        "pos_embedding",
        "pos_embeddings",
        "position_embedding",
        "position_embeddings",
        "positional_embedding",
        "positional_embeddings",
        "embed_positions",
        "positions",
    ]
)
_HEADS = frozenset(
    [
        "lm_head",
        "head",
        "output",
        "embed_out",
        "output_layer",
        "output_projection",
        "unembed",
        "unembedding",
        "proj_out",
    ]
)
_NORM_NAME = re.compile(r"(?:\w+_)?(?:l|layer|rms|group|batch|scale)?norm(?:_?\w{1,2})?|ln(?:_\w+|\d+)?")
_NORM_TYPE = re.compile(r"norm(?:\d+d)?$", re.IGNORECASE)
_SUFFIX = re.compile(r"_(?:weight|bias)$")


class Segment(NamedTuple):
    """Run of a tensor's outputs that belongs to one block.

    ``run`` neighbouring outputs share one second moment in Adam-mini; 0 stands for a head of unknown size.
    """

    block: str
    start: int
    stop: int
    run: int


@dataclass(frozen=True)
class Placed:
    """A trainable parameter, its block, and how its axis of outputs is divided."""

    name: str
    parameter: torch.Tensor
    block: str
    role: Literal["", "head", "position"]
    axis: int
    segments: tuple[Segment, ...]


class _Found(NamedTuple):
    block: str | None
    role: Literal["", "head", "position"] = ""


def classify(model: nn.Module, rules: Mapping[str, str] | None = None) -> dict[str, str]:
    """Block type of each trainable parameter.

    A layer's type decides first (norms, embeddings, attention of torch), then the tokens of its dotted name
    and the nearest attention or feed-forward module around it. Known are GPT-2 of Hugging Face and of
    nanoGPT, Llama and its kin, BERT, T5, and torch's own transformer layers. A tied tensor appears once,
    under its first name, as ``"embed"``.

    Parameters
    ----------
    model : torch.nn.Module
        The model.
    rules : mapping of str to str, optional
        Blocks by glob pattern of whole names, such as ``{"*.router.*": "other"}``; they go before the rules
        that are built in.

    Returns
    -------
    dict of str to str
        One of ``BLOCKS`` by parameter name, in the model's order. A tensor that holds query, key and value
        projections one after the other is ``"qkv"``, key and value ``"kv"``: see ``FUSED``. Parameters that
        are frozen or hold no real numbers are left out.

    Raises
    ------
    TypeError
        If ``model`` is no module.
    ValueError
        If two of ``rules`` match one parameter, one matches none, or a block is unknown; if the parts of a
        fused tensor cannot be told; if there is nothing to train.

    Warns
    -----
    UserWarning
        If no rule knows a parameter (it becomes ``"other"``), or there is no attention.

    Notes
    -----
    A head that is not tied to the embedding is ``"other"``, as is a position bias inside of attention. In
    mixtures of experts the router counts as ``"ffn"``. O(parameters x depth).

    References
    ----------
    Section 3, "Blocks": embedding, query-key, feed-forward, value-output and normalisation.

    Examples
    --------
    >>> layer = torch.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16)
    >>> blocks = classify(layer)
    >>> blocks["self_attn.in_proj_weight"], blocks["self_attn.out_proj.bias"], blocks["linear2.weight"]
    ('qkv', 'vo', 'ffn')
    """
    return {placed.name: placed.block for placed in place(model, rules)}


def place(model: nn.Module, rules: Mapping[str, str] | None = None) -> list[Placed]:
    """All that is known of each trainable parameter; see :func:`classify`."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    rules = _checked_rules(rules)
    modules = dict(model.named_modules(remove_duplicate=False))
    # A tied tensor has several owners; the first name is the one that torch reports.
    owners: dict[int, list[str]] = {}
    tensors: dict[int, torch.Tensor] = {}
    skipped = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not parameter.is_floating_point():
            skipped.append(name)
        elif parameter.requires_grad:
            owners.setdefault(id(parameter), []).append(name)
            tensors[id(parameter)] = parameter
    if skipped:
        _LOG.warning("parameters that hold no real numbers are skipped: %s", _listed(skipped))
    if not owners:
        raise ValueError("model must have a parameter to train, got none that requires a gradient")

    tree = _Tree(modules, getattr(model, "config", None))
    vocabularies = {
        len(module.weight)
        for name, module in modules.items()
        if _is_embedding(module) and isinstance(getattr(module, "weight", None), torch.Tensor)
    }
    result, unknown, used = [], [], set[str]()
    for key, names in owners.items():
        first, tensor = names[0], tensors[key]
        found = _by_rules(rules, names, used)
        owner = first
        if found is None:
            options = [(name, _built_in(name, tensor, tree, vocabularies)) for name in names]
            owner, found = next((o for o in options if o[1].block == "embed"), options[0])
        if found.block is None:
            unknown.append(first)
            found = _Found("other")
        result.append(_placed(first, owner, tensor, found, tree))
    if unused := [pattern for pattern in rules if pattern not in used]:
        raise ValueError(
            f"rules: {unused[0]!r} matches no parameter that is trained, such as {result[0].name!r}"
        )
    if unknown:
        warnings.warn(
            f"no rule knows these parameters, they become 'other': {_listed(unknown)}", stacklevel=3
        )
    if not any("qk" in FUSED.get(placed.block, (placed.block,)) for placed in result):
        warnings.warn("the model has no attention: everything is 'ffn' or 'other' or a norm", stacklevel=3)
    return result


def place_names(parameters: Iterable[tuple[str, torch.Tensor]]) -> list[Placed]:
    """As :func:`place`, from names alone: the first axis of each matrix is taken for its outputs."""
    pairs = list(parameters)
    rows = {len(tensor) for name, tensor in pairs if tensor.ndim == 2 and _key(name.lower()) in _TOKENS}
    tree = _Tree({})
    return [_placed(name, name, tensor, _built_in(name, tensor, tree, rows), tree) for name, tensor in pairs]


def _checked_rules(rules: Mapping[str, str] | None) -> Mapping[str, str]:
    for block in (rules := rules or {}).values():
        check_choice("rules: a block", block, (*BLOCKS, *FUSED))
    return rules


def _by_rules(rules: Mapping[str, str], names: Sequence[str], used: set[str]) -> _Found | None:
    matching = [pattern for pattern in rules if any(fnmatchcase(name, pattern) for name in names)]
    if len(matching) > 1:
        raise ValueError(
            f"rules: {names[0]!r} is matched by both {matching[0]!r} and {matching[1]!r}; "
            "a parameter needs one"
        )
    if not matching:
        return None
    used.add(matching[0])
    return _Found(rules[matching[0]])


def _built_in(name: str, tensor: torch.Tensor, tree: _Tree, vocabularies: set[int]) -> _Found:
    lowered = name.lower()
    key = _key(lowered)
    module = tree.owner(name)
    around = tree.kind(name.rpartition(".")[0])
    if _is_norm(module, key, tensor):
        return _Found("norm")
    if around != "attention":
        if key in _POSITIONS:
            return _Found("embed", "position")
        if _is_embedding(module) or (module is None and key in _TOKENS):
            return _Found("embed")
    if around == "attention":
        for tokens, block in ((_QKV, "qkv"), (_KV, "kv"), (_QK, "qk"), (_VO, "vo")):
            if key in tokens:
                return _Found(block)
        return _Found(None)
    if around == "ffn" or key in _FFN_ANYWHERE or lowered.split(".")[-3:-1] == ["output", "dense"]:
        return _Found("ffn")
    for tokens, block in (
        (_QKV_ANYWHERE, "qkv"),
        (_KV, "kv"),
        (_QK_ANYWHERE, "qk"),
        (_VO_ANYWHERE, "vo"),
    ):
        if key in tokens:
            return _Found(block)
    if key in _HEADS and len(tensor) in vocabularies:
        return _Found("other", "head")
    return _Found(None)


def _key(lowered: str) -> str:
    """Token that says what a tensor is: its own name, or its layer's if it is just a weight or a bias."""
    tokens = lowered.split(".")
    if tokens[-1] in ("weight", "bias"):
        tokens.pop()
    while len(tokens) > 1 and tokens[-1].isdecimal():
        tokens.pop()
    return _SUFFIX.sub("", tokens[-1]) if tokens else ""


class _Tree:
    """Modules by dotted name, and what they tell of the tensors below; empty if only names are known."""

    def __init__(self, modules: Mapping[str, nn.Module], config: Any = None) -> None:
        self.modules = modules
        self._config = vars(config) | _aliases(config) if config is not None else {}
        self._kinds: dict[str, Literal["attention", "ffn", ""]] = {}
        self._heads: dict[str, Mapping[str, Any] | None] = {}

    def owner(self, name: str) -> nn.Module | None:
        return self.modules.get(name.rpartition(".")[0])

    def kind(self, path: str) -> Literal["attention", "ffn", ""]:
        """Kind of the nearest module, this one included, that is one of the two."""
        if path not in self._kinds:
            parent, _, token = path.rpartition(".")
            type_name = type(self.modules[path]).__name__.lower() if path in self.modules else ""
            if token.lower() in _ATTENTION or type_name.endswith("attention"):
                self._kinds[path] = "attention"
            elif token.lower() in _FFN or type_name.endswith(("mlp", "feedforward")):
                self._kinds[path] = "ffn"
            else:
                self._kinds[path] = self.kind(parent) if path else ""
        return self._kinds[path]

    def heads(self, name: str, width: int | None) -> _Heads | None:
        """Size and numbers of the heads that a tensor belongs to."""
        source = self._source(name.rpartition(".")[0])
        queries = _first(source, _QUERIES)
        if queries is None:
            return None
        size = _first(source, ("head_dim",))
        if size is None:
            total = _first(source, ("embed_dim", "hidden_size", "n_embd", "d_model", "dim")) or width
            if total is None or total % queries:
                return None
            size = total // queries
        keys = _first(source, ("num_key_value_heads", "n_kv_heads", "num_kv_heads", "n_kv_head"))
        return _Heads(size, queries, keys or queries)

    def _source(self, path: str) -> Mapping[str, Any]:
        """Attributes of the nearest module that knows its heads, else the model's configuration."""
        found = self._heads.get(path)
        if found is None:
            own = vars(self.modules[path]) if path in self.modules else {}
            if _first(own, _QUERIES) is not None:
                found = own
            else:
                found = self._source(path.rpartition(".")[0]) if path else self._config
            self._heads[path] = found
        return found


class _Heads(NamedTuple):
    size: int
    queries: int
    keys: int


_QUERIES: Final = ("num_attention_heads", "num_heads", "n_heads", "n_head", "nhead")


def _aliases(config: Any) -> dict[str, Any]:
    # Configurations of Hugging Face know one number under several names: GPT-2's n_head and n_embd.
    names = getattr(config, "attribute_map", {})
    return {alias: getattr(config, alias, None) for alias in names}


def _first(source: Mapping[str, Any], names: Sequence[str]) -> int | None:
    for name in names:
        value = source.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _is_norm(module: nn.Module | None, key: str, tensor: torch.Tensor) -> bool:
    if module is not None and (
        isinstance(module, (nn.LayerNorm, nn.GroupNorm, _NormBase))
        or _NORM_TYPE.search(type(module).__name__)
    ):
        return True
    # A linear layer may be called anything; a vector that is called a norm is one.
    return tensor.ndim <= 1 and not isinstance(module, nn.Linear) and bool(_NORM_NAME.fullmatch(key))


def _is_embedding(module: nn.Module | None) -> bool:
    return isinstance(module, nn.Embedding) or type(module).__name__.endswith("Embedding")


def _placed(name: str, owner: str, tensor: torch.Tensor, found: _Found, tree: _Tree) -> Placed:
    block = found.block or "other"
    module = tree.owner(owner)
    # Hugging Face's Conv1D keeps its weight as (inputs, outputs).
    axis = int(type(module).__name__ == "Conv1D" and tensor.ndim == 2)
    length = tensor.shape[axis] if tensor.ndim else 1
    width = _inputs(module, tensor, axis)
    head = tree.heads(owner, width) if block in FUSED or block == "qk" else None
    if block in FUSED:
        parts = FUSED[block]
        sizes = _part_sizes(name, block, length, width, head)
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        pieces = zip(parts, [0, *ends[:-1]], ends, strict=True)
    else:
        pieces = zip([block], [0], [length], strict=True)
    segments = tuple(
        Segment(part, start, stop, _run(part, found.role, tensor, stop - start, head))
        for part, start, stop in pieces
    )
    return Placed(name, tensor, block, found.role, axis, segments)


def _inputs(module: nn.Module | None, tensor: torch.Tensor, axis: int) -> int | None:
    """Number of inputs of the layer that a weight or a bias belongs to."""
    if tensor.ndim == 2:
        return int(tensor.shape[1 - axis])
    for name in ("weight", "in_proj_weight"):
        weight = getattr(module, name, None)
        if isinstance(weight, torch.Tensor) and weight.ndim == 2:
            return int(weight.shape[1 - int(type(module).__name__ == "Conv1D")])
    return None


def _part_sizes(name: str, block: str, length: int, width: int | None, head: _Heads | None) -> list[int]:
    if block == "kv":
        if length % 2 == 0:
            return [length // 2] * 2
    elif head is not None and length == head.size * (head.queries + 2 * head.keys):
        return [head.size * head.queries, head.size * head.keys, head.size * head.keys]
    elif length % 3 == 0 and (width is None or length == 3 * width):
        return [length // 3] * 3
    elif length == 2 * (width or 0):  # GPT-2 calls keys and values of its cross-attention c_attn, too
        return [0, length // 2, length // 2]
    raise ValueError(
        f"model: cannot tell the projections in {name!r}, whose {length} outputs are not those of "
        f"{' and '.join(block)}; rules={{{name!r}: 'other'}} gives it the base rate"
    )


def _run(block: str, role: str, tensor: torch.Tensor, length: int, head: _Heads | None) -> int:
    """How many neighbouring outputs share a second moment in Adam-mini."""
    if block == "norm" or (block == "other" and role != "head"):
        return max(length, 1)
    if block == "qk" and tensor.ndim > 1:
        return head.size if head is not None else 0
    return 1


def _listed(names: Sequence[str], most: int = 8) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
