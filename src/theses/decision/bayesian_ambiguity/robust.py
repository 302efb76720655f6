r"""DRO-BAS: the least worst-case cost over a Bayesian ambiguity set.

=========== ============================================ =====================================================
set         laws Q in it                                 worst-case cost of a decision
=========== ============================================ =====================================================
PE          :math:`E_\Pi KL(Q\|P_\theta) \le \epsilon`    :math:`\inf_\gamma \gamma(\epsilon - G) + \gamma\log
                                                         E_{\bar P} e^{f_x/\gamma}`
PP          :math:`KL(Q\|P_{pred}) \le \epsilon`          :math:`\inf_\gamma \gamma\epsilon + \gamma\log
                                                         E_{pred} e^{f_x/\gamma}`
=========== ============================================ =====================================================
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from theses.decision.bayesian_ambiguity.costs import Cost, Portfolio
from theses.decision.bayesian_ambiguity.dual import (
    Constraints,
    Solution,
    minimise,
    minimise_linear_gaussian,
)
from theses.decision.bayesian_ambiguity.models import (
    BetaBernoulli,
    ConjugateModel,
    DirichletCategorical,
    Law,
)
from theses.validation import as_generator, check_choice, check_integer, check_real

__all__ = ["DROBAS", "Decision", "InfinitePopulationWarning"]

Array = NDArray[np.float64]
RandomState = int | np.random.Generator | None
FINITE = (BetaBernoulli, DirichletCategorical)


class EmptyAmbiguitySetError(ValueError):
    """The radius is below G of the posterior: no law is within it."""


class InfinitePopulationWarning(UserWarning):
    """The worst case over the population is infinite; the samples' is not, and is all that was solved."""


@dataclass(frozen=True)
class Decision:
    """A decision, its worst case, and the law that is worst for it.

    Parameters
    ----------
    x : ndarray of shape (dim,) or None
        The decision; None where ``status`` says that there is none.
    value : float
        Worst-case expected cost; infinite where there is no decision.
    gamma : float
        Multiplier of the radius: 0 if the largest cost is reached, infinity at radius 0; its mean over
        several balls.
    worst_case_weights : ndarray of shape (n,)
        Weights of the worst law on ``samples``.
    samples : ndarray of shape (n, d)
        What the worst law lives on.
    nominal : Law or None
        Law at the centre; None where it has no closed form (the predictive law, or data).
    solve_time : float
        Seconds of :meth:`DROBAS.solve`, with modelling and drawing.
    solver_time : float
        Seconds of the solver alone.
    status : str
        ``"optimal"``, ``"optimal_inaccurate"`` (feasible, ``value`` exact there, optimality not settled),
        ``"infeasible"``, ``"unbounded"``, or what the solver said.
    epsilon : float
        Radius of the ambiguity set.
    radius : float
        Radius of the Kullback-Leibler ball: ``epsilon - G`` for PE.
    method : str
        How it was solved: ``"closed form"``, ``"exact"`` on all outcomes, or ``"samples"``.

    References
    ----------
    arXiv:2411.16829, Section 4.

    Examples
    --------
    >>> from theses.decision.bayesian_ambiguity import DROBAS, Newsvendor, NormalGamma
    >>> model = NormalGamma(0, 0.01, 1, 1)
    >>> decision = DROBAS(model, n_samples=50, random_state=0).fit([21.0, 30.0, 24.0]).solve(Newsvendor())
    >>> decision.status, decision.method, decision.worst_case_weights.shape
    ('optimal', 'samples', (50,))
    """

    x: Any
    value: float
    gamma: float
    worst_case_weights: Array
    samples: Array
    nominal: Law | None
    solve_time: float
    solver_time: float
    status: str
    epsilon: float
    radius: float
    method: str

    def summary(self) -> str:
        """One line: the decision, its worst case and the radius.

        Returns
        -------
        str
            The line.
        """
        if self.x is None:
            return f"no decision: {self.status}"
        x = ", ".join(f"{value:.4g}" for value in self.x[:6]) + (", ..." if len(self.x) > 6 else "")
        return f"x = ({x}), worst-case cost {self.value:.4g} at radius {self.epsilon:.4g} ({self.status})"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, without the samples.

        Returns
        -------
        dict
            Values by name.
        """
        return {
            "x": None if self.x is None else self.x.tolist(),
            "value": self.value,
            "gamma": self.gamma,
            "nominal": None if self.nominal is None else self.nominal.to_dict(),
            "solve_time": self.solve_time,
            "solver_time": self.solver_time,
            "status": self.status,
            "epsilon": self.epsilon,
            "radius": self.radius,
            "method": self.method,
        }

    def to_frame(self) -> pl.DataFrame:
        """Worst law as a table.

        Returns
        -------
        polars.DataFrame
            A column for each entry of an outcome, and ``weight``.
        """
        columns = {f"xi{j}": self.samples[:, j] for j in range(self.samples.shape[1])}
        return pl.DataFrame({**columns, "weight": self.worst_case_weights})


def decide(
    solution: Solution,
    samples: Array,
    *,
    nominal: Law | None,
    began: float,
    epsilon: float,
    radius: float,
    method: str,
) -> Decision:
    """Decision from what a programme found on samples of shape (m, n, d)."""
    with np.errstate(divide="ignore"):
        gammas = np.where(np.isinf(solution.beta), 0.0, 1 / solution.beta)
    return Decision(
        x=solution.x,
        value=solution.value,
        gamma=float(gammas.mean()),
        worst_case_weights=solution.weights.reshape(-1) / len(solution.weights),
        samples=samples.reshape(-1, samples.shape[-1]),
        nominal=nominal,
        solve_time=time.perf_counter() - began,
        solver_time=solution.solver_time,
        status=solution.status,
        epsilon=epsilon,
        radius=radius,
        method=method,
    )


class Solver(ABC):
    """What all methods share: fit to data, solve for a cost."""

    decision_: Decision
    model_: Any

    @abstractmethod
    def fit(self, data: Any) -> Any:
        """Take the observations."""

    @abstractmethod
    def solve(self, cost: Cost, constraints: Constraints = None) -> Decision:
        """Decision of least cost."""

    def worst_case(self) -> tuple[Array, Array]:
        """Worst law of the last decision as weighted outcomes.

        Returns
        -------
        tuple of ndarray
            Outcomes of shape (n, d), weights of shape (n,) that sum to 1.

        Raises
        ------
        ValueError
            If nothing has been solved yet.
        """
        if not hasattr(self, "decision_"):
            raise ValueError("solve has to be called before worst_case")
        return self.decision_.samples, self.decision_.worst_case_weights


class ModelSolver(Solver):
    """A method with a conjugate model."""

    model: ConjugateModel

    def fit(self, data: Any) -> Any:
        """Posterior given observations.

        Parameters
        ----------
        data : array-like of shape (n,) or (n, dim)
            Observations; none at all leaves the prior.

        Returns
        -------
        object
            This object.

        Raises
        ------
        ValueError
            If the data do not fit the model.
        """
        self.model_ = self.model.fit(data)
        return self

    def _fitted(self) -> ConjugateModel:
        if not hasattr(self, "model_"):
            raise ValueError("fit has to be called first")
        model: ConjugateModel = self.model_
        return model


class DROBAS(ModelSolver):
    r"""Distributionally robust decisions with Bayesian ambiguity sets.

    PE bounds the posterior expectation of the divergence, PP the divergence from the posterior predictive
    law; both become a search over one multiplier,

    .. math:: \min_x \inf_{\gamma \ge 0}\; \gamma r + \gamma \log E e^{f_x(\xi)/\gamma},

    with :math:`r = \epsilon - G` and the nominal law for PE, :math:`r = \epsilon` and the predictive law for
    PP. A linear cost under a normal law has a closed form, models with finitely many outcomes are solved
    exactly, all others on ``n_samples`` draws. A solve of a decision of one dimension costs O(n) an
    evaluation, some two hundred in all; of several, a conic programme with n exponential cones.

    Parameters
    ----------
    model : ConjugateModel
        Model with its prior.
    ambiguity : {"PE", "PP"}, default="PE"
        Which set.
    epsilon : float or "auto", default=0.5
        Radius :math:`\epsilon`; ``"auto"`` takes the 0.95 quantile of :meth:`epsilon_star`.
    n_samples : int, default=900
        Draws, where draws are needed.
    solver : str, default="CLARABEL"
        Conic solver of cvxpy.
    mode : {"auto", "exact", "sample"}, default="auto"
        ``"exact"`` refuses what needs draws, and what has no finite value; ``"sample"`` always draws.
    random_state : int, Generator or None, default=None
        Randomness of the draws. An integer draws the same for each :meth:`solve`.

    Attributes
    ----------
    model_ : ConjugateModel
        The fitted model.
    epsilon_, G_, radius_ : float
        Radius of the set, its least radius (0 for PP), and that of the Kullback-Leibler ball.
    decision_ : Decision
        The last decision.

    References
    ----------
    arXiv:2411.16829, Sections 3 and 4.

    Examples
    --------
    >>> from theses.decision.bayesian_ambiguity import DROBAS, Newsvendor, NormalGamma
    >>> sales = [21.0, 30.0, 24.0, 27.0, 18.0]
    >>> robust = DROBAS(NormalGamma(0, 0.01, 1, 1), epsilon=0.5, random_state=0).fit(sales)
    >>> decision = robust.solve(Newsvendor(h=3, b=8))
    >>> bool(25 < decision.x[0] < 40), decision.value > 0
    (True, True)
    """

    def __init__(
        self,
        model: ConjugateModel,
        ambiguity: str = "PE",
        epsilon: float | Literal["auto"] = 0.5,
        n_samples: int = 900,
        solver: str = "CLARABEL",
        mode: str = "auto",
        random_state: RandomState = None,
    ) -> None:
        self.model = _check_model(model)
        self.ambiguity = check_choice("ambiguity", ambiguity, ("PE", "PP"))
        self.epsilon: Any = (
            epsilon
            if isinstance(epsilon, str) and epsilon == "auto"
            else check_real("epsilon", epsilon, minimum=0)
        )
        self.n_samples = check_integer("n_samples", n_samples, minimum=1)
        self.solver = solver
        self.mode = check_choice("mode", mode, ("auto", "exact", "sample"))
        self.random_state = random_state

    def fit(self, data: Any) -> DROBAS:
        """Posterior given observations, and the radius.

        Parameters
        ----------
        data : array-like of shape (n,) or (n, dim)
            Observations; none at all leaves the prior.

        Returns
        -------
        DROBAS
            This object.

        Raises
        ------
        ValueError
            If the data do not fit the model, or the set is empty: ``epsilon`` below G.
        """
        self.model_ = self.model.fit(data)
        self.G_ = self.model_.G() if self.ambiguity == "PE" else 0.0
        self.epsilon_ = self.epsilon_star("quantile") if self.epsilon == "auto" else float(self.epsilon)
        if self.epsilon_ < self.G_:
            raise EmptyAmbiguitySetError(
                f"epsilon must be at least G = {self.G_:.6g} of this posterior, since the ambiguity set is "
                f"empty below, got {self.epsilon_:.6g}"
            )
        self.radius_ = self.epsilon_ - self.G_
        return self

    def epsilon_star(self, method: str = "plug_in", level: float = 0.95, n_draws: int = 1_000) -> float:
        r"""Radius that takes in the true law, if the model is right.

        The true law :math:`P_{\theta}` is in the set from
        :math:`\epsilon^* = KL(P_\theta\|\bar P) + G` on; posterior draws stand for :math:`\theta`. For PP the
        same number serves: :math:`KL(P_\theta\|P_{pred})` is at most as large, the divergence being convex.

        Parameters
        ----------
        method : {"plug_in", "quantile"}, default="plug_in"
            Mean over the draws, or their quantile.
        level : float, default=0.95
            Which quantile.
        n_draws : int, default=1000
            Posterior draws.

        Returns
        -------
        float
            The radius.
        """
        check_choice("method", method, ("plug_in", "quantile"))
        level = check_real("level", level, minimum=0, maximum=1, include=False)
        n_draws = check_integer("n_draws", n_draws, minimum=1)
        model = self._fitted()
        generator = np.random.default_rng(0) if self.random_state is None else as_generator(self.random_state)
        draws = model._sample_posterior(n_draws, generator)
        radii = model._kl(draws, model.eta_bar().params) + model.G()
        return float(radii.mean() if method == "plug_in" else np.quantile(radii, level))

    def solve(self, cost: Cost, constraints: Constraints = None) -> Decision:
        """Decision of least worst-case cost.

        Parameters
        ----------
        cost : Cost
            Convex cost.
        constraints : callable or pair, optional
            ``constraints(x)`` gives a list of cvxpy constraints; a pair ``(low, high)`` are bounds. They
            replace those that the cost brings, bounds come on top of them.

        Returns
        -------
        Decision
            The decision; ``status`` says if there is none.

        Raises
        ------
        ValueError
            If the cost is not convex, or ``mode="exact"`` cannot be had.
        ImportError
            If cvxpy is needed and missing.
        """
        began = time.perf_counter()
        model = self._fitted()
        _check_cost(cost)
        nominal = self._centre()
        # A cost that grows has no exponential moment under a Student-t or compound-gamma predictive law.
        infinite = self.ambiguity == "PP" and model.heavy_predictive and cost.unbounded and self.radius_ > 0
        linear = isinstance(cost, Portfolio) and nominal is not None and model.gaussian
        finite = isinstance(model, FINITE)
        if self.mode == "exact" and (infinite or not (linear or finite)):
            why = (
                f"the predictive law of {type(model).__name__} has no exponential moment of this cost, so "
                "that its worst case is infinite at every radius"
                if infinite
                else f"{type(cost).__name__} under {type(model).__name__} has no closed form"
            )
            raise ValueError(f"mode must be 'sample' here: {why}")
        if linear and self.mode != "sample":
            assert nominal is not None
            self.decision_ = self._solve_linear(cost, constraints, nominal, began)
            return self.decision_
        if infinite:
            warnings.warn(
                f"the predictive law of {type(model).__name__} has no exponential moment of this cost: the "
                "population's worst case is infinite, and grows without bound with n_samples",
                InfinitePopulationWarning,
                stacklevel=2,
            )
        probabilities, method = None, "samples"
        if isinstance(model, FINITE) and self.mode != "sample":
            outcomes, probabilities = model.atoms(predictive=self.ambiguity == "PP")
            method = "exact"
        elif self.ambiguity == "PE":
            assert nominal is not None
            outcomes = nominal.sample(self.n_samples, self.random_state)
        else:
            outcomes = model.predictive(self.n_samples, self.random_state)
        solution = minimise(
            cost,
            outcomes[None],
            self.radius_,
            probabilities=probabilities,
            constraints=constraints,
            solver=self.solver,
        )
        self.decision_ = decide(
            solution,
            outcomes[None],
            nominal=nominal,
            began=began,
            epsilon=self.epsilon_,
            radius=self.radius_,
            method=method,
        )
        return self.decision_

    def _centre(self) -> Law | None:
        """Law at the centre of the ball, where it is one of the family."""
        model = self._fitted()
        if self.ambiguity == "PE":
            return model.eta_bar()
        if model.gaussian and not model.heavy_predictive:
            # The mean's spread adds to that of an observation.
            mean, cov = model.eta_bar().params
            kappa = self.model_.kappa_n
            return Law(model, (mean, cov * (1 + 1 / kappa)))
        return None

    def _solve_linear(self, cost: Cost, constraints: Constraints, nominal: Law, began: float) -> Decision:
        mean, cov = (np.atleast_1d(nominal.params[0]), np.atleast_2d(nominal.params[1]))
        solution = minimise_linear_gaussian(
            mean, cov, self.radius_, cost, constraints=constraints, solver=self.solver
        )
        worst = nominal
        if solution.x is not None and np.isfinite(solution.beta[0]):
            # The tilt exp(-xi'x / gamma) shifts a normal law's mean and leaves its covariance.
            shifted = mean - cov @ solution.x * solution.beta[0]
            worst = Law(nominal.model, (shifted.reshape(nominal.params[0].shape), nominal.params[1]))
        samples = worst.sample(self.n_samples, self.random_state)
        equal = Solution(
            solution.x,
            solution.value,
            solution.beta,
            np.full((1, len(samples)), 1 / len(samples)),
            solution.status,
            solution.solver_time,
        )
        return decide(
            equal,
            samples[None],
            nominal=nominal,
            began=began,
            epsilon=self.epsilon_,
            radius=self.radius_,
            method="closed form",
        )


def _check_model(model: Any) -> ConjugateModel:
    if not isinstance(model, ConjugateModel):
        raise TypeError(f"model must be a ConjugateModel, got {type(model).__name__}")
    return model


def _check_cost(cost: Any) -> None:
    if not isinstance(cost, Cost):
        raise TypeError(f"cost must be a Cost, got {type(cost).__name__}")
    if not cost.convex:
        raise ValueError("cost must be convex in the decision, got one that is declared not to be")
