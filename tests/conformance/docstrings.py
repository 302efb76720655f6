"""Does every docstring say what a user has to know?"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Iterator
from typing import Any

from numpydoc.docscrape import get_doc_object  # type: ignore[import-untyped]
from numpydoc.validate import validate  # type: ignore[import-untyped]

from tests.conformance.subject import Subject

# What a reader misses; the codes left out are about blanks, capitals, full stops and the sections' order.
CODES = frozenset(
    {
        "GL06",  # unknown section
        "GL08",  # no docstring
        "SS01",  # no summary
        "SS02",  # summary without a capital letter
        "SS03",  # summary without a full stop
        "SS04",  # summary after blanks
        "SS06",  # summary of several lines
        "PR01",  # parameter not documented
        "PR02",  # unknown parameter documented
        "PR03",  # parameters in another order
        "PR04",  # parameter without a type
        "PR07",  # parameter without a description
        "PR10",  # no blank before the colon of a parameter
        "RT01",  # returns not documented
        "RT03",  # returns without a description
        "YD01",  # yields not documented
    }
)


def check_docstrings(subject: Subject) -> list[str]:
    """numpydoc finds nothing missing in functions, classes and their public methods.

    Functions and classes also need an example, entries of the card's ``api`` the source.
    """
    entries = {entry.partition(":")[2] for entry in subject.card.api}
    complaints: list[str] = []
    for name, value in subject.public.items():
        if not (inspect.isroutine(value) or inspect.isclass(value)):
            continue
        complaints += _validate(name, value, _wanted(value))
        if name in entries and not _document(value)["References"]:
            complaints.append(f"{name}: no References section with the paper's section or equation")
        if inspect.isclass(value):
            for method, member in public_members(value, subject.library).items():
                complaints += _validate(f"{name}.{method}", member, CODES)
    return complaints


def public_members(cls: type, library: str) -> dict[str, Any]:
    """Public methods and properties that a class has from the library's own code, unbound."""
    members: dict[str, Any] = {}
    for owner in cls.__mro__:
        if owner.__module__.split(".")[0] != library:
            continue
        for name, value in vars(owner).items():
            if name in getattr(owner, "__dataclass_fields__", {}):
                continue
            kinds = (classmethod, staticmethod, property, functools.cached_property)
            if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, kinds)):
                members.setdefault(name, getattr(value, "__func__", value))
    return members


def documented_types(value: Any) -> dict[str, str]:
    """Types of the parameters as the docstring gives them."""
    return {
        name.strip().lstrip("*"): parameter.type
        for section in ("Parameters", "Other Parameters")
        for parameter in _document(value)[section]
        for name in parameter.name.split(",")
    }


def _wanted(value: Any) -> frozenset[str]:
    """Codes for something public: nobody makes an exception, a choice or a protocol by its constructor."""
    kinds = (BaseException, enum.Enum)
    if inspect.isclass(value) and (issubclass(value, kinds) or getattr(value, "_is_protocol", False)):
        return frozenset(code for code in CODES if code[:2] in ("GL", "SS"))
    return CODES | {"EX01"}


def _validate(name: str, value: Any, codes: frozenset[str]) -> Iterator[str]:
    if isinstance(value, property) and value.fget is not None and not value.__doc__:
        value = value.fget
    try:
        errors = validate(_document(value))["errors"]
    except (StopIteration, OSError):
        yield f"{name}: numpydoc finds no def in its source"
        return
    for code, message in errors:
        if code in codes:
            yield f"{name}: {code} {message}"


def _document(value: Any) -> Any:
    # Without this, the document of a class would try to describe each of its members.
    return get_doc_object(value, config={"show_class_members": False})
