"""The way of work-items through a kernel, step by step; where data decide, the longer way, if that may be taken.

Some work-item of a sub-group nearly always takes it, as descriptions of sources count it. But what is for rare numbers
is not taken: functions that are called, and the longer way behind a test for huge numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from perflex.compiled.control_flow import UnknownFlowError, dominators_of
from perflex.compiled.nvidia.cubin import INSTRUCTION_BYTES
from perflex.compiled.nvidia.flow import taken
from perflex.compiled.nvidia.operands import NAME, changed_by
from perflex.compiled.nvidia.spans import UNDESCRIBED, Mark, Split

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from perflex.compiled.control_flow import Loop
    from perflex.compiled.nvidia.cubin import GpuInstruction
    from perflex.compiled.nvidia.flow import GpuBlock
    from perflex.compiled.nvidia.values import Lane

# Of each block, the iterations, of all loops around it, in which it is run.
Visits: TypeAlias = "list[set[tuple[int, ...]]]"
# Instructions that are carried out one by one at most.
_LONGEST = 10**5


# Cycles that a call of a function is taken to cost: compilers for GPUs leave those for rare numbers.
RARE = 1e5
# Sines of larger numbers are found in another way.
_HUGE = 1e5
_NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?$")


@dataclass(frozen=True)
class _Choice:
    """Two ways of which data decide which is taken."""

    # Where both have come to an end.
    end: int
    # Blocks that both may come to, the end among them; registers and predicates that data decide there.
    shared: frozenset[int]
    changed: tuple[str, ...]


def _met(choices: list[_Choice], number: int, lane: Lane) -> list[_Choice]:
    """Let data decide what they do where ways meet; return the choices whose ways have not come to an end."""
    for choice in choices:
        if number in choice.shared:
            lane.spoil(choice.changed)
    return [choice for choice in choices if choice.end != number]


def _is_for_huge_numbers(block: GpuBlock) -> bool:
    """Return whether the jump that ends a block is decided by how a float compares with a huge number, or infinity."""
    *before, jump = block.instructions
    deciding = set(NAME.findall(" ".join((jump.predicate, *jump.operands))))
    last = next((one for one in reversed(before) if not deciding.isdisjoint(changed_by(one))), None)
    if last is None or not last.name.endswith("SETP") or last.name.startswith(("I", "U")):
        return False
    return any("INF" in text or (_NUMBER.match(text) and float(text) >= _HUGE) for text in last.operands)


class Walks:
    """Ways of work-items that all go the same way.

    Parameters
    ----------
    blocks, deciding
        The kernel's blocks, and the same with those instructions alone that decide jumps.
    edges
        Those that these work-items may take.
    loops
        The kernel's.
    costs
        What an execution of each block costs, for the longer of two ways.
    certain
        Whether data must not decide if an instruction is executed.
    """

    def __init__(
        self,
        blocks: Sequence[GpuBlock],
        deciding: Sequence[GpuBlock],
        edges: Collection[tuple[int, int]],
        loops: Sequence[Loop],
        costs: Sequence[float],
        certain: Callable[[GpuInstruction], bool],
    ) -> None:
        self._blocks, self._deciding, self._costs, self._certain = blocks, deciding, costs, certain
        # Of each block, the loops that it lies in, by their places; outer ones come first.
        self._inside = [[place for place, loop in enumerate(loops) if n in loop.body] for n in range(len(blocks))]
        self._headers = [loop.header for loop in loops]
        self._back = [set(loop.back_edges) for loop in loops]
        self._after: list[list[int]] = [[] for _ in blocks]
        for number, follower in sorted(edges):
            self._after[number].append(follower)
        # Dominators of the reversed graph, which begins at the last block.
        last = len(blocks) - 1
        backward = dominators_of(
            len(blocks), [[last - one for one in self._after[last - n]] for n in range(len(blocks))]
        )
        self._behind = [{last - one for one in backward[last - n]} for n in range(len(blocks))]
        self._chosen: dict[int, tuple[int, _Choice]] = {}

    def of(self, begin: Lane) -> tuple[Visits | Split, int]:
        """Return when work-items run each block, or axes of ids where they part; and instructions looked at."""
        visits: Visits = [set() for _ in self._blocks]
        lane, number, steps = begin.copy(), 0, 0
        turns = [0] * len(self._headers)
        choices: list[_Choice] = []
        while self._deciding[number].instructions:
            block = self._deciding[number]
            visits[number].add(tuple(turns[place] for place in self._inside[number]))
            steps += len(block.instructions)
            for one in block.instructions:
                lane.step(one)
            told = taken(lane, block) if block.jumps else False
            if isinstance(told, Split):
                return told, steps
            if isinstance(told, bool):
                follower = block.followers[told]
            else:
                follower, choice = self.chosen(number, told)
                choices.append(choice)
            choices = _met(choices, follower, lane)
            self._turn(turns, number, follower)
            number = follower
            if steps > _LONGEST:
                msg = f"what ids decide within loops takes more than {_LONGEST:,} instructions to follow"
                raise UnknownFlowError(msg)
        visits[number].add(())
        return visits, steps

    def _turn(self, turns: list[int], number: int, follower: int) -> None:
        """Count the iterations of loops that begin with a block."""
        for place, header in enumerate(self._headers):
            if header == follower:
                turns[place] = turns[place] + 1 if (number, follower) in self._back[place] else 0

    def chosen(self, number: int, why: object) -> tuple[int, _Choice]:
        """Return the block that is taken to follow one whose jump is not decided.

        Raises
        ------
        UnknownFlowError
            Not data decide, or they decide a trip count or an access.
        """
        if isinstance(why, Mark) and why.rank == UNDESCRIBED:
            place = self._blocks[number].instructions[-1].address
            msg = f"the jump at {place:#x} depends on {why.name}, which is not followed"
            raise UnknownFlowError(msg)
        if number not in self._chosen:
            self._chosen[number] = self._choose(number)
        return self._chosen[number]

    def _choose(self, number: int) -> tuple[int, _Choice]:
        block = self._blocks[number]
        end = max(self._behind[number] - {number}, key=lambda one: len(self._behind[one]))
        first, second = (self._between(one, end) for one in block.followers)
        if number in first | second:
            place = block.instructions[-1].address
            msg = f"how often the loop of the jump at {place:#x} runs does not follow from sizes and ids"
            raise UnknownFlowError(msg)
        for one in (one for other in sorted(first ^ second) for one in self._blocks[other].instructions):
            if self._certain(one):
                # Of accesses behind a jump of their own, see `launch_counts`.
                place = one.address & -INSTRUCTION_BYTES
                msg = f"the data determine whether {one.name} at {place:#x} is executed"
                raise UnknownFlowError(msg)
        deciding = (one for other in first | second for one in self._deciding[other].instructions)
        changed = sorted({place for one in deciding for place in changed_by(one)})
        costs = {one: self._cost(one, end) for one in block.followers}
        rare = max(costs.values()) >= RARE or _is_for_huge_numbers(block)
        chosen = (min if rare else max)(costs, key=costs.__getitem__)
        return chosen, _Choice(end, frozenset(first & second | {end}), tuple(changed))

    def _between(self, start: int, end: int) -> set[int]:
        """Return the blocks that may be come to before an end."""
        found: set[int] = set()
        waiting = [start]
        while waiting:
            number = waiting.pop()
            if number != end and number not in found:
                found.add(number)
                waiting += self._after[number]
        return found

    def _cost(self, start: int, end: int) -> float:
        """Return what the cheapest way costs (Dijkstra)."""
        waiting, done = [(0.0, start)], set[int]()
        while waiting:
            cost, number = heappop(waiting)
            if number == end:
                return cost
            if number not in done:
                done.add(number)
                for follower in self._after[number]:
                    heappush(waiting, (cost + self._costs[number], follower))
        return inf
