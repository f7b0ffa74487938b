"""Integers that are known: sums of products of sizes, each times a quasi-affine isl expression.

The expressions are isl's piecewise quasi-affine ones without dimensions: group ids, work-item ids, loop counters and
sizes are their parameters. Sizes may be multiplied (``n*i + j``), other variables may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from math import prod
from typing import Any, Protocol, TypeAlias

from perflex.features.lowering.arithmetic_types import common_type, scalar_bytes
from perflex.isl import isl

# Sizes that are multiplied, sorted; a power has its name several times.
Product: TypeAlias = tuple[str, ...]
# More pieces than this are given up: sets of that many conditions take isl minutes.
_MOST_PIECES = 40
_PARAMETER = isl.dim_type.param
# Values of a shift that are looked at one by one, and bits of the widest integer.
_FEW = 32
_MOST_BITS = 64


class NotAffineError(Exception):
    """An integer is no quasi-affine expression; the message says why."""


# In lower case; isl's parser takes some of them in any.
_ISL_WORDS = frozenset(
    {"exists", "and", "or", "implies", "not", "infty", "infinity", "nan", "min", "max", "rat", "true", "false"}
    | {"ceild", "floord", "mod", "ceil", "floor"}
)


@lru_cache(maxsize=4096)
def constant(value: int) -> Any:
    """Return a constant expression."""
    return isl.PwAff(f"{{ [] -> [({value})] }}")


def is_size_name(name: str) -> bool:
    """Return whether isl reads a name as that of a parameter: not words of its own, such as ``max``."""
    return name.isascii() and name.isidentifier() and name.lower() not in _ISL_WORDS


def variable(name: str) -> Any:
    """Return a parameter as an expression."""
    return isl.PwAff(f"[{name}] -> {{ [] -> [({name})] }}")


def tidy(expression: Any) -> Any:
    """Return an expression with few pieces; more than `_MOST_PIECES` are not affine enough."""
    if expression.n_piece() > 4:
        expression = expression.coalesce()
    if expression.n_piece() > _MOST_PIECES:
        msg = "it has too many cases"
        raise NotAffineError(msg)
    return expression


def constant_of(expression: Any) -> int | None:
    """Return the value of a constant expression, or None."""
    pieces = expression.get_pieces() if expression.n_piece() == 1 else expression.coalesce().get_pieces()
    if len(pieces) != 1 or not pieces[0][1].is_cst() or not pieces[0][1].get_constant_val().is_int():
        return None
    return int(pieces[0][1].get_constant_val().to_python())


def involves(expression: Any, names: Iterable[str]) -> bool:
    """Return whether an expression or set depends on one of some parameters."""
    places = [expression.find_dim_by_name(_PARAMETER, name) for name in names]
    return any(place >= 0 and expression.involves_dims(_PARAMETER, place, 1) for place in places)


def names_in(found: Any) -> set[str]:
    """Return the parameters that an expression or set depends on."""
    places = range(found.dim(_PARAMETER))
    return {found.get_dim_name(_PARAMETER, place) for place in places if found.involves_dims(_PARAMETER, place, 1)}


@dataclass(frozen=True)
class Integer:
    """An integer: expressions by the product of sizes that each is multiplied by, and its C type."""

    terms: Mapping[Product, Any]
    dtype: str = "int32"
    argument: bool = False  # Whether it is an argument with a stated value, which compilers do not know
    # The type to which the index of a work-item along axis 0 was cut, its work-group included, that is part of it.
    cut: str = ""

    @classmethod
    def of(cls, value: Any, dtype: str = "int32") -> Integer:
        """Return a constant, or an isl expression, as an integer."""
        return cls({(): constant(value) if isinstance(value, int) else value}, dtype)

    @property
    def affine(self) -> Any:
        """The integer as one isl expression; NotAffineError if sizes are multiplied in it."""
        if set(self.terms) <= {()}:
            return self.terms.get((), constant(0))
        names = "*".join(next(key for key in self.terms if key))
        msg = f"it multiplies variables ({names})"
        raise NotAffineError(msg)

    @property
    def value(self) -> int | None:
        """Its value, if it is a constant."""
        return constant_of(self.terms.get((), constant(0))) if set(self.terms) <= {()} else None

    @property
    def names(self) -> set[str]:
        """The variables that it depends on."""
        found = {name for product in self.terms for name in product}
        for term in self.terms.values():
            found |= names_in(term)
        return found

    def typed(self, dtype: str) -> Integer:
        """Return the same integer as one of another type."""
        if dtype == self.dtype:
            return self
        if scalar_bytes(dtype) < scalar_bytes(self.dtype) and not self.cut and {"l0"} < self.names:
            return replace(self, dtype=dtype, cut=dtype)
        return replace(self, dtype=dtype)

    def plus(self, other: Integer, sign: int = 1) -> Integer:
        """Return the sum with another, or the difference."""
        terms = dict(self.terms)
        for key, term in other.terms.items():
            signed = term if sign > 0 else term.neg()
            terms[key] = tidy(terms[key].add(signed)) if key in terms else signed
        kept = {key: term for key, term in terms.items() if not key or constant_of(term) != 0}
        return Integer(kept, common_type(self.dtype, other.dtype), cut=self.cut or other.cut)

    def scaled(self, factor: int) -> Integer:
        """Return a multiple."""
        return replace(self, terms={key: tidy(term.mul(constant(factor))) for key, term in self.terms.items()})

    def times(self, other: Integer, sizes: Iterable[str]) -> Integer:
        """Return the product; one factor must be made of constants and sizes alone.

        Raises
        ------
        NotAffineError
            Both factors vary.
        """
        dtype = common_type(self.dtype, other.dtype)
        for one, rest in ((self, other), (other, self)):
            if (value := one.value) is not None:
                return replace(rest.scaled(value), dtype=dtype)
        for one, rest in ((self, other), (other, self)):
            monomials = one.polynomial(sizes)
            if monomials is None:
                continue
            terms: dict[Product, Any] = {}
            for names, factor in monomials.items():
                for key, term in rest.terms.items():
                    product = tuple(sorted(key + names))
                    scaled = term.mul(constant(factor))
                    terms[product] = tidy(terms[product].add(scaled)) if product in terms else scaled
            return Integer(terms, dtype, cut=rest.cut)
        if {*self.terms, *other.terms} <= {()}:
            for one, rest in ((self, other), (other, self)):
                if cases := _cases(one.affine):
                    parts = [rest.affine.mul(constant(value)).intersect_domain(domain) for domain, value in cases]
                    return Integer.of(tidy(reduce(isl.PwAff.union_add, parts)), dtype)
        msg = "it multiplies variables"
        raise NotAffineError(msg)

    def polynomial(self, sizes: Iterable[str]) -> dict[Product, int] | None:
        """Return the factors of products of sizes, if the integer has nothing else in it."""
        known = set(sizes)
        found: dict[Product, int] = {}
        for key, term in self.terms.items():
            pieces = term.coalesce().get_pieces()
            if len(pieces) != 1 or pieces[0][1].dim(isl.dim_type.div):
                return None
            affine = pieces[0][1]
            for place in range(affine.dim(_PARAMETER)):
                factor = affine.get_coefficient_val(_PARAMETER, place).to_python()
                if factor:
                    name = affine.get_dim_name(_PARAMETER, place)
                    if name not in known:
                        return None
                    product = tuple(sorted((*key, name)))
                    found[product] = found.get(product, 0) + int(factor)
            if rest := int(affine.get_constant_val().to_python()):
                found[key] = found.get(key, 0) + rest
        return found

    def involves(self, names: Iterable[str]) -> bool:
        """Return whether it depends on one of some variables."""
        chosen = set(names)
        return any(chosen & set(key) or involves(term, chosen) for key, term in self.terms.items())

    def equals(self, other: Integer) -> bool:
        """Return whether both are the same everywhere."""
        if set(self.terms) != set(other.terms):
            return False
        return all(constant_of(term.sub(other.terms[key])) == 0 for key, term in self.terms.items())


def _cases(expression: Any) -> list[tuple[Any, int]]:
    """Return domain and value of each case of an expression that is constant in few cases; none if it is not."""
    pieces = expression.coalesce().get_pieces()
    if len(pieces) > 8 or not all(affine.is_cst() for _, affine in pieces):
        return []
    return [(domain, int(affine.get_constant_val().to_python())) for domain, affine in pieces]


def _few_values(expression: Any, active: Any) -> list[tuple[Any, int]]:
    """Return domain and value of each case of an expression that has few values, none of them below zero; else none."""
    values = isl.Map.from_pw_aff(expression).intersect_domain(active).range()
    values = values.project_out(_PARAMETER, 0, values.dim(_PARAMETER))
    low, high = values.dim_min_val(0), values.dim_max_val(0)
    if values.is_empty() or not (low.is_int() and high.is_int()):
        return []
    first, last = int(low.to_python()), int(high.to_python())
    if first < 0 or last - first >= _FEW:
        return []
    return [(expression.eq_set(constant(value)), value) for value in range(first, last + 1)]


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
    if scalar_bytes(value.dtype) < 8:
        where.require_below(value, 1 << 8 * scalar_bytes(value.dtype))
    expression = value.affine
    negative = expression.lt_set(constant(0))
    if negative.intersect(where.active).is_empty():
        return expression
    above = expression.add(constant(1 << 8 * scalar_bytes(value.dtype))).intersect_domain(negative)
    return tidy(expression.intersect_domain(expression.ge_set(constant(0))).union_add(above))


def signed(value: Integer, where: Where) -> Integer:
    """Return what an integer's type holds as an integer of a signed type; NotAffineError where it wraps around."""
    if value.dtype.startswith("u") and scalar_bytes(value.dtype) < 8:
        if set(value.terms) <= {()}:
            return replace(value, terms={(): wrapped(value, where)}, dtype="int64")
        where.require_below(value, 1 << 8 * scalar_bytes(value.dtype))
    return value.typed("int64")


def quotient(expression: Any, divisor: int, active: Any) -> Any:
    """Return the quotient by a constant, rounded towards zero as C does."""
    if divisor > 0 and expression.lt_set(constant(0)).intersect(active).is_empty():
        return expression.div(constant(divisor)).floor()
    return tidy(expression.tdiv_q(constant(divisor)))


def masked(expression: Any, mask: int) -> Any:
    """Return the bits of an expression that a constant selects."""
    if mask < 0:
        step = -mask
        if step & (step - 1):
            msg = "it selects bits by a negative mask"
            raise NotAffineError(msg)
        return expression.div(constant(step)).floor().mul(constant(step))
    found = constant(0)
    for run in re.finditer("1+", f"{mask:b}"[::-1]):
        first, end = run.span()
        part = expression.div(constant(1 << first)).floor().mod_val(isl.Val(1 << (end - first)))
        found = found.add(part.mul(constant(1 << first)))
    return tidy(found)


def integer_operation(name: str, one: Integer, two: Integer, where: Where) -> Integer:
    """Return what a binary operator of clang's name gives; NotAffineError where that is not affine."""
    if name in {"Add", "Sub"}:
        return one.plus(two, 1 if name == "Add" else -1)
    if name == "Mul":
        return one.times(two, where.sizes)
    number = two.value
    if name in {"Div", "Rem"}:
        if not number:
            msg = "it divides by a variable"
            raise NotAffineError(msg)
        dividend = wrapped(one, where)
        found = quotient(dividend, number, where.active)
        return Integer.of(found if name == "Div" else tidy(dividend.sub(found.mul(constant(number)))))
    # Beyond the width of its type C says nothing of a shift.
    if name == "Shl":
        if number is not None and 0 <= number < _MOST_BITS:
            return one.scaled(1 << number)
        cases = _cases(two.affine) or _few_values(two.affine, where.active)
        if (shifted := one.value) is not None and cases and max(places for _, places in cases) < _MOST_BITS:
            parts = [constant(shifted << max(places, 0)).intersect_domain(domain) for domain, places in cases]
            return Integer.of(reduce(isl.PwAff.union_add, parts))
    if name == "Shr" and number is not None and 0 <= number < _MOST_BITS:
        return Integer.of(wrapped(one, where).div(constant(1 << number)).floor())
    if name in {"And", "Or", "Xor"}:
        return _bits(name, one, two, where)
    msg = "it shifts by a variable"
    raise NotAffineError(msg)


def _bits(name: str, one: Integer, two: Integer, where: Where) -> Integer:
    first, second = one.value, two.value
    if first is not None and second is not None:
        return Integer.of({"And": first & second, "Or": first | second, "Xor": first ^ second}[name])
    if second is None:
        one, two, second = two, one, first
    if second is not None:
        expression = wrapped(one, where)
        both = masked(expression, second)
        if name == "And":
            return Integer.of(both)
        together = expression.add(constant(second)).sub(both)
        return Integer.of(tidy(together if name == "Or" else together.sub(both)))
    bits = [each.affine for each in (one, two)]
    if name != "Xor" and all(map(_is_truth, bits)):
        return Integer.of(bits[0].min(bits[1]) if name == "And" else bits[0].max(bits[1]))
    msg = "it combines bits of two variables"
    raise NotAffineError(msg)


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
        factors = [(isl.PwAff(term), prod(int(sizes[name]) for name in key)) for key, term in self.terms]
        value = reduce(isl.PwAff.add, [term.mul(constant(factor)) for term, factor in factors])
        above = value.ge_set(constant(self.limit)).intersect(isl.Set(self.active))
        for name, size in sizes.items():
            place = above.find_dim_by_name(_PARAMETER, name)
            above = above if place < 0 else above.fix_val(_PARAMETER, place, isl.Val(int(size)))
        return bool(above.is_empty())


def _is_truth(expression: Any) -> bool:
    if expression.n_piece() > 6:
        return False
    outside = expression.lt_set(constant(0)).union(expression.gt_set(constant(1)))
    return bool(outside.is_empty())
