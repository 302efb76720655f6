"""What did not hold, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from theses.report.markup import Child, Markup, tag
from theses.report.pages.layout import Site, check_line, claim_badges, document
from theses.report.records import NOT_MEASURED, ClaimRecord, Record
from theses.report.words import VERDICT_MEANINGS, anchor, css_class

__all__ = ["UNHELD", "unheld_page"]

#: Verdicts of this page, the hardest first.
UNHELD: Final = ("fails", "undecided", "unjudged")


def unheld_page(site: Site, records: Sequence[Record]) -> str:
    """Every claim that fails or could not be decided, with its explanation.

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
    claims = [(record, claim) for record in records for claim in record.claims]
    unheld = [(record, claim) for record, claim in claims if claim.verdict in UNHELD]
    waiting = sum(claim.verdict in (NOT_MEASURED, "not run") for _, claim in claims)
    held = sum(claim.verdict == "holds" for _, claim in claims)
    count = f"{len(unheld)} of {len(claims) - waiting} measured claims" if unheld else "No measured claim"
    content = (
        tag("h1", "What did not hold, and why"),
        tag(
            "p",
            f"{count} failed or could not be decided; {held} hold and {waiting} have not been measured. A"
            " claim that fails here may hold at the paper's scale: the kind of evidence and the deviations on"
            " the page of a method say how far the measurement is from it.",
            class_="lead",
        ),
        [_section(verdict, unheld) for verdict in UNHELD],
    )
    return document(site, "unheld.html", "What did not hold, and why", content)


def _section(verdict: str, unheld: Sequence[tuple[Record, ClaimRecord]]) -> Child:
    found = [(record, claim) for record, claim in unheld if claim.verdict == verdict]
    if not found:
        return None
    return tag(
        "section",
        tag("h2", f"{verdict.capitalize()} ({len(found)})", id=verdict),
        tag("p", VERDICT_MEANINGS[verdict]),
        [_item(record, claim) for record, claim in found],
        aria_labelledby=verdict,
    )


def _item(record: Record, claim: ClaimRecord) -> Markup:
    href = f"methods/{record.card.slug}.html#{anchor(claim.id)}"
    notices = record.provenance.notices if record.provenance and claim.verdict == "unjudged" else ()
    missed = [check for check in claim.checks if check.verdict != "holds"]
    return tag(
        "article",
        tag(
            "h3",
            tag("a", f"{record.card.name}, {claim.id}", href=href),
            " ",
            claim_badges(claim),
        ),
        tag("p", claim.statement, class_="statement"),
        tag("p", tag("span", "The paper: ", class_="label"), claim.paper),
        [check_line(check) for check in missed],
        tag(
            "p",
            tag("strong", "Why: "),
            claim.explanation or " ".join(notices) or "no explanation has been written yet.",
            class_="why" if claim.explanation or notices else "why missing",
        ),
        class_=f"claim {css_class(claim.verdict)}",
    )
