"""Devices: which there are, which of them work, and how to name one."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from perflex.devices.cuda import cuda_absence
from perflex.devices.device import Device
from perflex.devices.names import matching, short_names, split_spec
from perflex.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.devices.device import DeviceInfo


def list_devices() -> tuple[DeviceInfo, ...]:
    """Return every device of the machine's drivers and the embedded one, probed once per process.

    OpenCL's devices come first; a GPU that both OpenCL and CUDA reach is listed for each.

    Drivers are tried in child processes, so that one that crashes or hangs is only reported.
    """
    return _listed()[0]


def driver_problems() -> tuple[str, ...]:
    """Return one line for each driver that could not be loaded or offers no device."""
    return _listed()[1]


# Once: loaders of OpenCL read which drivers there are once per process, and each driver takes seconds to try.
@lru_cache(maxsize=1)
def _listed() -> tuple[tuple[DeviceInfo, ...], tuple[str, ...]]:
    from perflex.devices.survey import survey

    infos, problems = survey()
    return mark_default(infos), problems


def mark_default(infos: Sequence[DeviceInfo]) -> tuple[DeviceInfo, ...]:
    """Mark the first working GPU, else the embedded CPU runtime, else any device but a simulator."""
    working = [info for info in infos if info.usable and not info.device.is_simulator]
    preferences = (
        [info for info in working if info.device.kind == "gpu"],
        [info for info in working if info.embedded],
        working,
    )
    chosen = next((group[0] for group in preferences if group), None)
    return tuple(replace(info, default=info is chosen) for info in infos)


def default_device() -> Device:
    """Return the device that is taken when none is named.

    Raises
    ------
    DeviceError
        No device works.
    """
    for info in list_devices():
        if info.default:
            return info.device
    msg = (
        f"no usable device: {describe(list_devices())}; "
        "install the embedded CPU runtime (pip install 'perflex[cpu]') or a driver, see `perflex devices`"
    )
    raise DeviceError(msg)


def find_device(spec: str | Device | None = None) -> Device:
    """Return the one device that a specification singles out.

    Parameters
    ----------
    spec
        Case-insensitive parts of platform, vendor and device name, separated by spaces, underscores or
        colons, platform first (``"intel_epyc"``, ``"pocl"``); a device; or None for the default device.
        ``"cuda"`` or ``"opencl"`` in front says what it is reached through (``"cuda_h100"``, ``"cuda:0"``); without,
        OpenCL comes first.

    Raises
    ------
    DeviceError
        No device fits, several do, or the one that fits does not work.
    """
    if spec is None:
        return default_device()
    if isinstance(spec, Device):
        return spec
    infos = list_devices()
    matches = matching(spec, [info.device for info in infos], usable=working(infos))
    absence = cuda_absence() if not matches and split_spec(spec)[:1] == ("cuda",) else ""
    return pick(infos, matches, f"{spec!r} ({absence})" if absence else repr(spec))


def working(infos: Sequence[DeviceInfo]) -> frozenset[int]:
    """Return the numbers of the devices that work."""
    return frozenset(index for index, info in enumerate(infos) if info.usable)


def pick(infos: Sequence[DeviceInfo], matches: Sequence[int], asked: str) -> Device:
    """Return the only working device among the matches, or say why there is none."""
    # Devices that do not work are no reason to ask which one is meant.
    usable = [index for index in matches if infos[index].usable]
    if len(usable) == 1:
        return infos[usable[0]].device
    names = short_names([info.device for info in infos])
    listing = describe(infos)
    if usable:
        choices = ", ".join(names[index] for index in usable)
        msg = f"{asked} fits {len(usable)} devices, name one of them: {choices}; devices: {listing}"
        raise DeviceError(msg, devices=tuple(infos[index].device for index in usable))
    if matches:
        info = infos[matches[0]]
        msg = f"{info.device} does not work: {info.reason}; devices: {listing}"
        raise DeviceError(msg, device=info.device)
    msg = f"no device fits {asked}; devices: {listing}"
    raise DeviceError(msg)


def describe(infos: Sequence[DeviceInfo]) -> str:
    """Return one line that lists devices with the name that singles each out, and what is wrong with them."""
    names = short_names([info.device for info in infos])
    items = [
        f"{name} = {info.device}" + ("" if info.usable else f" [not usable: {info.reason}]")
        for name, info in zip(names, infos, strict=True)
    ]
    return "; ".join([*items, *driver_problems()]) or "none"
