from __future__ import annotations

import numpy as np
import pytest

from theses.datasets.mosaics import digit_mosaics


@pytest.fixture(scope="module")
def mosaics():
    return digit_mosaics(3_000, random_state=0)


def test_mosaics_show_one_to_four_digits(mosaics):
    counts = mosaics.labels.sum(axis=1)
    assert mosaics.scores.shape == mosaics.labels.shape == (3_000, 10)
    assert counts.min() == 1 and counts.max() == 4
    # With 1 to 4 tiles and ten nearly equally likely digits: 10 (1 - 0.9^t) labels on average over t.
    expected = np.mean([10 * (1 - 0.9**tiles) for tiles in (1, 2, 3, 4)])
    assert counts.mean() == pytest.approx(expected, abs=0.06)


def test_scores_are_the_best_probability_over_the_tiles(mosaics):
    single = mosaics.labels.sum(axis=1) == 1
    assert ((mosaics.scores > 0) & (mosaics.scores < 1)).all()
    # A largest probability over tiles adds up to 1 over the digits if there is one tile, to more otherwise.
    assert mosaics.scores.sum(axis=1).min() == pytest.approx(1.0)
    assert mosaics.scores[single].sum(axis=1).mean() < mosaics.scores[~single].sum(axis=1).mean()
    present, absent = mosaics.scores[mosaics.labels], mosaics.scores[~mosaics.labels]
    assert np.median(present) > 0.7 > 0.1 > np.median(absent)


def test_noise_makes_the_task_harder(mosaics):
    assert mosaics.tile_accuracy == pytest.approx(0.83, abs=0.02)
    assert digit_mosaics(10, noise=0.0, random_state=0).tile_accuracy == pytest.approx(0.88, abs=0.02)


def test_the_seed_decides(mosaics):
    same = digit_mosaics(3_000, random_state=0)
    np.testing.assert_array_equal(same.scores, mosaics.scores)
    np.testing.assert_array_equal(same.labels, mosaics.labels)
    assert not np.array_equal(digit_mosaics(3_000, random_state=1).labels, mosaics.labels)


def test_parameters_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"^n_mosaics must be at least 1"):
        digit_mosaics(0)
    with pytest.raises(ValueError, match=r"^noise must be at least 0"):
        digit_mosaics(10, noise=-1.0)
