"""A learned update step, and what can be said about it on problems it has not seen."""

from __future__ import annotations

import torch

from theses.optim.learned_optimizer import (
    HeavyBall,
    QuadraticFamily,
    certify,
    load_trained,
    roll_out,
    trajectory_properties,
)

family = QuadraticFamily(dim=50)
source = torch.Generator().manual_seed(1)
prior, certification, test = (family.sample(n, source) for n in (60, 100, 60))
learned, usual = load_trained("quadratic")[0], HeavyBall.worst_case(mu=family.mu[0], L=family.L[1])

# The learned step knows what these problems have in common; heavy ball knows the worst of them.
for name, solver in (("learned", learned), ("heavy ball", usual)):
    run = roll_out(solver, family, test, n_steps=200)
    print(f"{name:<10} {run.summary()}; down at each step: {trajectory_properties(run).summary()}")


# A certificate speaks of any property of a run, fixed beforehand: here, a loss below 1 % of the first.
def arrives(run):
    return run.losses[-1] < 0.01 * run.losses[0]


for name, solver in (("learned", learned), ("heavy ball", usual)):
    certificate = certify(
        [solver], family, prior, certification, arrives, n_steps=100, property="loss below 1 % of the first"
    )
    share = arrives(roll_out(solver, family, test, n_steps=100)).double().mean()
    print(f"{name}: {certificate.summary()} On {len(test)} new ones: {share:.3f}.")
