"""How much to order after twenty days of sales, the model being uncertain? arXiv 2411.16829."""

import numpy as np

from theses.decision.bayesian_ambiguity import BRO, DROBAS, Newsvendor, NormalGamma

sales = np.random.default_rng(0).normal(25, 10, size=20)
cost = Newsvendor(h=3, b=8)  # a unit left over costs 3, a unit short 8
model = NormalGamma(mu0=0, kappa0=0.01, alpha0=1, beta0=1)

# The usual way: the least expected cost over the posterior.
print("expected cost:", BRO(model, random_state=0).fit(sales).solve(cost).summary())

# The least worst-case cost over the laws that the posterior leaves within reach; "auto" sets the radius.
for epsilon in (0.1, "auto", 1.0):
    robust = DROBAS(model, "PE", epsilon, random_state=0).fit(sales)
    print("worst case:", robust.solve(cost).summary())
