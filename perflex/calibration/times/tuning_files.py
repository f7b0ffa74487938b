"""Times that Triton's and PyTorch's autotuners leave behind, as tables of times.

Triton writes ``NAME.autotune.json`` with ``TRITON_CACHE_AUTOTUNING=1``, and calls the listener of
``triton.knobs.autotuning``; PyTorch prints tables that begin with ``AUTOTUNE mm(...)``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflex.calibration.times.table import TimedKernel
from perflex.errors import FileFormatError, PerflexError
from perflex.features.from_triton.launches import OPTIONS, Configuration, TritonKernel, captured_launch
from perflex.features.tiles.products import Matrices, ProductKernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_TABLE = re.compile(r"^AUTOTUNE (\w+)\((.*)\)\s*$")
_CHOICE = re.compile(r"^\s+triton_\S* ([\d.]+) ms [\d.]+%\s*(.*)$")
_WINNER = "Triton autotuning for function "
_TYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32", "float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2"}
# Their last two operands are the matrices.
_PRODUCTS = {"mm", "addmm"}
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
    if re.search(r"^AUTOTUNE \w+\(", text, re.MULTILINE):
        rows = [row for part in _tables(text.splitlines(), path) for row in part]
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
            name = str(found.get("kernel", path.name.partition(".")[0]))
            times = tuple(_timed(config, timing) for config, timing in found["configs_timings"])
            key = tuple(found["key"])
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise _error(path, number, f"this is not what Triton's autotuner writes ({error!r})"[:200]) from error
        yield Tuned(name, key, times, number)


def _timed(config: Mapping[str, Any], timing: Any) -> tuple[Configuration, float]:
    # Of several numbers, milliseconds, the first is the median.
    first = timing[0] if isinstance(timing, list) else timing
    seconds = float(first) / 1e3
    numbers = {name: int(config[name]) for name in ("num_ctas", "maxnreg") if config.get(name) is not None}
    if min(numbers.values(), default=1) < 1:
        raise ValueError(numbers)
    found = Configuration(dict(config["kwargs"]), int(config["num_warps"]), int(config["num_stages"]))
    override = config.get("ir_override")
    return found.launched({**numbers, "ir_override": str(override) if override else None}), seconds


def _launched(problems: Iterator[Tuned], path: Path, makers: Mapping[str, Any]) -> Iterator[TimedKernel]:
    """Yield a row for each configuration that ran, as far as it can be predicted."""
    for one in problems:
        launch = _launch(one, path, makers)
        problem = f"{one.kernel}({', '.join(map(str, one.key))})"
        for configuration, seconds in one.times:
            # What did not run is infinitely slow.
            if 0 < seconds < inf and not configuration.unpredictable:
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


def _tables(lines: list[str], path: Path) -> Iterator[list[TimedKernel]]:
    """Yield the rows of each table that PyTorch printed."""
    heads = [number for number, line in enumerate(lines) if _TABLE.match(line)]
    for start, end in pairwise([*heads, len(lines)]):
        found = _TABLE.match(lines[start])
        assert found is not None  # noqa: S101 - heads match
        if found.group(1) not in _PRODUCTS:
            continue
        matrices = _matrices(found.group(2), lines[start + 1 : start + 3], path, start + 1)
        rows = []
        for number in range(start + 1, end):
            choice = _CHOICE.match(lines[number])
            if choice is not None:
                rows.append(_choice(choice.group(1), choice.group(2), matrices, (path, number + 1)))
        yield rows


def _matrices(shapes: str, notes: list[str], path: Path, line: int) -> Matrices:
    """Return the matrices of a table's head, whose notes give strides and types; old versions have none."""
    sizes = [word.split("x") for word in shapes.split(", ")][-2:]
    if [len(size) for size in sizes] != [2, 2] or not all(extent.isdecimal() for size in sizes for extent in size):
        msg = f"this is no product of two matrices ({shapes})"
        raise _error(path, line, msg)
    (m, k), (inner, n) = (tuple(map(int, size)) for size in sizes)
    strides, dtype = [(k, 1), (n, 1)], "float16"
    for note in notes:
        word, _, rest = note.partition(": ")
        if word == "strides":
            pairs = re.findall(r"\[(\d+), (\d+)\]", rest)[-2:]
            strides = [(int(first), int(second)) for first, second in pairs]
        elif word == "dtypes":
            dtype = rest.rpartition(".")[2].strip()
    if inner != k or len(strides) != 2 or dtype not in _TYPES or min(m, n, k) < 1:
        msg = f"perflex knows no such product ({shapes}, {dtype}); its types are {', '.join(_TYPES)}"
        raise _error(path, line, msg)
    return Matrices(m, n, k, _TYPES[dtype], strides[0], strides[1])


def _choice(time: str, words: str, matrices: Matrices, where: tuple[Path, int]) -> TimedKernel:
    """Return the row of a choice, of which a table says time and constants."""
    given = dict(word.split("=", 1) for word in words.split(", ") if "=" in word)
    needed = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    if lacking := [name for name in needed if not given.get(name, "").isdecimal() or int(given[name]) < 1]:
        msg = f"this choice has no number for {lacking[0]}"
        raise _error(*where, msg)
    m, n, k, warps, stages = (int(given[name]) for name in needed)
    if matrices.dtype == "tf32" and given.get("ALLOW_TF32") == "False":
        matrices = replace(matrices, dtype="f32")
    kernel = ProductKernel(matrices, (m, n, k), warps, stages)
    name = f"{kernel.name} {m}x{n}x{k} num_warps={warps} num_stages={stages}"
    try:
        return TimedKernel(kernel, {}, float(time) / 1e3, name, kernel.name)
    except (ValueError, PerflexError) as error:
        msg = f"{time!r} is no time in ms"
        raise _error(*where, msg) from error


def record(path: Path | str) -> None:
    """Append what Triton's autotuner measures from now on to a file, a line for each problem, for ``--times``.

    It sets the listener of ``triton.knobs.autotuning``; one that is there already is called, too.
    """
    from triton import knobs

    before = knobs.autotuning.listener

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
