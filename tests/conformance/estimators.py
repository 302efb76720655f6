"""Are scikit-learn's rules kept?"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import check_estimator

from tests.conformance.state import preserved
from tests.conformance.subject import Subject


def estimator_classes(subject: Subject) -> dict[str, type]:
    """Public estimators whose ``fit`` takes ``X`` alone or ``X`` and ``y``."""
    return {
        name: value
        for name, value in subject.public.items()
        if inspect.isclass(value) and issubclass(value, BaseEstimator) and _fits_a_table(value)
    }


def check_estimators(subject: Subject) -> list[str]:
    """Each estimator passes ``check_estimator``, but for what its test module excuses, and that does fail."""
    classes = estimator_classes(subject)
    excused: dict[str, dict[str, str]] = getattr(subject.test_module, "EXCUSED", {})
    factories: dict[str, Any] = getattr(subject.test_module, "ESTIMATORS", {})
    complaints = [
        f"{place} of {subject.relative(subject.test_name)} names {name}, which is no estimator of the method"
        for place, names in (("EXCUSED", excused), ("ESTIMATORS", factories))
        for name in names
        if name not in classes
    ]
    for name, cls in classes.items():
        complaints += [
            f"{name}: EXCUSED gives no reason for {check}"
            for check, reason in excused.get(name, {}).items()
            if not reason.strip()
        ]
        try:
            estimator = factories[name]() if name in factories else cls()
        except TypeError as error:
            complaints.append(f"{name}: cannot be made ({error}); add it to ESTIMATORS of the test module")
            continue
        complaints += [f"{name}: {text}" for text in _check(estimator, excused.get(name, {}))]
    return complaints


def _check(estimator: BaseEstimator, excused: dict[str, str]) -> list[str]:
    with preserved(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, expected_failed_checks=excused, on_skip=None, on_fail=None)
    complaints = [
        f"{result['check_name']} fails: {type(result['exception']).__name__}: {result['exception']}"
        for result in results
        if result["status"] == "failed"
    ]
    for check in excused:
        # Some checks run several times with other data; one failure is what the excuse is for.
        outcomes = {result["status"] for result in results if result["check_name"] == check}
        if not outcomes:
            complaints.append(f"{check} is excused, but there is no such check for it")
        elif "xfail" not in outcomes:
            complaints.append(f"{check} is excused, but passes")
    return complaints


def _fits_a_table(cls: type) -> bool:
    fit = getattr(cls, "fit", None)
    if fit is None:
        return False
    _, *parameters = inspect.signature(fit).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in kinds]
    return names[:1] == ["X"] and (len(names) == 1 or names[1] == "y")
