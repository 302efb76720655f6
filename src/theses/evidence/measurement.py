"""What one unit of a study delivers."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl

__all__ = ["Count", "Measurement"]


class Count(NamedTuple):
    """Replicates of a share, counted: how many of ``trials`` were hits."""

    hits: int
    trials: int


@dataclass(frozen=True)
class Measurement:
    """Metrics, tables and notes of one unit: one method, one seed, one preset.

    Parameters
    ----------
    metrics : mapping of str to float, Count or sequence of these
        Replicates of each metric of the card; a single number is one replicate.
    tables : mapping of str to polars.DataFrame
        What ``figures`` draws from.
    notes : sequence of str
        What a reader of the numbers has to know.

    Examples
    --------
    >>> Measurement({"slope": 1.05, "ratio": [1.1, 1.2]}).metrics
    {'slope': (1.05,), 'ratio': (1.1, 1.2)}
    """

    metrics: Mapping[str, Any]
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        metrics = {name: _replicates(name, value) for name, value in self.metrics.items()}
        object.__setattr__(self, "metrics", metrics)
        object.__setattr__(self, "tables", dict(self.tables))
        object.__setattr__(self, "notes", tuple(self.notes))

    def to_dict(self) -> dict[str, Any]:
        """Plain mapping for the store."""
        return {"metrics": dict(self.metrics), "tables": dict(self.tables), "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Measurement:
        """Measurement from :meth:`to_dict`, also after a round through JSON.

        Parameters
        ----------
        data : mapping
            Keys ``metrics``, ``tables``, ``notes``.

        Returns
        -------
        Measurement
            The same measurement.
        """
        return cls(**data)


def _replicates(name: str, value: Any) -> tuple[float | Count, ...]:
    if isinstance(value, (numbers.Real, Count)):
        value = [value]
    replicates: list[float | Count] = []
    for entry in value:
        if isinstance(entry, numbers.Real):
            replicates.append(float(entry))
        elif isinstance(entry, (Count, list)) and len(entry) == 2:
            hits, trials = (int(part) for part in entry)
            if not 0 <= hits <= trials:
                raise ValueError(f"metric {name}: a count needs 0 <= hits <= trials, got {hits} of {trials}")
            replicates.append(Count(hits, trials))
        else:
            raise TypeError(f"metric {name}: replicates are numbers or Counts, got {entry!r}")
    if not replicates:
        raise ValueError(f"metric {name} has no replicate")
    return tuple(replicates)
