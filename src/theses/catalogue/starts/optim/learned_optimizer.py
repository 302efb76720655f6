"""How probably does a solver succeed on a new problem of this kind? arXiv 2410.07704."""

import torch

from theses.optim.learned_optimizer import AdamSolver, GradientDescent, ProblemFamily, Problems, certify


class Ridge(ProblemFamily):  # put yours here: what varies, and the loss
    dim = 5

    def sample(self, n, generator=None):
        X, noise = torch.randn(n, 30, 6, generator=generator, dtype=torch.float64).split([5, 1], dim=-1)
        return Problems({"X": X, "y": X.sum(-1, keepdim=True) + noise})

    def loss(self, z, params):
        residual = params["X"] @ z[:, :, None] - params["y"]
        return residual.square().mean((1, 2)) + 0.1 * z.square().sum(-1)


family, source = Ridge(), torch.Generator().manual_seed(0)
splits = family.sample(100, source), family.sample(250, source)
for solver in (GradientDescent(lr=0.2), AdamSolver(lr=0.2)):
    answer = certify([solver], family, *splits, lambda run: run.grad_norms[-1] < 1e-3, n_steps=100)
    print(solver, answer.summary(), sep="\n")
