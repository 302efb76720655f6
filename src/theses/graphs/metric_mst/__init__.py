r"""Minimum spanning trees in any metric by forest completion (MFC-Approx).

Exact spanning trees of n objects need all n (n - 1) / 2 distances when nothing but a metric is known. This
module takes three steps, one file each:

1. an initial forest (``forest.py``): farthest-first centres split the objects into t components P_i, and
   Prim's algorithm grows an exact tree T_i inside each;
2. completing that forest at least cost would need the closest pair of every two components, again of the
   order of n^2 distances (``complete_forest(..., completion="optimal")``);
3. MFC-Approx (``completion.py``) looks from one representative r_i of each component only,

   .. math:: \hat w(i, j) = \min\Bigl(\min_{x \in P_i} d(x, r_j),\ \min_{y \in P_j} d(r_i, y)\Bigr),

   n t distances, and takes the minimum spanning tree of these weights.

The tree weighs at most :math:`\beta = (3 + \sqrt 5) / 2 = 2.618` times the best completion of the same
forest, and at most :math:`2 \gamma + 1` times the minimum spanning tree, where :math:`\gamma` is the forest's
overhead inside its components. (A later analysis by the same group sharpens the factors to 2 and
:math:`2 \gamma`.) ``distances.py`` computes and counts the distances, ``linkage.py`` makes single-linkage
clusters of a tree.

References
----------
Veldt, Stanley, Priest, Steil, Iwabuchi, Jayram, Sanders, Approximate Forest Completion and
Learning-Augmented Algorithms for Metric Minimum Spanning Trees, ICML 2025, arXiv:2502.12993.
"""

from theses.graphs.metric_mst.completion import approximate_mst, complete_forest, exact_mst
from theses.graphs.metric_mst.forest import Forest, kcenter_forest
from theses.graphs.metric_mst.linkage import ForestCompletionSingleLinkage, mst_to_linkage
from theses.graphs.metric_mst.metrics import METRICS
from theses.graphs.metric_mst.result import COMPLETION_FACTOR, MSTResult, gamma

__all__ = [
    "COMPLETION_FACTOR",
    "METRICS",
    "Forest",
    "ForestCompletionSingleLinkage",
    "MSTResult",
    "approximate_mst",
    "complete_forest",
    "exact_mst",
    "gamma",
    "kcenter_forest",
    "mst_to_linkage",
]
