"""Count vectors: in a symmetric game it only matters how many of the others choose each action.

``n - 1`` opponents with ``A`` actions have ``C(n + A - 2, A - 1)`` count vectors, against ``A ** (n - 1)``
profiles of actions: 465 against 7e13 for thirty players with three actions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from theses.validation import check_array

__all__ = ["CountTable", "check_strategy", "count_vectors", "draw_actions", "n_count_vectors"]

_SUM_TOLERANCE = 1e-8
# Stands for the logarithm of zero: finite, so that 0 * log(0) is 0, and its exponential is nothing.
_TINY = 1e-300


def n_count_vectors(n_others: int, n_actions: int) -> int:
    """Number of ways in which ``n_others`` players can spread over ``n_actions`` actions."""
    return math.comb(n_others + n_actions - 1, n_actions - 1)


def count_vectors(n_others: int, n_actions: int) -> NDArray[np.int64]:
    """All count vectors, the last action's count varying slowest; ``(n_vectors, n_actions)``."""
    vectors = np.zeros((1, 0), dtype=np.int64)
    left = np.array([n_others])
    for _ in range(n_actions - 1):
        # A vector with r players left goes on with 0, 1, ..., r of them on the next action.
        repeats = left + 1
        starts = np.repeat(np.cumsum(repeats) - repeats, repeats)
        taken = np.arange(len(starts)) - starts
        vectors = np.column_stack([np.repeat(vectors, repeats, axis=0), taken])
        left = np.repeat(left, repeats) - taken
    return np.ascontiguousarray(np.column_stack([vectors, left])[:, ::-1])


@dataclass(frozen=True)
class CountTable:
    """Count vectors of the opponents with their multinomial coefficients, and how to find a vector's row.

    Parameters
    ----------
    vectors : ndarray of float64, shape (n_vectors, n_actions)
        The count vectors, as floats for products with logarithms.
    log_coefficients : ndarray of float64, shape (n_vectors,)
        Logarithms of the multinomial coefficients.
    ranks : ndarray of int64, shape (n_others * n_actions,)
        Summand of the row number for each place in the sorted actions and each action.
    offsets : ndarray of int64, shape (n_others,)
        Where each place starts in ``ranks``.
    """

    vectors: NDArray[np.float64]
    log_coefficients: NDArray[np.float64]
    ranks: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @classmethod
    @cache
    def make(cls, n_others: int, n_actions: int) -> CountTable:
        """Table for a number of opponents and of actions; made once."""
        vectors = count_vectors(n_others, n_actions).astype(np.float64)
        log_coefficients = math.lgamma(n_others + 1) - special.gammaln(vectors + 1).sum(axis=1)
        # The combinatorial number system: sorted actions s_0 <= s_1 <= ... stand in row
        # sum_j C(s_j + j, j + 1).
        ranks = np.array(
            [math.comb(a + j, j + 1) for j in range(n_others) for a in range(n_actions)], dtype=np.int64
        )
        return cls(vectors, log_coefficients, ranks, n_actions * np.arange(n_others))

    def rows(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row of the opponents' actions ``(..., n_others)``."""
        found: NDArray[np.int64] = self.ranks[np.sort(actions, axis=-1) + self.offsets].sum(axis=-1)
        return found

    def probabilities(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Multinomial probability of each vector when all draw from ``y`` ``(..., n_actions)``.

        In log space: thirty players' coefficients and powers leave the range in which a product of the two
        is exact.
        """
        log_y = np.log(np.maximum(y, _TINY))
        weights: NDArray[np.float64] = np.exp(log_y @ self.vectors.T + self.log_coefficients)
        return weights


def check_strategy(
    name: str, value: object, n_actions: int | None = None, *, ndim: int | tuple[int, ...] = 1
) -> NDArray[np.float64]:
    """Mixed strategy, or rows of them: no negative entry, sums of 1 up to 1e-8.

    Raises
    ------
    ValueError
        If it is none.
    """
    strategy = check_array(name, value, ndim=ndim)
    if n_actions is not None and strategy.shape[-1] != n_actions:
        raise ValueError(f"{name} must have {n_actions} probabilities, got shape {strategy.shape}")
    if (strategy < 0).any():
        raise ValueError(f"{name} must hold probabilities, got {strategy.min()}")
    sums = strategy.sum(axis=-1)
    if (np.abs(sums - 1) > _SUM_TOLERANCE).any():
        wrong = float(np.ravel(sums)[np.argmax(np.abs(sums - 1))])
        raise ValueError(f"{name} must sum to 1, got a sum of {wrong}")
    return strategy


def draw_actions(uniforms: NDArray[np.float64], strategies: NDArray[np.float64]) -> NDArray[np.int64]:
    """Actions by inversion: ``uniforms`` ``(...)`` against ``strategies`` ``(..., n_actions)``."""
    steps = np.cumsum(strategies[..., :-1], axis=-1)
    actions: NDArray[np.int64] = (uniforms[..., None] >= steps).sum(axis=-1)
    return actions
