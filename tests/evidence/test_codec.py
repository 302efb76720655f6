from __future__ import annotations

import base64
import datetime
import io
import json
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from polars.testing import assert_frame_equal

from theses.evidence.codec import decode, encode

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(lambda key: key != "__theses__"), inner),
    max_leaves=20,
)


@given(PLAIN)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    back = decode(encode(value))
    assert back == value
    assert json.dumps(back) == json.dumps(value)  # also the types: 1 is neither True nor 1.0


@given(hnp.arrays(st.sampled_from(["f8", "f4", "i8", "u1", "?", "c16", "<U3"]), hnp.array_shapes(min_dims=0)))
def test_arrays_come_back_with_type_and_shape(array: np.ndarray) -> None:
    back = decode(encode(array))
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)


def test_arrays_without_entries_keep_their_shape() -> None:
    assert decode(encode(np.empty((0, 3)))).shape == (0, 3)


def test_numbers_that_json_has_no_word_for_come_back() -> None:
    back = decode(encode([math.nan, math.inf, -math.inf, 5e-324, 0.1]))
    assert math.isnan(back[0])
    assert back[1:] == [math.inf, -math.inf, 5e-324, 0.1]


def test_tuples_become_lists_and_numpy_scalars_numbers() -> None:
    back = decode(encode({"pair": (1, 2.5), "scalars": [np.float32(0.5), np.int64(3), np.bool_(True)]}))
    assert back == {"pair": [1, 2.5], "scalars": [0.5, 3, True]}
    assert [type(value) for value in back["scalars"]] == [float, int, bool]


def test_tensors_become_arrays() -> None:
    tensor = torch.arange(6, dtype=torch.float32, requires_grad=True).reshape(2, 3)
    back = decode(encode({"weights": tensor}))["weights"]
    assert isinstance(back, np.ndarray)
    assert back.dtype == np.float32
    assert back.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_tables_come_back_with_their_types() -> None:
    table = pl.DataFrame(
        {
            "text": ["a", None, "ü"],
            "number": [1.5, math.nan, None],
            "count": pl.Series([1, 2, 3], dtype=pl.UInt8),
            "day": [datetime.date(2025, 7, 13)] * 3,
            "kind": pl.Series(["x", "y", "x"], dtype=pl.Categorical),
            "curve": [[1.0, 2.0], [], [3.0]],
        }
    )
    back = decode(encode([table, table.clear()]))
    assert_frame_equal(back[0], table, categorical_as_str=True)
    assert back[0].schema == table.schema
    assert back[1].schema == table.schema
    assert back[1].is_empty()


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        b"bytes",
        object(),
        1 + 2j,
        datetime.date(2025, 7, 13),
        np.datetime64("2025-07-13"),
        lambda: None,
        pl.LazyFrame({"a": [1]}),
        torch.ones(2, dtype=torch.bfloat16),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        encode({"nested": [value]})


def test_object_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        encode(np.array([{}, None], dtype=object))


@pytest.mark.parametrize("key", [1, None, "__theses__"])
def test_keys_that_would_not_come_back_are_refused(key: Any) -> None:
    with pytest.raises(TypeError, match="keys of a stored mapping"):
        encode({key: 1})


def test_a_pickle_in_the_text_is_not_executed() -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([print], dtype=object), allow_pickle=True)
    text = json.dumps({"__theses__": "array", "data": base64.b64encode(buffer.getvalue()).decode()})
    with pytest.raises(ValueError, match="allow_pickle=False"):
        decode(text)
