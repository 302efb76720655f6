"""A card: what a method is for, what its paper claims, and how each claim is checked."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from theses.catalogue.kinds import CLAIM_KINDS, HAVE, PRESETS, WANT

__all__ = ["Bound", "Card", "CardError", "Check", "Claim", "Observation", "OutOfReach", "Paper"]

Aggregate = Literal["mean", "worst", "share"]
ClaimKind = Literal["identity", "same", "scaled", "stand-in"]

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_ONE_SIDED = re.compile(rf"(<=|>=|<|>)\s*({_NUMBER})$")
_INTERVAL = re.compile(rf"in\s*\[\s*({_NUMBER})\s*,\s*({_NUMBER})\s*\]$")


class CardError(ValueError):
    """A card is not as the schema wants it; the message names file and key."""


@dataclass(frozen=True)
class Bound:
    """Set of values that meet a check: ``>= a``, ``> a``, ``<= a``, ``< a`` or ``in [a, b]``.

    Parameters
    ----------
    low, high : float
        Ends; infinite where there is none.
    strict : bool
        Whether the finite end itself is excluded.

    Examples
    --------
    >>> Bound.parse(">= 0.7").contains(0.7)
    True
    >>> Bound.parse("in [0.8, 1.2]")
    Bound(low=0.8, high=1.2, strict=False)
    """

    low: float
    high: float
    strict: bool = False

    @classmethod
    def parse(cls, text: str) -> Bound:
        """Read a bound as cards write it.

        Parameters
        ----------
        text : str
            Such as ``"<= 1.2"``.

        Returns
        -------
        Bound
            The same as numbers.

        Raises
        ------
        ValueError
            If it is none of the five forms, or its interval is empty.
        """
        if match := _ONE_SIDED.fullmatch(text.strip()):
            sign, value = match[1], float(match[2])
            low, high = (value, math.inf) if sign[0] == ">" else (-math.inf, value)
            return cls(low, high, strict=len(sign) == 1)
        if match := _INTERVAL.fullmatch(text.strip()):
            low, high = float(match[1]), float(match[2])
            if low <= high:
                return cls(low, high)
        raise ValueError(
            f'a bound reads ">= a", "> a", "<= a", "< a" or "in [a, b]" with a <= b, got {text!r}'
        )

    def contains(self, value: float) -> bool:
        """Whether a finite value meets the bound; NaN and infinity never do."""
        if not math.isfinite(value):
            return False
        return self.low < value < self.high if self.strict else self.low <= value <= self.high


@dataclass(frozen=True)
class Check:
    """One bound on one metric of the study."""

    metric: str
    bound: str
    aggregate: Aggregate
    baseline_metric: str = ""


@dataclass(frozen=True)
class Claim:
    """What the paper claims, and the checks that judge it."""

    id: str
    kind: ClaimKind
    statement: str
    paper: str
    checks: tuple[Check, ...]
    timed: bool = False
    preset: str = "standard"
    explanation: str = ""


@dataclass(frozen=True)
class Observation:
    """A metric that is drawn, not judged."""

    statement: str
    metric: str


@dataclass(frozen=True)
class OutOfReach:
    """What a small machine cannot test, and why."""

    statement: str
    why: str


@dataclass(frozen=True)
class Paper:
    """Where the method was published."""

    title: str
    venue: str
    arxiv: str = ""
    #: Identifier of the forum where the paper is not on arXiv.
    openreview: str = ""

    @property
    def label(self) -> str:
        """Where to find it, in words."""
        return f"arXiv {self.arxiv}" if self.arxiv else f"OpenReview {self.openreview}"

    @property
    def identifier(self) -> str:
        """The identifier there."""
        return self.arxiv or self.openreview

    @property
    def link(self) -> str:
        """Its address."""
        if self.arxiv:
            return f"https://arxiv.org/abs/{self.arxiv}"
        return f"https://openreview.net/forum?id={self.openreview}"


@dataclass(frozen=True)
class Card:
    """Everything the library knows about a method without importing it.

    ``slug`` and ``package`` come from the card's place in the tree, all else from its file; the schema is
    this class and the ones above.
    """

    slug: str
    package: str
    name: str
    summary: str
    have: tuple[str, ...]
    want: tuple[str, ...]
    use_when: str
    not_when: str
    instead_of: str
    paper: Paper
    api: tuple[str, ...]
    seeds: int
    claims: tuple[Claim, ...]
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    apply: str = ""
    extras: tuple[str, ...] = ()
    study_extras: tuple[str, ...] = ()
    carriers: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    observations: tuple[Observation, ...] = ()
    out_of_reach: tuple[OutOfReach, ...] = ()

    @property
    def module(self) -> str:
        """Dotted name of the method's module."""
        return f"theses.{self.package}.{self.slug.replace('-', '_')}"

    @property
    def study(self) -> str:
        """Dotted name of the study's module."""
        return f"theses.studies.{self.package}.{self.slug.replace('-', '_')}"

    @property
    def imports(self) -> dict[str, list[str]]:
        """Names of the public entries by the module they are imported from, in the card's order."""
        names: dict[str, list[str]] = {}
        for entry in self.api:
            module, _, name = entry.partition(":")
            names.setdefault(module, []).append(name)
        return names

    @property
    def timed(self) -> bool:
        """Whether a claim of the method is about time, so that its units run alone."""
        return any(claim.timed for claim in self.claims)

    def metrics(self, preset: str) -> tuple[str, ...]:
        """Metrics that a unit of a preset has to deliver.

        Parameters
        ----------
        preset : str
            Claims of the ``long`` preset ask nothing of the others.

        Returns
        -------
        tuple of str
            Names, each once, in the card's order.
        """
        wanted: list[str] = []
        for claim in self.claims:
            if claim.preset == "long" and preset != "long":
                continue
            for check in claim.checks:
                wanted += [check.metric, check.baseline_metric]
        wanted += [observation.metric for observation in self.observations]
        return tuple(dict.fromkeys(metric for metric in wanted if metric))


def card_from_dict(data: Mapping[str, Any], *, slug: str, package: str, path: Path) -> Card:
    """Card from the content of its file.

    Parameters
    ----------
    data : mapping
        What ``tomllib`` read.
    slug, package : str
        From the file's place.
    path : pathlib.Path
        The file, for errors.

    Returns
    -------
    Card
        The card, validated.

    Raises
    ------
    CardError
        If a key is unknown, missing, of the wrong type or has a value outside its list.
    """
    for key in ("slug", "package"):
        if key in data:
            raise CardError(f"{path}: {key}: follows from the file's place and is not written down")
    card: Card = _build(Card, {**data, "slug": slug, "package": package}, path, "")
    _check_values(card, path)
    return card


# Resolving annotations costs more than reading the values.
_hints = functools.cache(typing.get_type_hints)


def _build(cls: type, data: Any, path: Path, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise CardError(f"{path}: {where}: expected a table, got {type(data).__name__}")
    hints = _hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    prefix = f"{where}." if where else ""
    for key in data:
        if key not in fields:
            raise CardError(f"{path}: {prefix}{key}: unknown key; known are {', '.join(fields)}")
    values = {}
    for name, field in fields.items():
        if name in data:
            values[name] = _convert(hints[name], data[name], path, prefix + name)
        elif field.default is dataclasses.MISSING:
            raise CardError(f"{path}: {prefix}{name}: missing")
    return cls(**values)


def _convert(hint: Any, value: Any, path: Path, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin is tuple:
        if not isinstance(value, list):
            raise CardError(f"{path}: {where}: expected an array, got {type(value).__name__}")
        (item,) = (arg for arg in typing.get_args(hint) if arg is not Ellipsis)
        return tuple(_convert(item, entry, path, f"{where}[{i}]") for i, entry in enumerate(value))
    if origin is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise CardError(f"{path}: {where}: must be one of {', '.join(choices)}, got {value!r}")
        return value
    if dataclasses.is_dataclass(hint):
        return _build(typing.cast(type, hint), value, path, where)
    if type(value) is not hint:
        raise CardError(f"{path}: {where}: expected {hint.__name__}, got {type(value).__name__} {value!r}")
    if isinstance(value, str) and value != value.strip():
        raise CardError(f"{path}: {where}: has blanks at its ends")
    return value


def _check_values(card: Card, path: Path) -> None:
    def fail(where: str, why: str) -> typing.NoReturn:
        raise CardError(f"{path}: {where}: {why}")

    for where, kinds, known in (("have", card.have, HAVE), ("want", card.want, WANT)):
        if not kinds:
            fail(where, "must not be empty")
        for kind in kinds:
            if kind not in known:
                fail(where, f"unknown kind {kind!r}; known are {', '.join(known)}")
    for where in ("name", "summary", "use_when", "not_when", "instead_of"):
        if not getattr(card, where):
            fail(where, "must not be empty")
    if not card.paper.arxiv and not card.paper.openreview:
        fail("paper", "expected arxiv, or openreview where the paper is not on arXiv")
    if card.paper.arxiv and not re.fullmatch(r"\d{4}\.\d{4,5}", card.paper.arxiv):
        fail("paper.arxiv", f"expected an identifier such as 2501.18901, got {card.paper.arxiv!r}")
    if card.paper.openreview and not re.fullmatch(r"[\w-]{8,12}", card.paper.openreview):
        fail("paper.openreview", f"expected an identifier such as Mcae98J1wq, got {card.paper.openreview!r}")
    if card.seeds < 3:
        fail("seeds", f"must be at least 3, got {card.seeds}")
    if not card.api:
        fail("api", "must not be empty")
    for i, entry in enumerate(card.api):
        if not re.fullmatch(r"theses(\.\w+)+:\w+", entry):
            fail(f"api[{i}]", f"expected theses.package.module:name, got {entry!r}")
    if not card.claims:
        fail("claims", "must not be empty")
    ids = [claim.id for claim in card.claims]
    for i, claim in enumerate(card.claims):
        where = f"claims[{i}]"
        if ids.count(claim.id) > 1:
            fail(f"{where}.id", f"{claim.id!r} is used twice")
        if claim.preset not in PRESETS:
            fail(f"{where}.preset", f"must be one of {', '.join(PRESETS)}, got {claim.preset!r}")
        if not claim.checks:
            fail(f"{where}.checks", "must not be empty")
        for j, check in enumerate(claim.checks):
            try:
                Bound.parse(check.bound)
            except ValueError as error:
                fail(f"{where}.checks[{j}].bound", str(error))


assert set(typing.get_args(ClaimKind)) == set(CLAIM_KINDS)
