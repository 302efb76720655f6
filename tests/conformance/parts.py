"""Is everything there that a method consists of, and does the card say all it has to?"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator

from tests.conformance.subject import Subject

# Verdicts that need no explanation; all others are results to be explained.
SETTLED = ("holds", "not run")


def check_parts(subject: Subject) -> list[str]:
    """Each file that belongs to a method exists and defines what others call in it."""
    card = subject.card
    complaints = []
    wanted = {
        "the method": subject.module_name,
        "the study": subject.study_name,
        "the test module": subject.test_name,
        "the benchmark": subject.benchmark_name,
        "the example": subject.example_name,
    }
    if card.apply:
        wanted["the apply command"] = subject.apply_name
    missing = set()
    for part, dotted in wanted.items():
        if not subject.path(dotted).is_file():
            missing.add(dotted)
            complaints.append(f"{part} is missing: {subject.relative(dotted)}")
    entries = {subject.study_name: ("run", "figures"), subject.benchmark_name: ("benchmark",)}
    if card.apply:
        entries[subject.apply_name] = ("apply", "suggest")
    for dotted, names in entries.items():
        if dotted in missing:
            continue
        try:
            module = importlib.import_module(dotted)
        except Exception as error:
            complaints.append(f"{subject.relative(dotted)} cannot be imported: {error!r}")
            continue
        for name in names:
            if not inspect.isfunction(getattr(module, name, None)):
                complaints.append(f"{subject.relative(dotted)} defines no function {name}")
    return complaints


def check_dependencies(subject: Subject) -> list[str]:
    """Extras and carriers that the card names are declared."""
    card = subject.card
    declared = subject.project["project"]["optional-dependencies"]
    complaints = [
        f"extra {extra!r} is not in pyproject.toml; known are {', '.join(declared)}"
        for extra in (*card.extras, *card.study_extras)
        if extra not in declared
    ]
    pinned = re.findall(
        r"^([\w.-]+)==", (subject.root / "carriers.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    complaints += [
        f"carrier {carrier!r} is not in carriers.txt; known are {', '.join(pinned)}"
        for carrier in card.carriers
        if carrier not in pinned
    ]
    return complaints


def check_text(subject: Subject) -> list[str]:
    """The summary is one sentence, no text is empty, and the card speaks of its own module."""
    card = subject.card
    complaints = []
    if len(_sentences(card.summary)) != 1 or not card.summary.endswith("."):
        complaints.append(f"summary must be one sentence that ends with a full stop, got {card.summary!r}")
    if card.summary[:1].islower():
        complaints.append(f"summary must start with a capital letter, got {card.summary!r}")
    complaints += [f"{where} is empty" for where, text in _texts(subject) if not text.strip()]
    if not any(entry.startswith(f"{card.module}:") for entry in card.api):
        complaints.append(f"api names nothing of {card.module}, got {', '.join(card.api)}")
    if card.apply and card.apply != f"theses.cli.apply.{subject.stem}":
        complaints.append(f"apply must be theses.cli.apply.{subject.stem}, got {card.apply}")
    return complaints


def check_explanations(subject: Subject) -> list[str]:
    """A claim that, as published, does not hold says why; and nothing is published that the card lacks."""
    snapshot = json.loads((subject.root / "docs" / "evidence.json").read_text(encoding="utf-8"))
    published = snapshot["methods"].get(subject.card.slug, {"claims": {}})["claims"]
    claims = {claim.id: claim for claim in subject.card.claims}
    complaints = []
    for identifier, record in published.items():
        if identifier not in claims:
            complaints.append(f"docs/evidence.json has claim {identifier}, which the card does not")
        elif record["verdict"] not in SETTLED and len(_sentences(claims[identifier].explanation)) < 2:
            complaints.append(
                f"claim {identifier} is published as {record['verdict']!r}: its explanation needs a few "
                f"sentences, got {claims[identifier].explanation!r}"
            )
    return complaints


def check_planted_mistake(subject: Subject) -> list[str]:
    """A test plants a mistake and shows that a claim turns."""
    module = subject.test_module
    names = [name for name, value in vars(module).items() if inspect.isfunction(value)]
    for value in vars(module).values():
        if inspect.isclass(value) and value.__name__.startswith("Test"):
            names += [name for name, entry in vars(value).items() if inspect.isfunction(entry)]
    planted = [name for name in names if name.startswith("test_planted_")]
    if not planted:
        return [
            f"{subject.relative(subject.test_name)} plants no mistake: it needs a test named "
            "test_planted_MISTAKE_turns_CLAIM"
        ]
    known = [claim.id for claim in subject.card.claims]
    return [
        f"{name} must end with _turns_ and a claim of the card; known are {', '.join(known)}"
        for name in planted
        if not any(f"_turns_{_bare(identifier)}" in name.casefold() for identifier in known)
    ]


def _texts(subject: Subject) -> Iterator[tuple[str, str]]:
    card = subject.card
    for name in ("aliases", "tags", "deviations", "extras", "study_extras", "carriers"):
        for i, text in enumerate(getattr(card, name)):
            yield f"{name}[{i}]", text
    for name in ("title", "venue", "identifier"):
        yield f"paper.{name}", getattr(card.paper, name)
    for i, claim in enumerate(card.claims):
        yield f"claims[{i}].id", claim.id
        yield f"claims[{i}].statement", claim.statement
        yield f"claims[{i}].paper", claim.paper
        for j, check in enumerate(claim.checks):
            yield f"claims[{i}].checks[{j}].metric", check.metric
    for i, observation in enumerate(card.observations):
        yield f"observations[{i}].statement", observation.statement
        yield f"observations[{i}].metric", observation.metric
    for i, row in enumerate(card.out_of_reach):
        yield f"out_of_reach[{i}].statement", row.statement
        yield f"out_of_reach[{i}].why", row.why


def _sentences(text: str) -> list[str]:
    # A sentence ends where a blank and a capital letter follow; "e.g." and "vs." do not end one.
    plain = re.sub(r"\b(e\.g|i\.e|vs|cf|et al|Eq|Fig|Sec)\.", r"\1", text.strip())
    return [part for part in re.split(r"(?<=[.!?])\s+(?=[A-Z0-9])", plain) if part]


def _bare(text: str) -> str:
    return re.sub(r"[^0-9a-z]", "", text.casefold())
