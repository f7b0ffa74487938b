"""Detecting the CPU that perflex runs on: what the operating system reports, and clock and bandwidths by kernels.

Each bandwidth comes from two launches that differ only in how often a working set is gone through: their difference is
free of what a launch costs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from perflex.errors import DeviceError, MachineError
from perflex.features.sized_kernel import SizedKernel
from perflex.machines.host import reported_cpu
from perflex.studies.machine_document import ALL, ONE, Bandwidths, machine_document
from perflex.tables import Table, fixed, number, text
from perflex.timing.measuring import measure
from perflex.timing.options import TimingOptions
from perflex.timing.results import Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import loopy as lp

    from perflex.devices.device import Device
    from perflex.machines.host import ReportedCache, ReportedCpu
    from perflex.progress import Progress
    from perflex.timing.launch.backend import TimedDevice

# Work-items of a work-group, and rows that each has in an iteration: a vector each, and few enough to be registers.
_ITEMS, _CHAINS = 16, 8
_ELEMENT_BYTES = 4
# Working sets are multiples of this.
_CHUNK_BYTES = _ITEMS * _CHAINS * _ELEMENT_BYTES
# Private variables, each a vector: more than the multiply-adds that are under way at once.
_VARIABLES = 16
# Multiply-adds of one iteration of `_madd_kernel`, and dependent operations of one of the chain, each of one cycle.
_MADDS = _VARIABLES * _ITEMS
_CHAIN_LENGTH = 32


_LOAD = (
    "gmem_working_set", "dtype:float32", f"lsize_0:{_ITEMS}", f"chains:{_CHAINS}", "working_set:131072", "m:8",
)  # fmt: skip
# Of double precision as STREAM is.
_STREAM = ("dtype:float64", "width:1", "lsize_0:1024", "groups_fit:True", "nelements:4194304")


def _madd_tags(dtype: str) -> tuple[str, ...]:
    return (
        "flops_madd_pattern", f"dtype:{dtype}", f"lsize_0:{_ITEMS}", "lsize_1:1", "groups_fit:True",
        f"lid_stride_1:{_ITEMS}", f"nvars:{_VARIABLES}", f"nelements:{_ITEMS}", "m:128",
    )  # fmt: skip


@lru_cache(maxsize=8)
def _catalog(*tags: str) -> lp.TranslationUnit:
    from uipick import ALL_GENERATORS, KernelCollection

    return KernelCollection(ALL_GENERATORS).generate_kernels(tags)[0].kernel


@lru_cache(maxsize=1)
def _update_kernel() -> lp.TranslationUnit:
    """Return the kernel that loads and stores every element of a work-group's working set, m times over.

    Sizes as of ``gmem_working_set``: work-groups, rows of a work-group, and m.
    """
    # Values tend to 1: no number of rounds makes them overflow or denormal.
    rows = [f"data[g0, j, {c}, l0] = 0.5*data[g0, j, {c}, l0] + 0.5" for c in range(_CHAINS)]
    shape = f"ngroups, nrows, {_CHAINS}, {_ITEMS}"
    return _kernel(
        "update_working_set",
        ["{[round, j]: 0 <= round < m and 0 <= j < nrows}"],
        ["for round", "for j", *rows, "end", "... lbarrier", "end"],
        ("data", "float32", shape),
        ["m", "nrows", "ngroups"],
    )


@lru_cache(maxsize=1)
def _chain_kernel() -> lp.TranslationUnit:
    """Return the kernel that does ``m`` times `_CHAIN_LENGTH` integer operations, each waiting for the one before.

    Additions of, and exclusive ors with, numbers that the compiler does not know: on x86 each takes one cycle, of
    scalars and of vectors, and no sequence of them is shorter.
    """
    operations = ["x = x + step", "x = x ^ pattern"] * (_CHAIN_LENGTH // 2)
    body = ["<int32> step = ngroups + 12345", "<int32> pattern = m + 67890", "<int32> x = l0", "for round", *operations]
    # One work-item: a runtime that makes no vectors of them would run one after the other.
    return _kernel(
        "dependent_chain",
        ["{[round]: 0 <= round < m}"],
        [*body, "end", "data[g0, l0] = x"],
        ("data", "int32", "ngroups, 1"),
        ["m", "ngroups"],
        items=1,
    )


def _kernel(
    name: str,
    loops: Sequence[str],
    body: Sequence[str],
    array: tuple[str, str, str],
    sizes: Sequence[str],
    items: int = _ITEMS,
) -> lp.TranslationUnit:
    import loopy as lp
    import numpy as np

    import perflex.isl  # noqa: F401 - mends what loopy misses

    kernel = lp.make_kernel(
        [f"{{[g0, l0]: 0 <= g0 < ngroups and 0 <= l0 < {items}}}", *loops],
        "\n".join(["for g0, l0", *body, "end"]),
        [
            lp.GlobalArg(array[0], np.dtype(array[1]), array[2], is_input=True, is_output=True),
            lp.ValueArg(", ".join(sizes), np.int32),
        ],
        name=name,
        lang_version=(2018, 2),
        target=lp.PyOpenCLTarget(),
        seq_dependencies=True,
    )
    kernel = lp.assume(kernel, " and ".join(f"{size} >= 1" for size in sizes))
    kernel = lp.tag_inames(kernel, "g0:g.0, l0:l.0")
    return lp.prioritize_loops(kernel, "round, j") if "nrows" in sizes else kernel


# Bytes that a core goes through in the shorter of two launches, and how many times as many in the longer.
_BYTES, _QUICK_BYTES, _TIMES = 64 * 2**20, 16 * 2**20, 3
# Of 32 cycles each: 0.2 ms at 3 GHz, many times the resolution of timers.
_CHAIN_ROUNDS = 20_000
_MADD_ROUNDS = 64_000
# How many times the last cache a working set in memory is.
_BEYOND = 4
_STREAMS = {"copy": ("gmem_copy", 1), "triad": ("gmem_triad", 2)}


class _Set(NamedTuple):
    """A working set: whose, how many work-groups have one each, and its size."""

    name: str
    groups: int
    size_bytes: int


def measure_rates(
    caches: Sequence[ReportedCache],
    cores: int,
    device: TimedDevice,
    *,
    quick: bool = False,
    progress: Progress | None = None,
) -> Bandwidths:
    """Measure the clock, and bandwidths of each level and the memory."""
    dtypes = ("float32", "float64") if getattr(device, "double_precision", True) else ("float32",)
    # Each kernel twice, with more rounds the second time: `_rate` takes the difference. By the name of what it tells:
    # the first job of the pair, and what one round of it is.
    pairs: dict[str, tuple[int, float]] = {}
    jobs: list[SizedKernel] = []

    def add(name: str, kernel: lp.TranslationUnit, label: str, rounds: int, each: float, **sizes: int) -> None:
        pairs[name] = len(jobs), each
        jobs.extend(SizedKernel(kernel, {"m": m, **sizes}, f"{label} {m}") for m in (rounds, _TIMES * rounds))

    for one in _working_sets(caches, cores):
        rounds = max(1, (_QUICK_BYTES if quick else _BYTES) // one.size_bytes)
        where, amount = ONE if one.groups == 1 else ALL, one.groups * one.size_bytes
        sizes = {"nrows": one.size_bytes // _CHUNK_BYTES, "ngroups": one.groups}
        label = f"{one.name} {one.groups}"
        add(f"{one.name} load ({where})", _catalog(*_LOAD), f"load {label}", rounds, amount, **sizes)
        add(f"{one.name} load+store ({where})", _update_kernel(), f"update {label}", rounds, 2 * amount, **sizes)
    add("clock", _chain_kernel(), "chain", _CHAIN_ROUNDS, _CHAIN_LENGTH, ngroups=1)
    for dtype in dtypes:
        kernel = _catalog(*_madd_tags(dtype))
        add(f"{dtype} operations", kernel, f"madd {dtype}", _MADD_ROUNDS, 2 * _MADDS, nelements=_ITEMS)
    # Streams run once over arrays that no cache holds; a launch is short beside that.
    elements = _rounded(_BEYOND * caches[-1].size_bytes, 8 * 1024) // 8
    paired = len(jobs)
    jobs += [
        SizedKernel(_catalog(kernel, *_STREAM), {"nvectors": elements}, name) for name, (kernel, _) in _STREAMS.items()
    ]
    options = TimingOptions(trials=8 if quick else 25, min_trials=3 if quick else 7, budget_s=0.1 if quick else 0.3)
    seconds: list[float] = []
    disturbed = 0
    for outcome in measure(jobs, device, options, progress):
        if not isinstance(outcome, Timing):
            msg = f"the machine cannot be measured: {outcome.reason}"
            raise MachineError(msg)
        # The fastest of several timings: what else the machine does only makes it slower.
        seconds.append(min(outcome.samples))
        disturbed += outcome.disturbed
    numbers = {name: each * _rate(jobs[i : i + 2], seconds[i : i + 2]) for name, (i, each) in pairs.items()}
    # A stored line is fetched before it is written, so stores count twice; 8 bytes per double.
    for (name, (_, loads)), taken in zip(_STREAMS.items(), seconds[paired:], strict=True):
        numbers[f"memory {name}"] = (loads + 2) * 8 * elements / taken
    if cores == 1:
        # One core is all there are.
        numbers |= {name.replace(ONE, ALL): value for name, value in numbers.items() if name.startswith("memory")}
    return Bandwidths(numbers, (disturbed, len(jobs)))


def _working_sets(caches: Sequence[ReportedCache], cores: int) -> list[_Set]:
    """Return a working set well inside each level and well outside the one before it, and one in memory."""
    sets, before = [], 0
    for cache in caches:
        size = min(cache.size_bytes // 2, max(4 * before, cache.size_bytes // 4))
        sets.append(_Set(f"L{cache.level}", 1, _rounded(size, _CHUNK_BYTES)))
        before = cache.size_bytes
    outside = _BEYOND * caches[-1].size_bytes
    sets.append(_Set("memory", 1, _rounded(outside, _CHUNK_BYTES)))
    if cores > 1:
        last = caches[-1]
        sets.append(_Set(f"L{last.level}", cores, _rounded(last.size_bytes // 2 // last.shared_by, _CHUNK_BYTES)))
        # All instances of the last cache together must be too small, not only one.
        instances = -(-cores // last.shared_by)
        sets.append(_Set("memory", cores, _rounded(outside * instances // cores, _CHUNK_BYTES)))
    return sets


def _rounded(size: int, step: int) -> int:
    return max(step, size // step * step)


def _rate(jobs: Sequence[SizedKernel], seconds: Sequence[float]) -> float:
    """Return rounds per second by a short launch and a long one, what a launch costs left out."""
    (short, long), (short_s, long_s) = jobs, seconds
    if long_s <= short_s:
        msg = (
            f"{long.label!r} took no longer ({long_s:.3g} s) than {short.label!r} ({short_s:.3g} s); "
            "run it on a machine that does nothing else"
        )
        raise MachineError(msg)
    more_rounds: int = long.sizes["m"] - short.sizes["m"]
    return more_rounds / (long_s - short_s)


# Two runs agree in a number that differs by no more.
_AGREEMENT = 0.1
# What keeps a machine busy comes and goes: two runs, and more while they do not agree.
_RUNS = 5


def repeated_rates(
    run: Callable[[], Bandwidths], limit_s: float, clock: Callable[[], float] = time.monotonic
) -> tuple[Bandwidths, list[str]]:
    """Return the largest value of each number of several runs, and what makes them doubtful, in words.

    Others only make a machine slower. No run is begun that comes after the limit, or after two that agree.
    """
    found: list[Bandwidths] = []
    begin = clock()
    failures: list[MachineError] = []
    apart: dict[str, float] = {}
    for attempt in range(_RUNS):
        if attempt and clock() - begin > limit_s:
            break
        try:
            found.append(run())
        except MachineError as error:
            # A run that is disturbed in the wrong place makes no sense: the next one may.
            failures.append(error)
            continue
        apart = _apart(found)
        if len(found) > 1 and not apart:
            break
    if not found:
        raise failures[-1]
    doubts = []
    if len(found) == 1:
        doubts.append("only one run succeeded, and there is no second run to compare it with")
    if apart:
        worst = max(apart, key=apart.__getitem__)
        by = f"by up to {100 * apart[worst]:.0f} % ({worst})"
        doubts.append(f"{len(found)} runs differ in {len(apart)} numbers {by}, not within {100 * _AGREEMENT:.0f} %")
    part, whole = found[-1].disturbed
    if part:
        doubts.append(f"{part} of {whole} measurements were disturbed every time")
    largest = {name: max(one.numbers[name] for one in found) for name in found[0].numbers}
    return Bandwidths(largest, found[-1].disturbed), doubts


def _apart(runs: Sequence[Bandwidths]) -> dict[str, float]:
    """Return by which fraction the two largest values of a number differ, for numbers that do not agree."""
    if len(runs) < 2:
        return {}
    pairs = {name: sorted(run.numbers[name] for run in runs)[-2:] for name in runs[0].numbers}
    return {name: 1 - low / high for name, (low, high) in pairs.items() if high - low > _AGREEMENT * high}


# How much faster than memory a level has to be to be believed.
_SHOWS = 1.2
# After so many seconds no further run is begun that might agree with an earlier one.
_LIMIT_S, _QUICK_LIMIT_S = 120.0, 60.0
# Bytes per cycle that loads of single values can reach: two of 4 bytes.
_SCALAR = 8


@dataclass(frozen=True)
class Detected:
    """The content of a machine's file, from what was reported and measured."""

    document: Mapping[str, Any]
    cpu: ReportedCpu
    rates: Bandwidths
    # What is missing or looks wrong, in words.
    remarks: tuple[str, ...]

    def table(self) -> Table:
        """Return the measured bandwidths of each level."""
        ways = [(way, cores) for cores in ("one core", "all cores") for way in ("load", "load+store")]
        columns = [
            text("level"), number("size_bytes", "size", unit="KiB", factor=1 / 1024), fixed("shared_by", unit="cores"),
            *(number(f"{way} ({cores})", f"{cores}: {way}", unit="GB/s", factor=1e-9) for way, cores in ways),
        ]  # fmt: skip
        sizes = {f"L{one.level}": (one.size_bytes, one.shared_by) for one in self.cpu.caches}
        return Table("Bandwidths", columns, [
            (level, *sizes.get(level, (None, None)), *(self.rates.rate(level, *how) for how in ways))
            for level in (*sizes, "memory")
        ])  # fmt: skip


def cpu_device(spec: str = "") -> Device:
    """Return the OpenCL device that is this CPU."""
    from perflex.devices.listing import find_device, list_devices

    advice = "install the CPU runtime with pip install 'perflex[cpu]', or PoCL, and see 'perflex devices'"
    if spec:
        device = find_device(spec)
        if device.kind != "cpu" or device.is_simulator:
            msg = f"{device} is no CPU that could be measured; {advice}"
            raise DeviceError(msg, device=device)
        return device
    usable = [info for info in list_devices() if info.measurable]
    # The embedded runtime comes first, as it does where a device is chosen by default.
    cpus = sorted((info for info in usable if info.device.kind == "cpu"), key=lambda info: not info.embedded)
    if not cpus:
        found = ", ".join(str(info.device) for info in usable) or "none"
        msg = f"no OpenCL device is a CPU (usable devices: {found}); {advice}"
        raise DeviceError(msg)
    return cpus[0].device


def detect_machine(
    device: TimedDevice,
    cpu: ReportedCpu | None = None,
    *,
    overlap: str | None = None,
    quick: bool = False,
    progress: Progress | None = None,
) -> Detected:
    """Detect the machine: what the operating system reports, and what kernels measure on one core and on all.

    It measures until two runs agree within 10 % in each number, five times at most, and begins none after two minutes
    (one if quick). It takes the largest value of each. Where they do not agree, or others disturbed what was measured,
    a remark says so, and the file's sources do.
    """
    cpu = reported_cpu() if cpu is None else cpu
    rates, doubts = repeated_rates(
        lambda: measure_rates(cpu.caches, cpu.cores, device, quick=quick, progress=progress),
        limit_s=_QUICK_LIMIT_S if quick else _LIMIT_S,
    )
    units = getattr(device, "compute_units", cpu.cores)
    few = [f"the device has {units} of the CPU's {cpu.cores} cores"] if units < cpu.cores else []
    doubtful = "; ".join([*doubts, *few])
    note = f"DOUBTFUL: {doubtful}" if doubtful else f"two runs agree within {100 * _AGREEMENT:.0f} %"
    today = datetime.now(UTC).date().isoformat()
    document = machine_document(cpu, rates, f"{device}, {today}; {note}", today, overlap)
    missing = [f"not reported: {what}" for what in cpu.missing]
    doubts = [f"{doubt}: bandwidths may be too low; run the command again on an idle machine" for doubt in doubts]
    doubts += [f"{what}: rates of all cores are too low; run it where all processors may be used" for what in few]
    return Detected(document, cpu, rates, (*missing, *doubts, *_doubts(cpu, rates)))


def _doubts(cpu: ReportedCpu, rates: Bandwidths) -> list[str]:
    remarks = []
    per_cycle = 1 / rates.times("L1").load
    if per_cycle < _SCALAR:
        remarks.append(
            f"L1: {per_cycle:.1f} B/cycle are loaded: this OpenCL runtime makes no "
            "vectors of work-items, so bandwidths of caches are those of its instructions; name another with --device"
        )
    last = cpu.caches[-1]
    name = f"L{last.level}"
    if _SHOWS * rates.times(name).load > rates.times("memory").load:
        remarks.append(
            f"{name}: a working set that fits into its {last.size_bytes / 2**20:g} MiB is loaded no faster than from "
            "memory; a virtual machine may report a cache that it shares; set size_bytes to its own part"
        )
    return remarks
