"""Loads that remain when a compiler keeps values in registers.

The rule, from what compilers with common subexpression elimination, full unrolling and hoisting of invariants do:

* an element that a work-item has loaded, or stored, in an iteration is not loaded again in that iteration, by the same
  statement or by a later one, unless that one or any statement between them is executed where the first is not: then
  the condition around the first has ended, and compilers keep nothing of what was loaded under it;
* of loops that are unrolled (a constant number of iterations, 32 at most, the rule of instruction counts), each
  distinct element is loaded once;
* a load that does not depend on a loop is made before it, where the loop's bounds depend on sizes alone; for CPUs also
  where they depend on loops or work-items around it (`remaining_loads`, ``triangular``);
* nothing else is kept from one iteration to the next, and nothing beyond the end of a value's life: a store to the same
  array, wherever it goes (only the element it stores itself is known), and a barrier, for local arrays and for global
  ones that the launch stores to. Arrays of different names do not overlap;
* data-dependent conditions and loops, atomic updates, and subscripts with divisions by an unrolled loop keep nothing.

Values that do not fit the registers are spilled, which is not seen here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from perflex.features.polynomials.affine import Affine
from perflex.features.scop.address_maps import (
    AccessMap,
    Conjunction,
    bounds_alone,
    constant_span,
    most_unrolled,
    paths_of,
)
from perflex.features.scop.scop import Scop
from perflex.features.scop.written_out import Copy, copied_maps, copies_of
from perflex.isl import ISL_LOCK, isl

# Iterations of unrolled loops that are looked at together; beyond, the outer loops count as not unrolled.
_MOST_POINTS = 1 << 16
_Key = tuple[object, ...]
_Order = tuple[tuple[int, ...], ...]  # of copies: as of `Copy`


@dataclass(frozen=True, eq=False)
class Remaining:
    """What remains of a load."""

    # Number of innermost loops over which its values are kept: it is made once for all of their iterations.
    loops: int
    # Constant parts of the subscripts that are loaded, of which the unrolled loops are part, in the order of the
    # program: shape (loads, axes); none if all values are there already.
    elements: np.ndarray
    # Which iteration of each of those loops is the first to need them, counted from 0: shape (loads, loops).
    iterations: np.ndarray


def remaining_loads(scop: Scop, *, triangular: bool = False) -> Mapping[tuple[int, int], Remaining]:
    """Return what remains of loads, by place among `copied_maps` and its accesses; others remain as they are."""
    return scop.derived("remaining loads", (triangular,), lambda: _remaining_loads(scop, triangular=triangular))


@dataclass(frozen=True)
class Made:
    """Loads, or other accesses, that are made alike."""

    times: int  # how many
    loops: int  # number of innermost loops that they are made once for
    domain: isl.Set  # instances of the statement that they are made for

    @property
    def executions(self) -> isl.Set:
        """Where they are made: the instances without those loops."""
        return self.domain.project_out(isl.dim_type.set, self.domain.dim(isl.dim_type.set) - self.loops, self.loops)


# Of accesses, by places of statement and access in the Scop.
MadeByAccess: TypeAlias = Mapping[tuple[int, int], tuple[Made, ...]]


def made_of(made: MadeByAccess, scop: Scop, number: int, place: int) -> tuple[Made, ...]:
    """Return what is made of an access; one for each instance where nothing else is known."""
    return made.get((number, place), (Made(1, 0, scop.statements[number].domain),))


def remaining_by_access(scop: Scop, *, triangular: bool = False) -> MadeByAccess:
    """Return the loads that remain of accesses.

    Loops that they are made once for are entered where the statement has an instance in them. `triangular` is as for
    `remaining_loads`.
    """

    def compute() -> MadeByAccess:
        changed = remaining_loads(scop, triangular=triangular)
        found: dict[tuple[int, int], list[tuple[Copy, int, int]]] = defaultdict(list)
        for place, (copy, piece) in enumerate(copied_maps(scop)):
            for position, access in enumerate(piece.accesses):
                left = changed.get((place, position))
                each = (1, 0) if left is None else (len(left.elements), left.loops)
                found[piece.number, access.number].append((copy, *each))
        return agreed(scop, found)

    return scop.derived("remaining loads by access", (triangular,), compute)


def agreed(scop: Scop, found: Mapping[tuple[int, int], Sequence[tuple[Copy, int, int]]]) -> MadeByAccess:
    """Return what is made from (copy, times, loops) of the pieces of accesses."""
    made: dict[tuple[int, int], tuple[Made, ...]] = {}
    with ISL_LOCK:
        for key, each in found.items():
            alike = {(times, loops) for _, times, loops in each}
            if len(alike) == 1:
                ((times, loops),) = alike
                made[key] = (Made(times, loops, scop.statements[key[0]].domain),)
            # Several pieces of a copy are counted over their union, so all have to agree.
            elif len({copy for copy, _, _ in each}) == len(each):
                made[key] = tuple(Made(times, loops, copy.domain(scop)) for copy, times, loops in each)
    return made


def _remaining_loads(scop: Scop, *, triangular: bool) -> dict[tuple[int, int], Remaining]:
    found = made_loads(scop, triangular=triangular)
    return {one.place: left for one, left in found if left.loops or len(left.elements) != 1}


def made_loads(scop: Scop, *, triangular: bool = False) -> Sequence[tuple[Value, Remaining]]:
    """Return the loads whose elements are known, in the order of the program, and what remains of each."""
    return scop.derived("made loads", (triangular,), lambda: _made_loads(scop, triangular=triangular))


def _made_loads(scop: Scop, *, triangular: bool) -> list[tuple[Value, Remaining]]:
    maps = copied_maps(scop)
    found: list[tuple[Value, Remaining]] = []
    for launch in range(len(scop.launches)):
        pieces = [(place, copy, piece) for place, (copy, piece) in enumerate(maps) if piece.launch == launch]
        conditions, known = _Conditions(scop, launch), defaultdict[_Key, dict[object, set[tuple[int, ...]]]](dict)
        for value in _Values(scop, launch, pieces, triangular=triangular).in_order():
            *family, alone, guards = value.family
            family_of = known[(*family, alone)]
            # What only its own statement uses needs no condition that holds on.
            mine: object = guards if alone is not None else conditions.around(maps[value.place[0]][0], value.depth)
            there = family_of.setdefault(mine, set())
            usable = [there] if alone is not None else [each for one, each in family_of.items() if conditions.hold(one)]
            each = list(map(tuple, value.elements.tolist()))
            new = np.array([not any(one in some for some in usable) for one in each], dtype=bool)
            if not value.may_lack:
                there.update(each)
            if value.load:
                found.append((value, Remaining(value.loops, value.elements[new], value.iterations[new])))
    return found


class _Conditions:
    """Conditions that statements are executed under, from one statement in the order of the program to the next."""

    def __init__(self, scop: Scop, launch: int) -> None:
        self._scop = scop
        copies = (one for number, every in copies_of(scop).items() for one in every if one.order)
        mine = (one for one in copies if scop.statements[one.number].launch == launch)
        self._left = sorted(mine, key=lambda copy: (copy.order, copy.number), reverse=True)
        # Dimensions, loops among these, and who fulfils it, by the number of a condition that holds.
        self._hold: dict[int, tuple[int, tuple[int, ...], isl.Set]] = {}
        self._passed: set[Copy] = set()
        self._begun = 0

    def hold(self, number: object) -> bool:
        """Return whether a condition holds since it was first asked for."""
        return number in self._hold

    def around(self, copy: Copy, depth: int) -> int:
        """Return the condition on so many outermost dimensions that a statement is executed under.

        Statements are asked for in the order of the program.
        """
        while copy not in self._passed:
            self._passed.add(self._left[-1])
            self._come_to(self._left.pop())
        loops = self._loops(copy, depth)
        with ISL_LOCK:
            mine = self._executed(copy, depth)
            for one, (_, of, other) in self._hold.items():
                if of == loops and mine.is_equal(other):
                    return one
        self._begun += 1
        self._hold[self._begun] = depth, loops, mine
        return self._begun

    def _come_to(self, copy: Copy) -> None:
        with ISL_LOCK:
            self._hold = {
                one: (depth, loops, under)
                for one, (depth, loops, under) in self._hold.items()
                # Beside the loops around it a condition neither holds nor ends.
                if loops != self._loops(copy, depth) or self._executed(copy, depth).is_subset(under)
            }

    def _loops(self, copy: Copy, depth: int) -> tuple[int, ...]:
        return copy.path[: depth - self._scop.launches[self._scop.statements[copy.number].launch].axes]

    def _executed(self, copy: Copy, depth: int) -> isl.Set:
        domain = copy.domain(self._scop)
        for dim, _ in reversed(copy.values):
            domain = domain.project_out(isl.dim_type.set, dim, 1)
        return domain.project_out(isl.dim_type.set, depth, domain.dim(isl.dim_type.set) - depth)


@dataclass(frozen=True, eq=False)
class Value:
    """Elements that an access brings into registers; those of one family may be the same."""

    place: tuple[int, int]  # among `copied_maps` and its accesses
    order: _Key
    load: bool
    family: _Key
    depth: int  # number of dimensions that it is kept inside of, without those of loops that are written out
    rests: tuple[Affine, ...]  # the subscripts without what moves with the loops that it is kept over
    loops: int
    elements: np.ndarray  # as of `Remaining`
    iterations: np.ndarray
    # Whether a loop that it is kept over may be empty: then it is not there after it.
    may_lack: bool


class _Values:
    """The values of a launch's accesses, and how long they live."""

    def __init__(
        self, scop: Scop, launch: int, pieces: Sequence[tuple[int, Copy, Conjunction]], *, triangular: bool
    ) -> None:
        self._scop, self._pieces, self._triangular = scop, pieces, triangular
        self._axes = scop.launches[launch].axes
        times = Counter(copy for _, copy, _ in pieces)
        self._paths = {copy.number: paths_of(copy.number, scop.statements[copy.number]) for copy in times}
        several = {copy.number for copy in times if times[copy] > 1 or scop.statements[copy.number].guarded}
        self._single = self._paths.keys() - several
        # What ends values: array (None for a barrier), loops around it (None for any), and its order.
        self._ends: list[tuple[str | None, tuple[int, ...] | None, _Order]] = [
            (access.array, copy.path, copy.order)
            for copy in times
            for access in scop.statements[copy.number].accesses
            if access.direction == "store"
        ]
        self._stored = {array for array, *_ in self._ends}
        # A barrier without an order may stand in any loop.
        barriers = (one for one in scop.barriers if one.launch == launch)
        self._ends += [(None, one.loops if one.order else None, tuple((n,) for n in one.order)) for one in barriers]

    def in_order(self) -> list[Value]:
        """Return them in the order of the program."""
        values = []
        for place, copy, piece in self._pieces:
            made = self._scop.statements[piece.number].accesses
            if not any(access.atomic for access in made):
                # What stands in for an unknown subscript is the same for different elements.
                known = (
                    pair for pair in enumerate(piece.accesses) if pair[1].axes and not made[pair[1].number].assumed
                )
                values += [self._value((place, position), copy, piece, access) for position, access in known]
        return sorted(values, key=lambda value: value.order)

    def _value(self, place: tuple[int, int], copy: Copy, piece: Conjunction, access: AccessMap) -> Value:
        statement, load = self._scop.statements[piece.number], access.direction == "load"
        loops = self._kept_over(copy, piece, access) if load else 0
        first = piece.dims - loops
        rests, moving = zip(*(_split(axis, first) for axis in access.axes), strict=True)
        around = copy.path[: len(copy.path) - loops]
        life = self._life(access.array, around, copy.order, after=not load)
        # Without a known order, or under a condition that depends on data, values are of use to the statement alone.
        whose = piece.number if life is None or piece.number not in self._single else None
        guards = frozenset(row for row in piece.constraints if max(row[0].dims, default=0) < first)
        family = access.array, rests, statement.accesses[access.number].strides, around, life, whose, guards
        order = copy.order, piece.number, not load, *place
        spans = {dim: _constant_span(piece, dim) or (0, 0) for dim in range(first, piece.dims)}
        may_lack = any(_bounds(piece, dim) is None for dim in range(first, piece.dims))
        return Value(
            place, order, load, family, self._axes + len(around), rests, loops, *_elements(moving, spans), may_lack
        )

    def _kept_over(self, copy: Copy, piece: Conjunction, access: AccessMap) -> int:
        """Return the number of innermost loops over which values of a load are kept."""
        path, kept, points = self._paths[piece.number], 0, 1
        loops = self._scop.loops_of(self._scop.statements[piece.number])
        ends = self._ends_of(access.array)
        for depth in reversed(range(len(path) if piece.number in self._single else 0)):
            dim, loop = self._axes + depth, path[depth]
            if loop not in copy.path:
                break
            if depth < len(loops) and (loops[depth].kind == "host" or loops[depth].average != 1):
                break
            if any(_is_in(loop, around) for around, _ in ends) or not self._unconditional(piece, dim, loop):
                break
            if any(dim in axis.dims for axis in access.axes):
                most = most_unrolled(loops[depth] if depth < len(loops) else None)
                low, high = _constant_span(piece, dim) or (0, most)
                points *= high - low + 1
                uneven = any(dim in axis.floor_dims for axis in access.axes)
                if high - low >= most or points > _MOST_POINTS or uneven:
                    break
            kept += 1
        return kept

    def _unconditional(self, piece: Conjunction, dim: int, loop: int) -> bool:
        """Return whether a statement is executed in each iteration of a loop, however many these are."""
        mine = _bounds(piece, dim, triangular=self._triangular)
        others = (other for *_, other in self._pieces if loop in self._paths[other.number])
        return mine is not None and all(_bounds(other, dim, triangular=self._triangular) == mine for other in others)

    def _ends_of(self, mine: str) -> list[tuple[tuple[int, ...] | None, _Order]]:
        """Return loops and order of what ends values of an array."""
        at_barriers = mine in self._stored or self._scop.array(mine).space == "local"
        return [(loops, order) for array, loops, order in self._ends if (array == mine if array else at_barriers)]

    def _life(self, mine: str, around: tuple[int, ...], order: _Order, *, after: bool) -> int | None:
        """Return how many ends of values of an array come before a place, None if that cannot be said."""
        depth = len(around)
        ends = [other for loops, other in self._ends_of(mine) if not around or _is_in(around[-1], loops)]
        # Behind the order up to a loop stands the place in its body.
        if any(len(one) <= depth for one in (order, *ends)):
            return None
        return sum(one[depth] < order[depth] or (after and one[depth] == order[depth]) for one in ends)


def _is_in(loop: int, loops: tuple[int, ...] | None) -> bool:
    return loops is None or loop in loops


def _elements(moving: Sequence[Affine], spans: Mapping[int, tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values of parts of subscripts over loops, and when they first occur: as of `Remaining`."""
    # A loop that moves no subscript adds no elements, however many iterations it has.
    ranges = {
        dim: np.arange(low, high + 1) for dim, (low, high) in spans.items() if any(dim in one.dims for one in moving)
    }
    points = dict(zip(ranges, np.ix_(*ranges.values()), strict=True))
    columns = np.broadcast_arrays(*(np.asarray(one(points), dtype=np.int64) for one in moving))
    every = np.stack([column.ravel() for column in columns], axis=1)
    first = np.sort(np.unique(every, axis=0, return_index=True)[1])
    iterations = np.zeros((len(first), len(spans)), dtype=np.int64)
    for dim, counted in zip(ranges, np.unravel_index(first, columns[0].shape) if ranges else (), strict=True):
        iterations[:, dim - min(spans)] = counted
    return every[first], iterations


def _split(axis: Affine, first: int) -> tuple[Affine, Affine]:
    """Return what of a subscript does not depend on dimensions from `first` on, and the rest with the constant."""
    if axis.denominator != 1:
        return axis, Affine(0)
    moving = tuple(term for term in axis.dim_terms if term[0] >= first)
    return Affine(0, tuple(term for term in axis.terms if term not in moving), axis.floors), Affine(
        axis.constant, moving
    )


def _bounds(piece: Conjunction, dim: int, *, triangular: bool = False) -> frozenset[Affine] | None:
    """Return the constraints on a dimension; None where they have floors, or name others that they may not name."""
    rows = [row for row, _ in piece.constraints if dim in row.dims]
    if triangular:
        # What names a dimension further inside is a bound of that one.
        rows = [row for row in rows if max(row.dims) == dim]
    elif any(row.dims != {dim} for row in rows):
        return None
    return None if any(row.floors for row in rows) else frozenset(rows)


def _constant_span(piece: Conjunction, dim: int) -> tuple[int, int] | None:
    """Return first and last value of a loop, None where they depend on anything."""
    rows = [one for one in piece.constraints if one[0].coefficient(dim)]
    return constant_span(rows, dim) if all(bounds_alone(row, dim) for row, _ in rows) else None
