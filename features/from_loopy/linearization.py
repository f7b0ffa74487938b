"""The order loopy schedules a kernel in: where each instruction and barrier stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Place:
    """Where an instruction or barrier stands in the linearization."""

    launch: int
    loops: tuple[str, ...]
    schedule: tuple[int | str, ...]


@dataclass
class Program:
    """What a linearization executes.

    Attributes
    ----------
    instructions
        Identifier and place of each instruction, in order.
    barriers
        Kind, originating instruction (or None) and place of each barrier.
    launches
        Instructions of each device program, and the host loops around it.
    """

    instructions: list[tuple[str, Place]] = field(default_factory=list)
    barriers: list[tuple[str, str | None, Place]] = field(default_factory=list)
    launches: list[tuple[frozenset[str], tuple[str, ...]]] = field(default_factory=list)


def read_linearization(linearization: Sequence[Any]) -> Program:
    """Return what is executed where, from a loopy kernel's ``linearization``."""
    from loopy.schedule import Barrier as BarrierItem
    from loopy.schedule import CallKernel, EnterLoop, LeaveLoop, ReturnFromKernel, RunInstruction

    program = Program()
    loops: list[str] = []
    # Statements so far in each open loop, outermost first.
    counters = [0]
    inside: list[str] | None = None
    host_loops: tuple[str, ...] = ()
    for item in linearization:
        # A launch is listed when it ends, so that the length is the number of the one being read.
        place = Place(len(program.launches), tuple(loops), _position(counters, loops))
        if isinstance(item, CallKernel):
            # Loops that are open at the call run on the host: each of their iterations is a launch.
            inside, host_loops = [], tuple(loops)
        elif isinstance(item, ReturnFromKernel):
            program.launches.append((frozenset(inside or ()), host_loops))
            inside = None
        elif isinstance(item, EnterLoop):
            loops.append(item.iname)
            counters.append(0)
        elif isinstance(item, LeaveLoop):
            loops.pop()
            counters.pop()
            # A loop counts as one statement of the loop around it.
            counters[-1] += 1
        elif isinstance(item, RunInstruction):
            counters[-1] += 1
            # Outside of a device program it is the host's.
            if inside is not None:
                inside.append(item.insn_id)
                program.instructions.append((item.insn_id, place))
        elif isinstance(item, BarrierItem):
            counters[-1] += 1
            if inside is not None:
                program.barriers.append((item.synchronization_kind, item.originating_insn_id, place))
    return program


def _position(counters: Sequence[int], loops: Sequence[str]) -> tuple[int | str, ...]:
    position: list[int | str] = [counters[0]]
    for loop, counter in zip(loops, counters[1:], strict=True):
        position += [loop, counter]
    return tuple(position)
