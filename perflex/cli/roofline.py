"""``perflex roofline``: kernels on a GPU's instruction roofline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.json_output import print_json, stamped
from perflex.cli.options import JsonOption, KernelsArgument, NeededMachineOption, OutFolderOption, RegistersOption
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.analysis.roofline import RooflinePlace
    from perflex.calibration.calibration import Calibration
    from perflex.cli.terminal import Terminal
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
    from perflex.cli.arguments import require_known_sizes, require_writable_folder
    from perflex.features import extract_scop
    from perflex.features.target import using_machine
    from perflex.machines.files import load_machine, machine_of_device

    terminal = terminal_of(context)
    kind, device = _times(time)
    where = load_machine(machine)
    loaded = None if calibration is None else Calibration.load(calibration)
    kernels, sizes = _kernels(words)
    if out is not None:
        require_writable_folder(out, context)
    ceilings = ceilings_of(where, loaded)
    scops = {name: extract_scop(kernel, sizes) for name, kernel in kernels.items()}
    require_known_sizes(sizes, [*scops.values(), *kernels.values()], sizes)
    places = [place_of(scop, sizes, where, ceilings, name=name, registers=registers) for name, scop in scops.items()]
    on = ""
    if kind == "measured":
        places, on = _measured(terminal, kernels, places, device)
    elif kind == "predicted":
        # The times are of what the intensities are of.
        with using_machine(where, registers=registers):
            places, on = _predicted(terminal, kernels, places, loaded)
    elif kind == "bound":
        places = [replace(place, seconds=place.bound_s, seconds_kind="bound") for place in places]
    else:
        terminal.remarks.print("no times: intensities only; --time measured, predicted or bound gives rates")
    if on and machine_of_device(on) != where:
        text = f"the times are those of {on}, the ceilings those of {where.name}"
        terminal.remarks.print(text, markup=False, soft_wrap=True)
    paths = [] if out is None else _write(places, where, on, out)
    if as_json:
        print_json(stamped("perflex-roofline/1", {"device": on or None, **json_of(places, ceilings, where)}))
        return
    terminal.show_result(ceiling_table(ceilings))
    for table in roofline_tables(places):
        terminal.show_result(table.turned())
    terminal.show(*absent_lines(ceilings, places))
    if paths:
        terminal.show_paths(*paths)


def _times(text: str) -> tuple[str, str]:
    """Return which times are asked for, and the device that is named."""
    from perflex.cli.arguments import ArgumentError

    kind, colon, device = text.partition(":")
    if kind not in {"", "measured", "predicted", "bound"} or (colon and (kind != "measured" or not device)):
        raise ArgumentError(f"--time {text!r} is not understood; write measured, measured:DEVICE, predicted or bound")
    return kind, device


def _kernels(words: list[str]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return kernels by function, or by the whole word where functions have one name; and the sizes."""
    from perflex.cli.arguments import file_and_name, read_kernels_and_sizes
    from perflex.cli.kernel_files import load_work_items

    references, sizes = read_kernels_and_sizes(words)
    functions = [file_and_name(reference)[1] for reference in references]
    names = functions if len(set(functions)) == len(functions) else references
    return {name: load_work_items(word) for name, word in zip(names, references, strict=True)}, sizes


def _measured(
    terminal: Terminal, kernels: Mapping[str, Any], places: list[RooflinePlace], device: str
) -> tuple[list[RooflinePlace], str]:
    from perflex.devices.listing import find_device
    from perflex.errors import MeasurementError
    from perflex.features.sized_kernel import SizedKernel
    from perflex.timing.measuring import measure
    from perflex.timing.options import TimingOptions
    from perflex.timing.results import MeasurementFailure

    on = find_device(device or None)
    terminal.remarks.print(f"device: {on}", markup=False)
    jobs = [SizedKernel(kernels[place.name], dict(place.sizes), place.name) for place in places]
    with terminal.warnings_shown(), terminal.progress("roofline:") as progress:
        outcomes = measure(jobs, on, TimingOptions(), progress)
    timed = []
    for place, outcome in zip(places, outcomes, strict=True):
        if isinstance(outcome, MeasurementFailure):
            msg = f"{place.name} was not timed: {outcome.reason}"
            raise MeasurementError(msg, kernel=place.name)
        timed.append(replace(place, seconds=outcome.seconds, seconds_kind="measured"))
    return timed, on.name


def _predicted(
    terminal: Terminal, kernels: Mapping[str, Any], places: list[RooflinePlace], calibration: Calibration | None
) -> tuple[list[RooflinePlace], str]:
    from perflex.cli.arguments import ArgumentError

    if calibration is None:
        raise ArgumentError("predicted times need a calibration; give --calibration FILE, or use --time bound")
    if not calibration.model.output_feature.startswith("f_cl_wall_time"):
        what = calibration.model.output_feature
        raise ArgumentError(f"the calibration predicts {what}, which is not a time; give another --calibration")
    with terminal.warnings_shown():
        times = [float(calibration.predict(kernels[p.name], p.sizes)) for p in places]
    timed = [replace(p, seconds=one, seconds_kind="predicted") for p, one in zip(places, times, strict=True)]
    return timed, str(calibration.device.get("name", "a device without a name"))


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
