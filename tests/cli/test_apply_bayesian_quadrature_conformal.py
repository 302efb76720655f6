from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from scipy import stats
from typer.testing import CliRunner

from theses.cli.apply.bayesian_quadrature_conformal import apply, suggest
from theses.cli.errors import friendly
from theses.datasets.files import head
from theses.trust.bayesian_quadrature_conformal import RiskPosterior, select_lambda

app = typer.Typer()
app.command()(friendly(apply))


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


@pytest.fixture
def misses(tmp_path: Path) -> Path:
    path = tmp_path / "misses.csv"
    pl.DataFrame({"miss": [1] * 3 + [0] * 97}).write_csv(path)
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    scores = np.random.default_rng(0).random((300, 4))
    path = tmp_path / "loss table.csv"
    lambdas = np.round(np.linspace(1, 0, 21), 2)
    pl.DataFrame({f"lambda={lam}": (scores > lam).mean(axis=1) for lam in lambdas}).write_csv(path)
    return path


def test_one_column_gets_a_bound_and_a_verdict(misses):
    answer = json.loads(run(misses, "--alpha", 0.1, "--beta", 0.95, "--json"))
    assert answer["certified"] and answer["exact"]
    assert answer["quantile"] == pytest.approx(stats.beta.ppf(0.95, 4, 97))
    assert answer["probability_below_alpha"] == pytest.approx(stats.beta.cdf(0.1, 4, 97))
    assert answer["yardstick"]["crc"]["bound"] == pytest.approx(4 / 101)
    assert answer["yardstick"]["rcps-hoeffding"]["bound"] == pytest.approx(
        0.03 + np.sqrt(np.log(20) / 200), abs=1e-9
    )
    assert not answer["yardstick"]["rcps-hoeffding"]["holds"]
    text = run(misses)
    assert "yes: below 0.1 with probability 0.9922" in text
    assert "RCPS with Hoeffding's bound" in text and "bound 0.1524 > 0.1" in text
    assert "not certified: below 0.05" in run(misses, "--alpha", 0.05)


def test_the_python_lines_do_the_same(misses, table, capsys):
    for file, key in ((misses, "quantile"), (table, "lambda")):
        answer = json.loads(run(file, "--alpha", 0.2, "--json"))
        exec("\n".join(answer["python"]), {})
        assert f"{answer[key]:.10g}"[:8] in capsys.readouterr().out
        shown = run(file, "--alpha", 0.2)
        assert all(line.rstrip() in shown for line in answer["python"])


def test_a_column_can_be_named_and_losses_graded(tmp_path):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"case": list(range(80)), "loss": 5 * rng.random(80)})
    path = tmp_path / "losses.parquet"
    frame.write_parquet(path)
    answer = json.loads(run(path, "--column", "loss", "--max-loss", 5, "--alpha", 3, "--seed", 4, "--json"))
    posterior = RiskPosterior(frame["loss"].to_numpy(), 5.0, random_state=4)
    assert answer["quantile"] == posterior.quantile(0.95)
    assert answer["mean"] == pytest.approx((frame["loss"].sum() + 5) / 81)
    safe = json.loads(
        run(path, "--column", "loss", "--max-loss", 5, "--alpha", 3, "--seed", 4, "--conservative", "--json")
    )
    assert safe["quantile"] > answer["quantile"]


def test_draws_too_few_for_the_probability_certify_nothing(tmp_path):
    # All of 1,000 draws are below alpha, which says nothing of the 0.9999-quantile.
    path = tmp_path / "losses.csv"
    pl.DataFrame({"loss": 0.1 * np.random.default_rng(0).random(50)}).write_csv(path)
    options = ["--alpha", 0.3, "--beta", 0.9999]
    message = run(path, *options, "--draws", 1_000, code=2)
    assert "--draws must be at least 10000 for a probability of 0.9999" in message
    assert json.loads(run(path, *options, "--draws", 100_000, "--json"))["certified"]
    safe = run(path, *options, "--draws", 10_000, "--conservative", code=2)
    assert "--draws must be at least 69075" in safe


def test_nothing_is_certain(table):
    assert "with probability nearly 1 (wanted 0.95)" in run(table, "--column", "lambda=0.5", "--alpha", 0.9)
    assert "P(bound <= 0.1): nearly 1" in run(table)


def test_a_table_gets_its_lambda(table):
    frame = pl.read_csv(table)
    answer = json.loads(run(table, "--alpha", 0.25, "--json"))
    lambdas = [float(name.removeprefix("lambda=")) for name in frame.columns]
    choice = select_lambda(frame.to_numpy(), lambdas, 0.25, n_samples=10_000, random_state=0)
    assert answer["lambda"] == choice.lambda_
    assert answer["quantile"] <= 0.25
    yardstick = answer["yardstick"]
    crc, rcps = yardstick["crc"]["lambda"], yardstick["rcps-hoeffding"]["lambda"]
    assert crc <= answer["lambda"] <= rcps and crc < rcps
    text = run(table, "--alpha", 0.25)
    assert f"lambda               {choice.lambda_:g}: risk below 0.25 with probability 0.95" in text


def test_names_may_be_plain_numbers_where_the_file_can_tell_them_apart(table, tmp_path):
    frame = pl.read_csv(table)
    path = tmp_path / "table.parquet"
    frame.rename({name: name.removeprefix("lambda=") for name in frame.columns}).write_parquet(path)
    plain, named = (json.loads(run(file, "--alpha", 0.25, "--json")) for file in (path, table))
    assert plain["lambda"] == named["lambda"]


def test_the_answer_is_written(misses, table, tmp_path):
    run(misses, "-o", tmp_path / "risk.csv")
    written = pl.read_csv(tmp_path / "risk.csv")
    assert written.columns == ["risk", "probability"] and written["probability"].is_sorted()
    text = run(table, "--alpha", 0.25, "-o", tmp_path / "lambdas.parquet")
    assert f"written: {tmp_path / 'lambdas.parquet'}" in text
    rows = pl.read_parquet(tmp_path / "lambdas.parquet")
    assert rows["lambda"].is_sorted() and rows["chosen"].sum() == 1
    expected = pl.read_csv(table).to_numpy()[:, ::-1].mean(axis=0) * 300 / 301 + 1 / 301
    np.testing.assert_allclose(rows["crc_bound"], expected)
    assert (rows["bound"] >= rows["crc_bound"]).all()


def test_no_certificate_is_an_answer(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("lambda=0.1,lambda=0.2\n0,0\n0,0\n")
    answer = json.loads(run(path, "--json"))
    assert answer["lambda"] is None and not answer["certified"] and answer["safest_lambda"] == 0.2
    assert "none of 2 is certified; the safest is 0.2" in run(path)
    assert "no lambda, bound" in run(path)


def test_losses_that_grow_need_consent(tmp_path):
    path = tmp_path / "grows.csv"
    path.write_text("lam=0.1,lam=0.2,lam=0.3\n" + "0,0,0\n" * 400 + "0,1,0\n")
    message = run(path, code=2)
    assert "grows.csv" in message and "row 400" in message and "--not-monotone" in message
    answer = json.loads(run(path, "--not-monotone", "--json"))
    assert answer["certified"] and "crc" not in answer["yardstick"]


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        (
            "loss\n0.5\n1.5\n",
            [],
            r"'loss', row 2: a loss lies between 0 and 1 \(--max-loss\), got 1.5",
        ),
        ("loss\n0.5\n-0.5\n", [], "column 'loss', row 2: a loss lies between"),
        ("loss\n0.5\nx\n", [], "column 'loss', row 2: 'x' is not a number"),
        ("a,b\n0,1\n", [], "columns 'a', 'b': give --column NAME"),
        ("a,b\n0,1\n", ["--column", "c"], "'c'"),
        ("0.1,0.2\n0,1\n", [], "columns of lambdas are named lambda=0.5"),
        ("lambda=1,lambda=1.0\n0,1\n", [], "give --column NAME"),
        ("loss\n0.5\n", ["--alpha", "1"], "error: --alpha must be less than 1"),
        ("loss\n0.5\n", ["--beta", "1.5"], "error: --beta must be less than 1"),
        ("loss\n0.5\n", ["--max-loss", "0"], "error: --max-loss must be greater than 0"),
        ("loss\n0.5\n", ["--draws", "0"], "error: --draws must be at least 1"),
        ("loss\n0.5\n", ["--seed", "-1"], "error: --seed must be at least 0"),
        ("loss\n0.5\n", ["--not-monotone"], "--not-monotone is for a table"),
        ("loss\n", [], "holds no rows"),
    ],
)
def test_bad_files_and_options_end_with_one_line(tmp_path, content, arguments, words):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    message = run(path, *arguments, code=2)
    assert message.startswith("error: ") and message.count("\n") == 1
    assert re.search(words, message)


def test_suggestions_fit_the_files_and_run(misses, table, tmp_path):
    mixed = tmp_path / "mixed.csv"
    mixed.write_text("case,Loss\na,0.1\nb,0.2\n")
    points = tmp_path / "points.csv"
    points.write_text("x,y\n1,2\n")
    words = tmp_path / "words.txt"
    words.write_text("0.1\n0.2\n")
    for file in (misses, table, mixed):
        line = suggest([head(file)])
        assert line is not None
        command = shlex.split(line)
        assert command[:3] == ["theses", "apply", "bayesian-quadrature-conformal"]
        run(*command[3:])
    assert suggest([head(points)]) is None
    assert suggest([head(words)]) is None
    assert suggest([head(misses), head(table)]) is None
