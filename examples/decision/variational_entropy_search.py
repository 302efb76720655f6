"""Which C and gamma for a support vector machine on the digits? Nine trials, three chosen one by one.

Run: python examples/decision/variational_entropy_search.py
"""

import torch
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from theses.decision.variational_entropy_search import VESGamma, fit_gp, observed, run_bo

X, y = load_digits(return_X_y=True)
train, held_out = slice(0, 200), slice(1_000, 1_500)


def accuracy(points: torch.Tensor) -> torch.Tensor:
    """Share of digits recognised, at log10 C and log10 gamma."""
    shares = [
        SVC(C=10**log_c, gamma=10**log_gamma).fit(X[train], y[train]).score(X[held_out], y[held_out])
        for log_c, log_gamma in points.tolist()
    ]
    return torch.tensor(shares, dtype=torch.float64)


bounds = torch.tensor([[-2.0, -6.0], [3.0, 0.0]], dtype=torch.float64)
for acq in ("ves_gamma", "logei"):
    trace = run_bo(accuracy, bounds, acq, n_init=6, n_iter=3, seed=0, num_paths=32, raw_samples=32)
    print(trace.summary())
    if acq == "ves_gamma":
        chosen = trace
        print("k along the way:", ", ".join(f"{k:.2f}" for k in trace.k), "(1 is Expected Improvement)")

# What the acquisition function sees after these trials, beside Expected Improvement on the same paths.
model = fit_gp(chosen.X, chosen.Y, bounds=bounds)
acquisition = VESGamma(model, observed(model)[1].max(), bounds, num_paths=64, seed=0)
terms = acquisition.components(chosen.X[-3:, None])
print("expected improvement at the last three points:", [f"{value:.1e}" for value in terms["ei"].tolist()])
