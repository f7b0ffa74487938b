"""The machine of a calibration on this CPU, where a model needs one and none is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.devices.device import Device
from perflex.features.target import machine_in_use
from perflex.machines.lookup import machine_of_device
from perflex.machines.reported import reported_cpu

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perflex.machines.reported import ReportedCpu
    from perflex.timing.launch.backend import TimedDevice


def own_cpu(device: TimedDevice | None, features: Iterable[str]) -> ReportedCpu | None:
    """Return what the operating system reports of the CPU that features need a machine of.

    None where no feature needs one, where one is in use (`using_machine`) or comes with perflex under the device's
    name, and where the device is no CPU of this machine.

    Raises
    ------
    MachineError
        The operating system reports no caches.
    """
    from perflex.features import parse_feature
    from perflex.features.families.machine import needs_machine

    if not isinstance(device, Device) or device.kind != "cpu" or machine_in_use() is not None:
        return None
    if not any(needs_machine(parse_feature(name)) for name in features):
        return None
    return None if machine_of_device(device.name) is not None else reported_cpu()
