"""Local and global memory accesses in a given ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument, Criterion
from uipick._generator import Generator
from uipick.generators._arguments import FITTING_PATTERN_ARGUMENTS, NELEMENTS
from uipick.generators._local_moves import LOCAL_MEMORY_FITS, MOVE_LOOPS, local_rows, move_sizes
from uipick.generators._pattern import PATTERN_CONSTRAINTS, make_pattern_kernel

if TYPE_CHECKING:
    import loopy as lp

__all__ = ["OVERLAP_RATIO"]


def overlap_ratio(*, dtype: str, lsize_0: int, lsize_1: int, **pattern: int | bool) -> lp.TranslationUnit:
    """One global load, m local load-store sequences, one global store per work-item.

    Shows how much of the cost of on-chip work hides behind global memory access as m grows. The loaded value
    (access tag ``inLD``) fills the work-item's own elements of a local array; they are moved m times as in
    ``lmem_move``, and one is stored (``resST``). Features: ``f_mem_access_global_<dtype>``, 2 per work-item, and
    ``f_mem_access_local_<dtype>``, 2 m + m_inner + 1 per work-item.

    Source: the paper's Section 7.4.
    """
    import loopy as lp
    import numpy as np

    arguments = {"dtype": dtype, "lsize_0": lsize_0, "lsize_1": lsize_1, **pattern}
    element = np.dtype(dtype)
    shape = (local_rows(arguments), lsize_1, lsize_0)
    kernel = make_pattern_kernel(
        "overlap_ratio",
        arguments,
        [
            f"<{dtype}> value = in0$inLD[{{index}}]",
            "for row",
            "source[row, l1, l0] = value",
            "end",
            "for m_out, m_in",
            "target[m_in, l1, l0] = source[m_in, l1, l0]",
            "end",
            "result$resST[{index}] = target[m_inner - 1, l1, l0]",
        ],
        [
            lp.TemporaryVariable("source", element, shape=shape, address_space=lp.AddressSpace.LOCAL),
            lp.TemporaryVariable("target", element, shape=shape, address_space=lp.AddressSpace.LOCAL),
            lp.GlobalArg("in0", element, shape="nelements", is_input=True, is_output=False),
            lp.GlobalArg("result", element, shape="nelements", is_input=False, is_output=True),
            lp.ValueArg("m_outer, m_inner", np.int32),
        ],
        loops=MOVE_LOOPS,
        assume=f"m_outer >= 1 and 1 <= m_inner <= {shape[0]}",
    )
    return lp.prioritize_loops(kernel, "m_out, m_in")


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
