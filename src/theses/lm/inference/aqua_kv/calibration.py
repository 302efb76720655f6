"""One-shot calibration: ridge regression, layer by layer, on what was read back from codes."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from theses.lm.inference.aqua_kv.predictors import PREDICTORS, AffineMap, AquaPredictors, LayerReport
from theses.lm.inference.aqua_kv.quantizers import HiggsQuantizer, KVQuantizer
from theses.lm.inference.aqua_kv.states import LayerStates, layer_states
from theses.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "calibrate",
    "coding_errors",
    "equivalent_bits",
    "fit_predictors",
]

_LOG = logging.getLogger(__name__)


def calibrate(
    model: PreTrainedModel,
    input_ids: Tensor | Iterable[Tensor],
    quantizer: KVQuantizer,
    *,
    first_layer_quantizer: KVQuantizer | None = None,
    predictor: str = "linear",
    rank: int | None = None,
    reg: float = 1e-3,
    prefix_size: int = 4,
    device: torch.device | str | None = None,
    batch_tokens: int = 4_096,
) -> AquaPredictors:
    """Fit the predictors of all layers, one after another.

    A layer's map is ``W = (X^T X + reg mean(diag(X^T X)) I)^-1 X^T Y`` with an unpenalised intercept, where
    ``X`` holds the keys and values of the layer before *as they are read back* from their codes. Fitted on
    clean inputs, predictors would meet inputs at use that they have never seen, and errors would add up.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Causal language model with rotary embeddings, in evaluation mode.
    input_ids : torch.Tensor of integers, shape (n_texts, length), or iterable of tensors
        Calibration text as token numbers; an iterable gives tensors of one or two axes. At least
        ``2 channels`` tokens behind the prefixes.
    quantizer : KVQuantizer
        Quantizer of layers 1, 2, ...
    first_layer_quantizer : KVQuantizer or None, default=None
        Quantizer of layer 0, which has no predictor; None stands for ``HiggsQuantizer(bits=4)``.
    predictor : {"linear", "mean", "none"}, default="linear"
        ``"mean"`` subtracts only each channel's mean and ``"none"`` nothing: the ablations.
    rank : int or None, default=None
        Rank of the maps (reduced-rank regression); None does not restrict it.
    reg : float, default=1e-3
        Ridge penalty relative to the mean square of the inputs.
    prefix_size : int, default=4
        First tokens of each text, left out of the fit: attention sinks have huge norms, and the cache keeps
        them exact.
    device : torch.device, str or None, default=None
        Where the regressions are solved; None stands for the model's device.
    batch_tokens : int, default=4096
        Tokens that go through a layer, or into a sum, at once.

    Returns
    -------
    AquaPredictors
        On the CPU, in float32.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or there are too few tokens.
    NotImplementedError
        If a layer of the model is of a kind that the method does not know; the message names it.

    Notes
    -----
    With ``T`` tokens and ``d`` channels: one forward pass, O(T d^2 + d^3) a layer for the fit, and memory for
    the hidden states, keys and values of one layer.

    References
    ----------
    arXiv 2501.19392, section 3.2 and algorithm 1.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32,
    ...     num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)).eval()
    >>> ids = torch.randint(64, (2, 64), generator=torch.Generator().manual_seed(0))
    >>> predictors = calibrate(model, ids, HiggsQuantizer(bits=2))
    >>> predictors.n_layers, predictors.width, len(predictors.report)
    (2, 16, 2)
    """
    states = layer_states(model, input_ids, prefix_size=prefix_size, batch_tokens=batch_tokens)
    return fit_predictors(
        states,
        quantizer,
        first_layer_quantizer=first_layer_quantizer,
        predictor=predictor,
        rank=rank,
        reg=reg,
        device=device,
        batch_tokens=batch_tokens,
    )


def fit_predictors(
    states: Iterable[LayerStates],
    quantizer: KVQuantizer,
    *,
    first_layer_quantizer: KVQuantizer | None = None,
    predictor: str = "linear",
    rank: int | None = None,
    reg: float = 1e-3,
    device: torch.device | str | None = None,
    batch_tokens: int = 4_096,
) -> AquaPredictors:
    """Second half of :func:`calibrate`: fit to keys and values that are at hand.

    Parameters
    ----------
    states : iterable of LayerStates
        From :func:`layer_states`; a list of them serves several fits.
    quantizer : KVQuantizer
        Quantizer of layers 1, 2, ...
    first_layer_quantizer : KVQuantizer or None, default=None
        Quantizer of layer 0; None stands for ``HiggsQuantizer(bits=4)``.
    predictor : {"linear", "mean", "none"}, default="linear"
        What is fitted, as for :func:`calibrate`.
    rank : int or None, default=None
        Rank of the maps; None does not restrict it.
    reg : float, default=1e-3
        Ridge penalty relative to the mean square of the inputs.
    device : torch.device, str or None, default=None
        Where the regressions are solved; None stands for the device of the states.
    batch_tokens : int, default=4096
        Tokens that go into a sum at once.

    Returns
    -------
    AquaPredictors
        On the CPU, in float32.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or there are too few tokens.
    NotImplementedError
        If a layer is wider or narrower than the first.

    References
    ----------
    arXiv 2501.19392, section 3.2.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32,
    ...     num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)).eval()
    >>> ids = torch.randint(64, (2, 64), generator=torch.Generator().manual_seed(0))
    >>> states = list(layer_states(model, ids))
    >>> for kind in ("linear", "mean"):
    ...     fitted = fit_predictors(states, HiggsQuantizer(bits=2), predictor=kind)
    ...     print(kind, fitted.n_parameters)
    linear 800
    mean 32
    """
    check_choice("predictor", predictor, PREDICTORS)
    reg = check_real("reg", reg, minimum=0)
    rank = None if rank is None else check_integer("rank", rank, minimum=1)
    batch_tokens = check_integer("batch_tokens", batch_tokens, minimum=1)
    check_quantizer("quantizer", quantizer)
    first = HiggsQuantizer(bits=4) if first_layer_quantizer is None else first_layer_quantizer
    check_quantizer("first_layer_quantizer", first)

    maps: dict[str, list[AffineMap]] = {"keys": [], "values": []}
    report: list[LayerReport] = []
    before: tuple[list[Tensor], list[Tensor]] | None = None
    width = 0
    for state in states:
        if before is None:
            width = _check_tokens(state)
        _check_width(state, width)
        coder = first if before is None else quantizer
        read: dict[str, list[Tensor]] = {}
        scores: dict[str, tuple[float, float]] = {}
        for name, exact in (("keys", state.keys), ("values", state.values)):
            if before is None or predictor == "none":
                predicted: list[Tensor | None] = [None] * len(exact)
            else:
                # Values see the keys of their own layer as read back, and the values of the one before.
                blocks = [before[0]] if name == "keys" else [read["keys"], before[1]]
                fitted = _regression(blocks, exact, predictor, rank, reg, device, batch_tokens)
                maps[name].append(fitted)
                predicted = [fitted(inputs) for inputs in zip(*blocks, strict=True)]
            read[name], scores[name] = _code(exact, predicted, coder)
        before = (read["keys"], read["values"])
        report.append(_row(state.layer, scores))
        _LOG.info("layer %d: relative errors %.4f and %.4f", *report[-1][:3])
    if before is None:
        raise ValueError("states must not be empty")
    return AquaPredictors(
        maps["keys"],
        maps["values"],
        n_layers=len(report),
        width=width,
        predictor=predictor,
        quantizer=quantizer,
        first_layer_quantizer=first,
        report=report,
    ).cpu()


def coding_errors(
    predictors: AquaPredictors,
    states: Iterable[LayerStates],
    quantizer: KVQuantizer | None = None,
    *,
    first_layer_quantizer: KVQuantizer | None = None,
) -> list[LayerReport]:
    """Errors of coding other text, with the predictors as they are.

    Parameters
    ----------
    predictors : AquaPredictors
        From :func:`calibrate`.
    states : iterable of LayerStates
        Keys and values of held-out text.
    quantizer, first_layer_quantizer : KVQuantizer or None, default=None
        None takes those of the predictors.

    Returns
    -------
    list of LayerReport
        One for each layer.

    Raises
    ------
    ValueError
        If the states are of another model.

    References
    ----------
    arXiv 2501.19392, section 3.1 and its figure.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32,
    ...     num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)).eval()
    >>> ids = torch.randint(64, (2, 64), generator=torch.Generator().manual_seed(0))
    >>> states = list(layer_states(model, ids))
    >>> fitted = fit_predictors(states[:], HiggsQuantizer(bits=2))
    >>> coding_errors(fitted, states)[1].mse_keys < 0.2
    True
    """
    coder, first = quantizers_of(predictors, quantizer, first_layer_quantizer)
    report: list[LayerReport] = []
    before: tuple[list[Tensor], list[Tensor]] | None = None
    for state in states:
        _check_width(state, predictors.width)
        keys: list[Tensor | None] = [None] * len(state.keys)
        if before is not None:
            keys = [predictors._predict_keys(state.layer, previous) for previous in before[0]]
        read_keys, score_keys = _code(state.keys, keys, first if before is None else coder)
        values: list[Tensor | None] = [None] * len(state.keys)
        if before is not None:
            values = [
                predictors._predict_values(state.layer, key, previous)
                for key, previous in zip(read_keys, before[1], strict=True)
            ]
        read_values, score_values = _code(state.values, values, first if before is None else coder)
        before = (read_keys, read_values)
        report.append(_row(state.layer, {"keys": score_keys, "values": score_values}))
    if len(report) != predictors.n_layers:
        raise ValueError(f"states must be of {predictors.n_layers} layers, got {len(report)}")
    return report


def equivalent_bits(relative_mse: float) -> float:
    """Bits a value at which an ideal code of a normal source has this error.

    Parameters
    ----------
    relative_mse : float
        Squared error over squared norm, positive.

    Returns
    -------
    float
        ``-log_4`` of it.

    Raises
    ------
    ValueError
        If it is not positive.

    References
    ----------
    arXiv 2501.19392, section 3.1: what the explained variance saves, in bits.

    Examples
    --------
    >>> equivalent_bits(1 / 16)
    2.0
    """
    return -math.log(check_real("relative_mse", relative_mse, minimum=0, include=False), 4)


def _regression(
    blocks: Sequence[Sequence[Tensor]],
    targets: Sequence[Tensor],
    predictor: str,
    rank: int | None,
    reg: float,
    device: torch.device | str | None,
    batch_tokens: int,
) -> AffineMap:
    """Ridge regression with a free intercept, from sums in float64."""
    home = targets[0].device
    where = home if device is None else torch.device(device)
    d_in, d_out = sum(block[0].shape[-1] for block in blocks), targets[0].shape[-1]
    count = 0
    sum_x = torch.zeros(d_in, dtype=torch.float64, device=where)
    sum_y = torch.zeros(d_out, dtype=torch.float64, device=where)
    xx = torch.zeros(d_in, d_in, dtype=torch.float64, device=where)
    xy = torch.zeros(d_in, d_out, dtype=torch.float64, device=where)
    for *inputs, target in zip(*blocks, targets, strict=True):
        rows = zip(*(t.flatten(0, 1).split(batch_tokens) for t in (*inputs, target)), strict=True)
        for *x_parts, y in rows:
            y = y.to(where, torch.float64)
            count += len(y)
            sum_y += y.sum(0)
            if predictor == "linear":
                x = torch.cat([part.to(where, torch.float64) for part in x_parts], 1)
                sum_x += x.sum(0)
                xx.addmm_(x.T, x)
                xy.addmm_(x.T, y)
    mean_y = sum_y / count
    if predictor == "mean":
        return AffineMap([], mean_y.float().to(home))
    # Centring both sides is what a column of ones without a penalty does.
    penalty = reg * xx.diagonal().mean()
    mean_x = sum_x / count
    gram = xx - count * torch.outer(mean_x, mean_x)
    gram.diagonal().add_(penalty + torch.finfo(torch.float64).tiny)
    moments = xy - count * torch.outer(mean_x, mean_y)
    factor, failed = torch.linalg.cholesky_ex(gram)
    weight = (
        torch.linalg.lstsq(gram.cpu(), moments.cpu(), driver="gelsd").solution.to(where)
        if failed
        else (torch.cholesky_solve(moments, factor))
    )
    factors = [weight]
    if rank is not None and rank < min(d_in, d_out):
        # Best of this rank in the regression's own metric: the leading directions of the fitted values.
        leading = torch.linalg.eigh(weight.T @ gram @ weight).eigenvectors[:, -rank:]
        factors = [weight @ leading, leading.T.contiguous()]
        weight = factors[0] @ factors[1]
    bias = mean_y - mean_x @ weight
    return AffineMap([f.float().to(home) for f in factors], bias.float().to(home))


def _code(
    exact: Sequence[Tensor], predicted: Sequence[Tensor | None], quantizer: KVQuantizer
) -> tuple[list[Tensor], tuple[float, float]]:
    """What is read back from the codes of the residuals; relative error and explained variance."""
    read = []
    error = norm = residual = spread = 0.0
    total = torch.stack([x.flatten(0, 1).sum(0, dtype=torch.float64) for x in exact]).sum(0)
    mean = (total / sum(x.shape[0] * x.shape[1] for x in exact)).float()
    for x, guess in zip(exact, predicted, strict=True):
        rest = x if guess is None else x - guess
        back = quantizer.dequantize(quantizer.quantize(rest))
        read.append(back if guess is None else back.add_(guess) if back.is_contiguous() else back + guess)
        error += float((read[-1] - x).square().sum(dtype=torch.float64))
        norm += float(x.square().sum(dtype=torch.float64))
        residual += float(rest.square().sum(dtype=torch.float64))
        spread += float((x - mean).square().sum(dtype=torch.float64))
    no_guess = all(guess is None for guess in predicted)
    r2 = 0.0 if no_guess or not spread else 1 - residual / spread
    return read, (error / norm if norm else 0.0, r2)


def _row(layer: int, scores: dict[str, tuple[float, float]]) -> LayerReport:
    keys, values = scores["keys"], scores["values"]
    return LayerReport(layer, keys[0], values[0], keys[1], values[1])


def _check_tokens(state: LayerStates) -> int:
    tokens = sum(x.shape[0] * x.shape[1] for x in state.keys)
    width = int(state.keys[0].shape[-1])
    # The wider of the two regressions has 2 d inputs.
    if tokens < 2 * width:
        raise ValueError(
            f"input_ids must hold at least {2 * width} tokens behind the prefixes, twice the {width} "
            f"channels, got {tokens}"
        )
    return width


def _check_width(state: LayerStates, width: int) -> None:
    for name, parts in (("keys", state.keys), ("values", state.values)):
        if parts[0].shape[-1] != width:
            raise NotImplementedError(
                f"layer {state.layer} has {parts[0].shape[-1]} channels of {name}, expected {width} in "
                "every layer"
            )


def check_quantizer(name: str, quantizer: Any) -> None:
    """Refuse what does not follow the protocol."""
    if not isinstance(quantizer, KVQuantizer):
        raise TypeError(
            f"{name} must have quantize, dequantize, bits_per_value and per_token, got "
            f"{type(quantizer).__name__}"
        )


def quantizers_of(
    predictors: AquaPredictors, quantizer: KVQuantizer | None, first_layer_quantizer: KVQuantizer | None
) -> tuple[KVQuantizer, KVQuantizer]:
    """Quantizers to use: those given, else those that the predictors were fitted for."""
    coder = predictors.quantizer if quantizer is None else quantizer
    first = predictors.first_layer_quantizer if first_layer_quantizer is None else first_layer_quantizer
    first = HiggsQuantizer(bits=4) if first is None else first
    check_quantizer("quantizer", coder)
    check_quantizer("first_layer_quantizer", first)
    assert coder is not None
    return coder, first
