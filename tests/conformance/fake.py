"""A complete tiny method in a made-up library, on which the battery is tried."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conformance.subject import Subject
from theses.catalogue.card import card_from_dict

LIBRARY, TESTS, BENCHMARKS, EXAMPLES = "toyhouse", "toytests", "toybenchmarks", "toyexamples"

METHOD = '''
"""Difference of two means.

References
----------
Nobody: A toy, 2025.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from theses.validation import check_array, check_same_length

__all__ = ["Centre", "Reference", "difference"]


def difference(
    A: tuple[NDArray[np.float64], NDArray[np.float64]], b: NDArray[np.float64], *, scale: float = 1.0
) -> float:
    """Difference between a weighted mean and a mean.

    Parameters
    ----------
    A : pair of arrays
        Values ``(n,)`` and their weights ``(n,)``.
    b : ndarray of shape (m,)
        Other values.
    scale : float, default=1.0
        Unit of both.

    Returns
    -------
    float
        The difference, in units of ``scale``.

    References
    ----------
    Section 1, equation (1).

    Examples
    --------
    >>> difference(([1.0, 2.0], [1.0, 1.0]), [0.5])
    1.0
    """
    values = check_array("A", A[0], ndim=1)
    weights = check_array("weights", A[1], ndim=1)
    check_same_length({"A": values, "weights": weights})
    return float((np.average(values, weights=weights) - check_array("b", b, ndim=1).mean()) / scale)


class Reference:
    """Values to compare others with.

    Parameters
    ----------
    values : ndarray of shape (n,)
        The values.

    References
    ----------
    Section 2.

    Examples
    --------
    >>> Reference([1.0, 3.0]).distance([2.0])
    0.0
    """

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.mean = float(check_array("values", values, ndim=1).mean())

    def distance(self, b: NDArray[np.float64]) -> float:
        """Distance of other values.

        Parameters
        ----------
        b : ndarray of shape (m,)
            Other values.

        Returns
        -------
        float
            Difference of the means.
        """
        return difference(([self.mean], [1.0]), b)


class Centre(TransformerMixin, BaseEstimator):
    """Take the mean off.

    Parameters
    ----------
    keep : bool, default=False
        Whether to leave the data as they are.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Mean of what was fitted.

    References
    ----------
    Section 3.

    Examples
    --------
    >>> Centre().fit_transform([[1.0], [3.0]]).tolist()
    [[-1.0], [1.0]]
    """

    def __init__(self, keep: bool = False) -> None:
        self.keep = keep

    def fit(self, X, y=None):
        """Find the mean.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.
        y : None
            Ignored.

        Returns
        -------
        self : Centre
            The estimator.
        """
        _check_rows(X)
        self.mean_ = validate_data(self, X, dtype=np.float64).mean(axis=0)
        return self

    def transform(self, X):
        """Take the mean off.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Centred data.
        """
        check_is_fitted(self)
        _check_rows(X)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return X if self.keep else X - self.mean_


def _check_rows(X):
    shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
    if len(shape) != 2 or shape[0] == 0:
        raise ValueError(f"X must have 2 dimensions and a row. Reshape your data; got shape {shape}")
'''

STUDY = '''
"""Measures the toy."""

from __future__ import annotations

import time

import polars as pl

from theses.evidence import Context, Count, Measurement


def run(ctx: Context) -> Measurement:
    def errors():
        from toyhouse.toys.shift import difference

        rng = ctx.rng("errors")
        return [difference((rng.normal(size=50), rng.random(50)), rng.normal(size=50)) for _ in range(4)]

    def seconds():
        start = time.perf_counter()
        ctx.rng("seconds").normal(size=1000).sum()
        return time.perf_counter() - start

    found = ctx.stage("errors", errors)
    ctx.progress(0.5, "errors found")
    timed = ctx.stage("seconds", seconds)
    ctx.progress(1.0, "times taken")
    table = pl.DataFrame({"draw": range(4), "error": found})
    return Measurement(
        {"error": found, "zero": 0.0, "seconds": timed, "close": Count(sum(abs(e) < 1 for e in found), 4)},
        tables={"errors": table},
    )


def figures(tables):
    import altair as alt

    return {"errors": alt.Chart(tables["errors"]).mark_point().encode(x="draw", y="error", color="seed:N")}
'''

TEST_MODULE = """
import numpy as np

from tests.conformance.contract import Call
from toyhouse.toys.shift import Centre, Reference, difference


def test_planted_forgotten_weights_turns_c1():
    assert difference(([0.0, 1.0], [3.0, 1.0]), [0.25]) == 0.0


def values():
    return np.arange(5.0)


def calls():
    return [
        Call(
            "difference",
            lambda: (difference, {"A": (values(), np.ones(5)), "b": [0.0, 1.0]}),
            arrays=("A.0", "A.1", "b"),
            paired=("A.0", "A.1"),
            named={"A.1": "weights"},
        ),
        Call("Reference", lambda: (Reference, {"values": values()}), arrays=("values",)),
        Call("Reference.distance", lambda: (Reference(values()).distance, {"b": values()}), arrays=("b",)),
        Call("Centre.fit", lambda: (Centre().fit, {"X": np.eye(3)}), arrays=("X",)),
        Call(
            "Centre.transform",
            lambda: (Centre().fit(np.eye(3)).transform, {"X": np.eye(3)}),
            arrays=("X",),
        ),
    ]
"""

FILES: dict[str, str] = {
    "pyproject.toml": '[project.optional-dependencies]\nreport = ["altair"]\npeers = ["rapidfuzz>=3"]\n',
    "carriers.txt": "mlxtend==0.25.0 --hash=sha256:00\n",
    "docs/evidence.json": '{"methods": {}}\n',
    "src/toyhouse/__init__.py": (
        "from theses._lazy import lazy_submodules\n"
        "__all__ = []\n"
        "__getattr__, __dir__ = lazy_submodules(__name__, __path__)\n"
    ),
    "src/toyhouse/catalogue/__init__.py": "",
    "src/toyhouse/toys/__init__.py": (
        "from theses._lazy import lazy_submodules\n"
        "__all__ = []\n"
        "__getattr__, __dir__ = lazy_submodules(__name__, __path__)\n"
    ),
    "src/toyhouse/toys/shift.py": METHOD,
    "src/toyhouse/studies/toys/shift.py": STUDY,
    "src/toyhouse/cli/apply/shift.py": (
        "import typer\n\ndef apply():\n    typer.echo('0')\n\ndef suggest(files):\n    return None\n"
    ),
    "toytests/toys/test_shift.py": TEST_MODULE,
    "toybenchmarks/toys/shift.py": "def benchmark():\n    return []\n",
    "toyexamples/toys/shift.py": (
        "from toyhouse.toys.shift import difference\n\nprint(difference(([1.0], [1.0]), [0.0]))\n"
    ),
}

CARD: dict[str, Any] = {
    "name": "Toy",
    "summary": "Difference between two means, e.g. of heights.",
    "have": ["two tables"],
    "want": ["distance"],
    "use_when": "Means matter.",
    "not_when": "They do not.",
    "instead_of": "Subtraction.",
    "paper": {"title": "A toy", "venue": "ICML 2025", "arxiv": "2501.00001"},
    "api": [
        "theses.toys.shift:difference",
        "theses.toys.shift:Reference",
        "theses.toys.shift:Centre",
    ],
    "apply": "theses.cli.apply.shift",
    "extras": ["report"],
    "carriers": ["mlxtend"],
    "seeds": 3,
    "deviations": ["Smaller, to fit."],
    "claims": [
        {
            "id": "C1",
            "kind": "stand-in",
            "statement": "The error is small.",
            "paper": "Figure 1",
            "checks": [
                {"metric": "error", "bound": "<= 1", "aggregate": "mean", "baseline_metric": "zero"},
                {"metric": "close", "bound": ">= 0.5", "aggregate": "share"},
            ],
        },
        {
            "id": "C2",
            "kind": "scaled",
            "statement": "It is quick.",
            "paper": "Figure 2",
            "timed": True,
            "checks": [{"metric": "seconds", "bound": "<= 1", "aggregate": "mean"}],
        },
    ],
    "out_of_reach": [{"statement": "All means.", "why": "There are too many."}],
}


def build(
    root: Path,
    files: Mapping[str, str | None] | None = None,
    edits: Mapping[str, tuple[str, str]] | None = None,
    card: Mapping[str, Any] | None = None,
) -> Subject:
    """Write the made-up library, spoilt in one place.

    Parameters
    ----------
    root : pathlib.Path
        Empty folder.
    files : mapping, optional
        Files with other content; None leaves a file out.
    edits : mapping, optional
        By file, a passage and what stands in its place.
    card : mapping, optional
        Entries of the card with other values.

    Returns
    -------
    Subject
        The method, ready for the battery.
    """
    forget()
    content: dict[str, str | None] = {**FILES, **(files or {})}
    for name, (passage, replacement) in (edits or {}).items():
        text = content[name]
        assert text is not None and passage in text, f"{name} has no {passage!r}"
        content[name] = text.replace(passage, replacement)
    for name, text in content.items():
        if text is not None:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    data = {**copy.deepcopy(CARD), **(card or {})}
    made = card_from_dict(data, slug="shift", package="toys", path=root / "card.toml")
    return Subject(made, root, LIBRARY, TESTS, BENCHMARKS, EXAMPLES)


def forget() -> None:
    """Forget the modules of a library built before."""
    for name in [
        name for name in sys.modules if name.split(".")[0] in (LIBRARY, TESTS, BENCHMARKS, EXAMPLES)
    ]:
        del sys.modules[name]
