r"""Ranking methods by what a user says and holds.

Words are compared by their stems. With :math:`f` the number of cards that contain a stem and :math:`N` the
number of cards, a stem weighs :math:`2 - \log(f + 1) / \log(N + 1)`: a word that no card knows weighs 2 and
counts against all of them, one that all know weighs 1, whatever the size of the catalogue. A card's score
for the words is the share of that weight which it explains, each stem by the strongest place of the card
where it stands (its name before its summary before its description of use).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from theses.catalogue.card import Card
from theses.catalogue.kinds import HAVE, WANT
from theses.catalogue.outside import Outside, outside

__all__ = [
    "SHORT",
    "STOP",
    "THRESHOLD",
    "TYPO",
    "Match",
    "matches_words",
    "outside_for",
    "rank",
    "stem_strengths",
    "stems",
]

#: Least score of a method that is offered. tests/catalogue/test_search.py holds questions that some method
#: answers and questions that none does; the lowest score of the first and the highest of the second lie on
#: either side.
THRESHOLD = 0.35

#: Share of the files in a score that has words too.
_FILES_SHARE = 0.3

_SAY_NOTHING = """
a about all also am an and any are as at be been both but by can could do does each find for from give given
get had has have how i if in into is it its just like many me more most much my need no not of on one or our
out over own per please same should so some such take than that the their them then there these they this
those to too under up use used using very want was way we what when where which while who will with without
would you your
"""
#: Words that say nothing about a method.
STOP = frozenset(_SAY_NOTHING.split())

#: What people write short and cards write out.
SHORT = {
    "bo": "bayesian optimisation",
    "ddpm": "diffusion model",
    "dml": "double machine learning",
    "gnn": "graph network",
    "hpo": "hyperparameter optimisation",
    "llm": "language model",
    "llms": "language model",
    "mcmc": "posterior sampling",
    "mdp": "markov decision process",
    "ode": "differential equation",
    "ot": "optimal transport",
    "pde": "differential equation",
    "rl": "reinforcement learning",
}

# Places of a card in falling strength.
_NAME, _SUMMARY, _TITLE, _USE, _KIND, _CLAIM = 1.0, 0.9, 0.8, 0.65, 0.55, 0.4
#: What a word that is only nearly right is worth.
TYPO = 0.8


@dataclass(frozen=True)
class Match:
    """A method and how well it fits.

    Parameters
    ----------
    card : Card
        The method.
    score : float
        Between 0 and 1.
    words : tuple of str
        The user's words that it explains, as they were said.
    kinds : tuple of str
        What it takes of what the files may be.
    """

    card: Card
    score: float
    words: tuple[str, ...]
    kinds: tuple[str, ...]


def stems(text: str) -> dict[str, str]:
    """Stems of a text's words with the words they came from; words that say nothing are left out.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    dict of str to str
        ``{stem: word}`` in the order of the text.

    Examples
    --------
    >>> stems("Distances between the labelled data sets")
    {'distanc': 'distances', 'between': 'between', 'label': 'labelled', 'dataset': 'dataset'}
    """
    text = re.sub(r"\bdata[ -]sets?\b", "dataset", text.casefold().replace("’", "'"))
    found: dict[str, str] = {}
    for word in re.findall(r"[^\W_]+(?:'[^\W_]+)?", text):
        if word not in STOP:
            found.setdefault(_stem(word), word)
    return found


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    """Plurals, participles and British spelling off; the same ending is cut on both sides of a comparison."""
    word = word.removesuffix("'s")
    word = re.sub(r"is(e[sd]?|ing|ations?)$", r"iz\1", word) if len(word) > 6 else word
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if len(word) > len(ending) + 2 and word.endswith(ending):
            word = word[: -len(ending)]
            if len(word) > 2 and word[-1] == word[-2] and word[-1] not in "aeos":
                word = word[:-1]
            break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def rank(
    cards: Sequence[Card],
    words: str = "",
    *,
    have: Collection[str] = (),
    want: Collection[str] = (),
    files: Mapping[str, float] | None = None,
) -> list[Match]:
    """Methods by how well they fit, the best first.

    Parameters
    ----------
    cards : sequence of Card
        The catalogue.
    words : str, default=""
        What the user says.
    have, want : collection of str
        Kinds that a method must take and give, one of each at least; empty asks for nothing.
    files : mapping of str to float, optional
        What the user's files may be: kinds of ``HAVE`` with a degree in (0, 1].

    Returns
    -------
    list of Match
        Those with a score above 0; ties in the catalogue's order. Who asks for nothing gets all with score 1.

    Notes
    -----
    :math:`O(\text{length of all cards})`; a word that no card knows is compared with each known one.
    """
    wanted = stems(_written_out(words))
    places = [stem_strengths(card) for card in cards]
    counts: dict[str, int] = {}
    for place in places:
        for stem in place:
            counts[stem] = counts.get(stem, 0) + 1
    meant = {stem: _nearest(stem, counts) for stem in wanted}
    scale = math.log(len(cards) + 1) or 1.0
    weight = {stem: 2 - math.log(counts.get(meant[stem], 0) + 1) / scale for stem in wanted}
    result = []
    for card, place in zip(cards, places, strict=True):
        if (have and not set(have) & set(card.have)) or (want and not set(want) & set(card.want)):
            continue
        strength = {
            stem: place.get(meant[stem], 0.0) * (1.0 if meant[stem] == stem else TYPO) for stem in wanted
        }
        said = tuple(wanted[stem] for stem in wanted if strength[stem])
        kinds = tuple(kind for kind in card.have if files and kind in files)
        parts = []
        if wanted:
            parts.append((1.0, sum(weight[s] * strength[s] for s in wanted) / sum(weight.values())))
        if files:
            share = _FILES_SHARE / (1 - _FILES_SHARE) if wanted else 1.0
            parts.append((share, max((files[kind] for kind in kinds), default=0.0)))
        score = sum(w * s for w, s in parts) / sum(w for w, _ in parts) if parts else 1.0
        if score > 0:
            result.append(Match(card, score, said, kinds))
    return sorted(result, key=lambda match: -match.score)


def matches_words(card: Card, words: Sequence[str]) -> bool:
    """Whether a card knows every one of some words.

    Parameters
    ----------
    card : Card
        The method.
    words : sequence of str
        Words, compared by their stems; also beginnings of words.

    Returns
    -------
    bool
        True if all are there.
    """
    place = stem_strengths(card)
    return all(
        stem in place or any(known.startswith(stem) for known in place) for stem in stems(" ".join(words))
    )


def outside_for(words: str = "", *, have: Collection[str] = (), want: Collection[str] = ()) -> Outside | None:
    """Library of others for what a user says.

    Parameters
    ----------
    words : str, default=""
        What the user says.
    have, want : collection of str
        Kinds the user names; a wanted one decides before one that is there, and both before the words.

    Returns
    -------
    Outside or None
        None if the words name no kind that we know.

    Examples
    --------
    >>> outside_for("solve a partial differential equation").kind
    'solver'
    """
    known = outside()
    for side, kinds in (("want", want), ("have", have)):
        for kind in kinds:
            if (side, kind) in known:
                return known[side, kind]
    said = stems(_written_out(words))
    # One word of a kind's description is no sign that the kind is meant.
    best, best_score = None, 0.5
    for entry in known.values():
        described = stems((WANT if entry.side == "want" else HAVE)[entry.kind])
        # A kind's name is a wide word; those listed for it are said on purpose.
        named = {**dict.fromkeys(described, 0.4), **dict.fromkeys(stems(entry.kind), 0.9)}
        named |= dict.fromkeys(stems(" ".join(entry.words)), 1.0)
        score = sum(named.get(stem, 0.0) for stem in said)
        if score > best_score:
            best, best_score = entry, score
    return best


def _written_out(words: str) -> str:
    return " ".join(SHORT.get(word, word) for word in words.casefold().split())


@lru_cache(maxsize=512)
def stem_strengths(card: Card) -> dict[str, float]:
    """Strength of each stem of a card: that of the strongest place where it stands.

    What a method is *not* for is no reason to offer it, so ``not_when`` is left out.

    Parameters
    ----------
    card : Card
        The method.

    Returns
    -------
    dict of str to float
        Strength by stem.
    """
    place: dict[str, float] = {}
    for strength, text in (
        (_NAME, " ".join((card.name, card.slug, *card.aliases, *card.tags, *card.have, *card.want))),
        (_SUMMARY, card.summary),
        (_TITLE, card.paper.title),
        (_USE, f"{card.use_when} {card.instead_of}"),
        (_KIND, " ".join([HAVE[kind] for kind in card.have] + [WANT[kind] for kind in card.want])),
        (_CLAIM, " ".join(claim.statement for claim in card.claims)),
    ):
        for stem in stems(text):
            place.setdefault(stem, strength)
    return place


def _nearest(stem: str, known: Mapping[str, int]) -> str:
    """The stem itself, or the known one that it misspells."""
    if stem in known or len(stem) < 5:
        return stem
    candidates = [other for other in known if abs(len(other) - len(stem)) <= 2 and other[0] == stem[0]]
    return next(iter(difflib.get_close_matches(stem, candidates, n=1, cutoff=0.82)), stem)
