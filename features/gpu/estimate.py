"""Data volumes of any kernel from its Scop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from perflex.errors import FeatureError
from perflex.features.gpu.geometry import launch_residency
from perflex.features.gpu.local_memory import local_wavefronts
from perflex.features.gpu.resolved import accessing_launches
from perflex.features.gpu.result import ArrayVolumes, Volumes
from perflex.features.gpu.rules import VARIANTS
from perflex.features.gpu.rules_current import current_volumes
from perflex.features.gpu.rules_paper import paper_volumes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.gpu.resolved import ResolvedLaunch
    from perflex.features.scop.scop import Scop
    from perflex.machines.machine import Machine


def estimate_volumes(
    scop: Scop,
    sizes: Mapping[str, int],
    machine: Machine,
    *,
    variant: str = "current",
    granule: int | None = None,
    registers: int | None = None,
    offsets: Mapping[str, int] | None = None,
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

    Returns
    -------
    Volumes
        Bytes and wavefronts per run of the kernel, over all its launches.

    Raises
    ------
    MachineError
        A fact that is needed is not known.
    MissingSizeError
        A size has no value.
    WorkGroupTooLargeError
        A work-group does not fit the machine.
    UnsupportedKernelError
        The kernel accesses no memory, or an access is too irregular.

    Notes
    -----
    Source: Ernst, Holzer, Hager, Knorr, Wellein, Analytical Performance Estimation during Code Generation on Modern
    GPUs, Sections 3 and 4.
    """
    if variant not in VARIANTS:
        msg = f"there is no variant {variant!r} of the data volumes; choose {' or '.join(VARIANTS)}"
        raise FeatureError(msg, variant=variant)
    scop.check_sizes(sizes)
    volumes_of = paper_volumes if variant == "paper2022" else current_volumes
    results = []
    for number, launch in accessing_launches(scop, sizes, "data volumes"):
        resident = launch_residency(scop, number, sizes, machine, registers).groups_per_unit
        result = volumes_of(launch, machine, resident, granule, dict(offsets or {}))
        results.append((launch.repeats, _with_local(result, launch, machine)))
    return replace(_summed(results), machine=machine.name, variant=variant)


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
