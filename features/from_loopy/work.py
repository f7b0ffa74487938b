"""What instructions do, as loopy has it: array accesses and operations, and which instances do them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RawAccess:
    """An array access as loopy has it: name, subscript expressions, tag; why it cannot be described, if so."""

    array: str
    indices: tuple[Any, ...]
    tag: str | None
    text: str
    indirect: str = ""


@dataclass(frozen=True)
class Where:
    """Which instances of an instruction do something.

    Attributes
    ----------
    conditions
        isl sets that all hold there.
    guarded
        Whether a condition that is not among them may skip it.
    lanes
        Elements of the vectors it works on; 1 for scalars.
    """

    conditions: tuple[Any, ...] = ()
    guarded: bool = False
    lanes: int = 1


@dataclass
class Work:
    """Operations by (kind, dtype), and array accesses."""

    operations: Counter[tuple[str, str]] = field(default_factory=Counter)
    loads: list[RawAccess] = field(default_factory=list)
    stores: list[RawAccess] = field(default_factory=list)
