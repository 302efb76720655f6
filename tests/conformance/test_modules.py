"""The examples in the docstrings of every module of the library run."""

from __future__ import annotations

import doctest
import importlib
import io
import os
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.conformance.state import preserved
from tests.conformance.subject import ROOT

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
DOCSTRING_S = 2.0


def module_names(top: Path) -> list[str]:
    """Dotted names of all modules of a package, without those that are programs or templates of programs."""
    names = []
    for path in sorted(top.rglob("*.py")):
        parts = path.relative_to(top.parent).with_suffix("").parts
        if parts[-1] != "__main__" and "starts" not in parts:
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def check_examples(module: ModuleType) -> list[str]:
    """The examples of a module's docstrings give what they say, each docstring's in a short time."""
    runner = doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
    complaints = []
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__):
        if not test.examples:
            continue
        output = io.StringIO()
        start = time.process_time()
        failed = runner.run(test, out=output.write).failed
        cpu_s = time.process_time() - start
        if failed:
            complaints.append(output.getvalue())
        # The first run of a process imports what the example imports; only the second is the example's own.
        if cpu_s > DOCSTRING_S:
            start = time.process_time()
            runner.run(test, out=output.write)
            cpu_s = time.process_time() - start
            if cpu_s > DOCSTRING_S:
                complaints.append(f"{test.name}: its examples may take {DOCSTRING_S:g} s, took {cpu_s:.1f} s")
    return complaints


@pytest.mark.parametrize("name", module_names(ROOT / "src" / "theses"))
def test_docstring_examples_run(name: str, tmp_path: Path) -> None:
    with preserved():
        os.chdir(tmp_path)
        complaints = check_examples(importlib.import_module(name))
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)


def test_a_wrong_example_is_found() -> None:
    module = ModuleType("wrong")
    module.__doc__ = ">>> 1 + 1\n3\n"
    assert "Expected:\n    3\nGot:\n    2" in check_examples(module)[0]
    module.__doc__ = ">>> 1 + 1\n2\n"
    assert check_examples(module) == []


def test_a_slow_example_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("slow")
    module.__doc__ = ">>> 1 + 1\n2\n"
    monkeypatch.setattr("tests.conformance.test_modules.DOCSTRING_S", -1.0)
    assert "took" in check_examples(module)[0]
