"""``perflex diagnose``: what a calibration is worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.arguments import require_writable_folder
from perflex.cli.calibrate import read_times, refuse_options
from perflex.cli.json_output import print_json
from perflex.cli.options import CalibrationArgument, JsonOption, KernelsOption, MachineOption, OutFolderOption
from perflex.cli.terminal import Terminal, terminal_of

if TYPE_CHECKING:
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.diagnosis.result import Diagnosis
    from perflex.studies.judged import Judgement

_COLOURS = {"problem": "red", "warning": "yellow", "remark": "default"}
# Rows of tables that are shown.
_MOST = 10


def diagnose(
    context: typer.Context,
    calibration: CalibrationArgument,
    *,
    times: Annotated[
        Path | None, typer.Option(help="Times that it has not seen, as for 'calibrate', to judge predictions by.")
    ] = None,
    kernels: KernelsOption = None,
    machine: MachineOption = None,
    as_json: JsonOption = False,
    out: OutFolderOption = None,
) -> None:
    """Diagnose a calibration: problems, what determines each parameter, and errors in cross-validation.

    With --times its predictions are compared with times that it has not seen, beside trivial ones.
    """
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.diagnosis.judge import diagnose as diagnosed
    from perflex.studies.judged import judge

    terminal = terminal_of(context)
    if times is None:
        refuse_options(context, "kernels", "machine", why="only for a table of times; name one with --times")
    loaded = Calibration.load(calibration)
    require_writable_folder(out, context)
    with terminal.warnings_shown(), terminal.progress("diagnose:") as progress:
        diagnosis = diagnosed(loaded, progress=progress)
    judged = None
    if times is not None:
        table = read_times(terminal, times, kernels or (), ())
        with terminal.warnings_shown(), terminal.progress("judge:") as progress:
            judged = judge(loaded, table, machine=machine, progress=progress)
    if as_json:
        print_json(diagnosis.as_dict() | ({} if judged is None else {"judgement": judged.as_dict()}))
    else:
        _show(terminal, diagnosis)
        if judged is not None:
            _show_judgement(terminal, judged)
    for path in [] if out is None else _write(loaded, diagnosis, judged, out):
        if as_json:  # which prints nothing beside it
            terminal.remark(str(path))
        else:
            terminal.show_paths(path)


def _write(calibration: Calibration, diagnosis: Diagnosis, judged: Judgement | None, out: Path) -> list[Path]:
    """Write page, pictures, and the times that the calibration rests on; return their paths."""
    from perflex.calibration.diagnosis.pictures import draw_diagnosis
    from perflex.calibration.times.csv_file import save_times
    from perflex.reports.calibration_part import calibration_part
    from perflex.reports.judgement_part import judgement_part
    from perflex.reports.page import write_page

    page, times = out / "report.html", out / "times.csv"
    parts = [calibration_part(calibration, diagnosis)]
    paths = [page, times, *draw_diagnosis(diagnosis, out)]
    if judged is not None:
        parts.append(judgement_part(calibration, judged))
        paths.append(out / "judged.csv")
        judged.row_table().to_csv(paths[-1])
    write_page(page, parts)
    save_times(calibration, times)
    return paths


def _show(terminal: Terminal, diagnosis: Diagnosis) -> None:
    for finding in diagnosis.findings:
        terminal.show(f"{finding.severity}: {finding.text}", style=_COLOURS[finding.severity])
    if terminal.quiet:
        return
    known = f"{len(diagnosis.kernels)} kernels, {diagnosis.degrees_of_freedom} degrees of freedom"
    terminal.show(f"{known}, condition number {diagnosis.condition_number:.3g}")
    terminal.show_result(diagnosis.error_table())
    terminal.show_result(diagnosis.parameter_table())
    terminal.show_result(diagnosis.kernel_table(), most=_MOST)
    terminal.show_result(diagnosis.generator_table())
    if diagnosis.correlated:
        terminal.show_result(diagnosis.correlation_table(), most=_MOST)


def _show_judgement(terminal: Terminal, judged: Judgement) -> None:
    """Print how accurate predictions are, beside trivial ones, by program, and the worst."""
    terminal.show(judged.heading, *judged.doubts)
    terminal.show_result(judged.method_table())
    if not terminal.quiet:
        terminal.show_result(judged.program_table())
        terminal.show_result(judged.row_table(), most=_MOST)
