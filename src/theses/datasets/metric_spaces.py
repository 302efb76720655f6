"""Objects with a distance: generators, and loaders of the usual files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial.distance import cdist

from theses.resources import record
from theses.validation import as_generator, check_choice, check_integer, check_real

__all__ = [
    "METRIC_DATASETS",
    "aligned_sequences",
    "gaussian_mixture",
    "load_metric_dataset",
    "mutated_words",
    "random_metric",
    "uniform_cube",
]

RandomState = int | np.random.Generator | np.random.RandomState | None

METRIC_DATASETS: Final = {
    "cooking": ("cooking.txt", "sets", "jaccard_sets"),
    "kosarak": ("kosarak-jaccard.hdf5", "sets", "jaccard_sets"),
    "movielens": ("movielens10m-jaccard.hdf5", "sets", "jaccard_sets"),
    "fashion-mnist": ("fashion-mnist-784-euclidean.hdf5", "vectors", "euclidean"),
    "names-us": ("names_us.txt", "strings", "levenshtein"),
    "greengenes": ("greengenes_aligned.txt", "strings", "hamming_str"),
}
"""File, kind of object and metric of each data set that :func:`load_metric_dataset` knows."""

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


def gaussian_mixture(
    n: int, d: int = 128, n_clusters: int = 100, *, random_state: RandomState = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draws from a mixture of axis-parallel Gaussians of equal weight.

    Means are uniform in [-5, 5]^d, standard deviations uniform in [0.5, 0.8], one for each axis and cluster.

    Parameters
    ----------
    n : int
        Number of points.
    d : int, default=128
        Dimension.
    n_clusters : int, default=100
        Number of clusters.
    random_state : int, Generator, RandomState or None, default=None
        Source of randomness.

    Returns
    -------
    X : ndarray of float64, shape (n, d)
        The points.
    labels : ndarray of int64, shape (n,)
        Cluster of each.

    Examples
    --------
    >>> X, labels = gaussian_mixture(500, 8, 3, random_state=0)
    >>> X.shape, sorted(set(labels.tolist()))
    ((500, 8), [0, 1, 2])
    """
    for name, value in (("n", n), ("d", d), ("n_clusters", n_clusters)):
        check_integer(name, value, minimum=1)
    rng = as_generator(random_state)
    means = rng.uniform(-5, 5, (n_clusters, d))
    deviations = rng.uniform(0.5, 0.8, (n_clusters, d))
    labels = rng.integers(n_clusters, size=n)
    X = rng.standard_normal((n, d))
    X *= deviations[labels]
    X += means[labels]
    return X, labels


def uniform_cube(n: int, d: int = 2, *, random_state: RandomState = None) -> NDArray[np.float64]:
    """Points drawn uniformly from the cube [-1, 1]^d.

    Parameters
    ----------
    n : int
        Number of points.
    d : int, default=2
        Dimension.
    random_state : int, Generator, RandomState or None, default=None
        Source of randomness.

    Returns
    -------
    ndarray of float64, shape (n, d)
        The points.

    Examples
    --------
    >>> uniform_cube(3, random_state=0).shape
    (3, 2)
    """
    check_integer("n", n, minimum=1)
    check_integer("d", d, minimum=1)
    return as_generator(random_state).uniform(-1, 1, (n, d))


def aligned_sequences(
    n: int,
    length: int = 200,
    *,
    mutation_rate: float = 0.02,
    gap_rate: float = 0.1,
    random_state: RandomState = None,
) -> list[str]:
    """Sequences of one length over A, C, G, T and the gap, mutated along a random tree.

    The first is random; each further one copies an earlier one, drawn uniformly, with every place mutated
    independently.

    Parameters
    ----------
    n : int
        Number of sequences.
    length : int, default=200
        Their length.
    mutation_rate : float, default=0.02
        Probability that a place is drawn anew.
    gap_rate : float, default=0.1
        Probability that what is drawn is the gap ``"-"``.
    random_state : int, Generator, RandomState or None, default=None
        Source of randomness.

    Returns
    -------
    list of str
        The sequences.

    Examples
    --------
    >>> aligned_sequences(3, 8, mutation_rate=0.3, random_state=1)
    ['G-A-CCTC', 'G-TGCTTC', 'G-A-ACTA']
    """
    check_integer("n", n, minimum=1)
    check_integer("length", length, minimum=1)
    check_real("mutation_rate", mutation_rate, minimum=0, maximum=1)
    check_real("gap_rate", gap_rate, minimum=0, maximum=1)
    rng = as_generator(random_state)
    bases = np.frombuffer(b"ACGT-", dtype=np.uint8)
    shares = np.array([(1 - gap_rate) / 4] * 4 + [gap_rate])
    codes = np.empty((n, length), dtype=np.uint8)
    codes[0] = rng.choice(bases, size=length, p=shares)
    for i in range(1, n):
        fresh = rng.choice(bases, size=length, p=shares)
        codes[i] = np.where(rng.random(length) < mutation_rate, fresh, codes[rng.integers(i)])
    return [row.tobytes().decode("ascii") for row in codes]


def mutated_words(
    words: Sequence[str], n: int, *, max_edits: int = 3, random_state: RandomState = None
) -> list[str]:
    """Words drawn with replacement, each with one to a few random edits.

    An edit substitutes, inserts or deletes a lower-case letter at a random place; the last letter of a word
    is never deleted.

    Parameters
    ----------
    words : sequence of str
        Words to draw from.
    n : int
        Number of words wanted.
    max_edits : int, default=3
        Most edits; their number is uniform from 1.
    random_state : int, Generator, RandomState or None, default=None
        Source of randomness.

    Returns
    -------
    list of str
        The mutated words; some may be equal.

    Raises
    ------
    ValueError
        If there are no words, or an empty one.

    Examples
    --------
    >>> mutated_words(["kitten"], 3, random_state=0)
    ['kitcen', 'kittaw', 'hkitte']
    """
    check_integer("n", n, minimum=1)
    check_integer("max_edits", max_edits, minimum=1)
    if not words or not all(words):
        raise ValueError(f"words must be one or more strings that are not empty, got {len(words)} words")
    rng = as_generator(random_state)
    chosen = rng.integers(len(words), size=n).tolist()
    edits = rng.integers(1, max_edits + 1, size=n).tolist()
    kinds = rng.integers(3, size=(n, max_edits)).tolist()
    places = rng.random((n, max_edits)).tolist()
    letters = rng.integers(len(_LETTERS), size=(n, max_edits)).tolist()
    mutated = []
    for i in range(n):
        word = words[chosen[i]]
        for kind, place, letter in zip(kinds[i][: edits[i]], places[i], letters[i], strict=False):
            at = int(place * (len(word) + (kind == 1)))
            if kind == 1:
                word = word[:at] + _LETTERS[letter] + word[at:]
            elif kind == 0 or len(word) == 1:
                word = word[:at] + _LETTERS[letter] + word[at + 1 :]
            else:
                word = word[:at] + word[at + 1 :]
        mutated.append(word)
    return mutated


def random_metric(kind: str, n: int, *, random_state: RandomState = None) -> NDArray[np.float64]:
    """Matrix of distances of a random finite metric space.

    Parameters
    ----------
    kind : {"points", "graph", "one-two"}
        Euclidean distances of uniform points in one to five dimensions; shortest paths in a sparse random
        graph with exponential lengths; independent fair choices of 1 or 2.
    n : int
        Number of points.
    random_state : int, Generator, RandomState or None, default=None
        Source of randomness.

    Returns
    -------
    ndarray of float64, shape (n, n)
        Symmetric, zero on the diagonal, with the triangle inequality.

    Examples
    --------
    >>> random_metric("one-two", 3, random_state=0)
    array([[0., 2., 2.],
           [2., 0., 1.],
           [2., 1., 0.]])
    """
    check_choice("kind", kind, ("points", "graph", "one-two"))
    check_integer("n", n, minimum=1)
    rng = as_generator(random_state)
    if kind == "points":
        points = rng.random((n, int(rng.integers(1, 6))))
        return cdist(points, points)
    if kind == "one-two":
        upper = np.triu(rng.integers(1, 3, (n, n)), 1).astype(np.float64)
        return upper + upper.T
    # A path through all points keeps the graph connected.
    lengths = np.where(rng.random((n, n)) < min(1.0, 4 / n), rng.exponential(size=(n, n)), 0.0)
    order = rng.permutation(n)
    lengths[order[:-1], order[1:]] = rng.exponential(size=n - 1)
    np.fill_diagonal(lengths, 0.0)
    paths: NDArray[np.float64] = csgraph.shortest_path(sparse.csr_array(lengths), directed=False)
    return np.minimum(paths, paths.T)  # rounded alike in both directions


def load_metric_dataset(folder: str | os.PathLike[str], name: str) -> tuple[Any, str]:
    """Data set from a local folder, with the metric it is used with.

    Parameters
    ----------
    folder : path-like
        Holds ``cooking.txt`` (a recipe a line, its ingredients as integers), ``names_us.txt`` (a name a
        line), ``greengenes_aligned.txt`` (a sequence a line, or FASTA), and files of ANN-benchmarks:
        ``fashion-mnist-784-euclidean.hdf5``, ``kosarak-jaccard.hdf5``, ``movielens10m-jaccard.hdf5``. Instead
        of an ``.hdf5``, vectors may be in a ``.npy`` and sets in a ``.txt`` of the same name.
    name : {"cooking", "kosarak", "movielens", "fashion-mnist", "names-us", "greengenes"}
        Which one.

    Returns
    -------
    X : ndarray of float64, csr_array or list of str
        Vectors; sets as the rows of a sparse matrix; or strings.
    metric : str
        Name of the metric.

    Raises
    ------
    ImportError
        If an ``.hdf5`` is to be read and h5py is missing.
    ValueError
        If there is no data set or no file of that name, or the file holds something else.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "cooking.txt").write_text("3 1\\n1 7 9\\n")
    >>> X, metric = load_metric_dataset(folder, "cooking")
    >>> X.shape, X.nnz, metric
    ((2, 10), 5, 'jaccard_sets')
    """
    check_choice("name", name, tuple(METRIC_DATASETS))
    file, kind, metric = METRIC_DATASETS[name]
    wanted = Path(folder) / file
    instead = wanted.with_suffix(".npy" if kind == "vectors" else ".txt")
    path = wanted if wanted.is_file() else instead
    if not path.is_file():
        other = f" or {instead.name}" if instead != wanted else ""
        raise ValueError(f"folder must hold {wanted.name}{other} for {name!r}, got {Path(folder)}")
    record(path)
    if kind == "strings":
        return _read_strings(path), metric
    if kind == "sets":
        items, sizes = _read_hdf5_sets(path) if path.suffix == ".hdf5" else _read_text_sets(path)
        return _sparse_sets(path, items, sizes), metric
    if path.suffix == ".npy":
        vectors = np.load(path, allow_pickle=False)
    else:
        with _h5py().File(path, "r") as stored:
            vectors = np.asarray(stored["train"])
    if vectors.ndim != 2:
        raise ValueError(f"{path}: expected one vector a row, got shape {vectors.shape}")
    return vectors.astype(np.float64), metric


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise ImportError("files of ANN-benchmarks need h5py: pip install h5py") from None
    return h5py


def _read_strings(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    if lines and lines[0].startswith(">"):
        # FASTA: a header with ">", then the sequence on one or more lines.
        records: list[list[str]] = []
        for line in lines:
            if line.startswith(">"):
                records.append([])
            else:
                records[-1].append(line.strip())
        lines = ["".join(parts) for parts in records]
    strings = [line.strip() for line in lines if line.strip()]
    if not strings:
        raise ValueError(f"{path}: holds no strings")
    return strings


def _read_text_sets(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            rows.append(sorted({int(item) for item in line.replace(",", " ").split()}))
        except ValueError:
            raise ValueError(f"{path}: line {number} must hold integers, got {line[:40]!r}") from None
    rows = [row for row in rows if row]
    sizes = np.array([len(row) for row in rows], dtype=np.int64)
    return np.array([item for row in rows for item in row], dtype=np.int64), sizes


def _read_hdf5_sets(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    with _h5py().File(path, "r") as stored:
        return np.asarray(stored["train"], dtype=np.int64), np.asarray(stored["size_train"], dtype=np.int64)


def _sparse_sets(path: Path, items: NDArray[np.int64], sizes: NDArray[np.int64]) -> sparse.csr_array:
    if not len(items) or sizes.sum() != len(items) or items.min() < 0:
        raise ValueError(f"{path}: expected sets of integers of at least 0")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    shape = (len(sizes), int(items.max()) + 1)
    matrix = sparse.csr_array((np.ones(len(items), dtype=np.int8), items, starts), shape=shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix
