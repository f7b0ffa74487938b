"""What a feature is, and what finds features by their identifiers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target

# Either one number per size parameter, or one array of a common shape per size parameter.
Sizes = Mapping[str, Any]


@dataclass(frozen=True)
class Amount:
    """What one unit of a feature amounts to, e.g. 32 ``"op"`` or 4 ``"B"``; used for implied rates."""

    value: float
    unit: str


@runtime_checkable
class Feature(Protocol):
    """A number that a kernel has at given sizes (paper Section 6.1)."""

    @property
    def identifier(self) -> str:
        """The identifier in model strings, starting with ``f_``."""

    @property
    def unit(self) -> str:
        """What is counted, singular, e.g. ``"sub-group operation"``."""

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value: a number for integer sizes, an array for arrays of sizes.

        Raises
        ------
        MissingSizeError
            A size parameter has no value, or the kernel is not valid for the values.
        """

    def matches(self, scop: Scop, sizes: Sizes, /) -> bool:
        """Return whether the kernel has anything that this feature counts."""

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return identifiers of the same family that the kernel does contain."""

    def amount(self, scop: Scop, sizes: Sizes, target: Target, /) -> Amount | None:
        """Return what one unit amounts to in this kernel, if that is one number."""


class FeatureDefaults:
    """What most features answer: a kernel has what the inventory lists, and a unit amounts to nothing else."""

    def matches(self: Feature, scop: Scop, _sizes: Sizes, /) -> bool:
        """Return whether the kernel has any."""
        return self.identifier in self.inventory(scop)

    def amount(self, _scop: Scop, _sizes: Sizes, _target: Target, /) -> Amount | None:
        """Return None: the unit says it, and there is no rate."""
        return None


class FeatureFamily(Protocol):
    """Turns identifiers with a common prefix into features."""

    def parse(self, identifier: str) -> Feature | None:
        """Return the feature, or None when the identifier is not of this family."""

    def examples(self) -> tuple[str, ...]:
        """Return identifiers to suggest when one is misspelt."""


@dataclass(frozen=True)
class Family:
    """A family that a function reads the identifiers of."""

    parse: Callable[[str], Feature | None]
    suggested: tuple[str, ...] = ()

    def examples(self) -> tuple[str, ...]:
        """Return identifiers to suggest."""
        return self.suggested


@dataclass(frozen=True)
class NamedFeature(FeatureDefaults):
    """One of a few features that are known by name: `units` has the unit of each."""

    identifier: str
    units: ClassVar[Mapping[str, str]] = {}

    @property
    def unit(self) -> str:
        """What is counted."""
        return self.units[self.identifier]

    def inventory(self, _scop: Scop, /) -> list[str]:
        """Return all features of the family."""
        return list(self.units)


def named_family(identifiers: Collection[str], make: Callable[[str], Feature]) -> Family:
    """Return a family of some identifiers, of which `make` makes features."""
    return Family(lambda identifier: make(identifier) if identifier in identifiers else None, tuple(identifiers))


@dataclass(frozen=True)
class UserFeature(FeatureDefaults):
    """A feature that a user registered as a function of a Scop and sizes."""

    identifier: str
    unit: str
    function: Callable[[Scop, Sizes], float]

    def value(self, scop: Scop, sizes: Sizes, _target: Target, /) -> Any:
        """Return what the user's function returns."""
        scop.check_sizes(sizes)
        return self.function(scop, sizes)

    def matches(self, _scop: Scop, _sizes: Sizes, /) -> bool:
        """Return True: whether a zero is meant is the user's affair."""
        return True

    def inventory(self, _scop: Scop, /) -> list[str]:
        """Return the user's features."""
        return sorted(user_features)


# By identifier; `register_feature` fills it.
user_features: dict[str, UserFeature] = {}
