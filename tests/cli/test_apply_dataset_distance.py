from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_digits, load_wine
from typer.testing import CliRunner

from theses.cli import app
from theses.cli.apply.dataset_distance import suggest
from theses.data.dataset_distance import otdd, sliced_dataset_distance
from theses.datasets.files import head


@pytest.fixture
def wine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Two halves of a table with named classes, in two formats."""
    data = load_wine()
    frame = pl.DataFrame(data.data, schema=list(data.feature_names)).with_columns(
        kind=pl.Series([str(data.target_names[t]) for t in data.target])
    )
    monkeypatch.chdir(tmp_path)
    a, b = frame[::2], frame[1::2]
    a.write_csv("a.csv")
    b.write_parquet("b.parquet")
    return a, b


def run(*arguments: str):
    return CliRunner().invoke(app, ["apply", "dataset-distance", *arguments, "--n-projections", "200"])


def answer(*arguments: str):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def arrays(frame: pl.DataFrame):
    return frame.drop("kind").to_numpy(), frame["kind"].rank("dense").cast(pl.Int64).to_numpy()


def test_answer_is_the_methods(wine):
    A, B = map(arrays, wine)
    got = answer("a.csv", "b.parquet", "--label", "kind")
    distance, error = sliced_dataset_distance(A, B, n_projections=200, generator=0, return_se=True)
    assert got["distance"] == pytest.approx(distance, rel=1e-9)
    assert got["standard_error"] == pytest.approx(error, rel=1e-9)
    assert got["otdd"]["value"] == pytest.approx(otdd(A, B), rel=1e-9)
    assert got["otdd"]["max_samples"] is None
    assert [file["classes"] for file in got["files"]] == [3, 3]
    assert got["dominant_column"]["column"] == "proline"
    assert [row["what"] for row in got["yardstick"]] == [
        "a random half of A and one of B",
        "two random halves of A",
        "two random halves of B",
    ]
    for row in got["yardstick"]:
        assert 0 < row["standard_error"] < row["distance"]


@pytest.mark.parametrize("extra", [[], ["--standardize"], ["--seed", "3"]])
def test_printed_python_gives_the_printed_distance(wine, extra):
    wine[1].select(reversed(wine[1].columns)).write_parquet("b.parquet")  # columns in another order
    text = run("a.csv", "b.parquet", "--label", "kind", *extra)
    assert text.exit_code == 0, text.output
    code = re.split(r"The same in Python:\n", text.stdout)[1]
    names: dict[str, float] = {}
    exec("\n".join(line[2:] for line in code.splitlines()), names)
    assert f"distance {names['distance']:.4g} +- {names['error']:.2g}" in text.stdout
    assert answer("a.csv", "b.parquet", "--label", "kind", *extra)["distance"] == pytest.approx(
        names["distance"]
    )


def test_order_of_columns_does_not_count(wine):
    before = answer("a.csv", "b.parquet", "--label", "kind")
    wine[1].select(reversed(wine[1].columns)).write_parquet("b.parquet")
    assert answer("a.csv", "b.parquet", "--label", "kind")["distance"] == pytest.approx(before["distance"])


def test_text_says_distance_yardstick_and_exact_value(wine):
    text = run("a.csv", "b.parquet", "--label", "kind").stdout
    assert text.startswith("distance ")
    assert "two random halves of A" in text
    assert "times as far apart as two of one file" in text
    assert "exact OTDD on all rows" in text
    assert "'proline' makes up 98%" in text
    assert "'proline'" not in run("a.csv", "b.parquet", "--label", "kind", "--standardize").stdout


def test_a_changed_file_is_farther_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order].astype(int), y[order]
    names = [f"p{i}" for i in range(64)]
    pl.DataFrame(X[:600], schema=names).with_columns(target=y[:600]).write_csv("a.csv")
    np.savez("b.npz", p=X[600:1200], target=y[600:1200])
    np.savez("mixed.npz", p=X[600:1200], target=y[600:1200][::-1])
    near = answer("a.csv", "b.npz", "--label", "target")
    far = answer("a.csv", "mixed.npz", "--label", "target")
    assert far["distance"] > 1.5 * near["distance"]
    halves = [row["distance"] for row in near["yardstick"]]
    assert halves[0] < 1.5 * max(halves[1:])  # one draw, cut in three: no farther than chance takes halves


def test_large_files_are_subsampled_for_the_exact_distance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        np.savez(f"{name}.npz", x=rng.normal(size=(1_100, 3)), y=rng.integers(0, 2, 1_100))
    assert answer("a.npz", "b.npz", "--label", "y")["otdd"]["max_samples"] == 1_000
    assert "up to 1,000 random rows" in run("a.npz", "b.npz", "--label", "y").stdout


def test_output_is_written(wine):
    for name in ("out.csv", "out.json", "out.parquet"):
        assert run("a.csv", "b.parquet", "--label", "kind", "-o", name).exit_code == 0
    written = pl.read_csv("out.csv")
    assert written.columns == ["what", "distance", "standard_error"]
    assert written["what"][0] == "A and B"
    assert pl.read_parquet("out.parquet").equals(written)
    assert not list(Path.cwd().glob("*.part"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: None, "error: a.csv: has no column 'grade'"),
        (lambda: Path("a.csv").unlink(), "error: a.csv: no such file"),
        (
            lambda: Path("a.csv").write_text("x,grade\n1,u\nn/a,u\n"),
            "error: a.csv: column 'x', row 2: 'n/a' is not a number",
        ),
        (
            lambda: (
                Path("a.csv").write_text("x,z,grade\n1,2,u\n"),
                pl.DataFrame({"x": [1.0], "grade": ["u"]}).write_parquet("b.parquet"),
            ),
            "error: b.parquet: has no column 'z', which a.csv has",
        ),
        (
            lambda: (
                Path("a.csv").write_text("x,grade\n0,u\n"),
                pl.DataFrame({"x": [0.0], "grade": ["u"]}).write_parquet("b.parquet"),
            ),
            "error: scale='pooled' needs features that are not all zero",
        ),
    ],
)
def test_bad_files_are_refused(wine, change, message):
    change()
    result = run("a.csv", "b.parquet", "--label", "grade")
    assert result.exit_code == 2
    assert message in result.stderr
    assert not result.stdout


def test_single_rows_have_no_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("x,grade\n1,u\n")
    Path("b.csv").write_text("x,grade\n2,u\n")
    result = run("a.csv", "b.csv", "--label", "grade")
    assert result.exit_code == 0, result.output
    assert "no halves" in result.stdout


def test_suggestion_runs(wine):
    heads = [head("a.csv"), head("b.parquet")]
    line = suggest(heads)
    assert line == "theses apply dataset-distance a.csv b.parquet --label kind"
    assert CliRunner().invoke(app, shlex.split(line)[1:]).exit_code == 0
    assert suggest(heads[:1]) is None
    pl.DataFrame({"x": [1.0], "Target": [1]}).write_csv("c.csv")
    assert suggest([head("a.csv"), head("c.csv")]) is None
    assert (
        suggest([head("c.csv"), head("c.csv")]) == "theses apply dataset-distance c.csv c.csv --label Target"
    )
    pl.DataFrame({"x": [1.0], "z": [1]}).write_csv("d.csv")
    assert suggest([head("d.csv"), head("d.csv")]) is None
    Path("words.txt").write_text("a\nb\n")
    assert suggest([head("words.txt"), head("words.txt")]) is None
