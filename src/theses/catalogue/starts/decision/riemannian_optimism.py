"""Online decisions among covariance matrices, with a certificate of the regret: RIOD, arXiv 2501.18381."""

import numpy as np

from theses.decision.riemannian_optimism import RIOD, RobustKarcherMean
from theses.numerics.manifolds import SPD, GeodesicBall
from theses.problems.geodesic import SquaredDistance

rng = np.random.default_rng(0)
space = SPD(3)
stream = [space.random(rng, scale=0.3) for _ in range(100)]  # your matrices, one a round

# Within a ball about the identity; eta is D / sqrt(T) for losses of slope up to 1.
ball = GeodesicBall(space, np.eye(3), radius=0.5)
learner = RIOD(space, eta=0.1, constraint=ball, hint="last", keep_history=True)
for matrix in stream:
    decision = learner.play()
    learner.update(SquaredDistance(space, matrix))
print(f"total loss {learner.total_loss:.2f}, regret at most {learner.regret_bound():.2f}")

# A mean against an adversary who may move each matrix at a price.
robust = RobustKarcherMean(gamma=5.0).fit(space, np.stack(stream[:8]))
print("robust mean:", robust.result_.summary())
print(np.round(robust.center_, 3))
