"""Self-play, the recipe that is used otherwise: Hedge in all seats at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from theses.games.equal_share.counts import check_strategy
from theses.games.equal_share.game import SymmetricGame
from theses.games.equal_share.learners import Actions, Array, Learner, hedge_step, range_of, softmax
from theses.validation import check_integer, check_real

__all__ = ["SelfPlay", "SelfPlayResult", "self_play"]


@dataclass(frozen=True)
class SelfPlayResult:
    """Where self-play has ended.

    Parameters
    ----------
    policy : ndarray of float64, shape (n_actions,) or (n_inits, n_actions)
        The strategies.
    n_steps : int
        Steps until the last of them stood still.
    converged : ndarray of bool, shape () or (n_inits,)
        Whether each did within the steps allowed.

    Examples
    --------
    >>> from theses.games.equal_share import MajorityVote
    >>> bool(self_play(MajorityVote(), [0.6, 0.4]).converged)
    True
    """

    policy: Array
    n_steps: int
    converged: NDArray[np.bool_]


def self_play(
    game: SymmetricGame,
    init: Any,
    *,
    kl_anchor: Any = None,
    lam: float = 0.0,
    lr: float | Literal["theory"] = "theory",
    tolerance: float = 1e-6,
    max_steps: int = 100_000,
) -> SelfPlayResult:
    """Hedge in all seats of a game at once, on exact action values.

    All seats share ``x``: ``x_(t+1)(a)`` is proportional to
    ``x_t(a)^(1 - eta lam) y(a)^(eta lam) exp(eta v(a; x_t))`` with ``v`` the values of
    :meth:`SymmetricGame.action_values` and ``y`` the anchor: mirror ascent on ``v - lam KL(x, y)``.

    Parameters
    ----------
    game : SymmetricGame
        The game.
    init : array-like, shape (n_actions,) or (n_inits, n_actions)
        Strategies to begin with.
    kl_anchor : array-like of shape (n_actions,) or None, default=None
        Strategy ``y`` that the policy is held to.
    lam : float, default=0.0
        How strongly, in units of payoff.
    lr : "theory" or float, default="theory"
        Step ``eta``; the step of theory is Hedge's for ``max_steps`` rounds, and at most
        ``1 / (2 lam)``.
    tolerance : float, default=1e-6
        Ends when ``||x_(t+1) - x_t||_1`` is below it.
    max_steps : int, default=100000
        Most steps.

    Returns
    -------
    SelfPlayResult
        Strategies at the end, steps, and whether they stood still.

    Raises
    ------
    ValueError
        If a strategy is none, ``lam`` has no anchor, or the game has more than a million count vectors.

    References
    ----------
    arXiv 2406.04201: the self-play baselines SP-scratch, SP-BC and SP-BC with a KL penalty.

    Examples
    --------
    In Majority Vote, the side that starts ahead becomes the convention:

    >>> from theses.games.equal_share import MajorityVote
    >>> self_play(MajorityVote(), [[0.6, 0.4], [0.4, 0.6]]).policy.round(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    x = check_strategy("init", init, game.n_actions, ndim=(1, 2))
    lam = check_real("lam", lam, minimum=0)
    check_real("tolerance", tolerance, minimum=0)
    max_steps = check_integer("max_steps", max_steps, minimum=1)
    if kl_anchor is None:
        if lam:
            raise ValueError(f"kl_anchor must be given with lam, got None with lam={lam}")
        log_anchor = np.zeros(game.n_actions)
    else:
        anchor = check_strategy("kl_anchor", kl_anchor, game.n_actions)
        log_anchor = np.log(np.maximum(anchor, 1e-300))
    if not game.exact:
        raise ValueError(f"game must have at most a million count vectors, got {game.n_vectors:,}")
    if lr == "theory":
        eta = hedge_step(game.n_actions, max_steps, range_of(None, game))
        if lam:
            # Beyond 1 / lam a step leaps over the anchor, further each time.
            eta = min(eta, 0.5 / lam)
    elif isinstance(lr, str):
        raise ValueError(f"lr must be 'theory' or a step size, got {lr!r}")
    else:
        eta = check_real("lr", lr, minimum=0, include=False)
        if eta * lam > 1:
            raise ValueError(f"lr must be at most 1 / lam, got {eta} with lam={lam}")
    logits = np.log(np.maximum(np.atleast_2d(x), 1e-300))
    policy = softmax(logits)
    moving = np.arange(len(policy))
    steps = 0
    while len(moving) and steps < max_steps:
        steps += 1
        values = game._values(policy[moving])
        logits[moving] += eta * (values - lam * (logits[moving] - log_anchor))
        logits[moving] -= logits[moving].max(axis=-1, keepdims=True)
        moved = softmax(logits[moving])
        change = np.abs(moved - policy[moving]).sum(axis=-1)
        policy[moving] = moved
        moving = moving[change >= tolerance]
    converged = np.ones(len(policy), dtype=bool)
    converged[moving] = False
    return SelfPlayResult(policy.reshape(x.shape), steps, converged.reshape(x.shape[:-1]))


class SelfPlay(Learner):
    """Plays what self-play has come to, and learns nothing from its opponents.

    Parameters
    ----------
    game : SymmetricGame
        The game.
    init : "uniform" or array-like of shape (n_actions,), default="uniform"
        Where self-play begins: from scratch, or at the population's strategy (ideal behaviour cloning).
    kl_anchor : array-like of shape (n_actions,) or None, default=None
        Strategy to which a Kullback-Leibler penalty holds it.
    lam : float, default=0.0
        Weight of the penalty, in units of payoff.

    References
    ----------
    arXiv 2406.04201: the self-play baselines.

    Examples
    --------
    >>> from theses.games.equal_share import SwitchDominance
    >>> population = [0.399, 0.6, 0.001]
    >>> learner = SelfPlay(SwitchDominance(), population)
    >>> learner.policy().round(2).tolist()
    [0.0, 0.0, 1.0]
    """

    def __init__(
        self, game: SymmetricGame, init: Any = "uniform", kl_anchor: Any = None, lam: float = 0.0
    ) -> None:
        if isinstance(init, str):
            if init != "uniform":
                raise ValueError(f"init must be 'uniform' or a strategy, got {init!r}")
            init = np.full(game.n_actions, 1 / game.n_actions)
        start = check_strategy("init", init, game.n_actions)
        self.result = self_play(game, start, kl_anchor=kl_anchor, lam=lam)
        super().__init__(game.n_actions)

    def _start(self, n_runs: int) -> None:
        self._law = np.tile(self.result.policy, (n_runs, 1))

    def _policy(self) -> Array:
        return self._law

    def _observe(self, opponents: Actions, gains: Array) -> None:
        pass
