"""Devices: which there are, which of them work, how to name one, and the output feature of each.

That is the wall time of a kernel on a device, ``f_cl_wall_time_...`` or ``f_cuda_wall_time_...``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from perflex.devices.cuda import cuda_absence
from perflex.devices.device import API_NAMES, Device, matching, short_names, split_spec
from perflex.errors import DeviceError
from perflex.html import shown_by
from perflex.tables import Table, fixed, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.devices.device import Api, DeviceInfo


class DeviceInfos(tuple["DeviceInfo", ...]):
    """Devices: a tuple that notebooks show as a table."""

    __slots__ = ()

    def table(self) -> Table:
        """Return a row for each device, with the words that single it out."""
        columns = [
            text("device"), text("works"), text("name"), fixed("sub_group_size", "sub-group", unit="work-items"),
            fixed("compute_units"), fixed("local_memory_bytes", "local memory", unit="KiB", factor=1 / 1024),
            text("driver"), text("api", "reached through"), text("found_by"),
        ]  # fmt: skip
        names = short_names([info.device for info in self])
        return Table("Devices", columns, [
            (
                name + (" (default)" if info.default else ""),
                "yes" if info.usable else f"no: {info.reason}",
                str(info.device),
                # Only a kernel that ran tells the size of sub-groups.
                info.device.sub_group_size if info.usable else None,
                info.device.compute_units,
                info.device.local_memory_bytes,
                info.device.driver,
                API_NAMES[info.device.api],
                info.found_by,
            )
            for name, info in zip(names, self, strict=True)
        ])  # fmt: skip

    _repr_html_ = shown_by("result.html")


def list_devices(*, again: bool = False) -> DeviceInfos:
    """Return every device of the machine's drivers and the embedded one.

    OpenCL's devices come first; a GPU that both OpenCL and CUDA reach is listed for each.

    Drivers are tried in child processes, so that one that crashes or hangs is only reported. What worked is not tried
    again for a day, unless the driver or the machine changed; with `again` the next process tries all drivers, and this
    one, too, if it has not done so yet.
    """
    if again:
        from perflex.devices.kept_verdicts import forget

        forget()
    return DeviceInfos(_listed()[0])


def driver_problems() -> tuple[str, ...]:
    """Return one line for each driver that could not be loaded or offers no device."""
    return _listed()[1]


# Once: loaders of OpenCL read which drivers there are once per process, and each driver takes seconds to try.
@lru_cache(maxsize=1)
def _listed() -> tuple[tuple[DeviceInfo, ...], tuple[str, ...]]:
    from perflex.devices.probing import probe_drivers

    infos, problems = probe_drivers()
    return mark_default(infos), problems


def mark_default(infos: Sequence[DeviceInfo]) -> tuple[DeviceInfo, ...]:
    """Mark the first working GPU, else the embedded CPU runtime, else any device but a simulator."""
    working = [info for info in infos if info.measurable]
    preferences = (
        [info for info in working if info.device.kind == "gpu"],
        [info for info in working if info.embedded],
        working,
    )
    chosen = next((group[0] for group in preferences if group), None)
    return tuple(replace(info, default=info is chosen) for info in infos)


def default_device() -> Device:
    """Return the device that is taken when none is named."""
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
        colons, platform first (``"intel_epyc"``, ``"pocl"``); a device; or None for the default device. A part of a
        platform's name means the platform: ``"intel"`` is not PoCL on an Intel processor where Intel's runtime is.
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


# OpenCL's is the paper's name (Section 2.2).
_PREFIXES: Mapping[Api, str] = {"opencl": "f_cl_wall_time", "cuda": "f_cuda_wall_time"}


def is_wall_time(identifier: str) -> bool:
    """Return whether a feature identifier means a measured time."""
    return _api_of(identifier) is not None


def is_device_specific(identifier: str) -> bool:
    """Return whether a feature says where it is measured, as all do but ``f_cl_wall_time``: that on any device."""
    return identifier != _PREFIXES["opencl"]


def _api_of(identifier: str) -> Api | None:
    for api, prefix in _PREFIXES.items():
        if identifier == prefix or identifier.startswith(f"{prefix}_"):
            return api
    return None


def device_of(identifier: str) -> Device:
    """Return the device of ``f_cl_wall_time_<platform>_<device>`` or ``f_cuda_wall_time_<device>``, parts of its names.

    Without them it is the default one of the devices that are reached that way.
    """
    api = _api_of(identifier)
    if api is None:
        msg = f"{identifier!r} is no wall-time feature; those start with {' or '.join(_PREFIXES.values())}"
        raise DeviceError(msg, feature=identifier)
    infos = list_devices()
    own = [info for info in infos if info.device.api == api]
    spec = identifier[len(_PREFIXES[api]) :].strip("_")
    if not spec:
        found = next((info.device for info in mark_default(own) if info.default), None)
        if found is not None:
            return found
    spec = f"cuda {spec}" if api == "cuda" else spec or "opencl"
    matches = matching(spec, [info.device for info in own], usable=working(own))
    numbers = [infos.index(own[match]) for match in matches]  # messages list all devices, whatever they are reached by
    asked = f"feature {identifier!r}"
    absence = cuda_absence() if api == "cuda" and not own else ""
    return pick(infos, numbers, f"{asked} ({absence})" if absence else asked)


def wall_time_identifier(device: Device) -> str:
    """Return a short wall-time feature that means this device and no other of the machine."""
    api: Api = getattr(device, "api", "opencl")
    devices = [info.device for info in list_devices() if info.device.api == api]
    known = devices if device in devices else [*devices, device]
    return f"{_PREFIXES[api]}_{short_names(known)[known.index(device)].removeprefix('cuda_')}"
