"""``perflex evaluate``: the paper's studies on the devices of this machine."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.completion import complete_device
from perflex.cli.json_output import picked, print_json
from perflex.cli.method_table import method_lines
from perflex.cli.options import AcceptNoiseOption, JsonOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from perflex.cli.terminal import Terminal
    from perflex.devices.device import Device
    from perflex.studies.evaluation.result import DeviceEvaluation


class StudyName(StrEnum):
    """What to evaluate."""

    matmul = "matmul"
    dg = "dg"
    fdiff = "fdiff"
    every = "all"


class Overlap(StrEnum):
    """How memory and on-chip costs are composed."""

    linear = "linear"
    overlap = "overlap"
    partial = "partial"
    incore = "incore"


def evaluate(  # noqa: PLR0913 - one parameter per option
    context: typer.Context,
    study: Annotated[StudyName, typer.Argument(help="Which study.")],
    *,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            autocompletion=complete_device,
            help="Parts of a device's name; may be repeated. Default: one device.",
        ),
    ] = None,
    every_device: Annotated[bool, typer.Option("--all-devices", help="Every usable device of this machine.")] = False,
    out: Annotated[Path, typer.Option("--out", help="Folder for the results; created if needed.")] = Path("evaluation"),
    model: Annotated[
        Overlap | None, typer.Option("--model", help="Use this model; by default the calibration data choose one.")
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="Maximum number of undisturbed timings of one kernel.")
    ] = 15,
    accept_noise: AcceptNoiseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Calibrate, predict and measure the kernels of three published studies; write tables and pictures."""
    from perflex.cli.arguments import require_writable_folder
    from perflex.studies.doctor.examine import warn_before_measuring
    from perflex.studies.evaluation.files import write_evaluation
    from perflex.studies.evaluation.run import evaluate_device, study_timing
    from perflex.studies.evaluation.studies import STUDIES

    terminal = terminal_of(context)
    # Before minutes of measuring, not after them.
    require_writable_folder(out)
    studies = list(STUDIES.values()) if study is StudyName.every else [STUDIES[study.value]]
    options = study_timing(trials)
    evaluations = []
    for where in _devices(device or [], every=every_device):
        terminal.remarks.print(f"device: {where}", markup=False)
        with terminal.warnings_shown():
            warn_before_measuring(where)
        with terminal.warnings_shown(), terminal.progress("evaluate:") as progress:
            evaluations.append(
                evaluate_device(
                    where, studies, timing=options, model=None if model is None else model.value, progress=progress
                )
            )
    with terminal.warnings_shown():
        paths = write_evaluation(evaluations, out, accept_noise=accept_noise)
    if as_json:
        print_json({"devices": [_content(one) for one in evaluations], "paths": paths})
        return
    _show(terminal, evaluations)
    terminal.show_paths(*paths)


def _devices(names: list[str], *, every: bool) -> list[Device]:
    from perflex.devices.listing import find_device, list_devices

    if every:
        # Simulators run kernels, but their times are no device's.
        return [info.device for info in list_devices() if info.usable and not info.device.is_simulator]
    return [find_device(name) for name in names] if names else [find_device(None)]


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


def _show(terminal: Terminal, evaluations: list[DeviceEvaluation]) -> None:
    from perflex.studies.evaluation.measures import HEADINGS, judgement, measures, overall

    if terminal.quiet:
        return
    lines = ["Predicted before anything was measured at these sizes:"]
    for evaluation in evaluations:
        lines.append(evaluation.device)
        for result in evaluation.studies:
            floor = "" if math.isnan(result.noise_floor) else f" (noise floor {100 * result.noise_floor:.1f} %)"
            lines.append(f"  {result.study.name}{floor}")
            lines += method_lines(result, terminal.width, indent="    ", more="a wider terminal or --json shows them")
            lines += [f"    {judged}"] if (judged := judgement(result)) else []
    if (whole := overall(evaluations)) is not None:
        shown = zip(HEADINGS, measures(whole), strict=True)
        lines.append(f"the models used, over everything: {', '.join(f'{name} {text}' for name, text in shown if text)}")
    terminal.show(*lines)
    for evaluation in evaluations:
        for label, reason in evaluation.skipped:
            terminal.remarks.print(f"skipped {label}: {reason}", markup=False, soft_wrap=True)
