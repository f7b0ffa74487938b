"""``perflex diagnose``, ``report``, ``export-times``: what a calibration is worth, and what files hold."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.json_output import print_json
from perflex.cli.options import CalibrationArgument, JsonOption, OutFileOption, OutFolderOption
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from perflex.calibration.diagnosis.result import Diagnosis, ParameterDiagnosis
    from perflex.cli.terminal import Terminal

_COLOURS = {"problem": "red", "warning": "yellow", "remark": "default"}
_PARAMETERS = ("parameter", "value", "std. error", "unit", "remark", "determined mainly by")
_KERNELS = ("error", "left out", "leverage", "studentised", "Cook's distance", "kernel")
_GENERATORS = ("generator", "kernels", "error in the fit", "error held out", "bias held out", "remark")
_WORST_KERNELS = 10
_STRONGEST = 10
# Share of what is known of a parameter below which a generator is not named.
_WORTH_NAMING = 0.05


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
    from perflex.calibration.diagnosis.pictures import draw_diagnosis
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
    paths = draw_diagnosis(diagnosis, out) if out is not None else []
    if paths and not as_json:
        terminal.show_paths(*paths)
    for path in paths if as_json else ():
        # What prints JSON prints nothing beside it.
        terminal.remarks.print(str(path), markup=False, soft_wrap=True)


def _show(terminal: Terminal, diagnosis: Diagnosis) -> None:
    for finding in diagnosis.findings:
        terminal.show(f"{finding.severity}: {finding.text}", style=_COLOURS[finding.severity])
    if terminal.quiet:
        return
    terminal.show(_summary(diagnosis))
    terminal.show_table(_PARAMETERS, _parameters(diagnosis), title="Parameters")
    shown = f"Worst {min(_WORST_KERNELS, len(diagnosis.kernels))} of {len(diagnosis.kernels)} kernels"
    terminal.show_table(_KERNELS, _kernels(diagnosis), title=shown)
    title = "Cross-validation: each generator predicted from the other generators"
    terminal.show_table(_GENERATORS, _generators(diagnosis), title=title)
    if diagnosis.correlated:
        rows = [(p.first, p.second, f"{p.correlation:+.3f}") for p in diagnosis.correlated[:_STRONGEST]]
        terminal.show_table(("parameter", "parameter", "correlation"), rows, title="Strongly correlated estimates")


def _summary(diagnosis: Diagnosis) -> str:
    from perflex.fit.result import describe_errors

    inside, outside = (
        describe_errors([getattr(kernel, name) for kernel in diagnosis.kernels])
        for name in ("relative_error", "leave_one_out_error")
    )
    errors = {
        "in the fit": diagnosis.error,
        "leave-one-out": diagnosis.leave_one_out_error,
        "cross-validation by generator, where the others determine the parameters": diagnosis.cross_validation_error,
    }
    shown = ", ".join(f"{_percent(error)} {how}" for how, error in errors.items() if not math.isnan(error))
    return "\n".join(
        [
            f"{len(diagnosis.kernels)} kernels, {diagnosis.degrees_of_freedom} degrees of freedom",
            f"relative errors, root mean square: {shown}",
            f"in the fit: {inside}",
            f"leave-one-out: {outside}",
            f"condition number {_number(diagnosis.condition_number, '.3g')}",
        ]
    )


def _parameters(diagnosis: Diagnosis) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for p in diagnosis.parameters:
        error = "" if math.isnan(p.standard_error) else f"{p.standard_error:.2g} ({_percent(_share(p))})"
        rows.append((p.name, f"{p.value:.4g}", error, p.unit or "?", p.flags, _informants(p)))
    return rows


def _share(parameter: ParameterDiagnosis) -> float:
    return parameter.standard_error / abs(parameter.value) if parameter.value else math.nan


def _informants(parameter: ParameterDiagnosis) -> str:
    """Return the generators that say most of a parameter; of one at its bound, where it would be without."""
    if not math.isnan(parameter.released_value):
        return f"without bound {parameter.released_value:.2g} +- {parameter.released_error:.2g}"
    shown = [f"{i.name} {100 * i.share:.0f} %" for i in parameter.generators[:2] if i.share >= _WORTH_NAMING]
    needed = [i.name for i in parameter.generators if math.isinf(i.error_ratio)]
    return ", ".join(shown) + (f"; undetermined without {', '.join(needed)}" if needed else "")


def _kernels(diagnosis: Diagnosis) -> list[tuple[str, ...]]:
    return [
        (
            _percent(k.relative_error, sign=True),
            _percent(k.leave_one_out_error, sign=True),
            _number(k.leverage, ".2f"),
            _number(k.studentised, "+.1f"),
            _number(k.cooks_distance, ".2g"),
            k.name,
        )
        for k in sorted(diagnosis.kernels, key=lambda kernel: -abs(kernel.relative_error))[:_WORST_KERNELS]
    ]


def _generators(diagnosis: Diagnosis) -> list[tuple[str, ...]]:
    return [
        (
            g.name,
            str(g.kernels),
            _percent(g.error),
            _percent(g.cross_validation_error),
            _percent(g.cross_validation_bias, sign=True),
            f"the only one that determines {', '.join(g.undetermined)}" if g.undetermined else g.reason,
        )
        for g in diagnosis.generators
    ]


def _percent(value: float, *, sign: bool = False) -> str:
    return "" if math.isnan(value) else f"{100 * value:{'+' if sign else ''}.1f} %"


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)


def report(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Calibrations (files, or names of those of perflex), folders of 'perflex evaluate', output of "
            "'perflex predict --json', 'perflex prune --json' and 'perflex roofline --json'."
        ),
    ],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", help="HTML file to write.")] = Path("report.html"),
) -> None:
    """Write one HTML page of results: warnings, tables to sort, pictures, and where the numbers come from.

    The page needs nothing beside it and no network.
    """
    from perflex.cli.arguments import require_writable_file
    from perflex.reports.make import write_report

    terminal = terminal_of(context)
    require_writable_file(out)
    with terminal.warnings_shown(), terminal.progress("report:") as progress:
        write_report(files, out, progress=progress)
    terminal.show_paths(out)


def export_times(context: typer.Context, calibration: CalibrationArgument, *, out: OutFileOption) -> None:
    """Write the measured times of a calibration as a table that 'perflex calibrate --times' takes elsewhere."""
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.times.csv_file import save_times
    from perflex.cli.arguments import require_writable_file

    require_writable_file(out)
    rows = save_times(Calibration.load(calibration), out)
    terminal = terminal_of(context)
    terminal.remarks.print(f"{rows} times", markup=False)
    terminal.show_paths(out)
