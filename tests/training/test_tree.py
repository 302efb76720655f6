from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from theses.training.tree import decode, encode, plain, same_tensors, same_trees

keys = st.none() | st.booleans() | st.integers() | st.text("abc", max_size=3)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=8,
)


@given(trees)
def test_trees_come_back_through_json(value: Any) -> None:
    encoded = json.loads(json.dumps(encode(value, {}, "value"), allow_nan=False))
    decoded = decode(encoded, {})
    assert repr(decoded) == repr(value)  # tells True from 1, tuples from lists, 0.0 from -0.0
    assert same_trees(encoded, encode(decoded, {}, "value"))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4),
        torch.randn(3, 4).t(),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(6)[::2],
        torch.randn(3, 1).expand(3, 4),
        torch.tensor(1.5),
        torch.zeros(0, 3),
        torch.tensor([float("nan"), -0.0, float("inf")]),
        torch.randn(3, dtype=torch.complex128).conj(),
        torch.randn(2, 3, dtype=torch.complex64).t(),
        torch.randn(3, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.tensor([2**63 - 1]),
        torch.randn(2, 2, requires_grad=True),
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()}",
)
def test_tensors_come_back_bit_by_bit_and_in_their_layout(tensor: torch.Tensor) -> None:
    tensors: dict[str, torch.Tensor] = {}
    encoded = encode([tensor], tensors, "value")
    assert all(held.is_contiguous() and not held.requires_grad for held in tensors.values())
    (back,) = decode(json.loads(json.dumps(encoded)), tensors)
    assert back.dtype == tensor.dtype
    assert torch.equal(back.isnan(), tensor.isnan())
    assert torch.equal(back.nan_to_num(7.0), tensor.detach().nan_to_num(7.0))
    if tensor.is_contiguous():
        assert back.stride() == tensor.stride()
    again: dict[str, torch.Tensor] = {}
    encode([back], again, "value")
    assert same_tensors(tensors, again)


def test_layouts_without_gaps_are_kept() -> None:
    for tensor in (torch.randn(3, 4).t(), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)):
        tensors: dict[str, torch.Tensor] = {}
        encoded = encode(tensor, tensors, "value")
        assert decode(encoded, tensors).stride() == tensor.stride()


def test_further_kinds() -> None:
    value = {"dtype": torch.bfloat16, "milestones": Counter({3: 2}), "numpy": np.float32(0.5)}
    back = decode(json.loads(json.dumps(encode(value, {}, "value"))), {})
    assert back == {"dtype": torch.bfloat16, "milestones": Counter({3: 2}), "numpy": 0.5}
    assert type(back["milestones"]) is Counter
    assert decode(encode(OrderedDict(a=1), {}, "value"), {}) == {"a": 1}
    assert plain(encode(value, {}, "value"), {}) == {
        "dtype": "bfloat16",
        "milestones": {"3": 2},
        "numpy": 0.5,
    }


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"a": {1, 2}}, "value.a is of type set, which a checkpoint cannot hold"),
        ([deque([1])], "value.0 is of type deque"),
        (torch.Generator(), "value is of type Generator"),
        (1 + 2j, "value is of type complex"),
        ({(1, 2): 3}, r"value has the key \(1, 2\)"),
        ({1: torch.ones(1), "1": torch.zeros(1)}, "value.1 stands for two tensors"),
        (torch.eye(2).to_sparse(), "value is a sparse or quantised tensor"),
    ],
)
def test_other_kinds_are_refused_by_their_place(value: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        encode(value, {}, "value")


@pytest.mark.parametrize(
    "encoded", [{}, {"tensor": "absent"}, {"dtype": "nn"}, {"call": "os.system"}, {"tuple": 3}]
)
def test_nothing_else_is_decoded(encoded: Any) -> None:
    with pytest.raises(ValueError, match="nothing is encoded as"):
        decode(encoded, {})


def test_bits_are_compared() -> None:
    zero = {"x": torch.tensor([0.0])}
    assert not same_tensors(zero, {"x": torch.tensor([-0.0])})
    assert not same_tensors(zero, {"x": torch.tensor([0])})
    assert not same_tensors(zero, {"x": torch.tensor(0.0)})
    assert not same_tensors(zero, {"y": torch.tensor([0.0])})
    assert not same_trees({"dict": [["a", 1]]}, {"dict": [["a", 2]]})
    assert not same_trees([1, 2], [2, 1])
