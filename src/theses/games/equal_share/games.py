"""The games of the experiments, and two more on which learners can be told apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from theses.games.equal_share.game import SymmetricGame
from theses.validation import check_integer, check_real

__all__ = ["GAMES", "MajorityVote", "MinorityGame", "RockPaperScissors", "SwitchDominance"]


class MajorityVote(SymmetricGame):
    """Two sides; the minority pays the majority.

    With ``w`` players on the less chosen side, ``0 < w < n / 2``, each of them gets ``-(n - w) / (2 w)`` and
    the others get 1/2; all on one side, or a tie, gives 0. For three players: -1 and 1/2.

    Parameters
    ----------
    n_players : int, default=3
        Number of players.

    References
    ----------
    arXiv 2406.04201 (three players); the payoffs are those that reproduce its Table 1.

    Examples
    --------
    >>> MajorityVote().action_values([0.49, 0.51]).round(4).tolist()
    [-0.0102, 0.0098]
    """

    def __init__(self, n_players: int = 3) -> None:
        n_players = check_integer("n_players", n_players, minimum=2)
        self._payoff = None
        self._set(n_players, 2, 0.0, max((n_players - 1) / 2, 0.5))

    def _evaluate(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        return -_minority_payoffs(counts, self.n_players)


class MinorityGame(SymmetricGame):
    """Two sides; the majority pays the minority.

    With ``w`` players on the less chosen side, ``0 < w < n / 2``, each of them gets ``(n - w) / (2 w)`` and
    the others get -1/2; all on one side, or a tie, gives 0.

    Parameters
    ----------
    n_players : int, default=3
        Number of players.

    References
    ----------
    arXiv 2406.04201, Proposition 4.1: a game of three on which heterogeneous opponents can agree.

    Examples
    --------
    >>> game = MinorityGame()
    >>> [game.payoff(a, [1, 1]) for a in (0, 1)]
    [-0.5, -0.5]
    """

    def __init__(self, n_players: int = 3) -> None:
        n_players = check_integer("n_players", n_players, minimum=2)
        self._payoff = None
        self._set(n_players, 2, 0.0, max((n_players - 1) / 2, 0.5))

    def _evaluate(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        return _minority_payoffs(counts, self.n_players)


def _minority_payoffs(counts: NDArray[np.int64], n_players: int) -> NDArray[np.float64]:
    own_side = counts + 1  # with oneself
    other_side = n_players - own_side
    lost = np.where((own_side > other_side) & (other_side > 0), -0.5, 0.0)
    return np.where(own_side < other_side, other_side / (2 * own_side), lost)


class SwitchDominance(SymmetricGame):
    """Three actions A, B, C whose order of dominance switches with the number of players on A.

    If at least a quarter of all players choose A the order is B > A > C, else C > B > A; the payoff is
    ``scale * (players dominated - players dominating) / (n - 1)``.

    Parameters
    ----------
    n_players : int, default=30
        Number of players.
    scale : float, default=2.5
        Largest payoff.

    References
    ----------
    arXiv 2406.04201; switch point and scale are those that reproduce its Table 2.

    Examples
    --------
    >>> SwitchDominance().action_values([0.399, 0.6, 0.001]).round(3).tolist()
    [-1.498, 1.0, -2.207]
    """

    def __init__(self, n_players: int = 30, scale: float = 2.5) -> None:
        self.scale = check_real("scale", scale, minimum=0, include=False)
        self._payoff = None
        self._set(n_players, 3, 0.0, self.scale, ("A", "B", "C"))

    def _evaluate(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        a, b, c = counts.T
        many = 4 * np.column_stack([a + 1, a, a]) >= self.n_players
        under_many = np.column_stack([c - b, a + c, -a - b])  # B > A > C
        under_few = np.column_stack([-b - c, a - c, a + b])  # C > B > A
        return np.where(many, under_many, under_few) * self.scale / (self.n_players - 1)


class RockPaperScissors(SymmetricGame):
    """Each of ``A`` actions beats the ``(A - 1) / 2`` before it, in a circle.

    Action ``a`` beats ``a - 1, a - 2, ...`` (mod A); the payoff is
    ``(players beaten - players beating) / (n - 1)``.

    Parameters
    ----------
    n_players : int, default=3
        Number of players.
    n_actions : int, default=3
        Odd number of actions.

    References
    ----------
    arXiv 2406.04201 has no such game; it stands in where the best response has to turn.

    Examples
    --------
    >>> RockPaperScissors(3, 5).action_values_counts([2, 0, 0, 0, 0]).tolist()
    [0.0, 1.0, 1.0, -1.0, -1.0]
    """

    def __init__(self, n_players: int = 3, n_actions: int = 3) -> None:
        n_actions = check_integer("n_actions", n_actions, minimum=3)
        if n_actions % 2 == 0:
            raise ValueError(f"n_actions must be odd, got {n_actions}")
        self._payoff = None
        self._set(n_players, n_actions, 0.0, 1.0)
        ahead = (np.arange(n_actions)[:, None] - np.arange(n_actions)) % n_actions
        self._duels = np.where(ahead == 0, 0, np.where(ahead <= n_actions // 2, 1, -1))

    def _evaluate(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        values: NDArray[np.float64] = counts @ self._duels.T / (self.n_players - 1)
        return values


#: Games that a description can name.
GAMES: Final[dict[str, Callable[..., SymmetricGame]]] = {
    "majority-vote": MajorityVote,
    "minority-game": MinorityGame,
    "rock-paper-scissors": RockPaperScissors,
    "switch-dominance": SwitchDominance,
}
