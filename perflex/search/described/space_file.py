"""Measured spaces on disk: files of Kernel Tuner, KTT and CLBlast's tuners, the T4 result format, and tables."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import FileFormatError
from perflex.file_io import read_packed_text
from perflex.search.described.description import Description, load_description
from perflex.search.described.space import DescribedSpace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.machines.machine import Machine


# Factors to seconds.
_UNITS = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "microseconds": 1e-6}
_UNITS |= {"ns": 1e-9, "nanoseconds": 1e-9}
_TABLE_TIMES = ("time_ms_median", "time_ms")
# Tuners that write a number where a run failed write 0, or one of at least 30 years.
_NO_TIME = 1e9
# A table of some million configurations: what is larger, or unpacks to more, would fill the memory.
_MAX_BYTES = 2**30


def load_described_space(
    path: Path | str,
    description: Description | Path | str,
    *,
    device: str | None = None,
    machine: Machine | None = None,
) -> DescribedSpace:
    """Read configurations of a described kernel with their times, from a tuner's file.

    Configurations that are the same kernel (the same settings, or settings that differ in tunables without effect)
    become one with the median of their times; failed ones and those that break the description's constraints are left
    out. All of that is counted.

    Parameters
    ----------
    path
        What a tuner wrote, as ``.json``: a cache file of Kernel Tuner, a T4 result file, KTT's results or those of a
        tuner of CLBlast (whose ``arg_m`` states the constant ``M``); or a table, ``.csv``, with a column for each
        tunable and ``time_ms_median`` or ``time_ms``. Each also as ``.gz``.
    description
        The kernel's description, its name or its file.
    device
        Name of the device; without, the one in the file.
    machine
        Facts of the device, if it is to be another machine than the name finds.

    Raises
    ------
    FileFormatError
        The file cannot be read or is of no such format, states no unit or an unknown one, lacks a tunable, or holds
        no valid configuration.
    """
    family = description if isinstance(description, Description) else load_description(description)
    path = Path(path)
    text = read_packed_text(path, most=_MAX_BYTES)
    name = path.name.removesuffix(".gz")
    if name.endswith(".csv"):
        # A table states no device: the file's name stands for it.
        rows, stated = _table(text, path), path.name.split(".")[0]
    elif name.endswith(".json"):
        rows, stated = _json(text, path, family)
    else:
        msg = f"{path} is neither .json nor .csv (nor .gz of them); let the tuner write JSON, or convert it"
        raise FileFormatError(msg, path=path)
    found = _joined(list(rows), family, path)
    return replace(found, device=stated if device is None else device, machine=machine)


def _table(text: str, path: Path) -> Iterable[tuple[dict[str, Any], Any]]:
    # Fields longer than 128 KiB, and ends of lines within a field, are errors, in the heading, too.
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        fields = reader.fieldnames or []
        column = next((name for name in _TABLE_TIMES if name in fields), None)
        if column is None:
            wanted = " or ".join(_TABLE_TIMES)
            msg = f"{path} has no column {wanted}; name the column of times with its unit, e.g. time_ms"
            raise FileFormatError(msg, path=path, field="time_ms")
        if twice := [name for name, count in Counter(fields).items() if name and count > 1]:
            msg = f"{path} has two columns {twice[0]}; rename one"
            raise FileFormatError(msg, path=path, field=twice[0])
        for row in reader:
            # DictReader's key of cells without a heading; of a comma at the end of a line they are empty.
            if any(row.get(None, ())):
                msg = (
                    f"{path}, line {reader.line_num}, has more cells than the heading; write numbers with a point, and "
                    "texts with a comma in quotes"
                )
                raise FileFormatError(msg, path=path)
            yield {name: value for name, value in row.items() if name}, _from_ms(row[column])
    except csv.Error as error:
        msg = f"{path}, line {reader.line_num}, is no row of a table: {error}; restore the file"
        raise FileFormatError(msg, path=path) from error


def _json(text: str, path: Path, family: Description) -> tuple[Iterable[tuple[dict[str, Any], Any]], str]:
    try:
        # Deep nesting exhausts the parser's stack: RecursionError instead of ValueError.
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = _unclosed(text, path)
    if isinstance(document, dict) and isinstance(document.get("cache"), dict):
        return _cache_rows(document, path), str(document.get("device_name", ""))
    if isinstance(document, dict) and isinstance(document.get("Results"), list):
        facts = _part(document, "Metadata")
        return _ktt_rows(document["Results"], facts, path), str(facts.get("Device", ""))
    if isinstance(document, dict) and isinstance(document.get("results"), list):
        if any(isinstance(result, dict) and "parameters" in result for result in document["results"][:1]):
            device = document.get("device") or document.get("clblast_device_name", "")
            return _clblast_rows(document, family, path), str(device)
        facts = _part(document, "metadata")
        device = document.get("device_name", facts.get("device", ""))
        return _t4_rows(document["results"], facts, path), str(device)
    msg = (
        f"{path} has neither a 'cache' (Kernel Tuner) nor 'results' (T4, KTT, one of CLBlast's tuners); it is no space "
        "of measured configurations: make a table of it, a CSV file with a column for each tunable and time_ms"
    )
    raise FileFormatError(msg, path=path)


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _unclosed(text: str, path: Path) -> Any:
    # Kernel Tuner appends to its cache and closes the braces only at the end: a tuning that stopped leaves them open.
    for end in ("}}", "}\n}", '"}}}'):
        try:
            return json.loads(text.rstrip().rstrip(",") + end)
        except (ValueError, RecursionError):
            continue
    msg = f"{path} is damaged: it is no JSON; restore it or tune again"
    raise FileFormatError(msg, path=path)


def _cache_rows(document: Mapping[str, Any], path: Path) -> Iterable[tuple[dict[str, Any], Any]]:
    keys = document.get("tune_params_keys")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        msg = f"{path} has no list of names 'tune_params_keys'; it is no cache file of Kernel Tuner"
        raise FileFormatError(msg, path=path, field="tune_params_keys")
    objective = str(document.get("objective", "time"))
    if objective != "time":
        msg = f"{path} was tuned for {objective!r}, not for the time; give a file with times"
        raise FileFormatError(msg, path=path, field="objective")
    for entry in document["cache"].values():
        if isinstance(entry, dict):
            # The median of the runs where they are kept: the "time" of an entry is their mean.
            times = entry.get("times")
            runs = [_number(time) for time in times] if isinstance(times, list) else []
            known = [run for run in runs if run is not None]
            # Kernel Tuner states times in milliseconds (its documentation, "Output").
            time = float(np.median(known)) if known and len(known) == len(runs) else entry.get("time")
            yield {key: entry.get(key) for key in keys}, _from_ms(time)
        else:
            yield dict.fromkeys(keys), None


def _t4_rows(results: list[Any], facts: Mapping[str, Any], path: Path) -> Iterable[tuple[dict[str, Any], Any]]:
    for result in results:
        if not isinstance(result, dict) or not isinstance(result.get("configuration"), dict):
            msg = f"{path} has a result without a configuration; it is no T4 file"
            raise FileFormatError(msg, path=path, field="configuration")
        # The cause stands where the time would: `_joined` counts what is no number as failed.
        if str(result.get("invalidity", "correct")) != "correct":
            yield result["configuration"], str(result["invalidity"])
            continue
        listed = result.get("measurements")
        measurements = listed if isinstance(listed, list) else []
        found = next((m for m in measurements if isinstance(m, dict) and m.get("name") == "time"), None)
        if found is None:
            yield result["configuration"], "not measured"
            continue
        # KTT leaves the measurement's unit empty and states one for the whole file.
        unit = found.get("unit") or facts.get("timeunit")
        yield result["configuration"], _in_seconds(found.get("value"), unit, path)


def _in_seconds(value: Any, unit: Any, path: Path) -> Any:
    named = "" if unit is None else str(unit)
    if named.lower() not in _UNITS:
        msg = f"{path} states the unit {named!r} for a time; known are {', '.join(_UNITS)}: add it to the file"
        raise FileFormatError(msg, path=path, field="unit")
    number = _number(value)
    return "not measured" if number is None else number * _UNITS[named.lower()]


def _ktt_rows(results: list[Any], facts: Mapping[str, Any], path: Path) -> Iterable[tuple[dict[str, Any], Any]]:
    for result in results:
        pairs = result.get("Configuration") if isinstance(result, dict) else None
        if not isinstance(pairs, list) or not all(isinstance(pair, dict) and "Name" in pair for pair in pairs):
            msg = f"{path} has a result without a Configuration of names and values; it is no file of KTT"
            raise FileFormatError(msg, path=path, field="Configuration")
        settings = {str(pair["Name"]): pair.get("Value") for pair in pairs}
        status = str(result.get("Status", "Ok"))
        # Of all kernels that the configuration launches; failed ones state 0, or the largest number there is.
        total = result.get("TotalDuration")
        yield settings, _in_seconds(total, facts.get("TimeUnit"), path) if status == "Ok" else status


def _clblast_rows(document: Mapping[str, Any], family: Description, path: Path) -> Iterable[tuple[dict[str, Any], Any]]:
    # The problem's size, which the file states once: arg_m is the constant M of the description.
    sizes = {name: document[f"arg_{name.lower()}"] for name in family.constants if f"arg_{name.lower()}" in document}
    for result in document["results"]:
        if not isinstance(result, dict) or not isinstance(result.get("parameters"), dict):
            msg = f"{path} has a result without parameters; it is no file of CLBlast's tuners"
            raise FileFormatError(msg, path=path, field="parameters")
        # In milliseconds (CLBlast, src/tuning/tuning.cpp); 0 where a run failed.
        yield {**sizes, **result["parameters"]}, _from_ms(result.get("time"))


def _joined(rows: list[tuple[dict[str, Any], Any]], description: Description, path: Path) -> DescribedSpace:
    excluded: Counter[str] = Counter()
    good: list[tuple[list[float], float, Mapping[str, Any]]] = []
    stated = {name for settings, _ in rows for name in settings}
    names = [*description.tunables, *(name for name in description.constants if name in stated)]
    missing = [name for name in description.tunables if rows and name not in stated]
    if missing:
        msg = f"{path} has no tunable {missing[0]}, which description {description.name!r} needs"
        raise FileFormatError(msg, path=path, field=missing[0])
    for settings, time in rows:
        value, cause = _number(time), ""
        numbers = [number for name in names if (number := _number(settings.get(name))) is not None]
        if len(numbers) < len(names) or not all(map(math.isfinite, numbers)):
            cause = "settings that are no numbers"
        if not cause and not (value is not None and 0 < value < _NO_TIME):
            cause = "failed or without a time"
        if cause:
            excluded[cause] += 1
        elif value is not None:
            good.append((numbers, value, settings))
    if not good:
        causes = ", ".join(f"{count} {cause}" for cause, count in excluded.items()) or "it is empty"
        msg = f"{path} holds no valid configuration: {causes}"
        raise FileFormatError(msg, path=path)
    table, times = np.array([row for row, _, _ in good]), np.array([time for _, time, _ in good])
    valid = _valid(dict(zip(names, table.T, strict=True)), description, path)
    if not valid.all():
        excluded["against the constraints"] += int((~valid).sum())
    rows_kept = [good[number][2] for number in np.flatnonzero(valid)]
    return _kernels(dict(zip(names, table[valid].T, strict=True)), times[valid], rows_kept, description, excluded)


def _from_ms(time: Any) -> float | None:
    number = _number(time)
    return None if number is None else number * _UNITS["ms"]


def _number(value: Any) -> float | None:
    try:
        # An integer of JSON may exceed the range of a float: OverflowError.
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _valid(settings: Mapping[str, NDArray[np.float64]], description: Description, path: Path) -> NDArray[np.bool_]:
    valid = description.valid(settings)
    if not valid.any():
        msg = f"no configuration of {path} fulfils the constraints of description {description.name!r}"
        never = [text for text, holds in description.held(settings) if not holds.any()]
        if never:
            msg += f": none has {' and '.join(never)}"
        raise FileFormatError(msg, path=path)
    return valid


def _kernels(
    settings: Mapping[str, NDArray[np.float64]],
    times: NDArray[np.float64],
    rows: Sequence[Mapping[str, Any]],
    description: Description,
    excluded: Counter[str],
) -> DescribedSpace:
    """Join rows that are one kernel to the description; say in what else they differ."""
    # What the file states for a constant tells problems apart: the same settings of another size are another kernel.
    constants = [column for name, column in settings.items() if name not in description.tunables]
    kernels = np.column_stack([*description.kernels(settings).values(), *constants])
    _, first, number = np.unique(kernels, axis=0, return_index=True, return_inverse=True)
    # numpy 2.0.0 gives the inverse a second axis.
    number = number.ravel()
    if len(first) < len(times):
        others = sorted({name for row in rows for name in row} - {*settings, *_TABLE_TIMES})
        numbers = number.tolist()
        pairs = {name: {(n, str(row.get(name))) for n, row in zip(numbers, rows, strict=True)} for name in others}
        apart = [name for name, found in pairs.items() if len(found) > len(first)]
        but = f" but for {', '.join(apart)}, which the description does not know" if apart else ""
        excluded[f"the same kernel as another{but}"] += len(times) - len(first)
    order = np.argsort(number, kind="stable")
    groups = np.split(times[order], np.flatnonzero(np.diff(number[order])) + 1)
    medians = np.array([np.median(group) for group in groups])
    # In the order of the file, not of the settings' values.
    rank = np.argsort(first)
    return DescribedSpace(
        description,
        {name: column[first[rank]] for name, column in settings.items()},
        times=medians[rank],
        excluded=dict(excluded),
    )
