"""Run in a process of its own, with libraries hidden: draws stored tables.

Reads ``{"study": name, "hidden": [modules], "tables": encoded}`` from standard input and writes
``{name of figure: specification or complaint}``.
"""

from __future__ import annotations

import importlib
import json
import sys
from importlib.machinery import ModuleSpec
from typing import Any


class Hiding:
    """Finder that does as if some modules were not installed."""

    def __init__(self, finder: Any, hidden: frozenset[str]) -> None:
        self._finder = finder
        self._hidden = hidden

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name in self._hidden or name.split(".")[0] in self._hidden:
            return None
        spec: ModuleSpec | None = self._finder.find_spec(name, path, target)
        return spec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


def main() -> None:
    request = json.load(sys.stdin)
    hidden = frozenset(request["hidden"])
    sys.meta_path[:] = [Hiding(finder, hidden) for finder in sys.meta_path]
    if early := [name for name in hidden if name in sys.modules]:
        raise AssertionError(f"already imported: {', '.join(early)}")

    import altair

    from theses.evidence.codec import decode

    figures = importlib.import_module(request["study"]).figures
    charts: dict[str, Any] = {}
    for name, chart in figures(decode(request["tables"])).items():
        if isinstance(chart, altair.TopLevelMixin):
            try:
                charts[name] = chart.to_dict()  # validates against the schema of Vega-Lite
            except Exception as error:
                charts[name] = f"{type(error).__name__}: {error}"
        else:
            charts[name] = f"expected an Altair chart, got {type(chart).__name__}"
    json.dump(charts, sys.stdout)


if __name__ == "__main__":
    main()
