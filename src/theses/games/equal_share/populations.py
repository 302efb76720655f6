"""Opponents of a repeated game: one common strategy that stays or drifts, and those that share none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from theses.games.equal_share.counts import check_strategy
from theses.games.equal_share.game import RandomState
from theses.validation import as_generator, check_array, check_integer, check_real

__all__ = [
    "AdaptivePopulation",
    "DriftingPopulation",
    "HeterogeneousPopulation",
    "Population",
    "RecordedPopulation",
    "StationaryPopulation",
]

Array = NDArray[np.float64]


class Population(ABC):
    """The ``n - 1`` opponents of a learner.

    Attributes
    ----------
    n_actions : int
        Number of actions.
    common : bool
        Whether all opponents draw from one strategy that does not look at the learner: what the guarantees of
        the learners ask for.

    Examples
    --------
    >>> StationaryPopulation([0.5, 0.5]).common, HeterogeneousPopulation([[1, 0], [0, 1]]).common
    (True, False)
    """

    n_actions: int
    common = True

    @abstractmethod
    def strategies(self, start: int, stop: int) -> Array:
        """Mixed strategies of some rounds.

        Parameters
        ----------
        start, stop : int
            Rounds, counted from 0, the last one excluded.

        Returns
        -------
        ndarray of float64, shape (stop - start, n_runs or 1, n_players - 1 or 1, n_actions)
            A strategy for each round, run and opponent; 1 where all have the same.
        """

    def check_fit(self, n_players: int, n_actions: int, n_rounds: int, n_runs: int | None) -> None:
        """Verify that a game can be played against these opponents.

        Parameters
        ----------
        n_players, n_actions : int
            The game.
        n_rounds : int
            Rounds to be played.
        n_runs : int or None
            Runs at once.

        Raises
        ------
        ValueError
            If it cannot.
        """
        if n_actions != self.n_actions:
            raise ValueError(f"opponents must have the game's {n_actions} actions, got {self.n_actions}")
        length, runs, players = self._shape()
        if length is not None and n_rounds > length:
            raise ValueError(f"opponents must be given for {n_rounds} rounds, got {length}")
        if runs not in (1, n_runs or 1):
            raise ValueError(f"opponents must be given for {n_runs or 1} runs, got {runs}")
        if players not in (1, n_players - 1):
            raise ValueError(f"opponents must be {n_players - 1}, got {players}")

    def _shape(self) -> tuple[int | None, int, int]:
        """Rounds (None for any number), runs and opponents that it is given for."""
        return None, 1, 1


class StationaryPopulation(Population):
    """All opponents draw from one strategy for ever.

    Parameters
    ----------
    y : array-like, shape (n_actions,) or (n_runs, n_actions)
        The strategy, or one for each run.

    References
    ----------
    arXiv 2406.04201.

    Examples
    --------
    >>> StationaryPopulation([0.49, 0.51]).strategies(0, 2).shape
    (2, 1, 1, 2)
    """

    def __init__(self, y: Any) -> None:
        self.y = check_strategy("y", y, ndim=(1, 2))
        self.n_actions = self.y.shape[-1]

    def strategies(self, start: int, stop: int) -> Array:
        """Mixed strategies of some rounds.

        Parameters
        ----------
        start, stop : int
            Rounds, counted from 0, the last one excluded.

        Returns
        -------
        ndarray of float64, shape (stop - start, n_runs or 1, 1, n_actions)
            The strategy, again and again.
        """
        rows = np.atleast_2d(self.y)[:, None]
        return np.broadcast_to(rows, (stop - start, *rows.shape))

    def _shape(self) -> tuple[int | None, int, int]:
        return None, len(np.atleast_2d(self.y)), 1


class DriftingPopulation(Population):
    """All opponents draw from one strategy that moves along a path.

    Parameters
    ----------
    path : array-like, shape (n_rounds, n_actions) or (n_rounds, n_runs, n_actions)
        The strategy of each round, or one for each run.

    References
    ----------
    arXiv 2406.04201.

    Examples
    --------
    >>> DriftingPopulation([[1, 0], [0.5, 0.5], [0, 1]]).variation
    2.0
    """

    def __init__(self, path: Any) -> None:
        self.path = check_strategy("path", path, ndim=(2, 3))
        self.n_actions = self.path.shape[-1]

    @classmethod
    def walk(
        cls,
        total_variation: float,
        n_rounds: int,
        n_actions: int,
        *,
        n_runs: int | None = None,
        random_state: RandomState = None,
    ) -> Self:
        """Walk of constant speed from one random strategy to the next.

        Parameters
        ----------
        total_variation : float
            Length of the path, ``sum_t ||y_(t+1) - y_t||_1``; where the path turns within a step, that step
            is a little shorter.
        n_rounds : int
            Rounds, at least 2.
        n_actions : int
            Number of actions.
        n_runs : int or None, default=None
            Independent paths.
        random_state : int, Generator, RandomState or None, default=None
            Randomness of the strategies on the way, which are uniform on the simplex.

        Returns
        -------
        DriftingPopulation
            The population.

        Examples
        --------
        >>> walk = DriftingPopulation.walk(5.0, 1_000, 3, random_state=0)
        >>> 4.9 < walk.variation <= 5.0
        True
        """
        length = check_real("total_variation", total_variation, minimum=0)
        n_rounds = check_integer("n_rounds", n_rounds, minimum=2)
        n_actions = check_integer("n_actions", n_actions, minimum=2)
        runs = 1 if n_runs is None else check_integer("n_runs", n_runs, minimum=1)
        generator = as_generator(random_state)
        times = np.linspace(0.0, length, n_rounds)
        paths = []
        for _ in range(runs):
            stops = [generator.dirichlet(np.ones(n_actions))]
            reached = [0.0]
            while reached[-1] < length or len(stops) == 1:
                stops.append(generator.dirichlet(np.ones(n_actions)))
                reached.append(reached[-1] + float(np.abs(stops[-1] - stops[-2]).sum()))
            corners = np.array(stops)
            columns = [np.interp(times, reached, corners[:, a]) for a in range(n_actions)]
            paths.append(np.stack(columns, axis=-1))
        return cls(paths[0] if n_runs is None else np.stack(paths, axis=1))

    @property
    def variation(self) -> Any:
        """Total variation ``V_T = sum_t ||y_(t+1) - y_t||_1``: a float, or one for each run."""
        lengths = np.abs(np.diff(self.path, axis=0)).sum(axis=(0, -1))
        return lengths if lengths.ndim else float(lengths)

    def strategies(self, start: int, stop: int) -> Array:
        """Mixed strategies of some rounds.

        Parameters
        ----------
        start, stop : int
            Rounds, counted from 0, the last one excluded.

        Returns
        -------
        ndarray of float64, shape (stop - start, n_runs or 1, 1, n_actions)
            A piece of the path.
        """
        piece = self.path[start:stop]
        return piece.reshape(len(piece), -1, 1, self.n_actions)

    def _shape(self) -> tuple[int | None, int, int]:
        return len(self.path), self.path.shape[1] if self.path.ndim == 3 else 1, 1


class HeterogeneousPopulation(Population):
    """Each opponent draws from a strategy of its own; no learner can be sure of the fair share.

    Parameters
    ----------
    strategies : array-like, shape (n_players - 1, n_actions)
        The strategies.

    References
    ----------
    arXiv 2406.04201, Proposition 4.1.

    Examples
    --------
    >>> HeterogeneousPopulation([[1, 0], [0, 1]]).strategies(0, 1).shape
    (1, 1, 2, 2)
    """

    common = False

    def __init__(self, strategies: Any) -> None:
        self._rows = check_strategy("strategies", strategies, ndim=2)
        self.n_actions = self._rows.shape[1]

    def check_fit(self, n_players: int, n_actions: int, n_rounds: int, n_runs: int | None) -> None:
        """Verify that a game can be played against these opponents.

        Parameters
        ----------
        n_players, n_actions : int
            The game.
        n_rounds : int
            Rounds to be played.
        n_runs : int or None
            Runs at once.
        """
        super().check_fit(n_players, n_actions, n_rounds, n_runs)
        if len(self._rows) != n_players - 1:
            raise ValueError(f"opponents must be {n_players - 1}, got {len(self._rows)}")

    def strategies(self, start: int, stop: int) -> Array:
        """Mixed strategies of some rounds.

        Parameters
        ----------
        start, stop : int
            Rounds, counted from 0, the last one excluded.

        Returns
        -------
        ndarray of float64, shape (stop - start, 1, n_players - 1, n_actions)
            The strategies, again and again.
        """
        return np.broadcast_to(self._rows, (stop - start, 1, *self._rows.shape))


class RecordedPopulation(Population):
    """Opponents whose actions were written down: a replay, as if they did not look at the learner.

    Parameters
    ----------
    actions : array-like of int, shape (n_rounds, n_players - 1)
        What each opponent has played in each round.
    n_actions : int
        Number of actions.

    References
    ----------
    arXiv 2406.04201: what a learner sees of each round.

    Examples
    --------
    >>> RecordedPopulation([[0, 1], [1, 1]], 2).strategies(0, 1).tolist()
    [[[[1.0, 0.0], [0.0, 1.0]]]]
    """

    common = False

    def __init__(self, actions: Any, n_actions: int) -> None:
        self.n_actions = check_integer("n_actions", n_actions, minimum=2)
        recorded = check_array("actions", actions, ndim=2)
        wrong = (recorded < 0) | (recorded >= n_actions) | (recorded != np.floor(recorded))
        if wrong.any():
            row, column = (int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"actions must be whole numbers from 0 to {n_actions - 1}, got {recorded[row, column]:g} at "
                f"index {(row, column)}"
            )
        self.actions = recorded.astype(np.int64)

    def strategies(self, start: int, stop: int) -> Array:
        """Mixed strategies of some rounds.

        Parameters
        ----------
        start, stop : int
            Rounds, counted from 0, the last one excluded.

        Returns
        -------
        ndarray of float64, shape (stop - start, 1, n_players - 1, n_actions)
            All probability on what was played.
        """
        certain: Array = np.eye(self.n_actions)[self.actions[start:stop]]
        return certain[:, None]

    def check_fit(self, n_players: int, n_actions: int, n_rounds: int, n_runs: int | None) -> None:
        """Verify that a game can be played against these opponents.

        Parameters
        ----------
        n_players, n_actions : int
            The game.
        n_rounds : int
            Rounds to be played.
        n_runs : int or None
            Runs at once.
        """
        super().check_fit(n_players, n_actions, n_rounds, n_runs)
        if self.actions.shape[1] != n_players - 1:
            raise ValueError(f"opponents must be {n_players - 1}, got {self.actions.shape[1]}")

    def _shape(self) -> tuple[int | None, int, int]:
        return len(self.actions), 1, 1


class AdaptivePopulation(Population):
    """All opponents draw from a strategy that answers the learner's policy of the same round.

    Parameters
    ----------
    rule : callable
        ``rule(t, policy) -> strategy`` for the round ``t``, counted from 1, with the policy and the strategy
        of shape ``(n_actions,)``, or ``(n_runs, n_actions)`` where several runs are played at once.
    n_actions : int
        Number of actions.

    References
    ----------
    arXiv 2406.04201, Proposition 4.2.

    Examples
    --------
    >>> import numpy as np
    >>> against = AdaptivePopulation(lambda t, x: np.eye(2)[x.argmin(axis=-1)], 2)
    >>> against.respond(1, np.array([0.9, 0.1])).tolist()
    [0.0, 1.0]
    """

    common = False

    def __init__(self, rule: Callable[[int, Array], Any], n_actions: int) -> None:
        if not callable(rule):
            raise TypeError(f"rule must be callable as rule(t, policy), got {type(rule).__name__}")
        self.rule = rule
        self.n_actions = check_integer("n_actions", n_actions, minimum=2)

    def respond(self, t: int, policy: Any) -> Array:
        """Strategy of the opponents in a round.

        Parameters
        ----------
        t : int
            Round, counted from 1.
        policy : array-like, shape (n_actions,) or (n_runs, n_actions)
            The learner's policy.

        Returns
        -------
        ndarray of float64, same shape
            What the opponents draw from.
        """
        x = check_strategy("policy", policy, self.n_actions, ndim=(1, 2))
        strategy = check_strategy("the rule's strategy", self.rule(t, x), self.n_actions, ndim=(1, 2))
        if strategy.shape not in (x.shape, x.shape[-1:]):
            raise ValueError(f"the rule's strategy must have shape {x.shape}, got {strategy.shape}")
        return np.broadcast_to(strategy, x.shape)

    def strategies(self, start: int, stop: int) -> Array:
        """There are none before the learner has a policy.

        Parameters
        ----------
        start, stop : int
            Rounds.

        Returns
        -------
        ndarray
            Never.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError("adaptive opponents have no strategy before the learner has a policy: use respond")
