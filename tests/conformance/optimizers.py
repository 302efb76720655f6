"""Does an optimiser do all that torch's own do?"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import re
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, ReduceLROnPlateau

from tests.conformance.contract import OptimizerCase
from tests.conformance.state import LOOSE, capture, differences, preserved
from tests.conformance.subject import Subject, tail
from theses.training import fit
from theses.training.tree import decode, encode, same_tensors, same_trees

Params = dict[str, nn.Parameter]
_SHAPES = {"0.weight": (4, 5), "0.bias": (4,), "2.weight": (3, 4), "2.bias": (3,)}
_REFUSALS = (ValueError, TypeError, RuntimeError)


def optimizer_classes(subject: Subject) -> dict[str, type[Optimizer]]:
    """Optimisers among the entries of the card's ``api``."""
    found = {}
    for entry in subject.card.api:
        dotted, _, name = subject.dotted(entry).partition(":")
        # Classes have capital letters; modules that offer functions alone are not loaded.
        if name[:1].isupper():
            value = getattr(importlib.import_module(dotted), name, None)
            if inspect.isclass(value) and issubclass(value, Optimizer):
                found[name] = value
    return found


def check_optimizers(subject: Subject) -> list[str]:
    """Each optimiser of the card has an entry in ``OPTIMIZERS`` and passes all checks."""
    classes = optimizer_classes(subject)
    if not classes:
        return []
    file = subject.relative(subject.test_name)
    cases: Mapping[str, OptimizerCase] = getattr(subject.test_module, "OPTIMIZERS", {})
    complaints = [
        f"OPTIMIZERS of {file} names {name}, which is no optimiser of the card's api"
        for name in cases
        if name not in classes
    ]
    for name, cls in classes.items():
        if name not in cases:
            complaints.append(f"{name} is not tried: add it to OPTIMIZERS of {file}")
            continue
        built = cases[name].build(_given(cases[name], parameters()))
        if not isinstance(built, cls):
            complaints.append(f"OPTIMIZERS of {file} builds a {type(built).__name__} for {name}")
            continue
        complaints += [
            f"{name}, {check}: {text}" for check in CHECKS for text in check_optimizer(cases[name], check)
        ]
    return complaints


def check_optimizer(case: OptimizerCase, check: str) -> list[str]:
    """Complaints of one check; what it raises is one too."""
    with preserved(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return list(CHECKS[check](case))
        except Exception:
            return [f"fails:\n{tail(traceback.format_exc())}"]


def parameters(dtype: torch.dtype = torch.float32) -> Params:
    """Parameters of a small network, the same each time."""
    draw = torch.Generator().manual_seed(7)
    return {
        name: nn.Parameter(torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype))
        for name, shape in _SHAPES.items()
    }


def state_dict(case: OptimizerCase) -> Iterator[str]:
    """It comes back through JSON and safetensors."""
    params = parameters()
    optimizer = _build(case, params)
    _walk(case, optimizer, params, range(3))
    tensors: dict[str, Tensor] = {}
    try:
        text = json.dumps(encode(optimizer.state_dict(), tensors, "state_dict"))
    except TypeError as error:
        yield f"state_dict cannot be stored without pickle: {error}"
        return
    stored = safetensors.torch.load(safetensors.torch.save(tensors))
    other = _build(case, parameters())
    other.load_state_dict(decode(json.loads(text), stored))
    if not _same_state(optimizer, other):
        yield "a state_dict that is loaded is not the one that was saved"


def resume(case: OptimizerCase) -> Iterator[str]:
    """With parameters and state_dict of another, an optimiser goes on as that one does."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        params = parameters(dtype)
        optimizer = _build(case, params)
        _walk(case, optimizer, params, range(3))
        others = _copy(params)
        other = _build(case, others)
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        _walk(case, optimizer, params, range(3, 7))
        _walk(case, other, others, range(3, 7))
        if not _same(params, others):
            gap = _gap(params, others)
            yield f"after load_state_dict the steps are others, by up to {gap:.2g} in {dtype}"


def groups(case: OptimizerCase) -> Iterator[str]:
    """Groups have rates of their own, also one that is added later."""
    first, second = list(_SHAPES)[:2], list(_SHAPES)[2:]

    def entry(params: Params, names: list[str], lr: float) -> dict[str, Any]:
        return {"params": _given(case, {name: params[name] for name in names}), "lr": lr}

    params = parameters()
    start = _copy(params)
    optimizer = case.build([entry(params, first, case.lr), entry(params, second, 0.0)])
    _walk(case, optimizer, params, range(3))
    for name in _SHAPES:
        moved = not torch.equal(params[name], start[name])
        if moved != (name in first):
            rate, outcome = (case.lr, "not moved") if name in first else (0, "moved")
            yield f"{name} of a group with the rate {rate} has {outcome}"
    rates = {tuple(first): case.lr, tuple(second): case.lr / 4}
    together, added, alone = parameters(), parameters(), parameters()
    optimizer = case.build([entry(together, list(names), lr) for names, lr in rates.items()])
    _walk(case, optimizer, together, range(3))
    later = case.build([entry(added, first, rates[tuple(first)])])
    later.add_param_group(entry(added, second, rates[tuple(second)]))
    _walk(case, later, added, range(3))
    if not _same(together, added):
        yield "a group that add_param_group adds does not move as one that was there from the beginning"
    for names, lr in rates.items():
        single = case.build([entry(alone, list(names), lr)])
        _walk(case, single, {name: alone[name] for name in names}, range(3))
    if case.separable and not _same(together, alone):
        yield "a group does not move as it does in an optimiser of its own (separable=False if it shall not)"


def closures(case: OptimizerCase) -> Iterator[str]:
    """The closure runs with gradients, its loss is returned, and without one the step is the same."""
    params, others = parameters(), parameters()
    optimizer, other = _build(case, params), _build(case, others)
    enabled: list[bool] = []
    with torch.no_grad():
        for step in range(3):

            def closure(step: int = step) -> Tensor:
                enabled.append(torch.is_grad_enabled())
                _set_gradients(params, step)
                return torch.tensor(float(step))

            loss: Any = optimizer.step(closure)  # type: ignore[arg-type]
            if loss is None or float(loss) != step:
                yield f"step(closure) must return the closure's loss, {float(step)}, got {loss}"
                break
    if not enabled:
        yield "the closure is not called"
    elif not all(enabled):
        yield "the closure must be called with gradients enabled"
    if not case.needs_closure:
        _set_gradients(others, 0)
        if other.step() is not None:
            yield "step() without a closure must return None"
        _walk(case, other, others, range(1, 3))
        if not _same(params, others):
            yield "with a closure the steps are others than without"


def torchs_own(case: OptimizerCase) -> Iterator[str]:
    """Where it reduces to torch's own optimiser, it makes the same steps."""
    if case.reduces_to is None:
        return
    for dtype in (torch.float64, torch.float32):
        params, others = parameters(dtype), parameters(dtype)
        optimizer = _build(case, params)
        theirs = case.reduces_to(list(others.values()), lr=case.lr)
        _walk(case, optimizer, params, range(8))
        _walk(case, theirs, others, range(8))
        scale = max(float(value.detach().abs().max()) for value in others.values())
        allowed = case.tolerance * torch.finfo(dtype).eps / torch.finfo(torch.float64).eps
        gap = _gap(params, others) / scale
        if gap > allowed or (not case.tolerance and not _same(params, others)):
            name = type(theirs).__name__
            yield f"after 8 steps it is {gap:.2g} off torch's {name} in {dtype}, allowed are {allowed:.2g}"


def foreach(case: OptimizerCase) -> Iterator[str]:
    """All tensors at once or one by one: it is the same."""
    if not case.foreach:
        return
    found = []
    for together in (True, False):
        params = parameters(torch.float64)
        optimizer = case.build(_given(case, params), lr=case.lr, foreach=together)
        _walk(case, optimizer, params, range(5))
        found.append(params)
    gap = _gap(*found)
    if not gap <= 1e-12:
        yield f"foreach=True and foreach=False are {gap:.2g} apart after 5 steps"


def odd_gradients(case: OptimizerCase) -> Iterator[str]:
    """Sparse gradients and complex parameters are refused in words, or handled."""
    for kind, dtype, words in (
        ("sparse", torch.float32, "sparse|dense"),
        ("complex", torch.complex64, "complex|real"),
    ):
        param = nn.Parameter(torch.ones(3, 2, dtype=dtype))

        def gradient(param: nn.Parameter = param, kind: str = kind) -> Tensor:
            value = torch.ones_like(param) * (1j if kind == "complex" else 1)
            param.grad = value.to_sparse() if kind == "sparse" else value
            return torch.tensor(1.0)

        try:
            optimizer = case.build(_given(case, {"0.weight": param}), lr=case.lr)
            _step(case, optimizer, gradient)
        except _REFUSALS as error:
            if kind in case.handles:
                yield f"{kind} gradients are said to be handled, but are refused: {error}"
            elif not re.search(words, str(error), re.IGNORECASE):
                yield f"the refusal of {kind} gradients does not say so: {error}"
            elif not torch.equal(param, torch.ones_like(param)):
                yield f"{kind} gradients are refused after a parameter has moved"
            continue
        if kind not in case.handles:
            yield f"{kind} gradients are not refused"
        elif torch.equal(param, torch.ones_like(param)) or not torch.isfinite(param.abs()).all():
            yield f"with {kind} gradients the parameter becomes {param.detach().flatten()[0]}"
        elif kind == "complex" and bool((param.imag == 0).all()):
            yield "the imaginary part of complex gradients is dropped"


def schedules(case: OptimizerCase) -> Iterator[str]:
    """Every family of schedules drives the rate, and the steps follow it."""
    families: dict[str, Callable[[Optimizer], Any]] = {
        "LambdaLR": lambda optimizer: LambdaLR(optimizer, lambda step: 1 / (1 + step)),
        "CosineAnnealingLR": lambda optimizer: CosineAnnealingLR(optimizer, T_max=6),
        "OneCycleLR": lambda optimizer: OneCycleLR(
            optimizer,
            max_lr=[case.lr, 2 * case.lr],
            total_steps=6,
            cycle_momentum=bool({"betas", "momentum"} & optimizer.defaults.keys()),
        ),
        "ReduceLROnPlateau": lambda optimizer: ReduceLROnPlateau(optimizer, patience=0),
    }
    for family, make in families.items():
        rates = []
        for build in (case.build, torch.optim.AdamW):
            params = parameters()
            halves = [dict(list(params.items())[:2]), dict(list(params.items())[2:])]
            given = [_given(case, half) for half in halves]
            optimizer = build([{"params": given[0], "lr": case.lr}, {"params": given[1], "lr": 2 * case.lr}])
            schedule = make(optimizer)
            found = []
            for step in range(6):
                _walk(case if build is case.build else PLAIN, optimizer, params, range(step, step + 1))
                schedule.step(*([1.0] if family == "ReduceLROnPlateau" else []))
                found.append([float(group["lr"]) for group in optimizer.param_groups])
            rates.append(found)
        if rates[0] != rates[1]:
            yield f"{family} gives the rates {rates[0]}, with torch's AdamW {rates[1]}"
    params = parameters()
    optimizer = _build(case, params)
    schedule = LambdaLR(optimizer, lambda step: float(step < 2))
    for step in range(5):
        before = _copy(params)
        _walk(case, optimizer, params, range(step, step + 1))
        schedule.step()
        if _same(params, before) != (step >= 2):
            still = "moves still" if step >= 2 else "does not move"
            yield f"at step {step} of a schedule that is 0 from step 2 on, it {still}"
            return


def amp(case: OptimizerCase) -> Iterator[str]:
    """GradScaler's steps are the unscaled ones, and one that overflows is left out."""
    if case.needs_closure:
        return  # GradScaler takes none
    params, others = parameters(), parameters()
    optimizer, plain = _build(case, params), _build(case, others)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=100)
    for step in range(4):
        overflow = step == 2
        before, state = _copy(params), copy.deepcopy(optimizer.state_dict())
        _set_gradients(params, step, scale=scaler.get_scale())
        scaler.scale(torch.zeros(1))  # says that there is a loss
        if overflow:
            params["0.weight"].grad[0, 0] = torch.inf  # type: ignore[index]
        scaler.step(optimizer)
        scaler.update()
        if overflow:
            if not (_same(params, before) and _same_encoded(state, optimizer.state_dict())):
                yield "a step whose gradients overflow must be left out under torch.amp.GradScaler"
                return
        else:
            _walk(case, plain, others, range(step, step + 1))
            if not _same(params, others):
                yield f"under torch.amp.GradScaler step {step} is another than without"
                return


def no_gradients(case: OptimizerCase) -> Iterator[str]:
    """A parameter without gradient is left alone, before and after it has had one."""
    params = parameters()
    optimizer = _build(case, params)

    def all_but(name: str) -> Callable[[], Tensor]:
        def closure() -> Tensor:
            _set_gradients(params, 0)
            params[name].grad = None
            return torch.tensor(1.0)

        return closure

    start = _copy(params)
    for _ in range(2):
        _step(case, optimizer, all_but("0.bias"))
    if not torch.equal(params["0.bias"], start["0.bias"]):
        yield "a parameter whose gradient is None moves"
    if params["0.bias"] in optimizer.state and optimizer.state[params["0.bias"]]:
        yield "a parameter whose gradient is None gets a state"
    if any(torch.equal(params[name], start[name]) for name in _SHAPES if name != "0.bias"):
        yield "a gradient that is None holds other parameters up"
    before = _copy(params)
    _step(case, optimizer, all_but("2.weight"))
    if not torch.equal(params["2.weight"], before["2.weight"]):
        yield "a parameter whose gradient is None again goes on moving"
    optimizer.zero_grad()
    before = _copy(params)
    _step(case, optimizer, lambda: torch.tensor(1.0))
    if not _same(params, before):
        yield "a step without any gradient moves parameters"


def zero_steps(case: OptimizerCase) -> Iterator[str]:
    """Being built costs and changes nothing."""
    params, start = parameters(), parameters()
    optimizer = _build(case, params)
    if optimizer.state_dict()["state"]:
        yield "there is state before the first step"
    if not _same(params, start):
        yield "building it changes the parameters"


def deep_copies(case: OptimizerCase) -> Iterator[str]:
    """A deep copy goes on alike, and alone."""
    params = parameters()
    optimizer = _build(case, params)
    _walk(case, optimizer, params, range(2))
    others, other = copy.deepcopy((params, optimizer))
    before, state = _copy(params), copy.deepcopy(optimizer.state_dict())
    _walk(case, other, others, range(2, 5))
    if not (_same(params, before) and _same_encoded(state, optimizer.state_dict())):
        yield "steps of a deep copy change the original"
    _walk(case, optimizer, params, range(2, 5))
    if not _same(params, others):
        yield "a deep copy makes other steps"


def invalid_settings(case: OptimizerCase) -> Iterator[str]:
    """What makes no sense is refused by name."""
    for name, values in case.invalid.items():
        says = case.named.get(name, name)
        for value in values:
            try:
                case.build(_given(case, parameters()), **{name: value})
            except (ValueError, TypeError) as error:
                if not re.search(rf"(?<!\w){re.escape(says)}(?!\w)", str(error)):
                    yield f"the refusal of {name} = {value} does not name {says}: {error}"
            else:
                yield f"{name} = {value} is not refused"


def global_state(case: OptimizerCase) -> Iterator[str]:
    """Neither building nor stepping changes what others share."""
    changes: list[str] = []
    for ignored in (LOOSE, frozenset[str]()):
        with preserved() as base:
            params = parameters()
            optimizer = _build(case, params)
            _walk(case, optimizer, params, range(3))
            changes += differences(base, capture(), ignored)
    yield from dict.fromkeys(changes)


def quadratic(case: OptimizerCase) -> Iterator[str]:
    """A convex quadratic goes down."""
    param = nn.Parameter(torch.zeros(6))
    curvature = torch.logspace(-1, 0.5, 6)

    def value() -> Tensor:
        return (curvature * (param - 1).square()).sum() / 2

    def closure() -> Tensor:
        optimizer.zero_grad()
        with torch.enable_grad():
            loss = value()
            loss.backward()
        return loss.detach()

    optimizer = case.build(_given(case, {"0.bias": param}), lr=case.lr)
    start = float(value().detach())
    for _ in range(200):
        _step(case, optimizer, closure)
    end = float(value().detach())
    if not end < start / 2:
        yield f"in 200 steps a convex quadratic went from {start:.3g} to {end:.3g} at lr = {case.lr}"


def network(case: OptimizerCase) -> Iterator[str]:
    """theses.training.fit trains a small network with it, and resumes."""
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(64, 4, generator=draw)
    y = torch.sin(x @ torch.randn(4, 2, generator=draw))

    def run(folder: str | None, stop: int | None = None) -> tuple[nn.Module, list[float]]:
        def batches(step: int) -> int:
            if step == stop:
                raise InterruptedError
            return step * 16 % 64

        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
        optimizer = case.build(_given(case, dict(model.named_parameters())), lr=case.lr)
        history = fit(
            model,
            optimizer,
            lambda model, at: (model(x[at : at + 16]) - y[at : at + 16]).square().mean(),
            batches,
            steps=80,
            schedule=CosineAnnealingLR(optimizer, T_max=80),
            checkpoint=folder,
            checkpoint_every=30,
        )
        return model, history.losses

    model, losses = run(None)
    start, end = sum(losses[:4]), sum(losses[-4:])
    if not end < 0.7 * start:
        yield f"in 80 steps the loss of a small network went from {start / 4:.3g} to {end / 4:.3g}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(folder, stop=50)
        except InterruptedError:
            again, resumed = run(folder)
            if resumed != losses or not _same(dict(again.named_parameters()), dict(model.named_parameters())):
                yield "theses.training.fit does not resume with it bit by bit"


CHECKS: dict[str, Callable[[OptimizerCase], Iterator[str]]] = {
    "state_dict": state_dict,
    "resume": resume,
    "groups": groups,
    "closures": closures,
    "torch's own": torchs_own,
    "foreach": foreach,
    "odd gradients": odd_gradients,
    "schedules": schedules,
    "amp": amp,
    "no gradients": no_gradients,
    "zero steps": zero_steps,
    "deep copies": deep_copies,
    "invalid settings": invalid_settings,
    "global state": global_state,
    "quadratic": quadratic,
    "network": network,
}
PLAIN = OptimizerCase(torch.optim.AdamW)


def _given(case: OptimizerCase, params: Mapping[str, nn.Parameter]) -> list[Any]:
    return list(params.items()) if case.needs_named else list(params.values())


def _build(case: OptimizerCase, params: Params) -> Optimizer:
    return case.build(_given(case, params), lr=case.lr)


def _set_gradients(params: Params, step: int, scale: float = 1.0) -> None:
    for i, (name, param) in enumerate(params.items()):
        # Named, so that a parameter gets the same gradient whatever comes along.
        place = list(_SHAPES).index(name) if name in _SHAPES else i
        draw = torch.Generator().manual_seed(1000 * step + place)
        gradient = torch.randn(param.shape, generator=draw, dtype=torch.float64).to(param.dtype)
        param.grad = gradient * scale


def _walk(case: OptimizerCase, optimizer: Optimizer, params: Params, steps: range) -> None:
    for step in steps:

        def closure(step: int = step) -> Tensor:
            _set_gradients(params, step)
            return torch.tensor(1.0)

        _step(case, optimizer, closure)


def _step(case: OptimizerCase, optimizer: Optimizer, closure: Callable[[], Tensor]) -> None:
    if case.needs_closure:
        optimizer.step(closure)  # type: ignore[arg-type]
    else:
        closure()
        optimizer.step()


def _copy(params: Params) -> Params:
    return {name: nn.Parameter(param.detach().clone()) for name, param in params.items()}


def _same(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def _gap(a: Params, b: Params) -> float:
    return max(float((a[name] - b[name]).detach().abs().max()) for name in a)


def _same_state(a: Optimizer, b: Optimizer) -> bool:
    return _same_encoded(a.state_dict(), b.state_dict())


def _same_encoded(a: Any, b: Any) -> bool:
    ours: dict[str, Tensor] = {}
    theirs: dict[str, Tensor] = {}
    return same_trees(encode(a, ours, ""), encode(b, theirs, "")) and same_tensors(ours, theirs)
