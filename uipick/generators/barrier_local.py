"""Local barriers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument, multiples_of
from uipick._generator import Generator
from uipick.generators._arguments import FITTING_PATTERN_ARGUMENTS, NELEMENTS
from uipick.generators._kernel import size_parameters, stored_array
from uipick.generators._pattern import PATTERN_CONSTRAINTS, make_pattern_kernel

if TYPE_CHECKING:
    import loopy as lp


def barrier_local(*, dtype: str, **pattern: int | bool) -> lp.TranslationUnit:
    """Local barriers: m of them per work-item, in a loop.

    At the end each work-item stores its local id (access tag ``resST``) with a simple pattern. Isolates
    ``f_sync_barrier_local``. Work-groups always fit, since every work-item must reach each barrier.

    Source: the paper's Section 7.1.2, other features.
    """
    return make_pattern_kernel(
        "barrier_local",
        pattern,
        [
            "for k",
            "... lbarrier",
            "end",
            f"<int32> item = l0 + {pattern['lsize_0']}*l1",
            "result$resST[{index}] = item",
        ],
        [
            stored_array("result", dtype, "nelements"),
            size_parameters("m"),
        ],
        loops=["{[k]: 0 <= k < m}"],
        assume="m >= 1",
    )


BARRIER_LOCAL = Generator(
    name="barrier_local",
    tags=frozenset({"barrier_local", "barrier"}),
    arguments=(
        *FITTING_PATTERN_ARGUMENTS,
        NELEMENTS,
        Argument("m", "int", "barriers per work-item", multiples_of(1), (64, 128, 192, 256)),
    ),
    build=barrier_local,
    size_arguments=("nelements", "m"),
    constraints=PATTERN_CONSTRAINTS,
)
