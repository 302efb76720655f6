"""How sharp is each block of a small model that learns Hamlet, and what do blockwise rates bring?"""

from typing import Any

import torch
from torch import nn

import theses.optim.blockwise_lr as bw
from theses.datasets.shakespeare import load_shakespeare

words = load_shakespeare()["hamlet"].lower().split()
ids = {word: i for i, word in enumerate(sorted(set(words)))}
text = torch.tensor([ids[word] for word in words])


def logits(model: Any, x: torch.Tensor) -> torch.Tensor:
    hidden = model["layer"](model["embed"](x), nn.Transformer.generate_square_subsequent_mask(16))
    return model["norm"](hidden) @ model["embed"].weight.T


def train(ratios: dict[str, float], base_lr: float = 2e-3, steps: int = 100) -> tuple[nn.Module, float]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True, norm_first=True)
    embed = nn.Embedding.from_pretrained(0.02 * torch.randn(len(ids), 32), freeze=False)
    model = nn.ModuleDict({"embed": embed, "layer": layer, "norm": nn.LayerNorm(32)})
    optimizer = bw.BlockwiseAdamW(bw.blockwise_groups(model, base_lr, ratios))
    schedule = bw.blockwise_schedule(optimizer, warmup=10, total=steps, min_lr=base_lr / 20)
    for _ in range(steps):
        optimizer.zero_grad()
        rows = text[torch.randint(len(text) - 16, (16, 1)) + torch.arange(17)]
        loss = nn.functional.cross_entropy(logits(model, rows[:, :-1]).mT, rows[:, 1:])
        loss.backward()
        optimizer.step()
        schedule.step()
    return model, loss.item()


model, loss = train(dict.fromkeys(bw.BLOCKS, 1))
print(f"one rate: loss {loss:.3f}; the paper's ratios: {train(dict(bw.PAPER_RATIOS))[1]:.3f}")
print(bw.block_sharpness(model, logits, [text[:512].view(32, 16)], generator=0).summary())
