"""What a built kernel takes of a device: registers, and memory that its work-items have for themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FUNCTION = re.compile(r"(?:Compiling entry function|Function properties for) '?(\w+)'?")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores")


@dataclass(frozen=True)
class Resources:
    """What one kernel takes on one device; None where the driver does not tell.

    Attributes
    ----------
    registers
        32-bit registers per work-item.
    private_bytes
        Memory of each work-item beside its registers, in bytes: spilt registers and private arrays.
    spill_bytes
        Bytes that each work-item stores for want of registers.
    local_bytes
        Local memory of a work-group, in bytes.
    """

    registers: int | None = None
    private_bytes: int | None = None
    spill_bytes: int | None = None
    local_bytes: int | None = None


def most_of(programs: Iterable[Resources]) -> Resources:
    """Return what a kernel of several device programs takes: of each resource the most that any of them does."""
    found = list(programs)
    most: dict[str, int | None] = {}
    for name in (field.name for field in fields(Resources)):
        known = [value for program in found if (value := getattr(program, name)) is not None]
        # A program that nothing is known of may take more than the others.
        most[name] = max(known) if len(known) == len(found) and found else None
    return Resources(**most)


def resources_in_log(log: str) -> Mapping[str, Resources]:
    """Return registers and spilt bytes that NVIDIA's assembler (``ptxas -v``) tells of each kernel, by its name.

    Parameters
    ----------
    log
        Of NVRTC with ``--ptxas-options=-v``, or of NVIDIA's OpenCL with ``-cl-nv-verbose``.
    """
    found: dict[str, Resources] = {}
    spills: dict[str, int] = {}
    entry = function = ""
    for line in log.splitlines():
        if named := _FUNCTION.search(line):
            function = named[1]
            # Called functions have properties of their own; the registers that follow them are the entry's.
            if "entry" in line:
                entry = function
        elif spilt := _SPILLS.search(line):
            spills[function] = int(spilt[1])
        elif (used := _REGISTERS.search(line)) and entry:
            found[entry] = Resources(registers=int(used[1]), spill_bytes=spills.get(entry))
    return found
