"""Evidence: how a study is run, judged, stored and published."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from theses.evidence.context import Context
    from theses.evidence.measurement import Count, Measurement
    from theses.evidence.timing import Comparison, interleave

__all__ = ["Comparison", "Context", "Count", "Measurement", "interleave"]

_HOME = {
    "Comparison": "timing",
    "Context": "context",
    "Count": "measurement",
    "Measurement": "measurement",
    "interleave": "timing",
}


def __getattr__(name: str) -> Any:
    # Imported when asked for: the command line reads the store without polars.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
