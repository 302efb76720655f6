"""Snapshots made for tests: every card of a catalogue with values, judged as the real ones are."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cli.conftest import entry
from theses.catalogue import Card, Check
from theses.evidence.verdict import judge_check

#: What would run, or break the page, if it were not escaped.
ATTACK = (
    """</script><script>window.hit=1</script>"'><img src=x onerror=window.hit=2><!--{{}}&lt;&#60;\u2028"""
)


def published_entry(card: Card, rng: random.Random, seeds: int = 3, replicates: int = 1) -> dict[str, Any]:
    """What the snapshot would hold of a card: values at random around the bound of 0.5."""
    claims = {}
    for claim in card.claims:
        centre = rng.choice([0.3, 0.5, 0.9])
        checks = [_check(check, centre, rng, seeds * replicates) for check in claim.checks]
        worst = max(
            (c["verdict"] for c in checks), key=("holds", "undecided", "fails", "unjudged", "not run").index
        )
        claims[claim.id] = {
            "kind": claim.kind,
            "statement": claim.statement,
            "paper": claim.paper,
            "verdict": worst,
            "explanation": "The cases are too few." if worst == "fails" else "",
            "checks": checks,
        }
    return entry(
        package=card.package,
        seeds=list(range(seeds)),
        claims=claims,
        deviations=list(card.deviations),
        environment={"python": "3.11", "libraries": {"numpy": "2.4"}, "files": {"digits.csv": "ab12"}},
        observations=[{"statement": "The size.", "metric": "size", "values": [1.0, "nan", [3, 4]]}],
        out_of_reach=[{"statement": "The full size.", "why": "It takes a cluster."}],
        comparisons=[
            {
                "peer": "POT",
                "size": "n = 4,000",
                "ours_s": [0.1, 0.2, 0.3],
                "peer_s": [1.0, 2.5, 3.0],
                "ratio": 12.5,
                "target": ">= 10",
                "quality": "equal to 1e-6",
                "peak_mb": None,
            }
        ],
    )


def _check(check: Check, centre: float, rng: random.Random, n: int) -> dict[str, Any]:
    values = [round(centre + rng.uniform(-0.1, 0.1), 4) for _ in range(n)]
    judged = judge_check(check, values)
    return {
        "metric": check.metric,
        "bound": check.bound,
        "aggregate": check.aggregate,
        "values": values,
        "baseline_values": [round(value - 0.05, 4) for value in values],
        "interval": list(judged.interval) if judged.interval else None,
        "verdict": judged.verdict,
    }


def write_snapshot(path: Path, methods: dict[str, Any]) -> Path:
    """A snapshot as a file."""
    path.write_text(json.dumps({"methods": methods}), encoding="utf-8")
    return path


def snapshot_of(path: Path, cards: Sequence[Card]) -> Path:
    """A snapshot that has every card."""
    rng = random.Random(0)
    return write_snapshot(path, {card.slug: published_entry(card, rng) for card in cards})


def poisoned(value: Any, kept: frozenset[str], text: str = ATTACK) -> Any:
    """The same structure with an attack in every text whose key is not kept."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(
            value,
            **{
                field.name: poisoned(getattr(value, field.name), kept, text)
                for field in dataclasses.fields(value)
                if field.name not in kept
            },
        )
    if isinstance(value, dict):
        return {key: entry if key in kept else poisoned(entry, kept, text) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(poisoned(entry, kept, text) for entry in value)
    return f"{value} {text}" if isinstance(value, str) else value
