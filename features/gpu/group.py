"""Memory instructions of one work-group: the addresses of its sub-groups' work-items."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import gcd, prod
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.gpu.wavefronts import IDLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.features.gpu.resolved import Issued, ResolvedLaunch, ResolvedPiece

# Neither banks, lines nor segments tell addresses apart that differ by a multiple of this.
PERIOD = 1024
# Eight bytes each: 64 MB for one access.
_MOST_ADDRESSES = 8_000_000


@dataclass(frozen=True)
class Instructions:
    """Accesses whose instructions have the same addresses, up to multiples of `PERIOD`.

    Attributes
    ----------
    array, direction
        What is accessed.
    itemsize
        Bytes that a work-item moves with an instruction.
    count
        Number of such accesses.
    addresses
        Byte addresses, shape (iterations, sub-groups, sub-group size); `IDLE` where a work-item does not execute it.
    weights
        How often each iteration occurs, shape (iterations,).
    """

    array: str
    direction: str
    itemsize: int
    count: int
    addresses: np.ndarray
    weights: np.ndarray


def instructions(
    launch: ResolvedLaunch, group: tuple[int, ...], lanes: int, space: str, offsets: dict[str, int]
) -> Iterator[Instructions]:
    """Yield the memory instructions of a work-group in one address space."""
    items = prod(launch.items)
    # Work-items are numbered along axis 0 first: that is how sub-groups are cut from them.
    local = np.unravel_index(np.arange(items), launch.items, order="F")
    axes = len(launch.groups)
    # The last sub-group may have idle work-items.
    padded = -(-items // lanes) * lanes
    for piece in launch.pieces:
        part = piece.within([(position, position) for position in group])
        if part is None:
            continue
        points: dict[int, np.ndarray] = {axis: np.asarray(group[axis]) for axis in range(axes)}
        points |= {axes + axis: values[None, :] for axis, values in enumerate(local)}
        running = np.ones((1, items), dtype=bool)
        for axis, values in enumerate(local):
            low, high = part.ranges[axes + axis]
            if (low, high) != (0, launch.items[axis] - 1):
                running &= (values >= low) & (values <= high)
        loops = _Loops(launch.kernel, part, axes + len(launch.items), items)
        for (issued, shift), count in _kinds(launch, part, space, offsets).items():
            access, form = issued.access, issued.address
            steps, weights = loops.iterations(issued)
            here = points | steps
            alive = running
            for guard in part.constraints:
                alive = alive & (guard.values(here) >= 0)
            address = form.values(here) + shift
            filled = np.full((len(weights), padded), IDLE, dtype=np.int64)
            filled[:, :items] = np.where(alive, address, IDLE)
            yield Instructions(
                access.array,
                access.direction,
                issued.itemsize,
                count,
                filled.reshape(len(weights), -1, lanes),
                weights,
            )


def _kinds(
    launch: ResolvedLaunch, part: ResolvedPiece, space: str, offsets: dict[str, int]
) -> dict[tuple[Issued, int], int]:
    """Return how many instructions there are of each kind: the first of its accesses and what to add to its address."""
    kinds: dict[tuple[object, ...], tuple[Issued, int]] = {}
    counts: dict[tuple[Issued, int], int] = defaultdict(int)
    for issued in part.issued:
        access, form = issued.access, issued.address
        if launch.spaces[access.array] != space:
            continue
        shifts = issued.offsets + offsets.get(access.array, 0)
        # Accesses a multiple of the period apart have equal sectors and conflicts: one stands for all.
        residues, first, numbers = np.unique((form.constant + shifts) % PERIOD, return_index=True, return_counts=True)
        for residue, at, number in zip(residues.tolist(), first.tolist(), numbers.tolist(), strict=True):
            same = (access.array, access.direction, form.terms, form.floors, issued.itemsize, issued.loops, residue)
            counts[kinds.setdefault(same, (issued, int(shifts[at])))] += number
    return counts


class _Loops:
    """The sequential loops around a piece's statement."""

    def __init__(self, kernel: str, piece: ResolvedPiece, first: int, items: int) -> None:
        self._kernel = kernel
        self._items = items
        self._dims = len(piece.ranges)
        self._spans = {dim: piece.ranges[dim] for dim in range(first, len(piece.ranges))}
        self._guarded = frozenset[int]().union(*(guard.dims for guard in piece.constraints))

    def iterations(self, issued: Issued) -> tuple[dict[int, np.ndarray], np.ndarray]:
        """Return values of the loops' dimensions, shape (iterations, 1), and how often each stands for one.

        Of a loop that only moves addresses, iterations are left out that repeat others modulo `PERIOD`.
        """
        values: list[tuple[int, np.ndarray, np.ndarray]] = []
        form, kept_from = issued.address, self._dims - issued.loops
        for dim, (start, end) in self._spans.items():
            # What is kept in registers is loaded once for all iterations.
            count = end - start + 1 if dim < kept_from else 1
            kept = count
            # Guards and floors tell iterations apart by more than the address, so none of theirs stands for another.
            if dim not in self._guarded and dim not in form.floor_dims:
                # Addresses repeat modulo the period after so many; a loop that moves none (gcd with 0) keeps one.
                kept = min(count, PERIOD // gcd(PERIOD, form.coefficient(dim)))
            times = np.full(kept, count // kept, dtype=np.int64)
            times[: count % kept] += 1
            values.append((dim, np.arange(start, start + kept, dtype=np.int64), times))
        total = prod(len(times) for _, _, times in values)
        if total * self._items > _MOST_ADDRESSES:
            msg = (
                f"{issued.access.text} in kernel {self._kernel!r} has {total} different iterations in a work-group, "
                "more than data volumes can look at; simplify its guards and subscripts or give smaller sizes"
            )
            raise UnsupportedKernelError(msg, kernel=self._kernel, access=issued.access.text)
        weights = np.ones(1, dtype=np.int64)
        for _, _, times in values:
            weights = (weights[:, None] * times).ravel()
        shape = tuple(len(times) for _, _, times in values)
        indices = np.unravel_index(np.arange(total), shape) if shape else ()
        steps = {dim: chosen[index][:, None] for (dim, chosen, _), index in zip(values, indices, strict=True)}
        return steps, weights
