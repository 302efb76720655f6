"""Directives and roles of the pages: ``public``, ``collapse``, ``overview``, ``verdict`` and ``evidence``."""

from __future__ import annotations

import html
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import ClassVar, Final

from docutils import nodes  # type: ignore[import-untyped]
from docutils.parsers.rst import directives  # type: ignore[import-untyped]
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

from docs._ext import pages
from docs._ext.members import comment_of, public_names
from docs._ext.rst import definitions, directive, escape, join
from theses.catalogue import CLAIM_KINDS
from theses.report.words import GLYPHS, VERDICT_MEANINGS

__all__ = ["register"]


class Public(SphinxDirective):
    """Everything public of a module: ``.. public:: MODULE``; the module is imported when its page is read."""

    required_arguments = 1
    option_spec: ClassVar = {"first": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """A table of the names, then each with its docstring."""
        module = importlib.import_module(self.arguments[0])
        names = public_names(module)
        parent = importlib.import_module(module.__name__.rpartition(".")[0])
        given = [
            name
            for name in (getattr(parent, "__all__", ()) if parent.__name__ != "theses" else ())
            if name in names and getattr(parent, name) is getattr(module, name)
        ]
        order = [name for name in self.options.get("first", "").split() if name in names]
        order += [name for name in names if name not in order and name not in given]
        if not order:
            return []
        told = [name for name in order if names[name] != "data"]
        text = join(
            directive("currentmodule", module.__name__),
            directive("autosummary", "", "\n".join(told), nosignatures="") if len(told) > 1 else "",
            *(_describe(module, name, names[name]) for name in order),
        )
        return self.parse_text_to_nodes(text)


def _describe(module: ModuleType, name: str, kind: str) -> str:
    full = f"{module.__name__}.{name}"
    if kind == "data":
        return directive("py:data", name, comment_of(module, name), module=module.__name__)
    return directive(f"auto{kind}", full, **({"members": ""} if kind == "class" else {}))


class Collapse(SphinxDirective):
    """Content that opens when its title is clicked."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        """The content between the ends of a ``details`` element."""
        title = html.escape(self.arguments[0])
        return [
            nodes.raw("", f'<details class="collapse"><summary>{title}</summary>', format="html"),
            *self.parse_content_to_nodes(),
            nodes.raw("", "</details>", format="html"),
        ]


_OVERVIEWS: Final[dict[str, Callable[[], str]]] = {
    "finder": lambda: pages.finder(pages.records()),
    "commands": pages.commands,
    "extras": lambda: pages.extras(pages.records()),
    "counts": lambda: pages.verdict_counts(pages.records()),
    "unheld": lambda: pages.unheld(pages.records()),
    "verdicts": lambda: definitions(
        (f":verdict:`{verdict}`", escape(meaning)) for verdict, meaning in VERDICT_MEANINGS.items()
    ),
    "kinds": lambda: definitions(
        (f":evidence:`{kind}`", escape(f"{meaning[0].upper()}{meaning[1:]}."))
        for kind, meaning in CLAIM_KINDS.items()
    ),
}


class Overview(SphinxDirective):
    """What comes out of all cards together: ``.. overview:: finder`` and its like."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Nodes of the text."""
        self.env.note_reread()
        return self.parse_text_to_nodes(_OVERVIEWS[self.arguments[0]](), allow_section_headings=True)


class Verdict(SphinxRole):
    """Verdict with its sign, so that colour alone never says it."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """A span whose colour the style sheet gives."""
        classes = ["verdict", f"v-{self.text.replace(' ', '-')}"]
        return [nodes.inline(self.rawtext, f"{GLYPHS[self.text]} {self.text}", classes=classes)], []


class Evidence(SphinxRole):
    """Kind of evidence."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """A span."""
        return [nodes.inline(self.rawtext, self.text, classes=["evidence"])], []


def register(app: Sphinx) -> None:
    """Register all of them."""
    app.add_directive("public", Public)
    app.add_directive("collapse", Collapse)
    app.add_directive("overview", Overview)
    app.add_role("verdict", Verdict())
    app.add_role("evidence", Evidence())
