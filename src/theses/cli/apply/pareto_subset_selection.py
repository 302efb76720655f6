"""``theses apply pareto-subset-selection``: priced sets or a network in, a choice within a budget out."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import polars as pl

    from theses.datasets.files import FileHead
    from theses.decision.pareto_subset_selection import MaxCoverage, SelectionResult

__all__ = ["apply", "suggest"]

_MOST_EVALUATIONS = 2_000_000  # some ten seconds
_MIP_ITEMS = 150
_GUESS_ITEMS = 200
_BOUNDS = 40  # sets of the front that the certificate is computed at
_N_RR = 20_000
_CASCADES = 10_000


def apply(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="What items cover, one pair a row: columns item, element and, if there are any, weight (of "
            "the element) and cost (of the item). With --influence a network: source, target and, if there "
            "is one, probability.",
        ),
    ],
    budget: Annotated[
        float | None,
        typer.Option(help="Largest sum of costs; a tenth of the cost of all items if not given."),
    ] = None,
    influence: Annotated[
        bool, typer.Option("--influence", help="Choose whom to tell, so that most hear of it.")
    ] = False,
    directed: Annotated[
        bool, typer.Option("--directed", help="With --influence: news only goes from source to target.")
    ] = False,
    probability: Annotated[
        float, typer.Option(min=0, max=1, help="With --influence: of an edge, where the file has none.")
    ] = 0.05,
    costs: Annotated[
        Path | None, typer.Option(help="Table with columns item and cost; others cost 1.")
    ] = None,
    evaluations: Annotated[
        int | None, typer.Option(min=1, help="Evaluations; 20 n^2, at most two million, if not given.")
    ] = None,
    algorithm: Annotated[str, typer.Option(help="epol or pomc.")] = "epol",
    exact_seconds: Annotated[
        float,
        typer.Option(min=0, help="Seconds for the integer programme, with up to 150 items; 0 leaves it out."),
    ] = 20.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all draws.")] = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the chosen items and their costs here.")
    ] = None,
    front: Annotated[
        Path | None, typer.Option(help="Write what every smaller budget would buy here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Which items, within a budget, cover the most, or which people tell the most?

    The answer comes with a bound: how far from the optimum it can be at most on this very instance.
    """
    import numpy as np

    from theses.cli.output import emit
    from theses.datasets.files import read_table, write_table
    from theses.decision.pareto_subset_selection import (
        InfluenceMaximization,
        epol,
        exact_coverage,
        generalized_greedy,
        greedy_plus_max,
        one_guess_greedy_plus,
        optimum_bound,
        pomc,
    )

    if algorithm not in ("epol", "pomc"):
        raise ValueError(f"--algorithm must be epol or pomc, got {algorithm!r}")
    table = read_table(file)
    columns = table.columns
    f, names, prices = (
        _network(file, table, costs, directed, probability, seed) if influence else _sets(file, table, costs)
    )
    n = f.n
    if budget is None:
        budget = float(prices.sum()) / 10
        if not budget:
            raise ValueError("--budget must be given, since all items cost 0")
    n_evals = evaluations or min(20 * n * n, _MOST_EVALUATIONS)
    ours, ours_s = _timed(
        lambda: (epol if algorithm == "epol" else pomc)(f, prices, budget, n_evals, random_state=seed)
    )
    yardsticks: list[tuple[SelectionResult, float]] = [
        _timed(lambda: generalized_greedy(f, prices, budget)),
        _timed(lambda: greedy_plus_max(f, prices, budget)),
    ]
    if n <= _GUESS_ITEMS:
        yardsticks.append(_timed(lambda: one_guess_greedy_plus(f, prices, budget)))
    mip: SelectionResult | None = None
    if exact_seconds and n <= _MIP_ITEMS:
        try:
            mip, mip_s = _timed(lambda: exact_coverage(f, prices, budget, time_limit=exact_seconds))
            yardsticks.append((mip, mip_s))
        except RuntimeError:
            pass  # nothing found in time: said below
    best = max([ours, *(result for result, _ in yardsticks)], key=lambda result: result.value)
    if best.value <= ours.value:
        best = ours
    picks = np.unique(np.linspace(0, len(ours.front.values) - 1, _BOUNDS).astype(int))
    bound = optimum_bound(f, prices, budget, np.vstack([ours.front.masks[picks], best.mask[None]]))
    if mip is not None:
        bound = min(bound, mip.bound)
    certified = min(best.value / bound, 1.0) if bound > 0 else 1.0
    value, error = best.value, None
    if isinstance(f, InfluenceMaximization):
        means, errors = f.simulate(best.mask, _CASCADES, random_state=seed + 1)
        value, error = float(means[0]), float(errors[0])
    answer: dict[str, Any] = {
        "items": [names[i] for i in best.indices],
        "value": value,
        "standard_error": error,
        "search_value": best.value,
        "cost": best.cost,
        "budget": budget,
        "n_items": n,
        "found_by": best.algorithm,
        "algorithm": ours.algorithm,
        "algorithm_value": ours.value,
        "evaluations": ours.n_evals,
        "seconds": ours_s,
        "guarantee": ours.guarantee,
        "optimum_at_most": bound,
        "certified_share": certified,
        "yardsticks": [
            {
                "algorithm": result.algorithm,
                "value": result.value,
                "cost": result.cost,
                "seconds": seconds,
                "proven_optimal": result.algorithm == "exact" and result.guarantee == 1,
            }
            for result, seconds in yardsticks
        ],
        "front": [
            {"cost": float(cost), "value": float(found)}
            for cost, found in zip(ours.front.costs, ours.front.values, strict=True)
        ],
        "output": None if output is None else str(output),
        "python": _python(
            file,
            columns,
            influence,
            directed,
            probability,
            costs,
            f"{algorithm}(f, costs, {budget!r}, {n_evals}, random_state={seed})",
            seed,
        ),
    }
    if output is not None:
        write_table(output, _chosen(names, prices, best))
    if front is not None:
        write_table(front, _front(names, ours))
    emit(answer, as_json=as_json, text=_text(answer, influence, _no_optimum(n, exact_seconds, mip)))


def suggest(files: Sequence[FileHead]) -> str | None:
    """The command for one table of items and elements, or of sources and targets.

    Parameters
    ----------
    files : sequence of FileHead
        What the user's files hold.

    Returns
    -------
    str or None
        The exact command, or None if the files do not fit.
    """
    if len(files) != 1 or files[0].kind != "table":
        return None
    columns = set(files[0].columns)
    command = ["theses", "apply", "pareto-subset-selection", str(files[0].path)]
    if {"item", "element"} <= columns:
        return shlex.join(command)
    if {"source", "target"} <= columns:
        return shlex.join([*command, "--influence"])
    return None


def _timed(call: Any) -> tuple[SelectionResult, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def _no_optimum(n: int, seconds: float, mip: SelectionResult | None) -> str:
    if mip is not None:
        return ""
    if n > _MIP_ITEMS:
        return f"no integer programme: there are more than {_MIP_ITEMS} items"
    if not seconds:
        return "no integer programme: --exact-seconds 0"
    return f"the integer programme found nothing in {seconds:g} s"


def _sets(file: Path, table: pl.DataFrame, costs: Path | None) -> tuple[MaxCoverage, list[str], Any]:
    import numpy as np

    from theses.decision.pareto_subset_selection import MaxCoverage

    items, elements = _names(file, table, "item"), _names(file, table, "element")
    names = list(dict.fromkeys(items))
    places = {name: i for i, name in enumerate(names)}
    numbers = {name: i for i, name in enumerate(dict.fromkeys(elements))}
    sets: list[list[int]] = [[] for _ in names]
    for item, element in zip(items, elements, strict=True):
        sets[places[item]].append(numbers[element])
    weights = None
    if "weight" in table.columns:
        weights = _one_each(file, "weight", elements, numbers, "element")
    prices = np.ones(len(names))
    if "cost" in table.columns:
        prices = _one_each(file, "cost", items, places, "item")
    return MaxCoverage(sets, weights), names, _priced(costs, places, prices)


def _network(
    file: Path, table: pl.DataFrame, costs: Path | None, directed: bool, probability: float, seed: int
) -> tuple[MaxCoverage, list[str], Any]:
    import numpy as np

    from theses.datasets.files import FileError
    from theses.decision.pareto_subset_selection import InfluenceMaximization
    from theses.problems.coverage import Graph

    sources, targets = _names(file, table, "source"), _names(file, table, "target")
    chances = (
        _numbers(file, "probability")
        if "probability" in table.columns
        else np.full(table.height, probability)
    )
    numbers: dict[str, int] = {}
    arcs: dict[tuple[int, int], float] = {}
    for row, (source, target, chance) in enumerate(zip(sources, targets, chances.tolist(), strict=True), 1):
        if not 0 <= chance <= 1:
            raise FileError(f"{file}: column 'probability', row {row}: {chance:g} is not between 0 and 1")
        i, j = (numbers.setdefault(name, len(numbers)) for name in (source, target))
        if i == j:
            raise FileError(f"{file}: row {row}: {source!r} is source and target")
        for pair in ((i, j),) if directed else ((i, j), (j, i)):
            if arcs.setdefault(pair, chance) != chance:
                raise FileError(
                    f"{file}: column 'probability', row {row}: {source!r} to {target!r} was {arcs[pair]:g} "
                    "before"
                )
    graph = Graph(len(numbers), np.array(list(arcs), dtype=np.int64), directed=True)
    f = InfluenceMaximization(graph, np.array(list(arcs.values())), n_rr=_N_RR, random_state=seed)
    return f, list(numbers), _priced(costs, numbers, np.ones(len(numbers)))


def _names(file: Path, table: pl.DataFrame, column: str) -> list[str]:
    from theses.datasets.files import FileError

    if column not in table.columns:
        raise FileError(f"{file}: has no column {column!r}; it has {', '.join(table.columns[:12])}")
    names = []
    for row, cell in enumerate(table[column].to_list(), start=1):
        if cell is None or str(cell).strip() == "":
            raise FileError(f"{file}: column {column!r}, row {row}: the cell is empty")
        names.append(str(cell).strip())
    return names


def _numbers(file: Path, column: str) -> Any:
    from theses.datasets.files import FileError, read_numbers

    found = read_numbers(file, [column])[:, 0]
    if (found < 0).any():
        row = int((found < 0).argmax())
        raise FileError(f"{file}: column {column!r}, row {row + 1}: {found[row]:g} is negative")
    return found


def _one_each(file: Path, column: str, keys: list[str], places: dict[str, int], kind: str) -> Any:
    """A number for each item or element, from rows that have to agree on it."""
    import numpy as np

    from theses.datasets.files import FileError

    found = np.full(len(places), np.nan)
    for row, (key, number) in enumerate(zip(keys, _numbers(file, column).tolist(), strict=True), start=1):
        place = places[key]
        if not np.isnan(found[place]) and found[place] != number:
            raise FileError(
                f"{file}: column {column!r}, row {row}: {kind} {key!r} has {number:g}, before it had "
                f"{found[place]:g}"
            )
        found[place] = number
    return found


def _priced(costs: Path | None, places: dict[str, int], prices: Any) -> Any:
    from theses.datasets.files import FileError, read_table

    if costs is not None:
        names = _names(costs, read_table(costs), "item")
        for row, (name, cost) in enumerate(zip(names, _numbers(costs, "cost").tolist(), strict=True), 1):
            if name not in places:
                raise FileError(f"{costs}: column 'item', row {row}: {name!r} is not in the other file")
            prices[places[name]] = cost
    return prices


def _chosen(names: list[str], prices: Any, result: SelectionResult) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame(
        {"item": [names[i] for i in result.indices], "cost": prices[result.mask]},
        schema={"item": pl.String, "cost": pl.Float64},
    )


def _front(names: list[str], result: SelectionResult) -> pl.DataFrame:
    import numpy as np
    import polars as pl

    masks, values, costs = result.front
    items = ["; ".join(names[i] for i in np.flatnonzero(mask)) for mask in masks]
    return pl.DataFrame({"cost": costs, "value": values, "items": items})


def _python(
    file: Path,
    columns: Sequence[str],
    influence: bool,
    directed: bool,
    probability: float,
    costs: Path | None,
    call: str,
    seed: int,
) -> list[str]:
    algorithm = call.partition("(")[0]
    head = ["from theses.datasets.files import read_table"]
    if influence:
        chances = 'table["probability"]' if "probability" in columns else f"[{probability}] * len(pairs)"
        both = "" if directed else "; arcs[place[v], place[u]] = p"
        lines = [
            f"from theses.decision.pareto_subset_selection import InfluenceMaximization, {algorithm}",
            "from theses.problems.coverage import Graph",
            "",
            f"table = read_table({str(file)!r})",
            'pairs = [(str(u), str(v)) for u, v in zip(table["source"], table["target"])]',
            "names = list(dict.fromkeys(name for pair in pairs for name in pair))",
            "place = {name: i for i, name in enumerate(names)}",
            "arcs = {}",
            f"for (u, v), p in zip(pairs, {chances}):",
            f"    arcs[place[u], place[v]] = p{both}",
            "graph = Graph(len(names), list(arcs), directed=True)",
            f"f = InfluenceMaximization(graph, list(arcs.values()), n_rr={_N_RR}, random_state={seed})",
        ]
    else:
        lines = [
            f"from theses.decision.pareto_subset_selection import MaxCoverage, {algorithm}",
            "",
            f"table = read_table({str(file)!r})",
            'items = table.unique("item", keep="first", maintain_order=True)',
            'elements = table.unique("element", keep="first", maintain_order=True)',
            'names = [str(name) for name in items["item"]]',
            'number = {element: i for i, element in enumerate(elements["element"])}',
            'sets = [[number[e] for e in table.filter(item=item)["element"]] for item in items["item"]]',
            "f = MaxCoverage(sets" + (', elements["weight"])' if "weight" in columns else ")"),
        ]
    priced = not influence and "cost" in columns
    lines.append("costs = " + ('items["cost"].to_list()' if priced else "[1.0] * len(names)"))
    if costs is not None:
        lines += [
            f"prices = read_table({str(costs)!r})",
            'given = dict(zip(map(str, prices["item"]), prices["cost"]))',
            "costs = [given.get(name, cost) for name, cost in zip(names, costs)]",
        ]
    return [
        *head,
        *lines,
        f"result = {call}",
        "print(result.summary())",
        "print([names[i] for i in result.indices])",
    ]


def _text(answer: dict[str, Any], influence: bool, no_optimum: str) -> str:
    unit = "people reached" if influence else "value"
    spread = "" if answer["standard_error"] is None else f" (s.e. {answer['standard_error']:.2g})"
    listed = ", ".join(answer["items"][:20]) + (", ..." if len(answer["items"]) > 20 else "")
    lines = [
        f"chosen        {len(answer['items'])} of {answer['n_items']:,} items: {listed or 'none'}",
        f"{unit:<13} {answer['value']:.6g}{spread} at cost {answer['cost']:.6g} of {answer['budget']:.6g}, "
        f"found by {answer['found_by']}",
    ]
    if influence:
        lines.append(
            f"              in {_CASCADES:,} fresh cascades; {answer['search_value']:.6g} in the samples of "
            "the search"
        )
    lines += [
        f"certificate   at least {answer['certified_share']:.2%} of the optimum"
        + (" of the samples" if influence else "")
        + f", which is at most {answer['optimum_at_most']:.6g}",
        f"guarantee     {answer['algorithm']} reaches {answer['guarantee']:.4g} of the optimum with enough "
        f"evaluations; this run had {answer['evaluations']:,} ({answer['seconds']:.2g} s) and reached "
        f"{answer['algorithm_value']:.6g}",
        "",
        "Yardsticks" + (", in the samples of the search" if influence else ""),
        *(
            f"  {entry['algorithm']:<18} {entry['value']:.6g} at cost {entry['cost']:.6g} "
            f"({entry['seconds']:.2g} s)" + (", the optimum" if entry["proven_optimal"] else "")
            for entry in answer["yardsticks"]
        ),
    ]
    if no_optimum:
        lines.append(f"  {no_optimum}")
    steps = answer["front"]
    shown = steps[:: max(1, len(steps) // 6)]
    lines += ["", "What smaller budgets buy", *(f"  {e['cost']:.6g}: {e['value']:.6g}" for e in shown)]
    if answer["output"]:
        lines += ["", f"Chosen items written to {answer['output']}"]
    return "\n".join([*lines, "", "The same in Python:", *(f"  {line}" for line in answer["python"])])
