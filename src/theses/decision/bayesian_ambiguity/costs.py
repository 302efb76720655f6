"""Costs of a decision under an uncertain outcome, convex in the decision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from theses.validation import check_array, check_integer, check_real

__all__ = ["Cost", "Custom", "Newsvendor", "Portfolio"]

Array = NDArray[np.float64]


class Cost(ABC):
    """Cost :math:`f_x(\\xi)` of a decision x when the outcome is :math:`\\xi`.

    A subclass says the cost twice: in NumPy (``_evaluate``), and in cvxpy (``cvx``) for decisions of several
    dimensions or with constraints.

    Parameters
    ----------
    dim : int or None
        Length of a decision; None takes the length of an outcome.
    convex : bool, default=True
        Whether the cost is convex in the decision; what is not is refused by the solvers.

    References
    ----------
    arXiv:2411.16829, Section 2.

    Examples
    --------
    >>> issubclass(Newsvendor, Cost)
    True
    """

    #: Whether the cost may grow without bound with the outcome.
    unbounded: bool = True
    #: Whether convexity needs no look at the cost's values before a search.
    surely_convex: bool = False
    #: Whether the cost brings constraints of its own.
    constrained: bool = False

    def __init__(self, dim: int | None, convex: bool = True) -> None:
        self.dim = None if dim is None else check_integer("dim", dim, minimum=1)
        self.convex = convex

    def evaluate(self, x: Any, samples: Any) -> Array:
        """Costs of a decision at outcomes.

        Parameters
        ----------
        x : float or array-like of shape (dim,)
            Decision.
        samples : array-like of shape (n, d) or (n,)
            Outcomes.

        Returns
        -------
        ndarray of shape (n,)
            The costs.

        Raises
        ------
        ValueError
            If shapes do not fit or an entry is not finite.
        """
        decision = check_array("x", np.atleast_1d(check_array("x", x, ndim=(0, 1))), ndim=1)
        values = check_array("samples", samples, ndim=(1, 2))
        values = values.reshape(len(values), -1)
        wanted = self.dim or values.shape[1]
        if len(decision) != wanted:
            as_wide = "" if self.dim else ", the number of columns of samples"
            raise ValueError(f"x must have length {wanted}{as_wide}, got {len(decision)}")
        self._check_outcomes(values)
        return self._evaluate(decision, values)

    def cvx(self, x: Any, samples: Any) -> Any:
        """Costs at outcomes as a cvxpy expression in the decision.

        Parameters
        ----------
        x : cvxpy.Variable of shape (dim,)
            Decision.
        samples : array-like of shape (n, d)
            Outcomes.

        Returns
        -------
        cvxpy.Expression of shape (n,)
            The costs, convex in ``x`` by cvxpy's rules.
        """
        values = check_array("samples", samples, ndim=2)
        self._check_outcomes(values)
        return self._cvx(x, values)

    def _check_outcomes(self, values: Array) -> None:
        if self.dim is not None and values.shape[1] != self.dim:
            raise ValueError(f"samples must have {self.dim} column(s), got shape {values.shape}")

    @abstractmethod
    def _evaluate(self, x: Array, samples: Array) -> Array: ...

    def _cvx(self, x: Any, samples: Array) -> Any:
        raise ValueError(f"cost must have a cvxpy form for this problem, {type(self).__name__} has none")

    def _start(self, samples: Array) -> Array:
        """A decision of the right scale, at which costs are put to scale."""
        return samples.mean(axis=0) if self.dim in (None, samples.shape[1]) else np.ones(self.dim or 1)

    def _bracket(self, samples: Array) -> tuple[float, float] | None:
        """An interval that holds the best decision of one dimension, None if none is known."""
        return None

    def _default_constraints(self, x: Any) -> list[Any]:
        return []

    def _lipschitz(self, x: Any) -> Any:
        """Lipschitz constant in the outcome, Euclidean norm: a number, or a cvxpy expression in x."""
        raise ValueError(f"cost must have a known Lipschitz constant, {type(self).__name__} has none")


class Newsvendor(Cost):
    r"""Cost of a stock x when the demand is :math:`\xi`.

    .. math:: f_x(\xi) = \sum_j h\,(x_j - \xi_j)^+ + b\,(\xi_j - x_j)^+

    Parameters
    ----------
    h : float, default=3.0
        Cost of a unit left over.
    b : float, default=8.0
        Cost of a unit short.
    dim : int, default=1
        Number of goods.

    References
    ----------
    arXiv:2411.16829, Section 6, the Newsvendor.

    Examples
    --------
    >>> Newsvendor().evaluate(10.0, [8.0, 11.0]).tolist()
    [6.0, 8.0]
    """

    surely_convex = True

    def __init__(self, h: float = 3.0, b: float = 8.0, dim: int = 1) -> None:
        super().__init__(dim)
        self.h = check_real("h", h, minimum=0)
        self.b = check_real("b", b, minimum=0)

    def _evaluate(self, x: Array, samples: Array) -> Array:
        short = samples - x
        # max(-h s, b s) is the cost of one good; both slopes have their sign.
        costs = np.maximum(-self.h * short, self.b * short)
        return costs[:, 0] if costs.shape[1] == 1 else costs.sum(axis=1)

    def _cvx(self, x: Any, samples: Array) -> Any:
        cp = load_cvxpy()

        total: Any = 0
        for j in range(samples.shape[1]):
            short = samples[:, j] - x[j]
            total = total + cp.maximum(-self.h * short, self.b * short)
        return total

    def _bracket(self, samples: Array) -> tuple[float, float] | None:
        # Outside the outcomes every cost falls towards them.
        return float(samples.min()), float(samples.max())

    def _lipschitz(self, x: Any) -> Any:
        return max(self.h, self.b) * np.sqrt(self.dim or 1)


class Portfolio(Cost):
    r"""Loss :math:`-\xi^\top x` of weights x when the returns are :math:`\xi`.

    Without constraints of one's own, weights are at least 0 and sum to 1.

    Parameters
    ----------
    long_only : bool, default=True
        Weights must not be negative.

    References
    ----------
    arXiv:2411.16829, Section 6, the portfolio.

    Examples
    --------
    >>> Portfolio().evaluate([0.5, 0.5], [[0.02, -0.01]]).tolist()
    [-0.005]
    """

    constrained = True

    def __init__(self, long_only: bool = True) -> None:
        super().__init__(None)
        self.long_only = long_only

    def _evaluate(self, x: Array, samples: Array) -> Array:
        return np.asarray(-samples @ x)

    def _cvx(self, x: Any, samples: Array) -> Any:
        return -samples @ x

    def _start(self, samples: Array) -> Array:
        return np.full(samples.shape[1], 1 / samples.shape[1])

    def _default_constraints(self, x: Any) -> list[Any]:
        cp = load_cvxpy()

        return [cp.sum(x) == 1, *([x >= 0] if self.long_only else [])]

    def _lipschitz(self, x: Any) -> Any:
        cp = load_cvxpy()

        return cp.norm(x, 2)


class Custom(Cost):
    """Cost given by functions.

    Parameters
    ----------
    evaluate : callable
        ``evaluate(x, samples)`` takes arrays of shapes ``(dim,)`` and ``(n, d)`` and gives ``(n,)`` costs.
    cvx : callable, optional
        The same in cvxpy; wanted for several dimensions, and for constraints other than bounds.
    dim : int, default=1
        Length of a decision.
    bounds : pair of float, optional
        Interval in which to look for a decision of one dimension.
    unbounded : bool, default=True
        Whether the cost may grow without bound with the outcome.
    convex : bool, default=True
        Whether it is convex in the decision.

    References
    ----------
    arXiv:2411.16829, Section 2.

    Examples
    --------
    >>> square = Custom(lambda x, samples: (samples[:, 0] - x[0]) ** 2)
    >>> square.evaluate(1.0, [0.0, 3.0]).tolist()
    [1.0, 4.0]
    """

    def __init__(
        self,
        evaluate: Callable[[Array, Array], Any],
        cvx: Callable[[Any, Array], Any] | None = None,
        dim: int = 1,
        bounds: tuple[float, float] | None = None,
        unbounded: bool = True,
        convex: bool = True,
    ) -> None:
        super().__init__(dim, convex)
        if not callable(evaluate):
            raise TypeError(f"evaluate must be callable, got {type(evaluate).__name__}")
        self._function = evaluate
        self._expression = cvx
        self.unbounded = unbounded
        self.bounds = bounds
        if bounds is not None:
            low, high = (check_real("bounds", bound) for bound in bounds)
            if low > high:
                raise ValueError(f"bounds must be ordered, got {bounds}")

    def _check_outcomes(self, values: Array) -> None:
        """Outcomes need not be as long as decisions here."""

    def _evaluate(self, x: Array, samples: Array) -> Array:
        costs = np.asarray(self._function(x, samples), dtype=np.float64)
        if costs.shape != (len(samples),):
            raise ValueError(f"evaluate must give costs of shape {(len(samples),)}, got {costs.shape}")
        if not np.isfinite(costs).all():
            raise ValueError(f"evaluate must give finite costs, got {costs[~np.isfinite(costs)][0]}")
        return costs

    def _cvx(self, x: Any, samples: Array) -> Any:
        return super()._cvx(x, samples) if self._expression is None else self._expression(x, samples)

    def _start(self, samples: Array) -> Array:
        return np.ones(self.dim or 1)

    def _bracket(self, samples: Array) -> tuple[float, float] | None:
        return self.bounds


def load_cvxpy() -> Any:
    """The module cvxpy, which only portfolios, constraints and several dimensions need.

    Returns
    -------
    module
        The module.

    Raises
    ------
    ImportError
        If it is not installed; the message names the extra.
    """
    try:
        import cvxpy
    except ImportError as error:
        raise ImportError('this problem needs cvxpy: pip install "theses[decision]"', name="cvxpy") from error
    return cvxpy
