"""From work-items to sub-groups: which instances are executed together."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from perflex.isl import isl

if TYPE_CHECKING:
    from perflex.features.scop.scop import Launch


def sub_groups_of(domain: Any, launch: Launch, sub_group_size: int) -> Any:
    """Return the sub-groups that execute a set of work-item instances, each once per iteration of the loops.

    An isl set over work-groups, work-items and loops becomes one over work-groups, their sub-groups, and loops.
    """
    sequential = domain.dim(isl.dim_type.set) - len(launch.groups) - len(launch.items)
    return domain.apply(_sub_group_map(len(launch.groups), launch.items, sequential, sub_group_size))


def diverged_sub_groups(domain: Any, launch: Launch, sub_group_size: int) -> Any:
    """Return those of `sub_groups_of` a set of instances of which some work-items take part and others do not."""
    groups, sequential = len(launch.groups), domain.dim(isl.dim_type.set) - len(launch.groups) - len(launch.items)
    members = _sub_group_map(groups, launch.items, sequential, sub_group_size)
    active = domain.apply(members)
    everyone = active.apply(members.reverse())
    for axis, extent in enumerate(launch.items):
        everyone = everyone.lower_bound_val(isl.dim_type.set, groups + axis, isl.Val(0))
        everyone = everyone.upper_bound_val(isl.dim_type.set, groups + axis, isl.Val(extent - 1))
    return everyone.subtract(domain).apply(members).coalesce()


@lru_cache(maxsize=1024)
def _sub_group_map(groups: int, items: tuple[int, ...], sequential: int, sub_group_size: int) -> Any:
    outer = [f"g{i}" for i in range(groups)]
    local = [f"l{i}" for i in range(len(items))]
    loops = [f"s{i}" for i in range(sequential)]
    # Work-items are packed into sub-groups along the lowest axis first (Section 1.2).
    terms, stride = [], 1
    for name, extent in zip(local, items, strict=True):
        terms.append(f"{stride}*{name}")
        stride *= extent
    flat = " + ".join(terms) or "0"
    source = ", ".join(outer + local + loops)
    target = ", ".join([*outer, f"floor(({flat})/{sub_group_size})", *loops])
    return isl.Map(f"{{ [{source}] -> [{target}] }}")
