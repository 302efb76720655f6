"""Sub-sampled Newton's parts beside their peers: the Hadamard transform, a step, a whole fit."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from theses.evidence import Comparison, interleave
from theses.optim.subsampled_newton import (
    LogisticProblem,
    RowSampler,
    SubsampledNewtonClassifier,
    fwht,
    minimize_ssn,
)

FWHT_S = 0.5


def benchmark() -> list[Comparison]:
    """Rows of the comparison; the first is the primary peer.

    Returns
    -------
    list of Comparison
        The transform against ``hadamard-transform``, a step against exact Newton's Hessian, how a step grows
        with n, and a fit against scikit-learn's.
    """
    return [
        _transform(17),
        _transform(12),
        _step(refreshed=False),
        _step(refreshed=True),
        _doubled(),
        *_fits(),
    ]


def _transform(levels: int, d: int = 64) -> Comparison:
    from hadamard_transform import hadamard_transform

    X = np.random.default_rng(0).standard_normal((1 << levels, d))
    rows = torch.tensor(X.T).contiguous()
    difference = float(np.abs(fwht(X) - hadamard_transform(rows).numpy().T).max())
    assert difference <= 1e-12
    ours_s, peer_s = interleave([lambda: fwht(X), lambda: hadamard_transform(rows)], repeats=5)
    if levels == 17:
        assert min(ours_s) <= FWHT_S
    return Comparison(
        "hadamard-transform (torch, CPU)",
        f"2^{levels} x {d} float64",
        ours_s,
        peer_s,
        ">= 0.67",
        f"the same numbers within {difference:.1e}",
        peak_mb=2 * X.nbytes / 2**20,  # two buffers beside the input
    )


def _flat_problem(n: int, d: int) -> LogisticProblem:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = rng.random(n) < 1 / (1 + np.exp(-X[:, 0]))
    return LogisticProblem(X, y, 1e-4)


def _step(refreshed: bool, n: int = 200_000, d: int = 200, m: int = 2_000) -> Comparison:
    problem = _flat_problem(n, d)
    start = np.zeros(d)
    sampler = RowSampler("approx_ridge_leverage", m, approx_sketch="row_norm", approx_size=m)
    A, C = problem.hessian(start)
    sampler.fit(A, C, 0)
    step = minimize_ssn(problem, start, sampler, max_iter=1, tol=0.0, random_state=0).x
    exact = minimize_ssn(problem, start, None, max_iter=1, tol=0.0).x
    error = float(np.linalg.norm(step - exact) / np.linalg.norm(exact))
    assert error < 0.6

    exact_rows = _flat_problem(n, d).hessian(start)[0]
    state = {"b": start, "gradient": problem.gradient(start)}

    def ours() -> None:
        # One step of the optimiser, product with the direction and gradient at the next point included.
        rows, penalty = problem.hessian(state["b"])
        current = sampler.fit(rows, penalty, 0) if refreshed else sampler.moved(rows)
        sketch = current.sample(0, debias="fine")
        hessian = sketch.SA.T @ sketch.SA + penalty * np.eye(d)
        direction = -np.linalg.solve(hessian, state["gradient"])
        problem.along(state["b"], direction)(1.0)
        state["b"] = state["b"] + direction
        state["gradient"] = problem.gradient(state["b"])

    ours_s, peer_s = interleave([ours, lambda: exact_rows.gram()], repeats=5)
    kept = "scores computed anew" if refreshed else "scores kept from an earlier step"
    return Comparison(
        "exact Newton's Hessian alone (NumPy)",
        f"one step with its gradient, n = {n:,}, d = {d}, m = {m:,}, {kept}",
        ours_s,
        peer_s,
        "" if refreshed else ">= 5",
        f"a step of sampled rows is {error:.2f} of its length away from the exact one",
    )


def _doubled(d: int = 200, m: int = 2_000) -> Comparison:
    small, large = _flat_problem(100_000, d), _flat_problem(200_000, d)

    def step(problem: LogisticProblem) -> None:
        sampler = RowSampler("approx_ridge_leverage", m, approx_sketch="row_norm", approx_size=m)
        minimize_ssn(problem, np.zeros(d), sampler, max_iter=1, tol=0.0, step=1.0, random_state=0)

    ours_s, peer_s = interleave([lambda: step(large), lambda: step(small)], repeats=5)
    return Comparison(
        "the same step at half as many rows",
        f"one whole step, n = 200,000 against 100,000, d = {d}, m = {m:,}",
        ours_s,
        peer_s,
        ">= 0.476",
        "time grows at most 2.1-fold where n doubles",
    )


def _fits(n: int = 100_000, d: int = 100) -> list[Comparison]:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(1)
    X = rng.standard_t(5, size=(n, d))
    y = rng.random(n) < 1 / (1 + np.exp(-X[:, :5].sum(axis=1)))

    def ours() -> SubsampledNewtonClassifier:
        return SubsampledNewtonClassifier(random_state=0).fit(X, y)

    rows = []
    for solver, tol in (("newton-cholesky", 1e-8), ("lbfgs", 1e-8)):

        def theirs(solver: str = solver, tol: float = tol) -> LogisticRegression:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return LogisticRegression(solver=solver, tol=tol, max_iter=1_000).fit(X, y)

        difference = float(np.abs(ours().coef_ - theirs().coef_).max())
        assert difference < 1e-3
        ours_s, peer_s = interleave([ours, theirs], repeats=2, warmup=0)
        rows.append(
            Comparison(
                f"scikit-learn LogisticRegression, {solver}",
                f"a whole fit, n = {n:,}, d = {d}",
                ours_s,
                peer_s,
                "",
                f"coefficients agree within {difference:.1e}",
            )
        )
    return rows
