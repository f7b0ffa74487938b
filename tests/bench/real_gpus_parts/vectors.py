"""Loops over neighbours in memory as vectors: one instruction moves them all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import islpy as isl

if TYPE_CHECKING:
    from collections.abc import Collection

    from perflex.features import Scop, Statement

# Longer than any body of a loop here, so that what stood in a loop finds places between its neighbours.
_PLACES = 64


def in_vectors(scop: Scop, loops: Collection[str]) -> Scop:
    """Return a Scop in which innermost loops of these names are the dimension ``lane`` of vectors.

    Raises
    ------
    ValueError
        One of the loops has another one in it.
    """
    statements = tuple(_in_vectors(one, loops) for one in scop.statements)
    barriers = tuple(replace(one, schedule=_spread(one.schedule)) for one in scop.barriers)
    return replace(scop, statements=statements, barriers=barriers)


def _in_vectors(statement: Statement, loops: Collection[str]) -> Statement:
    schedule = _spread(statement.schedule)
    if any(step in loops for step in schedule[:-2]):
        msg = (
            f"statement {statement.name} has the loops {statement.loops}, of which {', '.join(loops)} must be innermost"
        )
        raise ValueError(msg)
    if len(schedule) < 3 or schedule[-2] not in loops:
        return replace(statement, schedule=schedule)
    *outer, place, _, inner = schedule
    last = statement.domain.dim(isl.dim_type.set) - 1
    domain = statement.domain.set_dim_name(isl.dim_type.set, last, "lane")
    return replace(statement, domain=domain, schedule=(*outer, int(place) + int(inner) // _PLACES))


def _spread(schedule: tuple[int | str, ...]) -> tuple[int | str, ...]:
    return tuple(_PLACES * step if isinstance(step, int) else step for step in schedule)
