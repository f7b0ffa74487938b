"""From what is reported and measured to a machine's file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.errors import MachineError
from perflex.machines.host import is_victim

if TYPE_CHECKING:
    from perflex.machines.reported import ReportedCache, ReportedCpu
    from perflex.studies.machine_detect.measure import Bandwidths, MeasuredRates

# Loads and stores that take at most this many times as long as the loads alone go at once.
_AT_ONCE = 1.5
_AMD, _INTEL = "AMD", "Intel"


@dataclass(frozen=True)
class _Times:
    """Cycles per byte of a working set: of loading it, and of loading and storing it."""

    load: float
    update: float

    @classmethod
    def of(cls, rates: MeasuredRates, clock_hz: float) -> _Times:
        # An update's rate counts each byte twice, loaded and stored.
        return cls(clock_hz / rates.load, 2 * clock_hz / rates.update)


def machine_document(
    name: str, cpu: ReportedCpu, found: Bandwidths, measured: str, date: str, overlap: str | None = None
) -> dict[str, Any]:
    """Return the content of a machine's file.

    A level's bandwidths are such that the overlap hypothesis gives back what was measured: with ``"max"`` those
    measured, with ``"sum"`` those of its time less that of the levels before it.

    Parameters
    ----------
    name
        Name of the machine, by which it can be looked up.
    cpu, found
        What is reported and what was measured.
    measured
        Where, when and how well it was measured, for the sources.
    date
        When.
    overlap
        Overlap hypothesis of all levels, ``"sum"`` or ``"max"``; by default that of YaskSite for the vendor.

    Raises
    ------
    MachineError
        A level is measured to be as fast as the one before it, or no hypothesis is known for the vendor.
    """
    hypothesis, why = _hypothesis(cpu, overlap)
    sources = {
        "os": ("reported", f"Linux (/sys/devices/system/cpu, /sys/devices/system/node, /proc/cpuinfo), {date}"),
        "clock": ("measured", f"chain of dependent integer additions and exclusive ors, one cycle each; {measured}"),
        "operations": ("measured", f"independent multiply-adds of one core, two operations each; {measured}"),
        "one_core": (
            "measured",
            f"loads, and loads with stores, of working sets inside each level by one core; {measured}",
        ),
        "streams": ("measured", f"all cores, arrays that fit no cache; stores fetch their lines first; {measured}"),
        "penalty": ("derived", "from the memory bandwidths of one core and of all cores"),
        "overlap": ("assumed", why),
        "custom": ("assumed", "as on the CPUs of this vendor in general: stores that miss fetch the line"),
        "victim": ("assumed", _victim_reason(cpu)),
        "index": ("assumed", "a hash of the address chooses the slice of third levels; others have no hash"),
    }
    return {
        "schema": "perflex-machine/1",
        "name": name,
        "aliases": [],
        "vendor": cpu.vendor,
        "kind": "cpu",
        "sources": {key: {"kind": kind, "text": text} for key, (kind, text) in sources.items()},
        "facts": _facts(cpu, found),
        "levels": _levels(cpu, found, hypothesis),
        "memory_streams": _streams(cpu, found),
        "curves": {},
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
        "dram_bandwidth": _quantity(_rounded(max(_stream_rates(found).values()) / 1e9), "GB/s", "streams"),
        "cores": _quantity(cpu.cores, "core", "os"),
    }
    # Domains of different sizes have no number of cores each that would hold for all.
    if cpu.domains and cpu.cores % domains == 0:
        facts["cores_per_domain"] = _quantity(cpu.cores // domains, "core", "os")
        facts["domains"] = _quantity(domains, "domain", "os")
    for dtype, rate in found.operations.items():
        fact = f"fp{dtype.removeprefix('float')}_per_cycle"
        facts[fact] = _quantity(_rounded(rate / found.clock_hz), "op/cycle", "operations")
    if cpu.simd_bytes:
        facts["simd_bytes"] = _quantity(cpu.simd_bytes, "B", "os")
    load, store = _penalties(cpu, found)
    facts["memory_load_penalty"] = _quantity(_rounded(load), "cycle", "penalty")
    facts["memory_store_penalty"] = _quantity(_rounded(store), "cycle", "penalty")
    return facts


def _penalties(cpu: ReportedCpu, found: Bandwidths) -> tuple[float, float]:
    """Return what one core needs for a line beyond what the bandwidth of a domain says, loaded and stored."""
    line = cpu.caches[0].line_bytes
    # All cores together hide the latency of lines behind one another; one core alone does not.
    alone = _Times.of(found.one_core["memory"], found.clock_hz)
    rates, domains = _stream_rates(found), cpu.domains or 1
    together = _Times(domains * found.clock_hz / rates["load"], 2 * domains * found.clock_hz / rates["update"])
    load = max(0.0, line * (alone.load - together.load))
    return load, max(0.0, line * (alone.update - together.update) - load)


def _stream_rates(found: Bandwidths) -> dict[str, float]:
    memory = found.all_cores["memory"]
    return {"load": memory.load, "update": memory.update, **found.streams}


def _streams(cpu: ReportedCpu, found: Bandwidths) -> list[dict[str, Any]]:
    counts = {"load": (1, 0, 0), "update": (1, 1, 0), "copy": (1, 1, 1), "triad": (2, 1, 1)}
    return [
        {
            "name": name,
            **dict(zip(("loads", "stores", "write_allocates"), counts[name], strict=True)),
            "bandwidth": _quantity(_rounded(rate / (cpu.domains or 1) / 1e9), "GB/s", "streams"),
        }
        for name, rate in _stream_rates(found).items()
    ]


def _levels(cpu: ReportedCpu, found: Bandwidths, hypothesis: str) -> list[dict[str, Any]]:
    entries, before = [], _Times(0.0, 0.0)
    for cache in cpu.caches:
        name = f"L{cache.level}"
        total = _Times.of(found.one_core[name], found.clock_hz)
        own = total
        if hypothesis == "sum":
            own, before = _Times(total.load - before.load, total.update - before.update), total
        # A time of zero or less would be an infinite or negative bandwidth in the file.
        if min(own.load, own.update) <= 0:
            msg = (
                f"{name} was measured to be as fast as the level before it, so their times cannot be told apart; "
                "run it on a machine that does nothing else, or with --overlap max"
            )
            raise MachineError(msg, machine=cpu.model)
        entries.append(_level(name, cache, own, cpu, hypothesis))
    return entries


def _level(name: str, cache: ReportedCache, own: _Times, cpu: ReportedCpu, hypothesis: str) -> dict[str, Any]:
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


def _hypothesis(cpu: ReportedCpu, stated: str | None) -> tuple[str, str]:
    if stated is not None:
        return stated, "stated by the user"
    if cpu.vendor == _AMD:
        return (
            "max",
            "full overlap, as YaskSite (Alappat et al. 2021, Section V) found for AMD Zen 2; not measured here",
        )
    if cpu.vendor == _INTEL:
        return "sum", "no overlap, as YaskSite (Alappat et al. 2021, Section V) found for Intel; not measured here"
    msg = (
        f"no overlap hypothesis is known for CPUs of {cpu.vendor or 'an unknown vendor'}; state one: --overlap sum|max"
    )
    raise MachineError(msg, machine=cpu.model)


def _victim_reason(cpu: ReportedCpu) -> str:
    if cpu.vendor == _AMD:
        return "the third level of AMD's CPUs since Zen is filled by evictions from the second"
    if cpu.vendor == _INTEL:
        return "the third level of Intel's CPUs is filled by evictions where the second has 1 MiB or more"
    return "no level is taken for one filled by evictions"
