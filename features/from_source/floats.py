"""Floats that are known as an integer plus a constant, as coordinates of textures are."""

from __future__ import annotations

import math
from functools import lru_cache

from perflex.features.from_source.integers import Integer, NotAffineError, Where, constant, signed
from perflex.features.from_source.values import Unknown, Value
from perflex.isl import isl

# The denominator of the finest constants.
FINEST = 1024


@lru_cache(maxsize=256)
def rational(number: float | None) -> Integer | None:
    """Return a float that is a whole number of `FINEST` parts of one; 0.1 is none, which floats cannot hold."""
    if number is None or not math.isfinite(number) or number * FINEST % 1 or abs(number) > 2**40:
        return None
    return Integer.of(isl.PwAff(f"{{ [] -> [({round(number * FINEST)}/{FINEST})] }}"), "int64")


def is_known(value: Value) -> bool:
    """Return whether a number is an integer, a constant, or both."""
    return isinstance(value, Integer) or (
        isinstance(value, Unknown) and (value.source is not None or value.constant is not None)
    )


def exact(value: Value, where: Where) -> Integer | None:
    """Return a number as an integer plus a constant; None if it is none."""
    if isinstance(value, Integer):
        try:
            return signed(value, where)
        except NotAffineError:
            return None
    if not isinstance(value, Unknown) or value.lanes > 1:
        return None
    return value.source if value.source is not None else rational(value.constant)


def exact_result(name: str, one: Value, two: Value, where: Where) -> Integer | None:
    """Return what an operator of clang's name gives for floats, if it is an integer plus a constant."""
    first, second = exact(one, where), exact(two, where)
    if first is None or second is None:
        return None
    try:
        if name in {"Add", "Sub"}:
            return first.plus(second, 1 if name == "Add" else -1)
        for factor, rest in ((first, second), (second, first)):
            if name == "Mul" and (number := factor.value) is not None:
                return rest.scaled(number)
    except NotAffineError:
        pass
    return None


def truncated(number: Integer, dtype: str, where: Where) -> Value:
    """Return a float as C converts it to an integer; what is below zero is not known."""
    try:
        if number.scaled(FINEST).affine.lt_set(constant(0)).intersect(where.active).is_empty():
            return Integer.of(number.affine.floor(), dtype)
    except NotAffineError:
        pass
    return Unknown(dtype, reason="not affine")


def floor_of(number: Integer) -> Integer:
    """Return the largest integer that is not above a number."""
    return Integer({product: term.floor() for product, term in number.terms.items()}, "int64")
