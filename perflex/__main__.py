"""Entry point of the command ``perflex`` and of ``python -m perflex``."""

from __future__ import annotations

import atexit
import errno
import gc
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from perflex import guard
from perflex.errors import (
    CalibrationError,
    EnvironmentSetupError,
    InexactCountError,
    MeasurementError,
    MissingExtraError,
    PerflexError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perflex.cli.terminal import Terminal

_EVERYWHERE = ("--quiet", "-q", "--debug")
_FAILED_WORK = 1
_BAD_INPUT = 2
# What standard output says where a disk is full, broken or limited, or its terminal is gone.
_NO_OUTPUT = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
# Everything else that perflex raises says that what it was given is wrong.
_WORK_ERRORS = (
    CalibrationError,
    EnvironmentSetupError,
    InexactCountError,
    MeasurementError,
    MissingExtraError,
    StoreError,
)


def _leave_memory() -> None:
    """Leave objects to the operating system; Triton complains at the end of what is not taken apart."""
    if "triton" not in sys.modules:
        gc.freeze()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default with the process's own words after the program's name.

    Return its exit code: 0 when all went well, 1 when work failed (a fit, a measurement), 2 for bad input.
    """
    if arguments is None:  # a process of its own, and not part of a test, say
        guard.start()
        # Imports make no garbage, which Python would look for two hundred times.
        gc.set_threshold(200_000, *gc.get_threshold()[1:])
        # Half a second of an interrupted command's end is Python's last look for reference cycles.
        atexit.register(_leave_memory)
    from perflex.cli.terminal import Terminal, discard, discard_full_errors, printable

    if arguments is None:
        # Whatever is still to be said of errors has been written by then.
        atexit.register(discard_full_errors)
    terminal = Terminal()
    try:
        with printable():
            code = _run(list(sys.argv[1:] if arguments is None else arguments), terminal)
            # What cannot be written shows here, and not in a traceback when the process ends.
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough (head, less).
        discard(sys.stdout)
        return 0
    except _of_databases() as error:
        # The store's never come here: this is another package's cache.
        if terminal.debug:
            raise
        _complain(f"a cache cannot be used: {error}; free space, or name another place by XDG_CACHE_HOME")
        return _FAILED_WORK
    except OSError as error:
        # Where a file has a name, its reader or writer says what is wrong.
        if terminal.debug or error.filename is not None or error.errno not in _NO_OUTPUT:
            raise
        discard(sys.stdout)
        _complain(f"cannot write the output: {error.strerror}; free space, or redirect it elsewhere")
        return _FAILED_WORK
    return code


def _run(words: list[str], terminal: Terminal) -> int:
    # These hold for every command and may stand before or after its name.
    everywhere = [word for word in words if word in _EVERYWHERE]
    others = [word for word in words if word not in _EVERYWHERE]
    try:
        with terminal.warnings_shown():
            _application(*others[:1])(args=everywhere + others, obj=terminal, prog_name="perflex")
    except SystemExit as ending:
        # As Python itself does: SystemExit with a text as its code ends the process with 1.
        return ending.code if isinstance(ending.code, int) else _FAILED_WORK if ending.code else 0
    except PerflexError as error:
        if terminal.debug:
            raise
        # A compiler's or driver's message within it may span several lines.
        _complain(" ".join(error.message.split()))
        return _FAILED_WORK if isinstance(error, _WORK_ERRORS) else _BAD_INPUT
    return 0


# Typer reads the signatures of the commands for it, which takes longer than many a command does.
@cache
def _application(name: str = "") -> Callable[..., Any]:
    from typer.main import get_command

    from perflex.cli.app import application

    return get_command(application(name))


def _of_databases() -> type[Exception]:
    # Looked at only once there is an error: no start has to load the package.
    import sqlite3

    return sqlite3.OperationalError


def _complain(message: str) -> None:
    # Standard error may be as full as anything else; then the exit code tells.
    with suppress(OSError):
        sys.stderr.write(f"perflex: error: {message}\n")


if __name__ == "__main__":
    raise SystemExit(main())
