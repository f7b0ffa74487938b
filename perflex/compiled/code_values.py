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
from perflex.compiled.in_core.answers import answers_for
from perflex.compiled.instructions import disassembled
from perflex.compiled.throughput import chain_cycles
from perflex.compiled.trips import trip_count
from perflex.compiled.values import Propagation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.control_flow import Block, Loop
    from perflex.compiled.elf import Function
    from perflex.compiled.in_core.answers import Answers
    from perflex.compiled.in_core.source import CycleSource
    from perflex.compiled.instructions import Instruction
    from perflex.compiled.program import CompiledProgram

# Instructions that wait for others in a core: entries of its scheduler for arithmetic (Golden Cove, Sunny Cove alike).
_IN_FLIGHT = 97
# Executions below this are rounding errors of the linear program.
_NEVER = 1e-9


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
    program: CompiledProgram,
    sizes: Mapping[str, int],
    local_size: Sequence[int],
    totals: Totals,
    source: CycleSource | None = None,
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
    source
        The tool that says how many cycles code takes; None for perflex's own model of ports.

    Raises
    ------
    MissingExtraError
        The disassembler is not installed.
    UnsupportedKernelError
        The tool does not know an instruction, or failed.
    """
    found = CodeValues()
    registers, memory = program.entry(sizes, local_size)
    for function, share in program.parts(local_size):
        blocks, loops = _read(function)
        known = Propagation(blocks, registers, memory)
        tool = None if source is None else answers_for(source, function)
        found.add(_called(blocks, loops, known, totals.times(share), tool), 1.0)
    return found


@dataclass(frozen=True)
class _Turns:
    """How often a loop without loops inside is entered and goes back to its begin, and its instructions."""

    loop: Loop
    instructions: tuple[Instruction, ...]
    entries: float
    repeated: float

    def chain(self, iteration: float) -> float:
        """Return the cycles that chains take over all entries, from those of one iteration."""
        if not self.entries:
            return 0.0
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


def _tool_cycles(
    blocks: Sequence[Block], runs: Sequence[float], turns: Sequence[_Turns], tool: Answers
) -> tuple[list[float], list[float]]:
    """Return each block's cycles, and those of an iteration of each loop, as a tool says; 0 of what does not run."""
    running = [number for number, times in enumerate(runs) if times > _NEVER]
    entered = [number for number, one in enumerate(turns) if one.entries > _NEVER]
    # One question for all: programs take long to begin.
    asked = [(blocks[number].instructions, False) for number in running]
    answers = tool.of([*asked, *((turns[number].instructions, True) for number in entered)])
    busy, iterations = [0.0] * len(blocks), [0.0] * len(turns)
    for number, answer in zip(running, answers[: len(running)], strict=True):
        busy[number] = answer.busiest
    for number, answer in zip(entered, answers[len(running) :], strict=True):
        iterations[number] = answer.chained
    return busy, iterations


def _called(
    blocks: Sequence[Block], loops: Sequence[Loop], known: Propagation, totals: Totals, tool: Answers | None
) -> CodeValues:
    facts = [block_facts(block, number, known) for number, block in enumerate(blocks)]
    trips = [(loop, trip) for loop in loops if (trip := trip_count(loop, blocks, known)) is not None]
    runs, taken = block_executions(blocks, known.edges, facts, trips, totals)
    turns = _innermost(blocks, loops, taken)
    if tool is None:
        busy = [one.cycles for one in facts]
        iterations = [chain_cycles(one.instructions) if one.entries else 0.0 for one in turns]
    else:
        busy, iterations = _tool_cycles(blocks, runs.tolist(), turns, tool)
    found = CodeValues()
    for times, cycles, one in zip(runs, busy, facts, strict=True):
        found.cycles += times * cycles
        for name, count in one.counts.items():
            found.counts[name] += count * times
    most = 0.0
    for one_loop, iteration in zip(turns, iterations, strict=True):
        busiest = sum(runs[number] * busy[number] for number in one_loop.loop.body)
        chain = one_loop.chain(iteration)
        found.chained += max(0.0, chain - busiest)
        if max(busiest, chain) > most:
            most, found.hot = max(busiest, chain), blocks[one_loop.loop.header].instructions[0].address
    found.cycles += found.chained
    return found
