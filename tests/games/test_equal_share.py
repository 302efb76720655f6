from __future__ import annotations

import itertools
import math
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.conformance.contract import Call
from theses.catalogue import lookup
from theses.catalogue.card import Bound
from theses.evidence import Context
from theses.games.equal_share import (
    GAMES,
    AdaptivePopulation,
    BehaviorCloning,
    DriftingPopulation,
    FixedStrategy,
    Hedge,
    HeterogeneousPopulation,
    MajorityVote,
    MinorityGame,
    RecordedPopulation,
    RockPaperScissors,
    SAOLHedge,
    SelfPlay,
    StationaryPopulation,
    SwitchDominance,
    SymmetricGame,
    Trajectory,
    equal_share_bound,
    play,
    recommend,
    self_play,
)
from theses.games.equal_share.counts import CountTable, count_vectors, n_count_vectors
from theses.studies.games import equal_share as study

SLUG = "equal-share"
DOMINANCE_Y = [0.399, 0.6, 0.001]
UNKNOWN: Any = "unknown"

small_games = st.sampled_from(
    [
        MajorityVote(),
        MajorityVote(6),
        MinorityGame(),
        MinorityGame(5),
        SwitchDominance(5),
        RockPaperScissors(4),
        RockPaperScissors(3, 5),
    ]
)


def strategies(n_actions, seed, n=None):
    return np.random.default_rng(seed).dirichlet(np.ones(n_actions), size=n)


def brute_values(game, y):
    """Sum over all profiles of the others, with payoffs from the game's definition."""
    values = np.zeros(game.n_actions)
    for profile in itertools.product(range(game.n_actions), repeat=game.n_players - 1):
        counts = np.bincount(profile, minlength=game.n_actions)
        chance = math.prod(y[a] for a in profile)
        values += chance * np.array([game.payoff(a, counts) for a in range(game.n_actions)])
    return values


def tensor_of(game):
    n, n_actions = game.n_players, game.n_actions
    tensor = np.empty((n, *[n_actions] * n))
    for profile in itertools.product(range(n_actions), repeat=n):
        for player in range(n):
            others = [a for i, a in enumerate(profile) if i != player]
            counts = np.bincount(others, minlength=n_actions)
            tensor[(player, *profile)] = game.payoff(profile[player], counts)
    return tensor


def calls() -> list[Call]:
    game = MajorityVote()
    y = np.array([0.4, 0.6])
    counts = np.array([1.0, 1.0])
    tensor = tensor_of(game)
    path = np.array([[0.5, 0.5], [0.4, 0.6], [0.3, 0.7]])
    actions = np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])

    arguments = {
        "action_values": {"y": y},
        "action_values_counts": {"counts": counts},
        "expected_payoff": {"x": y, "y": y},
        "best_response": {"y": y},
        "exploiter": {"x": y},
        "exploitability": {"x": y},
    }

    def on(maker, method):
        return getattr(maker(), method), {k: v.copy() for k, v in arguments[method].items()}

    def in_payoff(maker):
        return maker().payoff, {"action": 0, "counts": counts.copy()}

    def from_tensor(maker):
        return maker.from_tensor, {"tensor": tensor.copy()}

    # The checks are those of the base class, so that two actions do for all.
    names = ("SymmetricGame", *(maker.__name__ for maker in GAMES.values()))

    seen_arrays = ("own_action", "opponent_actions")

    def observer():
        seen = {"own_action": np.array([0.0, 1.0]), "opponent_actions": actions[:2].copy()}
        return Hedge(2).reset(game, n_runs=2).observe, seen

    return [
        *(
            Call(f"{name}.{method}", partial(on, MajorityVote, method), tuple(arguments[method]))
            for name in names
            for method in arguments
        ),
        *(Call(f"{name}.payoff", partial(in_payoff, MajorityVote), ("counts",)) for name in names),
        *(Call(f"{name}.from_tensor", partial(from_tensor, SymmetricGame), ("tensor",)) for name in names),
        Call("FixedStrategy", lambda: (FixedStrategy, {"x": y.copy()}), ("x",)),
        Call(
            "SelfPlay",
            lambda: (SelfPlay, {"game": game, "init": y.copy(), "kl_anchor": y.copy(), "lam": 0.5}),
            ("init", "kl_anchor"),
        ),
        Call(
            "self_play",
            lambda: (self_play, {"game": game, "init": y.copy(), "kl_anchor": y.copy(), "lam": 0.5}),
            ("init", "kl_anchor"),
        ),
        *(
            Call(
                f"{name}.observe",
                observer,
                seen_arrays,
                paired=seen_arrays,
            )
            for name in ("Learner", "Hedge", "SAOLHedge", "BehaviorCloning", "FixedStrategy", "SelfPlay")
        ),
        Call("StationaryPopulation", lambda: (StationaryPopulation, {"y": y.copy()}), ("y",)),
        Call(
            "DriftingPopulation",
            lambda: (DriftingPopulation, {"path": path.copy()}),
            ("path",),
        ),
        Call(
            "HeterogeneousPopulation",
            lambda: (HeterogeneousPopulation, {"strategies": path.copy()}),
            ("strategies",),
        ),
        Call(
            "RecordedPopulation",
            lambda: (RecordedPopulation, {"actions": actions.copy(), "n_actions": 2}),
            ("actions",),
        ),
        Call(
            "AdaptivePopulation.respond",
            lambda: (AdaptivePopulation(lambda t, x: x[..., ::-1], 2).respond, {"t": 1, "policy": y.copy()}),
            ("policy",),
        ),
    ]


# Exact payoffs --------------------------------------------------------------------------------------------


@given(small_games, st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_action_values_are_the_sum_over_all_profiles(game, seed):
    y = strategies(game.n_actions, seed)
    np.testing.assert_allclose(game.action_values(y), brute_values(game, y), atol=1e-12)


@given(small_games, st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_a_strategy_earns_the_share_against_itself(game, seed):
    y = strategies(game.n_actions, seed)
    assert game.expected_payoff(y, y) == pytest.approx(game.share, abs=1e-12)


def test_thirty_players_keep_their_digits():
    game = SwitchDominance()
    vectors = count_vectors(29, 3)
    for y in (DOMINANCE_Y, [1.0, 0.0, 0.0], [0.0, 1e-12, 1 - 1e-12], [1 / 3] * 3):
        weights = stats.multinomial.pmf(vectors, 29, y)
        np.testing.assert_allclose(
            game.action_values(y), weights @ game.action_values_counts(vectors), atol=1e-10
        )
        assert CountTable.make(29, 3).probabilities(np.array(y)).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("n_others", "n_actions"), [(1, 2), (4, 3), (29, 3), (3, 5), (2, 7)])
def test_every_count_vector_has_its_own_row(n_others, n_actions):
    vectors = count_vectors(n_others, n_actions)
    assert len(vectors) == n_count_vectors(n_others, n_actions) == len(np.unique(vectors, axis=0))
    assert (vectors.sum(axis=1) == n_others).all()
    rng = np.random.default_rng(0)
    actions = np.stack([rng.permutation(np.repeat(np.arange(n_actions), row)) for row in vectors])
    assert CountTable.make(n_others, n_actions).rows(actions).tolist() == list(range(len(vectors)))


def test_payoffs_of_the_four_games_by_hand():
    assert [MajorityVote().payoff(0, k) for k in ([2, 0], [1, 1], [0, 2])] == [0.0, 0.5, -1.0]
    assert [MinorityGame().payoff(0, k) for k in ([2, 0], [1, 1], [0, 2])] == [0.0, -0.5, 1.0]
    assert MinorityGame(4).payoff(0, [1, 2]) == 0.0
    dominance = SwitchDominance(8)  # the switch is at two on A
    unit = 2.5 / 7
    assert dominance.payoff(0, [1, 4, 2]) == pytest.approx(unit * (2 - 4))
    assert dominance.payoff(1, [2, 4, 1]) == pytest.approx(unit * 3)
    assert dominance.payoff(1, [1, 4, 2]) == pytest.approx(unit * (1 - 2))
    assert dominance.payoff(0, [0, 4, 3]) == pytest.approx(-unit * 7)
    scissors = RockPaperScissors(4, 5)
    assert scissors.payoff(0, [0, 1, 1, 1, 0]) == pytest.approx((1 - 2) / 3)
    assert scissors.payoff(0, [0, 0, 0, 1, 2]) == pytest.approx(1.0)


def test_the_papers_populations_have_the_papers_values():
    np.testing.assert_allclose(MajorityVote().action_values([0.49, 0.51]), [-0.0102, 0.0098], atol=1e-12)
    np.testing.assert_allclose(
        SwitchDominance().action_values(DOMINANCE_Y), [-1.498, 0.9996, -2.207], atol=5e-4
    )
    assert SwitchDominance().best_response(DOMINANCE_Y) == 1


@pytest.mark.parametrize("n_players", [3, 4, 7])
@pytest.mark.parametrize("maker", list(GAMES.values()))
def test_named_games_are_constant_sum_with_the_range_they_state(maker, n_players):
    game = maker(n_players)
    assert game.check() < 1e-12
    assert np.abs(game.action_values_counts(count_vectors(n_players - 1, game.n_actions))).max() <= (
        game.payoff_range + 1e-12
    )


def test_no_tensor_is_made_at_thirty_players():
    game = SwitchDominance()
    assert game.n_vectors == 465
    assert game._payoffs.size == 3 * 465


def test_large_games_are_estimated_with_their_error():
    game = RockPaperScissors(60, 9)  # C(67, 8) count vectors
    assert not game.exact
    y = strategies(9, 0)
    duels = game._duels @ y  # linear in y: the exact answer
    values, errors = game.action_values(y, n_samples=20_000, random_state=0, return_std_error=True)
    assert (np.abs(values - duels) < 4.5 * errors).all() and (errors < 2e-3).all() and (errors > 0).all()
    assert (
        game.action_values(y, n_samples=50, random_state=1)
        == game.action_values(y, n_samples=50, random_state=1)
    ).all()
    assert game.check(200) < 1e-9
    with pytest.raises(ValueError, match="exploiters are searched"):
        game.exploitability(y)
    played = play(game, Hedge(9), StationaryPopulation(y), 30, random_state=0)
    assert np.isfinite(played.payoffs).all()


def test_exploiters_reach_the_minimum():
    majority = MajorityVote()
    grid = np.linspace(0, 1, 2_001)
    for p in (0.0, 0.3, 0.5, 0.9):
        values = majority.action_values(np.column_stack([grid, 1 - grid])) @ [p, 1 - p]
        assert majority.exploitability([p, 1 - p], 10) == pytest.approx(values.min(), abs=1e-6)
    game = RockPaperScissors(3, 3)
    y, value = game.exploiter([0.7, 0.2, 0.1], 20)
    assert value == pytest.approx(game.expected_payoff([0.7, 0.2, 0.1], y))
    thirds = np.array([[a, b, 20 - a - b] for a in range(21) for b in range(21 - a)]) / 20
    assert value <= (game.action_values(thirds) @ [0.7, 0.2, 0.1]).min() + 1e-9


def test_exploiters_reach_the_minimum_at_thirty_players():
    game = SwitchDominance()
    grid = np.array([[a, b, 60 - a - b] for a in range(61) for b in range(61 - a)]) / 60
    values = game.action_values(grid)
    for x in (*strategies(3, 1, 2), np.array([0.0, 0.0, 1.0])):
        assert game.exploitability(x) <= (values @ x).min() + 1e-9


@pytest.mark.parametrize("n_players", [3, 5])
def test_the_two_sided_games_are_their_definition_in_every_profile(n_players):
    tensor = tensor_of(MinorityGame(n_players))
    for profile in itertools.product((0, 1), repeat=n_players):
        sizes = [profile.count(0), profile.count(1)]
        small = min(sizes)
        for player, side in enumerate(profile):
            won = (n_players - small) / (2 * small) if sizes[side] == small != 0 else -0.5 * (small > 0)
            assert tensor[(player, *profile)] == won
    np.testing.assert_array_equal(tensor_of(MajorityVote(n_players)), -tensor)


@given(small_games, st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_every_policy_can_be_held_to_the_share(game, seed):
    assert game.exploitability(strategies(game.n_actions, seed), 3) <= game.share + 1e-12


# Where games come from ------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", [MajorityVote(), RockPaperScissors(3, 3), SwitchDominance(4)])
def test_tensors_give_the_game_back(game):
    again = SymmetricGame.from_tensor(tensor_of(game) + 0.25, 0.25 * game.n_players)
    y = strategies(game.n_actions, 3)
    np.testing.assert_allclose(again.action_values(y), game.action_values(y) + 0.25, atol=1e-12)
    assert again.share == pytest.approx(0.25)


def test_open_spiel_agrees():
    pyspiel = pytest.importorskip("pyspiel")
    for game in (MajorityVote(), RockPaperScissors(4), SwitchDominance(5)):
        tensor = tensor_of(game)
        theirs = pyspiel.create_tensor_game([part.ravel() for part in tensor], list(tensor.shape[1:]))
        ours = SymmetricGame.from_open_spiel(theirs)
        y = strategies(game.n_actions, 5)
        values = np.array(theirs.player_utilities(0)).reshape(tensor.shape[1:])
        for _ in range(game.n_players - 1):
            values = values @ y
        np.testing.assert_allclose(ours.action_values(y), values, atol=1e-12)
        np.testing.assert_allclose(game.action_values(y), values, atol=1e-12)


def test_open_spiels_own_games():
    pyspiel = pytest.importorskip("pyspiel")
    blotto = SymmetricGame.from_open_spiel("blotto(coins=3,fields=2,players=3)")
    assert (blotto.n_players, blotto.n_actions, blotto.total) == (3, 4, 0.0)
    state = pyspiel.load_game("blotto(coins=3,fields=2,players=3)").new_initial_state()
    state.apply_actions([1, 2, 2])
    assert blotto.payoff(1, [0, 0, 2, 0]) == state.returns()[0]
    assert len(set(blotto.action_names)) == 4
    assert SymmetricGame.from_open_spiel(pyspiel.load_game("matrix_rps")).share == 0
    for name, words in (
        ("matching_pennies_3p", "symmetric"),
        ("matrix_pd", "add up"),
        ("tic_tac_toe", "at the same time"),
        ("no_such_game", "OpenSpiel knows"),
        ("goofspiel(imp_info=True,num_cards=3,points_order=descending)", "one move"),
    ):
        with pytest.raises(ValueError, match=words):
            SymmetricGame.from_open_spiel(name)


def test_the_first_offending_profile_is_shown():
    tensor = tensor_of(MajorityVote())
    bent = tensor.copy()
    bent[2, 0, 0, 1] += 0.5
    with pytest.raises(ValueError, match=r"symmetric game's: in the profile \(0, 0, 1\) player 2 gets -0.5"):
        SymmetricGame.from_tensor(bent)
    with pytest.raises(ValueError, match=r"add up to 0 over all players, got 1.*when .*1 of 3 choose '1'"):
        SymmetricGame(3, 2, lambda a, k: 0.5 * (k[a] == 1)).check()


def test_small_payoffs_are_checked_on_their_own_scale():
    with pytest.raises(ValueError, match="add up to"):
        SymmetricGame(3, 2, lambda a, k: 1e-10 * (k[a] == 1)).check()
    with pytest.raises(ValueError, match="symmetric"):
        SymmetricGame.from_tensor(1e-10 * np.random.default_rng(0).normal(size=(3, 2, 2, 2)))
    small = SymmetricGame.from_tensor(1e-10 * tensor_of(MajorityVote()))
    assert small.payoff_range == pytest.approx(1e-10)


def table_description():
    game = MajorityVote()
    return {
        "n_players": 3,
        "actions": ["left", "right"],
        "payoffs": [
            {"action": name, "others": k, "payoff": game.payoff(a, k)}
            for a, name in enumerate(("left", "right"))
            for k in ([2, 0], [1, 1], [0, 2])
        ],
    }


def test_descriptions_of_plain_values():
    game = SymmetricGame.from_dict(table_description())
    assert game.action_names == ("left", "right")
    np.testing.assert_allclose(game.action_values([0.49, 0.51]), [-0.0102, 0.0098], atol=1e-12)
    assert game.payoff(0, [0, 2]) == -1
    named = SymmetricGame.from_dict({"game": "switch-dominance", "n_players": 8, "scale": 1.0})
    assert (named.n_players, named.payoff_range) == (8, 1.0)
    tensor = SymmetricGame.from_dict({"tensor": tensor_of(MajorityVote()).tolist()})
    assert tensor.payoff_range == 1.0
    rows = [{**r, "action": {"left": 1, "right": 0}[r["action"]]} for r in table_description()["payoffs"]]
    numbered = SymmetricGame.from_dict({**table_description(), "actions": [1, 0], "payoffs": rows})
    assert numbered.action_names == ("1", "0") and numbered.payoff(0, [0, 2]) == -1


def change(**changes):
    return lambda d: {**d, **changes}


def row(index, **changes):
    def edit(d):
        rows = [dict(r) for r in d["payoffs"]]
        rows[index] |= changes
        return {**d, "payoffs": rows}

    return edit


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (change(tensor=[]), "one of 'game', 'payoffs' and 'tensor'"),
        (change(rules=1), "unknown keys: rules"),
        (change(payoffs=[]), "payoffs must be a list"),
        (lambda d: {**d, "payoffs": d["payoffs"][:-1]}, r"no row for action 'right' against \[0, 2\]"),
        (lambda d: {**d, "payoffs": [*d["payoffs"], {**d["payoffs"][0], "payoff": 3}]}, "row 7: .*same"),
        (row(1, others=[2, 2]), "row 2: others must be 2 counts that sum to 2"),
        (row(1, action="up"), "row 2: action must be one of"),
        (row(1, payoff=float("nan")), "row 2: payoff must be a finite"),
        (row(1, payoff=0.75), "add up to 0"),
        (change(actions=["left", "left"]), "actions must be 2 different"),
        (row(1, payoff=10**400), "within the range of floats"),
        (change(total=10**400), "within the range of floats"),
        (change(n_players=10**18), "at most 1,000,000 count vectors"),
    ],
)
def test_bad_descriptions_are_refused(edit, words):
    with pytest.raises(ValueError, match=words):
        SymmetricGame.from_dict(edit(table_description()))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SymmetricGame(1, 2, lambda a, k: 0.0), "n_players must be at least 2"),
        (lambda: SymmetricGame(3, 1, lambda a, k: 0.0), "n_actions must be at least 2"),
        (lambda: SymmetricGame(3, 2, lambda a, k: float("nan")).check(), "payoff must be finite, got nan"),
        (lambda: MajorityVote().action_values([0.5, 0.5 + 1e-7]), "y must sum to 1"),
        (lambda: MajorityVote().action_values([-0.1, 1.1]), "y must hold probabilities"),
        (lambda: MajorityVote().expected_payoff([1, 0, 0], [1, 0]), "x must have 2 probabilities"),
        (lambda: MajorityVote().action_values_counts([2, 1]), "counts must sum to 2"),
        (lambda: MajorityVote().action_values_counts([0.5, 1.5]), "whole numbers"),
        (lambda: RockPaperScissors(3, 4), "n_actions must be odd"),
        (lambda: RockPaperScissors(3, 10**9 + 1), "n_actions must be at most 1000"),
        (lambda: MinorityGame(10**30), "n_players must be at most 1000000"),
        (lambda: SymmetricGame.from_dict({"game": "majority-vote", "n_players": "3"}), "must be an integer"),
        (lambda: SymmetricGame(3, 2, lambda a, k: (1 - 2 * a) * 1.5e308).check(), "add up to 0"),
        (lambda: self_play(MajorityVote(), [0.5, 0.5], kl_anchor=[0.5, 0.5], lam=3, lr=0.5), "1 / lam"),
        (
            lambda: play(
                RockPaperScissors(), SAOLHedge(3, payoff_range=0.1), StationaryPopulation([1, 0, 0]), 99
            ),
            "payoff_range must be at least",
        ),
        (
            lambda: play(MajorityVote(), Hedge(2), AdaptivePopulation(lambda t, x: np.eye(2), 2), 3),
            r"the rule's strategy must have shape \(2,\), got \(2, 2\)",
        ),
        (lambda: Hedge(2, lr=UNKNOWN), "lr must be 'theory'"),
        (lambda: Hedge(2).observe(0, [1, 1]), r"call reset\(game\)"),
        (lambda: Hedge(2).reset(RockPaperScissors()), "game must have 2 actions"),
        (lambda: Hedge(2).reset(MajorityVote()).observe(0, [1, 2]), "opponent_actions must be actions"),
        (lambda: SelfPlay(MajorityVote(), "elsewhere"), "init must be 'uniform'"),
        (lambda: self_play(MajorityVote(), [0.5, 0.5], lam=1.0), "kl_anchor must be given"),
        (lambda: equal_share_bound(UNKNOWN, 10, 2), "kind must be one of"),
        (lambda: recommend(0.0, 10, 2, UNKNOWN), "want must be one of"),
        (lambda: play(MajorityVote(), Hedge(2), StationaryPopulation([1 / 3] * 3), 5), "2 actions, got 3"),
        (lambda: play(MajorityVote(), Hedge(2), HeterogeneousPopulation([[1, 0]]), 5), "opponents must be 2"),
        (lambda: play(MajorityVote(), Hedge(2), DriftingPopulation([[1, 0]] * 3), 5), "5 rounds, got 3"),
        (lambda: RecordedPopulation([[0, 2]], 2), "actions must be whole numbers from 0 to 1"),
    ],
)
def test_bad_input_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# Learners --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [None, 400])
def test_hedge_is_the_softmax_of_realised_gains_and_keeps_its_regret(horizon):
    game = RockPaperScissors(4, 3)
    rng = np.random.default_rng(0)
    learner = Hedge(3, horizon=horizon).reset(game)
    total, earned, T = np.zeros(3), 0.0, 400
    assert learner.policy().tolist() == [1 / 3] * 3
    for t in range(1, T + 1):
        eta = math.sqrt(8 * math.log(3) / T) / 2 if horizon else math.sqrt(math.log(3) / t)
        weights = np.exp(eta * total)
        np.testing.assert_allclose(learner.policy(), weights / weights.sum(), rtol=1e-10)
        seen = rng.choice(3, size=3, p=[0.2, 0.5, 0.3] if t % 100 < 50 else [0.6, 0.1, 0.3])
        gains = game.action_values_counts(np.bincount(seen, minlength=3))
        earned += float(learner.policy() @ gains)
        learner.observe(learner.act(rng), seen)
        total += gains
    assert total.max() - earned <= (
        math.sqrt(2 * T * math.log(3)) if horizon else 2 * math.sqrt(T * math.log(3))
    )


def test_covering_intervals_are_those_of_the_definition():
    for t in (1, 2, 3, 7, 8, 100, 1023, 1024):
        stated = [
            (i << k, ((i + 1) << k) - 1)
            for k in range(12)
            for i in range(1, t + 1)
            if i << k <= t <= ((i + 1) << k) - 1
        ]
        assert SAOLHedge.active_intervals(t) == stated
        assert len(stated) == math.floor(math.log2(t)) + 1


def test_saol_is_the_algorithm_as_stated():
    # One Hedge object an interval, kept in a dictionary, weights multiplied as written.
    game = RockPaperScissors(3, 3)
    learner = SAOLHedge(3).reset(game)
    rng = np.random.default_rng(1)
    experts: dict[tuple[int, int], Hedge] = {}
    weights: dict[tuple[int, int], float] = {}
    for t in range(1, 131):
        active = SAOLHedge.active_intervals(t)
        for interval in active:
            size = interval[1] - interval[0] + 1
            if interval[0] == t:
                experts[interval] = Hedge(3, horizon=size).reset(game)
                weights[interval] = min(0.5, size**-0.5)
        total = sum(weights[interval] for interval in active)
        mixture = sum(weights[interval] * experts[interval].policy() for interval in active) / total
        np.testing.assert_allclose(learner.policy(), mixture, rtol=1e-9)
        seen = rng.choice(3, size=2)
        scaled = (game.action_values_counts(np.bincount(seen, minlength=3)) + 1) / 2
        for interval in active:
            size = interval[1] - interval[0] + 1
            regret = scaled @ experts[interval].policy() - scaled @ mixture
            weights[interval] *= 1 + min(0.5, size**-0.5) * regret
            experts[interval].observe(0, seen)
        learner.observe(0, seen)


def test_saol_follows_where_restarts_every_k_rounds_do_not():
    # A toy restarts Hedge every k rounds; no k serves both a standing and a switching population.
    game = RockPaperScissors()
    corners = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    T = 3_000
    still = StationaryPopulation([0.36, 0.33, 0.31])
    turning = DriftingPopulation(corners[np.arange(T) * 6 // T % 3])
    saol = [
        np.mean(play(game, SAOLHedge(3), population, T, random_state=0, n_runs=4).average_payoff)
        for population in (still, turning)
    ]
    hedge = np.mean(play(game, Hedge(3, horizon=T), turning, T, random_state=0, n_runs=4).average_payoff)
    assert saol[0] > 0 and saol[1] > hedge + 0.1


def test_saols_weights_survive_long_intervals():
    game = SymmetricGame(2, 2, lambda a, k: float(k[1] - a))
    learner = SAOLHedge(2).reset(game)
    learner._log_weights += 800.0
    assert np.isfinite(learner.policy()).all()
    learner.observe(0, [1])
    assert learner.policy().sum() == pytest.approx(1.0)


def test_cloning_repeats_what_was_seen():
    learner = BehaviorCloning(3).reset(RockPaperScissors(5))
    assert learner.policy().tolist() == [1 / 3] * 3
    learner.observe(0, [2, 2, 0, 2])
    assert learner.policy().tolist() == [0.25, 0.0, 0.75]
    rng = np.random.default_rng(0)
    assert np.bincount([learner.act(rng) for _ in range(400)], minlength=3)[1] == 0


def test_runs_at_once_are_the_runs_one_by_one():
    game = RockPaperScissors()
    rng = np.random.default_rng(2)
    seen = rng.integers(0, 3, size=(40, 2, 2))
    for maker in (partial(Hedge, 3), partial(SAOLHedge, 3), partial(BehaviorCloning, 3)):
        both = maker().reset(game, n_runs=2)
        single = [maker().reset(game) for _ in range(2)]
        for actions in seen:
            both.observe([0, 1], actions)
            for run, learner in enumerate(single):
                learner.observe(0, actions[run])
        np.testing.assert_allclose(both.policy(), [learner.policy() for learner in single], rtol=1e-12)
        assert both.act(0).shape == (2,)
        assert both.reset(game).policy().tolist() == [1 / 3] * 3


@pytest.mark.parametrize("lr", [2e-4, 0.02, 0.2])
def test_self_play_fails_whatever_the_step(lr):
    game = SwitchDominance(12)
    ends = self_play(game, [[1 / 3] * 3, DOMINANCE_Y], lr=lr, tolerance=1e-4 * lr)
    assert ends.converged.all()
    assert (ends.policy[:, 2] > 0.99).all()
    assert (game.action_values(DOMINANCE_Y) @ ends.policy.T < -1).all()


def test_self_plays_anchor_is_where_payoff_and_penalty_balance():
    game, y = SwitchDominance(), np.array(DOMINANCE_Y)
    found = self_play(game, y, kl_anchor=y, lam=1.0, max_steps=20_000)
    logits = np.log(y) + game.action_values(found.policy)
    fixed = np.exp(logits - logits.max())
    np.testing.assert_allclose(found.policy, fixed / fixed.sum(), atol=2e-4)
    assert game.expected_payoff(found.policy, y) == pytest.approx(0.814, abs=2e-3)


@pytest.mark.parametrize("lam", [5.0, 1e3, 1e6])
def test_a_strong_anchor_holds(lam):
    game, y = MajorityVote(), np.array([0.4, 0.6])
    found = self_play(game, [0.9, 0.1], kl_anchor=y, lam=lam)
    logits = np.log(y) + game.action_values(found.policy) / lam
    fixed = np.exp(logits - logits.max())
    assert found.converged
    np.testing.assert_allclose(found.policy, fixed / fixed.sum(), atol=1e-4)


def test_the_side_ahead_becomes_the_convention():
    inits = strategies(2, 0, 20)
    ends = self_play(MajorityVote(), inits).policy
    assert ((ends[:, 0] > 0.5) == (inits[:, 0] > 0.5)).all()


# The repeated game -----------------------------------------------------------------------------------------


def test_opponents_draw_from_their_strategies():
    game = RockPaperScissors(4, 3)
    y = np.array([0.2, 0.0, 0.8])
    found = play(game, FixedStrategy([1, 0, 0]), StationaryPopulation(y), 20_000, random_state=0)
    error = found.payoffs.std() / math.sqrt(len(found.payoffs))
    assert found.average_payoff == pytest.approx(game.action_values(y)[0], abs=4 * error)
    assert found.variation == 0.0 and found.common


def test_hedge_learns_from_what_was_played_not_from_itself():
    # Against opponents on 1, gradients under its own uniform policy would never move it.
    found = play(MajorityVote(), Hedge(2, horizon=500), StationaryPopulation([0.2, 0.8]), 500, random_state=0)
    assert found.policies[-1][1] > 0.9 and found.share_gap < 0


def test_walks_have_the_length_asked_for():
    walk = DriftingPopulation.walk(30.0, 2_000, 4, n_runs=3, random_state=0)
    assert walk.path.shape == (2_000, 3, 4)
    assert ((walk.variation > 28) & (walk.variation <= 30 + 1e-9)).all()
    found = play(
        RockPaperScissors(3, 3),
        Hedge(3),
        DriftingPopulation(walk.path[:, 0, :3] / walk.path[:, 0, :3].sum(axis=1, keepdims=True)),
        2_000,
        random_state=0,
    )
    assert found.variation > 0


def test_variation_is_that_of_the_path_over_blocks(monkeypatch):
    module = sys.modules[Trajectory.__module__]
    walk = DriftingPopulation.walk(7.0, 500, 2, random_state=1)
    whole = play(MajorityVote(), BehaviorCloning(2), walk, 500, random_state=0)
    monkeypatch.setattr(module, "_BLOCK_ENTRIES", 100)
    parts = play(MajorityVote(), BehaviorCloning(2), walk, 500, random_state=0)
    assert whole.variation == pytest.approx(walk.variation) == pytest.approx(parts.variation)


def test_impossible_opponents():
    hetero = HeterogeneousPopulation(np.eye(2))
    adaptive = AdaptivePopulation(lambda t, x: np.eye(2)[x.argmin(axis=-1)], 2)
    for learner in (Hedge(2), SAOLHedge(2), BehaviorCloning(2), FixedStrategy([0.3, 0.7])):
        assert play(MinorityGame(), learner, hetero, 50, random_state=0).average_payoff == -0.5
        # The same pair is a gift in Majority Vote.
        assert play(MajorityVote(), learner, hetero, 50, random_state=0).average_payoff == 0.5
        found = play(MajorityVote(), learner, adaptive, 800, random_state=0, n_runs=2)
        assert (found.average_payoff < -0.4).all() and not found.common


def test_records_and_tables():
    game = MajorityVote()
    found = play(
        game, Hedge(2), StationaryPopulation([0.4, 0.6]), 25, random_state=0, record_every=10, n_runs=3
    )
    assert found.rounds.tolist() == [10, 20, 25] and found.policies.shape == (3, 3, 2)
    np.testing.assert_allclose(found.running_payoffs[-1], found.payoffs.mean(axis=0))
    np.testing.assert_allclose(found.share_gap, -found.average_payoff)
    frame = found.to_frame()
    assert frame.columns == ["round", "run", "average_payoff", "policy_0", "policy_1"] and frame.height == 9
    assert "25 rounds" in found.summary() and found.to_dict()["rounds"] == 25
    assert found.plot().to_dict()["layer"]
    replayed = play(game, Hedge(2), RecordedPopulation([[0, 1], [1, 1]], 2), 2, random_state=0)
    assert math.isnan(replayed.variation) and replayed.summary().endswith("unknown")


def test_a_learner_of_another_make_can_play():
    class Always:
        seen = 0

        def policy(self):
            return np.array([0.0, 1.0])

        def act(self, random_state):
            return 1

        def observe(self, own_action, opponent_actions):
            assert own_action == 1 and len(opponent_actions) == 2
            self.seen += 1

    learner = Always()
    found = play(MajorityVote(), learner, StationaryPopulation([0.0, 1.0]), 7, random_state=0)
    assert learner.seen == 7 and found.average_payoff == 0.0
    with pytest.raises(ValueError, match="n_runs must be None"):
        play(MajorityVote(), learner, StationaryPopulation([0.0, 1.0]), 7, n_runs=2)
    with pytest.raises(TypeError, match="learner must have policy, act and observe"):
        play(MajorityVote(), object(), StationaryPopulation([0.0, 1.0]), 7)


@pytest.mark.parametrize("action", [-1, 2, 0.5])
def test_a_learner_of_another_make_must_play_the_games_actions(action):
    class Astray:
        def policy(self):
            return [0.5, 0.5]

        def act(self, random_state):
            return action

        def observe(self, own_action, opponent_actions):
            pass

    with pytest.raises(ValueError, match="the learner's action must be"):
        play(MajorityVote(), Astray(), StationaryPopulation([0.0, 1.0]), 3)


def test_a_million_rounds_leave_the_policy_sound():
    # The state after a million rounds, without playing them: sums of gains this large, and this far apart.
    game = RockPaperScissors()
    for learner in (Hedge(3), Hedge(3, horizon=10**6), SAOLHedge(3)):
        learner.reset(game)
        learner._gains[..., :] = [-1e6, 0.0, 1e6]
        learner._round = 10**6
        if isinstance(learner, SAOLHedge):
            learner._next_round()
        policy = learner.policy()
        assert policy.sum() == pytest.approx(1, abs=1e-12) and policy.argmax() == 2
        learner.observe(0, [0, 1])
        assert np.isfinite(learner.policy()).all()


def test_equal_share_is_not_a_self_play_average():
    # All seats at one table get the share on average whoever they are; against others they do not.
    game, y = SwitchDominance(), DOMINANCE_Y
    end = self_play(game, y, max_steps=20_000).policy
    assert game.expected_payoff(end, end) == pytest.approx(0, abs=1e-12)
    assert game.expected_payoff(end, y) < -2


# Bounds ----------------------------------------------------------------------------------------------------


@given(st.integers(10, 10**6), st.integers(2, 10), st.floats(0, 1), st.floats(0.001, 0.2))
def test_clonings_bound_is_the_smallest(T, A, share, delta):
    V_T = share * T
    cloning = equal_share_bound("cloning", T, A, delta, V_T)
    assert cloning == pytest.approx(V_T / T + math.sqrt(2 * math.log(1 / delta) / T))
    assert cloning <= equal_share_bound("hedge", T, A, delta, V_T)
    assert cloning <= equal_share_bound("saol", T, A, delta, V_T)
    assert equal_share_bound("saol", T, A, delta, V_T, payoff_range=3) == pytest.approx(
        3 * equal_share_bound("saol", T, A, delta, V_T)
    )


def test_bounds_at_the_edges():
    for kind in ("hedge", "saol", "cloning"):
        assert 0 < equal_share_bound(kind, 1, 2) < math.inf
        assert 0 < equal_share_bound(kind, 10, 2, 5e-324) < math.inf
        assert equal_share_bound(kind, 10, 2, payoff_range=0.0) == 0.0
        for delta in (0.0, 1.0, float("nan")):
            with pytest.raises(ValueError, match="delta must be"):
                equal_share_bound(kind, 10, 2, delta)
        with pytest.raises(ValueError, match="V_T must be"):
            equal_share_bound(kind, 10, 2, V_T=-1e-9)


def test_recommendations():
    assert recommend(5.0, 10_000, 3) == "cloning"
    assert recommend(0.01, 10_000, 3, "exploit") == "hedge"
    assert recommend(0.0101, 10_000, 3, "exploit") == "saol"


# The study -------------------------------------------------------------------------------------------------


def claim_holds(identifier, values):
    claim = next(claim for claim in lookup(SLUG).claims if claim.id == identifier)
    bound = Bound.parse(claim.checks[0].bound)
    return bound.contains(float(np.mean(values)))


def test_planted_gradients_under_its_own_policy_turns_c1b(monkeypatch):
    size = replace(study._SIZES["smoke"], dominance_rounds=1_500)
    ctx = Context("smoke", 100)
    assert claim_holds("C1b", study._hedge(ctx, size)["metrics"]["hedge_sdg"])

    def toy(self, opponents, gains):
        self._gains += self.game.action_values(self._policy())
        self._round += 1

    monkeypatch.setattr(Hedge, "_observe", toy)
    assert not claim_holds("C1b", study._hedge(ctx, size)["metrics"]["hedge_sdg"])


def test_the_papers_scale_runs_with_a_limit():
    measured = study.run(Context("paper", 100, limit=40, stages={}))
    assert set(lookup(SLUG).metrics("paper")) <= set(measured.metrics)
    with pytest.raises(ValueError, match="preset must be one of"):
        study.run(Context("vast", 0))
