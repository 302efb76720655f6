"""Normal models: mean unknown, or mean and precision, of a number or a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import digamma

from theses.decision.bayesian_ambiguity.models.base import Array, ConjugateModel, Params
from theses.validation import check_array, check_real

__all__ = ["MvNormalKnownCov", "NormalGamma", "NormalInverseWishart", "NormalKnownVariance"]


def _normal_kl(q: Params, p: Params) -> Any:
    (mean_q, var_q), (mean_p, var_p) = q, p
    return 0.5 * (np.log(var_p / var_q) + (var_q + (mean_q - mean_p) ** 2) / var_p - 1)


def _normal_draw(params: Params, n: int, generator: np.random.Generator) -> Array:
    mean, variance = params
    return np.asarray(
        mean[:, None, None] + np.sqrt(variance)[:, None, None] * generator.standard_normal((len(mean), n, 1))
    )


class NormalGamma(ConjugateModel):
    r"""Normal observations of unknown mean and precision.

    :math:`\lambda \sim Gamma(\alpha, \beta)`, :math:`\mu|\lambda \sim N(\mu_n, 1/(\kappa\lambda))`; then
    :math:`\bar P = N(\mu_n, \beta_n/\alpha_n)` and
    :math:`G = (1/\kappa_n + \log\alpha_n - \psi(\alpha_n))/2`.

    Parameters
    ----------
    mu0 : float, default=0.0
        Prior mean.
    kappa0 : float, default=0.01
        How many observations the prior mean counts for.
    alpha0, beta0 : float, default=1.0
        Shape and rate of the prior of the precision.

    References
    ----------
    arXiv:2411.16829, Section 3, example of the normal model.

    Examples
    --------
    >>> model = NormalGamma(0, 0.01, 1, 1).fit([20.0, 30.0, 25.0])
    >>> round(float(model.eta_bar().params[0]), 3), round(model.G(), 4)
    (24.917, 0.2727)
    """

    names = ("mean", "variance")
    ranks = (0, 0)
    heavy_predictive = True
    gaussian = True

    def __init__(
        self, mu0: float = 0.0, kappa0: float = 0.01, alpha0: float = 1.0, beta0: float = 1.0
    ) -> None:
        self.mu0 = self.mu_n = check_real("mu0", mu0)
        self.kappa0 = self.kappa_n = check_real("kappa0", kappa0, minimum=0, include=False)
        self.alpha0 = self.alpha_n = check_real("alpha0", alpha0, minimum=0, include=False)
        self.beta0 = self.beta_n = check_real("beta0", beta0, minimum=0, include=False)

    def _least_radius(self) -> float:
        return float(0.5 * (1 / self.kappa_n + np.log(self.alpha_n) - digamma(self.alpha_n)))

    def _prior(self) -> NormalGamma:
        return NormalGamma(self.mu0, self.kappa0, self.alpha0, self.beta0)

    def _update(self, rows: Array) -> None:
        n, mean = len(rows), float(rows.mean())
        self.kappa_n = self.kappa0 + n
        self.mu_n = (self.kappa0 * self.mu0 + n * mean) / self.kappa_n
        self.alpha_n = self.alpha0 + n / 2
        shift = self.kappa0 * n * (mean - self.mu0) ** 2 / self.kappa_n
        self.beta_n = self.beta0 + 0.5 * (float(((rows - mean) ** 2).sum()) + shift)

    def _eta_bar(self) -> tuple[Any, ...]:
        # E[precision] = alpha / beta: the variance is 1 / E[1 / variance], not E[variance].
        return self.mu_n, self.beta_n / self.alpha_n

    def _sample_posterior(self, n: int, generator: np.random.Generator) -> Params:
        variance = self.beta_n / generator.gamma(self.alpha_n, size=n)
        return self.mu_n + np.sqrt(variance / self.kappa_n) * generator.standard_normal(n), variance

    def _draw(self, params: Params, n: int, generator: np.random.Generator) -> Array:
        return _normal_draw(params, n, generator)

    def _kl(self, q: Params, p: Params) -> Any:
        return _normal_kl(q, p)


class NormalKnownVariance(ConjugateModel):
    r"""Normal observations of unknown mean and known variance.

    :math:`\mu \sim N(\mu_n, \sigma^2/\kappa_n)`; then :math:`\bar P = N(\mu_n, \sigma^2)` and
    :math:`G = 1/(2\kappa_n)`.

    Parameters
    ----------
    mu0 : float, default=0.0
        Prior mean.
    kappa0 : float, default=0.01
        How many observations the prior mean counts for.
    variance : float, default=1.0
        Variance of an observation.

    References
    ----------
    arXiv:2411.16829, Section 3, Table of conjugate models.

    Examples
    --------
    >>> NormalKnownVariance(0, 1, 4).fit([1.0, 2.0, 3.0]).G()
    0.125
    """

    names = ("mean", "variance")
    ranks = (0, 0)
    gaussian = True

    def __init__(self, mu0: float = 0.0, kappa0: float = 0.01, variance: float = 1.0) -> None:
        self.mu0 = self.mu_n = check_real("mu0", mu0)
        self.kappa0 = self.kappa_n = check_real("kappa0", kappa0, minimum=0, include=False)
        self.variance = check_real("variance", variance, minimum=0, include=False)

    def _least_radius(self) -> float:
        return 0.5 / self.kappa_n

    def _prior(self) -> NormalKnownVariance:
        return NormalKnownVariance(self.mu0, self.kappa0, self.variance)

    def _update(self, rows: Array) -> None:
        self.kappa_n = self.kappa0 + len(rows)
        self.mu_n = (self.kappa0 * self.mu0 + float(rows.sum())) / self.kappa_n

    def _eta_bar(self) -> tuple[Any, ...]:
        return self.mu_n, self.variance

    def _sample_posterior(self, n: int, generator: np.random.Generator) -> Params:
        scale = np.sqrt(self.variance / self.kappa_n)
        return self.mu_n + scale * generator.standard_normal(n), np.full(n, self.variance)

    def _draw(self, params: Params, n: int, generator: np.random.Generator) -> Array:
        return _normal_draw(params, n, generator)

    def _kl(self, q: Params, p: Params) -> Any:
        return _normal_kl(q, p)


class _MvNormal(ConjugateModel):
    names = ("mean", "cov")
    ranks = (1, 2)
    gaussian = True

    def _check_domain(self, name: str, params: Params) -> None:
        _check_positive(name, params[1])

    def _draw(self, params: Params, n: int, generator: np.random.Generator) -> Array:
        mean, cov = params
        noise = generator.standard_normal((len(mean), n, self.dim))
        return np.asarray(mean[:, None] + noise @ np.linalg.cholesky(cov).swapaxes(-1, -2))

    def _kl(self, q: Params, p: Params) -> Any:
        (mean_q, cov_q), (mean_p, cov_p) = q, p
        shape = np.broadcast_shapes(cov_q.shape, cov_p.shape)
        cov_q, cov_p = np.broadcast_to(cov_q, shape), np.broadcast_to(cov_p, shape)
        trace = np.trace(np.linalg.solve(cov_p, cov_q), axis1=-2, axis2=-1)
        gap = np.broadcast_to(mean_q - mean_p, shape[:-1])
        square = (gap * np.linalg.solve(cov_p, gap[..., None])[..., 0]).sum(axis=-1)
        log_det = np.linalg.slogdet(cov_p)[1] - np.linalg.slogdet(cov_q)[1]
        return 0.5 * (log_det + trace + square - self.dim)


class MvNormalKnownCov(_MvNormal):
    r"""Normal vectors of unknown mean and known covariance.

    :math:`\mu \sim N(\mu_n, \Sigma/\kappa_n)`; then :math:`\bar P = N(\mu_n, \Sigma)` and
    :math:`G = d/(2\kappa_n)`.

    Parameters
    ----------
    mu0 : array-like of shape (d,)
        Prior mean.
    kappa0 : float
        How many observations the prior mean counts for.
    cov : array-like of shape (d, d)
        Covariance of an observation, positive definite.

    References
    ----------
    arXiv:2411.16829, Section 3, Table of conjugate models.

    Examples
    --------
    >>> MvNormalKnownCov([0, 0], 1, [[1, 0], [0, 2]]).fit([[1.0, 2.0]]).G()
    0.5
    """

    def __init__(self, mu0: Any, kappa0: float, cov: Any) -> None:
        self.mu0 = self.mu_n = check_array("mu0", mu0, ndim=1)
        self.kappa0 = self.kappa_n = check_real("kappa0", kappa0, minimum=0, include=False)
        self.cov = _check_square("cov", cov, len(self.mu0))
        self.dim = len(self.mu0)

    def _least_radius(self) -> float:
        return self.dim / (2 * self.kappa_n)

    def _prior(self) -> MvNormalKnownCov:
        return MvNormalKnownCov(self.mu0, self.kappa0, self.cov)

    def _update(self, rows: Array) -> None:
        self.kappa_n = self.kappa0 + len(rows)
        self.mu_n = (self.kappa0 * self.mu0 + rows.sum(axis=0)) / self.kappa_n

    def _eta_bar(self) -> tuple[Any, ...]:
        return self.mu_n, self.cov

    def _sample_posterior(self, n: int, generator: np.random.Generator) -> Params:
        noise = generator.standard_normal((n, self.dim)) @ np.linalg.cholesky(self.cov / self.kappa_n).T
        return self.mu_n + noise, np.broadcast_to(self.cov, (n, self.dim, self.dim)).copy()


class NormalInverseWishart(_MvNormal):
    r"""Normal vectors of unknown mean and covariance.

    The precision is Wishart(:math:`\nu, \Psi^{-1}`), the mean :math:`N(\mu_n, \Sigma/\kappa_n)`; then
    :math:`\bar P = N(\mu_n, \Psi_n/\nu_n)` and

    .. math:: G = \tfrac12\Big[\frac d{\kappa_n} - \sum_{i=1}^d \psi\Big(\frac{\nu_n+1-i}2\Big)
       - d\log 2 + d\log\nu_n\Big].

    Parameters
    ----------
    mu0 : array-like of shape (d,)
        Prior mean.
    kappa0 : float
        How many observations the prior mean counts for.
    nu0 : float
        Degrees of freedom, more than d - 1.
    Psi0 : array-like of shape (d, d)
        Scale, positive definite; the prior's centre is the covariance ``Psi0 / nu0``.

    References
    ----------
    arXiv:2411.16829, Section 3, Table of conjugate models.

    Examples
    --------
    >>> model = NormalInverseWishart([0, 0], 1, 4, [[4, 0], [0, 4]])
    >>> model.eta_bar().to_dict()["cov"], round(model.G(), 4)
    ([[1.0, 0.0], [0.0, 1.0]], 1.4635)
    """

    heavy_predictive = True

    def __init__(self, mu0: Any, kappa0: float, nu0: float, Psi0: Any) -> None:
        self.mu0 = self.mu_n = check_array("mu0", mu0, ndim=1)
        self.dim = len(self.mu0)
        self.kappa0 = self.kappa_n = check_real("kappa0", kappa0, minimum=0, include=False)
        self.nu0 = self.nu_n = check_real("nu0", nu0, minimum=self.dim - 1, include=False)
        self.Psi0 = self.Psi_n = _check_square("Psi0", Psi0, self.dim)

    def _least_radius(self) -> float:
        d, nu = self.dim, self.nu_n
        psis = digamma((nu + 1 - np.arange(1, d + 1)) / 2).sum()
        return float(0.5 * (d / self.kappa_n - psis - d * np.log(2) + d * np.log(nu)))

    def _prior(self) -> NormalInverseWishart:
        return NormalInverseWishart(self.mu0, self.kappa0, self.nu0, self.Psi0)

    def _update(self, rows: Array) -> None:
        n, mean = len(rows), rows.mean(axis=0)
        self.kappa_n, self.nu_n = self.kappa0 + n, self.nu0 + n
        self.mu_n = (self.kappa0 * self.mu0 + n * mean) / self.kappa_n
        centred, shift = rows - mean, mean - self.mu0
        self.Psi_n = self.Psi0 + centred.T @ centred + self.kappa0 * n / self.kappa_n * np.outer(shift, shift)

    def _eta_bar(self) -> tuple[Any, ...]:
        return self.mu_n, self.Psi_n / self.nu_n

    def _sample_posterior(self, n: int, generator: np.random.Generator) -> Params:
        # Bartlett: the precision is (C A)(C A)' with A lower triangular and C C' = Psi^-1, so that a root of
        # the covariance is C^-T A^-T, and a root of Psi serves for C^-T.
        d = self.dim
        bartlett = np.tril(generator.standard_normal((n, d, d)), -1)
        freedom = (self.nu_n - np.arange(d)) / 2
        bartlett[:, np.arange(d), np.arange(d)] = np.sqrt(2 * generator.gamma(freedom, size=(n, d)))
        root = np.linalg.cholesky(self.Psi_n) @ np.linalg.inv(bartlett).swapaxes(-1, -2)
        mean = self.mu_n + (root @ generator.standard_normal((n, d, 1)))[..., 0] / np.sqrt(self.kappa_n)
        return mean, root @ root.swapaxes(-1, -2)


def _check_square(name: str, value: Any, size: int) -> Array:
    matrix = check_array(name, value, ndim=2)
    if matrix.shape != (size, size):
        raise ValueError(
            f"{name} must have shape {(size, size)}, as mu0 has length {size}, got {matrix.shape}"
        )
    _check_positive(name, matrix)
    return matrix


def _check_positive(name: str, matrices: Array) -> None:
    scale = np.abs(matrices).max()
    if np.abs(matrices - matrices.swapaxes(-1, -2)).max() > 1e-8 * scale:
        raise ValueError(f"{name} must be symmetric, got {matrices}")
    try:
        np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        raise ValueError(f"{name} must be positive definite, got {matrices}") from None
