"""Numbers of a compiled kernel at given sizes: cycles, instructions and what they do, over a whole launch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from perflex.compiled.block_facts import block_facts
from perflex.compiled.callees import with_callees
from perflex.compiled.control_flow import blocks_of, loops_of
from perflex.compiled.executions import Totals, block_executions
from perflex.compiled.instructions import disassembled
from perflex.compiled.throughput import chain_cycles
from perflex.compiled.trips import trip_count
from perflex.compiled.values import Propagation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.control_flow import Block, Loop
    from perflex.compiled.elf import Function
    from perflex.compiled.instructions import Instruction
    from perflex.compiled.program import CompiledProgram

# Instructions that wait for others in a core: entries of its scheduler for arithmetic (Golden Cove, Sunny Cove alike).
_IN_FLIGHT = 97


@dataclass
class CodeValues:
    """What a call of compiled code does.

    Attributes
    ----------
    cycles
        In-core cycles: of busiest ports, and of chains where those take longer.
    chained
        Of these, what chains take beyond ports.
    counts
        As `BlockFacts.counts`, of all executions.
    hot
        Address of the first instruction of the innermost loop that takes the most cycles; None without a loop.
    """

    cycles: float = 0.0
    chained: float = 0.0
    counts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    hot: int | None = None

    def add(self, other: CodeValues, times: float) -> None:
        """Add another call's, so many times."""
        self.cycles += times * other.cycles
        self.chained += times * other.chained
        self.hot = other.hot if self.hot is None else self.hot
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
    """Return what a work-group does, the mean of all of them.

    Parameters
    ----------
    program
        The compiled device program.
    sizes
        Values of scalar arguments.
    local_size
        Work-items of a work-group along each axis.
    totals
        What the kernel's description says of a work-group.

    Raises
    ------
    MissingExtraError
        The disassembler is not installed.
    """
    found = CodeValues()
    registers, memory = program.entry(sizes, local_size)
    for function, share in program.parts(local_size):
        blocks, loops = _read(function)
        known = Propagation(blocks, registers, memory)
        found.add(_called(blocks, loops, known, totals.times(share)), 1.0)
    return found


def _chain(instructions: Sequence[Instruction], repeated: float, entries: float) -> float:
    """Return the cycles that a loop's chains take, over all its entries."""
    if not entries:
        return 0.0
    trip = repeated / entries + 1
    # So many iterations are in flight: short loops are overlapped by the next ones.
    window = _IN_FLIGHT / len(instructions)
    return chain_cycles(instructions) * trip * entries * trip / (trip + window)


def _called(blocks: Sequence[Block], loops: Sequence[Loop], known: Propagation, totals: Totals) -> CodeValues:
    facts = [block_facts(block, number, known) for number, block in enumerate(blocks)]
    trips = [(loop, trip) for loop in loops if (trip := trip_count(loop, blocks, known)) is not None]
    runs, taken = block_executions(blocks, known.edges, facts, trips, totals)
    found = CodeValues()
    for times, one in zip(runs, facts, strict=True):
        found.cycles += times * one.cycles
        for name, count in one.counts.items():
            found.counts[name] += count * times
    most = 0.0
    for loop in loops:
        if any(other.body < loop.body for other in loops):
            continue
        iterations = sum(taken.get(edge, 0.0) for edge in loop.back_edges)
        entries = sum(taken.get(edge, 0.0) for edge in loop.entries)
        body = sorted(loop.body)
        busy = sum(runs[number] * facts[number].cycles for number in body)
        chain = _chain([one for number in body for one in blocks[number].instructions], iterations, entries)
        found.chained += max(0.0, chain - busy)
        if max(busy, chain) > most:
            most, found.hot = max(busy, chain), blocks[loop.header].instructions[0].address
    found.cycles += found.chained
    return found
