from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.catalogue.generated import catalogue, write_small


@pytest.fixture
def small_catalogue(tmp_path: Path):
    with catalogue(write_small(tmp_path / "cards")):
        yield tmp_path / "cards"


@pytest.fixture
def no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without results; where they would be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("THESES_STORE", str(tmp_path / "own.sqlite"))
    return tmp_path / "own.sqlite"


def entry(**changes: Any) -> dict[str, Any]:
    """What the snapshot says of a method whose claim C1 fails."""
    claim = {
        "kind": "scaled",
        "statement": "It is as good as the paper says.",
        "paper": "Table 1: 0.92",
        "verdict": "fails",
        "explanation": "",
        "checks": [
            {
                "metric": "metric_0",
                "bound": ">= 0.5",
                "aggregate": "mean",
                "values": [0.125, 0.25, [1, 4]],
                "baseline_values": [],
                "interval": [0.1, 0.3],
                "verdict": "fails",
            }
        ],
    }
    identity = {**claim, "kind": "identity", "verdict": "holds", "checks": []}
    return {
        "package": "data",
        "revision": "0123456789abcdef",
        "digest": "d",
        "measured_at": "2026-11-30T10:00:00",
        "seeds": [0, 1, 2],
        "environment": {},
        "deviations": [],
        "claims": {"C1": claim, "C2": identity},
        "observations": [],
        "out_of_reach": [],
        "peer": {"name": "POT", "size": "n = 4,000", "ratio": 12.5, "target": ">= 10"},
        "wall_s": 1.0,
        "peak_mb": 1.0,
    } | changes


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a snapshot of some entries the published one."""

    def publish(**methods: dict[str, Any]) -> None:
        path = tmp_path / "evidence.json"
        path.write_text(json.dumps({"methods": {k.replace("_", "-"): v for k, v in methods.items()}}))
        monkeypatch.setattr("theses.cli._evidence.shipped_file", lambda _: path)

    publish()
    return publish
