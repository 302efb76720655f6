"""Verdicts of the published snapshot, read as plain data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["VERDICTS", "count_verdicts", "describe_counts", "published"]

VERDICTS: Final = ("holds", "fails", "undecided", "unjudged", "not run")


def published(path: Path) -> dict[str, Any]:
    """Entry of each method in a snapshot.

    Parameters
    ----------
    path : pathlib.Path
        ``docs/evidence.json``.

    Returns
    -------
    dict
        ``{slug: entry}``.

    Raises
    ------
    ValueError
        If the file is no snapshot.
    """
    try:
        snapshot = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: no JSON ({error})") from None
    methods = snapshot.get("methods") if isinstance(snapshot, dict) else None
    if not isinstance(methods, dict):
        raise ValueError(f"{path}: no snapshot, the key 'methods' is missing")
    return methods


def count_verdicts(claims: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many claims got which verdict; identities are no evidence and do not count.

    Parameters
    ----------
    claims : iterable of mapping
        Claims of a snapshot's entry, with ``kind`` and ``verdict``.

    Returns
    -------
    dict of str to int
        By verdict, those that occur.

    Examples
    --------
    >>> count_verdicts([{"kind": "scaled", "verdict": "holds"}, {"kind": "identity", "verdict": "holds"}])
    {'holds': 1}
    """
    judged = [claim["verdict"] for claim in claims if claim["kind"] != "identity"]
    return {verdict: judged.count(verdict) for verdict in VERDICTS if verdict in judged}


def describe_counts(counts: Mapping[str, int]) -> str:
    """Counts of verdicts in words.

    Parameters
    ----------
    counts : mapping of str to int
        From :func:`count_verdicts`; empty if nothing is published.

    Returns
    -------
    str
        Such as ``"7 hold, 1 fails"``.

    Examples
    --------
    >>> describe_counts({"holds": 7, "fails": 1})
    '7 hold, 1 fails'
    >>> describe_counts({})
    'not measured yet'
    """
    plural = {"holds": "hold", "fails": "fail"}
    parts = [f"{n} {plural.get(verdict, verdict) if n > 1 else verdict}" for verdict, n in counts.items()]
    return ", ".join(parts) or "not measured yet"
