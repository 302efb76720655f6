r"""The dual of a Kullback-Leibler ball, and the programmes that minimise it.

.. math:: \sup_{KL(Q\|P) \le r} E_Q f = \inf_{\gamma \ge 0}\; \gamma r + \gamma \log E_P e^{f/\gamma}

Three ways to minimise the right side over decisions: a search in one dimension, exponential cones, and for
a linear cost under a normal law a second-order cone programme without samples.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from theses.decision.bayesian_ambiguity.costs import Cost, load_cvxpy
from theses.validation import check_array, check_real

__all__ = ["Solution", "WorstCase", "minimise", "minimise_linear_gaussian", "worst_case_expectation"]

Array = NDArray[np.float64]
Constraints = Callable[[Any], list[Any]] | tuple[Any, Any] | None


@dataclass(frozen=True)
class WorstCase:
    """Worst expectation over a Kullback-Leibler ball.

    Parameters
    ----------
    value : float
        The expectation.
    gamma : float
        Multiplier of the radius at the optimum: 0 if the largest cost is reached, infinity at radius 0.
    weights : ndarray of shape (n,)
        The worst law, proportional to ``probabilities * exp(costs / gamma)``.

    References
    ----------
    arXiv:2411.16829, Section 4.

    Examples
    --------
    >>> worst_case_expectation([1.0, 2.0], 0.0)
    WorstCase(value=1.5, gamma=inf, weights=array([0.5, 0.5]))
    """

    value: float
    gamma: float
    weights: Array


def worst_case_expectation(costs: Any, radius: float, probabilities: Any = None) -> WorstCase:
    r"""Largest expectation of costs over laws within a Kullback-Leibler ball, by its dual.

    .. math:: \inf_{\gamma \ge 0}\; \gamma r + \gamma \log \sum_i p_i e^{f_i/\gamma}

    The optimal :math:`\gamma` is where the tilted law has divergence r, found by a guarded Newton iteration
    in :math:`1/\gamma`; O(n) an iteration, five or so of them.

    Parameters
    ----------
    costs : array-like of shape (n,)
        Costs at the atoms of the centre.
    radius : float
        Radius r of the ball, at least 0.
    probabilities : array-like of shape (n,), optional
        Law at the centre; uniform without it.

    Returns
    -------
    WorstCase
        Value, multiplier, worst law.

    Raises
    ------
    ValueError
        If the radius is negative, or probabilities are not positive and sum to 1.

    References
    ----------
    arXiv:2411.16829, Section 4; Hu and Hong (2013), Kullback-Leibler divergence constrained DRO.

    Examples
    --------
    >>> worst = worst_case_expectation([0.0, 1.0], 0.1)
    >>> round(worst.value, 4), worst.weights.round(4).tolist()
    (0.7198, [0.2802, 0.7198])
    """
    values = check_array("costs", costs, ndim=1)
    radius = check_real("radius", radius, minimum=0)
    p = None if probabilities is None else _check_probabilities(probabilities, len(values))
    value, beta, weights = tilt(values[None], radius, p)
    return WorstCase(float(value[0]), _inverse(beta[0]), weights[0])


def _check_probabilities(probabilities: Any, n: int) -> Array:
    p = check_array("probabilities", probabilities, ndim=1)
    if len(p) != n:
        raise ValueError(f"probabilities and costs must have the same length, got {len(p)} and {n}")
    if (p <= 0).any() or abs(p.sum() - 1) > 1e-8:
        raise ValueError(f"probabilities must be positive and sum to 1, got sum {p.sum()}")
    return p


def _inverse(beta: float) -> float:
    if beta == 0:
        return float("inf")
    return 0.0 if np.isinf(beta) else float(1 / beta)


def tilt(
    costs: Array, radius: float, probabilities: Array | None = None, start: Array | None = None
) -> tuple[Array, Array, Array]:
    r"""Worst expectations of several vectors of costs at once.

    With :math:`\Lambda(\beta) = \log\sum p_i e^{\beta f_i}` the tilted law has divergence
    :math:`\beta\Lambda' - \Lambda`, which grows with :math:`\beta = 1/\gamma`. Its root is nearly linear in
    :math:`\beta`, so Newton's iteration is on the root.

    Parameters
    ----------
    costs : ndarray of shape (m, n)
        A ball for each row.
    radius : float
        Radius of all balls.
    probabilities : ndarray of shape (n,), optional
        Law at the centres; uniform without it.
    start : ndarray of shape (m,), optional
        First guess of :math:`\beta`, from a neighbouring decision.

    Returns
    -------
    tuple of ndarray
        Values (m,), :math:`\beta` (m,), worst laws (m, n).
    """
    p: Any = 1 / costs.shape[1] if probabilities is None else probabilities
    largest = costs.max(axis=1)
    # Costs less their maximum: no exponential overflows, whatever beta.
    g = costs - largest[:, None]
    span = np.maximum(-g.min(axis=1), 1e-300)
    mean = (p * g).sum(axis=1)
    # By the span first, so that the square of no cost overflows or vanishes.
    scale = span * np.sqrt((p * ((g - mean[:, None]) / span[:, None]) ** 2).sum(axis=1))
    base = np.broadcast_to(np.asarray(p), g.shape)
    # Constant costs up to rounding leave nothing to tilt.
    flat = scale <= 1e-14 * np.maximum(np.abs(largest), 1e-300)
    if radius == 0 or flat.all():
        return largest + mean, np.zeros(len(g)), base.copy()
    top = g == 0
    saturated = radius >= -np.log((base * top).sum(axis=1)) * (1 - 1e-12)
    g /= np.where(flat, 1.0, scale)[:, None]
    low, high = np.zeros(len(g)), np.full(len(g), np.inf)
    root = np.sqrt(2 * radius)
    beta = np.full(len(g), root) if start is None else np.where(start > 0, start * scale, root)
    fixed = flat | saturated
    beta[fixed] = 1.0
    for _ in range(100):
        e = p * np.exp(beta[:, None] * g)
        total = e.sum(axis=1)
        first = (e * g).sum(axis=1) / total
        variance = np.maximum((e * g * g).sum(axis=1) / total - first**2, 0)
        log_total = np.log(total)
        divergence = np.maximum(beta * first - log_total, 0)
        below = divergence < radius
        low, high = np.where(below, beta, low), np.where(below, high, beta)
        with np.errstate(divide="ignore", invalid="ignore"):
            s = np.sqrt(2 * divergence)
            step = beta - (s - root) * s / (beta * variance)
            inside = (step > low) & (step < high)
        fallback = np.where(np.isinf(high), 4 * beta, 0.5 * (low + np.minimum(high, 1e300)))
        step = np.where(inside, step, fallback)
        done = fixed | (np.abs(step - beta) <= 1e-10 * beta)
        if done.all():
            break
        beta = np.where(fixed, beta, np.minimum(step, 1e150))
    # Any beta gives an upper bound, and at the optimum the error is of second order in beta.
    value = largest + scale * (radius + log_total) / beta
    weights = e / total[:, None]
    if fixed.any():
        value = np.where(flat, largest + mean, np.where(saturated, largest, value))
        weights[flat] = base[flat]
        rows = saturated & ~flat
        weights[rows] = (base * top)[rows] / (base * top)[rows].sum(axis=1, keepdims=True)
    beta = np.where(flat, 0.0, np.where(saturated, np.inf, beta / np.where(flat, 1.0, scale)))
    return value, beta, weights


@dataclass(frozen=True)
class Solution:
    """What a programme found.

    Parameters
    ----------
    x : ndarray of shape (dim,) or None
        Decision; None if there is none.
    value : float
        Worst-case value there, infinite where there is no decision.
    beta : ndarray of shape (m,)
        Inverse multipliers of the balls.
    weights : ndarray of shape (m, n)
        Worst laws.
    status : str
        ``"optimal"``, ``"infeasible"``, ``"unbounded"``, or what the solver said.
    solver_time : float
        Seconds in the solver, without modelling.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.decision.bayesian_ambiguity import Newsvendor
    >>> minimise(Newsvendor(), np.array([[[1.0], [2.0], [9.0]]]), 0.0).x.round(4).tolist()
    [9.0]
    """

    x: Any
    value: float
    beta: Array
    weights: Array
    status: str
    solver_time: float


def minimise(
    cost: Cost,
    samples: Array,
    radius: float,
    *,
    probabilities: Array | None = None,
    constraints: Constraints = None,
    solver: str = "CLARABEL",
    force_cones: bool = False,
) -> Solution:
    r"""Decision of least worst-case expectation, averaged over balls around several samples.

    .. math:: \min_x \frac1m\sum_j \inf_{\gamma_j \ge 0}\; \gamma_j r + \gamma_j
       \log\sum_i p_i e^{f_x(\xi_{ji})/\gamma_j}

    One ball is DRO-BAS, several are Bayesian DRO with a :math:`\gamma` each.

    Parameters
    ----------
    cost : Cost
        The cost.
    samples : ndarray of shape (m, n, d)
        Outcomes, a row of balls.
    radius : float
        Radius of each ball; at 0 the mean cost is minimised.
    probabilities : ndarray of shape (n,), optional
        Weights of the outcomes in a ball; uniform without it.
    constraints : callable or pair, optional
        ``constraints(x)`` gives cvxpy constraints; a pair ``(low, high)`` are bounds.
    solver : str, default="CLARABEL"
        Conic solver of cvxpy.
    force_cones : bool, default=False
        Take the conic programme where a search in one dimension would do.

    Returns
    -------
    Solution
        The decision.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.decision.bayesian_ambiguity import Newsvendor
    >>> outcomes = np.linspace(0.0, 10.0, 11)[None, :, None]
    >>> [round(float(minimise(Newsvendor(1, 2), outcomes, r).x[0]), 2) for r in (0.0, 100.0)]
    [7.0, 6.67]
    """
    if not cost.convex:
        raise ValueError("cost must be convex in the decision, got one that is declared not to be")
    values = check_array("samples", samples, ndim=3)
    cost._check_outcomes(values[0])
    radius = check_real("radius", radius, minimum=0)
    box = _box(constraints, cost.dim or values.shape[2])
    searchable = (cost.dim or values.shape[2]) == 1 and not cost.constrained and not callable(constraints)
    if searchable and not force_cones:
        return _search(cost, values, radius, probabilities, box)
    return _cones(cost, values, radius, probabilities, constraints, box, solver)


def _box(constraints: Constraints, dim: int) -> tuple[Array, Array] | None:
    if constraints is None or callable(constraints):
        return None
    if not isinstance(constraints, tuple) or len(constraints) != 2:
        raise TypeError(f"constraints must be callable or a pair of bounds, got {type(constraints).__name__}")
    low, high = (
        np.broadcast_to(check_array("constraints", bound, ndim=(0, 1)), (dim,)) for bound in constraints
    )
    return low, high


def _search(
    cost: Cost,
    samples: Array,
    radius: float,
    probabilities: Array | None,
    box: tuple[Array, Array] | None,
) -> Solution:
    """Brent's search in a decision of one dimension; the inner problem is exact at each."""
    began = time.perf_counter()
    m, n, d = samples.shape
    flat = samples.reshape(m * n, d)
    last: list[Array | None] = [None]

    def inner(x: float) -> tuple[Array, Array, Array]:
        return tilt(cost._evaluate(np.array([x]), flat).reshape(m, n), radius, probabilities, last[0])

    def objective(x: float) -> float:
        value, beta, _ = inner(x)
        last[0] = np.where(np.isfinite(beta), beta, 0.0)
        return float(value.mean())

    bracket = cost._bracket(samples)
    if box is not None:
        low, high = float(box[0][0]), float(box[1][0])
        if low > high:
            return Solution(None, np.inf, np.full(m, np.nan), np.full((m, n), 1 / n), "infeasible", 0.0)
        # A convex function's best point in the box is the nearest to its best point anywhere.
        bracket = (
            (low, high)
            if bracket is None
            else (min(max(bracket[0], low), high), max(min(bracket[1], high), low))
        )
    elif bracket is None:
        bracket = _expand(objective, float(cost._start(flat)[0]))
        if bracket is None:
            empty = np.full((m, n), 1 / n)
            return Solution(
                None, -np.inf, np.full(m, np.nan), empty, "unbounded", time.perf_counter() - began
            )
    low, high = bracket
    if not cost.surely_convex:
        _check_convex(objective, low, high)
    x = low
    if high > low:
        found = minimize_scalar(
            objective, bounds=(low, high), method="bounded", options={"xatol": 1e-8 * (high - low)}
        )
        # The search stays off the ends, which a box may make best.
        x = float(min((float(found.x), low, high), key=objective))
    value, beta, weights = inner(x)
    elapsed = time.perf_counter() - began
    return Solution(np.array([x]), float(value.mean()), beta, weights, "optimal", elapsed)


def _expand(objective: Callable[[float], float], start: float) -> tuple[float, float] | None:
    """Interval around the minimum of a convex function, None if it falls without end."""
    step = max(abs(start), 1.0)
    ends = []
    for sign in (-1.0, 1.0):
        near, width = objective(start), step
        for _ in range(60):
            far = objective(start + sign * width)
            if far > near:
                break
            near, width = far, 2 * width
        else:
            # A plateau has no end either, but does not fall.
            if near < objective(start) - 1e-9 * abs(objective(start)):
                return None
        ends.append(start + sign * width)
    return ends[0], ends[1]


def _check_convex(objective: Callable[[float], float], low: float, high: float) -> None:
    if high <= low:
        return
    values = [objective(x) for x in np.linspace(low, high, 9)]
    slack = 1e-7 * (max(values) - min(values)) + 1e-12 * max(abs(v) for v in values)
    if any(2 * b > a + c + slack for a, b, c in zip(values, values[1:], values[2:], strict=False)):
        raise ValueError(f"cost must be convex in the decision, got one that is not between {low} and {high}")


def _cones(
    cost: Cost,
    samples: Array,
    radius: float,
    probabilities: Array | None,
    constraints: Constraints,
    box: tuple[Array, Array] | None,
    solver: str,
) -> Solution:
    """The perspective of log-sum-exp as exponential cones, one multiplier a ball."""
    cp = load_cvxpy()
    m, n, d = samples.shape
    flat = samples.reshape(m * n, d)
    p = np.full(n, 1 / n) if probabilities is None else probabilities
    x = cp.Variable(cost.dim or d)
    # Cones are solved in costs of unit spread; the value is put back below.
    spread = float(np.std(cost._evaluate(cost._start(flat), flat))) or 1.0
    expression = cost._cvx(x, flat)
    if not expression.is_convex():
        raise ValueError(
            f"cost must be convex by cvxpy's rules, got an expression of {expression.curvature} curvature"
        )
    limits = _limits(cost, x, constraints, box)
    ball_of = np.repeat(np.eye(m), n, axis=0)
    status, seconds = "", 0.0
    for factor, settings in _attempts(solver):
        costs = expression / (factor * spread)
        if radius == 0:
            problem = cp.Problem(cp.Minimize(np.tile(p, m) @ costs / m), limits)
        else:
            gamma, t = cp.Variable(m, nonneg=True), cp.Variable(m)
            z = cp.Variable(m * n)
            # Arguments of a cone must be affine; other costs come in by their epigraph.
            e = costs if costs.is_affine() else cp.Variable(m * n)
            cones = [cp.ExpCone(e - ball_of @ t, ball_of @ gamma, z)]
            epigraph = [] if costs.is_affine() else [e >= costs]
            totals = (ball_of * np.tile(p, m)[:, None]).T @ z <= gamma
            objective = cp.Minimize(cp.sum(t + radius * gamma) / m)
            problem = cp.Problem(objective, [*cones, *epigraph, totals, *limits])
        status, more = _run(problem, solver, settings)
        seconds += more
        if status in ("optimal", "infeasible", "unbounded"):
            break

    def exact(decision: Array) -> tuple[float, Array, Array]:
        # The value at a decision is exact, whatever the solver's tolerance.
        values, beta, weights = tilt(cost._evaluate(decision, flat).reshape(m, n), radius, probabilities)
        return float(values.mean()), beta, weights

    if radius > 0 and not expression.is_affine() and status not in ("infeasible", "unbounded"):
        start = cost._start(flat) if x.value is None else np.asarray(x.value, dtype=np.float64)
        settled, decision, more = _cut(exact, x, expression / spread, spread, limits, start, solver)
        seconds += more
        if settled or status.startswith("optimal"):
            status = "optimal" if settled else "optimal_inaccurate"
            return Solution(decision, *exact(decision), status, seconds)
    if x.value is None or status not in ("optimal", "optimal_inaccurate"):
        value = -np.inf if "unbounded" in status else np.inf
        return Solution(None, value, np.full(m, np.nan), np.full((m, n), 1 / n), status, seconds)
    decision = np.asarray(x.value, dtype=np.float64)
    return Solution(decision, *exact(decision), status, seconds)


def _cut(
    exact: Callable[[Array], tuple[float, Array, Array]],
    x: Any,
    costs: Any,
    unit: float,
    limits: list[Any],
    start: Array,
    solver: str,
    tolerance: float = 1e-4,
    rounds: int = 40,
) -> tuple[bool, Array, float]:
    """Settle a decision by cutting planes, since CLARABEL at times calls a decision optimal that is not.

    The worst-case cost is the largest expected cost over the laws of the set; over those that were worst for
    the decisions so far it is a lower bound, and a programme without exponential cones. CLARABEL's own error
    there is up to some 1e-5, hence the tolerance; the cones are as a rule far closer.
    """
    cp = load_cvxpy()
    decision, best, seconds = start, np.inf, 0.0
    trial, laws = start, []
    t, e = cp.Variable(), cp.Variable(costs.shape[0])
    for _ in range(rounds):
        value, _, weights = exact(trial)
        if value < best:
            best, decision = value, trial
        laws.append(weights.reshape(-1) / len(weights))
        problem = cp.Problem(cp.Minimize(t), [np.array(laws) @ e <= t, e >= costs, *limits])
        status, more = _run(problem, solver)
        seconds += more
        slack = tolerance * max(abs(best), unit)
        # A lower bound above what has been reached is none.
        if status != "optimal" or float(t.value) * unit > best + slack:
            return False, decision, seconds
        if best - float(t.value) * unit <= slack:
            return True, decision, seconds
        trial = np.asarray(x.value, dtype=np.float64)
    return False, decision, seconds


def minimise_linear_gaussian(
    mean: Array,
    cov: Array,
    radius: float,
    cost: Cost,
    *,
    constraints: Constraints = None,
    solver: str = "CLARABEL",
) -> Solution:
    r"""Weights of least worst-case loss around a normal law, in closed form.

    .. math:: \min_x\; -m^\top x + \sqrt{2 r\, x^\top S x}

    Parameters
    ----------
    mean : ndarray of shape (d,)
        Mean m of the nominal law.
    cov : ndarray of shape (d, d)
        Its covariance S.
    radius : float
        Radius r of the ball.
    cost : Cost
        Whose own constraints hold where none are given.
    constraints : callable or pair, optional
        As for :func:`minimise`.
    solver : str, default="CLARABEL"
        Conic solver of cvxpy.

    Returns
    -------
    Solution
        The weights; the worst law is normal with mean :math:`m - S x/\gamma`.

    Examples
    --------
    >>> import numpy as np
    >>> from theses.decision.bayesian_ambiguity import Portfolio
    >>> found = minimise_linear_gaussian(np.zeros(2), np.diag([1.0, 4.0]), 0.5, Portfolio())
    >>> found.x.round(3).tolist(), round(found.value, 3)
    ([0.8, 0.2], 0.894)
    """
    cp = load_cvxpy()
    m = check_array("mean", mean, ndim=1)
    S = check_array("cov", cov, ndim=2)
    if S.shape != (len(m), len(m)):
        raise ValueError(f"cov must have shape {(len(m), len(m))}, got {S.shape}")
    radius = check_real("radius", radius, minimum=0)
    x = cp.Variable(len(m))
    root = np.linalg.cholesky(S)
    unit = float(np.sqrt(np.trace(S) / len(m)))
    loss = -(m / unit) @ x + np.sqrt(2 * radius) * cp.norm(root.T / unit @ x, 2)
    problem = cp.Problem(cp.Minimize(loss), _limits(cost, x, constraints, _box(constraints, len(m))))
    status, seconds = _run(problem, solver)
    if x.value is None or status not in ("optimal", "optimal_inaccurate"):
        value = -np.inf if "unbounded" in status else np.inf
        return Solution(None, value, np.full(1, np.nan), np.empty((1, 0)), status, seconds)
    decision = np.asarray(x.value, dtype=np.float64)
    spread = float(np.sqrt(decision @ S @ decision))
    value = float(-m @ decision + np.sqrt(2 * radius) * spread)
    beta = np.array([np.sqrt(2 * radius) / spread if spread else 0.0])
    return Solution(decision, value, beta, np.empty((1, 0)), status, seconds)


def _limits(cost: Cost, x: Any, constraints: Constraints, box: tuple[Array, Array] | None) -> list[Any]:
    if constraints is None:
        return cost._default_constraints(x)
    if box is not None:
        return [x >= box[0], x <= box[1], *cost._default_constraints(x)]
    assert callable(constraints)
    return list(constraints(x))


def _attempts(solver: str) -> list[tuple[float, dict[str, Any]]]:
    """Units of cost and settings to try in turn.

    With some hundreds of cones CLARABEL's full steps at times end without progress; shorter ones do not.
    """
    if solver != "CLARABEL":
        return [(1.0, {}), (5.0, {})]
    return [(1.0, {}), (1.0, {"max_step_fraction": 0.8}), (5.0, {"max_step_fraction": 0.8})]


def _run(problem: Any, solver: str, settings: dict[str, Any] | None = None) -> tuple[str, float]:
    cp = load_cvxpy()
    if not problem.is_dcp():
        raise ValueError("constraints must keep to cvxpy's rules of convexity, got ones that do not")
    try:
        with warnings.catch_warnings():
            # An inaccurate solution is tried again, and said in the status.
            warnings.filterwarnings("ignore", "Solution may be inaccurate")
            problem.solve(solver=solver, **(settings or {}))
    except cp.error.SolverError as error:
        return f"failed: {error}", 0.0
    stats = problem.solver_stats
    seconds = 0.0 if stats is None or stats.solve_time is None else float(stats.solve_time)
    return str(problem.status), seconds
