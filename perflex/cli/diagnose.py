"""``perflex diagnose``: what a calibration is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer  # noqa: TC002 - read by typer itself

from perflex.cli.json_output import print_json
from perflex.cli.options import CalibrationArgument, JsonOption, OutFolderOption
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.calibration.diagnosis.result import Diagnosis
    from perflex.cli.terminal import Terminal

_COLOURS = {"problem": "red", "warning": "yellow", "remark": "default"}
_WORST_KERNELS = 10
_STRONGEST = 10


def diagnose(
    context: typer.Context,
    calibration: CalibrationArgument,
    *,
    as_json: JsonOption = False,
    out: OutFolderOption = None,
) -> None:
    """Diagnose a calibration: problems, what determines each parameter, and errors in cross-validation."""
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.diagnosis.judge import diagnose as judge
    from perflex.cli.arguments import require_writable_folder

    terminal = terminal_of(context)
    loaded = Calibration.load(calibration)
    if out is not None:
        require_writable_folder(out, context)
    with terminal.warnings_shown(), terminal.progress("diagnose:") as progress:
        diagnosis = judge(loaded, progress=progress)
    if as_json:
        print_json(diagnosis.as_dict())
    else:
        _show(terminal, diagnosis)
    paths = [] if out is None else _write(loaded, diagnosis, out)
    if paths and not as_json:
        terminal.show_paths(*paths)
    for path in paths if as_json else ():
        # What prints JSON prints nothing beside it.
        terminal.remarks.print(str(path), markup=False, soft_wrap=True)


def _write(calibration: Calibration, diagnosis: Diagnosis, out: Path) -> list[Path]:
    """Write page, pictures, and the times that the calibration rests on; return their paths."""
    from perflex.calibration.diagnosis.pictures import draw_diagnosis
    from perflex.calibration.times.csv_file import save_times
    from perflex.reports.calibration_part import calibration_part
    from perflex.reports.page import write_page

    page, times = out / "report.html", out / "times.csv"
    write_page(page, [calibration_part(calibration, diagnosis)])
    save_times(calibration, times)
    return [page, times, *draw_diagnosis(diagnosis, out)]


def _show(terminal: Terminal, diagnosis: Diagnosis) -> None:
    for finding in diagnosis.findings:
        terminal.show(f"{finding.severity}: {finding.text}", style=_COLOURS[finding.severity])
    if terminal.quiet:
        return
    known = f"{len(diagnosis.kernels)} kernels, {diagnosis.degrees_of_freedom} degrees of freedom"
    terminal.show(f"{known}, condition number {diagnosis.condition_number:.3g}")
    terminal.show_result(diagnosis.error_table())
    terminal.show_result(diagnosis.parameter_table())
    terminal.show_result(diagnosis.kernel_table(), most=_WORST_KERNELS)
    terminal.show_result(diagnosis.generator_table())
    if diagnosis.correlated:
        terminal.show_result(diagnosis.correlation_table(), most=_STRONGEST)
