"""The bound ``L+`` of the expected loss: draws of the spacings, posterior, exact Beta case."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from theses.validation import as_generator, check_array, check_integer, check_real

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

__all__ = ["DirichletDraws", "RandomState", "RiskPosterior", "allowed_misses", "check_losses"]

RandomState: TypeAlias = "int | np.random.Generator | np.random.RandomState | None"

# Draws up to this size are kept; beyond it they are made anew, block by block, from the same seed.
_KEEP_BYTES = 64 * 2**20
# A block that fits the processor's cache is filled and used twice as fast as one that does not.
_BLOCK_ENTRIES = 2**17
# Losses are the output of a user's function: rounding may carry them this far (times max_loss) out of range.
_TOLERANCE = 1e-9
# Risk that the conservative order statistic lies below the quantile that it stands for.
_SLACK = 1e-3


def check_losses(name: str, losses: Any, max_loss: float, *, ndim: int | tuple[int, ...] = 1) -> NDArray[Any]:
    """Losses in ``[0, max_loss]``; what rounding carried out of it is put back.

    Parameters
    ----------
    name : str
        Parameter's name, for the error.
    losses : array-like
        What the caller gave.
    max_loss : float
        Largest possible loss.
    ndim : int or tuple of int, default=1
        Ranks that are allowed.

    Returns
    -------
    ndarray of float
        Losses.

    Raises
    ------
    ValueError
        If a loss is NaN, infinite, negative or over ``max_loss``, or there is none.

    Examples
    --------
    >>> check_losses("losses", [0.5, 2.0], 1.0)
    Traceback (most recent call last):
    ValueError: losses must lie in [0, max_loss] = [0, 1], got 2 at index (1,)
    """
    array = check_array(name, losses, ndim=ndim)
    slack = _TOLERANCE * max_loss
    low, high = array.min(), array.max()
    if low < -slack or high > max_loss + slack:
        where = np.unravel_index(np.argmin(array) if low < -slack else np.argmax(array), array.shape)
        raise ValueError(
            f"{name} must lie in [0, max_loss] = [0, {max_loss:g}], got {array[where]:g} "
            f"at index {tuple(int(i) for i in where)}"
        )
    return np.clip(array, 0.0, max_loss) if low < 0 or high > max_loss else array


def beta_shape(n_misses: Any, n: int) -> tuple[Any, Any]:
    """Shape of the Beta distribution of ``L+`` when ``n_misses`` of ``n`` losses are ``max_loss``, others 0.

    The weight of ``max_loss`` has its own spacing, hence one more than the misses.

    Examples
    --------
    >>> beta_shape(3, 100)
    (4, 97)
    """
    return n_misses + 1, n - n_misses


def order_rank(n_samples: int, q: float, conservative: bool) -> int:
    """Rank, from 1, of the order statistic that stands for the ``q``-quantile of the sampled ``L+``.

    Parameters
    ----------
    n_samples : int
        Number of draws S.
    q : float
        Level of the quantile.
    conservative : bool
        False: the empirical quantile, rank ``ceil(q S)``, for q up to ``1 - 1/S``: the largest draw stands
        for no quantile beyond. True: the least rank whose order statistic lies below the true quantile with
        probability at most 0.001; since the number of draws below that quantile is binomial, the least ``r``
        with ``P(Bin(S, q) >= r) <= 0.001``.

    Returns
    -------
    int
        The rank; ``n_samples + 1`` if no draw will do.

    Examples
    --------
    >>> order_rank(1000, 0.95, conservative=False), order_rank(1000, 0.95, conservative=True)
    (950, 971)
    >>> order_rank(1000, 0.9999, conservative=False)
    1001
    """
    if conservative:
        return int(stats.binom.ppf(1 - _SLACK, n_samples, q)) + 1
    if n_samples * (1 - q) < 1 - 1e-9:
        return n_samples + 1
    # 0.95 * 1000 must not be rounded up to 951 because 0.95 is a little more than 19/20.
    return min(max(math.ceil(q * n_samples - 1e-9 * n_samples), 1), n_samples)


def allowed_misses(n: int, alpha: float, beta: float = 0.95) -> int:
    r"""Largest number of misses among ``n`` with which the risk is below ``alpha`` with probability ``beta``.

    .. math:: k^* = \max\{k : P(\mathrm{Beta}(k + 1, n - k) \le \alpha) \ge \beta\}

    For losses 0 and 1 this is the whole method: lambda is the ``k*+1``-th largest calibration score, and
    ``k`` misses are allowed where the Clopper-Pearson upper bound of ``k`` of ``n`` is at most ``alpha``.

    Parameters
    ----------
    n : int
        Calibration cases.
    alpha : float
        Risk, in (0, 1).
    beta : float, default=0.95
        Probability, in (0, 1).

    Returns
    -------
    int
        The number; -1 if even no miss at all is not enough, so that ``n`` is too small.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    O(log n) evaluations of the regularised incomplete Beta function.

    Examples
    --------
    >>> allowed_misses(200, 0.1)
    12
    >>> allowed_misses(20, 0.1)
    -1

    References
    ----------
    Snell and Griffiths, ICML 2025: the bound of the paper, which for losses 0 and 1 has a Beta distribution.
    """
    n = check_integer("n", n, minimum=1)
    alpha = check_real("alpha", alpha, minimum=0, maximum=1, include=False)
    beta = check_real("beta", beta, minimum=0, maximum=1, include=False)

    def refused(k: int) -> bool:
        return bool(special.betainc(*beta_shape(k, n), alpha) < beta)

    return bisect.bisect_left(range(n), True, key=refused) - 1


def spacing_blocks(
    generator: np.random.Generator, n_samples: int, width: int
) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Unit exponentials of shape ``(n_samples, width)``, a few rows at a time.

    A row divided by its sum is a draw of Dirichlet(1, ..., 1): the spacings of ``width - 1`` uniform points.

    Parameters
    ----------
    generator : numpy.random.Generator
        Source; the numbers do not depend on the size of the blocks.
    n_samples, width : int
        Shape.

    Yields
    ------
    rows : slice
        Which rows.
    block : ndarray, shape (rows, width)
        The exponentials; overwritten by the next block.
    """
    n_rows = min(max(_BLOCK_ENTRIES // width, 1), n_samples)
    buffer = np.empty((n_rows, width))
    for start in range(0, n_samples, n_rows):
        rows = slice(start, min(start + n_rows, n_samples))
        block = buffer[: rows.stop - start]
        generator.standard_exponential(out=block)
        yield rows, block


class DirichletDraws:
    r"""Draws of the ``n + 1`` spacings, common to all loss vectors that they are applied to.

    .. math:: U \sim \mathrm{Dirichlet}(1, \ldots, 1), \qquad
              L^+ = \sum_{i=1}^{n} U_i \ell_i + U_{n+1} B

    For independent losses with a continuous distribution F, the spacings ``F(l_(i)) - F(l_(i-1))`` have this
    distribution whatever F is. It is exchangeable, so the losses need not be sorted; only the last weight has
    an owner of its own, the largest possible loss B. With the same draws for each lambda, and losses that
    fall with lambda, each draw of ``L+`` falls with lambda.

    Parameters
    ----------
    n : int
        Number of losses.
    n_samples : int, default=1_000
        Number of draws S.
    random_state : int, numpy Generator or RandomState, or None, default=None
        Source of the draws.

    Notes
    -----
    Up to 64 MB the draws are kept; a larger set is drawn anew, the same, at each call, in blocks of 1 MB.
    O(S n) a loss vector.

    Examples
    --------
    >>> draws = DirichletDraws(3, n_samples=2, random_state=0)
    >>> draws.weights.shape, draws.weights.sum(axis=1).round(12).tolist()
    ((2, 4), [1.0, 1.0])
    >>> bool((draws.bounds([0.1, 0.2, 0.3]) <= draws.bounds([0.2, 0.2, 0.3])).all())
    True

    References
    ----------
    Snell and Griffiths, ICML 2025: quantile spacings and the bound from the right-rectangle rule.
    """

    def __init__(self, n: int, n_samples: int = 1_000, random_state: RandomState = None) -> None:
        self.n = check_integer("n", n, minimum=1)
        self.n_samples = check_integer("n_samples", n_samples, minimum=1)
        self._seed = as_generator(random_state).integers(2**63, size=2)
        self._kept: NDArray[np.float64] | None = None
        if 8 * self.n_samples * (self.n + 1) <= _KEEP_BYTES:
            self._kept = self._draw()
            self._kept.flags.writeable = False

    @property
    def weights(self) -> NDArray[np.float64]:
        """The draws, shape ``(n_samples, n + 1)``; the last column belongs to the largest possible loss."""
        return self._draw() if self._kept is None else self._kept

    def bounds(self, losses: ArrayLike, max_loss: float = 1.0) -> NDArray[np.float64]:
        """Draws of ``L+`` for one or several loss vectors.

        Parameters
        ----------
        losses : array-like, shape (n,) or (n, m)
            Losses in ``[0, max_loss]``; a column for each lambda.
        max_loss : float, default=1.0
            Largest possible loss B.

        Returns
        -------
        ndarray, shape (n_samples,) or (n_samples, m)
            The draws.

        Raises
        ------
        ValueError
            If losses are out of range or not ``n``.
        """
        max_loss = check_real("max_loss", max_loss, minimum=0, include=False)
        array = check_losses("losses", losses, max_loss, ndim=(1, 2))
        if len(array) != self.n:
            raise ValueError(f"losses must have length n = {self.n}, got {len(array)}")
        return self._bounds(array, max_loss)

    def _bounds(self, losses: NDArray[np.float64], max_loss: float) -> NDArray[np.float64]:
        if self._kept is not None:
            own, last = self._kept[:, :-1], self._kept[:, -1] * max_loss
            # Row by row a product this small stays on one thread: a threaded one waits for busy cores.
            kept = np.vecdot(own, losses) + last if losses.ndim == 1 else own @ losses + last[:, None]
            return np.minimum(kept, max_loss, out=kept)  # weights add up to 1 but for rounding
        values = np.concatenate([losses, np.full((1, *losses.shape[1:]), max_loss)])
        bounds = np.empty((self.n_samples, *losses.shape[1:]))
        for rows, block in spacing_blocks(self._generator(), self.n_samples, self.n + 1):
            total = block.sum(axis=1)
            bounds[rows] = block @ values / (total if losses.ndim == 1 else total[:, None])
        return np.minimum(bounds, max_loss, out=bounds)

    def _draw(self) -> NDArray[np.float64]:
        weights = np.empty((self.n_samples, self.n + 1))
        for rows, block in spacing_blocks(self._generator(), self.n_samples, self.n + 1):
            np.divide(block, block.sum(axis=1, keepdims=True), out=weights[rows])
        return weights

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(self._seed)


class RiskPosterior:
    r"""Distribution of the bound ``L+`` of the expected loss, given calibration losses.

    .. math:: L^+ = \sum_{i=1}^{n} U_i \ell_i + U_{n+1} B, \qquad U \sim \mathrm{Dirichlet}(1, \ldots, 1)

    Given the spacings U, no quantile function through the observed losses has a larger expected loss, so
    ``L+`` bounds the risk whichever of them is true: ``P(risk <= x | losses) >= P(L+ <= x)``. It is a bound
    that needs no prior, not the posterior under one.

    Where the losses below ``B`` all have one value (as 0 and 1 do), ``L+`` is a scaled Beta variable;
    ``cdf`` and ``quantile`` are then exact, and its quantile is the Clopper-Pearson upper bound.

    Parameters
    ----------
    losses : array-like, shape (n,)
        Calibration losses in ``[0, max_loss]``, in any order.
    max_loss : float, default=1.0
        Largest possible loss B.
    n_samples : int, default=10_000
        Number of draws S.
    conservative : bool, default=False
        Whether ``cdf`` and ``quantile`` allow for the error of a finite number of draws: the quantile is then
        an order statistic that lies below the true one with probability at most 0.001, and ``cdf`` the
        matching lower confidence bound.
    random_state : int, numpy Generator or RandomState, or None, default=None
        Source of the draws.

    Attributes
    ----------
    n : int
        Number of losses.
    exact : bool
        Whether ``cdf`` and ``quantile`` need no draws.

    Raises
    ------
    ValueError
        If there is no loss, or one is NaN, negative or over ``max_loss``.

    Notes
    -----
    O(S n); equal losses are drawn together (their weights add up to a Gamma variable of integer shape), so
    with d distinct values O(n log n + S d). Memory O(n + S).

    Examples
    --------
    >>> posterior = RiskPosterior([1] * 3 + [0] * 97)
    >>> round(posterior.mean, 4), round(posterior.quantile(0.95), 4), round(posterior.prob_below(0.1), 4)
    (0.0396, 0.0757, 0.9922)
    >>> graded = RiskPosterior([0.0, 0.25, 0.5, 0.0, 0.1], random_state=0)
    >>> graded.samples.shape, round(graded.mean, 4)
    ((10000,), 0.3083)

    References
    ----------
    Snell and Griffiths: Conformal Prediction as Bayesian Quadrature, ICML 2025, theorem on the upper bound
    ``L+``. Clopper and Pearson (1934) for losses 0 and 1.
    """

    def __init__(
        self,
        losses: ArrayLike,
        max_loss: float = 1.0,
        *,
        n_samples: int = 10_000,
        conservative: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.max_loss = check_real("max_loss", max_loss, minimum=0, include=False)
        array = check_losses("losses", losses, self.max_loss)
        self.n = len(array)
        self.n_samples = check_integer("n_samples", n_samples, minimum=1)
        self.conservative = bool(conservative)
        self._values, self._counts = np.unique(np.append(array, self.max_loss), return_counts=True)
        self.exact = len(self._values) <= 2
        self._generator = as_generator(random_state)

    @classmethod
    def _with_draws(
        cls, losses: NDArray[np.float64], max_loss: float, draws: DirichletDraws, conservative: bool
    ) -> RiskPosterior:
        # The posterior that a choice of lambda by sampling went by, so that both say the same.
        posterior = cls(losses, max_loss, n_samples=draws.n_samples, conservative=conservative)
        posterior.exact = False
        posterior.__dict__["samples"] = draws._bounds(losses, max_loss)
        return posterior

    @cached_property
    def samples(self) -> NDArray[np.float64]:
        """Draws of ``L+``, shape ``(n_samples,)``; made when first asked for."""
        if self.exact:
            low, high = self._values[0], self._values[-1]
            if len(self._values) == 1:
                return np.full(self.n_samples, high)
            shape = beta_shape(int(self._counts[-1]) - 1, self.n)
            draws: NDArray[np.float64] = self._generator.beta(*shape, size=self.n_samples)
            return np.asarray(low + (high - low) * draws)
        return np.clip(self._sample(), self._values[0], self.max_loss)

    def _sample(self) -> NDArray[np.float64]:
        # A Gamma variable costs about six exponentials, so grouping pays where values repeat that often.
        grouped = 6 * len(self._values) <= self.n + 1
        values = self._values if grouped else np.repeat(self._values, self._counts)
        terms = np.column_stack([values, np.ones_like(values)])
        sums = np.empty((self.n_samples, 2))
        if grouped:
            n_rows = max(_BLOCK_ENTRIES // len(values), 1)
            for start in range(0, self.n_samples, n_rows):
                size = (min(n_rows, self.n_samples - start), len(values))
                sums[start : start + n_rows] = self._generator.standard_gamma(self._counts, size) @ terms
        else:
            for rows, block in spacing_blocks(self._generator, self.n_samples, len(values)):
                np.matmul(block, terms, out=sums[rows])
        ratio: NDArray[np.float64] = sums[:, 0] / sums[:, 1]
        return ratio

    @cached_property
    def _sorted(self) -> NDArray[np.float64]:
        return np.sort(self.samples)

    @property
    def mean(self) -> float:
        r"""Mean of ``L+``, exactly: :math:`(\sum_i \ell_i + B) / (n + 1)`, as in conformal risk control."""
        return float(self._values @ self._counts / (self.n + 1))

    def quantile(self, q: ArrayLike) -> Any:
        """Quantile of ``L+``: the risk is at most this with probability ``q`` or more.

        Parameters
        ----------
        q : float or array-like, shape (k,)
            Probabilities in (0, 1).

        Returns
        -------
        float or ndarray, shape (k,)
            Quantiles. Where ``n_samples`` draws are too few for ``q`` (without ``conservative=True``, where
            ``q`` is over ``1 - 1/n_samples``), ``max_loss``.

        Raises
        ------
        ValueError
            If ``q`` is not in (0, 1).
        """
        levels = check_array("q", q, ndim=(0, 1))
        if ((levels <= 0) | (levels >= 1)).any():
            raise ValueError(f"q must lie in (0, 1), got {q!r}")
        if self.exact:
            low = self._values[0]
            if len(self._values) == 1:
                result = np.full(levels.shape, low)
            else:
                shape = beta_shape(int(self._counts[-1]) - 1, self.n)
                result = low + (self.max_loss - low) * special.betaincinv(*shape, levels)
        else:
            draws = np.append(self._sorted, self.max_loss)
            ranks = [order_rank(self.n_samples, float(level), self.conservative) for level in levels.flat]
            result = draws[np.array(ranks) - 1].reshape(levels.shape)
        return result if levels.ndim else float(result)

    def cdf(self, x: ArrayLike) -> Any:
        """Probability that ``L+`` is at most ``x``; exact for losses 0 and 1.

        ``cdf(x) >= q`` where, and only where, ``quantile(q) <= x``, for each ``q`` that the draws suffice
        for.

        Parameters
        ----------
        x : float or array-like, shape (k,)
            Values of the risk.

        Returns
        -------
        float or ndarray, shape (k,)
            Probabilities.

        Raises
        ------
        ValueError
            If ``x`` is not finite.
        """
        points = check_array("x", x, ndim=(0, 1))
        if self.exact and len(self._values) == 2:
            low = self._values[0]
            shape = beta_shape(int(self._counts[-1]) - 1, self.n)
            inside = np.clip((points - low) / (self.max_loss - low), 0.0, 1.0)
            result = special.betainc(*shape, inside)
        elif self.exact:
            result = (points >= self.max_loss).astype(np.float64)
        else:
            below = np.searchsorted(self._sorted, points, side="right")
            if self.conservative:
                lower = special.betaincinv(np.maximum(below, 1), self.n_samples - below + 1, _SLACK)
                result = np.where(points >= self.max_loss, 1.0, np.where(below > 0, lower, 0.0))
            else:
                result = below / self.n_samples
        return result if points.ndim else float(result)

    def prob_below(self, alpha: ArrayLike) -> Any:
        """Probability that ``L+`` is at most ``alpha``, the same as ``cdf``; for the risk it is no less.

        Parameters
        ----------
        alpha : float or array-like, shape (k,)
            Values of the risk.

        Returns
        -------
        float or ndarray, shape (k,)
            Probabilities.
        """
        return self.cdf(check_array("alpha", alpha, ndim=(0, 1)))

    def to_dict(self) -> dict[str, Any]:
        """Summary as a plain mapping.

        Returns
        -------
        dict
            Number of losses, their mean, mean and quantiles of the bound, how they were found.
        """
        levels = (0.5, 0.9, 0.95, 0.99)
        return {
            "n": self.n,
            "max_loss": self.max_loss,
            "mean_loss": float((self._values @ self._counts - self.max_loss) / self.n),
            "mean": self.mean,
            "quantiles": {str(level): self.quantile(level) for level in levels},
            "exact": self.exact,
            "n_samples": self.n_samples,
            "conservative": self.conservative,
        }

    def summary(self) -> str:
        """Summary in words.

        Returns
        -------
        str
            Mean loss, mean and quantiles of the bound.
        """
        facts = self.to_dict()
        listed = ", ".join(f"{float(level):.0%} {value:.4g}" for level, value in facts["quantiles"].items())
        how = "exact (Beta)" if self.exact else f"{self.n_samples} draws"
        return (
            f"{self.n} losses with mean {facts['mean_loss']:.4g}; upper bound of the risk at deployment: "
            f"mean {self.mean:.4g}, quantiles {listed}; {how}"
        )

    def to_frame(self) -> pl.DataFrame:
        """Distribution function of the bound as a table.

        Returns
        -------
        polars.DataFrame, shape (201, 2)
            Columns ``risk`` and ``probability``.
        """
        import polars as pl

        low, high = self._values[0], self.max_loss
        if not self.exact:
            low, high = self._sorted[0], self._sorted[-1]
        elif len(self._values) == 2:
            low, high = self.quantile(1e-4), self.quantile(1 - 1e-4)
        risk = np.linspace(low, high, 201)
        return pl.DataFrame({"risk": risk, "probability": self.cdf(risk)})

    def plot(self) -> alt.Chart:
        """Chart of the distribution function.

        Returns
        -------
        altair.Chart
            The chart.

        Raises
        ------
        ImportError
            If altair is missing: it comes with the extra ``report``.
        """
        try:
            import altair as alt
        except ImportError:
            raise ImportError("plot needs altair: pip install 'theses[report]'") from None
        chart: alt.Chart = (
            alt.Chart(self.to_frame())
            .mark_line()
            .encode(
                x=alt.X("risk:Q", title="risk at deployment").scale(zero=False),
                y=alt.Y("probability:Q", title="probability that the bound is at most this"),
            )
        )
        return chart
