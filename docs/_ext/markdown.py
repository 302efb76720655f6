"""Markdown files of the repository as pages, by the parser that comes with Rich: ``.. markdown:: FILE``."""

from __future__ import annotations

from pathlib import Path

from docutils import nodes  # type: ignore[import-untyped]
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from sphinx.util.docutils import SphinxDirective

__all__ = ["MarkdownFile", "markdown_nodes"]

_WRAPPERS = {
    "paragraph": nodes.paragraph,
    "bullet_list": nodes.bullet_list,
    "ordered_list": nodes.enumerated_list,
    "list_item": nodes.list_item,
    "strong": nodes.strong,
    "em": nodes.emphasis,
    "blockquote": nodes.block_quote,
}


def markdown_nodes(text: str) -> list[nodes.Node]:
    """Nodes of a Markdown text, its headings as nested sections.

    Parameters
    ----------
    text : str
        CommonMark with tables.

    Returns
    -------
    list of docutils.nodes.Node
        The top level.

    Raises
    ------
    ValueError
        If the text has something that is not translated, such as HTML or a picture.
    """
    top = nodes.container()
    sections: list[tuple[int, nodes.Element]] = [(0, top)]
    for token in SyntaxTreeNode(MarkdownIt("commonmark").enable("table").parse(text)).children:
        if token.type == "heading":
            level = int(token.tag[1:])
            while sections[-1][0] >= level:
                sections.pop()
            title = nodes.title("", "", *_inline(token.children[0]))
            name = nodes.fully_normalize_name(title.astext())
            section = nodes.section("", title, ids=[nodes.make_id(name)], names=[name])
            sections[-1][1].append(section)
            sections.append((level, section))
        else:
            sections[-1][1].append(_block(token))
    return list(top.children)


def _block(token: SyntaxTreeNode) -> nodes.Element:
    if token.type in ("fence", "code_block"):
        code = token.content.rstrip("\n")
        return nodes.literal_block(code, code, language=token.info.strip() or "none")
    if token.type == "table":
        return _table(token)
    if token.type in _WRAPPERS:
        parent = _WRAPPERS[token.type]()
        for child in token.children:
            parent += _inline(child) if child.type == "inline" else _block(child)
        return parent
    raise ValueError(f"Markdown: {token.type} is not translated")


def _inline(token: SyntaxTreeNode) -> list[nodes.Node]:
    found: list[nodes.Node] = []
    for child in token.children:
        if child.type in ("text", "softbreak"):
            found.append(nodes.Text(child.content if child.type == "text" else "\n"))
        elif child.type == "code_inline":
            found.append(nodes.literal(child.content, child.content))
        elif child.type in _WRAPPERS:
            found.append(_WRAPPERS[child.type]("", "", *_inline(child)))
        elif child.type == "link":
            address = str(child.attrs["href"])
            # Files of the checkout that the site does not have are named, not linked.
            outside = address.startswith(("https:", "http:"))
            found += [nodes.reference("", "", *_inline(child), refuri=address)] if outside else _inline(child)
        else:
            raise ValueError(f"Markdown: {child.type} is not translated")
    return found


def _table(token: SyntaxTreeNode) -> nodes.table:
    head, *body = token.children
    columns = len(head.children[0].children)
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in range(columns)), cols=columns)
    for wrapper, part in ((nodes.thead(), head), *((nodes.tbody(), part) for part in body)):
        for row in part.children:
            cells = (
                nodes.entry("", nodes.paragraph("", "", *_inline(cell.children[0]))) for cell in row.children
            )
            wrapper += nodes.row("", *cells)
        group += wrapper
    return nodes.table("", group, classes=["colwidths-auto"])


class MarkdownFile(SphinxDirective):
    """A whole Markdown file; its first heading becomes the page's."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Nodes of the file."""
        relative, absolute = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(relative)
        found = markdown_nodes(Path(absolute).read_text(encoding="utf-8"))
        for node in found:
            for section in node.findall(nodes.section):
                self.state.document.note_implicit_target(section, section)
        return found
