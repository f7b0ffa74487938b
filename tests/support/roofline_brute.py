"""Sub-groups, work-items and memory transactions of a Scop, counted point by point."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import islpy as isl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perflex.features import Scop, Statement

WARP = 32


def points_of(domain: Any, sizes: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """Every point of a set at given sizes."""
    fixed = domain
    for place in range(domain.dim(isl.dim_type.param)):
        name = domain.get_dim_name(isl.dim_type.param, place)
        fixed = fixed.fix_val(isl.dim_type.param, place, isl.Val(sizes[name]))
    found: list[tuple[int, ...]] = []
    dims = domain.dim(isl.dim_type.set)

    def keep(point: Any) -> None:
        values = (point.get_coordinate_val(isl.dim_type.set, axis) for axis in range(dims))
        found.append(tuple(int(value.to_python()) for value in values))

    fixed.foreach_point(keep)
    return iter(found)


def sub_group(scop: Scop, statement: Statement, point: tuple[int, ...]) -> tuple[object, ...]:
    """The sub-group that executes an instance, and in which iteration."""
    launch = scop.launches[statement.launch]
    groups, axes = len(launch.groups), len(launch.groups) + len(launch.items)
    flat, stride = 0, 1
    for place, extent in zip(point[groups:axes], launch.items, strict=True):
        flat += place * stride
        stride *= extent
    return (*point[:groups], flat // WARP, *point[axes:])


def transactions(scop: Scop, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Sectors of 32 bytes of global accesses; accesses of local memory with their replays, elements of 4 bytes."""
    total = {"global": 0, "local": 0}
    for statement in scop.statements:
        where = list(points_of(statement.domain, sizes))
        for access in statement.accesses:
            array = scop.array(access.array)
            strides = access.strides if access.strides is not None else array.strides
            steps = [int(stride.evaluate(sizes)) for stride in strides]
            touched: dict[tuple[object, ...], set[int]] = defaultdict(set)
            for point in where:
                index = index_of(access, point, sizes)
                address = array.itemsize * sum(place * step for place, step in zip(index, steps, strict=True))
                touched[sub_group(scop, statement, point)].add(address)
            for addresses in touched.values():
                if array.space == "global":
                    total["global"] += len({address // 32 for address in addresses})
                elif array.space == "local":
                    words = {address // 4 for address in addresses}
                    total["local"] += max(sum(word % 32 == bank for word in words) for bank in range(32))
    return total["global"], total["local"]


def index_of(access: Any, point: tuple[int, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    relation = access.relation
    for place, value in enumerate(point):
        relation = relation.fix_val(isl.dim_type.in_, place, isl.Val(value))
    (image,) = points_of(relation.range(), sizes)
    return image


def executed(scop: Scop, sizes: Mapping[str, int], statement: Statement) -> tuple[int, int]:
    """Sub-group and work-item instances of a statement."""
    where = list(points_of(statement.domain, sizes))
    return len({sub_group(scop, statement, point) for point in where}), len(where)
