"""One suggestion of VES-Gamma beside its alternating form and BoTorch's functions, and its parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from botorch.sampling.pathwise import get_matheron_path_model
from botorch.test_functions.synthetic import Hartmann
from botorch.utils.sampling import manual_seed, optimize_posterior_samples
from scipy.optimize import minimize_scalar
from scipy.special import digamma

from theses.decision.variational_entropy_search import (
    VESGamma,
    draw_paths,
    fit_gp,
    observed,
    optimize_ves,
    path_maxima,
    solve_k,
    suggest,
)
from theses.evidence import Comparison, interleave

N, D, PATHS = 50, 6, 128
BOUNDS = torch.stack([torch.zeros(D), torch.ones(D)]).double()
FORWARD_S, SUGGEST_S, SOLVE_S = 0.1, 4.0, 0.2


def benchmark() -> list[Comparison]:
    """Rows of the comparison; the first is the alternating form, which the target is about.

    Returns
    -------
    list of Comparison
        Suggestions for 50 observations of Hartmann-6 with 128 paths, the paths' maxima, the equation for k.
    """
    X = torch.rand(N, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = fit_gp(X, Hartmann(D, negate=True)(X))
    return [
        _alternating(model),
        *(_suggestion(model, acq, name) for acq, name in (("mes", "qMaxValueEntropy"), ("logei", "LogEI"))),
        _maxima(model),
        _forward(model),
        _shape(),
    ]


def _judge(model) -> Callable[[torch.Tensor], float]:
    """The bound at a point on many other paths."""
    ours = VESGamma(model, observed(model)[1].max(), BOUNDS, 512, seed=99)

    def value(x: torch.Tensor) -> float:
        with torch.no_grad():
            return float(ours(x[None]))

    return value


def _alternating(model) -> Comparison:
    best = observed(model)[1].max()
    found: dict[str, torch.Tensor] = {}

    def varpro() -> None:
        found["ours"] = suggest(model, BOUNDS, seed=0, num_paths=PATHS)

    def alternating() -> None:
        start = VESGamma(model, best, BOUNDS, PATHS, seed=0)
        found["peer"] = optimize_ves(start, BOUNDS, seed=0)[0]

    ours_s, peer_s = interleave([varpro, alternating], repeats=3)
    value = _judge(model)
    gap = value(found["ours"]) - value(found["peer"])
    assert gap > -0.05
    return Comparison(
        "Algorithms 1 and 2, alternating over x and (k, beta)",
        f"one suggestion, {N} observations in {D} dimensions, {PATHS} paths",
        ours_s,
        peer_s,
        ">= 2",
        f"bound at our point minus that at theirs, on 512 other paths: {gap:+.4f} nat; "
        f"{np.median(ours_s):.2f} s a suggestion, at most {SUGGEST_S:g} wanted",
    )


def _suggestion(model, acq, name: str) -> Comparison:
    points: dict[str, torch.Tensor] = {}

    def propose(which) -> None:
        points[which] = suggest(model, BOUNDS, acq=which, seed=0, num_paths=PATHS)

    ours_s, peer_s = interleave([partial(propose, "ves_gamma"), partial(propose, acq)], repeats=3)
    value = _judge(model)
    gap = value(points["ves_gamma"]) - value(points[acq])
    return Comparison(
        f"BoTorch {name}",
        f"one suggestion, {N} observations in {D} dimensions, {PATHS} paths",
        ours_s,
        peer_s,
        "",
        f"another criterion: its point has a bound {gap:.3f} nat below that of ours",
    )


def _maxima(model) -> Comparison:
    paths = draw_paths(model, PATHS, seed=0)
    with torch.no_grad(), manual_seed(0):
        peer_model = get_matheron_path_model(model, torch.Size([PATHS]))
    heights: dict[str, torch.Tensor] = {}

    def ours() -> None:
        heights["ours"] = path_maxima(paths, BOUNDS, raw=2048, restarts=3, seed=0)[1]

    def botorch() -> None:
        with manual_seed(0):
            _, found = optimize_posterior_samples(peer_model, BOUNDS, raw_samples=2048, num_restarts=3)
        heights["peer"] = found.squeeze(-1)

    ours_s, peer_s = interleave([ours, botorch], repeats=3)
    means = {name: float(values.mean()) for name, values in heights.items()}
    spread = float(heights["ours"].std()) / np.sqrt(PATHS)
    assert means["ours"] > means["peer"] - 4 * spread
    return Comparison(
        "BoTorch optimize_posterior_samples",
        f"maxima of {PATHS} paths, 2,048 raw points, 3 restarts each",
        ours_s,
        peer_s,
        "",
        f"mean maximum {means['ours']:.3f} against {means['peer']:.3f}, other draws (deviation {spread:.3f})",
    )


def _forward(model) -> Comparison:
    ours = VESGamma(model, observed(model)[1].max(), BOUNDS, PATHS, seed=0)
    half = VESGamma(model, observed(model)[1].max(), BOUNDS, 2 * PATHS, seed=0)
    x = torch.rand(512, 1, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def evaluate(function) -> None:
        with torch.no_grad():
            function(x)

    ours_s, peer_s = interleave([partial(evaluate, ours), partial(evaluate, half)], repeats=9, warmup=2)
    return Comparison(
        f"itself with {2 * PATHS} paths",
        f"values at 512 points, {PATHS} paths: the time is linear in the paths",
        ours_s,
        peer_s,
        "<= 2.5",
        f"median {np.median(ours_s):.3f} s, at most {FORWARD_S:g} wanted",
    )


def _shape() -> Comparison:
    s = torch.from_numpy(np.random.default_rng(0).gamma(1.0, 1.0, size=500))
    found: dict[str, np.ndarray] = {}

    def ours() -> None:
        found["ours"] = solve_k(s).numpy()

    def loop() -> None:
        def loss(log_k: float, value: float) -> float:
            return (log_k - digamma(np.exp(log_k)) - value) ** 2 + (np.exp(log_k) - 1) ** 2

        options: dict[str, Any] = {"bounds": (-6.9, 6.9), "method": "bounded", "options": {"xatol": 1e-9}}
        found["peer"] = np.exp([minimize_scalar(loss, args=(v,), **options).x for v in s.tolist()])

    ours_s, peer_s = interleave([ours, loop], repeats=3)
    difference = float(np.abs(found["ours"] - found["peer"]).max())
    assert difference < 1e-5
    many = torch.from_numpy(np.random.default_rng(0).gamma(1.0, 1.0, size=100_000))
    seconds = float(np.median(interleave([lambda: solve_k(many)], repeats=5)[0]))
    return Comparison(
        "scipy.optimize.minimize_scalar in a loop",
        "k for 500 values of s",
        ours_s,
        peer_s,
        "",
        f"largest difference {difference:.1e}; 100,000 values take {seconds:.2f} s, "
        f"at most {SOLVE_S:g} wanted",
    )
