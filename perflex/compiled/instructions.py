"""Machine instructions of x86-64: operands and classes, from the text of a disassembler, and cycles of straight code.

Cycles are those of the busiest port, and of the longest chain from one iteration to the next. The core is one with two
vector units of 512 bits, two loads and one store of 512 bits each cycle, three and two of narrower ones, and six
instructions issued (Golden Cove and Sunny Cove server cores alike). Reciprocal throughputs and latencies are from A.
Abel, J. Reineke, uops.info (Ice Lake and Alder Lake P), and A. Fog, Instruction tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perflex.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    """One instruction."""

    address: int
    size: int
    # Mnemonic, without prefixes such as ``lock``.
    name: str
    # As the disassembler writes them (Intel's order: the destination first), without masks.
    operands: tuple[str, ...]
    # Whether a mask register chooses its lanes.
    masked: bool = False
    # Of a call: what it calls, as far as that is known; else empty.
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


def disassembler() -> Any:
    """Return a capstone disassembler for x86-64, in Intel's syntax."""
    try:
        import capstone
    except ImportError as error:
        msg = "reading compiled code needs the disassembler capstone; install it with: pip install 'perflex[code]'"
        raise MissingExtraError(msg, extra="code") from error
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    # Data between functions, or an instruction that the disassembler does not know, is skipped.
    engine.skipdata = True
    return engine


def disassembled(function: Function) -> list[Instruction]:
    """Return the instructions of a function."""
    engine = disassembler()
    return [
        _instruction(address, size, name, operands)
        for address, size, name, operands in engine.disasm_lite(function.code, function.address)
    ]


def _instruction(address: int, size: int, name: str, operands: str) -> Instruction:
    parts = name.split()
    masked = bool(re.search(r"\{k\d\}", operands))
    plain = re.sub(r"\s*\{[^}]*\}", "", operands)
    separate = (part.strip() for part in plain.split(","))
    return Instruction(address, size, parts[-1], tuple(filter(None, separate)), masked)


_ARITHMETIC = re.compile(r"v?(fn?m(?:add|sub|addsub|subadd)\d{3}|add|sub|mul|min|max|addsub)([sp])([sd])$")
_DIVISION = re.compile(r"v?(div|sqrt)([sp])([sd])$")
_INDEXED = re.compile(r"v(p?)(?:gather|scatter)([dq])([sp]?[sdq])$")
_SHUFFLE = re.compile(
    r"v?(p?shuf|p?unpck|p?perm|p?insr|p?extr|insert|extract|p?align|p?broadcast|p?compress|p?expand|"
    r"mov(?:lhps|hlps|[lh]p[sd]|ddup|s[lh]dup))"
)
# Elements that go into or out of a vector one by one: what compilers make of gathers and scatters without instructions.
_INSERT = re.compile(r"v?(insertps|pinsr[dq]|pextr[dq]|extractps|mov[lh]p[sd])$")
# Products of integers in vectors.
_PRODUCT = re.compile(r"v?p(?:mul|madd)")
_CONVERT = re.compile(r"v?cvt")
_MOVE = re.compile(r"v?(mov(ap|up|s|dqa|dqu|d|q|nt)|lddqu|p?maskmov)")


def arithmetic_of(one: Instruction) -> tuple[str, int, float] | None:
    """Return element type, lanes and operations of floating-point arithmetic other than divisions; None of others.

    A fused product and sum are two operations; minimum and maximum are one.
    """
    match = _ARITHMETIC.match(one.name)
    if match is None:
        return None
    lanes = _lanes(one, match[2], match[3])
    return _dtype(match[3]), lanes, lanes * (2.0 if match[1].startswith("f") else 1.0)


def division_of(one: Instruction) -> tuple[str, str, int] | None:
    """Return kind (``"div"`` or ``"sqrt"``), element type and lanes of a division or square root; None of others."""
    match = _DIVISION.match(one.name)
    return (match[1], _dtype(match[3]), _lanes(one, match[2], match[3])) if match else None


def indexed_lanes(one: Instruction) -> int:
    """Return how many elements a gather or scatter instruction accesses; 0 for other instructions."""
    match = _INDEXED.match(one.name)
    if match is None:
        return 0
    element = 4 if match[3] in {"ps", "d"} else 8
    index = 4 if match[2] == "d" else 8
    # The wider of data and indices fills its register.
    return max(_WIDTHS[letter] for letter in re.findall(r"([xyz])mm", " ".join(one.operands))) // max(element, index)


def is_gather(one: Instruction) -> bool:
    """Return whether an instruction loads from addresses in a vector."""
    return "gather" in one.name


def is_shuffle(one: Instruction) -> bool:
    """Return whether an instruction moves elements between lanes, other than from memory to all of them."""
    if "broadcast" in one.name and "[" in one.operands[-1]:
        return False
    return _SHUFFLE.match(one.name) is not None


def is_insert(one: Instruction) -> bool:
    """Return whether an instruction puts one element into a vector, or takes one out."""
    return _INSERT.match(one.name) is not None


def is_move(one: Instruction) -> bool:
    """Return whether an instruction only moves a vector or an element between registers and memory."""
    return _MOVE.match(one.name) is not None


def _dtype(letter: str) -> str:
    return "float64" if letter == "d" else "float32"


def _lanes(one: Instruction, packed: str, letter: str) -> int:
    return (one.width or 16) // (8 if letter == "d" else 4) if packed == "p" else 1


_ISSUED = 6.0
# Cycles between divisions and square roots, by kind, element type and bytes (scalar ones: 0).
_DIVISIONS = {
    ("div", "float32"): {0: 3.0, 16: 3.0, 32: 5.0, 64: 10.0},
    ("div", "float64"): {0: 4.0, 16: 4.0, 32: 8.0, 64: 16.0},
    ("sqrt", "float32"): {0: 3.0, 16: 3.0, 32: 6.0, 64: 12.0},
    ("sqrt", "float64"): {0: 4.5, 16: 4.5, 32: 9.0, 64: 18.0},
}
_DIVISION_LATENCY = {"float32": 11.0, "float64": 14.0}
# Products of integers in vectors: parts that they are made of, each of which takes a vector unit, and cycles to the
# result. Others than these are one part of 5 cycles.
_PRODUCTS = {"vpmulld": (2.0, 10.0), "vpmullq": (3.0, 15.0)}
_PRODUCT_LATENCY = 5.0
# Cycles between integer divisions of single elements, by bytes of the divisor, and from one to what waits for it.
_INTEGER_DIVISIONS = {8: (10.0, 15.0), 4: (6.0, 12.0)}
_LOAD_LATENCY, _VECTOR_LOAD_LATENCY, _FORWARD_LATENCY = 5.0, 7.0, 5.0
# A gather or scatter takes so many cycles for each element, and for itself: as measured for the generator lmem_load on
# a Sapphire Rapids core (7.5 cycles for 16 elements of 4 B, 4.2 for 8 of 8 B).
_GATHERED, _SCATTERED, _INDEXED_EACH = 0.4, 0.8, 0.8
_NO_DESTINATION = ("cmp", "test", "push", "jmp", "call", "vucomis", "ucomis", "vcomis", "comis", "vptest", "kortest")


@dataclass
class Ports:
    """Cycles that each part of the core is busy."""

    issue: float = 0.0
    vector: float = 0.0
    shuffle: float = 0.0
    divider: float = 0.0
    load: float = 0.0
    store: float = 0.0
    integer: float = 0.0

    def most(self) -> float:
        """Return the cycles of the busiest part."""
        # Scalar integer work has two ports to itself, and shares the others with vectors.
        both = (2.0 * self.vector + 5.0 * self.integer) / 5.0
        return max(self.issue, self.vector, self.shuffle, self.divider, self.load, self.store, both)


def port_cycles(instructions: Iterable[Instruction]) -> float:
    """Return the cycles of the busiest part of a core for instructions that wait for nothing."""
    ports = Ports()
    for one in instructions:
        _add(ports, one)
    return ports.most()


def _add(ports: Ports, one: Instruction) -> None:
    if one.name in {"nop", "endbr64", "data16"}:
        return
    ports.issue += 1 / _ISSUED
    address = one.memory
    lanes = indexed_lanes(one)
    if lanes:
        ports.load += _INDEXED_EACH + lanes * _GATHERED if is_gather(one) else 0.0
        ports.store += 0.0 if is_gather(one) else _INDEXED_EACH + lanes * _SCATTERED
        ports.vector += 1.0
        ports.issue += lanes / 8
        return
    if address is not None and one.name != "lea":
        wide = max(address.width, one.width) == 64
        if one.writes_memory:
            ports.store += 1.0 if wide else 0.5
        else:
            ports.load += 0.5 if wide else 1 / 3
        if is_move(one) or ("broadcast" in one.name and not one.writes_memory):
            return
    if one.name == "lea" or not one.width:
        slow = 1.0 if one.name.startswith(("imul", "mul", "pext", "pdep", "k")) else 0.2
        divided = _integer_division(one)
        ports.integer += slow if divided is None else 6.0 / 5
        ports.divider += 0.0 if divided is None else divided[0]
        return
    division = division_of(one)
    if division is not None:
        ports.divider += _DIVISIONS[division[:2]][one.width if division[2] > 1 else 0]
    if is_shuffle(one):
        ports.shuffle += 1.0
    # Copies between registers are done by renaming.
    if not is_move(one):
        parts = _PRODUCTS.get(one.name, (1.0, 0.0))[0]
        ports.vector += parts * (0.5 if one.width == 64 or arithmetic_of(one) or _PRODUCT.match(one.name) else 1 / 3)


def _integer_division(one: Instruction) -> tuple[float, float] | None:
    """Return the cycles between integer divisions, and to the result; None of other instructions."""
    if one.name not in {"div", "idiv"}:
        return None
    operand = one.operands[0]
    wide = operand.startswith("qword") or (operand.startswith("r") and not operand.endswith(("d", "w", "b")))
    return _INTEGER_DIVISIONS[8 if wide else 4]


def chain_cycles(instructions: Sequence[Instruction]) -> float:
    """Return the cycles of each iteration if these instructions are repeated on a core without limits but latencies."""
    few, many = (_finished(instructions, times) for times in (4, 12))
    return (many - few) / 8


def _finished(instructions: Sequence[Instruction], times: int) -> float:
    ready: dict[str, float] = {}
    flows = [_flow(one) for one in instructions]
    changed = {target for _, _, target in flows}
    for _ in range(times):
        for one, (sources, places, target) in zip(instructions, flows, strict=True):
            if target.startswith("m") and not changed.isdisjoint(places):
                # The next iteration stores elsewhere, and what this one stored is not loaded from the same address.
                continue
            begin = max((ready.get(source, 0.0) for source in sources), default=0.0)
            # The address is needed a load's latency before the other operands are.
            loaded = max((ready.get(source, 0.0) for source in places), default=0.0) + _load_latency(one)
            end = max(begin, loaded) + _latency(one)
            if target:
                ready[target] = end
    return max(ready.values(), default=0.0)


def _flow(one: Instruction) -> tuple[list[str], list[str], str]:
    """Return what an instruction reads, what its address is made of, and what it writes.

    Registers, and memory by the text of its address.
    """
    if not one.operands or one.name in {"nop", "call"}:
        return [], [], ""
    address = one.memory
    sources = [register(operand) for operand in one.operands[1:] if "[" not in operand]
    parts = [] if address is None else [part for part in (address.base, address.index) if part and part != "rip"]
    first = one.operands[0]
    if one.name == "lea":
        return parts, [], register(first)
    target = f"m{address}" if "[" in first else register(first)
    if one.name.startswith(_NO_DESTINATION) or one.name.startswith("j"):
        return [*sources, *([register(first)] if "[" not in first else [])], parts, ""
    if address is not None and "[" not in first:
        sources.append(f"m{address}")
    if "xor" in one.name and len({register(operand) for operand in one.operands[-2:]}) == 1:
        return [], [], target
    if one.name.startswith(("vf", "vpdp")) or one.masked or (len(one.operands) < 3 and not _replaces(one)):
        sources.append(target)
    return sources, parts, target


def _replaces(one: Instruction) -> bool:
    """Return whether an instruction of two operands replaces its destination whatever it held."""
    return one.name.startswith(("mov", "v", "lea", "set", "k", "pop", "lzcnt", "tzcnt", "popcnt"))


def _load_latency(one: Instruction) -> float:
    if one.memory is None or one.name == "lea" or one.writes_memory:
        return 0.0
    return _VECTOR_LOAD_LATENCY if one.width else _LOAD_LATENCY


def _latency(one: Instruction) -> float:  # noqa: PLR0911 - a return for each class
    """Return the cycles from the last operand that is not in memory to the result."""
    if one.memory is not None and one.name != "lea" and one.writes_memory:
        return _FORWARD_LATENCY
    division = division_of(one)
    if division is not None:
        return _DIVISION_LATENCY[division[1]]
    if indexed_lanes(one):
        return 12.0
    if arithmetic_of(one) or _CONVERT.match(one.name):
        return 4.0
    # Copies between registers are done by renaming.
    if is_move(one):
        return 0.0
    if _PRODUCT.match(one.name):
        return _PRODUCTS.get(one.name, (1.0, _PRODUCT_LATENCY))[1]
    if one.width:
        return 3.0 if is_shuffle(one) and one.width > 16 else 1.0
    divided = _integer_division(one)
    if divided is not None:
        return divided[1]
    return 3.0 if one.name.startswith(("imul", "mul")) else 1.0
