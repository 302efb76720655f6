"""Starts: for each method one short script that runs as it stands, or on files of the user's.

A start is a Python script, ``starts/PACKAGE/MODULE.py``, on data that the core brings along. Where data come
in, it also says how files of the user's would:

- a line that ends in ``# without KIND`` is left out for files of that kind;
- a comment ``# with KIND: CODE`` becomes ``CODE`` for them, and is left out otherwise; kinds are ``files``
  (any), ``lines`` of text, a ``table`` (arrays too), and of tables those of which one ``column`` or several
  ``columns`` are used;
- a string ``"<NAME>"`` in such code, quotes included, becomes what the parameter ``NAME`` of the method's
  apply command is for the files, as a Python literal: no path or column name is ever pasted into code.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from theses.catalogue.card import Card

__all__ = ["KINDS", "fill", "kinds_of", "start_path"]

#: What files can be to a start.
KINDS: Final = ("files", "lines", "table", "column", "columns")

_ROOT = Path(__file__).parent / "starts"
_WITHOUT = re.compile(r"(.+)  # without (\w+)")
_WITH = re.compile(r"# with (\w+): (.+)")
_HOLE = re.compile(r'"<(\w+)>"')


def start_path(card: Card) -> Path:
    """File of a method's start.

    Parameters
    ----------
    card : Card
        The method.

    Returns
    -------
    pathlib.Path
        Where it is, or is missed.
    """
    return _ROOT.joinpath(*card.package.split("."), card.slug.replace("-", "_") + ".py")


def kinds_of(template: str) -> tuple[str, ...]:
    """Kinds of files that a start makes a difference for.

    Parameters
    ----------
    template : str
        The start.

    Returns
    -------
    tuple of str
        Each once, in the order of the script; those of ``KINDS`` if there is no mistake in it.

    Examples
    --------
    >>> kinds_of('x = 1  # without files\\n# with table: x = read_numbers("<file>")\\n')
    ('files', 'table')
    """
    kinds = (_condition(line)[1] for line in template.splitlines())
    return tuple(dict.fromkeys(kind for kind in kinds if kind))


def fill(template: str, kinds: Collection[str] = (), values: Mapping[str, Any] | None = None) -> str:
    """Script made from a start.

    Parameters
    ----------
    template : str
        The start.
    kinds : collection of str, default=()
        What the user's files are; empty without files.
    values : mapping of str to object, optional
        What stands for each ``"<NAME>"``: strings, paths, numbers.

    Returns
    -------
    str
        The script.

    Raises
    ------
    ValueError
        If a value is missing.

    Examples
    --------
    >>> template = 'x = 1  # without files\\n# with lines: x = read_lines("<file>")\\nprint(x)\\n'
    >>> print(fill(template), end="")
    x = 1
    print(x)
    >>> print(fill(template, ["files", "lines"], {"file": 'it"s.txt'}), end="")
    x = read_lines('it"s.txt')
    print(x)
    """
    values = values or {}

    def literal(hole: re.Match[str]) -> str:
        if values.get(hole[1]) is None:
            raise ValueError(f"values must have {hole[1]!r}, got {', '.join(values) or 'none'}")
        return _literal(values[hole[1]])

    lines: list[str] = []
    skipped = False
    for line in template.splitlines():
        code, kind, wanted = _condition(line)
        if kind and (kind in kinds) is not wanted:
            skipped = True
            continue
        # What is left out between two blank lines leaves one.
        if code or not (skipped and lines and not lines[-1]):
            lines.append(_HOLE.sub(literal, code) if wanted else code)
        skipped = False
    return "\n".join(lines) + "\n"


def _condition(line: str) -> tuple[str, str, bool]:
    """Code of a line, the kind of files that decides over it, and whether it stays with them or without."""
    if match := _WITH.fullmatch(line):
        return match[2], match[1], True
    if match := _WITHOUT.fullmatch(line):
        return match[1], match[2], False
    return line, "", False


def _literal(value: Any) -> str:
    if not isinstance(value, (str, Path)):
        return repr(value)
    text = repr(str(value))
    # Double quotes are what formatters want; repr takes them only for a text with single ones.
    return text if '"' in text else f'"{text[1:-1]}"'
