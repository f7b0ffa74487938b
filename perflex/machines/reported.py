"""What the operating system reports of the CPU and its caches; what it does not say stays unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from perflex.errors import MachineError
from perflex.machines.system_files import read_list, read_number, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIZE = re.compile(r"(\d+)([KMG]?)")
# Linux writes K for KiB.
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}
# Widths of vector registers by the flag that /proc/cpuinfo has for them, widest first.
_SIMD_FLAGS = {"avx512f": 64, "avx2": 32, "avx": 32, "sse2": 16}


@dataclass(frozen=True)
class ReportedCache:
    """A data cache as the operating system reports it.

    Attributes
    ----------
    level
        1 next to the core.
    size_bytes, line_bytes
        Of one instance.
    shared_by
        Cores (not hardware threads) that share an instance.
    ways
        Associativity; None where it is not reported.
    """

    level: int
    size_bytes: int
    line_bytes: int
    shared_by: int
    ways: int | None


@dataclass(frozen=True)
class ReportedCpu:
    """A CPU as the operating system reports it.

    Attributes
    ----------
    model, vendor
        Names of the CPU and of its vendor (``"AMD"``, ``"Intel"``); empty where they are not reported.
    cores, domains
        Cores that are online (not hardware threads), and NUMA nodes that have some; None where it is not reported.
    simd_bytes
        Width of vector registers; None where it is not reported.
    caches
        Data caches, the first level first.
    missing
        What is not reported, in words.
    """

    model: str
    vendor: str
    cores: int
    domains: int | None
    simd_bytes: int | None
    caches: tuple[ReportedCache, ...]
    missing: tuple[str, ...] = field(default=())


def reported_cpu(root: Path | str = "/") -> ReportedCpu:
    """Return what Linux reports of the CPU.

    Parameters
    ----------
    root
        Folder in which ``sys`` and ``proc`` lie.

    Raises
    ------
    MachineError
        No data cache is reported, without which there is no machine to describe; the file is named.
    """
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


def _number(path: Path) -> int | None:
    # No cache is of size 0: that is as unknown as a missing file.
    return read_number(path) or None


def _core(topology: Path, cpu: int) -> tuple[str, str]:
    """Return what tells cores apart; hardware threads of one core agree in it."""
    package, core = read_text(topology / "physical_package_id"), read_text(topology / "core_id")
    # Some virtual machines tell nothing of cores: then each CPU counts as one.
    return (package, core) if core else ("", f"cpu{cpu}")


def _caches(folder: Path, core_of: Mapping[int, object]) -> tuple[tuple[ReportedCache, ...], list[str]]:
    found: dict[int, ReportedCache] = {}
    missing: list[str] = []
    for entry in sorted(folder.glob("index[0-9]*")):
        # Caches of instructions hold no data.
        if read_text(entry / "type") not in {"Data", "Unified"}:
            continue
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


def _first_processor(path: Path) -> dict[str, str]:
    info: dict[str, str] = {}
    for line in read_text(path).splitlines():
        key, colon, value = line.partition(":")
        # The file repeats itself for each processor, with an empty line between.
        if not colon and info:
            break
        info[key.strip()] = value.strip()
    return info
