"""How large each preset measures."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

__all__ = ["SIZES", "Size"]


@dataclass(frozen=True)
class Size:
    """How large to measure; what ends in ``_n`` counts samples."""

    n_projections: int = 1_000
    random_pairs: int = 10
    random_replicates: int = 2
    random_n: tuple[int, int] = (250, 1_500)
    graded_n: int = 500
    labels_n: int = 1_000
    time_n: tuple[int, ...] = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
    time_otdd_n: tuple[int, ...] = (500, 1_000, 2_000, 4_000)
    time_projections: int = 200
    time_repeats: int = 3
    time_otdd_repeats: int = 2
    classes_n: int = 8_000
    classes_repeats: int = 7
    transfer_replicates: int = 2
    source_n: int = 1_500
    target_n: int = 100
    test_n: int = 2_000
    augmented_n: int = 500
    epochs: tuple[int, int] = (3, 20)
    error_n: int = 100
    error_projections: tuple[int, int, int] = (100, 1_000, 5_000)
    error_repeats: int = 20
    error_replicates: int = 6

    def capped(self, limit: int | None) -> Size:
        """The same with no more than ``limit`` samples anywhere."""
        if limit is None:
            return self
        changes: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not field.name.endswith("_n"):
                continue
            if isinstance(value, tuple):
                # In proportion: sizes that were all cut to the limit would show no growth.
                value = tuple(max(2, n * min(limit, max(value)) // max(value)) for n in value)
            changes[field.name] = value if isinstance(value, tuple) else min(value, limit)
        return dataclasses.replace(self, **changes)


_STANDARD = Size()
SIZES = {
    "smoke": Size(
        n_projections=50,
        random_pairs=4,
        random_replicates=2,
        random_n=(50, 100),
        graded_n=100,
        labels_n=100,
        time_n=(250, 500, 1_000),
        time_otdd_n=(50, 100, 200),
        time_projections=20,
        time_repeats=2,
        classes_n=500,
        source_n=100,
        target_n=50,
        test_n=200,
        augmented_n=50,
        epochs=(0, 0),
        error_n=30,
        error_projections=(20, 50, 100),
        error_repeats=5,
        error_replicates=2,
        transfer_replicates=1,
    ),
    "standard": _STANDARD,
    "long": _STANDARD,
    "paper": Size(
        n_projections=10_000,
        random_n=(5_000, 10_000),
        graded_n=5_000,
        time_n=(1_000, 4_000, 16_000, 60_000),
        time_otdd_n=(1_000, 2_000, 4_000, 8_000),
        time_projections=1_000,
        source_n=10_000,
        test_n=10_000,
    ),
}
