"""What instructions do, as loopy has it: array accesses and operations, and which instances do them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol


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


class KernelFacts(Protocol):
    """What reading an expression needs to know of its kernel."""

    def dtype_of(self, expr: Any) -> tuple[str, int]:
        """Return the name of a (sub-)expression's element type, and the elements of its vectors."""

    def is_array(self, name: str) -> bool:
        """Whether a name is an array, as opposed to a scalar, loop variable or size."""

    def function_name(self, name: str) -> str:
        """Return a function's own name: loopy numbers a function's versions for different types."""

    def branch(self, condition: Any) -> tuple[Any, Any] | None:
        """Return where a condition holds and where it does not, as isl sets; None to count both branches."""

    def subscript_arithmetic(self, access: RawAccess) -> Any:
        """Return the expression whose integer arithmetic computes an access's address; None not to count it."""
