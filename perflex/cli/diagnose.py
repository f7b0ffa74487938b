"""``perflex diagnose``: what a calibration's parameters rest on, and what its predictions are worth."""

from __future__ import annotations

import math
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.json_output import print_json
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from perflex.calibration.diagnosis.result import Diagnosis, ParameterDiagnosis

_COLOURS = {"problem": "red", "warning": "yellow", "remark": "default"}
_WORST_KERNELS = 10
_STRONGEST = 10
# Share of what is known of a parameter below which a generator is not named.
_WORTH_NAMING = 0.05


def diagnose(
    context: typer.Context,
    calibration: Annotated[Path, typer.Argument(help="A calibration file.")],
    *,
    against: Annotated[
        list[Path] | None,
        typer.Option("--against", help="Calibration of another model from the same measurements; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for pictures; made if it is not there.")] = None,
) -> None:
    """Judge a calibration: what is wrong, what its parameters rest on, how it predicts what it has not seen."""
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.diagnosis.compare import aicc_differences
    from perflex.calibration.diagnosis.judge import diagnose as judge
    from perflex.calibration.diagnosis.pictures import draw_diagnosis
    from perflex.cli.arguments import require_writable_folder

    terminal = terminal_of(context)
    loaded = {str(path): Calibration.load(path) for path in (calibration, *(against or ()))}
    if out is not None:
        require_writable_folder(out)
    differences = aicc_differences(loaded) if against else {}
    with terminal.warnings_shown(), terminal.progress("diagnose:") as progress:
        diagnosis = judge(loaded[str(calibration)], progress=progress)
    if as_json:
        content = diagnosis.as_dict()
        if differences:
            content["aicc_differences"] = differences
        print_json(content)
    else:
        _show(terminal.output, diagnosis, quiet=terminal.quiet)
        for name, value in sorted(differences.items(), key=lambda entry: entry[1]):
            terminal.output.print(f"AICc above the best: {_number(value, '.1f')}  {name}", markup=False, soft_wrap=True)
    paths = draw_diagnosis(diagnosis, out) if out is not None else []
    for path in paths:
        # What prints JSON prints nothing beside it.
        (terminal.remarks if as_json else terminal.output).print(str(path), markup=False, soft_wrap=True)


def _show(output: Console, diagnosis: Diagnosis, *, quiet: bool) -> None:
    for finding in diagnosis.findings:
        text = f"{finding.severity}: {finding.text}"
        output.print(text, style=_COLOURS[finding.severity], markup=False, soft_wrap=True)
    if quiet:
        return
    output.print(_summary(diagnosis), markup=False, soft_wrap=True)
    tables = [_parameters(diagnosis), _kernels(diagnosis), _generators(diagnosis)]
    for table in [*tables, _correlations(diagnosis)] if diagnosis.correlated else tables:
        output.print(table)


def _summary(diagnosis: Diagnosis) -> str:
    from perflex.fit.result import describe_errors

    inside, outside = (
        describe_errors([getattr(kernel, name) for kernel in diagnosis.kernels])
        for name in ("relative_error", "left_out_error")
    )
    errors = {
        "in the fit": diagnosis.error,
        "each kernel predicted without itself": diagnosis.left_out_error,
        "each without its generator, where the others allow it": diagnosis.held_out_error,
    }
    shown = ", ".join(f"{_percent(error)} {how}" for how, error in errors.items() if not math.isnan(error))
    return "\n".join(
        [
            f"{len(diagnosis.kernels)} kernels, {diagnosis.degrees_of_freedom} more than parameters to determine",
            f"relative errors, root mean square: {shown}",
            f"in the fit: {inside}",
            f"each kernel predicted without itself: {outside}",
            f"condition number {_number(diagnosis.condition_number, '.3g')}, AICc {_number(diagnosis.aicc, '.1f')}",
        ]
    )


def _parameters(diagnosis: Diagnosis) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Parameters")
    for heading in ("parameter", "value", "std. error", "unit", "", "known most from"):
        table.add_column(heading, justify="right" if heading in {"value", "std. error"} else "left")
    for p in diagnosis.parameters:
        error = "" if math.isnan(p.standard_error) else f"{p.standard_error:.2g} ({_percent(_share(p))})"
        table.add_row(p.name, f"{p.value:.4g}", error, escape(p.unit or "?"), p.flags, escape(_informants(p)))
    return table


def _share(parameter: ParameterDiagnosis) -> float:
    return parameter.standard_error / abs(parameter.value) if parameter.value else math.nan


def _informants(parameter: ParameterDiagnosis) -> str:
    """Return the generators that say most of a parameter; of one at its bound, where it would be without."""
    if not math.isnan(parameter.released_value):
        return f"without bound {parameter.released_value:.2g} +- {parameter.released_error:.2g}"
    shown = [f"{i.name} {100 * i.share:.0f} %" for i in parameter.generators[:2] if i.share >= _WORTH_NAMING]
    needed = [i.name for i in parameter.generators if math.isinf(i.growth)]
    return ", ".join(shown) + (f"; not without {', '.join(needed)}" if needed else "")


def _kernels(diagnosis: Diagnosis) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"Worst {min(_WORST_KERNELS, len(diagnosis.kernels))} of {len(diagnosis.kernels)} kernels")
    for heading in ("error", "left out", "leverage", "studentised", "Cook's distance", "kernel"):
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    for k in sorted(diagnosis.kernels, key=lambda kernel: -abs(kernel.relative_error))[:_WORST_KERNELS]:
        table.add_row(
            _percent(k.relative_error, sign=True),
            _percent(k.left_out_error, sign=True),
            _number(k.leverage, ".2f"),
            _number(k.studentised, "+.1f"),
            _number(k.cooks_distance, ".2g"),
            escape(k.name),
        )
    return table


def _generators(diagnosis: Diagnosis) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Cross-validation: each generator predicted from the others")
    for heading in ("generator", "kernels", "error in the fit", "error held out", "bias held out", "remark"):
        table.add_column(heading, justify="left" if heading in {"generator", "remark"} else "right")
    for g in diagnosis.generators:
        remark = f"only it determines {', '.join(g.undetermined)}" if g.undetermined else g.reason
        table.add_row(
            escape(g.name),
            str(g.kernels),
            _percent(g.error),
            _percent(g.held_out_error),
            _percent(g.held_out_bias, sign=True),
            escape(remark),
        )
    return table


def _correlations(diagnosis: Diagnosis) -> Table:
    from rich.table import Table

    table = Table(title="Estimates that move together")
    for heading in ("parameter", "parameter", "correlation"):
        table.add_column(heading, justify="right" if heading == "correlation" else "left")
    for pair in diagnosis.correlated[:_STRONGEST]:
        table.add_row(pair.first, pair.second, f"{pair.correlation:+.3f}")
    return table


def _percent(value: float, *, sign: bool = False) -> str:
    return "" if math.isnan(value) else f"{100 * value:{'+' if sign else ''}.1f} %"


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)
