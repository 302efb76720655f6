"""Draws from a log density by many chains, none of which waits for another. arXiv 2503.17405."""

import jax
import jax.numpy as jnp
import numpy as np

from theses.sampling.state_machine_mcmc import expected_speedup, run, slice_sampler


def logdensity(x):  # x may be any pytree of floating arrays; this is Neal's funnel
    width = -0.5 * (x["v"] / 3) ** 2
    return width - 0.5 * jnp.sum(x["z"] ** 2) * jnp.exp(-x["v"]) - x["z"].size * x["v"] / 2


# Or nuts, with step size and inverse mass matrix as blackjax.window_adaptation finds them.
machine = slice_sampler(logdensity, width=2.0)
start = {"v": np.zeros(100, np.float32), "z": np.zeros((100, 4), np.float32)}
trace = run(jax.random.key(0), machine, start, num_samples=500, num_warmup=500)

print(trace.summary())
print("v: mean", np.mean(trace.samples["v"]), "deviation", np.std(trace.samples["v"]))
print(expected_speedup(trace.inner_counts).summary())
