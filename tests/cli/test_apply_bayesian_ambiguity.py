from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from theses.cli.apply.bayesian_ambiguity import apply, suggest
from theses.cli.errors import friendly
from theses.datasets.files import head
from theses.datasets.returns import load_weekly_returns
from theses.decision.bayesian_ambiguity import RobustPortfolio

app = typer.Typer()
app.command()(friendly(apply))


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


@pytest.fixture
def returns(tmp_path: Path) -> Path:
    path = tmp_path / "my returns.csv"
    load_weekly_returns(5).to_frame()[-80:].write_csv(path)
    return path


def test_weights_worst_case_radius_and_yardsticks(returns, tmp_path):
    out = tmp_path / "weights.csv"
    answer = json.loads(run(returns, "--radius", "auto", "-o", out, "--json"))
    X = load_weekly_returns(5).values[-80:]
    portfolio = RobustPortfolio().fit(X)
    assert list(answer["weights"].values()) == pytest.approx(portfolio.weights_)
    assert answer["worst_case_loss"] == pytest.approx(portfolio.worst_case_value_)
    assert answer["radius"] == pytest.approx(portfolio.epsilon_)
    assert answer["radius"] > answer["least_radius"] == pytest.approx(portfolio.G_)
    assert answer["radius_chosen"].startswith("auto: takes in the true law with posterior probability 0.95")
    written = pl.read_csv(out)
    assert written["asset"].to_list() == list(answer["weights"])
    assert written["weight"].sum() == pytest.approx(1)
    # The yardsticks are fitted without the last rows and judged on these.
    assert answer["holdout"] == 16
    equal = answer["yardstick"]["equal weights"]
    assert equal["mean"] == pytest.approx(X[-16:].mean())
    assert equal["standard_error"] == pytest.approx(X[-16:].mean(axis=1).std(ddof=1) / 4)
    robust = answer["yardstick"]["robust (this method)"]
    assert robust["mean"] == pytest.approx((X[-16:] @ RobustPortfolio().fit(X[:-16]).weights_).mean())
    rival = answer["yardstick"]["mean-variance, aversion 5"]
    assert rival["deviation"] > 0 and len(answer["yardstick"]) == 4
    text = run(returns)
    for words in ("80 periods, 5 assets", "at least", "(auto: ", "equal weights", "the same in Python"):
        assert words in text


def test_the_python_lines_do_the_same(returns, capsys):
    answer = json.loads(run(returns, "--radius", 0.4, "--max-weight", 0.5, "--json"))
    exec("\n".join(answer["python"]), {})
    printed = capsys.readouterr().out
    assert f"{answer['worst_case_loss']:.10f}"[:9] in printed
    assert max(answer["weights"].values()) <= 0.5 + 1e-9
    assert answer["radius"] == 0.4 and answer["radius_chosen"] == "given"


def test_prices_give_the_answer_of_their_returns(returns, tmp_path):
    frame = pl.read_csv(returns)
    levels = np.cumprod(1 + np.vstack([np.zeros(5), frame.drop("date").to_numpy()]), axis=0)
    path = tmp_path / "prices.csv"
    pl.DataFrame(levels, schema=frame.columns[1:]).write_csv(path)
    from_prices = json.loads(run(path, "--prices", "--json"))
    assert from_prices["weights"] == pytest.approx(json.loads(run(returns, "--json"))["weights"], abs=1e-5)
    exec("\n".join(from_prices["python"]), {})


def test_the_other_model_is_offered(returns):
    answer = json.loads(run(returns, "--model", "normal_inverse_wishart", "--level", 0.5, "--json"))
    assert sum(answer["weights"].values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--radius", "0.001"], "--radius must be at least G = "),
        (["--radius", "wide"], "--radius must be auto or a number, got 'wide'"),
        (["--max-weight", "0.1"], "--max-weight must be at least 1 / 5"),
        (["--model", "student"], "--model must be one of"),
        (["--holdout", "79"], "--holdout must be between 1 and 77 of 80 rows, got 79"),
        (["--level", "1.5"], "--level must be less than 1"),
        (["-o", "weights.txt"], "weights.txt"),
    ],
)
def test_bad_options_are_named(returns, options, says):
    assert says in run(returns, *options, code=2)


def test_bad_files_are_named(tmp_path):
    assert "no such file" in run(tmp_path / "nowhere.csv", code=2)
    path = tmp_path / "returns.csv"
    path.write_text("a,b\n0.1,0.2\n0.1,nan\n0.1,0.1\n0.2,0.1\n")
    assert re.search(r"column 'b', row 2", run(path, code=2))
    path.write_text("a,b\n0.1,0.2\n0.1,0.1\n")
    assert "four periods or more are wanted, got 2" in run(path, code=2)


def test_suggests_itself_for_returns_and_prices(returns, tmp_path):
    command = suggest([head(returns)])
    assert command is not None
    words = shlex.split(command)
    assert words[:4] == ["theses", "apply", "bayesian-ambiguity", str(returns)]
    words[words.index("-o") + 1] = str(tmp_path / "weights.csv")
    run(*words[3:])
    prices = tmp_path / "prices.csv"
    prices.write_text("gold,oil\n1,2\n2,1\n")
    assert "--prices" in (suggest([head(prices)]) or "")
    points = tmp_path / "points.csv"
    points.write_text("x,y\n1,2\n")
    one = tmp_path / "return.csv"
    one.write_text("date,gold\n2024-01-01,0.1\n")
    lines = tmp_path / "returns.txt"
    lines.write_text("a\n")
    assert [suggest([head(path)]) for path in (points, one, lines)] == [None] * 3
    assert suggest([head(returns), head(points)]) is None
