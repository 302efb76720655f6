"""Sketches that mix rows: Hadamard, sparse (LESS) and Gaussian, with the scalar that debiases them."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from theses.optim.subsampled_newton.hadamard import fwht
from theses.optim.subsampled_newton.leverage import (
    RandomState,
    check_rank,
    draw_rows,
    exact_scores,
    sketched_scores,
)
from theses.optim.subsampled_newton.rows import RowMatrix, as_penalty, as_rows, factor
from theses.optim.subsampled_newton.samplers import Sketch, check_debias, scalar_factor
from theses.validation import as_generator, check_choice, check_integer

__all__ = ["LESS", "SRHT", "GaussianSketch"]

_MODES = ("none", "scalar")
_BLOCK = 1 << 22  # entries of a Gaussian matrix at a time


class _MixingSketch:
    """What the three share: the matrix, its effective dimension, and debiasing by a scalar."""

    m: int

    def fit(
        self,
        A: ArrayLike | sparse.csr_array | RowMatrix,
        C: float | ArrayLike = 0.0,
        random_state: RandomState = None,
    ) -> _MixingSketch:
        """Take the matrix.

        Parameters
        ----------
        A : array-like or sparse matrix, shape (n, d)
            Rows.
        C : float or array-like, shape (d, d), default=0.0
            Ridge, or a symmetric positive semi-definite matrix.
        random_state : int, numpy Generator or RandomState, or None, default=None
            Source of approximate scores, where the sketch uses them.

        Returns
        -------
        object
            Itself.

        Raises
        ------
        ValueError
            If A or C is not as described.
        """
        self._rows = as_rows(A)
        self._penalty = as_penalty(C, self._rows.shape[1])
        check_rank(self._rows, self._penalty)
        self._d_eff: float | None = None
        self._prepare(as_generator(random_state))
        return self

    def _prepare(self, rng: np.random.Generator) -> None:
        pass

    def _mix(self, rng: np.random.Generator) -> NDArray[np.float64]:
        raise NotImplementedError

    @property
    def d_eff_(self) -> float:
        """Effective dimension, computed from the Gram matrix when first asked for."""
        if self._d_eff is None:
            gram = self._rows.gram()
            lower = factor(
                gram, self._penalty, "A must have full column rank where C does not make up for it"
            )
            self._d_eff = float(np.trace(np.linalg.solve(lower @ lower.T, gram)))
        return self._d_eff

    @property
    def rho_min_(self) -> float:
        """1: after mixing, all rows have about the same leverage."""
        return 1.0

    @property
    def rho_max_(self) -> float:
        """1: after mixing, all rows have about the same leverage."""
        return 1.0

    def moved(self, A: ArrayLike | sparse.csr_array | RowMatrix) -> _MixingSketch:
        """The sketch of other rows with the effective dimension as it was.

        Parameters
        ----------
        A : array-like or sparse matrix, shape (n, d)
            Rows, as many as it was fitted to.

        Returns
        -------
        object
            Another sketch.
        """
        rows = as_rows(A)
        if rows.shape != self._rows.shape:
            raise ValueError(f"A must have shape {self._rows.shape} as when fitted, got {rows.shape}")
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._rows = rows
        return other

    def sample(self, random_state: RandomState = None, debias: Literal["none", "scalar"] = "none") -> Sketch:
        """Draw a sketch.

        Parameters
        ----------
        random_state : int, numpy Generator or RandomState, or None, default=None
            Source of the draw.
        debias : {"none", "scalar"}, default="none"
            Weights.

        Returns
        -------
        Sketch
            Without ``rows``.

        Raises
        ------
        ValueError
            If m is not above the effective dimension for "scalar".
        """
        check_debias(type(self).__name__, debias, _MODES)
        plain = Sketch(self._mix(as_generator(random_state)), None, np.full(self.m, 1 / self.m), "none")
        return self.reweight(plain, debias)

    def reweight(self, sketch: Sketch, debias: Literal["none", "scalar"]) -> Sketch:
        """The same draw with other weights.

        Parameters
        ----------
        sketch : Sketch
            A draw.
        debias : {"none", "scalar"}
            Weights.

        Returns
        -------
        Sketch
            Another sketch.
        """
        check_debias(type(self).__name__, debias, _MODES)
        factor_ = 1.0 if debias == "none" else scalar_factor(self.m, self.d_eff_)
        return sketch.reweighted(np.full(self.m, factor_ / self.m), debias)


class SRHT(_MixingSketch):
    r"""Sub-sampled randomised Hadamard transform: m rows, drawn uniformly, of a mixed matrix.

    .. math:: SA = \sqrt{\tfrac{n}{m}}\, P\, \tfrac{1}{\sqrt n} H_n D A

    with random signs D, A padded by zero rows to n, a power of two, and P a draw of rows with replacement.

    Parameters
    ----------
    m : int
        Rows of the sketch.

    Notes
    -----
    O(n d log n) a draw, see :func:`fwht`; nothing of size n x n or m x n.

    Examples
    --------
    >>> A = np.random.default_rng(0).standard_t(3, size=(1000, 5))
    >>> sketch = SRHT(100).fit(A).sample(0, debias="scalar")
    >>> sketch.SA.shape, round(100 * float(sketch.weights[0]), 3)
    ((100, 5), 1.053)

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, Corollary 3.7.
    """

    def __init__(self, m: int) -> None:
        self.m = check_integer("m", m, minimum=1)

    def _mix(self, rng: np.random.Generator) -> NDArray[np.float64]:
        n, d = self._rows.shape
        length = 1 << max(n - 1, 0).bit_length()
        padded = np.zeros((length, d))
        signs = rng.choice(np.array([-1.0, 1.0]), size=n)
        padded[:n] = self._rows.dense() * signs[:, None]
        return fwht(padded)[rng.integers(length, size=self.m)] * math.sqrt(length / self.m)


class LESS(_MixingSketch):
    r"""Leverage-score sparsified embedding: each row of the sketch adds up s rows of A with random signs.

    .. math:: (SA)_t = \frac{1}{\sqrt{m s}} \sum_{j=1}^{s} \frac{r_{tj}}{\sqrt{\pi_{i_{tj}}}}\, a_{i_{tj}}

    Parameters
    ----------
    m : int
        Rows of the sketch.
    s : int
        Rows of A in each of them.
    scheme : {"leverage", "approx", "uniform"}, default="leverage"
        Probabilities: exact scores given C, approximate ones, or all equal (LESS-uniform).
    approx_eps : float, default=0.5
        Accuracy of approximate scores, see :func:`leverage_scores`.
    approx_sketch : {"count", "row_norm"}, default="count"
        Their sketch.
    approx_size : int or None, default=None
        Its rows.

    Notes
    -----
    O(m s d) a draw beside the scores; the sketching matrix is sparse with m s entries.

    Examples
    --------
    >>> A = np.random.default_rng(0).standard_t(3, size=(1000, 5))
    >>> LESS(100, s=4).fit(A).sample(0).SA.shape
    (100, 5)

    References
    ----------
    Derezinski, Liao, Dobriban and Mahoney, COLT 2021; Derezinski, Lacotte, Pilanci and Mahoney: Newton-LESS,
    NeurIPS 2021. Niu, Liao, Ling and Mahoney, ICML 2025, compare with it.
    """

    def __init__(
        self,
        m: int,
        s: int,
        *,
        scheme: Literal["leverage", "approx", "uniform"] = "leverage",
        approx_eps: float = 0.5,
        approx_sketch: Literal["count", "row_norm"] = "count",
        approx_size: int | None = None,
    ) -> None:
        self.m = check_integer("m", m, minimum=1)
        self.s = check_integer("s", s, minimum=1)
        self.scheme = check_choice("scheme", scheme, ("leverage", "approx", "uniform"))
        self.approx_eps, self.approx_sketch, self.approx_size = approx_eps, approx_sketch, approx_size

    def _prepare(self, rng: np.random.Generator) -> None:
        n = self._rows.shape[0]
        if self.scheme == "uniform":
            self._chances = np.full(n, 1 / n)
            return
        if self.scheme == "leverage":
            scores = exact_scores(self._rows, self._penalty)
        else:
            scores = sketched_scores(
                self._rows,
                self._penalty,
                self.approx_eps,
                sketch=self.approx_sketch,
                sketch_size=self.approx_size,
                rng=rng,
            )
        self._d_eff = float(scores.sum())
        self._chances = scores / self._d_eff

    def _mix(self, rng: np.random.Generator) -> NDArray[np.float64]:
        n = self._rows.shape[0]
        drawn = draw_rows(self._chances, self.m * self.s, rng)
        signs = rng.choice(np.array([-1.0, 1.0]), size=drawn.size)
        entries = signs / np.sqrt(self.m * self.s * self._chances[drawn])
        starts = np.arange(0, drawn.size + 1, self.s)
        return self._rows.left(sparse.csr_array((entries, drawn, starts), shape=(self.m, n)))


class GaussianSketch(_MixingSketch):
    r"""Gaussian sketch, the dense yardstick: :math:`SA = G A / \sqrt m` with standard normal G.

    Parameters
    ----------
    m : int
        Rows of the sketch.

    Notes
    -----
    O(m n d) a draw: no cheaper than ``A'A`` itself where m > d. G is drawn in blocks of 32 MB.

    Examples
    --------
    >>> A = np.random.default_rng(0).standard_t(3, size=(1000, 5))
    >>> GaussianSketch(100).fit(A, C=1.0).sample(0, debias="scalar").SA.shape
    (100, 5)

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, introduction; Pilanci and Wainwright: Newton sketch, 2017.
    """

    def __init__(self, m: int) -> None:
        self.m = check_integer("m", m, minimum=1)

    def _mix(self, rng: np.random.Generator) -> NDArray[np.float64]:
        n, d = self._rows.shape
        sketched = np.zeros((self.m, d))
        width = max(1, _BLOCK // self.m)
        for start in range(0, n, width):
            block = np.arange(start, min(start + width, n))
            sketched += rng.standard_normal((self.m, len(block))) @ self._rows.take(block)
        return sketched / math.sqrt(self.m)
