from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.training.setting import (
    LONG,
    OPTIMIZERS,
    SCHEDULES,
    SETTINGS,
    STEPS,
    InterruptionError,
    Setting,
    Tied,
    groups,
    long_setting,
    train_until_killed,
)
from theses.training import checkpoint as checkpoints
from theses.training import fit
from theses.training.tree import encode, same_tensors, same_trees


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Any, dict[str, Tensor]]:
    """All that a run leaves behind, in bits."""
    tensors: dict[str, Tensor] = {}
    state = {
        "parameters": dict(model.named_parameters()),
        "buffers": dict(model.named_buffers()),
        "extra": model.state_dict().get("_extra_state"),
        "optimizer": optimizer.state_dict(),
    }
    return encode(state, tensors, "run"), tensors


def identical(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    (a, b), (c, d) = everything(*one[:2]), everything(*other[:2])
    return same_trees(a, c) and same_tensors(b, d) and one[2] == other[2]


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_a_resumed_run_is_the_uninterrupted_one_bit_by_bit(setting: Setting, tmp_path: Path) -> None:
    whole = setting.run()
    for stop, every in ((7, 1), (9, 4), (2, 5)):  # the last is stopped before its first checkpoint
        folder = tmp_path / str(stop)
        with pytest.raises(InterruptionError):
            setting.run(folder, stop=stop, every=every)
        assert identical(setting.run(folder, every=every), whole)


def test_several_interruptions_and_another_pace_of_checkpoints(tmp_path: Path) -> None:
    setting = SETTINGS["AdamW, OneCycleLR"]
    for stop in (3, 4, 8, 11):
        with pytest.raises(InterruptionError):
            setting.run(tmp_path, stop=stop, every=stop % 3 + 1)
    assert identical(setting.run(tmp_path, every=0), setting.run())


def test_lbfgs_resumes_with_its_history_of_directions(tmp_path: Path) -> None:
    def run(folder: Path | None, stop: int = -1) -> tuple[Any, ...]:
        def batches(step: int) -> Tensor:
            if step == stop:
                raise InterruptionError
            return x

        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")
        history = fit(
            model,
            optimizer,
            lambda m, b: (m(b) - b.sum(1, keepdim=True)).square().mean(),
            batches,
            steps=8,
            checkpoint=folder,
            checkpoint_every=1,
        )
        return model, optimizer, history

    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(InterruptionError):
        run(tmp_path, stop=5)
    assert identical(run(tmp_path), run(None))


def test_killed_at_random_moments_it_is_still_the_same(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["theses.training"])
    draw = random.Random(0)
    file = tmp_path / checkpoints.FILE
    progress = [0]
    while len(progress) < 5 and progress[-1] < LONG:
        process = context.Process(target=train_until_killed, args=(str(tmp_path),))
        before = file.stat().st_mtime_ns if file.exists() else 0
        process.start()
        give_up = time.monotonic() + 60
        while not file.exists() or file.stat().st_mtime_ns == before:
            assert process.is_alive() or not process.exitcode, "it should train until it is killed"
            assert time.monotonic() < give_up
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.05))
        process.kill()
        process.join()
        with safetensors.safe_open(file, framework="pt") as stored:
            progress.append(len(stored.get_tensor("progress.losses")))
        process.close()
    assert progress == sorted(set(progress))
    assert progress[2] < LONG, "two kills at least should have come before the end"
    assert identical(long_setting().run(tmp_path, steps=LONG), long_setting().run(steps=LONG))


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    setting = SETTINGS["AdamW"]
    finished = setting.run(tmp_path)
    assert identical(setting.run(tmp_path, stop=0), finished)
    assert finished[2].seconds > 0


def test_time_adds_up_over_resumptions(tmp_path: Path) -> None:
    setting = SETTINGS["SGD"]
    with pytest.raises(InterruptionError):
        setting.run(tmp_path, stop=6, evaluate=lambda model: time.sleep(0.2) or 0.0)  # type: ignore[func-returns-value]
    assert setting.run(tmp_path)[2].seconds >= 0.2


def test_one_file_without_pickle(tmp_path: Path) -> None:
    SETTINGS["AdamW"].run(tmp_path / "a" / "b")
    (file,) = (tmp_path / "a" / "b").iterdir()
    assert file.name == "checkpoint.safetensors"
    with safetensors.safe_open(file, framework="pt") as stored:
        assert len(stored.get_tensor("progress.losses")) == STEPS


def test_a_write_that_is_cut_short_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(tensors: Any, path: Path, metadata: Any) -> None:
        save_file(tensors, path, metadata)
        if len(tensors["progress.losses"]) == 8:
            path.write_bytes(path.read_bytes()[:-40])
            raise OSError("no space left on device")

    setting = SETTINGS["AdamW"]
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "save_file", cut)
        with pytest.raises(OSError, match="no space left"):
            setting.run(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [checkpoints.FILE, f"{checkpoints.FILE}.part"]
    assert identical(setting.run(tmp_path), setting.run())
    assert [path.name for path in tmp_path.iterdir()] == [checkpoints.FILE]


def test_a_damaged_checkpoint_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    setting = SETTINGS["AdamW"]
    with pytest.raises(InterruptionError):
        setting.run(tmp_path, stop=5)
    file = tmp_path / checkpoints.FILE
    content = file.read_bytes()
    draw = random.Random(0)
    header = int.from_bytes(content[:8], "little")
    places = [
        9,
        header - 100,
        header + 9,
        len(content) - 1,
        *(draw.randrange(len(content)) for _ in range(40)),
    ]
    spoilt = [content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :] for place in places]
    spoilt += [content[:size] for size in (0, 7, 100, header, len(content) // 2, len(content) - 1)]
    spoilt += [content + b"more", b"\x80\x04N."]
    model, optimizer, _ = setting.build()
    before = everything(model, optimizer)
    for text in spoilt:
        file.write_bytes(text)
        with pytest.raises(
            ValueError, match=r"checkpoint\.safetensors (is damaged|must be a file of the form)"
        ):
            setting.run(tmp_path)
        with pytest.raises(ValueError, match=r"checkpoint\.safetensors"):
            fit(model, optimizer, lambda m, b: m(b).sum(), setting.batch, steps=3, checkpoint=tmp_path)
    after = everything(model, optimizer)
    assert same_trees(before[0], after[0])
    assert same_tensors(before[1], after[1])


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / checkpoints.FILE)
    with pytest.raises(
        ValueError, match="must be a file of the form 'theses training checkpoint 1', got None"
    ):
        SETTINGS["AdamW"].run(tmp_path)


def wider(dtype: torch.dtype) -> nn.Module:
    model = Tied(dtype)
    model.norm = nn.BatchNorm1d(6, affine=False)
    return model


def cosine(total: int) -> Callable[[Any], Any]:
    return lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total)


@pytest.mark.parametrize(
    ("changed", "options", "says"),
    [
        ({"model": wider}, {}, "model's tensors: norm.weight is torch.float32 [6] there and absent here"),
        (
            {"dtype": torch.float64},
            {},
            "encode.weight is torch.float32 [6, 6] there and torch.float64 [6, 6] here",
        ),
        (
            {"model": lambda dtype: nn.Sequential(nn.Linear(6, 6, dtype=dtype))},
            {},
            "model is Tied there and Sequential",
        ),
        ({"optimizer": lambda m: torch.optim.Adam(groups(m))}, {}, "optimizer is AdamW there and Adam here"),
        (
            {"optimizer": lambda m: torch.optim.AdamW(groups(m), lr=0.02)},
            {},
            "optimizer's param_groups: 0: lr is 0.01 there and 0.02 here",
        ),
        (
            {"optimizer": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01)},
            {},
            "optimizer's param_groups is [",
        ),
        (
            {"schedule": SCHEDULES["OneCycleLR"]},
            {},
            "schedule is CosineAnnealingLR there and OneCycleLR here",
        ),
        ({"schedule": cosine(99)}, {}, "schedule's state: T_max is 12 there and 99 here"),
        ({"schedule": None}, {}, "schedule is CosineAnnealingLR there and null here"),
        ({}, {"steps": 20}, "steps is 12 there and 20 here"),
        ({}, {"seed": 3}, "seed is 0 there and 3 here"),
        ({}, {"clip_norm": None}, "clip_norm is 1.0 there and null here"),
        ({}, {"evaluate_every": 4}, "evaluate_every is 5 there and 4 here"),
        ({}, {"evaluate": None, "evaluate_every": 0}, "evaluate_every is 5 there and null here"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(
    changed: dict[str, Any], options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    base: dict[str, Any] = {"optimizer": OPTIMIZERS["AdamW"], "schedule": cosine(STEPS)}
    Setting(**base).run(tmp_path)
    with pytest.raises(ValueError, match="is the checkpoint of another run") as caught:
        Setting(**{**base, **changed}).run(tmp_path, **options)
    assert says in str(caught.value)
    assert "delete the file" in str(caught.value)


class Kept(torch.optim.Optimizer):
    """Descent that keeps what it is told to in its state."""

    def __init__(self, params: Any, keep: Callable[[Tensor], Any]) -> None:
        super().__init__(params, {"lr": 0.1})
        self.keep = keep

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    state = self.state[param]
                    state.setdefault("kept", self.keep(param))
                    param -= group["lr"] * param.grad


class Forgetful(torch.optim.SGD):
    """Loads momentum as zero."""

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        for state in self.state.values():
            state["momentum_buffer"].zero_()


@pytest.mark.parametrize(
    ("keep", "says"),
    [
        (lambda p: object(), r"optimizer\.state\.0\.kept is of type object, which a checkpoint cannot hold"),
        (lambda p: [p, {"f": len}], r"optimizer\.state\.0\.kept\.1\.f is of type builtin_function_or_method"),
        (lambda p: {(1, 2): 3}, r"optimizer\.state\.0\.kept has the key \(1, 2\)"),
        (lambda p: torch.zeros(3).to_sparse(), "is a sparse or quantised tensor"),
    ],
)
def test_state_that_no_checkpoint_holds_is_refused(
    keep: Callable[[Tensor], Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(TypeError, match=says):
        Setting(lambda model: Kept(model.parameters(), keep)).run(tmp_path)


@pytest.mark.parametrize(
    "keep",
    [
        lambda p: {"nested": [p.float().clone() + 0.1, (3, "text", None, float("-inf"))]},
        lambda p: p.float().clone() + 1e-4,  # float32 state of bfloat16 parameters
        lambda p: torch.tensor(2**53 + 1),  # no float holds it
        lambda p: p.float().t().clone(memory_format=torch.preserve_format) if p.ndim == 2 else True,
        lambda p: torch.complex(p.float(), p.float()).conj(),
    ],
    ids=["nested", "wider", "integer", "transposed", "complex"],
)
def test_state_of_many_kinds_comes_back_as_it_was(keep: Callable[[Tensor], Any], tmp_path: Path) -> None:
    dtype = torch.bfloat16 if "nested" not in str(keep(torch.zeros(1))) else torch.float32
    setting = Setting(lambda model: Kept(model.parameters(), keep), dtype=dtype)
    with pytest.raises(InterruptionError):
        setting.run(tmp_path, stop=5)
    whole, resumed = setting.run(), setting.run(tmp_path)
    assert identical(resumed, whole)
    kept = [
        [
            state["kept"].stride() if isinstance(state["kept"], Tensor) else None
            for state in opt.state.values()
        ]
        for _, opt, _ in (whole, resumed)
    ]
    assert kept[0] == kept[1]


def test_an_optimizer_that_does_not_load_its_state_is_refused(tmp_path: Path) -> None:
    setting = Setting(lambda model: Forgetful(model.parameters(), lr=0.1, momentum=0.9))
    with pytest.raises(InterruptionError):
        setting.run(tmp_path, stop=5)
    with pytest.raises(
        ValueError, match="optimizer cannot be resumed: Forgetful does not load its own state"
    ):
        setting.run(tmp_path)


def test_parameters_beside_the_model_are_kept(tmp_path: Path) -> None:
    def run(folder: Path | None, stop: int = -1) -> list[float]:
        def batches(step: int) -> Tensor:
            if step == stop:
                raise InterruptionError
            return torch.ones(1, 2)

        model = nn.Linear(2, 1)
        nn.init.constant_(model.weight, 0.5)
        nn.init.zeros_(model.bias)
        scale = nn.Parameter(torch.tensor(2.0))
        fit(
            model,
            torch.optim.SGD([*model.parameters(), scale], lr=0.05, momentum=0.5),
            lambda m, b: (scale * m(b) - 3).square().sum(),
            batches,
            steps=6,
            checkpoint=folder,
            checkpoint_every=2,
        )
        return [*model.weight.flatten().tolist(), float(scale.detach())]

    with pytest.raises(InterruptionError):
        run(tmp_path, stop=5)
    assert run(tmp_path) == run(None)


def test_what_is_not_finite_is_not_stored(tmp_path: Path) -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)

    def root(m: nn.Module, step: int) -> Tensor:
        value: Tensor = m(torch.ones(1, 1)).sum()
        return value if step < 3 else (value - value.detach()).square().sqrt()

    with pytest.raises(FloatingPointError, match="after step 3"):
        fit(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            root,
            lambda step: step,
            steps=9,
            checkpoint=tmp_path,
            checkpoint_every=1,
        )
    with safetensors.safe_open(tmp_path / checkpoints.FILE, framework="pt") as stored:
        assert len(stored.get_tensor("progress.losses")) == 3
