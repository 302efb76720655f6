"""``theses doctor``: is all there that a method needs, and is it whole?"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from theses.catalogue import Card
    from theses.cli.output import Line
    from theses.resources import Resource

__all__ = ["Finding", "Requirement", "doctor", "requirements"]

_REQUIREMENT = re.compile(
    r"""(?P<name>[A-Za-z0-9][\w.-]*)\s*
        (?:\[(?P<extras>[^\]]*)\])?\s*
        \(?(?P<versions>[^;()]*)\)?\s*
        (?:;\s*(?P<marker>.*))?$""",
    re.VERBOSE,
)
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_BOUND = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)")

# One process imports everything in turn and reports each before it goes on, so that a crash names its cause.
_IMPORTER = """
import importlib, json, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        outcome = ""
    except BaseException as error:
        outcome = f"{type(error).__name__}: {error}"
    print("\\n" + json.dumps([name, outcome]), flush=True)
"""


@dataclass(frozen=True)
class Requirement:
    """What a distribution asks for.

    Parameters
    ----------
    name : str
        Distribution, spelt as PEP 503 wants it.
    extras : tuple of str
        Extras of that distribution.
    bounds : tuple of (str, str)
        Such as ``((">=", "3.10"),)``.
    """

    name: str
    extras: tuple[str, ...]
    bounds: tuple[tuple[str, str], ...]

    def admits(self, version: str) -> bool:
        """Whether a version meets the bounds, by its numbers alone."""
        return all(_compare(version, sign, bound) for sign, bound in self.bounds)


@dataclass(frozen=True)
class Finding:
    """State of one thing that is needed.

    Parameters
    ----------
    name : str
        Package.
    needed_for : str
        ``core``, ``extra graphs``, ``carrier`` and the like.
    state : {"installed", "missing", "old", "broken"}
        What was found.
    version : str
        Version found, if any.
    detail : str
        What is wrong.
    install : str
        The line that mends it.
    """

    name: str
    needed_for: str
    state: Literal["installed", "missing", "old", "broken"]
    version: str = ""
    detail: str = ""
    install: str = ""


def doctor(
    method: Annotated[
        str | None, typer.Argument(help="Slug, name, alias or arXiv identifier; without it, all methods.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that all a method needs is installed and whole; exit status 1 if something is not.

    Imports each package in a process of its own and compares files with the SHA-256 they were pinned at.
    """
    from theses.catalogue import cards, lookup
    from theses.cli.output import emit, print_lines

    chosen = cards() if method is None else (lookup(method),)
    machine = _machine()
    findings = _packages(chosen) + _carriers(chosen)
    whole = all(finding.state == "installed" for finding in findings)
    if as_json:
        answer = {
            "machine": machine,
            "methods": [card.slug for card in chosen],
            "ok": whole,
            "findings": [asdict(finding) for finding in findings],
        }
        emit(answer, as_json=True, text="")
    else:
        print_lines(_page(machine, chosen, findings, whole))
    raise typer.Exit(0 if whole else 1)


def requirements(distribution: str, extra: str = "") -> list[Requirement]:
    """What an installed distribution asks for.

    Parameters
    ----------
    distribution : str
        Its name.
    extra : str, default=""
        One of its extras, alone; empty for what it always asks for.

    Returns
    -------
    list of Requirement
        By the distribution's metadata. An extra that names other extras of the same distribution has theirs.

    Raises
    ------
    ValueError
        If the distribution has no such extra.
    """
    metadata = importlib.metadata.metadata(distribution)
    if extra and _normal(extra) not in map(_normal, metadata.get_all("Provides-Extra") or ()):
        raise ValueError(f"{distribution} has no extra {extra!r}")
    found: dict[str, Requirement] = {}
    for line in importlib.metadata.requires(distribution) or ():
        match = _REQUIREMENT.match(line)
        if match is None:
            continue
        extras = {_normal(name) for name in _EXTRA.findall(match["marker"] or "")}
        if extras != ({_normal(extra)} if extra else set()):
            continue
        name = _normal(match["name"])
        asked = tuple(part.strip() for part in (match["extras"] or "").split(",") if part.strip())
        if name == _normal(distribution):
            for other in asked:
                found |= {requirement.name: requirement for requirement in requirements(distribution, other)}
        else:
            found[name] = Requirement(name, asked, tuple(_BOUND.findall(match["versions"])))
    return list(found.values())


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _compare(version: str, sign: str, bound: str) -> bool:
    # Pre-release and local parts ("2.6.0+cpu") do not count: this is a hint for people, not a resolver.
    ours = [int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", version)[0])]
    theirs = [int(part) for part in bound.split(".")]
    length = max(len(ours), len(theirs))
    a, b = (part + [0] * (length - len(part)) for part in (ours, theirs))
    return {">=": a >= b, "<=": a <= b, "==": a == b, "!=": a != b, ">": a > b, "<": a < b}[sign]


def _machine() -> dict[str, Any]:
    from theses import __version__
    from theses.evidence.machine import THREAD_VARIABLES

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = None
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    return {
        "theses": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "cores_usable": usable,
        "memory_gib": memory,
        "threads": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
    }


def _packages(chosen: Sequence[Card]) -> list[Finding]:
    """State of the core and of the extras of some methods."""
    wanted: dict[str, tuple[Requirement, str, str]] = {}
    for requirement in requirements("theses"):
        wanted[requirement.name] = (requirement, "core", "pip install theses")
    for purpose in ("extras", "study_extras"):
        for extra in dict.fromkeys(extra for card in chosen for extra in getattr(card, purpose)):
            label = f"extra {extra}" + (" (studies)" if purpose == "study_extras" else "")
            for requirement in requirements("theses", extra):
                line = f'pip install "theses[{extra}]"'
                wanted.setdefault(requirement.name, (requirement, label, line))
    versions = {name: _version(name) for name in wanted}
    modules = {name: _module(name) for name, version in versions.items() if version is not None}
    errors = _import_errors(modules.values())
    findings = []
    for name, (requirement, label, line) in wanted.items():
        version = versions[name]
        if version is None:
            findings.append(Finding(name, label, "missing", install=line))
        elif errors[modules[name]]:
            again = f"pip install --force-reinstall {name}"
            findings.append(Finding(name, label, "broken", version, errors[modules[name]], again))
        elif not requirement.admits(version):
            asked = ",".join(sign + bound for sign, bound in requirement.bounds)
            findings.append(Finding(name, label, "old", version, f"{asked} is asked for", line))
        else:
            findings.append(Finding(name, label, "installed", version))
    return findings


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _module(name: str) -> str:
    """Module that a distribution is imported by: the one of its name, else the first public one."""
    found = []
    for file in importlib.metadata.files(name) or ():
        path = PurePosixPath(file)
        if len(path.parts) == 2 and path.name.startswith("__init__."):
            found.append(path.parts[0])
        elif len(path.parts) == 1 and path.suffix in (".py", ".so", ".pyd"):
            found.append(path.name.split(".")[0])
    for module in found:
        if _normal(module) == _normal(name):
            return module
    public = [m for m in found if not m.startswith("_") and m not in ("test", "tests", "docs", "examples")]
    return public[0] if public else _normal(name).replace("-", "_")


def _import_errors(modules: Iterable[str]) -> dict[str, str]:
    """What importing each module says, empty if it works."""
    left = list(dict.fromkeys(modules))
    outcomes: dict[str, str] = {}
    while left:
        child = subprocess.run(
            [sys.executable, "-c", _IMPORTER, *left], capture_output=True, text=True, check=False
        )
        for line in child.stdout.splitlines():
            if line.startswith("["):
                name, outcome = json.loads(line)
                outcomes[name] = outcome.splitlines()[0] if outcome else ""
        unfinished = [name for name in left if name not in outcomes]
        if unfinished:
            outcomes[unfinished[0]] = f"the import ended the process with status {child.returncode}"
        left = unfinished[1:]
    return outcomes


def _carriers(chosen: Sequence[Card]) -> list[Finding]:
    """State of the packages that carry files for some methods."""
    from theses.resources import CorruptResourceError, ResourceNotInstalled, carriers, find, install_line

    names = list(dict.fromkeys(carrier for card in chosen for carrier in card.carriers))
    resources = _resources() if names else []
    findings = []
    for name in names:
        if name not in carriers():
            findings.append(Finding(name, "carrier", "broken", detail="carriers.txt does not pin it"))
            continue
        pin = carriers()[name]
        line = install_line(name)
        version = _version(name)
        if version is None:
            findings.append(Finding(name, "carrier", "missing", install=line))
            continue
        known = [resource for resource in resources if _normal(resource.package) == _normal(name)]
        trouble = "" if known or version == pin else f"{pin} is pinned"
        for resource in known:
            try:
                find(resource)
            except (CorruptResourceError, ResourceNotInstalled) as error:
                trouble = str(error)
                break
        if trouble:
            findings.append(Finding(name, "carrier", "broken", version, trouble, f"{line} --force-reinstall"))
        else:
            checked = f"{len(known)} file(s) checked" if known else ""
            findings.append(Finding(name, "carrier", "installed", version, checked))
    return findings


def _resources() -> list[Resource]:
    """Every pinned file that a loader names."""
    import pkgutil

    import theses.datasets
    from theses.resources import Resource

    found: dict[Resource, None] = {}
    for info in pkgutil.walk_packages(theses.datasets.__path__, "theses.datasets."):
        module = importlib.import_module(info.name)
        for value in vars(module).values():
            for entry in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(entry, Resource):
                    found[entry] = None
    return list(found)


def _page(
    machine: dict[str, Any], chosen: Sequence[Card], findings: Sequence[Finding], whole: bool
) -> list[Line]:
    threads = ", ".join(f"{name}={value}" for name, value in machine["threads"].items())
    lines: list[Line] = [
        f"theses {machine['theses']}, Python {machine['python']} ({machine['executable']})",
        machine["platform"],
        f"{machine['cores']} cores, {machine['cores_usable']} usable; {machine['memory_gib']} GiB of memory",
        f"threads: {threads or 'no variable set, libraries take all cores'}",
        "",
    ]
    width = max(len(finding.name) for finding in findings)
    span = max(len(finding.needed_for) for finding in findings)
    for finding in findings:
        good = finding.state == "installed"
        detail = f"  {finding.detail}" if finding.detail else ""
        lines.append(
            [
                (f"{finding.name:<{width}}  {finding.needed_for:<{span}}  ", ""),
                (finding.state, "green" if good else "red"),
                (f" {finding.version}".rstrip() + detail, ""),
            ]
        )
        if finding.install:
            lines.append(f"    {finding.install}")
    what = chosen[0].slug if len(chosen) == 1 else f"all {len(chosen)} methods"
    bad = sum(finding.state != "installed" for finding in findings)
    lines += [
        "",
        f"All is there for {what}." if whole else f"{bad} of {len(findings)} are not as {what} needs.",
    ]
    return lines
