"""A key-value cache at 2 to 2.5 bits a value for a language model. arXiv 2501.19392."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from theses.lm.inference.aqua_kv import AquaKVCache, HiggsQuantizer, calibrate

# A model that ends in seconds. For a trained one with its tokenizer, and for text to calibrate on:
# model, tokenizer = theses.models.load_language_model("smollm2-135m-instruct")
# ids = tokenizer(text, return_tensors="pt")["input_ids"][:, :8192].reshape(-1, 1024)
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4)
model = LlamaForCausalLM(config)
ids = torch.randint(3, 1_000, (4, 128))

# Once: predictors of each layer's keys and values from the layer before.
predictors = calibrate(model, ids, HiggsQuantizer(bits=2))
print(predictors.summary())
# predictors.save_pretrained("predictors"); AquaPredictors.from_pretrained("predictors") reads them again.

# For each prompt: a cache of its own.
cache = AquaKVCache(model.config, predictors)
prompt = torch.randint(3, 1_000, (1, 512))
answer = model.generate(prompt, attention_mask=torch.ones_like(prompt), cache=cache, max_new_tokens=8)
print(f"{answer.shape[1]} tokens; {cache.memory_bytes():,} bytes, {cache.bits_per_value():.2f} bits a value")
