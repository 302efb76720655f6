from __future__ import annotations

from pathlib import Path

import pytest

from tests.catalogue.generated import catalogue, write_small
from tests.report.made import snapshot_of
from theses.catalogue import cards
from theses.report import SnapshotSource, write_report


@pytest.fixture(scope="package")
def small_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Report of the small catalogue with a made snapshot."""
    root = tmp_path_factory.mktemp("report")
    with catalogue(
        write_small(root / "cards", apply={"table-distance": "theses.cli.apply.dataset_distance"})
    ):
        write_report(SnapshotSource(snapshot_of(root / "evidence.json", cards())), root / "site")
    return root / "site"
