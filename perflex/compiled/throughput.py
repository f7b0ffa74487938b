"""Cycles of straight code on a core: the busiest port, and the longest chain from one iteration to the next.

The core is one with two vector units of 512 bits, two loads and one store of 512 bits each cycle, three and two of
narrower ones, and six instructions issued (Golden Cove and Sunny Cove server cores alike). Reciprocal throughputs and
latencies are from A. Abel, J. Reineke, uops.info (Ice Lake and Alder Lake P), and A. Fog, Instruction tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.compiled import mix
from perflex.compiled.instructions import register

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perflex.compiled.instructions import Instruction

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
_GATHERED, _SCATTERED, _INDEXED = 0.4, 0.8, 0.8
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
    lanes = mix.indexed_lanes(one)
    if lanes:
        cycles = _INDEXED + lanes * (_GATHERED if mix.is_gather(one) else _SCATTERED)
        ports.load += cycles if mix.is_gather(one) else 0.0
        ports.store += cycles if mix.is_scatter(one) else 0.0
        ports.vector += 1.0
        ports.issue += lanes / 8
        return
    if address is not None and one.name != "lea":
        wide = max(address.width, one.width) == 64
        if one.writes_memory:
            ports.store += 1.0 if wide else 0.5
        else:
            ports.load += 0.5 if wide else 1 / 3
        if mix.is_move(one) or ("broadcast" in one.name and not one.writes_memory):
            return
    if one.name == "lea" or not mix.is_vector(one):
        slow = 1.0 if one.name.startswith(("imul", "mul", "pext", "pdep", "k")) else 0.2
        divided = _integer_division(one)
        ports.integer += slow if divided is None else 6.0 / 5
        ports.divider += 0.0 if divided is None else divided[0]
        return
    division = mix.division_of(one)
    if division is not None:
        ports.divider += _DIVISIONS[division[:2]][one.width if division[2] > 1 else 0]
    if mix.is_shuffle(one):
        ports.shuffle += 1.0
    # Copies between registers are done by renaming.
    if not mix.is_move(one):
        parts = _PRODUCTS.get(one.name, (1.0, 0.0))[0]
        ports.vector += parts * (0.5 if one.width == 64 or mix.arithmetic_of(one) or mix.is_product(one) else 1 / 3)


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
    division = mix.division_of(one)
    if division is not None:
        return _DIVISION_LATENCY[division[1]]
    if mix.indexed_lanes(one):
        return 12.0
    if mix.arithmetic_of(one) or mix.is_conversion(one):
        return 4.0
    # Copies between registers are done by renaming.
    if mix.is_move(one):
        return 0.0
    if mix.is_product(one):
        return _PRODUCTS.get(one.name, (1.0, _PRODUCT_LATENCY))[1]
    if mix.is_vector(one):
        return 3.0 if mix.is_shuffle(one) and one.width > 16 else 1.0
    divided = _integer_division(one)
    if divided is not None:
        return divided[1]
    return 3.0 if one.name.startswith(("imul", "mul")) else 1.0
