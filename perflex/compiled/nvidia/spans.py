"""Numbers of 32 bits that ids of work-items and work-groups decide: arithmetic of all values that they have at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import and_, or_
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MASK, _SIGN = 0xFFFFFFFF, 1 << 31


@dataclass(frozen=True)
class Span:
    """A number that ids decide: signed, from `least` to `most`, and the axes of the ids."""

    least: int
    most: int
    axes: frozenset[str]


@dataclass(frozen=True)
class Split:
    """Whether something holds differs, or may differ, among ids along these axes."""

    axes: frozenset[str]


def signed(value: int) -> int:
    """Return a number of 32 bits with its sign."""
    return value - (1 << 32) if value >> 31 else value


def between(least: int, most: int, axes: frozenset[str]) -> int | Span:
    """Return a number of a range; where 32 bits do not hold the range, of all numbers."""
    if least == most:
        return least & _MASK
    return Span(least, most, axes) if least >= -_SIGN and most < _SIGN else Span(-_SIGN, _SIGN - 1, axes)


def ends(value: int | Span, *, is_signed: bool = True) -> tuple[int, int]:
    """Return the least and the largest number that a value can be."""
    if isinstance(value, int):
        return (signed(value),) * 2 if is_signed else (value & _MASK,) * 2
    if is_signed or value.least >= 0:
        return value.least, value.most
    return (value.least + 2 * _SIGN, value.most + 2 * _SIGN) if value.most < 0 else (0, _MASK)


def axes_of(*values: object) -> frozenset[str]:
    """Return the axes of all ids that values depend on."""
    return frozenset().union(*(value.axes for value in values if isinstance(value, Span | Split)))


def monotone(function: Callable[..., int], values: Sequence[object], *, is_signed: bool = True) -> int | Span | None:
    """Return the value of a function that, in each argument, nowhere turns."""
    known = [value for value in values if isinstance(value, int | Span)]
    if len(known) < len(values):
        return None
    found = [function(*chosen) for chosen in product(*(ends(value, is_signed=is_signed) for value in known))]
    return between(min(found), max(found), axes_of(*known))


def either(first: object, second: object, axes: frozenset[str]) -> int | Span:
    """Return what is one of two values, as ids decide; any number where one is not known."""
    if not isinstance(first, int | Span) or not isinstance(second, int | Span):
        return Span(-_SIGN, _SIGN - 1, axes | axes_of(first, second))
    numbers = [*ends(first), *ends(second)]
    return between(min(numbers), max(numbers), axes | axes_of(first, second))


def _bits(table: int, a: int, b: int, c: int) -> int:
    result = 0
    for index in range(8):
        if table >> index & 1:
            result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
    return result & _MASK


def logical(table: int, values: Sequence[int | Span]) -> int | Span:
    """Return the bits that a truth table makes of those of three values."""
    # Up to the highest bit that differs between the ends, any bit may be 0 or 1; those above it are the same.
    limits = [ends(value) for value in values]
    varying = [(1 << ((least ^ most) & _MASK).bit_length()) - 1 for least, most in limits]
    zeros = [least & ~bits & _MASK for (least, _), bits in zip(limits, varying, strict=True)]
    corners = product(*((zero, zero | bits) for zero, bits in zip(zeros, varying, strict=True)))
    found = [_bits(table, *chosen) for chosen in corners]
    least, most = reduce(and_, found), reduce(or_, found)
    if sum(map(bool, varying)) == 1 and least ^ most == sum(varying) and found[0] == least:
        # The varying bits are kept as they are.
        least, most = (_bits(table, *(limit[end] & _MASK for limit in limits)) for end in (0, 1))
    if (least ^ most) >> 31:
        return between(-_SIGN, _SIGN - 1, axes_of(*values))
    return between(signed(least), signed(most), axes_of(*values))


def compare(relation: str, first: int, second: int) -> bool:
    """Return whether two numbers compare so; the relation is one of LT, LE, GT, GE, EQ, NE."""
    return {
        "LT": first < second,
        "LE": first <= second,
        "GT": first > second,
        "GE": first >= second,
        "EQ": first == second,
        "NE": first != second,
    }[relation]


def related(relation: str, first: int | Span, second: int | Span, *, is_signed: bool) -> bool | Split:
    """Return whether two values compare so."""
    one, other = ends(first, is_signed=is_signed), ends(second, is_signed=is_signed)
    found = {compare(relation, a, b) for a in one for b in other}
    apart = one[1] < other[0] or other[1] < one[0] or (isinstance(first, int) and isinstance(second, int))
    # Ends that differ all do not tell that nothing between them is equal.
    decided = len(found) == 1 and (apart or relation not in {"EQ", "NE"})
    return found.pop() if decided else Split(axes_of(first, second))
