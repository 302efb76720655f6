"""Seconds until each method is within a relative error of 1e-7, on digits and on flight delays."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from theses.evidence import Context, interleave
from theses.studies.optim.subsampled_newton.sizes import Size

__all__ = ["TARGET", "race", "tune_less"]

TARGET = 1e-7
GD_CAP = 20.0  # times the time of sub-sampled Newton

# Problem: name, X, y, lam.
_Data = tuple[str, NDArray[np.float64], NDArray[np.float64], float]


def _race_data(ctx: Context, size: Size, name: str) -> _Data:
    if name == "FL":
        return name, *_flight_rows(ctx, size), 1e-4
    if name == "M5":
        from theses.datasets.images import load_mnist5k

        images, labels = load_mnist5k()
        rows = ctx.rng("M5").permutation(len(images))[: size.n_digits]
        images, labels = images[rows], labels[rows]
    else:
        from theses.datasets.images import load_torchvision_folder

        assert ctx.data_folder is not None
        images, labels = load_torchvision_folder(ctx.data_folder, name.replace("-", ""))
        images, labels = images[: ctx.limit], labels[: ctx.limit]
    images = images[..., :: size.shrink_digits, :: size.shrink_digits]
    return name, images.reshape(len(images), -1) / 255, (labels > 4).astype(np.float64), 1e-2


def _flight_rows(ctx: Context, size: Size) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Delays over 15 minutes; one-hot month, weekday, hour, carrier, origin, 60 destinations; distance."""
    from theses.datasets.flights import load_flights

    flights = load_flights().with_columns(weekday=pl.date(2013, pl.col("month"), pl.col("day")).dt.weekday())
    common = flights["dest"].value_counts(sort=True)["dest"][:60].to_list()
    rows = ctx.rng("FL").permutation(flights.height)[: size.n_flights]
    chosen = flights[np.sort(rows)]
    blocks = []
    for column in ("month", "weekday", "hour", "carrier", "origin", "dest"):
        values = common if column == "dest" else flights[column].unique().sort().to_list()
        codes = (
            chosen[column]
            .replace_strict(values, list(range(len(values))), default=-1, return_dtype=pl.Int64)
            .to_numpy()
        )
        blocks.append((codes[:, None] == np.arange(len(values))).astype(np.float64))
    distance = chosen["distance"].to_numpy()
    blocks.append(((distance - distance.mean()) / distance.std())[:, None])
    return np.hstack(blocks), (chosen["arr_delay"].to_numpy() > 15).astype(np.float64)


class _Clock:
    """Records seconds and relative error at every iterate; stops where the target is met or time is up."""

    def __init__(self, best: NDArray[np.float64], cap: float = math.inf) -> None:
        self.best, self.norm, self.cap = best, float(np.linalg.norm(best)), cap
        self.seconds: list[float] = []
        self.errors: list[float] = []
        self.start = time.perf_counter()

    def __call__(self, b: NDArray[np.float64]) -> None:
        self.seconds.append(time.perf_counter() - self.start)
        self.errors.append(float(np.linalg.norm(b - self.best)) / self.norm)
        if self.reached or self.seconds[-1] > self.cap:
            raise StopIteration

    @property
    def reached(self) -> bool:
        return self.errors[-1] <= TARGET


def _less(form: Mapping[str, Any], m: int) -> tuple[Any, str]:
    from theses.optim.subsampled_newton import LESS

    scheme = form["scheme"]
    options: dict[str, Any] = {} if scheme == "uniform" else {"approx_sketch": "row_norm", "approx_size": m}
    # With uniform draws no effective dimension comes along, and the line search finds the scale.
    return LESS(m, form["s"], scheme=scheme, **options), "none" if scheme == "uniform" else "scalar"


def _contestants(
    data: _Data, best: NDArray[np.float64], m: int, form: Mapping[str, Any], seed: int
) -> dict[str, Callable[[], _Clock]]:
    from scipy import optimize

    from theses.optim.subsampled_newton import LogisticProblem, RowSampler, minimize_ssn

    _, X, y, lam = data

    def newton_like(sampler: Any, debias: Any) -> _Clock:
        problem = LogisticProblem(X, y, lam)
        clock = _Clock(best)
        minimize_ssn(
            problem,
            np.zeros(X.shape[1]),
            sampler,
            debias,
            max_iter=200,
            tol=0.0,
            callback=clock,
            random_state=seed,
        )
        return clock

    def ssn() -> _Clock:
        sampler = RowSampler("approx_ridge_leverage", m, approx_sketch="row_norm", approx_size=m)
        return newton_like(sampler, "fine")

    def lbfgs() -> _Clock:
        problem = LogisticProblem(X, y, lam)
        minimize: Any = optimize.minimize
        clock = _Clock(best)
        minimize(
            lambda b: (problem.value(b), problem.gradient(b)),
            np.zeros(X.shape[1]),
            jac=True,
            method="L-BFGS-B",
            callback=clock,
            options={"maxiter": 5_000, "maxfun": 10_000, "ftol": 0.0, "gtol": 1e-14},
        )
        return clock

    return {
        "SSN": ssn,
        "Newton": lambda: newton_like(None, "none"),
        "Newton-LESS": lambda: newton_like(*_less(form, m)),
        "L-BFGS": lbfgs,
    }


def _gradient_descent(data: _Data, best: NDArray[np.float64], cap: float) -> _Clock:
    """Steps of one over the Lipschitz constant, which a few power iterations find."""
    from theses.optim.subsampled_newton import LogisticProblem

    _, X, y, lam = data
    problem = LogisticProblem(X, y, lam)
    clock = _Clock(best, cap)
    direction = np.ones(X.shape[1])
    largest = 0.0
    for _ in range(20):
        direction = X.T @ (X @ (direction / np.linalg.norm(direction)))
        largest = float(np.linalg.norm(direction))
    step = 1 / (1.02 * largest / (4 * len(X)) + lam)
    b = np.zeros(X.shape[1])
    while True:
        b = b - step * problem.gradient(b)
        try:
            clock(b)
        except StopIteration:
            return clock


def _optimum(data: _Data) -> NDArray[np.float64]:
    from theses.optim.subsampled_newton import LogisticProblem, minimize_ssn

    _, X, y, lam = data
    result = minimize_ssn(LogisticProblem(X, y, lam), np.zeros(X.shape[1]), None, tol=1e-14, max_iter=20)
    return np.asarray(result.x)


def tune_less(ctx: Context, size: Size, name: str) -> dict[str, Any]:
    """Newton-LESS in four forms on the tuning seed; the fastest to the target runs on the others."""
    if len(size.less_forms) == 1:
        scheme, s = size.less_forms[0]
        return {"winner": {"scheme": scheme, "s": s}, "trials": []}
    data = _race_data(ctx, size, name)
    best = _optimum(data)
    m = _rows_of(size, data)
    trials: list[dict[str, Any]] = []
    for scheme, s in size.less_forms:
        runs = _contestants(data, best, m, {"scheme": scheme, "s": s}, ctx.integer("less"))
        clock = runs["Newton-LESS"]()
        seconds = clock.seconds[-1] if clock.reached else math.inf
        trials.append({"data": name, "scheme": scheme, "s": s, "seconds": seconds})
    winner = min(trials, key=lambda trial: trial["seconds"])
    return {
        "winner": {"scheme": winner["scheme"], "s": winner["s"]},
        "trials": [{**trial, "winner": trial is winner} for trial in trials],
    }


def _rows_of(size: Size, data: _Data) -> int:
    return min(size.m_race, len(data[1]))


def race(ctx: Context, size: Size, name: str, form: Mapping[str, Any]) -> dict[str, Any]:
    """Times and traces of all methods on one data set, each from 0 and with all it computes on the way."""
    data = _race_data(ctx, size, name)
    best = _optimum(data)
    runs = _contestants(data, best, _rows_of(size, data), form, ctx.integer(f"race/{name}"))
    clocks: dict[str, _Clock] = {}

    def kept(method: str) -> Callable[[], None]:
        def call() -> None:
            clocks[method] = runs[method]()

        return call

    interleave([kept(method) for method in runs], repeats=1, warmup=0)
    cap = GD_CAP * clocks["SSN"].seconds[-1]
    clocks["GD"] = _gradient_descent(data, best, cap)
    times = {method: min(clock.seconds[-1], cap) for method, clock in clocks.items()}
    n, d = data[1].shape
    notes = [f"{name}: n = {n:,}, d = {d}; Newton-LESS {form['scheme']}, s = {form['s']}"]
    notes += [
        f"{name}: {method} did not reach a relative error of {TARGET:g} (left at {clock.errors[-1]:.1e}); "
        "its time is a lower bound"
        for method, clock in clocks.items()
        if not clock.reached
    ]
    trace = [
        {"data": name, "method": method, "seconds": clock.seconds[i], "error": clock.errors[i]}
        for method, clock in clocks.items()
        # The slow ones have thousands of iterates; a hundred draw the same line.
        for i in sorted({*np.linspace(0, len(clock.errors) - 1, 100).astype(int).tolist()})
    ]
    return {"times": times, "trace": trace, "notes": notes}
