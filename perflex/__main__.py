"""Entry point of the command ``perflex`` and of ``python -m perflex``."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import TYPE_CHECKING

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
    from collections.abc import Sequence

_EVERYWHERE = ("--quiet", "-q", "--debug")
_FAILED_WORK = 1
_BAD_INPUT = 2
# Everything else that perflex raises says that what it was given is wrong.
_WORK_ERRORS = (
    CalibrationError,
    EnvironmentSetupError,
    InexactCountError,
    MeasurementError,
    MissingExtraError,
    StoreError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    arguments
        Words after the program's name; the process's own by default.

    Returns
    -------
    int
        0 when all went well, 1 when work failed (a fit, a measurement), 2 for bad input.
    """
    if arguments is None:  # a process of its own, and not part of a test, say
        guard.start()
        # Half a second of an interrupted command's end is Python's last look for reference cycles.
        atexit.register(gc.freeze)
    from perflex.cli.app import app
    from perflex.cli.terminal import Terminal

    terminal = Terminal()
    words = list(sys.argv[1:] if arguments is None else arguments)
    # These hold for every command and may stand before or after its name.
    everywhere = [word for word in words if word in _EVERYWHERE]
    try:
        with terminal.warnings_shown():
            app(
                args=everywhere + [word for word in words if word not in _EVERYWHERE], obj=terminal, prog_name="perflex"
            )
    except SystemExit as ending:
        return _code(ending)
    except BrokenPipeError:
        # The reader has seen enough (head, less); nothing may be written any more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except PerflexError as error:
        if terminal.debug:
            raise
        # A compiler's or driver's message within it may span several lines.
        sys.stderr.write(f"perflex: error: {' '.join(error.message.split())}\n")
        return _FAILED_WORK if isinstance(error, _WORK_ERRORS) else _BAD_INPUT
    return 0


def _code(ending: SystemExit) -> int:
    if ending.code is None:
        return 0
    # As Python itself does: SystemExit with a text as its code ends the process with 1.
    return ending.code if isinstance(ending.code, int) else _FAILED_WORK


if __name__ == "__main__":
    raise SystemExit(main())
