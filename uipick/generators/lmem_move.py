"""Local memory moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument, multiples_of
from uipick._generator import Generator
from uipick.generators._arguments import FITTING_PATTERN_ARGUMENTS, NELEMENTS
from uipick.generators._local_moves import LOCAL_MEMORY_FITS, make_moves_kernel, move_sizes
from uipick.generators._pattern import PATTERN_CONSTRAINTS

if TYPE_CHECKING:
    import loopy as lp


def lmem_move(*, dtype: str, lsize_0: int, lsize_1: int, **pattern: int | bool) -> lp.TranslationUnit:
    """Local memory moves: m loads and stores per work-item, a different element each time.

    Each work-item fills its own elements of a local array, moves them m times to another, 8 elements in turn
    (fewer where local memory is short), and stores one in global memory (access tag ``resST``). No two
    work-items touch the same element and lid(0) has stride 1. Isolates ``f_mem_access_local_<dtype>``: 2 m per
    work-item, and m_inner stores and one load to begin and end with (m_inner and m_outer are the size parameters,
    m their product).

    Source: the paper's Section 7.1.2, local memory access.
    """
    return make_moves_kernel(
        "lmem_move",
        {"dtype": dtype, "lsize_0": lsize_0, "lsize_1": lsize_1, **pattern},
        [f"<int32> item = l0 + {lsize_0}*l1"],
        "item + row",
    )


LMEM_MOVE = Generator(
    name="lmem_move",
    tags=frozenset({"lmem_move", "lmem"}),
    arguments=(
        *FITTING_PATTERN_ARGUMENTS,
        NELEMENTS,
        Argument("m", "int", "moves per work-item", multiples_of(8), (64, 128, 192, 256)),
    ),
    build=lmem_move,
    size_arguments=("nelements", "m"),
    constraints=(*PATTERN_CONSTRAINTS, LOCAL_MEMORY_FITS),
    sizes=move_sizes,
)
