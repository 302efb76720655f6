"""``theses apply dataset-distance``: how far apart two labelled tables are."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from theses.datasets.files import FileHead

    Labelled = tuple[NDArray[np.float64], NDArray[np.int64]]

__all__ = ["apply", "suggest"]

_LABEL_NAMES = ("label", "labels", "target", "class", "classes", "y", "species", "category", "digit")
# Exact OTDD beside ours takes about a quarter of a second on so many samples a side.
_OTDD_SAMPLES = 1_000
_DOMINANT = 0.9


def apply(
    a: Annotated[
        Path, typer.Argument(metavar="A", help="Labelled table: .csv, .tsv, .parquet, .npy or .npz.")
    ],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one, with the same feature columns.")],
    label: Annotated[str, typer.Option(help="Column of the classes, in both files.")],
    n_projections: Annotated[
        int, typer.Option(min=2, help="Random projections: more give less error.")
    ] = 1_000,
    standardize: Annotated[
        bool, typer.Option(help="Give each column mean 0 and deviation 1 over both files first.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of projections and halves.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write the distances: .csv, .json or .parquet.")
    ] = None,
) -> None:
    """Measure how far apart two labelled tables are, labels included, without training a model.

    All columns but the label are features. The two files may have different rows and different classes. The
    yardstick is what chance alone does: two random halves of each file, and a half of one and of the other.
    """
    import time

    import numpy as np
    import polars as pl

    from theses.cli.output import emit
    from theses.data.dataset_distance import SlicedDatasetDistance, otdd, sliced_dataset_distance
    from theses.datasets.files import write_table

    (A, classes_a), (B, classes_b), order = _read(a, b, label)
    if standardize:
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler().fit(np.concatenate([A[0], B[0]]))
        A, B = ((scaler.transform(x), y) for x, y in (A, B))
    scale = SlicedDatasetDistance(n_projections=1).fit([A, B]).scale_

    def distance(one: Labelled, other: Labelled) -> tuple[float, float]:
        return sliced_dataset_distance(
            one, other, n_projections=n_projections, scale=scale, generator=seed, return_se=True
        )

    start = time.perf_counter()
    between, error = distance(A, B)
    seconds = time.perf_counter() - start

    rng = np.random.default_rng(seed)
    halves = {name: _halves(rng, *data) for name, data in (("A", A), ("B", B)) if len(data[1]) > 1}
    compared = {f"two random halves of {name}": pair for name, pair in halves.items()}
    if len(halves) == 2:
        compared = {"a random half of A and one of B": (halves["A"][0], halves["B"][0]), **compared}
    rows: list[dict[str, Any]] = [{"what": "A and B", "distance": between, "standard_error": error}]
    for what, pair in compared.items():
        value, value_error = distance(*pair)
        rows.append({"what": what, "distance": value, "standard_error": value_error})
    start = time.perf_counter()
    exact = otdd(A, B, max_samples=_OTDD_SAMPLES, generator=seed)
    exact_seconds = time.perf_counter() - start
    subsampled = max(len(A[1]), len(B[1])) > _OTDD_SAMPLES

    answer = {
        "distance": between,
        "standard_error": error,
        "seconds": seconds,
        "n_projections": n_projections,
        "scale": scale,
        "seed": seed,
        "files": [
            {"path": str(path), "rows": len(y), "classes": len(classes)}
            for path, (_, y), classes in ((a, A, classes_a), (b, B, classes_b))
        ],
        "yardstick": rows[1:],
        "otdd": {
            "value": exact,
            "seconds": exact_seconds,
            "max_samples": _OTDD_SAMPLES if subsampled else None,
        },
        "dominant_column": _dominant(A[0], B[0], order.names),
        "python": _python(a, b, label, order.moved, n_projections, standardize, seed),
    }
    if output is not None:
        write_table(output, pl.DataFrame(rows))
    emit(answer, as_json=as_json, text=_text(answer))


def suggest(files: Sequence[FileHead]) -> str | None:
    """The command for two labelled tables with the same columns.

    Parameters
    ----------
    files : sequence of FileHead
        What the user's files hold.

    Returns
    -------
    str or None
        The exact command, or None if the files do not fit.
    """
    if len(files) != 2 or not all(file.columns for file in files):
        return None
    first, second = files
    if set(first.columns) != set(second.columns) or len(first.columns) < 2:
        return None
    texts = {
        name for file in files for name, number in zip(file.columns, file.numeric, strict=True) if not number
    }
    if len(texts) > 1:
        return None
    named = [name for name in first.columns if name.lower() in _LABEL_NAMES]
    # The one column of words is the label; numbers are only if they are called so.
    label = next(iter(texts), named[0] if named else None)
    if label is None:
        return None
    return shlex.join(
        ["theses", "apply", "dataset-distance", str(first.path), str(second.path), "--label", label]
    )


def _halves(
    rng: np.random.Generator, x: NDArray[np.float64], y: NDArray[np.int64]
) -> tuple[Labelled, Labelled]:
    mixed = rng.permutation(len(y))
    one, other = mixed[: len(y) // 2], mixed[len(y) // 2 :]
    return (x[one], y[one]), (x[other], y[other])


class _Order:
    """Feature columns: their names in A, and where B keeps them if it orders them otherwise."""

    def __init__(self, names: list[str], moved: list[int] | None) -> None:
        self.names, self.moved = names, moved


def _read(
    a: Path, b: Path, label: str
) -> tuple[tuple[Labelled, list[Any]], tuple[Labelled, list[Any]], _Order]:
    from theses.datasets.files import FileError, head, read_labelled

    X_a, y_a, classes_a = read_labelled(a, label)
    X_b, y_b, classes_b = read_labelled(b, label)
    names_a, names_b = ([name for name in head(path).columns if name != label] for path in (a, b))
    for path, names, other, others in ((a, names_a, b, names_b), (b, names_b, a, names_a)):
        if missing := [name for name in others if name not in names]:
            raise FileError(
                f"{path}: has no column {missing[0]!r}, which {other} has; features must be the same"
            )
    moved = None if names_a == names_b else [names_b.index(name) for name in names_a]
    if moved is not None:
        X_b = X_b[:, moved]
    return ((X_a, y_a), classes_a), ((X_b, y_b), classes_b), _Order(names_a, moved)


def _dominant(X_a: NDArray[np.float64], X_b: NDArray[np.float64], names: list[str]) -> dict[str, Any] | None:
    """The column that makes up most of all squared features, so that the distance is about little else."""
    squares = (X_a**2).sum(0) + (X_b**2).sum(0)
    largest = int(squares.argmax())
    share = float(squares[largest] / squares.sum())
    return {"column": names[largest], "share": share} if len(names) > 1 and share > _DOMINANT else None


def _text(answer: dict[str, Any]) -> str:
    first, second = answer["files"]
    lines = [
        f"distance {answer['distance']:.4g} +- {answer['standard_error']:.2g}"
        f"  (s-OTDD, standard error over {answer['n_projections']:,} projections, {answer['seconds']:.2g} s)",
        f"  A: {first['path']}, {first['rows']:,} rows, {first['classes']} classes",
        f"  B: {second['path']}, {second['rows']:,} rows, {second['classes']} classes",
        f"  unit: {answer['scale']:.4g}, the root mean square of all features",
        "",
        "Yardstick: what chance alone does, in halves",
    ]
    width = max((len(row["what"]) for row in answer["yardstick"]), default=0)
    for row in answer["yardstick"]:
        lines.append(f"  {row['what']:<{width}}  {row['distance']:.4g} +- {row['standard_error']:.2g}")
    if len(answer["yardstick"]) == 3 and (chance := max(r["distance"] for r in answer["yardstick"][1:])):
        times = answer["yardstick"][0]["distance"] / chance
        lines.append(f"  halves of A and B are {times:.2g} times as far apart as two of one file")
    if not answer["yardstick"]:
        lines.append("  none: a file with a single row has no halves")
    exact = answer["otdd"]
    size = f"up to {exact['max_samples']:,} random rows of each file" if exact["max_samples"] else "all rows"
    lines += [
        f"  exact OTDD on {size}: {exact['value']:.4g} (in squared units of the features), "
        f"{exact['seconds']:.2g} s"
    ]
    if dominant := answer["dominant_column"]:
        lines += [
            "",
            f"Note: column {dominant['column']!r} makes up {dominant['share']:.0%} of all squared features,",
            "so the distance is about little else; --standardize gives each column the same weight.",
        ]
    return "\n".join([*lines, "", "The same in Python:", *(f"  {line}" for line in answer["python"])])


def _python(
    a: Path, b: Path, label: str, moved: list[int] | None, n_projections: int, standardize: bool, seed: int
) -> list[str]:
    lines = [
        "from theses.data.dataset_distance import sliced_dataset_distance",
        "from theses.datasets.files import read_labelled",
        f"A, B = (read_labelled(path, {label!r})[:2] for path in ({str(a)!r}, {str(b)!r}))",
    ]
    if moved is not None:
        lines.append(f"B = (B[0][:, {moved}], B[1])")
    if standardize:
        lines = [
            "import numpy as np",
            "from sklearn.preprocessing import StandardScaler",
            *lines,
            "scaler = StandardScaler().fit(np.concatenate([A[0], B[0]]))",
            "A, B = ((scaler.transform(X), y) for X, y in (A, B))",
        ]
    lines += [
        "distance, error = sliced_dataset_distance(",
        f"    A, B, n_projections={n_projections}, generator={seed}, return_se=True",
        ")",
    ]
    return lines
