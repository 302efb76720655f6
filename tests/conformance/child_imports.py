"""Run in a process of its own: what importing the library brings along, and what importing a method changes.

Reads ``{"light": [names], "heavy": [modules]}`` or ``{"methods": [modules]}`` from standard input and writes
``{"light": {name: [complaints]}, "methods": {name: [complaints]}}``; in ``light``, ``a:b.c`` is the attribute
``b.c`` of the module ``a``, as a user asks for it.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import sys
from functools import partial


def brings(heavy: list[str], name: str) -> list[str]:
    """The heavy modules that something light imports."""
    module, _, attributes = name.partition(":")
    name = name.replace(":", ".")
    try:
        thing = importlib.import_module(module)
        for attribute in filter(None, attributes.split(".")):
            thing = getattr(thing, attribute)
    except Exception as error:
        return [f"{name} cannot be imported: {error!r}"]
    found = [module for module in heavy if module in sys.modules]
    return [f"importing {name} imports {', '.join(found)}"] if found else []


def changes(name: str) -> list[str]:
    """What importing a method's module changes."""
    from tests.conformance.state import capture, differences, restore

    base = capture()
    try:
        # The first import brings third-party modules along, whose changes are not the method's doing.
        importlib.import_module(name)
    except Exception as error:
        return [f"{name} cannot be imported: {error!r}"]
    restore(base)
    for module in [module for module in sys.modules if module == name or module.startswith(name + ".")]:
        del sys.modules[module]
    importlib.import_module(name)
    changed = [f"importing {name}: {change}" for change in differences(base, capture())]
    restore(base)
    return changed


def main() -> None:
    request = json.load(sys.stdin)
    light = {}
    if names := request.get("light"):
        # Each import starts from a fork in which nothing is loaded yet.
        with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
            brought = pool.map(partial(brings, request["heavy"]), names, chunksize=1)
        light = dict(zip(names, brought, strict=True))
    methods = {name: changes(name) for name in request.get("methods", [])}
    json.dump({"light": light, "methods": methods}, sys.stdout)


if __name__ == "__main__":
    main()
