"""What one execution of a block does, in numbers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.compiled import mix
from perflex.compiled.callees import callee
from perflex.compiled.throughput import port_cycles

if TYPE_CHECKING:
    from perflex.compiled.control_flow import Block
    from perflex.compiled.instructions import Instruction
    from perflex.compiled.values import Pointer, Propagation


@dataclass(frozen=True)
class BlockFacts:
    """What one execution of a block does.

    Attributes
    ----------
    cycles
        Of the busiest port.
    counts
        By name: ``instructions``, ``loads``, ``stores``, ``spills``, ``gathers`` and ``scatters`` (elements),
        ``inserts``, ``shuffles``, ``packed_<type>`` and ``scalar_<type>`` (arithmetic instructions), ``lanes_<type>``
        (their elements), ``ops_<type>`` (their operations), ``div_<type>`` and ``sqrt_<type>`` (elements),
        ``calls``, ``calls_<kind>`` (vector registers that they compute), ``global_load_bytes``, ``global_store_bytes``.
    """

    cycles: float
    counts: defaultdict[str, float]


def block_facts(block: Block, number: int, known: Propagation) -> BlockFacts:
    """Return what a block of a function does, whose values are known."""
    counts: defaultdict[str, float] = defaultdict(float)
    state = known.after(number, 0)
    for one in block.instructions:
        if one.name in {"nop", "endbr64"}:
            continue
        counts["instructions"] += 1
        _count_arithmetic(counts, one)
        address = one.memory
        if address is not None and one.name not in {"lea", "nop"}:
            _count_access(counts, one, known.place(state, address))
        known.step(state, one)
    return BlockFacts(port_cycles(block.instructions), counts)


def _count_arithmetic(counts: defaultdict[str, float], one: Instruction) -> None:
    if one.name == "call":
        counts["calls"] += 1
        kind, vectors = callee(one.symbol)
        counts[f"calls_{kind}"] += vectors
    arithmetic, division = mix.arithmetic_of(one), mix.division_of(one)
    if arithmetic is not None:
        dtype, lanes, operations = arithmetic
        counts[f"{'packed' if lanes > 1 else 'scalar'}_{dtype}"] += 1
        counts[f"lanes_{dtype}"] += lanes
        counts[f"ops_{dtype}"] += int(operations)
    elif division is not None:
        kind, dtype, lanes = division
        counts[f"{kind}_{dtype}"] += lanes
    elif mix.is_shuffle(one):
        counts["shuffles"] += 1
    if mix.is_insert(one):
        counts["inserts"] += 1


def _count_access(counts: defaultdict[str, float], one: Instruction, place: Pointer) -> None:
    lanes = mix.indexed_lanes(one)
    if lanes:
        counts["gathers" if mix.is_gather(one) else "scatters"] += lanes
        width = lanes * (8 if one.name.endswith(("pd", "q")) else 4)
        # Addresses in vectors alone may point anywhere.
        if place.region.startswith("global"):
            counts["global_load_bytes" if mix.is_gather(one) else "global_store_bytes"] += width
        return
    address = one.memory
    stores = one.writes_memory
    counts["stores" if stores else "loads"] += 1
    if place.region.startswith("frame") and place.offset is not None:
        counts["spills"] += 1
    # Elements are extracted into memory by the width of the element, which the operand names.
    if address is not None and place.region.startswith(("global", "unknown")):
        counts["global_store_bytes" if stores else "global_load_bytes"] += address.width
