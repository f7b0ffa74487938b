"""Floors in subscripts, in the simplest form: what divides without rest or stays below the divisor comes out."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import TYPE_CHECKING

from perflex.features.scop.address_maps import Floor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.scop.address_maps import AccessMap, Column, Conjunction, Row

_CONSTANT: Column = ("c", 0)


def with_simple_floors(piece: Conjunction, items: Mapping[int, int]) -> Conjunction:
    """Return a piece in whose subscripts ``(64*o + i) // 8`` is ``8*o + i//8``, and ``i // 64`` is 0 for i < 64.

    Parameters
    ----------
    piece
        As it is read.
    items
        Iterations of those dimensions that begin with 0 and have as many for all sizes, beside what the piece's
        constraints say.
    """
    if not piece.floors:
        return piece
    extents = {**_constant_extents(piece), **items}
    floors = list(piece.floors)
    accesses = tuple(_simplified(access, floors, extents) for access in piece.accesses)
    return replace(piece, floors=tuple(floors), accesses=accesses)


def _constant_extents(piece: Conjunction) -> dict[int, int]:
    """Return the iterations of dimensions from 0 to a number."""
    lower: set[int] = set()
    upper: dict[int, int] = {}
    for row in piece.inequalities:
        factors = dict(row)
        constant = factors.pop(_CONSTANT, 0)
        if len(factors) != 1:
            continue
        ((kind, place), factor) = factors.popitem()
        if kind == "d" and factor > 0 and constant <= 0:
            lower.add(place)
        elif kind == "d" and factor < 0:
            upper[place] = min(constant // -factor + 1, upper.get(place, constant // -factor + 1))
    return {place: extent for place, extent in upper.items() if place in lower}


def _simplified(access: AccessMap, floors: list[Floor], extents: Mapping[int, int]) -> AccessMap:
    axes = []
    for row, denominator in access.axes:
        found: dict[Column, int] = {}
        for column, value in row:
            parts = _parts(floors[column[1]], floors, extents) if column[0] == "f" else {column: 1}
            for part, factor in parts.items():
                found[part] = found.get(part, 0) + value * factor
        axes.append((tuple(sorted((column, value) for column, value in found.items() if value)), denominator))
    return replace(access, axes=tuple(axes))


def _parts(floor: Floor, floors: list[Floor], extents: Mapping[int, int]) -> dict[Column, int]:
    """Return a floor as a sum of columns, the last of which may be a simpler floor."""
    divisor = floor.denominator
    if sum(factor for column, factor in floor.row if column[0] == "d") < 0:
        # Of what falls, the floor is that of what grows: floor(-x/m) = -1 - floor((x - 1)/m).
        grown = {_CONSTANT: -1} | {column: -factor for column, factor in floor.row}
        grown[_CONSTANT] = -1 - dict(floor.row).get(_CONSTANT, 0)
        row: Row = tuple(sorted((column, factor) for column, factor in grown.items() if factor))
        found = {column: -factor for column, factor in _parts(Floor(row, divisor), floors, extents).items()}
        found[_CONSTANT] = found.get(_CONSTANT, 0) - 1
        return found
    found = {column: factor // divisor for column, factor in floor.row if factor // divisor}
    rest = {column: factor % divisor for column, factor in floor.row if factor % divisor}
    constant = rest.pop(_CONSTANT, 0)
    # What stays below the step of the others does not change the floor: parts of that kind come out, smallest first.
    below, most = constant, 0
    ordered = sorted(rest, key=lambda column: rest[column])
    for place, column in enumerate(ordered):
        if column[0] != "d" or column[1] not in extents:
            break
        below += rest[column] * (extents[column[1]] - 1)
        if below < gcd(divisor, *(rest[other] for other in ordered[place + 1 :])):
            most = place + 1
    remaining = ordered[most:]
    if not remaining:
        return found
    common = gcd(divisor, *(rest[column] for column in remaining))
    kept: Row = tuple((column, rest[column] // common) for column in sorted(remaining))
    if not most and constant >= common:
        kept = tuple(sorted(((_CONSTANT, constant // common), *kept)))
    simple = Floor(kept, divisor // common)
    if simple not in floors:
        floors.append(simple)
    found["f", floors.index(simple)] = 1
    return found
