"""How the loops of a nest move the subscripts of an access; irregular movement is replaced by an even one, and said."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perflex.features.cpu.divided_loops import OUTER_SUFFIX, divided_dimension
from perflex.features.cpu.nests import Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.cpu.nests import Loop
    from perflex.features.scop.address_maps import AccessMap, Column, Conjunction, Row

# Loops of fewer iterations do not cover what an outer loop moves along the same axis.
_COVERING = 64
# In place of every size, large and prime: only the order of strides matters.
_SAMPLE = 1009

# The loops that move each instance dimension, and by how much: the innermost loop first.
Columns = dict[int, list[tuple[int, int]]]


@dataclass(frozen=True)
class Subscript:
    """An access: per axis, its steps, constant offset, and what else is added to the index.

    Attributes
    ----------
    access
        As it is in the kernel.
    steps, offset, rest
        Of each axis.
    note
        What of it is not followed exactly; empty where all is.
    """

    access: AccessMap = field(compare=False)
    steps: tuple[tuple[Step, ...], ...]
    offset: tuple[int, ...]
    rest: tuple[object, ...]
    note: str = ""


def subscript_of(piece: Conjunction, access: AccessMap, loops: Sequence[Loop], columns: Columns) -> Subscript:
    """Return how loops move an access.

    Floors of what is no loop that is divided move evenly, by a fraction per iteration. A loop in two subscripts moves
    along one of them: what another loop inside of it covers anyway is left out (a skewed loop covers the same range),
    else the axis with the largest stride decides.
    """
    mover = _Mover(piece, loops, columns)
    found = [mover.factors(row, denominator) for row, denominator in access.axes]
    notes = ["has // or % of what is no loop"] if mover.uneven else []
    kept, diagonal = _one_axis_each(found, loops, [typical(stride) for stride in access.strides])
    notes += ["has a loop in two subscripts"] if diagonal else []
    offsets, rests = [], []
    for row, denominator in access.axes:
        offsets.append(sum(value for column, value in row if column == ("c", 0)) // denominator)
        rests.append(
            tuple(
                (piece.floors[column[1]] if column[0] == "f" else column, value)
                for column, value in row
                if column[0] == "p" or (column[0] == "f" and not mover.moves(column))
            )
        )
    steps = tuple(_ordered(factors, loops) for factors in kept)
    return Subscript(access, steps, tuple(offsets), tuple(rests), " and ".join(notes))


def typical(stride: object) -> float:
    """Return the value of a stride for large sizes."""
    return float(stride.evaluate(dict.fromkeys(stride.parameters, _SAMPLE)))  # type: ignore[attr-defined]


class _Mover:
    """Reads by how much each loop moves an index.

    Attributes
    ----------
    uneven
        Whether a part of an index moved unevenly so far.
    """

    def __init__(self, piece: Conjunction, loops: Sequence[Loop], columns: Columns) -> None:
        self._piece = piece
        self._loops = loops
        self._columns = columns
        self.uneven = False

    def moves(self, column: Column) -> bool:
        """Return whether a column changes from iteration to iteration."""
        if column[0] != "f":
            return column[0] == "d"
        return any(self.moves(inner) for inner, _ in self._piece.floors[column[1]].row)

    def factors(self, row: Row, denominator: int) -> dict[int, float]:
        """Return by how many indices an iteration of each loop moves."""
        direct: dict[int, float] = defaultdict(float)
        divided: dict[int, float] = defaultdict(float)
        for column, value in row:
            if column[0] == "d":
                for loop, factor in self._columns[column[1]]:
                    direct[loop] += value * factor
            elif self.moves(column):
                for loop, part in self._floor(column[1]):
                    divided[loop] += value * part
        found = {}
        for loop in direct.keys() | divided.keys():
            total = direct[loop] + divided[loop]
            # i - m*(i//m) by parts that move evenly is 0, yet it goes through all of 0 to m - 1.
            if abs(total) < 1e-9 and not self._exact(loop, direct[loop]):
                total = direct[loop]
            if abs(total) >= 1e-9:
                found[loop] = _whole(total / denominator)
        return found

    def _exact(self, loop: int, direct: float) -> bool:
        # The outer part of a divided loop moves by its divisor and back: i % m.
        return not direct or self._loops[loop].name.endswith(OUTER_SUFFIX)

    def _floor(self, number: int) -> list[tuple[int, float]]:
        """Return by how much each loop moves a floor."""
        floor = self._piece.floors[number]
        dimension = divided_dimension(floor)
        if dimension is not None:
            (inner, _), *outer = self._columns[dimension]
            width = self._columns[dimension][-1][1]
            if outer and self._loops[outer[0][0]].name.endswith(OUTER_SUFFIX) and width % floor.denominator == 0:
                found: list[tuple[int, float]] = [(outer[0][0], width // floor.denominator)]
                if width != floor.denominator:
                    self.uneven = True
                    found.append((inner, 1 / floor.denominator))
                return found
        self.uneven = True
        parts: list[tuple[int, float]] = []
        for column, factor in floor.row:
            if column[0] == "d":
                parts += [(loop, factor * moved / floor.denominator) for loop, moved in self._columns[column[1]]]
            elif column[0] == "f":
                parts += [(loop, factor * part / floor.denominator) for loop, part in self._floor(column[1])]
        return parts


def _whole(number: float) -> float:
    return round(number) if abs(number - round(number)) < 1e-9 else number


def _one_axis_each(
    found: Sequence[Mapping[int, float]], loops: Sequence[Loop], strides: Sequence[float]
) -> tuple[list[dict[int, float]], bool]:
    """Return the movement along each axis with every loop in one of them, and whether one was in several."""
    kept: list[dict[int, float]] = [{} for _ in found]
    ways: dict[int, tuple[dict[int, float], int]] = {}
    diagonal = False
    for loop in reversed(range(len(loops))):
        way = {axis: factors[loop] for axis, factors in enumerate(found) if loop in factors}
        if not way:
            continue
        chosen = _axis(way, ways, loops, strides)
        diagonal = diagonal or len(way) > 1
        ways[loop] = way, chosen
        kept[chosen][loop] = way[chosen]
    return kept, diagonal


def _axis(
    way: Mapping[int, float],
    ways: Mapping[int, tuple[Mapping[int, float], int]],
    loops: Sequence[Loop],
    strides: Sequence[float],
) -> int:
    """Return the axis along which a loop is taken to move, with the ways of loops inside of it."""
    if len(way) == 1:
        return next(iter(way))
    for other, chosen in ways.values():
        if other.keys() == way.keys() and len({round(way[axis] / other[axis], 9) for axis in way}) == 1:
            # Parts of one loop go the same way.
            return chosen
    covered = {chosen for loop, (_, chosen) in ways.items() if _is_long(loops[loop])}
    free = [axis for axis in way if axis not in covered] or list(way)
    return max(free, key=lambda axis: (strides[axis], -axis))


def _is_long(loop: Loop) -> bool:
    return bool(loop.extent.parameters) or float(loop.extent.evaluate({})) >= _COVERING


def _ordered(factors: Mapping[int, float], loops: Sequence[Loop]) -> tuple[Step, ...]:
    """Return the steps along an axis, the smallest first; those of work-groups in units of their extent."""
    steps = [Step(loop, factor) for loop, factor in factors.items()]
    by_name = {loops[loop].name: factor for loop, factor in factors.items()}
    for position, step in enumerate(steps):
        around = loops[step.loop]
        unit = by_name.get("lane", by_name.get(around.base)) if around.base == "lid0" else by_name.get(around.base)
        # Groups follow one another without gaps: the step is the work-group's extent, whatever that is.
        if (
            around.part == "outer"
            and unit is not None
            and around.block is not None
            and step.factor == unit * around.block
        ):
            steps[position] = Step(step.loop, unit, around.base)
    return tuple(sorted(steps, key=_size))


def _size(step: Step) -> tuple[bool, float, int]:
    return step.scale is not None, abs(step.factor), -step.loop
