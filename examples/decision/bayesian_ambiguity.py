"""Bicycles for the evening rush: how many to have ready after twenty days of counting?"""

from __future__ import annotations

import numpy as np

from theses.datasets.bikeshare import bikers_at
from theses.decision.bayesian_ambiguity import BRO, DROBAS, EmpiricalKLDRO, Newsvendor, NormalGamma

demand = bikers_at(17)
cost = Newsvendor(h=3, b=8)  # a bicycle too many costs 3, one too few 8
# Bicycles an evening: the prior's rate beta0 is in squared bicycles, and weak.
model = NormalGamma(mu0=0, kappa0=0.01, alpha0=1, beta0=10_000)

methods = {
    "posterior expected cost (BRO)": lambda: BRO(model, random_state=0),
    "robust, radius 0.1": lambda: DROBAS(model, "PE", 0.1, random_state=0),
    "robust, radius 0.5": lambda: DROBAS(model, "PE", 0.5, random_state=0),
    "KL ball around the data, 0.5": lambda: EmpiricalKLDRO(0.5),
}
costs: dict[str, list[float]] = {name: [] for name in methods}
generator = np.random.default_rng(0)
for _ in range(25):
    days = generator.permutation(len(demand))
    known, others = demand[days[:20]], demand[days[20:70]]
    for name, method in methods.items():
        decision = method().fit(known).solve(cost)
        costs[name].extend(cost.evaluate(decision.x, others))
print(f"{len(demand)} working days of 2011, {demand.mean():.0f} bicycles on average at 5 p.m.")
for name, values in costs.items():
    print(f"{name:<30} cost {np.mean(values):6.0f} on average, deviation {np.std(values):6.0f}")

robust = DROBAS(model, epsilon="auto", random_state=0).fit(generator.permutation(demand)[:20])
print(f"The true law is in the set from radius {robust.epsilon_:.2f} on (0.95), least is {robust.G_:.3f}.")
print(f"There: {robust.solve(cost).summary()}")
samples, weights = robust.worst_case()
nominal, worst = samples.mean(), weights @ samples[:, 0]
print(f"The law that is worst for it expects {worst:.0f} bicycles, the nominal one {nominal:.0f}.")
