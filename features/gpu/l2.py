"""Volumes at the L2 cache: the footprint of a wave, and what earlier work-groups have left of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.features.gpu.boxes import Atoms

if TYPE_CHECKING:
    from perflex.features.gpu.footprints import Toucher
    from perflex.features.gpu.geometry import Wave


@dataclass(frozen=True)
class WaveVolumes:
    """Bytes of a wave, by array.

    Attributes
    ----------
    load, store
        What the wave loads and stores.
    overlap
        What of the loads the sets adjacent in x, y and z touch, each without what those before it touch.
    sets
        All bytes of the sets adjacent in x, y and z, loads and stores counted by themselves.
    """

    load: dict[str, int]
    store: dict[str, int]
    overlap: dict[str, tuple[int, int, int]]
    sets: tuple[int, int, int]


def wave_volumes(toucher: Toucher, wave: Wave, granule: int) -> WaveVolumes:
    """Return the footprint of a wave and its overlaps with the sets before it (Section 4.4.2)."""
    load: dict[str, int] = {}
    overlap: dict[str, tuple[int, int, int]] = {}
    sets = [0, 0, 0]
    for key in toucher.keys("load"):
        unions = [toucher.products(box, "load").get(key, []) if box else [] for box in (wave.now, *wave.before)]
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
        before = overlap.get(key[0], (0, 0, 0))
        overlap[key[0]] = (before[0] + found[0], before[1] + found[1], before[2] + found[2])
    # Stores take room in L2 that reuse has to survive; the overlap itself is of loads alone.
    for number, box in enumerate(wave.before):
        sets[number] += sum(toucher.bytes_of([box], ["store"]).values()) if box else 0
    store = toucher.bytes_of([wave.now], ["store"])
    return WaveVolumes(load, store, overlap, (sets[0], sets[1], sets[2]))
