"""Generators: each makes the variants of one measurement kernel from arguments (paper Section 7.1)."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from constantdict import constantdict

from perflex.errors import TagError
from perflex.formula import parse_formula

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import loopy as lp

    from perflex.formula import Formula

Value = int | str | bool
# Any: every generator knows the types of its own arguments.
Arguments: TypeAlias = "Mapping[str, Any]"
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


def multiples_of(step: int) -> Criterion:
    """Return the criterion "positive multiples of `step`"."""
    words = "integers of at least 1" if step == 1 else f"positive multiples of {step}"
    return Criterion(words, lambda value: value >= step and value % step == 0)


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


@dataclass(frozen=True)
class MeasurementKernel:
    """A kernel and the sizes it is to be run with.

    Attributes
    ----------
    kernel
        The kernel; its size parameters stay symbolic, and all sizes of a variant share one object.
        Not compared: the name says the same.
    sizes
        Value of every size parameter; immutable and hashable.
    name
        Unique and readable, e.g. ``"matmul_sq(dtype=float32, prefetch=True, n=512)"``.
    generator
        Name of the generator that made it.
    arguments
        All arguments, also those that are sizes; immutable and hashable.
    """

    kernel: lp.TranslationUnit = field(compare=False, repr=False)
    sizes: Mapping[str, int]
    name: str
    generator: str
    arguments: Mapping[str, object] = field(repr=False)

    def __post_init__(self) -> None:
        """Make the mappings immutable."""
        object.__setattr__(self, "sizes", constantdict(self.sizes))
        object.__setattr__(self, "arguments", constantdict(self.arguments))


@dataclass(frozen=True)
class Constraint:
    """A condition that several arguments of a generator must fulfil together.

    Attributes
    ----------
    description
        The condition: a formula over the arguments, ``"m % chains == 0"``, or, with a test, words.
    test
        True for a mapping of arguments that can be generated; by default whether the formula holds.
    """

    description: str
    test: Callable[[Arguments], bool] | None = None

    @cached_property
    def formula(self) -> Formula | None:
        """The formula, unless there is a test; a `perflex.errors.ModelSyntaxError` where the description is none."""
        return None if self.test else parse_formula(self.description)

    def holds(self, arguments: Arguments) -> bool:
        """Tell whether the arguments fulfil the condition."""
        if self.formula is None:
            return self.test is None or bool(self.test(arguments))
        try:
            return bool(self.formula.value(arguments))
        except (TypeError, ValueError, ArithmeticError) as error:
            words = ", ".join(f"{name}:{arguments[name]}" for name in self.formula.names)
            msg = (
                f"constraint {self.description!r} cannot be evaluated for {words}: {error}; guard it with 'and' or 'or'"
            )
            raise TagError(msg) from error


# Compared by identity, so that generators are keys of the cache of built kernels.
@dataclass(frozen=True, eq=False)
class Generator:
    """Makes the variants of one kernel.

    Attributes
    ----------
    name
        Unique; also one of the tags.
    tags
        Generator filter tags.
    arguments
        In the order in which they appear in a kernel's name.
    build
        Kernel creation function: takes the arguments that are not sizes as keywords and returns the kernel. Its
        docstring says what the kernel measures, which features it isolates, and where it comes from.
    size_arguments
        Names of the arguments that do not change the kernel, only the sizes it runs with.
    constraints
        Conditions on several arguments.
    sizes
        Computes the values of the kernel's size parameters from all arguments; by default the size arguments
        are the parameters.
    """

    name: str
    tags: frozenset[str]
    arguments: tuple[Argument, ...]
    build: Callable[..., lp.TranslationUnit]
    size_arguments: tuple[str, ...]
    constraints: tuple[Constraint, ...] = ()
    sizes: Callable[[Arguments], Mapping[str, int]] | None = None

    def __post_init__(self) -> None:
        """Check the declaration."""
        if self.name not in self.tags:
            msg = f"generator {self.name!r} lacks its own name among its tags; add it"
            raise TagError(msg, generator=self.name)
        for constraint in self.constraints:
            for name in constraint.formula.names if constraint.formula else ():
                if name not in self.by_name:
                    known = ", ".join(self.by_name)
                    msg = f"constraint {constraint.description!r} of {self.name!r} names {name!r}; there are {known}"
                    raise TagError(msg, generator=self.name)

    @cached_property
    def by_name(self) -> Mapping[str, Argument]:
        """The arguments by name."""
        return {argument.name: argument for argument in self.arguments}

    @property
    def description(self) -> str:
        """What the kernel measures, which features it isolates, and its source."""
        return inspect.getdoc(self.build) or ""

    @property
    def summary(self) -> str:
        """First line of the description."""
        return self.description.partition("\n")[0]

    def violated(self, arguments: Mapping[str, Value]) -> Constraint | None:
        """Return the first constraint that the arguments violate, or None."""
        return next((c for c in self.constraints if not c.holds(arguments)), None)

    def combinations(self, chosen: Mapping[str, Sequence[Value]]) -> Iterator[dict[str, Value]]:
        """Yield the Cartesian product of the chosen values, defaults where none are chosen."""
        names = [argument.name for argument in self.arguments]
        for values in product(*(chosen.get(a.name, a.values) for a in self.arguments)):
            yield dict(zip(names, values, strict=True))

    def generate(self, arguments: Mapping[str, Value]) -> MeasurementKernel:
        """Make one measurement kernel.

        Parameters
        ----------
        arguments
            A value for each argument.

        Raises
        ------
        TagError
            An argument is missing, unknown or not allowed, or a constraint is violated.
        """
        self._check(arguments)
        words = ", ".join(f"{a.name}={arguments[a.name]}" for a in self.arguments)
        sizes = self.sizes(arguments) if self.sizes else {name: arguments[name] for name in self.size_arguments}
        return MeasurementKernel(
            kernel=self.built(arguments),
            sizes={name: int(value) for name, value in sizes.items()},
            name=f"{self.name}({words})",
            generator=self.name,
            arguments=dict(arguments),
        )

    def built(self, variant: Mapping[str, Value]) -> lp.TranslationUnit:
        """Return the kernel of the given arguments, sizes left out; one object for equal arguments."""
        structure = tuple((a.name, variant[a.name]) for a in self.arguments if a.name not in self.size_arguments)
        return _built(self, structure)

    def _check(self, arguments: Mapping[str, Value]) -> None:
        if arguments.keys() != self.by_name.keys():
            different = ", ".join(sorted(arguments.keys() ^ self.by_name.keys()))
            names = ", ".join(self.by_name)
            msg = f"generator {self.name!r} takes the arguments {names}; missing or unknown: {different}"
            raise TagError(msg, generator=self.name)
        for argument in self.arguments:
            if not argument.allows(arguments[argument.name]):
                value = arguments[argument.name]
                msg = f"{argument.name}:{value} is not allowed in {self.name!r}; allowed: {argument.allowed_text}"
                raise TagError(msg, generator=self.name, argument=argument.name)
        if (constraint := self.violated(arguments)) is not None:
            msg = f"generator {self.name!r} cannot make this kernel: {constraint.description}"
            raise TagError(msg, generator=self.name)


@lru_cache(maxsize=1024)
def _built(generator: Generator, structure: tuple[tuple[str, Value], ...]) -> lp.TranslationUnit:
    import perflex.isl  # noqa: F401 - mends what loopy misses

    return generator.build(**dict(structure))
