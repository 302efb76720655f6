"""What codes a vector in few bits: HIGGS and uniform quantization, behind one protocol."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from theses.lm.inference.aqua_kv.grids import check_grid, nearest, shipped_grid
from theses.validation import as_torch_generator, check_choice, check_integer

__all__ = ["HiggsQuantizer", "KVQuantizer", "QuantizedTensor", "UniformQuantizer"]

_BITS: Final = (1, 2, 3, 4)
_LARGEST_HALF: Final = 65_504.0


@dataclass(frozen=True)
class QuantizedTensor:
    """Vectors as packed codes and their scales.

    Parameters
    ----------
    codes : torch.Tensor of uint8, shape (..., tokens, n_bytes)
        Codes, packed without gaps.
    scales : torch.Tensor of float16
        Scales, in the quantizer's layout; the axes before ``tokens`` are those of ``codes``.
    shape : tuple of int
        Shape of what was quantized, ``(..., tokens, channels)``.

    References
    ----------
    arXiv 2501.19392, section 3.3: codes and scales are what the cache holds.

    Examples
    --------
    >>> q = HiggsQuantizer(bits=2).quantize(torch.ones(3, 64))
    >>> q.codes.shape, q.shape, q.nbytes
    (torch.Size([3, 16]), (3, 64), 54)
    """

    codes: Tensor
    scales: Tensor
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales."""
        return self.codes.nbytes + self.scales.nbytes


@runtime_checkable
class KVQuantizer(Protocol):
    """What the cache asks of a quantizer.

    ``per_token`` says whether each token is coded by itself, so that pieces may be joined along the tokens.

    References
    ----------
    arXiv 2501.19392, section 3.3: the predictors go with any quantizer.
    """

    per_token: bool

    def quantize(self, x: Any) -> Any:
        """Codes of vectors; rows of the batch stay apart.

        Parameters
        ----------
        x : object
            Vectors, a torch tensor of shape ``(batch, tokens, channels)``.

        Returns
        -------
        QuantizedTensor
            Codes and scales.
        """
        ...

    def dequantize(self, q: Any) -> Any:
        """Vectors from their codes.

        Parameters
        ----------
        q : object
            What :meth:`quantize` gave, or pieces of it joined.

        Returns
        -------
        torch.Tensor
            In float32.
        """
        ...

    def bits_per_value(self, channels: int) -> float:
        """Bits stored for one value, codes and scales.

        Parameters
        ----------
        channels : int
            Channels of a vector.

        Returns
        -------
        float
            The bits.
        """
        ...


class HiggsQuantizer:
    """Random Hadamard transform, one scale a token and group, nearest point of a grid for normal vectors.

    A group ``x`` of channels becomes ``y = H D x`` with random signs ``D`` and the orthonormal Hadamard
    matrix ``H``, whose entries are close to normal whatever the outliers of ``x``; ``s = rms(y)`` is stored
    in 16 bits, and each ``dim`` neighbours of ``y / s`` as the index of ``argmax_c 2 <y, c> - |c|^2``. Back:
    ``x^ = D H (s c)``.

    Parameters
    ----------
    bits : {1, 2, 3, 4}, default=2
        Bits a channel, without scales.
    dim : int, default=2
        Channels coded together, a power of two; ``dim * bits`` may be 16 at most.
    group_size : int or None, default=None
        Channels that share a transform and a scale, a power of two. None takes the largest power of two that
        divides the number of channels, or, if that is under 16, pads them to one power of two.
    grid : torch.Tensor of shape (2 ** (bits * dim), dim) or None, default=None
        Points; None takes a shipped grid.
    generator : torch.Generator, int or None, default=None
        Source of the signs. They are part of the quantizer: what one has coded, another with other signs
        cannot read. None stands for a fixed choice, the same in every process.

    Raises
    ------
    ValueError
        If ``bits`` is none of these, ``dim * bits`` exceeds 16, a size is no power of two, the grid does not
        fit or none is shipped.

    References
    ----------
    Malinovskii et al.: HIGGS: Pushing the Limits of Large Language Model Quantization via the Linearity
    Theorem, arXiv 2411.17525; AQUA-KV, arXiv 2501.19392, section 4, takes it as its backbone.

    Examples
    --------
    >>> x = torch.randn(1, 200, 192, generator=torch.Generator().manual_seed(0))
    >>> quantizer = HiggsQuantizer(bits=2)
    >>> q = quantizer.quantize(x)
    >>> q.codes.shape, q.scales.shape, quantizer.bits_per_value(192)
    (torch.Size([1, 200, 48]), torch.Size([1, 200, 3]), 2.25)
    >>> round(float((quantizer.dequantize(q) - x).square().mean()), 2)
    0.11
    """

    per_token = True

    def __init__(
        self,
        bits: int = 2,
        dim: int = 2,
        group_size: int | None = None,
        grid: Tensor | None = None,
        generator: torch.Generator | int | None = None,
    ) -> None:
        self.bits = _check_bits(bits)
        self.dim = _check_power("dim", dim)
        if self.dim * self.bits > 16:
            raise ValueError(f"dim * bits must be at most 16, got {self.dim} * {self.bits}")
        self.group_size = None if group_size is None else _check_power("group_size", group_size)
        if self.group_size is not None and self.group_size < self.dim:
            raise ValueError(f"group_size must be at least dim, got {group_size} and {dim}")
        n_points = 1 << (self.bits * self.dim)
        if grid is None:
            self.grid = shipped_grid(self.dim, n_points)
        else:
            self.grid = check_grid("grid", grid).clone()
            if self.grid.shape != (n_points, self.dim):
                raise ValueError(
                    f"grid must have shape (2 ** (bits * dim), dim) = ({n_points}, {self.dim}), "
                    f"got {tuple(grid.shape)}"
                )
        self.sign_seed = 0
        if generator is not None:
            source = as_torch_generator(generator)
            self.sign_seed = int(torch.randint(2**31, (), generator=source, device=source.device))
        self._tables: dict[tuple[torch.device, int], tuple[Tensor, Tensor]] = {}

    def __repr__(self) -> str:
        return f"HiggsQuantizer(bits={self.bits}, dim={self.dim}, group_size={self.group_size})"

    def bits_per_value(self, channels: int) -> float:
        """Bits stored for one value, scales and padding included.

        Parameters
        ----------
        channels : int
            Channels of a vector.

        Returns
        -------
        float
            ``bits + 16 / group`` where nothing is padded.
        """
        channels = check_integer("channels", channels, minimum=1)
        group, padded = self._layout(channels)
        code_bytes = _packed_bytes(padded // self.dim, self.bits * self.dim)
        return (8 * code_bytes + 16 * padded // group) / channels

    def quantize(self, x: Tensor) -> QuantizedTensor:
        """Codes and scales of vectors; O(tokens channels (group + 2^(bits dim))).

        Parameters
        ----------
        x : torch.Tensor, shape (tokens, channels) or (batch, tokens, channels)
            Vectors of floats.

        Returns
        -------
        QuantizedTensor
            ``codes`` of shape ``(..., tokens, n_bytes)``, ``scales`` ``(..., tokens, n_groups)``.

        Raises
        ------
        TypeError, ValueError
            If it is no finite tensor of floats with two or three axes.
        """
        x = _check_vectors(x)
        shape = tuple(x.shape)
        group, padded = self._layout(shape[-1])
        transform, _ = self._on(x.device, group)
        x = torch.nn.functional.pad(x.float(), (0, padded - shape[-1]))
        y = x.reshape(*shape[:-1], padded // group, group) @ transform
        scales = y.square().mean(-1).sqrt_().clamp_(max=_LARGEST_HALF).half()
        # Rounded first, so that both ways use the same scale; a group of zeros has scale 0 and any code.
        divisor = scales.float()
        divisor = torch.where(divisor == 0, torch.ones_like(divisor), divisor)
        y = y / divisor[..., None]
        index = nearest(y.reshape(-1, self.dim), self.grid.to(x.device))
        codes = _pack(index.reshape(*shape[:-1], padded // self.dim), self.bits * self.dim)
        return QuantizedTensor(codes, scales, shape)

    def dequantize(self, q: QuantizedTensor) -> Tensor:
        """Vectors from codes and scales; O(tokens channels group).

        Parameters
        ----------
        q : QuantizedTensor
            From :meth:`quantize` of a quantizer with the same settings.

        Returns
        -------
        torch.Tensor of float32, shape ``q.shape``
            The vectors.

        Raises
        ------
        ValueError
            If codes, scales and shape do not belong together.
        """
        group, padded = self._layout(q.shape[-1])
        code_bits = self.bits * self.dim
        lead = q.shape[:-1]
        _check_quantized(q, _packed_bytes(padded // self.dim, code_bits), (*lead, padded // group))
        transform, table = self._on(q.codes.device, group)
        # Where codes do not cross bytes, a byte stands for several points, side by side in the table.
        index = q.codes.int() if code_bits in (1, 2, 4, 8) else _unpack(q.codes, code_bits)
        points = _looked_up(index, table).reshape(*lead, -1)[..., :padded]
        points = points.reshape(*lead, padded // group, group).mul_(q.scales.float()[..., None])
        values = (points @ transform.T).reshape(*lead, padded)
        return values if padded == q.shape[-1] else values[..., : q.shape[-1]].contiguous()

    def settings(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What makes the same quantizer again.

        Returns
        -------
        settings : dict
            Numbers, for JSON.
        tensors : dict of str to torch.Tensor
            The grid.
        """
        numbers = {
            "bits": self.bits,
            "dim": self.dim,
            "group_size": self.group_size,
            "sign_seed": self.sign_seed,
        }
        return numbers, {"grid": self.grid}

    def _layout(self, channels: int) -> tuple[int, int]:
        """Size of a group, and channels with padding."""
        group = self.group_size
        if group is None:
            group = channels & -channels
            if group < 16:
                group = 1 << (channels - 1).bit_length()
        group = max(group, self.dim)
        return group, -(-channels // group) * group

    def _on(self, device: torch.device, group: int) -> tuple[Tensor, Tensor]:
        """Transform ``D H`` of a group, and the grid (or what each byte stands for), on a device."""
        key = (device, group)
        if key not in self._tables:
            # NumPy's bit generator promises the same signs in later versions.
            signs = np.random.PCG64(self.sign_seed).random_raw(group) & np.uint64(1)
            transform = _hadamard(group) * (2.0 * torch.from_numpy(signs.astype(np.float32)) - 1)[:, None]
            table, code_bits = self.grid, self.bits * self.dim
            if code_bits in (1, 2, 4):
                every_byte = _unpack(torch.arange(256, dtype=torch.uint8)[:, None], code_bits)
                table = self.grid[every_byte].reshape(256, -1)
            self._tables[key] = (transform.to(device), table.contiguous().to(device))
        return self._tables[key]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tables": {}}


class UniformQuantizer:
    """Evenly spaced levels between the least and the largest value of a group, as KIVI has it.

    ``code = round((x - min) / step)`` with ``step = (max - min) / (2^bits - 1)``; step and minimum are
    kept in 16 bits.

    Parameters
    ----------
    bits : {1, 2, 3, 4}, default=2
        Bits a channel, without steps and minima.
    group_size : int, default=64
        Values that share a step and a minimum.
    axis : {"token", "channel"}, default="token"
        Whether groups are neighbouring channels of one token, or neighbouring tokens of one channel.

    Raises
    ------
    ValueError
        If an argument is none of these.

    References
    ----------
    Liu et al.: KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV Cache, ICML 2024, arXiv 2402.02750.

    Examples
    --------
    >>> quantizer = UniformQuantizer(bits=4, group_size=32)
    >>> x = torch.linspace(0, 1, 64).reshape(1, 64)
    >>> bool((quantizer.dequantize(quantizer.quantize(x)) - x).abs().max() < 0.02)
    True
    >>> quantizer.bits_per_value(64)
    5.0
    """

    def __init__(self, bits: int = 2, group_size: int = 64, axis: str = "token") -> None:
        self.bits = _check_bits(bits)
        self.group_size = check_integer("group_size", group_size, minimum=1)
        self.axis = str(check_choice("axis", axis, ("token", "channel")))
        self.per_token = self.axis == "token"

    def __repr__(self) -> str:
        return f"UniformQuantizer(bits={self.bits}, group_size={self.group_size}, axis={self.axis!r})"

    def bits_per_value(self, channels: int) -> float:
        """Bits stored for one value, steps and minima included; of whole groups for ``axis="channel"``.

        Parameters
        ----------
        channels : int
            Channels of a vector.

        Returns
        -------
        float
            ``bits + 32 / group_size`` where groups are whole.
        """
        channels = check_integer("channels", channels, minimum=1)
        code_bits = 8 * _packed_bytes(channels, self.bits) / channels
        if self.axis == "channel":
            return code_bits + 32 / self.group_size
        return code_bits + 32 * -(-channels // self.group_size) / channels

    def quantize(self, x: Tensor) -> QuantizedTensor:
        """Codes, steps and minima of vectors; O(size).

        Parameters
        ----------
        x : torch.Tensor, shape (tokens, channels) or (batch, tokens, channels)
            Vectors of floats.

        Returns
        -------
        QuantizedTensor
            ``scales`` ends with an axis of two: step and minimum.

        Raises
        ------
        TypeError, ValueError
            If it is no finite tensor of floats with two or three axes.
        """
        x = _check_vectors(x)
        shape = tuple(x.shape)
        grouped = self._grouped(x.float())
        low, high = grouped.aminmax(dim=-1, keepdim=True)
        low, high = (bound.clamp(-_LARGEST_HALF, _LARGEST_HALF) for bound in (low, high))
        low = low.half().float()
        step = ((high - low) / (2**self.bits - 1)).clamp_(min=0).half().float()
        divisor = torch.where(step == 0, torch.ones_like(step), step)
        index = ((grouped - low) / divisor).round_().clamp_(0, 2**self.bits - 1)
        codes = _pack(self._ungrouped(index, shape).long(), self.bits)
        return QuantizedTensor(codes, torch.cat([step, low], -1).half(), shape)

    def dequantize(self, q: QuantizedTensor) -> Tensor:
        """Vectors from codes, steps and minima; O(size).

        Parameters
        ----------
        q : QuantizedTensor
            From :meth:`quantize` of a quantizer with the same settings.

        Returns
        -------
        torch.Tensor of float32, shape ``q.shape``
            The vectors.

        Raises
        ------
        ValueError
            If codes, scales and shape do not belong together.
        """
        *lead, tokens, channels = q.shape
        groups = -(-(channels if self.axis == "token" else tokens) // self.group_size)
        rows = tokens if self.axis == "token" else channels
        _check_quantized(q, _packed_bytes(channels, self.bits), (*lead, rows, groups, 2))
        index = _unpack(q.codes, self.bits)[..., :channels].float()
        step, low = q.scales.float().unsqueeze(-2).unbind(-1)
        return self._ungrouped(self._grouped(index) * step + low, q.shape)

    def settings(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What makes the same quantizer again.

        Returns
        -------
        settings : dict
            Numbers and strings, for JSON.
        tensors : dict of str to torch.Tensor
            Empty.
        """
        return {"bits": self.bits, "group_size": self.group_size, "axis": self.axis}, {}

    def _grouped(self, x: Tensor) -> Tensor:
        """Axes (..., rows, groups, group); the last group is filled up with its last value."""
        x = x if self.axis == "token" else x.mT
        missing = -x.shape[-1] % self.group_size
        if missing:
            x = torch.cat([x, x[..., -1:].expand(*x.shape[:-1], missing)], -1)
        return x.reshape(*x.shape[:-1], -1, self.group_size)

    def _ungrouped(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        x = x.flatten(-2)
        return x[..., : shape[-1]] if self.axis == "token" else x[..., : shape[-2]].mT.contiguous()


def _looked_up(index: Tensor, table: Tensor) -> Tensor:
    """Rows of a table, shape ``(*index.shape, columns)``."""
    # Rows of 8 or 16 bytes are gathered four times as fast as one number each; nothing is computed with it.
    wide = {2: torch.float64, 4: torch.complex128}.get(table.shape[1])
    if wide is None:
        return torch.nn.functional.embedding(index, table)
    rows = table.view(torch.float64)
    if wide is torch.complex128:
        rows = torch.view_as_complex(rows)[:, None]
    return (
        rows[:, 0]
        .index_select(0, index.reshape(-1))
        .view(-1, 1)
        .view(torch.float32)
        .reshape(*index.shape, -1)
    )


def quantizer_settings(quantizer: KVQuantizer) -> tuple[dict[str, Any] | None, dict[str, Tensor]]:
    """Settings and tensors of a quantizer, for a file; None for one that is not ours."""
    if not isinstance(quantizer, (HiggsQuantizer, UniformQuantizer)):
        return None, {}
    settings, tensors = quantizer.settings()
    return {"class": type(quantizer).__name__, **settings}, tensors


def quantizer_from_settings(
    settings: dict[str, Any] | None, tensors: dict[str, Tensor]
) -> KVQuantizer | None:
    """Quantizer from what :func:`quantizer_settings` gave."""
    if settings is None:
        return None
    settings = dict(settings)
    name = settings.pop("class")
    if name == "UniformQuantizer":
        return UniformQuantizer(**settings)
    if name != "HiggsQuantizer":
        raise ValueError(f"class must be HiggsQuantizer or UniformQuantizer, got {name!r}")
    sign_seed = check_integer("sign_seed", settings.pop("sign_seed"), minimum=0)
    quantizer = HiggsQuantizer(**settings, grid=tensors["grid"])
    quantizer.sign_seed = sign_seed
    return quantizer


def joined(pieces: Sequence[QuantizedTensor]) -> QuantizedTensor:
    """Pieces of a quantizer that codes each token by itself, joined along the tokens."""
    *lead, _, channels = pieces[0].shape
    tokens = sum(piece.shape[-2] for piece in pieces)
    axis = len(lead)
    return QuantizedTensor(
        torch.cat([piece.codes for piece in pieces], axis),
        torch.cat([piece.scales for piece in pieces], axis),
        (*lead, tokens, channels),
    )


def rows_of(q: QuantizedTensor, index: Tensor) -> QuantizedTensor:
    """Rows of the batch, in the order of an index."""
    index = index.to(q.codes.device)
    shape = (len(index), *q.shape[1:])
    return replace(q, codes=q.codes[index], scales=q.scales[index], shape=shape)


@functools.cache
def _hadamard(size: int) -> Tensor:
    """Orthonormal Hadamard matrix, by doubling."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)], 0)
    return matrix / math.sqrt(size)


def _words(code_bits: int) -> tuple[int, int]:
    """Codes and bytes of the least whole number of bytes without a gap."""
    codes = 8 // math.gcd(8, code_bits)
    return codes, codes * code_bits // 8


def _packed_bytes(n_codes: int, code_bits: int) -> int:
    codes, size = _words(code_bits)
    return -(-n_codes // codes) * size


def _pack(index: Tensor, code_bits: int) -> Tensor:
    """Codes along the last axis, side by side in bytes, the first in the lowest bits."""
    codes, size = _words(code_bits)
    index = torch.nn.functional.pad(index, (0, -index.shape[-1] % codes))
    index = index.reshape(*index.shape[:-1], -1, codes)
    word = (index << (code_bits * torch.arange(codes, device=index.device))).sum(-1, keepdim=True)
    return ((word >> (8 * torch.arange(size, device=index.device))) & 255).to(torch.uint8).flatten(-2)


def _unpack(packed: Tensor, code_bits: int) -> Tensor:
    """Codes from their bytes; the last ones may be padding."""
    codes, size = _words(code_bits)
    word = packed.reshape(*packed.shape[:-1], -1, size).long()
    word = (word << (8 * torch.arange(size, device=packed.device))).sum(-1, keepdim=True)
    shifts = code_bits * torch.arange(codes, device=packed.device)
    return ((word >> shifts) & ((1 << code_bits) - 1)).flatten(-2)


def _check_bits(bits: int) -> int:
    return int(check_choice("bits", bits, _BITS))


def _check_power(name: str, value: int) -> int:
    value = check_integer(name, value, minimum=1)
    if value & (value - 1):
        raise ValueError(f"{name} must be a power of two, got {value}")
    return value


def _check_vectors(x: Tensor) -> Tensor:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"x must be a tensor of floats, got {kind}")
    if x.ndim not in (2, 3) or 0 in x.shape:
        raise ValueError(
            f"x must have shape (tokens, channels) or (batch, tokens, channels) without an empty axis, "
            f"got {tuple(x.shape)}"
        )
    if not x.isfinite().all():
        raise ValueError("x must be finite")
    return x.detach()


def _check_quantized(q: QuantizedTensor, n_bytes: int, scales: tuple[int, ...]) -> None:
    if q.codes.dtype != torch.uint8 or tuple(q.codes.shape) != (*q.shape[:-1], n_bytes):
        raise ValueError(
            f"q.codes must be uint8 of shape {(*q.shape[:-1], n_bytes)} for q.shape {q.shape}, "
            f"got {q.codes.dtype} of shape {tuple(q.codes.shape)}"
        )
    if tuple(q.scales.shape) != scales:
        raise ValueError(f"q.scales must have shape {scales}, got {tuple(q.scales.shape)}")
    # The sum is finite exactly if all are: halves cannot overflow it.
    if not math.isfinite(float(q.scales.sum(dtype=torch.float32))):
        raise ValueError("q.scales must be finite")
