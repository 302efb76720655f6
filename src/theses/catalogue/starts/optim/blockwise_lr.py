"""Train a transformer with a learning rate for each type of block. Blockwise LR, arXiv 2502.19002."""

import torch
from torch import nn

from theses.optim.blockwise_lr import BlockwiseAdamW, blockwise_groups, blockwise_schedule

# Your model here: Llama, GPT-2, nanoGPT and torch's own layers are known by their names.
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True), 2)
x = torch.randn(64, 16, 32, generator=torch.Generator().manual_seed(0))
target = x.roll(1, dims=1)

base_lr, steps = 1e-3, 100  # the rate that is tuned for plain AdamW
optimizer = BlockwiseAdamW(blockwise_groups(model, base_lr))
schedule = blockwise_schedule(optimizer, warmup=5, total=steps, min_lr=base_lr / 20)
for group in optimizer.param_groups:
    print(f"{group['name']:<14} peak rate {group['initial_lr']:g}, {len(group['params'])} tensors")
for _ in range(steps):
    optimizer.zero_grad()
    loss = (model(x) - target).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
print(f"loss {loss.item():.4f} after {steps} steps")
