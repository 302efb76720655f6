"""``theses apply metric-mst``: a nearly minimum spanning tree of points or strings."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from theses.datasets.files import FileHead
    from theses.graphs.metric_mst import MSTResult

__all__ = ["apply", "suggest"]

_STRING_METRICS = ("levenshtein", "hamming_str", "jaccard_sets")
# The exact tree is the yardstick as long as it promises to take no longer.
_EXACT_SECONDS = 5.0


def apply(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Points, one a row: .csv, .tsv, .parquet, .npy or .npz. Or text with one string a line.",
        ),
    ],
    metric: Annotated[
        str | None,
        typer.Option(
            help="Distance of points: euclidean (default), cityblock, cosine, ..., or precomputed for a "
            "square matrix of distances. Of lines: levenshtein (default), hamming_str, or jaccard_sets for "
            "words between blanks."
        ),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns to use, separated by commas; all if not given.")
    ] = None,
    components: Annotated[
        int | None, typer.Option(min=1, help="Components of the forest; about the root of n if not given.")
    ] = None,
    representatives: Annotated[
        int, typer.Option(min=1, help="Representatives of each component: more are closer to the minimum.")
    ] = 1,
    max_component_size: Annotated[
        int | None, typer.Option(min=1, help="Split larger components, which cost the most.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Draw the first centre; the middle object if not given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the edges: .csv, .tsv, .parquet, .json or .npy."),
    ] = None,
) -> None:
    """Find a nearly minimum spanning tree in any metric, from a fraction of the distances.

    Objects are counted from 0 in the order of the file. The yardstick is the exact tree, if it promises to
    take a few seconds.
    """
    import time

    from theses.cli.output import emit
    from theses.datasets.files import head, write_table
    from theses.graphs.metric_mst import approximate_mst, exact_mst, gamma

    lines = head(file).kind == "lines"
    chosen = metric or ("levenshtein" if lines else "euclidean")
    reading = _reading(file, chosen, columns, lines)
    X = reading.read()
    options: dict[str, Any] = {
        "n_components": None if components is None else min(components, len(X)),
        "n_representatives": representatives if representatives > 1 else None,
        "max_component_size": max_component_size,
        "random_state": seed,
    }
    options = {name: value for name, value in options.items() if value is not None}
    start = time.perf_counter()
    tree = approximate_mst(X, chosen, **options)
    seconds = time.perf_counter() - start

    n = tree.n_objects
    pairs = n * (n - 1) // 2
    predicted = sum(tree.timings.values()) * pairs / max(tree.n_distance_evaluations, 1)
    exact = None
    if predicted <= _EXACT_SECONDS:
        start = time.perf_counter()
        minimum = exact_mst(X, chosen)
        exact_seconds = time.perf_counter() - start
        quality = gamma(tree, minimum)
        exact = {
            "weight": minimum.total_weight,
            "seconds": exact_seconds,
            "ratio": tree.total_weight / minimum.total_weight if minimum.total_weight else 1.0,
            "gamma": quality,
            "guarantee": 2 * quality + 1,
        }
    arguments = "".join(f", {name}={value}" for name, value in options.items())
    answer = {
        "file": str(file),
        "metric": chosen,
        "seconds": seconds,
        "n_pairs": pairs,
        **tree.to_dict(),
        "exact": exact,
        "exact_seconds_predicted": predicted,
        "output": None if output is None else str(output),
        "python": [
            "from theses.graphs.metric_mst import approximate_mst, mst_to_linkage",
            *reading.python,
            f"tree = approximate_mst(X, {chosen!r}{arguments})",
            "linkage = mst_to_linkage(tree)  # for scipy.cluster.hierarchy: single-linkage clusters",
        ],
    }
    if output is not None:
        write_table(output, _edges(tree, output))
    emit(answer, as_json=as_json, text=_text(answer))


def suggest(files: Sequence[FileHead]) -> str | None:
    """The command for one file of points or of strings.

    Parameters
    ----------
    files : sequence of FileHead
        What the user's files hold.

    Returns
    -------
    str or None
        The exact command, or None if the files do not fit.
    """
    if len(files) != 1:
        return None
    (file,) = files
    if file.path.suffix.lower() == ".json":
        return None  # its lines are no objects
    if file.kind == "lines":
        metric = "levenshtein"
    elif file.columns and all(file.numeric):
        metric = "euclidean"
    else:
        return None
    return shlex.join(["theses", "apply", "metric-mst", str(file.path), "--metric", metric])


class _Reading:
    """How the objects are read, by this command and by the Python lines it prints."""

    def __init__(self, path: Path, names: list[str] | None, metric: str, *, lines: bool) -> None:
        self._path, self._names, self._lines = path, names, lines
        self._words = metric == "jaccard_sets" and lines
        function = "read_lines" if lines else "read_numbers"
        wanted = "" if names is None else f", {names}"
        self.python = [
            f"from theses.datasets.files import {function}",
            f"X = {function}({str(path)!r}{wanted})",
        ]
        if self._words:
            self.python.append("X = [set(line.split()) for line in X]")

    def read(self) -> Any:
        from theses.datasets.files import read_lines, read_numbers

        if not self._lines:
            return read_numbers(self._path, self._names)
        strings = read_lines(self._path)
        return [set(string.split()) for string in strings] if self._words else strings


def _reading(path: Path, metric: str, columns: str | None, lines: bool) -> _Reading:
    from theses.datasets.files import FileError

    if lines and metric not in _STRING_METRICS:
        raise FileError(
            f"{path}: holds lines of text, for which --metric is one of {', '.join(_STRING_METRICS)}; "
            f"got {metric}"
        )
    if not lines and metric in ("levenshtein", "hamming_str"):
        raise FileError(f"{path}: holds a table; --metric {metric} compares the lines of a text file")
    if lines and columns is not None:
        raise FileError(f"{path}: holds lines of text, which have no --columns")
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    return _Reading(path, names, metric, lines=lines)


def _edges(tree: MSTResult, output: Path) -> Any:
    frame = tree.to_frame()
    # An array holds numbers only.
    return frame.drop("part") if output.suffix.lower() == ".npy" else frame


def _text(answer: dict[str, Any]) -> str:
    import statistics

    sizes = answer["component_sizes"]
    n, largest = answer["n_objects"], max(sizes)
    lines = [
        f"spanning tree of {n:,} objects, {answer['metric']} distance: weight {answer['total_weight']:.6g}  "
        f"({answer['seconds']:.2g} s)",
        f"  forest of {len(sizes):,} components  {answer['forest_weight']:.6g}",
        f"  edges that join them  {answer['completion_weight']:.6g}",
        f"  distances computed  {answer['n_distance_evaluations']:,} of {answer['n_pairs']:,} "
        f"({answer['evaluation_share']:.2%})",
        f"  component sizes  median {statistics.median(sizes):g}, largest {largest:,} ({largest / n:.0%})",
        f"  certificate  at most {answer['completion_factor']:.3f} times the best completion of this forest, "
        "if the distance is a metric",
    ]
    if largest > n / 2 and n > 2:
        lines.append(
            "  Note: one component holds most objects and most of the cost; --max-component-size splits it."
        )
    lines += ["", "Yardstick: the exact minimum spanning tree"]
    if exact := answer["exact"]:
        lines += [
            f"  weight {exact['weight']:.6g}, {exact['seconds']:.2g} s; this tree weighs "
            f"{exact['ratio']:.4f} times as much",
            f"  gamma of the forest {exact['gamma']:.3f}: at most {exact['guarantee']:.3f} times was "
            "guaranteed",
        ]
    else:
        lines.append(
            f"  not computed: {answer['n_pairs']:,} distances would take about "
            f"{answer['exact_seconds_predicted']:.0f} s"
        )
    if answer["output"]:
        lines += ["", f"Edges written to {answer['output']} (objects counted from 0)"]
    return "\n".join([*lines, "", "The same in Python:", *(f"  {line}" for line in answer["python"])])
