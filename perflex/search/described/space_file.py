"""Measured spaces on disk: files of Kernel Tuner, KTT and CLBlast's tuners, the T4 result format, and tables."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import FileFormatError
from perflex.search.described.description import Description, load_description
from perflex.search.described.space import DescribedSpace
from perflex.search.measured_times import NO_TIME, TABLE_TIMES, number_or_none, read_times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.machines.machine import Machine


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
    rows, stated = read_times(path)
    found = _joined(rows, family, path)
    return replace(found, device=stated if device is None else device, machine=machine)


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
        value, cause = number_or_none(time), ""
        numbers = [number for name in names if (number := number_or_none(settings.get(name))) is not None]
        if len(numbers) < len(names) or not all(map(math.isfinite, numbers)):
            cause = "settings that are no numbers"
        if not cause and not (value is not None and 0 < value < NO_TIME):
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
        others = sorted({name for row in rows for name in row} - {*settings, *TABLE_TIMES})
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
