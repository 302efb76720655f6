"""``theses apply bayesian-quadrature-conformal``: calibration losses in, bound of the risk out."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from theses.datasets.files import FileHead

__all__ = ["apply", "suggest"]

# What a parameter of the method is called here.
_OPTIONS = {
    "alpha": "--alpha",
    "beta": "--beta",
    "max_loss": "--max-loss",
    "n_samples": "--draws",
    "random_state": "--seed",
}
_YARDSTICKS = {"crc": "conformal risk control", "rcps-hoeffding": "RCPS with Hoeffding's bound"}


def apply(
    file: Annotated[
        Path,
        typer.Argument(
            help="Calibration losses: a column of them, or a table with a row for each case and a column "
            "for each lambda, named by it: lambda=0.5 (in Parquet also 0.5)."
        ),
    ],
    alpha: Annotated[float, typer.Option(help="Risk that must not be exceeded.")] = 0.1,
    beta: Annotated[float, typer.Option(help="Probability with which it must not.")] = 0.95,
    column: Annotated[str | None, typer.Option(help="Column of the losses, if there are several.")] = None,
    max_loss: Annotated[float, typer.Option(help="Largest possible loss.")] = 1.0,
    draws: Annotated[int, typer.Option(help="Draws of the bound, where it is not exact.")] = 10_000,
    conservative: Annotated[
        bool, typer.Option("--conservative", help="Allow for the finite number of draws.")
    ] = False,
    not_monotone: Annotated[
        bool,
        typer.Option(
            "--not-monotone", help="Admit losses that do not fall with lambda; the certificate is shared out."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the bound's distribution, or the table of lambdas, here."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Is the risk of a model below alpha, and at which lambda, given these calibration losses?

    One column of losses gets an upper bound of the risk at deployment and a verdict. A table of losses, with
    columns named by lambda and losses that fall as lambda grows, also gets the least lambda whose risk is
    below alpha with probability beta.
    """
    from theses.cli.output import emit
    from theses.datasets.files import write_table

    options = {"max_loss": max_loss, "n_samples": draws, "random_state": seed}
    if conservative:
        options["conservative"] = True
    try:
        losses, names, lambdas = _read(file, column, max_loss)
        if lambdas is not None:
            answer, text, table = _many(file, losses, lambdas, alpha, beta, options, not_monotone)
        elif not_monotone:
            raise ValueError("--not-monotone is for a table with a column for each lambda")
        else:
            answer, text, table = _one(file, names[0], losses[:, 0], alpha, beta, options)
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
    """Command for files that look like calibration losses.

    Parameters
    ----------
    files : sequence of FileHead
        What the files hold.

    Returns
    -------
    str or None
        The command, None if they do not fit.
    """
    if len(files) != 1:
        return None
    head = files[0]
    command = f"theses apply bayesian-quadrature-conformal {shlex.quote(str(head.path))}"
    if head.kind == "lines" or not head.columns or not any(head.numeric):
        return None
    if len(head.columns) == 1 or (all(head.numeric) and _as_lambdas(head.columns) is not None):
        return f"{command} --alpha 0.1 --beta 0.95"
    for name, numeric in zip(head.columns, head.numeric, strict=True):
        if numeric and name.casefold() in ("loss", "losses"):
            return f"{command} --column {shlex.quote(name)} --alpha 0.1 --beta 0.95"
    return None


def _read(
    file: Path, column: str | None, max_loss: float
) -> tuple[NDArray[np.float64], list[str], list[float] | None]:
    import numpy as np

    from theses.datasets.files import FileError, read_numbers, read_table
    from theses.validation import check_real

    max_loss = check_real("max_loss", max_loss, minimum=0, include=False)
    try:
        names = read_table(file).columns if column is None else [column]
    except FileError as error:
        if "numbers only" in str(error):
            raise FileError(f"{error}; columns of lambdas are named lambda=0.5 and so on") from None
        raise
    lambdas = _as_lambdas(names)
    if column is not None or len(names) == 1:
        lambdas = None
    elif lambdas is None:
        raise FileError(
            f"{file}: columns {', '.join(map(repr, names[:6]))}{', ...' if len(names) > 6 else ''}: give "
            "--column NAME for a column of losses, or name every column by its lambda, as in lambda=0.5"
        )
    losses = read_numbers(file, names)
    slack = 1e-9 * max_loss
    bad = (losses < -slack) | (losses > max_loss + slack)
    if bad.any():
        row, j = (int(i) for i in np.argwhere(bad)[0])
        raise FileError(
            f"{file}: column {names[j]!r}, row {row + 1}: a loss lies between 0 and {max_loss:g} "
            f"(--max-loss), got {losses[row, j]:g}"
        )
    return losses, names, lambdas


def _as_lambdas(names: Sequence[str]) -> list[float] | None:
    values = []
    for name in names:
        prefix, _, number = name.rpartition("=")
        if prefix.strip().casefold() not in ("", "lambda", "lam"):
            return None
        try:
            values.append(float(number))
        except ValueError:
            return None
    different = len(set(values)) == len(values) and all(math.isfinite(value) for value in values)
    return values if different else None


def _one(
    file: Path,
    name: str,
    losses: NDArray[np.float64],
    alpha: float,
    beta: float,
    options: dict[str, Any],
) -> tuple[dict[str, Any], str, Any]:
    from theses.trust.bayesian_quadrature_conformal import RiskPosterior, RiskRule
    from theses.trust.bayesian_quadrature_conformal.rules import check_draws

    max_loss = options["max_loss"]
    # Checks alpha and beta against max_loss, and is what the usual methods say.
    rules = {method: RiskRule(method, len(losses), alpha, beta, max_loss) for method in _YARDSTICKS}

    def bound_the_risk() -> tuple[RiskPosterior, float, float]:
        posterior = RiskPosterior(losses, **options)
        if not posterior.exact:
            check_draws(posterior.n_samples, beta, posterior.conservative)
        return posterior, posterior.quantile(beta), posterior.prob_below(alpha)

    (posterior, quantile, probability), seconds = _timed(bound_the_risk)
    certified = probability >= beta
    yardstick = {}
    for method, rule in rules.items():
        bound, method_seconds = _timed(partial(rule.bound, losses))
        yardstick[method] = {"bound": bound, "holds": rule.holds(losses), "seconds": method_seconds}
    how = "exact, no draws" if posterior.exact else f"{posterior.n_samples} draws, {seconds:.2g} s"
    call = ", ".join(f"{key}={value!r}" for key, value in options.items())
    python = [
        "from theses.datasets.files import read_numbers",
        "from theses.trust.bayesian_quadrature_conformal import RiskPosterior",
        "",
        f"losses = read_numbers({str(file)!r}, [{name!r}])[:, 0]",
        f"posterior = RiskPosterior(losses, {call})",
        f"print(posterior.mean, posterior.quantile({beta!r}), posterior.prob_below({alpha!r}))",
    ]
    answer = {
        "n": len(losses),
        "mean_loss": float(losses.mean()),
        "alpha": alpha,
        "beta": beta,
        "max_loss": max_loss,
        "mean": posterior.mean,
        "quantile": quantile,
        "probability_below_alpha": probability,
        "certified": certified,
        "exact": posterior.exact,
        "seconds": seconds,
        "yardstick": yardstick,
        "python": python,
    }
    verdict = (
        f"yes: below {alpha:g} with probability {_probability(probability)} (wanted {beta:g})"
        if certified
        else f"not certified: below {alpha:g} with probability {_probability(probability)} only "
        f"(wanted {beta:g})"
    )
    lines = [
        f"{len(losses)} losses in column {name!r}, mean {losses.mean():.4g}, largest possible {max_loss:g}",
        "",
        f"risk at deployment   {verdict}",
        f"upper bound          {quantile:.4g} with probability {beta:g}; mean of the bound "
        f"{posterior.mean:.4g} ({how})",
        "",
        "what the usual methods say of the same losses",
        *(_yardstick_line(method, entry, alpha, beta) for method, entry in yardstick.items()),
    ]
    return answer, _with_python(lines, python), posterior.to_frame()


def _many(
    file: Path,
    losses: NDArray[np.float64],
    lambdas: list[float],
    alpha: float,
    beta: float,
    options: dict[str, Any],
    not_monotone: bool,
) -> tuple[dict[str, Any], str, Any]:
    import polars as pl

    from theses.trust.bayesian_quadrature_conformal import LambdaChoice, crc_bound, select_lambda

    shape = {"monotone": False} if not_monotone else {}
    max_loss = options["max_loss"]

    def choose(method: str) -> tuple[LambdaChoice, float]:
        return _timed(lambda: select_lambda(losses, lambdas, alpha, beta, method=method, **options, **shape))

    try:
        choice, seconds = choose("bq")
    except ValueError as error:
        if "must not grow with lambda" in str(error):
            raise ValueError(
                f"{file}: {str(error).replace('monotone=False', '--not-monotone')} (rows counted from 0)"
            ) from None
        raise
    yardstick: dict[str, dict[str, Any]] = {}
    for method in _YARDSTICKS:
        if not_monotone and method == "crc":
            continue
        other, other_seconds = choose(method)
        index = int(other.lambdas.searchsorted(other.lambda_))
        yardstick[method] = {
            "lambda": other.lambda_ if other.feasible else None,
            "bound": float(other.bounds[index]),
            "mean_loss": float(other.mean_losses[index]),
            "holds": other.feasible,
            "seconds": other_seconds,
        }
    table = choice.to_frame().with_columns(
        crc_bound=pl.Series(crc_bound(losses, max_loss)[sorted(range(len(lambdas)), key=lambdas.__getitem__)])
    )
    call = ", ".join(f"{key}={value!r}" for key, value in {**options, **shape}.items())
    python = [
        "from theses.datasets.files import read_table",
        "from theses.trust.bayesian_quadrature_conformal import select_lambda",
        "",
        f"table = read_table({str(file)!r})",
        "lambdas = [float(name.split('=')[-1]) for name in table.columns]",
        f"choice = select_lambda(table.to_numpy(), lambdas, {alpha!r}, {beta!r}, {call})",
        "print(choice.lambda_, choice.feasible, choice.posterior.summary())",
    ]
    posterior = choice.posterior
    index = int(choice.lambdas.searchsorted(choice.lambda_))
    answer = {
        "n": len(losses),
        "lambdas": len(lambdas),
        "alpha": alpha,
        "beta": beta,
        "max_loss": max_loss,
        "lambda": choice.lambda_ if choice.feasible else None,
        "certified": choice.feasible,
        "safest_lambda": float(choice.lambdas[-1]),
        "mean_loss": float(choice.mean_losses[index]),
        "mean": posterior.mean,
        "quantile": float(choice.bounds[index]),
        "probability_below_alpha": posterior.prob_below(alpha),
        "exact": posterior.exact,
        "seconds": seconds,
        "yardstick": yardstick,
        "python": python,
    }
    if choice.feasible:
        verdict = f"{choice.lambda_:g}: risk below {alpha:g} with probability {beta:g}"
    else:
        verdict = f"none of {len(lambdas)} is certified; the safest is {choice.lambda_:g}"
    how = "exact, no draws" if posterior.exact else f"{posterior.n_samples} draws, {seconds:.2g} s"
    lines = [
        f"losses of {len(losses)} cases at {len(lambdas)} lambdas from {choice.lambdas[0]:g} to "
        f"{choice.lambdas[-1]:g}, largest possible {max_loss:g}",
        "",
        f"lambda               {verdict}",
        f"there                mean loss {answer['mean_loss']:.4g}; bound {answer['quantile']:.4g}, its mean "
        f"{posterior.mean:.4g}; P(bound <= {alpha:g}): {_probability(answer['probability_below_alpha'])} "
        f"({how})",
        "",
        "what the usual methods choose",
        *(_yardstick_line(method, entry, alpha, beta) for method, entry in yardstick.items()),
    ]
    return answer, _with_python(lines, python), table


def _probability(value: float) -> str:
    # Nothing is certain here; the draws, or four digits, do not tell.
    text = f"{value:.4g}"
    return "nearly 1" if text == "1" else text


def _yardstick_line(method: str, entry: dict[str, Any], alpha: float, beta: float) -> str:
    sign = "<=" if entry["holds"] else ">"
    found = f"bound {entry['bound']:.4g} {sign} {alpha:g}"
    if "lambda" in entry:
        found = f"lambda {entry['lambda']:g}, {found}" if entry["holds"] else f"no lambda, {found}"
    promise = (
        "on average over calibration sets, not for this one"
        if method == "crc"
        else f"with probability {beta:g}"
    )
    return f"  {_YARDSTICKS[method]:<28} {found} ({promise}; {entry['seconds']:.2g} s)"


def _with_python(lines: list[str], python: list[str]) -> str:
    return "\n".join([*lines, "", "the same in Python", *(f"  {line}".rstrip() for line in python)])


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start
