from __future__ import annotations

import os
import tempfile
import textwrap
from pathlib import Path

import pytest

from theses.evidence.runner import Unit
from theses.evidence.store import UnitKey

STUDIES = {
    "study_good": """
        from theses.evidence import Measurement

        def run(ctx):
            value = ctx.stage("draw", lambda: float(ctx.rng("draw").random()))
            ctx.progress(0.5, "half way")
            return Measurement({"value": value, "seed": float(ctx.seed)})
    """,
    "study_noisy": """
        import os, sys
        from theses.evidence import Measurement

        def run(ctx):
            print('{"kind": "done"}')
            os.write(1, b"not a message\\n")
            return Measurement({"value": 1.0, "seed": 0.0})
    """,
    "study_failing": """
        def run(ctx):
            raise ArithmeticError("the residual is negative")
    """,
    "study_crashing": """
        import os, signal

        def run(ctx):
            os.write(2, b"last words")
            os.kill(os.getpid(), signal.SIGSEGV)
    """,
    "study_forgetful": """
        from theses.evidence import Measurement

        def run(ctx):
            return Measurement({"value": 1.0})
    """,
    "study_slow": """
        import subprocess, sys, time
        from theses.evidence import Measurement

        def run(ctx):
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "grandchild"])
            ctx.progress(0.1, "asleep")
            time.sleep(600)
            return Measurement({"value": 1.0, "seed": 0.0})
    """,
    "study_stages": """
        import os, pathlib, time
        from theses.evidence import Measurement

        def run(ctx):
            log = pathlib.Path(os.environ["STAGE_LOG"])

            def arm(i):
                with log.open("a") as stream:
                    stream.write(f"{ctx.seed}/{i}\\n")
                time.sleep(float(os.environ.get("STAGE_S", "0.05")))
                return float(ctx.rng(f"arm {i}").random())

            total = sum(ctx.stage(f"arm {i}", lambda i=i: arm(i)) for i in range(20))
            return Measurement({"value": total, "seed": float(ctx.seed)})
    """,
}


@pytest.fixture
def studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "studies"
    folder.mkdir()
    for name, source in STUDIES.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(source))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("STAGE_LOG", str(tmp_path / "stages.log"))
    # A lock of the test's own: a timed run elsewhere on the machine must not hold it up.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return folder


def make_unit(study: str, seed: int = 0, *, timed: bool = False, preset: str = "standard") -> Unit:
    key = UnitKey(study.replace("_", "-"), preset, seed, digest="d" * 64)
    return Unit(key, study, ("value", "seed"), timed)
