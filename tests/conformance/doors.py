"""Does everything public refuse bad arrays, by name, and leave the process as it was?"""

from __future__ import annotations

import dataclasses
import inspect
import re
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from sklearn.base import BaseEstimator

from tests.conformance.contract import CORRUPTIONS, Call
from tests.conformance.docstrings import documented_types, public_members
from tests.conformance.spoiling import get, put, spoil
from tests.conformance.state import LOOSE, capture, differences, preserved, restore
from tests.conformance.subject import Subject, tail

_ARRAY = re.compile(
    r"array|tensor|matri(x|ces)|data ?(frame|set)|table|sequence(\[| of )(float|int|number)", re.IGNORECASE
)
_DATA = ("A", "B", "X", "Y", "y")
_NO_ARRAY = re.compile(
    r"\s*(callable(?!.*\bor (array|ndarray|tensor))|(ignored|none|bool|str|int|float)\b(?!.*array))",
    re.IGNORECASE,
)


def check_calls(subject: Subject) -> list[str]:
    """``calls()`` covers everything public that takes arrays, and names only what exists."""
    file = subject.relative(subject.test_name)
    if not callable(getattr(subject.test_module, "calls", None)):
        return [f"{file} has no function calls() -> list[Call]"]
    calls: list[Call] = subject.test_module.calls()
    targets = public_callables(subject)
    complaints = []
    covered: dict[str, set[str]] = {}
    for call in calls:
        name = call.target.removesuffix(".__init__")
        if name not in targets and not _reaches(subject, name):
            complaints.append(f"{call.target}: nothing public goes by that name")
        covered.setdefault(name, set()).update(path.split(".")[0] for path in call.arrays)
        for place, paths in (("paired", call.paired), ("allowed", call.allowed), ("named", call.named)):
            complaints += [
                f"{call.target}: {place} names {path}, which is not among its arrays"
                for path in paths
                if path not in call.arrays
            ]
        complaints += [
            f"{call.target}: allowed names {corruption!r}; known are {', '.join(CORRUPTIONS)}"
            for corruptions in call.allowed.values()
            for corruption in corruptions
            if corruption not in CORRUPTIONS
        ]
    for name, function in targets.items():
        missing = [array for array in array_parameters(function) if array not in covered.get(name, ())]
        if missing:
            listed = "".join(f"{array!r}, " for array in missing)
            complaints.append(
                f"{name} takes arrays that nothing spoils: add to calls() of {file} a "
                f"Call({name!r}, make, arrays=({listed.rstrip(' ')}))"
            )
    return complaints


def check_valid_calls(subject: Subject) -> list[str]:
    """Each call works as it is given, and changes no global state."""
    complaints = []
    for call in subject.test_module.calls():
        changes: list[str] = []
        # What is imported late may change something the first time; then all is the method's doing.
        for ignored in (LOOSE, frozenset[str]()):
            with preserved() as base:
                try:
                    function, arguments = call.make()
                    restore(base)
                    function(**arguments)
                except Exception:
                    complaints.append(f"{call.target}: the valid call fails:\n{tail(traceback.format_exc())}")
                    break
                changes += differences(base, capture(), ignored)
        complaints += [f"{call.target}: {change}" for change in dict.fromkeys(changes)]
    return complaints


def check_bad_input(subject: Subject) -> list[str]:
    """Each spoilt array is refused with a ValueError or TypeError that names its parameter."""
    return [
        complaint
        for call in subject.test_module.calls()
        for path in call.arrays
        for complaint in _spoil_one(call, path)
    ]


def _spoil_one(call: Call, path: str) -> list[str]:
    where = f"{call.target}, {path}"
    try:
        spoilt_ways = spoil(get(call.make()[1], path), paired=path in call.paired)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        return [f"{where}: cannot be spoilt: {error!r}"]
    allowed = call.allowed.get(path, ())
    names = [call.named[path]] if path in call.named else [p for p in path.split(".") if not p.isdecimal()]
    complaints = []
    refused: dict[str, list[str]] = {}
    worked: set[str] = set()
    for corruption, words, value in spoilt_ways:
        with preserved(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function, arguments = call.make()
            arguments = put(arguments, path, value)
            try:
                function(**arguments)
            except (ValueError, TypeError) as error:
                if not _names(str(error), names):
                    complaints.append(
                        f"{where}, {words}: the error does not name {' or '.join(names)}: "
                        f"{type(error).__name__}: {error}"
                    )
                refused.setdefault(corruption, []).append(words)
            except Exception as error:
                complaints.append(
                    f"{where}, {words}: wanted a ValueError or TypeError, got {type(error).__name__}: {error}"
                )
            else:
                worked.add(corruption)
                if corruption not in allowed:
                    complaints.append(f"{where}, {words}: not refused")
    complaints += [
        f"{where}, {' and '.join(refused[corruption])}: allowed, but refused"
        for corruption in allowed
        if corruption in refused and corruption not in worked
    ]
    return complaints


def public_callables(subject: Subject) -> dict[str, Callable[..., Any]]:
    """What a user can hand arrays to: functions, constructors, methods; without what is generated."""
    found: dict[str, Callable[..., Any]] = {}
    for name, value in subject.public.items():
        if inspect.isclass(value):
            # An estimator keeps its arguments as they are and checks them in fit; a plain record checks none.
            record = dataclasses.is_dataclass(value) and not hasattr(value, "__post_init__")
            if not (record or issubclass(value, (BaseEstimator, tuple, BaseException))):
                found[name] = value
            for method, member in public_members(value, subject.library).items():
                if inspect.isfunction(member):
                    found[f"{name}.{method}"] = member
        elif inspect.isfunction(value):
            found[name] = value
    return found


def array_parameters(function: Callable[..., Any]) -> list[str]:
    """Parameters that are named like data, or whose annotation or documented type speaks of arrays."""
    documented = documented_types(function)
    annotated = _annotations(function)
    found = []
    for name in inspect.signature(function).parameters:
        texts = [_without_callables(annotated.get(name, "")), documented.get(name, "")]
        if _NO_ARRAY.match(texts[1]):
            continue
        if name in _DATA or any(_ARRAY.search(text) for text in texts):
            found.append(name)
    return found


def _annotations(function: Callable[..., Any]) -> Mapping[str, str]:
    target = function.__init__ if inspect.isclass(function) else function
    annotations = getattr(inspect.unwrap(target), "__annotations__", {})
    return {
        name: hint if isinstance(hint, str) else f"{getattr(hint, '__name__', '')} {hint!r}"
        for name, hint in annotations.items()
    }


def _without_callables(annotation: str) -> str:
    """Annotation without its ``Callable[...]``: a function of arrays is no array."""
    kept, depth = "", 0
    for part in re.split(r"(Callable\[|\[|\])", annotation):
        if part == "Callable[" or (part == "[" and depth):
            depth += 1
        elif part == "]" and depth:
            depth -= 1
        elif not depth:
            kept += part
    return kept


def _reaches(subject: Subject, target: str) -> bool:
    # Inherited methods, such as fit_predict, may be called too.
    value: Any = subject.module
    for i, part in enumerate(target.split(".")):
        if (i == 0 and part not in subject.public) or not hasattr(value, part):
            return False
        value = getattr(value, part)
    return callable(value)


def _names(message: str, names: list[str]) -> bool:
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) for name in names)
