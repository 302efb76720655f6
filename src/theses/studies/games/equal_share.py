"""Measures who gets the fair share, and against whom.

Arms: Hedge beside self-play in Majority Vote and Switch Dominance, the rate against stationary opponents,
drifting opponents, opponents whose best response switches, opponents against whom nobody can be sure, and how
exploitable policies are. Populations' strategies are known here, so that what a policy is worth is exact; the
gap of a run is the fair share minus the average of the payoffs that were really drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from theses.evidence import Context, Measurement

if TYPE_CHECKING:
    import altair as alt

    from theses.games.equal_share import Hedge, Learner, SymmetricGame

__all__ = ["figures", "run"]

DELTA = 0.01
MAJORITY_Y = (0.49, 0.51)
DOMINANCE_Y = (0.399, 0.6, 0.001)
EXPONENTS = (0.2, 0.5, 0.8)  # V_T = T ** exponent
PHASES = 8
ANCHORS = {"sp_anchor_03": 0.3, "sp_anchor_05": 0.5, "sp_anchor_10": 1.0}


@dataclass(frozen=True)
class _Size:
    majority_rounds: int
    majority_runs: int
    dominance_rounds: int
    dominance_runs: int
    n_inits: int
    horizons: tuple[int, ...]
    bound_runs: int
    slope_runs: int
    drift_rounds: int
    drift_runs: int
    switch_rounds: int
    switch_runs: int
    hard_rounds: int
    n_policies: int
    n_restarts: int
    self_play_steps: int = 100_000


_SIZES = {
    "smoke": _Size(500, 2, 300, 2, 6, (30, 100), 2, 2, 200, 2, 160, 2, 50, 2, 5, 200),
    "standard": _Size(
        100_000, 8, 10_000, 4, 40, (100, 1_000, 10_000, 100_000), 4, 16, 10_000, 8, 20_000, 8, 2_000, 20, 100
    ),
}
_SIZES["paper"] = replace(
    _SIZES["standard"],
    majority_rounds=300_000,
    majority_runs=10,
    dominance_rounds=300_000,
    dominance_runs=10,
    bound_runs=10,
    drift_runs=10,
    switch_runs=10,
)


def run(ctx: Context) -> Measurement:
    """Measure one unit.

    Parameters
    ----------
    ctx : Context
        Surroundings. ``ctx.limit`` caps the rounds of the ``paper`` preset; all games are generated.

    Returns
    -------
    Measurement
        Payoffs and gaps of all learners, tables of them.

    Raises
    ------
    ValueError
        If the preset is unknown.
    """
    if ctx.preset not in _SIZES:
        raise ValueError(f"preset must be one of {', '.join(_SIZES)}, got {ctx.preset!r}")
    size = _SIZES[ctx.preset]
    if ctx.limit is not None:
        cap = ctx.limit
        size = replace(
            size,
            majority_rounds=min(size.majority_rounds, cap),
            dominance_rounds=min(size.dominance_rounds, cap),
            horizons=tuple(T for T in size.horizons if cap >= T) or (max(cap // 2, 1), cap),
            drift_rounds=min(size.drift_rounds, cap),
            switch_rounds=min(size.switch_rounds, cap),
            hard_rounds=min(size.hard_rounds, cap),
        )

    ctx.progress(0.0, "Hedge and the best response")
    hedge = ctx.stage("hedge", lambda: _hedge(ctx, size))
    ctx.progress(0.2, "self-play")
    self_play = ctx.stage("self-play", lambda: _self_play(ctx, size))
    ctx.progress(0.3, "stationary opponents")
    stationary = ctx.stage("stationary", lambda: _stationary(ctx, size))
    ctx.progress(0.5, "drifting opponents")
    drift = ctx.stage("drift", lambda: _drift(ctx, size))
    ctx.progress(0.75, "switching opponents")
    switches = ctx.stage("switches", lambda: _switches(ctx, size))
    ctx.progress(0.9, "opponents with no common strategy")
    hard = ctx.stage("hard", lambda: _hard(ctx, size))
    ctx.progress(0.95, "exploiters")
    exploit = ctx.stage("exploit", lambda: _exploit(ctx, size, hedge["policies"], self_play["policies"]))
    ctx.progress(1.0, "done")

    metrics = {
        **hedge["metrics"],
        **self_play["metrics"],
        **stationary["metrics"],
        **drift["metrics"],
        **switches["metrics"],
        **hard["metrics"],
        **exploit["metrics"],
    }
    tables = {
        "payoffs": pl.DataFrame(hedge["rows"] + self_play["rows"]),
        "stationary": pl.DataFrame(stationary["rows"]),
        "drift": pl.DataFrame(drift["rows"]),
        "switches": pl.DataFrame(switches["rows"]),
        "hard": pl.DataFrame(hard["rows"]),
        "exploit": pl.DataFrame(exploit["rows"]),
    }
    return Measurement(metrics, tables)


def _hedge(ctx: Context, size: _Size) -> dict[str, Any]:
    """C1a, C1b: the final policy's exact payoff over that of the best response."""
    from theses.games.equal_share import Hedge, MajorityVote, StationaryPopulation, SwitchDominance, play

    metrics: dict[str, Any] = {}
    policies: dict[str, Any] = {}
    rows = []
    arms: tuple[tuple[str, str, SymmetricGame, tuple[float, ...], int, int], ...] = (
        ("hedge_mv", "Majority Vote", MajorityVote(), MAJORITY_Y, size.majority_rounds, size.majority_runs),
        (
            "hedge_sdg",
            "Switch Dominance",
            SwitchDominance(),
            DOMINANCE_Y,
            size.dominance_rounds,
            size.dominance_runs,
        ),
    )
    for metric, name, game, y, n_rounds, n_runs in arms:
        played = play(
            game,
            Hedge(game.n_actions, horizon=n_rounds),
            StationaryPopulation(y),
            n_rounds,
            random_state=ctx.rng(metric),
            n_runs=n_runs,
        )
        values = game.action_values(y)
        final = played.policies[-1]
        metrics[metric] = (final @ values / values.max()).tolist()
        policies[name] = final
        rows += [
            {"game": name, "policy": "best response", "payoff": float(values.max())},
            {"game": name, "policy": "uniform", "payoff": float(values.mean())},
            *({"game": name, "policy": "Hedge", "payoff": float(payoff)} for payoff in final @ values),
        ]
    return {"metrics": metrics, "policies": policies, "rows": rows}


def _self_play(ctx: Context, size: _Size) -> dict[str, Any]:
    """C1c, C1d, C1e: where self-play on exact action values ends, and what that is worth."""
    from theses.games.equal_share import MajorityVote, SwitchDominance, self_play

    majority, dominance = MajorityVote(), SwitchDominance()
    steps = size.self_play_steps
    rows = []

    def worth(name: str, game: SymmetricGame, y: Any, policy: str, x: Any) -> float:
        payoff = game.expected_payoff(x, y)
        rows.append({"game": name, "policy": policy, "payoff": payoff})
        return payoff

    inits = ctx.rng("inits").dirichlet(np.ones(2), size=size.n_inits)
    ends = self_play(majority, inits, max_steps=steps).policy
    in_majority = [worth("Majority Vote", majority, MAJORITY_Y, "self-play", x) for x in ends]

    # Self-play has no randomness, so the seed brings other beginnings beside the paper's.
    scratch = np.concatenate([np.full((1, 3), 1 / 3), ctx.rng("scratch").dirichlet(np.ones(3), size=4)])
    from_scratch = self_play(dominance, scratch, max_steps=steps).policy
    worst_case = [worth("Switch Dominance", dominance, DOMINANCE_Y, "self-play", x) for x in from_scratch]

    # Behaviour cloning in its ideal, and from a sample of the population's actions.
    sample = ctx.rng("clone").multinomial(10_000, DOMINANCE_Y) / 10_000
    cloned = []
    policies = [*from_scratch]
    for lam in (0.0, 0.05, 0.1):
        for start in (np.array(DOMINANCE_Y), sample):
            anchor = start if lam else None
            end = self_play(dominance, start, kl_anchor=anchor, lam=lam, max_steps=steps).policy
            policies.append(end)
            label = f"SP-BC, lam {lam:g}"
            cloned.append(worth("Switch Dominance", dominance, DOMINANCE_Y, label, end))
    anchored = {}
    for metric, lam in ANCHORS.items():
        y = np.array(DOMINANCE_Y)
        end = self_play(dominance, y, kl_anchor=y, lam=lam, max_steps=steps).policy
        policies.append(end)
        anchored[metric] = worth("Switch Dominance", dominance, DOMINANCE_Y, f"SP-BC, lam {lam:g}", end)
    return {
        "metrics": {
            "sp_mv_lost": float(np.mean(ends[:, 0] > 0.5)),
            "sp_mv_payoff": float(np.mean(in_majority) / majority.action_values(MAJORITY_Y).max()),
            "sp_sdg": max(worst_case),
            "sp_bc_sdg": max(cloned),
            **anchored,
        },
        "policies": {"Majority Vote": ends, "Switch Dominance": np.array(policies)},
        "rows": rows,
    }


def _stationary(ctx: Context, size: _Size) -> dict[str, Any]:
    """C2a, C2b: the gap against the bound, and its rate, in Rock-Paper-Scissors with five actions."""
    from theses.games.equal_share import (
        Hedge,
        RockPaperScissors,
        StationaryPopulation,
        equal_share_bound,
        play,
    )

    game = RockPaperScissors(3, 5)
    ratios, gaps, rows = [], [], []
    for T in size.horizons:
        bound = equal_share_bound("hedge", T, 5, DELTA, payoff_range=game.payoff_range)
        ys = ctx.rng(f"dirichlet/{T}").dirichlet(np.ones(5), size=size.bound_runs)
        for name, y, n_runs in (("Dirichlet", ys, len(ys)), ("uniform", np.full(5, 0.2), size.slope_runs)):
            played = play(
                game,
                Hedge(5, horizon=T),
                StationaryPopulation(y),
                T,
                random_state=ctx.rng(f"{name}/{T}"),
                n_runs=n_runs,
            )
            rows += [
                {"population": name, "rounds": T, "gap": float(gap), "bound": bound}
                for gap in played.share_gap
            ]
            if name == "uniform":
                gaps.append(float(np.abs(played.share_gap).mean()))
            else:
                ratios.append(float(played.share_gap.max()) / bound)
    # Every policy earns the share against the uniform law, so this is the size of what chance and the
    # learner's own unrest leave.
    slope = float(np.polyfit(np.log(size.horizons), np.log(np.maximum(gaps, 1e-12)), 1)[0])
    return {"metrics": {"stationary_ratio": max(ratios), "stationary_slope": slope}, "rows": rows}


def _learners(n_actions: int, n_rounds: int) -> dict[str, Learner]:
    from theses.games.equal_share import BehaviorCloning, Hedge, SAOLHedge

    return {
        "SAOL-Hedge": SAOLHedge(n_actions),
        "Hedge": Hedge(n_actions, horizon=n_rounds),
        "cloning": BehaviorCloning(n_actions),
        "sliding window": _sliding_window(n_actions, max(2, round(math.sqrt(n_rounds)))),
    }


def _sliding_window(n_actions: int, window: int) -> Hedge:
    """Hedge that forgets what is older than a window: its step is the one for a horizon of the window."""
    from theses.games.equal_share import Hedge

    class SlidingWindowHedge(Hedge):
        def _start(self, n_runs: int) -> None:
            super()._start(n_runs)
            self._kept = np.zeros((window, n_runs, n_actions))

        def _observe(self, opponents: Any, gains: Any) -> None:
            slot = (self._round - 1) % window
            self._gains -= self._kept[slot]
            self._kept[slot] = gains
            super()._observe(opponents, gains)

    return SlidingWindowHedge(n_actions, horizon=window)


def _drift(ctx: Context, size: _Size) -> dict[str, Any]:
    """C3a, C4: gaps under drift over their bounds."""
    from theses.games.equal_share import (
        DriftingPopulation,
        MajorityVote,
        RockPaperScissors,
        equal_share_bound,
        play,
        recommend,
    )

    T = size.drift_rounds
    ratios: dict[str, list[float]] = {"saol": [], "cloning": [], "hedge": []}
    clone_gain: dict[float, list[float]] = {exponent: [] for exponent in EXPONENTS}
    advised, rows = [], []
    games: dict[str, SymmetricGame] = {
        "Majority Vote": MajorityVote(),
        "Rock-Paper-Scissors": RockPaperScissors(),
    }
    kinds: dict[str, Any] = {"SAOL-Hedge": "saol", "cloning": "cloning", "Hedge": "hedge"}
    for name, game in games.items():
        for exponent in EXPONENTS:
            walk = DriftingPopulation.walk(
                T**exponent,
                T,
                game.n_actions,
                n_runs=size.drift_runs,
                random_state=ctx.rng(f"walk/{name}/{exponent}"),
            )
            gaps = {}
            for learner_name, learner in _learners(game.n_actions, T).items():
                played = play(
                    game,
                    learner,
                    walk,
                    T,
                    random_state=ctx.rng(f"drift/{name}/{exponent}/{learner_name}"),
                    n_runs=size.drift_runs,
                )
                gaps[learner_name] = played.share_gap
                rows += [
                    {"game": name, "exponent": exponent, "learner": learner_name, "gap": float(gap)}
                    for gap in played.share_gap
                ]
            for learner_name, kind in kinds.items():
                # Hedge has no bound of its own under drift and is held against SAOL-Hedge's.
                bounds = [
                    equal_share_bound(
                        "saol" if kind == "hedge" else kind,
                        T,
                        game.n_actions,
                        DELTA,
                        float(variation),
                        payoff_range=game.payoff_range,
                    )
                    for variation in walk.variation
                ]
                ratios[kind].append(float(np.max(gaps[learner_name] / bounds)))
            clone_gain[exponent].append(float(np.mean(gaps["Hedge"] - gaps["cloning"])))
            best = recommend(T**exponent, T, game.n_actions, "exploit")
            chosen = next(learner for learner, kind in kinds.items() if kind == best)
            advised.append(float(np.mean(gaps["cloning"] - gaps[chosen])))
    return {
        "metrics": {
            "drift_ratio": max(ratios["saol"]),
            "hedge_drift_ratio": max(ratios["hedge"]),
            "clone_ratio": max(ratios["cloning"]),
            "clone_gain_slow": float(np.mean(clone_gain[0.2])),
            "clone_gain_middle": float(np.mean(clone_gain[0.5])),
            "clone_gain_fast": float(np.mean(clone_gain[0.8])),
            "recommend_gain": float(np.mean(advised)),
        },
        "rows": rows,
    }


def _switches(ctx: Context, size: _Size) -> dict[str, Any]:
    """C3b: the population moves from corner to corner, in either direction."""
    from theses.games.equal_share import DriftingPopulation, RockPaperScissors, play

    game = RockPaperScissors()
    T = size.switch_rounds
    corners = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    payoffs: dict[str, list[float]] = {}
    rows = []
    for direction, turn in (("up", 1), ("down", -1)):
        # Eight switches: nine phases.
        phase = np.minimum(np.arange(T) * (PHASES + 1) // T, PHASES)
        population = DriftingPopulation(corners[(turn * phase) % 3])
        for name, learner in _learners(3, T).items():
            played = play(
                game,
                learner,
                population,
                T,
                random_state=ctx.rng(f"switches/{direction}/{name}"),
                record_every=max(T // 100, 1),
                n_runs=size.switch_runs,
            )
            payoffs.setdefault(name, []).append(float(np.mean(played.average_payoff)))
            rows += [
                {"direction": direction, "learner": name, "round": int(t), "payoff": float(payoff)}
                for t, payoff in zip(played.rounds, played.running_payoffs.mean(axis=1), strict=True)
            ]
    means = {name: float(np.mean(values)) for name, values in payoffs.items()}
    gain = np.subtract(payoffs["SAOL-Hedge"], payoffs["Hedge"])
    return {
        "metrics": {
            "saol_gain": gain.tolist(),
            "hedge_switches": means["Hedge"],
            "saol_switches": means["SAOL-Hedge"],
            "clone_switches": means["cloning"],
            "window_switches": means["sliding window"],
        },
        "rows": rows,
    }


def _hard(ctx: Context, size: _Size) -> dict[str, Any]:
    """C5a, C5b: opponents against whom no learner can be sure of the share."""
    from theses.games.equal_share import (
        AdaptivePopulation,
        FixedStrategy,
        HeterogeneousPopulation,
        MajorityVote,
        MinorityGame,
        play,
        self_play,
    )

    T = size.hard_rounds
    arms = {
        "hetero": (MinorityGame(), HeterogeneousPopulation(np.eye(2))),
        "adaptive": (MajorityVote(), AdaptivePopulation(_less_likely, 2)),
    }
    metrics, rows = {}, []
    for metric, (game, opponents) in arms.items():
        learners = {
            **_learners(2, T),
            "uniform": FixedStrategy([0.5, 0.5]),
            "self-play": FixedStrategy(self_play(game, [0.6, 0.4], max_steps=size.self_play_steps).policy),
        }
        found = {}
        for name, learner in learners.items():
            stream = ctx.rng(f"{metric}/{name}")
            played = play(game, learner, opponents, T, random_state=stream, n_runs=size.drift_runs)
            found[name] = float(np.max(played.average_payoff)) / game.payoff_range
            rows.append({"opponents": metric, "learner": name, "payoff": found[name]})
        metrics[metric] = max(found.values())
    return {"metrics": metrics, "rows": rows}


def _less_likely(t: int, policy: Any) -> Any:
    return np.eye(2)[policy.argmin(axis=-1)]


def _exploit(
    ctx: Context, size: _Size, learnt: Mapping[str, Any], self_played: Mapping[str, Any]
) -> dict[str, Any]:
    """C6: the least payoff of a policy over common strategies of the opponents."""
    from theses.games.equal_share import MajorityVote, SwitchDominance

    rows: list[dict[str, Any]] = []
    games: dict[str, SymmetricGame] = {"Majority Vote": MajorityVote(), "Switch Dominance": SwitchDominance()}
    for name, game in games.items():
        random = ctx.rng(f"policies/{name}").dirichlet(np.ones(game.n_actions), size=size.n_policies)
        groups = {"random": random, "Hedge": learnt[name], "self-play": self_played[name]}
        for group, policies in groups.items():
            # Many runs of one recipe end at the same place, up to the last digits.
            for x in np.unique(np.round(policies, 6), axis=0):
                x = x / x.sum()
                value = game.exploitability(
                    x, size.n_restarts, random_state=ctx.rng(f"exploit/{name}/{group}")
                )
                rows.append({"game": name, "policy": group, "payoff": value})
    return {"metrics": {"exploit_max": max(row["payoff"] for row in rows)}, "rows": rows}


def figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, alt.Chart]:
    """Charts of the stored tables.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        Those of :func:`run`, each with a column ``seed``.

    Returns
    -------
    dict of str to altair.Chart
        ``payoffs`` of policies against the paper's populations, the ``rate`` against stationary opponents,
        gaps under ``drift``, running payoffs with ``switches``, ``hard`` opponents, and what an exploiter
        leaves (``exploit``).
    """
    import altair as alt

    def zero(axis: Callable[..., Any]) -> Any:
        rule = alt.Chart().mark_rule(strokeDash=[4, 3])
        return rule.encode(x=alt.datum(0)) if axis is alt.X else rule.encode(y=alt.datum(0))

    def points(data: pl.DataFrame, row: str, colour: str, title: str, facet: str) -> Any:
        marks = (
            alt.Chart()
            .mark_point(filled=True, size=50, opacity=0.7)
            .encode(
                x=alt.X("payoff:Q", title="payoff, fair share 0"),
                y=alt.Y(f"{row}:N", title=None),
                color=alt.Color(f"{colour}:N", legend=None),
                tooltip=[f"{row}:N", "seed:N", "payoff:Q"],
            )
        )
        return (
            alt.layer(marks, zero(alt.X), data=data)
            .properties(width=300, height=160)
            .facet(alt.Facet(f"{facet}:N", title=None), columns=2, title=title)
            .resolve_scale(x="independent", y="independent")
        )

    stationary = (
        tables["stationary"]
        .filter(pl.col("population") == "uniform")
        .with_columns(gap=pl.col("gap").abs().clip(1e-9))
    )
    dots = (
        alt.Chart(stationary)
        .mark_point(opacity=0.5)
        .encode(
            x=alt.X("rounds:Q", title="rounds T").scale(type="log"),
            y=alt.Y("gap:Q", title="distance from the fair share").scale(type="log"),
            tooltip=["rounds:Q", "gap:Q", "seed:N"],
        )
    )
    bound = (
        alt.Chart(stationary.unique(["rounds"]).select("rounds", "bound"))
        .mark_line(color="black", strokeDash=[4, 3])
        .encode(x="rounds:Q", y="bound:Q")
    )
    gaps = (
        alt.Chart()
        .mark_point(filled=True, opacity=0.6)
        .encode(
            x=alt.X("exponent:O", title="drift: V_T = T to the power of"),
            y=alt.Y("gap:Q", title="fair share minus average payoff"),
            color=alt.Color("learner:N", title=None),
            xOffset="learner:N",
            tooltip=["learner:N", "seed:N", "gap:Q"],
        )
    )
    drift = (
        alt.layer(gaps, zero(alt.Y), data=tables["drift"])
        .properties(width=260, height=220)
        .facet(alt.Facet("game:N", title=None), columns=2, title="Gaps under drift, negative above the share")
        .resolve_scale(y="independent")
    )
    running = (
        tables["switches"]
        .group_by("direction", "learner", "round")
        .agg(pl.col("payoff").mean())
        .sort("direction", "learner", "round")
    )
    lines = (
        alt.Chart()
        .mark_line()
        .encode(
            x=alt.X("round:Q", title="rounds"),
            y=alt.Y("payoff:Q", title="average payoff so far"),
            color=alt.Color("learner:N", title=None),
        )
    )
    switches = (
        alt.layer(lines, zero(alt.Y), data=running)
        .properties(width=260, height=220)
        .facet(alt.Facet("direction:N", title=None), columns=2, title="The best response switches")
    )
    return {
        "payoffs": points(
            tables["payoffs"], "policy", "policy", "What policies are worth against the population", "game"
        ),
        "rate": (dots + bound).properties(
            width=360, height=240, title="Gap against the uniform law (dashed: the bound)"
        ),
        "drift": drift,
        "switches": switches,
        "hard": points(tables["hard"], "learner", "learner", "No common strategy: payoff / B", "opponents"),
        "exploit": points(
            tables["exploit"], "policy", "policy", "Least payoff over common strategies", "game"
        ),
    }
