"""Is the risk of a fitted model below alpha, given losses on held-out cases? arXiv 2502.13228."""

import numpy as np  # without files
from sklearn.datasets import load_digits  # without files
from sklearn.linear_model import LogisticRegression  # without files

# with column: from theses.datasets.files import read_numbers
# with column: from theses.trust.bayesian_quadrature_conformal import RiskPosterior, crc_bound
# with columns: from theses.datasets.files import head, read_numbers
from theses.trust.bayesian_quadrature_conformal import select_lambda  # without column

alpha, beta = 0.1, 0.95

# A prediction set holds all classes of probability >= 1 - lambda; a miss loses 1.  # without files
X, y = load_digits(return_X_y=True)  # without files
model = LogisticRegression(max_iter=1_000).fit(X[:1_000] / 16, y[:1_000])  # without files
true_class = model.predict_proba(X[1_000:] / 16)[np.arange(797), y[1_000:]]  # without files
lambdas = np.linspace(0, 1, 101)  # without files
losses = (true_class[:, None] < 1 - lambdas).astype(float)  # without files
# with column: losses = read_numbers("<file>", ["<column>"])[:, 0]
# with columns: file = "<file>"
# with columns: lambdas = [float(name.rpartition("=")[2]) for name in head(file).columns]
# with columns: losses = read_numbers(file)

# The least lambda that the method certifies, and those of the usual methods.  # without column
for method in ("bq", "crc", "rcps-hoeffding"):  # without column
    choice = select_lambda(losses, lambdas, alpha, beta, method=method, random_state=0)  # without column
    print(choice.summary())  # without column
# with column: posterior = RiskPosterior(losses, random_state=0)
# with column: print(f"risk <= {posterior.quantile(beta):.4f} with probability {beta:g}")
# with column: print(f"risk <= {alpha:g} with probability {posterior.prob_below(alpha):.4f}")
# with column: print(f"risk <= {crc_bound(losses):.4f} on average only, by conformal risk control")
