"""What to use when none of our methods fits: one well-kept library for each kind of thing wanted or had."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from theses.catalogue.kinds import HAVE, WANT

__all__ = ["Outside", "outside"]


@dataclass(frozen=True)
class Outside:
    """A library of others.

    Parameters
    ----------
    kind : str
        What it is good for, a key of ``WANT`` or ``HAVE``.
    side : {"want", "have"}
        Which of the two.
    library : str
        What it is called.
    install : str
        The line that installs it.
    sentence : str
        What it does.
    words : tuple of str
        What people say who want it.
    """

    kind: str
    side: Literal["want", "have"]
    library: str
    install: str
    sentence: str
    words: tuple[str, ...]


@cache
def outside() -> Mapping[tuple[str, str], Outside]:
    """The library for each kind.

    Returns
    -------
    mapping of (str, str) to Outside
        By side and kind; every kind of ``WANT`` and ``HAVE`` is there.

    Examples
    --------
    >>> outside()["want", "clusters"].library
    'scikit-learn'
    """
    data = tomllib.loads(Path(__file__).with_name("outside.toml").read_text(encoding="utf-8"))
    sides: tuple[tuple[Literal["want", "have"], Mapping[str, str]], ...] = (("want", WANT), ("have", HAVE))
    found: dict[tuple[str, str], Outside] = {}
    for side, kinds in sides:
        for kind in kinds:
            entry = data[side][kind]
            words = tuple(entry["words"])
            found[side, kind] = Outside(
                kind, side, entry["library"], entry["install"], entry["sentence"], words
            )
    return found
