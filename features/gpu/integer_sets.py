"""Sets of integers as sorted, disjoint, non-adjacent intervals, and sizes of unions of products of such sets.

Points of products are not listed: along each axis, integers that belong to the same of all sets involved are one atom
with a weight; a set of products then is a small array of truth values over atoms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np


def order_of(*columns: np.ndarray) -> np.ndarray:
    """Return the places of rows of integers in lexicographic order, equal ones as they stand.

    As ``numpy.lexsort``, which takes twenty times as long as digits of 16 bits one after another (radix sort).
    """
    order = np.arange(len(columns[0]))
    for column in reversed(columns):
        rest = column - column.min(initial=0)
        for shift in range(0, int(rest.max(initial=0)).bit_length(), 16):
            digits = (rest >> shift).astype(np.uint16)
            order = order[np.argsort(digits[order], kind="stable")]
    return order


@dataclass(frozen=True, eq=False)
class Intervals:
    """Integers from each of ``starts`` to the matching one of ``ends``, inclusive; both are sorted."""

    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, start: int, end: int) -> Intervals:
        """Return one interval."""
        return cls(np.array([start], dtype=np.int64), np.array([end], dtype=np.int64))

    @classmethod
    def of_values(cls, values: np.ndarray) -> Intervals:
        """Return the set of some integers."""
        if not values.size:
            return cls(values.ravel(), values.ravel())
        low, span = int(values.min()), int(values.max() - values.min()) + 1
        if span <= 16 * values.size:
            # Marking what is there is many times faster than sorting.
            there = np.zeros(span, dtype=bool)
            there[(values - low).ravel()] = True
            distinct = np.flatnonzero(there) + low
        else:
            distinct = np.unique(values)
        breaks = np.flatnonzero(np.diff(distinct) > 1)
        return cls(distinct[np.concatenate(([0], breaks + 1))], distinct[np.concatenate((breaks, [-1]))])

    @classmethod
    def merged(cls, starts: np.ndarray, ends: np.ndarray) -> Intervals:
        """Return the union of any intervals."""
        if starts.size < 2:
            return cls(starts, ends)
        order = np.argsort(starts, kind="stable")
        # A long interval may reach beyond later ones, so gaps are sought against the largest end so far.
        starts, reach = starts[order], np.maximum.accumulate(ends[order])
        breaks = np.flatnonzero(starts[1:] > reach[:-1] + 1)
        return cls(starts[np.concatenate(([0], breaks + 1))], reach[np.concatenate((breaks, [reach.size - 1]))])

    @classmethod
    def union(cls, sets: Sequence[Intervals]) -> Intervals:
        """Return the union of some sets."""
        return cls.merged(np.concatenate([one.starts for one in sets]), np.concatenate([one.ends for one in sets]))

    @property
    def size(self) -> int:
        """Number of integers in the set."""
        return int((self.ends - self.starts).sum()) + len(self.starts)

    def shifted(self, by: int) -> Intervals:
        """Return the set moved by a number."""
        return Intervals(self.starts + by, self.ends + by) if by else self

    def places(self, step: int, count: int) -> int:
        """Return how many intervals `plus_steps` lists."""
        whole = len(self.starts) == 1 and self.ends[0] - self.starts[0] + 1 >= abs(step)
        return 1 if whole else len(self.starts) * count

    def plus_steps(self, step: int, count: int) -> Intervals:
        """Return all sums of a member and one of ``0, step, .., (count - 1) * step``."""
        if count == 1 or step == 0:
            return self
        if step < 0:
            return self.shifted(step * (count - 1)).plus_steps(-step, count)
        reach = step * (count - 1)
        # An interval at least as long as the step leaves no holes: one interval again, and nothing to merge.
        if self.places(step, count) == 1:
            return Intervals(self.starts, self.ends + reach)
        steps = np.arange(count, dtype=np.int64) * step
        starts = (steps[:, None] + self.starts).ravel()
        ends = (steps[:, None] + self.ends).ravel()
        return Intervals.merged(starts, ends)

    def wrapped(self, length: int) -> Intervals:
        """Return the rests of members modulo a length, or the set itself where members are a whole length outside."""
        if not self.starts.size or (self.starts[0] >= 0 and self.ends[-1] < length):
            return self
        if self.starts[0] < -length or self.ends[-1] >= 2 * length:
            return self
        parts = [self.clipped(low, low + length - 1).shifted(-low) for low in (-length, 0, length)]
        return Intervals.union(parts)

    def clipped(self, low: int, high: int) -> Intervals:
        """Return the members from low to high."""
        inside = (self.ends >= low) & (self.starts <= high)
        return Intervals(np.maximum(self.starts[inside], low), np.minimum(self.ends[inside], high))

    def plus(self, other: Intervals) -> Intervals:
        """Return all sums of a member of each set."""
        return Intervals.merged(
            (self.starts[:, None] + other.starts).ravel(), (self.ends[:, None] + other.ends).ravel()
        )

    def granules(self, step: int, itemsize: int, offset: int, granule: int) -> Intervals:
        """Return the granules of elements that lie `step` bytes apart, that of member 0 at byte `offset`."""
        starts, ends = self.starts, self.ends
        # Elements further apart than a granule (that are no neighbours) leave granules untouched between them, so each
        # counts by itself.
        if abs(step) > max(granule, itemsize) and self.size != len(starts):
            starts = ends = np.concatenate([np.arange(a, b + 1) for a, b in zip(starts, ends, strict=True)])
        first, last = starts * step + offset, ends * step + offset
        # Descending addresses: each interval's last member comes first in memory.
        if step < 0:
            first, last = last[::-1], first[::-1]
        first, last = first // granule, (last + itemsize - 1) // granule
        return Intervals(first, last) if len(first) == 1 else Intervals.merged(first, last)


class Atoms:
    """A common decomposition of several unions of products; a product is a tuple of one set for each axis."""

    def __init__(self, unions: Sequence[Sequence[tuple[Intervals, ...]]]) -> None:
        products = [product for union in unions for product in union]
        members, weights = zip(
            *(_atoms([product[axis] for product in products]) for axis in range(len(products[0]))), strict=True
        )
        self._weights: tuple[np.ndarray, ...] = weights
        self.masks: list[np.ndarray] = []
        first = 0
        for union in unions:
            self.masks.append(_mask([matrix[first : first + len(union)] for matrix in members]))
            first += len(union)

    def size(self, mask: np.ndarray) -> int:
        """Return the number of points of a set."""
        # Contracted axis by axis, the weights' outer product is never formed; float64 is exact up to 2**53 points.
        total = mask.reshape(tuple(len(weight) for weight in self._weights)).astype(np.float64)
        for weight in reversed(self._weights):
            total = total @ weight
        return int(total)


def _atoms(sets: Sequence[Intervals]) -> tuple[np.ndarray, np.ndarray]:
    """Return which sets (rows) the atoms (columns) belong to, and how many integers each atom has."""
    distinct: dict[int, int] = {}
    # Equal axes are one object (`FootprintCounter._fill`), so identity finds repeated sets without comparing them.
    rows = [distinct.setdefault(id(item), len(distinct)) for item in sets]
    unique = {id(item): item for item in sets}
    different = [unique[key] for key in distinct]
    edges = np.unique(np.concatenate([item.starts for item in different] + [item.ends + 1 for item in different]))
    matrix = np.zeros((len(different), len(edges)), dtype=np.int8)
    for number, item in enumerate(different):
        if len(item.starts) == 1:
            first, last = np.searchsorted(edges, (item.starts[0], item.ends[0] + 1))
            matrix[number, first:last] = 1
        elif len(item.starts):
            change = np.zeros(len(edges), dtype=np.int8)
            change[np.searchsorted(edges, item.starts)] = 1
            change[np.searchsorted(edges, item.ends + 1)] -= 1
            matrix[number] = np.cumsum(change, dtype=np.int8)
    matrix = matrix[:, :-1]
    lengths: np.ndarray = np.diff(edges).astype(np.float64)
    # Regular patterns have many intervals but few kinds: those in the same sets become one atom. Looking for them
    # pays only where there are many more intervals than sets.
    if matrix.shape[1] > 4 * len(different) + 8:
        packed = np.packbits(matrix.astype(bool), axis=0)
        words = np.ascontiguousarray(packed.T).view(np.dtype((np.void, packed.shape[0]))).ravel()
        _, first_of, kind = np.unique(words, return_index=True, return_inverse=True)
        lengths = np.bincount(kind.ravel(), weights=lengths)
        matrix = matrix[:, first_of]
    # numpy hands products of float matrices to BLAS, those of integers not (`_mask`).
    return matrix[rows].astype(np.float32), lengths


def _mask(members: list[np.ndarray]) -> np.ndarray:
    """Return which combinations of atoms (flattened) any product contains, given its atoms on each axis."""
    # An empty union (a wave has no set before it) still needs a mask over the common atoms.
    if not len(members[0]):
        return np.zeros(prod(matrix.shape[1] for matrix in members), dtype=bool)
    left = np.ones((len(members[0]), 1), dtype=np.float32)
    for matrix in members[:-1]:
        left = (left[:, :, None] * matrix[:, None, :]).reshape(len(matrix), -1)
    # The product of matrices counts, for each combination of atoms, the products that contain it.
    mask: np.ndarray = (left.T @ members[-1]).ravel() > 0.5
    return mask
