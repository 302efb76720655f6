"""Looking for what takes the guarantees away."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from theses.decision.pareto_subset_selection.functions import SetFunction, build, check_function, evaluator_of
from theses.validation import as_generator, check_integer

__all__ = ["SubmodularityReport", "check_submodular"]

RandomState = int | np.random.Generator | np.random.RandomState | np.random.SeedSequence | None


@dataclass(frozen=True)
class SubmodularityReport:
    r"""What random triples :math:`X \subseteq Y \not\ni v` say of a set function.

    Parameters
    ----------
    monotone : bool
        No item was seen to lower the value.
    submodular : bool
        No item was seen to add more to a larger set.
    alpha_f : float
        Least ratio seen of :math:`f(v \mid X)` to :math:`f(v \mid Y)`, at most 1: an upper estimate of the
        submodularity ratio.
    n_trials : int
        Triples that were tried.
    witness : dict or None
        ``{"smaller", "larger", "item", "gain_smaller", "gain_larger"}`` of the worst violation.

    Examples
    --------
    >>> from theses.decision.pareto_subset_selection import MaxCoverage
    >>> report = check_submodular(MaxCoverage([[0], [0, 1], [2]]), n_trials=20, random_state=0)
    >>> report.monotone, report.submodular, report.alpha_f
    (True, True, 1.0)
    """

    monotone: bool
    submodular: bool
    alpha_f: float
    n_trials: int
    witness: dict[str, Any] | None

    def summary(self) -> str:
        """One line of text.

        Returns
        -------
        str
            The finding.
        """
        words = [
            "monotone" if self.monotone else "not monotone",
            "submodular" if self.submodular else "not submodular",
        ]
        return (
            f"{' and '.join(words)} in {self.n_trials} trials; submodularity ratio at most {self.alpha_f:.3g}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain mapping.

        Returns
        -------
        dict
            All fields.
        """
        return asdict(self)


def check_submodular(
    f: SetFunction, n_trials: int = 200, *, random_state: RandomState = None
) -> SubmodularityReport:
    r"""Look for violations of :math:`0 \le f(v \mid Y) \le f(v \mid X)` for :math:`X \subseteq Y \not\ni v`.

    Finding none proves nothing; finding one withdraws the guarantees of all algorithms here.

    Parameters
    ----------
    f : SetFunction
        The function.
    n_trials : int, default=200
        Random triples.
    random_state : int, Generator, RandomState, SeedSequence or None, default=None
        Source of randomness.

    Returns
    -------
    SubmodularityReport
        The finding, with the worst violation. A function that is not monotone is warned about.

    Notes
    -----
    Differences up to 1e-9 of the largest value seen count as rounding. 4 evaluations a trial.

    References
    ----------
    Submodularity ratio: Zhang and Vorobeychik, Submodular Optimization with Routing Constraints, AAAI 2016.

    Examples
    --------
    >>> import numpy as np
    >>> class Square:
    ...     n = 6
    ...     def value(self, mask):
    ...         return float(np.sum(mask)) ** 2
    >>> check_submodular(Square(), random_state=0).submodular
    False
    """
    n = check_function(f)
    n_trials = check_integer("n_trials", n_trials, minimum=1)
    rng = as_generator(random_state)
    evaluator = evaluator_of(f)
    if n == 0:
        return SubmodularityReport(True, True, 1.0, n_trials, None)
    largest, trials = 0.0, []
    for _ in range(n_trials):
        order = rng.permutation(n)
        larger = int(rng.integers(n))
        smaller = int(rng.integers(larger + 1))
        item = int(order[-1])
        gains = []
        for size in (smaller, larger):
            state = build(evaluator, sum(1 << int(v) for v in order[:size]))
            before, after = evaluator.value(state), evaluator.value(evaluator.add(state, item))
            largest = max(largest, abs(before), abs(after))
            gains.append(after - before)
        trials.append((gains[0], gains[1], order[:smaller].tolist(), order[:larger].tolist(), item))
    tolerance = 1e-9 * largest
    worst, witness, alpha = tolerance, None, 1.0
    monotone = submodular = True
    for small, large, smaller_set, larger_set, item in trials:
        monotone &= min(small, large) >= -tolerance
        submodular &= large <= small + tolerance
        if large > small + tolerance:
            alpha = min(alpha, max(small, 0.0) / large if large > 0 else 0.0)
        violation = max(large - small, -small, -large)
        if violation > worst:
            worst = violation
            witness = {
                "smaller": sorted(smaller_set),
                "larger": sorted(larger_set),
                "item": item,
                "gain_smaller": small,
                "gain_larger": large,
            }
    if not monotone:
        warnings.warn(
            "f is not monotone: the guarantees of the algorithms do not apply to it",
            UserWarning,
            stacklevel=2,
        )
    return SubmodularityReport(monotone, submodular, alpha, n_trials, witness)
