"""The documentation site, built once without a network, and the functions that make its pages."""

from __future__ import annotations

import json
import os
import pkgutil
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from docutils.core import publish_doctree  # type: ignore[import-untyped]
from docutils.utils.math import MathError  # type: ignore[import-untyped]
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

import theses.studies
from docs._ext import members, pages, rst
from docs._ext.markdown import markdown_nodes
from docs._ext.mathml import to_mathml
from tests.catalogue.generated import SMALL, catalogue, write_small
from tests.report.browser import CHROMIUM, Browser, chromium
from tests.report.made import ATTACK, poisoned, published_entry, write_snapshot
from tests.report.test_browser import DESKTOP, LOW_CONTRAST, PHONE
from tests.report.test_pages import KEPT
from theses.catalogue import HAVE, WANT, Card, cards, lookup
from theses.catalogue.published import published
from theses.cli import _COMMANDS
from theses.report import SnapshotSource

ROOT = Path(__file__).parents[1]
CARDS = cards()
slugs = pytest.mark.parametrize("card", CARDS, ids=lambda card: card.slug)

#: Attributes through which a page loads something, as against links that a reader follows.
LOADS = {"src", "srcset", "poster", "data", "action", "background"}


@dataclass
class Page:
    """What a page holds that a test asks for."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    words: str = ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.page.elements.append((tag, values))
        self.hidden += tag in ("script", "style")
        if values.get("id"):
            self.page.ids.add(str(values["id"]))
        if tag == "a" and values.get("href"):
            self.page.links.append(str(values["href"]))
        if tag == "link" and values.get("rel") not in ("index", "search", "next", "prev", "copyright"):
            self.page.loads.append(str(values["href"]))
        self.page.loads += [str(value) for name, value in attrs if name in LOADS and value]

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.page.words += data


def read(path: Path) -> Page:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.page.words = spaced(reader.page.words)
    return reader.page


def spaced(text: str) -> str:
    return " ".join(text.replace("`", "").split())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; any warning of its build is an error, and so is whatever asks for another machine."""
    folder = tmp_path_factory.mktemp("docs")
    options = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(folder / "doctrees")]
    # A proxy that is not there stands between the build and every network.
    closed = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(folder / "html")],
        capture_output=True,
        text=True,
        env={**os.environ, **closed, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def read_pages(site: Path) -> dict[Path, Page]:
    return {path: read(path) for path in sorted(site.rglob("*.html"))}


def test_every_link_leads_somewhere(site: Path, read_pages: dict[Path, Page]):
    broken = []
    for path, page in read_pages.items():
        for link in page.links:
            if re.match(r"(https?|mailto):", link):
                continue
            address, _, fragment = unquote(link).partition("#")
            target = (path.parent / address).resolve() if address else path
            if target not in read_pages or (fragment and fragment not in read_pages[target].ids):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path, read_pages: dict[Path, Page]):
    for path, page in read_pages.items():
        assert page.loads, path
        for address in page.loads:
            assert not re.match(r"(\w+:)?//|\w+:(?!//)(?<!data:)", address), (path, address)
            file = address.partition("?")[0].partition("#")[0] or path.name
            assert address.startswith("data:") or (path.parent / file).is_file(), (path, address)
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert not re.search(r"@import|url\(\s*['\"]?(https?:)?//", text), style


@slugs
def test_a_method_has_its_page(card: Card, site: Path):
    page = read(site / "methods" / f"{card.slug}.html")
    for text in (card.name, card.summary, card.use_when, card.not_when, card.instead_of, card.paper.title):
        assert spaced(text).rstrip(".") in page.words
    told = [item.statement for item in card.observations] + [item.statement for item in card.out_of_reach]
    for text in (*card.deviations, *told):
        assert spaced(text) in page.words
    code = re.sub(r"\s", "", page.words)
    path = Path(*card.package.split("."), card.slug.replace("-", "_") + ".py")
    for line in (ROOT / "examples" / path).read_text(encoding="utf-8").splitlines():
        assert re.sub(r"[\s`]", "", line) in code, line
    assert f"theses start {card.slug}" in page.words
    assert (f"theses apply {card.slug}" in page.words) is bool(card.apply)


@slugs
def test_a_claim_stands_there_with_its_published_verdict(card: Card, site: Path):
    html = (site / "methods" / f"{card.slug}.html").read_text(encoding="utf-8")
    page = read(site / "methods" / f"{card.slug}.html")
    entry = published(ROOT / "docs" / "evidence.json").get(card.slug, {"claims": {}})
    for claim in card.claims:
        _, found, rest = html.partition(f'id="{pages.claim_name(card, claim.id)}"')
        assert found, claim.id
        measured = entry["claims"].get(claim.id)
        verdict = measured["verdict"] if measured else "not measured"
        assert re.search(r'class="verdict v-[\w-]+">\S+ ([\w ]+)<', rest)[1] == verdict, claim.id  # type: ignore[index]
        assert re.search(r'class="evidence">([\w-]+)<', rest)[1] == claim.kind, claim.id  # type: ignore[index]
        for text in (claim.statement, claim.paper, claim.explanation):
            assert spaced(text) in page.words
        for check in claim.checks:
            assert check.metric in page.words
        unheld = read(site / "evidence.html")
        link = f"methods/{card.slug}.html#{pages.claim_name(card, claim.id)}"
        assert (link in unheld.links) is (verdict in ("fails", "undecided", "unjudged"))


@slugs
def test_public_names_can_be_linked_to(card: Card, site: Path):
    page = read(site / "methods" / f"{card.slug}.html")
    for entry in card.api:
        assert entry.replace(":", ".") in page.ids
    assert not [name for name in page.ids if name.count("theses.") > 1]


@pytest.mark.parametrize("side", ["want", "have"])
def test_the_front_page_leads_to_every_method_by_its_kinds(side: str, site: Path):
    front = read(site / "index.html")
    for kind in WANT if side == "want" else HAVE:
        methods = [card for card in CARDS if kind in getattr(card, side)]
        if side == "have":
            assert (f"have-{pages.kind_slug(kind)}" in front.ids) is bool(methods)
            continue
        path = site / "want" / f"{pages.kind_slug(kind)}.html"
        assert path.is_file() is bool(methods)
        if not methods:
            assert f"{kind}, {WANT[kind]}" in front.words
            continue
        assert f"want/{path.name}" in front.links
        page = read(path)
        for card in methods:
            assert f"methods/{card.slug}.html" in front.links
            assert f"../methods/{card.slug}.html" in page.links
            for text in (card.summary, card.use_when, card.not_when, card.instead_of):
                assert spaced(text) in page.words
            assert f"theses start {card.slug}" in page.words


@pytest.mark.parametrize("name", _COMMANDS)
def test_a_command_has_its_page(name: str, site: Path):
    page = read(site / "commands" / f"{name}.html")
    done = subprocess.run(
        [sys.executable, "-m", "theses", name, "--help"], capture_output=True, text=True, check=True
    )
    options = set(re.findall(r"^ {2}(--[\w-]+)", done.stdout, re.M))
    assert "--help" in options
    assert options <= set(re.findall(r"--[\w-]+", page.words))
    assert spaced(done.stdout.split("\n\n")[1]) in page.words


def test_every_shared_room_has_a_page(site: Path):
    rooms = {m.name for m in pkgutil.iter_modules(theses.__path__) if not m.name.startswith("_")}
    # Each package of methods has one of studies beside it.
    rooms -= {m.name for m in pkgutil.iter_modules(theses.studies.__path__)} | {"cli", "report", "studies"}
    assert rooms <= set(pages.ROOMS), "docs/_ext/pages.py: a room without a title"
    for room in rooms:
        assert f"module-theses.{room}" in read(site / "reference" / f"{room}.html").ids


def test_the_pages_of_contributors_are_those_of_the_checkout(site: Path):
    page = read(site / "contributing.html")
    for heading in re.findall(r"^#+ (.+)$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M):
        assert heading in page.words


def test_formulas_are_mathml_and_nothing_else(site: Path, read_pages: dict[Path, Page]):
    names = [name for page in read_pages.values() for name, _ in page.elements]
    assert names.count("math") > 10
    assert not list(site.rglob("*mathjax*")) and not list(site.rglob("_images/math*"))


def test_every_card_is_a_page_without_an_entry_elsewhere(tmp_path: Path):
    with catalogue(write_small(tmp_path)):
        written = pages.all_pages()
    for slug, (_, name, _, summary, have, want, *_) in SMALL.items():
        text = written[f"methods/{slug}"]
        assert name in text and summary.split(".")[0] in text
        assert all(kind in text for kind in have)
        for kind in want:
            assert f"methods/{slug}" in written[f"want/{pages.kind_slug(kind)}"]
        # One place in the navigation, whatever the method is wanted for.
        assert sum(f"\n   /methods/{slug}\n" in page for page in written.values()) == 1
    assert "automodule:: theses.lm.inference." in "".join(written.values())


def test_pages_that_are_no_more_go_and_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    app = type("App", (), {"srcdir": tmp_path})()
    monkeypatch.setattr(pages, "all_pages", lambda: {"methods/one": "One", "want/two": "Two"})
    pages.write_pages(app)
    before = (tmp_path / "want" / "two.rst").stat().st_mtime_ns
    monkeypatch.setattr(pages, "all_pages", lambda: {"want/two": "Two"})
    pages.write_pages(app)
    assert [path.name for path in tmp_path.rglob("*.rst")] == ["two.rst"]
    assert (tmp_path / "want" / "two.rst").stat().st_mtime_ns == before


def test_nothing_of_a_card_becomes_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    evil = f"{ATTACK} |x| `y`_ *z* :doc:`/index` .. raw:: html"
    card = poisoned(lookup("metric-mst"), KEPT | {"extras", "study_extras", "apply"}, evil)
    entry = poisoned(published_entry(lookup("metric-mst"), random.Random(1)), KEPT, evil)
    entry["claims"] = dict(zip((c.id for c in card.claims), entry["claims"].values(), strict=True))
    snapshot = write_snapshot(tmp_path / "evidence.json", {card.slug: entry})
    source = tmp_path / "docs"
    source.mkdir()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (source / "conf.py").write_text(
        "extensions = ['sphinx.ext.autodoc', 'docs._ext']\nhtml_theme = 'basic'\n"
    )
    (source / "index.rst").write_text(
        "Front\n=====\n\n.. overview:: finder\n\n.. overview:: counts\n\n.. overview:: unheld\n"
    )
    (source / "evidence.rst").write_text(":orphan:\n\nEvidence\n========\n")
    found = [SnapshotSource(snapshot).record(card)]
    monkeypatch.setattr(pages, "records", lambda: found)
    monkeypatch.setattr(pages, "room_page", lambda room: ":orphan:\n\nRoom\n====\n")
    monkeypatch.setattr(pages, "command_pages", dict)
    monkeypatch.setattr(pages, "_reference", lambda card: "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    warnings = (tmp_path / "warnings").open("w+", encoding="utf-8")
    app = Sphinx(source, source, tmp_path / "html", tmp_path / "trees", "html", status=None, warning=warnings)
    app.build()
    warnings.seek(0)
    assert warnings.read() == ""
    for name in ("index.html", f"methods/{card.slug}.html", "want/tree.html"):
        page = read(tmp_path / "html" / name)
        assert page.words.count("window.hit=1") >= 2
        assert not [tag for tag, _ in page.elements if tag == "img"]
        assert page.words.count(":doc:/index .. raw:: html") >= 2
    shutil.rmtree(tmp_path / "html")


@given(
    st.text(st.characters(exclude_categories=("Cc", "Cs", "Co", "Cn"), exclude_characters="`"), max_size=40)
)
@example("1. one")
@example("- x")
@example("(a) x")
@example("x::")
@example("A. B. Author")
@example(".. note:: x")
@example("| x")
@example(">>> x")
@example("=====")
@example("[1]_ and a_ and __")
@example("a@b.org, https://example.org/a_b")
@example("+---+")
@settings(deadline=None, max_examples=150)
def test_text_stays_text(text: str):
    (paragraph,) = publish_doctree(rst.escape(text) or "x", settings_overrides={"report_level": 5}).children
    assert paragraph.tagname == "paragraph"
    assert paragraph.astext() == (" ".join(text.split()) or "x")


def test_code_between_backticks_stays_code():
    tree = publish_doctree(rst.escape("the preset `paper`s *x* `a_b`"))
    assert [node.astext() for node in tree.findall() if node.tagname == "literal"] == ["paper", "a_b"]
    assert tree.astext() == "the preset papers *x* a_b"


@pytest.mark.parametrize(
    ("latex", "block", "wanted"),
    [
        (r"\sqrt n", False, "<msqrt>"),
        (r"\Big( x \Big)", False, "<mo"),
        (r"\sum_{i=1}^n x_i", True, 'display="block"'),
        (r"a &= b \\ c &= d", True, "<mtr>"),
    ],
)
def test_mathml(latex: str, block: bool, wanted: str):
    assert wanted in to_mathml(latex, block=block)


def test_unknown_commands_of_formulas_are_refused():
    with pytest.raises(MathError, match="nosuch"):
        to_mathml(r"\nosuch x", block=False)


def test_markdown():
    text = "# A\n\nb *c* **d** `e` [f](https://x.org) [g](h.md)\n\n## I\n\n"
    text += "| j | k |\n|---|---|\n| l | m |\n\n    n\n\n1. o\n"
    (top,) = markdown_nodes(text)
    assert top.tagname == "section" and top["ids"] == ["a"]
    found = [node.tagname for node in top.findall()]
    for name in ("emphasis", "strong", "literal", "table", "literal_block", "enumerated_list", "section"):
        assert name in found
    assert [node["refuri"] for node in top.findall() if node.tagname == "reference"] == ["https://x.org"]
    with pytest.raises(ValueError, match="html_block"):
        markdown_nodes("<div>x</div>")


@pytest.mark.parametrize(
    ("target", "module", "known"),
    [
        ("numpy.ndarray", None, True),
        ("theses.evidence.codec.encode", None, True),
        ("exact_mst", "theses.graphs.metric_mst", True),
        ("exact_nst", "theses.graphs.metric_mst", None),
        ("theses.graphs.no_such", None, None),
        ("nowhere.at.all", None, None),
        ("ndarray", None, None),
    ],
)
def test_names_that_mean_nothing_are_complained_about(target: str, module: str | None, known: bool | None):
    node = pending_xref("", refdomain="py", reftarget=target, **{"py:module": module})
    assert members.is_known(None, None, node) is known  # type: ignore[arg-type]


def test_published_file_is_no_page(site: Path):
    assert json.loads((ROOT / "docs" / "evidence.json").read_text(encoding="utf-8"))["methods"]
    assert not list(site.glob("_sources/**/*.*")) and not list(site.rglob("evidence.json"))


looked_at = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def clean(browser: Browser) -> bool:
    outside = [address for address in browser.requests if not address.startswith(("file:", "data:"))]
    return browser.complaints == [] and outside == []


@looked_at
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_fit_and_can_be_read(site: Path, browser: Browser, size: tuple[int, int], dark: bool):
    browser.resize(*size, dark=dark)
    card = CARDS[0]
    for name in (
        "index",
        f"methods/{card.slug}",
        f"want/{pages.kind_slug(card.want[0])}",
        "install",
        "evidence",
        "commands/reproduce",
        "reference/datasets",
        "contributing",
    ):
        browser.open(site / f"{name}.html")
        assert browser.evaluate("document.documentElement.scrollWidth") <= size[0], name
        assert browser.evaluate(LOW_CONTRAST) == [], name
        assert clean(browser), (name, browser.complaints, browser.requests)


@looked_at
def test_formulas_are_drawn(site: Path, browser: Browser):
    browser.resize(*DESKTOP)
    browser.open(site / "methods" / "metric-mst.html")
    assert browser.evaluate("document.querySelector('msqrt').getBoundingClientRect().width") > 5


@looked_at
@slugs
def test_the_search_works_without_a_server(card: Card, site: Path, browser: Browser):
    browser.resize(*DESKTOP)
    browser.open(site / "search.html", f"?q={card.api[0].partition(':')[2]}")
    browser.wait_for("document.querySelectorAll('#search-results li a').length > 0")
    links = browser.evaluate("[...document.querySelectorAll('#search-results li a')].map((a) => a.href)")
    assert any(f"methods/{card.slug}.html" in link for link in links)
    assert clean(browser), (browser.complaints, browser.requests)
