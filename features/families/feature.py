"""What a feature is, and how identifiers find theirs."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from perflex.errors import UnknownFeatureError

if TYPE_CHECKING:
    from perflex.features.scop.scop import Scop

__all__ = [
    "Amount",
    "Feature",
    "FeatureFamily",
    "UserFeature",
    "parse_feature",
    "register_family",
    "register_feature",
    "unregister_feature",
]

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

    def value(self, scop: Scop, sizes: Sizes, sub_group_size: int) -> Any:
        """Return the value: a number for integer sizes, an array for arrays of sizes.

        Raises
        ------
        MissingSizeError
            A size parameter has no value, or the kernel is not valid for the values.
        """

    def matches(self, scop: Scop, sizes: Sizes) -> bool:
        """Return whether the kernel has anything that this feature counts."""

    def inventory(self, scop: Scop) -> list[str]:
        """Return identifiers of the same family that the kernel does contain."""

    def amount(self, scop: Scop, sizes: Sizes, sub_group_size: int) -> Amount | None:
        """Return what one unit amounts to in this kernel, if that is one number."""


class FeatureFamily(Protocol):
    """Turns identifiers with a common prefix into features."""

    def parse(self, identifier: str) -> Feature | None:
        """Return the feature, or None when the identifier is not of this family."""

    def examples(self) -> tuple[str, ...]:
        """Return identifiers to suggest when one is misspelt."""


_families: list[FeatureFamily] = []
_user_features: dict[str, UserFeature] = {}


def register_family(family: FeatureFamily) -> None:
    """Add a family of features; later families are asked later."""
    _families.append(family)
    _in_families.cache_clear()


@dataclass(frozen=True)
class UserFeature:
    """A feature that a user registered as a function of a Scop and sizes."""

    identifier: str
    unit: str
    function: Callable[[Scop, Sizes], float]

    def value(self, scop: Scop, sizes: Sizes, sub_group_size: int) -> Any:  # noqa: ARG002 - protocol
        """Return what the user's function returns."""
        scop.check_sizes(sizes)
        return self.function(scop, sizes)

    def matches(self, scop: Scop, sizes: Sizes) -> bool:  # noqa: ARG002 - protocol
        """Return True: whether a zero is meant is the user's affair."""
        return True

    def inventory(self, scop: Scop) -> list[str]:  # noqa: ARG002 - protocol
        """Return the user's features."""
        return sorted(_user_features)

    def amount(self, scop: Scop, sizes: Sizes, sub_group_size: int) -> Amount | None:  # noqa: ARG002 - protocol
        """Return None: the user's unit is all that is known."""
        return None


def register_feature(
    identifier: str, *, unit: str = "unit"
) -> Callable[[Callable[[Scop, Sizes], float]], Callable[[Scop, Sizes], float]]:
    """Make a function of ``(scop, sizes)`` a feature under the given identifier.

    Parameters
    ----------
    identifier
        ``f_`` followed by letters, digits and underscores; must not name an existing feature.
    unit
        What the feature counts, singular.

    Returns
    -------
    Callable
        A decorator that registers the function and returns it unchanged.

    Raises
    ------
    UnknownFeatureError
        The identifier is malformed or taken.

    Examples
    --------
    >>> @register_feature("f_my_statements", unit="statement")
    ... def count_statements(scop, sizes):
    ...     return len(scop.statements)
    """
    import re

    if not re.fullmatch(r"f_[A-Za-z0-9_]+", identifier):
        msg = f"{identifier!r} cannot name a feature; use f_ followed by letters, digits and underscores"
        raise UnknownFeatureError(msg, feature=identifier)
    if _find(identifier) is not None:
        msg = f"feature {identifier!r} exists already; choose another name"
        raise UnknownFeatureError(msg, feature=identifier)

    def register(function: Callable[[Scop, Sizes], float]) -> Callable[[Scop, Sizes], float]:
        _user_features[identifier] = UserFeature(identifier, unit, function)
        return function

    return register


def unregister_feature(identifier: str) -> None:
    """Forget a user's feature.

    Raises
    ------
    UnknownFeatureError
        No feature of that name was registered.
    """
    if _user_features.pop(identifier, None) is None:
        msg = f"no feature {identifier!r} was registered; registered are {', '.join(sorted(_user_features)) or 'none'}"
        raise UnknownFeatureError(msg, feature=identifier)


def _find(identifier: str) -> Feature | None:
    if identifier in _user_features:
        return _user_features[identifier]
    return _in_families(identifier)


@lru_cache(maxsize=4096)
def _in_families(identifier: str) -> Feature | None:
    for family in _families:
        feature = family.parse(identifier)
        if feature is not None:
            return feature
    return None


def parse_feature(identifier: str) -> Feature:
    """Return the feature that an identifier names.

    Raises
    ------
    UnknownFeatureError
        There is none; the message suggests the nearest identifiers.
    """
    feature = _find(identifier)
    if feature is not None:
        return feature
    known = [example for family in _families for example in family.examples()] + sorted(_user_features)
    near = difflib.get_close_matches(identifier, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"features look like {', '.join(known[:4])}"
    msg = f"unknown feature {identifier!r}; {hint}"
    raise UnknownFeatureError(msg, feature=identifier, suggestions=tuple(near))
