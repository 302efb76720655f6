"""Scores of a multi-label classifier on MS-COCO, from a local file."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from theses.resources import record

__all__ = ["load_coco_scores"]

_NAME = "coco-tresnetxl.npz"
_LAYOUT = f"a file {_NAME} (in the folder or in its sub-folder coco) with arrays sgmd and labels"


def load_coco_scores(path: str | os.PathLike[str]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scores and labels of MS-COCO images, as the literature on conformal risk control uses them.

    Parameters
    ----------
    path : path-like
        The ``.npz`` file with arrays ``sgmd`` (scores in [0, 1]) and ``labels`` (0 or 1), both of shape
        ``(n_images, n_labels)``, or a folder with ``coco-tresnetxl.npz`` in it or in its sub-folder ``coco``.

    Returns
    -------
    scores : ndarray of float64, shape (n_images, n_labels)
        Scores of the labels.
    labels : ndarray of bool, shape (n_images, n_labels)
        Labels present.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If an array is missing, holds anything else, or the shapes differ. Pickled arrays are refused.

    References
    ----------
    Lin et al.: Microsoft COCO, ECCV 2014. Angelopoulos et al.: Conformal Risk Control, ICLR 2024.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "coco-tresnetxl.npz"
    ...     np.savez(file, sgmd=np.array([[0.9, 0.2]]), labels=np.array([[1, 0]]))
    ...     scores, labels = load_coco_scores(folder)
    >>> labels.tolist()
    [[True, False]]
    """
    file = _locate(Path(path))
    try:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, NpzFile):
            raise ValueError("it holds a single array")
        with archive:
            if missing := {"sgmd", "labels"} - set(archive.files):
                raise ValueError(f"it lacks {', '.join(sorted(missing))}")
            scores, labels = archive["sgmd"], archive["labels"]
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file}: expected an npz file with arrays sgmd and labels: {error}") from None
    if scores.ndim != 2 or scores.shape != labels.shape or 0 in scores.shape:
        raise ValueError(
            f"{file}: sgmd and labels must both have shape (n_images, n_labels), "
            f"got {scores.shape} and {labels.shape}"
        )
    if scores.dtype.kind not in "fiu" or labels.dtype.kind not in "biuf":
        raise ValueError(f"{file}: sgmd and labels must be numbers, got {scores.dtype} and {labels.dtype}")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError(f"{file}: labels must hold 0 and 1")
    scores = scores.astype(np.float64)
    if not ((scores >= 0) & (scores <= 1)).all():
        raise ValueError(f"{file}: sgmd must hold scores in [0, 1]")
    record(file)
    return scores, labels.astype(np.bool_)


def _locate(path: Path) -> Path:
    if path.is_dir():
        for candidate in (path / _NAME, path / "coco" / _NAME):
            if candidate.is_file():
                return candidate
    elif path.is_file():
        return path
    raise FileNotFoundError(f"{path}: expected {_LAYOUT}")
