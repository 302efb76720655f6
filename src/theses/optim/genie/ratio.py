"""The one-step generalisation ratio: from gradients, and by a real step."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from theses.numerics.gradient_statistics import gini, gradient_statistics
from theses.optim.genie.optimizer import GENIE, factors_of_state
from theses.validation import check_array, check_integer

if TYPE_CHECKING:
    import altair as alt

__all__ = ["OSGRResult", "one_step_ratio", "osgr"]


@dataclass(frozen=True)
class OSGRResult:
    """One-step generalisation ratio, and what each entry has to do with it.

    Parameters
    ----------
    osgr : float
        The ratio R, at most 1: the expected fall of the test loss over that of the training loss.
    gsnr : mapping of str to Tensor
        Signal-to-noise ratio :math:`r_j = \\mu_j^2 / s_j^2` of one sample's gradient, by parameter; infinite
        without noise, 0 where both are 0.
    shares : mapping of str to Tensor
        Share :math:`W_j` of each entry in the fall of the training loss; they sum to 1.
    gini : float
        Gini coefficient of the shares: near 1 where few entries bring it all.
    n : int
        Number of samples of a step.

    References
    ----------
    Sections 3.1 and 3.2 of the paper.

    Examples
    --------
    >>> result = OSGRResult(0.5, {"w": torch.ones(2)}, {"w": torch.tensor([0.25, 0.75])}, 0.25, 4)
    >>> result.summary()
    'OSGR 0.5 for steps of 4 samples; Gini coefficient of the shares 0.25'
    >>> result.to_frame().rows()
    [('w', 2, 1.0, 1.0)]
    """

    osgr: float
    gsnr: Mapping[str, Tensor]
    shares: Mapping[str, Tensor]
    gini: float
    n: int

    def summary(self) -> str:
        """Ratio, samples and inequality in one line.

        Returns
        -------
        str
            The line.
        """
        return (
            f"OSGR {self.osgr:.4g} for steps of {self.n} samples; "
            f"Gini coefficient of the shares {self.gini:.4g}"
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields as lists and numbers.

        Returns
        -------
        dict
            Ready for JSON, but for infinite entries of ``gsnr``.
        """
        return {
            "osgr": self.osgr,
            "gsnr": {name: value.tolist() for name, value in self.gsnr.items()},
            "shares": {name: value.tolist() for name, value in self.shares.items()},
            "gini": self.gini,
            "n": self.n,
        }

    def to_frame(self) -> pl.DataFrame:
        """Table of the parameters.

        Returns
        -------
        polars.DataFrame
            One row a parameter: ``parameter``, ``entries``, ``share`` and the ``median_gsnr`` of its entries.
        """
        return pl.DataFrame(
            {
                "parameter": list(self.shares),
                "entries": [share.numel() for share in self.shares.values()],
                "share": [float(share.sum()) for share in self.shares.values()],
                "median_gsnr": [float(self.gsnr[name].median()) for name in self.shares],
            },
            schema={
                "parameter": pl.String,
                "entries": pl.Int64,
                "share": pl.Float64,
                "median_gsnr": pl.Float64,
            },
        )

    def plot(self) -> alt.Chart:
        """Chart of the shares of the parameters.

        Returns
        -------
        altair.Chart
            Needs the extra ``report``.
        """
        import altair as alt

        chart: alt.Chart = (
            alt.Chart(self.to_frame())
            .mark_bar()
            .encode(
                x=alt.X("share:Q", title="share in the fall of the training loss"),
                y=alt.Y("parameter:N", sort=list(self.shares), title=None),
                tooltip=["parameter:N", "entries:Q", "share:Q", "median_gsnr:Q"],
            )
            .properties(width=320)
        )
        return chart


def osgr(
    model: nn.Module,
    loss_fn: Callable[[Any, Any], Tensor],
    batches: Iterable[Any],
    n: int | None = None,
    preconditioner: Any = None,
) -> OSGRResult:
    r"""One-step generalisation ratio of a diagonal optimiser, from gradients alone.

    .. math:: R = 1 - \frac1n \sum_j \frac{W_j}{r_j + 1/n}
        = 1 - \frac{\sum_j p_j s_j^2 / n}{\sum_j p_j (\mu_j^2 + s_j^2 / n)}, \quad
        W_j = \frac{p_j \mathrm{E}[g_j^2]}{\sum_k p_k \mathrm{E}[g_k^2]}

    with :math:`\mu_j, s_j^2` mean and variance of one sample's gradient, :math:`r_j = \mu_j^2 / s_j^2`,
    :math:`g_j` the mean gradient of :math:`n` samples, so :math:`\mathrm{E}[g_j^2] = \mu_j^2 + s_j^2 / n`,
    and :math:`p_j` what the optimiser multiplies its gradient by.

    Parameters
    ----------
    model : torch.nn.Module
        Looked at in evaluation mode; nothing of it changes, and no step is taken.
    loss_fn : callable
        ``loss_fn(model, batch)`` gives a tensor with one element.
    batches : iterable
        At least two; each is one sample of the formula.
    n : int, optional
        Samples of a step; by default as many as there are batches.
    preconditioner : None, torch.optim.Optimizer or list of Tensor, default=None
        None stands for p = 1 (SGD and SAM). Of an SGD, Adam, AdamW or GENIE the present factor is taken:
        :math:`1 / (\sqrt{\hat v} + \epsilon)` of Adam's, :math:`q u` of GENIE; parameters that the optimiser
        does not have stand still. A list has a tensor, at least 0, for each trainable parameter of the model.

    Returns
    -------
    OSGRResult
        The ratio, and GSNR and share of each entry.

    Raises
    ------
    ValueError
        If there are fewer than two batches, gradients are not finite or all zero, an optimiser has made no
        step, or a list does not fit.
    TypeError
        If the optimiser is of another kind: hand over its factors as a list.

    Notes
    -----
    One backward pass a batch. :math:`\mu_j^2` is estimated by :math:`\max(\bar g_j^2 - s_j^2 / B, 0)` over
    the :math:`B` batches, since the square of a mean is too large by its variance. Entries without mean and
    variance drop out. That GENIE's ratio is at least SGD's follows, by Jensen's inequality, only where the
    shares are uniform; with skewed shares it can fail, hence a number and no assumption.

    References
    ----------
    Definition of the OSGR in Section 3.1 of the paper, and its form with a preconditioner in Section 3.2.

    Examples
    --------
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> batches = [torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, -2.0]])]
    >>> result = osgr(layer, lambda model, x: model(x).sum(), batches)
    >>> round(result.osgr, 3)  # one entry is certain, the other nothing but noise
    0.2
    >>> result.shares["weight"]
    tensor([[0.2000, 0.8000]])
    """
    if n is not None:
        n = check_integer("n", n, minimum=1)
    statistics = gradient_statistics(model, loss_fn, batches)
    names = list(statistics.mean)
    params = dict(model.named_parameters())
    n = statistics.n if n is None else n
    factors = _factors([params[name] for name in names], names, preconditioner)
    squares = statistics.squared_mean()
    falls: dict[str, Tensor] = {}
    lost, total = 0.0, 0.0
    for name, factor in zip(names, factors, strict=True):
        noise = statistics.variance[name].double() / n
        falls[name] = factor * (squares[name].double() + noise)
        lost += float((factor * noise).sum())
        total += float(falls[name].sum())
    if not total > 0:
        raise ValueError("batches must give gradients that are not all zero where the optimiser moves")
    shares = {name: fall / total for name, fall in falls.items()}
    flat = np.concatenate([share.flatten().cpu().numpy() for share in shares.values()])
    return OSGRResult(
        1 - lost / total,
        {name: _ratio(squares[name], statistics.variance[name]) for name in names},
        {name: share.to(squares[name].dtype) for name, share in shares.items()},
        gini(flat),
        n,
    )


def _ratio(square: Tensor, variance: Tensor) -> Tensor:
    return torch.where(square > 0, square / variance, torch.zeros_like(square))


def _factors(params: Sequence[Tensor], names: Sequence[str], preconditioner: Any) -> list[Tensor]:
    """Factor p of each entry, in float64."""
    if preconditioner is None:
        return [torch.ones_like(param, dtype=torch.float64, requires_grad=False) for param in params]
    if isinstance(preconditioner, Optimizer):
        return _factors_of(preconditioner, params, names)
    if not isinstance(preconditioner, (list, tuple)):
        kind = type(preconditioner).__name__
        raise TypeError(f"preconditioner must be None, an optimiser or a list of tensors, got {kind}")
    if len(preconditioner) != len(params):
        raise ValueError(
            f"preconditioner must have a tensor for each of the {len(params)} trainable parameters, "
            f"got {len(preconditioner)}"
        )
    found = []
    for name, param, value in zip(names, params, preconditioner, strict=True):
        array = check_array("preconditioner", value, ndim=param.ndim)
        if array.shape != tuple(param.shape):
            raise ValueError(
                f"preconditioner must have the shape {tuple(param.shape)} for {name!r}, got {array.shape}"
            )
        if array.min() < 0:
            raise ValueError(f"preconditioner must be at least 0, got {array.min()} for {name!r}")
        found.append(torch.as_tensor(array, dtype=torch.float64, device=param.device))
    return found


def _factors_of(optimizer: Optimizer, params: Sequence[Tensor], names: Sequence[str]) -> list[Tensor]:
    if not isinstance(optimizer, (GENIE, torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)):
        raise TypeError(
            "preconditioner must be SGD, Adam, AdamW, GENIE or a list of tensors with the factors, got "
            f"{type(optimizer).__name__}"
        )
    groups = {id(param): group for group in optimizer.param_groups for param in group["params"]}
    if not any(id(param) in groups for param in params):
        raise ValueError("preconditioner must be an optimiser of the model's parameters, got one of others")
    found = []
    for name, param in zip(names, params, strict=True):
        group = groups.get(id(param))
        state = optimizer.state.get(param, {})
        if group is None:
            found.append(torch.zeros_like(param, dtype=torch.float64, requires_grad=False))
        elif isinstance(optimizer, torch.optim.SGD):
            found.append(torch.ones_like(param, dtype=torch.float64, requires_grad=False))
        elif not state:
            raise ValueError(
                f"preconditioner must be an optimiser that has made a step, got none for {name!r}"
            )
        elif isinstance(optimizer, GENIE):
            found.append(factors_of_state(state, group).double())
        else:
            second = state["max_exp_avg_sq"] if group["amsgrad"] else state["exp_avg_sq"]
            hat = second.double() / (1 - group["betas"][1] ** float(state["step"]))
            found.append(1 / (hat.sqrt() + group["eps"]))
    return found


def one_step_ratio(
    model: nn.Module,
    loss_fn: Callable[[Any, Any], Tensor],
    train_batch: Any,
    test_batch: Any,
    step_fn: Callable[[], Any],
) -> float:
    r"""Fall of the test loss over that of the training loss in one real step, by definition.

    .. math:: \frac{L_{\mathrm{test}}(\theta) - L_{\mathrm{test}}(\theta')}
        {L_{\mathrm{train}}(\theta) - L_{\mathrm{train}}(\theta')}

    Parameters
    ----------
    model : torch.nn.Module
        Looked at in evaluation mode; parameters, buffers, gradients and modes are put back.
    loss_fn : callable
        ``loss_fn(model, batch)`` gives a tensor with one element.
    train_batch, test_batch : object
        Batches for ``loss_fn``.
    step_fn : callable
        Makes the step from the training loss's gradients, which the parameters have then. If it is
        ``optimizer.step``, the optimiser's state is put back too; else that is up to you.

    Returns
    -------
    float
        The ratio, about 1 where the step helps as much on what it has not seen.

    Raises
    ------
    ValueError
        If the step does not change the training loss, or a loss is not finite.
    TypeError
        If ``step_fn`` cannot be called.

    Notes
    -----
    One backward and four forward passes, and a copy of model and optimiser's state.

    References
    ----------
    Definition of the one-step generalisation ratio in Section 3.1 of the paper.

    Examples
    --------
    >>> layer = nn.Linear(1, 1, bias=False)
    >>> optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    >>> loss = lambda model, x: model(x).sum()
    >>> round(one_step_ratio(layer, loss, torch.ones(1, 1), 2 * torch.ones(1, 1), optimizer.step), 3)
    2.0
    """
    if not callable(step_fn):
        raise TypeError(f"step_fn must be callable, got {type(step_fn).__name__}")
    owner = getattr(step_fn, "__self__", None)
    state = copy.deepcopy(owner.state_dict()) if isinstance(owner, Optimizer) else None
    tensors = [*model.parameters(), *model.buffers()]
    before = [tensor.detach().clone() for tensor in tensors]
    gradients = [param.grad for param in model.parameters()]
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.enable_grad():
            for param in model.parameters():
                param.grad = None
            loss = loss_fn(model, train_batch)
            loss.backward()  # type: ignore[no-untyped-call]
        first = _losses(model, loss_fn, train_batch, test_batch)
        step_fn()
        second = _losses(model, loss_fn, train_batch, test_batch)
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)
        for param, gradient in zip(model.parameters(), gradients, strict=True):
            param.grad = gradient
        for module, mode in modes.items():
            module.training = mode
        if isinstance(owner, Optimizer) and state is not None:
            owner.load_state_dict(state)
    train, test = first[0] - second[0], first[1] - second[1]
    if not (math.isfinite(train) and math.isfinite(test)):
        raise ValueError(f"loss_fn must stay finite, got falls of {train} and {test}")
    if train == 0:
        raise ValueError("step_fn must change the training loss")
    return test / train


def _losses(
    model: nn.Module, loss_fn: Callable[[Any, Any], Tensor], train_batch: Any, test_batch: Any
) -> tuple[float, float]:
    with torch.no_grad():
        return float(loss_fn(model, train_batch)), float(loss_fn(model, test_batch))
