"""What commands print: an answer as text or as JSON on standard output, complaints on standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

import typer

__all__ = ["CODE", "VERDICT_STYLES", "Line", "emit", "fail", "plain", "print_lines", "print_table", "warn"]

#: A line of text, or its parts with a Rich style each.
Line = str | Sequence[tuple[str, str]]

#: Style of what is to be copied: a line that ends in it is never broken.
CODE: Final = "green"

VERDICT_STYLES: Final = {"holds": "green", "fails": "red", "undecided": "yellow", "unjudged": "magenta"}


def emit(answer: Mapping[str, Any] | list[Any], *, as_json: bool, text: str) -> None:
    """Print an answer once: as JSON for programs, or as text for people.

    Parameters
    ----------
    answer : mapping or list
        What ``--json`` prints; arrays, NumPy scalars and paths are written as lists, numbers and strings, NaN
        and infinity as null.
    as_json : bool
        Which of the two.
    text : str
        What is printed otherwise, as it is.
    """
    typer.echo(json.dumps(plain(answer), indent=2, ensure_ascii=False, allow_nan=False) if as_json else text)


def fail(message: object) -> NoReturn:
    """End the command with a message on standard error and exit status 2.

    Parameters
    ----------
    message : object
        What is wrong and what to do; ``error:`` is put before it.

    Raises
    ------
    typer.Exit
        Always.
    """
    sys.stdout.flush()
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(2)


def warn(message: object) -> None:
    """Say on standard error what the user should know; the command goes on.

    Parameters
    ----------
    message : object
        What it is.
    """
    typer.echo(f"warning: {message}", err=True)


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines: wrapped and coloured on a terminal, as they are elsewhere.

    Parameters
    ----------
    lines : iterable of Line
        Wrapped lines keep the indentation of their first.
    """
    parts = [[(line, "")] if isinstance(line, str) else list(line) for line in lines]
    if not sys.stdout.isatty():
        for line in parts:
            typer.echo("".join(text for text, _ in line).rstrip())
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    for line in parts:
        text = Text.assemble(*line)
        indent = len(text.plain) - len(text.plain.lstrip())
        if indent == len(text) or line[-1][1] == CODE:
            console.print(text, soft_wrap=True)
        else:
            console.print(Padding(text[indent:], (0, 0, 0, indent), expand=False))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: ruled on a terminal, aligned plain lines without a head elsewhere.

    Parameters
    ----------
    headers : sequence of str
        Names of the columns.
    rows : sequence of sequence of str
        Cells.
    """
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            typer.echo("  ".join(cells).rstrip())
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*headers, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)


def plain(value: Any) -> Any:
    """Value made of what JSON knows.

    Parameters
    ----------
    value : object
        Nested at will.

    Returns
    -------
    object
        Dicts with string keys, lists, strings, finite numbers, booleans and None.

    Examples
    --------
    >>> plain({"bounds": (0.5, float("inf"))})
    {'bounds': [0.5, None]}
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)
