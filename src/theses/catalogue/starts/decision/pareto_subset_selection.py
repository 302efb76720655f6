"""The best choice within a budget, with a proven share of the optimum. EPOL and POMC, ICML 2025."""

from theses.decision.pareto_subset_selection import (
    InfluenceMaximization,
    epol,
    generalized_greedy,
    optimum_bound,
)
from theses.problems.coverage import degree_costs, les_miserables

# Whom to tell, so that most hear of it? MaxCoverage([[0, 1], [1, 2]]) takes sets of your own.
graph = les_miserables()
f = InfluenceMaximization(graph, p=0.05, n_rr=5_000, random_state=0)
costs, budget = degree_costs(graph), 15.0

for result in (generalized_greedy(f, costs, budget), epol(f, costs, budget, "10n2", random_state=0)):
    print(result.summary())
print("told:", ", ".join(graph.labels[i] for i in result.indices))
mean, error = f.simulate(result.mask, random_state=1)
print(f"heard by {mean[0]:.2f} (s.e. {error[0]:.2f}) in fresh cascades")
share = result.value / optimum_bound(f, costs, budget, result.front.masks)
print(f"at least {share:.1%} of the optimum of the samples")
