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

from theses.catalogue import lookup
from theses.catalogue.start import fill, start_path
from theses.cli.apply.equal_share import apply, suggest
from theses.cli.errors import friendly
from theses.datasets.files import head
from theses.games.equal_share import MajorityVote, SwitchDominance, equal_share_bound

app = typer.Typer()
app.command()(friendly(apply))


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


def write(path: Path, description: object) -> Path:
    path.write_text(json.dumps(description))
    return path


def rows(game=None) -> list[dict[str, object]]:
    game = game or MajorityVote()
    return [
        {"action": name, "others": k, "payoff": game.payoff(a, k)}
        for a, name in enumerate(("left", "right"))
        for k in ([2, 0], [1, 1], [0, 2])
    ]


@pytest.fixture
def vote(tmp_path: Path) -> Path:
    description = {"n_players": 3, "actions": ["left", "right"], "payoffs": rows(), "population": [0.3, 0.7]}
    return write(tmp_path / "the vote.json", description)


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    draws = np.where(rng.random((1_200, 2)) < 0.3, "left", "right")
    path = tmp_path / "seen.csv"
    pl.DataFrame({"north": draws[:, 0], "south": draws[:, 1]}).write_csv(path)
    return path


def test_a_named_game_against_a_population(tmp_path):
    file = write(
        tmp_path / "game.json",
        {"game": "switch-dominance", "n_players": 30, "population": [0.399, 0.6, 0.001]},
    )
    answer = json.loads(run(file, "--rounds", 2_000, "--json"))
    game = SwitchDominance()
    np.testing.assert_allclose(answer["action_values"], game.action_values([0.399, 0.6, 0.001]))
    assert answer["best_response"] == "B" and answer["recommended"] == "hedge"
    learners = {entry["learner"]: entry for entry in answer["learners"]}
    assert learners["hedge"]["payoff"] > 0.9
    assert abs(learners["cloning"]["payoff"]) < 0.1
    assert learners["cloning"]["guaranteed"] == pytest.approx(
        -equal_share_bound("cloning", 2_000, 3, 0.05**4, 1.0, payoff_range=2.5)
    )
    assert all(entry["misses"] and entry["payoff"] < -1.5 for entry in answer["yardstick"])
    assert answer["exploitability"] < -1


def test_a_table_of_payoffs_and_its_text(vote):
    text = run(vote, "--rounds", 500)
    assert "3 players, actions left, right: symmetric, payoffs add up to 0" in text
    assert "best response        right, +0.12" in text
    assert "take                 Hedge (--want exploit)" in text
    assert "take                 cloning" in run(vote, "--rounds", 500, "--want", "safe")
    assert "take                 SAOL-Hedge" in run(vote, "--rounds", 500, "--variation", 3)


def test_the_python_lines_do_the_same(vote, seen, capsys, tmp_path):
    floats, spaced = tmp_path / "floats.csv", tmp_path / "spaced.csv"
    floats.write_text("a,b\n" + "0.0,1.0\n1.0,1.0\n" * 20)
    spaced.write_text("a,b\n" + '"left "," right"\n' * 20)
    for options in (
        ["--rounds", 300],
        ["--opponents", seen],
        ["--opponents", floats],
        ["--opponents", spaced],
    ):
        answer = json.loads(run(vote, *options, "--json"))
        exec("\n".join(answer["python"]), {})
        printed = capsys.readouterr().out
        assert str(answer["exploitability"]) in printed
        hedge = next(entry for entry in answer["learners"] if entry["learner"] == "hedge")
        assert f"average payoff {hedge['payoff']:+.4g} (s.e. {hedge['std_error']:.2g})" in printed


def test_observed_opponents_are_estimated_and_replayed(vote, seen, tmp_path):
    answer = json.loads(run(vote, "--opponents", seen, "--json"))
    assert answer["rounds"] == 1_200
    frame = pl.read_csv(seen)
    share = np.mean(frame.to_numpy() == "left")
    assert answer["observed"]["population"][0] == pytest.approx(share)
    assert answer["population"] == [0.3, 0.7]  # what is given holds
    assert answer["observed"]["variation"] == 0.0 and answer["recommended"] == "hedge"
    hedge = next(entry for entry in answer["learners"] if entry["learner"] == "hedge")
    counts = np.column_stack([(frame == "left").sum_horizontal(), (frame == "right").sum_horizontal()])
    best = MajorityVote().action_values_counts(counts).mean(axis=0).max()
    assert best - 0.1 < hedge["payoff"] <= best + 0.02
    turned = tmp_path / "turned.csv"
    pl.DataFrame({name: np.repeat([0, 1, 0, 1], 300) for name in ("a", "b")}).write_csv(turned)
    moving = json.loads(run(vote, "--opponents", turned, "--json"))
    assert moving["recommended"] == "saol"
    assert moving["observed"]["variation"] == pytest.approx(6)


def test_the_table_of_learners_is_written(vote, tmp_path):
    output = tmp_path / "learners.csv"
    assert f"written: {output}" in run(vote, "--rounds", 100, "-o", output)
    assert pl.read_csv(output)["learner"].to_list() == ["hedge", "saol", "cloning"]


def test_a_tensor_that_is_not_symmetric_is_refused(tmp_path):
    tensor = np.zeros((3, 2, 2, 2))
    tensor[:, 0, 1, 1] = [-1.0, 1.0, 0.0]
    message = run(write(tmp_path / "bent.json", {"tensor": tensor.tolist()}), code=2)
    assert re.search(r"bent.json: tensor must be a symmetric game's: in the profile \(0, 1, 1\)", message)


@pytest.mark.parametrize(
    ("description", "arguments", "words"),
    [
        (
            {
                "n_players": 3,
                "payoffs": [*rows()[:5], {**rows()[5], "payoff": 1.0}],
                "actions": ["left", "right"],
            },
            [],
            "payoff must add up to 0 over all players, got 3 when 3 of 3 choose 'right'",
        ),
        ({"game": "poker"}, [], "game must be one of 'majority-vote'"),
        ({"game": "majority-vote", "decks": 2}, [], "parameters of 'majority-vote' only"),
        ({"game": "majority-vote", "population": [0.5, 0.6]}, [], "must sum to 1"),
        ({"game": "majority-vote", "population": [1.0]}, [], "population must have 2 probabilities"),
        ({"players": 3}, [], "one of 'game', 'payoffs' and 'tensor'"),
        ([1, 2], [], "expected a JSON object"),
        ({"game": "switch-dominance", "scale": 10**400}, [], "within the range of floats"),
        ({"game": "rock-paper-scissors", "n_actions": 10**9 + 1}, [], "n_actions must be at most"),
        ({"game": "majority-vote", "population": [float("nan"), 1.0]}, [], "must be finite"),
        ({"game": "majority-vote"}, ["--want", "all"], "--want must be safe or exploit"),
    ],
)
def test_bad_files_end_with_one_line(tmp_path, description, arguments, words):
    message = run(write(tmp_path / "bad.json", description), *arguments, code=2)
    assert message.startswith("error: ") and message.count("\n") == 1
    assert words in message


def test_bad_tables_and_no_json(vote, tmp_path):
    path = tmp_path / "no.json"
    path.write_text('{"game": \n')
    assert "no.json: line" in run(path, code=2)
    for text in ("[" * 100_000, '{"game": ' + "1" * 5_000 + "}"):
        path.write_text(text)
        message = run(path, code=2)
        assert "no.json: no JSON that can be read" in message and message.count("\n") == 1
        assert suggest([head(path)]) is None
    table = tmp_path / "bad.csv"
    table.write_text("a,b\nleft,right\nleft,up\n")
    message = run(vote, "--opponents", table, code=2)
    assert "bad.csv: column 'b', row 2: expected one of 0, 1, left, right, got 'up'" in message
    table.write_text("a\nleft\nleft\n")
    assert "expected 2 columns, one for each of the others, got 1: a" in run(
        vote, "--opponents", table, code=2
    )


def test_suggestions_fit_the_files_and_run(vote, seen, tmp_path):
    for files in ([vote], [vote, seen]):
        line = suggest([head(file) for file in files])
        assert line is not None
        command = shlex.split(line)
        assert command[:3] == ["theses", "apply", "equal-share"]
        run(*command[3:], "--rounds", 50)
    other = write(tmp_path / "other.json", {"name": "x"})
    assert suggest([head(other)]) is None
    assert suggest([head(seen)]) is None
    assert suggest([head(vote), head(vote)]) is None


@pytest.mark.parametrize(
    "description",
    [
        {"game": "majority-vote"},
        {"game": "majority-vote", "population": None},
        {"n_players": 3, "actions": ["left", "right"], "payoffs": rows(), "population": [0.3, 0.7]},
        {"tensor": [[[0, -1, 1], [1, 0, -1], [-1, 1, 0]], [[0, 1, -1], [-1, 0, 1], [1, -1, 0]]]},
    ],
)
def test_the_start_reads_any_description(tmp_path, capsys, description):
    card = lookup("equal-share")
    file = write(tmp_path / "game.json", description)
    script = fill(start_path(card).read_text(encoding="utf-8"), ["files"], {"file": str(file)})
    assert len(script.splitlines()) <= 25
    exec(compile(script, "start.py", "exec"), {})
    assert capsys.readouterr().out.count("fair share") == 3
