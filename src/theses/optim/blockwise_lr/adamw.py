"""AdamW that gives the slices of a fused tensor the rates of their blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from theses.validation import check_real

__all__ = ["BlockwiseAdamW"]

# Axis of the outputs, and their segments: block, start, stop, run.
Layout = tuple[int, tuple[tuple[str, int, int, int], ...]]


class BlockwiseAdamW(Optimizer):
    r"""AdamW for parameter groups with a learning rate for each block, fused projections included.

    .. math:: m &= \beta_1 m + (1 - \beta_1) g, \quad v = \beta_2 v + (1 - \beta_2) g^2 \\
        p &= (1 - \eta_b \lambda)\, p - \eta_b\, \frac{m / (1 - \beta_1^t)}
        {\sqrt{v / (1 - \beta_2^t)} + \epsilon}

    with the rate :math:`\eta_b` of the block that an *entry* belongs to: in GPT-2's ``c_attn`` and torch's
    ``in_proj_weight`` the rows or columns of the value projection have another than those of query and key.
    Where all groups have one rate this is ``torch.optim.AdamW``, to the bit.

    Parameters
    ----------
    params : iterable
        Groups of :func:`blockwise_groups`, or whatever else torch takes, then without slices.
    lr : float, default=1e-3
        Rate of groups that have none.
    betas : pair of float, default=(0.9, 0.95)
        Decay of the two moments; these are the paper's.
    eps : float, default=1e-8
        Added to the root.
    weight_decay : float, default=0.1
        Decoupled decay of groups that have none.
    foreach : bool, optional
        Update all tensors of a group at once; by default as torch decides.
    maximize : bool, default=False
        Go up instead of down.

    Raises
    ------
    TypeError, ValueError
        If a number is none or out of its bounds, or a parameter is complex.

    Notes
    -----
    A slice takes the *current* rate of the first group of its own block, so that any scheduler moves both
    together; if there is none, the fused group's rate times the quotient of the ratios. Slices are views:
    a step costs what AdamW's does, O(parameters), and no memory.

    References
    ----------
    Section 5, "Blockwise LR" in AdamW; betas and weight decay from Appendix A.

    Examples
    --------
    >>> from theses.optim.blockwise_lr import blockwise_groups
    >>> layer = torch.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, dropout=0.0)
    >>> optimizer = BlockwiseAdamW(blockwise_groups(layer, 1e-3, weight_decay=0.0))
    >>> before = layer.self_attn.in_proj_weight.detach().clone()
    >>> layer(torch.randn(5, 2, 8)).pow(3).sum().backward()
    >>> optimizer.step()
    >>> moved = (layer.self_attn.in_proj_weight.detach() - before).abs()
    >>> round(float(moved[:16].max()), 4), round(float(moved[16:].max()), 4)
    (0.008, 0.004)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        defaults = checked_defaults(lr, betas, eps, weight_decay, foreach, maximize)
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
            group.setdefault("maximize", False)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group.

        Parameters
        ----------
        param_group : dict
            As torch takes it, or one of :func:`blockwise_groups`.

        Raises
        ------
        TypeError, ValueError
            If a parameter is complex, or a setting of the group is out of its bounds.
        """
        super().add_param_group(param_group)
        check_group(self)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of all groups.

        Parameters
        ----------
        closure : callable, optional
            Computes the loss and the gradients anew.

        Returns
        -------
        object
            What ``closure`` returned, else None.

        Raises
        ------
        ValueError
            If a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        check_gradients(self)
        rates = block_rates(self.param_groups)
        for group in self.param_groups:
            members = []
            for index, parameter in enumerate(group["params"]):
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float32)
                    state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                    state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                members.append((index, parameter, state))
            if members:
                _update(group, members, rates)
        return loss


class Piece(NamedTuple):
    """Part of a group that has one rate: the segments of its tensors, None for whole tensors."""

    lr: float
    weight_decay: float
    block: str | None


def pieces(group: dict[str, Any], rates: dict[str, float]) -> Iterator[Piece]:
    """Parts of a group with one rate each: the blocks of a fused one, else the group itself."""
    if "relative" not in group:
        yield Piece(float(group["lr"]), group["weight_decay"], None)
        return
    for block, (lr_factor, decay_factor) in group["relative"].items():
        lr = rates.get(block, float(group["lr"]) * lr_factor)
        yield Piece(lr, group["weight_decay"] * decay_factor, block)


def block_rates(groups: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Current rate of each block, as the first group that is wholly of it has it."""
    rates: dict[str, float] = {}
    for group in groups:
        if "relative" in group:
            block, (factor, _) = next(iter(group["relative"].items()))
            rates.setdefault(block, float(group["lr"]) * factor)
        # Heads and positions at the base rate say nothing about their block.
        elif group.get("name", "").partition("/")[0] == group.get("block"):
            rates.setdefault(group["block"], float(group["lr"]))
    return rates


def views(tensor: torch.Tensor, layout: Layout, block: str) -> Iterator[torch.Tensor]:
    """Slices of a tensor that belong to a block; neighbours are one slice."""
    axis, segments = layout
    for start, stop in _joined(segments, block):
        if stop > start:
            yield tensor.narrow(axis, start, stop - start)


def _joined(segments: Iterable[tuple[str, int, int, int]], block: str) -> Iterator[tuple[int, int]]:
    begin = end = 0
    for part, start, stop, _ in segments:
        if part != block:
            continue
        if start != end:
            yield begin, end
            begin = start
        end = stop
    yield begin, end


def _update(
    group: dict[str, Any],
    members: list[tuple[int, torch.Tensor, dict[str, torch.Tensor]]],
    rates: dict[str, float],
) -> None:
    parts = list(pieces(group, rates))
    steps = [state["step"] for _, _, state in members]
    # The function below counts a step each time it is called: only the last call may move the count.
    copies = [[step.clone() for step in steps] for _ in parts[1:]]
    beta1, beta2 = group["betas"]
    for part, counted in zip(parts, [*copies, steps], strict=True):
        lists: list[list[torch.Tensor]] = [[], [], [], [], []]
        for (index, parameter, state), step in zip(members, counted, strict=True):
            assert parameter.grad is not None
            tensors = (parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"])
            if part.block is None:
                slices = [tensors]
            else:
                layout = group["layouts"][index]
                slices = list(zip(*(views(t, layout, part.block) for t in tensors), strict=True))
            for nth, entry in enumerate(slices):
                for target, value in zip(lists, (*entry, step if nth == 0 else step.clone()), strict=True):
                    target.append(value)
        adamw(
            lists[0],
            lists[1],
            lists[2],
            lists[3],
            [],
            lists[4],
            foreach=group["foreach"],
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=part.lr,
            weight_decay=part.weight_decay,
            eps=group["eps"],
            maximize=group["maximize"],
        )


def checked_defaults(
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    foreach: bool | None,
    maximize: bool,
) -> dict[str, Any]:
    """Settings of an optimiser, checked."""
    settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
    check_settings(settings)
    return {**settings, "betas": tuple(betas), "foreach": foreach, "maximize": bool(maximize)}


def check_settings(settings: dict[str, Any]) -> None:
    """Check the numbers of a parameter group."""
    check_real("lr", settings["lr"], minimum=0)
    if not isinstance(settings["betas"], (tuple, list)) or len(settings["betas"]) != 2:
        raise ValueError(f"betas must be a pair, got {settings['betas']!r}")
    for beta in settings["betas"]:
        if not 0 <= check_real("betas", beta, minimum=0) < 1:
            raise ValueError(f"betas must be less than 1, got {settings['betas']!r}")
    check_real("eps", settings["eps"], minimum=0)
    check_real("weight_decay", settings["weight_decay"], minimum=0)


def check_group(optimizer: Optimizer) -> None:
    """Check the group that was added last, and take it back if it will not do."""
    group = optimizer.param_groups[-1]
    try:
        check_settings(group)
        for parameter in group["params"]:
            if not parameter.is_floating_point():
                raise TypeError(f"params must hold real numbers, got {parameter.dtype}")
    except (TypeError, ValueError):
        optimizer.param_groups.pop()
        raise


def check_gradients(optimizer: Optimizer) -> None:
    """Refuse sparse gradients before anything has moved."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None and parameter.grad.layout != torch.strided:
                raise ValueError(
                    f"params: gradients must be dense, got a {parameter.grad.layout} one for a tensor of "
                    f"shape {tuple(parameter.shape)}; use sparse=False in embeddings"
                )
