"""Arguments and constraints that many generators share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perflex.formula import parse_formula
from uipick._generator import Argument, Constraint, Criterion, integers, multiples_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from uipick._generator import Arguments, Kind, Value


def positive(name: str, meaning: str, *default: int) -> Argument:
    """Return an argument whose values are integers of at least 1."""
    return Argument(name, "int", meaning, multiples_of(1), default)


def within(name: str, meaning: str, least: int, most: int, *default: int) -> Argument:
    """Return an argument whose values are integers from `least` to `most`."""
    return Argument(name, "int", meaning, integers(least, most), default)


def choice(name: str, meaning: str, allowed: Sequence[Value], *default: Value) -> Argument:
    """Return an argument with a list of values (booleans, integers or words), which are the default if none is."""
    kinds: dict[type, Kind] = {bool: "bool", int: "int", str: "str"}
    return Argument(name, kinds[type(allowed[0])], meaning, tuple(allowed), default)


def needs(tag: str, condition: str, test: Callable[[Arguments], bool] | None = None) -> Constraint:
    """Return a condition, as of a `Constraint`, on arguments with the value that a tag names: ``"prefetch:True"``."""
    name, _, value = tag.partition(":")
    inner = Constraint(condition, test)
    return Constraint(f"{tag} needs {condition}", lambda a: str(a[name]) != value or inner.holds(a))


LOCAL_BYTES = 32768
"""The least local memory that OpenCL guarantees to a work-group of a full profile."""


def in_local_memory(elements: str, tag: str = "") -> Constraint:
    """Return the condition that so many elements, a formula, take at most `LOCAL_BYTES`; of arguments with a tag."""
    words, count = f"{elements} elements in at most 32 KiB of local memory", parse_formula(elements).value

    def fits(arguments: Arguments) -> bool:
        return bool(count(arguments) * np.dtype(arguments["dtype"]).itemsize <= LOCAL_BYTES)

    return needs(tag, words, fits) if tag else Constraint(words, fits)


def dtypes(*allowed: str, default: Sequence[str] = ()) -> Argument:
    """Return the argument that chooses the element type."""
    return Argument("dtype", "dtype", "element type", allowed, tuple(default))


_GROUP_STRIDE = Criterion(
    "0 (groups follow each other: lsize times the stride in the group) or a positive integer", lambda value: value >= 0
)
_EVENLY = "work-groups divide the {} evenly, so no guards are needed"

DTYPE = dtypes("float32", "float64")
INT_DTYPE = dtypes("int32", "int64", default=("int32",))
LSIZE_0 = within("lsize_0", "work-group size along lid(0)", 1, 1024, 16)
LSIZE_1 = within("lsize_1", "work-group size along lid(1)", 1, 1024, 16)
LSIZE = within("lsize", "work-group size along both lid(0) and lid(1), and rows and columns of tiles", 1, 32, 16)
GROUPS_FIT = choice("groups_fit", _EVENLY.format("arrays"), (True, False))
GROUPS_FIT_ONLY = choice("groups_fit", "work-groups divide the arrays evenly", (True,))
LID_STRIDE_0 = positive("lid_stride_0", "array elements from one lid(0) to the next", 1)
LID_STRIDE_1 = positive("lid_stride_1", "array elements from one lid(1) to the next", 2048)
GID_STRIDES = tuple(
    Argument(f"gid_stride_{axis}", "int", f"array elements from one gid({axis}) to the next", _GROUP_STRIDE, (0,))
    for axis in (0, 1)
)
# Multiples of 16 * 2048, so that the default work-groups and strides fit.
NELEMENTS = positive(
    "nelements", "elements of each global array (gaps left by strides included)", 524288, 786432, 1048576, 1310720
)
# What every kernel with a simple access pattern takes; the second for kernels that cannot guard remainders.
PATTERN_ARGUMENTS = (DTYPE, LSIZE_0, LSIZE_1, GROUPS_FIT, LID_STRIDE_0, LID_STRIDE_1)
FITTING_PATTERN_ARGUMENTS = (DTYPE, LSIZE_0, LSIZE_1, GROUPS_FIT_ONLY, LID_STRIDE_0, LID_STRIDE_1)
SQUARE_ARGUMENTS = (LSIZE_0, LSIZE_1, GROUPS_FIT)
MATRIX_SIZE = positive("n", "rows and columns of the matrices", 512, 640, 768, 896)
# What current GPUs allow at most.
WORK_GROUP_LIMIT = Constraint("lsize_0 * lsize_1 <= 1024")

VECTOR_ARGUMENTS = (within("lsize_0", "work-group size along lid(0), the only axis", 1, 1024, 256), GROUPS_FIT)
VECTOR_SIZE = positive("n", "elements of each vector", 1048576, 2097152, 3145728, 4194304)

# One element type and no remainders by default: the variants are many without them.
GRID_DTYPE = replace(DTYPE, default=("float32",))
FITTING_FIRST = choice("groups_fit", _EVENLY.format("grid"), (True, False), True)
_CHUNK = within("chunk", "consecutive z planes that each work-item computes", 1, 256, 1)
GRID_2D_ARGUMENTS = (LSIZE_0, LSIZE_1, FITTING_FIRST)
GRID_3D_ARGUMENTS = (
    LSIZE_0, LSIZE_1, within("lsize_2", "work-group size along lid(2)", 1, 64, 1), _CHUNK, FITTING_FIRST,
)  # fmt: skip
GRID_3D_LIMIT = Constraint("lsize_0 * lsize_1 * lsize_2 <= 1024")
GRID_3D_FITS = "nx % lsize_0, ny % lsize_1, nz % (lsize_2 * chunk)"
_NX, _NY = (positive(f"n{axis}", f"interior points along {axis}", 2048) for axis in "xy")
GRID_SIZES_2D = (_NX, replace(_NY, default=(1024, 1536, 2048, 2560)))


def grid_sizes_3d(plane: int) -> tuple[Argument, ...]:
    """Return the sizes of a 3-D grid; by default planes have `plane` by `plane` points."""
    nz = positive("nz", "interior points along z", 32, 64, 96, 128)
    return (replace(_NX, default=(plane,)), replace(_NY, default=(plane,)), nz)


# Of kernels with a line of work-items; the second for those that cannot guard remainders.
LINE_LSIZE = within("lsize_0", "work-group size along lid(0)", 1, 1024, 256)
LINE_ARGUMENTS = (DTYPE, LINE_LSIZE, GROUPS_FIT)
FITTING_LINE_ARGUMENTS = (DTYPE, LINE_LSIZE, GROUPS_FIT_ONLY)
ITEMS_FIT = Constraint("nitems % lsize_0 == 0")
# Enough for a launch to take a millisecond.
LINE_NELEMENTS = replace(NELEMENTS, default=(4194304, 8388608, 16777216))
LINE_STRIDE = replace(LID_STRIDE_0, allowed=integers(1, 32), default=(1, 2, 4, 8, 16, 32))
CHAINS = within(
    "chains",
    "loads per iteration, each added to a variable of its own, so that they need not wait for one another",
    1, 16, 4,
)  # fmt: skip
CHAINS_DIVIDE = Constraint("m % chains == 0")


def whole_items(elements: str) -> tuple[Constraint, ...]:
    """Return the conditions that ``nelements`` are those of whole work-items, and of whole work-groups where asked."""
    fitting = needs("groups_fit:True", f"nelements % (lsize_0 * {elements}) == 0")
    return (Constraint(f"nelements % ({elements}) == 0"), fitting)
