"""``perflex devices``: the devices, and which of them work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer  # noqa: TC002 - typer reads the annotations

from perflex.cli.completion import remember_devices
from perflex.cli.json_output import print_json
from perflex.cli.options import JsonOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.devices.device import DeviceInfo


def devices(
    context: typer.Context,
    *,
    as_json: JsonOption = False,
) -> None:
    """List the devices that OpenCL and CUDA reach, whether a probe kernel works there, and which one is the default."""
    from perflex.devices.listing import driver_problems, list_devices

    infos = list_devices()
    remember_devices(infos)
    if as_json:
        print_json([info.as_dict() for info in infos])
        return
    terminal = terminal_of(context)
    for name, lines in _texts(infos):
        terminal.show(*lines, bold=len(name))
    for problem in driver_problems():
        terminal.remarks.print(problem, style="yellow", markup=False)
    if not any(info.usable for info in infos):
        hint = "no usable device; the extra 'cpu' brings one: pip install 'perflex[cpu]'"
        terminal.remarks.print(hint, style="red", markup=False)


def _texts(infos: Sequence[DeviceInfo]) -> list[tuple[str, list[str]]]:
    """Return the short name that singles a device out, and the lines that begin with it, of each device."""
    from perflex.devices.device import API_NAMES
    from perflex.devices.names import short_names

    texts = []
    names = short_names([info.device for info in infos])
    for name, info in zip(names, infos, strict=True):
        device = info.device
        verdict = "usable" if info.usable else f"not usable: {info.reason}"
        facts = f"{device.compute_units} compute units, {device.local_memory_bytes // 1024} KiB of local memory"
        # Only a kernel that ran tells the size of sub-groups.
        if info.usable:
            facts = f"sub-groups of {device.sub_group_size} work-items, {facts}"
        lines = [
            f"{name}{' (default)' if info.default else ''}: {verdict}",
            f"    {device}",
            f"    {facts}",
            f"    driver {device.driver}",
            f"    reached through {API_NAMES[device.api]}, found by {info.found_by}",
        ]
        texts.append((name, lines))
    return texts
