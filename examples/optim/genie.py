"""Which entries bring the loss down, and does a step help as much on images that it has not seen?"""

from __future__ import annotations

import torch
from torch import nn

from theses.optim.genie import GENIE, one_step_ratio, osgr
from theses.problems.domains import tinted_digits

# In two domains the colour betrays the label, in the third it misleads.
domains = tinted_digits(random_state=0)
split = domains.split([2], random_state=0)
x, y = torch.from_numpy(domains.images).flatten(1), torch.from_numpy(domains.labels)


def loss(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(x[rows]), y[rows])


train = torch.from_numpy(split.train)
probes = torch.from_numpy(split.validation).split(16)[:-1]
for make, lr in ((GENIE, 0.5), (torch.optim.Adam, 3e-3), (torch.optim.SGD, 0.1)):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = make(model.parameters(), lr=lr)
    for _ in range(300):
        optimizer.zero_grad()
        loss(model, train[torch.randint(len(train), (32,))]).backward()
        optimizer.step()
    result = osgr(model, loss, probes, preconditioner=optimizer)
    real = one_step_ratio(model, loss, train[:500], train[500:], optimizer.step)
    right = (model(x).argmax(1) == y).float()
    helps, misleads = float(right[split.validation].mean()), float(right[split.test].mean())
    print(f"{make.__name__}: accuracy {helps:.3f} where colour helps, {misleads:.3f} where it misleads")
    print(f"  {result.summary()}; one real step {real:.2f}")
