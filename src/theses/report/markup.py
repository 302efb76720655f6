"""HTML built from functions: what is not markup already is escaped."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["Child", "Markup", "join", "json_script", "page", "tag"]

_VOID: Final = frozenset({"br", "hr", "input", "link", "meta"})

#: Characters that could end a script element or a JavaScript line from within JSON.
_JSON_ESCAPES: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


class Markup(str):
    """Text that is HTML already and is not escaped again. Made by :func:`tag` and its like alone."""

    __slots__ = ()


Child = str | Markup | None | Iterable["Child"]


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """Element with escaped content.

    Parameters
    ----------
    name : str
        Name of the element.
    *children : str, Markup, None or iterable of these
        Content; strings are escaped, None is left out.
    **attributes : str, int, bool or None
        ``class_`` and ``for_`` lose the underscore at their end, others become hyphens. True is an attribute
        without a value, False and None are left out.

    Returns
    -------
    Markup
        The element.

    Examples
    --------
    >>> tag("p", "1 < 2, ", tag("b", "surely"), class_="fact")
    '<p class="fact">1 &lt; 2, <b>surely</b></p>'
    """
    opened = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        opened.append(attribute if value is True else f'{attribute}="{html.escape(str(value))}"')
    start = f"<{' '.join(opened)}>"
    return Markup(start if name in _VOID else f"{start}{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Children in a row, escaped where they are not markup.

    Parameters
    ----------
    *children : str, Markup, None or iterable of these
        Content.

    Returns
    -------
    Markup
        The text.
    """
    return Markup("".join(_parts(children)))


def _parts(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, str):
            yield html.escape(child, quote=False)
        elif child is not None:
            yield from _parts(child)


def json_script(data: Any, **attributes: str) -> Markup:
    """Data for scripts, as JSON in a script element that is not executed.

    Parameters
    ----------
    data : object
        What JSON knows; no NaN.
    **attributes : str
        As for :func:`tag`.

    Returns
    -------
    Markup
        The element; nothing in the data can end it.

    Raises
    ------
    ValueError
        If a number is not finite.

    Examples
    --------
    >>> json_script({"name": "</script>"})
    '<script type="application/json">{"name":"\\\\u003c/script\\\\u003e"}</script>'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    element = tag("script", type="application/json", **attributes)
    return Markup(element.replace("</script>", text.translate(_JSON_ESCAPES) + "</script>"))


def page(head: Child, body: Child) -> str:
    """Whole document.

    Parameters
    ----------
    head, body : Child
        Content of the two elements.

    Returns
    -------
    str
        The document.
    """
    return "<!doctype html>\n" + tag("html", tag("head", head), tag("body", body), lang="en") + "\n"
