from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.catalogue.generated import catalogue
from tests.catalogue.test_card import VALID
from tests.conformance import api, doors, fake, parts, programs, studies
from tests.conformance.subject import ROOT, Subject
from tests.conformance.test_starts import Script, check_run, check_style
from theses.catalogue import CardError, cards, load_card
from theses.catalogue.card import card_from_dict
from theses.catalogue.scaffold import NewMethod, write

METHOD = NewMethod(
    "toys/shift", 'The "Shift"', "2501.00001", r"On \toys, " "" + '"""quoted""" and \'single\''
)

PROJECT = """
[[tool.importlinter.contracts]]
type = "layers"
layers = ["cli", "evidence | data", "catalogue | validation"]
[[tool.importlinter.contracts]]
type = "forbidden"
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As much of a checkout as is looked at."""
    (tmp_path / "src/theses/catalogue/cards").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def text(part: str, method: NewMethod = METHOD) -> str:
    return method.files()[part][1]


def all_files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_all_parts_are_written_and_named(checkout: Path):
    before = all_files(checkout)
    written, steps = write(checkout, METHOD)
    assert set(written) == all_files(checkout) - before
    assert {
        "src/theses/catalogue/cards/toys/shift.toml",
        "src/theses/toys/shift.py",
        "src/theses/studies/toys/shift.py",
        "tests/toys/test_shift.py",
        "benchmarks/toys/shift.py",
        "examples/toys/shift.py",
        "src/theses/cli/apply/shift.py",
        "src/theses/catalogue/starts/toys/shift.py",
    } <= set(written)
    assert "theses show shift" in "\n".join(steps)
    assert steps[-1].splitlines()[-1] == '"evidence | data | toys",'


def test_the_places_are_those_that_the_battery_looks_at(checkout: Path):
    write(checkout, METHOD)
    card = card_from_dict(
        {**VALID, "apply": "theses.cli.apply.shift"}, slug="shift", package="toys", path=Path("shift.toml")
    )
    assert [
        complaint for complaint in parts.check_parts(Subject(card, checkout)) if "missing" in complaint
    ] == []


def test_a_new_package_is_lazy_and_an_old_one_stays(checkout: Path):
    write(checkout, NewMethod("lm/inference/cache", "Cache", "2501.00001", "On caches"))
    for folder in ("lm", "lm/inference"):
        assert "lazy_submodules" in (checkout / "src/theses" / folder / "__init__.py").read_text()
        for tree in ("src/theses/studies", "tests", "benchmarks"):
            assert (checkout / tree / folder / "__init__.py").is_file()
    (checkout / "src/theses/lm/__init__.py").write_text("mine")
    (checkout / "pyproject.toml").write_text(PROJECT.replace("| data", "| data | lm"))
    written, steps = write(checkout, NewMethod("lm/other", "Other", "2501.00002", "On others"))
    assert [path for path in written if path.endswith("__init__.py")] == []
    assert "pyproject" not in "\n".join(steps)
    assert (checkout / "src/theses/lm/__init__.py").read_text() == "mine"


def test_skeletons_please_ruff(checkout: Path):
    write(checkout, METHOD)
    (checkout / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for options in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *options, "."], capture_output=True, text=True, cwd=checkout
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_names_and_titles_come_through_as_they_are(checkout: Path):
    card = tomllib.loads(text("card"))
    assert (card["name"], card["paper"]["title"]) == (METHOD.name, METHOD.title)
    for part in ("method", "study", "benchmark", "example", "apply", "start"):
        namespace: dict[str, Any] = {}
        exec(compile(text(part), part, "exec"), namespace)
        assert METHOD.name in namespace["__doc__"]
        if part == "method":
            assert METHOD.title in " ".join(namespace["__doc__"].split())


# What is missing


def test_the_card_is_refused_until_it_is_filled(checkout: Path):
    write(checkout, METHOD)
    root = checkout / "src/theses/catalogue/cards"
    with catalogue(root), pytest.raises(CardError, match=r"toys/shift\.toml: "):
        cards()
    data = tomllib.loads(text("card"))
    blank = [key for key, value in data.items() if value in ("", [])]
    required = [key for key in blank if key in VALID]
    assert required == ["summary", "have", "want", "use_when", "not_when", "instead_of", "api"]
    filled = {**data, **{key: VALID[key] for key in required}, "claims": VALID["claims"]}
    path = root / "toys" / "shift.toml"
    assert card_from_dict(filled, slug="shift", package="toys", path=path).name == METHOD.name
    for key in [*required, "claims"]:
        with pytest.raises(CardError, match=key):
            card_from_dict({**filled, key: data[key]}, slug="shift", package="toys", path=path)


def test_a_claim_is_refused_until_it_is_filled():
    data = tomllib.loads(text("card"))
    (claim,) = data["claims"]
    (check,) = claim["checks"]
    good = VALID["claims"][0]

    def complaints(claim: dict[str, Any]) -> list[str]:
        card = card_from_dict({**VALID, "claims": [claim]}, slug="s", package="toys", path=Path("s.toml"))
        return parts.check_text(Subject(card))

    for key in ("kind", "statement", "paper"):
        try:
            found = complaints({**good, key: claim[key]})
        except CardError as error:
            found = [str(error)]
        assert any(f"claims[0].{key}" in complaint for complaint in found), key
    for key in ("metric", "bound", "aggregate"):
        try:
            found = complaints({**good, "checks": [{**good["checks"][0], key: check[key]}]})
        except CardError as error:
            found = [str(error)]
        assert any(f"claims[0].checks[0].{key}" in complaint for complaint in found), key


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Subject]]:
    """Builder of a complete method in which some parts are skeletons."""
    for place in (tmp_path, tmp_path / "src"):
        monkeypatch.syspath_prepend(place)
    monkeypatch.setattr("sys.dont_write_bytecode", True)

    def build(*skeletons: str, edits: dict[str, tuple[str, str]] | None = None) -> Subject:
        subject = fake.build(
            tmp_path, files={_toy(METHOD.files()[part][0]): text(part) for part in skeletons}, edits=edits
        )
        importlib.invalidate_caches()
        return subject

    yield build
    fake.forget()


def _toy(path: str) -> str:
    """Place of a file in the made-up library."""
    top, _, rest = path.partition("/")
    return f"src/{fake.LIBRARY}/{rest.partition('/')[2]}" if top == "src" else f"toy{top}/{rest}"


def delivery(subject: Subject, cwd: Path) -> list[str]:
    return studies.check_delivery(subject, studies.run_units(subject, cwd))


UNFILLED: list[tuple[str, Callable[[Subject, Path], list[str]], list[str]]] = [
    ("method", lambda subject, cwd: api.check_api(subject), ["shift has no difference", "has no Centre"]),
    ("test", lambda subject, cwd: parts.check_planted_mistake(subject), ["plants no mistake"]),
    ("test", lambda subject, cwd: doors.check_calls(subject), ["add to calls()"]),
    (
        "study",
        delivery,
        ["metric error of the card is not delivered", "stores no stage", "tells no progress"],
    ),
    ("benchmark", lambda subject, cwd: parts.check_parts(subject), ["defines no function benchmark"]),
    ("example", programs.check_example, ["prints nothing"]),
    (
        "apply",
        lambda subject, cwd: parts.check_parts(subject),
        ["defines no function apply", "defines no function suggest"],
    ),
]


@pytest.mark.parametrize(("part", "check", "says"), UNFILLED, ids=[row[0] for row in UNFILLED])
def test_a_part_fails_until_it_is_filled(
    part: str,
    check: Callable[[Subject, Path], list[str]],
    says: list[str],
    made_up: Callable[..., Subject],
    tmp_path: Path,
):
    assert check(made_up(), tmp_path) == []
    complaints = check(made_up(part), tmp_path)
    for words in says:
        assert any(words in complaint for complaint in complaints), complaints


def test_figures_fail_until_they_are_filled(made_up: Callable[..., Subject], tmp_path: Path):
    study = "src/toyhouse/studies/toys/shift.py"
    unfilled = text("study").partition("def figures")
    subject = made_up(
        edits={
            study: (
                "def figures(tables):",
                f"def old(tables):\n    pass\n\n\n{''.join(unfilled[1:])}\n\ndef rest(tables):",
            )
        }
    )
    complaints = studies.check_figures(subject, studies.run_units(subject, tmp_path), tmp_path)
    assert complaints == ["figures draws nothing"]


def test_the_start_fails_until_it_is_filled(made_up: Callable[..., Subject], tmp_path: Path):
    path = tmp_path / "start.py"
    path.write_text(text("start"))
    subject = made_up()
    scripts = [Script(path, "no files", (), ())]
    assert check_run(subject, scripts, tmp_path) == ["no files: prints nothing"]
    assert check_style("theses.toys.shift", scripts) == ["no files: imports nothing from theses.toys.shift"]


def test_every_part_has_been_tried():
    assert {row[0] for row in UNFILLED} | {"card", "start"} == set(METHOD.files())


# What is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"place": "shift"}, "place must be PACKAGE/MODULE"),
        ({"place": "toys/"}, "place must be PACKAGE/MODULE"),
        ({"place": "../toys/shift"}, "place must be PACKAGE/MODULE"),
        ({"place": "toys/Shift"}, "place must be PACKAGE/MODULE"),
        ({"place": "toys/shift.py"}, "place must be PACKAGE/MODULE"),
        ({"place": "toys/lambda"}, "Python's own, got 'lambda'"),
        ({"arxiv": "arXiv:2501.00001"}, "arxiv must be an identifier"),
        ({"name": ""}, "name must be one line"),
        ({"title": "On\ntoys"}, "title must be one line"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, str], message: str):
    given = {"place": "toys/shift", "name": "Shift", "arxiv": "2501.00001", "title": "On toys", **change}
    with pytest.raises(ValueError, match=message):
        NewMethod(**given)


@pytest.mark.parametrize("part", METHOD.files())
def test_nothing_is_written_over(checkout: Path, part: str):
    path = checkout / METHOD.files()[part][0]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    before = all_files(checkout)
    with pytest.raises(ValueError, match=f"nothing is written over: .*{path.name}"):
        write(checkout, METHOD)
    assert all_files(checkout) == before
    assert path.read_text() == "mine"


def test_a_method_that_became_a_folder_is_there_too(checkout: Path):
    (checkout / "src/theses/toys/shift").mkdir(parents=True)
    with pytest.raises(ValueError, match="nothing is written over: src/theses/toys/shift"):
        write(checkout, METHOD)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (NewMethod("toys/dataset_distance", "New", "2501.00001", "T"), "'dataset-distance' already means"),
        (
            NewMethod("toys/new", "sliced OTDD", "2501.00001", "T"),
            "'sliced OTDD' already means dataset-distance",
        ),
        (NewMethod("toys/new", "New", "2501.18901", "T"), "'2501.18901' already means dataset-distance"),
        (NewMethod("evidence/new", "New", "2501.00001", "T"), "evidence is none"),
        (NewMethod("catalogue/new", "New", "2501.00001", "T"), "catalogue is none"),
    ],
)
def test_names_of_others_and_rooms_of_others_are_refused(checkout: Path, method: NewMethod, message: str):
    before = all_files(checkout)
    with pytest.raises(ValueError, match=message):
        write(checkout, method)
    assert all_files(checkout) == before


def test_elsewhere_than_in_a_checkout_nothing_is_written(tmp_path: Path):
    with pytest.raises(ValueError, match="not the root of a checkout"):
        write(tmp_path, METHOD)
    assert all_files(tmp_path) == set()


# The program


def program(*arguments: str, module: str = "theses.catalogue") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True)


def test_new_as_a_program(checkout: Path):
    arguments = ["new", "toys/shift", "--name", METHOD.name, "--arxiv", METHOD.arxiv, "--title", METHOD.title]
    done = program(*arguments)
    assert done.returncode == 0, done.stderr
    for path in all_files(checkout) - {"pyproject.toml"}:
        assert f"  {path}\n" in done.stdout
    assert '"evidence | data | toys",\n' in done.stdout
    with pytest.raises(CardError, match=r"summary|claims"):
        load_card(checkout / METHOD.files()["card"][0], checkout / "src/theses/catalogue/cards")
    again = program(*arguments)
    assert again.returncode == 2
    assert "error: nothing is written over: src/theses/catalogue/cards/toys/shift.toml" in again.stderr
    assert program("new", "toys/other").returncode == 2


@pytest.mark.parametrize(
    ("module", "arguments"), [("theses.catalogue", ["readme"]), ("theses.catalogue.readme", [])]
)
@pytest.mark.parametrize("root", [[], ["."]])
def test_readme_as_a_program(checkout: Path, module: str, arguments: list[str], root: list[str]):
    (checkout / "docs").mkdir()
    (checkout / "docs" / "evidence.json").write_text('{"methods": {}}')
    (checkout / "README.md").write_text("a\n<!-- methods -->\n<!-- /methods -->\nb\n")
    done = program(*arguments, *root, module=module)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "| I have |" in (checkout / "README.md").read_text()
