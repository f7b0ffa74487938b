"""What a walk through a kernel records: arrays, what is executed, what the source cannot say."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias

from perflex.features.from_source.copies import replace
from perflex.features.from_source.integers import Integer, Limit
from perflex.features.from_source.pending import Counted, undo
from perflex.features.from_source.values import CType, Executed, Pointer

Space: TypeAlias = Literal["global", "local", "constant", "private"]
Matter: TypeAlias = Literal["trip count", "subscript", "guard", "early exit"]
# Why a subscript is not known.
WHY = {
    "data": "data decide the subscript", "carried": "earlier iterations decide the subscript",
    "uniform": "an argument decides the subscript", "not affine": "the subscript is not affine",
    "undefined": "the subscript was not set",
}  # fmt: skip


@dataclass(frozen=True)
class MemoryArray:
    """An array in memory."""

    name: str
    space: Space
    element: CType
    extents: tuple[int | None, ...] = ()  # As declared
    restrict: bool = True  # Whether nothing else overlaps it, as far as compilers know

    @property
    def start(self) -> Pointer:
        """A pointer to its beginning."""
        element = self.element
        for extent in self.extents[:0:-1]:
            element = CType("array", element=element, extent=extent)
        return Pointer(self.name, Integer.of(0, "int64"), element)

    @property
    def bytes(self) -> int | None:
        """Its size, if it is declared with its extents; None for pointers and CUDA's dynamic memory."""
        known = [extent for extent in self.extents if extent is not None]
        complete = self.extents and len(known) == len(self.extents)
        return math.prod(known) * self.element.bytes if complete else None


@dataclass(frozen=True)
class Unstated:
    """Something that the source cannot say, because data decide it."""

    matter: Matter
    line: str  # Of the kernel's file, or ``header.h:12``
    text: str  # What stands there
    why: str
    remedy: str = ""  # What states it; empty where counts are upper bounds without it

    def __str__(self) -> str:
        end = self.remedy or "counted as an upper bound"
        return f"line {self.line}: {self.matter} of {self.text!r} is not known ({self.why}); {end}"


@dataclass
class Recorder:
    """Collects what is executed; while loops are tried out (`dry`) nothing is recorded."""

    dry: int = 0
    executed: list[Executed] = field(default_factory=list)
    arrays: dict[str, MemoryArray] = field(default_factory=dict)
    averages: dict[str, Fraction] = field(default_factory=dict)  # Of loops whose trip count is stated
    tests: dict[int, Fraction] = field(default_factory=dict)  # Of their tests, by the loops' places
    unrolled: dict[str, int] = field(default_factory=dict)  # Of loops, how far the source asks to unroll them
    trips: dict[str, int] = field(default_factory=dict)  # Of loops whose trip count compilers know
    unstated: dict[tuple[Matter, str, str], Unstated] = field(default_factory=dict)
    loops: set[str] = field(default_factory=set)  # Lines in which loops begin
    limits: dict[Limit, None] = field(default_factory=dict)  # Of unsigned integers, beyond which they wrap around
    steps: int = 0  # Expressions that were evaluated, loops that were tried out included
    counted: list[Counted] | None = None  # Of what may be dropped, the operations that it counted

    def part(self, *, dry: bool) -> Recorder:
        """Return a recorder of what may be dropped or taken; one that is `dry` records nothing."""
        if dry or self.dry:
            return replace(self, dry=self.dry + 1)
        return replace(self, executed=[], averages={}, tests={}, unstated={}, limits={}, counted=[])

    def finish(self, part: Recorder, *, is_kept: bool) -> None:
        """Take or drop what a part recorded."""
        self.steps = part.steps
        if part.dry:
            return
        if not is_kept:
            undo(reversed(part.counted or ()))
            return
        self.executed += part.executed
        self.averages |= part.averages
        self.tests |= part.tests
        for key, each in part.unstated.items():
            self.unstated.setdefault(key, each)
        self.limits |= part.limits
        if self.counted is not None:
            self.counted += part.counted or ()

    def close(self) -> None:
        """Let what comes next be a statement of its own."""
        if self.executed:
            self.executed[-1].closed = True
