"""Machine instructions of x86-64 as operands and classes, from the text that a disassembler gives of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perflex.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perflex.compiled.elf import Function

_BYTES = {"byte": 1, "word": 2, "dword": 4, "qword": 8, "xmmword": 16, "ymmword": 32, "zmmword": 64}
_MEMORY = re.compile(r"(?:(\w+) ptr )?(?:\w+:)?\[([^\]]*)\]")
_VECTOR = re.compile(r"([xyz])mm(\d+)$")
_WIDTHS = {"x": 16, "y": 32, "z": 64}
_LEGACY = {"a": "ax", "b": "bx", "c": "cx", "d": "dx"}
_NAMED = re.compile(r"(?:[re]?(ax|bx|cx|dx|si|di|bp|sp)|([abcd])[lh]|(si|di|bp|sp)l|(r\d+)[dwb]?)$")


@dataclass(frozen=True)
class Address:
    """A memory operand: base and index registers (64 bits, empty for none), scale, displacement, and bytes accessed."""

    base: str
    index: str
    scale: int
    displacement: int
    width: int


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes
    ----------
    address, size
        Of its first byte, and how many bytes it has.
    name
        Mnemonic, without prefixes such as ``lock``.
    operands
        As the disassembler writes them (Intel's order: the destination first), without masks.
    masked
        Whether a mask register chooses its lanes.
    symbol
        Of a call: what it calls, as far as that is known; else empty.
    """

    address: int
    size: int
    name: str
    operands: tuple[str, ...]
    masked: bool = False
    symbol: str = ""

    @cached_property
    def memory(self) -> Address | None:
        """The memory operand, if it has one."""
        for operand in self.operands:
            if match := _MEMORY.search(operand):
                return _address(match[2], _BYTES.get(match[1] or "", 0))
        return None

    @cached_property
    def width(self) -> int:
        """Bytes of its widest vector register; 0 where it has none."""
        found = [_WIDTHS[match[1]] for operand in self.operands if (match := _VECTOR.match(operand))]
        return max(found, default=0)

    @property
    def writes_memory(self) -> bool:
        """Whether its memory operand, which it must have, is its destination."""
        return "[" in self.operands[0] and not self.name.startswith(("cmp", "test", "push", "call", "jmp", "bt"))


def _address(text: str, width: int) -> Address:
    base = index = ""
    scale, displacement, sign = 1, 0, 1
    for part in re.findall(r"[+-]|[^\s+-]+", text):
        if part in "+-":
            sign = -1 if part == "-" else 1
        elif "*" in part:
            name, factor = part.split("*")
            index, scale = register(name), int(factor)
        elif part[0].isdigit():
            displacement += sign * int(part, 0)
        elif base:
            index = register(part)
        else:
            base = register(part)
    return Address(base, index, scale, displacement, width)


def register(name: str) -> str:
    """Return what stands for a register of any width: ``rax`` for ``al``, ``v3`` for ``zmm3``; others as they are."""
    if match := _VECTOR.match(name):
        return f"v{match[2]}"
    if match := _NAMED.match(name):
        short = match[1] or _LEGACY.get(match[2] or "") or match[3]
        return f"r{short}" if short else match[4]
    return name


def disassembler(*, att: bool = False) -> Any:
    """Return a capstone disassembler for x86-64, in AT&T's syntax or Intel's.

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    try:
        import capstone
    except ImportError as error:
        msg = "reading compiled code needs the disassembler capstone; install it with: pip install 'perflex[code]'"
        raise MissingExtraError(msg, extra="code") from error
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    engine.syntax = capstone.CS_OPT_SYNTAX_ATT if att else capstone.CS_OPT_SYNTAX_INTEL
    # Data between functions, or an instruction that the disassembler does not know, is skipped.
    engine.skipdata = True
    return engine


def disassembled(function: Function) -> list[Instruction]:
    """Return the instructions of a function.

    Raises
    ------
    MissingExtraError
        The disassembler is not installed.
    """
    engine = disassembler()
    return [
        _instruction(address, size, name, operands)
        for address, size, name, operands in engine.disasm_lite(function.code, function.address)
    ]


def _instruction(address: int, size: int, name: str, operands: str) -> Instruction:
    parts = name.split()
    masked = bool(re.search(r"\{k\d\}", operands))
    plain = re.sub(r"\s*\{[^}]*\}", "", operands)
    return Instruction(address, size, parts[-1], tuple(filter(None, _split(plain))), masked)


def _split(operands: str) -> Iterable[str]:
    return (part.strip() for part in operands.split(","))
