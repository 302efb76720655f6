"""Models of finitely many outcomes, whose worst cases are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import digamma, logsumexp, rel_entr

from theses.decision.bayesian_ambiguity.models.base import Array, ConjugateModel, Params, check_counts
from theses.validation import check_array, check_real

__all__ = ["BetaBernoulli", "DirichletCategorical"]


class DirichletCategorical(ConjugateModel):
    r"""One of K outcomes, of unknown probabilities.

    :math:`p \sim Dirichlet(\alpha_n)`; then :math:`\bar p \propto e^{\psi(\alpha_n)}` and
    :math:`G = \psi(\sum\alpha_n) - \log\sum e^{\psi(\alpha_n)}`.

    Parameters
    ----------
    alpha0 : array-like of shape (K,)
        Parameters of the prior, positive.
    values : array-like of shape (K,) or (K, dim), optional
        What an outcome is to the cost; the index of the outcome without it.

    References
    ----------
    arXiv:2411.16829, Section 3, Table of conjugate models.

    Examples
    --------
    >>> model = DirichletCategorical([1, 1, 1], values=[10, 20, 30]).fit([0, 2, 2])
    >>> model.eta_bar().params[0].round(3).tolist(), round(model.G(), 3)
    ([0.331, 0.122, 0.547], 0.179)
    """

    names = ("probabilities",)
    ranks = (1,)

    def __init__(self, alpha0: Any, values: Any = None) -> None:
        self.alpha0 = self.alpha_n = check_array("alpha0", alpha0, ndim=1, min_length=2)
        if (self.alpha0 <= 0).any():
            raise ValueError(f"alpha0 must be positive, got {self.alpha0.min()}")
        outcomes = np.arange(len(self.alpha0)) if values is None else values
        table = check_array("values", outcomes, ndim=(1, 2))
        if len(table) != len(self.alpha0):
            raise ValueError(
                f"values and alpha0 must have the same length, got {len(table)} and {len(self.alpha0)}"
            )
        self.values: Array = table.reshape(len(table), -1)

    def _least_radius(self) -> float:
        return float(digamma(self.alpha_n.sum()) - logsumexp(digamma(self.alpha_n)))

    def _width(self) -> int:
        return len(self.alpha0)

    def _check_support(self, rows: Array) -> None:
        check_counts(rows)
        if len(rows) and rows.max() >= len(self.alpha0):
            raise ValueError(f"data must be below {len(self.alpha0)}, got {rows.max()}")

    def _check_domain(self, name: str, params: Params) -> None:
        p = params[0]
        if (p < 0).any() or (np.abs(p.sum(axis=-1) - 1) > 1e-8).any():
            raise ValueError(f"{name} must be probabilities that sum to 1, got {p}")

    def _prior(self) -> ConjugateModel:
        return DirichletCategorical(self.alpha0, self.values)

    def _update(self, rows: Array) -> None:
        self.alpha_n = self.alpha0 + np.bincount(rows[:, 0].astype(int), minlength=len(self.alpha0))

    def _eta_bar(self) -> tuple[Any, ...]:
        eta = digamma(self.alpha_n)
        return (_representable(np.exp(eta - logsumexp(eta)), "alpha0"),)

    def _sample_posterior(self, n: int, generator: np.random.Generator) -> Params:
        return (generator.dirichlet(self.alpha_n, size=n),)

    def _draw(self, params: Params, n: int, generator: np.random.Generator) -> Array:
        cumulative = np.cumsum(params[0], axis=1)[:, None, :]
        uniform = generator.random((len(params[0]), n, 1)) * cumulative[..., -1:]
        return np.asarray(self.values[(uniform >= cumulative).sum(axis=-1)])

    def _kl(self, q: Params, p: Params) -> Any:
        return rel_entr(q[0], p[0]).sum(axis=-1)

    def atoms(self, *, predictive: bool) -> tuple[Array, Array]:
        """All outcomes and their probabilities under the nominal or the predictive law.

        Parameters
        ----------
        predictive : bool
            Take the posterior predictive law.

        Returns
        -------
        tuple of ndarray
            Outcomes of shape (K, dim), probabilities of shape (K,).
        """
        if predictive:
            return self.values, self.alpha_n / self.alpha_n.sum()
        return self.values, self.eta_bar().params[0]


class BetaBernoulli(ConjugateModel):
    r"""Successes (1) and failures (0) of unknown probability.

    :math:`p \sim Beta(a_n, b_n)`; the natural parameter is the logit, so that
    :math:`\bar p = e^{\psi(a_n)}/(e^{\psi(a_n)} + e^{\psi(b_n)})` and
    :math:`G = \psi(a_n + b_n) - \log(e^{\psi(a_n)} + e^{\psi(b_n)})`.

    Parameters
    ----------
    alpha0, beta0 : float, default=1.0
        Parameters of the prior.

    References
    ----------
    arXiv:2411.16829, Section 3, Table of conjugate models.

    Examples
    --------
    >>> model = BetaBernoulli(1, 1).fit([1, 1, 0, 1])
    >>> round(float(model.eta_bar().params[0]), 3), round(model.G(), 3)
    (0.697, 0.089)
    """

    names = ("probability",)
    ranks = (0,)

    def __init__(self, alpha0: float = 1.0, beta0: float = 1.0) -> None:
        self.alpha0 = self.alpha_n = check_real("alpha0", alpha0, minimum=0, include=False)
        self.beta0 = self.beta_n = check_real("beta0", beta0, minimum=0, include=False)

    def _least_radius(self) -> float:
        psi = digamma([self.alpha_n, self.beta_n])
        return float(digamma(self.alpha_n + self.beta_n) - logsumexp(psi))

    def _check_support(self, rows: Array) -> None:
        if not np.isin(rows, (0, 1)).all():
            raise ValueError(f"data must be 0 or 1, got {rows[~np.isin(rows, (0, 1))][0]}")

    def _check_domain(self, name: str, params: Params) -> None:
        p = params[0]
        if ((p < 0) | (p > 1)).any():
            raise ValueError(f"{name} must be probabilities from 0 to 1, got {p}")

    def _prior(self) -> ConjugateModel:
        return BetaBernoulli(self.alpha0, self.beta0)

    def _update(self, rows: Array) -> None:
        successes = float(rows.sum())
        self.alpha_n, self.beta_n = self.alpha0 + successes, self.beta0 + len(rows) - successes

    def _eta_bar(self) -> tuple[Any, ...]:
        eta = digamma([self.alpha_n, self.beta_n])
        return (_representable(np.exp(eta - logsumexp(eta)), "alpha0 and beta0")[0],)

    def _sample_posterior(self, n: int, generator: np.random.Generator) -> Params:
        return (generator.beta(self.alpha_n, self.beta_n, size=n),)

    def _draw(self, params: Params, n: int, generator: np.random.Generator) -> Array:
        (p,) = params
        return (generator.random((len(p), n, 1)) < p[:, None, None]).astype(np.float64)

    def _kl(self, q: Params, p: Params) -> Any:
        return rel_entr(q[0], p[0]) + rel_entr(1 - q[0], 1 - p[0])

    def atoms(self, *, predictive: bool) -> tuple[Array, Array]:
        """Both outcomes and their probabilities under the nominal or the predictive law.

        Parameters
        ----------
        predictive : bool
            Take the posterior predictive law.

        Returns
        -------
        tuple of ndarray
            Outcomes of shape (2, 1), probabilities of shape (2,).
        """
        counts = np.array([self.beta_n, self.alpha_n])
        eta = np.log(counts) if predictive else digamma(counts)
        # From logarithms, since 1 - p would lose an outcome that is rare.
        p = _representable(np.exp(eta - logsumexp(eta)), "alpha0 and beta0")
        return np.array([[0.0], [1.0]]), p


def _representable(p: Array, name: str) -> Array:
    """Refuse a nominal law that gives an outcome no probability as a float.

    Its true probability, some exp(-1 / alpha), would still let a law of the set dwell on that outcome.
    """
    if (p == 0).any():
        raise ValueError(
            f"{name} must be larger where an outcome was not seen (0.01, say): its probability under the "
            "nominal law is below the smallest float"
        )
    return p
