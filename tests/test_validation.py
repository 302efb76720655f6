from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from theses.validation import (
    as_generator,
    as_torch_generator,
    check_array,
    check_choice,
    check_integer,
    check_real,
    check_same_length,
)

ANY_FLOATS = st.floats(width=64)


SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)


@given(hnp.arrays(np.float64, SHAPES, elements=ANY_FLOATS))
def test_arrays_pass_or_name_the_parameter(array: np.ndarray):
    fits = array.ndim == 2 and len(array) >= 1 and array.shape[1] > 0 and bool(np.isfinite(array).all())
    if fits:
        assert check_array("X", array, ndim=2) is array
    else:
        with pytest.raises(ValueError, match=r"^X must "):
            check_array("X", array, ndim=2)


@given(
    hnp.arrays(np.float64, (3, 2), elements=st.floats(-1, 1)),
    st.integers(0, 5),
    st.sampled_from([np.nan, np.inf]),
)
def test_the_first_number_that_is_none_is_located(array: np.ndarray, place: int, value: float):
    array.flat[place] = value
    row, column = divmod(place, 2)
    with pytest.raises(ValueError, match=rf"X must be finite, got {value} at index \({row}, {column}\)"):
        check_array("X", array, ndim=2)
    assert check_array("X", array, ndim=2, finite=False) is array


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2], [3, 4]],
        ((1, 2), (3, 4)),
        torch.tensor([[1, 2], [3, 4]]),
        pl.DataFrame({"a": [1, 3], "b": [2, 4]}),
    ],
)
def test_what_can_be_read_as_an_array_is(value: Any):
    found = check_array("X", value, ndim=2)
    assert found.dtype == np.float64
    assert found.tolist() == [[1, 2], [3, 4]]


def test_a_tensor_with_gradients_is_read():
    tensor = torch.ones(3, requires_grad=True)
    assert check_array("x", tensor, ndim=1).tolist() == [1, 1, 1]
    assert tensor.requires_grad


def test_a_tensor_of_bfloat16_is_read_in_single_precision():
    tensor = torch.tensor([0.1, 2.0], dtype=torch.bfloat16)
    assert check_array("X", tensor, ndim=1, dtype=None).dtype == np.float32
    np.testing.assert_array_equal(check_array("X", tensor, ndim=1), tensor.double().numpy())


def test_complex_numbers_are_no_real_ones():
    with pytest.raises(TypeError, match="X must be real, got complex128"):
        check_array("X", np.array([1j]), ndim=1)
    assert check_array("X", np.array([1j]), ndim=1, dtype=complex)[0] == 1j


def test_dtype_none_keeps_what_came():
    assert check_array("y", np.array([1, 2], np.int8), ndim=1, dtype=None).dtype == np.int8
    assert check_array("y", np.array(["a"]), ndim=1, dtype=None).dtype.kind == "U"


@pytest.mark.parametrize("value", [["a", "b"], [[1], [2, 3]], object(), [None, {}]])
def test_what_is_no_array_of_numbers_is_a_type_error(value: Any):
    with pytest.raises(TypeError, match=f"X must be an array of numbers, got {type(value).__name__}"):
        check_array("X", value, ndim=1)


@pytest.mark.parametrize(
    ("value", "ndim", "message"),
    [
        ([1.0], 2, r"must have 2 dimensions, got shape \(1,\)"),
        ([[1.0]], 1, r"must have 1 dimension, got shape \(1, 1\)"),
        (5.0, (1, 2), r"must have 1 or 2 dimensions, got shape \(\)"),
        (np.zeros((0, 2)), 2, r"at least 1 row\(s\), got shape \(0, 2\)"),
        (np.zeros((2, 0)), 2, r"must not have an empty axis, got shape \(2, 0\)"),
    ],
)
def test_shapes(value: Any, ndim: Any, message: str):
    with pytest.raises(ValueError, match=message):
        check_array("X", value, ndim=ndim)


def test_least_lengths():
    assert check_array("x", [], ndim=1, min_length=0).shape == (0,)
    with pytest.raises(ValueError, match="at least 3"):
        check_array("x", [1, 2], ndim=1, min_length=3)


def test_lengths_must_agree():
    assert check_same_length({"X": np.zeros((4, 2)), "y": [0] * 4}) == 4
    with pytest.raises(ValueError, match="X and y must have the same length, but X has 4, y has 3"):
        check_same_length({"X": np.zeros((4, 2)), "y": [0] * 3})


BOUND = st.none() | st.integers(-5, 5)


@given(st.integers(-10, 10), BOUND, BOUND)
def test_integers_within_bounds(value: int, minimum: int | None, maximum: int | None):
    inside = (minimum is None or value >= minimum) and (maximum is None or value <= maximum)
    if inside:
        found = check_integer("n", np.int64(value), minimum=minimum, maximum=maximum)
        assert found == value
        assert type(found) is int
    else:
        with pytest.raises(ValueError, match=f"n must be at (least|most) -?[0-9]+, got {value}$"):
            check_integer("n", value, minimum=minimum, maximum=maximum)


@pytest.mark.parametrize("value", [True, np.True_, 1.0, "1", None, [1]])
def test_other_things_are_no_integers(value: Any):
    with pytest.raises(TypeError, match="n must be an integer, got "):
        check_integer("n", value)


@given(ANY_FLOATS, st.none() | st.floats(-5, 5), st.none() | st.floats(-5, 5), st.booleans())
def test_reals_within_bounds(value: float, minimum: float | None, maximum: float | None, include: bool):
    def above(a: float, b: float) -> bool:
        return a >= b if include else a > b

    inside = (
        math.isfinite(value)
        and (minimum is None or above(value, minimum))
        and (maximum is None or above(maximum, value))
    )
    if inside:
        assert check_real("a", value, minimum=minimum, maximum=maximum, include=include) == value
    else:
        with pytest.raises(ValueError, match=r"^a must be "):
            check_real("a", value, minimum=minimum, maximum=maximum, include=include)


@pytest.mark.parametrize("value", [1, np.float32(1), np.int8(1), Fraction(1, 1)])
def test_reals_of_all_kinds_become_floats(value: Any):
    assert check_real("a", value) == 1.0
    assert type(check_real("a", value)) is float


@pytest.mark.parametrize("value", [True, "1", None, 1j, np.zeros(1)])
def test_other_things_are_no_reals(value: Any):
    with pytest.raises(TypeError, match="a must be a real number, got "):
        check_real("a", value)


def test_long_values_are_cut_in_messages():
    with pytest.raises(TypeError) as caught:
        check_integer("n", "x" * 1000)
    assert len(str(caught.value)) < 120


def test_choices_are_compared_with_their_type():
    assert check_choice("mode", "a", ("a", "b")) == "a"
    for value in ("c", 1, None, ["a"]):
        with pytest.raises(ValueError, match="mode must be one of 'a', 'b', got "):
            check_choice("mode", value, ("a", "b"))
    with pytest.raises(ValueError, match="k must be one of 1, 2, got True"):
        check_choice("k", True, (1, 2))


def test_integers_seed_and_generators_move_on():
    seed_of_numpy: Any = np.int64(5)
    assert as_generator(5).random() == as_generator(seed_of_numpy).random()
    generator = np.random.default_rng(5)
    assert as_generator(generator) is generator
    sequence = np.random.SeedSequence(5)
    assert as_generator(sequence).random() == np.random.default_rng(sequence).random()
    assert as_generator(np.random.RandomState(5)).random() == as_generator(np.random.RandomState(5)).random()
    assert as_generator(None).random() != as_generator(None).random()


def test_the_global_numpy_state_is_left_alone():
    before: Any = np.random.get_state()  # noqa: NPY002 - the state that must not move
    as_generator(None).random()
    as_generator(3).random()
    after: Any = np.random.get_state()  # noqa: NPY002
    assert before[0] == after[0]
    assert np.array_equal(before[1], after[1])


@pytest.mark.parametrize("value", [True, 1.5, "1", np.random])
def test_other_random_states_are_refused(value: Any):
    with pytest.raises(
        TypeError, match="random_state must be an int, a numpy Generator, RandomState or SeedSequence"
    ):
        as_generator(value)


def test_negative_seeds_are_refused():
    with pytest.raises(ValueError, match="random_state must be at least 0, got -1"):
        as_generator(-1)


def test_torch_generators():
    generator = torch.Generator()
    assert as_torch_generator(generator) is generator
    seeds: tuple[Any, ...] = (5, np.int64(5), None, None)
    draws = [torch.rand(1, generator=as_torch_generator(seed)).item() for seed in seeds]
    assert draws[0] == draws[1]
    assert draws[2] != draws[3]
    assert as_torch_generator(5, "cpu").device == torch.device("cpu")
    for value in (True, 1.5, "1"):
        with pytest.raises(TypeError, match=r"generator must be a torch\.Generator, an int or None"):
            as_torch_generator(value)  # type: ignore[arg-type]


def test_the_global_torch_state_is_left_alone():
    before = torch.get_rng_state()
    as_torch_generator(None)
    as_torch_generator(3)
    assert torch.equal(before, torch.get_rng_state())
