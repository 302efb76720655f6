"""``theses start METHOD``: a short script to begin with, on the user's files or on data that are built in."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from theses.catalogue import Card

__all__ = ["reading", "start"]


def start(
    method: Annotated[str, typer.Argument(help="Slug, name, alias or arXiv identifier.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Your files; without them, a small data set is built in."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the script here, not to standard output.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
) -> None:
    """Write a short script that uses a method, ready to run and to change.

    For example: theses start s-otdd jan.csv feb.csv -o months.py
    """
    from theses.catalogue import lookup
    from theses.catalogue.start import fill, start_path
    from theses.cli._code import import_line
    from theses.datasets.files import write_text

    card = lookup(method)
    path = start_path(card)
    if not path.is_file():
        raise ValueError(f"{card.slug} has no script to start from; begin with: {import_line(card)}")
    if output is not None and output.exists() and not force:
        raise ValueError(f"{output}: exists; --force writes over it")
    kinds, values = reading(card, files) if files else ((), {})
    script = fill(path.read_text(encoding="utf-8"), kinds, values)
    if output is None:
        typer.echo(script, nl=False)
    else:
        write_text(output, script)
        typer.echo(f"written: {output}\nrun it: {shlex.join(['python', str(output)])}")


def reading(card: Card, files: Sequence[Path]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """How a method's command would read files.

    Parameters
    ----------
    card : Card
        The method.
    files : sequence of pathlib.Path
        The files, at least one.

    Returns
    -------
    kinds : tuple of str
        What they are, as :mod:`theses.catalogue.start` says it.
    values : dict
        Parameters of the method's apply command, as it suggests itself for the files; ``column`` also where a
        table has only one.

    Raises
    ------
    ValueError
        If the method has no such command, or it does not suggest itself.
    """
    from theses.cli._lazy import load
    from theses.datasets.files import head

    if not card.apply:
        raise ValueError(f"{card.slug} has no command for files: start it without, and put in your own data")
    heads = [head(path) for path in files]
    command: str | None = importlib.import_module(card.apply).suggest(heads)
    if command is None:
        raise ValueError(
            f"{card.slug} cannot tell how to read {', '.join(map(str, files))} (theses apply {card.slug} "
            "--help says what it takes): start it without files, and put in your own data"
        )
    arguments = shlex.split(command)[3:]
    values: dict[str, Any] = load(card.slug, f"{card.apply}:apply").make_context(card.slug, arguments).params
    first = heads[0]
    if first.kind == "lines":
        return ("files", "lines"), values
    column = values.get("column") or (first.columns[0] if len(first.columns) == 1 else None)
    return ("files", "table", "columns" if column is None else "column"), {**values, "column": column}
