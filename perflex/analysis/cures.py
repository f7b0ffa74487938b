"""A kernel's description as it would be with a flaw mended: what `perflex.analysis.findings` predicts savings from."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from perflex.features import QuasiPolynomial, counts_of
from perflex.features.polynomials.cardinality import at_sizes as without_parameters
from perflex.features.scop.numbering import moved
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from perflex.features.counting.scop_counts import AccessCounts
    from perflex.features.scop.scop import Access, Array, Launch, Scop, Statement

Place: TypeAlias = "tuple[int, int]"
"""Of an access: the places of its statement in the Scop and of it in the statement."""
_IN, _SET = isl.dim_type.in_, isl.dim_type.set
_constant = QuasiPolynomial.constant
# Elements that rows of arrays are a multiple of: lines of 128 bytes of float32.
_LINE = 32


def access_counts(scop: Scop) -> dict[Place, AccessCounts]:
    """Return what is counted of each access, by its place."""
    places = [(at, number) for at, one in enumerate(scop.statements) for number in range(len(one.accesses))]
    return dict(zip(places, counts_of(scop).accesses, strict=True))


def at_sizes(strides: Iterable[QuasiPolynomial], sizes: Mapping[str, int]) -> list[int]:
    """Return strides or extents as numbers."""
    return [int(stride.evaluate(sizes)) for stride in strides]


def coalesced(scop: Scop, places: Collection[Place], sizes: Mapping[str, int]) -> Scop:
    """Return a Scop in which data lie so that neighbouring work-items access neighbouring elements.

    Each access must have one stride along axis 0 of the work-group, a number other than 0.
    """
    counted, rows = access_counts(scop), _rows(scop, places, sizes)

    def changed(place: Place, access: Access) -> Access:
        if place not in places:
            return access
        stride = abs(int(counted[place].local_strides[0].evaluate(sizes)))  # type: ignore[union-attr] # there is one
        strides, axis = at_sizes(_strides(scop, access), sizes), _axis_of_items(scop, place, sizes)
        if axis is None:
            return _cut(access, strides, stride, rows[access.array])
        new = [
            1 if at == axis else one * rows[access.array] if abs(one) < stride else one
            for at, one in enumerate(strides)
        ]
        return replace(access, strides=tuple(map(_constant, new)))

    return _with_accesses(scop, changed)


def _rows(scop: Scop, places: Iterable[Place], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return how many elements of each array a row holds that runs along neighbouring work-items; whole lines."""
    counted, rows = access_counts(scop), dict[str, int]()
    for place in places:
        statement = scop.statements[place[0]]
        access = statement.accesses[place[1]]
        strides, axis = at_sizes(_strides(scop, access), sizes), _axis_of_items(scop, place, sizes)
        extents = _extents(access.relation, statement.domain, sizes)
        stride = abs(int(counted[place].local_strides[0].evaluate(sizes)))  # type: ignore[union-attr] # there is one
        last = sum((extent - 1) * one for extent, one in zip(extents, strides, strict=True))
        length = last // stride + 1 if axis is None else extents[axis]
        rows[access.array] = max(rows.get(access.array, 0), -(-length // _LINE) * _LINE)
    return rows


def _strides(scop: Scop, access: Access) -> tuple[QuasiPolynomial, ...]:
    return scop.array(access.array).strides if access.strides is None else access.strides


def _axis_of_items(scop: Scop, place: Place, sizes: Mapping[str, int]) -> int | None:
    """Return the one axis that neighbouring work-items are neighbours along, if there is one."""
    statement = scop.statements[place[0]]
    access, dim = statement.accesses[place[1]], len(scop.launches[statement.launch].groups)
    with ISL_LOCK:
        function = access.relation.as_pw_multi_aff()
        steps = []
        for axis in range(function.dim(isl.dim_type.out)):
            pieces = [piece for _, piece in function.get_pw_aff(axis).get_pieces()]
            if any(piece.dim(isl.dim_type.div) for piece in pieces):
                return None
            steps.append({abs(int(piece.get_coefficient_val(_IN, dim).to_python())) for piece in pieces})
    moving = [axis for axis, each in enumerate(steps) if each != {0}]
    strides = at_sizes(_strides(scop, access), sizes)
    # Along an axis of neighbours a row is as it is.
    return moving[0] if len(moving) == 1 and steps[moving[0]] == {1} and abs(strides[moving[0]]) > 1 else None


def _extents(relation: Any, domain: Any, sizes: Mapping[str, int]) -> list[int]:
    """Return one more than the largest index along each axis of what a relation reaches from a domain at sizes."""
    with ISL_LOCK:
        reached = without_parameters(relation.intersect_domain(domain), sizes).range()
        return [int(reached.dim_max_val(axis).to_python()) + 1 for axis in range(reached.dim(_SET))]


def _cut(access: Access, strides: Sequence[int], row: int, rows: int, pad: int | None = None) -> Access:
    """Return an access of an array cut into rows: element after element of all rows, or with rows that are padded."""
    axes = [f"a{axis}" for axis in range(len(strides))]
    flat = " + ".join(f"{stride}*{axis}" for stride, axis in zip(strides, axes, strict=True)) or "0"
    with ISL_LOCK:
        relation = access.relation.apply_range(
            isl.Map(f"{{ [{', '.join(axes)}] -> [({flat}) mod {row}, floor(({flat})/{row})] }}")
        )
    new = (rows, 1) if pad is None else (1, row + pad)
    return replace(access, relation=relation, strides=tuple(map(_constant, new)))


def _with_accesses(
    scop: Scop, changed: Callable[[Place, Access], Access], arrays: Sequence[Array] | None = None
) -> Scop:
    statements = tuple(
        replace(one, accesses=tuple(changed((at, number), access) for number, access in enumerate(one.accesses)))
        for at, one in enumerate(scop.statements)
    )
    return replace(scop, statements=statements, arrays=scop.arrays if arrays is None else tuple(arrays))


def padded(scop: Scop, name: str, pad: int, sizes: Mapping[str, int], row: int) -> Scop:
    """Return a Scop whose local array has rows that are so many elements longer; of one axis, rows are `row` long."""
    array = scop.array(name)
    accesses = [one for statement in scop.statements for one in statement.accesses if one.array == name]
    shape = at_sizes(array.shape, sizes)
    if len(shape) > 1 and all(access.strides is None for access in accesses):
        shape[-1] += pad
        strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        new = replace(array, shape=tuple(map(_constant, shape)), strides=tuple(map(_constant, strides)))
        return replace(scop, arrays=tuple(new if one.name == name else one for one in scop.arrays))
    longer = -(-prod(shape) // row) * (row + pad)
    new = replace(array, shape=(_constant(longer),), strides=(_constant(1),))

    def changed(_: Place, access: Access) -> Access:
        if access.array != name:
            return access
        return _cut(access, at_sizes(_strides(scop, access), sizes), row, 0, pad)

    return _with_accesses(scop, changed, [new if one.name == name else one for one in scop.arrays])


def works_together(scop: Scop, number: int) -> bool:
    """Return whether the work-items of a launch's work-groups meet at barriers or share local memory."""
    used = {one.array for each in scop.statements if each.launch == number for one in each.accesses}
    return any(one.launch == number for one in scop.barriers) or any(scop.array(x).space == "local" for x in used)


def regrouped(scop: Scop, number: int, items: int, sizes: Mapping[str, int]) -> Scop | None:
    """Return a Scop whose launch has work-groups of other sizes along their last axis; None where they work together.

    The new number of work-items along that axis divides the old one, or is a multiple of it.
    """
    launch = scop.launches[number]
    axis = max((at for at, extent in enumerate(launch.items) if extent > 1), default=0)
    old, count = launch.items[axis], int(launch.groups[axis].evaluate(sizes))
    if axis >= len(launch.groups) or works_together(scop, number) or (old % items and items % old):
        return None
    group, item = f"d{axis}", f"d{len(launch.groups) + axis}"
    if items < old:
        count *= old // items
        new = {group: f"{old // items}*{group} + floor({item}/{items})", item: f"{item} mod {items}"}
    else:
        count = -(-count // (items // old))
        new = {group: f"floor({group}/{items // old})", item: f"{item} + {old}*({group} mod {items // old})"}
    groups = (*launch.groups[:axis], _constant(count), *launch.groups[axis + 1 :])
    changed = replace(launch, groups=groups, items=(*launch.items[:axis], items, *launch.items[axis + 1 :]))
    with ISL_LOCK:
        statements = tuple(one if one.launch != number else moved(one, _moves(one, new)) for one in scop.statements)
    launches = tuple(changed if at == number else one for at, one in enumerate(scop.launches))
    return replace(scop, launches=launches, statements=statements)


def _moves(statement: Statement, new: Mapping[str, str]) -> Any:
    """Return the map of a statement's instances that gives some dimensions, d0, d1, ..., other values."""
    names = [f"d{place}" for place in range(statement.domain.dim(_SET))]
    return isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(new.get(name, name) for name in names)}] }}")


def packed(scop: Scop, numbers: Collection[int], sizes: Mapping[str, int], lanes: int) -> tuple[Scop, dict[int, Any]]:
    """Return a Scop in which work-items next to each other execute statements that only some of a sub-group execute.

    With it the new domains of those statements whose work-items then fill fewer sub-groups, by place. What they access
    of global memory stays as it is: data do not move.
    """
    statements, more, changed = list(scop.statements), [], dict[int, Any]()
    for number in numbers:
        one = statements[number]
        launch = scop.launches[one.launch]
        apart = not works_together(scop, one.launch)
        moves = _packing(_executing(one, launch, sizes), launch, apart=apart)
        if moves is None:
            continue
        far = [access for access in one.accesses if scop.array(access.array).memory == "global"]
        near = tuple(access for access in one.accesses if access not in far)
        with ISL_LOCK:
            new = moved(replace(one, accesses=near), _moves(one, moves))
        items, groups = (
            [counts_of(scop).executions(x.domain, one.launch, size).evaluate(sizes) for x in (one, new)]
            for size in (None, lanes)
        )
        # Elsewhere the pattern may be another one, of which some would fall together.
        if items[0] == items[1] and groups[1] < groups[0]:
            changed[number], statements[number] = new.domain, new
            left = replace(one, accesses=tuple(far), operations=(), recurrence=None, resets="")
            more += [replace(left, name=f"{one.name}_accesses")] if far else []
    return replace(scop, statements=(*statements, *more)), changed


def _executing(statement: Statement, launch: Launch, sizes: Mapping[str, int]) -> list[list[int]]:
    """Return which work-items along axis 0 execute a statement, in each row of a work-group that has some."""
    groups, items = len(launch.groups), len(launch.items)
    with ISL_LOCK:
        domain = without_parameters(statement.domain, sizes)
        domain = domain.project_out(_SET, groups + items, domain.dim(_SET) - groups - items)
        sample = domain.sample_point()
        if sample.is_void():
            return []
        for axis in range(groups):
            domain = domain.fix_val(_SET, axis, sample.get_coordinate_val(_SET, axis))
        rows: dict[tuple[int, ...], list[int]] = defaultdict(list)

        def take(point: Any) -> None:
            first, *others = (int(point.get_coordinate_val(_SET, axis).to_python()) for axis in range(items))
            rows[tuple(others)].append(first)

        domain.project_out(_SET, 0, groups).foreach_point(take)
    return [sorted(row) for row in rows.values()]


def _packing(rows: Sequence[Sequence[int]], launch: Launch, *, apart: bool) -> dict[str, str] | None:
    """Return the new work-items of a statement that some of each row execute, in a pattern that comes again.

    Where work-groups are `apart`, those of one may be work-items of another.
    """
    width = launch.items[0]
    period = next((each for each in range(1, width) if width % each == 0 and _repeats(rows, each, width)), width)
    parts = [[item for item in row if item < period] for row in rows]
    steps = {after - before for part in parts for before, after in pairwise(part)} or {period}
    offset, step = min((part[0] for part in parts), default=0), max(steps)
    length = len(parts[0]) if parts else period
    regular = len(steps) == 1 and {len(part) for part in parts} == {length}
    if length == period or not regular or max(part[0] for part in parts) - offset >= step:
        return None
    first, item = len(launch.groups), f"d{len(launch.groups)}"
    rank = f"{length}*floor({item}/{period}) + floor(({item} mod {period} - {offset})/{step})"
    others = [(f"d{first + axis}", extent) for axis, extent in enumerate(launch.items) if axis]
    # Rows of the work-group follow one another, and work-groups along axis 0.
    row = length * width // period
    for name, extent in others:
        rank, row = f"{rank} + {row}*{name}", row * extent
    rank = f"{rank} + {row}*d0" if apart else rank
    moves, size = {item: f"({rank}) mod {width}"}, width
    for name, extent in others:
        moves[name], size = f"floor(({rank})/{size}) mod {extent}", size * extent
    return moves | ({"d0": f"floor(({rank})/{size})"} if apart else {})


def _repeats(rows: Sequence[Sequence[int]], period: int, width: int) -> bool:
    sets = map(set, rows)
    return all((item + period in one) == (item in one) for one in sets for item in range(width - period))


def in_float32(scop: Scop, lines: Collection[str]) -> Scop:
    """Return a Scop whose statements of some lines compute in float32 what they compute in float64."""

    def single(operations: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(replace(one, dtype="float32") if one.dtype == "float64" else one for one in operations)

    def changed(one: Statement) -> Statement:
        again = one.recurrence and replace(one.recurrence, operations=single(one.recurrence.operations))
        return replace(one, operations=single(one.operations), recurrence=again)

    return replace(scop, statements=tuple(changed(one) if one.line in lines else one for one in scop.statements))
