"""The content of a CPU's machine file, from what the operating system reports and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from perflex.errors import MachineError
from perflex.machines.host import is_victim

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.machines.host import ReportedCache, ReportedCpu

ONE, ALL = "one core", "all cores"
# Loads and stores that take at most this many times as long as the loads alone go at once.
_AT_ONCE = 1.5
# By vendor: the overlap of levels, why, and how the third level is filled.
_OF_VENDORS = {
    "AMD": (
        "max",
        "full overlap, as YaskSite (Alappat et al. 2021, Section V) found for AMD Zen 2; not measured here",
        "the third level of AMD's CPUs since Zen is filled by evictions from the second",
    ),
    "Intel": (
        "sum",
        "no overlap, as YaskSite (Alappat et al. 2021, Section V) found for Intel; not measured here",
        "the third level of Intel's CPUs is filled by evictions where the second has 1 MiB or more",
    ),
}
_UNKNOWN_VENDOR = ("", "", "no level is taken for one filled by evictions")


class Times(NamedTuple):
    """Cycles per byte of a working set: of loading it, and of loading and storing it."""

    load: float
    update: float


@dataclass(frozen=True)
class Bandwidths:
    """What was measured.

    By name, numbers are ``"clock"`` in Hz, ``"float32 operations"`` of one core per second (a multiply-add is two),
    ``"L1 load (one core)"``, ``"memory load+store (all cores)"`` and ``"memory copy"`` (all cores) in bytes per second:
    of all cores together for the last level and the memory only, and of load+store both.
    """

    numbers: Mapping[str, float]
    # How many of the measurements could not be had undisturbed, and how many there were.
    disturbed: tuple[int, int] = (0, 0)

    @property
    def clock_hz(self) -> float:
        """Of a core under this load."""
        return self.numbers["clock"]

    def rate(self, level: str, way: str = "load", cores: str = ONE) -> float | None:
        """Return the bytes per second that are loaded, or loaded and stored; None where that was not measured."""
        return self.numbers.get(f"{level} {way} ({cores})")

    def times(self, level: str, cores: str = ONE) -> Times:
        """Return the cycles per byte of a working set."""
        load, update = (self.numbers[f"{level} {way} ({cores})"] for way in ("load", "load+store"))
        # An update's rate counts each byte twice, loaded and stored.
        return Times(self.clock_hz / load, 2 * self.clock_hz / update)

    def streams(self) -> dict[str, float]:
        """Return the traffic of all cores to the memory in B/s, fetches of stored lines included."""
        ways = {"load": "load (all cores)", "update": "load+store (all cores)", "copy": "copy", "triad": "triad"}
        return {name: self.numbers[f"memory {way}"] for name, way in ways.items()}


def machine_document(
    cpu: ReportedCpu, found: Bandwidths, measured: str, date: str, overlap: str | None = None
) -> dict[str, Any]:
    """Return the content of a machine's file.

    A level's bandwidths are such that the overlap hypothesis gives back what was measured: with ``"max"`` those
    measured, with ``"sum"`` those of its time less that of the levels before it.
    """
    hypothesis, why, victim = _OF_VENDORS.get(cpu.vendor, _UNKNOWN_VENDOR)
    if overlap is not None:
        hypothesis, why = overlap, "stated by the user"
    if not hypothesis:
        vendor = cpu.vendor or "an unknown vendor"
        msg = f"no overlap hypothesis is known for CPUs of {vendor}; state one: --overlap sum|max"
        raise MachineError(msg, machine=cpu.model)
    sources = {
        "os": ("reported", f"Linux (/sys/devices/system/cpu, /sys/devices/system/node, /proc/cpuinfo), {date}"),
        "clock": ("measured", f"chain of dependent integer additions and exclusive ors, one cycle each; {measured}"),
        "operations": ("measured", f"independent multiply-adds of one core, two operations each; {measured}"),
        "one_core": ("measured", f"loads, and loads with stores, of sets inside each level by one core; {measured}"),
        "streams": ("measured", f"all cores, arrays that fit no cache; stores fetch their lines first; {measured}"),
        "penalty": ("derived", "from the memory bandwidths of one core and of all cores"),
        "overlap": ("assumed", why),
        "custom": ("assumed", "as on the CPUs of this vendor in general: stores that miss fetch the line"),
        "victim": ("assumed", victim),
        "index": ("assumed", "a hash of the address chooses the slice of third levels; others have no hash"),
    }
    return {
        "schema": "perflex-machine/1",
        "name": "-".join(cpu.model.split()) or "detected",
        "aliases": [],
        "vendor": cpu.vendor,
        "kind": "cpu",
        "sources": {key: {"kind": kind, "text": text} for key, (kind, text) in sources.items()},
        "facts": _facts(cpu, found),
        "levels": _levels(cpu, found, hypothesis),
        "memory_streams": _streams(cpu, found),
    }


def _quantity(value: Any, unit: str, source: str) -> dict[str, Any]:
    return {"value": value, "unit": unit, "source": source}


def _rounded(value: float) -> float:
    # Timings are not good for more digits.
    return float(f"{value:.4g}")


def _facts(cpu: ReportedCpu, found: Bandwidths) -> dict[str, Any]:
    domains = cpu.domains or 1
    facts = {
        "compute_units": _quantity(cpu.cores, "1", "os"),
        "clock_hz": _quantity(_rounded(found.clock_hz / 1e9), "GHz", "clock"),
        "line_bytes": _quantity(cpu.caches[0].line_bytes, "B", "os"),
        "dram_bandwidth": _quantity(_rounded(max(found.streams().values()) / 1e9), "GB/s", "streams"),
        "cores": _quantity(cpu.cores, "core", "os"),
    }
    # Domains of different sizes have no number of cores each that would hold for all.
    if cpu.domains and cpu.cores % domains == 0:
        facts["cores_per_domain"] = _quantity(cpu.cores // domains, "core", "os")
        facts["domains"] = _quantity(domains, "domain", "os")
    for bits in (32, 64):
        if rate := found.numbers.get(f"float{bits} operations"):
            facts[f"fp{bits}_per_cycle"] = _quantity(_rounded(rate / found.clock_hz), "op/cycle", "operations")
    if cpu.simd_bytes:
        facts["simd_bytes"] = _quantity(cpu.simd_bytes, "B", "os")
    load, store = _penalties(cpu, found)
    facts["memory_load_penalty"] = _quantity(_rounded(load), "cycle", "penalty")
    facts["memory_store_penalty"] = _quantity(_rounded(store), "cycle", "penalty")
    return facts


def _penalties(cpu: ReportedCpu, found: Bandwidths) -> tuple[float, float]:
    """Return what one core needs for a line beyond what the bandwidth of a domain says, loaded and stored."""
    line, domains = cpu.caches[0].line_bytes, cpu.domains or 1
    # All cores together hide the latency of lines behind one another; one core alone does not.
    alone, together = found.times("memory"), found.times("memory", ALL)
    load = max(0.0, line * (alone.load - domains * together.load))
    return load, max(0.0, line * (alone.update - domains * together.update) - load)


def _streams(cpu: ReportedCpu, found: Bandwidths) -> list[dict[str, Any]]:
    counts = {"load": (1, 0, 0), "update": (1, 1, 0), "copy": (1, 1, 1), "triad": (2, 1, 1)}
    return [
        {
            "name": name,
            **dict(zip(("loads", "stores", "write_allocates"), counts[name], strict=True)),
            "bandwidth": _quantity(_rounded(rate / (cpu.domains or 1) / 1e9), "GB/s", "streams"),
        }
        for name, rate in found.streams().items()
    ]


def _levels(cpu: ReportedCpu, found: Bandwidths, hypothesis: str) -> list[dict[str, Any]]:
    entries, before = [], Times(0.0, 0.0)
    for cache in cpu.caches:
        name = f"L{cache.level}"
        own = total = found.times(name)
        if hypothesis == "sum":
            own, before = Times(total.load - before.load, total.update - before.update), total
        # A time of zero or less would be an infinite or negative bandwidth in the file.
        if min(own.load, own.update) <= 0:
            msg = (
                f"{name} was measured to be as fast as the level before it, so their times cannot be told apart; "
                "run it on a machine that does nothing else, or with --overlap max"
            )
            raise MachineError(msg, machine=cpu.model)
        entries.append(_level(name, cache, own, cpu, hypothesis))
    return entries


def _level(name: str, cache: ReportedCache, own: Times, cpu: ReportedCpu, hypothesis: str) -> dict[str, Any]:
    duplex = own.update <= _AT_ONCE * own.load
    store = own.update if duplex else own.update - own.load
    entry: dict[str, Any] = {
        "name": name,
        "size_bytes": _quantity(cache.size_bytes // 1024, "KiB", "os"),
        "shared_by": _quantity(cache.shared_by, "core", "os"),
        "line_bytes": _quantity(cache.line_bytes, "B", "os"),
    }
    if cache.ways is not None:
        entry["ways"] = _quantity(cache.ways, "way", "os")
    return entry | {
        "write_allocate": {"value": True, "source": "custom"},
        "victim": {"value": is_victim(cpu, cache), "source": "victim"},
        "load_bytes_per_cycle": _quantity(_rounded(1 / own.load), "B/cycle", "one_core"),
        "store_bytes_per_cycle": _quantity(_rounded(1 / store), "B/cycle", "one_core"),
        "duplex": {"value": duplex, "source": "one_core"},
        "overlap": {"value": hypothesis, "source": "overlap"},
        "hashed": {"value": cache.level > 2, "source": "index"},
    }
