r"""Sliced optimal transport distance between labelled data sets (s-OTDD), and exact OTDD to hold it against.

A labelled sample ``(x, y)`` is projected to one number, ``t = psi_0 <theta, x> + sum_i psi_i m_i(y)``, where
``m_i(c) = mean over class c of <theta, x>^k_i / k_i!`` says what the label means: how the features of its
class are distributed. Two data sets are then compared by the one-dimensional Wasserstein distance between
their projected samples, averaged over random ``(theta, psi, k)``. No model is trained, label sets may differ
in number and be disjoint, and the cost is near-linear in the number of samples.

- :func:`sliced_dataset_distance`: two data sets, one number.
- :func:`pairwise_dataset_distances`: the matrix of several.
- :class:`SlicedDatasetDistance`: fix projections and scale once, turn each data set into a
  :class:`DatasetEmbedding` where it lies, compare embeddings later.
- :func:`otdd`: the reference, by POT.

References
----------
Nguyen, Nguyen, Pham, Ho: Lightspeed Geometric Dataset Distance via Sliced Optimal Transport, ICML 2025,
arXiv 2501.18901. Alvarez-Melis, Fusi: Geometric Dataset Distances via Optimal Transport, NeurIPS 2020.
"""

from theses.data.dataset_distance.distance import pairwise_dataset_distances, sliced_dataset_distance
from theses.data.dataset_distance.embedding import DatasetEmbedding
from theses.data.dataset_distance.fitted import SlicedDatasetDistance
from theses.data.dataset_distance.otdd import otdd

__all__ = [
    "DatasetEmbedding",
    "SlicedDatasetDistance",
    "otdd",
    "pairwise_dataset_distances",
    "sliced_dataset_distance",
]
