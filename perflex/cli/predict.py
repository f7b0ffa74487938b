"""``perflex predict``: what a calibration says of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.cluster import device_named
from perflex.cli.json_output import picked, print_json, stamped
from perflex.cli.launches import predictor_of
from perflex.cli.lines import LinesOption, lines_content, require_source, show_lines
from perflex.cli.options import (
    KERNEL_FILES,
    SERIES,
    CachesOption,
    DeviceOption,
    JsonOption,
    LaunchesOption,
    MachineOption,
    OutFolderOption,
    TimeOption,
)
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex.analysis.source_lines import SourceLines
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.prediction import Prediction
    from perflex.cli.terminal import Terminal
    from perflex.features import SourceKernel

_TIMES_OF = {
    "gpu": "the GPU's own durations",
    "queued": "launches back to back",
    "host": "launches that the host waits for",
}
# Costs of a prediction that are shown by name.
_MOST_COSTS = 8


def predict(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CALIBRATION] KERNEL [SIZES]...",
            help=f"A calibration file, unless --machine names a GPU; {KERNEL_FILES}; {SERIES}.",
        ),
    ],
    *,
    machine: MachineOption = None,
    confidence: Annotated[
        float | None,
        typer.Option(min=0.01, max=0.999, help="Show the prediction interval of this confidence, such as 0.95."),
    ] = None,
    launches: LaunchesOption = None,
    caches: CachesOption = None,
    time: TimeOption = False,
    device: DeviceOption = "",
    lines: LinesOption = False,
    as_json: JsonOption = False,
    out: OutFolderOption = None,
) -> None:
    """Predict a kernel's run time at given sizes, and show the contribution of each term of the model.

    With --out the table of predictions is written (predictions.csv), and a page of all that is known (report.html).
    """
    from perflex.cli.arguments import (
        ArgumentError,
        file_and_name,
        read_calibration,
        read_series,
        require_known_sizes,
        require_writable_folder,
    )
    from perflex.cli.kernel_files import load_kernel

    if device and not time:
        msg = "--device says where kernels are timed; give --time, too, or leave it out"
        raise ArgumentError(msg, word=device)
    loaded, rest = read_calibration(words, machine, KERNEL_FILES)
    kernel, *sizes = rest
    unit = load_kernel(kernel)
    source = require_source(unit, kernel) if lines else None
    terminal = terminal_of(context)
    chosen = read_series(sizes)
    require_known_sizes(chosen[0], [unit], chosen[0])
    if out is not None:
        require_writable_folder(out, context)
    given, assumed = len(rest) < len(words), launches is not None or caches is not None
    loaded = predictor_of(unit, loaded, machine, given=given, time=time, assumed=assumed)
    loaded = loaded.assuming(launches=launches, caches=caches)
    # What the model leaves out is said for each size: accesses may depend on it.
    with terminal.warnings_shown():
        file, name = file_and_name(kernel)
        found = [loaded.explain(unit, each, confidence, machine=machine, name=name if file else "") for each in chosen]
        shown = [] if source is None else [_lines(source, one, loaded, machine) for one in found]
        if time:
            from perflex.calibration.device_match import timing_device
            from perflex.calibration.prediction import timed

            with device_named(device, loaded) as on, terminal.progress("time:") as progress:
                where = timing_device(loaded, on, machine=machine, kernels=[unit])
                found = timed(found, unit, where, progress)
    paths = [] if out is None else _write(found, shown, out)
    if as_json:
        of = {"kernel": kernel, "device": dict(loaded.device), "calibrated": loaded.date, "machine": machine}
        if _knows_launches(loaded):
            of |= {"launches": loaded.launches, "caches": loaded.caches}
        entries = [of | _content(one) for one in found]
        for entry, own in zip(entries, shown, strict=False):
            entry["lines"] = lines_content(own)
        print_json([stamped("perflex-prediction/1", entry) for entry in entries])
        return
    _show(terminal, found, shown)
    if _knows_launches(loaded) and not terminal.quiet:
        terminal.show(f"times: {_TIMES_OF[loaded.launches]}; L2 is {loaded.caches} (--launches, --caches)")
    if paths:
        terminal.show_paths(*paths)


def _knows_launches(loaded: Calibration) -> bool:
    return loaded.transferred is not None and loaded.transferred.launches is not None


def _lines(source: SourceKernel, found: Prediction, loaded: Calibration, machine: str | None) -> SourceLines:
    from perflex.analysis.source_lines import source_lines

    return source_lines(source, found.sizes, loaded, machine=machine)


def _content(found: Prediction) -> dict[str, Any]:
    """Return what ``--json`` prints of a prediction."""
    content: dict[str, Any] = {"sizes": found.sizes, "predicted_s": found.seconds}
    content |= picked(found, "knowledge", "doubts", "terms")
    if found.interval is not None:
        content |= {"low_s": found.low, "high_s": found.high, **picked(found, "confidence", "extrapolated")}
    if (timing := found.timing) is not None:
        low, high = timing.interval
        content |= {"measured_s": timing.seconds, "measured_low_s": low, "measured_high_s": high}
        content |= {"disturbed": timing.disturbed, "measured_on": found.measured_on}
    return content | ({"failure": found.failure} if found.failure else {})


def _write(found: Sequence[Prediction], lines: Sequence[SourceLines], out: Path) -> list[Path]:
    """Write a table of the predictions and a page; return their paths."""
    from perflex.calibration.prediction import prediction_table
    from perflex.reports.page import write_page
    from perflex.reports.prediction_part import prediction_part

    table, page = out / "predictions.csv", out / "report.html"
    prediction_table(found).to_csv(table)
    write_page(page, [prediction_part(found, lines)])
    return [table, page]


def _show(terminal: Terminal, found: Sequence[Prediction], lines: Sequence[SourceLines]) -> None:
    from perflex.calibration.prediction import doubt_lines, prediction_table

    terminal.show_result(prediction_table(found))
    terminal.show(*doubt_lines(found))
    terminal.show(*(f"not measured at {one.at}: {one.failure}" for one in found if one.failure))
    terminal.show(*dict.fromkeys(f"measured on {one.measured_on}" for one in found if one.timing is not None))
    if terminal.quiet:
        return
    for place, one in enumerate(found):
        terminal.show_result(one.cost_table(_MOST_COSTS))
        if lines:
            show_lines(terminal, lines[place], indent=2)
