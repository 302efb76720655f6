"""The fixed lists that cards choose from: what a user has, what a user wants, kinds of claims, presets."""

from __future__ import annotations

from typing import Final

__all__ = ["CLAIM_KINDS", "HAVE", "PRESETS", "WANT"]

HAVE: Final = {
    "table": "rows and columns, with or without a target",
    "two tables": "two sets of rows to hold against each other",
    "points": "vectors, or any objects with a distance",
    "strings": "names, words, sequences of symbols",
    "images": "pictures, with or without labels",
    "graph": "nodes and edges",
    "losses": "losses or scores of a fitted model on held-out data",
    "time series": "values or events in time",
    "text": "documents, questions and answers",
    "language model": "a pretrained language model",
    "network": "a neural network to train or to look into",
    "objective": "a function to optimise, a gradient oracle, a black box",
    "density": "an unnormalised log-density or a sampler to speed up",
    "game": "pay-offs, or a game with several players",
    "environment": "a simulator or a Markov decision process",
    "equation": "a differential equation, or fields that solve one",
    "molecules": "molecules, materials, proteins",
}

WANT: Final = {
    "distance": "how far apart two things are",
    "tree": "a spanning tree or a hierarchy",
    "clusters": "groups of similar things",
    "guarantee": "a bound that holds with a stated probability",
    "subset": "few rows, items or features that stand for all",
    "weights": "weights or ratios for rows",
    "effect": "a causal effect or a counterfactual",
    "samples": "draws from a distribution, new data",
    "optimum": "the best input of an objective",
    "training": "a better or cheaper way to train",
    "prediction": "a predictor or a forecast",
    "equilibrium": "a solution of a game",
    "policy": "decisions over time",
    "explanation": "why a model does what it does",
    "compression": "a smaller or faster model",
    "audit": "a check of a model, a benchmark or a promise",
    "solver": "solutions of a differential equation",
    "theory": "what a theorem says for given numbers",
}

CLAIM_KINDS: Final = {
    "identity": "a theorem or true by construction: shown, not counted as evidence",
    "same": "the paper's data and scale",
    "scaled": "the same kind of data, smaller",
    "stand-in": "generated or substitute data",
}

PRESETS: Final = ("smoke", "standard", "long", "paper")
