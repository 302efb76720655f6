"""What DRO-BAS is held against, behind the same interface."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from theses.decision.bayesian_ambiguity.costs import Cost, Newsvendor, load_cvxpy
from theses.decision.bayesian_ambiguity.dual import (
    Constraints,
    Solution,
    _box,
    _limits,
    _run,
    minimise,
)
from theses.decision.bayesian_ambiguity.models import ConjugateModel
from theses.decision.bayesian_ambiguity.robust import (
    FINITE,
    Decision,
    EmptyAmbiguitySetError,
    ModelSolver,
    Solver,
    _check_cost,
    _check_model,
    decide,
)
from theses.validation import as_generator, check_array, check_integer, check_real

__all__ = ["BDRO", "BRO", "EmpiricalKLDRO", "WassersteinDRO", "frontier", "out_of_sample_costs"]

Array = NDArray[np.float64]
RandomState = int | np.random.Generator | None


class BRO(ModelSolver):
    r"""Bayesian risk optimisation: the least posterior expectation of the expected cost.

    .. math:: \min_x E_\Pi E_{P_\theta} f_x(\xi) = \min_x E_{pred} f_x(\xi)

    Parameters
    ----------
    model : ConjugateModel
        Model with its prior.
    n_samples : int, default=900
        Draws from the predictive law; models with finitely many outcomes need none.
    solver : str, default="CLARABEL"
        Conic solver of cvxpy.
    random_state : int, Generator or None, default=None
        Randomness of the draws.

    References
    ----------
    Wu, Zhu and Zhou (2018), A Bayesian risk approach to data-driven stochastic optimization;
    arXiv:2411.16829, Section 2.

    Examples
    --------
    >>> from theses.decision.bayesian_ambiguity import BetaBernoulli
    >>> decision = BRO(BetaBernoulli(1, 1)).fit([1, 1, 0]).solve(Newsvendor(h=1, b=3))
    >>> round(float(decision.x[0]), 3), decision.method
    (1.0, 'exact')
    """

    def __init__(
        self,
        model: ConjugateModel,
        n_samples: int = 900,
        solver: str = "CLARABEL",
        random_state: RandomState = None,
    ) -> None:
        self.model = _check_model(model)
        self.n_samples = check_integer("n_samples", n_samples, minimum=1)
        self.solver = solver
        self.random_state = random_state

    def solve(self, cost: Cost, constraints: Constraints = None) -> Decision:
        """Decision of least posterior expected cost.

        Parameters
        ----------
        cost : Cost
            Convex cost.
        constraints : callable or pair, optional
            As for :meth:`DROBAS.solve`.

        Returns
        -------
        Decision
            The decision, with radius 0.
        """
        began = time.perf_counter()
        _check_cost(cost)
        model = self._fitted()
        probabilities, method = None, "samples"
        if isinstance(model, FINITE):
            outcomes, probabilities = model.atoms(predictive=True)
            method = "exact"
        else:
            outcomes = model.predictive(self.n_samples, self.random_state)
        found = minimise(
            cost,
            outcomes[None],
            0.0,
            probabilities=probabilities,
            constraints=constraints,
            solver=self.solver,
        )
        self.decision_ = decide(
            found, outcomes[None], nominal=None, began=began, epsilon=0.0, radius=0.0, method=method
        )
        return self.decision_


class BDRO(ModelSolver):
    r"""Bayesian distributionally robust optimisation: a ball around each parameter, averaged.

    .. math:: \min_x E_\Pi \sup_{KL(Q\|P_\theta)\le\epsilon} E_Q f_x \approx \min_x \frac1{N_\theta}\sum_j
       \inf_{\gamma_j}\; \gamma_j\epsilon + \gamma_j\log\frac1{N_\xi}\sum_k e^{f_x(\xi_{jk})/\gamma_j}

    Parameters
    ----------
    model : ConjugateModel
        Model with its prior.
    epsilon : float, default=0.5
        Radius of each ball.
    n_theta, n_xi : int, default=30
        Draws of the parameter, and of outcomes for each.
    solver : str, default="CLARABEL"
        Conic solver of cvxpy.
    random_state : int, Generator or None, default=None
        Randomness of the draws.

    References
    ----------
    Shapiro, Zhou and Lin (2023), Bayesian distributionally robust optimization; arXiv:2411.16829, Section 2.

    Examples
    --------
    >>> from theses.decision.bayesian_ambiguity import BDRO, Newsvendor, NormalGamma
    >>> peer = BDRO(NormalGamma(0, 0.01, 1, 1), 0.5, 10, 10, random_state=0).fit([21.0, 30.0, 24.0])
    >>> peer.solve(Newsvendor()).samples.shape
    (100, 1)
    """

    def __init__(
        self,
        model: ConjugateModel,
        epsilon: float = 0.5,
        n_theta: int = 30,
        n_xi: int = 30,
        solver: str = "CLARABEL",
        random_state: RandomState = None,
    ) -> None:
        self.model = _check_model(model)
        self.epsilon = check_real("epsilon", epsilon, minimum=0)
        self.n_theta = check_integer("n_theta", n_theta, minimum=1)
        self.n_xi = check_integer("n_xi", n_xi, minimum=1)
        self.solver = solver
        self.random_state = random_state

    def solve(self, cost: Cost, constraints: Constraints = None) -> Decision:
        """Decision of least average worst-case cost.

        Parameters
        ----------
        cost : Cost
            Convex cost.
        constraints : callable or pair, optional
            As for :meth:`DROBAS.solve`.

        Returns
        -------
        Decision
            The decision; ``gamma`` is the mean of the multipliers.
        """
        began = time.perf_counter()
        _check_cost(cost)
        model, generator = self._fitted(), as_generator(self.random_state)
        outcomes = model._draw(model._sample_posterior(self.n_theta, generator), self.n_xi, generator)
        found = minimise(cost, outcomes, self.epsilon, constraints=constraints, solver=self.solver)
        self.decision_ = decide(
            found,
            outcomes,
            nominal=None,
            began=began,
            epsilon=self.epsilon,
            radius=self.epsilon,
            method="samples",
        )
        return self.decision_


class _DataSolver(Solver):
    """A method without a model."""

    def fit(self, data: Any) -> Any:
        """Take the observations.

        Parameters
        ----------
        data : array-like of shape (n,) or (n, dim)
            Observations, one at least.

        Returns
        -------
        object
            This object.
        """
        values = check_array("data", data, ndim=(1, 2))
        self.data_: Array = values.reshape(len(values), -1)
        return self

    def _fitted(self) -> Array:
        if not hasattr(self, "data_"):
            raise ValueError("fit has to be called first")
        return self.data_


class EmpiricalKLDRO(_DataSolver):
    r"""Worst case over a Kullback-Leibler ball around the observations themselves.

    .. math:: \min_x \sup_{KL(Q\|P_n) \le \epsilon} E_Q f_x(\xi)

    Parameters
    ----------
    epsilon : float, default=0.5
        Radius.
    solver : str, default="CLARABEL"
        Conic solver of cvxpy.

    References
    ----------
    Hu and Hong (2013), Kullback-Leibler divergence constrained distributionally robust optimization.

    Examples
    --------
    >>> decision = EmpiricalKLDRO(0.1).fit([21.0, 30.0, 24.0]).solve(Newsvendor())
    >>> bool(24 < decision.x[0] < 30)
    True
    """

    def __init__(self, epsilon: float = 0.5, solver: str = "CLARABEL") -> None:
        self.epsilon = check_real("epsilon", epsilon, minimum=0)
        self.solver = solver

    def solve(self, cost: Cost, constraints: Constraints = None) -> Decision:
        """Decision of least worst-case cost.

        Parameters
        ----------
        cost : Cost
            Convex cost.
        constraints : callable or pair, optional
            As for :meth:`DROBAS.solve`.

        Returns
        -------
        Decision
            The decision.
        """
        began = time.perf_counter()
        _check_cost(cost)
        outcomes = self._fitted()[None]
        found = minimise(cost, outcomes, self.epsilon, constraints=constraints, solver=self.solver)
        self.decision_ = decide(
            found,
            outcomes,
            nominal=None,
            began=began,
            epsilon=self.epsilon,
            radius=self.epsilon,
            method="samples",
        )
        return self.decision_


class WassersteinDRO(_DataSolver):
    r"""Worst case over a ball of the 1-Wasserstein distance around the observations.

    For a cost that is convex and Lipschitz in the outcome on the whole space, the supremum has a closed form,

    .. math:: \sup_{W_1(Q, P_n) \le \epsilon} E_Q f_x = \frac1n\sum_i f_x(\xi_i) + \epsilon\,Lip(f_x),

    with the Euclidean norm. The Newsvendor's constant does not depend on x, so that its decision is that of
    the observations at every radius.

    Parameters
    ----------
    epsilon : float, default=0.5
        Radius, in the units of an outcome.
    solver : str, default="CLARABEL"
        Conic solver of cvxpy.

    References
    ----------
    Mohajerin Esfahani and Kuhn (2018), Data-driven distributionally robust optimization using the
    Wasserstein metric, Theorem 6.3 and Remark 6.7.

    Examples
    --------
    >>> decision = WassersteinDRO(1.0).fit([21.0, 30.0, 24.0]).solve(Newsvendor(h=3, b=8))
    >>> round(float(decision.x[0]), 2), round(decision.value, 2)
    (30.0, 23.0)
    """

    def __init__(self, epsilon: float = 0.5, solver: str = "CLARABEL") -> None:
        self.epsilon = check_real("epsilon", epsilon, minimum=0)
        self.solver = solver

    def solve(self, cost: Cost, constraints: Constraints = None) -> Decision:
        """Decision of least worst-case cost.

        Parameters
        ----------
        cost : Cost
            Convex cost with a known Lipschitz constant in the outcome.
        constraints : callable or pair, optional
            As for :meth:`DROBAS.solve`.

        Returns
        -------
        Decision
            The decision; the weights are those of the observations, since the worst law may not exist.
        """
        began = time.perf_counter()
        _check_cost(cost)
        data = self._fitted()
        dim = cost.dim or data.shape[1]
        if isinstance(cost, Newsvendor):
            found = minimise(cost, data[None], 0.0, constraints=constraints, solver=self.solver)
            value, x = found.value + self.epsilon * float(cost._lipschitz(None)), found.x
            status, seconds = found.status, found.solver_time
        else:
            cp = load_cvxpy()
            variable = cp.Variable(dim)
            # The mean of a linear loss is the loss at the mean, but a custom cost need not be linear.
            loss = cp.sum(cost._cvx(variable, data)) / len(data) + self.epsilon * cost._lipschitz(variable)
            problem = cp.Problem(
                cp.Minimize(loss), _limits(cost, variable, constraints, _box(constraints, dim))
            )
            status, seconds = _run(problem, self.solver)
            x = None if variable.value is None else np.asarray(variable.value, dtype=np.float64)
            value = float(problem.value) if x is not None else (-np.inf if "unbounded" in status else np.inf)
        equal = np.full((1, len(data)), 1 / len(data))
        self.decision_ = decide(
            Solution(x, value, np.zeros(1), equal, status, seconds),
            data[None],
            nominal=None,
            began=began,
            epsilon=self.epsilon,
            radius=self.epsilon,
            method="closed form",
        )
        return self.decision_


Factory = Callable[[float, np.random.Generator], Solver]


def out_of_sample_costs(
    methods: Mapping[str, Factory],
    epsilons: Any,
    data_generator: Callable[[np.random.Generator], tuple[Any, Any]],
    n_rep: int,
    cost: Cost | None = None,
    random_state: RandomState = None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Costs of the methods' decisions at fresh outcomes; all see the same data and the same outcomes.

    Parameters
    ----------
    methods : mapping of str to callable
        ``factory(epsilon, generator)`` makes a method; one that refuses the radius (PE below G) is left out
        there.
    epsilons : array-like of shape (n_epsilons,)
        Radii.
    data_generator : callable
        ``data_generator(generator)`` gives observations and fresh outcomes to judge by.
    n_rep : int
        Repetitions.
    cost : Cost, optional
        The cost; the Newsvendor of one good without it.
    random_state : int, Generator or None, default=None
        Randomness.

    Returns
    -------
    costs : dict of str to ndarray of shape (n_epsilons, n_rep, n_test)
        Costs by method; NaN where a method has no decision.
    seconds : dict of str to ndarray of shape (n_epsilons, n_rep)
        Seconds of each solve.

    References
    ----------
    arXiv:2411.16829, Section 6.

    Examples
    --------
    >>> def data(generator):
    ...     return generator.normal(25, 10, 20), generator.normal(25, 10, 50)
    >>> from theses.decision.bayesian_ambiguity import NormalGamma
    >>> bro = {"BRO": lambda epsilon, generator: BRO(NormalGamma(), 25, random_state=generator)}
    >>> out_of_sample_costs(bro, [0.0], data, 2, random_state=0)[0]["BRO"].shape
    (1, 2, 50)
    """
    cost = Newsvendor() if cost is None else cost
    radii = check_array("epsilons", epsilons, ndim=1)
    if (radii < 0).any():
        raise ValueError(f"epsilons must not be negative, got {radii.min()}")
    n_rep = check_integer("n_rep", n_rep, minimum=1)
    if not methods:
        raise ValueError("methods must not be empty")
    generator = as_generator(random_state)
    judged: dict[str, list[list[Array]]] = {name: [[] for _ in radii] for name in methods}
    seconds = {name: np.full((len(radii), n_rep), np.nan) for name in methods}
    for rep in range(n_rep):
        data, fresh = data_generator(generator)
        outcomes = check_array("data_generator's outcomes", fresh, ndim=(1, 2))
        outcomes = outcomes.reshape(len(outcomes), -1)
        # One number a repetition, so that the data do not depend on which methods are compared.
        base = int(generator.integers(2**32))
        for i, epsilon in enumerate(radii):
            for place, (name, factory) in enumerate(methods.items()):
                # The same draws at all radii: a frontier then shows the radius, not the draws.
                method = factory(float(epsilon), np.random.default_rng([base, place]))
                costs = np.full(len(outcomes), np.nan)
                try:
                    method.fit(data)
                except EmptyAmbiguitySetError:
                    # Nothing is decided at this radius: the costs stay NaN.
                    judged[name][i].append(costs)
                    continue
                decision = method.solve(cost)
                seconds[name][i, rep] = decision.solve_time
                if decision.x is not None:
                    costs = cost._evaluate(decision.x, outcomes)
                judged[name][i].append(costs)
    return {name: np.array(rows) for name, rows in judged.items()}, seconds


def frontier(
    methods: Mapping[str, Factory],
    epsilons: Any,
    data_generator: Callable[[np.random.Generator], tuple[Any, Any]],
    n_rep: int,
    cost: Cost | None = None,
    random_state: RandomState = None,
) -> pl.DataFrame:
    """Mean and variance of the methods' out-of-sample costs over a grid of radii.

    Parameters
    ----------
    methods : mapping of str to callable
        ``factory(epsilon, generator)`` makes a method.
    epsilons : array-like of shape (n_epsilons,)
        Radii.
    data_generator : callable
        ``data_generator(generator)`` gives observations and fresh outcomes to judge by.
    n_rep : int
        Repetitions.
    cost : Cost, optional
        The cost; the Newsvendor of one good without it.
    random_state : int, Generator or None, default=None
        Randomness.

    Returns
    -------
    polars.DataFrame
        A row for each method and radius: ``mean`` and ``variance`` over repetitions and outcomes, mean
        ``time`` of a solve in seconds, ``n_rep``. Radii that a method refuses have no row.

    References
    ----------
    arXiv:2411.16829, Section 6, the figures of mean and variance.

    Examples
    --------
    >>> def data(generator):
    ...     return generator.normal(25, 10, 20), generator.normal(25, 10, 50)
    >>> kl = {"KL": lambda epsilon, generator: EmpiricalKLDRO(epsilon)}
    >>> frontier(kl, [0.1, 1.0], data, 2, random_state=0).columns
    ['method', 'epsilon', 'mean', 'variance', 'time', 'n_rep']
    """
    costs, seconds = out_of_sample_costs(methods, epsilons, data_generator, n_rep, cost, random_state)
    rows = []
    for name, table in costs.items():
        for epsilon, values, times in zip(epsilons, table, seconds[name], strict=True):
            kept = np.isfinite(values).all(axis=1)
            if kept.any():
                rows.append(
                    {
                        "method": name,
                        "epsilon": float(epsilon),
                        "mean": float(values[kept].mean()),
                        "variance": float(values[kept].var()),
                        "time": float(times[kept].mean()),
                        "n_rep": int(kept.sum()),
                    }
                )
    return pl.DataFrame(rows)
