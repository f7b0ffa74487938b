"""Times that Triton's and PyTorch's autotuners leave behind, as tables of times.

Triton writes ``NAME.autotune.json`` with ``TRITON_CACHE_AUTOTUNING=1``, and calls the listener of
``triton.knobs.autotuning``; PyTorch prints tables that begin with ``AUTOTUNE mm(...)``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflex.calibration.times.table import TimedKernel
from perflex.errors import FileFormatError, MissingExtraError, PerflexError
from perflex.features.from_triton.launches import OPTIONS, Configuration, TritonKernel, captured_launch
from perflex.features.tiles.products import Matrices, ProductKernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# Logs put times, levels and processes before a line, and colours around it.
_COLOUR = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_PROCESS = re.compile(r"\[rank\d+\]|\bpid[= ]\d+")
_TABLE = re.compile(r"\bAUTOTUNE (\w+)\((.*)\)\s*$")
_NOTE = re.compile(r"\b(strides|dtypes): (.*)$")
# Templates of other names, such as triton_mm_persistent_tma_7, are other kernels.
_CHOICE = re.compile(r"(?:^|\s)triton_mm_\d+ ([-+.\w]+) (?:([A-Za-z]+) )?(?:[\d.]+%|<DIVIDED BY ZERO ERROR>)\s*(.*)$")
_UNITS = {"ms": 1e3, "us": 1e6}
_WINNER = "Triton autotuning for function "
_TYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32", "float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2"}
# Their last two operands are the matrices.
_PRODUCTS = {"mm", "addmm"}
# What Triton takes as extents of tiles and warps, and as stages.
_EXTENTS, _STAGES = {str(1 << power) for power in range(13)}, set(map(str, range(1, 33)))
# Of sizes, and of programs of a launch.
_LARGEST = 1 << 31
# Programs that stand for all of a grid.
_SAMPLED = 64


@dataclass(frozen=True)
class Tuned:
    """What an autotuner measured of one problem: the kernel, what it knew the problem by, and seconds."""

    kernel: str
    key: tuple[Any, ...]
    times: tuple[tuple[Configuration, float], ...]
    line: int = 1


def tuned_rows(text: str, path: Path, makers: Mapping[str, Any]) -> list[TimedKernel] | None:
    """Return the rows of a file that an autotuner wrote; None where it is none.

    Parameters
    ----------
    text, path
        The file's text, and its name for messages; Triton's JSON files are named after the kernel.
    makers
        Functions that launch kernels of Triton, with sizes of the names that the autotuner tells problems apart by.

    Raises
    ------
    FileFormatError
        The file is damaged, has no times, or no function launches a kernel of it.
    """
    start = text.lstrip()[:1]
    if start == "{" and '"configs_timings"' in text:
        return list(_launched(_of_json(text, path), path, makers))
    if re.search(r"\bAUTOTUNE \w+\(", text):
        rows = list(_tables(text.split("\n"), path))
        if not rows:
            msg = f"{path} has no times of Triton's for mm or addmm, the products that perflex knows; give other tables"
            raise FileFormatError(msg, path=path)
        return rows
    if _WINNER in text:
        msg = (
            f"{path} says only which configurations were best, without times; set TRITON_CACHE_AUTOTUNING=1 and give "
            "the .autotune.json files of Triton's cache"
        )
        raise FileFormatError(msg, path=path)
    return None


def _error(path: Path, line: int, text: str) -> FileFormatError:
    return FileFormatError(f"{path}, line {line}: {text}", path=path, line=line)


def _of_json(text: str, path: Path) -> Iterator[Tuned]:
    """Yield the problems of Triton's file, or of one that `record` wrote, which has a document in each line."""
    lines = [text] if text.count('"configs_timings"') == 1 else text.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            name = found.get("kernel", path.name.partition(".")[0])
            if not isinstance(name, str) or not isinstance(found["key"], list):
                raise TypeError(name, found["key"])  # noqa: TRY301 - as all that is wrong
            times = tuple(_timed(config, timing) for config, timing in found["configs_timings"])
            key = tuple(found["key"])
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise _error(path, number, f"this is not what Triton's autotuner writes ({error!r})"[:200]) from error
        yield Tuned(name, key, times, number)


def _timed(config: Mapping[str, Any], timing: Any) -> tuple[Configuration, float]:
    # Of several numbers, milliseconds, the first is the median.
    first = timing[0] if isinstance(timing, list) else timing
    warps, stages = config["num_warps"], config["num_stages"]
    numbers = {name: config[name] for name in ("num_ctas", "maxnreg") if config.get(name) is not None}
    if isinstance(first, bool) or any(type(one) is not int for one in (warps, stages, *numbers.values())):
        raise TypeError(first, warps, stages, numbers)
    seconds = float(first / 1e3)
    # What did not run takes infinitely long.
    if not seconds > 0 or str(warps) not in _EXTENTS or stages < 0 or min(numbers.values(), default=1) < 1:
        raise ValueError(first, warps, stages, numbers)
    override = config.get("ir_override")
    found = Configuration(dict(config["kwargs"]), warps, stages)
    return found.launched({**numbers, "ir_override": str(override) if override else None}), seconds


def _launched(problems: Iterator[Tuned], path: Path, makers: Mapping[str, Any]) -> Iterator[TimedKernel]:
    """Yield a row for each configuration that ran, as far as it can be predicted."""
    for one in problems:
        launch = _launch(one, path, makers)
        problem = f"{one.kernel}({', '.join(map(str, one.key))})"
        for configuration, seconds in one.times:
            if seconds < inf and not configuration.unpredictable:
                kernel = TritonKernel(launch, configuration, most=_SAMPLED)
                yield TimedKernel(kernel, {}, seconds, f"{problem} {configuration}", problem)


def _launch(one: Tuned, path: Path, makers: Mapping[str, Any]) -> Any:
    """Return the launch of a problem by the user's function."""
    from inspect import signature

    numbers = [value for value in one.key if isinstance(value, int) and not isinstance(value, bool)]
    fitting: list[tuple[Callable[..., Any], list[str]]] = []
    for make in makers.values():
        names = list(signature(make).parameters) if callable(make) else []
        if len(names) >= len(numbers):
            fitting.append((make, names))
    for make, names in fitting:
        try:
            launch = captured_launch(make, dict(zip(names, numbers, strict=False)))
            if set(launch.keys) <= set(names):
                launch = captured_launch(make, dict(zip(launch.keys, one.key, strict=False)))
        except PerflexError:
            continue
        if launch.function.__name__ == one.kernel:
            return launch
    known = ", ".join(map(str, one.key))
    msg = f"no function launches {one.kernel!r}; give one of the sizes that tell its problems apart (here {known})"
    raise _error(path, one.line, msg)


def _tables(lines: list[str], path: Path) -> Iterator[TimedKernel]:
    """Yield the rows of the tables that PyTorch printed; lines of several processes may alternate."""
    # Of each process its last table: operation, sizes and line of its head, and notes behind that.
    tables: dict[str, tuple[tuple[str, str, int], dict[str, str]]] = {}
    for number, line in enumerate(lines, 1):
        plain = _COLOUR.sub("", line)
        known = _PROCESS.search(plain)
        process = known.group() if known else ""
        if found := _TABLE.search(plain):
            tables[process] = (found.group(1), found.group(2), number), {}
        elif "AUTOTUNE " in plain:  # benchmarking takes so many seconds
            tables.pop(process, None)
        elif process in tables and tables[process][0][0] in _PRODUCTS:
            (_, shapes, start), notes = tables[process]
            if note := _NOTE.search(plain):
                notes[note.group(1)] = note.group(2)
            elif (choice := _CHOICE.search(plain)) and choice.group(1) != "inf":  # which did not run
                yield _choice(choice.groups(), _matrices(shapes, notes, path, start), (path, number))


def _matrices(shapes: str, notes: Mapping[str, str], path: Path, line: int) -> Matrices:
    """Return the matrices of a table, whose notes give strides and types."""
    if lacking := [what for what in ("strides", "dtypes") if what not in notes]:
        msg = f"the table has no line of {lacking[0]}; newer versions of PyTorch print it"
        raise _error(path, line, msg)
    parts = [*shapes.split(", ")[-2:], *re.findall(r"\[([^\]]*)\]", notes["strides"])[-2:]]
    found = [re.fullmatch(r"(\d{1,18})(?:x|, )(\d{1,18})", part) for part in parts]
    types = [part.strip().removeprefix("torch.") for part in notes["dtypes"].split(", ")[-2:]]
    if len(found) != 4 or not all(found):
        msg = f"this is no product of two matrices ({shapes!r}, strides {notes['strides'].strip()!r})"
        raise _error(path, line, msg)
    (m, k), (inner, n), *strides = ((int(one[1]), int(one[2])) for one in found if one)
    known = len(types) == 2 and types[0] == types[1] and types[0] in _TYPES
    if not known or inner != k or min(m, n, k) < 1 or max(m, n, k) >= _LARGEST:
        msg = f"perflex knows no such product ({shapes!r}, {', '.join(types)!r}); its types are {', '.join(_TYPES)}"
        raise _error(path, line, msg)
    if 1 not in strides[0] or 1 not in strides[1]:
        msg = f"perflex knows no product of matrices without neighbours in memory (strides {notes['strides']!r})"
        raise _error(path, line, msg)
    return Matrices(m, n, k, _TYPES[types[0]], strides[0], strides[1])


def _choice(said: tuple[str, ...], matrices: Matrices, where: tuple[Path, int]) -> TimedKernel:
    """Return the row of a choice, of which a table says time, unit and constants."""
    time, unit, words = said
    given = dict(word.split("=", 1) for word in words.strip().split(", ") if "=" in word)
    needed = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    possible = dict.fromkeys(needed[:-1], _EXTENTS) | {needed[-1]: _STAGES}
    if lacking := [name for name in needed if given.get(name) not in possible[name]]:
        msg = f"this choice has no number for {lacking[0]}"
        raise _error(*where, msg)
    m, n, k, warps, stages = (int(given[name]) for name in needed)
    if -(-matrices.m // m) * -(-matrices.n // n) >= _LARGEST:
        msg = "this choice has more programs than a launch"
        raise _error(*where, msg)
    if matrices.dtype == "tf32" and given.get("ALLOW_TF32") == "False":
        matrices = replace(matrices, dtype="f32")
    kernel = ProductKernel(matrices, (m, n, k), warps, stages)
    name = f"{kernel.name} {m}x{n}x{k} num_warps={warps} num_stages={stages}"
    try:
        # Python reads more as numbers than logs write.
        seconds = float(time if re.fullmatch(r"[\d.]+", time) else "") / _UNITS[unit]
        return TimedKernel(kernel, {}, seconds, name, kernel.name)
    except (ValueError, LookupError, PerflexError) as error:
        msg = f"{time!r} is no time in ms" if unit == "ms" else f"{time!r} needs a unit, {' or '.join(_UNITS)}"
        raise _error(*where, msg) from error


def record(path: Path | str) -> None:
    """Append what Triton's autotuner measures from now on to a file, a line for each problem, for ``--times``.

    It sets the listener of ``triton.knobs.autotuning``; one that is there already is called, too.

    Raises
    ------
    MissingExtraError
        Triton is not installed, or has no such listener.
    """
    try:
        from triton import knobs

        before = knobs.autotuning.listener
    except (ImportError, AttributeError) as error:
        msg = (
            "perflex.triton.record needs Triton 3.8, whose autotuner tells what it measures; with an older one, set "
            "TRITON_CACHE_AUTOTUNING=1 and give the .autotune.json files of its cache"
        )
        raise MissingExtraError(msg, extra="triton") from error

    def listen(**told: Any) -> None:
        timings = [
            ({name: getattr(config, name) for name in ("kwargs", *OPTIONS) if hasattr(config, name)}, times)
            for config, times in (told["configs_timings"] or {}).items()
        ]
        entry = {"kernel": told["fn"].__name__, "key": list(told["key"]), "configs_timings": timings}
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry, default=str) + "\n")
        if before is not None:
            before(**told)

    knobs.autotuning.listener = listen
