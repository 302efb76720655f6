"""Finding and reading cards."""

from __future__ import annotations

import difflib
import tomllib
from functools import cache
from pathlib import Path

from theses.catalogue.card import Card, CardError, card_from_dict

__all__ = ["UnknownMethodError", "card_path", "cards", "load_card", "lookup"]

_ROOT = Path(__file__).parent / "cards"


class UnknownMethodError(LookupError):
    """No method goes by that name; the message lists the nearest names."""

    def __str__(self) -> str:
        return str(self.args[0])


def load_card(path: Path, root: Path = _ROOT) -> Card:
    """Read one card.

    Parameters
    ----------
    path : pathlib.Path
        Its TOML file, ``root/package/module.toml``; packages may be nested.
    root : pathlib.Path, optional
        Folder of all cards.

    Returns
    -------
    Card
        The card, validated.

    Raises
    ------
    CardError
        If the file is no TOML or not as the schema wants it.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CardError(f"{path}: {error}") from None
    package = ".".join(path.relative_to(root).parent.parts)
    return card_from_dict(data, slug=path.stem.replace("_", "-"), package=package, path=path)


@cache
def cards() -> tuple[Card, ...]:
    """All cards, by package and slug.

    Returns
    -------
    tuple of Card
        The catalogue.

    Raises
    ------
    CardError
        If a card is not valid, or two methods share a name.

    Examples
    --------
    >>> "dataset-distance" in [card.slug for card in cards()]
    True
    """
    found = tuple(load_card(path, _ROOT) for path in sorted(_ROOT.rglob("*.toml")))
    taken: dict[str, Card] = {}
    for card in found:
        for name in _names(card):
            other = taken.setdefault(name, card)
            if other is not card:
                raise CardError(
                    f"{card_path(card)}: {name!r} already means {other.slug} ({card_path(other)})"
                )
    return found


def card_path(card: Card) -> Path:
    """File of a card."""
    return _ROOT.joinpath(*card.package.split("."), card.slug.replace("-", "_") + ".toml")


def lookup(name: str) -> Card:
    """Card of a method by slug, name, alias or arXiv identifier, without regard to case.

    Parameters
    ----------
    name : str
        Any of these.

    Returns
    -------
    Card
        The card.

    Raises
    ------
    UnknownMethodError
        If none fits; the message lists the nearest names.

    Examples
    --------
    >>> lookup("s-OTDD").slug
    'dataset-distance'
    """
    by_name = {key: card for card in cards() for key in _names(card)}
    key = _fold(name)
    if key in by_name:
        return by_name[key]
    near = dict.fromkeys(
        by_name[match].slug for match in difflib.get_close_matches(key, by_name, n=5, cutoff=0.5)
    )
    hint = f"; nearest: {', '.join(near)}" if near else "; `theses list` shows all"
    raise UnknownMethodError(f"no method is called {name!r}{hint}")


def _names(card: Card) -> set[str]:
    return {_fold(name) for name in (card.slug, card.name, card.paper.identifier, *card.aliases)}


def _fold(name: str) -> str:
    return name.casefold().replace("_", "-").replace(" ", "-").removeprefix("arxiv:")
