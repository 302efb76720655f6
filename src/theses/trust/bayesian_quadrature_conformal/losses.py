"""Losses in [0, 1] that fall as a prediction grows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theses.validation import check_array, check_same_length

__all__ = ["false_negative_rate", "miscoverage", "scaled_count"]


def miscoverage(predictions: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    r"""Whether a prediction misses the truth: ``1`` if :math:`y_i \notin C_i`, else ``0``.

    Parameters
    ----------
    predictions : array-like, shape (n, 2) of float, or (n, n_classes) of bool
        Intervals with their ends included (an end may be infinite), or sets of classes.
    y : array-like, shape (n,)
        Targets, or for sets the indices of the true classes.

    Returns
    -------
    ndarray of float, shape (n,)
        Losses.

    Raises
    ------
    ValueError
        If shapes do not fit, something is not finite, or ``y`` is no index of a class.

    Examples
    --------
    >>> miscoverage([[0.0, 1.0], [0.0, 1.0]], [0.5, 2.0])
    array([0., 1.])
    >>> miscoverage([[True, False], [True, True]], [1, 1])
    array([1., 0.])

    References
    ----------
    Snell and Griffiths, ICML 2025: the loss with which conformal risk control is split conformal prediction.
    """
    sets_or_intervals = check_array("predictions", predictions, ndim=2, dtype=None, finite=False)
    if sets_or_intervals.dtype == np.bool_:
        classes = _class_indices(y, sets_or_intervals.shape[1])
        n = check_same_length({"predictions": sets_or_intervals, "y": classes})
        missed: NDArray[np.bool_] = ~sets_or_intervals[np.arange(n), classes]
        return missed.astype(np.float64)
    intervals = check_array("predictions", sets_or_intervals, ndim=2, finite=False)
    if intervals.shape[1] != 2:
        raise ValueError(
            f"predictions must be intervals of shape (n, 2) or boolean sets, got shape {intervals.shape}"
        )
    if np.isnan(intervals).any():
        raise ValueError("predictions must not be NaN")
    targets = check_array("y", y, ndim=1)
    check_same_length({"predictions": intervals, "y": targets})
    missed = (targets < intervals[:, 0]) | (targets > intervals[:, 1])
    return missed.astype(np.float64)


def false_negative_rate(predictions: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    r"""Share of an instance's labels that its predicted set lacks: :math:`1 - |C_i \cap y_i| / |y_i|`.

    An instance without labels has nothing to miss: its loss is 0, and it counts.

    Parameters
    ----------
    predictions : array-like of bool, shape (n, n_labels)
        Predicted sets.
    y : array-like of bool (or 0 and 1), shape (n, n_labels)
        True labels.

    Returns
    -------
    ndarray of float, shape (n,)
        Losses.

    Raises
    ------
    ValueError
        If shapes differ or an entry is neither 0 nor 1.

    Examples
    --------
    >>> false_negative_rate([[True, False], [False, False]], [[1, 1], [0, 0]])
    array([0.5, 0. ])

    References
    ----------
    Snell and Griffiths, ICML 2025: the loss of the MS-COCO experiment.
    """
    sets = _indicators("predictions", predictions)
    truth = _indicators("y", y)
    check_same_length({"predictions": sets, "y": truth})
    if sets.shape != truth.shape:
        raise ValueError(
            f"predictions and y must have the same shape, but predictions has {sets.shape} "
            f"and y {truth.shape}"
        )
    # A sum of booleans along short rows is slow; the product with ones is a matrix-vector product.
    ones = np.ones(truth.shape[1])
    rates: NDArray[np.float64] = (truth & ~sets) @ ones / np.maximum(truth @ ones, 1.0)
    return rates


def scaled_count(predictions: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    r"""Share of an instance's events that exceed the level allowed for it.

    .. math:: \ell_i = \frac{1}{k} \sum_{j=1}^{k} 1\{y_{ij} > c_i\}

    Parameters
    ----------
    predictions : array-like, shape (n,)
        Levels ``c_i``.
    y : array-like, shape (n, k)
        Events.

    Returns
    -------
    ndarray of float, shape (n,)
        Losses.

    Raises
    ------
    ValueError
        If shapes do not fit or something is not finite.

    Examples
    --------
    >>> scaled_count([0.5, 0.5], [[0.1, 0.9], [0.2, 0.3]])
    array([0.5, 0. ])

    References
    ----------
    Snell and Griffiths, ICML 2025: the loss of the experiment with binomial losses.
    """
    levels = check_array("predictions", predictions, ndim=1)
    events = check_array("y", y, ndim=2)
    check_same_length({"predictions": levels, "y": events})
    shares: NDArray[np.float64] = (events > levels[:, None]) @ np.ones(events.shape[1]) / events.shape[1]
    return shares


def _indicators(name: str, value: Any) -> NDArray[np.bool_]:
    if isinstance(value, np.ndarray) and value.dtype == np.bool_:
        return check_array(name, value, ndim=2, dtype=np.bool_)
    array = check_array(name, value, ndim=2)
    if not np.isin(array, (0.0, 1.0)).all():
        raise ValueError(f"{name} must hold booleans or 0 and 1, got {array[~np.isin(array, (0, 1))][0]}")
    return array.astype(np.bool_)


def _class_indices(y: Any, n_classes: int) -> NDArray[np.int64]:
    array = check_array("y", y, ndim=1)
    bad = (array != np.floor(array)) | (array < 0) | (array >= n_classes)
    if bad.any():
        raise ValueError(
            f"y must hold indices of classes from 0 to {n_classes - 1}, got {array[bad][0]:g} "
            f"at index {int(np.argmax(bad))}"
        )
    return array.astype(np.int64)
