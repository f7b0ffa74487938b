"""The machine that perflex runs on, from what the operating system reports alone: caches, but no bandwidths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.machines.levels import CacheLevel
from perflex.machines.machine import Machine
from perflex.machines.reported import reported_cpu
from perflex.machines.units import Source

if TYPE_CHECKING:
    from perflex.machines.reported import ReportedCache, ReportedCpu

_REPORTED = Source("reported", "the operating system")
_ASSUMED = Source("assumed", "as on the CPUs of this vendor in general")


def host_machine(cpu: ReportedCpu | None = None) -> Machine:
    """Return the machine of a CPU as the operating system reports it, in a moment.

    Volumes between caches need no more. Clock, rates and bandwidths stay unknown; ``perflex machine detect`` measures
    them.

    Parameters
    ----------
    cpu
        What is reported; asked for if not given.

    Raises
    ------
    MachineError
        No data cache is reported.
    """
    cpu = reported_cpu() if cpu is None else cpu
    domains = cpu.domains or 1
    facts: dict[str, int] = {
        "compute_units": cpu.cores,
        "cores": cpu.cores,
        "line_bytes": cpu.caches[0].line_bytes,
    }
    # Domains of different sizes have no number of cores each that would hold for all.
    if cpu.cores % domains == 0:
        facts |= {"cores_per_domain": cpu.cores // domains, "domains": domains}
    if cpu.simd_bytes is not None:
        facts["simd_bytes"] = cpu.simd_bytes
    levels = tuple(_level(cpu, cache) for cache in cpu.caches)
    sources = dict.fromkeys(facts, _REPORTED) | {f"{level.name}.size_bytes": _REPORTED for level in levels}
    return Machine(
        name="-".join(cpu.model.split()) or "host",
        vendor=cpu.vendor,
        kind="cpu",
        levels=levels,
        sources=sources | {f"{level.name}.victim": _ASSUMED for level in levels},
        **facts,  # type: ignore[arg-type]
    )


def _level(cpu: ReportedCpu, cache: ReportedCache) -> CacheLevel:
    return CacheLevel(
        name=f"L{cache.level}",
        size_bytes=cache.size_bytes,
        shared_by=cache.shared_by,
        line_bytes=cache.line_bytes,
        ways=cache.ways,
        write_allocate=True,
        victim=is_victim(cpu, cache),
        load_bytes_per_cycle=None,
        store_bytes_per_cycle=None,
        duplex=False,
        overlap="sum",
        # A hash of the address chooses the slice of third levels; others have none.
        hashed=cache.level > 2,
    )


def is_victim(cpu: ReportedCpu, cache: ReportedCache) -> bool:
    """Return whether a cache is taken for one that is filled by evictions from the level before it."""
    if cache.level < 3:
        return False
    # Intel's servers since Skylake-SP: 1 MiB of L2 or more, and an L3 that does not include it.
    return cpu.vendor == "AMD" or (cpu.vendor == "Intel" and cpu.caches[1].size_bytes >= 2**20)
