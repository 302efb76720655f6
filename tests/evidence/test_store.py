from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
import threading

import pytest

from theses.evidence import store as store_module
from theses.evidence.codec import encode
from theses.evidence.store import Store, StoreError, UnitKey, UnitRecord, last_verdicts

KEY = UnitKey("method", "standard", 0, "digest")


def unit(key: UnitKey = KEY, status: str = "done") -> UnitRecord:
    return UnitRecord(key, status, "2026-01-01T00:00:00+00:00", {"wall_s": 1.0}, encode({}), "")


def test_round_trip_and_the_newest_wins(tmp_path):
    with Store(tmp_path / "deep" / "results.sqlite") as store:
        store.add_unit(unit(status="error"))
        store.add_unit(unit())
        assert store.latest("method", "standard") == {0: unit()}
        assert store.latest("method", "smoke") == {}
        assert store.methods() == [("method", "standard")]


def test_options_keep_runs_apart(tmp_path):
    limited = UnitKey("method", "paper", 0, "digest", '{"limit": 5}')
    with Store(tmp_path / "results.sqlite") as store:
        store.add_unit(unit(limited))
        assert store.latest("method", "paper") == {}
        assert set(store.latest("method", "paper", limited.options)) == {0}


def test_stages_live_until_the_unit_is_done(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        store.add_stage(KEY, "arm", "1")
        store.add_unit(unit(status="timeout"))
        assert store.stages(KEY) == {"arm": "1"}
        store.add_unit(unit())
        assert store.stages(KEY) == {}


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        broken = UnitRecord(KEY, "done", "now", {"bad": object()}, None)
        with pytest.raises(TypeError):
            store.add_unit(broken)
        assert store.latest("method", "standard") == {}
        store.add_unit(unit())


def test_an_older_store_is_brought_up_to_date(tmp_path, monkeypatch):
    path = tmp_path / "results.sqlite"
    with Store(path) as store:
        store.add_unit(unit())
    monkeypatch.setattr(
        store_module, "MIGRATIONS", (*store_module.MIGRATIONS, "ALTER TABLE units ADD COLUMN host TEXT")
    )
    with Store(path) as store:
        assert store.latest("method", "standard") == {0: unit()}
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        assert "host" in [row[1] for row in connection.execute("PRAGMA table_info(units)")]
    monkeypatch.undo()
    with pytest.raises(StoreError, match="newer version"):
        Store(path)


def test_a_migration_that_fails_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "results.sqlite"
    Store(path).close()
    broken = "ALTER TABLE units ADD COLUMN host TEXT; SELECT nothing FROM nowhere"
    monkeypatch.setattr(store_module, "MIGRATIONS", (*store_module.MIGRATIONS, broken))
    with pytest.raises(StoreError):
        Store(path)
    monkeypatch.undo()
    with Store(path) as store:
        store.add_unit(unit())


def test_something_else_is_refused(tmp_path):
    path = tmp_path / "results.sqlite"
    path.write_text("these are no results, and there are enough of them to fill a page header " * 20)
    with pytest.raises(StoreError, match="not a result store"):
        Store(path)
    assert path.read_text().startswith("these are no results")


def test_many_threads_write_at_once(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:

        def write(first: int) -> None:
            for seed in range(first, first + 25):
                store.add_stage(UnitKey("method", "standard", seed, "digest"), "arm", "1")
                store.add_unit(unit(UnitKey("method", "standard", seed, "digest")))

        threads = [threading.Thread(target=write, args=(100 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.latest("method", "standard")) == 100


def test_two_processes_write_at_once(tmp_path):
    path = tmp_path / "results.sqlite"
    script = textwrap.dedent("""
        import sys
        from theses.evidence.store import Store, UnitKey, UnitRecord
        path, first = sys.argv[1], int(sys.argv[2])
        with Store(path) as store:
            for seed in range(first, first + 40):
                key = UnitKey("method", "standard", seed, "digest")
                store.add_stage(key, "arm", "1")
                store.add_unit(UnitRecord(key, "done", "now", {}, "{}"))
    """)
    children = [
        subprocess.Popen([sys.executable, "-c", script, str(path), str(first)]) for first in (0, 1000, 2000)
    ]
    assert [child.wait(timeout=120) for child in children] == [0, 0, 0]
    with Store(path) as store:
        assert len(store.latest("method", "standard")) == 120
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT COUNT(*) FROM stages").fetchone() == (0,)


def test_last_verdicts(tmp_path):
    path = tmp_path / "results.sqlite"
    assert last_verdicts(path, "method") is None
    assert not path.exists()
    with Store(path) as store:
        store.add_verdicts("method", "standard", "digest", "now", {"C1": "fails"})
        store.add_verdicts("method", "standard", "digest", "now", {"C1": "holds"})
    assert last_verdicts(path, "method") == {"C1": "holds"}
    assert last_verdicts(path, "other") is None


def test_reading_a_store_loads_no_numerical_library():
    code = (
        "import sys, theses.evidence.store;"
        "print([name for name in ('numpy', 'polars', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
