from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

import theses
from theses._lazy import lazy_submodules


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A package whose sub-modules are lazy: one works, one fails, one is private."""
    folder = tmp_path / "lazy_box"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from theses._lazy import lazy_submodules\n"
        "own = 1\n"
        "__getattr__, __dir__ = lazy_submodules(__name__, __path__, ['own'])\n"
    )
    (folder / "good.py").write_text("value = 5\n")
    (folder / "bad.py").write_text("raise ImportError('install the extra')\n")
    (folder / "_hidden.py").write_text("")
    (folder / "nested").mkdir()
    (folder / "nested" / "__init__.py").write_text("value = 6\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "lazy_box"]:
        monkeypatch.delitem(sys.modules, name)
    import lazy_box  # type: ignore[import-not-found]

    found: types.ModuleType = lazy_box
    return found


def test_sub_modules_come_with_the_first_access(package: types.ModuleType):
    assert "lazy_box.good" not in sys.modules
    assert package.good.value == 5
    assert "lazy_box.good" in sys.modules
    assert package.nested.value == 6


def test_dir_lists_what_can_be_asked_for(package: types.ModuleType):
    assert dir(package) == ["bad", "good", "nested", "own"]


@pytest.mark.parametrize("name", ["absent", "_hidden", "__wrapped__"])
def test_other_names_are_no_attributes(package: types.ModuleType, name: str):
    with pytest.raises(AttributeError, match=f"module 'lazy_box' has no attribute '{name}'"):
        getattr(package, name)
    assert not hasattr(package, name)


def test_a_failing_import_says_why(package: types.ModuleType):
    with pytest.raises(ImportError, match="install the extra"):
        _ = package.bad


def test_a_folder_without_modules_has_none(tmp_path: Path):
    module_getattr, module_dir = lazy_submodules("nothing", [str(tmp_path)])
    assert module_dir() == []
    with pytest.raises(AttributeError):
        module_getattr("x")


@pytest.mark.parametrize("name", ["data", "graphs", "trust", "catalogue", "resources", "validation"])
def test_theses_offers_its_rooms(name: str):
    assert name in dir(theses)


def test_importing_theses_is_free():
    code = (
        "import sys, theses, theses.catalogue, theses.data, theses.graphs, theses.trust\n"
        "slow = {'numpy', 'torch', 'scipy', 'sklearn', 'polars', 'ot', 'pandas'} & set(sys.modules)\n"
        "assert not slow, slow\n"
        "assert theses.validation.check_integer('n', 1) == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
