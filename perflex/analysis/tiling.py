"""A kernel's description with tiles in local memory, for what each work-item of a work-group loads for itself."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perflex.features import QuasiPolynomial
from perflex.features.polynomials.cardinality import at_sizes
from perflex.features.scop.numbering import moved
from perflex.features.scop.scop import Access, Array, Barrier, Loop, Statement
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.scop.scop import Scop

_IN, _SET, _PARAM = isl.dim_type.in_, isl.dim_type.set, isl.dim_type.param


@dataclass(frozen=True)
class Tile:
    """A load that a tile in local memory would save.

    Attributes
    ----------
    place
        Places of its statement in the Scop and of the access in the statement.
    axis, width
        The axis of the work-group that it does not depend on, along which work-items would load one element each, and
        the iterations of the innermost loop that a tile holds.
    times
        How many work-items of a work-group load each element.
    """

    place: tuple[int, int]
    axis: int
    width: int
    times: int


def tileable(scop: Scop, sizes: Mapping[str, int]) -> list[Tile]:
    """Return the loads in one loop that tiles of the same width would save; of several loops those of the first."""
    found: list[Tile] = []
    stored = {one.array for each in scop.statements for one in each.accesses if one.direction == "store"}
    for number, one in enumerate(scop.statements):
        loops = scop.launches[one.launch].loops
        inner = one.loops[-1] if one.loops else None
        if inner is None or loops[inner].kind != "loop" or any(each.parent == inner for each in loops):
            continue
        if one.guarded or one.lanes > 1:
            continue
        first = scop.statements[found[0].place[0]] if found else one
        if (first.launch, first.loops) != (one.launch, one.loops):
            continue
        for at, access in enumerate(one.accesses):
            if (
                access.direction == "load"
                and access.array not in stored
                and scop.array(access.array).memory == "global"
            ):
                found += _tile(scop, (number, at), sizes)
    width = min((one.width for one in found), default=0)
    return [Tile(one.place, one.axis, width, one.times) for one in found]


def _tile(scop: Scop, place: tuple[int, int], sizes: Mapping[str, int]) -> list[Tile]:
    statement = scop.statements[place[0]]
    access, launch = statement.accesses[place[1]], scop.launches[statement.launch]
    with ISL_LOCK:
        relation, dims = access.relation, statement.domain.dim(_SET)
        if not relation.is_single_valued():
            return []
        function = relation.as_pw_multi_aff()
        pieces = [
            piece
            for axis in range(function.dim(isl.dim_type.out))
            for _, piece in function.get_pw_aff(axis).get_pieces()
        ]
        if any(piece.dim(isl.dim_type.div) for piece in pieces):
            return []
        moves = [any(not one.get_coefficient_val(_IN, dim).is_zero() for one in pieces) for dim in range(dims)]
        last = at_sizes(statement.domain, sizes).dim_max_val(dims - 1)
    free = [axis for axis, extent in enumerate(launch.items) if extent > 1 and not moves[len(launch.groups) + axis]]
    if not moves[-1] or not free:
        return []
    axis = max(free, key=lambda one: launch.items[one])
    times, trips = launch.items[axis], int(last.to_python()) + 1
    return [Tile(place, axis, min(times, trips), times)]


def _fixed(of: Any, sizes: Mapping[str, int]) -> Any:
    """Return a set or map at given sizes, with its parameters."""
    for name, value in sizes.items():
        at = of.find_dim_by_name(isl.dim_type.param, name)
        of = of if at < 0 else of.fix_val(isl.dim_type.param, at, isl.Val(value))
    return of


def tiled(scop: Scop, tiles: Sequence[Tile], sizes: Mapping[str, int]) -> Scop:
    """Return a Scop in which a loop runs tile by tile, and work-items load each tile together between barriers."""
    first = scop.statements[tiles[0].place[0]]
    launch, width, depth = scop.launches[first.launch], tiles[0].width, len(first.loops)
    inner, position = first.loops[-1], launch.axes + depth - 1
    place = first.order[:depth]

    def cut(one: Any) -> Any:
        if one.launch != first.launch or one.loops != first.loops:
            return one
        names = [f"d{dim}" for dim in range(one.domain.dim(_SET))]
        image = [*names[:position], f"floor(d{position}/{width})", f"d{position} mod {width}", *names[position + 1 :]]
        changed = replace(one, domain=_fixed(one.domain, sizes))
        changed = moved(changed, isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(image)}] }}"))
        order = (*place, 3, one.order[-1]) if one.order else ()
        return replace(changed, loops=(*one.loops, len(launch.loops)), order=order)

    with ISL_LOCK:
        statements, barriers = list(map(cut, scop.statements)), list(map(cut, scop.barriers))
        arrays, loaders = list(scop.arrays), []
        for number, tile in enumerate(tiles):
            statement, at = statements[tile.place[0]], tile.place[1]
            array, loader, used = _loaded(
                scop, statement, tile, launch.axes - len(launch.items), number, (*place, number % 2)
            )
            arrays.append(array)
            loaders.append(loader)
            accesses = (*statement.accesses[:at], used, *statement.accesses[at + 1 :])
            statements[tile.place[0]] = replace(statement, accesses=accesses)
        whole = statements[tiles[0].place[0]].domain
        outer = whole.project_out(_SET, position + 1, 1)
        barriers += [Barrier("local", outer, first.launch, first.loops, (*place, order)) for order in (2, 4)]
    changed = replace(launch, loops=(*launch.loops, Loop(f"{launch.loops[inner].name}_tile", inner)))
    launches = tuple(changed if one is launch else one for one in scop.launches)
    return replace(
        scop, launches=launches, arrays=tuple(arrays), statements=(*statements, *loaders), barriers=tuple(barriers)
    )


def _loaded(
    scop: Scop, statement: Statement, tile: Tile, groups: int, number: int, order: tuple[int, ...]
) -> tuple[Array, Statement, Access]:
    """Return the tile, what loads it, and what accesses it in place of a load."""
    access, launch = statement.accesses[tile.place[1]], scop.launches[statement.launch]
    dims = statement.domain.dim(_SET)
    names = [f"d{dim}" for dim in range(dims)]
    item, trip = f"d{groups + tile.axis}", f"d{dims - 1}"
    function = access.relation.as_pw_multi_aff()
    moving = [
        axis
        for axis in range(len(launch.items))
        if axis != tile.axis
        and any(
            not piece.get_coefficient_val(_IN, groups + axis).is_zero()
            for out in range(function.dim(isl.dim_type.out))
            for _, piece in function.get_pw_aff(out).get_pieces()
        )
    ]
    # Neighbours along axis 0 stay neighbours.
    index = [f"d{groups + axis}" for axis in reversed(moving) if axis] + [trip]
    shape = [launch.items[axis] for axis in reversed(moving) if axis] + [tile.width]
    if 0 in moving:
        index, shape = [*index, f"d{groups}"], [*shape, launch.items[0]]
    array = Array(
        f"perflex_tile_{number}",
        "local",
        scop.array(access.array).dtype,
        tuple(map(QuasiPolynomial.constant, shape)),
        tuple(QuasiPolynomial.constant(prod(shape[axis + 1 :])) for axis in range(len(shape))),
    )
    local = isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(index)}] }}")
    mine = isl.Set(f"{{ [{', '.join(names)}] : {trip} = {item} }}")
    loads = access.relation.intersect_domain(mine).project_out(_IN, dims - 1, 1)
    stores = local.intersect_domain(mine).project_out(_IN, dims - 1, 1)
    domain = statement.domain.intersect(mine).project_out(_SET, dims - 1, 1)
    accesses = (replace(access, relation=loads), Access(array.name, "store", stores, line=access.line))
    loader = Statement(
        f"perflex_loads_{number}", domain, accesses, launch=statement.launch, loops=statement.loops[:-1], order=order,
        line=statement.line,
    )  # fmt: skip
    used = Access(array.name, "load", local, line=access.line)
    return array, loader, used
