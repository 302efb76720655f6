"""What is shown of a module, and where a name in a docstring leads."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
from types import ModuleType
from typing import Any

from docutils import nodes  # type: ignore[import-untyped]
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.environment import BuildEnvironment
from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer

__all__ = ["comment_of", "is_known", "public_names", "resolve", "skip_foreign"]


def public_names(module: ModuleType) -> dict[str, str]:
    """Names of a module's ``__all__``, if it has one, that can be described, with what each is.

    Parameters
    ----------
    module : module
        Any of the library.

    Returns
    -------
    dict of str to str
        ``{name: kind}`` in the order of ``__all__``, without sub-modules; a kind is ``class``,
        ``exception``, ``function`` or ``data``.
    """
    found = {}
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        if inspect.isclass(value):
            found[name] = "exception" if issubclass(value, BaseException) else "class"
        elif callable(value):
            found[name] = "function"
        elif not inspect.ismodule(value):
            found[name] = "data"
    return found


def comment_of(module: ModuleType, name: str) -> str:
    """What is said of a constant, in a ``#:`` comment or a string below it, where it is defined.

    Autodoc looks into the module alone from which the name is taken, and finds nothing for a package.
    """
    value = getattr(module, name)
    homes = [other for key, other in sys.modules.items() if key.startswith(module.__name__)]
    for home in homes:
        if vars(home).get(name) is value:
            with contextlib.suppress(PycodeError):
                found = ModuleAnalyzer.for_module(home.__name__).find_attr_docs().get(("", name))
                if found:
                    return "\n".join(found)
    return ""


def skip_foreign(app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what a class has from other libraries, such as the setters of scikit-learn's estimators."""
    home = getattr(inspect.unwrap(value) if callable(value) else value, "__module__", None)
    if what in ("class", "exception") and isinstance(home, str) and not home.startswith("theses"):
        return True
    return None


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Element | None:
    """Lead a name to where it is described: it may be said by the module that defines it, or by a short name
    that means something in that module only."""
    if node.get("refdomain") != "py":
        return None
    domain = env.domains["py"]
    assert isinstance(domain, PythonDomain)
    value = _value(node["reftarget"], node.get("py:module"), node.get("py:class"))
    if value is None:
        return None
    home = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    for name, entry in domain.objects.items():
        if name == home or (name.startswith("theses.") and _value(name) is value):
            builder = app.builder
            address = builder.get_relative_uri(node["refdoc"], entry.docname)
            return nodes.reference("", "", content, internal=True, refuri=f"{address}#{entry.node_id}")
    return None


def _value(target: str, module: str | None = None, cls: str | None = None) -> Any:
    """Object that a dotted name means, None if it means nothing."""
    target = target.lstrip(".")
    places = [f"{module}.{cls}." if module and cls else "", f"{module}." if module else "", ""]
    for prefix in dict.fromkeys(places):
        parts = f"{prefix}{target}".split(".")
        if parts[0] != "theses":
            continue
        for cut in range(len(parts), 0, -1):
            try:
                value: Any = importlib.import_module(".".join(parts[:cut]))
            except ModuleNotFoundError:
                continue
            for part in parts[cut:]:
                value = getattr(value, part, None)
            if value is not None:
                return value
            break
    return None


def is_known(app: Sphinx, domain: Any, node: pending_xref) -> bool | None:
    """Names that lead nowhere and are right all the same.

    Those of other libraries, since their lists of names would have to be fetched, and what the library has
    but does not describe here. A name that means nothing is still complained about.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    if _value(target, node.get("py:module"), node.get("py:class")) is not None:
        return True
    root = target.split(".")[0]
    return ("." in target and root != "theses" and importlib.util.find_spec(root) is not None) or None
