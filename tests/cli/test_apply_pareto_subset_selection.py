from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from theses.cli.apply.pareto_subset_selection import apply, suggest
from theses.cli.errors import friendly
from theses.datasets.files import head
from theses.problems.coverage import flight_sets, les_miserables

app = typer.Typer()
app.command()(friendly(apply))


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty aircraft, the weeks of a destination they served, dearer the more they did."""
    sets, tails = flight_sets(20)
    rows = [
        {"item": tail, "element": int(e), "weight": 1 + int(e) % 3, "cost": 1 + len(served) / 50}
        for tail, served in zip(tails, sets, strict=True)
        for e in served
    ]
    path = tmp_path_factory.mktemp("sets") / "sets.csv"
    pl.DataFrame(rows).write_csv(path)
    return path


@pytest.fixture
def network(tmp_path: Path) -> Path:
    graph = les_miserables()
    named = [(graph.labels[u], graph.labels[v]) for u, v in graph.edges]
    path = tmp_path / "les miserables.csv"
    pl.DataFrame(named, schema=["source", "target"], orient="row").write_csv(path)
    return path


def test_coverage_is_chosen_with_its_certificate(flights, tmp_path):
    chosen, front = tmp_path / "chosen.csv", tmp_path / "front.csv"
    answer = json.loads(run(flights, "--budget", 20, "-o", chosen, "--front", front, "--json"))
    written = pl.read_csv(chosen)
    assert written["item"].to_list() == answer["items"]
    assert written["cost"].sum() == pytest.approx(answer["cost"]) and answer["cost"] <= 20
    table = pl.read_csv(flights)
    covered = table.filter(pl.col("item").is_in(answer["items"])).unique("element")["weight"].sum()
    assert answer["value"] == covered
    exact = next(entry for entry in answer["yardsticks"] if entry["algorithm"] == "exact")
    assert exact["proven_optimal"] and answer["value"] <= exact["value"] <= answer["optimum_at_most"] + 1e-6
    assert answer["certified_share"] == pytest.approx(answer["value"] / exact["value"])
    assert answer["guarantee"] == 0.6174
    steps = pl.read_csv(front)
    assert steps["cost"].is_sorted() and steps["value"].is_sorted() and max(steps["cost"].to_list()) <= 20


def test_the_python_lines_do_the_same(flights, network, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"item": ["Valjean", "Javert"], "cost": [5.0, 3.0]}).write_csv("costs.csv")
    for arguments in (
        (flights, "--budget", 12),
        (
            network,
            "--influence",
            "--budget",
            8,
            "--costs",
            "costs.csv",
            "--evaluations",
            2_000,
            "--exact-seconds",
            0,
        ),
        (
            network,
            "--influence",
            "--directed",
            "--budget",
            4,
            "--algorithm",
            "pomc",
            "--evaluations",
            2_000,
            "--exact-seconds",
            0,
        ),
    ):
        answer = json.loads(run(*arguments, "--json"))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec("\n".join(answer["python"]), {})
        summary, items = printed.getvalue().splitlines()
        assert f"value {answer['algorithm_value']:.6g} " in summary
        if answer["found_by"] == answer["algorithm"]:
            assert items == str(answer["items"])


def test_influence_is_reported_from_fresh_cascades(network):
    answer = json.loads(
        run(network, "--influence", "--budget", 5, "--evaluations", 5_000, "--exact-seconds", 0, "--json")
    )
    assert answer["cost"] <= 5 and len(answer["items"]) == 5
    assert 0 < answer["standard_error"] < 0.1
    # The search's own samples flatter what was chosen in them, but not by much.
    assert answer["value"] == pytest.approx(answer["search_value"], rel=0.05)
    assert answer["value"] != answer["search_value"]
    assert [entry["algorithm"] for entry in answer["yardsticks"]] == [
        "generalized greedy",
        "Greedy+Max",
        "one-guess Greedy+",
    ]
    text = run(network, "--influence", "--budget", 5, "--evaluations", 5_000, "--exact-seconds", 0)
    assert "fresh cascades" in text and "certificate" in text and "generalized greedy" in text


def test_probabilities_of_the_file_count(tmp_path):
    path = tmp_path / "net.csv"
    path.write_text("source,target,probability\na,b,1\nb,c,1\nd,e,0\n")
    answer = json.loads(run(path, "--influence", "--directed", "--budget", 1, "--json"))
    assert answer["items"] == ["a"] and answer["value"] == 3 and answer["standard_error"] == 0


def test_the_budget_defaults_to_a_tenth(flights):
    answer = json.loads(run(flights, "--json", "--evaluations", 500, "--exact-seconds", 0))
    table = pl.read_csv(flights).unique("item")
    assert answer["budget"] == pytest.approx(table["cost"].sum() / 10)
    text = run(flights, "--evaluations", 500, "--exact-seconds", 0)
    assert "What smaller budgets buy" in text and "The same in Python" in text


@pytest.mark.parametrize(
    ("content", "arguments", "says"),
    [
        ("item,other\na,x\n", (), "has no column 'element'"),
        ("item,element\na,x\n,y\n", (), "column 'item', row 2: the cell is empty"),
        ("item,element,cost\na,x,1\na,y,2\n", (), "column 'cost', row 2: item 'a' has 2, before it had 1"),
        ("item,element,weight\na,x,1\nb,x,3\n", (), "row 2: element 'x' has 3, before it had 1"),
        ("item,element,cost\na,x,-1\n", (), "column 'cost', row 1: -1 is negative"),
        ("item,element,cost\na,x,dear\n", (), "column 'cost', row 1: 'dear' is not a number"),
        ("item,element\na,x\n", ("--budget", -1), "budget"),
        ("item,element\na,x\n", ("--algorithm", "best"), "--algorithm must be epol or pomc"),
        ("source,target\na,a\n", ("--influence",), "row 1: 'a' is source and target"),
        ("source,target,probability\na,b,2\n", ("--influence",), "row 1: 2 is not between 0 and 1"),
        ("item,element\na,x\n", ("--influence",), "has no column 'source'"),
    ],
)
def test_bad_files_are_named(content, arguments, says, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    assert says in run(path, *arguments, code=2)


def test_costs_of_unknown_items_are_named(flights, tmp_path):
    costs = tmp_path / "costs.csv"
    costs.write_text("item,cost\nnobody,1\n")
    assert "row 1: 'nobody' is not in the other file" in run(flights, "--costs", costs, code=2)


def test_suggestions_fit_the_columns(flights, network, tmp_path):
    assert suggest([head(flights)]) == f"theses apply pareto-subset-selection {flights}"
    assert suggest([head(network)]) == f"theses apply pareto-subset-selection '{network}' --influence"
    other = tmp_path / "other.csv"
    pl.DataFrame(np.ones((3, 2)), schema=["a", "b"]).write_csv(other)
    assert suggest([head(other)]) is None and suggest([head(flights), head(network)]) is None
