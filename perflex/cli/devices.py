"""``perflex devices`` and ``perflex doctor``: which devices work, and whether the machine is fit to measure on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.completion import remember_devices
from perflex.cli.json_output import picked, print_json
from perflex.cli.options import DevicesOption, JsonOption
from perflex.cli.terminal import Terminal, terminal_of
from perflex.tables import Table, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.devices.device import Device
    from perflex.studies.doctor import DoctorReport


def devices(
    context: typer.Context,
    *,
    as_json: JsonOption = False,
    again: Annotated[bool, typer.Option("--again", help="Try all drivers, also those that worked today.")] = False,
) -> None:
    """List the devices that OpenCL and CUDA reach, whether a probe kernel works there, and which one is the default."""
    from perflex.devices.listing import driver_problems, list_devices

    infos = list_devices(again=again)
    remember_devices(infos)
    if as_json:
        print_json([info.as_dict() for info in infos])
        return
    terminal = terminal_of(context)
    terminal.show_result(infos.table().turned())
    for problem in driver_problems():
        terminal.remark(problem, style="yellow")
    if not any(info.usable for info in infos):
        hint = "no usable device; the extra 'cpu' brings one: pip install 'perflex[cpu]'"
        terminal.remark(hint, style="red")


_NOT_FIT = 1


def doctor(
    context: typer.Context,
    *,
    device: DevicesOption = None,
    as_json: JsonOption = False,
    seconds: Annotated[float, typer.Option(min=5.0, max=600.0, help="Total time in s, shared by the devices.")] = 25.0,
) -> None:
    """Check whether this machine is fit to measure on: load, steal, quota, clock and the times of each device.

    The exit code is 0 for "fit to measure on" and "measure with care", 1 for "not fit".
    """
    start = time.perf_counter()
    from perflex.studies.doctor import examine

    terminal = terminal_of(context)
    # Should time run out, the default device has been examined.
    chosen = chosen_devices(device or [])
    left = seconds - (time.perf_counter() - start)
    with terminal.warnings_shown(), terminal.progress("doctor:") as progress:
        report = examine(chosen, left, progress=lambda what: progress(0, 0, what))
    if as_json:
        print_json(_content(report))
    else:
        _show_examined(terminal, report)
    if report.verdict == "not fit":
        raise typer.Exit(_NOT_FIT)


def chosen_devices(names: Sequence[str]) -> list[Device]:
    """Return devices by parts of their names; without names all that can be measured, the default one first."""
    from perflex.devices.listing import find_device, list_devices
    from perflex.errors import DeviceError

    if names:
        return list(dict.fromkeys(find_device(name) for name in names))
    infos = [info for info in list_devices() if info.measurable]
    if not infos:
        msg = "no usable device to try; the extra 'cpu' brings one: pip install 'perflex[cpu]', see 'perflex devices'"
        raise DeviceError(msg)
    return [info.device for info in sorted(infos, key=lambda info: not info.default)]


def _show_examined(terminal: Terminal, report: DoctorReport) -> None:
    columns = [text("state"), text("check"), text("found"), text("advice")]
    found = {"this machine": report.findings} | {f"{one.device}: {one.verdict}": one.findings for one in report.devices}
    for caption, findings in found.items():
        terminal.show(caption)
        terminal.show_result(Table.of("", columns, findings), indent=2)
        terminal.show("")
    terminal.show(report.verdict)


_TRIAL = ("name", "seconds", "samples", "disturbed_samples", "repeatability")


def _content(report: DoctorReport) -> dict[str, Any]:
    devices = [
        {
            **picked(one, "device", "verdict", "findings"),
            "kernels": [picked(trial, *_TRIAL) for trial in one.trials.trials],
            "failures": one.trials.failures,
        }
        for one in report.devices
    ]
    machine = picked(report, "findings", "system")
    return {**picked(report, "verdict", "seconds"), "machine": machine, "devices": devices}
