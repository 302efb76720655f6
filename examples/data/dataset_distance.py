"""Which of five versions of a digits data set has drifted from the reference, and how?

Run: python examples/data/dataset_distance.py
"""

import numpy as np
from sklearn.datasets import load_digits

from theses.data.dataset_distance import SlicedDatasetDistance

rng = np.random.default_rng(0)
X, y = load_digits(return_X_y=True)
order = rng.permutation(len(y))
reference, fresh = ((X[part], y[part]) for part in np.array_split(order, 2))

versions = {
    "fresh draw": fresh,
    "classes renamed": (fresh[0], 100 - fresh[1]),
    "noisy pixels": (fresh[0] + rng.normal(0, 4, fresh[0].shape), fresh[1]),
    "a third mislabelled": (fresh[0], np.where(rng.random(len(fresh[1])) < 1 / 3, 0, fresh[1])),
    "odd or even": (fresh[0], fresh[1] % 2),
}

# Projections and scale are fixed once; each data set is embedded once, and embeddings can be saved.
sotdd = SlicedDatasetDistance(n_projections=1_000, generator=0).fit([reference])
here = sotdd.embed(reference)
for name, version in versions.items():
    distance, error = sotdd.distance(here, sotdd.embed(version), return_se=True)
    print(f"{name:20} {distance:.4f} +- {error:.4f}")
