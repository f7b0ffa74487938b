"""Multiply-adds on operands from local memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument, multiples_of
from uipick._generator import Constraint, Generator
from uipick.generators._arguments import FITTING_PATTERN_ARGUMENTS, NELEMENTS
from uipick.generators._kernel import local_array, size_parameters, stored_array
from uipick.generators._pattern import PATTERN_CONSTRAINTS, make_pattern_kernel

if TYPE_CHECKING:
    import loopy as lp


def lmem_madd(*, dtype: str, lsize_0: int, lsize_1: int, depth: int, **pattern: int | bool) -> lp.TranslationUnit:
    """Multiply-adds on operands from local memory, in m rounds between barriers.

    In each round the work-group fills two local tiles, of lsize_1 by depth and depth by lsize_0 elements; after a
    barrier each work-item adds up the products of its row of one and its column of the other; a barrier ends the
    round. At the end it stores its sum (access tag ``resST``). No global memory is read, and the sums mean nothing:
    the sign of the operands alternates between rounds, which keeps them bounded. Features, m depth per work-item:
    ``f_op_<dtype>_madd``, and twice as many ``f_mem_access_local_<dtype>_load``, half of them with lid(0) stride 0;
    beside them 2 m local barriers and the local stores. Isolates the cost of a local load that feeds arithmetic, which
    moves (``lmem_move``) overstate where stores are dearer than loads.

    Source: after the paper's Section 7.1.2, local memory access.
    """
    arguments = {"lsize_0": lsize_0, "lsize_1": lsize_1, **pattern}
    return make_pattern_kernel(
        "lmem_madd",
        arguments,
        [
            f"<int32> item = l0 + {lsize_0}*l1",
            f"<{dtype}> total = item",
            "for round",
            "<int32> sign = 1 - 2*(round % 2)",
            *(f"rows[l1, l0 + {lsize_0 * part}] = sign" for part in range(depth // lsize_0)),
            *(f"columns[l1 + {lsize_1 * part}, l0] = item" for part in range(depth // lsize_1)),
            "for k",
            "total = total + rows[l1, k] * columns[k, l0]",
            "end",
            "end",
            "result$resST[{index}] = total",
        ],
        [
            local_array("rows", dtype, (lsize_1, depth)),
            local_array("columns", dtype, (depth, lsize_0)),
            stored_array("result", dtype, "nelements"),
            size_parameters("m"),
        ],
        loops=[f"{{[round, k]: 0 <= round < m and 0 <= k < {depth}}}"],
        assume="m >= 1",
    )


LMEM_MADD = Generator(
    name="lmem_madd",
    tags=frozenset({"lmem_madd", "lmem"}),
    arguments=(
        *FITTING_PATTERN_ARGUMENTS,
        Argument("depth", "int", "multiply-adds per work-item and round", (8, 16, 32, 64), (16, 32)),
        NELEMENTS,
        Argument("m", "int", "rounds", multiples_of(1), (8, 16, 32)),
    ),
    build=lmem_madd,
    size_arguments=("nelements", "m"),
    constraints=(
        *PATTERN_CONSTRAINTS,
        Constraint(
            "depth must be a multiple of lsize_0 and of lsize_1",
            lambda a: a["depth"] % a["lsize_0"] == 0 and a["depth"] % a["lsize_1"] == 0,
        ),
    ),
)
