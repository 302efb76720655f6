from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

import theses
from tests.catalogue.generated import catalogue, write_small
from theses.cli import app
from theses.cli.doctor import Requirement, requirements
from theses.resources import Resource, carriers

runner = CliRunner()


class Site:
    """A folder of packages that is looked at before the real ones, here and in child processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def install(
        self, name: str, version: str, files: Mapping[str, str], metadata: str = "", record: bool = True
    ) -> None:
        info = self.path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}")
        for relative, content in files.items():
            path = self.path / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        if record:
            (info / "RECORD").write_text("".join(f"{relative},,\n" for relative in files))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A theses that asks for three small packages; the method metric-tree wants all of them."""
    found = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(found.path))
    monkeypatch.setenv("PYTHONPATH", str(found.path))
    metadata = (
        "Requires-Dist: the-core>=1.5\n"
        "Provides-Extra: fast\nRequires-Dist: Quick_Thing[speed]<3,>=2.0; extra == 'fast'\n"
        "Provides-Extra: all\nRequires-Dist: theses[fast,other]; extra == 'all'\n"
        'Provides-Extra: other\nRequires-Dist: other (>=1) ; python_version >= "3" and extra == "other"\n'
    )
    found.install("theses", theses.__version__, {}, metadata)
    found.install("the-core", "1.10.0+local", {"the_core/__init__.py": ""})
    path = write_small(tmp_path / "cards") / "graphs" / "metric_tree.toml"
    path.write_text(path.read_text().replace("seeds = 3", 'seeds = 3\nextras = ["fast"]'))
    with catalogue(tmp_path / "cards"):
        yield found


def doctor(*arguments: str) -> tuple[int, list[str]]:
    result = runner.invoke(app, ["doctor", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout.splitlines()


def test_requirements_are_read_from_metadata(site: Site):
    assert requirements("theses") == [Requirement("the-core", (), ((">=", "1.5"),))]
    fast = Requirement("quick-thing", ("speed",), (("<", "3"), (">=", "2.0")))
    other = Requirement("other", (), ((">=", "1"),))
    assert requirements("theses", "fast") == [fast]
    assert requirements("theses", "all") == [fast, other]
    with pytest.raises(ValueError, match="theses has no extra 'slow'"):
        requirements("theses", "slow")


def test_the_real_metadata_name_what_is_installed():
    assert {"numpy", "torch", "pot", "typer"} <= {requirement.name for requirement in requirements("theses")}
    assert [requirement.name for requirement in requirements("theses", "graphs")] == ["rapidfuzz"]
    assert {"altair", "rapidfuzz"} <= {requirement.name for requirement in requirements("theses", "all")}


@pytest.mark.parametrize(
    ("version", "admitted"), [("2.0", True), ("2", True), ("2.10.1", True), ("1.99", False), ("3.0", False)]
)
def test_versions_are_compared_by_numbers(version: str, admitted: bool):
    assert Requirement("x", (), ((">=", "2.0"), ("<", "3"))).admits(version) is admitted


def test_versions_with_letters():
    assert Requirement("x", (), ((">=", "2.6"),)).admits("2.13.0+cpu")
    assert Requirement("x", (), (("==", "1.0"),)).admits("1.0.post1")


def test_all_is_there(site: Site):
    site.install("quick-thing", "2.5", {"quickthing.py": ""})
    status, lines = doctor("metric-tree")
    assert status == 0
    assert lines[0].startswith(f"theses {theses.__version__}, Python {platform.python_version()} ")
    assert "quick-thing  extra fast  installed 2.5" in lines
    assert lines[-1] == "All is there for metric-tree."


def test_what_is_missing_gets_the_line_that_installs_it(site: Site):
    status, lines = doctor("MFC")
    assert status == 1
    place = lines.index("quick-thing  extra fast  missing")
    assert lines[place + 1] == '    pip install "theses[fast]"'
    assert lines[-1] == "1 of 2 are not as metric-tree needs."


def test_only_the_method_s_own_extras_count(site: Site):
    status, lines = doctor("table-distance")
    assert status == 0
    assert not any("quick-thing" in line for line in lines)


def test_without_a_method_all_are_looked_at(site: Site):
    status, lines = doctor()
    assert status == 1
    assert lines[-1] == "1 of 2 are not as all 10 methods needs."


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("raise OSError('no such library')", "broken 2.5  OSError: no such library"),
        ("import absent_thing", "broken 2.5  ModuleNotFoundError: No module named 'absent_thing'"),
        ("import os\nos._exit(7)", "broken 2.5  the import ended the process with status 7"),
        ("print('noise')\nraise SystemExit", "broken 2.5  SystemExit:"),
    ],
)
def test_what_cannot_be_imported_is_broken(site: Site, content: str, complaint: str):
    site.install("quick-thing", "2.5", {"quick_thing/__init__.py": content})
    status, lines = doctor("metric-tree")
    assert status == 1
    place = next(i for i, line in enumerate(lines) if line.startswith("quick-thing"))
    assert complaint in lines[place]
    assert lines[place + 1] == "    pip install --force-reinstall quick-thing"
    assert any(line.startswith("the-core") and "installed 1.10.0+local" in line for line in lines)


def test_a_crash_does_not_hide_what_comes_after(site: Site):
    (site.path / "the_core" / "__init__.py").write_text("import os\nos._exit(7)")
    site.install("quick-thing", "2.5", {"quick_thing/__init__.py": ""})
    _, lines = doctor("metric-tree")
    assert any(line.startswith("the-core") and "status 7" in line for line in lines)
    assert any(line.startswith("quick-thing") and "installed 2.5" in line for line in lines)


def test_an_old_version_is_named(site: Site):
    site.install("quick-thing", "1.9", {"quick_thing/__init__.py": ""})
    status, lines = doctor("metric-tree")
    assert status == 1
    assert any("quick-thing  extra fast  old 1.9  <3,>=2.0 is asked for" in line for line in lines)


@pytest.fixture
def carrier(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A loader's file in a package of its own, wanted by the method table-distance."""
    content = "one,two\n"
    resource = Resource("data-bag", "data_bag/rows.csv", hashlib.sha256(content.encode()).hexdigest())
    monkeypatch.setattr("theses.datasets.images.BAG", resource, raising=False)
    pins = {**carriers(), "data-bag": "1.0"}
    monkeypatch.setattr("theses.resources.carriers", lambda: pins)
    path = tmp_path / "cards" / "data" / "table_distance.toml"
    path.write_text(path.read_text().replace("seeds = 3", 'seeds = 3\ncarriers = ["data-bag"]'))
    return content


LINE = "pip install --no-deps data-bag==1.0"


def test_a_whole_carrier(site: Site, carrier: str):
    site.install("data-bag", "1.0", {"data_bag/rows.csv": carrier})
    status, lines = doctor("table-distance")
    assert status == 0
    assert "data-bag  carrier  installed 1.0  1 file(s) checked" in lines


def test_a_missing_carrier(site: Site, carrier: str):
    status, lines = doctor("table-distance")
    assert status == 1
    assert lines[lines.index("data-bag  carrier  missing") + 1] == f"    {LINE}"


@pytest.mark.parametrize("files", [{"data_bag/rows.csv": "other\n"}, {"data_bag/more.csv": "one,two\n"}])
def test_a_damaged_carrier(site: Site, carrier: str, files: dict[str, str]):
    site.install("data-bag", "1.0", files)
    status, lines = doctor("table-distance")
    assert status == 1
    place = next(i for i, line in enumerate(lines) if line.startswith("data-bag  carrier  broken 1.0"))
    assert "rows.csv" in lines[place]
    assert lines[place + 1] == f"    {LINE} --force-reinstall"


def test_a_carrier_of_unknown_files_must_have_the_pinned_version(
    site: Site, carrier: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr("theses.datasets.images.BAG")
    site.install("data-bag", "0.9", {"data_bag/rows.csv": carrier})
    status, lines = doctor("table-distance")
    assert status == 1
    assert any("broken 0.9  1.0 is pinned" in line for line in lines)


def test_a_carrier_that_is_not_pinned(site: Site, carrier: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("theses.resources.carriers", dict)
    status, lines = doctor("table-distance")
    assert status == 1
    assert any("carriers.txt does not pin it" in line for line in lines)


def test_json(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    status, lines = doctor("metric-tree", "--json")
    answer = json.loads("\n".join(lines))
    assert status == 1
    assert not answer["ok"]
    assert answer["machine"]["threads"]["OMP_NUM_THREADS"] == "1"
    assert answer["machine"]["cores"] >= 1
    assert {finding["name"]: finding["state"] for finding in answer["findings"]} == {
        "the-core": "installed",
        "quick-thing": "missing",
    }


@pytest.mark.slow
def test_this_machine_has_what_the_tests_need():
    status, lines = doctor()
    assert status == 0, "\n".join(lines)
