"""How far apart are two labelled data sets, and is that more than chance? s-OTDD, arXiv 2501.18901."""

import numpy as np
from sklearn.datasets import load_digits  # without files

# with files: from theses.data.dataset_distance import SlicedDatasetDistance
# with files: from theses.datasets.files import head, read_labelled, read_numbers
from theses.data.dataset_distance import SlicedDatasetDistance  # without files

# A labelled data set: features (n_samples, n_features) and classes (n_samples,).
X, y = load_digits(return_X_y=True)  # without files
A, B = (X[y < 5], y[y < 5]), (X[y >= 5], y[y >= 5])  # without files
# with files: a, label = "<a>", "<label>"
# with files: b = "<b>"
# with files: features = [name for name in head(a).columns if name != label]
# with files: A, B = ((read_numbers(path, features), read_labelled(path, label)[1]) for path in (a, b))

sotdd = SlicedDatasetDistance(n_projections=1_000, generator=0).fit([A, B])
distance, error = sotdd.distance(sotdd.embed(A), sotdd.embed(B), return_se=True)
print(f"A and B: {distance:.4f} +- {error:.4f}")

# What chance alone does.
for name, (X, y) in {"A": A, "B": B}.items():
    halves = np.array_split(np.random.default_rng(0).permutation(len(y)), 2)
    distance, error = sotdd.distance(*(sotdd.embed((X[half], y[half])) for half in halves), return_se=True)
    print(f"two halves of {name}: {distance:.4f} +- {error:.4f}")
