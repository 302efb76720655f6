from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from theses.datasets.files import FileError
from theses.datasets.shakespeare import load_shakespeare
from theses.datasets.text import load_text_folder, load_token_bins, split_works


def test_shakespeare_is_split_by_work():
    texts = load_shakespeare()
    train, held_out = split_works(texts)
    assert len(held_out) == 6
    assert not set(train) & set(held_out)
    assert train | held_out == texts
    assert next(iter(held_out)) == min(texts)


@pytest.mark.parametrize(
    ("texts", "every", "message"),
    [({"a": "", "b": ""}, 1, "every"), ({"a": ""}, 2, "texts"), ({"a": "", "b": ""}, 2.5, "every")],
)
def test_splits_that_cannot_be(texts, every, message):
    with pytest.raises((ValueError, TypeError), match=message):
        split_works(texts, every)


def test_documents_of_each_kind_of_file(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "play.txt").write_text("Ünïcode\r\n", encoding="utf-8-sig")
    lines = [{"text": "line\u2028separator"}, {"text": ""}, {"text": "last", "meta": 3}]
    (tmp_path / "pile.jsonl").write_text("\n".join(json.dumps(x, ensure_ascii=False) for x in lines) + "\n\n")
    pl.DataFrame({"text": ["row", None, "other"]}).write_parquet(tmp_path / "wiki.parquet")
    (tmp_path / "ignored.md").write_text("no document")
    assert load_text_folder(tmp_path) == {
        "deep/play.txt": "Ünïcode\n",
        "pile.jsonl:1": "line\u2028separator",
        "pile.jsonl:3": "last",
        "wiki.parquet:1": "row",
        "wiki.parquet:3": "other",
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "fine"}\n{"text": ', "a.jsonl, row 2: no JSON"),
        ("a.jsonl", b'{"text": "fine"}\n\n["text"]', "a.jsonl, row 3"),
        ("a.jsonl", b'{"body": "fine"}', "a.jsonl, row 1"),
        ("a.txt", b"caf\xe9", "a.txt: not UTF-8 at byte 3"),
        ("a.parquet", b"PAR1", "a.parquet"),
        ("a.txt", b"", "no document"),
        ("a.md", b"text", "no document"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=message):
        load_text_folder(tmp_path)


def test_parquet_without_text(tmp_path):
    pl.DataFrame({"body": ["x"]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(FileError, match="no column text; it has body"):
        load_text_folder(tmp_path)
    pl.DataFrame({"text": [1]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(FileError, match="column text, row 1"):
        load_text_folder(tmp_path)


def test_absent_folders(tmp_path):
    with pytest.raises(FileError, match="no such folder"):
        load_text_folder(tmp_path / "none")
    with pytest.raises(FileError, match=r"train\.bin"):
        load_token_bins(tmp_path)


def test_token_streams_are_mapped_as_they_stand(tmp_path):
    tokens = np.array([0, 1, 255, 256, 50_256, 65_535], dtype=np.uint16)
    tokens.tofile(tmp_path / "train.bin")
    tokens[:2].tofile(tmp_path / "val.bin")
    bins = load_token_bins(tmp_path)
    assert isinstance(bins.train, np.memmap)
    assert bins.train.tolist() == tokens.tolist()
    assert bins.val.tolist() == [0, 1]
    assert (tmp_path / "train.bin").read_bytes()[6:8] == b"\x00\x01"
    with pytest.raises(ValueError, match="read-only"):
        bins.train[0] = 1


@pytest.mark.parametrize("content", [b"", b"abc"])
def test_token_files_of_odd_or_no_bytes(tmp_path, content):
    np.zeros(2, dtype=np.uint16).tofile(tmp_path / "train.bin")
    (tmp_path / "val.bin").write_bytes(content)
    with pytest.raises(FileError, match=rf"val\.bin.*{len(content)} bytes"):
        load_token_bins(tmp_path)
