"""Local and global memory accesses in a given ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument, Criterion
from uipick._generator import Generator
from uipick.generators._arguments import FITTING_PATTERN_ARGUMENTS, NELEMENTS
from uipick.generators._kernel import loaded_array
from uipick.generators._local_moves import LOCAL_MEMORY_FITS, make_moves_kernel, move_sizes
from uipick.generators._pattern import PATTERN_CONSTRAINTS

if TYPE_CHECKING:
    import loopy as lp


def overlap_ratio(*, dtype: str, lsize_0: int, lsize_1: int, **pattern: int | bool) -> lp.TranslationUnit:
    """One global load, m local load-store sequences, one global store per work-item.

    Shows how much of the cost of on-chip work hides behind global memory access as m grows. The loaded value
    (access tag ``inLD``) fills the work-item's own elements of a local array; they are moved m times as in
    ``lmem_move``, and one is stored (``resST``). Features: ``f_mem_access_global_<dtype>``, 2 per work-item, and
    ``f_mem_access_local_<dtype>``, 2 m + m_inner + 1 per work-item.

    Source: the paper's Section 7.4.
    """
    return make_moves_kernel(
        "overlap_ratio",
        {"dtype": dtype, "lsize_0": lsize_0, "lsize_1": lsize_1, **pattern},
        [f"<{dtype}> value = in0$inLD[{{index}}]"],
        "value",
        [loaded_array("in0", dtype, "nelements")],
    )


OVERLAP_RATIO = Generator(
    name="overlap_ratio",
    tags=frozenset({"overlap_ratio", "overlap"}),
    arguments=(
        *FITTING_PATTERN_ARGUMENTS,
        NELEMENTS,
        Argument(
            "m",
            "int",
            "local load-store sequences per work-item",
            Criterion("1 to 8, or a multiple of 8", lambda value: 1 <= value <= 8 or (value > 0 and value % 8 == 0)),
            (1, 2, 4, 8, 16, 32, 64),
        ),
    ),
    build=overlap_ratio,
    size_arguments=("nelements", "m"),
    constraints=(*PATTERN_CONSTRAINTS, LOCAL_MEMORY_FITS),
    sizes=move_sizes,
)
