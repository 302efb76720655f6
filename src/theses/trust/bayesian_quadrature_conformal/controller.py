"""The choice of lambda for a fitted model: loss and prediction given as functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from theses.trust.bayesian_quadrature_conformal.posterior import RandomState, check_losses
from theses.trust.bayesian_quadrature_conformal.rules import (
    METHODS,
    NotBinaryError,
    RiskRule,
    check_falls,
    is_binary,
    posterior_of,
    shared_level,
    smallest_lambda,
)
from theses.validation import as_generator, check_array, check_choice, check_real, check_same_length

__all__ = ["RiskController"]

# Points on which a loss is looked at for falling with lambda, and on which a loss that does not is tried.
_PROBE_POINTS = 32
# The betting bound need not fall with lambda, so its lambda is found by walking down this many steps.
_WALK_POINTS = 1_000
# Halvings of the range: a number, not a length, so that the search ends however coarse the numbers are.
_BISECTIONS = 20


class RiskController(BaseEstimator):  # type: ignore[misc]
    r"""Knob of a fitted model, set so that the risk at deployment is at most alpha with probability beta.

    .. math:: \hat\lambda = \inf\{\lambda : P(L^+_\lambda \le \alpha \mid \ell_1, \ldots, \ell_n) \ge \beta\}

    with the bound ``L+`` of :class:`RiskPosterior` and the same draws for each lambda, which makes the
    condition monotone in lambda for losses that fall with it.

    Parameters
    ----------
    loss : callable
        ``loss(predictions, y)``, the losses in ``[0, max_loss]``, shape (n,); each must fall, or stay, as
        lambda grows. :func:`miscoverage`, :func:`false_negative_rate`, :func:`scaled_count` or your own.
    predict : callable
        ``predict(scores, lam)``, the predictions at a lambda. A threshold on scores enters as its negative,
        such as ``lambda scores, lam: scores >= -lam``.
    alpha : float
        Risk, in ``(0, max_loss)``.
    beta : float, default=0.95
        Probability, in (0, 1).
    max_loss : float, default=1.0
        Largest possible loss.
    method : {"bq", "crc", "rcps-hoeffding", "rcps-wsr"}, default="bq"
        Rule, see :class:`RiskRule`.
    lam_range : tuple of float, default=(0.0, 1.0)
        Range of lambda; its upper end is the safe one.
    monotone : bool, default=True
        False admits losses that do not fall with lambda: 32 values of lambda (or the candidates) are then
        tried, and the error probability ``1 - beta`` is shared out equally among them.
    n_samples : int, default=1_000
        Draws S, common to all lambdas.
    conservative : bool, default=False
        Whether the finite number of draws is allowed for, see :class:`RiskPosterior`.
    random_state : int, numpy Generator or RandomState, or None, default=None
        Source of the draws.

    Attributes
    ----------
    lambda_ : float
        The chosen lambda; the upper end of ``lam_range`` if none is certified.
    feasible_ : bool
        Whether the risk is certified at ``lambda_``. With n losses no ``bq`` bound can be less than
        ``max_loss * (1 - (1 - beta) ** (1 / n))``.
    risk_posterior_ : RiskPosterior
        Of the risk at ``lambda_``.
    n_features_in_ : int
        Columns of ``scores``.

    Notes
    -----
    About 20 evaluations of loss and rule, plus 32 of the loss alone; O(S n) a rule. ``rcps-wsr`` takes up to
    1,000, since its bound need not fall with lambda; that bound wants the cases in random order. Draws
    beyond 64 MB (S n over 8 million) are made anew for each evaluation, at about 5 ns a weight.

    The constructor's ``predict`` is kept as the attribute ``predict_function``: the name ``predict`` is the
    method's.

    Examples
    --------
    >>> from theses.trust.bayesian_quadrature_conformal import false_negative_rate
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.random((500, 5)) < 0.4
    >>> scores = np.clip(0.4 * labels + 0.6 * rng.random((500, 5)), 0, 1)
    >>> controller = RiskController(
    ...     false_negative_rate, lambda scores, lam: scores >= -lam, alpha=0.1,
    ...     lam_range=(-1.0, 0.0), random_state=0,
    ... ).fit(scores, labels)
    >>> controller.feasible_, round(controller.lambda_, 2)
    (True, -0.45)
    >>> controller.predict(scores).shape
    (500, 5)

    References
    ----------
    Snell and Griffiths: Conformal Prediction as Bayesian Quadrature, ICML 2025.
    """

    def __init__(
        self,
        loss: Callable[[Any, Any], ArrayLike],
        predict: Callable[[Any, float], Any],
        alpha: float,
        beta: float = 0.95,
        max_loss: float = 1.0,
        method: str = "bq",
        lam_range: tuple[float, float] = (0.0, 1.0),
        monotone: bool = True,
        n_samples: int = 1_000,
        conservative: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.loss = loss
        self.predict_function = predict
        self.alpha = alpha
        self.beta = beta
        self.max_loss = max_loss
        self.method = method
        self.lam_range = lam_range
        self.monotone = monotone
        self.n_samples = n_samples
        self.conservative = conservative
        self.random_state = random_state

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; ``predict`` is the constructor's, not the method.

        Parameters
        ----------
        deep : bool, default=True
            Without effect: no parameter is an estimator.

        Returns
        -------
        dict
            Name and value.
        """
        return {**super().get_params(deep=deep), "predict": self.predict_function}

    def set_params(self, **params: Any) -> RiskController:
        """Set parameters by name.

        Parameters
        ----------
        **params
            Name and value.

        Returns
        -------
        RiskController
            Itself.
        """
        if "predict" in params:
            self.predict_function = params.pop("predict")
        super().set_params(**params)
        return self

    def fit(self, scores: ArrayLike, y: ArrayLike, candidates: ArrayLike | None = None) -> RiskController:
        """Choose lambda.

        Parameters
        ----------
        scores : array-like, shape (n, ...)
            What ``predict`` makes predictions from.
        y : array-like, shape (n, ...)
            Truth that ``loss`` compares them with.
        candidates : array-like, shape (m,), or None, default=None
            Values of lambda at which a loss may step, if losses are step functions: the search over them is
            exact. Those outside ``lam_range`` are left out. None: bisection of ``lam_range`` to 1e-6 of its
            length.

        Returns
        -------
        RiskController
            Itself.

        Raises
        ------
        ValueError
            If data or losses are not as described, or a loss grows with lambda.
        """
        scores_ = _as_array("scores", scores)
        y_ = _as_array("y", y)
        n = check_same_length({"scores": scores_, "y": y_})
        max_loss = check_real("max_loss", self.max_loss, minimum=0, include=False)
        beta = check_real("beta", self.beta, minimum=0, maximum=1, include=False)
        check_choice("method", self.method, METHODS)
        low, high = self._range()
        grid = None if candidates is None else self._candidates(candidates, low, high)
        probes = np.linspace(low, high, _PROBE_POINTS) if grid is None else _thin(grid, _PROBE_POINTS)
        if not self.monotone:
            grid = probes if grid is None else grid
            beta = shared_level(self.method, beta, len(grid))

        def losses_at(lam: float) -> NDArray[np.float64]:
            losses = check_losses("loss", self.loss(self.predict_function(scores_, lam), y_), max_loss)
            if len(losses) != n:
                raise ValueError(f"loss must return n = {n} losses, got {len(losses)}")
            return losses

        binary = self._probe(losses_at, probes, max_loss)
        generator = as_generator(self.random_state)
        while True:
            rule = RiskRule(
                self.method,
                n,
                self.alpha,
                beta,
                max_loss,
                n_samples=self.n_samples,
                conservative=self.conservative,
                binary=binary and self.method == "bq",
                random_state=generator,
            )
            try:
                lam = self._search(rule, losses_at, grid, low, high)
                break
            except NotBinaryError:
                binary = False  # the probes missed a loss between 0 and max_loss
        self.n_features_in_ = scores_.shape[1] if scores_.ndim > 1 else 1
        self.feasible_ = lam is not None
        self.lambda_ = high if lam is None else lam
        self.risk_posterior_ = posterior_of(rule, losses_at(self.lambda_), generator)
        if lam is None:
            warnings.warn(
                f"no lambda in [{low:g}, {high:g}] bounds the risk by alpha = {self.alpha:g}; lambda_ is the "
                f"upper end, where the bound is {rule.bound(losses_at(high)):.4g} "
                f"({n} calibration cases may be too few)",
                UserWarning,
                stacklevel=2,
            )
        return self

    def predict(self, scores: ArrayLike) -> Any:
        """Predictions at the chosen lambda.

        Parameters
        ----------
        scores : array-like, shape (n, ...)
            As in ``fit``.

        Returns
        -------
        object
            What the constructor's ``predict`` gives.
        """
        check_is_fitted(self)
        array = _as_array("scores", scores)
        width = array.shape[1] if array.ndim > 1 else 1
        if width != self.n_features_in_:
            raise ValueError(
                f"X has {width} features, but RiskController is expecting {self.n_features_in_} features as "
                f"input: scores must have as many columns as in fit, got shape {array.shape}"
            )
        return self.predict_function(array, self.lambda_)

    def _range(self) -> tuple[float, float]:
        try:
            low, high = self.lam_range
        except (TypeError, ValueError) as error:
            raise type(error)(f"lam_range must be a pair (lo, hi), got {self.lam_range!r}") from None
        low, high = check_real("lam_range", low), check_real("lam_range", high)
        if low >= high:
            raise ValueError(f"lam_range must be a pair (lo, hi) with lo < hi, got {self.lam_range!r}")
        return low, high

    def _candidates(self, candidates: ArrayLike, low: float, high: float) -> NDArray[np.float64]:
        values = check_array("candidates", candidates, ndim=1)
        inside = values[(values >= low) & (values <= high)]
        if not len(inside):
            raise ValueError(
                f"candidates must lie in lam_range = ({low:g}, {high:g}), but all of them are outside, "
                f"from {values.min():g} to {values.max():g}"
            )
        return np.unique(np.concatenate([[low], inside, [high]]))

    def _probe(
        self,
        losses_at: Callable[[float], NDArray[np.float64]],
        probes: NDArray[np.float64],
        max_loss: float,
    ) -> bool:
        binary, before = True, None
        for j, lam in enumerate(probes):
            losses = losses_at(float(lam))
            if self.monotone and before is not None:
                check_falls(before, losses, probes[j - 1], lam, max_loss, "loss")
            binary = binary and is_binary(losses, max_loss)
            before = losses
        return binary

    def _search(
        self,
        rule: RiskRule,
        losses_at: Callable[[float], NDArray[np.float64]],
        grid: NDArray[np.float64] | None,
        low: float,
        high: float,
    ) -> float | None:
        if not self.monotone:
            assert grid is not None
            return next((float(lam) for lam in grid if rule.holds(losses_at(float(lam)))), None)
        if self.method == "rcps-wsr":
            lam = None
            for step in (np.linspace(low, high, _WALK_POINTS + 1) if grid is None else grid)[::-1]:
                if not rule.holds(losses_at(float(step))):
                    break
                lam = float(step)
            return lam
        if grid is not None:
            return smallest_lambda(rule.holds, losses_at, grid)
        if not rule.holds(losses_at(high)):
            return None
        if rule.holds(losses_at(low)):
            return low
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if rule.holds(losses_at(middle)) else (middle, high)
        return high


def _as_array(name: str, value: Any) -> NDArray[Any]:
    if sparse.issparse(value):
        raise TypeError(f"{name} must be an array, got a sparse matrix: sparse input is not supported")
    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except (TypeError, ValueError) as error:  # ragged lists, torch's bfloat16
        raise TypeError(f"{name} must be an array, got {type(value).__name__} ({error})") from None
    if array.dtype.kind == "c":
        raise ValueError(f"{name} must be real: Complex data not supported")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} must hold no NaN or infinity")
    if array.ndim == 2 and array.shape[1] == 0:
        raise ValueError(f"{name} has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    if array.ndim == 0 or len(array) == 0:
        raise ValueError(f"{name} must have a row for each of one or more cases, got shape {array.shape}")
    return array


def _thin(values: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    kept = np.unique(np.linspace(0, len(values) - 1, n).round().astype(int))
    return np.asarray(values[kept])
