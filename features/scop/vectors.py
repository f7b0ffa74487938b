"""Memory instructions of vector types: one moves several neighbours along a statement's dimension ``lane``.

The last dimension of a domain is a vector's elements, not a loop, where it is called ``lane`` and the statement's
schedule does not name it. An instruction moves 16 bytes of them at most, the widest of NVIDIA's and AMD's GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.features.scop.address_maps import address_maps
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.scop.address_maps import AccessMap, Conjunction, Row
    from perflex.features.scop.scop import Scop, Statement

LANE = "lane"
MOST_BYTES = 16


def vector_elements(scop: Scop) -> Mapping[tuple[int, int], int]:
    """Return how many elements an instruction moves, by places of statement and access in the Scop.

    Accesses whose instructions move one element are left out.
    """

    def compute() -> dict[tuple[int, int], int]:
        found: dict[tuple[int, int], set[int]] = {}
        for piece in address_maps(scop, scattered=False):
            lanes = lanes_of(scop, scop.statements[piece.number])
            for access in piece.accesses:
                fits = MOST_BYTES // scop.array(access.array).itemsize
                # A vector of three has the space of four, and is moved like one.
                wide = min(fits, 1 << (lanes - 1).bit_length()) if lanes > 1 and _neighbours(piece, access) else 1
                found.setdefault((piece.number, access.number), set()).add(wide)
        # An access of several pieces is counted over their union, so all have to agree.
        return {key: min(each) for key, each in found.items() if min(each) > 1}

    return scop.derived("vector elements", (), compute)


def lanes_of(scop: Scop, statement: Statement) -> int:
    """Return the elements of the vectors that a statement works on; 1 for scalars."""
    launch = scop.launches[statement.launch]
    last = statement.domain.dim(isl.dim_type.set) - 1
    if last < len(launch.groups) + len(launch.items) + len(statement.loops):
        return 1
    if statement.domain.get_dim_name(isl.dim_type.set, last) != LANE:
        return 1
    return int(statement.domain.dim_max_val(last).to_python()) + 1


def _neighbours(piece: Conjunction, access: AccessMap) -> bool:
    """Return whether the last dimension moves an access from one element to the next."""
    lane = piece.dims - 1
    moved = [
        (row, denominator, stride)
        for (row, denominator), stride in zip(access.axes, access.strides, strict=True)
        if _involves(piece, row, lane)
    ]
    if len(moved) != 1:
        return False
    row, denominator, stride = moved[0]
    rest = tuple(term for term in row if term[0] != ("d", lane))
    once = len(rest) < len(row) and dict(row)[("d", lane)] == denominator == 1
    return once and not _involves(piece, rest, lane) and not stride.parameters and stride.evaluate({}) == 1


def _involves(piece: Conjunction, row: Row, dim: int) -> bool:
    return any(
        position == dim if kind == "d" else kind == "f" and _involves(piece, piece.floors[position].row, dim)
        for (kind, position), _ in row
    )
