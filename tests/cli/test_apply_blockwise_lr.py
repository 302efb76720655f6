from __future__ import annotations

import json
import re
import subprocess
import sys

import polars as pl
import pytest
import torch
import typer
from typer.testing import CliRunner

from theses.cli.apply.blockwise_lr import apply, suggest
from theses.cli.errors import friendly
from theses.datasets.files import head

APP = typer.Typer()
APP.command()(friendly(apply))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A GPT-2 with fused projections and a tokenizer of bytes, as save_pretrained writes them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("gpt2")
    alphabet = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=256,
            n_positions=32,
            n_embd=16,
            n_layer=1,
            n_head=2,
            bos_token_id=None,
            eos_token_id=None,
        )
        GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("To be, or not to be, that is the question. " * 20)
    return file


def run(*arguments):
    return CliRunner().invoke(APP, [str(argument) for argument in arguments])


def test_blocks_alone(model):
    done = run(model, "--base-lr", "0.001")
    assert done.exit_code == 0, done.output
    assert re.search(r"qk +544 +8 +0\.008", done.stdout)  # two thirds of (16 + 1) x 48
    assert re.search(r"vo +544 +4 +0\.004", done.stdout)
    assert "qkv" in done.stdout
    assert "sharpness" not in done.stdout


def test_sharpness_and_table(model, text, tmp_path):
    table = tmp_path / "blocks.csv"
    options = ("--length", 16, "--batch", 2, "--batches", 2)
    done = run(model, text, *options, "-o", table, "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer == json.loads(run(model, text, *options, "-o", table, "--json").stdout) | {
        "seconds": answer["seconds"]
    }
    rows = pl.read_csv(table)
    assert rows["block"].to_list() == [row["block"] for row in answer["blocks"]]
    assert (rows["sharpness"] > 0).all()
    assert (rows["error"] > 0).all()
    assert answer["order"] == rows.sort("sharpness")["block"].to_list()
    script = "\n".join([*answer["python"], "print(optimizer.param_groups[0]['initial_lr'])"])
    printed = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert float(printed.stdout) == pytest.approx(6e-3)
    shown = run(model, text, *options)
    assert "rank correlation" in shown.stdout
    assert "suggested" in shown.stdout


def test_errors_name_what_is_wrong(model, text, tmp_path):
    for arguments, message in (
        ((model, tmp_path / "none.txt"), "none.txt: no such file"),
        ((model, text, "--length", "100000"), "text.txt: has .* tokens, a window wants 100000"),
        ((model, "--base-lr", "0"), "--base-lr must be greater than 0"),
        ((model, text, "--batches", "0"), "--batches must be at least 1"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2
        assert re.search(message, done.stderr)
    binary = tmp_path / "binary.txt"
    binary.write_bytes(b"\xff\xfe\xff")
    assert "is no UTF-8 text" in run(model, binary).stderr
    assert suggest([head(text)]) is None
