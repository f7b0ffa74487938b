"""What limits a kernel of small or few work-groups: starting them, and waiting for memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features import Scop
    from perflex.machines.machine import Machine


def concurrency_limits(
    volumes: Mapping[str, float], scop: Scop, sizes: Mapping[str, Any], machine: Machine
) -> dict[str, float]:
    """Return the least times that follow from how many work-groups there are, in seconds per run.

    Parameters
    ----------
    volumes
        ``f_vol_dram_load`` of a run, and ``f_waves`` of its last launch that accesses memory.
    scop, sizes
        The kernel, for its work-groups.
    machine
        ``group_start_rate`` and ``dram_latency``; what is not known limits nothing.

    Returns
    -------
    dict
        ``group start``: all work-groups at the rate at which the device starts them. ``latency``: each wave waits for
        one load from DRAM at least, and so does a part of a wave; of launches before the last, one wave counts.
    """
    seconds: dict[str, float] = {}
    if machine.group_start_rate is not None:
        groups = sum(float(launch.group_count.evaluate(sizes)) for launch in scop.launches)
        seconds["group start"] = groups / machine.group_start_rate
    if machine.dram_latency is not None and volumes["f_vol_dram_load"] > 0:
        seconds["latency"] = _waits(volumes["f_waves"], scop, sizes) * machine.dram_latency
    return seconds


def _waits(waves: float, scop: Scop, sizes: Mapping[str, Any]) -> float:
    """Return how many waves load from global memory one after the other."""
    accesses = [
        (statement.launch, access.direction)
        for statement in scop.statements
        for access in statement.accesses
        if scop.array(access.array).space == "global"
    ]
    last = max((launch for launch, _ in accesses), default=0)
    loading = sorted({launch for launch, direction in accesses if direction == "load"})
    return sum(
        float(scop.launches[number].repeats.evaluate(sizes)) * (max(1.0, waves) if number == last else 1.0)
        for number in loading
    )
