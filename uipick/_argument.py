"""Arguments of a generator: their type, the values they may have, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from perflex.errors import TagError

if TYPE_CHECKING:
    from collections.abc import Callable

Value = int | str | bool
Kind = Literal["int", "bool", "dtype", "str"]


@dataclass(frozen=True)
class Criterion:
    """Allowed values given by a test, for arguments with no finite list of them.

    Attributes
    ----------
    description
        What is allowed, in words, e.g. ``"positive multiples of 16"``.
    test
        True for an allowed value; called with values of the argument's kind only.
    """

    description: str
    # Any: an int or a str, as the argument's kind says.
    test: Callable[[Any], bool]


def integers(least: int, most: int) -> Criterion:
    """Return the criterion "integers from `least` to `most`"."""
    return Criterion(f"integers from {least} to {most}", lambda value: least <= value <= most)


def multiples_of(step: int, *, minimum: int | None = None) -> Criterion:
    """Return the criterion "multiples of `step`, at least `minimum`" (`minimum` is `step` if not given)."""
    least = step if minimum is None else minimum
    if step == 1:
        return Criterion(f"integers of at least {least}", lambda value: value >= least)
    if least == step:
        return Criterion(f"positive multiples of {step}", lambda value: value >= step and value % step == 0)
    words = f"multiples of {step}, at least {least}"
    return Criterion(words, lambda value: value >= least and value % step == 0)


@dataclass(frozen=True)
class Argument:
    """One argument of a generator.

    Attributes
    ----------
    name
        As used in variant filter tags.
    kind
        How the text of a value is read: ``"int"``, ``"bool"`` (True or False), ``"dtype"`` or ``"str"``.
    meaning
        What the argument does to the kernel, in one line.
    allowed
        The allowed values: a finite tuple, or a `Criterion`.
    default
        Values used when no tag names the argument; an empty tuple stands for all of a finite `allowed`.
    """

    name: str
    kind: Kind
    meaning: str
    allowed: tuple[Value, ...] | Criterion
    default: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        """Check that the default values are there and allowed."""
        if not self.values:
            msg = f"argument {self.name!r} has no default values; state some, as its allowed values are not finite"
            raise TagError(msg, argument=self.name)
        for value in self.values:
            if not self.allows(value):
                msg = f"default value {value!r} of argument {self.name!r} is not among {self.allowed_text}"
                raise TagError(msg, argument=self.name)

    @property
    def values(self) -> tuple[Value, ...]:
        """Values used when no tag names the argument."""
        if self.default or isinstance(self.allowed, Criterion):
            return self.default
        return self.allowed

    @property
    def allowed_text(self) -> str:
        """The allowed values in words."""
        if isinstance(self.allowed, Criterion):
            return self.allowed.description
        return ", ".join(str(value) for value in self.allowed)

    def allows(self, value: Value) -> bool:
        """Tell whether `value` is allowed."""
        if isinstance(self.allowed, Criterion):
            return type(value) is (int if self.kind == "int" else str) and self.allowed.test(value)
        # In Python True equals 1, and would pass for the integer.
        return any(value == other and type(value) is type(other) for other in self.allowed)

    def read(self, text: Value) -> Value | None:
        """Return the value that a text stands for (others stand for themselves), or None when it is not allowed."""
        value: Value
        if not isinstance(text, str):
            value = text
        elif self.kind == "int":
            # int() would also take blanks, underscores and a plus sign: several texts for one value.
            if not text.removeprefix("-").isdecimal():
                return None
            value = int(text)
        elif self.kind == "bool":
            if text not in {"True", "False"}:
                return None
            value = text == "True"
        else:
            value = text
        return value if self.allows(value) else None
