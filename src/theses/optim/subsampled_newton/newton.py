"""Sub-sampled Newton: the full gradient, and the debiased inverse of a fresh sketch of the Hessian."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.optimize import OptimizeResult

from theses.optim.subsampled_newton.inverses import Sampler, solver
from theses.optim.subsampled_newton.leverage import SINGULAR, RandomState
from theses.optim.subsampled_newton.problems import Problem
from theses.optim.subsampled_newton.rows import factor
from theses.optim.subsampled_newton.samplers import DEBIAS
from theses.validation import as_generator, check_array, check_choice, check_integer, check_real

__all__ = ["minimize_ssn"]

_ARMIJO = 1e-4
_HALVINGS = 40


def minimize_ssn(
    problem: Problem,
    x0: ArrayLike,
    sampler: Sampler | None,
    debias: Literal["none", "scalar", "fine"] = "fine",
    step: Literal["theory", "armijo"] | float = "armijo",
    max_iter: int = 50,
    tol: float = 1e-10,
    *,
    refresh: int = 1,
    callback: Callable[[NDArray[np.float64]], Any] | None = None,
    random_state: RandomState = None,
) -> OptimizeResult:
    r"""Minimise a function whose Hessian is ``A(b)'A(b) + C(b)`` by sub-sampled Newton steps.

    .. math:: b_{t+1} = b_t - \mu_t \big(A^\top S_t^\top S_t A + C\big)^{-1} \nabla F(b_t), \qquad
              \mu = 1 - \frac{\rho_{\max}}{m / d_{\mathrm{eff}} + \rho_{\max}}

    Near the optimum the squared error in the Hessian's norm falls by about
    :math:`\rho_{\max} d_{\mathrm{eff}} / m` a step, whatever the conditioning.

    Parameters
    ----------
    problem : object
        Objective with ``value``, ``gradient``, ``hessian`` and ``along``, such as :class:`LogisticProblem`.
    x0 : array-like, shape (d,)
        Start.
    sampler : RowSampler, SRHT, LESS, GaussianSketch or None
        Draws a fresh sketch for each step; None takes exact Newton steps.
    debias : {"none", "scalar", "fine"}, default="fine"
        Weights of the sketch.
    step : {"armijo", "theory"} or float, default="armijo"
        ``theory`` is the :math:`\mu` above, for debiased weights and near the optimum; ``armijo`` halves it
        (or 1, for plain weights) until F falls by ``1e-4`` of what the slope promises.
    max_iter : int, default=50
        Steps at most.
    tol : float, default=1e-10
        Ends where the gradient's norm is below ``tol * max(1, norm at x0)``.
    refresh : int, default=1
        Scores and probabilities are computed anew every so many steps. Between, weights no longer fit the
        Hessian exactly, and rho_max as reported is that of the last refresh.
    callback : callable, optional
        Called with b after each step; StopIteration ends the run, as in SciPy.
    random_state : int, numpy Generator or RandomState, or None, default=None
        Source of all sketches.

    Returns
    -------
    scipy.optimize.OptimizeResult
        ``x``, ``fun``, ``jac``, ``nit``, ``success``, ``status``, ``message``, and ``history``: for each step
        a dict of ``fun``, ``grad_norm`` (both after it), ``step``, ``seconds`` since the start, and ``d_eff``
        and ``rho_max`` where weights are debiased.

    Raises
    ------
    ValueError
        If input is not as described, or ``step="theory"`` comes with plain weights.
    InvalidDebiasError
        If fine weights do not exist for a drawn row.

    Notes
    -----
    A step costs the scores (see :class:`RowSampler`), O(n d) for the gradient and O(m d^2 + d^3) for the
    solve; exact Newton costs O(n d^2). The gradient is never sampled, and no sketch is used twice.

    Examples
    --------
    >>> from theses.optim.subsampled_newton import LogisticProblem, RowSampler
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 5))
    >>> y = rng.random(2000) < 1 / (1 + np.exp(-X[:, 0]))
    >>> sampler = RowSampler("approx_ridge_leverage", m=200)
    >>> result = minimize_ssn(LogisticProblem(X, y, 1e-3), np.zeros(5), sampler, random_state=0)
    >>> result.success, result.nit < 20
    (True, True)

    References
    ----------
    Niu, Liao, Ling and Mahoney, ICML 2025, Section 4, Theorem 4.3.
    """
    b = check_array("x0", x0, ndim=1).copy()
    check_choice("debias", debias, DEBIAS)
    fixed = None if isinstance(step, str) else check_real("step", step, minimum=0, include=False)
    if isinstance(step, str):
        check_choice("step", step, ("theory", "armijo"))
    if step == "theory" and debias == "none" and sampler is not None:
        raise ValueError("step 'theory' holds for debiased weights, got debias 'none'")
    max_iter = check_integer("max_iter", max_iter, minimum=1)
    tol = check_real("tol", tol, minimum=0)
    refresh = check_integer("refresh", refresh, minimum=1)
    rng = as_generator(random_state)
    start = time.perf_counter()
    try:
        value, gradient = problem.value(b), problem.gradient(b)
    except ValueError as error:
        raise ValueError(f"x0 does not fit the problem: {error}") from error
    target = tol * max(1.0, float(np.linalg.norm(gradient)))
    fitted: Any = None
    history: list[dict[str, float]] = []
    converged = float(np.linalg.norm(gradient)) <= target
    while not converged and len(history) < max_iter:
        A, C = problem.hessian(b)
        about: dict[str, float] = {}
        if sampler is None:
            lower = factor(A.gram(), C, SINGULAR)
            direction = -np.asarray(linalg.cho_solve((lower, True), gradient))
        else:
            fitted = sampler.fit(A, C, rng) if len(history) % refresh == 0 else fitted.moved(A)
            # A fresh sketch each step: the same one again would make its error a systematic one.
            sketch = fitted.sample(rng, debias=debias)
            direction = -solver(sketch.SA, C)(gradient)
            if debias != "none":
                about = {"d_eff": fitted.d_eff_, "rho_max": fitted.rho_max_}
        mu = fixed if fixed is not None else _theory(sampler, about)
        if step == "armijo":
            line = problem.along(b, direction)
            slope = float(gradient @ direction)
            # What rounding hides cannot be asked for.
            slack = 4 * np.finfo(np.float64).eps * max(1.0, abs(value))
            for _ in range(_HALVINGS):
                value_there = line(mu)
                if value_there <= value + _ARMIJO * mu * slope + slack:
                    break
                mu /= 2
        b = b + mu * direction
        value, gradient = problem.value(b), problem.gradient(b)
        norm = float(np.linalg.norm(gradient))
        seconds = time.perf_counter() - start
        history.append({"fun": value, "grad_norm": norm, "step": mu, "seconds": seconds, **about})
        converged = norm <= target
        try:
            if callback is not None:
                callback(b)
        except StopIteration:
            break
        if not np.isfinite(norm):
            break
    result: dict[str, Any] = {
        "x": b,
        "fun": value,
        "jac": gradient,
        "nit": len(history),
        "success": converged,
        "status": 0 if converged else 1,
        "message": f"gradient below {target:.3g}"
        if converged
        else f"not converged after {len(history)} step(s)",
        "history": history,
    }
    return OptimizeResult(**result)


def _theory(sampler: Sampler | None, about: dict[str, float]) -> float:
    if sampler is None or not about:
        return 1.0
    return 1 - about["rho_max"] / (sampler.m / about["d_eff"] + about["rho_max"])
