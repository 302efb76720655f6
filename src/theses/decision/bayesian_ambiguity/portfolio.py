"""A robust portfolio as an estimator."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.covariance import LedoitWolf
from sklearn.utils.validation import check_is_fitted, validate_data

from theses.decision.bayesian_ambiguity.costs import Portfolio
from theses.decision.bayesian_ambiguity.models import ConjugateModel, MvNormalKnownCov, NormalInverseWishart
from theses.decision.bayesian_ambiguity.robust import DROBAS, Decision
from theses.validation import check_choice, check_real

__all__ = ["RobustPortfolio"]

Array = NDArray[np.float64]


class RobustPortfolio(BaseEstimator):  # type: ignore[misc]
    r"""Weights of least worst-case loss over a Bayesian ambiguity set of normal returns.

    .. math:: \min_{x \ge 0,\ 1^\top x = 1}\; -m^\top x + \sqrt{2(\epsilon - G)\, x^\top S x}

    where :math:`N(m, S)` is the nominal law: a second-order cone programme, without samples.

    Parameters
    ----------
    model : {"known_covariance", "normal_inverse_wishart"}, default="known_covariance"
        Take the covariance (Ledoit and Wolf's estimate) for known, or let the posterior spread over it; its
        prior is then centred at that estimate's diagonal.
    epsilon : float or "auto", default="auto"
        Radius; ``"auto"`` takes in the true law with posterior probability ``level``.
    level : float, default=0.95
        That probability.
    kappa0 : float, default=0.01
        How many periods the prior mean, 0, counts for.
    long_only : bool, default=True
        Weights must not be negative.
    max_weight : float, default=1.0
        Largest weight of an asset, in absolute value; without ``long_only`` it keeps positions bounded.
    solver : str, default="CLARABEL"
        Conic solver of cvxpy.
    random_state : int, Generator or None, default=0
        Randomness of the posterior draws behind ``epsilon="auto"``.

    Attributes
    ----------
    weights_ : ndarray of shape (n_assets,)
        They sum to 1.
    worst_case_value_ : float
        Worst-case expected loss of a period; the expected return is at least its negative over the set.
    epsilon_, G_, radius_ : float
        Radius of the set, its least radius, and that of the ball around the nominal law.
    decision_ : Decision
        All about the decision.

    References
    ----------
    arXiv:2411.16829, Sections 4 and 6, the portfolio.

    Examples
    --------
    >>> import numpy as np
    >>> returns = np.random.default_rng(0).normal([0.01, 0.01], [0.01, 0.05], size=(60, 2))
    >>> portfolio = RobustPortfolio().fit(returns)
    >>> bool(portfolio.weights_[0] > 0.8), portfolio.predict(returns).shape
    (True, (60,))
    """

    def __init__(
        self,
        model: str = "known_covariance",
        epsilon: float | Literal["auto"] = "auto",
        level: float = 0.95,
        kappa0: float = 0.01,
        long_only: bool = True,
        max_weight: float = 1.0,
        solver: str = "CLARABEL",
        random_state: Any = 0,
    ) -> None:
        self.model = model
        self.epsilon = epsilon
        self.level = level
        self.kappa0 = kappa0
        self.long_only = long_only
        self.max_weight = max_weight
        self.solver = solver
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> RobustPortfolio:
        """Choose the weights.

        Parameters
        ----------
        X : array-like of shape (n_periods, n_assets)
            Returns, two periods or more.
        y : None
            Ignored.

        Returns
        -------
        RobustPortfolio
            This object.

        Raises
        ------
        ValueError
            If an entry is not finite, ``epsilon`` is below G, or no weights meet the constraints.
        """
        X = self._table(X, ensure_min_samples=2)
        level = check_real("level", self.level, minimum=0, maximum=1, include=False)
        limit = check_real("max_weight", self.max_weight, minimum=0, include=False)
        if limit * X.shape[1] < 1 - 1e-9:
            raise ValueError(
                f"max_weight must be at least 1 / {X.shape[1]} for weights that sum to 1, got {limit}"
            )
        prior = self._prior(X)
        epsilon = self.epsilon
        if epsilon == "auto":
            # PP's radius has no least value, so that the draws can be had before the radius is known.
            probe = DROBAS(prior, "PP", epsilon=0.0, random_state=self.random_state).fit(X)
            epsilon = probe.epsilon_star("quantile", level)
        robust = DROBAS(prior, epsilon=epsilon, solver=self.solver, random_state=self.random_state).fit(X)
        low = max(0.0, -limit) if self.long_only else -limit
        decision: Decision = robust.solve(Portfolio(self.long_only), (low, limit))
        if decision.x is None:
            raise ValueError(f"X must allow a portfolio, the solver says {decision.status}")
        # The solver keeps constraints to its tolerance, a portfolio to the last digit.
        weights = np.clip(decision.x, low, limit)
        self.weights_: Array = weights / weights.sum()
        self.decision_ = decision
        self.worst_case_value_ = decision.value
        self.epsilon_, self.G_, self.radius_ = robust.epsilon_, robust.G_, robust.radius_
        return self

    def predict(self, X: Any) -> Array:
        """Returns of the portfolio.

        Parameters
        ----------
        X : array-like of shape (n_periods, n_assets)
            Returns of the assets.

        Returns
        -------
        ndarray of shape (n_periods,)
            Returns with the weights kept constant.
        """
        check_is_fitted(self)
        X = self._table(X, reset=False)
        return np.asarray(X @ self.weights_)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean return of the portfolio over its standard deviation.

        Parameters
        ----------
        X : array-like of shape (n_periods, n_assets)
            Returns of the assets.
        y : None
            Ignored.

        Returns
        -------
        float
            The Sharpe ratio of a period, at an interest rate of 0; 0 for constant returns.
        """
        returns = self.predict(X)
        spread = float(returns.std())
        return float(returns.mean()) / spread if spread > 0 else 0.0

    def _table(self, X: Any, **options: Any) -> Array:
        try:
            return np.asarray(validate_data(self, X, dtype=np.float64, **options))
        except ValueError as error:
            # scikit-learn speaks of an array; a user has to know which.
            raise ValueError(f"X is not as it has to be: {error}") from error

    def _prior(self, X: Array) -> ConjugateModel:
        check_choice("model", self.model, ("known_covariance", "normal_inverse_wishart"))
        covariance = LedoitWolf().fit(X).covariance_
        # An asset that never moves would leave the covariance singular.
        floor = 1e-10 * max(float(np.trace(covariance)) / len(covariance), 1e-300)
        covariance = covariance + floor * np.eye(len(covariance))
        mean = np.zeros(X.shape[1])
        if self.model == "known_covariance":
            return MvNormalKnownCov(mean, self.kappa0, covariance)
        nu0 = X.shape[1] + 2.0
        return NormalInverseWishart(mean, self.kappa0, nu0, nu0 * np.diag(np.diag(covariance)))
