"""``perflex evaluate`` and ``perflex demo``: the studies of the paper on devices of this machine; one in a minute."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from perflex.cli.arguments import ArgumentError, require_writable_folder
from perflex.cli.cluster import device_named
from perflex.cli.completion import complete_device
from perflex.cli.devices import chosen_devices
from perflex.cli.json_output import picked, print_json
from perflex.cli.options import AcceptNoiseOption, DeviceOption, JsonOption, TrialsOption
from perflex.cli.terminal import Terminal, terminal_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.progress import Progress
    from perflex.studies.evaluation.result import DeviceEvaluation
    from perflex.timing.launch.backend import TimedDevice

_OutOption = Annotated[Path, typer.Option("--out", help="Folder for the results; created if needed.")]


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
    out: _OutOption = Path("evaluation"),
    model: Annotated[
        Literal["linear", "overlap", "partial", "incore"] | None,
        typer.Option(help="Use this model; by default the calibration data choose one."),
    ] = None,
    trials: TrialsOption = 15,
    accept_noise: AcceptNoiseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Calibrate, predict and measure the kernels of three published studies; write a report, tables and pictures."""
    from perflex.devices.listing import find_device
    from perflex.reports.evaluation_part import evaluation_part
    from perflex.reports.page import write_page
    from perflex.studies.evaluation.files import write_evaluation
    from perflex.studies.evaluation.run import evaluate_device, study_timing
    from perflex.studies.evaluation.studies import STUDIES
    from perflex.timing.executors.worker_device import WorkerDevice

    terminal = terminal_of(context)
    # Before minutes of measuring, not after them.
    require_writable_folder(out, context)
    studies = list(STUDIES.values()) if study == "all" else [STUDIES[study]]
    evaluations = []
    with device_named((device or [""])[0]) as there:
        chosen: list[TimedDevice] = [there] if isinstance(there, WorkerDevice) else []
        names = (device or [])[len(chosen) :]
        if names or not chosen:
            chosen += chosen_devices([] if names == ["all"] else names) if names else [find_device(None)]
        for where in chosen:
            with _measuring(terminal, "evaluate:", where) as progress:
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


@contextmanager
def _measuring(terminal: Terminal, title: str, device: TimedDevice) -> Iterator[Progress]:
    """Name the device and what speaks against measuring on it now; show progress, and warnings of the block."""
    from perflex.studies.doctor import warn_before_measuring

    terminal.remark(f"device: {device}")
    with terminal.warnings_shown():
        warn_before_measuring(device)
    with terminal.warnings_shown(), terminal.progress(title) as progress:
        yield progress


def _content(evaluation: DeviceEvaluation) -> dict[str, Any]:
    """Return what ``--json`` says of a device; errors and losses are fractions."""
    studies = [
        {
            "study": result.study.name,
            **picked(result, "model", "chosen_with", "noise_floor", "knowledge", "points"),
            "accuracy": {name: result.accuracy(name) for name in result.methods},
            "best_baseline": result.best_baseline(result.chosen_with),
            "beats_baselines": result.beats_baselines(result.model, result.chosen_with),
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
            terminal.remark(f"skipped {label}: {reason}")


def demo(
    context: typer.Context,
    *,
    out: _OutOption = Path("demo-out"),
    device: DeviceOption = "",
    sizes: Annotated[str, typer.Option(help="Matrix sizes, multiples of 16, joined by commas.")] = "",
    trials: TrialsOption = 15,
    accept_noise: AcceptNoiseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Predict two variants of matrix multiplication from other kernels and from parts of them, then time them."""
    from perflex.devices.listing import find_device
    from perflex.studies.demo import demo_lines, demo_rows, demo_summary, demo_table, run_demo, write_demo
    from perflex.studies.evaluation.run import study_timing
    from perflex.studies.evaluation.tables import summary_table

    terminal = terminal_of(context)
    # All that can be wrong with the options shows before the device is opened.
    chosen = _demo_sizes(sizes)
    require_writable_folder(out, context)
    where = find_device(device or None)
    with _measuring(terminal, "demo:", where) as progress:
        evaluation = run_demo(where, sizes=chosen, timing=study_timing(trials), progress=progress)
    with terminal.warnings_shown():
        paths = write_demo(evaluation, out, accept_noise=accept_noise)
    (result,) = evaluation.studies
    if as_json:
        content = {**demo_summary(evaluation), "table": demo_rows(result)}
        print_json({**content, "skipped": evaluation.skipped, "paths": paths})
        return
    if not terminal.quiet:
        terminal.show_result(demo_table(result))
        above, below = demo_lines(evaluation, sizes_given=bool(chosen))
        terminal.show(*above)
        terminal.show_result(summary_table([evaluation], variants=False), indent=2)
        terminal.show(*below)
    terminal.show_paths(*paths)


def _demo_sizes(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isdecimal() and int(word) and int(word) % 16 == 0 for word in words):
        raise ArgumentError(
            f"cannot read sizes {text!r}; give positive multiples of 16 joined by commas, such as 256,512"
        )
    # A size given twice is measured once.
    return tuple(dict.fromkeys(map(int, words)))
