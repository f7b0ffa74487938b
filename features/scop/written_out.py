"""Copies of statements that the source writes out, one after the other, each under conditions of its own.

A loop that is unrolled in the source is a sequence of copies. Where all of them are executed alike, it is a loop with a
known number of iterations. Where work-items, or loops around it, decide which ones are, compilers see a condition
around each copy, and the loop as such says too little: a tile's first copies may be for all work-items, and its last
one for some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from perflex.features.polynomials.affine import Affine, Column, integer
from perflex.features.scop.address_maps import AccessMap, Conjunction, address_maps, paths_of, tightened
from perflex.features.scop.scop import Scop, Statement
from perflex.isl import ISL_LOCK, isl

# With more copies of a statement than this, a loop stays a loop.
_MOST_COPIES = 64


@dataclass(frozen=True)
class Copy:
    """A copy of a statement; a statement in no such loop has one, which is itself."""

    number: int  # place of the statement in the Scop
    values: tuple[tuple[int, int], ...]  # dimensions of the loops that are written out, with their values
    path: tuple[int, ...]  # what identifies its other dimensions: as of `paths_of`
    order: tuple[tuple[int, ...], ...]  # as `Statement.order`, in those loops

    def domain(self, scop: Scop) -> isl.Set:
        """Return the instances of the statement that it executes."""
        domain = scop.statements[self.number].domain
        for dim, value in self.values:
            domain = domain.fix_val(isl.dim_type.set, dim, isl.Val(value))
        return domain


def copies_of(scop: Scop) -> Mapping[int, tuple[Copy, ...]]:
    """Return the copies of each statement, by its place in the Scop."""

    def compute() -> dict[int, tuple[Copy, ...]]:
        loops = _written_out(scop)
        return {number: tuple(_copies(scop, number, one, loops)) for number, one in enumerate(scop.statements)}

    return scop.derived("copies", (), compute)


def copied_maps(scop: Scop) -> tuple[tuple[Copy, Conjunction], ...]:
    """Return the address maps of all accesses that are not private, those of each copy by themselves."""

    def compute() -> tuple[tuple[Copy, Conjunction], ...]:
        found = (
            (copy, _at_copy(piece, dict(copy.values)) if copy.values else piece)
            for piece in address_maps(scop)
            for copy in copies_of(scop)[piece.number]
        )
        return tuple((copy, piece) for copy, piece in found if piece is not None)

    return scop.derived("maps of copies", (), compute)


def _written_out(scop: Scop) -> Mapping[tuple[int, int], range]:
    """Return the values of loops that are written out under conditions, by launch and number of the loop."""
    coupled = {
        (piece.launch, loop)
        for piece in address_maps(scop)
        for dim, loop in _unrolled(scop, scop.statements[piece.number])
        if any(dim in row.dims and row.dims != {dim} for row, _ in piece.constraints)
    }
    barred = {(one.launch, loop) for one in scop.barriers for loop in one.loops}
    found: dict[tuple[int, int], range] = {}
    for key in sorted(coupled - barred):
        mine = [
            (one, dim) for one in scop.statements for dim, loop in _unrolled(scop, one) if (one.launch, loop) == key
        ]
        values = _values(mine)
        others = max(prod(len(found.get((one.launch, loop), [0])) for loop in one.loops) for one, _ in mine)
        if values is not None and 0 < len(values) * others <= _MOST_COPIES and all(one.order for one, _ in mine):
            found[key] = values
    return found


def _unrolled(scop: Scop, statement: Statement) -> Iterable[tuple[int, int]]:
    """Return dimension and number of the loops around a statement that the source writes out."""
    axes = scop.launches[statement.launch].axes
    loops = zip(statement.loops, scop.loops_of(statement), strict=True)
    return [(axes + depth, loop) for depth, (loop, one) in enumerate(loops) if one.kind == "unrolled"]


def _values(statements: Iterable[tuple[Statement, int]]) -> range | None:
    """Return all values of a dimension, None where they have no end that is a number."""
    with ISL_LOCK:
        ends = [(one.domain.dim_min_val(dim), one.domain.dim_max_val(dim)) for one, dim in statements]
        if not all(end.is_int() for pair in ends for end in pair):
            return None
        return range(min(integer(low) for low, _ in ends), max(integer(high) for _, high in ends) + 1)


def _copies(scop: Scop, number: int, statement: Statement, loops: Mapping[tuple[int, int], range]) -> Iterable[Copy]:
    axes, path = scop.launches[statement.launch].axes, paths_of(number, statement)
    mine = {axes + depth: loops.get((statement.launch, loop)) for depth, loop in enumerate(path)}
    written = {dim: values for dim, values in mine.items() if values is not None}
    left = tuple(loop for depth, loop in enumerate(path) if axes + depth not in written)
    for values in product(*written.values()):
        at = dict(zip(written, values, strict=True))
        order: list[tuple[int, ...]] = []
        for depth, step in enumerate(statement.order):
            value = at.get(axes + depth - 1) if depth else None
            # A copy's place is among the statements around its loop.
            order = [*order, (step,)] if value is None else [*order[:-1], (*order[-1], value, step)]
        yield Copy(number, tuple(at.items()), left, tuple(order))


def _at_copy(piece: Conjunction, values: Mapping[int, int]) -> Conjunction | None:
    """Return what of a piece a copy executes, None if that is nothing."""
    rows = [(_at(row, values), equality) for row, equality in piece.constraints]
    if any((row.constant != 0 if equality else row.constant < 0) for row, equality in rows if _is_number(row)):
        return None
    fixed = [(Affine.of({dim: 1, "": -value}), True) for dim, value in values.items()]
    constraints = tightened((*(one for one in rows if not _is_number(one[0])), *fixed))
    accesses = tuple(_access_at(access, values) for access in piece.accesses)
    return replace(piece, constraints=constraints, accesses=accesses)


def _access_at(access: AccessMap, values: Mapping[int, int]) -> AccessMap:
    return replace(access, axes=tuple(_at(axis, values) for axis in access.axes))


def _is_number(form: Affine) -> bool:
    return not form.terms and not form.floors


def _at(form: Affine, values: Mapping[int, int]) -> Affine:
    """Return a function at values of some dimensions."""
    if not form.dims.intersection(values):
        return form
    columns: dict[Column, int] = {"": form.constant}
    for variable, factor in form.terms:
        if variable in values:
            columns[""] += factor * values[int(variable)]
        else:
            columns[variable] = factor
    for floor, factor in form.floors:
        inner = _at(floor, values)
        if _is_number(inner):
            columns[""] += factor * (inner.constant // inner.denominator)
        else:
            columns[inner] = columns.get(inner, 0) + factor
    found = Affine.of(columns, form.denominator)
    return Affine(found.constant // found.denominator) if _is_number(found) else found
