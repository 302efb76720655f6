"""Measures whether certificates of learned solvers are valid, say something, and what the solvers are worth.

QUAD are ill-conditioned quadratics in 50 dimensions, NET the training of small networks on noisy polynomials,
both with weights that were learned once and are shipped. A run is good if its loss goes down strictly at each
of its first 100 steps. LOGISTIC are ridge-logistic regressions on random rows and columns of the
breast-cancer table, solved by Adam.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from theses.evidence import Context, Measurement

if TYPE_CHECKING:
    import altair as alt

    from theses.optim.learned_optimizer import LearnedOptimizer, ProblemFamily, Problems, Trajectory

__all__ = ["figures", "run"]

Array = NDArray[np.float64]

EPS = 0.05
SIZES_N = (50, 100, 200, 500, 1000, 2000)
# Problems that walk together: their intermediate values fit into the processor's cache.
CHUNK = 64


@dataclass(frozen=True)
class _Size:
    dim: int
    horizon: int
    n_samples: int
    n_prior: int
    n_cert: int
    n_cert_sets: int
    n_test: int
    n_race: int
    cap: int
    n_net: int
    net_horizon: int
    n_rates: int
    n_tuning: int


_SIZES = {
    "smoke": _Size(6, 5, 2, 10, 10, 2, 10, 6, 60, 4, 4, 3, 4),
    "standard": _Size(50, 100, 10, 500, 250, 4, 1000, 250, 10_000, 100, 100, 100, 50),
    "long": _Size(50, 100, 10, 500, 250, 4, 1000, 250, 10_000, 100, 100, 100, 50),
    "paper": _Size(200, 500, 1, 500, 250, 4, 250, 250, 10_000, 250, 250, 100, 100),
}
LONG_ITERATIONS = 50_000


def run(ctx: Context) -> Measurement:
    """Measure one unit.

    Parameters
    ----------
    ctx : Context
        Surroundings. The ``paper`` preset takes the authors' weights from ``quadratic/model.pt`` and
        ``network/model.pt`` in ``ctx.data_folder``.

    Returns
    -------
    Measurement
        Validity, size and gap of the certificates, ratios to heavy ball and Adam; tables of the curves.

    Raises
    ------
    ValueError
        If the preset is unknown, or ``paper`` comes without a data folder.
    """
    if ctx.preset not in _SIZES:
        raise ValueError(f"preset must be one of {', '.join(_SIZES)}, got {ctx.preset!r}")
    size = _SIZES[ctx.preset]
    if ctx.preset == "paper" and ctx.data_folder is None:
        raise ValueError(
            "the paper preset needs data_folder: a folder with quadratic/model.pt and network/model.pt, each "
            "a dictionary of the authors' weights"
        )
    if ctx.limit is not None:
        small = {
            name: min(getattr(size, name), ctx.limit)
            for name in ("n_prior", "n_cert", "n_test", "n_race", "n_net", "n_rates", "n_tuning")
        }
        size = replace(
            size, **small, horizon=min(size.horizon, 10), net_horizon=min(size.net_horizon, 10), cap=100
        )
    ctx.progress(0.0, "bounds in closed form")
    rates = ctx.stage("rates", _rates)
    ctx.progress(0.02, "roll-outs of the quadratics")
    quad = ctx.stage("quad", lambda: _quad(ctx, size))
    ctx.progress(0.6, "race with heavy ball")
    race = ctx.stage("race", lambda: _race(ctx, size))
    ctx.progress(0.85, "training of small networks")
    net = ctx.stage("net", lambda: _net(ctx, size))
    ctx.progress(0.95, "Adam on real problems")
    real = ctx.stage("real", lambda: _real(ctx, size))
    metrics: dict[str, Any] = {
        "valid_share": quad["valid_share"],
        "conv_minus_a": quad["p_conv"] - quad["p_a"],
        "valid_share_real": real["valid_share"],
        "bound": quad["bound"],
        "gap": quad["gap"],
        "step_ratio": race["fine"]["hbf"] / race["fine"]["learned"],
        "step_ratio_moderate": race["moderate"]["hbf"] / race["moderate"]["learned"],
        "net_ratio_half": net["learned_half"] / net["adam_half"],
        "net_loss_adam_half": net["adam_half"],
        "net_ratio_end": net["learned_end"] / net["adam_end"],
        "net_loss_adam_end": net["adam_end"],
        "fast_rate": rates["fast"],
        "slow_rate": rates["slow"],
        "steps_hbf_fine": race["fine"]["hbf"],
        "steps_hbf_moderate": race["moderate"]["hbf"],
        "p_a": quad["p_a"],
        "p_conv": quad["p_conv"],
        "bound_clopper_pearson": quad["clopper_pearson"],
        "bound_maurer": quad["maurer"],
        "non_finite_share": quad["non_finite"],
        "bound_real": real["bound"],
        "p_real": real["p"],
        "p_a_net": net["p_a"],
    }
    kinds = ("bounds", "maurers", "clopper_pearsons", "truths")
    tables = {
        "horizons": pl.DataFrame({"T": quad["horizons"], "P_A": quad["p_by_horizon"]}),
        "bounds": pl.DataFrame(
            {
                "certificate": [i for i in range(len(quad["bounds"])) for _ in range(4)],
                "quantity": ["this bound", "Maurer", "Clopper-Pearson", "P{A} on the test set"]
                * len(quad["bounds"]),
                "value": [
                    value for values in zip(*(quad[kind] for kind in kinds), strict=True) for value in values
                ],
            }
        ),
        "curves": pl.concat([pl.DataFrame(race["curves"]), pl.DataFrame(net["curves"])]),
        "rates": pl.DataFrame(rates["table"]),
        "tuning": pl.DataFrame({"rate": net["tuning"]["rates"], "loss": net["tuning"]["losses"]}),
    }
    return Measurement(metrics, tables)


def _family(ctx: Context, size: _Size, name: str) -> ProblemFamily:
    from theses.optim.learned_optimizer import PolyRegressionFamily, QuadraticFamily

    if name == "quadratic":
        return QuadraticFamily(dim=size.dim)
    return PolyRegressionFamily(degree=5, hidden=4 if ctx.preset == "smoke" else 50)


def _solvers(ctx: Context, size: _Size, name: str) -> list[LearnedOptimizer]:
    """The shipped samples; learned anew at ``long``, the authors' at ``paper``, hardly at ``smoke``."""
    from theses.optim.learned_optimizer import load_pretrained, load_trained

    family = _family(ctx, size, name)
    if ctx.preset == "paper":
        assert ctx.data_folder is not None
        return [load_pretrained(ctx.data_folder / name, name, family.dim if name == "network" else None)]
    if ctx.preset == "standard":
        return load_trained(name)[: size.n_samples]
    return _learn(ctx, size, name, family)


def _learn(ctx: Context, size: _Size, name: str, family: ProblemFamily) -> list[LearnedOptimizer]:
    from theses.optim.learned_optimizer import LearnedOptimizer, fit, sgld_samples

    source = ctx.torch_generator(f"learning {name}")
    split = _prior_split(ctx, size, name, family)
    quadratic = name == "quadratic"
    opt = LearnedOptimizer(name, None if quadratic else family.dim, generator=source)
    iters, segment = (60, 1) if ctx.preset == "smoke" else (LONG_ITERATIONS, 1 if quadratic else 5)
    iters, pretraining = iters if quadratic else max(iters // 10, 10), 20 if ctx.preset == "smoke" else 1000
    batch = 8 if ctx.preset == "smoke" else CHUNK
    imitate = "hbf" if quadratic else "adam"
    weight = 3.0 if quadratic else 0.0
    length = 2 * size.horizon if quadratic else size.net_horizon
    fit(opt, family, split, length, pretraining, imitate=imitate, batch_size=batch, generator=source)
    fit(
        opt,
        family,
        split,
        length,
        iters,
        3e-4 if quadratic else 1e-3,
        final_lr=1e-5,
        segment=segment,
        rise_weight=weight,
        batch_size=batch,
        generator=source,
    )
    states = sgld_samples(
        opt, family, split, length, n=size.n_samples, thin=2 if ctx.preset == "smoke" else 10,
        batch_size=batch, rise_weight=weight, generator=source,
    )  # fmt: skip
    return [opt.with_state(state) for state in states]


def _prior_split(ctx: Context, size: _Size, name: str, family: ProblemFamily) -> Problems:
    """Problems on which was learned; those of the shipped weights' recipe at ``standard``."""
    if ctx.preset == "standard" and ctx.limit is None:
        from theses.optim.learned_optimizer.train import RECIPES

        return RECIPES[name].prior_split(family)
    return family.sample(size.n_prior, ctx.torch_generator(f"prior {name}"))


def _walk(solver: Any, family: ProblemFamily, params: Problems, n_steps: int) -> Trajectory:
    """Roll-out in chunks of problems that stay in the cache."""
    import torch

    from theses.optim.learned_optimizer import Trajectory, roll_out

    parts = [roll_out(solver, family, params[i : i + CHUNK], n_steps) for i in range(0, len(params), CHUNK)]
    return Trajectory(
        *(
            torch.cat([getattr(part, name) for part in parts], dim=1)
            for name in ("losses", "grad_norms", "step_norms", "point_norms")
        )
    )


def _bad(run: Trajectory) -> Array:
    from theses.optim.learned_optimizer import trajectory_properties

    # A run that is not finite is not in A, and stays in the average.
    bad: Array = (~trajectory_properties(run).A).double().numpy()
    return bad


def _quad(ctx: Context, size: _Size) -> dict[str, Any]:
    from theses.optim.learned_optimizer import certify_events, clopper_pearson, maurer_bound

    family = _family(ctx, size, "quadratic")
    solvers = _solvers(ctx, size, "quadratic")
    prior = _prior_split(ctx, size, "quadratic", family)
    n_pool = size.n_cert_sets * size.n_cert
    pool = family.sample(n_pool, ctx.torch_generator("certification"))
    test = family.sample(size.n_test, ctx.torch_generator("test"))
    horizons = sorted({max(1, size.horizon // 4), max(1, size.horizon // 2), size.horizon, 2 * size.horizon,
                       5 * size.horizon})  # fmt: skip
    prior_bad, pool_bad, test_good, converged, finite, by_horizon = [], [], [], [], [], []
    for k, solver in enumerate(solvers):
        ctx.progress(0.02 + 0.55 * k / len(solvers), f"roll-outs of sample {k + 1} of {len(solvers)}")
        prior_bad.append(_bad(_walk(solver, family, prior, size.horizon)))
        pool_bad.append(_bad(_walk(solver, family, pool, size.horizon)))
        far = _walk(solver, family, test, 5 * size.horizon)
        test_good.append(1 - _bad(far.until(size.horizon)).mean())
        # An infinite or missing norm compares as false.
        converged.append(float((far.grad_norms[-1] <= 1e-4 * far.grad_norms[0]).double().mean()))
        finite.append(float(far.finite.double().mean()))
        by_horizon.append([1 - _bad(far.until(t)).mean() for t in horizons])
    certificates = [
        certify_events(
            np.stack(prior_bad),
            np.stack(pool_bad)[:, i * size.n_cert : (i + 1) * size.n_cert],
            eps=EPS,
            property=f"strict descent up to step {size.horizon}",
        )
        for i in range(size.n_cert_sets)
    ]
    weights = np.array([c.posterior for c in certificates])
    truths = weights @ np.array(test_good)
    bounds = np.array([c.bound for c in certificates])
    maurers = [1 - maurer_bound(1 - c.empirical, c.kl, c.n, EPS) for c in certificates]
    # The exact bound is for one solver fixed beforehand: the learned weights, the first of the samples.
    firsts = [
        1 - clopper_pearson(int(pool_bad[0][i * size.n_cert : (i + 1) * size.n_cert].sum()), size.n_cert, EPS)
        for i in range(size.n_cert_sets)
    ]
    mean_weight = weights.mean(0)
    return {
        "valid_share": float((bounds <= truths).mean()),
        "bound": float(bounds.mean()),
        "gap": float((truths - bounds).mean()),
        "p_a": float(mean_weight @ test_good),
        "p_conv": float(mean_weight @ converged),
        "non_finite": 1 - float(mean_weight @ finite),
        "clopper_pearson": float(np.mean(firsts)),
        "maurer": float(np.mean(maurers)),
        "bounds": [float(b) for b in bounds],
        "maurers": [float(m) for m in maurers],
        "clopper_pearsons": firsts,
        "truths": [float(t) for t in truths],
        "horizons": horizons,
        "p_by_horizon": [float(p) for p in mean_weight @ np.array(by_horizon)],
    }


def _race(ctx: Context, size: _Size) -> dict[str, Any]:
    """Median steps of the learned weights and of heavy ball to a loss of 1e-8 and to 1e-4 of the first."""
    from theses.optim.learned_optimizer import HeavyBall, QuadraticFamily

    family = _family(ctx, size, "quadratic")
    assert isinstance(family, QuadraticFamily)
    params = family.sample(size.n_race, ctx.torch_generator("race"))
    arms = {
        "learned": _solvers(ctx, size, "quadratic")[0],
        "hbf": HeavyBall.worst_case(mu=family.mu[0], L=family.L[1]),
    }
    found: dict[str, dict[str, float]] = {"fine": {}, "moderate": {}}
    curves: dict[str, list[Any]] = {"problem": [], "solver": [], "step": [], "loss": []}
    for name, solver in arms.items():
        steps = _first_hits(solver, family, params, size.cap)
        found["fine"][name], found["moderate"][name] = (float(np.median(hits)) for hits in steps)
        run = _walk(solver, family, params[:CHUNK], 5 * size.horizon)
        _note(curves, "QUAD", name, run)
    return {**found, "curves": curves}


def _note(curves: dict[str, list[Any]], problem: str, solver: str, run: Trajectory) -> None:
    relative = (run.losses / run.losses[0]).nanmedian(dim=1).values.numpy()
    for step in range(0, len(relative), max(1, len(relative) // 100)):
        curves["problem"].append(problem)
        curves["solver"].append(solver)
        curves["step"].append(step)
        curves["loss"].append(float(relative[step]))


def _first_hits(solver: Any, family: ProblemFamily, params: Problems, cap: int) -> tuple[Array, Array]:
    """Steps of each problem to a loss of 1e-8 and to 1e-4 of its first loss; ``cap`` where never."""
    import torch

    from theses.optim.learned_optimizer import State

    n = len(params)
    fine, moderate = np.full(n, float(cap)), np.full(n, float(cap))
    with torch.no_grad():
        for start in range(0, n, CHUNK):
            index = torch.arange(start, min(start + CHUNK, n))
            part: Any = params[index]
            loss, grad = family.value_and_grad(family.z0(part), part)
            first = loss
            state = solver.init_state(family.z0(part), loss)
            for step in range(1, cap + 1):
                state = solver.step(state, loss, grad)
                loss, grad = family.value_and_grad(state.z, part)
                done = (loss <= 1e-8).numpy()
                near = (loss <= 1e-4 * first).numpy()
                rows = index.numpy()
                moderate[rows[near]] = np.minimum(moderate[rows[near]], step)
                fine[rows[done]] = np.minimum(fine[rows[done]], step)
                if step % 50 == 0 and done.any():
                    # Those that have arrived need not walk on.
                    left = torch.from_numpy(fine[rows] >= cap)
                    if not bool(left.any()):
                        break
                    index, part, first, loss, grad = (
                        index[left], part[left], first[left], loss[left], grad[left]
                    )  # fmt: skip
                    state = State(*(entry[left] for entry in state[:4]))
    return fine, moderate


def _adam_rates(ctx: Context, size: _Size) -> list[float]:
    return [float(rate) for rate in np.geomspace(1e-4, 1e-1, size.n_rates)]


def _tune_net(ctx: Context, size: _Size) -> dict[str, Any]:
    """Adam's rates on problems of the prior split: median loss at T/2 and at T."""
    from theses.optim.learned_optimizer import AdamSolver

    family = _family(ctx, size, "network")
    params = _prior_split(ctx, size, "network", family)[: size.n_tuning]
    rates, half, end = _adam_rates(ctx, size), [], []
    position = 0
    while position < len(rates):
        losses = _walk(AdamSolver(lr=rates[position]), family, params, size.net_horizon).losses
        half.append(_median(losses[size.net_horizon // 2]))
        end.append(_median(losses[-1]))
        position += 1
        edge = min(int(np.argmin(half)), int(np.argmin(end))), max(int(np.argmin(half)), int(np.argmin(end)))
        if position == len(rates) and edge[1] == position - 1 and rates[-1] < 3:
            # A winner at the upper edge widens the grid.
            rates.append(rates[-1] * 1.25)
    return {
        "rates": rates,
        "half": rates[int(np.argmin(half))],
        "end": rates[int(np.argmin(end))],
        "losses": end,
    }


def _median(losses: Any) -> float:
    values = losses.numpy()
    return float(np.median(np.where(np.isfinite(values), values, np.inf)))


def _net(ctx: Context, size: _Size) -> dict[str, Any]:
    from theses.optim.learned_optimizer import AdamSolver

    tuning = ctx.once("tuning_net", lambda shared: _tune_net(shared, size))
    family = _family(ctx, size, "network")
    params = family.sample(size.n_net, ctx.torch_generator("net"))
    half = size.net_horizon // 2
    learned = _walk(_solvers(ctx, size, "network")[0], family, params, size.net_horizon)
    adam_half = _walk(AdamSolver(lr=tuning["half"]), family, params, size.net_horizon)
    adam_end = _walk(AdamSolver(lr=tuning["end"]), family, params, size.net_horizon)
    curves: dict[str, list[Any]] = {"problem": [], "solver": [], "step": [], "loss": []}
    _note(curves, "NET", "learned", learned)
    _note(curves, "NET", "adam", adam_end)
    return {
        "learned_half": _median(learned.losses[half]),
        "learned_end": _median(learned.losses[-1]),
        "adam_half": _median(adam_half.losses[half]),
        "adam_end": _median(adam_end.losses[-1]),
        "p_a": float(1 - _bad(learned).mean()),
        "curves": curves,
        "tuning": tuning,
    }


def _logistic() -> Any:
    """Family of ridge-logistic regressions on random rows and columns of the breast-cancer table."""
    import torch
    from sklearn.datasets import load_breast_cancer
    from sklearn.preprocessing import scale
    from torch.nn.functional import softplus

    from theses.optim.learned_optimizer import ProblemFamily, Problems

    table, target = load_breast_cancer(return_X_y=True)
    X, y = torch.from_numpy(scale(table)), torch.from_numpy(2.0 * target - 1)

    class Logistic(ProblemFamily):
        dim = 10
        penalty = 1e-2

        def sample(self, n: int, generator: Any = None) -> Problems:
            rows = torch.rand(n, len(X), generator=generator).argsort(1)[:, :200]
            columns = torch.rand(n, X.shape[1], generator=generator).argsort(1)[:, :10]
            return Problems({"signed": X[rows[:, :, None], columns[:, None, :]] * y[rows][:, :, None]})

        def loss(self, z: Any, params: Problems) -> Any:
            margins = (params["signed"] @ z.unsqueeze(-1)).squeeze(-1)
            return softplus(-margins).mean(-1) + self.penalty / 2 * z.square().sum(-1)

        def value_and_grad(self, z: Any, params: Problems) -> Any:
            signed = params["signed"]
            margins = (signed @ z.unsqueeze(-1)).squeeze(-1)
            slopes = -torch.sigmoid(-margins) / margins.shape[-1]
            grad = (signed.mT @ slopes.unsqueeze(-1)).squeeze(-1) + self.penalty * z
            return softplus(-margins).mean(-1) + self.penalty / 2 * z.square().sum(-1), grad

    return Logistic()


def _near(run: Trajectory) -> Any:
    """Whether the gradient was below 1e-3 at some step."""
    return (run.grad_norms < 1e-3).any(0)


def _tune_real(ctx: Context, size: _Size) -> float:
    from theses.optim.learned_optimizer import AdamSolver

    family = _logistic()
    params = family.sample(size.n_tuning, ctx.torch_generator("prior real"))
    n_steps = 200 if ctx.preset != "smoke" else 5
    rates = _adam_rates(ctx, size)
    position, shares = 0, []
    while position < len(rates):
        shares.append(
            float(_near(_walk(AdamSolver(lr=rates[position]), family, params, n_steps)).double().mean())
        )
        position += 1
        if position == len(rates) and int(np.argmax(shares)) == position - 1 and rates[-1] < 3:
            rates.append(rates[-1] * 1.25)
    return rates[int(np.argmax(shares))]


def _real(ctx: Context, size: _Size) -> dict[str, Any]:
    from theses.optim.learned_optimizer import AdamSolver, certify_events

    rate = ctx.once("tuning_real", lambda shared: _tune_real(shared, size))
    family, n_steps = _logistic(), 200 if ctx.preset != "smoke" else 5

    def bad(n: int, stream: str) -> Array:
        events: list[Array] = []
        source = ctx.torch_generator(stream)
        while sum(map(len, events)) < n:
            chunk = family.sample(min(CHUNK, n - sum(map(len, events))), source)
            run = _walk(AdamSolver(lr=rate), family, chunk, n_steps)
            events.append((~(_near(run) & run.finite)).double().numpy())
        return np.concatenate(events)

    prior = bad(size.n_tuning, "prior for lambda")
    truth = 1 - float(bad(size.n_test, "test real").mean())
    pool = bad(size.n_cert * size.n_cert_sets, "certification real")
    bounds = [
        certify_events(prior[None], part[None], eps=EPS).bound for part in pool.reshape(size.n_cert_sets, -1)
    ]
    return {
        "valid_share": float(np.mean([bound <= truth for bound in bounds])),
        "bound": float(np.mean(bounds)),
        "p": truth,
    }


def _rates() -> dict[str, Any]:
    """The bound in closed form: like 1/N without bad runs, like 1/sqrt(N) with some."""
    from theses.optim.learned_optimizer import pac_bound

    kl, fast, slow = 0.1, [], []
    complexity = kl + np.log(1 / EPS)
    table: dict[str, list[Any]] = {"case": [], "N": [], "bound": []}
    for n in SIZES_N:
        bound = float(pac_bound(0.0, kl, n, EPS, np.geomspace(1, 20 * n, 400)).min())
        fast.append(bound * n / complexity)
        some = float(pac_bound(0.05, kl, n, EPS / 20, np.geomspace(1, 20 * n, 20)).min()) - 0.05
        slow.append(some * np.sqrt(n))
        for case, value in (("no bad run", bound), ("5 % bad runs: excess", some)):
            table["case"].append(case)
            table["N"].append(n)
            table["bound"].append(value)
    return {"fast": float(max(fast)), "slow": float(max(slow) / min(slow)), "table": table}


def figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, alt.Chart]:
    """Charts of the stored tables.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        As :func:`run` makes them, stacked over seeds.

    Returns
    -------
    dict of str to altair.Chart
        Charts by title.
    """
    import altair as alt

    def mean(frame: pl.DataFrame, keys: Sequence[str], value: str) -> pl.DataFrame:
        return frame.group_by(keys, maintain_order=True).agg(pl.col(value).mean())

    curves = mean(tables["curves"].filter(pl.col("loss").is_finite() & (pl.col("loss") > 0)),
                  ["problem", "solver", "step"], "loss")  # fmt: skip
    charts = {
        f"Median relative loss, {name}": alt.Chart(curves.filter(pl.col("problem") == name))
        .mark_line()
        .encode(
            x=alt.X("step:Q", title="step"),
            y=alt.Y("loss:Q", title="loss over first loss", scale=alt.Scale(type="log")),
            color=alt.Color("solver:N", title="solver"),
        )
        for name in ("QUAD", "NET")
    }
    charts["Certificates on quadratics"] = (
        alt.Chart(tables["bounds"])
        .mark_point()
        .encode(
            x=alt.X("quantity:N", title=None),
            y=alt.Y("value:Q", title="probability of A", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("quantity:N", title=None),
        )
    )
    charts["P{A} against the horizon, quadratics"] = (
        alt.Chart(mean(tables["horizons"], ["T"], "P_A"))
        .mark_line(point=True)
        .encode(
            x=alt.X("T:Q", title="horizon T"),
            y=alt.Y("P_A:Q", title="P{A up to T}", scale=alt.Scale(domain=[0, 1])),
        )
    )
    charts["Bound against the number of problems"] = (
        alt.Chart(mean(tables["rates"], ["case", "N"], "bound"))
        .mark_line(point=True)
        .encode(
            x=alt.X("N:Q", title="certification problems", scale=alt.Scale(type="log")),
            y=alt.Y("bound:Q", title="bound on P{bad}", scale=alt.Scale(type="log")),
            color=alt.Color("case:N", title=None),
        )
    )
    return charts
