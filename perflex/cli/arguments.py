"""Reading what commands are given: calibrations, ``name=value``, and files to write."""

from __future__ import annotations

import math
import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from perflex.errors import PerflexError
from perflex.file_io import require_writable
from perflex.yaml_file import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import typer

    from perflex.calibration.calibration import Calibration
    from perflex.machines.machine import Machine

GENERAL_GPU = "general_gpu"
"""The calibration that comes with perflex for any GPU with a machine file."""

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|min|h|)")
SCOP_SUFFIXES = (".yaml", ".yml")
SOURCE_SUFFIXES = (
    *(".cl", ".ocl", ".cu", ".cuh", ".hip"),
    # In one of these languages, as their text or --language says.
    *(".cpp", ".cxx", ".cc", ".c", ".hpp", ".hxx", ".hh", ".h", ".inc"),
)
# A kernel's template arguments may hold colons: FILE.cu:kernel<a::b>.
_IN_SOURCE = re.compile(rf"(.*?(?:{'|'.join(map(re.escape, SOURCE_SUFFIXES))})):(.*)", re.DOTALL)
_SERIES = re.compile(r"\s*([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*=\s*(\d+)\s*:\s*(\d+)\s*:\s*(\d+)\s*")
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0}


class ArgumentError(PerflexError):
    """A word of the command line cannot be understood, or names something that is not there."""


def read_calibration(words: Sequence[str], machine: str | None, what: str) -> tuple[Calibration, list[str]]:
    """Return the calibration that the first word names, and the other words; of a GPU there need be none.

    Raises
    ------
    ArgumentError
        There is no calibration, and the machine is no GPU, or there is no machine either; or no other word follows,
        such as one for `what`.
    """
    from perflex.calibration.calibration import Calibration, calibration_names
    from perflex.machines.files import load_machine

    shipped = words[0] in calibration_names() and not os.path.exists(words[0])  # noqa: PTH110
    if machine is None and names_kernel(words[0]):
        msg = f"{words[0]} is no calibration; name a calibration's file before the kernel, or a GPU with --machine"
        raise ArgumentError(msg, word=words[0])
    if machine is None or shipped or _is_calibration(words[0]):
        loaded = Calibration.load(words[0])
        if len(words) == 1:
            msg = f"nothing follows the calibration; name {what}"
            raise ArgumentError(msg)
        if shipped and words[0] == GENERAL_GPU and machine is not None:
            loaded = _of_machine(loaded, load_machine(machine))
        return loaded, list(words[1:])
    if load_machine(machine).kind != "gpu":
        msg = f"{machine} is no GPU; name a calibration before {words[0]}, which 'perflex calibrate' makes"
        raise ArgumentError(msg, machine=machine)
    return _of_machine(Calibration.load(GENERAL_GPU), load_machine(machine)), list(words)


def _of_machine(loaded: Calibration, machine: Machine) -> Calibration:
    """Return the calibration for any GPU as one of a machine, which outputs name."""
    return replace(loaded, device={"name": machine.name, "calibration": GENERAL_GPU})


def _is_calibration(word: str) -> bool:
    """Return whether a word names a calibration's file, rather than a kernel or a space."""
    if not word.endswith(SCOP_SUFFIXES):
        return False
    schema = schema_of(word)
    return not schema or "calibration" in schema


def read_sizes(words: Iterable[str]) -> dict[str, int]:
    """Return sizes given as ``name=value`` with integer values."""
    sizes: dict[str, int] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not name.isidentifier():
            msg = f"cannot read size {word!r}; write name=value, such as n=1024"
            raise ArgumentError(msg, word=word)
        if name in sizes:
            msg = f"size {name!r} is given twice; give it once"
            raise ArgumentError(msg, word=word)
        try:
            sizes[name] = int(text)
        except ValueError:
            msg = f"size {name!r} must be an integer, not {text!r}"
            raise ArgumentError(msg, word=word) from None
    return sizes


def read_kernels_and_sizes(words: Iterable[str]) -> tuple[list[str], dict[str, int]]:
    """Return which words name kernels, and the sizes that the others give.

    Raises
    ------
    ArgumentError
        No word names a kernel, or as `read_sizes`.
    """
    words = list(words)
    # A path and a script's arguments may hold equals signs: what follows the last colon decides elsewhere.
    kernels = [
        word for word in words if word.endswith(SCOP_SUFFIXES) or is_space(word) or "=" not in word.rpartition(":")[2]
    ]
    if not kernels:
        msg = "there is no kernel; name one as KERNEL.py:function or SCOP.yaml before the sizes"
        raise ArgumentError(msg)
    return kernels, read_sizes(word for word in words if word not in kernels)


def read_pairs(words: Iterable[str], option: str, example: str) -> dict[str, str]:
    """Return an option's values of the form ``key=value``."""
    pairs: dict[str, str] = {}
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not key or not value:
            msg = f"cannot read {option} {word!r}; write e.g. {example}"
            raise ArgumentError(msg, word=word)
        if pairs.setdefault(key, value) != value:
            msg = f"{option} {key} is given twice, as {pairs[key]} and as {value}; give it once"
            raise ArgumentError(msg, word=word)
    return pairs


def read_seconds(word: str, option: str) -> float:
    """Read a duration such as ``30``, ``30s``, ``500ms``, ``2min`` or ``1h``; return it in seconds."""
    found = _DURATION.fullmatch(word.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    # A number of hundreds of digits reads as infinity.
    if not 0 < seconds < math.inf:
        msg = f"cannot read {option} {word!r}; write a positive duration such as 30s, 500ms, 2min or 1h"
        raise ArgumentError(msg, word=word)
    return seconds


def series_sizes(series: str, given: Mapping[str, int], parameters: Sequence[str]) -> list[dict[str, int]]:
    """Return the sizes of each member of a series ``NAME[,NAME]=FIRST:LAST:STEP``, ends included; `given` ones stay."""
    match = _SERIES.fullmatch(series)
    if match is None:
        msg = f"cannot read --series {series!r}; write e.g. nx,ny=128:1024:64"
        raise ArgumentError(msg, word=series)
    names = [name.strip() for name in match[1].split(",")]
    first, last, step = (int(match[i]) for i in (2, 3, 4))
    if not (0 < first <= last and step > 0):
        msg = f"--series {series!r} is empty; the first size must be positive, the last not below it, the step positive"
        raise ArgumentError(msg, word=series)
    twice = [name for name in names if name in given or names.count(name) > 1 or name not in parameters]
    if twice:
        msg = f"size {twice[0]!r} is given twice or is none of the kernel's: {', '.join(parameters)}"
        raise ArgumentError(msg, word=series)
    left = [name for name in parameters if name not in names and name not in given]
    if left:
        msg = f"size {', '.join(left)} has no value; give it"
        raise ArgumentError(msg, word=series)
    return [{**given, **dict.fromkeys(names, value)} for value in range(first, last + 1, step)]


def names_kernel(word: str) -> bool:
    """Return whether a word names a kernel or variants, and so no calibration."""
    return is_space(word) or is_source(word) or (":" in word and not os.path.exists(word))  # noqa: PTH110


def is_source(word: str) -> bool:
    """Return whether a word names source code, or a kernel in it."""
    return word.endswith(SOURCE_SUFFIXES) or file_and_name(word)[0].endswith(SOURCE_SUFFIXES)


def file_and_name(word: str) -> tuple[str, str]:
    """Return the file and the kernel or function in it that a word names; the file is empty where there is no colon."""
    found = _IN_SOURCE.fullmatch(word)
    file, _, name = word.rpartition(":")
    return (found[1], found[2]) if found else (file, name)


def is_space(word: str) -> bool:
    """Return whether a word names a file of a kernel's source with tunables, rather than a kernel."""
    path = word.partition(".py ")[0] + ".py" if ".py " in word else word
    if path.endswith(SCOP_SUFFIXES):
        return "perflex-source" in schema_of(path)
    return path.endswith((".py", ".json"))


def require_writable_folder(folder: Path, context: typer.Context) -> None:
    """Make the folder if it is not there, and make sure that files can be made in it.

    At the command's end it is gone again if it is empty, such as after an error.
    """
    try:
        new = [each for each in (folder, *folder.parents) if not each.exists()]
        context.call_on_close(lambda: _remove_empty(new))
        folder.mkdir(parents=True, exist_ok=True)
        # Only making a file shows what permissions, read-only mounts and quotas allow.
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}; name another folder with --out"
        raise ArgumentError(msg, path=folder) from error


def _remove_empty(folders: Sequence[Path]) -> None:
    with suppress(OSError):  # of one that is not empty
        for folder in folders:
            folder.rmdir()


def require_writable_file(path: Path, *, regular: bool = False) -> None:
    """Make sure that a file can be made or replaced, and, if it must be regular, read again; leaves nothing behind."""
    try:
        require_writable(path)
    except IsADirectoryError:
        msg = f"cannot write {path}: it is a folder; name a file"
        raise ArgumentError(msg, path=path) from None
    # ValueError: a name with a zero byte.
    except (OSError, ValueError) as error:
        msg = f"cannot write {path}: {getattr(error, 'strerror', None) or error}; name another file"
        raise ArgumentError(msg, path=path) from error
    if regular and path.exists() and not path.is_file():
        msg = f"cannot write {path}: it is a device or a pipe, which cannot be read again; name a file with --out"
        raise ArgumentError(msg, path=path)
