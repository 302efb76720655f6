"""Catalogues made for tests: small ones with a meaning, large ones with the size of the real thing."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import theses.catalogue.reader as reader
from theses.catalogue.kinds import HAVE, WANT

CLAIM = """
[[claims]]
id = "{id}"
kind = "{kind}"
statement = {statement}
paper = {paper}
[[claims.checks]]
metric = "{metric}"
bound = ">= 0.5"
aggregate = "mean"
"""

#: slug: (package, name, aliases, summary, have, want, use when, not when, instead of, title)
SMALL: dict[str, tuple[str, str, list[str], str, list[str], list[str], str, str, str, str]] = {
    "table-distance": (
        "data",
        "s-TD",
        ["std", "sliced table distance"],
        "Distance between two labelled tables in near-linear time.",
        ["two tables"],
        ["distance"],
        "You compare labelled data sets, such as months, clients or augmented copies, with no training.",
        "The tables have no labels; a forest classifier is to be trained.",
        "Exact optimal transport, which solves a problem as large as the product of the sizes.",
        "Lightspeed Geometric Distances of Data Sets",
    ),
    "row-coreset": (
        "data",
        "RidgeCore",
        [],
        "A small weighted subset of rows for regularised regression.",
        ["table"],
        ["subset", "weights"],
        "You fit a ridge or logistic regression many times to millions of rows.",
        "The model is a deep network.",
        "Uniform subsampling or leverage scores.",
        "Coresets for Vertical Federated Learning",
    ),
    "metric-tree": (
        "graphs",
        "MFC",
        ["metric MST", "minimum spanning tree"],
        "A nearly minimum spanning tree in any metric with few distance evaluations.",
        ["points", "strings"],
        ["tree", "clusters"],
        "You have strings, sets or points with an expensive distance and want single linkage.",
        "Points in the plane, where a kd-tree is faster.",
        "The dense distance matrix with scipy.",
        "Approximate Forest Completion",
    ),
    "quadrature-bound": (
        "trust",
        "BQ conformal",
        ["Bayesian conformal"],
        "An upper bound on the deployment risk of a fitted model from held-out losses.",
        ["losses", "table"],
        ["guarantee"],
        "You calibrate a threshold or an interval width and need a risk guarantee for this calibration set.",
        "No held-out data; data that drift.",
        "Split conformal prediction and conformal risk control.",
        "Conformal Prediction as Bayesian Quadrature",
    ),
    "latent-effect": (
        "causal",
        "ProxyCum",
        ["single proxy"],
        "Effect of a treatment under hidden confounding from one proxy variable.",
        ["table"],
        ["effect"],
        "Common causes act on treatment and outcome and only one proxy of them is seen.",
        "Gaussian noise.",
        "Two-stage least squares with as many instruments as treatments.",
        "Causal Effect Identification with Higher-Order Cumulants",
    ),
    "box-search": (
        "decision",
        "TreeSearchBB",
        ["black-box optimiser"],
        "Minimises a deterministic black-box function on a box with few evaluations.",
        ["objective"],
        ["optimum"],
        "You have some hundred calls, no gradients, and few combinations of the inputs matter.",
        "The function is noisy.",
        "CMA-ES or Bayesian optimisation.",
        "Monte Carlo Tree Descent",
    ),
    "cache-squeeze": (
        "lm.inference",
        "KVSqueeze",
        ["KV cache compression"],
        "Halves the KV cache of a language model with little loss of perplexity.",
        ["language model"],
        ["compression"],
        "Long prompts fill the memory while you generate text.",
        "Short prompts.",
        "Evicting the oldest tokens.",
        "Attention Cache Compression by Merging",
    ),
    "slice-sampler": (
        "sampling",
        "ParallelMC",
        [],
        "Draws from an unnormalised density in logarithmic parallel time.",
        ["density"],
        ["samples"],
        "You sample a posterior on many cores with a gradient of the log-density.",
        "One core.",
        "NUTS and sequential Langevin chains.",
        "Parallel Sampling by Picard Iterations",
    ),
    "event-forecast": (
        "forecasting",
        "ResidualTPP",
        ["point process"],
        "Predicts time and type of the next event in a sequence.",
        ["time series"],
        ["prediction"],
        "Orders, retweets or earthquakes with time stamps that a self-exciting process explains in part.",
        "Regularly sampled series.",
        "A Hawkes process or a neural point process alone.",
        "Residual Temporal Point Processes",
    ),
    "word-heatmap": (
        "interpretability",
        "ConceptMap",
        ["concept attention"],
        "Shows where in an image each of a list of words is, by a diffusion transformer.",
        ["images", "network"],
        ["explanation"],
        "You inspect a text-to-image transformer or want zero-shot segmentation.",
        "A convolutional classifier.",
        "Cross-attention maps and gradient saliency.",
        "Concept Attention in Diffusion Transformers",
    ),
}


def card_toml(**values: Any) -> str:
    """Text of a card; a claim of each kind unless claims are given."""
    claims = values.pop(
        "claims",
        [("C1", "scaled", "It is as good as the paper says."), ("C2", "identity", "It is symmetric.")],
    )
    lines = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            inner = ", ".join(f"{k} = {json.dumps(v)}" for k, v in value.items())
            lines.append(f"{key} = {{ {inner} }}")
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    for index, (name, kind, statement) in enumerate(claims):
        lines.append(
            CLAIM.format(
                id=name,
                kind=kind,
                statement=json.dumps(statement),
                paper=json.dumps("Table 1: 0.92"),
                metric=f"metric_{index}",
            )
        )
    return "\n".join(lines) + "\n"


def write_small(root: Path, apply: Mapping[str, str] | None = None) -> Path:
    """The small catalogue as files; ``apply`` names modules for some slugs."""
    for index, (slug, card) in enumerate(SMALL.items()):
        package, name, aliases, summary, have, want, use_when, not_when, instead_of, title = card
        path = root.joinpath(*package.split("."), slug.replace("-", "_") + ".toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        values: dict[str, Any] = {
            "name": name,
            "aliases": aliases,
            "summary": summary,
            "have": have,
            "want": want,
            "use_when": use_when,
            "not_when": not_when,
            "instead_of": instead_of,
            "tags": [package.split(".")[0]],
            "paper": {"title": title, "venue": "ICML 2025", "arxiv": f"2501.{index:05d}"},
            "api": [f"theses.{package}.{path.stem}:run", f"theses.{package}.{path.stem}:check"],
            "seeds": 3,
        }
        if apply and slug in apply:
            values["apply"] = apply[slug]
        path.write_text(card_toml(**values), encoding="utf-8")
    return root


def write_large(root: Path, n_cards: int = 95, n_bytes: int = 8_000) -> Path:
    """A catalogue of the size that all papers make."""
    rng = random.Random(0)
    words = sorted({word for card in SMALL.values() for field in card for word in str(field).split()})

    def sentence(n: int) -> str:
        return " ".join(rng.choices(words, k=n)).capitalize() + "."

    for i in range(n_cards):
        path = root / f"package_{i % 12}" / f"method_{i}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        claims = [(f"C{j}", "scaled", sentence(25)) for j in range(12)]
        text = card_toml(
            name=f"Method {i}",
            aliases=[f"m{i}"],
            summary=sentence(12),
            have=[rng.choice(list(HAVE))],
            want=[rng.choice(list(WANT))],
            use_when=sentence(40),
            not_when=sentence(30),
            instead_of=sentence(30),
            paper={"title": sentence(10), "venue": "ICML 2025", "arxiv": f"2502.{i:05d}"},
            api=[f"theses.package_{i % 12}.method_{i}:run"],
            seeds=3,
            claims=claims,
            deviations=[sentence(30) for _ in range(1 + (n_bytes // 2_000))],
        )
        path.write_text(text, encoding="utf-8")
    return root


@contextmanager
def catalogue(root: Path) -> Iterator[None]:
    """Within it the library's catalogue is that of a folder."""
    before = reader._ROOT
    reader._ROOT = root
    reader.cards.cache_clear()
    try:
        yield
    finally:
        reader._ROOT = before
        reader.cards.cache_clear()
