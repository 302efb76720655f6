"""The battery passes a complete method and catches each way to be incomplete."""

from __future__ import annotations

import importlib
import math
import os
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from scipy import sparse
from sklearn.utils import Bunch

from tests.conformance import (
    api,
    docstrings,
    doors,
    estimators,
    fake,
    faults,
    parts,
    programs,
    state,
    studies,
)
from tests.conformance.contract import Call
from tests.conformance.spoiling import get, put, spoil
from tests.conformance.subject import Subject

Check = Callable[[Subject, Path], list[str]]


def light_imports(subject: Subject, cwd: Path) -> list[str]:
    return api.check_light_imports(subject, api.light_report([subject], cwd))


def import_changes(subject: Subject, cwd: Path) -> list[str]:
    return api.check_import_changes(subject, api.change_report([subject], cwd))


def delivery(subject: Subject, cwd: Path) -> list[str]:
    return studies.check_delivery(subject, studies.run_units(subject, cwd))


def repeat(subject: Subject, cwd: Path) -> list[str]:
    return studies.check_repeat(subject, studies.run_units(subject, cwd))


def resume(subject: Subject, cwd: Path) -> list[str]:
    return studies.check_resume(studies.run_units(subject, cwd))


def figures(subject: Subject, cwd: Path) -> list[str]:
    return studies.check_figures(subject, studies.run_units(subject, cwd), cwd)


def example(subject: Subject, cwd: Path) -> list[str]:
    return programs.check_example(subject, cwd)


def plain(check: Callable[[Subject], list[str]]) -> Check:
    return lambda subject, cwd: check(subject)


CHECKS: dict[str, Check] = {
    "parts": plain(parts.check_parts),
    "dependencies": plain(parts.check_dependencies),
    "text": plain(parts.check_text),
    "explanations": plain(parts.check_explanations),
    "planted mistake": plain(parts.check_planted_mistake),
    "light imports": light_imports,
    "import changes": import_changes,
    "api": plain(api.check_api),
    "all": plain(api.check_all),
    "docstrings": plain(docstrings.check_docstrings),
    "delivery": delivery,
    "repeat": repeat,
    "resume": resume,
    "figures": figures,
    "example": example,
    "estimators": plain(estimators.check_estimators),
    "calls": plain(doors.check_calls),
    "valid calls": plain(doors.check_valid_calls),
    "bad input": plain(doors.check_bad_input),
}


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Subject]]:
    """Builder of the made-up library, which can be imported until the test ends."""
    for place in (tmp_path, tmp_path / "src"):
        monkeypatch.syspath_prepend(place)
    # Written and imported again within one tick of the clock, a file would be taken from its stale cache.
    monkeypatch.setattr("sys.dont_write_bytecode", True)

    def build(**spoilt: Any) -> Subject:
        subject = fake.build(tmp_path, **spoilt)
        importlib.invalidate_caches()
        return subject

    yield build
    fake.forget()


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
def test_a_complete_method_passes(check: Check, made_up: Callable[..., Subject], tmp_path: Path) -> None:
    assert check(made_up(), tmp_path) == []


@pytest.mark.parametrize("fault", faults.FAULTS.values(), ids=faults.FAULTS.keys())
def test_a_fault_is_found(
    fault: faults.Fault, made_up: Callable[..., Subject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(studies, "SMOKE_S", 0.1)
    monkeypatch.setattr(programs, "EXAMPLE_S", 0.2)
    subject = made_up(edits=fault.edits, files=fault.files, card=fault.card)
    complaints = CHECKS[fault.check](subject, tmp_path)
    assert any(fault.says in complaint for complaint in complaints), complaints


def test_every_check_can_fail() -> None:
    assert {fault.check for fault in faults.FAULTS.values()} == set(CHECKS)


def test_smoke_may_take_longer_with_a_compiler(made_up: Callable[..., Subject], tmp_path: Path) -> None:
    subject = made_up(edits=faults.SLOW, card={"study_extras": ["jax"]})
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(studies, "SMOKE_S", 0.1)
        assert studies.check_delivery(subject, studies.run_units(subject, tmp_path)) == []


def test_explained_and_unrun_claims_are_settled(made_up: Callable[..., Subject]) -> None:
    why = "The draws are few. Their spread is wide."
    assert (
        parts.check_explanations(
            made_up(files=faults.published("fails"), card=faults.claims(explanation=why))
        )
        == []
    )
    assert parts.check_explanations(made_up(files=faults.published("not run"))) == []


def test_excuses_and_factories_are_used(made_up: Callable[..., Subject]) -> None:
    extra = (
        'import numpy as np\nESTIMATORS = {"Centre": lambda: Centre(keep=False)}\n'
        'EXCUSED = {"Centre": {"check_dont_overwrite_parameters": "It keeps more."}}\n'
    )
    edits = {
        faults.METHOD: ("        return self\n", "        self.extra = 1\n        return self\n"),
        faults.TESTS: ("import numpy as np\n", extra),
    }
    assert estimators.check_estimators(made_up(edits=edits)) == []


@pytest.mark.parametrize(
    ("annotation", "documented", "is_array"),
    [
        ("NDArray[np.float64]", "", True),
        ("torch.Tensor | None", "", True),
        ("Any", "array-like of shape (n, d)", True),
        ("Any", "pair of arrays", True),
        ("Sequence[str] | ArrayLike", "sequence of str or ndarray", True),
        ("Callable[[NDArray[np.float64]], NDArray[np.float64]]", "callable", False),
        ("Callable[[ArrayLike], float] | ArrayLike", "callable or array-like", True),
        ("str", "str, default='table'", False),
        ("Sequence[float]", "", True),
        ("Any", "pair (X, y), Dataset or DataLoader", True),
        ("Any", "None\n    Ignored.", False),
        ("int", "int", False),
    ],
)
def test_array_parameters_are_recognised(annotation: str, documented: str, is_array: bool) -> None:
    def function(given):
        pass

    function.__annotations__ = {"given": annotation}
    function.__doc__ = (
        f"Nothing.\n\nParameters\n----------\ngiven : {documented}\n    Something.\n" if documented else ""
    )
    assert doors.array_parameters(function) == (["given"] if is_array else [])


def test_what_is_named_like_data_is_an_array() -> None:
    def function(A, X: Any, y=None):
        """Nothing.

        Parameters
        ----------
        A : see above
            Something.
        X : object
            Something.
        y : None
            Ignored.
        """

    assert doors.array_parameters(function) == ["A", "X"]


def corruptions(value: Any) -> list[str]:
    return [spoilt.corruption for spoilt in spoil(value, paired=True)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.ones((3, 2)), ["nan", "inf", "empty", "length", "rank", "rank"]),
        (np.ones(3, dtype=np.float32), ["nan", "inf", "empty", "length", "rank"]),
        (np.arange(3), ["empty", "length", "rank"]),
        (np.array([True, False]), ["empty", "length", "rank"]),
        (np.array(["a", "b"]), ["empty", "length", "rank"]),
        (np.array([{}, None], dtype=object), ["empty", "length", "rank"]),
        (torch.ones(3, 2, 2), ["nan", "inf", "empty", "length", "rank"]),
        (torch.arange(4), ["empty", "length", "rank"]),
        (sparse.csr_matrix(np.eye(3)), ["nan", "inf", "empty", "length"]),
        ([1.0, 2.0], ["nan", "inf", "empty", "length", "rank"]),
        ([[1, 2], [3, 4]], ["empty", "length", "rank", "rank"]),
        (["a", "b"], ["empty", "length"]),
        ([np.ones(2), np.ones(3)], ["nan", "inf", "empty", "length"]),
        (pl.DataFrame({"a": ["x", "y"], "b": [0.0, 1.0]}), ["nan", "inf", "empty", "length"]),
        (pl.Series([0.0, 1.0]), ["nan", "inf", "empty", "length"]),
        (pl.Series([0, 1]), ["empty", "length"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_arrays_are_spoilt_as_their_type_allows(value: Any, expected: list[str]) -> None:
    assert corruptions(value) == expected
    assert "length" not in [spoilt.corruption for spoilt in spoil(value, paired=False)]


def test_spoiling_leaves_the_array_as_it_was() -> None:
    for value in (np.ones(3), torch.ones(3), pl.Series([1.0, 1.0, 1.0]), sparse.csr_matrix(np.ones((1, 3)))):
        assert any(spoilt.corruption == "nan" for spoilt in spoil(value, paired=True))
        dense = value.toarray() if sparse.issparse(value) else value
        assert np.isfinite(np.asarray(dense)).all()


def test_a_jax_array_is_spoilt_like_numpy_s() -> None:
    jnp = pytest.importorskip("jax.numpy")
    value = jnp.ones((3, 2))
    ways = spoil(value, paired=True)
    assert [way.words for way in ways] == [way.words for way in spoil(np.ones((3, 2)), paired=True)]
    assert all(isinstance(way.value, type(value)) and way.value.dtype == value.dtype for way in ways)


def test_spoilt_entries_are_bad() -> None:
    for spoilt in spoil(np.ones((2, 2)), paired=True):
        if spoilt.corruption in ("nan", "inf"):
            assert (~np.isfinite(spoilt.value)).sum() == 1
    ragged = spoil([[0, 1], [2.0]], paired=True)
    assert math.isnan(ragged[0].value[1][0])


def test_paths_lead_into_pairs_mappings_and_records() -> None:
    call = Call("f", lambda: (print, {}), arrays=())
    bunch = Bunch(data=np.zeros(2))
    arguments = {"A": (1, [2, 3]), "bunch": bunch, "record": call}
    assert get(arguments, "A.1.0") == 2
    assert get(put(arguments, "A.1.0", 5), "A") == (1, [5, 3])
    assert put(arguments, "bunch.data", 7)["bunch"].data == 7
    assert put(arguments, "record.target", "g")["record"].target == "g"
    assert (arguments["A"], call.target, bunch.data.tolist()) == ((1, [2, 3]), "f", [0.0, 0.0])


def test_state_is_captured_and_restored(tmp_path: Path) -> None:
    before = state.capture()
    with state.preserved():
        np.random.seed(1)  # noqa: NPY002
        np.seterr(all="raise")
        torch.manual_seed(1)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.set_num_threads(1 + torch.get_num_threads())
        torch.set_default_device("meta")
        torch.use_deterministic_algorithms(True)
        random.seed(1)
        warnings.simplefilter("error")
        os.environ["TOY"] = "yes"
        os.chdir(tmp_path)
        changed = state.differences(before, state.capture())
    left = [name for name in before if not any(change.startswith(name) for change in changed)]
    assert [name for name in left if "jax" not in name] == []
    assert state.differences(before, state.capture()) == []


def test_a_module_may_be_a_folder(made_up: Callable[..., Subject], tmp_path: Path) -> None:
    folder = faults.METHOD.replace(".py", "/__init__.py")
    subject = made_up(files={faults.METHOD: None, folder: fake.METHOD})
    assert subject.path(subject.module_name) == tmp_path / folder
    assert parts.check_parts(subject) == []
    assert api.check_api(subject) == []
    assert docstrings.check_docstrings(subject) == []


def test_exceptions_choices_and_protocols_need_no_parameters(made_up: Callable[..., Subject]) -> None:
    more = (
        "import enum, typing\n"
        'class Failure(ValueError):\n    """It failed."""\n'
        'class Choice(enum.Enum):\n    """One or two."""\n    ONE = 1\n'
        'class Likely(typing.Protocol):\n    """What looks like it."""\n'
        '__all__ = ["Choice", "Failure", "Likely", '
    )
    subject = made_up(edits={faults.METHOD: ("__all__ = [", more)})
    assert set(subject.public) >= {"Choice", "Failure", "Likely"}
    assert docstrings.check_docstrings(subject) == []
    assert doors.check_calls(subject) == []
