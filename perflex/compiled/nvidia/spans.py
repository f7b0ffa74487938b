"""Numbers of 32 bits that ids of work-items and work-groups decide: arithmetic of all values that they have at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import and_, or_
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_MASK, _SIGN = 0xFFFFFFFF, 1 << 31


@dataclass(frozen=True)
class Span:
    """A number that ids decide: signed, from `least` to `most`, and the axes of the ids."""

    least: int
    most: int
    axes: frozenset[str]
    # If it is a sum of multiples of ids and a number: axis, factor, and first and last id of each.
    parts: tuple[tuple[str, int, int, int], ...] = ()


@dataclass(frozen=True)
class Split:
    """Whether something holds differs, or may differ, among ids along these axes."""

    axes: frozenset[str]


@dataclass(frozen=True)
class Shifted:
    """What a register was when a loop's iteration began, plus a number."""

    register: str
    offset: int


@dataclass(frozen=True)
class Test:
    """Whether what a register was when an iteration began, plus an offset, compares so with a number."""

    relation: str
    signed: bool
    register: str
    offset: int
    bound: int | Span
    negated: bool = False


@dataclass(frozen=True, order=True)
class Mark:
    """Why a number, or whether something holds, is not known; of several reasons, the largest."""

    rank: int
    # The instruction or operand that is not described.
    name: str = ""


IDS = Mark(0)
"""It follows from ids and arguments, but differs among the ways that control takes."""
DATA = Mark(1)
"""It follows from what memory holds, or from arguments that are no integers."""
UNDESCRIBED = 2
"""The rank of what instructions make that are not described."""


def merged(first: object, second: object) -> Mark:
    """Return what is known of a value that is one of two, which differ, as the way decides that control took."""
    return max(IDS, *(one for one in (first, second) if isinstance(one, Mark)), IDS)


def signed(value: int) -> int:
    """Return a number of 32 bits with its sign."""
    return value - (1 << 32) if value >> 31 else value


def between(least: int, most: int, axes: frozenset[str]) -> int | Span:
    """Return a number of a range; where 32 bits do not hold the range, of all numbers."""
    if least == most:
        return least & _MASK
    return Span(least, most, axes) if least >= -_SIGN and most < _SIGN else Span(-_SIGN, _SIGN - 1, axes)


def id_between(first: int, last: int, axis: str) -> int | Span:
    """Return an id of a range."""
    return first if first == last else Span(first, last, frozenset({axis}), ((axis, 1, first, last),))


def _limits(parts: Iterable[tuple[str, int, int, int]]) -> tuple[int, int]:
    """Return the least and the largest sum of multiples of ids."""
    each = [sorted((factor * first, factor * last)) for _, factor, first, last in parts]
    return sum(least for least, _ in each), sum(most for _, most in each)


def _combined(terms: Sequence[tuple[int, int | Span]]) -> tuple[int, int, tuple[tuple[str, int, int, int], ...]] | None:
    """Return the least and the largest sum of multiples of values, and its parts; None where these are not known."""
    factors: dict[tuple[str, int, int], int] = {}
    constant = 0
    for times, value in terms:
        if isinstance(value, int):
            constant += times * signed(value)
        elif not value.parts:
            return None
        else:
            constant += times * (value.least - _limits(value.parts)[0])
            for axis, factor, first, last in value.parts:
                factors[axis, first, last] = factors.get((axis, first, last), 0) + times * factor
    parts = tuple((axis, factor, first, last) for (axis, first, last), factor in sorted(factors.items()) if factor)
    least, most = _limits(parts)
    return least + constant, most + constant, parts


def weighted(terms: Sequence[tuple[int, object]]) -> int | Span | None:
    """Return a sum of multiples of values; None where one is not known."""
    known = [(times, value) for times, value in terms if isinstance(value, int | Span)]
    if len(known) < len(terms):
        return None
    found = _combined(known)
    if found is not None and (not found[2] or (found[0] >= -_SIGN and found[1] < _SIGN)):
        least, most, parts = found
        return Span(least, most, frozenset(axis for axis, *_ in parts), parts) if parts else least & _MASK
    return monotone(
        lambda *numbers: sum(times * number for (times, _), number in zip(known, numbers, strict=True)),
        [value for _, value in known],
    )


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


def carries(values: Sequence[int | Span], *, counter: bool) -> bool | None:
    """Return whether a sum of numbers without signs exceeds 32 bits; None where it may.

    With a counter, the sum is that of a number and of what a loop counts upwards, which does not wrap around.
    """
    least, most = (sum(each) for each in zip((0, 0), *(ends(one, is_signed=False) for one in values), strict=True))
    if counter:
        return False if most < _SIGN else None
    return False if most <= _MASK else True if least > _MASK else None


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


def extreme(first: object, second: object, *, least: bool, is_signed: bool) -> int | Span | None:
    """Return the smaller or the larger of two values; None where one is not known."""
    if isinstance(first, int | Span) and isinstance(second, int | Span):
        smaller = related("LE", first, second, is_signed=is_signed)
        if isinstance(smaller, bool):
            return first if smaller == least else second
    return monotone(min if least else max, [first, second], is_signed=is_signed)


def related(relation: str, first: int | Span, second: int | Span, *, is_signed: bool) -> bool | Split:
    """Return whether two values compare so."""
    one, other = ends(first, is_signed=is_signed), ends(second, is_signed=is_signed)
    least, most = one[0] - other[1], one[1] - other[0]
    if is_signed or all(isinstance(value, Span) and value.least >= 0 for value in (first, second)):
        found = _combined([(1, first), (-1, second)])
        least, most = (least, most) if found is None else found[:2]
    outcomes = {compare(relation, difference, 0) for difference in (least, most)}
    # Ends that differ from zero do not tell that nothing between them is zero.
    apart = least > 0 or most < 0 or least == most
    decided = len(outcomes) == 1 and (apart or relation not in {"EQ", "NE"})
    return outcomes.pop() if decided else Split(axes_of(first, second))
