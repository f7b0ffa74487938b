"""Volumes at the L2 cache: the footprint of a wave, and what earlier work-groups have left of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from perflex.features.gpu.boxes import Atoms

if TYPE_CHECKING:
    from perflex.features.gpu.footprints import Toucher
    from perflex.features.gpu.geometry import Wave
    from perflex.features.gpu.wave_sampling import Waves


@dataclass(frozen=True)
class WaveVolumes:
    """Bytes of a wave, by array; of several waves their means.

    Attributes
    ----------
    load, store
        What the wave loads and stores.
    overlap
        What of the loads the sets adjacent in x, y and z touch, each without what those before it touch.
    sets
        All bytes of the sets adjacent in x, y and z, loads and stores counted by themselves.
    shares
        Part of all waves that have a set adjacent in x, y and z; the means of overlaps and sets are of those alone.
    """

    load: dict[str, float]
    store: dict[str, float]
    overlap: dict[str, tuple[float, float, float]]
    sets: tuple[float, float, float]
    shares: tuple[float, float, float] = (1.0, 1.0, 1.0)


def wave_volumes(toucher: Toucher, wave: Wave, granule: int) -> WaveVolumes:
    """Return the footprint of a wave and its overlaps with the sets before it (Section 4.4.2)."""
    load: dict[str, float] = {}
    overlap: dict[str, tuple[float, float, float]] = {}
    sets = [0.0, 0.0, 0.0]
    for key in toucher.keys("load"):
        unions = [
            [product for box in boxes for product in toucher.products(box, "load").get(key, [])]
            for boxes in (wave.now, *wave.before)
        ]
        if not any(unions):
            continue
        atoms = Atoms(unions)
        mine = atoms.masks[0]
        load[key[0]] = load.get(key[0], 0) + atoms.size(mine) * granule
        found = []
        for number, mask in enumerate(atoms.masks[1:]):
            sets[number] += atoms.size(mask) * granule
            found.append(atoms.size(mine & mask) * granule)
            # What one set still holds is no longer looked for in the next.
            mine = mine & ~mask
        before = overlap.get(key[0], (0.0, 0.0, 0.0))
        overlap[key[0]] = (before[0] + found[0], before[1] + found[1], before[2] + found[2])
    # Stores take room in L2 that reuse has to survive; the overlap itself is of loads alone.
    for number, boxes in enumerate(wave.before):
        sets[number] += sum(toucher.bytes_of(boxes, ["store"]).values())
    store: dict[str, float] = {**toucher.bytes_of(wave.now, ["store"])}
    return WaveVolumes(load, store, overlap, (sets[0], sets[1], sets[2]))


def mean_volumes(toucher: Toucher, waves: Waves, granule: int) -> WaveVolumes:
    """Return the means over some waves by their weights."""
    if len(waves.members) == 1:
        # A single wave's overlaps need no mean over those that have any.
        return replace(wave_volumes(toucher, waves.members[0][0], granule), shares=waves.shares)
    load: dict[str, float] = {}
    store: dict[str, float] = {}
    overlap: dict[str, tuple[float, float, float]] = {}
    sets = np.zeros(3)
    total = sum(weight for _, weight in waves.members)
    # Of those that have a set before them: where none has, the sums below are zero as well.
    with_set = total * np.where(np.asarray(waves.shares) > 0, waves.shares, 1.0)
    for wave, weight in waves.members:
        found = wave_volumes(toucher, wave, granule)
        for into, part in ((load, found.load), (store, found.store)):
            for name, size in part.items():
                into[name] = into.get(name, 0.0) + weight / total * size
        for name, sizes in found.overlap.items():
            x, y, z = np.asarray(overlap.get(name, (0.0, 0.0, 0.0))) + weight / with_set * sizes
            overlap[name] = (float(x), float(y), float(z))
        sets += weight / with_set * found.sets
    return WaveVolumes(load, store, overlap, (float(sets[0]), float(sets[1]), float(sets[2])), waves.shares)
