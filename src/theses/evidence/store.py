"""The result store: one SQLite file, one transaction a finished unit or stage."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["Store", "StoreError", "UnitKey", "UnitRecord", "default_store_path", "last_verdicts"]

MIGRATIONS: Final = (
    """
    CREATE TABLE units (
        id INTEGER PRIMARY KEY,
        method TEXT NOT NULL, preset TEXT NOT NULL, seed INTEGER NOT NULL, digest TEXT NOT NULL,
        options TEXT NOT NULL, status TEXT NOT NULL, started_at TEXT NOT NULL,
        record TEXT NOT NULL, measurement TEXT, error TEXT NOT NULL
    ) STRICT;
    CREATE INDEX units_by_method ON units (method, preset, seed, id);
    CREATE TABLE stages (
        method TEXT NOT NULL, preset TEXT NOT NULL, seed INTEGER NOT NULL, digest TEXT NOT NULL,
        options TEXT NOT NULL, name TEXT NOT NULL, payload TEXT NOT NULL,
        PRIMARY KEY (method, preset, seed, digest, options, name)
    ) STRICT;
    CREATE TABLE verdicts (
        method TEXT NOT NULL, preset TEXT NOT NULL, digest TEXT NOT NULL, judged_at TEXT NOT NULL,
        verdicts TEXT NOT NULL,
        PRIMARY KEY (method, preset)
    ) STRICT;
    CREATE TABLE benchmarks (
        id INTEGER PRIMARY KEY,
        method TEXT NOT NULL, digest TEXT NOT NULL, started_at TEXT NOT NULL,
        record TEXT NOT NULL, comparisons TEXT NOT NULL
    ) STRICT;
    """,
)

_WAIT_S = 60.0


class StoreError(ValueError):
    """The store cannot be used; the message names the file and what to do."""


@dataclass(frozen=True)
class UnitKey:
    """What makes two units the same: method, preset, seed, digest of the code, and options."""

    method: str
    preset: str
    seed: int
    digest: str
    options: str = "{}"

    def as_row(self) -> tuple[str, str, int, str, str]:
        """Values of the five key columns."""
        return (self.method, self.preset, self.seed, self.digest, self.options)


@dataclass(frozen=True)
class UnitRecord:
    """A finished unit.

    ``status`` is ``done``, ``error`` or ``timeout``; ``record`` holds where and how it ran; ``measurement``
    is encoded as :func:`theses.evidence.codec.encode` does, None unless it is done.
    """

    key: UnitKey
    status: str
    started_at: str
    record: Mapping[str, Any]
    measurement: str | None = None
    error: str = ""


def default_store_path() -> Path:
    """The store's file: ``THESES_STORE``, else ``.theses/results.sqlite`` in the working folder."""
    return Path(os.environ.get("THESES_STORE") or Path(".theses") / "results.sqlite")


class Store:
    """Results in one SQLite file; safe for several threads and several processes at once.

    Parameters
    ----------
    path : path-like
        The file; it and its folder are made if absent, and brought to the current schema if older.

    Raises
    ------
    StoreError
        If the file is no store, or was written by a newer version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        # Transactions are begun by hand: sqlite3's implicit ones start too late to be safe with two writers.
        self._connection = sqlite3.connect(
            self.path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
        )
        try:
            self._migrate()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise StoreError(
                f"{self.path}: not a result store ({error}); move it away or name another"
            ) from None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _migrate(self) -> None:
        with self._transaction() as cursor:
            (version,) = cursor.execute("PRAGMA user_version").fetchone()
            if version > len(MIGRATIONS):
                raise StoreError(
                    f"{self.path}: written by a newer version of theses"
                    f" (schema {version}, known up to {len(MIGRATIONS)})"
                )
            for script in MIGRATIONS[version:]:
                for statement in script.split(";"):
                    if statement.strip():
                        cursor.execute(statement)
            cursor.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        with self._lock:
            cursor = self._connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")

    def add_unit(self, unit: UnitRecord) -> None:
        """Store a finished unit; the stages of a done one are no longer needed and go."""
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT INTO units (method, preset, seed, digest, options, status, started_at, record,"
                " measurement, error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *unit.key.as_row(),
                    unit.status,
                    unit.started_at,
                    json.dumps(dict(unit.record), sort_keys=True),
                    unit.measurement,
                    unit.error,
                ),
            )
            if unit.status == "done":
                self._delete_stages(cursor, unit.key)

    def add_stage(self, key: UnitKey, name: str, payload: str) -> None:
        """Store the encoded result of a finished arm."""
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT OR REPLACE INTO stages VALUES (?, ?, ?, ?, ?, ?, ?)", (*key.as_row(), name, payload)
            )

    def stages(self, key: UnitKey) -> dict[str, str]:
        """Encoded results of the arms that an interrupted unit had finished."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT name, payload FROM stages"
                " WHERE (method, preset, seed, digest, options) = (?, ?, ?, ?, ?)",
                key.as_row(),
            ).fetchall()
        return dict(rows)

    def forget_stages(self, key: UnitKey) -> None:
        """Drop what an interrupted unit had finished."""
        with self._transaction() as cursor:
            self._delete_stages(cursor, key)

    @staticmethod
    def _delete_stages(cursor: sqlite3.Cursor, key: UnitKey) -> None:
        cursor.execute(
            "DELETE FROM stages WHERE (method, preset, seed, digest, options) = (?, ?, ?, ?, ?)", key.as_row()
        )

    def latest(self, method: str, preset: str, options: str = "{}") -> dict[int, UnitRecord]:
        """Newest unit of each seed.

        Parameters
        ----------
        method, preset : str
            Which method at which preset.
        options : str, default="{}"
            Options of the run, as in the key; a limited run is not taken for a whole one.

        Returns
        -------
        dict of int to UnitRecord
            By seed.
        """
        with self._lock:
            rows = self._connection.execute(
                "SELECT method, preset, seed, digest, options, status, started_at, record, measurement, error"
                " FROM units WHERE id IN (SELECT MAX(id) FROM units"
                " WHERE method = ? AND preset = ? AND options = ? GROUP BY seed) ORDER BY seed",
                (method, preset, options),
            ).fetchall()
        return {
            row[2]: UnitRecord(UnitKey(*row[:5]), row[5], row[6], json.loads(row[7]), row[8], row[9])
            for row in rows
        }

    def methods(self) -> list[tuple[str, str]]:
        """Pairs of method and preset with at least one unit."""
        with self._lock:
            return self._connection.execute(
                "SELECT DISTINCT method, preset FROM units ORDER BY method, preset"
            ).fetchall()

    def add_verdicts(
        self, method: str, preset: str, digest: str, judged_at: str, verdicts: Mapping[str, str]
    ) -> None:
        """Remember the last verdict of each claim, for commands that must not load numerical libraries."""
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?, ?)",
                (method, preset, digest, judged_at, json.dumps(dict(verdicts))),
            )

    def add_benchmark(
        self,
        method: str,
        digest: str,
        started_at: str,
        record: Mapping[str, Any],
        comparisons: Sequence[Mapping[str, Any]],
    ) -> None:
        """Store the rows of one benchmark run."""
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT INTO benchmarks (method, digest, started_at, record, comparisons)"
                " VALUES (?, ?, ?, ?, ?)",
                (
                    method,
                    digest,
                    started_at,
                    json.dumps(dict(record)),
                    json.dumps([dict(c) for c in comparisons]),
                ),
            )

    def latest_benchmark(self, method: str) -> tuple[str, dict[str, Any], list[dict[str, Any]]] | None:
        """Newest benchmark of a method: digest, record and rows; None if there is none."""
        with self._lock:
            row = self._connection.execute(
                "SELECT digest, record, comparisons FROM benchmarks WHERE method = ?"
                " ORDER BY id DESC LIMIT 1",
                (method,),
            ).fetchone()
        return None if row is None else (row[0], json.loads(row[1]), json.loads(row[2]))


def last_verdicts(path: str | os.PathLike[str], method: str) -> dict[str, str] | None:
    """Last verdict of each claim of a method in a store, at the standard preset.

    Parameters
    ----------
    path : path-like
        The store's file.
    method : str
        Slug.

    Returns
    -------
    dict of str to str or None
        Verdict by claim; None if the file is absent or holds none.

    Raises
    ------
    StoreError
        If the file is no store.
    """
    if not Path(path).is_file():
        return None
    with Store(path) as store, store._lock:
        row = store._connection.execute(
            "SELECT verdicts FROM verdicts WHERE method = ? AND preset = 'standard'", (method,)
        ).fetchone()
    return None if row is None else json.loads(row[0])
