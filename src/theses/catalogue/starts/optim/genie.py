"""Train on several domains, meet another one; GENIE beside Adam. GENIE, arXiv 2606.16301."""

import torch
from torch import nn

from theses.optim.genie import GENIE, osgr
from theses.problems.domains import rotated_digits

domains = rotated_digits(random_state=0)  # your data: digits turned by 0 to 60 degrees, tested on 75
split = domains.split([5], random_state=0)
x, y = torch.from_numpy(domains.images).flatten(1), torch.from_numpy(domains.labels)
probes = torch.from_numpy(split.validation[:224]).split(32)
for make, lr in ((GENIE, 0.5), (torch.optim.Adam, 3e-3)):  # each with its own rate
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = make(model.parameters(), lr=lr)
    for _ in range(300):
        rows = split.train[torch.randint(len(split.train), (32,))]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    right = model(x).argmax(1) == y
    seen, unseen = (float(right[part].float().mean()) for part in (split.validation, split.test))
    ratio = osgr(model, lambda m, r: nn.functional.cross_entropy(m(x[r]), y[r]), probes, None, optimizer)
    print(f"{make.__name__}: seen domains {seen:.3f}, unseen {unseen:.3f}; {ratio.summary()}")
