"""Evidence: how a study is run, judged, stored and published."""

from theses.evidence.context import Context
from theses.evidence.measurement import Count, Measurement
from theses.evidence.timing import Comparison, interleave

__all__ = ["Comparison", "Context", "Count", "Measurement", "interleave"]
