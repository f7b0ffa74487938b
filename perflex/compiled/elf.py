"""ELF objects: what of them reading machine code needs, and those that lie inside of program binaries.

Source: Tool Interface Standard, Executable and Linking Format (ELF) specification 1.2; System V ABI, AMD64 supplement.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_MAGIC = b"\x7fELF"
_SYMBOL_TABLES = {2, 11}  # SHT_SYMTAB, SHT_DYNSYM
_FUNCTION = 2  # STT_FUNC
_RELOCATIONS = 4  # SHT_RELA
_X86_64 = 62
_CUDA = 190
# ET_REL and ET_DYN; other types are containers of drivers.
_NATIVE = {1, 2, 3}


@dataclass(frozen=True)
class Section:
    """A section of an ELF object: its name, type, address and bytes, and the numbers of two sections it belongs to.

    Relocations are linked to their symbols, and fill places in their subject. The size is that in memory: some sections
    have no bytes in the file.
    """

    name: str
    kind: int
    address: int
    content: bytes
    link: int
    subject: int = 0
    size: int = 0


@dataclass(frozen=True)
class Function:
    """Machine code of one function."""

    name: str
    address: int
    code: bytes
    # What it may call, by address: functions beside it, and places in its code that a linker fills with the address
    # of a symbol.
    symbols: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class ElfObject:
    """An ELF object of 64 bits."""

    # Number of the architecture, e.g. 62 for x86-64.
    machine: int
    sections: tuple[Section, ...]

    def functions(self) -> list[Function]:
        """Return all functions that have code, each once, in the order of their addresses."""
        found: dict[tuple[str, int], tuple[int, bytes]] = {}
        for table in self.sections:
            if table.kind not in _SYMBOL_TABLES:
                continue
            names = self.sections[table.link].content
            for start in range(0, len(table.content) - 23, 24):
                name, info, _, index, value, size = struct.unpack_from("<IBBHQQ", table.content, start)
                if info & 0xF != _FUNCTION or not size or not 0 < index < len(self.sections):
                    continue
                section = self.sections[index]
                first = value - section.address
                found[_text(names, name), value] = index, section.content[first : first + size]
        filled = self._filled()
        functions = []
        for (label, address), (index, code) in sorted(found.items(), key=lambda entry: entry[0][1]):
            beside = {value: other for (other, value), (place, _) in found.items() if place == index}
            inside = {
                place: symbol
                for place, symbol in filled.get(index, {}).items()
                if address <= place < address + len(code)
            }
            functions.append(Function(label, address, code, tuple(sorted((beside | inside).items()))))
        return functions

    def _filled(self) -> dict[int, dict[int, str]]:
        """Return by section which symbols' addresses a linker puts where."""
        found: dict[int, dict[int, str]] = {}
        for table in self.sections:
            if table.kind != _RELOCATIONS or not table.link or not 0 < table.subject < len(self.sections):
                continue
            symbols = self.sections[table.link]
            names = self.sections[symbols.link].content
            filled = found.setdefault(table.subject, {})
            for start in range(0, len(table.content) - 23, 24):
                place, info = struct.unpack_from("<QQ", table.content, start)
                if len(symbols.content) >= 24 * ((info >> 32) + 1):
                    label = _text(names, struct.unpack_from("<I", symbols.content, 24 * (info >> 32))[0])
                    # Constants are filled in as well; their symbols have no names.
                    filled |= {place: label} if label else {}
        return found


def elf_object(data: bytes, start: int = 0) -> ElfObject | None:
    """Return the ELF object that begins at a byte; None where there is none of 64 bits, or it is cut short."""
    if data[start : start + 5] != _MAGIC + b"\x02":
        return None
    try:
        kind, machine = struct.unpack_from("<HH", data, start + 16)
        (place,) = struct.unpack_from("<Q", data, start + 40)
        size, count, names = struct.unpack_from("<HHH", data, start + 58)
        if (machine == _X86_64 and kind not in _NATIVE) or not count or names >= count:
            return None
        headers = [struct.unpack_from("<IIQQQQII", data, start + place + number * size) for number in range(count)]
    except struct.error:
        return None
    table = _content(data, start, headers[names])
    sections = tuple(
        Section(_text(table, name), kind, address, _content(data, start, header), header[6], header[7], header[5])
        for header in headers
        for name, kind, _, address, *_ in [header]
    )
    return ElfObject(machine, sections)


def inner_objects(data: bytes) -> list[ElfObject]:
    """Return the x86-64 objects that lie anywhere in a program binary, in their order."""
    found, start = [], data.find(_MAGIC)
    while start >= 0:
        one = elf_object(data, start)
        if one is not None and one.machine == _X86_64:
            found.append(one)
        start = data.find(_MAGIC, start + 1)
    return found


def _content(data: bytes, start: int, header: tuple[int, ...]) -> bytes:
    _, kind, _, _, offset, size, *_ = header
    # SHT_NOBITS has no bytes in the file.
    return b"" if kind == 8 else data[start + offset : start + offset + size]


def _text(table: bytes, start: int) -> str:
    return table[start : table.find(b"\0", start)].decode("utf-8", "replace")
