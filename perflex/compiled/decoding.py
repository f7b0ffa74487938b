"""Machine instructions of x86-64 as the decoder iced-x86 reads them: operands, and what they read, write and access."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from perflex.errors import MissingExtraError

if TYPE_CHECKING:
    from perflex.compiled.elf import Function


@dataclass(frozen=True)
class Register:
    """A register as an instruction names it.

    Attributes
    ----------
    name
        Of all of it: ``"rax"`` for ``eax``, ``"v3"`` for ``zmm3``; others by their own names.
    bits
        How many of it are meant: the lowest ones, or the second byte where `high` says so (``ah``).
    """

    name: str
    bits: int
    high: bool = False


@dataclass(frozen=True)
class Address:
    """A memory operand: base and index registers (64 bits, empty for none), scale, displacement, and bytes accessed.

    The displacement from ``"rip"`` is counted from zero.
    """

    base: str
    index: str
    scale: int
    displacement: int
    width: int


@dataclass(frozen=True)
class Access:
    """What an instruction does to a memory operand: it loads, stores, or both."""

    address: Address
    loads: bool
    stores: bool


# Numbers are immediate operands, and targets of jumps and calls.
Operand: TypeAlias = Register | Address | int


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes
    ----------
    name
        Mnemonic, without prefixes such as ``lock``.
    operands
        In Intel's order: the destination first.
    reads, writes
        Registers that it reads, and that it writes or may write, by `Register.name`: addresses' and implicit ones, too.
    accesses
        Of memory operands. What calls, returns and pushes do to the stack besides is left out.
    flow
        ``"next"``, ``"jump"``, ``"branch"``, ``"computed"`` (a jump whose target is), ``"call"`` or ``"end"``;
        ``"unknown"`` where the bytes are no instruction that the decoder knows.
    width
        Bytes of its widest vector register; 0 where it has none.
    repeated
        Whether it runs as often as rcx says.
    symbol
        Of a call, and of a jump out of the function: where it goes, as far as that is known; else empty.
    """

    address: int
    size: int
    name: str
    operands: tuple[Operand, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    accesses: tuple[Access, ...] = ()
    flow: str = "next"
    changes_flags: bool = False
    width: int = 0
    repeated: bool = False
    symbol: str = ""

    @property
    def memory(self) -> Address | None:
        """Its first memory operand, accessed or not (``lea``)."""
        return next((operand for operand in self.operands if isinstance(operand, Address)), None)

    @property
    def loads(self) -> bool:
        """Whether it loads from a memory operand."""
        return any(one.loads for one in self.accesses)

    @property
    def stores(self) -> bool:
        """Whether it stores to a memory operand."""
        return any(one.stores for one in self.accesses)


def disassembled(function: Function) -> list[Instruction]:
    """Return the instructions of a function."""
    return _decoder().instructions(function)


def _members(enumeration: Any) -> dict[int, str]:
    return {value: name.lower() for name, value in vars(enumeration).items() if name.isupper()}


class _Decoder:
    """iced-x86, with names instead of its numbers."""

    def __init__(self) -> None:
        try:
            import iced_x86
        except ImportError as error:
            msg = "reading compiled code needs the decoder iced-x86; install it with: pip install 'perflex[code]'"
            raise MissingExtraError(msg, extra="code") from error
        self._iced = iced_x86
        self._facts = iced_x86.InstructionInfoFactory()
        self._names = _members(iced_x86.Mnemonic)
        registers = _members(iced_x86.Register)
        self._registers = {value: self._named(value, registers) for value in registers}
        access, flow = iced_x86.OpAccess, iced_x86.FlowControl
        both = {access.READ_WRITE, access.READ_COND_WRITE}
        self._reading = {access.READ, access.COND_READ} | both
        self._writing = {access.WRITE, access.COND_WRITE} | both
        self._flows = {
            flow.UNCONDITIONAL_BRANCH: "jump",
            flow.CONDITIONAL_BRANCH: "branch",
            flow.INDIRECT_BRANCH: "computed",
            flow.CALL: "call",
            flow.INDIRECT_CALL: "call",
            flow.RETURN: "end",
            flow.EXCEPTION: "end",
        }
        kind = iced_x86.OpKind
        # Of instructions for strings.
        self._pointers = {kind.MEMORY_SEG_RSI: "rsi", kind.MEMORY_SEG_RDI: "rdi", kind.MEMORY_ESRDI: "rdi"}
        self._targets = {kind.NEAR_BRANCH16, kind.NEAR_BRANCH32, kind.NEAR_BRANCH64}

    def _named(self, value: int, names: dict[int, str]) -> Register:
        facts = self._iced.RegisterExt
        full = facts.full_register(value)
        name = f"v{facts.number(full)}" if facts.is_vector_register(full) else names[full]
        return Register(name, 8 * facts.size(value), names[value] in {"ah", "bh", "ch", "dh"})

    def instructions(self, function: Function) -> list[Instruction]:
        decoder = self._iced.Decoder(64, function.code, ip=function.address)
        return [self._instruction(one) for one in decoder]

    def _instruction(self, one: Any) -> Instruction:
        if one.is_invalid:
            return Instruction(one.ip, one.len, "", flow="unknown")
        facts = self._facts.info(one)
        operands = tuple(self._operand(one, number) for number in range(one.op_count))
        used = [(self._registers[each.register].name, each.access) for each in facts.used_registers()]
        accesses = [
            Access(operand, access in self._reading, access in self._writing)
            for number, operand in enumerate(operands)
            if isinstance(operand, Address)
            and ((access := facts.op_access(number)) in self._reading or access in self._writing)
        ]
        named = [one.op_register(number) for number in range(one.op_count)] + [one.memory_index]
        return Instruction(
            one.ip,
            one.len,
            self._names[one.mnemonic],
            operands,
            tuple(dict.fromkeys(name for name, access in used if access in self._reading)),
            tuple(dict.fromkeys(name for name, access in used if access in self._writing)),
            tuple(accesses),
            self._flows.get(one.flow_control, "next"),
            one.rflags_modified != 0,
            max((each.bits // 8 for value in named if (each := self._registers[value]).name[0] == "v"), default=0),
            one.has_rep_prefix and one.is_string_instruction,
        )

    def _operand(self, one: Any, number: int) -> Operand:
        kind = one.op_kind(number)
        if kind == self._iced.OpKind.REGISTER:
            return self._registers[one.op_register(number)]
        # A broadcast loads one element.
        sizes = self._iced.MemorySizeExt
        width = (sizes.element_size if one.is_broadcast else sizes.size)(one.memory_size)
        if kind in self._pointers:
            return Address(self._pointers[kind], "", 1, 0, width)
        if kind == self._iced.OpKind.MEMORY:
            base, index = (
                "" if value == self._iced.Register.NONE else self._registers[value].name
                for value in (one.memory_base, one.memory_index)
            )
            displacement = one.memory_displacement
            return Address(base, index, one.memory_index_scale, displacement - (displacement >> 63 << 64), width)
        if kind in self._targets:
            return int(one.near_branch_target)
        value = one.immediate(number)
        return int(value - (value >> 63 << 64))


@lru_cache(maxsize=1)
def _decoder() -> _Decoder:
    return _Decoder()
