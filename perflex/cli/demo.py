"""``perflex demo``: the main job, on this machine, in a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.columns import Column
from perflex.cli.completion import complete_device
from perflex.cli.json_output import print_json
from perflex.cli.method_table import method_lines
from perflex.cli.noise_floor import noise_floor_lines
from perflex.cli.options import AcceptNoiseOption, JsonOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from perflex.studies.evaluation.result import DeviceEvaluation


def demo(
    context: typer.Context,
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder for the results; created if needed.")] = Path("demo-out"),
    device: Annotated[
        str,
        typer.Option(
            "--device", autocompletion=complete_device, help="Parts of a device's name; see 'perflex devices'."
        ),
    ] = "",
    sizes: Annotated[str, typer.Option("--sizes", help="Matrix sizes, multiples of 16, joined by commas.")] = "",
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="Maximum number of undisturbed timings of one kernel.")
    ] = 15,
    accept_noise: AcceptNoiseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Predict two variants of matrix multiplication from measurements of other kernels, then measure them."""
    from perflex.cli.arguments import require_writable_folder
    from perflex.devices.listing import find_device
    from perflex.studies.demo import demo_rows, demo_summary, run_demo, write_demo
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
    if as_json:
        content = {**demo_summary(evaluation), "table": demo_rows(evaluation.studies[0])}
        print_json({**content, "skipped": evaluation.skipped, "paths": paths})
        return
    if not terminal.quiet:
        terminal.show_table(_COLUMNS, _rows(evaluation), title="Predicted before anything was measured")
        terminal.show(*_remarks(evaluation, terminal.width, given=bool(chosen)))
    terminal.show_paths(*paths)


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


_COLUMNS = (
    Column("size"),
    Column("variant", left=True),
    *map(Column, ("predicted", "measured", "error", "predicted rank", "measured rank")),
)


def _rows(evaluation: DeviceEvaluation) -> list[tuple[str, ...]]:
    from perflex.studies.demo import demo_rows

    return [
        (
            str(row.size),
            row.variant,
            f"{1e3 * row.predicted_s:.3f} ms",
            f"{1e3 * row.measured_s:.3f} ms",
            f"{100 * row.relative_error:+.1f} %",
            str(row.predicted_rank),
            str(row.measured_rank),
        )
        for row in demo_rows(evaluation.studies[0])
    ]


def _remarks(evaluation: DeviceEvaluation, width: int | None, *, given: bool) -> list[str]:
    from perflex.studies.accuracy import DIFFERENT
    from perflex.studies.baselines import copy_kernel
    from perflex.studies.demo import demo_summary
    from perflex.studies.evaluation.measures import judgement

    found = demo_summary(evaluation)
    errors = ", ".join(f"{variant} {100 * error:.1f} %" for variant, error in found["geomean_error"].items())
    result = evaluation.studies[0]
    ranked = f"ranked correctly: {found['pairs_ranked_right']:g} of {found['pairs']} sizes"
    lines = [
        f"geometric mean of relative error: {errors}",
        f"{ranked} at which the variants differ by over {100 * DIFFERENT:.0f} %",
        "compared with trivial baselines, over both variants:",
        *method_lines(result, width, indent="  ", more="a wider terminal or --json shows them"),
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
            "matrix, which a constant cost per access cannot describe (try --sizes 512,1024)"
        )
    return lines
