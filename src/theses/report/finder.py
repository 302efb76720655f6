"""What the search in the page works on: the same words, weights and threshold as ``theses find``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from theses.catalogue import search
from theses.catalogue.card import Card
from theses.catalogue.kinds import HAVE, WANT
from theses.catalogue.outside import outside

__all__ = ["finder_index"]


def finder_index(cards: Sequence[Card]) -> dict[str, Any]:
    """Index of the cards for the script of the front page.

    Parameters
    ----------
    cards : sequence of Card
        The catalogue.

    Returns
    -------
    dict
        ``cards`` with the stems of each by the strength of the place where they stand, ``outside`` with the
        libraries of others, and the constants of :mod:`theses.catalogue.search`.
    """
    return {
        "threshold": search.THRESHOLD,
        "typo": search.TYPO,
        "stop": sorted(search.STOP),
        "short": search.SHORT,
        "cards": [
            {"slug": card.slug, "have": card.have, "want": card.want, "stems": _by_strength(card)}
            for card in cards
        ],
        "outside": [
            {
                "side": entry.side,
                "kind": entry.kind,
                "library": entry.library,
                "install": entry.install,
                "sentence": entry.sentence,
                "kindStems": list(search.stems(entry.kind)),
                "meansStems": list(search.stems((WANT if entry.side == "want" else HAVE)[entry.kind])),
                "wordStems": list(search.stems(" ".join(entry.words))),
            }
            for entry in outside().values()
        ],
    }


def _by_strength(card: Card) -> list[tuple[float, str]]:
    stems: dict[float, list[str]] = {}
    for stem, strength in search.stem_strengths(card).items():
        stems.setdefault(strength, []).append(stem)
    return [(strength, " ".join(found)) for strength, found in stems.items()]
