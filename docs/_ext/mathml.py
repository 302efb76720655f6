"""Formulas as MathML, which browsers draw by themselves: no script, no font and no picture is loaded."""

from __future__ import annotations

import re

from docutils import nodes  # type: ignore[import-untyped]
from docutils.utils.math import MathError, latex2mathml  # type: ignore[import-untyped]
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

__all__ = ["register", "to_mathml"]

_log = logging.getLogger(__name__)

#: ``\big`` and its like, of which docutils knows only the forms that say which side they are on.
_SIZED = re.compile(r"\\([bB]igg?)(?![a-zA-Z])")


def to_mathml(latex: str, *, block: bool) -> str:
    r"""Formula as MathML.

    Parameters
    ----------
    latex : str
        The formula in LaTeX.
    block : bool
        Whether it stands on lines of its own; then it may have several.

    Returns
    -------
    str
        A ``math`` element.

    Raises
    ------
    docutils.utils.math.MathError
        If docutils does not know a command of it.

    Examples
    --------
    >>> to_mathml(r"\big(x\big)", block=False).startswith("<math")
    True
    """
    code = _SIZED.sub(r"\\\1l", " ".join(latex.split()))
    if block and (r"\\" in code or "&" in code):
        code = rf"\begin{{aligned}}{code}\end{{aligned}}"
    return str(latex2mathml.tex2mathml(code, as_block=block))


def _html(node: nodes.Element, *, block: bool) -> str:
    try:
        return to_mathml(node.astext(), block=block)
    except MathError as error:
        _log.warning("no MathML for %r: %s", node.astext(), error, location=node)
        return f"<code>{node.astext()}</code>"


def _visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_html(node, block=False))
    raise nodes.SkipNode


def _visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{_html(node, block=True)}</div>\n')
    raise nodes.SkipNode


def register(app: Sphinx) -> None:
    """Make this the site's renderer of formulas."""
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
