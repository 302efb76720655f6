"""State machines beside vmapped, jitted BlackJAX; compiled before, called in turn."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

from theses.evidence import Comparison, interleave
from theses.sampling.state_machine_mcmc import elliptical_slice, run
from theses.studies.sampling.state_machine_mcmc import arms, targets

MEMORY_RATIO = 1.2
LEAPFROG_RATIO = 2.0


def benchmark() -> list[Comparison]:
    """Rows of the comparison; the first is the primary peer.

    Returns
    -------
    list of Comparison
        Elliptical slice sampling of a Gaussian process at 64, 1 and 256 chains, NUTS on the authors' mixture,
        and a cheap density at a large trace, where memory is measured.
    """
    return [
        _process(64, ">= 1.2", rounds=5),
        _process(1, ""),
        _process(256, "", rounds=1),
        _mixture(),
        _memory(),
    ]


def _compare(
    peer: str, size: str, target: str, machine: Any, waiting: Any, start: Any, n: int, rounds: int, words: str
) -> tuple[Comparison, float]:
    kept: dict[str, Any] = {}

    def ours() -> None:
        kept["ours"] = run(jax.random.key(0), machine, start, num_samples=n)
        jax.block_until_ready(kept["ours"].samples)

    def theirs() -> None:
        kept["theirs"] = jax.block_until_ready(waiting(jax.random.key(1), start, n))

    ours_s, peer_s = interleave([ours, theirs], repeats=rounds)
    trace, (samples, counts, _) = kept["ours"], kept["theirs"]
    ratio = int(np.asarray(counts).max(axis=1).sum()) / trace.steps
    if start.shape[0] >= 64:
        # The last draws of all chains: the same law.
        p = arms.smallest_ks_p(np.asarray(trace.samples[-1]), np.asarray(samples[-1]))
        assert p >= 0.001, p
        words += f"; last draws alike (Kolmogorov-Smirnov p = {p:.2f})"
    quality = f"{words}; {ratio:.2f} times fewer iterations"
    return Comparison(peer, size, ours_s, peer_s, target, quality), ratio


def _process(chains: int, target: str, rounds: int = 3) -> Comparison:
    data = targets.gp_data(np.random.default_rng(100), 60)
    start = np.random.default_rng(101).normal(size=(chains, 3)).astype(np.float32)
    row, _ = _compare(
        "blackjax.elliptical_slice, vmapped and jitted",
        f"Gaussian process, 60 points, {chains} chains, 200 draws",
        target,
        targets.gp_machine(*data),
        targets.gp_waiting(*data),
        start,
        200,
        rounds,
        "the same number of draws a chain",
    )
    return row


def _mixture() -> Comparison:
    machine, waiting = targets.nuts_pair("mixture", 20, arms.MIXTURE_CORRELATION, arms.MIXTURE_STEP)
    start = targets.mixture_draws(np.random.default_rng(100), 64, 20, arms.MIXTURE_CORRELATION)
    row, ratio = _compare(
        "blackjax.nuts, vmapped and jitted",
        "mixture of two ill-conditioned Gaussians, 20 dimensions, 64 chains, 100 draws",
        "",
        machine,
        waiting,
        start,
        100,
        3,
        f"leapfrog iterations (bound: {LEAPFROG_RATIO:g} times fewer)",
    )
    assert ratio >= LEAPFROG_RATIO, ratio
    return row


def _memory() -> Comparison:
    chains, d, n = 256, 100, 1_000
    peaks = {side: _peak_alone(side, chains, d, n) for side in ("ours", "theirs")}
    ratio = peaks["ours"] / peaks["theirs"]
    assert ratio <= MEMORY_RATIO, peaks
    machine, waiting = _cheap(d)
    start = np.random.default_rng(100).normal(size=(chains, d)).astype(np.float32)
    row, _ = _compare(
        "blackjax.elliptical_slice, vmapped and jitted",
        f"quadratic log-likelihood, {d} dimensions, {chains} chains, {n:,} draws",
        "",
        machine,
        waiting,
        start,
        n,
        3,
        f"peak memory {ratio:.2f} times the peer's ({peaks['theirs']:.0f} MB; bound {MEMORY_RATIO:g})",
    )
    return Comparison(
        row.peer, row.size, row.ours_s, row.peer_s, row.target, row.quality, peak_mb=peaks["ours"]
    )


def _cheap(d: int) -> tuple[Any, Any]:
    def density(x: Any) -> Any:
        return -jnp.sum((x - 1) ** 2)

    theirs = blackjax.elliptical_slice(density, mean=jnp.zeros(d), cov=jnp.ones(d))
    return elliptical_slice(density, mean=0.0, cov=np.ones(d)), targets.waiting_chains(theirs, "subiter")


def _peak_alone(side: str, chains: int, d: int, n: int) -> float:
    """Peak memory in MB of a process that does one side alone."""
    code = (
        "import json, resource, sys\n"
        "import jax, numpy as np\n"
        "from benchmarks.sampling.state_machine_mcmc import _cheap, run\n"
        "side, chains, d, n = json.loads(sys.argv[1])\n"
        "machine, waiting = _cheap(d)\n"
        "start = np.zeros((chains, d), np.float32)\n"
        "if side == 'ours':\n"
        "    kept = run(jax.random.key(0), machine, start, num_samples=n).samples\n"
        "else:\n"
        "    kept = waiting(jax.random.key(0), start, n)[0]\n"
        "jax.block_until_ready(kept)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
    )
    command = [sys.executable, "-c", code, json.dumps([side, chains, d, n])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
