"""The machine that perflex runs on, from what the operating system reports alone: caches, but no bandwidths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from perflex.errors import MachineError, warn
from perflex.machines.machine import CacheLevel, Machine, Source
from perflex.yaml_file import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_text(path: Path) -> str:
    """Return a file's text; nothing where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def read_number(path: Path) -> int | None:
    """Return the natural number in a file; None where the file is missing or says something else."""
    text = read_text(path)
    return int(text) if text.isdecimal() else None


def read_list(path: Path) -> list[int]:
    """Return the numbers of a list such as ``0-3,8``; none where the file is missing or says something else."""
    found: list[int] = []
    for part in read_text(path).split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            return []
        found += range(int(first), int(last or first) + 1)
    return found


# Columns of /proc/stat (proc(5)): work, and what a hypervisor gave somebody else. The two behind that, guests' time,
# are contained in the first two.
BUSY_COLUMNS = (0, 1, 2, 5, 6)
STEAL_COLUMN = 7


def processor_ticks(stat: str) -> dict[str, list[str]]:
    """Return the columns of /proc/stat's beginning in clock ticks, of all processors (``cpu``) and of each (``cpu0``).

    They are texts: between launches of a kernel there is no time to convert those of hundreds of processors.
    """
    rows = {}
    for line in stat.split("\n"):
        name, *words = line.split() or [""]
        if not name.startswith("cpu"):
            break
        if len(words) > STEAL_COLUMN and all(map(str.isdecimal, words)):
            rows[name] = words[: STEAL_COLUMN + 1]
    return rows


_SIZE = re.compile(r"(\d+)([KMG]?)")
# Linux writes K for KiB.
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}
# Widths of vector registers by the flag that /proc/cpuinfo has for them, widest first.
_SIMD_FLAGS = {"avx512f": 64, "avx2": 32, "avx": 32, "sse2": 16}


_Count = Annotated[int, Meta(ge=1)]


class ReportedCache(Fields, frozen=True):
    """A data cache as the operating system reports it."""

    # 1 next to the core.
    level: _Count
    size_bytes: _Count
    line_bytes: _Count
    # Cores (not hardware threads) that share an instance.
    shared_by: _Count
    # Associativity; None where it is not reported.
    ways: _Count | None


class ReportedCpu(Fields, frozen=True, omit_defaults=True):
    """A CPU as the operating system reports it, and as it stands in a calibration's file."""

    # Names of the CPU and of its vendor (``"AMD"``, ``"Intel"``); empty where they are not reported.
    model: str
    vendor: str
    # Cores that are online (not hardware threads), and NUMA nodes that have some; None where it is not reported.
    cores: _Count
    domains: _Count | None
    # Width of vector registers; None where it is not reported.
    simd_bytes: _Count | None
    caches: Annotated[tuple[ReportedCache, ...], Meta(min_length=1)]
    # What is not reported, in words.
    missing: tuple[str, ...] = ()


def reported_cpu(root: Path | str = "/") -> ReportedCpu:
    """Return what Linux reports of the CPU, with a warning where its cores have different caches."""
    root = Path(root)
    cpus = root / "sys/devices/system/cpu"
    missing: list[str] = []
    online = read_list(cpus / "online")
    if not online:
        msg = f"the operating system reports no CPUs in {cpus}/online; write the machine file by hand"
        raise MachineError(msg)
    core_of = {cpu: _core(cpus / f"cpu{cpu}/topology", cpu) for cpu in online}
    caches, lacking = _caches(cpus / f"cpu{online[0]}/cache", core_of)
    missing += lacking
    # Cores for speed and for economy, or an L3 on top of some of the others.
    sizes = {cpu: _sizes(cpus / f"cpu{cpu}/cache") for cpu in online}
    if others := [cpu for cpu, found in sizes.items() if found and found != sizes[online[0]]]:
        text = (
            f"one size of caches for all cores (CPU {others[0]} and {len(others) - 1} more have others than CPU "
            f"{online[0]}, whose caches stand for all)"
        )
        missing.append(text)
        warn(f"the CPU has no {text}; keep kernels on cores of one kind")
    if not caches or caches[0].level != 1:
        what = ", ".join(lacking) or f"no first level in {cpus}/cpu{online[0]}/cache"
        msg = f"the operating system does not report the caches ({what}); write the machine file by hand"
        raise MachineError(msg)
    # Nodes of memory alone have no cores that share it.
    nodes = read_list(root / "sys/devices/system/node/has_cpu")
    if not nodes:
        missing.append("NUMA nodes (/sys/devices/system/node/has_cpu)")
    info = _first_processor(root / "proc/cpuinfo")
    flags = set(info.get("flags", "").split())
    simd = next((width for flag, width in _SIMD_FLAGS.items() if flag in flags), None)
    if simd is None:
        missing.append("vector registers (flags in /proc/cpuinfo)")
    model, vendor = info.get("model name", ""), info.get("vendor_id", "")
    missing += [f"{what} (/proc/cpuinfo)" for what, value in (("model name", model), ("vendor", vendor)) if not value]
    cores = len(set(core_of.values()))
    return ReportedCpu(model, _VENDORS.get(vendor, vendor), cores, len(nodes) or None, simd, caches, tuple(missing))


def last_caches_bytes(root: Path | str = "/") -> int:
    """Return the bytes of the last caches of all processors together; 0 where the system does not tell."""
    cpus = Path(root) / "sys/devices/system/cpu"
    found: dict[tuple[int, ...], int] = {}
    for cpu in read_list(cpus / "online"):
        for entry in _data_caches(cpus / f"cpu{cpu}/cache")[-1:]:
            size = _SIZE.fullmatch(read_text(entry / "size"))
            # Each processor that shares one names it.
            found[tuple(read_list(entry / "shared_cpu_list"))] = int(size[1]) * _UNITS[size[2]] if size else 0
    return sum(found.values())


def _number(path: Path) -> int | None:
    # No cache is of size 0: that is as unknown as a missing file.
    return read_number(path) or None


def _core(topology: Path, cpu: int) -> tuple[str, str]:
    """Return what tells cores apart; hardware threads of one core agree in it."""
    package, core = read_text(topology / "physical_package_id"), read_text(topology / "core_id")
    # Some virtual machines tell nothing of cores: then each CPU counts as one.
    return (package, core) if core else ("", f"cpu{cpu}")


def _data_caches(folder: Path) -> list[Path]:
    # Caches of instructions hold no data.
    return [one for one in sorted(folder.glob("index[0-9]*")) if read_text(one / "type") in {"Data", "Unified"}]


def _caches(folder: Path, core_of: Mapping[int, object]) -> tuple[tuple[ReportedCache, ...], list[str]]:
    found: dict[int, ReportedCache] = {}
    missing: list[str] = []
    for entry in _data_caches(folder):
        level, line = _number(entry / "level"), _number(entry / "coherency_line_size")
        size = _SIZE.fullmatch(read_text(entry / "size"))
        sharing = {core_of[cpu] for cpu in read_list(entry / "shared_cpu_list") if cpu in core_of}
        if level is None:
            missing.append(f"level of a cache ({entry}/level)")
            continue
        lacks = [
            name
            for name, value in (("size", size), ("coherency_line_size", line), ("shared_cpu_list", sharing))
            if not value
        ]
        if lacks or size is None or line is None:
            missing.append(f"L{level}: {', '.join(lacks)} ({entry})")
            continue
        ways = _number(entry / "ways_of_associativity")
        if ways is None:
            missing.append(f"L{level}: ways_of_associativity ({entry})")
        found[level] = ReportedCache(level, int(size[1]) * _UNITS[size[2]], line, len(sharing), ways)
    return tuple(found[level] for level in sorted(found)), missing


def _sizes(folder: Path) -> set[tuple[str, str]]:
    return {(read_text(one / "level"), read_text(one / "size")) for one in _data_caches(folder)}


def _first_processor(path: Path) -> dict[str, str]:
    info: dict[str, str] = {}
    for line in read_text(path).splitlines():
        key, colon, value = line.partition(":")
        # The file repeats itself for each processor, with an empty line between.
        if not colon and info:
            break
        info[key.strip()] = value.strip()
    return info


_REPORTED = Source("reported", "the operating system")
_ASSUMED = Source("assumed", "as on the CPUs of this vendor in general")


def host_machine(cpu: ReportedCpu | None = None) -> Machine:
    """Return the machine of a CPU as the operating system reports it, in a moment.

    Volumes between caches need no more. Clock, rates and bandwidths stay unknown; ``perflex machine detect`` measures
    them.
    """
    cpu = reported_cpu() if cpu is None else cpu
    domains = cpu.domains or 1
    facts: dict[str, int] = {"compute_units": cpu.cores, "cores": cpu.cores, "line_bytes": cpu.caches[0].line_bytes}
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
