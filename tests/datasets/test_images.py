from __future__ import annotations

import bz2
import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from theses.datasets.images import TORCHVISION, load_mnist5k, load_torchvision_folder
from theses.resources import file_sha256, files_read


def test_mnist5k_is_balanced_and_holds_digits():
    images, labels = load_mnist5k()
    assert images.shape == (5000, 28, 28)
    assert images.dtype == np.uint8
    assert images.max() == 255
    assert np.bincount(labels).tolist() == [500] * 10


def test_mnist5k_labels_belong_to_the_images():
    images, labels = load_mnist5k()
    pooled = images.reshape(-1, 7, 4, 7, 4).mean((2, 4)).reshape(-1, 49) / 255
    odd, even = slice(1, None, 2), slice(0, None, 2)
    accuracy = (
        LogisticRegression(max_iter=200).fit(pooled[odd], labels[odd]).score(pooled[even], labels[even])
    )
    assert accuracy > 0.85


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def write_idx(root: Path, name: str, prefix: str, n: int = 4, side: int = 28, compress: bool = False):
    rng = np.random.default_rng(n)
    images = rng.integers(0, 256, (n, side, side)).astype(np.uint8)
    labels = rng.integers(0, 10, n).astype(np.uint8)
    folder = root / name / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
        path = folder / f"{prefix}-{kind}-ubyte"
        if compress:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(idx(array)))
        else:
            path.write_bytes(idx(array))
    return images, labels


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST", "KMNIST", "USPS"])
@pytest.mark.parametrize("compress", [False, True])
def test_idx_folders_are_read(tmp_path: Path, name: str, compress: bool):
    for train, prefix, n in ((True, "train", 5), (False, "t10k", 3)):
        images, labels = write_idx(tmp_path, name, prefix, n, compress=compress)
        got_images, got_labels = load_torchvision_folder(tmp_path, name, train)
        assert np.array_equal(got_images, images)
        assert np.array_equal(got_labels, labels)
        assert got_images.dtype == np.uint8
        assert got_labels.dtype == np.int64
    file = tmp_path / name / "raw" / f"t10k-labels-idx1-ubyte{'.gz' if compress else ''}"
    assert files_read()[file.name] == file_sha256(file)


def test_emnist_comes_upright(tmp_path: Path):
    images, labels = write_idx(tmp_path, "EMNIST", "emnist-letters-train")
    got_images, got_labels = load_torchvision_folder(tmp_path, "EMNIST-letters")
    assert np.array_equal(got_images[0], images[0].T)
    assert np.array_equal(got_labels, labels)
    write_idx(tmp_path, "EMNIST", "emnist-digits-test")
    assert len(load_torchvision_folder(tmp_path, "EMNIST-digits", train=False)[1]) == 4


def usps_line(label: int, values: np.ndarray) -> str:
    return f"{label} " + " ".join(f"{i}:{v:.6f}" for i, v in enumerate(values, start=1))


def test_usps_text_is_read(tmp_path: Path):
    values = np.linspace(-1, 1, 256)
    (tmp_path / "usps.bz2").write_bytes(
        bz2.compress(f"{usps_line(10, values)} \n{usps_line(1, -values)}\n".encode())
    )
    images, labels = load_torchvision_folder(tmp_path, "USPS")
    assert labels.tolist() == [9, 0]
    assert images.shape == (2, 16, 16)
    assert np.abs(images[0].ravel() / 127.5 - 1 - values).max() < 1 / 127
    with pytest.raises(FileNotFoundError, match=r"usps\.t\.bz2 is missing"):
        load_torchvision_folder(tmp_path, "USPS", train=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no bz2", "no readable bz2"),
        (bz2.compress(b""), "no lines"),
        (bz2.compress(b"1 1:x"), "line 1 does not read"),
        (bz2.compress(b"1 1:0.5"), "line 1 does not hold 256 values"),
        (bz2.compress(usps_line(1, np.full(256, 2.0)).encode()), "line 1 does not hold 256 values"),
    ],
)
def test_damaged_usps_is_refused(tmp_path: Path, content: bytes, message: str):
    (tmp_path / "usps.bz2").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_torchvision_folder(tmp_path, "USPS")


def test_cifar_is_read_from_its_binary_version(tmp_path: Path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (10, 3, 32, 32)).astype(np.uint8)
    labels = np.arange(10).astype(np.uint8)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    records = np.concatenate([labels[:, None], images.reshape(10, -1)], axis=1)
    for i in range(5):
        (folder / f"data_batch_{i + 1}.bin").write_bytes(records[2 * i : 2 * i + 2].tobytes())
    got_images, got_labels = load_torchvision_folder(tmp_path, "CIFAR10")
    assert np.array_equal(got_images, images)
    assert np.array_equal(got_labels, labels)
    with pytest.raises(FileNotFoundError, match=r"test_batch\.bin is missing"):
        load_torchvision_folder(tmp_path, "CIFAR10", train=False)
    (folder / "test_batch.bin").write_bytes(records.tobytes()[:-1])
    with pytest.raises(ValueError, match="no whole number of records"):
        load_torchvision_folder(tmp_path, "CIFAR10", train=False)
    (tmp_path / "cifar-100-binary").mkdir()
    coarse_and_fine = np.concatenate([100 + labels[:, None], records], axis=1)
    (tmp_path / "cifar-100-binary" / "test.bin").write_bytes(coarse_and_fine.tobytes())
    assert load_torchvision_folder(tmp_path, "CIFAR100", train=False)[1].tolist() == list(range(10))


def test_pickled_cifar_is_refused(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="cifar-10-batches-bin is missing: the binary version"):
        load_torchvision_folder(tmp_path, "CIFAR10")
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(ValueError, match=r"pickles.*binary version of CIFAR10, folder cifar-10-batches-bin"):
        load_torchvision_folder(tmp_path, "CIFAR10")


def test_damaged_idx_files_are_refused(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="train-images-idx3-ubyte is missing"):
        load_torchvision_folder(tmp_path, "MNIST")
    images, labels = write_idx(tmp_path, "MNIST", "train")
    path = tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte"
    for content, message in (
        (idx(labels)[:-1], "asks for 4 values, found 3"),
        (idx(images), "no idx file of unsigned bytes with 1 dimension"),
        (b"\x00", "no idx file"),
        (idx(labels[:3]), "4 images, but 3 labels"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            load_torchvision_folder(tmp_path, "MNIST")
    path.unlink()
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(idx(labels))[:-4])
    with pytest.raises(ValueError, match="no readable gzip"):
        load_torchvision_folder(tmp_path, "MNIST")


def test_unknown_names_are_refused(tmp_path: Path):
    assert "CIFAR10" in TORCHVISION
    with pytest.raises(ValueError, match="name must be one of MNIST"):
        load_torchvision_folder(tmp_path, "../MNIST")
