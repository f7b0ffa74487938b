"""``%%perflex``: a notebook's cell of OpenCL C or CUDA C is explained below it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from perflex.cli.arguments import ArgumentError, launch_in, read_calibration, read_sizes, split_words
from perflex.errors import PerflexError

if TYPE_CHECKING:
    from perflex.analysis.explanation import Explanation

_FORM = "write %%perflex [CALIBRATION] -m MACHINE 'NAME<<<groups, work-group>>>' n=VALUE"


def load_ipython_extension(shell: Any) -> None:
    """Register the magic; ``%load_ext perflex`` calls this."""
    shell.register_magic_function(_explained, "cell", "perflex")


def _explained(line: str, cell: str) -> Explanation:
    """Explain a cell; what is wrong with it is told in one line, as notebooks tell it."""
    from IPython.core.error import UsageError

    try:
        return explain_cell(line, cell)
    except PerflexError as error:
        raise UsageError(error.message) from None


def _unread(line: str) -> ArgumentError:
    return ArgumentError(f"cannot read {line!r}; {_FORM}")


def explain_cell(line: str, cell: str) -> Explanation:
    """Return the explanation of a kernel, whose source is the cell.

    Parameters
    ----------
    line
        As words of ``perflex explain``: a calibration, unless the machine is a GPU; ``-m MACHINE``; the kernel's name
        with its launch; and sizes.
    cell
        OpenCL C or CUDA C.

    Raises
    ------
    PerflexError
        The words cannot be understood, or the kernel cannot be described or predicted.
    """
    from perflex.analysis.explanation import explain
    from perflex.features import source_kernel
    from perflex.features.from_source.host_launches import written_launch

    try:
        words = shlex.split(line)
        at = words.index("-m") if "-m" in words else None
        machine = None if at is None else words[at + 1]
    except (ValueError, IndexError) as error:
        raise _unread(line) from error
    # In the form of a file's kernel, as which it is read.
    rest = [f"cell.cu:{word}" if "<<<" in word else word for word in words]
    rest = rest if at is None else rest[:at] + rest[at + 2 :]
    if not rest or any(word.startswith("-") for word in rest):
        raise _unread(line)
    calibration, rest = read_calibration(rest, machine, "a kernel")
    (word, *more), sizes = split_words(rest)
    launch = launch_in(word)
    if more or not launch:
        raise _unread(line)
    groups, local = written_launch(launch)
    name = word.removeprefix("cell.cu:").partition("<<<")[0]
    kernel = source_kernel(cell, name, groups=groups, local=[*map(int, local)])
    return explain(kernel, read_sizes(sizes), calibration, machine=machine)
