"""What each method's tests hand to the conformance battery."""

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
        What is called, as the method's module names it: ``"function"`` or ``"Class.method"``.
    make : callable
        Returns a callable and fresh keyword arguments for it; for a method, of an object ready to be called.
    arrays : tuple of str
        The keyword arguments that are arrays; ``"A.0"`` is the first entry of the pair ``A``.
    paired : tuple of str
        Those whose length must agree with another's.
    allowed : mapping of str to tuple of str
        Corruptions that the brief calls legal, by array: ``{"X": ("nan",)}``.
    named : mapping of str to str
        Where the error names something else than the keyword, what it names: ``{"A.1": "labels"}``.
    """

    target: str
    make: Callable[[], tuple[Callable[..., Any], dict[str, Any]]]
    arrays: tuple[str, ...]
    paired: tuple[str, ...] = ()
    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
