"""The optimiser: Algorithm 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.optim import Optimizer

from theses.validation import as_torch_generator, check_choice, check_real

__all__ = ["GENIE", "factors_of_state"]

_VARIANTS: Final = ("reference", "paper")
# Entries of a round: few enough for the cache of a processor, or enough to keep an accelerator busy.
_ON_CPU: Final = 1 << 17
_ELSEWHERE: Final = 1 << 25
_LANE: Final = 1 << 16  # values of 16 bits
_TINY: Final = 1e-37  # a sum of u below this is 0
_SATURATED: Final = 20.0  # tanh is 1 from here on, in double precision too


class GENIE(Optimizer):
    r"""Optimiser that equalises the one-step generalisation ratio over the parameters.

    With :math:`\hat m, \hat v` the bias-corrected averages of :math:`g` and :math:`g^2` at step :math:`t`,

    .. math::
        \rho_t &= \frac{(1 - \beta)(1 + \beta^t)}{(1 + \beta)(1 - \beta^t)}, \quad
        \sigma^2 = \frac{\hat v - \hat m^2}{1 - \rho_t} \\
        u &= \tanh \min(1 / \sigma^2, 10), \quad
        q = \frac{1}{1 + \rho_t \sigma^2 / (\hat m^2 + \epsilon)} \\
        \theta &\leftarrow \theta - \eta M \left[ q\, u\, \hat m + (1 - u)\, z\, \xi \right], \quad
        z = \frac{\sum u\, q\, |\hat m|}{\sum u}

    where :math:`\rho_t \sigma^2` is the variance of :math:`\hat m`, :math:`\xi` is standard normal, :math:`M`
    keeps an entry with probability :math:`1 - \mathrm{drop}` and enlarges it to make up for the rest, and the
    sums run over a parameter tensor.

    Parameters
    ----------
    params : iterable
        Parameters, pairs of name and parameter, or groups with options of their own.
    lr : float, default=0.015
        Step size. This is the real one, which schedules drive; small networks trained from scratch take 1 to
        5, since ``q`` and ``u`` shrink the step.
    beta : float, default=0.95
        Decay of both averages, in [0, 1). At 0 there is no variance to be seen, and ``u`` is constant.
    drop : float, default=0.4
        Probability with which an entry is left out of a step, in [0, 1); kept to the nearest 1/65536.
    noise : bool, default=True
        Whether uncertain entries get noise. Without noise and with ``drop=0`` nothing is drawn.
    weight_decay : float, default=0.0
        Times the parameter, added to the gradient (coupled, as in Adam).
    eps : float, default=1e-8
        Added to the squared mean, and taken for a variance that is not positive.
    inv_var_clip : float, default=10.0
        Largest inverse variance that ``tanh`` is given.
    variant : {"reference", "paper"}, default="reference"
        ``"paper"`` is Algorithm 1 as it is printed: :math:`\hat m^3 \tanh(1/\sigma^2) / (\hat v + \epsilon)`
        with :math:`\sigma^2 = \max(\hat v - \hat m^2, \epsilon)`, and noise of variance :math:`\sigma^2` for
        each entry. Its steps are of another size: tune ``lr`` anew.
    foreach : bool, optional
        Work on several tensors at once, the default, or on one after the other.
    generator : torch.Generator or int, optional
        Seeds noise and mask, once, when the optimiser is built; by default fresh entropy. Torch's global
        generators are never touched.

    Raises
    ------
    TypeError
        If a setting is of a wrong type or a parameter is complex (hand over ``torch.view_as_real`` of it).
    ValueError
        If a setting is out of its bounds.

    Notes
    -----
    O(P) time for P entries, with two draws for each; state: two arrays of P, in float32 where parameters are
    of half precision. Temporary arrays are those of a few tensors, never of all.

    Scaling the loss changes the steps, since ``u`` depends on :math:`1 / \sigma^2`: under
    ``torch.amp.GradScaler`` gradients are unscaled first, as it does by default. Where gradients are small
    ``tanh`` is 1 and ``q`` acts alone.

    The draws of a step follow from the parameter's seed, which is part of its state, and the step's number,
    so that a resumed run draws what an uninterrupted one would have drawn.

    References
    ----------
    Algorithm 1 and Section 3 of the paper; the reference variant corrects the variance of the averages, whose
    :math:`\rho_t` the paper leaves out. Defaults are those of Section 4.

    Examples
    --------
    >>> weight = torch.nn.Parameter(torch.zeros(3))
    >>> optimizer = GENIE([weight], lr=0.5, generator=0)
    >>> for _ in range(200):
    ...     optimizer.zero_grad()
    ...     loss = (weight - torch.tensor([1.0, 2.0, 3.0])).square().sum()
    ...     loss.backward()
    ...     optimizer.step()
    >>> bool(loss < 0.1)
    True
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.015,
        *,
        beta: float = 0.95,
        drop: float = 0.4,
        noise: bool = True,
        weight_decay: float = 0.0,
        eps: float = 1e-8,
        inv_var_clip: float = 10.0,
        variant: str = "reference",
        foreach: bool | None = None,
        generator: torch.Generator | int | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "beta": beta,
            "drop": drop,
            "noise": noise,
            "weight_decay": weight_decay,
            "eps": eps,
            "inv_var_clip": inv_var_clip,
            "variant": variant,
            "foreach": foreach,
        }
        _check_options(defaults)
        source = as_torch_generator(generator)
        drawn = torch.randint(0, 2**62, (), generator=source, device=source.device)
        self._seed = int(drawn)
        super().__init__(params, defaults)

    def __getstate__(self) -> dict[str, Any]:
        # torch keeps only defaults, state and groups of an optimiser that is copied.
        return {**super().__getstate__(), "_seed": self._seed}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group.

        Parameters
        ----------
        param_group : dict
            As torch takes it; options that it lacks are the optimiser's.

        Raises
        ------
        TypeError, ValueError
            If a parameter is complex, or an option is out of its bounds.
        """
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            _check_options(group)
            for place, param in enumerate(group["params"]):
                if param.is_complex():
                    raise TypeError(
                        f"{_called(group, place)} must be real, got {param.dtype}: hand over "
                        "torch.view_as_real of it"
                    )
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state of another optimiser, in the precision in which it was kept.

        Parameters
        ----------
        state_dict : dict
            From :meth:`state_dict` of an optimiser of parameters of the same shapes.
        """
        super().load_state_dict(state_dict)
        # torch rounds state to the parameter's type, here that of half-precision parameters.
        places = [place for group in state_dict["param_groups"] for place in group["params"]]
        params = [param for group in self.param_groups for param in group["params"]]
        for place, param in zip(places, params, strict=True):
            saved = state_dict["state"].get(place, {})
            for name in ("exp_avg", "exp_avg_sq"):
                if name in saved and saved[name].dtype != param.dtype:
                    self.state[param][name] = saved[name].detach().to(param.device, copy=True)

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
        RuntimeError
            If a gradient is sparse; no parameter has moved then.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for place, param in enumerate(group["params"]):
                if param.grad is not None and param.grad.layout != torch.strided:
                    raise RuntimeError(
                        f"the gradient of {_called(group, place)} must be dense, got a sparse one"
                    )
        sources: dict[torch.device, torch.Generator] = {}
        for number, group in enumerate(self.param_groups):
            for batch in _batches(self._parts(number, group), group["foreach"]):
                _update(batch, group, sources)
        return loss

    def _parts(self, number: int, group: dict[str, Any]) -> Iterator[_Part]:
        """Parameters of a group that have a gradient, with their state, at the step to be made."""
        for place, param in enumerate(group["params"]):
            if param.grad is None:
                continue
            state = self.state[param]
            if not state:
                wide = torch.promote_types(param.dtype, torch.float32)
                state["step"] = torch.zeros((), dtype=torch.float32)
                for name in ("exp_avg", "exp_avg_sq"):
                    state[name] = torch.zeros_like(param, dtype=wide, memory_format=torch.preserve_format)
                state["seed"] = _mix(self._seed, number, place)
            state["step"] += 1
            yield _Part(
                param, param.grad, state["exp_avg"], state["exp_avg_sq"], int(state["step"]), state["seed"]
            )


class _Part(NamedTuple):
    """A tensor, or a run of entries of a large one, and what its step needs."""

    param: Tensor
    grad: Tensor
    mean: Tensor
    second: Tensor
    step: int
    seed: int
    tensor: int = 0  # which of its batch
    chunk: int = 0  # which of its tensor


def _batches(parts: Iterable[_Part], foreach: bool | None) -> Iterator[list[list[_Part]]]:
    """Work in rounds: many small tensors in one round, or one large tensor in as many as it has chunks.

    The arrays of a round stay in the cache from one operation to the next; only those of a batch are held.
    """
    batch: list[_Part] = []
    kind: Any = None
    room = 0
    for part in parts:
        found = (part.step, part.param.device, part.param.dtype, part.grad.dtype)
        entries = part.param.numel()
        limit = _ON_CPU if part.param.device.type == "cpu" else _ELSEWHERE
        if batch and (foreach is False or found != kind or entries > room):
            yield [batch]
            batch = []
        tensors = part[:4]
        if entries > limit and all(tensor.is_contiguous() for tensor in tensors):
            if batch:
                yield [batch]
                batch = []
            param, grad, mean, second = (torch.split(tensor.view(-1), limit) for tensor in tensors)
            yield [
                [_Part(*pieces, part.step, part.seed, 0, nth)]
                for nth, pieces in enumerate(zip(param, grad, mean, second, strict=True))
            ]
            continue
        if not batch:
            kind, room = found, limit
        batch.append(part._replace(tensor=len(batch)))
        room -= entries
    if batch:
        yield [batch]


class _Move(NamedTuple):
    """Preconditioned gradient of a part, and what its noise is made of."""

    part: _Part
    move: Tensor
    rest: Tensor  # 1 - u where noise is drawn
    spread: Tensor | None  # scale of the noise, where each entry has its own


def _update(
    batch: Sequence[Sequence[_Part]], group: Mapping[str, Any], sources: dict[torch.device, torch.Generator]
) -> None:
    """Algorithm 1 for tensors that are at the same step."""
    moves: list[_Move] = []
    sizes: dict[int, Any] = {}
    totals: dict[int, Any] = {}
    for parts in batch:
        found = _preconditioned(parts, group)
        for part, move, certain, spread in zip(parts, *found, strict=True):
            if group["noise"] and spread is None:
                size, total = move.abs().sum(), certain.sum()
                sizes[part.tensor] = sizes[part.tensor] + size if part.chunk else size
                totals[part.tensor] = totals[part.tensor] + total if part.chunk else total
            moves.append(_Move(part, move, certain, spread))
        if group["noise"]:
            torch._foreach_neg_(found[1])
            torch._foreach_add_(found[1], 1)
    # One scale for a tensor: the mean of |move|, weighted by u; 0 where all of u is 0.
    scales = {nth: sizes[nth] / total.clamp_min_(_TINY) for nth, total in totals.items()}
    keep = max(round((1 - group["drop"]) * _LANE), 1)
    for part, move, rest, spread in moves:
        if group["noise"] or group["drop"]:
            source = _source(sources, part)
            # The mask is drawn first, so that it is the same whether noise is drawn or not.
            mask = _mask(move, keep, source) if group["drop"] else None
            # Noise that is multiplied by 0 need not be drawn; off the CPU, to look would cost a wait.
            if group["noise"] and (not move.is_cpu or bool(rest.any())):
                draws = torch.empty_like(move).normal_(generator=source)
                move.addcmul_(draws.mul_(rest), scales[part.tensor] if spread is None else spread)
            if mask is not None:
                move.mul_(mask)
    factor = -group["lr"] * _LANE / keep if group["drop"] else -group["lr"]
    torch._foreach_add_([entry.part.param for entry in moves], [entry.move for entry in moves], alpha=factor)


def _preconditioned(
    parts: Sequence[_Part], group: Mapping[str, Any]
) -> tuple[Any, Any, Sequence[Tensor | None]]:
    """Update both averages; moves, certainties u, and scales of the noise where each entry has its own."""
    means: Any = [part.mean for part in parts]
    seconds: Any = [part.second for part in parts]
    grads: Any = [part.grad for part in parts]
    if grads[0].dtype != means[0].dtype:
        grads = [grad.to(means[0].dtype) for grad in grads]
    if group["weight_decay"]:
        grads = torch._foreach_add(grads, [part.param for part in parts], alpha=group["weight_decay"])
    torch._foreach_lerp_(means, grads, 1 - group["beta"])
    torch._foreach_mul_(seconds, group["beta"])
    torch._foreach_addcmul_(seconds, grads, grads, 1 - group["beta"])
    moves, weights, certain, spreads = _weights(means, seconds, parts[0].step, group)
    torch._foreach_mul_(moves, weights)
    return moves, certain, spreads


def _mask(like: Tensor, keep: int, source: torch.Generator) -> Tensor:
    """1 with probability ``keep / 2**16``, else 0; four entries out of one random number of 64 bits."""
    entries = like.numel()
    bits = torch.empty((entries + 3) // 4, dtype=torch.int64, device=like.device)
    bits.random_(-(2**63), None, generator=source)
    lanes = bits.view(torch.int16)[:entries].to(like.dtype)
    return lanes.lt_(keep - _LANE // 2).view(like.shape)


def _source(sources: dict[torch.device, torch.Generator], part: _Part) -> torch.Generator:
    """Generator of the draws of one part at one step."""
    device = part.param.device
    if device not in sources:
        sources[device] = torch.Generator(device=device)
    return sources[device].manual_seed(_mix(part.seed, part.step, part.chunk))


def _mix(*parts: int) -> int:
    """Number below 2**63 that looks random and follows from the parts (the finaliser of SplitMix64)."""
    mask = 2**64 - 1
    value = 0
    for part in parts:
        value = (value * 0xD1342543DE82EF95 + part + 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return (value ^ (value >> 31)) >> 1


def factors_of_state(state: Mapping[str, Any], group: Mapping[str, Any]) -> Tensor:
    """What the average gradient of a parameter was multiplied by in the last step, noise and mask aside."""
    factors: Tensor = _weights([state["exp_avg"]], [state["exp_avg_sq"]], int(state["step"]), group)[1][0]
    return factors


def _weights(
    means: Any, seconds: Any, step: int, group: Mapping[str, Any]
) -> tuple[Any, Any, Any, Sequence[Tensor | None]]:
    """Averages without bias, weights p, certainties u, and the noise's scales where each entry has one."""
    correction = 1 - group["beta"] ** step
    hats: Any = torch._foreach_div(means, correction)
    unbiased: Any = torch._foreach_div(seconds, correction)
    squares: Any = torch._foreach_mul(hats, hats)
    weigh = _paper if group["variant"] == "paper" else _reference
    return (hats, *weigh(squares, unbiased, step, group))


def _reference(squares: Any, variances: Any, step: int, group: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    beta, eps = group["beta"], group["eps"]
    power = beta**step
    rho = (1 - beta) * (1 + power) / ((1 + beta) * (1 - power))
    if rho >= 1:  # one sample, at step 1 or without memory: the variance would be 0/0
        for variance in variances:
            variance.fill_(eps)
    else:
        torch._foreach_sub_(variances, squares)
        torch._foreach_div_(variances, 1 - rho)
        for variance in variances:
            F.threshold(variance, 0.0, eps, inplace=True)  # NaN stays NaN
    certain = _certainty(variances, group["inv_var_clip"])
    # q u, with q written so that nothing is divided by a mean near 0.
    torch._foreach_add_(squares, eps)
    torch._foreach_mul_(variances, rho)
    torch._foreach_add_(variances, squares)
    torch._foreach_div_(squares, variances)
    torch._foreach_mul_(squares, certain)
    return squares, certain, [None] * len(certain)


def _paper(squares: Any, seconds: Any, step: int, group: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    eps = group["eps"]
    variances: Any = torch._foreach_sub(seconds, squares)
    if step == 1:
        for variance in variances:
            variance.fill_(eps)
    else:
        torch._foreach_clamp_min_(variances, eps)
    certain = _certainty(variances, math.inf)
    torch._foreach_add_(seconds, eps)
    torch._foreach_div_(squares, seconds)
    torch._foreach_mul_(squares, certain)
    return squares, certain, torch._foreach_sqrt(variances)


def _certainty(variances: Any, clip: float) -> Any:
    """u = tanh(min(1 / variance, clip)), as e / (e + 2) with e = exp(2 x) - 1: as exact, and half as dear."""
    clip = min(clip, _SATURATED)
    certain: Any = torch._foreach_reciprocal(variances)
    torch._foreach_clamp_max_(certain, clip)
    if all(value.is_cpu and value.numel() and float(value.amin()) >= clip for value in certain):
        for value in certain:  # gradients so small that nothing is left to compute
            value.fill_(math.tanh(clip))
        return certain
    torch._foreach_mul_(certain, 2.0)
    torch._foreach_expm1_(certain)
    torch._foreach_div_(certain, torch._foreach_add(certain, 2.0))
    return certain


def _check_options(group: Mapping[str, Any]) -> None:
    check_real("lr", group["lr"], minimum=0)
    for name in ("beta", "drop"):
        if check_real(name, group[name], minimum=0) >= 1:
            raise ValueError(f"{name} must be less than 1, got {group[name]}")
    check_real("weight_decay", group["weight_decay"], minimum=0)
    check_real("eps", group["eps"], minimum=0, include=False)
    check_real("inv_var_clip", group["inv_var_clip"], minimum=0, include=False)
    check_choice("variant", group["variant"], _VARIANTS)
    if not isinstance(group["noise"], bool):
        raise TypeError(f"noise must be a bool, got {group['noise']!r}")
    if not (group["foreach"] is None or isinstance(group["foreach"], bool)):
        raise TypeError(f"foreach must be a bool or None, got {group['foreach']!r}")


def _called(group: Mapping[str, Any], place: int) -> str:
    """What an error calls a parameter: its name if it has one, else its place and shape."""
    if "param_names" in group:
        return f"parameter {group['param_names'][place]!r}"
    return f"parameter {place} of its group, of shape {tuple(group['params'][place].shape)},"
