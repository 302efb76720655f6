"""Logistic regression with sampled Hessians, beside scikit-learn's. arXiv 2502.13583."""

import numpy as np
from sklearn.datasets import load_digits  # without files
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale

# with files: from theses.datasets.files import read_labelled
from theses.optim.subsampled_newton import SubsampledNewtonClassifier

X, y = load_digits(return_X_y=True)  # without files
X, y = X[:, X.std(axis=0) > 0], y % 2  # even or odd  # without files
# with files: X, y, classes = read_labelled("<file>", "<target>")
X = scale(X)

ours = SubsampledNewtonClassifier(random_state=0).fit(X, y)
usual = LogisticRegression(max_iter=1_000).fit(X, y)
print(f"Hessians from {ours.m_} of {len(X)} rows, {ours.n_iter_.max()} steps")
print(f"accuracy on the same rows: {ours.score(X, y):.4f}, scikit-learn {usual.score(X, y):.4f}")
if len(np.unique(y)) == 2:
    print(f"largest difference of coefficients: {np.abs(ours.coef_ - usual.coef_).max():.1e}")
