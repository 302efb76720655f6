"""Files of users: tables, arrays and lists of objects, read with errors that name file, column and row.

What a command line is pointed at goes through this module. A table is a ``.csv``, ``.tsv`` or ``.parquet``
with named columns, or a ``.npy``/``.npz`` of one- and two-dimensional arrays, whose columns get names here.
Rows are counted from 1, the header left out.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = [
    "FileError",
    "FileHead",
    "head",
    "read_labelled",
    "read_lines",
    "read_numbers",
    "read_table",
    "write_table",
    "write_text",
]

PathLike = str | os.PathLike[str]

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_ARRAYS = (".npy", ".npz")
_TABLES = (*_SEPARATORS, ".parquet", *_ARRAYS)
_HEAD_BYTES = 1 << 16
_HEAD_ROWS = 100


class FileError(ValueError):
    """A file is not what was asked for; the message names file, column and row."""


@dataclass(frozen=True)
class FileHead:
    """What the first bytes of a file tell.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    kind : {"table", "array", "lines"}
        Named columns; NumPy arrays; text with one object a line.
    columns : tuple of str
        Names of the columns, as :func:`read_table` would give them; empty for lines and for arrays of more
        than two dimensions.
    numeric : tuple of bool
        Which columns hold numbers, judged by the first rows.
    n_dims : int or None
        Rank of the array, for ``.npy`` and for ``.npz`` with one array.
    """

    path: Path
    kind: Literal["table", "array", "lines"]
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    n_dims: int | None = None


def read_table(path: PathLike) -> pl.DataFrame:
    """Table of a file.

    Parameters
    ----------
    path : path-like
        ``.csv`` (commas) and ``.tsv`` (tabs), both with a first row of names; ``.parquet``; ``.npy`` with one
        or two dimensions (columns ``x0``, ``x1``, ...); ``.npz``, where a one-dimensional array ``y`` becomes
        the column ``y`` and a two-dimensional ``X`` the columns ``X0``, ``X1``, ... Nothing in a file is
        executed.

    Returns
    -------
    polars.DataFrame
        At least one row and one column.

    Raises
    ------
    FileError
        If the file is absent, of another kind, damaged or empty.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "points.csv"
    >>> _ = path.write_text("height,name\\n1.5,ada\\n2,bo\\n")
    >>> read_table(path).rows()
    [(1.5, 'ada'), (2.0, 'bo')]
    """
    import polars as pl

    path = _existing(path)
    suffix = path.suffix.lower()
    if suffix in _SEPARATORS:
        frame = _read_csv(path, _SEPARATORS[suffix])
    elif suffix == ".parquet":
        try:
            frame = pl.read_parquet(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise FileError(f"{path}: no readable Parquet file ({_first_line(error)})") from None
    elif suffix in _ARRAYS:
        frame = _frame_of_arrays(path)
    else:
        raise FileError(f"{path}: a table is one of {', '.join(_TABLES)}, got {suffix or 'no extension'!r}")
    if not frame.width or not frame.height:
        raise FileError(f"{path}: holds no {'rows' if frame.width else 'columns'}")
    return frame


def read_numbers(path: PathLike, columns: Sequence[str] | None = None) -> NDArray[np.float64]:
    """Numbers of a table, all finite.

    Parameters
    ----------
    path : path-like
        As for :func:`read_table`.
    columns : sequence of str or None, default=None
        Columns wanted, in this order; None takes all.

    Returns
    -------
    ndarray of float64, shape (n_rows, n_columns)
        The numbers.

    Raises
    ------
    FileError
        If a column is missing, or a cell is empty, not a number or not finite; the message names column and
        row.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "points.csv"
    >>> _ = path.write_text("a,b\\n1,2\\n3,n/a\\n")
    >>> read_numbers(path, ["a"]).tolist()
    [[1.0], [3.0]]
    >>> read_numbers(path)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    theses.datasets.files.FileError: ...points.csv: column 'b', row 2: 'n/a' is not a number
    """
    path = Path(path)
    frame = read_table(path)
    return _numbers(path, frame, frame.columns if columns is None else list(columns))


def read_labelled(path: PathLike, label: str) -> tuple[NDArray[np.float64], NDArray[np.int64], list[Any]]:
    """Features and classes of a labelled table.

    Parameters
    ----------
    path : path-like
        As for :func:`read_table`.
    label : str
        Column of the classes: integers (also written as ``3.0``), strings or true/false. All other columns
        are features and must hold numbers.

    Returns
    -------
    X : ndarray of float64, shape (n_rows, n_columns - 1)
        Features.
    y : ndarray of int64, shape (n_rows,)
        Classes, counted from 0.
    classes : list
        What the classes are called in the file, sorted; ``classes[y[i]]`` is the label of row ``i``.

    Raises
    ------
    FileError
        If the label is missing, empty somewhere or a fraction, no feature is left, or a feature is not a
        finite number.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "iris.csv"
    >>> _ = path.write_text("length,species\\n1.4,setosa\\n4.7,versicolor\\n1.3,setosa\\n")
    >>> X, y, classes = read_labelled(path, "species")
    >>> X.ravel().tolist(), y.tolist(), classes
    ([1.4, 4.7, 1.3], [0, 1, 0], ['setosa', 'versicolor'])
    """
    import numpy as np
    import polars as pl

    path = Path(path)
    frame = read_table(path)
    labels = _column(path, frame, label)
    features = [name for name in frame.columns if name != label]
    if not features:
        raise FileError(f"{path}: has no column beside the label {label!r}")
    if labels.dtype in (pl.Categorical, pl.Enum):
        labels = labels.cast(pl.String)
    missing = labels.is_null()
    if labels.dtype == pl.String:
        missing |= labels.str.strip_chars().str.to_lowercase().is_in(["", "nan"]).fill_null(True)
    if missing.any():
        raise FileError(f"{path}: column {label!r}, row {_first(missing)}: the label is missing")
    if labels.dtype.is_float():
        fraction = ~(labels.is_finite() & (labels == labels.round()))
        if fraction.any():
            row = _first(fraction)
            raise FileError(
                f"{path}: column {label!r}, row {row}: a label is an integer or a string, "
                f"got {labels[row - 1]}"
            )
        labels = labels.cast(pl.Int64)
    elif not (labels.dtype.is_integer() or labels.dtype in (pl.String, pl.Boolean)):
        raise FileError(f"{path}: column {label!r}: labels are integers or strings, got {labels.dtype}")
    classes = labels.unique().sort().to_list()
    index = {name: i for i, name in enumerate(classes)}
    y = np.array([index[name] for name in labels.to_list()], dtype=np.int64)
    return _numbers(path, frame, features), y, classes


def read_lines(path: PathLike) -> list[str]:
    """Lines of a text file, one object a line.

    Parameters
    ----------
    path : path-like
        UTF-8 text. Blank lines at the end are dropped, others count as empty objects.

    Returns
    -------
    list of str
        The lines without their ends; at least one.

    Raises
    ------
    FileError
        If the file is absent, empty or no UTF-8.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "words.txt"
    >>> _ = path.write_text("kitten\\nsitting\\n\\n")
    >>> read_lines(path)
    ['kitten', 'sitting']
    """
    path = _existing(path)
    text = _decode(path, path.read_bytes())
    # str.splitlines would also cut at form feeds and Unicode separators, which belong to the objects.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise FileError(f"{path}: holds no lines")
    return lines


def write_table(path: PathLike, frame: pl.DataFrame) -> None:
    """Write a table whole or not at all.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.tsv``, ``.parquet``, ``.json`` (a list of rows; NaN and infinity become null) or ``.npy``
        (numbers only).
    frame : polars.DataFrame
        The table.

    Raises
    ------
    FileError
        If the extension is another, the place cannot be written to, or text is to go into ``.npy``.

    Examples
    --------
    >>> import tempfile
    >>> import polars as pl
    >>> path = Path(tempfile.mkdtemp()) / "edges.csv"
    >>> write_table(path, pl.DataFrame({"i": [0, 1], "j": [1, 2]}))
    >>> path.read_text().split()
    ['i,j', '0,1', '1,2']
    """
    import numpy as np
    import polars.selectors as cs

    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in _SEPARATORS:
        _write_whole(path, lambda stream: frame.write_csv(stream, separator=_SEPARATORS[suffix]))
    elif suffix == ".parquet":
        _write_whole(path, lambda stream: frame.write_parquet(stream))
    elif suffix == ".json":
        finite = frame.with_columns(cs.float().replace([np.nan, np.inf, -np.inf], None))
        _write_whole(path, lambda stream: stream.write(finite.write_json().encode()))
    elif suffix == ".npy":
        for name in frame.columns:
            if not frame[name].dtype.is_numeric():
                raise FileError(f"{path}: column {name!r} holds {frame[name].dtype}; .npy takes numbers only")
        _write_whole(path, lambda stream: np.save(stream, frame.to_numpy(), allow_pickle=False))
    else:
        raise FileError(
            f"{path}: a table is written as .csv, .tsv, .parquet, .json or .npy, "
            f"got {suffix or 'no extension'!r}"
        )


def write_text(path: PathLike, text: str) -> None:
    """Write a text file whole or not at all.

    Parameters
    ----------
    path : path-like
        The file.
    text : str
        Its content, stored as UTF-8.

    Raises
    ------
    FileError
        If the place cannot be written to.
    """
    _write_whole(Path(path), lambda stream: stream.write(text.encode()))


def head(path: PathLike) -> FileHead:
    """What a file holds, from its first bytes.

    Parameters
    ----------
    path : path-like
        Any file; what is neither table nor array is taken for text with one object a line.

    Returns
    -------
    FileHead
        Kind, columns, and which of them hold numbers.

    Raises
    ------
    FileError
        If the file is absent, damaged or empty, or no text.

    Notes
    -----
    Reads at most 64 kB of text or an array's header. Only ``.parquet`` needs polars for it.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "points.csv"
    >>> _ = path.write_text("height,name\\n1.5,ada\\n")
    >>> found = head(path)
    >>> found.kind, found.columns, found.numeric
    ('table', ('height', 'name'), (True, False))
    """
    path = _existing(path)
    suffix = path.suffix.lower()
    if suffix in _SEPARATORS:
        return _head_csv(path, _SEPARATORS[suffix])
    if suffix == ".parquet":
        return _head_parquet(path)
    if suffix in _ARRAYS:
        return _head_arrays(path)
    if not _first_text(path).strip():
        raise FileError(f"{path}: holds no lines")
    return FileHead(path, "lines", (), ())


def _existing(path: PathLike) -> Path:
    path = Path(path)
    if path.is_dir():
        raise FileError(f"{path}: is a folder, a file was expected")
    if not path.exists():
        raise FileError(f"{path}: no such file")
    if not os.access(path, os.R_OK):
        raise FileError(f"{path}: may not be read")
    return path


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _first(mask: pl.Series) -> int:
    """Row of the first true entry, from 1."""
    row = mask.arg_max()
    assert row is not None
    return row + 1


# Text tables


def _first_text(path: Path) -> str:
    with path.open("rb") as stream:
        first = stream.readline() + stream.readline()  # a wide table's names and one row of it, at any length
        content = first + stream.read(max(0, _HEAD_BYTES - len(first)))
        cut = bool(stream.read(1))
    return _decode(path, content, cut=cut)


def _decode(path: Path, content: bytes, *, cut: bool = False) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A cut may have gone through a character, which takes up to four bytes.
        if cut and error.start > len(content) - 4:
            return content[: error.start].decode("utf-8-sig")
        row = content.count(b"\n", 0, error.start) + 1
        raise FileError(f"{path}: line {row} is not UTF-8 text") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python's own spelling of a number, no table's


def _check_names(path: Path, text: str, separator: str) -> list[str]:
    """Names in the first row; refuses what would be read as something else than the user meant."""
    names = next(iter(_rows(path, text, separator, limit=1)), [])
    if not names:
        raise FileError(f"{path}: holds no columns")
    if all(_is_number(name) for name in names):
        raise FileError(
            f"{path}: the first row holds numbers only; a table starts with a row of column names"
        )
    if len(names) == 1 and separator == "," and any(other in names[0] for other in ";\t"):
        raise FileError(
            f"{path}: columns of a .csv are separated by commas, the first row reads {names[0]!r}"
        )
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise FileError(f"{path}: column {name!r} comes twice")
    return names


def _rows(path: Path, text: str, separator: str, limit: int | None = None) -> list[list[str]]:
    try:
        return list(itertools.islice(csv.reader(io.StringIO(text, newline=""), delimiter=separator), limit))
    except csv.Error as error:
        raise FileError(f"{path}: no readable table ({error})") from None


def _read_csv(path: Path, separator: str) -> pl.DataFrame:
    import polars as pl

    names = _check_names(path, _first_text(path), separator)
    try:
        frame = pl.read_csv(path, separator=separator, infer_schema_length=None)
    except (pl.exceptions.PolarsError, OSError) as error:
        for row, cells in enumerate(_rows(path, _decode(path, path.read_bytes()), separator)):
            if len(cells) > len(names):
                message = f"{path}: row {row} has {len(cells)} cells for {len(names)} columns"
                raise FileError(message) from None
        raise FileError(f"{path}: no readable table ({_first_line(error)})") from None
    return frame


def _head_csv(path: Path, separator: str) -> FileHead:
    text = _first_text(path)
    names = _check_names(path, text, separator)
    if len(text.encode()) < path.stat().st_size:
        text = text.rpartition("\n")[0]
    rows = _rows(path, text, separator, limit=_HEAD_ROWS + 1)[1:]
    cells = [[row[i].strip() if i < len(row) else "" for row in rows] for i in range(len(names))]
    numeric = tuple(any(column) and all(not cell or _is_number(cell) for cell in column) for column in cells)
    return FileHead(path, "table", tuple(names), numeric)


def _head_parquet(path: Path) -> FileHead:
    import polars as pl

    try:
        schema = pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise FileError(f"{path}: no readable Parquet file ({_first_line(error)})") from None
    return FileHead(path, "table", tuple(schema), tuple(dtype.is_numeric() for dtype in schema.values()))


# Arrays


def _load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Arrays of the file by the stem of their columns' names; a ``.npy`` has the one stem ``x``."""
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"x": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise FileError(f"{path}: no readable NumPy file ({_first_line(error)})") from None


def _array_columns(path: Path, stem: str, shape: tuple[int, ...]) -> list[str]:
    where = f"array {stem!r}" if path.suffix.lower() == ".npz" else "the array"
    if len(shape) not in (1, 2):
        raise FileError(f"{path}: {where} must have 1 or 2 dimensions to be a table, got shape {shape}")
    if len(shape) == 1:
        return ["x0"] if path.suffix.lower() == ".npy" else [stem]
    return [f"{stem}{i}" for i in range(shape[1])]


def _frame_of_arrays(path: Path) -> pl.DataFrame:
    import polars as pl

    arrays = _load_arrays(path)
    columns: dict[str, Any] = {}
    lengths: dict[str, int] = {}
    for stem, array in arrays.items():
        names = _array_columns(path, stem, array.shape)
        if array.dtype.kind not in "biufU":
            raise FileError(f"{path}: array {stem!r} holds {array.dtype}; numbers or strings were expected")
        if array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8):
            array = array.astype("float64")
        for name in names:
            if name in columns:
                raise FileError(f"{path}: column {name!r} comes twice")
        columns.update(zip(names, array.reshape(len(array), len(names)).T, strict=True))
        lengths[stem] = len(array)
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{stem!r} has {length}" for stem, length in lengths.items())
        raise FileError(f"{path}: arrays of one table must be equally long, but {listed} rows")
    return pl.DataFrame(
        {name: pl.Series(name, list(c) if c.dtype.kind == "U" else c.copy()) for name, c in columns.items()}
    )


def _head_arrays(path: Path) -> FileHead:
    shapes = {}
    try:
        if path.suffix.lower() == ".npy":
            with path.open("rb") as stream:
                shapes["x"] = _array_header(stream)
        else:
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    with archive.open(name) as member:
                        shapes[name.removesuffix(".npy")] = _array_header(member)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise FileError(f"{path}: no readable NumPy file ({_first_line(error)})") from None
    columns: list[str] = []
    numeric: list[bool] = []
    for stem, (shape, is_number) in shapes.items():
        if len(shape) in (1, 2):
            names = _array_columns(path, stem, shape)
            columns += names
            numeric += [is_number] * len(names)
    ranks = [len(shape) for shape, _ in shapes.values()]
    return FileHead(path, "array", tuple(columns), tuple(numeric), ranks[0] if len(ranks) == 1 else None)


def _array_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool]:
    from numpy.lib import format as npy

    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype.kind in "iuf"


# Columns


def _column(path: Path, frame: pl.DataFrame, name: str) -> pl.Series:
    if name not in frame.columns:
        shown = ", ".join(frame.columns[:12]) + (", ..." if frame.width > 12 else "")
        raise FileError(f"{path}: has no column {name!r}; it has {shown}")
    return frame[name]


def _numbers(path: Path, frame: pl.DataFrame, names: list[str]) -> NDArray[np.float64]:
    import numpy as np
    import polars as pl

    if not names:
        raise FileError(f"{path}: no column was asked for")
    result = np.empty((frame.height, len(names)))
    for i, name in enumerate(names):
        column = _column(path, frame, name)
        if column.is_null().any():
            raise FileError(f"{path}: column {name!r}, row {_first(column.is_null())}: the cell is empty")
        if column.dtype.is_numeric():
            numbers = column.cast(pl.Float64)
        else:
            # Text is read once more, cell by cell, to say which one spoils the column.
            text = column.cast(pl.String, strict=False)
            numbers = text.str.strip_chars().cast(pl.Float64, strict=False)
            if numbers.is_null().any():
                row = _first(numbers.is_null())
                raise FileError(f"{path}: column {name!r}, row {row}: {text[row - 1]!r} is not a number")
        if not numbers.is_finite().all():
            row = _first(~numbers.is_finite())
            raise FileError(f"{path}: column {name!r}, row {row}: {numbers[row - 1]} is not finite")
        result[:, i] = numbers.to_numpy()
    return result


# Writing


def _write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write beside the target and rename, so that no reader and no crash ever sees half a file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            with partial.open("wb") as stream:
                write(stream)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror or error})") from None
