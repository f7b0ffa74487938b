"""Arguments that many generators share."""

from __future__ import annotations

from uipick._argument import Argument, Criterion, integers, multiples_of
from uipick._generator import Constraint

_WORK_GROUP = integers(1, 1024)
_GROUP_STRIDE = Criterion(
    "0 (groups follow each other: lsize times the stride in the group) or a positive integer",
    lambda value: value >= 0,
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
# What current GPUs allow at most.
WORK_GROUP_LIMIT = Constraint(
    "a work-group has at most 1024 work-items (lsize_0 times lsize_1)",
    lambda a: a["lsize_0"] * a["lsize_1"] <= 1024,
)
