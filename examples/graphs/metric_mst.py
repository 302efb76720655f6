"""Which of Shakespeare's words are spelt like no other? Single linkage under edit distance.

Run: python examples/graphs/metric_mst.py
"""

import numpy as np
from scipy.cluster.hierarchy import fcluster

from theses.datasets.shakespeare import load_word_forms
from theses.graphs.metric_mst import approximate_mst, exact_mst, gamma, mst_to_linkage

words = np.random.default_rng(0).permutation(load_word_forms(min_length=5))[:3_000].tolist()

# Few words are near any centre, so the largest components are split once more.
tree = approximate_mst(words, "levenshtein", max_component_size=400)
print(tree.summary())

exact = exact_mst(words, "levenshtein")
print(f"exact tree {exact.total_weight:g}, ratio {tree.total_weight / exact.total_weight:.3f}")
print(f"gamma {gamma(tree, exact):.2f}, so that {2 * gamma(tree, exact) + 1:.2f} was the bound\n")

# Single-linkage clusters: words that chains of single edits join.
clusters = fcluster(mst_to_linkage(tree), t=1, criterion="distance")
sizes = np.bincount(clusters)
print(f"{(sizes == 1).sum()} words have no neighbour at distance 1")
for cluster in np.argsort(sizes)[-4:][::-1]:
    members = [words[i] for i in np.flatnonzero(clusters == cluster)]
    print(f"{len(members)} words: {', '.join(sorted(members)[:10])}")
longest = tree.edges[np.argsort(tree.weights)[-3:]]
print("farthest from all others:", ", ".join(f"{words[i]} - {words[j]}" for i, j in longest))
