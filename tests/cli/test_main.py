from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import theses
from tests.catalogue.generated import catalogue, write_large, write_small
from tests.cli.programs import assert_starts_fast, run
from theses.catalogue import UnknownMethodError
from theses.cli import _COMMANDS, app
from theses.cli.errors import friendly
from theses.cli.output import Line, emit, fail, plain, print_lines, print_table
from theses.datasets.files import FileError

runner = CliRunner()

APPLY = '''
"""Made for a test."""
from pathlib import Path
from typing import Annotated

import typer

from theses.datasets.files import read_table


def apply(file: Annotated[Path, typer.Argument(help="A table.")], twice: bool = False) -> None:
    """Count the rows of a table."""
    typer.echo(read_table(file).height * (1 + twice))


def suggest(files):
    return f"theses apply table-distance {files[0].path}" if len(files) == 1 else None
'''


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The small catalogue; one method can be applied, by a module that notes when it is imported."""
    (tmp_path / "counting_apply.py").write_text(APPLY)
    monkeypatch.syspath_prepend(str(tmp_path))
    root = write_small(tmp_path / "cards", apply={"table-distance": "counting_apply"})
    with catalogue(root):
        yield root
    sys.modules.pop("counting_apply", None)


def test_version():
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"theses {theses.__version__}\n")


def test_as_a_module():
    result = subprocess.run(
        [sys.executable, "-m", "theses", "--version"], capture_output=True, text=True, check=True
    )
    assert result.stdout == f"theses {theses.__version__}\n"


def test_help_lists_all_commands_in_full_lines():
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    for name, (_, help_line) in _COMMANDS.items():
        assert f"  {name}" in result.stdout
        assert help_line in result.stdout


def test_no_command_shows_the_help():
    result = runner.invoke(app, [])
    assert result.exit_code == 2
    assert "Commands:" in result.output


def test_an_unknown_command_gets_the_nearest():
    result = runner.invoke(app, ["lst"])
    assert result.exit_code == 2
    assert "Did you mean 'list'?" in result.stderr


@pytest.mark.parametrize("arguments", [["list", "--nope"], ["show"], ["show", "a", "b"]])
def test_misuse_ends_with_status_2(arguments: list[str]):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error" in result.stderr


@pytest.mark.parametrize("command", ["show", "apply", "doctor"])
def test_an_unknown_method_gets_the_nearest_and_status_2(small: Path, command: str):
    result = runner.invoke(app, [command, "tabel-distance"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: no method is called 'tabel-distance'; nearest: table-distance")


def test_apply_help_lists_methods_without_importing_them(small: Path):
    result = runner.invoke(app, ["apply", "--help"])
    assert result.exit_code == 0
    assert "table-distance" in result.stdout
    assert "Distance between two labelled tables" in result.stdout
    assert "metric-tree" not in result.stdout
    assert "counting_apply" not in sys.modules


@pytest.mark.parametrize("name", ["table-distance", "s-TD", "2501.00000", "sliced table distance"])
def test_apply_takes_every_name_of_a_method(small: Path, tmp_path: Path, name: str):
    table = tmp_path / "t.csv"
    table.write_text("a\n1\n2\n")
    result = runner.invoke(app, ["apply", name, str(table), "--twice"])
    assert (result.exit_code, result.stdout) == (0, "4\n")


def test_apply_shows_the_help_of_a_method(small: Path):
    result = runner.invoke(app, ["apply", "table-distance", "--help"])
    assert result.exit_code == 0
    assert "Count the rows of a table." in result.stdout
    assert "apply table-distance [OPTIONS]" in result.stdout
    assert "A table." in result.stdout


def test_apply_names_file_and_column_of_a_user_error(small: Path, tmp_path: Path):
    result = runner.invoke(app, ["apply", "table-distance", str(tmp_path / "absent.csv")])
    assert result.exit_code == 2
    assert result.stderr == f"error: {tmp_path / 'absent.csv'}: no such file\n"


def test_apply_of_a_method_without_it_gives_the_import(small: Path):
    result = runner.invoke(app, ["apply", "metric-tree", "x.txt"])
    assert result.exit_code == 2
    assert "from theses.graphs.metric_tree import run" in result.stderr


def test_apply_alone_shows_its_help(small: Path):
    result = runner.invoke(app, ["apply"])
    assert "table-distance" in result.output


def test_apply_with_an_unknown_option(small: Path):
    result = runner.invoke(app, ["apply", "--nope"])
    assert result.exit_code == 2
    assert "No such option" in result.stderr


def test_a_broken_card_is_one_line(small: Path):
    (small / "data" / "row_coreset.toml").write_text("name = 3")
    result = runner.invoke(app, ["list"])
    assert result.exit_code == 2
    assert "row_coreset.toml: summary: missing" in result.stderr or "name: expected str" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def single(function) -> typer.Typer:
    application = typer.Typer(pretty_exceptions_enable=False)
    application.command()(friendly(function))
    return application


@pytest.mark.parametrize(
    "error",
    [
        ValueError("alpha must be less than 1"),
        FileError("t.csv: column 'a', row 3: the cell is empty"),
        ImportError('rapidfuzz is missing: pip install "theses[graphs]"'),
        UnknownMethodError("no method is called 'x'"),
    ],
)
def test_user_errors_are_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch):
    def command() -> None:
        raise error

    result = runner.invoke(single(command))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: {error}\n"
    monkeypatch.setenv("THESES_TRACEBACK", "1")
    assert runner.invoke(single(command)).exception is error


def test_errors_of_the_operating_system_name_the_file(tmp_path: Path):
    def command() -> None:
        (tmp_path / "absent").read_text()

    result = runner.invoke(single(command))
    assert result.exit_code == 2
    assert result.stderr == f"error: {tmp_path / 'absent'}: No such file or directory\n"


@pytest.mark.parametrize("error", [KeyError("x"), ZeroDivisionError("x"), RuntimeError("x"), TypeError("x")])
def test_errors_of_ours_keep_their_traceback(error: Exception):
    def command() -> None:
        raise error

    result = runner.invoke(single(command))
    assert result.exception is error
    assert result.exit_code == 1


def test_a_traceback_is_python_s_own():
    code = "from theses.cli._lazy import load; import sys; sys.modules['m'] = type(sys)('m')\n"
    code += "def f():\n    {}['x']\nsys.modules['m'].f = f\nload('f', 'm:f')([])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert "KeyError: 'x'" in result.stderr


def test_interruption_ends_with_status_130():
    def command() -> None:
        raise KeyboardInterrupt

    result = runner.invoke(single(command))
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "interrupted\n")


def test_ctrl_c_ends_a_running_program(tmp_path: Path):
    (tmp_path / "slow.py").write_text(
        "import time\ndef wait() -> None:\n    print('ready', flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", "from theses.cli._lazy import load; load('wait', 'slow:wait')([])"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_closed_pipe_is_no_error(tmp_path: Path):
    root = write_large(tmp_path)
    command = (
        "import theses.catalogue.reader as r, pathlib; "
        f"r._ROOT = pathlib.Path({str(root)!r}); from theses.cli import main; main()"
    )
    shell = f"{sys.executable} -c {command!r} list --json | head -n 1"
    result = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert result.stdout == "[\n"
    assert "Traceback" not in result.stderr


def test_json_is_plain(capsys: pytest.CaptureFixture[str]):
    import numpy as np

    answer: dict[Any, Any] = {
        "x": np.array([1.0, np.nan]),
        "n": np.int64(3),
        "p": Path("a"),
        "t": (True, None),
        4: float("inf"),
    }
    emit(answer, as_json=True, text="never")
    assert plain(answer) == {"x": [1.0, None], "n": 3, "p": "a", "t": [True, None], "4": None}
    assert '"x": [\n    1.0,\n    null\n  ]' in capsys.readouterr().out
    emit(answer, as_json=False, text="as it is [x]")
    assert capsys.readouterr().out == "as it is [x]\n"


def test_failing_says_why_on_standard_error(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(typer.Exit) as caught:
        fail("no")
    assert caught.value.exit_code == 2
    assert capsys.readouterr() == ("", "error: no\n")


class Terminal:
    """Standard output that claims to be a terminal."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.written = ""

    def write(self, text: str) -> int:
        self.written += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colours_and_wrapped_lines(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines: list[Line] = [
        [("  C1  ", "bold"), ("holds", "green"), (" [not a tag]", "")],
        "",
        "    " + "word " * 20,
        [("    ", ""), ("copy " * 20, "green")],
    ]
    for terminal in (True, False):
        stream = Terminal()
        monkeypatch.setattr(stream, "isatty", lambda terminal=terminal: terminal)
        monkeypatch.setattr(sys, "stdout", stream)
        print_lines(lines)
        print_table(("method", "claims"), [("a", "2 hold"), ("longer", "1 fails")])
        written = stream.written.splitlines()
        if terminal:
            assert "\x1b[32mholds\x1b[0m [not a tag]" in stream.written
            wrapped = [line for line in written if line.strip().startswith("word")]
            assert len(wrapped) > 1
            assert all(line.startswith("    word") for line in wrapped)
            assert any(line.count("copy") == 20 for line in written)
            assert "method" in stream.written
        else:
            assert written[:3] == ["  C1  holds [not a tag]", "", "    " + ("word " * 20).rstrip()]
            assert written[-2:] == ["a       2 hold", "longer  1 fails"]
            assert "\x1b" not in stream.written


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_large(tmp_path_factory.mktemp("large"))


@pytest.mark.parametrize(
    ("arguments", "limit_s"),
    [
        (["--help"], 0.5),
        (["list"], 0.5),
        (["list", "--json", "--have", "table"], 0.5),
        (["find", "distance between two tables"], 0.7),
        (["show", "method-7"], 0.7),
        (["apply", "--help"], 0.7),
    ],
)
def test_commands_answer_at_once_with_all_papers(large: Path, arguments: list[str], limit_s: float):
    assert_starts_fast(large, arguments, limit_s)


def test_find_reads_heads_at_once(large: Path, tmp_path: Path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("x,y,label\n" + "1.5,2,0\n" * 200_000)
    assert_starts_fast(large, ["find", "distance", tmp_path / "a.csv", tmp_path / "b.csv"], 0.7)


def test_a_user_error_of_the_program_has_no_traceback(large: Path):
    result = run(large, "show", "methd-7")
    assert result.returncode == 2
    assert result.stderr.startswith("error: no method is called 'methd-7'; nearest: method-7")
    assert "Traceback" not in result.stderr
