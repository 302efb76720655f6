"""The state that all code of a process shares: no call of ours may change it."""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

# Importing somebody else's library for the first time may change these; that is not the method's doing.
LOOSE = frozenset({"warning filters", "environment"})


def capture() -> dict[str, Any]:
    """The state as it is now."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - it is what must not change
    state: dict[str, Any] = {
        "NumPy's random state": (kind, np.asarray(keys).tolist(), *rest),
        "NumPy's error handling": np.geterr(),
        "Python's random state": random.getstate(),
        "torch's random state": torch.get_rng_state().tolist(),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's default device": str(torch.get_default_device()),
        "torch's number of threads": torch.get_num_threads(),
        "torch's gradient mode": torch.is_grad_enabled(),
        "torch's deterministic mode": torch.are_deterministic_algorithms_enabled(),
        "working directory": Path.cwd(),
        "warning filters": list(warnings.filters),
        "environment": dict(os.environ),
    }
    if "jax" in sys.modules:
        state["jax's x64 mode"] = sys.modules["jax"].config.jax_enable_x64
    return state


def restore(state: dict[str, Any]) -> None:
    """Bring a captured state back."""
    # Not set where nothing changed, since a default device intercepts every later call; first, since it is
    # where the tensors below are made.
    device = state["torch's default device"]
    if str(torch.get_default_device()) != device:
        torch.set_default_device(None if device == "cpu" else device)
    kind, keys, *rest = state["NumPy's random state"]
    np.random.set_state((kind, np.asarray(keys, dtype=np.uint32), *rest))  # noqa: NPY002
    np.seterr(**state["NumPy's error handling"])
    random.setstate(state["Python's random state"])
    torch.set_rng_state(torch.tensor(state["torch's random state"], dtype=torch.uint8))
    torch.set_default_dtype(state["torch's default dtype"])
    if torch.get_num_threads() != state["torch's number of threads"]:
        torch.set_num_threads(state["torch's number of threads"])
    torch.set_grad_enabled(state["torch's gradient mode"])
    torch.use_deterministic_algorithms(state["torch's deterministic mode"])
    os.chdir(state["working directory"])
    warnings.filters[:] = state["warning filters"]  # type: ignore[index]
    with warnings.catch_warnings():
        pass  # leaving it tells the interpreter that the filters are others
    for name in set(os.environ) - set(state["environment"]):
        del os.environ[name]
    os.environ.update(state["environment"])
    if "jax's x64 mode" in state:
        sys.modules["jax"].config.update("jax_enable_x64", state["jax's x64 mode"])


def differences(
    before: dict[str, Any], after: dict[str, Any], ignore: frozenset[str] = frozenset()
) -> list[str]:
    """What has changed, in words; random states are too long to show."""
    changed = []
    for name, value in before.items():
        if name in ignore or after[name] == value:
            continue
        if "random state" in name:
            changed.append(f"{name} changed")
        elif isinstance(value, dict):
            keys = sorted(
                str(key) for key in {*value, *after[name]} if value.get(key) != after[name].get(key)
            )
            changed.append(f"{name} changed: {', '.join(keys)}")
        else:
            changed.append(f"{name} changed from {value} to {after[name]}")
    return changed


@contextmanager
def preserved() -> Iterator[dict[str, Any]]:
    """Give the state, and bring it back at the end."""
    state = capture()
    try:
        yield state
    finally:
        restore(state)
