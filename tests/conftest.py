"""What all tests share: a cache of their own, settings of Hypothesis, an account of each method's time."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.conformance.subject import Subject
from theses.catalogue import CardError, cards

# Core-seconds that all tests of one method together may take, and with a language model or a compiler.
METHOD_S = 30.0
METHOD_WITH_COMPILER_S = 60.0

_spent: defaultdict[str, float] = defaultdict(float)

# The same examples on every machine; a busy machine is no failure.
hypothesis.settings.register_profile("theses", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("theses")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache for this run alone: tests neither find nor leave anything in the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("THESES_CACHE", str(folder))
        yield folder


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    start = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        _spent[_stem(item)] += sum(os.times()[:4]) - start


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    try:
        catalogue = cards()
    except CardError:
        return  # the tests have said so
    over = []
    for card in catalogue:
        slow = {"lm", "jax"} & {*card.extras, *card.study_extras}
        spent, limit = (
            _spent.get(card.slug.replace("-", "_"), 0.0),
            METHOD_WITH_COMPILER_S if slow else METHOD_S,
        )
        if spent > limit:
            over.append(f"{card.slug}: {spent:.0f} core-seconds, at most {limit:g}")
    if over:
        terminalreporter.section("methods whose tests take too long")
        for line in over:
            terminalreporter.line(line)


def _stem(item: pytest.Item) -> str:
    """Last part of the name of the module that a test is about."""
    callspec = getattr(item, "callspec", None)
    for value in callspec.params.values() if callspec is not None else ():
        if isinstance(value, Subject):
            return value.stem
        if isinstance(value, str) and re.fullmatch(r"theses(\.\w+)+", value):
            return value.rpartition(".")[2]
    return item.path.stem.removeprefix("test_").removeprefix("apply_")
