"""The choice of lambda from a table of losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theses.trust.bayesian_quadrature_conformal.posterior import RandomState, RiskPosterior, check_losses
from theses.trust.bayesian_quadrature_conformal.rules import (
    METHODS,
    ROUNDING,
    RiskRule,
    check_falls,
    is_binary,
    posterior_of,
    shared_level,
)
from theses.validation import check_array, check_choice, check_real

if TYPE_CHECKING:
    import polars as pl

__all__ = ["LambdaChoice", "select_lambda"]


@dataclass(frozen=True, eq=False)
class LambdaChoice:
    """The lambda chosen from a table of losses.

    Parameters
    ----------
    lambda_ : float
        The least certified lambda; the largest one if none is.
    feasible : bool
        Whether one is.
    method : str
        Rule, as asked for.
    alpha, beta : float
        Risk and probability, as asked for.
    lambdas : ndarray, shape (m,)
        All values, ascending.
    mean_losses : ndarray, shape (m,)
        Mean calibration loss at each.
    bounds : ndarray, shape (m,)
        The method's upper bound of the risk at each.
    posterior : RiskPosterior
        Of the risk at ``lambda_``.

    Examples
    --------
    >>> table = np.random.default_rng(0).random((200, 1)) > [0.5, 0.8, 0.9, 1.0]
    >>> select_lambda(table, [0.5, 0.8, 0.9, 1.0], alpha=0.2, random_state=0).summary()
    'lambda = 0.9 (bq): mean loss 0.15, bound 0.1979 <= 0.2'
    """

    lambda_: float
    feasible: bool
    method: str
    alpha: float
    beta: float
    lambdas: NDArray[np.float64]
    mean_losses: NDArray[np.float64]
    bounds: NDArray[np.float64]
    posterior: RiskPosterior

    def summary(self) -> str:
        """The choice in a sentence.

        Returns
        -------
        str
            Lambda, mean loss and bound.
        """
        if not self.feasible:
            return (
                f"no lambda of {len(self.lambdas)} bounds the risk by {self.alpha:g}; "
                f"the safest is {self.lambda_:g} with bound {self.bounds[-1]:.4g}"
            )
        index = int(np.searchsorted(self.lambdas, self.lambda_))
        return (
            f"lambda = {self.lambda_:g} ({self.method}): mean loss {self.mean_losses[index]:.4g}, "
            f"bound {self.bounds[index]:.4g} <= {self.alpha:g}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain mapping.

        Returns
        -------
        dict
            The choice and a summary of the posterior, without the table.
        """
        return {
            "lambda": self.lambda_,
            "feasible": self.feasible,
            "method": self.method,
            "alpha": self.alpha,
            "beta": self.beta,
            "posterior": self.posterior.to_dict(),
        }

    def to_frame(self) -> pl.DataFrame:
        """All lambdas with their bounds.

        Returns
        -------
        polars.DataFrame, shape (m, 5)
            Columns ``lambda``, ``mean_loss``, ``bound``, ``certified`` for itself, ``chosen``.
        """
        import polars as pl

        return pl.DataFrame(
            {
                "lambda": self.lambdas,
                "mean_loss": self.mean_losses,
                "bound": self.bounds,
                "certified": self.bounds <= self.alpha * (1 + ROUNDING),
                "chosen": self.lambdas == self.lambda_,
            }
        )


def select_lambda(
    losses: ArrayLike,
    lambdas: ArrayLike,
    alpha: float,
    beta: float = 0.95,
    max_loss: float = 1.0,
    *,
    method: str = "bq",
    monotone: bool = True,
    n_samples: int = 1_000,
    conservative: bool = False,
    random_state: RandomState = None,
) -> LambdaChoice:
    r"""Least lambda of a table of losses whose risk is at most alpha with probability beta.

    .. math:: \hat\lambda = \inf\{\lambda : P(L^+_\lambda \le \alpha \mid \ell) \ge \beta\}

    Parameters
    ----------
    losses : array-like, shape (n, m)
        Calibration losses; column j belongs to ``lambdas[j]``.
    lambdas : array-like, shape (m,)
        Values of lambda, all different, in any order. Each row's losses must fall as lambda grows.
    alpha : float
        Risk, in ``(0, max_loss)``.
    beta : float, default=0.95
        Probability, in (0, 1).
    max_loss : float, default=1.0
        Largest possible loss.
    method : {"bq", "crc", "rcps-hoeffding", "rcps-wsr"}, default="bq"
        Rule, see :class:`RiskRule`.
    monotone : bool, default=True
        False admits losses that do not fall with lambda; the error probability ``1 - beta`` is then shared
        out equally among the m lambdas.
    n_samples : int, default=1_000
        Draws, common to all lambdas.
    conservative : bool, default=False
        Whether the finite number of draws is allowed for.
    random_state : int, numpy Generator or RandomState, or None, default=None
        Source of the draws.

    Returns
    -------
    LambdaChoice
        Lambda, bounds, posterior at lambda.

    Raises
    ------
    ValueError
        If losses are out of range or, with ``monotone=True``, grow with lambda.

    Notes
    -----
    O(S n m).

    Examples
    --------
    >>> scores = np.random.default_rng(0).random(500)
    >>> lambdas = np.linspace(0.5, 1.0, 11)
    >>> table = scores[:, None] > lambdas
    >>> choice = select_lambda(table, lambdas, alpha=0.2)
    >>> round(choice.lambda_, 2), choice.feasible
    (0.85, True)

    References
    ----------
    Snell and Griffiths, ICML 2025: one-sided highest-density interval of ``L+``.
    """
    values = check_array("lambdas", lambdas, ndim=1)
    max_loss = check_real("max_loss", max_loss, minimum=0, include=False)
    table = check_losses("losses", losses, max_loss, ndim=2)
    if table.shape[1] != len(values):
        raise ValueError(
            f"losses must have one column for each of lambdas, but losses has {table.shape[1]} columns "
            f"and lambdas {len(values)} entries"
        )
    if len(np.unique(values)) < len(values):
        raise ValueError("lambdas must all be different")
    order = np.argsort(values)
    values, table = values[order], table[:, order]
    level = check_real("beta", beta, minimum=0, maximum=1, include=False)
    check_choice("method", method, METHODS)
    if monotone:
        for j in range(1, len(values)):
            check_falls(table[:, j - 1], table[:, j], values[j - 1], values[j], max_loss, "losses")
    else:
        level = shared_level(method, level, len(values))
    rule = RiskRule(
        method,
        len(table),
        alpha,
        level,
        max_loss,
        n_samples=n_samples,
        conservative=conservative,
        binary=method == "bq" and is_binary(table, max_loss),
        random_state=random_state,
    )
    bounds = np.concatenate([rule.bound(table[:, part]) for part in _column_blocks(rule, len(values))])
    certified = bounds <= rule.alpha * (1 + ROUNDING)
    if monotone:
        # One step below the last that is certified together with all larger ones.
        certified = np.logical_and.accumulate(certified[::-1])[::-1]
    feasible = bool(certified.any())
    index = int(np.argmax(certified)) if feasible else len(values) - 1
    return LambdaChoice(
        lambda_=float(values[index]),
        feasible=feasible,
        method=method,
        alpha=float(alpha),
        beta=float(beta),
        lambdas=values,
        mean_losses=table.mean(axis=0),
        bounds=bounds,
        posterior=posterior_of(rule, table[:, index], random_state),
    )


def _column_blocks(rule: RiskRule, m: int) -> list[slice]:
    # A block of bounds takes as much room as a block of draws may.
    width = max(2**20 // (rule.n_samples if rule.draws is not None else rule.n), 1)
    return [slice(start, start + width) for start in range(0, m, width)]
