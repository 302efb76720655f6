"""The catalogue: one card a method, plain data, and its reader."""

from theses.catalogue.card import Card, CardError, Check, Claim, Observation, OutOfReach, Paper
from theses.catalogue.kinds import CLAIM_KINDS, HAVE, PRESETS, WANT
from theses.catalogue.reader import UnknownMethodError, card_path, cards, load_card, lookup

__all__ = [
    "CLAIM_KINDS",
    "HAVE",
    "PRESETS",
    "WANT",
    "Card",
    "CardError",
    "Check",
    "Claim",
    "Observation",
    "OutOfReach",
    "Paper",
    "UnknownMethodError",
    "card_path",
    "cards",
    "load_card",
    "lookup",
]
