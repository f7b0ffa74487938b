"""Integer arithmetic counts where its result becomes data; what only subscripts, loops and conditions need does not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol


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

    def count(self) -> None:
        """Count the operation and all before it, unless they are counted already."""
        waiting = [self]
        while waiting:
            each = waiting.pop()
            if each.place is not None and each.kind:
                each.place.operations[each.dtype, each.kind] += 1
            waiting += each.before
            each.place, each.before = None, ()


def all_of(*parts: Pending | None) -> tuple[Pending, ...]:
    """Return those operations that there are."""
    return tuple(each for each in parts if each is not None)
