"""Footprint features: ``f_mem_footprint_...``, distinct elements touched (paper Section 5, Algorithm 2).

What a kernel reads and writes at least once, however often it does so: the data volume of caches that are
large enough. Footprints are of global arrays: local and private ones exist once per work-group or work-item.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perflex.errors import UnknownFeatureError
from perflex.features.counting.access_pattern import AccessPattern, parse_pattern
from perflex.features.counting.counts import counts_of
from perflex.features.families.feature import Amount
from perflex.features.scop.words import DIRECTIONS

if TYPE_CHECKING:
    from perflex.features.counting.footprints import AccessCounts, Footprint
    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target

FOOTPRINT = "f_mem_footprint"


@dataclass(frozen=True)
class FootprintFeature:
    """Distinct elements that accesses of global arrays touch together; those that fit a pattern."""

    identifier: str
    pattern: AccessPattern

    @property
    def unit(self) -> str:
        """What is counted."""
        return "element"

    def selected(self, scop: Scop, sizes: Sizes) -> tuple[AccessCounts, ...]:
        """Return the accesses of global arrays that fit at the given sizes."""
        return tuple(
            item for item in counts_of(scop).accesses if item.array.space == "global" and self.pattern.fits(item, sizes)
        )

    def footprint(self, scop: Scop, sizes: Sizes) -> Footprint:
        """Return the footprint of the accesses that fit at the given sizes."""
        return counts_of(scop).footprint_among(self.selected(scop, sizes))

    def value(self, scop: Scop, sizes: Sizes, _target: Target, /) -> Any:
        """Return the number of distinct elements at the given sizes."""
        scop.check_sizes(sizes)
        return self.footprint(scop, sizes).elements.evaluate(sizes)

    def matches(self, scop: Scop, sizes: Sizes, /) -> bool:
        """Return whether any access fits."""
        return bool(self.selected(scop, sizes))

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the footprints of each global array, by direction where it has both, and of each access tag."""
        directions: dict[str, set[str]] = {}
        tags: dict[str, None] = {}
        for item in counts_of(scop).accesses:
            if item.array.space == "global":
                directions.setdefault(item.array.name, set()).add(item.access.direction)
                if item.access.tag:
                    tags[item.access.tag] = None
        found = []
        for name, both in directions.items():
            found.append(f"{FOOTPRINT}_array:{name}")
            found += [f"{FOOTPRINT}_array:{name}_{direction}" for direction in DIRECTIONS if len(both) > 1]
        return found + [f"{FOOTPRINT}_tag:{tag}" for tag in tags]

    def amount(self, scop: Scop, sizes: Sizes, _target: Target, /) -> Amount | None:
        """Return bytes per element, if all selected arrays agree."""
        amounts = {item.array.itemsize for item in self.selected(scop, sizes)}
        return Amount(float(amounts.pop()), "B") if len(amounts) == 1 else None


class FootprintFamily:
    """Reads ``f_mem_footprint...``."""

    def parse(self, identifier: str) -> FootprintFeature | None:
        """Return the feature of an identifier that starts with ``f_mem_footprint``.

        Raises
        ------
        UnknownFeatureError
            The pattern is malformed, or asks for another address space than global memory.
        """
        if identifier != FOOTPRINT and not identifier.startswith(f"{FOOTPRINT}_"):
            return None
        pattern = parse_pattern(identifier, FOOTPRINT)
        # Behind an array or tag, _local may be part of the name (see `AccessPattern`).
        if pattern.array is None and pattern.tag is None:
            if pattern.space not in {None, "global"}:
                msg = (
                    f"feature {identifier!r}: a {pattern.space} array exists once per "
                    f"{'work-group' if pattern.space == 'local' else 'work-item'}; footprints are of global arrays"
                )
                raise UnknownFeatureError(msg, feature=identifier)
            pattern = replace(pattern, space="global")
        return FootprintFeature(identifier, pattern)

    def examples(self) -> tuple[str, ...]:
        """Return identifiers to suggest."""
        patterns = (f"{FOOTPRINT}_global{direction}" for direction in ("", "_load", "_store"))
        return (*patterns, f"{FOOTPRINT}_array:a", f"{FOOTPRINT}_tag:aLD")
