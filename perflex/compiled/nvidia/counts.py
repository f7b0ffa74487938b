"""How many instructions of each class a launch issues on an NVIDIA GPU, found without running it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from perflex.compiled.control_flow import BlockFacts, Totals, UnknownFlowError, block_executions, loops_of
from perflex.compiled.nvidia.classes import (
    OF_ACCESSES,
    classes_of,
    is_access,
    keeps_private,
    private_words,
    touches_memory,
    unit_of,
)
from perflex.compiled.nvidia.cubin import INSTRUCTION_BYTES, GpuInstruction, disassembled, kernel_facts
from perflex.compiled.nvidia.flow import blocks_of, sliced, ways_of
from perflex.compiled.nvidia.spans import DATA, IDS, Mark, Split, id_between
from perflex.compiled.nvidia.values import Lane
from perflex.compiled.nvidia.walks import RARE, Walks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.compiled.nvidia.cubin import GpuCode
    from perflex.compiled.nvidia.flow import GpuBlock, Ways
    from perflex.compiled.nvidia.walks import Visits

_SUB_GROUP = 32
# Instructions that are looked at, at most, over all ranges of ids: some ten seconds.
_MOST_STEPS = 500_000
_AXES = "XYZ"
# First and last ids along each axis, by the names of special registers.
Box: TypeAlias = dict[str, tuple[int, int]]


@lru_cache(maxsize=64)
def _blocks(code: GpuCode, *, accesses: bool) -> tuple[GpuBlock, ...]:
    instructions = disassembled(code)
    return blocks_of([part for one in instructions for part in _guarded(one)] if accesses else instructions)


def _guarded(one: GpuInstruction) -> Iterable[GpuInstruction]:
    """Return an access that a predicate decides behind a jump that does not lead to it."""
    if not one.predicate or not is_access(one):
        return (one,)
    opposite = one.predicate[1:] if one.predicate.startswith("!") else f"!{one.predicate}"
    jump = GpuInstruction(one.address, "BRA", (), (hex(one.address + INSTRUCTION_BYTES),), opposite)
    return jump, replace(one, address=one.address + 1, predicate="")


def launch_counts(code: GpuCode, scalars: Sequence[int | None], *, accesses: bool = False) -> dict[str, float]:
    """Return how many instructions all sub-groups of a launch issue, by `CLASSES` and in all; or how many accesses.

    Control flow is followed for ranges of work-groups and of work-items at once, which are divided where these do not
    all go the same way. A sub-group runs what any of its work-items does. Of branches that data decide the longer way
    counts, but for rare numbers (`walks`).

    Parameters
    ----------
    code, scalars
        The kernel; its arguments in their order, None for arrays and for what is no integer.
    accesses
        Loads, stores and spills are counted, and nothing else: those of which a predicate lets some work-item of the
        sub-group take part, as GPUs' counters of requests have it. Instructions are issued in any case.

    Raises
    ------
    UnknownFlowError
        Data decide how often loops run or memory is accessed, or too many ranges do different things.
    """
    counts: dict[str, float] = defaultdict(float)
    for times, block in zip(*block_runs(code, scalars, accesses=accesses), strict=True):
        for name, count in _block_counts(block).items():
            if (name in OF_ACCESSES) == accesses:
                counts[name] += times * count
    return counts


def issued_counts(runs: Sequence[float], blocks: Sequence[GpuBlock]) -> dict[str, float]:
    """Return how many instructions are issued by `CLASSES` and units, accesses among them, in blocks run so often."""
    counts: dict[str, float] = defaultdict(float)
    for times, block in zip(runs, blocks, strict=True):
        for name, count in _block_counts(block).items():
            counts[name] += times * count
    return counts


def block_runs(
    code: GpuCode, scalars: Sequence[int | None], *, accesses: bool = False, private: bool = False
) -> tuple[list[float], tuple[GpuBlock, ...]]:
    """Return how often all sub-groups of a launch run the blocks of a kernel, and the blocks; as `launch_counts`.

    `private`: data may decide accesses, but not those of work-items' own memory; where loops have such accesses, those
    outside of loops may be decided by data, too.
    """
    blocks = _blocks(code, accesses=accesses)
    certain = _in_loops(blocks) if private else touches_memory
    executed = _Executions(blocks, _constants(code, scalars), code.work_group, certain)
    runs = np.zeros(len(executed.blocks))
    waiting = [_box("SR_CTAID", code.groups)]
    while waiting:
        box = waiting.pop()
        found = executed.of_group(box)
        if isinstance(found, frozenset):
            waiting += _halves(box, found)
        else:
            runs += found * prod(last - first + 1 for first, last in box.values())
    return runs.tolist(), tuple(executed.blocks)


def _in_loops(blocks: Sequence[GpuBlock]) -> Callable[[GpuInstruction], bool]:
    """Return whether data must not decide an instruction: a barrier, or an access of work-items' own memory.

    Where loops have such accesses, only these.
    """
    inside = frozenset[int]().union(*(loop.body for loop in loops_of(blocks)))
    held = {one.address for number in inside for one in blocks[number].instructions if private_words(one) is not None}
    # What is outside runs once at most.
    return lambda one: keeps_private(one) and (not held or one.address in held or private_words(one) is None)


def _box(name: str, sides: Sequence[int]) -> Box:
    return {f"{name}.{axis}": (0, side - 1) for axis, side in zip(_AXES, [*sides, 1, 1][:3], strict=True)}


def _halves(box: Box, axes: frozenset[str]) -> list[Box]:
    """Divide a box along the longest of some axes, where most lowest bits of ids are zero."""
    axis = max(sorted(axes), key=lambda name: box[name][1] - box[name][0])
    first, last = box[axis]
    bit = (first ^ last).bit_length() - 1
    middle = last >> bit << bit
    return [{**box, axis: (first, middle - 1)}, {**box, axis: (middle, last)}]


@dataclass
class _Kind:
    """What work-items do that all go the same way."""

    begin: Lane
    ways: Ways
    runs: NDArray[np.float64]
    # As far as they were followed step by step.
    visits: Visits | None = None


def _nested(kinds: Sequence[_Kind]) -> bool:
    """Return whether of any two kinds of work-items one runs all iterations that the other does, in all loops."""
    if len(kinds) == 1 or not any(kind.ways.trips for kind in kinds):
        return True
    if any(kind.visits is not None for kind in kinds):
        return False
    trips = sorted(
        ({loop: trip or 0 for loop, trip in kind.ways.trips} for kind in kinds), key=lambda one: sum(one.values())
    )
    return all(one[loop] <= other.get(loop, 0) for one, other in pairwise(trips) for loop in one)


class _Executions:
    """How often each block runs, by the ways that work-items can take."""

    def __init__(
        self,
        blocks: Sequence[GpuBlock],
        constants: Mapping[int, int | Mark],
        work_group: Sequence[int],
        certain: Callable[[GpuInstruction], bool],
    ) -> None:
        self.blocks, self._certain = blocks, certain
        self._deciding = sliced(blocks)
        self._loops = loops_of(blocks)
        self._constants = constants
        self._items = _box("SR_TID", work_group)
        # Ranges of work-items that the last work-groups were divided into.
        self._parts: list[Box] = []
        self._looked, self._length = 0, sum(len(block.instructions) for block in self._deciding)
        # Slow ways of divisions and roots, for numbers that are rare, call functions.
        calls = [any(one.name == "CALL" for one in block.instructions) for block in blocks]
        self.facts = [
            BlockFacts(RARE if call else 0.0, _block_counts(block)) for block, call in zip(blocks, calls, strict=True)
        ]
        self._known: dict[Ways, NDArray[np.float64]] = {}
        self._walking: dict[frozenset[tuple[int, int]], Walks] = {}

    def of_group(self, groups: Box) -> NDArray[np.float64] | frozenset[str]:
        """Return the executions of each block by the sub-groups of one work-group; axes where work-groups differ."""
        sides = [last + 1 for _, last in self._items.values()]
        places = np.zeros(sides[::-1], dtype=int)
        kinds: list[_Kind] = []
        parts: list[Box] = []
        waiting = [self._items]
        while waiting:
            items = waiting.pop()
            kind = self._of_items(groups | items)
            if isinstance(kind, frozenset):
                if between_groups := kind & frozenset(groups):
                    return between_groups
                # Most work-groups are divided alike.
                waiting += self._parts if self._parts and items is self._items else _halves(items, kind)
                continue
            places[tuple(slice(first, last + 1) for first, last in reversed(items.values()))] = len(kinds)
            kinds.append(kind)
            parts.append(items)
        self._parts = parts if len(parts) > 1 else self._parts
        order = places.ravel()
        together: Counter[tuple[int, ...]] = Counter()
        for start in range(0, len(order), _SUB_GROUP):
            together[tuple(np.unique(order[start : start + _SUB_GROUP]).tolist())] += 1
        total: NDArray[np.float64] = np.sum(
            [times * self._of_sub_group([kinds[place] for place in each]) for each, times in together.items()], axis=0
        )
        return total

    def _of_sub_group(self, kinds: Sequence[_Kind]) -> NDArray[np.float64]:
        """Return the executions of each block by a sub-group, which runs in an iteration what any work-item does."""
        runs: NDArray[np.float64] = np.max([kind.runs for kind in kinds], axis=0)
        if _nested(kinds):
            return runs
        visits = [self._visits(kind) for kind in kinds]
        return np.array([len(set[tuple[int, ...]]().union(*each)) for each in zip(*visits, strict=True)], dtype=float)

    def _visits(self, kind: _Kind) -> Visits:
        if kind.visits is None:
            told, steps = self._walks(kind.ways).of(kind.begin)
            self._look(steps)
            if isinstance(told, Split):
                msg = "ids decide in which iterations work-items of a sub-group do what"
                raise UnknownFlowError(msg)
            kind.visits = told
        return kind.visits

    def _look(self, instructions: int) -> None:
        self._looked += instructions
        if self._looked > _MOST_STEPS:
            msg = f"ids decide so much that following them takes more than {_MOST_STEPS:,} instructions"
            raise UnknownFlowError(msg)

    def _of_items(self, box: Box) -> _Kind | frozenset[str]:
        """Return what work-items do; axes where they differ."""
        self._look(self._length)
        ids = {axis: id_between(first, last, axis) for axis, (first, last) in box.items()}
        begin = Lane({}, {}, ids, self._constants)
        ways = ways_of(self._deciding, self._loops, begin)
        if ways.axes:
            return ways.axes
        if all(why != IDS for _, why in ways.marks):
            return _Kind(begin, ways, self.runs(ways))
        # What changes from one iteration to the next still follows from the ids.
        told, steps = self._walks(ways).of(begin)
        self._look(steps)
        if isinstance(told, Split):
            return told.axes
        return _Kind(begin, ways, self._checked(np.array(list(map(len, told)), dtype=float)), told)

    def _walks(self, ways: Ways) -> Walks:
        if ways.edges not in self._walking:
            costs = [one.cycles + one.counts["instructions"] for one in self.facts]
            self._walking[ways.edges] = Walks(
                self.blocks, self._deciding, ways.edges, self._loops, costs, self._certain
            )
        return self._walking[ways.edges]

    def runs(self, ways: Ways) -> NDArray[np.float64]:
        """Return the executions of each block by one work-item."""
        if ways not in self._known:
            self._known[ways] = self._found(ways)
        return self._known[ways]

    def _found(self, ways: Ways) -> NDArray[np.float64]:
        trips = [(loop, trip) for loop, trip in ways.trips if trip is not None]
        if len(trips) < len(ways.trips):
            loop = next(loop for loop, trip in ways.trips if trip is None)
            place = self.blocks[loop.header].instructions[0].address
            msg = f"how often the loop at {place:#x} runs does not follow from sizes and ids"
            raise UnknownFlowError(msg)
        edges = set(ways.edges)
        for number, why in ways.marks:
            follower, _ = self._walks(ways).chosen(number, why)
            edges -= {(number, other) for other in self.blocks[number].followers if other != follower}
        runs, _ = block_executions(self.blocks, edges, self.facts, trips, Totals({}, {}))
        return self._checked(runs)

    def _checked(self, runs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Refuse code that is not followed."""
        for number, block in enumerate(self.blocks):
            for one in block.instructions:
                if one.name == "CALL" and runs[number]:
                    msg = f"the code calls a function at {one.address:#x}, which is not followed"
                    raise UnknownFlowError(msg)
        return runs


def _block_counts(block: GpuBlock) -> defaultdict[str, float]:
    counts: defaultdict[str, float] = defaultdict(float)
    for one in block.instructions:
        counts["instructions"] += one.name != "NOP"
        for name in classes_of(one):
            counts[name] += 1
        if (unit := unit_of(one)) is not None:
            counts[unit] += 1
        if (words := private_words(one)) is not None:
            counts[words[0]] += words[1]
    return counts


def _constants(code: GpuCode, scalars: Sequence[int | None]) -> dict[int, int | Mark]:
    """Return the words of constant bank 0 that a launch decides: sides of work-groups and the grid, and arguments."""
    facts = kernel_facts(code)
    sides = [one for given in (code.work_group, code.groups) for one in [*given, 1, 1][:3]]
    found: dict[int, int | Mark] = dict(zip(facts.sides, sides, strict=False))
    if len(scalars) != len(facts.arguments):
        msg = f"the code takes {len(facts.arguments)} arguments, the source {len(scalars)}"
        raise UnknownFlowError(msg)
    for value, (place, size) in zip(scalars, facts.arguments, strict=True):
        known = value if size % 4 == 0 else None
        for word in range(-(-size // 4)):
            found[place + 4 * word] = DATA if known is None else known >> 32 * word & 0xFFFFFFFF
    return found
