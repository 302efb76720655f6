"""The training loop."""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from theses.training import checkpoint as checkpoints
from theses.validation import check_integer, check_real

__all__ = ["History", "fit"]

Batch = TypeVar("Batch")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class History:
    """What a training run has seen.

    Parameters
    ----------
    losses : list of float
        Loss of each step, of its batch, before the step.
    evaluations : list of (int, float)
        Number of finished steps and what ``evaluate`` gave then.
    seconds : float, default=0.0
        Time of training and evaluation, over all processes that took part; not compared.

    Examples
    --------
    >>> history = History([1.0, 0.5], [(2, 0.4)])
    >>> history.summary()
    '2 steps, loss 1 to 0.5, last evaluation 0.4'
    >>> history.to_frame().rows()
    [(1, 1.0, None), (2, 0.5, 0.4)]
    """

    losses: list[float]
    evaluations: list[tuple[int, float]]
    seconds: float = field(default=0.0, compare=False)

    def summary(self) -> str:
        """One line: steps, first and last loss, last evaluation."""
        text = f"{len(self.losses)} steps, loss {self.losses[0]:.4g} to {self.losses[-1]:.4g}"
        return text + (f", last evaluation {self.evaluations[-1][1]:.4g}" if self.evaluations else "")

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        evaluations = [list(pair) for pair in self.evaluations]
        return {"losses": list(self.losses), "evaluations": evaluations, "seconds": self.seconds}

    def to_frame(self) -> pl.DataFrame:
        """Table of the steps.

        Returns
        -------
        polars.DataFrame
            One row a step: ``step`` (from 1), ``loss``, and the ``evaluation`` after it or null.
        """
        evaluated = dict(self.evaluations)
        steps = range(1, len(self.losses) + 1)
        return pl.DataFrame(
            {
                "step": list(steps),
                "loss": self.losses,
                "evaluation": [evaluated.get(step) for step in steps],
            },
            schema={"step": pl.Int64, "loss": pl.Float64, "evaluation": pl.Float64},
        )


def fit(
    model: nn.Module,
    optimizer: Optimizer,
    loss: Callable[[Any, Batch], Tensor],
    batches: Callable[[int], Batch],
    *,
    steps: int,
    schedule: LRScheduler | ReduceLROnPlateau | None = None,
    clip_norm: float | None = None,
    seed: int = 0,
    evaluate: Callable[[Any], float] | None = None,
    evaluate_every: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 0,
    progress: Callable[[float, str], None] | None = None,
) -> History:
    """Train a model, so that a run that was killed goes on bit by bit where its checkpoint was.

    One step is: gradients to None, loss, backward, clipping, ``optimizer.step()``, ``schedule.step()``. An
    optimiser whose ``step`` needs a closure, such as LBFGS, gets one that does all but the last two.

    Parameters
    ----------
    model : torch.nn.Module
        Trained in place, in the mode (``train`` or ``eval``) in which its modules come; on the CPU or CUDA.
    optimizer : torch.optim.Optimizer
        Of the model's parameters; it may have others too.
    loss : callable
        ``loss(model, batch)`` gives a tensor with one element, to be minimised.
    batches : callable
        ``batches(step)`` gives the batch of step 0, 1, ...; a pure function, so that a resumed run sees the
        same batches. What it draws from torch's global generators is drawn from forks of them.
    steps : int
        Number of steps in all, those of a checkpoint included.
    schedule : LRScheduler, ReduceLROnPlateau or None, default=None
        Stepped once a step; ReduceLROnPlateau is given the step's loss.
    clip_norm : float or None, default=None
        Greatest norm of the gradient of all of the optimiser's parameters together.
    seed : int, default=0
        Torch's global generators are forked and seeded with it; the caller's stay as they are.
    evaluate : callable or None, default=None
        ``evaluate(model)`` gives a number. The model is in ``eval`` mode then and records no gradients, and
        the generators are forks seeded by ``seed`` and the step: an evaluation does not change the training.
    evaluate_every : int, default=0
        Evaluate after each so many steps, and at the end in any case.
    checkpoint : path-like or None, default=None
        Folder of the checkpoint, resumed from if there is one. It holds parameters, buffers, optimiser,
        schedule, generators and history in one safetensors file; attributes of the model that are none of
        these, and generators other than torch's global ones, are not in it.
    checkpoint_every : int, default=0
        Write it after each so many steps, and at the end in any case; without a folder it has no effect.
    progress : callable or None, default=None
        Takes the finished share and a message, up to a hundred times.

    Returns
    -------
    History
        Losses and evaluations from the first step on, those before a resumption too.

    Raises
    ------
    FloatingPointError
        If the loss, the norm of the gradient (with ``clip_norm``), or a trained parameter (looked at before a
        checkpoint and at the end) is NaN or infinite; it names the step.
    ValueError
        If a checkpoint is damaged or of another model, optimiser, schedule, steps, seed, clipping or
        evaluation, or an argument is not as it must be.
    TypeError
        If the optimiser or schedule holds state that a checkpoint cannot, or an argument is of a wrong type.

    Notes
    -----
    A resumed run equals an uninterrupted one in every bit where torch's kernels are deterministic, as they
    are on a CPU with the same number of threads. A checkpoint costs one copy of parameters and state in
    memory. Nothing is pickled.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(1, 1)
    >>> x = torch.linspace(-1, 1, 20)[:, None]
    >>> history = fit(
    ...     model,
    ...     torch.optim.SGD(model.parameters(), lr=0.5),
    ...     lambda model, batch: (model(batch) - 3 * batch).square().mean(),
    ...     lambda step: x,
    ...     steps=50,
    ... )
    >>> len(history.losses), round(model.weight.item(), 2)
    (50, 3.0)
    """
    _check(model, optimizer, loss, batches, schedule, evaluate, progress)
    steps = check_integer("steps", steps, minimum=1)
    seed = check_integer("seed", seed, minimum=0, maximum=2**63 - 1)
    evaluate_every = check_integer("evaluate_every", evaluate_every, minimum=0)
    checkpoint_every = check_integer("checkpoint_every", checkpoint_every, minimum=0)
    if clip_norm is not None:
        clip_norm = check_real("clip_norm", clip_norm, minimum=0, include=False)
    if evaluate is None and evaluate_every:
        raise ValueError(f"evaluate_every must be 0 where evaluate is None, got {evaluate_every}")
    trained = _trained(model, optimizer)
    devices = _devices(model, trained)
    folder = None if checkpoint is None else Path(checkpoint)
    run = None
    if folder is not None:
        settings = {
            "steps": steps,
            "seed": seed,
            "clip_norm": clip_norm,
            "evaluate_every": None if evaluate is None else evaluate_every,
        }
        run = checkpoints.Run(model, optimizer, schedule, settings)

    losses: list[float] = []
    evaluations: list[tuple[int, float]] = []
    elapsed = 0.0
    with _forked_generators(devices, seed), torch.enable_grad():
        if run is not None and folder is not None and (found := checkpoints.read(folder, run)):
            losses = found["losses"].tolist()
            evaluations = list(found["evaluations"])
            elapsed = found["seconds"]
            _set_generators(devices, found["generators"])
            _LOG.info("%s: goes on after step %d of %d", folder, len(losses), steps)
        start = time.perf_counter() - elapsed
        for step in range(len(losses), steps):
            losses.append(
                _step(model, optimizer, loss, batches(step), trained=trained, clip_norm=clip_norm, step=step)
            )
            if isinstance(schedule, ReduceLROnPlateau):
                schedule.step(losses[-1])
            elif schedule is not None:
                schedule.step()
            done = step + 1
            if evaluate is not None and (_due(done, evaluate_every) or done == steps):
                evaluations.append((done, _evaluate(model, evaluate, devices, seed, done)))
            if run is not None and folder is not None and (_due(done, checkpoint_every) or done == steps):
                _check_parameters(trained, done)
                state = {
                    "losses": torch.tensor(losses, dtype=torch.float64),
                    "evaluations": evaluations,
                    "seconds": time.perf_counter() - start,
                    "generators": _get_generators(devices),
                }
                checkpoints.write(folder, run, state)
            if progress is not None and 100 * done // steps > 100 * step // steps:
                progress(done / steps, f"step {done} of {steps}, loss {losses[-1]:.4g}")
        _check_parameters(trained, steps)
        optimizer.zero_grad()
    return History(losses, evaluations, time.perf_counter() - start)


def _step(
    model: nn.Module,
    optimizer: Optimizer,
    loss: Callable[[Any, Batch], Tensor],
    batch: Batch,
    *,
    trained: list[Tensor],
    clip_norm: float | None,
    step: int,
) -> float:
    values: list[float] = []

    def closure() -> Tensor:
        with torch.enable_grad():
            optimizer.zero_grad()
            value = loss(model, batch)
            values.append(_loss_value(value, step))
            value.backward()  # type: ignore[no-untyped-call]
        if clip_norm is not None:
            norm = float(nn.utils.clip_grad_norm_(trained, clip_norm))
            if not math.isfinite(norm):
                raise FloatingPointError(f"the norm of the gradient is {norm} at step {step}")
        return value.detach()

    if _needs_closure(optimizer):
        optimizer.step(closure)  # type: ignore[arg-type] # torch's own closures return tensors
    else:
        closure()
        optimizer.step()
    return values[0]


def _loss_value(value: Any, step: int) -> float:
    if not isinstance(value, Tensor):
        raise TypeError(f"loss must return a tensor, got {type(value).__name__}")
    if value.numel() != 1:
        raise ValueError(f"loss must return a tensor with one element, got shape {tuple(value.shape)}")
    number = float(value.detach())
    if not math.isfinite(number):
        raise FloatingPointError(f"the loss is {number} at step {step}")
    if not value.requires_grad:
        raise ValueError("loss must return a tensor that depends on the parameters, got one without gradient")
    return number


def _evaluate(
    model: nn.Module, evaluate: Callable[[Any], float], devices: list[torch.device], seed: int, done: int
) -> float:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with _forked_generators(devices, (seed + done) % 2**63), torch.no_grad():
            return float(evaluate(model))
    finally:
        for module, mode in modes.items():
            module.training = mode


def _check_parameters(trained: list[Tensor], done: int) -> None:
    for param in trained:
        if param.requires_grad and not bool(torch.isfinite(param).all()):
            raise FloatingPointError(
                f"a parameter of shape {tuple(param.shape)} is NaN or infinite after step {done - 1}"
            )


def _trained(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """Parameters of the optimiser: the model's in the model's order, which sums the norm, then others."""
    found = {id(param): param for group in optimizer.param_groups for param in group["params"]}
    own = [found.pop(id(param)) for param in model.parameters() if id(param) in found]
    return [*own, *found.values()]


def _due(done: int, every: int) -> bool:
    return every > 0 and done % every == 0


def _needs_closure(optimizer: Optimizer) -> bool:
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _check(
    model: Any, optimizer: Any, loss: Any, batches: Any, schedule: Any, evaluate: Any, progress: Any
) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    for name, value in (("loss", loss), ("batches", batches)):
        if not callable(value):
            raise TypeError(f"{name} must be callable, got {type(value).__name__}")
    for name, value in (("evaluate", evaluate), ("progress", progress)):
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be callable or None, got {type(value).__name__}")
    own = {id(param) for param in model.parameters()}
    if not any(id(param) in own for group in optimizer.param_groups for param in group["params"]):
        raise ValueError("optimizer must have parameters of model, got one that has none of them")
    if schedule is not None:
        if not isinstance(schedule, (LRScheduler, ReduceLROnPlateau)):
            raise TypeError(f"schedule must be a torch LRScheduler or None, got {type(schedule).__name__}")
        if schedule.optimizer is not optimizer:
            raise ValueError("schedule must be of optimizer, got one of another optimizer")


def _devices(model: nn.Module, trained: list[Tensor]) -> list[torch.device]:
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers(), *trained)}
    for device in devices:
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"model must be on the CPU or CUDA, got a tensor on {device}")
    return [torch.device("cpu"), *sorted(devices - {torch.device("cpu")}, key=str)]


def _generators(devices: list[torch.device]) -> list[torch.Generator]:
    return [
        torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[device.index]
        for device in devices
    ]


def _get_generators(devices: list[torch.device]) -> list[Tensor]:
    return [generator.get_state() for generator in _generators(devices)]


def _set_generators(devices: list[torch.device], states: list[Tensor]) -> None:
    for generator, state in zip(_generators(devices), states, strict=True):
        generator.set_state(state)


@contextlib.contextmanager
def _forked_generators(devices: list[torch.device], seed: int) -> Iterator[None]:
    # torch.manual_seed would seed the generators of all devices, those that are not forked too.
    before = _get_generators(devices)
    try:
        for generator in _generators(devices):
            generator.manual_seed(seed)
        yield
    finally:
        _set_generators(devices, before)
