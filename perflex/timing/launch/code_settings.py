"""What machine code of a kernel is made for beside its source: work-group sizes that a runtime compiles separately."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflex.devices.device import Device
    from perflex.timing.launch.request import LaunchRequest
    from perflex.timing.launch.sizes import Grid

# From so many work-items along an axis on, PoCL compiles for grids of any size (its limit of small grids).
_POCL_SMALL = 65535


def runtime_of(device: Device) -> str:
    """Return ``"intel"`` or ``"pocl"``, the runtimes whose program binaries are understood; empty for others."""
    if device.kind != "cpu" or device.api != "opencl":
        return ""
    if "portable computing language" in device.platform.lower():
        return "pocl"
    return "intel" if "intel" in device.platform.lower() else ""


def compiled_for(request: LaunchRequest, device: Device) -> str:
    """Return what has to be set so that a program's binary has the code that runs; empty where nothing has."""
    if runtime_of(device) != "pocl":
        return ""
    return ",".join(dict.fromkeys(specialised(grid) for grid in request.launch.grids))


def specialised(grid: Grid) -> str:
    """Return what PoCL calls code for a work-group's size, without global offset."""
    sides = "-".join(map(str, [*grid.work_group, 1, 1][:3]))
    return f"{sides}-goffs0{'-smallgrid' if max(grid.items) < _POCL_SMALL else ''}"
