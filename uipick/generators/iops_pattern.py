"""Arithmetic throughput: integer operations on private variables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from uipick.generators._arguments import INT_DTYPE
from uipick.generators._arithmetic import arithmetic_generator, make_arithmetic_kernel
from uipick.generators._recurrence import INT_RECURRENCES, UNROLL

if TYPE_CHECKING:
    import loopy as lp

    from uipick._generator import Generator


# Any: the pattern's arguments, of the types that their declarations say.
def _iops(operation: str, *, dtype: str, **arguments: Any) -> lp.TranslationUnit:
    recurrence = INT_RECURRENCES[operation]
    return make_arithmetic_kernel(f"iops_{operation}_pattern", [(recurrence, dtype)], dtype=dtype, **arguments)


def _described(operation: str, words: str, form: str, times: str = "nvars times m") -> Generator:
    build = partial(_iops, operation)
    before = min(INT_RECURRENCES[operation].offsets) - 1
    build.__doc__ = f"""Throughput of integer {words}: m iterations, each updating every private variable once.

    Each work-item initialises 32 private integers (``nvars``), then repeats m times: for each variable in turn
    ``{form}``. No update depends on the {before} before it, none overflows, and the loop is unrolled by {UNROLL}. At
    the end the variables are summed (one addition fewer than there are variables) and stored with a simple pattern
    (access tag ``resST``). Isolates ``f_op_<dtype>_{operation}``: {times} of them per work-item, beside a few
    integer operations for the starting values.

    Source: the paper's Section 7.1.2, after SHOC's MaxFlops (Danalis et al., 2010), with integers.
    """
    return arithmetic_generator("iops", operation, build, INT_DTYPE, UNROLL, (1024, 1152, 1280, 1408))


IOPS_ADD_PATTERN = _described("add", "additions", "x = y + z")
IOPS_MUL_PATTERN = _described("mul", "multiplications", "x = y * z")
IOPS_MADD_PATTERN = _described("madd", "multiply-adds", "x = y * one + z")
IOPS_BIT_PATTERN = _described("bit", "bit operations", "x = x ^ (y & z)", "twice nvars times m")
IOPS_SHIFT_PATTERN = _described("shift", "shifts", "x = y << zero")
