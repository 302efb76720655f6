"""The Gamma family of Section 3.3: density, fit, and the equation for its shape k."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from theses.decision.variational_entropy_search.checks import InvalidInputError, check_tensor
from theses.validation import check_real

__all__ = ["K_MAX", "K_MIN", "S_FLOOR", "fit_gamma", "gamma_log_density", "solve_k"]

K_MIN, K_MAX = 1e-3, 1e3
S_FLOOR = 1e-10
_GRID = 64
_BLOCK = 2048  # rows of the grid that stay in the cache


def gamma_log_density(z: Tensor, k: Tensor | float, beta: Tensor | float) -> Tensor:
    r"""Log-density of the Gamma distribution with shape k and rate beta.

    .. math:: k \log\beta - \log\Gamma(k) + (k - 1) \log z - \beta z

    With z = y* - max(y_x, best_f) this is the variational density log q(y* | y_x); its mean over the paths is
    ESLBO, the Entropy Search lower bound.

    Parameters
    ----------
    z : torch.Tensor
        Positive numbers, any shape.
    k, beta : torch.Tensor or float
        Shape and rate, positive; they are broadcast against ``z``.

    Returns
    -------
    torch.Tensor
        Log-densities in nat.

    Raises
    ------
    ValueError
        If anything is empty, not finite or not positive.

    References
    ----------
    Section 3.3, the equation of ESLBO for the Gamma family.

    Examples
    --------
    >>> z = torch.tensor([0.5, 2.0], dtype=torch.float64)
    >>> gamma_log_density(z, 1.0, 2.0)
    tensor([-0.3069, -3.3069], dtype=torch.float64)
    """
    z = _positive("z", z)
    k = _positive("k", torch.as_tensor(k, dtype=z.dtype, device=z.device))
    beta = _positive("beta", torch.as_tensor(beta, dtype=z.dtype, device=z.device))
    try:
        return k * beta.log() - torch.lgamma(k) + (k - 1) * z.log() - beta * z
    except RuntimeError:
        raise InvalidInputError(
            f"z, k and beta must broadcast, got shapes {tuple(z.shape)}, {tuple(k.shape)}, "
            f"{tuple(beta.shape)}"
        ) from None


def fit_gamma(
    z: Tensor, reg_lambda: float = 1.0, reg_target: float = 1.0, clamp_min: float = 1e-10
) -> tuple[Tensor, Tensor]:
    r"""Shape and rate of the Gamma density that fits z along the first axis.

    .. math:: \log k - \psi(k) = \log E z - E \log z, \qquad \beta = k / E z

    in its regularised form, see :func:`solve_k`. With ``reg_lambda=0`` it is the maximum-likelihood fit,
    which maximises ESLBO.

    Parameters
    ----------
    z : torch.Tensor
        Gaps y* - max(f(x), best_f), shape ``(n_paths, ...)``, not below ``clamp_min``.
    reg_lambda, reg_target : float, default=1.0
        Weight and target of the pull on k.
    clamp_min : float, default=1e-10
        Where all z lie at this value there is nothing to gain, and k is 1.

    Returns
    -------
    k, beta : torch.Tensor
        Shape ``z.shape[1:]``, without gradient.

    Raises
    ------
    ValueError
        If ``z`` is empty, not finite or not positive.

    References
    ----------
    Section 3.3, optimality conditions of k and beta, and Appendix on regularisation.

    Examples
    --------
    >>> z = torch.linspace(0.5, 1.5, 11, dtype=torch.float64)
    >>> k, beta = fit_gamma(z, reg_lambda=0.0)
    >>> round(float(k), 2), round(float(k / beta), 2)
    (9.22, 1.0)
    """
    z = _positive("z", z)
    if z.ndim == 0:
        raise InvalidInputError("z must have at least 1 dimension, got shape ()")
    reg_lambda, reg_target = _check_regularisation(reg_lambda, reg_target)
    nothing = (z <= check_real("clamp_min", clamp_min)).all(dim=0)
    return _fit(z.mean(dim=0), z.log().mean(dim=0), nothing, reg_lambda, reg_target)


def _fit(
    mean: Tensor, mean_log: Tensor, nothing: Tensor, reg_lambda: float, reg_target: float
) -> tuple[Tensor, Tensor]:
    mean = mean.detach()
    s = mean.log() - mean_log.detach()
    k = _solve(s.double(), reg_lambda, reg_target).to(s.dtype)
    # Where nothing is to be gained s is 0, which without the pull would send k to its upper end.
    # s < 0 is no spread at all (Jensen) but a path above its stated maximum: likewise the exponential case.
    k = torch.where(nothing | (s < -1e-9), torch.ones_like(k), k)
    return k, k / mean


def solve_k(
    s: Tensor, reg_lambda: float = 1.0, reg_target: float = 1.0, *, differentiable: bool = False
) -> Tensor:
    r"""Shape of the Gamma density from the gap s between log-mean and mean log.

    .. math:: k = \arg\min_k (\log k - \psi(k) - s)^2 + \lambda (k - k_0)^2

    Since log k - psi(k) falls in k, the minimum lies between the target :math:`k_0` and the root for
    :math:`\lambda = 0`.

    Parameters
    ----------
    s : torch.Tensor
        log E z - E log z, any shape; values below 1e-10 count as 1e-10.
    reg_lambda : float, default=1.0
        Weight of the pull; 0 gives the root, which grows without bound as s goes to 0.
    reg_target : float, default=1.0
        The target, in [1e-3, 1e3].
    differentiable : bool, default=False
        Whether gradients flow from ``s`` to ``k``, by the implicit function theorem.

    Returns
    -------
    torch.Tensor
        k in [1e-3, 1e3], of the shape and dtype of ``s``.

    Raises
    ------
    ValueError
        If ``s`` is empty or not finite, ``reg_lambda`` negative, or ``reg_target`` out of its range.

    Notes
    -----
    Vectorised: about 64 digamma evaluations a value where s is above the target's (the objective may have
    several minima there), else a dozen. The last digits come from bracketing with inverse quadratic steps and
    bisection as the safeguard; Newton's method would need the tetragamma function, ten times as dear.

    References
    ----------
    Section 3.3, equation for k; regularisation as in the appendix.

    Examples
    --------
    >>> s = torch.tensor([0.05, 0.5772156649, 3.0], dtype=torch.float64)
    >>> solve_k(s, reg_lambda=0.0)
    tensor([10.1638,  1.0000,  0.2386], dtype=torch.float64)
    >>> solve_k(s)
    tensor([1.1888, 1.0000, 0.2423], dtype=torch.float64)
    """
    s = check_tensor("s", s)
    reg_lambda, reg_target = _check_regularisation(reg_lambda, reg_target)
    k = _solve(s.detach().double(), reg_lambda, reg_target)
    if differentiable:
        u, slope = _gap(k), 1 / k - torch.polygamma(1, k)
        curvature = -1 / k**2 - torch.polygamma(2, k)
        rate = slope / (slope**2 + (u - s.detach().double()) * curvature + reg_lambda)
        inside = (k > K_MIN) & (k < K_MAX)
        k = k + torch.where(inside, rate, 0.0) * (s.clamp_min(S_FLOOR) - s.detach().clamp_min(S_FLOOR))
    return k.to(s.dtype)


def _positive(name: str, value: Tensor) -> Tensor:
    value = check_tensor(name, value)
    if not (value > 0).all():
        raise InvalidInputError(f"{name} must be positive, got {float(value.detach().min()):g}")
    return value


def _check_regularisation(reg_lambda: float, reg_target: float) -> tuple[float, float]:
    return (
        check_real("reg_lambda", reg_lambda, minimum=0.0),
        check_real("reg_target", reg_target, minimum=K_MIN, maximum=K_MAX),
    )


def _gap(k: Tensor) -> Tensor:
    return k.log() - torch.digamma(k)


def _root(s: Tensor) -> Tensor:
    """Root of log k - psi(k) = s within the bracket."""
    # Minka's start is within 2 %; Newton in log k then doubles the digits.
    k = (3 - s + ((s - 3) ** 2 + 24 * s).sqrt()) / (12 * s)
    log_k = k.clamp(K_MIN / 2, 2 * K_MAX).log()
    for _ in range(5):
        k = log_k.exp()
        slope = 1 - k * torch.polygamma(1, k)
        log_k = log_k - ((_gap(k) - s) / slope).clamp(-1.0, 1.0)
    return log_k.exp().clamp(K_MIN, K_MAX)


def _solve(s: Tensor, reg_lambda: float, target: float) -> Tensor:
    shape = s.shape
    s = s.reshape(-1).clamp_min(S_FLOOR)
    root = _root(s)
    if reg_lambda == 0:
        return root.reshape(shape)
    pivot = torch.full_like(root, target)
    # With u = log k - psi(k), lambda (k - target) = (u - s) |u'| <= u(target) |u'(target)| above the target.
    slope = (1 / pivot - torch.polygamma(1, pivot)).abs()
    root = torch.where(root > pivot, torch.minimum(root, pivot + _gap(pivot) * slope / reg_lambda), root)
    low, high = torch.minimum(root, pivot).log(), torch.maximum(root, pivot).log()

    # Below the target the objective need not be convex: the best of a grid says which minimum is the least.
    steps = torch.linspace(0.0, 1.0, _GRID, dtype=s.dtype, device=s.device)
    for rows in torch.split((root < pivot).nonzero()[:, 0], _BLOCK):
        grid = torch.lerp(low[rows, None], high[rows, None], steps)
        k = grid.exp()
        loss = torch.digamma(k).neg_().add_(grid).sub_(s[rows, None]).square_()
        loss.addcmul_(k.sub_(target), k, value=reg_lambda)
        best = loss.argmin(dim=1, keepdim=True)
        low[rows] = grid.gather(1, (best - 1).clamp_min(0))[:, 0]
        high[rows] = grid.gather(1, (best + 1).clamp_max(_GRID - 1))[:, 0]

    def slope_of_loss(log_k: Tensor, index: Tensor) -> Tensor:
        k = log_k.exp()
        return (_gap(k) - s[index]) * (1 / k - torch.polygamma(1, k)) + reg_lambda * (k - target)

    return _bracketed_root(slope_of_loss, low, high).exp().reshape(shape)


def _bracketed_root(
    function: Callable[[Tensor, Tensor], Tensor], low: Tensor, high: Tensor, tol: float = 1e-11
) -> Tensor:
    """Chandrupatla's method on many brackets at once; ``function`` takes points and which brackets they are.

    Where the ends have the same sign, the root lies at the end that is nearer to it.
    """
    everything = torch.arange(len(low), device=low.device)
    a, b = high.clone(), low.clone()
    fa, fb = function(a, everything), function(b, everything)
    found = torch.where(fa.abs() < fb.abs(), a, b)
    index = everything[(fa * fb < 0) & ((a - b).abs() > tol)]
    a, b, fa, fb = a[index], b[index], fa[index], fb[index]
    t = torch.full_like(a, 0.5)
    for _ in range(80):
        if not len(index):
            break
        x = a + t * (b - a)
        fx = function(x, index)
        same = fx.sign() == fa.sign()
        c, fc = torch.where(same, a, b), torch.where(same, fa, fb)
        b, fb = torch.where(same, b, a), torch.where(same, fb, fa)
        a, fa = x, fx
        best = torch.where(fa.abs() < fb.abs(), a, b)
        found[index] = best
        limit = tol * (1 + best.abs()) / (b - a).abs().clamp_min(1e-300)
        go = (limit < 0.5) & (fx != 0)
        a, b, c, fa, fb, fc, limit, index = (v[go] for v in (a, b, c, fa, fb, fc, limit, index))
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        quadratic = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
        step = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        t = torch.where(quadratic, step, 0.5)
        t = torch.maximum(torch.minimum(t, 1 - limit), limit)
    return found
