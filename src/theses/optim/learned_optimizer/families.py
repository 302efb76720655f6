"""Families of similar optimisation problems, stacked so that every problem of a batch moves at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from theses.validation import as_torch_generator, check_array, check_integer, check_real

__all__ = ["LassoFamily", "PolyRegressionFamily", "ProblemFamily", "Problems", "QuadraticFamily"]


class Problems:
    """Parameters of several problems of one family, stacked.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        Parameters by name, each of shape ``(n_problems, ...)``.

    Raises
    ------
    TypeError
        If an entry is no tensor.
    ValueError
        If there is none, their first axes differ or are empty, or a value is not finite.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, section 2 (parametric losses).

    Examples
    --------
    >>> problems = Problems({"b": torch.arange(6.0).reshape(3, 2)})
    >>> len(problems), problems[1:]["b"].shape
    (3, torch.Size([2, 2]))
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        if not tensors:
            raise ValueError("tensors must hold at least one entry, got none")
        for name, tensor in tensors.items():
            if not isinstance(tensor, Tensor):
                raise TypeError(f"tensors[{name!r}] must be a tensor, got {type(tensor).__name__}")
            if tensor.ndim < 1 or len(tensor) < 1:
                raise ValueError(f"tensors[{name!r}] must hold a problem at least, got {tuple(tensor.shape)}")
            if not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"tensors[{name!r}] must be finite")
        lengths = {name: len(tensor) for name, tensor in tensors.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"tensors must have the same number of problems, got {lengths}")
        self._tensors = dict(tensors)
        self._length = next(iter(lengths.values()))

    def __len__(self) -> int:
        """Number of problems."""
        return self._length

    def __getitem__(self, key: Any) -> Any:
        """One parameter by its name, or some of the problems by index, slice or mask."""
        if isinstance(key, str):
            return self._tensors[key]
        if isinstance(key, int):
            key = slice(key, key + 1 or None)
        return Problems({name: tensor[key] for name, tensor in self._tensors.items()})

    def keys(self) -> list[str]:
        """Names of the parameters.

        Returns
        -------
        list of str
            Names.
        """
        return list(self._tensors)

    def rows(self) -> list[bytes]:
        """Each problem as bytes, by which two splits are compared.

        Returns
        -------
        list of bytes
            One entry a problem.
        """
        flat = [tensor.detach().cpu().reshape(len(self), -1).numpy() for tensor in self._tensors.values()]
        return [b"".join(np.ascontiguousarray(part[i]).tobytes() for part in flat) for i in range(len(self))]


def _check_points(z: Tensor, params: Problems, dim: int) -> None:
    # Shape alone: a run that has left the finite numbers is legal, and stays what it is.
    if not isinstance(z, Tensor) or tuple(z.shape) != (len(params), dim):
        raise ValueError(f"z must have shape ({len(params)}, {dim}), got {tuple(getattr(z, 'shape', ()))}")


class ProblemFamily:
    r"""Problems :math:`\min_z \ell(z, \theta)` whose parameters :math:`\theta` are drawn at random.

    Derive from it and give ``dim``, :meth:`sample` and :meth:`loss`; everything is stacked over problems.

    Attributes
    ----------
    dim : int
        Number of unknowns.
    f_lower : float
        Lower bound on the loss; learning uses the logarithm of ``loss - f_lower``.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, section 2 (parametric losses).

    Examples
    --------
    >>> class Shifted(ProblemFamily):
    ...     dim = 2
    ...     def sample(self, n, generator=None):
    ...         return Problems({"b": torch.ones(n, 2, dtype=torch.float64)})
    ...     def loss(self, z, params):
    ...         return (z - params["b"]).square().sum(-1)
    >>> family = Shifted()
    >>> params = family.sample(3)
    >>> family.value_and_grad(family.z0(params), params)[1][0].tolist()
    [-2.0, -2.0]
    """

    dim: int
    f_lower: float = 0.0

    def sample(self, n: int, generator: torch.Generator | int | None = None) -> Problems:
        """Draw ``n`` problems.

        Parameters
        ----------
        n : int
            Number of problems.
        generator : torch.Generator, int or None, default=None
            Source of randomness.

        Returns
        -------
        Problems
            The problems, stacked.
        """
        raise NotImplementedError(f"{type(self).__name__} must define sample")

    def loss(self, z: Tensor, params: Problems) -> Tensor:
        """Losses, shape ``(n_problems,)``, at points ``z`` of shape ``(n_problems, dim)``.

        Parameters
        ----------
        z : Tensor of shape (n_problems, dim)
            Points; non-finite ones are legal and stay what they are.
        params : Problems
            The problems.

        Returns
        -------
        Tensor of shape (n_problems,)
            Losses.
        """
        raise NotImplementedError(f"{type(self).__name__} must define loss")

    def z0(self, params: Problems) -> Tensor:
        """Starting points, shape ``(n_problems, dim)``: the origin, in the type of the first parameter.

        Parameters
        ----------
        params : Problems
            The problems.

        Returns
        -------
        Tensor of shape (n_problems, dim)
            Starting points.
        """
        first: Tensor = params[params.keys()[0]]
        return torch.zeros(len(params), self.dim, dtype=first.dtype, device=first.device)

    def value_and_grad(self, z: Tensor, params: Problems) -> tuple[Tensor, Tensor]:
        """Losses and gradients at ``z``; by automatic differentiation unless a family knows better.

        Parameters
        ----------
        z : Tensor of shape (n_problems, dim)
            Points; non-finite ones are legal and stay what they are.
        params : Problems
            The problems.

        Returns
        -------
        value, grad : tuple of Tensor
            Losses ``(n_problems,)`` and gradients ``(n_problems, dim)``.
        """
        _check_points(z, params, self.dim)
        with torch.enable_grad():
            point = z.detach().requires_grad_(True)
            value = self.loss(point, params)
            (grad,) = torch.autograd.grad(value.sum(), point)
        return value.detach(), grad

    def grad(self, z: Tensor, params: Problems) -> Tensor:
        """Gradients at ``z``, shape ``(n_problems, dim)``.

        Parameters
        ----------
        z : Tensor of shape (n_problems, dim)
            Points; non-finite ones are legal and stay what they are.
        params : Problems
            The problems.

        Returns
        -------
        Tensor of shape (n_problems, dim)
            Gradients.
        """
        return self.value_and_grad(z, params)[1]

    def subgradient(self, z: Tensor, params: Problems) -> Tensor:
        """Element of the subdifferential by which the relative error is judged; the gradient if smooth.

        Parameters
        ----------
        z : Tensor of shape (n_problems, dim)
            Points; non-finite ones are legal and stay what they are.
        params : Problems
            The problems.

        Returns
        -------
        Tensor of shape (n_problems, dim)
            Subgradients.
        """
        return self.grad(z, params)


def _interval(name: str, value: Sequence[float]) -> tuple[float, float]:
    pair = check_array(name, value, ndim=1)
    if len(pair) != 2:
        raise ValueError(f"{name} must be a pair, got {value!r}")
    low = check_real(f"{name}[0]", float(pair[0]), minimum=0, include=False)
    return low, check_real(f"{name}[1]", float(pair[1]), minimum=low)


def _uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


class QuadraticFamily(ProblemFamily):
    r"""Ill-conditioned quadratics :math:`\ell(z) = \tfrac12 \|A z - b\|^2`.

    :math:`A = \mathrm{diag}(\mathrm{linspace}(\sqrt\mu, \sqrt L))` with :math:`\mu, L` uniform, and
    :math:`b = m + C^\top \varepsilon` with :math:`\varepsilon` standard normal; the entries of :math:`m` and
    :math:`C` are uniform on [-5, 5] and drawn once for the family.

    Parameters
    ----------
    dim : int, default=200
        Number of unknowns.
    mu : pair of float, default=(1e-3, 5e-3)
        Range of the strong convexity.
    L : pair of float, default=(1e2, 5e2)
        Range of the smoothness.
    seed : int, default=0
        Seed of :math:`m` and :math:`C`.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, section on experiments (quadratics).

    Examples
    --------
    >>> family = QuadraticFamily(dim=4)
    >>> params = family.sample(3, generator=0)
    >>> family.loss(family.z0(params), params).shape
    torch.Size([3])
    """

    def __init__(
        self,
        dim: int = 200,
        mu: Sequence[float] = (1e-3, 5e-3),
        L: Sequence[float] = (1e2, 5e2),
        *,
        seed: int = 0,
    ) -> None:
        self.dim = check_integer("dim", dim, minimum=2)
        self.mu = _interval("mu", mu)
        self.L = _interval("L", L)
        if self.mu[1] > self.L[0]:
            raise ValueError(f"mu must lie below L, got {self.mu} and {self.L}")
        generator = as_torch_generator(check_integer("seed", seed, minimum=0))
        self._mean = _uniform((dim,), -5, 5, generator)
        self._factor = _uniform((dim, dim), -5, 5, generator)

    def sample(self, n: int, generator: torch.Generator | int | None = None) -> Problems:
        """Draw ``n`` quadratics: ``root`` (diagonal of A) and ``b``, each ``(n, dim)`` in float64.

        Parameters
        ----------
        n : int
            Number of problems.
        generator : torch.Generator, int or None, default=None
            Source of randomness.

        Returns
        -------
        Problems
            The problems, stacked.
        """
        n = check_integer("n", n, minimum=1)
        source = as_torch_generator(generator)
        low = _uniform((n, 1), *self.mu, source).sqrt()
        high = _uniform((n, 1), *self.L, source).sqrt()
        root = low + (high - low) * torch.linspace(0, 1, self.dim, dtype=torch.float64)
        noise = torch.randn((n, self.dim), generator=source, dtype=torch.float64)
        return Problems({"root": root, "b": self._mean + noise @ self._factor})

    def loss(self, z: Tensor, params: Problems) -> Tensor:
        """Losses, shape ``(n_problems,)``.

        Parameters
        ----------
        z : Tensor of shape (n_problems, dim)
            Points; non-finite ones are legal and stay what they are.
        params : Problems
            The problems.

        Returns
        -------
        Tensor of shape (n_problems,)
            Losses.
        """
        _check_points(z, params, self.dim)
        residual: Tensor = params["root"] * z - params["b"]
        return 0.5 * residual.square().sum(-1)

    def value_and_grad(self, z: Tensor, params: Problems) -> tuple[Tensor, Tensor]:
        """Losses and gradients in closed form.

        Parameters
        ----------
        z : Tensor of shape (n_problems, dim)
            Points; non-finite ones are legal and stay what they are.
        params : Problems
            The problems.

        Returns
        -------
        value, grad : tuple of Tensor
            Losses ``(n_problems,)`` and gradients ``(n_problems, dim)``.
        """
        _check_points(z, params, self.dim)
        residual = params["root"] * z - params["b"]
        return 0.5 * residual.square().sum(-1), params["root"] * residual


class PolyRegressionFamily(ProblemFamily):
    r"""Training of a small network on noisy values of a random polynomial.

    :math:`\ell(z) = \tfrac1K \sum_i (N_z(\phi(x_i)) - y_i)^2` with features
    :math:`\phi(x) = (x, \ldots, x^{degree})`, a network of one hidden ReLU layer, :math:`x` uniform on
    [-2, 2], coefficients uniform on [-5, 5], and Gaussian noise.

    Parameters
    ----------
    n_obs : int, default=50
        Observations of a problem.
    degree : int, default=5
        Degree of the polynomial.
    noise : float, default=1.0
        Standard deviation of the noise.
    hidden : int or None, default=None
        Width of the hidden layer; ``10 * degree`` by default.
    seed : int, default=0
        Seed of the starting point, drawn once for the family.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, section on experiments (neural networks).

    Examples
    --------
    >>> PolyRegressionFamily().dim
    351
    """

    def __init__(
        self,
        n_obs: int = 50,
        degree: int = 5,
        noise: float = 1.0,
        *,
        hidden: int | None = None,
        seed: int = 0,
    ) -> None:
        self.n_obs = check_integer("n_obs", n_obs, minimum=2)
        self.degree = check_integer("degree", degree, minimum=1)
        self.noise = check_real("noise", noise, minimum=0)
        self.hidden = 10 * degree if hidden is None else check_integer("hidden", hidden, minimum=1)
        h = self.hidden
        self.dim = h * degree + h + h + 1
        source = as_torch_generator(check_integer("seed", seed, minimum=0))
        inner, outer = 1 / math.sqrt(degree), 1 / math.sqrt(h)
        self._start = torch.cat(
            [_uniform((h * degree + h,), -inner, inner, source), _uniform((h + 1,), -outer, outer, source)]
        )

    def sample(self, n: int, generator: torch.Generator | int | None = None) -> Problems:
        """Draw ``n`` data sets: ``X`` ``(n, n_obs, degree)`` and ``y`` ``(n, n_obs)`` in float64.

        Parameters
        ----------
        n : int
            Number of problems.
        generator : torch.Generator, int or None, default=None
            Source of randomness.

        Returns
        -------
        Problems
            The problems, stacked.
        """
        n = check_integer("n", n, minimum=1)
        source = as_torch_generator(generator)
        x = _uniform((n, self.n_obs, 1), -2, 2, source)
        features = x ** torch.arange(1, self.degree + 1, dtype=torch.float64)
        coefficients = _uniform((n, self.degree + 1, 1), -5, 5, source)
        clean = coefficients[:, 0] + (features @ coefficients[:, 1:]).squeeze(-1)
        noise = torch.randn((n, self.n_obs), generator=source, dtype=torch.float64)
        return Problems({"X": features, "y": clean + self.noise * noise})

    def z0(self, params: Problems) -> Tensor:
        """The family's one starting point, for each problem.

        Parameters
        ----------
        params : Problems
            The problems.

        Returns
        -------
        Tensor of shape (n_problems, dim)
            Starting points.
        """
        y: Tensor = params["y"]
        start: Tensor = self._start.to(dtype=y.dtype, device=y.device)
        return start.expand(len(params), -1).clone()

    def _split(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        h, p = self.hidden, self.degree
        first, bias, second, last = torch.split(z, [h * p, h, h, 1], dim=-1)
        return first.reshape(-1, h, p), bias.unsqueeze(1), second.unsqueeze(-1), last

    def loss(self, z: Tensor, params: Problems) -> Tensor:
        """Mean squared errors, shape ``(n_problems,)``.

        Parameters
        ----------
        z : Tensor of shape (n_problems, dim)
            Points; non-finite ones are legal and stay what they are.
        params : Problems
            The problems.

        Returns
        -------
        Tensor of shape (n_problems,)
            Losses.
        """
        _check_points(z, params, self.dim)
        first, bias, second, last = self._split(z)
        hidden = torch.baddbmm(bias, params["X"], first.mT).relu()
        residual: Tensor = (hidden @ second).squeeze(-1) + last - params["y"]
        return residual.square().mean(-1)

    def value_and_grad(self, z: Tensor, params: Problems) -> tuple[Tensor, Tensor]:
        """Losses and gradients by the chain rule, written out: half the time of automatic differentiation.

        Parameters
        ----------
        z : Tensor of shape (n_problems, dim)
            Points; non-finite ones are legal and stay what they are.
        params : Problems
            The problems.

        Returns
        -------
        value, grad : tuple of Tensor
            Losses ``(n_problems,)`` and gradients ``(n_problems, dim)``.
        """
        _check_points(z, params, self.dim)
        first, bias, second, last = self._split(z)
        X = params["X"]
        hidden = torch.baddbmm(bias, X, first.mT).relu()
        residual = (hidden @ second).squeeze(-1) + last - params["y"]
        outer = residual * (2 / residual.shape[-1])
        back = (outer.unsqueeze(-1) * second.mT) * (hidden > 0)
        grad = torch.cat(
            [
                (back.mT @ X).flatten(1),
                back.sum(1),
                (hidden.mT @ outer.unsqueeze(-1)).squeeze(-1),
                outer.sum(-1, keepdim=True),
            ],
            dim=-1,
        )
        return residual.square().mean(-1), grad


class LassoFamily(ProblemFamily):
    r"""Lasso problems :math:`\ell(z) = \tfrac12 \|A z - b\|^2 + \lambda \|z\|_1` with one matrix for all.

    Entries of :math:`A` are normal with variance ``1 / n_rows``; :math:`b = A x + 0.1 \varepsilon` for a
    standard normal :math:`x` of which one entry in five is kept. Not smooth: :meth:`grad` returns the
    element of the subdifferential with the least norm.

    Parameters
    ----------
    dim : int, default=70
        Number of unknowns.
    n_rows : int, default=35
        Rows of :math:`A`.
    penalty : float, default=0.1
        :math:`\lambda`.
    seed : int, default=0
        Seed of :math:`A`.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, section on experiments.

    Examples
    --------
    >>> family = LassoFamily(dim=6, n_rows=4)
    >>> params = family.sample(2, generator=0)
    >>> family.grad(family.z0(params), params).shape
    torch.Size([2, 6])
    """

    def __init__(self, dim: int = 70, n_rows: int = 35, penalty: float = 0.1, *, seed: int = 0) -> None:
        self.dim = check_integer("dim", dim, minimum=1)
        self.n_rows = check_integer("n_rows", n_rows, minimum=1)
        self.penalty = check_real("penalty", penalty, minimum=0)
        source = as_torch_generator(check_integer("seed", seed, minimum=0))
        self.matrix = torch.randn((n_rows, dim), generator=source, dtype=torch.float64) / math.sqrt(n_rows)

    def sample(self, n: int, generator: torch.Generator | int | None = None) -> Problems:
        """Draw ``n`` right-hand sides ``b``, ``(n, n_rows)`` in float64.

        Parameters
        ----------
        n : int
            Number of problems.
        generator : torch.Generator, int or None, default=None
            Source of randomness.

        Returns
        -------
        Problems
            The problems, stacked.
        """
        n = check_integer("n", n, minimum=1)
        source = as_torch_generator(generator)
        signal = torch.randn((n, self.dim), generator=source, dtype=torch.float64)
        signal *= torch.rand((n, self.dim), generator=source, dtype=torch.float64) < 0.2
        noise = torch.randn((n, self.n_rows), generator=source, dtype=torch.float64)
        return Problems({"b": signal @ self.matrix.T + 0.1 * noise})

    def loss(self, z: Tensor, params: Problems) -> Tensor:
        """Losses, shape ``(n_problems,)``.

        Parameters
        ----------
        z : Tensor of shape (n_problems, dim)
            Points; non-finite ones are legal and stay what they are.
        params : Problems
            The problems.

        Returns
        -------
        Tensor of shape (n_problems,)
            Losses.
        """
        _check_points(z, params, self.dim)
        residual: Tensor = z @ self.matrix.T - params["b"]
        return 0.5 * residual.square().sum(-1) + self.penalty * z.abs().sum(-1)

    def value_and_grad(self, z: Tensor, params: Problems) -> tuple[Tensor, Tensor]:
        """Losses and the least elements of the subdifferentials.

        Parameters
        ----------
        z : Tensor of shape (n_problems, dim)
            Points; non-finite ones are legal and stay what they are.
        params : Problems
            The problems.

        Returns
        -------
        value, grad : tuple of Tensor
            Losses ``(n_problems,)`` and gradients ``(n_problems, dim)``.
        """
        _check_points(z, params, self.dim)
        residual = z @ self.matrix.T - params["b"]
        smooth = residual @ self.matrix
        at_zero = smooth.sign() * (smooth.abs() - self.penalty).clamp(min=0)
        least = torch.where(z == 0, at_zero, smooth + self.penalty * z.sign())
        return 0.5 * residual.square().sum(-1) + self.penalty * z.abs().sum(-1), least
