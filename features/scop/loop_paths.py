"""Sequential loops around statements, told apart by their paths; which of them compilers unroll."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.isl import isl

if TYPE_CHECKING:
    from perflex.features.scop.scop import Statement

# Compilers unroll loops with up to so many iterations, if the number is known to them.
MOST_UNROLLED = 32

# What tells a loop from the launch's others; the path of the loop around it is a prefix.
Path = tuple[object, ...]


def paths_of(number: int, statement: Statement, axes: int) -> tuple[Path, ...]:
    """Return the paths of the loops around a statement; those that its schedule does not name are its own."""
    steps: list[object] = []
    steps += [statement.schedule[: place + 1] for place, step in enumerate(statement.schedule) if isinstance(step, str)]
    missing = int(statement.domain.dim(isl.dim_type.set)) - axes - len(steps)
    steps += [("own", number, place) for place in range(missing)]
    return tuple(tuple(steps[: depth + 1]) for depth in range(len(steps)))
