from __future__ import annotations

import csv
import dataclasses
import os
import random
import stat
import sys
import time
from pathlib import Path

import pytest

from tests.catalogue.generated import catalogue, write_large, write_small
from tests.report.made import published_entry, snapshot_of, write_snapshot
from theses.catalogue import cards
from theses.report import MARKER, ReportError, SnapshotSource, write_report
from theses.report.records import unmeasured


class Broken:
    """A source that fails at its second method."""

    description = "nowhere"

    def __init__(self) -> None:
        self.asked = 0

    def record(self, card):
        self.asked += 1
        if self.asked > 1:
            raise ValueError("no more")
        return unmeasured(card)


@pytest.fixture
def source(tmp_path: Path):
    with catalogue(write_small(tmp_path / "cards")):
        yield SnapshotSource(snapshot_of(tmp_path / "evidence.json", cards()))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_files_and_summary(source, tmp_path: Path):
    written = write_report(source, tmp_path / "deep" / "site")
    site = tmp_path / "deep" / "site"
    assert names(site) == {"index.html", "methods.html", "unheld.html", "methods", "assets", MARKER}
    assert names(site / "assets") == {"theses.css", "theses.js", "vega.js"}
    slugs = {card.slug for card in cards()}
    assert names(site / "methods") == {f"{slug}.{ending}" for slug in slugs for ending in ("html", "csv")}
    assert written.index == site / "index.html"
    assert (written.n_methods, written.n_measured, written.notes) == (10, 10, ())
    assert sum(written.verdicts.values()) == 10  # one claim each that is no identity
    assert names(site.parent) == {"site"}


def test_anyone_may_read_what_the_umask_allows(source, tmp_path: Path):
    before = os.umask(0o022)
    try:
        write_report(source, tmp_path / "site")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "site").stat().st_mode) == 0o755


def test_an_empty_folder_and_an_older_report_are_replaced(source, tmp_path: Path):
    site = tmp_path / "site"
    site.mkdir()
    write_report(source, site)
    (site / "methods" / "gone.html").write_text("old")
    write_report(source, site)
    assert not (site / "methods" / "gone.html").exists()
    assert {name for name in names(tmp_path) if "site" in name} == {"site"}


def test_anything_else_is_left_alone(source, tmp_path: Path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "index.html").write_text("mine")
    with pytest.raises(ReportError, match=r"mine: holds files that are not a report .*-o"):
        write_report(source, folder)
    assert (folder / "index.html").read_text() == "mine" and names(folder) == {"index.html"}
    with pytest.raises(ReportError, match="not a folder"):
        write_report(source, folder / "index.html")
    link = tmp_path / "link"
    link.symlink_to(folder)
    with pytest.raises(ReportError, match="not a folder"):
        write_report(source, link)


def test_a_report_that_fails_leaves_the_old_one(source, tmp_path: Path):
    site = tmp_path / "site"
    write_report(source, site)
    before = (site / "index.html").read_bytes()
    with pytest.raises(ValueError, match="no more"):
        write_report(Broken(), site)
    assert (site / "index.html").read_bytes() == before
    assert {name for name in names(tmp_path) if "site" in name} == {"site"}


def test_a_rename_that_fails_puts_the_old_one_back(source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    site = tmp_path / "site"
    write_report(source, site)
    rename = Path.rename

    def stubborn(self, target):
        if self.name == "new":
            raise OSError(28, "No space left on device", str(target))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", stubborn)
    with pytest.raises(OSError, match="No space"):
        write_report(source, site)
    assert (site / MARKER).is_file()


def test_a_folder_that_is_filled_meanwhile_is_left_alone(source, tmp_path: Path):
    site = tmp_path / "site"
    site.mkdir()

    class Meddling:
        description = "elsewhere"

        def record(self, card):
            (site / "mine.txt").write_text("mine")
            return unmeasured(card)

    with pytest.raises(ReportError, match="left alone"):
        write_report(Meddling(), site)
    assert names(site) == {"mine.txt"}


def test_values_as_csv(source, tmp_path: Path):
    write_report(source, tmp_path / "site")
    with (tmp_path / "site" / "methods" / "metric-tree.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    ours = [row for row in rows if row["claim"] == "C1" and row["side"] == "method"]
    assert [row["seed"] for row in ours] == ["0", "1", "2"]
    entry = source._methods["metric-tree"]["claims"]["C1"]["checks"][0]
    assert [float(row["value"]) for row in ours] == entry["values"]
    assert {row["bound"] for row in ours} == {">= 0.5"}
    assert [row["value"] for row in rows if row["side"] == "baseline" and row["claim"] == "C1"]
    watched = [row for row in rows if row["side"] == "observation"]
    assert [(row["value"], row["hits"], row["trials"]) for row in watched] == [
        ("1.0", "", ""), ("nan", "", ""), ("0.75", "3", "4"),
    ]  # fmt: skip


def test_a_spreadsheet_runs_nothing(tmp_path: Path):
    with catalogue(write_small(tmp_path / "cards")):
        card = cards()[0]
        entry = published_entry(card, random.Random(0))
        entry["claims"]["=cmd|'/c calc'!A1"] = entry["claims"].pop("C1")
        path = write_snapshot(tmp_path / "e.json", {card.slug: entry})
        write_report(SnapshotSource(path), tmp_path / "site", [card])
    with (tmp_path / "site" / "methods" / f"{card.slug}.csv").open(newline="") as stream:
        cells = [cell for row in csv.reader(stream) for cell in row]
    assert "'=cmd|'/c calc'!A1" in cells
    assert not any(cell.startswith(("=", "+", "@")) for cell in cells)


def test_halves_of_surrogate_pairs_do_not_stop_it(source, tmp_path: Path):
    card = dataclasses.replace(cards()[0], summary="half \ud800 of a pair")
    write_report(source, tmp_path / "site", [card])
    assert "half ? of a pair" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")


def test_the_same_input_gives_the_same_files(source, tmp_path: Path):
    for name in ("a", "b"):
        write_report(source, tmp_path / name)
    for path in (tmp_path / "a").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()


def test_a_missing_extra_is_said_before_anything_is_written(
    source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(ImportError, match=r'pip install "theses\[report\]"'):
        write_report(source, tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_many_methods_take_little_time_each(tmp_path: Path):
    with catalogue(write_large(tmp_path / "cards", n_cards=24)):
        source = SnapshotSource(snapshot_of(tmp_path / "evidence.json", cards()))
        write_report(source, tmp_path / "site", cards()[:1])  # imports, the template and the bundle
        start = time.process_time()
        write_report(source, tmp_path / "site")
        spent = time.process_time() - start
    # 95 of them are to take less than 10 s, the bundle of Vega (2 s) included.
    assert spent < 2 + 8 * 24 / 95 + 1
