"""Which accesses a memory feature counts: the fields of its identifier, and whether an access fits them."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perflex.errors import MissingSizeError, UnknownFeatureError
from perflex.features.counting.scop_counts import AccessCounts
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.words import DIRECTIONS, DTYPES, SPACES

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
