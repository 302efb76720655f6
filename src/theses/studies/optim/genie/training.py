"""Training with each optimiser on the same splits and batches, and the choice of its rate."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from theses.evidence import Context, interleave
from theses.numerics.gradient_statistics import gini
from theses.optim.genie import GENIE, osgr
from theses.studies.optim.genie.sizes import ARMS, VARIANTS, Size
from theses.studies.optim.genie.tasks import (
    Task,
    accuracy,
    batch_of,
    digits_network,
    make_task,
    mobilenet,
    seeded,
)
from theses.training import fit

__all__ = ["SAM", "learn", "measure_rate", "times", "train", "tune", "tune_rate"]

_BATCH: Final = 32
_MOST_TRIALS: Final = 11  # of a grid that is widened


class SAM(Optimizer):
    """Sharpness-aware minimisation: SGD with momentum, by the gradient a step of length rho uphill."""

    def __init__(self, params: Any, lr: float = 0.1, rho: float = 0.05, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "rho": rho, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        with torch.enable_grad():
            loss = closure()
        members = [
            (param, group)
            for group in self.param_groups
            for param in group["params"]
            if param.grad is not None
        ]
        norms = torch._foreach_norm([param.grad for param, _ in members])
        norm = torch.linalg.vector_norm(torch.stack(list(norms))) + 1e-12
        before = [param.clone() for param, _ in members]
        for param, group in members:
            param.add_(param.grad * (group["rho"] / norm))
        with torch.enable_grad():
            closure()
        for (param, group), old in zip(members, before, strict=True):
            param.copy_(old)
            velocity = self.state[param].setdefault("momentum_buffer", torch.zeros_like(param))
            velocity.mul_(group["momentum"]).add_(param.grad)
            param.sub_(velocity, alpha=group["lr"])
        return loss


def build(arm: str, params: Any, lr: float, seed: int) -> Optimizer:
    """Optimiser of an arm."""
    makers: dict[str, Callable[..., Optimizer]] = {
        "SGD": partial(torch.optim.SGD, momentum=0.9),
        "Adam": torch.optim.Adam,
        "AdamW": torch.optim.AdamW,
        "SAM": SAM,
        "GENIE": partial(GENIE, generator=seed),
        "no mask": partial(GENIE, generator=seed, drop=0.0),
        "no draws": partial(GENIE, drop=0.0, noise=False),
        "as printed": partial(GENIE, generator=seed, variant="paper"),
    }
    return makers[arm](params, lr=lr)


def _cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def train(ctx: Context, size: Size, task: Task, arm: str, lr: float, *, watch: bool = True) -> dict[str, Any]:
    """One run: the step with the best hold-out accuracy, its accuracy on unseen domains, and its path.

    Model, batches and looks are the same for all optimisers of a seed. A run that diverges ends there, and is
    judged by the looks before.
    """
    model = task.make()
    optimizer = build(arm, model.parameters(), lr, ctx.integer(f"{task.name}/draws"))
    if task.start is not None:
        # After the optimiser is built, as users do: one that keeps weights of its own would undo it.
        model.load_state_dict(task.start)
    rows = _epochs(task, ctx.rng(f"{task.name}/batches"))
    probes = _probes(ctx, size, task)
    seen: list[dict[str, float]] = []
    best: dict[str, Any] = {"validation": -1.0, "loss": math.inf, "state": None, "step": 0}
    ratios: list[list[float]] = []
    path = _path(optimizer) if watch else None

    def look(model: nn.Module) -> float:
        right, loss = accuracy(model, task.domains, task.split.validation)
        step = min((len(seen) + 1) * task.every, task.steps)
        seen.append({"step": step, "validation": right, "loss": loss})
        if (right, -loss) > (best["validation"], -best["loss"]):
            state = {name: value.detach().clone() for name, value in model.state_dict().items()}
            best.update(validation=right, loss=loss, state=state, step=step)
        if watch:
            factors = None if arm in ("SGD", "SAM") else optimizer
            ratios.append([step, osgr(model, _cross_entropy, probes, preconditioner=factors).osgr])
        return right

    diverged = False
    try:
        fit(
            model,
            optimizer,
            _cross_entropy,
            lambda step: batch_of(task.domains, rows[step]),
            steps=task.steps,
            evaluate=look,
            evaluate_every=task.every,
        )
    except FloatingPointError:
        diverged = True
    if best["state"] is not None:
        model.load_state_dict(best["state"])
    else:
        model = task.make()
    result = {
        "validation": best["validation"],
        "loss": best["loss"],
        "step": best["step"],
        "diverged": diverged,
    }
    if watch:
        model.eval()
        result["ood"] = accuracy(model, task.domains, task.split.test)[0]
        result["gini"] = gini(np.concatenate([moved.flatten().numpy() for moved in path or []]))
        result["osgr"] = ratios
    return result


def _epochs(task: Task, rng: np.random.Generator) -> list[Any]:
    """Rows of each step: the training images in a new order in each pass."""
    batch = min(_BATCH, len(task.split.train))
    order: list[Any] = []
    while len(order) < task.steps:
        shuffled = rng.permutation(task.split.train)
        order += [shuffled[start : start + batch] for start in range(0, len(shuffled) - batch + 1, batch)]
    return order[: task.steps]


def _probes(ctx: Context, size: Size, task: Task) -> list[tuple[Tensor, Tensor]]:
    """Batches of the training domains' hold-out, from which ratios are measured."""
    rng = ctx.rng(f"{task.name}/probes")
    pool = task.split.validation
    # Never the whole pool, of which each draw would be the same.
    batch = max(min(_BATCH, len(pool) // 2), 1)
    return [batch_of(task.domains, rng.permutation(pool)[:batch]) for _ in range(size.n_osgr)]


def _path(optimizer: Optimizer) -> list[Tensor]:
    """Sums of the absolute changes of each entry, kept up to date by hooks around the step."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    moved = [torch.zeros_like(param, dtype=torch.float64, requires_grad=False) for param in params]
    before: list[Tensor] = []

    def remember(*_: Any) -> None:
        before[:] = [param.detach().clone() for param in params]

    def add(*_: Any) -> None:
        for total, param, old in zip(moved, params, before, strict=True):
            total.add_((param.detach() - old).abs_())

    optimizer.register_step_pre_hook(remember)
    optimizer.register_step_post_hook(add)
    return moved


def learn(ctx: Context, size: Size, name: str, rates: Mapping[str, float]) -> dict[str, Any]:
    """All optimisers on one data set; GENIE's variants too where networks are small."""
    task = make_task(ctx, size, name)
    arms = [arm for arm in (*ARMS, *VARIANTS) if arm in rates]
    results = {}
    for nth, arm in enumerate(arms):
        ctx.progress(nth / len(arms), f"{name}: {arm}")
        results[arm] = train(ctx, size, task, arm, rates[arm])
    held_out = sorted({task.domains.names[i] for i in np.unique(task.domains.domain[task.split.test])})
    return {"held_out": ", ".join(held_out), "arms": results}


def tune(ctx: Context, size: Size, name: str, arms: tuple[str, ...]) -> dict[str, Any]:
    """Rate of each optimiser with the best hold-out of the *training* domains; an edge widens the grid."""
    if all(len(size.grids[arm]) == 1 for arm in arms):
        return {"best": {arm: size.grids[arm][0] for arm in arms}, "trials": []}
    task = make_task(ctx, size, name)
    # Hardly better than always the most common class: nothing was learnt.
    hopeless = (
        np.bincount(task.domains.labels[task.split.validation]).max() / len(task.split.validation) + 0.1
    )
    best, rows = {}, []
    for nth, arm in enumerate(arms):
        ctx.progress(nth / len(arms), f"tuning on {name}: {arm}")

        def score(rate: float, arm: str = arm) -> tuple[float, float]:
            found = train(ctx, size, task, arm, rate, watch=False)
            return found["validation"], -found["loss"]

        best[arm], trials = _search(size.grids[arm], score, hopeless)
        rows += [
            {
                "data": name,
                "optimiser": arm,
                "rate": rate,
                "validation": value,
                "loss": -minus,
                "winner": rate == best[arm],
            }
            for rate, (value, minus) in trials
        ]
    return {"best": best, "trials": rows}


def _search(
    grid: tuple[float, ...], score: Callable[[float], tuple[float, float]], hopeless: float = -math.inf
) -> tuple[float, list[tuple[float, tuple[float, float]]]]:
    """Best rate and all trials; the grid widens at a winner on its edge, and downwards where none is good."""
    trials = {rate: score(rate) for rate in grid}
    while True:
        ordered = sorted(trials)
        winner = max(ordered, key=lambda rate: trials[rate])
        edge = ordered[0] if trials[winner][0] <= hopeless else winner
        if edge not in (ordered[0], ordered[-1]) or len(trials) >= _MOST_TRIALS:
            return winner, sorted(trials.items())
        inner = ordered[1] if edge == ordered[0] else ordered[-2]
        further = float(f"{edge * edge / inner:.2g}")
        trials[further] = score(further)


# Rate ----------------------------------------------------------------------------------------------------


def measure_rate(ctx: Context, horizon: int, constant: float) -> float:
    """Mean over 20 steps of the squared norm of the full gradient, in a run of so many steps."""
    from sklearn.datasets import load_digits

    data = load_digits()
    x = torch.from_numpy((data.data / 16).astype(np.float32))
    y = torch.from_numpy(data.target)
    rows = torch.from_numpy(ctx.rng(f"rate/{horizon}").integers(len(x), size=(horizon, 16)))
    model = seeded(
        lambda: nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)), ctx.integer("rate/weights")
    )
    optimizer = GENIE(
        model.parameters(), constant / math.sqrt(horizon), generator=ctx.integer(f"rate/{horizon}/draws")
    )

    def squared_norm(model: nn.Module) -> float:
        with torch.enable_grad():
            gradients = torch.autograd.grad(
                nn.functional.cross_entropy(model(x), y), list(model.parameters())
            )
        return float(sum(gradient.square().sum() for gradient in gradients))

    history = fit(
        model,
        optimizer,
        _cross_entropy,
        lambda step: (x[rows[step]], y[rows[step]]),
        steps=horizon,
        evaluate=squared_norm,
        evaluate_every=max(horizon // 20, 1),
    )
    return float(np.mean([value for _, value in history.evaluations]))


def tune_rate(ctx: Context, size: Size) -> dict[str, Any]:
    """Constant c of the rate c / sqrt(T) with the smallest mean squared gradient at one horizon."""
    grid = tuple(rate * math.sqrt(size.tuned_at) for rate in size.grids["GENIE"])
    if len(grid) == 1:
        return {"best": grid[0], "trials": []}

    def score(constant: float) -> tuple[float, float]:
        try:
            return (-measure_rate(ctx, size.tuned_at, constant), 0.0)
        except FloatingPointError:
            return (-math.inf, 0.0)

    best, trials = _search(grid, score)
    rows = [
        {"constant": constant, "grad2": -value, "winner": constant == best} for constant, (value, _) in trials
    ]
    return {"best": best, "trials": rows}


# Time ----------------------------------------------------------------------------------------------------


def times(ctx: Context, size: Size) -> list[dict[str, Any]]:
    """Seconds of forward pass, backward pass and step, optimisers in turn."""
    generator = ctx.torch_generator("timing")
    rows = []
    images = torch.rand(size.batch_timed, 3, size.pixels, size.pixels, generator=generator)
    digits = torch.rand(_BATCH, 1, 8, 8, generator=generator)
    arms = ("Adam", "GENIE", "SAM")
    cases: tuple[tuple[str, Callable[[], nn.Module], Tensor, int], ...] = (
        ("MobileNetV2", lambda: copy.deepcopy(mobilenet()).train(), images, 1),
        ("small network", lambda: digits_network(1, 10, 0), digits, size.steps_small),
    )
    for network, make, x, steps in cases:
        y = torch.arange(len(x)) % 10
        runs = []
        for arm in arms:
            model = make()
            runs.append(partial(_steps, model, build(arm, model.parameters(), 1e-4, 0), x, y, steps))
        for arm, seconds in zip(arms, interleave(runs, size.rounds, size.warmup), strict=True):
            rows += [
                {"network": network, "optimiser": arm, "round": nth, "seconds": value / steps}
                for nth, value in enumerate(seconds)
            ]
    return rows


def _steps(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor, steps: int) -> None:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    with torch.random.fork_rng(devices=[]):  # dropout
        for _ in range(steps):
            if isinstance(optimizer, SAM):
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
