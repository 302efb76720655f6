from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
from rapidfuzz.distance import Levenshtein
from scipy import sparse

from theses.datasets.metric_spaces import (
    METRIC_DATASETS,
    aligned_sequences,
    gaussian_mixture,
    load_metric_dataset,
    mutated_words,
    random_metric,
    uniform_cube,
)


def test_gaussian_mixture_has_the_means_and_deviations_it_says():
    X, labels = gaussian_mixture(40_000, 4, 3, random_state=0)
    assert X.shape == (40_000, 4)
    assert np.bincount(labels).min() > 12_000
    for k in range(3):
        cluster = X[labels == k]
        assert (np.abs(cluster.mean(axis=0)) < 5).all()
        assert ((cluster.std(axis=0) > 0.49) & (cluster.std(axis=0) < 0.81)).all()
        assert np.abs(np.corrcoef(cluster.T) - np.eye(4)).max() < 0.05


def test_uniform_cube_fills_it():
    X = uniform_cube(5_000, 3, random_state=0)
    assert X.shape == (5_000, 3)
    assert np.abs(X).max() <= 1
    assert np.allclose(X.mean(axis=0), 0, atol=0.03)
    assert np.allclose(X.var(axis=0), 1 / 3, atol=0.02)


def test_sequences_descend_from_each_other():
    sequences = aligned_sequences(60, 100, mutation_rate=0.05, random_state=0)
    assert {len(sequence) for sequence in sequences} == {100}
    assert set("".join(sequences)) == set("ACGT-")
    codes = np.array([list(sequence) for sequence in sequences])
    nearest = [min((codes[i] != codes[j]).sum() for j in range(i)) for i in range(1, 60)]
    assert np.mean(nearest) < 6  # an ancestor is some 4 mutations away, a stranger 78
    assert aligned_sequences(3, 10, mutation_rate=0, random_state=0)[0] * 2 == "".join(
        aligned_sequences(3, 10, mutation_rate=0, random_state=0)[1:]
    )


def test_mutated_words_are_a_few_edits_away():
    words = ["alpha", "be", "c"]
    mutated = mutated_words(words, 3_000, max_edits=3, random_state=0)
    assert len(mutated) == 3_000
    distances = np.array([min(Levenshtein.distance(word, source) for source in words) for word in mutated])
    assert distances.max() <= 3
    assert min(map(len, mutated)) >= 1
    assert all(word.isascii() and word.islower() for word in mutated)
    lengths = {len(word) for word in mutated_words(["abcdef"], 500, max_edits=1, random_state=0)}
    assert lengths == {5, 6, 7}


@pytest.mark.parametrize("kind", ["points", "graph", "one-two"])
@pytest.mark.parametrize("n", [1, 2, 17])
def test_random_metrics_are_metrics(kind, n):
    D = random_metric(kind, n, random_state=3)
    assert (np.diag(D) == 0).all()
    assert (D == D.T).all()
    assert (D[~np.eye(n, dtype=bool)] > 0).all()
    assert (D[:, None, :] <= D[:, :, None] + D[None] + 1e-12).all()


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: gaussian_mixture(20, 3, 2, random_state=seed)[0].tolist(),
        lambda seed: uniform_cube(20, random_state=seed).tolist(),
        lambda seed: aligned_sequences(20, 30, random_state=seed),
        lambda seed: mutated_words(["kitten"], 20, random_state=seed),
        lambda seed: random_metric("graph", 20, random_state=seed).tolist(),
    ],
)
def test_the_random_state_decides(draw):
    assert draw(1) == draw(1) == draw(np.random.default_rng(1))
    assert draw(1) != draw(2)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: gaussian_mixture(0), "n must be"),
        (lambda: gaussian_mixture(5, 0), "d must be"),
        (lambda: gaussian_mixture(5, 2, 0), "n_clusters"),
        (lambda: uniform_cube(5, 0), "d must be"),
        (lambda: aligned_sequences(5, mutation_rate=1.5), "mutation_rate"),
        (lambda: aligned_sequences(5, gap_rate=-0.1), "gap_rate"),
        (lambda: mutated_words([], 5), "words"),
        (lambda: mutated_words(["a", ""], 5), "words"),
        (lambda: mutated_words(["a"], 5, max_edits=0), "max_edits"),
        (lambda: random_metric("euclid", 5), "kind"),
    ],
)
def test_bad_input_is_named(call, name):
    with pytest.raises(ValueError, match=name):
        call()


def test_sets_names_and_sequences_are_read(tmp_path):
    (tmp_path / "cooking.txt").write_text("5 3 3\n0 1 2\n\n7\n")
    X, metric = load_metric_dataset(tmp_path, "cooking")
    assert metric == "jaccard_sets"
    assert [sorted(X[[i]].indices.tolist()) for i in range(3)] == [[3, 5], [0, 1, 2], [7]]
    (tmp_path / "names_us.txt").write_text("smith\njones\n\n")
    assert load_metric_dataset(tmp_path, "names-us") == (["smith", "jones"], "levenshtein")
    (tmp_path / "greengenes_aligned.txt").write_text(">one\nAC-\nG\n>two\nACTG\n")
    assert load_metric_dataset(tmp_path, "greengenes") == (["AC-G", "ACTG"], "hamming_str")
    (tmp_path / "greengenes_aligned.txt").write_text("AC-G\nACTG\n")
    assert load_metric_dataset(tmp_path, "greengenes")[0] == ["AC-G", "ACTG"]


def test_vectors_and_sets_may_stand_in_plain_files(tmp_path):
    vectors = np.arange(6, dtype=np.uint8).reshape(2, 3)
    np.save(tmp_path / "fashion-mnist-784-euclidean.npy", vectors)
    X, metric = load_metric_dataset(tmp_path, "fashion-mnist")
    assert metric == "euclidean"
    assert X.dtype == np.float64
    assert X.tolist() == vectors.tolist()
    (tmp_path / "kosarak-jaccard.txt").write_text("1,2\n3\n")
    assert sparse.issparse(load_metric_dataset(tmp_path, "kosarak")[0])


def test_hdf5_files_are_read_or_name_what_is_missing(tmp_path, monkeypatch):
    if importlib.util.find_spec("h5py") is None:
        (tmp_path / "fashion-mnist-784-euclidean.hdf5").write_bytes(b"")
    else:
        import h5py

        with h5py.File(tmp_path / "fashion-mnist-784-euclidean.hdf5", "w") as file:
            file["train"] = np.eye(3, dtype=np.float32)
        with h5py.File(tmp_path / "kosarak-jaccard.hdf5", "w") as file:
            file["train"], file["size_train"] = np.array([4, 2, 7]), np.array([2, 1])
        assert load_metric_dataset(tmp_path, "fashion-mnist")[0].tolist() == np.eye(3).tolist()
        assert load_metric_dataset(tmp_path, "kosarak")[0].toarray().sum(axis=1).tolist() == [2, 1]
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match="pip install h5py"):
        load_metric_dataset(tmp_path, "fashion-mnist")


def test_missing_and_wrong_files_are_named(tmp_path):
    for name, (file, _, _) in METRIC_DATASETS.items():
        with pytest.raises(ValueError, match=f"folder must hold {file}"):
            load_metric_dataset(tmp_path, name)
    with pytest.raises(ValueError, match="name must be one of"):
        load_metric_dataset(tmp_path, "mnist")
    (tmp_path / "cooking.txt").write_text("1 2\n3 salt\n")
    with pytest.raises(ValueError, match=r"cooking\.txt: line 2 must hold integers, got '3 salt'"):
        load_metric_dataset(tmp_path, "cooking")
    (tmp_path / "cooking.txt").write_text("\n")
    with pytest.raises(ValueError, match=r"cooking\.txt: expected sets"):
        load_metric_dataset(tmp_path, "cooking")
    (tmp_path / "names_us.txt").write_text("\n")
    with pytest.raises(ValueError, match=r"names_us\.txt: holds no strings"):
        load_metric_dataset(tmp_path, "names-us")
    np.save(tmp_path / "fashion-mnist-784-euclidean.npy", np.arange(3))
    with pytest.raises(ValueError, match="expected one vector a row"):
        load_metric_dataset(tmp_path, "fashion-mnist")
