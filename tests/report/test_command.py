from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from tests.catalogue.generated import catalogue, write_small
from tests.report.made import snapshot_of
from theses.catalogue import cards
from theses.cli.errors import friendly
from theses.cli.report import report as command
from theses.evidence import Measurement
from theses.evidence.codec import encode
from theses.evidence.store import Store, UnitKey, UnitRecord


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("THESES_STORE", str(tmp_path / "own.sqlite"))
    return tmp_path


def report(*arguments: str):
    app = typer.Typer()
    app.command()(friendly(command))
    return CliRunner().invoke(app, arguments)


def add_unit(path: Path) -> None:
    measurement = Measurement({"metric_0": 0.9, "metric_1": 0.9}, {"points": pl.DataFrame({"x": [1]})})
    record = {"revision": "r", "clean": True, "environment": {}, "files": {}, "wall_s": 1.0, "peak_mb": 1.0}
    with Store(path) as store:
        for seed in range(3):
            key = UnitKey("metric-tree", "standard", seed, "d")
            store.add_unit(UnitRecord(key, "done", "2026", record, encode(measurement.to_dict())))


def test_a_snapshot(here: Path):
    with catalogue(write_small(here / "cards")):
        snapshot_of(here / "evidence.json", cards())
        result = report("--snapshot", "evidence.json", "-o", "site")
    assert result.exit_code == 0, result.output
    assert "10 methods, 10 measured" in result.output
    assert str(here / "site" / "index.html") in result.output
    assert "the published snapshot" in (here / "site" / "index.html").read_text()


def test_a_store_whose_study_is_missing_still_gives_a_site(here: Path):
    add_unit(here / "results.sqlite")
    with catalogue(write_small(here / "cards")):
        result = report("--store", "results.sqlite")
    assert result.exit_code == 0, result.output
    assert "10 methods, 1 measured; claims: 1 holds, 9 not measured" in result.stdout
    assert "warning: metric-tree: The charts of the study could not be drawn" in result.stderr
    assert (here / "report" / "index.html").is_file()
    assert "could not be drawn" in (here / "report" / "methods" / "metric-tree.html").read_text()


def test_without_options_the_own_store_counts_then_what_is_published(here: Path):
    with catalogue(write_small(here / "cards")):
        assert "10 methods, 0 measured" in report("-o", "a").output
        assert "the published snapshot" in (here / "a" / "index.html").read_text()
        add_unit(here / "own.sqlite")
        assert "10 methods, 1 measured" in report("-o", "b").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--store", "a", "--snapshot", "b"), "give --store or --snapshot, not both"),
        (("--store", "absent.sqlite"), "no result store at absent.sqlite"),
        (("--snapshot", "absent.json"), "absent.json: No such file"),
        (("--preset", "grand"), "--preset"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], message: str):
    result = report(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_folder_of_the_users_is_left_alone(here: Path):
    (here / "docs").mkdir()
    (here / "docs" / "thesis.tex").write_text("mine")
    result = report("-o", "docs")
    assert result.exit_code == 2 and "left alone" in result.stderr
    assert (here / "docs" / "thesis.tex").read_text() == "mine"
