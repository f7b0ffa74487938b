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
    """Return the least times that follow from how many work-groups there are, in seconds per launch.

    Parameters
    ----------
    volumes
        ``f_waves``, ``f_vol_dram_load``, per launch.
    scop, sizes
        The kernel, for its work-groups.
    machine
        ``group_start_rate`` and ``dram_latency``; what is not known limits nothing.

    Returns
    -------
    dict
        ``group start``: all work-groups at the rate at which the device starts them. ``latency``: each wave waits for
        one load from DRAM at least, and so does a part of a wave.
    """
    seconds: dict[str, float] = {}
    if machine.group_start_rate is not None:
        groups = sum(float(launch.group_count.evaluate(sizes)) for launch in scop.launches)
        seconds["group start"] = groups / machine.group_start_rate
    if machine.dram_latency is not None and volumes["f_vol_dram_load"] > 0:
        seconds["latency"] = max(1.0, volumes["f_waves"]) * machine.dram_latency
    return seconds
