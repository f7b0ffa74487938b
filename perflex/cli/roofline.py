"""``perflex roofline``: kernels on a GPU's instruction roofline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.arguments import (
    ArgumentError,
    file_and_name,
    read_series,
    require_known_sizes,
    require_writable_folder,
    split_words,
)
from perflex.cli.json_output import print_json, stamped
from perflex.cli.kernel_files import load_work_items
from perflex.cli.options import JsonOption, KernelsArgument, NeededMachineOption, OutFolderOption, RegistersOption
from perflex.cli.terminal import Terminal, sizes_text, terminal_of
from perflex.features.target import using_machine
from perflex.machines.files import load_machine, machine_of_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.analysis.roofline import RooflinePlace
    from perflex.calibration.calibration import Calibration
    from perflex.features.sized_kernel import SizedKernel
    from perflex.machines.machine import Machine


def roofline(
    context: typer.Context,
    words: KernelsArgument,
    *,
    machine: NeededMachineOption,
    time: Annotated[
        str,
        typer.Option(
            metavar="measured[:DEVICE]|predicted|bound",
            autocompletion=lambda: ["measured", "predicted", "bound"],
            help="Times: measured on a device, predicted, or the minimum that the ceilings allow.",
        ),
    ] = "",
    calibration: Annotated[
        Path | None, typer.Option(help="A calibration (a file, or a name), for predicted times and missing ceilings.")
    ] = None,
    registers: RegistersOption = None,
    out: OutFolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Place kernels on the instruction roofline of a GPU: instructions, transactions, walls and the limiter."""
    from perflex.analysis.roofline import ceilings_of, place_of
    from perflex.analysis.roofline_report import absent_lines, ceiling_table, roofline_tables
    from perflex.analysis.roofline_report import as_json as json_of
    from perflex.calibration.calibration import Calibration
    from perflex.features import extract_scop

    terminal = terminal_of(context)
    kind, device = _times(time)
    where = load_machine(machine)
    loaded = None if calibration is None else Calibration.load(calibration)
    jobs = _jobs(words)
    require_writable_folder(out, context)
    ceilings = ceilings_of(where, loaded)
    places = [
        place_of(extract_scop(job.kernel, job.sizes), job.sizes, where, ceilings, name=job.label, registers=registers)
        for job in jobs
    ]
    times, on = [place.bound_s for place in places], ""
    if kind == "measured":
        times, on = _measured(terminal, jobs, device)
    elif kind == "predicted":
        # The times are of what the intensities are of.
        with using_machine(where, registers=registers), terminal.warnings_shown():
            times, on = _predicted(jobs, loaded)
    elif not kind:
        terminal.remark("no times: intensities only; --time measured, predicted or bound gives rates")
    if kind:
        places = [replace(one, seconds=taken, seconds_kind=kind) for one, taken in zip(places, times, strict=True)]
    if on and machine_of_device(on) != where:
        terminal.remark(f"the times are those of {on}, the ceilings those of {where.name}")
    paths = [] if out is None else _write(places, where, on, out)
    if as_json:
        print_json(stamped("perflex-roofline/1", {"device": on or None, **json_of(places, ceilings, where)}))
        return
    terminal.show_result(ceiling_table(ceilings))
    for table in roofline_tables(places):
        terminal.show_result(table.turned())
    terminal.show(*absent_lines(ceilings, places))
    terminal.show_paths(*paths)


def _times(text: str) -> tuple[str, str]:
    """Return which times are asked for, and the device that is named."""
    kind, colon, device = text.partition(":")
    if kind not in {"", "measured", "predicted", "bound"} or (colon and (kind != "measured" or not device)):
        raise ArgumentError(f"--time {text!r} is not understood; write measured, measured:DEVICE, predicted or bound")
    return kind, device


def _jobs(words: list[str]) -> list[SizedKernel]:
    """Return kernels at all their sizes, called by function, or by the whole word where functions have one name."""
    from perflex.features.sized_kernel import SizedKernel

    references, sizes = split_words(words)
    series = read_series(sizes)
    functions = [file_and_name(reference)[1] for reference in references]
    names = functions if len(set(functions)) == len(functions) else references
    kernels = [load_work_items(reference) for reference in references]
    require_known_sizes(series[0], kernels, series[0])
    return [SizedKernel(kernel, given, name) for name, kernel in zip(names, kernels, strict=True) for given in series]


def _measured(terminal: Terminal, jobs: Sequence[SizedKernel], device: str) -> tuple[list[float], str]:
    from perflex.devices.listing import find_device
    from perflex.timing.measuring import measure
    from perflex.timing.options import TimingOptions
    from perflex.timing.results import MeasurementFailure

    on = find_device(device or None)
    terminal.remark(f"device: {on}")
    told_apart = [replace(job, label=f"{job.label} at {sizes_text(job.sizes)}") for job in jobs]
    with terminal.warnings_shown(), terminal.progress("roofline:") as progress:
        outcomes = measure(told_apart, on, TimingOptions(), progress)
    times = []
    for outcome in outcomes:
        if isinstance(outcome, MeasurementFailure):
            raise outcome.error
        times.append(outcome.seconds)
    return times, on.name


def _predicted(jobs: Sequence[SizedKernel], calibration: Calibration | None) -> tuple[list[float], str]:
    if calibration is None:
        raise ArgumentError("predicted times need a calibration; give --calibration FILE, or use --time bound")
    if not calibration.model.output_feature.startswith("f_cl_wall_time"):
        what = calibration.model.output_feature
        raise ArgumentError(f"the calibration predicts {what}, which is not a time; give another --calibration")
    times = [float(calibration.predict(job.kernel, job.sizes)) for job in jobs]
    return times, str(calibration.device.get("name", "a device without a name"))


def _write(places: list[RooflinePlace], machine: Machine, device: str, out: Path) -> list[Path]:
    """Write page and pictures; return their paths."""
    from perflex.analysis.roofline_report import roofline_figures, times_text
    from perflex.pictures import save_figure
    from perflex.reports.page import write_page
    from perflex.reports.roofline_part import roofline_part

    written = [out / "report.html"]
    figures = roofline_figures(
        places, machine, title=f"Instruction roofline, {machine.name}: {times_text(places, device)}"
    )
    for number, figure in enumerate(figures, 1):
        stem = "roofline" if len(figures) == 1 else f"roofline-{number}"
        for kind in ("png", "svg"):
            written.append(out / f"{stem}.{kind}")
            save_figure(figure, written[-1])
    write_page(written[0], [roofline_part(places, machine, device)])
    return written
