"""At least the fair share in a symmetric game with many players. arXiv 2406.04201."""

# with files: import json
# with files: from pathlib import Path

from theses.games.equal_share import (
    Hedge,
    SAOLHedge,
    SelfPlay,
    StationaryPopulation,
    SymmetricGame,
    play,
    recommend,
)

# with files: found = json.loads(Path("<file>").read_text())
# Three players choose a side; whoever is alone pays 1/2 to each of the others.  # without files
found = {"game": "majority-vote", "population": [0.4, 0.6]}  # without files
game = SymmetricGame.from_dict(found)
population = found.get("population") or [1 / game.n_actions] * game.n_actions
print("values:", game.action_values(population), "best response:", game.best_response(population))
print("take:", recommend(V_T=0.0, T=10_000, A=game.n_actions, want="exploit"))
for learner in (Hedge(game.n_actions, horizon=10_000), SAOLHedge(game.n_actions), SelfPlay(game)):
    result = play(game, learner, StationaryPopulation(population), 10_000, random_state=0, n_runs=4)
    print(type(learner).__name__, result.summary())
