"""What has been measured: the published snapshot, and the user's own store where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from theses.catalogue.published import published
from theses.cli.output import warn
from theses.resources import shipped_file

__all__ = ["own_verdicts", "snapshot"]


def snapshot() -> dict[str, Any]:
    """Entry of each method in the published snapshot that this version carries.

    Returns
    -------
    dict
        ``{slug: entry}``; empty, with a warning, if the file is missing or damaged.
    """
    try:
        return published(shipped_file("docs/evidence.json"))
    except (OSError, ValueError) as error:
        warn(f"no published evidence: {error}")
        return {}


def own_verdicts(slug: str) -> tuple[Path, dict[str, str]] | None:
    """Last verdicts of the user's own runs of a method.

    Parameters
    ----------
    slug : str
        The method.

    Returns
    -------
    path : pathlib.Path
        The store.
    verdicts : dict of str to str
        By claim. None in place of both if there is no store or nothing of the method in it; with a warning if
        it cannot be read.
    """
    from theses.evidence.store import StoreError, default_store_path, last_verdicts

    path = default_store_path()
    try:
        verdicts = last_verdicts(path, slug)
    except StoreError as error:
        warn(error)
        return None
    return None if verdicts is None else (path, verdicts)
