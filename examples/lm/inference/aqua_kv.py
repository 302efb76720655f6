"""How many bits do keys and values need? Code what a linear map from the layer before does not tell."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from theses.datasets.shakespeare import load_shakespeare
from theses.lm.inference.aqua_kv import AquaKVCache, HiggsQuantizer, calibrate, chunked_perplexity

# A model of letters, trained for some seconds; load_language_model() gives a real one.
works = load_shakespeare()
ids = {name: torch.tensor([ord(c) % 128 for c in works[name][5_000:90_000]]) for name in ("hamlet", "lear")}
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=2
)
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(80):
    starts = torch.randint(len(ids["hamlet"]) - 128, (8,))
    batch = torch.stack([ids["hamlet"][start : start + 128] for start in starts])
    optimizer.zero_grad()
    model(batch, labels=batch, use_cache=False).loss.backward()
    optimizer.step()
model.eval()

# Calibrated on one play, tried on another, with what is removed before coding: nothing, the mean, a map.
train, test = ids["hamlet"][:4_096].reshape(-1, 512), ids["lear"][:1_024].reshape(-1, 512)
print(f"perplexity of a letter with a full cache: {chunked_perplexity(model, test):.3f}")
quantizer = HiggsQuantizer(bits=1)
for kind in ("none", "mean", "linear"):
    predictors = calibrate(model, train, quantizer, predictor=kind)
    caches = [AquaKVCache(model, predictors, buffer_size=64) for _ in test]
    perplexity = chunked_perplexity(model, test, iter(caches).__next__, chunk_tokens=64)
    print(
        f"{kind}: {perplexity:.3f} at {caches[0].bits_per_value():.2f} bits a value; {predictors.summary()}"
    )
