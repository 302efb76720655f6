"""What is gained by not waiting, from the inner counts of a short pilot."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from theses.validation import check_array, check_real

__all__ = ["SpeedupReport", "expected_speedup"]


@dataclass(frozen=True)
class SpeedupReport:
    """Expected gain of a state machine over vmapped chains that wait for each other.

    Parameters
    ----------
    n_draws, n_chains : int
        Size of the pilot.
    mean_count, max_count : float
        Mean and largest inner count of a draw.
    ratio : float
        ``R(m)``, the ratio of iterations to which long runs tend.
    standard_error : float
        Of ``ratio``, over the draws of the pilot.
    step_cost_ratio : float
        Cost of one bundled step over that of one inner iteration.
    gain : float
        ``R(m) / step_cost_ratio``, the expected ratio of times.
    largest_gain : float
        ``max N / (step_cost_ratio E[N])``, over which no number of chains gets by what the pilot saw.
    waiting_iterations, machine_steps : int
        ``sum_i max_j N_ij`` and ``max_j sum_i N_ij`` of the pilot itself, whose ratio a short run of its own
        length has.

    Examples
    --------
    >>> expected_speedup([[1, 4], [3, 2], [2, 3], [4, 1]]).verdict
    'gain'
    """

    n_draws: int
    n_chains: int
    mean_count: float
    max_count: float
    ratio: float
    standard_error: float
    step_cost_ratio: float
    gain: float
    largest_gain: float
    waiting_iterations: int
    machine_steps: int

    @property
    def verdict(self) -> str:
        """One of "gain", "no gain" and "undecided" (1 is within two standard errors of the gain)."""
        error = 2 * self.standard_error / self.step_cost_ratio
        if self.gain - error > 1:
            return "gain"
        return "undecided" if self.gain + error > 1 and error else "no gain"

    def summary(self) -> str:
        """One sentence: R(m) with its error, the gain and the verdict.

        Returns
        -------
        str
            For a reader.
        """
        return (
            f"{self.verdict}: R({self.n_chains}) = {self.ratio:.2f} +- {self.standard_error:.2f} times fewer "
            f"iterations, {self.gain:.2f} times less time where a step costs {self.step_cost_ratio:g} "
            "iterations"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain mapping of all numbers and the verdict.

        Returns
        -------
        dict
            Fields by their names, and ``verdict``.
        """
        return {**asdict(self), "verdict": self.verdict}

    def to_frame(self) -> pl.DataFrame:
        """The same as a table of one row.

        Returns
        -------
        polars.DataFrame
            One column a number.
        """
        return pl.DataFrame([self.to_dict()])


def expected_speedup(inner_counts: Any, *, step_cost_ratio: float = 1.0) -> SpeedupReport:
    r"""Expected gain of a state machine, from the inner counts of a short pilot.

    Vectorised chains that wait make :math:`\sum_i \max_j N_{ij}` iterations, a machine makes
    :math:`\max_j \sum_i N_{ij}` steps. For stationary independent chains the ratio tends to

    .. math:: R(m) = E[\max_{j \le m} N_j] / E[N], \qquad \hat R(m) =
        \mathrm{mean}_i \max_j N_{ij} / \mathrm{mean}_{ij} N_{ij},

    and the ratio of times to ``R(m) / a``, where ``a`` is the cost of a step over that of an iteration. A
    kernel of fixed length has ``R(m) = 1``: nothing to gain.

    Parameters
    ----------
    inner_counts : array of int of shape (n_draws, n_chains)
        Iterations of the inner loop, such as ``Trace.inner_counts``, or ``info.num_integration_steps`` and
        ``info.subiter`` of BlackJAX.
    step_cost_ratio : float, default=1.0
        ``a``: near 1 where the density dominates and is amortised, up to the number of blocks otherwise.

    Returns
    -------
    SpeedupReport
        ``R(m)``, gain and verdict.

    Raises
    ------
    TypeError, ValueError
        If ``inner_counts`` is no matrix of counts with a positive mean, or ``step_cost_ratio`` is not
        positive.

    References
    ----------
    arXiv 2503.17405, model of the obtainable speed-up R(m).

    Examples
    --------
    >>> report = expected_speedup([[1, 4], [3, 2], [2, 3]])
    >>> round(report.ratio, 3), report.waiting_iterations, report.machine_steps
    (1.333, 10, 9)
    >>> expected_speedup([[7, 7], [7, 7]]).verdict
    'no gain'
    """
    counts = check_array("inner_counts", inner_counts, ndim=2, dtype=None)
    if counts.dtype.kind not in "iu":
        raise TypeError(f"inner_counts must hold integers, got {counts.dtype}")
    if counts.min() < 0 or not counts.any():
        raise ValueError("inner_counts must be counts of which some are positive")
    cost = check_real("step_cost_ratio", step_cost_ratio, minimum=0, include=False)
    n, m = counts.shape
    largest = counts.max(axis=1)
    mean = float(counts.mean())
    ratio = float(largest.mean()) / mean
    # Draws as replicates of a ratio of means, by its linearisation.
    residuals = largest - ratio * counts.mean(axis=1)
    error = float(np.std(residuals, ddof=1)) / (mean * math.sqrt(n)) if n > 1 else 0.0
    return SpeedupReport(
        n_draws=n,
        n_chains=m,
        mean_count=mean,
        max_count=float(counts.max()),
        ratio=ratio,
        standard_error=error,
        step_cost_ratio=cost,
        gain=ratio / cost,
        largest_gain=float(counts.max()) / (mean * cost),
        waiting_iterations=int(largest.sum()),
        machine_steps=int(counts.sum(axis=0).max()),
    )
