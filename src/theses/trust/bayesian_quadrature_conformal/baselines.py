"""Upper bounds of the risk that are used otherwise: conformal risk control and RCPS."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theses.trust.bayesian_quadrature_conformal.posterior import check_losses
from theses.validation import check_real

__all__ = ["crc_bound", "hoeffding_bound", "wsr_bound", "wsr_rejects"]


def crc_bound(losses: ArrayLike, max_loss: float = 1.0) -> Any:
    r"""Bound of conformal risk control, right on average over calibration sets.

    .. math:: \frac{n}{n+1} \bar\ell + \frac{B}{n+1}

    Parameters
    ----------
    losses : array-like, shape (n,) or (n, m)
        Calibration losses, a column for each lambda.
    max_loss : float, default=1.0
        Largest possible loss B.

    Returns
    -------
    float or ndarray, shape (m,)
        The bound.

    Raises
    ------
    ValueError
        If losses are out of range.

    Examples
    --------
    >>> crc_bound([0.0, 0.0, 1.0, 0.0])
    0.4

    References
    ----------
    Angelopoulos, Bates, Fisch, Lei and Schuster: Conformal Risk Control, ICLR 2024, equation (4).
    """
    max_loss = check_real("max_loss", max_loss, minimum=0, include=False)
    array = check_losses("losses", losses, max_loss, ndim=(1, 2))
    n = len(array)
    return _scalar(n / (n + 1) * array.mean(axis=0) + max_loss / (n + 1))


def hoeffding_bound(losses: ArrayLike, delta: float = 0.05, max_loss: float = 1.0) -> Any:
    r"""Hoeffding's upper bound of a mean, as risk-controlling prediction sets use it.

    .. math:: \bar\ell + B \sqrt{\ln(1/\delta) / (2 n)}

    Parameters
    ----------
    losses : array-like, shape (n,) or (n, m)
        Calibration losses, a column for each lambda.
    delta : float, default=0.05
        Probability that the bound may fail, in (0, 1).
    max_loss : float, default=1.0
        Largest possible loss B.

    Returns
    -------
    float or ndarray, shape (m,)
        The bound.

    Raises
    ------
    ValueError
        If losses are out of range.

    Examples
    --------
    >>> round(hoeffding_bound([0.0] * 100), 4)
    0.1224

    References
    ----------
    Bates, Angelopoulos, Lei, Malik and Jordan: Distribution-Free, Risk-Controlling Prediction Sets,
    J. ACM 2021.
    """
    delta = check_real("delta", delta, minimum=0, maximum=1, include=False)
    max_loss = check_real("max_loss", max_loss, minimum=0, include=False)
    array = check_losses("losses", losses, max_loss, ndim=(1, 2))
    return _scalar(array.mean(axis=0) + max_loss * math.sqrt(math.log(1 / delta) / (2 * len(array))))


def wsr_bound(losses: ArrayLike, delta: float = 0.05, max_loss: float = 1.0) -> Any:
    r"""Upper bound of a mean by betting, after Waudby-Smith and Ramdas.

    .. math:: \inf\Big\{R : \max_{i \le n} \prod_{j \le i} \big(1 - \nu_j (\ell_j - R)\big) > 1/\delta\Big\}

    The stakes :math:`\nu_j` depend on the losses before j alone; each product is a martingale if R is the
    mean. The order of the losses matters: it must be random.

    Parameters
    ----------
    losses : array-like, shape (n,) or (n, m)
        Calibration losses, a column for each lambda.
    delta : float, default=0.05
        Probability that the bound may fail, in (0, 1).
    max_loss : float, default=1.0
        Largest possible loss B.

    Returns
    -------
    float or ndarray, shape (m,)
        The bound, to ``1e-12 * max_loss``; at most ``max_loss``.

    Raises
    ------
    ValueError
        If losses are out of range.

    Notes
    -----
    O(n m) for each of 40 steps of bisection.

    Examples
    --------
    >>> round(wsr_bound([0.0] * 100), 4)
    0.0309

    References
    ----------
    Waudby-Smith and Ramdas: Estimating means of bounded random variables by betting, JRSS B 2024.
    Bates et al., J. ACM 2021, the Waudby-Smith-Ramdas bound.
    """
    delta = check_real("delta", delta, minimum=0, maximum=1, include=False)
    max_loss = check_real("max_loss", max_loss, minimum=0, include=False)
    array = check_losses("losses", losses, max_loss, ndim=(1, 2))
    scaled = array.reshape(len(array), -1) / max_loss
    stakes = _stakes(scaled, delta)
    low, high = np.zeros(scaled.shape[1]), np.ones(scaled.shape[1])
    for _ in range(40):
        middle = (low + high) / 2
        rejected = _wealth(scaled, stakes, middle) > -math.log(delta)
        low, high = np.where(rejected, low, middle), np.where(rejected, middle, high)
    return _scalar(high[0] * max_loss if array.ndim == 1 else high * max_loss)


def wsr_rejects(losses: NDArray[np.float64], risk: float, delta: float, max_loss: float) -> NDArray[np.bool_]:
    """Whether the betting bound is at most ``risk``, column by column; no search for the bound is needed.

    Parameters
    ----------
    losses : ndarray, shape (n, m)
        Losses in ``[0, max_loss]``.
    risk, delta, max_loss : float
        As in :func:`wsr_bound`.

    Returns
    -------
    ndarray of bool, shape (m,)
        Where a mean of ``risk`` or more is rejected.

    Examples
    --------
    >>> wsr_rejects(np.zeros((100, 1)), 0.04, 0.05, 1.0), wsr_rejects(np.zeros((100, 1)), 0.02, 0.05, 1.0)
    (array([ True]), array([False]))
    """
    scaled = losses / max_loss
    rejected: NDArray[np.bool_] = _wealth(
        scaled, _stakes(scaled, delta), np.full(scaled.shape[1], risk / max_loss)
    ) > -math.log(delta)
    return rejected


def _stakes(scaled: NDArray[np.float64], delta: float) -> NDArray[np.float64]:
    # nu_i from the losses before i: shrunken running mean and variance, both with one made-up loss of 1/2 and
    # variance 1/4 at their start.
    n = len(scaled)
    steps = np.arange(2, n + 2)[:, None]
    means = (0.5 + np.cumsum(scaled, axis=0)) / steps
    variances = (0.25 + np.cumsum((scaled - means) ** 2, axis=0)) / steps
    before = np.concatenate([np.full((1, scaled.shape[1]), 0.25), variances[:-1]])
    return np.minimum(1.0, np.sqrt(2 * math.log(1 / delta) / (n * before)))


def _wealth(
    scaled: NDArray[np.float64], stakes: NDArray[np.float64], risk: NDArray[np.float64]
) -> NDArray[np.float64]:
    # A lost bet at full stake ends the game at wealth 0: the logarithm is -inf, which is meant.
    with np.errstate(divide="ignore"):
        gains = np.log(np.maximum(1 - stakes * (scaled - risk), 0.0))
    wealth: NDArray[np.float64] = np.cumsum(gains, axis=0).max(axis=0)
    return wealth


def _scalar(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 else value
