"""How many instructions of each class a launch issues on an NVIDIA GPU, found without running it."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from perflex.compiled.control_flow import BlockFacts, Totals, UnknownFlowError, block_executions
from perflex.compiled.nvidia.cubin import disassembled, kernel_facts
from perflex.compiled.nvidia.flow import blocks_of, ways_of
from perflex.compiled.nvidia.values import Lane

if TYPE_CHECKING:
    from collections.abc import Sequence

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
# Looked at of the inner work-groups along an axis, and of the sub-groups of a work-group.
_INNER, _SUB_GROUPS = 1, 4
# Along axes of no more work-groups, all of them.
_FEW = 4
_AXES = "XYZ"
# Cycles that a call is taken to cost, so that any other way is shorter.
_CALL = 1e5


@lru_cache(maxsize=64)
def _blocks(code: GpuCode) -> tuple[GpuBlock, ...]:
    return blocks_of(disassembled(code))


def launch_counts(code: GpuCode, scalars: Sequence[int | None]) -> dict[str, float]:
    """Return how many instructions all sub-groups of a launch issue, by `CLASSES` and in all, loads, stores and spills.

    Control flow is followed for the first and the last work-item of sub-groups, whose ids are known. Where all
    work-items do the same, one stands for all. Else those of the first and last work-group along each axis are
    followed, and of one between, and of at most four sub-groups of each. Of branches that data decide the shorter way
    counts.
    """
    blocks = _blocks(code)
    executed = _Executions(blocks)
    constants = _constants(code, scalars)
    groups = prod(code.groups)
    items = prod(code.work_group)
    sub_groups = -(-items // _SUB_GROUP)
    common = ways_of(blocks, Lane({}, {}, {}, constants))
    if common.decided and all(trip is not None for _, trip in common.trips):
        runs = executed.runs(common) * (groups * sub_groups)
    else:
        runs = np.zeros(len(blocks))
        for group, share in _groups(code.groups):
            for first, last, weight in _sub_groups(items, sub_groups):
                lanes = [
                    ways_of(blocks, Lane({}, {}, _ids(group, item, code.work_group), constants))
                    for item in dict.fromkeys((first, last))
                ]
                # A sub-group runs what any of its work-items does.
                runs += share * weight * np.maximum.reduce([executed.runs(one) for one in lanes])
    found: dict[str, float] = defaultdict(float)
    for times, facts in zip(runs, executed.facts, strict=True):
        for name, count in facts.counts.items():
            found[name] += float(times) * count
    return found


class _Executions:
    """How often each block runs, by the ways that a work-item can take."""

    def __init__(self, blocks: Sequence[GpuBlock]) -> None:
        self.blocks = blocks
        # Slow ways of divisions and roots, for numbers that are rare, call functions.
        calls = [any(one.name == "CALL" for one in block.instructions) for block in blocks]
        self.facts = [
            BlockFacts(_CALL if call else 0.0, _block_counts(block)) for block, call in zip(blocks, calls, strict=True)
        ]
        self._known: dict[Ways, NDArray[np.float64]] = {}

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
        runs, _ = block_executions(self.blocks, set(ways.edges), self.facts, trips, Totals({}, {}))
        possible = {0, *(end for _, end in ways.edges)}
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


def _ids(group: Sequence[int], item: int, work_group: Sequence[int]) -> dict[str, int]:
    found, sides = {}, [*work_group, 1, 1, 1][:3]
    for axis, side in enumerate(sides):
        found[f"SR_TID.{_AXES[axis]}"] = item % side
        item //= side
        found[f"SR_CTAID.{_AXES[axis]}"] = group[axis] if axis < len(group) else 0
    return found


def _groups(extents: Sequence[int]) -> list[tuple[tuple[int, ...], float]]:
    """Return work-groups to look at, each with how many it stands for."""
    axes = []
    for extent in extents:
        inner = max(0, extent - 2) if extent <= _FEW else _INNER
        places = [(0, 1.0), *([(extent - 1, 1.0)] if extent > 1 else [])]
        places += [(1 + (2 * part + 1) * (extent - 2) // (2 * inner), (extent - 2) / inner) for part in range(inner)]
        axes.append(places)
    return [(tuple(place for place, _ in chosen), prod(share for _, share in chosen)) for chosen in product(*axes)]


def _sub_groups(items: int, count: int) -> list[tuple[int, int, float]]:
    """Return first and last work-item of sub-groups to look at, each with how many it stands for."""
    looked = min(count, _SUB_GROUPS)
    numbers = [0] if looked == 1 else [part * (count - 1) // (looked - 1) for part in range(looked)]
    return [(_SUB_GROUP * one, min(items, _SUB_GROUP * (one + 1)) - 1, count / looked) for one in numbers]
