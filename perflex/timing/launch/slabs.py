"""Launching a part of a kernel's grid: boxes of work-groups that run as they do in the full launch.

The code is the full launch's but for one thing: group ids begin where the slab begins. So a slab reads and writes what
its work-groups read and write in the full launch, at the real sizes and in the real layout of the data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from perflex.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.devices.device import Api
    from perflex.timing.launch.sizes import Grid

# Parameters that each device program gets for it, by axis. Not the offset that OpenCL's launches have: with it,
# compilers no longer see which accesses lie next to each other, and make code up to twice as slow.
_FIRST = "perflex_first_"
_AXES: Mapping[Api, tuple[str, ...]] = {"opencl": ("0", "1", "2"), "cuda": ("x", "y", "z")}
AXES = 3
# The golden ratio's fraction, whose multiples lie most evenly, and another for the third axis.
_IRRATIONAL = ((5**0.5 - 1) / 2, 3**0.5 - 1)

# loopy's macros for the group id, which hold the kernel's index type.
_MACROS: Mapping[Api, re.Pattern[str]] = {
    "opencl": re.compile(r"^(#define gid\(N\) \(\([\w ]+\) get_group_id\(N\))\)$", re.MULTILINE),
    "cuda": re.compile(r"^(#define bIdx\(N\) \(\([\w ]+\) blockIdx\.N)\)$", re.MULTILINE),
}
# What tells a kernel of the grid's extent, or of its group otherwise than by the macro.
_OF_GRID: Mapping[Api, re.Pattern[str]] = {
    "opencl": re.compile(r"\bget_(?:group_id|num_groups|global_\w+)\s*\("),
    "cuda": re.compile(r"\b(?:blockIdx|gridDim)\b"),
}
# The parameters of a device program, which begins with one of these words and has a body.
_PARAMETERS = re.compile(r"(\b__(?:kernel|global__)\b[^;{]*?)\)(?=\s*\{)")


@dataclass(frozen=True)
class Slab:
    """A box of work-groups of one device program.

    Attributes
    ----------
    program
        Which of the kernel's device programs, in launch order.
    first
        Group id of its first work-group, by axis.
    groups
        Work-groups by axis.
    """

    program: int
    first: tuple[int, ...]
    groups: tuple[int, ...]

    @property
    def offsets(self) -> tuple[int, int, int]:
        """Its first group ids on all three axes: what the parameters that the code has for it take."""
        x, y, z = (*self.first, 0, 0)[:AXES]
        return x, y, z

    @property
    def count(self) -> int:
        """How many work-groups it has."""
        return prod(self.groups)


def code_for_slabs(source: str, api: Api, label: str) -> str:
    """Return code whose group ids begin at the slab's first.

    Raises
    ------
    MeasurementError
        The code asks for the grid otherwise than by loopy's macro for group ids.
    """
    if _OF_GRID[api].search(_MACROS[api].sub("", source)):
        msg = f"{label}: its code asks for the extent of its grid, so that no part of it can be launched; time it whole"
        raise MeasurementError(msg, kernel=label)
    added = ", ".join(f"int const {_FIRST}{axis}" for axis in _AXES[api])

    def with_parameters(found: re.Match[str]) -> str:
        head = found[1]
        return f"{head}{'' if head.endswith('(') else ', '}{added})"

    return _PARAMETERS.sub(with_parameters, _MACROS[api].sub(rf"\1 + {_FIRST}##N)", source))


def slab_around(program: int, grid: Grid, centre: Sequence[float], count: int) -> Slab:
    """Return a slab of about `count` work-groups around a place of the grid.

    Groups are numbered with axis 0 fastest. A slab is a box: of less than a row, of whole rows, or of whole planes.

    Parameters
    ----------
    program, grid
        The device program and its grid.
    centre
        Where the middle of the box lies on each axis, as a share of the axis; the box lies where it fits into the grid.
    count
        How many, at least one; rounded down to whole rows or planes where there are more than one.
    """
    first: list[int] = []
    groups: list[int] = []
    for axis, extent in enumerate(grid.groups):
        taken = max(1, min(extent, count // prod(grid.groups[:axis])))
        groups.append(taken)
        first.append(max(0, min(int(centre[axis] * extent - taken / 2), extent - taken)))
    return Slab(program, tuple(first), tuple(groups))


def spread_slabs(program: int, grid: Grid, slabs: int, count: int) -> list[Slab]:
    """Return slabs of about `count` work-groups each that lie evenly along every axis of the grid.

    On each axis they lie in the middles of as many equal parts, one in each (a Latin hypercube), so that work that
    changes along any axis is averaged. Along the last axis they follow one another, along the others in the order of
    the multiples of an irrational number modulo 1 (Kronecker sequences), so that no two axes go together.
    """
    ways = [list(range(slabs))]
    for number in _IRRATIONAL:
        sequence = [number * (place + 1) % 1.0 for place in range(slabs)]
        ways.append([sorted(sequence).index(value) for value in sequence])
    axes = len(grid.groups)
    return [
        slab_around(program, grid, [(ways[axes - 1 - axis][place] + 0.5) / slabs for axis in range(axes)], count)
        for place in range(slabs)
    ]
