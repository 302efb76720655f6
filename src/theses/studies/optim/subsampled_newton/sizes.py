"""How large each preset measures."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SIZES", "Size"]


FORMS = (("uniform", 4), ("uniform", 16), ("approx", 4), ("approx", 16))


@dataclass(frozen=True)
class Size:
    """Sizes of one preset."""

    n: int  # rows of the generated matrices
    d: int
    m: int
    n_draws: int
    n_srht: int
    n_real: int  # rows of the real tables
    n_table: int  # draws of the table that no claim needs
    n_steps: int
    n_digits: int
    shrink_digits: int  # factor by which images are made coarser
    n_flights: int
    m_race: int
    less_forms: tuple[tuple[str, int], ...]  # of Newton-LESS, tried on the tuning seed


SIZES = {
    "smoke": Size(512, 10, 80, 40, 20, 300, 20, 20, 600, 4, 2_000, 600, FORMS[:1]),
    "standard": Size(4_096, 40, 200, 3_000, 600, 10_000, 600, 200, 5_000, 1, 200_000, 1_500, FORMS),
    "long": Size(4_096, 40, 200, 20_000, 3_000, 10_000, 3_000, 1_000, 5_000, 1, 200_000, 1_500, FORMS),
    "paper": Size(4_096, 40, 200, 3_000, 600, 10_000, 600, 200, 0, 1, 0, 1_500, FORMS),
}
