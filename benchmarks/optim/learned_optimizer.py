"""Runs of many problems at once beside one problem at a time."""

from __future__ import annotations

import time

import torch

from theses.evidence import Comparison, interleave
from theses.optim.learned_optimizer import (
    AdamSolver,
    LearnedOptimizer,
    QuadraticFamily,
    certify_events,
    roll_out,
    trajectory_properties,
)


def benchmark() -> list[Comparison]:
    """Rows of the comparison; the first is the primary peer.

    Returns
    -------
    list of Comparison
        The learned step and Adam, batched, against one problem at a time.
    """
    return [_learned(), _adam()]


def _learned(n: int = 250, n_steps: int = 50) -> Comparison:
    family = QuadraticFamily(dim=200)
    params = family.sample(n, 0)
    solver = LearnedOptimizer(generator=0).requires_grad_(False)
    ends: dict[str, torch.Tensor] = {}

    def batched() -> None:
        ends["ours"] = roll_out(solver, family, params, n_steps).losses

    def one_by_one() -> None:
        ends["peer"] = torch.cat([roll_out(solver, family, params[i], n_steps).losses for i in range(n)], 1)

    ours_s, peer_s = interleave([batched, one_by_one], repeats=3)
    difference = float((ends["ours"] / ends["peer"] - 1).abs().max())
    assert difference < 1e-6, difference
    start = time.perf_counter()
    long = roll_out(solver, family, params, 500)
    whole = time.perf_counter() - start
    bad = (~trajectory_properties(long).A).double().numpy()[None]
    certify_events(bad[:, :125], bad[:, 125:])
    return Comparison(
        "one problem at a time, same step",
        f"{n} quadratics x {n_steps} steps, dimension 200, float64",
        ours_s,
        peer_s,
        ">= 20",
        f"the same losses within {difference:.0e}; 500 steps take {whole:.1f} s (to be 5 on two cores), a "
        f"certificate of ten samples over 100 steps {10 * whole / 5:.0f} s (to be 60)",
    )


def _adam(n: int = 50, n_steps: int = 50) -> Comparison:
    family = QuadraticFamily(dim=200)
    params = family.sample(n, 0)
    ends: dict[str, torch.Tensor] = {}

    def batched() -> None:
        ends["ours"] = roll_out(AdamSolver(lr=0.01), family, params, n_steps).losses[-1]

    def one_by_one() -> None:
        last = []
        for i in range(n):
            z = family.z0(params[i]).requires_grad_(True)
            adam = torch.optim.Adam([z], lr=0.01)
            for _ in range(n_steps):
                adam.zero_grad()
                family.loss(z, params[i]).sum().backward()
                adam.step()
            last.append(family.loss(z.detach(), params[i]))
        ends["peer"] = torch.cat(last)

    ours_s, peer_s = interleave([batched, one_by_one], repeats=3)
    difference = float((ends["ours"] / ends["peer"] - 1).abs().max())
    assert difference < 1e-9, difference
    return Comparison(
        "torch.optim.Adam, one problem at a time",
        f"{n} quadratics x {n_steps} steps, dimension 200, float64",
        ours_s,
        peer_s,
        "",
        f"the same losses within {difference:.0e}",
    )
