from __future__ import annotations

import numpy as np
import pytest

from theses.datasets.bikeshare import bikers_at, load_bikeshare


def test_hours_are_as_published():
    hours = load_bikeshare()
    assert hours.height == 8_645
    assert (hours["casual"] + hours["registered"] == hours["bikers"]).all()
    assert set(hours["hr"].unique()) == set(range(24))
    assert hours["temp"].is_between(0, 1).all()
    assert hours["weathersit"].n_unique() == 4
    # A working day is neither weekend nor holiday.
    free = (hours["holiday"] == 1) | hours["weekday"].is_in([0, 6])
    assert ((hours["workingday"] == 1) == ~free).all()


def test_the_evening_rush_is_larger_on_working_days():
    evening, night = bikers_at(17), bikers_at(3)
    assert evening.dtype == np.float64 and len(evening) == 250
    assert evening.mean() > 20 * night.mean()
    every = bikers_at(17, working_days=False)
    assert len(every) == 365 and every.mean() < evening.mean()


def test_bad_hours_are_named():
    with pytest.raises(ValueError, match="hour must be at most 23"):
        bikers_at(24)
    with pytest.raises(TypeError, match="hour must be an integer"):
        bikers_at(17.0)  # type: ignore[arg-type]
