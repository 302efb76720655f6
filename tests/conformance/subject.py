"""What the battery looks at: one card and the files that belong to it."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from theses.catalogue import Card

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Subject:
    """One method with everything that belongs to it.

    The names of the trees are parameters, so that the battery can be tried on a made-up library.

    Parameters
    ----------
    card : Card
        The method's card.
    root : pathlib.Path
        Folder with ``pyproject.toml``, ``src`` and the other trees.
    library, tests, benchmarks, examples : str
        Top-level packages of the trees.
    """

    card: Card
    root: Path = ROOT
    library: str = "theses"
    tests: str = "tests"
    benchmarks: str = "benchmarks"
    examples: str = "examples"

    def dotted(self, name: str) -> str:
        """Name that a card gives, in the library that is looked at."""
        return re.sub(r"^theses(?=\.|$)", self.library, name)

    @property
    def stem(self) -> str:
        return self.card.slug.replace("-", "_")

    @property
    def package_name(self) -> str:
        return f"{self.library}.{self.card.package}"

    @property
    def module_name(self) -> str:
        return self.dotted(self.card.module)

    @property
    def study_name(self) -> str:
        return self.dotted(self.card.study)

    @property
    def apply_name(self) -> str:
        return self.dotted(self.card.apply)

    @property
    def test_name(self) -> str:
        return f"{self.tests}.{self.card.package}.test_{self.stem}"

    @property
    def benchmark_name(self) -> str:
        return f"{self.benchmarks}.{self.card.package}.{self.stem}"

    @property
    def example_name(self) -> str:
        return f"{self.examples}.{self.card.package}.{self.stem}"

    def path(self, dotted: str) -> Path:
        """File of a module; of the module ``a.b`` that does not exist, where it is missed."""
        top = self.root / "src" if dotted.split(".")[0] == self.library else self.root
        file = top.joinpath(*dotted.split(".")).with_suffix(".py")
        folder = file.with_suffix("") / "__init__.py"
        return folder if folder.is_file() and not file.is_file() else file

    def relative(self, dotted: str) -> str:
        """The same, from the root, for messages."""
        return self.path(dotted).relative_to(self.root).as_posix()

    @property
    def module(self) -> ModuleType:
        return importlib.import_module(self.module_name)

    @property
    def study(self) -> ModuleType:
        return importlib.import_module(self.study_name)

    @property
    def test_module(self) -> ModuleType:
        return importlib.import_module(self.test_name)

    @property
    def public(self) -> dict[str, Any]:
        """What the method's module offers, by name."""
        return {
            name: getattr(self.module, name)
            for name in getattr(self.module, "__all__", ())
            if hasattr(self.module, name)
        }

    @cached_property
    def project(self) -> dict[str, Any]:
        """Content of ``pyproject.toml``."""
        return tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))

    def python(
        self, *arguments: str, cwd: Path, stdin: str = "", trees: bool = True, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run Python in a process of its own, outside the trees, which it can import from if ``trees``."""
        places = [self.root / "src", *([self.root, ROOT] if trees else [])]
        inherited = [path for path in [os.environ.get("PYTHONPATH")] if path]
        return subprocess.run(
            [sys.executable, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=cwd,
            timeout=timeout,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, places), *inherited])},
        )


def import_names(distributions: Sequence[str]) -> set[str]:
    """Top-level modules that installed distributions bring, by the distributions' names."""
    wanted = {_canonical(name) for name in distributions}
    return {
        module
        for module, names in _distributions_by_module().items()
        if wanted & {_canonical(name) for name in names}
    }


def requirement_names(requirements: Sequence[str]) -> list[str]:
    """Distributions named by requirements: of ``POT>=0.9``, ``pot``."""
    return [_canonical(match[0]) for text in requirements if (match := re.match(r"[\w.-]+", text))]


def tail(text: str, lines: int = 8) -> str:
    """Last lines of an output."""
    return "\n".join(text.strip().splitlines()[-lines:])


@cache
def _distributions_by_module() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
