"""One file that holds all a training run needs to go on as if nothing had happened."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from theses.training.tree import as_bytes, decode, encode, plain, same_tensors, same_trees

__all__ = ["FILE", "Run", "read", "write"]

FILE: Final = "checkpoint.safetensors"
_FORMAT: Final = "theses training checkpoint 1"


class Run:
    """What a checkpoint is taken of: model, optimiser and schedule, as they are when the run begins.

    Parameters
    ----------
    model : torch.nn.Module
        Its parameters, buffers (those that are not persistent too) and extra state are kept.
    optimizer : torch.optim.Optimizer
        Its state and parameter groups are kept, and parameters that do not belong to the model.
    schedule : LRScheduler or None
        Its state is kept.
    settings : mapping of str to object
        What else has to be the same when a run goes on, such as ``steps``; for JSON.

    Raises
    ------
    TypeError
        If a state holds what a checkpoint cannot.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, schedule: Any, settings: Mapping[str, Any]
    ) -> None:
        self.model, self.optimizer, self.schedule = model, optimizer, schedule
        shapes = {name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in self._tensors().items()}
        tensors: dict[str, Tensor] = {}
        groups = encode(optimizer.state_dict()["param_groups"], tensors, "optimizer.param_groups")
        rates = None if schedule is None else encode(schedule.state_dict(), tensors, "schedule")
        # In the order in which differences are to be told.
        self.identity: dict[str, Any] = {
            "model": type(model).__qualname__,
            "optimizer": type(optimizer).__qualname__,
            "schedule": None if schedule is None else type(schedule).__qualname__,
            **settings,
            "model's tensors": shapes,
            "optimizer's param_groups": plain(groups, tensors),
            "schedule's state": plain(rates, tensors),
        }

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything at this moment, encoded: a tree for JSON, and tensors."""
        tensors: dict[str, Tensor] = {}
        values = {
            "tensors": dict(self._tensors()),
            "extra": {name: module.get_extra_state() for name, module in self._with_extra_state()},
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
        }
        return {name: encode(value, tensors, name) for name, value in values.items()}, tensors

    def restore(self, tree: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Bring back what :meth:`state` gave, and see that it did come back.

        Raises
        ------
        ValueError
            If the optimiser or the schedule does not load its own state as it was.
        """
        # Copies, since where a tensor begins in memory decides in which order a kernel sums it, and tensors
        # in a file lie less evenly than torch lays them; and what is compared below must be no view of them.
        copies = {name: tensor.clone() for name, tensor in tensors.items()}
        values = {name: decode(value, copies) for name, value in tree.items()}
        with torch.no_grad():
            for name, tensor in self._tensors().items():
                tensor.copy_(values["tensors"][name])
        for name, module in self._with_extra_state():
            module.set_extra_state(values["extra"][name])
        self.optimizer.load_state_dict(values["optimizer"])
        self._undo_casts(values["optimizer"]["state"])
        if self.schedule is not None:
            self.schedule.load_state_dict(values["schedule"])
        found, held = self.state()
        for name in found:
            ours = {path: tensor for path, tensor in held.items() if path.startswith(f"{name}.")}
            theirs = {path: tensor for path, tensor in tensors.items() if path.startswith(f"{name}.")}
            if not (same_trees(found[name], tree[name]) and same_tensors(ours, theirs)):
                kind = type(getattr(self, name, self.model)).__name__
                raise ValueError(f"{name} cannot be resumed: {kind} does not load its own state as it was")

    def _undo_casts(self, state: Mapping[Any, Any]) -> None:
        # Optimizer.load_state_dict casts state to its parameter's dtype: float32 moments of bfloat16
        # parameters would come back rounded; and it takes text for a sequence.
        params = [param for group in self.optimizer.param_groups for param in group["params"]]
        for index, saved in state.items():
            if isinstance(index, int) and isinstance(saved, dict):
                loaded = self.optimizer.state[params[index]]
                loaded.update(_without_casts(saved, loaded))

    def _tensors(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        known = {id(tensor) for tensor in found.values()}
        for i, group in enumerate(self.optimizer.param_groups):
            for j, param in enumerate(group["params"]):
                if id(param) not in known:
                    found[f"optimizer's parameter {i}.{j}"] = param
        return found

    def _with_extra_state(self) -> Sequence[tuple[str, nn.Module]]:
        return [
            (name, module)
            for name, module in self.model.named_modules()
            if type(module).get_extra_state is not nn.Module.get_extra_state
        ]


def write(folder: Path, run: Run, progress: Mapping[str, Any]) -> None:
    """Write a checkpoint, in place of an older one, whole or not at all.

    Parameters
    ----------
    folder : pathlib.Path
        Made if absent.
    run : Run
        What is trained.
    progress : mapping of str to object
        How far it is: history, generators.
    """
    tree, tensors = run.state()
    tree["progress"] = encode(dict(progress), tensors, "progress")
    text = json.dumps({"identity": run.identity, "tree": tree})
    metadata = {"format": _FORMAT, "content": text, "sha256": _digest(text, tensors)}
    folder.mkdir(parents=True, exist_ok=True)
    # Always the same name, so that what a killed process leaves is overwritten by the next one.
    part = folder / f"{FILE}.part"
    save_file(tensors, part, metadata)
    with part.open("rb") as stream:
        os.fsync(stream.fileno())
    part.replace(folder / FILE)


def read(folder: Path, run: Run) -> dict[str, Any] | None:
    """Bring a run to where its checkpoint was written.

    Parameters
    ----------
    folder : pathlib.Path
        Where :func:`write` wrote.
    run : Run
        Is changed, unless the checkpoint is refused.

    Returns
    -------
    dict or None
        The progress; None if there is no checkpoint.

    Raises
    ------
    ValueError
        If the file is damaged, or of another run.
    """
    path = folder / FILE
    if not path.exists():
        return None
    identity, tree, tensors = _read_file(path)
    difference = _difference(identity, run.identity)
    if difference:
        raise ValueError(
            f"{path} is the checkpoint of another run: {difference}; name another folder, or delete the file "
            "to start anew (the objects have to be built as they were when the run began)"
        )
    progress: dict[str, Any] = decode(tree.pop("progress"), tensors)
    run.restore(tree, {name: tensor for name, tensor in tensors.items() if not name.startswith("progress.")})
    return progress


def _without_casts(saved: Any, loaded: Any) -> Any:
    if isinstance(saved, Tensor) and isinstance(loaded, Tensor):
        return loaded if loaded.dtype == saved.dtype else saved.to(loaded.device)
    if isinstance(saved, str):
        return saved
    if isinstance(saved, dict) and isinstance(loaded, dict):
        return {key: _without_casts(saved[key], loaded[key]) for key in saved.keys() & loaded.keys()}
    if isinstance(saved, (list, tuple)) and type(loaded) is type(saved) and len(loaded) == len(saved):
        return type(saved)(map(_without_casts, saved, loaded))
    return loaded


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Tensor]]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}); delete it to start anew") from None
    if metadata.get("format") != _FORMAT:
        raise ValueError(f"{path} must be a file of the form {_FORMAT!r}, got {metadata.get('format')!r}")
    text = metadata.get("content", "")
    if metadata.get("sha256") != _digest(text, tensors):
        raise ValueError(f"{path} is damaged (its content has another SHA-256); delete it to start anew")
    content = json.loads(text)
    return content["identity"], content["tree"], tensors


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {list(tensors[name].shape)}".encode())
        digest.update(as_bytes(tensors[name]).numpy().data)
    return digest.hexdigest()


def _difference(there: Any, here: Any, path: str = "") -> str:
    """First difference between two identities, in words; empty if there is none."""
    if isinstance(there, dict) and isinstance(here, dict):
        pairs = {key: (there.get(key, "absent"), here.get(key, "absent")) for key in {**there, **here}}
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        pairs = {str(i): pair for i, pair in enumerate(zip(there, here, strict=True))}
    else:
        return "" if there == here else f"{path} is {_short(there)} there and {_short(here)} here"
    for key, (one, other) in pairs.items():
        found = _difference(one, other, f"{path}: {key}" if path else key)
        if found:
            return found
    return ""


def _short(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 60 else text[:57] + "..."
