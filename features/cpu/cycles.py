"""Cycles of the core's clock that traffic takes (Eq. 9 of YaskSite).

Traffic and cycles are numbers or arrays of one shape, or traced polynomials; all that one call gets are of a kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.cpu.traced import larger, select

if TYPE_CHECKING:
    from perflex.machines.levels import CacheLevel
    from perflex.machines.machine import Machine


def cache_cycles(level: CacheLevel, loads: Any, stores: Any) -> Any:
    """Return the cycles of traffic between a cache and the level before it, None without bandwidths.

    `loads` and `stores` are bytes towards the core and away from it.
    """
    if level.load_bytes_per_cycle is None or level.store_bytes_per_cycle is None:
        return None
    # A duplex link moves both ways at once, so the slower way decides.
    down, up = loads / level.load_bytes_per_cycle, stores / level.store_bytes_per_cycle
    return larger(down, up) if level.duplex else down + up


def memory_cycles(machine: Machine, loads: Any, stores: Any) -> tuple[Any, Any]:
    """Return the cycles of traffic with the memory, and the name of the bandwidth they come from.

    The bandwidth is that of the stream whose part of stored bytes is next to the traffic's; without streams, the
    machine's DRAM bandwidth.

    Parameters
    ----------
    machine
        Its clock in Hz, and bandwidths in B/s.
    loads, stores
        Bytes from the memory and to it.

    Returns
    -------
    tuple
        Cycles, and for each of them the stream's name, in the shape of `loads` and `stores`; (None, "") where neither
        bandwidth or no clock is known.
    """
    if machine.clock_hz is None or not (machine.memory_streams or machine.dram_bandwidth):
        return None, ""
    total = loads + stores
    if not machine.memory_streams:
        return total * machine.clock_hz / machine.need("dram_bandwidth"), "dram_bandwidth"
    # Where nothing moves, any divisor gives no part.
    part = stores / select(total > 0, total, 1.0)
    streams = machine.memory_streams
    # The condition always holds: `select` gives the bandwidth the traffic's shape.
    best, bandwidth = streams[0].name, select(total >= 0, streams[0].bandwidth, 0.0)
    nearest = abs(part - streams[0].stored_part)
    names: Any = best
    for stream in streams[1:]:
        distance = abs(part - stream.stored_part)
        closer = distance < nearest
        nearest = select(closer, distance, nearest)
        bandwidth = select(closer, stream.bandwidth, bandwidth)
        names = select(closer, stream.name, names)
    names = np.where(total > 0, names, "") if isinstance(total, np.ndarray) else (names if total > 0 else "")
    return total * machine.clock_hz / bandwidth, names


def memory_penalty(machine: Machine, loads: Any, stores: Any, line: int) -> Any:
    """Return the cycles that lines (of so many bytes) from and to the memory take beyond what the bandwidth says."""
    return (loads * (machine.memory_load_penalty or 0.0) + stores * (machine.memory_store_penalty or 0.0)) / line
