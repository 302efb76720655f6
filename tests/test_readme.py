from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.catalogue.generated import catalogue, write_small
from tests.cli.conftest import entry
from theses.catalogue import cards, lookup
from theses.catalogue.published import published
from theses.catalogue.readme import main, methods_table, with_table
from theses.cli import _COMMANDS, app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = sorted({line.strip("`$ ") for line in re.findall(r"`theses [^`]+`|^\$ theses .+$", README, re.M)})

#: What the first table promises for a row's files.
ANSWERS = {
    "jan.csv feb.csv": "dataset-distance",
    "names.txt": "metric-mst",
    "losses.csv": "bayesian-quadrature-conformal",
    "trials.csv": "variational-entropy-search",
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the README speaks of."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i % 7},{i % 3 + i / 60},{'ab'[i % 2]}\n" for i in range(60))
    for name in ("jan.csv", "feb.csv"):
        Path(name).write_text("length,width,species\n" + rows)
    Path("names.txt").write_text("kitten\nsitting\nmitten\nbitten\n")
    Path("trials.csv").write_text(
        "rate,depth,score\n" + "".join(f"{i / 9},{i % 3},{i % 5}\n" for i in range(9))
    )
    Path("losses.csv").write_text("loss\n" + "0.1\n0.4\n" * 30)


def test_the_table_of_methods_is_current():
    table = methods_table(cards(), published(ROOT / "docs" / "evidence.json"))
    assert with_table(README, table) == README, "run: python -m theses.catalogue.readme"


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.S), ids=["array", "estimator"])
def test_python_blocks_run_and_print(code: str):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert re.search(r"\d\.\d", printed.getvalue())


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist(command: str):
    name = shlex.split(command)[1]
    assert name in _COMMANDS


@pytest.mark.parametrize(("names", "slug"), ANSWERS.items())
def test_find_gives_what_the_first_table_promises(files: None, names: str, slug: str):
    (command,) = {c for c in COMMANDS if c.startswith("theses find") and c.endswith(f" {names}")}
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].endswith(f"({slug})")
    assert f"   theses apply {slug} " in result.stdout


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if c.split()[1] in ("show", "apply") and "METHOD" not in c]
)
def test_other_quick_commands_work(files: None, command: str):
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    for arxiv in re.findall(r"arxiv\.org/abs/([\d.]+)", README):
        assert lookup(arxiv).paper.arxiv == arxiv


def test_a_row_of_the_table(tmp_path: Path):
    with catalogue(write_small(tmp_path, apply={"table-distance": "some.module"})):
        table = methods_table(cards(), {"table-distance": entry()})
    head, ruler, *rows = table.splitlines()
    assert len(rows) == 10
    assert len({line.count("|") for line in (head, ruler, *rows)}) == 1
    row = next(row for row in rows if "s-TD" in row)
    assert row == (
        "| two tables | distance | s-TD ([2501.00000](https://arxiv.org/abs/2501.00000)) "
        "| Distance between two labelled tables in near-linear time. "
        "| `theses apply table-distance --help` | 1 fails |"
    )
    assert any("`from theses.graphs.metric_tree import run` | not measured yet |" in row for row in rows)


def test_bars_in_cells_do_not_make_columns(tmp_path: Path):
    path = write_small(tmp_path) / "graphs" / "metric_tree.toml"
    path.write_text(path.read_text().replace("A nearly minimum", "|V| - 1 edges: a nearly minimum"))
    with catalogue(tmp_path):
        table = methods_table(cards(), {})
    assert r"| \|V\| - 1 edges" in table


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<!-- methods -->",
        "<!-- /methods --><!-- methods -->",
        "<!-- methods -->" * 2 + "<!-- /methods -->",
    ],
)
def test_markers_must_be_there_once(text: str):
    with pytest.raises(ValueError, match="once each"):
        with_table(text, "x")


def test_bringing_up_to_date_changes_the_table_alone(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "evidence.json").write_text('{"methods": {}}')
    (tmp_path / "README.md").write_text("before\n<!-- methods -->\nold\n<!-- /methods -->\nafter\n")
    with catalogue(write_small(tmp_path / "cards")):
        main(tmp_path)
        text = (tmp_path / "README.md").read_text()
        main(tmp_path)
    assert text.startswith("before\n<!-- methods -->\n| I have |")
    assert text.endswith(" |\n<!-- /methods -->\nafter\n")
    assert (tmp_path / "README.md").read_text() == text
