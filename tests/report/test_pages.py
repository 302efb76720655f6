from __future__ import annotations

import dataclasses
import itertools
import json
import random
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.catalogue.generated import SMALL, catalogue, write_small
from tests.report.made import poisoned, published_entry, snapshot_of, write_snapshot
from tests.report.outline import Outline, read
from theses.catalogue import cards
from theses.report import SnapshotSource, write_report
from theses.report.records import Replicate
from theses.report.words import bound, counts, measured, moment, number, replicates, seconds, spread

PAGES = ["index.html", "methods.html", "unheld.html", *(f"methods/{slug}.html" for slug in SMALL)]


@pytest.fixture(scope="module")
def outlines(small_site: Path) -> dict[str, Outline]:
    return {page: read(small_site / page) for page in PAGES}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere_and_nothing_comes_from_elsewhere(small_site: Path, outlines, page: str):
    for link in outlines[page].links:
        parts = urlsplit(link)
        if parts.scheme == "https":
            assert re.fullmatch(
                r"https://(arxiv\.org/abs/\d{4}\.\d{4,5}|openreview\.net/forum\?id=[\w-]+)", link
            )
        elif parts.scheme == "data":
            assert link == "data:,"
        else:
            assert not parts.scheme and not parts.netloc
            path = (small_site / page).parent / parts.path if parts.path else small_site / page
            assert path.is_file(), link
            if parts.fragment and "=" not in parts.fragment:
                assert parts.fragment in read(path).ids, link


@pytest.mark.parametrize("page", PAGES)
def test_addresses_occur_in_links_only(small_site: Path, outlines, page: str):
    found = outlines[page]
    loaded = [script["src"] for script in found.all("script") if script.get("src")]
    loaded += [link["href"] for link in found.all("link")]
    assert all(re.fullmatch(r"(\.\./)?assets/[a-z]+\.(js|css)|data:,", address) for address in loaded)
    links = sum(link.startswith("https://") for link in found.links)
    # Outside libraries are named in the index of the search, as text.
    text = re.sub(
        r'<script type="application/json" id="index">.*?</script>', "", (small_site / page).read_text()
    )
    assert len(re.findall(r"https?://", text)) == links


@pytest.mark.parametrize("page", PAGES)
def test_pages_can_be_read_by_keyboard_and_ear(outlines, page: str):
    found = outlines[page]
    assert found.all("html")[0]["lang"] == "en"
    assert len(found.all("h1")) == len(found.all("main")) == len(found.all("title")) == 1
    levels = [int(name[1]) for name, _ in found.elements if re.fullmatch("h[1-6]", name)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert found.all("a")[0]["href"] == "#content"  # past the navigation
    labelled = {label["for"] for label in found.all("label")}
    assert {control["id"] for name in ("input", "select") for control in found.all(name)} == labelled
    assert all(header.get("scope") in ("row", "col") for header in found.all("th"))
    assert len(found.all("caption")) == len(found.all("table"))
    for name, attributes in found.elements:
        if "scroll" in (attributes.get("class") or "").split() or name == "pre":
            assert attributes["tabindex"] == "0"  # what scrolls can be reached
        if "plot" in (attributes.get("class") or "").split():
            assert attributes["role"] == "img" and attributes["aria-label"]


@pytest.mark.parametrize("page", PAGES)
def test_the_policy_lets_nothing_in(outlines, page: str):
    (policy,) = [m["content"] for m in outlines[page].all("meta") if "Policy" in (m.get("http-equiv") or "")]
    assert policy.startswith("default-src 'none'") and "unsafe-eval" not in policy
    assert "http" not in policy and "connect-src" not in policy


def test_the_front_page_lists_and_indexes_every_method(outlines):
    found = outlines["index.html"]
    assert [i for i in found.ids if i.startswith("method-")] == [
        f"method-{card}" for card in sorted(SMALL, key=lambda slug: (SMALL[slug][0], slug))
    ]
    index = json.loads(found.scripts[-1])
    assert {card["slug"] for card in index["cards"]} == set(SMALL)
    assert "theses apply table-distance --help" in found.text
    assert "from theses.graphs.metric_tree import run, check" in found.text


def test_the_table_has_verdicts_and_kinds(outlines):
    found = outlines["methods.html"]
    rows = [row for row in found.all("tr") if "data-have" in row]
    assert len(rows) == len(SMALL)
    (tree,) = [row for row in rows if row["data-package"] == "graphs"]
    assert tree["data-have"] == "points|strings" and tree["data-want"] == "tree|clusters"
    (nested,) = [row for row in rows if row["data-package"] == "lm|lm.inference"]
    assert set(nested["data-verdict"].split("|")) <= {"holds", "fails", "undecided"}
    assert "1\N{NO-BREAK SPACE}identity, 1\N{NO-BREAK SPACE}scaled" in found.text


def test_what_did_not_hold_is_explained_or_said_to_lack_it(tmp_path: Path):
    with catalogue(write_small(tmp_path / "cards")):
        snapshot = json.loads(snapshot_of(tmp_path / "e.json", cards()).read_text())["methods"]
        claims = {(slug, name): claim for slug, e in snapshot.items() for name, claim in e["claims"].items()}
        write_report(SnapshotSource(tmp_path / "e.json"), tmp_path / "site")
    found = read(tmp_path / "site" / "unheld.html")
    links = [link for link in found.links if "#claim-" in link]
    expected = {
        f"methods/{slug}.html#claim-{name}"
        for (slug, name), claim in claims.items()
        if claim["verdict"] in ("fails", "undecided")
    }
    assert set(links) == expected and len(links) == len(expected) > 0
    verdicts = [claim["verdict"] for claim in claims.values()]
    assert found.text.count("Why: The cases are too few.") == verdicts.count("fails") > 0
    assert found.text.count("Why: no explanation has been written") == verdicts.count("undecided") > 0
    assert f"Fails ({verdicts.count('fails')})" in found.text


def test_a_method_page_has_all_its_parts(outlines):
    text = outlines["methods/table-distance.html"].text
    for part in (
        "Distance between two labelled tables in near-linear time.",
        "The tables have no labels",
        "Exact optimal transport",
        "theses apply table-distance --help",
        "from theses.data.table_distance import run, check",
        "The paper: Table 1: 0.92",
        "metric_0 ≥ 0.5",
        "90 % interval",
        "Values",
        "Baseline",
        "POT",
        "equal to 1e-6",
        "12.5",
        "The size.",
        "1 of 3 values not finite",
        "The full size.",
        "It takes a cluster.",
        "0123456789abcdef",
        "numpy 2.4",
        "digits.csv",
        "theses reproduce table-distance --check docs/evidence.json",
    ):
        assert part in text, part


def test_a_method_without_measurements_says_so(tmp_path: Path):
    with catalogue(write_small(tmp_path / "cards")):
        write_report(SnapshotSource(write_snapshot(tmp_path / "e.json", {})), tmp_path / "site")
    found = read(tmp_path / "site" / "methods" / "row-coreset.html")
    assert "Nothing of this method has been measured yet." in found.text
    assert not found.all("figure") and not any("vega" in link for link in found.links)
    assert "No measured claim failed" in read(tmp_path / "site" / "unheld.html").text
    assert "not measured yet" in read(tmp_path / "site" / "index.html").text


#: Of a card and of an entry: what has a fixed form, or names a file.
KEPT = frozenset(
    {"slug", "package", "have", "want", "arxiv", "kind", "verdict", "bound", "aggregate", "values", "target"}
    | {"baseline_values", "interval", "preset", "api", "carriers"}
)


def test_nothing_from_cards_or_snapshots_becomes_markup(tmp_path: Path):
    with catalogue(write_small(tmp_path / "cards")):
        card = poisoned(cards()[0], KEPT)
        entry = poisoned(published_entry(cards()[0], random.Random(1)), KEPT)
        entry["environment"][f"key {entry['revision']}"] = "value"
        entry["claims"] = {f"{name} {entry['revision']}": claim for name, claim in entry["claims"].items()}
        card = dataclasses.replace(card, api=("theses.<marquee>x</marquee>:<marquee>",))
        path = write_snapshot(tmp_path / "e.json", {card.slug: entry})
        write_report(SnapshotSource(path), tmp_path / "site", [card])
    for page in sorted((tmp_path / "site").rglob("*.html")):
        found = read(page)  # fails on comments and whatever is not balanced
        assert not found.all("img") and not found.all("marquee")
        for name, attributes in found.elements:
            assert not any(attribute.startswith("on") for attribute in attributes), attributes
            if name == "script":
                assert attributes.get("type") == "application/json" or str(attributes["src"]).endswith(".js")
        for script in found.scripts:
            json.loads(script)
            assert "<" not in script
        assert "window.hit=1" in found.text


def test_fragments_of_claims_survive_odd_names(tmp_path: Path):
    with catalogue(write_small(tmp_path / "cards")):
        card = cards()[0]
        odd = dataclasses.replace(card.claims[0], id='C 1/"2"')
        card = dataclasses.replace(card, claims=(odd,))
        write_report(SnapshotSource(write_snapshot(tmp_path / "e.json", {})), tmp_path / "site", [card])
    found = read(tmp_path / "site" / "methods" / f"{card.slug}.html")
    assert "claim-C-1-2-" in found.ids
    assert "#claim-C-1-2-" in [unquote(link) for link in found.links]


# ---------------------------------------------------------------- words


def test_words():
    assert number(float("inf")) == "infinite" and number(-0.5) == "−0.5"
    assert bound("< 1e-9") == "< 1e−9"
    assert counts({"not measured": 3}) == counts({}) == "not measured yet"
    assert counts({"holds": 2, "not measured": 1}) == "2 hold, 1 not measured"
    values = (Replicate(1.0), Replicate(2.0), Replicate(float("nan")))
    assert replicates(values) == "1 of 3 values not finite"
    assert replicates(values[:2], "worst") == "1 to 2 in 2 values"
    assert replicates(values[:1]) == "mean 1 of 1 value" and replicates(()) == "no value"
    assert spread(values) == "1 to 2" and spread(values[:1]) == "1" and spread(values[2:]) == "no number"
    assert seconds(None) == "unknown" and seconds(90.0) == "90 s" and seconds(150.0) == "2.5 minutes"
    assert moment("2026-11-30T19:11:53+02:00") == "2026-11-30 17:11 UTC" and moment("lately") == "lately"
    assert moment("2026-11-30T10:00:00") == "2026-11-30 10:00 UTC"


def test_an_infinite_interval_is_not_written_out():
    from theses.report.records import CheckRecord

    infinite = (float("-inf"), float("inf"))
    check = CheckRecord("m", ">= 1", "mean", "undecided", (Replicate(1.5, 0),), interval=infinite)
    assert measured(check) == "mean 1.5 of 1 value"
