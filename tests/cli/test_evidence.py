"""The commands reproduce, results and bench."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tests.evidence.conftest import studies
from tests.evidence.fake_card import claim, fake_card
from theses.cli import app
from theses.cli.reproduce import choose, seeds_from
from theses.evidence.store import Store, last_verdicts

__all__ = ["studies"]

CARDS = {
    card.slug: card
    for card in (
        fake_card("study_good"),
        fake_card("study_noisy", claim(">= 2")),
        fake_card("study_failing"),
        fake_card("study_forgetful"),
    )
}


@pytest.fixture
def run(studies, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(studies))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("THESES_STORE", str(tmp_path / "own.sqlite"))
    for module in ("reproduce", "results", "bench"):
        monkeypatch.setattr(f"theses.cli.{module}.lookup", CARDS.__getitem__)
    for module in ("reproduce", "results"):
        monkeypatch.setattr(f"theses.cli.{module}.cards", lambda: tuple(CARDS.values()))
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


def test_reproduce_judges_and_remembers(run, tmp_path):
    done = run("reproduce", "study-good", "study-noisy")
    assert done.exit_code == 0, done.output
    assert "C1    holds" in done.stdout
    assert "C1    fails" in done.stdout
    assert "value >= 0: mean" in done.stdout
    assert "[6/6]" in done.stderr
    assert last_verdicts(tmp_path / "own.sqlite", "study-noisy") == {"C1": "fails"}


def test_exit_status(run):
    assert run("reproduce", "study-good", "--strict").exit_code == 0
    assert run("reproduce", "study-noisy").exit_code == 0
    assert run("reproduce", "study-noisy", "--strict").exit_code == 1
    failing = run("reproduce", "study-failing", "--strict")
    assert failing.exit_code == 2
    assert "ArithmeticError: the residual is negative" in failing.stderr
    assert "unjudged" in failing.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "name methods"),
        (("study-good", "--all"), "name methods"),
        (("--package", "nowhere"), "no package is called 'nowhere'; known are fake"),
        (("study-good", "--preset", "huge"), "preset must be one of"),
        (("study-good", "--seeds", "3-1"), "numbers and ranges"),
        (("study-good", "--check", "absent.json"), "absent.json"),
    ],
)
def test_wrong_usage(run, arguments, complaint):
    done = run("reproduce", *arguments)
    assert done.exit_code == 2
    assert complaint in done.stderr


def test_smoke_judges_nothing(run, tmp_path):
    done = run("reproduce", "study-good", "--preset", "smoke")
    assert done.exit_code == 0
    assert "3 smoke unit(s) ran" in done.stdout
    assert "holds" not in done.stdout
    assert last_verdicts(tmp_path / "own.sqlite", "study-good") is None


def test_resume_and_seeds(run):
    run("reproduce", "study-good", "--seeds", "1")
    done = run("reproduce", "study-good", "--seeds", "0-1", "--resume")
    assert done.exit_code == 0
    assert "seed 1: taken from the store" in done.stderr
    assert "seed 0: done" in done.stderr


def test_all_goes_on_after_a_failure(run):
    done = run("reproduce", "--all", "--jobs", "2", "--seeds", "0")
    assert done.exit_code == 2
    assert "did not deliver seed" in done.stderr
    assert "C1    undecided" in done.stdout


def test_check_against_a_snapshot(run, tmp_path):
    snapshot = {"methods": {"study-good": {"claims": {"C1": {"verdict": "holds"}}}}}
    (tmp_path / "evidence.json").write_text(json.dumps(snapshot))
    same = run("reproduce", "study-good", "--check", "evidence.json")
    assert (same.exit_code, "agrees" in same.stdout) == (0, True)
    snapshot["methods"]["study-good"]["claims"]["C1"]["verdict"] = "fails"
    (tmp_path / "evidence.json").write_text(json.dumps(snapshot))
    other = run("reproduce", "study-good", "--check", "evidence.json")
    assert (other.exit_code, "C1: published fails, here holds" in other.stdout) == (1, True)


def test_results_in_three_formats(run):
    assert "no result store" in run("results").stderr
    run("reproduce", "study-good", "study-noisy")
    assert "C1    holds" in run("results", "study-good").stdout
    rows = json.loads(run("results", "--format", "json").stdout)
    assert [(row["method"], row["verdict"]) for row in rows] == [
        ("study-good", "holds"),
        ("study-noisy", "fails"),
    ]
    assert rows[0]["n_replicates"] == 3
    csv = run("results", "--format", "csv").stdout.splitlines()
    assert csv[0].startswith("method,claim,kind")
    assert len(csv) == 3
    assert run("results", "--format", "xml").exit_code == 2
    assert "holds no unit" in run("results", "--preset", "long").stdout


def test_publish_refuses_what_is_not_fit(run, monkeypatch, tmp_path):
    run("reproduce", "study-good", "--seeds", "0")
    done = run("results", "--publish", "study-good", "--snapshot", tmp_path / "evidence.json")
    assert done.exit_code == 2
    assert not (tmp_path / "evidence.json").exists()
    monkeypatch.setattr("theses.evidence.runner.revision", lambda: ("abc", True))
    run("reproduce", "study-good")
    done = run("results", "--publish", "study-good", "--snapshot", tmp_path / "evidence.json")
    assert "1 of 1 claims hold" in done.stdout, done.output
    assert "study-good" in json.loads((tmp_path / "evidence.json").read_text())["methods"]


def test_bench_stores_its_rows(run, tmp_path, monkeypatch):
    folder = tmp_path / "benchmarks" / "fake"
    folder.mkdir(parents=True)
    assert "source checkout" in run("bench", "study-failing").stderr
    monkeypatch.setattr("theses.__file__", str(tmp_path / "src" / "theses" / "__init__.py"))
    (folder / "study_good.py").write_text(
        "from theses.evidence import Comparison, interleave\n"
        "def benchmark():\n"
        "    ours, peer = interleave([lambda: sum(range(10)), lambda: sum(range(200000))], repeats=3)\n"
        "    return [Comparison('built-in sum', 'n = 10', ours, peer, '>= 10', 'equal by definition')]\n"
    )
    done = run("bench", "study-good")
    assert done.exit_code == 0, done.output
    assert "built-in sum, n = 10" in done.stdout
    with Store(tmp_path / "own.sqlite") as store:
        found = store.latest_benchmark("study-good")
    assert found is not None
    assert found[2][0]["ratio"] > 10
    (folder / "study_noisy.py").write_text("def benchmark():\n    raise ArithmeticError('diverged')\n")
    broken = run("bench", "study-noisy")
    assert broken.exit_code != 0
    assert "diverged" in broken.output + str(broken.exception)


def test_choosing_a_package(run):
    nested = replace(CARDS["study-good"], package="lm.inference")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("theses.cli.reproduce.cards", lambda: (nested, CARDS["study-noisy"]))
        assert choose([], "lm") == [nested]
        assert choose([], "lm.inference") == [nested]
        assert len(choose([], "", True)) == 2
        with pytest.raises(ValueError, match="no package"):
            choose([], "l")
    assert choose(["study-good", "study-good"]) == [CARDS["study-good"]]


def test_seeds_text():
    assert seeds_from("") == []
    assert seeds_from("4, 0-2, 1") == [4, 0, 1, 2]
    for bad in ("a", "1-", "-1", "2-1", "1.5"):
        with pytest.raises(ValueError, match="numbers and ranges"):
            seeds_from(bad)
