from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.catalogue.generated import catalogue, write_small
from theses.catalogue import HAVE
from theses.cli import app
from theses.cli.find import kinds_of_files
from theses.datasets.files import head

runner = CliRunner()

APPLY = '''
def apply() -> None:
    """Nothing."""


def suggest(files):
    if len(files) == 2 and all("label" in file.columns for file in files):
        return f"theses apply table-distance {files[0].path} {files[1].path} --label label"
    return None
'''


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "suggesting_apply.py").write_text(APPLY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with catalogue(write_small(tmp_path / "cards", apply={"table-distance": "suggesting_apply"})):
        yield
    sys.modules.pop("suggesting_apply", None)


@pytest.fixture
def tables(tmp_path: Path) -> list[str]:
    for name in ("jan.csv", "feb.csv"):
        (tmp_path / name).write_text("x,label\n1,0\n2,1\n")
    return ["jan.csv", "feb.csv"]


def find(*arguments: str) -> str:
    result = runner.invoke(app, ["find", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_words_and_files_give_the_exact_command(tables: list[str]):
    lines = find("distance between two tables", *tables).splitlines()
    assert lines[0] == "1. s-TD (table-distance)"
    assert lines[1] == "   Distance between two labelled tables in near-linear time."
    assert lines[2] == "   because you said distance, between, two, tables; your files may be two tables"
    assert lines[3] == "   theses apply table-distance jan.csv feb.csv --label label"
    assert lines[-2].startswith("If none of these fits: POT (pip install POT). ")
    assert lines[-1].endswith("theses show table-distance")


def test_words_need_no_quotes_and_files_no_place(tables: list[str]):
    mixed = find("distance", "jan.csv", "between", "two", "feb.csv", "tables")
    assert mixed == find("distance between two tables", *tables)


def test_files_alone(tables: list[str]):
    assert find(*tables).startswith("1. s-TD (table-distance)")


def test_files_that_do_not_fit_get_the_import(tmp_path: Path):
    (tmp_path / "words.txt").write_text("kitten\nsitting\n")
    lines = find("distance between two tables", "words.txt").splitlines()
    assert lines[0] == "1. s-TD (table-distance)"
    assert "   from theses.data.table_distance import run" in lines
    assert not any("theses apply" in line for line in lines)


def test_without_files_the_help_of_the_command():
    assert "   theses apply table-distance --help" in find("distance between two tables").splitlines()


def test_a_method_without_command_gets_the_import():
    assert "   from theses.graphs.metric_tree import run" in find("spanning tree").splitlines()


def test_kinds_are_demanded():
    assert find("--want", "effect").startswith("1. ProxyCum (latent-effect)")
    result = runner.invoke(app, ["find", "--want", "efect"])
    assert result.exit_code == 2
    assert "--want: there is no 'efect'; nearest: effect" in result.stderr


def test_at_most_five():
    assert sum(line[0].isdigit() for line in find("--have", "table", "--have", "strings").splitlines()) == 4
    words = "distance tree effect optimum cache density event image subset risk bound"
    assert sum(line[:1].isdigit() for line in find(words).splitlines()) <= 5


def test_a_question_without_answer_is_sent_elsewhere():
    lines = find("fold a protein").splitlines()
    assert lines[0] == "None of our 10 methods fits."
    assert lines[-1].startswith("Use instead: RDKit (pip install rdkit). ")


def test_a_weak_match_is_named_but_not_offered():
    lines = find("train a random forest classifier on black boxes").splitlines()
    assert lines[0] == "None of our 10 methods fits."
    assert lines[1].startswith("Closest: ")
    assert "scikit-learn" in lines[-1]


def test_a_question_about_nothing_we_know():
    assert "Nor do we know an outside library" in find("xylophone")


def test_long_questions_and_words_like_files_are_questions(tmp_path: Path):
    (tmp_path / "tree").mkdir()
    assert find("spanning tree " + "of many strings " * 50).startswith("1. MFC (metric-tree)")
    assert find("a spanning tree from a .csv").startswith("1. MFC (metric-tree)")
    assert find("spanning", "tree").startswith("1. MFC (metric-tree)")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what you want"),
        (["distance", "absent.csv"], "absent.csv: no such file"),
        (["distance", "empty.csv"], "empty.csv: holds no columns"),
    ],
)
def test_bad_questions(tmp_path: Path, arguments: list[str], message: str):
    (tmp_path / "empty.csv").write_text("")
    result = runner.invoke(app, ["find", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_json(tables: list[str]):
    answer = json.loads(find("distance between two tables", *tables, "--json"))
    best = answer["methods"][0]
    assert best["slug"] == "table-distance"
    assert best["command"].endswith("--label label")
    assert best["python"] == "from theses.data.table_distance import run"
    assert best["files_are"] == ["two tables"]
    assert 0 < best["score"] <= 1
    assert answer["outside"]["library"] == "POT"
    nothing = json.loads(find("xylophone", "--json"))
    assert nothing == {"methods": [], "outside": None}


@pytest.mark.parametrize(
    ("content", "best"),
    [
        ({"a.txt": "kitten\n"}, {"strings"}),
        ({"a.csv": "loss\n0.5\n"}, {"losses"}),
        ({"a.csv": "x,y\n0.5,1\n"}, {"table", "points"}),
        ({"a.csv": "x,name\n0.5,ada\n"}, {"table"}),
        ({"a.csv": "x,y\n1,2\n", "b.csv": "y,x\n1,2\n"}, {"two tables"}),
        ({"a.csv": "x,y\n1,2\n", "b.csv": "u,v\n1,2\n"}, {"table", "points"}),
        ({"a.npy": np.zeros((2, 8, 8))}, {"images"}),
        ({"a.npy": np.zeros(4)}, {"losses"}),
        ({"a.npy": np.zeros((4, 2))}, {"table", "points"}),
        ({}, set()),
    ],
)
def test_kinds_of_files(tmp_path: Path, content: dict[str, str | np.ndarray], best: set[str]):
    heads = []
    for name, value in content.items():
        if isinstance(value, str):
            (tmp_path / name).write_text(value)
        else:
            np.save(tmp_path / name, value)
        heads.append(head(tmp_path / name))
    kinds = kinds_of_files(heads)
    assert {kind for kind, degree in kinds.items() if degree == 1.0} == best
    assert set(kinds) <= set(HAVE)
    assert all(0 < degree <= 1 for degree in kinds.values())
