"""The battery over every optimiser of the catalogue, and over those on which it is tried."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tests.conformance import optimizers
from tests.conformance.contract import OptimizerCase
from tests.conformance.faulty_optimizers import FAULTS, Fault, Sound, adam
from tests.conformance.subject import Subject
from theses.catalogue import cards

SUBJECTS = [Subject(card) for card in cards()]

TORCHS = {"lr": "learning rate", "betas": "beta parameter at index 0", "momentum": "momentum value"}
PASSING = {
    "Sound": OptimizerCase(Sound, adam, tolerance=1e-12, foreach=True),
    "AdamW": OptimizerCase(
        torch.optim.AdamW,
        torch.optim.AdamW,
        foreach=True,
        handles=frozenset({"complex"}),
        invalid={"lr": (-1.0, float("nan")), "betas": ((1.0, 0.9),)},
        named=TORCHS,
    ),
    "AdamW, named": OptimizerCase(
        torch.optim.AdamW, needs_named=True, handles=frozenset({"complex"}), named=TORCHS
    ),
    "SGD": OptimizerCase(
        torch.optim.SGD,
        torch.optim.SGD,
        lr=0.1,
        foreach=True,
        handles=frozenset({"sparse", "complex"}),
        invalid={"lr": (-1.0,), "momentum": (-1.0,)},
        named=TORCHS,
    ),
    "SGD, momentum": OptimizerCase(
        lambda params, lr=0.1: torch.optim.SGD(params, lr=lr, momentum=0.9, weight_decay=0.01),
        lr=0.05,
        handles=frozenset({"complex"}),
        invalid={"lr": (-1.0,)},
        named=TORCHS,
    ),
}


@pytest.mark.parametrize("subject", SUBJECTS, ids=[subject.card.slug for subject in SUBJECTS])
def test_optimizers_keep_torchs_rules(subject: Subject) -> None:
    try:
        complaints = optimizers.check_optimizers(subject)
    except ImportError as error:
        complaints = [repr(error)]
    if complaints:
        pytest.fail("\n".join(f"- {complaint}" for complaint in complaints), pytrace=False)


@pytest.mark.parametrize("check", optimizers.CHECKS)
@pytest.mark.parametrize("case", PASSING.values(), ids=PASSING.keys())
def test_what_is_sound_passes(case: OptimizerCase, check: str) -> None:
    assert optimizers.check_optimizer(case, check) == []


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.check}-{fault.says}" for fault in FAULTS])
def test_a_fault_is_found(fault: Fault) -> None:
    complaints = optimizers.check_optimizer(fault.case, fault.check)
    assert any(fault.says in complaint for complaint in complaints), complaints


def test_every_check_can_fail() -> None:
    assert {fault.check for fault in FAULTS} == set(optimizers.CHECKS)


def test_what_a_check_raises_is_a_complaint() -> None:
    def build(params: Any, **settings: Any) -> torch.optim.Optimizer:
        raise ZeroDivisionError("no")

    for check in set(optimizers.CHECKS) - {"torch's own", "foreach"}:
        (complaint, *_) = optimizers.check_optimizer(OptimizerCase(build), check)
        assert "ZeroDivisionError: no" in complaint


def test_an_optimizer_that_needs_a_closure_is_given_one() -> None:
    def build(params: Any, lr: float = 0.05) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(params, lr=lr)
        optimizer.register_step_pre_hook(needs)
        return optimizer

    def needs(optimizer: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        assert any(callable(value) for value in (*given, *named.values())), "there is no closure"

    case = OptimizerCase(build, lr=0.05, needs_closure=True)
    for check in ("state_dict", "resume", "groups", "closures", "schedules", "no gradients", "quadratic"):
        assert optimizers.check_optimizer(case, check) == []
    assert "there is no closure" in optimizers.check_optimizer(OptimizerCase(build), "resume")[0]


@pytest.fixture
def subject_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def build(cases: dict[str, OptimizerCase], api: tuple[str, ...] = ("toy:Sound", "toy:shift")) -> Any:
        module = ModuleType("toy")
        vars(module).update(Sound=Sound, Other=dict, shift=len)
        monkeypatch.setitem(__import__("sys").modules, "toy", module)
        return SimpleNamespace(
            card=SimpleNamespace(api=api),
            dotted=str,
            test_name="tests.toys.test_toy",
            relative=lambda name: f"{name.replace('.', '/')}.py",
            test_module=SimpleNamespace(**({"OPTIMIZERS": cases} if cases else {})),
        )

    return build


def test_every_optimizer_of_a_card_has_to_be_declared(subject_with: Callable[..., Any]) -> None:
    assert optimizers.check_optimizers(subject_with({})) == [
        "Sound is not tried: add it to OPTIMIZERS of tests/toys/test_toy.py"
    ]
    assert optimizers.check_optimizers(subject_with({}, api=("toy:Other", "toy:shift"))) == []
    assert optimizers.check_optimizers(subject_with({"Sound": PASSING["Sound"]})) == []
    assert optimizers.check_optimizers(
        subject_with({"Sound": PASSING["Sound"], "Sond": PASSING["Sound"]})
    ) == ["OPTIMIZERS of tests/toys/test_toy.py names Sond, which is no optimiser of the card's api"]
    assert optimizers.check_optimizers(subject_with({"Sound": PASSING["AdamW"]})) == [
        "OPTIMIZERS of tests/toys/test_toy.py builds a AdamW for Sound"
    ]


def test_complaints_name_optimizer_and_check(subject_with: Callable[..., Any]) -> None:
    (complaint,) = optimizers.check_optimizers(
        subject_with({"Sound": OptimizerCase(Sound, torch.optim.AdamW, tolerance=1e-12)})
    )[:1]
    assert complaint.startswith("Sound, torch's own: after 8 steps it is ")
