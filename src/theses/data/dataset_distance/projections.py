"""Random projections of s-OTDD: data projection ``theta``, weights ``psi`` and moment orders ``k``."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from theses.validation import as_torch_generator, check_choice, check_integer

__all__ = ["CONV_CLAMP", "Projections", "conv_layers", "draw_projections", "iter_projections"]

CONV_CLAMP = 5.0
"""Projections by convolution are clamped to ``[-5, 5]`` before their moments are taken."""

_Layer = tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Projections:
    """Parameters of ``L`` projections of labelled samples to numbers.

    Parameters
    ----------
    theta : Tensor of float32, shape (n_projections, n_features)
        Data projections. A stack of convolutions without bias or non-linearity is linear, so it is one of
        these.
    psi : Tensor of float64, shape (n_projections, 1 + n_moments)
        Weights of the projected features and of the label's moments, on the unit sphere.
    orders : Tensor of int64, shape (n_projections, n_moments)
        Moment orders, at least 1.
    clamp : float or None
        Projected features are clamped to ``[-clamp, clamp]``.
    """

    theta: Tensor
    psi: Tensor
    orders: Tensor
    clamp: float | None = None

    def __len__(self) -> int:
        """Number of projections."""
        return len(self.theta)

    def __getitem__(self, rows: slice) -> Projections:
        """Some of the projections."""
        return Projections(self.theta[rows], self.psi[rows], self.orders[rows], self.clamp)

    def digest(self) -> str:
        """Hexadecimal SHA-256 of all parameters: what has been projected alike may be compared.

        Examples
        --------
        >>> one, same, other = (draw_projections((3,), 2, 1, generator=seed).digest() for seed in (0, 0, 1))
        >>> one == same, one == other
        (True, False)
        """
        state = hashlib.sha256(repr((tuple(self.theta.shape), tuple(self.psi.shape), self.clamp)).encode())
        for tensor in (self.theta, self.psi, self.orders):
            state.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return state.hexdigest()


def conv_layers(height: int, width: int) -> list[_Layer]:
    """Kernels and strides that take an image to one number without padding.

    Parameters
    ----------
    height, width : int
        Size of the image in pixels.

    Returns
    -------
    list of ((int, int), (int, int))
        Kernel and stride of each layer, first layer first: the paper's stacks for 32 and 28 pixels; else
        kernel 5 with stride 2 until the side is at most 5, then one kernel of that side.

    Examples
    --------
    >>> [kernel[0] for kernel, stride in conv_layers(28, 28)]
    [5, 5, 5, 5, 3, 3, 3, 3, 3, 2]
    >>> conv_layers(8, 8)
    [((5, 5), (2, 2)), ((2, 2), (1, 1))]
    """
    if (height, width) == (32, 32):
        return [((k, k), (s, s)) for k, s in ((5, 2), (5, 2), (3, 2), (2, 1))]
    if (height, width) == (28, 28):
        return [((k, k), (1, 1)) for k in (5, 5, 5, 5, 3, 3, 3, 3, 3, 2)]
    sides, layers = [height, width], []
    while max(sides) > 5:
        # A side that is short already waits for the other one: kernel 1 leaves it as it is.
        kernel = tuple(5 if side > 5 else 1 for side in sides)
        stride = tuple(2 if side > 5 else 1 for side in sides)
        sides = [(side - k) // s + 1 for side, k, s in zip(sides, kernel, stride, strict=True)]
        layers.append(((kernel[0], kernel[1]), (stride[0], stride[1])))
    layers.append(((sides[0], sides[1]), (1, 1)))
    return layers


def draw_projections(
    feature_shape: Sequence[int],
    n_projections: int,
    n_moments: int = 5,
    projection: str = "linear",
    generator: torch.Generator | int | None = None,
) -> Projections:
    r"""Draw the random parameters of s-OTDD.

    ``theta`` is uniform on the unit sphere of R^d (or a stack of random depthwise convolutions), ``psi``
    uniform on the unit sphere of R^(1 + M), and order ``k_i`` a Poisson variable of rate ``i`` given that it
    is not 0.

    Parameters
    ----------
    feature_shape : sequence of int
        ``(d,)`` or ``(c, h, w)``.
    n_projections : int
        L.
    n_moments : int, default=5
        M.
    projection : {"linear", "conv"}, default="linear"
        Kind of ``theta``.
    generator : torch.Generator, int or None, default=None
        Source of randomness. The same generator state gives the same projections on every device.

    Returns
    -------
    Projections
        Parameters on the CPU.

    Raises
    ------
    ValueError
        If a number is out of range, or ``"conv"`` is asked for features that are no images.

    References
    ----------
    arXiv 2501.18901, Section 3 (data point projection and moment transform projection).

    Examples
    --------
    >>> drawn = draw_projections((64,), 1000, n_moments=5, generator=0)
    >>> drawn.theta.shape, drawn.orders.min().item()
    (torch.Size([1000, 64]), 1)
    """
    n_projections = check_integer("n_projections", n_projections, minimum=1)
    return next(
        iter_projections(feature_shape, n_projections, n_moments, projection, n_projections, generator)
    )


def iter_projections(
    feature_shape: Sequence[int],
    n_projections: int,
    n_moments: int,
    projection: str,
    chunk: int,
    generator: torch.Generator | int | None,
) -> Iterator[Projections]:
    """Draw as :func:`draw_projections`, ``chunk`` at a time; the draws do not depend on ``chunk``."""
    n_projections = check_integer("n_projections", n_projections, minimum=1)
    n_moments = check_integer("n_moments", n_moments, minimum=0)
    check_choice("projection", projection, ("linear", "conv"))
    if projection == "conv" and len(feature_shape) != 3:
        raise ValueError(
            "projection='conv' needs images of shape (n, c, h, w), "
            f"got features of shape {tuple(feature_shape)}"
        )
    generator = as_torch_generator(generator)
    # Streams of their own for theta, psi and the orders: none shifts when another is drawn in pieces.
    seeds = torch.randint(2**62, (3,), generator=generator, device=generator.device).tolist()
    for_theta, for_psi, for_orders = (torch.Generator().manual_seed(seed) for seed in seeds)
    psi = torch.randn(n_projections, 1 + n_moments, dtype=torch.float64, generator=for_psi)
    psi /= psi.norm(dim=1, keepdim=True)
    orders = _zero_truncated_poisson(n_projections, n_moments, for_orders)
    clamp = CONV_CLAMP if projection == "conv" else None
    for start in range(0, n_projections, chunk):
        rows = slice(start, min(start + chunk, n_projections))
        if projection == "conv":
            theta = _conv_theta(feature_shape, rows.stop - start, for_theta)
        else:
            theta = _normal_rows(rows.stop - start, math.prod(feature_shape), for_theta)
            theta /= theta.norm(dim=1, keepdim=True)
        yield Projections(theta, psi[rows], orders[rows], clamp)


def _normal_rows(rows: int, length: int, generator: torch.Generator) -> Tensor:
    # Row by row: torch fills tensors in blocks, so one draw of all rows would differ from a draw in chunks.
    values = torch.empty(rows, length)
    for row in values:
        row.normal_(generator=generator)
    return values


def _zero_truncated_poisson(rows: int, n_moments: int, generator: torch.Generator) -> Tensor:
    rates = torch.arange(1.0, n_moments + 1).expand(rows, n_moments).contiguous()
    orders = torch.zeros(rows, n_moments, dtype=torch.int64)
    while (zero := orders == 0).any():
        orders[zero] = torch.poisson(rates[zero], generator=generator).long()
    return orders


def _conv_theta(feature_shape: Sequence[int], rows: int, generator: torch.Generator) -> Tensor:
    """Linear maps of random convolution stacks, written out as vectors.

    A stack without padding, bias and non-linearity that ends in one pixel is ``x -> <theta, x>``; ``theta``
    is its adjoint applied to 1, a transposed convolution from that pixel back to the image.
    """
    channels, height, width = feature_shape
    layers = conv_layers(height, width)
    inputs = [channels, *[1] * (len(layers) - 1)]
    sizes = [c * kernel[0] * kernel[1] for c, (kernel, _) in zip(inputs, layers, strict=True)]
    filters = [
        (part / part.norm(dim=1, keepdim=True)).view(rows, c, *kernel)
        for part, c, (kernel, _) in zip(
            torch.split(_normal_rows(rows, sum(sizes), generator), sizes, dim=1), inputs, layers, strict=True
        )
    ]
    sides = [(height, width)]
    for kernel, stride in layers[:-1]:
        h, w = sides[-1]
        sides.append(((h - kernel[0]) // stride[0] + 1, (w - kernel[1]) // stride[1] + 1))
    # Projections are channels here (groups), the batch has one entry.
    image = torch.ones(1, rows, 1, 1)
    for weight, (_, stride), (h, w) in reversed(list(zip(filters, layers, sides, strict=True))):
        image = functional.conv_transpose2d(image, weight, stride=stride, groups=rows)
        # A stride that does not divide leaves out the last rows and columns of the layer's input: weight 0.
        image = functional.pad(image, (0, w - image.shape[-1], 0, h - image.shape[-2]))
    return image.reshape(rows, channels * height * width)
