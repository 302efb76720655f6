from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale
from typer.testing import CliRunner

from theses.cli.apply.subsampled_newton import apply, suggest
from theses.cli.errors import friendly
from theses.datasets.files import head

app = typer.Typer()
app.command()(friendly(apply))


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


@pytest.fixture
def cancer(tmp_path: Path) -> Path:
    X, y = load_breast_cancer(return_X_y=True)
    path = tmp_path / "cancer table.csv"
    frame = pl.DataFrame(X, schema=[f"f{i}" for i in range(X.shape[1])], orient="row")
    frame.with_columns(pl.Series("target", np.array(["bad", "good"])[y])).write_csv(path)
    return path


def test_the_model_is_scikit_learns(cancer, tmp_path):
    model = tmp_path / "model.json"
    answer = json.loads(run(cancer, "--rows", 350, "--c", 0.5, "-o", model, "--json"))
    assert answer["sampled"] and answer["rows_of_hessian"] == 350 and answer["gradient_norm"] < 1e-7
    X, y = load_breast_cancer(return_X_y=True)
    theirs = LogisticRegression(C=0.5, tol=1e-9, max_iter=5_000).fit(scale(X), y)
    written = json.loads(model.read_text())
    np.testing.assert_allclose(written["coef"], theirs.coef_, atol=1e-4)
    assert written["classes"] == ["bad", "good"] and written["features"][0] == "f0"
    # The file says how to predict from raw numbers.
    raw = (X - written["mean"]) / written["scale"]
    scores = raw @ np.array(written["coef"])[0] + written["intercept"][0]
    assert ((scores > 0) == y).mean() == pytest.approx(answer["accuracy_on_these_rows"])
    assert max(entry["largest_difference"] for entry in answer["yardstick"].values()) < 1e-3


def test_text_says_what_json_says_and_the_python_lines_do_the_same(cancer, capsys):
    answer = json.loads(run(cancer, "--json"))
    text = run(cancer)
    assert "569 rows, 30 features, 2 classes in column 'target'" in text
    assert "newton-cholesky" in text and "lbfgs" in text and "of 569 rows" in text
    assert all(line.rstrip() in text for line in answer["python"])
    exec("\n".join(answer["python"]), {})
    assert "[[" in capsys.readouterr().out


def test_several_classes_and_plain_columns(tmp_path):
    X, y = load_iris(return_X_y=True)
    path = tmp_path / "iris.parquet"
    pl.DataFrame({f"x{i}": X[:, i] for i in range(4)} | {"species": y}).write_parquet(path)
    answer = json.loads(run(path, "--target", "species", "--no-scale", "--json"))
    assert answer["classes"] == [0, 1, 2] and len(answer["steps"]) == 3
    assert "scale" not in "".join(answer["python"])


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        ("a,target\n1,x\n2,x\n", [], "column 'target' holds a single class"),
        ("a,target\n1,x\noops,y\n", [], "column 'a', row 2: 'oops' is not a number"),
        ("a,b\n1,x\n2,y\n", [], "has no column 'target'"),
        ("a,target\n1,x\n2,y\n", ["--c", "0"], "error: --c must be greater than 0"),
        ("a,target\n1,x\n2,y\n", ["--rows", "0"], "error: --rows must be at least 1"),
        ("a,target\n1,x\n2,y\n", ["--seed", "-1"], "error: --seed must be at least 0"),
    ],
)
def test_bad_files_and_options_end_with_one_line(tmp_path, content, arguments, words):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    message = run(path, *arguments, code=2)
    assert message.startswith("error: ") and message.count("\n") == 1
    assert re.search(words, message)


def test_suggestions_fit_the_files_and_run(cancer, tmp_path):
    line = suggest([head(cancer)])
    assert line is not None
    command = shlex.split(line)
    assert command[:3] == ["theses", "apply", "subsampled-newton"]
    run(*command[3:])
    points, named = tmp_path / "points.csv", tmp_path / "named.csv"
    points.write_text("x,z\n1,2\n")
    named.write_text("name,x,target\na,1,2\n")
    assert suggest([head(points)]) is None
    assert suggest([head(named)]) is None
    assert suggest([head(cancer), head(points)]) is None
