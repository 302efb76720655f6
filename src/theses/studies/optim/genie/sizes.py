"""How large each preset is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

__all__ = ["ARMS", "DIGITS", "SIZES", "SMALL", "VARIANTS", "Size"]

#: Optimisers that are compared, and GENIE without its parts.
ARMS: Final = ("SGD", "Adam", "AdamW", "SAM", "GENIE")
VARIANTS: Final = ("no mask", "no draws", "as printed")
DIGITS: Final = ("rotated", "tinted", "styled", "photographed")
#: Those that the small network of digits learns.
SMALL: Final = DIGITS[:3]

_GENIE = (0.015, 0.05, 0.15, 0.5, 1.5, 5.0, 15.0)
_SGD = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
_ADAM = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
_GRIDS = {"SGD": _SGD, "Adam": _ADAM, "AdamW": _ADAM, "SAM": _SGD, "GENIE": _GENIE, "as printed": _GENIE}


@dataclass(frozen=True)
class Size:
    """Numbers of steps, images, rounds, and the grids of rates."""

    steps: int  # on digits
    every: int  # steps between looks at the hold-out
    n_digits: int | None  # images of a data set of small digits; None for all
    copies: int  # of each image to pre-train on
    steps_photographed: int
    n_photographed: int  # images of a domain
    pixels: int
    n_osgr: int  # batches of a ratio
    horizons: tuple[int, ...]  # of the rate
    tuned_at: int  # horizon at which the rate's constant is tuned
    rounds: int  # of the timing
    warmup: int
    batch_timed: int
    steps_small: int  # of the small network in a timed round
    grids: Mapping[str, tuple[float, ...]]
    steps_domainbed: int = 5_000
    every_domainbed: int = 300


_STANDARD = Size(
    steps=300,
    every=50,
    n_digits=None,
    copies=4,
    steps_photographed=150,
    n_photographed=400,
    pixels=96,
    n_osgr=16,
    horizons=(250, 500, 1_000, 2_000, 4_000),
    tuned_at=1_000,
    rounds=5,
    warmup=2,
    batch_timed=32,
    steps_small=20,
    grids=_GRIDS,
)

SIZES: Final = {
    "smoke": replace(
        _STANDARD,
        steps=2,
        every=2,
        n_digits=120,
        copies=1,
        steps_photographed=1,
        n_photographed=6,
        pixels=32,
        n_osgr=2,
        horizons=(4, 8),
        tuned_at=4,
        rounds=1,
        warmup=0,
        batch_timed=2,
        steps_small=1,
        # Nothing to choose from.
        grids={name: grid[3:4] for name, grid in _GRIDS.items()},
        steps_domainbed=2,
        every_domainbed=1,
    ),
    "standard": _STANDARD,
    "paper": _STANDARD,
}
