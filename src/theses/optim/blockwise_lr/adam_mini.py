"""Adam-mini: one second moment for each sub-block instead of each weight."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from theses.optim.blockwise_lr.adamw import (
    Layout,
    block_rates,
    check_gradients,
    check_group,
    checked_defaults,
    pieces,
)
from theses.optim.blockwise_lr.blocks import place_names
from theses.validation import check_integer

__all__ = ["AdamMini"]


class AdamMini(Optimizer):
    r"""AdamW whose second moment is shared within sub-blocks: half the state, blockwise rates allowed.

    .. math:: m &= \beta_1 m + (1 - \beta_1) g, \quad
        v_b = \beta_2 v_b + (1 - \beta_2)\, \mathrm{mean}_{i \in b}\, g_i^2 \\
        p_i &= (1 - \eta \lambda)\, p_i - \eta\, \frac{m_i / (1 - \beta_1^t)}
        {\sqrt{v_b / (1 - \beta_2^t)} + \epsilon} \quad (i \in b)

    A sub-block is a head in query and key matrices, an output in value, output and feed-forward matrices, a
    token in embeddings and head, an entry in biases, and the whole tensor in norms and in what is of no
    known block.

    Parameters
    ----------
    params : iterable
        Groups of :func:`blockwise_groups`, or pairs of name and parameter as ``model.named_parameters()``
        gives them, or dicts whose ``params`` are such pairs. From names alone the first axis of a matrix is
        taken for its outputs, which does not fit Hugging Face's GPT-2: use groups there.
    lr : float, default=1e-3
        Rate of groups that have none.
    betas : pair of float, default=(0.9, 0.95)
        Decay of the two moments.
    eps : float, default=1e-8
        Added to the root.
    weight_decay : float, default=0.1
        Decoupled decay of groups that have none.
    head_dim : int, optional
        Size of an attention head, for query and key matrices whose groups do not know it. Grouped-query
        attention needs nothing more: keys just have fewer heads.
    foreach : bool, optional
        Update all tensors of a group at once; by default on accelerators.
    maximize : bool, default=False
        Go up instead of down.

    Raises
    ------
    TypeError
        If a parameter has neither name nor layout, or holds no real numbers.
    ValueError
        If ``head_dim`` is missing or does not divide a query or key matrix, or a setting is out of its
        bounds.

    Notes
    -----
    State: one moment of the parameter's size and one number a sub-block. A step reads and writes less than
    Adam's, O(parameters).

    References
    ----------
    Section 5.3 of the paper, "Adam-mini with Blockwise LR"; the optimiser is that of arXiv 2406.16793,
    Algorithm 1.

    Examples
    --------
    >>> layer = torch.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, dropout=0.0)
    >>> optimizer = AdamMini(layer.named_parameters(), lr=1e-3, head_dim=4)
    >>> layer(torch.randn(5, 2, 8)).pow(3).sum().backward()
    >>> optimizer.step()
    >>> optimizer.state[layer.self_attn.in_proj_weight]["exp_avg_sq"].shape  # 2 + 2 heads, 8 rows
    torch.Size([12])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
        *,
        head_dim: int | None = None,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if head_dim is not None:
            check_integer("head_dim", head_dim, minimum=1)
        defaults = checked_defaults(lr, betas, eps, weight_decay, foreach, maximize)
        super().__init__(params, {**defaults, "head_dim": head_dim})

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
            One of :func:`blockwise_groups`, or with pairs of name and parameter as ``params``.

        Raises
        ------
        TypeError
            If a parameter has neither name nor layout, or holds no real numbers.
        ValueError
            If ``head_dim`` is missing or does not divide, or a setting is out of its bounds.
        """
        super().add_param_group(param_group)
        check_group(self)
        group = self.param_groups[-1]
        try:
            group["layouts"] = _layouts(group)
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise

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
            work = self._work(group, rates)
            if not work:
                continue
            foreach = group["foreach"]
            if foreach is None:
                foreach = all(entry.parameter.device.type != "cpu" for entry in work)
            (_update_together if foreach else _update_one_by_one)(work, group)
        return loss

    def _work(self, group: dict[str, Any], rates: dict[str, float]) -> list[_Entry]:
        parts = {piece.block: piece for piece in pieces(group, rates)}
        work = []
        for parameter, (axis, segments) in zip(group["params"], group["layouts"], strict=True):
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                blocks = sum((stop - start) // run for _, start, stop, run in segments if stop > start)
                state["step"] = torch.zeros((), dtype=torch.float32)
                state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                state["exp_avg_sq"] = parameter.new_zeros(blocks)
            state["step"] += 1
            step = float(state["step"])
            taken = 0
            for block, start, stop, run in segments:
                if stop == start:
                    continue
                n = (stop - start) // run
                part = parts.get(block) or parts[None]
                tensors = (parameter, parameter.grad, state["exp_avg"])
                if len(segments) > 1:
                    tensors = tuple(tensor.narrow(axis, start, stop - start) for tensor in tensors)
                work.append(
                    _Entry(
                        *tensors,
                        state["exp_avg_sq"][taken : taken + n],
                        axis,
                        run,
                        part.lr,
                        part.weight_decay,
                        step,
                    )
                )
                taken += n
        return work


def _layouts(group: dict[str, Any]) -> list[Layout]:
    if "layouts" not in group and "param_names" not in group:
        raise TypeError(
            "params must be groups of blockwise_groups or pairs of name and parameter, got parameters "
            "without names"
        )
    names = group.get("param_names") or [f"a parameter of group {group.get('name')!r}"] * len(group["params"])
    if "layouts" in group:
        found = group["layouts"]
    else:
        placed = place_names(zip(names, group["params"], strict=True))
        found = [(entry.axis, entry.segments) for entry in placed]
    layouts = []
    for name, parameter, (axis, segments) in zip(names, group["params"], found, strict=True):
        checked = []
        for block, start, stop, run in segments:
            if block == "qk" and parameter.ndim > 1 and stop > start:
                run = group["head_dim"] or run
                if not run:
                    raise ValueError(f"head_dim must be given for {name!r}, got None")
                if (stop - start) % run:
                    raise ValueError(
                        f"head_dim must divide the {stop - start} outputs of {name!r}, got {run}"
                    )
            checked.append((block, start, stop, run))
        layouts.append((axis, tuple(checked)))
    return layouts


class _Entry(NamedTuple):
    """A tensor, or a slice of one, whose outputs share second moments in runs of one length."""

    parameter: torch.Tensor
    gradient: torch.Tensor
    moment: torch.Tensor
    second: torch.Tensor
    axis: int
    run: int
    lr: float
    weight_decay: float
    step: float


def _mean_squares(gradient: torch.Tensor, axis: int, run: int) -> torch.Tensor:
    """Mean of the squares over each sub-block, shape (n_sub_blocks,)."""
    if gradient.ndim <= 1:
        squares = gradient.square().reshape(-1)
    else:
        # A norm reads the gradient once and makes no array of its size.
        others = [i for i in range(gradient.ndim) if i != axis]
        squares = torch.linalg.vector_norm(gradient, dim=others).square_()
        squares /= gradient.numel() // gradient.shape[axis]
    return squares if run == 1 else squares.view(-1, run).mean(1)


def _denominator(entry: _Entry, root: torch.Tensor) -> torch.Tensor:
    """Roots of the sub-blocks, one for each output, ready to be broadcast over the tensor."""
    if entry.run > 1:
        root = root.repeat_interleave(entry.run)
    shape = [1] * entry.parameter.ndim
    if shape:
        shape[entry.axis] = -1
    return root.view(shape)


def _update_one_by_one(work: list[_Entry], group: dict[str, Any]) -> None:
    beta1, beta2 = group["betas"]
    for entry in work:
        gradient = -entry.gradient if group["maximize"] else entry.gradient
        entry.parameter.mul_(1 - entry.lr * entry.weight_decay)
        entry.moment.lerp_(gradient, 1 - beta1)
        entry.second.mul_(beta2).add_(_mean_squares(gradient, entry.axis, entry.run), alpha=1 - beta2)
        root = entry.second.sqrt().div_(math.sqrt(1 - beta2**entry.step)).add_(group["eps"])
        size = entry.lr / (1 - beta1**entry.step)
        entry.parameter.addcdiv_(entry.moment, _denominator(entry, root), value=-size)


def _update_together(work: list[_Entry], group: dict[str, Any]) -> None:
    beta1, beta2 = group["betas"]
    parameters = [entry.parameter for entry in work]
    gradients = [entry.gradient for entry in work]
    moments = [entry.moment for entry in work]
    seconds = [entry.second for entry in work]
    if group["maximize"]:
        gradients = list(torch._foreach_neg(gradients))
    torch._foreach_mul_(parameters, [1 - entry.lr * entry.weight_decay for entry in work])
    torch._foreach_lerp_(moments, gradients, 1 - beta1)
    means = [_mean_squares(g, entry.axis, entry.run) for g, entry in zip(gradients, work, strict=True)]
    torch._foreach_mul_(seconds, beta2)
    torch._foreach_add_(seconds, means, alpha=1 - beta2)
    roots = list(torch._foreach_sqrt(seconds))
    torch._foreach_div_(roots, [math.sqrt(1 - beta2**entry.step) for entry in work])
    torch._foreach_add_(roots, group["eps"])
    spread = [_denominator(entry, root) for entry, root in zip(work, roots, strict=True)]
    sizes = [-entry.lr / (1 - beta1**entry.step) for entry in work]
    torch._foreach_addcdiv_(parameters, moments, spread, sizes)
