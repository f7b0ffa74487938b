"""Integers that are known: sums of products of sizes, each times a quasi-affine expression of isl (``n*i + j``).

The expressions have no dimensions: group ids, work-item ids, loop counters and sizes are their parameters.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from math import prod
from typing import Any, Protocol

from perflex.features.from_source.copies import answered_once, replace
from perflex.features.from_source.pending import Pending
from perflex.features.lowering.arithmetic_types import common_type, scalar_bytes
from perflex.features.lowering.subscripts import Product
from perflex.features.polynomials.affine import read_affine
from perflex.isl import isl

# More pieces than this are given up: sets of that many conditions take isl minutes.
_MOST_PIECES = 40
_PARAMETER = isl.dim_type.param
# Of the widest integer. Beyond the width of its type C says nothing of a shift.
_SHIFTS = range(64)
_MOST_CONSTANTS = 1 << 14
# No type holds it.
_BEYOND = 1 << 64
_BITS = {"And": operator.and_, "Or": operator.or_, "Xor": operator.xor}
_OWN = "__perflex_"
_LARGE, _LARGEST = 1 << 20, 1 << 30
_MANY_DIGITS = re.compile(r"\d{10}")
_ALONE = {()}  # The product of no sizes
_TRUTHS = (range(1), range(2), range(1, 2))


class NotAffineError(Exception):
    """An integer is no quasi-affine expression; the message says why."""


# In lower case; isl's parser takes some of them in any.
_ISL_WORDS = {
    "exists", "and", "or", "implies", "not", "infty", "infinity", "nan", "min", "max", "rat", "true", "false", "ceild",
    "floord", "mod", "ceil", "floor",
}  # fmt: skip


# Constant expressions by their values, and both by the addresses of the expressions, which these keep: where loops are
# walked through one by one, most integers are constants, with which Python computes faster.
_CONSTANTS: dict[int, Any] = {}
_NUMBERS: dict[int, tuple[Any, int]] = {}


def constant(value: int) -> Any:
    """Return a constant expression."""
    found = _CONSTANTS.get(value)
    if found is None:
        if len(_CONSTANTS) >= _MOST_CONSTANTS:
            _NUMBERS.clear()
            _CONSTANTS.clear()
        found = _CONSTANTS[value] = isl.PwAff(f"{{ [] -> [({value})] }}")
        _NUMBERS[id(found)] = found, value
    return found


def number_of(expression: Any) -> int | None:
    """Return the value of an expression that `constant` made; None for others."""
    found = _NUMBERS.get(id(expression))
    return None if found is None else found[1]


def is_size_name(name: str) -> bool:
    """Return whether isl reads a name as that of a parameter: not words of its own, such as ``max``."""
    return name.isascii() and name.isidentifier() and name.lower() not in _ISL_WORDS and not name.startswith(_OWN)


def own_name(name: str) -> str:
    """Return the name that an index or counter has among the parameters, which no size of the kernel has."""
    return f"{_OWN}{name}"


def shown_name(name: str) -> str:
    """Return the name of an index or counter without what tells it from sizes."""
    return name.removeprefix(_OWN)


@lru_cache(maxsize=4096)
def variable(name: str) -> Any:
    """Return a parameter as an expression."""
    return isl.PwAff(f"[{name}] -> {{ [] -> [({name})] }}")


def tidy(expression: Any) -> Any:
    """Return an expression with few pieces; more than `_MOST_PIECES` are not affine enough."""
    if expression.n_piece() > 4:
        expression = expression.coalesce()
    if expression.n_piece() > _MOST_PIECES:
        raise NotAffineError("it has too many cases")
    return expression


def constant_of(expression: Any) -> int | None:
    """Return the value of a constant expression, or None."""
    if (number := number_of(expression)) is not None:
        return number
    cases = _cases(expression)
    return cases[0][1] if len(cases) == 1 else None


def names_in(found: Any) -> set[str]:
    """Return the parameters that an expression or set depends on."""
    places = range(found.dim(_PARAMETER))
    return {found.get_dim_name(_PARAMETER, place) for place in places if found.involves_dims(_PARAMETER, place, 1)}


@dataclass(frozen=True)
class Integer:
    """An integer: expressions by the product of sizes that each is multiplied by, and its C type."""

    terms: Mapping[Product, Any]
    dtype: str = "int32"
    literal: bool = False  # Whether the text says what it is: compilers compute with it
    # The type to which the index of a work-item along axis 0 was cut, its work-group included, that is part of it.
    cut: str = ""
    pending: Pending | None = field(default=None, compare=False)  # The arithmetic that made it

    @classmethod
    def of(cls, value: Any, dtype: str = "int32", *, literal: bool = False) -> Integer:
        """Return a constant, or an isl expression, as an integer."""
        return cls({(): constant(value) if isinstance(value, int) else value}, dtype, literal)

    @property
    def affine(self) -> Any:
        """The integer as one isl expression; NotAffineError if sizes are multiplied in it."""
        for names in filter(None, self.terms):
            raise NotAffineError(f"it multiplies variables ({'*'.join(names)})")
        return self.terms.get((), constant(0))

    @property
    def value(self) -> int | None:
        """Its value, if it is a constant."""
        return None if any(self.terms) else constant_of(self.affine)

    @property
    def number(self) -> int | None:
        """Its value, if it was made of constants alone."""
        return number_of(self.terms[()]) if self.terms.keys() == _ALONE else None

    @property
    def names(self) -> set[str]:
        """The variables that it depends on."""
        return {name for product, term in self.terms.items() for name in (*product, *names_in(term))}

    def typed(self, dtype: str) -> Integer:
        """Return the same integer as one of another type."""
        if dtype == self.dtype:
            return self
        if scalar_bytes(dtype) < scalar_bytes(self.dtype) and not self.cut and {own_name("l0")} < self.names:
            return replace(self, dtype=dtype, cut=dtype)
        return replace(self, dtype=dtype)

    def plus(self, other: Integer, sign: int = 1) -> Integer:
        """Return the sum with another, or the difference."""
        one, two = self.number, other.number
        if one is not None and two is not None:
            return Integer(
                {(): constant(one + sign * two)}, common_type(self.dtype, other.dtype), cut=self.cut or other.cut
            )
        terms = dict(self.terms)
        for key, term in other.terms.items():
            signed = term if sign > 0 else term.neg()
            terms[key] = tidy(terms[key].add(signed)) if key in terms else signed
        kept = {key: term for key, term in terms.items() if not key or constant_of(term) != 0}
        return Integer(kept, common_type(self.dtype, other.dtype), cut=self.cut or other.cut)

    def scaled(self, factor: int) -> Integer:
        """Return a multiple."""
        if (number := self.number) is not None:
            return replace(self, terms={(): constant(number * factor)})
        return replace(self, terms={key: tidy(term.mul(constant(factor))) for key, term in self.terms.items()})

    def floor(self) -> Integer:
        """Return the largest integer that is not above it."""
        return replace(self, terms={key: term.floor() for key, term in self.terms.items()})

    def times(self, other: Integer, sizes: Iterable[str]) -> Integer:
        """Return the product, one factor of which must be made of constants and sizes; NotAffineError where none is."""
        dtype = common_type(self.dtype, other.dtype)
        ways = ((self, other), (other, self))
        for one, rest in ways:
            if (value := one.value) is not None:
                return replace(rest.scaled(value), dtype=dtype)
        for one, rest in ways:
            monomials = one.polynomial(sizes)
            if monomials is None:
                continue
            total = Integer({}, dtype)
            for names, factor in monomials.items():
                scaled = {tuple(sorted(key + names)): term for key, term in rest.scaled(factor).terms.items()}
                total = total.plus(Integer(scaled, dtype, cut=rest.cut))
            return total
        for one, rest in ways:
            if cases := _cases(one.affine):
                parts = [rest.affine.mul(constant(value)).intersect_domain(domain) for domain, value in cases]
                return Integer.of(tidy(reduce(isl.PwAff.union_add, parts)), dtype)
        raise NotAffineError("it multiplies variables")

    def polynomial(self, sizes: Iterable[str]) -> dict[Product, int] | None:
        """Return the factors of products of sizes, if the integer has nothing else in it."""
        found: Counter[Product] = Counter()
        for key, term in self.terms.items():
            (_, first), *others = term.coalesce().get_pieces()
            affine = read_affine(first)
            names = dict(affine.terms)
            if others or affine.floors or affine.denominator != 1 or not names.keys() <= set(sizes):
                return None
            found[key] += affine.constant
            for name, factor in names.items():
                found[tuple(sorted((*key, str(name))))] += factor
        return {product: factor for product, factor in found.items() if factor}

    def equals(self, other: Integer) -> bool:
        """Return whether both are the same everywhere."""
        return self.plus(other, -1).value == 0


def _cases(expression: Any) -> list[tuple[Any, int]]:
    """Return domain and value of each case of an expression that is a number in few cases; none if it is not."""
    pieces = (expression if expression.n_piece() == 1 else expression.coalesce()).get_pieces()
    numbers = [(domain, affine.get_constant_val()) for domain, affine in pieces if affine.is_cst()]
    if len(numbers) < len(pieces) or len(pieces) > 8 or not all(number.is_int() for _, number in numbers):
        return []
    return [(domain, int(number.to_python())) for domain, number in numbers]


def _values(expression: Any, active: Any) -> range:
    """Return between which values an expression is; nothing if they have no end."""
    values = isl.Map.from_pw_aff(expression).intersect_domain(active).range()
    values = values.project_out(_PARAMETER, 0, values.dim(_PARAMETER))
    low, high = values.dim_min_val(0), values.dim_max_val(0)
    bounded = not values.is_empty() and low.is_int() and high.is_int()
    return range(int(low.to_python()), int(high.to_python()) + 1) if bounded else range(0)


class Where(Protocol):
    """Where something is computed."""

    @property
    def sizes(self) -> Iterable[str]:
        """Names of sizes."""

    @property
    def active(self) -> Any:
        """The instances that compute it, a set without dimensions."""

    def require_below(self, value: Integer, limit: int) -> None:
        """Look whether an integer stays below a limit there; NotAffineError if it does not."""


def wrapped(value: Integer, where: Where) -> Any:
    """Return the expression of an integer as its type holds it: unsigned ones wrap around below zero.

    Those that wrap around above their range are not affine. Overflow of signed integers is undefined in C.
    """
    if not value.dtype.startswith("u"):
        return value.affine
    values, expression = 1 << 8 * scalar_bytes(value.dtype), value.affine
    # Indices and sizes fit 32 bits: what has no large factors does not leave 64.
    is_checked = values < _BEYOND or _MANY_DIGITS.search(str(expression)) is not None
    if is_checked:
        where.require_below(value, values)
    if is_within(expression, 0, "", where.active):
        return expression
    negative = expression.lt_set(constant(0))
    if is_checked:
        where.require_below(value.scaled(-1), values + 1)
    above = expression.add(constant(values)).intersect_domain(negative)
    return tidy(expression.intersect_domain(expression.ge_set(constant(0))).union_add(above))


@answered_once
def is_within(expression: Any, low: int | str, high: int | str, active: Any) -> bool:
    """Return whether an expression is never below one number nor above another on a set; "" is no number."""
    number = constant_of(expression)
    if number is not None and (low == "" or number >= int(low)) and (high == "" or number <= int(high)):
        return True
    return all(
        beyond(constant(int(limit))).intersect(active).is_empty()
        for beyond, limit in ((expression.lt_set, low), (expression.gt_set, high))
        if limit != ""
    )


def holds(dtype: str, other: str) -> bool:
    """Return whether an integer type holds all values of another."""
    more = scalar_bytes(dtype) - scalar_bytes(other)
    unsigned, other_unsigned = dtype.startswith("u"), other.startswith("u") or other == "bool"
    return more > 0 if other_unsigned and not unsigned else more >= 0 and unsigned == other_unsigned


def outside(expression: Any, dtype: str) -> Any:
    """Return where an expression is no value of an integer type."""
    bits = 8 * scalar_bytes(dtype)
    low, high = (0, 1 << bits) if dtype.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)
    return expression.lt_set(constant(low)).union(expression.ge_set(constant(high)))


def fitted(value: Integer, dtype: str, where: Where) -> Integer:
    """Return an integer as one of a type that does not hold all values of its own; it wraps around.

    Those that begin as indices and sizes fit 32 bits. NotAffineError where it is not known.
    """
    bits, is_signed = 8 * scalar_bytes(dtype), not dtype.startswith("u")
    number = -1 if value.number is None else value.number
    if 0 <= number < 1 << bits - is_signed:
        return value.typed(dtype)
    if bits >= 32 and (not is_signed or any(value.terms) or not _is_large(value.affine)):
        return value.typed(dtype)
    beyond = outside(value.affine, dtype).intersect(where.active)
    if beyond.is_empty():
        return value.typed(dtype)
    if bits >= 32 and set(where.sizes) & names_in(beyond):
        # Few sizes exceed a type of 32 bits; isl takes minutes for a set that wraps around at them.
        where.require_below(value, 1 << bits - 1)
        where.require_below(value.scaled(-1), (1 << bits - 1) + 1)
        return value.typed(dtype)
    shift = constant(1 << bits - 1 if is_signed else 0)
    inside = value.affine.add(shift).mod_val(isl.Val(str(1 << bits))).sub(shift)
    return replace(value.typed(dtype), terms={(): tidy(inside)})


def _is_large(expression: Any) -> bool:
    """Return whether it has a factor that is as large as no work-group is, or a constant as no grid is."""
    affine = [read_affine(piece) for _, piece in expression.get_pieces()]
    factors = [factor for each in affine for factor in dict(each.terms).values()]
    return any(abs(factor) >= _LARGE for factor in factors) or any(abs(each.constant) >= _LARGEST for each in affine)


def signed(value: Integer, where: Where) -> Integer:
    """Return what an integer's type holds as an integer of a signed type; NotAffineError where it wraps around."""
    if value.dtype.startswith("u") and scalar_bytes(value.dtype) < 8:
        if not any(value.terms):
            return replace(value, terms={(): wrapped(value, where)}, dtype="int64")
        where.require_below(value, 1 << 8 * scalar_bytes(value.dtype))
    return value.typed("int64")


def within_type(value: Integer) -> Integer:
    """Return an integer, a constant unsigned one reduced to its type; NotAffineError for constants beyond all types."""
    number = value.value
    unsigned = value.dtype.startswith("u")
    most = 1 << 8 * scalar_bytes(value.dtype) if unsigned else _BEYOND
    if number is None or abs(number) < most:
        return value
    if not unsigned:
        raise NotAffineError("it overflows")
    return Integer.of(number % most, value.dtype)


def _masked(expression: Any, mask: int) -> Any:
    """Return the bits of an expression that a constant selects."""
    if mask < 0:  # all above some
        if -mask & (-mask - 1):
            raise NotAffineError("it selects bits by a negative mask")
        return expression.div(constant(-mask)).floor().mul(constant(-mask))
    found = constant(0)
    for run in re.finditer("1+", f"{mask:b}"[::-1]):
        first, end = run.span()
        part = expression.div(constant(1 << first)).floor().mod_val(isl.Val(str(1 << (end - first))))
        found = found.add(part.mul(constant(1 << first)))
    return tidy(found)


def integer_operation(name: str, one: Integer, two: Integer, where: Where) -> Integer:
    """Return what a binary operator of clang's name gives; NotAffineError where that is not affine."""
    if name in {"Add", "Sub"}:
        return one.plus(two, 1 if name == "Add" else -1)
    if name == "Mul":
        return one.times(two, where.sizes)
    if name in {"min", "max"}:
        dtype = common_type(one.dtype, two.dtype)
        first, second = (wrapped(each.typed(dtype), where) for each in (one, two))
        return Integer.of(tidy(getattr(first, name)(second).coalesce()))
    if name in _BITS:
        return _bits(name, one, two, where)
    first, second = one.value, two.value
    if name in {"Div", "Rem"} and second:
        dividend = wrapped(one, where)
        number = number_of(dividend)
        if number is not None and number >= 0 and second > 0:
            return Integer.of(number // second if name == "Div" else number % second)
        quotient = _quotient(dividend, second, where.active)
        return Integer.of(quotient if name == "Div" else tidy(dividend.sub(quotient.mul(constant(second)))))
    if name == "Shr" and second is not None and second in _SHIFTS:
        return Integer.of(wrapped(one, where).div(constant(1 << second)).floor())
    if name == "Shl" and second is not None and second in _SHIFTS:
        return one.scaled(1 << second)
    shifts = _values(two.affine, where.active) if name == "Shl" and first is not None else ()
    if shifts and first is not None and shifts[0] in _SHIFTS and shifts[-1] in _SHIFTS:
        parts = [constant(first << each).intersect_domain(two.affine.eq_set(constant(each))) for each in shifts]
        return Integer.of(reduce(isl.PwAff.union_add, parts))
    raise NotAffineError("it divides or shifts by a variable")


def _quotient(expression: Any, divisor: int, active: Any) -> Any:
    """Return the quotient by a constant, rounded towards zero as C does."""
    if divisor > 0 and is_within(expression, 0, "", active):
        return expression.div(constant(divisor)).floor()
    return tidy(expression.tdiv_q(constant(divisor)))


def _bits(name: str, one: Integer, two: Integer, where: Where) -> Integer:
    first, second = one.value, two.value
    if first is not None and second is not None:
        return Integer.of(_BITS[name](first, second))
    if second is None:
        one, two, second = two, one, first
    if second is not None:
        expression = wrapped(one, where)
        both = _masked(expression, second)
        if name == "And":
            return Integer.of(both)
        together = expression.add(constant(second)).sub(both)
        return Integer.of(tidy(together if name == "Or" else together.sub(both)))
    if name != "Xor" and all(_values(each.affine, where.active) in _TRUTHS for each in (one, two)):
        return Integer.of(one.affine.min(two.affine) if name == "And" else one.affine.max(two.affine))
    raise NotAffineError("it combines bits of two variables")


@dataclass(frozen=True)
class Limit:
    """An integer that must stay below a limit: its terms and the instances that compute it, as isl prints them."""

    terms: tuple[tuple[Product, str], ...]
    limit: int
    active: str

    @classmethod
    def of(cls, value: Integer, limit: int, active: Any) -> Limit:
        """Return the limit of an integer."""
        return cls(tuple((key, str(term)) for key, term in value.terms.items()), limit, str(active))

    def holds(self, sizes: Mapping[str, Any]) -> bool:
        """Return whether it holds at given sizes."""
        factors = (constant(prod(int(sizes[name]) for name in key)) for key, _ in self.terms)
        value = reduce(isl.PwAff.add, map(isl.PwAff.mul, (isl.PwAff(term) for _, term in self.terms), factors))
        above = value.ge_set(constant(self.limit)).intersect(isl.Set(self.active))
        for name, size in sizes.items():
            place = above.find_dim_by_name(_PARAMETER, name)
            above = above if place < 0 else above.fix_val(_PARAMETER, place, isl.Val(str(int(size))))
        return bool(above.is_empty())
