"""Section 5 of the paper: a learning rate for each block, over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from theses.optim.blockwise_lr.blocks import BLOCKS, FUSED, PAPER_RATIOS, Placed, place
from theses.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    from theses.optim.blockwise_lr.adamw import BlockwiseAdamW

__all__ = ["blockwise_groups", "blockwise_schedule", "trainer_optimizers"]

#: The paper's learning rates end at this share of the base rate.
FLOOR = 1 / 20


def blockwise_groups(
    model: nn.Module,
    base_lr: float,
    ratios: Mapping[str, float] = PAPER_RATIOS,
    weight_decay: float = 0.1,
    no_decay: Sequence[str] = ("norm", "bias"),
    head: str = "tied",
    warmup_scale: float | Mapping[str, float] | None = None,
    *,
    positions: str = "embed",
    decay_mode: str = "scaled",
    rules: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    r"""Parameter groups whose learning rate is the base rate times a ratio of the block.

    .. math:: \eta_{\mathrm{block}} = r_{\mathrm{block}}\, \eta, \qquad
        r = (10, 8, 6, 4, 1) \text{ for embed, qk, ffn, vo, norm}

    Parameters
    ----------
    model : torch.nn.Module
        The model; see :func:`classify` for what is known.
    base_lr : float
        Learning rate that was tuned for plain AdamW, not a smaller one.
    ratios : mapping of str to float, default=PAPER_RATIOS
        Positive ratio by block; a block that is left out has 1.
    weight_decay : float, default=0.1
        Decoupled weight decay.
    no_decay : sequence of str, default=("norm", "bias")
        Blocks without weight decay; ``"bias"`` stands for all biases.
    head : {"tied", "embed", "base"}, default="tied"
        Rate of the language-model head. A head tied to the embedding has the embedding's. One that is not
        has the base rate, or with ``"embed"`` the embedding's.
    warmup_scale : float or mapping of str to float, optional
        Multiplies both the warm-up length and the peak rate, of all blocks or by block; 1 if left out.
    positions : {"embed", "base"}, default="embed"
        Rate of learned positions: the embedding's or the base rate.
    decay_mode : {"scaled", "base"}, default="scaled"
        A step shrinks a weight by ``lr * weight_decay``. As in the paper, blocks with a larger rate shrink
        faster; ``"base"`` divides the decay by the ratio, so that at the peak all shrink alike.
    rules : mapping of str to str, optional
        As for :func:`classify`.

    Returns
    -------
    list of dict
        For any ``torch.optim.Optimizer``: ``params``, ``lr``, ``weight_decay``, and for the reader
        ``block``, ``name``, ``warmup_scale``, ``param_names`` and ``layouts``. A tensor with fused query,
        key and value projections has the rate of ``qk`` in a plain optimiser; :class:`BlockwiseAdamW` and
        :class:`AdamMini` give the value slice the rate of the ``vo`` groups.

    Raises
    ------
    TypeError
        If a number is none, or ``model`` is no module.
    ValueError
        If a rate or ratio is not positive and finite, or a block is unknown.

    References
    ----------
    Section 5, "Blockwise LR", and its table of ratios.

    Examples
    --------
    >>> from torch import nn
    >>> layer = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16)
    >>> for group in blockwise_groups(layer, base_lr=1e-3):
    ...     print(group["name"], f"{group['lr']:g}", group["weight_decay"])
    ffn 0.006 0.1
    ffn/no_decay 0.006 0.0
    vo 0.004 0.1
    vo/no_decay 0.004 0.0
    norm/no_decay 0.001 0.0
    qkv 0.008 0.1
    qkv/no_decay 0.008 0.0
    """
    base_lr = check_real("base_lr", base_lr, minimum=0, include=False)
    weight_decay = check_real("weight_decay", weight_decay, minimum=0)
    ratio = _by_block("ratios", ratios)
    scale = _by_block("warmup_scale", 1.0 if warmup_scale is None else warmup_scale)
    for entry in [no_decay] if isinstance(no_decay, str) else no_decay:
        check_choice("no_decay: an entry", entry, (*BLOCKS, *FUSED, "bias"))
    check_choice("head", head, ("tied", "embed", "base"))
    check_choice("positions", positions, ("embed", "base"))
    check_choice("decay_mode", decay_mode, ("scaled", "base"))

    gathered: dict[tuple[str, bool], list[Placed]] = {}
    for placed in place(model, rules):
        kind = placed.block
        if placed.role == "head":
            kind = "embed" if head == "embed" else "head"
        elif placed.role == "position" and positions == "base":
            kind = "positions"
        decayed = placed.block not in no_decay and not (
            "bias" in no_decay and placed.name.rpartition(".")[2].endswith("bias")
        )
        gathered.setdefault((kind, decayed), []).append(placed)

    groups = []
    order = (*BLOCKS, *FUSED, "head", "positions")
    for kind, decayed in sorted(gathered, key=lambda entry: (order.index(entry[0]), not entry[1])):
        members = gathered[kind, decayed]
        block = {"head": "other", "positions": "embed"}.get(kind, kind)
        leading = FUSED[kind][0] if kind in FUSED else block
        at = 1.0 if kind in ("head", "positions") else ratio[leading]
        group = {
            "params": [placed.parameter for placed in members],
            "lr": base_lr * at * scale[leading],
            "weight_decay": (weight_decay / at if decay_mode == "base" else weight_decay) * decayed,
            "block": block,
            "name": kind if decayed else f"{kind}/no_decay",
            "warmup_scale": scale[leading],
            "param_names": [placed.name for placed in members],
            "layouts": [(placed.axis, tuple(map(tuple, placed.segments))) for placed in members],
        }
        if kind in FUSED:
            # Rate, where no group of the part's own block shows it, and decay of each part over the group's.
            group["relative"] = {
                part: (
                    ratio[part] * scale[part] / (at * scale[leading]),
                    at / ratio[part] if decay_mode == "base" else 1.0,
                )
                for part in FUSED[kind]
            }
        groups.append(group)
    return groups


def _by_block(name: str, values: float | Mapping[str, float]) -> dict[str, float]:
    if not isinstance(values, Mapping):
        values = dict.fromkeys(BLOCKS, values)
    for block, value in values.items():
        check_choice(f"{name}: a block", block, BLOCKS)
        check_real(f"{name}[{block!r}]", value, minimum=0, include=False)
    return {block: float(values.get(block, 1.0)) for block in BLOCKS}


class _Rule:
    """Factor on a group's peak rate; an object and no function, so that a scheduler's state keeps it."""

    def __init__(self, kind: str, warmup: float, total: int, floor: float, decay: float) -> None:
        self.kind, self.warmup, self.total, self.floor, self.decay = kind, warmup, total, floor, decay

    def __call__(self, t: int) -> float:
        if t < self.warmup:
            return t / self.warmup
        start = self.warmup
        if self.kind == "wsd":
            start = max(start, self.total * (1 - self.decay))
        if t <= start:
            return 1.0
        share = min((t - start) / (self.total - start), 1.0) if self.total > start else 1.0
        left = (1 + math.cos(math.pi * share)) / 2 if self.kind == "cosine" else 1 - share
        return self.floor + (1 - self.floor) * left


def blockwise_schedule(
    optimizer: Optimizer,
    kind: str = "cosine",
    *,
    warmup: int,
    total: int,
    min_lr: float,
    decay: float = 1 / 3,
) -> LambdaLR:
    r"""Linear warm-up, then a fall to one and the same absolute rate for all blocks.

    .. math:: \eta_g(t) = \begin{cases} \eta_g\, t / w_g & t \le w_g \\
        \eta_{\min} + (\eta_g - \eta_{\min})\,(1 + \cos(\pi (t - w_g) / (T - w_g))) / 2 & t > w_g
        \end{cases}

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Its groups' rates are the peaks :math:`\eta_g`; a group's ``warmup_scale`` stretches its warm-up.
    kind : {"cosine", "wsd"}, default="cosine"
        Cosine, or warmup-stable-decay: at the peak until the last part of the run, then linear.
    warmup : int
        Steps of warm-up; the paper takes 1,000, and 600 on MiniPile.
    total : int
        Steps of the run.
    min_lr : float
        Rate at the end, for all groups alike: the paper takes a twentieth of the base rate, not of the
        block's.
    decay : float, default=1/3
        Share of the run in which ``"wsd"`` falls, as in the authors' script.

    Returns
    -------
    torch.optim.lr_scheduler.LambdaLR
        To be stepped once after each step of the optimiser.

    Raises
    ------
    TypeError
        If ``optimizer`` is none.
    ValueError
        If the warm-up is not shorter than the run, or ``min_lr`` is negative or above a peak.

    References
    ----------
    Section 5 and Appendix A, "warm-up and cosine decay".

    Examples
    --------
    >>> import torch
    >>> weights = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    >>> optimizer = torch.optim.AdamW([{"params": [w], "lr": lr} for w, lr in zip(weights, (1.0, 8.0))])
    >>> schedule = blockwise_schedule(optimizer, warmup=2, total=10, min_lr=0.05)
    >>> for _ in range(10):
    ...     optimizer.step(), schedule.step()
    (None, None)
    ...
    >>> [round(lr, 4) for lr in schedule.get_last_lr()]
    [0.05, 0.05]
    """
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    check_choice("kind", kind, ("cosine", "wsd"))
    total = check_integer("total", total, minimum=1)
    warmup = check_integer("warmup", warmup, minimum=0, maximum=total - 1)
    min_lr = check_real("min_lr", min_lr, minimum=0)
    decay = check_real("decay", decay, minimum=0, maximum=1)
    rules: list[Callable[[int], float]] = []
    for group in optimizer.param_groups:
        peak = float(group.get("initial_lr", group["lr"]))
        if min_lr > peak:
            raise ValueError(f"min_lr must be at most the peak of each group, got {min_lr} above {peak}")
        stretched = warmup * float(group.get("warmup_scale", 1.0))
        rules.append(_Rule(kind, stretched, total, min_lr / peak, decay))
    return LambdaLR(optimizer, rules)


def trainer_optimizers(
    model: nn.Module,
    args: Any,
    total_steps: int,
    ratios: Mapping[str, float] = PAPER_RATIOS,
    **options: Any,
) -> tuple[BlockwiseAdamW, LambdaLR]:
    """Optimiser and schedule for ``transformers.Trainer(optimizers=...)``.

    Parameters
    ----------
    model : torch.nn.Module
        The model that is trained.
    args : transformers.TrainingArguments
        Learning rate (the base rate), weight decay, betas, epsilon and warm-up are taken from it; the
        schedule is cosine, or warmup-stable-decay if ``lr_scheduler_type`` says so.
    total_steps : int
        Steps of the optimiser in the whole run.
    ratios : mapping of str to float, default=PAPER_RATIOS
        Ratio by block.
    **options
        Passed on to :func:`blockwise_groups`.

    Returns
    -------
    optimizer : BlockwiseAdamW
        The optimiser.
    scheduler : torch.optim.lr_scheduler.LambdaLR
        Down to a twentieth of the base rate for all blocks.

    Raises
    ------
    ValueError
        If the warm-up is not shorter than the run, or a value of ``args`` is out of its bounds.

    Notes
    -----
    The defaults of ``TrainingArguments`` are not the paper's: set ``adam_beta2=0.95`` and
    ``weight_decay=0.1``.

    References
    ----------
    Section 5; Appendix A for betas, weight decay and floor.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> layer = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16)
    >>> args = SimpleNamespace(
    ...     learning_rate=1e-3, weight_decay=0.1, adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-8,
    ...     lr_scheduler_type="cosine", get_warmup_steps=lambda steps: 10,
    ... )
    >>> optimizer, scheduler = trainer_optimizers(layer, args, total_steps=100)
    >>> optimizer.param_groups[0]["initial_lr"]
    0.006
    """
    from theses.optim.blockwise_lr.adamw import BlockwiseAdamW

    total_steps = check_integer("total_steps", total_steps, minimum=1)
    groups = blockwise_groups(model, args.learning_rate, ratios, args.weight_decay, **options)
    optimizer = BlockwiseAdamW(
        groups,
        lr=args.learning_rate,
        betas=(args.adam_beta1, args.adam_beta2),
        eps=args.adam_epsilon,
        weight_decay=args.weight_decay,
    )
    wanted = str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type))
    scheduler = blockwise_schedule(
        optimizer,
        "wsd" if wanted == "warmup_stable_decay" else "cosine",
        warmup=args.get_warmup_steps(total_steps),
        total=total_steps,
        min_lr=FLOOR * args.learning_rate,
    )
    return optimizer, scheduler
