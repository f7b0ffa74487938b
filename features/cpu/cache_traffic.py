"""Traffic beyond a cache of given size, from which windows of reuse it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from perflex.features.cpu.cache_sets import Sets, WindowLines
from perflex.features.cpu.carried_reuse import carried
from perflex.features.cpu.nests import LANE, Nests, StreamGroup, sampled
from perflex.features.cpu.reuse import Reuse
from perflex.features.cpu.reuse_windows import Footprints, Window, unit_window
from perflex.features.cpu.traced import NestValues, at_least, plain, select, smaller
from perflex.machines.machine import CacheLevel

_HALVINGS = 60
_LONGEST = 1e15


def lifetime(capacity: float, streaming: Any, arrays: Sequence[tuple[float, Any]]) -> Any:
    """Return after how many executions of a loop's body a line leaves the cache that is not used again.

    That is when as many different lines were touched as the cache has (`capacity`): those of streams, `streaming` new
    ones per execution, and of an array of L lines, L(1 - exp(-rT/L)) of rT draws. `arrays` are pairs of r and L. The
    characteristic time of Che, Tung and Wang, Hierarchical Web caching systems (2002); very long where all fit.
    """
    shape = np.broadcast_shapes(np.shape(streaming), *(np.shape(lines) for _, lines in arrays))
    low, high = np.zeros(shape), np.full(shape, np.log(_LONGEST))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        time = np.exp(middle)
        touched = streaming * time
        for rate, lines in arrays:
            touched = touched - lines * np.expm1(-rate * time / lines)
        fits = touched <= capacity
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.exp(low)


# Rates that differ by less are the same.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Crossing:
    """Bytes that cross a boundary of the memory hierarchy per run of the kernel."""

    loads: Any  # towards the core, write-allocates included
    evicts: Any  # away from it
    allocates: Any  # the part of the loads that is there only because of stores

    def __add__(self, other: Crossing) -> Crossing:
        return Crossing(self.loads + other.loads, self.evicts + other.evicts, self.allocates + other.allocates)

    def times(self, factor: Any) -> Crossing:
        """Return a part of it."""
        return Crossing(self.loads * factor, self.evicts * factor, self.allocates * factor)


@dataclass(frozen=True)
class GroupPlan:
    """What decides over the traffic of a group; nothing in it depends on the cache."""

    nest: int  # index of its nest
    place: int  # index of the group in the nest
    group: StreamGroup
    executions: Any  # of the nest's body per run of the kernel
    touching: Any  # executions that count for lines (`Nest.touching`)
    share: Any  # part of what the cores miss that a cache they share does not fetch for several of them (1 if for none)
    # bytes per execution and missing stream where the reuse over the loops from this one on is held; the entry after
    # the last is without any reuse
    rates: tuple[Any, ...]
    windows: tuple[Window, ...]  # for each loop, the window that reuse over it needs
    carried: tuple[tuple[tuple[Any, Window], ...], ...]  # for each gap, its parts and the windows they need

    def deciding(self) -> Iterator[Window]:
        """Return the windows in which lines or elements come again, so that holding them saves traffic."""
        loops = len(self.rates) - 1
        for loop in range(loops):
            # Beyond rounding.
            if self.rates[loop] < self.rates[loop + 1] * (1 - ROUNDING):
                yield self.windows[loop]
        for parts in self.carried:
            yield from (window for part, window in parts if part > 0 and any(window))
        if self.group.touched_before is not None:
            yield unit_window(loops, self.group.touched_before)


def plan(reuse: Reuse) -> list[GroupPlan]:
    """Return the plans of all groups at the sizes of `reuse`."""
    plans = []
    for number, nest in enumerate(reuse.nests.nests):
        footprints = reuse.footprints[number]
        executions = reuse.numbers.size(nest.count)
        touching = executions if nest.touching is None else reuse.numbers.size(nest.touching)
        for place, group in enumerate(nest.groups):
            rates: list[Any] = [float(reuse.line)]
            iterations: Any = 1.0
            for loop in reversed(range(len(nest.loops))):
                iterations = iterations * footprints.extents[loop]
                # Held reuse never adds traffic, even where rounding up to lines seems to say so.
                if not group.scattered:
                    rates.append(_with_reuse(footprints, place, loop, rates[-1], iterations))
            rates += rates[-1:] * (len(nest.loops) + 1 - len(rates))
            loops = len(nest.loops)
            windows = tuple(footprints.tightened(place, unit_window(loops, loop)) for loop in range(loops))
            between = tuple(
                tuple((part, footprints.tightened(place, window)) for part, window in carried(footprints, place, gap))
                for gap in range(len(group.gaps))
            )
            plans.append(
                GroupPlan(
                    number,
                    place,
                    group,
                    executions / group.fold,
                    touching / group.fold,
                    footprints.share(place),
                    tuple(reversed(rates)),
                    windows,
                    between,
                )
            )
    return plans


def _with_reuse(footprints: Footprints, place: int, loop: int, without: Any, iterations: Any) -> Any:
    """Return the bytes per execution of a group where reuse over a loop is held, at most those without that.

    Of loops that decide ranges of others, all iterations count together.
    """
    new = footprints.new_bytes(place, loop)
    if not footprints.has_samples:
        return smaller(without, new / iterations)
    total = footprints.mean_inside(loop, iterations)
    found = footprints.mean_inside(loop, new) / total
    return select(found < footprints.mean_inside(loop, without * iterations) / total, found, without)


class Traffic:
    """Traffic between a cache (of which the core has `capacity` bytes) and what is beyond it.

    `strict` is whether a window must need less than the capacity, rather than at most that. Nothing crosses where all
    data, `whole` bytes, are less than it. Without sets, the cache is fully associative; where data are `spread`, those
    that fit it do not crowd into few.
    """

    def __init__(
        self, reuse: Reuse, capacity: float, *, strict: bool, whole: Any, sets: Sets | None = None, spread: bool = False
    ) -> None:
        self._reuse = reuse
        self._spread = spread
        self._sets = sets
        self._capacity = capacity
        self._strict = strict
        # Strict in both conventions, as the transition point in YaskSite's Section V-A.
        self.whole_fits = whole < capacity
        self._known: dict[tuple[int, int, Window], Any] = {}

    def holds(self, nest: int, place: int, window: Window) -> Any:
        """Return the part of a group's lines that the cache holds over a window; 1.0 or 0.0 without conflicts."""
        key = nest, place, window
        if key not in self._known:
            fits = self.fits(nest, window)
            if self._sets is None:
                self._known[key] = select(fits, 1.0, 0.0)
            else:
                self._known[key] = self._sets.held(nest, place, window, self._reuse.needed((nest, window)), fits)
        return self._known[key]

    def fits(self, nest: int, window: Window) -> Any:
        """Return whether the cache as a whole is large enough for what is touched in a window."""
        needed = self._reuse.needed((nest, window))
        return needed < self._capacity if self._strict else needed <= self._capacity

    def beyond(self, plans: Sequence[GroupPlan], *, write_allocate: bool) -> Crossing:
        """Return the bytes that cross, per run of the kernel."""
        total = Crossing(0.0, 0.0, 0.0)
        for _, found in self.by_group(plans, write_allocate=write_allocate):
            total = total + found
        return total

    def by_group(self, plans: Sequence[GroupPlan], *, write_allocate: bool) -> Iterator[tuple[GroupPlan, Crossing]]:
        """Return the groups of accesses, each with the bytes of it that cross, per run of the kernel."""
        # By nest: what streams through the cache beside accesses that data decide.
        streaming: dict[int, Any] = {}
        for group in plans:
            if not group.group.scattered:
                missed = self._group(group, write_allocate=write_allocate)
                found = missed.times(self._crossing(group) * group.share)
                streaming[group.nest] = streaming.get(group.nest, 0.0) + found.loads
                yield group, found
        for nest in dict.fromkeys(group.nest for group in plans if group.group.scattered):
            scattered = [group for group in plans if group.nest == nest and group.group.scattered]
            crossing = self._scattered(scattered, streaming.get(nest, 0.0), write_allocate=write_allocate)
            for group, found in zip(scattered, crossing, strict=True):
                yield group, found.times(select(self.whole_fits, 0.0, 1.0))

    def _scattered(self, plans: Sequence[GroupPlan], streaming: Any, *, write_allocate: bool) -> Iterator[Crossing]:
        """Return what crosses for accesses of a nest that data decide, each by what the cache holds of its array."""
        line = self._reuse.line
        arrays = {entry.group.array: self._reuse.whole[entry.group.array] / line for entry in plans}
        rates = {name: sum(entry.group.array == name for entry in plans) for name in arrays}
        stays = lifetime(
            self._capacity / line,
            streaming / line / at_least(plans[0].executions, 1.0),
            [(rates[name], at_least(count, 1.0)) for name, count in arrays.items()],
        )
        for entry in plans:
            name = entry.group.array
            missed = plain(np.exp(-stays * rates[name] / at_least(arrays[name], 1.0)) * line * entry.executions)
            loads = any(stream.loads for stream in entry.group.streams)
            stores = any(stream.stores for stream in entry.group.streams)
            moved = missed * (loads or write_allocate)
            yield Crossing(moved, missed * stores, moved * (not loads))

    def _crossing(self, entry: GroupPlan) -> Any:
        """Return the part of a group's lines that leave the cache at all: none where it holds all data."""
        if self._sets is None or self._spread or not np.any(self.whole_fits):
            return select(self.whole_fits, 0.0, 1.0)
        return self._sets.lost_of_all(entry.nest, entry.place, self.whole_fits)

    def _rate(self, entry: GroupPlan) -> Any:
        """Return the bytes per execution of a stream that is not served by another one."""
        loops = len(entry.rates) - 1
        rate = entry.rates[-1]
        held: Any = 1.0
        # Reuse over an outer loop saves traffic only where that over all loops inside is held, too.
        for loop in reversed(range(loops)):
            # `smaller` returns the very same number where a loop saves nothing: its window decides nothing then.
            if entry.rates[loop] is not entry.rates[loop + 1]:
                # Windows of outer loops contain those of inner ones: of what is held here, all is held there.
                # Lanes access together: nothing comes between them.
                together = self._reuse.nests.nests[entry.nest].loops[loop].name == LANE
                less = held if together else smaller(held, self.holds(entry.nest, entry.place, entry.windows[loop]))
                # Of arrays, some sizes save nothing (beyond rounding).
                saved = entry.rates[loop + 1] - entry.rates[loop]
                # Where iterations count together, what one saves another may lose.
                held = select(abs(saved) > entry.rates[loop + 1] * ROUNDING, less, held)
                rate = rate - held * saved
        return rate

    def _group(self, entry: GroupPlan, *, write_allocate: bool) -> Crossing:
        group = entry.group
        served: list[Any] = [
            sum(part * (self.holds(entry.nest, entry.place, window) if any(window) else 1.0) for part, window in parts)
            for parts in entry.carried
        ]
        first: Any = 0.0
        if group.touched_before is not None:
            first = self.holds(entry.nest, entry.place, unit_window(len(entry.rates) - 1, group.touched_before))
        loads: Any = 0.0
        evicts: Any = 0.0
        allocates: Any = 0.0
        dirty: Any = 0.0
        # The first stream is served by none of its group; each other one by the one before it.
        for place, stream in enumerate(group.streams):
            hit = first if place == 0 else served[place - 1]
            if place:
                # What misses begins a line's stay in the cache afresh, and the stay before it has ended.
                evicts = evicts + dirty * (1.0 - hit)
                dirty = dirty * hit
            miss = 1.0 - hit
            if stream.loads or write_allocate:
                loads = loads + miss
            if not stream.loads:
                allocates = allocates + (miss if write_allocate else 0.0)
            if stream.stores:
                dirty = 1.0
        evicts = evicts + dirty * (1.0 - first)
        scale = self._rate(entry) * entry.touching
        return Crossing(loads * scale, evicts * scale, allocates * scale)


CONVENTIONS = ("dealt", "reference", "paper")


@dataclass(frozen=True)
class Rules:
    """How conditions and volumes are read."""

    convention: str  # one of `CONVENTIONS`, as `estimate_ecm` explains
    cores: int  # that work
    spread: bool = False  # as of `Traffic`

    @property
    def dealt(self) -> bool:
        """Whether each core has a part of the kernel; else each has all of it, and a part of the caches it shares."""
        return self.convention == "dealt"

    def users(self, level: CacheLevel) -> int:
        """Return how many cores with a part of the kernel each share an instance of a cache."""
        return min(self.cores, level.shared_by) if self.dealt else 1

    def capacity(self, level: CacheLevel) -> int:
        """Return the bytes of a cache that `users` have together."""
        return level.bytes_per_core(1 if self.dealt else self.cores)

    @property
    def strict(self) -> bool:
        """Whether reuse must need less than the cache, rather than at most that."""
        return self.convention == "paper"

    def whole(self, everything: Any) -> Any:
        """Return the part of all data (of `users`) that must fit what these have of a cache."""
        return everything / self.cores if self.strict else everything

    def crossing(self, found: Crossing, level: CacheLevel | None, *, fits: Any) -> Crossing:
        """Return the bytes between a level (None: the memory) and the one before it, from the misses of that one.

        `fits` is whether all data fit in the level.
        """
        if not self.strict or level is None or not level.victim:
            return found
        # YaskSite, Eq. 8: a victim cache has w = 1, and v = 2 where the data fit in it.
        factor = select(fits, 2.0, 1.0)
        return Crossing(found.loads * factor, found.evicts * 0.0, found.allocates * factor)


@dataclass(frozen=True)
class Part:
    """Some of a kernel's groups of accesses."""

    reuse: Reuse  # the kernel; with weights, at some iterations of the loops that others depend on, along the last axis
    plans: tuple[GroupPlan, ...]
    sets: Mapping[str, Sets]  # of the caches that have some, by name
    everything: Any  # bytes that must fit the cache for nothing to cross
    share: Any  # part of the cores that it is the traffic of
    weights: Any = None  # what part of the executions each of those stands for

    def traffic(self, level: CacheLevel, rules: Rules) -> Traffic:
        """Return the traffic beyond a cache."""
        whole = self.everything if self.weights is None else _with_axis(self.everything)
        capacity, sets = rules.capacity(level), self.sets.get(level.name)
        return Traffic(self.reuse, capacity, strict=rules.strict, whole=whole, sets=sets, spread=rules.spread)

    def mean(self, value: Any) -> Any:
        """Return its share of a value, the mean over the iterations that the last axis stands for, if it does."""
        return self.share * (value if self.weights is None else plain(np.sum(self.weights * value, axis=-1)))

    def beyond(self, level: CacheLevel, rules: Rules, *, write_allocate: bool) -> Crossing:
        """Return the bytes that cross beyond a cache."""
        found = self.traffic(level, rules).beyond(self.plans, write_allocate=write_allocate)
        return Crossing(*map(self.mean, (found.loads, found.evicts, found.allocates)))


@dataclass(frozen=True)
class View:
    """A kernel as the instances of a cache meet it."""

    reuse: Reuse  # that of `Rules.users` cores, with the largest length of each loop
    plans: tuple[GroupPlan, ...]
    parts: tuple[Part, ...]  # first that with loops of fixed length, which may be empty; then those of other instances
    everything: Any  # bytes that must fit the cache for nothing to cross


def views_of(
    nests: Nests, sizes: Mapping[str, Any], blocks: Mapping[str, Any], levels: Sequence[CacheLevel], rules: Rules
) -> list[View]:
    """Return the view of each cache level, at sizes and blocks that are numbers or arrays of one shape.

    Where data are spread and fit all caches of so many cores, nothing crosses: there are no parts.
    """
    cores = working(nests, sizes, blocks, rules)
    found: dict[int, View] = {}
    for users in dict.fromkeys(map(rules.users, levels)):
        parts: tuple[Part, ...] = ()
        least = min(rules.capacity(level) for level in levels if rules.users(level) == users)
        for together, share in _instances(cores, users):
            numbers = NestValues(sizes, blocks, cores=cores)
            reuse = Reuse(nests, numbers, levels[0].line_bytes, together=together)
            everything = rules.whole(reuse.everything())
            plans: list[GroupPlan] = []
            if not (rules.spread and np.all(everything < least)):
                plans = plan(reuse)
                parts += _parts_of(reuse, plans, sizes, blocks, levels, rules, everything, share)
            found.setdefault(users, View(reuse, tuple(plans), parts, everything))
        found[users] = replace(found[users], parts=parts)
    return [found[rules.users(level)] for level in levels]


def _instances(cores: Any, users: int) -> Iterator[tuple[Any, Any]]:
    """Return how many cores share an instance of a cache, of instances that are full and of one that is not.

    With the part of all cores that these are.
    """
    full = cores // users * users
    yield smaller(cores, users), select(full > 0, full / cores, 1.0)
    rest = select(full > 0, cores - full, 0)
    if np.any(rest > 0):
        yield at_least(rest, 1), rest / cores


def working(nests: Nests, sizes: Mapping[str, Any], blocks: Mapping[str, Any], rules: Rules) -> Any:
    """Return the cores with a part of the kernel of their own: no more than there are parts."""
    cores: Any = 1
    if rules.dealt and rules.cores > 1:
        numbers = NestValues(sizes, blocks)
        for nest in nests.nests:
            extents = numbers.extents(nest)
            cores = np.maximum(cores, prod(extents[place] for place in nest.dealt_loops))
        cores = plain(np.minimum(cores, rules.cores))
    return cores


def _with_axis(value: Any) -> Any:
    """Return values of sizes with another axis, for iterations that stand for all."""
    return value[..., None] if isinstance(value, np.ndarray) else value


def _parts_of(
    reuse: Reuse,
    plans: Sequence[GroupPlan],
    sizes: Mapping[str, Any],
    blocks: Mapping[str, Any],
    levels: Sequence[CacheLevel],
    rules: Rules,
    everything: Any,
    share: Any,
) -> tuple[Part, ...]:
    nests = reuse.nests
    fixed = tuple(entry for entry in plans if not nests.nests[entry.nest].drivers)
    parts = [Part(reuse, fixed, _sets(reuse, levels, rules.cores), everything, share)]
    for number, nest in enumerate(nests.nests):
        if nest.drivers:
            at, samples = sampled(nest, sizes)
            shape = samples.weights.shape
            wide = {name: np.broadcast_to(np.asarray(value)[..., None], shape) for name, value in blocks.items()}
            numbers = NestValues(at, wide, cores=_with_axis(reuse.numbers.cores))
            here = Reuse(nests, numbers, reuse.line, samples, _with_axis(reuse.together))
            own = tuple(entry for entry in plan(here) if entry.nest == number)
            sets = _sets(here, levels, rules.cores)
            parts.append(Part(here, own, sets, everything, share, samples.weights))
    return tuple(parts)


def _sets(reuse: Reuse, levels: Sequence[CacheLevel], cores: int) -> dict[str, Sets]:
    lines = WindowLines(reuse.footprints)
    shapes = {level.name: level.sets(cores) for level in levels}
    return {name: Sets(reuse, lines, *shape) for name, shape in shapes.items() if shape is not None}
