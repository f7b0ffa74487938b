"""Arguments and constraints that many generators share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from uipick._generator import Argument, Arguments, Constraint, Criterion, integers, multiples_of

if TYPE_CHECKING:
    from collections.abc import Callable


def when_groups_fit(words: str, test: Callable[[Arguments], bool]) -> Constraint:
    """Return a condition on arguments with ``groups_fit:True``."""
    return Constraint(f"groups_fit:True needs {words}", lambda a: not a["groups_fit"] or test(a))


_WORK_GROUP = integers(1, 1024)
_GROUP_STRIDE = Criterion(
    "0 (groups follow each other: lsize times the stride in the group) or a positive integer", lambda value: value >= 0
)

DTYPE = Argument("dtype", "dtype", "element type", ("float32", "float64"))
INT_DTYPE = Argument("dtype", "dtype", "element type", ("int32", "int64"), ("int32",))
LSIZE_0 = Argument("lsize_0", "int", "work-group size along lid(0)", _WORK_GROUP, (16,))
LSIZE_1 = Argument("lsize_1", "int", "work-group size along lid(1)", _WORK_GROUP, (16,))
LSIZE = Argument(
    "lsize",
    "int",
    "work-group size along both lid(0) and lid(1), and rows and columns of tiles",
    integers(1, 32),
    (16,),
)
GROUPS_FIT = Argument(
    "groups_fit", "bool", "work-groups divide the arrays evenly, so no guards are needed", (True, False)
)
GROUPS_FIT_ONLY = Argument("groups_fit", "bool", "work-groups divide the arrays evenly", (True,))
LID_STRIDE_0 = Argument("lid_stride_0", "int", "array elements from one lid(0) to the next", multiples_of(1), (1,))
LID_STRIDE_1 = Argument("lid_stride_1", "int", "array elements from one lid(1) to the next", multiples_of(1), (2048,))
GID_STRIDE_0 = Argument("gid_stride_0", "int", "array elements from one gid(0) to the next", _GROUP_STRIDE, (0,))
GID_STRIDE_1 = Argument("gid_stride_1", "int", "array elements from one gid(1) to the next", _GROUP_STRIDE, (0,))
NELEMENTS = Argument(
    "nelements",
    "int",
    "elements of each global array (gaps left by strides included)",
    multiples_of(1),
    # Multiples of 16 * 2048, so that the default work-groups and strides fit.
    (524288, 786432, 1048576, 1310720),
)
# What every kernel with a simple access pattern takes; the second for kernels that cannot guard remainders.
PATTERN_ARGUMENTS = (DTYPE, LSIZE_0, LSIZE_1, GROUPS_FIT, LID_STRIDE_0, LID_STRIDE_1)
FITTING_PATTERN_ARGUMENTS = (DTYPE, LSIZE_0, LSIZE_1, GROUPS_FIT_ONLY, LID_STRIDE_0, LID_STRIDE_1)
MATRIX_SIZE = Argument("n", "int", "rows and columns of the matrices", multiples_of(1), (512, 640, 768, 896))
ITEMS_FIT = Constraint("nitems must be a multiple of lsize_0", lambda a: a["nitems"] % a["lsize_0"] == 0)
# What current GPUs allow at most.
WORK_GROUP_LIMIT = Constraint(
    "a work-group has at most 1024 work-items (lsize_0 times lsize_1)", lambda a: a["lsize_0"] * a["lsize_1"] <= 1024
)


VECTOR_LSIZE = Argument("lsize_0", "int", "work-group size along lid(0), the only axis", integers(1, 1024), (256,))
VECTOR_SIZE = Argument("n", "int", "elements of each vector", multiples_of(1), (1048576, 2097152, 3145728, 4194304))
VECTOR_FITS = when_groups_fit("n to be a multiple of lsize_0", lambda a: a["n"] % a["lsize_0"] == 0)


def _fits(arguments: Arguments) -> bool:
    step = arguments.get("lsize_2", 1) * arguments.get("chunk", 1)
    fits = arguments["nx"] % arguments["lsize_0"] == 0 and arguments["ny"] % arguments["lsize_1"] == 0
    return bool(fits and arguments.get("nz", step) % step == 0)


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


GRID_2D_CONSTRAINTS = (WORK_GROUP_LIMIT, when_groups_fit("nx and ny to be multiples of lsize_0 and lsize_1", _fits))
GRID_3D_CONSTRAINTS = (
    Constraint(
        "a work-group has at most 1024 work-items (lsize_0 times lsize_1 times lsize_2)",
        lambda a: a["lsize_0"] * a["lsize_1"] * a["lsize_2"] <= 1024,
    ),
    when_groups_fit("nx, ny and nz to be multiples of lsize_0, lsize_1 and lsize_2 times chunk", _fits),
)

# Of kernels with a line of work-items; the second for those that cannot guard remainders.
LINE_LSIZE = Argument("lsize_0", "int", "work-group size along lid(0)", integers(1, 1024), (256,))
LINE_ARGUMENTS = (DTYPE, LINE_LSIZE, GROUPS_FIT)
FITTING_LINE_ARGUMENTS = (DTYPE, LINE_LSIZE, GROUPS_FIT_ONLY)
# Enough for a launch to take a millisecond.
LINE_NELEMENTS = replace(NELEMENTS, default=(4194304, 8388608, 16777216))
LINE_STRIDE = replace(LID_STRIDE_0, allowed=integers(1, 32), default=(1, 2, 4, 8, 16, 32))
CHAINS = Argument(
    "chains",
    "int",
    "loads per iteration, each added to a variable of its own, so that they need not wait for one another",
    integers(1, 16),
    (4,),
)
CHAINS_DIVIDE = Constraint("m must be a multiple of chains", lambda a: a["m"] % a["chains"] == 0)


def whole_items(words: str, elements_per_item: Callable[[Arguments], int]) -> tuple[Constraint, ...]:
    """Return the conditions that ``nelements`` are those of whole work-items, and that work-groups fit where asked."""
    return (
        Constraint(
            f"nelements must be a positive multiple of {words}", lambda a: a["nelements"] % elements_per_item(a) == 0
        ),
        when_groups_fit(
            f"nelements to be a multiple of lsize_0 times {words}",
            lambda a: a["nelements"] % (a["lsize_0"] * elements_per_item(a)) == 0,
        ),
    )
