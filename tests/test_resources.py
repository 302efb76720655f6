from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from theses import resources
from theses.resources import (
    CorruptResourceError,
    Resource,
    ResourceNotInstalled,
    cache_folder,
    carriers,
    file_sha256,
    files_read,
    find,
    record,
    shipped_file,
)

CONTENT = b"one,two\n1,2\n"


@pytest.fixture
def bag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resource:
    """A file in an installed package that is pinned."""
    info = tmp_path / "data_bag-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: data-bag\nVersion: 1.0\n")
    (tmp_path / "data_bag").mkdir()
    (tmp_path / "data_bag" / "rows.csv").write_bytes(CONTENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    pins = {**carriers(), "data-bag": "1.0"}
    monkeypatch.setattr(resources, "carriers", lambda: pins)
    monkeypatch.setattr(resources, "_READ", {})
    return Resource("data-bag", "data_bag/rows.csv", hashlib.sha256(CONTENT).hexdigest())


def test_a_whole_file_is_found_and_recorded(bag: Resource, tmp_path: Path):
    assert find(bag) == tmp_path / "data_bag" / "rows.csv"
    assert files_read() == {"rows.csv": bag.sha256}


def test_a_package_that_is_not_installed_gets_its_line(bag: Resource, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resources, "carriers", lambda: {"no-such-bag": "2.1"})
    with pytest.raises(ResourceNotInstalled, match=r"pip install --no-deps no-such-bag==2\.1$"):
        find(Resource("no-such-bag", "x.csv", ""))
    assert files_read() == {}


def test_a_package_without_the_file_gets_its_line(bag: Resource):
    with pytest.raises(
        ResourceNotInstalled, match=r"data-bag 1\.0 is installed but has no data_bag/more\.csv"
    ):
        find(Resource("data-bag", "data_bag/more.csv", bag.sha256))


@pytest.mark.parametrize("position", [0, len(CONTENT) // 2, len(CONTENT) - 1])
def test_one_changed_bit_is_seen(bag: Resource, tmp_path: Path, position: int):
    spoilt = bytearray(CONTENT)
    spoilt[position] ^= 1
    (tmp_path / "data_bag" / "rows.csv").write_bytes(spoilt)
    with pytest.raises(
        CorruptResourceError, match=f"expected SHA-256 {bag.sha256}, found .*--force-reinstall"
    ):
        find(bag)


def test_errors_are_of_the_kinds_that_callers_catch():
    assert issubclass(ResourceNotInstalled, ImportError)
    assert issubclass(CorruptResourceError, ValueError)


def test_carriers_are_pinned_by_version_and_hash():
    text = shipped_file("carriers.txt").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(carriers()) == len(lines)
    for line in lines:
        assert re.fullmatch(r"[\w.-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line)


def test_shipped_files_are_found_in_the_checkout_and_in_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    package = tmp_path / "src" / "theses"
    (package / "_shipped" / "docs").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(resources, "__file__", str(package / "resources.py"))
    in_checkout, in_wheel = tmp_path / "docs" / "a.json", package / "_shipped" / "docs" / "a.json"
    in_checkout.write_text("checkout")
    assert shipped_file("docs/a.json") == in_checkout
    in_wheel.write_text("wheel")
    assert shipped_file("docs/a.json") == in_wheel
    with pytest.raises(FileNotFoundError, match=r"docs/b\.json"):
        shipped_file("docs/b.json")


def test_what_is_read_is_recorded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(resources, "_READ", {})
    path = tmp_path / "x.bin"
    path.write_bytes(b"\0" * (1 << 20))
    assert record(path) == file_sha256(path) == hashlib.sha256(b"\0" * (1 << 20)).hexdigest()
    found = files_read()
    assert found == {"x.bin": file_sha256(path)}
    found.clear()
    assert files_read()


def test_the_cache_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("THESES_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / "home" / ".cache" / "theses"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "theses"
    monkeypatch.setenv("THESES_CACHE", str(tmp_path / "own" / "deep"))
    assert cache_folder() == tmp_path / "own" / "deep"
    assert cache_folder().is_dir()
