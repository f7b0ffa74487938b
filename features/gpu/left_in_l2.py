"""What earlier work-groups of a launch have left in the L2 cache.

Each wave is compared with sets of work-groups before it: those adjacent in x, y and z (Ernst et al., Section 4.4.2),
and, where data are loaded more often than those explain, wave after wave before it. What a set shares with the wave is
found in the L2 cache as far as what was touched since then fits:

* where a window slides over an array, each wave loads some of it for the first time. The share that hits is a curve
  that the authors of the paper fitted to stencils;
* where a wave loads nothing of an array for the first time, the launch goes through the same data in turn. All of them
  stay while they fit. Beyond the capacity, a line of a cache with random replacement survives the misses of a turn with
  the probability exp(-misses/capacity).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import exp
from typing import TYPE_CHECKING

import numpy as np

from perflex.features.gpu.integer_sets import Atoms
from perflex.features.gpu.launch_footprints import FootprintCounter
from perflex.features.gpu.waves import Boxes, Wave, Waves

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Below such a share of its loads, what a wave loads of an array for the first time is a matter of edges.
_FEW = 0.01
# Of sets that are so many times as large as the cache, hardly anything is left.
_FAR_TOO_LARGE = 2.0


def gompertz(curve: tuple[float, float, float], oversubscription: float) -> float:
    """Return a exp(-b exp(-c O))."""
    a, b, c = curve
    # Curves of hits have a negative c: beyond 700 the inner exponential overflows, and the rate is 0 long before.
    return a * exp(-b * exp(min(-c * oversubscription, 700.0)))


def recurring_hit(oversubscription: float) -> float:
    """Return the share of data that are touched in turn and found again: h = exp(-O (1 - h)), all up to O = 1."""
    if oversubscription <= 1:
        return 1.0
    # By Newton's method from below, which the function, being concave, never overshoots; scipy's Lambert W, which is
    # the same, takes longer to load than a command that only predicts takes for all else.
    share, last = 0.0, -1.0
    while share > last:
        found = exp(-oversubscription * (1 - share))
        share, last = share + (found - share) / (1 - oversubscription * found), share
    return last


@dataclass(frozen=True)
class Kept:
    """How a cache keeps data until they are used again."""

    capacity: float  # bytes
    sliding_miss: tuple[float, float, float]  # curve of misses of windows that slide

    def hit(self, touched: float, *, recurring: bool) -> float:
        """Return the share that is found again after so many bytes were touched."""
        over = touched / self.capacity
        return recurring_hit(over) if recurring else 1 - gompertz(self.sliding_miss, over)


@dataclass(frozen=True)
class WaveVolumes:
    """Bytes of a wave, by array; of several waves their means."""

    load: dict[str, float]
    store: dict[str, float]
    # what of the loads the sets adjacent in x, y and z touch, each without what those before it touch
    overlap: dict[str, tuple[float, float, float]]
    # all bytes of the sets adjacent in x, y and z, loads and stores counted by themselves
    sets: tuple[float, float, float]
    # part of all waves that have a set adjacent in x, y and z; the means of overlaps and sets are of those alone
    shares: tuple[float, float, float] = (1.0, 1.0, 1.0)
    # what of the overlaps is of waves that load nothing of the array for the first time
    recurring: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    # what sets that reach further back have left in the L2 cache
    farther: dict[str, float] = field(default_factory=dict)


def wave_volumes(footprints: FootprintCounter, wave: Wave, kept: Kept | None = None) -> WaveVolumes:
    """Return the footprint of a wave and its overlaps with the sets before it; with a cache, with sets further back."""
    granule = footprints.granule
    earlier = _earlier(footprints, wave, kept) if kept else []
    before = (*wave.before, *(boxes for boxes, _, _ in earlier))
    load: dict[str, float] = defaultdict(float)
    new: dict[str, float] = defaultdict(float)
    overlap: dict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(len(before)))
    sets = np.zeros(len(before))
    for key in footprints.keys("load"):
        unions = [
            [product for box in boxes for product in footprints.products(box, "load").get(key, [])]
            for boxes in (wave.now, *before)
        ]
        if not any(unions):
            continue
        atoms, name = Atoms(unions), key[0]
        mine = atoms.masks[0]
        load[name] += atoms.size(mine) * granule
        for number, mask in enumerate(atoms.masks[1:]):
            sets[number] += atoms.size(mask) * granule
            overlap[name][number] += atoms.size(mine & mask) * granule
            # What one set still holds is no longer looked for in the next.
            mine = mine & ~mask
        new[name] += atoms.size(mine) * granule
    # Stores take room in L2 that reuse has to survive; the overlap itself is of loads alone.
    for number, boxes in enumerate(wave.before):
        sets[number] += sum(footprints.bytes_of(boxes, ["store"]).values())
    again = {name for name in load if new[name] <= _FEW * load[name]}
    first = sum(new.values())
    farther = {
        name: sum(
            float(size) * share * kept.hit(touched + first, recurring=name in again)
            for size, (_, touched, share) in zip(sizes[3:], earlier, strict=True)
        )
        for name, sizes in overlap.items()
        if kept
    }
    adjacent = {name: _three(sizes) for name, sizes in overlap.items()}
    recurring = {name: sizes for name, sizes in adjacent.items() if name in again}
    store = {name: float(size) for name, size in footprints.bytes_of(wave.now, ["store"]).items()}
    return WaveVolumes(dict(load), store, adjacent, _three(sets), recurring=recurring, farther=farther)


def _three(sizes: NDArray[np.float64]) -> tuple[float, float, float]:
    return float(sizes[0]), float(sizes[1]), float(sizes[2])


def _earlier(footprints: FootprintCounter, wave: Wave, kept: Kept) -> list[tuple[Boxes, float, float]]:
    """Return sets further and further back, what was touched since they began, and the part of all waves with them."""
    found: list[tuple[Boxes, float, float]] = []
    since: Boxes = ()
    for boxes, share in wave.earlier:
        since = (*since, *boxes)
        touched = sum(sum(footprints.bytes_of(since, [direction]).values()) for direction in ("load", "store"))
        found.append((boxes, float(touched), share))
        if touched > _FAR_TOO_LARGE * kept.capacity:
            break
    return found


def mean_volumes(footprints: FootprintCounter, waves: Waves, kept: Kept | None = None) -> WaveVolumes:
    """Return the means over some waves by their weights; with a cache, with what sets further back have left."""
    if len(waves.members) == 1:
        # A single wave's overlaps need no mean over those that have any.
        return replace(wave_volumes(footprints, waves.members[0][0], kept), shares=waves.shares)
    total = sum(weight for _, weight in waves.members)
    # Of those that have a set before them: where none has, the sums below are zero as well.
    with_set = total * np.where(np.asarray(waves.shares) > 0, waves.shares, 1.0)
    found = [(wave_volumes(footprints, wave, kept), weight) for wave, weight in waves.members]
    overlap, recurring = ([(getattr(one, name), w / with_set) for one, w in found] for name in ("overlap", "recurring"))
    load, store, farther = (
        {name: float(size) for name, size in _sums([(getattr(one, part), w / total) for one, w in found]).items()}
        for part in ("load", "store", "farther")
    )
    return WaveVolumes(
        load,
        store,
        {name: _three(sizes) for name, sizes in _sums(overlap).items()},
        _three(sum((weight / with_set * np.asarray(one.sets) for one, weight in found), np.zeros(3))),
        waves.shares,
        recurring={name: _three(sizes) for name, sizes in _sums(recurring).items()},
        farther=farther,
    )


def _sums(
    parts: Iterable[tuple[Mapping[str, float | tuple[float, ...]], float | NDArray[np.float64]]],
) -> dict[str, NDArray[np.float64]]:
    """Return the sums of values by name, each times its weights."""
    result: dict[str, NDArray[np.float64]] = {}
    for values, weights in parts:
        for name, value in values.items():
            result[name] = result.get(name, np.zeros(())) + weights * np.asarray(value)
    return result
