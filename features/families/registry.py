"""The families there are, and the feature that an identifier names."""

from __future__ import annotations

import copyreg
import difflib
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from perflex.errors import FeatureError, UnknownFeatureError
from perflex.features.families.arithmetic import CHAINS, FLOPS, INSTRUCTIONS, OPERATIONS
from perflex.features.families.feature import Family, Feature, Sizes
from perflex.features.families.launch_counts import BARRIERS, LAUNCHES
from perflex.features.families.machine_code import BUILT, MACHINE_CODE
from perflex.features.families.memory_accesses import ACCESSES, ARRAY_ACCESSES, FOOTPRINTS
from perflex.features.families.on_machine import ON_MACHINE
from perflex.features.families.peaks import PEAKS
from perflex.features.families.simd import SIMD
from perflex.features.families.tiles import TILES
from perflex.features.scop.scop import Scop
from perflex.features.target import Target

# The first whose pattern fits an identifier has it.
_WITH_PERFLEX = (
    OPERATIONS, FLOPS, CHAINS, ARRAY_ACCESSES, ACCESSES, FOOTPRINTS, BARRIERS, LAUNCHES, *ON_MACHINE, PEAKS,
    INSTRUCTIONS, SIMD, BUILT, MACHINE_CODE, *TILES,
)  # fmt: skip
_families = list(_WITH_PERFLEX)
_own: dict[str, Family] = {}


def register_family(family: Family) -> None:
    """Add a family of features; later families are asked later.

    Raises
    ------
    FeatureError
        The family has neither a count nor a value.
    """
    if family.count is None and family.value is None:
        msg = f"the family {family.title!r} has neither a count nor a value; give one of them"
        raise FeatureError(msg)
    _families.append(family)
    # Identifiers that no family knew are kept as None; the new one may know them.
    _find.cache_clear()


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
        value = partial(_of_function, function)
        _own[identifier] = Family(f"The feature {identifier}", identifier, unit, value, examples=(identifier,))
        register_family(_own[identifier])
        return function

    return register


def _of_function(function: Callable[[Scop, Sizes], float], scop: Scop, sizes: Sizes, _target: Target, _: str) -> Any:
    return function(scop, sizes)


def unregister_feature(identifier: str) -> None:
    """Forget a user's feature.

    Raises
    ------
    UnknownFeatureError
        No feature of that name was registered.
    """
    if identifier not in _own:
        msg = f"no feature {identifier!r} was registered; registered are {', '.join(sorted(_own)) or 'none'}"
        raise UnknownFeatureError(msg, feature=identifier)
    _families.remove(_own.pop(identifier))
    _find.cache_clear()


def _reduced(feature: Feature) -> tuple[Any, ...]:
    # Other processes know the families that come with perflex, but not those of the user's.
    if feature.family in _WITH_PERFLEX:
        return parse_feature, (feature.identifier,)
    return Feature, (feature.identifier, feature.family, feature.what)


copyreg.pickle(Feature, _reduced)


# A model names the same features for every kernel.
@lru_cache(maxsize=4096)
def _find(identifier: str) -> Feature | None:
    for family in _families:
        match = re.fullmatch(family.pattern, identifier)
        if match is not None:
            what = match.group(*range(1, match.re.groups + 1)) if family.read is None else family.read(match)
            return Feature(identifier, family, what)
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
    known = [example for family in _families for example in family.examples]
    near = difflib.get_close_matches(identifier, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"features look like {', '.join(known[:4])}"
    msg = f"unknown feature {identifier!r}; {hint}"
    raise UnknownFeatureError(msg, feature=identifier, suggestions=tuple(near))
