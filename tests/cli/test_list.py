from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.catalogue.generated import SMALL
from tests.cli.conftest import entry
from theses.cli import app

runner = CliRunner()
pytestmark = pytest.mark.usefixtures("small_catalogue", "publish")


def listed(*arguments: str) -> set[str]:
    result = runner.invoke(app, ["list", *arguments])
    assert result.exit_code == 0, result.output
    return {line.split()[0] for line in result.stdout.splitlines()}


def test_all_methods_one_a_line():
    assert listed() == set(SMALL)


def test_a_line_has_slug_name_package_verdicts_and_summary(publish: Callable[..., None]):
    publish(table_distance=entry())
    lines = runner.invoke(app, ["list"]).stdout.splitlines()
    line = next(line for line in lines if line.startswith("table-distance"))
    assert line.split("  ", 1)[1].lstrip().startswith("s-TD")
    assert " data " in line
    assert " 1 fails " in line
    assert line.endswith(SMALL["table-distance"][3])
    assert sum("not measured yet" in line for line in lines) == len(SMALL) - 1


@pytest.mark.parametrize(
    ("arguments", "slugs"),
    [
        (["--package", "data"], {"table-distance", "row-coreset"}),
        (["--package", "lm"], {"cache-squeeze"}),
        (["--package", "lm.inference"], {"cache-squeeze"}),
        (["--tag", "graphs"], {"metric-tree"}),
        (["--tag", "graphs", "--tag", "data"], set()),
        (["--have", "strings"], {"metric-tree"}),
        (["--have", "strings", "--have", "density"], {"metric-tree", "slice-sampler"}),
        (["--want", "effect", "--have", "table"], {"latent-effect"}),
        (["spanning", "tree"], {"metric-tree"}),
        (["data sets"], {"table-distance"}),
    ],
)
def test_filters(arguments: list[str], slugs: set[str]):
    if slugs:
        assert listed(*arguments) == slugs
    else:
        result = runner.invoke(app, ["list", *arguments])
        assert (result.exit_code, result.stdout.split(";")[0]) == (0, f"none of {len(SMALL)} methods fits")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--package", "dta"], "--package: there is no 'dta'; nearest: data"),
        (["--tag", "grahps"], "--tag: there is no 'grahps'; nearest: graphs"),
        (["--have", "stings"], "--have: there is no 'stings'; nearest: strings"),
        (["--want", "zzz"], "--want: there is no 'zzz'; known are audit, clusters"),
    ],
)
def test_what_no_card_can_have_is_refused(arguments: list[str], message: str):
    result = runner.invoke(app, ["list", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_json(publish: Callable[..., None]):
    publish(metric_tree=entry())
    answer = json.loads(runner.invoke(app, ["list", "--json", "spanning"]).stdout)
    assert [found["slug"] for found in answer] == ["metric-tree"]
    assert answer[0]["verdicts"] == {"fails": 1}
    assert answer[0]["have"] == ["points", "strings"]
    assert json.loads(runner.invoke(app, ["list", "--json", "xylophone"]).stdout) == []


def test_a_damaged_snapshot_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "evidence.json").write_text("{")
    monkeypatch.setattr("theses.cli._evidence.shipped_file", lambda _: tmp_path / "evidence.json")
    result = runner.invoke(app, ["list"])
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: no published evidence: ")
    assert len(result.stdout.splitlines()) == len(SMALL)
