"""The families there are, and the feature that an identifier names."""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from perflex.errors import UnknownFeatureError
from perflex.features.families.code import BUILD_FAMILY, CODE_FAMILY
from perflex.features.families.feature import UserFeature, user_features
from perflex.features.families.launches import LAUNCH_FAMILY
from perflex.features.families.machine import ECM_FAMILY, MACHINE_FAMILY, TRAFFIC_FAMILY
from perflex.features.families.memory import ACCESS_FAMILY, FOOTPRINT_FAMILY
from perflex.features.families.operations import CHAIN_FAMILY, INSTRUCTION_FAMILY, OPERATION_FAMILY
from perflex.features.families.peaks import PEAK_FAMILY
from perflex.features.families.simd import SIMD_FAMILY

if TYPE_CHECKING:
    from collections.abc import Callable

    from perflex.features.families.feature import Feature, FeatureFamily, Sizes
    from perflex.features.scop.scop import Scop

# The first that knows an identifier has it.
_families: list[FeatureFamily] = [
    OPERATION_FAMILY,
    CHAIN_FAMILY,
    ACCESS_FAMILY,
    FOOTPRINT_FAMILY,
    LAUNCH_FAMILY,
    MACHINE_FAMILY,
    PEAK_FAMILY,
    INSTRUCTION_FAMILY,
    ECM_FAMILY,
    SIMD_FAMILY,
    TRAFFIC_FAMILY,
    BUILD_FAMILY,
    CODE_FAMILY,
]


def register_family(family: FeatureFamily) -> None:
    """Add a family of features; later families are asked later."""
    _families.append(family)
    # Identifiers that no family knew are cached as None; the new one may know them.
    _in_families.cache_clear()


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
    if not re.fullmatch(r"f_[A-Za-z0-9_]+", identifier):
        msg = f"{identifier!r} cannot name a feature; use f_ followed by letters, digits and underscores"
        raise UnknownFeatureError(msg, feature=identifier)
    if _find(identifier) is not None:
        msg = f"feature {identifier!r} exists already; choose another name"
        raise UnknownFeatureError(msg, feature=identifier)

    def register(function: Callable[[Scop, Sizes], float]) -> Callable[[Scop, Sizes], float]:
        user_features[identifier] = UserFeature(identifier, unit, function)
        return function

    return register


def unregister_feature(identifier: str) -> None:
    """Forget a user's feature.

    Raises
    ------
    UnknownFeatureError
        No feature of that name was registered.
    """
    if user_features.pop(identifier, None) is None:
        msg = f"no feature {identifier!r} was registered; registered are {', '.join(sorted(user_features)) or 'none'}"
        raise UnknownFeatureError(msg, feature=identifier)


def _find(identifier: str) -> Feature | None:
    # Not cached: users register and unregister these at any time.
    if identifier in user_features:
        return user_features[identifier]
    return _in_families(identifier)


# A model names the same features for every kernel.
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
    known = [example for family in _families for example in family.examples()] + sorted(user_features)
    near = difflib.get_close_matches(identifier, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"features look like {', '.join(known[:4])}"
    msg = f"unknown feature {identifier!r}; {hint}"
    raise UnknownFeatureError(msg, feature=identifier, suggestions=tuple(near))
