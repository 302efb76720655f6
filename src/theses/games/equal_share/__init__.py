"""An equal share in symmetric constant-sum games with many players.

Among ``n`` players in equal seats who share a constant sum ``C``, one would like to earn ``C / n`` on
average. With more than two players an equilibrium strategy does not promise that, whichever it is: opponents
who all play one other strategy can make it lose. What can be had depends on the opponents. If they all draw
from one common strategy, playing that strategy too earns the share, so a learner without regret earns it
(Hedge), and one that adapts earns it while the strategy drifts (strongly adaptive Hedge, or cloning what was
seen last). If they differ among themselves, or answer the learner, nothing can be promised.

The files follow the paper: ``game`` holds a game's exact expected payoffs, on the ``counts`` of the others'
actions; ``games`` and ``sources`` where games come from; ``learners`` the learners, ``selfplay`` the usual
recipe; ``populations`` the opponents; ``play`` the repeated game; ``bounds`` what is guaranteed.

References
----------
Ge, Wang, Li, Jin: Securing Equal Share: A Principled Approach for Learning Multiplayer Symmetric Games,
ICML 2025, arXiv 2406.04201.
"""

from theses.games.equal_share.bounds import equal_share_bound, recommend
from theses.games.equal_share.game import SymmetricGame
from theses.games.equal_share.games import (
    GAMES,
    MajorityVote,
    MinorityGame,
    RockPaperScissors,
    SwitchDominance,
)
from theses.games.equal_share.learners import (
    BehaviorCloning,
    FixedStrategy,
    Hedge,
    Learner,
    SAOLHedge,
)
from theses.games.equal_share.play import Trajectory, play
from theses.games.equal_share.populations import (
    AdaptivePopulation,
    DriftingPopulation,
    HeterogeneousPopulation,
    Population,
    RecordedPopulation,
    StationaryPopulation,
)
from theses.games.equal_share.selfplay import SelfPlay, SelfPlayResult, self_play

__all__ = [
    "GAMES",
    "AdaptivePopulation",
    "BehaviorCloning",
    "DriftingPopulation",
    "FixedStrategy",
    "Hedge",
    "HeterogeneousPopulation",
    "Learner",
    "MajorityVote",
    "MinorityGame",
    "Population",
    "RecordedPopulation",
    "RockPaperScissors",
    "SAOLHedge",
    "SelfPlay",
    "SelfPlayResult",
    "StationaryPopulation",
    "SwitchDominance",
    "SymmetricGame",
    "Trajectory",
    "equal_share_bound",
    "play",
    "recommend",
    "self_play",
]
