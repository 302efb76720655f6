"""VES-Gamma, its exponential case, and their optimisation (Section 3, Algorithms 1 and 2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Self, TypeVar, cast

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.optim.optimize import optimize_acqf
from botorch.sampling.pathwise.utils import get_train_inputs
from botorch.utils.sampling import manual_seed
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from theses.decision.variational_entropy_search.checks import (
    InvalidInputError,
    NotSupportedError,
    check_bounds,
    check_model,
    check_tensor,
    derived_seed,
)
from theses.decision.variational_entropy_search.gamma import K_MAX, K_MIN, _fit
from theses.decision.variational_entropy_search.paths import draw_paths, path_maxima
from theses.validation import check_choice, check_integer, check_real

__all__ = ["VESExp", "VESGamma", "check_best", "optimize_ves"]

Paths = Callable[[Tensor], Tensor]
F = TypeVar("F", bound=Callable[..., Any])


def _in_t_batch_mode(method: F) -> F:
    # BoTorch types its decorator for methods of the base class alone.
    transform = t_batch_mode_transform(assert_output_shape=method.__name__ == "forward")
    return cast(F, transform(cast(Any, method)))


class _Gaps(NamedTuple):
    """What the bound needs of z, each of shape (*batch)."""

    level: Tensor  # E max(f, best_f)
    mean: Tensor  # E z
    mean_log: Tensor  # E log z
    nothing: Tensor  # whether no path gains anything


class VESGamma(AcquisitionFunction):
    r"""Entropy Search lower bound with Gamma densities of the maximum.

    .. math::

        \mathrm{ESLBO}(x; k, \beta) = k \log\beta - \log\Gamma(k) + (k - 1) E[\log z(x)] - \beta E[y^*]
        + \beta E[\max(f(x), f^*)], \qquad z_s(x) = y^*_s - \max(f_s(x), f^*)

    with expectations over posterior sample paths :math:`f_s` and their maxima :math:`y^*_s`. Use it where the
    observations are (nearly) free of noise and Expected Improvement is too greedy: it sets its own trade-off.

    Parameters
    ----------
    model : botorch.models.model.Model
        Fitted exact Gaussian process with one output; it is maximised.
    best_f : float or torch.Tensor
        Best observation so far, on the scale of the observations (not the standardised one).
    bounds : torch.Tensor
        Lower and upper bounds of the search space, shape ``(2, d)``.
    num_paths : int, default=128
        Sample paths.
    clamp_min : float, default=1e-10
        Least z inside the logarithm, and least mean of z.
    reg_lambda, reg_target : float, default=1.0
        Weight and target of the pull on k, see :func:`solve_k`. At ``reg_lambda=0`` gradients in the mode
        "varpro" are exact by the envelope theorem; above, they are partial: k and beta count as constants.
    mode : {"varpro", "fixed"}, default="varpro"
        Whether k and beta are those of each x, or ``k`` and ``beta`` everywhere.
    k, beta : float or None, default=None
        Shape and rate in the mode "fixed".
    paths : callable or None, default=None
        Paths to use instead of fresh ones, as :func:`draw_paths` returns them.
    optima : torch.Tensor or None, default=None
        Their maxima, shape ``(num_paths,)``; None finds them.
    sampler_options : mapping or None, default=None
        ``raw`` (2,048), ``restarts`` (3) and ``maxiter`` (30) of :func:`path_maxima`.
    seed : int or None, default=None
        Seed of paths and maxima; None takes fresh entropy.
    X_pending : torch.Tensor or None, default=None
        Points that are being evaluated, shape ``(n, d)``: a path's gap z then also falls short by what it
        reaches there. An extension of ours.

    Raises
    ------
    TypeError
        If the model is none of BoTorch's exact Gaussian processes.
    ValueError
        If ``best_f`` or ``bounds`` are missing, not finite or of another shape (also BoTorch's
        ``InputDataError``), or the model has several outputs (also its ``UnsupportedError``).

    Notes
    -----
    One evaluation costs O(num_paths (n_train + F) d) with F random Fourier features. All terms are kept, so
    that values at different k can be compared. Paths stay the same between calls; :meth:`resample` draws new
    ones. Since observations are free of noise, no y* lies below ``best_f``.

    References
    ----------
    Cheng, Papenmeier, Becker and Nardi (2025), Section 3.3 and Algorithm 1. Keeping k and beta inside
    ``forward`` with all terms ("varpro") is built after the authors' option of that name, which drops terms.

    Examples
    --------
    >>> from theses.decision.variational_entropy_search import fit_gp
    >>> X = torch.linspace(0, 1, 6, dtype=torch.float64)[:, None]
    >>> model = fit_gp(X, torch.sin(5 * X))
    >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> acquisition = VESGamma(model, best_f=0.91, bounds=bounds, num_paths=16, seed=0)
    >>> acquisition(torch.tensor([[[0.3]], [[0.9]]], dtype=torch.float64)).shape
    torch.Size([2])
    """

    best_f: Tensor
    bounds: Tensor
    optima: Tensor
    paths: Paths
    _floor: Tensor

    def __init__(
        self,
        model: Model,
        best_f: float | Tensor,
        bounds: Tensor,
        num_paths: int = 128,
        clamp_min: float = 1e-10,
        reg_lambda: float = 1.0,
        reg_target: float = 1.0,
        mode: Literal["varpro", "fixed"] = "varpro",
        k: float | None = None,
        beta: float | None = None,
        paths: Paths | None = None,
        optima: Tensor | None = None,
        sampler_options: Mapping[str, int] | None = None,
        seed: int | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        check_model(model)
        super().__init__(model=model)
        (train_X,) = get_train_inputs(model, transformed=False)
        self.register_buffer("best_f", check_best(best_f).to(train_X.device))
        self.register_buffer("bounds", check_bounds(bounds, train_X.shape[-1]).to(train_X.device))
        self.num_paths = check_integer("num_paths", num_paths, minimum=1)
        self.clamp_min = check_real("clamp_min", clamp_min, minimum=0.0, include=False)
        self.reg_lambda = check_real("reg_lambda", reg_lambda, minimum=0.0)
        self.reg_target = check_real("reg_target", reg_target, minimum=K_MIN, maximum=K_MAX)
        self.mode = check_choice("mode", mode, ("varpro", "fixed"))
        self.k, self.beta = _check_shape_and_rate(k, beta, required=mode == "fixed")
        self.sampler_options = {"raw": 2048, "restarts": 3, **(sampler_options or {})}
        for name in self.sampler_options:
            check_choice("sampler_options", name, ("raw", "restarts", "maxiter"))
        self._seed = None if seed is None else check_integer("seed", seed, minimum=0)
        self._round = 0
        self._given = paths is not None
        if paths is None:
            if optima is not None:
                raise InvalidInputError("optima must come with the paths whose maxima they are")
            self._draw()
        else:
            if not callable(paths):
                raise TypeError(f"paths must be callable, got {type(paths).__name__}")
            self._take(paths, optima)
        self.set_X_pending(X_pending)

    def resample(self) -> Self:
        """Draw fresh paths and find their maxima; with a seed, the same ones in every run.

        Returns
        -------
        VESGamma
            Itself.

        Raises
        ------
        ValueError
            If the paths were given, so that there is nothing to draw from.
        """
        if self._given:
            raise NotSupportedError("paths were given to the acquisition function and cannot be drawn anew")
        self._round += 1
        self._draw()
        self.set_X_pending(self.X_pending)
        return self

    def _draw(self) -> None:
        seed = None if self._seed is None else derived_seed(self._seed, 2, self._round)
        self._take(draw_paths(self.model, self.num_paths, seed), None, seed)

    def _take(self, paths: Paths, optima: Tensor | None, seed: int | None = None) -> None:
        self.paths = paths
        (train_X,) = get_train_inputs(self.model, transformed=False)
        if optima is None:
            _, optima = path_maxima(
                paths,
                self.bounds,
                points=train_X,
                seed=self._seed if seed is None else seed,
                **self.sampler_options,
            )
        with torch.no_grad():
            count = len(paths(self.bounds))
        optima = check_tensor("optima", optima, shape=(count,), words=f"({count},)").detach()
        self.num_paths = count
        # A path is below an observation only by the model's jitter; the true function is not.
        self.register_buffer("optima", torch.maximum(optima.to(self.best_f), self.best_f))

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:  # noqa: N802 - BoTorch's name
        """Take points into account whose evaluation is not finished.

        Parameters
        ----------
        X_pending : torch.Tensor or None, default=None
            Shape ``(n, d)``; None forgets them.

        Raises
        ------
        ValueError
            If they are not finite or of another shape.
        """
        floor = self.best_f.expand(self.num_paths)
        if X_pending is not None:
            d = self.bounds.shape[1]
            check_tensor("X_pending", X_pending, shape=(None, d), words=f"(n, {d})")
            with torch.no_grad():
                floor = torch.maximum(floor, self.paths(X_pending.detach().to(self.bounds)).amax(dim=1))
        super().set_X_pending(X_pending)
        self.register_buffer("_floor", floor)

    def _paths_at(self, X: Any) -> Tensor:
        """Path values, shape (num_paths, *batch)."""
        X = check_tensor("X", X)
        d = self.bounds.shape[1]
        if X.ndim < 2 or X.shape[-1] != d:
            raise InvalidInputError(f"X must have shape (b, 1, {d}), got {tuple(X.shape)}")
        if X.shape[-2] != 1:
            raise NotSupportedError(
                f"X must hold one point a batch, got q = {X.shape[-2]}; several points are chosen one after "
                "the other: optimize_acqf(..., sequential=True)"
            )
        return self.paths(X.reshape(-1, d).to(self.bounds)).reshape(-1, *X.shape[:-2])

    def _gaps(self, f: Tensor) -> _Gaps:
        column = (slice(None), *(None for _ in f.shape[1:]))
        level = torch.maximum(f, self._floor[column]).mean(dim=0)
        z = (self.optima[column] - torch.maximum(f, self._floor[column])).clamp_min(self.clamp_min)
        # The logarithm needs each gap positive, the mean only itself: where the search has missed a path's
        # maximum, the exponential case is Expected Improvement all the same.
        return _Gaps(
            level,
            (self.optima.mean() - level).clamp_min(self.clamp_min),
            z.log().mean(dim=0),
            (z <= self.clamp_min).all(dim=0),
        )

    def _k_beta(self, gaps: _Gaps) -> tuple[Tensor, Tensor]:
        if self.mode == "fixed":
            k, beta = cast(float, self.k), cast(float, self.beta)
            return torch.full_like(gaps.mean.detach(), k), torch.full_like(gaps.mean.detach(), beta)
        return _fit(gaps.mean, gaps.mean_log, gaps.nothing, self.reg_lambda, self.reg_target)

    @_in_t_batch_mode
    def forward(self, X: Tensor) -> Tensor:
        """Value of the bound.

        Parameters
        ----------
        X : torch.Tensor
            Candidates, shape ``(b, 1, d)``.

        Returns
        -------
        torch.Tensor
            ESLBO in nat, shape ``(b,)``.

        Raises
        ------
        ValueError
            If ``X`` is not finite, of another shape, or holds more than one point a batch (then it is also
            BoTorch's ``UnsupportedError``).
        """
        gaps = self._gaps(self._paths_at(X))
        k, beta = self._k_beta(gaps)
        return k * beta.log() - torch.lgamma(k) + (k - 1) * gaps.mean_log - beta * gaps.mean

    @_in_t_batch_mode
    def k_beta(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Shape and rate of the density at each x.

        Parameters
        ----------
        X : torch.Tensor
            Candidates, shape ``(b, 1, d)``.

        Returns
        -------
        k, beta : torch.Tensor
            Shape ``(b,)``, without gradient.
        """
        with torch.no_grad():
            return self._k_beta(self._gaps(self._paths_at(X)))

    @_in_t_batch_mode
    def components(self, X: Tensor) -> dict[str, Tensor]:
        """Terms of the bound, which add up to :meth:`forward`, and the expected improvement.

        Parameters
        ----------
        X : torch.Tensor
            Candidates, shape ``(b, 1, d)``.

        Returns
        -------
        dict of str to torch.Tensor
            ``const``: k log beta - log Gamma(k) - beta E y*; ``log_term``: (k - 1) E log z; ``max_value``:
            beta E max(f(x), best_f); ``ei``: the Monte-Carlo expected improvement, which is no
            further term. Each of shape ``(b,)``.
        """
        f = self._paths_at(X)
        gaps = self._gaps(f)
        k, beta = self._k_beta(gaps)
        mean_optimum = gaps.mean + gaps.level
        floor = self._floor.reshape(-1, *(1 for _ in f.shape[1:]))
        return {
            "const": k * beta.log() - torch.lgamma(k) - beta * mean_optimum,
            "log_term": (k - 1) * gaps.mean_log,
            "max_value": beta * gaps.level,
            "ei": (f - floor).clamp_min(0.0).mean(dim=0),
        }


class VESExp(VESGamma):
    r"""The case k = 1, exponential densities: Expected Improvement on the same paths.

    .. math:: -\log E[z(x)] - 1, \qquad E[z(x)] = E[y^*] - f^* - \mathrm{EI}(x)

    Parameters
    ----------
    model : botorch.models.model.Model
        As for :class:`VESGamma`, as all others.
    best_f : float or torch.Tensor
        Best observation so far.
    bounds : torch.Tensor
        Shape ``(2, d)``.
    num_paths : int, default=128
        Sample paths.
    clamp_min : float, default=1e-10
        Least mean of z.
    paths : callable or None, default=None
        Paths to use.
    optima : torch.Tensor or None, default=None
        Their maxima.
    sampler_options : mapping or None, default=None
        Options of :func:`path_maxima`.
    seed : int or None, default=None
        Seed.
    X_pending : torch.Tensor or None, default=None
        Pending points.

    References
    ----------
    Cheng, Papenmeier, Becker and Nardi (2025), Theorem 3.2.

    Examples
    --------
    >>> from theses.decision.variational_entropy_search import fit_gp
    >>> X = torch.linspace(0, 1, 6, dtype=torch.float64)[:, None]
    >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> acquisition = VESExp(fit_gp(X, torch.sin(5 * X)), 0.91, bounds, num_paths=16, seed=0)
    >>> grid = torch.linspace(0, 1, 50, dtype=torch.float64).view(-1, 1, 1)
    >>> bool(acquisition(grid).argmax() == acquisition.components(grid)["ei"].argmax())
    True
    """

    def __init__(
        self,
        model: Model,
        best_f: float | Tensor,
        bounds: Tensor,
        num_paths: int = 128,
        clamp_min: float = 1e-10,
        paths: Paths | None = None,
        optima: Tensor | None = None,
        sampler_options: Mapping[str, int] | None = None,
        seed: int | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        super().__init__(
            model,
            best_f,
            bounds,
            num_paths,
            clamp_min,
            paths=paths,
            optima=optima,
            sampler_options=sampler_options,
            seed=seed,
            X_pending=X_pending,
        )

    def _k_beta(self, gaps: _Gaps) -> tuple[Tensor, Tensor]:
        mean = gaps.mean.detach()
        return torch.ones_like(mean), 1 / mean


def optimize_ves(
    acq: VESGamma,
    bounds: Tensor,
    n_iter: int = 5,
    tol: float = 1e-5,
    optimize_acqf_options: Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Maximise the bound over x and over (k, beta) in turn.

    Start at the point with the largest posterior mean among those observed; then, again and again, take (k,
    beta) at the present x, draw fresh paths, and go to the x that is best for these.

    Parameters
    ----------
    acq : VESGamma
        The acquisition function. Its paths end as those of the last round; paths that were given stay.
    bounds : torch.Tensor
        Lower and upper bounds, shape ``(2, d)``.
    n_iter : int, default=5
        Most rounds.
    tol : float, default=1e-5
        Stop if x moves by less than ``tol * d``.
    optimize_acqf_options : mapping or None, default=None
        Arguments of BoTorch's ``optimize_acqf``; by default 5 restarts of 512 raw samples, partly around the
        best points.
    seed : int or None, default=None
        Seed of ``optimize_acqf``; None takes fresh entropy.

    Returns
    -------
    x : torch.Tensor
        The point, shape ``(1, d)``.
    value : torch.Tensor
        The bound there at its own k and beta, shape ``()``.
    info : dict
        ``k``, ``beta`` and ``x`` of each round, ``rounds``, and whether it ``converged``.

    Raises
    ------
    ValueError
        If bounds are not of shape (2, d), or numbers out of range.

    Notes
    -----
    ``n_iter`` times the draw of paths, their maxima and one ``optimize_acqf``: about ``n_iter`` times as dear
    as the mode "varpro".

    References
    ----------
    Cheng, Papenmeier, Becker and Nardi (2025), Algorithms 1 and 2.

    Examples
    --------
    >>> from theses.decision.variational_entropy_search import fit_gp
    >>> X = torch.linspace(0, 1, 6, dtype=torch.float64)[:, None]
    >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> acquisition = VESGamma(fit_gp(X, torch.sin(5 * X)), 0.91, bounds, num_paths=8, seed=0)
    >>> x, value, info = optimize_ves(
    ...     acquisition, bounds, 2, optimize_acqf_options={"num_restarts": 1, "raw_samples": 8}, seed=0
    ... )
    >>> x.shape, info["rounds"]
    (torch.Size([1, 1]), 2)
    """
    if not isinstance(acq, VESGamma):
        raise TypeError(f"acq must be a VESGamma, got {type(acq).__name__}")
    bounds = check_bounds(bounds, acq.bounds.shape[1])
    n_iter = check_integer("n_iter", n_iter, minimum=1)
    tol = check_real("tol", tol, minimum=0.0)
    options: dict[str, Any] = {"num_restarts": 5, "raw_samples": 512, "options": {"sample_around_best": True}}
    options["retry_on_optimization_warning"] = False
    options |= dict(optimize_acqf_options or {})

    (train_X,) = get_train_inputs(acq.model, transformed=False)
    with torch.no_grad():
        best = cast(Any, acq.model.posterior(train_X)).mean.argmax()
    x = train_X[best : best + 1].detach().clone().to(bounds)
    trail: dict[str, list[Any]] = {"k": [], "beta": [], "x": []}
    converged = False
    mode, k, beta = acq.mode, acq.k, acq.beta
    exponential = isinstance(acq, VESExp)
    try:
        for turn in range(n_iter):
            acq.mode = "varpro"
            k_here, beta_here = acq.k_beta(x.unsqueeze(0))
            trail["k"].append(float(k_here))
            trail["beta"].append(float(beta_here))
            if turn and not acq._given:
                acq.resample()
            # An exponential density has one maximiser for every rate, and keeps its own.
            acq.mode = "varpro" if exponential else "fixed"
            acq.k, acq.beta = float(k_here), float(beta_here)
            with manual_seed(derived_seed(seed, 3, turn)):
                moved, _ = optimize_acqf(acq, bounds, q=1, **options)
            step = float((moved - x).norm())
            x = moved.detach()
            trail["x"].append(x[0].clone())
            if step < tol * x.shape[1]:
                converged = True
                break
        acq.mode = "varpro"
        with torch.no_grad():
            value = acq(x.unsqueeze(0))[0]
    finally:
        acq.mode, acq.k, acq.beta = mode, k, beta
    return x, value, {**trail, "rounds": len(trail["x"]), "converged": converged}


def check_best(best_f: Any) -> Tensor:
    """Best observation as a scalar tensor in float64."""
    if best_f is None:
        raise InvalidInputError("best_f must be given: the best observation so far")
    if not isinstance(best_f, Tensor):
        return torch.tensor(check_real("best_f", best_f), dtype=torch.float64)
    if best_f.numel() != 1:
        raise InvalidInputError(f"best_f must be one number, got shape {tuple(best_f.shape)}")
    if not torch.isfinite(best_f).all():
        raise InvalidInputError(f"best_f must be finite, got {float(best_f)}")
    return best_f.detach().double().reshape(())


def _check_shape_and_rate(
    k: float | None, beta: float | None, *, required: bool
) -> tuple[float | None, float | None]:
    if required and (k is None or beta is None):
        raise InvalidInputError('k and beta must be given in the mode "fixed"')
    if not required and (k is not None or beta is not None):
        raise InvalidInputError('k and beta are for the mode "fixed"; "varpro" finds its own')
    return (
        None if k is None else check_real("k", k, minimum=0.0, include=False),
        None if beta is None else check_real("beta", beta, minimum=0.0, include=False),
    )
