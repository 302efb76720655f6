"""``theses list``: the methods, with what became of their claims."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from typing import Annotated

import typer

__all__ = ["check_known", "list_methods"]


def list_methods(
    words: Annotated[list[str] | None, typer.Argument(help="Words that a method's card must know.")] = None,
    package: Annotated[str | None, typer.Option(help="Only this package, such as data or lm.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Only methods with this tag; may be repeated.")
    ] = None,
    have: Annotated[list[str] | None, typer.Option(help="Only methods that take one of these kinds.")] = None,
    want: Annotated[list[str] | None, typer.Option(help="Only methods that give one of these kinds.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the methods, with what became of their claims in the published evidence."""
    from theses.catalogue import HAVE, WANT, cards
    from theses.catalogue.published import count_verdicts, describe_counts
    from theses.catalogue.search import matches_words
    from theses.cli._evidence import snapshot
    from theses.cli.output import emit, print_lines, print_table

    catalogue = cards()
    packages = {".".join(card.package.split(".")[: i + 1]) for card in catalogue for i in range(2)}
    check_known("--package", [package] if package else [], packages)
    check_known("--tag", tag or [], {known for card in catalogue for known in card.tags})
    check_known("--have", have or [], HAVE)
    check_known("--want", want or [], WANT)
    chosen = [
        card
        for card in catalogue
        if (not package or f"{card.package}.".startswith(f"{package}."))
        and set(tag or []) <= set(card.tags)
        and (not have or set(have) & set(card.have))
        and (not want or set(want) & set(card.want))
        and matches_words(card, words or [])
    ]
    evidence = snapshot()
    counts = {
        card.slug: count_verdicts(evidence.get(card.slug, {}).get("claims", {}).values()) for card in chosen
    }
    if as_json:
        answer = [
            {
                "slug": card.slug,
                "name": card.name,
                "package": card.package,
                "summary": card.summary,
                "have": card.have,
                "want": card.want,
                "tags": card.tags,
                "arxiv": card.paper.arxiv,
                "openreview": card.paper.openreview,
                "verdicts": counts[card.slug],
            }
            for card in chosen
        ]
        emit(answer, as_json=True, text="")
    elif chosen:
        rows = [
            (card.slug, card.name, card.package, describe_counts(counts[card.slug]), card.summary)
            for card in chosen
        ]
        print_table(("method", "name", "package", "claims", "what it does"), rows)
    else:
        print_lines([f"none of {len(catalogue)} methods fits; `theses find` looks less strictly"])


def check_known(option: str, values: Sequence[str], known: Collection[str]) -> None:
    """Refuse a value that no card can have, with the nearest that some can.

    Parameters
    ----------
    option : str
        The option, for the error.
    values : sequence of str
        What the user gave.
    known : collection of str
        What there is.

    Raises
    ------
    ValueError
        If a value is not known.
    """
    for value in values:
        if value not in known:
            near = difflib.get_close_matches(value, known, n=3, cutoff=0.5)
            hint = f"nearest: {', '.join(near)}" if near else f"known are {', '.join(sorted(known))}"
            raise ValueError(f"{option}: there is no {value!r}; {hint}")
