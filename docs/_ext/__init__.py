"""Sphinx extension of this site: pages made of the catalogue, formulas as MathML, Markdown files.

When a build begins, the pages that come out of the catalogue are written into folders of their own below
``docs/``, which git ignores: one a method, one a kind of thing that somebody wants, one a shared room of the
library, one a command. A new card is a new page with nothing else to edit.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from docs._ext import directives, mathml, members, pages
from docs._ext.markdown import MarkdownFile

__all__ = ["setup"]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register everything with Sphinx."""
    app.connect("builder-inited", pages.write_pages)
    app.connect("autodoc-skip-member", members.skip_foreign)
    app.connect("missing-reference", members.resolve)
    app.connect("warn-missing-reference", members.is_known)
    app.add_directive("markdown", MarkdownFile)
    directives.register(app)
    mathml.register(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
