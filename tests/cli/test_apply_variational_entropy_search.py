from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
import typer
from typer.testing import CliRunner

from theses.cli.apply.variational_entropy_search import apply, suggest
from theses.cli.errors import friendly
from theses.datasets.files import head

pytest.importorskip("botorch")

app = typer.Typer()
app.command()(friendly(apply))


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


@pytest.fixture
def trials(tmp_path: Path) -> Path:
    # A bowl with its bottom at (0.7, 30).
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.uniform(0, 1, 12), rng.uniform(0, 100, 12)])
    loss = (x[:, 0] - 0.7) ** 2 + ((x[:, 1] - 30) / 100) ** 2
    path = tmp_path / "past trials.csv"
    pl.DataFrame({"rate": x[:, 0], "width": x[:, 1], "loss": loss}).write_csv(path)
    return path


@pytest.fixture
def box(tmp_path: Path) -> Path:
    path = tmp_path / "bounds.csv"
    path.write_text("parameter,lower,upper\nwidth,0,100\nrate,0,1\n", encoding="utf-8")
    return path


def test_the_next_point_is_where_the_bowl_is_deep_and_python_says_the_same(trials, box, tmp_path, capsys):
    out = tmp_path / "next.csv"
    text = run(trials, "--objective", "loss", "--minimize", "--bounds", box, "--paths", 16, "-o", out)
    written = pl.read_csv(out)
    assert written.columns == ["rate", "width", "posterior_mean", "posterior_sd", "p_better", "k", "beta"]
    assert abs(written["rate"][0] - 0.7) < 0.25 and abs(written["width"][0] - 30) < 25
    assert abs(written["posterior_mean"][0]) < 0.1 and written["posterior_sd"][0] > 0
    assert "where LogEI would go" in text and "smallest loss" in text and "k = 1 is Expected" in text
    python = text.split("the same in Python\n")[1].split("\n\nwritten")[0]
    exec("\n".join(line[2:] for line in python.splitlines()), {})
    assert f"{written['rate'][0]:.3f}"[:4] in capsys.readouterr().out


def test_several_points_come_as_json(trials):
    frame = pl.read_csv(trials).with_columns(trial=pl.int_range(pl.len()))
    frame.write_csv(trials)
    options = ("--objective", "loss", "--minimize", "--input", "rate", "--input", "width", "-q", 2)
    answer = json.loads(run(trials, *options, "--paths", 8, "--json"))
    first, second = answer["next"]
    assert abs(first["rate"] - second["rate"]) + abs(first["width"] - second["width"]) / 100 > 1e-3
    assert answer["best"] == pytest.approx(frame["loss"].min())
    assert len(answer["yardstick"]["next"]) == 2
    assert answer["bounds"]["rate"] == [frame["rate"].min(), frame["rate"].max()]


def test_k_and_beta_are_those_of_the_paths_that_chose_the_points(trials, monkeypatch):
    from theses.decision.variational_entropy_search import loop

    chosen = []

    def kept(*arguments, **options):
        chosen.append(original(*arguments, **options))
        return chosen[-1]

    original = loop.VESGamma  # type: ignore[attr-defined]
    monkeypatch.setattr(loop, "VESGamma", kept)
    options = ("--objective", "loss", "--minimize", "-q", 2, "--paths", 8, "--json")
    answer = json.loads(run(trials, *options))
    (function,) = chosen
    points = torch.tensor([[row["rate"], row["width"]] for row in answer["next"]], dtype=torch.float64)
    for i, row in enumerate(answer["next"]):
        function.set_X_pending(points[:i] if i else None)
        k, beta = function.k_beta(points[i : i + 1])
        assert row["k"] == pytest.approx(float(k)) and row["beta"] == pytest.approx(float(beta))


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("a,y\n1,2\n2,3\n", ["--objective", "z"], "has no column 'z'; it has a, y"),
        ("a,y\n1,2\n", ["--objective", "y"], "at least 2 trials"),
        ("a,y\n1,2\nx,3\n", ["--objective", "y"], "column 'a', row 2: 'x' is not a number"),
        ("a,y\n1,2\n1,3\n", ["--objective", "y"], "column 'a' has the one value 1"),
        ("a,y\n1,2\n2,\n", ["--objective", "y"], "column 'y', row 2: the cell is empty"),
        ("a,y\n1,2\n2,3\n", ["--objective", "y", "-q", "0"], "-q must be at least 1"),
        ("a,y\n1,2\n2,3\n", ["--objective", "y", "--input", "y"], "inputs must be other columns"),
    ],
)
def test_bad_files_and_options_are_named(tmp_path, content, options, message):
    path = tmp_path / "bad.csv"
    path.write_text(content, encoding="utf-8")
    assert message in run(path, *options, code=2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("parameter,lower,upper\nrate,0,1\n", "column 'parameter' must list 'width' once, got 0"),
        ("parameter,lower,upper\nrate,1,0\nwidth,0,9\n", "column 'lower', row 1: rate has no range"),
        ("name,lower,upper\nrate,0,1\n", "has no column 'parameter'"),
    ],
)
def test_bad_bounds_are_named(trials, tmp_path, content, message):
    path = tmp_path / "box.csv"
    path.write_text(content, encoding="utf-8")
    assert message in run(trials, "--objective", "loss", "--bounds", path, code=2)


def test_a_command_is_suggested_for_trials_only(trials, tmp_path):
    def suggested(content: str) -> str | None:
        path = tmp_path / "some.csv"
        path.write_text(content, encoding="utf-8")
        return suggest([head(path)])

    words = shlex.split(suggest([head(trials)]) or "")
    assert words[3:] == [str(trials), "--objective", "loss", "--minimize"]
    command = suggested("trial,a,b,y\n1,2,3,4\n")
    assert command is not None and command.endswith("--objective y --input a --input b")
    assert suggested("a,b,c\n1,2,3\n") is None
    assert suggested("a,name,y\n1,x,3\n") is None
    assert suggested("loss\n1\n") is None
    assert suggest([head(trials), head(trials)]) is None
