"""Machine instructions of x86-64: classes of instructions, and cycles of straight code.

Cycles are those of the busiest port, and of the longest chain from one iteration to the next. The core is one with two
vector units of 512 bits, two loads and one store of 512 bits each cycle, three and two of narrower ones, and six
instructions issued (Golden Cove and Sunny Cove server cores alike). Reciprocal throughputs and latencies are from A.
Abel, J. Reineke, uops.info (Ice Lake and Alder Lake P), and A. Fog, Instruction tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.compiled.decoding import Register

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perflex.compiled.decoding import Instruction

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
    return one.width // max(element, index)


def is_gather(one: Instruction) -> bool:
    """Return whether an instruction loads from addresses in a vector."""
    return "gather" in one.name


def is_shuffle(one: Instruction) -> bool:
    """Return whether an instruction moves elements between lanes, other than from memory to all of them."""
    if "broadcast" in one.name and one.loads:
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
    lanes = indexed_lanes(one)
    if lanes:
        ports.load += _INDEXED_EACH + lanes * _GATHERED if is_gather(one) else 0.0
        ports.store += 0.0 if is_gather(one) else _INDEXED_EACH + lanes * _SCATTERED
        ports.vector += 1.0
        ports.issue += lanes / 8
        return
    for access in one.accesses:
        wide = max(access.address.width, one.width) == 64
        ports.store += access.stores * (1.0 if wide else 0.5)
        ports.load += access.loads * (0.5 if wide else 1 / 3)
    if one.accesses and (is_move(one) or ("broadcast" in one.name and one.loads)):
        return
    if not one.width:
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
    bits = operand.bits if isinstance(operand, Register) else 8 * one.accesses[0].address.width
    return _INTEGER_DIVISIONS[8 if bits == 64 else 4]


def chain_cycles(instructions: Sequence[Instruction]) -> float:
    """Return the cycles of each iteration if these instructions are repeated on a core without limits but latencies."""
    few, many = (_finished(instructions, times) for times in (4, 12))
    return (many - few) / 8


def _finished(instructions: Sequence[Instruction], times: int) -> float:
    ready: dict[str, float] = {}
    flows = [_flow(one) for one in instructions]
    changed = {target for _, _, targets in flows for target in targets}
    for _ in range(times):
        for one, (sources, places, targets) in zip(instructions, flows, strict=True):
            if one.stores and not changed.isdisjoint(places):
                # The next iteration stores elsewhere, and what this one stored is not loaded from the same address.
                continue
            begin = max((ready.get(source, 0.0) for source in sources), default=0.0)
            # The address is needed a load's latency before the other operands are.
            loaded = max((ready.get(source, 0.0) for source in places), default=0.0) + _load_latency(one)
            end = max(begin, loaded) + _latency(one)
            ready.update(dict.fromkeys(targets, end))
    return max(ready.values(), default=0.0)


def _flow(one: Instruction) -> tuple[list[str], list[str], list[str]]:
    """Return what an instruction reads, what its addresses are made of, and what it writes.

    Registers, and memory by its address.
    """
    # Of vzeroupper the lower parts of registers stay.
    if one.flow == "call" or one.name in {"nop", "vzeroupper"}:
        return [], [], []
    addresses = [access.address for access in one.accesses]
    places = [part for each in addresses for part in (each.base, each.index) if part and part != "rip"]
    sources = [name for name in one.reads if name not in places]
    loaded = [f"m{access.address}" for access in one.accesses if access.loads]
    stored = [f"m{access.address}" for access in one.accesses if access.stores]
    return sources + loaded, places, list(one.writes) + stored


def _load_latency(one: Instruction) -> float:
    if not one.loads or one.stores:
        return 0.0
    return _VECTOR_LOAD_LATENCY if one.width else _LOAD_LATENCY


def _latency(one: Instruction) -> float:  # noqa: PLR0911 - a return for each class
    """Return the cycles from the last operand that is not in memory to the result."""
    if one.stores:
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
