"""Measures EPOL and POMC: values beside EAMC and greedy algorithms at equal evaluations, and the theorems.

Coverage on a Barabasi-Albert graph (BA), a Model RB graph (RB) and aircraft with the weekly connections that
they served (FLI), influence among the characters of Les Miserables (INF), each at two budgets. The instances
are fixed; seeds differ in the search. Small random and adversarial instances are held against their optima.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from theses.evidence import Context, Measurement

if TYPE_CHECKING:
    import altair as alt
    from numpy.typing import NDArray

    from theses.decision.pareto_subset_selection import (
        MaxCoverage,
        SearchState,
        SelectionResult,
        SetFunction,
    )
    from theses.problems.coverage import Graph

__all__ = ["figures", "run"]

_P = 0.05
_GRID = (0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20)
_POINTS = (1, 5, 10, 20)
_FAMILIES = ("coverage", "facility location", "trap of one large item", "trap of fillers")
_SEARCHES = ("EPOL", "POMC", "EAMC", "EPOL, round robin")
_LAYOUT = (
    "a folder with coverage/ (graphs for maximum coverage, such as frb30-15-1.mis and frb35-17-1.mis) and "
    "influence/ (networks), each file in DIMACS form or with one edge a line"
)


@dataclass(frozen=True)
class _Scale:
    """Sizes of one preset."""

    instances: tuple[str, ...] = ("BA", "RB", "FLI", "INF")
    ba: tuple[int, int] = (100, 6)
    rb: tuple[int, int, int] = (12, 8, 720)
    aircraft: int = 100
    n_rr: int = 5_000
    cascades: int = 10_000
    shares: tuple[float, ...] = (0.05, 0.15)
    budgets: tuple[float, ...] = ()
    multiple: int = 20
    repeats: int = 1
    small: int = 30
    small_multiple: int = 20
    chains: int = 40


_SCALES = {
    "smoke": _Scale(
        ba=(20, 3), rb=(5, 4, 30), aircraft=20, n_rr=200, cascades=200, multiple=3, small=4, small_multiple=3,
        chains=3,
    ),
    "standard": _Scale(),
    "long": _Scale(instances=("BA", "RB"), ba=(250, 6), rb=(25, 10, 4_000)),
    # The group's habit: threshold prices, budgets of some hundreds, ten repeats, two of them a unit.
    "paper": _Scale(instances=(), n_rr=20_000, budgets=(300, 400, 500), repeats=2),
}  # fmt: skip


@dataclass(frozen=True)
class _Instance:
    name: str
    f: MaxCoverage
    costs: NDArray[np.float64]


def run(ctx: Context) -> Measurement:
    """Measure one unit.

    Parameters
    ----------
    ctx : Context
        Preset and seed; ``paper`` reads graphs from ``ctx.data_folder`` and takes at most ``ctx.limit`` nodes
        of each.

    Returns
    -------
    Measurement
        The card's metrics; tables ``pairs``, ``curves``, ``guarantees``, ``chains`` and ``optima``.

    Raises
    ------
    ValueError
        If the ``paper`` preset gets no data folder, or one without graphs.
    """
    scale = _SCALES[ctx.preset]
    if ctx.limit is not None:
        scale = replace(scale, cascades=1_000, n_rr=500, multiple=3, small=4, small_multiple=3, chains=3)
    names = _names(ctx, scale)
    ctx.progress(0.0, "optima")
    optima = ctx.once("optima", lambda shared: _optima(shared, scale))
    arms = []
    for number, name in enumerate(names):
        ctx.progress(0.05 + 0.75 * number / len(names), name)
        arms.append(ctx.stage(name, lambda name=name: _compare(ctx, name, scale)))  # type: ignore[misc]
    pairs = pl.concat([arm["pairs"] for arm in arms])
    curves = pl.concat([arm["curves"] for arm in arms])
    ctx.progress(0.8, "guarantees")
    guarantees = ctx.stage("guarantees", lambda: _guarantees(ctx, scale))
    ctx.progress(0.95, "chains")
    chains = ctx.stage("chains", lambda: _chains(ctx, scale))
    metrics = _ratios(pairs) | _anytime(curves, arms) | _against_optima(pairs, optima)
    metrics |= {
        "min_ratio_epol": float(guarantees["EPOL"].min()),  # type: ignore[arg-type]
        "min_ratio_pomc": float(guarantees["POMC"].min()),  # type: ignore[arg-type]
        "chain_share": float(chains["within"].mean()),  # type: ignore[arg-type]
    }
    tables = {
        "pairs": pairs,
        "curves": curves,
        "guarantees": guarantees,
        "chains": chains,
        "optima": optima,
    }
    return Measurement(metrics, tables)


# Instances


def _names(ctx: Context, scale: _Scale) -> list[str]:
    if ctx.preset != "paper":
        return list(scale.instances)
    if ctx.data_folder is None:
        raise ValueError(f"the paper preset needs data_folder: {_LAYOUT}")
    found = [
        f"{kind}/{path.name}"
        for kind in ("coverage", "influence")
        for path in sorted((ctx.data_folder / kind).glob("*"))
        if path.is_file()
    ]
    if not found:
        raise ValueError(f"data_folder must be {_LAYOUT}; {ctx.data_folder} has neither")
    return found


def _instance(ctx: Context, name: str, scale: _Scale) -> _Instance:
    """A fixed instance: the same for all seeds."""
    from theses.decision.pareto_subset_selection import InfluenceMaximization, MaxCoverage
    from theses.problems.coverage import (
        barabasi_albert,
        degree_costs,
        flight_sets,
        les_miserables,
        load_graph,
        model_rb,
    )

    if name in ("BA", "RB"):
        graph = (
            barabasi_albert(*scale.ba, random_state=0)
            if name == "BA"
            else model_rb(*scale.rb, random_state=0)
        )
        costs = degree_costs(graph, "outdegree_noise", random_state=1)
        return _Instance(name, MaxCoverage(graph.neighbourhoods()), costs)
    if name == "FLI":
        sets, _ = flight_sets(scale.aircraft)
        return _Instance(name, MaxCoverage(sets), 1 + 0.02 * np.array([len(served) for served in sets]))
    if name == "INF":
        graph = les_miserables()
    else:
        assert ctx.data_folder is not None
        graph = load_graph(ctx.data_folder / name)
        if ctx.limit is not None:
            graph = _first_nodes(graph, ctx.limit)
        if name.startswith("coverage/"):
            return _Instance(name, MaxCoverage(graph.neighbourhoods()), degree_costs(graph))
    f = InfluenceMaximization(graph, _P, n_rr=scale.n_rr, random_state=2)
    return _Instance(name, f, degree_costs(graph))


def _first_nodes(graph: Graph, n: int) -> Graph:
    from theses.problems.coverage import Graph

    n = min(n, graph.n)
    return Graph(n, graph.edges[(graph.edges < n).all(axis=1)], graph.directed)


def _budgets(instance: _Instance, scale: _Scale) -> list[float]:
    total = float(instance.costs.sum())
    # A budget that buys half of everything asks for no choice.
    named = [budget for budget in scale.budgets if budget <= total / 2]
    return named or [share * total for share in scale.shares]


# C1, C4: values at equal evaluations


def _search(
    name: str, instance: _Instance, budget: float, scale: _Scale, rng: np.random.Generator
) -> SelectionResult:
    from theses.decision.pareto_subset_selection import eamc, epol, pomc

    n_evals = f"{scale.multiple}n2"
    if name == "POMC":
        return pomc(instance.f, instance.costs, budget, n_evals, random_state=rng)
    if name == "EAMC":
        return eamc(instance.f, instance.costs, budget, n_evals, random_state=rng)
    allocation = "round_robin" if name == "EPOL, round robin" else "successive_halving"
    return epol(instance.f, instance.costs, budget, n_evals, allocation=allocation, random_state=rng)


def _greedy(instance: _Instance, budget: float) -> dict[str, SelectionResult]:
    from theses.decision.pareto_subset_selection import (
        generalized_greedy,
        greedy_plus_max,
        one_guess_greedy_plus,
    )

    return {
        "greedy": generalized_greedy(instance.f, instance.costs, budget),
        "Greedy+Max": greedy_plus_max(instance.f, instance.costs, budget),
        "one-guess Greedy+": one_guess_greedy_plus(instance.f, instance.costs, budget),
    }


def _compare(ctx: Context, name: str, scale: _Scale) -> dict[str, Any]:
    from theses.decision.pareto_subset_selection import InfluenceMaximization

    instance = _instance(ctx, name, scale)
    n = instance.f.n
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    increments, crossings = [], []
    for number, budget in enumerate(_budgets(instance, scale)):
        for repeat in range(scale.repeats):
            place = f"{name}/{number}/{repeat}"
            greedy = _greedy(instance, budget)
            results = {
                search: _search(search, instance, budget, scale, ctx.rng(f"{place}/{search}"))
                for search in _SEARCHES
            } | greedy
            values = {algorithm: result.value for algorithm, result in results.items()}
            if isinstance(instance.f, InfluenceMaximization):
                masks = np.array([result.mask for result in results.values()])
                means, _ = instance.f.simulate(
                    masks, scale.cascades, random_state=ctx.rng(f"{place}/cascades")
                )
                values = dict(zip(results, means.tolist(), strict=True))
            for algorithm, result in results.items():
                rows.append(
                    {
                        "instance": name,
                        "budget_number": number,
                        "budget": budget,
                        "repeat": repeat,
                        "algorithm": algorithm,
                        "value": values[algorithm],
                        "search_value": result.value,
                        "cost": result.cost,
                        "n_items": int(result.mask.sum()),
                        "n_evals": result.n_evals,
                        "front": len(result.front.values),
                        "max_archive": result.max_archive,
                    }
                )
            reference = greedy["greedy"].value
            for search in ("EPOL", "POMC", "EAMC"):
                trace = results[search].trace
                for multiple in _GRID:
                    if multiple <= scale.multiple and (found := _at(trace, multiple * n * n)) is not None:
                        curves.append(
                            {
                                "instance": name,
                                "budget_number": number,
                                "repeat": repeat,
                                "algorithm": search,
                                "multiple": float(multiple),
                                "over_greedy": found / reference,
                            }
                        )
            trace = results["EPOL"].trace
            reached = [_at(trace, multiple * n * n) for multiple in _POINTS if multiple <= scale.multiple]
            known = [value for value in reached if value is not None]
            increments += [after - before for before, after in itertools.pairwise(known)] or [0.0]
            met = trace.n_evals[trace.values >= reference * (1 - 1e-12)]
            # A run that never gets there is counted as if it did with its last evaluation.
            crossings.append((float(met[0]) if len(met) else scale.multiple * n * n) / n**2)
    return {
        "pairs": pl.DataFrame(rows),
        "curves": pl.DataFrame(curves),
        "increments": increments,
        "crossings": crossings,
    }


def _at(trace: Any, n_evals: float) -> float | None:
    """Best value that was known after so many evaluations."""
    last = int(np.searchsorted(trace.n_evals, n_evals, side="right")) - 1
    return None if last < 0 else float(trace.values[last])


def _ratios(pairs: pl.DataFrame) -> dict[str, Any]:
    wide = pairs.pivot(on="algorithm", index=["instance", "budget_number", "repeat"], values="value")

    def mean_ratio(above: str, below: str) -> float:
        return float((wide[above] / wide[below]).mean())  # type: ignore[arg-type]

    algorithms = ["EPOL", "POMC", "EAMC", "greedy", "Greedy+Max", "one-guess Greedy+"]
    # Rank 1 is the best value; equal ones share the mean of their ranks.
    table = wide.select(algorithms).to_numpy()
    above = (table[:, None, :] > table[:, :, None] * (1 + 1e-12)).sum(axis=2)
    equal = (np.abs(table[:, None, :] - table[:, :, None]) <= 1e-12 * table[:, :, None]).sum(axis=2)
    ranks = (above + (equal + 1) / 2).mean(axis=0)
    names = ("epol", "pomc", "eamc", "greedy", "greedy_max", "one_guess")
    fronts = pairs.group_by("algorithm").agg(pl.col("front").mean())
    sizes = dict(fronts.iter_rows())
    return {
        "ratio_pomc": mean_ratio("EPOL", "POMC"),
        "ratio_eamc": mean_ratio("EPOL", "EAMC"),
        "ratio_greedy": mean_ratio("EPOL", "greedy"),
        "ratio_greedy_max": mean_ratio("EPOL", "Greedy+Max"),
        "pomc_over_greedy": mean_ratio("POMC", "greedy"),
        "eamc_over_greedy": mean_ratio("EAMC", "greedy"),
        "greedy_max_over_greedy": mean_ratio("Greedy+Max", "greedy"),
        "ratio_one_guess": mean_ratio("EPOL", "one-guess Greedy+"),
        "ratio_round_robin": mean_ratio("EPOL, round robin", "POMC"),
        "wilcoxon_p": _wilcoxon(wide["EPOL"].to_numpy(), wide["POMC"].to_numpy()),
        "front_size_pomc": float(sizes["POMC"]),
        "front_size_epol": float(sizes["EPOL"]),
    } | {f"rank_{name}": float(rank) for name, rank in zip(names, ranks, strict=True)}


def _wilcoxon(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    from scipy import stats

    difference = np.where(np.abs(ours - theirs) <= 1e-12 * np.abs(theirs), 0.0, ours / theirs - 1)
    if not difference.any():
        return 1.0
    tested: Any = stats.wilcoxon(difference, zero_method="pratt", method="approx")
    return float(tested.pvalue)


def _anytime(curves: pl.DataFrame, arms: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "increment": min(value for arm in arms for value in arm["increments"]),
        "crossing": statistics.median(value for arm in arms for value in arm["crossings"]),
    }


# Optima by integer programming


_OPTIMA_SCHEMA = {
    "instance": pl.String,
    "budget_number": pl.Int64,
    "optimum": pl.Float64,
}


def _optima(ctx: Context, scale: _Scale) -> pl.DataFrame:
    """Optima of the instances that HiGHS solves in seconds, in the values that the searches see."""
    from theses.decision.pareto_subset_selection import exact_coverage

    rows = []
    if ctx.preset in ("smoke", "standard"):
        for name in scale.instances:
            if name != "FLI":
                instance = _instance(ctx, name, scale)
                for number, budget in enumerate(_budgets(instance, scale)):
                    solved = exact_coverage(instance.f, instance.costs, budget, time_limit=300)
                    rows.append({"instance": name, "budget_number": number, "optimum": solved.value})
    return pl.DataFrame(rows, schema=_OPTIMA_SCHEMA)


def _against_optima(pairs: pl.DataFrame, optima: pl.DataFrame) -> dict[str, float]:
    both = pairs.join(optima, on=["instance", "budget_number"]).with_columns(
        share=pl.col("search_value") / pl.col("optimum")
    )
    found = dict(both.group_by("algorithm").agg(pl.col("share").mean()).iter_rows())
    # Without optima, as on graphs of the paper's size, there is no ratio.
    return {f"mip_ratio_{name.lower()}": float(found.get(name, math.nan)) for name in ("EPOL", "POMC")}


# C2: guarantees on small instances


def _small(rng: np.random.Generator, family: str) -> tuple[SetFunction, NDArray[np.float64], float]:
    from theses.decision.pareto_subset_selection import FacilityLocation, MaxCoverage

    n = int(rng.integers(8, 11))
    if family == "coverage":
        sets = [np.flatnonzero(rng.random(20) < rng.uniform(0.05, 0.35)) for _ in range(n)]
        f: SetFunction = MaxCoverage(sets, rng.integers(1, 6, size=20))
        costs = rng.uniform(0.5, 3.0, size=n)
    elif family == "facility location":
        f = FacilityLocation(rng.random((15, n)) ** 3)
        costs = rng.uniform(0.5, 3.0, size=n)
    elif family == "trap of one large item":
        # One item of value 1 - e and cost B against many whose value is their tiny cost.
        e, tiny = rng.uniform(0.01, 0.1), rng.uniform(0.005, 0.02)
        weights = np.array([1 - e, *[tiny] * (n - 1)])
        return MaxCoverage([[v] for v in range(n)], weights), np.array([1.0, *[tiny] * (n - 1)]), 1.0
    else:
        # An item of cost B / 2 + e and value 1/2; fillers of slightly better ratio leave no room for it.
        e = rng.uniform(0.01, 0.05)
        item = 0.5 + e
        price = (1 - item + e) / (n - 1)
        weights = np.array([0.5, *[price * (0.5 / item) * 1.02] * (n - 1)])
        costs = np.array([item, *[price] * (n - 1)])
        return MaxCoverage([[v] for v in range(n)], weights), costs, 1.0
    return f, costs, float(rng.uniform(0.2, 0.6) * costs.sum())


def _enumerate(f: SetFunction, costs: NDArray[np.float64], budget: float) -> float:
    """Optimum over all sets."""
    n = f.n
    best = 0.0
    for bits in range(1 << n):
        mask = (bits >> np.arange(n) & 1).astype(bool)
        if costs[mask].sum() <= budget * (1 + 1e-12):
            best = max(best, f.value(mask))
    return best


def _guarantees(ctx: Context, scale: _Scale) -> pl.DataFrame:
    from theses.decision.pareto_subset_selection import epol, pomc

    rng = ctx.rng("small instances")
    rows = []
    for number in range(scale.small):
        family = _FAMILIES[number % len(_FAMILIES)]
        f, costs, budget = _small(rng, family)
        optimum = _enumerate(f, costs, budget)
        each = scale.small_multiple * f.n**2
        # So many for each guess: shared evenly over all of them and the empty one.
        ours = epol(f, costs, budget, each * (f.n + 1), allocation="round_robin", random_state=rng)
        pareto = pomc(f, costs, budget, each * f.n, random_state=rng)
        rows.append(
            {
                "family": family,
                "n": f.n,
                "optimum": optimum,
                "EPOL": ours.value / optimum if optimum else 1.0,
                "POMC": pareto.value / optimum if optimum else 1.0,
            }
        )
    return pl.DataFrame(rows)


# C3: the archive holds the greedy chain


def _ratio_chain(
    f: MaxCoverage, costs: NDArray[np.float64], budget: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Costs and values of the prefixes of greedy by ratio that are within the budget."""
    mask = np.zeros(f.n, dtype=bool)
    chain_costs: list[float] = []
    chain_values: list[float] = []
    while True:
        fits = ~mask & (costs + costs[mask].sum() <= budget * (1 + 1e-12))
        ratio = np.where(fits, f.gains(mask) / costs, 0.0)
        item = int(ratio.argmax())
        if ratio[item] <= 0:
            return np.array(chain_costs), np.array(chain_values)
        mask[item] = True
        chain_costs.append(float(costs[mask].sum()))
        chain_values.append(f.value(mask))


def _chains(ctx: Context, scale: _Scale) -> pl.DataFrame:
    from theses.decision.pareto_subset_selection import MaxCoverage

    rng = ctx.rng("chains")
    rows = []
    for _ in range(scale.chains):
        n = int(rng.integers(10, 15))
        sets = [np.flatnonzero(rng.random(30) < rng.uniform(0.05, 0.3)) for _ in range(n)]
        f = MaxCoverage(sets, rng.integers(1, 6, size=30))
        costs = rng.uniform(0.5, 3.0, size=n)
        budget = float(rng.uniform(0.2, 0.6) * costs.sum())
        rows.append({"n": n, **_one_chain(f, costs, budget, rng)})
    return pl.DataFrame(rows)


def _one_chain(
    f: MaxCoverage, costs: NDArray[np.float64], budget: float, rng: np.random.Generator
) -> dict[str, Any]:
    from theses.decision.pareto_subset_selection import pomc

    chain_costs, chain_values = _ratio_chain(f, costs, budget)
    # K_B: as many of the cheapest items as the budget buys.
    largest = int((np.cumsum(np.sort(costs)) <= budget * (1 + 1e-12)).sum())
    factor = 2 * math.e * f.n * largest
    seen = {"evals": math.inf, "archive": 1}

    def watch(state: SearchState) -> bool:
        seen["archive"] = state.max_archive
        found = np.searchsorted(state.costs, chain_costs + 1e-9 * budget, side="right") - 1
        values = np.asarray(state.values)
        if (found >= 0).all() and (values[found] >= chain_values - 1e-9).all():
            seen["evals"] = state.n_evals
            return True
        # The bound may still grow with the archive; judged by the archive seen so far it only gets stricter.
        return state.n_evals > factor * state.max_archive

    pomc(f, costs, budget, 100 * f.n**4, callback=watch, random_state=rng)
    bound = factor * seen["archive"]
    return {
        "largest": largest,
        "max_archive": int(seen["archive"]),
        "share_of_bound": float(min(seen["evals"] / bound, 2.0)),
        "within": float(seen["evals"] <= bound),
    }


def figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, alt.Chart]:
    """Charts of the stored tables.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        Those of :func:`run`, each with a column ``seed``.

    Returns
    -------
    dict of str to altair.Chart
        ``values`` over that of generalised greedy, their ``curves``, the ``guarantees`` and the ``chains``.
    """
    import altair as alt

    pairs = tables["pairs"]
    keys = ["seed", "instance", "budget_number", "repeat"]
    greedy = pairs.filter(algorithm="greedy").select(*keys, reference="value")
    relative = pairs.join(greedy, on=keys).with_columns(
        over_greedy=pl.col("value") / pl.col("reference"),
        pair=pl.format("{}, {}", "instance", pl.col("budget").round(1)),
    )
    rule = alt.Chart().mark_rule(strokeDash=[4, 3])
    points = (
        alt.Chart()
        .mark_point(filled=True, opacity=0.6)
        .encode(
            x=alt.X("over_greedy:Q", title="value / generalised greedy").scale(zero=False),
            y=alt.Y("algorithm:N", title=None),
            color=alt.Color("algorithm:N", legend=None),
            tooltip=["algorithm:N", "value:Q", "cost:Q", "seed:N"],
        )
    )
    values = (
        alt.layer(points, rule.encode(x=alt.datum(1)), data=relative)
        .properties(width=260, height=120)
        .facet(alt.Facet("pair:N", title=None), columns=2, title="Values at equal evaluations")
        .resolve_scale(x="independent")
    )
    means = (
        tables["curves"]
        .group_by("instance", "budget_number", "algorithm", "multiple")
        .agg(pl.col("over_greedy").mean())
        .with_columns(pair=pl.format("{}, budget {}", "instance", pl.col("budget_number") + 1))
        .sort("pair", "algorithm", "multiple")
    )
    lines = (
        alt.Chart()
        .mark_line(point=True)
        .encode(
            x=alt.X("multiple:Q", title="evaluations / n^2").scale(type="log"),
            y=alt.Y("over_greedy:Q", title="best value / greedy").scale(zero=False),
            color=alt.Color("algorithm:N", title=None),
        )
    )
    curves = (
        alt.layer(lines, rule.encode(y=alt.datum(1)), data=means)
        .properties(width=260, height=160)
        .facet(alt.Facet("pair:N", title=None), columns=2, title="Anytime: mean over seeds")
        .resolve_scale(y="independent")
    )
    ratios = tables["guarantees"].unpivot(
        on=["EPOL", "POMC"], index=["seed", "family", "n"], variable_name="algorithm", value_name="ratio"
    )
    guarantees = (
        alt.Chart(ratios)
        .mark_tick(thickness=2, opacity=0.6)
        .encode(
            x=alt.X("ratio:Q", title="value / optimum").scale(domain=[0.45, 1.02]),
            y=alt.Y("family:N", title=None),
            color=alt.Color("algorithm:N", title=None),
            yOffset="algorithm:N",
            tooltip=["family:N", "n:Q", "ratio:Q", "seed:N"],
        )
        .properties(width=360, height=200, title="Small instances, optimum by enumeration")
    )
    chains = (
        alt.Chart(tables["chains"])
        .mark_bar()
        .encode(
            x=alt.X("share_of_bound:Q", title="evaluations until the chain is held / bound").bin(maxbins=40),
            y=alt.Y("count():Q", title="runs"),
        )
        .properties(width=360, height=160, title="The archive holds the greedy chain")
    )
    return {"values": values, "curves": curves, "guarantees": guarantees, "chains": chains}
