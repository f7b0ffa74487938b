"""Generators: each makes the variants of one measurement kernel from arguments (paper Section 7.1)."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

from perflex.errors import TagError
from uipick._measurement_kernel import MeasurementKernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import loopy as lp

    from uipick._argument import Argument, Value


@dataclass(frozen=True)
class Constraint:
    """A condition that several arguments of a generator must fulfil together.

    Attributes
    ----------
    description
        The condition in words.
    test
        True for a mapping of arguments that can be generated.
    """

    description: str
    # Any: every generator's test knows the types of its own arguments.
    test: Callable[[Mapping[str, Any]], bool]


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
    sizes: Callable[[Mapping[str, Any]], Mapping[str, int]] | None = None

    def __post_init__(self) -> None:
        """Check the declaration."""
        if self.name not in self.tags:
            msg = f"generator {self.name!r} lacks its own name among its tags; add it"
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
        return next((c for c in self.constraints if not c.test(arguments)), None)

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
