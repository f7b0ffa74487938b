"""Volumes of every work-group and every wave of a launch, by enumerating all work-items.

Rules are perflex's: work-groups start by their numbers, x first; those in which nothing runs take no room; a wave is
as many running ones as are resident; what lies before a wave in x, y and z is one wave back in a row, else one row,
and one layer. Addresses are listed and sorted, nothing is sampled, and nothing comes from perflex but the names of the
results and the cycles of an instruction.
"""

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from unittest.mock import patch

import numpy as np

from perflex.features.gpu.l1 import GroupVolumes
from perflex.features.gpu.launch_footprints import Beforehand
from perflex.features.gpu.memory_instructions import IDLE
from perflex.features.gpu.volume_rules import Parts, WaveVolumes
from support.uneven_kernels import UnevenKernel


@dataclass
class Enumerated:
    """What a launch does: statement instances of each work-group, and volumes summed over them.

    Touched are, for each direction and array, sorted distinct (work-group, granule): the rows of two arrays.
    """

    kernel: UnevenKernel
    granule: int
    instances: np.ndarray
    volumes: GroupVolumes = field(default_factory=GroupVolumes)
    touched: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def run_bytes(self):
        """Return the distinct bytes that the launch touches."""
        arrays = {array for _, array in self.touched}
        return float(sum(self.granule * max(len(_sorted(granule)) for (_, name), (_, granule) in self.touched.items()
                                            if name == array) for array in arrays))  # fmt: skip


def enumerated(kernel, cycles, *, lanes, sector, line, granule):
    """Return what each work-group of a launch does; `cycles` counts those of instructions in L1."""
    groups = prod(kernel.groups)
    found = Enumerated(kernel, granule, np.zeros(groups, dtype=np.int64))
    pairs = defaultdict(list)
    for part in kernel.parts:
        values, runs = kernel.points(part)
        found.instances += runs.sum(axis=(1, 2))
        for array, direction, index in part.accesses:
            where = np.broadcast_to(kernel.addresses(array, index, values), runs.shape)
            _instructions(found, array, direction, np.where(runs, where, IDLE), cycles, lanes, sector)
            group, _, _ = np.nonzero(runs)
            # Elements lie at multiples of their size, so that none straddles granules.
            pairs[direction, array].append((group, where[runs]))
    running = found.instances > 0
    found.volumes.groups, found.volumes.instances = int(running.sum()), int(found.instances.sum())
    for (direction, array), lists in pairs.items():
        group, bytes_ = (np.concatenate(side) for side in zip(*lists, strict=True))
        if direction == "load":
            found.volumes.compulsory[array] = len(_distinct(group, bytes_ // sector)[0]) * sector
            found.volumes.allocated[array] = len(_distinct(group, bytes_ // line)[0]) * line
        found.touched[direction, array] = _distinct(group, bytes_ // granule)
    return found


def _instructions(found, array, direction, addresses, cycles, lanes, sector):
    groups, steps, items = addresses.shape
    padded = np.full((groups, steps, -(-items // lanes) * lanes), IDLE, dtype=np.int64)
    padded[..., :items] = addresses
    split = padded.reshape(groups * steps, -1, lanes)
    sectors = np.sort(np.where(split == IDLE, -1, split // sector), axis=-1)
    new = np.diff(sectors, axis=-1, prepend=-1) != 0
    into = found.volumes.loads if direction == "load" else found.volumes.stores
    into[array] += int((new & (sectors >= 0)).sum()) * sector
    # In slices, which bound the memory that counting conflicts takes.
    for start in range(0, len(split), 4096):
        found.volumes.wavefronts[array] += float(cycles(split[start : start + 4096], found.kernel.itemsize).sum())


def _distinct(group, granule):
    low, high = int(granule.min(initial=0)), int(granule.max(initial=0))
    keys = _sorted(group * (high - low + 1) + (granule - low))
    return keys // (high - low + 1), keys % (high - low + 1) + low


def waves(found, resident):
    """Return the means over all waves, and a wave's mean instances."""
    groups = found.kernel.groups
    running = np.flatnonzero(found.instances)
    first = running[::resident]
    last = np.r_[first[1:], len(found.instances)] - 1
    last = np.array([running[(running >= a) & (running <= b)].max() for a, b in zip(first, last, strict=True)])
    row, layer = groups[0], prod(groups[:2])
    load = defaultdict(float)
    store = defaultdict(float)
    overlap = defaultdict(lambda: np.zeros(3))
    sets, having = np.zeros(3), np.zeros(3)
    for number, (start, end) in enumerate(zip(first, last, strict=True)):
        back = [first[max(0, number - 1)] if end - start + 1 < row else start]
        back += [start - row if len(groups) > 1 else start, start - layer if len(groups) > 2 else start]
        before = [(max(0, low), start - 1) for low in back]
        having += [low <= high for low, high in before]
        for direction, array in found.touched:
            mine = _within(found, direction, array, start, end)
            sets += [len(_within(found, direction, array, *span)) for span in before]
            if direction == "store":
                store[array] += len(mine)
                continue
            load[array] += len(mine)
            for axis, span in enumerate(before):
                other = _within(found, direction, array, *span)
                places = np.minimum(np.searchsorted(other, mine), max(len(other) - 1, 0))
                left = mine[other[places] != mine] if len(other) else mine
                overlap[array][axis] += len(mine) - len(left)
                mine = left
    count, unit = len(first), found.granule
    mean = np.where(having > 0, having, 1)
    result = WaveVolumes(
        {name: size * unit / count for name, size in load.items()},
        {name: size * unit / count for name, size in store.items()},
        {name: tuple(sizes * unit / mean) for name, sizes in overlap.items()},
        tuple(sets * unit / mean),
        tuple(having / count),
    )
    return result, found.instances.sum() / count


def _within(found, direction, array, first, last):
    """Return the sorted distinct granules that work-groups with numbers from first to last touch."""
    group, granule = found.touched[direction, array]
    low, high = np.searchsorted(group, (first, last + 1))
    return _sorted(granule[low:high]) if low < high else np.zeros(0, dtype=np.int64)


def _sorted(values):
    """Return the distinct values in order: as `numpy.unique`, whose hash tables are much slower than sorting."""
    values = np.sort(values)
    return values[np.diff(values, prepend=values[:1] - 1) != 0]


@contextmanager
def true_parts(found, resident):
    """Let estimates by the current rules rest on what was enumerated, for waves of so many work-groups."""
    wave, cells = waves(found, resident)
    parts = Parts(found.volumes, wave, int(found.instances.sum()), cells)
    with (
        patch.object(Parts, "of", lambda *_, **__: parts),
        patch("perflex.features.gpu.volume_estimate.beforehand") as before,
    ):
        load = {
            array: len(_sorted(granule)) * found.granule
            for (direction, array), (_, granule) in found.touched.items()
            if direction == "load"
        }
        before.side_effect = lambda *_, warm: [Beforehand(load, found.run_bytes() if warm else None)]
        yield
