"""Models with an unknown rate that has a Gamma prior: exponential, Gamma, Poisson."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import digamma

from theses.decision.bayesian_ambiguity.models.base import Array, ConjugateModel, Params, check_counts
from theses.validation import check_real

__all__ = ["GammaExponential", "GammaPoisson", "GammaWithKnownShape"]


class _GammaRate(ConjugateModel):
    """Families with a rate that has a Gamma prior."""

    names = ("rate",)
    ranks = (0,)
    alpha0: float
    beta0: float
    alpha_n: float
    beta_n: float

    def _set_prior(self, alpha0: float, beta0: float) -> None:
        self.alpha0 = self.alpha_n = check_real("alpha0", alpha0, minimum=0, include=False)
        self.beta0 = self.beta_n = check_real("beta0", beta0, minimum=0, include=False)

    def _sample_posterior(self, n: int, generator: np.random.Generator) -> Params:
        draws = generator.gamma(self.alpha_n, size=n) / self.beta_n
        return (np.maximum(draws, np.finfo(float).tiny),)


class GammaWithKnownShape(_GammaRate):
    r"""Gamma observations of known shape k and unknown rate.

    :math:`\theta \sim Gamma(\alpha_n, \beta_n)`; then :math:`\bar P = Gamma(k, \alpha_n/\beta_n)` and
    :math:`G = k(\log\alpha_n - \psi(\alpha_n))`.

    Parameters
    ----------
    shape : float
        Shape of an observation.
    alpha0, beta0 : float, default=1.0
        Shape and rate of the prior of the rate.

    References
    ----------
    arXiv:2411.16829, Section 3, Table of conjugate models.

    Examples
    --------
    >>> model = GammaWithKnownShape(2, 1, 1).fit([1.0, 3.0])
    >>> model.eta_bar().to_dict(), round(model.G(), 4)
    ({'rate': 1.0}, 0.2066)
    """

    heavy_predictive = True

    def __init__(self, shape: float, alpha0: float = 1.0, beta0: float = 1.0) -> None:
        self.shape = check_real("shape", shape, minimum=0, include=False)
        self._set_prior(alpha0, beta0)

    def _least_radius(self) -> float:
        return float(self.shape * (np.log(self.alpha_n) - digamma(self.alpha_n)))

    def _check_support(self, rows: Array) -> None:
        if (rows < 0).any():
            raise ValueError(f"data must not be negative for {type(self).__name__}, got {rows.min()}")

    def _prior(self) -> ConjugateModel:
        return GammaWithKnownShape(self.shape, self.alpha0, self.beta0)

    def _update(self, rows: Array) -> None:
        self.alpha_n = self.alpha0 + self.shape * len(rows)
        self.beta_n = self.beta0 + float(rows.sum())

    def _eta_bar(self) -> tuple[Any, ...]:
        return (self.alpha_n / self.beta_n,)

    def _draw(self, params: Params, n: int, generator: np.random.Generator) -> Array:
        (rate,) = params
        return np.asarray(generator.gamma(self.shape, size=(len(rate), n, 1)) / rate[:, None, None])

    def _kl(self, q: Params, p: Params) -> Any:
        ratio = p[0] / q[0]
        return self.shape * (ratio - 1 - np.log(ratio))


class GammaExponential(GammaWithKnownShape):
    r"""Exponential observations of unknown rate.

    :math:`\theta \sim Gamma(\alpha_n, \beta_n)`; then :math:`\bar P = Exp(\alpha_n/\beta_n)` and
    :math:`G = \log\alpha_n - \psi(\alpha_n)`.

    Parameters
    ----------
    alpha0, beta0 : float, default=1.0
        Shape and rate of the prior of the rate.

    References
    ----------
    arXiv:2411.16829, Section 3, example of the exponential model.

    Examples
    --------
    >>> model = GammaExponential(1, 1).fit([1.0, 2.0])
    >>> model.eta_bar().to_dict(), round(model.G(), 4)
    ({'rate': 0.75}, 0.1758)
    """

    def __init__(self, alpha0: float = 1.0, beta0: float = 1.0) -> None:
        super().__init__(1.0, alpha0, beta0)

    def _prior(self) -> ConjugateModel:
        return GammaExponential(self.alpha0, self.beta0)


class GammaPoisson(_GammaRate):
    r"""Counts of unknown rate.

    :math:`\theta \sim Gamma(\alpha_n, \beta_n)`; the natural parameter is :math:`\log\theta`, so that
    :math:`\bar P = Poisson(e^{\psi(\alpha_n)}/\beta_n)` and
    :math:`G = (\alpha_n - e^{\psi(\alpha_n)})/\beta_n`.

    Parameters
    ----------
    alpha0, beta0 : float, default=1.0
        Shape and rate of the prior of the rate.

    References
    ----------
    arXiv:2411.16829, Section 3, Table of conjugate models.

    Examples
    --------
    >>> model = GammaPoisson(1, 1).fit([3, 5, 4])
    >>> round(float(model.eta_bar().params[0]), 3), round(model.G(), 3)
    (3.126, 0.124)
    """

    def __init__(self, alpha0: float = 1.0, beta0: float = 1.0) -> None:
        self._set_prior(alpha0, beta0)

    def _least_radius(self) -> float:
        return float((self.alpha_n - np.exp(digamma(self.alpha_n))) / self.beta_n)

    def _check_support(self, rows: Array) -> None:
        check_counts(rows)

    def _prior(self) -> GammaPoisson:
        return GammaPoisson(self.alpha0, self.beta0)

    def _update(self, rows: Array) -> None:
        self.alpha_n, self.beta_n = self.alpha0 + float(rows.sum()), self.beta0 + len(rows)

    def _eta_bar(self) -> tuple[Any, ...]:
        return (np.exp(digamma(self.alpha_n)) / self.beta_n,)

    def _draw(self, params: Params, n: int, generator: np.random.Generator) -> Array:
        (rate,) = params
        return generator.poisson(rate[:, None, None], size=(len(rate), n, 1)).astype(np.float64)

    def _kl(self, q: Params, p: Params) -> Any:
        return p[0] - q[0] + q[0] * np.log(q[0] / p[0])
