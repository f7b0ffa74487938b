"""The grids and neighbours that a stencil reads, and what a cache must hold for reuse in a block."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.polynomials.cardinality import at_sizes, card_at
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.features.scop.scop import Access, Scop, Statement

Offset = tuple[int, int, int]
_AXES = 3


@dataclass(frozen=True)
class Grid:
    """One grid: an array, or that part of one that a constant leading index selects.

    `offsets` are the neighbours that computing a point touches, as steps along x (the contiguous axis), y and z.
    """

    name: str
    offsets: frozenset[Offset]
    itemsize: int
    stored: bool

    @property
    def halo(self) -> Offset:
        """Points beyond a block along x, y and z, both sides together."""
        spans = [[offset[axis] for offset in self.offsets] for axis in range(_AXES)]
        return (max(spans[0]) - min(spans[0]), max(spans[1]) - min(spans[1]), max(spans[2]) - min(spans[2]))

    @property
    def rows(self) -> int:
        """Rows that lie between the first and the last touch of a row of the same plane, of all planes touched."""
        by_plane: dict[int, list[int]] = {}
        for offset in self.offsets:
            by_plane.setdefault(offset[2], []).append(offset[1])
        # A star of radius r has 2r + 1 rows in its own plane and one in 2r others: the 4r + 1 of Equation 10a.
        return sum(max(rows) - min(rows) + 1 for rows in by_plane.values())

    @property
    def planes(self) -> int:
        """Planes that lie between the first and the last touch of a plane."""
        return self.halo[2] + 1


@dataclass(frozen=True)
class GridStencil:
    """A kernel that computes each point of a grid (`extents` along x, y and z) from neighbours in grids."""

    name: str
    extents: tuple[int, int, int]
    grids: tuple[Grid, ...]


def read_grids(scop: Scop, sizes: Mapping[str, int]) -> GridStencil:
    """Return the grids of a kernel; an UnsupportedKernelError names an access that does not move with the others.

    Each instance of its statements computes one point; how loops, work-items and work-groups go over the points does
    not matter.
    """
    scop.check_sizes(sizes)
    found: dict[str, tuple[set[Offset], int, bool]] = {}
    movements: dict[Offset, str] = {}
    with ISL_LOCK:
        for statement in scop.statements:
            for access in statement.accesses:
                array = scop.array(access.array)
                if array.memory != "global":
                    continue
                if not array.shape and access.direction == "load":
                    # A number that all points read is no grid, and takes no cache.
                    continue
                first, last = _ends(scop, statement, access, sizes)
                lead, place = first[:-_AXES], first[-_AXES:]
                movement = _reversed([after - before for before, after in zip(place, last[-_AXES:], strict=True)])
                movements.setdefault(movement, access.text or access.array)
                if len(movements) > 1 or last[:-_AXES] != lead:
                    raise _refused(scop, access, f"moves otherwise than {next(iter(movements.values()))}")
                name = access.array + "".join(f"[{index}]" for index in lead)
                offsets, itemsize, stored = found.get(name, (set(), array.itemsize, False))
                offsets.add(_reversed(place))
                found[name] = (offsets, itemsize, stored or access.direction == "store")
    if not found:
        msg = f"kernel {scop.name!r} touches no global array; there is nothing to block"
        raise UnsupportedKernelError(msg, kernel=scop.name)
    (movement,) = movements
    grids = tuple(Grid(name, frozenset(offsets), size, stored) for name, (offsets, size, stored) in found.items())
    return GridStencil(scop.name, (movement[0] + 1, movement[1] + 1, movement[2] + 1), grids)


def _reversed(place: Sequence[int]) -> Offset:
    return (place[2], place[1], place[0])


def _refused(scop: Scop, access: Access, reason: str) -> UnsupportedKernelError:
    what = access.text or access.array
    msg = f"kernel {scop.name!r} is no stencil on a grid whose blocks could be chosen: {what} {reason}"
    return UnsupportedKernelError(msg, kernel=scop.name, access=what)


def _ends(
    scop: Scop, statement: Statement, access: Access, sizes: Mapping[str, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the index tuples of the first and the last instance; with fewer than three axes, zeros before."""
    array = scop.array(access.array)
    strides = [int(stride.evaluate(sizes)) for stride in access.strides or array.strides]
    if not strides:
        raise _refused(scop, access, "is of an array without axes")
    if strides != sorted(strides, reverse=True) or strides[-1] != 1:
        raise _refused(scop, access, "is no access of an array whose last axis is contiguous")
    domain = at_sizes(statement.domain, sizes)
    relation = at_sizes(access.relation, sizes)
    if domain.is_empty() or not relation.is_single_valued():
        raise _refused(scop, access, "touches no element at these sizes, or one of several")
    ends = []
    for end in (domain.lexmin(), domain.lexmax()):
        point = end.apply(relation).sample_point()
        index = [point.get_coordinate_val(isl.dim_type.set, i).to_python() for i in range(len(strides))]
        ends.append((*(0 for _ in range(_AXES - len(index))), *(int(value) for value in index)))
    spans = [abs(after - before) + 1 for before, after in zip(*ends, strict=True)]
    # Between two ends that are opposite corners of a box lie as many instances as the box has points.
    # Counted by formula: isl's own count lists the points, of which there may be too many.
    if prod(spans) != card_at(domain, ()):
        raise _refused(scop, access, "is executed for points that fill no box")
    return ends[0], ends[1]


def needed_bytes(
    stencil: GridStencil, reuse: str, blocks: NDArray[np.int64], *, halo: bool = True
) -> NDArray[np.int64]:
    """Return the bytes that a cache must exceed for reuse (``"row"`` or ``"plane"``) in blocks, shape ``(n,)``.

    Blocks are points along x, y and z, shape ``(n, 3)``. Without `halo`, rows and planes are as in Equation 10.
    """
    total = np.zeros(len(blocks), np.int64)
    for grid in stencil.grids:
        beside = grid.halo if halo else (0, 0, 0)
        row = blocks[:, 0] + beside[0]
        total += grid.itemsize * (grid.rows * row if reuse == "row" else grid.planes * row * (blocks[:, 1] + beside[1]))
    return total
