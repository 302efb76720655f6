"""Mean and variance of each entry of the gradient over batches, and how unevenly a quantity is spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from theses.validation import check_array

__all__ = ["GradientStatistics", "gini", "gradient_statistics"]


@dataclass(frozen=True)
class GradientStatistics:
    """Mean and unbiased variance of the gradient of one batch, entry by entry.

    Parameters
    ----------
    mean, variance : mapping of str to Tensor
        By the parameter's name, shaped like the parameter.
    n : int
        Number of batches.

    Examples
    --------
    >>> mean, variance = {"w": torch.tensor([2.0, 0.1])}, {"w": torch.tensor([4.0, 1.0])}
    >>> GradientStatistics(mean, variance, n=4).squared_mean()
    {'w': tensor([3., 0.])}
    """

    mean: Mapping[str, Tensor]
    variance: Mapping[str, Tensor]
    n: int

    def squared_mean(self) -> dict[str, Tensor]:
        r"""Square of the expected gradient, without the bias that the square of an estimate has.

        .. math:: \hat\mu_j^2 = \max(\bar g_j^2 - s_j^2 / n, 0)

        Returns
        -------
        dict of str to Tensor
            By the parameter's name.
        """
        return {
            name: (mean.square() - self.variance[name] / self.n).clamp_min_(0.0)
            for name, mean in self.mean.items()
        }

    def summary(self) -> str:
        """Entries, batches, norm of the mean and root of the total variance in one line.

        Returns
        -------
        str
            The line.
        """
        entries = sum(mean.numel() for mean in self.mean.values())
        norm = math.sqrt(sum(float(mean.square().sum()) for mean in self.mean.values()))
        spread = math.sqrt(sum(float(variance.sum()) for variance in self.variance.values()))
        return f"{entries} entries over {self.n} batches: norm of the mean {norm:.4g}, noise {spread:.4g}"

    def to_dict(self) -> dict[str, Any]:
        """All fields as lists and numbers.

        Returns
        -------
        dict
            Ready for JSON.
        """
        return {
            "mean": {name: value.tolist() for name, value in self.mean.items()},
            "variance": {name: value.tolist() for name, value in self.variance.items()},
            "n": self.n,
        }

    def to_frame(self) -> pl.DataFrame:
        """Table of the parameters.

        Returns
        -------
        polars.DataFrame
            One row a parameter: ``parameter``, ``entries``, and ``squared_mean`` and ``variance`` summed over
            its entries.
        """
        squares = self.squared_mean()
        return pl.DataFrame(
            {
                "parameter": list(self.mean),
                "entries": [mean.numel() for mean in self.mean.values()],
                "squared_mean": [float(squares[name].sum()) for name in self.mean],
                "variance": [float(variance.sum()) for variance in self.variance.values()],
            },
            schema={
                "parameter": pl.String,
                "entries": pl.Int64,
                "squared_mean": pl.Float64,
                "variance": pl.Float64,
            },
        )


def gradient_statistics(
    model: nn.Module, loss_fn: Callable[[Any, Any], Tensor], batches: Iterable[Any]
) -> GradientStatistics:
    r"""Mean and variance over batches of the gradient of each trainable entry.

    .. math:: \bar g_j = \frac1n \sum_b g_j^{(b)}, \quad
        s_j^2 = \frac1{n - 1} \sum_b (g_j^{(b)} - \bar g_j)^2

    Parameters
    ----------
    model : torch.nn.Module
        Looked at in evaluation mode; weights, buffers, gradients and modes stay as they are. Parameters with
        ``requires_grad=False`` are left out, and one that the loss does not reach has gradient zero.
    loss_fn : callable
        ``loss_fn(model, batch)`` gives a tensor with one element.
    batches : iterable
        At least two, each one sample.

    Returns
    -------
    GradientStatistics
        In float32, or float64 where the parameter is.

    Raises
    ------
    ValueError
        If there are fewer than two batches, no trainable parameters, or a loss or gradient is not finite.
    TypeError
        If ``loss_fn`` does not return a tensor that depends on the parameters.

    Notes
    -----
    One backward pass a batch, and two arrays of the size of the parameters: Welford's recurrence, which does
    not lose the variance where the mean is large.

    References
    ----------
    B. P. Welford, Technometrics 4 (1962): the recurrence.

    Examples
    --------
    >>> layer = nn.Linear(1, 1, bias=False)
    >>> found = gradient_statistics(layer, lambda m, x: m(x).sum(), [torch.ones(1, 1), 3 * torch.ones(1, 1)])
    >>> found.mean["weight"], found.variance["weight"]
    (tensor([[2.]]), tensor([[2.]]))
    """
    params = {name: param for name, param in model.named_parameters() if param.requires_grad}
    if not params:
        raise ValueError("model must have trainable parameters, got none with requires_grad")
    mean = {name: _wide_zeros(param) for name, param in params.items()}
    squares = {name: _wide_zeros(param) for name, param in params.items()}
    n = 0
    with _evaluation(model):
        for n, batch in enumerate(batches, start=1):
            for name, gradient in zip(params, _gradients(model, loss_fn, batch, params), strict=True):
                gradient = gradient.to(mean[name].dtype)
                if not bool(torch.isfinite(gradient).all()):
                    raise ValueError(f"batches must give finite gradients, got NaN or infinity in {name!r}")
                off = gradient - mean[name]
                mean[name].add_(off, alpha=1 / n)
                squares[name].addcmul_(off, gradient - mean[name])
    if n < 2:
        raise ValueError(f"batches must hold at least 2 batches, got {n}")
    return GradientStatistics(mean, {name: total.div_(n - 1) for name, total in squares.items()}, n)


def gini(values: Any) -> float:
    r"""Gini coefficient: 0 where all are alike, near 1 where one has it all.

    .. math:: G = \frac{\sum_i (2 i - n - 1)\, x_{(i)}}{n \sum_i x_i}

    Parameters
    ----------
    values : array-like, shape (n,)
        At least 0, and not all 0.

    Returns
    -------
    float
        Between 0 and :math:`1 - 1/n`.

    Raises
    ------
    ValueError
        If there are none, one is negative or not finite, or all are zero.

    Notes
    -----
    Sorts: O(n log n).

    References
    ----------
    C. Gini, Variabilità e mutabilità (1912).

    Examples
    --------
    >>> gini([1, 1, 1, 1]), gini([0, 0, 0, 1])
    (0.0, 0.75)
    """
    ordered = np.sort(check_array("values", values, ndim=1))
    if ordered[0] < 0:
        raise ValueError(f"values must be at least 0, got {ordered[0]}")
    if ordered[-1] == 0:
        raise ValueError("values must not all be 0")
    # Scaled, so that the sum cannot overflow.
    ordered = ordered / ordered[-1]
    n = len(ordered)
    ranks = 2.0 * np.arange(1, n + 1) - n - 1
    return float(ranks @ ordered / (n * ordered.sum()))


def _wide_zeros(param: Tensor) -> Tensor:
    # Squares of half-precision gradients would underflow.
    return torch.zeros_like(param, dtype=torch.promote_types(param.dtype, torch.float32), requires_grad=False)


def _gradients(
    model: nn.Module, loss_fn: Callable[[Any, Any], Tensor], batch: Any, params: Mapping[str, Tensor]
) -> tuple[Tensor, ...]:
    with torch.enable_grad():
        loss = loss_fn(model, batch)
        if not isinstance(loss, Tensor) or not loss.requires_grad:
            raise TypeError("loss_fn must return a tensor that depends on the parameters of model")
        if loss.numel() != 1:
            raise ValueError(f"loss_fn must return one element, got shape {tuple(loss.shape)}")
        if not math.isfinite(float(loss.detach())):
            raise ValueError(f"loss_fn must return a finite loss, got {float(loss.detach())}")
        return torch.autograd.grad(
            loss.reshape(()), list(params.values()), allow_unused=True, materialize_grads=True
        )


@contextmanager
def _evaluation(model: nn.Module) -> Iterator[None]:
    """Neither dropout nor running statistics of batch norm."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
