"""Places in the schedule of launches."""

from __future__ import annotations

from copy import deepcopy


class Cursor:
    """Goes through loops, statements and barriers in their order."""

    def __init__(self) -> None:
        self.loops: list[str] = []  # Around the place, outermost first
        # Statements so far in each of them; a loop is one statement of the loop around it.
        self._numbers = [0]

    def enter(self, loop: str) -> None:
        """Go into a loop."""
        self.loops.append(loop)
        self._numbers.append(0)

    def leave(self) -> None:
        """Go behind the innermost loop."""
        self.loops.pop()
        self._numbers.pop()
        self._numbers[-1] += 1

    def step(self) -> tuple[int | str, ...]:
        """Return the schedule of a statement or barrier here, and go behind it."""
        inner = [step for pair in zip(self.loops, self._numbers[1:], strict=True) for step in pair]
        schedule = (self._numbers[0], *inner)
        self._numbers[-1] += 1
        return schedule

    def copy(self) -> Cursor:
        """Return a cursor at the same place that goes on by itself."""
        return deepcopy(self)
