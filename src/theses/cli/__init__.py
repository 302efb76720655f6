"""Commands, nothing else: each module parses, calls the library and prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from theses.cli._lazy import MARKUP, LazyGroup

__all__ = ["app", "main"]

_COMMANDS = {
    "find": ("theses.cli.find:find", "Say what you have and want; get a method and its command."),
    "list": ("theses.cli.list_:list_methods", "List the methods, with what became of their claims."),
    "show": (
        "theses.cli.show:show",
        "Show a method: what for, how, and what its claims are worth.",
    ),
    "start": ("theses.cli.start:start", "Write a short script that uses a method."),
    "apply": ("theses.cli.apply:app", "Apply a method to your own files."),
    "reproduce": ("theses.cli.reproduce:reproduce", "Measure the claims of a method again on this machine."),
    "results": ("theses.cli.results:results", "Show or publish what has been measured."),
    "report": (
        "theses.cli.report:report",
        "Render a store or the published results as pages to read offline.",
    ),
    "bench": ("theses.cli.bench:bench", "Time a method beside its peers on this machine."),
    "doctor": ("theses.cli.doctor:doctor", "Check that all a method needs is installed and whole."),
}


class _Commands(LazyGroup):
    def entries(self) -> Mapping[str, tuple[str, str]]:
        return _COMMANDS


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=MARKUP,
    pretty_exceptions_enable=False,
    epilog="A METHOD goes by its slug, name, alias or arXiv identifier.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from theses import __version__

        typer.echo(f"theses {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Methods of ICML 2025 as software, with each paper's claims measured again on your own machine."""


def main() -> None:
    """Run the command line; the entry point of ``theses`` and ``python -m theses``."""
    app(prog_name="theses")
