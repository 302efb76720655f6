"""The front page: what the reader has and wants, and the methods that fit."""

from __future__ import annotations

from collections.abc import Sequence

from theses.catalogue.kinds import HAVE, WANT
from theses.report.finder import finder_index
from theses.report.markup import Child, Markup, tag
from theses.report.pages.layout import (
    Site,
    code,
    document,
    kinds,
    legend,
    no_script,
    options,
    select,
    total,
    verdict_badge,
    verdict_strip,
)
from theses.report.records import Record
from theses.report.words import start_lines

__all__ = ["front_page"]


def front_page(site: Site, records: Sequence[Record]) -> str:
    """The front page.

    Parameters
    ----------
    site : Site
        The report.
    records : sequence of Record
        All methods.

    Returns
    -------
    str
        HTML. Without scripts it lists all methods; the script ranks them by what is asked for.
    """
    cards = [record.card for record in records]
    form = tag(
        "form",
        select("have", "I have", options(HAVE, (kind for card in cards for kind in card.have))),
        select("want", "I want", options(WANT, (kind for card in cards for kind in card.want))),
        tag(
            "div",
            tag(
                "div",
                tag("label", "In my own words", for_="words"),
                tag(
                    "input",
                    type="search",
                    id="words",
                    name="words",
                    autocomplete="off",
                    spellcheck="false",
                    placeholder="distance between two labelled tables",
                    aria_describedby="found",
                ),
                class_="field",
            ),
            tag("button", "Start again", type="reset"),
            class_="row",
        ),
        role="search",
        id="finder",
        class_="panel",
    )
    content = (
        tag("h1", "What do you have, and what do you want?"),
        tag(
            "p",
            "Methods of ICML 2025 as software, each with the claims of its paper measured again, beside the"
            " method that you would otherwise take. A claim that does not hold is shown like one that does.",
            class_="lead",
        ),
        form,
        no_script("Searching"),
        tag("p", _found(len(cards)), id="found", role="status"),
        tag("ol", [_item(record) for record in records], id="results", class_="results"),
        tag("p", id="outside", class_="note", hidden=True),
        _totals(records),
        _reading(),
    )
    return document(site, "index.html", "Theses", content, index=finder_index(cards))


def _found(n: int) -> str:
    return f"{n} method{'' if n == 1 else 's'}"


def _item(record: Record) -> Markup:
    card = record.card
    start = f"theses apply {card.slug} --help" if card.apply else start_lines(card)[0]
    return tag(
        "li",
        tag("h2", tag("a", card.name, href=f"methods/{card.slug}.html")),
        tag("p", kinds(card, ""), class_="kinds-line"),
        tag("p", card.summary),
        code(start),
        tag("p", verdict_strip(record.claims)),
        tag("p", class_="because", hidden=True),
        id=f"method-{card.slug}",
    )


def _totals(records: Sequence[Record]) -> Markup:
    rows: list[Child] = [
        tag("li", tag("b", str(count)), " ", tag("a", verdict_badge(verdict), href=_filtered(verdict)))
        for verdict, count in total(records).items()
    ]
    return tag(
        "section",
        tag("h2", "What became of the claims", id="totals"),
        tag("p", "Over all methods; identities, which hold by construction, are not counted."),
        tag("ul", rows, class_="totals"),
        tag("p", tag("a", "What did not hold, and why", href="unheld.html")),
        aria_labelledby="totals",
    )


def _filtered(verdict: str) -> str:
    return f"methods.html#verdict={verdict.replace(' ', '%20')}"


def _reading() -> Markup:
    return tag(
        "section",
        tag("h2", "How to read this", id="reading"),
        tag(
            "p",
            "The claims of a paper are written down with bounds before anything is measured. A study then"
            " measures each of them over several seeds, the method and what it is compared with on the same"
            " draws and with the same tuning. Beside a verdict stands the kind of evidence that it rests on.",
        ),
        legend(),
        tag(
            "p",
            "In the charts a dot is one measured value, spread over the lane by seed. The bound is met in the"
            " shaded part of the axis, which ends at the dashed line. The pale bar is the 90 % interval of"
            " the mean, the upright stroke the mean.",
        ),
        aria_labelledby="reading",
    )
