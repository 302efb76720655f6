"""Text of users: folders of documents, and token files in nanoGPT's layout."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from theses.datasets.files import FileError, read_table
from theses.resources import record
from theses.validation import check_integer

__all__ = ["TokenBins", "load_text_folder", "load_token_bins", "split_works"]


class TokenBins(NamedTuple):
    """Token streams of a corpus, mapped from disk.

    Parameters
    ----------
    train, val : ndarray of uint16, shape (n_tokens,)
        Read-only memory maps.
    """

    train: NDArray[np.uint16]
    val: NDArray[np.uint16]


def split_works(texts: Mapping[str, str], every: int = 8) -> tuple[dict[str, str], dict[str, str]]:
    """Split a corpus by work, so that no work is on both sides.

    Parameters
    ----------
    texts : mapping of str to str
        Text by work.
    every : int, default=8
        In alphabetical order, each ``every``-th work is held out, the first one included.

    Returns
    -------
    train, held_out : dict of str to str
        The two sides, in alphabetical order.

    Raises
    ------
    ValueError
        If ``every`` is below 2, or there are fewer than two works.

    Examples
    --------
    >>> train, held_out = split_works({"c": "...", "a": "...", "b": "..."}, every=2)
    >>> list(train), list(held_out)
    (['b'], ['a', 'c'])
    """
    check_integer("every", every, minimum=2)
    if len(texts) < 2:
        raise ValueError(f"texts: expected at least two works, got {len(texts)}")
    works = sorted(texts)
    held = set(works[::every])
    return (
        {work: texts[work] for work in works if work not in held},
        {work: texts[work] for work in works if work in held},
    )


def load_text_folder(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Documents of a folder.

    Parameters
    ----------
    folder : path-like
        With ``.txt`` files (one document each, UTF-8), ``.jsonl`` files (one object a line, the document in
        its field ``text``, as RedPajama has it) or ``.parquet`` files (one row a document, column ``text``,
        as WikiText has it), in sub-folders too.

    Returns
    -------
    dict of str to str
        Document by name, in alphabetical order of the files: the path in the folder, and for files with
        several documents the number of the row, counted from 1. Documents without a character are left out.

    Raises
    ------
    FileError
        If the folder is absent or without a document, or a file is damaged; the message names file and row.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "notes.jsonl").write_text('{"text": "one"}\\n{"text": "two"}\\n')
    >>> load_text_folder(folder)
    {'notes.jsonl:1': 'one', 'notes.jsonl:2': 'two'}
    """
    root = Path(folder)
    if not root.is_dir():
        raise FileError(f"{root}: no such folder")
    documents: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix == ".txt":
            documents[name] = _decoded(path)
        elif path.suffix == ".jsonl":
            documents |= {f"{name}:{row}": text for row, text in _lines_of_json(path)}
        elif path.suffix == ".parquet":
            documents |= {f"{name}:{row}": text for row, text in _rows_of_parquet(path)}
        else:
            continue
        record(path)
    documents = {name: text for name, text in documents.items() if text}
    if not documents:
        raise FileError(f"{root}: no document in .txt, .jsonl or .parquet files")
    return documents


def load_token_bins(folder: str | os.PathLike[str]) -> TokenBins:
    """Token streams in the layout that nanoGPT's scripts write.

    Parameters
    ----------
    folder : path-like
        With ``train.bin`` and ``val.bin``: token numbers as little-endian 16-bit integers, nothing else.

    Returns
    -------
    TokenBins
        Memory maps; nothing is read before it is used.

    Raises
    ------
    FileError
        If a file is absent, empty or of an odd number of bytes.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for part in ("train", "val"):
    ...     np.arange(4, dtype="<u2").tofile(folder / f"{part}.bin")
    >>> load_token_bins(folder).val
    memmap([0, 1, 2, 3], dtype=uint16)
    """
    return TokenBins(*(_token_stream(Path(folder) / f"{part}.bin") for part in ("train", "val")))


def _token_stream(path: Path) -> NDArray[np.uint16]:
    if not path.is_file():
        raise FileError(f"{path}: no such file; the folder must hold train.bin and val.bin")
    if not (size := path.stat().st_size) or size % 2:
        raise FileError(f"{path}: expected 16-bit token numbers, got {size} bytes")
    return np.memmap(path, dtype="<u2", mode="r")


def _decoded(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 at byte {error.start}") from None


def _lines_of_json(path: Path) -> Iterator[tuple[int, str]]:
    # Split at newlines alone: other separators of lines may stand inside a JSON string.
    for row, line in enumerate(_decoded(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise FileError(f"{path}, row {row}: no JSON ({error.msg})") from None
        text = value.get("text") if isinstance(value, dict) else None
        if not isinstance(text, str):
            raise FileError(f'{path}, row {row}: expected an object with a string "text"')
        yield row, text


def _rows_of_parquet(path: Path) -> Iterator[tuple[int, str]]:
    frame = read_table(path)
    if "text" not in frame.columns:
        raise FileError(f"{path}: no column text; it has {', '.join(frame.columns)}")
    for row, text in enumerate(frame["text"].to_list(), 1):
        if text is not None and not isinstance(text, str):
            raise FileError(f"{path}, column text, row {row}: expected a string, got {type(text).__name__}")
        yield row, text or ""
