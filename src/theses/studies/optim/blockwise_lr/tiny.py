"""The language model of the study, small enough for a laptop, and the text that it learns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from theses.datasets.shakespeare import load_shakespeare
from theses.datasets.text import split_works

__all__ = ["Corpus", "TinyLlama", "shakespeare_corpus", "training_batches", "validation_windows"]


class _Attention(nn.Module):
    """Causal attention with rotary positions; the softmax is spelt out, so that it has second derivatives."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        shape = (*x.shape[:2], self.num_heads, self.head_dim)
        q, k, v = (layer(x).view(shape).transpose(1, 2) for layer in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (_rotate(part, cosine, sine) for part in (q, k))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
        mixed: torch.Tensor = self.o_proj((weights @ v).transpose(1, 2).flatten(2))
        return mixed


class _SwiGLU(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(width, eps=1e-6)
        self.self_attn = _Attention(width, heads)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=1e-6)
        self.mlp = _SwiGLU(width, inner)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cosine, sine)
        out: torch.Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class TinyLlama(nn.Module):
    """Llama with a tied embedding: RMSNorm, rotary positions, SwiGLU.

    Parameters
    ----------
    vocabulary, width, layers, heads, inner : int
        Tokens, model width, layers, heads, width of the feed-forward part.
    generator : torch.Generator
        Draws the weights: standard deviation 0.02, and that over sqrt(2 layers) for the matrices that write
        to the residual stream.
    """

    def __init__(
        self, vocabulary: int, width: int, layers: int, heads: int, inner: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(_Layer(width, heads, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.head_dim = width // heads
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.ndim == 2:
                    output = name.endswith(("o_proj.weight", "down_proj.weight"))
                    parameter.normal_(0, 0.02 / math.sqrt(2 * layers * output or 1), generator=generator)

    def forward(self, ids: torch.Tensor, detach_head: bool = False) -> torch.Tensor:
        """Logits of the next token at each position, shape (batch, length, vocabulary)."""
        cosine, sine = _angles(ids.shape[1], self.head_dim, ids.device)
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        head = self.embed_tokens.weight
        return nn.functional.linear(self.norm(x), head.detach() if detach_head else head)


def _angles(length: int, size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    frequencies = 10_000.0 ** (-torch.arange(0, size, 2, device=device) / size)
    angles = torch.outer(torch.arange(length, device=device), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def _rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


@dataclass(frozen=True)
class Corpus:
    """Token numbers of the two sides, and how many tokens there are."""

    train: NDArray[np.integer[Any]]
    held_out: NDArray[np.integer[Any]]
    vocabulary: int


@cache
def shakespeare_corpus(vocabulary: int, works: int | None = None) -> Corpus:
    """Shakespeare in tokens of a byte-level BPE trained on the training works; every eighth is held out.

    Parameters
    ----------
    vocabulary : int
        Number of tokens.
    works : int or None
        Only so many of them, for a trial.

    Returns
    -------
    Corpus
        The works of each side one after the other.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    texts = load_shakespeare()
    if works is not None:
        texts = dict(list(texts.items())[:works])
    train, held_out = split_works(texts, every=8)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        train.values(),
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )

    def tokens(side: dict[str, str]) -> NDArray[np.uint16]:
        return np.concatenate([np.array(tokenizer.encode(t).ids, dtype=np.uint16) for t in side.values()])

    return Corpus(tokens(train), tokens(held_out), tokenizer.get_vocab_size())


def training_batches(
    corpus: Corpus, batch: int, context: int, seed: int
) -> Callable[[int], tuple[torch.Tensor, torch.Tensor]]:
    """Batch of each step, a pure function of it: inputs and the tokens that follow them."""
    if len(corpus.train) <= context + 1:
        raise ValueError(
            f"the training text must have more than {context + 1} tokens, has {len(corpus.train)}"
        )

    def at(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        starts = np.random.default_rng([seed, step]).integers(len(corpus.train) - context, size=batch)
        return _windows(corpus.train, starts, context)

    return at


def validation_windows(corpus: Corpus, windows: int, context: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Evenly spaced windows of the held-out text, the same for all."""
    if len(corpus.held_out) <= context + 1:
        raise ValueError(f"the held-out text must have more than {context + 1} tokens")
    starts = np.linspace(0, len(corpus.held_out) - context - 1, windows).astype(np.int64)
    return _windows(corpus.held_out, starts, context)


def _windows(
    tokens: NDArray[np.integer[Any]], starts: NDArray[np.int64], context: int
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = np.stack([tokens[start : start + context + 1] for start in starts]).astype(np.int64)
    block = torch.from_numpy(rows)
    return block[:, :-1], block[:, 1:]
