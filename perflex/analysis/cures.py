"""A kernel's description as it would be with a flaw mended: what `perflex.analysis.findings` predicts savings from."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from perflex.features import QuasiPolynomial, counts_of
from perflex.features.scop.numbering import moved
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from perflex.features.counting.scop_counts import AccessCounts
    from perflex.features.scop.scop import Access, Array, Scop, Statement

Place: TypeAlias = "tuple[int, int]"
"""Of an access: the places of its statement in the Scop and of it in the statement."""
_IN, _SET = isl.dim_type.in_, isl.dim_type.set
_constant = QuasiPolynomial.constant


def access_counts(scop: Scop) -> dict[Place, AccessCounts]:
    """Return what is counted of each access, by its place."""
    places = [(at, number) for at, one in enumerate(scop.statements) for number in range(len(one.accesses))]
    return dict(zip(places, counts_of(scop).accesses, strict=True))


def at_sizes(strides: Iterable[QuasiPolynomial], sizes: Mapping[str, int]) -> list[int]:
    """Return strides or extents as numbers."""
    return [int(stride.evaluate(sizes)) for stride in strides]


def coalesced(scop: Scop, places: Collection[Place], sizes: Mapping[str, int]) -> Scop:
    """Return a Scop in which data lie so that neighbouring work-items access neighbouring elements.

    Each access must have a stride along axis 0 of the work-group that is a number other than 0.
    """
    counted = access_counts(scop)

    def changed(place: Place, access: Access) -> Access:
        if place not in places:
            return access
        item = counted[place]
        stride = int(item.local_strides[0].evaluate(sizes))  # type: ignore[union-attr] # where one is asked for
        strides = at_sizes(_strides(scop, access), sizes)
        axis = _axis_of_items(access, len(scop.launches[item.statement.launch].groups), strides, stride)
        if axis is None:
            return _cut(access, strides, abs(stride), sizes)
        extent = _extents(access.relation, sizes)[axis]
        new = [1 if at == axis else one * extent if abs(one) < abs(stride) else one for at, one in enumerate(strides)]
        return replace(access, strides=tuple(map(_constant, new)))

    return _with_accesses(scop, changed)


def _strides(scop: Scop, access: Access) -> tuple[QuasiPolynomial, ...]:
    return scop.array(access.array).strides if access.strides is None else access.strides


def _axis_of_items(access: Access, dim: int, strides: Sequence[int], stride: int) -> int | None:
    """Return the one axis that neighbouring work-items are neighbours along, if there is one."""
    with ISL_LOCK:
        function = access.relation.as_pw_multi_aff()
        moving = []
        for axis, each in enumerate(strides):
            pieces = [piece for _, piece in function.get_pw_aff(axis).get_pieces()]
            steps = {piece.get_coefficient_val(_IN, dim).to_python() for piece in pieces}
            if any(piece.dim(isl.dim_type.div) for piece in pieces):
                return None
            moving += [axis] if steps != {0} and abs(each) == abs(stride) else [None] if steps != {0} else []
    return moving[0] if len(moving) == 1 else None


def _extents(relation: Any, sizes: Mapping[str, int]) -> list[int]:
    """Return one more than the largest index along each axis of what a relation reaches at sizes."""
    with ISL_LOCK:
        for name, value in sizes.items():
            at = relation.find_dim_by_name(isl.dim_type.param, name)
            relation = relation if at < 0 else relation.fix_val(isl.dim_type.param, at, isl.Val(value))
        reached = relation.range()
        return [int(reached.dim_max_val(axis).to_python()) + 1 for axis in range(reached.dim(_SET))]


def _cut(access: Access, strides: Sequence[int], row: int, sizes: Mapping[str, int], pad: int | None = None) -> Access:
    """Return an access of an array cut into rows: element after element of all rows, or with rows that are padded."""
    axes = [f"a{axis}" for axis in range(len(strides))]
    flat = " + ".join(f"{stride}*{axis}" for stride, axis in zip(strides, axes, strict=True)) or "0"
    with ISL_LOCK:
        relation = access.relation.apply_range(
            isl.Map(f"{{ [{', '.join(axes)}] -> [({flat}) mod {row}, floor(({flat})/{row})] }}")
        )
    rows = _extents(relation, sizes)[1]
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
        return _cut(access, at_sizes(_strides(scop, access), sizes), row, sizes, pad)

    return _with_accesses(scop, changed, [new if one.name == name else one for one in scop.arrays])


def regrouped(scop: Scop, number: int, items: int, sizes: Mapping[str, int]) -> Scop | None:
    """Return a Scop whose launch has work-groups of other sizes along their last axis; None where they work together.

    The new number of work-items along that axis divides the old one, or is a multiple of it.
    """
    launch = scop.launches[number]
    axis = max((at for at, extent in enumerate(launch.items) if extent > 1), default=0)
    old, count = launch.items[axis], int(launch.groups[axis].evaluate(sizes))
    if axis >= len(launch.groups) or any(one.launch == number for one in scop.barriers) or (old % items and items % old):
        return None
    local = {one.array for each in scop.statements if each.launch == number for one in each.accesses}
    if any(scop.array(name).space == "local" for name in local):
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


def packed(scop: Scop, numbers: Collection[int], sizes: Mapping[str, int]) -> Scop:
    """Return a Scop in which work-items next to each other execute statements that every n-th one executes."""

    def changed(number: int, one: Statement) -> Statement:
        at = len(scop.launches[one.launch].groups)
        if number not in numbers or (step := step_of_items(one, at, sizes)) is None:
            return one
        first, stride = step
        with ISL_LOCK:
            found: Statement = moved(one, _moves(one, {f"d{at}": f"floor((d{at} - {first})/{stride})"}))
        return found

    return replace(scop, statements=tuple(changed(number, one) for number, one in enumerate(scop.statements)))


def step_of_items(statement: Statement, dim: int, sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """Return the first work-item along axis 0 and the distance to the next that execute a statement, if it is above 1.

    `dim` is the dimension of axis 0 of the work-items.
    """
    with ISL_LOCK:
        domain = statement.domain
        for name, value in sizes.items():
            at = domain.find_dim_by_name(isl.dim_type.param, name)
            domain = domain if at < 0 else domain.fix_val(isl.dim_type.param, at, isl.Val(value))
        domain = domain.project_out(_SET, dim + 1, domain.dim(_SET) - dim - 1).project_out(_SET, 0, dim)
        found: list[int] = []
        domain.foreach_point(lambda point: found.append(int(point.get_coordinate_val(_SET, 0).to_python())))
    found.sort()
    steps = {after - before for before, after in zip(found, found[1:], strict=False)}
    return (found[0], steps.pop()) if len(steps) == 1 and min(steps) > 1 else None


def in_float32(scop: Scop, lines: Collection[str]) -> Scop:
    """Return a Scop whose statements of some lines compute in float32 what they compute in float64."""

    def single(operations: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(replace(one, dtype="float32") if one.dtype == "float64" else one for one in operations)

    def changed(one: Statement) -> Statement:
        again = one.recurrence and replace(one.recurrence, operations=single(one.recurrence.operations))
        return replace(one, operations=single(one.operations), recurrence=again)

    return replace(scop, statements=tuple(changed(one) if one.line in lines else one for one in scop.statements))
