"""Su's closed forms of the data traffic of 3-D stencils (Su, Cai, Wen and Zhang 2015, Eqs. 3 to 18).

Their "group" of thread blocks is a wave here, and each step has a name of its own, so that the paper's Table 2 can be
read row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2, prod
from typing import TYPE_CHECKING

from perflex.machines.residency import residency

if TYPE_CHECKING:
    from perflex.features.gpu.su_stencil import LoadedArray, SuStencil
    from perflex.machines.machine import Machine
    from perflex.machines.residency import Residency


@dataclass(frozen=True)
class SuConstants:
    """The paper's fitted constants: `delta` (Eq. 8) and `epsilon` (Eq. 15); `eta` (Eq. 17) is given no value there."""

    delta: float = 0.01
    epsilon: float = 0.01
    eta: float = 0.0


@dataclass(frozen=True)
class SuVolumes:
    """Every step of the closed forms; numbers of values are per work-item, work-group or wave, volumes in bytes.

    Attributes
    ----------
    itemsize
        Bytes of a value.
    items_per_group, items, groups
        Rows 6 to 8 of Table 2.
    residency, wave_groups
        Rows 9 to 11; a wave has no more work-groups than there are.
    aligned_loads, misaligned_loads, item_stores
        Per work-item, rows 12, 13 and 15.
    group_loads_net, smx_miss_ratio
        Per work-group, rows 16 and 17.
    waves
        Row 20 (Eq. 10).
    width_y, height_z
        Rows 21 and 22 (Eqs. 13 and 14) of the array with the widest halo.
    wave_loads_net, l2_miss_ratio
        Per wave, rows 23 and 24.
    """

    itemsize: int
    items_per_group: int
    items: int
    groups: int
    residency: Residency
    wave_groups: int
    aligned_loads: int
    misaligned_loads: int
    item_stores: int
    group_loads_net: float
    smx_miss_ratio: float
    waves: int
    width_y: int
    height_z: int
    wave_loads_net: float
    l2_miss_ratio: float

    @property
    def item_loads(self) -> int:
        """Values loaded by a work-item, those beside its column twice: row 14 (Eq. 4)."""
        return self.aligned_loads + 2 * self.misaligned_loads

    @property
    def group_loads(self) -> float:
        """Values loaded by a work-group: row 18 (Eq. 7)."""
        return self.group_loads_net * (1 + self.smx_miss_ratio)

    @property
    def group_stores(self) -> int:
        """Values stored by a work-group: row 19."""
        return self.items_per_group * self.item_stores

    @property
    def wave_loads(self) -> float:
        """Values loaded by a wave: row 25 (Eq. 11)."""
        return self.wave_loads_net * (1 + self.l2_miss_ratio)

    @property
    def wave_stores(self) -> int:
        """Values stored by a wave: row 26."""
        return self.wave_groups * self.group_stores

    @property
    def v_smx(self) -> int:
        """Volume between registers and the first cache, in bytes per launch: row 27 (Eq. 3)."""
        return self.items * (self.item_loads + self.item_stores) * self.itemsize

    @property
    def v_l2(self) -> float:
        """Volume between the first cache and the L2, in bytes per launch: row 28 (Eq. 5)."""
        return self.groups * (self.group_loads + self.group_stores) * self.itemsize

    @property
    def v_gm(self) -> float:
        """Volume between the L2 and DRAM, in bytes per launch: row 29 (Eq. 9)."""
        return self.waves * (self.wave_loads + self.wave_stores) * self.itemsize


def su_volumes(
    stencil: SuStencil, machine: Machine, *, registers: int | None = None, constants: SuConstants | None = None
) -> SuVolumes:
    """Return the data traffic of a stencil, step by step.

    Several arrays add up; an array without halo contributes its own points only. Where Eqs. 13 and 14 exceed the grid
    with its halo, the grid counts, and where a wave could hold more work-groups than there are, those there are.

    Parameters
    ----------
    stencil
        From `recognise_stencil`.
    machine
        Compute units, caches, line and sector size, and residency limits.
    registers
        32-bit registers per work-item; None if they limit nothing.
    constants
        By default the paper's.

    Raises
    ------
    MachineError
        A fact of the machine is not known, or a work-group exceeds its limits.
    """
    constants = constants or SuConstants()
    size, per_group = stencil.itemsize, stencil.items_per_group
    items = prod(stencil.grid) // stencil.chunk
    groups = items // per_group
    held = residency(machine, per_group, 0, registers)
    wave_groups = min(held.wave_groups, groups)
    line = (machine.su_line_bytes or machine.need("line_bytes")) / size
    # Eq. 12 says "L2 cache line", which is 32 bytes in Table 2: a sector.
    sector = machine.need("sector_bytes") / size
    group_net = sum(_group_loads(stencil, array, line) for array in stencil.loads)
    shapes = [_wave_shape(stencil, array, wave_groups) for array in stencil.loads]
    wave_net = sum(
        (stencil.grid[0] + (2 * sector if array.halo[0] else 0)) * width * height
        for array, (width, height) in zip(stencil.loads, shapes, strict=True)
    )  # Eq. 12
    width_y, height_z = max(shapes)
    return SuVolumes(
        itemsize=size,
        items_per_group=per_group,
        items=items,
        groups=groups,
        residency=held,
        wave_groups=wave_groups,
        aligned_loads=sum(array.aligned for array in stencil.loads),
        misaligned_loads=sum(array.misaligned for array in stencil.loads),
        item_stores=stencil.stores,
        group_loads_net=group_net,
        smx_miss_ratio=_smx_miss_ratio(stencil, machine, held, group_net, constants),
        waves=ceil(groups / wave_groups),  # Eq. 10
        width_y=width_y,
        height_z=height_z,
        wave_loads_net=wave_net,
        l2_miss_ratio=wave_net * size / machine.need("l2_bytes") * constants.epsilon,  # Eq. 15
    )


def _group_loads(stencil: SuStencil, array: LoadedArray, line: float) -> float:
    """Return the values a work-group needs of an array: Eq. 16, which is Eq. 6 for chunk 1."""
    (x, y, z), (halo_x, halo_y, halo_z) = stencil.group, array.halo
    planes = z * stencil.chunk
    sides = 2 * ceil(halo_x / 2 / line)  # a whole line for each row and side
    return x * y * planes + x * planes * halo_y + x * y * halo_z + line * y * planes * sides


def _smx_miss_ratio(stencil: SuStencil, machine: Machine, held: Residency, net: float, constants: SuConstants) -> float:
    """Return Eq. 8, or Eq. 17 for chunks whose values exceed the storage."""
    resident = held.groups_per_unit * net * stencil.itemsize
    capacity = machine.need("l1_bytes")
    ratio = resident / capacity * constants.delta
    # Section 3.5 adjusts Eq. 8 only for chunks whose resident values exceed the storage.
    if stencil.chunk == 1 or resident <= capacity:
        return ratio
    halo = max(array.halo[2] for array in stencil.loads)
    ratio *= (1 + halo) / (stencil.chunk + halo)
    if not constants.eta:
        return ratio
    warps = ceil(stencil.items_per_group / machine.need("sub_group_size"))
    # A processor does a multiply-add, two operations, per cycle; Eq. 17 divides by the threads of a warp.
    processors = machine.need("fp32_per_cycle") / 2 / machine.need("sub_group_size")
    # The logarithm is negative where processors outnumber the warps, which takes no misses away.
    return ratio + max(0.0, log2(stencil.chunk * warps / processors)) * constants.eta


def _wave_shape(stencil: SuStencil, array: LoadedArray, wave_groups: int) -> tuple[int, int]:
    """Return the width along y and the height along z of what a wave needs (Eqs. 13 and 14)."""
    (x, y, z), (nx, ny, nz) = stencil.group, stencil.grid
    rows = y * ceil(wave_groups * x / nx)
    planes = z * stencil.chunk * ceil(wave_groups / (nx * ny / (x * y)))
    return min(rows, ny) + array.halo[1], min(planes, nz) + array.halo[2]
