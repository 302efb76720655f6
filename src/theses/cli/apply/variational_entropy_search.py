"""``theses apply variational-entropy-search``: past trials in, the next points to try out."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from theses.datasets.files import FileHead

__all__ = ["apply", "suggest"]

# What a parameter of the method is called here.
_OPTIONS = {"q": "-q", "seed": "--seed", "num_paths": "--paths"}
_LARGER = ("y", "objective", "score", "accuracy", "reward", "yield")
_SMALLER = ("loss", "error", "cost")
_COUNTERS = ("trial", "id", "number", "iteration", "index")


def apply(
    file: Annotated[
        Path,
        typer.Argument(help="Past trials: a table with a row for each, of inputs and the result."),
    ],
    objective: Annotated[str, typer.Option(help="Column of the result, which is maximised.")],
    minimize: Annotated[bool, typer.Option("--minimize", help="Minimise it instead.")] = False,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="Column of an input; may be repeated. Default: all others."),
    ] = None,
    bounds: Annotated[
        Path | None,
        typer.Option(
            help="Table with columns parameter, lower, upper: where to search. Default: the trials' range."
        ),
    ] = None,
    q: Annotated[int, typer.Option("-q", help="Points to try at once.")] = 1,
    paths: Annotated[int, typer.Option(help="Sample paths of the posterior.")] = 128,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the next points here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Where should the next trials be, given these, if each is expensive and hardly noisy?

    Fits a Gaussian process to the trials and maximises VES-Gamma, which sets its own trade-off between the
    best point and the unknown. For each point: what the model expects there, k (1 is Expected Improvement)
    and beta; beside it, where LogEI would go.
    """
    from theses.cli.output import emit
    from theses.datasets.files import write_table

    try:
        answer, text, table = _answer(file, objective, minimize, inputs, bounds, q, paths, seed)
    except ValueError as error:
        name, *rest = str(error).split(" ", 1)
        if name not in _OPTIONS:
            raise
        raise ValueError(" ".join([_OPTIONS[name], *rest])) from error
    if output is not None:
        write_table(output, table)
        answer["written"] = str(output)
        text += f"\n\nwritten: {output}"
    emit(answer, as_json=as_json, text=text)


def suggest(files: Sequence[FileHead]) -> str | None:
    """Command for files that look like trials.

    Parameters
    ----------
    files : sequence of FileHead
        What the files hold.

    Returns
    -------
    str or None
        The command, None if they do not fit.
    """
    if len(files) != 1 or files[0].kind != "table" or not all(files[0].numeric):
        return None
    columns = files[0].columns
    results = [name for name in columns if name.casefold() in (*_LARGER, *_SMALLER)]
    counters = [name for name in columns if name.casefold() in _COUNTERS]
    inputs = [name for name in columns if name not in (*results, *counters)]
    if len(results) != 1 or not inputs:
        return None
    words = ["theses", "apply", "variational-entropy-search", str(files[0].path), "--objective", results[0]]
    if results[0].casefold() in _SMALLER:
        words.append("--minimize")
    if counters:
        words += [word for name in inputs for word in ("--input", name)]
    return shlex.join(words)


def _answer(
    file: Path,
    objective: str,
    minimize: bool,
    inputs: list[str] | None,
    bounds_file: Path | None,
    q: int,
    paths: int,
    seed: int,
) -> tuple[dict[str, Any], str, Any]:
    import polars as pl
    import torch

    from theses.datasets.files import FileError, read_numbers, read_table
    from theses.decision.variational_entropy_search import VESGamma, fit_gp
    from theses.decision.variational_entropy_search import suggest as next_points
    from theses.decision.variational_entropy_search.checks import derived_seed

    frame = read_table(file)
    if objective not in frame.columns:
        raise FileError(f"{file}: has no column {objective!r}; it has {', '.join(frame.columns)}")
    names = list(inputs) if inputs else [name for name in frame.columns if name != objective]
    if objective in names or not names or len(set(names)) < len(names):
        raise FileError(f"{file}: inputs must be other columns than {objective!r}, each once, got {names}")
    values = read_numbers(file, [*names, objective])
    if len(values) < 2:
        raise FileError(f"{file}: at least 2 trials are needed, got {len(values)}")
    box = _bounds(file, bounds_file, names, values[:, :-1])

    X, raw = torch.from_numpy(values[:, :-1].copy()), torch.from_numpy(values[:, -1].copy())
    sign = -1.0 if minimize else 1.0
    bounds = torch.from_numpy(box)
    start = time.perf_counter()
    model = fit_gp(X, sign * raw, bounds=bounds)
    points = next_points(model, bounds, q=q, seed=seed, num_paths=paths)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    usual = next_points(model, bounds, acq="logei", q=q, seed=seed)
    usual_seconds = time.perf_counter() - start

    best = (sign * raw).max()
    # The paths that chose the points: suggest draws them from this stream of the seed.
    function = VESGamma(model, best, bounds, paths, seed=derived_seed(seed, 5))
    shapes, rates = [], []
    for i in range(q):
        function.set_X_pending(points[:i] if i else None)
        k, beta = function.k_beta(points[i : i + 1])
        shapes.append(float(k))
        rates.append(float(beta))

    def expected(at: Any) -> dict[str, list[float]]:
        with torch.no_grad():
            posterior: Any = model.posterior(at)
        mean, sd = posterior.mean[:, 0], posterior.variance[:, 0].clamp_min(0).sqrt()
        better = torch.special.ndtr((mean - best) / sd.clamp_min(1e-300))
        return {"mean": (sign * mean).tolist(), "sd": sd.tolist(), "p_better": better.tolist()}

    ours, theirs = expected(points), expected(usual)
    columns = {name: points[:, j].tolist() for j, name in enumerate(names)}
    table = pl.DataFrame(
        {
            **columns,
            **{f"posterior_{key}": ours[key] for key in ("mean", "sd")},
            "p_better": ours["p_better"],
            "k": shapes,
            "beta": rates,
        }
    )
    python = [
        "import torch",
        "from theses.datasets.files import read_numbers",
        "from theses.decision.variational_entropy_search import fit_gp, suggest",
        "",
        f"X = torch.from_numpy(read_numbers({str(file)!r}, {names!r}))",
        f"Y = {'-' if minimize else ''}torch.from_numpy(read_numbers({str(file)!r}, [{objective!r}])[:, 0])",
        f"bounds = torch.tensor({box.tolist()!r}, dtype=torch.float64)",
        "model = fit_gp(X, Y, bounds=bounds)",
        f"print(suggest(model, bounds, q={q}, seed={seed}, num_paths={paths}))",
    ]
    row = int((sign * raw).argmax())
    answer = {
        "trials": len(values),
        "objective": objective,
        "minimize": minimize,
        "best": float(raw[row]),
        "best_row": row + 1,
        "bounds": {name: box[:, j].tolist() for j, name in enumerate(names)},
        "next": table.to_dicts(),
        "seconds": seconds,
        "yardstick": {
            "method": "LogEI",
            "next": [
                {
                    **{name: float(usual[i, j]) for j, name in enumerate(names)},
                    **{f"posterior_{key}": theirs[key][i] for key in ("mean", "sd")},
                    "p_better": theirs["p_better"][i],
                }
                for i in range(q)
            ],
            "seconds": usual_seconds,
        },
        "python": python,
    }

    def place(at: Any, i: int) -> str:
        return ", ".join(f"{name} = {float(at[i, j]):.6g}" for j, name in enumerate(names))

    def outlook(of: dict[str, list[float]], i: int) -> str:
        return (
            f"expected {objective} {of['mean'][i]:.4g} +- {of['sd'][i]:.2g} (one sd), better than the best "
            f"with probability {of['p_better'][i]:.2g}"
        )

    where = str(bounds_file) if bounds_file else "the range of the trials"
    lines = [
        f"{len(values)} trials of {len(names)} inputs; {'smallest' if minimize else 'largest'} {objective} "
        f"{float(raw[row]):.6g} in row {row + 1}; searched: {where}",
        "",
        *(
            line
            for i in range(q)
            for line in (
                f"{'next' if q == 1 else f'next {i + 1}'}: {place(points, i)}",
                f"  {outlook(ours, i)}",
                f"  k {shapes[i]:.3g}, beta {rates[i]:.3g} (k = 1 is Expected Improvement)",
            )
        ),
        f"  found in {seconds:.2g} s, with the fit of the model",
        "",
        f"where LogEI would go ({usual_seconds:.2g} s, without the fit)",
        *(line for i in range(q) for line in (f"  {place(usual, i)}", f"    {outlook(theirs, i)}")),
    ]
    text = "\n".join([*lines, "", "the same in Python", *(f"  {line}".rstrip() for line in python)])
    return answer, text, table


def _bounds(
    file: Path, bounds_file: Path | None, names: list[str], X: NDArray[np.float64]
) -> NDArray[np.float64]:
    import numpy as np

    from theses.datasets.files import FileError, read_numbers, read_table

    if bounds_file is None:
        box = np.stack([X.min(axis=0), X.max(axis=0)])
        for j, name in enumerate(names):
            if box[0, j] == box[1, j]:
                raise FileError(
                    f"{file}: column {name!r} has the one value {box[0, j]:g}; give its range with "
                    "--bounds, or leave it out with --input for the others"
                )
        return box
    frame = read_table(bounds_file)
    if "parameter" not in frame.columns:
        raise FileError(f"{bounds_file}: has no column 'parameter'; it has {', '.join(frame.columns)}")
    limits = read_numbers(bounds_file, ["lower", "upper"])
    listed = [str(name) for name in frame["parameter"].to_list()]
    for row, (name, (low, high)) in enumerate(zip(listed, limits, strict=True), 1):
        if not low < high:
            raise FileError(
                f"{bounds_file}: column 'lower', row {row}: {name} has no range, got {low:g} to {high:g}"
            )
    for name in names:
        if listed.count(name) != 1:
            raise FileError(
                f"{bounds_file}: column 'parameter' must list {name!r} once, got {listed.count(name)}"
            )
    return np.array([limits[listed.index(name)] for name in names]).T
