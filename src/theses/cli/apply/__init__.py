"""``theses apply METHOD``: one sub-command for each card that names one, imported when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from theses.cli._lazy import MARKUP, LazyGroup, load
from theses.cli.errors import friendly

__all__ = ["app"]


class _Methods(LazyGroup):
    @friendly
    def entries(self) -> Mapping[str, tuple[str, str]]:
        from theses.catalogue import cards

        return {card.slug: (f"{card.apply}:apply", card.summary) for card in cards() if card.apply}

    @friendly
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        from theses.catalogue import lookup
        from theses.cli._code import import_line

        if args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        card = lookup(args[0])
        if not card.apply:
            raise ValueError(
                f"{card.slug} is used from Python: {import_line(card)} (see theses show {card.slug})"
            )
        return card.slug, load(card.slug, f"{card.apply}:apply"), args[1:]


app = typer.Typer(
    cls=_Methods,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=MARKUP,
    pretty_exceptions_enable=False,
    subcommand_metavar="METHOD [ARGS]...",
)


@app.callback()
def _root() -> None:
    """Apply a method to your own files: files in, answer out."""
