"""Numbers of a compiled kernel at given sizes: cycles, instructions and what they do, over a whole launch."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from perflex.compiled.control_flow import BlockFacts, Totals, block_executions, blocks_of, loops_of
from perflex.compiled.instructions import (
    arithmetic_of,
    chain_cycles,
    disassembled,
    division_of,
    indexed_lanes,
    is_gather,
    is_insert,
    is_shuffle,
    port_cycles,
    register,
)
from perflex.compiled.values import Propagation, join, operand_bits, signed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.control_flow import Block, Loop
    from perflex.compiled.elf import Function
    from perflex.compiled.instructions import Instruction
    from perflex.compiled.program import CompiledProgram
    from perflex.compiled.values import Pointer, Value

KINDS = ("exp", "log", "trig", "tanh", "pow", "root", "integer", "other")
# The first that is found in a symbol's stem decides. PoCL's helpers of sine and of powers are named by their methods.
_STEMS = (
    ("integer", re.compile(r"^[iu](?:8|16|32|64)?(?:div|rem)")),
    ("pow", re.compile(r"pow|rootn|epln|expep")),
    ("tanh", re.compile(r"(?:sin|cos|tan)h")),
    ("trig", re.compile(r"sin|cos|tan|argreduction|piby2")),
    ("root", re.compile(r"sqrt|cbrt|hypot")),
    ("exp", re.compile(r"exp")),
    ("log", re.compile(r"log")),
)
# Intel's names: element type and lanes follow the stem, __ocl_svml_z0_expf16. Those of the vector ABI of GNU: lanes
# precede it, _ZGVeN16v_expf.
_SVML = re.compile(r"_*(?:ocl_)?svml_(?:[a-z]\d_)?((?:exp|log)(?:10|2|1p|m1)|[a-z]+?2??)(f?)(\d+)(?:_\w+)?$")
_GNU = re.compile(r"_ZGV[a-e][NM](\d+)\w*?_([a-z]+?)(f?)$")
_MANGLED = re.compile(r"_Z\d+_*(?:cl|pocl)?_*(\w+)")
_REGISTER_BYTES = 64.0


@lru_cache(maxsize=1024)
def callee(symbol: str) -> tuple[str, float]:
    """Return the kind of function that a symbol names, one of `KINDS`, and how many vector registers it computes.

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
    """Return instructions whose calls know the symbol that they call."""
    held: dict[str, str] = {}
    found = []
    for one in instructions:
        inside = (symbols[place] for place in range(one.address + 1, one.address + one.size) if place in symbols)
        symbol = next(inside, "")
        if one.name == "call":
            target = one.operands[0] if one.operands else ""
            if not symbol and target.startswith("0x"):
                symbol = symbols.get(int(target, 16), "")
            # Addresses are loaded shortly before the call, or before the loop that it is in.
            symbol = symbol or held.get(register(target), "")
            found.append(replace(one, symbol=symbol))
            continue
        if symbol and one.operands and "[" not in one.operands[0]:
            held[register(one.operands[0])] = symbol
        found.append(one)
    return found


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


def _count_access(counts: defaultdict[str, float], one: Instruction, place: Pointer) -> None:
    lanes = indexed_lanes(one)
    if lanes:
        counts["gathers" if is_gather(one) else "scatters"] += lanes
        width = lanes * (8 if one.name.endswith(("pd", "q")) else 4)
        # Addresses in vectors alone may point anywhere.
        if place.region.startswith("global"):
            counts["global_load_bytes" if is_gather(one) else "global_store_bytes"] += width
        return
    address = one.memory
    stores = one.writes_memory
    counts["stores" if stores else "loads"] += 1
    if place.region.startswith("frame") and place.offset is not None:
        counts["spills"] += 1
    # Elements are extracted into memory by the width of the element, which the operand names.
    if address is not None and place.region.startswith(("global", "unknown")):
        counts["global_store_bytes" if stores else "global_load_bytes"] += address.width


_LONGEST = 10**12


def trip_count(loop: Loop, blocks: Sequence[Block], known: Propagation) -> int | None:
    """Return how many iterations each entry of a loop makes; None where that is not known.

    The loop has one back edge, which a comparison of a counter with a fixed number decides; each iteration adds a
    fixed number to the counter once.
    """
    if len(loop.back_edges) != 1:
        return None
    latch, header = loop.back_edges[0]
    block = blocks[latch]
    jump = block.instructions[-1]
    if len(block.followers) != 2 or jump.name == "jmp":
        return None
    place = _comparison(block)
    if place is None:
        return None
    compared = block.instructions[place]
    # Control stays in the loop where the condition holds, or where it does not.
    condition = jump.name[1:] if block.followers[1] == header else _inverse(jump.name[1:])
    state = known.after(latch, place)
    counter = register(compared.operands[0])
    step = _step(loop, blocks, counter)
    start = _start(loop, known, counter)
    if step is None or not isinstance(start, int) or "[" in compared.operands[0]:
        return None
    bits = operand_bits(compared.operands[0])
    if compared.name == "cmp":
        bound = known.read(state, compared.operands[1], compared)
        # Whether the counter was increased before it is compared, as usual.
        increased = _increased_before(blocks, counter, latch, place)
    else:
        bound, increased = 0, True
    if not isinstance(bound, int):
        return None
    return _iterations(condition, signed(start, bits) + (step if increased else 0), step, signed(bound, bits))


def _comparison(block: Block) -> int | None:
    """Return the place of what sets the flags of a block's jump, if it is a comparison or the counter's own step."""
    for place in range(len(block.instructions) - 2, -1, -1):
        one = block.instructions[place]
        if one.name in {"cmp", "add", "sub", "inc", "dec"}:
            return place
        if not one.name.startswith(("mov", "v", "lea", "nop", "k")) or one.name.startswith(
            ("vptest", "vucomi", "vcomi", "ko", "kt")
        ):
            return None
    return None


def _step(loop: Loop, blocks: Sequence[Block], counter: str) -> int | None:
    changes = [one for number in loop.body for one in blocks[number].instructions if _changes(one, counter)]
    if len(changes) != 1:
        return None
    one = changes[0]
    if one.name in {"inc", "dec"}:
        return 1 if one.name == "inc" else -1
    if one.name in {"add", "sub"} and one.operands[1][0] in "-0123456789":
        amount = signed(int(one.operands[1], 0), 64)
        return amount if one.name == "add" else -amount
    return None


def _changes(one: Instruction, counter: str) -> bool:
    if not one.operands or one.name.startswith(("cmp", "test", "j", "push", "nop", "bt")):
        return False
    if one.name == "call":
        return counter in {"rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11"}
    return "[" not in one.operands[0] and register(one.operands[0]) == counter


def _increased_before(blocks: Sequence[Block], counter: str, latch: int, place: int) -> bool:
    in_latch = [number for number, one in enumerate(blocks[latch].instructions) if _changes(one, counter)]
    return not in_latch or in_latch[0] < place


def _start(loop: Loop, known: Propagation, counter: str) -> Value:
    starts = [
        known.after(source).registers.get(counter) for source, _ in loop.entries if (source, loop.header) in known.edges
    ]
    if not starts:
        return None
    value = starts[0]
    for other in starts[1:]:
        value = join(value, other)
    return value


def _inverse(condition: str) -> str:
    pairs = {"e": "ne", "l": "ge", "le": "g", "b": "ae", "be": "a", "s": "ns"}
    pairs |= {other: one for one, other in pairs.items()}
    return pairs.get(condition, "")


def _iterations(condition: str, first: int, step: int, bound: int) -> int | None:
    """Return how often a loop runs whose counter is `first` at its first comparison."""
    if condition in {"ne", "nz"}:
        distance = bound - first
        if not step or distance % step or distance // step < 0:
            return None
        return distance // step + 1
    # In all others the counter approaches the bound from the side on which the loop goes on.
    upward = {"l": 0, "b": 0, "le": 1, "be": 1, "c": 0}
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
