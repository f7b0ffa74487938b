"""Cache volumes and cycles of any kernel from its Scop (ECM), and what they make doubtful of a prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from perflex.errors import FeatureError, MachineError, UnsupportedKernelError
from perflex.features.cpu.cache_traffic import CONVENTIONS, Crossing, GroupPlan, Rules, plan, views_of, working
from perflex.features.cpu.ecm_result import MEMORY, Condition, EcmEstimate, LevelTraffic, find_conflicts
from perflex.features.cpu.nests import Nests
from perflex.features.cpu.read_nests import read_nests
from perflex.features.cpu.reuse import Place, Reuse
from perflex.features.cpu.reuse_windows import outermost
from perflex.features.cpu.stream_groups import blocked_nests, folded_nests
from perflex.features.cpu.traced import NestValues, Traced, inequality, larger, plain, select
from perflex.features.from_loopy.extract import extract_scop
from perflex.features.scop.scop import Scop
from perflex.machines.files import load_machine
from perflex.machines.machine import CacheLevel, Machine


def estimate_ecm(
    kernel: Any,
    sizes: Mapping[str, Any],
    machine: Machine | str | Path,
    *,
    cores: int = 1,
    blocks: Mapping[str, Any] | None = None,
    fold: Mapping[str, int] | None = None,
    lanes: int | None = None,
    convention: str = "dealt",
) -> EcmEstimate:
    """Estimate what a kernel moves between the levels of a CPU's memory hierarchy.

    Parameters
    ----------
    kernel
        Loopy kernel, measurement kernel, or Scop.
    sizes
        Value of each size; or integer arrays of one shape, for as many estimates.
    machine
        The machine, its name, or its file.
    cores
        Working cores. The kernel is dealt to them in contiguous parts: work-groups, axis 0 fastest; where it is loops
        alone, blocks or iterations of its outermost loop.
    blocks
        Block size of loops, by name, or arrays likewise: sequential loops become loops over blocks outside of all
        others and loops inside a block; ``lid0``, ``lid1`` stand for the work-group's own extents.
    fold
        Elements along outer loops that the data layout puts side by side, by name of the loop (vector folding).
    lanes
        Work-items along axis 0 that go through inner loops in lock step; by default, as many elements as the
        machine's vector registers hold, 1 where that is not known.
    convention
        ``"dealt"``: a core's data are what its part touches, data that every core needs whole; a shared cache holds the
        union of what its cores touch, which go on at the same pace.
        The others are those of published tables, where each core has the whole problem and a part of the caches it
        shares. ``"reference"``: else as on one core. ``"paper"``: conditions with ``<``, each core's part of the data
        must fit, victim caches without write-allocate, and with twice the volume where the data fit in them.

    Returns
    -------
    EcmEstimate
        Bytes and cycles per iteration and per run of the kernel, of all cores together.

    Raises
    ------
    MachineError, FileFormatError
        There is no such machine, its file is wrong, or it has no cache levels, or fewer cores.
    FeatureError
        There is no such convention; cores, lanes or a block size are none.
    MissingSizeError
        A size has no value.
    UnsupportedKernelError
        The kernel cannot be described or accesses no memory, or a loop cannot be blocked or folded.

    Notes
    -----
    Caches replace what was used least recently, in each set by itself where the machine's file has the number of ways
    and no hash chooses the set (`CacheLevel.sets`): lines of a reuse that crowd into few sets are lost although the
    cache is large enough for all. All arrays are taken to begin with the same set, and addresses as those that caches
    see, which for second levels holds with large pages. Layer conditions are those of a fully associative cache.

    Of loops whose range depends on others (triangles, tiles that stop at the array's end), volumes are means over some
    iterations of those, conditions those of the largest range. Work-items that a guard leaves out count as if they
    touched data, and so do iterations that a guard or step with ``%`` leaves out.

    What is not regular is followed approximately, and `EcmEstimate.approximated` says so: ``//`` and ``%`` of what is
    no single loop move evenly; of a loop in two subscripts, the one with larger steps counts that no inner loop covers;
    of an access defined by cases, the one that most loops move. An access that may be any element hits with the part of
    the array's lines that the cache holds, if accesses are independent and equally likely (characteristic time of Che,
    Tung and Wang, Hierarchical Web caching systems, 2002).

    To leading order: halos at the ends of whole loops are left out (those of blocks are not), which a radius that is no
    small part of a row makes too little; what nests that share no loop leave in the cache for each other counts only
    where all data fit, and lines that several accesses of one array share in an update in place count once for each.

    Source: Alappat et al., YaskSite, Section V; conditions as in Hammer et al., Kerncraft: from reuse distances of
    accesses sorted by time.
    """
    scop, where = extract_scop(kernel, sizes), load_machine(machine)
    levels = where.need_levels()
    rules = _rules(convention, cores, where)
    if lanes is not None and lanes < 1:
        msg = f"{lanes} lanes are not possible; give one or more"
        raise FeatureError(msg, variant=str(lanes))
    given, chosen, shape = spread_sizes(scop, sizes, blocks or {})
    lanes = _lanes(scop, where) if lanes is None else lanes
    nests = nests_of_kernel(scop, (lanes, lanes), tuple(chosen), dict(fold or {}))
    views = views_of(nests, given, chosen, levels, rules)
    iterations = _iterations(views[0].plans)
    # Misses of a level are the traffic of the next one, those of the registers that of the first cache.
    found = [_registers(views[0].plans)]
    for view, level, after in zip(views, levels, [*levels[1:], None], strict=True):
        # Whether a store fetches its line is decided at the first level; beyond it, only lines move.
        allocate = levels[0].write_allocate
        beyond = [part.beyond(level, rules, write_allocate=allocate) for part in view.parts]
        fits_next = (view.everything < rules.capacity(after)) if after is not None else False
        found.append(rules.crossing(reduce(add, beyond), after, fits=fits_next))
    caches = [
        _level(level.name, crossed, _cache_cycles(level, crossed.loads, crossed.evicts), iterations)
        for level, crossed in zip(levels, found[:-1], strict=True)
    ]
    last = found[-1]
    cycles, stream = _memory_cycles(where, last.loads, last.evicts)
    return EcmEstimate(
        kernel=scop.name,
        machine=where.name,
        levels=(*caches, _level(MEMORY, last, cycles, iterations)),
        iterations=iterations,
        memory_stream=stream,
        memory_penalty=_memory_penalty(where, last.loads, last.evicts, levels[-1].line_bytes) / iterations,
        cores=cores,
        varying=tuple(dict.fromkeys(name for nest in nests.nests for name in nest.varying)),
        approximated=tuple(dict.fromkeys(note for nest in nests.nests for note in nest.notes)),
        # Traced polynomials cost far more than numbers, so conditions wait until they are read.
        find_conditions=lambda: () if shape else conditions_of(nests, given, chosen, levels, rules),
        find_conflicts=lambda: () if shape else find_conflicts(views, levels, rules),
    )


def _rules(convention: str, cores: int, machine: Machine) -> Rules:
    if convention not in CONVENTIONS:
        msg = f"there is no convention {convention!r} of cache volumes; choose {' or '.join(CONVENTIONS)}"
        raise FeatureError(msg, variant=convention)
    if cores < 1:
        msg = f"{cores} working cores are not possible; give one or more"
        raise FeatureError(msg, variant=str(cores))
    if machine.cores is not None and cores > machine.cores:
        msg = f"machine {machine.name} has {machine.cores} cores, not {cores}; give fewer working cores"
        raise MachineError(msg, machine=machine.name)
    return Rules(convention, cores)


def spread_sizes(
    scop: Scop, sizes: Mapping[str, Any], blocks: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]:
    """Return sizes and block sizes as whole numbers, or all as arrays of one shape, and that shape."""
    # Layer conditions compare distances between accesses, however large the arrays.
    scop.check_sizes(sizes, addresses=False)
    scop.require_extents(sizes, "traffic of caches")
    both = [{name: sizes[name] for name in (*scop.parameters, *scop.unknown_extents)}, dict(blocks)]
    for name, value in both[1].items():
        if np.any(np.asarray(value) < 1):
            msg = f"a block of loop {name!r} must have one iteration or more"
            raise FeatureError(msg, variant=name)
        if np.any(np.asarray(value) % 1):
            msg = f"a block of loop {name!r} must have a whole number of iterations"
            raise FeatureError(msg, variant=name)
    shape = np.broadcast_shapes(*(np.shape(value) for part in both for value in part.values()))

    def spread(value: Any) -> Any:
        return np.broadcast_to(np.asarray(value), shape) if shape else int(value)

    given, chosen = ({name: spread(value) for name, value in part.items()} for part in both)
    return given, chosen, shape


def _lanes(scop: Scop, machine: Machine) -> int:
    # All accesses of a nest go in lock step, so the widest elements decide how many fit a register.
    itemsizes = [array.itemsize for array in scop.arrays if array.space != "private"]
    return max(1, (machine.simd_bytes or 0) // max(itemsizes, default=1))


def nests_of_kernel(scop: Scop, lanes: tuple[int, int], blocked: tuple[str, ...], fold: dict[str, int]) -> Nests:
    """Return the nests of a kernel, as `read_nests`, with blocked and folded loops; cached on the Scop."""
    loops = tuple(sorted(blocked))

    def compute() -> Nests:
        # Reading nests takes isl's time, blocking and folding them does not.
        unchanged = scop.derived("nests", lanes, lambda: read_nests(scop, lanes))
        return blocked_nests(folded_nests(unchanged, fold), loops)

    return scop.derived("blocked nests", (lanes, loops, tuple(sorted(fold.items()))), compute)


def _iterations(plans: Sequence[GroupPlan]) -> Any:
    # Never 0: what follows is divided by it.
    most: Any = 1.0
    for entry in plans:
        most = larger(entry.executions * entry.group.fold, most)
    return most


def _registers(plans: Sequence[GroupPlan]) -> Crossing:
    loads: Any = 0.0
    stores: Any = 0.0
    for entry in plans:
        size = entry.executions * entry.group.itemsize
        loads = loads + size * sum(stream.loads for stream in entry.group.streams)
        stores = stores + size * sum(stream.stores for stream in entry.group.streams)
    # No write-allocate into registers: zeros, in the shape of the loads.
    return Crossing(loads, stores, loads * 0.0)


def _level(name: str, crossed: Crossing, cycles: Any, iterations: Any) -> LevelTraffic:
    return LevelTraffic(
        name,
        crossed.loads / iterations,
        crossed.evicts / iterations,
        crossed.allocates / iterations,
        None if cycles is None else cycles / iterations,
        crossed.loads,
        crossed.evicts,
        cycles,
    )


def _cache_cycles(level: CacheLevel, loads: Any, stores: Any) -> Any:
    """Return the cycles of bytes between a cache and the level before it (YaskSite, Eq. 9), None without bandwidths."""
    if level.load_bytes_per_cycle is None or level.store_bytes_per_cycle is None:
        return None
    # A duplex link moves both ways at once, so the slower way decides.
    down, up = loads / level.load_bytes_per_cycle, stores / level.store_bytes_per_cycle
    return larger(down, up) if level.duplex else down + up


def _memory_cycles(machine: Machine, loads: Any, stores: Any) -> tuple[Any, Any]:
    """Return the cycles of bytes from the memory and to it, and the name of the bandwidth they come from.

    That is the stream whose part of stored bytes is next to the traffic's; without streams, a domain's part of the
    machine's DRAM bandwidth. None and an empty name where neither bandwidth or no clock is known.
    """
    streams = machine.memory_streams
    if machine.clock_hz is None or not (streams or machine.dram_bandwidth):
        return None, ""
    total = loads + stores
    if not streams:
        reached = (machine.domains or 1) * (machine.domain_efficiency or 1.0)
        return total * reached * machine.clock_hz / machine.need("dram_bandwidth"), "dram_bandwidth"
    # Where nothing moves, any divisor gives no part.
    part = stores / select(total > 0, total, 1.0)
    nearest = np.argmin([abs(part - stream.stored_part) for stream in streams], axis=0)
    bandwidth = np.array([stream.bandwidth for stream in streams])[nearest]
    names = np.where(total > 0, np.array([stream.name for stream in streams])[nearest], "")
    return plain(total * machine.clock_hz / bandwidth), names if np.ndim(total) else str(names)


def _memory_penalty(machine: Machine, loads: Any, stores: Any, line: int) -> Any:
    """Return the cycles that lines (of so many bytes) from and to the memory take beyond what the bandwidth says."""
    return (loads * (machine.memory_load_penalty or 0.0) + stores * (machine.memory_store_penalty or 0.0)) / line


# As far as other models of time go wrong by themselves, fewer bytes more are no reason for doubt.
_DOUBTFUL = 1.3
_MOST_CACHED = 256
# L1 of 64 sets, L2 of 1024: so it is on Intel's cores from Haswell to Ice Lake (8 or 12, 4 to 20 ways) and AMD's from
# Zen to Zen 3 (8 ways each). Sizes and lines of the smallest of them that work-groups meet on servers.
_ASSUMED = Machine(
    name="assumed",
    kind="cpu",
    levels=tuple(
        CacheLevel(name, 64 * sets * 8, 1, 64, 8, True, False, None, None, True, "sum", hashed=False)
        for name, sets in (("L1", 64), ("L2", 1024))
    ),
)


def conflict_doubts(scop: Scop, sizes: Mapping[str, Any], machine: Machine | None = None) -> tuple[str, ...]:
    """Return what conflict misses a kernel has (at sizes that are numbers) that models without cache sets do not see.

    That is one sentence for each cache beyond which 1.3 times the bytes cross, or more, that would cross without
    conflicts: the array and, where its own rows meet in few sets, their distance and by how much to pad their pitch.
    Without a CPU, or with one whose file has no cache levels, L1 of 32 KiB and L2 of 512 KiB with 8 ways are assumed,
    and said to be. GPUs and kernels with irregular accesses have no such doubts: nothing is known of their sets.
    """
    note = "" if machine is not None and machine.levels else " (no machine file: its size and ways are assumed)"

    def texts(estimate: EcmEstimate) -> tuple[str, ...]:
        ordered = sorted(estimate.conflicts, key=lambda one: one.lost)
        worst = {one.level: one for one in ordered if one.more >= _DOUBTFUL}
        return tuple(f"conflict misses in {one}{note}" for one in worst.values())

    return _doubts(scop, sizes, machine, "conflicts", texts)


def volume_doubts(scop: Scop, sizes: Mapping[str, Any], machine: Machine | None = None) -> tuple[str, ...]:
    """Return what of a kernel its cache volumes follow only approximately; arguments as `conflict_doubts`."""

    def texts(estimate: EcmEstimate) -> tuple[str, ...]:
        return tuple(f"cache volumes are approximate: {note}" for note in estimate.approximated)

    return _doubts(scop, sizes, machine, "volumes", texts)


def _doubts(
    scop: Scop,
    sizes: Mapping[str, Any],
    machine: Machine | None,
    what: str,
    texts: Callable[[EcmEstimate], tuple[str, ...]],
) -> tuple[str, ...]:
    scop.check_sizes(sizes)
    if machine is not None and machine.kind != "cpu":
        return ()
    where = machine if machine is not None and machine.levels else _ASSUMED
    used = {name: int(sizes[name]) for name in scop.parameters}

    def compute() -> tuple[str, ...]:
        try:
            return texts(estimate_ecm(scop, used, where))
        except UnsupportedKernelError:
            return ()

    return scop.derived("cache doubts", (what, tuple(used.items()), where), compute, most=_MOST_CACHED)


# Crossing this no size is meant: the condition holds for all.
_LARGEST = 2**62


def conditions_of(
    nests: Nests, sizes: Mapping[str, int], blocks: Mapping[str, int], levels: Sequence[CacheLevel], rules: Rules
) -> tuple[Condition, ...]:
    """Return the conditions of all levels at given sizes; of each level, the longest reuse first.

    Conditions without a size in them, of reuse between neighbours, are left out where they are met.
    """
    symbols = _symbol_values(nests, sizes, blocks)
    cores = working(nests, sizes, blocks, rules)
    found = []
    for level in levels:
        numbers, traced = (
            Reuse(
                nests,
                NestValues(sizes, blocks, traced=polynomials, cores=cores),
                levels[0].line_bytes,
                together=min(cores, rules.users(level)),
            )
            for polynomials in (False, True)
        )
        places = _places(nests, numbers, traced)
        everything = rules.whole(traced.everything())
        available = rules.capacity(level)
        accesses = [_served(nests, place) for place in places]
        total = sum(len(group.streams) for nest in nests.nests for group in nest.groups)
        # Strict in both conventions, as `Traffic.whole_fits` is.
        found.append(_condition("all", everything, True, level.name, available, symbols, (total, 0, 0), "all"))
        for place, counts in zip(places, accesses, strict=True):
            needed = traced.needed(place)
            loop = nests.nests[place[0]].loops[outermost(place[1])].name
            distance = _reuse_distance(traced, place)
            entry = _condition(loop, needed, rules.strict, level.name, available, symbols, counts, distance)
            if entry.symbol or not entry.met:
                found.append(entry)
    return tuple(found)


def _places(nests: Nests, plain: Reuse, traced: Reuse) -> list[Place]:
    """Return the windows that matter: those between accesses, and those in which lines or elements come again."""
    places: set[Place] = set()
    for entry in plan(plain):
        places |= {(entry.nest, window) for window in entry.deciding()}
    ordered = sorted(places, key=lambda place: (place[1], -place[0]), reverse=True)
    seen: dict[tuple[object, ...], Place] = {}
    for place in ordered:
        # Nests that share the loop say the same.
        needed = traced.needed(place)
        formula = str(Traced.of(needed).polynomial)
        seen.setdefault((nests.nests[place[0]].loops[outermost(place[1])].node, formula), place)
    return list(seen.values())


def _symbol_values(nests: Nests, sizes: Mapping[str, int], blocks: Mapping[str, int]) -> dict[str, float]:
    values: dict[str, float] = {name: float(value) for name, value in sizes.items()}
    for nest in nests.nests:
        for loop in nest.loops:
            if loop.part == "inner":
                given = blocks.get(loop.base, loop.block)
                if given is not None:
                    values.setdefault(loop.base, float(given))
    return values


def _served(nests: Nests, place: Place) -> tuple[int, int, int]:
    """Return hits, misses and evicts of a nest where reuse up to a window is held, and none over a longer one."""
    number, window = place
    hits = misses = evicts = 0
    for group in nests.nests[number].groups:
        dirty = 0
        for position, stream in enumerate(group.streams):
            hit = position > 0 and group.gaps[position - 1] <= window
            hits, misses = hits + hit, misses + (not hit)
            if not hit:
                evicts, dirty = evicts + dirty, 0
            dirty = 1 if stream.stores else dirty
        evicts += dirty
    return hits, misses, evicts


def _reuse_distance(traced: Reuse, place: Place) -> str:
    number, window = place
    footprints = traced.footprints[number]
    for position, group in enumerate(footprints.nest.groups):
        if window in group.gaps:
            return str(Traced.of(footprints.touched(position, window)))
    return ""


def _condition(
    loop: str,
    needed: Any,
    strict: bool,
    level: str,
    available: int,
    values: Mapping[str, float],
    counts: tuple[int, int, int],
    reuse_distance: str,
) -> Condition:
    traced = Traced.of(needed)
    met = traced.value < available if strict else traced.value <= available
    symbol = next((name for name in traced.polynomial.symbols if name in values), "")
    largest = _largest(traced, available, symbol, values, strict=strict) if symbol else None
    text = inequality(traced, available, strict=strict)
    return Condition(level, loop, text, symbol, largest, met, traced.value, available, *counts, reuse_distance)


def _largest(needed: Traced, available: int, symbol: str, values: Mapping[str, float], *, strict: bool) -> int | None:
    """Return the largest whole number of a size that meets the condition, all else as given."""
    # Exact, since rounding could move the largest size by one.
    fixed = {name: Fraction(value) for name, value in {**needed.known, **values}.items()}

    def meets(value: int) -> bool:
        found = needed.polynomial.at({**fixed, symbol: Fraction(value)})
        return found < available if strict else found <= available

    # Demand grows with a size, so doubling brackets the largest one and halving finds it.
    if not meets(1):
        return None
    high = 2
    while meets(high):
        high *= 2
        if high > _LARGEST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low
