"""User errors end a command with one line and status 2; anything else keeps its traceback."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from theses.cli.output import fail

__all__ = ["friendly"]

P = ParamSpec("P")
R = TypeVar("R")


def friendly(command: Callable[P, R]) -> Callable[P, R]:
    """Command whose user errors are one line on standard error.

    ``ValueError`` (and with it :class:`theses.datasets.files.FileError`), ``ImportError`` (a missing extra or
    carrier), exceptions that theses itself defines, such as
    :class:`theses.catalogue.UnknownMethodError`, and errors of the operating system about a named file
    become ``error: ...`` and exit status 2. Set ``THESES_TRACEBACK=1`` to see where they come from. Ctrl-C
    ends the command with status 130.

    Parameters
    ----------
    command : callable
        The command's function; its signature is kept for Typer.

    Returns
    -------
    callable
        The same command.
    """

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            message = _message(error)
            if message is None or os.environ.get("THESES_TRACEBACK"):
                raise
            fail(message)

    return wrapper


def _message(error: Exception) -> str | None:
    """What to tell the user; None for an error that is ours."""
    if isinstance(error, (ValueError, ImportError)) or type(error).__module__.split(".")[0] == "theses":
        return str(error)
    # A closed pipe is about no file; Typer ends quietly on it.
    if isinstance(error, OSError) and error.filename is not None and error.errno != errno.EPIPE:
        return f"{error.filename}: {error.strerror}"
    return None
