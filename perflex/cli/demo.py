"""``perflex demo``: the main job, on this machine, in a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.noise_floor import noise_floor_lines
from perflex.cli.options import AcceptNoiseOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from rich.table import Table

    from perflex.studies.evaluation.result import DeviceEvaluation


def demo(
    context: typer.Context,
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder for the results; made if it is not there.")] = Path(
        "demo-out"
    ),
    device: Annotated[str, typer.Option("--device", help="Parts of a device's name; see 'perflex devices'.")] = "",
    sizes: Annotated[str, typer.Option("--sizes", help="Matrix sizes, multiples of 16, joined by commas.")] = "",
    trials: Annotated[int, typer.Option("--trials", min=1, help="Most undisturbed timings of one kernel.")] = 15,
    accept_noise: AcceptNoiseOption = False,
) -> None:
    """Calibrate a matrix multiplication model without timing one, then predict two variants and measure them."""
    from perflex.cli.arguments import require_writable_folder
    from perflex.devices.listing import find_device
    from perflex.studies.demo import run_demo, write_demo
    from perflex.studies.doctor.examine import warn_before_measuring
    from perflex.studies.evaluation.run import study_timing

    terminal = terminal_of(context)
    # All that can be wrong with the options shows before the device is opened.
    chosen = _sizes(sizes)
    require_writable_folder(out)
    where = find_device(device or None)
    terminal.remarks.print(f"device: {where}", markup=False)
    with terminal.warnings_shown():
        warn_before_measuring(where)
    with terminal.warnings_shown(), terminal.progress("demo:") as progress:
        evaluation = run_demo(where, sizes=chosen, timing=study_timing(trials), progress=progress)
    with terminal.warnings_shown():
        paths = write_demo(evaluation, out, accept_noise=accept_noise)
    if not terminal.quiet:
        terminal.output.print(_table(evaluation))
        terminal.output.print("\n".join(_remarks(evaluation, given=bool(chosen))), markup=False, soft_wrap=True)
    terminal.output.print("\n".join(map(str, paths)), markup=False, soft_wrap=True)


def _sizes(text: str) -> tuple[int, ...]:
    from perflex.cli.arguments import ArgumentError

    if not text:
        return ()
    try:
        # A size given twice is measured once.
        sizes = tuple(dict.fromkeys(int(word) for word in text.split(",")))
    except ValueError:
        # Refused below, with the same message as a wrong size.
        sizes = (0,)
    if any(size < 16 or size % 16 for size in sizes):
        msg = f"cannot read sizes {text!r}; give positive multiples of 16 joined by commas, such as 256,512"
        raise ArgumentError(msg, word=text)
    return sizes


def _table(evaluation: DeviceEvaluation) -> Table:
    from rich.table import Table

    from perflex.studies.demo import demo_rows

    table = Table(title="Predicted before anything was measured")
    for heading in ("size", "variant", "predicted", "measured", "error", "predicted rank", "measured rank"):
        table.add_column(heading, justify="left" if heading == "variant" else "right", no_wrap=heading == "variant")
    for row in demo_rows(evaluation.studies[0]):
        table.add_row(
            str(row.size),
            row.variant,
            f"{1e3 * row.predicted_s:.3f} ms",
            f"{1e3 * row.measured_s:.3f} ms",
            f"{100 * row.relative_error:+.1f} %",
            str(row.predicted_rank),
            str(row.measured_rank),
        )
    return table


def _remarks(evaluation: DeviceEvaluation, *, given: bool) -> list[str]:
    from perflex.studies.accuracy import DIFFERENT
    from perflex.studies.baselines import copy_kernel
    from perflex.studies.demo import demo_summary
    from perflex.studies.evaluation.measures import METHOD_HEADINGS, judgement, method_rows
    from perflex.text_table import table_lines

    found = demo_summary(evaluation)
    errors = ", ".join(f"{variant} {100 * error:.1f} %" for variant, error in found["geomean_error"].items())
    result = evaluation.studies[0]
    ranked = f"ranked right: {found['pairs_ranked_right']:g} of {found['pairs']} sizes"
    lines = [
        f"geometric mean of relative error: {errors}",
        f"{ranked} at which the variants differ by over {100 * DIFFERENT:.0f} %",
        "beside trivial baselines, over both variants:",
        *table_lines([METHOD_HEADINGS, *method_rows(result)], left={0, 1}, indent="  "),
    ]
    # The demo ends where a kernel to predict cannot run: what is left out of these is what baselines need.
    beside = ("matmul_sq(", copy_kernel().name)
    lines += [f"no baseline from {label}: {why}" for label, why in evaluation.skipped if label.startswith(beside)]
    lines += [judged] if (judged := judgement(result)) else []
    lines += noise_floor_lines(result.calibrations[result.model])
    if found["drift"] is not None:
        lines.append(
            f"drift {100 * found['drift']:+.1f} %: change of measurement kernels' times from the calibration to the "
            "check (it is part of every error, and near 0 on a machine that does nothing else)"
        )
    kernels = found["measurement_kernels"]
    lines.append(
        f"{kernels} measurement kernels, none of them a matrix multiplication; {evaluation.seconds:.0f} s in all"
    )
    # Whoever names sizes is spared the reason for ours.
    if not given:
        lines.append(
            "sizes are odd multiples of 32: at multiples of large powers of two a CPU's caches hold few rows of a "
            "matrix, which no cost per access can see (try --sizes 512,1024)"
        )
    return lines
