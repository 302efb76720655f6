from __future__ import annotations

from pathlib import Path

import pytest

from theses.catalogue.published import count_verdicts, describe_counts, published
from theses.resources import shipped_file


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"methods": []}', "{'methods': {}}"])
def test_what_is_no_snapshot_is_named(tmp_path: Path, content: str):
    path = tmp_path / "evidence.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"evidence\.json: no"):
        published(path)


def test_the_shipped_snapshot_is_read():
    for entry in published(shipped_file("docs/evidence.json")).values():
        counts = count_verdicts(entry["claims"].values())
        assert sum(counts.values()) == sum(claim["kind"] != "identity" for claim in entry["claims"].values())


def test_identities_are_no_evidence():
    claims = [
        {"kind": "identity", "verdict": "holds"},
        {"kind": "scaled", "verdict": "fails"},
        {"kind": "same", "verdict": "holds"},
        {"kind": "stand-in", "verdict": "holds"},
        {"kind": "scaled", "verdict": "not run"},
    ]
    counts = count_verdicts(claims)
    assert counts == {"holds": 2, "fails": 1, "not run": 1}
    assert describe_counts(counts) == "2 hold, 1 fails, 1 not run"
    assert describe_counts({"fails": 3}) == "3 fail"
