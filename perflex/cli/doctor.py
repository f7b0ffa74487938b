"""``perflex doctor``: whether this machine is fit to measure on, and what to do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.completion import complete_device
from perflex.cli.json_output import picked, print_json
from perflex.cli.options import JsonOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.devices.device import Device
    from perflex.studies.doctor.examine import DeviceReport, DoctorReport
    from perflex.studies.doctor.finding import Finding

_NOT_FIT = 1


def doctor(
    context: typer.Context,
    *,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "-D",
            "--device",
            autocompletion=complete_device,
            help="Parts of a device's name; may be repeated. Default: all that work.",
        ),
    ] = None,
    as_json: JsonOption = False,
    seconds: Annotated[
        float, typer.Option("--seconds", min=5.0, max=600.0, help="Total time in s, shared by the devices.")
    ] = 25.0,
) -> None:
    """Check whether this machine is fit to measure on: load, steal, quota, clock and the times of each device.

    The exit code is 0 for "fit to measure on" and "measure with care", 1 for "not fit".
    """
    start = time.perf_counter()
    from perflex.studies.doctor.examine import examine

    terminal = terminal_of(context)
    chosen = _devices(device or [])
    left = seconds - (time.perf_counter() - start)
    with terminal.warnings_shown(), terminal.progress("doctor:") as progress:
        report = examine(chosen, left, progress=lambda what: progress(0, 0, what))
    if as_json:
        print_json(_plain(report))
    else:
        terminal.show(*_lines(report, terminal.width))
    if report.verdict == "not fit":
        raise typer.Exit(_NOT_FIT)


def _devices(names: Sequence[str]) -> list[Device]:
    from perflex.devices.listing import find_device, list_devices
    from perflex.errors import DeviceError

    if names:
        return list(dict.fromkeys(find_device(name) for name in names))
    # Simulators run kernels, but their times are no device's. The default device comes first, should time run out.
    infos = [info for info in list_devices() if info.usable and not info.device.is_simulator]
    if not infos:
        msg = "no usable device to try; the extra 'cpu' brings one: pip install 'perflex[cpu]', see 'perflex devices'"
        raise DeviceError(msg)
    return [info.device for info in sorted(infos, key=lambda info: not info.default)]


def _lines(report: DoctorReport, width: int | None) -> list[str]:
    lines = ["this machine", *_table(report.findings, width)]
    for one in report.devices:
        lines += ["", f"{one.device}: {one.verdict}", *_table(one.findings, width)]
    lines.append("")
    lines += [f"not tried for lack of time: {name}; give more --seconds" for name in report.left_out]
    return [*lines, report.verdict]


def _table(findings: Sequence[Finding], width: int | None) -> list[str]:
    from perflex.cli.columns import Column, table_blocks

    columns = [Column("", left=True), Column("", left=True), Column("", left=True, wraps=True)]
    rows = [[finding.state, finding.check, finding.found] for finding in findings]
    blocks, _ = table_blocks(columns, rows, width, indent="  ")
    lines = []
    for finding, block in zip(findings, blocks[1:], strict=True):
        lines += block
        if finding.advice:
            lines.append(f"    -> {finding.advice}")
    return lines


def _plain(report: DoctorReport) -> dict[str, Any]:
    return {
        **picked(report, "verdict", "seconds", "left_out"),
        "machine": picked(report, "findings", "system"),
        "devices": [_plain_device(one) for one in report.devices],
    }


def _plain_device(one: DeviceReport) -> dict[str, Any]:
    from perflex.studies.doctor.device import disturbed_share, repeatability, throttled_share

    trials = one.trials
    known = repeatability(trials.trials)
    kernels = [
        {
            "kernel": trial.name,
            "seconds_by_block": trial.seconds,
            "samples": len(trial.values),
            "repeatability": known.get(trial.name),
        }
        for trial in trials.trials
    ]
    return {
        **picked(one, "device", "verdict", "findings"),
        "kernels": kernels,
        "disturbed": disturbed_share(trials.trials),
        "throttled": throttled_share(trials.trials),
        **picked(trials, "drift", "load", "failures", "seconds"),
    }
