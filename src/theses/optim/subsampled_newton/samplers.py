"""Sampled rows and their weights: plain, debiased by a scalar, debiased row by row."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from theses.optim.subsampled_newton.leverage import (
    RandomState,
    check_rank,
    draw_rows,
    exact_scores,
    sketched_scores,
)
from theses.optim.subsampled_newton.rows import Penalty, RowMatrix, as_penalty, as_rows
from theses.validation import as_generator, check_choice, check_integer, check_real

__all__ = ["DEBIAS", "SCHEMES", "Debias", "InvalidDebiasError", "RowSampler", "Sketch"]

Debias = Literal["none", "scalar", "fine"]
DEBIAS = ("none", "scalar", "fine")
SCHEMES = (
    "uniform",
    "row_norm",
    "leverage",
    "ridge_leverage",
    "approx_leverage",
    "approx_ridge_leverage",
    "shrinkage",
)
_REDRAWS = 100


class InvalidDebiasError(ValueError):
    """A drawn row has ``m pi_i <= l_i``: the debiased weight would be infinite or negative."""


@dataclass(frozen=True)
class Sketch:
    """A sketch of A with m rows.

    Parameters
    ----------
    SA : ndarray, shape (m, d)
        Sketched rows, their weights included; ``SA.T @ SA`` stands for ``A'A``.
    rows : ndarray of int64, shape (m,), or None
        Which rows were drawn, if rows were.
    weights : ndarray, shape (m,)
        Weight of each row in ``SA.T @ SA``; for sketches that mix rows, what debiasing multiplies.
    debias : {"none", "scalar", "fine"}
        How the weights were debiased.

    Examples
    --------
    >>> sketch = RowSampler("uniform", m=2).fit(np.ones((4, 1)), C=1.0).sample(0)
    >>> sketch.weights.tolist(), (sketch.SA.T @ sketch.SA).round(6).tolist()
    ([2.0, 2.0], [[4.0]])
    """

    SA: NDArray[np.float64]
    rows: NDArray[np.int64] | None
    weights: NDArray[np.float64]
    debias: str

    def reweighted(self, weights: NDArray[np.float64], debias: str) -> Sketch:
        """The same draw with other weights.

        Parameters
        ----------
        weights : array-like, shape (m,)
            Positive and finite.
        debias : str
            What they are called.

        Returns
        -------
        Sketch
            Another sketch.

        Raises
        ------
        ValueError
            If a weight is missing, not finite or not positive.
        """
        weights = np.asarray(weights, dtype=np.float64)
        if weights.shape != self.weights.shape or not (np.isfinite(weights) & (weights > 0)).all():
            raise ValueError(
                f"weights must be positive and finite, of shape {self.weights.shape}, "
                f"got shape {weights.shape}"
            )
        factors = np.sqrt(weights / self.weights)
        return replace(self, SA=self.SA * factors[:, None], weights=weights, debias=debias)


class RowSampler:
    r"""Sampler of m rows with replacement, and the weights that make the sketched inverse unbiased.

    Row i is drawn with probability :math:`\pi_i` and enters :math:`(SA)^\top SA` with the weight

    .. math:: \frac{1}{m \pi_i} \text{ (none)}, \qquad
              \frac{1}{m \pi_i} \frac{m}{m - d_{\mathrm{eff}}} \text{ (scalar)}, \qquad
              \frac{1}{m \pi_i - \ell_i} \text{ (fine)}.

    Parameters
    ----------
    scheme : str, default="approx_ridge_leverage"
        Probabilities: ``uniform``; ``row_norm`` (squared norms); ``leverage`` (scores without C);
        ``ridge_leverage`` (scores given C); ``approx_leverage``, ``approx_ridge_leverage`` (the same, from a
        sketch, and these scores serve the weights, too); ``shrinkage``,
        :math:`\theta \ell_i / d_{\mathrm{eff}} + (1 - \theta) / n`.
    m : int, default=200
        Rows to draw.
    shrink : float, default=0.5
        :math:`\theta` of ``shrinkage``, in [0, 1].
    approx_eps : float, default=0.5
        Accuracy of approximate scores, see :func:`leverage_scores`.
    approx_sketch : {"count", "row_norm"}, default="count"
        Their sketch.
    approx_size : int or None, default=None
        Its rows.
    on_invalid : {"raise", "redraw", "scalar"}, default="raise"
        What happens where :math:`m \pi_i \le \ell_i` for a drawn row: an error, up to 100 further draws of
        the whole sketch (those that remain are a selection, so a little of the bias comes back), or
        the scalar.

    Attributes
    ----------
    probabilities_ : ndarray, shape (n,)
        Probabilities.
    leverage_ : ndarray, shape (n,)
        Scores given C, computed when first asked for.
    d_eff_ : float
        Their sum.
    rho_min_, rho_max_ : float
        Least and largest :math:`\ell_i / (\pi_i d_{\mathrm{eff}})`; both 1 for leverage sampling.

    Notes
    -----
    Fitting takes O(n d^2) where exact scores are asked for, else O(nnz) passes; a draw O(n + m d). The scores
    are those of all n rows given C, not of the sketch.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_t(3, size=(1000, 10))
    >>> sampler = RowSampler("ridge_leverage", m=100).fit(A, C=5.0)
    >>> round(sampler.rho_max_, 6), sampler.sample(rng, debias="fine").SA.shape
    (1.0, (100, 10))

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, Proposition 3.2 (fine) and Corollary 3.4 (scalar).
    """

    def __init__(
        self,
        scheme: str = "approx_ridge_leverage",
        m: int = 200,
        shrink: float = 0.5,
        approx_eps: float = 0.5,
        *,
        approx_sketch: Literal["count", "row_norm"] = "count",
        approx_size: int | None = None,
        on_invalid: Literal["raise", "redraw", "scalar"] = "raise",
    ) -> None:
        self.scheme = check_choice("scheme", scheme, SCHEMES)
        self.m = check_integer("m", m, minimum=1)
        self.shrink = check_real("shrink", shrink, minimum=0, maximum=1)
        self.approx_eps = check_real("approx_eps", approx_eps, minimum=0, maximum=1, include=False)
        self.approx_sketch = check_choice("approx_sketch", approx_sketch, ("count", "row_norm"))
        self.approx_size = approx_size
        self.on_invalid = check_choice("on_invalid", on_invalid, ("raise", "redraw", "scalar"))

    def fit(
        self,
        A: ArrayLike | sparse.csr_array | RowMatrix,
        C: float | ArrayLike = 0.0,
        random_state: RandomState = None,
    ) -> RowSampler:
        """Compute the probabilities.

        Parameters
        ----------
        A : array-like or sparse matrix, shape (n, d)
            Rows.
        C : float or array-like, shape (d, d), default=0.0
            Ridge, or a symmetric positive semi-definite matrix.
        random_state : int, numpy Generator or RandomState, or None, default=None
            Source of approximate scores.

        Returns
        -------
        RowSampler
            Itself.

        Raises
        ------
        ValueError
            If A or C is not as described.
        numpy.linalg.LinAlgError
            If A'A + C is singular.
        """
        self._rows = as_rows(A)
        self._penalty = as_penalty(C, self._rows.shape[1])
        check_rank(self._rows, self._penalty)
        self._leverage: NDArray[np.float64] | None = None
        self.probabilities_ = self._probabilities(as_generator(random_state))
        return self

    def _probabilities(self, rng: np.random.Generator) -> NDArray[np.float64]:
        rows, n = self._rows, self._rows.shape[0]

        def scores(penalty: Penalty) -> NDArray[np.float64]:
            if not self.scheme.startswith("approx"):
                return exact_scores(rows, penalty)
            return sketched_scores(
                rows,
                penalty,
                self.approx_eps,
                sketch=self.approx_sketch,
                sketch_size=self.approx_size,
                rng=rng,
            )

        if self.scheme == "uniform":
            return np.full(n, 1 / n)
        if self.scheme == "row_norm":
            chances = rows.squared_norms
        elif self.scheme.endswith("ridge_leverage"):
            chances = self._leverage = scores(self._penalty)
        elif self.scheme == "shrinkage":
            return self.shrink * self.leverage_ / self.d_eff_ + (1 - self.shrink) / n
        else:
            chances = scores(0.0)
            if self.scheme == "approx_leverage" and np.any(self._penalty):
                self._leverage = scores(self._penalty)
            elif not np.any(self._penalty):
                self._leverage = chances
        total = float(chances.sum())
        if total <= 0:
            raise ValueError(f"A must have a row that is not zero for scheme {self.scheme!r}")
        return np.asarray(chances / total)

    @property
    def leverage_(self) -> NDArray[np.float64]:
        """Leverage scores given C, shape (n,)."""
        if self._leverage is None:
            self._leverage = exact_scores(self._rows, self._penalty)
        return self._leverage

    @property
    def d_eff_(self) -> float:
        """Effective dimension: the sum of the scores."""
        return float(self.leverage_.sum())

    @property
    def rho_min_(self) -> float:
        """Least ratio of a row's share of leverage to its probability."""
        return float(self._ratios().min())

    @property
    def rho_max_(self) -> float:
        """Largest ratio of a row's share of leverage to its probability."""
        return float(self._ratios().max())

    def _ratios(self) -> NDArray[np.float64]:
        drawn = self.probabilities_ > 0
        return np.asarray(self.leverage_[drawn] / (self.probabilities_[drawn] * self.d_eff_))

    def moved(self, A: ArrayLike | sparse.csr_array | RowMatrix) -> RowSampler:
        """The sampler with its probabilities and scores over other rows, for a Hessian that moved a little.

        Parameters
        ----------
        A : array-like or sparse matrix, shape (n, d)
            Rows, as many as it was fitted to.

        Returns
        -------
        RowSampler
            Another sampler; its scores are those of the rows before.
        """
        rows = as_rows(A)
        if rows.shape != self._rows.shape:
            raise ValueError(f"A must have shape {self._rows.shape} as when fitted, got {rows.shape}")
        other = RowSampler(
            self.scheme,
            self.m,
            self.shrink,
            self.approx_eps,
            approx_sketch=self.approx_sketch,
            approx_size=self.approx_size,
            on_invalid=self.on_invalid,
        )
        other._rows, other._penalty = rows, self._penalty
        other._leverage, other.probabilities_ = self.leverage_, self.probabilities_
        return other

    def sample(self, random_state: RandomState = None, debias: Debias = "none") -> Sketch:
        """Draw m rows.

        Parameters
        ----------
        random_state : int, numpy Generator or RandomState, or None, default=None
            Source of the draw.
        debias : {"none", "scalar", "fine"}, default="none"
            Weights.

        Returns
        -------
        Sketch
            Rows, weights and ``SA``.

        Raises
        ------
        InvalidDebiasError
            If a drawn row has :math:`m \\pi_i \\le \\ell_i` and ``on_invalid`` is "raise", or no valid
            draw was found.
        ValueError
            If m is not above the effective dimension for "scalar".
        """
        check_choice("debias", debias, DEBIAS)
        rng = as_generator(random_state)
        for _ in range(_REDRAWS - 1 if debias == "fine" and self.on_invalid == "redraw" else 0):
            try:
                return self.reweight(self._draw(rng), debias)
            except InvalidDebiasError:
                continue
        return self.reweight(self._draw(rng), debias)

    def _draw(self, rng: np.random.Generator) -> Sketch:
        drawn = draw_rows(self.probabilities_, self.m, rng)
        weights = 1 / (self.m * self.probabilities_[drawn])
        return Sketch(self._rows.take(drawn) * np.sqrt(weights)[:, None], drawn, weights, "none")

    def reweight(self, sketch: Sketch, debias: Debias) -> Sketch:
        """The same draw with other weights.

        Parameters
        ----------
        sketch : Sketch
            A draw of this sampler.
        debias : {"none", "scalar", "fine"}
            Weights.

        Returns
        -------
        Sketch
            Another sketch.

        Raises
        ------
        InvalidDebiasError
            As for :meth:`sample`.
        ValueError
            As for :meth:`sample`.
        """
        check_choice("debias", debias, DEBIAS)
        if sketch.rows is None:
            raise ValueError("sketch must be a draw of rows, got one that mixes them")
        plain = 1 / (self.m * self.probabilities_[sketch.rows])
        if debias == "none":
            weights = plain
        elif debias == "scalar":
            weights = plain * scalar_factor(self.m, self.d_eff_)
        else:
            room = self.m * self.probabilities_[sketch.rows] - self.leverage_[sketch.rows]
            # At the level of rounding the weight is no number to build on.
            if (room <= 1e-12 * self.leverage_[sketch.rows]).any():
                if self.on_invalid == "scalar":
                    return self.reweight(sketch, "scalar")
                worst = int(sketch.rows[room.argmin()])
                reach, score = self.m * self.probabilities_[worst], self.leverage_[worst]
                raise InvalidDebiasError(
                    f"debias 'fine' needs m pi_i > l_i for every drawn row; row {worst} has {reach:.3g} and "
                    f"{score:.3g}: take a larger m, sample by leverage, or set on_invalid"
                )
            weights = 1 / room
        return sketch.reweighted(weights, debias)


def scalar_factor(m: int, d_eff: float) -> float:
    """``m / (m - d_eff)``, by which the sketched Gram matrix is multiplied.

    Parameters
    ----------
    m : int
        Rows of the sketch.
    d_eff : float
        Effective dimension.

    Returns
    -------
    float
        The factor.

    Raises
    ------
    ValueError
        If m is not above d_eff.

    Examples
    --------
    >>> scalar_factor(100, 20.0)
    1.25
    """
    if m <= d_eff:
        raise ValueError(
            f"m must be above the effective dimension to debias: need m > d_eff = {d_eff:.4g}, got {m}"
        )
    return m / (m - d_eff)


def check_debias(name: str, debias: Any, allowed: Collection[str]) -> None:
    """Refuse a mode that a sketch does not have."""
    if debias == "fine" and "fine" not in allowed:
        raise ValueError(f"debias 'fine' is for sampled rows; {name} mixes rows and has 'none' and 'scalar'")
    check_choice("debias", debias, allowed)
