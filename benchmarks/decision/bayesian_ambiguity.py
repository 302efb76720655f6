"""DRO-BAS's search and closed form beside cvxpy's cones, Bayesian DRO and SciPy."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
from scipy.optimize import minimize

from theses.datasets.returns import load_weekly_returns
from theses.decision.bayesian_ambiguity import (
    BDRO,
    DROBAS,
    MvNormalKnownCov,
    Newsvendor,
    NormalGamma,
    Portfolio,
    frontier,
)
from theses.decision.bayesian_ambiguity.dual import minimise
from theses.decision.bayesian_ambiguity.peers import Factory
from theses.decision.bayesian_ambiguity.robust import Solver
from theses.evidence import Comparison, interleave

SEARCH_S, CONES_S, GRID_S = 0.030, 0.5, 60.0


def benchmark() -> list[Comparison]:
    """Rows of the comparison; the first is the primary peer.

    Returns
    -------
    list of Comparison
        The Newsvendor with 900 samples against cvxpy's cones, SciPy and Bayesian DRO of 30 x 30, a grid of
        radii and repetitions, and the portfolio against Bayesian DRO.
    """
    return [*_newsvendor(), _grid(), *_portfolio()]


def _newsvendor() -> list[Comparison]:
    data = np.random.default_rng(0).normal(25, 10, 20)
    cost = Newsvendor(3, 8)
    robust = DROBAS(NormalGamma(), "PE", 0.5, 900, random_state=0).fit(data)
    samples = robust.solve(cost).samples
    radius = robust.radius_
    size = "Newsvendor, 900 samples, one radius"
    answers: dict[str, float] = {}

    def ours() -> None:
        answers["ours"] = robust.solve(cost).value

    def cones() -> None:
        answers["cones"] = minimise(cost, samples[None], radius, force_cones=True).value

    def joint() -> None:
        # The dual as one smooth-looking problem in (x, log gamma), as one would write it down.
        def dual(z: np.ndarray) -> float:
            gamma = np.exp(z[1])
            f = cost.evaluate(z[0], samples)
            top = f.max()
            return float(gamma * radius + top + gamma * np.log(np.mean(np.exp((f - top) / gamma))))

        start = [samples.mean(), 3.0]
        answers["joint"] = float(minimize(dual, start, method="Nelder-Mead", options={"xatol": 1e-6}).fun)

    rows = []
    for name, peer in (
        ("cones", "cvxpy with CLARABEL, exponential cones"),
        ("joint", "scipy.optimize.minimize, Nelder-Mead in (x, log gamma)"),
    ):
        ours_s, peer_s = interleave([ours, cones if name == "cones" else joint], repeats=5)
        difference = abs(answers[name] / answers["ours"] - 1)
        assert difference < 1e-6, difference
        wanted = f"at most {SEARCH_S * 1e3:.0f} ms wanted"
        if name == "cones":
            wanted += f", and {CONES_S:g} s of the cones"
        quality = f"the same worst-case value, relative difference {difference:.0e}; {wanted}"
        rows.append(Comparison(peer, size, ours_s, peer_s, "", quality))

    two_stage = BDRO(NormalGamma(), 0.5, 30, 30, random_state=0).fit(data)
    ours_s, peer_s = interleave([ours, lambda: two_stage.solve(cost)], repeats=5)
    assert robust.decision_.x is not None and two_stage.decision_.x is not None
    gap = float(robust.decision_.x[0] - two_stage.decision_.x[0])
    assert abs(gap) < 10
    quality = f"another problem on as many samples, by the same search; stocks differ by {gap:+.2f} units"
    rows.append(Comparison("Bayesian DRO, 30 x 30", size, ours_s, peer_s, "", quality))
    return rows


def _grid() -> Comparison:
    def data(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return generator.normal(25, 10, 20), generator.normal(25, 10, 50)

    radii = np.geomspace(0.05, 3, 12)
    tables = {}

    def run(name: str) -> None:
        factories: dict[str, Factory] = {
            "PE": lambda epsilon, g: DROBAS(NormalGamma(), "PE", epsilon, 900, random_state=g),
            "BDRO": lambda epsilon, g: BDRO(NormalGamma(), epsilon, 30, 30, random_state=g),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tables[name] = frontier({name: factories[name]}, radii, data, 200, random_state=0)

    ours_s, peer_s = interleave([lambda: run("PE"), lambda: run("BDRO")], repeats=1, warmup=0)
    lowest = {name: float(table["mean"].to_numpy().min()) for name, table in tables.items()}
    return Comparison(
        "Bayesian DRO, 30 x 30",
        "200 repetitions x 12 radii, 900 samples",
        ours_s,
        peer_s,
        "",
        f"lowest mean out-of-sample cost {lowest['PE']:.2f} against {lowest['BDRO']:.2f}; "
        f"at most {GRID_S:g} s wanted",
    )


def _portfolio() -> list[Comparison]:
    returns = load_weekly_returns(10).values[:52]
    model = MvNormalKnownCov(np.zeros(10), 0.01, np.cov(returns.T))
    ours = DROBAS(model, "PE", 0.3).fit(returns)
    two_stage = BDRO(model, 0.3, 10, 10, random_state=0).fit(returns)
    sampled = DROBAS(model, "PE", 0.3, 2_000, mode="sample", random_state=0).fit(returns)
    rows = []
    peers: dict[str, Solver] = {"Bayesian DRO, 10 x 10": two_stage, "PE on 2,000 samples, cones": sampled}
    for name, peer in peers.items():
        ours_s, peer_s = interleave([lambda: ours.solve(Portfolio()), partial(peer.solve, Portfolio())])
        gap = abs(ours.decision_.value - peer.decision_.value)
        assert gap < 0.01
        quality = f"worst-case weekly loss {ours.decision_.value:.4f} against {peer.decision_.value:.4f}"
        rows.append(Comparison(name, "portfolio of 10 shares, with modelling", ours_s, peer_s, "", quality))
    return rows
