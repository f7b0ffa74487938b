"""Places of statements in launches."""

from __future__ import annotations


class Cursor:
    """Goes through loops, statements and barriers in their order."""

    def __init__(self) -> None:
        self.entered: list[tuple[str, int | None]] = []  # Name of each loop, and the place here of the one around it
        self.loops: tuple[int, ...] = ()  # Around the place, outermost first
        # Statements so far in each of them; a loop is one statement of the loop around it.
        self._numbers = [0]

    def enter(self, loop: str) -> None:
        """Go into a loop."""
        self.entered.append((loop, self.loops[-1] if self.loops else None))
        self.loops = (*self.loops, len(self.entered) - 1)
        self._numbers.append(0)

    def leave(self) -> None:
        """Go behind the innermost loop."""
        self.loops = self.loops[:-1]
        self._numbers.pop()
        self._numbers[-1] += 1

    def step(self) -> tuple[int, ...]:
        """Return the order of a statement or barrier here, and go behind it."""
        order = tuple(self._numbers)
        self._numbers[-1] += 1
        return order

    def copy(self) -> Cursor:
        """Return a cursor at the same place that goes on by itself."""
        found = Cursor()
        found.entered, found.loops, found._numbers = list(self.entered), self.loops, list(self._numbers)
        return found
