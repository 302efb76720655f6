"""Groups of commands that are imported when they are called: help and mistakes cost no import."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from theses.cli.errors import friendly

__all__ = ["MARKUP", "LazyGroup", "load"]

#: Help is drawn by Rich on a terminal and plain elsewhere.
MARKUP: Literal["markdown"] | None = "markdown" if sys.stdout is not None and sys.stdout.isatty() else None


class LazyGroup(TyperGroup):
    """Group that knows its commands by name, place and one line of help."""

    def entries(self) -> Mapping[str, tuple[str, str]]:
        """Commands of the group.

        Returns
        -------
        mapping of str to (str, str)
            By name, ``module:function`` and a line for the help.
        """
        raise NotImplementedError

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        return list(self.entries())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in that has the name and the line of help; the command itself comes with the call."""
        entry = self.entries().get(cmd_name)
        return None if entry is None else TyperCommand(cmd_name, help=entry[1], rich_markup_mode=MARKUP)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name, command and its arguments."""
        # What the parent offers after a typing error is what it finds here.
        self.commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load(str(name), self.entries()[str(name)][0]), rest


def load(name: str, target: str) -> Any:
    """Command from where it lives.

    Parameters
    ----------
    name : str
        What it is called.
    target : str
        ``module:function``, or ``module:app`` of a Typer application.

    Returns
    -------
    typer.core.TyperCommand or typer.core.TyperGroup
        The command, with friendly errors.
    """
    module, _, attribute = target.partition(":")
    found: typer.Typer | Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    if isinstance(found, typer.Typer):
        return get_command(found)
    single = typer.Typer(add_completion=False, rich_markup_mode=MARKUP, pretty_exceptions_enable=False)
    single.command(name)(friendly(found))
    return get_command(single)
