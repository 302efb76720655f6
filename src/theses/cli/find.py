"""``theses find``: from words and files to a method and the command for it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from theses.catalogue import Card
    from theses.catalogue.search import Match
    from theses.cli.output import Line
    from theses.datasets.files import FileHead

__all__ = ["find", "kinds_of_files"]

_SHOWN = 5
_SUFFIXES = (".csv", ".tsv", ".parquet", ".npy", ".npz", ".txt", ".json", ".jsonl", ".xlsx")


def find(
    said: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORDS]... [FILE]...", help="What you want, and your files."),
    ] = None,
    have: Annotated[list[str] | None, typer.Option(help="A kind that the method must take.")] = None,
    want: Annotated[list[str] | None, typer.Option(help="A kind that the method must give.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find a method for what you have and want, and the exact command or import for your files.

    For example: theses find "distance between two labelled tables" jan.csv feb.csv
    """
    from theses.catalogue import HAVE, WANT, cards
    from theses.catalogue.search import THRESHOLD, outside_for, rank
    from theses.cli.list_ import check_known
    from theses.cli.output import CODE, emit, print_lines
    from theses.datasets.files import head

    have, want = have or [], want or []
    check_known("--have", have, HAVE)
    check_known("--want", want, WANT)
    # What exists is a file, and so is what is spelt like one: head says that it is missing.
    files = [Path(item) for item in said or [] if _is_file(item)]
    words = " ".join(item for item in said or [] if not _is_file(item))
    if not (words or files or have or want):
        raise ValueError('say what you want, such as: theses find "distance between two tables" a.csv b.csv')
    heads = [head(path) for path in files]
    catalogue = cards()
    ranked = rank(catalogue, words, have=have, want=want, files=kinds_of_files(heads))
    fitting = [match for match in ranked if match.score >= THRESHOLD][:_SHOWN]
    other = outside_for(words, have=have, want=want)
    if other is None and fitting:
        other = outside_for(want=fitting[0].card.want)
    answer: dict[str, Any] = {
        "methods": [
            {
                "slug": match.card.slug,
                "name": match.card.name,
                "summary": match.card.summary,
                "score": round(match.score, 3),
                "words": match.words,
                "files_are": match.kinds,
                "command": _suggestion(match.card, heads),
                "python": _import(match.card),
            }
            for match in fitting
        ],
        "outside": other
        and {
            "library": other.library,
            "sentence": other.sentence,
            "install": other.install,
            "for": other.kind,
        },
    }
    if as_json:
        emit(answer, as_json=True, text="")
        return
    lines: list[Line] = []
    for number, (match, entry) in enumerate(zip(fitting, answer["methods"], strict=True), start=1):
        lines += [
            [(f"{number}. {match.card.name}", "bold"), (f" ({match.card.slug})", "")],
            f"   {match.card.summary}",
            *_reasons(match),
            [("   ", ""), (entry["command"] or entry["python"], CODE)],
        ]
    if not fitting:
        lines.append(f"None of our {len(catalogue)} methods fits.")
        lines += [f"Closest: {m.card.slug} ({m.card.summary})" for m in ranked[:1]]
    if other is not None:
        lead = "If none of these fits" if fitting else "Use instead"
        lines.append(f"{lead}: {other.library} ({other.install}). {other.sentence}")
    elif not fitting:
        lines.append("Nor do we know an outside library for it; `theses list` shows what there is.")
    if fitting:
        lines.append(f"More on a method, and what its claims are worth: theses show {fitting[0].card.slug}")
    print_lines(lines)


def kinds_of_files(heads: Sequence[FileHead]) -> dict[str, float]:
    """Kinds of ``HAVE`` that files may be, with a degree: what they surely are has 1.

    Parameters
    ----------
    heads : sequence of FileHead
        The files.

    Returns
    -------
    dict of str to float
        Empty if there are no files.
    """
    kinds: dict[str, float] = {}

    def may_be(kind: str, degree: float) -> None:
        kinds[kind] = max(degree, kinds.get(kind, 0.0))

    tables = [found for found in heads if found.kind in ("table", "array") and found.columns]
    for found in heads:
        if found.kind == "lines":
            may_be("strings", 1.0)
            may_be("text", 0.8)
        elif found.n_dims is not None and found.n_dims > 2:
            may_be("images", 1.0)
        elif len(found.columns) == 1 and found.numeric[0]:
            may_be("losses", 1.0)
            may_be("time series", 0.8)
            may_be("table", 0.5)
            may_be("points", 0.5)
        elif found.columns:
            may_be("table", 1.0)
            may_be("points", 1.0 if all(found.numeric) else 0.6)
            may_be("losses", 0.4 if any(found.numeric) else 0.0)
            may_be("time series", 0.4 if any(found.numeric) else 0.0)
    if len(tables) > 1:
        # The same columns ask to be held against each other; each table alone is the lesser reading.
        same = all(set(found.columns) == set(tables[0].columns) for found in tables)
        if same:
            kinds = {kind: 0.8 * degree for kind, degree in kinds.items()}
        kinds["two tables"] = 1.0 if same else 0.5
    return {kind: degree for kind, degree in kinds.items() if degree}


def _is_file(item: str) -> bool:
    # A question may be longer than the name of a file can be, and a word may be that of a folder.
    if len(item) < 256 and ("/" in item or "." in item) and Path(item).exists():
        return True
    return Path(item).suffix.lower() in _SUFFIXES and " " not in item


def _suggestion(card: Card, heads: Sequence[FileHead]) -> str | None:
    """The command for these files, if the method has one that takes them."""
    if not card.apply:
        return None
    try:
        suggest = importlib.import_module(card.apply).suggest
    except ImportError:
        return None  # a search must not fail over one of the methods that it found
    found: str | None = suggest(heads) if heads else None
    return found or (None if heads else f"theses apply {card.slug} --help")


def _import(card: Card) -> str:
    from theses.cli._code import import_line

    return import_line(card)


def _reasons(match: Match) -> list[Line]:
    reasons = []
    if match.words:
        reasons.append(f"you said {', '.join(match.words)}")
    if match.kinds:
        reasons.append(f"your files may be {', '.join(match.kinds)}")
    return [[(f"   because {'; '.join(reasons)}", "dim")]] if reasons else []
