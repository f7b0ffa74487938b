"""Clock and bandwidths of a CPU, measured by OpenCL kernels.

Each bandwidth comes from two launches that differ only in how often a working set is gone through: their difference is
free of what a launch costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.errors import MachineError
from perflex.features.sized_kernel import SizedKernel
from perflex.studies.machine_detect.kernels import (
    CHAIN_LENGTH,
    CHUNK_BYTES,
    MADD_SIZES,
    MADDS,
    chain_kernel,
    load_kernel,
    madd_kernel,
    stream_kernel,
    update_kernel,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.machines.reported import ReportedCache
    from perflex.progress import Progress
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.options import TimingOptions

# Bytes that a core goes through in the shorter of two launches, and how many times as many in the longer.
_BYTES, _QUICK_BYTES, _TIMES = 64 * 2**20, 16 * 2**20, 3
# Of 32 cycles each: 0.2 ms at 3 GHz, many times the resolution of timers.
_CHAIN_ROUNDS = 20_000
_MADD_ROUNDS = 64_000
# How many times the last cache a working set in memory is.
_BEYOND = 4
_STREAMS = {"copy": ("gmem_copy", 1), "triad": ("gmem_triad", 2)}


@dataclass(frozen=True)
class MeasuredRates:
    """Bytes per second of a working set.

    Attributes
    ----------
    load
        Loaded, where all of it is only loaded.
    update
        Loaded and stored together, where each element is loaded and stored.
    """

    load: float
    update: float


@dataclass(frozen=True)
class Bandwidths:
    """What was measured.

    Attributes
    ----------
    clock_hz
        Clock of a core under this load.
    operations
        Floating point operations per second of one core, a multiply-add counted as two, by element type.
    one_core
        Rates of one core, by level name and ``"memory"``.
    all_cores
        Rates of all cores together, for the last level and ``"memory"``.
    streams
        Traffic of all cores in B/s of copy and triad, fetches of stored lines included.
    disturbed
        How many of the measurements could not be had undisturbed, and how many there were.
    """

    clock_hz: float
    operations: Mapping[str, float]
    one_core: Mapping[str, MeasuredRates]
    all_cores: Mapping[str, MeasuredRates]
    streams: Mapping[str, float]
    disturbed: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class _Set:
    """A working set: whose, how many work-groups have one each, and its size."""

    name: str
    groups: int
    size_bytes: int


def measure_rates(
    caches: Sequence[ReportedCache],
    cores: int,
    device: TimedDevice,
    options: TimingOptions,
    *,
    quick: bool = False,
    progress: Progress | None = None,
) -> Bandwidths:
    """Measure the clock, and bandwidths of each level and the memory.

    Parameters
    ----------
    caches
        Data caches, the first level first.
    cores
        Cores that work when all do.
    device
        An OpenCL device that is this CPU.
    options
        How kernels are timed.
    quick
        Whether to take less time for it, and less precision.
    progress
        As `measure` takes it.

    Raises
    ------
    MachineError
        A kernel could not be timed, or a longer launch took no longer than a shorter one.
    """
    from perflex.timing.measuring import measure
    from perflex.timing.results import Measured, Timing

    sets = _working_sets(caches, cores)
    dtypes = ("float32", "float64") if getattr(device, "double_precision", True) else ("float32",)
    volume = _QUICK_BYTES if quick else _BYTES
    jobs: list[SizedKernel] = []
    # Each kernel twice, with more rounds the second time: `_rate` takes the difference.
    for one in sets:
        for kind, kernel in (("load", load_kernel()), ("update", update_kernel())):
            rounds = max(1, volume // one.size_bytes)
            rows = one.size_bytes // CHUNK_BYTES
            jobs += [
                SizedKernel(
                    kernel, {"m": m, "nrows": rows, "ngroups": one.groups}, f"{kind} {one.name} {one.groups} {m}"
                )
                for m in (rounds, _TIMES * rounds)
            ]
    jobs += [
        SizedKernel(chain_kernel(), {"m": m, "ngroups": 1}, f"chain {m}")
        for m in (_CHAIN_ROUNDS, _TIMES * _CHAIN_ROUNDS)
    ]
    for dtype in dtypes:
        jobs += [
            SizedKernel(madd_kernel(dtype), {"m": m, **MADD_SIZES}, f"madd {dtype} {m}")
            for m in (_MADD_ROUNDS, _TIMES * _MADD_ROUNDS)
        ]
    # Streams run once over arrays that no cache holds; a launch is short beside that.
    elements = _rounded(_BEYOND * caches[-1].size_bytes, 8 * 1024) // 8
    jobs += [SizedKernel(stream_kernel(kernel), {"nvectors": elements}, name) for name, (kernel, _) in _STREAMS.items()]
    measured: Measured = measure(jobs, device, options, progress)
    seconds: list[float] = []
    disturbed = 0
    for outcome in measured:
        if not isinstance(outcome, Timing):
            msg = f"the machine cannot be measured: {outcome.reason}"
            raise MachineError(msg)
        seconds.append(outcome.seconds)
        disturbed += outcome.disturbed
    paired = len(jobs) - len(_STREAMS)
    pairs = [_rate(jobs[i], jobs[i + 1], seconds[i], seconds[i + 1]) for i in range(0, paired, 2)]
    operations = {dtype: 2 * MADDS * rounds for dtype, rounds in zip(dtypes, pairs[-len(dtypes) :], strict=True)}
    rates: dict[int, dict[str, MeasuredRates]] = {}
    for index, one in enumerate(sets):
        load, update = (one.groups * one.size_bytes * rounds for rounds in pairs[2 * index : 2 * index + 2])
        rates.setdefault(one.groups, {})[one.name] = MeasuredRates(load, 2 * update)
    # A stored line is fetched before it is written, so stores count twice; 8 bytes per double.
    streams = {
        name: (loads + 2) * 8 * elements / time
        for (name, (_, loads)), time in zip(_STREAMS.items(), seconds[-len(_STREAMS) :], strict=True)
    }
    clock = pairs[2 * len(sets)] * CHAIN_LENGTH
    return Bandwidths(clock, operations, rates[1], rates[cores], streams, (disturbed, len(jobs)))


def _working_sets(caches: Sequence[ReportedCache], cores: int) -> list[_Set]:
    """Return a working set well inside each level and well outside the one before it, and one in memory."""
    sets, before = [], 0
    for cache in caches:
        size = min(cache.size_bytes // 2, max(4 * before, cache.size_bytes // 4))
        sets.append(_Set(f"L{cache.level}", 1, _rounded(size, CHUNK_BYTES)))
        before = cache.size_bytes
    outside = _BEYOND * caches[-1].size_bytes
    sets.append(_Set("memory", 1, _rounded(outside, CHUNK_BYTES)))
    if cores > 1:
        last = caches[-1]
        sets.append(_Set(f"L{last.level}", cores, _rounded(last.size_bytes // 2 // last.shared_by, CHUNK_BYTES)))
        # All instances of the last cache together must be too small, not only one.
        instances = -(-cores // last.shared_by)
        sets.append(_Set("memory", cores, _rounded(outside * instances // cores, CHUNK_BYTES)))
    return sets


def _rounded(size: int, step: int) -> int:
    return max(step, size // step * step)


def _rate(short: SizedKernel, long: SizedKernel, short_s: float, long_s: float) -> float:
    """Return rounds per second, what a launch costs left out."""
    if long_s <= short_s:
        msg = (
            f"{long.label!r} took no longer ({long_s:.3g} s) than {short.label!r} ({short_s:.3g} s); "
            "run it on a machine that does nothing else"
        )
        raise MachineError(msg)
    more_rounds: int = long.sizes["m"] - short.sizes["m"]
    return more_rounds / (long_s - short_s)
