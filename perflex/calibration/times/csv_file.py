"""Tables of times as CSV files: reading them, and writing those that a calibration rests on."""

from __future__ import annotations

import csv
import hashlib
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflex.calibration.times.named_kernels import NamedKernels, read_value
from perflex.calibration.times.profilers import described, profiler_rows, refuse_json, refuse_unreadable
from perflex.calibration.times.table import TimedKernel, TimesTable
from perflex.calibration.times.tuning_files import tuned_rows
from perflex.errors import FileFormatError, PerflexError, warn
from perflex.file_io import csv_rows, read_bytes, saving, unpacked_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import ModuleType

    from perflex.calibration.record import CalibrationRecord

# Columns of times, and how many of their units are a second. The name states the unit.
TIME_COLUMNS = {"seconds": 1.0, "time_s": 1.0, "time_ms": 1e3, "time_us": 1e6, "time_ns": 1e9}
_FRACTIONS = ("spread", "repeatability")
# What is no size or argument of a kernel.
_RESERVED = frozenset((*TIME_COLUMNS, *_FRACTIONS, "kernel", "tags", "launches", "registers", "device"))
_LISTED = 8

_Row = tuple[int, dict[str, str]]


def load_times(
    path: Path | str,
    kernels: Mapping[str, Any] | ModuleType | None = None,
    *,
    device: str = "",
    only: Mapping[str, str | Collection[str]] | None = None,
) -> TimesTable:
    """Read a table of kernels with the times that others measured.

    Parameters
    ----------
    path
        A CSV file in UTF-8 with column names in its first line, ``.csv`` or ``.csv.gz``, of up to 32 MiB. Columns:

        ``kernel``
            Name of one of `kernels`, tags of a generator (``matmul_sq dtype:float32``), or a label that perflex gave a
            kernel (``matmul_sq(dtype=float32, ..., n=64)``).
        ``tags``
            Tags of a generator that say all, instead of ``kernel`` where they are not empty.
        ``seconds``, ``time_s``, ``time_ms``, ``time_us`` or ``time_ns``
            The time. One of them; the name states the unit.
        ``launches``
            How many launches of the kernel the time is of; by default 1.
        ``spread``, ``repeatability``
            As of `TimedKernel`, fractions.
        ``registers``
            32-bit registers per work-item as the kernel was built.
        ``device``
            The device's name.

        All other columns are sizes, or arguments of the function or generator that makes the kernel. Empty cells are
        not known. Rows may repeat a kernel.

        Or a report of NVIDIA's profilers as CSV: of Nsight Compute, a metric in each row (``--csv``) or a launch
        (``--page raw --csv``), or of ``nsys stats --format csv``, ``cuda_gpu_trace`` or ``cuda_gpu_kern_sum``. There
        kernels are named by their functions, without parameters; those that `kernels` lacks are left out. Sizes are
        columns that you add, or the kernels have none.

        Or what autotuners leave behind: Triton's ``NAME.autotune.json``, lines of `perflex.triton.record`, or what
        PyTorch prints from ``AUTOTUNE mm(...)`` on, also within a log. The functions of `kernels` launch Triton's
        kernels then, and take the sizes that the autotuner tells problems apart by; PyTorch's products need none.
    kernels
        Functions that make kernels (loopy translation units, annotated ones, measurement kernels or Scops), or
        kernels themselves, by name; or a module, whose own functions are taken.
    device
        Rows of this device, where the table has a column of devices; else its name.
    only
        Rows that have this value, or one of these, in a column: ``{"role": "cal"}``.

    Warns
    -----
    PerflexWarning
        Columns are neither sizes nor arguments of any kernel, or a profiler's report has launches of other kernels;
        names them.

    Raises
    ------
    FileFormatError
        The file cannot be read or is no such table, a kernel is not known, a size or argument is missing, a time is
        not positive, or the rows are of several devices and none is chosen; names file and line.
    """
    path = Path(path)
    refuse_unreadable(path)
    content = read_bytes(path)
    text = unpacked_text(content, path)
    makers = NamedKernels(kernels)
    if (tuned := tuned_rows(text, path, makers.known)) is not None:
        if only:
            msg = f"{path} is of an autotuner, without columns to choose rows by; leave only out"
            raise FileFormatError(msg, path=path)
        return TimesTable(tuple(tuned), device, path.name, hashlib.sha256(content).hexdigest())
    refuse_json(path)
    profiled = profiler_rows(text, path)
    table = csv_rows(text, path) if profiled is None else described(profiled, makers.names, path)
    names = list(table[0][1])
    column = _time_column(names, path)
    rows, device = _chosen(table, path, device, only or {})
    used: set[str] = set()
    found = []
    for line, cells in rows:
        given = {name: text.strip() for name, text in cells.items() if text.strip()}
        found.append(_row(given, column, makers, used, partial(_error, path, line)))
    if not all(cells.get("tags", "").strip() for _, cells in rows):
        _warn_of_unused([name for name in names if name not in _RESERVED | used | set(only or ())], path)
    return TimesTable(tuple(found), device, path.name, hashlib.sha256(content).hexdigest())


def _error(path: Path, line: int, text: str) -> FileFormatError:
    return FileFormatError(f"{path}, line {line}: {text}", path=path, line=line)


def _time_column(names: Sequence[str], path: Path) -> str:
    known = [name for name in names if name in TIME_COLUMNS]
    wanted = ", ".join(TIME_COLUMNS)
    if len(known) > 1:
        msg = f"{path} has several columns of times ({', '.join(known)}); leave one"
        raise FileFormatError(msg, path=path, line=1)
    if not known:
        shown = ", ".join(repr(name) for name in names[:_LISTED]) + (" ..." if len(names) > _LISTED else "")
        msg = f"{path} has no column of times whose name states the unit ({wanted}); its columns are {shown}"
        raise FileFormatError(msg, path=path, line=1)
    if not {"kernel", "tags"} & set(names):
        msg = f"{path} has no column 'kernel' that names each row's kernel, or 'tags' of a generator; add one"
        raise FileFormatError(msg, path=path, line=1)
    return known[0]


def _chosen(
    rows: Sequence[_Row], path: Path, device: str, only: Mapping[str, str | Collection[str]]
) -> tuple[Sequence[_Row], str]:
    """Return the rows that are asked for, and the device that they are of."""
    wanted = {name: {value} if isinstance(value, str) else set(map(str, value)) for name, value in only.items()}
    if device and "device" in rows[0][1]:
        wanted["device"] = {device}
    all_rows = rows
    for name, values in wanted.items():
        if name not in rows[0][1]:
            msg = f"{path} has no column {name!r} to choose rows by; it has {', '.join(rows[0][1])}"
            raise FileFormatError(msg, path=path, line=1)
        there = list(dict.fromkeys(cells[name].strip() for _, cells in all_rows))
        rows = [(line, cells) for line, cells in rows if cells[name].strip() in values]
        # A value that is misspelt must not leave its rows out.
        if lacking := sorted(values.difference(there)) or ([] if rows else sorted(values)):
            msg = f"{path} has no row with {name} {' or '.join(lacking)}; there is {', '.join(there[:_LISTED])}"
            raise FileFormatError(msg, path=path)
    devices = list(dict.fromkeys(cells.get("device", "").strip() for _, cells in rows))
    if len(devices) > 1:
        shown = ", ".join(name or "(empty)" for name in devices[:_LISTED])
        msg = (
            f"{path} has times of {len(devices)} devices ({shown}); a calibration needs one; "
            "choose it with the device's name"
        )
        raise FileFormatError(msg, path=path)
    return rows, devices[0] or device


def _row(
    given: Mapping[str, str], column: str, makers: NamedKernels, used: set[str], error: Callable[[str], FileFormatError]
) -> TimedKernel:
    launches = _whole(given, "launches", error) or 1
    seconds = _number(given, column, error) / TIME_COLUMNS[column] / launches
    if not 0 < seconds < math.inf:
        text = f"the time must be positive and finite, not {given.get(column, 'empty')!r} in column {column}"
        raise error(text)
    # Tags say all: columns beside them, such as counters, are no arguments.
    named = given.get("tags") or given.get("kernel")
    if not named:
        text = "it names no kernel; fill in the column kernel, or remove the line"
        raise error(text)
    cells = {} if "tags" in given else {name: text for name, text in given.items() if name not in _RESERVED}
    try:
        made = makers.of(named, cells)
    except PerflexError as fault:
        raise error(fault.message) from fault
    except Exception as fault:
        # Of the user's own function, which is shown as it is.
        fault.add_note(str(error(f"this was raised while kernel {named!r} was made")))
        raise
    used |= made.used
    known = {name: _number(given, name, error) if name in given else math.nan for name in _FRACTIONS}
    stated: dict[str, Any] = {"registers": _whole(given, "registers", error), **known}
    try:
        return TimedKernel(made.kernel, made.sizes, seconds, made.name, made.generator, **stated)
    except PerflexError as fault:
        raise error(fault.message) from fault


def _number(given: Mapping[str, str], column: str, error: Callable[[str], FileFormatError]) -> float:
    value: Any = read_value(given.get(column, ""))
    if isinstance(value, (bool, str)):
        text = f"column {column} must hold a number, not {given.get(column, 'nothing')!r}"
        raise error(text)
    return float(value)


def _whole(given: Mapping[str, str], column: str, error: Callable[[str], FileFormatError]) -> int | None:
    if column not in given:
        return None
    value = _number(given, column, error)
    if value < 1 or value != int(value):
        text = f"column {column} must hold a whole number from 1 on, not {given[column]!r}"
        raise error(text)
    return int(value)


def _warn_of_unused(names: Sequence[str], path: Path) -> None:
    if names:
        shown = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
        msg = f"{path}: no kernel has a size or argument called {shown}; these columns are not used"
        # The line that called `load_times`.
        warn(msg)


_COLUMNS = ("kernel", "seconds", "spread", "repeatability", "device")


def save_times(calibration: CalibrationRecord, path: Path | str) -> int:
    """Write the measured times of a calibration to a CSV file that `load_times` reads; return the number of rows.

    Parameters
    ----------
    calibration
        A calibration. Kernels stand there by their labels: those of generators are known everywhere, of others the
        reader needs functions of these names.
    path
        The file, replaced in one step.

    Raises
    ------
    FileFormatError
        The file cannot be written.
    """
    table = calibration.table
    nothing = [math.nan] * len(table)
    spread, repeated = (nothing if one is None else one.tolist() for one in (table.spread, table.repeatability))
    rows = zip(table.kernels, table.column(calibration.model.output_feature).tolist(), spread, repeated, strict=True)
    device = str(calibration.device.get("name", ""))
    with saving(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for kernel, *numbers in rows:
            # repr, the shortest text of the same number, is what the csv module writes of one.
            cells = ["" if math.isnan(number) else number for number in numbers]
            writer.writerow([kernel, *cells, device])
    return len(table)
