"""Footprints of launches on GPUs: the distinct granules that boxes of work-groups touch, array by array.

What an access touches is a product of sets of integers, one set for each array axis: a star's access from a box of
work-groups is a box of elements, however large. Dimensions that are merely added to an index enter as arithmetic
progressions; only those in guards and floors are enumerated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, prod, sqrt

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.gpu.integer_sets import Atoms, Intervals
from perflex.features.gpu.resolved_launch import Ranges, ResolvedAccess, ResolvedLaunch, ResolvedPiece
from perflex.features.polynomials.affine import Affine
from perflex.features.polynomials.cardinality import connected
from perflex.features.scop.scop import Scop
from perflex.isl import computed_once

# Eight bytes each: 32 MB for every form that is evaluated on all of them.
_MOST_POINTS = 4_000_000


class Imager:
    """The sets that the accesses of one piece touch; sets that differ by a shift are made once.

    `most` limits how many intervals are listed of a set, where its size may be had without.
    """

    def __init__(self, kernel: str, piece: ResolvedPiece, most: int | None = None) -> None:
        self._kernel = kernel
        self._most = most
        self.piece = piece
        self._known: dict[object, Intervals] = {}
        self.parts = connected([form.dims for form in piece.constraints])
        self._constraints = {part: [form for form in piece.constraints if form.dims & part] for part in self.parts}

    def groups(self, access: ResolvedAccess) -> list[list[int]]:
        """Return lists of axes that share dimensions, directly or through guards."""
        dims = [self._coupled(axis) for axis in access.axes]
        return [[n for n, own in enumerate(dims) if own & part] for part in connected([own for own in dims if own])]

    def runs(self, access: ResolvedAccess) -> bool:
        """Return whether any instance executes, as far as guards on what no axis depends on tell."""
        if not self.parts:
            return True
        touched = frozenset[int]().union(*(self._coupled(axis) for axis in access.axes))
        return all(
            self.image(self._constraints[part][0], access).starts.size for part in self.parts if not part & touched
        )

    def image(self, form: Affine, access: ResolvedAccess) -> Intervals:
        """Return the values of a form on the piece's instances."""
        # Without divisions a constant only shifts the image, so that shifted forms share one.
        key = (form.terms, form.floors, form.denominator, form.constant if form.floor_dims else 0)
        if key not in self._known:
            self._known[key] = self._computed(form, access).shifted(-form.constant if not form.floor_dims else 0)
        return self._known[key].shifted(0 if form.floor_dims else form.constant)

    def check(self, count: int, access: ResolvedAccess) -> None:
        """Stop where more intervals than `most` would be listed."""
        if self._most is not None and count > self._most:
            msg = f"{access.text} in kernel {self._kernel!r} touches {count} separate places; give smaller sizes"
            raise UnsupportedKernelError(msg, kernel=self._kernel, access=access.text)

    def points(self, part: frozenset[int]) -> int:
        """Return how many values the dimensions of one of `parts` take together."""
        guards, ranges = self._constraints[part], self.piece.ranges
        form, access = guards[0], self.piece.accesses[0]
        box = prod(ranges[dim][1] - ranges[dim][0] + 1 for dim in part)
        if form.dims == part and _clip(form, guards) is not None:
            free = Imager(self._kernel, replace(self.piece, constraints=())).image(form, access)
            # Guards that only limit the form itself need no enumeration of points, of which there may be millions.
            # Where each point has a value of its own, values are counted in place of points.
            if free.size == box:
                return self.image(form, access).size
        return int(np.count_nonzero(self._alive(part, guards, access)[1]))

    def _coupled(self, form: Affine) -> frozenset[int]:
        """Return the dimensions of a form, and those that guards couple with them."""
        return form.dims.union(*(part for part in self.parts if part & form.dims))

    def _computed(self, form: Affine, access: ResolvedAccess) -> Intervals:
        ranges = self.piece.ranges
        guards = [guard for part in self.parts if part & form.dims for guard in self._constraints[part]]
        clip = _clip(form, guards) if not form.floor_dims else None
        added = set(form.dims)
        if clip is not None:
            result = Intervals.of(form.constant, form.constant)
        else:
            # Floors and guards are not linear, so their dimensions are enumerated; the others only add multiples.
            core = frozenset[int]().union(form.floor_dims, *(guard.dims for guard in guards))
            result = Intervals.of(0, 0)
            # Those that nothing couples are enumerated apart, and what they add is added.
            for summand, dims in _summands(form, [guard.dims for guard in guards]):
                mine = [guard for guard in guards if guard.dims & dims]
                result = result.plus(self._enumerated(summand, dims, mine, access))
            added -= core
        # Small steps first: they make long intervals, to which larger steps add without holes.
        for dim in sorted(added, key=lambda dim: abs(form.coefficient(dim))):
            start, end = ranges[dim]
            step = form.coefficient(dim)
            self.check(result.places(step, end - start + 1), access)
            result = result.shifted(step * start).plus_steps(step, end - start + 1)
        return result if clip is None else result.clipped(*clip)

    def _enumerated(
        self, form: Affine, core: frozenset[int], guards: Sequence[Affine], access: ResolvedAccess
    ) -> Intervals:
        """Return the values over some dimensions, where the others that are merely added are left out."""
        points, alive = self._alive(core, guards, access)
        zero = np.zeros((), dtype=np.int64)
        for dim in form.dims - core:
            points[dim] = zero
        return Intervals.of_values(np.broadcast_to(form(points), alive.shape)[alive])

    def _alive(
        self, core: frozenset[int], guards: Sequence[Affine], access: ResolvedAccess
    ) -> tuple[dict[int, np.ndarray], np.ndarray]:
        """Return arrays of the dimensions' values that broadcast to all points, and which points the guards let run."""
        order = sorted(core)
        extents = [self.piece.ranges[dim][1] - self.piece.ranges[dim][0] + 1 for dim in order]
        count = prod(extents)
        if count > _MOST_POINTS:
            shown = " x ".join(map(str, extents))
            # Mostly two of the extents grow with the sizes.
            times = max(2, ceil(sqrt(count / _MOST_POINTS)))
            msg = (
                f"bounds, guards or subscripts of {access.text} in kernel {self._kernel!r} couple {shown} = {count} "
                f"instances, as those of a triangle do, and data volumes look at {_MOST_POINTS} at most; give sizes "
                f"that are {times} times smaller, or count the whole rectangle, which is an upper bound"
            )
            raise UnsupportedKernelError(msg, kernel=self._kernel, access=access.text)
        values = (
            self.piece.ranges[dim][0] + np.arange(n, dtype=np.int64) for dim, n in zip(order, extents, strict=True)
        )
        points = dict(zip(order, np.ix_(*values), strict=True))
        alive = np.ones(extents, dtype=bool)
        for guard in guards:
            alive &= guard(points) >= 0
        return points, alive


def _summands(form: Affine, coupled: Sequence[frozenset[int]]) -> list[tuple[Affine, frozenset[int]]]:
    """Return forms that add up to one but for what is merely added, and their dimensions, which nothing couples."""
    if form.denominator != 1:
        return [(form, form.dims.union(*coupled))]
    parts = connected([*coupled, *(floor.dims for floor, _ in form.floors)])
    found = []
    for place, dims in enumerate(parts):
        terms = tuple(term for term in form.terms if term[0] in dims)
        floors = tuple(floor for floor in form.floors if floor[0].dims & dims)
        found.append((Affine(0 if place else form.constant, terms, floors), dims))
    return found


def _clip(form: Affine, guards: Sequence[Affine]) -> tuple[int, int] | None:
    """Return limits of a form that say the same as the guards, or None if there are none such."""
    # No limit, yet within int64, in which intervals are clipped.
    low, high = -(1 << 62), 1 << 62
    terms = form.terms
    for guard in guards:
        # Equal terms bound the form from below, opposite ones from above; any other guard couples dimensions.
        if guard.floors or guard.terms != terms:
            if guard.floors or guard.terms != tuple((dim, -coefficient) for dim, coefficient in terms):
                return None
            high = min(high, form.constant + guard.constant)
        else:
            low = max(low, form.constant - guard.constant)
    return low, high


def instances(launch: ResolvedLaunch, box: Ranges) -> int:
    """Return how many instances of statements the work-groups of a box execute."""
    return sum(_count(launch.kernel, part) for part in launch.within(box))


def _count(kernel: str, piece: ResolvedPiece) -> int:
    imager = Imager(kernel, piece)
    guarded = frozenset[int]().union(*imager.parts)
    total = prod(end - start + 1 for dim, (start, end) in enumerate(piece.ranges) if dim not in guarded)
    # Parts share no dimension, so that their counts multiply.
    return total * prod(imager.points(part) for part in imager.parts)


Box = tuple[tuple[int, int], ...]
BoxProduct = tuple[Intervals, ...]
# Of an access: its array and strides (`ResolvedAccess.key`).
Key = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Layout:
    """How addresses become granules."""

    granule: int  # size of a granule, in bytes
    # byte address of each array's first element, modulo a cache line; 0 where not given
    offsets: Mapping[str, int] = field(default_factory=dict)
    # rows of fewer bytes that do not start on a granule are taken as parts of one linear array, where others are taken
    # to share no granule with their neighbours
    short_rows: int = 0
    # whether granules beyond a row's end are those at its beginning: halos that leave a row are elements of the next
    # one, which is touched as well but for the last
    wrap: bool = False
    flat: bool = False  # whether all arrays are sets of addresses, and none are products of axes


class FootprintCounter:
    """The granules that any boxes of work-groups of one launch touch."""

    def __init__(
        self, launch: ResolvedLaunch, layout: Layout, shared: FootprintCounter | None = None, most: int | None = None
    ) -> None:
        self._launch = launch
        self._most = most
        # What elements are touched does not depend on the layout.
        self.imagers_of: dict[Box, list[Imager]] = shared.imagers_of if shared else {}
        self._layout = layout
        self.coupled: set[Key] = shared.coupled if shared else self._coupled()
        self._flat = self._flattened()
        self._products: dict[tuple[Box, str], dict[Key, list[BoxProduct]]] = {}
        # By imager, which `imagers_of` keeps alive.
        self._flat_elements: dict[int, dict[object, Intervals]] = {}

    @property
    def granule(self) -> int:
        """The size of a granule, in bytes."""
        return self._layout.granule

    def products(self, box: Box, direction: str) -> dict[Key, list[BoxProduct]]:
        """Return for each array what the work-groups of a box load or store, as products along axes."""
        if (box, direction) not in self._products:
            self._fill(box)
        return self._products[box, direction]

    def bytes_of(self, boxes: Iterable[Box], directions: Sequence[str] = ("load", "store")) -> dict[str, int]:
        """Return bytes that some boxes touch together in each array, each direction by itself."""
        total: dict[str, int] = {}
        boxes = tuple(boxes)
        for direction in directions:
            for key in self.keys(direction):
                union = [product for box in boxes for product in self.products(box, direction).get(key, [])]
                if union:
                    total[key[0]] = total.get(key[0], 0) + _size(union) * self._layout.granule
        return total

    def bytes_at(
        self, box: Box, moved: Mapping[str, Sequence[int]], granules: Sequence[int]
    ) -> list[dict[str, list[int]]]:
        """Return the bytes of granules of each size that the loads of a box touch, by array, at each distance.

        `moved` has distances in bytes by which an array's elements lie further on in memory; without any, it is 0. The
        layout is flat, and its granule is a byte.
        """
        found: list[dict[str, list[int]]] = [{} for _ in granules]
        for key, products in self.products(box, "load").items():
            union, distances = Intervals.union([product[0] for product in products]), moved.get(key[0], [0])
            for into, granule in zip(found, granules, strict=True):
                # Whole granules further on, as many are touched.
                places = {distance % granule for distance in distances}
                known = {place: union.granules(1, 1, place, granule).size * granule for place in places}
                before = into.get(key[0], [0] * len(distances))
                into[key[0]] = [size + known[d % granule] for size, d in zip(before, distances, strict=True)]
        return found

    def keys(self, direction: str) -> list[Key]:
        """Return the arrays that are loaded or stored, each with the strides of its axes."""
        return list(dict.fromkeys(access.key for _, access in self._accesses() if access.direction == direction))

    def _accesses(self) -> list[tuple[Imager, ResolvedAccess]]:
        return [
            (imager, access)
            for imager in self._imagers
            for access in imager.piece.accesses
            if self._launch.spaces[access.array] == "global"
        ]

    @computed_once
    def _imagers(self) -> list[Imager]:
        return [Imager(self._launch.kernel, piece) for piece in self._launch.pieces]

    def _coupled(self) -> set[Key]:
        """Return arrays some subscripts of which share dimensions between axes."""
        found: set[Key] = set()
        separate: set[tuple[object, ...]] = set()
        for imager, access in self._accesses():
            key = access.key
            kind = (id(imager), *(axis.dims for axis in access.axes))
            # Coupling follows from the dimensions alone: a stencil's many accesses of the same ones are looked at once.
            if key not in found and kind not in separate:
                if any(len(group) > 1 for group in imager.groups(access)):
                    found.add(key)
                else:
                    separate.add(kind)
        return found

    def _flattened(self) -> set[Key]:
        """Return arrays that are taken as linear: those, and others whose rows are short."""
        flat = set(self.coupled)
        for _, access in self._accesses():
            pitch = access.pitch
            short = 0 < pitch < self._layout.short_rows
            # Rows of whole granules all begin at the same place in one, which products of axes can express.
            if self._layout.flat or (short and pitch % self._layout.granule):
                flat.add(access.key)
        return flat

    def _fill(self, box: Box) -> None:
        found: dict[str, dict[Key, list[BoxProduct]]] = {"load": {}, "store": {}}
        if box not in self.imagers_of:
            parts = self._launch.within(box)
            self.imagers_of[box] = [Imager(self._launch.kernel, part, self._most) for part in parts]
        for imager in self.imagers_of[box]:
            seen: set[tuple[object, ...]] = set()
            sets: dict[tuple[object, ...], Intervals] = {}
            for access in imager.piece.accesses:
                if self._launch.spaces[access.array] != "global" or not imager.runs(access):
                    continue
                key = access.key
                if key in self._flat:
                    product: BoxProduct = (self._granules(self._elements(imager, access), access, 1),)
                else:
                    product = self._axis_product(imager, access, sets)
                # Equal axes are one object (`ResolvedAccess.marks`), so identity finds the accesses of equal elements.
                mark = (access.direction, key, *map(id, product))
                if mark not in seen and all(item.starts.size for item in product):
                    seen.add(mark)
                    found[access.direction].setdefault(key, []).append(product)
        for direction, products in found.items():
            self._products[box, direction] = products

    def _axis_product(
        self, imager: Imager, access: ResolvedAccess, sets: dict[tuple[object, ...], Intervals]
    ) -> BoxProduct:
        product = []
        for axis, mark in enumerate(access.marks):
            image = sets.get(mark)
            if image is None:
                image = imager.image(access.axes[axis], access)
                # Granules divide the fastest axis alone: multi-dimensional addresses of Ernst et al., Section 4.4.1.
                if axis == access.innermost:
                    image = self._granules(image, access, access.strides[axis])
                    if self._layout.wrap and access.pitch and not access.pitch % self._layout.granule:
                        image = image.wrapped(access.pitch // self._layout.granule)
                sets[mark] = image
            product.append(image)
        # A scalar has no axes, but lies in one granule.
        return tuple(product) or (self._granules(imager.image(Affine(0, ()), access), access, 1),)

    def _elements(self, imager: Imager, access: ResolvedAccess) -> Intervals:
        """Return the elements that an access touches, by their distance from the array's first one."""
        floors = any(axis.floor_dims for axis in access.axes)
        constant = 0 if floors else access.address.constant // access.itemsize
        # Accesses of a stencil differ by constants, which only move what they touch.
        mark = access if floors else (access.array, access.strides, tuple(axis.terms for axis in access.axes))
        known = self._flat_elements.setdefault(id(imager), {})
        if mark not in known:
            total = imager.image(Affine(0, ()), access)
            grouped = imager.groups(access)
            alone = [[axis] for axis in range(len(access.axes)) if not any(axis in group for group in grouped)]
            # Neighbours first: they make long intervals, of which there are few.
            for axes in sorted(grouped + alone, key=lambda axes: min(abs(access.strides[axis]) for axis in axes)):
                added = imager.image(access.linear(axes), access)
                imager.check(len(total.starts) * len(added.starts), access)
                total = total.plus(added)
            known[mark] = total.shifted(-constant)
        return known[mark].shifted(constant)

    def _granules(self, image: Intervals, access: ResolvedAccess, stride: int) -> Intervals:
        offset = self._layout.offsets.get(access.array, 0)
        return image.granules(stride * access.itemsize, access.itemsize, offset, self._layout.granule)


def _size(union: Sequence[BoxProduct]) -> int:
    # A single axis needs no atoms: the union of its intervals is enough, and much faster.
    if len(union[0]) == 1:
        return Intervals.union([product[0] for product in union]).size
    atoms = Atoms([union])
    return atoms.size(atoms.masks[0])


# Strided accesses of a whole grid touch many places; so many have tens of megabytes, which no L2 cache keeps.
_MOST_PLACES = 1 << 21


@dataclass(frozen=True)
class Beforehand:
    """What a launch finds in the L2 cache."""

    # distinct bytes of each array that the launch loads: what it loads from DRAM at least, if it finds nothing
    load: Mapping[str, int] = field(default_factory=dict)
    # distinct bytes of a run of the kernel, which the run before has touched last; None if caches are cold
    run_bytes: float | None = None


def beforehand(
    scop: Scop, sizes: Mapping[str, int], launches: Iterable[ResolvedLaunch], layout: Layout, *, warm: bool
) -> list[Beforehand]:
    """Return what each launch of a run finds; an array of several launches is taken to be the same part of it."""
    loads: list[dict[str, int]] = []
    run: dict[str, int] = {}
    for launch in launches:
        footprints = FootprintCounter(launch, layout, most=_MOST_PLACES)
        whole = tuple((0, extent - 1) for extent in launch.groups)
        try:
            load, store = (footprints.bytes_of([whole], [direction]) for direction in ("load", "store"))
        except UnsupportedKernelError:
            # The grid has too many instances or places to list, though no wave does. Arrays are no smaller than what is
            # touched of them, so that warm caches hold no more than they do, and no least load is claimed.
            load, store = {}, _arrays(scop, sizes, launch)
        loads.append(load)
        for part in (load, store):
            for name, size in part.items():
                run[name] = max(run.get(name, 0), size)
    return [Beforehand(load, float(sum(run.values())) if warm else None) for load in loads]


def _arrays(scop: Scop, sizes: Mapping[str, int], launch: ResolvedLaunch) -> dict[str, int]:
    used = {access.array for piece in launch.pieces for access in piece.accesses}
    return {
        array.name: prod(int(extent.evaluate(sizes)) for extent in array.shape) * array.itemsize
        for array in scop.arrays
        if array.name in used and array.memory == "global"
    }
