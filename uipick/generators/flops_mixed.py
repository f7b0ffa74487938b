"""Arithmetic of two kinds at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, multiples_of
from uipick._generator import Generator
from uipick.generators._arguments import NELEMENTS, PATTERN_ARGUMENTS
from uipick.generators._arithmetic import NVARS, make_arithmetic_kernel
from uipick.generators._pattern import PATTERN_CONSTRAINTS
from uipick.generators._recurrence import HALF_RECURRENCES, UNROLL

if TYPE_CHECKING:
    import loopy as lp

_MIXES = ("add_mul", "add_div", "madd_sqrt", "madd_exp", "madd_intadd")


# Any: the pattern's arguments, of the types that their declarations say.
def flops_mixed_pattern(*, dtype: str, mix: str, **arguments: Any) -> lp.TranslationUnit:
    """Throughput of two kinds of operations in turn: m iterations, each updating every private variable once.

    As ``flops_add_pattern``, but the variables with even numbers are updated with the first operation of ``mix`` and
    those with odd numbers with the second, ``intadd`` being the addition of int32; the two do not depend on each
    other. No update depends on the nine before it. Features: ``f_op_<dtype>_<operation>`` for both operations, nvars/2
    times m of each per work-item, beside the final sum. Shows whether a device executes the two at the same time or one
    after the other, that is, whether a model should add their costs.

    Source: after the paper's Section 7.1.2.
    """
    parts = [
        (HALF_RECURRENCES[operation.removeprefix("int")], "int32" if operation.startswith("int") else dtype)
        for operation in mix.split("_")
    ]
    return make_arithmetic_kernel("flops_mixed_pattern", parts, dtype=dtype, **arguments)


FLOPS_MIXED_PATTERN = Generator(
    name="flops_mixed_pattern",
    tags=frozenset({"flops_mixed_pattern", "flops_mixed"}),
    arguments=(
        *PATTERN_ARGUMENTS,
        Argument("mix", "str", "the two operations", _MIXES),
        NVARS,
        NELEMENTS,
        Argument("m", "int", "loop iterations", multiples_of(UNROLL), (64, 128, 192)),
    ),
    build=flops_mixed_pattern,
    size_arguments=("nelements", "m"),
    constraints=PATTERN_CONSTRAINTS,
)
