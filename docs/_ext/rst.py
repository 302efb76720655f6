"""reStructuredText built from functions: what comes from a card is text and never markup."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

__all__ = [
    "block",
    "bullets",
    "code",
    "definitions",
    "directive",
    "escape",
    "indent",
    "join",
    "literal",
    "section",
    "table",
]

_MARKUP = re.compile(r"([\\*`_|<>\[\]:@])")
#: What would make a paragraph a list, a comment or another block.
_BLOCK = re.compile(r"[^\w\\(]|\(?\w{1,6}[.)]\s")
_QUOTED = re.compile(r"`([^`\n]+)`")


def escape(text: str) -> str:
    r"""Text as it stands, of one paragraph; between backticks it is code, as on cards.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    str
        The same for docutils.

    Examples
    --------
    >>> escape("a_b is *not* |c|")
    'a\\_b is \\*not\\* \\|c\\|'
    >>> escape("the preset `paper`")
    'the preset ``paper``\\ '
    >>> escape("1. no list")
    '\\ 1. no list'
    """
    parts = _QUOTED.split(" ".join(text.split()))
    # Every second part stood between backticks.
    escaped = [_plain(part) if i % 2 == 0 else literal(part) for i, part in enumerate(parts)]
    found = escaped[0]
    for code_part, plain_part in zip(escaped[1::2], escaped[2::2], strict=True):
        left = "" if not found or found[-1].isspace() else "\\ "
        right = "" if plain_part[:1].isspace() else "\\ "
        found += f"{left}{code_part}{right}{plain_part}"
    return f"\\ {found}" if _BLOCK.match(found) and not found.startswith("``") else found


def _plain(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)


def literal(text: str) -> str:
    """Inline code; a backtick in it becomes a prime, since there is no way to write one."""
    text = " ".join(text.split()).replace("`", "′")
    return f"``{text}``" if text else ""


def indent(text: str, by: int = 3) -> str:
    """Text moved to the right."""
    return textwrap.indent(text, " " * by)


def join(*blocks: str) -> str:
    """Blocks with a blank line between, those without content left out."""
    return "\n\n".join(block.strip("\n") for block in blocks if block.strip())


def section(title: str, sign: str, *blocks: str) -> str:
    """Section with a heading, nothing if it has no content.

    Parameters
    ----------
    title : str
        Its heading, as text.
    sign : str
        Character of the line below it.
    *blocks : str
        Its content.

    Returns
    -------
    str
        The section.
    """
    content = join(*blocks)
    heading = escape(title)
    return f"{heading}\n{sign * max(4, 2 * len(heading))}\n\n{content}" if content else ""


def directive(kind: str, argument: str = "", /, *content: str, **options: str) -> str:
    """Directive with options and content."""
    lines = [f".. {kind}::" + (f" {argument}" if argument else "")]
    lines += [
        f"   :{key.replace('_', '-')}:" + (f" {value}" if value else "") for key, value in options.items()
    ]
    inside = join(*content)
    return "\n".join(lines) + (f"\n\n{indent(inside)}" if inside else "")


def code(text: str, language: str = "python") -> str:
    """Lines of code, nothing for none."""
    if not text.strip():
        return ""
    return f".. code-block:: {language}\n\n{indent(text.strip(chr(10)))}"


def block(class_: str, *content: str, name: str = "") -> str:
    """Content in a ``div`` with a class, and a name to link to."""
    return directive("container", class_, *content, **({"name": name} if name else {}))


def bullets(items: Iterable[str]) -> str:
    """List; items are markup."""
    return "\n".join(f"* {indent(item, 2).strip()}" for item in items)


def definitions(items: Iterable[tuple[str, str]]) -> str:
    """Terms with their meaning; both are markup."""
    return "\n\n".join(f"{term}\n{indent(meaning)}" for term, meaning in items)


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, widths: str = "auto", class_: str = ""
) -> str:
    """Table of markup, nothing without rows."""
    lines = []
    for row in (headers, *rows):
        for i, cell in enumerate(row):
            lines.append(("* - " if i == 0 else "  - ") + indent(cell, 4).strip())
    if len(lines) == len(headers):
        return ""
    options = {"header_rows": "1", "widths": widths} | ({"class": class_} if class_ else {})
    return directive("list-table", "", "\n".join(lines), **options)
