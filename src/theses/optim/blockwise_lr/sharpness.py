"""Section 4 of the paper: how sharp is each type of block?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from theses.optim.blockwise_lr.blocks import BLOCKS, Placed, place
from theses.validation import as_torch_generator, check_choice, check_integer, check_real

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

__all__ = ["SharpnessReport", "block_sharpness", "suggest_ratios"]

#: The paper's order, from the flattest to the sharpest.
ORDER = BLOCKS[:-1]


@dataclass(frozen=True)
class SharpnessReport:
    r"""Sharpness of the blocks of a model.

    Parameters
    ----------
    per_block_mean : dict of str to float
        Mean diagonal entry :math:`\mathrm{tr}(H_b) / n_b` of each block; with Lanczos its largest
        eigenvalue.
    per_parameter_tensor : dict of str to float
        The same for each parameter; slices of a fused one by themselves, as in ``c_attn.weight[vo]``. Empty
        with Lanczos.
    order : tuple of str
        Blocks from the flattest to the sharpest.
    per_block_error : dict of str to float
        Standard error over batches, with Hutchinson over batches and probes; NaN of a single one.
    per_block_size : dict of str to int
        Number of entries of each block.
    method : str
        Which estimator.

    References
    ----------
    Section 4, "average sharpness" of a block.

    Examples
    --------
    >>> report = SharpnessReport({"embed": 0.1, "norm": 10.0}, {}, ("embed", "norm"))
    >>> report.agreement()
    1.0
    """

    per_block_mean: dict[str, float]
    per_parameter_tensor: dict[str, float]
    order: tuple[str, ...]
    per_block_error: dict[str, float] = field(default_factory=dict)
    per_block_size: dict[str, int] = field(default_factory=dict)
    method: str = "fisher"

    def agreement(self) -> float:
        """Spearman correlation with the paper's order embed, qk, ffn, vo, norm.

        Returns
        -------
        float
            1 for the paper's order, -1 for the reverse, NaN of fewer than two blocks.
        """
        ranks = [ORDER.index(block) for block in self.order if block in ORDER]
        wanted = sorted(ranks)
        n = len(ranks)
        if n < 2:
            return math.nan
        squares = sum((i - wanted.index(rank)) ** 2 for i, rank in enumerate(ranks))
        return 1 - 6 * squares / (n * (n**2 - 1))

    def summary(self) -> str:
        """Lines with each block's sharpness, flattest first.

        Returns
        -------
        str
            Block, sharpness, standard error and number of entries.
        """
        what = "largest eigenvalue" if self.method == "lanczos" else "trace of the Hessian / entries"
        lines = [f"{what} ({self.method}); rank correlation with the paper's order {self.agreement():+.2f}"]
        for block in self.order:
            error = self.per_block_error.get(block, math.nan)
            spread = "" if math.isnan(error) else f" +- {error:.1e}"
            lines.append(
                f"  {block:<6} {self.per_block_mean[block]:.3e}{spread}"
                f"  {self.per_block_size.get(block, 0):>13,} entries"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain mapping.

        Returns
        -------
        dict
            All fields, and ``agreement``.
        """
        return {
            "method": self.method,
            "per_block_mean": dict(self.per_block_mean),
            "per_block_error": dict(self.per_block_error),
            "per_block_size": dict(self.per_block_size),
            "per_parameter_tensor": dict(self.per_parameter_tensor),
            "order": list(self.order),
            "agreement": self.agreement(),
        }

    def to_frame(self) -> pl.DataFrame:
        """Table with a row for each block.

        Returns
        -------
        polars.DataFrame
            Columns ``block``, ``sharpness``, ``error``, ``entries``, flattest first.
        """
        import polars as pl

        return pl.DataFrame(
            [
                {
                    "block": block,
                    "sharpness": self.per_block_mean[block],
                    "error": self.per_block_error.get(block, math.nan),
                    "entries": self.per_block_size.get(block, 0),
                }
                for block in self.order
            ]
        )

    def plot(self) -> alt.Chart:
        """Bars on a logarithmic axis, in the paper's order.

        Returns
        -------
        altair.Chart
            The chart.
        """
        import altair as alt

        chart: alt.Chart = (
            alt.Chart(self.to_frame())
            .mark_point(filled=True, size=80)
            .encode(
                x=alt.X("sharpness:Q", title="sharpness").scale(type="log"),
                y=alt.Y("block:N", sort=list(BLOCKS), title=None),
                tooltip=["block:N", "sharpness:Q", "error:Q", "entries:Q"],
            )
            .properties(width=320)
        )
        return chart


def block_sharpness(
    model: nn.Module,
    loss_fn: Callable[[nn.Module, Any], Any],
    batches: Iterable[Any],
    method: str = "fisher",
    n_probe: int = 8,
    generator: torch.Generator | int | None = None,
    *,
    n_steps: int = 20,
    rules: Mapping[str, str] | None = None,
) -> SharpnessReport:
    r"""Mean curvature of each type of block, in evaluation mode and without weight decay.

    .. math:: S(b) = \mathrm{tr}(H_b) / n_b

    - ``"fisher"``: Gauss-Newton diagonal :math:`B\, \hat g^2`, with :math:`\hat g` the gradient of the mean
      cross-entropy over the :math:`B` positions of a batch against labels *drawn from the model's softmax*.
      With the true labels it would be the empirical Fisher matrix, which is not the Hessian's.
    - ``"hutchinson"``: :math:`v^\top H v` with random signs :math:`v`, by double backward.
    - ``"lanczos"``: largest eigenvalue of each diagonal block :math:`H_b` of the mean loss.

    Parameters
    ----------
    model : torch.nn.Module
        The model; its weights, gradients and training flags stay as they are.
    loss_fn : callable
        Takes model and batch. ``"fisher"`` wants logits of shape (..., n_classes), of the positions that
        count; the others a scalar mean loss. An object with ``loss`` and ``logits``, as models of Hugging
        Face return, or a pair of both, serves all.
    batches : iterable
        Batches for ``loss_fn``.
    method : {"fisher", "hutchinson", "lanczos"}, default="fisher"
        Estimator; the paper's is the first.
    n_probe : int, default=8
        Vectors a batch, for Hutchinson.
    generator : torch.Generator or int, optional
        Draws labels and probes; a generator has to be on the CPU.
    n_steps : int, default=20
        Products with the Hessian for each block, for Lanczos.
    rules : mapping of str to str, optional
        As for :func:`classify`.

    Returns
    -------
    SharpnessReport
        Sharpness by block and by parameter.

    Raises
    ------
    ValueError
        If there is no batch, or ``loss_fn`` returns no finite loss, or not what ``method`` wants.

    Notes
    -----
    One backward pass a batch for Fisher; ``2 n_probe`` for Hutchinson; ``2 n_steps`` a batch and block for
    Lanczos. Second derivatives go through torch's plain attention; models of Hugging Face with kernels of
    their own need ``attn_implementation="eager"``.

    References
    ----------
    Section 4.1, "average sharpness", with the estimator of its appendix for language models.

    Examples
    --------
    >>> layer = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16)
    >>> x = torch.randn(5, 2, 8, generator=torch.Generator().manual_seed(0))
    >>> report = block_sharpness(layer, lambda model, batch: model(batch), [x, x], generator=0)
    >>> sorted(report.per_block_mean)
    ['ffn', 'norm', 'qk', 'vo']
    """
    check_choice("method", method, ("fisher", "hutchinson", "lanczos"))
    n_probe = check_integer("n_probe", n_probe, minimum=1)
    n_steps = check_integer("n_steps", n_steps, minimum=1)
    draws = as_torch_generator(generator)
    placed = place(model, rules)
    with _evaluation(model):
        if method == "lanczos":
            return _lanczos(model, loss_fn, list(batches), placed, n_steps, draws)
        estimates: Iterator[list[torch.Tensor]]
        if method == "fisher":
            estimates = _fisher(model, loss_fn, batches, placed, draws)
        else:
            estimates = _hutchinson(model, loss_fn, batches, placed, n_probe, draws)
        return _report([_sums(placed, diagonal) for diagonal in estimates], placed, method)


def suggest_ratios(report: SharpnessReport, power: float = 0.5, cap: float = 10) -> dict[str, float]:
    r"""Ratios that follow from a measured sharpness; ours, not the paper's.

    .. math:: r_b = \mathrm{clip}\bigl((S_{\mathrm{norm}} / S_b)^{\mathrm{power}}, 1, \mathrm{cap}\bigr)

    Parameters
    ----------
    report : SharpnessReport
        Of a model that is trained at least a little: 2 % of the steps.
    power : float, default=0.5
        Exponent; one half is what a rate of the form of Adam's would take.
    cap : float, default=10
        Largest ratio, at least 1.

    Returns
    -------
    dict of str to float
        For :func:`blockwise_groups`; ``other`` keeps 1.

    Raises
    ------
    ValueError
        If the report has no norm, or a sharpness is not positive.

    References
    ----------
    None in the paper, which sets 10, 8, 6, 4, 1 by hand along the order of its Section 4.

    Examples
    --------
    >>> report = SharpnessReport({"embed": 1e-4, "qk": 1e-2, "norm": 1.0}, {}, ("embed", "qk", "norm"))
    >>> suggest_ratios(report, cap=20)
    {'embed': 20.0, 'qk': 10.0, 'norm': 1.0, 'other': 1.0}
    """
    power = check_real("power", power, minimum=0)
    cap = check_real("cap", cap, minimum=1)
    means = report.per_block_mean
    if "norm" not in means:
        raise ValueError(f"report must have a block 'norm' to compare with, got {', '.join(means)}")
    for block in ORDER:
        if block in means and not (math.isfinite(means[block]) and means[block] > 0):
            raise ValueError(f"report: the sharpness of {block!r} must be positive, got {means[block]}")
    ratios = {
        block: min(max((means["norm"] / means[block]) ** power, 1.0), cap)
        for block in ORDER
        if block in means
    }
    return {**ratios, "other": 1.0}


@contextmanager
def _evaluation(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        # Only this implementation of attention can be differentiated twice.
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        for module in training:
            module.training = True


def _take(output: Any, what: str) -> torch.Tensor:
    """Loss or logits out of what ``loss_fn`` returned."""
    value = output
    if hasattr(output, what):
        value = getattr(output, what)
    elif isinstance(output, Sequence) and len(output) == 2:
        value = output[what == "logits"]
    scalar = isinstance(value, torch.Tensor) and value.ndim == 0
    if not isinstance(value, torch.Tensor) or scalar == (what == "logits"):
        wanted = "logits of shape (..., n_classes)" if what == "logits" else "a scalar loss"
        got = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise ValueError(f"loss_fn must return {wanted} for this method, got {got}")
    if not torch.isfinite(value.detach()).all():
        raise ValueError(f"loss_fn must return finite numbers, got NaN or infinity in its {what}")
    return value


def _gradients(
    value: torch.Tensor, placed: Sequence[Placed], again: bool = False
) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(
        value, [entry.parameter for entry in placed], create_graph=again, materialize_grads=True
    )


def _fisher(
    model: nn.Module,
    loss_fn: Callable[[nn.Module, Any], Any],
    batches: Iterable[Any],
    placed: Sequence[Placed],
    draws: torch.Generator,
) -> Iterator[list[torch.Tensor]]:
    for batch in batches:
        logits = _take(loss_fn(model, batch), "logits")
        logits = logits.reshape(-1, logits.shape[-1]).float()
        probabilities = logits.detach().softmax(-1)
        labels = torch.multinomial(probabilities.cpu(), 1, generator=draws)[:, 0].to(logits.device)
        gradients = _gradients(nn.functional.cross_entropy(logits, labels), placed)
        yield [gradient.detach().float().square_().mul_(len(labels)) for gradient in gradients]


def _hutchinson(
    model: nn.Module,
    loss_fn: Callable[[nn.Module, Any], Any],
    batches: Iterable[Any],
    placed: Sequence[Placed],
    n_probe: int,
    draws: torch.Generator,
) -> Iterator[list[torch.Tensor]]:
    for batch in batches:
        gradients = _gradients(_take(loss_fn(model, batch), "loss"), placed, again=True)
        for _ in range(n_probe):
            probes = [_signs(entry.parameter, draws) for entry in placed]
            products = _products(gradients, placed, probes)
            yield [probe * product for probe, product in zip(probes, products, strict=True)]


def _products(
    gradients: Sequence[torch.Tensor], placed: Sequence[Placed], vectors: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Hessian times a vector: the gradient of the gradient's part along it."""
    return torch.autograd.grad(
        gradients,
        [entry.parameter for entry in placed],
        grad_outputs=vectors,
        retain_graph=True,
        materialize_grads=True,
        allow_unused=True,
    )


def _signs(parameter: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    bits = torch.randint(0, 2, parameter.shape, generator=draws, dtype=torch.int8)
    return (2 * bits - 1).to(device=parameter.device, dtype=parameter.dtype)


def _slices(placed: Placed) -> Iterator[tuple[str, str, slice]]:
    """Label, block and range of each part of a parameter; a plain one is a single part."""
    blocks = list(dict.fromkeys(segment.block for segment in placed.segments))
    for block in blocks:
        parts = [s for s in placed.segments if s.block == block and s.stop > s.start]
        if parts:
            name = placed.name if len(blocks) == 1 else f"{placed.name}[{block}]"
            yield name, block, slice(parts[0].start, parts[-1].stop)


def _part(tensor: torch.Tensor, placed: Placed, where: slice) -> torch.Tensor:
    if tensor.ndim == 0:
        return tensor
    return tensor.narrow(placed.axis, where.start, where.stop - where.start)


def _sums(placed: Sequence[Placed], diagonal: Sequence[torch.Tensor]) -> dict[str, float]:
    """Sum of the diagonal over each part."""
    return {
        name: float(_part(values, entry, where).sum(dtype=torch.float64))
        for entry, values in zip(placed, diagonal, strict=True)
        for name, _, where in _slices(entry)
    }


def per_entry(total: float, entries: int) -> float:
    """Mean over a block: with sums, large blocks would look sharp."""
    return total / entries


def _report(draws: list[dict[str, float]], placed: Sequence[Placed], method: str) -> SharpnessReport:
    if not draws:
        raise ValueError("batches must hold at least one batch, got none")
    blocks, entries = {}, {}
    for entry in placed:
        for name, block, where in _slices(entry):
            blocks[name], entries[name] = block, _part(entry.parameter, entry, where).numel()
    sizes = _by_block(blocks, entries)
    replicates = [
        {block: per_entry(total, sizes[block]) for block, total in _by_block(blocks, draw).items()}
        for draw in draws
    ]
    means = {block: math.fsum(draw[block] for draw in replicates) / len(draws) for block in sizes}
    errors = {block: _standard_error([draw[block] for draw in replicates]) for block in sizes}
    tensors = {name: math.fsum(draw[name] for draw in draws) / len(draws) / entries[name] for name in blocks}
    return SharpnessReport(means, tensors, _ordered(means), errors, sizes, method)


def _by_block(blocks: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    found = set(blocks.values())
    return {
        block: sum(values[name] for name, at in blocks.items() if at == block)
        for block in BLOCKS
        if block in found
    }


def _standard_error(values: Sequence[float]) -> float:
    n = len(values)
    if n < 2:
        return math.nan
    mean = math.fsum(values) / n
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)


def _ordered(means: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(sorted(means, key=lambda block: means[block]))


def _lanczos(
    model: nn.Module,
    loss_fn: Callable[[nn.Module, Any], Any],
    batches: list[Any],
    placed: Sequence[Placed],
    n_steps: int,
    draws: torch.Generator,
) -> SharpnessReport:
    if not batches:
        raise ValueError("batches must hold at least one batch, got none")
    means, sizes = {}, {}
    for block in BLOCKS:
        parts = [(entry, where) for entry in placed for _, at, where in _slices(entry) if at == block]
        if not parts:
            continue
        members = [entry for entry, _ in parts]

        def product(vector: torch.Tensor, parts: Any = parts, members: Any = members) -> torch.Tensor:
            directions, taken = [], 0
            for entry, where in parts:
                direction = torch.zeros_like(entry.parameter)
                part = _part(direction, entry, where)
                part.copy_(vector[taken : taken + part.numel()].view(part.shape))
                taken += part.numel()
                directions.append(direction)
            total = torch.zeros_like(vector)
            for batch in batches:
                gradients = _gradients(_take(loss_fn(model, batch), "loss"), members, again=True)
                products = _products(gradients, members, directions)
                total += torch.cat(
                    [
                        _part(p, entry, where).reshape(-1).to(vector)
                        for p, (entry, where) in zip(products, parts, strict=True)
                    ]
                )
            return total / len(batches)

        sizes[block] = sum(_part(entry.parameter, entry, where).numel() for entry, where in parts)
        start = torch.randn(sizes[block], generator=draws).to(members[0].parameter.device)
        means[block] = _largest_eigenvalue(product, start, n_steps)
    return SharpnessReport(means, {}, _ordered(means), {}, sizes, "lanczos")


def _largest_eigenvalue(
    product: Callable[[torch.Tensor], torch.Tensor], start: torch.Tensor, n_steps: int
) -> float:
    """Largest Ritz value of Lanczos's method with full orthogonalisation."""
    basis = [start / start.norm()]
    diagonal, beside = [], []
    for _ in range(min(n_steps, start.numel())):
        image = product(basis[-1])
        diagonal.append(float(image @ basis[-1]))
        # Twice is enough: once leaves what rounding made of the first pass.
        for _ in range(2):
            space = torch.stack(basis)
            image = image - space.T @ (space @ image)
        length = float(image.norm())
        if length <= 1e-6 * max(map(abs, diagonal)):
            break
        beside.append(length)
        basis.append(image / length)
    tridiagonal = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    for i, length in enumerate(beside[: len(diagonal) - 1]):
        tridiagonal[i, i + 1] = tridiagonal[i + 1, i] = length
    return float(torch.linalg.eigvalsh(tridiagonal)[-1])
