"""Thirty players, three actions: what earns the fair share of zero against a population that favours B?"""

from __future__ import annotations

from theses.games.equal_share import (
    BehaviorCloning,
    DriftingPopulation,
    Hedge,
    SAOLHedge,
    SelfPlay,
    StationaryPopulation,
    SwitchDominance,
    equal_share_bound,
    play,
)

game = SwitchDominance()
population = [0.399, 0.6, 0.001]
values = game.action_values(population)
print("payoff of each action:", dict(zip(game.action_names, values.round(3).tolist(), strict=True)))

# What is usually done: all seats learn together, from scratch or from the population's strategy.
for name, recipe in (
    ("self-play from scratch", SelfPlay(game)),
    ("self-play from the population", SelfPlay(game, population)),
    ("the same, held to it with lam = 0.5", SelfPlay(game, population, kl_anchor=population, lam=0.5)),
):
    print(f"{name}: {game.expected_payoff(recipe.policy(), population):+.3f}")

T = 5_000
found = play(game, Hedge(3, horizon=T), StationaryPopulation(population), T, random_state=0, n_runs=4)
print(f"Hedge, {found.summary()}")
print(f"promised: no more than {equal_share_bound('hedge', T, 3, payoff_range=2.5):.3f} below the share")

# A population that moves: the learner must forget.
walk = DriftingPopulation.walk(20.0, T, 3, random_state=1)
for learner in (Hedge(3, horizon=T), SAOLHedge(3), BehaviorCloning(3)):
    print(f"{type(learner).__name__}, {play(game, learner, walk, T, random_state=0, n_runs=4).summary()}")
