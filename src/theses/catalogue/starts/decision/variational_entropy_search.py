"""Maximise an expensive black box with few evaluations: VES-Gamma, arXiv 2501.18756."""

import torch
from botorch.test_functions.synthetic import Branin  # without files

# with files: from theses.datasets.files import read_numbers, read_table
# with files: from theses.decision.variational_entropy_search import fit_gp, suggest
from theses.decision.variational_entropy_search import fit_gp, run_bo, suggest  # without files

# A loop that evaluates by itself, beside the usual acquisition function.  # without files
objective = Branin(negate=True)  # your experiment: points (n, d) to values (n,)  # without files
bounds = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.float64)  # without files
for acq in ("logei", "ves_gamma"):  # without files
    trace = run_bo(objective, bounds, acq, n_init=5, n_iter=3, num_paths=32, seed=0)  # without files
    print(trace.summary())  # without files
X, Y = trace.X, trace.Y  # without files
# with files: inputs = "<inputs>" or [name for name in read_table("<file>").columns if name != "<objective>"]
# with files: X = torch.from_numpy(read_numbers("<file>", inputs))
# with files: Y = torch.from_numpy(read_numbers("<file>", ["<objective>"])[:, 0])
# with files: Y = -Y if "<minimize>" else Y
# with files: bounds = torch.stack([X.amin(dim=0), X.amax(dim=0)])

# The next two points to evaluate: add the results to the data, and ask again.
model = fit_gp(X, Y, bounds=bounds)
print(f"best so far {Y.max():.4g}, next:")
print(torch.round(suggest(model, bounds, q=2, seed=0, num_paths=32, raw_samples=32), decimals=4))
