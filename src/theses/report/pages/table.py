"""The table of all methods, with filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from theses.catalogue.kinds import CLAIM_KINDS, HAVE, WANT
from theses.report.markup import Markup, tag
from theses.report.pages.layout import (
    Site,
    document,
    no_script,
    options,
    scrolled_table,
    select,
    verdict_strip,
)
from theses.report.records import Record
from theses.report.words import GLYPHS

__all__ = ["table_page"]

#: Between the values of a row's attribute; kinds hold blanks.
_SEPARATOR = "|"


def table_page(site: Site, records: Sequence[Record]) -> str:
    """Table of all methods.

    Parameters
    ----------
    site : Site
        The report.
    records : sequence of Record
        All methods.

    Returns
    -------
    str
        HTML.
    """
    cards = [record.card for record in records]
    packages = sorted({package for card in cards for package in _packages(card.package)})
    seen = {claim.verdict for record in records for claim in record.claims}
    form = tag(
        "form",
        select("have", "I have", options(HAVE, (kind for card in cards for kind in card.have))),
        select("want", "I want", options(WANT, (kind for card in cards for kind in card.want))),
        select("package", "Package", [(package, package) for package in packages]),
        select(
            "verdict",
            "Verdict",
            [(verdict, f"{sign} {verdict}") for verdict, sign in GLYPHS.items() if verdict in seen],
        ),
        tag("button", "Show all", type="reset"),
        id="filters",
        class_="panel",
        aria_label="Filters",
    )
    content = (
        tag("h1", "All methods"),
        form,
        no_script("Filtering"),
        tag("p", f"{len(cards)} of {len(cards)} methods", id="shown", role="status"),
        scrolled_table(
            "Methods",
            ("Method", "Package", "I have", "I want", "Its claims", "Kinds of evidence"),
            [_row(record) for record in records],
            class_="methods",
            id_="methods",
        ),
        tag(
            "p",
            "Tiles are claims; hollow ones are identities, which hold by construction and are not counted. ",
            tag("a", "What verdicts and kinds mean", href="index.html#reading"),
        ),
    )
    return document(site, "methods.html", "All methods", content)


def _packages(package: str) -> list[str]:
    parts = package.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _row(record: Record) -> Markup:
    card = record.card
    counts = Counter(claim.kind for claim in record.claims)
    by_kind = {kind: counts[kind] for kind in CLAIM_KINDS if counts[kind]}
    return tag(
        "tr",
        tag(
            "th",
            tag("a", card.name, href=f"methods/{card.slug}.html"),
            tag("span", card.summary, class_="summary"),
            scope="row",
        ),
        tag("td", card.package),
        tag("td", ", ".join(card.have)),
        tag("td", ", ".join(card.want)),
        tag("td", verdict_strip(record.claims)),
        tag("td", ", ".join(f"{n}\N{NO-BREAK SPACE}{kind}" for kind, n in by_kind.items())),
        data_have=_SEPARATOR.join(card.have),
        data_want=_SEPARATOR.join(card.want),
        data_package=_SEPARATOR.join(_packages(card.package)),
        data_verdict=_SEPARATOR.join(dict.fromkeys(claim.verdict for claim in record.claims)),
    )
