"""``perflex time``: how long kernels take, without a calibration."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from perflex.cli.cluster import device_named
from perflex.cli.json_output import picked, print_json
from perflex.cli.options import KERNEL_FILES, SERIES, DeviceOption, JsonOption, TrialsOption
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.tables import Table
    from perflex.timing.results import Measured

# By which fraction a steady clock may vary.
_STEADY = 0.03


def time(
    context: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="KERNEL... [SIZES]...", help=f"Of each kernel {KERNEL_FILES}; {SERIES}.")
    ],
    *,
    device: DeviceOption = "",
    caches: Annotated[
        Literal["warm", "cold"],
        typer.Option(help="What a launch finds in caches: what the one before left, or none of its data."),
    ] = "warm",
    arrays: Annotated[
        list[str] | None,
        typer.Option("--array", metavar="NAME=FILE.npy", help="Data of an array; else made up. May be repeated."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Kernels whose results differ from those of the first one fail.")
    ] = False,
    trials: TrialsOption = 60,
    as_json: JsonOption = False,
) -> None:
    """Time kernels side by side, as 'calibrate' does: medians of undisturbed samples, with intervals of 95 %.

    Kernels run in processes of their own, so that one that crashes or does not end fails alone. The exit code is 1
    where a kernel failed.
    """
    from perflex.cli.arguments import (
        ArgumentError,
        file_and_name,
        read_pairs,
        read_series,
        require_known_sizes,
        split_words,
    )
    from perflex.cli.kernel_files import load_work_items
    from perflex.features.sized_kernel import SizedKernel
    from perflex.timing.options import TimingOptions
    from perflex.timing.time_kernels import time_kernels

    references, sizes = split_words(words)
    if not references:
        raise ArgumentError("there is no kernel to time; give one, such as my.cl:name")
    series = read_series(sizes)
    functions = [file_and_name(reference)[1] for reference in references]
    names = functions if len(set(functions)) == len(functions) else references
    kernels = [load_work_items(reference) for reference in references]
    require_known_sizes(series[0], kernels, series[0])
    data = {name: _loaded(Path(file)) for name, file in read_pairs(arrays or (), "--array", "x=x.npy").items()}
    terminal = terminal_of(context)
    at = [", ".join(f"{name}={value}" for name, value in each.items()) for each in series]
    jobs = [
        SizedKernel(kernel, each, f"{name} {where}".strip(), name)
        for each, where in zip(series, at, strict=True)
        for name, kernel in zip(names, kernels, strict=True)
    ]
    options = TimingOptions(trials=trials, min_trials=min(5, trials), caches=caches)
    with terminal.warnings_shown(), device_named(device) as on, terminal.progress("time:") as progress:
        found = time_kernels(jobs, on, options, arrays=data, answer=True if check else None, progress=progress)
    if as_json:
        print_json(_content(jobs, found))
    else:
        if found.timings:
            terminal.show_result(_table(jobs, found))
        terminal.show(*(one.reason for one in found.failures), *_remarks(found))
    if found.failures:
        raise typer.Exit(1)


def _loaded(path: Path) -> Any:
    import numpy as np

    from perflex.cli.arguments import ArgumentError

    try:
        # No pickles: they run code.
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        msg = f"cannot read {path} as an array of numpy: {error}; write it with numpy.save"
        raise ArgumentError(msg, word=str(path)) from error


# Of a `Timing`, as they are called in JSON.
_FACTS = (
    "launches", "repeatability", "precise", "disturbed_samples", "disturbed", "clock_hz", "other_processes",
)  # fmt: skip


def _content(jobs: Sequence[Any], found: Measured) -> list[dict[str, Any]]:
    from perflex.timing.results import MeasurementFailure

    rows = []
    for job, one in zip(jobs, found, strict=True):
        row: dict[str, Any] = {"kernel": job.group, "sizes": dict(job.sizes)}
        if isinstance(one, MeasurementFailure):
            nothing = dict.fromkeys(("measured_s", "low_s", "high_s", "samples", *_FACTS))
            rows.append(row | nothing | {"failure": one.reason, "kind": one.kind})
        else:
            low, high = one.interval
            times = {"measured_s": one.seconds, "low_s": low, "high_s": high, "samples": len(one.samples)}
            rows.append(row | times | picked(one, *_FACTS))
    return rows


def _remarks(found: Measured) -> list[str]:
    """Return what speaks against the times, of all kernels together."""
    clocks = [clock for one in found.timings for clock in one.clock_hz if not math.isnan(clock)]
    others = max((one.other_processes for one in found.timings), default=0)
    told = []
    if clocks and max(clocks) > (1 + _STEADY) * min(clocks):
        told.append(f"the GPU's clock was between {min(clocks) / 1e6:.0f} and {max(clocks) / 1e6:.0f} MHz")
    if others:
        told.append(f"{others} other processes had the GPU open")
    return told


def _table(jobs: Sequence[Any], found: Measured) -> Table:
    from perflex.tables import Table, fixed, percent, seconds, text
    from perflex.timing.results import Timing

    sizes = dict.fromkeys(name for job in jobs for name in job.sizes)
    columns = [
        text("kernel"), *(fixed(name) for name in sizes), seconds("measured_s"), seconds("low_s", "from"),
        seconds("high_s", "to"), percent("repeatability"), fixed("samples"), fixed("disturbed_samples", "disturbed"),
    ]  # fmt: skip
    rows = []
    for job, one in zip(jobs, found, strict=True):
        row = (job.group, *(job.sizes.get(name) for name in sizes))
        if isinstance(one, Timing):
            times = one.seconds, *one.interval, one.repeatability, len(one.samples), one.disturbed_samples
            rows.append((*row, *times))
        else:
            rows.append((*row, *(None,) * 6))
    return Table("", columns, rows)
