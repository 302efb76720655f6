"""Skeletons of all that a new method consists of, written into a checkout.

A skeleton has a part's name, imports and signatures, and nothing that the conformance battery would take for
the part itself: the card is refused by its reader, and each other file is reported, until it is filled.
"""

from __future__ import annotations

import json
import keyword
import re
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

from theses.catalogue.reader import UnknownMethodError, card_path, lookup

__all__ = ["NewMethod", "write"]

_SKELETONS = Path(__file__).parent / "skeleton"

#: What a method consists of, and where it is.
_PLACES: Final = {
    "card": "src/theses/catalogue/cards/{folder}/{module}.toml",
    "method": "src/theses/{folder}/{module}.py",
    "test": "tests/{folder}/test_{module}.py",
    "study": "src/theses/studies/{folder}/{module}.py",
    "benchmark": "benchmarks/{folder}/{module}.py",
    "example": "examples/{folder}/{module}.py",
    "start": "src/theses/catalogue/starts/{folder}/{module}.py",
    "apply": "src/theses/cli/apply/{module}.py",
}


@dataclass(frozen=True)
class NewMethod:
    """What is known of a method before any of it is there.

    Parameters
    ----------
    place : str
        ``PACKAGE/MODULE``, such as ``"graphs/metric_mst"``; packages may be nested.
    name : str
        The paper's own name for the method.
    arxiv : str
        Identifier of the paper.
    title : str
        Title of the paper.

    Raises
    ------
    ValueError
        If one of them cannot be that.

    Examples
    --------
    >>> method = NewMethod("graphs/metric_mst", "MFC-Approx", "2502.12993", "Approximate Forest Completion")
    >>> method.slug, method.package
    ('metric-mst', 'graphs')
    """

    place: str
    name: str
    arxiv: str
    title: str

    def __post_init__(self) -> None:
        parts = self.place.split("/")
        if len(parts) < 2 or not all(re.fullmatch(r"[a-z][a-z0-9_]*", part) for part in parts):
            raise ValueError(f"place must be PACKAGE/MODULE in small letters, got {self.place!r}")
        if reserved := [part for part in parts if keyword.iskeyword(part)]:
            raise ValueError(f"place must hold no word of Python's own, got {reserved[0]!r}")
        if not re.fullmatch(r"\d{4}\.\d{4,5}", self.arxiv):
            raise ValueError(f"arxiv must be an identifier such as 2501.18901, got {self.arxiv!r}")
        for field in ("name", "title"):
            text = getattr(self, field)
            if not text or text != " ".join(text.split()):
                raise ValueError(f"{field} must be one line without stray blanks, got {text!r}")

    @property
    def folder(self) -> str:
        """Folder of the package, such as ``lm/inference``."""
        return self.place.rpartition("/")[0]

    @property
    def package(self) -> str:
        """The package, such as ``lm.inference``."""
        return self.folder.replace("/", ".")

    @property
    def module(self) -> str:
        """The module, such as ``metric_mst``."""
        return self.place.rpartition("/")[2]

    @property
    def slug(self) -> str:
        """What commands call the method."""
        return self.module.replace("_", "-")

    def files(self) -> dict[str, tuple[str, str]]:
        """The skeletons.

        Returns
        -------
        dict of str to (str, str)
            By part (``card``, ``method``, ``study``, ...), its path in the checkout and its text.
        """
        reference = f"{self.title}, ICML 2025, arXiv {self.arxiv}."
        holes = {
            "name": json.dumps(self.name, ensure_ascii=False),  # as TOML writes strings, too
            "title": json.dumps(self.title, ensure_ascii=False),
            "arxiv": self.arxiv,
            "doc_name": _in_docstring(self.name),
            "reference": textwrap.fill(_in_docstring(reference), 100, break_long_words=False),
            "folder": self.folder,
            "module": self.module,
            "slug": self.slug,
        }
        return {
            part: (place.format(folder=self.folder, module=self.module), _fill(part, holes))
            for part, place in _PLACES.items()
        }

    def packages(self) -> dict[str, str]:
        """What makes packages of the folders.

        Returns
        -------
        dict of str to str
            Text of each ``__init__.py`` by its path in the checkout.
        """
        made = {}
        parts = self.folder.split("/")
        for depth in range(1, len(parts) + 1):
            folder, package = "/".join(parts[:depth]), ".".join(parts[:depth])
            made[f"src/theses/{folder}/__init__.py"] = _fill("package", {"package": package})
            studies = f'"""Studies of the methods in ``theses.{package}``."""\n'
            made[f"src/theses/studies/{folder}/__init__.py"] = studies
            made[f"tests/{folder}/__init__.py"] = ""
            made[f"benchmarks/{folder}/__init__.py"] = ""
        return made


def write(root: Path, method: NewMethod) -> tuple[list[str], list[str]]:
    """Write the skeletons of a method into a checkout; none, if one of the files is there already.

    Parameters
    ----------
    root : pathlib.Path
        Root of the checkout.
    method : NewMethod
        The method.

    Returns
    -------
    written : list of str
        Paths in the checkout.
    next_steps : list of str
        What is to be done then, a line or more each.

    Raises
    ------
    ValueError
        If there is no checkout, one of the files is there already, another method goes by the slug, the name
        or the arXiv identifier, or the package is a room that holds no methods.
    """
    if not (root / "pyproject.toml").is_file() or not (root / "src/theses/catalogue/cards").is_dir():
        raise ValueError(f"{root.resolve()} is not the root of a checkout of theses")
    floor = _floor_of_methods(root, method)
    for name in (method.slug, method.name, method.arxiv):
        try:
            other = lookup(name)
        except UnknownMethodError:
            continue
        raise ValueError(f"{name!r} already means {other.slug} ({card_path(other)})")
    parts = dict(method.files().values())
    # A module may have become a folder of the same name.
    if taken := [p for p in parts if (root / p).exists() or (root / p).with_suffix("").exists()]:
        raise ValueError(f"nothing is written over: {', '.join(taken)}")
    packages = {path: text for path, text in method.packages().items() if not (root / path).exists()}
    for path, text in (parts | packages).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        with (root / path).open("x", encoding="utf-8") as stream:
            stream.write(text)
    return [*parts, *packages], _next_steps(method, floor)


def _floor_of_methods(root: Path, method: NewMethod) -> str:
    """Line of the import contract that a new package needs; empty if it is there."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    floors = [layer.split(" | ") for contract in contracts for layer in contract.get("layers", ())]
    (methods,) = (floor for floor in floors if "evidence" in floor)
    top = method.folder.split("/")[0]
    if top == "evidence" or any(top in floor for floor in floors if floor is not methods):
        raise ValueError(f"place must be in a package of methods, and {top} is none")
    return "" if top in methods else f'"{" | ".join([*methods, top])}",'


def _next_steps(method: NewMethod, floor: str) -> list[str]:
    files = {part: path for part, (path, _) in method.files().items()}
    steps = [
        f"Fill in {files['card']}, bounds before anything is measured; `theses show {method.slug}` says what "
        "is missing (kinds of have, want and claims: src/theses/catalogue/kinds.py).",
        "Fill in the other files, the method first (CONTRIBUTING.md says what goes where); "
        f"`pytest tests/conformance -k {method.slug}` says what each lacks.",
        f"Where it takes no files: delete {files['apply']} and empty `apply` on the card.",
    ]
    if floor:
        init = f"src/theses/{method.folder}/__init__.py"
        steps.append(f"Say in {init} what its methods are about.")
        steps.append(f"In the import contract of pyproject.toml, the floor of the methods becomes\n{floor}")
    return steps


def _fill(part: str, holes: dict[str, str]) -> str:
    return Template((_SKELETONS / f"{part}.txt").read_text(encoding="utf-8")).substitute(holes)


def _in_docstring(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', r"\"\"\"")
