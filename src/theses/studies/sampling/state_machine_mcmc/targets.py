"""Distributions to draw from, and samplers for them; each is built, and so compiled, once a process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "SCHOOLS",
    "eight_schools",
    "gaussian_process",
    "gp_data",
    "logistic_regression",
    "mixture",
    "mixture_draws",
    "normal_density",
    "normal_draws",
    "waiting_chains",
]

Floats = NDArray[np.float64]

# Effects of coaching in eight schools and their standard errors (Rubin 1981).
SCHOOLS = (
    (28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0),
    (15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0),
)


def _correlated(d: int, correlation: float) -> Floats:
    return np.full((d, d), correlation) + (1 - correlation) * np.eye(d)


def normal_density(d: int, correlation: float) -> Callable[[Any], Any]:
    """N(0, S) with unit variances."""
    import jax.numpy as jnp

    precision = jnp.asarray(np.linalg.inv(_correlated(d, correlation)), jnp.float32)
    return lambda x: -0.5 * x @ precision @ x


def normal_draws(rng: np.random.Generator, m: int, d: int, correlation: float) -> NDArray[np.float32]:
    """Exact draws of the same."""
    root = np.linalg.cholesky(_correlated(d, correlation))
    return np.asarray(rng.normal(size=(m, d)) @ root.T, np.float32)


def eight_schools() -> Callable[[Any], Any]:
    """Eight schools, not centred: mu ~ N(0, 5^2), tau ~ half-Cauchy(5), theta_j = mu + tau z_j.

    A position is ``(mu / 5, log tau, z_1, ..., z_8)``.
    """
    import jax.numpy as jnp

    effect, error = (jnp.asarray(row, jnp.float32) for row in SCHOOLS)

    def logdensity(x: Any) -> Any:
        mu, log_tau, z = 5 * x[0], x[1], x[2:]
        # The Jacobian of tau = exp(log tau) adds log tau.
        prior = -0.5 * x[0] ** 2 - jnp.log1p((jnp.exp(log_tau) / 5) ** 2) + log_tau - 0.5 * z @ z
        return prior - 0.5 * jnp.sum(((effect - mu - jnp.exp(log_tau) * z) / error) ** 2)

    return logdensity


def mixture(d: int, correlation: float) -> Callable[[Any], Any]:
    """The authors' density: N(0, S) times an equal mixture of N(10, S) and N(-10, S)."""
    import jax.numpy as jnp

    precision = jnp.asarray(np.linalg.inv(_correlated(d, correlation)), jnp.float32)

    def energy(x: Any) -> Any:
        return 0.5 * x @ precision @ x

    return lambda x: -energy(x) + jnp.logaddexp(-energy(x - 10), -energy(x + 10))


def mixture_draws(rng: np.random.Generator, m: int, d: int, correlation: float) -> NDArray[np.float32]:
    """Exact draws of the same, which is an equal mixture of N(5, S/2) and N(-5, S/2)."""
    signs = rng.choice([-5.0, 5.0], size=(m, 1))
    return np.asarray(signs + normal_draws(rng, m, d, correlation) / np.sqrt(2), np.float32)


def gp_data(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Inputs even on [-3, 3], shape (n, 1), and y = x + N(0, 0.25)."""
    x = np.linspace(-3, 3, n)
    return x[:, None], x + rng.normal(0, 0.5, size=n)


def gaussian_process(X: Floats, y: Floats) -> Callable[[Any], Any]:
    """Log marginal likelihood of a Gaussian process in the logarithms of length, signal and noise.

    A matrix that has no Cholesky factor in single precision counts as impossible, for every sampler alike.
    """
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular

    squares = jnp.asarray(((X[:, None] - X[None]) ** 2).sum(axis=-1), jnp.float32)
    target = jnp.asarray(y, jnp.float32)
    identity = jnp.eye(len(y), dtype=jnp.float32)

    def loglikelihood(x: Any) -> Any:
        length, signal, noise = jnp.exp(x[0]), jnp.exp(x[1]), jnp.exp(x[2])
        kernel = signal**2 * jnp.exp(-0.5 * squares / length**2) + (noise**2 + 1e-4) * identity
        root = jnp.linalg.cholesky(kernel)
        white = solve_triangular(root, target, lower=True)
        value = -0.5 * white @ white - jnp.sum(jnp.log(jnp.diag(root)))
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    return loglikelihood


def logistic_regression(X: Floats, y: NDArray[Any]) -> Callable[[Any], Any]:
    """Bayesian logistic regression with an intercept (first) and priors N(0, 1)."""
    import jax
    import jax.numpy as jnp

    design = jnp.asarray(np.column_stack([np.ones(len(X)), X]), jnp.float32)
    signs = jnp.asarray(2.0 * np.asarray(y) - 1, jnp.float32)
    return lambda beta: jnp.sum(jax.nn.log_sigmoid(signs * (design @ beta))) - 0.5 * beta @ beta


def waiting_chains(algorithm: Any, count: str, depth: bool = False) -> Callable[..., Any]:
    """The usual recipe: the sampler's step vmapped over chains, scanned over draws, jitted as one.

    Parameters
    ----------
    algorithm : blackjax.base.SamplingAlgorithm
        The sampler.
    count : str
        Field of its info that counts inner iterations.
    depth : bool, default=False
        Also keep the depth of NUTS' trees.

    Returns
    -------
    callable
        ``(key, positions, num_samples) -> (samples, counts, depths)``, each with axes draw and chain first.
    """
    import jax

    def draw(state: Any, key: Any) -> tuple[Any, Any]:
        keys = jax.random.split(key, jax.tree.leaves(state)[0].shape[0])
        state, info = jax.vmap(algorithm.step)(keys, state)
        depths = info.num_trajectory_expansions if depth else ()
        return state, (state.position, getattr(info, count), depths)

    def chains(key: Any, positions: Any, num_samples: int) -> Any:
        states = jax.vmap(algorithm.init)(positions)
        return jax.lax.scan(draw, states, jax.random.split(key, num_samples))[1]

    return jax.jit(chains, static_argnums=2)


@cache
def effective_draws() -> Callable[[Any], Any]:
    """Effective sample size of one number a draw, axes draw and chain, jitted."""
    import jax
    from blackjax.diagnostics import effective_sample_size

    return jax.jit(partial(effective_sample_size, chain_axis=1, sample_axis=0))


@cache
def nuts_pair(target: str, d: int, correlation: float, step_size: float) -> tuple[Any, Any]:
    """Our machine and BlackJAX's chains of one target: "normal", "schools" or "mixture"."""
    import blackjax
    import jax.numpy as jnp

    from theses.sampling.state_machine_mcmc import nuts

    if target == "schools":
        density = eight_schools()
    else:
        density = {"normal": normal_density, "mixture": mixture}[target](d, correlation)
    ours = nuts(density, step_size=step_size, inverse_mass_matrix=np.ones(d))
    theirs = blackjax.nuts(density, step_size=step_size, inverse_mass_matrix=jnp.ones(d))
    return ours, waiting_chains(theirs, "num_integration_steps", depth=True)


class _Data:
    """Rows and targets as a key of a cache, by their values."""

    def __init__(self, X: Floats, y: Floats) -> None:
        self.X, self.y = X, y
        self._key = (X.shape, X.tobytes(), y.tobytes())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Data) and self._key == other._key


@cache
def _gp(data: _Data, amortised: bool, bundled: bool) -> Any:
    from theses.sampling.state_machine_mcmc import elliptical_slice

    density = gaussian_process(data.X, data.y)
    return elliptical_slice(density, mean=np.zeros(3), cov=np.ones(3), amortised=amortised, bundled=bundled)


def gp_machine(X: Floats, y: Floats, *, amortised: bool = True, bundled: bool = True) -> Any:
    """Our elliptical slice sampler of a Gaussian process' hyperparameters, prior N(0, I)."""
    return _gp(_Data(X, y), amortised, bundled)


@cache
def _gp_waiting(data: _Data) -> Any:
    import blackjax
    import jax.numpy as jnp

    theirs = blackjax.elliptical_slice(gaussian_process(data.X, data.y), mean=jnp.zeros(3), cov=jnp.ones(3))
    return waiting_chains(theirs, "subiter")


def gp_waiting(X: Floats, y: Floats) -> Any:
    """BlackJAX's chains of the same."""
    return _gp_waiting(_Data(X, y))


@cache
def rejection_machine(scale: float, max_tries: int) -> Any:
    """Delayed rejection on N(0, 1)."""
    from theses.sampling.state_machine_mcmc import delayed_rejection

    return delayed_rejection(lambda x: -0.5 * x @ x, scale=scale, max_tries=max_tries)


@cache
def _logistic(data: _Data) -> Any:
    from theses.sampling.state_machine_mcmc import slice_sampler

    return slice_sampler(logistic_regression(data.X, data.y), width=1.0)


def logistic_machine(X: Floats, y: Floats) -> Any:
    """Slice sampler of a logistic regression."""
    return _logistic(_Data(X, y))
