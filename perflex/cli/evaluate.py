"""``perflex evaluate`` and ``perflex demo``: the studies of the paper on devices of this machine; one in a minute."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from perflex.cli.completion import complete_device
from perflex.cli.json_output import picked, print_json
from perflex.cli.options import AcceptNoiseOption, DeviceOption, JsonOption, TrialsOption
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from perflex.cli.terminal import Terminal
    from perflex.devices.device import Device
    from perflex.studies.evaluation.result import DeviceEvaluation


def evaluate(
    context: typer.Context,
    study: Annotated[Literal["matmul", "dg", "fdiff", "all"], typer.Argument(help="Which study.")],
    *,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "-d", "--device", autocompletion=complete_device, help="Parts of a device's name, may be repeated; or all."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results; created if needed.")] = Path("evaluation"),
    model: Annotated[
        Literal["linear", "overlap", "partial", "incore"] | None,
        typer.Option(help="Use this model; by default the calibration data choose one."),
    ] = None,
    trials: TrialsOption = 15,
    accept_noise: AcceptNoiseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Calibrate, predict and measure the kernels of three published studies; write a report, tables and pictures."""
    from perflex.cli.arguments import require_writable_folder
    from perflex.reports.evaluation_part import evaluation_part
    from perflex.reports.page import write_page
    from perflex.studies.doctor import warn_before_measuring
    from perflex.studies.evaluation.files import write_evaluation
    from perflex.studies.evaluation.run import evaluate_device, study_timing
    from perflex.studies.evaluation.studies import STUDIES

    terminal = terminal_of(context)
    # Before minutes of measuring, not after them.
    require_writable_folder(out, context)
    studies = list(STUDIES.values()) if study == "all" else [STUDIES[study]]
    evaluations = []
    for where in _devices(device or []):
        terminal.remarks.print(f"device: {where}", markup=False)
        with terminal.warnings_shown():
            warn_before_measuring(where)
        with terminal.warnings_shown(), terminal.progress("evaluate:") as progress:
            evaluations.append(
                evaluate_device(where, studies, timing=study_timing(trials), model=model, progress=progress)
            )
    report = out / "report.html"
    with terminal.warnings_shown():
        paths = [report, *write_evaluation(evaluations, out, accept_noise=accept_noise)]
        write_page(report, list(map(evaluation_part, evaluations)))
    if as_json:
        print_json({"devices": [_content(one) for one in evaluations], "paths": paths})
        return
    if not terminal.quiet:
        _show_evaluations(terminal, evaluations)
    terminal.show_paths(*paths)


def _devices(names: list[str]) -> list[Device]:
    from perflex.devices.listing import find_device, list_devices

    every = names == ["all"]
    found = [info.device for info in list_devices() if info.measurable] if every else list(map(find_device, names))
    # Where there is none, that says so.
    return found or [find_device(None)]


def _content(evaluation: DeviceEvaluation) -> dict[str, Any]:
    """Return what ``--json`` says of a device; errors and losses are fractions."""
    studies = [
        {
            "study": result.study.name,
            **picked(result, "model", "chosen_with", "noise_floor", "knowledge", "points"),
            "accuracy": {name: result.accuracy(name) for name in result.methods} if result.points else {},
            "best_baseline": result.best_baseline(result.chosen_with) if result.points else None,
            "beats_baselines": result.beats_baselines(result.model, result.chosen_with) if result.points else None,
        }
        for result in evaluation.studies
    ]
    return {**picked(evaluation, "device", "skipped", "drift", "seconds"), "studies": studies}


def _show_evaluations(terminal: Terminal, evaluations: list[DeviceEvaluation]) -> None:
    from perflex.studies.evaluation.tables import summary_table

    terminal.show("Predicted before anything was measured at these sizes:")
    for evaluation in evaluations:
        terminal.show(evaluation.device)
        for result in evaluation.studies:
            floor = "" if math.isnan(result.noise_floor) else f" (noise floor {100 * result.noise_floor:.1f} %)"
            terminal.show(f"  {result.study.name}{floor}")
            terminal.show_result(summary_table([replace(evaluation, studies=(result,))], variants=False), indent=4)
            if result.judgement:
                terminal.show(f"    {result.judgement}")
        for label, reason in evaluation.skipped:
            terminal.remarks.print(f"skipped {label}: {reason}", markup=False, soft_wrap=True)


def demo(
    context: typer.Context,
    *,
    out: Annotated[Path, typer.Option(help="Folder for the results; created if needed.")] = Path("demo-out"),
    device: DeviceOption = "",
    sizes: Annotated[str, typer.Option(help="Matrix sizes, multiples of 16, joined by commas.")] = "",
    trials: TrialsOption = 15,
    accept_noise: AcceptNoiseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Predict two variants of matrix multiplication from other kernels and from parts of them, then time them."""
    from perflex.cli.arguments import require_writable_folder
    from perflex.devices.listing import find_device
    from perflex.studies.demo import demo_rows, demo_summary, run_demo, write_demo
    from perflex.studies.doctor import warn_before_measuring
    from perflex.studies.evaluation.run import study_timing

    terminal = terminal_of(context)
    # All that can be wrong with the options shows before the device is opened.
    chosen = _demo_sizes(sizes)
    require_writable_folder(out, context)
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
        _show_demo(terminal, evaluation, given=bool(chosen))
    terminal.show_paths(*paths)


def _demo_sizes(text: str) -> tuple[int, ...]:
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


def _show_demo(terminal: Terminal, evaluation: DeviceEvaluation, *, given: bool) -> None:
    from perflex.calibration.account import noise_floor_lines
    from perflex.search.accuracy import DIFFERENT
    from perflex.studies.demo import demo_summary, demo_table
    from perflex.studies.evaluation.baselines import copy_kernel
    from perflex.studies.evaluation.tables import summary_table

    found, result = demo_summary(evaluation), evaluation.studies[0]
    terminal.show_result(demo_table(result))
    errors = ", ".join(f"{variant} {100 * error:.1f} %" for variant, error in found["geomean_error"].items())
    ranked = f"ranked correctly: {found['pairs_ranked_right']:g} of {found['pairs']} sizes"
    terminal.show(
        f"geometric mean of relative error: {errors}",
        f"{ranked} at which the variants differ by over {100 * DIFFERENT:.0f} %",
        "compared with trivial baselines, over both variants:",
    )
    terminal.show_result(summary_table([evaluation], variants=False), indent=2)
    # The last are kernels to predict, of which warnings tell; what is left out of these before is what baselines need.
    beside, targets = ("matmul_sq(", copy_kernel().name), len(result.study.sizes) * len(result.study.variants)
    skipped = evaluation.skipped[: len(evaluation.skipped) - (targets - len(result.points))]
    lines = [
        f"no baseline from {label}: {why.removeprefix(f'{label}: ')}"
        for label, why in skipped
        if label.startswith(beside)
    ]
    lines += [result.judgement] if result.judgement else []
    lines += noise_floor_lines(result.calibrations[result.model])
    if found["drift"] is not None:
        lines.append(
            f"drift {100 * found['drift']:+.1f} %: change of measurement kernels' times from the calibration to the "
            "check (it is part of every error, and near 0 on a machine that does nothing else)"
        )
    # Whoever names sizes is spared the reason for ours.
    if not given:
        lines.append(
            "sizes are odd multiples of 32: at multiples of large powers of two a CPU's caches hold few rows of a "
            "matrix, which a constant cost per access cannot describe (try --sizes 512,1024)"
        )
    kernels = f"{found['measurement_kernels']} measurement kernels: microbenchmarks, and parts of the variants, timed"
    parts = "the memory accesses of the variants without their arithmetic"
    terminal.show(*lines, f"{kernels} ({parts}); {evaluation.seconds:.0f} s in all")
