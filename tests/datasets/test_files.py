from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from theses.datasets.files import (
    FileError,
    head,
    read_labelled,
    read_lines,
    read_numbers,
    read_table,
    write_table,
    write_text,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)


def file(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet", "t.npy"])
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=5))
def test_numbers_survive_writing_and_reading(tmp_path: Path, name: str, rows: list[tuple[float, float]]):
    frame = pl.DataFrame(rows, schema={"x0": pl.Float64, "x1": pl.Float64}, orient="row")
    write_table(tmp_path / name, frame)
    assert read_table(tmp_path / name).equals(frame)
    assert np.array_equal(read_numbers(tmp_path / name, ["x1", "x0"]), np.array(rows)[:, ::-1])
    found = head(tmp_path / name)
    assert (found.columns, found.numeric) == (("x0", "x1"), (True, True))


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\ufeff")), min_size=1
    )
)
def test_lines_survive_writing_and_reading(tmp_path: Path, lines: list[str]):
    lines = [*lines, "last"]
    write_text(tmp_path / "l.txt", "\n".join(lines) + "\n")
    assert read_lines(tmp_path / "l.txt") == lines


@pytest.mark.parametrize("content", ["a\nb\n\nc\n\n \n", "a\r\nb\r\n\r\nc", "\ufeffa\rb\r\rc\r"])
def test_lines_of_all_systems_and_blank_ends(tmp_path: Path, content: str):
    assert read_lines(file(tmp_path, "l.txt", content)) == ["a", "b", "", "c"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no columns"),
        ("a,b\n", "holds no rows"),
        ("1,2\n3,4\n", "first row holds numbers only"),
        ("a;b\n1;2\n", "separated by commas"),
        ("a,a\n1,2\n", "column 'a' comes twice"),
        ("a,b\n1,2\n3,4,5\n", "row 2 has 3 cells for 2 columns"),
        ("a,b\n1,2\n3\n", "column 'b', row 2: the cell is empty"),
        ("a,b\n1,2\n,3\n", "column 'a', row 2: the cell is empty"),
        ("a,b\n1,2\n3,NA\n", "column 'b', row 2: 'NA' is not a number"),
        ("a,b\n1,2\n3,1_000\n", "column 'b', row 2: '1_000' is not a number"),
        ("a,b\n1,2\n3,NaN\n", "column 'b', row 2: nan is not finite"),
        ("a,b\n1,-inf\n", "column 'b', row 1: -inf is not finite"),
        ("a,b\n1,true\n", "column 'b', row 1: 'true' is not a number"),
        (b"a,b\n1,2\n1,\xff\n", "line 3 is not UTF-8"),
        (b"a,b\n" + b"1,2\n" * 30_000 + b"1,\xff\n", "line 30002 is not UTF-8"),
        ('a,b\n"1,2\n', "no readable table"),
    ],
)
def test_bad_tables_are_refused_with_place(tmp_path: Path, content: str | bytes, message: str):
    path = file(tmp_path, "t.csv", content)
    with pytest.raises(FileError) as caught:
        read_numbers(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_late_decimal_does_not_turn_numbers_into_text(tmp_path: Path):
    path = file(tmp_path, "t.csv", "a\n" + "1\n" * 5000 + "2.5\n")
    assert read_numbers(path)[-1, 0] == 2.5


def test_columns_are_taken_by_name_and_order(tmp_path: Path):
    path = file(tmp_path, "t.csv", 'name,"b,c",a\nx, 2,1\n')
    assert read_numbers(path, ["a", "b,c"]).tolist() == [[1.0, 2.0]]
    with pytest.raises(FileError, match="has no column 'd'; it has name, b,c, a"):
        read_numbers(path, ["d"])
    with pytest.raises(FileError, match="no column was asked for"):
        read_numbers(path, [])


@pytest.mark.parametrize("name", ["absent.csv", "folder", "t.xlsx", "plain"])
def test_what_is_no_table_is_named(tmp_path: Path, name: str):
    (tmp_path / "folder").mkdir()
    if name in ("t.xlsx", "plain"):
        file(tmp_path, name, "a\n1\n")
    with pytest.raises(FileError, match=name):
        read_table(tmp_path / name)


@pytest.mark.parametrize("name", ["t.npy", "t.npz", "t.parquet"])
@pytest.mark.parametrize("content", [b"", b"nonsense that is long enough to hold a header"])
def test_damaged_binaries_are_refused(tmp_path: Path, name: str, content: bytes):
    path = file(tmp_path, name, content)
    for read in (read_table, head):
        with pytest.raises(FileError, match="no readable"):
            read(path)


def test_no_pickle_is_loaded(tmp_path: Path):
    np.save(tmp_path / "t.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FileError, match="allow_pickle"):
        read_table(tmp_path / "t.npy")
    assert head(tmp_path / "t.npy").numeric == (False,)


@pytest.mark.parametrize(
    ("array", "columns"),
    [
        (np.arange(3), ["x0"]),
        (np.arange(6).reshape(3, 2), ["x0", "x1"]),
        (np.ones((2, 2), np.float16), ["x0", "x1"]),
        (np.ones((2, 1), ">f8"), ["x0"]),
        (np.asfortranarray(np.arange(6.0).reshape(2, 3)), ["x0", "x1", "x2"]),
    ],
)
def test_arrays_become_named_columns(tmp_path: Path, array: np.ndarray, columns: list[str]):
    path = tmp_path / "t.npy"
    np.save(path, array)
    assert read_table(path).columns == columns
    assert np.array_equal(read_numbers(path), array.reshape(len(array), -1))
    found = head(path)
    assert (found.kind, list(found.columns), found.n_dims) == ("array", columns, array.ndim)


@pytest.mark.parametrize("array", [np.zeros((2, 3, 4)), np.float64(3)])
def test_arrays_of_other_ranks_are_no_table(tmp_path: Path, array: np.ndarray):
    np.save(tmp_path / "t.npy", array)
    with pytest.raises(FileError, match="1 or 2 dimensions"):
        read_table(tmp_path / "t.npy")
    found = head(tmp_path / "t.npy")
    assert (found.columns, found.n_dims) == ((), np.ndim(array))


def test_several_arrays_are_blocks_of_columns(tmp_path: Path):
    path = tmp_path / "t.npz"
    X = np.arange(4.0).reshape(2, 2)
    np.savez(path, X=X, y=np.array(["b", "a"]))
    assert read_table(path).columns == ["X0", "X1", "y"]
    assert head(path).numeric == (True, True, False)
    found, y, classes = read_labelled(path, "y")
    assert np.array_equal(found, X)
    assert (y.tolist(), classes) == ([1, 0], ["a", "b"])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.zeros((2, 2)), "y": np.zeros(3)}, "'X' has 2, 'y' has 3"),
        ({"X": np.zeros((2, 1)), "X0": np.zeros(2)}, "'X0' comes twice"),
        ({"X": np.zeros(2, complex)}, "complex128"),
        ({"X": np.zeros((0, 2))}, "holds no rows"),
        ({}, "holds no columns"),
    ],
)
def test_arrays_that_make_no_table(tmp_path: Path, arrays: dict[str, Any], message: str):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(FileError, match=message):
        read_table(tmp_path / "t.npz")


@pytest.mark.parametrize(
    ("labels", "y", "classes"),
    [
        (["7", "-1", "7"], [1, 0, 1], [-1, 7]),
        (["3.0", "1.0", "3.0"], [1, 0, 1], [1, 3]),
        (["b", "a", "b"], [1, 0, 1], ["a", "b"]),
        (["true", "false", "true"], [1, 0, 1], [False, True]),
    ],
)
def test_labels_are_encoded_in_sorted_order(tmp_path: Path, labels: list[str], y: list[int], classes: list):
    path = file(tmp_path, "t.csv", "x,label\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels)))
    X, found, names = read_labelled(path, "label")
    assert (X.tolist(), found.tolist(), names) == ([[0.0], [1.0], [2.0]], y, classes)
    assert found.dtype == np.int64


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x,y\n1,0\n2,0.5\n", "column 'y', row 2: a label is an integer or a string, got 0.5"),
        ("x,y\n1,0\n2,\n", "column 'y', row 2: the label is missing"),
        ("x,y\n1,a\n2,nan\n", "column 'y', row 2: the label is missing"),
        ("x,y\n1,0\n2,NaN\n", "column 'y', row 2"),
        ("y\n1\n", "no column beside the label 'y'"),
        ("x,z\n1,0\n", "has no column 'y'"),
        ("x,y\nred,0\n", "column 'x', row 1: 'red' is not a number"),
    ],
)
def test_bad_labels_are_refused_with_place(tmp_path: Path, content: str, message: str):
    with pytest.raises(FileError, match=r"t\.csv: ") as caught:
        read_labelled(file(tmp_path, "t.csv", content), "y")
    assert message in str(caught.value)


def test_head_reads_little_of_a_long_file(tmp_path: Path):
    # The cut falls into a row, and into a character of three bytes.
    path = file(tmp_path, "t.csv", "a,b\n" + "1,€uro\n" * 20_000)
    found = head(path)
    assert (found.kind, found.columns, found.numeric) == ("table", ("a", "b"), (True, False))


def test_head_knows_a_header_longer_than_its_first_bytes(tmp_path: Path):
    names = [f"feature_{i}" for i in range(20_000)]
    path = file(tmp_path, "t.csv", ",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    found = head(path)
    assert list(found.columns) == names
    assert all(found.numeric)


def test_head_of_lines(tmp_path: Path):
    assert head(file(tmp_path, "words.txt", "kitten\n")).kind == "lines"
    with pytest.raises(FileError, match="holds no lines"):
        head(file(tmp_path, "empty.txt", "\n"))
    with pytest.raises(FileError, match="line 2 is not UTF-8"):
        head(file(tmp_path, "photo.jpg", b"a\n\xff\xd8"))


def test_head_imports_no_polars(tmp_path: Path):
    np.save(tmp_path / "t.npy", np.zeros((2, 2)))
    file(tmp_path, "t.csv", "a\n1\n")
    code = (
        "import sys; from theses.datasets.files import head; "
        "[head(path) for path in sys.argv[1:]]; assert 'polars' not in sys.modules"
    )
    files = [str(tmp_path / "t.csv"), str(tmp_path / "t.npy")]
    subprocess.run([sys.executable, "-c", code, *files], check=True)


def test_json_knows_no_nan(tmp_path: Path):
    write_table(tmp_path / "t.json", pl.DataFrame({"a": [1.5, float("nan"), float("-inf")], "b": [1, 2, 3]}))
    assert (tmp_path / "t.json").read_text() == '[{"a":1.5,"b":1},{"a":null,"b":2},{"a":null,"b":3}]'


def test_writing_refuses_what_it_cannot_keep(tmp_path: Path):
    with pytest.raises(FileError, match=r"\.npy, got '\.xlsx'"):
        write_table(tmp_path / "t.xlsx", pl.DataFrame({"a": [1]}))
    with pytest.raises(FileError, match="column 'a' holds String"):
        write_table(tmp_path / "t.npy", pl.DataFrame({"a": ["x"]}))
    with pytest.raises(FileError, match="cannot be written"):
        write_table(tmp_path / "absent" / "t.csv", pl.DataFrame({"a": [1]}))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_text(tmp_path / "t.txt", "old")

    def full_disk(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(FileError, match="No space left"):
        write_text(tmp_path / "t.txt", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["t.txt"]
    assert (tmp_path / "t.txt").read_text() == "old"
