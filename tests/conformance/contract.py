"""What each method's tests hand to the conformance battery.

The test module of a method, ``tests/PACKAGE/test_MODULE.py``, defines

``calls() -> list[Call]``
    A valid call of everything public that takes arrays; the battery spoils the arrays one at a time.
``test_planted_MISTAKE_turns_CLAIM``
    At least one test that plants a mistake and shows that the check of a claim turns, such as
    ``test_planted_separate_projections_turns_c1a``.
``ESTIMATORS: dict[str, Callable[[], BaseEstimator]]``, optional
    Factories of the scikit-learn estimators whose constructors need arguments, by class name.
``EXCUSED: dict[str, dict[str, str]]``, optional
    By class name, the checks of ``check_estimator`` that it need not pass, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

CORRUPTIONS = ("nan", "inf", "empty", "rank", "length")


@dataclass(frozen=True)
class Call:
    """A valid call of something public, and how it may be spoilt.

    Parameters
    ----------
    target : str
        What is called, as the method's module names it: ``"function"``, ``"Class.method"``, or ``"Class"``
        for its constructor.
    make : callable
        Returns a callable and fresh keyword arguments for it; for a method, of an object ready to be called.
    arrays : tuple of str
        The keyword arguments that are arrays; ``"A.0"`` is the first entry of the pair ``A``.
    paired : tuple of str
        Those whose length must agree with another's.
    allowed : mapping of str to tuple of str
        Corruptions that the method documents as legal, by array: ``{"X": ("nan",)}``. They have to work.
    named : mapping of str to str
        Where the error names something else than the keyword, what it names: ``{"A.1": "labels"}``.
    """

    target: str
    make: Callable[[], tuple[Callable[..., Any], dict[str, Any]]]
    arrays: tuple[str, ...]
    paired: tuple[str, ...] = ()
    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
