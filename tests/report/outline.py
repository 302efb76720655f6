"""A strict reader of pages: what a browser would silently mend is an error here."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

VOID = {"br", "hr", "img", "input", "link", "meta"}
#: Elements that end a paragraph in which they stand, whatever its author meant.
BLOCKS = {
    "p",
    "div",
    "dl",
    "ul",
    "ol",
    "table",
    "figure",
    "section",
    "article",
    "pre",
    "form",
    "h1",
    "h2",
    "h3",
}


@dataclass
class Outline:
    """Elements with their attributes, and the ids, links and texts of a page."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    text: str = ""

    def all(self, name: str) -> list[dict[str, str | None]]:
        """Attributes of each element of a name."""
        return [attributes for element, attributes in self.elements if element == name]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.outline = Outline()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        if tag in BLOCKS:
            assert "p" not in self.open, f"<{tag}> inside <p>"
        if tag in ("a", "button"):
            assert not {"a", "button"} & set(self.open), f"<{tag}> inside a control"
        attributes = dict(attrs)
        self.outline.elements.append((tag, attributes))
        if attributes.get("id") is not None:
            self.outline.ids.append(str(attributes["id"]))
        for name in ("href", "src"):
            if attributes.get(name) is not None:
                self.outline.links.append(str(attributes[name]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.outline.scripts.append(data)
        else:
            self.outline.text += data


def read(path: Path) -> Outline:
    """Outline of a page; an assertion fails if it is not well formed."""
    reader = _Reader()
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>\n")
    reader.feed(text)
    reader.close()
    assert not reader.open, f"never closed: {reader.open}"
    outline = reader.outline
    doubled = {name for name in outline.ids if outline.ids.count(name) > 1}
    assert not doubled, f"ids used twice: {doubled}"
    return outline
