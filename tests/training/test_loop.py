from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LinearLR, ReduceLROnPlateau

from tests.conformance.state import capture, differences
from tests.training.setting import SETTINGS, STEPS, Setting, loss
from theses.training import History, fit


def by_hand(setting: Setting, clip_norm: float | None) -> tuple[nn.Module, list[float]]:
    """The loop as everybody writes it."""
    model, optimizer, schedule = setting.build()
    losses = []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for step in range(STEPS):
            optimizer.zero_grad()
            value = loss(model, setting.batch(step))
            value.backward()
            if clip_norm:
                nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
            optimizer.step()
            if isinstance(schedule, ReduceLROnPlateau):
                schedule.step(value.item())
            elif schedule:
                schedule.step()
            losses.append(value.item())
    return model, losses


def same(a: nn.Module, b: nn.Module) -> bool:
    ours, theirs = dict(a.state_dict()), dict(b.state_dict())
    for state in (ours, theirs):
        state.pop("_extra_state", None)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def line(size: int = 1) -> nn.Linear:
    """A linear map with weights of one."""
    model = nn.Linear(size, 1, bias=False)
    nn.init.ones_(model.weight)
    return model


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_it_is_the_loop_that_one_writes_by_hand(setting: Setting, clip_norm: float | None) -> None:
    model, _, history = setting.run(clip_norm=clip_norm)
    wanted, losses = by_hand(setting, clip_norm)
    assert same(model, wanted)
    assert history.losses == losses


def test_the_gradient_is_clipped_over_all_parameters_together() -> None:
    def gradient_norm(clip_norm: float | None) -> float:
        model = nn.Linear(3, 2)
        before = [p.detach().clone() for p in model.parameters()]
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        x = torch.ones(1, 3)
        fit(model, optimizer, lambda m, b: 5 * m(b).sum(), lambda step: x, steps=1, clip_norm=clip_norm)
        moved = [p.detach() - q for p, q in zip(model.parameters(), before, strict=True)]
        return math.sqrt(sum(float(m.square().sum()) for m in moved))

    # Six entries of the weight and two of the bias have the derivative 5.
    assert gradient_norm(None) == pytest.approx(5 * math.sqrt(8))
    assert gradient_norm(2.0) == pytest.approx(2.0)
    assert gradient_norm(100.0) == pytest.approx(5 * math.sqrt(8))


def test_an_optimizer_that_needs_a_closure_gets_one() -> None:
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    y = x @ torch.tensor([[1.0], [2.0], [-1.0], [0.5]])

    def squares(model: nn.Module, batch: Any) -> Tensor:
        return (model(batch[0]) - batch[1]).square().mean()

    def start() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = line(4)
        return model, torch.optim.LBFGS(model.parameters(), max_iter=3, line_search_fn="strong_wolfe")

    model, optimizer = start()
    history = fit(model, optimizer, squares, lambda step: (x, y), steps=8)
    wanted, theirs = start()

    def closure() -> Tensor:
        theirs.zero_grad()
        value = squares(wanted, (x, y))
        value.backward()
        return value.detach()

    losses = [float(theirs.step(closure)) for _ in range(8)]  # type: ignore[arg-type]
    assert history.losses == losses
    assert same(model, wanted)
    assert losses[-1] < 1e-10


def test_evaluation_changes_nothing_and_comes_when_it_should() -> None:
    def noisy(model: nn.Module) -> float:
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
        seen.append(float(torch.rand(1)))
        return seen[-1]

    seen: list[float] = []
    setting = SETTINGS["AdamW"]
    quiet, _, without = setting.run(evaluate=None, evaluate_every=0)
    model, _, history = setting.run(evaluate=noisy, evaluate_every=5)
    assert same(model, quiet)
    assert history.losses == without.losses
    assert without.evaluations == []
    assert history.evaluations == [(5, seen[0]), (10, seen[1]), (12, seen[2])]
    assert len(set(seen)) == 3
    assert setting.run(evaluate=noisy, evaluate_every=6)[2].evaluations == [(6, seen[3]), (12, seen[2])]
    assert setting.run(evaluate=noisy, evaluate_every=0)[2].evaluations == [(12, seen[2])]


def test_modules_keep_the_mode_in_which_they_came() -> None:
    def training(model: Any, batch: Tensor) -> Tensor:
        modes.append((model.training, model.norm.training))
        return loss(model, batch)

    modes: list[Any] = []
    model, optimizer, _ = SETTINGS["AdamW"].build()
    norm: Any = model.norm
    norm.eval()
    fit(
        model,
        optimizer,
        training,
        SETTINGS["AdamW"].batch,
        steps=3,
        evaluate=SETTINGS["AdamW"].evaluate,
        evaluate_every=1,
    )
    assert modes == [(True, False)] * 3
    assert int(norm.num_batches_tracked) == 0


def test_no_global_state_changes_and_the_seed_counts() -> None:
    setting = SETTINGS["AdamW"]
    before = capture()
    model, _, history = setting.run(seed=1)
    assert differences(before, capture()) == []
    torch.rand(3)
    again, _, repeated = setting.run(seed=1)
    assert same(model, again)
    assert history == repeated
    assert not same(model, setting.run(seed=2)[0])
    before = capture()
    with pytest.raises(FloatingPointError):
        fit(
            model,
            torch.optim.SGD(model.parameters(), 0.1),
            lambda m, b: torch.rand(()) * math.nan,
            id,
            steps=2,
        )
    assert differences(before, capture()) == []


def test_a_caller_without_gradients_can_train() -> None:
    with torch.no_grad():
        model, _, _ = SETTINGS["AdamW"].run()
        assert not torch.is_grad_enabled()
    assert same(model, SETTINGS["AdamW"].run()[0])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_stops_before_it_does_harm(bad: float) -> None:
    model = line()
    states: list[float] = []

    def value(model: nn.Linear, step: Any) -> Tensor:
        states.append(float(model.weight.detach()))
        return model.weight.sum() * (bad if step == 3 else 1.0)

    with pytest.raises(FloatingPointError, match=r"the loss is .* at step 3"):
        fit(model, torch.optim.SGD(model.parameters(), lr=0.1), value, lambda step: step, steps=10)
    assert float(model.weight.detach()) == states[-1]
    assert len(states) == 4


def test_a_gradient_that_is_not_finite_does_not_stay_unseen() -> None:
    def root(model: nn.Module, batch: Tensor) -> Tensor:
        return (model(batch) - 1).square().sum().sqrt()  # 0, with the derivative 0 / 0

    def run(**options: Any) -> None:
        model = line()
        fit(
            model, torch.optim.SGD(model.parameters(), lr=0.1), root, lambda step: torch.ones(1, 1), **options
        )

    with pytest.raises(FloatingPointError, match="the norm of the gradient is nan at step 0"):
        run(steps=1, clip_norm=1.0)
    with pytest.raises(
        FloatingPointError, match=r"parameter of shape \(1, 1\) is NaN or infinite after step 0"
    ):
        run(steps=1)
    with pytest.raises(FloatingPointError, match="the loss is nan at step 1"):
        run(steps=5)


def test_progress_is_told_a_hundred_times_at_most() -> None:
    told: list[tuple[float, str]] = []
    model = line()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fit(
        model,
        optimizer,
        lambda m, b: m(b).square().sum(),
        lambda step: torch.ones(1, 1),
        steps=250,
        progress=lambda share, message: told.append((share, message)),
    )
    shares = [share for share, _ in told]
    assert len(told) == 100
    assert shares == sorted(shares)
    assert told[-1][0] == 1.0
    assert told[-1][1].startswith("step 250 of 250, loss ")
    told.clear()
    SETTINGS["SGD"].run(progress=lambda share, message: told.append((share, message)))
    assert [share for share, _ in told] == [step / STEPS for step in range(1, STEPS + 1)]


def test_parameters_that_are_frozen_or_no_part_of_the_model() -> None:
    frozen = line(2).requires_grad_(False)
    model = nn.Sequential(frozen, line())
    offset = nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([*model.parameters(), offset], lr=0.1)
    x = torch.ones(1, 2)
    fit(model, optimizer, lambda m, b: (m(b) + offset - 7).square().sum(), lambda step: x, steps=60)
    assert frozen.weight.tolist() == [[1.0, 1.0]]
    assert float(model(x).detach() + offset.detach()) == pytest.approx(7.0)
    assert offset.grad is None


def test_the_history_as_text_dict_and_table() -> None:
    history = History([4.0, 2.0, 1.0], [(2, 0.5), (3, 0.25)], seconds=1.0)
    assert history.summary() == "3 steps, loss 4 to 1, last evaluation 0.25"
    assert History([4.0], []).summary() == "1 steps, loss 4 to 4"
    assert history.to_dict() == {
        "losses": [4.0, 2.0, 1.0],
        "evaluations": [[2, 0.5], [3, 0.25]],
        "seconds": 1.0,
    }
    assert history.to_frame().to_dict(as_series=False) == {
        "step": [1, 2, 3],
        "loss": [4.0, 2.0, 1.0],
        "evaluation": [None, 0.5, 0.25],
    }
    assert history == History([4.0, 2.0, 1.0], [(2, 0.5), (3, 0.25)])
    assert History([1.0], []).to_frame()["evaluation"].to_list() == [None]


def no_gradient(model: nn.Module, batch: Any) -> Tensor:
    return torch.ones(())


def vector(model: nn.Module, batch: Any) -> Tensor:
    return model(torch.ones(2, 1))


MODEL = line()
OTHER = torch.optim.SGD(line().parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        ({"model": lambda x: x}, TypeError, "model must be a torch.nn.Module, got function"),
        ({"optimizer": "SGD"}, TypeError, "optimizer must be a torch.optim.Optimizer, got str"),
        ({"optimizer": OTHER}, ValueError, "optimizer must have parameters of model"),
        ({"loss": None}, TypeError, "loss must be callable, got NoneType"),
        ({"loss": lambda m, b: 1.0}, TypeError, "loss must return a tensor, got float"),
        ({"loss": vector}, ValueError, r"loss must return a tensor with one element, got shape \(2, 1\)"),
        ({"loss": no_gradient}, ValueError, "loss must return a tensor that depends on the parameters"),
        ({"batches": [1, 2]}, TypeError, "batches must be callable, got list"),
        ({"steps": 0}, ValueError, "steps must be at least 1, got 0"),
        ({"steps": 1.5}, TypeError, "steps must be an integer"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"schedule": "cosine"}, TypeError, "schedule must be a torch LRScheduler or None, got str"),
        ({"schedule": LinearLR(OTHER)}, ValueError, "schedule must be of optimizer"),
        ({"clip_norm": 0.0}, ValueError, "clip_norm must be greater than 0"),
        ({"clip_norm": math.nan}, ValueError, "clip_norm must be finite"),
        ({"evaluate": 3}, TypeError, "evaluate must be callable or None, got int"),
        ({"evaluate_every": -1}, ValueError, "evaluate_every must be at least 0"),
        ({"evaluate_every": 2}, ValueError, "evaluate_every must be 0 where evaluate is None, got 2"),
        ({"checkpoint_every": -1}, ValueError, "checkpoint_every must be at least 0"),
        ({"progress": 3}, TypeError, "progress must be callable or None, got int"),
        ({"model": nn.Linear(1, 1, device="meta")}, ValueError, "optimizer must have parameters of model"),
    ],
)
def test_bad_arguments_are_refused_by_name(changed: dict[str, Any], error: type, says: str) -> None:
    arguments: dict[str, Any] = {
        "model": MODEL,
        "optimizer": torch.optim.SGD(MODEL.parameters(), lr=0.1),
        "loss": lambda m, b: m(torch.ones(1, 1)).sum(),
        "batches": lambda step: step,
        "steps": 1,
        **changed,
    }
    with pytest.raises(error, match=says):
        fit(**arguments)


def test_other_devices_are_refused() -> None:
    model = nn.Linear(1, 1, device="meta")
    with pytest.raises(ValueError, match="model must be on the CPU or CUDA, got a tensor on meta"):
        fit(model, torch.optim.SGD(model.parameters(), lr=0.1), loss, torch.ones, steps=1)
