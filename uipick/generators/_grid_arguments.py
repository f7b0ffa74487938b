"""Arguments and constraints of kernels on grids with two or three axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, integers, multiples_of
from uipick._generator import Constraint
from uipick.generators._arguments import LSIZE_0, LSIZE_1, WORK_GROUP_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping


def _fits(arguments: Mapping[str, Any]) -> bool:
    step = arguments.get("lsize_2", 1) * arguments.get("chunk", 1)
    fits = arguments["nx"] % arguments["lsize_0"] == 0 and arguments["ny"] % arguments["lsize_1"] == 0
    return not arguments["groups_fit"] or (fits and arguments.get("nz", step) % step == 0)


_LEAST_EXTENT = multiples_of(1)
_LSIZE_2 = Argument("lsize_2", "int", "work-group size along lid(2)", integers(1, 64), (1,))
# One element type and no remainders by default: the variants are many without them.
GRID_DTYPE = Argument("dtype", "dtype", "element type", ("float32", "float64"), ("float32",))
FITTING_FIRST = Argument(
    "groups_fit", "bool", "work-groups divide the grid evenly, so no guards are needed", (True, False), (True,)
)
CHUNK = Argument("chunk", "int", "consecutive z planes that each work-item computes", integers(1, 256), (1,))
GRID_2D_ARGUMENTS = (LSIZE_0, LSIZE_1, FITTING_FIRST)
GRID_3D_ARGUMENTS = (LSIZE_0, LSIZE_1, _LSIZE_2, CHUNK, FITTING_FIRST)
GRID_SIZES_2D = (
    Argument("nx", "int", "interior points along x", _LEAST_EXTENT, (2048,)),
    Argument("ny", "int", "interior points along y", _LEAST_EXTENT, (1024, 1536, 2048, 2560)),
)


def grid_sizes_3d(plane: int) -> tuple[Argument, ...]:
    """Return the sizes of a 3-D grid; by default planes have `plane` by `plane` points."""
    return (
        Argument("nx", "int", "interior points along x", _LEAST_EXTENT, (plane,)),
        Argument("ny", "int", "interior points along y", _LEAST_EXTENT, (plane,)),
        Argument("nz", "int", "interior points along z", _LEAST_EXTENT, (32, 64, 96, 128)),
    )


GRID_2D_CONSTRAINTS = (
    WORK_GROUP_LIMIT,
    Constraint("groups_fit:True needs nx and ny to be multiples of lsize_0 and lsize_1", _fits),
)
GRID_3D_CONSTRAINTS = (
    Constraint(
        "a work-group has at most 1024 work-items (lsize_0 times lsize_1 times lsize_2)",
        lambda a: a["lsize_0"] * a["lsize_1"] * a["lsize_2"] <= 1024,
    ),
    Constraint(
        "groups_fit:True needs nx, ny and nz to be multiples of lsize_0, lsize_1 and lsize_2 times chunk", _fits
    ),
)
