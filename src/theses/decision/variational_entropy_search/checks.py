"""Errors of BoTorch's own types that are also the ValueError that the rest of the library raises."""

from __future__ import annotations

import warnings
from typing import Any, cast

import numpy as np
import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.exceptions.warnings import InputDataWarning
from botorch.models.model import Model
from torch import Tensor

from theses.validation import check_integer

__all__ = [
    "NOISE_LIMIT",
    "InvalidInputError",
    "NotSupportedError",
    "check_bounds",
    "check_model",
    "check_tensor",
    "derived_seed",
]

#: Observation noise, as a variance on the standardised scale, above which the noise-free theory is off.
NOISE_LIMIT = 1e-3


class InvalidInputError(InputDataError, ValueError):
    """Input that the method cannot work with."""


class NotSupportedError(UnsupportedError, ValueError):
    """A model or a batch of a kind that the method does not cover."""


def check_tensor(
    name: str, value: Any, *, shape: tuple[int | None, ...] | None = None, words: str = ""
) -> Tensor:
    """Finite floating tensor of a shape; None in the shape is any length but 0."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    checked: Tensor = value
    if not value.is_floating_point():
        raise TypeError(f"{name} must hold floating point numbers, got {value.dtype}")
    if shape is not None:
        fits = value.ndim == len(shape) and all(
            want is None or length == want for length, want in zip(value.shape, shape, strict=True)
        )
        if not fits:
            raise InvalidInputError(f"{name} must have shape {words}, got {tuple(value.shape)}")
    if value.numel() == 0:
        raise InvalidInputError(f"{name} must not be empty, got shape {tuple(value.shape)}")
    if not torch.isfinite(value).all():
        raise InvalidInputError(f"{name} must be finite, got NaN or infinity")
    return checked


def check_bounds(bounds: Any, dimension: int | None = None) -> Tensor:
    """Lower and upper bounds, shape (2, d), in float64."""
    if bounds is None:
        raise InvalidInputError("bounds must be given: a (2, d) tensor of lower and upper bounds")
    words = "(2, d)" if dimension is None else f"(2, {dimension})"
    checked = check_tensor("bounds", bounds, shape=(2, dimension), words=words).detach().double()
    if not (checked[0] < checked[1]).all():
        raise InvalidInputError("bounds must have lower bounds below upper ones in every column")
    return checked


def check_model(model: Any) -> None:
    """A single-output exact GP; warns where its noise is well above that of the noise-free setting."""
    if not isinstance(model, Model) or not isinstance(getattr(model, "train_targets", None), Tensor):
        raise TypeError(f"model must be an exact Gaussian process of BoTorch, got {type(model).__name__}")
    if model.num_outputs != 1:
        raise NotSupportedError(f"model must have one output, got {model.num_outputs}")
    if len(model.batch_shape):
        raise NotSupportedError(f"model must not be batched, got batch shape {tuple(model.batch_shape)}")
    if model.train_targets.dtype != torch.float64:
        raise NotSupportedError(
            f"model must be in float64, got {model.train_targets.dtype}: fit it to data in double precision"
        )
    noise = float(torch.as_tensor(model.likelihood.noise).detach().mean())  # type: ignore[union-attr]
    # A model without an outcome transform is on the scale of the data.
    targets = cast(Tensor, model.train_targets)
    spread = float(targets.var()) if targets.numel() > 1 else 0.0
    noise /= spread if spread > 0 and getattr(model, "outcome_transform", None) is None else 1.0
    if noise > NOISE_LIMIT:
        warnings.warn(
            f"model has observation noise of variance {noise:.2g} on the standardised scale; the method is "
            f"derived for noise-free observations (about 1e-4)",
            InputDataWarning,
            stacklevel=3,
        )


def derived_seed(seed: int | None, *stream: int) -> int:
    """Seed of a stream: the same for the same seed, fresh entropy for None, no global state."""
    if seed is not None:
        seed = check_integer("seed", seed, minimum=0)
    entropy = None if seed is None else [seed, *stream]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)
