"""Plays a repeated game and keeps what happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from theses.games.equal_share.counts import check_strategy, draw_actions
from theses.games.equal_share.game import RandomState, SymmetricGame
from theses.games.equal_share.learners import Learner, check_actions
from theses.games.equal_share.populations import (
    AdaptivePopulation,
    Population,
    RecordedPopulation,
)
from theses.validation import as_generator, check_integer

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

__all__ = ["Trajectory", "play"]

Array = NDArray[np.float64]
Actions = NDArray[np.int64]

# Entries of the opponents' draws (rounds x runs x opponents x actions) that are made at once.
_BLOCK_ENTRIES = 500_000


@dataclass(frozen=True)
class Trajectory:
    """What happened in a repeated game.

    Parameters
    ----------
    payoffs : ndarray of float64, shape (n_rounds,) or (n_rounds, n_runs)
        The learner's payoff in each round.
    share : float
        Fair share of the game.
    variation : float or ndarray of shape (n_runs,)
        Total variation ``V_T`` of the opponents' strategies; NaN where only their actions are known.
    rounds : ndarray of int64, shape (n_records,)
        Rounds after which the policy was recorded.
    policies : ndarray of float64, shape (n_records, n_actions) or (n_records, n_runs, n_actions)
        The learner's policy after each of these rounds.
    common : bool
        Whether the opponents shared one strategy that did not look at the learner.

    Examples
    --------
    >>> from theses.games.equal_share import FixedStrategy, MajorityVote, StationaryPopulation
    >>> found = play(MajorityVote(), FixedStrategy([1, 0]), StationaryPopulation([1, 0]), 10, record_every=5)
    >>> found.share_gap, found.rounds.tolist()
    (0.0, [5, 10])
    """

    payoffs: Array
    share: float
    variation: Any
    rounds: NDArray[np.int64]
    policies: Array
    common: bool

    @property
    def average_payoff(self) -> Any:
        """Average payoff of the run: a float, or one for each run."""
        mean = self.payoffs.mean(axis=0)
        return mean if mean.ndim else float(mean)

    @property
    def share_gap(self) -> Any:
        """Fair share minus average payoff: negative above the share; a float, or one for each run."""
        return self.share - self.average_payoff

    @property
    def running_payoffs(self) -> Array:
        """Average payoff up to each recorded round: ``(n_records,)`` or ``(n_records, n_runs)``."""
        sums = np.cumsum(self.payoffs, axis=0)[self.rounds - 1]
        averages: Array = (sums.T / self.rounds).T
        return averages

    def summary(self) -> str:
        """Average payoff, share and variation in a line.

        Returns
        -------
        str
            With the standard error over the runs, if there are several.
        """
        average = np.atleast_1d(self.average_payoff)
        spread = f" (s.e. {average.std(ddof=1) / len(average) ** 0.5:.2g})" if len(average) > 1 else ""
        variation = np.mean(self.variation)
        moved = "unknown" if np.isnan(variation) else f"{variation:.4g}"
        return (
            f"{len(self.payoffs):,} rounds: average payoff {average.mean():+.4g}{spread}, fair share "
            f"{self.share:.4g}, total variation of the opponents {moved}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers.

        Returns
        -------
        dict
            Rounds, average payoff, gap, share, variation, final policy.
        """
        return {
            "rounds": len(self.payoffs),
            "share": self.share,
            "average_payoff": np.asarray(self.average_payoff).tolist(),
            "share_gap": np.asarray(self.share_gap).tolist(),
            "variation": np.asarray(self.variation).tolist(),
            "final_policy": self.policies[-1].tolist(),
            "common": self.common,
        }

    def to_frame(self) -> pl.DataFrame:
        """A row for each recorded round and run.

        Returns
        -------
        polars.DataFrame
            Columns ``round``, ``run``, ``average_payoff`` up to there, and ``policy_0``, ``policy_1``, ...
        """
        import polars as pl

        averages = self.running_payoffs.reshape(len(self.rounds), -1)
        n_runs = averages.shape[1]
        policies = self.policies.reshape(len(self.rounds) * n_runs, -1)
        columns: Mapping[str, Any] = {
            "round": np.repeat(self.rounds, n_runs),
            "run": np.tile(np.arange(n_runs), len(self.rounds)),
            "average_payoff": averages.ravel(),
            **{f"policy_{a}": policies[:, a] for a in range(policies.shape[1])},
        }
        return pl.DataFrame(columns)

    def plot(self) -> alt.Chart:
        """Average payoff over time, beside the fair share.

        Returns
        -------
        altair.Chart
            A line for each run. Needs the extra ``report``.
        """
        import altair as alt

        lines = (
            alt.Chart(self.to_frame())
            .mark_line()
            .encode(
                x=alt.X("round:Q", title="rounds"),
                y=alt.Y("average_payoff:Q", title="average payoff"),
                detail="run:N",
            )
        )
        share = alt.Chart().mark_rule(strokeDash=[4, 3]).encode(y=alt.datum(self.share))
        return cast("alt.Chart", lines + share)


def play(
    game: SymmetricGame,
    learner: Any,
    opponents: Population,
    n_rounds: int,
    *,
    random_state: RandomState = None,
    record_every: int | None = None,
    n_runs: int | None = None,
) -> Trajectory:
    """Play a repeated game.

    Parameters
    ----------
    game : SymmetricGame
        The game.
    learner : Learner
        Who plays; it is reset. Any object with ``policy()``, ``act(random_state)`` and ``observe(own_action,
        opponent_actions)`` will do for a single run.
    opponents : Population
        The others.
    n_rounds : int
        Number of rounds ``T``.
    random_state : int, Generator, RandomState or None, default=None
        Randomness of all actions.
    record_every : int or None, default=None
        Record the policy after every so many rounds, and after the last; None records the last only.
    n_runs : int or None, default=None
        Independent runs at once, as an axis of all arrays: hardly slower than one.

    Returns
    -------
    Trajectory
        Payoffs, gap to the fair share, total variation of the opponents, policies.

    Raises
    ------
    ValueError
        If game, learner and opponents do not fit together.

    References
    ----------
    arXiv 2406.04201: the learning protocol.

    Examples
    --------
    >>> from theses.games.equal_share import Hedge, MajorityVote, StationaryPopulation
    >>> population = StationaryPopulation([0.2, 0.8])
    >>> found = play(MajorityVote(), Hedge(2, horizon=1_000), population, 1_000, random_state=0, n_runs=4)
    >>> found.payoffs.shape, bool((found.share_gap < 0).all())
    ((1000, 4), True)
    """
    n_rounds = check_integer("n_rounds", n_rounds, minimum=1)
    every = n_rounds if record_every is None else check_integer("record_every", record_every, minimum=1)
    runs = 1 if n_runs is None else check_integer("n_runs", n_runs, minimum=1)
    if not isinstance(game, SymmetricGame):
        raise TypeError(f"game must be a SymmetricGame, got {type(game).__name__}")
    if not isinstance(opponents, Population):
        raise TypeError(f"opponents must be a Population, got {type(opponents).__name__}")
    opponents.check_fit(game.n_players, game.n_actions, n_rounds, n_runs)
    generator = as_generator(random_state)
    player = learner if isinstance(learner, Learner) else _Outsider(learner, game.n_actions, generator)
    player.reset(game, n_runs)
    others = game.n_players - 1
    payoffs = np.empty((n_rounds, runs))
    rounds: list[int] = []
    policies: list[Array] = []
    variation = np.zeros(runs)
    before: Array | None = None
    every_run = np.arange(runs)
    block = max(1, _BLOCK_ENTRIES // (runs * others * game.n_actions))
    for start in range(0, n_rounds, block):
        stop = min(start + block, n_rounds)
        uniforms = generator.random((stop - start, runs, others))
        own_uniforms = generator.random((stop - start, runs))
        if not isinstance(opponents, AdaptivePopulation):
            # Opponents that do not look at the learner are drawn, and valued, for many rounds at once.
            strategies = opponents.strategies(start, stop)
            actions = draw_actions(uniforms, strategies)
            gains = game._gains(actions)
            variation += _steps(strategies, before).sum(axis=0)
            before = strategies[-1]
        for t in range(stop - start):
            if isinstance(opponents, AdaptivePopulation):
                policy = player._policy()
                answer = opponents.respond(start + t + 1, policy[0] if n_runs is None else policy)
                strategy = answer.reshape(1, runs, 1, -1)
                seen = draw_actions(uniforms[t], strategy[0])
                gain = game._gains(seen)
                variation += _steps(strategy, before)[0]
                before = strategy[0]
            else:
                seen, gain = actions[t], gains[t]
            own = player._act(own_uniforms[t])
            payoffs[start + t] = gain[every_run, own]
            player._watch(own, seen, gain)
            done = start + t + 1
            if done % every == 0 or done == n_rounds:
                rounds.append(done)
                policies.append(player._policy().copy())
    if isinstance(opponents, RecordedPopulation):
        variation[:] = np.nan  # of the strategies behind the actions, which are not known
    recorded = np.array(policies)
    if n_runs is None:
        return Trajectory(
            payoffs[:, 0], game.share, float(variation[0]), np.array(rounds), recorded[:, 0], opponents.common
        )
    return Trajectory(payoffs, game.share, variation, np.array(rounds), recorded, opponents.common)


def _steps(strategies: Array, before: Array | None) -> Array:
    """``||y_t - y_(t-1)||_1``, averaged over the opponents: ``(rounds, n_runs or 1)``."""
    first = strategies[:1] if before is None else before[None]
    path = np.concatenate([first, strategies])
    lengths: Array = np.abs(np.diff(path, axis=0)).sum(axis=-1).mean(axis=-1)
    return lengths


class _Outsider(Learner):
    """A learner that is none of ours, for a single run."""

    def __init__(self, learner: Any, n_actions: int, generator: np.random.Generator) -> None:
        for method in ("policy", "act", "observe"):
            if not callable(getattr(learner, method, None)):
                raise TypeError(
                    f"learner must have policy, act and observe, got {type(learner).__name__} without "
                    f"{method}"
                )
        self.learner = learner
        self.generator = generator
        super().__init__(n_actions)

    def reset(self, game: SymmetricGame, n_runs: int | None = None) -> Self:
        if n_runs is not None:
            raise ValueError("n_runs must be None for a learner that is no Learner, since it plays one run")
        return super().reset(game)

    def _start(self, n_runs: int) -> None:
        pass

    def _policy(self) -> Array:
        return check_strategy("the learner's policy", self.learner.policy(), self.n_actions)[None]

    def _act(self, uniforms: Array) -> Actions:
        action = self.learner.act(self.generator)
        return check_actions("the learner's action", action, (), self.n_actions).reshape(1)

    def _watch(self, own: Actions, opponents: Actions, gains: Array) -> None:
        self.learner.observe(int(own[0]), opponents[0])

    def _observe(self, opponents: Actions, gains: Array) -> None:
        pass
