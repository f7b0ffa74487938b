"""Matching devices by case-insensitive parts of their names, and finding short names that single one out."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

from perflex.devices.device import API_NAMES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from perflex.devices.device import Device

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


def split_spec(spec: str) -> tuple[str, ...]:
    """Return the lower-case parts of a device specification."""
    return tuple(part for part in _SEPARATORS.split(spec.lower()) if part)


def matching(spec: str, devices: Sequence[Device], usable: Collection[int] | None = None) -> list[int]:
    """Return the indices of the devices that a specification fits best.

    ``cuda`` in front means devices reached through CUDA, and a number after it CUDA's number among them; ``opencl`` in
    front those reached through OpenCL, unless it is part of a platform's name. Without, OpenCL devices come first; if
    none of them fits or works, those of CUDA follow.

    Parameters
    ----------
    spec
        What is looked for.
    devices
        Among what.
    usable
        Indices of the devices that work; by default all of them.
    """
    ours = {api: [i for i, device in enumerate(devices) if device.api == api] for api in API_NAMES}
    first, *rest = split_spec(spec) or [""]
    if first == "cuda":
        if len(rest) == 1 and rest[0].isdecimal() and int(rest[0]) < len(ours["cuda"]):
            return [ours["cuda"][int(rest[0])]]
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

    Three readings are tried in turn, and the first that fits any device decides: the full device name;
    platform parts followed by device parts; parts found anywhere. The second keeps ``intel_xeon`` from also
    meaning another platform's device on the same Intel Xeon.
    """
    whole = spec.strip().lower()
    parts = split_spec(spec)
    if not parts:
        return []
    texts = [_texts(device, devices) for device in devices]
    exact = [i for i, device in enumerate(devices) if whole in {device.name.lower(), str(device).lower()}]
    if exact:
        return exact
    ordered = [i for i, (platform, name) in enumerate(texts) if _splits(parts, platform, name)]
    if ordered:
        return ordered
    return [i for i, (platform, name) in enumerate(texts) if all(part in platform or part in name for part in parts)]


def _splits(parts: Sequence[str], platform: str, name: str) -> bool:
    return any(
        all(part in platform for part in parts[:at]) and all(part in name for part in parts[at:])
        for at in range(1, len(parts))
    )


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
