"""Averaging the answers of many workers: a bias that does not average away, and weights that remove it."""

from __future__ import annotations

from typing import Literal

import numpy as np
from sklearn.datasets import load_digits

from theses.optim.subsampled_newton import (
    RowSampler,
    averaged_inverse,
    compare_debiasing,
    deterministic_equivalent,
    effective_dimension,
)

WEIGHTS: tuple[Literal["none", "scalar", "fine"], ...] = ("none", "scalar", "fine")

A = load_digits().data / 16
C = 1e-3 * np.linalg.norm(A, 2) ** 2
d_eff = effective_dimension(A, C)
m = int(np.ceil(4 * d_eff))
print(f"{len(A)} images of {A.shape[1]} pixels, effective dimension {d_eff:.0f}: each worker sees {m} rows.")

# Forty workers solve the same ridge system on rows of their own; the mean is held against the exact answer.
b = A.T @ (load_digits().target == 3)
exact = np.linalg.solve(A.T @ A + C * np.eye(A.shape[1]), b)
for debias in WEIGHTS:
    Q = averaged_inverse(A, C, RowSampler("uniform", m), q=40, debias=debias, random_state=0)
    error = np.linalg.norm(Q @ b - exact) / np.linalg.norm(exact)
    print(f"weights {debias:<7} relative error of the mean of 40 workers {error:.3f}")

# How much of it is bias, and what theory says without drawing a row.
reports = compare_debiasing(A, C, RowSampler("uniform", m), n_rep=300, random_state=0)
pi = np.full(len(A), 1 / len(A))
for debias in WEIGHTS:
    predicted = deterministic_equivalent(A, C, pi, m, debias=debias).bias
    print(f"{reports[debias].summary()}; predicted {predicted:.4f}")
