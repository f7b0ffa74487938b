"""How many instructions of each class a launch issues on an NVIDIA GPU, found without running it."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from perflex.compiled.control_flow import BlockFacts, Totals, UnknownFlowError, block_executions, loops_of
from perflex.compiled.nvidia.cubin import disassembled, kernel_facts
from perflex.compiled.nvidia.flow import blocks_of, sliced, walked, ways_of
from perflex.compiled.nvidia.spans import Split, between
from perflex.compiled.nvidia.values import Lane

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.compiled.nvidia.cubin import GpuCode, GpuInstruction
    from perflex.compiled.nvidia.flow import GpuBlock, Ways

CLASSES = (
    "float32",
    "float64",
    "integer",
    "special",
    "conversions",
    "global_loads",
    "global_stores",
    "local_loads",
    "local_stores",
    "branches",
    "barriers",
)
"""What instructions are counted by, beside loads, stores and spills."""

# fmt: off
_BY_CLASS = {
    "float32": "FADD FFMA FMUL FMNMX FMNMX3 FSEL FSET FSETP FCHK FSWZADD FADD2 FFMA2 FMUL2 FADD32I FFMA32I FMUL32I",
    "float64": "DADD DFMA DMUL DSETP",
    "special": "MUFU",
    "conversions": "F2F F2I I2F I2I I2IP I2FP F2FP F2IP FRND",
    "integer":
        "BMSK BREV FLO IABS IADD IADD3 IADD32I IADD64 IDP IDP4A IMAD IMMA IMNMX IMUL IMUL32I ISCADD ISCADD32I ISETP "
        "LEA LOP LOP3 LOP32I POPC SHF SHL SHR VABSDIFF VABSDIFF4 VIADD VIADDMNMX VIMNMX VIMNMX3 VHMNMX "
        "UBMSK UBREV UFLO UIADD3 UIADD64 UIMAD UIMNMX UISETP ULEA ULOP ULOP3 ULOP32I UPOPC USHF USHL USHR UVIADD "
        "UVIMNMX",
    "branches": "BRA BRX BRXU JMP JMX JMXU CALL RET",
    "barriers": "BAR",
}
# fmt: on
_CLASS = {name: kind for kind, names in _BY_CLASS.items() for name in names.split()}
# Of each access: names of `CLASSES` and of the family that it counts for.
_ACCESSES = {
    "LDG": ("loads", "global_loads"),
    "LD": ("loads", "global_loads"),
    "STG": ("stores", "global_stores"),
    "ST": ("stores", "global_stores"),
    "RED": ("stores", "global_stores"),
    "REDG": ("stores", "global_stores"),
    "ATOM": ("loads", "stores", "global_loads", "global_stores"),
    "ATOMG": ("loads", "stores", "global_loads", "global_stores"),
    "LDS": ("loads", "local_loads"),
    "LDSM": ("loads", "local_loads"),
    "STS": ("stores", "local_stores"),
    "STSM": ("stores", "local_stores"),
    "ATOMS": ("loads", "stores", "local_loads", "local_stores"),
    "LDGSTS": ("loads", "stores", "global_loads", "local_stores"),
    "LDL": ("loads", "spills"),
    "STL": ("stores", "spills"),
}
# They only copy or join registers, whatever unit does it.
_MOVES = {"MOV", "MOV32I"}


def classes_of(one: GpuInstruction) -> tuple[str, ...]:
    """Return the names that an instruction counts for; none for moves and the like."""
    if one.name in _ACCESSES:
        return _ACCESSES[one.name]
    if one.name in {"IMAD", "UIMAD"} and _MOVES & set(one.modifiers):
        return ()
    kind = _CLASS.get(one.name)
    return () if kind is None else (kind,)


def touches_memory(one: GpuInstruction) -> bool:
    """Return whether an instruction accesses memory that other work-items see, or waits for them."""
    names = classes_of(one)
    return (one.name in _ACCESSES and "spills" not in names) or "barriers" in names


_SUB_GROUP = 32
# Instructions that are looked at, at most, over all ranges of ids: some ten seconds.
_MOST_STEPS = 500_000
_AXES = "XYZ"
# Cycles that a call is taken to cost, so that any other way is shorter.
_CALL = 1e5
# First and last ids along each axis, by the names of special registers.
Box: TypeAlias = dict[str, tuple[int, int]]


@lru_cache(maxsize=64)
def _blocks(code: GpuCode) -> tuple[GpuBlock, ...]:
    return blocks_of(disassembled(code))


def launch_counts(code: GpuCode, scalars: Sequence[int | None]) -> dict[str, float]:
    """Return how many instructions all sub-groups of a launch issue, by `CLASSES` and in all, loads, stores and spills.

    Control flow is followed for ranges of work-groups and of work-items at once, which are divided where these do not
    all go the same way. A sub-group runs what any of its work-items does. Of branches that data decide the shorter way
    counts.

    Raises
    ------
    UnknownFlowError
        Data decide how often loops run or memory is accessed, or too many ranges do different things.
    """
    executed = _Executions(_blocks(code), _constants(code, scalars), code.work_group)
    runs = np.zeros(len(executed.blocks))
    waiting = [_box("SR_CTAID", code.groups)]
    while waiting:
        box = waiting.pop()
        found = executed.of_group(box)
        if isinstance(found, frozenset):
            waiting += _halves(box, found)
        else:
            runs += found * prod(last - first + 1 for first, last in box.values())
    counts: dict[str, float] = defaultdict(float)
    for times, facts in zip(runs, executed.facts, strict=True):
        for name, count in facts.counts.items():
            counts[name] += float(times) * count
    return counts


def _box(name: str, sides: Sequence[int]) -> Box:
    return {f"{name}.{axis}": (0, side - 1) for axis, side in zip(_AXES, [*sides, 1, 1][:3], strict=True)}


def _halves(box: Box, axes: frozenset[str]) -> list[Box]:
    """Divide a box along the longest of some axes, where most lowest bits of ids are zero."""
    axis = max(sorted(axes), key=lambda name: box[name][1] - box[name][0])
    first, last = box[axis]
    bit = (first ^ last).bit_length() - 1
    middle = last >> bit << bit
    return [{**box, axis: (first, middle - 1)}, {**box, axis: (middle, last)}]


class _Executions:
    """How often each block runs, by the ways that work-items can take."""

    def __init__(self, blocks: Sequence[GpuBlock], constants: Mapping[int, int], work_group: Sequence[int]) -> None:
        self.blocks = blocks
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
            BlockFacts(_CALL if call else 0.0, _block_counts(block)) for block, call in zip(blocks, calls, strict=True)
        ]
        self._known: dict[Ways, NDArray[np.float64]] = {}

    def of_group(self, groups: Box) -> NDArray[np.float64] | frozenset[str]:
        """Return the executions of each block by the sub-groups of one work-group; axes where work-groups differ."""
        sides = [last + 1 for _, last in self._items.values()]
        kinds = np.zeros(sides[::-1], dtype=int)
        found: list[NDArray[np.float64]] = []
        parts: list[Box] = []
        waiting = [self._items]
        while waiting:
            items = waiting.pop()
            box = groups | items
            runs = self._of_items(box)
            if isinstance(runs, frozenset):
                if between_groups := runs & frozenset(groups):
                    return between_groups
                # Most work-groups are divided alike.
                waiting += self._parts if self._parts and items is self._items else _halves(items, runs)
                continue
            kinds[tuple(slice(first, last + 1) for first, last in reversed(items.values()))] = len(found)
            found.append(runs)
            parts.append(items)
        self._parts = parts if len(parts) > 1 else self._parts
        order = kinds.ravel()
        every = np.array(found)
        starts = range(0, len(order), _SUB_GROUP)
        sub_groups = [every[np.unique(order[start : start + _SUB_GROUP])].max(axis=0) for start in starts]
        total: NDArray[np.float64] = np.sum(sub_groups, axis=0)
        return total

    def _look(self, instructions: int) -> None:
        self._looked += instructions
        if self._looked > _MOST_STEPS:
            msg = f"ids decide so much that following them takes more than {_MOST_STEPS:,} instructions"
            raise UnknownFlowError(msg)

    def _of_items(self, box: Box) -> NDArray[np.float64] | frozenset[str]:
        """Return the executions of each block by one work-item; axes where work-items differ."""
        self._look(self._length)
        ids = {axis: between(first, last, frozenset({axis})) for axis, (first, last) in box.items()}
        begin = Lane({}, {}, ids, self._constants)
        ways = ways_of(self._deciding, self._loops, begin)
        if ways.axes:
            return ways.axes
        if not ways.decided or any(trip is None for _, trip in ways.trips):
            # What changes from one iteration to the next may still follow from the ids.
            told, steps = walked(self._deciding, begin)
            self._look(steps)
            if isinstance(told, Split):
                return told.axes
            if told is not None:
                return self._checked(np.array(told, dtype=float))
        return self.runs(ways)

    def runs(self, ways: Ways) -> NDArray[np.float64]:
        """Return the executions of each block by one work-item, the shortest ones where data leave a choice."""
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
        runs, _ = block_executions(self.blocks, set(ways.edges), self.facts, trips, Totals({}, {}))
        return self._checked(runs, {0, *(end for _, end in ways.edges)})

    def _checked(self, runs: NDArray[np.float64], possible: Collection[int] = ()) -> NDArray[np.float64]:
        """Refuse code that is not followed, and accesses that are possible but not of the shortest way."""
        for number, block in enumerate(self.blocks):
            for one in block.instructions:
                if number in possible and not runs[number] and touches_memory(one):
                    msg = f"the data determine whether {one.name} at {one.address:#x} is executed"
                    raise UnknownFlowError(msg)
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
    return counts


def _constants(code: GpuCode, scalars: Sequence[int | None]) -> dict[int, int]:
    """Return the known words of constant bank 0: scalar arguments."""
    found: dict[int, int] = {}
    for value, (place, size) in zip(scalars, kernel_facts(code).arguments, strict=True):
        for word in range(size // 4 if value is not None else 0):
            found[place + 4 * word] = (value or 0) >> 32 * word & 0xFFFFFFFF
    return found
