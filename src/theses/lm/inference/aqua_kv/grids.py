"""Grids for vectors of independent standard normals, found by Lloyd's algorithm and shipped with the package.

``python -m theses.lm.inference.aqua_kv.grids`` makes the shipped file again, in some minutes.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from theses.validation import as_torch_generator, check_integer

__all__ = ["SHIPPED", "grid_distortion", "lloyd_grid", "shipped_grid"]

_LOG = logging.getLogger(__name__)
_FILE: Final = Path(__file__).with_name("grids.safetensors")
_BLOCK: Final = 1 << 15  # rows whose products with 256 points stay within some 30 MB

SHIPPED: Final = ((1, 2), (1, 4), (1, 8), (1, 16), (2, 4), (2, 16), (2, 64), (2, 256), (4, 16), (4, 256))
"""Pairs of dimension and number of points for which a grid is shipped."""


def nearest(vectors: Tensor, grid: Tensor) -> Tensor:
    """Index of the nearest grid point: ``argmax_c 2 <x, c> - |c|^2``; O(n_vectors n_points dim)."""
    # The product with a column of ones folds the squared norms into one matrix multiplication.
    half_norms = grid.square().sum(1).mul_(-0.5)
    return torch.cat(
        [torch.addmm(half_norms, rows, grid.T).argmax(1) for rows in torch.split(vectors, _BLOCK)]
        or [vectors[:, 0].long()]
    )


def grid_distortion(
    grid: Tensor, n_samples: int = 100_000, generator: torch.Generator | int | None = None
) -> float:
    """Mean squared error a coordinate of rounding standard normal vectors to a grid.

    ``E min_c |x - c|^2 / dim`` for ``x ~ N(0, I)``, estimated from fresh draws.

    Parameters
    ----------
    grid : torch.Tensor, shape (n_points, dim)
        The grid.
    n_samples : int, default=100_000
        Number of vectors drawn.
    generator : torch.Generator, int or None, default=None
        Source of the draws.

    Returns
    -------
    float
        The distortion; its standard error is about ``1.2 / sqrt(n_samples dim)`` times the value.

    Raises
    ------
    ValueError
        If the grid is no finite matrix, or there are no samples.

    References
    ----------
    arXiv 2411.17525, section 4: HIGGS takes grids of least distortion.

    Examples
    --------
    >>> round(grid_distortion(shipped_grid(2, 16), generator=0), 2)
    0.11
    """
    grid = check_grid("grid", grid)
    n_samples = check_integer("n_samples", n_samples, minimum=1)
    draws = torch.randn(n_samples, grid.shape[1], generator=as_torch_generator(generator))
    return float((draws - grid[nearest(draws, grid)]).square().mean())


def lloyd_grid(
    dim: int,
    n_points: int,
    *,
    restarts: int = 20,
    steps: int = 60,
    n_samples: int = 60_000,
    generator: torch.Generator | int | None = None,
) -> Tensor:
    """Grid with small mean squared error for ``N(0, I)``, by Lloyd's algorithm.

    Alternates between giving each draw to its nearest point and moving each point to the mean of its draws.
    Every restart begins at distinct draws; the best by distortion on draws of its own is refined on twelve
    times as many. O(restarts steps n_samples n_points dim).

    Parameters
    ----------
    dim : int
        Length of the vectors.
    n_points : int
        Number of grid points.
    restarts : int, default=20
        Number of starts.
    steps : int, default=60
        Iterations of each, and of the refinement.
    n_samples : int, default=60_000
        Draws in each restart.
    generator : torch.Generator, int or None, default=None
        Source of the draws.

    Returns
    -------
    torch.Tensor of float32, shape (n_points, dim)
        The grid, sorted by its coordinates.

    Raises
    ------
    TypeError, ValueError
        If a number is no positive integer, or there are fewer draws than points.

    References
    ----------
    Lloyd: Least squares quantization in PCM, IEEE Transactions on Information Theory 28, 1982.

    Examples
    --------
    >>> lloyd_grid(1, 2, restarts=1, generator=0).shape
    torch.Size([2, 1])
    """
    dim = check_integer("dim", dim, minimum=1)
    n_points = check_integer("n_points", n_points, minimum=1)
    restarts = check_integer("restarts", restarts, minimum=1)
    steps = check_integer("steps", steps, minimum=1)
    n_samples = check_integer("n_samples", n_samples, minimum=n_points)
    generator = as_torch_generator(generator)

    def draw(number: int) -> Tensor:
        return torch.randn(number, dim, generator=generator)

    best, least = torch.zeros(n_points, dim), float("inf")
    for _ in range(restarts):
        draws = draw(n_samples)
        grid = _lloyd(draws, draws[:n_points].clone(), steps)
        error = grid_distortion(grid, n_samples, generator)
        if error < least:
            best, least = grid, error
    best = _lloyd(draw(12 * n_samples), best, steps)
    order = sorted(range(n_points), key=lambda i: best[i].tolist())
    return best[order]


def _lloyd(draws: Tensor, grid: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        owner = nearest(draws, grid)
        count = torch.bincount(owner, minlength=len(grid))
        total = torch.zeros_like(grid).index_add_(0, owner, draws)
        # A point that lost all its draws stays where it was.
        grid = torch.where(count[:, None] > 0, total / count.clamp(min=1)[:, None], grid)
    return grid


@functools.cache
def _shipped() -> dict[str, Tensor]:
    return load_file(_FILE)


def shipped_grid(dim: int, n_points: int) -> Tensor:
    """Grid that comes with the package.

    Parameters
    ----------
    dim : int
        Length of the vectors.
    n_points : int
        Number of grid points.

    Returns
    -------
    torch.Tensor of float32, shape (n_points, dim)
        The grid; a copy.

    Raises
    ------
    ValueError
        If none is shipped for these.

    References
    ----------
    arXiv 2411.17525, section 4.

    Examples
    --------
    >>> shipped_grid(2, 16).shape
    torch.Size([16, 2])
    """
    if (dim, n_points) not in SHIPPED:
        known = ", ".join(f"{points} points in {d} dimensions" for d, points in SHIPPED)
        raise ValueError(
            f"grid: none is shipped with n_points={n_points} in dim={dim}; shipped are {known}; make another "
            "with lloyd_grid and hand it over as grid"
        )
    return _shipped()[f"{dim}x{n_points}"].clone()


def check_grid(name: str, grid: Tensor) -> Tensor:
    """Grid as a finite float32 matrix on the CPU."""
    if not isinstance(grid, Tensor) or not grid.is_floating_point():
        raise TypeError(f"{name} must be a tensor of floats, got {type(grid).__name__}")
    if grid.ndim != 2 or 0 in grid.shape:
        raise ValueError(f"{name} must have shape (n_points, dim), got {tuple(grid.shape)}")
    if not grid.isfinite().all():
        raise ValueError(f"{name} must be finite")
    return grid.detach().to("cpu", torch.float32)


def _make() -> Iterator[tuple[str, Tensor]]:
    for dim, n_points in SHIPPED:
        grid = lloyd_grid(dim, n_points, generator=1_000 * dim + n_points)
        _LOG.info("%d x %d: %.5f", dim, n_points, grid_distortion(grid, 1_000_000, generator=0))
        yield f"{dim}x{n_points}", grid


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    save_file(dict(_make()), _FILE)
