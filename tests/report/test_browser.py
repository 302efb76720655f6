"""The pages in a real browser, opened as files."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.catalogue.generated import SMALL, catalogue, write_small
from tests.report.browser import CHROMIUM, Browser, chromium
from tests.report.made import poisoned, published_entry, write_snapshot
from tests.report.test_pages import KEPT
from theses.catalogue import cards
from theses.catalogue.search import THRESHOLD, outside_for, rank
from theses.report import SnapshotSource, write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

METHOD = "methods/table-distance.html"
PAGES = ["index.html", "methods.html", "unheld.html", METHOD]
PHONE, DESKTOP = (390, 844), (1280, 900)

ALL_DRAWN = "document.querySelectorAll('.plot').length === document.querySelectorAll('.plot svg').length"
DRAW_ALL = "void window.dispatchEvent(new Event('beforeprint'))"

#: Texts whose contrast with what is behind them is below 4.5, or 3 where they are large.
LOW_CONTRAST = """
(() => {
  const channel = (c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const rgba = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = rgba(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const node of document.querySelectorAll("body *:not(script):not(svg *)")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !node.checkVisibility() || node.closest(".unseen, .skip")) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(rgba(style.color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) low.push([node.outerHTML.slice(0, 80), ratio]);
  }
  return low;
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest):
    """No test may leave an error in the console or have asked for anything outside the report."""
    yield
    if "browser" in request.fixturenames:
        browser: Browser = request.getfixturevalue("browser")
        assert browser.complaints == []
        assert [a for a in browser.requests if not a.startswith(("file:", "data:"))] == []


def enter(browser: Browser, control: str, value: str) -> None:
    browser.evaluate(
        f"(() => {{ const c = document.getElementById({json.dumps(control)}); c.value = {json.dumps(value)};"
        " c.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def shown(browser: Browser) -> list[str]:
    return browser.evaluate(
        "[...document.querySelectorAll('#results > li')].filter((item) => !item.hidden)"
        ".map((item) => item.id.slice('method-'.length))"
    )


def text(browser: Browser, selector: str) -> str:
    return browser.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_fits_and_can_be_read(
    small_site: Path, browser: Browser, size: tuple[int, int], dark: bool
):
    browser.resize(*size, dark=dark)
    for page in PAGES:
        browser.open(small_site / page)
        browser.evaluate(DRAW_ALL)
        browser.wait_for(ALL_DRAWN)
        assert browser.evaluate("document.documentElement.scrollWidth") <= size[0], page
        assert browser.evaluate(LOW_CONTRAST) == [], page
        assert browser.requests and browser.complaints == [], page


QUESTIONS = [
    "distance between two labelled data sets",
    "upper bound on risk from held-out losses",
    "spanning tree of strings",
    "kv cache of an llm",
    "next event of a point process",
    "spaning tree of strings",
    "how do I bake bread",
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_search_ranks_as_theses_find_does(small_site: Path, browser: Browser, tmp_path, question: str):
    browser.open(small_site / "index.html")
    enter(browser, "words", question + " ")
    with catalogue(write_small(tmp_path / "cards")):
        matches = [match for match in rank(cards(), question) if match.score >= THRESHOLD]
    assert shown(browser) == [match.card.slug for match in matches]
    for match in matches[:1]:
        assert f"you said {', '.join(match.words)}" in text(browser, f"#method-{match.card.slug} .because")
    if not matches:
        assert text(browser, "#found") == "None of 10 methods fits."
    other = outside_for(question)
    assert browser.evaluate("document.getElementById('outside').hidden") is (other is None)
    if other is not None:
        assert other.library in text(browser, "#outside")


def test_the_search_follows_what_is_typed_and_starts_again(small_site: Path, browser: Browser):
    browser.open(small_site / "index.html")
    everything = shown(browser)
    assert len(everything) == len(SMALL)
    enter(browser, "words", "spann")
    assert shown(browser) == ["metric-tree"]
    enter(browser, "words", "")
    assert sorted(shown(browser)) == sorted(everything)
    enter(browser, "have", "losses")
    enter(browser, "want", "guarantee")
    assert shown(browser) == ["quadrature-bound"]
    enter(browser, "want", "tree")
    assert shown(browser) == [] and text(browser, "#outside").startswith("Use instead: ")
    browser.evaluate("document.querySelector('#finder button').click()")
    browser.wait_for("document.querySelectorAll('#results > li:not([hidden])').length === 10")
    assert shown(browser) == everything
    assert browser.evaluate("document.getElementById('outside').hidden")


def test_a_kind_leads_to_the_methods_that_have_it(small_site: Path, browser: Browser):
    browser.open(small_site / METHOD)
    address = browser.evaluate("document.querySelector('.kinds a').getAttribute('href')")
    assert address == "../index.html#have=two%20tables"
    browser.open(small_site / "index.html", "#have=two%20tables")
    assert shown(browser) == ["table-distance"]
    assert text(browser, "#found") == "1 method"


def test_filters_of_the_table(small_site: Path, browser: Browser):
    browser.open(small_site / "methods.html")

    def rows() -> list[str]:
        return browser.evaluate(
            "[...document.querySelectorAll('#methods tbody tr')].filter((row) => !row.hidden)"
            ".map((row) => row.querySelector('a').textContent)"
        )

    assert len(rows()) == 10 and text(browser, "#shown") == "10 of 10 methods"
    enter(browser, "have", "table")
    assert sorted(rows()) == ["BQ conformal", "ProxyCum", "RidgeCore"]
    enter(browser, "package", "causal")
    assert rows() == ["ProxyCum"] and text(browser, "#shown") == "1 of 10 methods"
    enter(browser, "have", "")
    enter(browser, "package", "lm")
    assert rows() == ["KVSqueeze"]
    enter(browser, "package", "")
    enter(browser, "want", "clusters")
    assert rows() == ["MFC"]
    enter(browser, "want", "")
    by_verdict = {}
    for verdict in ("holds", "fails", "undecided"):
        enter(browser, "verdict", verdict)
        by_verdict[verdict] = set(rows())
    verdicts = browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#methods tbody tr')]"
        ".map((row) => [row.querySelector('a').textContent, row.dataset.verdict]))"
    )
    for verdict, found in by_verdict.items():
        assert found == {name for name, has in verdicts.items() if verdict in has.split("|")}
    browser.open(small_site / "methods.html", "#verdict=fails")
    assert set(rows()) == by_verdict["fails"]


def test_charts_are_drawn_when_near_and_follow_the_colour_scheme(small_site: Path, browser: Browser):
    browser.resize(*DESKTOP)
    browser.open(small_site / METHOD)
    browser.evaluate("document.querySelector('.plot').scrollIntoView({behavior: 'instant'})")
    browser.wait_for("document.querySelector('.plot svg')")
    # A frame, the axis, three values on either side, the bound and its end: more than an empty picture.
    assert browser.evaluate("document.querySelectorAll('.plot svg')[0].querySelectorAll('path').length") >= 8

    def fill() -> str:
        return browser.evaluate(
            "document.querySelector('.plot svg .role-axis-label text').getAttribute('fill')"
        )

    light = fill()
    browser.resize(*DESKTOP, dark=True)
    browser.wait_for(
        f"document.querySelector('.plot svg .role-axis-label text')?.getAttribute('fill') !== {light!r}"
    )
    browser.wait_for("document.querySelector('.plot svg .role-axis-label text')")
    assert fill() == browser.evaluate(
        "getComputedStyle(document.documentElement).getPropertyValue('--ink').trim()"
    )


def test_the_keyboard_reaches_the_content_first(small_site: Path, browser: Browser):
    browser.resize(*DESKTOP)
    browser.open(small_site / "index.html")
    browser.press("Tab")
    assert text(browser, ":focus") == "Skip to the content"
    assert browser.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)") >= 2
    assert browser.evaluate("document.activeElement.getBoundingClientRect().width") > 50
    browser.press("Enter")
    browser.wait_for("document.activeElement.id === 'content'")
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.id") == "have"
    assert browser.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)") >= 2


def test_commands_can_be_copied(small_site: Path, browser: Browser):
    browser.open(small_site / METHOD)
    browser.evaluate("document.querySelector('.copy button').click()")
    browser.wait_for("/Copied|Selected/.test(document.querySelector('.copy button').textContent)")


def test_nothing_of_a_card_runs(browser: Browser, tmp_path: Path):
    with catalogue(write_small(tmp_path / "cards")):
        card = poisoned(cards()[0], KEPT)
        entry = poisoned(published_entry(cards()[0], random.Random(1)), KEPT)
        write_report(
            SnapshotSource(write_snapshot(tmp_path / "e.json", {card.slug: entry})), tmp_path / "site", [card]
        )
    for page in ("index.html", "methods.html", "unheld.html", f"methods/{card.slug}.html"):
        browser.open(tmp_path / "site" / page)
        browser.evaluate(DRAW_ALL)
        browser.wait_for(ALL_DRAWN)
        if page == "index.html":
            enter(browser, "words", "table distance")
        assert browser.evaluate("window.hit") is None
        assert browser.evaluate("document.images.length") == 0
        assert browser.complaints == []


def test_a_chart_that_asks_for_an_address_gets_nothing(small_site: Path, browser: Browser, tmp_path: Path):
    page = (small_site / METHOD).read_text(encoding="utf-8")
    first = page.index('<script type="application/json" class="spec">')
    start, end = page.index(">", first) + 1, page.index("</script>", first)
    spec = {"data": {"url": (tmp_path / "secret.json").as_uri()}, "mark": "point"}
    changed = small_site / "methods" / "changed.html"
    changed.write_text(page[:start] + json.dumps(spec) + page[end:], encoding="utf-8")
    (tmp_path / "secret.json").write_text("[]")
    try:
        browser.open(changed)
        browser.evaluate(DRAW_ALL)
        browser.wait_for("document.querySelector('.plot').textContent || document.querySelector('.plot svg')")
        assert not any("secret" in address for address in browser.requests)
    finally:
        changed.unlink()
        browser.complaints.clear()  # that it was refused is said in the console


def test_without_scripts_everything_is_there(small_site: Path, browser: Browser):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(small_site / "index.html")
        browser.screenshot(small_site.parent / "no-script.png")
        height = browser.call("Page.getLayoutMetrics")["cssContentSize"]["height"]
        assert height > 10 * 100  # ten methods, one below the other
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
