"""Arithmetic throughput: floating-point operations on private variables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from uipick.generators._arguments import DTYPE
from uipick.generators._arithmetic import arithmetic_generator, make_arithmetic_kernel
from uipick.generators._recurrence import FLOAT_RECURRENCES, UNROLL

if TYPE_CHECKING:
    import loopy as lp

    from uipick._generator import Generator

_MANY, _FEWER = (1024, 1152, 1280, 1408), (64, 128, 192, 256)
# By how long an operation takes; functions, with fewest, are the rest.
_ITERATIONS = {"add": _MANY, "mul": _MANY, "madd": _MANY, "div": _FEWER, "sqrt": _FEWER}


# Any: the pattern's arguments, of the types that their declarations say.
def _flops(operation: str, *, dtype: str, **arguments: Any) -> lp.TranslationUnit:
    recurrence = FLOAT_RECURRENCES[operation]
    return make_arithmetic_kernel(f"flops_{operation}_pattern", [(recurrence, dtype)], dtype=dtype, **arguments)


def _described(operation: str, words: str, form: str, remark: str = "") -> Generator:
    # A partial object for its docstring: the generators differ in nothing else.
    build = partial(_flops, operation)
    recurrence = FLOAT_RECURRENCES[operation]
    unrolled = f"; the loop is unrolled by {UNROLL}" if recurrence.unroll == UNROLL else "; the loop is not unrolled"
    build.__doc__ = f"""Throughput of {words}: m loop iterations, each updating every private variable once.

    Each work-item initialises 32 private variables (``nvars``), then repeats m times: for each variable in turn
    ``{form}``. No update depends on the {min(recurrence.offsets) - 1} before it{unrolled}. At the end the
    variables are summed (one addition fewer than there are variables) and stored with a simple pattern (access tag
    ``resST``). Isolates ``f_op_<dtype>_{operation}``: nvars times m of them per work-item.{remark and " " + remark}

    Source: the paper's Section 7.1.2, after SHOC's MaxFlops (Danalis et al., 2010).
    """
    iterations = _ITERATIONS.get(operation, (8, 16, 24, 32))
    return arithmetic_generator("flops", operation, build, DTYPE, recurrence.unroll, iterations)


FLOPS_ADD_PATTERN = _described("add", "additions", "x = y + z")
FLOPS_MUL_PATTERN = _described("mul", "multiplications", "x = y * z")
FLOPS_MADD_PATTERN = _described("madd", "multiply-adds", "x = y * one + z")
FLOPS_DIV_PATTERN = _described("div", "divisions", "x = y / z", "All values are powers of two from 1/8 to 8.")
FLOPS_SQRT_PATTERN = _described("sqrt", "square roots", "x = sqrt(y)", "The values tend to 1.")
FLOPS_RSQRT_PATTERN = _described("rsqrt", "reciprocal square roots", "x = rsqrt(y)", "The values tend to 1.")
FLOPS_EXP_PATTERN = _described(
    "exp",
    "exponentials",
    "x = exp(-y)",
    "The sign, which does not count as an operation, makes the values tend to 0.567.",
)
FLOPS_SIN_PATTERN = _described(
    "sin",
    "sines",
    "x = sin(y)",
    "The values sink slowly towards 0, not below 0.0001: what large arguments cost to reduce does not show.",
)
FLOPS_COS_PATTERN = _described(
    "cos",
    "cosines",
    "x = cos(y)",
    "The values tend to 0.739: what large arguments cost to reduce does not show.",
)
