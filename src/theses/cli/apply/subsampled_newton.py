"""``theses apply subsampled-newton``: a labelled table in, a logistic regression out."""

from __future__ import annotations

import json
import shlex
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from theses.datasets.files import FileHead

__all__ = ["apply", "suggest"]

_TARGETS = ("target", "label", "class", "y", "species")
# What a parameter of the method is called here.
_OPTIONS = {"C": "--c", "m": "--rows", "random_state": "--seed"}
_TRUSTED = 1e-3  # difference of coefficients over which a solver is said to disagree


def apply(
    file: Annotated[Path, typer.Argument(help="Table: a column of labels, all others numbers.")],
    target: Annotated[str, typer.Option(help="Column of the labels.")] = "target",
    c: Annotated[float, typer.Option("--c", help="Inverse strength of the ridge, as in scikit-learn.")] = 1.0,
    rows: Annotated[
        int | None, typer.Option(help="Rows of each sampled Hessian; by default, 8 effective dimensions.")
    ] = None,
    no_scale: Annotated[bool, typer.Option("--no-scale", help="Leave the columns as they are.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the sampled rows.")] = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the model here, as JSON.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fit a classifier to a table by sub-sampled Newton: logistic regression with a ridge.

    The columns are standardised first; scikit-learn fits the same objective beside it, for time and
    agreement.
    """
    from theses.cli.output import emit, plain
    from theses.datasets.files import write_text

    try:
        answer, text, model = _fit(file, target, c, rows, not no_scale, seed)
    except ValueError as error:
        name, *rest = str(error).split(" ", 1)
        if name not in _OPTIONS:
            raise
        raise ValueError(" ".join([_OPTIONS[name], *rest])) from error
    if output is not None:
        write_text(output, json.dumps(plain(model), indent=2, allow_nan=False) + "\n")
        answer["written"] = str(output)
        text += f"\n\nwritten: {output}"
    emit(answer, as_json=as_json, text=text)


def suggest(files: Sequence[FileHead]) -> str | None:
    """Command for a table with a column of labels.

    Parameters
    ----------
    files : sequence of FileHead
        What the files hold.

    Returns
    -------
    str or None
        The command, None if they do not fit.
    """
    if len(files) != 1 or files[0].kind == "lines" or len(files[0].columns) < 2:
        return None
    head = files[0]
    words = [name for name, numeric in zip(head.columns, head.numeric, strict=True) if not numeric]
    named = [name for name in head.columns if name.casefold() in _TARGETS]
    # A column of words may be names of rows: only one that is called a label is taken for it.
    if len(named) != 1 or (words and words != named):
        return None
    return f"theses apply subsampled-newton {shlex.quote(str(head.path))} --target {shlex.quote(named[0])}"


def _fit(
    file: Path, target: str, c: float, rows: int | None, standardise: bool, seed: int
) -> tuple[dict[str, Any], str, dict[str, Any]]:
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    from theses.datasets.files import FileError, read_labelled, read_table
    from theses.optim.subsampled_newton import SubsampledNewtonClassifier

    X, codes, classes = read_labelled(file, target)
    names = [name for name in read_table(file).columns if name != target]
    if len(classes) < 2:
        raise FileError(f"{file}: column {target!r} holds a single class, {classes[0]!r}")
    mean, spread = X.mean(axis=0), X.std(axis=0)
    if standardise:
        spread[spread == 0] = 1.0
        X = (X - mean) / spread
    options: dict[str, Any] = {"C": c, "random_state": seed}
    if rows is not None:
        options["m"] = rows
    ours, seconds, complaint = _timed(lambda: SubsampledNewtonClassifier(**options).fit(X, codes))
    gradient = _gradient(X, codes, ours, c)

    yardstick: dict[str, dict[str, Any]] = {}
    for solver in ("newton-cholesky", "lbfgs"):
        binary = len(classes) == 2
        fits = [codes] if binary else [(codes == k).astype(int) for k in range(len(classes))]

        def usual(solver: str = solver, fits: list[Any] = fits) -> NDArray[np.float64]:
            return np.vstack(
                [
                    LogisticRegression(C=c, solver=solver, tol=1e-8, max_iter=2_000).fit(X, labels).coef_
                    for labels in fits
                ]
            )

        coefficients, solver_seconds, said = _timed(usual)
        yardstick[solver] = {
            "seconds": solver_seconds,
            "largest_difference": float(np.abs(coefficients - ours.coef_).max()),
            "warning": said,
        }
    python = _python(file, target, options, standardise)
    accuracy = float((ours.predict(X) == codes).mean())
    answer = {
        "rows": len(X),
        "features": len(names),
        "classes": classes,
        "accuracy_on_these_rows": accuracy,
        "gradient_norm": gradient,
        "rows_of_hessian": ours.m_,
        "sampled": ours.m_ < len(X),
        "steps": ours.n_iter_.tolist(),
        "seconds": seconds,
        "warning": complaint,
        "yardstick": yardstick,
        "python": python,
    }
    model = {
        "method": "subsampled-newton",
        "target": target,
        "classes": classes,
        "features": names,
        "mean": mean if standardise else np.zeros(len(names)),
        "scale": spread if standardise else np.ones(len(names)),
        "coef": ours.coef_,
        "intercept": ours.intercept_,
        "C": c,
    }
    how = (
        f"Hessians from {ours.m_:,} of {len(X):,} rows"
        if ours.m_ < len(X)
        else f"all {len(X):,} rows in every Hessian: too few to sample"
    )
    lines = [
        f"{len(X):,} rows, {len(names)} features, {len(classes)} classes in column {target!r}",
        "",
        f"fitted       in {int(ours.n_iter_.max())} step(s), {seconds:.2g} s ({how})",
        f"certificate  norm of the mean loss's gradient {gradient:.1e}; 0 at the one optimum",
        f"accuracy     {accuracy:.4f} on these rows, which it was fitted to",
        "",
        "what scikit-learn gives for the same objective",
        *(
            f"  {solver:<16} {entry['seconds']:.2g} s, coefficients differ by at most "
            f"{entry['largest_difference']:.1e}"
            + (" (its own stopping rule left it there)" if entry["largest_difference"] > _TRUSTED else "")
            for solver, entry in yardstick.items()
        ),
        *([f"\nwarning: {complaint}"] if complaint else []),
        "",
        "the same in Python",
        *(f"  {line}".rstrip() for line in python),
    ]
    return answer, "\n".join(lines), model


def _gradient(X: NDArray[np.float64], codes: NDArray[np.int64], model: Any, c: float) -> float:
    """Largest norm of the gradient, over the classes, of mean loss and ridge."""
    import numpy as np
    from scipy.special import expit

    positive = [1] if len(model.classes_) == 2 else range(len(model.classes_))
    norms = []
    for k, w, b in zip(positive, model.coef_, model.intercept_, strict=True):
        residuals = (expit(X @ w + b) - (codes == k)) / len(X)
        norms.append(float(np.linalg.norm(np.append(X.T @ residuals + w / (c * len(X)), residuals.sum()))))
    return max(norms)


def _python(file: Path, target: str, options: dict[str, Any], standardise: bool) -> list[str]:
    call = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return [
        *(["from sklearn.preprocessing import scale", ""] if standardise else []),
        "from theses.datasets.files import read_labelled",
        "from theses.optim.subsampled_newton import SubsampledNewtonClassifier",
        "",
        f"X, y, classes = read_labelled({str(file)!r}, {target!r})",
        f"model = SubsampledNewtonClassifier({call}).fit({'scale(X)' if standardise else 'X'}, y)",
        "print(model.coef_, model.intercept_)",
    ]


def _timed(function: Callable[[], Any]) -> tuple[Any, float, str]:
    """Result, seconds, and what it warned of."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function()
    seconds = time.perf_counter() - start
    return result, seconds, str(caught[0].message).splitlines()[0] if caught else ""
