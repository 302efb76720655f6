"""A nearly minimum spanning tree in any metric, and the clusters it gives. MFC-Approx, arXiv 2502.12993."""

import numpy as np
from scipy.cluster.hierarchy import fcluster
from sklearn.datasets import load_digits  # without files

# with lines: from theses.datasets.files import read_lines
# with table: from theses.datasets.files import read_numbers
from theses.graphs.metric_mst import approximate_mst, mst_to_linkage

X = load_digits().data  # without files
# with lines: X = read_lines("<file>")
# with table: X = read_numbers("<file>")
tree = approximate_mst(X, "euclidean")  # without files
# with files: tree = approximate_mst(X, "<metric>")
print(tree.summary())

longest = np.argsort(tree.weights)[::-1][:3]
for (i, j), weight in zip(tree.edges[longest], tree.weights[longest], strict=True):
    print(f"long edge: {i} - {j}, {weight:g}")

# Single-linkage clusters: what remains together without the longest edges.
clusters = fcluster(mst_to_linkage(tree), t=10, criterion="maxclust")
sizes = np.bincount(clusters)[1:]
print(f"sizes of {len(sizes)} clusters: {np.sort(sizes)[::-1]}")
