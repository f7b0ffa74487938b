"""Times that tuners have measured, by settings: files of Kernel Tuner, KTT and CLBlast's tuners, T4, and tables."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from perflex.errors import FileFormatError, warn
from perflex.file_io import read_packed_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Settings, and seconds; None where a run failed.
Row: TypeAlias = "tuple[dict[str, Any], float | None]"
# Factors to seconds.
_UNITS = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "microseconds": 1e-6}
_UNITS |= {"ns": 1e-9, "nanoseconds": 1e-9}
_TABLE_TIMES = ("time_ms_median", "time_ms")
# Tuners that write a number where a run failed write 0, or one of at least 30 years.
_NO_TIME = 1e9
# A table of some million configurations: what is larger, or unpacks to more, would fill the memory.
_MAX_BYTES = 2**30
_TRUTH = {"True": 1.0, "False": 0.0}


def read_times(path: Path) -> tuple[list[Row], str]:
    """Return settings with their seconds, None where a run failed, from a tuner's file; and the device that it states.

    Raises
    ------
    FileFormatError
        The file cannot be read or is of no such format, or states no unit or an unknown one.
    """
    text = read_packed_text(path, most=_MAX_BYTES)
    name = path.name.removesuffix(".gz")
    if name.endswith(".csv"):
        # A table states no device: the file's name stands for it.
        return list(_table(text, path)), path.name.split(".")[0]
    if name.endswith(".json"):
        rows, device = _json(text, path)
        return list(rows), device
    msg = f"{path} is neither .json nor .csv (nor .gz of them); let the tuner write JSON, or convert it"
    raise FileFormatError(msg, path=path)


def measured_times(path: Path | str, names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the seconds of variants by name, from a tuner's file that knows them by their settings.

    Parameters
    ----------
    path
        What a tuner wrote, as ``.json``: a cache file of Kernel Tuner, a T4 result file, KTT's results or those of a
        tuner of CLBlast (whose ``arg_m`` states the parameter ``M``); or a table, ``.csv``, with a column for each
        parameter and ``time_ms_median`` or ``time_ms``. Each also as ``.gz``, with a value of each parameter.
    names, settings
        Of the variants.

    Warns
    -----
    PerflexWarning
        Times are of settings that are no variants.

    Raises
    ------
    FileFormatError
        As `read_times`; or a parameter has no value, or no time is of a variant.
    """
    path = Path(path)
    rows, _ = read_times(path)
    parameters = list(settings[0]) if settings else []
    if not parameters or (missing := [name for name in parameters if rows and name not in rows[0][0]]):
        what = f"no {missing[0]}, by which variants are told apart" if parameters else "settings, and the variants none"
        msg = f"{path} has {what}; give times by the variants' names"
        raise FileFormatError(msg, path=path)
    known = {_key(own, parameters): name for name, own in zip(names, settings, strict=True)}
    times: dict[str, list[float]] = {}
    others = 0
    for given, seconds in rows:
        if seconds is not None and 0 < seconds < _NO_TIME:
            name = known.get(_key(given, parameters))
            others += name is None
            if name is not None:
                times.setdefault(name, []).append(seconds)
    if not times:
        msg = f"{path} has no time of any of the {len(names)} variants, but {others} of other settings; name another"
        raise FileFormatError(msg, path=path)
    if others:
        warn(f"{path}: {others} times are of settings that are none of the {len(names)} variants")
    return {name: float(np.median(each)) for name, each in times.items()}


def _key(settings: Mapping[str, Any], parameters: Sequence[str]) -> tuple[float | str, ...]:
    """Return values that compare alike whether they are numbers or texts of a table."""
    values = [settings.get(name) for name in parameters]
    found = [_TRUTH.get(str(value), _number_or_none(value)) for value in values]
    return tuple(str(value) if number is None else number for value, number in zip(values, found, strict=True))


def _table(text: str, path: Path) -> Iterable[Row]:
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
            yield {name: value for name, value in row.items() if name}, _in_seconds(row[column], "ms", path)
    except csv.Error as error:
        msg = f"{path}, line {reader.line_num}, is no row of a table: {error}; restore the file"
        raise FileFormatError(msg, path=path) from error


def _json(text: str, path: Path) -> tuple[Iterable[Row], str]:
    document = _document(text, path)
    if isinstance(document.get("cache"), dict):
        return _cache_rows(document, path), str(document.get("device_name", ""))
    if isinstance(document.get("Results"), list):
        facts = _part(document, "Metadata")
        return _ktt_rows(document["Results"], facts, path), str(facts.get("Device", ""))
    if isinstance(document.get("results"), list):
        if any(isinstance(result, dict) and "parameters" in result for result in document["results"][:1]):
            device = document.get("device") or document.get("clblast_device_name", "")
            return _clblast_rows(document, path), str(device)
        facts = _part(document, "metadata")
        device = document.get("device_name", facts.get("device", ""))
        return _t4_rows(document["results"], facts, path), str(device)
    msg = (
        f"{path} has neither a 'cache' (Kernel Tuner) nor 'results' (T4, KTT, one of CLBlast's tuners); it is no space "
        "of measured configurations: make a table of it, a CSV file with a column for each tunable and time_ms"
    )
    raise FileFormatError(msg, path=path)


def _document(text: str, path: Path) -> Mapping[str, Any]:
    # Kernel Tuner appends to its cache and closes the braces only at the end: a tuning that stopped leaves them open.
    for content in (text, *(text.rstrip().rstrip(",") + end for end in ("}}", '"}}}'))):
        try:
            found = json.loads(content)
        # Deep nesting exhausts the parser's stack: RecursionError instead of ValueError.
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else {}
    msg = f"{path} is damaged: it is no JSON; restore it or tune again"
    raise FileFormatError(msg, path=path)


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _cache_rows(document: Mapping[str, Any], path: Path) -> Iterable[Row]:
    keys = document.get("tune_params_keys")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        msg = f"{path} has no list of names 'tune_params_keys'; it is no cache file of Kernel Tuner"
        raise FileFormatError(msg, path=path, field="tune_params_keys")
    objective = str(document.get("objective", "time"))
    if objective != "time":
        msg = f"{path} was tuned for {objective!r}, not for the time; give a file with times"
        raise FileFormatError(msg, path=path, field="objective")
    for given in document["cache"].values():
        entry = given if isinstance(given, dict) else {}
        # The median of the runs where they are kept: the "time" of an entry is their mean.
        times = entry.get("times")
        runs = [_number_or_none(time) for time in times] if isinstance(times, list) else []
        known = [run for run in runs if run is not None]
        # Kernel Tuner states times in milliseconds (its documentation, "Output").
        time = float(np.median(known)) if known and len(known) == len(runs) else entry.get("time")
        yield {key: entry.get(key) for key in keys}, _in_seconds(time, "ms", path)


def _results(results: list[Any], field: str, kind: type, path: Path, tool: str) -> Iterable[Any]:
    """Yield the results of a file, in each of which a field has the settings."""
    for result in results:
        if not isinstance(result, dict) or not isinstance(result.get(field), kind):
            msg = f"{path} has a result without {field}; it is no file of {tool}"
            raise FileFormatError(msg, path=path, field=field)
        yield result


def _t4_rows(results: list[Any], facts: Mapping[str, Any], path: Path) -> Iterable[Row]:
    for result in _results(results, "configuration", dict, path, "T4"):
        listed = result.get("measurements")
        measurements = listed if isinstance(listed, list) else []
        found = next((m for m in measurements if isinstance(m, dict) and m.get("name") == "time"), None)
        seconds = None
        if found is not None and str(result.get("invalidity", "correct")) == "correct":
            # KTT leaves the measurement's unit empty and states one for the whole file.
            seconds = _in_seconds(found.get("value"), found.get("unit") or facts.get("timeunit"), path)
        yield result["configuration"], seconds


def _ktt_rows(results: list[Any], facts: Mapping[str, Any], path: Path) -> Iterable[Row]:
    for result in _results(results, "Configuration", list, path, "KTT"):
        pairs = list(_results(result["Configuration"], "Name", str, path, "KTT"))
        # Of all kernels that the configuration launches; failed ones state 0, or the largest number there is.
        total, right = result.get("TotalDuration"), result.get("Status", "Ok") == "Ok"
        seconds = _in_seconds(total, facts.get("TimeUnit"), path) if right else None
        yield {pair["Name"]: pair.get("Value") for pair in pairs}, seconds


def _clblast_rows(document: Mapping[str, Any], path: Path) -> Iterable[Row]:
    # The problem's size, which the file states once: arg_m is the constant M.
    sizes = {name[4:].upper(): value for name, value in document.items() if name.startswith("arg_")}
    for result in _results(document["results"], "parameters", dict, path, "CLBlast's tuners"):
        # In milliseconds (CLBlast, src/tuning/tuning.cpp); 0 where a run failed.
        yield {**sizes, **result["parameters"]}, _in_seconds(result.get("time"), "ms", path)


def _in_seconds(value: Any, unit: Any, path: Path) -> float | None:
    named = "" if unit is None else str(unit)
    if named.lower() not in _UNITS:
        msg = f"{path} states the unit {named!r} for a time; known are {', '.join(_UNITS)}: add it to the file"
        raise FileFormatError(msg, path=path, field="unit")
    number = _number_or_none(value)
    return None if number is None else number * _UNITS[named.lower()]


def _number_or_none(value: Any) -> float | None:
    """Return a number of a file; None of what is none."""
    try:
        # An integer of JSON may exceed the range of a float: OverflowError.
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
