"""The question that each method asks at one lambda, and the search for the least lambda that passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from theses.trust.bayesian_quadrature_conformal.baselines import (
    crc_bound,
    hoeffding_bound,
    wsr_bound,
    wsr_rejects,
)
from theses.trust.bayesian_quadrature_conformal.posterior import (
    DirichletDraws,
    RandomState,
    RiskPosterior,
    beta_shape,
    check_losses,
    order_rank,
)
from theses.validation import as_generator, check_choice, check_integer, check_real

__all__ = ["METHODS", "RiskRule", "check_draws", "smallest_lambda"]

METHODS = ("bq", "crc", "rcps-hoeffding", "rcps-wsr")

# Sums of rounded losses may carry a bound that equals alpha this much (relatively) over it.
ROUNDING = 1e-12


class NotBinaryError(ValueError):
    """A rule for losses 0 and ``max_loss`` was given others."""


class RiskRule:
    r"""Test that a method makes at one lambda: is the risk bounded by alpha.

    - ``bq``: :math:`P(L^+ \le \alpha \mid \ell) \ge \beta`, the same draws at each lambda;
    - ``crc``: :math:`(\sum_i \ell_i + B)/(n+1) \le \alpha`, which is the mean of :math:`L^+`;
    - ``rcps-hoeffding``: :math:`\bar\ell + B\sqrt{\ln(1/\delta)/2n} \le \alpha` with
      :math:`\delta = 1 - \beta`;
    - ``rcps-wsr``: the betting bound of Waudby-Smith and Ramdas at most alpha.

    Parameters
    ----------
    method : {"bq", "crc", "rcps-hoeffding", "rcps-wsr"}
        The method.
    n : int
        Number of calibration losses.
    alpha : float
        Risk, in ``(0, max_loss)``.
    beta : float, default=0.95
        Probability, in (0, 1); ``crc`` has no use for it.
    max_loss : float, default=1.0
        Largest possible loss B.
    n_samples : int, default=1_000
        Draws S of ``bq``.
    conservative : bool, default=False
        Whether ``bq`` allows for the finite number of draws, see :class:`RiskPosterior`.
    binary : bool, default=False
        Whether all losses are 0 or B; ``bq`` then needs no draws.
    random_state : int, numpy Generator or RandomState, or None, default=None
        Source of the draws.

    Attributes
    ----------
    draws : DirichletDraws or None
        Draws of ``bq``.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Examples
    --------
    >>> rule = RiskRule("bq", n=50, alpha=0.1, binary=True)
    >>> rule.holds([0.0] * 50), rule.holds([1.0] * 2 + [0.0] * 48)
    (True, False)
    >>> RiskRule("rcps-hoeffding", n=50, alpha=0.1).holds([0.0] * 50)
    False

    References
    ----------
    Snell and Griffiths, ICML 2025; for the other rules see :mod:`.baselines`.
    """

    def __init__(
        self,
        method: str,
        n: int,
        alpha: float,
        beta: float = 0.95,
        max_loss: float = 1.0,
        *,
        n_samples: int = 1_000,
        conservative: bool = False,
        binary: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.method = check_choice("method", method, METHODS)
        self.n = check_integer("n", n, minimum=1)
        self.max_loss = check_real("max_loss", max_loss, minimum=0, include=False)
        self.alpha = check_real("alpha", alpha, minimum=0, maximum=self.max_loss, include=False)
        self.beta = check_real("beta", beta, minimum=0, maximum=1, include=False)
        self.n_samples = check_integer("n_samples", n_samples, minimum=1)
        self.conservative = bool(conservative)
        self.binary = bool(binary)
        self.draws: DirichletDraws | None = None
        if method == "bq" and not self.binary:
            self._rank = check_draws(self.n_samples, self.beta, self.conservative)
            self.draws = DirichletDraws(self.n, self.n_samples, as_generator(random_state))

    def holds(self, losses: ArrayLike) -> Any:
        """Whether the risk is bounded by alpha.

        Parameters
        ----------
        losses : array-like, shape (n,) or (n, m)
            Calibration losses, a column for each lambda.

        Returns
        -------
        bool or ndarray of bool, shape (m,)
            The answer.

        Raises
        ------
        ValueError
            If losses are out of range, not ``n``, or not 0 and B for a binary rule.
        """
        array = self._checked(losses)
        if self.method == "bq" and self.draws is None:
            misses = np.count_nonzero(array, axis=0)
            answer = self._beta_cdf(misses) >= self.beta
        elif self.draws is not None:
            below = np.count_nonzero(self.draws._bounds(array, self.max_loss) <= self.alpha, axis=0)
            answer = below >= self._rank
        elif self.method == "rcps-wsr":
            answer = wsr_rejects(array.reshape(self.n, -1), self.alpha, 1 - self.beta, self.max_loss)
            answer = answer if array.ndim == 2 else answer[0]
        else:
            answer = self._bound(array) <= self.alpha * (1 + ROUNDING)
        return bool(answer) if array.ndim == 1 else np.asarray(answer)

    def bound(self, losses: ArrayLike) -> Any:
        """The bound that ``holds`` compares with alpha.

        Parameters
        ----------
        losses : array-like, shape (n,) or (n, m)
            Calibration losses, a column for each lambda.

        Returns
        -------
        float or ndarray, shape (m,)
            The beta-quantile of ``L+`` for ``bq``, else the method's upper bound.

        Raises
        ------
        ValueError
            As for ``holds``.
        """
        array = self._checked(losses)
        bound = self._bound(array)
        return float(bound) if array.ndim == 1 else np.asarray(bound)

    def _bound(self, array: NDArray[np.float64]) -> Any:
        if self.method == "crc":
            return crc_bound(array, self.max_loss)
        if self.method == "rcps-hoeffding":
            return hoeffding_bound(array, 1 - self.beta, self.max_loss)
        if self.method == "rcps-wsr":
            return wsr_bound(array, 1 - self.beta, self.max_loss)
        if self.draws is None:
            misses = np.count_nonzero(array, axis=0)
            shape = beta_shape(misses, self.n)
            # With nothing but misses the second shape is 0, and L+ is max_loss.
            inside = special.betaincinv(shape[0], np.maximum(shape[1], 1), self.beta)
            return self.max_loss * np.where(misses == self.n, 1.0, inside)
        bounds = self.draws._bounds(array, self.max_loss)
        return np.partition(bounds, self._rank - 1, axis=0)[self._rank - 1]

    def _beta_cdf(self, misses: Any) -> Any:
        shape = beta_shape(misses, self.n)
        inside = special.betainc(shape[0], np.maximum(shape[1], 1), self.alpha / self.max_loss)
        return np.where(misses == self.n, 0.0, inside)

    def _checked(self, losses: ArrayLike) -> NDArray[np.float64]:
        array = check_losses("losses", losses, self.max_loss, ndim=(1, 2))
        if len(array) != self.n:
            raise ValueError(f"losses must have length n = {self.n}, got {len(array)}")
        if self.binary and not is_binary(array, self.max_loss):
            raise NotBinaryError(f"losses must be 0 or {self.max_loss:g} for a binary rule")
        return array


def check_draws(n_samples: int, beta: float, conservative: bool) -> int:
    """Rank of the draw that stands for the beta-quantile of the bound, if there is one.

    Parameters
    ----------
    n_samples : int
        Number of draws.
    beta : float
        Probability, in (0, 1).
    conservative : bool
        See :class:`RiskPosterior`.

    Returns
    -------
    int
        The rank, from 1.

    Raises
    ------
    ValueError
        If the draws are too few for ``beta``.

    Examples
    --------
    >>> check_draws(1_000, 0.95, conservative=False)
    950
    >>> check_draws(1_000, 0.9999, conservative=False)
    Traceback (most recent call last):
    ValueError: n_samples must be at least 10000 for a probability of 0.9999, got 1000
    """
    rank = order_rank(n_samples, beta, conservative)
    if rank > n_samples:
        least = math.log(1e-3) / math.log(beta) if conservative else (1 - 1e-9) / (1 - beta)
        raise ValueError(
            f"n_samples must be at least {math.ceil(least)} for a probability of {beta:.10g}, got {n_samples}"
        )
    return rank


def smallest_lambda(
    holds: Callable[[NDArray[np.float64]], bool],
    losses_at: Callable[[float], NDArray[np.float64]],
    candidates: NDArray[np.float64],
) -> float | None:
    """Least candidate at which a rule holds, if it holds at all larger ones too.

    Parameters
    ----------
    holds : callable
        The rule, from losses to a truth value.
    losses_at : callable
        Losses at a lambda, shape (n,).
    candidates : ndarray, shape (m,)
        Values of lambda, ascending.

    Returns
    -------
    float or None
        The least candidate, None if the rule does not hold even at the largest.

    Notes
    -----
    ``log2(m) + 1`` evaluations.

    Examples
    --------
    >>> scores = np.array([0.3, 0.1, 0.7, 0.5])
    >>> losses_at = lambda lam: (scores > lam) * 1.0
    >>> smallest_lambda(lambda losses: losses.mean() <= 0.3, losses_at, np.sort(scores))
    0.5
    """
    if not holds(losses_at(float(candidates[-1]))):
        return None
    low, high = -1, len(candidates) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if holds(losses_at(float(candidates[middle]))):
            high = middle
        else:
            low = middle
    return float(candidates[high])


def is_binary(losses: NDArray[np.float64], max_loss: float) -> bool:
    return bool(((losses == 0) | (losses == max_loss)).all())


def check_falls(
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    lam_before: float,
    lam_after: float,
    max_loss: float,
    name: str,
) -> None:
    rise = after - before
    if rise.max() > 1e-9 * max_loss:
        row = int(np.argmax(rise))
        raise ValueError(
            f"{name} must not grow with lambda, but in row {row} it goes from {before[row]:g} at lambda "
            f"{lam_before:g} to {after[row]:g} at {lam_after:g}; monotone=False admits such losses"
        )


def shared_level(method: str, beta: float, m: int) -> float:
    if method == "crc":
        raise ValueError("method 'crc' needs losses that fall with lambda: monotone must be True")
    return 1 - (1 - beta) / m


def posterior_of(rule: RiskRule, losses: NDArray[np.float64], random_state: RandomState) -> RiskPosterior:
    if rule.draws is not None:
        return RiskPosterior._with_draws(losses, rule.max_loss, rule.draws, rule.conservative)
    return RiskPosterior(
        losses,
        rule.max_loss,
        n_samples=rule.n_samples,
        conservative=rule.conservative,
        random_state=as_generator(random_state),
    )
