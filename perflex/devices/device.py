"""What a device is, the interface that it is reached through, and how to name one by parts of its names."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

Api: TypeAlias = Literal["opencl", "cuda"]

API_NAMES: Mapping[Api, str] = {"opencl": "OpenCL", "cuda": "CUDA"}

# They run kernels step by step to inspect them; words of their names.
_SIMULATORS = ("oclgrind",)


@dataclass(frozen=True)
class Device:
    """One device: a description that can be hashed, compared and sent to other processes.

    Attributes
    ----------
    platform, vendor, name, driver
        What the driver calls them; `driver` holds driver and platform version, for CUDA the compiler's, too.
    ordinal
        Counts the devices that agree in all of the above, from 0.
    kind
        ``"cpu"``, ``"gpu"`` or ``"other"``.
    sub_group_size
        Work-items that execute together.
    compute_units
        Number of compute units.
    local_memory_bytes, global_memory_bytes, max_allocation_bytes
        Local memory of one work-group, device memory, and the largest single buffer, in bytes.
    most_local_memory_bytes
        Local memory of one work-group where the launch asks for it, as CUDA's dynamic shared memory, in bytes; 0 where
        there is no other limit for that.
    max_work_group_size, max_work_item_sizes
        Limits on the number of work-items of a work-group, in all and by axis.
    timer_resolution_ns
        Resolution of the event timer, in ns.
    double_precision
        Whether kernels may compute in double precision.
    api
        What the device is reached through: ``"opencl"`` or ``"cuda"``.
    max_groups
        Limits on the number of work-groups by axis; empty where there are none to speak of.
    compute_capability
        NVIDIA's version of the hardware's abilities, ``"9.0"``; empty for others.
    pci_address
        Place on the PCI bus, ``"0000:17:00.0"``, by which equal GPUs of a host are told apart whatever a process sees
        of them; empty for CPUs, and where the driver does not tell. MIG instances of one GPU share it.
    uuid
        What the driver tells the device from all others by, MIG instances of one GPU included (through OpenCL only
        where the driver does so); empty for CPUs, and where the driver does not tell.
    host
        Name of the host; empty for any.
    """

    platform: str
    vendor: str
    name: str
    driver: str
    ordinal: int = 0
    kind: str = "cpu"
    sub_group_size: int = 1
    compute_units: int = 1
    local_memory_bytes: int = 0
    global_memory_bytes: int = 0
    max_allocation_bytes: int = 0
    max_work_group_size: int = 1
    max_work_item_sizes: tuple[int, ...] = ()
    timer_resolution_ns: int = 1
    double_precision: bool = True
    api: Api = "opencl"
    max_groups: tuple[int, ...] = ()
    compute_capability: str = ""
    most_local_memory_bytes: int = 0
    pci_address: str = ""
    uuid: str = ""
    host: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.platform})"

    @property
    def names(self) -> tuple[str, str, str, str]:
        """Platform, vendor, name and driver: devices that agree in them are told apart by their ordinal."""
        return self.platform, self.vendor, self.name, self.driver

    @property
    def is_simulator(self) -> bool:
        """Whether the device executes kernels for inspection, so that its times mean nothing."""
        return any(word in f"{self.platform} {self.name}".lower() for word in _SIMULATORS)


@dataclass(frozen=True)
class DeviceInfo:
    """A device with the verdict of the probe kernel."""

    device: Device
    # Whether the probe kernel compiled and gave the right answer, else why not.
    usable: bool
    reason: str
    # How the device's driver was found.
    found_by: str
    # Whether its driver is the CPU runtime installed in the Python environment.
    embedded: bool = False
    # Whether this device is taken when none is named.
    default: bool = False

    @property
    def measurable(self) -> bool:
        """Whether its times are worth measuring: simulators run kernels, too, but their times are no device's."""
        return self.usable and not self.device.is_simulator

    def as_dict(self) -> dict[str, object]:
        """Return the facts that ``perflex devices --json`` prints."""
        device = self.device
        return {
            "api": device.api,
            "platform": device.platform,
            "vendor": device.vendor,
            "name": device.name,
            "driver": device.driver,
            "type": device.kind,
            "usable": self.usable,
            "reason": self.reason,
            "default": self.default,
            # OpenCL's probe kernel finds it out; without its verdict there is only the default.
            "sub_group_size": device.sub_group_size if self.usable else None,
            "compute_units": device.compute_units,
            "local_memory_bytes": device.local_memory_bytes,
            "compute_capability": device.compute_capability,
            "found_by": self.found_by,
        }


def identity(device: Any) -> str:
    """Return what tells a device from all others, equal ones of this and of other hosts included."""
    names = " / ".join(str(getattr(device, name, "")) for name in ("platform", "vendor", "name"))
    place = getattr(device, "uuid", "") or getattr(device, "pci_address", "") or getattr(device, "ordinal", 0)
    host = getattr(device, "host", "")
    return f"{names} #{place} on {host}" if host else f"{names} #{place}"


def anywhere(device: Any) -> Any:
    """Return a `Device` as any one with its names, on whichever host; others as they are."""
    return replace(device, ordinal=0, pci_address="", uuid="", host="") if isinstance(device, Device) else device


_SEPARATORS = re.compile(r"[\s_:]+")
_WORD = re.compile(r"[a-z0-9]+")
# Words that many devices share come last when a short name is looked for.
# fmt: off
_SHARED_WORDS = frozenset((
    "amd", "apple", "arm", "avx", "computing", "core", "corporation", "cpu", "cuda", "device",
    "generic", "genuine", "gpu", "graphics", "inc", "intel", "language", "linux", "nvidia",
    "opencl", "platform", "portable", "processor", "project", "pthread", "r", "the", "tm", "with",
))
# fmt: on
_VENDOR_WORDS = ("intel", "nvidia", "amd", "pocl", "oclgrind", "apple", "arm", "qualcomm", "rusticl")


def is_pocl(platform: str) -> bool:
    """Return whether a platform is PoCL's."""
    return "portable computing language" in platform.lower()


def split_spec(spec: str) -> tuple[str, ...]:
    """Return the lower-case parts of a device specification."""
    return tuple(part for part in _SEPARATORS.split(spec.lower()) if part)


def matching(spec: str, devices: Sequence[Device], usable: Collection[int] | None = None) -> list[int]:
    """Return the indices of the devices that a specification fits best.

    ``cuda`` in front means devices reached through CUDA, and a number after it CUDA's number among them; ``opencl`` in
    front those reached through OpenCL, unless it is part of a platform's name. Without, OpenCL devices come first; if
    none of them fits or works, those of CUDA follow. Numbers count as a whole: ``a10`` is no part of ``A100``.
    """
    ours = {api: [i for i, device in enumerate(devices) if device.api == api] for api in API_NAMES}
    first, *rest = split_spec(spec) or [""]
    if first == "cuda":
        if len(rest) == 1 and rest[0].isdecimal():
            return ours["cuda"][int(rest[0]) :][:1]
        return _among(" ".join(rest), ours["cuda"], devices) if rest else ours["cuda"]
    found = _among(spec, ours["opencl"], devices)
    if not found and first == "opencl":
        return _among(" ".join(rest), ours["opencl"], devices) if rest else ours["opencl"]
    if any(usable is None or index in usable for index in found):
        return found
    return _among(spec, ours["cuda"], devices) or found


def _among(spec: str, indices: Sequence[int], devices: Sequence[Device]) -> list[int]:
    return [indices[found] for found in _fitting(spec, [devices[index] for index in indices])]


def _fitting(spec: str, devices: Sequence[Device]) -> list[int]:
    """Return the indices of the devices of one interface that a specification fits best.

    The full device name decides, else each part is looked for in the platform's name, then in the device's: ``intel``
    means the platform of that name, though another one's device may be called Intel Xeon. Earlier parts decide first.
    """
    whole = spec.strip().lower()
    parts = split_spec(spec)
    if not parts:
        return []
    exact = [i for i, device in enumerate(devices) if whole in {device.name.lower(), str(device).lower()}]
    if exact:
        return exact
    texts = [_texts(device, devices) for device in devices]
    of_platform = {
        i: [_is_in(part, platform) for part in parts]
        for i, (platform, name) in enumerate(texts)
        if all(_is_in(part, platform) or _is_in(part, name) for part in parts)
    }
    best = max(of_platform.values(), default=[])
    return [i for i, found in of_platform.items() if found == best]


def _is_in(part: str, text: str) -> bool:
    """Return whether a text has a part; numbers count as a whole: ``a10`` is no part of ``a100``."""
    before, behind = (r"(?<!\d)" * part[0].isdigit(), r"(?!\d)" * part[-1].isdigit())
    return re.search(before + re.escape(part) + behind, text) is not None


def _texts(device: Device, devices: Sequence[Device]) -> tuple[str, str]:
    """Return the searched texts of the platform and of the device."""
    name = device.name.lower()
    # Without the driver: its version is not searched, and so cannot tell two devices apart.
    namesakes = [d for d in devices if (d.platform, d.vendor, d.name) == (device.platform, device.vendor, device.name)]
    if len(namesakes) > 1:
        name += f" d{namesakes.index(device)}"
    return f"{device.platform} {device.vendor}".lower(), name


def short_names(devices: Sequence[Device]) -> list[str]:
    """Return for each device the first short name, platform_device, that fits it and no other.

    Devices reached through CUDA are called cuda_device.

    Devices with the same names get a counter, ``d0``, ``d1``. The full device name is the last resort.
    """
    return [_short_name(index, devices) for index in range(len(devices))]


def _short_name(index: int, devices: Sequence[Device]) -> str:
    platform, name = _texts(devices[index], devices)
    platform_words = sorted(_words(platform), key=lambda word: word not in _VENDOR_WORDS)
    if devices[index].api == "cuda":
        platform_words = ["cuda"]
    # A family's name (epyc, xeon) rather than a model number or an abbreviation.
    name_words = sorted(_words(name), key=lambda word: (word in _SHARED_WORDS, not word.isalpha(), len(word) < 3))
    # Two words first, then three; trying more platform words would only take time, as pairs and triples grow.
    for first, second in product(platform_words[:6], name_words):
        if matching(f"{first}_{second}", devices) == [index]:
            return f"{first}_{second}"
    for first, second, third in product(platform_words[:6], name_words, name_words):
        if second != third and matching(f"{first}_{second}_{third}", devices) == [index]:
            return f"{first}_{second}_{third}"
    return "_".join([platform_words[0] if platform_words else "", *_WORD.findall(name)]).strip("_")


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(_WORD.findall(text)))


def opencl_devices(cl: Any) -> Iterator[Any]:
    """Yield the devices of all platforms; platforms without any are left out."""
    for platform in cl.get_platforms():
        try:
            yield from platform.get_devices()
        except cl.LogicError:  # some drivers report "no device" as an error
            continue


def names_of(device: Any) -> dict[str, str]:
    """Return what the driver calls a device, as the fields of a `Device`."""
    platform = device.platform
    return {
        "platform": platform.name.strip(),
        "vendor": platform.vendor.strip(),
        # Some CPUs' brand strings, which drivers pass on, are padded with blanks.
        "name": device.name.strip(),
        "driver": f"{device.driver_version.strip()} ({platform.version.strip()})",
    }
