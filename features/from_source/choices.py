"""Pointers that conditions choose: each of the arrays that they may point into, and where they do."""

from __future__ import annotations

from typing import Any, Protocol

from perflex.features.from_source.copies import replace
from perflex.features.from_source.integers import Integer, names_in
from perflex.features.from_source.iterations import overlap
from perflex.features.from_source.values import Pointer, Unknown, Way

# A pointer that may point into more arrays is not followed.
_MOST_WAYS = 4


class Split(Protocol):
    """Where a condition holds and fails, as sets; None where data decide."""

    @property
    def true(self) -> Any:
        """Where it holds."""

    @property
    def false(self) -> Any:
        """Where it fails."""


def chosen(one: Pointer, two: Pointer, split: Split) -> Pointer:
    """Return the pointer that is the first where a condition holds, and else the second, into another array."""
    ways = [
        Way(way.pointer, overlap(way.domain, side), way.certain and side is not None)
        for pointer, side in ((one, split.true), (two, split.false))
        for way in pointer.ways or (Way(pointer),)
    ]
    known = len(ways) <= _MOST_WAYS and one.element == two.element and all(way.pointer.array for way in ways)
    nullable = one.nullable or two.nullable
    offset = Unknown("int64", reason="not affine")
    return Pointer(None, offset, one.element, nullable, ways=tuple(ways) if known else ())


def depends_on(pointer: Pointer, name: str) -> bool:
    """Return whether a variable decides where a chosen pointer points."""
    offsets = (way.pointer.offset for way in pointer.ways)
    in_offsets = any(name in offset.names for offset in offsets if isinstance(offset, Integer))
    return in_offsets or any(name in names_in(way.domain) for way in pointer.ways if way.domain is not None)


def with_element(way: Way, pointer: Pointer) -> Pointer:
    """Return the pointer of a way as one to elements of the type that the chosen pointer points to."""
    return replace(way.pointer, element=pointer.element)
