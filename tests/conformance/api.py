"""Can everything public be reached, and does reaching it cost no more than it must?"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conformance.subject import Subject, tail

HEAVY = (
    "altair",
    "jax",
    "numba",
    "numpy",
    "ot",
    "pandas",
    "polars",
    "scipy",
    "sklearn",
    "torch",
    "transformers",
)


def light_report(subjects: Sequence[Subject], cwd: Path) -> dict[str, list[str]]:
    """What the imports that have to be light bring along, from one process for all methods."""
    names = list(dict.fromkeys(name for subject in subjects for name in _light(subject)))
    return _ask(subjects[0], {"light": names, "heavy": HEAVY}, cwd)["light"]


def change_report(subjects: Sequence[Subject], cwd: Path) -> dict[str, list[str]]:
    """What importing the methods changes, from one process for all methods."""
    return _ask(subjects[0], {"methods": [subject.module_name for subject in subjects]}, cwd)["methods"]


def check_light_imports(subject: Subject, report: dict[str, list[str]]) -> list[str]:
    """Library, catalogue, package and apply command load no heavy library."""
    return [complaint for name in _light(subject) for complaint in report[name]]


def check_import_changes(subject: Subject, report: dict[str, list[str]]) -> list[str]:
    """Importing the method's module changes no global state."""
    return report[subject.module_name]


def check_api(subject: Subject) -> list[str]:
    """Each entry of the card resolves, is in ``__all__``, and the module is an attribute of its package."""
    package = importlib.import_module(subject.package_name)
    complaints = []
    if getattr(package, subject.stem, None) is not subject.module:
        complaints.append(f"{subject.package_name} has no attribute {subject.stem}")
    if subject.stem not in dir(package):
        complaints.append(f"dir({subject.package_name}) does not list {subject.stem}")
    for entry in subject.card.api:
        dotted, _, name = subject.dotted(entry).partition(":")
        try:
            module = importlib.import_module(dotted)
        except ImportError as error:
            complaints.append(f"api entry {entry}: {error}")
            continue
        if not hasattr(module, name):
            complaints.append(f"api entry {entry}: {dotted} has no {name}")
        elif name not in getattr(module, "__all__", ()):
            complaints.append(f"api entry {entry}: {name} is not in __all__ of {dotted}")
    return complaints


def check_all(subject: Subject) -> list[str]:
    """``__all__`` is there, holds no name that does not exist, and what it names is documented."""
    module = subject.module
    if not hasattr(module, "__all__"):
        return [f"{subject.module_name} has no __all__"]
    complaints = [
        f"__all__ names {name}, which is not there" for name in module.__all__ if not hasattr(module, name)
    ]
    twice = sorted({name for name in module.__all__ if module.__all__.count(name) > 1})
    complaints += [f"{name} is in __all__ twice" for name in twice]
    if not (module.__doc__ or "").strip():
        complaints.append(f"{subject.module_name} has no docstring")
    complaints += [
        f"{name} has no docstring"
        for name, value in subject.public.items()
        if (inspect.isroutine(value) or inspect.isclass(value)) and not (value.__doc__ or "").strip()
    ]
    return complaints


def _light(subject: Subject) -> list[str]:
    commands = [subject.apply_name] if subject.card.apply else []
    package = f"{subject.library}:{subject.card.package}"
    return [subject.library, f"{subject.library}.catalogue", package, *commands]


def _ask(subject: Subject, request: dict[str, Any], cwd: Path) -> dict[str, dict[str, list[str]]]:
    done = subject.python("-m", "tests.conformance.child_imports", cwd=cwd, stdin=json.dumps(request))
    if done.returncode:
        raise AssertionError(f"the imports could not be tried:\n{tail(done.stderr, 20)}")
    answer: dict[str, dict[str, list[str]]] = json.loads(done.stdout)
    return answer
