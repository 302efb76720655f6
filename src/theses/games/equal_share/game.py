"""Symmetric constant-sum games and their exact expected payoffs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from theses.games.equal_share.counts import CountTable, check_strategy, count_vectors, n_count_vectors
from theses.validation import as_generator, check_array, check_integer, check_real

__all__ = ["EXACT_VECTORS", "PROFILES", "TOLERANCE", "RandomState", "SymmetricGame"]

Payoff = Callable[[int, NDArray[np.int64]], float]
RandomState = int | np.random.Generator | np.random.RandomState | None

EXACT_VECTORS: Final = 1_000_000
PROFILES: Final = 1_000_000
TOLERANCE: Final = 1e-9
# What a draw of all opponents, and a table of duels, may weigh.
_MOST_PLAYERS: Final = 1_000_000
_MOST_ACTIONS: Final = 1_000
_DESCENT_STEPS: Final = 300
# Entries of probabilities (restarts x count vectors) that the search for an exploiter holds at once.
_SEARCH_ENTRIES: Final = 2_000_000


class SymmetricGame:
    """Symmetric constant-sum game of n players, with exact expected payoffs.

    A player's payoff ``u(a, k)`` depends on the own action ``a`` and on the counts ``k`` of the actions of
    the ``n - 1`` others, so symmetry is built in. Constant sum means that the payoffs of all players add up
    to ``total`` in every profile (:meth:`check`); then each player's fair share is ``total / n``, and that is
    what the strategy ``y`` earns among others who all play ``y``.

    Parameters
    ----------
    n_players : int
        Number of players, from 2 to a million.
    n_actions : int
        Number of actions ``A``, from 2 to a thousand.
    payoff : callable
        ``payoff(a, counts) -> float``: own action and the counts of the others' actions, shape
        ``(n_actions,)``.
    total : float, default=0.0
        Sum of all players' payoffs.
    payoff_range : float or None, default=None
        ``B = max |payoff - total / n|``; None computes it, where all count vectors can be listed.
    action_names : sequence of str or None, default=None
        What the actions are called; None counts them from 0.

    Raises
    ------
    TypeError, ValueError
        If a parameter is not as described.

    Notes
    -----
    Exact expectations sum over the ``C(n + A - 2, A - 1)`` count vectors of the others, 465 for thirty
    players and three actions, in ``O(vectors * A)`` time and memory; the table of payoffs is made at first
    use, with ``vectors * A`` calls of ``payoff``. Above a million vectors the expectation is estimated.

    References
    ----------
    Ge, Wang, Li, Jin: Securing Equal Share, ICML 2025, arXiv 2406.04201.

    Examples
    --------
    Three players choose 0 or 1, and a player alone on a side pays 1 to the two others:

    >>> def payoff(a, counts):
    ...     return {0: -1.0, 1: 0.5, 2: 0.0}[int(counts[a])]
    >>> game = SymmetricGame(3, 2, payoff)
    >>> game.check()
    0.0
    >>> game.action_values([0.49, 0.51]).round(4).tolist()
    [-0.0102, 0.0098]
    >>> game.best_response([0.49, 0.51])
    1
    """

    def __init__(
        self,
        n_players: int,
        n_actions: int,
        payoff: Payoff,
        total: float = 0.0,
        *,
        payoff_range: float | None = None,
        action_names: Sequence[str] | None = None,
    ) -> None:
        if not callable(payoff):
            raise TypeError(f"payoff must be callable as payoff(a, counts), got {type(payoff).__name__}")
        self._payoff: Payoff | None = payoff
        self._set(n_players, n_actions, total, payoff_range, action_names)

    def _set(
        self,
        n_players: int,
        n_actions: int,
        total: float,
        payoff_range: float | None,
        action_names: Sequence[str] | None = None,
    ) -> None:
        self.n_players = check_integer("n_players", n_players, minimum=2, maximum=_MOST_PLAYERS)
        self.n_actions = check_integer("n_actions", n_actions, minimum=2, maximum=_MOST_ACTIONS)
        self.total = check_real("total", total)
        self._given_range = (
            None
            if payoff_range is None
            else check_real("payoff_range", payoff_range, minimum=0, include=False)
        )
        names = tuple(map(str, range(self.n_actions) if action_names is None else action_names))
        if len(names) != self.n_actions or len(set(names)) != len(names):
            raise ValueError(f"action_names must be {self.n_actions} different names, got {names}")
        self.action_names = names

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_players={self.n_players}, n_actions={self.n_actions})"

    # Payoffs

    @property
    def share(self) -> float:
        """Fair share ``total / n_players``."""
        return self.total / self.n_players

    @property
    def n_vectors(self) -> int:
        """Number of count vectors of the others, ``C(n + A - 2, A - 1)``."""
        return n_count_vectors(self.n_players - 1, self.n_actions)

    @property
    def exact(self) -> bool:
        """Whether expectations are sums over all count vectors: up to a million of them."""
        return self.n_vectors <= EXACT_VECTORS

    @cached_property
    def payoff_range(self) -> float:
        """Largest distance ``B`` of a payoff from the fair share.

        Raises
        ------
        ValueError
            If it was not given, and there are too many count vectors to look at all.
        """
        if self._given_range is not None:
            return self._given_range
        if not self.exact:
            raise ValueError(
                f"payoff_range must be given for a game with more than {EXACT_VECTORS:,} count vectors, "
                f"got None with {self.n_vectors:,}"
            )
        return float(np.abs(self._payoffs - self.share).max())

    @property
    def _counts(self) -> CountTable:
        return CountTable.make(self.n_players - 1, self.n_actions)

    @cached_property
    def _payoffs(self) -> NDArray[np.float64]:
        """Payoff of each own action against each count vector: ``(n_vectors, n_actions)``."""
        return self._evaluate(self._counts.vectors.astype(np.int64))

    def _evaluate(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Payoff of each own action against rows of counts; games with a formula override it."""
        assert self._payoff is not None
        values = np.array([[self._payoff(a, row) for a in range(self.n_actions)] for row in counts], float)
        if not np.isfinite(values).all():
            row, action = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
            raise ValueError(
                f"payoff must be finite, got {values[row, action]} for action {action} against counts "
                f"{counts[row].tolist()}"
            )
        return values

    def _gains(self, opponents: NDArray[np.int64]) -> NDArray[np.float64]:
        """Payoff of each own action against the opponents' actions ``(..., n - 1)``: ``(..., A)``."""
        if self.exact:
            found: NDArray[np.float64] = self._payoffs[self._counts.rows(opponents)]
            return found
        counts = (opponents[..., None] == np.arange(self.n_actions)).sum(axis=-2)
        flat = self._evaluate(counts.reshape(-1, self.n_actions))
        return flat.reshape(counts.shape)

    def payoff(self, action: int, counts: Any) -> float:
        """Payoff of an action against counts of the others' actions.

        Parameters
        ----------
        action : int
            Own action.
        counts : array-like of int, shape (n_actions,)
            How many of the ``n_players - 1`` others choose each action.

        Returns
        -------
        float
            The payoff, not shifted.
        """
        action = check_integer("action", action, minimum=0, maximum=self.n_actions - 1)
        return float(self.action_values_counts(check_array("counts", counts, ndim=1))[action])

    def action_values_counts(self, counts: Any) -> NDArray[np.float64]:
        """Payoff of each action against counts of the others' actions.

        Parameters
        ----------
        counts : array-like of int, shape (n_actions,) or (n_rows, n_actions)
            How many of the ``n_players - 1`` others choose each action.

        Returns
        -------
        ndarray of float64, shape (n_actions,) or (n_rows, n_actions)
            Payoffs.

        Raises
        ------
        ValueError
            If the counts are no whole numbers from 0 up that sum to ``n_players - 1``.
        """
        rows = check_array("counts", counts, ndim={1, 2})
        if rows.shape[-1] != self.n_actions:
            raise ValueError(f"counts must have {self.n_actions} entries, got shape {rows.shape}")
        if (rows < 0).any() or (rows != np.floor(rows)).any():
            raise ValueError("counts must be whole numbers from 0 up")
        wrong = np.ravel(rows.sum(axis=-1)) != self.n_players - 1
        if wrong.any():
            raise ValueError(
                f"counts must sum to {self.n_players - 1}, the number of the others, got "
                f"{np.atleast_2d(rows)[np.argmax(wrong)].astype(int).tolist()}"
            )
        return self._evaluate(np.atleast_2d(rows).astype(np.int64)).reshape(rows.shape)

    # Expectations

    def action_values(
        self,
        y: Any,
        *,
        n_samples: int = 100_000,
        random_state: RandomState = None,
        return_std_error: bool = False,
    ) -> Any:
        """Expected payoff of each action when each opponent draws independently from ``y``.

        ``v(a) = sum_k Mult(k; n - 1, y) u(a, k)``, exact up to a million count vectors.

        Parameters
        ----------
        y : array-like, shape (n_actions,) or (n_rows, n_actions)
            Common mixed strategy of the opponents.
        n_samples : int, default=100000
            Draws of count vectors, where there are too many to sum over.
        random_state : int, Generator, RandomState or None, default=None
            Randomness of the draws.
        return_std_error : bool, default=False
            Also give the standard errors: zero where the values are exact.

        Returns
        -------
        values : ndarray of float64, shape (n_actions,) or (n_rows, n_actions)
            Expected payoffs.
        std_errors : ndarray of float64, same shape
            Only with ``return_std_error``.
        """
        strategy = check_strategy("y", y, self.n_actions, ndim=(1, 2))
        if self.exact:
            values = self._values(strategy)
            errors = np.zeros_like(values)
        else:
            n_samples = check_integer("n_samples", n_samples, minimum=2)
            generator = as_generator(random_state)
            rows = []
            for row in np.atleast_2d(strategy):
                draws = generator.multinomial(self.n_players - 1, row / row.sum(), size=n_samples)
                drawn, times = np.unique(draws, axis=0, return_counts=True)
                payoffs = self._evaluate(drawn.astype(np.int64))
                mean = times @ payoffs / n_samples
                variance = times @ (payoffs - mean) ** 2 / (n_samples - 1)
                rows.append((mean, np.sqrt(variance / n_samples)))
            values, errors = (np.array(part).reshape(strategy.shape) for part in zip(*rows, strict=True))
        return (values, errors) if return_std_error else values

    def _values(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._counts.probabilities(y) @ self._payoffs

    def expected_payoff(
        self, x: Any, y: Any, *, n_samples: int = 100_000, random_state: RandomState = None
    ) -> float:
        """Expected payoff ``u(x, y)`` of a mixed strategy when each opponent draws from ``y``.

        Parameters
        ----------
        x : array-like, shape (n_actions,)
            Own mixed strategy.
        y : array-like, shape (n_actions,)
            Common mixed strategy of the opponents.
        n_samples : int, default=100000
            Draws, where there are too many count vectors to sum over.
        random_state : int, Generator, RandomState or None, default=None
            Randomness of the draws.

        Returns
        -------
        float
            The payoff; ``expected_payoff(y, y)`` is the fair share.
        """
        own = check_strategy("x", x, self.n_actions)
        common = check_strategy("y", y, self.n_actions)
        return float(own @ self.action_values(common, n_samples=n_samples, random_state=random_state))

    def best_response(self, y: Any) -> int:
        """Action with the largest expected payoff when each opponent draws from ``y``.

        Parameters
        ----------
        y : array-like, shape (n_actions,)
            Common mixed strategy of the opponents.

        Returns
        -------
        int
            The action; the first of several.
        """
        return int(np.argmax(self.action_values(check_strategy("y", y, self.n_actions), random_state=0)))

    def exploiter(
        self, x: Any, n_restarts: int = 100, *, random_state: RandomState = 0
    ) -> tuple[NDArray[np.float64], float]:
        """Common strategy of the opponents that hurts a strategy most, as far as descent finds it.

        Parameters
        ----------
        x : array-like, shape (n_actions,)
            Own mixed strategy.
        n_restarts : int, default=100
            Random starts; ``x`` itself and the pure strategies are always tried.
        random_state : int, Generator, RandomState or None, default=0
            Randomness of the starts.

        Returns
        -------
        y : ndarray of float64, shape (n_actions,)
            The opponents' strategy.
        value : float
            ``u(x, y)``: the minimum over ``y`` or above it, since ``u(x, .)`` is a polynomial of degree
            ``n - 1`` and no convex one; never above the fair share, which is ``u(x, x)``.

        Raises
        ------
        ValueError
            If the game has more than a million count vectors.

        Notes
        -----
        Exponentiated gradient descent from all starts at once, each halving its step where it would rise:
        ``O(restarts * vectors * A)`` a step.
        """
        own = check_strategy("x", x, self.n_actions)
        n_restarts = check_integer("n_restarts", n_restarts, minimum=0)
        if not self.exact:
            raise ValueError(
                f"exploiters are searched for in games of up to {EXACT_VECTORS:,} count vectors, got "
                f"{self.n_vectors:,}"
            )
        generator = as_generator(random_state)
        starts = np.concatenate(
            [
                own[None],
                generator.dirichlet(np.ones(self.n_actions), size=n_restarts),
                0.9 * np.eye(self.n_actions) + 0.1 / self.n_actions,
            ]
        )
        targets = self._payoffs @ own
        at_once = max(1, _SEARCH_ENTRIES // self.n_vectors)
        ends = [self._descend(starts[i : i + at_once], targets) for i in range(0, len(starts), at_once)]
        candidates = np.concatenate([own[None], np.eye(self.n_actions), *ends])
        values = np.concatenate(
            [
                self._counts.probabilities(candidates[i : i + at_once]) @ targets
                for i in range(0, len(candidates), at_once)
            ]
        )
        best = int(np.argmin(values))
        return candidates[best], float(values[best])

    def exploitability(self, x: Any, n_restarts: int = 100, *, random_state: RandomState = 0) -> float:
        """Least expected payoff of a strategy over common strategies of the opponents, ``min_y u(x, y)``.

        Parameters
        ----------
        x : array-like, shape (n_actions,)
            Own mixed strategy.
        n_restarts : int, default=100
            Random starts of the descent.
        random_state : int, Generator, RandomState or None, default=0
            Randomness of the starts.

        Returns
        -------
        float
            The payoff against the worst population found, see :meth:`exploiter`.
        """
        return self.exploiter(x, n_restarts, random_state=random_state)[1]

    def _descend(self, starts: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """Exponentiated gradient descent of ``sum_k Mult(k; y) targets(k)`` from rows of starts."""
        table = self._counts
        y = np.maximum(starts, 1e-12)
        y /= y.sum(axis=1, keepdims=True)
        scale = float(np.abs(targets).max()) or 1.0
        steps = np.full(len(y), 1.0 / scale)
        weights = table.probabilities(y) * targets
        values = weights.sum(axis=1)
        for _ in range(_DESCENT_STEPS):
            # d/dy_b of y^k is k_b / y_b times it; what all actions share cancels in the normalisation.
            gradient = weights @ table.vectors / y
            log_y = np.log(y) - steps[:, None] * (gradient - gradient.min(axis=1, keepdims=True))
            moved = np.maximum(np.exp(log_y - log_y.max(axis=1, keepdims=True)), 1e-12)
            moved /= moved.sum(axis=1, keepdims=True)
            new_weights = table.probabilities(moved) * targets
            new_values = new_weights.sum(axis=1)
            better = new_values < values
            steps = np.where(better, 1.5 * steps, 0.5 * steps)
            y[better], weights[better], values[better] = (
                moved[better],
                new_weights[better],
                new_values[better],
            )
            if (steps < 1e-8 / scale).all():
                break
        return y

    # Is it what it says it is?

    def check(self, n_samples: int = 10_000, *, random_state: RandomState = 0) -> float:
        """Verify that all players' payoffs add up to ``total``.

        Parameters
        ----------
        n_samples : int, default=10000
            Random profiles to look at, where there are more than a million; up to there, all are.
        random_state : int, Generator, RandomState or None, default=0
            Randomness of the profiles.

        Returns
        -------
        float
            Largest deviation found, no more than rounding.

        Raises
        ------
        ValueError
            If a profile has another sum; the message shows the first one.
        """
        n_samples = check_integer("n_samples", n_samples, minimum=1)
        n, n_actions = self.n_players, self.n_actions
        if n_count_vectors(n, n_actions) <= PROFILES:
            profiles = count_vectors(n, n_actions)
        else:
            generator = as_generator(random_state)
            shares = generator.dirichlet(np.ones(n_actions), size=n_samples)
            profiles = generator.multinomial(n, shares).astype(np.int64)
        sums = np.zeros(len(profiles))
        size = np.zeros(len(profiles))
        for action in range(n_actions):
            present = np.flatnonzero(profiles[:, action])
            others = profiles[present]
            others[:, action] -= 1
            with np.errstate(over="ignore", invalid="ignore"):
                parts = profiles[present, action] * self._against(others)[:, action]
                sums[present] += parts
                size[present] += np.abs(parts)
        deviations = np.abs(sums - self.total)
        # Relative to the game's own payoffs, however small; sums beyond the range of floats are none.
        wrong = ~np.isfinite(deviations) | (deviations > TOLERANCE * (abs(self.total) + size.max()))
        if wrong.any():
            first = int(np.argmax(wrong))
            raise ValueError(
                f"payoff must add up to {self.total:g} over all players, got {sums[first]:g} when "
                f"{self._describe(profiles[first])}"
            )
        return float(deviations.max())

    def _against(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        if not self.exact:
            return self._evaluate(counts)
        actions = np.repeat(np.tile(np.arange(self.n_actions), len(counts)), counts.ravel())
        rows = self._counts.rows(actions.reshape(len(counts), self.n_players - 1))
        found: NDArray[np.float64] = self._payoffs[rows]
        return found

    def _describe(self, counts: NDArray[np.int64]) -> str:
        parts = [
            f"{count} of {self.n_players} choose {name!r}"
            for count, name in zip(counts.tolist(), self.action_names, strict=True)
            if count
        ]
        return " and ".join(parts)

    # Other sources

    @classmethod
    def _from_table(
        cls,
        n_players: int,
        payoffs: NDArray[np.float64],
        total: float,
        action_names: Sequence[str] | None = None,
    ) -> SymmetricGame:
        game = SymmetricGame.__new__(SymmetricGame)
        game._set(n_players, payoffs.shape[1], total, None, action_names)
        game._payoffs = payoffs
        rows = game._counts

        def payoff(a: int, counts: NDArray[np.int64]) -> float:
            return float(payoffs[rows.rows(np.repeat(np.arange(len(counts)), counts)), a])

        game._payoff = payoff
        game.check()
        return game

    @classmethod
    def from_tensor(
        cls, tensor: Any, total: float | None = None, *, action_names: Sequence[str] | None = None
    ) -> SymmetricGame:
        """Game from the payoffs of all players in all profiles.

        Parameters
        ----------
        tensor : array-like, shape (n_players, n_actions, ..., n_actions)
            ``tensor[i, a_0, ..., a_(n-1)]`` is the payoff of player ``i``.
        total : float or None, default=None
            Sum of all payoffs; None takes that of the first profile.
        action_names : sequence of str or None, default=None
            What the actions are called.

        Returns
        -------
        SymmetricGame
            The game.

        Raises
        ------
        ValueError
            If the tensor has another shape, or the game is not symmetric or not constant-sum; the message
            shows the first offending profile.

        Notes
        -----
        ``O(n A^n)``: for small games only, which is why nothing else here makes such a tensor.

        Examples
        --------
        >>> import numpy as np
        >>> scissors = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
        >>> SymmetricGame.from_tensor([scissors, scissors.T]).action_values([1, 0, 0]).tolist()
        [0.0, 1.0, -1.0]
        """
        from theses.games.equal_share.sources import table_of_tensor

        n_players, table, total = table_of_tensor(tensor, total)
        return cls._from_table(n_players, table, total, action_names)

    @classmethod
    def from_open_spiel(cls, game: Any) -> SymmetricGame:
        """Game from an OpenSpiel game in which all players move once, at the same time.

        Parameters
        ----------
        game : pyspiel.Game or str
            The game, or what ``pyspiel.load_game`` takes, such as
            ``"blotto(coins=3,fields=2,players=3)"``; up to a million profiles.

        Returns
        -------
        SymmetricGame
            The game, with OpenSpiel's names of the actions.

        Raises
        ------
        ImportError
            If a name is given and OpenSpiel is not installed (the extra ``rl``).
        ValueError
            If the game is none of simultaneous single moves, is too large, or is not symmetric or not
            constant-sum; the message shows the first offending profile.
        """
        from theses.games.equal_share.sources import tensor_of_open_spiel

        tensor, names = tensor_of_open_spiel(game)
        return cls.from_tensor(tensor, action_names=names)

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> SymmetricGame:
        """Game from a description of plain values, as JSON holds them.

        Parameters
        ----------
        description : mapping
            One of three: ``{"game": NAME, ...}`` with a name of ``GAMES`` and its parameters;
            ``{"n_players": n, "actions": [...], "payoffs": [{"action": a, "others": [...], "payoff": u},
            ...]}`` with a row for each own action and each vector of counts of the others; or
            ``{"tensor": ...}`` as in :meth:`from_tensor`. The last two take ``"total"``, and all take
            ``"actions"``, the actions' names, by which ``"action"`` may call them. A ``"population"`` beside
            them is left alone.

        Returns
        -------
        SymmetricGame
            The game, checked to be symmetric and constant-sum.

        Raises
        ------
        ValueError
            If the description is another, has rows that are missing or contradict each other, or the game is
            not symmetric or not constant-sum.

        Examples
        --------
        >>> SymmetricGame.from_dict({"game": "rock-paper-scissors", "n_players": 4})
        RockPaperScissors(n_players=4, n_actions=3)
        """
        from theses.games.equal_share.sources import game_of_description

        return game_of_description(description)
