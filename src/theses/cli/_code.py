"""Lines that a user can copy into a script."""

from __future__ import annotations

from theses.catalogue.card import Card

__all__ = ["import_line", "import_lines"]


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
    return [f"from {module} import {', '.join(found)}" for module, found in card.imports.items()]
