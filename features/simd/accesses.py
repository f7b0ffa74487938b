"""How the work-items of a vector touch memory with one access."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from perflex.features.counting.strides import stride_along
from perflex.isl import isl

if TYPE_CHECKING:
    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
    from perflex.features.scop.scop import Access, Scop, Statement

# "uniform": one element for all; "unit": neighbours touch neighbours; "apart": anything else, a gather or scatter.
Pattern = Literal["uniform", "unit", "apart"]
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)


def pattern_of(stride: QuasiPolynomial | None) -> Pattern:
    """Return the pattern of accesses that lie so many elements apart; None where that varies."""
    if stride is None:
        return "apart"
    if stride.is_zero:
        return "uniform"
    return "unit" if not stride.parameters and int(stride.evaluate({})) == 1 else "apart"


def lane_pattern(scop: Scop, statement: Statement, access: Access) -> Pattern:
    """Return the pattern along axis 0 of the work-items, as a vectorising compiler sees it.

    Notes
    -----
    A subscript such as ``18*lid(1) + lid(0)`` is a sum of work-item indices alone, which compilers compute with 64 bits
    and cut to 32: LLVM no longer sees that neighbours are next to each other, and gathers them. Where the size of the
    array comes in, or a factor is a power of two, it does see it. Found from the build log of Intel's runtime; halo
    tiles in local memory are the usual case.
    """
    launch = scop.launches[statement.launch]
    if not launch.items:
        return "uniform"
    first = len(launch.groups)
    found = pattern_of(stride_along(scop, statement, access, first))
    if found == "unit" and _is_cut(scop, statement, access, first):
        return "apart"
    return found


def _is_cut(scop: Scop, statement: Statement, access: Access, first: int) -> bool:
    """Return whether a subscript is a sum of indices without sizes, none of which has a power of two as factor."""
    # This rule and its exceptions come from the build log of Intel's runtime alone, which names gathers. No other
    # compiler says so much; that of PoCL may do otherwise.
    loops = first + len(scop.launches[statement.launch].items)
    others = False
    for dim in range(access.relation.dim(isl.dim_type.in_)):
        if dim == first:
            continue
        stride = stride_along(scop, statement, access, dim)
        if stride is None or stride.parameters:
            return False
        factor = abs(int(stride.evaluate({})))
        if factor > 1 and factor & (factor - 1) == 0:
            return False
        if factor and dim >= loops and not _counts_with_64_bits(scop, statement, access, dim, first):
            return False
        others = others or factor > 0
    return others


def _counts_with_64_bits(scop: Scop, statement: Statement, access: Access, loop: int, first: int) -> bool:
    """Return whether another access of the statement subscripts with a loop's counter, and not with the work-item."""
    others = (other for other in statement.accesses if other is not access)
    for other in others:
        if scop.array(other.array).space == "private":
            continue
        moved, lane = (stride_along(scop, statement, other, dim) for dim in (loop, first))
        if (moved is None or not moved.is_zero) and lane is not None and lane.is_zero:
            return True
    return False
