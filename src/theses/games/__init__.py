"""Methods for games: learners, equilibria, guarantees of play."""

from theses._lazy import lazy_submodules

__all__: list[str] = []

__getattr__, __dir__ = lazy_submodules(__name__, __path__)
