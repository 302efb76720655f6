"""``theses apply bayesian-ambiguity``: returns of assets in, weights of a robust portfolio out."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from theses.datasets.files import FileHead

__all__ = ["apply", "suggest"]

# What a parameter of the method is called here.
_OPTIONS = {
    "epsilon": "--radius",
    "max_weight": "--max-weight",
    "model": "--model",
    "level": "--level",
    "random_state": "--seed",
}
_DATES = ("date", "week", "month", "day", "time")
_RISK_AVERSION = 5.0


def apply(
    file: Annotated[
        Path,
        typer.Argument(
            help="Returns: one row a period, in the order of time, one column an asset; a first column of "
            "dates is optional."
        ),
    ],
    radius: Annotated[
        str,
        typer.Option(help="Radius of the ambiguity set, or auto: the true law is inside with --level."),
    ] = "auto",
    level: Annotated[float, typer.Option(help="Posterior probability behind --radius auto.")] = 0.95,
    model: Annotated[
        str, typer.Option(help="known_covariance, or normal_inverse_wishart: covariance unknown too.")
    ] = "known_covariance",
    max_weight: Annotated[float, typer.Option(help="Largest weight of an asset.")] = 1.0,
    prices: Annotated[bool, typer.Option("--prices", help="The columns hold prices, not returns.")] = False,
    holdout: Annotated[
        int | None,
        typer.Option(help="Last rows on which the yardsticks are compared (default: a fifth)."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the posterior draws behind --radius auto.")] = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the weights here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Which weights do best in the worst case that these returns leave open?

    Weights are at least 0 and sum to 1. The worst case is over all laws within reach of the posterior of a
    normal model of the returns. Beside them stand, fitted without the last rows and judged on these, equal
    weights, a mean-variance portfolio, and the posterior mean alone.
    """
    from theses.cli.output import emit
    from theses.datasets.files import write_table
    from theses.datasets.returns import load_returns

    try:
        returns = load_returns(file, prices=prices)
        options = {
            "model": model,
            "epsilon": _radius(radius),
            "level": level,
            "max_weight": max_weight,
            "random_state": seed,
        }
        held = _held(file, len(returns.values), holdout)
        answer, text, table = _answer(file, returns, options, held, prices)
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
    """Command for a file that looks like returns or prices of several assets.

    Parameters
    ----------
    files : sequence of FileHead
        What the files hold.

    Returns
    -------
    str or None
        The command, None if they do not fit.
    """
    if len(files) != 1 or files[0].kind == "lines":
        return None
    head = files[0]
    numeric = list(head.numeric)
    dated = bool(head.columns) and head.columns[0].strip().casefold() in _DATES
    assets = numeric[1:] if dated else numeric
    name = head.path.stem.casefold()
    named = "return" in name or "price" in name
    if len(assets) < 2 or not all(assets) or not (dated or named):
        return None
    flag = " --prices" if "price" in name else ""
    return f"theses apply bayesian-ambiguity {shlex.quote(str(head.path))} --radius auto{flag} -o weights.csv"


def _radius(text: str) -> float | str:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"epsilon must be auto or a number, got {text!r}") from None


def _held(file: Path, n: int, holdout: int | None) -> int:
    from theses.datasets.files import FileError

    if n < 4:
        raise FileError(f"{file}: four periods or more are wanted, got {n}")
    held = max(1, n // 5) if holdout is None else holdout
    if not 1 <= held <= n - 3:
        raise ValueError(f"--holdout must be between 1 and {n - 3} of {n} rows, got {held}")
    return held


def _answer(
    file: Path, returns: Any, options: dict[str, Any], held: int, prices: bool
) -> tuple[dict[str, Any], str, Any]:
    import numpy as np
    import polars as pl

    from theses.decision.bayesian_ambiguity import RobustPortfolio

    values = returns.values
    portfolio, seconds = _timed(lambda: RobustPortfolio(**options).fit(values))
    known, fresh = values[:-held], values[-held:]
    robust, robust_s = _timed(lambda: RobustPortfolio(**options).fit(known))
    rivals: dict[str, tuple[NDArray[Any], float]] = {
        "robust (this method)": (robust.weights_, robust_s),
        "equal weights": (np.full(values.shape[1], 1 / values.shape[1]), 0.0),
        f"mean-variance, aversion {_RISK_AVERSION:g}": _timed(
            lambda: _mean_variance(known, options["max_weight"])
        ),
        # At its least radius the set holds the nominal law alone: no robustness.
        "posterior mean alone (BRO)": _timed(
            lambda: RobustPortfolio(**{**options, "epsilon": robust.G_}).fit(known).weights_
        ),
    }
    yardstick = {name: _judge(fresh @ weights, spent) for name, (weights, spent) in rivals.items()}
    auto = options["epsilon"] == "auto"
    how = (
        f"auto: takes in the true law with posterior probability {options['level']:g}, if returns are normal"
        if auto
        else "given"
    )
    flag = ", prices=True" if prices else ""
    call = ", ".join(f"{key}={value!r}" for key, value in options.items())
    python = [
        "from theses.datasets.returns import load_returns",
        "from theses.decision.bayesian_ambiguity import RobustPortfolio",
        "",
        f"returns = load_returns({str(file)!r}{flag})",
        f"portfolio = RobustPortfolio({call})",
        "portfolio.fit(returns.values)",
        "print(portfolio.worst_case_value_, portfolio.epsilon_)",
        "print(dict(zip(returns.names, portfolio.weights_.round(4).tolist())))",
    ]
    weights = dict(zip(returns.names, portfolio.weights_.tolist(), strict=True))
    nominal = float(portfolio.predict(values).mean())
    answer = {
        "n_periods": len(values),
        "n_assets": len(weights),
        "weights": weights,
        "worst_case_loss": portfolio.worst_case_value_,
        "mean_return": nominal,
        "radius": portfolio.epsilon_,
        "radius_chosen": how,
        "least_radius": portfolio.G_,
        "status": portfolio.decision_.status,
        "seconds": seconds,
        "holdout": held,
        "yardstick": yardstick,
        "python": python,
    }
    shown = sorted(weights.items(), key=lambda pair: -pair[1])
    kept = [f"  {name:<28} {weight:7.2%}" for name, weight in shown if weight >= 5e-5]
    left = len(shown) - len(kept)
    ends = f", {returns.dates[0]} to {returns.dates[-1]}" if returns.dates else ""
    promise = (
        f"at least {-portfolio.worst_case_value_:.4%} a period over all laws in the set"
        f" (mean of these weights so far: {nominal:.4%})"
    )
    lines = [
        f"{len(values)} periods, {len(weights)} assets{ends}",
        "",
        f"expected return      {promise}",
        f"radius               {portfolio.epsilon_:.4g} ({how}); least possible G = {portfolio.G_:.4g}",
        f"found in             {seconds:.2g} s, {portfolio.decision_.status}",
        "",
        "weights",
        *kept,
        *([f"  {left} others: 0"] if left else []),
        "",
        f"fitted without the last {held} periods, and judged on these",
        *(_line(name, entry) for name, entry in yardstick.items()),
        "",
        "the same in Python",
        *(f"  {line}".rstrip() for line in python),
    ]
    table = pl.DataFrame({"asset": list(weights), "weight": list(weights.values())})
    return answer, "\n".join(lines), table


def _mean_variance(known: NDArray[Any], max_weight: float) -> NDArray[Any]:
    """Weights that maximise mean return less half the aversion times the variance."""
    import numpy as np

    from theses.decision.bayesian_ambiguity.costs import load_cvxpy

    cp = load_cvxpy()
    x = cp.Variable(known.shape[1])
    centred = (known - known.mean(axis=0)) / np.sqrt(len(known) - 1)
    utility = known.mean(axis=0) @ x - _RISK_AVERSION / 2 * cp.sum_squares(centred @ x)
    cp.Problem(cp.Maximize(utility), [cp.sum(x) == 1, x >= 0, x <= max_weight]).solve(solver="CLARABEL")
    weights = np.maximum(x.value, 0.0)
    return np.asarray(weights / weights.sum())


def _judge(returns: NDArray[Any], seconds: float) -> dict[str, float]:
    import numpy as np

    n = len(returns)
    deviation = float(returns.std(ddof=1)) if n > 1 else 0.0
    worst = np.sort(returns)[: max(1, round(0.05 * n))]
    return {
        "mean": float(returns.mean()),
        "standard_error": deviation / n**0.5,
        "deviation": deviation,
        "worst_5_percent": float(worst.mean()),
        "seconds": seconds,
    }


def _line(name: str, entry: dict[str, float]) -> str:
    return (
        f"  {name:<28} mean {entry['mean']:.3%} +- {entry['standard_error']:.3%}, deviation "
        f"{entry['deviation']:.3%}, mean of the worst 5 % {entry['worst_5_percent']:.3%} "
        f"({entry['seconds']:.2g} s)"
    )


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start
