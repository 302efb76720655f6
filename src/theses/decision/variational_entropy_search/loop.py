"""The loop around the acquisition function: model, one suggestion, a whole run."""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import LogExpectedImprovement, UpperConfidenceBound
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.acquisition.max_value_entropy_search import qMaxValueEntropy
from botorch.acquisition.monte_carlo import qUpperConfidenceBound
from botorch.exceptions.errors import ModelFittingError, OptimizationGradientError
from botorch.exceptions.warnings import InputDataWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms import Normalize, Standardize
from botorch.optim.optimize import optimize_acqf
from botorch.sampling.pathwise.utils import get_train_inputs, get_train_targets
from botorch.utils.sampling import draw_sobol_samples, manual_seed
from gpytorch import settings
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import MaternKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from theses.decision.variational_entropy_search.acquisition import VESExp, VESGamma, check_best
from theses.decision.variational_entropy_search.checks import (
    InvalidInputError,
    check_bounds,
    check_model,
    check_tensor,
    derived_seed,
)
from theses.decision.variational_entropy_search.paths import CHOLESKY_TRIES
from theses.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    import altair as alt

__all__ = ["ACQUISITIONS", "BOTrace", "fit_gp", "observed", "run_bo", "suggest"]

Acquisition = Literal["ves_gamma", "ves_exp", "logei", "mes", "ucb", "random"]
ACQUISITIONS = ("ves_gamma", "ves_exp", "logei", "mes", "ucb", "random")
_LOG = logging.getLogger(__name__)
_UCB_BETA = 2.0
_MAX_CANDIDATES = 2048


def fit_gp(
    X: Tensor,
    Y: Tensor,
    prior: Literal["dimension_scaled", "vbo"] = "dimension_scaled",
    noise: float = 1e-4,
    *,
    bounds: Tensor | None = None,
) -> SingleTaskGP:
    r"""Gaussian process for (nearly) noise-free observations.

    Matern-5/2 kernel with a lengthscale for each input, outcomes standardised, and the prior
    :math:`\log \ell \sim N(\mu_0 + \tfrac12 \log d, 3)`.

    Parameters
    ----------
    X : torch.Tensor
        Points, shape ``(n, d)``; in the unit cube, unless ``bounds`` say how to scale them there.
    Y : torch.Tensor
        Observations, shape ``(n, 1)`` or ``(n,)``.
    prior : {"dimension_scaled", "vbo"}, default="dimension_scaled"
        :math:`\mu_0 = \sqrt 2`, BoTorch's default, or :math:`\log 2`, the authors' other option.
    noise : float, default=1e-4
        Variance of the noise on the standardised scale, which is fixed.
    bounds : torch.Tensor or None, default=None
        Lower and upper bounds of the inputs, shape ``(2, d)``.

    Returns
    -------
    botorch.models.SingleTaskGP
        In float64, in evaluation mode, its parameters frozen.

    Raises
    ------
    ValueError
        If ``X`` or ``Y`` are empty, not finite, or do not match (also BoTorch's ``InputDataError``).

    Notes
    -----
    O(n^3) a step of the fit. Where the fit fails, the prior's mode stays and a warning is logged; points that
    come twice are no obstacle.

    References
    ----------
    Cheng, Papenmeier, Becker and Nardi (2025), Section 5.1; prior of Hvarfner, Hellsten and Nardi (2024).

    Examples
    --------
    >>> X = torch.linspace(0, 1, 8, dtype=torch.float64)[:, None]
    >>> model = fit_gp(X, torch.sin(6 * X))
    >>> float((model.posterior(X).mean - torch.sin(6 * X)).abs().max()) < 0.05
    True
    """
    X = check_tensor("X", X, shape=(None, None), words="(n, d)").detach().double()
    Y = check_tensor("Y", Y).detach().double()
    if Y.ndim == 1:
        Y = Y[:, None]
    if Y.ndim != 2 or Y.shape[1] != 1:
        raise InvalidInputError(f"Y must have shape (n, 1), one output, got {tuple(Y.shape)}")
    if len(X) != len(Y):
        raise InvalidInputError(f"X and Y must have the same length, got {len(X)} and {len(Y)}")
    check_choice("prior", prior, ("dimension_scaled", "vbo"))
    noise = check_real("noise", noise, minimum=0.0, include=False)
    d = X.shape[1]
    if bounds is not None:
        bounds = check_bounds(bounds, d)
    elif X.min() < 0 or X.max() > 1:
        warnings.warn(
            "X is not contained in the unit cube, for which the prior is made; give bounds",
            InputDataWarning,
            stacklevel=2,
        )
    location = math.sqrt(2) if prior == "dimension_scaled" else math.log(2)
    lengthscale_prior = LogNormalPrior(location + math.log(d) / 2, math.sqrt(3))
    kernel = MaternKernel(
        nu=2.5,
        ard_num_dims=d,
        lengthscale_prior=lengthscale_prior,
        lengthscale_constraint=GreaterThan(2.5e-2, transform=None, initial_value=lengthscale_prior.mode),
    )
    # Standardize leaves a constant outcome at its own scale; so does the noise.
    spread = float(Y.std()) if len(Y) > 1 else 0.0
    variance = noise * (spread**2 if spread >= 1e-8 else 1.0)
    model = SingleTaskGP(
        X,
        Y,
        torch.full_like(Y, variance),
        covar_module=kernel,
        outcome_transform=Standardize(1),
        input_transform=None if bounds is None else Normalize(d, bounds=bounds),
    )
    start = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        # A second attempt of the fit would draw its start from the global generator.
        with manual_seed(0), settings.cholesky_max_tries(CHOLESKY_TRIES):
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    except (ModelFittingError, NotPSDError, NanError) as error:
        _LOG.warning("the fit failed, the prior's mode is kept: %s", error)
        model.load_state_dict(start)
    # Else a second backward through the sample paths would miss a graph that the first has freed.
    model.requires_grad_(False)
    model.eval()
    return model


def observed(model: Model) -> tuple[Tensor, Tensor]:
    """What a model was fitted to, on the scale of the data.

    Parameters
    ----------
    model : botorch.models.model.Model
        Exact Gaussian process with one output.

    Returns
    -------
    X : torch.Tensor
        Points, shape ``(n, d)``.
    Y : torch.Tensor
        Observations, shape ``(n,)``.

    References
    ----------
    Section 5.1: outcomes are standardised for the model, while paths and ``best_f`` are not.

    Examples
    --------
    >>> X = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)
    >>> observed(fit_gp(X, 100 + 10 * X))[1]
    tensor([100., 105., 110.], dtype=torch.float64)
    """
    check_model(model)
    (X,) = get_train_inputs(model, transformed=False)
    return X.detach(), get_train_targets(model, transformed=False).detach().reshape(-1)


def suggest(
    model: Model,
    bounds: Tensor,
    *,
    acq: Acquisition = "ves_gamma",
    best_f: float | Tensor | None = None,
    q: int = 1,
    seed: int | None = None,
    num_paths: int = 128,
    num_restarts: int = 5,
    raw_samples: int = 512,
) -> Tensor:
    """Points at which to evaluate next.

    Parameters
    ----------
    model : botorch.models.model.Model
        Fitted exact Gaussian process with one output; it is maximised.
    bounds : torch.Tensor
        Lower and upper bounds, shape ``(2, d)``.
    acq : {"ves_gamma", "ves_exp", "logei", "mes", "ucb", "random"}, default="ves_gamma"
        The acquisition function, or a uniform draw.
    best_f : float, torch.Tensor or None, default=None
        Best observation so far; None takes it from the model's data.
    q : int, default=1
        How many points; they are chosen one after the other, each with those before it pending.
    seed : int or None, default=None
        Seed; None takes fresh entropy.
    num_paths : int, default=128
        Sample paths of the VES functions.
    num_restarts, raw_samples : int, default=5 and 512
        Effort of ``optimize_acqf``, the same for every acquisition function.

    Returns
    -------
    torch.Tensor
        Shape ``(q, d)``.

    Raises
    ------
    ValueError
        If bounds are not of shape (2, d) and finite, or a number is out of its range.

    References
    ----------
    Cheng, Papenmeier, Becker and Nardi (2025), Algorithm 2; q > 1 is an extension of ours.

    Examples
    --------
    >>> X = torch.linspace(0, 1, 6, dtype=torch.float64)[:, None]
    >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> x = suggest(fit_gp(X, torch.sin(5 * X)), bounds, seed=0, num_paths=16, raw_samples=16)
    >>> 0.2 < float(x) < 0.4
    True
    """
    return _propose(model, bounds, acq, best_f, q, seed, num_paths, num_restarts, raw_samples)[0]


def _propose(
    model: Model,
    bounds: Tensor,
    acq: str,
    best_f: float | Tensor | None,
    q: int,
    seed: int | None,
    num_paths: int,
    num_restarts: int,
    raw_samples: int,
) -> tuple[Tensor, AcquisitionFunction | None]:
    check_choice("acq", acq, ACQUISITIONS)
    X, Y = observed(model)
    bounds = check_bounds(bounds, X.shape[1]).to(X.device)
    q = check_integer("q", q, minimum=1)
    num_restarts = check_integer("num_restarts", num_restarts, minimum=1)
    raw_samples = check_integer("raw_samples", raw_samples, minimum=1)
    if acq == "random":
        generator = torch.Generator().manual_seed(derived_seed(seed, 4))
        unit = torch.rand(q, len(bounds[0]), generator=generator, dtype=bounds.dtype).to(bounds)
        return bounds[0] + (bounds[1] - bounds[0]) * unit, None
    best = Y.max() if best_f is None else check_best(best_f)
    # Candidates for maxima of paths and of the posterior; 2,048 from 128 raw samples on.
    raw = {"raw": min(_MAX_CANDIDATES, 16 * raw_samples)}
    path_seed = derived_seed(seed, 5)
    # BoTorch draws restarts, MES also its maxima, from torch's global generator.
    with manual_seed(derived_seed(seed, 4)), settings.cholesky_max_tries(CHOLESKY_TRIES):
        function: AcquisitionFunction
        if acq == "ves_gamma":
            function = VESGamma(model, best, bounds, num_paths, sampler_options=raw, seed=path_seed)
        elif acq == "ves_exp":
            function = VESExp(model, best, bounds, num_paths, sampler_options=raw, seed=path_seed)
        elif acq == "logei":
            function = (
                LogExpectedImprovement(model, best) if q == 1 else qLogExpectedImprovement(model, float(best))
            )
        elif acq == "mes":
            candidates = draw_sobol_samples(bounds, raw["raw"], 1, seed=derived_seed(seed, 6)).squeeze(1)
            function = qMaxValueEntropy(model, candidates.to(bounds))
        else:
            function = (
                UpperConfidenceBound(model, _UCB_BETA)
                if q == 1
                else qUpperConfidenceBound(model, beta=_UCB_BETA)
            )
        points, _ = optimize_acqf(
            function,
            bounds,
            q=q,
            num_restarts=num_restarts,
            raw_samples=raw_samples,
            options={"sample_around_best": True},
            sequential=q > 1,
            retry_on_optimization_warning=False,
        )
    return points.detach(), function


@dataclass(frozen=True, eq=False)
class BOTrace:
    """A run of Bayesian optimisation.

    Parameters
    ----------
    acq : str
        Acquisition function.
    X : torch.Tensor
        Points in the order of their evaluation, shape ``(n, d)``.
    Y : torch.Tensor
        Observations, shape ``(n,)``.
    n_init : int
        How many of them are the initial design.
    k : tuple of float
        Shape of the density at each chosen point; NaN for other acquisition functions.
    seconds : tuple of float
        Wall time of each suggestion, without the fit of the model.

    References
    ----------
    Cheng, Papenmeier, Becker and Nardi (2025), Section 5: the runs behind Figures 4 and 5.

    Examples
    --------
    >>> X = torch.tensor([[0.0], [1.0], [0.5]], dtype=torch.float64)
    >>> trace = BOTrace("logei", X, torch.tensor([0.0, 1.0, 0.5]), 2, (float("nan"),), (0.1,))
    >>> trace.best.tolist(), trace.simple_regret(1.5)
    ([0.0, 1.0, 1.0], 0.5)
    >>> trace.summary()
    'logei: best value 1 after 3 evaluations (2 initial), at [1]'
    """

    acq: str
    X: Tensor
    Y: Tensor
    n_init: int
    k: tuple[float, ...]
    seconds: tuple[float, ...]

    @property
    def best(self) -> Tensor:
        """Best observation after each evaluation, shape ``(n,)``."""
        return self.Y.cummax(dim=0).values

    def simple_regret(self, optimum: float) -> float:
        """How far the best observation is below the optimum.

        Parameters
        ----------
        optimum : float
            Largest value of the objective.

        Returns
        -------
        float
            The difference.
        """
        return check_real("optimum", optimum) - float(self.Y.max())

    def summary(self) -> str:
        """Best value and where, in a sentence.

        Returns
        -------
        str
            The sentence.
        """
        at = ", ".join(f"{value:.4g}" for value in self.X[self.Y.argmax()].tolist())
        return (
            f"{self.acq}: best value {float(self.Y.max()):.6g} after {len(self.Y)} evaluations "
            f"({self.n_init} initial), at [{at}]"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers.

        Returns
        -------
        dict
            By field.
        """
        return {
            "acq": self.acq,
            "X": self.X.tolist(),
            "Y": self.Y.tolist(),
            "n_init": self.n_init,
            "k": list(self.k),
            "seconds": list(self.seconds),
        }

    def to_frame(self) -> pl.DataFrame:
        """Table with a row for each evaluation.

        Returns
        -------
        polars.DataFrame
            Columns ``evaluation`` (from 1), ``x0`` and so on, ``y``, ``best``, ``k``, ``seconds``; the last
            two are null for the initial design.
        """
        none = [None] * self.n_init
        return pl.DataFrame(
            {
                "evaluation": range(1, len(self.Y) + 1),
                **{f"x{j}": self.X[:, j].tolist() for j in range(self.X.shape[1])},
                "y": self.Y.tolist(),
                "best": self.best.tolist(),
                "k": [*none, *self.k],
                "seconds": [*none, *self.seconds],
            },
            schema_overrides={"k": pl.Float64, "seconds": pl.Float64},
        )

    def plot(self) -> alt.Chart:
        """Best observation over evaluations.

        Returns
        -------
        altair.Chart
            A line.
        """
        import altair as alt

        chart: alt.Chart = (
            alt.Chart(self.to_frame(), title=f"Best observation, {self.acq}")
            .mark_line(interpolate="step-after")
            .encode(x="evaluation:Q", y=alt.Y("best:Q").scale(zero=False))
        )
        return chart


def run_bo(
    objective: Callable[[Tensor], Tensor],
    bounds: Tensor,
    acq: Acquisition = "ves_gamma",
    n_init: int = 20,
    n_iter: int = 100,
    seed: int | None = None,
    *,
    num_paths: int = 128,
    num_restarts: int = 5,
    raw_samples: int = 512,
    on_evaluation: Callable[[int, float], None] | None = None,
) -> BOTrace:
    """Bayesian optimisation of an objective from a Sobol design on.

    Parameters
    ----------
    objective : callable
        Takes points ``(n, d)`` to values ``(n,)``, which are maximised; called with one point at a time.
    bounds : torch.Tensor
        Lower and upper bounds, shape ``(2, d)``.
    acq : {"ves_gamma", "ves_exp", "logei", "mes", "ucb", "random"}, default="ves_gamma"
        The acquisition function.
    n_init : int, default=20
        Points of the initial design, which depends on ``seed`` alone.
    n_iter : int, default=100
        Evaluations after it.
    seed : int or None, default=None
        Seed; None takes fresh entropy.
    num_paths : int, default=128
        Sample paths of the VES functions.
    num_restarts, raw_samples : int, default=5 and 512
        Effort of ``optimize_acqf``.
    on_evaluation : callable or None, default=None
        Told the number of evaluations and the value after each.

    Returns
    -------
    BOTrace
        The run.

    Raises
    ------
    ValueError
        If bounds are not of shape (2, d) and finite, or the objective returns anything but one finite number.

    Notes
    -----
    A suggestion that the numerics defeat (a system that no jitter mends) is replaced by a random point, with
    a logged warning, so that a long run does not die of it.

    References
    ----------
    Cheng, Papenmeier, Becker and Nardi (2025), Section 5.1: 20 initial points, 100 iterations.

    Examples
    --------
    >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> trace = run_bo(lambda X: -((X[:, 0] - 0.3) ** 2), bounds, "logei", 4, 2, 0, raw_samples=16)
    >>> trace.simple_regret(0.0) < 0.01
    True
    """
    if not callable(objective):
        raise TypeError(f"objective must be callable, got {type(objective).__name__}")
    bounds = check_bounds(bounds)
    check_choice("acq", acq, ACQUISITIONS)
    n_init = check_integer("n_init", n_init, minimum=1)
    n_iter = check_integer("n_iter", n_iter, minimum=0)
    if seed is None:
        seed = derived_seed(None)
    values: list[float] = []
    shapes: list[float] = []
    seconds: list[float] = []

    def evaluate(x: Tensor) -> None:
        # A copy: an objective that scales its input in place must not move the design.
        answer = objective(x.clone())
        try:
            value = torch.as_tensor(answer).detach()
        except (TypeError, ValueError, RuntimeError):
            raise InvalidInputError(
                f"objective must return one finite number a point, got {type(answer).__name__} at "
                f"{x[0].tolist()}"
            ) from None
        if value.numel() != 1 or value.is_complex() or not bool(torch.isfinite(value).all()):
            raise InvalidInputError(
                f"objective must return one finite number a point, got {value.tolist()} at {x[0].tolist()}"
            )
        values.append(float(value))
        if on_evaluation is not None:
            on_evaluation(len(values), values[-1])

    X = draw_sobol_samples(bounds, n_init, 1, seed=derived_seed(seed, 7)).squeeze(1).to(bounds)
    for x in X:
        evaluate(x[None])
    for turn in range(n_iter):
        model = fit_gp(X, torch.tensor(values, dtype=torch.float64, device=X.device), bounds=bounds)
        start = time.perf_counter()
        step = derived_seed(seed, 8, turn)
        try:
            x, function = _propose(model, bounds, acq, None, 1, step, num_paths, num_restarts, raw_samples)
        except (NotPSDError, NanError, OptimizationGradientError) as error:
            _LOG.warning("evaluation %d: a random point, since %s", len(values) + 1, error)
            x, function = _propose(model, bounds, "random", None, 1, step, num_paths, 1, 1)
        seconds.append(time.perf_counter() - start)
        shapes.append(float(function.k_beta(x[None])[0]) if isinstance(function, VESGamma) else math.nan)
        evaluate(x)
        X = torch.cat([X, x.to(X)])
    return BOTrace(acq, X, torch.tensor(values, dtype=torch.float64), n_init, tuple(shapes), tuple(seconds))
