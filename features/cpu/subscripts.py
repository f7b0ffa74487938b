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
from perflex.features.polynomials.affine import Affine, Column
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.address_maps import AccessMap, Conjunction

# What is added to a loop's name for its outer part.
OUTER_SUFFIX = " div"


def divided_dimension(floor: Affine) -> int | None:
    """Return the instance dimension that a floor divides, beside a constant; None if it divides something else."""
    match floor:
        case Affine(terms=((int(dimension), 1),), floors=()):
            return dimension
    return None


def loop_divisors(pieces: Iterable[Conjunction], loops: Sequence[Sequence[object]]) -> dict[tuple[int, object], int]:
    """Return what loops are divided by in subscripts, by launch and loop; of several divisors, the largest.

    `loops` are those of each statement's instance dimensions, told apart by whatever does that.
    """
    found: dict[tuple[int, object], set[int]] = {}
    for piece in pieces:
        for floor in {floor for access in piece.accesses for axis in access.axes for floor, _ in axis.floors}:
            dimension = divided_dimension(floor)
            if dimension is not None:
                key = piece.launch, loops[piece.number][dimension]
                found.setdefault(key, set()).add(floor.denominator)
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


def with_simple_floors(piece: Conjunction, items: Mapping[int, int]) -> Conjunction:
    """Return a piece in whose subscripts ``(64*o + i) // 8`` is ``8*o + i//8``, and ``i // 64`` is 0 for i < 64.

    `items` are the iterations of dimensions that begin with 0 and have as many for all sizes, beside what the piece's
    constraints say.
    """
    extents = {**_constant_extents(piece), **items}
    accesses = tuple(
        replace(access, axes=tuple(_simplified(axis, extents) for axis in access.axes)) for access in piece.accesses
    )
    return replace(piece, accesses=accesses)


def _constant_extents(piece: Conjunction) -> dict[int, int]:
    """Return the iterations of dimensions from 0 to a number."""
    lower: set[int] = set()
    upper: dict[int, int] = {}
    for row in piece.constraints:
        match row:
            case Affine(constant, ((int(place), factor),), ()), False:
                if factor < 0:
                    upper[place] = min(constant // -factor + 1, upper.get(place, constant // -factor + 1))
                elif constant <= 0:
                    lower.add(place)
    return {place: extent for place, extent in upper.items() if place in lower}


def _simplified(axis: Affine, extents: Mapping[int, int]) -> Affine:
    found: dict[Column, int] = defaultdict(int)
    for column, value in axis.columns.items():
        parts = _parts(column, extents) if isinstance(column, Affine) else {column: 1}
        for part, factor in parts.items():
            found[part] += value * factor
    return Affine.of(found, axis.denominator)


def _parts(floor: Affine, extents: Mapping[int, int]) -> dict[Column, int]:
    """Return a floor as a sum of columns, the last of which may be a simpler floor."""
    divisor = floor.denominator
    if sum(factor for _, factor in floor.dim_terms) < 0:
        # Of what falls, the floor is that of what grows: floor(-x/m) = -1 - floor((x - 1)/m).
        grown = {column: -factor for column, factor in floor.columns.items()}
        grown[""] -= 1
        found = {column: -factor for column, factor in _parts(Affine.of(grown, divisor), extents).items()}
        found[""] = found.get("", 0) - 1
        return found
    found = {column: factor // divisor for column, factor in floor.columns.items() if factor // divisor}
    rest = {column: factor % divisor for column, factor in floor.columns.items() if factor % divisor}
    constant = rest.pop("", 0)
    # What stays below the step of the others does not change the floor: parts of that kind come out, smallest first.
    below, most = constant, 0
    ordered = sorted(rest, key=lambda column: rest[column])
    for place, column in enumerate(ordered):
        if not isinstance(column, int) or column not in extents:
            break
        below += rest[column] * (extents[column] - 1)
        if below < gcd(divisor, *(rest[other] for other in ordered[place + 1 :])):
            most = place + 1
    remaining = ordered[most:]
    if not remaining:
        return found
    common = gcd(divisor, *(rest[column] for column in remaining))
    kept = {column: rest[column] // common for column in remaining}
    kept[""] = 0 if most else constant // common
    found[Affine.of(kept, divisor // common)] = 1
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


def subscript_of(access: AccessMap, loops: Sequence[Loop], columns: Columns, names: Sequence[str]) -> Subscript:
    """Return how loops move an access; `names` are the own ones of its instance dimensions.

    Floors of what is no loop that is divided move evenly, by a fraction per iteration. A loop in two subscripts moves
    along one of them: what another loop inside of it covers anyway is left out (a skewed loop covers the same range),
    else the axis with the largest stride decides.
    """
    mover = _Mover(loops, columns)
    ends = [_with_fixed_end(axis, loops, columns, names) for axis in access.axes]
    found = [
        mover.factors([entry for entry in axis.columns.items() if entry[0] not in fixed], axis.denominator)
        for axis, fixed in zip(access.axes, ends, strict=True)
    ]
    notes = ["has // or % of what is no loop"] if mover.uneven else []
    kept, diagonal = _one_axis_each(found, loops, [typical(stride) for stride in access.strides])
    notes += ["has a loop in two subscripts"] if diagonal else []
    rests = [
        (
            *(term for term in axis.terms if isinstance(term[0], str) or term[0] in fixed),
            *(floor for floor in axis.floors if not floor[0].dims),
        )
        for axis, fixed in zip(access.axes, ends, strict=True)
    ]
    offsets = tuple(axis.constant // axis.denominator for axis in access.axes)
    steps = tuple(_ordered(factors, loops) for factors in kept)
    moved = [
        entry for axis, fixed in zip(access.axes, ends, strict=True) for entry in axis.dim_terms if entry[0] in fixed
    ]
    return Subscript(access, steps, offsets, tuple(rests), " and ".join(notes), diagonal, frozenset(moved))


def _with_fixed_end(axis: Affine, loops: Sequence[Loop], columns: Columns, names: Sequence[str]) -> frozenset[int]:
    """Return the dimensions that move where an index begins, but not where it ends: those of the rows of a triangle.

    From row to row, the loop inside visits the same but for the beginning.
    """
    factors = dict(axis.dim_terms)
    found: set[int] = set()
    for inner, factor in factors.items():
        (place, width), *more = columns[inner]
        varying = loops[place].varying
        if varying is None or more:
            continue
        drivers = {column: DRIVER_PREFIX + names[column] for column in factors if column != inner}
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

    def __init__(self, loops: Sequence[Loop], columns: Columns) -> None:
        self._loops = loops
        self._columns = columns
        self.uneven = False  # whether a part of an index moved unevenly so far

    def factors(self, row: Sequence[tuple[Column, int]], denominator: int) -> dict[int, float]:
        """Return by how many indices an iteration of each loop moves."""
        direct: dict[int, float] = defaultdict(float)
        divided: dict[int, float] = defaultdict(float)
        for column, value in row:
            if isinstance(column, int):
                for loop, factor in self._columns[column]:
                    direct[loop] += value * factor
            elif isinstance(column, Affine) and column.dims:
                for loop, part in self._floor(column):
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

    def _floor(self, floor: Affine) -> list[tuple[int, float]]:
        """Return by how much each loop moves a floor."""
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
        for column, factor in floor.columns.items():
            if isinstance(column, int):
                parts += [(loop, factor * moved / floor.denominator) for loop, moved in self._columns[column]]
            elif isinstance(column, Affine):
                parts += [(loop, factor * part / floor.denominator) for loop, part in self._floor(column)]
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
