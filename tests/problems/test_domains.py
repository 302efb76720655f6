from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage
from sklearn.datasets import load_digits

from theses.problems import domains as module
from theses.problems.domains import (
    DOMAINBED,
    Domains,
    ImageFiles,
    load_domainbed,
    photographed_digits,
    rotated_digits,
    styled_digits,
    tinted_digits,
)

MAKERS = {
    "rotated": lambda seed: rotated_digits(random_state=seed),
    "tinted": lambda seed: tinted_digits(random_state=seed),
    "styled": lambda seed: styled_digits(1, seed)[1],
    "photographed": lambda seed: photographed_digits(4, 28, seed),
}


@pytest.mark.parametrize("name", MAKERS)
def test_pixels_are_on_the_unit_interval_and_follow_the_seed(name):
    one, again, other = MAKERS[name](0), MAKERS[name](0), MAKERS[name](1)
    assert one.images.dtype == np.float32 and one.labels.dtype == one.domain.dtype == np.int64
    assert one.images.min() >= 0 and 0.9 < one.images.max() <= 1
    np.testing.assert_array_equal(one.images, again.images)
    assert not np.array_equal(one.images, other.images)
    assert sorted(set(one.domain)) == list(range(len(one.names)))


def test_digits_are_turned_by_the_angle_of_their_domain():
    found = rotated_digits((0, 90), random_state=0)
    originals = (load_digits().images / 16).astype(np.float32)
    np.testing.assert_array_equal(found.labels, load_digits().target)
    for number, turns in enumerate((0, 1)):
        rows = found.domain == number
        assert abs(rows.mean() - 0.5) < 0.001
        expected = np.rot90(originals[rows], turns, axes=(1, 2))
        np.testing.assert_allclose(found.images[rows, 0], expected, atol=1e-6)


def test_colour_betrays_the_label_as_often_as_said():
    found = tinted_digits(random_state=3)
    colour = found.images[:, 1].any(axis=(1, 2))
    shape = load_digits().target >= 5
    np.testing.assert_allclose(found.images.sum(1), load_digits().images / 16)
    assert (found.labels != shape).mean() == pytest.approx(0.25, abs=0.03)
    for number, share in enumerate((0.9, 0.8, 0.1)):
        rows = found.domain == number
        assert (colour == found.labels)[rows].mean() == pytest.approx(share, abs=0.05)
        # The colour is drawn from the flipped label: given that, it says nothing of the shape.
        flipped = rows & (found.labels != shape)
        assert (colour == found.labels)[flipped].mean() == pytest.approx(share, abs=0.09)


def test_styles_are_what_they_are_called():
    pretraining, found = styled_digits(2, 0)
    digits = (load_digits().images / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(digits))
    originals = digits[order[len(order) // 2 :]]
    assert len(pretraining) == 2 * 898
    styles = {name: number for number, name in enumerate(found.names)}

    def of(name):
        rows = found.domain == styles[name]
        return found.images[rows, 0], originals[rows]

    images, plain = of("inverted")
    np.testing.assert_allclose(images, 1 - plain)
    images, plain = of("blurred")
    np.testing.assert_allclose(images[5], ndimage.gaussian_filter(plain[5], 1), atol=1e-6)
    images, plain = of("rotated")
    expected = ndimage.rotate(plain[2], 45, reshape=False, order=1)
    np.testing.assert_allclose(images[2], expected, atol=1e-6)
    images, plain = of("elastic")
    assert 0.01 < np.abs(images - plain).mean() < 0.15
    np.testing.assert_array_equal(found.labels, load_digits().target[order[len(order) // 2 :]])


def test_no_image_of_mnist_is_in_two_domains(monkeypatch):
    # Each picture carries its own number in its grey value, and comes out in one domain only.
    pictures = np.zeros((5_000, 28, 28), np.uint8)
    pictures[:, 10:20, 10:20] = (np.arange(5_000) % 200 + 50)[:, None, None].astype(np.uint8)
    pictures[np.arange(5_000), 0, 0] = (np.arange(5_000) // 200).astype(np.uint8)
    monkeypatch.setattr("theses.datasets.images.load_mnist5k", lambda: (pictures, np.arange(5_000)))
    found = photographed_digits(1_600, 28, 0)
    numbers = found.labels[: 3 * 1_600]
    assert len(set(numbers)) == len(numbers)
    np.testing.assert_allclose(
        found.images[:1_600, 1], pictures[numbers[:1_600]] / np.float32(255), atol=1e-6
    )
    # The photographs' domain: the absolute difference differs between the channels.
    second = found.images[1_600:3_200]
    assert np.abs(second[:, 0] - second[:, 2]).mean() > 0.02


def test_enlarging_keeps_corners_and_is_bilinear():
    images = np.random.default_rng(0).random((2, 8, 8)).astype(np.float32)
    found = module._enlarge(images, 15)
    np.testing.assert_allclose(found[:, ::2, ::2], images, atol=1e-6)
    np.testing.assert_allclose(found[:, 1::2, ::2], (images[:, 1:] + images[:, :-1]) / 2, atol=1e-6)


def test_split_keeps_domains_apart():
    found = rotated_digits(random_state=0)
    split = found.split([2, 5], 0.2, 0)
    assert set(found.domain[split.test]) == {2, 5}
    assert set(found.domain[split.train]) == set(found.domain[split.validation]) == {0, 1, 3, 4}
    everything = np.concatenate([split.train, split.validation, split.test])
    assert sorted(everything) == list(range(len(found)))
    for number in (0, 1, 3, 4):
        assert (found.domain[split.validation] == number).sum() == 60
    assert not np.array_equal(split.validation, found.split([2, 5], 0.2, 1).validation)


def write_domainbed(root, names=tuple(DOMAINBED), images=2):
    rng = np.random.default_rng(0)
    for name in names:
        for domain in ("one", "two"):
            for label in ("cat", "dog"):
                folder = root / name / domain / label
                folder.mkdir(parents=True)
                for nth in range(images):
                    picture = Image.fromarray(rng.integers(0, 255, (9, 12, 3)).astype(np.uint8))
                    picture.save(folder / f"{nth}.jpg")


def test_domainbeds_folders_are_read(tmp_path):
    write_domainbed(tmp_path, ["PACS"], images=3)
    (tmp_path / "PACS" / "one" / "cat" / "notes.txt").write_text("no image")
    found = load_domainbed(tmp_path, "PACS", size=8)
    assert found.names == ("one", "two") and len(found) == 12
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 1] * 2
    images = found.images[np.array([0, 11])]
    assert (
        images.shape == (2, 3, 8, 8) and images.dtype == np.float32 and 0 <= images.min() < images.max() <= 1
    )
    assert len(load_domainbed(tmp_path, "PACS", limit=1)) == 4
    (tmp_path / "PACS" / "one" / "cat" / "0.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"0\.jpg is no readable image"):
        found.images[np.array([0])]


@pytest.mark.parametrize("fault", ["missing", "one domain", "classes", "no images"])
def test_bad_folders_are_refused(tmp_path, fault):
    if fault == "missing":
        with pytest.raises(FileNotFoundError, match="VLCS is missing"):
            load_domainbed(tmp_path, "VLCS")
        return
    (tmp_path / "VLCS" / "one" / "cat").mkdir(parents=True)
    words = "at least 2 domains"
    if fault != "one domain":
        (tmp_path / "VLCS" / "two" / ("cat" if fault == "no images" else "dog")).mkdir(parents=True)
        words = "the same classes" if fault == "classes" else "must have images"
    with pytest.raises(ValueError, match=words):
        load_domainbed(tmp_path, "VLCS")


ARRAYS = (np.zeros((2, 1, 2, 2), np.float32), np.array([0, 1]), np.array([0, 1]))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rotated_digits([]), "angles must have at least 1"),
        (lambda: rotated_digits([np.nan]), "angles must be finite"),
        (lambda: tinted_digits([0.5, 1.5]), "agreements must be on"),
        (lambda: tinted_digits(flip=-0.1), "flip must be at least 0"),
        (lambda: styled_digits(0), "copies must be at least 1"),
        (lambda: photographed_digits(n=2_000), "n must be at most 1666"),
        (lambda: photographed_digits(size=8), "size must be at least 28"),
        (lambda: load_domainbed(".", "MNIST"), "name must be one of"),
        (lambda: ImageFiles([]), "paths must not be empty"),
        (lambda: Domains(("a",), ARRAYS[0], ARRAYS[1], ARRAYS[2]), "domain must be below 1"),
        (lambda: Domains(("a", "b"), ARRAYS[0], ARRAYS[1][:1], ARRAYS[2]), "must have the same length"),
        (lambda: Domains(("a", "b"), *ARRAYS).split([]), "held_out must hold 1 to 1 domains"),
        (lambda: Domains(("a", "b"), *ARRAYS).split([2]), "held_out must be at most 1"),
        (lambda: Domains(("a", "b"), *ARRAYS).split([0]), "must have at least 2 images"),
        (lambda: Domains(("a", "b"), *ARRAYS).split([0], share=0.0), "share must be greater than 0"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
