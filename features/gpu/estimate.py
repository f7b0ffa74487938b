"""Data volumes of any kernel from its Scop."""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from perflex.errors import FeatureError, PerflexWarning
from perflex.features.gpu.geometry import launch_residency
from perflex.features.gpu.launch_footprint import CACHES, beforehand
from perflex.features.gpu.local_memory import local_wavefronts
from perflex.features.gpu.resolved import accessing_launches
from perflex.features.gpu.result import ArrayVolumes, Volumes
from perflex.features.gpu.rules import VARIANTS
from perflex.features.gpu.rules_current import current_layout, current_volumes
from perflex.features.gpu.rules_paper import paper_volumes
from perflex.features.gpu.sampling import launch_instances
from perflex.features.scop.register_reuse import remaining_loads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.gpu.resolved import ResolvedLaunch
    from perflex.features.scop.scop import Scop
    from perflex.machines.machine import Machine


def estimate_volumes(  # noqa: PLR0913 - what an estimate may be told, each by name
    scop: Scop,
    sizes: Mapping[str, int],
    machine: Machine,
    *,
    variant: str = "current",
    granule: int | None = None,
    registers: int | None = None,
    offsets: Mapping[str, int] | None = None,
    caches: str | None = None,
    register_reuse: bool = True,
) -> Volumes:
    """Estimate what a kernel moves between the levels of a GPU's memory hierarchy.

    Parameters
    ----------
    scop
        The kernel.
    sizes
        Value of each size parameter.
    machine
        Facts of the machine.
    variant
        ``"paper2022"`` for the rules of the paper, ``"current"`` for the best ones known here.
    granule
        Bytes that DRAM is accessed in; a sector for ``paper2022``, else two.
    registers
        32-bit registers of a work-item; without, they do not limit the resident work-groups.
    offsets
        Byte address of the first element of arrays, modulo a cache line; 0 where not given.
    caches
        What a run of the kernel finds in the L2 cache. ``"warm"``, the default: what of its own data the same run just
        before has left, as where a kernel is timed again and again; data that fit are then neither loaded from DRAM nor
        written back. ``"cold"``: nothing, as where a profiler empties caches; DRAM loads are then at least the distinct
        bytes that a launch loads, and stores count as written back. ``paper2022`` takes neither: its rules credit the
        first wave with hits, too.
    register_reuse
        Whether loads are those that remain when compilers keep values in registers; else those of the source.

    Returns
    -------
    Volumes
        Bytes and wavefronts per run of the kernel, over all its launches; zero where it accesses no memory.

    Raises
    ------
    MachineError
        A fact that is needed is not known.
    MissingSizeError
        A size has no value.
    WorkGroupTooLargeError
        A work-group does not fit the machine.
    UnsupportedKernelError
        There is no grid of work-groups, or an access is too irregular.
    FeatureError
        There is no such variant, or it has no such caches.

    Warns
    -----
    PerflexWarning
        The kernel takes as many registers as a work-item can have: values that compilers keep may be spilled.

    Notes
    -----
    Source: Ernst, Holzer, Hager, Knorr, Wellein, Analytical Performance Estimation during Code Generation on Modern
    GPUs, Sections 3 and 4.
    """
    if variant not in VARIANTS:
        msg = f"there is no variant {variant!r} of the data volumes; choose {' or '.join(VARIANTS)}"
        raise FeatureError(msg, variant=variant)
    if caches is not None and (variant == "paper2022" or caches not in CACHES):
        msg = (
            f"variant {variant} of the data volumes has no caches {caches!r}; give {' or '.join(CACHES)} with 'current'"
        )
        raise FeatureError(msg, variant=variant)
    scop.check_sizes(sizes)
    # Where nothing is kept, the registers are not full of what is loaded.
    if register_reuse and registers is not None and remaining_loads(scop):
        _warn_of_spills(scop.name, machine, registers)
    given = dict(offsets or {})
    # Guards may leave nothing of a launch that has accesses.
    launches = [
        (n, launch)
        for n, launch in accessing_launches(scop, sizes, register_reuse=register_reuse)
        if launch_instances(launch)
    ]
    resident = [launch_residency(scop, n, sizes, machine, registers).groups_per_unit for n, _ in launches]
    if variant == "paper2022":
        found = [
            paper_volumes(one, machine, held, granule, given) for (_, one), held in zip(launches, resident, strict=True)
        ]
    else:
        layout = current_layout(machine, granule, given)
        before = beforehand(scop, sizes, [one for _, one in launches], layout, warm=caches != "cold")
        found = [
            current_volumes(launch, machine, held, granule, given, left)
            for (_, launch), held, left in zip(launches, resident, before, strict=True)
        ]
    results = [
        (launch.repeats, _with_local(one, launch, machine)) for (_, launch), one in zip(launches, found, strict=True)
    ]
    total = _summed(results) if results else _nothing(scop, sizes, machine, registers)
    named = "" if variant == "paper2022" else caches or CACHES[0]
    return replace(total, machine=machine.name, variant=variant, caches=named)


def _nothing(scop: Scop, sizes: Mapping[str, int], machine: Machine, registers: int | None) -> Volumes:
    """Return the volumes of a kernel that accesses no memory."""
    number = len(scop.launches) - 1
    held = launch_residency(scop, number, sizes, machine, registers)
    groups = prod(int(extent.evaluate(sizes)) for extent in scop.launches[number].groups)
    return Volumes(
        kernel=scop.name,
        machine="",
        variant="",
        arrays={},
        total=ArrayVolumes(),
        resident_groups=held.groups_per_unit,
        waves=groups / held.wave_groups,
        wave_items=0,
        l1_alloc=0.0,
        oversub_l1=0.0,
        oversub_l2_y=0.0,
        oversub_l2_z=0.0,
        oversub_l2=0.0,
    )


def _warn_of_spills(kernel: str, machine: Machine, registers: int) -> None:
    # More than all are refused where resident work-groups are counted.
    if registers == machine.need("registers_per_item_max"):
        msg = (
            f"kernel {kernel!r} takes all {registers} registers of a work-item on {machine.name}: compilers spill "
            "values that do not fit, whose loads and stores are not counted; fewer outputs per work-item avoid it"
        )
        warnings.warn(msg, PerflexWarning, stacklevel=3)


def _with_local(result: Volumes, launch: ResolvedLaunch, machine: Machine) -> Volumes:
    # Local memory is served within the compute unit: it has wavefronts, but no volume below.
    found = local_wavefronts(launch, machine)
    arrays = dict(result.arrays)
    for name in dict.fromkeys(name for name, _ in found):
        arrays[name] = ArrayVolumes(
            local_wavefronts_load=found.get((name, "load"), 0.0), local_wavefronts_store=found.get((name, "store"), 0.0)
        )
    return replace(result, arrays=arrays, total=ArrayVolumes.total(arrays.values()))


def _summed(results: Sequence[tuple[int, Volumes]]) -> Volumes:
    """Return the volumes of all launches; what is no volume is the last one's."""
    last = results[-1][1]
    names = dict.fromkeys(name for _, result in results for name in result.arrays)
    arrays = {
        name: ArrayVolumes.total(
            result.arrays[name].times(repeats) for repeats, result in results if name in result.arrays
        )
        for name in names
    }
    return replace(last, arrays=arrays, total=ArrayVolumes.total(arrays.values()))
