from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from theses.datasets.images import load_mnist5k


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
