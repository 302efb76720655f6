"""The floors of the house, what the command line loads, and what the distribution says of itself."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import theses
from tests.conformance.api import HEAVY
from tests.conformance.subject import ROOT, requirement_names
from theses.catalogue import cards
from theses.resources import carriers

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LAYERS = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]

RUN_COMMAND = """
import json, os, resource, sys

sys.argv = ["theses", *sys.argv[1:]]
from theses.cli import main

try:
    main()
except SystemExit as ending:
    status = ending.code or 0
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([status, used.ru_utime + used.ru_stime, sorted(sys.modules)]), file=sys.stderr)
"""


def lint(config: Path | None = None, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    command += ["--config", str(config)] if config else []
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_each_room_imports_only_from_the_floors_below() -> None:
    done = lint()
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_import_upstairs_is_found(tmp_path: Path) -> None:
    house = tmp_path / "house"
    for room, content in {"": "", "above": "", "below": "from house.above import thing\n"}.items():
        folder = house / room
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text(content)
    (house / "above" / "thing.py").write_text("")
    config = tmp_path / "floors.toml"
    config.write_text(
        '[tool.importlinter]\nroot_package = "house"\n[[tool.importlinter.contracts]]\nname = "floors"\n'
        'type = "layers"\ncontainers = ["house"]\nlayers = ["above", "below"]\n'
    )
    done = lint(config, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "house.below is not allowed to import house.above" in done.stdout


def test_every_method_lives_on_the_floor_of_the_methods() -> None:
    (floor,) = [layer for layer in LAYERS if "evidence" in layer]
    rooms = {room.strip() for room in floor.split("|")} - {"evidence"}
    assert {card.package.split(".")[0] for card in cards()} <= rooms


@pytest.mark.parametrize("arguments", [["list"], ["--help"], ["apply", "--help"]], ids=" ".join)
def test_command_line_starts_without_heavy_libraries(arguments: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN_COMMAND, *arguments], capture_output=True, text=True, cwd=tmp_path
    )
    status, cpu_s, modules = json.loads(done.stderr.strip().splitlines()[-1])
    assert status == 0, done.stderr
    assert done.stdout.strip()
    assert [name for name in HEAVY if name in modules] == []
    assert cpu_s < 1.0  # half a second, on a machine half as fast
    assert list(tmp_path.iterdir()) == []


def test_distribution_agrees_with_the_project() -> None:
    project = PROJECT["project"]
    distribution = importlib.metadata.distribution("theses")
    metadata = distribution.metadata
    assert distribution.version == theses.__version__ == project["version"]
    assert metadata["Requires-Python"] == project["requires-python"]
    assert metadata["Summary"] == project["description"]
    assert metadata["License-Expression"] == project["license"]
    assert set(metadata.get_all("Provides-Extra") or []) == set(project["optional-dependencies"])
    required = {text for text in distribution.requires or [] if "extra ==" not in text}
    assert set(requirement_names(sorted(required))) == set(requirement_names(project["dependencies"]))
    for file in (project["readme"], *project["license-files"]):
        assert (ROOT / file).read_text(encoding="utf-8").strip(), f"{file} is empty"


def test_console_script_is_there() -> None:
    scripts = importlib.metadata.distribution("theses").entry_points.select(group="console_scripts")
    assert {script.name: callable(script.load()) for script in scripts} == {"theses": True}


def test_all_takes_every_extra_of_the_methods() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (joined,) = extras["all"]
    match = re.fullmatch(r"theses\[(.*)\]", joined)
    assert match
    assert set(match[1].split(",")) == set(extras) - {"all", "peers", "dev"}


def test_wheel_takes_what_the_library_reads_outside_the_package() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["src/theses"]
    for source, target in wheel["force-include"].items():
        assert (ROOT / source).exists(), f"{source} is missing"
        assert target == f"theses/_shipped/{source}"
    assert {"carriers.txt", "docs/evidence.json"} <= set(wheel["force-include"])
    assert (ROOT / "src" / "theses" / "py.typed").exists()


def test_every_extra_and_carrier_serves_a_method() -> None:
    used = {extra for card in cards() for extra in (*card.extras, *card.study_extras)}
    # What only an optional part of a method needs is named where its absence is told.
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "theses").rglob("*.py")]
    used |= {extra for text in sources for extra in re.findall(r"theses\[(\w+)\]", text)}
    assert set(PROJECT["project"]["optional-dependencies"]) - used <= {"all", "dev", "peers", "report"}
    assert set(carriers()) == {carrier for card in cards() for carrier in card.carriers}
