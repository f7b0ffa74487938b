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
    (?: _lstrides:  (?P<local_strides> {_STRIDES}) )?
    (?: _gstrides:  (?P<group_strides> {_STRIDES}) )?
    (?: _afr:       (?P<afr> {_CONSTRAINT}) )?
    """,
    re.VERBOSE,
)
_ORDER = f"""array:NAME, tag:NAME, space ({", ".join(SPACES)}), type (such as float32), {" or ".join(DIRECTIONS)}, \
lstrides:{{axis:constraint;...}}, gstrides:{{axis:constraint;...}}, afr:constraint"""
_RELATIONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq}


@dataclass(frozen=True)
class PatternConstraint:
    """A comparison with a number or a product of numbers and size parameters, e.g. ``>15``, ``=16*n`` or ``=-1``."""

    relation: str
    bound: str

    @staticmethod
    def of(text: str) -> PatternConstraint:
        """Return the constraint that a text of the right form stands for."""
        bound = text.lstrip("<>=")
        return PatternConstraint(text.removesuffix(bound) or "=", bound)

    @property
    def factors(self) -> list[str]:
        """What the bound is the product of, but for its sign."""
        return self.bound.removeprefix("-").split("*")

    def holds(self, value: Any, sizes: Mapping[str, Any]) -> bool:
        """Return whether `value` (a number or an array of them) fulfils the constraint."""
        bound: Any = -1 if self.bound.startswith("-") else 1
        for factor in self.factors:
            if factor[0].isdigit():
                bound = bound * (float(factor) if "." in factor else int(factor))
            elif factor in sizes:
                # Of Python's integers: products of numpy's may exceed 64 bits.
                bound = bound * np.asarray(sizes[factor]).astype(object)
            else:
                known = ", ".join(sizes)
                msg = f"the constraint {self} names size {factor!r}, which has no value; the sizes are {known}"
                raise MissingSizeError(msg, parameters=(factor,))
        outcome = np.asarray(_RELATIONS[self.relation](value, bound))
        if outcome.any() and not outcome.all():
            msg = f"the constraint {self} holds for some of the sizes given and not for others; pass them separately"
            raise MissingSizeError(msg)
        return bool(outcome.all())

    def fits(self, stride: QuasiPolynomial | int | None, sizes: Mapping[str, Any]) -> bool:
        """Return whether a stride fulfils the constraint; without any sizes, whether it reads the same."""
        if stride is None:  # Not affine in that index: no number fits.
            return False
        if isinstance(stride, int):
            return self.holds(stride, sizes)
        names = {*stride.parameters, *(factor for factor in self.factors if not factor[0].isdigit())}
        if self.relation == "=" and names and not sizes:
            return str(stride).replace(" ", "") == self.bound
        return self.holds(stride.evaluate(sizes), sizes)

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
        for constraints, strides in (
            (self.local_strides, item.local_strides),
            (self.group_strides, item.group_strides),
        ):
            for axis, constraint in constraints:
                # An axis the kernel does not have cannot move the address.
                if not constraint.fits(strides[axis] if axis < len(strides) else 0, sizes):
                    return False
        return self.afr is None or self._afr_fits(item, sizes, self.afr)

    def _afr_fits(self, item: AccessCounts, sizes: Mapping[str, Any], afr: PatternConstraint) -> bool:
        accesses, footprint = item.work_item_count.evaluate(sizes), item.footprint.evaluate(sizes)
        # Where nothing is touched there is no ratio.
        return bool(np.all(np.asarray(footprint, dtype=float) > 0)) and afr.holds(accesses / footprint, sizes)


def read_pattern(match: re.Match[str]) -> AccessPattern:
    """Return the pattern that stands behind ``f_mem_access`` or another prefix, the group of a match.

    Raises
    ------
    UnknownFeatureError
        It is none; the message says which part does not fit.
    """
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
    for name in ("local_strides", "group_strides"):
        pairs = (entry.split(":") for entry in fields.get(name, "{}")[1:-1].split(";") if entry)
        fields[name] = tuple((int(axis), PatternConstraint.of(text)) for axis, text in pairs)
    if "afr" in fields:
        fields["afr"] = PatternConstraint.of(fields["afr"])
    return AccessPattern(**fields)
