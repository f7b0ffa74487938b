"""How long a sub-group that is alone on an NVIDIA GPU takes: in order, each instruction when its inputs are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.compiled.nvidia.classes import classes_of
from perflex.compiled.nvidia.operands import NAME, changed_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.compiled.nvidia.cubin import GpuInstruction
    from perflex.compiled.nvidia.flow import GpuBlock


@dataclass(frozen=True)
class Latencies:
    """Cycles until a result can be used, by what makes it; and those of a barrier."""

    arithmetic: float
    global_loads: float
    local_loads: float
    private_loads: float
    barrier: float


def cycles_of(blocks: Sequence[GpuBlock], latencies: Latencies) -> list[float]:
    """Return the cycles of each block when it runs once; of a block that is a loop, of each further iteration."""
    found = []
    for number, block in enumerate(blocks):
        ready: dict[str, float] = {}
        cycles = _passed(block.instructions, ready, 0.0, latencies)
        if number in block.followers:
            again = _passed(block.instructions, ready, cycles, latencies)
            found.append(again - cycles)
        else:
            # What is on its way then is waited for in a block that follows.
            found.append(max([cycles, *ready.values()]))
    return found


def _passed(instructions: Sequence[GpuInstruction], ready: dict[str, float], now: float, latencies: Latencies) -> float:
    """Return when the last instruction has begun; `ready` is when registers can be used."""
    for one in instructions:
        results = changed_by(one)
        used = [*NAME.findall(" ".join(one.operands)), one.predicate.removeprefix("!")]
        now = max([now, *(ready[name] for name in used if name in ready)])
        if one.name == "BAR":
            now += latencies.barrier
        there = now + _latency(one, latencies)
        for name in results:
            ready[name] = there
        now += 1
    return now


def _latency(one: GpuInstruction, latencies: Latencies) -> float:
    kinds = classes_of(one)
    if "global_loads" in kinds:
        return latencies.global_loads
    if "local_loads" in kinds:
        return latencies.local_loads
    return latencies.private_loads if "spills" in kinds else latencies.arithmetic
