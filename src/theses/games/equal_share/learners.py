"""Learners for a repeated symmetric game.

A learner sees the opponents' actions after each round, and with them the payoff that each of its own actions
would have had (full information). A learner may play several independent runs at once: after
``reset(game, n_runs)`` its policies, actions and observations have a leading axis of runs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from theses.games.equal_share.counts import check_strategy, draw_actions
from theses.games.equal_share.game import RandomState, SymmetricGame
from theses.validation import as_generator, check_array, check_integer, check_real

__all__ = [
    "BehaviorCloning",
    "FixedStrategy",
    "Hedge",
    "Learner",
    "SAOLHedge",
]

Array = NDArray[np.float64]
Actions = NDArray[np.int64]


class Learner(ABC):
    """Plays a repeated game: a policy, an action drawn from it, and what is learnt from a round.

    A learner of your own overrides ``_start``, ``_policy`` and ``_observe``.

    Parameters
    ----------
    n_actions : int
        Number of actions, at least 2.

    Examples
    --------
    >>> learner = BehaviorCloning(2)
    >>> learner.policy().tolist()
    [0.5, 0.5]
    """

    def __init__(self, n_actions: int) -> None:
        self.n_actions = check_integer("n_actions", n_actions, minimum=2)
        self.game: SymmetricGame | None = None
        self.n_runs: int | None = None
        self._start(1)

    def reset(self, game: SymmetricGame, n_runs: int | None = None) -> Self:
        """Forget all rounds, and learn which game is played.

        Parameters
        ----------
        game : SymmetricGame
            The game; it has as many actions as the learner.
        n_runs : int or None, default=None
            Independent runs at once; None plays one, without an axis of runs.

        Returns
        -------
        Learner
            Itself.

        Raises
        ------
        ValueError
            If the numbers of actions differ.
        """
        if game.n_actions != self.n_actions:
            raise ValueError(f"game must have {self.n_actions} actions as the learner, got {game.n_actions}")
        self.n_runs = None if n_runs is None else check_integer("n_runs", n_runs, minimum=1)
        self.game = game
        self._start(self.n_runs or 1)
        return self

    def policy(self) -> Array:
        """Mixed strategy of the next round.

        Returns
        -------
        ndarray of float64, shape (n_actions,) or (n_runs, n_actions)
            Probabilities; uniform before any observation.
        """
        policy = self._policy()
        return policy[0].copy() if self.n_runs is None else policy.copy()

    def act(self, random_state: RandomState = None) -> Any:
        """Action of the next round, drawn from the policy.

        Parameters
        ----------
        random_state : int, Generator, RandomState or None, default=None
            Randomness of the draw; hand over a generator, which moves on, to draw round after round.

        Returns
        -------
        int or ndarray of int, shape (n_runs,)
            The action.
        """
        actions = self._act(as_generator(random_state).random(self.n_runs or 1))
        return int(actions[0]) if self.n_runs is None else actions

    def observe(self, own_action: Any, opponent_actions: Any) -> None:
        """Learn from a round.

        Parameters
        ----------
        own_action : int or array-like of int, shape (n_runs,)
            What was played; no learner here needs it, since all payoffs are known.
        opponent_actions : array-like of int, shape (n_players - 1,) or (n_runs, n_players - 1)
            What each opponent has played.

        Raises
        ------
        ValueError
            If there was no :meth:`reset`, or the actions are none of the game's.
        """
        if self.game is None:
            raise ValueError("game must be known before a round is observed: call reset(game)")
        runs = () if self.n_runs is None else (self.n_runs,)
        opponents = check_actions(
            "opponent_actions", opponent_actions, (*runs, self.game.n_players - 1), self.n_actions
        )
        check_actions("own_action", own_action, runs, self.n_actions)
        opponents = opponents.reshape(self.n_runs or 1, -1)
        self._observe(opponents, self.game._gains(opponents))

    def _act(self, uniforms: Array) -> Actions:
        return draw_actions(uniforms, self._policy())

    def _watch(self, own: Actions, opponents: Actions, gains: Array) -> None:
        self._observe(opponents, gains)

    @abstractmethod
    def _start(self, n_runs: int) -> None:
        """Forget all rounds."""

    @abstractmethod
    def _policy(self) -> Array:
        """Policies of all runs, ``(n_runs, n_actions)``."""

    @abstractmethod
    def _observe(self, opponents: Actions, gains: Array) -> None:
        """Learn from actions ``(n_runs, n - 1)`` and the payoffs ``(n_runs, n_actions)`` against them."""


def check_actions(name: str, value: Any, shape: tuple[int, ...], n_actions: int) -> Actions:
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        array = check_array(name, value, ndim=len(shape))
        if (array != np.floor(array)).any():
            raise ValueError(f"{name} must be whole numbers")
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    if array.size and (array.min() < 0 or array.max() >= n_actions):
        raise ValueError(
            f"{name} must be actions from 0 to {n_actions - 1}, got {array.min()}..{array.max()}"
        )
    return array.astype(np.int64, copy=False)


def softmax(logits: Array) -> Array:
    weights: Array = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def hedge_step(n_actions: int, n_rounds: float, payoff_range: float) -> float:
    """Step ``sqrt(8 ln A / T) / (2 B)`` for payoffs in ``[-B, B]``: regret at most ``B sqrt(2 T ln A)``."""
    return math.sqrt(8 * math.log(n_actions) / n_rounds) / (2 * payoff_range)


class Hedge(Learner):
    """Exponential weights on the payoffs of all actions against what the opponents have played.

    ``x_t(a)`` is proportional to ``exp(eta sum_(s < t) g_s(a))`` with ``g_s(a) = u(a, counts_s)``. With the
    payoffs within ``B`` of the fair share, ``eta = sqrt(8 ln A / T) / (2 B)`` for a known horizon gives
    regret at most ``B sqrt(2 T ln A)``; ``eta_t = sqrt(ln A / t) / B`` for none gives ``2 B sqrt(T ln A)``.
    Against opponents who all play one strategy, whatever it is, no regret means no less than the fair share:
    that very strategy would have earned it.

    Parameters
    ----------
    n_actions : int
        Number of actions.
    lr : "theory" or float, default="theory"
        Step size.
    horizon : int or None, default=None
        Number of rounds for the step of theory; None uses the one that falls with time.
    payoff_range : float or None, default=None
        ``B``; None takes it from the game.

    References
    ----------
    arXiv 2406.04201: Hedge against stationary opponents.

    Examples
    --------
    >>> from theses.games.equal_share import MajorityVote
    >>> learner = Hedge(2, lr=1.0).reset(MajorityVote())
    >>> learner.observe(0, [1, 1])
    >>> learner.policy().round(4).tolist()
    [0.2689, 0.7311]
    """

    def __init__(
        self,
        n_actions: int,
        lr: float | Literal["theory"] = "theory",
        horizon: int | None = None,
        payoff_range: float | None = None,
    ) -> None:
        if lr != "theory":
            if isinstance(lr, str):
                raise ValueError(f"lr must be 'theory' or a step size, got {lr!r}")
            check_real("lr", lr, minimum=0, include=False)
        if horizon is not None:
            check_integer("horizon", horizon, minimum=1)
        self.lr = lr
        self.horizon = horizon
        self.payoff_range = _check_range(payoff_range)
        super().__init__(n_actions)

    def _start(self, n_runs: int) -> None:
        self._gains = np.zeros((n_runs, self.n_actions))
        self._round = 1
        self._bound = range_of(self.payoff_range, self.game)

    def _step(self) -> float:
        if self.lr != "theory":
            return float(self.lr)
        if self.horizon is not None:
            return hedge_step(self.n_actions, self.horizon, self._bound)
        return math.sqrt(math.log(self.n_actions) / self._round) / self._bound

    def _policy(self) -> Array:
        return softmax(self._step() * self._gains)

    def _observe(self, opponents: Actions, gains: Array) -> None:
        self._gains += gains
        self._round += 1


def _check_range(payoff_range: float | None) -> float | None:
    if payoff_range is None:
        return None
    return check_real("payoff_range", payoff_range, minimum=0, include=False)


def range_of(payoff_range: float | None, game: SymmetricGame | None) -> float:
    if payoff_range is not None:
        return payoff_range
    # Where all payoffs are equal, any range will do.
    return (game.payoff_range if game is not None else 1.0) or 1.0


_SCALES = 40  # intervals of up to 2 ** 39 rounds


class SAOLHedge(Learner):
    """Strongly adaptive online learning with Hedge: follows opponents whose common strategy drifts.

    On each of the geometric covering intervals ``[i 2^k, (i + 1) 2^k - 1]``, ``i >= 1``, a fresh Hedge with
    horizon ``2^k`` starts; at round ``t`` the ``floor(log2 t) + 1`` of them that cover ``t`` are active. The
    policy is their average ``x_t = sum_I w_I x_t^I / sum_I w_I``; an interval starts with the weight
    ``eta_I = min(1/2, 1 / sqrt(|I|))`` and after each round ``w_I`` is multiplied by ``1 + eta_I r_I``, where
    ``r_I = <g_t, x_t^I> - <g_t, x_t>`` for payoffs scaled to [0, 1].

    Parameters
    ----------
    n_actions : int
        Number of actions.
    payoff_range : float or None, default=None
        ``B``, the largest distance of a payoff from the fair share; None takes it from the game.

    Notes
    -----
    ``O(A log t)`` a round. The average gap to the fair share is
    ``O(V_T^(1/3) T^(-1/3) (sqrt(log(A / delta)) + log T))`` when the opponents' common strategy has the total
    variation ``V_T``, which need not be known.

    References
    ----------
    arXiv 2406.04201; the learner is that of Daniely, Gonen, Shalev-Shwartz: Strongly Adaptive
    Online Learning, ICML 2015, Algorithm 1.

    Examples
    --------
    >>> learner = SAOLHedge(3)
    >>> [learner.active_intervals(t) for t in (1, 6)]
    [[(1, 1)], [(6, 6), (6, 7), (4, 7)]]
    """

    def __init__(self, n_actions: int, payoff_range: float | None = None) -> None:
        self.payoff_range = _check_range(payoff_range)
        super().__init__(n_actions)

    @staticmethod
    def active_intervals(t: int) -> list[tuple[int, int]]:
        """Covering intervals that hold a round.

        Parameters
        ----------
        t : int
            Round, counted from 1.

        Returns
        -------
        list of (int, int)
            First and last round of each, the shortest first.
        """
        t = check_integer("t", t, minimum=1)
        return [((t >> k) << k, (((t >> k) + 1) << k) - 1) for k in range(t.bit_length())]

    def _start(self, n_runs: int) -> None:
        self._bound = range_of(self.payoff_range, self.game)
        scales = 2.0 ** np.arange(_SCALES)
        self._meta_steps = np.minimum(0.5, scales**-0.5)
        self._steps = np.array([hedge_step(self.n_actions, size, self._bound) for size in scales])[:, None]
        # One slot a scale: exactly one interval of each length 2 ** k <= t holds the round t.
        self._gains = np.zeros((n_runs, _SCALES, self.n_actions))
        # Logarithms, since an interval's weight may grow like exp(sqrt(|I|)).
        self._log_weights = np.zeros((n_runs, _SCALES))
        self._round = 0
        self._next_round()

    def _next_round(self) -> None:
        self._round += 1
        t = self._round
        self._active = t.bit_length()
        started = (t & -t).bit_length()  # the scales whose length divides t
        self._gains[:, :started] = 0.0
        self._log_weights[:, :started] = np.log(self._meta_steps[:started])
        self._mixture: tuple[Array, Array] | None = None

    def _mix(self) -> tuple[Array, Array]:
        """Policies of the active intervals, ``(n_runs, active, A)``, and their average."""
        if self._mixture is None:
            active = self._active
            experts = softmax(self._steps[:active] * self._gains[:, :active])
            weights = softmax(self._log_weights[:, :active])
            self._mixture = experts, (weights[:, None, :] @ experts)[:, 0]
        return self._mixture

    def _policy(self) -> Array:
        return self._mix()[1]

    def _observe(self, opponents: Actions, gains: Array) -> None:
        experts, policy = self._mix()
        active = self._active
        regrets = ((experts - policy[:, None]) @ gains[:, :, None])[:, :, 0] / (2 * self._bound)
        if np.abs(regrets).max() > 1 + 1e-9:
            # A weight would turn negative.
            raise ValueError(
                "payoff_range must be at least the largest distance of a payoff from the fair share, got "
                f"{self._bound:g} with payoffs from {gains.min():g} to {gains.max():g}"
            )
        self._log_weights[:, :active] += np.log1p(self._meta_steps[:active] * regrets)
        self._gains[:, :active] += gains[:, None]
        self._next_round()


class BehaviorCloning(Learner):
    """Repeats the previous action of an opponent chosen at random.

    The policy is the empirical law of the opponents' last actions, uniform in the first round. Its expected
    payoff is ``u(y_(t-1), y_t) >= -B ||y_t - y_(t-1)||_1``, counted from the fair share: the safest learner
    under drift, and one that never earns more than the share.

    Parameters
    ----------
    n_actions : int
        Number of actions.

    References
    ----------
    arXiv 2406.04201: behaviour cloning under slow drift.

    Examples
    --------
    >>> from theses.games.equal_share import MajorityVote
    >>> learner = BehaviorCloning(2).reset(MajorityVote())
    >>> learner.observe(0, [0, 1])
    >>> learner.observe(0, [1, 1])
    >>> learner.policy().tolist()
    [0.0, 1.0]
    """

    def _start(self, n_runs: int) -> None:
        self._law = np.full((n_runs, self.n_actions), 1 / self.n_actions)

    def _policy(self) -> Array:
        return self._law

    def _observe(self, opponents: Actions, gains: Array) -> None:
        self._law = (opponents[:, :, None] == np.arange(self.n_actions)).mean(axis=1)


class FixedStrategy(Learner):
    """Plays one mixed strategy, whatever happens.

    Parameters
    ----------
    x : array-like, shape (n_actions,)
        The strategy.

    References
    ----------
    arXiv 2406.04201: what an equilibrium strategy is, and why it promises nothing.

    Examples
    --------
    >>> FixedStrategy([0.2, 0.8]).policy().tolist()
    [0.2, 0.8]
    """

    def __init__(self, x: Any) -> None:
        self.x = check_strategy("x", x)
        super().__init__(len(self.x))

    def _start(self, n_runs: int) -> None:
        self._law = np.tile(self.x, (n_runs, 1))

    def _policy(self) -> Array:
        return self._law

    def _observe(self, opponents: Actions, gains: Array) -> None:
        pass
