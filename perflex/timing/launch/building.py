"""What may happen when a kernel is built, alike for OpenCL and CUDA: compiler errors, limits known only afterwards."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from perflex.errors import MeasurementError

if TYPE_CHECKING:
    from perflex.devices.device import Device
    from perflex.machines.resources import Resources
    from perflex.timing.launch.sizes import Grid

_MESSAGE_LINES = 4


def build_failure(label: str, device: Device, log: str, error_mark: str) -> MeasurementError:
    """Return the error for a kernel that does not build, with the compiler's first lines that hold the mark."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    marked = [line for line in lines if error_mark in line] or lines
    msg = f"{label}: does not build on {device}: {' | '.join(marked[:_MESSAGE_LINES])}"
    return MeasurementError(msg, kernel=label, device=device, log=log)


def check_built(label: str, device: Device, grid: Grid, most_items: int, resources: Resources) -> None:
    """Compare a device program with the limits that are known only after the build, registers included.

    Parameters
    ----------
    label
        Which kernel and sizes.
    device
        Where it is to run.
    grid
        How it is to be launched.
    most_items
        Work-items of a work-group that the driver allows for this program.
    resources
        What it takes.

    Raises
    ------
    MeasurementError
        A work-group has too many work-items or takes too much local memory.
    """
    items = prod(grid.work_group)
    if items > most_items:
        msg = f"{label}: a work-group of {items} work-items, {device} allows {most_items} for this kernel"
        if resources.registers is not None:
            msg += f", which takes {resources.registers} registers per work-item"
        raise MeasurementError(msg, kernel=label, device=device)
    # The compiler may use local memory of its own beside the kernel's arrays, which were compared before the build.
    local_bytes = resources.local_bytes or 0
    if local_bytes > device.local_memory_bytes:
        msg = f"{label}: needs {local_bytes} B of local memory, {device} has {device.local_memory_bytes} B"
        raise MeasurementError(msg, kernel=label, device=device)
