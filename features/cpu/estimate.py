"""Cache volumes and cycles of any kernel from its Scop (ECM)."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import FeatureError, MachineError
from perflex.features.cpu.blocking import blocked_nests
from perflex.features.cpu.conditions import conditions_of
from perflex.features.cpu.conflicts import find_conflicts
from perflex.features.cpu.cycles import cache_cycles, memory_cycles, memory_penalty
from perflex.features.cpu.folding import folded_nests
from perflex.features.cpu.nest_values import NestValues
from perflex.features.cpu.parts import parts_of
from perflex.features.cpu.read_nests import read_nests
from perflex.features.cpu.result import MEMORY, EcmEstimate, LevelTraffic
from perflex.features.cpu.reuse import Reuse
from perflex.features.cpu.rules import CONVENTIONS, Rules
from perflex.features.cpu.traced import larger
from perflex.features.cpu.traffic import Crossing, GroupPlan, plan
from perflex.machines.lookup import load_machine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from perflex.features.cpu.nests import Nests
    from perflex.features.scop.scop import Scop
    from perflex.machines.machine import Machine


def estimate_ecm(
    scop: Scop,
    sizes: Mapping[str, Any],
    machine: Machine | str | Path,
    *,
    cores: int = 1,
    blocks: Mapping[str, Any] | None = None,
    fold: Mapping[str, int] | None = None,
    lanes: int | None = None,
    convention: str = "reference",
) -> EcmEstimate:
    """Estimate what a kernel moves between the levels of a CPU's memory hierarchy.

    Parameters
    ----------
    scop
        The kernel.
    sizes
        Value of each size; or integer arrays of one shape, for as many estimates.
    machine
        The machine, its name, or its file.
    cores
        Working cores. Each has its part of the caches it shares.
    blocks
        Block size of loops, by name, or arrays likewise: sequential loops become loops over blocks outside of all
        others and loops inside a block; ``lid0``, ``lid1`` stand for the work-group's own extents.
    fold
        Elements along outer loops that the data layout puts side by side, by name of the loop (vector folding).
    lanes
        Work-items along axis 0 that go through inner loops in lock step; by default, as many elements as the
        machine's vector registers hold, 1 where that is not known.
    convention
        ``"reference"``: conditions with ``<=``, the data of all cores must fit together, victim caches as others.
        ``"paper"``: conditions with ``<``, each core's part of the data must fit, victim caches without
        write-allocate, and with twice the volume where the data fit in them.

    Returns
    -------
    EcmEstimate
        Bytes and cycles per iteration and per run of the kernel.

    Raises
    ------
    MachineError, FileFormatError
        There is no such machine, its file is wrong, or it has no cache levels, or fewer cores.
    FeatureError
        There is no such convention; cores, lanes or a block size are none.
    MissingSizeError
        A size has no value.
    UnsupportedKernelError
        The kernel accesses no memory, or a loop cannot be blocked or folded.

    Notes
    -----
    Caches replace what was used least recently, in each set by itself where the machine's file has the number of ways
    and no hash chooses the set (`CacheLevel.sets`): lines of a reuse that crowd into few sets are lost although the
    cache is large enough for all. All arrays are taken to begin with the same set, and addresses as those that caches
    see, which for second levels holds with large pages. Layer conditions are those of a fully associative cache.

    Of loops whose range depends on others (triangles), volumes are means over some iterations of those, conditions
    those of the largest range. Work-items that a guard leaves out count as if they touched data, and so do iterations
    that a guard or step with ``%`` leaves out.

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
    where = load_machine(machine)
    levels = where.need_levels()
    rules = _rules(convention, cores, where)
    if lanes is not None and lanes < 1:
        msg = f"{lanes} lanes are not possible; give one or more"
        raise FeatureError(msg, variant=str(lanes))
    given, chosen, shape = spread_sizes(scop, sizes, blocks or {})
    nests = nests_of_kernel(scop, _lanes(scop, where) if lanes is None else lanes, tuple(chosen), dict(fold or {}))
    numbers = NestValues(given, chosen)
    reuse = Reuse(nests, numbers, levels[0].line_bytes)
    plans = plan(reuse)
    iterations = _iterations(plans)
    parts = parts_of(reuse, plans, given, chosen, levels, cores)
    # Misses of a level are the traffic of the next one, those of the registers that of the first cache.
    found = [_registers(plans)]
    everything = rules.whole(reuse.everything())
    for level, after in zip(levels, [*levels[1:], None], strict=True):
        # Whether a store fetches its line is decided at the first level; beyond it, only lines move.
        allocate = levels[0].write_allocate
        beyond = [part.beyond(level, rules, everything, write_allocate=allocate) for part in parts]
        fits_next = (everything < after.bytes_per_core(cores)) if after is not None else False
        found.append(rules.crossing(reduce(add, beyond), after, fits=fits_next))
    caches = [
        _level(level.name, crossed, cache_cycles(level, crossed.loads, crossed.evicts), iterations)
        for level, crossed in zip(levels, found[:-1], strict=True)
    ]
    last = found[-1]
    cycles, stream = memory_cycles(where, last.loads, last.evicts)
    return EcmEstimate(
        kernel=scop.name,
        machine=where.name,
        levels=(*caches, _level(MEMORY, last, cycles, iterations)),
        iterations=iterations,
        memory_stream=stream,
        memory_penalty=memory_penalty(where, last.loads, last.evicts, levels[-1].line_bytes) / iterations,
        cores=cores,
        varying=tuple(dict.fromkeys(name for nest in nests.nests for name in nest.varying)),
        approximated=tuple(dict.fromkeys(note for nest in nests.nests for note in nest.notes)),
        # Traced polynomials cost far more than numbers, so conditions wait until they are read.
        find_conditions=lambda: () if shape else conditions_of(nests, given, chosen, levels, rules),
        find_conflicts=lambda: () if shape else find_conflicts(reuse, plans, levels, rules, parts[0].sets),
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
    both = [{name: sizes[name] for name in scop.parameters}, dict(blocks)]
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


def nests_of_kernel(scop: Scop, lanes: int, blocked: tuple[str, ...], fold: dict[str, int]) -> Nests:
    """Return the nests of a kernel for vectors of so many lanes, with blocked and folded loops; kept on the Scop."""
    loops = tuple(sorted(blocked))

    def compute() -> Nests:
        # Reading nests takes isl's time, blocking and folding them does not.
        plain = scop.derived("nests", lanes, lambda: read_nests(scop, lanes))
        return blocked_nests(folded_nests(plain, fold), loops)

    return scop.derived("blocked nests", (lanes, loops, tuple(sorted(fold.items()))), compute)


def _iterations(plans: list[GroupPlan]) -> Any:
    # Never 0: what follows is divided by it.
    most: Any = 1.0
    for entry in plans:
        most = larger(entry.executions * entry.group.fold, most)
    return most


def _registers(plans: list[GroupPlan]) -> Crossing:
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
