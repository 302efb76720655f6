"""Markov chains as finite state machines: vectorised samplers in which no chain waits for another.

A sampler whose inner loop has a data-dependent length (the doublings of NUTS, the shrinking of a slice) makes
every chain of a ``jax.vmap`` wait, at every draw, for the slowest: ``n`` draws of ``m`` chains take
``sum_i max_j N_ij`` iterations, where ``N_ij`` is what draw ``i`` of chain ``j`` needs. Here the same kernels
are cut at their loops into blocks of straight-line code. One ``step`` advances each chain by its own blocks,
chains drift apart in time, and the same draws take ``max_j sum_i N_ij`` steps.

The files follow the paper: ``machine`` holds the construction with its step bundling and cost amortisation,
``slices``, ``nuts`` and ``rejection`` the samplers, ``chains`` the run of many chains, ``speedup`` the model
of what is gained.

References
----------
Dance, Glaser, Orbanz and Adams: Efficiently Vectorized MCMC on Modern Accelerators, ICML 2025,
arXiv 2503.17405.
"""

try:
    import blackjax
    import jax
except ImportError as error:
    raise ImportError(
        f'theses.sampling.state_machine_mcmc needs jax and blackjax: pip install "theses[jax]" ({error})'
    ) from error

from theses.sampling.state_machine_mcmc.chains import Trace, run
from theses.sampling.state_machine_mcmc.machine import (
    Block,
    ChainState,
    StateMachine,
    as_sampling_algorithm,
    machine_from_blocks,
)
from theses.sampling.state_machine_mcmc.nuts import NUTSInfo, nuts
from theses.sampling.state_machine_mcmc.rejection import RejectionInfo, delayed_rejection
from theses.sampling.state_machine_mcmc.slices import SliceInfo, elliptical_slice, slice_sampler
from theses.sampling.state_machine_mcmc.speedup import SpeedupReport, expected_speedup

del blackjax, jax

__all__ = [
    "Block",
    "ChainState",
    "NUTSInfo",
    "RejectionInfo",
    "SliceInfo",
    "SpeedupReport",
    "StateMachine",
    "Trace",
    "as_sampling_algorithm",
    "delayed_rejection",
    "elliptical_slice",
    "expected_speedup",
    "machine_from_blocks",
    "nuts",
    "run",
    "slice_sampler",
]
