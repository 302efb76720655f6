"""What the learners are promised, and which of them to take."""

from __future__ import annotations

import math
from typing import Literal

from theses.validation import check_choice, check_integer, check_real

__all__ = ["equal_share_bound", "recommend"]

Kind = Literal["hedge", "saol", "cloning"]

_KINDS = ("hedge", "saol", "cloning")


def equal_share_bound(
    kind: Kind, T: int, A: int, delta: float = 0.05, V_T: float = 0.0, *, payoff_range: float = 1.0
) -> float:
    """Bound on the average gap to the fair share against opponents with one common strategy.

    With probability ``1 - delta``, and ``V_T`` the total variation of the opponents' strategy:

    - ``"hedge"``: ``B (2 sqrt(ln A / T) + sqrt(2 ln(1 / delta) / T) + V_T)``;
    - ``"saol"``: ``B (V / T)^(1/3) (sqrt(ln(A / delta)) + ln T)`` with ``V = max(V_T, T^(-1/2))``;
    - ``"cloning"``: ``B (V_T / T + sqrt(2 ln(1 / delta) / T))``.

    Parameters
    ----------
    kind : {"hedge", "saol", "cloning"}
        Learner.
    T : int
        Number of rounds.
    A : int
        Number of actions, at least 2.
    delta : float, default=0.05
        Probability of exceeding the bound.
    V_T : float, default=0.0
        Total variation ``sum_t ||y_(t+1) - y_t||_1`` of the opponents' common strategy.
    payoff_range : float, default=1.0
        ``B``, the largest distance of a payoff from the fair share.

    Returns
    -------
    float
        The bound, in units of payoff.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    The bounds are of the paper's order; these are their constants in the experiments here. Hedge's regret is
    proven with its constant, and so is the loss of ``V_T`` by drift: ``u(y_1, y_t) >= -B ||y_t - y_1||_1``.
    The term with ``delta`` is Azuma's for the learner's payoffs around their means; the luck of the
    opponents' draws multiplies it by at most ``sqrt(2)`` for Hedge and 2 for cloning, whose first, blind
    round may cost ``B / T`` more. SAOL-Hedge's is the order with a constant of one.

    References
    ----------
    arXiv 2406.04201.

    Examples
    --------
    >>> [round(equal_share_bound(kind, 10_000, 3, V_T=100.0), 3) for kind in ("hedge", "saol", "cloning")]
    [100.045, 2.42, 0.034]
    """
    check_choice("kind", kind, _KINDS)
    n_rounds = check_integer("T", T, minimum=1)
    n_actions = check_integer("A", A, minimum=2)
    delta = check_real("delta", delta, minimum=0, maximum=1, include=False)
    variation = check_real("V_T", V_T, minimum=0)
    payoff_range = check_real("payoff_range", payoff_range, minimum=0)
    # Not log(1 / delta), which overflows for the least of floats.
    noise = math.sqrt(-2 * math.log(delta) / n_rounds)
    if kind == "hedge":
        gap = 2 * math.sqrt(math.log(n_actions) / n_rounds) + noise + variation
    elif kind == "saol":
        moved = max(variation, n_rounds**-0.5)
        gap = (moved / n_rounds) ** (1 / 3) * (
            math.sqrt(math.log(n_actions) - math.log(delta)) + math.log(n_rounds)
        )
    else:
        gap = variation / n_rounds + noise
    return payoff_range * gap


def recommend(V_T: float, T: int, A: int, want: Literal["safe", "exploit"] = "safe") -> Kind:
    """Learner to take against opponents with one common strategy.

    Cloning has the smallest bound for every drift, and never earns more than the share; Hedge, for opponents
    who stand still, and SAOL-Hedge, for those who move, earn more where the opponents are weak.

    Parameters
    ----------
    V_T : float
        Total variation of the opponents' strategy over all rounds.
    T : int
        Number of rounds.
    A : int
        Number of actions, at least 2.
    want : {"safe", "exploit"}, default="safe"
        The fair share for sure, or more than that where it can be had.

    Returns
    -------
    {"hedge", "saol", "cloning"}
        As :func:`equal_share_bound` calls them.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    References
    ----------
    arXiv 2406.04201.

    Examples
    --------
    >>> recommend(0.0, 10_000, 3), recommend(0.0, 10_000, 3, "exploit"), recommend(8.0, 10_000, 3, "exploit")
    ('cloning', 'hedge', 'saol')
    """
    check_choice("want", want, ("safe", "exploit"))
    variation = check_real("V_T", V_T, minimum=0)
    n_rounds = check_integer("T", T, minimum=1)
    check_integer("A", A, minimum=2)
    if want == "safe":
        return "cloning"
    return "hedge" if variation <= n_rounds**-0.5 else "saol"
