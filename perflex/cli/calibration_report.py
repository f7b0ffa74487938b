"""What ``perflex calibrate`` prints of a calibration: parameters, errors, and how it was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.cli.columns import Column
from perflex.cli.json_output import as_json as as_plain
from perflex.cli.json_output import picked, print_json
from perflex.cli.noise_floor import noise_floor_lines

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.cli.terminal import Terminal


def show_calibration(
    terminal: Terminal, calibration: Calibration, out: Path, scale: float = 1.0, *, as_json: bool = False
) -> None:
    """Print a calibration that was written to a file; `scale` as of `ReadyModel.kernels`."""
    if as_json:
        print_json(calibration_content(calibration, out))
        return
    if not terminal.quiet:
        show_parameters(terminal, calibration)
        terminal.show(*_remarks(calibration, scale))
    terminal.show_paths(out)


def calibration_content(calibration: Calibration, out: Path) -> dict[str, Any]:
    """Return what ``--json`` says of a calibration that was written to a file."""
    fit = calibration.fit
    return {
        "path": out,
        **picked(calibration, "device", "machine", "date", "noise_floor", "dropped"),
        "expression": calibration.model.expression,
        "parameters": [{**as_plain(one), "flags": one.flags} for one in fit.parameters],
        **picked(fit, "kernels", "relative_errors", "geometric_mean_error", "residual_norm", "condition_number"),
        **picked(fit, "degrees_of_freedom", "undetermined", "no_overlap"),
        "valid": fit.status.valid,
    }


_COLUMNS = (
    Column("parameter", left=True),
    Column("value"),
    Column("std. error"),
    Column("unit", left=True, wraps=True),
    Column("rate", spare=1),
    Column("remark", left=True, wraps=True),
)


def show_parameters(terminal: Terminal, calibration: Calibration) -> None:
    """Print the table of a calibration's parameters."""
    rows = []
    for p in calibration.fit.parameters:
        rate = "" if p.rate is None else f"{p.rate:.3g} {p.rate_unit}"
        rows.append((p.name, f"{p.value:.4g}", f"{p.standard_error:.2g}", p.unit or "?", rate, p.flags))
    terminal.show_table(_COLUMNS, rows, title="Parameters")


def _remarks(calibration: Calibration, scale: float) -> list[str]:
    from perflex.fit.result import describe_errors

    fit = calibration.fit
    overall = f"relative error in the fit: {describe_errors(fit.relative_errors)}"
    lines = [f"{len(fit.kernels)} measurement kernels, {overall}; residual {fit.residual_norm:.3g}"]
    if fit.loss != "squared":
        lines.append(f"loss {fit.loss}: rows with errors of more than {100 * (fit.loss_scale or 0):.2g} % count less")
    if fit.no_overlap:
        lines.append(f"no overlap was found: all costs are added ({', '.join(fit.no_overlap)} = 0)")
    by_generator: dict[str, list[float]] = {}
    for kernel, error in zip(fit.kernels, fit.relative_errors, strict=True):
        by_generator.setdefault(kernel.partition("(")[0], []).append(error)
    for generator, errors in by_generator.items():
        worst = max(errors, key=abs)
        mean = sum(map(abs, errors)) / len(errors)
        lines.append(f"  {generator}: {len(errors)} kernels, mean error {100 * mean:.1f} %, worst {100 * worst:+.1f} %")
    if calibration.options.get("device_time_budget_s") is not None:
        lines += _spending(calibration)
    lines += _timing(calibration)
    lines += noise_floor_lines(calibration)
    if calibration.learned is not None:
        lines.append(str(calibration.learned))
    if scale != 1.0:
        lines.append(
            f"sizes are scaled for a device {scale:.2g} times as fast as the model file's (--fixed-sizes "
            "keeps the file's)"
        )
    lines += [f"left out: {label}: {reason}" for label, reason in calibration.dropped]
    return lines


def _timing(calibration: Calibration) -> list[str]:
    """Return what there is to say about how measuring went."""
    timed, lines = calibration.timing, []
    if affinity := calibration.options.get("affinity"):
        lines.append(f"workers' processors: {affinity}")
    if timed is None:
        return [*lines, *_disturbance(calibration)]
    if timed.samples_resumed:
        lines.append(f"{timed.samples_resumed} samples are from a run of this calibration that was cut short")
    kernels, precision = len(calibration.fit.kernels), 100 * calibration.options["precision"]
    statistic = str(calibration.options["statistic"]).replace("_", " ")
    lines.append(f"{statistic} known to {precision:g} % for {timed.kernels_precise} of {kernels} kernels")
    lines += _disturbance(calibration)
    if timed.stray_samples:
        lines.append(f"stray samples: {timed.stray_samples}")
    if timed.drift_ratio != 1.0:
        done = (
            "corrected"
            if timed.drift_corrected
            else "not corrected, because the correction would not reduce the spread"
        )
        lines.append(f"drift: reference kernels varied by {100 * (timed.drift_ratio - 1):.1f} % over time; {done}")
    return lines


def _disturbance(calibration: Calibration) -> list[str]:
    from perflex.calibration.acceptance import kernels_timed

    disturbed, samples, used = (
        calibration.options.get(name) or 0 for name in ("disturbed_samples", "samples", "kernels_disturbed")
    )
    lines = []
    if disturbed:
        lines.append(
            f"disturbed (by other work on the machine, or a lowered clock): {disturbed} of {samples} samples "
            f"({100 * disturbed / samples:.0f} %), not used where there are enough others"
        )
    if used:
        lines.append(f"kernels timed with disturbed samples for lack of others: {used} of {kernels_timed(calibration)}")
    return lines


def _spending(calibration: Calibration) -> list[str]:
    facts = calibration.options
    parts = ("counting", "opening", "building", "timing", "choosing")
    took = [f"{part} {facts[f'{part}_s']:.3g} s" for part in parts if facts.get(f"{part}_s")]
    # A device of the user's own keeps its own time; the host's then says nothing.
    lines = [f"time: {', '.join(took)}; the budget is for timing and choosing"] if took else []
    if facts["choice"] == "everything":
        words = (
            f"everything fits into the budget of {facts['device_time_budget_s']:.3g} s: "
            f"{facts['pool_kernels']} kernels timed in the ordinary way "
            f"(estimated {facts['everything_estimate_s']:.3g} s with building; "
            f"{facts['device_time_spent_s']:.3g} s of device time spent)"
        )
        return [words, *lines]
    spending = (
        f"chosen: {facts['chosen_kernels']} of {facts['pool_kernels']} kernels, in {facts['batches']} batches; "
        f"{facts['device_time_spent_s']:.3g} s of device time spent of {facts['device_time_budget_s']:.3g} s; "
        f"{facts['ended']}"
    )
    return [spending, *lines]
