"""Does the example run as a reader would run it?"""

from __future__ import annotations

import resource
from pathlib import Path

from tests.conformance.subject import Subject, tail

EXAMPLE_S = 10.0


def check_example(subject: Subject, cwd: Path) -> list[str]:
    """The example ends well, prints something, and is quick."""
    path = subject.path(subject.example_name)
    if not path.is_file():
        return [f"{subject.relative(subject.example_name)} is missing"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subject.python(str(path), cwd=cwd, trees=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    if done.returncode:
        return [f"the example ends with exit status {done.returncode}:\n{tail(done.stderr)}"]
    complaints = []
    if not done.stdout.strip():
        complaints.append("the example prints nothing")
    if cpu_s > EXAMPLE_S:
        complaints.append(f"the example may take {EXAMPLE_S:g} s, took {cpu_s:.1f} s of CPU time")
    return complaints
