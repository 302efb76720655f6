"""Linear maps that predict a layer's keys and values from what has been read already."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from theses.lm.inference.aqua_kv.quantizers import (
    KVQuantizer,
    quantizer_from_settings,
    quantizer_settings,
)
from theses.validation import check_choice, check_integer

__all__ = ["AquaPredictors", "LayerReport"]

_WEIGHTS = "aqua_kv.safetensors"
_CONFIG = "aqua_kv.json"
PREDICTORS = ("linear", "mean", "none")


class LayerReport(NamedTuple):
    """How well a layer's keys and values are coded.

    Parameters
    ----------
    layer : int
        The layer.
    mse_keys, mse_values : float
        ``sum |x - x^|^2 / sum |x|^2``.
    r2_keys, r2_values : float
        ``1 - sum |x - x~|^2 / sum |x - mean|^2`` of the predictions ``x~``; 0 where nothing is predicted.

    References
    ----------
    arXiv 2501.19392, section 3.1: explained variance of the predictors.

    Examples
    --------
    >>> LayerReport(1, 0.01, 0.02, 0.7, 0.6).mse_keys
    0.01
    """

    layer: int
    mse_keys: float
    mse_values: float
    r2_keys: float
    r2_values: float


class AffineMap(nn.Module):
    """``x -> x W + b``, with ``W`` as the product of two thin matrices where a rank is set."""

    def __init__(self, factors: Sequence[Tensor], bias: Tensor) -> None:
        super().__init__()
        self.factors = nn.ParameterList(nn.Parameter(f, requires_grad=False) for f in factors)
        self.bias = nn.Parameter(bias, requires_grad=False)

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Prediction from blocks of channels, each ``(..., channels)``, in their type."""
        dtype = inputs[0].dtype
        bias = self.bias.to(dtype)
        if not self.factors:
            return bias.expand(*inputs[0].shape[:-1], -1)
        first, *rest = (factor.to(dtype) for factor in self.factors)
        # Blocks are multiplied apart: joining long blocks first would copy them.
        lead = inputs[0].shape[:-1]
        start = 0
        product: Tensor = first.new_zeros(first.shape[1]) if rest else bias
        for block in inputs:
            rows = block.reshape(-1, block.shape[-1])
            product = torch.addmm(product, rows, first[start : start + block.shape[-1]])
            start += block.shape[-1]
        for factor in rest:
            product = torch.addmm(bias, product, factor)
        return product.reshape(*lead, -1)


class AquaPredictors(nn.Module):
    """Predictors of all layers but the first, with the quantizers they were fitted for.

    For layer ``l >= 1``, with hats on what was read back from codes,
    ``k~_l = A_l k^_{l-1} + a_l`` and ``v~_l = B_l [k^_l ; v^_{l-1}] + b_l``: the values are predicted from
    the keys of the same layer, as they were read back. Made by :func:`theses.lm.inference.aqua_kv.calibrate`.

    Parameters
    ----------
    keys, values : sequence of AffineMap
        Maps of layers 1, 2, ...; empty for direct coding.
    n_layers : int
        Layers of the model.
    width : int
        Channels of keys and of values, all heads.
    predictor : {"linear", "mean", "none"}
        What was fitted.
    quantizer, first_layer_quantizer : KVQuantizer or None
        Quantizers of layers 1, 2, ... and of layer 0; None if they are not known.
    report : sequence of LayerReport
        Errors on the calibration text, one for each layer.

    References
    ----------
    Shutova et al.: Cache Me If You Must: Adaptive Key-Value Quantization for Large Language Models, ICML
    2025, arXiv 2501.19392, section 3.

    Examples
    --------
    >>> plain = AquaPredictors([], [], n_layers=30, width=192, predictor="none", quantizer=None,
    ...     first_layer_quantizer=None)
    >>> plain.summary()
    'none predictors of 30 layers, 0 parameters'
    """

    def __init__(
        self,
        keys: Sequence[AffineMap],
        values: Sequence[AffineMap],
        *,
        n_layers: int,
        width: int,
        predictor: str,
        quantizer: KVQuantizer | None,
        first_layer_quantizer: KVQuantizer | None,
        report: Sequence[LayerReport] = (),
    ) -> None:
        super().__init__()
        self.n_layers = check_integer("n_layers", n_layers, minimum=1)
        self.width = check_integer("width", width, minimum=1)
        self.predictor = str(check_choice("predictor", predictor, PREDICTORS))
        wanted = 0 if predictor == "none" else self.n_layers - 1
        if len(keys) != wanted or len(values) != wanted:
            raise ValueError(
                f"keys and values must be {wanted} maps each for {n_layers} layers and predictor "
                f"{predictor!r}, got {len(keys)} and {len(values)}"
            )
        self._n_factors = len(keys[0].factors) if keys else 0
        self.keys = nn.ModuleList(keys)
        self.values = nn.ModuleList(values)
        self.quantizer = quantizer
        self.first_layer_quantizer = first_layer_quantizer
        self.report = tuple(report)

    @property
    def n_parameters(self) -> int:
        """Number of weights and biases."""
        return sum(parameter.numel() for parameter in self.parameters())

    def _predict_keys(self, layer: int, previous_keys: Tensor) -> Tensor | None:
        """Prediction of a layer's keys before rotation; None where there is none."""
        if not 1 <= layer <= len(self.keys):
            return None
        prediction: Tensor = self.keys[layer - 1]([previous_keys])
        return prediction

    def _predict_values(self, layer: int, keys: Tensor, previous_values: Tensor) -> Tensor | None:
        """Prediction of a layer's values; None where there is none."""
        if not 1 <= layer <= len(self.values):
            return None
        prediction: Tensor = self.values[layer - 1]([keys, previous_values])
        return prediction

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write weights (safetensors), and settings, quantizers and report (JSON).

        Parameters
        ----------
        folder : path-like
            Made where it is missing. A quantizer of a class that is not ours is left out.
        """
        root = Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        tensors = {f"predictors.{name}": value.contiguous() for name, value in self.state_dict().items()}
        config: dict[str, Any] = {
            "n_layers": self.n_layers,
            "width": self.width,
            "predictor": self.predictor,
            "n_factors": self._n_factors,
            "report": [list(row) for row in self.report],
        }
        for name in ("quantizer", "first_layer_quantizer"):
            quantizer = getattr(self, name)
            config[name], extra = (None, {}) if quantizer is None else quantizer_settings(quantizer)
            tensors |= {f"{name}.{key}": value.contiguous() for key, value in extra.items()}
        # Written beside and renamed, the settings last: a folder with settings is whole.
        partial = root / f".{_WEIGHTS}.{os.getpid()}.partial"
        try:
            save_file(tensors, partial)
            partial.replace(root / _WEIGHTS)
            partial.write_text(json.dumps(config, indent=1), encoding="utf-8")
            partial.replace(root / _CONFIG)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> AquaPredictors:
        """Predictors from a folder that :meth:`save_pretrained` wrote.

        Parameters
        ----------
        folder : path-like
            The folder.

        Returns
        -------
        AquaPredictors
            With its quantizers; nothing in the files is executed.

        Raises
        ------
        FileNotFoundError
            If a file is missing.
        ValueError
            If the files do not belong together.
        """
        root = Path(folder)
        for name in (_CONFIG, _WEIGHTS):
            if not (root / name).is_file():
                raise FileNotFoundError(f"folder {root} has no {name}")
        try:
            config = json.loads((root / _CONFIG).read_text(encoding="utf-8"))
            tensors = load_file(root / _WEIGHTS)
            quantizers = {
                name: quantizer_from_settings(
                    config[name],
                    {
                        key.removeprefix(f"{name}."): value
                        for key, value in tensors.items()
                        if key.startswith(f"{name}.")
                    },
                )
                for name in ("quantizer", "first_layer_quantizer")
            }
            n_maps = 0 if config["predictor"] == "none" else config["n_layers"] - 1
            maps = {
                kind: [_map_of(tensors, f"predictors.{kind}.{i}", config["n_factors"]) for i in range(n_maps)]
                for kind in ("keys", "values")
            }
            return cls(
                maps["keys"],
                maps["values"],
                n_layers=config["n_layers"],
                width=config["width"],
                predictor=config["predictor"],
                report=[LayerReport(*row) for row in config["report"]],
                **quantizers,
            )
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(
                f"folder {root}: {_CONFIG} and {_WEIGHTS} do not belong together ({error!r})"
            ) from None

    def summary(self) -> str:
        """One line: sizes and median errors.

        Returns
        -------
        str
            For people to read.
        """
        text = f"{self.predictor} predictors of {self.n_layers} layers, {self.n_parameters:,} parameters"
        rows = self.report[1:] or self.report
        if not rows:
            return text
        keys, values = (
            float(torch.tensor([getattr(row, name) for row in rows]).median())
            for name in ("mse_keys", "mse_values")
        )
        return f"{text}; median relative error of keys {keys:.4f}, of values {values:.4f}"


def _map_of(tensors: dict[str, Tensor], prefix: str, n_factors: int) -> AffineMap:
    factors = [tensors[f"{prefix}.factors.{i}"] for i in range(n_factors)]
    return AffineMap(factors, tensors[f"{prefix}.bias"])
