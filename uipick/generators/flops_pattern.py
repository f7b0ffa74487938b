"""Arithmetic throughput: additions, multiplications, multiply-adds on private variables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from uipick._argument import Argument, multiples_of
from uipick._generator import Generator
from uipick.generators._arguments import NELEMENTS, PATTERN_ARGUMENTS
from uipick.generators._pattern import PATTERN_CONSTRAINTS, make_pattern_kernel

if TYPE_CHECKING:
    import loopy as lp

__all__ = ["FLOPS_ADD_PATTERN", "FLOPS_MADD_PATTERN", "FLOPS_MUL_PATTERN"]

UNROLL = 64

# Update number t computes x[t] from x[t-13] and x[t-11]. For the additive updates, a sequence of period 6 with
# x[t] = x[t-1] + x[t+1] solves that recurrence (13 = 1 and 11 = -1 modulo 6), so that small integers stay small
# integers: exact, finite and never denormal, however long the loop runs. For products, 1 and -1 do the same.
_FIRST, _SECOND = 13, 11
# The starting values depend on both local ids, lest a compiler compute one value for a whole work-group; they are
# integers, lest they count as arithmetic of the kind that is measured.
_START_SUM = (
    ("item", "l0 + {lsize_0}*l1"),
    ("next", "item + 1"),
    ("minus_item", "-item"),
    ("minus_next", "-item - 1"),
)
_SUMS = ("next", "item", "-1", "minus_next", "minus_item", "1")
_START_PRODUCT = (("sign", "1 - 2*((l0 + l1) % 2)"), ("other", "2*((l0 + l1) % 2) - 1"))
_PRODUCTS = ("sign", "other", "1", "sign", "1")


def _start(operation: str, lsize_0: int, dtype: str, count: int) -> list[str]:
    values, cycle = (_START_PRODUCT, _PRODUCTS) if operation == "mul" else (_START_SUM, _SUMS)
    body = [f"<int32> {name} = {value.format(lsize_0=lsize_0)}" for name, value in values]
    return body + [f"<{dtype}> x{v} = {cycle[v % len(cycle)]}" for v in range(count)]


def _update(operation: str, number: int, count: int) -> str:
    first, second = f"x{(number - _FIRST) % count}", f"x{(number - _SECOND) % count}"
    expression = {
        "add": f"{first} + {second}",
        "mul": f"{first} * {second}",
        "madd": f"{first} * one + {second}",
    }[operation]
    return f"x{number} = {expression}"


def _flops(
    operation: str,
    *,
    dtype: str,
    lsize_0: int,
    lsize_1: int,
    groups_fit: bool,
    lid_stride_0: int,
    lid_stride_1: int,
    nvars: int,
) -> lp.TranslationUnit:
    import loopy as lp
    import numpy as np

    numbers = range(nvars)
    body = _start(operation, lsize_0, dtype, nvars)
    if operation == "madd":
        # Always 1, which a compiler cannot know (nor infer from the loop's being entered).
        body.append(f"<{dtype}> one = 1 if m < 1000000000 else 0")
    body += ["for k_outer, k_inner", *(_update(operation, v, nvars) for v in numbers), "end"]
    body.append("result$resST[{index}] = " + " + ".join(f"x{v}" for v in numbers))
    kernel = make_pattern_kernel(
        f"flops_{operation}_pattern",
        {
            "lsize_0": lsize_0,
            "lsize_1": lsize_1,
            "groups_fit": groups_fit,
            "lid_stride_0": lid_stride_0,
            "lid_stride_1": lid_stride_1,
        },
        body,
        [
            lp.GlobalArg("result", np.dtype(dtype), shape="nelements", is_input=False, is_output=True),
            lp.ValueArg("m", np.int32),
        ],
        loops=[f"{{[k_outer, k_inner]: 0 <= k_inner < {UNROLL} and 0 <= {UNROLL}*k_outer < m}}"],
        assume=f"m >= {UNROLL} and m mod {UNROLL} = 0",
    )
    return lp.tag_inames(kernel, "k_inner:unr")


def _described(operation: str, words: str, form: str) -> Generator:
    # A partial object for its docstring: the three generators differ in nothing else.
    build = partial(_flops, operation)
    build.__doc__ = f"""Throughput of {words}: m loop iterations, each updating every private variable once.

    Each work-item initialises 32 private variables (``nvars``), then repeats m times: for each variable in turn
    ``{form}``. No update depends on the ten before it; the loop is unrolled by {UNROLL}. At the end the
    variables are summed (one addition fewer than there are variables) and stored with a simple pattern (access tag
    ``resST``). Isolates ``f_op_<dtype>_{operation}``: nvars times m of them per work-item.

    Source: the paper's Section 7.1.2, after SHOC's MaxFlops (Danalis et al., 2010).
    """
    name = f"flops_{operation}_pattern"
    return Generator(
        name=name,
        tags=frozenset({name, "flops"}),
        arguments=(
            *PATTERN_ARGUMENTS,
            Argument("nvars", "int", "private variables (16 suit devices with few registers)", (16, 32), (32,)),
            NELEMENTS,
            Argument("m", "int", "loop iterations", multiples_of(UNROLL), (1024, 1152, 1280, 1408)),
        ),
        build=build,
        size_arguments=("nelements", "m"),
        constraints=PATTERN_CONSTRAINTS,
    )


FLOPS_ADD_PATTERN = _described("add", "additions", "x = y + z")
FLOPS_MUL_PATTERN = _described("mul", "multiplications", "x = y * z")
FLOPS_MADD_PATTERN = _described("madd", "multiply-adds", "x = y * one + z")
