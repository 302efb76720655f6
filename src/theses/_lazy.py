"""Sub-modules that are imported when they are first asked for."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

__all__ = ["lazy_submodules"]


def lazy_submodules(
    package: str, path: Iterable[str], own: Sequence[str] = ()
) -> tuple[Callable[[str], ModuleType], Callable[[], list[str]]]:
    """Module-level ``__getattr__`` and ``__dir__`` that import sub-modules on first access (PEP 562).

    Parameters
    ----------
    package : str
        Name of the package, its ``__name__``.
    path : iterable of str
        Its ``__path__``.
    own : sequence of str, default=()
        Names that the package itself defines.

    Returns
    -------
    getattr, dir : tuple of callables
        To be bound to ``__getattr__`` and ``__dir__``.
    """

    def names() -> list[str]:
        return sorted(m.name for m in pkgutil.iter_modules(path) if not m.name.startswith("_"))

    def module_getattr(name: str) -> ModuleType:
        if name.startswith("_") or name not in names():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(f"{package}.{name}")

    def module_dir() -> list[str]:
        return sorted({*own, *names()})

    return module_getattr, module_dir
