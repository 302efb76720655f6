"""Games from other descriptions: tensors of payoffs, OpenSpiel, plain values as JSON holds them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from theses.games.equal_share.counts import CountTable, n_count_vectors
from theses.games.equal_share.game import EXACT_VECTORS, PROFILES, TOLERANCE, SymmetricGame
from theses.games.equal_share.games import GAMES
from theses.validation import check_array, check_choice, check_integer, check_real

__all__ = ["game_of_description", "table_of_tensor", "tensor_of_open_spiel"]


def table_of_tensor(tensor: Any, total: float | None) -> tuple[int, NDArray[np.float64], float]:
    """Players, payoffs by count vector and own action, and total of a symmetric tensor of payoffs."""
    payoffs = check_array("tensor", tensor, ndim=range(65))
    n_players, *actions = payoffs.shape
    if len(actions) != n_players or len(set(actions)) != 1 or n_players < 2 or actions[0] < 2:
        raise ValueError(
            "tensor must have an axis for the players and then one of n_actions >= 2 for each of them, "
            f"got shape {payoffs.shape}"
        )
    n_actions = actions[0]
    rows = CountTable.make(n_players - 1, n_actions)
    profiles = np.stack(np.unravel_index(np.arange(n_actions**n_players), actions), axis=-1)
    flat = payoffs.reshape(n_players, -1)
    table = np.full((len(rows.vectors), n_actions), np.nan)
    # Player 0 alone meets every own action against every count vector; later profiles must repeat it.
    others = rows.rows(profiles[:, 1:])
    table[others[::-1], profiles[::-1, 0]] = flat[0, ::-1]
    scale = float(np.abs(flat).max())
    expected = np.stack(
        [table[rows.rows(np.delete(profiles, i, axis=1)), profiles[:, i]] for i in range(n_players)]
    )
    wrong = np.abs(flat - expected) > TOLERANCE * scale
    if wrong.any():
        profile = int(np.argmax(wrong.any(axis=0)))
        player = int(np.argmax(wrong[:, profile]))
        raise ValueError(
            f"tensor must be a symmetric game's: in the profile {tuple(profiles[profile].tolist())} "
            f"player {player} gets {flat[player, profile]:g}, but player 0 gets "
            f"{expected[player, profile]:g} for the same action against the same counts of the others"
        )
    if total is None:
        total = float(flat[:, 0].sum())
    return n_players, table, check_real("total", total)


def tensor_of_open_spiel(game: Any) -> tuple[NDArray[np.float64], list[str] | None]:
    """Payoffs of all players in all profiles of an OpenSpiel game, and the names of the actions."""
    if isinstance(game, str):
        try:
            import pyspiel
        except ImportError as error:
            raise ImportError('OpenSpiel is missing: pip install "theses[rl]"') from error
        try:
            game = pyspiel.load_game(game)
        except pyspiel.SpielError as error:
            raise ValueError(f"game must be one that OpenSpiel knows: {error}") from None
    for method in ("num_players", "num_distinct_actions", "new_initial_state"):
        if not hasattr(game, method):
            raise TypeError(
                f"game must be an OpenSpiel game or its name, got {type(game).__name__} without {method}"
            )
    n_players, n_actions = game.num_players(), game.num_distinct_actions()
    root = game.new_initial_state()
    legal = range(n_actions)
    if not root.is_simultaneous_node() or any(
        list(root.legal_actions(player)) != list(legal) for player in range(n_players)
    ):
        raise ValueError(
            "game must let all players choose among the same actions at the same time, once; "
            f"got {str(game)!r}"
        )
    if n_actions**n_players > PROFILES:
        raise ValueError(
            f"game must have at most {PROFILES:,} profiles, got {n_actions}^{n_players}: give its payoffs "
            "by counts instead"
        )
    payoffs = []
    for profile in itertools.product(legal, repeat=n_players):
        state = root.clone()
        state.apply_actions(list(profile))
        if not state.is_terminal():
            raise ValueError(f"game must end after one move of all players, got {str(game)!r}")
        payoffs.append(state.returns())
    tensor = np.array(payoffs).T.reshape(n_players, *[n_actions] * n_players)
    names = [str(root.action_to_string(0, action)) for action in legal]
    return tensor, names if len(set(names)) == n_actions else None


def game_of_description(description: Mapping[str, Any]) -> SymmetricGame:
    """Game from a mapping, see :meth:`SymmetricGame.from_dict`."""
    if not isinstance(description, Mapping):
        raise TypeError(f"description must be a mapping, got {type(description).__name__}")
    try:
        return _described(description)
    except OverflowError as error:
        # JSON's whole numbers have no largest one.
        raise ValueError(f"description must hold numbers within the range of floats: {error}") from None


def _described(description: Mapping[str, Any]) -> SymmetricGame:
    kinds = [key for key in ("game", "payoffs", "tensor") if key in description]
    if len(kinds) != 1:
        raise ValueError(
            f"description must have one of 'game', 'payoffs' and 'tensor', got {list(description)}"
        )
    kind = kinds[0]
    rest = {key: value for key, value in description.items() if key not in (kind, "population")}
    names = rest.pop("actions", None)
    if names is not None and not (isinstance(names, Sequence) and not isinstance(names, str)):
        raise ValueError(f"actions must be a list of names, got {names!r}")
    if kind == "game":
        maker = GAMES[check_choice("game", description["game"], tuple(GAMES))]
        try:
            game = maker(**rest)
        except TypeError as error:
            raise ValueError(
                f"description must give parameters of {description['game']!r} only: {error}"
            ) from None
        if names is not None:
            game._set(game.n_players, game.n_actions, game.total, game._given_range, names)
        return game
    total = rest.pop("total", None)
    if kind == "tensor":
        game = SymmetricGame.from_tensor(description["tensor"], total, action_names=names)
    else:
        n_players = check_integer("n_players", rest.pop("n_players", None), minimum=2)
        table, names = _table_of_rows(n_players, names, description["payoffs"])
        game = SymmetricGame._from_table(
            n_players, table, check_real("total", 0.0 if total is None else total), names
        )
    if rest:
        raise ValueError(f"description has unknown keys: {', '.join(map(str, rest))}")
    return game


def _table_of_rows(
    n_players: int, names: Sequence[str] | None, rows: Any
) -> tuple[NDArray[np.float64], Sequence[str] | None]:
    """Payoffs ``(n_vectors, n_actions)`` from rows of action, others and payoff."""
    if not isinstance(rows, Sequence) or not rows:
        raise ValueError("payoffs must be a list of rows with action, others and payoff")
    first = rows[0]
    if not isinstance(first, Mapping) or not isinstance(first.get("others"), Sequence):
        raise ValueError(f"payoffs, row 1: expected action, others and payoff, got {first!r}")
    n_actions = check_integer("the length of others", len(first["others"]), minimum=2)
    called: list[Any] = list(range(n_actions)) if names is None else [str(name) for name in names]
    if len(called) != n_actions or len(set(called)) != n_actions:
        raise ValueError(
            f"actions must be {n_actions} different names, as many as others has counts, got {called}"
        )
    n_vectors = n_count_vectors(n_players - 1, n_actions)
    if n_vectors > EXACT_VECTORS:
        raise ValueError(f"payoffs must be of at most {EXACT_VECTORS:,} count vectors, got {n_vectors:,}")
    counts = CountTable.make(n_players - 1, n_actions)
    table = np.full((n_vectors, n_actions), np.nan)
    for number, row in enumerate(rows, start=1):
        where = f"payoffs, row {number}"
        if not isinstance(row, Mapping) or set(row) != {"action", "others", "payoff"}:
            raise ValueError(f"{where}: expected action, others and payoff, got {row!r}")
        action, others, payoff = row["action"], row["others"], row["payoff"]
        # A name may be a number too, and goes before a position.
        for known in (called, names or ()):
            if action in known and not isinstance(action, bool):
                action = list(known).index(action)
                break
        if isinstance(action, bool) or not isinstance(action, int) or not 0 <= action < n_actions:
            raise ValueError(f"{where}: action must be one of {called}, got {row['action']!r}")
        if (
            not isinstance(others, Sequence)
            or len(others) != n_actions
            or any(isinstance(k, bool) or not isinstance(k, int) or k < 0 for k in others)
            or sum(others) != n_players - 1
        ):
            raise ValueError(
                f"{where}: others must be {n_actions} counts that sum to {n_players - 1}, got {others!r}"
            )
        if isinstance(payoff, bool) or not isinstance(payoff, (int, float)) or not math.isfinite(payoff):
            raise ValueError(f"{where}: payoff must be a finite number, got {payoff!r}")
        index = int(counts.rows(np.repeat(np.arange(n_actions), others)))
        if not np.isnan(table[index, action]) and table[index, action] != payoff:
            raise ValueError(
                f"{where}: payoff of action {called[action]!r} against {list(others)} was "
                f"{table[index, action]:g} before, got {payoff:g}: in a symmetric game it is the same"
            )
        table[index, action] = payoff
    if np.isnan(table).any():
        index, action = (int(i) for i in np.argwhere(np.isnan(table))[0])
        raise ValueError(
            f"payoffs has no row for action {called[action]!r} against "
            f"{counts.vectors[index].astype(int).tolist()}"
        )
    return table, names
