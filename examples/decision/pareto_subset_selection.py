"""Which aircraft suffice to serve most connections out of New York? Coverage with unequal prices.

Run: python examples/decision/pareto_subset_selection.py
"""

import numpy as np

from theses.decision.pareto_subset_selection import (
    MaxCoverage,
    epol,
    generalized_greedy,
    one_guess_greedy_plus,
    optimum_bound,
    pomc,
)
from theses.problems.coverage import flight_sets

# An aircraft covers the destinations it served, week by week; a busy one costs more.
sets, tails = flight_sets(60)
f = MaxCoverage(sets)
costs = 1 + 0.02 * np.array([len(served) for served in sets])
budget = 0.1 * costs.sum()
print(f"{f.n} aircraft cover {f.n_elements} pairs of destination and week; the budget is {budget:.1f}\n")

greedy = generalized_greedy(f, costs, budget)
print(greedy.summary())
print(one_guess_greedy_plus(f, costs, budget).summary())
for search in (pomc, epol):
    result = search(f, costs, budget, random_state=0)
    print(result.summary())

# Every set of the front is an answer for its own budget, and bounds the optimum.
bound = optimum_bound(f, costs, budget, result.front.masks)
print(f"\nEPOL is at least {result.value / bound:.1%} of the optimum, which is at most {bound:.0f}")
for share in (0.25, 0.5, 1.0):
    mask, value, cost = result.within(share * budget)
    print(f"with {cost:5.2f} spent: {value:4.0f} pairs by", " ".join(np.array(tails)[mask]))
