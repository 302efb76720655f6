"""The table of methods in the README, made from the cards and the published evidence.

``python -m theses.catalogue.readme`` in the root of a checkout brings it up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from theses.catalogue.card import Card
from theses.catalogue.published import count_verdicts, describe_counts, published
from theses.catalogue.reader import cards

__all__ = ["main", "methods_table", "with_table"]

_BEGIN, _END = "<!-- methods -->", "<!-- /methods -->"


def methods_table(catalogue: Sequence[Card], evidence: Mapping[str, Any]) -> str:
    """Markdown table with one row a method.

    Parameters
    ----------
    catalogue : sequence of Card
        The methods, in the order of the rows.
    evidence : mapping
        Entries of the published snapshot, by slug.

    Returns
    -------
    str
        The table, without a line break at its end.
    """
    rows = [
        ("I have", "I want", "Method", "What it does", "Start with", "Its claims, measured here"),
        ("---",) * 6,
    ]
    for card in catalogue:
        module, _, name = card.api[0].partition(":")
        start = f"theses apply {card.slug} --help" if card.apply else f"from {module} import {name}"
        claims = evidence.get(card.slug, {}).get("claims", {}).values()
        rows.append(
            (
                " or ".join(card.have),
                " or ".join(card.want),
                f"{card.name} ([{card.paper.identifier}]({card.paper.link}))",
                card.summary,
                f"`{start}`",
                describe_counts(count_verdicts(claims)),
            )
        )
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows)


def with_table(text: str, table: str) -> str:
    """README with a table between its two markers.

    Parameters
    ----------
    text : str
        The README.
    table : str
        What is to stand between ``<!-- methods -->`` and ``<!-- /methods -->``.

    Returns
    -------
    str
        The README, changed there alone.

    Raises
    ------
    ValueError
        If the markers are not there once each, in this order.

    Examples
    --------
    >>> print(with_table("<!-- methods -->old<!-- /methods -->", "new"))
    <!-- methods -->
    new
    <!-- /methods -->
    """
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end or _BEGIN in rest or _END in after or _END in before:
        raise ValueError(f"README: expected {_BEGIN} and {_END} once each, in this order")
    return f"{before}{_BEGIN}\n{table}\n{_END}{after}"


def main(root: Path = Path()) -> None:
    """Bring the table up to date.

    Parameters
    ----------
    root : pathlib.Path, default=Path()
        Root of the checkout, with ``README.md`` and ``docs/evidence.json``.
    """
    readme = root / "README.md"
    evidence = published(root / "docs" / "evidence.json")
    text = readme.read_text(encoding="utf-8")
    readme.write_text(with_table(text, methods_table(cards(), evidence)), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
