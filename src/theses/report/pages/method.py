"""The page of a method."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from theses.catalogue.card import Card
from theses.report.charts import check_charts
from theses.report.markup import Child, Markup, json_script, tag
from theses.report.pages.layout import (
    Site,
    check_line,
    claim_badges,
    code,
    document,
    kinds,
    scrolled_table,
    verdict_strip,
)
from theses.report.records import (
    NOT_MEASURED,
    CheckRecord,
    ClaimRecord,
    Provenance,
    Record,
    Replicate,
    Watched,
)
from theses.report.words import (
    GLYPHS,
    anchor,
    bound,
    css_class,
    moment,
    number,
    replicate,
    replicates,
    seconds,
    spread,
    start_lines,
)
from theses.resources import install_lines

__all__ = ["method_page"]

#: Above this the values are in the CSV file only.
_MOST_VALUES = 60

#: What a unit records of its machine, in words.
_MACHINE: Final = {
    "theses": "Version of theses",
    "python": "Python",
    "platform": "Platform",
    "processor": "Processor",
    "cores": "Cores",
    "memory_gib": "Memory in GiB",
    "threads": "Threads",
    "load": "Load at the start",
}


def method_page(
    site: Site, record: Record, figures: Mapping[str, Mapping[str, Any]], figure_notes: Sequence[str]
) -> str:
    """Page of a method.

    Parameters
    ----------
    site : Site
        The report.
    record : Record
        The method.
    figures : mapping of str to mapping
        Specifications of the study's charts, by name.
    figure_notes : sequence of str
        Why some could not be drawn.

    Returns
    -------
    str
        HTML.
    """
    card = record.card
    sections: list[tuple[str, str, Child]] = [
        ("start", "How to start", _start(card)),
        ("claims", "Claims", _claims(record)),
        ("speed", "Speed beside peers", _comparisons(record.comparisons)),
        ("figures", "Charts of the study", _figures(figures, figure_notes)),
        ("observations", "Observed, not judged", _observations(record.observations)),
        ("deviations", "Deviations from the paper's setting", _list(record.deviations)),
        ("reach", "Out of reach here", _out_of_reach(record)),
        ("provenance", "Where the numbers come from", _provenance(record)),
        ("again", "Measure it again", _again(card)),
    ]
    shown = [(name, title, content) for name, title, content in sections if content is not None]
    content = (
        tag("h1", card.name),
        tag("p", card.summary, class_="lead"),
        tag(
            "p",
            tag("cite", card.paper.title.rstrip(".")),
            f". {card.paper.venue}, ",
            tag("a", card.paper.label, href=card.paper.link),
            ". Package ",
            tag("code", f"theses.{card.package}"),
            ".",
        ),
        tag("p", kinds(card, "../")),
        tag("p", verdict_strip(record.claims)),
        tag(
            "nav",
            tag("ul", [tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in shown]),
            class_="contents",
            aria_label="On this page",
        ),
        tag(
            "dl",
            tag("div", tag("dt", "Use it when"), tag("dd", card.use_when)),
            tag("div", tag("dt", "Not when"), tag("dd", card.not_when)),
            tag("div", tag("dt", "Instead of"), tag("dd", card.instead_of)),
            class_="uses",
        ),
        [
            tag("section", tag("h2", title, id=name), content, aria_labelledby=name)
            for name, title, content in shown
        ],
    )
    return document(
        site, f"methods/{card.slug}.html", card.name, content, charts=_has_charts(record, figures)
    )


def _has_charts(record: Record, figures: Mapping[str, Any]) -> bool:
    return bool(figures) or any(check.values for claim in record.claims for check in claim.checks)


def _start(card: Card) -> Child:
    needs = install_lines(card.extras, ())
    study = install_lines(card.study_extras, card.carriers)
    return (
        (tag("p", "On your files:"), code(f"theses apply {card.slug} --help")) if card.apply else None,
        tag("p", "In Python:"),
        code("\n".join(start_lines(card))),
        (tag("p", "Beyond the core it needs:"), code("\n".join(needs))) if needs else None,
        (tag("p", "Its study needs:"), code("\n".join(study))) if study else None,
        tag("p", "Also known as ", ", ".join(card.aliases), ".") if card.aliases else None,
    )


def _claims(record: Record) -> Child:
    measured = any(check.values for claim in record.claims for check in claim.checks)
    notices = record.provenance.notices if record.provenance else ()
    links = [
        tag(
            "li",
            tag(
                "a",
                tag("span", GLYPHS[claim.verdict], class_="glyph", aria_hidden="true"),
                claim.id,
                tag("span", f": {claim.verdict}", class_="unseen"),
                href=f"#{anchor(claim.id)}",
                class_=css_class(claim.verdict),
                title=claim.statement,
            ),
        )
        for claim in record.claims
    ]
    return (
        tag("div", [tag("p", notice) for notice in notices], class_="note", role="note") if notices else None,
        tag("ul", links, class_="jump"),
        tag(
            "p",
            tag("a", "All values as CSV", href=f"{record.card.slug}.csv", download=True),
            ". Dots in the charts are single values, the shade is where the bound is met.",
        )
        if measured
        else None,
        [_claim(claim) for claim in record.claims],
    )


def _claim(claim: ClaimRecord) -> Markup:
    several = len(claim.checks) > 1
    wanted = claim.verdict not in ("holds", "not run", NOT_MEASURED)
    return tag(
        "article",
        tag("h3", tag("a", claim.id, href=f"#{anchor(claim.id)}"), " ", claim_badges(claim)),
        tag("p", claim.statement, class_="statement"),
        tag("p", tag("span", "The paper: ", class_="label"), claim.paper),
        tag("p", f"Judged at the preset {claim.preset}.") if claim.preset != "standard" else None,
        [_check(check, several) for check in claim.checks],
        tag(
            "p",
            tag("strong", "Why: "),
            claim.explanation or "no explanation has been written yet.",
            class_="why" if claim.explanation else "why missing",
        )
        if claim.explanation or wanted
        else None,
        class_=f"claim {css_class(claim.verdict)}",
        id=anchor(claim.id),
    )


def _check(check: CheckRecord, several: bool) -> Markup:
    baseline = check.baseline
    return tag(
        "div",
        check_line(check, badge=several),
        tag("p", f"The card now says {bound(check.card_bound)}.", class_="note")
        if check.card_bound
        else None,
        tag(
            "p",
            tag("span", "Baseline ", class_="label"),
            tag("code", check.baseline_metric) if check.baseline_metric else None,
            ": " if check.baseline_metric else None,
            replicates(baseline),
        )
        if baseline
        else None,
        [_figure(spec, words) for words, spec in check_charts(check)],
        _values(check),
        class_="check",
    )


def _figure(spec: Mapping[str, Any], words: str, caption: Child = None) -> Markup:
    return tag(
        "figure",
        tag("figcaption", caption) if caption else None,
        tag("div", class_="plot", role="img", aria_label=words),
        json_script(spec, class_="spec"),
        tag("noscript", tag("p", "The chart needs JavaScript.")),
        class_="chart",
    )


def _values(check: CheckRecord) -> Child:
    if not 0 < len(check.values) + len(check.baseline) <= _MOST_VALUES:
        return None
    sides = [("method", check.values)] + ([("baseline", check.baseline)] if check.baseline else [])
    seeds = list(dict.fromkeys(value.seed for _, values in sides for value in values))
    rows = [
        tag(
            "tr",
            tag("th", "not recorded" if seed is None else str(seed), scope="row"),
            [tag("td", _of_seed(values, seed)) for _, values in sides],
        )
        for seed in seeds
    ]
    return tag(
        "details",
        tag("summary", "Values"),
        scrolled_table(f"Values of {check.metric}", ("Seed", *(side for side, _ in sides)), rows),
    )


def _of_seed(values: Iterable[Replicate], seed: int | None) -> str:
    return ", ".join(replicate(value) for value in values if value.seed == seed)


def _comparisons(rows: Sequence[Mapping[str, Any]]) -> Child:
    if not rows:
        return None
    return scrolled_table(
        "Times beside those of peers",
        ("Peer", "Size", "Ours", "Peer's", "Peer's over ours", "Aim", "Quality"),
        [
            tag(
                "tr",
                tag("th", row["peer"], scope="row"),
                tag("td", row["size"]),
                tag("td", _median(row.get("ours_s"))),
                tag("td", _median(row.get("peer_s"))),
                tag("td", number(row["ratio"])),
                tag("td", bound(row["target"]) if row["target"] else "none set"),
                tag("td", row.get("quality", "")),
            )
            for row in rows
        ],
    )


def _median(times: Sequence[float] | None) -> str:
    return f"{number(statistics.median(times))} s" if times else ""


def _figures(figures: Mapping[str, Mapping[str, Any]], notes: Sequence[str]) -> Child:
    if not figures and not notes:
        return None
    return (
        [tag("p", note, class_="note") for note in notes],
        [
            _figure(spec, f"Chart: {title}", title)
            for title, spec in (
                (spec.get("description") or name.replace("_", " "), spec) for name, spec in figures.items()
            )
        ],
    )


def _observations(observations: Sequence[Watched]) -> Child:
    if not observations:
        return None
    rows = [
        tag(
            "tr",
            tag("th", item.statement, scope="row"),
            tag("td", tag("code", item.metric)),
            tag("td", replicates(item.values) if item.values else NOT_MEASURED),
            tag("td", spread(item.values) if len(item.values) > 1 else ""),
        )
        for item in observations
    ]
    return scrolled_table("Observations", ("What", "Metric", "Measured", "Range"), rows, class_="wordy")


def _list(items: Sequence[str]) -> Child:
    return tag("ul", [tag("li", item) for item in items]) if items else None


def _out_of_reach(record: Record) -> Child:
    if not record.out_of_reach:
        return None
    return tag(
        "dl",
        [[tag("dt", statement), tag("dd", why)] for statement, why in record.out_of_reach],
        class_="reach",
    )


def _provenance(record: Record) -> Child:
    found = record.provenance
    if found is None:
        return tag("p", "Nothing of this method has been measured yet.")
    return (
        tag(
            "details",
            tag("summary", f"Notes of the study ({len(record.notes)})"),
            tag("ul", [tag("li", note) for note in record.notes], class_="notes"),
        )
        if record.notes
        else None,
        tag(
            "dl",
            [tag("div", tag("dt", name), tag("dd", value)) for name, value in _facts(found)],
            class_="facts",
        ),
    )


def _facts(found: Provenance) -> list[tuple[str, Child]]:
    environment = dict(found.environment)
    libraries = environment.pop("libraries", {})
    facts: list[tuple[str, Child]] = [
        ("Measured", moment(found.measured_at)),
        ("Preset", found.preset),
        ("Seeds", ", ".join(map(str, found.seeds))),
        ("Revision", tag("code", found.revision)),
        ("Digest of method, study and bounds", tag("code", found.digest)),
        ("Time of all seeds", seconds(found.wall_s)),
        ("Peak memory", "unknown" if found.peak_mb is None else f"{number(found.peak_mb)} MB"),
    ]
    facts += [(_MACHINE.get(key, str(key)), str(value)) for key, value in environment.items()]
    if isinstance(libraries, Mapping) and libraries:
        facts.append(("Libraries", ", ".join(f"{name} {version}" for name, version in libraries.items())))
    if found.files:
        lines = [tag("li", f"{name}: ", tag("code", str(digest))) for name, digest in found.files.items()]
        facts.append(("Data files", tag("ul", lines)))
    return facts


def _again(card: Card) -> Child:
    lines = [
        f"theses reproduce {card.slug}",
        f"theses reproduce {card.slug} --check docs/evidence.json",
    ]
    return (
        code("\n".join(lines)),
        tag("p", "The second line says whether your machine agrees with the published verdicts."),
    )
