"""Memory accesses ``f_mem_access_...`` (paper Section 6.1.1) and footprints ``f_mem_footprint_...`` (Section 5)."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from perflex.errors import MissingSizeError, UnknownFeatureError
from perflex.features.counting.scop_counts import AccessCounts, Footprint, counts_of
from perflex.features.counting.touched import Certainty
from perflex.features.families.feature import Amount, Cost, Family, Remarks, Sizes
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.scop import Operation, Scop
from perflex.features.scop.words import DIRECTIONS, DTYPES, SPACES
from perflex.features.target import Target

# So many digits are beyond any address, and far from what Python refuses to convert.
_FACTOR = r"(?:[A-Za-z_]\w*|[0-9]{1,18}(?:\.[0-9]+)?)"
_CONSTRAINT = rf"(?:<=|>=|<|>|=)?-?{_FACTOR}(?:\*{_FACTOR})*"
_STRIDES = rf"\{{[0-9]{{1,18}}:{_CONSTRAINT}(?:;[0-9]{{1,18}}:{_CONSTRAINT})*\}}"
# A name is as short as it can be: it ends where a word of the pattern or the next field begins.
_FIELDS = re.compile(
    rf"""
    (?: _array:     (?P<array> \w+?) )?
    (?: _tag:       (?P<tag> \w+?) )?
    (?: _           (?P<space> {"|".join(SPACES)}) )?
    (?: _           (?P<dtype> {"|".join(DTYPES)}) )?
    (?: _           (?P<direction> {"|".join(DIRECTIONS)}) )?
    (?: _lstrides:  (?P<local> {_STRIDES}) )?
    (?: _gstrides:  (?P<group> {_STRIDES}) )?
    (?: _afr:       (?P<afr> {_CONSTRAINT}) )?
    """,
    re.VERBOSE,
)
_ORDER = f"""array:NAME, tag:NAME, space ({", ".join(SPACES)}), type (such as float32), {" or ".join(DIRECTIONS)}, \
lstrides:{{axis:constraint;...}}, gstrides:{{axis:constraint;...}}, afr:constraint"""
_RELATIONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq}


def _parts(constraint: str) -> tuple[str, str, list[str]]:
    """Return the relation of a constraint such as ``>15``, ``16*n`` or ``-1``, its bound, and what that multiplies."""
    bound = constraint.lstrip("<>=")
    return constraint.removesuffix(bound) or "=", bound, bound.removeprefix("-").split("*")


def _holds(constraint: str, value: Any, sizes: Mapping[str, Any]) -> bool:
    """Return whether a value, a number or an array of them, fulfils a constraint."""
    relation, text, factors = _parts(constraint)
    bound: Any = -1 if text.startswith("-") else 1
    for factor in factors:
        if factor[0].isdigit():
            bound = bound * (float(factor) if "." in factor else int(factor))
        elif factor in sizes:
            # Of Python's integers: products of numpy's may exceed 64 bits.
            bound = bound * np.asarray(sizes[factor]).astype(object)
        else:
            known = ", ".join(sizes)
            msg = f"the constraint {constraint} names size {factor!r}, which has no value; the sizes are {known}"
            raise MissingSizeError(msg, parameters=(factor,))
    outcome = np.asarray(_RELATIONS[relation](value, bound))
    if outcome.any() and not outcome.all():
        msg = f"the constraint {constraint} holds for some of the sizes given and not for others; pass them separately"
        raise MissingSizeError(msg)
    return bool(outcome.all())


def _fits(constraint: str, stride: QuasiPolynomial | int | None, sizes: Mapping[str, Any]) -> bool:
    """Return whether a stride fulfils a constraint; without any sizes, whether it reads the same."""
    if stride is None:  # Not affine in that index: no number fits.
        return False
    if isinstance(stride, int):
        return _holds(constraint, stride, sizes)
    relation, bound, factors = _parts(constraint)
    symbolic = stride.parameters or not all(factor[0].isdigit() for factor in factors)
    if relation == "=" and symbolic and not sizes:
        return str(stride).replace(" ", "") == bound
    return _holds(constraint, stride.evaluate(sizes), sizes)


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
    strides: tuple[tuple[str, int, str], ...] = ()  # "local" or "group", axis, constraint
    afr: str | None = None

    def _for_names(self, names: Mapping[str, frozenset[str]]) -> AccessPattern:
        """Return the pattern with as many words in the name of the array or tag as make a name there is."""
        field = "array" if self.tag is None else "tag"
        name = getattr(self, field)
        words = {word: getattr(self, word) for word in ("space", "dtype", "direction") if name and getattr(self, word)}
        # The longest name wins: in a kernel with the arrays a and a_load, array:a_load is the latter.
        for count in range(len(words), 0, -1):
            longer = "_".join([name, *list(words.values())[:count]])
            if longer in names[field]:
                changed: dict[str, Any] = {field: longer, **dict.fromkeys(list(words)[:count])}
                return replace(self, **changed)
        return self

    def fits(self, item: AccessCounts, sizes: Mapping[str, Any]) -> bool:
        """Return whether an access fits at the given sizes."""
        read, array, access = self._for_names(item.owner.names), item.array, item.access
        wanted = (read.array, read.tag, read.space, read.dtype, read.direction)
        there = (array.name, access.tag, array.space, array.dtype, access.direction)
        if any(want not in {None, found} for want, found in zip(wanted, there, strict=True)):
            return False
        for which, axis, constraint in self.strides:
            strides = item.local_strides if which == "local" else item.group_strides
            # An axis the kernel does not have cannot move the address.
            if not _fits(constraint, strides[axis] if axis < len(strides) else 0, sizes):
                return False
        if self.afr is None:
            return True
        accesses, footprint = item.work_item_count.evaluate(sizes), item.footprint.evaluate(sizes)
        # Where nothing is touched there is no ratio.
        return bool(np.all(np.asarray(footprint, dtype=float) > 0)) and _holds(self.afr, accesses / footprint, sizes)


def read_pattern(match: re.Match[str]) -> AccessPattern:
    """Return the pattern that stands behind ``f_mem_access`` or another prefix, the group of a match."""
    text = re.sub(r"(?<=[:;*<>={-]) +| +(?=[:;*<>=}-])", "", match[1])
    found = _FIELDS.fullmatch(text)
    if found is None:
        ends = [place for place, letter in enumerate(text) if letter == "_"]
        fitting = next((end for end in reversed(ends) if _FIELDS.fullmatch(text[:end])), 0)
        msg = (
            f"feature {match[0]!r}: {text[fitting + 1 :]!r} does not fit; the fields are, in this order, {_ORDER}; a "
            "constraint is a number, a size or a product of them after = < <= > >=, with at most 18 digits"
        )
        raise UnknownFeatureError(msg, feature=match[0])
    fields: dict[str, Any] = {name: value for name, value in found.groupdict().items() if value}
    strides = [
        (which, int(axis), constraint)
        for which in ("local", "group")
        for axis, constraint in re.findall("([0-9]+):([^;}]+)", fields.pop(which, ""))
    ]
    return AccessPattern(**fields, strides=tuple(strides))


# Accesses of a note that are shown.
_LISTED = 4
# Where no space is named, it is that of the accesses in a kernel.
_COSTS: dict[str | None, Cost] = {"local": "on-chip", "private": "on-chip", None: ""}
_WORDS = {"=": "", "<=": "at most ", ">=": "at least ", "~": "about "}


def selected(scop: Scop, sizes: Sizes | None, pattern: AccessPattern) -> list[AccessCounts]:
    """Return the accesses that fit at the given sizes."""
    return [item for item in counts_of(scop).accesses if pattern.fits(item, sizes or {})]


def _count(scop: Scop, sizes: Sizes, target: Target, pattern: AccessPattern) -> QuasiPolynomial:
    return counts_of(scop).access_total(selected(scop, sizes, pattern), target.sub_group_size)


def _amount(scop: Scop, sizes: Sizes, target: Target, pattern: AccessPattern) -> Amount | None:
    # An access counted once per sub-group moves an element for each of its work-items.
    each = target.sub_group_size
    accesses = selected(scop, sizes, pattern)
    return _bytes(item.array.itemsize * (each if item.per_sub_group else 1) for item in accesses)


def _bytes(sizes: Iterable[int]) -> Amount | None:
    different = set(sizes)
    return Amount(float(different.pop()), "B") if len(different) == 1 else None


def _remarks(scop: Scop, sizes: Sizes | None, target: Target, pattern: AccessPattern) -> Remarks:
    accesses = selected(scop, sizes, pattern)
    certainty = reduce(operator.or_, (item.certainty for item in accesses), Certainty())
    each = {"sub-group" if item.per_sub_group else "work-item" for item in accesses}
    unit = f"access per {each.pop()}" if len(each) == 1 else "access"
    return Remarks(str(_count(scop, sizes or {}, target, pattern)), certainty, _note(accesses, sizes), unit)


def _note(accesses: Sequence[AccessCounts], sizes: Sizes | None) -> str:
    """Return the accesses as written, those with the same remark together."""
    texts: dict[tuple[str, str], dict[str, None]] = {}
    for item in accesses:
        reuse = _reuse(item.owner.footprint_among((item,)), sizes) if item.array.memory == "global" else ""
        axes = [f"lid({axis})" for axis, stride in enumerate(item.local_strides) if stride is None]
        axes += [f"gid({axis})" for axis, stride in enumerate(item.group_strides) if stride is None]
        missing = f", not affine in {', '.join(axes)}" if axes else ""
        texts.setdefault((reuse, missing), {})[item.access.text] = None
    notes = []
    for (reuse, missing), distinct in texts.items():
        shown = list(distinct)[:_LISTED]
        if len(distinct) > _LISTED:
            shown.append(f"and {len(distinct) - _LISTED} more")
        each = " each" if len(distinct) > 1 else ""
        notes.append("; ".join(shown) + (f", {reuse}{each}" if reuse else "") + missing)
    return "; ".join(notes)


def _reuse(touched: Footprint, sizes: Sizes | None) -> str:
    """Return the access-to-footprint ratio at given sizes; empty without sizes, or where nothing is touched."""
    afr = math.nan if sizes is None else touched.afr(sizes)
    return "" if math.isnan(afr) else f"AFR {_WORDS[touched.afr_relation]}{afr:.6g}"


def _covers(pattern: AccessPattern, part: AccessCounts | Operation, sizes: Sizes) -> bool | None:
    if isinstance(part, Operation):
        return None
    if pattern.fits(part, sizes):
        return True
    space = part.array.space
    if pattern.direction not in {None, part.access.direction} or pattern.space not in {None, space}:
        return None
    # A tag may stand for any space, so that it alone does not tell what the model means to cover on chip.
    return False if part.array.memory == "global" or space == pattern.space else None


def describe_access(item: AccessCounts) -> str:
    """Return an access as an identifier with its symbolic strides, for messages and tables."""
    parts = [f"tag:{item.access.tag}"] if item.access.tag else []
    parts += [item.array.space, item.array.dtype, item.access.direction]
    for name, values in (("lstrides", item.local_strides), ("gstrides", item.group_strides)):
        texts = ("not affine" if stride is None else str(stride).replace(" ", "") for stride in values)
        parts.append(f"{name}:{{{';'.join(f'{axis}:{text}' for axis, text in enumerate(texts))}}}")
    return "_".join(["f_mem_access", *parts]) + f" ({item.access.text})"


ACCESSES = Family(
    "Accesses that fit a pattern: on-chip and uniform ones per sub-group, others per work-item",
    "f_mem_access(|_.*)",
    "access",
    count=_count,
    examples=(
        *(
            f"f_mem_access_{space}_{dtype}{direction}"
            for space in ("global", "local")
            for dtype in ("float32", "float64")
            for direction in ("", "_load", "_store")
        ),
        "f_mem_access_tag:aLD",
    ),
    read=read_pattern,
    inventory=lambda scop: [describe_access(item) for item in counts_of(scop).accesses],
    present=lambda scop, sizes, pattern: bool(selected(scop, sizes, pattern)),
    amount=_amount,
    remarks=_remarks,
    covers=_covers,
    cost=lambda pattern: _COSTS.get(pattern.space, "memory"),
)
ARRAY_ACCESSES = replace(
    ACCESSES,
    title="Accesses of an array that fit a pattern",
    pattern="f_mem_access(_array:.*)",
    examples=("f_mem_access_array:a",),
    inventory=lambda scop: [f"f_mem_access_array:{array.name}" for array in scop.arrays],
)


def _read_footprint(match: re.Match[str]) -> AccessPattern:
    pattern = read_pattern(match)
    # Behind an array or tag, _local may be part of the name (see `AccessPattern`).
    if pattern.array is not None or pattern.tag is not None:
        return pattern
    if pattern.space not in {None, "global", "texture"}:
        each = "work-group" if pattern.space == "local" else "work-item"
        msg = f"feature {match[0]!r}: a {pattern.space} array exists once per {each}; footprints are of global arrays"
        raise UnknownFeatureError(msg, feature=match[0])
    return replace(pattern, space=pattern.space or "global")


def _global(scop: Scop, sizes: Sizes | None, pattern: AccessPattern) -> tuple[AccessCounts, ...]:
    return tuple(item for item in selected(scop, sizes, pattern) if item.array.memory == "global")


def touched(scop: Scop, sizes: Sizes | None, pattern: AccessPattern) -> Footprint:
    """Return the footprint of the accesses that fit at the given sizes."""
    return counts_of(scop).footprint_among(_global(scop, sizes, pattern))


def _footprints(scop: Scop) -> list[str]:
    """Return the footprints of each global array, by direction where it has both, and of each access tag."""
    accesses = [item for item in counts_of(scop).accesses if item.array.memory == "global"]
    found = []
    for name in dict.fromkeys(item.array.name for item in accesses):
        both = {item.access.direction for item in accesses if item.array.name == name}
        found += [f"array:{name}", *(f"array:{name}_{direction}" for direction in DIRECTIONS if len(both) > 1)]
    found += dict.fromkeys(f"tag:{item.access.tag}" for item in accesses if item.access.tag)
    return [f"f_mem_footprint_{one}" for one in found]


def _footprint_remarks(scop: Scop, sizes: Sizes | None, _target: Target, pattern: AccessPattern) -> Remarks:
    found = touched(scop, sizes, pattern)
    certain, note = found.elements_certainty, _reuse(found, sizes)
    if sizes is not None and note:
        note += f", {_WORDS[certain.relation]}{_bytes_text(float(found.bytes.evaluate(sizes)))}"
    return Remarks(str(found.elements), certain, note)


def _bytes_text(number: float) -> str:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if number >= 1024**power:
            return f"{number / 1024**power:.4g} {unit}"
    return f"{number:g} B"


FOOTPRINTS = Family(
    "Distinct elements that accesses of global arrays touch together; those that fit a pattern",
    "f_mem_footprint(|_.*)",
    "element",
    count=lambda scop, sizes, _, pattern: touched(scop, sizes, pattern).elements,
    examples=(
        *(f"f_mem_footprint_global{direction}" for direction in ("", "_load", "_store")),
        "f_mem_footprint_array:a",
        "f_mem_footprint_tag:aLD",
    ),
    read=_read_footprint,
    inventory=_footprints,
    present=lambda scop, sizes, pattern: bool(_global(scop, sizes, pattern)),
    amount=lambda scop, sizes, _, pattern: _bytes(item.array.itemsize for item in _global(scop, sizes, pattern)),
    remarks=_footprint_remarks,
    covers=_covers,
    cost="memory",
)
