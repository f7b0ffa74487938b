"""Arithmetic, comparisons and conversions of values, and the operations that they execute."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Sequence
from contextlib import suppress

from perflex.features.from_source.copies import replace
from perflex.features.from_source.integers import (
    Integer,
    NotAffineError,
    constant,
    fitted,
    holds,
    integer_operation,
    number_of,
    outside,
    signed,
    within_type,
    wrapped,
)
from perflex.features.from_source.iterations import EVERYWHERE, NOWHERE
from perflex.features.from_source.pending import Pending, all_of
from perflex.features.from_source.places import Places, seen_as
from perflex.features.from_source.values import (
    FINEST,
    CType,
    Place,
    Pointer,
    Unknown,
    Value,
    chains_of,
    exact,
    known_part,
    rational,
    result_of,
    rounded,
    somewhere,
)
from perflex.features.from_source.walk import Condition, Walk
from perflex.features.lowering.arithmetic_types import common_type, is_float, scalar_bytes

# isl's functions of where comparisons hold and fail.
COMPARISONS = {
    "LT": ("lt_set", "ge_set"), "GT": ("gt_set", "le_set"), "LE": ("le_set", "gt_set"), "GE": ("ge_set", "lt_set"),
    "EQ": ("eq_set", "ne_set"), "NE": ("ne_set", "eq_set"),
}  # fmt: skip
_HOLDS = {
    "LT": operator.lt, "GT": operator.gt, "LE": operator.le, "GE": operator.ge, "EQ": operator.eq, "NE": operator.ne,
}  # fmt: skip
_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}
# Operations by clang's names, if they are others.
_KINDS = {"Sub": "add", "Shl": "shift", "Shr": "shift", "And": "bit", "Or": "bit", "Xor": "bit"}
# Of an integer by a number.
_DIVISIONS = {"Div": "floordiv", "Rem": "mod"}
# Operator and operand that change nothing but a sign.
_NEUTRAL = {("Mul", 1), ("Mul", -1), ("Div", 1), *((name, 0) for name in ("Add", "Sub", "Shl", "Shr", "Or", "Xor"))}
_COMMUTATIVE = {"Add", "Mul", "Or", "Xor"}
_FOLDED = {"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": operator.truediv}
# Floats hold each integer up to here.
_EXACT = {"bfloat16": 1 << 8, "float16": 1 << 11, "float32": 1 << 24}
_PART = re.compile(r"/(\d+)")
# Above each integer.
_BEYOND = 2.0**64


class Arithmetic:
    """Computes with values."""

    def __init__(self, walk: Walk, places: Places) -> None:
        self.walk, self.places = walk, places

    # Conversions

    def converted(self, value: Value, kind: CType) -> Value:
        """Return a value as one of another type."""
        if isinstance(value, Pointer):
            return _cast(value, kind)
        if isinstance(value, Place) and kind.kind == "pointer" and kind.element is not None:
            return seen_as(value, kind.element)
        if not kind.is_number or not isinstance(value, (Integer, Unknown)):
            return value
        if isinstance(value, Integer):
            floating = is_float(kind.dtype)
            return self._as_float(value, kind.dtype, kind.lanes) if floating else self._cut(value, kind.dtype)
        if value.dtype == kind.dtype and (value.lanes == kind.lanes or kind.kind == "scalar"):
            return value
        if value.constant is not None and kind.is_integer:
            # Beyond all integers C says nothing of it.
            if not abs(value.constant) < _BEYOND:
                return Unknown(kind.dtype, reason="undefined")
            return Integer.of(int(value.constant), kind.dtype, literal=value.literal)
        if kind.is_integer and value.source is not None:
            return self._rounded(value.source, value.dtype, kind.dtype)
        lanes = kind.lanes if kind.kind == "vector" else 1
        number = rounded(value.constant, kind.dtype)
        source = value.source if number == value.constant else rational(number)
        return replace(value, dtype=kind.dtype, lanes=lanes, product=None, parts=(), constant=number, source=source)

    def reread(self, value: Value, kind: CType) -> Value:
        """Return a number's bits as another type's."""
        found = result_of(value)
        if (is_float(found.dtype), found.lanes) == (is_float(kind.dtype), kind.lanes):
            return self.converted(value, kind)
        self.walk.settle(value)
        return Unknown(kind.dtype, kind.lanes, found.reason)

    def rounded(self, value: Value, kind: CType, *, saturates: bool) -> Value:
        """Return a number as an integer type holds it that does not wrap around, or to which it is not cut off."""
        fits = not saturates or not kind.is_integer
        if isinstance(value, Integer) and not fits:
            with suppress(NotAffineError):
                fits = outside(wrapped(value, self.walk), kind.dtype).intersect(self.walk.active).is_empty()
        whole = isinstance(value, Integer) or is_float(kind.dtype)
        if not isinstance(value, (Integer, Unknown)) or (fits and whole):
            return self.converted(value, kind)
        self.walk.settle(value)
        is_data = isinstance(value, Unknown) and value.constant is None and value.source is None
        return Unknown(kind.dtype, kind.lanes, result_of(value).reason if is_data else "not affine")

    def _rounded(self, value: Integer, of: str, dtype: str) -> Integer | Unknown:
        """Return a float, an integer plus a constant, as an integer; C rounds to zero: below that is not known."""
        with suppress(NotAffineError):
            require_exact(value, of, self.walk)
            below = self._compared("LT", value.scaled(FINEST), Integer.of(0)).true
            if below.intersect(self.walk.active).is_empty():
                return value.floor().typed(dtype)
        return Unknown(dtype, reason="not affine")

    def _as_float(self, value: Integer | Unknown, dtype: str, lanes: int = 1) -> Unknown:
        """Return a number as a float, if it is none."""
        if isinstance(value, Unknown):
            return value
        self.walk.settle(value)
        number = None if value.value is None else rounded(float(value.value), dtype)
        source = exact(value, self.walk) if number is None or number == value.value else rational(number)
        return Unknown(dtype, lanes, "uniform", number, value.literal, source)

    def _cut(self, value: Integer, dtype: str) -> Value:
        """Return an integer as another integer type holds it, as far as it changes."""
        if dtype == value.dtype:
            return value
        if dtype == "bool":
            return self.as_number(self.comparison("NE", value, Integer.of(0)))
        with suppress(NotAffineError):
            if value.dtype.startswith("u") and scalar_bytes(dtype) > scalar_bytes(value.dtype):
                return signed(value, self.walk).typed(dtype)
            return value.typed(dtype) if holds(dtype, value.dtype) else fitted(value, dtype, self.walk)
        self.walk.settle(value)
        return Unknown(dtype, reason="not affine")

    # Comparisons

    def truth(self, value: Value) -> Condition:
        """Return where a value is not zero."""
        if isinstance(value, Unknown) and value.constant is not None:
            value = Integer.of(int(value.constant != 0))
        if isinstance(value, Pointer) and value.array is not None and not value.nullable:  # arguments are never null
            value = Integer.of(1)
        if isinstance(value, Integer):
            return self.comparison("NE", value, Integer.of(0))
        return Condition(reason="data" if isinstance(value, Pointer) else result_of(value).reason)

    def comparison(self, name: str, left: Value, right: Value) -> Condition:
        """Return where two values compare."""
        for pointer, null in ((left, right), (right, left)):
            if isinstance(pointer, Pointer) and isinstance(null, Integer) and null.value == 0 and name in {"EQ", "NE"}:
                return self.truth(pointer) if name == "NE" else self.truth(pointer).negated()
        try:
            if isinstance(left, Pointer) and isinstance(right, Pointer) and left.array == right.array is not None:
                left, right = left.offset, right.offset
            if isinstance(left, Integer) and isinstance(right, Integer):
                return self._compared(name, left, right)
            if (known := self._compared_floats(name, left, right)) is not None:
                return known
        except NotAffineError:
            return Condition(reason="not affine")
        found = result_of(left, right)
        self.walk.settle(left, right)
        self.walk.operation("cmp", found.dtype, found.lanes)
        return Condition(reason=found.reason)

    def _compared_floats(self, name: str, left: Value, right: Value) -> Condition | None:
        """Return where two numbers compare of which one at least is a float; None if that is not known."""
        one, two = (exact(each, self.walk) for each in (left, right))
        for number, given in ((one, left), (two, right)):
            if number is not None and isinstance(given, Unknown) and given.constant is None:
                require_exact(number, given.dtype, self.walk)
        if one is None:
            one, two, right, name = two, one, left, _MIRRORED[name]
        if one is None:
            return None
        # isl compares whole numbers: floats become some.
        if two is not None:
            return self._compared(name, one.scaled(FINEST), two.scaled(FINEST))
        limit = right.constant if isinstance(right, Unknown) else None
        if limit is None or not abs(limit) < _BEYOND or name in {"EQ", "NE"}:
            return None
        nearest = math.floor(limit * FINEST) if name in {"LE", "GT"} else math.ceil(limit * FINEST)
        return self._compared(name, one.scaled(FINEST), Integer.of(nearest, "int64"))

    def _compared(self, name: str, one: Integer, two: Integer) -> Condition:
        """Return where two integers compare; NotAffineError where that is not affine."""
        dtype = common_type(one.dtype, two.dtype)
        if dtype.startswith("u"):
            one, two = (Integer.of(wrapped(each.typed(dtype), self.walk), dtype) for each in (one, two))
        difference = one.plus(two, -1).affine
        if (number := number_of(difference)) is not None:
            return Condition(EVERYWHERE, NOWHERE) if _HOLDS[name](number, 0) else Condition(NOWHERE, EVERYWHERE)
        return Condition(*(getattr(difference, function)(constant(0)) for function in COMPARISONS[name]))

    def as_number(self, condition: Condition) -> Value:
        """Return a condition as a number."""
        if not condition.known:
            return Unknown("int32", reason=condition.reason)
        one = constant(1).intersect_domain(condition.true)
        zero = constant(0).intersect_domain(condition.false)
        return Integer.of(one.union_add(zero).coalesce())

    # Operators

    def arithmetic(self, name: str, one: Value, two: Value) -> Value:
        """Return what a binary operator of clang's name gives."""
        if (
            isinstance(one, Pointer)
            and isinstance(two, Pointer)
            and name == "Sub"
            and one.array == two.array is not None
        ):
            size = Integer.of(max(one.element.bytes, 1), "int64")
            return self.arithmetic("Div", self.arithmetic("Sub", one.offset, two.offset), size)
        for pointer, step in ((one, two), (two, one)):
            if isinstance(pointer, Pointer) and isinstance(step, (Integer, Unknown)) and name in {"Add", "Sub"}:
                signed = step.scaled(-1) if name == "Sub" and isinstance(step, Integer) else step
                return self.places.moved(pointer, signed)
        addresses = [each for each in (one, two) if isinstance(each, Pointer)]
        if name in {"And", "Or"} and len(addresses) == 1:
            # What is aligned points to the same array; what is left of an address may be zero.
            return replace(somewhere(addresses[0], "not affine"), nullable=True)
        if not isinstance(one, (Integer, Unknown)) or not isinstance(two, (Integer, Unknown)):
            return Unknown("int64" if isinstance(one, Pointer) else "float32")
        if isinstance(one, Integer) and isinstance(two, Integer):
            with suppress(NotAffineError):
                return self._integer_result(name, one, two)
        found = self._inexact(name, one, two)
        return self._by_element(name, one, two, found) if found.lanes > 1 else found

    def _integer_result(self, name: str, one: Integer, two: Integer) -> Integer:
        """Return what an operator gives for known integers; NotAffineError where that is not affine."""
        dtype, kind = _type_of(name, one, two), _kind(name, two)
        found = within_type(integer_operation(name, one, two, self.walk).typed(dtype))
        found = replace(found, literal=one.literal and two.literal)
        before = all_of(one.pending, two.pending)
        if (name, _number(two)) in _NEUTRAL or (name in _COMMUTATIVE and (name, _number(one)) in _NEUTRAL):
            return replace(found, pending=Pending(before=before))
        if found.literal:
            return replace(found, pending=None)
        for each, other in ((one, two), (two, one)):
            if kind == "add" and _is_product(each) and each.dtype == dtype and each.pending is not None:
                kind, before = "madd", (*each.pending.before, *all_of(other.pending))
        return replace(found, pending=Pending(self.walk.record(), dtype, kind, before))

    def _exact_result(self, name: str, one: Unknown, two: Unknown) -> Integer | None:
        """Return what an operator gives for floats, if it is an integer plus a constant."""
        first, second = exact(one, self.walk), exact(two, self.walk)
        if first is None or second is None:
            return None
        with suppress(NotAffineError):
            if name in {"Add", "Sub"}:
                return first.plus(second, 1 if name == "Add" else -1)
            for factor, rest in ((first, second), (second, first)):
                if name == "Mul" and (number := factor.value) is not None:
                    return rest.scaled(number)
        return None

    def _by_element(self, name: str, one: Integer | Unknown, two: Integer | Unknown, found: Unknown) -> Unknown:
        """Return a vector with the elements that are known."""
        kept = any(isinstance(each, Unknown) and each.parts for each in (one, two))
        if not kept or name not in {"Add", "Sub", "Mul"}:
            return found
        parts = []
        self.walk.recorder.dry += 1
        for place in range(found.lanes):
            pair = [each.parts[place] if isinstance(each, Unknown) and each.parts else each for each in (one, two)]
            first, second = (each if each is not None and result_of(each).lanes == 1 else None for each in pair)
            result = None if first is None or second is None else self.arithmetic(name, first, second)
            parts.append(None if result is None else known_part(result, found.dtype))
        self.walk.recorder.dry -= 1
        return replace(found, parts=tuple(parts) if any(parts) else ())

    def operated(self, kind: str, values: Sequence[Integer | Unknown], dtype: str = "", lanes: int = 0) -> Unknown:
        """Record an operation on numbers that are not all known; return its result."""
        self.walk.settle(*values)
        found = result_of(*values)
        found = replace(found, dtype=dtype or found.dtype, lanes=lanes or found.lanes)
        self.walk.operation(kind, found.dtype, found.lanes)
        return replace(found, chains=chains_of(values, (found.dtype, kind)))

    def _inexact(self, name: str, one: Integer | Unknown, two: Integer | Unknown) -> Unknown:
        found, kind, source, number = result_of(one, two), _kind(name, two), None, None
        dtype, lanes = _type_of(name, one, two), found.lanes
        found = replace(found, dtype=dtype)
        if is_float(dtype):
            one, two = self._as_float(one, dtype), self._as_float(two, dtype)
            number = rounded(_folded(name, one, two), dtype)
            if number is not None and one.literal and two.literal:
                return Unknown(dtype, lanes, "uniform", number, literal=True, source=rational(number))
            source = self._exact_result(name, one, two) if number is None else rational(number)
        elif self.walk.addressing:
            return found
        for factor, rest in ((one, two), (two, one)):
            sign = _number(rest) if name == "Mul" else None
            if sign in {1, -1} and isinstance(factor, Unknown) and (factor.dtype, factor.lanes) == (dtype, lanes):
                return factor if sign == 1 else negative(factor)
        for factor, rest in ((one, two), (two, one)) if kind == "add" else ():
            if _is_product(factor) and factor.dtype == dtype and result_of(factor).lanes == lanes:
                # A product that feeds a sum is one operation.
                kind, (one, two) = "madd", (self._fused(factor, lanes), rest)
                break
        result = replace(self.operated(kind, (one, two), dtype), constant=number, source=source)
        return replace(result, product=self.walk.record()) if kind == "mul" else result

    def _fused(self, product: Integer | Unknown, lanes: int) -> Integer | Unknown:
        """Return a product without its multiplication."""
        if isinstance(product, Integer):
            return replace(product, pending=Pending(before=product.pending.before if product.pending else ()))
        if product.product is not None:
            product.product.operations[product.dtype, "mul"] -= lanes
        return replace(product, chains={key: chain[:-1] for key, chain in product.chains.items()})


def _cast(pointer: Pointer, kind: CType) -> Pointer:
    """Return a pointer to elements of another type, or the address that it is, in bytes."""
    if kind.is_integer and kind.dtype != "bool":
        return replace(pointer, element=CType("scalar", "int8"))
    pointee = kind.element if kind.kind == "pointer" else None
    # Extents that depend on template parameters are those of the array.
    if pointee is None or pointee.kind in {"void", "unknown"} or None in pointee.inner[1]:
        return pointer
    return replace(pointer, element=pointee)


def require_exact(value: Integer, dtype: str, where: Walk) -> None:
    """Look whether a float holds an integer plus a constant; NotAffineError where that is too long for it."""
    if dtype not in _EXACT:
        return
    parts = [int(found) for term in value.terms.values() for found in _PART.findall(str(term))]
    for sign in (1, -1):
        where.require_below(value.scaled(sign * max(parts, default=1)), _EXACT[dtype] + 1)


def _type_of(name: str, one: Integer | Unknown, two: Integer | Unknown) -> str:
    """Return the type of what an operator gives; of a shift the right operand does not matter."""
    return common_type(one.dtype) if name in {"Shl", "Shr"} else common_type(one.dtype, two.dtype)


def _kind(name: str, divisor: Integer | Unknown) -> str:
    """Return the operation of an operator of clang's name.

    Integers are not divided by numbers, but shifted; a remainder by anything else takes as much as a division.
    """
    if name in _DIVISIONS:
        return _DIVISIONS[name] if isinstance(divisor, Integer) and _number(divisor) is not None else "div"
    return _KINDS.get(name, name.lower())


def _number(value: Integer | Unknown) -> float | None:
    """Return the number that a value is, as far as compilers know."""
    return None if not value.literal else value.value if isinstance(value, Integer) else value.constant


def _is_product(value: Integer | Unknown) -> bool:
    """Return whether a value is a product that no variable holds."""
    if isinstance(value, Integer):
        return value.pending is not None and value.pending.kind == "mul"
    return value.product is not None


def negative(value: Unknown) -> Unknown:
    """Return a number with the other sign."""
    source = None if value.source is None else value.source.scaled(-1)
    return replace(value, constant=None if value.constant is None else -value.constant, source=source, parts=())


def _folded(name: str, one: Unknown, two: Unknown) -> float | None:
    if name not in _FOLDED or one.constant is None or two.constant is None:
        return None
    try:
        return float(_FOLDED[name](one.constant, two.constant))
    except ArithmeticError:
        return None
