"""What accesses touch from a box of instances: products of sets of integers, one set for each array axis.

A star's access from a box of work-groups is a box of elements, however large. Dimensions that are merely added to an
index enter as arithmetic progressions; only those in guards and floors are enumerated.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.gpu.intervals import Intervals
from perflex.features.polynomials.connected import connected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.gpu.forms import Form
    from perflex.features.gpu.resolved import Ranges, ResolvedAccess, ResolvedLaunch, ResolvedPiece

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
        reach = [self._reach(axis) for axis in access.axes]
        return [[n for n, own in enumerate(reach) if own & part] for part in connected([own for own in reach if own])]

    def runs(self, access: ResolvedAccess) -> bool:
        """Return whether any instance executes, as far as guards on what no axis depends on tell."""
        if not self.parts:
            return True
        touched = frozenset[int]().union(*(self._reach(axis) for axis in access.axes))
        return all(
            self.image(self._constraints[part][0], access).starts.size for part in self.parts if not part & touched
        )

    def image(self, form: Form, access: ResolvedAccess) -> Intervals:
        """Return the values of a form on the piece's instances."""
        # Without divisions a constant only shifts the image, so that shifted forms share one.
        key = (form.terms, form.floors, form.denominator, form.constant if form.floor_dims else 0)
        if key not in self._known:
            self._known[key] = self._computed(form, access).shifted(-form.constant if not form.floor_dims else 0)
        return self._known[key].shifted(0 if form.floor_dims else form.constant)

    def check(self, count: int, access: ResolvedAccess) -> None:
        """Stop where more intervals than `most` would be listed.

        Raises
        ------
        UnsupportedKernelError
            They would.
        """
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

    def _reach(self, form: Form) -> frozenset[int]:
        dims: frozenset[int] = form.dims
        if not self.parts:
            return dims
        return dims.union(*(part for part in self.parts if part & dims))

    def _computed(self, form: Form, access: ResolvedAccess) -> Intervals:
        ranges = self.piece.ranges
        guards = [guard for part in self.parts if part & form.dims for guard in self._constraints[part]]
        clip = _clip(form, guards) if not form.floor_dims else None
        added = set(form.dims)
        if clip is not None:
            result = Intervals.of(form.constant, form.constant)
        else:
            # Floors and guards are not linear, so their dimensions are enumerated; the others only add multiples.
            core = frozenset[int]().union(form.floor_dims, *(guard.dims for guard in guards))
            result = self._enumerated(form, core, guards, access)
            added -= core
        # Small steps first: they make long intervals, to which larger steps add without holes.
        for dim in sorted(added, key=lambda dim: abs(form.coefficient(dim))):
            start, end = ranges[dim]
            step = form.coefficient(dim)
            self.check(result.places(step, end - start + 1), access)
            result = result.shifted(step * start).plus_steps(step, end - start + 1)
        return result if clip is None else result.clipped(*clip)

    def _enumerated(
        self, form: Form, core: frozenset[int], guards: Sequence[Form], access: ResolvedAccess
    ) -> Intervals:
        """Return the values over some dimensions, where the others that are merely added are left out."""
        points, alive = self._alive(core, guards, access)
        zero = np.zeros((), dtype=np.int64)
        for dim in form.dims - core:
            points[dim] = zero
        return Intervals.of_values(np.broadcast_to(form.values(points), alive.shape)[alive])

    def _alive(
        self, core: frozenset[int], guards: Sequence[Form], access: ResolvedAccess
    ) -> tuple[dict[int, np.ndarray], np.ndarray]:
        """Return arrays of the dimensions' values that broadcast to all points, and which points the guards let run."""
        points, count = _grid(self.piece.ranges, core)
        if count > _MOST_POINTS:
            msg = (
                f"guards or subscripts of {access.text} in kernel {self._kernel!r} couple {count} instances, more than "
                "data volumes can look at; simplify them or give smaller sizes"
            )
            raise UnsupportedKernelError(msg, kernel=self._kernel, access=access.text)
        alive = np.ones(np.broadcast_shapes(*(array.shape for array in points.values())), dtype=bool)
        for guard in guards:
            alive &= guard.values(points) >= 0
        return points, alive


def _grid(ranges: Ranges, dims: frozenset[int]) -> tuple[dict[int, np.ndarray], int]:
    """Return arrays of the dimensions' values that broadcast to all points, and the number of points."""
    order = sorted(dims)
    points, count = {}, 1
    for position, dim in enumerate(order):
        start, end = ranges[dim]
        count *= end - start + 1
        shape = [1] * len(order)
        shape[position] = -1
        points[dim] = (start, end, shape)
    # No array is made of a grid that the caller refuses.
    if count > _MOST_POINTS:
        return {}, count
    return {d: np.arange(a, b + 1, dtype=np.int64).reshape(shape) for d, (a, b, shape) in points.items()}, count


def _clip(form: Form, guards: Sequence[Form]) -> tuple[int, int] | None:
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
    parts = [piece.within(box) for piece in launch.pieces]
    return sum(_count(launch.kernel, part) for part in parts if part is not None)


def _count(kernel: str, piece: ResolvedPiece) -> int:
    imager = Imager(kernel, piece)
    guarded = frozenset[int]().union(*imager.parts)
    total = prod(end - start + 1 for dim, (start, end) in enumerate(piece.ranges) if dim not in guarded)
    # Parts share no dimension, so that their counts multiply.
    return total * prod(imager.points(part) for part in imager.parts)
