"""One battery over every card in the catalogue: a method is covered by being there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import api, docstrings, doors, estimators, parts, programs, studies
from tests.conformance.subject import Subject
from theses.catalogue import cards

SUBJECTS = [Subject(card) for card in cards()]


# Module scope, so that pytest runs all tests of one method before it goes on to the next.
@pytest.fixture(scope="module", params=SUBJECTS, ids=[subject.card.slug for subject in SUBJECTS])
def subject(request: pytest.FixtureRequest) -> Subject:
    found: Subject = request.param
    return found


@pytest.fixture(scope="session")
def light_report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return api.light_report(SUBJECTS, tmp_path_factory.mktemp("imports"))


@pytest.fixture(scope="session")
def change_report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return api.change_report(SUBJECTS, tmp_path_factory.mktemp("imports"))


@pytest.fixture(scope="module")
def units(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Iterator[studies.Units]:
    yield studies.run_units(subject, tmp_path_factory.mktemp("units"))


def report(check: Callable[..., list[str]], *arguments: Any) -> None:
    try:
        complaints = check(*arguments)
    except ImportError as error:
        complaints = [repr(error)]  # a part that is not there, or needs what is not there
    if complaints:
        pytest.fail("\n".join(f"- {complaint}" for complaint in complaints), pytrace=False)


def test_the_catalogue_is_not_empty() -> None:
    assert SUBJECTS


def test_all_parts_exist(subject: Subject) -> None:
    report(parts.check_parts, subject)


def test_extras_and_carriers_are_declared(subject: Subject) -> None:
    report(parts.check_dependencies, subject)


def test_card_says_all_it_has_to(subject: Subject) -> None:
    report(parts.check_text, subject)


def test_what_does_not_hold_is_explained(subject: Subject) -> None:
    report(parts.check_explanations, subject)


def test_a_mistake_is_planted(subject: Subject) -> None:
    report(parts.check_planted_mistake, subject)


def test_imports_are_light(subject: Subject, light_report: dict[str, list[str]]) -> None:
    report(api.check_light_imports, subject, light_report)


def test_import_changes_nothing(subject: Subject, change_report: dict[str, list[str]]) -> None:
    report(api.check_import_changes, subject, change_report)


def test_api_resolves(subject: Subject) -> None:
    report(api.check_api, subject)


def test_all_is_complete(subject: Subject) -> None:
    report(api.check_all, subject)


def test_docstrings_are_complete(subject: Subject) -> None:
    report(docstrings.check_docstrings, subject)


def test_study_delivers_at_smoke(subject: Subject, units: studies.Units) -> None:
    report(studies.check_delivery, subject, units)


def test_study_repeats(subject: Subject, units: studies.Units) -> None:
    report(studies.check_repeat, subject, units)


def test_study_resumes(subject: Subject, units: studies.Units) -> None:
    report(studies.check_resume, units)


def test_figures_draw_from_stored_tables(subject: Subject, units: studies.Units, tmp_path: Path) -> None:
    report(studies.check_figures, subject, units, tmp_path)


def test_example_runs(subject: Subject, tmp_path: Path) -> None:
    report(programs.check_example, subject, tmp_path)


def test_estimators_keep_the_rules(subject: Subject) -> None:
    report(estimators.check_estimators, subject)


def test_calls_cover_what_takes_arrays(subject: Subject) -> None:
    report(doors.check_calls, subject)


def test_valid_calls_work_and_change_no_global_state(subject: Subject) -> None:
    report(doors.check_valid_calls, subject)


def test_bad_input_is_refused_by_name(subject: Subject) -> None:
    report(doors.check_bad_input, subject)
