"""Exact payoffs by counts beside OpenSpiel's tensors and SciPy's multinomial; rounds of the learners."""

from __future__ import annotations

import statistics

import numpy as np

from theses.evidence import Comparison, interleave
from theses.games.equal_share import (
    Hedge,
    RockPaperScissors,
    SAOLHedge,
    StationaryPopulation,
    SwitchDominance,
    play,
)
from theses.games.equal_share.counts import count_vectors

__all__ = ["benchmark"]

_VALUES_S = 5e-3  # action values, n = 30, A = 3
_SAOL_S = 20.0  # 100,000 rounds of SAOL-Hedge
_POPULATION = np.array([0.399, 0.6, 0.001])


def benchmark() -> list[Comparison]:
    """Rows of the comparison; the first is the primary peer.

    Returns
    -------
    list of Comparison
        Action values against OpenSpiel's tensor game, where there can be one, and against SciPy's multinomial
        at thirty players; a round of Hedge; 100,000 rounds of SAOL-Hedge.
    """
    return [
        _against_tensor(10, ">= 1"),
        _against_tensor(4, ""),
        _against_scipy(),
        _hedge_round(),
        _saol(),
    ]


def _against_tensor(n_players: int, target: str) -> Comparison:
    import pyspiel

    game = RockPaperScissors(n_players)
    profiles = np.stack(np.unravel_index(np.arange(3**n_players), [3] * n_players), axis=-1)
    payoffs = []
    for player in range(n_players):
        counts = (np.delete(profiles, player, axis=1)[:, :, None] == np.arange(3)).sum(axis=1)
        payoffs.append(game.action_values_counts(counts)[np.arange(len(profiles)), profiles[:, player]])
    theirs = pyspiel.create_tensor_game(payoffs, [3] * n_players)
    tensor = np.array(theirs.player_utilities(0)).reshape([3] * n_players)
    y = np.array([0.5, 0.3, 0.2])

    def contract() -> np.ndarray:
        values = tensor
        for _ in range(n_players - 1):
            values = values @ y
        return values

    difference = float(np.abs(contract() - game.action_values(y)).max())
    assert difference < 1e-12, difference
    ours_s, peer_s = interleave([lambda: game.action_values(y), contract], repeats=200, warmup=20)
    return Comparison(
        "OpenSpiel TensorGame, its tensor contracted with the population",
        f"action values, {n_players} players, 3 actions: {game.n_vectors} count vectors against "
        f"{3**n_players:,} profiles",
        ours_s,
        peer_s,
        target,
        f"values differ by {difference:.0e}",
    )


def _against_scipy() -> Comparison:
    from scipy import stats

    game = SwitchDominance()
    vectors = count_vectors(29, 3)
    table = game.action_values_counts(vectors)

    def scipy_values() -> np.ndarray:
        return stats.multinomial.pmf(vectors, 29, _POPULATION) @ table

    difference = float(np.abs(scipy_values() - game.action_values(_POPULATION)).max())
    assert difference < 1e-10, difference
    ours_s, peer_s = interleave(
        [lambda: game.action_values(_POPULATION), scipy_values], repeats=200, warmup=20
    )
    assert statistics.median(ours_s) <= _VALUES_S
    return Comparison(
        "scipy.stats.multinomial over the same count vectors",
        "action values, 30 players, 3 actions (a tensor would have 2e14 entries)",
        ours_s,
        peer_s,
        ">= 1",
        f"values differ by {difference:.0e}; at most 5 ms asked for",
    )


def _hedge_round() -> Comparison:
    game = SwitchDominance()
    actions = np.random.default_rng(0).choice(3, size=(1_000, 29), p=_POPULATION)
    generator = np.random.default_rng(0)
    ours = Hedge(3, lr=0.01).reset(game)
    logits = np.zeros(3)

    def rounds() -> None:
        ours.reset(game)
        for seen in actions:
            own = ours.act(generator)
            ours.observe(own, seen)

    def plain() -> None:
        logits[:] = 0.0
        for seen in actions:
            weights = np.exp(logits - logits.max())
            generator.choice(3, p=weights / weights.sum())
            logits[:] += 0.01 * game.action_values_counts(np.bincount(seen, minlength=3))

    rounds()
    plain()
    weights = np.exp(logits - logits.max())
    difference = float(np.abs(weights / weights.sum() - ours.policy()).max())
    assert difference < 1e-9, difference
    ours_s, peer_s = interleave([rounds, plain], repeats=9)
    a_round = statistics.median(ours_s) / len(actions)
    return Comparison(
        "Hedge with numpy.random.choice and payoffs computed from the counts",
        "1,000 rounds with all checks of input, 30 players, 3 actions",
        ours_s,
        peer_s,
        ">= 1",
        f"policies differ by {difference:.0e}; {a_round * 1e6:.0f} us a round, at most 30 asked for",
    )


def _saol() -> Comparison:
    game = RockPaperScissors()
    population = StationaryPopulation([0.5, 0.3, 0.2])

    def run(learner: Hedge | SAOLHedge) -> float:
        played = play(game, learner, population, 100_000, random_state=0)
        return float(played.average_payoff)

    best = float(game.action_values([0.5, 0.3, 0.2]).max())
    saol, hedge = run(SAOLHedge(3)), run(Hedge(3, horizon=100_000))
    assert min(saol, hedge) > 0
    ours_s, peer_s = interleave(
        [lambda: run(SAOLHedge(3)), lambda: run(Hedge(3, horizon=100_000))], repeats=1, warmup=0
    )
    assert ours_s[0] <= _SAOL_S
    return Comparison(
        "plain Hedge, which cannot follow a drift",
        "100,000 rounds of SAOL-Hedge (up to 17 intervals at once)",
        ours_s,
        peer_s,
        "",
        f"average payoffs {saol:+.4f} against {hedge:+.4f}, best response {best:+.4f}; "
        "at most 20 s asked for",
    )
