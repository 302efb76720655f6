"""Pages made of cards, published verdicts and the command line, each by a function that returns its text."""

from __future__ import annotations

import pkgutil
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from docutils.nodes import make_id  # type: ignore[import-untyped]
from sphinx.application import Sphinx

from docs._ext.rst import block, bullets, code, definitions, directive, escape, join, literal, section, table
from theses.catalogue import HAVE, WANT, Card, cards
from theses.catalogue.outside import outside
from theses.catalogue.start import fill, start_path
from theses.cli import _COMMANDS
from theses.cli._lazy import load
from theses.report import SnapshotSource
from theses.report.records import NOT_MEASURED, CheckRecord, ClaimRecord, Record, tally
from theses.report.words import AGGREGATES, bound, counts, measured, moment, number, replicates, seconds
from theses.resources import install_lines

__all__ = [
    "ROOMS",
    "all_pages",
    "claim_name",
    "command_pages",
    "commands",
    "extras",
    "finder",
    "kind_page",
    "kind_slug",
    "method_page",
    "records",
    "room_page",
    "unheld",
    "verdict_counts",
    "write_pages",
]

ROOT: Final = Path(__file__).parents[2]

#: What several methods share, with a title each; those that hold public modules show each of them.
ROOMS: Final = {
    "datasets": "Data sets and files",
    "models": "Models",
    "nn": "Layers",
    "training": "Training",
    "sandbox": "Running untrusted code",
    "problems": "Problems",
    "numerics": "Numerics",
    "scoring": "Scoring",
    "evidence": "Measuring claims",
    "catalogue": "The catalogue",
    "resources": "Files inside packages",
    "validation": "Checks of input",
}
#: Rooms whose package says all that is public; their modules are their own affair.
_CLOSED: Final = frozenset({"evidence", "catalogue"})

#: Extras that are for something else than a method.
_EXTRA_USES: Final = {
    "report": "charts of ``theses report``",
    "all": "everything but the two below",
    "peers": "``theses bench``: what methods are compared with",
    "dev": "development, these pages included",
}

#: Folders below ``docs/`` that hold nothing but what is written here.
_WRITTEN: Final = ("methods", "want", "reference", "commands")


def records() -> list[Record]:
    """All methods with their published verdicts."""
    source = SnapshotSource(ROOT / "docs" / "evidence.json")
    return [source.record(card) for card in cards()]


def kind_slug(kind: str) -> str:
    """Name of a kind in addresses."""
    return kind.replace(" ", "-")


def claim_name(card: Card, claim_id: str) -> str:
    """Name of a claim's place, unique in the site."""
    return str(make_id(f"{card.slug} claim {claim_id}"))


def _to_method(card: Card) -> str:
    return f":doc:`{_plain(card.name)} </methods/{card.slug}>`"


def _to_want(kind: str) -> str:
    return f":doc:`{kind} </want/{kind_slug(kind)}>`"


def _to_have(kind: str) -> str:
    return f":ref:`{kind} <have-{kind_slug(kind)}>`"


def _plain(text: str) -> str:
    """Text for the inside of a role, where a backtick, a ``<`` or a backslash would be markup."""
    text = " ".join(text.split())
    return text.replace("\\", "\\\\").replace("`", "′").replace("<", "\\<")


# The front page


def finder(found: Sequence[Record]) -> str:
    """What there is by what somebody wants, and by what they have.

    Parameters
    ----------
    found : sequence of Record
        All methods.

    Returns
    -------
    str
        Two tables, and libraries of others for what no method here gives yet.
    """
    by_want = _by_kind(found, "want", WANT)
    by_have = _by_kind(found, "have", HAVE)
    wanted = [
        (
            f"{_to_want(kind)}\n\n{escape(WANT[kind])}",
            _lines(f"{_to_method(r.card)} from {escape(_or(r.card.have))}" for r in methods),
        )
        for kind, methods in by_want.items()
    ]
    had = [
        (
            f".. _have-{kind_slug(kind)}:\n\n{escape(kind)}\n\n{escape(HAVE[kind])}",
            _lines(f"{_to_method(r.card)} for {_or_links(r.card.want)}" for r in methods),
        )
        for kind, methods in by_have.items()
    ]
    missing = [kind for kind in WANT if kind not in by_want]
    return join(
        section(
            "I want",
            "-",
            table(("What", "Method, and what it starts from"), wanted, widths="40 60", class_="finder"),
            directive(
                "toctree",
                "",
                "\n".join(f"/want/{kind_slug(kind)}" for kind in by_want),
                hidden="",
                caption="Find a method",
            ),
        ),
        section(
            "I have", "-", table(("What", "Method, and what it gives"), had, widths="40 60", class_="finder")
        ),
        section(
            "Not here yet",
            "-",
            "No method of the catalogue gives these so far. A well-kept library that does:",
            definitions((f"{escape(kind)}, {escape(WANT[kind])}", _elsewhere(kind)) for kind in missing),
        )
        if missing
        else "",
    )


def _by_kind(found: Sequence[Record], side: str, kinds: Iterable[str]) -> dict[str, list[Record]]:
    by_kind = {kind: [record for record in found if kind in getattr(record.card, side)] for kind in kinds}
    return {kind: methods for kind, methods in by_kind.items() if methods}


def _or(words: Iterable[str]) -> str:
    return " or ".join(words)


def _or_links(kinds: Iterable[str]) -> str:
    return " or ".join(map(_to_want, kinds))


def _lines(rows: Iterable[str]) -> str:
    found = list(rows)
    return bullets(found) if len(found) > 1 else "".join(found)


def _elsewhere(kind: str) -> str:
    entry = outside()["want", kind]
    return f"{escape(entry.library)}: {escape(entry.sentence)} {literal(entry.install)}"


# One page a kind of thing that somebody wants


def kind_page(kind: str, found: Sequence[Record]) -> str:
    """Page of a task: its methods side by side, with when to take which.

    Parameters
    ----------
    kind : str
        A key of ``WANT``.
    found : sequence of Record
        All methods.

    Returns
    -------
    str
        The page.
    """
    methods = [record for record in found if kind in record.card.want]
    # A page has one place in the navigation: below the first thing that its method is wanted for.
    own = [record.card.slug for record in methods if record.card.want[0] == kind]
    return (
        section(
            kind.capitalize(),
            "=",
            f"You want {escape(kind)}: {escape(WANT[kind])}.",
            table(
                ("Method", "You have", "Its claims, measured here"),
                [(_to_method(r.card), _have_links(r.card), escape(counts(tally(r.claims)))) for r in methods],
            )
            if len(methods) > 1
            else "",
            *(_choice(record) for record in methods),
            section("Elsewhere", "-", f"Where none of these fits: {_elsewhere(kind)}"),
            directive("toctree", "", "\n".join(f"/methods/{slug}" for slug in own), hidden="") if own else "",
        )
        + "\n"
    )


def _have_links(card: Card) -> str:
    return " or ".join(map(_to_have, card.have))


def _choice(record: Record) -> str:
    card = record.card
    return section(
        card.name,
        "-",
        escape(card.summary),
        _when(card),
        f"Claims of its paper: {escape(counts(tally(record.claims)))}. All about it: {_to_method(card)}.",
        directive("collapse", f"A script to start from: theses start {card.slug}", code(_start(card))),
    )


def _when(card: Card) -> str:
    return block(
        "when",
        definitions(
            (
                ("Use it when", escape(card.use_when)),
                ("Not when", escape(card.not_when)),
                ("Instead of", escape(card.instead_of)),
            )
        ),
    )


def _start(card: Card) -> str:
    path = start_path(card)
    return fill(path.read_text(encoding="utf-8")) if path.is_file() else ""


# One page a method


def method_page(record: Record) -> str:
    """Page of a method: what for, how, what its claims are worth, and its reference.

    Parameters
    ----------
    record : Record
        The method.

    Returns
    -------
    str
        The page.
    """
    card = record.card
    paper = card.paper
    example = Path("examples", *card.package.split("."), card.slug.replace("-", "_") + ".py")
    return (
        section(
            card.name,
            "=",
            block("lead", escape(card.summary)),
            f"{escape(paper.title.rstrip('.'))}. {escape(paper.venue)},"
            f" `{paper.label} <{paper.link}>`__."
            f" In Python {literal(card.module)}, on the command line {literal(card.slug)}"
            + (f", also known as {escape(', '.join(card.aliases))}." if card.aliases else "."),
            f"You have {_have_links(card)}, you want {_or_links(card.want)}."
            f" Of its paper's claims, {escape(counts(tally(record.claims)))}.",
            section("When", "-", _when(card)),
            section("Start", "-", _installing(card), _starting(card), _on_files(card)),
            section(
                "Example",
                "-",
                f"On real data, {literal(example.as_posix())}:",
                directive("literalinclude", f"/../{example.as_posix()}", language="python"),
            )
            if (ROOT / example).is_file()
            else "",
            section("How it works", "-", directive("automodule", card.module)),
            section("Claims", "-", _measured(record), *(_claim(card, claim) for claim in record.claims)),
            section("Speed beside peers", "-", _comparisons(record.comparisons)),
            section("Observed, not judged", "-", _observations(record)),
            section("Deviations from the paper's setting", "-", bullets(map(escape, record.deviations))),
            section(
                "Out of reach here",
                "-",
                definitions((escape(statement), escape(why)) for statement, why in record.out_of_reach),
            ),
            section("Reference", "-", _reference(card)),
        )
        + "\n"
    )


def _installing(card: Card) -> str:
    needs = install_lines(card.extras, ())
    return join("Beyond the core it needs:", code("\n".join(needs), "sh")) if needs else ""


def _starting(card: Card) -> str:
    script = _start(card)
    return join(
        f"{literal(f'theses start {card.slug}')} writes this script; with files of yours it reads those:",
        code(script),
    ) * bool(script)


def _on_files(card: Card) -> str:
    # A part that is still missing is reported by the conformance tests, with all others.
    if not card.apply or find_spec(card.apply) is None:
        return ""
    command = load(card.slug, f"{card.apply}:apply")
    return join(
        "On files, without a line of Python:",
        directive(
            "collapse", f"theses apply {card.slug} --help", _command(f"theses apply {card.slug}", command)
        ),
    )


def _measured(record: Record) -> str:
    card, found = record.card, record.provenance
    if found is None:
        told = "Nothing has been measured and published yet."
    else:
        took = "" if found.wall_s is None else f", which took {escape(seconds(found.wall_s))}"
        told = (
            f"Measured {escape(moment(found.measured_at))} at revision {literal(found.revision[:12])} with"
            f" {len(found.seeds)} seeds{took}. :doc:`/evidence` says how claims are judged."
        )
    lines = [*install_lines(card.study_extras, card.carriers), f"theses reproduce {card.slug}"]
    return join(
        told,
        directive("warning", "", bullets(map(escape, found.notices))) if found and found.notices else "",
        directive(
            "collapse", "Measure them again" if found else "Measure them", code("\n".join(lines), "sh")
        ),
    )


def _claim(card: Card, claim: ClaimRecord) -> str:
    several = len(claim.checks) > 1
    said = claim.explanation or "no explanation has been written yet."
    wanted = claim.verdict not in ("holds", "not run", NOT_MEASURED)
    return block(
        f"claim v-{claim.verdict.replace(' ', '-')}",
        f"**{escape(claim.id)}** :verdict:`{claim.verdict}` :evidence:`{claim.kind}`"
        + (" :evidence:`timed`" if claim.timed else ""),
        escape(claim.statement),
        block("paper", f"The paper: {escape(claim.paper)}"),
        f"Judged at the preset {literal(claim.preset)}." if claim.preset != "standard" else "",
        bullets(_check(check, several) for check in claim.checks),
        block("why", f"**Why:** {escape(said)}") if claim.explanation or wanted else "",
        name=claim_name(card, claim.id),
    )


def _check(check: CheckRecord, several: bool) -> str:
    base = f" {literal(check.baseline_metric)}" if check.baseline_metric else ""
    return (
        f"{literal(check.metric)} {escape(bound(check.bound))} ({AGGREGATES[check.aggregate]}):"
        f" {escape(measured(check)) if check.values else 'not measured'}"
        + (f" :verdict:`{check.verdict}`" if several else "")
        + (f"; baseline{base}: {escape(replicates(check.baseline))}" if check.baseline else "")
        + (f"; the card now says {escape(bound(check.card_bound))}" if check.card_bound else "")
    )


def _comparisons(rows: Sequence[Mapping[str, Any]]) -> str:
    return table(
        ("Peer", "Size", "Its time over ours", "Aim"),
        [
            (
                escape(row["peer"]),
                escape(row["size"]),
                number(row["ratio"]),
                escape(bound(row["target"])) if row["target"] else "none set",
            )
            for row in rows
        ],
    )


def _observations(record: Record) -> str:
    return bullets(
        f"{escape(item.statement)} {literal(item.metric)}: "
        + (escape(replicates(item.values)) if item.values else NOT_MEASURED)
        for item in record.observations
    )


def _reference(card: Card) -> str:
    # An entry may live in another module than the method's.
    modules = dict.fromkeys([card.module, *card.imports])
    return join(
        *(directive("public", module, first=" ".join(card.imports.get(module, ()))) for module in modules)
    )


# Shared rooms


def room_page(room: str) -> str:
    """Page of a shared room: its docstrings.

    Parameters
    ----------
    room : str
        A key of ``ROOMS`` that is there.

    Returns
    -------
    str
        The page.
    """
    name = f"theses.{room}"
    spec = find_spec(name)
    folders = (spec.submodule_search_locations if spec else None) or ()
    modules = [] if room in _CLOSED else [m.name for m in pkgutil.iter_modules(folders) if m.name[0] != "_"]
    return (
        section(
            ROOMS[room],
            "=",
            directive("automodule", name),
            directive("public", name),
            *(
                section(
                    f"{name}.{module}",
                    "-",
                    directive("automodule", f"{name}.{module}"),
                    directive("public", f"{name}.{module}"),
                )
                for module in modules
            ),
        )
        + "\n"
    )


# The command line


def command_pages() -> dict[str, str]:
    """Page of each command, by its name, made of its own help.

    Returns
    -------
    dict of str to str
        Pages; that of ``apply`` leads to the pages of the methods.
    """
    found = {}
    for name, (target, _) in _COMMANDS.items():
        methods = [card for card in cards() if card.apply] if name == "apply" else []
        found[name] = (
            section(
                f"theses {name}",
                "=",
                _command(f"theses {name}", load(name, target)),
                section(
                    "Methods",
                    "-",
                    "What each takes and prints is on its page, and in its own ``--help``.",
                    table(
                        ("Command", "What it does"),
                        [
                            (f":doc:`{card.slug} </methods/{card.slug}>`", escape(card.summary))
                            for card in methods
                        ],
                    ),
                )
                if methods
                else "",
            )
            + "\n"
        )
    return found


def _command(path: str, command: Any) -> str:
    context = command.make_context(path, [], resilient_parsing=True)
    usage = command.get_usage(context).removeprefix("Usage:").strip()
    # Blank lines part the paragraphs of a help text, as in the docstring it comes from.
    told = [escape(part) for part in (command.help or "").split("\n\n")]
    arguments, options = [], []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None:
            continue
        term, meaning = record
        if parameter.param_type_name == "argument":
            arguments.append((literal(term.rpartition(" <")[0] or term), escape(meaning)))
        else:
            options.append(directive("option", term, escape(meaning)))
    return join(
        code(" ".join(usage.split()), "text"),
        *told,
        definitions(arguments),
        directive("program", path),
        *options,
    )


def commands() -> str:
    """The commands with a line each, and their place in the navigation."""
    return join(
        table(
            ("Command", "What it does"),
            [
                (f":doc:`theses {name} </commands/{name}>`", escape(text))
                for name, (_, text) in _COMMANDS.items()
            ],
        ),
        directive("toctree", "", "\n".join(f"/commands/{name}" for name in _COMMANDS), hidden=""),
    )


def extras(found: Sequence[Record]) -> str:
    """What each extra installs, and the methods that use it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = []
    for extra, packages in project["optional-dependencies"].items():
        users = [r.card for r in found if extra in r.card.extras]
        studies = [r.card for r in found if extra in r.card.study_extras and r.card not in users]
        parts = [_EXTRA_USES.get(extra, ""), ", ".join(map(_to_method, users))]
        parts += [f"studies of {', '.join(map(_to_method, studies))}"] if studies else []
        rows.append(
            (
                literal(extra),
                ", ".join(escape(re.split(r"[^\w\[\],.-]", package)[0]) for package in packages),
                "; ".join(part for part in parts if part),
            )
        )
    return join(
        code('pip install ".[all]"', "sh"),
        table(("Extra", "Installs", "For"), rows, widths="15 45 40"),
    )


# Verdicts over all methods


def verdict_counts(found: Sequence[Record]) -> str:
    """Table of the methods with what became of their claims."""
    return table(
        ("Method", "Its claims, measured here"),
        [(_to_method(r.card), escape(counts(tally(r.claims)))) for r in found],
    )


def unheld(found: Sequence[Record]) -> str:
    """Every claim that fails, is undecided or could not be judged, with a link to its explanation."""
    return table(
        ("Claim", "Verdict", "What it says"),
        [
            (
                f":ref:`{_plain(r.card.name)}, {_plain(claim.id)} <{claim_name(r.card, claim.id)}>`",
                f":verdict:`{claim.verdict}` :evidence:`{claim.kind}`",
                escape(claim.statement),
            )
            for verdict in ("fails", "undecided", "unjudged")
            for r in found
            for claim in r.claims
            if claim.verdict == verdict
        ],
        widths="25 20 55",
    )


# Writing


def all_pages() -> dict[str, str]:
    """Text of every page that is made, by its path below ``docs/`` without the suffix."""
    found = records()
    pages = {f"methods/{record.card.slug}": method_page(record) for record in found}
    wanted = {kind for record in found for kind in record.card.want}
    pages |= {f"want/{kind_slug(kind)}": kind_page(kind, found) for kind in WANT if kind in wanted}
    pages |= {f"reference/{room}": room_page(room) for room in ROOMS if find_spec(f"theses.{room}")}
    pages |= {f"commands/{name}": text for name, text in command_pages().items()}
    return pages


def write_pages(app: Sphinx) -> None:
    """Bring the written folders up to date; a page that has not changed is left alone and not built again."""
    folder = Path(app.srcdir)
    pages = {folder / f"{name}.rst": text for name, text in all_pages().items()}
    for written in _WRITTEN:
        (folder / written).mkdir(exist_ok=True)
        for stale in set((folder / written).glob("*.rst")) - pages.keys():
            stale.unlink()
    for path, text in pages.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
