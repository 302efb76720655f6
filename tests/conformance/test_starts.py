"""Every method has a script to start from, short and clean, which runs on its own and on users' files."""

from __future__ import annotations

import contextlib
import importlib
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from sklearn.datasets import load_breast_cancer, load_iris

import theses.catalogue
from tests.conformance.subject import ROOT, Subject, tail
from theses.catalogue import cards
from theses.catalogue.start import KINDS, kinds_of, start_path
from theses.cli.start import reading, start
from theses.datasets.files import head

SUBJECTS = [Subject(card) for card in cards()]
LINES = 25

RUN = """
import contextlib, io, json, runpy, sys, traceback

ended = []
for path in sys.argv[1:]:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(path, run_name="__main__")
        ended.append([printed.getvalue(), ""])
    except BaseException:  # SystemExit, too
        ended.append([printed.getvalue(), traceback.format_exc()])
print(json.dumps(ended))
sys.exit(any(error for _, error in ended))
"""


def write_samples(folder: Path) -> list[tuple[str, ...]]:
    """What users may have: tables with labels, points, losses, losses by lambda, trials, lines, a game."""
    iris = load_iris()
    measures = ["length", "width", "petal length", "petal width"]
    points = [[str(value) for value in row] for row in iris.data]
    labelled = [[*row, iris.target_names[y]] for row, y in zip(points, iris.target, strict=True)]
    losses = [str(i % 10 / 100) for i in range(60)]
    tables = {
        "a.csv": [[*measures, "species"], *labelled[::2]],
        # The same columns, in another order.
        "b.csv": [["species", *measures[::-1]], *(row[::-1] for row in labelled[1::2])],
        "it's points.csv": [measures, *points],
        "losses.csv": [["loss"], *([loss] for loss in losses)],
        "cases.csv": [["case", "loss"], *([f"c{i}", loss] for i, loss in enumerate(losses))],
        "trials.csv": [
            ["rate", "depth", "score"],
            *([f"{0.1 * i:.1f}", str(i % 3), f"{i % 5}.5"] for i in range(12)),
        ],
        "lambdas.csv": [["lambda=0", "lambda=0.5", "lambda=1"], *(["1", loss, "0"] for loss in losses)],
    }
    for name, rows in tables.items():
        (folder / name).write_text("".join(",".join(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "names.txt").write_text("\n".join(load_breast_cancer().feature_names), encoding="utf-8")
    (folder / "game.json").write_text('{"game": "majority-vote", "population": [0.4, 0.6]}', encoding="utf-8")
    alone = [name for name in (*tables, "names.txt", "game.json") if name != "b.csv"]
    return [("a.csv", "b.csv"), *((name,) for name in alone)]


class Script(NamedTuple):
    """What `theses start` made, and of what."""

    path: Path
    files: str  # for messages
    kinds: tuple[str, ...]
    said: tuple[str, ...]  # files and values of options that the method's command suggests for the files


def write_scripts(subject: Subject, samples: list[tuple[str, ...]], folder: Path) -> list[Script]:
    """The script of a method without files, and one for each sample that its command takes."""
    card = subject.card
    scripts = [Script(folder / "start.py", "no files", (), ())]
    start(card.slug, output=scripts[0].path)
    if not card.apply:
        return scripts
    # A command that suggests nothing is reported elsewhere.
    suggest = getattr(importlib.import_module(subject.apply_name), "suggest", lambda heads: None)
    for names in samples:
        files = [Path(name) for name in names]
        command: str | None = suggest([head(path) for path in files])
        if command is not None:
            said = tuple(word for word in shlex.split(command)[3:] if not word.startswith("--"))
            kinds, _ = reading(card, files)
            script = Script(folder / f"start_{len(scripts)}.py", " and ".join(names), kinds, said)
            start(card.slug, files, output=script.path)
            scripts.append(script)
    return scripts


def check_kinds(template: str, scripts: Sequence[Script]) -> list[str]:
    """A start speaks of kinds of files that exist, and each has been tried on a sample."""
    kinds = kinds_of(template)
    tried = {kind for script in scripts for kind in script.kinds}
    complaints = [
        f"{kind!r} is no kind of files; known are {', '.join(KINDS)}" for kind in kinds if kind not in KINDS
    ]
    complaints += [
        f"no sample is {kind!r}, so that its lines were not tried" for kind in kinds if kind not in tried
    ]
    return complaints


def check_style(module: str, scripts: Sequence[Script]) -> list[str]:
    """A script is short, uses the method and the files, and pleases ruff."""
    complaints = []
    for script in scripts:
        text = script.path.read_text(encoding="utf-8")
        if (lines := text.count("\n")) > LINES:
            complaints.append(f"{script.files}: may have {LINES} lines, has {lines}")
        if f"from {module} import " not in text:
            complaints.append(f"{script.files}: imports nothing from {module}")
        complaints += [f"{script.files}: {word} is not in it" for word in script.said if word not in text]
    for options in (("check", "--extend-ignore=T20", "--output-format=concise"), ("format", "--diff")):
        command = [sys.executable, "-m", "ruff", *options, "--quiet", f"--config={ROOT / 'pyproject.toml'}"]
        # From the root, so that our own imports are told from those of others.
        done = subprocess.run(
            [*command, *(str(script.path) for script in scripts)], capture_output=True, text=True, cwd=ROOT
        )
        if done.returncode:
            complaints.append(f"ruff {options[0]}: {tail(done.stdout + done.stderr)}")
    return complaints


def check_run(subject: Subject, scripts: Sequence[Script], cwd: Path) -> list[str]:
    """A script ends well and says something."""
    paths = [str(script.path) for script in scripts]
    done = subject.python("-c", RUN, *paths, cwd=cwd, trees=False)
    try:
        ended = json.loads(done.stdout)
    except json.JSONDecodeError:
        return [f"the scripts end with exit status {done.returncode}:\n{tail(done.stderr)}"]
    complaints = []
    for script, (printed, error) in zip(scripts, ended, strict=True):
        if error:
            complaints.append(f"{script.files}: fails:\n{tail(error)}")
        elif not printed.strip():
            complaints.append(f"{script.files}: prints nothing")
    return complaints


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("samples")


@pytest.fixture(scope="module", params=SUBJECTS, ids=[subject.card.slug for subject in SUBJECTS])
def subject(request: pytest.FixtureRequest) -> Subject:
    found: Subject = request.param
    return found


@pytest.fixture(scope="module")
def scripts(subject: Subject, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Script]:
    # Names without folders, as users give them, keep lines short.
    with contextlib.chdir(samples):
        try:
            return write_scripts(subject, write_samples(samples), tmp_path_factory.mktemp("starts"))
        except (ImportError, ValueError) as error:
            pytest.fail(f"there are no scripts to look at: {error}", pytrace=False)


def report(complaints: list[str]) -> None:
    if complaints:
        pytest.fail("\n".join(f"- {complaint}" for complaint in complaints), pytrace=False)


def test_every_method_has_a_start(subject: Subject) -> None:
    assert start_path(subject.card).is_file()


def test_starts_know_what_to_do_with_files(subject: Subject, scripts: list[Script]) -> None:
    report(check_kinds(start_path(subject.card).read_text(encoding="utf-8"), scripts))


def test_starts_are_short_and_clean(subject: Subject, scripts: list[Script]) -> None:
    report(check_style(subject.card.module, scripts))


def test_starts_run(subject: Subject, scripts: list[Script], samples: Path) -> None:
    report(check_run(subject, scripts, samples))


def test_every_start_belongs_to_a_card() -> None:
    folder = Path(theses.catalogue.__file__).parent / "starts"
    assert set(folder.rglob("*.py")) == {start_path(card) for card in cards()}


CLEAN = "from theses.some import thing\n\nprint(thing)\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (CLEAN, "a.csv is not in it"),
        (CLEAN + "# a.csv\n" * 23, "may have 25 lines, has 26"),
        ("print('a.csv')\n", "imports nothing from theses.some"),
        ("import os\n" + CLEAN, "ruff check: "),
        (CLEAN.replace("(thing)", "( thing)"), "ruff format: "),
    ],
)
def test_a_script_in_bad_style_is_found(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(text)
    complaints = check_style("theses.some", [Script(path, "a.csv", ("files",), ("a.csv",))])
    assert any(says in complaint for complaint in complaints), complaints
    path.write_text(CLEAN + "# a.csv\n")
    assert check_style("theses.some", [Script(path, "a.csv", ("files",), ("a.csv",))]) == []


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("x = 1  # without file\n", "'file' is no kind of files"),
        ("# with column: x = 1\n", "no sample is 'column'"),
    ],
)
def test_a_template_with_a_wrong_kind_is_found(template: str, says: str, tmp_path: Path) -> None:
    scripts = [Script(tmp_path, "names.txt", ("files", "lines"), ())]
    assert any(says in complaint for complaint in check_kinds(template, scripts))
    assert check_kinds("# with lines: x = 1\ny = 2  # without files\n", scripts) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", "prints nothing"),
        ("print(1)\nraise SystemExit(1)\n", "fails:"),
        ("print(1 / 0)\n", "ZeroDivisionError"),
        ("import os\nos._exit(3)\n", "exit status 3"),
    ],
)
def test_a_script_that_does_not_run_is_found(text: str, says: str, tmp_path: Path) -> None:
    good, bad = (Script(tmp_path / name, name, (), ()) for name in ("good.py", "bad.py"))
    good.path.write_text("print(1)\n")
    bad.path.write_text(text)
    complaints = check_run(SUBJECTS[0], [good, bad], tmp_path)
    assert [complaint for complaint in complaints if says in complaint] == complaints != []
