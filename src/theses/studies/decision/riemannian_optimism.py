"""Measures regret and duality gaps of implicit optimistic methods under curvature.

Arms: regret against distances on spaces of four curvatures, with and without a constraint that binds; what a
hint gains; the gap of robust Karcher means over the rounds; gradients beside the corrected extragradient; a
stream of real covariances. Regret is that against the best fixed point, found from all losses afterwards.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from theses.evidence import Context, Measurement

if TYPE_CHECKING:
    import altair as alt

    from theses.numerics.manifolds import GeodesicBall, Manifold

__all__ = ["figures", "run"]

D = 1.0  # diameter of the balls of C1 and C2
CURVATURES = (-0.01, -1.0, -100.0)
TARGET_GAP = 1e-3
HALF_DECADES = tuple(10 ** (k / 2) for k in range(-3, 4))


@dataclass(frozen=True)
class _Size:
    rounds: int
    bound_rounds: int  # where the constraint binds
    horizons: tuple[int, ...]
    n_points: int
    max_outer: int  # of C4
    stream: int
    inner_rounds: int


_SIZES = {
    "smoke": _Size(30, 8, (2, 4), 2, 3, 30, 1),
    "standard": _Size(2_000, 500, (10, 30, 100, 300), 8, 400, 1_797, 30),
}
_SIZES["paper"] = replace(_SIZES["standard"], rounds=10_000, bound_rounds=2_000)


def run(ctx: Context) -> Measurement:
    """Measure one unit.

    Parameters
    ----------
    ctx : Context
        Surroundings. The ``paper`` preset takes positive definite matrices from ``ctx.data_folder``;
        ``ctx.limit`` caps rounds and points.

    Returns
    -------
    Measurement
        Regrets, slopes of gaps, counts of gradients.

    Raises
    ------
    ValueError
        If the preset is unknown, or ``paper`` comes without a folder of the layout it names.
    """
    if ctx.preset not in _SIZES:
        raise ValueError(f"preset must be one of {', '.join(_SIZES)}, got {ctx.preset!r}")
    size = _SIZES[ctx.preset]
    if ctx.limit is not None:
        size = replace(
            size,
            rounds=min(size.rounds, 4 * ctx.limit),
            bound_rounds=min(size.bound_rounds, 2 * ctx.limit),
            horizons=(max(ctx.limit // 2, 1), ctx.limit),
            n_points=min(size.n_points, max(ctx.limit, 2)),
            max_outer=min(size.max_outer, ctx.limit),
            stream=min(size.stream, 4 * ctx.limit),
            inner_rounds=min(size.inner_rounds, ctx.limit),
        )
    # Read before the runs, so that another layout is refused at once.
    matrices = _matrices(ctx, size)
    ctx.progress(0.0, "regret under curvature")
    curved = ctx.stage("curvature", lambda: _curvature(ctx, size))
    ctx.progress(0.3, "hints")
    hints = ctx.stage("hints", lambda: _hints(ctx, size))
    ctx.progress(0.4, "min-max, positive definite")
    spd = ctx.stage("spd", lambda: _gaps(ctx, size, "spd", matrices["classes"]))
    ctx.progress(0.75, "min-max, hyperbolic")
    hyp = ctx.stage("hyp", lambda: _gaps(ctx, size, "hyp", None))
    ctx.progress(0.85, "corrected extragradient")
    peers = ctx.stage("peers", lambda: _peers(ctx, size))
    ctx.progress(0.95, "stream of covariances")
    real = ctx.stage("real", lambda: _stream(matrices["stream"]))
    metrics = {
        **curved["metrics"],
        **hints["metrics"],
        "slope_spd": spd["slope"],
        "slope_hyp": hyp["slope"],
        "count_const": max(spd["count"], hyp["count"]),
        "last_over_average": hyp["last_over_average"],
        **peers["metrics"],
        "regret_real": real["regret"],
    }
    tables = {
        "regret": pl.DataFrame(curved["rows"]),
        "hints": pl.DataFrame(hints["rows"]),
        "gap": pl.DataFrame([*spd["rows"], *hyp["rows"]]),
        "peers": pl.DataFrame(peers["rows"], infer_schema_length=None),
        "stream": pl.DataFrame(real["rows"]),
    }
    notes = [
        f"{name}: gamma {arm['gamma']:.3g}, L {arm['L']:.3g}, radius {arm['radius']:.3g}; gap "
        + ", ".join(f"{row['gap']:.3g} at {row['rounds']}" for row in arm["rows"])
        for name, arm in (("SPD(5)", spd), ("H(3, -1)", hyp))
    ]
    return Measurement(metrics, tables, [*notes, *peers["notes"]])


# Data ----------------------------------------------------------------------------------------------------


def _matrices(ctx: Context, size: _Size) -> dict[str, NDArray[np.float64]]:
    """Covariances of classes, and a stream of covariances: of digits, or of the user's folder."""
    if ctx.preset == "paper":
        layout = (
            "a folder with classes.npy, positive definite matrices of shape (m, n, n), and stream.npy of "
            "shape (T, k, k), float64"
        )
        folder = ctx.data_folder
        if folder is None or not (folder / "classes.npy").is_file() or not (folder / "stream.npy").is_file():
            raise ValueError(f"the paper preset needs data_folder: {layout}")
        read = {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("classes", "stream")}
        for name, array in read.items():
            if array.ndim != 3 or array.shape[1] != array.shape[2]:
                raise ValueError(
                    f"{name}.npy must be square matrices, got shape {array.shape}; wanted {layout}"
                )
        return {"classes": read["classes"][: size.n_points], "stream": read["stream"][: size.stream]}
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    centred = X / 16 - (X / 16).mean(axis=0)
    components = np.linalg.svd(centred, full_matrices=False)[2][:5]
    scores = centred @ components.T
    chosen = ctx.rng("classes").permutation(10)[: size.n_points]
    covariances = [np.cov(scores[y == k].T) for k in chosen]
    classes = np.stack([0.95 * c + 0.05 * np.trace(c) / 5 * np.eye(5) for c in covariances])
    order = ctx.rng("stream").permutation(len(X))[: size.stream]
    return {"classes": classes, "stream": np.stack([_local(X[i].reshape(8, 8) / 16) for i in order])}


def _local(image: NDArray[np.float64]) -> NDArray[np.float64]:
    """Covariance of (row, column, value) over the pixels, weighted by their intensity."""
    rows, columns = np.divmod(np.arange(64), 8)
    features = np.stack([rows / 7, columns / 7, image.ravel()])
    weights = image.ravel() / image.sum()
    centred = features - (features @ weights)[:, None]
    return np.asarray(centred * weights @ centred.T + 1e-3 * np.eye(3))


def _in_ball(
    manifold: Manifold, directions: NDArray[np.float64], radii: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Points at given radii and directions (coordinates in an orthonormal basis) from the origin."""
    from theses.numerics.manifolds import SPD

    if isinstance(manifold, SPD):
        n = manifold.n
        upper = np.triu_indices(n, 1)
        v = np.zeros((len(radii), n, n))
        v[:, np.arange(n), np.arange(n)] = directions[:, :n]
        v[:, upper[0], upper[1]] = v[:, upper[1], upper[0]] = directions[:, n:] / math.sqrt(2)
    else:
        v = np.concatenate([np.zeros((len(radii), 1)), directions], axis=1)
    return manifold.exp(manifold.origin(), manifold.scaled(v, radii))


def _uniform(
    rng: np.random.Generator, n: int, dim: int, radius: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    directions = rng.standard_normal((n, dim))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return directions, radius * rng.random(n) ** (1 / dim)


# C1: distances under curvature ---------------------------------------------------------------------------


def _median(manifold: Manifold, ball: GeodesicBall, targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Point of the ball with the least sum of distances: Weiszfeld's steps, each projected and halved."""
    x = ball.center
    total = float(manifold.dist(x, targets).sum())
    for _ in range(200):
        v = manifold.log(x, targets)
        d = np.maximum(manifold.norm(x, v), 1e-9)
        step = np.tensordot(1 / d, v, axes=1) / (1 / d).sum()
        t = 1.0
        while t > 1e-4:
            y = ball.project(manifold.exp(x, t * step))
            after = float(manifold.dist(y, targets).sum())
            if after < total:
                break
            t /= 2
        else:
            break
        if total - after < 1e-12 * total:
            break
        x, total = y, after
    return np.asarray(x)


def _played(
    manifold: Manifold, ball: GeodesicBall, targets: NDArray[np.float64], hint: Any, eta: float
) -> Any:
    from theses.decision.riemannian_optimism import RIOD
    from theses.problems.geodesic import Distance

    learner = RIOD(manifold, eta, ball, hint, keep_history=True)
    for target in targets:
        learner.play()
        learner.update(Distance(manifold, target))
    return learner


def _curvature(ctx: Context, size: _Size) -> dict[str, Any]:
    from theses.numerics.manifolds import SPD, GeodesicBall, Hyperbolic

    rows, slack, regrets, hinted = [], [], {}, []
    for manifold in (*(Hyperbolic(5, kappa) for kappa in CURVATURES), SPD(5)):
        name = repr(manifold)
        ball = GeodesicBall(manifold, manifold.origin(), D / 2)
        for arm, T, reach in (("inside", size.rounds, 1.0), ("binding", size.bound_rounds, 1.3)):
            # The same directions and radii for every curvature.
            drawn = _uniform(ctx.rng(f"targets {arm} {manifold.dim}"), T, manifold.dim, reach * D / 2)
            targets = _in_ball(manifold, *drawn)
            best = _median(manifold, ball, targets)
            for hint in ("none", "last"):
                if arm == "binding" and hint == "last":
                    continue
                learner = _played(manifold, ball, targets, hint, D / math.sqrt(T))
                regret = learner.regret(best)
                scaled = regret / (D * math.sqrt(T))
                slack.append((learner.regret_bound(best) - regret) / (D * math.sqrt(T)))
                rows.append(
                    {
                        "space": name,
                        "arm": arm,
                        "hint": hint,
                        "rounds": T,
                        "regret": scaled,
                        "certificate": learner.regret_bound(best) / (D * math.sqrt(T)),
                        "unsolved": learner.n_unconverged,
                    }
                )
                if hint == "last":
                    hinted.append(scaled)
                else:
                    regrets[name, arm] = scaled
    flat, curved = (
        regrets[repr(Hyperbolic(5, kappa)), "inside"] for kappa in (CURVATURES[0], CURVATURES[-1])
    )
    metrics = {
        "regret_over_bound": max(regrets.values()),
        "curvature_ratio": curved / flat,
        "certificate_slack": min(slack),
        "regret_hint_last": max(hinted),
    }
    return {"metrics": metrics, "rows": rows}


# C2: what a hint is worth --------------------------------------------------------------------------------


def _squares(
    manifold: Manifold, targets: NDArray[np.float64], hint: Any, eta: float, start: NDArray[np.float64]
) -> float:
    from theses.decision.riemannian_optimism import RIOD
    from theses.numerics.manifolds import frechet_mean
    from theses.problems.geodesic import SquaredDistance

    learner = RIOD(manifold, eta, None, hint, start=start, keep_history=True)
    for target in targets:
        learner.play()
        learner.update(SquaredDistance(manifold, target))
    return learner.regret(frechet_mean(manifold, targets))


def _hints(ctx: Context, size: _Size) -> dict[str, Any]:
    from theses.numerics.manifolds import GeodesicBall, Hyperbolic

    manifold = Hyperbolic(5, -1.0)
    rng = ctx.rng("drift")
    origin = manifold.origin()
    ball = GeodesicBall(manifold, origin, D / 2)
    T = size.rounds
    targets = [origin]
    for t in range(1, T):
        v = manifold.random_tangent(targets[-1], rng)
        v = v / manifold.norm(targets[-1], v) * 0.2 * D / t
        targets.append(ball.project(manifold.exp(targets[-1], v)))
    moving = np.stack(targets)
    away = manifold.random_tangent(origin, rng)
    start = manifold.exp(origin, away / manifold.norm(origin, away) * D / 2)
    variation = float((manifold.dist(moving[1:], moving[:-1]) ** 2).sum())
    steps = {"last": D / math.sqrt(variation), "none": 1 / math.sqrt(T)}
    regrets = {
        "last": _squares(manifold, moving, "last", steps["last"], start),
        "none": _squares(manifold, moving, "none", steps["none"], start),
        "none, the hint's step": _squares(manifold, moving, "none", steps["last"], start),
    }
    short = max(T // 10, 1)
    still = {n: _squares(manifold, np.stack([origin] * n), "last", 1.0, start) for n in (short, T)}
    metrics = {
        "hint_ratio": regrets["last"] / regrets["none"],
        "hint_step_ratio": regrets["none, the hint's step"] / regrets["none"],
        "growth": still[T] / still[short],
    }
    return {"metrics": metrics, "rows": [{"hint": k, "regret": v} for k, v in regrets.items()]}


# C3 and C4: robust Karcher means -------------------------------------------------------------------------


def _game(
    manifold: Manifold, points: NDArray[np.float64], center: NDArray[np.float64], radius: float
) -> tuple[Any, Any, Any, float, float]:
    """Game, both balls, L, and by what the price exceeds what concavity needs."""
    from theses.numerics.manifolds import GeodesicBall, comparison_factor
    from theses.problems.geodesic import RobustKarcherGame

    zeta = comparison_factor(2 * radius, manifold.curvature_lower)
    game = RobustKarcherGame(manifold, points, max(3.0, 1.1 * zeta))
    m = len(points)
    ball = GeodesicBall(manifold, center, radius)
    middle = np.stack([center] * m).reshape(-1)
    y_ball = GeodesicBall(game.y_manifold, middle, radius * math.sqrt(m))
    return game, ball, y_ball, game.smoothness(2 * radius), game.gamma - zeta


def _gaps(ctx: Context, size: _Size, name: str, points: NDArray[np.float64] | None) -> dict[str, Any]:
    from theses.decision.riemannian_optimism import duality_gap, solve_minmax
    from theses.numerics.manifolds import SPD, Hyperbolic, frechet_mean

    manifold: Manifold
    if points is None:
        manifold = Hyperbolic(3, -1.0)
        rng = ctx.rng("wrapped")
        points = np.stack([manifold.random(rng, 0.5) for _ in range(size.n_points)])
    else:
        manifold = SPD(points.shape[-1])
    center = frechet_mean(manifold, points)
    # Room for the adversary's answers, gamma / (gamma - 1) <= 1.5 times as far out as the points.
    radius = 1.6 * float(manifold.dist(center, points).max())
    game, ball, y_ball, L, _ = _game(manifold, points, center, radius)
    T = size.horizons[-1]
    x0, y0 = game.start()
    found = solve_minmax(
        game,
        manifold,
        game.y_manifold,
        x0,
        y0,
        L,
        ball,
        y_ball,
        eps=1e-6,
        max_outer=T,
        checkpoints=size.horizons,
    )
    gaps = dict(zip(map(int, found.history["outer"]), found.history["gap"], strict=True))
    reached = sorted(gaps)
    logs = np.log([max(gaps[t], 1e-12) for t in reached])
    slope = float(np.polyfit(np.log(reached), logs, 1)[0]) if len(reached) > 1 else -math.inf
    span = ball.diameter**2 + y_ball.diameter**2
    last = duality_gap(game, ball, y_ball, found.x_last, found.y_last)
    eps = min(max(found.gap, 1e-12), 0.5)
    return {
        "slope": slope,
        "count": found.n_grad * found.gap / (L * span * math.log(1 / eps)),
        "last_over_average": max(last, 1e-12) / max(found.gap, 1e-12),
        "gamma": game.gamma,
        "L": L,
        "radius": radius,
        "rows": [{"space": name, "rounds": t, "gap": gaps[t]} for t in reached],
    }


def _peers(ctx: Context, size: _Size) -> dict[str, Any]:
    from theses.decision.riemannian_optimism import rceg, solve_minmax
    from theses.numerics.manifolds import Hyperbolic, frechet_mean

    manifold = Hyperbolic(3, -1.0)
    radius = 3.0  # a diameter of 6
    # The adversary's answers lie a sixth further out than the points and stay in the ball.
    points = _in_ball(manifold, *_uniform(ctx.rng("far"), size.n_points, 3, 0.8 * radius))
    game, ball, y_ball, L, margin = _game(manifold, points, frechet_mean(manifold, points), radius)
    strong = min(2.0, 2 * margin / len(points))
    x0, y0 = game.start()
    arguments: dict[str, Any] = {"f": game, "Mx": manifold, "My": game.y_manifold, "x0": x0, "y0": y0}
    balls: dict[str, Any] = {"constraint_x": ball, "constraint_y": y_ball}
    options: dict[str, Any] = {"eps": TARGET_GAP, "max_outer": size.max_outer}
    ours = solve_minmax(**arguments, L=L, **balls, mu=strong, **options)
    rows = [
        {
            "method": "RIODA",
            "step": 1 / (3 * L),
            "answer": "last",
            "gradients": ours.n_grad,
            "gap": ours.gap,
            "status": ours.status,
        }
    ]
    best = math.inf
    for factor in HALF_DECADES:
        for average in (False, True):
            with warnings.catch_warnings():
                # A start outside, or numbers beyond float64, end the run as "left the set".
                warnings.simplefilter("ignore", RuntimeWarning)
                theirs = rceg(
                    **arguments,
                    step=factor / L,
                    **balls,
                    eps=TARGET_GAP,
                    max_outer=4 * size.max_outer,
                    average=average,
                )
            rows.append(
                {
                    "method": "RCEG",
                    "step": factor / L,
                    "answer": "average" if average else "last",
                    "gradients": theirs.n_grad,
                    "gap": theirs.gap if math.isfinite(theirs.gap) else None,
                    "status": theirs.status,
                }
            )
            if theirs.status == "converged":
                best = min(best, theirs.n_grad)
    void = math.isinf(best)
    inner = {}
    for method in ("rioda_prgd", "rioda_crgd"):
        inner[method] = solve_minmax(
            **arguments,
            L=L,
            **balls,
            method=method,
            eps=TARGET_GAP,
            max_outer=size.inner_rounds,
            checkpoints=(),
        ).n_grad
    notes = [
        f"C4: RIODA {ours.status} after {ours.n_grad} gradients; "
        + ("no step of the corrected extragradient reached the gap" if void else f"the best step took {best}")
    ]
    metrics = {
        "grad_ratio": 0.1 if void else ours.n_grad / best,
        "prgd_over_crgd": inner["rioda_prgd"] / inner["rioda_crgd"],
    }
    return {"metrics": metrics, "rows": rows, "notes": notes}


# C5: real covariances ------------------------------------------------------------------------------------


def _stream(matrices: NDArray[np.float64]) -> dict[str, Any]:
    from theses.decision.riemannian_optimism import online_frechet_mean
    from theses.numerics.manifolds import SPD, frechet_mean

    manifold = SPD(matrices.shape[-1])
    T = len(matrices)
    course = online_frechet_mean(matrices, manifold, 1 / math.sqrt(T))
    center = frechet_mean(manifold, matrices)
    diameter = 2 * float(manifold.dist(center, matrices).max())
    lipschitz = float(np.sqrt(2 * course.losses).max())
    total = np.cumsum(course.losses)
    best = np.cumsum(manifold.dist(center, matrices) ** 2 / 2)
    rows = [
        {"round": int(t) + 1, "loss": float(total[t]), "hindsight": float(best[t])}
        for t in sorted({*np.linspace(0, T - 1, 100).astype(int).tolist()})
    ]
    return {"regret": course.regret / (diameter * math.sqrt(T) * lipschitz), "rows": rows}


def figures(tables: Mapping[str, pl.DataFrame]) -> dict[str, alt.Chart | alt.LayerChart]:
    """Charts of the stored tables.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        ``regret``, ``gap`` and ``stream``, each with a column ``seed``.

    Returns
    -------
    dict of str to altair chart
        Regret by space, gap over the rounds, loss on the stream.
    """
    import altair as alt

    regret = (
        alt.Chart(tables["regret"])
        .mark_point()
        .encode(
            x=alt.X("regret:Q", title="regret over D sqrt(T)"),
            y=alt.Y("space:N", title=None),
            color=alt.Color("hint:N"),
            shape=alt.Shape("arm:N", title="targets"),
        )
    )
    gap = (
        alt.Chart(tables["gap"])
        .mark_line(point=True)
        .encode(
            x=alt.X("rounds:Q", scale=alt.Scale(type="log")),
            y=alt.Y("gap:Q", scale=alt.Scale(type="log"), title="duality gap of averages"),
            color=alt.Color("space:N"),
            detail="seed:N",
        )
    )
    stream = (
        alt.Chart(
            tables["stream"].unpivot(["loss", "hindsight"], index=["seed", "round"], variable_name="who")
        )
        .mark_line()
        .encode(
            x=alt.X("round:Q"),
            y=alt.Y("value:Q", title="total loss"),
            color=alt.Color("who:N", title=None),
            detail="seed:N",
        )
    )
    return {"regret": regret, "gap": gap, "stream": stream}
