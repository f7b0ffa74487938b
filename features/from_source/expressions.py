"""C expressions: what they evaluate to, and the accesses and operations that evaluating them executes."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from perflex.features.from_source.initialisers import Initialisers
from perflex.features.from_source.integers import Integer, NotAffineError, constant, integer_operation, wrapped
from perflex.features.from_source.parsing import Node
from perflex.features.from_source.places import Places
from perflex.features.from_source.values import (
    FINEST,
    Closure,
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
    unknown_of,
    vector_of,
)
from perflex.features.from_source.walk import Condition, Walk, overlap
from perflex.features.lowering.arithmetic_types import common_type, is_float, scalar_bytes

# isl's functions of where comparisons hold and fail.
_COMPARISONS = {
    "LT": ("lt_set", "ge_set"), "GT": ("gt_set", "le_set"), "LE": ("le_set", "gt_set"), "GE": ("ge_set", "lt_set"),
    "EQ": ("eq_set", "ne_set"), "NE": ("ne_set", "eq_set"),
}  # fmt: skip
_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}
# Operations by clang's names, if they are others.
_KINDS = {"Sub": "add", "Rem": "mod", "Shl": "shift", "Shr": "shift", "And": "bit", "Or": "bit", "Xor": "bit"}
_FOLDED = {"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": operator.truediv}
_SUFFIX = re.compile(r"[uUlLfFhH]+$")
# Above each integer.
_BEYOND = 2.0**64


class Calls(Protocol):
    """What evaluates calls."""

    def begin(self, expressions: Expressions) -> None:
        """Take what evaluates the arguments."""

    def called(self, cursor: Node) -> Value:
        """Evaluate a call; of a function that returns a reference, the place."""
        ...

    def closure(self, cursor: Node) -> Value:
        """Return a lambda."""
        ...


class Expressions:
    """Evaluates expressions."""

    def __init__(self, walk: Walk, calls: Calls) -> None:
        self.walk = walk
        self.places = Places(walk, self)
        self.initialisers = Initialisers(walk.types, self.value, self.converted)
        calls.begin(self)
        self.called = calls.called
        self._readers: dict[str, Callable[[Node], Value]] = {
            "PAREN_EXPR": lambda cursor: self.value(cursor.children[0]),
            "UNEXPOSED_EXPR": self._unexposed,
            "FLOATING_LITERAL": self._float_literal,
            "UNARY_OPERATOR": self._unary,
            "BINARY_OPERATOR": self._binary,
            "COMPOUND_ASSIGNMENT_OPERATOR": self._compound,
            "CONDITIONAL_OPERATOR": self._conditional,
            "CALL_EXPR": self._called,
            "LAMBDA_EXPR": calls.closure,
            "CXX_THIS_EXPR": lambda _: self._address(self.places.owner()),
        }
        for reader, names in (
            (self._integer, "INTEGER_LITERAL CXX_BOOL_LITERAL_EXPR CHARACTER_LITERAL CXX_UNARY_EXPR"),
            (self._named, "DECL_REF_EXPR ARRAY_SUBSCRIPT_EXPR MEMBER_REF_EXPR"),
            (self._cast, "CSTYLE_CAST_EXPR CXX_STATIC_CAST_EXPR CXX_REINTERPRET_CAST_EXPR CXX_FUNCTIONAL_CAST_EXPR"),
            (self._cast, "CXX_CONST_CAST_EXPR"),
            (self._list, "INIT_LIST_EXPR COMPOUND_LITERAL_EXPR"),
            (lambda _: Integer.of(0, "int64"), "CXX_NULL_PTR_LITERAL_EXPR GNU_NULL_EXPR"),
            (lambda _: Unknown("int64", reason="uniform"), "STRING_LITERAL"),
        ):
            self._readers |= dict.fromkeys(names.split(), reader)

    # Values

    def value(self, cursor: Node) -> Value:
        """Evaluate an expression."""
        reader = self._readers.get(cursor.kind)
        if reader is None:
            name = cursor.kind.lower().replace("_", " ")
            raise self.walk.refuse(f"{name} is not read; write it without", cursor.location.line)
        return reader(cursor)

    def discarded(self, cursor: Node) -> None:
        """Evaluate an expression whose value nobody reads."""
        inner = cursor.stripped
        (self.called if inner.kind == "CALL_EXPR" else self.value)(inner)

    def _called(self, cursor: Node) -> Value:
        found = self.called(cursor)
        return self.places.load(found) if isinstance(found, Place) else found

    def _address(self, place: Place) -> Value:
        if place.memory is not None:
            return place.memory
        if isinstance(place.value, Closure):
            return place.value
        return self.places.load(place) if place.type.kind == "array" else place

    def _named(self, cursor: Node) -> Value:
        return self.places.load(self.places.place(cursor))

    def constant(self, cursor: Node) -> int | None:
        """Return the value of an expression if it is a known number."""
        value = self.value(cursor)
        return value.value if isinstance(value, Integer) else None

    def _unexposed(self, cursor: Node) -> Value:
        if cursor.lane:
            return self._named(cursor)
        inner, kind = cursor.operands, self.walk.types.read(cursor.type)
        if cursor.type.kind.name in {"DEPENDENT", "OVERLOAD"}:
            raise self.walk.refuse("clang does not understand an expression here; write it out", cursor.location.line)
        if len(inner) == 1:
            whole = self.walk.types.read(inner[0].type)
            vector = "vector" in {whole.kind, whole.element.kind if whole.element else ""}
            if vector and kind.kind == "scalar" and kind.dtype != "bool":
                cause = "which element of a vector a macro names is not known; write it without the macro"
                raise self.walk.refuse(cause, cursor.location.line)
            value = self.value(inner[0])
            return self.converted(value, kind) if kind.is_number else value
        if cursor.value is not None:
            return Integer.of(cursor.value)
        return [self.value(each) for each in inner][-1] if inner else unknown_of(kind)

    def _integer(self, cursor: Node) -> Integer:
        number = cursor.value
        if number is None:
            raise self.walk.refuse("this number is not understood; write it out", cursor.location.line)
        return Integer.of(number, self.walk.types.read(cursor.type).dtype or "int32")

    def _float_literal(self, cursor: Node) -> Value:
        dtype = self.walk.types.read(cursor.type).dtype or "float32"
        word = cursor.words[0] if cursor.words else ""
        try:
            number = float.fromhex(word) if word.lower().startswith("0x") else float(_SUFFIX.sub("", word))
        except ValueError:
            return Unknown(dtype, reason="uniform")
        return self.number(number, dtype)

    @staticmethod
    def number(number: float, dtype: str) -> Integer | Unknown:
        """Return a constant of a type."""
        if not is_float(dtype):
            return Integer.of(int(number), dtype)
        return Unknown(dtype, reason="uniform", constant=number, source=rational(number))

    def _list(self, cursor: Node) -> Value:
        kind = self.walk.types.read(cursor.type)
        if kind.kind != "vector" or kind.struct_bytes:
            return self.initialisers.listed(cursor, kind)
        values = [self.value(each) for each in cursor.operands]
        return self.converted(values[0], kind) if len(values) == 1 else vector_of(kind, values)

    # Conversions

    def converted(self, value: Value, kind: CType) -> Value:
        """Return a value as one of another type."""
        if isinstance(value, Pointer):
            pointee = kind.element if kind.kind == "pointer" else None
            # Extents that depend on template parameters are those of the array.
            if pointee is None or pointee.kind in {"void", "unknown"} or None in pointee.inner[1]:
                return value
            return replace(value, element=pointee)
        if not kind.is_number or not isinstance(value, (Integer, Unknown)):
            return value
        if isinstance(value, Integer):
            floating = is_float(kind.dtype)
            return self._as_float(value, kind.dtype, kind.lanes) if floating else self._cut(value, kind.dtype)
        if value.dtype == kind.dtype and (value.lanes == kind.lanes or kind.kind == "scalar"):
            return value
        if value.constant is not None and kind.is_integer:
            # Beyond all integers C says nothing of it.
            known = abs(value.constant) < _BEYOND
            return Integer.of(int(value.constant), kind.dtype) if known else Unknown(kind.dtype, reason="undefined")
        if kind.is_integer and value.source is not None:
            # C rounds towards zero: what is below is not known.
            with suppress(NotAffineError):
                below = self._compared("LT", value.source.scaled(FINEST), Integer.of(0)).true
                if below.intersect(self.walk.active).is_empty():
                    return value.source.floor().typed(kind.dtype)
            return Unknown(kind.dtype, reason="not affine")
        lanes = kind.lanes if kind.kind == "vector" else 1
        return replace(value, dtype=kind.dtype, lanes=lanes, product=None, parts=())

    def _as_float(self, value: Integer | Unknown, dtype: str, lanes: int = 1) -> Unknown:
        """Return a number as a float, if it is none."""
        if isinstance(value, Unknown):
            return value
        number = value.value
        if number is None:
            self.walk.operation("convert", dtype)
        return Unknown(dtype, lanes, "uniform", None if number is None else float(number), exact(value, self.walk))

    def _cut(self, value: Integer, dtype: str) -> Value:
        """Return an integer as another integer type holds it, as far as it changes."""
        if dtype == "bool":
            return self._truth(self.comparison("NE", value, Integer.of(0)))
        if value.dtype.startswith("u") and scalar_bytes(dtype) > scalar_bytes(value.dtype):
            with suppress(NotAffineError):
                return replace(Integer.of(wrapped(value, self.walk), dtype), cut=value.cut)
        return value.typed(dtype)

    def _cast(self, cursor: Node) -> Value:
        inner = cursor.operands
        kind = self.walk.types.read(cursor.type)
        return self.converted(self.value(inner[-1]), kind) if inner else unknown_of(kind, "uniform")

    # Conditions

    def condition(self, cursor: Node) -> Condition:
        """Evaluate an expression as a condition."""
        cursor = cursor.stripped
        if cursor.kind == "BINARY_OPERATOR":
            name = cursor.binary_operator.name
            left, right = cursor.children
            if name in {"LAnd", "LOr"}:
                return self._two_conditions(left, right, either=name == "LOr")
            if name in _COMPARISONS:
                return self.comparison(name, self.value(left), self.value(right))
        if cursor.kind == "UNARY_OPERATOR" and cursor.sign == "!":
            return self.condition(cursor.children[0]).negated()
        return self.truth(self.value(cursor))

    def truth(self, value: Value) -> Condition:
        """Return where a value is not zero."""
        if isinstance(value, Unknown) and value.constant is not None:
            value = Integer.of(int(value.constant != 0))
        if isinstance(value, Pointer) and value.array is not None and not value.nullable:  # arguments are never null
            value = Integer.of(1)
        if isinstance(value, Integer):
            return self.comparison("NE", value, Integer.of(0))
        return Condition(reason=result_of(value).reason)

    def _two_conditions(self, left: Node, right: Node, *, either: bool) -> Condition:
        """Return where both conditions hold, or `either` one: where it is not that both fail."""
        walk, before = self.walk, self.walk.active
        one = self.condition(left)
        one = one.negated() if either else one
        # The second is evaluated where the first leaves it open.
        walk.active = before.intersect(one.true) if one.known else before
        walk.guards += not one.known
        two = one
        if not walk.active.is_empty():
            two = self.condition(right)
            two = two.negated() if either else two
        walk.guards -= not one.known
        walk.active = before
        if one.known and two.known:
            found = Condition(one.true.intersect(two.true), one.false.union(two.false))
        else:
            may = overlap(*(each.true if each.known else each.may for each in (one, two)))
            found = Condition(reason=two.reason if one.known else one.reason, may=may)
        return found.negated() if either else found

    def comparison(self, name: str, left: Value, right: Value) -> Condition:
        """Return where two values compare."""
        for pointer, null in ((left, right), (right, left)):
            if isinstance(pointer, Pointer) and isinstance(null, Integer) and null.value == 0 and name in {"EQ", "NE"}:
                return self.truth(pointer) if name == "NE" else self.truth(pointer).negated()
        try:
            if isinstance(left, Integer) and isinstance(right, Integer):
                return self._compared(name, left, right)
            if (known := self._compared_floats(name, left, right)) is not None:
                return known
        except NotAffineError:
            return Condition(reason="not affine")
        found = result_of(left, right)
        self.walk.operation("cmp", found.dtype, found.lanes)
        return Condition(reason=found.reason)

    def _compared_floats(self, name: str, left: Value, right: Value) -> Condition | None:
        """Return where two numbers compare of which one at least is a float; None if that is not known."""
        one, two = (exact(each, self.walk) for each in (left, right))
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
        return Condition(*(getattr(difference, function)(constant(0)) for function in _COMPARISONS[name]))

    def _truth(self, condition: Condition) -> Value:
        """Return a condition as a number."""
        if not condition.known:
            return Unknown("int32", reason=condition.reason)
        one = constant(1).intersect_domain(condition.true)
        zero = constant(0).intersect_domain(condition.false)
        return Integer.of(one.union_add(zero).coalesce())

    def _conditional(self, cursor: Node) -> Value:
        test, then, other = cursor.children
        ways = (lambda: self.value(then)), (lambda: self.value(other))
        one, two, split = self.walk.branch(self.condition(test), *ways)
        if one is not None and two is not None:
            return self.walk.joined(one, two, split)
        return one or two or unknown_of(self.walk.types.read(cursor.type))

    # Operators

    def _unary(self, cursor: Node) -> Value:
        sign = cursor.sign
        inner = cursor.children[0]
        if sign in {"x++", "++x", "x--", "--x"}:
            before, after = self._updated(inner, "Add", Integer.of(1 if "+" in sign else -1))
            return after if sign.endswith("x") else before
        if sign == "&":
            return self._address(self.places.place(inner))
        if sign == "*":
            return self._named(cursor)
        if sign == "!":
            return self._truth(self.condition(cursor))
        value = self.value(inner)
        if isinstance(value, Integer) and sign in {"-", "~"}:
            return value.scaled(-1) if sign == "-" else value.scaled(-1).plus(Integer.of(-1, value.dtype))
        if isinstance(value, Unknown) and sign == "-":
            source = None if value.source is None else value.source.scaled(-1)
            return replace(value, constant=None if value.constant is None else -value.constant, source=source, parts=())
        if isinstance(value, Unknown) and sign == "~":
            self.walk.operation("bit", value.dtype, value.lanes)
        return value

    def _binary(self, cursor: Node) -> Value:
        name = cursor.binary_operator.name
        left, right = cursor.children
        if name == "Assign":
            value = self.converted(self.value(right), self.walk.types.read(left.type))
            self.places.store(self.places.place(left), value)
            return value
        if name == "Comma":
            self.value(left)
            return self.value(right)
        if name in {"LAnd", "LOr", *_COMPARISONS}:
            return self._truth(self.condition(cursor))
        return self.arithmetic(name, self.value(left), self.value(right))

    def _compound(self, cursor: Node) -> Value:
        left, right = cursor.children
        return self._updated(left, cursor.binary_operator.name.removesuffix("Assign"), self.value(right))[1]

    def _updated(self, left: Node, name: str, operand: Value) -> tuple[Value, Value]:
        """Assign what an operator gives for an expression and an operand to it; return its values before and after."""
        place = self.places.place(left)
        before = self.places.load(place)
        after = self.converted(self.arithmetic(name, before, operand), self.walk.types.read(left.type))
        self.places.store(place, after)
        return before, after

    def arithmetic(self, name: str, one: Value, two: Value) -> Value:
        """Return what a binary operator of clang's name gives."""
        for pointer, step in ((one, two), (two, one)):
            if isinstance(pointer, Pointer) and isinstance(step, (Integer, Unknown)) and name in {"Add", "Sub"}:
                signed = step.scaled(-1) if name == "Sub" and isinstance(step, Integer) else step
                return self.places.moved(pointer, signed)
        if not isinstance(one, (Integer, Unknown)) or not isinstance(two, (Integer, Unknown)):
            return Unknown("int64" if isinstance(one, Pointer) else "float32")
        if isinstance(one, Integer) and isinstance(two, Integer):
            dtype = common_type(one.dtype, two.dtype)
            try:
                return integer_operation(name, one, two, self.walk).typed(dtype)
            except NotAffineError:
                return Unknown(dtype, reason="not affine")
        found = self._inexact(name, one, two)
        return self._by_element(name, one, two, found) if found.lanes > 1 else found

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
        found = result_of(*values)
        found = replace(found, dtype=dtype or found.dtype, lanes=lanes or found.lanes)
        self.walk.operation(kind, found.dtype, found.lanes)
        return replace(found, chains=chains_of(values, (found.dtype, kind)))

    def _inexact(self, name: str, one: Integer | Unknown, two: Integer | Unknown) -> Unknown:
        found, kind = result_of(one, two), _KINDS.get(name, name.lower())
        dtype, lanes = found.dtype, found.lanes
        if not is_float(dtype):
            return self.operated(kind, (one, two))
        first, second = self._as_float(one, dtype), self._as_float(two, dtype)
        if (number := _folded(name, first, second)) is not None:
            if any(each.source is not None and each.source.argument for each in (first, second)):
                self.walk.operation(kind, dtype, lanes)
            return Unknown(dtype, lanes, "uniform", number, rational(number) if lanes == 1 else None)
        source = self._exact_result(name, first, second)
        factor, rest = (second, first) if first.product is None else (first, second)
        if kind == "add" and factor.product is not None and factor.dtype == dtype:
            # A product that feeds a sum is one operation.
            factor.product.operations[dtype, "mul"] -= lanes
            kind, second = "madd", rest
            first = replace(factor, chains={key: chain[:-1] for key, chain in factor.chains.items()})
        found = replace(self.operated(kind, (first, second)), source=source)
        return replace(found, product=self.walk.record()) if kind == "mul" else found


def _folded(name: str, one: Unknown, two: Unknown) -> float | None:
    if name not in _FOLDED or one.constant is None or two.constant is None:
        return None
    try:
        return float(_FOLDED[name](one.constant, two.constant))
    except ArithmeticError:
        return None
