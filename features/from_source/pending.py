"""Integer arithmetic counts where its result becomes data; what only subscripts, loops and conditions need does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias


class Counting(Protocol):
    """What counts the operations of a place in the program."""

    operations: Counter[tuple[str, str]]


@dataclass(eq=False)
class Pending:
    """An operation that made a known integer, with those that made its operands; without a kind, these alone."""

    place: Counting | None = None  # Where it is executed; None if nothing is, or if it is counted already
    dtype: str = ""
    kind: str = ""
    before: tuple[Pending, ...] = ()

    def count(self, counted: list[Counted] | None = None) -> None:
        """Count the operation and all before it, unless they are counted already; note in a list what was counted."""
        waiting = [self]
        while waiting:
            each = waiting.pop()
            if counted is not None:
                counted.append((each, each.place, each.before))
            if each.place is not None and each.kind:
                each.place.operations[each.dtype, each.kind] += 1
            waiting += each.before
            each.place, each.before = None, ()


# An operation that was counted, with its place and those before it.
Counted: TypeAlias = tuple[Pending, Counting | None, tuple[Pending, ...]]


def undo(counted: Iterable[Counted]) -> None:
    """Take back that operations were counted."""
    for each, place, before in counted:
        each.place, each.before = place, before
        if place is not None and each.kind:
            place.operations[each.dtype, each.kind] -= 1


def all_of(*parts: Pending | None) -> tuple[Pending, ...]:
    """Return those operations that there are."""
    return tuple(each for each in parts if each is not None)
