"""Follow the mean covariance of handwritten digits as they come, and hold it against explicit steps.

Run: python examples/decision/riemannian_optimism.py
"""

import numpy as np
from sklearn.datasets import load_digits

from theses.decision.riemannian_optimism import online_frechet_mean, r_ogd
from theses.numerics.manifolds import SPD, frechet_mean
from theses.problems.geodesic import SquaredDistance

images = load_digits().images[:400] / 16
rows, columns = np.divmod(np.arange(64), 8)


def covariance(image):
    """Of row, column and intensity, weighted by the intensity."""
    features = np.stack([rows / 7, columns / 7, image.ravel()])
    weights = image.ravel() / image.sum()
    centred = features - (features @ weights)[:, None]
    return centred * weights @ centred.T + 1e-3 * np.eye(3)


space = SPD(3)
stream = np.stack([covariance(image) for image in images])
eta = 1 / np.sqrt(len(stream))

course = online_frechet_mean(stream, space, eta)
print("implicit:", course.summary())

losses = [SquaredDistance(space, matrix) for matrix in stream]
decisions, met = r_ogd(space, losses, stream[0], eta)
hindsight = (space.dist(frechet_mean(space, stream), stream) ** 2 / 2).sum()
print(f"explicit: mean loss {met.mean():.4g}, regret {met.sum() - hindsight:.4g}, without a certificate")
