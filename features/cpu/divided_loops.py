"""Loops whose subscripts have ``i // m`` and ``i % m``: one over i // m around one over i % m."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from perflex.features.polynomials.quasipolynomial import QuasiPolynomial

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perflex.features.cpu.nests import Loop
    from perflex.features.scop.address_maps import Conjunction, Floor

# What is added to a loop's name for its outer part.
OUTER_SUFFIX = "_div"


def divided_dimension(floor: Floor) -> int | None:
    """Return the instance dimension that a floor divides, beside a constant; None if it divides something else."""
    moved = [(column, factor) for column, factor in floor.row if column[0] != "c"]
    if len(moved) == 1:
        ((column, factor),) = moved
        if column[0] == "d" and factor == 1:
            return column[1]
    return None


def loop_divisors(pieces: Iterable[Conjunction], names: Mapping[str, Sequence[str]]) -> dict[tuple[int, str], int]:
    """Return what loops are divided by in subscripts, by launch and name; of several divisors, the largest.

    `names` are those of each statement's instance dimensions.
    """
    found: dict[tuple[int, str], set[int]] = {}
    for piece in pieces:
        rows = [row for access in piece.accesses for row, _ in access.axes]
        for number in {column[1] for row in rows for column, _ in row if column[0] == "f"}:
            dimension = divided_dimension(piece.floors[number])
            if dimension is not None:
                key = piece.launch, names[piece.statement][dimension]
                found.setdefault(key, set()).add(piece.floors[number].denominator)
    return {key: max(divisors) for key, divisors in found.items()}


def split_divided_loops(loops: Sequence[Loop], divisors: Mapping[str, int]) -> tuple[Loop, ...]:
    """Return the loops with those that are divided in two parts; work-groups along their axis keep their extent."""
    result = []
    for loop in loops:
        if loop.base in divisors or f"gid{loop.base.removeprefix('lid')}" in divisors:
            # The loop over work-groups counts work-items until it is a whole loop, which counts work-groups.
            blocks = loop.extent * Fraction(1, loop.block) if loop.part == "outer" and loop.block else loop.extent
            loop = replace(loop, extent=blocks, part="whole", base=loop.name, block=None)  # noqa: PLW2901 - its parts
        divisor = divisors.get(loop.name)
        if divisor is None:
            result.append(loop)
            continue
        name = f"{loop.name}{OUTER_SUFFIX}"
        outer = loop.extent * Fraction(1, divisor)
        first = 0 if loop.first == 0 else None
        result.append(
            replace(loop, name=name, node=(*loop.node, name), extent=outer, base=name, first=first, varying=None)
        )
        result.append(replace(loop, extent=QuasiPolynomial.constant(divisor), first=first, varying=None))
    return tuple(result)
