from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tests.evidence.conftest import make_unit
from theses.evidence.machine import CpuMeter, machine_lock
from theses.evidence.runner import Listener, measurements, run_units
from theses.evidence.store import Store, UnitRecord


@pytest.fixture
def store(tmp_path, studies):
    with Store(tmp_path / "results.sqlite") as opened:
        yield opened


class Recorder(Listener):
    def __init__(self) -> None:
        self.events: list[str] = []

    def progress(self, unit, fraction, message):
        self.events.append(f"{message} {fraction}")

    def finished(self, unit, record, *, reused):
        self.events.append("reused" if reused else record.status)


def value(record: UnitRecord) -> float:
    (measurement,) = measurements([record])
    assert measurement is not None
    return float(measurement.metrics["value"][0])


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def sleepers() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().endswith(b"\0grandchild\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return [pid for pid in found if alive(pid)]


def test_a_unit_is_run_recorded_and_reported(store):
    listener = Recorder()
    (record,) = run_units([make_unit("study_good", seed=3)], store, listener=listener)
    assert record.status == "done"
    assert listener.events == ["half way 0.5", "done"]
    (measurement,) = measurements([record])
    assert measurement is not None
    assert measurement.metrics["seed"] == (3.0,)
    assert 10 < record.record["peak_mb"] < 2000
    assert record.record["wall_s"] > 0
    assert record.record["environment"]["libraries"]["numpy"]
    assert store.latest("study-good", "standard")[3].record == record.record


def test_what_a_study_prints_is_no_message(store):
    (record,) = run_units([make_unit("study_noisy")], store)
    assert record.status == "done"
    assert value(record) == 1.0


def test_a_failing_unit_is_stored_and_stops_no_other(store):
    names = ["study_failing", "study_crashing", "study_forgetful", "study_missing", "study_good"]
    records = run_units([make_unit(name) for name in names], store)
    assert [record.status for record in records] == ["error"] * 4 + ["done"]
    assert "ArithmeticError: the residual is negative" in records[0].error
    assert "signal 11" in records[1].error
    assert "last words" in records[1].error
    assert records[2].error == "the study did not deliver seed"
    assert "No module named 'study_missing'" in records[3].error
    assert store.latest("study-failing", "standard")[0].error == records[0].error


def test_a_unit_that_takes_too_long_is_ended_with_all_that_it_started(store):
    start = time.monotonic()
    (record,) = run_units([make_unit("study_slow")], store, timeout=3)
    assert record.status == "timeout"
    assert "ended after 3 s" in record.error
    assert time.monotonic() - start < 30
    assert sleepers() == []


def test_resume_takes_only_what_is_the_same(store):
    unit = make_unit("study_good")
    run_units([unit], store)
    listener = Recorder()
    run_units([unit], store, resume=True, listener=listener)
    assert listener.events == ["reused"]
    changed = make_unit("study_good")
    object.__setattr__(changed.key, "digest", "e" * 64)
    listener = Recorder()
    run_units([changed], store, resume=True, listener=listener)
    assert listener.events[-1] == "done"
    listener = Recorder()
    run_units([changed], store, resume=False, listener=listener)
    assert listener.events[-1] == "done"


def test_a_failed_unit_is_run_again(store):
    unit = make_unit("study_failing")
    run_units([unit], store)
    listener = Recorder()
    run_units([unit], store, resume=True, listener=listener)
    assert listener.events == ["error"]


def test_several_units_at_a_time_give_what_one_at_a_time_gives(store):
    units = [make_unit("study_good", seed) for seed in range(4)]
    alone = [value(record) for record in run_units(units, store)]
    together = [value(record) for record in run_units(units, store, jobs=3)]
    assert together == alone
    assert len(set(alone)) == 4


def test_a_timed_unit_waits_for_the_machine(store, studies):
    unit = make_unit("study_good", timed=True)
    done = threading.Event()

    def run() -> None:
        run_units([unit], store)
        done.set()

    with machine_lock(exclusive=False):
        thread = threading.Thread(target=run)
        thread.start()
        assert not done.wait(1.5)
    assert done.wait(60)
    thread.join()
    assert store.latest("study-good", "standard")[0].record["foreign_cores"] is not None


def test_the_meter_counts_others_but_not_ourselves():
    meter = CpuMeter()
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        pass
    ourselves = meter.foreign_cores()
    meter = CpuMeter()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    time.sleep(1.5)
    others = meter.foreign_cores()
    busy.kill()
    busy.wait()
    assert ourselves is not None and others is not None
    # On a loaded machine both rise alike; the busy loop is what tells them apart.
    assert others > 0.4
    assert others > ourselves + 0.2 or ourselves > 0.8


PARENT = textwrap.dedent("""
    import sys
    from tests.evidence.conftest import make_unit
    from theses.evidence.runner import run_units
    from theses.evidence.store import Store

    study, path, jobs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    units = [make_unit(study, seed) for seed in range(2)]
    with Store(path) as store:
        print("running", flush=True)
        for record in run_units(units, store, resume=True, jobs=jobs):
            print(record.status, flush=True)
""")


def parent(tmp_path: Path, study: str, jobs: int = 1) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PARENT, study, str(tmp_path / "results.sqlite"), str(jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(Path.cwd())])},
    )


def wait_until(condition, timeout: float = 30.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_when_the_parent_dies_its_children_die(tmp_path, studies, how):
    process = parent(tmp_path, "study_slow")
    wait_until(sleepers)
    process.send_signal(how)
    process.communicate(timeout=30)
    wait_until(lambda: not sleepers())
    with Store(tmp_path / "results.sqlite") as store:
        assert store.latest("study-slow", "standard") == {}


def test_killed_at_random_moments_it_loses_only_the_arm_in_flight(tmp_path, studies):
    chance = random.Random(7)
    kills = 0
    for _ in range(60):
        process = parent(tmp_path, "study_stages", jobs=2)
        try:
            output, errors = process.communicate(timeout=chance.uniform(0.6, 2.2))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            continue
        assert process.returncode == 0, errors
        assert output.split()[1:] == ["done", "done"]
        break
    else:
        pytest.fail("it never came to an end")
    assert kills >= 1
    arms = Path(os.environ["STAGE_LOG"]).read_text().split()
    assert set(arms) == {f"{seed}/{i}" for seed in range(2) for i in range(20)}
    # Each kill can cost each of the two units the arm it was in, and no other is computed again.
    assert len(arms) <= 40 + 2 * kills
    with Store(tmp_path / "results.sqlite") as store:
        interrupted = [value(record) for record in store.latest("study-stages", "standard").values()]
    with Store(tmp_path / "whole.sqlite") as store:
        units = [make_unit("study_stages", seed) for seed in range(2)]
        whole = [value(record) for record in run_units(units, store, jobs=2)]
    assert interrupted == whole


def test_two_runs_on_one_store(tmp_path, studies):
    processes = [parent(tmp_path, "study_stages") for _ in range(2)]
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert output.split()[1:] == ["done", "done"]
    with Store(tmp_path / "results.sqlite") as store:
        assert set(store.latest("study-stages", "standard")) == {0, 1}
