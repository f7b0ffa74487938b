"""Numbers of a compiled kernel at given sizes: cycles, instructions and what they do, over a whole launch."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from perflex.compiled.control_flow import BlockFacts, Totals, UnknownFlowError, block_executions, blocks_of, loops_of
from perflex.compiled.decoding import Register, disassembled
from perflex.compiled.instructions import (
    arithmetic_of,
    chain_cycles,
    division_of,
    indexed_lanes,
    is_insert,
    is_shuffle,
    port_cycles,
)
from perflex.compiled.values import COUNTER, INVERSE, Pointer, Propagation, bits_of, signed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.control_flow import Block, Loop
    from perflex.compiled.decoding import Access, Instruction
    from perflex.compiled.elf import Function
    from perflex.compiled.program import CompiledProgram
    from perflex.compiled.values import State, Value

# The first that is found in a symbol's stem decides. PoCL's helpers of sine and of powers are named by their methods.
_STEMS = (
    ("integer", re.compile(r"^[iu](?:8|16|32|64)?(?:div|rem)")),
    ("pow", re.compile(r"pow|rootn|epln|expep")),
    ("tanh", re.compile(r"(?:sin|cos|tan)h")),
    ("trig", re.compile(r"sin|cos|tan|argreduction|piby2")),
    ("root", re.compile(r"sqrt|cbrt|hypot")),
    ("exp", re.compile(r"(?<!ld)(?<!fr)exp")),
    ("log", re.compile(r"(?<!i)log(?!b)")),
)
# Intel's names: element type and lanes follow the stem, __ocl_svml_z0_expf16. Those of the vector ABI of GNU: lanes
# precede it, _ZGVeN16v_expf.
_SVML = re.compile(r"_*(?:ocl_)?svml_(?:[a-z]\d_)?((?:exp|log)(?:10|2|1p|m1)|[a-z]+?2??)(f?)(\d+)(?:_\w+)?$")
_GNU = re.compile(r"_ZGV[a-e][NM](\d+)\w*?_([a-z]+?)(f?)$")
_MANGLED = re.compile(r"_Z\d+_*(?:cl|pocl)?_*(\w+)")
_REGISTER_BYTES = 64.0


@lru_cache(maxsize=1024)
def callee(symbol: str) -> tuple[str, float]:
    """Return the kind of function that a symbol names, else "other", and how many vector registers it computes.

    Calls of single elements, and of symbols that are not understood, compute one.
    """
    stem, lanes, single = symbol, 1, True
    if match := _SVML.match(symbol):
        stem, single, lanes = match[1], bool(match[2]), int(match[3])
    elif match := _GNU.match(symbol):
        lanes, stem, single = int(match[1]), match[2], bool(match[3])
    elif match := _MANGLED.match(symbol):
        stem = match[1]
    kind = next((kind for kind, pattern in _STEMS if pattern.search(stem.lower())), "other")
    wide = 4 if single or kind == "integer" else 8
    return kind, max(1.0, lanes * wide / _REGISTER_BYTES)


def with_callees(instructions: Sequence[Instruction], symbols: Mapping[int, str]) -> list[Instruction]:
    """Return instructions whose calls, and jumps out of the function, know the symbol that they go to."""
    held: dict[str, str] = {}
    own = {one.address for one in instructions}
    found = []
    for one in instructions:
        inside = (symbols[place] for place in range(one.address + 1, one.address + one.size) if place in symbols)
        symbol = next(inside, "")
        if one.flow == "next":
            held.update(dict.fromkeys(one.writes, symbol))
            found.append(one)
            continue
        target = one.operands[0] if one.operands else None
        if isinstance(target, int) and (one.flow == "call" or target not in own):
            symbol = symbol or symbols.get(target, "")
        elif isinstance(target, Register):
            # Addresses are loaded shortly before the call, or before the loop that it is in.
            symbol = held.get(target.name, "")
        found.append(replace(one, symbol=symbol))
    return found


def block_facts(block: Block, number: int, known: Propagation) -> BlockFacts:
    """Return what a block of a function does, whose values are known; nothing of a block that is never reached."""
    counts: defaultdict[str, float] = defaultdict(float)
    if known.before[number] is None:
        return BlockFacts(0.0, counts)
    state = known.after(number, 0)
    for one in block.instructions:
        if one.name in {"nop", "endbr64"}:
            continue
        counts["instructions"] += 1
        _count_arithmetic(counts, one)
        for access in one.accesses:
            _count_access(counts, one, access, known.place(state, access.address), _repetitions(one, state))
        known.step(state, one)
    return BlockFacts(port_cycles(block.instructions), counts)


def _repetitions(one: Instruction, state: State) -> int:
    times = state.values.get("rcx") if one.repeated else 1
    if not isinstance(times, int):
        msg = f"the data determine how often {one.name} at {one.address:#x} is repeated"
        raise UnknownFlowError(msg)
    return times


def _count_arithmetic(counts: defaultdict[str, float], one: Instruction) -> None:
    if one.flow == "call" or one.symbol:
        counts["calls"] += 1
        kind, vectors = callee(one.symbol)
        counts[f"calls_{kind}"] += vectors
    arithmetic, division = arithmetic_of(one), division_of(one)
    if arithmetic is not None:
        dtype, lanes, operations = arithmetic
        counts[f"{'packed' if lanes > 1 else 'scalar'}_{dtype}"] += 1
        counts[f"lanes_{dtype}"] += lanes
        counts[f"ops_{dtype}"] += int(operations)
    elif division is not None:
        kind, dtype, lanes = division
        counts[f"{kind}_{dtype}"] += lanes
    elif is_shuffle(one):
        counts["shuffles"] += 1
    if is_insert(one):
        counts["inserts"] += 1


def _count_access(
    counts: defaultdict[str, float], one: Instruction, access: Access, place: Pointer, times: int
) -> None:
    lanes = indexed_lanes(one)
    width = (lanes * (8 if one.name.endswith(("pd", "q")) else 4) if lanes else access.address.width) * times
    # Addresses in vectors alone may point anywhere.
    shared = place.region.startswith("global") or (place.region == "unknown" and not lanes)
    for does, kind, indexed in ((access.loads, "load", "gathers"), (access.stores, "store", "scatters")):
        if does:
            counts[indexed if lanes else f"{kind}s"] += lanes or times
            counts["spills"] += times * (not lanes and place.region.startswith("frame") and place.offset is not None)
            counts[f"global_{kind}_bytes"] += width * shared


_LONGEST = 10**12


def trip_count(loop: Loop, blocks: Sequence[Block], known: Propagation) -> int | None:
    """Return how many iterations each entry of a loop makes; None where that is not known.

    The loop is left at its one back edge only, which a comparison of a counter with a fixed value decides; each
    iteration adds a fixed number to the counter.
    """
    latch, header = loop.back_edges[0]
    block = blocks[latch]
    place = _comparison(block)
    left = {begin for begin, end in known.edges if begin in loop.body and end not in loop.body}
    if len(loop.back_edges) != 1 or len(block.followers) != 2 or place is None or left - {latch}:
        return None
    start, iteration = known.iteration(loop)
    end, jump = iteration.after(latch), block.instructions[-1].name[1:]
    # Control stays in the loop where the condition holds, or where it does not.
    condition = jump if block.followers[1] == header else INVERSE.get(jump, "")
    condition, counter, bound = _compared(
        iteration, iteration.after(latch, place), block.instructions[place], condition
    )
    if counter is None or counter.offset is None:
        return None
    (counted,) = [each for each in start.values if f"{COUNTER}{each}" == counter.region]
    first, after = start.values[counted], end.values.get(counted)
    step = after.offset if isinstance(after, Pointer) and after.region == counter.region else None
    bits = bits_of(block.instructions[place].operands[0])
    if isinstance(first, Pointer) and isinstance(bound, Pointer) and first.region == bound.region:
        first, bound, bits = first.offset, bound.offset, 64
    if step is None or not isinstance(first, int) or not isinstance(bound, int):
        return None
    mask = (1 << bits) - 1
    first, bound = (
        value & mask if condition in _UNSIGNED else signed(value, bits) for value in (first + counter.offset, bound)
    )
    return _iterations(condition, first, step, bound)


# What holds of two numbers when a condition holds of them in the other order.
_MIRRORED = {"l": "g", "le": "ge", "b": "a", "be": "ae"}
_MIRRORED |= {other: one for one, other in _MIRRORED.items()} | {"e": "e", "ne": "ne"}
_UNSIGNED = {"a", "ae", "b", "be"}


def _comparison(block: Block) -> int | None:
    """Return the place of what sets the flags of a block's jump."""
    places = [place for place, one in enumerate(block.instructions) if one.changes_flags or one.flow == "call"]
    return places[-1] if places else None


def _compared(known: Propagation, state: State, one: Instruction, condition: str) -> tuple[str, Pointer | None, Value]:
    """Return a condition, the counter that it is of, None where it is of none, and what that is compared with."""
    left, right = (known.read(state, operand) for operand in (*one.operands, 0, 0)[:2])
    if one.name == "dec":
        right = 1
    elif one.name in {"add", "inc"}:
        known.step(state, one)
        left, right = known.read(state, one.operands[0]), 0
    elif one.name == "test" and one.operands[0] == one.operands[1]:
        right = 0
    elif one.name not in {"cmp", "sub"}:
        return "", None, None
    if condition in _UNSIGNED and one.name not in {"cmp", "sub"}:
        return "", None, None
    for counter, bound, way in ((left, right, condition), (right, left, _MIRRORED.get(condition, ""))):
        if isinstance(counter, Pointer) and counter.region.startswith(COUNTER):
            return way, counter, bound
    return "", None, None


def _iterations(condition: str, first: int, step: int, bound: int) -> int | None:
    """Return how often a loop runs whose counter is `first` at its first comparison."""
    if condition == "ne":
        distance = bound - first
        if not step or distance % step or distance // step < 0:
            return None
        return distance // step + 1
    # In all others the counter approaches the bound from the side on which the loop goes on.
    upward = {"l": 0, "b": 0, "s": 0, "le": 1, "be": 1}
    downward = {"g": 0, "a": 0, "ge": 1, "ae": 1, "ns": 1}
    if condition in upward and step > 0:
        left = bound + upward[condition] - first
        return max(0, -(-left // step)) + 1 if left < _LONGEST else None
    if condition in downward and step < 0:
        left = first + downward[condition] - bound
        return max(0, -(-left // -step)) + 1 if left < _LONGEST else None
    return None


# Instructions that wait for others in a core: entries of its scheduler for arithmetic (Golden Cove, Sunny Cove alike).
_IN_FLIGHT = 97


@dataclass
class CodeValues:
    """What a call of compiled code does."""

    # In-core cycles: of busiest ports, and of chains where those take longer.
    cycles: float = 0.0
    # Of these, what chains take beyond ports.
    chained: float = 0.0
    # As `BlockFacts.counts`, of all executions.
    counts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: CodeValues, times: float) -> None:
        """Add another call's, so many times."""
        self.cycles += times * other.cycles
        self.chained += times * other.chained
        for name, count in other.counts.items():
            self.counts[name] += count * times


@lru_cache(maxsize=512)
def _read(function: Function) -> tuple[tuple[Block, ...], tuple[Loop, ...]]:
    instructions = with_callees(disassembled(function), dict(function.symbols))
    blocks = tuple(blocks_of(instructions))
    return blocks, tuple(loops_of(blocks))


def group_values(
    program: CompiledProgram, sizes: Mapping[str, int], local_size: Sequence[int], totals: Totals
) -> CodeValues:
    """Return what a work-group does, the mean of all of them."""
    found = CodeValues()
    registers, memory = program.entry(sizes, local_size)
    for function, share in program.parts(local_size):
        blocks, loops = _read(function)
        known = Propagation(blocks, registers, memory)
        found.add(_called(blocks, loops, known, totals.times(share)), 1.0)
    return found


@dataclass(frozen=True)
class _Turns:
    """How often a loop without loops inside is entered and goes back to its begin, and its instructions."""

    loop: Loop
    instructions: tuple[Instruction, ...]
    entries: float
    repeated: float

    def chain(self) -> float:
        """Return the cycles that chains take over all entries."""
        if not self.entries:
            return 0.0
        iteration = chain_cycles(self.instructions)
        trip = self.repeated / self.entries + 1
        # So many iterations are in flight: short loops are overlapped by the next ones.
        window = _IN_FLIGHT / len(self.instructions)
        return iteration * trip * self.entries * trip / (trip + window)


def _innermost(blocks: Sequence[Block], loops: Sequence[Loop], taken: Mapping[tuple[int, int], float]) -> list[_Turns]:
    found = []
    for loop in loops:
        if any(other.body < loop.body for other in loops):
            continue
        repeated, entries = (sum(taken.get(edge, 0.0) for edge in edges) for edges in (loop.back_edges, loop.entries))
        instructions = tuple(one for number in sorted(loop.body) for one in blocks[number].instructions)
        found.append(_Turns(loop, instructions, entries, repeated))
    return found


def _called(blocks: Sequence[Block], loops: Sequence[Loop], known: Propagation, totals: Totals) -> CodeValues:
    facts = [block_facts(block, number, known) for number, block in enumerate(blocks)]
    trips = [(loop, trip) for loop in loops if (trip := trip_count(loop, blocks, known)) is not None]
    runs, taken = block_executions(blocks, known.edges, facts, trips, totals)
    turns = _innermost(blocks, loops, taken)
    found = CodeValues()
    for times, one in zip(runs, facts, strict=True):
        found.cycles += times * one.cycles
        for name, count in one.counts.items():
            found.counts[name] += count * times
    for one_loop in turns:
        busiest = sum(runs[number] * facts[number].cycles for number in one_loop.loop.body)
        chain = one_loop.chain()
        found.chained += max(0.0, chain - busiest)
    found.cycles += found.chained
    return found
