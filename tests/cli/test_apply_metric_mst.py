from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from scipy.sparse import csgraph
from scipy.spatial.distance import cdist
from typer.testing import CliRunner

import theses.cli.apply.metric_mst as command
from theses.cli.apply.metric_mst import apply, suggest
from theses.cli.errors import friendly
from theses.datasets.files import head
from theses.datasets.shakespeare import load_word_forms
from theses.datasets.swesat import answer_strings, load_swesat
from theses.graphs.metric_mst import approximate_mst

app = typer.Typer()
app.command()(friendly(apply))


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


@pytest.fixture
def points(tmp_path: Path) -> Path:
    path = tmp_path / "points.npy"
    np.save(path, np.random.default_rng(0).normal(size=(200, 3)))
    return path


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_text("\n".join(load_word_forms()[::80]) + "\n")
    return path


def test_points_get_a_tree_with_its_certificate(points, tmp_path):
    output = tmp_path / "tree.csv"
    answer = json.loads(run(points, "--metric", "euclidean", "-o", output, "--json"))
    X = np.load(points)
    D = cdist(X, X)
    assert answer["exact"]["weight"] == pytest.approx(csgraph.minimum_spanning_tree(D).sum())
    assert answer["exact"]["ratio"] == pytest.approx(answer["total_weight"] / answer["exact"]["weight"])
    assert 1 <= answer["exact"]["ratio"] <= answer["exact"]["guarantee"]
    assert answer["exact"]["guarantee"] == pytest.approx(2 * answer["exact"]["gamma"] + 1)
    assert answer["total_weight"] == pytest.approx(answer["forest_weight"] + answer["completion_weight"])
    assert answer["n_pairs"] == 200 * 199 // 2 > answer["n_distance_evaluations"]
    assert len(answer["component_sizes"]) == 14
    tree = pl.read_csv(output)
    assert tree.columns == ["i", "j", "weight", "part"]
    assert tree["weight"].sum() == pytest.approx(answer["total_weight"])
    np.testing.assert_allclose(tree["weight"], D[tree["i"], tree["j"]])


def test_text_shows_weight_certificate_yardstick_and_python(points):
    text = run(points, "--components", 10)
    assert "spanning tree of 200 objects, euclidean distance" in text
    assert "forest of 10 components" in text
    assert "at most 2.618 times the best completion" in text
    assert "Yardstick: the exact minimum spanning tree" in text
    assert "times as much" in text
    assert f"X = read_numbers({str(points)!r})" in text
    assert "tree = approximate_mst(X, 'euclidean', n_components=10)" in text


def test_the_python_lines_give_the_same_tree(words, points, tmp_path):
    table = tmp_path / "table.csv"
    pl.DataFrame(np.load(points), schema=["a", "b", "c"]).write_csv(table)
    for arguments in (
        [words, "--max-component-size", 60, "--representatives", 2],
        [words, "--metric", "jaccard_sets", "--seed", 3],
        [table, "--columns", "c,a", "--metric", "cityblock", "--components", 7],
    ):
        answer = json.loads(run(*arguments, "--json"))
        names: dict[str, object] = {}
        exec("\n".join(answer["python"]), names)
        tree = names["tree"]
        assert tree.total_weight == pytest.approx(answer["total_weight"])  # type: ignore[attr-defined]
        assert tree.n_distance_evaluations == answer["n_distance_evaluations"]  # type: ignore[attr-defined]
        assert len(names["linkage"]) == answer["n_objects"] - 1  # type: ignore[arg-type]


def test_lines_of_text_are_strings(words, tmp_path):
    answer = json.loads(run(words, "--json"))
    assert answer["metric"] == "levenshtein"
    assert answer["n_objects"] == len(words.read_text().split())
    answers = tmp_path / "answers"
    strings = answer_strings(load_swesat()[0][:150])
    answers.write_text("\n".join(strings))
    answer = json.loads(run(answers, "--metric", "hamming_str", "--json"))
    assert answer["total_weight"] == approximate_mst(strings, "hamming_str").total_weight
    assert "one component holds most objects" in run(answers, "--metric", "hamming_str", "--components", 2)


def test_distances_may_be_given(points, tmp_path):
    X = np.load(points)
    matrix = tmp_path / "distances.npy"
    np.save(matrix, cdist(X, X))
    given = json.loads(run(matrix, "--metric", "precomputed", "--json"))
    assert given["total_weight"] == pytest.approx(json.loads(run(points, "--json"))["total_weight"])


def test_a_tree_of_one_object_and_of_equal_ones(tmp_path):
    path = tmp_path / "same.csv"
    path.write_text("a,b\n1,2\n")
    assert json.loads(run(path, "--json"))["total_weight"] == 0
    assert "spanning tree of 1 objects" in run(path)
    path.write_text("a,b\n" + "1,2\n" * 9)
    answer = json.loads(run(path, "--json", "--components", 5))
    assert (answer["total_weight"], answer["exact"]["ratio"], answer["exact"]["gamma"]) == (0, 1.0, 1.0)


def test_edges_go_into_numbers_only(points, tmp_path):
    output = tmp_path / "tree.npy"
    run(points, "-o", output)
    assert np.load(output).shape == (199, 3)


def test_the_exact_tree_is_left_out_where_it_takes_too_long(points, monkeypatch):
    monkeypatch.setattr(command, "_EXACT_SECONDS", 0.0)
    answer = json.loads(run(points, "--json"))
    assert answer["exact"] is None
    assert answer["exact_seconds_predicted"] > 0
    assert "not computed: 19,900 distances would take about" in run(points)


def test_errors_name_file_column_and_row(points, words, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1,2\n3,x\n")
    assert "table.csv: column 'b', row 2: 'x' is not a number" in run(table, code=2)
    assert "has no column" in run(table, "--columns", "c", code=2) or "'c'" in run(
        table, "--columns", "c", code=2
    )
    assert "words.txt: holds lines of text, for which --metric" in run(words, "--metric", "cosine", code=2)
    assert "words.txt: holds lines of text, which have no --columns" in run(words, "--columns", "a", code=2)
    assert "points.npy: holds a table" in run(points, "--metric", "levenshtein", code=2)
    assert "metric must be one of" in run(points, "--metric", "euclid", code=2)
    assert "X must be a square matrix" in run(points, "--metric", "precomputed", code=2)
    assert "no such file" in run(tmp_path / "none.npy", code=2)
    assert "strings of one length" in run(words, "--metric", "hamming_str", code=2)


def test_suggests_a_line_that_runs(points, words, tmp_path):
    for path, metric in ((points, "euclidean"), (words, "levenshtein")):
        line = suggest([head(path)])
        assert line == f"theses apply metric-mst {path} --metric {metric}"
        run(*shlex.split(line)[3:])
    spaced = tmp_path / "my points.csv"
    spaced.write_text("a,b\n1,2\n3,4\n")
    line = suggest([head(spaced)])
    assert line is not None
    run(*shlex.split(line)[3:])
    spaced.write_text("a,b\n1,x\n3,y\n")
    assert suggest([head(spaced)]) is None
    assert suggest([head(points), head(points)]) is None
    np.save(points, np.zeros((2, 2, 2)))
    assert suggest([head(points)]) is None
