"""Sets of integers as sorted, disjoint, non-adjacent intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
        starts, ends = (np.concatenate([getattr(part, side) for part in parts]) for side in ("starts", "ends"))
        return Intervals.merged(starts, ends)

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
        """Return the granules that elements touch.

        Parameters
        ----------
        step
            Distance between the elements of neighbouring members, in bytes.
        itemsize
            Size of an element, in bytes.
        offset
            Byte address of member 0.
        granule
            Size of a granule, in bytes.
        """
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
