"""Reports of NVIDIA's profilers as tables of times: CSV of Nsight Compute, long or wide, and of ``nsys stats``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perflex.errors import FileFormatError, warn
from perflex.file_io import csv_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

_Row = tuple[int, dict[str, str]]

# How reports that are no text become such.
_EXPORTS = {
    ".ncu-rep": "ncu --import {} --page raw --csv",
    ".nsys-rep": "nsys stats --report cuda_gpu_trace --format csv {}",
    ".qdrep": "nsys stats --report gputrace --format csv {}",
    ".sqlite": "nsys stats --report cuda_gpu_trace --format csv {}",
}
# Nsight Compute's names of a launch's time and registers: those of metrics, and those of the page of details.
_TIMES = ("gpu__time_duration.sum", "gpu__time_duration.avg", "Duration")
_REGISTERS = ("launch__registers_per_thread", "Registers Per Thread")
_DEVICE = "device__attribute_display_name"
_SECONDS = {
    "nsecond": 1e-9,
    "usecond": 1e-6,
    "msecond": 1e-3,
    "second": 1.0,
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
}
_NSYS_TIME = re.compile(r"(Duration|Total Time|Med|Median|Avg|Average) ?\((ns|us|ms|s)\)")
# How other reports of nsys begin, and those that are laid out for reading.
_NSYS = re.compile(r"^ *Time ?\(%\)[ ,]|^ *Start \(ns\)[ ,]", re.MULTILINE)
# Of one launch, where a row has no number of its own as in summaries.
_LAUNCH = ("ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "Device")
_NUMERIC = re.compile(r"[+-]?[\d.,]*\d")
_SHOWN = 6


def refuse_unreadable(path: Path) -> None:
    """Stop at files of other tools that are no tables, with what makes one of them."""
    if path.suffix in _EXPORTS:
        msg = f"{path} is a profiler's own file; export it: {_EXPORTS[path.suffix].format(path.name)} > times.csv"
        raise FileFormatError(msg, path=path)


def refuse_json(path: Path) -> None:
    """Stop at JSON that is none of an autotuner's."""
    if path.name.removesuffix(".gz").endswith(".json"):
        msg = f"{path} is JSON; perflex rank, prune and tune read what tuners write so; make a table of it, a CSV file"
        raise FileFormatError(msg, path=path)


def profiler_rows(text: str, path: Path) -> list[_Row] | None:
    """Return the launches in a profiler's report as rows with ``kernel`` and ``seconds``; None where it is none.

    Sizes are columns that somebody added.
    """
    lines = text.splitlines(keepends=True)
    for place, line in enumerate(lines):
        if "Name" not in line:
            continue
        names = {name.strip().strip('"') for name in line.split(",")}
        of_ncu = "Kernel Name" in names and names & {"ID", "Metric Name"}
        if not of_ncu and not ("Name" in names and names & {"Instances", "GrdX"} and _times_of_nsys(names)):
            continue
        # Nsight Compute writes between the rows and behind them, too. Of several reports of nsys each ends so.
        body = ["\n" if one.startswith("==") else one for one in lines[place:]]
        end = len(body) if of_ncu else next((at for at, one in enumerate(body) if not one.strip()), len(body))
        rows = [(number + place, cells) for number, cells in csv_rows("".join(body[:end]), path)]
        return _of_ncu(rows, path) if of_ncu else _of_nsys(rows, path)
    if _NSYS.search(text) or "==PROF==" in text:
        msg = (
            f"{path} is a profiler's report without a table of kernels' times; write one with nsys stats --report "
            f"cuda_gpu_trace --format csv, or ncu --csv --metrics {_TIMES[0]}"
        )
        raise FileFormatError(msg, path=path)
    return None


def _times_of_nsys(names: Iterable[str]) -> dict[str, re.Match[str]]:
    return {found[1]: found for name in names if (found := _NSYS_TIME.fullmatch(name))}


def _of_nsys(rows: Sequence[_Row], path: Path) -> list[_Row]:
    times = _times_of_nsys(rows[0][1])
    one = next(times[name] for name in ("Duration", "Med", "Median", "Avg", "Average", "Total Time") if name in times)
    found = []
    for line, cells in rows:
        # Copies of memory have no grid.
        if not cells.get("GrdX", "1").strip():
            continue
        row = {"kernel": cells.get("Name", "").strip(), "seconds": _scaled(cells[one[0]], _SECONDS[one[2]], path, line)}
        if one[1] == "Total Time":
            row["launches"] = cells.get("Instances", "")
        if "GrdX" in cells:
            row["registers"] = cells.get("Reg/Trd", "").strip()
            # The number in parentheses tells equal devices apart.
            row["device"] = cells.get("Device", "").strip()
        found.append((line, row | _added(cells)))
    return found


def _scaled(text: str, unit: float, path: Path, line: int) -> str:
    try:
        return repr(float(text) * unit)
    except ValueError:
        msg = f"{path}, line {line}: the time must be a number, not {text!r}; export the report again"
        raise FileFormatError(msg, path=path, line=line) from None


def _of_ncu(rows: Sequence[_Row], path: Path) -> list[_Row]:
    """Return one row of each launch; metrics are rows of their own, or columns with a row of units."""
    launches: dict[tuple[str, ...], tuple[int, dict[str, str], dict[str, tuple[str, str]]]] = {}
    if "Metric Name" in rows[0][1]:
        for line, cells in rows:
            key = tuple(cells.get(name, "") for name in _LAUNCH)
            metrics = launches.setdefault(key, (line, cells, {}))[2]
            value = cells.get("Metric Value", cells.get("Average", ""))
            metrics.setdefault(cells["Metric Name"], (cells.get("Metric Unit", ""), value))
    else:
        units = next((cells for _, cells in rows if not cells.get("ID", "").strip()), {})
        for line, cells in rows:
            if cells.get("ID", "").strip():
                metrics = {name: (units.get(name, ""), value) for name, value in cells.items() if "__" in name}
                launches[(str(line),)] = (line, cells, metrics)
    if not launches:
        msg = f"{path} has no launches; write it with ncu --page raw --csv, or --csv --metrics {_TIMES[0]}"
        raise FileFormatError(msg, path=path)
    mark = _decimal_mark((value for _, _, metrics in launches.values() for _, value in metrics.values()), path)
    several = len({cells.get("Device", "") for _, cells, _ in launches.values()}) > 1
    found = []
    for line, cells, metrics in launches.values():
        registers = next((metrics[name][1] for name in _REGISTERS if name in metrics), "")
        _, device = metrics.get(_DEVICE, ("", f"device {cells.get('Device')}" if several else ""))
        row = {
            "kernel": cells.get("Kernel Name", "").strip(),
            "seconds": repr(_seconds(metrics, mark, path, line)),
            "registers": re.sub(r"\D.*", "", registers.strip()),
            "device": device.strip(),
        }
        found.append((line, row | _added(cells)))
    return found


def _seconds(metrics: Mapping[str, tuple[str, str]], mark: str, path: Path, line: int) -> float:
    name = next((name for name in _TIMES if name in metrics), None)
    if name is None:
        msg = (
            f"{path}, line {line}: the launch has no time; profile with --metrics {_TIMES[0]} or --section SpeedOfLight"
        )
        raise FileFormatError(msg, path=path, line=line)
    unit, text = (part.strip() for part in metrics[name])
    if unit not in _SECONDS:
        msg = (
            f"{path}, line {line}: {name} has the unit {unit!r}; known are {', '.join(_SECONDS)}: add the row of units"
        )
        raise FileFormatError(msg, path=path, line=line)
    value = _value(text, mark, unit)
    if value is None:
        why = "is no number; profile the kernel again"
        if _NUMERIC.fullmatch(text):
            why = "may have a decimal mark or one of thousands; write the report with LC_ALL=C ncu --print-units base"
        msg = f"{path}, line {line}: {name} is {text!r}, which {why}"
        raise FileFormatError(msg, path=path, line=line)
    return value * _SECONDS[unit]


def _value(text: str, mark: str, unit: str) -> float | None:
    """Return a number in the report's notation; None where there is no number, or it may be either of two."""
    if not _NUMERIC.fullmatch(text):
        return None
    if not mark and "." in text:
        # Nsight Compute chooses units in which times are below 1000; nanoseconds are whole.
        mark = "" if unit in {"ns", "nsecond"} else "."
    elif not mark and "," in text:
        mark = "." if unit in {"ns", "nsecond"} else ""
    elif not mark:
        mark = "."
    if not mark:
        return None
    try:
        return float(text.replace("," if mark == "." else ".", "").replace(mark, "."))
    except ValueError:
        return None


def _decimal_mark(texts: Iterable[str], path: Path) -> str:
    """Return the decimal mark of a report, which the system's language chose; empty where no number shows it."""
    marks: set[str] = set()
    for text in texts:
        marked = [letter for letter in text if letter in ".,"]
        if not marked or not _NUMERIC.fullmatch(text.strip()):
            continue
        head, _, tail = text.strip().lstrip("+-").rpartition(marked[-1])
        if len(marked) == 1 and (len(tail) != 3 or len(head) > 3 or head == "0"):
            marks.add(marked[0])
        elif len(marked) > 1:
            # The last of two kinds is decimal; one kind several times groups thousands.
            marks.add(marked[-1] if marked[-1] != marked[0] else ",."[marked[0] == ","])
    if len(marks) > 1:
        msg = f"{path} has numbers with decimal commas and such with decimal points; write it with LC_ALL=C ncu --csv"
        raise FileFormatError(msg, path=path)
    return next(iter(marks), "")


def _added(cells: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that somebody added: the profilers' own have two underlines, as metrics, or these names."""
    own = {"ID", "Context", "Stream", "Device", "CC", "Instances", "Name", "Style", "Invocations", "Minimum", "Maximum"}
    own |= {"Average", "CorrId", "Ctx", "GreenCtx", "Strm", "SrcMemKd", "DstMemKd", "GridXYZ", "BlockXYZ"}
    own |= {f"{kind}{axis}" for kind in ("Grd", "Blk") for axis in "XYZ"}
    return {name: text for name, text in cells.items() if name.isidentifier() and name not in own and "__" not in name}


def described(rows: Sequence[_Row], known: Collection[str], path: Path) -> list[_Row]:
    """Return the launches of known kernels, by their names without types; says which others there are.

    Raises
    ------
    FileFormatError
        None is known, or one name stands for several instances of a template.
    """
    found: list[_Row] = []
    whole: dict[str, str] = {}
    others: dict[str, None] = {}
    for line, cells in rows:
        full = cells["kernel"]
        name = full if full in known else _function(full)
        if name not in known:
            others[name] = None
            continue
        if whole.setdefault(name, full) != full:
            msg = (
                f"{path}, line {line}: {full!r} and {whole[name]!r} are both called {name}; give load_times a "
                "dictionary with their whole names as keys"
            )
            raise FileFormatError(msg, path=path, line=line)
        found.append((line, {**cells, "kernel": name}))
    shown = ", ".join(list(others)[:_SHOWN]) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
    if not found:
        names = ", ".join(known) or "none"
        msg = (
            f"{path} has no launch of a kernel that is given ({names}), but of {shown or 'none'}; call the functions so"
        )
        raise FileFormatError(msg, path=path)
    if others:
        msg = f"{path}: launches of {shown} are left out; no function of these names is given"
        # The line that called `load_times`.
        warn(msg)
    return found


def _function(signature: str) -> str:
    """Return a function's name without its result, namespaces, template arguments and parameters."""
    kept, depth = "", 0
    for letter in signature:
        depth += (letter in "<(") - (letter in ">)")
        if depth == 0 and letter not in ">)":
            kept += letter
    return (kept.split() or [signature])[-1].rpartition("::")[2]
