"""The device of this machine that a calibration belongs to, never another one in its place; where kernels are timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.devices.listing import describe, device_of, is_device_specific, is_wall_time, list_devices
from perflex.errors import CalibrationError, DeviceError
from perflex.features.from_source.source import SourceKernel
from perflex.machines.files import load_machine
from perflex.timing.measuring import chosen_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from perflex.calibration.record import CalibrationRecord
    from perflex.devices.device import Api, Device
    from perflex.machines.machine import Machine
    from perflex.timing.launch.backend import TimedDevice

# By these a device is known again; drivers are updated.
_SAME = ("name", "platform", "api")
# Stands among a calibration's facts of its device where its times are those of a table.
TIMES_FACT = "times_of"


def device_of_calibration(output: str, facts: Mapping[str, Any]) -> Device:
    """Return the device of this machine that a calibration belongs to."""
    if facts.get(TIMES_FACT):
        of = f" of {facts['name']}" if facts.get("name") else ""
        msg = (
            f"the calibration is based on times{of} in {facts[TIMES_FACT]}, measured elsewhere, and no device of this "
            "machine is known to be the same; name the device to use, or calibrate one of this machine"
        )
        raise DeviceError(msg, device=str(facts.get("name", "")))
    wanted = {key: str(facts[key]) for key in _SAME if facts.get(key)}
    if "name" not in wanted:
        return device_of(output)
    # Of several that are alike the default one comes first.
    infos = sorted(list_devices(), key=lambda info: not info.default)
    usable = [info.device for info in infos if info.usable]
    if is_device_specific(output):
        # Names in outputs are parts of a device's name, which others may have, too.
        usable = [device_of(output)]
    for device in usable:
        if all(str(getattr(device, key)) == value for key, value in wanted.items()):
            return device
    platform = f" ({wanted['platform']})" if "platform" in wanted else ""
    msg = (
        f"the calibration is of {wanted['name']}{platform}, which is not among the devices that work here: "
        f"{describe(list_devices())}; calibrate one of these, or name the device to use instead"
    )
    raise DeviceError(msg, device=wanted["name"])


def timing_device(
    calibration: CalibrationRecord,
    device: str | TimedDevice | None = None,
    *,
    machine: str | Path | Machine | None = None,
    kernels: Iterable[Any] = (),
) -> TimedDevice:
    """Return where `kernels` are timed beside what a calibration predicts, of `machine` if that is given.

    By default the calibration's own device, else one that the machine's names stand for; kernels in OpenCL C or CUDA C
    are launched through the interface that they are written for.
    """
    output = calibration.model.output_feature
    if not is_wall_time(output):
        msg = f"the model's output {output} is not a time, which could be measured beside it; predict without timing"
        raise CalibrationError(msg, feature=output)
    if device is not None:
        return chosen_device(device)
    try:
        found = device_of_calibration(output, calibration.device)
    except DeviceError:
        if machine is None:
            raise
        found = device_of_machine(load_machine(machine))
    # What is written in HIP is refused where it is launched.
    written = [each.language for each in kernels if isinstance(each, SourceKernel)]
    languages: set[Api] = {"opencl" if language == "opencl" else "cuda" for language in written}
    return _reached(found, languages.pop()) if len(languages) == 1 else found


def device_of_machine(machine: Machine) -> Device:
    """Return the device of this machine that a machine's names stand for; a DeviceError where none does."""
    infos = sorted(list_devices(), key=lambda info: not info.default)
    names = {alias.casefold() for alias in machine.aliases}
    for info in infos:
        # As `machine_of_device`, but for files of users, too.
        if info.usable and " ".join(info.device.name.split()).casefold() in names:
            return info.device
    msg = (
        f"no device that works here is a {machine.name}: {describe(infos)}; "
        "predict without timing, or name the device to time on"
    )
    raise DeviceError(msg, device=machine.name)


def _reached(device: Device, api: Api) -> Device:
    """Return the same device through another interface, if it has that."""
    usable = (info.device for info in list_devices() if info.usable)
    return next((each for each in usable if each.api == api and _is_same_card(each, device)), device)


def _is_same_card(one: Device, other: Device) -> bool:
    # Interfaces may count equal GPUs in different orders.
    known = one.pci_address and other.pci_address
    places = (one.pci_address, other.pci_address) if known else (one.ordinal, other.ordinal)
    return one.name == other.name and places[0] == places[1]
