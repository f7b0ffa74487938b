"""What formulas may know of a device: facts of its machine, or those of a usual GPU of its maker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perflex.errors import MachineError

if TYPE_CHECKING:
    from perflex.machines.machine import Machine

# Facts of a usual recent GPU of each maker, for devices that no machine file describes. Sources: NVIDIA, CUDA C++
# Programming Guide, technical specifications per compute capability; AMD, RDNA 2 and RDNA 3 instruction set guides.
_NVIDIA = {"m_amd": 0.0, "m_lanes": 32.0, "m_units": 60.0, "m_sub_groups": 48.0, "m_groups": 16.0}
_NVIDIA |= {"m_registers": 65536.0, "m_local_bytes": 102400.0, "m_local_reserved": 1024.0}
_AMD = {**_NVIDIA, "m_amd": 1.0, "m_units": 40.0, "m_sub_groups": 32.0}
_AMD |= {"m_local_bytes": 65536.0, "m_local_reserved": 0.0}
PLATFORM_FACTS = tuple(_NVIDIA)
# gfx: instruction sets; mi: Instinct; w and four digits: Radeon Pro; rx, vega: Radeon.
_AMD_NAMES = re.compile(r"\b(amd|radeon|instinct|gfx\w*|mi\d+\w*|w\d{4}\w*|rx\w*|vega\w*)\b", re.IGNORECASE)


def platform_of(device: str, machine: Machine | None = None) -> dict[str, float]:
    """Return the facts that formulas may use.

    Parameters
    ----------
    device
        Name of the device, e.g. ``"A100"``; decides the maker where no machine is known by that name.
    machine
        Facts to use instead of those that the name finds.

    Returns
    -------
    dict
        ``m_amd`` (1 or 0), ``m_lanes`` (work-items of a sub-group), and per compute unit ``m_sub_groups``,
        ``m_groups``, ``m_registers`` (32-bit), ``m_local_bytes``, ``m_local_reserved`` (B per work-group); ``m_units``.
        Where nothing is known, those of a usual GPU: the fit to measured configurations corrects for the rest.
    """
    found = machine if machine is not None else _by_name(device)
    # To a regular expression an underscore is a letter: \b finds no end of a word beside one.
    words = re.sub(r"[_\-]+", " ", device)
    amd = found.vendor.casefold() == "amd" if found is not None and found.vendor else bool(_AMD_NAMES.search(words))
    facts = dict(_AMD if amd else _NVIDIA)
    if found is None:
        return facts
    size = found.sub_group_size
    known = {
        "m_lanes": size,
        "m_units": found.compute_units,
        "m_sub_groups": found.max_items_per_unit // size if found.max_items_per_unit and size else None,
        "m_groups": found.max_groups_per_unit,
        "m_registers": found.registers_per_unit,
        "m_local_bytes": found.local_bytes,
        "m_local_reserved": found.local_reserved_bytes,
    }
    facts.update({name: float(value) for name, value in known.items() if value is not None})
    return facts


def _by_name(device: str) -> Machine | None:
    from perflex.machines.lookup import load_machine, machine_names

    begun = [name for name in machine_names() if name.casefold().startswith(f"{device.casefold()}-")]
    for place in (
        device,
        device.replace("_", "-"),
        device.replace("_", " "),
        f"RTX-{device}",
        f"RX-{device}",
        *begun[:1],
    ):
        try:
            return load_machine(place)
        except MachineError:
            continue
    return None
