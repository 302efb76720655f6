"""One training run with one of the four optimisers, and what is measured on its way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from theses.datasets.text import load_token_bins
from theses.evidence import Context
from theses.optim.blockwise_lr import (
    BLOCKS,
    PAPER_RATIOS,
    AdamMini,
    BlockwiseAdamW,
    SharpnessReport,
    block_sharpness,
    blockwise_groups,
    blockwise_schedule,
)
from theses.studies.optim.blockwise_lr.tiny import (
    Corpus,
    TinyLlama,
    shakespeare_corpus,
    training_batches,
    validation_windows,
)
from theses.training import fit

__all__ = ["FLAT", "Run", "Size", "measured", "next_token_loss", "train"]

#: Ratios of the baselines.
FLAT = dict.fromkeys(BLOCKS, 1.0)
_BETAS = (0.9, 0.95)
_WEIGHT_DECAY = 0.1
_AT_ONCE = 16
_GPT2_TOKENS = 50_257
_TRIAL = 100_000


@dataclass(frozen=True)
class Size:
    """How large the model is and how long it learns."""

    steps: int
    warmup: int
    context: int
    batch: int
    width: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    works: int | None
    windows: int
    every: int  # steps between evaluations
    rates: Mapping[str, tuple[float, ...]]  # grid of base rates by optimiser
    n_sharp: int  # batches for the sharpness
    smollm2: bool
    gpt2: bool = False


@dataclass
class Run:
    """Validation losses of a run, and sharpness at the wanted steps."""

    evaluations: list[tuple[int, float]]
    sharpness: dict[int, SharpnessReport] = field(default_factory=dict)

    @property
    def final(self) -> float:
        return self.evaluations[-1][1]


def train(
    ctx: Context,
    size: Size,
    optimiser: str,
    base_lr: float,
    ratios: Mapping[str, float] = PAPER_RATIOS,
    *,
    kind: str = "cosine",
    sharp_at: tuple[int, ...] = (),
    at_end: Callable[[nn.Module], None] | None = None,
) -> Run:
    """Train from scratch; model, batches and validation are the same for all optimisers of a seed.

    Parameters
    ----------
    ctx : Context
        Gives the seed and, for the paper's data, the folder.
    size : Size
        Model and length.
    optimiser : str
        ``adamw`` or ``mini`` with one rate, ``blockwise`` or ``blockwise mini`` with ``ratios``.
    base_lr : float
        Base rate; the floor is a twentieth of it.
    ratios : mapping of str to float
        Of the blockwise ones.
    kind : str
        Schedule.
    sharp_at : tuple of int
        Steps after which the sharpness is measured.
    at_end : callable, optional
        Looks at the trained model.

    Returns
    -------
    Run
        Losses and sharpness.
    """
    corpus = _corpus(ctx, size)
    model = _model(ctx, size, corpus)
    groups = blockwise_groups(
        model, base_lr, ratios if optimiser.startswith("blockwise") else FLAT, _WEIGHT_DECAY
    )
    optimizer: torch.optim.Optimizer
    if optimiser == "adamw":
        optimizer = torch.optim.AdamW(groups, betas=_BETAS)
    elif optimiser == "blockwise":
        optimizer = BlockwiseAdamW(groups, betas=_BETAS)
    else:
        optimizer = AdamMini(groups, betas=_BETAS)
    schedule = blockwise_schedule(optimizer, kind, warmup=size.warmup, total=size.steps, min_lr=base_lr / 20)
    inputs, targets = validation_windows(corpus, size.windows, size.context)
    run = Run([])
    # Often enough for both the sharpness and the losses; what is not due costs nothing.
    often = math.gcd(size.every, *sharp_at)
    done = 0

    def evaluate(model: nn.Module) -> float:
        nonlocal done
        done = min(done + often, size.steps)
        if done in sharp_at:
            run.sharpness[done] = measured(ctx, size, model)
        if done % size.every == 0 or done == size.steps:
            total = sum(
                float(next_token_loss(model, (inputs[i : i + size.batch], targets[i : i + size.batch])))
                * len(inputs[i : i + size.batch])
                for i in range(0, len(inputs), size.batch)
            )
            run.evaluations.append((done, total / len(inputs)))
        return 0.0

    fit(
        model,
        optimizer,
        next_token_loss,
        training_batches(corpus, size.batch, size.context, ctx.integer("batches")),
        steps=size.steps,
        schedule=schedule,
        clip_norm=1.0,
        evaluate=evaluate,
        evaluate_every=often,
    )
    if at_end is not None:
        at_end(model)
    return run


def measured(
    ctx: Context,
    size: Size,
    model: nn.Module,
    method: str = "fisher",
    *,
    detach_head: bool = False,
    n_batches: int | None = None,
) -> SharpnessReport:
    """Sharpness of the model on training batches that it has not learnt from by plan."""
    batches = training_batches(
        _corpus(ctx, size), min(size.batch, _AT_ONCE), size.context, ctx.integer("sharpness")
    )

    def outputs(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        if method == "fisher":
            return model(batch[0], detach_head=True) if detach_head else _logits(model, batch[0])
        return next_token_loss(model, batch)

    chosen = [batches(i) for i in range(n_batches or size.n_sharp)]
    return block_sharpness(model, outputs, chosen, method, generator=ctx.torch_generator("labels"))


def next_token_loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Mean cross-entropy in nat."""
    inputs, targets = batch

    def total(rows: slice) -> torch.Tensor:
        return nn.functional.cross_entropy(
            _logits(model, inputs[rows]).flatten(0, 1), targets[rows].flatten(), reduction="sum"
        )

    if len(inputs) <= _AT_ONCE:
        return total(slice(None)) / targets.numel()
    # The paper's batch of 300 long sequences has its logits computed anew on the way back.
    parts = [slice(i, i + _AT_ONCE) for i in range(0, len(inputs), _AT_ONCE)]
    losses = [checkpoint(total, rows, use_reentrant=False) for rows in parts]
    return torch.stack(losses).sum() / targets.numel()


def _logits(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    out = model(inputs)
    logits: torch.Tensor = out.logits if hasattr(out, "logits") else out
    return logits


def _corpus(ctx: Context, size: Size) -> Corpus:
    if size.gpt2:
        return _bins(str(ctx.data_folder), size.vocabulary)
    return shakespeare_corpus(size.vocabulary, size.works)


@cache
def _bins(folder: str, vocabulary: int) -> Corpus:
    train, val = load_token_bins(folder)
    if vocabulary < _GPT2_TOKENS:  # a trial run
        train, val = (part[:_TRIAL] % vocabulary for part in (train, val))
    return Corpus(train, val, vocabulary)


def _model(ctx: Context, size: Size, corpus: Corpus) -> nn.Module:
    if not size.gpt2:
        return TinyLlama(
            corpus.vocabulary,
            size.width,
            size.layers,
            size.heads,
            size.inner,
            ctx.torch_generator("weights"),
        )
    from transformers import GPT2Config, GPT2LMHeadModel

    config: Any = GPT2Config(
        vocab_size=corpus.vocabulary,
        n_positions=size.context,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(ctx.integer("weights"))
        model: nn.Module = GPT2LMHeadModel(config)
    return model
