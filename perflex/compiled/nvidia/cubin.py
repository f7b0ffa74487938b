"""What a cubin says of its kernels: registers, memory and places of arguments.

Source: NVIDIA, CUDA Binary Utilities (``cuobjdump -elf``), which names the attributes of ``.nv.info`` sections.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from perflex.compiled.elf import elf_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.compiled.elf import ElfObject

# EIATTR_REGCOUNT and EIATTR_FRAME_SIZE, each with a symbol and a number; EIATTR_KPARAM_INFO, of one argument.
_REGISTERS, _FRAME, _ARGUMENT = 0x2F, 0x11, 0x17
# From compute capability 9.0 on kernels' arrays lie behind what the device keeps of each work-group's local memory.
_RESERVED, _RESERVED_SECTION = 1024, ".nv.shared.reserved.0"
# EIFMT_SVAL: a value of as many bytes as follow.
_SIZED = 4


@dataclass(frozen=True)
class GpuCode:
    """A kernel as it was compiled for an NVIDIA GPU.

    Attributes
    ----------
    architecture
        What it was compiled for, as ``"sm_90"``.
    cubin
        The ELF object with all kernels of the source.
    name
        The kernel's name in it.
    groups, work_group
        Work-groups of the launch, and work-items of a work-group, along each axis.
    spill_bytes
        Bytes that each work-item stores for want of registers, as the assembler tells; None where it does not.
    """

    architecture: str
    cubin: bytes
    name: str
    groups: tuple[int, ...]
    work_group: tuple[int, ...]
    spill_bytes: int | None = None


@dataclass(frozen=True)
class KernelFacts:
    """What a cubin says of one kernel.

    Attributes
    ----------
    registers
        32-bit registers per work-item.
    private_bytes
        Memory of each work-item beside its registers: spilt registers and private arrays.
    local_bytes
        Local memory of a work-group that the code declares.
    arguments
        First byte of each argument in constant bank 0 and its bytes, in their order.
    """

    registers: int
    private_bytes: int
    local_bytes: int
    arguments: tuple[tuple[int, int], ...]


@lru_cache(maxsize=256)
def kernel_facts(code: GpuCode) -> KernelFacts:
    """Return what a cubin says of a kernel.

    Raises
    ------
    ValueError
        The object is no cubin, or has no such kernel.
    """
    found = elf_object(code.cubin)
    sections = {} if found is None else {one.name: one for one in found.sections}
    if found is None or f".text.{code.name}" not in sections:
        msg = f"the cubin has no kernel {code.name!r}"
        raise ValueError(msg)
    numbers: dict[tuple[int, str], int] = {}
    for attribute, payload in _attributes(sections[".nv.info"].content):
        if attribute in {_REGISTERS, _FRAME}:
            symbol, number = struct.unpack("<II", payload)
            numbers[attribute, _symbol(found, symbol)] = number
    # Index, ordinal and offset of an argument; the highest bits are its size.
    places: dict[int, tuple[int, int]] = {}
    for attribute, payload in _attributes(sections[f".nv.info.{code.name}"].content):
        if attribute == _ARGUMENT:
            _, ordinal, offset, rest = struct.unpack("<IHHI", payload)
            places[ordinal] = offset, rest >> 18
    bank = sections.get(f".nv.constant0.{code.name}")
    # Arguments end the bank.
    begin = 0 if bank is None else bank.size - max((offset + size for offset, size in places.values()), default=0)
    shared = sections.get(f".nv.shared.{code.name}")
    return KernelFacts(
        numbers[_REGISTERS, code.name],
        numbers.get((_FRAME, code.name), 0),
        0 if shared is None else shared.size - (_RESERVED if _RESERVED_SECTION in sections else 0),
        tuple((begin + places[ordinal][0], places[ordinal][1]) for ordinal in sorted(places)),
    )


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place + 4 <= len(content):
        form, attribute, extent = struct.unpack_from("<BBH", content, place)
        place += 4
        size = extent if form == _SIZED else 0
        yield attribute, content[place : place + size]
        place += size


def _symbol(found: ElfObject, number: int) -> str:
    table = next(one for one in found.sections if one.name == ".symtab")
    (place,) = struct.unpack_from("<I", table.content, 24 * number)
    names = found.sections[table.link].content
    return names[place : names.find(b"\0", place)].decode("utf-8", "replace")
