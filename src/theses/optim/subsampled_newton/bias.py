"""Bias of sketched inverses, measured without the noise of the draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse

from theses.optim.subsampled_newton.inverses import Sampler
from theses.optim.subsampled_newton.leverage import SINGULAR, RandomState
from theses.optim.subsampled_newton.rows import add_penalty, as_penalty, as_rows, factor
from theses.optim.subsampled_newton.samplers import DEBIAS, InvalidDebiasError
from theses.validation import as_generator, check_choice, check_integer

if TYPE_CHECKING:
    import polars as pl

__all__ = ["BiasReport", "compare_debiasing", "inversion_bias"]

_BLOCKS = 10


@dataclass(frozen=True)
class BiasReport:
    """Bias of a sketched inverse.

    Parameters
    ----------
    debias : str
        Weights.
    bias : float
        ``sqrt(max(tr(M_1 M_2') / d, 0))`` with M the mean of ``L' Q L - I`` over a half of the draws: two
        independent halves, so that the noise of the draws does not count as bias.
    spectral : float
        Largest singular value of the mean over all draws, noise included.
    trace_bias : float
        Its trace over d: positive where the inverse is too large.
    mc_error : float
        Standard error of ``bias``, by a jackknife over ten blocks.
    invalid_draws : int
        Draws for which fine weights do not exist; the rest are averaged.
    n_rep : int
        All draws.

    Examples
    --------
    >>> print(BiasReport("fine", 0.002, 0.02, 0.001, 0.0005, 0, 3000).summary())
    fine: bias 0.00200 +- 0.0005 over 3000 draws
    """

    debias: str
    bias: float
    spectral: float
    trace_bias: float
    mc_error: float
    invalid_draws: int
    n_rep: int

    def summary(self) -> str:
        """One line.

        Returns
        -------
        str
            Bias, its error, and invalid draws if there are any.
        """
        invalid = f", {self.invalid_draws} of them invalid" if self.invalid_draws else ""
        return f"{self.debias}: bias {self.bias:.5f} +- {self.mc_error:.1g} over {self.n_rep} draws{invalid}"

    def to_dict(self) -> dict[str, Any]:
        """Plain mapping.

        Returns
        -------
        dict
            All fields.
        """
        return asdict(self)

    def to_frame(self) -> pl.DataFrame:
        """Table of one row.

        Returns
        -------
        polars.DataFrame
            A column for each field.
        """
        import polars as pl

        return pl.DataFrame([self.to_dict()])


def inversion_bias(
    A: ArrayLike | sparse.csr_array,
    C: float | ArrayLike,
    sampler: Sampler,
    debias: Literal["none", "scalar", "fine"] = "fine",
    n_rep: int = 1_000,
    random_state: RandomState = None,
) -> BiasReport:
    r"""Bias of a sketched inverse, from many draws.

    With :math:`L L^\top = A^\top A + C`, two halves of the draws give
    :math:`M_k = L^\top \bar Q_k L - I`, and

    .. math:: \mathrm{bias} = \sqrt{\max\big(\operatorname{tr}(M_1 M_2^\top), 0\big) / d}.

    Parameters
    ----------
    A : array-like or sparse matrix, shape (n, d)
        Rows.
    C : float or array-like, shape (d, d)
        Ridge, or a symmetric positive semi-definite matrix.
    sampler : RowSampler, SRHT, LESS or GaussianSketch
        Is fitted here.
    debias : {"none", "scalar", "fine"}, default="fine"
        Weights.
    n_rep : int, default=1_000
        Draws, at least 4.
    random_state : int, numpy Generator or RandomState, or None, default=None
        Source of the draws.

    Returns
    -------
    BiasReport
        Bias and what surrounds it.

    Raises
    ------
    InvalidDebiasError
        If less than two draws of a half have fine weights.
    ValueError
        If input is not as described.

    Notes
    -----
    ``n_rep`` times O(m d^2 + d^3) beside the draws themselves.

    Examples
    --------
    >>> from theses.optim.subsampled_newton import RowSampler
    >>> A = np.random.default_rng(0).standard_t(3, size=(500, 5))
    >>> report = inversion_bias(A, 1.0, RowSampler("ridge_leverage", m=50), "none", 200, random_state=0)
    >>> 0.05 < report.bias < 0.2
    True

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, definition of the inversion bias and Figure 1.
    """
    check_choice("debias", debias, DEBIAS)
    return compare_debiasing(A, C, sampler, (debias,), n_rep, random_state)[debias]


def compare_debiasing(
    A: ArrayLike | sparse.csr_array,
    C: float | ArrayLike,
    sampler: Sampler,
    modes: Sequence[str] = DEBIAS,
    n_rep: int = 1_000,
    random_state: RandomState = None,
) -> dict[str, BiasReport]:
    """Bias under several weights of the same draws.

    Parameters
    ----------
    A : array-like or sparse matrix, shape (n, d)
        Rows.
    C : float or array-like, shape (d, d)
        Ridge, or a symmetric positive semi-definite matrix.
    sampler : RowSampler, SRHT, LESS or GaussianSketch
        Is fitted here.
    modes : sequence of str, default=("none", "scalar", "fine")
        Weights; a sketch that mixes rows has no "fine".
    n_rep : int, default=1_000
        Draws, at least 4.
    random_state : int, numpy Generator or RandomState, or None, default=None
        Source of the draws.

    Returns
    -------
    dict of str to BiasReport
        By mode. Its ratios are far more exact than from separate draws.

    Raises
    ------
    InvalidDebiasError
        If less than two draws of a half have fine weights.
    ValueError
        If input is not as described.

    Examples
    --------
    >>> from theses.optim.subsampled_newton import RowSampler
    >>> A = np.random.default_rng(0).standard_t(3, size=(500, 5))
    >>> reports = compare_debiasing(A, 1.0, RowSampler("shrinkage", m=50), n_rep=200, random_state=0)
    >>> reports["fine"].bias < reports["none"].bias
    True

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, Figures 1 and 4.
    """
    n_rep = check_integer("n_rep", n_rep, minimum=4)
    for mode in modes:
        check_choice("modes", mode, DEBIAS)
    rows = as_rows(A)
    d = rows.shape[1]
    penalty = as_penalty(C, d)
    rng = as_generator(random_state)
    sampler.fit(rows, penalty, rng)
    lower = factor(rows.gram(), penalty, SINGULAR)
    # In the coordinates in which A'A + C is the identity, L'QL is a plain inverse.
    whiten = linalg.solve_triangular(lower, np.eye(d), lower=True)
    core = whiten @ add_penalty(np.zeros((d, d)), penalty) @ whiten.T
    half = n_rep // 2
    sums = {mode: np.zeros((2 * _BLOCKS, d, d)) for mode in modes}
    counts = {mode: np.zeros(2 * _BLOCKS) for mode in modes}
    for draw in range(2 * half):
        block = min(draw % half * _BLOCKS // half, _BLOCKS - 1) + (draw // half) * _BLOCKS
        plain = sampler.sample(rng)
        for mode in modes:
            try:
                sketch = sampler.reweight(plain, mode)
            except InvalidDebiasError:
                continue
            SB = sketch.SA @ whiten.T
            sums[mode][block] += _inverse(SB.T @ SB + core)
            counts[mode][block] += 1
    return {mode: _report(mode, sums[mode], counts[mode], 2 * half) for mode in modes}


def _inverse(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    try:
        return np.asarray(np.linalg.inv(gram))
    except np.linalg.LinAlgError:
        raise np.linalg.LinAlgError("the sketch is rank-deficient; m must be larger, or C positive") from None


def _report(mode: str, sums: NDArray[np.float64], counts: NDArray[np.float64], n_rep: int) -> BiasReport:
    d = sums.shape[1]
    identity = np.eye(d)
    halves = slice(None, _BLOCKS), slice(_BLOCKS, None)
    if min(counts[half].sum() for half in halves) < 2:
        raise InvalidDebiasError(
            f"debias 'fine' needs m pi_i > l_i for every drawn row, which held in {counts.sum():.0f} of "
            f"{n_rep} draws: take a larger m, or sample by leverage"
        )

    def product(left_out: int | None) -> float:
        means = []
        for half in halves:
            total, count = sums[half].sum(0), counts[half].sum()
            if left_out is not None:
                total, count = total - sums[half][left_out], count - counts[half][left_out]
            if count == 0:
                return float("nan")
            means.append(total / count - identity)
        return float((means[0] * means[1]).sum() / d)

    squared = product(None)
    deleted = np.array([product(block) for block in range(_BLOCKS)])
    deleted = deleted[np.isfinite(deleted)]
    error = float(np.sqrt((len(deleted) - 1) / len(deleted) * ((deleted - deleted.mean()) ** 2).sum()))
    bias = float(np.sqrt(max(squared, 0.0)))
    mean = sums.sum(0) / counts.sum() - identity
    return BiasReport(
        debias=mode,
        bias=bias,
        spectral=float(np.linalg.norm(mean, 2)),
        trace_bias=float(np.trace(mean) / d),
        # The square root's slope where there is a bias to speak of, its value where there is none.
        mc_error=min(float(np.sqrt(error)), error / (2 * bias) if bias else np.inf),
        invalid_draws=int(n_rep - counts.sum()),
        n_rep=n_rep,
    )
