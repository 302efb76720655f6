from __future__ import annotations

import numpy as np
import pytest

from theses.datasets.coco_scores import load_coco_scores
from theses.resources import file_sha256, files_read

SGMD = np.array([[0.9, 0.1, 0.4], [0.2, 0.7, 0.0]], dtype=np.float32)
LABELS = np.array([[1, 0, 0], [0, 1, 0]])


@pytest.fixture
def folder(tmp_path):
    np.savez(tmp_path / "coco-tresnetxl.npz", sgmd=SGMD, labels=LABELS, example_indexes=np.arange(2))
    return tmp_path


def test_scores_and_labels_come_back(folder):
    scores, labels = load_coco_scores(folder)
    assert scores.dtype == np.float64 and labels.dtype == np.bool_
    np.testing.assert_array_equal(scores, SGMD)
    np.testing.assert_array_equal(labels, LABELS == 1)
    file = folder / "coco-tresnetxl.npz"
    assert files_read()[file.name] == file_sha256(file)


def test_file_and_sub_folder_do_as_well(folder):
    (folder / "coco").mkdir()
    inner = (folder / "coco-tresnetxl.npz").rename(folder / "coco" / "coco-tresnetxl.npz")
    for path in (folder, folder / "coco", inner, str(inner)):
        assert load_coco_scores(path)[0].shape == (2, 3)


def test_a_missing_file_is_named(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match=r"coco-tresnetxl\.npz .* arrays sgmd and labels"):
            load_coco_scores(path)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"sgmd": SGMD}, "it lacks labels"),
        ({"sgmd": SGMD, "labels": LABELS[:1]}, "must both have shape"),
        ({"sgmd": SGMD[0], "labels": LABELS[0]}, "must both have shape"),
        ({"sgmd": SGMD[:0], "labels": LABELS[:0]}, "must both have shape"),
        ({"sgmd": SGMD, "labels": 2 * LABELS}, "labels must hold 0 and 1"),
        ({"sgmd": 2 * SGMD, "labels": LABELS}, r"scores in \[0, 1\]"),
        ({"sgmd": SGMD * np.nan, "labels": LABELS}, r"scores in \[0, 1\]"),
        ({"sgmd": SGMD.astype(str), "labels": LABELS}, "must be numbers"),
        ({"sgmd": SGMD.astype(object), "labels": LABELS}, "allow_pickle=False"),
    ],
)
def test_other_content_is_refused(tmp_path, arrays, words):
    file = tmp_path / "scores.npz"
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match=rf"scores\.npz: .*{words}"):
        load_coco_scores(file)


def test_other_files_are_refused(tmp_path):
    text = tmp_path / "text.npz"
    text.write_text("no archive")
    single = tmp_path / "single.npy"
    np.save(single, SGMD)
    empty = tmp_path / "empty.npz"
    empty.touch()
    for file in (text, single, empty):
        with pytest.raises(ValueError, match=f"{file.name}: expected an npz file"):
            load_coco_scores(file)
