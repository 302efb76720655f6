"""Weights that come with the package, and weights from a folder of the authors."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import torch

from theses.optim.learned_optimizer.networks import ARCHITECTURES, LearnedOptimizer
from theses.resources import CorruptResourceError
from theses.validation import check_choice

__all__ = ["load_pretrained", "load_trained"]

_FOLDER: Final = Path(__file__).parent / "weights"


def load_trained(name: str = "quadratic") -> list[LearnedOptimizer]:
    """Ten samples of a solver that was learned once, for 50-dimensional quadratics or small networks.

    They were made by ``python -m theses.optim.learned_optimizer.train``; the recipe is in the metadata,
    and the file is checked against its SHA-256.

    Parameters
    ----------
    name : {"quadratic", "network"}, default="quadratic"
        ``"quadratic"`` for ``QuadraticFamily(dim=50)``, ``"network"`` for
        ``PolyRegressionFamily(degree=5, hidden=50)``.

    Returns
    -------
    list of LearnedOptimizer
        The samples, the learned weights first.

    Raises
    ------
    CorruptResourceError
        If the file is not the one that was shipped.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, section on experiments.

    Examples
    --------
    >>> len(load_trained("quadratic"))
    10
    """
    from safetensors.torch import load_file

    check_choice("name", name, ARCHITECTURES)
    path = _FOLDER / f"{name}.safetensors"
    sums = (_FOLDER / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    pinned = {file: digest for digest, file in (line.split() for line in sums)}
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != pinned[path.name]:
        raise CorruptResourceError(f"{path.name} has SHA-256 {digest}, expected {pinned[path.name]}")
    stacked = load_file(path)
    dim = len(stacked["net.scale_gradient"][0]) if name == "network" else None
    blank = LearnedOptimizer(name, dim, generator=0)
    count = len(next(iter(stacked.values())))
    return [blank.with_state({key: value[i] for key, value in stacked.items()}) for i in range(count)]


def load_pretrained(
    folder: Path | str, architecture: str = "quadratic", dim: int | None = None
) -> LearnedOptimizer:
    """Solver from ``model.pt`` in a folder, as the authors store theirs: a dictionary of tensors.

    Tensors are taken in their order, 1x1 convolutions as matrices; a matching shape is all that is asked of
    them, names are not. Nothing but tensors is read from the file.

    Parameters
    ----------
    folder : path
        With ``model.pt``.
    architecture : {"quadratic", "network"}, default="quadratic"
        What it is to fit.
    dim : int or None, default=None
        Number of unknowns, for ``"network"``.

    Returns
    -------
    LearnedOptimizer
        With these weights.

    Raises
    ------
    FileNotFoundError
        If there is no ``model.pt``.
    ValueError
        If number or shapes of the tensors do not fit the architecture.

    References
    ----------
    .. [1] M. Sucker, P. Ochs, "A Generalization Result for Convergence in Learning-to-Optimize",
       ICML 2025, arXiv:2410.07704, code of section on experiments.

    Examples
    --------
    >>> import tempfile
    >>> opt = LearnedOptimizer(generator=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save(opt.state_dict(), Path(folder) / "model.pt")
    ...     read = load_pretrained(folder)
    >>> read.architecture
    'quadratic'
    """
    path = Path(folder) / "model.pt"
    if not path.is_file():
        raise FileNotFoundError(f"folder must hold model.pt, found none in {folder}")
    content: Any = torch.load(path, weights_only=True, map_location="cpu")
    if not isinstance(content, dict) or not all(
        isinstance(value, torch.Tensor) for value in content.values()
    ):
        raise ValueError(f"{path} must hold a dictionary of tensors, got {type(content).__name__}")
    opt = LearnedOptimizer(architecture, dim, generator=0)
    wanted = opt.state_dict()
    given = [value.reshape(value.shape[:2]) if value.ndim == 4 else value for value in content.values()]
    shapes = [tuple(value.shape) for value in given]
    if shapes != [tuple(value.shape) for value in wanted.values()]:
        expected = [tuple(value.shape) for value in wanted.values()]
        raise ValueError(f"{path} must hold tensors of shapes {expected}, got {shapes}")
    return opt.with_state(dict(zip(wanted, given, strict=True)))
