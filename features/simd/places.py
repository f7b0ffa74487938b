"""Where a CPU executes something: by vectors of work-items or one work-item at a time, in a loop or not."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from perflex.isl import isl

if TYPE_CHECKING:
    from perflex.features.scop.scop import Launch, Scop, Statement

# "wide": in whole vectors of work-items along axis 0; "narrow": work-items that fill no vector, one at a time.
Width = Literal["wide", "narrow"]
# "straight": in no sequential loop but such as the source writes out or that hold a barrier; "short": in loops of
# few iterations, known to the compiler, that it may unroll or not; "loop": the rest.
Nesting = Literal["straight", "short", "loop"]
WIDTHS: tuple[Width, ...] = get_args(Width)
NESTINGS: tuple[Nesting, ...] = get_args(Nesting)


def whole_vectors(launch: Launch, lanes: int) -> int:
    """Return how many whole vectors of so many lanes the work-items along axis 0 of a work-group fill."""
    return launch.items[0] // lanes if launch.items else 0


def executing(domain: Any, launch: Launch, width: Width, lanes: int) -> Any | None:
    """Return the vectors, or the work-items that fill none, which execute a set of instances; None if there are none.

    Parameters
    ----------
    domain
        isl set over the launch's work-groups, work-items and any number of loops.
    launch
        The launch.
    width
        Which of them.
    lanes
        Work-items of a vector.

    Returns
    -------
    isl set
        For ``"wide"`` the work-item's index along axis 0 is replaced by the vector's: a vector executes what any of its
        work-items does.
    """
    groups, vectors = len(launch.groups), whole_vectors(launch, lanes)
    if width == "wide":
        if not vectors:
            return None
        inside = domain.upper_bound_val(isl.dim_type.set, groups, isl.Val(vectors * lanes - 1))
        return inside.apply(_vector_map(groups, inside.dim(isl.dim_type.set), lanes))
    if not launch.items:
        return domain
    if launch.items[0] == vectors * lanes:
        return None
    return domain.lower_bound_val(isl.dim_type.set, groups, isl.Val(vectors * lanes))


@lru_cache(maxsize=1024)
def _vector_map(groups: int, dims: int, lanes: int) -> Any:
    names = [f"i{position}" for position in range(dims)]
    images = [f"floor({name}/{lanes})" if place == groups else name for place, name in enumerate(names)]
    return isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(images)}] }}")


def loops_with_barriers(scop: Scop, statement: Statement) -> int:
    """Return how many of the outermost loops around a statement hold a barrier: work-items run inside of them."""
    most = 0
    for barrier in scop.barriers:
        if barrier.launch == statement.launch:
            # Schedules alternate statement numbers and loop names: two steps for each loop that is shared.
            shared = 0
            while (
                2 * shared + 1 < min(len(barrier.schedule), len(statement.schedule))
                and barrier.schedule[2 * shared : 2 * shared + 2] == statement.schedule[2 * shared : 2 * shared + 2]
            ):
                shared += 1
            most = max(most, shared)
    return most
