"""What all pages share: head, navigation, foot, and the small parts that occur on several of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import theses
from theses.catalogue.card import Card
from theses.catalogue.kinds import CLAIM_KINDS, HAVE, WANT
from theses.report.markup import Child, Markup, json_script, page, tag
from theses.report.records import CheckRecord, ClaimRecord, Record, tally
from theses.report.words import (
    AGGREGATES,
    GLYPHS,
    VERDICT_MEANINGS,
    bound,
    counts,
    css_class,
    measured,
)

__all__ = [
    "Site",
    "check_line",
    "claim_badges",
    "code",
    "document",
    "kinds",
    "legend",
    "no_script",
    "options",
    "scrolled_table",
    "select",
    "total",
    "verdict_badge",
    "verdict_strip",
]

#: Nothing may be loaded from elsewhere, not even by a specification that asks for it. A page opened as a file
#: has no origin that 'self' could mean in every browser, hence ``file:``.
_POLICY: Final = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file: 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)

_NAVIGATION: Final = (
    ("index.html", "Find a method"),
    ("methods.html", "All methods"),
    ("unheld.html", "What did not hold"),
    ("index.html#reading", "How to read this"),
)


@dataclass(frozen=True)
class Site:
    """What all pages of one report say alike.

    Parameters
    ----------
    source : str
        Where the measurements come from, in words.
    """

    source: str


def document(
    site: Site, address: str, title: str, content: Child, *, charts: bool = False, index: object = None
) -> str:
    """Whole page.

    Parameters
    ----------
    site : Site
        The report.
    address : str
        Of the page, relative to the root of the report.
    title : str
        Of the page.
    content : Child
        The main part.
    charts : bool, default=False
        Whether the page has charts and needs Vega.
    index : object, default=None
        Data for the page's script.

    Returns
    -------
    str
        HTML.
    """
    root = "../" * address.count("/")
    name = "Theses" if title == "Theses" else f"{title} · Theses"
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", name),
        # An empty picture of the page's own, so that no browser goes looking for one.
        tag("link", rel="icon", href="data:,"),
        tag("link", rel="stylesheet", href=f"{root}assets/theses.css"),
        tag("script", src=f"{root}assets/vega.js", defer=True) if charts else None,
        tag("script", src=f"{root}assets/theses.js", defer=True),
    )
    links = [
        tag(
            "li",
            tag("a", text, href=root + target, aria_current="page" if target == address else None),
        )
        for target, text in _NAVIGATION
    ]
    body = (
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag(
            "header",
            tag("a", "Theses", href=f"{root}index.html", class_="brand"),
            tag("nav", tag("ul", links), aria_label="Pages"),
            class_="site",
        ),
        tag("main", content, id="content", tabindex="-1"),
        tag(
            "footer",
            tag("p", f"Written by theses {theses.__version__} from {site.source}."),
            class_="site",
        ),
        json_script(index, id="index") if index is not None else None,
    )
    return page(head, body)


def verdict_badge(verdict: str) -> Markup:
    """Verdict with its sign and colour."""
    return tag(
        "span",
        tag("span", GLYPHS[verdict], aria_hidden="true", class_="glyph"),
        verdict,
        class_=f"verdict {css_class(verdict)}",
        title=VERDICT_MEANINGS[verdict],
    )


def claim_badges(claim: ClaimRecord) -> Markup:
    """Verdict, kind of evidence, and whether a claim is about time."""
    return tag(
        "span",
        verdict_badge(claim.verdict),
        tag("span", claim.kind, class_="kind", title=CLAIM_KINDS[claim.kind]),
        tag("span", "timed", class_="kind", title="judged by wall times") if claim.timed else None,
        class_="badges",
    )


def verdict_strip(claims: Sequence[ClaimRecord]) -> Markup:
    """One small tile a claim, identities hollow, with the counts in words beside them.

    Parameters
    ----------
    claims : sequence of ClaimRecord
        Claims of a method.

    Returns
    -------
    Markup
        Tiles, which screen readers skip, and words.
    """
    order = list(GLYPHS)
    tiles = [
        tag(
            "i",
            GLYPHS[claim.verdict],
            class_=css_class(claim.verdict) + (" hollow" if claim.kind == "identity" else ""),
            title=f"{claim.id}: {claim.verdict} ({claim.kind})",
        )
        for claim in sorted(claims, key=lambda claim: order.index(claim.verdict))
    ]
    return tag(
        "span",
        tag("span", tiles, class_="tiles", aria_hidden="true"),
        tag("span", counts(tally(claims)), class_="counts"),
        class_="strip",
    )


def check_line(check: CheckRecord, *, badge: bool = False) -> Markup:
    """Metric, bound and what was measured, with the verdict of the check if ``badge`` is set."""
    return tag(
        "p",
        tag("code", check.metric),
        " ",
        tag("span", bound(check.bound), class_="bound"),
        f" ({AGGREGATES[check.aggregate]}): ",
        measured(check),
        (" ", verdict_badge(check.verdict)) if badge else None,
        class_="measured",
    )


def kinds(card: Card, root: str) -> Markup:
    """What a method takes and gives, each a link to the methods that do so too."""

    def links(side: str, values: Iterable[str]) -> list[Child]:
        found: list[Child] = []
        for value in values:
            meaning = (HAVE if side == "have" else WANT)[value]
            href = f"{root}index.html#{side}={quote(value)}"
            found += [" or " if found else None, tag("a", value, href=href, title=meaning)]
        return found

    return tag(
        "span",
        tag("span", "You have ", class_="label"),
        links("have", card.have),
        tag("span", ", you want ", class_="label"),
        links("want", card.want),
        class_="kinds",
    )


def code(text: str) -> Markup:
    """Lines to copy; the page's script puts a button beside them."""
    return tag("div", tag("pre", tag("code", text), tabindex="0"), class_="copy")


def select(name: str, label: str, entries: Iterable[tuple[str, str]]) -> Markup:
    """Labelled list to choose from, with nothing chosen at first.

    Parameters
    ----------
    name : str
        Of the control.
    label : str
        What is chosen.
    entries : iterable of (str, str)
        Value and text of each.

    Returns
    -------
    Markup
        Label and control.
    """
    return tag(
        "div",
        tag("label", label, for_=name),
        tag(
            "select",
            "total",
            tag("option", "anything", value=""),
            [tag("option", text, value=value) for value, text in entries],
            id=name,
            name=name,
        ),
        class_="field",
    )


def options(meanings: Mapping[str, str], used: Iterable[str]) -> list[tuple[str, str]]:
    """Kinds that some method has, with their meaning, for :func:`select`."""
    found = set(used)
    return [(kind, f"{kind}: {meaning}") for kind, meaning in meanings.items() if kind in found]


def scrolled_table(
    caption: str, headers: Sequence[str], rows: Iterable[Markup], *, class_: str = "", id_: str | None = None
) -> Markup:
    """Table that scrolls inside itself where the page is narrow.

    Parameters
    ----------
    caption : str
        What it shows; read aloud, not seen.
    headers : sequence of str
        Heads of the columns.
    rows : iterable of Markup
        Rows with their cells.
    class_ : str, default=""
        Class of the table.
    id_ : str or None, default=None
        Name of the table.

    Returns
    -------
    Markup
        The table in a region that the keyboard can reach.
    """
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="unseen"),
            tag("thead", tag("tr", [tag("th", header, scope="col") for header in headers])),
            tag("tbody", rows),
            class_=class_ or None,
            id=id_,
        ),
        class_="scroll",
        role="region",
        aria_label=caption,
        tabindex="0",
    )


def no_script(what: str) -> Markup:
    """Note where a form would do nothing."""
    return tag("noscript", tag("p", f"{what} needs JavaScript; everything is shown below.", class_="note"))


def legend() -> Markup:
    """What verdicts and kinds of evidence mean."""
    return tag(
        "div",
        tag(
            "dl",
            [
                [tag("dt", verdict_badge(verdict)), tag("dd", meaning)]
                for verdict, meaning in VERDICT_MEANINGS.items()
            ],
            class_="legend",
        ),
        tag(
            "dl",
            [
                [
                    tag("dt", tag("span", kind, class_="kind")),
                    tag("dd", meaning[0].upper() + meaning[1:] + "."),
                ]
                for kind, meaning in CLAIM_KINDS.items()
            ],
            class_="legend",
        ),
        class_="legends",
    )


def total(records: Iterable[Record]) -> dict[str, int]:
    """Verdicts of all methods together."""
    return tally(claim for record in records for claim in record.claims)
