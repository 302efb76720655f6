"""A Gaussian process on real measurements: 64 chains over its hyperparameters, none of which waits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from sklearn.datasets import load_diabetes

from theses.sampling.state_machine_mcmc import elliptical_slice, expected_speedup, run

# Disease progression against body mass index; both standardised.
X, y = load_diabetes(return_X_y=True)
bmi, progression = (jnp.asarray((v - v.mean()) / v.std(), jnp.float32)[:40] for v in (X[:, 2], y))


def loglikelihood(log):
    """Marginal likelihood given the logarithms of length, signal and noise."""
    kernel = jnp.exp(2 * log["signal"] - 0.5 * ((bmi[:, None] - bmi) / jnp.exp(log["length"])) ** 2)
    root = jnp.linalg.cholesky(kernel + (jnp.exp(2 * log["noise"]) + 1e-4) * jnp.eye(len(bmi)))
    white = solve_triangular(root, progression, lower=True)
    return -0.5 * white @ white - jnp.sum(jnp.log(jnp.diag(root)))


rng = np.random.default_rng(0)
start = {name: rng.normal(size=64).astype(np.float32) for name in ("length", "signal", "noise")}
machine = elliptical_slice(loglikelihood, mean=0.0, cov=np.ones(3))  # prior N(0, 1) on each logarithm
trace = run(jax.random.key(0), machine, start, num_samples=200, num_warmup=50)

print(trace.summary())
for name, draws in trace.samples.items():
    low, median, high = np.quantile(np.exp(draws), [0.05, 0.5, 0.95])
    print(f"{name}: {median:.2f} (90 % between {low:.2f} and {high:.2f})")
print("Against chains that wait:", expected_speedup(trace.inner_counts).summary())
