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
``OPTIMIZERS: dict[str, OptimizerCase]``, where the card's ``api`` has subclasses of ``torch.optim.Optimizer``
    By class name, how to build it and what may be asked of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

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


@dataclass(frozen=True)
class OptimizerCase:
    """How to build an optimiser, and what may be asked of it.

    Parameters
    ----------
    build : callable
        ``build(params, **settings)``; ``params`` is whatever torch takes (parameters, groups, or with
        ``needs_named`` pairs of name and parameter), ``settings`` are ``lr``, ``foreach`` where it has that,
        and the names in ``invalid``. The class itself will often do.
    reduces_to : callable or None
        ``reduces_to(params, lr=...)`` gives torch's own optimiser that does the same as
        ``build(params, lr=...)``.
    tolerance : float
        Greatest difference to it, relative to the parameters, in float64; 0 asks for the same bits.
    lr : float
        A rate with which it brings down a small problem in 200 steps.
    foreach : bool
        Whether it takes ``foreach=True`` and ``foreach=False``.
    needs_named : bool
        Whether it needs the names of the parameters.
    needs_closure : bool
        Whether ``step`` needs a closure.
    separable : bool
        Whether a group moves as it would in an optimiser of its own.
    handles : frozenset of str
        ``"sparse"`` and ``"complex"`` gradients where it takes them; else it has to refuse them.
    invalid : mapping of str to tuple
        Values of settings that it has to refuse.
    named : mapping of str to str
        Where the error does not name the setting, what it names: ``{"lr": "learning rate"}``.
    """

    build: Callable[..., torch.optim.Optimizer]
    reduces_to: Callable[..., torch.optim.Optimizer] | None = None
    tolerance: float = 0.0
    lr: float = 0.02
    foreach: bool = False
    needs_named: bool = False
    needs_closure: bool = False
    separable: bool = True
    handles: frozenset[str] = frozenset()
    invalid: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: {"lr": (-1.0, float("nan"))})
    named: Mapping[str, str] = field(default_factory=dict)
