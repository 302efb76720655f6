"""Stored results as a static site that needs no network; needs the extra ``report``."""

from theses.report.site import MARKER, ReportError, Written, write_report
from theses.report.sources import SnapshotSource, Source, StoreSource

__all__ = ["MARKER", "ReportError", "SnapshotSource", "Source", "StoreSource", "Written", "write_report"]
