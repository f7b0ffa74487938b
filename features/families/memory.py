"""Memory access features ``f_mem_access_...`` (paper Section 6.1.1) and footprints ``f_mem_footprint_...`` (Section 5).

A footprint is what a kernel reads and writes at least once, however often it does so: the data volume of caches that
are large enough. Footprints are of global arrays: local and private ones exist once per work-group or work-item.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import MissingSizeError, UnknownFeatureError
from perflex.features.counting.scop_counts import counts_of
from perflex.features.families.feature import Amount, Family
from perflex.features.scop.words import DIRECTIONS, DTYPES, SPACES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.counting.scop_counts import AccessCounts, Footprint
    from perflex.features.families.feature import Sizes
    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target

ACCESS = "f_mem_access"

# Relations of two characters first: a regular expression takes the first alternative that fits.
_CONSTRAINT = re.compile(r"(<=|>=|<|>|=)?(.+)")
_BARE = re.compile(r"[^{}]+")
_BRACED = re.compile(r"\{[^{}]*\}")
# Beyond any address, and far from what Python refuses to convert.
_FACTOR = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|\d{1,18}(?:\.\d+)?")
_AXIS = re.compile(r"\s*\d{1,18}\s*")


@dataclass(frozen=True)
class PatternConstraint:
    """A comparison with a number or a product of numbers and size parameters, e.g. ``>15``, ``=16*n`` or ``=-1``."""

    relation: str
    bound: str

    @property
    def names(self) -> set[str]:
        """Size parameters in the bound."""
        return {factor for factor in self.bound.removeprefix("-").split("*") if not factor[0].isdigit()}

    def holds(self, value: Any, sizes: Mapping[str, Any]) -> bool:
        """Return whether `value` (a number or an array of them) fulfils the constraint."""
        bound: Any = -1 if self.bound.startswith("-") else 1
        for factor in self.bound.removeprefix("-").split("*"):
            if factor[0].isdigit():
                bound = bound * (float(factor) if "." in factor else int(factor))
            elif factor in sizes:
                # Of Python's integers: products of numpy's may exceed 64 bits.
                bound = bound * np.asarray(sizes[factor]).astype(object)
            else:
                known = ", ".join(sizes)
                msg = f"the constraint {self} names size {factor!r}, which has no value; the sizes are {known}"
                raise MissingSizeError(msg, parameters=(factor,))
        outcome = np.asarray(
            {
                "=": lambda: value == bound,
                "<": lambda: value < bound,
                "<=": lambda: value <= bound,
                ">": lambda: value > bound,
                ">=": lambda: value >= bound,
            }[self.relation]()
        )
        if outcome.all():
            return True
        if not outcome.any():
            return False
        msg = f"the constraint {self} holds for some of the sizes given and not for others; pass them separately"
        raise MissingSizeError(msg)

    def __str__(self) -> str:
        return (self.relation if self.relation != "=" else "") + self.bound


@dataclass(frozen=True)
class AccessPattern:
    """Which accesses a memory feature counts; None or empty fields match everything.

    The name of an array or tag may end in a word such as ``_load``: where the kernel has that name, the word is
    part of it.
    """

    array: str | None = None
    tag: str | None = None
    space: str | None = None
    dtype: str | None = None
    direction: str | None = None
    local_strides: tuple[tuple[int, PatternConstraint], ...] = ()
    group_strides: tuple[tuple[int, PatternConstraint], ...] = ()
    afr: PatternConstraint | None = None

    def fits_statically(self, item: AccessCounts) -> bool:
        """Return whether the parts that do not depend on sizes fit."""
        read = self._for_names(item.owner.names)
        return (
            (read.array is None or read.array == item.array.name)
            and (read.tag is None or read.tag == item.access.tag)
            and (read.space is None or read.space == item.array.space)
            and (read.dtype is None or read.dtype == item.array.dtype)
            and (read.direction is None or read.direction == item.access.direction)
        )

    def _for_names(self, names: Mapping[str, frozenset[str]]) -> AccessPattern:
        """Return the pattern with as many words in the name of the array or tag as make a name there is."""
        field = "array" if self.tag is None else "tag"
        name = getattr(self, field)
        words = [word for word in ("space", "dtype", "direction") if getattr(self, word)] if name else []
        # The longest name wins: in a kernel with the arrays a and a_load, array:a_load is the latter.
        for count in range(len(words), 0, -1):
            longer = "_".join([name, *(getattr(self, word) for word in words[:count])])
            if longer in names[field]:
                renamed = replace(self, array=longer) if field == "array" else replace(self, tag=longer)
                return replace(
                    renamed,
                    space=None if "space" in words[:count] else self.space,
                    dtype=None if "dtype" in words[:count] else self.dtype,
                    direction=None if "direction" in words[:count] else self.direction,
                )
        return self

    def fits(self, item: AccessCounts, sizes: Mapping[str, Any]) -> bool:
        """Return whether an access fits at the given sizes."""
        return (
            self.fits_statically(item)
            and _strides_fit(self.local_strides, item.local_strides, sizes)
            and _strides_fit(self.group_strides, item.group_strides, sizes)
            and self._afr_fits(item, sizes)
        )

    def _afr_fits(self, item: AccessCounts, sizes: Mapping[str, Any]) -> bool:
        if self.afr is None:
            return True
        accesses = item.work_item_count.evaluate(sizes)
        footprint = item.footprint.evaluate(sizes)
        # Where nothing is touched there is no ratio.
        if not np.all(np.asarray(footprint, dtype=float) > 0):
            return False
        return self.afr.holds(accesses / footprint, sizes)


def _strides_fit(
    constraints: tuple[tuple[int, PatternConstraint], ...],
    strides: tuple[QuasiPolynomial | None, ...],
    sizes: Mapping[str, Any],
) -> bool:
    for axis, constraint in constraints:
        # An axis the kernel does not have cannot move the address.
        stride = strides[axis] if axis < len(strides) else 0
        if stride is None:  # not affine in that index: no number fits
            return False
        if not _stride_fits(constraint, stride, sizes):
            return False
    return True


def _stride_fits(constraint: PatternConstraint, stride: QuasiPolynomial | int, sizes: Mapping[str, Any]) -> bool:
    names = constraint.names if isinstance(stride, int) else constraint.names | set(stride.parameters)
    if constraint.relation == "=" and not names.issubset(sizes) and not sizes:
        # Without any sizes, expressions are the same if they read the same.
        return str(stride).replace(" ", "") == constraint.bound
    return constraint.holds(stride if isinstance(stride, int) else stride.evaluate(sizes), sizes)


def parse_pattern(identifier: str, prefix: str = ACCESS) -> AccessPattern:
    """Read the fields after ``f_mem_access``, or another prefix.

    They are ``[_array:..][_tag:..][_<space>][_<dtype>][_<direction>][_lstrides:{..}][_gstrides:{..}][_afr:..]``.
    A name ends where ``_<space>``, ``_<dtype>``, ``_<direction>`` or the next field begins; names that end in
    such a word are known only from the kernel (`AccessPattern.fits`).
    """
    rest = identifier.removeprefix(prefix)
    # From the end: names may contain anything but the marks of the fields behind them.
    rest, afr = _cut(identifier, rest, "_afr:", _BARE)
    rest, group = _cut(identifier, rest, "_gstrides:", _BRACED)
    rest, local = _cut(identifier, rest, "_lstrides:", _BRACED)
    array, rest = _cut_name(identifier, "array", rest)
    tag, rest = _cut_name(identifier, "tag", rest)
    words = rest.removeprefix("_").split("_") if rest else []
    found: dict[str, str] = {}
    order = (("space", SPACES), ("dtype", DTYPES), ("direction", DIRECTIONS))
    position = 0
    for word in words:
        for index in range(position, len(order)):
            if word in order[index][1]:
                found[order[index][0]] = word
                position = index + 1
                break
        else:
            raise _bad(identifier, _explain(word, order))
    return AccessPattern(
        array=array,
        tag=tag,
        space=found.get("space"),
        dtype=found.get("dtype"),
        direction=found.get("direction"),
        local_strides=_parse_strides(identifier, local),
        group_strides=_parse_strides(identifier, group),
        afr=None if afr is None else _parse_constraint(identifier, afr),
    )


def _explain(word: str, order: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    if any(word in allowed for _, allowed in order):
        return f"{word!r} is out of order; the order is space, dtype, direction"
    choices = "; ".join(f"{name}: {', '.join(allowed)}" for name, allowed in order)
    return f"{word!r} is not one of the allowed words ({choices})"


def _cut_name(identifier: str, field: str, text: str) -> tuple[str | None, str]:
    """Return the name after ``_array:`` or ``_tag:``, if it is there, and what follows it."""
    if not text.startswith(f"_{field}:"):
        return None, text
    text = text.removeprefix(f"_{field}:")
    if field == "array" and "_tag:" in text:
        name, _, rest = text.partition("_tag:")
        rest = f"_tag:{rest}"
    else:
        name, rest = _split_name(text)
    if not re.fullmatch(r"\w+", name):
        what = "memory access tag" if field == "tag" else "array"
        hint = "; array: stands before tag:" if "_array:" in name else ""
        raise _bad(identifier, f"the {what} {name!r} is not a name{hint}")
    return name, rest


def _split_name(text: str) -> tuple[str, str]:
    """Cut off the words at the end that stand in the order of fields."""
    order = (DIRECTIONS, DTYPES, SPACES)
    words = text.split("_")
    end, field = len(words), 0
    while end > 1:
        field = next((i for i in range(field, len(order)) if words[end - 1] in order[i]), -1) + 1
        if not field:
            break
        end -= 1
    return "_".join(words[:end]), "".join(f"_{word}" for word in words[end:])


def _cut(identifier: str, text: str, marker: str, shape: re.Pattern[str]) -> tuple[str, str | None]:
    head, found, tail = text.partition(marker)
    if not found:
        return text, None
    if not shape.fullmatch(tail):
        raise _bad(identifier, f"the field {marker.strip('_:')} is malformed or followed by another field")
    return head, tail


def _parse_strides(identifier: str, text: str | None) -> tuple[tuple[int, PatternConstraint], ...]:
    if text is None:
        return ()
    entries = []
    for entry in text[1:-1].split(";"):
        axis, colon, constraint = entry.partition(":")
        if not colon or not _AXIS.fullmatch(axis):
            raise _bad(
                identifier, f"the stride constraint {entry!r} is not of the form axis:constraint, e.g. 0:1 or 1:>15"
            )
        entries.append((int(axis), _parse_constraint(identifier, constraint)))
    return tuple(entries)


def _parse_constraint(identifier: str, text: str) -> PatternConstraint:
    match = _CONSTRAINT.fullmatch(text.replace(" ", ""))
    if match is None or not all(_FACTOR.fullmatch(factor) for factor in match[2].removeprefix("-").split("*")):
        raise _bad(
            identifier,
            f"the constraint {text!r} is not a number, a size or a product of them after = < <= > >=; "
            "a number has at most 18 digits",
        )
    return PatternConstraint(match[1] or "=", match[2])


def _bad(identifier: str, why: str) -> UnknownFeatureError:
    return UnknownFeatureError(f"feature {identifier!r}: {why}", feature=identifier)


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


def _access(identifier: str) -> MemoryAccessFeature | None:
    if identifier != ACCESS and not identifier.startswith(f"{ACCESS}_"):
        return None
    return MemoryAccessFeature(identifier, parse_pattern(identifier))


ACCESS_FAMILY = Family(
    _access,
    (
        *(
            f"{ACCESS}_{space}_{dtype}{direction}"
            for space in ("global", "local")
            for dtype in ("float32", "float64")
            for direction in ("", "_load", "_store")
        ),
        f"{ACCESS}_tag:aLD",
        f"{ACCESS}_array:a",
    ),
)
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


def _footprint(identifier: str) -> FootprintFeature | None:
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


FOOTPRINT_FAMILY = Family(
    _footprint,
    (
        *(f"{FOOTPRINT}_global{direction}" for direction in ("", "_load", "_store")),
        f"{FOOTPRINT}_array:a",
        f"{FOOTPRINT}_tag:aLD",
    ),
)
