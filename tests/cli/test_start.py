from __future__ import annotations

import ast
import json
import runpy
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.catalogue.generated import catalogue, write_small
from theses.catalogue import lookup
from theses.catalogue.start import fill, kinds_of, start_path
from theses.cli.apply.dataset_distance import apply
from theses.cli.errors import friendly
from theses.cli.start import reading, start

runner = CliRunner()
app = typer.Typer()
app.command()(friendly(start))

TABLE = "length,width,species\n" + "".join(f"{i % 7},{i % 3},{'ab'[i % 2]}\n" for i in range(20))


def run(*arguments: str | Path) -> str:
    result = runner.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def refusal(*arguments: str | Path) -> str:
    result = runner.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    return result.stderr


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("jan.csv", "feb.csv"):
        Path(name).write_text(TABLE)
    Path("names.txt").write_text("kitten\nsitting\nmitten\n")
    return tmp_path


def strings(script: str) -> list[str]:
    return [
        node.value
        for node in ast.walk(ast.parse(script))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def test_without_files_the_script_is_the_template():
    template = start_path(lookup("s-OTDD")).read_text()
    assert run("s-OTDD") == fill(template)
    kept = [line for line in template.splitlines() if not line.startswith("# with ")]
    assert run("s-OTDD").splitlines() == [line.removesuffix("  # without files") for line in kept]


def test_with_files_their_paths_and_columns_are_in_it():
    script = run("dataset-distance", "jan.csv", "feb.csv")
    assert {"jan.csv", "feb.csv", "species"} <= set(strings(script))
    assert "load_digits" not in script


@pytest.mark.parametrize(
    "name",
    [
        'a"b.csv',
        "a'b.csv",
        "a'b\".csv",
        "a\\b.csv",
        "a b.csv",
        "{a}.csv",
        "<a>.csv",
        "# with files: a.csv",
        "a\nb.csv",
        '"); import os; ("',
        '"<label>".csv',
        "ü.csv",
        b"\xff.csv".decode(errors="surrogateescape"),
    ],
)
def test_no_path_gets_out_of_its_string(name: str, folder: Path):
    path = folder / (name if name.endswith(".csv") else f"{name}.csv")
    path.write_text(TABLE)
    result = runner.invoke(app, ["dataset-distance", str(path), "feb.csv", "-o", "script.py"])
    assert result.exit_code == 0, result.output
    script = Path("script.py").read_text(encoding="utf-8")
    assert strings(script).count(str(path)) == strings(run("s-otdd", "jan.csv", "feb.csv")).count("jan.csv")
    plain = run("s-otdd", "jan.csv", "feb.csv")
    assert ast.dump(ast.parse(script)).replace(repr(str(path)), "'jan.csv'") == ast.dump(ast.parse(plain))


def test_the_code_follows_from_the_kind_of_the_files(folder: Path):
    lines = run("metric-mst", "names.txt")
    assert {"names.txt", "levenshtein"} <= set(strings(lines))
    assert "read_lines" in lines
    assert "read_numbers" not in lines
    Path("points.csv").write_text("x,y\n1,2\n3,4\n")
    points = run("metric-mst", "points.csv")
    assert "read_numbers" in points
    assert "read_lines" not in points


@pytest.mark.parametrize(
    ("text", "kind", "column"),
    [
        ("loss\n0.1\n", "column", "loss"),
        ("error\n0.1\n", "column", "error"),
        ("case,loss\na,0.1\n", "column", "loss"),
        ("lambda=0,lambda=1\n1,0\n", "columns", None),
    ],
)
def test_one_column_is_told_from_several(text: str, kind: str, column: str | None):
    Path("losses.csv").write_text(text)
    kinds, values = reading(lookup("bayesian-quadrature-conformal"), [Path("losses.csv")])
    assert kinds == ("files", "table", kind)
    assert values["column"] == column


def test_the_script_finds_what_the_command_finds(capsys: pytest.CaptureFixture[str]):
    rows = TABLE.splitlines()
    # The same columns, in another order.
    Path("feb.csv").write_text("\n".join(",".join(row.split(",")[::-1]) for row in [rows[0], *rows[5:]]))
    run("s-otdd", "jan.csv", "feb.csv", "-o", "script.py")
    runpy.run_path("script.py")
    printed = capsys.readouterr().out
    apply(Path("jan.csv"), Path("feb.csv"), "species", as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert f"A and B: {answer['distance']:.4f} +- {answer['standard_error']:.4f}\n" in printed


def test_a_file_is_written_once(folder: Path):
    assert "script.py" in run("s-otdd", "-o", "script.py")
    assert Path("script.py").read_text() == run("s-otdd")
    Path("script.py").write_text("mine")
    assert "script.py: exists; --force writes over it" in refusal("s-otdd", "-o", "script.py")
    assert Path("script.py").read_text() == "mine"
    run("s-otdd", "-o", "script.py", "--force")
    assert Path("script.py").read_text() == run("s-otdd")
    assert sorted(path.name for path in folder.iterdir()) == ["feb.csv", "jan.csv", "names.txt", "script.py"]


def test_what_goes_wrong_is_said(folder: Path):
    assert "no method is called 'nothing'" in refusal("nothing")
    assert "gone.csv: no such file" in refusal("s-otdd", "jan.csv", "gone.csv")
    assert "cannot tell how to read jan.csv (theses apply dataset-distance --help" in refusal(
        "s-otdd", "jan.csv"
    )
    assert "gone/script.py: cannot be written" in refusal("s-otdd", "-o", "gone/script.py")
    assert not Path("gone").exists()
    refusal("s-otdd", "jan.csv", "-o", "script.py")
    assert not Path("script.py").exists()


def test_methods_without_script_or_command_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("theses.catalogue.start._ROOT", tmp_path / "starts")
    with catalogue(write_small(tmp_path / "cards")):
        message = refusal("table-distance")
        assert "no script to start from; begin with: from theses.data.table_distance import run" in message
        path = start_path(lookup("table-distance"))
        path.parent.mkdir(parents=True)
        path.write_text("print(1)\n")
        assert run("table-distance") == "print(1)\n"
        assert "table-distance has no command for files" in refusal("table-distance", "jan.csv")


def test_lines_of_a_template_come_and_go():
    template = (
        "a = 1  # without files\n\n# with lines: b = 2\n# with files:     c\n\nd = 4  # without column\n"
    )
    assert kinds_of(template) == ("files", "lines", "column")
    assert fill(template) == "a = 1\n\nd = 4\n"
    assert fill(template, ["files", "lines"]) == "\nb = 2\n    c\n\nd = 4\n"
    assert fill(template, ["files", "column"]) == "\n    c\n\n"


def test_blank_lines_stay_unless_something_between_them_went():
    template = "a = 1\n\n\ndef f(): ...\n\n# with files: b = 2\n\nc = 3\n"
    assert fill(template) == "a = 1\n\n\ndef f(): ...\n\nc = 3\n"


def test_values_are_literals_and_none_may_be_missing():
    template = '# with files: f("<path>", "<n>", "<x>", "path")\n'
    values = {"path": Path("a"), "n": 3, "x": 0.5}
    assert fill(template, ["files"], values) == 'f("a", 3, 0.5, "path")\n'
    with pytest.raises(ValueError, match="values must have 'x', got path, n"):
        fill(template, ["files"], {"path": "a", "n": 3})
    with pytest.raises(ValueError, match="values must have 'x'"):
        fill(template, ["files"], {**values, "x": None})
