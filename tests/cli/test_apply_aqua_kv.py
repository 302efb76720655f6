"""``theses apply aqua-kv`` on a small model in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from typer.testing import CliRunner

from theses.cli import app
from theses.lm.inference.aqua_kv import AquaKVCache, AquaPredictors

LETTERS = "abcdefghijklmnopqrstuvwxyz .,"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "small"
    words = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate(LETTERS)}, unk_token="."))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token=".").save_pretrained(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=len(LETTERS),
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=2,
            initializer_range=0.2,
        )
        LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "calib.txt"
    path.write_text("the quick brown fox jumps over the lazy dog, and then once more. " * 40)
    return path


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["apply", "aqua-kv", *map(str, arguments)])


def test_it_calibrates_saves_and_reports(model: Path, text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    options = ("--text", text, "--length", 64, "--buffer", 16, "-o", folder)
    done = run(model, *options, "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["bits_per_value"] == 2.5
    assert answer["cache_bytes"] < answer["cache_bytes_bf16"]
    assert set(answer["perplexity"]) == {"full", "aqua", "direct"}
    assert answer["calibration_tokens"] % 64 == 0
    predictors = AquaPredictors.from_pretrained(folder)
    assert predictors.n_parameters == answer["predictor_parameters"]
    loaded = LlamaForCausalLM.from_pretrained(model)
    cache = AquaKVCache(loaded.config, predictors, buffer_size=16)
    loaded(torch.arange(20)[None], cache=cache)
    assert cache.get_seq_length() == 20


def test_it_tells_people(model: Path, text: Path) -> None:
    done = run(model, "--text", text, "--length", 64, "--buffer", 16)
    assert done.exit_code == 0, done.output
    for words in ("bits a value", "perplexity", "yardstick", "nothing written", "from_pretrained("):
        assert words in done.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--text FILE is needed"),
        (("--text", "absent.txt"), "absent.txt: no such file"),
        (("--text", "TEXT", "--bits", 7), "--bits must be one of 1, 2, 3, 4"),
        (("--text", "TEXT", "--dim", 3), "--dim must be a power of two"),
        (("--text", "TEXT", "--buffer", 0), "--buffer must be at least 1"),
        (("--text", "TEXT", "--length", 4), "--length must be at least 16"),
        (("--text", "TEXT", "--length", 5_000), "hold no 5000 tokens in one text"),
        (("--text", "TEXT", "--tokens", 64, "--length", 64), "must hold at least 64 tokens"),
        (("--text", "TEXT", "-o", "TEXT"), "--output is a folder"),
        (("--text", "EMPTY"), "holds no text"),
        (("--text", "BYTES"), "not UTF-8 at byte 1"),
    ],
)
def test_bad_input(model: Path, text: Path, tmp_path: Path, arguments: tuple[object, ...], says: str) -> None:
    (tmp_path / "empty.txt").write_text("  \n")
    (tmp_path / "bytes.txt").write_bytes(b"a\xff")
    places = {"TEXT": text, "EMPTY": tmp_path / "empty.txt", "BYTES": tmp_path / "bytes.txt"}
    done = run(model, *(places.get(str(a), a) for a in arguments))
    assert done.exit_code == 2, done.output
    assert says in done.output


def test_a_missing_model_is_named(text: Path, tmp_path: Path) -> None:
    done = run(tmp_path / "nowhere", "--text", text)
    assert done.exit_code == 2
    assert "nowhere" in done.output
