"""Arithmetic throughput: floating-point operations on private variables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, multiples_of
from uipick._generator import Generator
from uipick.generators._arguments import NELEMENTS, PATTERN_ARGUMENTS
from uipick.generators._arithmetic import make_arithmetic_kernel
from uipick.generators._pattern import PATTERN_CONSTRAINTS
from uipick.generators._recurrence import FLOAT_RECURRENCES, UNROLL

if TYPE_CHECKING:
    import loopy as lp

NVARS = Argument("nvars", "int", "private variables (16 suit devices with few registers)", (16, 32), (32,))
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
    name = f"flops_{operation}_pattern"
    return Generator(
        name=name,
        tags=frozenset({name, "flops"}),
        arguments=(
            *PATTERN_ARGUMENTS,
            NVARS,
            NELEMENTS,
            Argument(
                "m",
                "int",
                "loop iterations",
                multiples_of(recurrence.unroll),
                _ITERATIONS.get(operation, (8, 16, 24, 32)),
            ),
        ),
        build=build,
        size_arguments=("nelements", "m"),
        constraints=PATTERN_CONSTRAINTS,
    )


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
