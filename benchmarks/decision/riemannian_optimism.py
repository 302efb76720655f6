"""Exponential and logarithm beside geoopt's, online rounds and min-max rounds beside explicit ones."""

from __future__ import annotations

import math

import geoopt
import numpy as np
import torch

from theses.decision.riemannian_optimism import RIOD, MinMaxResult, r_ogd, rceg, solve_minmax
from theses.evidence import Comparison, interleave
from theses.numerics.manifolds import SPD, GeodesicBall, Hyperbolic, comparison_factor, frechet_mean
from theses.problems.geodesic import Distance, RobustKarcherGame


def benchmark() -> list[Comparison]:
    """Rows of the comparison; the first is the primary peer.

    Returns
    -------
    list of Comparison
        Exp and Log of positive definite matrices and of hyperbolic points against geoopt, 10,000 rounds of
        RIOD against explicit online descent, RIODA's rounds against the corrected extragradient's.
    """
    return [*_maps(), _rounds(), _games()]


def _maps() -> list[Comparison]:
    rng = np.random.default_rng(0)
    rows = []
    spaces = (
        (SPD(10), geoopt.SymmetricPositiveDefinite(), 200),
        (Hyperbolic(10), geoopt.Lorentz().to(torch.float64), 10_000),
    )
    for space, theirs, n in spaces:
        x, y = (np.stack([space.random(rng, 0.3) for _ in range(n)]) for _ in range(2))
        X, Y = torch.as_tensor(x), torch.as_tensor(y)
        found: dict[str, np.ndarray] = {}

        def ours(space=space, x=x, y=y, found=found) -> None:
            found["ours"] = space.exp(x, 0.5 * space.log(x, y))

        def peer(theirs=theirs, X=X, Y=Y, found=found) -> None:
            found["peer"] = theirs.expmap(X, 0.5 * theirs.logmap(X, Y)).numpy()

        ours_s, peer_s = interleave([ours, peer], repeats=5)
        difference = float(np.abs(found["ours"] - found["peer"]).max())
        assert difference < 1e-6, difference
        size = f"{n:,} midpoints (Log, then Exp) on {space!r}"
        rows.append(
            Comparison("geoopt", size, ours_s, peer_s, ">= 0.67", f"the same points within {difference:.0e}")
        )
    return rows


def _rounds() -> Comparison:
    rng = np.random.default_rng(0)
    space = Hyperbolic(10)
    ball = GeodesicBall(space, space.origin(), 0.5)
    T = 10_000
    losses = [Distance(space, ball.project(space.random(rng, 0.3))) for _ in range(T)]
    totals = {}

    def ours() -> None:
        learner = RIOD(space, 1 / math.sqrt(T), ball, "none")
        for loss in losses:
            learner.play()
            learner.update(loss)
        totals["ours"] = learner.total_loss

    def peer() -> None:
        totals["peer"] = float(r_ogd(space, losses, space.origin(), 1 / math.sqrt(T), ball)[1].sum())

    ours_s, peer_s = interleave([ours, peer], repeats=1, warmup=0)
    quality = f"total loss {totals['ours']:.1f} against {totals['peer']:.1f}; at most 3 s wanted"
    return Comparison(
        "explicit online descent", "10,000 rounds on Hyperbolic(10)", ours_s, peer_s, "", quality
    )


def _games() -> Comparison:
    rng = np.random.default_rng(0)
    space = SPD(10)
    points = np.stack([space.random(rng, 0.1) for _ in range(8)])
    center = frechet_mean(space, points)
    radius = 1.6 * float(space.dist(center, points).max())
    game = RobustKarcherGame(space, points, max(3.0, 1.1 * comparison_factor(2 * radius, -0.5)))
    ball = GeodesicBall(space, center, radius)
    middle = np.stack([center] * 8).reshape(-1)
    y_ball = GeodesicBall(game.y_manifold, middle, radius * math.sqrt(8))
    L = game.smoothness(2 * radius)
    x0, y0 = game.start()
    answers: dict[str, MinMaxResult] = {}

    def ours() -> None:
        answers["ours"] = solve_minmax(
            game,
            space,
            game.y_manifold,
            x0,
            y0,
            L,
            ball,
            y_ball,
            eps=1e-3,
            max_outer=100,
            checkpoints=(),
        )

    def peer() -> None:
        answers["peer"] = rceg(
            game, space, game.y_manifold, x0, y0, 1 / L, ball, y_ball, eps=1e-3, max_outer=100
        )

    ours_s, peer_s = interleave([ours, peer], repeats=1, warmup=0)
    quality = "; ".join(f"{name}: {answer.summary()}" for name, answer in answers.items())
    quality += f"; 1,000 rounds at this pace take {10 * ours_s[0]:.0f} s, at most 60 wanted"
    return Comparison(
        "corrected extragradient", "robust mean, 100 rounds on SPD(10)", ours_s, peer_s, "", quality
    )
