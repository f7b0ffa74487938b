"""Reading what commands are given: calibrations, ``name=value``, and files to write; else an `ArgumentError`."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import replace
from itertools import chain, product
from math import inf, prod
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from perflex.errors import PerflexError
from perflex.yaml_file import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import typer

    from perflex.calibration.calibration import Calibration
    from perflex.features import Scop

GENERAL_GPU = "general_gpu"
"""The calibration that comes with perflex for any GPU with a machine file."""

LAUNCH_FORM = "write groups and work-group, such as '<<<(n/32, m/8), (32, 8)>>>'"
_MOST_SIZES = 100_000
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|min|[hdwy]|)")
SCOP_SUFFIXES = (".yaml", ".yml")
SOURCE_SUFFIXES = (
    *(".cl", ".ocl", ".cu", ".cuh", ".hip"),
    # In one of these languages, as their text or --language says.
    *(".cpp", ".cxx", ".cc", ".c", ".hpp", ".hxx", ".hh", ".h", ".inc"),
)
# A kernel's template arguments may hold colons: FILE.cu:kernel<a::b>.
_IN_SOURCE = re.compile(rf"(.*?(?:{'|'.join(map(re.escape, SOURCE_SUFFIXES))})):(.*)", re.DOTALL)
_SERIES = re.compile(r"[\w\s,]+=[\d\s,:+-]+")
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3.6e3, "d": 86.4e3, "w": 7 * 86.4e3, "y": 365 * 86.4e3}


class ArgumentError(PerflexError):
    """A word of the command line cannot be understood, or names something that is not there."""


def read_calibration(words: Sequence[str], machine: str | None, what: str) -> tuple[Calibration, list[str]]:
    """Return the calibration that the first word names, and the other words, such as one for `what`.

    With a machine that is a GPU there need be none: then it is the one for any GPU, as one of the machine.
    """
    from perflex.calibration.calibration import Calibration, calibration_names
    from perflex.machines.files import load_machine

    first, where = words[0], None if machine is None else load_machine(machine)
    shipped = first in calibration_names() and not os.path.exists(first)  # noqa: PTH110
    if where is None and names_kernel(first):
        way = "name a calibration's file before the kernel, or a GPU with --machine"
        raise ArgumentError(f"{first} is no calibration; {way}")
    given = where is None or shipped or _is_calibration(first)
    if not given and where is not None and where.kind != "gpu":
        way = f"name a calibration before {first}, which 'perflex calibrate' makes"
        raise ArgumentError(f"{machine} is no GPU; {way}")
    loaded, rest = Calibration.load(first if given else GENERAL_GPU), list(words[1:] if given else words)
    if not rest:
        raise ArgumentError(f"nothing follows the calibration; name {what}")
    if where is not None and (not given or (shipped and first == GENERAL_GPU)):
        loaded = replace(loaded, device={"name": where.name, "calibration": GENERAL_GPU})
    return loaded, rest


def _is_calibration(word: str) -> bool:
    """Return whether a word names a calibration's file, rather than a kernel or a space."""
    if not word.endswith(SCOP_SUFFIXES):
        return False
    schema = schema_of(word)
    return not schema or "calibration" in schema


def read_series(words: Iterable[str]) -> list[dict[str, int]]:
    """Return every combination of the sizes that words give: ``n=1024``, ``n=512,1024``, ``nx,ny=128:1024:64``.

    A series ``first:last:step`` has both ends; names in one word have one value.
    """
    names: list[str] = []
    choices: list[list[dict[str, int]]] = []
    for word in words:
        left, equals, right = word.partition("=")
        own = [name.strip() for name in left.split(",")]
        if not equals or not all(map(str.isidentifier, own)):
            msg = f"cannot read size {word!r}; write name=value, such as n=1024, n=512,1024 or nx,ny=128:1024:64"
            raise ArgumentError(msg)
        names += own
        if twice := next((name for name in own if names.count(name) > 1), None):
            raise ArgumentError(f"size {twice!r} is given twice; give it once")
        values = [_values(part, left) for part in right.split(",")]
        if sum(map(len, values)) * prod(map(len, choices)) > _MOST_SIZES:
            msg = f"{word} makes more than {_MOST_SIZES} combinations of sizes; give fewer, or a larger step"
            raise ArgumentError(msg)
        choices.append([dict.fromkeys(own, value) for value in chain(*values)])
    return [{name: value for each in chosen for name, value in each.items()} for chosen in product(*choices)]


def _values(text: str, name: str) -> Sequence[int]:
    """Return the numbers that one is, or ``first:last:step``."""
    try:
        numbers = [int(each) for each in text.split(":")]
    except ValueError:
        numbers = []
    match numbers:
        case [number]:
            return [number]
        case [first, last, step] if first <= last and step > 0:
            return range(first, last + 1, step)
    raise ArgumentError(f"size {name.strip()!r} must be an integer, or a rising series first:last:step, not {text!r}")


def read_sizes(words: Iterable[str]) -> dict[str, int]:
    """Return sizes of one value each."""
    sizes, *more = read_series(words := list(words))
    if more:
        series = next(word for word in words if len(read_series([word])) > 1)
        raise ArgumentError(f"{series} has several values, which this command does not take; give one")
    return sizes


def split_words(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return which words name kernels, of which there must be one, and which sizes."""
    words = list(words)
    # A path and a script's arguments may hold equals signs: what follows the last colon decides elsewhere.
    kernels = [
        word
        for word in words
        if word.endswith(SCOP_SUFFIXES)
        or is_space(word)
        or not ("=" in word.rpartition(":")[2] or _SERIES.fullmatch(word))
    ]
    if not kernels:
        raise ArgumentError("there is no kernel; name one as KERNEL.py:function or SCOP.yaml before the sizes")
    return kernels, [word for word in words if word not in kernels]


def require_known_sizes(given: Iterable[str], kernels: Iterable[Any], sizes: Mapping[str, Any]) -> None:
    """Refuse given sizes that none of the kernels, described at `sizes`, has."""
    left, there = dict.fromkeys(given), dict[str, None]()
    kernel = None
    for kernel in kernels:
        for name in _sizes_of(kernel, sizes) if left else ():
            there[name] = None
            left.pop(name, None)
            if not left:
                return
        if getattr(kernel, "takes_any_size", False):
            return
    if left and kernel is not None:
        names = f"its sizes are {', '.join(there)}" if there else "it has no sizes"
        raise ArgumentError(f"the kernel has no size {', '.join(left)}; {names}")


def described(kernel: Any, sizes: Mapping[str, int]) -> Scop:
    """Return a kernel's description at sizes, all of which it must have; else an ArgumentError."""
    from perflex.features import extract_scop

    require_known_sizes(sizes, [kernel], sizes)
    return extract_scop(kernel, sizes)


def _sizes_of(kernel: Any, sizes: Mapping[str, Any]) -> Iterator[str]:
    """Yield a kernel's sizes, and floating-point arguments of source code, which timings take."""
    from perflex.features import extract_scop

    # Of a kernel that is described for numbers alone the description has no sizes.
    yield from getattr(kernel, "sizes", None) or ()
    yield from (name for name, space, *_ in getattr(kernel, "arguments", ()) if not space)
    if not getattr(kernel, "takes_any_size", False):
        scop = extract_scop(kernel, sizes)
        yield from (*scop.parameters, *scop.unknown_extents)


def read_pairs(words: Iterable[str], option: str, example: str) -> dict[str, str]:
    """Return an option's values of the form ``key=value``."""
    pairs: dict[str, str] = {}
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not key or not value:
            raise ArgumentError(f"cannot read {option} {word!r}; write e.g. {example}")
        if pairs.setdefault(key, value) != value:
            raise ArgumentError(f"{option} {key} is given twice, as {pairs[key]} and as {value}; give it once")
    return pairs


def read_seconds(word: str, option: str) -> float:
    """Read a duration such as ``30``, ``30s``, ``500ms``, ``2min``, ``1h``, ``90d``, ``2w`` or ``1y``, in seconds."""
    found = _DURATION.fullmatch(word.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    # A number of hundreds of digits reads as infinity.
    if not 0 < seconds < inf:
        raise ArgumentError(
            f"cannot read {option} {word!r}; write a positive duration such as 30s, 500ms, 2min, 1h or 90d"
        )
    return seconds


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
    return (found[1], found[2].partition("<<<")[0].strip()) if found else (file, name)


def launch_in(word: str) -> str:
    """Return the launch that stands behind a kernel of source code, ``<<<groups, work-group>>>``, or nothing."""
    found = _IN_SOURCE.fullmatch(word)
    _, begun, launch = found[2].partition("<<<") if found else ("", "", "")
    if begun and not launch.endswith(">>>"):
        raise ArgumentError(f"cannot read the launch of {word!r}; {LAUNCH_FORM}")
    return launch.removesuffix(">>>")


def is_space(word: str) -> bool:
    """Return whether a word names a file of a kernel's source with tunables, rather than a kernel."""
    path = word.partition(".py ")[0] + ".py" if ".py " in word else word
    if path.endswith(SCOP_SUFFIXES):
        return "perflex-source" in schema_of(path)
    return path.endswith((".py", ".json"))


def require_writable_folder(folder: Path | None, context: typer.Context) -> None:
    """Make the folder, if there is to be one and it is not there, and make sure that files can be made in it.

    At the command's end it is gone again if it is empty, such as after an error.
    """
    if folder is None:
        return
    try:
        new = [each for each in (folder, *folder.parents) if not each.exists()]
        context.call_on_close(lambda: _remove_empty(new))
        folder.mkdir(parents=True, exist_ok=True)
        # Only making a file shows what permissions, read-only mounts and quotas allow.
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}; name another folder with --out"
        raise ArgumentError(msg) from error


def _remove_empty(folders: Sequence[Path]) -> None:
    with suppress(OSError):  # of one that is not empty
        for folder in folders:
            folder.rmdir()
