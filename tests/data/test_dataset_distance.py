from __future__ import annotations

import bz2
import dataclasses
import gzip
import itertools
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import ot
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, optimize
from scipy.stats import ortho_group
from sklearn.datasets import load_digits
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tests.conformance.contract import Call
from theses.catalogue import lookup
from theses.catalogue.card import Bound
from theses.data.dataset_distance import (
    DatasetEmbedding,
    SlicedDatasetDistance,
    otdd,
    pairwise_dataset_distances,
    sliced_dataset_distance,
)
from theses.data.dataset_distance.embedding import _power_sums, _power_sums_by_index
from theses.data.dataset_distance.projections import (
    CONV_CLAMP,
    conv_layers,
    draw_projections,
    iter_projections,
)
from theses.data.dataset_distance.transport import wasserstein_pp
from theses.evidence import Context
from theses.studies.data import dataset_distance as study
from theses.studies.data.dataset_distance.correlation import graded
from theses.studies.data.dataset_distance.images import image_sets, split
from theses.studies.data.dataset_distance.sizes import SIZES


def labelled(n, d=4, classes=3, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return rng.normal(size=(n, d)) + shift + y[:, None], y


def digits(start, stop):
    X, y = load_digits(return_X_y=True)
    return X[start:stop], y[start:stop]


def calls() -> list[Call]:
    A, B = labelled(8), labelled(6, seed=1)
    images = (np.random.default_rng(2).normal(size=(5, 1, 8, 8)), np.arange(5) % 2)
    fitted = SlicedDatasetDistance(5, generator=0).fit([A, B])
    few: dict[str, Any] = {"n_projections": 5, "generator": 0}
    pair = ("A.0", "A.1", "B.0", "B.1")
    return [
        Call(
            "sliced_dataset_distance",
            lambda: (sliced_dataset_distance, {"A": A, "B": B, **few}),
            pair,
            paired=pair,
        ),
        Call(
            "sliced_dataset_distance",
            lambda: (sliced_dataset_distance, {"A": images, "B": images, "projection": "conv", **few}),
            ("A.0", "B.1"),
            paired=("A.0", "B.1"),
        ),
        Call(
            "pairwise_dataset_distances",
            lambda: (pairwise_dataset_distances, {"datasets": [A, B], **few}),
            ("datasets.0.0", "datasets.1.1"),
            paired=("datasets.0.0", "datasets.1.1"),
        ),
        Call(
            "SlicedDatasetDistance.fit",
            lambda: (SlicedDatasetDistance(5, generator=0).fit, {"datasets": [A]}),
            ("datasets.0.0", "datasets.0.1"),
            paired=("datasets.0.0", "datasets.0.1"),
        ),
        Call(
            "SlicedDatasetDistance.embed",
            lambda: (fitted.embed, {"dataset": A}),
            ("dataset.0", "dataset.1"),
            paired=("dataset.0", "dataset.1"),
        ),
        Call(
            "SlicedDatasetDistance.distance",
            lambda: (fitted.distance, {"e1": fitted.embed(A), "e2": fitted.embed(B)}),
            ("e1.values", "e2.values"),
        ),
        Call(
            "DatasetEmbedding",
            lambda: (
                DatasetEmbedding,
                {"values": fitted.embed(A).values, "projections": "digest", "scale": 1.0, "n_classes": 3},
            ),
            ("values",),
        ),
        Call("otdd", lambda: (otdd, {"A": A, "B": B}), pair, paired=pair),
    ]


# --- the distance against the formula, written out


def by_hand(A, B, drawn, scale, p):
    """Equations of the paper, sample by sample, with POT's one-dimensional distance."""
    costs = []
    for theta, psi, orders in zip(drawn.theta.double(), drawn.psi, drawn.orders, strict=True):
        sides = []
        for X, y in (A, B):
            q = X @ theta.numpy() / scale
            values = []
            for q_i, y_i in zip(q, y, strict=True):
                moments = [np.mean(q[y == y_i] ** k) / math.factorial(k) for k in orders.tolist()]
                values.append(
                    float(psi[0]) * q_i + sum(w * m for w, m in zip(psi[1:].tolist(), moments, strict=True))
                )
            sides.append(np.array(values))
        costs.append(ot.wasserstein_1d(*sides, p=p))
    return float(np.mean(costs)) ** (1 / p), np.array(costs, dtype=float)


@pytest.mark.parametrize(("n", "m"), [(12, 12), (12, 7), (1, 5)])
@pytest.mark.parametrize("p", [1, 2, 3.5])
def test_distance_is_the_papers_formula(n, m, p):
    A, B = labelled(n), labelled(m, classes=4, seed=1, shift=0.5)
    drawn = draw_projections((4,), 25, 5, generator=3)
    expected, costs = by_hand(A, B, drawn, 1.5, p)
    got, error = sliced_dataset_distance(A, B, n_projections=25, p=p, scale=1.5, generator=3, return_se=True)
    assert got == pytest.approx(expected, rel=1e-9)
    assert error == pytest.approx(
        costs.std(ddof=1) / 5 * expected ** (1 - p) / p, rel=1e-9
    )  # derivative of the root


@pytest.mark.parametrize(("n", "m"), [(40, 40), (40, 25)])
def test_without_moments_it_is_sliced_wasserstein(n, m):
    A, B = labelled(n), labelled(m, seed=1, shift=1.0)
    theta = draw_projections((4,), 30, 0, generator=5).theta.double().numpy()
    ours = sliced_dataset_distance(A, B, n_projections=30, n_moments=0, scale=None, generator=5)
    assert ours == pytest.approx(
        float(ot.sliced_wasserstein_distance(A[0], B[0], projections=theta.T)), rel=1e-9
    )


@given(
    st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=9),
    st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=9),
    st.sampled_from([1.0, 2.0, 2.5]),
)
@settings(max_examples=60, deadline=None)
def test_one_dimensional_transport_of_unequal_sizes(a, b, p):
    one, other = (torch.tensor([sorted(side)], dtype=torch.float64) for side in (a, b))
    cost = np.abs(np.subtract.outer(np.array(a), np.array(b))) ** p
    exact = ot.emd2(np.full(len(a), 1 / len(a)), np.full(len(b), 1 / len(b)), cost)
    assert float(wasserstein_pp(one, other, p)[0]) == pytest.approx(float(exact), rel=1e-6, abs=1e-9)


# --- invariances


@given(st.integers(0, 10_000), st.integers(2, 30), st.integers(2, 30))
@settings(max_examples=25, deadline=None)
def test_symmetric_zero_on_itself_and_blind_to_order_and_names(seed, n, m):
    rng = np.random.default_rng(seed)
    A, B = labelled(n, seed=seed), labelled(m, seed=seed + 1)
    few: dict[str, Any] = {"n_projections": 20, "generator": seed}
    there = sliced_dataset_distance(A, B, **few)
    assert sliced_dataset_distance(B, A, **few) == there
    assert sliced_dataset_distance(A, A, **few) == 0
    order = rng.permutation(n)
    shuffled = (A[0][order], np.array([-7, 1000, 5])[A[1][order]])
    assert sliced_dataset_distance(shuffled, B, **few) == pytest.approx(there, rel=1e-9)
    assert sliced_dataset_distance(shuffled, A, **few) == pytest.approx(0, abs=1e-9)


@given(st.integers(0, 10_000), st.sampled_from([1, 2, 3]))
@settings(max_examples=15, deadline=None)
def test_triangle_inequality_with_shared_projections(seed, p):
    sets = [labelled(5 + 3 * i, seed=seed + i, classes=1 + i) for i in range(4)]
    D = pairwise_dataset_distances(sets, n_projections=7, p=p, generator=seed)
    for i, j, k in itertools.permutations(range(4), 3):
        assert D[i, j] <= D[i, k] + D[k, j] + 1e-9


def test_rotation_leaves_the_expectation():
    A, B = labelled(60, d=5), labelled(50, d=5, seed=1, shift=0.5)
    R = ortho_group.rvs(5, random_state=0)
    rotated = [(X @ R, y) for X, y in (A, B)]
    one, one_error = sliced_dataset_distance(A, B, n_projections=4_000, generator=0, return_se=True)
    other, other_error = sliced_dataset_distance(*rotated, n_projections=4_000, generator=1, return_se=True)
    assert abs(one - other) < 4 * math.hypot(one_error, other_error)


def test_labels_count_and_merging_them_does_too():
    A, (X, y) = digits(0, 800), digits(800, 1600)
    few: dict[str, Any] = {"n_projections": 200, "generator": 0}
    fresh = sliced_dataset_distance(A, (X, y), **few)
    assert sliced_dataset_distance(A, (X, np.random.default_rng(0).permutation(y)), **few) > 1.5 * fresh
    assert sliced_dataset_distance(A, (X, y // 2), **few) > 1.2 * fresh


def test_matrix_is_that_of_the_pairs():
    sets = [labelled(20), labelled(15, seed=1), labelled(20, seed=2, shift=2.0)]
    few: dict[str, Any] = {"n_projections": 30, "scale": 2.0, "generator": 0}
    D, errors = pairwise_dataset_distances(sets, chunk=7, return_se=True, **few)
    assert D.dtype == torch.float64
    assert torch.equal(D, D.T)
    for i, j in itertools.combinations(range(3), 2):
        distance, error = sliced_dataset_distance(sets[i], sets[j], return_se=True, **few)
        assert float(D[i, j]) == pytest.approx(distance, rel=1e-9)
        assert float(errors[i, j]) == pytest.approx(error, rel=1e-9)
    assert pairwise_dataset_distances(sets[:1], n_projections=3).tolist() == [[0.0]]


# --- projections


@pytest.mark.parametrize("projection", ["linear", "conv"])
@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_chunks_change_nothing_and_none_is_dropped(projection, chunk):
    rng = np.random.default_rng(0)
    A, B = ((rng.normal(size=(9, 2, 6, 6)), np.arange(9) % 2) for _ in range(2))
    few: dict[str, Any] = {"n_projections": 7, "projection": projection, "generator": 0}
    whole = draw_projections((2, 6, 6), 7, 5, projection, generator=0)
    parts = list(iter_projections((2, 6, 6), 7, 5, projection, chunk, 0))
    assert torch.equal(torch.cat([part.theta for part in parts]), whole.theta)
    assert torch.equal(torch.cat([part.orders for part in parts]), whole.orders)
    assert sliced_dataset_distance(A, B, chunk=chunk, **few) == pytest.approx(
        sliced_dataset_distance(A, B, chunk=7, **few), rel=1e-9
    )


def test_projections_have_the_papers_laws():
    drawn = draw_projections((3,), 20_000, 5, generator=0)
    for tensor in (drawn.theta, drawn.psi):
        assert tensor.norm(dim=1).sub(1).abs().max() < 1e-6
        assert tensor.mean(0).abs().max() < 0.02
        assert (tensor.square().mean(0) - 1 / tensor.shape[1]).abs().max() < 0.01
    orders = drawn.orders.double()
    assert orders.min() == 1  # zero-truncated
    for i in range(5):
        rate = i + 1
        assert float(orders[:, i].mean()) == pytest.approx(rate / (1 - math.exp(-rate)), abs=0.06)
        assert float((orders[:, i] == 1).double().mean()) == pytest.approx(
            rate * math.exp(-rate) / (1 - math.exp(-rate)), abs=0.02
        )
    assert set(draw_projections((3,), 50, 0, generator=0).psi.unique().tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8), (2, 17, 4), (1, 3, 5), (3, 64, 30)])
def test_conv_theta_is_a_stack_of_depthwise_convolutions(shape):
    channels, height, width = shape
    L = 3
    theta = draw_projections(shape, L, 0, "conv", generator=4).theta
    # The filters, drawn again from the same stream in the same order.
    generator = torch.Generator().manual_seed(4)
    seeds = torch.randint(2**62, (3,), generator=generator).tolist()
    generator = torch.Generator().manual_seed(seeds[0])
    layers = conv_layers(height, width)
    sizes = [(channels if i == 0 else 1) * k[0] * k[1] for i, (k, _) in enumerate(layers)]
    rows = torch.stack([torch.empty(sum(sizes)).normal_(generator=generator) for _ in range(L)])
    x = torch.randn(6, *shape, generator=torch.Generator().manual_seed(0))
    out = x
    for i, ((kernel, stride), part) in enumerate(zip(layers, rows.split(sizes, dim=1), strict=True)):
        weight = (part / part.norm(dim=1, keepdim=True)).view(L, -1, *kernel)
        out = functional.conv2d(out, weight, stride=stride, groups=1 if i == 0 else L)
    assert out.shape == (6, L, 1, 1)
    torch.testing.assert_close(x.flatten(1) @ theta.T, out[:, :, 0, 0], rtol=1e-4, atol=1e-5)


def test_conv_layers_of_the_paper():
    assert conv_layers(32, 32) == [((5, 5), (2, 2)), ((5, 5), (2, 2)), ((3, 3), (2, 2)), ((2, 2), (1, 1))]
    assert [kernel[0] for kernel, _ in conv_layers(28, 28)] == [5, 5, 5, 5, 3, 3, 3, 3, 3, 2]
    assert all(stride == (1, 1) for _, stride in conv_layers(28, 28))


def test_conv_projection_is_clamped():
    images = np.full((4, 1, 5, 5), 1e6)
    fitted = SlicedDatasetDistance(20, 0, projection="conv", scale=None, generator=0).fit(
        [(images, [0, 0, 1, 1])]
    )
    values = fitted.embed((images, np.array([0, 0, 1, 1]))).values
    assert values.abs().max() <= CONV_CLAMP
    assert values.abs().max() == CONV_CLAMP


# --- scale and numerics


def test_pooled_scale_makes_the_mean_squared_projection_one():
    A, B = labelled(300, d=20, shift=3.0), labelled(200, d=20, seed=1)
    fitted = SlicedDatasetDistance(2_000, 0, generator=0).fit([A, B])
    pooled = np.concatenate([A[0], B[0]])
    assert fitted.scale_**2 == pytest.approx(pooled.var(0).mean() + (pooled.mean(0) ** 2).mean())
    q = torch.cat([fitted.embed(A).values, fitted.embed(B).values], dim=1)
    assert float(q.square().mean()) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("factor", [1e-6, 40.0, 1e6])
def test_pooled_scale_takes_units_away(factor):
    A, B = labelled(40), labelled(30, seed=1)
    few: dict[str, Any] = {"n_projections": 50, "generator": 0}
    scaled = [(X * factor, y) for X, y in (A, B)]
    assert sliced_dataset_distance(*scaled, **few) == pytest.approx(
        sliced_dataset_distance(A, B, **few), rel=1e-9
    )


def test_scale_is_fixed_by_fit():
    A, far = labelled(40), labelled(40, seed=1, shift=100.0)
    fitted = SlicedDatasetDistance(20, generator=0).fit([A])
    assert fitted.embed(far).scale == fitted.scale_ == fitted.embed(A).scale


def test_unscaled_features_give_a_distance_that_one_projection_decides():
    rng = np.random.default_rng(0)
    A, B = ((4 * rng.normal(size=(300, 32)), rng.integers(0, 10, 300)) for _ in range(2))
    raw, raw_error = sliced_dataset_distance(A, B, n_projections=500, scale=None, generator=0, return_se=True)
    tame, tame_error = sliced_dataset_distance(A, B, n_projections=500, generator=0, return_se=True)
    assert raw > 10 * tame
    assert raw_error / raw > 3 * tame_error / tame


def test_power_sums_are_exact_at_high_orders_on_every_device():
    rng = np.random.default_rng(0)
    q = torch.from_numpy(3 * rng.normal(size=(4, 50)))
    counts = torch.tensor([20, 1, 29])
    sums = _power_sums(q, counts, 15)
    torch.testing.assert_close(_power_sums_by_index(q, counts, 15), sums, rtol=1e-12, atol=0)
    for k in range(1, 16):
        for c, (start, stop) in enumerate([(0, 20), (20, 21), (21, 50)]):
            part = q[:, start:stop]
            by_logarithm = part.sign() ** k * torch.exp(k * part.abs().log() - math.lgamma(k + 1))
            torch.testing.assert_close(
                sums[:, k - 1, c] / math.factorial(k), by_logarithm.sum(1), rtol=1e-9, atol=1e-12
            )


def test_overflowing_moments_are_refused_not_clamped():
    A = (np.full((4, 3), 1e30) * np.arange(1, 5)[:, None], np.array([0, 0, 1, 1]))
    with pytest.raises(ValueError, match="scale='pooled'"):
        sliced_dataset_distance(A, A, n_projections=50, scale=None, generator=0)
    assert math.isfinite(sliced_dataset_distance(A, A, n_projections=50, generator=0))
    with pytest.raises(ValueError, match="scale"):
        sliced_dataset_distance((A[0] * 1e200, A[1]), A)


def test_standard_error_is_the_spread_of_repeated_draws():
    A, B = labelled(40), labelled(40, seed=1, shift=0.3)
    drawn = [
        sliced_dataset_distance(A, B, n_projections=200, generator=seed, return_se=True) for seed in range(60)
    ]
    distances, errors = np.array(drawn).T
    assert errors.mean() / distances.std(ddof=1) == pytest.approx(1, abs=0.3)


# --- what counts as a data set


class Pairs(Dataset):
    def __init__(self, X, y):
        self.X, self.y = torch.from_numpy(X), torch.from_numpy(y)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.X[i], self.y[i]


class Stream(IterableDataset):
    def __init__(self, X, y):
        self.X, self.y = X, y

    def __iter__(self):
        yield from zip(self.X, self.y, strict=True)


def test_every_form_of_a_data_set_gives_the_same():
    (X, y), B = labelled(30), labelled(25, seed=1)
    few: dict[str, Any] = {"n_projections": 20, "generator": 0}
    expected = sliced_dataset_distance((X, y), B, **few)
    read_only = X.copy()
    read_only.flags.writeable = False
    names = [f"x{i}" for i in range(4)]
    forms = [
        (torch.from_numpy(X), torch.from_numpy(y)),
        [read_only, y.astype(np.uint8)],
        (pl.DataFrame(X, schema=names), pl.Series(y)),
        (pd.DataFrame(X, columns=names), pd.Series(y)),
        {"data": X, "target": y},
        TensorDataset(torch.from_numpy(X), torch.from_numpy(y)),
        Pairs(X, y),
        Stream(X, y),
        DataLoader(Pairs(X, y), batch_size=7, shuffle=True, generator=torch.Generator().manual_seed(0)),
    ]
    for form in forms:
        for chunk in (20, 9):
            assert sliced_dataset_distance(form, B, chunk=chunk, **few) == pytest.approx(expected, rel=1e-9)
    bunch = load_digits()
    whole = sliced_dataset_distance(bunch, digits(0, 300), **few)
    assert whole == pytest.approx(sliced_dataset_distance(digits(0, None), digits(0, 300), **few), rel=1e-9)


def test_images_in_batches_project_alike():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(11, 1, 8, 8)).astype(np.float32), np.arange(11) % 3
    fitted = SlicedDatasetDistance(9, projection="conv", generator=0).fit([Pairs(X, y)])
    assert fitted.feature_shape_ == (1, 8, 8)
    loader = DataLoader(Pairs(X, y), batch_size=4, shuffle=True)
    torch.testing.assert_close(fitted.embed(loader).values, fitted.embed((X, y)).values, rtol=1e-5, atol=1e-6)


def test_precision_follows_the_features():
    (X, y), B = labelled(40), labelled(30, seed=1)
    few: dict[str, Any] = {"n_projections": 30, "generator": 0}
    expected = sliced_dataset_distance((X, y), B, **few)
    single = [(np.float32(X), y), (np.float32(B[0]), B[1])]
    assert sliced_dataset_distance(*single, **few) == pytest.approx(expected, rel=1e-4)
    fitted = SlicedDatasetDistance(5).fit([B])
    assert fitted.embed((X, y)).values.dtype == torch.float64
    for narrow in (np.float32(X), np.float16(X), torch.from_numpy(X).bfloat16(), (X > 0), X.astype(np.int8)):
        assert fitted.embed((narrow, y)).values.dtype == torch.float32
    mixed = fitted.distance(fitted.embed((X, y)), fitted.embed((np.float32(X), y)))
    assert mixed == pytest.approx(0, abs=1e-5)


class Shifting(Dataset):
    """Gives other classes at each pass, as a loader that drops its last batch may."""

    def __init__(self):
        self.passes = 0

    def __len__(self):
        return 4

    def __getitem__(self, i):
        self.passes += i == 0
        return torch.tensor([float(i), 1.0]), (i + self.passes) % 3


class Once(IterableDataset):
    def __init__(self, X, y):
        self.pairs = iter(list(zip(X, y, strict=True)))

    def __iter__(self):
        return self.pairs


def test_passes_that_differ_in_samples_are_refused():
    with pytest.raises(ValueError, match="A must give its samples at each pass"):
        sliced_dataset_distance(Once(*labelled(5)), labelled(5), n_projections=2)
    with pytest.raises(ValueError, match="two passes"):
        SlicedDatasetDistance(5, scale=1.0).fit([labelled(5, d=2)]).embed(Shifting())


# --- embeddings


def test_embeddings_travel_by_file(tmp_path: Path):
    A, B = labelled(20), labelled(15, seed=1)
    here = SlicedDatasetDistance(30, p=1.5, generator=0).fit([A, B])
    here.save(tmp_path / "projections.safetensors")
    here.embed(A).save(tmp_path / "a.safetensors")
    there = SlicedDatasetDistance.load(tmp_path / "projections.safetensors")
    e1 = DatasetEmbedding.load(tmp_path / "a.safetensors")
    distance, error = there.distance(e1, there.embed(B), return_se=True)
    expected = sliced_dataset_distance(A, B, n_projections=30, p=1.5, generator=0, return_se=True)
    assert (distance, error) == pytest.approx(expected, rel=1e-12)
    assert (there.scale_, there.p, there.n_moments, there.feature_shape_) == (here.scale_, 1.5, 5, (4,))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors", "projections.safetensors"]


@pytest.mark.parametrize(
    "other",
    [
        {"generator": 1},
        {"scale": 3.0, "generator": 0},
        {"n_projections": 10, "generator": 0},
        {"n_moments": 2, "generator": 0},
    ],
)
def test_embeddings_of_other_projections_are_refused(other):
    A = labelled(20)
    fitted = SlicedDatasetDistance(30, generator=0).fit([A])
    foreign = SlicedDatasetDistance(**{"n_projections": 30, **other}).fit([A])
    with pytest.raises(ValueError, match="e2 must be made with the projections"):
        fitted.distance(fitted.embed(A), foreign.embed(A))
    again = SlicedDatasetDistance(30, generator=0).fit([A])
    assert fitted.distance(fitted.embed(A), again.embed(A)) == 0


def test_damaged_files_are_refused(tmp_path: Path):
    path = tmp_path / "x.safetensors"
    A = labelled(20)
    fitted = SlicedDatasetDistance(4, generator=0).fit([A])
    path.write_bytes(b"no tensors")
    for load in (DatasetEmbedding.load, SlicedDatasetDistance.load):
        with pytest.raises(ValueError, match=r"x\.safetensors"):
            load(path)
    fitted.save(path)
    with pytest.raises(ValueError, match="embedding"):
        DatasetEmbedding.load(path)
    fitted.embed(A).save(path)
    with pytest.raises(ValueError, match="projections"):
        SlicedDatasetDistance.load(path)
    unsorted = fitted.embed(A)
    object.__setattr__(unsorted, "values", unsorted.values.flip(1))
    unsorted.save(path)
    with pytest.raises(ValueError, match="sorted"):
        DatasetEmbedding.load(path)
    fitted.projections_ = dataclasses.replace(fitted.projections_, theta=fitted.projections_.theta + 1)
    fitted.save(path)
    with pytest.raises(ValueError, match="digest"):
        SlicedDatasetDistance.load(path)
    with pytest.raises(ValueError, match="fit first"):
        SlicedDatasetDistance(4).embed(A)


def test_embedding_says_what_it_is():
    A = labelled(20)
    embedding = SlicedDatasetDistance(4, generator=0).fit([A]).embed(A)
    assert embedding.to_dict() == {
        "n_samples": 20,
        "n_classes": 3,
        "n_projections": 4,
        "scale": embedding.scale,
        "projections": embedding.projections,
    }
    frame = embedding.to_frame()
    assert frame["mean"].to_numpy() == pytest.approx(embedding.values.mean(1).numpy())
    assert frame.height == 4


# --- bad input

GOOD = (np.ones((3, 2)), np.array([0, 1, 1]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((np.ones((3, 5)), GOOD[1]), r"same shape, got \(2,\) and \(5,\)"),
        ((GOOD[0], None), r"B must be a pair \(X, y\), labels are missing"),
        ((GOOD[0],), "labels are missing"),
        ({"data": GOOD[0]}, "B must be a Bunch with data and target"),
        (TensorDataset(torch.ones(3, 2)), "labels are missing"),
        ((GOOD[0], np.array([0.0, 1.0, 1.0])), r"B\[1\] must be integer labels, got dtype float64"),
        ((GOOD[0], np.array(["a", "b", "b"])), r"B\[1\] must be integer labels"),
        ((GOOD[0], torch.ones(3)), r"B\[1\] must be integer labels, got dtype torch.float32"),
        ((np.array([[1.0, np.nan]] * 3), GOOD[1]), r"B\[0\] must be finite, got NaN or infinity in row 0"),
        ((np.ones((0, 2)), np.array([], int)), r"B\[0\] must have at least 1 row"),
        (Pairs(np.ones((0, 2)), np.array([], int)), "B must have at least 1 sample"),
        (
            DataLoader(Pairs(np.ones((2, 2)), np.array([0, 1])), batch_size=4, drop_last=True),
            "without batches",
        ),
        ((np.ones((3, 2, 2)), GOOD[1]), r"B\[0\] must have 2 or 4 dimensions"),
        ((torch.ones(3, 2, 2), GOOD[1]), r"B\[0\] must have shape \(n, d\) or \(n, c, h, w\)"),
        ((GOOD[0], GOOD[1][:2]), "same length"),
        ((GOOD[0], GOOD[1][:, None]), r"B\[1\] must be labels of shape \(n,\)"),
    ],
)
def test_bad_data_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        sliced_dataset_distance(GOOD, data, n_projections=2)
    with pytest.raises((ValueError, TypeError)):
        otdd(GOOD, data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_projections": 0}, "n_projections must be at least 1"),
        ({"n_moments": -1}, "n_moments must be at least 0"),
        ({"p": 0.5}, "p must be at least 1"),
        ({"p": math.nan}, "p must be finite"),
        ({"projection": "fourier"}, "projection must be one of"),
        ({"projection": "conv"}, "images of shape"),
        ({"scale": 0}, "scale must be greater than 0"),
        ({"scale": -2.0}, "scale must be greater than 0"),
        ({"scale": "own"}, "scale must be 'pooled', None or a number"),
        ({"chunk": 0}, "chunk must be at least 1"),
        ({"n_projections": 1, "return_se": True}, "n_projections must be at least 2"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        sliced_dataset_distance(GOOD, GOOD, **{"n_projections": 2, **options})


def test_other_bad_input_is_refused():
    zero = (np.zeros((3, 2)), GOOD[1])
    with pytest.raises(ValueError, match="scale='pooled' needs features that are not all zero"):
        sliced_dataset_distance(zero, zero, n_projections=2)
    assert sliced_dataset_distance(zero, zero, n_projections=2, scale=None) == 0
    for data in (3, "ab", None):
        with pytest.raises(TypeError, match="B must be a pair"):
            sliced_dataset_distance(GOOD, data)
    with pytest.raises(TypeError, match="A must be a pair"):
        otdd(Pairs(*GOOD), GOOD)
    nothings: list[Any] = [[], 3]
    for nothing in nothings:
        with pytest.raises(ValueError, match="datasets must be a sequence"):
            pairwise_dataset_distances(nothing)
        with pytest.raises(ValueError, match="datasets must be a sequence"):
            SlicedDatasetDistance().fit(nothing)
    with pytest.raises(ValueError, match=r"dataset must have features of shape \(2,\)"):
        SlicedDatasetDistance(3).fit([GOOD]).embed(labelled(4))
    fitted = SlicedDatasetDistance(3).fit([GOOD])
    no_embedding: Any = GOOD
    with pytest.raises(TypeError, match="e1 must be a DatasetEmbedding"):
        fitted.distance(no_embedding, fitted.embed(GOOD))
    with pytest.raises(TypeError, match="real"):
        sliced_dataset_distance((torch.ones(3, 2, dtype=torch.complex64), GOOD[1]), GOOD)


# --- OTDD


def linear_program(cost):
    """Transport with equal weights as a general linear program."""
    n, m = cost.shape
    rows = [np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))]
    weights = np.concatenate([np.full(n, 1 / n), np.full(m, 1 / m)])
    found = optimize.linprog(cost.ravel(), A_eq=np.concatenate(rows), b_eq=weights, method="highs")
    return found.fun


def squared(x, z):
    return ((x[:, None] - z[None]) ** 2).sum(2)


def test_otdd_is_the_linear_program():
    A, B = labelled(7, d=2, classes=2), labelled(6, d=2, classes=3, seed=3)
    cost = squared(A[0], B[0])
    for i, j in itertools.product(np.unique(A[1]), np.unique(B[1])):
        inside = linear_program(squared(A[0][A[1] == i], B[0][B[1] == j]))
        cost[np.ix_(A[1] == i, B[1] == j)] += inside
    assert otdd(A, B) == pytest.approx(linear_program(cost), rel=1e-6)
    assert otdd(A, B) == pytest.approx(otdd(B, A), rel=1e-9)


def test_otdd_with_gaussian_labels_uses_the_bures_distance():
    A, B = labelled(60, d=3, classes=2), labelled(50, d=3, classes=2, seed=3)
    cost = squared(A[0], B[0])
    for i, j in itertools.product((0, 1), (0, 1)):
        x, z = A[0][A[1] == i], B[0][B[1] == j]
        S, T = np.cov(x.T, bias=True), np.cov(z.T, bias=True)
        root = linalg.sqrtm(S)
        bures = np.trace(S + T - 2 * linalg.sqrtm(root @ T @ root)).real
        cost[np.ix_(A[1] == i, B[1] == j)] += ((x.mean(0) - z.mean(0)) ** 2).sum() + bures
    weights = np.full(60, 1 / 60), np.full(50, 1 / 50)
    assert otdd(A, B, label_distance="gaussian") == pytest.approx(float(ot.emd2(*weights, cost)), rel=1e-6)
    wide = labelled(8, d=30, classes=3)
    assert otdd(wide, wide, label_distance="gaussian") == pytest.approx(0, abs=1e-8)


def test_otdd_by_sinkhorn_is_debiased_and_tends_to_the_exact_one():
    A, B = labelled(12, d=2), labelled(9, d=2, seed=3, shift=0.5)
    assert otdd(A, A, entropic=5.0) == pytest.approx(0, abs=1e-6)
    exact = otdd(A, B)
    assert otdd(A, B, entropic=0.3) == pytest.approx(exact, rel=0.03)
    assert otdd(A, B, entropic=5.0) > 0
    with pytest.raises(RuntimeError, match="too small"):
        otdd(labelled(4), labelled(3, seed=1), entropic=1e-4)


def test_otdd_of_a_subsample():
    A, B = labelled(60), labelled(60, seed=1)
    few = otdd(A, B, max_samples=20, generator=0)
    assert few == otdd(A, B, max_samples=20, generator=0)
    assert few != otdd(A, B, max_samples=20, generator=1)
    assert otdd(A, B, max_samples=60, generator=0) == otdd(A, B)
    for options, message in (
        ({"max_samples": 0}, "max_samples must be at least 1"),
        ({"entropic": 0.0}, "entropic must be greater than 0"),
        ({"label_distance": "bures"}, "label_distance must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            otdd(A, B, **options)


# --- the study


def check_of(metric):
    checks = [check for claim in lookup("dataset-distance").claims for check in claim.checks]
    return next(Bound.parse(check.bound) for check in checks if check.metric == metric)


def small_graded(seed):
    ctx = Context("smoke", seed=seed)
    size = dataclasses.replace(SIZES["smoke"], n_projections=100)
    return graded(ctx, size, "digits", image_sets(ctx)[1])[0]["spearman_digits"]


def test_planted_separate_projections_turns_c1d(monkeypatch: pytest.MonkeyPatch):
    bound = check_of("spearman_digits")
    assert bound.contains(small_graded(100))
    shared = SlicedDatasetDistance.embed
    seeds = itertools.count()

    def separate(self, dataset):
        own = SlicedDatasetDistance(
            self.n_projections, self.n_moments, scale=self.scale_, generator=next(seeds)
        ).fit([dataset])
        return dataclasses.replace(shared(own, dataset), projections=self._digest)

    monkeypatch.setattr(SlicedDatasetDistance, "embed", separate)
    assert not bound.contains(small_graded(100))


def test_planted_moments_of_the_whole_set_turns_c3a(monkeypatch: pytest.MonkeyPatch):
    from theses.data.dataset_distance import embedding
    from theses.studies.data.dataset_distance.labels import labels_count

    ctx = Context("smoke", seed=100)
    size = dataclasses.replace(SIZES["smoke"], n_projections=200, labels_n=1_000)
    mnist = image_sets(ctx)[0]
    bound = check_of("permuted_over_fresh")
    assert bound.contains(labels_count(ctx, size, mnist)[0]["permuted_over_fresh"])
    by_class = embedding._moments

    def whole(sums, counts):
        total = sums.sum(2, keepdim=True).expand_as(sums)
        return by_class(total, counts.sum().expand_as(counts))

    monkeypatch.setattr(embedding, "_moments", whole)
    assert not bound.contains(labels_count(ctx, size, mnist)[0]["permuted_over_fresh"])


def test_figures_draw_what_there_is():
    measured = study.run(Context("smoke", seed=100))
    tables = {name: table.with_columns(seed=pl.lit(100)) for name, table in measured.tables.items()}
    charts = study.figures(tables)
    assert {"random_pairs", "graded_mnist", "families", "time", "transfer", "error"} <= set(charts)
    for chart in charts.values():
        assert chart.to_dict()["data"]
    assert study.figures({}) == {}


def test_training_learns():
    from theses.studies.data.dataset_distance.training import _accuracy, _network, _train

    ctx = Context("smoke", seed=100)
    train, test = split(ctx.rng("images"), image_sets(ctx)[0], (600, 300))
    generator = torch.Generator().manual_seed(0)
    parameters = _network(generator, 10)
    before = _accuracy(parameters, test)
    _train(parameters, train, 3, generator)
    assert before < 0.4 < 0.75 < _accuracy(parameters, test)


def write_idx(path: Path, array, compress=False):
    content = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    if compress:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)


def write_paper_data(root: Path, n=100):
    rng = np.random.default_rng(0)
    for name, prefix in (
        ("MNIST", "train"),
        ("FashionMNIST", "train"),
        ("KMNIST", "train"),
        ("EMNIST", "emnist-letters-train"),
    ):
        images = rng.integers(0, 256, (n, 28, 28)).astype(np.uint8)
        labels = (np.arange(n) % 10 + (name == "EMNIST")).astype(np.uint8)
        write_idx(root / name / "raw" / f"{prefix}-images-idx3-ubyte", images, compress=name == "KMNIST")
        write_idx(root / name / "raw" / f"{prefix}-labels-idx1-ubyte", labels, compress=name == "KMNIST")
    lines = [
        f"{1 + i % 10} " + " ".join(f"{j}:{v:.4f}" for j, v in enumerate(rng.uniform(-1, 1, 256), start=1))
        for i in range(n)
    ]
    (root / "usps.bz2").write_bytes(bz2.compress("\n".join(lines).encode()))
    folder = root / "cifar-10-batches-bin"
    folder.mkdir()
    for i in range(1, 6):
        records = rng.integers(0, 256, (n // 5, 3073)).astype(np.uint8)
        records[:, 0] = np.arange(n // 5) % 10
        (folder / f"data_batch_{i}.bin").write_bytes(records.tobytes())


def test_paper_preset_reads_a_torchvision_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ValueError, match="MNIST/raw"):
        study.run(Context("paper", seed=100))
    write_paper_data(tmp_path)
    full = SIZES["paper"]
    assert (full.n_projections, full.random_n, full.time_n[-1]) == (10_000, (5_000, 10_000), 60_000)
    # The paper's sizes, but for projections and repeats, which a limit on samples leaves alone.
    fewer = {name: getattr(SIZES["smoke"], name) for name in ("error_projections", "error_repeats")}
    quick = dataclasses.replace(full, n_projections=20, time_projections=10, epochs=(1, 1), **fewer)
    monkeypatch.setitem(SIZES, "paper", quick)
    measured = study.run(Context("paper", seed=100, data_folder=tmp_path, limit=20))
    assert set(lookup("dataset-distance").metrics("paper")) <= set(measured.metrics)
    sources = measured.tables["transfer"]["source"].unique(maintain_order=True).to_list()
    assert sources == ["FashionMNIST", "KMNIST", "EMNIST", "USPS"]
    assert measured.tables["time"]["n"].max() == 20
