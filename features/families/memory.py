"""Memory access features: ``f_mem_access_...`` (paper Section 6.1.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.features.counting.access_pattern import ACCESS, AccessPattern, parse_pattern
from perflex.features.counting.counts import counts_of
from perflex.features.families.feature import Amount

if TYPE_CHECKING:
    from perflex.features.counting.footprints import AccessCounts
    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target


@dataclass(frozen=True)
class MemoryAccessFeature:
    """Accesses that fit a pattern: on-chip and uniform ones per sub-group, others per work-item."""

    identifier: str
    pattern: AccessPattern

    @property
    def unit(self) -> str:
        """What is counted."""
        return "access"

    def selected(self, scop: Scop, sizes: Sizes) -> list[AccessCounts]:
        """Return the accesses that fit at the given sizes."""
        return [item for item in counts_of(scop).accesses if self.pattern.fits(item, sizes)]

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the number of accesses at the given sizes."""
        scop.check_sizes(sizes)
        return counts_of(scop).access_total(self.selected(scop, sizes), target.sub_group_size).evaluate(sizes)

    def matches(self, scop: Scop, sizes: Sizes, /) -> bool:
        """Return whether any access fits."""
        return bool(self.selected(scop, sizes))

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return a description of every access in the kernel, or its arrays where the pattern names one."""
        if self.pattern.array is not None:
            return [f"{ACCESS}_array:{array.name}" for array in scop.arrays]
        return [describe_access(item) for item in counts_of(scop).accesses]

    def amount(self, scop: Scop, sizes: Sizes, target: Target, /) -> Amount | None:
        """Return bytes per unit, if all selected accesses agree."""
        # An access counted once per sub-group moves an element for each of its work-items.
        each = target.sub_group_size
        amounts = {item.array.itemsize * (each if item.per_sub_group else 1) for item in self.selected(scop, sizes)}
        return Amount(float(amounts.pop()), "B") if len(amounts) == 1 else None


def describe_access(item: AccessCounts) -> str:
    """Return an access as an identifier with its symbolic strides, for messages and tables."""
    parts = [f"tag:{item.access.tag}"] if item.access.tag else []
    parts += [item.array.space, item.array.dtype, item.access.direction]
    strides = []
    for name, values in (("lstrides", item.local_strides), ("gstrides", item.group_strides)):
        shown = ";".join(
            f"{axis}:{'not affine' if stride is None else str(stride).replace(' ', '')}"
            for axis, stride in enumerate(values)
        )
        strides.append(f"{name}:{{{shown}}}")
    return "_".join(["f_mem_access", *parts, *strides]) + f" ({item.access.text})"


class MemoryAccessFamily:
    """Reads ``f_mem_access...``."""

    def parse(self, identifier: str) -> MemoryAccessFeature | None:
        """Return the feature of an identifier that starts with ``f_mem_access``.

        Raises
        ------
        UnknownFeatureError
            The pattern is malformed.
        """
        if identifier != "f_mem_access" and not identifier.startswith("f_mem_access_"):
            return None
        return MemoryAccessFeature(identifier, parse_pattern(identifier))

    def examples(self) -> tuple[str, ...]:
        """Return identifiers to suggest."""
        plain = [
            f"f_mem_access_{space}_{dtype}{direction}"
            for space in ("global", "local")
            for dtype in ("float32", "float64")
            for direction in ("", "_load", "_store")
        ]
        return (*plain, "f_mem_access_tag:aLD", "f_mem_access_array:a")
