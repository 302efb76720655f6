"""Sample paths of the posterior and their maxima (Section 3.4, lines 2 and 3 of Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from botorch.models.model import Model
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.utils.sampling import draw_sobol_samples, manual_seed
from gpytorch import settings
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from theses.decision.variational_entropy_search.checks import (
    InvalidInputError,
    check_bounds,
    check_model,
    check_tensor,
    derived_seed,
)
from theses.validation import check_integer

__all__ = ["CHOLESKY_TRIES", "draw_paths", "path_maxima"]

#: Each try adds ten times the jitter of the one before: duplicated points end in a solvable system.
CHOLESKY_TRIES = 8

Paths = Callable[[Tensor], Tensor]


def draw_paths(model: Model, num_paths: int = 128, seed: int | None = None) -> Paths:
    """Sample paths of a Gaussian process's posterior by Matheron's rule.

    Parameters
    ----------
    model : botorch.models.model.Model
        Fitted exact Gaussian process with one output.
    num_paths : int, default=128
        How many.
    seed : int or None, default=None
        Seed of the draw; None takes fresh entropy. BoTorch's sampler draws from torch's global generator,
        whose state is put back.

    Returns
    -------
    callable
        Takes points ``(n, d)`` to ``(num_paths, n)``, and points of each path, ``(num_paths, r, d)``, to
        ``(num_paths, r)``; on the scale of the observations.

    Raises
    ------
    TypeError
        If the model is none of BoTorch's exact Gaussian processes.
    ValueError
        If it has several outputs or is batched.

    Notes
    -----
    A path costs O((n_train + F) d) a point, with F random Fourier features.

    References
    ----------
    Section 3.4; Wilson et al. (2020), efficiently sampling functions from Gaussian process posteriors.

    Examples
    --------
    >>> from theses.decision.variational_entropy_search import fit_gp
    >>> X = torch.tensor([[0.1], [0.5], [0.9]], dtype=torch.float64)
    >>> paths = draw_paths(fit_gp(X, torch.sin(6 * X)), num_paths=4, seed=0)
    >>> paths(X).shape
    torch.Size([4, 3])
    """
    check_model(model)
    num_paths = check_integer("num_paths", num_paths, minimum=1)
    # Without gradients, no path keeps a graph to the model's parameters that a second backward would miss.
    with torch.no_grad(), manual_seed(derived_seed(seed, 0)), settings.cholesky_max_tries(CHOLESKY_TRIES):
        paths: Paths = draw_matheron_paths(model, torch.Size([num_paths]))
    return paths


def path_maxima(
    paths: Paths,
    bounds: Tensor,
    raw: int = 2048,
    restarts: int = 10,
    *,
    points: Tensor | None = None,
    maxiter: int = 30,
    seed: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Maximum of each path over a box.

    The best ``restarts`` of ``raw`` Sobol points and ``points`` start one joint run of L-BFGS-B over all
    paths, whose objective is the sum of the paths. No result lies below the path at a point looked at.

    Parameters
    ----------
    paths : callable
        As :func:`draw_paths` returns them.
    bounds : torch.Tensor
        Lower and upper bounds, shape ``(2, d)``; any box, not the unit cube alone.
    raw : int, default=2048
        Sobol points, scaled to the bounds.
    restarts : int, default=10
        Starts for each path.
    points : torch.Tensor or None, default=None
        Further candidates, such as observed points, shape ``(n, d)``.
    maxiter : int, default=30
        Iterations of L-BFGS-B.
    seed : int or None, default=None
        Seed of the Sobol points; None takes fresh entropy.

    Returns
    -------
    x_star : torch.Tensor
        Shape ``(num_paths, d)``.
    y_star : torch.Tensor
        Shape ``(num_paths,)``.

    Raises
    ------
    ValueError
        If bounds or points are not finite, of another shape, or bounds are not in order.

    Notes
    -----
    O(num_paths (raw + restarts * maxiter) (n_train + F) d).

    References
    ----------
    Section 3.4; Algorithm 1, line 3.

    Examples
    --------
    >>> def parabolas(X):
    ...     tops = torch.tensor([0.25, 3.0], dtype=X.dtype)
    ...     return -((X[..., 0] - tops[:, None]) ** 2)
    >>> x, y = path_maxima(parabolas, torch.tensor([[0.0], [2.0]]), raw=16, restarts=2, seed=0)
    >>> [round(v, 3) for v in x[:, 0].tolist()]
    [0.25, 2.0]
    """
    if not callable(paths):
        raise TypeError(f"paths must be callable, got {type(paths).__name__}")
    bounds = check_bounds(bounds)
    raw = check_integer("raw", raw, minimum=1)
    restarts = check_integer("restarts", restarts, minimum=1)
    maxiter = check_integer("maxiter", maxiter, minimum=1)
    low, width = bounds[0], bounds[1] - bounds[0]
    candidates = draw_sobol_samples(bounds, raw, 1, seed=derived_seed(seed, 1)).squeeze(1).to(bounds)
    if points is not None:
        d = bounds.shape[1]
        points = check_tensor("points", points, shape=(None, d), words=f"(n, {d})").detach().to(bounds)
        candidates = torch.cat([candidates, points.clamp(bounds[0], bounds[1])])
    with torch.no_grad():
        values = paths(candidates)
    if values.ndim != 2 or values.shape[1] != len(candidates):
        raise InvalidInputError(
            f"paths must take ({len(candidates)}, {len(low)}) to (num_paths, {len(candidates)}), "
            f"got {tuple(values.shape)}"
        )
    top, where = values.topk(min(restarts, len(candidates)), dim=1)
    starts = candidates[where]
    # Unit cube and unit spread: L-BFGS-B's tolerances are absolute in part.
    scale = float(values.std().clamp_min(1e-300)) if values.numel() > 1 else 1.0

    def negative_sum(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        unit = torch.from_numpy(flat.copy()).view(starts.shape).to(starts).requires_grad_(True)
        total = paths(low + width * unit).sum() / scale
        (gradient,) = torch.autograd.grad(total, unit)
        return -float(total.detach()), -gradient.cpu().double().numpy().ravel()

    with torch.enable_grad():
        found: Any = minimize(
            negative_sum,
            ((starts - low) / width).clamp(0, 1).cpu().numpy().ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * starts.numel(),
            options={"maxiter": maxiter},
        )
    ends = (low + width * torch.from_numpy(found.x).view(starts.shape).to(starts)).clamp(bounds[0], bounds[1])
    with torch.no_grad():
        heights = paths(ends)
    both, at = torch.cat([top, heights], dim=1), torch.cat([starts, ends], dim=1)
    y_star, best = both.nan_to_num(nan=-torch.inf).max(dim=1)
    return at[torch.arange(len(at)), best], y_star
