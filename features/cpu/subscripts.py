"""How the loops of a nest move the subscripts of an access; irregular movement is replaced by an even one, and noted.

Floors are brought into the simplest form: what divides without rest or stays below the divisor comes out. A loop whose
subscripts have ``i // m`` and ``i % m`` becomes two: one over i // m around one over i % m.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import gcd

from perflex.features.cpu.nests import DRIVER_PREFIX, LANE, Loop, Step
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.address_maps import AccessMap, Column, Conjunction, Floor, Row

# What is added to a loop's name for its outer part.
OUTER_SUFFIX = " div"


def divided_dimension(floor: Floor) -> int | None:
    """Return the instance dimension that a floor divides, beside a constant; None if it divides something else."""
    moved = [(column, factor) for column, factor in floor.row if column[0] != "c"]
    if len(moved) == 1:
        ((column, factor),) = moved
        if column[0] == "d" and factor == 1:
            return column[1]
    return None


def loop_divisors(pieces: Iterable[Conjunction], loops: Sequence[Sequence[object]]) -> dict[tuple[int, object], int]:
    """Return what loops are divided by in subscripts, by launch and loop; of several divisors, the largest.

    `loops` are those of each statement's instance dimensions, told apart by whatever does that.
    """
    found: dict[tuple[int, object], set[int]] = {}
    for piece in pieces:
        rows = [row for access in piece.accesses for row, _ in access.axes]
        for number in {column[1] for row in rows for column, _ in row if column[0] == "f"}:
            dimension = divided_dimension(piece.floors[number])
            if dimension is not None:
                key = piece.launch, loops[piece.number][dimension]
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
        divisor = divisors.get(loop.driver)
        if divisor is None:
            result.append(loop)
            continue
        name = f"{loop.name}{OUTER_SUFFIX}"
        outer = loop.extent * Fraction(1, divisor)
        first = 0 if loop.first == 0 else None
        result.append(
            replace(
                loop,
                name=name,
                node=(*loop.node, name),
                extent=outer,
                base=name,
                first=first,
                varying=None,
                own_name=loop.own_name and f"{loop.own_name}{OUTER_SUFFIX}",
            )
        )
        result.append(replace(loop, extent=QuasiPolynomial.constant(divisor), first=first, varying=None))
    return tuple(result)


_CONSTANT: Column = ("c", 0)


def with_simple_floors(piece: Conjunction, items: Mapping[int, int]) -> Conjunction:
    """Return a piece in whose subscripts ``(64*o + i) // 8`` is ``8*o + i//8``, and ``i // 64`` is 0 for i < 64.

    `items` are the iterations of dimensions that begin with 0 and have as many for all sizes, beside what the piece's
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


# Loops of fewer iterations do not cover what an outer loop moves along the same axis.
_COVERING = 64
# In place of every size, large and prime: only the order of strides matters.
_SAMPLE = 1009

# The loops that move each instance dimension, and by how much: the innermost loop first.
Columns = dict[int, list[tuple[int, int]]]


@dataclass(frozen=True)
class Subscript:
    """An access: per axis, its steps, constant offset, and what else is added to the index."""

    access: AccessMap = field(compare=False)  # as it is in the kernel
    # steps, offset, rest: of each axis
    steps: tuple[tuple[Step, ...], ...]
    offset: tuple[int, ...]
    rest: tuple[tuple[object, ...], ...]
    note: str = ""  # what of it is not followed exactly; empty where all is
    diagonal: bool = False  # whether a loop moves several axes, of which one has it as a step
    fixed: frozenset[object] = frozenset()  # the part of `rest` that is loops that move only where ranges begin


def subscript_of(
    piece: Conjunction, access: AccessMap, loops: Sequence[Loop], columns: Columns, names: Sequence[str]
) -> Subscript:
    """Return how loops move an access; `names` are the own ones of its instance dimensions.

    Floors of what is no loop that is divided move evenly, by a fraction per iteration. A loop in two subscripts moves
    along one of them: what another loop inside of it covers anyway is left out (a skewed loop covers the same range),
    else the axis with the largest stride decides.
    """
    mover = _Mover(piece, loops, columns)
    ends = [_with_fixed_end(row, loops, columns, names) for row, _ in access.axes]
    found = [
        mover.factors(tuple(entry for entry in row if entry[0] not in fixed), denominator)
        for (row, denominator), fixed in zip(access.axes, ends, strict=True)
    ]
    notes = ["has // or % of what is no loop"] if mover.uneven else []
    kept, diagonal = _one_axis_each(found, loops, [typical(stride) for stride in access.strides])
    notes += ["has a loop in two subscripts"] if diagonal else []
    offsets, rests = [], []
    for (row, denominator), fixed in zip(access.axes, ends, strict=True):
        offsets.append(sum(value for column, value in row if column == ("c", 0)) // denominator)
        rests.append(
            tuple(
                (piece.floors[column[1]] if column[0] == "f" else column, value)
                for column, value in row
                if column[0] == "p" or column in fixed or (column[0] == "f" and not mover.moves(column))
            )
        )
    steps = tuple(_ordered(factors, loops) for factors in kept)
    moved = [entry for (row, _), fixed in zip(access.axes, ends, strict=True) for entry in row if entry[0] in fixed]
    return Subscript(access, steps, tuple(offsets), tuple(rests), " and ".join(notes), diagonal, frozenset(moved))


def _with_fixed_end(row: Row, loops: Sequence[Loop], columns: Columns, names: Sequence[str]) -> frozenset[Column]:
    """Return the dimensions that move where an index begins, but not where it ends: those of the rows of a triangle.

    From row to row, the loop inside visits the same but for the beginning.
    """
    factors = {column: value for column, value in row if column[0] == "d"}
    found: set[Column] = set()
    for inner, factor in factors.items():
        (place, width), *more = columns[inner[1]]
        varying = loops[place].varying
        if varying is None or more:
            continue
        drivers = {column: DRIVER_PREFIX + names[column[1]] for column in factors if column != inner}
        given = dict.fromkeys(varying.parameters, _SAMPLE) | dict.fromkeys(drivers.values(), 1)
        for column, driver in drivers.items():
            if driver in varying.parameters:
                ends = {
                    factors[column] * at + factor * width * varying.evaluate({**given, driver: at}) for at in (1, 2, 3)
                }
                found |= {column} if len(ends) == 1 else set()
    return frozenset(found)


def typical(stride: object) -> float:
    """Return the value of a stride for large sizes."""
    return float(stride.evaluate(dict.fromkeys(stride.parameters, _SAMPLE)))  # type: ignore[attr-defined]


class _Mover:
    """Reads by how much each loop moves an index."""

    def __init__(self, piece: Conjunction, loops: Sequence[Loop], columns: Columns) -> None:
        self._piece = piece
        self._loops = loops
        self._columns = columns
        self.uneven = False  # whether a part of an index moved unevenly so far

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
    alone = [
        (next(iter(axes)), loops[loop].extent)
        for loop in range(len(loops))
        for axes in [[axis for axis, factors in enumerate(found) if loop in factors]]
        if len(axes) == 1
    ]
    for loop in reversed(range(len(loops))):
        way = {axis: factors[loop] for axis, factors in enumerate(found) if loop in factors}
        if not way:
            continue
        # A loop in which lanes run visits, from lane to lane, what is nearly the same.
        chosen = _axis(way, ways, loops, strides, alone if loops[loop].name == LANE else ())
        diagonal = diagonal or len(way) > 1
        ways[loop] = way, chosen
        kept[chosen][loop] = way[chosen]
    return kept, diagonal


def _axis(
    way: Mapping[int, float],
    ways: Mapping[int, tuple[Mapping[int, float], int]],
    loops: Sequence[Loop],
    strides: Sequence[float],
    around: Sequence[tuple[int, QuasiPolynomial]],
) -> int:
    """Return the axis along which a loop is taken to move, with the ways of loops inside of it.

    `around` are axes with the iterations of loops around it that cover them, too.
    """
    if len(way) == 1:
        return next(iter(way))
    for other, chosen in ways.values():
        if other.keys() == way.keys() and len({round(way[axis] / other[axis], 9) for axis in way}) == 1:
            # Parts of one loop go the same way.
            return chosen
    extents = [*around, *((chosen, loops[loop].extent) for loop, (_, chosen) in ways.items())]
    covered = {chosen for chosen, extent in extents if extent.parameters or float(extent.evaluate({})) >= _COVERING}
    free = [axis for axis in way if axis not in covered] or list(way)
    return max(free, key=lambda axis: (strides[axis], -axis))


def _ordered(factors: Mapping[int, float], loops: Sequence[Loop]) -> tuple[Step, ...]:
    """Return the steps along an axis, the smallest first; those of work-groups in units of their extent."""
    steps = [Step(loop, factor) for loop, factor in factors.items()]
    by_name = {loops[loop].name: factor for loop, factor in factors.items()}
    for position, step in enumerate(steps):
        around = loops[step.loop]
        unit = by_name.get(LANE, by_name.get(around.base)) if around.base == "lid0" else by_name.get(around.base)
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
