"""Distinct granules that boxes of work-groups touch, array by array."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from perflex.features.gpu.boxes import Atoms
from perflex.features.gpu.forms import Form
from perflex.features.gpu.images import Imager
from perflex.features.gpu.intervals import Intervals
from perflex.features.polynomials.computed_once import computed_once

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perflex.features.gpu.resolved import ResolvedAccess, ResolvedLaunch

Box = tuple[tuple[int, int], ...]
BoxProduct = tuple[Intervals, ...]
# Accesses with the same key see the same axes of the same array.
Key = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Layout:
    """How addresses become granules.

    Attributes
    ----------
    granule
        Size of a granule, in bytes.
    offsets
        Byte address of each array's first element, modulo a cache line; 0 where not given.
    short_rows
        Rows of fewer bytes that do not start on a granule are taken as parts of one linear array, where others are
        taken to share no granule with their neighbours.
    exact
        Whether all arrays are linear; then what single boxes touch is known, but not what several do together.
    wrap
        Whether granules beyond a row's end are those at its beginning: halos that leave a row are elements of the
        next one, which is touched as well but for the last.
    flat
        Whether all arrays are sets of addresses, and none are products of axes.
    """

    granule: int
    offsets: Mapping[str, int] = field(default_factory=dict)
    short_rows: int = 0
    exact: bool = False
    wrap: bool = False
    flat: bool = False


class Toucher:
    """The granules that any boxes of work-groups of one launch touch."""

    def __init__(
        self, launch: ResolvedLaunch, layout: Layout, shared: Toucher | None = None, most: int | None = None
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
        """Return the bytes of all granules that the loads of a box touch, which lie further on in memory.

        Parameters
        ----------
        box
            The work-groups; the layout's granule is a byte, and it is flat.
        moved
            By array, distances in bytes.
        granules
            Sizes of granules.

        Returns
        -------
        list
            For each size, by array, the bytes at each distance.
        """
        found: list[dict[str, list[int]]] = [{} for _ in granules]
        for key, products in self.products(box, "load").items():
            sets = [product[0] for product in products]
            starts, ends = (np.concatenate([getattr(item, what) for item in sets]) for what in ("starts", "ends"))
            union = Intervals.merged(starts, ends)
            for into, granule in zip(found, granules, strict=True):
                total = into.setdefault(key[0], [0] * len(moved[key[0]]))
                # Whole granules further on, as many are touched.
                known = {
                    place: union.granules(1, 1, place, granule).size for place in {d % granule for d in moved[key[0]]}
                }
                for number, distance in enumerate(moved[key[0]]):
                    total[number] += known[distance % granule] * granule
        return found

    def keys(self, direction: str) -> list[Key]:
        """Return the arrays that are loaded or stored, each with the strides of its axes."""
        keys = [(a.array, a.strides) for _, a in self._accesses() if a.direction == direction]
        return list(dict.fromkeys(keys))

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
            key = (access.array, access.strides)
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
            short = self._layout.exact or 0 < pitch < self._layout.short_rows
            # Rows of whole granules all begin at the same place in one, which products of axes can express.
            if self._layout.flat or (short and pitch % self._layout.granule):
                flat.add((access.array, access.strides))
        return flat

    def _fill(self, box: Box) -> None:
        found: dict[str, dict[Key, list[BoxProduct]]] = {"load": {}, "store": {}}
        if box not in self.imagers_of:
            parts = [piece.within(box) for piece in self._launch.pieces]
            self.imagers_of[box] = [Imager(self._launch.kernel, part, self._most) for part in parts if part is not None]
        # A halo index that leaves its row is an element of the next one, which products of axes take for another.
        flat = self._flat | (self._wrapped(box) if self._layout.exact else set())
        for imager in self.imagers_of[box]:
            part = imager.piece
            seen: set[tuple[object, ...]] = set()
            sets: dict[tuple[object, ...], Intervals] = {}
            for access in part.accesses:
                if self._launch.spaces[access.array] != "global" or not imager.runs(access):
                    continue
                key = (access.array, access.strides)
                product = self._flat_product(imager, access) if key in flat else None
                product = product or self._axis_product(imager, access, sets)
                # Equal axes are one object (`ResolvedAccess.marks`), so identity finds the accesses of equal elements.
                mark = (access.direction, key, *map(id, product))
                if mark not in seen and all(item.starts.size for item in product):
                    seen.add(mark)
                    found[access.direction].setdefault(key, []).append(product)
        for direction, products in found.items():
            self._products[box, direction] = products

    def _wrapped(self, box: Box) -> set[Key]:
        """Return arrays of which some subscripts leave their row for a neighbouring one."""
        found = set()
        for imager in self.imagers_of[box]:
            for access in imager.piece.accesses:
                if access.pitch:
                    low, high = access.axes[access.innermost].bounds(imager.piece.ranges)
                    step = abs(access.strides[access.innermost]) * access.itemsize
                    first = self._layout.offsets.get(access.array, 0)
                    if first + low * step < 0 or first + high * step + access.itemsize > access.pitch:
                        found.add((access.array, access.strides))
        return found

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
        return tuple(product) or (self._granules(imager.image(Form(0, ()), access), access, 1),)

    def _flat_product(self, imager: Imager, access: ResolvedAccess) -> BoxProduct:
        return (self._granules(self._elements(imager, access), access, 1),)

    def _elements(self, imager: Imager, access: ResolvedAccess) -> Intervals:
        """Return the elements that an access touches, by their distance from the array's first one."""
        floors = any(axis.floor_dims for axis in access.axes)
        constant = 0 if floors else access.address.constant // access.itemsize
        # Accesses of a stencil differ by constants, which only move what they touch.
        mark = access if floors else (access.array, access.strides, tuple(axis.terms for axis in access.axes))
        known = self._flat_elements.setdefault(id(imager), {})
        if mark not in known:
            total = imager.image(Form(0, ()), access)
            grouped = imager.groups(access)
            alone = [[axis] for axis in range(len(access.axes)) if not any(axis in group for group in grouped)]
            for axes in grouped + alone:
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
        sets = [product[0] for product in union]
        starts, ends = (np.concatenate([getattr(item, what) for item in sets]) for what in ("starts", "ends"))
        return Intervals.merged(starts, ends).size
    atoms = Atoms([union])
    return atoms.size(atoms.masks[0])
