"""``perflex devices``: the devices, and which of them work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.json_output import print_json
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.devices.device import DeviceInfo


def devices(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of a table.")] = False,
) -> None:
    """List the devices that OpenCL and CUDA reach, whether a probe kernel works there, and which one is the default."""
    from perflex.devices.listing import driver_problems, list_devices

    infos = list_devices()
    if as_json:
        print_json([info.as_dict() for info in infos])
        return
    terminal = terminal_of(context)
    terminal.output.print("\n".join(_texts(infos)), soft_wrap=True)
    for problem in driver_problems():
        terminal.remarks.print(problem, style="yellow", markup=False)
    if not any(info.usable for info in infos):
        hint = "no usable device; the extra 'cpu' brings one: pip install 'perflex[cpu]'"
        terminal.remarks.print(hint, style="red", markup=False)


def _texts(infos: Sequence[DeviceInfo]) -> list[str]:
    """Return what is shown of each device, beginning with the short name that singles it out."""
    from rich.markup import escape

    from perflex.devices.device import API_NAMES
    from perflex.devices.names import short_names

    texts = []
    names = short_names([info.device for info in infos])
    for name, info in zip(names, infos, strict=True):
        device = info.device
        # Names and reasons come from drivers and may hold what rich takes for markup.
        verdict = "[green]usable[/]" if info.usable else f"[red]not usable:[/] {escape(info.reason)}"
        facts = f"{device.compute_units} compute units, {device.local_memory_bytes // 1024} KiB of local memory"
        # Only a kernel that ran tells the size of sub-groups.
        if info.usable:
            facts = f"sub-groups of {device.sub_group_size} work-items, {facts}"
        texts.append(
            f"[bold]{escape(name)}[/]{' (default)' if info.default else ''}: {verdict}\n"
            f"    {escape(str(device))}\n    {facts}\n"
            f"    driver {escape(device.driver)}\n"
            f"    reached through {API_NAMES[device.api]}, found by {escape(info.found_by)}"
        )
    return texts
